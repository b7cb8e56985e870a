//! Long polls: pull requests that found no message and wait for one.
//!
//! The table ([`table`]) is pure; this file adds the `hold` thread for deadlines and the two ways out of the table.
//! - A message that arrives between a pull's read and its hold is not lost: [`Hold::hold`] announces itself, takes the lock, and
//!   only then compares the queue's max offset; the dispatcher raises the max offset first and looks for waiters afterwards.
//! - Waking costs one hand-over a round, not one a message: [`ArrivalListener::arrived`] gathers, [`ArrivalListener::round_done`] runs
//!   what was gathered, on the dispatcher's thread when it is little (a thread hop would cost more), else on the `hold` thread.
//! - Nothing is executed under the lock. A pull whose time is up is executed without being held again; one that a message has woken may
//!   find that there is nothing for it after all, and go on waiting.
//! - What an expression costs is bounded on the dispatcher's thread ([`table`]); the `hold` thread looks where the table cannot say.
//! - A pull goes with its connection: a connection is marked as closed first and its waiters are taken out afterwards, under the lock
//!   under which [`Hold::hold`] looks for the mark.

mod table;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::filter::Expression;
use crate::net::connection::ConnectionId;
use crate::net::responder::Responder;
use crate::runtime::clock::Clock;
use crate::runtime::thread::Thread;
use crate::store::arrival::{Arrival, ArrivalListener};

use super::processor::pull::Pull;

pub(crate) use table::{Ending, Waiter, Wanted};
use table::{Limits, WaitTable};

/// Pulls that may wait at the same time; the next one is answered at once. A client holds one for each of its queues and groups.
const LIMITS: Limits = Limits { waiters: 100_000, waiters_of_owner: 4_096, bytes: 128 << 20, bytes_of_owner: 16 << 20 };
/// Pulls whose time is up that are taken out at once: others wait for the lock.
const EXPIRE_AT_ONCE: usize = 1_024;
/// Woken pulls of one round that the dispatcher executes itself.
const INLINE_LIMIT: usize = 32;

/// A pull that waits.
pub struct HeldPull {
    /// The request.
    pub(crate) pull: Box<Pull<'static>>,
    /// Its duty.
    pub(crate) responder: Responder,
}

/// A pull in the table, and what it waits for.
pub(crate) type Waiting = Waiter<HeldPull>;

/// Executes a pull that is held no longer.
type Execute = Box<dyn Fn(Waiting) + Send + Sync>;

/// The table of held pulls and its thread.
pub struct Hold {
    /// Waiters, and holds under way: the dispatcher's cheap look.
    waiting: AtomicUsize,
    /// Something was gathered since the last round, for the dispatcher or for the `hold` thread; only the dispatcher's thread sets and clears it.
    gathered: AtomicBool,
    state: Mutex<State>,
    wake: Condvar,
    execute: OnceLock<Execute>,
    thread: Mutex<Option<Thread>>,
}

struct State {
    table: WaitTable<HeldPull>,
    /// Woken in this round of the dispatcher.
    round: Vec<Waiting>,
    /// For the `hold` thread.
    due: Vec<Waiting>,
    stopping: bool,
}

impl Hold {
    /// An empty table. Until [`Hold::start`] pulls wait, but nothing expires.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            waiting: AtomicUsize::new(0),
            gathered: AtomicBool::new(false),
            state: Mutex::new(State { table: WaitTable::new(LIMITS), round: Vec::new(), due: Vec::new(), stopping: false }),
            wake: Condvar::new(),
            execute: OnceLock::new(),
            thread: Mutex::new(None),
        })
    }

    /// Starts the thread; `execute` runs a pull without holding it again. Once.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(
        self: &Arc<Self>, tag: &str, clock: Clock, execute: impl Fn(Waiting) + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        let _ = self.execute.set(Box::new(execute));
        let hold = Arc::clone(self);
        *self.thread.lock() = Some(Thread::spawn(tag, "hold", move || hold.run(&clock))?);
        Ok(())
    }

    /// Lets a pull wait. It is handed back (to be executed without waiting) when the queue's max offset, which `max_offset` reads, has
    /// passed the waiter's offset meanwhile, when the table or the connection's part of it is full, when the connection is closed, or
    /// when the broker stops.
    pub(crate) fn hold(&self, topic: &str, queue_id: i32, waiter: Waiting, max_offset: impl FnOnce() -> i64) -> Result<(), Waiting> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence in `arrived`: either we see the new max offset, or the dispatcher sees us waiting.
        fence(Ordering::SeqCst);
        let mut state = self.state.lock();
        let earliest = state.table.next_deadline_ms();
        let deadline_ms = waiter.deadline_ms;
        let is_over = state.stopping || !waiter.value.responder.connection().is_open() || max_offset() > waiter.offset;
        let outcome = if is_over { Err(waiter) } else { state.table.add(topic, queue_id, waiter) };
        drop(state);
        if let Err(waiter) = outcome {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(waiter);
        }
        if earliest.is_none_or(|earliest| deadline_ms < earliest) {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// A connection is gone, and with it the pulls that wait for it. Must not block.
    pub(crate) fn closed(&self, connection: ConnectionId) {
        let mut gone = Vec::new();
        let mut state = self.state.lock();
        self.count_out(|gone| state.table.owner_gone(connection.0, gone), &mut gone);
        drop(state);
        for waiter in gone {
            waiter.value.responder.silent();
        }
    }

    /// An expression is no longer that of a subscription to the topic: the pulls that wait for its matches are executed, by the `hold`
    /// thread, so that their clients ask anew.
    pub(crate) fn expression_gone(&self, topic: &str, expression: &Arc<Expression>) {
        let mut state = self.state.lock();
        let State { table, due, .. } = &mut *state;
        self.count_out(|due| table.expression_gone(topic, expression, due), due);
        let is_due = !due.is_empty();
        drop(state);
        if is_due {
            self.wake.notify_one();
        }
    }

    /// Pulls that wait.
    pub fn len(&self) -> usize {
        self.state.lock().table.len()
    }

    /// Whether no pull waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Answers everything that waits, ends the thread. From now on nothing is held. Twice is harmless.
    pub(crate) fn shutdown(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        drop(state);
        self.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
        let mut due = Vec::new();
        let mut state = self.state.lock();
        due.append(&mut state.round);
        due.append(&mut state.due);
        self.count_out(|due| state.table.drain(due), &mut due);
        drop(state);
        self.execute_all(due);
    }

    fn run(&self, clock: &Clock) {
        let mut state = self.state.lock();
        while !state.stopping {
            let mut due = std::mem::take(&mut state.due);
            let now_ms = clock.now_ms();
            if state.table.next_deadline_ms().is_some_and(|deadline_ms| deadline_ms <= now_ms) {
                self.count_out(|due| state.table.expired(now_ms, EXPIRE_AT_ONCE, due), &mut due);
            }
            if !due.is_empty() {
                parking_lot::MutexGuard::unlocked(&mut state, || self.execute_all(due));
                continue;
            }
            match state.table.next_deadline_ms() {
                None => self.wake.wait(&mut state),
                Some(deadline_ms) => {
                    let wait = Duration::from_millis(deadline_ms.saturating_sub(now_ms).max(1).unsigned_abs());
                    self.wake.wait_for(&mut state, wait);
                }
            }
        }
    }

    /// Takes waiters out by `take` and lowers the count by their number.
    fn count_out(&self, take: impl FnOnce(&mut Vec<Waiting>), due: &mut Vec<Waiting>) {
        let before = due.len();
        take(due);
        self.waiting.fetch_sub(due.len() - before, Ordering::SeqCst);
    }

    fn execute_all(&self, due: Vec<Waiting>) {
        let Some(execute) = self.execute.get() else { return };
        for held in due {
            execute(held);
        }
    }
}

impl ArrivalListener for Hold {
    fn arrived(&self, arrival: &Arrival<'_>) {
        fence(Ordering::SeqCst); // pairs with the fence in `hold`
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let State { table, round, due, .. } = &mut *state;
        let before = round.len();
        let Arrival { topic, queue_id, queue_offset, tags_code, properties, .. } = *arrival;
        self.count_out(|round| table.arrived(topic, queue_id, queue_offset, tags_code, properties, round), round);
        if round.len() > before {
            self.gathered.store(true, Ordering::Relaxed);
            due.extend(round.extract_if(before.., |waiting| waiting.ending == Ending::Perhaps));
        }
    }

    fn round_done(&self) {
        if !self.gathered.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let mut round = std::mem::take(&mut state.round);
        if round.len() > INLINE_LIMIT {
            state.due.append(&mut round);
        }
        let is_due = !state.due.is_empty();
        drop(state);
        if is_due {
            self.wake.notify_one();
        }
        self.execute_all(round);
    }
}
