//! The consumer-group table and `subscriptionGroup.json`, with the prohibitions (353) and request modes (401) of groups.
//!
//! - A look-up takes no lock. A change is visible at once; the calls that promise durability return once the file holds it.
//! - A group that a client brings into being is written in the background: it would come into being again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::Serialize;

use crate::common::subscription::SubscriptionGroupConfig;
use crate::common::topic::{DataVersion, PERM_READ, check_group};
use crate::config::broker::BrokerConfig;
use crate::config::config_file::{ConfigFile, MetadataWriter, Persisted, to_pretty_json};
use crate::remoting::body::group::{ForbiddenTable, forbidden_table, group_config_table};
use crate::remoting::body::topic::data_version;
use crate::remoting::fastjson;

use super::request_mode::RequestModes;
use super::table::{Change, NameTable};
use super::topic::version_members;

/// Prefix of groups that always exist once used.
const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";
const SYSTEM_GROUPS: [&str; 8] = [
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
];
/// Bit of a prohibition to consume: the reference numbers them as the permission bits.
const FORBIDDEN_READ: i32 = PERM_READ;

/// Consumer groups of a broker.
pub struct GroupTable {
    shared: Arc<Shared>,
    auto_create: AtomicBool,
    request_modes: RequestModes,
    writer: MetadataWriter,
    file: usize,
}

struct Shared {
    groups: NameTable<Arc<SubscriptionGroupConfig>>,
    /// Empty nearly always; replaced whole.
    forbidden: ArcSwap<ForbiddenTable>,
    version: Mutex<DataVersion>,
}

impl GroupTable {
    /// Loads `config/subscriptionGroup.json` and `config/messageRequestMode.json` (or their `.bak`) over the system groups.
    ///
    /// # Errors
    /// Both copies are unreadable.
    pub fn load(config: &BrokerConfig, writer: MetadataWriter, now_ms: i64) -> std::io::Result<Self> {
        let file = ConfigFile::of_broker(config, "subscriptionGroup.json");
        let loaded = file.load(parse_file)?;
        let (stored, forbidden, version) =
            loaded.unwrap_or_else(|| (Vec::new(), ForbiddenTable::new(), DataVersion { timestamp: now_ms, ..DataVersion::default() }));
        let groups = NameTable::default();
        let made = SYSTEM_GROUPS.iter().map(|name| system_group(name));
        groups.extend(made.chain(stored).map(|group| (group.group_name.as_str().into(), Arc::new(group))));
        let shared = Arc::new(Shared { groups, forbidden: ArcSwap::from_pointee(forbidden), version: Mutex::new(version) });
        let content = Arc::clone(&shared);
        let handle = writer.register(file, Arc::new(move || content.to_json()));
        let request_modes = RequestModes::load(config, writer.clone())?;
        Ok(Self { shared, auto_create: AtomicBool::new(config.auto_create_subscription_group), request_modes, writer, file: handle })
    }

    /// A group's configuration if it exists.
    pub fn get(&self, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        self.shared.groups.get(group)
    }

    /// Switches `autoCreateSubscriptionGroup`.
    pub fn set_auto_create(&self, enabled: bool) {
        self.auto_create.store(enabled, Ordering::Relaxed);
    }

    /// How groups ask for messages when the broker assigns their queues.
    pub fn request_modes(&self) -> &RequestModes {
        &self.request_modes
    }

    /// A group's configuration, created by default when allowed and the name is legal. Its file follows in the background.
    pub fn find_or_create(&self, group: &str, now_ms: i64) -> Option<Arc<SubscriptionGroupConfig>> {
        self.find_or_create_flagged(group, now_ms).map(|(config, _)| config)
    }

    /// As [`GroupTable::find_or_create`]; the flag says whether the group was created.
    pub fn find_or_create_flagged(&self, group: &str, now_ms: i64) -> Option<(Arc<SubscriptionGroupConfig>, bool)> {
        if let Some(existing) = self.get(group) {
            return Some((existing, false));
        }
        let allowed = self.auto_create.load(Ordering::Relaxed) || group.starts_with(SYSTEM_GROUP_PREFIX);
        if !allowed || check_group(group).is_err() {
            return None;
        }
        let (config, created) = self.shared.groups.change(group, |existing| match existing {
            Some(existing) => (Change::Keep, (Arc::clone(existing), false)),
            None => {
                let created = Arc::new(SubscriptionGroupConfig { group_name: group.to_owned(), ..SubscriptionGroupConfig::default() });
                (Change::Put(Arc::clone(&created)), (created, true))
            }
        });
        if created {
            log::info!("group created: group={group}");
            self.shared.version.lock().next(now_ms);
            self.writer.write(self.file, None);
        }
        Some((config, created))
    }

    /// Calls `done` once everything changed before this call is in the file, or could not be written. Does not block.
    pub fn when_durable(&self, done: Persisted) {
        self.writer.write(self.file, Some(done));
    }

    /// Creates or replaces. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn update(&self, config: SubscriptionGroupConfig, now_ms: i64) -> Result<(), String> {
        self.update_all(vec![config], now_ms)
    }

    /// Creates or replaces several with one write. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn update_all(&self, configs: Vec<SubscriptionGroupConfig>, now_ms: i64) -> Result<(), String> {
        for config in configs {
            let name = config.group_name.clone();
            self.shared.groups.change(&name, |existing| {
                log::info!("group stored: before={existing:?} after={config:?}");
                (Change::Put(Arc::new(config)), ())
            });
        }
        self.shared.version.lock().next(now_ms);
        self.writer.write_and_wait(self.file)
    }

    /// Removes; false when it was not there. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn delete(&self, group: &str, now_ms: i64) -> Result<bool, String> {
        let removed = self.shared.groups.change(group, |existing| (Change::Remove, existing.is_some()));
        self.shared.change_forbidden(|table| table.remove(group).is_some());
        if removed {
            log::info!("group deleted: group={group}");
            self.shared.version.lock().next(now_ms);
            self.writer.write_and_wait(self.file)?;
        }
        Ok(removed)
    }

    /// All groups, by name.
    pub fn all(&self) -> Vec<Arc<SubscriptionGroupConfig>> {
        self.shared.groups.entries().into_iter().map(|(_, group)| group).collect()
    }

    /// Version of the table.
    pub fn data_version(&self) -> DataVersion {
        *self.shared.version.lock()
    }

    /// The prohibitions.
    pub fn forbidden(&self) -> Arc<ForbiddenTable> {
        self.shared.forbidden.load_full()
    }

    /// Whether the group may not consume the topic (request 353).
    pub fn is_forbidden(&self, group: &str, topic: &str) -> bool {
        let table = self.shared.forbidden.load();
        table.get(group).and_then(|topics| topics.get(topic)).is_some_and(|bits| bits & FORBIDDEN_READ != 0)
    }

    /// Forbids or allows (request 353). Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn set_forbidden(&self, group: &str, topic: &str, forbidden: bool, now_ms: i64) -> Result<(), String> {
        let changed = self.shared.change_forbidden(|table| {
            let topics = table.entry(group.to_owned()).or_default();
            let before = topics.get(topic).copied().unwrap_or(0);
            let after = if forbidden { before | FORBIDDEN_READ } else { before & !FORBIDDEN_READ };
            if after == 0 {
                topics.remove(topic);
            } else {
                topics.insert(topic.to_owned(), after);
            }
            if topics.is_empty() {
                table.remove(group);
            }
            before != after
        });
        if !changed {
            return Ok(());
        }
        log::info!("consumption of a topic by a group: group={group} topic={topic} forbidden={forbidden}");
        self.shared.version.lock().next(now_ms);
        self.writer.write_and_wait(self.file)
    }
}

impl Shared {
    /// Replaces the prohibitions by an altered copy; `alter` says whether it altered anything.
    fn change_forbidden(&self, alter: impl Fn(&mut ForbiddenTable) -> bool) -> bool {
        let mut changed = false;
        self.forbidden.rcu(|table| {
            let mut next = ForbiddenTable::clone(table);
            changed = alter(&mut next);
            next
        });
        changed
    }

    fn to_json(&self) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct File<'a> {
            data_version: BTreeMap<&'static str, i64>,
            forbidden_table: &'a ForbiddenTable,
            subscription_group_table: BTreeMap<&'a str, &'a SubscriptionGroupConfig>,
        }
        let version = *self.version.lock();
        let groups = self.groups.entries();
        to_pretty_json(&File {
            data_version: version_members(&version),
            forbidden_table: &self.forbidden.load(),
            subscription_group_table: groups.iter().map(|(name, group)| (&**name, &**group)).collect(),
        })
    }
}

type Loaded = (Vec<SubscriptionGroupConfig>, ForbiddenTable, DataVersion);

fn parse_file(text: &str) -> Result<Loaded, String> {
    let value = fastjson::parse(text.as_bytes())?;
    if !matches!(value, fastjson::Value::Object(_)) {
        return Err("no JSON object".to_owned());
    }
    Ok((group_config_table(&value)?, forbidden_table(&value), data_version(value.get("dataVersion"))))
}

fn system_group(name: &str) -> SubscriptionGroupConfig {
    SubscriptionGroupConfig { group_name: name.to_owned(), ..SubscriptionGroupConfig::default() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn load(folder: &tempfile::TempDir) -> GroupTable {
        load_with(&BrokerConfig::new(folder.path()))
    }

    fn load_with(config: &BrokerConfig) -> GroupTable {
        GroupTable::load(config, MetadataWriter::start("").unwrap(), 1_000).unwrap()
    }

    #[test]
    fn system_groups_and_auto_creation() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = BrokerConfig::new(folder.path());
        let groups = load_with(&config);
        assert_eq!(groups.all().len(), 8);
        assert!(groups.get("TOOLS_CONSUMER").is_some());
        assert!(groups.get("g").is_none());
        let (created, flag) = groups.find_or_create_flagged("g", 2_000).unwrap();
        assert!(flag && created.retry_max_times == 16 && created.retry_queue_nums == 1);
        assert!(!groups.find_or_create_flagged("g", 2_001).unwrap().1);
        assert_eq!(groups.data_version(), DataVersion { state_version: 0, counter: 1, timestamp: 2_000 });
        assert!(groups.find_or_create("a b", 0).is_none());
        assert!(groups.find_or_create(&"g".repeat(121), 0).is_none());
        config.auto_create_subscription_group = false;
        let groups = load_with(&config);
        assert!(groups.find_or_create("new", 0).is_none());
        assert!(groups.find_or_create("CID_RMQ_SYS_x", 0).is_some());
    }

    #[test]
    fn reads_java_and_writes_for_java() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("config")).unwrap();
        fs::write(folder.path().join("config/subscriptionGroup.json"), "{\n\t\"dataVersion\":{\"counter\":2,\"stateVersion\":0,\"timestamp\":5},\n\t\"forbiddenTable\":{\"g\":{\"T\":4}},\n\t\"subscriptionGroupTable\":{\n\t\t\"g\":{\n\t\t\t\"attributes\":{},\n\t\t\t\"brokerId\":0,\n\t\t\t\"consumeEnable\":false,\n\t\t\t\"groupName\":\"g\",\n\t\t\t\"groupRetryPolicy\":{\"type\":\"CUSTOMIZED\"},\n\t\t\t\"retryMaxTimes\":3\n\t\t}\n\t}\n}").unwrap();
        let groups = load(&folder);
        let group = groups.get("g").unwrap();
        assert_eq!((group.consume_enable, group.retry_max_times, group.consume_broadcast_enable), (false, 3, true));
        assert!(groups.is_forbidden("g", "T") && !groups.is_forbidden("g", "U") && !groups.is_forbidden("h", "T"));
        groups.update(SubscriptionGroupConfig { group_name: "h".to_owned(), ..SubscriptionGroupConfig::default() }, 9).unwrap();
        let again = load(&folder);
        assert_eq!(again.all(), groups.all());
        assert_eq!(again.data_version(), DataVersion { state_version: 0, counter: 3, timestamp: 9 });
        assert!(again.is_forbidden("g", "T"));
        let text = fs::read_to_string(folder.path().join("config/subscriptionGroup.json")).unwrap();
        assert!(text.contains("\"groupRetryPolicy\":{\n") && text.contains("\"forbiddenTable\":{\n\t\t\"g\":{\n\t\t\t\"T\":4"), "{text}");
    }

    #[test]
    fn prohibitions_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let groups = load(&folder);
        groups.set_forbidden("g", "T", true, 1).unwrap();
        assert!(load(&folder).is_forbidden("g", "T"));
        groups.set_forbidden("g", "T", false, 2).unwrap();
        groups.set_forbidden("g", "T", false, 3).unwrap();
        assert!(groups.forbidden().is_empty() && !load(&folder).is_forbidden("g", "T"));
        assert_eq!(groups.data_version().counter, 2, "what is so already is no change");
        groups.set_forbidden("g", "T", true, 4).unwrap();
        groups.find_or_create("g", 5);
        assert!(groups.delete("g", 6).unwrap() && !groups.delete("g", 7).unwrap());
        assert!(!groups.is_forbidden("g", "T") && load(&folder).get("g").is_none());
    }
}
