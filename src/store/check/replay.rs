//! The walk once more, for who builds queues and index from it: records get the queue offsets that a check gives them.

use std::sync::Arc;

use crate::common::record::Record;
use crate::store::StoreConfig;
use crate::store::checkpoint::Positions;
use crate::store::deleted_topics::Marks;
use crate::store::dispatch::{Dispatched, has_keys, has_unit, put_keys};
use crate::store::error::StoreError;
use crate::store::fs::Fs;
use crate::store::index::Index;
use crate::store::seal;

use super::damage::{Holes, NextStart};
use super::layout::{self, Given};
use super::log::{Damage, Rules, Visitor, walk};
use super::queues::{QueueCheck, QueueState, UnitSink};
use super::read_only::ReadOnlyFs;
use super::report::Findings;
use super::{LogFiles, Progress};

/// Everything given: the sizes are known by now.
const KNOWN: Given = Given { commit_log: true, consume_queue: true, index: true };

/// The log's files, of a known length.
///
/// # Errors
/// The system's.
pub(in crate::store) fn log_files(config: &StoreConfig, fs: &Arc<dyn Fs>) -> Result<LogFiles, StoreError> {
    layout::log_files(&ReadOnlyFs::new(Arc::clone(fs)), config, KNOWN, &mut Findings::new(0))
}

/// Walks over the log: tells `sink` the units of the queues that it wants, puts all keys into `index`. Returns the queues as they should be
/// then.
///
/// # Errors
/// The system's; those of sink and index.
pub(in crate::store) fn replay(
    config: &StoreConfig, fs: &Arc<dyn Fs>, files: &LogFiles, marks: &Marks, sink: &mut dyn UnitSink, index: Option<&Index>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<QueueState>, StoreError> {
    let read_only = ReadOnlyFs::new(Arc::clone(fs));
    let mut unheard = Findings::new(0);
    let folders = layout::queue_folders(&read_only, config, KNOWN, &mut unheard)?;
    let next_start = NextStart { abrupt: false, live: false, positions: Positions::default() };
    let mut queues = QueueCheck::new(&read_only, files, next_start, folders, None);
    queues.tell_units(sink);
    let (begin, end) = (files.min_offset(), files.max_offset());
    let delay_levels_ms = &config.delay_levels_ms;
    let mut visitor = Replay { marks, delay_levels_ms, queues, index, holes: Holes::default(), progress, begin, end, error: None };
    let walked = walk(files, Rules { record_crc: config.force_record_crc, flushed: i64::MAX, retries: 0 }, &mut visitor)?;
    let Replay { mut queues, holes, error, .. } = visitor;
    queues.finish(walked.tail.end, &holes, &mut unheard)?;
    error.map_or_else(|| Ok(queues.states()), Err)
}

struct Replay<'a> {
    marks: &'a Marks,
    delay_levels_ms: &'a [i64],
    queues: QueueCheck<'a>,
    index: Option<&'a Index>,
    holes: Holes,
    progress: &'a mut dyn FnMut(Progress),
    begin: i64,
    end: i64,
    error: Option<StoreError>,
}

impl Visitor for Replay<'_> {
    fn record(&mut self, record: &Record<'_>, offset: i64) {
        if seal::is_seal(record) {
            self.holes.push(offset, offset + record.total_size as i64);
            self.queues.seal(offset, record.total_size);
            return;
        }
        if self.error.is_some() || self.marks.hide(record.topic, offset) {
            return;
        }
        let found = Dispatched::read(record.properties);
        if has_unit(record.sys_flag) {
            self.queues.record(record, offset, found.tags_code(record, self.delay_levels_ms), &self.holes);
        }
        if let Some(index) = self.index
            && has_keys(record.sys_flag)
            && let Err(error) = put_keys(index, record, &found, offset)
        {
            self.error = Some(error);
        }
    }

    fn blank(&mut self, start: i64, end: i64) {
        self.holes.push_blank(start, end);
    }

    fn damage(&mut self, damage: &Damage) {
        self.holes.push(damage.start, damage.end);
    }

    fn progress(&mut self, offset: i64) {
        let span = |to: i64| (to - self.begin).max(0).unsigned_abs();
        (self.progress)(Progress { what: "rebuilding", done: span(offset), total: span(self.end) });
    }
}
