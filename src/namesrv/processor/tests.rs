use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::topic::{DataVersion, TopicConfig};
use crate::remoting::body::register::register_body_json;
use crate::remoting::codec::{self, Head};
use crate::remoting::command::SerializeType;

use super::*;

/// A name server's processor in a folder of its own, and requests to it.
struct Fixture {
    folder: tempfile::TempDir,
    processor: Processor,
    clock: Clock,
}

impl Fixture {
    fn new(alter: impl FnOnce(&mut NamesrvConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let raw = RawConfig::new();
        let environment = |_: &str| None;
        let mut config = Resolver::new(&raw, &environment).namesrv(&folder.path().join("namesrv"), true);
        alter(&mut config);
        let clock = Clock::manual(1_000_000);
        Self { folder, processor: Processor::new(config, clock.clone()).unwrap(), clock }
    }

    fn ask(&self, code: i32, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        self.ask_from("127.0.0.1", 1, code, fields, body, 0)
    }

    fn ask_from(&self, local: &str, connection: u64, code: i32, fields: &[(&str, &str)], body: &[u8], version: i32) -> Answer {
        let mut frame = Vec::new();
        let head = Head { code, flag: 0, opaque: 7, remark: None, serialize_type: SerializeType::Json };
        codec::encode_head(&mut frame, &head, fields, body.len());
        frame.extend_from_slice(body);
        let mut command = Command::parse(&frame).unwrap();
        command.version = version;
        let origin = Origin { connection: ConnectionId(connection), viewer: Viewer::new(local.parse().unwrap()) };
        self.processor.answer(&command, origin)
    }

    fn register(&self, broker: &str, address: &str, topics: &[&str]) -> Answer {
        self.register_with(broker, address, topics, &[])
    }

    fn register_with(&self, broker: &str, address: &str, topics: &[&str], more: &[(&str, &str)]) -> Answer {
        static COUNTER: AtomicU64 = AtomicU64::new(1);
        let topics: Vec<_> = topics.iter().map(|topic| Arc::new(TopicConfig::new(*topic, 8, 6))).collect();
        let counter = COUNTER.fetch_add(1, Ordering::Relaxed) as i64;
        let body = register_body_json(&topics, &DataVersion { state_version: 0, counter, timestamp: 0 });
        let mut fields = identity(broker, address).to_vec();
        fields.push(("haServerAddr", "127.0.0.1:10912"));
        fields.extend_from_slice(more);
        self.ask(103, &fields, body.as_bytes())
    }
}

fn identity<'a>(broker: &'a str, address: &'a str) -> [(&'a str, &'a str); 4] {
    [("brokerName", broker), ("brokerAddr", address), ("clusterName", "DefaultCluster"), ("brokerId", "0")]
}

fn body(answer: &Answer) -> &str {
    match &answer.body {
        Body::Empty => "",
        Body::Owned(bytes) => std::str::from_utf8(bytes).unwrap(),
        Body::Shared(_) => panic!("a name server has no log"),
    }
}

fn field<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.header.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn remark(answer: &Answer) -> &str {
    answer.remark.as_deref().unwrap_or("")
}

#[test]
fn routes_in_both_dialects() {
    let ns = Fixture::new(|_| {});
    assert_eq!(ns.register("broker-a", "10.0.0.1:10911", &["T", "green"]).code, 0);
    let bare = r#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}"#;
    let standard = bare.replace("{0:", "{\"0\":");
    let topic = [("topic", "T")];
    assert_eq!(body(&ns.ask_from("127.0.0.1", 1, 105, &topic, b"", 400)), bare);
    assert_eq!(body(&ns.ask_from("127.0.0.1", 1, 105, &topic, b"", 401)), standard);
    assert_eq!(body(&ns.ask(105, &[("topic", "T"), ("acceptStandardJsonOnly", "true")], b"")), standard);
    let zone = [("topic", "T"), ("__ZONE_MODE", "true"), ("__ZONE_NAME", "east")];
    assert_eq!(ns.ask_from("127.0.0.1", 1, 105, &zone, b"", 513).code, 17);
    assert_eq!(
        body(&ns.ask(106, &[], b"")),
        r#"{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}"#
    );
    let missing = ns.ask(105, &[("topic", "none")], b"");
    assert_eq!(missing.code, 17);
    assert_eq!(
        remark(&missing),
        "No topic route info in name server for the topic: none\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    );
    let unnamed = ns.ask(105, &[], b"");
    assert_eq!((unnamed.code, remark(&unnamed)), (1, "the custom field <topic> is null"));
}

#[test]
fn each_client_is_told_an_address_that_works_for_it() {
    let ns = Fixture::new(|config| config.answer_local_address = true);
    let token = ns.processor.own_token().to_owned();
    ns.register_with("own", "127.0.0.1:10911", &["T", "U"], &[("__PETREL_OWN", &token)]);
    ns.register_with("stranger", "10.9.9.9:10911", &["T", "V"], &[("__PETREL_OWN", "guessed")]);
    let told = |local: &str| {
        let answer = ns.ask_from(local, 1, 105, &[("topic", "T")], b"", 0);
        let route = TopicRouteData::from_json(body(&answer)).unwrap();
        route.broker_datas.iter().map(|broker| broker.broker_addrs[&0].clone()).collect::<Vec<_>>()
    };
    assert_eq!(told("127.0.0.1"), ["127.0.0.1:10911", "10.9.9.9:10911"]);
    assert_eq!(told("10.0.0.5"), ["10.0.0.5:10911", "10.9.9.9:10911"]);
    assert_eq!(told("::ffff:192.168.0.5"), ["192.168.0.5:10911", "10.9.9.9:10911"]);
    assert!(body(&ns.ask_from("10.0.0.5", 1, 106, &[], b"", 0)).contains("10.0.0.5:10911"));
    let group = [("clusterName", "DefaultCluster"), ("brokerName", "own")];
    assert!(body(&ns.ask_from("10.0.0.5", 1, 901, &group, b"", 0)).contains("{0:\"10.0.0.5:10911\"}"));
    assert!(body(&ns.ask_from("10.0.0.5", 1, 304, &[], b"", 0)).starts_with("{\"brokerAddr\":\"10.0.0.5:10911\""));
    // A slave on another host is told where its master and the master's HA port are.
    let mut slave = identity("own", "10.0.0.7:10911").to_vec();
    slave[3] = ("brokerId", "1");
    let answer = ns.ask_from("10.0.0.5", 2, 103, &slave, b"", 0);
    assert_eq!(field(&answer, "masterAddr"), Some("10.0.0.5:10911"));
    assert_eq!(field(&answer, "haServerAddr"), Some("10.0.0.5:10912"));

    let plain = Fixture::new(|_| {});
    plain.register_with("own", "10.0.0.1:10911", &["T", "U"], &[("__PETREL_OWN", plain.processor.own_token())]);
    assert!(body(&plain.ask_from("10.0.0.5", 1, 105, &[("topic", "T")], b"", 0)).contains("10.0.0.1:10911"), "switched off");
}

#[test]
fn registrations_that_are_refused() {
    let ns = Fixture::new(|_| {});
    let single = ns.register("b", "10.0.0.1:1", &["T"]);
    assert_eq!(single.code, 1);
    assert!(remark(&single).starts_with("register broker failed"), "{}", remark(&single));
    let nameless = ns.ask(103, &[("brokerAddr", "a:1"), ("clusterName", "c"), ("brokerId", "0")], b"");
    assert_eq!((nameless.code, remark(&nameless)), (1, "the custom field <brokerName> is null"));
    let crc = ns.register_with("b", "10.0.0.1:1", &["T", "U"], &[("bodyCrc32", "5")]);
    assert!(crc.code == 1 && remark(&crc).starts_with("crc32 not match"), "{}", remark(&crc));
    let garbage = ns.ask(103, &identity("b", "10.0.0.1:1"), b"{\"topicConfigSerializeWrapper\":7}");
    assert_eq!(garbage.code, 1);
    assert!(!ns.processor.knows_broker("b"));
    // A body without topics is a broker that has none.
    assert_eq!(ns.ask(103, &identity("b", "10.0.0.1:1"), b"").code, 0);
    assert!(ns.processor.knows_broker("b"));
}

#[test]
fn addresses_that_are_no_host_and_port_are_refused() {
    let ns = Fixture::new(|_| {});
    for good in ["10.0.0.1:1", "mq-1.example_x.org:65535", "[::1]:10911", "[fe80::1%eth0]:10911", "fe80::1:10911"] {
        assert_eq!(ns.register("b", good, &["T", "U"]).code, 0, "{good}");
    }
    let long = format!("{}:1", "h".repeat(254));
    for bad in
        ["x", "a,b:1", "a b:1", "a\"b:1", ":1", "a:", "a:0", "a:65536", "a:+1", "a:1:2", "[::1,x]:1", "[::1%a,b]:1", "a:1;b:2", &long]
    {
        let answer = ns.register("bad", bad, &["T", "U"]);
        let start = format!("register broker failed: brokerAddr is {:?}, expected host:port, ", shorten(bad, 100));
        assert!(answer.code == 1 && remark(&answer).starts_with(&start), "{}", remark(&answer));
    }
    assert!(!ns.processor.knows_broker("bad"));
}

#[test]
fn illegal_topic_names_do_not_enter_the_route_table() {
    let ns = Fixture::new(|_| {});
    assert_eq!(ns.register("b", "10.0.0.1:1", &["a/b", "T", "%RETRY%g", "gr\u{fc}n", ""]).code, 0);
    assert_eq!(body(&ns.ask(206, &[], b"")), r#"{"topicList":["%RETRY%g","T"]}"#);
    let refused = ns.ask(217, &[("topic", "a/b")], b"{}");
    assert!(refused.code == 1 && remark(&refused).contains("topic[a/b] contains the illegal character '/'"), "{}", remark(&refused));
}

#[test]
fn key_values_are_bounded() {
    let ns = Fixture::new(|_| {});
    let answer = ns.ask(100, &[("namespace", "N"), ("key", "k"), ("value", &"v".repeat(65_537))], b"");
    assert_eq!((answer.code, remark(&answer)), (1, "the KV configuration was refused: the value has 65537 bytes, limit 65536"));
    assert_eq!(ns.ask(101, &[("namespace", "N"), ("key", "k")], b"").code, 22);
}

#[test]
fn compressed_registrations() {
    let ns = Fixture::new(|_| {});
    let piece = |text: &str| [&(text.len() as i32).to_be_bytes()[..], text.as_bytes()].concat();
    let plain = [
        piece("{\"counter\":1}"),
        2i32.to_be_bytes().to_vec(),
        piece("T1 4 4 6 SINGLE_TAG {}"),
        piece("T2 4 4 6 SINGLE_TAG {}"),
        piece("[]"),
    ]
    .concat();
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut encoder, &plain).unwrap();
    let bytes = encoder.finish().unwrap();
    let crc = body_crc32(&bytes).to_string();
    let mut fields = identity("b", "10.0.0.1:1").to_vec();
    fields.extend([("compressed", "false"), ("bodyCrc32", &*crc)]);
    let answer = ns.ask(103, &fields, &bytes);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(body(&ns.ask(206, &[], b"")), r#"{"topicList":["T1","T2"]}"#);
}

#[test]
fn versions_and_heartbeats() {
    let ns = Fixture::new(|_| {});
    let me = identity("b", "10.0.0.1:1");
    let unknown = ns.ask(322, &me, b"{\"counter\":1}");
    assert_eq!((unknown.code, field(&unknown, "changed"), body(&unknown)), (0, Some("true"), ""));
    let told = DataVersion { state_version: 0, counter: 5, timestamp: 9 };
    let topics = [Arc::new(TopicConfig::new("T", 4, 6)), Arc::new(TopicConfig::new("U", 4, 6))];
    ns.ask(103, &me, register_body_json(&topics, &told).as_bytes());
    let version = r#"{"counter":5,"stateVersion":0,"timestamp":9}"#;
    let same = ns.ask(322, &me, version.as_bytes());
    assert_eq!((field(&same, "changed"), body(&same)), (Some("false"), version));
    assert_eq!(field(&ns.ask(322, &me, b"{\"counter\":6}"), "changed"), Some("true"));
    // 904 and 322 keep the broker alive; silence does not.
    ns.clock.advance(120_000);
    assert_eq!(ns.ask(904, &me[..3], b"").code, 0);
    ns.clock.advance(120_000);
    ns.processor.expire();
    assert!(ns.processor.knows_broker("b"));
    ns.clock.advance(1);
    ns.processor.expire();
    assert!(!ns.processor.knows_broker("b"));
}

#[test]
fn leaving() {
    let ns = Fixture::new(|_| {});
    ns.register("b", "10.0.0.1:1", &["T", "U"]);
    ns.processor.connection_closed(ConnectionId(99));
    assert!(ns.processor.knows_broker("b"));
    assert_eq!(ns.ask(104, &identity("b", "10.0.0.1:1"), b"").code, 0);
    assert_eq!(body(&ns.ask(206, &[], b"")), r#"{"topicList":[]}"#);
    ns.register("b", "10.0.0.1:1", &["T", "U"]);
    ns.processor.connection_closed(ConnectionId(1));
    assert!(!ns.processor.knows_broker("b"));
    assert_eq!(ns.ask(104, &identity("b", "10.0.0.1:1"), b"").code, 0, "twice is harmless");
}

#[test]
fn write_permissions() {
    let ns = Fixture::new(|_| {});
    ns.register("b", "10.0.0.1:1", &["T", "U"]);
    assert_eq!(field(&ns.ask(205, &[("brokerName", "b")], b""), "wipeTopicCount"), Some("2"));
    assert!(body(&ns.ask(105, &[("topic", "T")], b"")).contains("\"perm\":4"));
    assert_eq!(field(&ns.ask(327, &[("brokerName", "b")], b""), "addTopicCount"), Some("2"));
    assert!(body(&ns.ask(105, &[("topic", "T")], b"")).contains("\"perm\":6"));
    assert_eq!(field(&ns.ask(205, &[("brokerName", "x")], b""), "wipeTopicCount"), Some("0"));
    assert_eq!(ns.ask(205, &[], b"").code, 1);
}

#[test]
fn topics_and_lists() {
    let ns = Fixture::new(|_| {});
    ns.register("b", "10.0.0.1:1", &["T", "U"]);
    assert_eq!(body(&ns.ask(224, &[("cluster", "DefaultCluster")], b"")), r#"{"topicList":["T","U"]}"#);
    assert_eq!(body(&ns.ask(224, &[("cluster", "x")], b"")), r#"{"topicList":[]}"#);
    assert_eq!(body(&ns.ask(304, &[], b"")), r#"{"brokerAddr":"10.0.0.1:1","topicList":["DefaultCluster","b"]}"#);
    for code in [311, 312, 313] {
        assert_eq!(body(&ns.ask(code, &[], b"")), r#"{"topicList":[]}"#);
    }
    let route = r#"{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":2,"topicSysFlag":1,"writeQueueNums":2}],"brokerDatas":[]}"#;
    assert_eq!(ns.ask(217, &[("topic", "N")], route.as_bytes()).code, 0);
    assert_eq!(body(&ns.ask(311, &[], b"")), r#"{"topicList":["N"]}"#);
    assert_eq!(ns.ask(216, &[("topic", "N"), ("clusterName", "x")], b"").code, 0);
    assert_eq!(ns.ask(105, &[("topic", "N")], b"").code, 0);
    assert_eq!(ns.ask(216, &[("topic", "N")], b"").code, 0);
    assert_eq!(ns.ask(105, &[("topic", "N")], b"").code, 17);

    let off = Fixture::new(|config| (config.enable_topic_list, config.enable_all_topic_list) = (false, false));
    for code in [206, 224, 304, 311, 312, 313] {
        let answer = off.ask(code, &[("cluster", "c")], b"");
        assert_eq!((answer.code, remark(&answer)), (1, "disable"), "{code}");
    }
}

#[test]
fn kv_and_order_configuration() {
    let ns = Fixture::new(|config| config.order_message_enable = true);
    let missing = ns.ask(101, &[("namespace", "N"), ("key", "k")], b"");
    assert_eq!((missing.code, remark(&missing)), (22, "No config item, Namespace: N Key: k"));
    let missing = ns.ask(219, &[("namespace", "N")], b"");
    assert_eq!((missing.code, remark(&missing)), (22, "No config item, Namespace: N"));
    let put = |key: &str, value: &str| ns.ask(100, &[("namespace", ORDER_TOPIC_CONFIG), ("key", key), ("value", value)], b"").code;
    assert_eq!(put("T", "b:4"), 0);
    assert_eq!(put("U", "malformed"), 0);
    assert_eq!(ns.ask(100, &[("namespace", "N"), ("key", "k")], b"").code, 1, "no value");
    let answer = ns.register("b", "10.0.0.1:1", &["T", "U"]);
    assert_eq!(body(&answer), r#"{"table":{"T":"b:4","U":"malformed"}}"#);
    assert!(body(&ns.ask(105, &[("topic", "T")], b"")).contains(r#""orderTopicConf":"b:4""#));
    assert!(!body(&ns.ask(105, &[("topic", "U")], b"")).contains("orderTopicConf"), "clients would throw");
    assert_eq!(field(&ns.ask(101, &[("namespace", ORDER_TOPIC_CONFIG), ("key", "T")], b""), "value"), Some("b:4"));
    assert_eq!(ns.ask(102, &[("namespace", ORDER_TOPIC_CONFIG), ("key", "U")], b"").code, 0);
    assert_eq!(body(&ns.ask(219, &[("namespace", ORDER_TOPIC_CONFIG)], b"")), r#"{"table":{"T":"b:4"}}"#);
    assert!(ns.folder.path().join("namesrv/kvConfig.json").exists());

    let off = Fixture::new(|config| config.return_order_topic_config = false);
    off.ask(100, &[("namespace", ORDER_TOPIC_CONFIG), ("key", "T"), ("value", "b:4")], b"");
    assert_eq!(body(&off.register("b", "10.0.0.1:1", &["T", "U"])), "");
    assert!(!body(&off.ask(105, &[("topic", "T")], b"")).contains("orderTopicConf"));
}

#[test]
fn configuration_at_run_time() {
    let ns = Fixture::new(|_| {});
    let text = |ns: &Fixture| body(&ns.ask(319, &[], b"")).to_owned();
    assert!(text(&ns).contains("\norderMessageEnable=false\n"), "{}", text(&ns));
    assert!(!ns.processor.config().order_message_enable);
    assert_eq!(ns.ask(318, &[], b"orderMessageEnable=true\nnoSuchKey=1\n").code, 0);
    assert!(text(&ns).contains("orderMessageEnable=true\n") && !text(&ns).contains("noSuchKey"));
    assert!(ns.processor.config().order_message_enable);
    let file = ns.folder.path().join("namesrv/namesrv.properties");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "orderMessageEnable=true\n");

    for key in ["kvConfigPath", "configStorePath", "configBlackList"] {
        let answer = ns.ask(318, &[], format!("{key}=/x\norderMessageEnable=false").as_bytes());
        assert_eq!((answer.code, remark(&answer)), (16, "Can not update config in black list."));
    }
    let bad = ns.ask(318, &[], b"enableTopicList=false\norderMessageEnable=perhaps\n");
    assert!(bad.code == 1 && remark(&bad).contains("orderMessageEnable=perhaps"), "{}", remark(&bad));
    assert!(ns.processor.config().enable_topic_list, "all or nothing");
    let later = ns.ask(318, &[], b"scanNotActiveBrokerInterval=7000\n");
    assert_eq!((later.code, remark(&later)), (0, "takes effect at the next start: scanNotActiveBrokerInterval"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "orderMessageEnable=true\nscanNotActiveBrokerInterval=7000\n");
    assert_eq!(ns.ask(318, &[], b"x=\\u00zz").code, 1);
}

#[test]
fn a_name_server_that_waits_for_its_brokers() {
    let ns = Fixture::new(|config| config.need_wait_for_service = true);
    ns.register("b", "10.0.0.1:1", &["T", "U"]);
    let answer = ns.ask(105, &[("topic", "T")], b"");
    assert_eq!((answer.code, remark(&answer)), (1, "name server not ready"));
    let ready = Fixture::new(|config| (config.need_wait_for_service, config.wait_seconds_for_service) = (true, 0));
    ready.register("b", "10.0.0.1:1", &["T", "U"]);
    assert_eq!(ready.ask(105, &[("topic", "T")], b"").code, 0);
}

#[test]
fn waiting_for_a_broker() {
    let ns = Fixture::new(|_| {});
    assert!(!ns.processor.wait_for_broker("b", Duration::ZERO));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ns.processor.wait_for_broker("b", Duration::from_secs(30)));
        ns.register("other", "10.0.0.2:1", &["T", "U"]);
        ns.register("b", "10.0.0.1:1", &["T", "U"]);
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn every_code_that_is_placed_is_answered() {
    let ns = Fixture::new(|_| {});
    for code in 0..4_000 {
        if placement(code) != Placement::Unknown {
            assert_ne!(ns.ask(code, &[], b"").code, 3, "{code}");
        }
    }
    for code in [10, 34, 905, 1_001] {
        assert_eq!(placement(code), Placement::Unknown);
    }
}

#[test]
fn order_configurations() {
    for (conf, expected) in [("b:4", true), ("b:4;c:8", true), ("", false), ("b", false), ("b:4;", false), (":4", false), ("b:x", false)] {
        assert_eq!(is_order_conf(conf), expected, "{conf}");
    }
}
