//! "Storage failed, refuse writes": set once, never cleared until the store is opened again.

use std::sync::OnceLock;

/// The reason of the first failure that is final.
#[derive(Debug, Default)]
pub(super) struct Latch {
    reason: OnceLock<String>,
}

impl Latch {
    /// Sets it; the first reason stays. Returns whether this call set it.
    pub(super) fn set(&self, reason: String) -> bool {
        let mut first = false;
        self.reason.get_or_init(|| {
            first = true;
            log::error!("storage failed, writes are refused until the store is opened again: {reason}");
            reason
        });
        first
    }

    /// The reason, once there is one.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }
}
