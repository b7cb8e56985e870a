//! Requests of the load, encoded once and patched for each message.
//!
//! Every field that changes has a fixed width: the opaque lies between 1 000 000 000 and 2 147 483 647 (ten digits), the born time has
//! thirteen digits, and of a unique id the last twelve hex digits count.

use std::borrow::Cow;

use crate::client::push_batch_entry;
use crate::common::properties;
use crate::common::topic::TBW102;
use crate::remoting::code::request;
use crate::remoting::codec::{self, Head};
use crate::remoting::command::{FLAG_ONEWAY, SerializeType};
use crate::remoting::ext::{CustomHeader, ExtText};
use crate::remoting::header::send::SendMessageRequest;

/// Smallest opaque, and the number of opaques.
pub const FIRST_OPAQUE: i32 = 1_000_000_000;
/// Opaques used before they start over.
pub const OPAQUES: i32 = 1_000_000_000;
/// Producer group of the load.
pub const GROUP: &str = "petrel_bench";
/// Bytes at the start of a body that carry a stamp: run and time.
pub const STAMP_LEN: usize = 16;

const OPAQUE_DIGITS: usize = 10;
const TIME_DIGITS: usize = 13;
const SAMPLE_TIME_MS: i64 = 1_111_111_111_111;
/// Digits of a unique id that count; the twenty before them tell links apart.
const COUNTED_DIGITS: usize = 12;

/// What the messages of a load look like.
#[derive(Clone, Debug)]
pub struct Shape {
    pub topic: String,
    pub body_bytes: usize,
    /// Messages of one request.
    pub batch: usize,
    pub oneway: bool,
}

/// One request to one queue, without its own numbers.
pub struct Template {
    bytes: Vec<u8>,
    opaque_at: usize,
    time_at: Option<usize>,
    ids_at: Vec<usize>,
    stamps_at: Vec<usize>,
}

impl Template {
    /// A send of `shape` to `queue_id`. Ids start with twenty hex digits made of `link`, which must differ between links.
    pub fn send(shape: &Shape, queue_id: i32, link: u64) -> Self {
        let id = sample_id(link);
        let text = message_properties(&id);
        let body = filler(shape.body_bytes, link);
        let (code, properties, payload) = if shape.batch > 1 {
            let mut entries = Vec::new();
            (0..shape.batch).for_each(|_| push_batch_entry(&mut entries, 0, &body, text.as_bytes()));
            let mut outer = String::new();
            properties::push(&mut outer, properties::UNIQ_KEY, &id);
            properties::push(&mut outer, properties::WAIT, "true");
            (request::SEND_BATCH_MESSAGE, outer, entries)
        } else {
            (request::SEND_MESSAGE_V2, text.clone(), body.clone())
        };
        let header = SendMessageRequest {
            producer_group: Cow::Borrowed(GROUP),
            topic: Cow::Borrowed(&shape.topic),
            default_topic: Cow::Borrowed(TBW102),
            default_topic_queue_nums: 4,
            queue_id,
            sys_flag: 0,
            born_timestamp: SAMPLE_TIME_MS,
            flag: 0,
            properties: Some(ExtText::Plain(&properties)),
            reconsume_times: 0,
            unit_mode: false,
            max_reconsume_times: None,
            batch: shape.batch > 1,
        };
        let mut template = Self::request(code, if shape.oneway { FLAG_ONEWAY } else { 0 }, &header, &payload);
        let digits = SAMPLE_TIME_MS.to_string();
        template.time_at = find_all(&template.bytes, digits.as_bytes()).first().copied();
        template.ids_at = find_all(&template.bytes, id.as_bytes()).into_iter().map(|at| at + id.len() - COUNTED_DIGITS).collect();
        if shape.body_bytes >= STAMP_LEN {
            template.stamps_at = body_positions(&template.bytes, payload.len(), shape.batch, shape.body_bytes, text.len());
        }
        template
    }

    /// Any other request.
    pub fn request(code: i32, flag: i32, header: &(impl CustomHeader + ?Sized), body: &[u8]) -> Self {
        let mut bytes = Vec::new();
        let head = Head { code, flag, opaque: FIRST_OPAQUE, remark: None, serialize_type: SerializeType::Json };
        codec::encode_head(&mut bytes, &head, header, body.len());
        let marker = b"\"opaque\":";
        // The last one: an application's field may be called so, the header's own member comes behind the fields.
        let head_end = bytes.len();
        let opaque_at = memchr::memmem::rfind(&bytes[..head_end], marker).map_or(0, |at| at + marker.len());
        bytes.extend_from_slice(body);
        Self { bytes, opaque_at, time_at: None, ids_at: Vec::new(), stamps_at: Vec::new() }
    }

    /// Bytes of the request.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the request with its own numbers; `id` is the number of its first message.
    pub fn append(&self, out: &mut Vec<u8>, opaque: i32, id: u64, now: &WallClock, stamp: Option<[u8; STAMP_LEN]>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let frame = &mut out[start..];
        put_opaque(&mut frame[self.opaque_at..self.opaque_at + OPAQUE_DIGITS], opaque);
        if let Some(at) = self.time_at {
            frame[at..at + TIME_DIGITS].copy_from_slice(&now.digits);
        }
        for (step, at) in self.ids_at.iter().enumerate() {
            // In a batch the outer id comes first; it may repeat the number of the last message, being no message itself.
            put_hex(&mut frame[*at..*at + COUNTED_DIGITS], now.id_base | (id.wrapping_add(step as u64) & 0xffff));
        }
        if let Some(stamp) = stamp {
            for at in &self.stamps_at {
                frame[*at..*at + STAMP_LEN].copy_from_slice(&stamp);
            }
        }
    }
}

/// The time of day in the forms that requests carry, renewed once per turn.
pub struct WallClock {
    digits: [u8; TIME_DIGITS],
    id_base: u64,
}

impl WallClock {
    /// The forms of `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        let mut digits = [b'0'; TIME_DIGITS];
        let mut rest = now_ms.unsigned_abs();
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Self { digits, id_base: (now_ms as u64 & 0xffff_ffff) << 16 }
    }
}

/// Properties as a Java producer sends them.
fn message_properties(id: &str) -> String {
    let mut text = String::new();
    properties::push(&mut text, properties::UNIQ_KEY, id);
    properties::push(&mut text, properties::WAIT, "true");
    properties::push(&mut text, properties::TAGS, "TagA");
    text
}

fn sample_id(link: u64) -> String {
    format!("7F000001{:04X}{:08X}{:012X}", std::process::id() & 0xffff, link & 0xffff_ffff, 0x1234_5678_9ABCu64)
}

/// Bytes that do not compress, the same for the same link.
fn filler(len: usize, link: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(link);
    (0..len).map(|_| random.u8(..)).collect()
}

fn find_all(bytes: &[u8], text: &[u8]) -> Vec<usize> {
    memchr::memmem::find_iter(bytes, text).collect()
}

/// Where the bodies of the messages begin in a whole frame.
fn body_positions(frame: &[u8], payload_len: usize, batch: usize, body_bytes: usize, properties_len: usize) -> Vec<usize> {
    let payload = frame.len() - payload_len;
    if batch <= 1 {
        return vec![payload];
    }
    let entry = payload_len / batch;
    debug_assert_eq!(entry, 22 + body_bytes + properties_len);
    (0..batch).map(|step| payload + step * entry + 20).collect()
}

fn put_opaque(out: &mut [u8], opaque: i32) {
    out.copy_from_slice(itoa::Buffer::new().format(opaque).as_bytes());
}

fn put_hex(out: &mut [u8], value: u64) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut rest = value;
    for digit in out.iter_mut().rev() {
        *digit = DIGITS[(rest & 15) as usize];
        rest >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::command::Command;

    fn decode(bytes: &[u8]) -> (Command<'_>, SendMessageRequest<'_>) {
        let command = Command::parse(bytes).unwrap();
        let header = SendMessageRequest::decode(&command).unwrap();
        (command, header)
    }

    #[test]
    fn a_patched_send_is_a_whole_request() {
        let shape = Shape { topic: "T".into(), body_bytes: 100, batch: 1, oneway: false };
        let template = Template::send(&shape, 3, 7);
        let mut bytes = Vec::new();
        template.append(&mut bytes, 1_234_567_890, 0xABCD, &WallClock::new(1_700_000_000_123), Some([9; STAMP_LEN]));
        assert_eq!(bytes.len(), template.len());
        let (command, header) = decode(&bytes);
        assert_eq!((command.code, command.opaque, command.flag), (310, 1_234_567_890, 0));
        assert_eq!((header.topic.as_ref(), header.queue_id, header.born_timestamp, header.batch), ("T", 3, 1_700_000_000_123, false));
        let text = header.properties.unwrap().text().into_owned();
        let id = properties::find(&text, properties::UNIQ_KEY).unwrap();
        assert_eq!(id.len(), 32);
        assert!(id.ends_with(&format!("{:08X}ABCD", 1_700_000_000_123u64 & 0xffff_ffff)), "{id}");
        assert_eq!((properties::find(&text, "TAGS"), properties::find(&text, "WAIT")), (Some("TagA"), Some("true")));
        assert_eq!((command.body.len(), &command.body[..STAMP_LEN]), (100, [9; STAMP_LEN].as_slice()));
    }

    #[test]
    fn ids_of_links_and_messages_differ() {
        let shape = Shape { topic: "T".into(), body_bytes: 1, batch: 1, oneway: true };
        let now = WallClock::new(1_700_000_000_123);
        let mut ids = std::collections::HashSet::new();
        for link in 0..4 {
            let template = Template::send(&shape, 0, link);
            for id in 0..10 {
                let mut bytes = Vec::new();
                template.append(&mut bytes, FIRST_OPAQUE, id, &now, None);
                let (command, header) = decode(&bytes);
                assert!(command.is_oneway());
                let text = header.properties.unwrap().text().into_owned();
                ids.insert(properties::find(&text, properties::UNIQ_KEY).unwrap().to_owned());
            }
        }
        assert_eq!(ids.len(), 40);
    }

    #[test]
    fn a_batch_has_its_entries_patched() {
        let shape = Shape { topic: "T".into(), body_bytes: 20, batch: 3, oneway: false };
        let mut bytes = Vec::new();
        Template::send(&shape, 0, 1).append(&mut bytes, FIRST_OPAQUE, 5, &WallClock::new(1_700_000_000_123), Some([7; STAMP_LEN]));
        let (command, header) = decode(&bytes);
        assert!(command.code == 320 && header.batch);
        let mut body = command.body;
        let mut ids = Vec::new();
        while !body.is_empty() {
            let size = i32::from_be_bytes(body[..4].try_into().unwrap()) as usize;
            let (entry, rest) = body.split_at(size);
            assert_eq!(&entry[20..20 + STAMP_LEN], [7; STAMP_LEN]);
            let text = std::str::from_utf8(&entry[20 + 20 + 2..]).unwrap();
            ids.push(properties::find(text, properties::UNIQ_KEY).unwrap()[28..].to_owned());
            body = rest;
        }
        assert_eq!(ids, ["0006", "0007", "0008"]);
    }
}
