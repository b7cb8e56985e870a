//! Java's `String.hashCode`, which RocketMQ writes to disk (tags codes, index slots).

/// `String.hashCode` of Java: `h = 31 * h + unit` over UTF-16 units, 32 bits, wrapping.
pub fn java_hash(text: &str) -> i32 {
    extend_java_hash(0, text)
}

/// [`java_hash`] of what hashes to `hash`, followed by `text`.
pub fn extend_java_hash(hash: i32, text: &str) -> i32 {
    let extend = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    if !text.is_ascii() {
        return text.encode_utf16().fold(hash, extend);
    }
    // four at a time: one multiplication waits for the last instead of four
    let (fours, rest) = text.as_bytes().as_chunks::<4>();
    let hash = fours.iter().fold(hash, |hash, units| {
        let [a, b, c, d] = units.map(i32::from);
        hash.wrapping_mul(31 * 31 * 31 * 31).wrapping_add((a * 31 + b) * (31 * 31) + c * 31 + d)
    });
    rest.iter().fold(hash, |hash, unit| extend(hash, u16::from(*unit)))
}

/// Tags code of a message as the consume queue stores it: the hash of the whole TAGS text, sign-extended; 0 without tags.
pub fn tags_code(tags: Option<&str>) -> i64 {
    tags.map_or(0, |tags| i64::from(java_hash(tags)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_hash_equals_java() {
        // Values printed by Java 17: "".hashCode(), "TagA".hashCode(), …
        for (text, hash) in
            [("", 0), ("a", 97), ("TagA", 2_598_919), ("TagB", 2_598_920), ("polygenelubricants", i32::MIN), ("标签", 857_175)]
        {
            assert_eq!(java_hash(text), hash, "hash of {text:?}");
            let halves = text.split_at(text.floor_char_boundary(text.len() / 2));
            assert_eq!(extend_java_hash(java_hash(halves.0), halves.1), hash, "hash of {text:?} in two parts");
        }
    }
}
