//! Unique ids of messages (`UNIQ_KEY`), made by the producer.
//!
//! | digits | field |
//! |---|---|
//! | 8 (IPv6: 32) | address of this host |
//! | 4 | process id, 16 bits |
//! | 8 | a number of its own for each generator (Java: hash of a class loader) |
//! | 8 | milliseconds since the start of the current month |
//! | 4 | counter |
//!
//! - Two generators of one process differ in their third field, two ids of one generator in time or counter: as long as a generator
//!   makes fewer than 65 536 ids a millisecond, which is 65 million a second.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Makes unique ids; shared by all producers of a client.
#[derive(Debug)]
pub struct UniqueIds {
    prefix: String,
    counter: AtomicU64,
}

impl UniqueIds {
    /// A generator of the host at `ip`; `seed` tells it from others of the same process.
    pub fn new(ip: IpAddr, process_id: u32, seed: u32) -> Self {
        let mut prefix = String::with_capacity(44);
        match ip {
            IpAddr::V4(ip) => ip.octets().iter().for_each(|byte| hex(&mut prefix, u64::from(*byte), 2)),
            IpAddr::V6(ip) => ip.octets().iter().for_each(|byte| hex(&mut prefix, u64::from(*byte), 2)),
        }
        hex(&mut prefix, u64::from(process_id & 0xffff), 4);
        hex(&mut prefix, u64::from(seed), 8);
        Self { prefix, counter: AtomicU64::new(0) }
    }

    /// The next id at `now_ms` (milliseconds since 1970).
    pub fn next(&self, now_ms: i64) -> String {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(self.prefix.len() + 12);
        id.push_str(&self.prefix);
        hex(&mut id, since_month(now_ms) & 0xffff_ffff, 8);
        hex(&mut id, count & 0xffff, 4);
        id
    }
}

fn hex(out: &mut String, value: u64, digits: u32) {
    for digit in (0..digits).rev() {
        out.push(char::from(DIGITS[(value >> (4 * digit)) as usize & 15]));
    }
}

/// Milliseconds since the start of the UTC month of `now_ms`. (Java takes its local time zone; readers only compare with "now".)
fn since_month(now_ms: i64) -> u64 {
    const DAY_MS: i64 = 86_400_000;
    let days = now_ms.div_euclid(DAY_MS);
    // Day of the month by the civil-from-days rule of the proleptic Gregorian calendar, counted from 0000-03-01.
    let since_march = (days + 719_468).rem_euclid(146_097);
    let year_of_era = (since_march - since_march / 1_460 + since_march / 36_524 - since_march / 146_096) / 365;
    let day_of_year = since_march - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5;
    (day * DAY_MS + now_ms.rem_euclid(DAY_MS)) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn fields_stand_where_readers_look_for_them() {
        let ids = UniqueIds::new("192.168.1.2".parse().unwrap(), 0x1_2345, 0xDEAD_BEEF);
        // 2023-11-14T22:13:20Z: 13 days, 22:13:20 into the month.
        let now_ms = 1_700_000_000_000;
        let in_month = 13 * 86_400_000 + (22 * 3600 + 13 * 60 + 20) * 1000;
        assert_eq!(ids.next(now_ms), format!("C0A801022345DEADBEEF{in_month:08X}0000"));
        assert_eq!(ids.next(now_ms), format!("C0A801022345DEADBEEF{in_month:08X}0001"));
        assert_eq!(UniqueIds::new("::1".parse().unwrap(), 1, 1).next(0).len(), 56);
    }

    #[test]
    fn months_start_where_the_calendar_says() {
        for (text, expected) in [
            ("2024-02-29T00:00:00Z", 28 * 86_400_000i64),
            ("2024-03-01T00:00:00Z", 0),
            ("2023-12-31T23:59:59Z", 31 * 86_400_000i64 - 1000),
            ("2000-01-01T00:00:01Z", 1000),
            ("1970-01-01T00:00:00Z", 0),
        ] {
            let now: jiff::Timestamp = text.parse().unwrap();
            assert_eq!(since_month(now.as_millisecond()), expected as u64, "{text}");
        }
    }

    #[test]
    fn ids_of_many_threads_and_generators_differ() {
        let ids = [UniqueIds::new("10.0.0.1".parse().unwrap(), 7, 1), UniqueIds::new("10.0.0.1".parse().unwrap(), 7, 2)];
        let all = parking_lot::Mutex::new(HashSet::new());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (ids, all) = (&ids, &all);
                scope.spawn(move || {
                    let made: Vec<String> = (0..10_000).map(|_| ids[thread % 2].next(5)).collect();
                    all.lock().extend(made);
                });
            }
        });
        assert_eq!(all.lock().len(), 40_000);
    }
}
