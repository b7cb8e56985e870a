//! The derived files' part of a repair: queues and index are built aside from the log, then put in their places.

use std::path::Path;
use std::sync::Arc;

use crate::store::StoreConfig;
use crate::store::check::{Examined, LogFiles, Progress, QueueState, replay};
use crate::store::error::StoreError;
use crate::store::file_cache::failed;
use crate::store::index::Index;
use crate::store::message_store::create_dir;

use super::queue_writer::QueueWriters;
use super::{Plan, Work};

impl Work<'_> {
    /// Builds what the plan names, durably, in the work folder; returns up to which time the index's full files reach, if it was built.
    pub(super) fn rebuild(
        &mut self, examined: &Examined, plan: &Plan<'_>, files: &LogFiles, progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<i64>, StoreError> {
        let (work, config) = (self.work_folder(), self.config);
        create_dir(&**self.fs, &work)?;
        let aside = StoreConfig { root: work.clone(), ..config.clone() };
        let index = if plan.index { Some(Index::load(&aside, Arc::clone(self.fs), None)?) } else { None };
        let file_size = examined.report.sizes.consume_queue as u64;
        let mut writers = QueueWriters::new(self.fs, work.join("consumequeue"), file_size, &plan.queues);
        let ends = replay::replay(config, self.fs, files, &examined.marks, &mut writers, index.as_ref(), progress)?;
        writers.finish(&ends)?;
        index.map(|index| index.flush().map(|()| index.final_until(i64::MAX))).transpose()
    }

    /// Puts what was built in its places. What was there goes to the kept files; no place is ever empty in between.
    pub(super) fn take_places(&mut self, plan: &Plan<'_>) -> Result<(), StoreError> {
        let (root, work) = (self.config.root.clone(), self.work_folder());
        for QueueState { topic, queue_id, .. } in &plan.queues {
            let name = Path::new("consumequeue").join(topic).join(queue_id.to_string());
            self.take_place(&work.join(&name), &root.join(&name), &name)?;
        }
        if plan.index {
            let name = Path::new("index");
            self.take_place(&work.join(name), &root.join(name), name)?;
        }
        Ok(())
    }

    /// Puts the folder `new` at `place`, what was there under `name` among the kept files.
    fn take_place(&mut self, new: &Path, place: &Path, name: &Path) -> Result<(), StoreError> {
        let fs = Arc::clone(self.fs);
        let above = |path: &Path| path.parent().unwrap_or(Path::new(".")).to_owned();
        match (fs.exists(new), fs.exists(place)) {
            (true, false) => {
                create_dir(&*fs, &above(place))?;
                fs.rename(new, place).map_err(failed("move", new))?;
            }
            (is_new, true) => {
                let kept = self.kept().join(name);
                create_dir(&*fs, &above(&kept))?;
                if is_new {
                    fs.rename(new, &kept).map_err(failed("move", new))?;
                    self.exchange(&kept, place)?;
                } else {
                    fs.rename(place, &kept).map_err(failed("move", place))?;
                }
                fs.sync_dir(&above(&kept)).map_err(failed("sync", &kept))?;
            }
            (false, false) => return Ok(()),
        }
        fs.sync_dir(&above(place)).map_err(failed("sync", place))
    }

    /// At once where the file system can. Where it cannot, a start between the steps builds what is missing, for the checkpoint promises nothing.
    fn exchange(&self, kept: &Path, place: &Path) -> Result<(), StoreError> {
        match self.fs.exchange(kept, place) {
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {}
            exchanged => return exchanged.map_err(failed("exchange", place)),
        }
        let aside = kept.with_extension("old");
        self.fs.rename(place, &aside).map_err(failed("move", place))?;
        self.fs.rename(kept, place).map_err(failed("move", kept))?;
        self.fs.rename(&aside, kept).map_err(failed("move", &aside))
    }
}
