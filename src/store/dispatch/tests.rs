use std::sync::atomic::AtomicUsize;

use tempfile::TempDir;

use super::*;
use crate::common::record::Draft;
use crate::store::RealFs;
use crate::store::config::StoreConfig;
use crate::store::testing::{VecLog, deleted, draft};

const TIME: i64 = 1_700_000_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

struct Store {
    _folder: TempDir,
    log: Arc<VecLog>,
    queues: Arc<ConsumeQueueTable>,
    index: Arc<Index>,
    dispatcher: Arc<Dispatcher>,
}

impl Store {
    fn new(file_size: i64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig { ..StoreConfig::new(folder.path()) };
        let queues = Arc::new(ConsumeQueueTable::load(&config, RealFs::shared()).unwrap());
        let index = Arc::new(Index::load(&config, RealFs::shared(), None).unwrap());
        let dispatcher =
            Arc::new(Dispatcher::new(Arc::clone(&queues), Some(Arc::clone(&index)), deleted(folder.path()), vec![1_000, 5_000]));
        Self { _folder: folder, log: Arc::new(VecLog::new(file_size)), queues, index, dispatcher }
    }

    fn start(&self) -> DispatchService {
        DispatchService::start("", Arc::clone(&self.log), Arc::clone(&self.dispatcher), 0).unwrap()
    }

    fn units(&self, topic: &str, queue_id: i32) -> Vec<CqUnit> {
        let mut units = Vec::new();
        if let Some(queue) = self.queues.get(topic, queue_id) {
            queue.read(0, 100_000, &mut units).unwrap();
        }
        units
    }

    fn found(&self, key: &str) -> Vec<i64> {
        self.index.query("T", key, 100, 0, i64::MAX)
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::yield_now();
    }
}

#[derive(Default)]
struct Heard {
    messages: Mutex<Vec<(String, i32, i64, i64)>>,
    rounds: AtomicUsize,
    panics_at: Option<i64>,
}

impl ArrivalListener for Heard {
    fn arrived(&self, arrival: &Arrival<'_>) {
        assert!(self.panics_at != Some(arrival.queue_offset), "on purpose");
        self.messages.lock().push((arrival.topic.to_owned(), arrival.queue_id, arrival.queue_offset, arrival.tags_code));
    }

    fn round_done(&self) {
        self.rounds.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn units_that_cannot_be_written_take_bounded_memory_and_none_is_passed_over() {
    let store = Store::new(100_000);
    let most = (MAX_UNWRITTEN_BYTES / 20) as i64;
    for offset in 0..most + 2_000 {
        store.log.append(&draft("T", 0, "", b""), offset, TIME);
    }
    let service = store.start();
    let max = || store.queues.get("T", 0).map_or(0, |queue| queue.max_offset());
    wait_until("the bound", || max() > most);
    wait_until("a pause", || store.queues.dirty_bytes() > MAX_UNWRITTEN_BYTES && service.behind_bytes() > 0);
    assert!(max() <= most + ROUND_RECORDS as i64, "{}", max());
    store.queues.flush(false).unwrap();
    wait_until("the rest", || max() == most + 2_000);
    assert_eq!((service.stop(PATIENCE), service.skipped()), (0, 0));
}

#[test]
fn units_and_keys_of_every_kind_of_record() {
    let store = Store::new(1 << 20);
    let properties = "TAGS\u{1}TagA\u{2}KEYS\u{1}k1  k2\u{2}UNIQ_KEY\u{1}U1\u{2}";
    let plain = store.log.append(&draft("T", 3, properties, b"body"), 0, TIME);
    let level = |level: &str| format!("DELAY\u{1}{level}\u{2}TAGS\u{1}TagA\u{2}");
    let levels: Vec<(String, i64)> = [("1", 1_000), ("2", 5_000), ("9", 5_000)].map(|(text, delay)| (level(text), TIME + delay)).into();
    for (offset, (properties, _)) in levels.iter().enumerate() {
        store.log.append(&draft(SCHEDULE_TOPIC, 0, properties, b""), offset as i64, TIME);
    }
    store.log.append(&draft(SCHEDULE_TOPIC, 1, "DELAY\u{1}x\u{2}TAGS\u{1}TagB\u{2}", b""), 0, TIME);
    let kind = |sys_flag, key: &'static str| Draft { sys_flag, ..draft("T", 4, key, b"") };
    let prepared = store.log.append(&kind(sysflag::TRANSACTION_PREPARED, "KEYS\u{1}prepared\u{2}"), 0, TIME);
    store.log.append(&kind(sysflag::TRANSACTION_ROLLBACK, "KEYS\u{1}rollback\u{2}"), 0, TIME);
    let commit = store.log.append(&kind(sysflag::TRANSACTION_COMMIT, "KEYS\u{1}commit\u{2}"), 0, TIME);
    let heard = Arc::new(Heard::default());
    let service = store.start();
    service.set_listener(Arc::clone(&heard) as Arc<dyn ArrivalListener>);
    service.wake();
    assert_eq!(service.stop(PATIENCE), 0);

    let tag_a = 2_598_919;
    assert_eq!(store.units("T", 3), [CqUnit { physical_offset: plain.0, size: plain.1, tags_code: tag_a }]);
    let deliver_times: Vec<i64> = store.units(SCHEDULE_TOPIC, 0).iter().map(|unit| unit.tags_code).collect();
    assert_eq!(deliver_times, levels.iter().map(|(_, time)| *time).collect::<Vec<_>>());
    assert_eq!(store.units(SCHEDULE_TOPIC, 1)[0].tags_code, tag_a + 1, "no level: an ordinary tag");
    assert_eq!(store.units("T", 4), [CqUnit { physical_offset: commit.0, size: commit.1, tags_code: 0 }]);
    for key in ["k1", "k2", "U1", "T#TagA"] {
        assert_eq!(store.found(key), [plain.0], "{key}");
    }
    assert_eq!((store.found("prepared"), store.found("rollback"), store.found("commit")), (vec![prepared.0], vec![], vec![commit.0]));
    assert!(store.found("").is_empty());
    assert_eq!(service.skipped(), 0);
    assert_eq!(service.last_record(), Some((commit.0, TIME)));
}

#[test]
fn a_level_that_no_delay_belongs_to() {
    let mut store = Store::new(1 << 20);
    store.dispatcher = Arc::new(Dispatcher::new(Arc::clone(&store.queues), None, deleted(store._folder.path()), Vec::new()));
    store.log.append(&draft(SCHEDULE_TOPIC, 0, "DELAY\u{1}3\u{2}", b""), 0, TIME);
    store.start().stop(PATIENCE);
    assert_eq!(store.units(SCHEDULE_TOPIC, 0)[0].tags_code, TIME + 1_000);
}

#[test]
fn follows_the_visible_offset_from_file_to_file() {
    let store = Store::new(1_000);
    let service = store.start();
    let heard = Arc::new(Heard::default());
    service.set_listener(Arc::clone(&heard) as Arc<dyn ArrivalListener>);
    for offset in 0..50 {
        let visible = store.log.visible_offset();
        store.log.append(&draft("T", 0, "", &[7; 100]), offset, TIME);
        let end = store.log.visible_offset();
        store.log.visible.store(visible, Ordering::Release);
        service.wake();
        std::thread::yield_now();
        assert!(store.units("T", 0).len() as i64 == offset, "what is not visible is not dispatched");
        store.log.visible.store(end, Ordering::Release);
        service.wake();
        wait_until("the record", || service.dispatched_offset() == end);
    }
    wait_until("the listener", || heard.messages.lock().len() == 50);
    assert!(heard.messages.lock().iter().enumerate().all(|(place, message)| message.2 == place as i64));
    wait_until("the rounds", || heard.rounds.load(Ordering::SeqCst) >= 50);
    assert_eq!((service.stop(PATIENCE), service.skipped(), service.behind_bytes()), (0, 0, 0));
    assert_eq!(service.stop(PATIENCE), 0);
}

#[test]
fn a_busy_log_is_handed_over_in_rounds() {
    let store = Store::new(1 << 30);
    for offset in 0..2_000 {
        store.log.append(&draft("T", 0, "", b""), offset, TIME);
    }
    let heard = Arc::new(Heard::default());
    let visible = store.log.visible.swap(0, Ordering::SeqCst);
    let service = store.start();
    service.set_listener(Arc::clone(&heard) as Arc<dyn ArrivalListener>);
    store.log.visible.store(visible, Ordering::SeqCst);
    service.wake();
    assert_eq!(service.stop(PATIENCE), 0);
    assert_eq!(heard.messages.lock().len(), 2_000);
    assert_eq!(heard.rounds.load(Ordering::SeqCst), 2_000usize.div_ceil(ROUND_RECORDS));
}

#[test]
fn a_listener_that_panics_does_not_stop_it() {
    let store = Store::new(1 << 20);
    let heard = Arc::new(Heard { panics_at: Some(3), ..Heard::default() });
    let service = store.start();
    service.set_listener(Arc::clone(&heard) as Arc<dyn ArrivalListener>);
    for offset in 0..10 {
        store.log.append(&draft("T", 0, "", b""), offset, TIME);
    }
    service.wake();
    assert_eq!(service.stop(PATIENCE), 0);
    assert_eq!((heard.messages.lock().len(), service.skipped()), (9, 1));
    assert_eq!(store.units("T", 0).len(), 10);
}

#[test]
fn records_that_have_no_queue_are_skipped() {
    let store = Store::new(1 << 20);
    for (topic, queue_id, offset) in [("../x", 0, 0), ("..", 0, 0), ("", 0, 0), ("T", -1, 0), ("T", 0, -1), ("T", 0, i64::MAX), ("T", 0, 0)]
    {
        store.log.append(&draft(topic, queue_id, "", b""), offset, TIME);
    }
    let service = store.start();
    assert_eq!(service.stop(PATIENCE), 0);
    assert_eq!(service.skipped(), 6);
    assert_eq!((store.units("T", 0).len(), store.queues.all().len()), (1, 1));
}

#[test]
fn a_log_that_begins_later_or_lacks_a_file_is_followed() {
    let store = Store::new(1_000);
    for offset in 0..20 {
        store.log.append(&draft("T", 0, "", &[7; 300]), offset, TIME);
    }
    store.log.min.store(3_000, Ordering::Release);
    let service = store.start();
    assert_eq!(service.stop(PATIENCE), 0);
    assert_eq!(service.skipped(), 1);
    let queue = store.queues.get("T", 0).unwrap();
    assert_eq!(queue.next_present(0, 100).unwrap().unwrap().1.physical_offset, 3_000);
    assert_eq!(queue.max_offset(), 20);
}

#[test]
fn a_missing_file_is_passed_over_but_the_last_one_is_waited_for() {
    let store = Store::new(1_000);
    for offset in 0..20 {
        store.log.append(&draft("T", 0, "", &[7; 300]), offset, TIME);
    }
    store.log.unreadable.store(2_000, Ordering::Release);
    let service = store.start();
    wait_until("the end", || service.behind_bytes() == 0);
    assert_eq!(service.skipped(), 1);
    let last_file = store.log.visible_offset() / 1_000 * 1_000;
    store.log.unreadable.store(last_file, Ordering::Release);
    let last = store.log.append(&draft("T", 0, "", b""), 20, TIME);
    assert_eq!(last.0 / 1_000 * 1_000, last_file);
    service.wake();
    std::thread::yield_now();
    assert_eq!((service.skipped(), service.behind_bytes()), (1, i64::from(last.1)));
    store.log.unreadable.store(-1, Ordering::Release);
    assert_eq!(service.stop(PATIENCE), 0);
    assert_eq!((service.skipped(), store.units("T", 0).len()), (1, 21));
}

#[test]
fn stop_does_not_wait_for_ever() {
    let store = Store::new(1 << 20);
    for offset in 0..100_000 {
        store.log.append(&draft("T", 0, "", b""), offset, TIME);
    }
    let service = store.start();
    let behind = service.stop(Duration::ZERO);
    assert_eq!(behind, store.log.visible_offset() - service.dispatched_offset());
    assert!(behind > 0);
}

/// Whatever is damaged in the headers, every sound record is dispatched.
#[test]
fn damage_costs_only_what_is_damaged() {
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let store = Store::new(5_000);
        let mut records = Vec::new();
        for offset in 0..60 {
            let body: Vec<u8> = (0..random.usize(0..300)).map(|_| random.u8(..)).collect();
            records.push(store.log.append(&draft("T", 0, "KEYS\u{1}key\u{2}", &body), offset, TIME));
        }
        let mut damaged = std::collections::BTreeSet::new();
        for _ in 0..random.usize(1..6) {
            let victim = random.usize(0..records.len());
            let (at, size) = (records[victim].0 as usize, records[victim].1 as usize);
            let mut bytes = store.log.bytes.lock();
            match random.u32(0..5) {
                0 => bytes[at..at + 4].copy_from_slice(&random.i32(..).to_be_bytes()),
                1 => bytes[at..at + 4].copy_from_slice(&(size as i32 + random.i32(1..40)).to_be_bytes()),
                2 => bytes[at + 4..at + 8].copy_from_slice(&random.i32(..).to_be_bytes()),
                3 => bytes[at + 84..at + 88].copy_from_slice(&random.i32(1_000..).to_be_bytes()),
                _ => bytes[at..at + size].fill(0),
            }
            damaged.insert(victim);
        }
        let service = store.start();
        assert_eq!(service.stop(PATIENCE), 0, "seed {seed}");
        assert!(service.skipped() > 0);
        let units = store.units("T", 0);
        for (offset, record) in records.iter().enumerate().filter(|(offset, _)| !damaged.contains(offset)) {
            assert_eq!((units[offset].physical_offset, units[offset].size), *record, "seed {seed} record {offset}");
        }
        let after = store.log.append(&draft("T", 0, "", b""), 60, TIME);
        let again = DispatchService::start("", Arc::clone(&store.log), Arc::clone(&store.dispatcher), after.0).unwrap();
        assert_eq!(again.stop(PATIENCE), 0);
        assert_eq!(store.units("T", 0).len(), 61, "seed {seed}");
    }
}
