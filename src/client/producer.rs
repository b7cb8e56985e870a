//! Sends messages: waiting for the answer, with a callback, or without an answer.
//!
//! - A send that fails goes to another queue, of another broker where there is one, as long as attempts and time are left. What brokers
//!   refuse for the message's own sake (illegal, unknown queue) is not tried again.
//! - A retried message keeps its unique id: consumers can tell a duplicate by it.
//! - A chosen queue is tried once: the caller's order is worth more than the attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::hash::java_hash;
use crate::common::message::Message;
use crate::common::{properties, topic};
use crate::net::connection::InvokeError;
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::code::{request, response};
use crate::remoting::command::OwnedCommand;
use crate::remoting::ext::ExtText;
use crate::remoting::header::send::{SendMessageRequest, SendMessageResponse};

use super::error::ClientError;
use super::instance::Instance;
use super::outgoing::{self, Form, Outgoing, borrowed};
use super::route::TopicRoute;

/// Response codes after which another queue may do better.
const RETRIED_CODES: [i32; 8] = [
    response::TOPIC_NOT_EXIST,
    response::SERVICE_NOT_AVAILABLE,
    response::SYSTEM_ERROR,
    response::SYSTEM_BUSY,
    response::NO_PERMISSION,
    response::NO_BUYER_ID,
    response::NOT_IN_CURRENT_UNIT,
    response::GO_AWAY,
];

/// How a producer sends.
#[derive(Clone, Copy, Debug)]
pub struct ProducerConfig {
    /// Time for one send, all attempts together: 3 s.
    pub timeout: Duration,
    /// Attempts after the first: 2.
    pub retries: u32,
    /// Largest body in bytes: 4 MiB.
    pub max_body_bytes: usize,
    /// Bodies longer than this are sent as zlib streams; `None`, the default, sends every body as it is. (Java's default is 4096.)
    pub compress_above_bytes: Option<usize>,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(3), retries: 2, max_body_bytes: 4 << 20, compress_above_bytes: None }
    }
}

/// What the broker did with a message besides storing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// Stored as its configuration promises.
    Ok,
    /// Stored; the disk was late (10).
    FlushDiskTimeout,
    /// Stored; no replica is there (11).
    SlaveNotAvailable,
    /// Stored; a replica was late (12).
    FlushSlaveTimeout,
}

impl SendStatus {
    /// Name in Java's `SendStatus`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "SEND_OK",
            Self::FlushDiskTimeout => "FLUSH_DISK_TIMEOUT",
            Self::SlaveNotAvailable => "SLAVE_NOT_AVAILABLE",
            Self::FlushSlaveTimeout => "FLUSH_SLAVE_TIMEOUT",
        }
    }

    fn of_code(code: i32) -> Option<Self> {
        match code {
            response::SUCCESS => Some(Self::Ok),
            response::FLUSH_DISK_TIMEOUT => Some(Self::FlushDiskTimeout),
            response::SLAVE_NOT_AVAILABLE => Some(Self::SlaveNotAvailable),
            response::FLUSH_SLAVE_TIMEOUT => Some(Self::FlushSlaveTimeout),
            _ => None,
        }
    }
}

/// The broker's receipt for a message or a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendReceipt {
    /// What was done.
    pub status: SendStatus,
    /// Unique id; for a batch those of its messages, joined by commas.
    pub message_id: String,
    /// Id made by the broker; for a batch joined by commas.
    pub offset_message_id: String,
    /// Queue it went to.
    pub queue: MessageQueue,
    /// Offset in the queue; for a batch of its first message.
    pub queue_offset: i64,
    /// Transaction id, when the broker gave one.
    pub transaction_id: Option<String>,
    /// Region of the broker.
    pub region: String,
}

/// Called once with what became of an asynchronous send, on the net thread or the caller's; must not block.
pub type SendCallback = Box<dyn FnOnce(Result<SendReceipt, ClientError>) + Send>;

/// Sends messages of a group. Cheap to share by reference; dropping it takes the group out of the heartbeats.
pub struct Producer {
    shared: Arc<Shared>,
}

struct Shared {
    instance: Arc<Instance>,
    group: String,
    config: ProducerConfig,
    turn: AtomicUsize,
}

impl Producer {
    /// A producer of `group`.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] when the group's name is not allowed.
    pub(super) fn new(instance: Arc<Instance>, group: &str, config: ProducerConfig) -> Result<Self, ClientError> {
        topic::check_group(group).map_err(ClientError::Invalid)?;
        instance.register_producer(group);
        let turn = AtomicUsize::new(fastrand::usize(..1 << 16));
        Ok(Self { shared: Arc::new(Shared { instance, group: group.to_owned(), config, turn }) })
    }

    /// Queues of a topic that may be sent to; of a topic that does not exist yet, those its first message would make.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`].
    pub fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
        self.shared.instance.publish_route(topic).map(|route| route.publish.clone())
    }

    /// Sends and waits.
    ///
    /// # Errors
    /// The last attempt's.
    pub fn send(&self, message: &Message) -> Result<SendReceipt, ClientError> {
        self.shared.send(&self.shared.prepare(message)?, &Target::Any)
    }

    /// Sends to one queue and waits. Not tried again.
    ///
    /// # Errors
    /// The attempt's.
    pub fn send_to(&self, message: &Message, queue: &MessageQueue) -> Result<SendReceipt, ClientError> {
        let outgoing = self.shared.prepare(message)?;
        self.shared.send(&outgoing, &Target::Queue(queue.broker_name.clone(), queue.queue_id))
    }

    /// Sends to the queue that the sharding key stands for and waits: messages of one key stay in order, as long as the number of queues
    /// stays. The choice is that of Java's `SelectMessageQueueByHash`. Not tried again.
    ///
    /// # Errors
    /// The attempt's.
    pub fn send_sharded(&self, message: &Message, sharding_key: &str) -> Result<SendReceipt, ClientError> {
        let message = message.clone().property(properties::SHARDING_KEY, sharding_key);
        self.shared.send(&self.shared.prepare(&message)?, &Target::Shard(sharding_key.to_owned()))
    }

    /// Sends messages of one topic as one request and waits.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for an empty batch, several topics, delays; else the last attempt's.
    pub fn send_batch(&self, messages: &[Message]) -> Result<SendReceipt, ClientError> {
        self.shared.send(&self.shared.prepare_batch(messages)?, &Target::Any)
    }

    /// Sends messages of one topic as one request to one queue and waits.
    ///
    /// # Errors
    /// As [`Producer::send_batch`], without another attempt.
    pub fn send_batch_to(&self, messages: &[Message], queue: &MessageQueue) -> Result<SendReceipt, ClientError> {
        let outgoing = self.shared.prepare_batch(messages)?;
        self.shared.send(&outgoing, &Target::Queue(queue.broker_name.clone(), queue.queue_id))
    }

    /// Sends without an answer: an `Ok` says that the message was handed to a connection, not that it was stored.
    ///
    /// # Errors
    /// What went wrong before it left.
    pub fn send_oneway(&self, message: &Message) -> Result<(), ClientError> {
        let outgoing = self.shared.prepare(message)?;
        self.shared.send_oneway(&outgoing, &Target::Any)
    }

    /// Sends to one queue without an answer.
    ///
    /// # Errors
    /// What went wrong before it left.
    pub fn send_oneway_to(&self, message: &Message, queue: &MessageQueue) -> Result<(), ClientError> {
        let outgoing = self.shared.prepare(message)?;
        self.shared.send_oneway(&outgoing, &Target::Queue(queue.broker_name.clone(), queue.queue_id))
    }

    /// Sends and calls `done` with the result.
    ///
    /// Blocks the caller while the route of a topic is looked up that is not known yet: at most [`super::ClientConfig::timeout`] for each
    /// name server asked, twice that when the topic does not exist (the template topic is asked for, too), and again at every send until
    /// it does. Call [`Producer::queues`] before, where that matters. From within a [`SendCallback`] send only to topics whose route is
    /// known: that callback may run on the thread that would receive the answer. Another attempt after a failure never blocks.
    pub fn send_async(&self, message: &Message, done: SendCallback) {
        match self.shared.prepare(message) {
            Ok(outgoing) => self.shared.send_async(outgoing, done),
            Err(error) => done(Err(error)),
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.instance.unregister_producer(&self.shared.group);
    }
}

/// Where a message is to go.
enum Target {
    Any,
    Queue(String, i32),
    Shard(String),
}

impl Shared {
    fn form(&self) -> Form {
        Form { max_body_bytes: self.config.max_body_bytes, compress_above_bytes: self.config.compress_above_bytes }
    }

    fn prepare(&self, message: &Message) -> Result<Outgoing, ClientError> {
        outgoing::single(message, self.instance.next_id(), self.form())
    }

    fn prepare_batch(&self, messages: &[Message]) -> Result<Outgoing, ClientError> {
        outgoing::batch(messages, || self.instance.next_id(), self.form())
    }

    fn send(&self, outgoing: &Outgoing, target: &Target) -> Result<SendReceipt, ClientError> {
        let mut attempts = Attempts::new(&self.config, matches!(target, Target::Any));
        loop {
            let error = match self.attempt(outgoing, target, &mut attempts) {
                Ok(receipt) => return Ok(receipt),
                Err(error) => error,
            };
            self.notice(&error);
            if let Some(error) = attempts.end(error) {
                return Err(error);
            }
        }
    }

    fn attempt(&self, outgoing: &Outgoing, target: &Target, attempts: &mut Attempts) -> Result<SendReceipt, ClientError> {
        let queue = self.choose(&outgoing.topic, target, attempts.last_broker.as_deref())?;
        attempts.last_broker = Some(queue.broker_name.clone());
        let address = self.instance.master(&outgoing.topic, &queue.broker_name)?;
        let header = self.header(outgoing, &queue);
        let left = attempts.left();
        let answer = self.instance.transport().invoke(&address, code_of(outgoing), &header, outgoing.body_once(), left)?;
        receipt(&address, &answer, outgoing, queue)
    }

    fn send_oneway(&self, outgoing: &Outgoing, target: &Target) -> Result<(), ClientError> {
        let queue = self.choose(&outgoing.topic, target, None)?;
        let address = self.instance.master(&outgoing.topic, &queue.broker_name)?;
        let header = self.header(outgoing, &queue);
        Ok(self.instance.transport().oneway(&address, code_of(outgoing), &header, outgoing.body_once())?)
    }

    /// A broker that was not reached may be elsewhere.
    fn notice(&self, error: &ClientError) {
        if matches!(error, ClientError::Invoke(_)) {
            self.instance.routes_are_stale();
        }
    }

    fn send_async(self: &Arc<Self>, outgoing: Outgoing, done: SendCallback) {
        match self.instance.publish_route(&outgoing.topic) {
            Ok(route) => {
                let attempts = Attempts::new(&self.config, true);
                AsyncSend { shared: self.clone(), outgoing, route, attempts, done }.attempt();
            }
            Err(error) => done(Err(error)),
        }
    }

    fn choose(&self, topic: &str, target: &Target, failed_broker: Option<&str>) -> Result<MessageQueue, ClientError> {
        let route = self.instance.publish_route(topic)?;
        match target {
            Target::Any => Ok(next_queue(&route.publish, &self.turn, failed_broker)),
            Target::Shard(key) => Ok(route.publish[shard(key, route.publish.len())].clone()),
            Target::Queue(broker, id) => {
                let found = route.publish.iter().find(|queue| queue.broker_name == *broker && queue.queue_id == *id);
                found.cloned().ok_or_else(|| no_such_queue(&route, topic, broker, *id))
            }
        }
    }

    fn header<'a>(&'a self, outgoing: &'a Outgoing, queue: &MessageQueue) -> SendMessageRequest<'a> {
        SendMessageRequest {
            producer_group: borrowed(&self.group),
            topic: borrowed(&outgoing.topic),
            default_topic: borrowed(topic::TBW102),
            default_topic_queue_nums: 4,
            queue_id: queue.queue_id,
            sys_flag: outgoing.sys_flag,
            born_timestamp: self.instance.now_ms(),
            flag: outgoing.flag,
            properties: Some(ExtText::Plain(&outgoing.properties)),
            reconsume_times: 0,
            unit_mode: false,
            max_reconsume_times: None,
            batch: outgoing.batch,
        }
    }
}

/// An asynchronous send on its way; goes on from the callback of each attempt.
struct AsyncSend {
    shared: Arc<Shared>,
    outgoing: Outgoing,
    route: Arc<TopicRoute>,
    attempts: Attempts,
    done: SendCallback,
}

impl AsyncSend {
    fn attempt(mut self) {
        let queue = next_queue(&self.route.publish, &self.shared.turn, self.attempts.last_broker.as_deref());
        self.attempts.last_broker = Some(queue.broker_name.clone());
        // Only what is known: this may run on the net thread, which must not wait for a name server.
        let Some(address) = self.shared.instance.routes().master(&queue.broker_name) else {
            let error = ClientError::NoRoute(self.outgoing.topic.clone(), format!("broker {} has no master", queue.broker_name));
            return (self.done)(Err(error));
        };
        let transport = self.shared.instance.transport().clone();
        let shared = self.shared.clone();
        let outgoing = self.outgoing.clone();
        let header = shared.header(&outgoing, &queue);
        let body = outgoing.body_once();
        let left = self.attempts.left();
        let to = address.clone();
        let callback = Box::new(move |answer| self.answered(&to, queue, answer));
        transport.invoke_async(&address, code_of(&outgoing), &header, body, left, callback);
    }

    fn answered(mut self, address: &str, queue: MessageQueue, answer: Result<OwnedCommand, InvokeError>) {
        match answer.map_err(ClientError::from).and_then(|answer| receipt(address, &answer, &self.outgoing, queue)) {
            Ok(receipt) => (self.done)(Ok(receipt)),
            Err(error) => {
                self.shared.notice(&error);
                match self.attempts.end(error) {
                    Some(error) => (self.done)(Err(error)),
                    None => self.attempt(),
                }
            }
        }
    }
}

/// Attempts and time of one send.
struct Attempts {
    left: u32,
    started: Instant,
    timeout: Duration,
    last_broker: Option<String>,
}

impl Attempts {
    fn new(config: &ProducerConfig, retry: bool) -> Self {
        Self { left: if retry { config.retries } else { 0 }, started: Instant::now(), timeout: config.timeout, last_broker: None }
    }

    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed()).max(Duration::from_millis(1))
    }

    /// `None` when another attempt is worth it; else the error to give.
    fn end(&mut self, error: ClientError) -> Option<ClientError> {
        let worth = match &error {
            ClientError::Invoke(_) => true,
            ClientError::Response { code, .. } => RETRIED_CODES.contains(code),
            _ => false,
        };
        if !worth || self.left == 0 {
            return Some(error);
        }
        if self.started.elapsed() >= self.timeout {
            return Some(ClientError::Timeout(self.timeout.as_millis() as u64, error.to_string()));
        }
        self.left -= 1;
        None
    }
}

fn code_of(outgoing: &Outgoing) -> i32 {
    if outgoing.batch { request::SEND_BATCH_MESSAGE } else { request::SEND_MESSAGE_V2 }
}

/// The next queue in turn, of another broker than the one that failed when there is one. `queues` is not empty.
fn next_queue(queues: &[MessageQueue], turn: &AtomicUsize, failed_broker: Option<&str>) -> MessageQueue {
    let first = turn.fetch_add(1, Ordering::Relaxed);
    let in_turn = |step: usize| &queues[first.wrapping_add(step) % queues.len()];
    let other = failed_broker.and_then(|failed| (0..queues.len()).map(in_turn).find(|queue| queue.broker_name != failed));
    other.unwrap_or_else(|| in_turn(0)).clone()
}

/// Index of the queue that a sharding key stands for: Java's `Math.abs(key.hashCode() % size)`.
fn shard(key: &str, queues: usize) -> usize {
    (i64::from(java_hash(key)) % queues as i64).unsigned_abs() as usize
}

fn no_such_queue(route: &TopicRoute, topic: &str, broker: &str, id: i32) -> ClientError {
    let mut known: Vec<String> = Vec::new();
    for queue in &route.publish {
        match known.last_mut().filter(|last| last.starts_with(&format!("{}:0-", queue.broker_name))) {
            Some(last) => *last = format!("{}:0-{}", queue.broker_name, queue.queue_id),
            None => known.push(format!("{}:0-{}", queue.broker_name, queue.queue_id)),
        }
    }
    ClientError::Invalid(format!("topic {topic} has no writable queue {broker}:{id}; it has {}", known.join(", ")))
}

fn receipt(address: &str, answer: &OwnedCommand, outgoing: &Outgoing, mut queue: MessageQueue) -> Result<SendReceipt, ClientError> {
    let view = answer.view();
    let Some(status) = SendStatus::of_code(view.code) else {
        let remark = view.remark.as_deref().unwrap_or_default().to_owned();
        return Err(ClientError::Response { address: address.to_owned(), code: view.code, remark });
    };
    let header = SendMessageResponse::decode(&view).map_err(|error| ClientError::Answer(address.to_owned(), error.to_string()))?;
    queue.queue_id = header.queue_id;
    Ok(SendReceipt {
        status,
        message_id: outgoing.message_id.clone(),
        offset_message_id: header.msg_id,
        queue,
        queue_offset: header.queue_offset,
        transaction_id: header.transaction_id,
        region: header.region.as_ref().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fake::{self, Call, Fake};
    use super::*;

    fn stored(call: &Call) -> fake::Answer {
        let header = SendMessageResponse {
            msg_id: "0A0000010000000100000000000000FF".into(),
            queue_id: call.field("e").parse().unwrap(),
            queue_offset: 41,
            transaction_id: None,
            region: "DefaultRegion".into(),
            trace_on: true,
        };
        fake::answer(0, None, &header, Vec::new())
    }

    /// Two brokers with two queues each; `send` plays them.
    fn cluster(send: impl Fn(&Call) -> fake::Answer + Send + Sync + 'static) -> (Fake, Producer) {
        let fake = Fake::new(move |call| match call.code {
            request::GET_ROUTEINFO_BY_TOPIC => fake::route(&[("a", "a:1"), ("b", "b:1")], 2),
            request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => send(call),
            _ => fake::ok(),
        });
        let producer = Producer::new(fake.instance(), "g", ProducerConfig::default()).unwrap();
        (fake, producer)
    }

    fn sends(fake: &Fake) -> Vec<Call> {
        fake.calls_of(request::SEND_MESSAGE_V2)
    }

    #[test]
    fn sends_go_round_all_queues() {
        let (fake, producer) = cluster(stored);
        let mut used: Vec<String> = (0..8)
            .map(|_| {
                let receipt = producer.send(&Message::new("T", "x")).unwrap();
                assert_eq!((receipt.status, receipt.queue_offset), (SendStatus::Ok, 41));
                format!("{}:{}", receipt.queue.broker_name, receipt.queue.queue_id)
            })
            .collect();
        used.sort();
        assert_eq!(used, ["a:0", "a:0", "a:1", "a:1", "b:0", "b:0", "b:1", "b:1"]);
        let first = &sends(&fake)[0];
        assert_eq!((first.field("a").as_str(), first.field("b").as_str(), first.field("c").as_str()), ("g", "T", "TBW102"));
        assert!(first.field("i").contains("WAIT\u{1}true"));
    }

    #[test]
    fn a_busy_broker_is_left_for_another_with_the_same_id() {
        let (fake, producer) = cluster(|call| if call.address == "a:1" { fake::refusal(2, "busy") } else { stored(call) });
        for _ in 0..4 {
            assert_eq!(producer.send(&Message::new("T", "x")).unwrap().queue.broker_name, "b");
        }
        let sends = sends(&fake);
        let failed = sends.iter().position(|call| call.address == "a:1").expect("a was tried");
        assert_eq!(sends[failed + 1].address, "b:1");
        let id = |call: &Call| properties::find(&call.field("i"), properties::UNIQ_KEY).unwrap().to_owned();
        assert_eq!(id(&sends[failed]), id(&sends[failed + 1]));
    }

    #[test]
    fn attempts_are_bounded_and_refusals_of_the_message_final() {
        let (fake, producer) = cluster(|_| Err(InvokeError::Timeout("x".into(), 1)));
        assert_eq!(producer.send(&Message::new("T", "x")).unwrap_err(), ClientError::Invoke(InvokeError::Timeout("x".into(), 1)));
        assert_eq!(sends(&fake).len(), 3);
        let (fake, producer) = cluster(|_| fake::refusal(response::MESSAGE_ILLEGAL, "too long"));
        assert_eq!(producer.send(&Message::new("T", "x")).unwrap_err().code(), Some(13));
        assert_eq!(sends(&fake).len(), 1);
    }

    #[test]
    fn a_chosen_queue_is_tried_once_and_must_exist() {
        let (fake, producer) = cluster(|_| fake::refusal(2, "busy"));
        let queue = |broker: &str, id| MessageQueue { topic: "T".into(), broker_name: broker.into(), queue_id: id };
        assert_eq!(producer.send_to(&Message::new("T", "x"), &queue("b", 1)).unwrap_err().code(), Some(2));
        assert_eq!(sends(&fake).len(), 1);
        assert_eq!((sends(&fake)[0].address.as_str(), sends(&fake)[0].field("e").as_str()), ("b:1", "1"));
        let text = producer.send_to(&Message::new("T", "x"), &queue("b", 2)).unwrap_err().to_string();
        assert!(text.contains("b:2") && text.contains("b:0-1"), "{text}");
    }

    #[test]
    fn a_sharding_key_always_means_the_same_queue() {
        let (_, producer) = cluster(stored);
        for key in ["a", "order-7", "标签"] {
            let first = producer.send_sharded(&Message::new("T", "x"), key).unwrap().queue;
            assert_eq!(producer.send_sharded(&Message::new("T", "y"), key).unwrap().queue, first);
        }
        // Math.abs("polygenelubricants".hashCode() % 7) in Java, whose hash is the smallest integer.
        assert_eq!(shard("polygenelubricants", 7), 2);
    }

    #[test]
    fn asynchronous_sends_retry_and_end_once() {
        let (fake, producer) = cluster(|call| if call.address == "a:1" { fake::refusal(2, "busy") } else { stored(call) });
        let (done, results) = crossbeam::channel::unbounded();
        for _ in 0..4 {
            let done = done.clone();
            producer.send_async(&Message::new("T", "x"), Box::new(move |result| done.send(result).unwrap()));
        }
        drop(done);
        let results: Vec<_> = results.iter().collect();
        assert_eq!(results.len(), 4);
        assert!(results.iter().all(|result| result.as_ref().is_ok_and(|receipt| receipt.queue.broker_name == "b")));
        assert!(sends(&fake).len() > 4, "some went to the busy broker first");
        let (done, results) = crossbeam::channel::unbounded();
        producer.send_async(&Message::new("a b", "x"), Box::new(move |result| done.send(result).unwrap()));
        assert!(matches!(results.recv().unwrap(), Err(ClientError::Invalid(_))));
    }

    #[test]
    fn a_batch_is_one_request_of_its_own_code() {
        let (fake, producer) = cluster(stored);
        let receipt = producer.send_batch(&[Message::new("T", "a"), Message::new("T", "b")]).unwrap();
        assert_eq!(receipt.message_id.split(',').count(), 2);
        let calls = fake.calls_of(request::SEND_BATCH_MESSAGE);
        assert_eq!((calls.len(), calls[0].field("m").as_str()), (1, "true"));
    }

    #[test]
    fn a_one_way_send_is_one_way() {
        let (fake, producer) = cluster(stored);
        producer.send_oneway(&Message::new("T", "a")).unwrap();
        assert!(sends(&fake)[0].oneway);
    }

    #[test]
    fn late_flushes_are_receipts_not_errors() {
        for (code, status) in [(10, SendStatus::FlushDiskTimeout), (11, SendStatus::SlaveNotAvailable), (12, SendStatus::FlushSlaveTimeout)]
        {
            let (_, producer) = cluster(move |_| {
                let header = [("msgId", "M"), ("queueId", "1"), ("queueOffset", "7")];
                fake::answer(code, Some("late"), &header, Vec::new())
            });
            let receipt = producer.send(&Message::new("T", "a")).unwrap();
            assert_eq!((receipt.status, receipt.queue.queue_id, receipt.queue_offset), (status, 1, 7));
        }
    }
}
