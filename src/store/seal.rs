//! Damage in the middle of the log: the bytes are kept aside, the hole is filled so that any reader can walk over it.
//!
//! A hole that goes on to the end of its file becomes the file's blank record. Any other is filled exactly with records of a
//! system topic that carry the bits of a rolled back transaction, so that no broker builds queue or index entries from them.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::common::record::{self, Draft, Record};
use crate::common::sysflag;

use super::append::blank;
use super::error::StoreError;
use super::fs::{Fs, zero};
use super::mapped_file_queue::Segment;
use super::scan::Place;

/// Topic of the records; cut short where the hole is small.
const TOPIC: &str = "rmq_sys_LOST_RECORDS";
/// Largest record.
const MAX_SIZE: usize = 4 << 20;
/// Bytes copied at a time.
const BATCH: usize = 1 << 20;
/// Unit in which disks lose what never arrived.
const SECTOR: usize = 512;

/// A hole in one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    /// Where it begins.
    pub(super) place: Place,
    /// Position behind it.
    pub(super) end: usize,
}

impl Hole {
    /// The holes, one per file, between two places.
    pub(super) fn between(from: Place, to: Place, file_size: usize) -> Vec<Self> {
        let end = |index| if index == to.index { to.at } else { file_size };
        let at = |index| if index == from.index { from.at } else { 0 };
        let holes = (from.index..=to.index).map(|index| Self { place: Place { index, at: at(index) }, end: end(index) });
        holes.filter(|hole| hole.len() > 0).collect()
    }

    fn len(&self) -> usize {
        self.end - self.place.at
    }

    /// Whether such records can fill it, or a blank record.
    pub(super) fn can_be_sealed(&self, seals: Seals, file_size: usize) -> bool {
        self.end == file_size || self.len() >= seals.least()
    }

    /// What fills it: ranges for records, and where a blank record begins. As many of `known`, the records that queues know (ascending),
    /// get one of their own as can.
    fn layout(&self, seals: Seals, known: &[Range<usize>], file_size: usize) -> (Vec<Range<usize>>, Option<usize>) {
        let (mut ranges, mut at, least) = (Vec::new(), self.place.at, seals.least());
        let rest_can_be_filled = |from: usize| {
            let rest = self.end - from;
            rest == 0 || if self.end == file_size { rest >= record::BLANK_SIZE } else { rest >= least }
        };
        for record in known {
            let fits = record.start >= at && record.end <= self.end && record.len() >= least;
            if fits && (record.start == at || record.start - at >= least) && rest_can_be_filled(record.end) {
                split(at..record.start, least, &mut ranges);
                split(record.clone(), least, &mut ranges);
                at = record.end;
            }
        }
        if self.end == file_size {
            return (ranges, (self.end - at >= record::BLANK_SIZE).then_some(at));
        }
        split(at..self.end, least, &mut ranges);
        (ranges, None)
    }
}

/// Cuts a range into pieces that one record can fill.
fn split(range: Range<usize>, least: usize, pieces: &mut Vec<Range<usize>>) {
    let mut at = range.start;
    while at < range.end {
        let rest = range.end - at;
        let len = if rest <= MAX_SIZE { rest } else { MAX_SIZE.min(rest - least) };
        pieces.push(at..at + len);
        at += len;
    }
}

/// The records that fill holes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seals {
    /// They carry a CRC of all of them (`forceVerifyPropCRC` asks for it).
    pub(super) record_crc: bool,
    /// Their store time.
    pub(super) store_timestamp: i64,
}

impl Seals {
    /// Bytes of the smallest.
    fn least(self) -> usize {
        record::MIN_SIZE + if self.record_crc { record::RECORD_CRC_SIZE } else { 0 }
    }
}

/// Whether the hole has a sector of zeros: that much never arrived at the disk. Of the sector in which the hole begins, what
/// belongs to the hole counts: what lies before may have been there already.
///
/// # Errors
/// The system's.
pub(super) fn has_zero_sector(segment: &Segment, hole: Hole) -> Result<bool, StoreError> {
    let failed = |error| StoreError::Io("read", segment.path.clone(), error);
    let mut at = hole.place.at.next_multiple_of(SECTOR);
    let mut buffer = vec![0; BATCH];
    let head = at - hole.place.at;
    if head >= size_of::<i32>() && at <= hole.end {
        segment.file.read_exact_at(&mut buffer[..head], hole.place.at as u64).map_err(failed)?;
        if buffer[..head].iter().all(|byte| *byte == 0) {
            return Ok(true); // the size of a record is not 0
        }
    }
    while at + SECTOR <= hole.end {
        let len = BATCH.min((hole.end - at) / SECTOR * SECTOR);
        segment.file.read_exact_at(&mut buffer[..len], at as u64).map_err(failed)?;
        if buffer[..len].chunks(SECTOR).any(|sector| sector.iter().all(|byte| *byte == 0)) {
            return Ok(true);
        }
        at += len;
    }
    Ok(false)
}

/// Copies the hole's bytes to `lost/<physical offset>` below `root`, durably; returns where.
///
/// # Errors
/// The system's.
pub(super) fn keep(fs: &dyn Fs, root: &Path, segment: &Segment, hole: Hole) -> Result<PathBuf, StoreError> {
    let dir = root.join("lost");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| StoreError::Io("keep damaged bytes in", path.clone(), error)
    };
    fs.create_dir_all(&dir).map_err(failed(&dir))?;
    let name = format!("{:020}", segment.start + hole.place.at as i64);
    let mut path = dir.join(&name);
    for copy in 1.. {
        if !fs.exists(&path) {
            break;
        }
        path = dir.join(format!("{name}.{copy}"));
    }
    let file = fs.open(&path, true).map_err(failed(&path))?;
    let mut buffer = vec![0; BATCH.min(hole.len())];
    for at in (hole.place.at..hole.end).step_by(BATCH) {
        let piece = &mut buffer[..BATCH.min(hole.end - at)];
        segment.file.read_exact_at(piece, at as u64).map_err(|error| StoreError::Io("read", segment.path.clone(), error))?;
        file.write_all_at(piece, (at - hole.place.at) as u64).map_err(failed(&path))?;
    }
    file.sync_data().map_err(failed(&path))?;
    fs.sync_dir(&dir).map_err(failed(&dir))?;
    fs.sync_dir(root).map_err(failed(root))?;
    Ok(path)
}

/// Whether a record is one of those that [`seal`] writes.
pub(super) fn is_seal(record: &Record<'_>) -> bool {
    sysflag::transaction_type(record.sys_flag) == sysflag::TRANSACTION_ROLLBACK
        && TOPIC.starts_with(record.topic)
        && (record.properties.is_empty() || record.properties.starts_with(record::RECORD_CRC))
        && record.prepared_transaction_offset == 0
}

/// Fills the hole; returns the places of the records that do. Of the records that queues know in it (ascending positions) as many as can
/// get one of their own, which their units point at.
///
/// # Errors
/// The system's.
pub(super) fn fill(
    segment: &Segment, hole: Hole, seals: Seals, known: &[Range<usize>], file_size: usize,
) -> Result<Vec<Range<usize>>, StoreError> {
    let write = |bytes: &[u8], at: usize| {
        segment.file.write_all_at(bytes, at as u64).map_err(|error| StoreError::Io("seal damage in", segment.path.clone(), error))
    };
    let (ranges, blank_at) = hole.layout(seals, known, file_size);
    if let Some(at) = blank_at {
        // a unit may still point at what lies behind the blank record: it must not pass for a message
        let zeroed = zero(&*segment.file, (at + record::BLANK_SIZE) as u64, hole.end as u64);
        zeroed.map_err(|error| StoreError::Io("seal damage in", segment.path.clone(), error))?;
        write(&blank(hole.end - at), at)?;
    }
    for range in &ranges {
        write(&filler(range.len(), segment.start + range.start as i64, seals), range.start)?;
    }
    Ok(ranges)
}

/// A record of exactly `size` bytes.
fn filler(size: usize, physical_offset: i64, seals: Seals) -> Vec<u8> {
    let spare = size - seals.least();
    let topic = &TOPIC[..TOPIC.len().min(spare)];
    let body = vec![0; spare - topic.len()];
    let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let properties = if seals.record_crc { record::with_record_crc(b"") } else { Vec::new() };
    let draft = Draft {
        topic,
        queue_id: 0,
        flag: 0,
        sys_flag: sysflag::TRANSACTION_ROLLBACK,
        born_timestamp: seals.store_timestamp,
        born_host: nobody,
        store_host: nobody,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &body,
        properties: &properties,
    };
    let mut bytes = Vec::with_capacity(size);
    draft.encode(&mut bytes);
    record::place(&mut bytes, 0, physical_offset, seals.store_timestamp);
    record::fill_record_crc(&mut bytes);
    bytes
}
