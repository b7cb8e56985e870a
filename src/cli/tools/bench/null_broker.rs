//! A broker that stores nothing: what the machine and the protocol alone allow.
//!
//! One blocking thread per connection reads whole headers and answers every send with a full send answer; what one read brought is
//! answered with one write. Pulls get a canned batch whose offsets fit the request. Route, heartbeat and offset requests get the least
//! that lets a load or a client go on.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::common::record::{self, Draft};
use crate::common::{message_id, properties};
use crate::remoting::body::route::{BrokerData, QueueData, TopicRouteData};
use crate::remoting::code::{request, response};
use crate::remoting::codec::{self, Head};
use crate::remoting::command::{Command, FLAG_RESPONSE, SerializeType};
use crate::remoting::ext::{CustomHeader, ExtText};
use crate::remoting::header::pull::{PullMessageRequest, PullMessageResponse};
use crate::remoting::header::send::{SendMessageRequest, SendMessageResponse};
use crate::runtime::thread::Thread;

/// Read at once from a connection.
const READ_BYTES: usize = 256 << 10;
/// Messages that a queue seems to hold when pulled.
const SEEMING_END: i64 = 1 << 40;
/// Most messages of a canned batch.
const MAX_BATCH: i32 = 1024;
/// Queues of every topic.
const QUEUES: i32 = 8;
/// Body of canned messages of a topic that nothing was sent to.
const DEFAULT_BODY_BYTES: usize = 1024;

/// A running null broker.
pub struct NullBroker {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<Thread>,
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    topics: Mutex<HashMap<String, Topic>>,
    streams: Mutex<Vec<TcpStream>>,
}

/// What is remembered of a topic.
#[derive(Clone, Copy, Default)]
struct Topic {
    /// Messages sent so far, to all queues.
    stored: usize,
    /// Length of the last message's body, for canned batches.
    body_bytes: usize,
}

impl NullBroker {
    /// Listens on `port` of the loopback address (0: a free one) and serves.
    ///
    /// # Errors
    /// The system's.
    pub fn start(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let for_acceptor = shared.clone();
        let acceptor = Thread::spawn("null", "accept", move || accept(&listener, &for_acceptor))?;
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// Address listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the process ends.
    pub fn wait(mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join();
        }
    }
}

impl Drop for NullBroker {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)); // wakes the acceptor
        for stream in self.shared.streams.lock().iter() {
            let _ = stream.shutdown(std::net::Shutdown::Both); // gone already is as good
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads: Vec<Thread> = Vec::new();
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::Acquire) {
            break;
        }
        let Ok(stream) = stream else { continue };
        let _ = stream.set_nodelay(true); // a refusal only costs speed
        if let Ok(copy) = stream.try_clone() {
            shared.streams.lock().push(copy);
        }
        let for_connection = shared.clone();
        match Thread::spawn("null", &format!("c{}", threads.len()), move || serve(stream, &for_connection)) {
            Ok(thread) => threads.push(thread),
            Err(error) => log::warn!("no thread for a connection: error={error}"),
        }
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    let Ok(local) = stream.local_addr() else { return };
    let mut connection = Connection {
        local,
        shared,
        out: Vec::with_capacity(READ_BYTES),
        canned: None,
        topic: String::new(),
        sent: Topic::default(),
        ids: String::new(),
    };
    let mut inbox = vec![0; READ_BYTES];
    let mut filled = 0;
    loop {
        let count = match stream.read(&mut inbox[filled..]) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        filled += count;
        let mut taken = 0;
        loop {
            let rest = &inbox[taken..filled];
            let len = match codec::frame_len(rest) {
                Ok(Some(len)) if rest.len() >= len => len,
                Ok(_) => break,
                Err(_) => return,
            };
            let Ok(command) = Command::parse(&rest[..len]) else { return };
            connection.handle(&command);
            taken += len;
        }
        inbox.copy_within(taken..filled, 0);
        filled -= taken;
        if filled == inbox.len() {
            inbox.resize(inbox.len() * 2, 0);
        }
        if connection.answer(&mut stream).is_err() {
            return;
        }
    }
}

/// One connection's thread.
struct Connection<'a> {
    local: SocketAddr,
    shared: &'a Shared,
    out: Vec<u8>,
    canned: Option<Canned>,
    /// Topic of the last send, and what came for it since it was last noted.
    topic: String,
    sent: Topic,
    ids: String,
}

/// The batch that pulls get, and what it was made for.
struct Canned {
    topic: String,
    queue_id: i32,
    count: i32,
    body_bytes: usize,
    records: Vec<u8>,
    record_len: usize,
}

impl Connection<'_> {
    /// Writes what the last read's requests are answered with.
    fn answer(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        self.note();
        if !self.out.is_empty() {
            stream.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Makes known to other connections what came.
    fn note(&mut self) {
        if self.sent.stored == 0 {
            return;
        }
        let mut topics = self.shared.topics.lock();
        match topics.get_mut(&self.topic) {
            Some(topic) => *topic = Topic { stored: topic.stored + self.sent.stored, body_bytes: self.sent.body_bytes },
            None => {
                topics.insert(self.topic.clone(), self.sent);
            }
        }
        self.sent.stored = 0;
    }

    /// What is known of a topic, this connection's sends included.
    fn topic(&mut self, name: &str) -> Option<Topic> {
        self.note();
        self.shared.topics.lock().get(name).copied()
    }

    fn handle(&mut self, command: &Command<'_>) {
        match command.code {
            request::SEND_MESSAGE | request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => self.send(command),
            request::PULL_MESSAGE | request::LITE_PULL_MESSAGE => self.pull(command),
            request::GET_ROUTEINFO_BY_TOPIC => {
                let body = self.route().to_json(true);
                self.reply(command, response::SUCCESS, &(), body.as_bytes());
            }
            request::GET_CONSUMER_LIST_BY_GROUP => self.reply(command, response::SUCCESS, &(), b"{\"consumerIdList\":[\"null\"]}"),
            request::GET_MAX_OFFSET => {
                // The messages of all queues of a topic are counted together, as queue 0's.
                let first = command.ext.i32("queueId").ok().flatten() == Some(0);
                let topic = self.topic(&command.ext.text("topic").unwrap_or_default());
                let offset = topic.filter(|_| first).map_or(0, |topic| topic.stored);
                self.reply(command, response::SUCCESS, &[("offset", offset.to_string().as_str())], &[]);
            }
            request::GET_MIN_OFFSET | request::SEARCH_OFFSET_BY_TIMESTAMP => {
                self.reply(command, response::SUCCESS, &[("offset", "0")], &[]);
            }
            request::QUERY_CONSUMER_OFFSET => self.reply(command, response::QUERY_NOT_FOUND, &(), &[]),
            request::HEART_BEAT | request::UNREGISTER_CLIENT | request::UPDATE_CONSUMER_OFFSET | request::UPDATE_AND_CREATE_TOPIC => {
                self.reply(command, response::SUCCESS, &(), &[]);
            }
            _ => self.reply(command, response::REQUEST_CODE_NOT_SUPPORTED, &(), &[]),
        }
    }

    fn reply(&mut self, command: &Command<'_>, code: i32, header: &(impl CustomHeader + ?Sized), body: &[u8]) {
        if command.is_oneway() {
            return;
        }
        let head = Head { code, flag: FLAG_RESPONSE, opaque: command.opaque, remark: None, serialize_type: SerializeType::Json };
        codec::encode_head(&mut self.out, &head, header, body.len());
        self.out.extend_from_slice(body);
    }

    fn send(&mut self, command: &Command<'_>) {
        let Ok(header) = SendMessageRequest::decode(command) else {
            return self.reply(command, response::SYSTEM_ERROR, &(), &[]);
        };
        let messages = if header.batch { batch_len(command.body) } else { 1 };
        if header.topic != self.topic {
            self.note();
            self.topic = header.topic.clone().into_owned();
        }
        let offset = self.sent.stored as i64;
        self.sent.stored += messages;
        self.sent.body_bytes = if header.batch { first_body_len(command.body) } else { command.body.len() };
        if command.is_oneway() {
            return;
        }
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        for message in 0..messages {
            if message > 0 {
                ids.push(',');
            }
            message_id::write(&mut ids, self.local, offset + message as i64);
        }
        let answer = SendMessageResponse {
            msg_id: ids,
            queue_id: header.queue_id.max(0),
            queue_offset: offset,
            transaction_id: header.properties.as_ref().and_then(unique_key),
            region: region(),
            trace_on: true,
        };
        self.reply(command, response::SUCCESS, &answer, &[]);
        self.ids = answer.msg_id;
    }

    fn pull(&mut self, command: &Command<'_>) {
        let Ok(header) = PullMessageRequest::decode(command) else {
            return self.reply(command, response::SYSTEM_ERROR, &(), &[]);
        };
        let count = header.max_msg_nums.clamp(1, MAX_BATCH);
        let body_bytes = self.topic(&header.topic).map_or(DEFAULT_BODY_BYTES, |topic| topic.body_bytes);
        let fits = |canned: &Canned| {
            canned.topic == header.topic && canned.queue_id == header.queue_id && canned.count == count && canned.body_bytes == body_bytes
        };
        if !self.canned.as_ref().is_some_and(fits) {
            self.canned = Some(Canned::new(&header.topic, header.queue_id, count, body_bytes, self.local));
        }
        let Some(mut canned) = self.canned.take() else { return };
        canned.move_to(header.queue_offset);
        let answer = PullMessageResponse {
            next_begin_offset: header.queue_offset + i64::from(count),
            max_offset: SEEMING_END,
            ..PullMessageResponse::default()
        };
        self.reply(command, response::SUCCESS, &answer, &canned.records);
        self.canned = Some(canned);
    }

    fn route(&self) -> TopicRouteData {
        let broker_name = "null".to_owned();
        TopicRouteData {
            queue_datas: vec![QueueData {
                broker_name: broker_name.clone(),
                read_queue_nums: QUEUES,
                write_queue_nums: QUEUES,
                perm: 6,
                topic_sys_flag: 0,
            }],
            broker_datas: vec![BrokerData {
                cluster: "null".to_owned(),
                broker_name,
                broker_addrs: [(0, self.local.to_string())].into(),
                enable_acting_master: false,
            }],
            order_topic_conf: None,
        }
    }
}

impl Canned {
    fn new(topic: &str, queue_id: i32, count: i32, body_bytes: usize, host: SocketAddr) -> Self {
        let body = vec![b'n'; body_bytes];
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let mut properties_text = String::new();
        properties::push(&mut properties_text, properties::UNIQ_KEY, &"0".repeat(32));
        properties::push(&mut properties_text, properties::WAIT, "true");
        properties::push(&mut properties_text, properties::TAGS, "TagA");
        let draft = Draft {
            topic,
            queue_id,
            flag: 0,
            sys_flag: 0,
            born_timestamp: now_ms,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &body,
            properties: properties_text.as_bytes(),
        };
        let record_len = draft.size();
        let mut records = Vec::with_capacity(record_len * count as usize);
        (0..count).for_each(|_| draft.encode(&mut records));
        Self { topic: topic.to_owned(), queue_id, count, body_bytes, records, record_len }
    }

    fn move_to(&mut self, offset: i64) {
        for (step, one) in self.records.chunks_exact_mut(self.record_len).enumerate() {
            let offset = offset + step as i64;
            record::place(one, offset, offset * self.record_len as i64, 1);
        }
    }
}

/// Messages of a batch body.
fn batch_len(mut body: &[u8]) -> usize {
    let mut count = 0;
    while let Some(size) = body.first_chunk::<4>().map(|word| i32::from_be_bytes(*word)) {
        let Some(rest) = usize::try_from(size).ok().filter(|size| *size > 0).and_then(|size| body.get(size..)) else { break };
        body = rest;
        count += 1;
    }
    count
}

/// Length of the first message's body in a batch.
fn first_body_len(batch: &[u8]) -> usize {
    let word = batch.get(16..20).and_then(|word| word.first_chunk::<4>());
    word.map_or(0, |word| usize::try_from(i32::from_be_bytes(*word)).unwrap_or(0))
}

/// The unique key of a properties text, in either of its forms in a frame.
fn unique_key(text: &ExtText<'_>) -> Option<String> {
    let escaped_name = "UNIQ_KEY\\u0001";
    match text {
        ExtText::Escaped(raw) if raw.contains(escaped_name) => {
            let value = &raw[raw.find(escaped_name)? + escaped_name.len()..];
            Some(value[..value.find("\\u0002").unwrap_or(value.len())].to_owned())
        }
        other => properties::find(&other.text(), properties::UNIQ_KEY).map(str::to_owned),
    }
}

/// The region of every answer, made once per thread.
fn region() -> Arc<str> {
    thread_local! {
        static REGION: Arc<str> = Arc::from("DefaultRegion");
    }
    REGION.with(Arc::clone)
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Shape, Template, WallClock};
    use super::*;
    use crate::client::Client;
    use crate::common::message::Message;

    fn talk(stream: &mut TcpStream, request: &[u8]) -> Vec<u8> {
        stream.write_all(request).unwrap();
        let mut word = [0; 4];
        stream.read_exact(&mut word).unwrap();
        let mut frame = word.to_vec();
        frame.resize(4 + u32::from_be_bytes(word) as usize, 0);
        stream.read_exact(&mut frame[4..]).unwrap();
        frame
    }

    #[test]
    fn sends_are_answered_in_full_and_counted() {
        let broker = NullBroker::start(0).unwrap();
        let mut stream = TcpStream::connect(broker.address()).unwrap();
        let now = WallClock::new(1_700_000_000_000);
        let shape = Shape { topic: "T".into(), body_bytes: 10, batch: 3, oneway: false };
        let mut bytes = Vec::new();
        Template::send(&shape, 2, 1).append(&mut bytes, 1_000_000_007, 0, &now, None);
        let frame = talk(&mut stream, &bytes);
        let command = Command::parse(&frame).unwrap();
        let answer = SendMessageResponse::decode(&command).unwrap();
        assert_eq!((command.code, command.opaque, answer.queue_id), (0, 1_000_000_007, 2));
        assert_eq!(answer.msg_id.split(',').count(), 3);
        assert_eq!(answer.transaction_id.map(|id| id.len()), Some(32));
        bytes.clear();
        Template::send(&Shape { batch: 1, oneway: true, ..shape }, 0, 1).append(&mut bytes, 1_000_000_008, 0, &now, None);
        Template::request(request::GET_MAX_OFFSET, 0, &[("topic", "T"), ("queueId", "0")], &[]).append(
            &mut bytes,
            1_000_000_009,
            0,
            &now,
            None,
        );
        let frame = talk(&mut stream, &bytes);
        let command = Command::parse(&frame).unwrap();
        assert_eq!((command.opaque, command.ext.i64("offset").unwrap()), (1_000_000_009, Some(4)), "the one-way send is not answered");
    }

    #[test]
    fn a_client_can_use_it() {
        let broker = NullBroker::start(0).unwrap();
        let client = Client::connect(&broker.address().to_string()).unwrap();
        let producer = client.producer("g").unwrap();
        let receipt = producer.send(&Message::new("T", "hello")).unwrap();
        assert_eq!(receipt.queue.broker_name, "null");
        let consumer = client.pull_consumer("g").unwrap();
        let result = consumer.pull(&receipt.queue, "*", 70, 32).unwrap();
        let offsets: Vec<i64> = result.messages.iter().map(|message| message.queue_offset).collect();
        assert_eq!(offsets, (70..102).collect::<Vec<i64>>());
        assert!(result.messages.iter().all(|message| message.message.body.len() == 5 && message.queue_id == receipt.queue.queue_id));
    }
}
