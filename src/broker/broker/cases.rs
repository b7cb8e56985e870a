//! Crash and corruption cases of configuration files: what a broker makes of them at its start. Rows 58 to 63 of the table in the
//! store's tests.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tempfile::TempDir;

use super::*;
use crate::common::record::Draft;
use crate::common::topic::SCHEDULE_TOPIC;
use crate::store::config::FlushDiskType;
use crate::store::reading::{AllMessages, GetLimits, GetStatus};
use crate::store::tests::cases::logged;

const DEADLINE: Duration = Duration::from_secs(20);

fn config(root: &Path) -> BrokerConfig {
    let mut config = BrokerConfig { listen_port: 0, bind_address: IpAddr::from([127, 0, 0, 1]), ..BrokerConfig::new(root) };
    config.store.commit_log_file_size = 1 << 20;
    config.store.flush_disk_type = FlushDiskType::Async;
    config.store.disk_free_reserve = Some(0);
    config
}

fn start(config: BrokerConfig) -> Result<Broker, String> {
    Broker::start(config, Clock::System).map_err(|error| error.to_string())
}

/// The start of a broker, and what it logged.
fn start_and_listen(root: &Path) -> (Result<Broker, String>, String) {
    let (broker, lines) = logged(|| start(config(root)));
    (broker, lines.join("\n"))
}

fn file(root: &Path, name: &str) -> PathBuf {
    root.join("config").join(name)
}

fn write(root: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(root.join("config")).unwrap();
    std::fs::write(file(root, name), text).unwrap();
}

fn read(root: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(file(root, name)).ok()
}

/// What was put aside of a file, by content.
fn put_aside(root: &Path, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("config")).unwrap().map(|entry| entry.unwrap().path());
    let corrupt = format!("{name}.corrupt.");
    let is_aside = |path: &PathBuf| {
        let ms = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(&corrupt));
        ms.is_some_and(|ms| ms.parse::<i64>().is_ok())
    };
    let mut kept: Vec<String> = entries.filter(is_aside).map(|path| std::fs::read_to_string(path).unwrap()).collect();
    kept.sort();
    kept
}

/// `topics.json` with one topic.
fn topics(name: &str) -> String {
    format!(
        "{{\"dataVersion\":{{\"counter\":3,\"stateVersion\":0,\"timestamp\":1}},\"topicConfigTable\":{{\"{name}\":{{\"perm\":6,\"readQueueNums\":2,\"topicName\":\"{name}\",\"writeQueueNums\":2}}}}}}"
    )
}

fn put(broker: &Broker, topic: &str, queue_id: i32, count: usize) {
    let store = &broker.context.store;
    let host = broker.store_host();
    for _ in 0..count {
        let draft = Draft {
            topic,
            queue_id,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"x",
            properties: b"DELAY\x0118\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02",
        };
        store.put(&draft).unwrap();
    }
    until("dispatched", || store.stats().dispatch_behind_bytes == 0);
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < DEADLINE, "not in time: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_damaged_file_gives_way_to_its_backup() {
    let whole = topics("New");
    for main in [None, Some(&whole[..whole.len() / 2]), Some("\0\0\0\0\0\0\0\0")] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "topics.json.bak", &topics("Old"));
        if let Some(main) = main {
            write(root, "topics.json", main);
        }
        let (broker, lines) = start_and_listen(root);
        let broker = broker.unwrap();
        assert!(broker.context.topics.get("Old").is_some() && broker.context.topics.get("New").is_none(), "{main:?}");
        assert!(lines.contains("its backup is used") && lines.contains("topics.json"), "{lines}");
        assert_eq!(put_aside(root, "topics.json"), Vec::from_iter(main), "kept, not deleted");
        assert!(broker.shutdown(DEADLINE).is_empty());
        let (broker, lines) = start_and_listen(root);
        assert!(broker.unwrap().context.topics.get("Old").is_some());
        assert!(!lines.contains("backup"), "the second start finds order: {lines}");
    }
}

#[test]
fn without_a_readable_copy_the_broker_does_not_start() {
    for name in ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"] {
        for backup in [None, Some("{\"also\":")] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            let backup_name = format!("{name}.bak");
            write(root, name, "{\"torn\":");
            if let Some(backup) = backup {
                write(root, &backup_name, backup);
            }
            for _ in 0..2 {
                let text = start(config(root)).map(drop).unwrap_err();
                let parts = [name, &backup_name, "allowEmptyConfigOnCorruption=true"];
                assert!(parts.iter().all(|part| text.contains(part)), "{text}");
                assert_eq!((read(root, name).as_deref(), read(root, &backup_name).as_deref()), (Some("{\"torn\":"), backup));
                assert!(!root.join("abort").exists(), "the store was closed in order");
            }
            let broker = start(BrokerConfig { allow_empty_config_on_corruption: true, ..config(root) }).unwrap();
            assert!(broker.context.topics.get("TBW102").is_some(), "built-in topics are there");
            let mut kept = put_aside(root, name);
            kept.extend(put_aside(root, &backup_name));
            assert_eq!(kept.len(), 1 + backup.iter().count(), "{name}: nothing is deleted");
            drop(broker);
            start(config(root)).unwrap();
        }
    }
}

#[test]
fn an_empty_file_is_a_warning() {
    for backup in [Some(topics("Old")), Some(String::new()), None] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "topics.json", "");
        if let Some(backup) = &backup {
            write(root, "topics.json.bak", backup);
        }
        let (broker, lines) = start_and_listen(root);
        let broker = broker.unwrap();
        assert!(broker.context.topics.get("TBW102").is_some());
        let has_backup = backup.is_some_and(|backup| !backup.is_empty());
        assert_eq!(broker.context.topics.get("Old").is_some(), has_backup);
        let warned = if has_backup { "is empty, its backup is used" } else { "is empty and there is no backup" };
        assert!(lines.lines().any(|line| line.starts_with("WARN") && line.contains(warned)), "{lines}");
        assert!(put_aside(root, "topics.json").is_empty(), "nothing to keep");
    }
}

/// A broker's folder whose topic `T` has three messages in queue 0 and whose level 18 has three.
fn stopped() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "topics.json", &topics("T"));
    let broker = start(config(folder.path())).unwrap();
    put(&broker, "T", 0, 3);
    put(&broker, SCHEDULE_TOPIC, 17, 3);
    assert!(broker.shutdown(DEADLINE).is_empty());
    folder
}

#[test]
fn committed_offsets_ahead_of_their_queue_are_told_and_stay() {
    let folder = stopped();
    let root = folder.path();
    let offsets = "{\"dataVersion\":{\"counter\":1,\"stateVersion\":0,\"timestamp\":1},\"offsetTable\":{\"T@ahead\":{0:9,1:4},\"T@behind\":{0:2},\"T@level\":{0:3}}}";
    write(root, "consumerOffset.json", offsets);
    for _ in 0..2 {
        let (broker, lines) = start_and_listen(root);
        let broker = broker.unwrap();
        let told: Vec<&str> = lines.lines().filter(|line| line.contains("ahead of its queue")).collect();
        assert!(told.len() == 1 && told[0].starts_with("WARN"), "one line a group: {lines}");
        assert!(["group=ahead", "topic=T", "offset=9", "max=3", "queues_ahead=2"].iter().all(|part| told[0].contains(part)), "{lines}");
        let context = &broker.context;
        let committed = |group: &str, queue_id| context.offsets.get("T", group, queue_id);
        assert_eq!([committed("ahead", 0), committed("ahead", 1), committed("behind", 0)], [Some(9), Some(4), Some(2)]);
        let pull = context.store.get("T", 0, 9, &GetLimits::default(), &AllMessages);
        assert_eq!((pull.status, pull.next_begin_offset), (GetStatus::OffsetOverflowBadly, 3));
        assert!(broker.shutdown(DEADLINE).is_empty());
        let written = read(root, "consumerOffset.json").unwrap();
        assert!(written.contains("0:9") || written.contains("\"0\":9"), "never rewritten: {written}");
    }
}

#[test]
fn delay_offsets_out_of_range_are_corrected_on_disk() {
    for (there, corrected) in [(99, 3), (-5, 0), (2, 2)] {
        let folder = stopped();
        let root = folder.path();
        write(root, "delayOffset.json", &format!("{{\"offsetTable\":{{18:{there},3:7}}}}"));
        let (broker, lines) = start_and_listen(root);
        let broker = broker.unwrap();
        let next = broker.context.delay.offsets().into_iter().find(|(level, ..)| *level == 18).unwrap();
        assert_eq!(next, (18, corrected, 3));
        let line = format!("delay offset corrected: level=18 from={there} to={corrected} min=0 max=3");
        assert_eq!(lines.contains(&line), there != corrected, "{lines}");
        assert!(lines.contains("delay offset corrected: level=3 from=7 to=0"), "{lines}");
        until("written", || {
            let text = read(root, "delayOffset.json").unwrap();
            text.contains("dataVersion") && !text.contains("3:7") && text.contains("18:") == (corrected > 0)
        });
        let written = read(root, "delayOffset.json").unwrap();
        assert_eq!(written.contains(&format!("18:{corrected}")), corrected > 0, "{written}");
        assert!(broker.shutdown(DEADLINE).is_empty());
        let (broker, lines) = start_and_listen(root);
        assert!(broker.is_ok() && !lines.contains("delay offset corrected"), "{lines}");
    }
}
