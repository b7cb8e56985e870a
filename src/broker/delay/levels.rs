//! The `delay` thread: delivers messages of the delay levels when they are due.
//!
//! - Each level is one queue of the schedule topic, in order of store time and so, its delay being fixed, in order of deliver time. The
//!   consume queue holds the deliver time where others hold tags: the thread looks at the head of each queue and sleeps until the first is due.
//! - A message stored on a level while the thread sleeps wakes it only if it is due earlier than the sleep ends.
//! - Due messages are appended in batches, in order, with all their properties (DELAY among them, as consumers know it from Java).
//! - A put that fails for reasons of the store is tried again; a message that can never be delivered is reported and passed over.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::broker::context::BrokerContext;
use crate::common::properties;
use crate::common::record::{Draft, Record};
use crate::common::topic::{HALF_TOPIC, SCHEDULE_TOPIC};
use crate::config::broker::BrokerConfig;
use crate::config::config_file::{ConfigFile, MetadataWriter};
use crate::runtime::thread::Thread;
use crate::store::MessageStore;
use crate::store::append::{AppendBatch, AppendOutcome};
use crate::store::arrival::{Arrival, ArrivalListener};
use crate::store::error::PutError;
use crate::store::message_store::Durability;

use super::progress::Progress;

/// Messages delivered under one acquisition of the put lock.
const BATCH_MESSAGES: usize = 256;
/// Bytes delivered under one acquisition of the put lock.
const BATCH_BYTES: usize = 1 << 20;
/// Pause after the store refused a message, ms.
const RETRY_MS: i64 = 1_000;
/// Longest sleep while something waits, ms: a clock that is set forward is noticed after that.
const LONGEST_SLEEP_MS: i64 = 60_000;
/// Longest time deliveries stay unwritten, ms: what a kill may deliver twice.
const PERSIST_MS: i64 = 1_000;

/// The delay levels of a broker.
pub struct DelayLevels {
    store: Arc<MessageStore>,
    delays_ms: Vec<i64>,
    persist_ms: i64,
    progress: Arc<Mutex<Progress>>,
    writer: MetadataWriter,
    file: usize,
    sleep: Mutex<Sleep>,
    wake: Condvar,
    thread: Mutex<Option<Thread>>,
}

/// When the thread has to look again.
struct Sleep {
    /// Earliest deliver time that arrived since the last look.
    arrived_ms: i64,
    /// The thread sleeps until then.
    until_ms: i64,
    stopping: bool,
}

/// What one look at a level found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Delivered some; there may be more.
    Delivered,
    /// The head is due then.
    Due(i64),
    /// Nothing waits.
    Empty,
}

impl DelayLevels {
    /// Loads `config/delayOffset.json` (or its `.bak`) and brings each offset into the bounds of its queue.
    ///
    /// # Errors
    /// Both copies are unreadable.
    pub(crate) fn load(config: &BrokerConfig, store: Arc<MessageStore>, writer: MetadataWriter) -> std::io::Result<Arc<Self>> {
        let delays_ms = config.store.delay_levels_ms.clone();
        let file = ConfigFile::of_broker(config, "delayOffset.json");
        let loaded = file.load(|text| Progress::from_json(text, delays_ms.len()))?;
        let mut progress = loaded.unwrap_or_else(|| Progress::new(delays_ms.len()));
        clamp(&mut progress, &store);
        let progress = Arc::new(Mutex::new(progress));
        let (content, log) = (Arc::clone(&progress), Arc::clone(&store));
        let file = writer.register(
            file,
            Arc::new(move || {
                let mut progress = content.lock();
                progress.flushed(log.flushed_offset());
                progress.take_json()
            }),
        );
        Ok(Arc::new(Self {
            store,
            delays_ms,
            persist_ms: i64::try_from(config.flush_delay_offset_interval_ms).unwrap_or(i64::MAX).clamp(1, PERSIST_MS),
            progress,
            writer,
            file,
            sleep: Mutex::new(Sleep { arrived_ms: i64::MAX, until_ms: i64::MAX, stopping: false }),
            wake: Condvar::new(),
            thread: Mutex::new(None),
        }))
    }

    /// Starts the thread. Once.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(self: &Arc<Self>, context: Arc<BrokerContext>) -> std::io::Result<()> {
        let levels = Arc::clone(self);
        let tag = context.config.store.tag.clone();
        *self.thread.lock() = Some(Thread::spawn(&tag, "delay", move || levels.run(&context))?);
        Ok(())
    }

    /// Ends the thread once what it delivers is durable, at most `deadline`; its progress is written. Twice is harmless.
    pub(crate) fn shutdown(&self, deadline: Duration) {
        self.sleep.lock().stopping = true;
        self.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
            self.settle(deadline);
        }
        self.persist_and_wait();
    }

    /// Writes the progress that is durable by now.
    pub(crate) fn persist_and_wait(&self) {
        let mut progress = self.progress.lock();
        progress.flushed(self.store.flushed_offset());
        let changed = progress.is_changed();
        drop(progress);
        if changed && let Err(error) = self.writer.write_and_wait(self.file) {
            log::error!("delay progress not written: error={error}");
        }
    }

    /// The content of `delayOffset.json` as it is now (request 45).
    pub fn to_json(&self) -> String {
        let mut progress = self.progress.lock();
        progress.flushed(self.store.flushed_offset());
        progress.to_json()
    }

    /// Of each level that was used: level, next queue offset to deliver, offset behind its last message.
    pub fn offsets(&self) -> Vec<(usize, i64, i64)> {
        let progress = self.progress.lock();
        (0..progress.len())
            .map(|index| (index + 1, progress.next(index), self.store.queue_bounds(SCHEDULE_TOPIC, index as i32).1))
            .filter(|(_, next, max)| *next > 0 || *max > 0)
            .collect()
    }

    /// Waits until the last delivery is durable.
    fn settle(&self, deadline: Duration) {
        if !self.store.is_sync_flush() {
            return; // the store's own stop flushes; what is not durable then is delivered again
        }
        let end = self.store.stats().max_physical_offset;
        let (done, durable) = crossbeam::channel::bounded(1);
        self.store.when_durable(
            end,
            Box::new(move |outcome| {
                let _ = done.send(outcome); // nobody waits any longer: the deadline has passed
            }),
        );
        match durable.recv_timeout(deadline) {
            Ok(Durability::Durable) => {}
            Ok(other) => log::warn!("delayed messages may be delivered again after the next start: {other:?}"),
            Err(_) => {
                log::warn!("delayed messages may be delivered again after the next start: flush took over {} ms", deadline.as_millis())
            }
        }
    }

    fn run(&self, context: &BrokerContext) {
        let mut delivery = Delivery { context, batch: AppendBatch::default(), offsets: Vec::new(), outcomes: Vec::new() };
        let mut write_ms: Option<i64> = None;
        let mut complaint = String::new(); // said once, not every second
        loop {
            let now_ms = context.clock.now_ms();
            let mut due_ms = i64::MAX;
            for index in 0..self.delays_ms.len() {
                due_ms = due_ms.min(match self.look(&mut delivery, index, now_ms) {
                    Ok(Look::Delivered) => now_ms,
                    Ok(Look::Due(at_ms)) => at_ms,
                    Ok(Look::Empty) => i64::MAX,
                    Err(error) => {
                        let text = error.to_string();
                        if text != complaint {
                            log::warn!("delayed messages wait: level={} error={text}", index + 1);
                            complaint = text;
                        }
                        now_ms + RETRY_MS
                    }
                });
            }
            write_ms = self.write_in_time(write_ms, now_ms);
            if self.sleep_until(context, due_ms.min(write_ms.unwrap_or(i64::MAX))) {
                return;
            }
        }
    }

    /// Has the progress written, but not for each delivery; when to call again.
    fn write_in_time(&self, write_ms: Option<i64>, now_ms: i64) -> Option<i64> {
        let mut progress = self.progress.lock();
        progress.flushed(self.store.flushed_offset());
        if !progress.is_unwritten() {
            return None;
        }
        if write_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            if progress.is_changed() {
                progress.next_version(now_ms);
                self.writer.write(self.file, None);
            }
            return Some(now_ms + self.persist_ms);
        }
        write_ms.or(Some(now_ms + self.persist_ms))
    }

    /// Sleeps until `due_ms` or until a message arrives that is due earlier; true when the thread is to end.
    fn sleep_until(&self, context: &BrokerContext, due_ms: i64) -> bool {
        let mut sleep = self.sleep.lock();
        loop {
            if sleep.stopping {
                return true;
            }
            sleep.until_ms = due_ms.min(std::mem::replace(&mut sleep.arrived_ms, i64::MAX)).min(sleep.until_ms);
            let wait_ms = sleep.until_ms.saturating_sub(context.clock.now_ms());
            if wait_ms <= 0 {
                sleep.until_ms = i64::MAX;
                return false;
            }
            self.wait(&mut sleep, wait_ms);
        }
    }

    fn wait(&self, sleep: &mut MutexGuard<'_, Sleep>, wait_ms: i64) {
        if sleep.until_ms == i64::MAX {
            self.wake.wait(sleep);
        } else {
            self.wake.wait_for(sleep, Duration::from_millis(wait_ms.min(LONGEST_SLEEP_MS).unsigned_abs()));
        }
    }

    /// Delivers what is due on the level at `index`, at most a batch.
    fn look(&self, delivery: &mut Delivery<'_>, index: usize, now_ms: i64) -> Result<Look, PutError> {
        let queue_id = index as i32;
        let (min_offset, max_offset) = self.store.queue_bounds(SCHEDULE_TOPIC, queue_id);
        let first = self.progress.lock().next(index);
        let mut offset = first.clamp(min_offset, max_offset.max(min_offset));
        if offset != first {
            log::warn!("delay level jumps over messages that are gone: level={} from={first} to={offset}", index + 1);
            self.progress.lock().set(index, offset);
        }
        let begin = offset;
        let mut head_ms = None;
        delivery.begin();
        while offset < max_offset && delivery.batch.len() < BATCH_MESSAGES && delivery.batch.size() < BATCH_BYTES {
            let Some((deliver_ms, record)) = self.store.message_at(SCHEDULE_TOPIC, queue_id, offset) else {
                log::warn!("delayed messages wait, their queue cannot be read: level={} offset={offset}", index + 1);
                head_ms = Some(now_ms + RETRY_MS);
                break;
            };
            // A deliver time beyond the level's delay comes from a clock that was set back or a delay made shorter.
            if deliver_ms > now_ms && deliver_ms <= now_ms.saturating_add(self.delays_ms[index]) {
                head_ms = Some(deliver_ms);
                break;
            }
            match record {
                Some(record) => delivery.stage(&record, index + 1, offset)?,
                None => log::error!("delayed message lost, the log no longer has it: level={} offset={offset}", index + 1),
            }
            offset += 1;
        }
        if offset == begin {
            return Ok(head_ms.map_or(Look::Empty, Look::Due));
        }
        let (end, failed) = delivery.append();
        let next = failed.as_ref().map_or(offset, |(failed, _)| *failed);
        if next > begin {
            self.progress.lock().delivered(index, next, end);
        }
        failed.map_or(Ok(Look::Delivered), |(_, error)| Err(error))
    }
}

impl ArrivalListener for DelayLevels {
    fn arrived(&self, arrival: &Arrival<'_>) {
        if arrival.topic != SCHEDULE_TOPIC {
            return;
        }
        let mut sleep = self.sleep.lock();
        sleep.arrived_ms = sleep.arrived_ms.min(arrival.tags_code);
        if arrival.tags_code < sleep.until_ms {
            self.wake.notify_one();
        }
    }
}

/// Brings every offset into the bounds of its queue.
fn clamp(progress: &mut Progress, store: &MessageStore) {
    for index in 0..progress.len() {
        let (min_offset, max_offset) = store.queue_bounds(SCHEDULE_TOPIC, index as i32);
        let loaded = progress.next(index);
        let offset = loaded.clamp(min_offset, max_offset.max(min_offset));
        if offset != loaded {
            log::warn!("delay offset corrected: level={} from={loaded} to={offset} min={min_offset} max={max_offset}", index + 1);
            progress.set(index, offset);
        }
    }
}

/// Messages on their way to their real queues.
struct Delivery<'a> {
    context: &'a BrokerContext,
    batch: AppendBatch,
    /// Offset on the level of each record staged.
    offsets: Vec<i64>,
    outcomes: Vec<AppendOutcome>,
}

impl Delivery<'_> {
    fn begin(&mut self) {
        self.batch.clear();
        self.offsets.clear();
        self.outcomes.clear();
    }

    /// Stages the message of a record; one that can never be delivered is reported and passed over.
    fn stage(&mut self, record: &[u8], level: usize, offset: i64) -> Result<(), PutError> {
        let record = match Record::parse(record) {
            Ok(record) => record,
            Err(error) => {
                log::error!("delayed message lost, its record is damaged: level={level} offset={offset} error={error}");
                return Ok(());
            }
        };
        let topic = properties::find(record.properties, properties::REAL_TOPIC);
        let queue_id = properties::find(record.properties, properties::REAL_QID).and_then(|queue_id| queue_id.parse().ok());
        let (Some(topic), Some(queue_id)) = (topic.filter(|topic| *topic != HALF_TOPIC), queue_id) else {
            log::error!("delayed message lost, it has no real topic and queue: level={level} offset={offset} topic={topic:?}");
            return Ok(());
        };
        let draft = Draft {
            topic,
            queue_id,
            flag: record.flag,
            sys_flag: record.sys_flag,
            born_timestamp: record.born_timestamp,
            born_host: record.born_host,
            store_host: self.context.store_host,
            reconsume_times: record.reconsume_times,
            prepared_transaction_offset: 0,
            body: record.body,
            properties: record.properties.as_bytes(),
        };
        match self.context.store.stage(&mut self.batch, &draft) {
            Err(error @ (PutError::Unavailable(_) | PutError::Io(_))) => Err(error),
            Err(error) => {
                log::error!("delayed message lost: level={level} offset={offset} topic={topic} error={error}");
                Ok(())
            }
            Ok(()) => {
                self.offsets.push(offset);
                self.context.stats.put(topic, queue_id, 1, draft.size() as u64);
                Ok(())
            }
        }
    }

    /// Appends what was staged: the end of the last record that went in, and the first that did not, by its offset on the level.
    fn append(&mut self) -> (i64, Option<(i64, PutError)>) {
        let mut end = 0;
        if self.batch.is_empty() {
            return (end, None);
        }
        self.context.store.append(&mut self.batch, &mut self.outcomes);
        for (outcome, offset) in self.outcomes.drain(..).zip(&self.offsets) {
            match outcome {
                Ok(appended) => end = appended.end(),
                Err(error) => return (end, Some((*offset, error))),
            }
        }
        (end, None)
    }
}
