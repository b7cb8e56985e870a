//! How many threads of an owner have not ended.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Counts threads, so that their end can be waited for with a deadline.
#[derive(Default)]
pub(super) struct Running {
    count: Mutex<usize>,
    changed: Condvar,
}

/// One thread's presence; dropped at its end.
pub(super) struct Presence(Arc<Running>);

impl Running {
    pub(super) fn enter(self: &Arc<Self>) -> Presence {
        *self.count.lock() += 1;
        Presence(self.clone())
    }

    /// Waits until none is left; `false` when that took too long.
    pub(super) fn wait_none(&self, until: Instant) -> bool {
        let mut count = self.count.lock();
        while *count > 0 {
            if self.changed.wait_until(&mut count, until).timed_out() {
                return *count == 0;
            }
        }
        true
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.changed.notify_all();
    }
}
