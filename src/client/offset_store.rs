//! Where a consumer's progress is kept: at the broker (clustering), in a file (broadcasting), or nowhere.
//!
//! - `update` is cheap and only remembers; `persist` carries out what changed since the last time.
//! - The file has Java's form (`{"offsetTable":{{queue}:offset,…}}`) and is replaced atomically; the one before is kept as `.bak`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::remoting::body::queue::{MessageQueue, write_queue_map};
use crate::remoting::fastjson;

use super::error::ClientError;
use super::instance::Instance;
use super::queue_api;

/// Offsets of one group on this client.
pub(super) struct OffsetStore {
    place: Place,
    table: Mutex<HashMap<MessageQueue, Entry>>,
}

/// Where offsets are kept.
pub(super) enum Place {
    /// At the broker, for the group; whether a broker may say 0 for a group without an offset while the queue is young.
    Broker { group: String, young_is_zero: bool },
    /// In this file.
    File(PathBuf),
    /// Nowhere: a reader that commits nothing.
    Nowhere,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: i64,
    persisted: bool,
}

impl OffsetStore {
    /// A store; a file is read at once.
    ///
    /// # Errors
    /// [`ClientError::Local`] when the file is there and neither it nor its `.bak` can be read.
    pub(super) fn open(place: Place) -> Result<Self, ClientError> {
        let mut table = HashMap::new();
        if let Place::File(path) = &place {
            for (queue, offset) in load(path)? {
                table.insert(queue, Entry { offset, persisted: true });
            }
        }
        Ok(Self { place, table: Mutex::new(table) })
    }

    /// Offset to go on from; `None` when nothing is known of the queue.
    ///
    /// # Errors
    /// The broker's.
    pub(super) fn read(&self, instance: &Instance, queue: &MessageQueue) -> Result<Option<i64>, ClientError> {
        match &self.place {
            Place::Broker { group, young_is_zero } => match self.unsaved(queue) {
                Some(offset) => Ok(Some(offset)), // a commit that failed is still to be made
                None => queue_api::committed(instance, group, queue, *young_is_zero),
            },
            Place::File(_) => Ok(self.table.lock().get(queue).map(|entry| entry.offset)),
            Place::Nowhere => Ok(None),
        }
    }

    /// Remembers an offset.
    pub(super) fn update(&self, queue: &MessageQueue, offset: i64) {
        let mut table = self.table.lock();
        match table.get_mut(queue) {
            Some(entry) if entry.offset == offset => {}
            Some(entry) => *entry = Entry { offset, persisted: false },
            None => {
                table.insert(queue.clone(), Entry { offset, persisted: false });
            }
        }
    }

    /// Whether pulls should carry the position along.
    pub(super) fn commits_with_pulls(&self) -> bool {
        matches!(self.place, Place::Broker { .. })
    }

    fn unsaved(&self, queue: &MessageQueue) -> Option<i64> {
        self.table.lock().get(queue).filter(|entry| !entry.persisted).map(|entry| entry.offset)
    }

    /// Carries out what changed; what fails is tried again next time. A broker that is not reached is asked once, not for every queue.
    ///
    /// # Errors
    /// The last failure; all have been logged.
    pub(super) fn persist(&self, instance: &Instance) -> Result<(), ClientError> {
        let changed: Vec<(MessageQueue, i64)> =
            self.table.lock().iter().filter(|(_, entry)| !entry.persisted).map(|(queue, entry)| (queue.clone(), entry.offset)).collect();
        if changed.is_empty() {
            return Ok(());
        }
        match &self.place {
            Place::Broker { group, .. } => self.commit(instance, group, &changed),
            Place::File(path) => {
                let all: BTreeMap<MessageQueue, i64> =
                    self.table.lock().iter().map(|(queue, entry)| (queue.clone(), entry.offset)).collect();
                match save(path, &all) {
                    Ok(()) => {
                        all.iter().for_each(|(queue, offset)| self.persisted(queue, *offset));
                        Ok(())
                    }
                    Err(error) => {
                        log::warn!("offsets not saved: file={} error={error}", path.display());
                        Err(ClientError::Local(format!("offsets not saved to {}: {error}", path.display())))
                    }
                }
            }
            Place::Nowhere => Ok(()),
        }
    }

    fn commit(&self, instance: &Instance, group: &str, changed: &[(MessageQueue, i64)]) -> Result<(), ClientError> {
        let mut outcome = Ok(());
        let mut away = BTreeSet::new();
        for (queue, offset) in changed {
            if away.contains(&queue.broker_name) {
                continue;
            }
            match queue_api::commit(instance, group, queue, *offset) {
                Ok(()) => self.persisted(queue, *offset),
                Err(error) => {
                    log::warn!("offset not committed: group={group} queue={queue:?} offset={offset} error={error}");
                    if matches!(error, ClientError::Invoke(_)) {
                        away.insert(&queue.broker_name);
                    }
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    /// Forgets a queue that another member consumes now; its offset has been persisted before. A file keeps all it knows.
    pub(super) fn forget(&self, queue: &MessageQueue) {
        if !matches!(self.place, Place::File(_)) {
            self.table.lock().remove(queue);
        }
    }

    fn persisted(&self, queue: &MessageQueue, offset: i64) {
        if let Some(entry) = self.table.lock().get_mut(queue)
            && entry.offset == offset
        {
            entry.persisted = true;
        }
    }
}

fn backup(path: &Path) -> PathBuf {
    path.with_extension("json.bak")
}

fn load(path: &Path) -> Result<Vec<(MessageQueue, i64)>, ClientError> {
    let read = |path: &Path| -> Result<Vec<(MessageQueue, i64)>, String> {
        let text = fs::read(path).map_err(|error| error.to_string())?;
        let value = fastjson::parse(&text)?;
        let table = value.get("offsetTable").ok_or("offsetTable is missing")?;
        table
            .members()
            .iter()
            .map(|(queue, offset)| Ok((MessageQueue::from_value(queue), offset.as_i64().ok_or("an offset is no number")?)))
            .collect()
    };
    if !path.exists() && !backup(path).exists() {
        return Ok(Vec::new());
    }
    read(path).or_else(|first| {
        log::warn!("offset file is not readable, its backup is used: file={} error={first}", path.display());
        read(&backup(path)).map_err(|second| ClientError::Local(format!("offsets of {}: {first}; of its .bak: {second}", path.display())))
    })
}

fn save(path: &Path, offsets: &BTreeMap<MessageQueue, i64>) -> std::io::Result<()> {
    let mut text = String::from("{\"offsetTable\":");
    write_queue_map(&mut text, offsets.iter(), |out, offset| out.push_str(itoa::Buffer::new().format(*offset)));
    text.push('}');
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension("json.tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    if path.exists() {
        fs::rename(path, backup(path))?;
    }
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::super::fake::{self, Fake};
    use super::*;
    use crate::remoting::code::request;

    fn queue(id: i32) -> MessageQueue {
        MessageQueue { topic: "T".into(), broker_name: "a".into(), queue_id: id }
    }

    #[test]
    fn a_file_survives_a_restart_and_its_backup_a_damage() {
        let fake = Fake::new(|_| fake::ok());
        let instance = fake.instance();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("g").join("offsets.json");
        let store = OffsetStore::open(Place::File(path.clone())).unwrap();
        assert_eq!(store.read(&instance, &queue(0)).unwrap(), None);
        store.update(&queue(0), 5);
        store.update(&queue(1), 7);
        store.persist(&instance).unwrap();
        store.update(&queue(0), 6);
        store.persist(&instance).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("{\"offsetTable\":{{\"brokerName\":\"a\",\"queueId\":0,\"topic\":\"T\"}:6,"), "{text}");
        let again = OffsetStore::open(Place::File(path.clone())).unwrap();
        assert_eq!(again.read(&instance, &queue(0)).unwrap(), Some(6));
        assert_eq!(again.read(&instance, &queue(1)).unwrap(), Some(7));
        fs::write(&path, "{").unwrap();
        assert_eq!(OffsetStore::open(Place::File(path.clone())).unwrap().read(&instance, &queue(0)).unwrap(), Some(5));
        fs::write(backup(&path), "{").unwrap();
        assert!(OffsetStore::open(Place::File(path)).is_err());
    }

    #[test]
    fn only_changes_go_to_the_broker_and_failures_are_repeated() {
        let refuse = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let refused = refuse.clone();
        let fake = Fake::new(move |call| match call.code {
            request::GET_ROUTEINFO_BY_TOPIC => fake::route(&[("a", "a:1")], 2),
            request::QUERY_CONSUMER_OFFSET if call.field("queueId") == "0" => fake::answer(0, None, &[("offset", "9")], Vec::new()),
            request::QUERY_CONSUMER_OFFSET => fake::refusal(22, "not found"),
            _ if refused.load(std::sync::atomic::Ordering::Relaxed) => fake::refusal(1, "no"),
            _ => fake::ok(),
        });
        let instance = fake.instance();
        let store = OffsetStore::open(Place::Broker { group: "g".into(), young_is_zero: true }).unwrap();
        assert_eq!(store.read(&instance, &queue(0)).unwrap(), Some(9));
        assert_eq!(store.read(&instance, &queue(1)).unwrap(), None);
        store.update(&queue(0), 10);
        assert_eq!(store.persist(&instance).unwrap_err().code(), Some(1));
        assert_eq!(store.read(&instance, &queue(0)).unwrap(), Some(10), "what the broker does not know yet counts");
        refuse.store(false, std::sync::atomic::Ordering::Relaxed);
        store.persist(&instance).unwrap();
        store.persist(&instance).unwrap();
        let commits = fake.calls_of(request::UPDATE_CONSUMER_OFFSET);
        assert_eq!(commits.len(), 2, "refused once, taken once, nothing to do the third time");
        assert_eq!((commits[1].field("commitOffset").as_str(), commits[1].field("consumerGroup").as_str()), ("10", "g"));
    }
}
