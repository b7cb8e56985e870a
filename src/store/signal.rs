//! One thread's condition: the others tell it that there may be work.
//!
//! A wake-up is never lost: the sleeper announces itself before it looks for work a last time, the waker publishes the work
//! before it looks for a sleeper, and both are sequentially consistent. Waking a thread that is awake costs one load.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// What one thread sleeps on.
#[derive(Debug, Default)]
pub(super) struct Signal {
    sleeping: AtomicBool,
    mutex: Mutex<()>,
    condition: Condvar,
}

impl Signal {
    /// Wakes the thread if it sleeps. What it shall see must have been stored before.
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            let _guard = self.mutex.lock();
            self.condition.notify_one();
        }
    }

    /// Sleeps until woken, or for `timeout`, unless `ready` says that there is work. May wake early: look again.
    pub(super) fn sleep_unless(&self, timeout: Option<Duration>, ready: impl Fn() -> bool) {
        let mut guard = self.mutex.lock();
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            match timeout {
                Some(timeout) => {
                    self.condition.wait_for(&mut guard, timeout);
                }
                None => self.condition.wait(&mut guard),
            }
        }
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::runtime::thread::Thread;

    #[test]
    fn no_wake_up_is_lost() {
        let shared = Arc::new((Signal::default(), AtomicU64::new(0), AtomicU64::new(0)));
        let rounds = 20_000;
        let sleeper = Arc::clone(&shared);
        let thread = Thread::spawn("", "sleeper", move || {
            let (signal, posted, taken) = &*sleeper;
            while taken.load(Ordering::Acquire) < rounds {
                let seen = taken.load(Ordering::Acquire);
                signal.sleep_unless(None, || posted.load(Ordering::Acquire) > seen);
                taken.store(posted.load(Ordering::Acquire), Ordering::Release);
            }
        })
        .unwrap();
        for round in 1..=rounds {
            shared.1.store(round, Ordering::Release);
            shared.0.wake();
            if round % 3 == 0 {
                while shared.2.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
            }
        }
        thread.join();
        assert_eq!(shared.2.load(Ordering::Acquire), rounds);
    }
}
