//! Headers of sends: 10 (long names), 310 and 320 (short names), and their answer.

use std::borrow::Cow;

use crate::remoting::code::request;
use crate::remoting::command::Command;
use crate::remoting::ext::{self, CustomHeader, ExtText, FieldError, HeaderWriter};

/// Header of 10, 310, 320, 324 and 325. The text fields are borrowed from the frame where they hold no escapes.
#[derive(Clone, Debug)]
pub struct SendMessageRequest<'a> {
    /// Producer group (a).
    pub producer_group: Cow<'a, str>,
    /// Topic (b).
    pub topic: Cow<'a, str>,
    /// Topic whose configuration a new topic inherits (c).
    pub default_topic: Cow<'a, str>,
    /// Queues of a new topic (d).
    pub default_topic_queue_nums: i32,
    /// Queue; negative: the broker picks one (e).
    pub queue_id: i32,
    /// System flags (f).
    pub sys_flag: i32,
    /// Client's milliseconds (g).
    pub born_timestamp: i64,
    /// The application's flag (h).
    pub flag: i32,
    /// Properties text, still escaped (i).
    pub properties: Option<ExtText<'a>>,
    /// Deliveries so far (j).
    pub reconsume_times: i32,
    /// Unit mode (k).
    pub unit_mode: bool,
    /// Most deliveries, retry topics (l).
    pub max_reconsume_times: Option<i32>,
    /// The body is a batch (m).
    pub batch: bool,
}

impl<'a> SendMessageRequest<'a> {
    /// Reads the header of a send in one pass over its fields; 310, 320 and 325 have short names, 10 and 324 long ones.
    ///
    /// # Errors
    /// A needed field (b, e, f, g, h of 310; the same of 10) is missing or malformed.
    pub fn decode(command: &Command<'a>) -> Result<Self, FieldError> {
        let short = !matches!(command.code, request::SEND_MESSAGE | request::SEND_REPLY_MESSAGE);
        let mut header = Self {
            producer_group: Cow::Borrowed(""),
            topic: Cow::Borrowed(""),
            default_topic: Cow::Borrowed(""),
            default_topic_queue_nums: 0,
            queue_id: 0,
            sys_flag: 0,
            born_timestamp: 0,
            flag: 0,
            properties: None,
            reconsume_times: 0,
            unit_mode: false,
            max_reconsume_times: None,
            batch: false,
        };
        let mut seen = 0u32;
        for (name, value) in command.ext.iter() {
            let Some(name) = name.as_plain().or_else(|| name.as_owned()) else { continue };
            let letter = if short { short_letter(name) } else { long_letter(name) };
            seen |= header.set(letter, value)?;
        }
        for letter in *b"befgh" {
            if seen & bit(letter) == 0 {
                return Err(FieldError::Missing(field_name(letter, short)));
            }
        }
        Ok(header)
    }

    /// Stores the field of a letter; returns its bit.
    fn set(&mut self, letter: u8, value: &ExtText<'a>) -> Result<u32, FieldError> {
        match letter {
            b'a' => self.producer_group = value.to_cow(),
            b'b' => self.topic = value.to_cow(),
            b'c' => self.default_topic = value.to_cow(),
            b'd' => self.default_topic_queue_nums = int(letter, value)?,
            b'e' => self.queue_id = int(letter, value)?,
            b'f' => self.sys_flag = int(letter, value)?,
            b'g' => self.born_timestamp = int(letter, value)?,
            b'h' => self.flag = int(letter, value)?,
            b'i' => self.properties = Some(value.clone()),
            b'j' => self.reconsume_times = int(letter, value)?,
            b'k' => self.unit_mode = truth(value),
            b'l' => self.max_reconsume_times = Some(int(letter, value)?),
            b'm' => self.batch = truth(value),
            _ => return Ok(0),
        }
        Ok(bit(letter))
    }
}

const fn bit(letter: u8) -> u32 {
    1 << (letter - b'a')
}

/// Long name of each letter, in the letters' order.
const LONG_NAMES: [&str; 13] = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
];

/// Short name of each letter, in the letters' order.
const SHORT_NAMES: [&str; 13] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"];

fn short_letter(name: &str) -> u8 {
    match name.as_bytes() {
        [letter @ b'a'..=b'm'] => *letter,
        _ => 0,
    }
}

fn long_letter(name: &str) -> u8 {
    LONG_NAMES.iter().position(|long| *long == name).map_or(0, |at| b'a' + at as u8)
}

fn field_name(letter: u8, short: bool) -> &'static str {
    let at = usize::from(letter - b'a');
    if short { SHORT_NAMES[at] } else { LONG_NAMES[at] }
}

fn int<T: std::str::FromStr>(letter: u8, value: &ExtText<'_>) -> Result<T, FieldError> {
    ext::integer(field_name(letter, false), value)
}

fn truth(value: &ExtText<'_>) -> bool {
    let text = value.text();
    text.eq_ignore_ascii_case("true") || text == "1"
}

/// Writes the short names (310, 320): what clients send.
impl CustomHeader for SendMessageRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("a", &self.producer_group);
        out.text("b", &self.topic);
        out.text("c", &self.default_topic);
        out.int("d", self.default_topic_queue_nums.into());
        out.int("e", self.queue_id.into());
        out.int("f", self.sys_flag.into());
        out.int("g", self.born_timestamp);
        out.int("h", self.flag.into());
        if let Some(properties) = &self.properties {
            out.text("i", &properties.text());
        }
        out.int("j", self.reconsume_times.into());
        out.bool("k", self.unit_mode);
        if let Some(times) = self.max_reconsume_times {
            out.int("l", times.into());
        }
        out.bool("m", self.batch);
    }
}

/// Header of a send's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendMessageResponse {
    /// Offset message id; for a batch the ids joined by commas.
    pub msg_id: String,
    /// Queue.
    pub queue_id: i32,
    /// Queue offset (of the first message of a batch).
    pub queue_offset: i64,
    /// The unique key.
    pub transaction_id: Option<String>,
    /// Region (free field MSG_REGION), always sent.
    pub region: std::sync::Arc<str>,
    /// Trace switch (free field TRACE_ON), always sent.
    pub trace_on: bool,
}

impl CustomHeader for SendMessageResponse {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("msgId", &self.msg_id);
        out.int("queueId", self.queue_id.into());
        out.int("queueOffset", self.queue_offset);
        out.option_text("transactionId", self.transaction_id.as_deref());
        out.text("MSG_REGION", &self.region);
        out.bool("TRACE_ON", self.trace_on);
    }
}

impl SendMessageResponse {
    /// Reads an answer (clients).
    ///
    /// # Errors
    /// A needed field is missing or malformed.
    pub fn decode(command: &Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            msg_id: ext.need_text("msgId")?.into_owned(),
            queue_id: ext.need_i32("queueId")?,
            queue_offset: ext.need_i64("queueOffset")?,
            transaction_id: ext.text("transactionId").map(Cow::into_owned),
            region: ext.text("MSG_REGION").unwrap_or(Cow::Borrowed("DefaultRegion")).as_ref().into(),
            trace_on: ext.bool("TRACE_ON").unwrap_or(true),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::codec;
    use crate::remoting::command::SerializeType;

    fn encode(code: i32, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        let head = codec::Head { code, flag: 0, opaque: 1, remark: None, serialize_type: SerializeType::Json };
        codec::encode_head(&mut out, &head, fields, 0);
        out
    }

    #[test]
    fn both_sets_of_names() {
        let short =
            [("a", "G"), ("b", "T"), ("e", "-1"), ("f", "1"), ("g", "17"), ("h", "0"), ("i", "K\u{1}v\u{2}"), ("m", "true"), ("l", "3")];
        let long = [
            ("producerGroup", "G"),
            ("topic", "T"),
            ("queueId", "-1"),
            ("sysFlag", "1"),
            ("bornTimestamp", "17"),
            ("flag", "0"),
            ("properties", "K\u{1}v\u{2}"),
            ("batch", "1"),
            ("maxReconsumeTimes", "3"),
        ];
        for (code, fields) in [(310, &short[..]), (320, &short), (10, &long)] {
            let bytes = encode(code, fields);
            let command = codec::decode(&bytes).unwrap();
            let header = SendMessageRequest::decode(&command).unwrap();
            assert_eq!((&*header.producer_group, &*header.topic), ("G", "T"));
            assert_eq!((header.queue_id, header.sys_flag, header.born_timestamp, header.flag), (-1, 1, 17, 0));
            assert!(header.batch && !header.unit_mode);
            assert_eq!(header.max_reconsume_times, Some(3));
            assert_eq!(header.properties.unwrap().text(), "K\u{1}v\u{2}");
        }
    }

    #[test]
    fn what_is_needed_and_what_is_malformed() {
        let bytes = encode(310, &[("b", "T")]);
        assert_eq!(SendMessageRequest::decode(&codec::decode(&bytes).unwrap()).unwrap_err(), FieldError::Missing("e"));
        for (name, expected) in [("queueId", "a 32-bit integer"), ("bornTimestamp", "a 64-bit integer")] {
            let bytes = encode(10, &[("topic", "T"), (name, "x")]);
            let error = SendMessageRequest::decode(&codec::decode(&bytes).unwrap()).unwrap_err();
            assert_eq!(error.to_string(), format!("the custom field <{name}> is \"x\", expected {expected}"));
        }
    }

    #[test]
    fn written_header_reads_back() {
        let header = SendMessageRequest {
            producer_group: "G".into(),
            topic: "T".into(),
            default_topic: "TBW102".into(),
            default_topic_queue_nums: 4,
            queue_id: 2,
            sys_flag: 0,
            born_timestamp: 5,
            flag: 6,
            properties: Some(ExtText::Plain("A\u{1}b\u{2}")),
            reconsume_times: 1,
            unit_mode: false,
            max_reconsume_times: None,
            batch: false,
        };
        let mut out = Vec::new();
        let head = codec::Head { code: 310, flag: 0, opaque: 1, remark: None, serialize_type: SerializeType::Json };
        codec::encode_head(&mut out, &head, &header, 0);
        let read = SendMessageRequest::decode(&codec::decode(&out).unwrap())
            .map(|read| format!("{:?}", (read.topic.into_owned(), read.queue_id, read.flag)));
        assert_eq!(read.unwrap(), "(\"T\", 2, 6)");
    }
}
