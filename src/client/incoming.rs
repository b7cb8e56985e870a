//! Messages on their way in: the records of an answer's body, inflated and completed with what only the client knows.

use std::io::Read as _;

use crate::common::message::MessageExt;
use crate::common::record::Record;
use crate::common::subscription::SubscriptionData;
use crate::common::{properties, sysflag, topic};

/// Largest body an inflated message may have: 64 MiB, so that a few bytes cannot ask for all memory.
const MAX_INFLATED_BYTES: u64 = 64 << 20;

/// Compression types of `sysFlag` that are zlib: none named (old clients), and ZLIB.
const ZLIB_TYPES: [i32; 2] = [0, 0x300];

/// All records of `body`, one after the other.
///
/// # Errors
/// Which record (its position in the body) is damaged, and how; or that its body cannot be inflated.
pub fn records(mut body: &[u8]) -> Result<Vec<MessageExt>, String> {
    let whole = body.len();
    let mut messages = Vec::new();
    while !body.is_empty() {
        let at = whole - body.len();
        let record = Record::parse(body).map_err(|error| format!("record at byte {at} of {whole}: {error}"))?;
        record.check_crc().map_err(|error| format!("record at byte {at} of {whole}: {error}"))?;
        let mut message = MessageExt::from_record(&record);
        inflate(&mut message).map_err(|error| format!("queue offset {}: {error}", message.queue_offset))?;
        messages.push(message);
        body = &body[record.total_size..];
    }
    Ok(messages)
}

/// Inflates a compressed body in place and clears its flag bits.
fn inflate(message: &mut MessageExt) -> Result<(), String> {
    if message.sys_flag & sysflag::COMPRESSED == 0 {
        return Ok(());
    }
    let kind = message.sys_flag & sysflag::COMPRESSION_MASK;
    if !ZLIB_TYPES.contains(&kind) {
        return Err(format!("body is compressed with type 0x{kind:x}; only zlib (0, 0x300) is known"));
    }
    let mut body = Vec::with_capacity(message.message.body.len() * 3);
    flate2::read::ZlibDecoder::new(message.message.body.as_slice())
        .take(MAX_INFLATED_BYTES + 1)
        .read_to_end(&mut body)
        .map_err(|error| format!("body does not inflate: {error}"))?;
    if body.len() as u64 > MAX_INFLATED_BYTES {
        return Err(format!("body inflates to more than {MAX_INFLATED_BYTES} bytes"));
    }
    message.message.body = body;
    message.sys_flag &= !(sysflag::COMPRESSED | sysflag::COMPRESSION_MASK);
    Ok(())
}

/// Whether a message passes the subscription. Brokers compare hashes of tags; the texts decide.
pub fn passes(message: &MessageExt, subscription: &SubscriptionData) -> bool {
    if !subscription.is_tag() || subscription.is_all() {
        return true;
    }
    message.message.properties.get(properties::TAGS).is_some_and(|tag| subscription.tags_set.iter().any(|wanted| wanted == tag))
}

/// Gives a message of a retry topic its original topic back.
pub fn restore_topic(message: &mut MessageExt) {
    if message.message.topic.starts_with(topic::RETRY_PREFIX)
        && let Some(original) = message.message.properties.get(properties::RETRY_TOPIC)
    {
        message.message.topic = original.clone();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::common::record::Draft;

    fn draft<'a>(sys_flag: i32, body: &'a [u8], properties: &'a [u8]) -> Draft<'a> {
        Draft {
            topic: "T",
            queue_id: 1,
            flag: 0,
            sys_flag,
            born_timestamp: 1,
            born_host: "1.2.3.4:5".parse().unwrap(),
            store_host: "1.2.3.4:6".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties,
        }
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn records_are_split_and_inflated() {
        let packed = zlib(b"some long text");
        let mut body = Vec::new();
        draft(0, b"plain", b"").encode(&mut body);
        draft(1, &packed, b"").encode(&mut body);
        draft(0x301, &packed, b"").encode(&mut body);
        let messages = records(&body).unwrap();
        let bodies: Vec<&[u8]> = messages.iter().map(|message| message.message.body.as_slice()).collect();
        assert_eq!(bodies, [b"plain".as_slice(), b"some long text", b"some long text"]);
        assert!(messages.iter().all(|message| message.sys_flag == 0));
    }

    #[test]
    fn damage_is_an_error_with_its_place() {
        let mut body = Vec::new();
        draft(0, b"plain", b"").encode(&mut body);
        let first = body.len();
        draft(0, b"plain", b"").encode(&mut body);
        for cut in first + 1..body.len() {
            assert!(records(&body[..cut]).unwrap_err().contains(&format!("at byte {first}")), "cut at {cut}");
        }
        let at = body.len() - 8;
        body[at] ^= 1;
        assert!(records(&body).is_err());
        let mut unknown = Vec::new();
        draft(0x101, b"lz4", b"").encode(&mut unknown);
        assert!(records(&unknown).unwrap_err().contains("0x100"));
        let mut garbage = Vec::new();
        draft(0x301, b"not zlib", b"").encode(&mut garbage);
        assert!(records(&garbage).unwrap_err().contains("does not inflate"));
    }

    #[test]
    fn the_text_of_a_tag_decides() {
        let mut body = Vec::new();
        draft(0, b"x", b"TAGS\x01BB\x02").encode(&mut body);
        let message = records(&body).unwrap().remove(0);
        let parse = |expression| SubscriptionData::parse("T", expression, "TAG", 0).unwrap();
        assert!(passes(&message, &parse("Aa || BB")));
        assert!(!passes(&message, &parse("Aa"))); // the same hash as BB
        assert!(passes(&message, &parse("*")));
    }

    #[test]
    fn a_retried_message_has_its_topic_back() {
        let mut body = Vec::new();
        Draft { topic: "%RETRY%g", ..draft(0, b"x", b"RETRY_TOPIC\x01T\x02") }.encode(&mut body);
        let mut message = records(&body).unwrap().remove(0);
        restore_topic(&mut message);
        assert_eq!(message.message.topic, "T");
    }
}
