//! Latencies, and what a load came to.

use hdrhistogram::Histogram;

/// Largest latency that is told apart: 5 minutes, in nanoseconds.
const MAX_NS: u64 = 300_000_000_000;

/// Latencies in nanoseconds, three digits exact.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX_NS, 3).expect("the bounds are constants that the crate allows");
        Self { histogram }
    }
}

impl Latencies {
    /// Counts one.
    pub fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns.max(1));
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, so nothing can be out of range.
        let _ = self.histogram.add(&other.histogram);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// p50, p99, p99.9 and the largest, in microseconds; `None` when nothing was counted.
    pub fn summary(&self) -> Option<Summary> {
        let us = |ns: u64| ns as f64 / 1000.0;
        (self.count() > 0).then(|| Summary {
            p50_us: us(self.histogram.value_at_quantile(0.5)),
            p99_us: us(self.histogram.value_at_quantile(0.99)),
            p999_us: us(self.histogram.value_at_quantile(0.999)),
            max_us: us(self.histogram.max()),
        })
    }
}

/// Latencies of a load in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// What a load did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Messages sent and answered, or received.
    pub messages: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Requests answered.
    pub requests: u64,
    /// Messages of the warm-up too.
    pub all_messages: u64,
    /// One-way messages that the broker did not store.
    pub lost: u64,
    /// Time measured, in nanoseconds.
    pub elapsed_ns: u64,
    pub latencies: Latencies,
}

impl Outcome {
    /// Adds what another thread did at the same time.
    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.body_bytes += other.body_bytes;
        self.requests += other.requests;
        self.all_messages += other.all_messages;
        self.lost += other.lost;
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.latencies.add(&other.latencies);
    }

    /// Takes `lost` of all messages out of what was measured, in proportion: what was not stored is no throughput.
    pub fn lose(&mut self, lost: u64) {
        let kept = |amount: u64| (u128::from(amount) * u128::from(self.all_messages - lost) / u128::from(self.all_messages.max(1))) as u64;
        (self.messages, self.body_bytes) = (kept(self.messages), kept(self.body_bytes));
        self.lost = lost;
    }

    /// Messages per second.
    pub fn rate(&self) -> f64 {
        self.per_second(self.messages as f64)
    }

    /// Body bytes per second, in millions.
    pub fn mb_per_second(&self) -> f64 {
        self.per_second(self.body_bytes as f64 / 1e6)
    }

    fn per_second(&self, amount: f64) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { amount * 1e9 / self.elapsed_ns as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_known_distribution() {
        let (mut low, mut high) = (Latencies::default(), Latencies::default());
        (1..=990).for_each(|_| low.record(1_000));
        (1..=9).for_each(|_| high.record(50_000));
        high.record(2_000_000);
        low.add(&high);
        let summary = low.summary().unwrap();
        let near = |value: f64, expected: f64| (value - expected).abs() <= expected * 0.001;
        assert!(near(summary.p50_us, 1.0) && near(summary.p99_us, 1.0), "{summary:?}");
        assert!(near(summary.p999_us, 50.0) && near(summary.max_us, 2000.0), "{summary:?}");
        assert_eq!(Latencies::default().summary(), None);
        low.record(u64::MAX);
        assert_eq!(low.count(), 1001);
    }

    #[test]
    fn rates_are_of_the_longest_thread() {
        let part = |messages, elapsed_ns| Outcome { messages, body_bytes: messages * 1000, elapsed_ns, ..Outcome::default() };
        let mut whole = part(600, 1_000_000_000);
        whole.add(&part(400, 2_000_000_000));
        assert_eq!(whole.rate(), 500.0);
        assert_eq!(whole.mb_per_second(), 0.5);
        assert_eq!(Outcome::default().rate(), 0.0);
        let mut leaky = Outcome { all_messages: 2000, ..part(1000, 1_000_000_000) };
        leaky.lose(500);
        assert_eq!((leaky.messages, leaky.body_bytes, leaky.lost), (750, 750_000, 500));
    }
}
