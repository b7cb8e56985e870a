//! Keeps peers from filling the log.

use std::time::{Duration, Instant};

/// Lines that may be written in one period.
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);
const RARE_PERIOD: Duration = Duration::from_secs(60);

/// Lets some lines of a period through and counts the rest.
pub(super) struct LogGate {
    most: u32,
    period: Duration,
    since: Instant,
    lines: u32,
    withheld: u64,
}

impl LogGate {
    /// Ten lines a second.
    pub(super) fn new() -> Self {
        Self::with(LINES, PERIOD)
    }

    /// One line a minute.
    pub(super) fn rare() -> Self {
        Self::with(1, RARE_PERIOD)
    }

    fn with(most: u32, period: Duration) -> Self {
        Self { most, period, since: Instant::now(), lines: 0, withheld: 0 }
    }

    /// How many lines were withheld since the last one, when another may be written now.
    pub(super) fn pass(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since) >= self.period {
            self.since = now;
            self.lines = 0;
        }
        if self.lines == self.most {
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
