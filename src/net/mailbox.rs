//! What other threads leave for an event loop.
//!
//! - A message is taken once, in the order it was posted, or handed back to its poster when the loop has ended.
//! - No message is slept over: the loop says that it sleeps before it looks a last time, a poster looks at that flag after it
//!   posted. A poster wakes the loop only when it sleeps, so a busy loop costs no system call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;
use mio::Waker;
use mio::net::TcpStream;
use parking_lot::Mutex;

use super::connection::{Connection, ConnectionId};
use super::service::Port;
use super::work_pool::WorkPool;

/// One thing to do on the loop's thread.
pub(super) enum Message {
    /// The connection's outbox is not empty any more, or it may be read again.
    Flush(usize, ConnectionId),
    /// Close it when what was written has left.
    Close(usize, ConnectionId),
    /// The memory that this connection waits for is its own now.
    Granted(usize, ConnectionId),
    /// Others need the memory of this connection, which hardly brings anything.
    Evict(usize, ConnectionId),
    /// Serve an accepted socket.
    Adopt(TcpStream, SocketAddr, Port),
    /// Connect to the first of these addresses that answers; give up at the time (milliseconds of the loop).
    Connect(Connection, Vec<SocketAddr>, u64),
    /// A connection that was announced cannot be made, for this reason.
    Unreachable(Connection, String),
    /// Run a callback on the net thread.
    Run(Box<dyn FnOnce() + Send>),
    /// Accept and read no more, then drop this.
    StopReading(Sender<()>),
    /// End once everything written has left, at the latest then.
    Finish(Instant),
}

/// A loop as other threads know it.
pub(super) struct Home {
    inbox: Mutex<Inbox>,
    sleeping: AtomicBool,
    lane_woken: AtomicBool,
    waker: Waker,
    epoch: Instant,
    /// Numbers of our own requests; shared by the loops of one server.
    pub(super) opaques: Arc<AtomicI32>,
    /// Unsent bytes of a connection above which it takes no further requests of ours.
    pub(super) push_limit: usize,
    /// Where slow requests go; a client has none.
    pub(super) pool: Option<Arc<WorkPool>>,
}

#[derive(Default)]
struct Inbox {
    messages: Vec<Message>,
    closed: bool,
}

impl Home {
    pub(super) fn new(waker: Waker, opaques: Arc<AtomicI32>, push_limit: usize, pool: Option<Arc<WorkPool>>) -> Self {
        Self {
            inbox: Mutex::default(),
            sleeping: AtomicBool::new(false),
            lane_woken: AtomicBool::new(false),
            waker,
            epoch: Instant::now(),
            opaques,
            push_limit,
            pool,
        }
    }

    /// The loop's time: milliseconds since it was made.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// When a time-out that begins now is over, in the loop's milliseconds; never early.
    pub(super) fn deadline_ms(&self, timeout: Duration) -> u64 {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.now_ms().saturating_add(timeout_ms).saturating_add(1) // the present millisecond has begun already
    }

    /// Leaves a message; gives it back when the loop has ended.
    pub(super) fn post(&self, message: Message) -> Result<(), Message> {
        let mut inbox = self.inbox.lock();
        if inbox.closed {
            return Err(message);
        }
        inbox.messages.push(message);
        drop(inbox);
        self.wake_if_asleep();
        Ok(())
    }

    /// Makes the loop call its lane.
    pub(super) fn wake_lane(&self) {
        if !self.lane_woken.swap(true, Ordering::SeqCst) {
            self.wake_if_asleep();
        }
    }

    /// Takes all messages in exchange for an empty buffer.
    pub(super) fn take(&self, empty: &mut Vec<Message>) {
        debug_assert!(empty.is_empty());
        std::mem::swap(&mut self.inbox.lock().messages, empty);
    }

    /// Whether somebody wanted the lane since the last call.
    pub(super) fn take_lane_wake(&self) -> bool {
        self.lane_woken.load(Ordering::Relaxed) && self.lane_woken.swap(false, Ordering::SeqCst)
    }

    /// Announces that the loop is about to sleep; `false` when something has come that must be looked at first.
    pub(super) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let quiet = self.is_quiet();
        if !quiet {
            self.sleeping.store(false, Ordering::SeqCst);
        }
        quiet
    }

    /// Whether nobody wants anything.
    pub(super) fn is_quiet(&self) -> bool {
        self.inbox.lock().messages.is_empty() && !self.lane_woken.load(Ordering::SeqCst)
    }

    /// The loop is back.
    pub(super) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Takes no further message; gives back those that were not taken.
    pub(super) fn close(&self) -> Vec<Message> {
        let mut inbox = self.inbox.lock();
        inbox.closed = true;
        std::mem::take(&mut inbox.messages)
    }

    fn wake_if_asleep(&self) {
        if self.sleeping.load(Ordering::SeqCst)
            && self.sleeping.swap(false, Ordering::SeqCst)
            && let Err(error) = self.waker.wake()
        {
            log::error!("cannot wake a net thread: error={error}");
        }
    }
}
