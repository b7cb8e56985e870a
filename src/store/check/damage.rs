//! What the walk has met so far that explains why a record is not there, and which imperfections the next start mends by itself.

use crate::store::checkpoint::Positions;

use super::layout::LogFiles;

/// Ranges that are kept (16 bytes each); of a log with more holes, what points into later ones is not recognized.
const MAX_RANGES: usize = 1 << 20;

/// Holes of the log, damaged or sealed, ascending.
#[derive(Debug, Default)]
pub(in crate::store) struct Holes {
    ranges: Vec<(i64, i64)>,
    met: u64,
}

impl Holes {
    /// Adds one; they come in order.
    pub(in crate::store) fn push(&mut self, start: i64, end: i64) {
        self.met += 1;
        self.push_blank(start, end);
    }

    /// Adds the rest of a file. Every file has one, so it explains what points there, but not that something is missing.
    pub(in crate::store) fn push_blank(&mut self, start: i64, end: i64) {
        let has_room = self.ranges.len() < MAX_RANGES;
        match self.ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ if has_room => self.ranges.push((start, end)),
            _ => {}
        }
    }

    /// How many there were so far.
    pub(in crate::store) fn met(&self) -> u64 {
        self.met
    }

    /// Whether an offset lies in one, or in a file that is gone.
    pub(in crate::store) fn explain(&self, files: &LogFiles, offset: i64) -> bool {
        let behind = self.ranges.partition_point(|(start, _)| *start <= offset);
        let inside = behind.checked_sub(1).is_some_and(|place| offset < self.ranges[place].1);
        inside || ((files.min_offset()..files.max_offset()).contains(&offset) && files.place(offset).is_none())
    }

    /// How many gaps between files lie before an offset.
    pub(in crate::store) fn gaps_before(files: &LogFiles, offset: i64) -> u64 {
        let first = files.min_offset();
        let behind = files.segments.partition_point(|segment| segment.start <= offset) as i64;
        // as many files as fit in between, were none missing
        ((offset - first) / files.file_size as i64 + 1 - behind).max(0).unsigned_abs()
    }
}

/// How the next start will go about the store.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct NextStart {
    /// The last stop was not in order: it will look closely.
    pub(in crate::store) abrupt: bool,
    /// A broker is at work on the store: what is read may be half written.
    pub(in crate::store) live: bool,
    /// The checkpoint.
    pub(in crate::store) positions: Positions,
}

impl NextStart {
    /// Whether it will dispatch the record at this offset, of this store time, again.
    pub(in crate::store) fn dispatches(&self, offset: i64, store_timestamp: i64) -> bool {
        let Positions { logics_offset, .. } = self.positions;
        self.abrupt && if logics_offset > 0 { offset >= logics_offset } else { store_timestamp >= self.positions.min_timestamp() }
    }

    /// Whether it will look through an index file that ends at this time.
    pub(in crate::store) fn repairs_index(&self, end_timestamp: i64) -> bool {
        self.abrupt && end_timestamp > self.positions.index_timestamp
    }

    /// Whether bytes from here on may never have arrived at the disk, without anybody having been told that they had.
    pub(in crate::store) fn is_unacknowledged(&self, offset: i64) -> bool {
        self.abrupt && self.positions.flushed_offset.is_some_and(|flushed| offset >= flushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_in_a_hole_is_explained() {
        let files = LogFiles { folders: Vec::new(), segments: Vec::new(), file_size: 100, short: Vec::new(), empty: None, agreed: true };
        let mut holes = Holes::default();
        for (start, end) in [(10, 20), (20, 25), (40, 41)] {
            holes.push(start, end);
        }
        let explained: Vec<i64> = (0..50).filter(|offset| holes.explain(&files, *offset)).collect();
        assert_eq!(explained, (10..25).chain([40]).collect::<Vec<_>>());
        assert_eq!((holes.met(), holes.ranges.len()), (3, 2));
    }

    #[test]
    fn a_start_dispatches_again_what_the_checkpoint_does_not_cover() {
        let positions = Positions { logics_offset: 100, physic_timestamp: 10_000, logics_timestamp: 9_000, ..Positions::default() };
        let next = NextStart { abrupt: true, live: false, positions };
        assert!(next.dispatches(100, 0) && !next.dispatches(99, i64::MAX));
        let by_time = NextStart { positions: Positions { logics_offset: 0, ..positions }, ..next };
        assert!(by_time.dispatches(0, 6_000) && !by_time.dispatches(i64::MAX, 5_999));
        assert!(!NextStart { abrupt: false, ..next }.dispatches(i64::MAX, i64::MAX));
        assert!(!next.is_unacknowledged(i64::MAX), "nothing is known");
    }
}
