//! One queue as a consumer holds it: what was pulled and not yet taken, what is being processed, where to pull next.
//!
//! - A message is pending, taken or finished, never two of these. The position to commit is the smallest offset that is pending or
//!   taken, else the offset to pull next: a message that was not finished is never committed.
//! - `reset` begins a new epoch: deliveries of an old one no longer count.
//! - An orderly queue has at most one delivery out; a queue stands in the work list at most once.
//! - Lock order: a queue's state, then the work list's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::common::message::MessageExt;
use crate::remoting::body::queue::MessageQueue;

use super::consumer_stats::QueueStats;
use super::error::ClientError;
use super::route::MASTER_ID;

/// A queue and its messages.
pub(super) struct ProcessQueue {
    pub(super) queue: MessageQueue,
    orderly: bool,
    state: Mutex<State>,
    quiet: Condvar,
    locked_until_ms: AtomicI64,
    suggested_broker: AtomicI64,
    trouble: Mutex<Option<ClientError>>,
    last_pull_ms: AtomicI64,
    last_consume_ms: AtomicI64,
    last_lock_ms: AtomicI64,
    stats: Mutex<QueueStats>,
}

/// A queue as running information tells it.
pub(super) struct QueueInfo {
    /// Offset to commit.
    pub(super) position: i64,
    /// Messages that are here; without those being processed when they are told apart (orderly).
    pub(super) cached: Range,
    /// Messages of an orderly queue that are being processed.
    pub(super) transaction: Range,
    pub(super) bytes: i64,
    pub(super) leaving: bool,
    pub(super) locked: bool,
    /// Times in milliseconds since 1970; 0: never.
    pub(super) last_pull_ms: i64,
    pub(super) last_consume_ms: i64,
    pub(super) last_lock_ms: i64,
}

/// How many messages, and the offsets of the first and the last; 0 when there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) count: i64,
    pub(super) min_offset: i64,
    pub(super) max_offset: i64,
}

impl Range {
    fn of(offsets: impl Iterator<Item = i64>) -> Self {
        offsets.fold(Self::default(), |range, offset| match range.count {
            0 => Self { count: 1, min_offset: offset, max_offset: offset },
            count => Self { count: count + 1, min_offset: range.min_offset.min(offset), max_offset: range.max_offset.max(offset) },
        })
    }
}

#[derive(Default)]
struct State {
    epoch: u64,
    pending: VecDeque<MessageExt>,
    taken: BTreeMap<i64, usize>,
    next_offset: i64,
    bytes: usize,
    listed: bool,
    leaving: bool,
}

/// Messages on their way through the application.
pub(super) struct Taken {
    pub(super) queue: Arc<ProcessQueue>,
    pub(super) messages: Vec<MessageExt>,
    /// When they were taken.
    pub(super) started: Instant,
    epoch: u64,
}

/// Bounds of what a queue may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLimits {
    pub(super) messages: usize,
    pub(super) bytes: usize,
    pub(super) span: i64,
}

impl ProcessQueue {
    /// An empty queue that is pulled from `offset` on.
    pub(super) fn new(queue: MessageQueue, offset: i64, orderly: bool, now_ms: i64) -> Self {
        Self {
            queue,
            orderly,
            state: Mutex::new(State { next_offset: offset, ..State::default() }),
            quiet: Condvar::new(),
            locked_until_ms: AtomicI64::new(0),
            suggested_broker: AtomicI64::new(MASTER_ID),
            trouble: Mutex::new(None),
            last_pull_ms: AtomicI64::new(0),
            last_consume_ms: AtomicI64::new(0),
            last_lock_ms: AtomicI64::new(0),
            stats: Mutex::new(QueueStats::new(now_ms)),
        }
    }

    /// Epoch and offset of the next pull; `None` when the queue is being left.
    pub(super) fn next_pull(&self) -> Option<(u64, i64)> {
        let state = self.state.lock();
        (!state.leaving).then_some((state.epoch, state.next_offset))
    }

    /// Whether a bound is reached, so that no more should be pulled now.
    pub(super) fn is_full(&self, limits: CacheLimits) -> bool {
        let state = self.state.lock();
        let first = state.first_unfinished();
        state.pending.len() + state.taken.len() >= limits.messages
            || state.bytes >= limits.bytes
            || (!self.orderly && first.is_some_and(|first| state.next_offset - first > limits.span))
    }

    /// Takes in what a pull of `epoch` found; the next pull begins at `next_offset`. Whether it was still wanted.
    pub(super) fn put(&self, epoch: u64, messages: Vec<MessageExt>, next_offset: i64) -> bool {
        let mut state = self.state.lock();
        if state.leaving || state.epoch != epoch {
            return false;
        }
        state.bytes += messages.iter().map(|message| message.store_size).sum::<usize>();
        state.pending.extend(messages);
        state.next_offset = next_offset;
        true
    }

    /// Forgets all messages and goes on at `offset`.
    pub(super) fn reset(&self, offset: i64) {
        let mut state = self.state.lock();
        let epoch = state.epoch + 1;
        let listed = state.listed;
        *state = State { epoch, next_offset: offset, listed, leaving: state.leaving, ..State::default() };
        self.quiet.notify_all();
    }

    /// The offset to commit. Before the first message it is where the queue was begun: a group that begins at the end and is stopped
    /// before anything came must not begin at a later end next time.
    pub(super) fn position(&self) -> i64 {
        let state = self.state.lock();
        state.first_unfinished().unwrap_or(state.next_offset)
    }

    /// Takes at most `max` messages; empty when there is nothing to do now. The caller has just taken the queue from the work list.
    pub(super) fn take(self: &Arc<Self>, max: usize) -> Taken {
        let mut state = self.state.lock();
        state.listed = false;
        let blocked = state.leaving || (self.orderly && !state.taken.is_empty());
        let count = if blocked { 0 } else { max.min(state.pending.len()) };
        let messages: Vec<MessageExt> = state.pending.drain(..count).collect();
        for message in &messages {
            state.taken.insert(message.queue_offset, message.store_size);
        }
        Taken { queue: self.clone(), messages, started: Instant::now(), epoch: state.epoch }
    }

    /// Whether the queue should be put into the work list; marks it as listed.
    fn claim_listing(&self) -> bool {
        let mut state = self.state.lock();
        let ready = !state.listed && !state.leaving && !state.pending.is_empty() && (!self.orderly || state.taken.is_empty());
        state.listed |= ready;
        ready
    }

    /// Stops deliveries and pulls.
    pub(super) fn stop(&self) {
        self.state.lock().leaving = true;
    }

    /// Stops deliveries and waits for those that are out, at most `patience`. Whether none is out.
    pub(super) fn leave(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        state.leaving = true;
        while !state.taken.is_empty() {
            if self.quiet.wait_until(&mut state, deadline).timed_out() {
                return state.taken.is_empty();
            }
        }
        true
    }

    /// Whether the broker's lock of this queue is ours at `now_ms`.
    pub(super) fn is_locked(&self, now_ms: i64) -> bool {
        self.locked_until_ms.load(Ordering::Acquire) > now_ms
    }

    /// The broker's lock, granted at `now_ms`, is ours until `until_ms`.
    pub(super) fn locked(&self, now_ms: i64, until_ms: i64) {
        self.last_lock_ms.store(now_ms, Ordering::Relaxed);
        self.locked_until_ms.store(until_ms, Ordering::Release);
    }

    /// The broker's lock is not ours.
    pub(super) fn not_locked(&self) {
        self.locked_until_ms.store(0, Ordering::Release);
    }

    /// Counts of this queue.
    pub(super) fn stats(&self) -> MutexGuard<'_, QueueStats> {
        self.stats.lock()
    }

    /// A pull is sent.
    pub(super) fn note_pull(&self, now_ms: i64) {
        self.last_pull_ms.store(now_ms, Ordering::Relaxed);
    }

    /// A delivery is made.
    pub(super) fn note_consume(&self, now_ms: i64) {
        self.last_consume_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The queue as running information tells it.
    pub(super) fn info(&self, now_ms: i64) -> QueueInfo {
        let state = self.state.lock();
        let pending = state.pending.iter().map(|message| message.queue_offset);
        let taken = state.taken.keys().copied();
        let (cached, transaction) =
            if self.orderly { (Range::of(pending), Range::of(taken)) } else { (Range::of(pending.chain(taken)), Range::default()) };
        QueueInfo {
            position: state.first_unfinished().unwrap_or(state.next_offset),
            cached,
            transaction,
            bytes: i64::try_from(state.bytes).unwrap_or(i64::MAX),
            leaving: state.leaving,
            locked: self.is_locked(now_ms),
            last_pull_ms: self.last_pull_ms.load(Ordering::Relaxed),
            last_consume_ms: self.last_consume_ms.load(Ordering::Relaxed),
            last_lock_ms: self.last_lock_ms.load(Ordering::Relaxed),
        }
    }

    /// Why the last pull failed; `None` when it did not.
    pub(super) fn trouble(&self) -> Option<ClientError> {
        self.trouble.lock().clone()
    }

    /// Notes how the last pull went.
    pub(super) fn set_trouble(&self, trouble: Option<ClientError>) {
        *self.trouble.lock() = trouble;
    }

    /// Broker id to pull from.
    pub(super) fn suggested_broker(&self) -> i64 {
        self.suggested_broker.load(Ordering::Relaxed)
    }

    /// Sets the broker id to pull from.
    pub(super) fn suggest_broker(&self, broker_id: i64) {
        self.suggested_broker.store(broker_id, Ordering::Relaxed);
    }
}

impl State {
    fn first_unfinished(&self) -> Option<i64> {
        let pending = self.pending.front().map(|message| message.queue_offset);
        let taken = self.taken.keys().next().copied();
        pending.into_iter().chain(taken).min()
    }
}

impl Taken {
    /// Splits by `keep`: the messages it is true for, and the others.
    pub(super) fn partition(self, keep: impl FnMut(&MessageExt) -> bool) -> (Self, Self) {
        let (kept, others) = self.messages.into_iter().partition(keep);
        let of = |messages| Self { queue: self.queue.clone(), messages, started: self.started, epoch: self.epoch };
        (of(kept), of(others))
    }

    /// The messages are done with.
    pub(super) fn finish(self) -> Arc<ProcessQueue> {
        let mut state = self.queue.state.lock();
        if state.epoch == self.epoch {
            for message in &self.messages {
                if let Some(bytes) = state.taken.remove(&message.queue_offset) {
                    state.bytes -= bytes;
                }
            }
            if state.taken.is_empty() {
                self.queue.quiet.notify_all();
            }
        }
        drop(state);
        self.queue
    }

    /// The messages stand at the front of the queue again.
    pub(super) fn put_back(self) -> Arc<ProcessQueue> {
        let mut state = self.queue.state.lock();
        if state.epoch == self.epoch {
            for message in self.messages.into_iter().rev() {
                state.taken.remove(&message.queue_offset);
                let at = state.pending.partition_point(|pending| pending.queue_offset < message.queue_offset);
                state.pending.insert(at, message);
            }
            if state.taken.is_empty() {
                self.queue.quiet.notify_all();
            }
        }
        drop(state);
        self.queue
    }
}

/// Queues with something to do, in the order they got it.
#[derive(Default)]
pub(super) struct WorkList {
    ready: Mutex<Ready>,
    arrived: Condvar,
}

#[derive(Default)]
struct Ready {
    queues: VecDeque<Arc<ProcessQueue>>,
    closed: bool,
}

impl WorkList {
    /// Puts a queue in, when it has something to do and is not in already.
    pub(super) fn offer(&self, queue: &Arc<ProcessQueue>) {
        if queue.claim_listing() {
            self.ready.lock().queues.push_back(queue.clone());
            self.arrived.notify_one();
        }
    }

    /// Takes at most `max` messages of the queue that has waited longest; waits until `deadline` (`None`: for ever).
    /// `None` when the list is closed or the time is over.
    pub(super) fn take(&self, max: usize, deadline: Option<Instant>) -> Option<Taken> {
        loop {
            let queue = self.next(deadline)?;
            let taken = queue.take(max);
            if !queue.orderly {
                self.offer(&queue); // what is left is for another thread
            }
            if !taken.messages.is_empty() {
                return Some(taken);
            }
        }
    }

    fn next(&self, deadline: Option<Instant>) -> Option<Arc<ProcessQueue>> {
        let mut ready = self.ready.lock();
        loop {
            if ready.closed {
                return None;
            }
            if let Some(queue) = ready.queues.pop_front() {
                return Some(queue);
            }
            match deadline {
                None => self.arrived.wait(&mut ready),
                Some(deadline) => {
                    if self.arrived.wait_until(&mut ready, deadline).timed_out() && ready.queues.is_empty() {
                        return None;
                    }
                }
            }
        }
    }

    /// Lets everybody who waits go.
    pub(super) fn close(&self) {
        self.ready.lock().closed = true;
        self.arrived.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::message::Message;

    fn message(offset: i64) -> MessageExt {
        MessageExt {
            message: Message::new("T", "x"),
            broker_name: "a".into(),
            queue_id: 0,
            queue_offset: offset,
            physical_offset: offset * 100,
            store_size: 10,
            sys_flag: 0,
            born_timestamp: 0,
            born_host: "1.2.3.4:5".parse().unwrap(),
            store_timestamp: 0,
            store_host: "1.2.3.4:6".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
        }
    }

    fn queue(orderly: bool) -> Arc<ProcessQueue> {
        let queue = ProcessQueue::new(MessageQueue { topic: "T".into(), broker_name: "a".into(), queue_id: 0 }, 5, orderly, 0);
        Arc::new(queue)
    }

    fn put(queue: &ProcessQueue, offsets: std::ops::Range<i64>) {
        let next = offsets.end;
        let (epoch, _) = queue.next_pull().unwrap();
        assert!(queue.put(epoch, offsets.map(message).collect(), next));
    }

    fn offsets(taken: &Taken) -> Vec<i64> {
        taken.messages.iter().map(|message| message.queue_offset).collect()
    }

    #[test]
    fn the_position_never_passes_an_unfinished_message() {
        let queue = queue(false);
        assert_eq!(queue.position(), 5);
        put(&queue, 5..9);
        assert_eq!(queue.position(), 5);
        let (first, second) = (queue.take(1), queue.take(1));
        second.finish();
        assert_eq!(queue.position(), 5);
        first.finish();
        assert_eq!(queue.position(), 7);
        let rest = queue.take(9);
        assert_eq!(offsets(&rest), [7, 8]);
        assert_eq!(queue.position(), 7);
        rest.finish();
        assert_eq!(queue.position(), 9);
        put(&queue, 9..9);
        let (epoch, _) = queue.next_pull().unwrap();
        assert!(queue.put(epoch, Vec::new(), 20), "a filtered range");
        assert_eq!(queue.position(), 20);
    }

    #[test]
    fn what_is_put_back_comes_first_again() {
        let queue = queue(false);
        put(&queue, 0..4);
        let (a, b) = (queue.take(1), queue.take(1));
        b.put_back();
        a.put_back();
        assert_eq!(offsets(&queue.take(9)), [0, 1, 2, 3]);
    }

    #[test]
    fn a_reset_forgets_deliveries_that_are_out() {
        let queue = queue(false);
        put(&queue, 0..4);
        let (epoch, _) = queue.next_pull().unwrap();
        let (out, back) = (queue.take(1), queue.take(1));
        queue.reset(100);
        assert!(!queue.put(epoch, vec![message(4)], 5), "the answer of a pull from before");
        out.finish();
        back.put_back();
        assert_eq!(queue.position(), 100);
        assert_eq!(queue.next_pull().unwrap().1, 100);
        assert!(queue.take(9).messages.is_empty());
    }

    #[test]
    fn an_orderly_queue_has_one_delivery_out() {
        let (queue, list) = (queue(true), WorkList::default());
        put(&queue, 0..3);
        list.offer(&queue);
        list.offer(&queue);
        let soon = || Some(Instant::now() + Duration::from_millis(5));
        let first = list.take(1, soon()).unwrap();
        assert!(list.take(1, soon()).is_none());
        list.offer(&queue);
        assert!(list.take(1, soon()).is_none());
        list.offer(&first.finish());
        assert_eq!(offsets(&list.take(2, soon()).unwrap()), [1, 2]);
    }

    #[test]
    fn several_threads_share_a_concurrent_queue() {
        let (queue, list) = (queue(false), WorkList::default());
        put(&queue, 0..3);
        list.offer(&queue);
        let soon = || Some(Instant::now() + Duration::from_secs(5));
        let taken: Vec<Taken> = (0..3).map(|_| list.take(1, soon()).unwrap()).collect();
        assert_eq!(taken.iter().flat_map(offsets).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(list.take(1, Some(Instant::now())).is_none());
        list.close();
        assert!(list.take(1, None).is_none());
    }

    #[test]
    fn limits_count_what_is_pending_and_taken() {
        let limits = CacheLimits { messages: 4, bytes: 1000, span: 100 };
        let queue = queue(false);
        put(&queue, 0..3);
        assert!(!queue.is_full(limits));
        let taken = queue.take(1);
        put(&queue, 3..4);
        assert!(queue.is_full(limits));
        assert!(queue.is_full(CacheLimits { messages: 100, bytes: 40, ..limits }));
        assert!(queue.is_full(CacheLimits { messages: 100, span: 3, ..limits }));
        taken.finish();
        assert!(!queue.is_full(limits));
    }

    #[test]
    fn leaving_waits_for_what_is_out() {
        let queue = queue(true);
        put(&queue, 0..2);
        let taken = queue.take(1);
        assert!(!queue.leave(Duration::from_millis(5)));
        assert_eq!(queue.next_pull(), None);
        assert!(queue.take(1).messages.is_empty(), "nothing new is given out");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| queue.leave(Duration::from_secs(10)));
            taken.finish();
            assert!(waiter.join().unwrap());
        });
        assert_eq!(queue.position(), 1);
    }
}
