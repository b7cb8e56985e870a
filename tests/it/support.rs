//! A broker in a temporary folder, and what clients do, in a few words.

use std::sync::Arc;
use std::time::{Duration, Instant};

use petrel::broker::broker::Broker;
use petrel::common::message::MessageExt;
use petrel::common::properties;
use petrel::common::record::Record;
use petrel::common::sysflag;
use petrel::config::broker::BrokerConfig;
use petrel::net::client::{RemotingClient, RemotingClientConfig};
use petrel::remoting::command::{Body, OwnedCommand};
use petrel::remoting::ext::CustomHeader;
use petrel::remoting::header::pull::{PullMessageRequest, PullMessageResponse};
use petrel::runtime::clock::Clock;
use petrel::store::fs::{Fs, RealFs};

/// Longest time anything in these tests may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A broker, and a client connected to it.
pub struct TestBroker {
    pub broker: Option<Broker>,
    pub client: RemotingClient,
    pub config: BrokerConfig,
    _dir: tempfile::TempDir,
}

/// An answer's code, remark and message.
pub struct Answer {
    pub command: OwnedCommand,
}

impl Answer {
    pub fn code(&self) -> i32 {
        self.command.view().code
    }

    pub fn remark(&self) -> String {
        self.command.view().remark.unwrap_or_default().into_owned()
    }

    pub fn field(&self, name: &str) -> String {
        let view = self.command.view();
        let found = view.ext.text(name).map(std::borrow::Cow::into_owned);
        found.unwrap_or_else(|| panic!("field {name} is missing, code {} remark {:?}", self.code(), self.remark()))
    }

    pub fn number(&self, name: &str) -> i64 {
        self.field(name).parse().unwrap()
    }

    pub fn messages(&self) -> Vec<MessageExt> {
        let view = self.command.view();
        let mut rest = view.body;
        let mut out = Vec::new();
        while !rest.is_empty() {
            let record = Record::parse(rest).unwrap();
            record.check_crc().unwrap();
            rest = &rest[record.total_size..];
            out.push(MessageExt::from_record(&record));
        }
        out
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "remark: {:?}", self.remark());
        self
    }

    /// Expects a code and words of the remark.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) {
        let remark = self.remark();
        assert_eq!(self.code(), code, "remark: {remark:?}");
        for word in words {
            assert!(remark.contains(word), "{word:?} is missing in {remark:?}");
        }
    }
}

/// A send, with what most of them have in common.
#[derive(Clone)]
pub struct Send<'a> {
    pub code: i32,
    pub topic: &'a str,
    pub queue_id: i32,
    pub sys_flag: i32,
    pub properties: Vec<(&'a str, String)>,
    pub reconsume_times: i32,
    pub max_reconsume_times: Option<i32>,
    pub batch: bool,
    pub body: Vec<u8>,
}

impl<'a> Send<'a> {
    pub fn new(topic: &'a str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            code: 310,
            topic,
            queue_id: 0,
            sys_flag: 0,
            properties: Vec::new(),
            reconsume_times: 0,
            max_reconsume_times: None,
            batch: false,
            body: body.into(),
        }
    }

    pub fn queue(self, queue_id: i32) -> Self {
        Self { queue_id, ..self }
    }

    pub fn property(mut self, name: &'a str, value: impl Into<String>) -> Self {
        self.properties.push((name, value.into()));
        self
    }

    pub fn header(&self) -> Vec<(String, String)> {
        let mut text = String::new();
        for (name, value) in &self.properties {
            properties::push(&mut text, name, value);
        }
        let long = self.code == 10 || self.code == 324;
        let names = if long {
            ["producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag"]
        } else {
            ["a", "b", "c", "d", "e", "f", "g", "h"]
        };
        let queue_id = self.queue_id.to_string();
        let sys_flag = self.sys_flag.to_string();
        let values = ["test-producer", self.topic, "TBW102", "4", &queue_id, &sys_flag, "1700000000000", "7"];
        let mut fields: Vec<(String, String)> = names.iter().zip(values).map(|(n, v)| ((*n).to_owned(), v.to_owned())).collect();
        let mut more = |short: &str, name: &str, value: String| fields.push((if long { name } else { short }.to_owned(), value));
        more("i", "properties", text);
        more("j", "reconsumeTimes", self.reconsume_times.to_string());
        if let Some(max) = self.max_reconsume_times {
            more("l", "maxReconsumeTimes", max.to_string());
        }
        if self.batch {
            more("m", "batch", "true".to_owned());
        }
        fields
    }
}

/// A pull.
#[derive(Clone)]
pub struct Pull<'a> {
    pub group: &'a str,
    pub topic: &'a str,
    pub queue_id: i32,
    pub offset: i64,
    pub max: i32,
    pub suspend_ms: i64,
    pub tags: &'a str,
}

impl<'a> Pull<'a> {
    pub fn new(topic: &'a str, queue_id: i32, offset: i64) -> Self {
        Self { group: "test-group", topic, queue_id, offset, max: 32, suspend_ms: 0, tags: "*" }
    }

    pub fn header(&self) -> PullMessageRequest<'a> {
        PullMessageRequest {
            consumer_group: self.group.into(),
            topic: self.topic.into(),
            queue_id: self.queue_id,
            queue_offset: self.offset,
            max_msg_nums: self.max,
            sys_flag: sysflag::PULL_SUBSCRIPTION | if self.suspend_ms > 0 { sysflag::PULL_SUSPEND } else { 0 },
            suspend_timeout_millis: self.suspend_ms,
            subscription: Some(self.tags.into()),
            expression_type: Some("TAG".into()),
            ..PullMessageRequest::default()
        }
    }
}

impl TestBroker {
    pub fn start() -> Self {
        Self::with(|_| {})
    }

    pub fn with(adjust: impl FnOnce(&mut BrokerConfig)) -> Self {
        Self::on(RealFs::shared(), adjust)
    }

    pub fn on(fs: Arc<dyn Fs>, adjust: impl FnOnce(&mut BrokerConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = BrokerConfig::new(dir.path());
        config.bind_address = "127.0.0.1".parse().unwrap();
        config.listen_port = 0;
        config.store.commit_log_file_size = 32 << 20;
        config.store.index_slots = 5_000;
        config.store.index_entries = 20_000;
        adjust(&mut config);
        let broker = Broker::start_on(config.clone(), Clock::System, fs).unwrap();
        let client = RemotingClient::start(RemotingClientConfig::default()).unwrap();
        Self { broker: Some(broker), client, config, _dir: dir }
    }

    /// Stops in order and starts again on the same folder.
    pub fn restart(&mut self) {
        let unfinished = self.broker.take().unwrap().shutdown(PATIENCE);
        assert_eq!(unfinished, Vec::<String>::new());
        self.broker = Some(Broker::start(self.config.clone(), Clock::System).unwrap());
    }

    pub fn address(&self) -> String {
        self.broker.as_ref().unwrap().address().to_string()
    }

    pub fn fast_address(&self) -> String {
        let mut address = self.broker.as_ref().unwrap().address();
        address.set_port(address.port() - 2);
        address.to_string()
    }

    pub fn call(&self, code: i32, header: &(impl CustomHeader + ?Sized), body: impl Into<Body>) -> Answer {
        self.call_at(&self.address(), code, header, body)
    }

    pub fn call_at(&self, address: &str, code: i32, header: &(impl CustomHeader + ?Sized), body: impl Into<Body>) -> Answer {
        Answer { command: self.client.invoke(address, code, header, body.into(), PATIENCE).unwrap() }
    }

    pub fn send(&self, send: &Send<'_>) -> Answer {
        self.call(send.code, &send.header(), send.body.clone())
    }

    pub fn send_oneway(&self, send: &Send<'_>) {
        self.client.oneway(&self.address(), send.code, &send.header(), send.body.clone().into()).unwrap();
    }

    /// Sends without waiting; the answer comes by the channel.
    pub fn send_later(&self, send: &Send<'_>) -> crossbeam::channel::Receiver<Answer> {
        self.call_later(send.code, &send.header(), send.body.clone())
    }

    pub fn pull(&self, pull: &Pull<'_>) -> Answer {
        let answer = self.call(11, &pull.header(), Body::Empty);
        if [0, 19, 20, 21].contains(&answer.code()) {
            PullMessageResponse::decode(&answer.command.view()).unwrap(); // all four fields
        }
        answer
    }

    /// Pulls without waiting; the answer comes by the channel.
    pub fn pull_later(&self, pull: &Pull<'_>) -> crossbeam::channel::Receiver<Answer> {
        self.call_later(11, &pull.header(), Body::Empty)
    }

    pub fn call_later(
        &self, code: i32, header: &(impl CustomHeader + ?Sized), body: impl Into<Body>,
    ) -> crossbeam::channel::Receiver<Answer> {
        let (sender, receiver) = crossbeam::channel::bounded(1);
        let done = Box::new(move |result: Result<OwnedCommand, _>| sender.send(Answer { command: result.unwrap() }).unwrap());
        self.client.invoke_async(&self.address(), code, header, body.into(), PATIENCE, done);
        receiver
    }

    /// Pulls until `count` messages have come, from offset 0 on.
    pub fn consume(&self, topic: &str, queue_id: i32, count: usize) -> Vec<MessageExt> {
        let mut messages = Vec::new();
        let mut offset = 0;
        let deadline = Instant::now() + PATIENCE;
        while messages.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} messages of {topic} {queue_id} came", messages.len());
            let answer = self.pull(&Pull { offset, suspend_ms: 1_000, ..Pull::new(topic, queue_id, 0) });
            assert!([0, 19, 20].contains(&answer.code()), "code {} remark {:?}", answer.code(), answer.remark());
            offset = answer.number("nextBeginOffset");
            messages.extend(answer.messages());
        }
        messages
    }

    pub fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        let queue = queue_id.to_string();
        self.call(30, &[("topic", topic), ("queueId", &queue)], Body::Empty).expect(0).number("offset")
    }

    /// Waits until a queue's max offset is `expected`.
    pub fn await_max_offset(&self, topic: &str, queue_id: i32, expected: i64) {
        until(&format!("max offset {expected} of {topic} {queue_id}"), || self.max_offset(topic, queue_id) == expected);
    }
}

/// Waits until `condition` holds.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// A client's batch body.
pub fn batch_body(entries: &[(&[u8], &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (body, properties) in entries {
        let size = 22 + body.len() + properties.len();
        for word in [size as i32, 0, 0, 5, body.len() as i32] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(body);
        out.extend_from_slice(&(properties.len() as i16).to_be_bytes());
        out.extend_from_slice(properties.as_bytes());
    }
    out
}

/// A name server and a broker registered with it.
pub struct Cluster {
    broker: Option<Broker>,
    config: BrokerConfig,
    namesrv: petrel::namesrv::server::Namesrv,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut namesrv_config = petrel::config::namesrv::NamesrvConfig::new(dir.path());
        namesrv_config.bind_address = "127.0.0.1".parse().unwrap();
        namesrv_config.listen_port = 0;
        let namesrv = petrel::namesrv::server::Namesrv::start(namesrv_config, Clock::System).unwrap();
        let mut config = BrokerConfig::new(dir.path().join("store"));
        config.bind_address = "127.0.0.1".parse().unwrap();
        config.broker_ip1 = Some("127.0.0.1".to_owned());
        config.listen_port = 0;
        config.namesrv_addresses = vec![namesrv.address().to_string()];
        config.store.commit_log_file_size = 32 << 20;
        config.store.index_slots = 5_000;
        config.store.index_entries = 20_000;
        config.store.delay_levels_ms = vec![100, 150, 200, 250, 300, 350];
        let broker = Some(Self::broker(&config));
        Self { broker, config, namesrv, _dir: dir }
    }

    fn broker(config: &BrokerConfig) -> Broker {
        let broker = Broker::start(config.clone(), Clock::System).unwrap();
        assert_eq!(broker.register_now(), 1);
        broker
    }

    /// Stops the broker in order and starts it again on the same folder, perhaps on another port.
    pub fn restart_broker(&mut self) {
        let unfinished = self.broker.take().unwrap().shutdown(PATIENCE);
        assert_eq!(unfinished, Vec::<String>::new());
        self.broker = Some(Self::broker(&self.config));
    }

    pub fn namesrv(&self) -> String {
        self.namesrv.address().to_string()
    }

    pub fn broker_address(&self) -> String {
        self.broker.as_ref().unwrap().address().to_string()
    }

    pub fn client(&self) -> petrel::client::Client {
        petrel::client::Client::connect(&self.namesrv()).unwrap()
    }
}
