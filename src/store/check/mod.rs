//! `store check`: everything on disk compared with everything else, without changing a byte.
//!
//! - The log is the truth and is walked once, from its first file to its end. Consume queues and index are compared record by record as the
//!   walk goes, the checkpoint afterwards.
//! - All reading goes through [`read_only::ReadOnlyFs`]: by `pread` into buffers that are used again, never through a map. A disk that does
//!   not give a sector costs a finding, not the process.
//! - Memory does not grow with the number of messages: a small state for each queue, the chain heads of one index file, holes of the log.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::common::record::Record;

use super::StoreConfig;
use super::checkpoint::{Checkpoint, Positions};
use super::deleted_topics::{DeletedTopics, Marks};
use super::dispatch::{Dispatched, has_keys, has_unit};
use super::error::StoreError;
use super::file_cache::failed;
use super::foreign::refuse_rocksdb;
use super::fs::Fs;
use super::lock_file::StoreLock;
use super::recovery::SYNC_FAILED;
use super::repair::WORK_FOLDER;
use super::seal;

mod damage;
mod index;
mod layout;
pub(super) mod log;
mod positions;
mod queues;
mod read_only;
pub(super) mod replay;
pub mod report;
#[cfg(test)]
pub(super) mod tests;

pub use layout::Given;
pub(super) use layout::LogFiles;
pub use report::{Counts, Finding, Findings, Group, Kind, QueueBounds, Remedy, Report, Severity, Sizes};

use damage::{Holes, NextStart};
use index::IndexCheck;
use log::{Damage, Rules, Visitor, Walked};
use queues::QueueCheck;
pub(super) use queues::{QueueState, UnitSink};
use read_only::ReadOnlyFs;

/// How often something that is no record is read again while a broker is writing.
const LIVE_RETRIES: u32 = 100;

/// What a check is to be like.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Sizes in the configuration that are known to be right.
    pub given: Given,
    /// The topics that exist, where they are known: records of others are of deleted topics.
    pub topics: Option<BTreeSet<String>>,
    /// Look at the store although a broker has it open. What that is writing is then taken for what an abrupt stop would leave.
    pub running: bool,
    /// Findings of each kind that are kept; all are counted.
    pub findings_per_kind: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { given: Given::default(), topics: None, running: false, findings_per_kind: 20 }
    }
}

/// How far something is that takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub what: &'static str,
    /// Bytes of the log done.
    pub done: u64,
    /// Bytes of the log to do.
    pub total: u64,
}

/// Looks at a store. `progress` is called now and then.
///
/// # Errors
/// There is no store; a broker has it ([`StoreError::Locked`]); the system's, where they are no property of the store.
pub fn check(
    config: &StoreConfig, fs: &Arc<dyn Fs>, options: &CheckOptions, progress: &mut dyn FnMut(Progress),
) -> Result<Report, StoreError> {
    is_store(config, &**fs)?;
    let held = StoreLock::holder(&config.root, &**fs)?;
    match held {
        Some(locked) if !options.running => return Err(locked),
        _ => {}
    }
    let examined = examine(config, fs, options, held.is_some(), progress)?;
    match StoreLock::holder(&config.root, &**fs)? {
        Some(locked) if held.is_none() => Err(locked), // what was found means nothing
        _ => Ok(examined.report),
    }
}

/// Whether a folder looks like a store's.
///
/// # Errors
/// It does not.
pub(super) fn is_store(config: &StoreConfig, fs: &dyn Fs) -> Result<(), StoreError> {
    let root = config.root.as_path();
    let is_log = config.writable_commit_log_folders().iter().any(|folder| fs.exists(folder));
    if is_log || fs.exists(&root.join("consumequeue")) || fs.exists(&root.join("checkpoint")) {
        return Ok(());
    }
    let why = "there is no store here: neither commitlog nor consumequeue nor checkpoint";
    Err(StoreError::Damaged(root.to_owned(), why.to_owned()))
}

/// What a check found, for repair.
pub(super) struct Examined {
    pub(super) report: Report,
    pub(super) log: LogFiles,
    pub(super) walked: Walked,
    pub(super) queues: Vec<QueueState>,
    pub(super) index_damaged: bool,
    /// Start and size of damaged records that queues know, by start.
    pub(super) known: Vec<(i64, i32)>,
    pub(super) positions: Positions,
    /// `abort` is there.
    pub(super) abrupt: bool,
    /// The marker of a failed sync is there.
    pub(super) sync_failed: bool,
    pub(super) marks: Marks,
}

/// [`check`] without a look at the lock. `live`: a broker is at work on the store.
///
/// # Errors
/// As there.
pub(super) fn examine(
    config: &StoreConfig, fs: &Arc<dyn Fs>, options: &CheckOptions, live: bool, progress: &mut dyn FnMut(Progress),
) -> Result<Examined, StoreError> {
    let started = Instant::now();
    let root = config.root.as_path();
    let read_only = Arc::new(ReadOnlyFs::new(Arc::clone(fs)));
    let view: Arc<dyn Fs> = Arc::clone(&read_only) as Arc<dyn Fs>;
    let mut findings = Findings::new(options.findings_per_kind);
    let (_, positions) = Checkpoint::load(root, Arc::clone(&view))?;
    let abrupt = view.exists(&root.join("abort"));
    let next_start = NextStart { abrupt: abrupt || live, live, positions };
    let marks = marks(root, &view, &mut findings);
    if let Err(error) = refuse_rocksdb(&*view, root) {
        let remedy = Remedy::Act("what is in there is not compared: nothing of it can be read");
        findings.add(Finding::new(Kind::Foreign, Severity::Error, root, error.to_string(), remedy));
    }

    let files = layout::log_files(&read_only, config, options.given, &mut findings)?;
    let folders = layout::queue_folders(&read_only, config, options.given, &mut findings)?;
    let index_files = layout::index_files(&read_only, config, options.given, &mut findings)?;
    let sizes = Sizes {
        commit_log: files.file_size,
        consume_queue: usize::try_from(folders.file_size).unwrap_or(usize::MAX),
        index: (index_files.geometry.slots, index_files.geometry.entries),
    };
    let (index_count, index_folder) = (index_files.files.len() as u64, root.join("index"));
    let limit = options.findings_per_kind;
    let index = config.index_enable.then(|| IndexCheck::new(&read_only, &files, next_start, &index_folder, index_files, limit));
    let rules = Rules {
        record_crc: config.force_record_crc,
        flushed: positions.flushed_offset.unwrap_or(0),
        retries: if live { LIVE_RETRIES } else { 0 },
    };
    let mut examiner = Examiner {
        marks: &marks,
        delay_levels_ms: &config.delay_levels_ms,
        queues: QueueCheck::new(&read_only, &files, next_start, folders, options.topics.as_ref()),
        index,
        holes: Holes::default(),
        counts: Counts::default(),
        first_seal: None,
        logics_offset: positions.logics_offset,
        logics_found: false,
        progress,
        begin: files.min_offset(),
        total: expected_end(&files, positions) - files.min_offset(),
    };
    let walked = log::walk(&files, rules, &mut examiner)?;
    let end = walked.tail.end;
    let Examiner { mut queues, index, holes, mut counts, first_seal, logics_found, .. } = examiner;
    queues.finish(end, &holes, &mut findings)?;
    let mut index_damaged = false;
    if let Some(mut index) = index {
        index.finish(end, &holes, &mut findings)?;
        index_damaged = index.is_damaged();
        counts.index_entries = index.entries();
    }
    let seen = Seen { root, files: &files, next_start, findings: &mut findings };
    let sync_failed = seen.tell(&view, &walked, &queues, index_count, first_seal.map(|first| (first, counts.sealed_records)))?;
    positions::tell(root, &view, &files, &walked, next_start, logics_found, &mut findings)?;
    tell_sizes(config, &sizes, options.given, &mut findings);
    tell_unreadable(&read_only, &mut findings);

    counts.log_files = files.segments.len() as u64;
    (counts.min_physical_offset, counts.max_physical_offset) = (files.min_offset(), end);
    (counts.queues, counts.units) = (queues.len() as u64, queues.units());
    (counts.index_files, counts.bytes) = (index_count, read_only.bytes());
    counts.ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (states, bounds, known) = (queues.states(), queues.bounds(), queues.of_damage());
    drop(queues);
    let report = Report { root: root.to_owned(), findings, counts, sizes, queues: bounds };
    Ok(Examined { report, log: files, walked, queues: states, index_damaged, known, positions, abrupt, sync_failed, marks })
}

/// Where the log probably ends, for the progress.
fn expected_end(files: &LogFiles, positions: Positions) -> i64 {
    let last = files.segments.last().map_or(0, |segment| segment.start);
    positions.flushed_offset.filter(|flushed| *flushed >= last).unwrap_or(i64::MAX).min(files.max_offset())
}

fn marks(root: &Path, view: &Arc<dyn Fs>, findings: &mut Findings) -> Marks {
    match DeletedTopics::load(root, Arc::clone(view)) {
        Ok(deleted) => deleted.read().clone(),
        Err(error) => {
            let path = root.join("config").join("deletedTopics.json");
            let remedy = Remedy::Act("repair it, or remove it to have the messages of deleted topics back");
            findings.add(Finding::new(Kind::MetadataDamaged, Severity::Error, &path, error.to_string(), remedy));
            Marks::default()
        }
    }
}

/// Who compares everything with each record.
struct Examiner<'a> {
    marks: &'a Marks,
    delay_levels_ms: &'a [i64],
    queues: QueueCheck<'a>,
    index: Option<IndexCheck<'a>>,
    holes: Holes,
    counts: Counts,
    first_seal: Option<i64>,
    logics_offset: i64,
    /// A record begins where the checkpoint says that the last dispatched one does.
    logics_found: bool,
    progress: &'a mut dyn FnMut(Progress),
    begin: i64,
    total: i64,
}

impl Visitor for Examiner<'_> {
    fn record(&mut self, record: &Record<'_>, offset: i64) {
        self.counts.records += 1;
        self.counts.long_topic_records += u64::from(record.v2);
        self.logics_found |= offset == self.logics_offset;
        if seal::is_seal(record) {
            self.counts.sealed_records += 1;
            self.first_seal.get_or_insert(offset);
            self.holes.push(offset, offset + record.total_size as i64);
            self.queues.seal(offset, record.total_size);
            return;
        }
        let found = Dispatched::read(record.properties);
        let is_hidden = self.marks.hide(record.topic, offset);
        if has_unit(record.sys_flag) && !is_hidden {
            self.queues.record(record, offset, found.tags_code(record, self.delay_levels_ms), &self.holes);
        }
        if let Some(index) = &mut self.index
            && has_keys(record.sys_flag)
        {
            index.record(record, offset, &found, is_hidden, &self.holes);
        }
    }

    fn blank(&mut self, start: i64, end: i64) {
        self.holes.push_blank(start, end);
    }

    fn damage(&mut self, damage: &Damage) {
        self.holes.push(damage.start, damage.end);
    }

    fn progress(&mut self, offset: i64) {
        let total = self.total.max(0).unsigned_abs();
        let done = (offset - self.begin).max(0).unsigned_abs().min(total);
        (self.progress)(Progress { what: "checking", done, total });
    }
}

/// What is told of the log once it was walked.
struct Seen<'a> {
    root: &'a Path,
    files: &'a LogFiles,
    next_start: NextStart,
    findings: &'a mut Findings,
}

impl Seen<'_> {
    /// Returns whether a sync failed in the last run.
    fn tell(
        mut self, view: &Arc<dyn Fs>, walked: &Walked, queues: &QueueCheck<'_>, index_files: u64, seals: Option<(i64, u64)>,
    ) -> Result<bool, StoreError> {
        let dir = self.files.folders.first().map_or(self.root, PathBuf::as_path);
        if self.files.segments.is_empty() && (index_files > 0 || queues.states().iter().any(|queue| queue.end > 0)) {
            let remedy = Remedy::Act("put the log's files back: a start without them empties all queues");
            let text = "no file of the log, but queues or an index that were made from it";
            self.findings.add(Finding::new(Kind::LogMissing, Severity::Error, dir, text, remedy));
        }
        walked.damage.iter().for_each(|damage| self.damage(damage));
        for blank in &walked.blanks {
            let left = self.files.file_size - blank.at;
            let text = format!("the blank record that ends the file states {} bytes, it covers {left}", blank.stated);
            let path = &self.files.segments[blank.index].path;
            self.findings.add(Finding::new(Kind::BlankSize, Severity::Warning, path, text, Remedy::Repair).at(blank.at as u64));
        }
        for (from, to) in &walked.gaps {
            let text = format!("no file for physical offsets {from} to {to}");
            let remedy = Remedy::Act("put the missing files back, or start with allowCommitLogHole=true to go on without their messages");
            self.findings.add(Finding::new(Kind::LogFileMissing, Severity::Error, dir, text, remedy).physical(*from));
        }
        self.tail(walked);
        if let Some((first, count)) = seals {
            let text = "records that hold the place of damaged ones, from here on";
            let finding = Finding::new(Kind::SealedRecords, Severity::Note, dir, text, Remedy::Nothing).count(count);
            self.findings.add(self.files.locate(finding, first));
        }
        self.folder(view)
    }

    fn damage(&mut self, damage: &Damage) {
        let bytes = damage.end - damage.start;
        let whose = damage.record.as_ref();
        let (kind, severity, remedy, mut text) = if damage.is_missing_blank {
            let text = format!("the file does not end with a blank record, its last {bytes} bytes are zeros");
            (Kind::BlankMissing, Severity::Error, Remedy::Repair, text)
        } else if damage.zero_sector && self.next_start.is_unacknowledged(damage.start) {
            let text = format!("{bytes} bytes are no record, in writes that did not arrive as a whole: {}", damage.why);
            (Kind::UnfinishedWrites, Severity::Warning, Remedy::Start, text)
        } else {
            (Kind::DamagedRecords, Severity::Error, Remedy::Repair, format!("{bytes} bytes are no record: {}", damage.why))
        };
        if let Some((topic, queue_id, queue_offset)) = whose {
            text += &format!(" (it was a record of topic {topic} queue {queue_id} queue offset {queue_offset})");
        }
        let mut finding = Finding::new(kind, severity, self.root, text, remedy);
        if let Some((topic, queue_id, queue_offset)) = whose {
            finding = finding.queue(topic, *queue_id).queue_offset(*queue_offset);
        }
        self.findings.add(self.files.locate(finding, damage.start));
    }

    fn tail(&mut self, walked: &Walked) {
        let tail = &walked.tail;
        let lost = self.next_start.positions.flushed_offset.filter(|flushed| *flushed > tail.end);
        let is_torn = tail.dirty.is_some() || tail.surplus.iter().any(|(_, is_dirty)| *is_dirty);
        if is_torn {
            let expected = self.next_start.abrupt && lost.is_none();
            let (severity, remedy) = if expected { (Severity::Warning, Remedy::Start) } else { (Severity::Error, Remedy::Repair) };
            let bytes = tail.dirty.map_or(0, |(_, behind)| behind - tail.at);
            let why = if tail.why.is_empty() { "there is something behind its last blank record" } else { &tail.why };
            let text = format!("the log ends here, {bytes} bytes behind are no records: {why}");
            self.findings.add(self.files.locate(Finding::new(Kind::TornTail, severity, self.root, text, remedy), tail.end));
        }
        for (path, is_dirty) in &tail.surplus {
            let what = if *is_dirty { "without any record" } else { "of zeros" };
            let text = format!("a file {what} behind the one in which the log ends");
            let severity = if self.next_start.live { Severity::Note } else { Severity::Warning }; // the next one, made ahead
            self.findings.add(Finding::new(Kind::SurplusFile, severity, path, text, Remedy::Start));
        }
        if let Some(flushed) = lost.filter(|_| !self.files.segments.is_empty()) {
            let text = format!("the log ends here, but was on disk up to {flushed}: {} bytes are lost", flushed - tail.end);
            let remedy = Remedy::Act("restore the end of the log, or accept the loss: petrel store repair");
            let finding = Finding::new(Kind::LogShortened, Severity::Error, self.root, text, remedy);
            self.findings.add(self.files.locate(finding, tail.end));
        }
    }

    /// What else lies in the store's folder.
    fn folder(&mut self, view: &Arc<dyn Fs>) -> Result<bool, StoreError> {
        let abort = self.root.join("abort");
        if self.next_start.live {
            let text = "a broker has the store open: what it is writing looks like an abrupt stop";
            self.findings.add(Finding::new(Kind::Abort, Severity::Note, &abort, text, Remedy::Nothing));
        } else if self.next_start.abrupt {
            let text = "the last stop was not in order: the next start looks closely";
            self.findings.add(Finding::new(Kind::Abort, Severity::Warning, &abort, text, Remedy::Start));
        }
        let mark = self.root.join(SYNC_FAILED);
        let sync_failed = view.exists(&mark);
        if sync_failed {
            let text = "the disk failed to keep what was written in the last run: the next start writes it again";
            let remedy = Remedy::Act("check the disk, then start the broker");
            self.findings.add(Finding::new(Kind::SyncFailed, Severity::Warning, &mark, text, remedy));
        }
        let lost = self.root.join("lost");
        let kept = view.list(&lost).map_err(failed("list", &lost))?;
        if !kept.is_empty() {
            let text = "originals of damaged records, and what repairs replaced";
            let remedy = Remedy::Act("look through it, then remove it");
            self.findings.add(Finding::new(Kind::Lost, Severity::Note, &lost, text, remedy).count(kept.len() as u64));
        }
        let left = self.root.join(WORK_FOLDER);
        if view.exists(&left) {
            let text = "left by a repair that was cut short: nothing in it is needed";
            self.findings.add(Finding::new(Kind::RepairLeft, Severity::Warning, &left, text, Remedy::Repair));
        }
        Ok(sync_failed)
    }
}

/// Sizes that only the files told: a broker has to be told them too.
fn tell_sizes(config: &StoreConfig, sizes: &Sizes, given: Given, findings: &mut Findings) {
    let mut keys = Vec::new();
    if !given.commit_log && sizes.commit_log != config.commit_log_file_size {
        keys.push(format!("mappedFileSizeCommitLog={}", sizes.commit_log));
    }
    if !given.consume_queue && sizes.consume_queue != config.consume_queue_file_size {
        keys.push(format!("mappedFileSizeConsumeQueue={}", sizes.consume_queue));
    }
    if !given.index && sizes.index != (config.index_slots, config.index_entries) {
        keys.push(format!("maxHashSlotNum={} maxIndexNum={}", sizes.index.0, sizes.index.1));
    }
    if !keys.is_empty() {
        let text = format!("the files were made with {}", keys.join(" "));
        let remedy = Remedy::Act("the broker has to have the same configuration");
        findings.add(Finding::new(Kind::FoundSizes, Severity::Note, &config.root, text, remedy));
    }
}

fn tell_unreadable(fs: &ReadOnlyFs, findings: &mut Findings) {
    let (kept, more) = fs.unreadable();
    let remedy = Remedy::Act("the disk fails: copy the store to another one before anything else");
    for part in kept {
        let text = format!("{} bytes cannot be read: {}", part.len, part.why);
        findings.add(Finding::new(Kind::Unreadable, Severity::Error, &part.path, text, remedy).at(part.at));
    }
    if more > 0 {
        let text = "more pieces of files cannot be read";
        findings.add(Finding::new(Kind::Unreadable, Severity::Error, Path::new(""), text, remedy).count(more));
    }
}
