//! Keeps peers from filling the log.

use std::time::{Duration, Instant};

/// Lines that may be written in one period.
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);

/// Lets some lines a second through and counts the rest.
pub(super) struct LogGate {
    since: Instant,
    lines: u32,
    withheld: u64,
}

impl LogGate {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), lines: 0, withheld: 0 }
    }

    /// How many lines were withheld since the last one, when another may be written now.
    pub(super) fn pass(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since) >= PERIOD {
            self.since = now;
            self.lines = 0;
        }
        if self.lines == LINES {
            self.withheld += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withholds_and_says_how_many() {
        let mut gate = LogGate::new();
        let start = gate.since;
        for _ in 0..LINES {
            assert_eq!(gate.pass(start), Some(0));
        }
        assert_eq!((gate.pass(start), gate.pass(start)), (None, None));
        assert_eq!(gate.pass(start + PERIOD), Some(2));
        assert_eq!(gate.pass(start + PERIOD), Some(0));
    }
}
