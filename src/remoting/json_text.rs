//! JSON strings: where one ends, unescaped, quoted.

use crate::common::byte_search::{below, equal, find};

/// Reads a string whose opening quote lies before `start`: where its closing quote is and whether it has escapes. `None` when it
/// does not end, or has an escape that standard JSON does not know.
#[inline]
pub(super) fn end_of_string(bytes: &[u8], start: usize) -> Option<(usize, bool)> {
    let quote_or_escape = |from| find(bytes, from, |word| equal(word, b'"') | equal(word, b'\\'), |byte| matches!(byte, b'"' | b'\\'));
    let first = quote_or_escape(start)?;
    let mut at = first;
    while bytes[at] == b'\\' {
        at = quote_or_escape(at + escape_len(&bytes[at..])?)?;
    }
    Some((at, at > first))
}

/// Bytes of the escape at the start of `bytes`, if it is one.
fn escape_len(bytes: &[u8]) -> Option<usize> {
    match bytes.get(1)? {
        b'u' => bytes.get(2..6)?.iter().all(u8::is_ascii_hexdigit).then_some(6),
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        _ => None,
    }
}

/// Appends a string without its escapes.
pub(super) fn unescape_into(raw: &str, out: &mut String) {
    let bytes = raw.as_bytes();
    out.reserve(raw.len());
    let mut plain = 0;
    while let Some(at) = find(bytes, plain, |word| equal(word, b'\\'), |byte| byte == b'\\') {
        out.push_str(&raw[plain..at]);
        let (character, len) = unescape_one(&bytes[at..]);
        out.push(character);
        plain = at + len;
    }
    out.push_str(&raw[plain..]);
}

/// Reads one escape: what it stands for and how many bytes it takes. A lone surrogate is replaced.
fn unescape_one(bytes: &[u8]) -> (char, usize) {
    let simple = match bytes.get(1) {
        Some(b'u') => return unescape_unicode(bytes),
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(other) => char::from(*other),
        None => return (char::REPLACEMENT_CHARACTER, 1),
    };
    (simple, 2)
}

fn unescape_unicode(bytes: &[u8]) -> (char, usize) {
    let unit = |at: usize| -> Option<u16> {
        let digits: &[u8; 4] = bytes.get(at..)?.first_chunk()?;
        digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)? as u16))
    };
    let Some(first) = unit(2) else { return (char::REPLACEMENT_CHARACTER, bytes.len().min(6)) };
    if let Some(character) = char::from_u32(u32::from(first)) {
        return (character, 6);
    }
    let second = if bytes.get(6..8) == Some(b"\\u") { unit(8) } else { None };
    match second.map(|second| char::decode_utf16([first, second]).next()) {
        Some(Some(Ok(character))) => (character, 12),
        _ => (char::REPLACEMENT_CHARACTER, 6),
    }
}

/// Appends a quoted JSON string.
#[inline]
pub(super) fn quote(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut plain = 0;
    let escaped = |word| below(word, 0x20) | equal(word, b'"') | equal(word, b'\\');
    while let Some(at) = find(bytes, plain, escaped, |byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.extend_from_slice(&bytes[plain..at]);
        escape(out, bytes[at]);
        plain = at + 1;
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        control => {
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[usize::from(control >> 4)], HEX[usize::from(control & 15)]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_string_ends_at_its_quote_wherever_it_lies() {
        for len in 0..40 {
            for text in ["x".repeat(len), "é".repeat(len), "\u{1}".repeat(len)] {
                let bytes = format!("{text}\"behind\"");
                assert_eq!(end_of_string(bytes.as_bytes(), 0), Some((text.len(), false)), "{bytes:?}");
            }
            let escaped = format!("{}\\u0001{}\\\"\"", "x".repeat(len), "y".repeat(len));
            assert_eq!(end_of_string(escaped.as_bytes(), 0), Some((escaped.len() - 1, true)), "{escaped:?}");
        }
        for endless in ["", "x", "\\\"", "\\", "\\u00", "\\u00G0\"", "\\x\"", "12345678"] {
            assert_eq!(end_of_string(endless.as_bytes(), 0), None, "{endless:?}");
        }
        assert_eq!(end_of_string(b"abc", 4), None);
    }

    proptest! {
        #[test]
        fn what_is_quoted_reads_back(text in "[\\x00-\\x7f\u{80}-\u{10ffff}]{0,40}") {
            let mut quoted = Vec::new();
            quote(&mut quoted, &text);
            let quoted = String::from_utf8(quoted).unwrap();
            prop_assert_eq!(&serde_json::from_str::<String>(&quoted).unwrap(), &text);
            let (end, escaped) = end_of_string(quoted.as_bytes(), 1).unwrap();
            prop_assert_eq!(end, quoted.len() - 1);
            prop_assert_eq!(escaped, quoted.contains('\\'));
            let mut read = String::new();
            unescape_into(&quoted[1..end], &mut read);
            prop_assert_eq!(read, text);
        }
    }
}
