//! One hash file of the key index (Java's `IndexFile`): where its bytes lie, how they are read and written.
//!
//! The file has its nominal length from the start, sparse. Entries are written before the slots that point at them, the
//! header last, so a killed process never leaves a slot without its entry. After a power cut pages may be missing: see
//! [`IndexFile::repair`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::StoreError;
use super::file_cache::failed;
use super::format::index::{INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE, IndexEntry, IndexHeader, decode_slot};
use super::fs::{Fs, FsFile, zero};

/// Slots are read and written in pieces of this many bytes.
const PAGE: u64 = 4096;
/// Entries of one read.
const SCAN_ENTRIES: u32 = 16_384;
/// Entries that one query may walk through in one file: chains of a popular tag are long.
const MAX_WALK: u32 = 262_144;

/// How many slots and entries a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// `maxHashSlotNum`.
    pub(super) slots: u32,
    /// `maxIndexNum`: the first number that no entry has.
    pub(super) entries: u32,
}

impl Geometry {
    /// Bytes of a file.
    pub(super) fn file_size(self) -> u64 {
        self.entry_at(self.entries)
    }

    fn slot_at(self, slot: u32) -> u64 {
        INDEX_HEADER_SIZE as u64 + u64::from(slot) * INDEX_SLOT_SIZE as u64
    }

    fn entry_at(self, number: u32) -> u64 {
        self.slot_at(self.slots) + u64::from(number) * INDEX_ENTRY_SIZE as u64
    }

    /// Slot of a hash that is not negative.
    pub(super) fn slot_of(self, key_hash: i32) -> u32 {
        key_hash.unsigned_abs() % self.slots
    }
}

/// An index file.
#[derive(Debug)]
pub(super) struct IndexFile {
    path: PathBuf,
    file: Arc<dyn FsFile>,
    geometry: Geometry,
}

/// Entries with their chains, and the slots that change with them: what one write brings.
#[derive(Debug, Default)]
pub(super) struct Linked {
    /// Number of the first entry.
    pub(super) first: u32,
    /// Encoded entries.
    pub(super) entries: Vec<u8>,
    /// Slot and its new value, ascending.
    pub(super) slots: Vec<(u32, u32)>,
    /// Header afterwards.
    pub(super) header: IndexHeader,
}

impl IndexFile {
    /// Makes an empty file.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn create(fs: &dyn Fs, path: PathBuf, geometry: Geometry) -> Result<Self, StoreError> {
        let file = fs.create_sized(&path, geometry.file_size()).map_err(failed("create", &path))?;
        Ok(Self { path, file, geometry })
    }

    /// Opens a file; the inner error says why it cannot be an index file of this geometry.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(fs: &dyn Fs, path: &Path, geometry: Geometry) -> Result<Result<(Self, IndexHeader), String>, StoreError> {
        let file = fs.open(path, false).map_err(failed("open", path))?;
        let len = file.len().map_err(failed("stat", path))?;
        if len != geometry.file_size() {
            let (slots, entries) = (geometry.slots, geometry.entries);
            return Ok(Err(format!("{len} bytes, {} expected with maxHashSlotNum={slots} maxIndexNum={entries}", geometry.file_size())));
        }
        let mut bytes = [0; INDEX_HEADER_SIZE];
        file.read_exact_at(&mut bytes, 0).map_err(failed("read", path))?;
        let mut header = IndexHeader::decode(&bytes);
        header.count = header.count.max(1);
        if header.count.unsigned_abs() > geometry.entries {
            return Ok(Err(format!("count={} exceeds maxIndexNum={}", header.count, geometry.entries)));
        }
        if header.count > 1 && header.begin_timestamp <= 0 {
            return Ok(Err(format!("count={} but beginTimestamp={}", header.count, header.begin_timestamp)));
        }
        Ok(Ok((Self { path: path.to_owned(), file, geometry }, header)))
    }

    /// Whether a header that [`IndexFile::open`] accepted fits the entries: the last one is of the record it names, none follows.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn agrees(&self, header: &IndexHeader) -> Result<bool, StoreError> {
        let count = header.count.unsigned_abs();
        let last = if count > 1 { self.entry(count - 1)?.physical_offset == header.end_physical_offset } else { true };
        Ok(last && (count == self.geometry.entries || self.entry(count)? == IndexEntry::default()))
    }

    /// Where the file lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// fdatasync.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(failed("sync", &self.path))
    }

    /// Value of a slot, not checked.
    fn slot(&self, slot: u32) -> Result<i32, StoreError> {
        let mut bytes = [0; INDEX_SLOT_SIZE];
        self.read(&mut bytes, self.geometry.slot_at(slot))?;
        Ok(decode_slot(&bytes))
    }

    /// The entry of a number that is below the geometry's.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn entry(&self, number: u32) -> Result<IndexEntry, StoreError> {
        let mut bytes = [0; INDEX_ENTRY_SIZE];
        self.read(&mut bytes, self.geometry.entry_at(number))?;
        Ok(IndexEntry::decode(&bytes))
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), StoreError> {
        self.file.read_exact_at(bytes, at).map_err(failed("read", &self.path))
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), StoreError> {
        self.file.write_all_at(bytes, at).map_err(failed("write", &self.path))
    }

    /// Hands the entries of a hash to `visit`, newest first, until it returns false or an entry is older than `begin_ms`. `header` is how
    /// the file was when the query began: what a writer adds meanwhile is passed over. Chains are bounded and their numbers strictly
    /// decrease, whatever the file holds.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn walk(
        &self, key_hash: i32, header: &IndexHeader, begin_ms: i64, visit: &mut dyn FnMut(&IndexEntry) -> bool,
    ) -> Result<(), StoreError> {
        let count = header.count.unsigned_abs();
        let mut below = self.geometry.entries;
        let mut number = self.slot(self.geometry.slot_of(key_hash))?;
        for _ in 0..MAX_WALK {
            let Some(there) = valid_number(number, below) else { return Ok(()) };
            let entry = self.entry(there)?;
            if entry.seconds < 0 || (there < count && entry.key_hash == key_hash && !visit(&entry)) {
                return Ok(());
            }
            if there < count && entry_end_ms(header.begin_timestamp, entry.seconds) < begin_ms {
                return Ok(()); // older ones follow
            }
            below = there;
            number = entry.previous;
        }
        log::warn!("index query gave up a long chain: path={} entries={MAX_WALK} hash={key_hash}", self.path.display());
        Ok(())
    }

    /// Chains entries `first..`, whose `previous` is not set, to what the file holds.
    ///
    /// # Errors
    /// The system's; nothing was written.
    pub(super) fn link(&self, mut entries: Vec<IndexEntry>, before: &IndexHeader, after: IndexHeader) -> Result<Linked, StoreError> {
        let first = before.count.unsigned_abs();
        let mut order: Vec<(u32, u32)> =
            entries.iter().zip(0u32..).map(|(entry, place)| (self.geometry.slot_of(entry.key_hash), place)).collect();
        order.sort_unstable();
        let mut linked = Linked { first, header: after, ..Linked::default() };
        let mut page = SlotPage::new(self);
        for (slot, place) in order {
            let previous = match linked.slots.last_mut() {
                Some((last, value)) if *last == slot => std::mem::replace(value, first + place),
                _ => {
                    let previous = valid_number(page.slot(slot)?, first).unwrap_or(0);
                    linked.header.used_slots += i32::from(previous == 0);
                    linked.slots.push((slot, first + place));
                    previous
                }
            };
            entries[place as usize].previous = previous as i32;
        }
        linked.entries = entries.iter().flat_map(IndexEntry::encode).collect();
        Ok(linked)
    }

    /// Writes entries, slots, header, in this order. May be repeated after a failure.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write_linked(&self, linked: &Linked) -> Result<(), StoreError> {
        self.write(&linked.entries, self.geometry.entry_at(linked.first))?;
        self.write_slots(&linked.slots)?;
        self.write(&linked.header.encode(), 0)
    }

    /// Writes slots (ascending), a page at a time.
    fn write_slots(&self, slots: &[(u32, u32)]) -> Result<(), StoreError> {
        let mut page = SlotPage::new(self);
        for chunk in slots.chunk_by(|a, b| self.page_of(a.0) == self.page_of(b.0)) {
            page.load(chunk[0].0)?;
            for (slot, value) in chunk {
                page.set(*slot, *value);
            }
            self.write(&page.bytes, page.at)?;
        }
        Ok(())
    }

    /// Start and length of the piece of the file that holds a slot; pieces do not reach into header or entries.
    fn page_of(&self, slot: u32) -> (u64, usize) {
        let at = self.geometry.slot_at(slot);
        let from = (at - at % PAGE).max(INDEX_HEADER_SIZE as u64);
        let to = (at - at % PAGE + PAGE).min(self.geometry.entry_at(0));
        (from, (to - from) as usize)
    }

    /// Makes sense of a file that an abrupt stop left: entries are believed up to the first that cannot be one, chains,
    /// slots and header are made from them, what lies behind is zeroed.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn repair(&self, header: IndexHeader) -> Result<IndexHeader, StoreError> {
        let mut slots = vec![0u32; self.geometry.slots as usize];
        let mut last = IndexEntry::default();
        let mut count = 1;
        let mut unchained = Vec::new();
        let begun = header.begin_timestamp > 0; // else no entry's time is known
        self.scan(1, &mut |number, entry| {
            let credible = begun
                && entry.key_hash >= 0
                && entry.seconds >= 0
                && entry.physical_offset >= last.physical_offset
                && *entry != IndexEntry::default();
            if credible {
                let head = &mut slots[self.geometry.slot_of(entry.key_hash) as usize];
                let previous = std::mem::replace(head, number) as i32;
                if entry.previous != previous {
                    unchained.push((number, IndexEntry { previous, ..*entry }));
                }
                last = *entry;
                count = number + 1;
            }
            credible
        })?;
        for (number, entry) in unchained {
            self.write(&entry.encode(), self.geometry.entry_at(number))?;
        }
        self.zero_entries(count)?;
        let mut repaired = IndexHeader {
            count: count as i32,
            used_slots: slots.iter().filter(|value| **value != 0).count() as i32,
            end_timestamp: header.begin_timestamp + i64::from(last.seconds) * 1000,
            end_physical_offset: last.physical_offset,
            ..header
        };
        if last.physical_offset == header.end_physical_offset {
            repaired.end_timestamp = header.end_timestamp; // to the millisecond
        }
        if count == 1 {
            repaired = IndexHeader { count: 1, ..IndexHeader::default() };
        }
        self.rewrite_slots(&slots)?;
        self.write(&repaired.encode(), 0)?;
        Ok(repaired)
    }

    /// Drops the entries of records at or behind `physical_offset`; gives the header that is left.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn truncate_behind(&self, header: IndexHeader, physical_offset: i64) -> Result<IndexHeader, StoreError> {
        let old_count = header.count.unsigned_abs();
        let (mut low, mut high) = (1, old_count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.physical_offset < physical_offset { low = middle + 1 } else { high = middle }
        }
        if low == old_count {
            return Ok(header);
        }
        let mut changed = std::collections::BTreeMap::new(); // slot: entry that stays at its head
        for number in (low..old_count).rev() {
            let entry = self.entry(number)?;
            changed.insert(self.geometry.slot_of(entry.key_hash.max(0)), valid_number(entry.previous, number).unwrap_or(0));
        }
        let freed = changed.values().filter(|value| **value == 0).count() as i32;
        self.write_slots(&changed.into_iter().collect::<Vec<_>>())?;
        self.zero_entries(low)?;
        let mut left = IndexHeader { count: 1, ..IndexHeader::default() };
        if low > 1 {
            let last = self.entry(low - 1)?;
            left = IndexHeader {
                count: low as i32,
                used_slots: (header.used_slots - freed).max(0),
                end_timestamp: header.begin_timestamp + i64::from(last.seconds) * 1000,
                end_physical_offset: last.physical_offset,
                ..header
            };
        }
        self.write(&left.encode(), 0)?;
        Ok(left)
    }

    /// Zeroes the entries from a number on: they are the end of the file.
    fn zero_entries(&self, from: u32) -> Result<(), StoreError> {
        zero(&*self.file, self.geometry.entry_at(from), self.geometry.file_size()).map_err(failed("truncate", &self.path))
    }

    /// Reads entries from a number on until `visit` returns false.
    fn scan(&self, from: u32, visit: &mut dyn FnMut(u32, &IndexEntry) -> bool) -> Result<(), StoreError> {
        let mut number = from;
        let mut buffer = vec![0; 200 * INDEX_ENTRY_SIZE];
        while number < self.geometry.entries {
            let ask = (buffer.len() / INDEX_ENTRY_SIZE).min((self.geometry.entries - number) as usize);
            let bytes = &mut buffer[..ask * INDEX_ENTRY_SIZE];
            self.read(bytes, self.geometry.entry_at(number))?;
            for entry in bytes.chunks_exact(INDEX_ENTRY_SIZE) {
                if !visit(number, &IndexEntry::decode(entry)) {
                    return Ok(());
                }
                number += 1;
            }
            buffer.resize(SCAN_ENTRIES as usize * INDEX_ENTRY_SIZE, 0);
        }
        Ok(())
    }

    /// Writes the pages of the slot table that differ.
    fn rewrite_slots(&self, slots: &[u32]) -> Result<(), StoreError> {
        let mut page = SlotPage::new(self);
        let mut slot = 0;
        while slot < self.geometry.slots {
            page.load(slot)?;
            let next = slot + (page.bytes.len() / INDEX_SLOT_SIZE) as u32;
            let wanted: Vec<u8> = slots[slot as usize..next as usize].iter().flat_map(|value| value.to_be_bytes()).collect();
            if page.bytes != wanted {
                self.write(&wanted, page.at)?;
            }
            slot = next;
        }
        Ok(())
    }
}

/// A piece of the slot table.
struct SlotPage<'a> {
    file: &'a IndexFile,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> SlotPage<'a> {
    fn new(file: &'a IndexFile) -> Self {
        Self { file, at: 0, bytes: Vec::new() }
    }

    fn load(&mut self, slot: u32) -> Result<(), StoreError> {
        let (at, len) = self.file.page_of(slot);
        if self.at != at {
            self.bytes.resize(len, 0);
            self.at = 0; // nothing, should the read fail
            self.file.read(&mut self.bytes, at)?;
            self.at = at;
        }
        Ok(())
    }

    fn place(&self, slot: u32) -> usize {
        (self.file.geometry.slot_at(slot) - self.at) as usize
    }

    fn slot(&mut self, slot: u32) -> Result<i32, StoreError> {
        self.load(slot)?;
        Ok(decode_slot(&self.bytes[self.place(slot)..]))
    }

    fn set(&mut self, slot: u32, value: u32) {
        let place = self.place(slot);
        self.bytes[place..place + INDEX_SLOT_SIZE].copy_from_slice(&value.to_be_bytes());
    }
}

/// A number read from a slot or a chain, if it can be one: above 0 and below `below`.
fn valid_number(number: i32, below: u32) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| (1..below).contains(number))
}

/// Last millisecond that an entry of so many seconds may stand for.
pub(super) fn entry_end_ms(begin_timestamp: i64, seconds: i32) -> i64 {
    begin_timestamp.saturating_add(i64::from(seconds) * 1000 + 999)
}
