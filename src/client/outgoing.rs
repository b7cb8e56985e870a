//! Messages on their way out: checks, properties, compression, the body of a batch.

use std::borrow::Cow;
use std::io::Write as _;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::common::message::Message;
use crate::common::{properties, sysflag, topic};
use crate::remoting::command::Body;

use super::error::ClientError;

/// `sysFlag` bits of a body that is a zlib stream: compressed, and compression type 3.
pub(super) const ZLIB_FLAGS: i32 = sysflag::COMPRESSED | 0x300;
/// Magic, CRC and other fixed parts of one entry of a batch body: lengths and flag included.
const BATCH_ENTRY_OVERHEAD: usize = 4 + 4 + 4 + 4 + 4 + 2;

/// A checked message, ready for any queue.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub topic: String,
    pub flag: i32,
    pub sys_flag: i32,
    pub properties: String,
    pub body: Bytes,
    /// Unique id; for a batch those of its messages, joined by commas.
    pub message_id: String,
    pub batch: bool,
}

impl Outgoing {
    /// The body for one attempt; the bytes are shared by all attempts.
    pub(super) fn body_once(&self) -> Body {
        Body::Shared(SmallVec::from_iter([self.body.clone()]))
    }
}

/// Limits and switches of a producer that concern the form of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub max_body_bytes: usize,
    pub compress_above_bytes: Option<usize>,
}

/// Checks and prepares one message; `id` becomes its unique id unless it has one.
pub(super) fn single(message: &Message, id: String, form: Form) -> Result<Outgoing, ClientError> {
    check(message, form.max_body_bytes)?;
    let (properties, message_id) = properties_text(message, id)?;
    let (body, sys_flag) = match form.compress_above_bytes {
        Some(limit) if message.body.len() > limit => (Bytes::from(deflate(&message.body)?), ZLIB_FLAGS),
        _ => (Bytes::copy_from_slice(&message.body), 0),
    };
    Ok(Outgoing { topic: message.topic.clone(), flag: message.flag, sys_flag, properties, body, message_id, batch: false })
}

/// Checks and prepares messages of one topic as one request.
pub(super) fn batch(messages: &[Message], mut next_id: impl FnMut() -> String, form: Form) -> Result<Outgoing, ClientError> {
    let Some(first) = messages.first() else { return Err(ClientError::Invalid("a batch needs at least one message".to_owned())) };
    if first.topic.starts_with(topic::RETRY_PREFIX) {
        return Err(ClientError::Invalid(format!("messages of the retry topic {} cannot be sent as a batch", first.topic)));
    }
    let mut body = Vec::with_capacity(messages.iter().map(|m| m.body.len() + 160).sum());
    let mut ids = String::with_capacity(messages.len() * 33);
    for message in messages {
        check_batched(message, first)?;
        check(message, form.max_body_bytes)?;
        let (properties, id) = properties_text(message, next_id())?;
        push_batch_entry(&mut body, message.flag, &message.body, properties.as_bytes());
        if !ids.is_empty() {
            ids.push(',');
        }
        ids.push_str(&id);
    }
    if body.len() > form.max_body_bytes {
        return Err(too_long("batch body", body.len(), form.max_body_bytes));
    }
    let mut properties = String::new();
    properties::push(&mut properties, properties::UNIQ_KEY, &next_id());
    properties::push(&mut properties, properties::WAIT, first.properties.get(properties::WAIT).map_or("true", String::as_str));
    Ok(Outgoing { topic: first.topic.clone(), flag: 0, sys_flag: 0, properties, body: body.into(), message_id: ids, batch: true })
}

/// Appends one message in the form of a batch body.
pub(crate) fn push_batch_entry(out: &mut Vec<u8>, flag: i32, body: &[u8], properties: &[u8]) {
    let size = BATCH_ENTRY_OVERHEAD + body.len() + properties.len();
    out.reserve(size);
    out.extend_from_slice(&(size as i32).to_be_bytes());
    out.extend_from_slice(&[0; 8]); // magic and CRC, which brokers do not read
    out.extend_from_slice(&flag.to_be_bytes());
    out.extend_from_slice(&(body.len() as i32).to_be_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&(properties.len() as i16).to_be_bytes());
    out.extend_from_slice(properties);
}

fn check(message: &Message, max_body_bytes: usize) -> Result<(), ClientError> {
    topic::check_topic(&message.topic).map_err(ClientError::Invalid)?;
    if topic::is_send_forbidden(&message.topic) {
        return Err(ClientError::Invalid(format!("topic {} is the broker's own; clients may not send to it", message.topic)));
    }
    if message.body.len() > max_body_bytes {
        return Err(too_long("body", message.body.len(), max_body_bytes));
    }
    Ok(())
}

fn check_batched(message: &Message, first: &Message) -> Result<(), ClientError> {
    if message.topic != first.topic {
        return Err(ClientError::Invalid(format!("a batch has one topic, not {} and {}", first.topic, message.topic)));
    }
    for name in
        [properties::DELAY, properties::TIMER_DELAY_SEC, properties::TIMER_DELAY_MS, properties::TIMER_DELIVER_MS, properties::TRAN_MSG]
    {
        if message.properties.contains_key(name) {
            return Err(ClientError::Invalid(format!("a message of a batch cannot carry the property {name}")));
        }
    }
    Ok(())
}

fn too_long(what: &str, len: usize, limit: usize) -> ClientError {
    ClientError::Invalid(format!("{what} of {len} bytes exceeds the limit of {limit} (max_body_bytes)"))
}

/// The properties as they are sent, and the unique id among them.
fn properties_text(message: &Message, id: String) -> Result<(String, String), ClientError> {
    for (name, value) in &message.properties {
        let separator =
            |text: &str| text.bytes().any(|byte| byte == properties::NAME_VALUE_SEPARATOR || byte == properties::PROPERTY_SEPARATOR);
        if name.is_empty() || separator(name) || separator(value) {
            return Err(ClientError::Invalid(format!(
                "property {name:?}={value:?}: names must not be empty, and neither may hold the bytes 1 and 2"
            )));
        }
    }
    let mut text = message.properties_text();
    let id = message.properties.get(properties::UNIQ_KEY).cloned().unwrap_or(id);
    if !message.properties.contains_key(properties::UNIQ_KEY) {
        properties::push(&mut text, properties::UNIQ_KEY, &id);
    }
    if !message.properties.contains_key(properties::WAIT) {
        properties::push(&mut text, properties::WAIT, "true");
    }
    if text.len() > properties::MAX_PROPERTIES_LEN {
        return Err(ClientError::Invalid(format!(
            "properties of {} bytes exceed the limit of {}",
            text.len(),
            properties::MAX_PROPERTIES_LEN
        )));
    }
    Ok((text, id))
}

fn deflate(body: &[u8]) -> Result<Vec<u8>, ClientError> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::with_capacity(body.len() / 2), flate2::Compression::new(5));
    encoder.write_all(body).and_then(|()| encoder.finish()).map_err(|error| ClientError::Local(format!("compressing a body: {error}")))
}

/// A `Cow` of borrowed text, for headers.
pub(super) fn borrowed(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Form = Form { max_body_bytes: 1000, compress_above_bytes: None };

    fn invalid(result: Result<Outgoing, ClientError>) -> String {
        match result {
            Err(ClientError::Invalid(text)) => text,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn a_message_carries_its_id_and_wait_once() {
        let out = single(&Message::new("T", "x").tag("a"), "ID".into(), FORM).unwrap();
        assert_eq!(properties::iterate(&out.properties).collect::<Vec<_>>(), [("TAGS", "a"), ("UNIQ_KEY", "ID"), ("WAIT", "true")]);
        let own = Message::new("T", "x").property("UNIQ_KEY", "mine").property("WAIT", "false");
        let out = single(&own, "ID".into(), FORM).unwrap();
        assert_eq!(out.message_id, "mine");
        assert_eq!(properties::iterate(&out.properties).count(), 2);
    }

    #[test]
    fn limits_are_named_with_both_numbers() {
        let text = invalid(single(&Message::new("T", vec![0; 1001]), "ID".into(), FORM));
        assert!(text.contains("1001") && text.contains("1000"), "{text}");
        let text = invalid(single(&Message::new("T", "x").property("p", "v".repeat(40_000)), "ID".into(), FORM));
        assert!(text.contains("32767"), "{text}");
        assert!(invalid(single(&Message::new("a b", "x"), "ID".into(), FORM)).contains("' '"));
        assert!(invalid(single(&Message::new("T", "x").property("p", "a\u{1}b"), "ID".into(), FORM)).contains("bytes 1 and 2"));
        assert!(invalid(single(&Message::new(topic::SCHEDULE_TOPIC, "x"), "ID".into(), FORM)).contains("broker's own"));
    }

    #[test]
    fn a_batch_is_the_entries_one_after_the_other() {
        let mut count = 0;
        let mut next_id = || {
            count += 1;
            format!("ID{count}")
        };
        let out = batch(&[Message::new("T", "one"), Message::new("T", "three").tag("t")], &mut next_id, FORM).unwrap();
        assert_eq!(out.message_id, "ID1,ID2");
        assert!(out.batch);
        let first = i32::from_be_bytes(out.body[..4].try_into().unwrap()) as usize;
        let second = i32::from_be_bytes(out.body[first..first + 4].try_into().unwrap()) as usize;
        assert_eq!(first + second, out.body.len());
        assert_eq!(&out.body[20..23], b"one");
        assert_eq!(&out.body[first + 20..first + 25], b"three");
        let properties_len = i16::from_be_bytes(out.body[first + 25..first + 27].try_into().unwrap()) as usize;
        assert_eq!(first + 27 + properties_len, out.body.len());
    }

    #[test]
    fn what_a_batch_cannot_hold_is_refused() {
        let make = |messages: &[Message]| invalid(batch(messages, || "ID".to_owned(), FORM));
        assert!(make(&[]).contains("at least one"));
        assert!(make(&[Message::new("T", "x"), Message::new("U", "x")]).contains("one topic"));
        assert!(make(&[Message::new("T", "x").delay_level(1)]).contains("DELAY"));
        assert!(make(&[Message::new("%RETRY%g", "x")]).contains("retry topic"));
        assert!(make(&[Message::new("T", vec![0; 600]), Message::new("T", vec![0; 600])]).contains("batch body"));
    }

    #[test]
    fn long_bodies_are_compressed_only_when_asked() {
        let message = Message::new("T", vec![b'a'; 900]);
        assert_eq!(single(&message, "ID".into(), FORM).unwrap().sys_flag, 0);
        let out = single(&message, "ID".into(), Form { compress_above_bytes: Some(899), ..FORM }).unwrap();
        assert_eq!(out.sys_flag, 0x301);
        assert!(out.body.len() < 100);
    }
}
