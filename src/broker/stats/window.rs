//! What a counter was at the times of three clocks: sums and rates over the last minute, hour and day.
//!
//! All counters of a broker share one clock per window, so a history only holds the points at which its counter had moved: an idle
//! counter costs a point or two, a busy one at most seven to twenty-five per window.

use std::collections::VecDeque;

/// A counter's value: messages (or times), bytes, and the calls that brought them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    /// Messages.
    pub(super) messages: u64,
    /// Bytes.
    pub(super) bytes: u64,
    /// Calls.
    pub(super) calls: u64,
}

impl std::ops::AddAssign for Value {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.calls += other.calls;
    }
}

/// Sum, rate and average of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowValue {
    /// Sum.
    pub sum: u64,
    /// Per second.
    pub tps: f64,
    /// Per call.
    pub average: f64,
}

/// The three windows of one statistic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Windows {
    /// The last minute.
    pub minute: WindowValue,
    /// The last hour.
    pub hour: WindowValue,
    /// The last day.
    pub day: WindowValue,
}

/// Span and period of each window, ms.
const WINDOWS: [(i64, i64); 3] = [(60_000, 10_000), (3_600_000, 600_000), (86_400_000, 3_600_000)];
/// How early a tick may come and still count as on time, ms.
const SLACK_MS: i64 = 1_000;

/// The three clocks: times at which all counters were noted down.
#[derive(Debug, Default)]
pub(super) struct Ticks([VecDeque<i64>; 3]);

impl Ticks {
    /// Notes the time down on each clock whose period has passed; says which ones did.
    pub(super) fn tick(&mut self, now_ms: i64) -> [bool; 3] {
        let mut due = [false; 3];
        for (index, (span, period)) in WINDOWS.into_iter().enumerate() {
            let ticks = &mut self.0[index];
            due[index] = ticks.back().is_none_or(|last| now_ms - last >= period - SLACK_MS);
            if due[index] {
                ticks.push_back(now_ms);
            }
            // One tick at or before the beginning of the window is its beginning; older ones are of no use.
            while ticks.get(1).is_some_and(|second| *second <= now_ms - span) {
                ticks.pop_front();
            }
        }
        due
    }

    /// The beginning of a window that has a whole span behind it.
    fn begin(&self, index: usize, now_ms: i64) -> Option<i64> {
        let (span, _) = WINDOWS[index];
        self.0[index].iter().rev().find(|tick| **tick <= now_ms - span).copied()
    }

    fn first(&self, index: usize) -> Option<i64> {
        self.0[index].front().copied()
    }
}

/// The points of one counter.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Milliseconds of the first count, as the clocks knew it; 0: before their first tick.
    created_ms: i64,
    points: [VecDeque<(i64, Value)>; 3],
}

impl History {
    /// A history that begins before anything was counted.
    pub(super) fn new(created_ms: i64) -> Self {
        Self { created_ms, ..Self::default() }
    }

    /// Notes the value down on the clocks that are due.
    pub(super) fn note(&mut self, ticks: &Ticks, due: [bool; 3], now_ms: i64, value: Value) {
        for (index, points) in self.points.iter_mut().enumerate() {
            if due[index] && points.back().map_or(Value::default(), |(_, last)| *last) != value {
                points.push_back((now_ms, value));
            }
            let begin = ticks.begin(index, now_ms).unwrap_or(i64::MIN);
            while points.get(1).is_some_and(|(second, _)| *second <= begin) {
                points.pop_front();
            }
        }
    }

    /// The windows as of now, the live value being their end. `pick` chooses what is summed.
    pub(super) fn windows(&self, ticks: &Ticks, now_ms: i64, live: Value, pick: fn(Value) -> u64) -> Windows {
        let window = |index: usize| {
            let (_, period) = WINDOWS[index];
            let created_ms = if self.created_ms > 0 { self.created_ms } else { ticks.first(index).unwrap_or(now_ms) };
            let born_ms = created_ms - period;
            let begin = ticks.begin(index, now_ms).unwrap_or(born_ms);
            let before = self.points[index].iter().rev().find(|(at, _)| *at <= begin).map_or(Value::default(), |(_, value)| *value);
            let sum = pick(live).saturating_sub(pick(before));
            let calls = live.calls.saturating_sub(before.calls);
            let elapsed_ms = (now_ms - begin.max(born_ms)).max(1);
            WindowValue {
                sum,
                tps: sum as f64 * 1_000.0 / elapsed_ms as f64,
                average: if calls == 0 { 0.0 } else { sum as f64 / calls as f64 },
            }
        };
        Windows { minute: window(0), hour: window(1), day: window(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter on a manual clock.
    struct Counter {
        ticks: Ticks,
        history: History,
        value: Value,
        now_ms: i64,
    }

    impl Counter {
        fn new(now_ms: i64) -> Self {
            let mut ticks = Ticks::default();
            ticks.tick(now_ms);
            Self { ticks, history: History::new(now_ms), value: Value::default(), now_ms }
        }

        fn count(&mut self, messages: u64) {
            self.value += Value { messages, bytes: messages * 10, calls: 1 };
        }

        fn run(&mut self, seconds: i64) {
            for _ in 0..seconds / 10 {
                self.now_ms += 10_000;
                let due = self.ticks.tick(self.now_ms);
                self.history.note(&self.ticks, due, self.now_ms, self.value);
            }
        }

        fn windows(&self) -> Windows {
            self.history.windows(&self.ticks, self.now_ms, self.value, |value| value.messages)
        }

        fn sums(&self) -> [u64; 3] {
            let windows = self.windows();
            [windows.minute.sum, windows.hour.sum, windows.day.sum]
        }
    }

    #[test]
    fn a_burst_leaves_the_windows_one_after_the_other() {
        let mut counter = Counter::new(1_000_000);
        counter.run(30);
        counter.count(100);
        assert_eq!(counter.sums(), [100, 100, 100], "at once, not with the next tick");
        counter.run(180);
        assert_eq!(counter.sums(), [0, 100, 100]);
        counter.run(3_600 + 600);
        assert_eq!(counter.sums(), [0, 0, 100]);
        counter.run(86_400 + 3_600);
        assert_eq!(counter.sums(), [0, 0, 0]);
        assert!(counter.history.points.iter().all(|points| points.len() <= 1), "{:?}", counter.history);
    }

    #[test]
    fn a_steady_stream() {
        let mut counter = Counter::new(0);
        for _ in 0..9_000 {
            counter.count(50);
            counter.run(10);
        }
        let windows = counter.windows();
        assert_eq!(windows.minute, WindowValue { sum: 300, tps: 5.0, average: 50.0 });
        assert_eq!((windows.hour.tps, windows.day.tps), (5.0, 5.0));
        assert_eq!((windows.hour.sum, windows.day.sum), (18_000, 432_000));
        let points: usize = counter.history.points.iter().map(VecDeque::len).sum();
        assert!(points <= 7 + 7 + 25, "{points}");
    }

    #[test]
    fn a_young_counter_has_an_invented_zero_one_period_earlier() {
        let mut counter = Counter::new(0);
        counter.count(30);
        counter.now_ms += 5_000;
        assert_eq!(counter.windows().minute, WindowValue { sum: 30, tps: 2.0, average: 30.0 }, "15 s: one period and what has passed");
    }
}
