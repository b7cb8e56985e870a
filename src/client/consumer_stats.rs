//! What a consumer did with one queue lately: the numbers behind its running information (307).
//!
//! - Counted by minutes; an hour of them is kept. Rates and times speak of the minute that runs and the one before.

use std::collections::VecDeque;
use std::time::Duration;

const MINUTE_MS: i64 = 60_000;
/// Minutes that are kept.
const KEPT_MINUTES: i64 = 60;

/// Counts of one queue, since it was begun here.
pub(super) struct QueueStats {
    since_ms: i64,
    minutes: VecDeque<Minute>,
}

#[derive(Default)]
struct Minute {
    number: i64,
    pulls: u64,
    pull_ms: f64,
    pulled: u64,
    deliveries: u64,
    consume_ms: f64,
    succeeded: u64,
    failed: u64,
}

/// Counts of several queues together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pulls: u64,
    pull_ms: f64,
    deliveries: u64,
    consume_ms: f64,
    /// Messages pulled per second.
    pub(super) pull_tps: f64,
    /// Messages processed per second.
    pub(super) ok_tps: f64,
    /// Messages per second that were not processed.
    pub(super) failed_tps: f64,
    /// Messages of the last hour that were not processed.
    pub(super) failed: u64,
}

impl QueueStats {
    /// Nothing, from now on.
    pub(super) fn new(now_ms: i64) -> Self {
        Self { since_ms: now_ms, minutes: VecDeque::new() }
    }

    /// A pull found `messages`.
    pub(super) fn pulled(&mut self, now_ms: i64, messages: usize, time: Duration) {
        let minute = self.minute(now_ms);
        minute.pulls += 1;
        minute.pull_ms += time.as_secs_f64() * 1000.0;
        minute.pulled += messages as u64;
    }

    /// A delivery of `messages` ended.
    pub(super) fn consumed(&mut self, now_ms: i64, messages: usize, time: Duration, succeeded: bool) {
        let minute = self.minute(now_ms);
        minute.deliveries += 1;
        minute.consume_ms += time.as_secs_f64() * 1000.0;
        if succeeded {
            minute.succeeded += messages as u64;
        } else {
            minute.failed += messages as u64;
        }
    }

    fn minute(&mut self, now_ms: i64) -> &mut Minute {
        let number = now_ms / MINUTE_MS;
        while self.minutes.front().is_some_and(|oldest| oldest.number <= number - KEPT_MINUTES) {
            self.minutes.pop_front();
        }
        if self.minutes.back().is_none_or(|last| last.number != number) {
            self.minutes.push_back(Minute { number, ..Minute::default() });
        }
        let last = self.minutes.len() - 1;
        &mut self.minutes[last]
    }

    /// Adds this queue's counts.
    pub(super) fn add_to(&self, totals: &mut Totals, now_ms: i64) {
        let before = now_ms / MINUTE_MS - 1;
        let seconds = (now_ms - self.since_ms.max(before * MINUTE_MS)).max(1000) as f64 / 1000.0;
        for minute in self.minutes.iter().filter(|minute| minute.number >= before) {
            totals.pulls += minute.pulls;
            totals.pull_ms += minute.pull_ms;
            totals.deliveries += minute.deliveries;
            totals.consume_ms += minute.consume_ms;
            totals.pull_tps += minute.pulled as f64 / seconds;
            totals.ok_tps += minute.succeeded as f64 / seconds;
            totals.failed_tps += minute.failed as f64 / seconds;
        }
        let hour = now_ms / MINUTE_MS - KEPT_MINUTES;
        totals.failed += self.minutes.iter().filter(|minute| minute.number > hour).map(|minute| minute.failed).sum::<u64>();
    }
}

impl Totals {
    /// Milliseconds that a pull took that found something.
    pub(super) fn pull_rt(&self) -> f64 {
        if self.pulls == 0 { 0.0 } else { self.pull_ms / self.pulls as f64 }
    }

    /// Milliseconds that a delivery was with the application.
    pub(super) fn consume_rt(&self) -> f64 {
        if self.deliveries == 0 { 0.0 } else { self.consume_ms / self.deliveries as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_minutes_and_failures_of_the_last_hour() {
        let start = 100 * MINUTE_MS;
        let mut stats = QueueStats::new(start);
        stats.pulled(start, 20, Duration::from_millis(4));
        stats.consumed(start + 1000, 1, Duration::from_millis(10), true);
        stats.consumed(start + 2000, 2, Duration::from_millis(30), false);
        let at = |now_ms| {
            let mut totals = Totals::default();
            stats.add_to(&mut totals, now_ms);
            totals
        };
        let soon = at(start + 10_000);
        assert_eq!((soon.pull_tps, soon.ok_tps, soon.failed_tps, soon.failed), (2.0, 0.1, 0.2, 2));
        assert_eq!((soon.pull_rt(), soon.consume_rt()), (4.0, 20.0));
        let later = at(start + 2 * MINUTE_MS);
        assert_eq!((later.pull_tps, later.pull_rt(), later.failed), (0.0, 0.0, 2));
        assert_eq!(at(start + 60 * MINUTE_MS).failed, 0);
    }

    #[test]
    fn an_hour_is_kept() {
        let mut stats = QueueStats::new(0);
        (0..200).for_each(|minute| stats.pulled(minute * MINUTE_MS, 1, Duration::ZERO));
        assert_eq!(stats.minutes.len(), 60);
    }
}
