use super::*;

fn home(name: &str) -> Option<String> {
    (name == "HOME").then(|| "/home/x".to_owned())
}

const SERVER: Manner = Manner { broker: true, namesrv: true, java: false };
const BROKER: Manner = Manner { broker: true, namesrv: false, java: false };
const NAMESRV: Manner = Manner { broker: false, namesrv: true, java: false };

fn plan(manner: Manner, common: &CommonArgs, options: &BrokerOptions, namesrv_port: Option<u16>) -> Result<Plan, Vec<String>> {
    Planner::new(common, manner)?.plan(options, namesrv_port, &home)
}

fn ports(common: &CommonArgs, options: &BrokerOptions, namesrv_port: Option<u16>) -> (u16, u16) {
    let plan = plan(SERVER, common, options, namesrv_port).unwrap();
    (plan.broker.unwrap().listen_port, plan.namesrv.unwrap().listen_port)
}

fn set(values: &[&str]) -> CommonArgs {
    CommonArgs { set: values.iter().map(|value| (*value).to_owned()).collect(), ..CommonArgs::default() }
}

#[test]
fn ports_of_a_server() {
    let none = CommonArgs::default();
    let port = |port| BrokerOptions { port, ..BrokerOptions::default() };
    let ephemeral = |port| BrokerOptions { port, ephemeral: true, ..BrokerOptions::default() };
    assert_eq!(ports(&none, &port(None), None), (10911, 9876));
    assert_eq!(ports(&none, &port(Some(7)), None), (7, 9876));
    assert_eq!(ports(&none, &port(Some(0)), None), (0, 0));
    assert_eq!(ports(&none, &port(Some(0)), Some(5)), (0, 5));
    assert_eq!(ports(&none, &ephemeral(None), None), (0, 0));
    assert_eq!(ports(&none, &ephemeral(Some(7)), Some(5)), (7, 5));
    assert_eq!(ports(&set(&["listenPort=8"]), &ephemeral(None), None), (8, 0));
    assert_eq!(ports(&set(&["listenPort=8"]), &port(None), None), (8, 9876), "the key is the broker's");
    assert_eq!(ports(&set(&["listenPort=8"]), &port(Some(9)), None), (9, 9876), "the option wins");
    let namesrv = plan(NAMESRV, &set(&["listenPort=8"]), &port(None), None).unwrap().namesrv.unwrap();
    assert_eq!(namesrv.listen_port, 8);
    assert_eq!(namesrv.all.get("listenPort").map(String::as_str), Some("8"));
}

#[test]
fn store_folders() {
    let root = |manner, common: &CommonArgs, store: Option<&str>| {
        let options = BrokerOptions { store: store.map(PathBuf::from), ..BrokerOptions::default() };
        plan(manner, common, &options, None).unwrap().broker.unwrap().store.root
    };
    let none = CommonArgs::default();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "brokerName=b\n").unwrap();
    let with_file = CommonArgs { config: Some(file), ..CommonArgs::default() };
    assert_eq!(root(SERVER, &none, None), absolute(Path::new("petrel-data")));
    assert_eq!(root(SERVER, &with_file, None), Path::new("/home/x/store"), "where the reference has it");
    assert_eq!(root(BROKER, &set(&["storePathRootDir=/a"]), None), Path::new("/a"));
    assert_eq!(root(BROKER, &set(&["storePathRootDir=/a"]), Some("/b")), Path::new("/b"));
    assert_eq!(root(Manner { java: true, ..BROKER }, &none, None), Path::new("/home/x/store"));

    let namesrv = |manner| plan(manner, &none, &BrokerOptions::default(), None).unwrap().namesrv.unwrap();
    assert_eq!(namesrv(SERVER).kv_config_path, absolute(Path::new("petrel-data/namesrv/kvConfig.json")));
    assert_eq!(namesrv(Manner { java: true, ..NAMESRV }).kv_config_path, Path::new("/home/x/namesrv/kvConfig.json"));
}

#[test]
fn ephemeral_data_stay_together() {
    let options = BrokerOptions { ephemeral: true, ..BrokerOptions::default() };
    let mut plan = plan(SERVER, &set(&["storePathRootDir=/a", "storePathCommitLog=/b"]), &options, None).unwrap();
    plan.place(Path::new("/tmp/e"));
    let (broker, namesrv) = (plan.broker.unwrap(), plan.namesrv.unwrap());
    assert_eq!((broker.store.root.as_path(), broker.store.commit_log_path), (Path::new("/tmp/e"), None));
    assert_eq!(namesrv.kv_config_path, Path::new("/tmp/e/namesrv/kvConfig.json"));
}

#[test]
fn what_clients_are_told() {
    let advertise = |text: &str| {
        let options = BrokerOptions { advertise: Some(text.to_owned()), ..BrokerOptions::default() };
        plan(BROKER, &set(&["brokerIP1=10.0.0.1"]), &options, None).map(|plan| plan.broker.unwrap())
    };
    let broker = advertise("mq.example.org:7").unwrap();
    assert_eq!((broker.broker_ip1.as_deref(), broker.advertised_port), (Some("mq.example.org"), Some(7)));
    let broker = advertise("::1").unwrap();
    assert_eq!((broker.broker_ip1.as_deref(), broker.advertised_port), (Some("::1"), None));
    assert!(advertise("host:x").unwrap_err()[0].contains("--advertise"));
}

#[test]
fn a_server_joins_its_own_name_server() {
    let options =
        BrokerOptions { namesrv: Some("localhost:9876;127.0.0.1:9876;other:9876;127.0.0.1:9877".to_owned()), ..BrokerOptions::default() };
    let mut broker = plan(SERVER, &CommonArgs::default(), &options, None).unwrap().broker.unwrap();
    Plan::join(&mut broker, "0.0.0.0".parse().unwrap(), 9876, "token");
    assert_eq!(broker.namesrv_addresses, ["127.0.0.1:9876", "other:9876", "127.0.0.1:9877"]);
    assert_eq!(broker.own_name_server_token.as_deref(), Some("token"));
    broker.broker_ip1 = Some("10.0.0.1".to_owned());
    broker.own_name_server_token = None;
    Plan::join(&mut broker, "::".parse().unwrap(), 1, "token");
    assert_eq!((broker.namesrv_addresses[0].as_str(), broker.own_name_server_token), ("[::1]:1", None), "a set address is told");
}

#[test]
fn wrong_use_is_found_before_anything_starts() {
    let options = BrokerOptions { advertise: Some(":1".to_owned()), namesrv: Some("a:b".to_owned()), ..BrokerOptions::default() };
    let errors = plan(BROKER, &set(&["brokerNmae=x", "listenPort=y"]), &options, None).unwrap_err();
    assert_eq!(errors.len(), 4, "{errors:#?}");
    let missing = CommonArgs { config: Some("/no/such.conf".into()), set: vec!["x".to_owned()], ..CommonArgs::default() };
    assert_eq!(plan(BROKER, &missing, &BrokerOptions::default(), None).unwrap_err().len(), 2);
    let refused = plan(BROKER, &set(&["brokerRole=SLAVE"]), &BrokerOptions::default(), None).unwrap_err();
    assert!(refused[0].contains("brokerRole=SLAVE"), "{refused:?}");
}

#[test]
fn changed_settings_come_back_at_the_next_start() {
    let store = tempfile::tempdir().unwrap();
    std::fs::create_dir(store.path().join("config")).unwrap();
    std::fs::write(store.path().join("config/broker.properties"), "fileReservedTime=48\nbrokerPermission=4\nstorePathRootDir=/elsewhere\n")
        .unwrap();
    let options = BrokerOptions { store: Some(store.path().to_owned()), ..BrokerOptions::default() };
    let broker = |common: &CommonArgs| plan(BROKER, common, &options, None).unwrap().broker.unwrap();
    let changed = broker(&set(&["brokerPermission=6"]));
    assert_eq!((changed.store.file_reserved_hours, changed.broker_permission), (48, 6), "what is given wins");
    assert_eq!(changed.store.root, store.path());
    assert!(!changed.all.contains_key("brokerConfigPath") || changed.all["brokerConfigPath"].is_empty());
    // With a file of its own a broker keeps its changes there.
    let file = store.path().join("broker.conf");
    std::fs::write(&file, "brokerName=b\n").unwrap();
    let with_file = broker(&CommonArgs { config: Some(file.clone()), ..CommonArgs::default() });
    assert_eq!((with_file.store.file_reserved_hours, with_file.broker_permission), (72, 6));
    assert_eq!(with_file.all["brokerConfigPath"], file.display().to_string());
}

#[test]
fn a_store_s_files_are_read_by_its_broker_s_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let store = for_store(None, &[], folder.path()).unwrap();
    assert_eq!((store.given, store.config.root.as_path(), store.config.commit_log_file_size), (Given::default(), folder.path(), 1 << 30));
    let set = ["maxIndexNum=77".to_owned(), "storePathRootDir=/elsewhere".to_owned()];
    let store = for_store(None, &set, folder.path()).unwrap();
    assert_eq!((store.given, store.config.index_entries), (Given { index: true, ..Given::default() }, 77));
    assert_eq!(store.config.root, folder.path(), "the folder on the command line is meant");
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "mappedFileSizeCommitLog=65536\nstorePathCommitLog=/log\nbrokerRole=SLAVE\n").unwrap();
    let store = for_store(Some(&file), &[], folder.path()).unwrap();
    assert!(store.given.commit_log && !store.given.consume_queue);
    assert_eq!(store.config.commit_log_path.as_deref(), Some(Path::new("/log")));
    std::fs::create_dir(folder.path().join("config")).unwrap();
    std::fs::write(folder.path().join("config/broker.properties"), "mappedFileSizeConsumeQueue=2000\n").unwrap();
    let store = for_store(None, &[], folder.path()).unwrap();
    assert_eq!((store.given.consume_queue, store.config.consume_queue_file_size), (true, 2_000), "what administrators changed");
    assert_eq!(for_store(None, &["x".to_owned()], folder.path()).unwrap_err().len(), 1);
}
