//! What is known of a queue while the log is walked.

use std::path::PathBuf;

/// Runs of wrong units that are told apart in one queue; more are counted.
const MAX_RUNS: usize = 16;
/// Records with an impossible queue offset that are remembered of a queue.
pub(super) const MAX_ODD: usize = 64;
/// Tags codes at or below are addresses of Java's extension files.
const MAX_EXT_ADDRESS: i64 = i32::MIN as i64 - 1;

/// What is wrong with units of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Missing,
    Shifted(i64),
    Elsewhere,
    Tags,
    Bogus,
    BehindLog,
    Zero,
    Filler,
    OfDamage,
    Twice,
    Odd,
    Gap,
}

/// Consecutive queue offsets with the same trouble.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) what: Wrong,
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) count: u64,
    /// Of the first record or unit.
    pub(super) physical_offset: i64,
    pub(super) store_timestamp: i64,
}

/// What a record says about its unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) offset: i64,
    pub(super) size: i32,
    pub(super) tags_code: i64,
    pub(super) store_timestamp: i64,
    pub(super) is_delayed: bool,
}

/// A record with a queue offset that is in doubt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) at: i64,
    pub(super) wanted: Wanted,
}

/// One queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) topic: Box<str>,
    pub(super) queue_id: i32,
    pub(super) files: Vec<(i64, u64)>,
    pub(super) has_folder: bool,
    pub(super) files_damaged: bool,
    /// Not compared.
    pub(super) skipped: bool,
    /// Queue offset behind the last record; -1 before the first.
    pub(super) next: i64,
    /// First queue offset with a record.
    pub(super) first: i64,
    pub(super) records: u64,
    /// Where the numbering begins.
    pub(super) live_from: i64,
    pub(super) restarts: u32,
    /// A record whose queue offset does not follow the one before; the next record tells whether it is right.
    pub(super) pending: Option<Pending>,
    /// Physical offsets of records whose queue offsets cannot be.
    pub(super) odd: Vec<i64>,
    /// What could explain a gap, as counted at the last record.
    pub(super) explained: u64,
    pub(super) runs: Vec<Run>,
    pub(super) uncounted: u64,
    /// Behind the last unit that is right without a record.
    pub(super) tail_end: i64,
    pub(super) window: Vec<u8>,
    pub(super) window_first: i64,
}

/// Whether a unit's tags code is its record's. Deliver times were computed with the delays of their time.
pub(super) fn tags_fit(tags_code: i64, wanted: &Wanted) -> bool {
    tags_code == wanted.tags_code || tags_code <= MAX_EXT_ADDRESS || (wanted.is_delayed && tags_code >= wanted.store_timestamp)
}

impl Run {
    pub(super) fn one(what: Wrong, at: i64, physical_offset: i64, store_timestamp: i64) -> Self {
        Self { what, from: at, to: at.saturating_add(1), count: 1, physical_offset, store_timestamp }
    }
}

impl Queue {
    pub(super) fn new(topic: &str, queue_id: i32) -> Self {
        Self {
            topic: topic.into(),
            queue_id,
            files: Vec::new(),
            has_folder: false,
            files_damaged: false,
            skipped: false,
            next: -1,
            first: 0,
            records: 0,
            live_from: 0,
            restarts: 0,
            pending: None,
            odd: Vec::new(),
            explained: 0,
            runs: Vec::new(),
            uncounted: 0,
            tail_end: 0,
            window: Vec::new(),
            window_first: i64::MAX,
        }
    }

    pub(super) fn note(&mut self, run: Run) {
        let has_room = self.runs.len() < MAX_RUNS;
        match self.runs.last_mut() {
            Some(last) if last.what == run.what && last.to == run.from => {
                last.to = run.to;
                last.count += run.count;
            }
            _ if has_room => self.runs.push(run),
            _ if matches!(run.what, Wrong::Filler | Wrong::OfDamage) => {}
            _ => self.uncounted += run.count,
        }
    }

    /// A new numbering begins with this record.
    pub(super) fn restart(&mut self, at: i64, physical_offset: i64) {
        self.restarts += 1;
        self.runs.clear();
        self.uncounted = 0;
        self.odd.clear();
        (self.first, self.live_from, self.records) = (at, physical_offset, 0);
    }

    pub(super) fn is_damaged(&self) -> bool {
        let wrong = |run: &Run| !matches!(run.what, Wrong::Filler | Wrong::OfDamage | Wrong::Twice | Wrong::Odd | Wrong::Gap);
        self.files_damaged || self.uncounted > 0 || self.runs.iter().any(wrong)
    }

    pub(super) fn path(&self, root: &std::path::Path, start: i64) -> PathBuf {
        root.join(&*self.topic).join(self.queue_id.to_string()).join(format!("{start:020}"))
    }
}
