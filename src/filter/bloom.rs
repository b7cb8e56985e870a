//! Bloom filter positions as `consumerFilter.json` carries them (`BloomFilter`).
//!
//! The reference can note in an extension of its consume queue which groups' expressions a message passes. We write no such extension;
//! but a broker of the reference that finds other positions in the file than it would compute sets the whole file aside.

use std::f64::consts::E;

/// Parameters of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bloom {
    functions: i32,
    bits: i32,
}

impl Bloom {
    /// For an error rate in percent (1 to 99) and a number of groups (1 and up).
    pub fn new(error_percent: i32, groups: i32) -> Self {
        let rate = f64::from(error_percent.clamp(1, 99)) / 100.0;
        let functions = (rate.ln() / 0.5f64.ln()).ceil();
        let bits = (f64::from(groups.max(1)) * ((1.0 / rate).ln() / 2f64.ln()) * (E.ln() / 2f64.ln())).ceil();
        Self { functions: functions as i32, bits: (8.0 * (bits / 8.0).ceil()) as i32 }
    }

    /// Number of bits.
    pub fn bits(self) -> i32 {
        self.bits
    }

    /// Positions of a group on a topic.
    pub fn positions(self, group: &str, topic: &str) -> Vec<i32> {
        let hash = murmur3(format!("{group}#{topic}").as_bytes());
        let (low, high) = (hash as i32, (hash >> 32) as i32);
        let positions = (1..=self.functions).map(|number| {
            let combined = low.wrapping_add(number.wrapping_mul(high));
            (if combined < 0 { !combined } else { combined }) % self.bits
        });
        positions.collect()
    }
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// First half of MurmurHash3 x64 128, seed 0.
fn murmur3(bytes: &[u8]) -> u64 {
    let (mut h1, mut h2) = (0u64, 0u64);
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        let (k1, k2) = halves(block);
        h1 = (h1 ^ mixed_first(k1)).rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mixed_second(k2)).rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let mut last = [0; 16];
    last[..tail.len()].copy_from_slice(tail);
    let (k1, k2) = halves(&last);
    h1 ^= mixed_first(k1) ^ bytes.len() as u64;
    h2 ^= mixed_second(k2) ^ bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    avalanche(h1).wrapping_add(avalanche(h2))
}

/// Two numbers, the least significant byte first.
fn halves(block: &[u8; 16]) -> (u64, u64) {
    let number = block.iter().rev().fold(0u128, |number, byte| number << 8 | u128::from(*byte));
    (number as u64, (number >> 64) as u64)
}

fn mixed_first(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mixed_second(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn avalanche(mut h: u64) -> u64 {
    h = (h ^ h >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ h >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_java() {
        let usual = Bloom::new(20, 32);
        assert_eq!(usual, Bloom { functions: 3, bits: 112 });
        assert_eq!(usual.positions("g", "T"), [90, 68, 28]);
        assert_eq!(usual.positions("group-with-a-long-name", "topic-with-a-long-name-ä😀"), [45, 71, 67]);
        let others = [
            (10, 64, 312, vec![186, 268, 156, 13]),
            (1, 1, 16, vec![10, 4, 12, 13, 1, 15, 15]),
            (50, 100, 152, vec![90]),
            (99, 1, 8, vec![2]),
        ];
        for (error_percent, groups, bits, positions) in others {
            let bloom = Bloom::new(error_percent, groups);
            assert_eq!((bloom.bits(), bloom.positions("g", "T")), (bits, positions));
        }
    }
}
