//! `store repair`: makes a store whole again, as far as the log allows.
//!
//! - A repair is planned from what a check found; without `apply` the plan is all there is. Records that count are never touched.
//! - Nothing that held data is removed: damaged bytes, the torn tail and replaced files go to `lost/`.
//! - A repair that is cut short anywhere leaves a store that a second repair, or a start, mends. It begins with the mark of an abrupt stop and
//!   a checkpoint that promises nothing, so that a start reads the whole log; queues and index are built aside and put in their places in one
//!   step each; mark and checkpoint tell the truth again only after everything is on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::StoreConfig;
use super::check::{CheckOptions, Examined, Findings, Kind, LogFiles, Progress, QueueState, Report, examine, is_store};
use super::checkpoint::{Checkpoint, Positions};
use super::error::StoreError;
use super::file_cache::failed;
use super::fs::Fs;
use super::lock_file::{AbortMark, StoreLock};

mod derived;
mod log;
mod queue_writer;
#[cfg(test)]
mod tests;

/// Folder below the store's in which new files are made; nothing in it is ever needed.
pub(super) const WORK_FOLDER: &str = "repair.tmp";

/// What a repair is to do.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// How to check.
    pub check: CheckOptions,
    /// Do it; otherwise it is only said.
    pub apply: bool,
    /// Build all consume queues anew, not only those found wrong.
    pub all_queues: bool,
    /// Build the key index anew, even if nothing is wrong with it.
    pub all_index: bool,
}

/// Kinds of steps. Their names in JSON are a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// A file of the log gets its length.
    ExtendFile,
    /// A file without a byte, or of zeros behind the log's end, goes.
    RemoveFile,
    /// A file behind the log's end that holds something goes to `lost/`.
    MoveFile,
    /// Damaged bytes are kept and replaced by records that hold their place.
    SealDamage,
    /// A file gets its blank record.
    EndFile,
    /// What lies behind the log's end is kept and zeroed.
    CutTail,
    /// A consume queue is built from the log.
    RebuildQueue,
    /// The key index is built from the log.
    RebuildIndex,
    /// The checkpoint is written.
    WriteCheckpoint,
    /// The mark of an abrupt stop goes.
    RemoveAbort,
}

impl Action {
    /// Name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Self::ExtendFile => "extendFile",
            Self::RemoveFile => "removeFile",
            Self::MoveFile => "moveFile",
            Self::SealDamage => "sealDamage",
            Self::EndFile => "endFile",
            Self::CutTail => "cutTail",
            Self::RebuildQueue => "rebuildQueue",
            Self::RebuildIndex => "rebuildIndex",
            Self::WriteCheckpoint => "writeCheckpoint",
            Self::RemoveAbort => "removeAbort",
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub action: Action,
    /// Which file or folder.
    pub path: PathBuf,
    /// In words.
    pub text: String,
}

/// What a repair did, or would do.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// What was found before.
    pub before: Report,
    /// What was done, or would be; in this order.
    pub steps: Vec<Step>,
    /// It was done.
    pub applied: bool,
    /// Where replaced files went, when there were any.
    pub kept: Option<PathBuf>,
    /// What was found afterwards, when something was done.
    pub after: Option<Report>,
}

impl Repaired {
    /// What the store is like now.
    pub fn now(&self) -> &Findings {
        &self.after.as_ref().unwrap_or(&self.before).findings
    }
}

/// Plans a repair and, with [`RepairOptions::apply`], does it.
///
/// # Errors
/// There is no store; a broker has it ([`StoreError::Locked`]); its disk does not give parts of it; the system's. What was done until then
/// does no harm.
pub fn repair(
    config: &StoreConfig, fs: &Arc<dyn Fs>, options: &RepairOptions, progress: &mut dyn FnMut(Progress),
) -> Result<Repaired, StoreError> {
    is_store(config, &**fs)?;
    if let Some(locked) = StoreLock::holder(&config.root, &**fs)? {
        return Err(locked);
    }
    let _lock = if options.apply { Some(StoreLock::take(&config.root, &**fs)?) } else { None };
    let examined = examine(config, fs, &options.check, false, progress)?;
    refuse_hopeless(config, &examined.report)?;
    let plan = Plan::new(config, &examined, options);
    plan.refuse_guesses(config, &examined, options)?;
    let steps = plan.steps(config, &examined);
    let mut repaired = Repaired { before: examined.report.clone(), steps, applied: false, kept: None, after: None };
    if options.apply && !repaired.steps.is_empty() {
        let sizes = examined.report.sizes;
        let sized = StoreConfig {
            commit_log_file_size: sizes.commit_log,
            consume_queue_file_size: sizes.consume_queue,
            index_slots: sizes.index.0,
            index_entries: sizes.index.1,
            ..config.clone()
        };
        let mut work = Work { config: &sized, fs, kept: None };
        work.apply(&examined, &plan, progress)?;
        repaired.applied = true;
        repaired.kept = work.kept;
        repaired.after = Some(examine(config, fs, &options.check, false, progress)?.report);
    }
    Ok(repaired)
}

/// What no repair from the log can help against.
fn refuse_hopeless(config: &StoreConfig, report: &Report) -> Result<(), StoreError> {
    let path = |kind| report.findings.shown().find(|finding| finding.kind == kind).map(|finding| finding.path.clone());
    if let Some(path) = path(Kind::Unreadable) {
        let why = "the disk does not give parts of it: copy the store to another disk first, then repair the copy";
        return Err(StoreError::Damaged(path, why.to_owned()));
    }
    if let Some(path) = path(Kind::LogMissing) {
        let why = "the log has no file, so nothing can be built from it: put its files back";
        return Err(StoreError::Damaged(path, why.to_owned()));
    }
    if let Some(path) = path(Kind::LogFileSize) {
        let why = format!(
            "the files do not have mappedFileSizeCommitLog={}: give the configuration that they were made with",
            config.commit_log_file_size
        );
        return Err(StoreError::Damaged(path, why));
    }
    Ok(())
}

/// What is to be done.
struct Plan<'a> {
    queues: Vec<&'a QueueState>,
    index: bool,
    /// Checkpoint or mark are to be written even if nothing else is.
    positions: bool,
    /// The mark may go in the end.
    ends_abrupt: bool,
}

impl<'a> Plan<'a> {
    fn new(config: &StoreConfig, examined: &'a Examined, options: &RepairOptions) -> Self {
        let wanted = |queue: &&QueueState| !queue.ignored && (queue.damaged || options.all_queues);
        let findings = &examined.report.findings;
        let positions = [Kind::CheckpointMissing, Kind::CheckpointLength, Kind::CheckpointField, Kind::LogShortened, Kind::RepairLeft];
        Self {
            queues: examined.queues.iter().filter(wanted).collect(),
            index: config.index_enable && (examined.index_damaged || options.all_index),
            positions: examined.abrupt || positions.into_iter().any(|kind| findings.total(kind) > 0),
            ends_abrupt: !examined.sync_failed,
        }
    }

    /// A store of other than the usual sizes has to be given those of files that are all gone: the broker would refuse others.
    fn refuse_guesses(&self, config: &StoreConfig, examined: &Examined, options: &RepairOptions) -> Result<(), StoreError> {
        let given = options.check.given;
        let no_queue = !self.queues.is_empty() && !given.consume_queue && !examined.queues.iter().any(|queue| queue.has_folder);
        let no_index = self.index && !given.index && examined.report.counts.index_files == 0;
        if examined.report.findings.total(Kind::FoundSizes) == 0 || !(no_queue || no_index) {
            return Ok(());
        }
        let keys = if no_queue { "mappedFileSizeConsumeQueue" } else { "maxHashSlotNum and maxIndexNum" };
        let why =
            format!("the files have other sizes than the default, and none is left that tells {keys}: give the broker's configuration");
        Err(StoreError::Damaged(config.root.clone(), why))
    }

    fn steps(&self, config: &StoreConfig, examined: &Examined) -> Vec<Step> {
        let mut steps = log::steps(examined);
        let queues = config.root.join("consumequeue");
        for QueueState { topic, queue_id, end, .. } in &self.queues {
            let text = format!("build the queue from the log; its next queue offset is {end}");
            steps.push(Step { action: Action::RebuildQueue, path: queues.join(topic).join(queue_id.to_string()), text });
        }
        if self.index {
            let text = "build the key index from the log".to_owned();
            steps.push(Step { action: Action::RebuildIndex, path: config.root.join("index"), text });
        }
        if steps.is_empty() && !self.positions {
            return steps;
        }
        let text = "write what is known to be on disk".to_owned();
        steps.push(Step { action: Action::WriteCheckpoint, path: config.root.join("checkpoint"), text });
        if examined.abrupt && self.ends_abrupt {
            let text = "remove the mark of the last, abrupt stop".to_owned();
            steps.push(Step { action: Action::RemoveAbort, path: config.root.join("abort"), text });
        }
        steps
    }
}

/// A repair at work.
struct Work<'a> {
    config: &'a StoreConfig,
    fs: &'a Arc<dyn Fs>,
    kept: Option<PathBuf>,
}

impl Work<'_> {
    fn apply(&mut self, examined: &Examined, plan: &Plan<'_>, progress: &mut dyn FnMut(Progress)) -> Result<(), StoreError> {
        let root = self.config.root.as_path();
        self.remove_work_folder()?;
        let (checkpoint, _) = Checkpoint::load(root, Arc::clone(self.fs))?;
        let (abort, _) = AbortMark::create(root, self.fs)?;
        let Positions { master_flushed_offset, confirm_offset, flushed_offset, .. } = examined.positions;
        let promises_nothing = Positions { master_flushed_offset, confirm_offset, flushed_offset, ..Positions::default() };
        checkpoint.write(promises_nothing, true)?;

        let files = self.mend_log(examined)?;
        let mut index_timestamp = examined.positions.index_timestamp;
        if plan.index || !plan.queues.is_empty() {
            let rebuilt = self.rebuild(examined, plan, &files, progress)?;
            self.take_places(plan)?;
            index_timestamp = rebuilt.unwrap_or(index_timestamp);
        }
        self.sync_all(&files, examined)?;

        let (last_record, newest) = examined.walked.last_record.unwrap_or_default();
        let positions = Positions {
            master_flushed_offset,
            physic_timestamp: newest,
            logics_timestamp: newest,
            index_timestamp: index_timestamp.min(newest),
            confirm_offset: last_record,
            logics_offset: last_record,
            flushed_offset: Some(examined.walked.tail.end),
            index_offset: examined.walked.tail.end,
            ..Positions::default()
        };
        checkpoint.write(positions, true)?;
        self.fs.sync_dir(root).map_err(failed("sync", root))?;
        if plan.ends_abrupt {
            abort.remove()?;
        }
        self.remove_work_folder()
    }

    fn work_folder(&self) -> PathBuf {
        self.config.root.join(WORK_FOLDER)
    }

    fn remove_work_folder(&self) -> Result<(), StoreError> {
        let folder = self.work_folder();
        if self.fs.exists(&folder) {
            self.fs.remove_dir_all(&folder).map_err(failed("remove", &folder))?;
            self.fs.sync_dir(&self.config.root).map_err(failed("sync", &self.config.root))?;
        }
        Ok(())
    }

    /// The folder for what this repair replaces.
    fn kept(&mut self) -> PathBuf {
        let (fs, lost) = (self.fs, self.config.root.join("lost"));
        let name = |number: u32| lost.join(format!("replaced.{number}"));
        self.kept.get_or_insert_with(|| (1..).map(name).find(|path| !fs.exists(path)).unwrap_or_else(|| name(0))).clone()
    }

    /// Makes everything durable that the checkpoint is about to speak of.
    fn sync_all(&self, files: &LogFiles, examined: &Examined) -> Result<(), StoreError> {
        for segment in &files.segments {
            self.sync_file(&segment.path)?;
        }
        self.sync_log_folders(files)?;
        if !examined.abrupt {
            return Ok(()); // an orderly stop has done it for the others
        }
        let root = self.config.root.join("consumequeue");
        for queue in examined.queues.iter().filter(|queue| queue.has_folder) {
            self.sync_folder(&root.join(&queue.topic).join(queue.queue_id.to_string()))?;
            self.sync_dir(&root.join(&queue.topic))?;
        }
        self.sync_dir(&root)?;
        self.sync_folder(&self.config.root.join("index"))
    }

    fn sync_log_folders(&self, files: &LogFiles) -> Result<(), StoreError> {
        files.folders.iter().try_for_each(|folder| self.sync_dir(folder))
    }

    fn sync_folder(&self, folder: &Path) -> Result<(), StoreError> {
        for (path, is_folder) in self.fs.list(folder).map_err(failed("list", folder))? {
            if !is_folder {
                self.sync_file(&path)?;
            }
        }
        self.sync_dir(folder)
    }

    fn sync_dir(&self, folder: &Path) -> Result<(), StoreError> {
        if self.fs.exists(folder) { self.fs.sync_dir(folder).map_err(failed("sync", folder)) } else { Ok(()) }
    }

    fn sync_file(&self, path: &Path) -> Result<(), StoreError> {
        let file = self.fs.open(path, false).map_err(failed("open", path))?;
        file.sync_data().map_err(failed("sync", path))
    }
}
