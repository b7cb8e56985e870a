//! The table of finished half messages: two bits for each queue offset of the half queue.
//!
//! Pure. A million decisions take 256 KiB; chunks without a decision take nothing.

use std::collections::BTreeMap;

/// Half messages of one chunk.
const CHUNK: i64 = 4_096;
/// States in one word.
const STATES_PER_WORD: i64 = 32;
/// Words of one chunk.
const WORDS: usize = (CHUNK / STATES_PER_WORD) as usize;

/// What became of a half message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Its real message is in the log.
    Committed,
    /// It will never be seen.
    RolledBack,
    /// Finished, as the op queue says; which way it does not say (op messages of the reference).
    Unknown,
}

impl Decision {
    fn bits(self) -> u64 {
        match self {
            Self::Committed => 1,
            Self::RolledBack => 2,
            Self::Unknown => 3,
        }
    }

    fn of_bits(bits: u64) -> Option<Self> {
        match bits & 3 {
            1 => Some(Self::Committed),
            2 => Some(Self::RolledBack),
            3 => Some(Self::Unknown),
            _ => None,
        }
    }

    /// As a text for people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled back",
            Self::Unknown => "finished",
        }
    }
}

/// Decisions by queue offset of the half message.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    chunks: BTreeMap<i64, Box<[u64; WORDS]>>,
}

impl Decisions {
    /// The decision on a half message, if it is known.
    pub(crate) fn get(&self, offset: i64) -> Option<Decision> {
        let chunk = self.chunks.get(&offset.div_euclid(CHUNK))?;
        let (word, shift) = place(offset);
        Decision::of_bits(chunk[word] >> shift)
    }

    /// Notes a decision; one that says which way is not replaced by one that does not.
    pub(crate) fn set(&mut self, offset: i64, decision: Decision) {
        if decision == Decision::Unknown && self.get(offset).is_some() {
            return;
        }
        let chunk = self.chunks.entry(offset.div_euclid(CHUNK)).or_insert_with(|| Box::new([0; WORDS]));
        let (word, shift) = place(offset);
        chunk[word] = chunk[word] & !(3 << shift) | decision.bits() << shift;
    }

    /// The first offset at or behind `from` that is not decided.
    pub(crate) fn next_undecided(&self, from: i64) -> i64 {
        let mut offset = from;
        while let Some(chunk) = self.chunks.get(&offset.div_euclid(CHUNK)) {
            let (word, shift) = place(offset);
            // A pair of bits is empty when neither is set; those before `offset` do not count.
            let empty = !(chunk[word] | chunk[word] >> 1) & 0x5555_5555_5555_5555 & (u64::MAX << shift);
            if empty != 0 {
                return offset - i64::from(shift / 2) + i64::from(empty.trailing_zeros() / 2);
            }
            offset += STATES_PER_WORD - i64::from(shift / 2);
        }
        offset
    }

    /// Forgets decisions on half messages before `offset`, by whole chunks.
    pub(crate) fn forget_before(&mut self, offset: i64) {
        let first = offset.div_euclid(CHUNK);
        while let Some(entry) = self.chunks.first_entry().filter(|entry| *entry.key() < first) {
            entry.remove();
        }
    }
}

fn place(offset: i64) -> (usize, u32) {
    let within = offset.rem_euclid(CHUNK);
    ((within / STATES_PER_WORD) as usize, (within % STATES_PER_WORD) as u32 * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_a_map() {
        let mut random = fastrand::Rng::with_seed(6);
        let (mut decisions, mut model) = (Decisions::default(), BTreeMap::new());
        for _ in 0..40_000 {
            let offset = random.i64(0..3 * CHUNK);
            let decision = [Decision::Committed, Decision::RolledBack, Decision::Unknown][random.usize(0..3)];
            decisions.set(offset, decision);
            if decision != Decision::Unknown || !model.contains_key(&offset) {
                model.insert(offset, decision);
            }
            let probe = random.i64(0..3 * CHUNK + 9);
            assert_eq!(decisions.get(probe), model.get(&probe).copied());
            if random.u8(..) < 4 {
                let expected = (probe..).find(|offset| !model.contains_key(offset)).unwrap();
                assert_eq!(decisions.next_undecided(probe), expected, "from {probe}");
            }
        }
    }

    #[test]
    fn a_full_chunk_is_passed_over() {
        let mut decisions = Decisions::default();
        (10..2 * CHUNK + 33).for_each(|offset| decisions.set(offset, Decision::RolledBack));
        assert_eq!(decisions.next_undecided(0), 0);
        assert_eq!(decisions.next_undecided(10), 2 * CHUNK + 33);
        assert_eq!(decisions.next_undecided(9 * CHUNK), 9 * CHUNK);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut decisions = Decisions::default();
        for offset in [0, CHUNK - 1, CHUNK, 5 * CHUNK] {
            decisions.set(offset, Decision::Committed);
        }
        decisions.forget_before(CHUNK + 1);
        assert_eq!(decisions.get(CHUNK - 1), None);
        assert_eq!((decisions.get(CHUNK), decisions.get(5 * CHUNK)), (Some(Decision::Committed), Some(Decision::Committed)));
        assert_eq!(decisions.chunks.len(), 2);
    }
}
