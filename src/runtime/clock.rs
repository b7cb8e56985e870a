//! Time as a value: the system's, or a test's.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 from the system or from a test.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The system's clock.
    #[default]
    System,
    /// A clock that a test moves.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands still at `now_ms` until [`Clock::advance`].
    pub fn manual(now_ms: i64) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(now_ms)))
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        match self {
            Self::System => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64),
            Self::Manual(now) => now.load(Ordering::Acquire),
        }
    }

    /// Moves a manual clock; the system's clock does not obey.
    pub fn advance(&self, by_ms: i64) {
        if let Self::Manual(now) = self {
            now.fetch_add(by_ms, Ordering::AcqRel);
        }
    }
}
