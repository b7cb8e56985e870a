//! One store's life from a seed: random operations, stops of every kind, and a look at everything after each.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::disk::{ARRIVALS, CALLS, Call, Disk, Fault};
use super::invariants;
use super::model::{Loss, Message, Model, QueueName};
use crate::common::record::{self, Record};
use crate::runtime::clock::Clock;
use crate::store::append::AppendBatch;
use crate::store::config::{FlushDiskType, StoreConfig};
use crate::store::error::PutError;
use crate::store::fs::Fs;
use crate::store::message_store::{Durability, MessageStore};
use crate::store::reading::{AllMessages, GetLimits, GetStatus};
use crate::store::testing::draft;

const DEADLINE: Duration = Duration::from_secs(20);
const HOUR_MS: u64 = 3_600_000;
const OPERATIONS: std::ops::RangeInclusive<usize> = 15..=45;
macro_rules! long {
    () => {
        "Long-Long-Long-Long-Long-Long-Long-Long-Long-"
    };
}

const TOPICS: [&str; 3] = ["A", "B", LONG];
/// A topic that makes records of the second version.
const LONG: &str = concat!(long!(), long!(), long!());

/// What was done so far.
pub(crate) type Journal = Arc<Mutex<Vec<String>>>;

/// A store and what is known of it.
struct Life {
    rng: Rng,
    journal: Journal,
    _folder: TempDir,
    disk: Arc<Disk>,
    fs: Arc<dyn Fs>,
    config: StoreConfig,
    clock: Clock,
    store: Option<Arc<MessageStore>>,
    model: Model,
    /// Calls are made to fail in this life.
    faulty: bool,
    /// Something failed, or was made to, since the store was opened.
    troubled: bool,
    held: bool,
    sequence: u64,
}

/// How a run of the store ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    CleanThenCut,
    Kill,
    Cut,
}

/// Lives through a seed.
///
/// # Errors
/// What broke.
pub(crate) fn live(seed: u64, journal: Journal) -> Result<(), String> {
    let mut life = Life::new(seed, journal);
    life.open(Loss::None)?;
    for _ in 0..life.rng.usize(OPERATIONS) {
        life.operation()?;
    }
    life.last_stop()
}

fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.expect("a temporary folder")
}

fn listed(found: Vec<String>) -> Result<(), String> {
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

impl Drop for Life {
    /// Nothing waits for syncs that are held.
    fn drop(&mut self) {
        self.disk.kill();
    }
}

impl Life {
    fn new(seed: u64, journal: Journal) -> Self {
        let mut rng = Rng::with_seed(seed);
        let folder = folder();
        let root = folder.path().join("store");
        std::fs::create_dir(&root).expect("a folder");
        let sync_flush = rng.bool();
        let config = StoreConfig {
            commit_log_file_size: [16 << 10, 32 << 10, 64 << 10][rng.usize(..3)],
            consume_queue_file_size: 20 * [10, 30, 200][rng.usize(..3)],
            flush_disk_type: if sync_flush { FlushDiskType::Sync } else { FlushDiskType::Async },
            flush_interval_ms: if rng.bool() { 0 } else { HOUR_MS },
            sync_flush_timeout_ms: DEADLINE.as_millis() as u64,
            flush_consume_queue_interval_ms: if rng.u8(..4) == 0 { 1 } else { HOUR_MS },
            index_enable: rng.u8(..4) > 0,
            index_slots: 20,
            index_entries: [20, 200][rng.usize(..2)],
            file_reserved_hours: 0,
            delete_when_hours: Vec::new(),
            clean_interval_ms: HOUR_MS,
            disk_free_reserve: Some(0),
            recover_concurrently: rng.bool(),
            ..StoreConfig::new(&root)
        };
        let faulty = rng.u8(..3) == 0;
        let disk = Disk::new(&root);
        let model = Model { sync_flush, keys: config.index_enable && !faulty, ..Model::default() };
        let fs = disk.process();
        let life = Self {
            rng,
            journal,
            _folder: folder,
            disk,
            fs,
            clock: Clock::manual(1_700_000_000_000),
            store: None,
            model,
            faulty,
            troubled: false,
            held: false,
            sequence: 0,
            config,
        };
        let StoreConfig { commit_log_file_size: log, consume_queue_file_size: queue, flush_interval_ms, .. } = life.config;
        let index = life.config.index_enable;
        life.note(format!(
            "sync_flush={sync_flush} log={log} queue={queue} index={index} flush_interval_ms={flush_interval_ms} faulty={faulty}"
        ));
        life
    }

    fn note(&self, what: String) {
        self.journal.lock().push(what);
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    fn store(&self) -> Arc<MessageStore> {
        Arc::clone(self.store.as_ref().expect("an open store"))
    }

    /// Whether what fails now has a reason.
    fn excused(&mut self) -> bool {
        self.troubled |= self.disk.has_died();
        self.troubled
    }

    // ---- operations ----

    fn operation(&mut self) -> Result<(), String> {
        if let Clock::Manual(_) = self.clock {
            self.clock.advance(self.rng.i64(0..3_000));
        }
        if self.faulty && self.one_in(4) {
            let call = CALLS[self.rng.usize(..CALLS.len())];
            let fault = Fault { call, nth: self.rng.u32(..6), no_space: self.rng.bool() && can_lack_space(call) };
            self.note(format!("inject {fault:?}"));
            self.disk.inject(fault);
            self.troubled = true;
        }
        let part = self.rng.u8(..100);
        let in_flight = self.held && self.one_in(2); // more of what only a stop can end
        let outcome = match part {
            0..50 if in_flight => self.append().and_then(|()| self.read()),
            50..70 if in_flight => self.flush_derived(),
            _ if in_flight => self.restart(),
            0..40 => self.append(),
            40..50 => self.wait(),
            50..62 => self.read(),
            62..70 => self.flush_derived(),
            70..74 => self.hold(),
            74..78 => self.delete_topic(),
            78..81 => self.clean(),
            _ => self.restart(),
        };
        outcome?;
        if self.disk.has_died() {
            let end = if self.one_in(2) { End::Kill } else { End::Cut };
            let loss = self.stop(end)?;
            return self.open(loss);
        }
        if self.troubled && self.one_in(3) {
            let fired = self.disk.heal();
            self.note(format!("heal, failed: {fired:?}"));
        }
        Ok(())
    }

    fn append(&mut self) -> Result<(), String> {
        let store = self.store();
        let (mut batch, mut outcomes, mut staged) = (AppendBatch::default(), Vec::new(), Vec::new());
        let count = if self.one_in(2) { 1 } else { self.rng.usize(2..12) };
        let longest = match self.rng.u8(..8) {
            0 => self.config.commit_log_file_size / 2,
            1 | 2 => 3_000,
            _ => 300,
        };
        for _ in 0..count {
            let queue = (TOPICS[self.rng.usize(..TOPICS.len())].to_owned(), self.rng.i32(0..2));
            self.sequence += 1;
            let key = format!("k{}", self.sequence);
            let spare = "p".repeat(if self.one_in(8) { self.rng.usize(..1_500) } else { 0 });
            let properties = format!("TAGS\u{1}t{}\u{2}KEYS\u{1}{key}\u{2}x\u{1}{spare}\u{2}", self.sequence % 5);
            let number = self.sequence as usize;
            let body: Vec<u8> = (0..self.rng.usize(..longest)).map(|at| (number * 31 + at * 7 + 1) as u8 | 1).collect();
            let draft = draft(&queue.0, queue.1, &properties, &body);
            let mut encoded = Vec::new();
            draft.encode(&mut encoded);
            store.stage(&mut batch, &draft).map_err(|error| format!("not staged: {error}"))?;
            staged.push((queue, key, encoded));
        }
        if self.one_in(3) {
            store.group(&mut batch, count);
        }
        store.append(&mut batch, &mut outcomes);
        let stored = outcomes.iter().flatten().count();
        self.note(format!("append {count} stored {stored} end {}", store.stats().max_physical_offset));
        if outcomes.len() != count {
            return Err(format!("{} outcomes for {count} records", outcomes.len()));
        }
        for ((queue, key, mut record), outcome) in staged.into_iter().zip(outcomes) {
            let appended = match outcome {
                Ok(appended) => appended,
                Err(PutError::RecordTooLong(..)) => continue,
                Err(_) if self.excused() => continue,
                Err(error) => return Err(format!("append refused: {error}")),
            };
            record::place(&mut record, appended.queue_offset, appended.physical_offset, appended.store_timestamp);
            self.model.number(&queue, appended.queue_offset)?;
            let message =
                Message { start: appended.physical_offset, end: appended.end(), record, key: Some(key), shown: false, optional: false };
            let messages = self.model.queues.entry(queue.clone()).or_default();
            let replaced = messages.split_off(&appended.queue_offset);
            if !replaced.is_empty() && !self.model.uncertain.contains(&queue.0) {
                return Err(format!("{queue:?} has two messages at {}", appended.queue_offset));
            }
            messages.insert(appended.queue_offset, message);
        }
        if self.one_in(2) { self.wait() } else { Ok(()) }
    }

    /// Waits for the acknowledgement of everything appended so far.
    fn wait(&mut self) -> Result<(), String> {
        let store = self.store();
        self.model.promise(store.flushed_offset());
        if self.held || !self.model.sync_flush && self.config.flush_interval_ms > 0 {
            return Ok(());
        }
        let end = store.stats().max_physical_offset;
        if self.model.sync_flush {
            let (sender, receiver) = crossbeam::channel::bounded(1);
            store.when_durable(end, Box::new(move |durability| drop(sender.send(durability))));
            let durability = receiver.recv_timeout(DEADLINE).map_err(|_| "nobody answers whether it is durable".to_owned())?;
            self.note(format!("wait for {end}: {durability:?}"));
            match durability {
                Durability::Durable => self.model.promise(end),
                _ if self.excused() => {}
                other => return Err(format!("not durable: {other:?}")),
            }
        } else {
            self.note(format!("wait for {end}"));
            let begin = std::time::Instant::now();
            while store.flushed_offset() < end && !(self.troubled || self.excused()) {
                if begin.elapsed() > DEADLINE {
                    return Err("the log is not flushed".to_owned());
                }
                std::thread::yield_now();
            }
        }
        self.model.promise(store.flushed_offset());
        Ok(())
    }

    /// Reads a queue as a consumer does.
    fn read(&mut self) -> Result<(), String> {
        let store = self.store();
        if self.one_in(2) {
            let begin = std::time::Instant::now();
            while store.stats().dispatch_behind_bytes > 0 {
                if begin.elapsed() > DEADLINE {
                    return Err("what is visible is not dispatched".to_owned());
                }
                std::thread::yield_now();
            }
        }
        let queue: QueueName = (TOPICS[self.rng.usize(..TOPICS.len())].to_owned(), self.rng.i32(0..2));
        let (min, max) = store.queue_bounds(&queue.0, queue.1);
        let part = self.rng.f64(); // one draw, whatever the store's threads have done so far
        let mut at = min + ((max - min) as f64 * part) as i64;
        self.note(format!("read {}/{} from {at} of {min}..{max}", &queue.0[..1], queue.1));
        while at < max {
            let result = store.get(&queue.0, queue.1, at, &GetLimits::default(), &AllMessages);
            let flushed = store.flushed_offset();
            self.model.promise(flushed);
            for slice in &result.slices {
                let mut rest = &slice[..];
                while !rest.is_empty() {
                    let record = Record::parse(rest).map_err(|error| format!("{queue:?}: a consumer was shown no record: {error}"))?;
                    if !invariants::is_seal(&record) {
                        self.model.show(&queue, record.queue_offset, &rest[..record.total_size])?;
                    }
                    rest = &rest[record.total_size..];
                }
            }
            if result.status == GetStatus::Found && result.next_begin_offset <= at {
                return Err(format!("{queue:?}: reading at {at} goes on at {}", result.next_begin_offset));
            }
            at = result.next_begin_offset.max(at + 1);
        }
        Ok(())
    }

    fn flush_derived(&mut self) -> Result<(), String> {
        let thorough = self.rng.bool();
        let flushed = self.store().flush_derived(thorough);
        self.note(format!("flush derived, thorough={thorough}: {flushed}"));
        if flushed || self.excused() { Ok(()) } else { Err("derived files cannot be flushed".to_owned()) }
    }

    fn hold(&mut self) -> Result<(), String> {
        self.held = !self.held;
        self.note(format!("hold syncs of the log: {}", self.held));
        if self.held {
            self.disk.hold_syncs(&self.config.root.join("commitlog"))
        } else {
            self.disk.release_syncs()
        }
        Ok(())
    }

    fn delete_topic(&mut self) -> Result<(), String> {
        let topic = TOPICS[self.rng.usize(..TOPICS.len())];
        if self.one_in(4) {
            self.die_soon(8);
        }
        let outcome = self.store().delete_topic(topic);
        self.note(format!("delete {}: {outcome:?}", &topic[..1]));
        match outcome {
            Ok(()) => self.model.deleted(topic),
            Err(_) if self.excused() => {
                self.model.uncertain.insert(topic.to_owned());
            }
            Err(error) => return Err(format!("topic not deleted: {error}")),
        }
        Ok(())
    }

    fn clean(&mut self) -> Result<(), String> {
        let store = self.store();
        store.delete_expired_files();
        let min = store.stats().min_physical_offset;
        self.note(format!("clean: the log begins at {min}"));
        self.model.cleaned(min);
        Ok(())
    }

    fn die_soon(&mut self, calls: u32) {
        let nth = self.rng.u32(..calls);
        self.note(format!("the process dies at call {nth}"));
        self.disk.kill_at(nth);
    }

    // ---- stops and starts ----

    fn restart(&mut self) -> Result<(), String> {
        let end = [End::Clean, End::CleanThenCut, End::Kill, End::Kill, End::Cut, End::Cut, End::Cut][self.rng.usize(..7)];
        let mut loss = self.stop(end)?;
        if self.one_in(4) {
            self.fs = self.disk.process();
            self.die_soon(25);
            let died = invariants::open(&self.config, &self.fs, &self.clock);
            self.note(format!("open: {:?}", died.as_ref().err()));
            drop(died);
            if self.one_in(2) {
                loss = self.cut(loss);
            }
        }
        self.open(loss)?;
        if end != End::Clean && self.one_in(3) {
            self.open_again()?;
        }
        Ok(())
    }

    /// Ends the run; what may be lost by it.
    fn stop(&mut self, end: End) -> Result<Loss, String> {
        let store = self.store();
        self.model.promise(store.flushed_offset());
        self.note(format!("stop: {end:?}"));
        let mut loss = Loss::None;
        match end {
            End::Clean | End::CleanThenCut => {
                self.disk.release_syncs();
                if self.one_in(4) {
                    self.die_soon(12);
                }
                let report = store.shutdown(DEADLINE);
                self.model.promise(store.flushed_offset());
                self.note(format!("{report:?}"));
                if report.clean {
                    self.model.promise(store.stats().max_physical_offset);
                } else if !self.excused() {
                    return Err(format!("the stop is not clean: {report:?}"));
                }
            }
            End::Kill | End::Cut => self.disk.kill(),
        }
        let fired = self.disk.heal();
        if !fired.is_empty() {
            self.note(format!("failed: {fired:?}"));
        }
        self.store = None;
        drop(store);
        if matches!(end, End::Cut | End::CleanThenCut) {
            loss = self.cut(loss);
        }
        Ok(loss)
    }

    fn cut(&mut self, _: Loss) -> Loss {
        let arrival = ARRIVALS[self.rng.usize(..ARRIVALS.len())];
        self.note(format!("power cut: {arrival:?} arrives"));
        self.disk.cut(&mut self.rng, arrival);
        Loss::Unsynced
    }

    fn open(&mut self, loss: Loss) -> Result<(), String> {
        self.fs = self.disk.process();
        (self.troubled, self.held) = (false, false);
        let store = invariants::open(&self.config, &self.fs, &self.clock).map_err(|error| format!("the store does not open: {error}"))?;
        self.note(format!("open: {}, end {}", store.recovery(), store.stats().max_physical_offset));
        let found = invariants::of_open(&store, &self.config, &self.fs);
        let reconciled = self.model.reconcile(&store, loss);
        self.store = Some(store);
        listed(found.into_iter().chain(reconciled).collect())
    }

    /// Another start right behind a recovery finds everything as it was.
    fn open_again(&mut self) -> Result<(), String> {
        let end = if self.one_in(2) { End::Kill } else { End::Cut };
        self.stop(end)?;
        self.open(Loss::None)?; // all that recovery found is on disk
        listed(invariants::report_of_recovery(&self.store(), "start after a recovery"))
    }

    fn last_stop(mut self) -> Result<(), String> {
        self.disk.heal();
        let end = if self.troubled { End::Kill } else { End::Clean };
        let loss = self.stop(end)?;
        self.open(loss)?;
        self.note("last stop".to_owned());
        let report = self.store().shutdown(DEADLINE);
        self.store = None;
        if !report.clean {
            return Err(format!("the last stop is not clean: {report:?}"));
        }
        listed(invariants::of_restarts(&self.config, &self.disk.process()))
    }
}

fn can_lack_space(call: Call) -> bool {
    matches!(call, Call::Open | Call::CreateDir | Call::Write | Call::Allocate | Call::SetLen | Call::Rename | Call::Sync)
}
