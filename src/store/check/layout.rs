//! Which files a store has, and how large each kind is.
//!
//! A size that was not given is taken from the files: a store says itself how it was made. Files that differ from the others are named.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::StoreConfig;
use crate::store::error::StoreError;
use crate::store::file_cache::failed;
use crate::store::format::cq_unit::CQ_UNIT_SIZE;
use crate::store::format::index::{INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE, IndexEntry, IndexHeader};
use crate::store::fs::{Fs, FsFile};
use crate::store::index::file_number;
use crate::store::index_file::Geometry;
use crate::store::log_folders::LogFolders;
use crate::store::mapped_file_queue::{Segment, parse_name};

use super::read_only::{ReadOnlyFs, Resized};
use super::report::{Finding, Findings, Kind, Remedy, Severity};

/// Advice for files that are not the store's.
const MOVE_AWAY: Remedy = Remedy::Act("move it out of the folder: a Java broker would not start");
/// How far into an index file its first entry is looked for.
const MAX_SLOTS_BYTES: u64 = 64 << 20;

/// Which sizes of the configuration are known to be the broker's. The others are taken from the files where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// `mappedFileSizeCommitLog`.
    pub commit_log: bool,
    /// `mappedFileSizeConsumeQueue`.
    pub consume_queue: bool,
    /// `maxHashSlotNum` and `maxIndexNum`.
    pub index: bool,
}

// ---- commit log ----

/// The log's files as they seem: each of the same length.
#[derive(Debug)]
pub(in crate::store) struct LogFiles {
    /// Folders that hold them.
    pub(in crate::store) folders: Vec<PathBuf>,
    /// Ascending.
    pub(in crate::store) segments: Vec<Segment>,
    /// Length of each.
    pub(in crate::store) file_size: usize,
    /// Those that are shorter in truth.
    pub(in crate::store) short: Vec<PathBuf>,
    /// A last file without a byte.
    pub(in crate::store) empty: Option<PathBuf>,
    /// The files agree with the configuration about their length.
    pub(in crate::store) agreed: bool,
}

impl LogFiles {
    /// Smallest physical offset.
    pub(in crate::store) fn min_offset(&self) -> i64 {
        self.segments.first().map_or(0, |segment| segment.start)
    }

    /// Behind the last file.
    pub(in crate::store) fn max_offset(&self) -> i64 {
        self.segments.last().map_or(0, |segment| segment.start + self.file_size as i64)
    }

    /// File and position of a physical offset.
    pub(in crate::store) fn place(&self, offset: i64) -> Option<(&Segment, u64)> {
        let behind = self.segments.partition_point(|segment| segment.start <= offset);
        let segment = &self.segments[behind.checked_sub(1)?];
        let at = offset - segment.start;
        (at < self.file_size as i64).then_some((segment, at as u64))
    }

    /// Names where a physical offset is, for people.
    pub(in crate::store) fn locate(&self, finding: Finding, offset: i64) -> Finding {
        let located = finding.physical(offset);
        match self.place(offset) {
            Some((segment, at)) => Finding { path: segment.path.clone(), ..located }.at(at),
            None => located,
        }
    }
}

struct Found {
    path: PathBuf,
    start: i64,
    len: u64,
    file: Arc<dyn FsFile>,
}

/// Finds the files of the log.
///
/// # Errors
/// The system's.
pub(in crate::store) fn log_files(
    fs: &ReadOnlyFs, config: &StoreConfig, given: Given, findings: &mut Findings,
) -> Result<LogFiles, StoreError> {
    let folders = LogFolders::find(config, fs)?.all;
    let mut entries = Vec::new();
    for folder in &folders {
        entries.extend(fs.list(folder).map_err(failed("list", folder))?);
    }
    let mut found = Vec::new();
    for (path, is_folder) in entries {
        match path.file_name().and_then(|name| name.to_str()).and_then(parse_name) {
            _ if is_folder => {}
            Some(start) => {
                let file = fs.open_read(&path).map_err(failed("open", &path))?;
                let len = file.len().map_err(failed("stat", &path))?;
                found.push(Found { path, start, len, file });
            }
            None => {
                let text = "not a file of the log: its name is not 20 digits";
                findings.add(Finding::new(Kind::StrayFile, Severity::Warning, &path, text, MOVE_AWAY));
            }
        }
    }
    found.sort_by_key(|file: &Found| file.start);
    let configured = config.commit_log_file_size;
    let file_size = log_file_size(&found, configured, given.commit_log);
    let mut files = LogFiles { folders, segments: Vec::new(), file_size, short: Vec::new(), empty: None, agreed: true };
    if file_size != configured {
        files.agreed = !given.commit_log;
        if given.commit_log {
            let text = format!("the files have {file_size} bytes, mappedFileSizeCommitLog is {configured}");
            let remedy = Remedy::Act("start the broker with the mappedFileSizeCommitLog that the files were made with");
            findings.add(Finding::new(Kind::LogFileSize, Severity::Error, &files.folders[0], text, remedy));
        }
    }
    let count = found.len();
    for (number, file) in found.into_iter().enumerate() {
        add_log_file(&mut files, file, number + 1 == count, findings);
    }
    Ok(files)
}

/// Length of the files: what most of them have, unless there is only one and the configuration explains it as well.
fn log_file_size(found: &[Found], configured: usize, given: bool) -> usize {
    let filled: Vec<&Found> = found.iter().filter(|file| file.len > 0).collect();
    let [first, rest @ ..] = filled.as_slice() else { return configured };
    if rest.is_empty() {
        let fits = first.len <= configured as u64 && first.start % configured as i64 == 0;
        let said = given || first.start > 0 || first.len == configured as u64;
        return if fits && said { configured } else { usize::try_from(first.len).unwrap_or(configured) };
    }
    let usual = most_common(filled.iter().map(|file| file.len)).unwrap_or(configured as u64);
    let fits = |size: u64| found.iter().all(|file| file.start.unsigned_abs().is_multiple_of(size));
    let distance = found.windows(2).map(|pair| (pair[1].start - pair[0].start).unsigned_abs()).filter(|distance| *distance > 0).min();
    let size = if fits(usual) { usual } else { distance.unwrap_or(usual) };
    usize::try_from(size).unwrap_or(configured)
}

/// The number that occurs most; of several the largest.
fn most_common(numbers: impl Iterator<Item = u64>) -> Option<u64> {
    let mut counts = BTreeMap::new();
    numbers.for_each(|number| *counts.entry(number).or_insert(0u64) += 1);
    counts.into_iter().max_by_key(|(number, count)| (*count, *number)).map(|(number, _)| number)
}

fn add_log_file(files: &mut LogFiles, found: Found, is_last: bool, findings: &mut Findings) {
    let Found { path, start, len, file } = found;
    let size = files.file_size as u64;
    let mut tell = |kind, severity, text: String, remedy| findings.add(Finding::new(kind, severity, &path, text, remedy));
    if len == 0 && is_last {
        tell(Kind::LogFileEmpty, Severity::Warning, "the last file has no byte: its creation was cut short".to_owned(), Remedy::Start);
        files.empty = Some(path);
        return;
    }
    if start.unsigned_abs() % size != 0 {
        let text = format!("its name is no multiple of the length of the files, {size}");
        return tell(Kind::LogFileOdd, Severity::Error, text, Remedy::Act("move it out of the folder, or restore the file it was"));
    }
    if files.segments.last().is_some_and(|last| last.start == start) {
        let text = "a file of the same name is in another folder of the log: a broker refuses to start".to_owned();
        return tell(Kind::LogFileOdd, Severity::Error, text, Remedy::Act("keep the right one"));
    }
    let remedy = if files.agreed { Remedy::Repair } else { Remedy::Act("see mappedFileSizeCommitLog above") };
    if len < size {
        let kind = if len == 0 { Kind::LogFileEmpty } else { Kind::LogFileShort };
        tell(kind, Severity::Error, format!("{len} bytes instead of {size}: a broker refuses to start"), remedy);
        files.short.push(path.clone());
    } else if len > size {
        let text = format!("{len} bytes instead of {size}: a broker refuses to start");
        tell(Kind::LogFileOdd, Severity::Error, text, Remedy::Act("restore the file, or cut it to the length of the others"));
    }
    let file = if len == size { file } else { Arc::new(Resized::new(file, len.min(size), size)) };
    files.segments.push(Segment { path, start, file });
}

// ---- consume queues ----

/// A queue's folder.
#[derive(Debug)]
pub(in crate::store) struct QueueFolder {
    /// Topic.
    pub(in crate::store) topic: String,
    /// Queue.
    pub(in crate::store) queue_id: i32,
    /// First byte of each file and its length, ascending; only files that begin where files begin.
    pub(in crate::store) files: Vec<(i64, u64)>,
    /// A file is not as it must be.
    pub(in crate::store) damaged: bool,
}

/// All queues' folders.
#[derive(Debug)]
pub(in crate::store) struct QueueFolders {
    /// `<root>/consumequeue`.
    pub(in crate::store) root: PathBuf,
    /// Length of a file.
    pub(in crate::store) file_size: u64,
    /// By topic and folder name.
    pub(in crate::store) folders: Vec<QueueFolder>,
}

impl QueueFolders {
    /// Folder of a queue.
    pub(in crate::store) fn folder(&self, topic: &str, queue_id: i32) -> PathBuf {
        self.root.join(topic).join(queue_id.to_string())
    }
}

/// Finds the consume queues of the store in `config.root`.
///
/// # Errors
/// The system's.
pub(in crate::store) fn queue_folders(
    fs: &ReadOnlyFs, config: &StoreConfig, given: Given, findings: &mut Findings,
) -> Result<QueueFolders, StoreError> {
    let root = config.root.join("consumequeue");
    let mut folders = Vec::new();
    for (topic_folder, is_folder) in fs.list(&root).map_err(failed("list", &root))? {
        let Some(topic) = topic_folder.file_name().and_then(|name| name.to_str()).filter(|_| is_folder) else { continue };
        for (folder, is_folder) in fs.list(&topic_folder).map_err(failed("list", &topic_folder))? {
            let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let queue_id = name.parse::<i32>().ok().filter(|id| is_folder && *id >= 0 && id.to_string() == name);
            if let Some(queue_id) = queue_id {
                let files = queue_files(fs, &folder, findings)?;
                folders.push(QueueFolder { topic: topic.to_owned(), queue_id, files, damaged: false });
            }
        }
    }
    let file_size = queue_file_size(&folders, config.consume_queue_file_size, given.consume_queue);
    let mut found = QueueFolders { root, file_size, folders };
    let mut folders = std::mem::take(&mut found.folders);
    for queue in &mut folders {
        let folder = found.folder(&queue.topic, queue.queue_id);
        check_queue_files(queue, &folder, file_size, findings);
    }
    found.folders = folders;
    Ok(found)
}

fn queue_files(fs: &ReadOnlyFs, folder: &Path, findings: &mut Findings) -> Result<Vec<(i64, u64)>, StoreError> {
    let mut files = Vec::new();
    for (path, is_folder) in fs.list(folder).map_err(failed("list", folder))? {
        match path.file_name().and_then(|name| name.to_str()).and_then(parse_name) {
            _ if is_folder => {}
            Some(start) => {
                let file = fs.open_read(&path).map_err(failed("open", &path))?;
                files.push((start, file.len().map_err(failed("stat", &path))?));
            }
            None => {
                let text = "not a file of a consume queue: its name is not 20 digits";
                findings.add(Finding::new(Kind::StrayFile, Severity::Warning, &path, text, MOVE_AWAY));
            }
        }
    }
    Ok(files)
}

fn queue_file_size(folders: &[QueueFolder], configured: usize, given: bool) -> u64 {
    let configured = configured.div_ceil(CQ_UNIT_SIZE).max(1) as u64 * CQ_UNIT_SIZE as u64;
    let lens = || folders.iter().flat_map(|queue| &queue.files).map(|(_, len)| *len);
    if given || lens().any(|len| len == configured) {
        return configured;
    }
    most_common(lens().filter(|len| *len > 0 && len.is_multiple_of(CQ_UNIT_SIZE as u64))).unwrap_or(configured)
}

fn check_queue_files(queue: &mut QueueFolder, folder: &Path, size: u64, findings: &mut Findings) {
    let count = queue.files.len();
    let mut kept = Vec::with_capacity(count);
    for (number, (start, len)) in std::mem::take(&mut queue.files).into_iter().enumerate() {
        let path = folder.join(format!("{start:020}"));
        let mut tell = |kind, severity, text: String, remedy| {
            findings.add(Finding::new(kind, severity, &path, text, remedy).queue(&queue.topic, queue.queue_id));
        };
        if len == 0 && number + 1 == count {
            tell(Kind::QueueFile, Severity::Warning, "the last file has no byte: its creation was cut short".to_owned(), Remedy::Start);
            queue.damaged = true;
            continue;
        }
        if start.unsigned_abs() % size != 0 || len != size {
            let what = if len == size { "its name is no multiple of" } else { "not as long as mappedFileSizeConsumeQueue, " };
            tell(Kind::QueueFile, Severity::Error, format!("{what} {size}, but {len} bytes: a broker refuses to start"), Remedy::Repair);
            queue.damaged = true;
        }
        if start.unsigned_abs() % size == 0 {
            kept.push((start, len.min(size)));
        }
    }
    for pair in kept.windows(2).filter(|pair| pair[0].0 + size as i64 != pair[1].0) {
        let missing = folder.join(format!("{:020}", pair[0].0 + size as i64));
        let text = format!("no file for units {} to {}", (pair[0].0 + size as i64) / 20, pair[1].0 / 20);
        let finding = Finding::new(Kind::QueueFileMissing, Severity::Error, &missing, text, Remedy::Repair);
        findings.add(finding.queue(&queue.topic, queue.queue_id).queue_offset((pair[0].0 + size as i64) / 20));
        queue.damaged = true;
    }
    queue.files = kept;
}

// ---- index ----

/// The files of the key index, oldest first.
#[derive(Debug)]
pub(in crate::store) struct IndexFiles {
    /// Files that can be index files.
    pub(in crate::store) files: Vec<PathBuf>,
    /// What they hold.
    pub(in crate::store) geometry: Geometry,
}

/// Finds the index files of the store in `config.root`.
///
/// # Errors
/// The system's.
pub(in crate::store) fn index_files(
    fs: &ReadOnlyFs, config: &StoreConfig, given: Given, findings: &mut Findings,
) -> Result<IndexFiles, StoreError> {
    let folder = config.root.join("index");
    let mut files = Vec::new();
    for (path, is_folder) in fs.list(&folder).map_err(failed("list", &folder))? {
        if is_folder {
        } else if file_number(&path).is_some() {
            files.push(path);
        } else if path.extension().is_some_and(|extension| extension == "bad") {
            let text = "set aside by a start that could not use it";
            findings.add(Finding::new(Kind::IndexSetAside, Severity::Note, &path, text, Remedy::Act("remove it once the index is whole")));
        } else {
            let text = "not an index file: its name is not 17 digits";
            findings.add(Finding::new(Kind::StrayFile, Severity::Warning, &path, text, MOVE_AWAY));
        }
    }
    let mut geometry = Geometry { slots: config.index_slots.max(1), entries: config.index_entries.max(2) };
    if !given.index {
        let mut guessed = None;
        let mut unknown = Vec::new(); // without an entry nothing tells its geometry, and nothing depends on it
        for path in &files {
            let file = fs.open_read(path).map_err(failed("open", path))?;
            let len = file.len().map_err(failed("stat", path))?;
            if len == geometry.file_size() {
                return Ok(IndexFiles { files, geometry });
            }
            let is_empty = has_no_entry(&*file, len).map_err(failed("read", path))?;
            if is_empty {
                unknown.push(path.clone());
            } else if guessed.is_none() {
                guessed = guess_geometry(&*file, len).map_err(failed("read", path))?;
            }
        }
        geometry = guessed.unwrap_or(geometry);
        files.retain(|path| !unknown.contains(path));
    }
    Ok(IndexFiles { files, geometry })
}

/// Whether the header of a file that has one says that nothing was put into it.
fn has_no_entry(file: &dyn FsFile, len: u64) -> std::io::Result<bool> {
    let mut bytes = [0; INDEX_HEADER_SIZE];
    if len < INDEX_HEADER_SIZE as u64 {
        return Ok(false);
    }
    file.read_exact_at(&mut bytes, 0)?;
    Ok((0..=1).contains(&IndexHeader::decode(&bytes).count))
}

/// How many slots a file of `len` bytes has: its first entry, behind the unused one of zeros, is the one that the header speaks of.
fn guess_geometry(file: &dyn FsFile, len: u64) -> std::io::Result<Option<Geometry>> {
    let mut bytes = [0; INDEX_HEADER_SIZE];
    if len < (INDEX_HEADER_SIZE + INDEX_SLOT_SIZE + 2 * INDEX_ENTRY_SIZE) as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut bytes, 0)?;
    let header = IndexHeader::decode(&bytes);
    let mut body = vec![0; usize::try_from(len.min(MAX_SLOTS_BYTES)).unwrap_or(0)];
    file.read_exact_at(&mut body, 0)?;
    for slots in 1..u32::MAX {
        let first = INDEX_HEADER_SIZE + slots as usize * INDEX_SLOT_SIZE;
        let Some(entries) = body.get(first..first + 2 * INDEX_ENTRY_SIZE) else { return Ok(None) };
        let room = len - first as u64;
        if !room.is_multiple_of(INDEX_ENTRY_SIZE as u64) || entries[..INDEX_ENTRY_SIZE].iter().any(|byte| *byte != 0) {
            continue;
        }
        let entry = IndexEntry::decode(&entries[INDEX_ENTRY_SIZE..]);
        let is_first = entry.physical_offset == header.begin_physical_offset && entry.previous == 0 && entry.key_hash > 0;
        let geometry = Geometry { slots, entries: u32::try_from(room / INDEX_ENTRY_SIZE as u64).unwrap_or(u32::MAX) };
        if is_first && is_last(file, &header, geometry)? {
            return Ok(Some(geometry));
        }
    }
    Ok(None)
}

/// Whether the last entry, in this geometry, is the one that the header speaks of.
fn is_last(file: &dyn FsFile, header: &IndexHeader, geometry: Geometry) -> std::io::Result<bool> {
    let Some(last) = u32::try_from(header.count).ok().filter(|count| (2..=geometry.entries).contains(count)) else { return Ok(false) };
    let mut bytes = [0; INDEX_ENTRY_SIZE];
    file.read_exact_at(&mut bytes, geometry.entry_at(last - 1))?;
    Ok(IndexEntry::decode(&bytes).physical_offset == header.end_physical_offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fs::RealFs;

    fn found(files: &[(i64, u64)]) -> Vec<Found> {
        let folder = tempfile::tempdir().unwrap();
        let file = RealFs.open(&folder.path().join("any"), true).unwrap();
        files.iter().map(|(start, len)| Found { path: PathBuf::new(), start: *start, len: *len, file: Arc::clone(&file) }).collect()
    }

    #[test]
    fn the_size_of_the_log_s_files_is_what_they_say() {
        for (files, configured, given, expected) in [
            (&[][..], 100, false, 100),
            (&[(0, 100)], 100, false, 100),
            (&[(0, 64)], 100, false, 64),                           // made with another size
            (&[(0, 64)], 100, true, 100),                           // cut
            (&[(0, 164)], 100, true, 164),                          // cannot be
            (&[(300, 64)], 100, false, 100),                        // cut: it begins where files of that size begin
            (&[(320, 64)], 100, false, 64),                         // does not
            (&[(0, 64), (64, 64), (128, 20)], 100, false, 64),      // the last one cut
            (&[(0, 64), (64, 32)], 100, true, 64),                  // the configuration is wrong
            (&[(0, 64), (64, 0)], 100, false, 64),                  // the last one just made
            (&[(0, 30), (64, 30), (128, 64)], 100, false, 64),      // most are cut
            (&[(0, 100), (100, 100), (300, 100)], 100, false, 100), // one is gone
        ] {
            assert_eq!(log_file_size(&found(files), configured, given), expected, "{files:?} {configured} {given}");
        }
    }

    #[test]
    fn an_index_file_tells_its_geometry() {
        let folder = tempfile::tempdir().unwrap();
        for (slots, entries, count) in [(500u32, 2_000u32, 2), (7, 30, 9), (1, 3, 3)] {
            let geometry = Geometry { slots, entries };
            let file = RealFs.open(&folder.path().join(format!("{slots}")), true).unwrap();
            file.set_len(geometry.file_size()).unwrap();
            let header =
                IndexHeader { count, begin_physical_offset: 700, end_physical_offset: 700 + i64::from(count), ..IndexHeader::default() };
            file.write_all_at(&header.encode(), 0).unwrap();
            for number in 1..count {
                let physical_offset = if number == 1 { 700 } else { 701 + i64::from(number) };
                let entry = IndexEntry { key_hash: 5 + number, physical_offset, seconds: 0, previous: 0 };
                file.write_all_at(&entry.encode(), geometry.entry_at(number as u32)).unwrap();
            }
            let last = IndexHeader { end_physical_offset: if count == 2 { 700 } else { 700 + i64::from(count) }, ..header };
            file.write_all_at(&last.encode(), 0).unwrap();
            assert_eq!(guess_geometry(&*file, geometry.file_size()).unwrap(), Some(geometry));
        }
        let file = RealFs.open(&folder.path().join("zeros"), true).unwrap();
        file.set_len(10_000).unwrap();
        assert_eq!(guess_geometry(&*file, 10_000).unwrap(), None);
    }
}
