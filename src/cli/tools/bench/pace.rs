//! When requests are due: at once when an answer came (closed loop), or by the clock (open loop).
//!
//! In an open loop a request's latency counts from the moment it was due, whether or not it could be sent then: a stall of the broker
//! shows in all requests that it delayed, not only in those it caught.

/// Due times of an open loop, in nanoseconds since the start.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    interval_ns: f64,
    first_ns: f64,
    given: u64,
}

impl Pace {
    /// `per_second` requests a second in all, of which this thread, number `part` of `parts`, gives every `parts`-th.
    pub fn new(per_second: f64, part: usize, parts: usize) -> Self {
        let whole = 1e9 / per_second;
        Self { interval_ns: whole * parts as f64, first_ns: whole * part as f64, given: 0 }
    }

    /// When the next request is due.
    pub fn next_ns(&self) -> u64 {
        (self.first_ns + self.given as f64 * self.interval_ns) as u64
    }

    /// Takes the next request when it is due at `now_ns`; the moment it was due.
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.next_ns();
        (due <= now_ns).then(|| {
            self.given += 1;
            due
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_together_keep_the_rate() {
        let mut due: Vec<u64> = Vec::new();
        for part in 0..3 {
            let mut pace = Pace::new(1000.0, part, 3);
            while let Some(at) = pace.take(1_000_000_000 - 1) {
                due.push(at);
            }
        }
        due.sort_unstable();
        assert_eq!(due.len(), 1000);
        assert_eq!(due, (0..1000).map(|n| n * 1_000_000).collect::<Vec<u64>>());
    }

    #[test]
    fn what_could_not_be_sent_in_time_keeps_its_due_time() {
        let mut pace = Pace::new(1000.0, 0, 1);
        assert_eq!(pace.take(0), Some(0));
        assert_eq!(pace.take(999_999), None);
        // A stall of 5 ms: five requests are due at once, each since its own moment.
        let late: Vec<u64> = std::iter::from_fn(|| pace.take(5_000_000)).collect();
        assert_eq!(late, [1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000]);
        assert_eq!(pace.next_ns(), 6_000_000);
    }

    #[test]
    fn high_rates_do_not_drift() {
        let mut pace = Pace::new(300_000.0, 0, 1);
        let count = std::iter::from_fn(|| pace.take(10_000_000_000 - 1)).count();
        assert_eq!(count, 3_000_000);
    }
}
