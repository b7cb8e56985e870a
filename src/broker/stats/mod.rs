//! Counters and rates: statistic items by name and key (`BrokerStatsManager`), totals of the broker, today and yesterday.
//!
//! - Counting takes no lock: it adds to the numbers of one queue, found by lock-free look-ups, and to the totals of its thread's stripe.
//!   What a topic or a group amounts to is summed up when it is asked for or sampled.
//! - Items come into being with their first event and go with their topic or group.

mod totals;
mod window;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::common::topic::is_system_topic;
use crate::config::broker::BrokerConfig;
use crate::config::config_file::{ConfigFile, MetadataWriter};

use super::table::{Change, NameTable};

use totals::{Days, Stripes};
pub use totals::{PutLatency, Totals};
use window::{History, Ticks, Value};
pub use window::{WindowValue, Windows};

/// Points of the totals that are kept: 600 s and one more.
const MAX_RATE_POINTS: usize = 61;
/// Samples between two writes of `stats.json`.
const SAMPLES_PER_WRITE: u64 = 6;

/// Statistics of one broker.
#[derive(Default)]
pub struct BrokerStats {
    topics: NameTable<Arc<TopicStats>>,
    totals: Stripes,
    broker: Mutex<BrokerHistory>,
    latency: PutLatency,
    /// Milliseconds of the last sample.
    sampled_ms: AtomicI64,
    samples: AtomicU64,
    days: Arc<Mutex<Days>>,
    /// Numbers that were written last.
    written: Mutex<[(u64, u64, u64); 2]>,
    file: Option<(MetadataWriter, usize)>,
}

#[derive(Default)]
struct BrokerHistory {
    ticks: Ticks,
    /// Totals every 10 s, the newest last.
    rates: VecDeque<(i64, Totals)>,
    put: History,
    get: History,
    user_put: History,
    user_get: History,
}

struct TopicStats {
    is_system: bool,
    put: QueueFlows,
    put_history: Mutex<History>,
    groups: ByName<GroupStats>,
}

struct GroupStats {
    get: QueueFlows,
    get_history: Mutex<History>,
    sent_back: Flow,
    dead: Flow,
}

/// Statistics by group. A topic has few groups: one small map, copied when a group comes or goes.
struct ByName<V>(ArcSwap<HashMap<Arc<str>, Arc<V>, RandomState>>);

/// Flows by queue id; grows only.
struct QueueFlows(ArcSwap<HashMap<i32, Arc<Flow>, RandomState>>);

/// What went through one place.
struct Flow {
    messages: AtomicU64,
    bytes: AtomicU64,
    calls: AtomicU64,
    history: Mutex<History>,
}

impl BrokerStats {
    /// Statistics whose daily totals go on over restarts (`config/stats.json`), or begin anew with a warning when the file is damaged.
    pub fn load(config: &BrokerConfig, writer: MetadataWriter, now_ms: i64) -> Self {
        let file = ConfigFile::of_broker(config, "stats.json");
        let days = file.load_or_begin_anew(Days::parse).unwrap_or_default().resume(now_ms);
        let days = Arc::new(Mutex::new(days));
        let content = Arc::clone(&days);
        let handle = writer.register(file, Arc::new(move || content.lock().to_json()));
        let written = Mutex::new(days.lock().numbers());
        let stats = Self { days, written, file: Some((writer, handle)), ..Self::default() };
        stats.sample(now_ms);
        stats
    }

    /// Messages of `bytes` in all (their records) were stored by one request.
    pub fn put(&self, topic: &str, queue_id: i32, messages: u64, bytes: u64) {
        let is_system = self.with_topic(topic, |stats| {
            stats.put.add(queue_id, messages, bytes, self.sampled_ms.load(Relaxed));
            stats.is_system
        });
        self.totals.put(messages, bytes, is_system);
    }

    /// A message could not be stored.
    pub fn put_failed(&self) {
        self.totals.put_failed();
    }

    /// Storing took so long, from the request to its durability.
    pub fn put_took(&self, ms: u64) {
        self.latency.add(ms);
    }

    /// Messages were handed to a consumer.
    pub fn got(&self, topic: &str, queue_id: i32, group: &str, messages: u64, bytes: u64) {
        let is_system = self.with_topic(topic, |stats| {
            let group = stats.group(group, self.sampled_ms.load(Relaxed));
            group.get.add(queue_id, messages, bytes, self.sampled_ms.load(Relaxed));
            stats.is_system
        });
        self.totals.got(messages, bytes, is_system);
    }

    /// A pull found nothing.
    pub fn missed(&self) {
        self.totals.missed();
    }

    /// A message was sent back.
    pub fn sent_back(&self, topic: &str, group: &str) {
        self.with_topic(topic, |stats| stats.group(group, self.sampled_ms.load(Relaxed)).sent_back.add(1, 0));
    }

    /// A message went to a dead-letter topic.
    pub fn dead_letter(&self, topic: &str, group: &str) {
        self.with_topic(topic, |stats| stats.group(group, self.sampled_ms.load(Relaxed)).dead.add(1, 0));
    }

    /// A topic is gone, and its items with it.
    pub fn topic_deleted(&self, topic: &str) {
        self.topics.change(topic, |_| (Change::Remove, ()));
    }

    /// A group is gone, and its items with it.
    pub fn group_deleted(&self, group: &str) {
        for (_, topic) in self.topics.entries() {
            topic.groups.remove(group);
        }
    }

    /// Samples the windows; called every 10 s.
    pub fn sample(&self, now_ms: i64) {
        self.sampled_ms.store(now_ms, Relaxed);
        let totals = self.totals.sum();
        let mut broker = self.broker.lock();
        let broker = &mut *broker;
        let due = broker.ticks.tick(now_ms);
        broker.rates.push_back((now_ms, totals));
        while broker.rates.len() > MAX_RATE_POINTS {
            broker.rates.pop_front();
        }
        for (history, value) in [
            (&mut broker.put, totals.put_messages),
            (&mut broker.get, totals.get_messages),
            (&mut broker.user_put, totals.user_put_messages),
            (&mut broker.user_get, totals.user_get_messages),
        ] {
            history.note(&broker.ticks, due, now_ms, Value { messages: value, bytes: 0, calls: 0 });
        }
        for (_, topic) in self.topics.entries() {
            topic.sample(&broker.ticks, due, now_ms);
        }
        self.days.lock().advance(now_ms, &totals);
        if self.samples.fetch_add(1, Relaxed).is_multiple_of(SAMPLES_PER_WRITE) {
            self.latency.next_minute();
            self.persist();
        }
    }

    /// Writes the daily totals in the background, if they have changed.
    pub fn persist(&self) {
        let Some((writer, file)) = &self.file else { return };
        let mut days = self.days.lock();
        days.advance(self.sampled_ms.load(Relaxed), &self.totals.sum());
        if std::mem::replace(&mut *self.written.lock(), days.numbers()) != days.numbers() {
            writer.write(*file, None);
        }
    }

    /// A statistic item (request 315); `None` when nothing of it was counted yet, or it is unknown. `cluster` is the key of the
    /// broker's own items.
    pub fn view(&self, name: &str, key: &str, cluster: &str, now_ms: i64) -> Option<Windows> {
        let messages: fn(Value) -> u64 = |value| value.messages;
        let bytes: fn(Value) -> u64 = |value| value.bytes;
        match name {
            "TOPIC_PUT_NUMS" => self.topic_put(key, now_ms, messages),
            "TOPIC_PUT_SIZE" => self.topic_put(key, now_ms, bytes),
            "GROUP_GET_NUMS" => self.of_group(key, |group, ticks| group.windows(ticks, now_ms, messages)),
            "GROUP_GET_SIZE" => self.of_group(key, |group, ticks| group.windows(ticks, now_ms, bytes)),
            "SNDBCK_PUT_NUMS" => self.of_group(key, |group, ticks| group.sent_back.windows(ticks, now_ms, messages)),
            "DLQ_PUT_NUMS" | "SNDBCK2DLQ_TIMES" => self.of_group(key, |group, ticks| group.dead.windows(ticks, now_ms, messages)),
            "QUEUE_PUT_NUMS" => self.queue_put(key, now_ms, messages),
            "QUEUE_PUT_SIZE" => self.queue_put(key, now_ms, bytes),
            "QUEUE_GET_NUMS" => self.queue_get(key, now_ms, messages),
            "QUEUE_GET_SIZE" => self.queue_get(key, now_ms, bytes),
            "BROKER_PUT_NUMS" | "BROKER_GET_NUMS" | "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC" | "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC" => {
                (key == cluster).then(|| self.broker(name, now_ms))?
            }
            _ => None,
        }
    }

    /// Messages per second that were stored on a topic in the last minute.
    pub fn topic_put_tps(&self, topic: &str, now_ms: i64) -> f64 {
        self.topic_put(topic, now_ms, |value| value.messages).map_or(0.0, |windows| windows.minute.tps)
    }

    /// Messages per second that a group was handed of a topic in the last minute.
    pub fn group_get_tps(&self, topic: &str, group: &str, now_ms: i64) -> f64 {
        let group = self.topics.get(topic).and_then(|topic| topic.groups.get(group));
        let windows = group.and_then(|group| group.windows(&self.broker.lock().ticks, now_ms, |value| value.messages));
        windows.map_or(0.0, |windows| windows.minute.tps)
    }

    /// Totals since the start.
    pub fn totals(&self) -> Totals {
        self.totals.sum()
    }

    /// What `read` gives, per second, over the last 10, 60 and 600 seconds (as far as there is a past).
    pub fn rates(&self, now_ms: i64, read: impl Fn(&Totals) -> u64) -> [f64; 3] {
        let live = read(&self.totals.sum());
        let broker = self.broker.lock();
        [10_000, 60_000, 600_000].map(|span_ms| {
            let past = broker.rates.iter().rev().find(|(at, _)| now_ms - at >= span_ms - 500).or(broker.rates.front());
            past.map_or(0.0, |(at, totals)| live.saturating_sub(read(totals)) as f64 * 1_000.0 / (now_ms - at).max(1_000) as f64)
        })
    }

    /// Messages in and out without system topics: in all, at the last midnight, at the one before.
    pub fn daily(&self, now_ms: i64) -> [(u64, u64, u64); 2] {
        let mut days = self.days.lock();
        days.advance(now_ms, &self.totals.sum());
        days.numbers()
    }

    /// How long storing takes.
    pub fn put_latency(&self) -> &PutLatency {
        &self.latency
    }

    fn with_topic<R>(&self, topic: &str, count: impl Fn(&TopicStats) -> R) -> R {
        if let Some(result) = self.topics.with(topic, |stats| count(stats)) {
            return result;
        }
        let created_ms = self.sampled_ms.load(Relaxed);
        let stats = self.topics.change(topic, |known| match known {
            Some(known) => (Change::Keep, Arc::clone(known)),
            None => {
                let created = Arc::new(TopicStats::new(topic, created_ms));
                (Change::Put(Arc::clone(&created)), created)
            }
        });
        count(&stats)
    }

    fn topic_put(&self, topic: &str, now_ms: i64, pick: fn(Value) -> u64) -> Option<Windows> {
        let topic = self.topics.get(topic)?;
        let live = topic.put.sum()?;
        let broker = self.broker.lock(); // before the history, as in `sample`
        Some(topic.put_history.lock().windows(&broker.ticks, now_ms, live, pick))
    }

    fn of_group(&self, key: &str, read: impl Fn(&GroupStats, &Ticks) -> Option<Windows>) -> Option<Windows> {
        let (topic, group) = key.split_once('@')?;
        let group = self.topics.get(topic)?.groups.get(group)?;
        read(&group, &self.broker.lock().ticks)
    }

    fn queue_put(&self, key: &str, now_ms: i64, pick: fn(Value) -> u64) -> Option<Windows> {
        let (topic, queue_id) = key.split_once('@')?;
        let flow = self.topics.get(topic)?.put.get(queue_id.parse().ok()?)?;
        flow.windows(&self.broker.lock().ticks, now_ms, pick)
    }

    fn queue_get(&self, key: &str, now_ms: i64, pick: fn(Value) -> u64) -> Option<Windows> {
        let mut parts = key.splitn(3, '@');
        let (topic, queue_id, group) = (parts.next()?, parts.next()?, parts.next()?);
        let flow = self.topics.get(topic)?.groups.get(group)?.get.get(queue_id.parse().ok()?)?;
        flow.windows(&self.broker.lock().ticks, now_ms, pick)
    }

    fn broker(&self, name: &str, now_ms: i64) -> Option<Windows> {
        let totals = self.totals.sum();
        let broker = self.broker.lock();
        let (history, messages) = match name {
            "BROKER_PUT_NUMS" => (&broker.put, totals.put_messages),
            "BROKER_GET_NUMS" => (&broker.get, totals.get_messages),
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC" => (&broker.user_put, totals.user_put_messages),
            _ => (&broker.user_get, totals.user_get_messages),
        };
        let live = Value { messages, bytes: 0, calls: 0 };
        (messages > 0).then(|| history.windows(&broker.ticks, now_ms, live, |value| value.messages))
    }

    /// Windows of every key of a per-topic or per-group item, at most `limit` keys.
    pub fn view_all(&self, name: &str, cluster: &str, now_ms: i64, limit: usize) -> BTreeMap<String, Windows> {
        let mut keys = Vec::new();
        for (topic, stats) in self.topics.entries() {
            match name {
                "TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE" => keys.push(topic.to_string()),
                "QUEUE_PUT_NUMS" | "QUEUE_PUT_SIZE" => keys.extend(stats.put.0.load().keys().map(|queue_id| format!("{topic}@{queue_id}"))),
                "QUEUE_GET_NUMS" | "QUEUE_GET_SIZE" => {
                    for (group, stats) in stats.groups.entries() {
                        keys.extend(stats.get.0.load().keys().map(|queue_id| format!("{topic}@{queue_id}@{group}")));
                    }
                }
                _ => keys.extend(stats.groups.entries().iter().map(|(group, _)| format!("{topic}@{group}"))),
            }
        }
        let views = keys.into_iter().filter_map(|key| Some((self.view(name, &key, cluster, now_ms)?, key)));
        views.take(limit).map(|(windows, key)| (key, windows)).collect()
    }
}

impl TopicStats {
    fn new(topic: &str, created_ms: i64) -> Self {
        Self {
            is_system: is_system_topic(topic),
            put: QueueFlows::default(),
            put_history: Mutex::new(History::new(created_ms)),
            groups: ByName::default(),
        }
    }

    fn group(&self, group: &str, created_ms: i64) -> Arc<GroupStats> {
        self.groups.get_or_insert(group, || GroupStats {
            get: QueueFlows::default(),
            get_history: Mutex::new(History::new(created_ms)),
            sent_back: Flow::new(created_ms),
            dead: Flow::new(created_ms),
        })
    }

    fn sample(&self, ticks: &Ticks, due: [bool; 3], now_ms: i64) {
        self.put.sample(ticks, due, now_ms, &self.put_history);
        for (_, group) in self.groups.entries() {
            group.get.sample(ticks, due, now_ms, &group.get_history);
            group.sent_back.sample(ticks, due, now_ms);
            group.dead.sample(ticks, due, now_ms);
        }
    }
}

impl GroupStats {
    fn windows(&self, ticks: &Ticks, now_ms: i64, pick: fn(Value) -> u64) -> Option<Windows> {
        let live = self.get.sum()?;
        Some(self.get_history.lock().windows(ticks, now_ms, live, pick))
    }
}

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(HashMap::default()))
    }
}

impl<V> ByName<V> {
    fn get(&self, name: &str) -> Option<Arc<V>> {
        self.0.load().get(name).cloned()
    }

    fn get_or_insert(&self, name: &str, make: impl FnOnce() -> V) -> Arc<V> {
        if let Some(known) = self.get(name) {
            return known;
        }
        let made = Arc::new(make());
        self.0.rcu(|map| {
            let mut next = HashMap::clone(map);
            next.entry(name.into()).or_insert_with(|| Arc::clone(&made));
            next
        });
        self.get(name).unwrap_or(made) // another thread may have been first, or have removed it again
    }

    fn remove(&self, name: &str) {
        self.0.rcu(|map| {
            let mut next = HashMap::clone(map);
            next.remove(name);
            next
        });
    }

    fn entries(&self) -> Vec<(Arc<str>, Arc<V>)> {
        self.0.load().iter().map(|(name, value)| (Arc::clone(name), Arc::clone(value))).collect()
    }
}

impl Default for QueueFlows {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(HashMap::default()))
    }
}

impl QueueFlows {
    fn add(&self, queue_id: i32, messages: u64, bytes: u64, created_ms: i64) {
        if let Some(flow) = self.0.load().get(&queue_id) {
            return flow.add(messages, bytes);
        }
        self.0.rcu(|flows| {
            let mut next = HashMap::clone(flows);
            next.entry(queue_id).or_insert_with(|| Arc::new(Flow::new(created_ms)));
            next
        });
        if let Some(flow) = self.0.load().get(&queue_id) {
            flow.add(messages, bytes);
        }
    }

    fn get(&self, queue_id: i32) -> Option<Arc<Flow>> {
        self.0.load().get(&queue_id).cloned()
    }

    /// All queues together; `None` before the first event.
    fn sum(&self) -> Option<Value> {
        let flows = self.0.load();
        let mut sum = Value::default();
        flows.values().for_each(|flow| sum += flow.value());
        (!flows.is_empty()).then_some(sum)
    }

    fn sample(&self, ticks: &Ticks, due: [bool; 3], now_ms: i64, history: &Mutex<History>) {
        let mut sum = Value::default();
        for flow in self.0.load().values() {
            sum += flow.sample(ticks, due, now_ms);
        }
        history.lock().note(ticks, due, now_ms, sum);
    }
}

impl Flow {
    fn new(created_ms: i64) -> Self {
        Self {
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            history: Mutex::new(History::new(created_ms)),
        }
    }

    fn add(&self, messages: u64, bytes: u64) {
        self.messages.fetch_add(messages, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.calls.fetch_add(1, Relaxed);
    }

    fn value(&self) -> Value {
        Value { messages: self.messages.load(Relaxed), bytes: self.bytes.load(Relaxed), calls: self.calls.load(Relaxed) }
    }

    fn sample(&self, ticks: &Ticks, due: [bool; 3], now_ms: i64) -> Value {
        let value = self.value();
        self.history.lock().note(ticks, due, now_ms, value);
        value
    }

    fn windows(&self, ticks: &Ticks, now_ms: i64, pick: fn(Value) -> u64) -> Option<Windows> {
        let live = self.value();
        (live.calls > 0).then(|| self.history.lock().windows(ticks, now_ms, live, pick))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "DefaultCluster";

    fn minute(stats: &BrokerStats, name: &str, key: &str, now_ms: i64) -> Option<u64> {
        stats.view(name, key, CLUSTER, now_ms).map(|windows| windows.minute.sum)
    }

    fn run(stats: &BrokerStats, now_ms: &mut i64, seconds: i64) {
        for _ in 0..seconds / 10 {
            *now_ms += 10_000;
            stats.sample(*now_ms);
        }
    }

    #[test]
    fn items_by_name_and_key() {
        let stats = BrokerStats::default();
        let mut now = 1_700_000_000_000;
        stats.sample(now);
        assert_eq!(minute(&stats, "TOPIC_PUT_NUMS", "T", now), None, "nothing yet");
        run(&stats, &mut now, 70);
        stats.put("T", 0, 3, 300);
        stats.put("T", 1, 2, 100);
        stats.put("SCHEDULE_TOPIC_XXXX", 0, 1, 50);
        stats.got("T", 1, "g", 2, 100);
        stats.sent_back("T", "g");
        stats.dead_letter("T", "g");
        let expect = [
            ("TOPIC_PUT_NUMS", "T", 5),
            ("TOPIC_PUT_SIZE", "T", 400),
            ("QUEUE_PUT_NUMS", "T@0", 3),
            ("QUEUE_PUT_SIZE", "T@1", 100),
            ("GROUP_GET_NUMS", "T@g", 2),
            ("GROUP_GET_SIZE", "T@g", 100),
            ("QUEUE_GET_NUMS", "T@1@g", 2),
            ("SNDBCK_PUT_NUMS", "T@g", 1),
            ("DLQ_PUT_NUMS", "T@g", 1),
            ("BROKER_PUT_NUMS", CLUSTER, 6),
            ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER, 5),
            ("BROKER_GET_NUMS", CLUSTER, 2),
        ];
        for (name, key, sum) in expect {
            assert_eq!(minute(&stats, name, key, now), Some(sum), "{name} {key}");
        }
        for (name, key) in [
            ("TOPIC_PUT_NUMS", "U"),
            ("GROUP_GET_NUMS", "T"),
            ("QUEUE_PUT_NUMS", "T@7"),
            ("QUEUE_PUT_NUMS", "T@x"),
            ("BROKER_PUT_NUMS", "x"),
            ("x", "T"),
        ] {
            assert_eq!(minute(&stats, name, key, now), None, "{name} {key}");
        }
        run(&stats, &mut now, 180);
        for (name, key, sum) in expect {
            let windows = stats.view(name, key, CLUSTER, now).unwrap();
            assert_eq!((windows.minute.sum, windows.hour.sum, windows.day.sum), (0, sum, sum), "{name} {key}");
        }
        assert_eq!(stats.view("TOPIC_PUT_NUMS", "T", CLUSTER, now).unwrap().hour.average, 2.5, "two calls");
        assert_eq!(stats.view("BROKER_PUT_NUMS", CLUSTER, CLUSTER, now).unwrap().hour.average, 0.0);
        assert_eq!(stats.view_all("QUEUE_PUT_NUMS", CLUSTER, now, 10).keys().collect::<Vec<_>>(), ["SCHEDULE_TOPIC_XXXX@0", "T@0", "T@1"]);

        stats.group_deleted("g");
        assert_eq!(minute(&stats, "GROUP_GET_NUMS", "T@g", now), None);
        stats.topic_deleted("T");
        assert_eq!(minute(&stats, "TOPIC_PUT_NUMS", "T", now), None);
        stats.put("T", 0, 1, 1);
        assert_eq!(minute(&stats, "TOPIC_PUT_NUMS", "T", now), Some(1), "from zero again");
        assert_eq!(stats.totals().put_messages, 7, "totals do not go back");
    }

    #[test]
    fn rates_of_a_steady_stream() {
        let stats = BrokerStats::default();
        let mut now = 1_700_000_000_000;
        stats.sample(now);
        assert_eq!(stats.rates(now, |totals| totals.put_messages), [0.0; 3]);
        for _ in 0..100 {
            stats.put("T", 0, 70, 700);
            stats.got("T", 0, "g", 10, 700);
            run(&stats, &mut now, 10);
        }
        assert_eq!(stats.rates(now, |totals| totals.put_messages), [7.0, 7.0, 7.0]);
        assert_eq!(
            (stats.topic_put_tps("T", now), stats.group_get_tps("T", "g", now), stats.group_get_tps("T", "h", now)),
            (7.0, 1.0, 0.0)
        );
        assert_eq!(stats.broker.lock().rates.len(), MAX_RATE_POINTS);
    }

    #[test]
    fn counts_of_many_threads_are_all_there() {
        let stats = BrokerStats::default();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let stats = &stats;
                scope.spawn(move || {
                    for n in 0..2_000 {
                        stats.put(&format!("T{}", n % 3), n % 5, 1, 10);
                        stats.got("T0", n % 5, &format!("g{}", thread % 2), 1, 10);
                    }
                });
            }
        });
        let sums = stats.view_all("TOPIC_PUT_NUMS", CLUSTER, 1, 10);
        assert_eq!(sums.values().map(|windows| windows.day.sum).sum::<u64>(), 16_000);
        assert_eq!(minute(&stats, "GROUP_GET_NUMS", "T0@g1", 1), Some(8_000));
        assert_eq!(stats.totals().put_bytes, 160_000);
    }

    #[test]
    fn daily_totals_go_on_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let config = BrokerConfig::new(folder.path());
        let start = 1_700_000_000_000;
        let load = |now| {
            let writer = MetadataWriter::start("").unwrap();
            (BrokerStats::load(&config, writer.clone(), now), writer)
        };
        let (stats, writer) = load(start);
        stats.put("T", 0, 5, 50);
        stats.put("rmq_sys_x", 0, 5, 50);
        stats.persist();
        writer.shutdown();
        let (stats, _writer) = load(start + 1_000);
        stats.put("T", 0, 2, 20);
        stats.got("T", 0, "g", 1, 10);
        let [put, get] = stats.daily(start + 2_000);
        assert_eq!((put.0, get.0), (7, 1));
        for name in ["config/stats.json", "config/stats.json.bak"] {
            std::fs::write(folder.path().join(name), "{\"day\":").unwrap();
        }
        let [put, get] = load(start + 3_000).0.daily(start + 3_000);
        assert_eq!((put.0, get.0), (0, 0), "damaged: they begin anew");
    }
}
