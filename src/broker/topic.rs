//! The topic table and `topics.json`.
//!
//! - A look-up takes no lock.
//! - A topic whose creation promises durability is staged, written, and only then visible: nobody can have a message acknowledged on a
//!   topic that a crash takes away. Alterations and deletions are visible at once; their callers return once the file holds them.
//! - The version moves after the table: who reads the version first and the table second never has a table older than its version.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

use crate::common::topic::{
    self, DataVersion, HALF_TOPIC, OFFSET_MOVED_EVENT, OP_HALF_TOPIC, PERM_INHERIT, PERM_READ_WRITE, REPLY_SUFFIX, SCHEDULE_TOPIC,
    SELF_TEST_TOPIC, SYSTEM_PREFIX, TBW102, TIMER_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, TopicConfig, is_system_topic,
};
use crate::config::broker::BrokerConfig;
use crate::config::config_file::{ConfigFile, MetadataWriter, Persisted, to_pretty_json};
use crate::remoting::body::topic::{data_version, topic_config_table};
use crate::remoting::fastjson;

use super::table::{Change, NameTable};

/// Bit 1 of a topic's flags: subscribed to in unit mode.
pub const FLAG_UNIT_SUB: i32 = 2;
/// Bit 0 of a topic's flags: a unit topic.
pub const FLAG_UNIT: i32 = 1;

/// Topics of a broker. Reads take no lock that a writer holds over I/O.
pub struct TopicTable {
    shared: Arc<Shared>,
    /// Names made at start, and so not the clients' to alter.
    system: HashSet<String>,
    auto_create: AtomicBool,
    writer: MetadataWriter,
    file: usize,
}

struct Shared {
    topics: NameTable<Arc<TopicConfig>>,
    /// Topics on their way into the file. One whose write failed stays here; the writer tries again, and so does the next creation.
    staged: Mutex<BTreeMap<String, Arc<TopicConfig>>>,
    version: Mutex<DataVersion>,
}

impl TopicTable {
    /// Loads `config/topics.json` (or its `.bak`) over the system topics.
    ///
    /// # Errors
    /// Both copies are unreadable.
    pub fn load(config: &BrokerConfig, writer: MetadataWriter, now_ms: i64) -> std::io::Result<Self> {
        let file = ConfigFile::of_broker(config, "topics.json");
        let loaded = file.load(parse_file)?;
        let (stored, version) = loaded.unwrap_or_else(|| (Vec::new(), DataVersion { timestamp: now_ms, ..DataVersion::default() }));
        let made = system_topics(config);
        let system = made.iter().map(|topic| topic.topic_name.clone()).collect();
        warn_of_batch_queues(&stored);
        let topics = NameTable::default();
        topics.extend(made.into_iter().chain(stored).map(|mut topic| {
            if topic.topic_name == TBW102 && !config.auto_create_topic {
                topic.perm &= !PERM_INHERIT;
            }
            (topic.topic_name.as_str().into(), Arc::new(topic))
        }));
        let shared = Arc::new(Shared { topics, staged: Mutex::default(), version: Mutex::new(version) });
        let content = Arc::clone(&shared);
        let handle = writer.register(file, Arc::new(move || content.to_json()));
        Ok(Self { shared, system, auto_create: AtomicBool::new(config.auto_create_topic), writer, file: handle })
    }

    /// A topic's configuration.
    pub fn get(&self, topic: &str) -> Option<Arc<TopicConfig>> {
        self.shared.topics.get(topic)
    }

    /// Whether the topic is the broker's own: clients may neither alter nor delete it.
    pub fn is_system(&self, topic: &str) -> bool {
        is_system_topic(topic) || self.system.contains(topic)
    }

    /// Names of the system topics that exist, sorted.
    pub fn system_names(&self) -> Vec<String> {
        self.all().iter().filter(|topic| self.is_system(&topic.topic_name)).map(|topic| topic.topic_name.clone()).collect()
    }

    /// Switches `autoCreateTopicEnable`.
    pub fn set_auto_create(&self, enabled: bool) {
        self.auto_create.store(enabled, Ordering::Relaxed);
    }

    /// Creates the topic of a send from `default_topic`, when that exists and passes its configuration on: as many queues as the
    /// request wants and the default topic has, its permissions without the inheritance; `None` when nothing may be created, or it would
    /// have no queue. Durable on return: only on work threads. The caller registers it with the name servers.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn create_on_send(
        &self, topic: &str, default_topic: &str, default_queues: i32, unit: bool, now_ms: i64,
    ) -> Result<Option<Arc<TopicConfig>>, String> {
        if let Some(existing) = self.get(topic) {
            return Ok(Some(existing));
        }
        let Some(template) = self.template(default_topic) else { return Ok(None) };
        let queues = default_queues.min(template.write_queue_nums);
        if queues <= 0 || topic::check_topic(topic).is_err() {
            return Ok(None);
        }
        let created = TopicConfig {
            topic_filter_type: template.topic_filter_type.clone(),
            topic_sys_flag: if unit { FLAG_UNIT } else { 0 },
            ..TopicConfig::new(topic, queues, template.perm & !PERM_INHERIT)
        };
        self.ensure_config(created, now_ms).map(|(config, _)| Some(config))
    }

    /// The default topic of a send, when it exists and passes its configuration on.
    pub fn template(&self, default_topic: &str) -> Option<Arc<TopicConfig>> {
        self.get(default_topic).filter(|template| self.passes_on(template))
    }

    fn passes_on(&self, template: &TopicConfig) -> bool {
        template.perm & PERM_INHERIT != 0 && (template.topic_name != TBW102 || self.auto_create.load(Ordering::Relaxed))
    }

    /// The topic, created with `queues` and `perm` when it is missing (retry, dead-letter, reply topics). The flag says whether it was
    /// created. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn ensure(&self, topic: &str, queues: i32, perm: i32, sys_flag: i32, now_ms: i64) -> Result<(Arc<TopicConfig>, bool), String> {
        self.ensure_config(TopicConfig { topic_sys_flag: sys_flag, ..TopicConfig::new(topic, queues, perm) }, now_ms)
    }

    /// The topic of that name, created as `config` says when it is missing. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    fn ensure_config(&self, config: TopicConfig, now_ms: i64) -> Result<(Arc<TopicConfig>, bool), String> {
        let name = config.topic_name.clone();
        if let Some(existing) = self.get(&name) {
            return Ok((existing, false));
        }
        self.shared.staged.lock().entry(name.clone()).or_insert_with(|| Arc::new(config));
        self.shared.version.lock().next(now_ms); // what the file will hold is not what it held
        self.writer.write_and_wait(self.file)?;
        // Whoever comes first of those who wait for this topic publishes it. Under the lock, so that nobody finds it in neither place.
        let mut staged = self.shared.staged.lock();
        match staged.remove(&name) {
            Some(config) => Ok(self.publish(config, now_ms)),
            None => self.get(&name).map(|existing| (existing, false)).ok_or_else(|| format!("topic {name} was deleted meanwhile")),
        }
    }

    /// As [`TopicTable::ensure`], but for net threads: returns at once, the file follows (see [`TopicTable::when_durable`]).
    pub fn ensure_in_memory(&self, config: TopicConfig, now_ms: i64) -> (Arc<TopicConfig>, bool) {
        let (config, created) = self.publish(Arc::new(config), now_ms);
        if created {
            self.writer.write(self.file, None);
        }
        (config, created)
    }

    fn publish(&self, config: Arc<TopicConfig>, now_ms: i64) -> (Arc<TopicConfig>, bool) {
        let (config, created) = self.shared.topics.change(&config.topic_name, |existing| match existing {
            Some(existing) => (Change::Keep, (Arc::clone(existing), false)),
            None => (Change::Put(Arc::clone(&config)), (Arc::clone(&config), true)),
        });
        if created {
            log::info!("topic created: topic={} queues={} perm={}", config.topic_name, config.write_queue_nums, config.perm);
            self.shared.version.lock().next(now_ms);
        }
        (config, created)
    }

    /// Sets the order flag of topics that exist; the file follows in the background. True when something changed.
    pub fn mark_ordered<T: AsRef<str>>(&self, topics: &[T], now_ms: i64) -> bool {
        let mut changed = false;
        for topic in topics {
            changed |= self.shared.topics.change(topic.as_ref(), |existing| match existing.filter(|existing| !existing.order) {
                Some(existing) => (Change::Put(Arc::new(TopicConfig { order: true, ..TopicConfig::clone(existing) })), true),
                None => (Change::Keep, false),
            });
        }
        if changed {
            self.shared.version.lock().next(now_ms);
            self.writer.write(self.file, None);
        }
        changed
    }

    /// Calls `done` once everything changed before this call is in the file, or could not be written. Does not block.
    pub fn when_durable(&self, done: Persisted) {
        self.writer.write(self.file, Some(done));
    }

    /// Creates or replaces; false when the stored one equals it (nothing happens then). Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn update(&self, config: TopicConfig, now_ms: i64) -> Result<bool, String> {
        self.update_all(vec![config], now_ms)
    }

    /// Creates or replaces several with one write; false when all were stored like this. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn update_all(&self, configs: Vec<TopicConfig>, now_ms: i64) -> Result<bool, String> {
        let (existing, new): (Vec<_>, Vec<_>) = configs.into_iter().partition(|config| self.get(&config.topic_name).is_some());
        let created = self.create_all(new, now_ms)?;
        let mut changed = false;
        for config in existing {
            let name = config.topic_name.clone();
            changed |= self.shared.topics.change(&name, |existing| {
                if existing.is_some_and(|existing| **existing == config) {
                    return (Change::Keep, false);
                }
                log::info!("topic altered: before={existing:?} after={config:?}");
                (Change::Put(Arc::new(config)), true)
            });
        }
        if changed {
            self.shared.version.lock().next(now_ms);
            self.writer.write_and_wait(self.file)?;
        }
        Ok(created || changed)
    }

    fn create_all(&self, configs: Vec<TopicConfig>, now_ms: i64) -> Result<bool, String> {
        if configs.is_empty() {
            return Ok(false);
        }
        let configs: Vec<_> = configs.into_iter().map(Arc::new).collect();
        self.shared.staged.lock().extend(configs.iter().map(|config| (config.topic_name.clone(), Arc::clone(config))));
        self.shared.version.lock().next(now_ms);
        self.writer.write_and_wait(self.file)?;
        let mut overtaken = Vec::new();
        for config in configs {
            let mut staged = self.shared.staged.lock();
            staged.remove(&config.topic_name);
            let (stored, _) = self.publish(Arc::clone(&config), now_ms);
            drop(staged);
            if stored != config {
                overtaken.push(TopicConfig::clone(&config)); // a send created it in the same moment
            }
        }
        self.update_all(overtaken, now_ms).map(|_| true)
    }

    /// Removes; false when it was not there. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn delete(&self, topic: &str, now_ms: i64) -> Result<bool, String> {
        let unfinished = self.shared.staged.lock().remove(topic).is_some();
        let removed = self.shared.topics.change(topic, |existing| (Change::Remove, existing.is_some())) || unfinished;
        if removed {
            log::info!("topic deleted: topic={topic}");
            self.shared.version.lock().next(now_ms);
            self.writer.write_and_wait(self.file)?;
        }
        Ok(removed)
    }

    /// All topics, by name.
    pub fn all(&self) -> Vec<Arc<TopicConfig>> {
        self.shared.topics.entries().into_iter().map(|(_, topic)| topic).collect()
    }

    /// Version of the table.
    pub fn data_version(&self) -> DataVersion {
        *self.shared.version.lock()
    }

    /// Moves the version on without a change of the table (the broker's own permission has changed).
    pub fn touch(&self, now_ms: i64) {
        self.shared.version.lock().next(now_ms);
        self.writer.write(self.file, None);
    }
}

impl Shared {
    fn to_json(&self) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct File<'a> {
            data_version: BTreeMap<&'static str, i64>,
            topic_config_table: BTreeMap<&'a str, &'a TopicConfig>,
        }
        let version = *self.version.lock();
        // Staged ones first: a topic that is published between the two reads is in both, never in neither.
        let staged = self.staged.lock().clone();
        let topics = self.topics.entries();
        let mut table: BTreeMap<_, _> = staged.iter().map(|(name, topic)| (&**name, &**topic)).collect();
        table.extend(topics.iter().map(|(name, topic)| (&**name, &**topic)));
        to_pretty_json(&File { data_version: version_members(&version), topic_config_table: table })
    }
}

/// Members of a version in the order in which the reference writes them.
pub(super) fn version_members(version: &DataVersion) -> BTreeMap<&'static str, i64> {
    BTreeMap::from([("counter", version.counter), ("stateVersion", version.state_version), ("timestamp", version.timestamp)])
}

/// Topics taken over may ask for a kind of queue that is not served.
fn warn_of_batch_queues(topics: &[TopicConfig]) {
    let wants = |topic: &&TopicConfig| topic.attributes.get("queue.type").is_some_and(|kind| kind == "BatchCQ");
    for topic in topics.iter().filter(wants) {
        log::error!("topic's queue.type=BatchCQ is not served, each of its messages is stored by itself: topic={}", topic.topic_name);
    }
}

fn parse_file(text: &str) -> Result<(Vec<TopicConfig>, DataVersion), String> {
    let value = fastjson::parse(text.as_bytes())?;
    if !matches!(value, fastjson::Value::Object(_)) {
        return Err("no JSON object".to_owned());
    }
    Ok((topic_config_table(&value)?, data_version(value.get("dataVersion"))))
}

/// What exists before any file is read.
fn system_topics(config: &BrokerConfig) -> Vec<TopicConfig> {
    let cluster = &config.cluster_name;
    let inherit_if = |inherit: bool| if inherit { PERM_READ_WRITE | PERM_INHERIT } else { PERM_INHERIT };
    let levels = i32::try_from(config.store.delay_levels_ms.len()).unwrap_or(i32::MAX);
    let mut topics = vec![
        TopicConfig::new(SELF_TEST_TOPIC, 1, PERM_READ_WRITE),
        TopicConfig::new(topic::BENCHMARK_TOPIC, 1024, PERM_READ_WRITE),
        TopicConfig::new(cluster, 16, inherit_if(config.cluster_topic_enable)),
        TopicConfig::new(&config.broker_name, 1, inherit_if(config.broker_topic_enable)),
        TopicConfig::new(OFFSET_MOVED_EVENT, 1, PERM_READ_WRITE),
        TopicConfig::new(SCHEDULE_TOPIC, levels.max(18), PERM_READ_WRITE),
        TopicConfig::new(format!("{cluster}_{REPLY_SUFFIX}"), 1, PERM_READ_WRITE),
        TopicConfig::new(HALF_TOPIC, 1, PERM_READ_WRITE),
        TopicConfig::new(OP_HALF_TOPIC, 1, PERM_READ_WRITE),
        TopicConfig::new(TRANS_CHECK_MAX_TIME_TOPIC, 1, PERM_READ_WRITE),
        TopicConfig::new(TIMER_TOPIC, 1, PERM_READ_WRITE),
        TopicConfig::new(format!("{SYSTEM_PREFIX}REVIVE_LOG_{cluster}"), 8, PERM_READ_WRITE),
        TopicConfig::new(format!("{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{}", config.broker_name), 1, PERM_INHERIT),
    ];
    if config.auto_create_topic {
        topics.push(TopicConfig::new(TBW102, config.default_topic_queue_nums, PERM_READ_WRITE | PERM_INHERIT));
    }
    if config.trace_topic_enable {
        topics.push(TopicConfig::new(&config.trace_topic, 1, PERM_READ_WRITE));
    }
    topics
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    struct Fixture {
        folder: tempfile::TempDir,
        config: BrokerConfig,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let config = BrokerConfig::new(folder.path());
            Self { folder, config }
        }

        fn load(&self) -> TopicTable {
            TopicTable::load(&self.config, MetadataWriter::start("").unwrap(), 1_000).unwrap()
        }

        fn write(&self, name: &str, text: &str) {
            fs::create_dir_all(self.folder.path().join("config")).unwrap();
            fs::write(self.path(name), text).unwrap();
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.folder.path().join("config").join(name)
        }
    }

    const JAVA_FILE: &str = "{\n\t\"dataVersion\":{\"counter\":3,\"stateVersion\":0,\"timestamp\":1690000000000},\n\t\"topicConfigTable\":{\n\t\t\"TopicTest\":{\n\t\t\t\"attributes\":{},\n\t\t\t\"order\":false,\n\t\t\t\"perm\":6,\n\t\t\t\"readQueueNums\":8,\n\t\t\t\"topicFilterType\":\"SINGLE_TAG\",\n\t\t\t\"topicName\":\"TopicTest\",\n\t\t\t\"topicSysFlag\":0,\n\t\t\t\"writeQueueNums\":8\n\t\t},\n\t\t\"TBW102\":{\"perm\":7,\"readQueueNums\":2,\"topicName\":\"TBW102\",\"writeQueueNums\":2}\n\t}\n}";

    #[test]
    fn system_topics_of_a_first_start() {
        let fixture = Fixture::new();
        let topics = fixture.load();
        for (name, queues, perm) in [
            ("TBW102", 8, 7),
            ("SELF_TEST_TOPIC", 1, 6),
            ("BenchmarkTest", 1024, 6),
            ("DefaultCluster", 16, 7),
            ("broker-a", 1, 7),
            ("SCHEDULE_TOPIC_XXXX", 18, 6),
            ("DefaultCluster_REPLY_TOPIC", 1, 6),
            ("rmq_sys_SYNC_BROKER_MEMBER_broker-a", 1, 1),
        ] {
            let topic = topics.get(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!((topic.write_queue_nums, topic.read_queue_nums, topic.perm), (queues, queues, perm), "{name}");
            assert!(topics.is_system(name), "{name}");
        }
        assert!(topics.get("RMQ_SYS_TRACE_TOPIC").is_none());
        assert!(!topics.is_system("orders"));
        assert_eq!(topics.data_version(), DataVersion { state_version: 0, counter: 0, timestamp: 1_000 });
    }

    #[test]
    fn reads_what_java_wrote_and_writes_what_java_reads() {
        let fixture = Fixture::new();
        fixture.write("topics.json", JAVA_FILE);
        let topics = fixture.load();
        assert_eq!(topics.get("TopicTest").unwrap().read_queue_nums, 8);
        assert_eq!(topics.get("TBW102").unwrap().read_queue_nums, 2, "a stored topic replaces the one made at start");
        assert_eq!(topics.data_version(), DataVersion { state_version: 0, counter: 3, timestamp: 1_690_000_000_000 });
        assert!(topics.update(TopicConfig::new("orders", 4, 6), 2_000).unwrap());
        let text = fs::read_to_string(fixture.path("topics.json")).unwrap();
        assert!(text.starts_with("{\n\t\"dataVersion\":{\n\t\t\"counter\":4,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":2000\n\t},\n\t\"topicConfigTable\":{\n\t\t\"BenchmarkTest\":{\n\t\t\t\"attributes\":{},\n\t\t\t\"order\":false,"), "{text}");
        let again = fixture.load();
        assert_eq!(again.get("orders"), topics.get("orders"));
        assert_eq!(again.all(), topics.all());
        assert!(topics.update(TopicConfig::new("orders", 5, 6), 3_000).unwrap());
        let again = fixture.load();
        assert_eq!(again.all(), topics.all());
        assert_eq!(again.data_version(), topics.data_version());
    }

    #[test]
    fn a_topic_that_cannot_be_written_is_not_there() {
        let fixture = Fixture::new();
        let topics = fixture.load();
        fs::write(fixture.folder.path().join("config"), "in the way").unwrap();
        assert!(topics.create_on_send("orders", TBW102, 4, false, 1).unwrap_err().contains("config"));
        assert!(topics.update(TopicConfig::new("invoices", 1, 6), 1).is_err());
        assert!(topics.get("orders").is_none() && topics.get("invoices").is_none());
        fs::remove_file(fixture.folder.path().join("config")).unwrap();
        assert!(topics.create_on_send("orders", TBW102, 4, false, 1).unwrap().is_some(), "healed");
        assert!(fixture.load().get("orders").is_some());
    }

    #[test]
    fn many_creators_of_one_topic_agree() {
        let fixture = Fixture::new();
        let topics = fixture.load();
        std::thread::scope(|scope| {
            for queues in 1..=8 {
                let topics = &topics;
                let path = fixture.path("topics.json");
                scope.spawn(move || {
                    let created = topics.create_on_send("orders", TBW102, queues, false, 1).unwrap().unwrap();
                    assert_eq!(Some(created), topics.get("orders"));
                    assert!(read(&path).contains("\"orders\""));
                });
            }
        });
    }

    #[test]
    fn torn_file_and_backup_only() {
        let fixture = Fixture::new();
        fixture.write("topics.json.bak", JAVA_FILE);
        assert!(fixture.load().get("TopicTest").is_some(), "backup only");
        fixture.write("topics.json", &JAVA_FILE[..200]);
        assert!(fixture.load().get("TopicTest").is_some(), "torn main file");
        assert_eq!(read(&fixture.path("topics.json")), JAVA_FILE, "written anew from the backup");
        fixture.write("topics.json", "[1]");
        fixture.write("topics.json.bak", "{");
        let error = TopicTable::load(&fixture.config, MetadataWriter::start("").unwrap(), 0).err().unwrap();
        assert!(error.to_string().contains("topics.json.bak"), "{error}");
    }

    #[test]
    fn creation_by_a_send() {
        let fixture = Fixture::new();
        let topics = fixture.load();
        let create = |topic: &str, from: &str, queues: i32| topics.create_on_send(topic, from, queues, false, 5).unwrap();
        let created = create("orders", TBW102, 4).unwrap();
        assert_eq!((created.write_queue_nums, created.read_queue_nums, created.perm), (4, 4, 6));
        assert_eq!(create("many", TBW102, 99).unwrap().write_queue_nums, 8);
        for queues in [0, -1, i32::MIN] {
            assert!(create("none", TBW102, queues).is_none() && topics.get("none").is_none(), "{queues} queues");
        }
        assert_eq!(create("by-cluster", "DefaultCluster", 99).unwrap().write_queue_nums, 16);
        assert_eq!(create("orders", "absent", 1).unwrap(), created, "an existing topic is found first");
        assert!(create("x", "absent", 4).is_none());
        assert!(create("x", "BenchmarkTest", 4).is_none(), "no inheritance");
        assert!(create("x y", TBW102, 4).is_none());
        assert!(topics.create_on_send("unit", TBW102, 1, true, 5).unwrap().unwrap().topic_sys_flag == FLAG_UNIT);
        assert!(fixture.load().get("orders").is_some(), "durable on return");
        topics.set_auto_create(false);
        assert!(create("y", TBW102, 4).is_none());
        assert!(create("z", "DefaultCluster", 4).is_some());
    }

    #[test]
    fn without_auto_creation_nothing_inherits() {
        let mut fixture = Fixture::new();
        fixture.config.auto_create_topic = false;
        assert!(fixture.load().get(TBW102).is_none());
        fixture.write("topics.json", JAVA_FILE);
        let topics = fixture.load();
        assert_eq!(topics.get(TBW102).unwrap().perm, 6);
        assert!(topics.create_on_send("x", TBW102, 4, false, 0).unwrap().is_none());
    }

    #[test]
    fn changes_are_durable_and_counted() {
        let fixture = Fixture::new();
        let topics = fixture.load();
        let (retry, created) = topics.ensure("%RETRY%g", 1, 6, FLAG_UNIT_SUB, 10).unwrap();
        assert!(created && retry.topic_sys_flag == FLAG_UNIT_SUB);
        assert!(!topics.ensure("%RETRY%g", 3, 6, 0, 11).unwrap().1);
        assert!(!topics.update(TopicConfig::clone(&retry), 12).unwrap(), "equal: nothing happens");
        assert_eq!(topics.data_version().counter, 2, "once for the file, once for the table");
        assert!(topics.mark_ordered(&["%RETRY%g", "absent"], 13));
        assert!(!topics.mark_ordered(&["%RETRY%g"], 14));
        assert!(topics.delete("%RETRY%g", 15).unwrap());
        assert!(!topics.delete("%RETRY%g", 16).unwrap());
        assert_eq!(topics.data_version(), DataVersion { state_version: 0, counter: 4, timestamp: 15 });
        assert!(fixture.load().get("%RETRY%g").is_none());
    }

    #[test]
    fn a_net_thread_is_told_when_its_topic_is_durable() {
        let fixture = Fixture::new();
        let topics = fixture.load();
        let (_, created) = topics.ensure_in_memory(TopicConfig::new("%RETRY%g", 1, 6), 1);
        assert!(created && topics.get("%RETRY%g").is_some());
        let (sender, receiver) = crossbeam::channel::bounded(1);
        let path = fixture.path("topics.json");
        topics.when_durable(Box::new(move |result| sender.send(result.map(|()| read(&path))).unwrap()));
        let text = receiver.recv_timeout(std::time::Duration::from_secs(10)).unwrap().unwrap();
        assert!(text.contains("%RETRY%g"));
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }
}
