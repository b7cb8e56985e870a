//! Answers to sends that wait until their records are on disk.
//!
//! Each net thread keeps its own answers in the order of their records, so that one look at the flushed offset frees a run of them.
//! - An answer leaves once: when its record is durable (0), when the sync failed (1), or when it took too long (10; stored all the same).
//! - The thread is woken by the flush thread for its oldest answer, and by `tasks` when that answer is overdue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::broker::context::BrokerContext;
use crate::common::message_id;
use crate::net::responder::Responder;
use crate::net::service::LaneWaker;
use crate::remoting::code::response;
use crate::remoting::command::Body;
use crate::remoting::ext::{CustomHeader, HeaderWriter};
use crate::store::message_store::{Durability, FlushWatch, MessageStore};

/// Memory kept for writing ids; those of a large batch take megabytes.
const SCRATCH_BYTES: usize = 16 << 10;

/// A unique key, which is rarely longer.
pub(crate) type KeyBytes = SmallVec<[u8; 40]>;

/// What a send's answer says.
#[derive(Clone, Debug)]
pub(crate) struct SendAnswer {
    /// Start of each record in the log.
    pub(crate) physical_offsets: SmallVec<[i64; 1]>,
    /// Queue.
    pub(crate) queue_id: i32,
    /// Queue offset of the first record.
    pub(crate) queue_offset: i64,
    /// Unique key of the message.
    pub(crate) unique_key: KeyBytes,
}

impl SendAnswer {
    /// Answers with the whole header, which clients need for 0, 10, 11 and 12 alike. `scratch` is overwritten.
    pub(crate) fn reply(&self, context: &BrokerContext, responder: Responder, code: i32, remark: Option<&str>, scratch: &mut String) {
        scratch.clear();
        for (index, offset) in self.physical_offsets.iter().enumerate() {
            if index > 0 {
                scratch.push(',');
            }
            message_id::write(scratch, context.store_host, *offset);
        }
        let header = SendAnswerHeader {
            message_id: scratch,
            queue_id: self.queue_id,
            queue_offset: self.queue_offset,
            unique_key: std::str::from_utf8(&self.unique_key).unwrap_or_default(),
            region: &context.config.region_id,
            trace_on: context.config.trace_on,
        };
        responder.reply(code, remark, &header, Body::Empty);
        scratch.shrink_to(SCRATCH_BYTES);
    }

    /// Answers by what became of the record's way to the disk.
    pub(crate) fn reply_durability(&self, context: &BrokerContext, responder: Responder, outcome: &Durability, scratch: &mut String) {
        match outcome {
            Durability::Durable => self.reply(context, responder, response::SUCCESS, None, scratch),
            Durability::Failed(why) => responder.error(response::SYSTEM_ERROR, why),
            Durability::TimedOut => {
                let limit_ms = context.config.store.sync_flush_timeout_ms;
                let remark =
                    format!("flush disk timeout: the message is stored but was not on disk within syncFlushTimeout of {limit_ms} ms");
                self.reply(context, responder, response::FLUSH_DISK_TIMEOUT, Some(&remark), scratch);
            }
        }
    }
}

/// The answer's header, borrowed.
pub(crate) struct SendAnswerHeader<'a> {
    /// Offset message ids, joined by commas.
    pub(crate) message_id: &'a str,
    /// Queue.
    pub(crate) queue_id: i32,
    /// Queue offset of the first message.
    pub(crate) queue_offset: i64,
    /// Unique key; empty: not written.
    pub(crate) unique_key: &'a str,
    /// Region.
    pub(crate) region: &'a str,
    /// Trace switch.
    pub(crate) trace_on: bool,
}

impl CustomHeader for SendAnswerHeader<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("msgId", self.message_id);
        out.int("queueId", self.queue_id.into());
        out.int("queueOffset", self.queue_offset);
        if !self.unique_key.is_empty() {
            out.text("transactionId", self.unique_key);
        }
        out.text("MSG_REGION", self.region);
        out.bool("TRACE_ON", self.trace_on);
    }
}

/// The answers that wait on one net thread.
pub(crate) struct Parked {
    waiting: VecDeque<Waiting>,
    watch: FlushWatch,
    lane: Arc<ParkedLane>,
    timeout_ms: i64,
}

struct Waiting {
    end: i64,
    deadline_ms: i64,
    responder: Responder,
    answer: SendAnswer,
}

impl Parked {
    /// An empty queue of the thread that `waker` wakes.
    pub(crate) fn new(context: &BrokerContext, waker: LaneWaker) -> Self {
        let lane = Arc::new(ParkedLane { waker: waker.clone(), deadline_ms: AtomicI64::new(i64::MAX) });
        context.parked_lanes.0.lock().push(Arc::clone(&lane));
        let timeout_ms = i64::try_from(context.config.store.sync_flush_timeout_ms).unwrap_or(i64::MAX);
        Self { waiting: VecDeque::new(), watch: context.store.watch_flush(move || waker.wake()), lane, timeout_ms }
    }

    /// Keeps an answer until everything before `end` is on disk. Called in the order of `end`.
    pub(crate) fn park(&mut self, end: i64, now_ms: i64, responder: Responder, answer: SendAnswer) {
        debug_assert!(self.waiting.back().is_none_or(|last| last.end <= end));
        let deadline_ms = now_ms.saturating_add(self.timeout_ms);
        self.waiting.push_back(Waiting { end, deadline_ms, responder, answer });
        if self.waiting.len() == 1 {
            self.ask();
        }
    }

    /// Answers whatever need not wait any longer.
    pub(crate) fn release(&mut self, context: &BrokerContext, scratch: &mut String) {
        if self.waiting.is_empty() {
            return;
        }
        let failure = context.store.sync_failure();
        let flushed = context.store.flushed_offset(); // read after the failure: it does not move any more once there is one
        let now_ms = context.clock.now_ms();
        while let Some(front) = self.waiting.front() {
            let outcome = match &failure {
                _ if front.end <= flushed => Durability::Durable,
                Some(why) => Durability::Failed(why.clone()),
                None if front.deadline_ms <= now_ms => Durability::TimedOut,
                None => break,
            };
            let Some(waiting) = self.waiting.pop_front() else { break };
            let parked_ms = now_ms - (waiting.deadline_ms - self.timeout_ms);
            context.stats.put_took(u64::try_from(parked_ms).unwrap_or(0));
            waiting.answer.reply_durability(context, waiting.responder, &outcome, scratch);
        }
        self.ask();
    }

    fn ask(&self) {
        let front = self.waiting.front();
        self.lane.deadline_ms.store(front.map_or(i64::MAX, |front| front.deadline_ms), Ordering::Release);
        if let Some(front) = front {
            self.watch.wait_for(front.end);
        }
    }
}

/// Calls `done` once the records before `end` are durable: for threads that keep no queue of their own.
pub(crate) fn when_durable(store: &MessageStore, end: i64, wait: bool, done: impl FnOnce(Durability) + Send + 'static) {
    if wait && store.is_sync_flush() { store.when_durable(end, Box::new(done)) } else { done(Durability::Durable) }
}

/// The net threads on which answers may wait.
#[derive(Default)]
pub(crate) struct ParkedLanes(Mutex<Vec<Arc<ParkedLane>>>);

struct ParkedLane {
    waker: LaneWaker,
    /// Milliseconds at which the oldest answer is overdue; `i64::MAX` when none waits.
    deadline_ms: AtomicI64,
}

impl ParkedLanes {
    /// Wakes the threads whose oldest answer is overdue.
    pub(crate) fn wake_overdue(&self, now_ms: i64) {
        for lane in self.0.lock().iter() {
            if lane.deadline_ms.load(Ordering::Acquire) <= now_ms {
                lane.waker.wake();
            }
        }
    }
}
