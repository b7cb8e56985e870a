//! Hash index file, big-endian: header, slots, entries.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 8 | begin_timestamp: store time of the first entry's record |
//! | 8 | 8 | end_timestamp: of the last |
//! | 16 | 8 | begin_physical_offset: of the first entry's record |
//! | 24 | 8 | end_physical_offset: of the last |
//! | 32 | 4 | used_slots |
//! | 36 | 4 | count: number of the next entry, from 1 |
//! | 40 | 4 * slots | slot: number of the newest entry of its chain, 0 for none |
//! | … | 20 * entries | entry |
//!
//! | at | size | field of an entry |
//! |---|---|---|
//! | 0 | 4 | key_hash |
//! | 4 | 8 | physical_offset |
//! | 12 | 4 | seconds since begin_timestamp |
//! | 16 | 4 | previous entry of the chain, 0 for none |
//!
//! Number 0 is never used; its 20 bytes stay zero. Nothing here has a checksum and a crash may keep any page and lose any
//! other, so after an abrupt stop only entries are believed, and only up to the first that cannot be one.

const BEGIN_TIMESTAMP: usize = 0;
const END_TIMESTAMP: usize = BEGIN_TIMESTAMP + size_of::<i64>();
const BEGIN_PHYSICAL_OFFSET: usize = END_TIMESTAMP + size_of::<i64>();
const END_PHYSICAL_OFFSET: usize = BEGIN_PHYSICAL_OFFSET + size_of::<i64>();
const USED_SLOTS: usize = END_PHYSICAL_OFFSET + size_of::<i64>();
const COUNT: usize = USED_SLOTS + size_of::<i32>();
/// Bytes of the header.
pub(crate) const INDEX_HEADER_SIZE: usize = COUNT + size_of::<i32>();
const _: () = assert!(INDEX_HEADER_SIZE == 40);
/// Bytes of a slot.
pub(crate) const INDEX_SLOT_SIZE: usize = size_of::<i32>();

const KEY_HASH: usize = 0;
const PHYSICAL_OFFSET: usize = KEY_HASH + size_of::<i32>();
const SECONDS: usize = PHYSICAL_OFFSET + size_of::<i64>();
const PREVIOUS: usize = SECONDS + size_of::<i32>();
/// Bytes of an entry.
pub(crate) const INDEX_ENTRY_SIZE: usize = PREVIOUS + size_of::<i32>();
const _: () = assert!(INDEX_ENTRY_SIZE == 20);

/// Header of an index file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexHeader {
    /// Store time of the first entry's record, ms.
    pub(crate) begin_timestamp: i64,
    /// Store time of the last entry's record, ms.
    pub(crate) end_timestamp: i64,
    /// Physical offset of the first entry's record.
    pub(crate) begin_physical_offset: i64,
    /// Physical offset of the last entry's record.
    pub(crate) end_physical_offset: i64,
    /// Slots that are not 0.
    pub(crate) used_slots: i32,
    /// Number of the next entry.
    pub(crate) count: i32,
}

impl IndexHeader {
    /// The bytes on disk.
    pub(crate) fn encode(&self) -> [u8; INDEX_HEADER_SIZE] {
        let mut bytes = [0; INDEX_HEADER_SIZE];
        put_i64(&mut bytes, BEGIN_TIMESTAMP, self.begin_timestamp);
        put_i64(&mut bytes, END_TIMESTAMP, self.end_timestamp);
        put_i64(&mut bytes, BEGIN_PHYSICAL_OFFSET, self.begin_physical_offset);
        put_i64(&mut bytes, END_PHYSICAL_OFFSET, self.end_physical_offset);
        put_i32(&mut bytes, USED_SLOTS, self.used_slots);
        put_i32(&mut bytes, COUNT, self.count);
        bytes
    }

    /// Reads a header.
    pub(crate) fn decode(bytes: &[u8; INDEX_HEADER_SIZE]) -> Self {
        Self {
            begin_timestamp: i64_at(bytes, BEGIN_TIMESTAMP),
            end_timestamp: i64_at(bytes, END_TIMESTAMP),
            begin_physical_offset: i64_at(bytes, BEGIN_PHYSICAL_OFFSET),
            end_physical_offset: i64_at(bytes, END_PHYSICAL_OFFSET),
            used_slots: i32_at(bytes, USED_SLOTS),
            count: i32_at(bytes, COUNT),
        }
    }
}

/// Entry of an index file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Hash of `topic#key`, not negative.
    pub(crate) key_hash: i32,
    /// Start of the record in the commit log.
    pub(crate) physical_offset: i64,
    /// Seconds since the file's begin.
    pub(crate) seconds: i32,
    /// Number of the next older entry of the same slot; 0 for none.
    pub(crate) previous: i32,
}

impl IndexEntry {
    /// The bytes on disk.
    pub(crate) fn encode(&self) -> [u8; INDEX_ENTRY_SIZE] {
        let mut bytes = [0; INDEX_ENTRY_SIZE];
        put_i32(&mut bytes, KEY_HASH, self.key_hash);
        put_i64(&mut bytes, PHYSICAL_OFFSET, self.physical_offset);
        put_i32(&mut bytes, SECONDS, self.seconds);
        put_i32(&mut bytes, PREVIOUS, self.previous);
        bytes
    }

    /// Reads an entry; `bytes` has [`INDEX_ENTRY_SIZE`] bytes at least.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        Self {
            key_hash: i32_at(bytes, KEY_HASH),
            physical_offset: i64_at(bytes, PHYSICAL_OFFSET),
            seconds: i32_at(bytes, SECONDS),
            previous: i32_at(bytes, PREVIOUS),
        }
    }
}

/// Reads a slot; `bytes` has [`INDEX_SLOT_SIZE`] bytes at least.
pub(crate) fn decode_slot(bytes: &[u8]) -> i32 {
    i32_at(bytes, 0)
}

fn put_i32(bytes: &mut [u8], at: usize, value: i32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn put_i64(bytes: &mut [u8], at: usize, value: i64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    i32::from_be_bytes(value)
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let header = IndexHeader {
            begin_timestamp: 1,
            end_timestamp: 0x0102_0304_0506_0708,
            begin_physical_offset: -1,
            end_physical_offset: 256,
            used_slots: 3,
            count: 0x0a0b_0c0d,
        };
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
        bytes.extend_from_slice(&[0xff; 8]);
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 3, 0x0a, 0x0b, 0x0c, 0x0d]);
        assert_eq!(header.encode().as_slice(), bytes);
        assert_eq!(IndexHeader::decode(&header.encode()), header);

        let entry = IndexEntry { key_hash: 0x7fff_fffe, physical_offset: 0x1_0000_0002, seconds: 60, previous: 9 };
        let bytes = [0x7f, 0xff, 0xff, 0xfe, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 60, 0, 0, 0, 9];
        assert_eq!(entry.encode(), bytes);
        assert_eq!(IndexEntry::decode(&bytes), entry);
        assert_eq!(decode_slot(&[0, 0, 1, 1]), 257);
    }
}
