//! What a start makes of a queue's files.
//!
//! The last three files are read forward: zeros, or a missing file, end the queue. What lies behind is given up and zeroed, so
//! that it cannot come back when the queue has grown up to it; dispatching the log again restores it, as far as the log still has the
//! records. Where it has not, the numbering is kept: see [`Recovered::behind`]. The first read of a file is short: most of many queues
//! are, and a start with 100 000 of them should take few system calls for each.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::error::StoreError;
use crate::store::file_cache::failed;
use crate::store::format::cq_unit::{CQ_UNIT_SIZE, CqUnit};
use crate::store::fs::FsFile;

use super::{NONE, QueueFiles, READ_UNITS, UNIT, zero_behind};

/// Files at the end of a queue that are read.
const RECOVERED_FILES: usize = 3;
/// Bytes of the reads behind the first.
const SCAN_BYTES: usize = 64_000;

/// What recovery found in a queue's folder.
pub(super) struct Recovered {
    /// First unit of the first file.
    pub(super) first: i64,
    /// Behind the last unit.
    pub(super) end: i64,
    /// End of the last record that has a unit; -1 without one.
    pub(super) max_physical: i64,
    /// Smallest queue offset that has a record and that record's offset, when the first file was read.
    pub(super) first_present: Option<(i64, i64)>,
    /// Whether units behind the end had to be given up.
    pub(super) damaged: bool,
    /// Of the units that had to be given up, the last one: its queue offset and its record's physical offset.
    pub(super) behind: Option<(i64, i64)>,
    /// What is to be done to the files before the queue is used.
    pub(super) repairs: Vec<Repair>,
}

/// A change of a queue's files: made once the start is certain, since a start that is refused changes nothing.
pub(in crate::store) enum Repair {
    /// The file goes.
    Remove(PathBuf),
    /// What lies behind this position is zeroed.
    ZeroBehind(PathBuf, u64),
}

impl Repair {
    /// Does it.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::store) fn apply(&self, files: &QueueFiles) -> Result<(), StoreError> {
        match self {
            Self::Remove(path) => {
                files.fs.remove_file(path).map_err(failed("remove", path))?;
                path.parent().map_or(Ok(()), |folder| files.fs.sync_dir(folder).map_err(failed("sync", folder)))
            }
            Self::ZeroBehind(path, at) => {
                let file = files.fs.open(path, false).map_err(failed("open", path))?;
                zero_behind(&*file, *at, files.file_size()).map_err(failed("truncate", path))
            }
        }
    }
}

impl Recovered {
    /// A queue without a file.
    pub(super) const NOTHING: Self =
        Self { first: 0, end: 0, max_physical: NONE, first_present: None, damaged: false, behind: None, repairs: Vec::new() };
}

struct FoundFile {
    first: i64,
    path: PathBuf,
    /// Only of the last files.
    open: Option<Arc<dyn FsFile>>,
}

impl FoundFile {
    fn file(&self, files: &QueueFiles) -> Result<Arc<dyn FsFile>, StoreError> {
        match &self.open {
            Some(file) => Ok(Arc::clone(file)),
            None => files.fs.open(&self.path, false).map_err(failed("open", &self.path)),
        }
    }

    fn holds_data(&self, files: &QueueFiles, at: u64) -> Result<bool, StoreError> {
        holds_data(&*self.file(files)?, at, files.file_size()).map_err(failed("read", &self.path))
    }

    /// The last unit at or behind a position that points at a record, with its queue offset.
    fn last_present(&self, files: &QueueFiles, from: u64) -> Result<Option<(i64, CqUnit)>, StoreError> {
        let file = self.file(files)?;
        let mut buffer = vec![0; SCAN_BYTES];
        let mut end = files.file_size();
        while end > from {
            let at = end.saturating_sub(SCAN_BYTES as u64).max(from);
            let bytes = &mut buffer[..(end - at) as usize];
            file.read_exact_at(bytes, at).map_err(failed("read", &self.path))?;
            let place = CqUnit::decode_all(bytes).rposition(|unit| unit.is_present());
            if let Some(place) = place {
                let unit = CqUnit::decode(&bytes[place * CQ_UNIT_SIZE..]);
                return Ok(Some((self.first + at as i64 / UNIT + place as i64, unit)));
            }
            end = at;
        }
        Ok(None)
    }
}

/// Reads the last files of a queue forward up to the first hole; what lies behind it is to be removed or zeroed.
///
/// # Errors
/// A file of a wrong length or name, or the system's; with the path.
pub(super) fn recover_folder(files: &QueueFiles, folder: &Path) -> Result<Recovered, StoreError> {
    let mut found = list_files(files, folder)?;
    let Some(first) = found.first().map(|file| file.first) else { return Ok(Recovered::NOTHING) };
    let mut given_up = split_at_gap(&mut found, files.units_per_file);
    let scanned = found.len().saturating_sub(RECOVERED_FILES);
    let mut scan =
        Scan { end: found[scanned].first, max_physical: NONE, first_present: None, last: None, before_last: None, ends_present: false };
    let mut stopped_in = scanned;
    for (place, file) in found.iter().enumerate().skip(scanned) {
        stopped_in = place;
        if !scan.file(files, file)? {
            break;
        }
    }
    if scan.ends_wrong() {
        scan.drop_last();
        stopped_in = scanned + ((scan.end - found[scanned].first) / files.units_per_file) as usize;
    }
    given_up.splice(..0, found.drain(stopped_in + 1..));
    let last = &found[stopped_in];
    let (mut damaged, mut last_given_up, mut repairs) = (false, None, Vec::new());
    for file in given_up.iter().rev() {
        damaged |= file.holds_data(files, 0)?;
        last_given_up = last_given_up.map_or_else(|| file.last_present(files, 0), |found| Ok(Some(found)))?;
        repairs.push(Repair::Remove(file.path.clone()));
    }
    let behind = ((scan.end - last.first) * UNIT) as u64;
    if behind < files.file_size() && last.holds_data(files, behind)? {
        damaged = true;
        last_given_up = last_given_up.map_or_else(|| last.last_present(files, behind), |found| Ok(Some(found)))?;
        repairs.push(Repair::ZeroBehind(last.path.clone(), behind));
    }
    if scan.end == last.first && stopped_in > 0 {
        repairs.push(Repair::Remove(last.path.clone()));
    }
    if damaged {
        log::warn!("consume queue has a hole, what lies behind is dispatched again: folder={} end={}", folder.display(), scan.end);
    }
    let mut max_physical = scan.max_physical;
    for file in found[..stopped_in].iter().rev().take_while(|_| scan.max_physical == NONE) {
        if let Some((_, unit)) = file.last_present(files, 0)? {
            max_physical = unit.end();
            break;
        }
    }
    let first_present = if scanned == 0 { scan.first_present } else { None };
    let behind = last_given_up.map(|(offset, unit)| (offset, unit.physical_offset));
    Ok(Recovered { first, end: scan.end, max_physical, first_present, damaged, behind, repairs })
}

/// Takes out the files that do not continue those in front of them.
fn split_at_gap(found: &mut Vec<FoundFile>, units_per_file: i64) -> Vec<FoundFile> {
    let gap = found.windows(2).position(|pair| pair[1].first != pair[0].first + units_per_file);
    gap.map_or_else(Vec::new, |place| found.split_off(place + 1))
}

/// The queue's files in order, all of the right length. A file without a byte was never begun, or a crash took all of it; it is removed.
fn list_files(files: &QueueFiles, folder: &Path) -> Result<Vec<FoundFile>, StoreError> {
    let mut found = Vec::new();
    let entries = files.fs.list(folder).map_err(failed("list", folder))?;
    for (path, is_folder) in entries {
        if is_folder {
            continue;
        }
        let Some(at) = file_start(&path) else {
            log::warn!("not a consume queue file, ignored: path={}", path.display());
            continue;
        };
        let file = files.fs.open(&path, false).map_err(failed("open", &path))?;
        let len = file.len().map_err(failed("stat", &path))?;
        if len == 0 {
            log::warn!("consume queue file has no byte, removed: path={}", path.display());
            files.fs.remove_file(&path).map_err(failed("remove", &path))?;
            continue;
        }
        if len != files.file_size() || at % files.file_size() as i64 != 0 {
            let why = format!(
                "length {len} does not match mappedFileSizeConsumeQueue={} (set the key to the size the files were made with, or remove the \
                 folder {} and the file checkpoint to have the queue rebuilt from the commit log)",
                files.file_size(),
                folder.display()
            );
            return Err(StoreError::Damaged(path, why));
        }
        if found.len() >= RECOVERED_FILES {
            let place = found.len() - RECOVERED_FILES;
            let older: &mut FoundFile = &mut found[place];
            older.open = None;
        }
        found.push(FoundFile { first: at / UNIT, path, open: Some(file) });
    }
    Ok(found)
}

fn file_start(path: &Path) -> Option<i64> {
    let name = path.file_name()?.to_str()?;
    (name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit())).then(|| name.parse().ok())?
}

struct Scan {
    end: i64,
    max_physical: i64,
    first_present: Option<(i64, i64)>,
    /// The last unit that points at a record, and the one before it that does.
    last: Option<CqUnit>,
    before_last: Option<CqUnit>,
    /// Whether no filler is behind it.
    ends_present: bool,
}

impl Scan {
    /// Whether the last unit points in front of the record before it: it was zeros, perhaps, of which a bit has changed. Several units may
    /// point at one seal.
    fn ends_wrong(&self) -> bool {
        let (Some(last), Some(before)) = (self.last, self.before_last) else { return false };
        self.ends_present
            && last.physical_offset < before.end()
            && (last.physical_offset, last.size) != (before.physical_offset, before.size)
    }

    fn drop_last(&mut self) {
        self.end -= 1;
        self.max_physical = self.before_last.map_or(NONE, |unit| unit.end());
    }

    /// Walks one file up to the first zeros; whether it was full.
    fn file(&mut self, files: &QueueFiles, found: &FoundFile) -> Result<bool, StoreError> {
        let behind = found.first + files.units_per_file;
        let file = found.file(files)?;
        let mut buffer = vec![0; READ_UNITS as usize * CQ_UNIT_SIZE];
        while self.end < behind {
            let len = buffer.len().min((behind - self.end) as usize * CQ_UNIT_SIZE);
            let bytes = &mut buffer[..len];
            file.read_exact_at(bytes, ((self.end - found.first) * UNIT) as u64).map_err(failed("read", &found.path))?;
            for unit in CqUnit::decode_all(bytes) {
                if !unit.is_valid() {
                    return Ok(false);
                }
                if unit.is_present() {
                    self.first_present.get_or_insert((self.end, unit.physical_offset));
                    self.max_physical = unit.end();
                    self.before_last = self.last.replace(unit);
                }
                self.ends_present = unit.is_present();
                self.end += 1;
            }
            buffer.resize(SCAN_BYTES, 0);
        }
        Ok(true)
    }
}

/// Whether anything but zeros lies in `at..len`. Holes are passed over.
fn holds_data(file: &dyn FsFile, mut at: u64, len: u64) -> io::Result<bool> {
    let mut buffer = vec![0; 4096];
    while let Some(data) = file.next_data(at)?.filter(|data| *data < len) {
        let bytes = &mut buffer[..(len - data).min(4096 - data % 4096) as usize];
        file.read_exact_at(bytes, data)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
        at = data + bytes.len() as u64;
    }
    Ok(false)
}
