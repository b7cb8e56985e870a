//! Body of a broker's registration (103) and of a single topic's (217): what a broker has.
//!
//! Three forms arrive: JSON, the same in pieces within a zlib stream, and the bare topic table of brokers before 3.0.11. A Java broker
//! with `compressedRegister` compresses the body and still says `compressed`=false, so the bytes decide, not the header.

use std::io::Read;
use std::sync::Arc;

use flate2::read::ZlibDecoder;

use crate::common::topic::{DataVersion, TopicConfig};
use crate::remoting::fastjson::{self, Value};

use super::object::object_text;
use super::topic::{data_version, topic_config_table, write_data_version};

/// Largest uncompressed body.
pub const MAX_INFLATED_LEN: usize = 64 << 20;

/// What a broker registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterBrokerBody {
    /// Topics.
    pub topics: Vec<TopicConfig>,
    /// Version of the broker's topic table.
    pub data_version: DataVersion,
    /// Whether static topics (queue mappings) came along.
    pub has_mappings: bool,
}

impl RegisterBrokerBody {
    /// Reads any form; an empty body has no topics.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn decode(body: &[u8]) -> Result<Self, String> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        if is_zlib(body) {
            return Self::decode_compressed(body);
        }
        let value = fastjson::parse(body)?;
        let wrapper = value.get("topicConfigSerializeWrapper").unwrap_or(&value);
        Self::from_wrapper(wrapper)
    }

    fn from_wrapper(wrapper: &Value) -> Result<Self, String> {
        if !matches!(wrapper, Value::Object(_)) {
            return Err("the topic table is no object".to_owned());
        }
        Ok(Self {
            topics: topic_config_table(wrapper)?,
            data_version: data_version(wrapper.get("dataVersion")),
            has_mappings: wrapper.get("topicQueueMappingInfoMap").is_some_and(|mappings| !mappings.members().is_empty()),
        })
    }

    fn decode_compressed(body: &[u8]) -> Result<Self, String> {
        let mut plain = Vec::new();
        let limit = MAX_INFLATED_LEN as u64 + 1;
        ZlibDecoder::new(body).take(limit).read_to_end(&mut plain).map_err(|error| format!("the body does not inflate: {error}"))?;
        if plain.len() > MAX_INFLATED_LEN {
            return Err(format!("the inflated body exceeds the limit of {MAX_INFLATED_LEN} bytes"));
        }
        let mut pieces = Pieces { rest: &plain };
        let data_version = data_version(Some(&fastjson::parse(pieces.piece("data version")?)?));
        let count = pieces.number("topic count")?;
        let mut topics = Vec::new();
        for _ in 0..count {
            let text = std::str::from_utf8(pieces.piece("topic")?).map_err(|_| "a topic is no UTF-8".to_owned())?;
            topics.push(topic_from_text(text)?);
        }
        // The list of filter servers, then, from newer brokers, the number of queue mappings.
        let has_mappings = pieces.piece("filter servers").is_ok() && pieces.number("mapping count").is_ok_and(|count| count > 0);
        Ok(Self { topics, data_version, has_mappings })
    }
}

/// The body as a broker sends it.
pub fn register_body_json(topics: &[Arc<TopicConfig>], version: &DataVersion) -> String {
    object_text(|body| {
        body.texts::<&str>("filterServerList", []);
        body.object("topicConfigSerializeWrapper", |wrapper| {
            wrapper.value("dataVersion", |out| write_data_version(out, version));
            wrapper.value("mappingDataVersion", |out| write_data_version(out, &DataVersion::default()));
            wrapper.object("topicConfigTable", |table| {
                for topic in topics {
                    table.serde(&topic.topic_name, &**topic);
                }
            });
            wrapper.object("topicQueueMappingDetailMap", |_| {}).object("topicQueueMappingInfoMap", |_| {});
        });
    })
}

/// CRC of a body as the header of 103 carries it: 31 bits.
pub fn body_crc32(body: &[u8]) -> i32 {
    (crc32fast::hash(body) & 0x7fff_ffff) as i32
}

/// The two bytes that begin a zlib stream; no JSON text begins with them.
fn is_zlib(body: &[u8]) -> bool {
    matches!(body, [method, flags, ..] if method & 0x0f == 8 && method >> 4 <= 7 && u16::from_be_bytes([*method, *flags]) % 31 == 0)
}

/// Reads `name readQueues writeQueues perm filterType attributes`, separated by blanks.
fn topic_from_text(text: &str) -> Result<TopicConfig, String> {
    let mut parts = text.splitn(6, ' ');
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let malformed = || format!("the topic {text:?} is malformed");
    let name = next().ok_or_else(malformed)?.to_owned();
    let mut number = || next().and_then(|part| part.parse::<i32>().ok()).ok_or_else(malformed);
    let (read_queue_nums, write_queue_nums, perm) = (number()?, number()?, number()?);
    let mut config = TopicConfig { topic_name: name, read_queue_nums, write_queue_nums, perm, ..TopicConfig::default() };
    if let Some(filter_type) = next() {
        config.topic_filter_type = filter_type.to_owned();
    }
    if let Some(attributes) = next() {
        let value = fastjson::parse(attributes.as_bytes())?;
        let members = value.members().iter();
        config.attributes = members.filter_map(|(key, value)| Some((key.as_text()?.into_owned(), value.as_text()?.into_owned()))).collect();
    }
    Ok(config)
}

/// Pieces with a length in front, big-endian.
struct Pieces<'a> {
    rest: &'a [u8],
}

impl<'a> Pieces<'a> {
    fn number(&mut self, what: &str) -> Result<usize, String> {
        let (number, rest) = self.rest.split_first_chunk().ok_or_else(|| format!("the body ends before the {what}"))?;
        self.rest = rest;
        usize::try_from(i32::from_be_bytes(*number)).map_err(|_| format!("the {what} is negative"))
    }

    fn piece(&mut self, what: &str) -> Result<&'a [u8], String> {
        let len = self.number(what)?;
        let (piece, rest) = self.rest.split_at_checked(len).ok_or_else(|| format!("the body ends within the {what}"))?;
        self.rest = rest;
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn compressed(pieces: &[&[u8]]) -> Vec<u8> {
        let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        for piece in pieces {
            out.write_all(piece).unwrap();
        }
        out.finish().unwrap()
    }

    fn with_len(text: &str) -> Vec<u8> {
        let mut out = (text.len() as i32).to_be_bytes().to_vec();
        out.extend_from_slice(text.as_bytes());
        out
    }

    #[test]
    fn what_we_write_is_what_java_writes_and_we_read() {
        let topic = Arc::new(TopicConfig::new("T", 8, 6));
        let version = DataVersion { state_version: 0, counter: 3, timestamp: 1_700_000_000_000 };
        let text = register_body_json(std::slice::from_ref(&topic), &version);
        assert_eq!(
            text,
            r#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}"#
        );
        let body = RegisterBrokerBody::decode(text.as_bytes()).unwrap();
        assert_eq!(body, RegisterBrokerBody { topics: vec![(*topic).clone()], data_version: version, has_mappings: false });
    }

    #[test]
    fn the_old_form_and_lenient_members() {
        let text = br#"{"topicConfigTable":{"T":{"perm":"6","readQueueNums":4,"writeQueueNums":4}},"dataVersion":{"counter":7}}"#;
        let body = RegisterBrokerBody::decode(text).unwrap();
        assert_eq!((body.topics[0].topic_name.as_str(), body.topics[0].perm, body.data_version.counter), ("T", 6, 7));
        assert_eq!(RegisterBrokerBody::decode(b"").unwrap(), RegisterBrokerBody::default());
    }

    #[test]
    fn compressed_bodies() {
        let version = with_len(r#"{"counter":2,"timestamp":5}"#);
        let topics = [with_len(r#"T1 8 4 6 SINGLE_TAG {"+a":"b c"}"#), with_len("T2 1 1 4 MULTI_TAG")];
        let body =
            compressed(&[&version, &2i32.to_be_bytes(), &topics[0], &topics[1], &with_len("[]"), &1i32.to_be_bytes(), &with_len("{}")]);
        let body = RegisterBrokerBody::decode(&body).unwrap();
        assert_eq!(body.data_version, DataVersion { state_version: 0, counter: 2, timestamp: 5 });
        assert_eq!((body.topics[0].read_queue_nums, body.topics[0].write_queue_nums, body.topics[0].perm), (8, 4, 6));
        assert_eq!(body.topics[0].attributes.get("+a").map(String::as_str), Some("b c"));
        assert_eq!(body.topics[1].topic_filter_type, "MULTI_TAG");
        assert!(body.has_mappings);
    }

    #[test]
    fn damaged_bodies_are_errors() {
        let version = with_len("{}");
        for (body, expected) in [
            (compressed(&[&version, &2i32.to_be_bytes(), &with_len("T1 8 4 6 X")]), "ends before the topic"),
            (compressed(&[&version, &1i32.to_be_bytes(), &with_len("T1 8")]), "malformed"),
            (compressed(&[&version, &(-1i32).to_be_bytes()]), "negative"),
            (compressed(&[&100i32.to_be_bytes(), b"{}"]), "ends within"),
            (compressed(&[&vec![b' '; MAX_INFLATED_LEN + 1]]), "exceeds the limit"),
            (vec![0x78, 0xda, 1, 2, 3], "inflate"),
            (b"[]".to_vec(), "no object"),
            (b"{\"topicConfigTable\":{\"T\":1}}".to_vec(), "no object"),
            (b"{".to_vec(), ""),
        ] {
            let error = RegisterBrokerBody::decode(&body).unwrap_err();
            assert!(error.contains(expected), "{error} / {expected}");
        }
    }

    #[test]
    fn zlib_is_told_from_json() {
        for (body, expected) in [(&b"{}"[..], false), (b" {}", false), (b"\x78\x9c", true), (b"\x78\xda", true), (b"x", false)] {
            assert_eq!(is_zlib(body), expected, "{body:?}");
        }
        assert!(body_crc32(b"123456789") >= 0);
        assert_eq!(body_crc32(b"123456789"), (0xcbf4_3926_u32 & 0x7fff_ffff) as i32);
    }
}
