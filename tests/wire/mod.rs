//! What clients say to a broker in another process, in a few words.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::time::{Duration, Instant};

use petrel::common::record::Record;
use petrel::common::{properties, sysflag};
use petrel::net::client::{RemotingClient, RemotingClientConfig};
use petrel::net::connection::InvokeError;
use petrel::remoting::code::{request, response};
use petrel::remoting::command::{Body, OwnedCommand};
use petrel::remoting::header::pull::PullMessageRequest;

/// Longest time anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Queues of a topic made by its first send.
pub const QUEUES: i32 = 4;

/// A connection to a broker.
pub struct Wire {
    pub client: RemotingClient,
    pub address: String,
    /// Who pulls.
    pub group: &'static str,
}

/// An answer.
pub struct Answer(pub OwnedCommand);

/// A send.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub topic: String,
    pub queue_id: i32,
    pub body: String,
    pub properties: Vec<(&'static str, String)>,
}

/// What a pull brought.
#[derive(Debug, Default)]
pub struct Pulled {
    pub code: i32,
    pub remark: String,
    pub next: i64,
    pub min: i64,
    pub max: i64,
    /// Queue offset and body.
    pub messages: Vec<(i64, String)>,
}

impl Answer {
    pub fn code(&self) -> i32 {
        self.0.view().code
    }

    pub fn remark(&self) -> String {
        self.0.view().remark.unwrap_or_default().into_owned()
    }

    pub fn number(&self, name: &str) -> i64 {
        let view = self.0.view();
        let text = view.ext.text(name).unwrap_or_else(|| panic!("no field {name}: code {} remark {:?}", self.code(), self.remark()));
        text.parse().expect("a number")
    }

    /// Expects a code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "remark: {:?}", self.remark());
        self
    }

    /// Expects a code and words of the remark.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &[&str]) {
        let remark = self.remark();
        assert_eq!(self.code(), code, "remark: {remark:?}");
        for word in words {
            assert!(remark.contains(word), "{word:?} is missing in {remark:?}");
        }
    }
}

impl Message {
    pub fn new(topic: &str, queue_id: i32, body: impl Into<String>) -> Self {
        Self { topic: topic.to_owned(), queue_id, body: body.into(), properties: Vec::new() }
    }

    pub fn property(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.properties.push((name, value.into()));
        self
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.properties.iter().for_each(|(name, value)| properties::push(&mut text, name, value));
        text
    }

    /// Header of a send of this message, or of a batch like it.
    pub fn header(&self, batch: bool) -> Vec<(String, String)> {
        let text = if batch { String::new() } else { self.text() };
        let mut fields = vec![
            ("a", "fault-producer".to_owned()),
            ("b", self.topic.clone()),
            ("c", "TBW102".to_owned()),
            ("d", QUEUES.to_string()),
            ("e", self.queue_id.to_string()),
            ("f", "0".to_owned()),
            ("g", "1700000000000".to_owned()),
            ("h", "0".to_owned()),
            ("i", text),
            ("j", "0".to_owned()),
        ];
        if batch {
            fields.push(("m", "true".to_owned()));
        }
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Body of a batch.
pub fn batch_body(messages: &[Message]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        let text = message.text();
        let size = 22 + message.body.len() + text.len();
        for word in [size as i32, 0, 0, 0, message.body.len() as i32] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(message.body.as_bytes());
        out.extend_from_slice(&(text.len() as i16).to_be_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out
}

impl Wire {
    pub fn to(address: &str) -> Self {
        let client = RemotingClient::start(RemotingClientConfig::default()).expect("client");
        Self { client, address: address.to_owned(), group: "TOOLS_CONSUMER" }
    }

    pub fn try_call(&self, code: i32, fields: &Vec<(String, String)>, body: Vec<u8>) -> Result<Answer, InvokeError> {
        self.client.invoke(&self.address, code, fields, Body::Owned(body), PATIENCE).map(Answer)
    }

    #[track_caller]
    pub fn call(&self, code: i32, fields: &[(&str, &str)]) -> Answer {
        self.try_ask(code, fields).expect("an answer")
    }

    pub fn try_ask(&self, code: i32, fields: &[(&str, &str)]) -> Result<Answer, InvokeError> {
        self.client.invoke(&self.address, code, fields, Body::Empty, PATIENCE).map(Answer)
    }

    pub fn try_send(&self, message: &Message) -> Result<Answer, InvokeError> {
        self.try_call(request::SEND_MESSAGE_V2, &message.header(false), message.body.clone().into_bytes())
    }

    #[track_caller]
    pub fn send(&self, message: &Message) -> Answer {
        self.try_send(message).expect("an answer")
    }

    /// The messages go to the queue of the first.
    pub fn try_send_batch(&self, messages: &[Message]) -> Result<Answer, InvokeError> {
        self.try_call(request::SEND_BATCH_MESSAGE, &messages[0].header(true), batch_body(messages))
    }

    /// Pulls once.
    #[track_caller]
    pub fn pull(&self, topic: &str, queue_id: i32, offset: i64) -> Pulled {
        self.try_pull(topic, queue_id, offset).expect("a pull is answered")
    }

    pub fn try_pull(&self, topic: &str, queue_id: i32, offset: i64) -> Result<Pulled, InvokeError> {
        let header = PullMessageRequest {
            consumer_group: self.group.into(),
            topic: topic.into(),
            queue_id,
            queue_offset: offset,
            max_msg_nums: 32,
            sys_flag: sysflag::PULL_SUBSCRIPTION,
            subscription: Some("*".into()),
            ..PullMessageRequest::default()
        };
        let answer = Answer(self.client.invoke(&self.address, request::PULL_MESSAGE, &header, Body::Empty, PATIENCE)?);
        let mut pulled = Pulled { code: answer.code(), remark: answer.remark(), next: offset, ..Pulled::default() };
        if [response::SUCCESS, response::PULL_NOT_FOUND, response::PULL_RETRY_IMMEDIATELY, response::PULL_OFFSET_MOVED]
            .contains(&pulled.code)
        {
            pulled.next = answer.number("nextBeginOffset");
            pulled.min = answer.number("minOffset");
            pulled.max = answer.number("maxOffset");
        }
        let view = answer.0.view();
        let mut rest = if pulled.code == response::SUCCESS { view.body } else { &[] };
        while !rest.is_empty() {
            let record = Record::parse(rest).expect("a whole record");
            record.check_crc().expect("an undamaged record");
            assert_eq!((record.topic, record.queue_id), (topic, queue_id), "a message of another queue");
            pulled.messages.push((record.queue_offset, String::from_utf8(record.body.to_vec()).expect("text")));
            rest = &rest[record.total_size..];
        }
        Ok(pulled)
    }

    /// Every message of a queue from `from` on (or from its min offset, if that is behind), which must be dense; and the queue's min offset.
    #[track_caller]
    pub fn read_queue(&self, topic: &str, queue_id: i32, from: i64) -> (i64, Vec<(i64, String)>) {
        let mut found: Vec<(i64, String)> = Vec::new();
        let (mut offset, mut min) = (from, 0);
        loop {
            let pulled = self.pull(topic, queue_id, offset);
            min = min.max(pulled.min);
            match pulled.code {
                response::SUCCESS => {
                    for (at, body) in pulled.messages {
                        assert_eq!(at, offset, "{topic} {queue_id} has a hole");
                        found.push((at, body));
                        offset += 1;
                    }
                    assert_eq!(pulled.next, offset, "{topic} {queue_id} is not dense");
                }
                response::PULL_OFFSET_MOVED if found.is_empty() && offset < pulled.min => {
                    assert_eq!(pulled.next, pulled.min, "a pull of what was deleted goes on at the min offset");
                    offset = pulled.next;
                }
                response::PULL_OFFSET_MOVED | response::PULL_NOT_FOUND if offset >= pulled.max => return (min, found),
                code => panic!("pull of {topic} {queue_id} at {offset}: code {code} {:?} of {}..{}", pulled.remark, pulled.min, pulled.max),
            }
        }
    }

    pub fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.call(request::GET_MAX_OFFSET, &[("topic", topic), ("queueId", &queue_id.to_string())]).expect(0).number("offset")
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.client.shutdown();
    }
}

/// Waits until `condition` holds.
#[track_caller]
pub fn until(what: &str, patience: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
