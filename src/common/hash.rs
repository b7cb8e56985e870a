//! Java's `String.hashCode`, which RocketMQ writes to disk (tags codes, index slots).

/// `String.hashCode` of Java: `h = 31 * h + unit` over UTF-16 units, 32 bits, wrapping.
pub fn java_hash(text: &str) -> i32 {
    if text.is_ascii() {
        return text.bytes().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    }
    text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
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
        }
    }
}
