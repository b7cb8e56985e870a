//! Decides transactions, each once.
//!
//! - What is finished is known from the op queue, which is read at the start from where the check left off, with some of what lies before.
//! - A decision is taken under a lock of its half message: of several at the same time one is carried out, the others find it done.
//! - The real message and its op message are appended together. Should a crash have parted them, the real message is found by the unique
//!   key before anything is decided about a half message of an earlier run.
//! - Lock order: the lock of a half message, the state. The state is never locked while the store is written or searched.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::broker::context::BrokerContext;
use crate::broker::offset::OffsetTable;
use crate::broker::processor::client_view::records;
use crate::broker::processor::send::{clamp_level, put_error_code};
use crate::common::record::{Draft, Record};
use crate::common::topic::{HALF_TOPIC, OP_HALF_TOPIC, PERM_READ_WRITE, SCHEDULE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC};
use crate::common::{properties, sysflag};
use crate::remoting::code::response;
use crate::runtime::thread::Thread;
use crate::store::append::{AppendBatch, AppendOutcome, Appended};
use crate::store::error::PutError;
use crate::store::reading::AllMessages;
use crate::store::{GetLimits, MessageStore};

use super::decisions::{Decision, Decisions};
use super::half::{self, Half};
use super::{QUEUE, TRANSACTION_GROUP, op};

/// Op messages that are read at the start beyond those that must be.
const REMEMBERED_AT_START: i64 = 65_536;
/// Decisions that are kept behind the check's position; what is older is looked up.
const REMEMBERED: i64 = 1 << 20;
/// Locks of half messages, each for many.
const LOCKS: usize = 64;
/// Records with one key that are looked at.
const MOST_OF_ONE_KEY: usize = 64;
/// How far the clock may have been set back since a record was stored, ms.
const CLOCK_SLACK_MS: i64 = 60_000;
/// One read of the op queue.
pub(super) const READ_LIMITS: GetLimits = GetLimits {
    max_messages: 1_024,
    max_bytes: 1 << 20,
    max_messages_in_memory: 1_024,
    max_bytes_on_disk: 1 << 20,
    max_messages_on_disk: 1_024,
};

/// Why a decision is not carried out: code and text.
pub(crate) type Refusal = (i32, String);

/// The transactions of a broker.
pub struct Transactions {
    pub(super) state: Mutex<State>,
    locks: Box<[Mutex<()>]>,
    /// End of the log at the start: of what lies before, a crash may have lost the op message.
    start_end: i64,
    pub(super) counts: Counts,
    pub(super) sleep: Mutex<bool>,
    pub(super) wake: Condvar,
    pub(super) thread: Mutex<Option<Thread>>,
}

/// What is known of the half queue.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) decisions: Decisions,
    /// Every half message before this offset is finished.
    pub(super) half_offset: i64,
    /// Every op message before this offset is of half messages before `half_offset`.
    pub(super) op_offset: i64,
    /// Decisions on half messages before this offset may be forgotten.
    remembered_from: i64,
    /// Decisions whose op message could not be written after the real message was.
    owed: Vec<(i64, Decision, String)>,
}

/// What happened since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) pending: AtomicU64,
    pub(super) committed: AtomicU64,
    pub(super) rolled_back: AtomicU64,
    pub(super) asked: AtomicU64,
    pub(super) put_aside: AtomicU64,
}

/// Numbers of the transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionStatus {
    /// Half messages without a decision, as the last round of the check counted them.
    pub pending: u64,
    /// Committed since the start.
    pub committed: u64,
    /// Rolled back since the start.
    pub rolled_back: u64,
    /// Questions sent to producers since the start.
    pub asked: u64,
    /// Half messages put aside since the start.
    pub put_aside: u64,
    /// Every half message before this queue offset is finished.
    pub half_offset: i64,
    /// Every op message before this queue offset is of no use any more.
    pub op_offset: i64,
}

/// What the log says of a half message.
enum Found {
    Nothing,
    Decided(Decision),
    PutAside,
}

impl Transactions {
    /// Reads the op queue. The store must have recovered.
    pub(crate) fn load(store: &MessageStore, offsets: &OffsetTable) -> Arc<Self> {
        let bounds = |topic| store.queue_bounds(topic, QUEUE);
        let position = |topic, (min, max): (i64, i64)| {
            let stored = offsets.get(topic, TRANSACTION_GROUP, QUEUE).unwrap_or(min);
            stored.clamp(min, max.max(min))
        };
        let (half_bounds, op_bounds) = (bounds(HALF_TOPIC), bounds(OP_HALF_TOPIC));
        let (half_offset, op_offset) = (position(HALF_TOPIC, half_bounds), position(OP_HALF_TOPIC, op_bounds));
        let from = op_offset.min(op_bounds.1 - REMEMBERED_AT_START).max(op_bounds.0);
        let mut state = State { half_offset, op_offset, remembered_from: half_bounds.0, ..State::default() };
        let mut smallest = half_offset;
        read_ops(store, from, |_, record| {
            for (offset, decision) in op::finished(record).filter(|(offset, _)| *offset < half_bounds.1) {
                state.decisions.set(offset, decision);
                smallest = smallest.min(offset);
            }
            true
        });
        if from > op_bounds.0 {
            state.remembered_from = state.remembered_from.max(half_offset);
        }
        log::info!(
            "transactions loaded: half_offset={half_offset} half_max={} op_offset={op_offset} op_max={} oldest_decision={smallest}",
            half_bounds.1,
            op_bounds.1
        );
        Arc::new(Self {
            state: Mutex::new(state),
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            start_end: store.stats().max_physical_offset,
            counts: Counts::default(),
            sleep: Mutex::new(false),
            wake: Condvar::new(),
            thread: Mutex::new(None),
        })
    }

    /// Numbers.
    pub fn status(&self) -> TransactionStatus {
        let state = self.state.lock();
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TransactionStatus {
            pending: of(&self.counts.pending),
            committed: of(&self.counts.committed),
            rolled_back: of(&self.counts.rolled_back),
            asked: of(&self.counts.asked),
            put_aside: of(&self.counts.put_aside),
            half_offset: state.half_offset,
            op_offset: state.op_offset,
        }
    }

    /// Carries out a producer's decision on a half message, or finds it carried out. Returns the physical offset up to which the log has
    /// to be durable. Slow: on a work thread.
    ///
    /// # Errors
    /// Decided otherwise before, or not stored: code and text for the producer.
    pub(crate) fn decide(&self, context: &BrokerContext, half: &Half<'_>, decision: Decision) -> Result<i64, Refusal> {
        let _locked = self.lock(half.record.queue_offset);
        if let Some(before) = self.decided(context, half)? {
            if before == decision {
                return Ok(context.store.stats().max_physical_offset); // the first of two may not be on disk yet
            }
            let text = format!(
                "the transaction is {} already: half message at queue offset {}, transaction id {:?}",
                before.text(),
                half.record.queue_offset,
                half.unique_key
            );
            return Err((response::SYSTEM_ERROR, text));
        }
        self.pay_owed(context)?;
        match decision {
            Decision::Committed => self.commit(context, half),
            _ => self.roll_back(context, half),
        }
    }

    /// The lock under which a half message is decided and asked about.
    pub(super) fn lock(&self, offset: i64) -> MutexGuard<'_, ()> {
        self.locks[offset.rem_euclid(LOCKS as i64) as usize].lock()
    }

    /// What was decided before; what the log alone knew is noted down. Under the half message's lock.
    pub(super) fn decided(&self, context: &BrokerContext, half: &Half<'_>) -> Result<Option<Decision>, Refusal> {
        let offset = half.record.queue_offset;
        let (known, forgotten) = {
            let state = self.state.lock();
            (state.decisions.get(offset), offset < state.remembered_from)
        };
        let may_be_lost = forgotten || half.record.physical_offset < self.start_end;
        let found = match known {
            Some(Decision::Unknown) => search(context, half),
            None if may_be_lost => search(context, half),
            decision => return Ok(decision),
        };
        let decision = match (found, known) {
            (Found::Decided(decision), _) => decision,
            (Found::Nothing, Some(Decision::Unknown)) => Decision::RolledBack, // finished, and there is no real message
            (Found::Nothing | Found::PutAside, _) => return Ok(None),
        };
        if known.is_none() && !forgotten {
            log::info!("decision found in the log: half_offset={offset} decision={} key={}", decision.text(), half.unique_key);
            self.append_op(context, offset, decision, half.unique_key).map_err(refused)?;
        }
        self.state.lock().decisions.set(offset, decision);
        Ok(Some(decision))
    }

    fn commit(&self, context: &BrokerContext, half: &Half<'_>) -> Result<i64, Refusal> {
        let level = clamp_level(context, half.delay_level);
        let text = half.real_properties(level).map_err(|why| (response::MESSAGE_ILLEGAL, why))?;
        let draft = half.real(context.store_host, level, &text);
        let end = self.append_decided(context, half.record, Some(&draft), Decision::Committed, half.unique_key)?;
        self.counts.committed.fetch_add(1, Ordering::Relaxed);
        Ok(end)
    }

    fn roll_back(&self, context: &BrokerContext, half: &Half<'_>) -> Result<i64, Refusal> {
        let end = self.append_decided(context, half.record, None, Decision::RolledBack, half.unique_key)?;
        self.counts.rolled_back.fetch_add(1, Ordering::Relaxed);
        Ok(end)
    }

    /// Moves a half message to the topic of those that were asked about in vain. Under its lock; only on threads that may block.
    ///
    /// # Errors
    /// The topic was not created, or nothing was stored.
    pub(super) fn put_aside(&self, context: &BrokerContext, record: &Record<'_>) -> Result<(), Refusal> {
        let (topic, created) = context
            .topics
            .ensure(TRANS_CHECK_MAX_TIME_TOPIC, 1, PERM_READ_WRITE, 0, context.clock.now_ms())
            .map_err(|text| (response::SYSTEM_ERROR, text))?;
        if created {
            context.registration.register_topic(&topic.topic_name);
        }
        let draft = half::put_aside(record, context.store_host);
        let key = properties::find(record.properties, properties::UNIQ_KEY).unwrap_or_default();
        self.append_decided(context, record, Some(&draft), Decision::Unknown, key)?;
        self.counts.put_aside.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Appends a message and the op message of its half message, one behind the other.
    fn append_decided(
        &self, context: &BrokerContext, record: &Record<'_>, message: Option<&Draft<'_>>, decision: Decision, key: &str,
    ) -> Result<i64, Refusal> {
        let offset = record.queue_offset;
        let (mut batch, mut outcomes) = (AppendBatch::default(), Vec::with_capacity(2));
        if let Some(message) = message {
            context.store.stage(&mut batch, message).map_err(refused)?;
        }
        stage_op(context, &mut batch, offset, decision, key).map_err(refused)?;
        context.store.append(&mut batch, &mut outcomes);
        let op_outcome = outcomes.pop().unwrap_or_else(nothing);
        let mut end = 0;
        if let Some(message) = message {
            let appended = outcomes.pop().unwrap_or_else(nothing).map_err(refused)?;
            context.stats.put(message.topic, message.queue_id, 1, appended.size as u64);
            end = appended.end();
        }
        match op_outcome {
            Ok(appended) => {
                context.stats.put(OP_HALF_TOPIC, QUEUE, 1, appended.size as u64);
                end = end.max(appended.end());
            }
            Err(error) if message.is_none() => return Err(refused(error)),
            Err(error) => {
                log::error!("op message not written, it is tried again: half_offset={offset} error={error}");
                self.state.lock().owed.push((offset, decision, key.to_owned()));
            }
        }
        self.state.lock().decisions.set(offset, decision);
        Ok(end)
    }

    fn append_op(&self, context: &BrokerContext, offset: i64, decision: Decision, key: &str) -> AppendOutcome {
        let (mut batch, mut outcomes) = (AppendBatch::default(), Vec::with_capacity(1));
        stage_op(context, &mut batch, offset, decision, key)?;
        context.store.append(&mut batch, &mut outcomes);
        outcomes.pop().unwrap_or_else(nothing)
    }

    /// Writes the op messages that could not be written before.
    ///
    /// # Errors
    /// The store still refuses them.
    pub(super) fn pay_owed(&self, context: &BrokerContext) -> Result<(), Refusal> {
        loop {
            let Some((offset, decision, key)) = self.state.lock().owed.pop() else { return Ok(()) };
            if let Err(error) = self.append_op(context, offset, decision, &key) {
                self.state.lock().owed.push((offset, decision, key));
                return Err(refused(error));
            }
        }
    }

    /// Every half message before `half_offset` is finished; decisions far behind are forgotten.
    pub(super) fn moved_to(&self, half_offset: i64, min_offset: i64) {
        let mut state = self.state.lock();
        state.half_offset = half_offset;
        state.remembered_from = state.remembered_from.max(half_offset - REMEMBERED).max(min_offset);
        let from = state.remembered_from;
        state.decisions.forget_before(from);
    }
}

fn refused(error: PutError) -> Refusal {
    (put_error_code(&error), error.to_string())
}

fn nothing() -> Result<Appended, PutError> {
    Err(PutError::Unavailable("nothing was appended".to_owned()))
}

fn stage_op(context: &BrokerContext, batch: &mut AppendBatch, offset: i64, decision: Decision, key: &str) -> Result<(), PutError> {
    let made_key = key.is_empty().then(|| context.unique_ids.next(context.clock.now_ms()));
    let text = op::properties_text(decision, made_key.as_deref().unwrap_or(key));
    let mut body = itoa::Buffer::new();
    let draft = Draft {
        topic: OP_HALF_TOPIC,
        queue_id: QUEUE,
        flag: 0,
        sys_flag: sysflag::TRANSACTION_NOT,
        born_timestamp: context.clock.now_ms(),
        born_host: context.store_host,
        store_host: context.store_host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: body.format(offset).as_bytes(),
        properties: text.as_bytes(),
    };
    context.store.stage(batch, &draft)
}

/// Hands the op messages from `from` on to `take`, with their offsets, until it returns false or there are no more.
pub(super) fn read_ops(store: &MessageStore, from: i64, mut take: impl FnMut(i64, &Record<'_>) -> bool) {
    let mut offset = from;
    loop {
        let found = store.get(OP_HALF_TOPIC, QUEUE, offset, &READ_LIMITS, &AllMessages);
        for record in found.slices.iter().flat_map(|slice| records(slice)) {
            if !take(record.queue_offset, &record) {
                return;
            }
        }
        if found.next_begin_offset <= offset {
            return; // the end, or something that cannot be read now
        }
        offset = found.next_begin_offset;
    }
}

/// Looks for what the log says of a half message: its op message, else its real message.
fn search(context: &BrokerContext, half: &Half<'_>) -> Found {
    if half.unique_key.is_empty() || !context.config.store.index_enable {
        return if is_in_queue(context, half) { Found::Decided(Decision::Committed) } else { Found::Nothing };
    }
    let mut put_aside = false;
    for bytes in with_key(context, half, OP_HALF_TOPIC) {
        let Ok(record) = Record::parse(&bytes) else { continue };
        match op::finished(&record).find(|(offset, _)| *offset == half.record.queue_offset) {
            Some((_, Decision::Unknown)) => put_aside = true,
            Some((_, decision)) => return Found::Decided(decision),
            None => {}
        }
    }
    let is_real = |bytes: &Bytes| Record::parse(bytes).is_ok_and(|record| is_real_message(&record, half));
    if [half.topic, SCHEDULE_TOPIC].iter().any(|topic| with_key(context, half, topic).iter().any(is_real)) {
        return Found::Decided(Decision::Committed);
    }
    if put_aside { Found::PutAside } else { Found::Nothing }
}

fn with_key(context: &BrokerContext, half: &Half<'_>, topic: &str) -> Vec<Bytes> {
    let begin = half.record.store_timestamp - CLOCK_SLACK_MS;
    let end = context.clock.now_ms().max(half.record.store_timestamp) + CLOCK_SLACK_MS;
    context.store.query(topic, half.unique_key, MOST_OF_ONE_KEY, begin, end).records
}

/// A message with the transaction's id was committed: also one that another broker made of a copy of the half message.
fn is_real_message(record: &Record<'_>, half: &Half<'_>) -> bool {
    sysflag::transaction_type(record.sys_flag) == sysflag::TRANSACTION_COMMIT
        && properties::find(record.properties, properties::UNIQ_KEY).unwrap_or_default() == half.unique_key
        && properties::find(record.properties, properties::PGROUP) == Some(half.group)
}

/// Without an index: reads the real queue from the half message's time on.
fn is_in_queue(context: &BrokerContext, half: &Half<'_>) -> bool {
    let store = &context.store;
    let begin = half.record.store_timestamp - CLOCK_SLACK_MS;
    let mut offset = store.offset_by_time(half.topic, half.queue_id, begin, crate::store::reading::Boundary::Lower);
    loop {
        let found = store.get(half.topic, half.queue_id, offset, &READ_LIMITS, &AllMessages);
        let mut all = found.slices.iter().flat_map(|slice| records(slice));
        if all.any(|record| record.prepared_transaction_offset == half.record.physical_offset && is_real_message(&record, half)) {
            return true;
        }
        if found.next_begin_offset <= offset {
            return false;
        }
        offset = found.next_begin_offset;
    }
}
