//! What a load asks and how it checks the answers: sends, pulls, and the receiving side of an end-to-end load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::record::Record;
use crate::common::sysflag;
use crate::remoting::code::{request, response};
use crate::remoting::codec::{self, Head};
use crate::remoting::command::{Command, SerializeType};
use crate::remoting::header::pull::{PullMessageRequest, PullMessageResponse};

use super::driver::{Counted, Work};
use super::frame::{GROUP, STAMP_LEN, Shape, Template, WallClock};
use super::histogram::Latencies;

/// Time a broker may hold a pull of an end-to-end load.
const SUSPEND_MS: i64 = 15_000;

/// Refuses an answer of another code than 0.
fn need_success(command: &Command<'_>) -> Result<(), String> {
    if command.code == response::SUCCESS && command.is_response() {
        return Ok(());
    }
    Err(format!("the broker answered code {}: {}", command.code, command.remark.as_deref().unwrap_or_default()))
}

/// Sends to the queues of a topic in turn.
pub struct SendWork {
    templates: Vec<Template>,
    shape: Shape,
    turn: usize,
    next_id: u64,
    /// Number of the run in stamps; `None` leaves bodies as they are.
    stamp: Option<u64>,
    /// Queue of each slot's request, to compare with the answer.
    queues: Vec<i32>,
}

impl SendWork {
    /// The sends of one connection, number `link` of its process.
    pub fn new(shape: &Shape, queues: i32, link: u64, pipeline: usize, stamp: Option<u64>) -> Self {
        Self {
            templates: (0..queues).map(|queue| Template::send(shape, queue, link)).collect(),
            shape: shape.clone(),
            turn: link as usize,
            next_id: 0,
            stamp,
            queues: vec![0; pipeline],
        }
    }

    /// Bytes of one request.
    pub fn request_len(&self) -> usize {
        self.templates.first().map_or(0, Template::len)
    }

    fn counted(&self) -> Counted {
        let messages = self.shape.batch as u64;
        Counted { messages, body_bytes: messages * self.shape.body_bytes as u64 }
    }
}

impl Work for SendWork {
    fn request(&mut self, slot: usize, opaque: i32, due_ns: u64, now: &WallClock, out: &mut Vec<u8>) {
        let queue = self.turn % self.templates.len();
        self.turn = self.turn.wrapping_add(1);
        self.queues[slot] = queue as i32;
        let stamp = self.stamp.map(|run| stamp(run, due_ns));
        self.templates[queue].append(out, opaque, self.next_id, now, stamp);
        self.next_id = self.next_id.wrapping_add(self.shape.batch as u64);
    }

    fn answer(&mut self, slot: usize, command: &Command<'_>, _now_ns: u64) -> Result<Counted, String> {
        need_success(command)?;
        if self.shape.oneway {
            return Ok(Counted::default()); // the barrier's
        }
        let ext = &command.ext;
        let (queue, offset) = (ext.need_i32("queueId"), ext.need_i64("queueOffset"));
        let has_id = ext.get("msgId").is_some();
        match (queue, offset) {
            (Ok(queue), Ok(offset)) if queue == self.queues[slot] && offset >= 0 && has_id => Ok(self.counted()),
            (queue, offset) => Err(format!(
                "a send to queue {} was answered with queueId {queue:?}, queueOffset {offset:?}, {} msgId",
                self.queues[slot],
                if has_id { "a" } else { "no" }
            )),
        }
    }

    fn oneway(&self) -> Option<Counted> {
        self.shape.oneway.then(|| self.counted())
    }

    fn barrier(&mut self, opaque: i32, out: &mut Vec<u8>) {
        let header = [("topic", self.shape.topic.as_str()), ("queueId", "0")];
        Template::request(request::GET_MAX_OFFSET, 0, &header, &[]).append(out, opaque, 0, &WallClock::new(0), None);
    }
}

fn stamp(run: u64, due_ns: u64) -> [u8; STAMP_LEN] {
    let mut stamp = [0; STAMP_LEN];
    stamp[..8].copy_from_slice(&run.to_be_bytes());
    stamp[8..].copy_from_slice(&due_ns.to_be_bytes());
    stamp
}

fn read_stamp(body: &[u8]) -> Option<(u64, u64)> {
    let stamp: &[u8; STAMP_LEN] = body.first_chunk()?;
    let (run, due) = stamp.split_at(8);
    Some((u64::from_be_bytes(run.try_into().ok()?), u64::from_be_bytes(due.try_into().ok()?)))
}

/// What one slot reads of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub queue_id: i32,
    /// Where reading begins.
    pub at: i64,
    /// Where it starts over behind the end.
    pub start: i64,
    /// The end; `None`: the queue grows.
    pub end: Option<i64>,
}

/// Pulls stretches of queues, each slot its own, again and again.
pub struct PullWork {
    topic: String,
    stretches: Vec<(Stretch, i64)>,
    max_messages: i32,
    /// Length that bodies must have; `None`: any.
    body_bytes: Option<usize>,
    receiving: Option<Receiving>,
}

/// What an end-to-end load counts beyond the messages.
pub struct Receiving {
    pub run: u64,
    pub received: Arc<AtomicU64>,
    /// Messages sent in all, once that is known; `u64::MAX` before.
    pub expected: Arc<AtomicU64>,
    pub latencies: Latencies,
    /// Messages due before this are not measured.
    pub warm_up_ns: u64,
    /// How many were measured.
    pub measured: u64,
}

impl PullWork {
    /// Pulls of at most `max_messages`; slot `n` reads `stretches[n]`.
    pub fn new(topic: &str, stretches: Vec<Stretch>, max_messages: i32, body_bytes: Option<usize>) -> Self {
        let stretches = stretches.into_iter().map(|stretch| (stretch, stretch.at)).collect();
        Self { topic: topic.to_owned(), stretches, max_messages, body_bytes, receiving: None }
    }

    /// Waits for messages at the end of queues and takes the time from their stamps.
    pub fn receiving(mut self, receiving: Receiving) -> Self {
        self.receiving = Some(receiving);
        self
    }

    /// The latencies of an end-to-end load.
    pub fn into_receiving(self) -> Option<Receiving> {
        self.receiving
    }

    fn read(&mut self, slot: usize, mut body: &[u8], now_ns: u64) -> Result<Counted, String> {
        let (stretch, next) = self.stretches[slot];
        let mut offset = next;
        let mut counted = Counted::default();
        while !body.is_empty() {
            let record = Record::parse(body).map_err(|error| format!("queue {} offset {offset}: {error}", stretch.queue_id))?;
            self.check(&record, stretch.queue_id, offset)?;
            if let Some(receiving) = &mut self.receiving {
                receiving.take(&record, now_ns)?;
            }
            counted.messages += 1;
            counted.body_bytes += record.body.len() as u64;
            offset += 1;
            body = &body[record.total_size..];
        }
        self.stretches[slot].1 = match stretch.end {
            Some(end) if offset >= end => stretch.start,
            _ => offset,
        };
        Ok(counted)
    }

    fn check(&self, record: &Record<'_>, queue_id: i32, offset: i64) -> Result<(), String> {
        if (record.queue_id, record.queue_offset) != (queue_id, offset) {
            return Err(format!("queue {queue_id} offset {offset} was due, queue {} offset {} came", record.queue_id, record.queue_offset));
        }
        if record.topic != self.topic {
            return Err(format!("queue {queue_id} offset {offset}: a message of topic {} came, not {}", record.topic, self.topic));
        }
        record.check_crc().map_err(|error| format!("queue {queue_id} offset {offset}: {error}"))?;
        match self.body_bytes {
            Some(len) if record.body.len() != len => {
                Err(format!("queue {queue_id} offset {offset}: a body of {} bytes, {len} were sent", record.body.len()))
            }
            _ => Ok(()),
        }
    }
}

impl Receiving {
    fn take(&mut self, record: &Record<'_>, now_ns: u64) -> Result<(), String> {
        let Some((run, due_ns)) = read_stamp(record.body).filter(|(run, _)| *run == self.run) else {
            return Err(format!("queue {} offset {}: a message that this run did not send", record.queue_id, record.queue_offset));
        };
        debug_assert_eq!(run, self.run);
        self.received.fetch_add(1, Ordering::Relaxed);
        if due_ns >= self.warm_up_ns {
            self.latencies.record(now_ns.saturating_sub(due_ns));
            self.measured += 1;
        }
        Ok(())
    }
}

impl Work for PullWork {
    fn request(&mut self, slot: usize, opaque: i32, _due_ns: u64, _now: &WallClock, out: &mut Vec<u8>) {
        let (stretch, offset) = self.stretches[slot];
        let left = stretch.end.map_or(i64::MAX, |end| end - offset);
        let held = self.receiving.is_some();
        let header = PullMessageRequest {
            consumer_group: GROUP.into(),
            topic: self.topic.as_str().into(),
            queue_id: stretch.queue_id,
            queue_offset: offset,
            max_msg_nums: i64::from(self.max_messages).min(left) as i32,
            sys_flag: sysflag::PULL_SUBSCRIPTION | if held { sysflag::PULL_SUSPEND } else { 0 },
            commit_offset: 0,
            suspend_timeout_millis: if held { SUSPEND_MS } else { 0 },
            subscription: Some("*".into()),
            sub_version: 0,
            expression_type: Some("TAG".into()),
            ..PullMessageRequest::default()
        };
        let head = Head { code: request::PULL_MESSAGE, flag: 0, opaque, remark: None, serialize_type: SerializeType::Json };
        codec::encode_head(out, &head, &header, 0);
    }

    fn answer(&mut self, slot: usize, command: &Command<'_>, now_ns: u64) -> Result<Counted, String> {
        if self.receiving.is_some() && matches!(command.code, response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY) {
            return Ok(Counted::default()); // nothing came within the time a pull is held
        }
        need_success(command)?;
        let header = PullMessageResponse::decode(command).map_err(|error| error.to_string())?;
        let offset = self.stretches[slot].1;
        let counted = self.read(slot, command.body, now_ns)?;
        if counted.messages == 0 || header.next_begin_offset != offset + counted.messages as i64 {
            return Err(format!(
                "a pull at {offset} brought {} messages and nextBeginOffset {}",
                counted.messages, header.next_begin_offset
            ));
        }
        Ok(counted)
    }

    fn done(&self) -> bool {
        self.receiving
            .as_ref()
            .is_some_and(|receiving| receiving.received.load(Ordering::Relaxed) >= receiving.expected.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::record::{self, Draft};
    use crate::remoting::command::FLAG_RESPONSE;
    use crate::remoting::ext::CustomHeader;

    fn answer(code: i32, header: &dyn CustomHeader, body: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let head = Head { code, flag: FLAG_RESPONSE, opaque: 1, remark: Some("why"), serialize_type: SerializeType::Json };
        codec::encode_head(&mut frame, &head, header, body.len());
        frame.extend_from_slice(body);
        frame
    }

    fn ask<W: Work>(work: &mut W, slot: usize) -> Vec<u8> {
        let mut out = Vec::new();
        work.request(slot, 1_000_000_000, 5, &WallClock::new(1_700_000_000_000), &mut out);
        out
    }

    fn check<W: Work>(work: &mut W, slot: usize, frame: &[u8]) -> Result<Counted, String> {
        work.answer(slot, &Command::parse(frame).unwrap(), 100)
    }

    fn records(queue_id: i32, offsets: &[i64], body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for offset in offsets {
            let start = bytes.len();
            Draft {
                topic: "T",
                queue_id,
                flag: 0,
                sys_flag: 0,
                born_timestamp: 1,
                born_host: "1.2.3.4:5".parse().unwrap(),
                store_host: "1.2.3.4:6".parse().unwrap(),
                reconsume_times: 0,
                prepared_transaction_offset: 0,
                body,
                properties: b"",
            }
            .encode(&mut bytes);
            record::place(&mut bytes[start..], *offset, 0, 1);
        }
        bytes
    }

    #[test]
    fn answers_to_sends_must_be_right_in_every_part() {
        let shape = Shape { topic: "T".into(), body_bytes: 10, batch: 1, oneway: false };
        let mut work = SendWork::new(&shape, 2, 0, 4, None);
        ask(&mut work, 0); // queue 0
        ask(&mut work, 3); // queue 1
        let good = [("msgId", "M"), ("queueId", "1"), ("queueOffset", "7")];
        assert_eq!(check(&mut work, 3, &answer(0, &good, &[])), Ok(Counted { messages: 1, body_bytes: 10 }));
        assert!(check(&mut work, 0, &answer(0, &good, &[])).unwrap_err().contains("queue 0"));
        assert!(check(&mut work, 3, &answer(2, &good, &[])).unwrap_err().contains("code 2: why"));
        assert!(check(&mut work, 3, &answer(0, &[("queueId", "1"), ("queueOffset", "7")], &[])).is_err());
        assert!(check(&mut work, 3, &answer(0, &[("msgId", "M"), ("queueId", "1")], &[])).is_err());
    }

    fn pulled(next: i64, body: &[u8]) -> Vec<u8> {
        answer(0, &PullMessageResponse { next_begin_offset: next, max_offset: 100, ..PullMessageResponse::default() }, body)
    }

    #[test]
    fn pulled_messages_must_be_dense_and_whole() {
        let stretch = Stretch { queue_id: 1, at: 10, start: 8, end: Some(14) };
        let mut work = PullWork::new("T", vec![stretch], 32, Some(3));
        let frame = ask(&mut work, 0);
        let request =
            PullMessageRequest::decode(&Command::parse(&frame).unwrap()).map(|header| (header.queue_offset, header.max_msg_nums)).unwrap();
        assert_eq!(request, (10, 4));
        for (what, body, next) in [
            ("a gap", records(1, &[10, 12], b"abc"), 12),
            ("another queue", records(2, &[10], b"abc"), 11),
            ("another length", records(1, &[10], b"abcd"), 11),
            ("nothing", Vec::new(), 10),
            ("a wrong next offset", records(1, &[10, 11], b"abc"), 13),
        ] {
            let mut work = PullWork::new("T", vec![stretch], 32, Some(3));
            assert!(check(&mut work, 0, &pulled(next, &body)).is_err(), "{what}");
        }
        let mut damaged = records(1, &[10], b"abc");
        let at = damaged.len() - 5;
        damaged[at - 1] ^= 1;
        assert!(check(&mut work, 0, &pulled(11, &damaged)).is_err());
        assert_eq!(check(&mut work, 0, &pulled(12, &records(1, &[10, 11], b"abc"))), Ok(Counted { messages: 2, body_bytes: 6 }));
        assert_eq!(check(&mut work, 0, &pulled(14, &records(1, &[12, 13], b"abc"))), Ok(Counted { messages: 2, body_bytes: 6 }));
        let frame = ask(&mut work, 0);
        let header = PullMessageRequest::decode(&Command::parse(&frame).unwrap()).map(|header| header.queue_offset).unwrap();
        assert_eq!(header, 8, "the stretch starts over");
        assert!(check(&mut work, 0, &answer(19, &(), &[])).is_err());
    }

    #[test]
    fn a_receiver_takes_latencies_from_stamps_and_knows_its_messages() {
        let expected = Arc::new(AtomicU64::new(u64::MAX));
        let receiving = Receiving {
            run: 77,
            received: Arc::default(),
            expected: expected.clone(),
            latencies: Latencies::default(),
            warm_up_ns: 50,
            measured: 0,
        };
        let mut work = PullWork::new("T", vec![Stretch { queue_id: 0, at: 0, start: 0, end: None }], 32, None).receiving(receiving);
        assert_eq!(check(&mut work, 0, &answer(19, &(), &[])), Ok(Counted::default()));
        check(&mut work, 0, &pulled(1, &records(0, &[0], &stamp(77, 40)))).unwrap();
        check(&mut work, 0, &pulled(2, &records(0, &[1], &stamp(77, 60)))).unwrap();
        assert!(check(&mut work, 0, &pulled(3, &records(0, &[2], &stamp(78, 60)))).is_err());
        assert!(!work.done());
        expected.store(2, Ordering::Release);
        assert!(work.done());
        let receiving = work.into_receiving().unwrap();
        assert_eq!((receiving.measured, receiving.latencies.count()), (1, 1));
    }
}
