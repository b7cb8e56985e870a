use super::*;

fn raw(lines: &[&str]) -> RawConfig {
    let mut raw = RawConfig::new();
    for (at, line) in lines.iter().enumerate() {
        let (key, value) = line.split_once('=').unwrap();
        raw.put(key, value, Source::File("b.conf".into(), at + 1));
    }
    raw
}

fn no_environment(_: &str) -> Option<String> {
    None
}

fn broker(lines: &[&str]) -> (BrokerConfig, Findings) {
    let raw = raw(lines);
    let mut resolver = Resolver::new(&raw, &no_environment);
    let config = resolver.broker(Path::new("data"));
    (config, resolver.finish(false))
}

fn namesrv(lines: &[&str]) -> (NamesrvConfig, Findings) {
    let raw = raw(lines);
    let mut resolver = Resolver::new(&raw, &no_environment);
    let config = resolver.namesrv(Path::new("ns"), true);
    (config, resolver.finish(false))
}

#[test]
fn nothing_given_is_the_defaults() {
    let (config, findings) = broker(&[]);
    assert_eq!(findings, Findings::default());
    let plain = BrokerConfig { broker_name: host::host_name(), all: config.all.clone(), ..BrokerConfig::new("data") };
    assert_eq!(format!("{config:?}"), format!("{plain:?}"), "defaults of the resolver and of `new` are the same");
    for (key, value) in [
        ("flushDiskType", "SYNC_FLUSH"),
        ("listenPort", "10911"),
        ("storePathRootDir", "data"),
        ("brokerRole", "ASYNC_MASTER"),
        ("transactionTimeOut", "6000"),
        ("diskMaxUsedSpaceRatio", "75"),
    ] {
        assert_eq!(config.all.get(key).map(String::as_str), Some(value), "{key}");
    }
    let (config, findings) = namesrv(&[]);
    assert_eq!(findings, Findings::default());
    assert_eq!(config.kv_config_path, Path::new("ns/kvConfig.json"));
    assert_eq!(config.listen_port, 9876);
    assert!(!config.all.contains_key("brokerName"));
}

#[test]
fn a_files_values() {
    let (config, findings) = broker(&[
        "brokerClusterName=c1",
        "brokerName=b1",
        "listenPort=30911",
        "haListenPort=0",
        "flushDiskType=async_flush",
        "deleteWhen=04;16",
        "fileReservedTime=48",
        "namesrvAddr=10.0.0.1:9876; 10.0.0.2:9876;",
        "autoCreateTopicEnable=FALSE",
        "mappedFileSizeConsumeQueue=5999990",
        "messageDelayLevel=1s 1m",
        "diskMaxUsedSpaceRatio=99",
        "brokerIP1=10.0.0.3",
        "registerNameServerPeriod=1000",
        "bindAddress=::",
        "diskFreeReserveBytes=1000000",
        "allowEmptyConfigOnCorruption=true",
    ]);
    assert!(config.allow_empty_config_on_corruption);
    assert!(findings.errors.is_empty() && findings.refusals.is_empty(), "{findings:?}");
    assert_eq!((config.cluster_name.as_str(), config.broker_name.as_str(), config.listen_port), ("c1", "b1", 30911));
    assert_eq!(config.ha_listen_port, None);
    assert_eq!(config.store.flush_disk_type, FlushDiskType::Async);
    assert_eq!(config.store.delete_when_hours, [4, 16]);
    assert_eq!(config.store.file_reserved_hours, 48);
    assert_eq!(config.namesrv_addresses, ["10.0.0.1:9876", "10.0.0.2:9876"]);
    assert!(!config.auto_create_topic);
    assert_eq!(config.store.consume_queue_file_size, 6_000_000);
    assert_eq!(config.store.delay_levels_ms, [1_000, 60_000]);
    assert_eq!(config.store.disk_max_used_ratio, Some(75));
    assert_eq!(config.broker_ip1.as_deref(), Some("10.0.0.3"));
    assert_eq!(config.register_period_ms, 10_000);
    assert!(config.bind_address.is_ipv6());
    assert_eq!(config.store.disk_free_reserve, Some(1_000_000));
    assert_eq!(findings.warnings.len(), 1, "{:?}", findings.warnings);
}

#[test]
fn all_errors_at_once() {
    let (_, findings) = broker(&[
        "listenPort=abc",
        "brokerPermission=99",
        "autoCreateTopicEnable=yes",
        "flushDiskType=SOMETIMES",
        "messageDelayLevel=1s 2x",
        "transactionTimeOut=soon",
        "bindAddress=localhost",
        "brokerName=",
        "deleteWhen=24",
        "namesrvAddr=host:99999",
    ]);
    assert_eq!(findings.errors.len(), 10, "{:#?}", findings.errors);
    let has = |text: &str| assert!(findings.errors.iter().any(|error| error.contains(text)), "{text}: {:#?}", findings.errors);
    has("b.conf:1: listenPort=abc: expected a 32-bit integer from 0 to 65535");
    has("autoCreateTopicEnable=yes: expected true or false");
    has("flushDiskType=SOMETIMES: expected SYNC_FLUSH or ASYNC_FLUSH");
    has("b.conf:6: transactionTimeOut=soon: expected a 64-bit integer");
}

#[test]
fn names_of_brokers_and_clusters_separate_nothing() {
    for name in ["broker-a", "B_1.x|y%z", "host.example.org", "生产-1", "a/b(c)", "x@y"] {
        for key in ["brokerName", "brokerClusterName"] {
            assert_eq!(broker(&[&format!("{key}={name}")]).1, Findings::default(), "{key}={name}");
        }
    }
    for name in ["a b", "a;b", "a:1", "a,b", "a\"b", "it's", "a\tb", "a\u{0}b", "a\u{a0}b"] {
        for key in ["brokerName", "brokerClusterName"] {
            for lenient in ["lenientConfig=false", "lenientConfig=true"] {
                let (_, findings) = broker(&[&format!("{key}={name}"), lenient]);
                let [error] = &findings.errors[..] else { panic!("{key}={name:?}: {findings:?}") };
                let start = format!("b.conf:1: {key}={}: ", name.escape_debug());
                assert!(error.starts_with(&start) && error.contains("not allowed") && error.lines().count() == 1, "{error}");
            }
        }
    }
}

#[test]
fn lenient_keeps_the_defaults() {
    let (config, findings) = broker(&["lenientConfig=true", "listenPort=abc", "brokerRole=MASTER"]);
    assert!(findings.errors.is_empty(), "{:?}", findings.errors);
    assert_eq!(findings.warnings.len(), 2, "{:?}", findings.warnings);
    assert_eq!((config.listen_port, config.broker_role), (10911, BrokerRole::AsyncMaster));
}

#[test]
fn unknown_and_unused_keys() {
    let lines = ["brokerNmae=x", "sendMessageThreadPoolNums=128", "transactionTimeOut=6000", "storePathIndex=/x", "rocketmqHome=/opt"];
    let (config, findings) = broker(&lines);
    assert!(findings.errors.is_empty());
    assert_eq!(
        findings.warnings,
        [
            "b.conf:1: unknown key brokerNmae, nearest known key brokerName",
            "b.conf:2: sendMessageThreadPoolNums=128 has no effect here",
            "b.conf:4: storePathIndex is no key of RocketMQ 5 and has no effect",
        ]
    );
    assert_eq!(config.all.get("brokerNmae").map(String::as_str), Some("x"), "unknown keys are kept");

    let raw = raw(&lines);
    let mut resolver = Resolver::new(&raw, &no_environment);
    resolver.broker(Path::new("data"));
    assert_eq!(resolver.finish(true).errors.len(), 1, "strict");

    let mut raw = RawConfig::new();
    raw.set("brokerNmae=x").unwrap();
    let mut resolver = Resolver::new(&raw, &no_environment);
    resolver.broker(Path::new("data"));
    assert_eq!(resolver.finish(false).errors, ["--set: unknown key brokerNmae, nearest known key brokerName"]);
}

#[test]
fn what_must_not_be_ignored_is_refused() {
    for line in [
        "brokerRole=SLAVE",
        "enableDLegerCommitLog=true",
        "storeType=defaultRocksDB",
        "authenticationEnabled=true",
        "enableControllerMode=true",
    ] {
        let (_, findings) = broker(&[line]);
        assert_eq!(findings.refusals.len(), 1, "{line}: {findings:?}");
        assert!(findings.errors.is_empty(), "{line}: {findings:?}");
    }
    assert_eq!(namesrv(&["enableControllerInNamesrv=true"]).1.refusals.len(), 1);
    let (config, findings) = broker(&["brokerId=-1", "brokerRole=SLAVE", "enableControllerMode=true", "controllerAddr=127.0.0.1:9878"]);
    assert!(findings.errors.is_empty(), "{findings:?}");
    assert_eq!(config.broker_id, -1);
    assert_eq!(broker(&["brokerId=-1"]).1.errors.len(), 1);
}

#[test]
fn a_masters_id_is_0() {
    let (config, findings) = broker(&["brokerId=3"]);
    assert_eq!(config.broker_id, 0);
    assert_eq!(findings.warnings.len(), 1);
}

#[test]
fn the_environment() {
    let raw = RawConfig::new();
    let environment = |name: &str| match name {
        "NAMESRV_ADDR" => Some("ns1;ns2:9877".to_owned()),
        "ROCKETMQ_BROKER_DISKSPACEWARNINGLEVELRATIO" => Some("0.8".to_owned()),
        _ => None,
    };
    let mut resolver = Resolver::new(&raw, &environment);
    let config = resolver.broker(Path::new("data"));
    assert_eq!(config.namesrv_addresses, ["ns1:9876", "ns2:9877"]);
    assert_eq!(config.store.disk_warning_ratio, Some(80));
    assert!(resolver.finish(false).errors.is_empty());

    let mut raw = RawConfig::new();
    raw.set("namesrvAddr=other:1").unwrap();
    assert_eq!(Resolver::new(&raw, &environment).broker(Path::new("data")).namesrv_addresses, ["other:1"], "a key wins");
}

#[test]
fn one_text_for_both_roles() {
    let raw = raw(&["listenPort=1000", "orderMessageEnable=true", "brokerName=b"]);
    let mut resolver = Resolver::new(&raw, &no_environment);
    let broker = resolver.broker(Path::new("data"));
    let namesrv = resolver.namesrv(Path::new("ns"), false);
    assert_eq!((broker.listen_port, namesrv.listen_port), (1000, 9876));
    assert!(namesrv.order_message_enable);
    assert_eq!(resolver.finish(false), Findings::default());
    assert!(!broker.all.contains_key("orderMessageEnable") && !namesrv.all.contains_key("brokerName"));
}

#[test]
fn name_server_lists() {
    assert_eq!(parse_name_servers("a:1;a:1; [::1]:2;").unwrap(), ["a:1", "[::1]:2"]);
    assert!(parse_name_servers(" ").unwrap().is_empty());
    assert!(parse_name_servers("a:b").is_err());
}

/// The samples, as they are and with every commented line in force: the defaults they show are the defaults.
#[test]
fn samples_load_and_tell_the_truth() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    for (name, is_broker) in [("broker.conf", true), ("namesrv.conf", false)] {
        let mut raw = RawConfig::new();
        raw.read_file(&folder.join(name)).unwrap();
        let mut resolver = Resolver::new(&raw, &no_environment);
        let all = if is_broker { resolver.broker(Path::new("data")).all } else { resolver.namesrv(Path::new("ns"), true).all };
        assert_eq!(resolver.finish(true), Findings::default(), "{name}");
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        // Not defaults: examples of what has none.
        let examples = ["namesrvAddr", "brokerIP1", "storePathRootDir", "kvConfigPath", "netThreads", "workThreads"];
        let shown = text.lines().filter_map(|line| line.strip_prefix('#')?.split_once('=')).filter(|(key, _)| !key.contains(' '));
        for (key, value) in shown {
            assert!(keys::is_known(key), "{name}: {key}");
            if !examples.contains(&key) {
                assert_eq!(all.get(key).map(String::as_str), Some(value), "{name}: {key}");
            }
        }
    }
}

#[test]
fn javas_files_load() {
    for lines in [
        &[
            "brokerClusterName = DefaultCluster",
            "brokerName = broker-a",
            "brokerId = 0",
            "deleteWhen = 04",
            "fileReservedTime = 48",
            "brokerRole = ASYNC_MASTER",
            "flushDiskType = ASYNC_FLUSH",
        ][..],
        &[
            "brokerClusterName=DefaultCluster",
            "brokerName=broker-a",
            "brokerId=1",
            "deleteWhen=04",
            "fileReservedTime=48",
            "brokerRole=SLAVE",
            "flushDiskType=ASYNC_FLUSH",
        ],
        &[
            "brokerId=0",
            "brokerRole=SYNC_MASTER",
            "flushDiskType=SYNC_FLUSH",
            "storePathRootDir=/tmp/rmqstore/node00",
            "storePathCommitLog=/tmp/rmqstore/node00/commitlog",
            "listenPort=30911",
            "enableDLegerCommitLog=true",
            "dLegerGroup=RaftNode00",
            "dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912",
            "dLegerSelfId=n0",
            "sendMessageThreadPoolNums=16",
        ],
        &[
            "brokerId=-1",
            "brokerRole=SLAVE",
            "enableControllerMode=true",
            "controllerAddr=127.0.0.1:9878",
            "allAckInSyncStateSet=true",
            "storePathEpochFile=/tmp/e",
            "namesrvAddr=127.0.0.1:9876",
            "syncFromLastFile=true",
        ],
    ] {
        let (_, findings) = broker(lines);
        assert!(findings.errors.is_empty(), "{findings:?}");
    }
    let (_, findings) = namesrv(&["controllerDLegerGroup=group1", "controllerDLegerPeers=n0-127.0.0.1:9878", "controllerDLegerSelfId=n0"]);
    assert!(findings.errors.is_empty(), "{findings:?}");
}

#[test]
fn recovery_reads_batches_unless_the_environment_says_false() {
    let optimized = |text: Option<&'static str>| {
        let environment = |name: &str| text.filter(|_| name == "ROCKETMQ_USE_OPTIMIZED_RECOVERY").map(str::to_owned);
        Resolver::new(&raw(&[]), &environment).broker(Path::new("data")).store.optimized_recovery
    };
    for text in [None, Some("true"), Some(""), Some("0"), Some("no"), Some("FALSE"), Some(" false"), Some("garbage")] {
        assert!(optimized(text), "{text:?}");
    }
    assert!(!optimized(Some("false")));
}

#[test]
fn the_log_may_lie_on_several_paths() {
    let paths = |splitter: Option<&'static str>, lines: &[&str]| {
        let environment = |name: &str| splitter.filter(|_| name == "ROCKETMQ_BROKER_MULTIPATHSPLITTER").map(str::to_owned);
        let raw = raw(lines);
        let store = Resolver::new(&raw, &environment).broker(Path::new("data")).store;
        (store.writable_commit_log_folders(), store.read_only_commit_log_paths)
    };
    let all = |paths: &[&str]| paths.iter().map(std::path::PathBuf::from).collect::<Vec<_>>();
    assert_eq!(paths(None, &[]), (all(&["data/commitlog"]), all(&[])));
    assert_eq!(paths(None, &["storePathCommitLog=/b, /a,"]), (all(&["/a", "/b"]), all(&[])), "ascending");
    assert_eq!(paths(Some(":"), &["storePathCommitLog=/a,b:/c"]), (all(&["/a,b", "/c"]), all(&[])));
    let lines = ["storePathCommitLog=/a,/b,/c", "readOnlyCommitLogStorePaths=/b,/old"];
    assert_eq!(paths(None, &lines), (all(&["/a", "/c"]), all(&["/b", "/old"])));
}

#[test]
fn what_a_start_does_with_a_damaged_store_can_be_told() {
    let (config, findings) = broker(&[]);
    let store = &config.store;
    assert!(store.allow_empty_commit_log && !store.allow_commit_log_hole && !store.append_record_crc && !store.force_record_crc);
    assert_eq!(findings, Findings::default());
    let lines = ["allowEmptyCommitLog=false", "allowCommitLogHole=true", "enabledAppendPropCRC=true", "forceVerifyPropCRC=true"];
    let (config, findings) = broker(&lines);
    let store = &config.store;
    assert!(!store.allow_empty_commit_log && store.allow_commit_log_hole && store.append_record_crc && store.force_record_crc);
    assert_eq!(findings, Findings::default());
}
