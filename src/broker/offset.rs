//! Committed offsets and `consumerOffset.json`.
//!
//! - A commit of a queue that is known takes a shared lock of one of 64 shards and stores one number: no allocation, no waiting for I/O.
//! - A pending reset is set together with the offset, under the shard's exclusive lock: no commit slips in between.
//! - The file is written when something changed, never by a commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use parking_lot::{Mutex, RwLock};
use serde::Serialize;

use crate::common::topic::DataVersion;
use crate::config::broker::BrokerConfig;
use crate::config::config_file::{ConfigFile, MetadataWriter, to_pretty_json};
use crate::remoting::body::object::object_text;
use crate::remoting::body::topic::{data_version, write_data_version};
use crate::remoting::fastjson::{self, Value};
use crate::runtime::clock::Clock;

use super::topic::version_members;

const SHARDS: usize = 64;
/// No offset. A client that commits this number forgets its offset.
const NONE: i64 = i64::MIN;

/// Offsets by topic, group and queue; pending server-side resets.
pub struct OffsetTable {
    shared: Arc<Shared>,
    writer: MetadataWriter,
    file: usize,
}

struct Shared {
    shards: Box<[RwLock<Topics>]>,
    hasher: RandomState,
    /// Resets that wait for their pull: 0 nearly always, which spares pulls the look-up.
    resets: AtomicUsize,
    changed: AtomicBool,
    version: Mutex<DataVersion>,
}

type Map<K, V> = HashMap<K, V, RandomState>;
type Topics = Map<Box<str>, Map<Box<str>, Map<i32, Slot>>>;

/// Offsets of one queue.
struct Slot {
    committed: AtomicI64,
    /// Pending reset.
    reset: AtomicI64,
    /// Next offset that was handed out; memory only.
    pulled: AtomicI64,
}

impl Default for Slot {
    fn default() -> Self {
        Self { committed: AtomicI64::new(NONE), reset: AtomicI64::new(NONE), pulled: AtomicI64::new(NONE) }
    }
}

fn some(offset: &AtomicI64) -> Option<i64> {
    Some(offset.load(Ordering::Acquire)).filter(|offset| *offset != NONE)
}

impl OffsetTable {
    /// Loads `config/consumerOffset.json` (or its `.bak`).
    ///
    /// # Errors
    /// Both copies are unreadable.
    pub fn load(config: &BrokerConfig, writer: MetadataWriter) -> std::io::Result<Self> {
        let file = ConfigFile::of_broker(config, "consumerOffset.json");
        let shared = Shared::default();
        if let Some((offsets, version)) = file.load(parse_file)? {
            for (topic, group, queue_id, offset) in offsets {
                shared.write(&topic, &group, queue_id, |slot| slot.committed.store(offset, Ordering::Release));
            }
            *shared.version.lock() = version;
        }
        let shared = Arc::new(shared);
        let content = Arc::clone(&shared);
        let handle = writer.register(file, Arc::new(move || content.to_file_json()));
        Ok(Self { shared, writer, file: handle })
    }

    /// The stored offset: the next one to consume.
    pub fn get(&self, topic: &str, group: &str, queue_id: i32) -> Option<i64> {
        self.shared.read(topic, group, queue_id, |slot| some(&slot.committed)).flatten()
    }

    /// Stores an offset, also a smaller one. False (nothing stored) while a reset of this queue is pending.
    pub fn commit(&self, topic: &str, group: &str, queue_id: i32, offset: i64) -> bool {
        let store = |slot: &Slot| {
            if some(&slot.reset).is_some() {
                return false;
            }
            if slot.committed.swap(offset, Ordering::AcqRel) != offset {
                self.shared.changed.store(true, Ordering::Release);
            }
            true
        };
        match self.shared.read(topic, group, queue_id, store) {
            Some(stored) => stored,
            None => self.shared.write(topic, group, queue_id, |slot| store(slot)),
        }
    }

    /// Notes the offset behind the last message handed out (memory only; the administration shows what is in flight).
    pub fn note_pull(&self, topic: &str, group: &str, queue_id: i32, next_offset: i64) {
        let store = |slot: &Slot| slot.pulled.store(next_offset, Ordering::Release);
        if self.shared.read(topic, group, queue_id, store).is_none() {
            self.shared.write(topic, group, queue_id, |slot| store(slot));
        }
    }

    /// What [`OffsetTable::note_pull`] noted last.
    pub fn pulled(&self, topic: &str, group: &str, queue_id: i32) -> Option<i64> {
        self.shared.read(topic, group, queue_id, |slot| some(&slot.pulled)).flatten()
    }

    /// Sets a pending reset and stores it as the group's offset (request 222).
    pub fn reset(&self, topic: &str, group: &str, queue_id: i32, offset: i64) {
        self.shared.write(topic, group, queue_id, |slot| {
            if slot.reset.swap(offset, Ordering::AcqRel) == NONE {
                self.shared.resets.fetch_add(1, Ordering::AcqRel);
            }
            slot.committed.store(offset, Ordering::Release);
        });
        self.shared.changed.store(true, Ordering::Release);
    }

    /// The pending reset, which stays.
    pub fn pending_reset(&self, topic: &str, group: &str, queue_id: i32) -> Option<i64> {
        if self.shared.resets.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.shared.read(topic, group, queue_id, |slot| some(&slot.reset)).flatten()
    }

    /// The pending reset, which is forgotten: the next pull answers it.
    pub fn take_reset(&self, topic: &str, group: &str, queue_id: i32) -> Option<i64> {
        self.pending_reset(topic, group, queue_id)?;
        let taken = self.shared.read(topic, group, queue_id, |slot| slot.reset.swap(NONE, Ordering::AcqRel))?;
        (taken != NONE).then(|| {
            self.shared.resets.fetch_sub(1, Ordering::AcqRel);
            taken
        })
    }

    /// Offsets of a group on a topic, by queue.
    pub fn queues(&self, topic: &str, group: &str) -> BTreeMap<i32, i64> {
        let shard = self.shared.shard(topic, group).read();
        let queues = shard.get(topic).and_then(|groups| groups.get(group));
        queues.map_or_else(BTreeMap::new, committed)
    }

    /// Topics on which the group has offsets.
    pub fn topics_of(&self, group: &str) -> Vec<String> {
        self.shared.names(|topic, other| (other == group).then(|| topic.to_owned()))
    }

    /// Groups that have offsets on the topic.
    pub fn groups_of(&self, topic: &str) -> Vec<String> {
        self.shared.names(|other, group| (other == topic).then(|| group.to_owned()))
    }

    /// Hands out every committed offset: topic, group, queue, offset. `visit` must be quick.
    pub fn each_committed(&self, visit: &mut dyn FnMut(&str, &str, i32, i64)) {
        for shard in &self.shared.shards {
            for (topic, groups) in shard.read().iter() {
                for (group, queues) in groups {
                    queues
                        .iter()
                        .filter_map(|(id, slot)| Some((*id, some(&slot.committed)?)))
                        .for_each(|(id, at)| visit(topic, group, id, at));
                }
            }
        }
    }

    /// Forgets a group (on every topic).
    pub fn remove_group(&self, group: &str) {
        self.remove(|_, other| other == group);
    }

    /// Forgets a topic.
    pub fn remove_topic(&self, topic: &str) {
        self.remove(|other, _| other == topic);
    }

    /// Forgets a group on one topic.
    pub fn remove_group_on_topic(&self, topic: &str, group: &str) {
        self.remove(|other_topic, other_group| other_topic == topic && other_group == group);
    }

    fn remove(&self, goes: impl Fn(&str, &str) -> bool) {
        for shard in &self.shared.shards {
            let mut removed = false;
            shard.write().retain(|topic, groups| {
                groups.retain(|group, queues| {
                    let goes = goes(topic, group);
                    if goes {
                        let resets = queues.values().filter(|slot| some(&slot.reset).is_some()).count();
                        self.shared.resets.fetch_sub(resets, Ordering::AcqRel);
                        removed = true;
                    }
                    !goes
                });
                !groups.is_empty()
            });
            if removed {
                self.shared.changed.store(true, Ordering::Release);
            }
        }
    }

    /// Warns of every group whose offset lies behind the end of its queue, as `max_offset` of a topic and queue id tells it: its
    /// consumers are told so at their first pull. Nothing is changed.
    pub fn report_ahead(&self, max_offset: impl Fn(&str, i32) -> i64) {
        for ahead in self.ahead(max_offset) {
            log::warn!(
                "group's committed offset is ahead of its queue: group={} topic={} queueId={} offset={} max={} queues_ahead={}",
                ahead.group,
                ahead.topic,
                ahead.queue_id,
                ahead.offset,
                ahead.max,
                ahead.queues
            );
        }
    }

    /// One entry a group, by name.
    fn ahead(&self, max_offset: impl Fn(&str, i32) -> i64) -> Vec<Ahead> {
        let mut found = BTreeMap::<String, Ahead>::new();
        for (key, queues) in self.shared.table() {
            let Some((topic, group)) = key.split_once('@') else { continue };
            for (queue_id, offset) in queues {
                let max = max_offset(topic, queue_id);
                if offset > max {
                    let (topic, group) = (topic.to_owned(), group.to_owned());
                    let first = Ahead { group: group.clone(), topic, queue_id, offset, max, queues: 0 };
                    found.entry(group).or_insert(first).queues += 1;
                }
            }
        }
        found.into_values().collect()
    }

    /// All offsets as the answer to 43 has them: queue ids as bare integer keys.
    pub fn to_json(&self) -> String {
        let table = self.shared.table();
        let version = *self.shared.version.lock();
        object_text(|body| {
            body.value("dataVersion", |out| write_data_version(out, &version));
            body.object("offsetTable", |object| {
                for (key, queues) in &table {
                    object.object(key, |object| {
                        for (queue_id, offset) in queues {
                            object.integer_key((*queue_id).into(), |out| out.push_str(itoa::Buffer::new().format(*offset)));
                        }
                    });
                }
            });
        })
    }

    /// Whether no group has an offset.
    pub fn is_empty(&self) -> bool {
        self.shared.table().is_empty()
    }

    /// Writes the file if something changed since the last time. Called every `flushConsumerOffsetInterval`, and at the end, before
    /// [`MetadataWriter::shutdown`]. Does not block.
    pub fn persist(&self) {
        if self.shared.changed.swap(false, Ordering::AcqRel) {
            self.shared.version.lock().next(Clock::System.now_ms());
            self.writer.write(self.file, None);
        }
    }

    /// Writes what changed and waits for the disk. Only on work threads.
    ///
    /// # Errors
    /// The text for the client.
    pub fn persist_and_wait(&self) -> Result<(), String> {
        self.shared.changed.store(false, Ordering::Release);
        self.shared.version.lock().next(Clock::System.now_ms());
        self.writer.write_and_wait(self.file)
    }
}

/// A group that is ahead of at least one queue: the first of them, and how many there are.
#[derive(Debug, PartialEq, Eq)]
struct Ahead {
    group: String,
    topic: String,
    queue_id: i32,
    offset: i64,
    max: i64,
    queues: usize,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: RandomState::default(),
            resets: AtomicUsize::new(0),
            changed: AtomicBool::new(false),
            version: Mutex::default(),
        }
    }
}

impl Shared {
    fn shard(&self, topic: &str, group: &str) -> &RwLock<Topics> {
        &self.shards[(self.hasher.hash_one((topic, group)) >> 40) as usize % SHARDS]
    }

    fn read<R>(&self, topic: &str, group: &str, queue_id: i32, read: impl FnOnce(&Slot) -> R) -> Option<R> {
        self.shard(topic, group).read().get(topic)?.get(group)?.get(&queue_id).map(read)
    }

    /// The queue's slot, made when it is not there, while nobody else looks at the shard.
    fn write<R>(&self, topic: &str, group: &str, queue_id: i32, write: impl FnOnce(&Slot) -> R) -> R {
        let mut shard = self.shard(topic, group).write();
        let queues = shard.entry(topic.into()).or_default().entry(group.into()).or_default();
        write(queues.entry(queue_id).or_default())
    }

    fn names(&self, pick: impl Fn(&str, &str) -> Option<String>) -> Vec<String> {
        let mut names = BTreeSet::new();
        for shard in &self.shards {
            for (topic, groups) in shard.read().iter() {
                for (group, queues) in groups {
                    if queues.values().any(|slot| some(&slot.committed).is_some()) {
                        names.extend(pick(topic, group));
                    }
                }
            }
        }
        names.into_iter().collect()
    }

    /// `topic@group` → queue → offset.
    fn table(&self) -> BTreeMap<String, BTreeMap<i32, i64>> {
        let mut table = BTreeMap::new();
        for shard in &self.shards {
            for (topic, groups) in shard.read().iter() {
                let entries = groups.iter().map(|(group, queues)| (format!("{topic}@{group}"), committed(queues)));
                table.extend(entries.filter(|(_, queues)| !queues.is_empty()));
            }
        }
        table
    }

    fn to_file_json(&self) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct File {
            data_version: BTreeMap<&'static str, i64>,
            offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
        }
        let version = *self.version.lock();
        to_pretty_json(&File { data_version: version_members(&version), offset_table: self.table() })
    }
}

fn committed(queues: &Map<i32, Slot>) -> BTreeMap<i32, i64> {
    queues.iter().filter_map(|(queue_id, slot)| Some((*queue_id, some(&slot.committed)?))).collect()
}

/// Topic, group, queue id, offset.
type Offsets = Vec<(String, String, i32, i64)>;

fn parse_file(text: &str) -> Result<(Offsets, DataVersion), String> {
    let value = fastjson::parse(text.as_bytes())?;
    if !matches!(value, Value::Object(_)) {
        return Err("no JSON object".to_owned());
    }
    let mut offsets = Vec::new();
    for (key, queues) in value.get("offsetTable").map_or(&[][..], Value::members) {
        let key = key.as_text().unwrap_or_default();
        // A topic holds no `@`; what stands behind the first one is the group, perhaps with a client id (`topic%group%ip@pid`).
        let Some((topic, group)) = key.split_once('@') else {
            log::warn!("an entry of consumerOffset.json is left out, its key names no group: key={key}");
            continue;
        };
        for (queue_id, offset) in queues.members() {
            let queue_id = queue_id.as_i64().and_then(|id| i32::try_from(id).ok());
            let (Some(queue_id), Some(offset)) = (queue_id, offset.as_i64()) else {
                return Err(format!("a queue or an offset of {key} is no number"));
            };
            offsets.push((topic.to_owned(), group.to_owned(), queue_id, offset));
        }
    }
    Ok((offsets, data_version(value.get("dataVersion"))))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn load(folder: &Path) -> (OffsetTable, MetadataWriter) {
        let writer = MetadataWriter::start("").unwrap();
        (OffsetTable::load(&BrokerConfig::new(folder), writer.clone()).unwrap(), writer)
    }

    const JAVA_FILE: &str = "{\n\t\"dataVersion\":{\"counter\":1,\"stateVersion\":0,\"timestamp\":1690000000000},\n\t\"groupTopicMap\":{\"g1\":[\"TopicTest\"]},\n\t\"offsetTable\":{\n\t\t\"TopicTest@g1\":{0:38,1:37,2:38,3:37\n\t\t},\n\t\t\"%RETRY%g1@g1\":{0:0\n\t\t},\n\t\t\"T@T%g%1.2.3.4@77\":{\"5\":6},\n\t\t\"no-group\":{0:1}\n\t}\n}";

    #[test]
    fn groups_ahead_of_their_queues_are_told_once_each() {
        let folder = tempfile::tempdir().unwrap();
        let (offsets, _writer) = load(folder.path());
        for (topic, group, queue_id, offset) in
            [("A", "g", 1, 9), ("A", "g", 0, 8), ("B", "g", 0, 7), ("A", "even", 0, 5), ("A", "new", 0, -1)]
        {
            offsets.commit(topic, group, queue_id, offset);
        }
        let ahead = offsets.ahead(|topic, _| if topic == "A" { 5 } else { 0 });
        let first = Ahead { group: "g".to_owned(), topic: "A".to_owned(), queue_id: 0, offset: 8, max: 5, queues: 3 };
        assert_eq!(ahead, [first]);
        assert_eq!(offsets.get("A", "g", 0), Some(8), "never rewritten");
    }

    #[test]
    fn reads_java_and_writes_for_java() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("config")).unwrap();
        let path = folder.path().join("config/consumerOffset.json");
        fs::write(&path, JAVA_FILE).unwrap();
        let (offsets, writer) = load(folder.path());
        assert_eq!(offsets.queues("TopicTest", "g1"), BTreeMap::from([(0, 38), (1, 37), (2, 38), (3, 37)]));
        assert_eq!(offsets.get("%RETRY%g1", "g1", 0), Some(0));
        assert_eq!(offsets.get("T", "T%g%1.2.3.4@77", 5), Some(6));
        assert_eq!(offsets.topics_of("g1"), ["%RETRY%g1", "TopicTest"]);
        assert_eq!(offsets.groups_of("TopicTest"), ["g1"]);
        offsets.persist();
        writer.shutdown();
        assert_eq!(fs::read_to_string(&path).unwrap(), JAVA_FILE, "nothing changed, nothing is written");

        let (offsets, writer) = load(folder.path());
        assert!(offsets.commit("TopicTest", "g1", 0, 40));
        offsets.persist();
        writer.shutdown();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"TopicTest@g1\":{\n\t\t\t\"0\":40,\n\t\t\t\"1\":37,"), "{text}");
        let (again, _writer) = load(folder.path());
        assert_eq!(again.get("TopicTest", "g1", 0), Some(40));
        assert_eq!(again.get("T", "T%g%1.2.3.4@77", 5), Some(6));
    }

    #[test]
    fn torn_file_falls_back() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("config")).unwrap();
        fs::write(folder.path().join("config/consumerOffset.json.bak"), JAVA_FILE).unwrap();
        fs::write(folder.path().join("config/consumerOffset.json"), &JAVA_FILE[..150]).unwrap();
        assert_eq!(load(folder.path()).0.get("TopicTest", "g1", 2), Some(38));
    }

    #[test]
    fn commits_and_resets() {
        let folder = tempfile::tempdir().unwrap();
        let (offsets, _writer) = load(folder.path());
        assert_eq!(offsets.get("T", "g", 0), None);
        assert!(offsets.commit("T", "g", 0, 9) && offsets.commit("T", "g", 0, 7));
        assert_eq!(offsets.get("T", "g", 0), Some(7));
        assert_eq!(offsets.pending_reset("T", "g", 0), None);
        offsets.reset("T", "g", 0, 3);
        offsets.reset("T", "g", 1, 4);
        assert_eq!((offsets.get("T", "g", 0), offsets.pending_reset("T", "g", 0)), (Some(3), Some(3)));
        assert!(!offsets.commit("T", "g", 0, 8), "acknowledged but ignored");
        assert!(offsets.commit("T", "h", 0, 8), "another group's");
        assert_eq!(offsets.get("T", "g", 0), Some(3));
        assert_eq!((offsets.take_reset("T", "g", 0), offsets.take_reset("T", "g", 0)), (Some(3), None));
        assert!(offsets.commit("T", "g", 0, 8));
        offsets.remove_group("g");
        assert_eq!((offsets.get("T", "g", 0), offsets.take_reset("T", "g", 1)), (None, None));
        assert_eq!(offsets.get("T", "h", 0), Some(8));
        offsets.remove_topic("T");
        assert!(offsets.is_empty() && offsets.shared.resets.load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn wire_form_has_bare_keys() {
        let folder = tempfile::tempdir().unwrap();
        let (offsets, _writer) = load(folder.path());
        offsets.commit("T", "g", 1, 5);
        offsets.commit("T", "g", 0, 6);
        offsets.note_pull("U", "g", 0, 9);
        assert_eq!(offsets.to_json(), r#"{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"offsetTable":{"T@g":{0:6,1:5}}}"#);
        assert_eq!((offsets.pulled("U", "g", 0), offsets.get("U", "g", 0)), (Some(9), None));
        assert_eq!(offsets.topics_of("g"), ["T"]);
    }

    #[test]
    fn behaves_as_a_map() {
        let folder = tempfile::tempdir().unwrap();
        let (offsets, _writer) = load(folder.path());
        let mut stored = BTreeMap::<(String, String, i32), i64>::new();
        let mut pending = BTreeMap::<(String, String, i32), i64>::new();
        let mut random = fastrand::Rng::with_seed(11);
        for step in 0..20_000i64 {
            let key = (format!("T{}", random.u8(0..4)), format!("g{}", random.u8(0..4)), random.i32(0..3));
            let (topic, group, queue) = (key.0.as_str(), key.1.as_str(), key.2);
            match random.u8(0..20) {
                0 => {
                    offsets.reset(topic, group, queue, step);
                    pending.insert(key.clone(), step);
                    stored.insert(key.clone(), step);
                }
                1..=3 => assert_eq!(offsets.take_reset(topic, group, queue), pending.remove(&key), "step {step}"),
                4 if step % 7 == 0 => {
                    offsets.remove_group_on_topic(topic, group);
                    stored.retain(|other, _| (&other.0, &other.1) != (&key.0, &key.1));
                    pending.retain(|other, _| (&other.0, &other.1) != (&key.0, &key.1));
                }
                _ => {
                    let free = !pending.contains_key(&key);
                    assert_eq!(offsets.commit(topic, group, queue, step), free, "step {step}");
                    if free {
                        stored.insert(key.clone(), step);
                    }
                }
            }
            assert_eq!(offsets.get(topic, group, queue), stored.get(&key).copied(), "step {step}");
            assert_eq!(offsets.pending_reset(topic, group, queue), pending.get(&key).copied(), "step {step}");
            assert_eq!(offsets.shared.resets.load(Ordering::Relaxed), pending.len(), "step {step}");
        }
        assert_eq!(offsets.shared.table().values().map(BTreeMap::len).sum::<usize>(), stored.len());
    }
}
