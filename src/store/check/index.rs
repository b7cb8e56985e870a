//! The key index against the log, while the log is walked.
//!
//! Entries come in the order of physical offsets, as records do: both are walked side by side, and nothing is kept but the heads of the
//! chains of one file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::common::record::Record;
use crate::store::dispatch::Dispatched;
use crate::store::error::StoreError;
use crate::store::file_cache::failed;
use crate::store::format::index::{INDEX_ENTRY_SIZE, INDEX_SLOT_SIZE, IndexEntry, IndexHeader, decode_slot};
use crate::store::fs::{Fs, FsFile};
use crate::store::index::{TAGS_PREFIX, key_hash};
use crate::store::index_file::{Geometry, IndexFile};

use super::damage::{Holes, NextStart};
use super::layout::{IndexFiles, LogFiles};
use super::read_only::ReadOnlyFs;
use super::report::{Finding, Findings, Kind, Remedy, Severity};

/// Entries of one read.
const READ_ENTRIES: u32 = 16_384;
/// How much a time in a file may differ from a record's, ms: a repaired file knows its end to the second.
const TOLERANCE_MS: i64 = 1_000;

/// Where the entries of all files are read, oldest first.
struct Cursor {
    geometry: Geometry,
    file: Option<Current>,
    buffer: Vec<u8>,
    /// Number of the first entry in the buffer.
    buffered: u32,
}

/// The file that is being read.
struct Current {
    path: PathBuf,
    file: Arc<dyn FsFile>,
    header: IndexHeader,
    /// Number of the next entry.
    number: u32,
    count: u32,
    /// Newest entry of each slot, so far.
    heads: Vec<u32>,
    used_slots: i32,
    chains: Trouble,
    entries: Trouble,
    times: Trouble,
    header_wrong: Option<String>,
    last_physical: i64,
}

/// Things of one kind in one file: the first, and how many.
#[derive(Default)]
struct Trouble {
    first: Option<(u64, String)>,
    count: u64,
}

impl Trouble {
    fn add(&mut self, at: u64, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.is_none() {
            self.first = Some((at, what()));
        }
    }
}

/// An entry with its place.
#[derive(Clone, Copy)]
struct Placed {
    entry: IndexEntry,
    number: u32,
}

/// Records with keys that have no entry, one behind the other.
struct Missing {
    first: i64,
    store_timestamp: i64,
    last: i64,
    records: u64,
    example: String,
}

/// Compares the index with records.
pub(in crate::store) struct IndexCheck<'a> {
    fs: &'a ReadOnlyFs,
    log: &'a LogFiles,
    next_start: NextStart,
    folder: PathBuf,
    files: std::vec::IntoIter<PathBuf>,
    cursor: Cursor,
    findings: Findings,
    missing: Option<Missing>,
    /// Records that have keys.
    keyed: u64,
    entries: u64,
    usable_files: u64,
    damaged: bool,
    error: Option<StoreError>,
}

impl<'a> IndexCheck<'a> {
    /// A check of these files, which lie in `folder`; `limit` as of [`Findings::new`].
    pub(in crate::store) fn new(
        fs: &'a ReadOnlyFs, log: &'a LogFiles, next_start: NextStart, folder: &Path, files: IndexFiles, limit: usize,
    ) -> Self {
        let cursor = Cursor { geometry: files.geometry, file: None, buffer: Vec::new(), buffered: 0 };
        Self {
            fs,
            log,
            next_start,
            folder: folder.to_owned(),
            files: files.files.into_iter(),
            cursor,
            findings: Findings::new(limit),
            missing: None,
            keyed: 0,
            entries: 0,
            usable_files: 0,
            damaged: false,
            error: None,
        }
    }

    /// Entries looked at.
    pub(in crate::store) fn entries(&self) -> u64 {
        self.entries
    }

    /// Whether something is wrong that a rebuilt index would not have.
    pub(in crate::store) fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// A record that may have keys. `is_hidden`: its topic was deleted since; it may have entries and needs none. A failure to read is told by
    /// [`IndexCheck::finish`].
    pub(in crate::store) fn record(&mut self, record: &Record<'_>, offset: i64, found: &Dispatched<'_>, is_hidden: bool, holes: &Holes) {
        if self.error.is_none()
            && let Err(error) = self.compare(record, offset, found, is_hidden, holes)
        {
            self.error = Some(error);
        }
    }

    fn compare(
        &mut self, record: &Record<'_>, offset: i64, found: &Dispatched<'_>, is_hidden: bool, holes: &Holes,
    ) -> Result<(), StoreError> {
        let mut wanted: SmallVec<[(i32, bool); 4]> = found.keys().map(|key| (key_hash(record.topic, "", key), false)).collect();
        let tags = found.tags().map(|tags| key_hash(record.topic, TAGS_PREFIX, tags));
        while let Some(placed) = self.peek()?.filter(|placed| placed.entry.physical_offset <= offset) {
            if placed.entry.physical_offset < offset {
                self.without_record(placed, holes);
            } else {
                let key = wanted.iter_mut().find(|(hash, _)| *hash == placed.entry.key_hash);
                if key.is_none() && tags != Some(placed.entry.key_hash) {
                    self.wrong_entry(placed, "its record does not have the key");
                }
                if let Some((_, is_found)) = key {
                    *is_found = true;
                }
                self.check_time(placed, record.store_timestamp);
            }
            self.advance();
        }
        if wanted.is_empty() || is_hidden {
            return Ok(());
        }
        self.keyed += 1;
        match wanted.iter().position(|(_, is_found)| !is_found) {
            Some(place) => self.key_missing(record, offset, found.keys().nth(place).unwrap_or_default()),
            None => self.tell_missing(false),
        }
        Ok(())
    }

    fn key_missing(&mut self, record: &Record<'_>, offset: i64, key: &str) {
        let missing = self.missing.get_or_insert_with(|| Missing {
            first: offset,
            store_timestamp: record.store_timestamp,
            last: offset,
            records: 0,
            example: format!("{key:?} of topic {}", record.topic),
        });
        missing.last = offset;
        missing.records += 1;
    }

    fn tell_missing(&mut self, is_tail: bool) {
        let Some(missing) = self.missing.take() else { return };
        let Missing { first, store_timestamp, last, records, example } = missing;
        self.damaged = true;
        let mended = is_tail && self.next_start.dispatches(first, store_timestamp);
        let (severity, remedy) = if mended { (Severity::Warning, Remedy::Start) } else { (Severity::Error, Remedy::Repair) };
        let nothing = self.usable_files == 0;
        let (kind, text) = if nothing {
            (Kind::IndexMissing, format!("there is no index: none of {records} records with keys is found by them"))
        } else {
            let to = if records > 1 { format!(" and others up to physical offset {last}") } else { String::new() };
            (Kind::IndexKeyMissing, format!("no entry for key {example}{to}"))
        };
        let finding = Finding::new(kind, severity, &self.folder, text, remedy).physical(first).count(records);
        self.findings.add(finding);
    }

    fn without_record(&mut self, placed: Placed, holes: &Holes) {
        let offset = placed.entry.physical_offset;
        if offset >= self.log.min_offset() && !holes.explain(self.log, offset) {
            self.wrong_entry(placed, "no record begins at its physical offset");
        }
    }

    fn wrong_entry(&mut self, Placed { entry, number }: Placed, why: &str) {
        if let Some(file) = &mut self.cursor.file {
            let at = self.cursor.geometry.entry_at(number);
            file.entries.add(at, || format!("entry {number} (physical offset {}): {why}", entry.physical_offset));
        }
    }

    fn check_time(&mut self, Placed { entry, number }: Placed, store_timestamp: i64) {
        let at = self.cursor.geometry.entry_at(number);
        let Some(file) = &mut self.cursor.file else { return };
        let IndexHeader { begin_timestamp, end_timestamp, .. } = file.header;
        if number == 1 && begin_timestamp != store_timestamp.max(1) {
            file.header_wrong.get_or_insert_with(|| format!("beginTimestamp {begin_timestamp}, its first record's is {store_timestamp}"));
        }
        if number + 1 == file.count && (end_timestamp - store_timestamp).abs() > TOLERANCE_MS {
            file.header_wrong.get_or_insert_with(|| format!("endTimestamp {end_timestamp}, its last record's is {store_timestamp}"));
        }
        // the first entry of Java's files counts from the end of the file before
        let seconds = ((store_timestamp - begin_timestamp) / 1000).clamp(0, i64::from(i32::MAX));
        if number > 1 && (i64::from(entry.seconds) - seconds).abs() > 1 {
            file.times.add(at, || format!("entry {number} is {} s old, its record {seconds} s", entry.seconds));
        }
    }

    // ---- entries in order ----

    /// The next entry; files that are read to their end are told of on the way.
    fn peek(&mut self) -> Result<Option<Placed>, StoreError> {
        loop {
            if self.cursor.file.is_none() && !self.next_file()? {
                return Ok(None);
            }
            match self.cursor.peek()? {
                Some(placed) if self.is_in_order(placed) => return Ok(Some(placed)),
                Some(_) => self.advance(),
                None => self.end_file()?,
            }
        }
    }

    fn is_in_order(&mut self, placed: Placed) -> bool {
        let last = self.cursor.file.as_ref().map_or(0, |file| file.last_physical);
        let why = if placed.entry == IndexEntry::default() {
            "zeros"
        } else if placed.entry.key_hash < 0 || placed.entry.seconds < 0 {
            "neither its hash nor its time can be negative"
        } else if placed.entry.physical_offset < last {
            "its physical offset lies before that of the entry in front of it"
        } else {
            return true;
        };
        self.wrong_entry(placed, why);
        false
    }

    fn advance(&mut self) {
        self.entries += 1;
        self.cursor.advance();
    }

    /// Opens the next file that can be used; whether there is one.
    fn next_file(&mut self) -> Result<bool, StoreError> {
        for path in self.files.by_ref() {
            match IndexFile::open(self.fs, &path, self.cursor.geometry)? {
                Ok((_, header)) => {
                    self.usable_files += 1;
                    let file = self.fs.open_read(&path).map_err(failed("open", &path))?;
                    self.cursor.begin(path, file, header);
                    return Ok(true);
                }
                Err(why) => {
                    self.damaged = true;
                    let text = format!("cannot be used: {why}");
                    self.findings.add(Finding::new(Kind::IndexFile, Severity::Error, &path, text, Remedy::Repair));
                }
            }
        }
        Ok(false)
    }

    /// All entries of the file are read: compares chains and header, tells what was found.
    fn end_file(&mut self) -> Result<(), StoreError> {
        let Some(mut file) = self.cursor.file.take() else { return Ok(()) };
        file.compare_slots(self.cursor.geometry)?;
        file.compare_header(&mut self.findings);
        let mended = self.next_start.repairs_index(file.header.end_timestamp);
        let (severity, remedy) = if mended { (Severity::Warning, Remedy::Start) } else { (Severity::Error, Remedy::Repair) };
        let told = [(Kind::IndexChain, &file.chains), (Kind::IndexEntry, &file.entries), (Kind::IndexEntry, &file.times)];
        for (kind, trouble) in told {
            if let Some((at, text)) = &trouble.first {
                self.damaged = true;
                self.findings.add(Finding::new(kind, severity, &file.path, text.clone(), remedy).at(*at).count(trouble.count));
            }
        }
        if let Some(text) = file.header_wrong {
            self.damaged = true;
            self.findings.add(Finding::new(Kind::IndexHeader, severity, &file.path, text, remedy).at(0));
        }
        Ok(())
    }

    /// The walk is over, the log ends at `end`: reads the rest, hands over what was found.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::store) fn finish(&mut self, end: i64, holes: &Holes, findings: &mut Findings) -> Result<(), StoreError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut behind = (0, None);
        while let Some(placed) = self.peek()? {
            if placed.entry.physical_offset >= end {
                behind.0 += 1;
                let path = self.cursor.file.as_ref().map(|file| file.path.clone());
                behind.1 = behind.1.or(path.map(|path| (path, placed)));
            } else {
                self.without_record(placed, holes);
            }
            self.advance();
        }
        if let (count, Some((path, Placed { entry, number }))) = behind {
            self.damaged = true;
            let text = format!("entry {number} and those behind it point behind the end of the log, {end}");
            let finding = Finding::new(Kind::IndexEntry, Severity::Warning, &path, text, Remedy::Start);
            self.findings.add(finding.at(self.cursor.geometry.entry_at(number)).physical(entry.physical_offset).count(count));
        }
        self.tell_missing(true);
        findings.absorb(std::mem::replace(&mut self.findings, Findings::new(0)));
        Ok(())
    }
}

impl Cursor {
    fn begin(&mut self, path: PathBuf, file: Arc<dyn FsFile>, header: IndexHeader) {
        self.buffer.clear();
        self.file = Some(Current {
            path,
            file,
            header,
            number: 1,
            count: header.count.unsigned_abs(),
            heads: vec![0; self.geometry.slots as usize],
            used_slots: 0,
            chains: Trouble::default(),
            entries: Trouble::default(),
            times: Trouble::default(),
            header_wrong: None,
            last_physical: 0,
        });
    }

    fn peek(&mut self) -> Result<Option<Placed>, StoreError> {
        let Some(file) = self.file.as_ref().filter(|file| file.number < file.count) else { return Ok(None) };
        let number = file.number;
        let held = (self.buffer.len() / INDEX_ENTRY_SIZE) as u32;
        if held == 0 || number < self.buffered || number >= self.buffered + held {
            let entries = READ_ENTRIES.min(file.count - number);
            self.buffer.resize(entries as usize * INDEX_ENTRY_SIZE, 0);
            let read = file.file.read_exact_at(&mut self.buffer, self.geometry.entry_at(number));
            read.map_err(failed("read", &file.path))?;
            self.buffered = number;
        }
        let at = (number - self.buffered) as usize * INDEX_ENTRY_SIZE;
        Ok(Some(Placed { entry: IndexEntry::decode(&self.buffer[at..]), number }))
    }

    /// Goes on behind the entry that was looked at.
    fn advance(&mut self) {
        let Some(file) = &mut self.file else { return };
        let at = (file.number - self.buffered) as usize * INDEX_ENTRY_SIZE;
        let entry = IndexEntry::decode(&self.buffer[at..]);
        file.chain(self.geometry, &entry);
        file.last_physical = file.last_physical.max(entry.physical_offset);
        file.number += 1;
    }
}

impl Current {
    /// The entry's previous one is the newest of its slot.
    fn chain(&mut self, geometry: Geometry, entry: &IndexEntry) {
        if *entry == IndexEntry::default() || entry.key_hash < 0 {
            return; // told of already
        }
        let (slot, number) = (geometry.slot_of(entry.key_hash), self.number);
        let head = std::mem::replace(&mut self.heads[slot as usize], number);
        self.used_slots += i32::from(head == 0);
        if entry.previous != head as i32 {
            self.chains.add(geometry.entry_at(number), || {
                format!("entry {number} leads to entry {}, the chain of its slot goes on at {head}", entry.previous)
            });
        }
    }

    /// Each slot points at the newest entry of its chain.
    fn compare_slots(&mut self, geometry: Geometry) -> Result<(), StoreError> {
        const SLOTS: usize = 16_384;
        let mut buffer = vec![0; SLOTS * INDEX_SLOT_SIZE];
        let heads = std::mem::take(&mut self.heads);
        for (chunk, heads) in heads.chunks(SLOTS).enumerate() {
            let bytes = &mut buffer[..heads.len() * INDEX_SLOT_SIZE];
            let first = (chunk * SLOTS) as u32;
            self.file.read_exact_at(bytes, geometry.slot_at(first)).map_err(failed("read", &self.path))?;
            for (place, (slot, head)) in bytes.chunks_exact(INDEX_SLOT_SIZE).zip(heads).enumerate() {
                let (there, slot) = (decode_slot(slot), first + place as u32);
                if there != *head as i32 {
                    self.chains.add(geometry.slot_at(slot), || format!("slot {slot} points at entry {there}, its newest is {head}"));
                }
            }
        }
        Ok(())
    }

    fn compare_header(&mut self, findings: &mut Findings) {
        let IndexHeader { begin_physical_offset, end_physical_offset, used_slots, .. } = self.header;
        if self.count > 1 && end_physical_offset != self.last_physical {
            let last = self.last_physical;
            self.header_wrong.get_or_insert_with(|| format!("endPhyOffset {end_physical_offset}, its last entry's is {last}"));
        }
        if self.count > 1 && begin_physical_offset > self.last_physical {
            self.header_wrong.get_or_insert_with(|| format!("beginPhyOffset {begin_physical_offset} lies behind its entries"));
        }
        if used_slots != self.used_slots && self.chains.count == 0 && self.entries.count == 0 {
            let text = format!("hashSlotCount {used_slots}, {} slots are used; nobody reads it", self.used_slots);
            findings.add(Finding::new(Kind::IndexHeader, Severity::Note, &self.path, text, Remedy::Nothing).at(32));
        }
    }
}
