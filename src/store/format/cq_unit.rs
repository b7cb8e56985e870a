//! Consume-queue unit, big-endian. The unit of queue offset q lies at byte q * 20 of the queue.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 8 | physical_offset: start of the record in the commit log |
//! | 8 | 4 | size: whole record |
//! | 12 | 8 | tags_code: hash of the tags; deliver time on the schedule topic |
//!
//! A crash may leave zeros (a page that never arrived), which are no unit because their size is 0, or a last unit whose
//! tags code is cut by a page's end, which dispatching again mends. A filler stands for a queue offset without a record. Java brokers
//! with `enableConsumeQueueExt` put the address of an extension unit where the tags code is: a number below all hashes.

const PHYSICAL_OFFSET: usize = 0;
const SIZE: usize = PHYSICAL_OFFSET + size_of::<i64>();
const TAGS_CODE: usize = SIZE + size_of::<i32>();
/// Bytes of a unit.
pub(crate) const CQ_UNIT_SIZE: usize = TAGS_CODE + size_of::<i64>();
const _: () = assert!(CQ_UNIT_SIZE == 20); // fixed by the format, not by us

/// One unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqUnit {
    /// Start of the record in the commit log.
    pub(crate) physical_offset: i64,
    /// Bytes of the record.
    pub(crate) size: i32,
    /// Hash of the tags, or the deliver time on the schedule topic.
    pub(crate) tags_code: i64,
}

impl CqUnit {
    /// Holds the place of a queue offset that has no record.
    pub(crate) const FILLER: Self = Self { physical_offset: 0, size: i32::MAX, tags_code: 0 };

    /// First physical offset behind the record.
    pub(crate) fn end(&self) -> i64 {
        self.physical_offset.saturating_add(i64::from(self.size))
    }

    /// Whether recovery may pass over it: a unit or a filler, but not zeros.
    pub(crate) fn is_valid(&self) -> bool {
        self.physical_offset >= 0 && self.size > 0
    }

    /// Whether it points at a record.
    pub(crate) fn is_present(&self) -> bool {
        self.is_valid() && *self != Self::FILLER
    }

    /// Whether its tags code is none, but an address in an extension file.
    pub(crate) fn has_extension(&self) -> bool {
        self.tags_code < i64::from(i32::MIN)
    }

    /// The bytes on disk.
    pub(crate) fn encode(&self) -> [u8; CQ_UNIT_SIZE] {
        let mut bytes = [0; CQ_UNIT_SIZE];
        bytes[PHYSICAL_OFFSET..SIZE].copy_from_slice(&self.physical_offset.to_be_bytes());
        bytes[SIZE..TAGS_CODE].copy_from_slice(&self.size.to_be_bytes());
        bytes[TAGS_CODE..].copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    /// Reads one unit; `bytes` has [`CQ_UNIT_SIZE`] bytes at least.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let mut physical_offset = [0; 8];
        let mut size = [0; 4];
        let mut tags_code = [0; 8];
        physical_offset.copy_from_slice(&bytes[PHYSICAL_OFFSET..SIZE]);
        size.copy_from_slice(&bytes[SIZE..TAGS_CODE]);
        tags_code.copy_from_slice(&bytes[TAGS_CODE..CQ_UNIT_SIZE]);
        Self {
            physical_offset: i64::from_be_bytes(physical_offset),
            size: i32::from_be_bytes(size),
            tags_code: i64::from_be_bytes(tags_code),
        }
    }

    /// All whole units of `bytes`.
    pub(crate) fn decode_all(bytes: &[u8]) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        bytes.chunks_exact(CQ_UNIT_SIZE).map(Self::decode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let unit = CqUnit { physical_offset: 0x0102_0304_0506_0708, size: 0x1112_1314, tags_code: -2 };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe];
        assert_eq!(unit.encode(), bytes);
        assert_eq!(CqUnit::decode(&bytes), unit);
        assert_eq!(CqUnit::FILLER.encode(), [0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn zeros_are_no_unit_and_fillers_point_nowhere() {
        let zeros = CqUnit::decode(&[0; CQ_UNIT_SIZE]);
        assert!(!zeros.is_valid() && !zeros.is_present());
        assert!(CqUnit::FILLER.is_valid() && !CqUnit::FILLER.is_present());
        assert!(CqUnit { physical_offset: 0, size: 91, tags_code: 0 }.is_present());
        assert!(!CqUnit { physical_offset: -1, size: 91, tags_code: 0 }.is_valid());
        let has_extension = |tags_code| CqUnit { physical_offset: 0, size: 91, tags_code }.has_extension();
        assert!(has_extension(i64::MIN) && has_extension(-2_147_483_649) && !has_extension(-2_147_483_648) && !has_extension(0));
    }
}
