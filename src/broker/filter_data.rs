//! Expressions that groups have subscribed with, and `consumerFilter.json`.
//!
//! What a pull filters by is compiled with the group's subscriptions ([`super::clients`]). This table is a record of it, for
//! administrators and for a broker of the reference that takes the store over: who subscribed with what, since when, and since when no
//! more.
//! - It follows the groups by [`FilterDataTable::sweep`], which a task calls; nothing else changes it.
//! - A group that is not there any more, or subscribes otherwise, is dead; what has been dead for `filterDataCleanTimeSpan` is dropped.
//! - What the file holds is of little worth: a damaged one is kept aside, and the table begins empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::config::broker::BrokerConfig;
use crate::config::config_file::{ConfigFile, MetadataWriter, to_pretty_json};
use crate::filter::Bloom;

use super::clients::ConsumerGroup;

/// Dead entries that are kept at most, the youngest.
const MAX_DEAD: usize = 10_000;
/// When a broker starts, the groups of its file have been dead for so long.
const DEAD_AT_START_MS: i64 = 30_000;

/// A group's expression on a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FilterData {
    bloom_filter_data: BloomData,
    born_time: i64,
    client_version: i64,
    consumer_group: String,
    dead: bool,
    dead_time: i64,
    expression: String,
    expression_type: String,
    topic: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BloomData {
    bit_num: i32,
    bit_pos: Vec<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ByGroup {
    group_filter_data: BTreeMap<String, FilterData>,
    topic: String,
}

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ByTopic {
    filter_data_by_topic: BTreeMap<String, ByGroup>,
}

/// The table.
pub struct FilterDataTable {
    table: Arc<Mutex<ByTopic>>,
    bloom: Bloom,
    clean_span_ms: i64,
    writer: MetadataWriter,
    file: usize,
}

impl FilterDataTable {
    /// Loads the file (or its `.bak`).
    pub(super) fn load(config: &BrokerConfig, writer: MetadataWriter, now_ms: i64) -> Self {
        let file = ConfigFile::of_broker(config, "consumerFilter.json");
        let read = |text: &str| serde_json::from_str::<ByTopic>(text).map_err(|error| error.to_string());
        let mut loaded = file.load_or_begin_anew(read).unwrap_or_default();
        let (error_percent, groups) = config.bloom_filter;
        let bloom = Bloom::new(error_percent, groups);
        for data in loaded.all_mut() {
            data.bloom_filter_data = bloom_data(bloom, &data.consumer_group, &data.topic);
            if data.dead_time == 0 {
                data.dead_time = data.born_time.max(now_ms - DEAD_AT_START_MS);
            }
            data.dead = data.dead_time >= data.born_time;
        }
        let table = Arc::new(Mutex::new(loaded));
        let content = Arc::clone(&table);
        let handle = writer.register(file, Arc::new(move || to_pretty_json(&*content.lock())));
        Self { table, bloom, clean_span_ms: config.filter_data_clean_span_ms, writer, file: handle }
    }

    /// Follows the groups that are online; the file is written if something has changed.
    pub(crate) fn sweep(&self, online: impl Iterator<Item = (Arc<str>, Arc<ConsumerGroup>)>, now_ms: i64) {
        let mut living = BTreeMap::new();
        for (group, known) in online.filter(|(_, known)| !known.expressions.is_empty()) {
            for (topic, _) in known.expressions.iter().filter(|(_, compiled)| compiled.is_ok()) {
                if let Some(subscription) = known.subscriptions.get(topic) {
                    living.insert((topic.clone(), group.to_string()), Arc::clone(subscription));
                }
            }
        }
        let mut table = self.table.lock();
        let mut changed = table.bury(|data| living.contains_key(&(data.topic.clone(), data.consumer_group.clone())), now_ms);
        for ((topic, group), subscription) in living {
            let by_group = table.filter_data_by_topic.entry(topic.clone()).or_insert_with(|| ByGroup { topic, ..ByGroup::default() });
            let data = by_group.group_filter_data.entry(group.clone()).or_default();
            let is_other = data.expression != subscription.sub_string || data.expression_type != subscription.expression_type;
            if is_other {
                *data = FilterData {
                    bloom_filter_data: bloom_data(self.bloom, &group, &subscription.topic),
                    born_time: now_ms,
                    client_version: subscription.sub_version,
                    consumer_group: group,
                    expression: subscription.sub_string.clone(),
                    expression_type: subscription.expression_type.clone(),
                    topic: subscription.topic.clone(),
                    ..FilterData::default()
                };
            }
            changed |= is_other || data.dead || data.client_version != subscription.sub_version;
            (data.dead, data.dead_time, data.client_version) = (false, 0, subscription.sub_version);
        }
        changed |= table.drop_dead(now_ms - self.clean_span_ms);
        drop(table);
        if changed {
            self.writer.write(self.file, None);
        }
    }

    /// What the file says of a group on a topic, as JSON.
    pub(crate) fn get(&self, topic: &str, group: &str) -> Option<FilterData> {
        self.table.lock().filter_data_by_topic.get(topic)?.group_filter_data.get(group).cloned()
    }
}

impl ByTopic {
    fn all_mut(&mut self) -> impl Iterator<Item = &mut FilterData> {
        self.filter_data_by_topic.values_mut().flat_map(|by_group| by_group.group_filter_data.values_mut())
    }

    /// Marks those as dead that do not live; whether there are any.
    fn bury(&mut self, lives: impl Fn(&FilterData) -> bool, now_ms: i64) -> bool {
        let mut any = false;
        for data in self.all_mut().filter(|data| !data.dead && !lives(data)) {
            (data.dead, data.dead_time) = (true, now_ms.max(data.born_time));
            any = true;
        }
        any
    }

    /// Drops what has been dead since `until_ms` or longer, and the longest dead of too many.
    fn drop_dead(&mut self, until_ms: i64) -> bool {
        let mut dead: Vec<i64> = self.all_mut().filter(|data| data.dead).map(|data| data.dead_time).collect();
        dead.sort_unstable_by(|one, other| other.cmp(one));
        let until_ms = dead.get(MAX_DEAD).map_or(until_ms, |too_many| until_ms.max(*too_many));
        if dead.last().is_none_or(|oldest| *oldest > until_ms) {
            return false;
        }
        for by_group in self.filter_data_by_topic.values_mut() {
            by_group.group_filter_data.retain(|_, data| !data.dead || data.dead_time > until_ms);
        }
        self.filter_data_by_topic.retain(|_, by_group| !by_group.group_filter_data.is_empty());
        true
    }
}

fn bloom_data(bloom: Bloom, group: &str, topic: &str) -> BloomData {
    BloomData { bit_num: bloom.bits(), bit_pos: bloom.positions(group, topic) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::clients::Expressions;
    use crate::broker::expressions::compile;
    use crate::common::subscription::{SQL92, SubscriptionData};

    /// As the reference writes it.
    const JAVA_FILE: &str = "{\n\t\"filterDataByTopic\":{\n\t\t\"T\":{\n\t\t\t\"groupFilterData\":{\n\t\t\t\t\"g\":{\n\t\t\t\t\t\"bloomFilterData\":{\n\t\t\t\t\t\t\"bitNum\":112,\n\t\t\t\t\t\t\"bitPos\":[\n\t\t\t\t\t\t\t90,\n\t\t\t\t\t\t\t68,\n\t\t\t\t\t\t\t28\n\t\t\t\t\t\t]\n\t\t\t\t\t},\n\t\t\t\t\t\"bornTime\":1000,\n\t\t\t\t\t\"clientVersion\":7,\n\t\t\t\t\t\"consumerGroup\":\"g\",\n\t\t\t\t\t\"dead\":false,\n\t\t\t\t\t\"deadTime\":0,\n\t\t\t\t\t\"expression\":\"a > 1\",\n\t\t\t\t\t\"expressionType\":\"SQL92\",\n\t\t\t\t\t\"topic\":\"T\"\n\t\t\t\t}\n\t\t\t},\n\t\t\t\"topic\":\"T\"\n\t\t}\n\t}\n}";

    fn table(folder: &tempfile::TempDir, now_ms: i64) -> (FilterDataTable, MetadataWriter) {
        let writer = MetadataWriter::start("").unwrap();
        (FilterDataTable::load(&BrokerConfig::new(folder.path()), writer.clone(), now_ms), writer)
    }

    fn online(group: &str, topic: &str, expression: &str, version: i64) -> (Arc<str>, Arc<ConsumerGroup>) {
        let subscription = Arc::new(SubscriptionData::parse(topic, expression, SQL92, version).unwrap());
        let expressions = Expressions::from([(topic.to_owned(), compile(expression).map(Arc::new))]);
        let mut known = ConsumerGroup::default();
        known.subscriptions = Arc::new([(topic.to_owned(), subscription)].into());
        known.expressions = Arc::new(expressions);
        (group.into(), Arc::new(known))
    }

    #[test]
    fn the_file_is_that_of_the_reference() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config/consumerFilter.json");
        let (filters, writer) = table(&folder, 1_000);
        filters.sweep(std::iter::empty(), 1_000);
        filters.sweep([online("g", "T", "a > 1", 7)].into_iter(), 1_000);
        writer.shutdown();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), JAVA_FILE);
        let (filters, writer) = table(&folder, 50_000);
        let loaded = filters.get("T", "g").unwrap();
        assert_eq!((loaded.dead, loaded.dead_time, loaded.expression.as_str()), (true, 20_000, "a > 1"));
        filters.sweep([online("g", "T", "a > 1", 7)].into_iter(), 60_000);
        let alive = filters.get("T", "g").unwrap();
        assert_eq!((alive.dead, alive.dead_time, alive.born_time), (false, 0, 1_000));
        writer.shutdown();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), JAVA_FILE);
    }

    #[test]
    fn who_leaves_is_dead_and_dropped_a_day_later() {
        let folder = tempfile::tempdir().unwrap();
        let (filters, writer) = table(&folder, 0);
        filters.sweep([online("g", "T", "a > 1", 1), online("h", "T", "a > 2", 1)].into_iter(), 10);
        filters.sweep([online("h", "T", "a > 3", 2)].into_iter(), 20);
        let (g, h) = (filters.get("T", "g").unwrap(), filters.get("T", "h").unwrap());
        assert_eq!((g.dead, g.dead_time), (true, 20));
        assert_eq!((h.dead, h.born_time, h.client_version, h.expression.as_str()), (false, 20, 2, "a > 3"));
        filters.sweep([online("h", "T", "a >", 3)].into_iter(), 30);
        assert!(filters.get("T", "h").unwrap().dead, "an expression that cannot be read is none");
        let day = 86_400_000;
        filters.sweep(std::iter::empty(), 19 + day);
        assert!(filters.get("T", "g").is_some());
        filters.sweep(std::iter::empty(), 20 + day);
        assert!(filters.get("T", "g").is_none() && filters.get("T", "h").is_some());
        filters.sweep(std::iter::empty(), 30 + day);
        assert_eq!(*filters.table.lock(), ByTopic::default());
        writer.shutdown();
    }

    #[test]
    fn a_damaged_file_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("config")).unwrap();
        std::fs::write(folder.path().join("config/consumerFilter.json"), "{\"filterDataByTopic\":[").unwrap();
        let (filters, writer) = table(&folder, 0);
        assert!(filters.get("T", "g").is_none());
        writer.shutdown();
    }
}
