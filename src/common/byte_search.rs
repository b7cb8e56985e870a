//! Bytes found in short texts, eight at a time: no call, no set-up, unlike what is made for long ones.

/// Each byte of a word.
pub(crate) const fn each(byte: u8) -> u64 {
    u64::from_be_bytes([byte; 8])
}

/// A mark at the lowest byte of `word` that is less than `limit` (at most 128); marks above it mean nothing.
#[inline]
pub(crate) fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(each(limit)) & !word & each(0x80)
}

/// A mark at the lowest byte of `word` that is `byte`; marks above it mean nothing.
#[inline]
pub(crate) fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ each(byte), 1)
}

/// The first byte from `at` on that `marks` marks in a word, where the first byte is the lowest, and `is` accepts alone.
#[inline]
pub(crate) fn find(bytes: &[u8], mut at: usize, marks: impl Fn(u64) -> u64, is: impl Fn(u8) -> bool) -> Option<usize> {
    let mut rest = bytes.get(at..)?;
    while let Some((word, behind)) = rest.split_first_chunk::<8>() {
        let marked = marks(u64::from_be_bytes(*word).swap_bytes());
        if marked != 0 {
            return Some(at + marked.trailing_zeros() as usize / 8);
        }
        rest = behind;
        at += 8;
    }
    rest.iter().position(|byte| is(*byte)).map(|distance| at + distance)
}

/// Where `wanted` is first.
#[inline]
pub(crate) fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    find(bytes, 0, |word| equal(word, wanted), |byte| byte == wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_are_searched_as_bytes_are(bytes in proptest::collection::vec(any::<u8>(), 0..40), wanted: u8, limit in 1u8..=128) {
            prop_assert_eq!(position(&bytes, wanted), bytes.iter().position(|byte| *byte == wanted));
            let found = find(&bytes, 0, |word| below(word, limit), |byte| byte < limit);
            prop_assert_eq!(found, bytes.iter().position(|byte| *byte < limit));
        }
    }
}
