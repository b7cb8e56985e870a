//! The `tx-check` thread: asks producers what became of transactions about which they have been silent.
//!
//! - A round goes through the half messages without a decision. Each that is old enough leads to one question, to one connection of its
//!   producer group. One that has to wait (nobody is there, its own immunity, a damaged unit) holds up nobody behind it.
//! - A question goes out under the lock under which decisions are taken: never after a decision.
//! - How often was asked is kept in memory: after a restart the counting begins anew.
//! - The offsets of the half and the op queue are moved behind what is finished, and only when the decisions are on disk.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::smallvec;

use crate::broker::clients::Client;
use crate::broker::context::BrokerContext;
use crate::broker::processor::client_view;
use crate::common::message_id;
use crate::common::record::Record;
use crate::common::topic::{HALF_TOPIC, OP_HALF_TOPIC};
use crate::remoting::code::request::CHECK_TRANSACTION_STATE;
use crate::remoting::header::transaction::CheckTransactionState;
use crate::runtime::thread::Thread;

use super::decisions::Decision;
use super::half::Half;
use super::transactions::{Transactions, read_ops};
use super::{QUEUE, TRANSACTION_GROUP, op};

/// Half messages without a decision that are looked at in one go; then the thread pauses.
const LOOKS_AT_ONCE: usize = 10_000;
/// Pause between two goes of one round.
const PAUSE: Duration = Duration::from_millis(100);
/// Op messages that are read in one round to move the op queue's offset.
const OPS_AT_ONCE: usize = 200_000;
/// Half messages whose questions are counted.
const MAX_COUNTED: usize = 1 << 20;
/// Groups whose absence is remembered as told.
const MAX_ABSENT: usize = 4_096;
/// A producer that has not read so many bytes yet is not asked more.
const ASK_UNSENT_BYTES: usize = 1 << 20;
const MS_PER_HOUR: i64 = 3_600_000;

/// What became of a half message that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Finished, or gone.
    Finished,
    /// It waits, others behind it need not.
    Waits,
    /// It is too young, and so is everything behind it.
    Young,
}

/// The thread's own memory.
#[derive(Default)]
struct Checker {
    /// Questions by half message.
    asked: HashMap<i64, u32>,
    /// Groups of which it was told that nobody is there.
    absent: HashSet<String>,
    /// Turns, to ask the members of a group one after the other.
    turn: usize,
    /// Offsets that wait for the disk: half, end of the log.
    settling: Option<(i64, i64)>,
}

/// A round that may take several goes.
struct Round {
    /// Next half message.
    offset: i64,
    /// Every half message before this one is finished.
    finished_to: i64,
    /// Nothing has been found that waits.
    all_finished: bool,
    pending: u64,
    now_ms: i64,
}

impl Transactions {
    /// Starts the thread. Once.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(self: &Arc<Self>, context: Arc<BrokerContext>) -> std::io::Result<()> {
        let transactions = Arc::clone(self);
        let tag = context.config.store.tag.clone();
        *self.thread.lock() = Some(Thread::spawn(&tag, "tx-check", move || transactions.run(&context))?);
        Ok(())
    }

    /// Ends the thread. Twice is harmless.
    pub(crate) fn shutdown(&self) {
        *self.sleep.lock() = true;
        self.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }

    fn run(&self, context: &BrokerContext) {
        let interval = Duration::from_millis(context.config.transaction_check_interval_ms.max(1));
        let mut checker = Checker::default();
        let mut due = Instant::now() + interval;
        while self.sleeps_until(due) {
            due = Instant::now() + interval;
            if let Err((_, why)) = self.pay_owed(context) {
                log::error!("op messages still not written: {why}");
                continue;
            }
            if !self.round(context, &mut checker) {
                return;
            }
        }
    }

    /// False when the thread is to end.
    fn sleeps_until(&self, due: Instant) -> bool {
        let mut stopping = self.sleep.lock();
        while !*stopping && Instant::now() < due {
            self.wake.wait_until(&mut stopping, due);
        }
        !*stopping
    }

    /// False when the thread is to end.
    fn round(&self, context: &BrokerContext, checker: &mut Checker) -> bool {
        let (min_offset, _) = context.store.queue_bounds(HALF_TOPIC, QUEUE);
        let from = self.state.lock().half_offset.max(min_offset);
        let mut round = Round { offset: from, finished_to: from, all_finished: true, pending: 0, now_ms: context.clock.now_ms() };
        while !self.go(context, checker, &mut round) {
            if !self.sleeps_until(Instant::now() + PAUSE) {
                return false;
            }
        }
        self.counts.pending.store(round.pending, Ordering::Relaxed);
        self.moved_to(round.finished_to, min_offset);
        {
            let state = self.state.lock();
            checker.asked.retain(|offset, _| *offset >= round.finished_to && state.decisions.get(*offset).is_none());
        }
        let log_end = context.store.stats().max_physical_offset; // behind every decision that the round has seen
        self.settle(context, checker, round.finished_to, log_end);
        true
    }

    /// One go of a round; true when the round is done.
    fn go(&self, context: &BrokerContext, checker: &mut Checker, round: &mut Round) -> bool {
        let (_, max_offset) = context.store.queue_bounds(HALF_TOPIC, QUEUE);
        for _ in 0..LOOKS_AT_ONCE {
            round.offset = self.state.lock().decisions.next_undecided(round.offset).min(max_offset.max(round.offset));
            if round.all_finished {
                round.finished_to = round.offset;
            }
            if round.offset >= max_offset {
                return true;
            }
            match self.look(context, checker, round.offset, round.now_ms) {
                Look::Finished => {}
                Look::Waits => {
                    round.all_finished = false;
                    round.pending += 1;
                }
                Look::Young => {
                    round.pending += (max_offset - round.offset).unsigned_abs(); // those already decided among them count as well
                    return true;
                }
            }
            round.offset += 1;
        }
        false
    }

    fn look(&self, context: &BrokerContext, checker: &mut Checker, offset: i64, now_ms: i64) -> Look {
        let Some((_, bytes)) = context.store.message_at(HALF_TOPIC, QUEUE, offset) else { return Look::Waits };
        let parsed = bytes.as_deref().map(Record::parse);
        let Some(Ok(record)) = parsed else {
            log::error!("half message lost, the log no longer has it: offset={offset} error={parsed:?}");
            self.state.lock().decisions.set(offset, Decision::Unknown);
            return Look::Finished;
        };
        let half = match Half::read(&record) {
            Ok(half) => half,
            Err(why) => return self.put_aside_because(context, &record, &why),
        };
        let config = &context.config;
        let age_ms = now_ms - record.store_timestamp;
        // A message of the future: the clock was set back; as the reference does, it is not waited for.
        if (0..config.transaction_timeout_ms).contains(&age_ms) {
            return Look::Young;
        }
        if (0..half.immunity_ms(config.transaction_timeout_ms)).contains(&age_ms) {
            return Look::Waits;
        }
        let reserved_ms = i64::try_from(config.store.file_reserved_hours).unwrap_or(i64::MAX).saturating_mul(MS_PER_HOUR);
        if age_ms > reserved_ms {
            return self.put_aside_because(context, &record, &format!("it is {age_ms} ms old, longer than fileReservedTime"));
        }
        let asked = checker.asked.get(&offset).copied().unwrap_or_else(|| half.stored_checks());
        if i64::from(asked) >= i64::from(config.transaction_check_max) {
            return self.put_aside_because(context, &record, &format!("asked {asked} times in vain (transactionCheckMax)"));
        }
        self.ask(context, checker, &half, asked + 1)
    }

    fn put_aside_because(&self, context: &BrokerContext, record: &Record<'_>, why: &str) -> Look {
        let offset = record.queue_offset;
        let _locked = self.lock(offset);
        if self.state.lock().decisions.get(offset).is_some() {
            return Look::Finished;
        }
        if let Ok(half) = Half::read(record) {
            match self.decided(context, &half) {
                Ok(None) => {}
                Ok(Some(_)) => return Look::Finished,
                Err(_) => return Look::Waits,
            }
        }
        match self.put_aside(context, record) {
            Ok(()) => {
                log::error!("transaction discarded: half_offset={offset} physical_offset={} reason={why}", record.physical_offset);
                Look::Finished
            }
            Err((_, error)) => {
                log::warn!("half message not put aside: half_offset={offset} reason={why} error={error}");
                Look::Waits
            }
        }
    }

    fn ask(&self, context: &BrokerContext, checker: &mut Checker, half: &Half<'_>, times: u32) -> Look {
        let offset = half.record.queue_offset;
        let Some(client) = checker.producer(context, half.group) else { return Look::Waits };
        let _locked = self.lock(offset);
        match self.decided(context, half) {
            Ok(None) => {}
            Ok(Some(_)) => return Look::Finished,
            Err((_, why)) => {
                log::warn!("decision not noted: half_offset={offset} error={why}");
                return Look::Waits;
            }
        }
        if let Err(why) = question(context, half, &client, times) {
            log::warn!("producer not asked: group={} half_offset={offset} error={why}", half.group);
        }
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        if checker.asked.len() < MAX_COUNTED || checker.asked.contains_key(&offset) {
            checker.asked.insert(offset, times);
        }
        Look::Waits
    }

    /// Stores the offsets up to which everything is finished, once the decisions are on disk.
    fn settle(&self, context: &BrokerContext, checker: &mut Checker, half_offset: i64, log_end: i64) {
        let (settled, end) = *checker.settling.get_or_insert((half_offset, log_end));
        if context.store.flushed_offset() < end {
            return;
        }
        checker.settling = None;
        // In this order: the op queue is never ahead of the half queue.
        context.offsets.commit(HALF_TOPIC, TRANSACTION_GROUP, QUEUE, settled);
        let (min_op, _) = context.store.queue_bounds(OP_HALF_TOPIC, QUEUE);
        let mut op_offset = self.state.lock().op_offset.max(min_op);
        let mut left = OPS_AT_ONCE;
        read_ops(&context.store, op_offset, |offset, record| {
            let is_done = op::finished(record).all(|(half_offset, _)| half_offset < settled);
            if is_done && left > 0 {
                op_offset = offset + 1;
                left -= 1;
            }
            is_done && left > 0
        });
        self.state.lock().op_offset = op_offset;
        context.offsets.commit(OP_HALF_TOPIC, TRANSACTION_GROUP, QUEUE, op_offset);
    }
}

impl Checker {
    /// The next member of a group that can be asked.
    fn producer(&mut self, context: &BrokerContext, group: &str) -> Option<Arc<Client>> {
        let mut clients = context.clients.producers(group);
        clients.retain(|client| client.connection.is_open());
        if clients.is_empty() {
            if self.absent.len() < MAX_ABSENT && self.absent.insert(group.to_owned()) {
                log::warn!("transactions wait, no producer of their group is connected: group={group}");
            }
            return None;
        }
        if self.absent.remove(group) {
            log::info!("producers of waiting transactions are back: group={group} producers={}", clients.len());
        }
        clients.retain(|client| client.connection.unsent() <= ASK_UNSENT_BYTES);
        self.turn = self.turn.wrapping_add(1);
        let count = clients.len().max(1);
        clients.into_iter().nth(self.turn % count)
    }
}

fn question(context: &BrokerContext, half: &Half<'_>, client: &Client, times: u32) -> Result<(), String> {
    let record = half.record;
    let body = half.question(times)?;
    let header = CheckTransactionState {
        topic: HALF_TOPIC.into(),
        tran_state_table_offset: record.queue_offset,
        commit_log_offset: record.physical_offset,
        unique_key: half.unique_key.into(),
        offset_msg_id: message_id::format(record.store_host, record.physical_offset).into(),
        broker_name: context.config.broker_name.as_str().into(),
    };
    let body = client_view::body(smallvec![Bytes::from(body)], client.language);
    client.connection.oneway(CHECK_TRANSACTION_STATE, &header, body);
    log::debug!("producer asked: group={} half_offset={} times={times} client={}", half.group, record.queue_offset, client.client_id);
    Ok(())
}
