//! A client's batch: the body of a send whose `batch` field is true.
//!
//! | size | field of an entry |
//! |---|---|
//! | 4 | total size of the entry, these four bytes included |
//! | 4 | magic, ignored |
//! | 4 | CRC of the body, ignored |
//! | 4 | flag |
//! | 4 + n | body |
//! | 2 + n | properties text |
//!
//! Every length comes from the peer: a wrong one is an error, never a panic, and nothing of the batch is stored.

use crate::common::sysflag;

/// Bytes of an entry without body and properties.
const MIN_ENTRY: usize = 22;

/// One message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchEntry<'a> {
    /// The application's flag.
    pub(crate) flag: i32,
    /// Body; may be empty, unlike that of a message that comes by itself.
    pub(crate) body: &'a [u8],
    /// Properties text.
    pub(crate) properties: &'a str,
}

/// The entries of a batch's body; ends after the first error.
pub(crate) struct BatchEntries<'a> {
    body: &'a [u8],
    at: usize,
    index: usize,
}

impl<'a> BatchEntries<'a> {
    /// Entries of `body`.
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0, index: 0 }
    }

    fn entry(&self) -> Result<(BatchEntry<'a>, usize), String> {
        let rest = &self.body[self.at..];
        if rest.len() < MIN_ENTRY {
            return Err(self.illegal(&format!("{} bytes are left, an entry has at least {MIN_ENTRY}", rest.len())));
        }
        let total = i32_at(rest, 0);
        let Some(size) = usize::try_from(total).ok().filter(|size| (MIN_ENTRY..=rest.len()).contains(size)) else {
            return Err(self.illegal(&format!("total size {total}, {} bytes are left", rest.len())));
        };
        let entry = &rest[..size];
        let flag = i32_at(entry, 12);
        let body_len = i32_at(entry, 16);
        let Some(body_len_usize) = usize::try_from(body_len).ok().filter(|len| *len <= size - MIN_ENTRY) else {
            return Err(self.illegal(&format!("body length {body_len} in an entry of {size} bytes")));
        };
        let body_end = 20 + body_len_usize;
        let properties_len = i16::from_be_bytes([entry[body_end], entry[body_end + 1]]);
        let properties = &entry[body_end + 2..];
        if usize::try_from(properties_len) != Ok(properties.len()) {
            let there = properties.len();
            return Err(self.illegal(&format!("properties length {properties_len}, {there} bytes are left in an entry of {size} bytes")));
        }
        let properties = std::str::from_utf8(properties).map_err(|error| self.illegal(&format!("properties are not UTF-8: {error}")))?;
        Ok((BatchEntry { flag, body: &entry[20..body_end], properties }, size))
    }

    fn illegal(&self, what: &str) -> String {
        format!("the message is illegal: entry {} of the batch, at byte {} of {}: {what}", self.index, self.at, self.body.len())
    }
}

impl<'a> Iterator for BatchEntries<'a> {
    type Item = Result<BatchEntry<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.body.len() {
            return None;
        }
        match self.entry() {
            Ok((entry, size)) => {
                self.at += size;
                self.index += 1;
                Some(Ok(entry))
            }
            Err(error) => {
                self.at = self.body.len();
                Some(Err(error))
            }
        }
    }
}

/// Undoes the compression of a whole batch (zlib; types 0 and ZLIB of `sysFlag`), up to `limit` bytes.
///
/// # Errors
/// Another type, bytes that are no zlib stream, or more than `limit` bytes (`maxMessageSize`): the text for the client.
pub(crate) fn inflate(body: &[u8], sys_flag: i32, limit: usize) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let kind = (sys_flag & sysflag::COMPRESSION_MASK) >> 8;
    if kind != 0 && kind != 3 {
        return Err(format!(
            "the message is illegal: a batch compressed with type {kind} (sysFlag {sys_flag}) cannot be unpacked, only zlib (0, 3)"
        ));
    }
    let mut out = Vec::new();
    let read = flate2::read::ZlibDecoder::new(body).take(limit as u64 + 1).read_to_end(&mut out);
    read.map_err(|error| format!("the message is illegal: the compressed batch of {} bytes is no zlib stream: {error}", body.len()))?;
    if out.len() > limit {
        return Err(format!(
            "the message is illegal: the compressed batch of {} bytes unpacks to more than maxMessageSize of {limit} bytes",
            body.len()
        ));
    }
    Ok(out)
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Appends one entry as clients encode it.
#[cfg(test)]
pub(crate) fn push_entry(out: &mut Vec<u8>, flag: i32, body: &[u8], properties: &str) {
    let size = MIN_ENTRY + body.len() + properties.len();
    for word in [size as i32, 0, 0, flag, body.len() as i32] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(body);
    out.extend_from_slice(&(properties.len() as i16).to_be_bytes());
    out.extend_from_slice(properties.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for (flag, body, properties) in [(1, &b"one"[..], "K\u{1}v\u{2}"), (0, b"", ""), (-1, b"three", "TAGS\u{1}\u{43a}\u{2}")] {
            push_entry(&mut bytes, flag, body, properties);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    #[test]
    fn compressed_batches_are_unpacked_within_the_limit() {
        use std::io::Write;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&[7; 5000]).unwrap();
        let packed = encoder.finish().unwrap();
        for sys_flag in [0x1, 0x301] {
            assert_eq!(inflate(&packed, sys_flag, 5000).unwrap(), [7; 5000]);
        }
        assert!(inflate(&packed, 0x1, 4999).unwrap_err().contains("4999"));
        assert!(inflate(&packed, 0x101, 5000).unwrap_err().contains("type 1"));
        assert!(inflate(&packed[..20], 0x1, 5000).is_err());
        assert!(inflate(b"not zlib", 0x1, 5000).unwrap_err().contains("8 bytes"));
    }

    #[test]
    fn entries_come_back() {
        let (bytes, _) = batch();
        let entries: Vec<_> = BatchEntries::new(&bytes).map(Result::unwrap).collect();
        let expected = [
            BatchEntry { flag: 1, body: b"one", properties: "K\u{1}v\u{2}" },
            BatchEntry { flag: 0, body: b"", properties: "" },
            BatchEntry { flag: -1, body: b"three", properties: "TAGS\u{1}\u{43a}\u{2}" },
        ];
        assert_eq!(entries, expected);
        assert_eq!(BatchEntries::new(&[]).count(), 0);
    }

    #[test]
    fn every_truncation_is_an_error_except_between_entries() {
        let (bytes, ends) = batch();
        for cut in 0..bytes.len() {
            let good = BatchEntries::new(&bytes[..cut]).all(|entry| entry.is_ok());
            assert_eq!(good, ends.contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn every_wrong_byte_is_survived_and_wrong_lengths_are_named() {
        let (bytes, _) = batch();
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = bytes.clone();
                bad[at] = value;
                let count = BatchEntries::new(&bad).count();
                assert!(count <= 4, "byte {at} = {value}: {count} entries");
            }
        }
        for (at, word, named) in [(0, -1, "-1"), (0, 21, "21"), (0, i32::MAX, "2147483647"), (16, -5, "-5"), (16, 1_000_000, "1000000")] {
            let mut bad = bytes.clone();
            bad[at..at + 4].copy_from_slice(&i32::to_be_bytes(word));
            let refusal = BatchEntries::new(&bad).next().unwrap().unwrap_err();
            assert!(refusal.contains(named) && refusal.contains("entry 0"), "{refusal}");
        }
    }
}
