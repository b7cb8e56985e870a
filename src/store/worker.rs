//! A thread of the store that can be waited for with a deadline: a disk that hangs must not hold a stop for ever.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::{Receiver, RecvTimeoutError, bounded};

use crate::runtime::thread::Thread;

use super::latch::Latch;

/// A running thread.
#[derive(Debug)]
pub(super) struct Worker {
    thread: Thread,
    /// Closed by the thread's end.
    ended: Receiver<()>,
}

impl Worker {
    /// Starts a thread. Its panic is final for the store: `latch` is set.
    ///
    /// # Errors
    /// The system's, when no thread can be made.
    pub(super) fn spawn(tag: &str, name: &'static str, latch: &Arc<Latch>, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (running, ended) = bounded(0);
        let latch = Arc::clone(latch);
        let thread = Thread::spawn(tag, name, move || {
            let _running = running;
            if catch_unwind(AssertUnwindSafe(body)).is_err() {
                latch.set(format!("the {name} thread panicked"));
            }
        })?;
        Ok(Self { thread, ended })
    }

    /// Waits for the end, which has been asked for. `false`: it did not come in time, and the thread is left to itself.
    pub(super) fn join_until(self, deadline: Instant) -> bool {
        if self.ended.recv_deadline(deadline) == Err(RecvTimeoutError::Disconnected) {
            self.thread.join();
            return true;
        }
        std::mem::forget(self.thread); // joining is what dropping it would do
        false
    }
}
