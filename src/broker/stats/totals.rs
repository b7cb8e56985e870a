//! Totals of a broker: counted in stripes so that threads do not share cache lines, kept by day, and the latency of storing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::remoting::body::object::object_text;
use crate::remoting::fastjson::{self, Value};

const STRIPES: usize = 16;

/// What a broker has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages stored.
    pub put_messages: u64,
    /// Bytes stored.
    pub put_bytes: u64,
    /// Messages stored on other than system topics.
    pub user_put_messages: u64,
    /// Messages that could not be stored.
    pub put_failures: u64,
    /// Messages handed to consumers.
    pub get_messages: u64,
    /// Bytes handed to consumers.
    pub get_bytes: u64,
    /// Messages of other than system topics handed to consumers.
    pub user_get_messages: u64,
    /// Pulls that found something.
    pub get_found: u64,
    /// Pulls that found nothing.
    pub get_missed: u64,
}

/// One thread's share of the totals, on cache lines of its own (two: processors fetch them in pairs).
#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    put_messages: AtomicU64,
    put_bytes: AtomicU64,
    user_put_messages: AtomicU64,
    put_failures: AtomicU64,
    get_messages: AtomicU64,
    get_bytes: AtomicU64,
    user_get_messages: AtomicU64,
    get_found: AtomicU64,
    get_missed: AtomicU64,
}

/// The totals as they are counted.
#[derive(Default)]
pub(super) struct Stripes([Stripe; STRIPES]);

impl Stripes {
    pub(super) fn put(&self, messages: u64, bytes: u64, is_system: bool) {
        let stripe = self.mine();
        stripe.put_messages.fetch_add(messages, Relaxed);
        stripe.put_bytes.fetch_add(bytes, Relaxed);
        if !is_system {
            stripe.user_put_messages.fetch_add(messages, Relaxed);
        }
    }

    pub(super) fn put_failed(&self) {
        self.mine().put_failures.fetch_add(1, Relaxed);
    }

    pub(super) fn got(&self, messages: u64, bytes: u64, is_system: bool) {
        let stripe = self.mine();
        stripe.get_messages.fetch_add(messages, Relaxed);
        stripe.get_bytes.fetch_add(bytes, Relaxed);
        stripe.get_found.fetch_add(1, Relaxed);
        if !is_system {
            stripe.user_get_messages.fetch_add(messages, Relaxed);
        }
    }

    pub(super) fn missed(&self) {
        self.mine().get_missed.fetch_add(1, Relaxed);
    }

    pub(super) fn sum(&self) -> Totals {
        let mut sum = Totals::default();
        for stripe in &self.0 {
            sum.put_messages += stripe.put_messages.load(Relaxed);
            sum.put_bytes += stripe.put_bytes.load(Relaxed);
            sum.user_put_messages += stripe.user_put_messages.load(Relaxed);
            sum.put_failures += stripe.put_failures.load(Relaxed);
            sum.get_messages += stripe.get_messages.load(Relaxed);
            sum.get_bytes += stripe.get_bytes.load(Relaxed);
            sum.user_get_messages += stripe.user_get_messages.load(Relaxed);
            sum.get_found += stripe.get_found.load(Relaxed);
            sum.get_missed += stripe.get_missed.load(Relaxed);
        }
        sum
    }

    /// The stripe of this thread: chosen by where its thread-local storage lies, which no two living threads share.
    fn mine(&self) -> &Stripe {
        thread_local!(static HERE: u64 = const { 0 });
        let address = HERE.with(|here| std::ptr::from_ref(here).addr());
        &self.0[(address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 60 & (STRIPES - 1)]
    }
}

/// Messages in and out of other than system topics, at midnights of local time; go on over restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Days {
    /// Local date as a number of days.
    day: i64,
    put: Direction,
    get: Direction,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Direction {
    /// What earlier runs have counted.
    before_start: u64,
    now: u64,
    today_morning: u64,
    yesterday_morning: u64,
}

impl Days {
    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let value = fastjson::parse(text.as_bytes())?;
        if !matches!(value, Value::Object(_)) {
            return Err("no JSON object".to_owned());
        }
        let number = |name: &str| value.get(name).and_then(Value::as_i64).unwrap_or(0);
        let direction = |name: &str| {
            let part = |part: &str| number(&format!("{name}{part}")).max(0) as u64;
            Direction {
                before_start: part("Total"),
                now: part("Total"),
                today_morning: part("TodayMorning"),
                yesterday_morning: part("YesterdayMorning"),
            }
        };
        Ok(Self { day: number("day"), put: direction("put"), get: direction("get") })
    }

    pub(super) fn to_json(&self) -> String {
        object_text(|body| {
            body.int("day", self.day);
            for (name, direction) in [("get", &self.get), ("put", &self.put)] {
                body.int(&format!("{name}TodayMorning"), direction.today_morning as i64);
                body.int(&format!("{name}Total"), direction.now as i64);
                body.int(&format!("{name}YesterdayMorning"), direction.yesterday_morning as i64);
            }
        })
    }

    /// Goes on after a pause of unknown length.
    pub(super) fn resume(mut self, now_ms: i64) -> Self {
        self.turn_to(local_day(now_ms));
        self
    }

    /// Takes over what was counted, and a midnight if one has passed since.
    pub(super) fn advance(&mut self, now_ms: i64, totals: &Totals) {
        // Before the new numbers: what came since the last sample counts for the new day, at most ten seconds of it wrongly.
        self.turn_to(local_day(now_ms));
        self.put.now = self.put.before_start + totals.user_put_messages;
        self.get.now = self.get.before_start + totals.user_get_messages;
    }

    fn turn_to(&mut self, day: i64) {
        if day == self.day {
            return;
        }
        let is_next = day == self.day + 1;
        for direction in [&mut self.put, &mut self.get] {
            direction.yesterday_morning = if is_next { direction.today_morning } else { direction.now };
            direction.today_morning = direction.now;
        }
        self.day = day;
    }

    /// (now, today's morning, yesterday's morning) of puts and of gets.
    pub(super) fn numbers(&self) -> [(u64, u64, u64); 2] {
        [&self.put, &self.get].map(|direction| (direction.now, direction.today_morning, direction.yesterday_morning))
    }
}

fn local_day(now_ms: i64) -> i64 {
    const DAY_SECONDS: i64 = 86_400;
    let seconds = now_ms.div_euclid(1_000);
    let offset =
        jiff::Timestamp::from_second(seconds).map_or(0, |timestamp| i64::from(jiff::tz::TimeZone::system().to_offset(timestamp).seconds()));
    (seconds + offset).div_euclid(DAY_SECONDS)
}

/// Upper bounds of the buckets, ms; one more above.
const BOUNDS_MS: [u64; 12] = [0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000];
const BUCKETS: usize = BOUNDS_MS.len() + 1;

/// How long storing takes, by minute.
#[derive(Default)]
pub struct PutLatency {
    counts: [AtomicU64; BUCKETS],
    max_ms: AtomicU64,
    last_minute: Mutex<[u64; BUCKETS]>,
    at_minute: Mutex<[u64; BUCKETS]>,
}

impl PutLatency {
    pub(super) fn add(&self, ms: u64) {
        let bucket = BOUNDS_MS.iter().position(|bound| ms <= *bound).unwrap_or(BUCKETS - 1);
        self.counts[bucket].fetch_add(1, Relaxed);
        if ms > self.max_ms.load(Relaxed) {
            self.max_ms.fetch_max(ms, Relaxed);
        }
    }

    /// What was counted since the last call is the last minute.
    pub(super) fn next_minute(&self) {
        let now: [u64; BUCKETS] = std::array::from_fn(|bucket| self.counts[bucket].load(Relaxed));
        let before = std::mem::replace(&mut *self.at_minute.lock(), now);
        *self.last_minute.lock() = std::array::from_fn(|bucket| now[bucket] - before[bucket]);
    }

    /// Longest since the start, ms.
    pub fn max_ms(&self) -> u64 {
        self.max_ms.load(Relaxed)
    }

    /// The last minute as the reference prints it.
    pub fn distribution(&self) -> String {
        const NAMES: [&str; BUCKETS] = [
            "<=0ms",
            "0~10ms",
            "10~50ms",
            "50~100ms",
            "100~200ms",
            "200~500ms",
            "500ms~1s",
            "1~2s",
            "2~3s",
            "3~4s",
            "4~5s",
            "5~10s",
            "10s~",
        ];
        let counts = self.last_minute.lock();
        NAMES.iter().zip(counts.iter()).map(|(name, count)| format!("[{name}]:{count} ")).collect()
    }

    /// The time within which `share` (0 to 1) of the last minute's messages were stored, ms, linear inside a bucket.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let counts = *self.last_minute.lock();
        let wanted = counts.iter().sum::<u64>() as f64 * share;
        let mut seen = 0.0;
        for (bucket, count) in counts.into_iter().enumerate() {
            if count > 0 && seen + count as f64 >= wanted {
                let from = bucket.checked_sub(1).map_or(0.0, |below| BOUNDS_MS[below] as f64);
                let to = BOUNDS_MS.get(bucket).map_or(self.max_ms() as f64, |bound| *bound as f64).max(from);
                return from + (to - from) * ((wanted - seen) / count as f64);
            }
            seen += count as f64;
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn noon() -> i64 {
        let mut ms = 1_700_000_000_000 / DAY_MS * DAY_MS + DAY_MS / 2;
        while local_day(ms) != local_day(ms + 3_600_000) {
            ms += 3_600_000; // whatever zone the tests run in
        }
        ms
    }

    fn totals(put: u64, get: u64) -> Totals {
        Totals { user_put_messages: put, user_get_messages: get, ..Totals::default() }
    }

    #[test]
    fn midnight_moves_today_to_yesterday() {
        let mut days = Days::default().resume(noon());
        days.advance(noon(), &totals(10, 5));
        assert_eq!(days.numbers(), [(10, 0, 0), (5, 0, 0)]);
        days.advance(noon() + DAY_MS, &totals(15, 6));
        assert_eq!(days.numbers(), [(15, 10, 0), (6, 5, 0)]);
        days.advance(noon() + 2 * DAY_MS, &totals(20, 7));
        assert_eq!(days.numbers(), [(20, 15, 10), (7, 6, 5)]);
        days.advance(noon() + 9 * DAY_MS, &totals(21, 7));
        assert_eq!(days.numbers(), [(21, 20, 20), (7, 7, 7)], "nothing came yesterday");
    }

    #[test]
    fn kept_over_a_restart() {
        let mut days = Days::default().resume(noon());
        days.advance(noon(), &totals(10, 5));
        days.advance(noon() + DAY_MS, &totals(15, 6));
        let mut again = Days::parse(&days.to_json()).unwrap().resume(noon() + DAY_MS + 1);
        again.advance(noon() + DAY_MS + 2, &totals(2, 1));
        assert_eq!(again.numbers(), [(17, 10, 0), (7, 5, 0)]);
        let again = Days::parse(&days.to_json()).unwrap().resume(noon() + 2 * DAY_MS);
        assert_eq!(again.numbers(), [(15, 15, 10), (6, 6, 5)]);
        assert!(Days::parse("{").is_err());
    }

    #[test]
    fn stripes_add_up() {
        let stripes = Stripes::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1_000).for_each(|_| stripes.put(1, 10, false)));
            }
        });
        stripes.put(3, 30, true);
        stripes.got(2, 20, false);
        stripes.missed();
        let sum = stripes.sum();
        assert_eq!((sum.put_messages, sum.put_bytes, sum.user_put_messages), (8_003, 80_030, 8_000));
        assert_eq!((sum.get_messages, sum.get_found, sum.get_missed), (2, 1, 1));
    }

    #[test]
    fn latency_of_the_last_minute() {
        let latency = PutLatency::default();
        (0..98).for_each(|_| latency.add(0));
        latency.add(30);
        latency.add(20_000);
        assert!(latency.distribution().starts_with("[<=0ms]:0 "));
        latency.next_minute();
        assert_eq!(
            latency.distribution(),
            "[<=0ms]:98 [0~10ms]:0 [10~50ms]:1 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
        );
        assert_eq!((latency.quantile_ms(0.5), latency.quantile_ms(0.99), latency.quantile_ms(1.0)), (0.0, 50.0, 20_000.0));
        latency.next_minute();
        assert_eq!((latency.quantile_ms(0.99), latency.max_ms()), (0.0, 20_000));
    }
}
