//! The log's part of a repair: lengths, damage in the middle, blank records, what lies behind the end.

use std::path::Path;

use crate::store::append::blank;
use crate::store::check::{Examined, LogFiles, replay};
use crate::store::error::StoreError;
use crate::store::file_cache::failed;
use crate::store::mapped_file_queue::Segment;
use crate::store::message_store::create_dir;
use crate::store::recovery::{blank_at, zero};
use crate::store::scan::Place;
use crate::store::seal::{self, Hole, Seals};

use super::{Action, Step, Work};

/// What is to be done to the log.
pub(super) fn steps(examined: &Examined) -> Vec<Step> {
    let (files, walked) = (&examined.log, &examined.walked);
    let mut steps = Vec::new();
    let mut step = |action, path: &Path, text: String| steps.push(Step { action, path: path.to_owned(), text });
    for path in &files.short {
        step(Action::ExtendFile, path, format!("extend to {} bytes, with zeros", files.file_size));
    }
    if let Some(path) = &files.empty {
        step(Action::RemoveFile, path, "remove the file: it has no byte".to_owned());
    }
    for damage in &walked.damage {
        let (path, bytes) = (&files.segments[damage.index].path, damage.end - damage.start);
        if damage.is_missing_blank {
            step(Action::EndFile, path, format!("end the file with a blank record at physical offset {}", damage.start));
        } else {
            step(Action::SealDamage, path, format!("keep {bytes} bytes at physical offset {} in lost/, seal the hole", damage.start));
        }
    }
    for wrong in &walked.blanks {
        step(Action::EndFile, &files.segments[wrong.index].path, format!("state the right length in the blank record at {}", wrong.at));
    }
    if let Some((_, behind)) = walked.tail.dirty {
        let text = format!("keep {} bytes behind physical offset {} in lost/, zero them", behind - walked.tail.at, walked.tail.end);
        step(Action::CutTail, &files.segments[walked.tail.index].path, text);
    }
    for (path, is_dirty) in &walked.tail.surplus {
        if *is_dirty {
            step(Action::MoveFile, path, "move the file to lost/: it holds no record".to_owned());
        } else {
            step(Action::RemoveFile, path, "remove the file: it is all zeros".to_owned());
        }
    }
    steps
}

impl Work<'_> {
    /// Does the steps of the log, in their order; gives its files as they are then.
    pub(super) fn mend_log(&mut self, examined: &Examined) -> Result<LogFiles, StoreError> {
        let (files, walked) = (&examined.log, &examined.walked);
        for path in &files.short {
            let file = self.fs.open(path, false).map_err(failed("open", path))?;
            file.set_len(files.file_size as u64).and_then(|()| file.sync_data()).map_err(failed("extend", path))?;
        }
        if let Some(path) = &files.empty {
            self.fs.remove_file(path).map_err(failed("remove", path))?;
        }
        let mut changed: Vec<Segment> = Vec::new();
        for damage in &walked.damage {
            let segment = self.writable(&files.segments[damage.index])?;
            let hole = damage.hole(&files.segments, files.file_size);
            if !damage.is_missing_blank {
                seal::keep(&**self.fs, &self.config.root, &segment, hole)?;
            }
            let seals = Seals { record_crc: self.config.force_record_crc, store_timestamp: damage.store_timestamp };
            let at = |offset: i64| (offset - segment.start).max(0) as usize;
            let known = examined.known.iter().filter(|(start, _)| (damage.start..damage.end).contains(start));
            let known: Vec<_> = known.map(|(start, size)| at(*start)..at(*start + i64::from(*size))).collect();
            seal::fill(&segment, hole, seals, &known, files.file_size)?;
            changed.push(segment);
        }
        for wrong in &walked.blanks {
            let segment = self.writable(&files.segments[wrong.index])?;
            let written = segment.file.write_all_at(&blank(files.file_size - wrong.at), wrong.at as u64);
            written.map_err(failed("write", &segment.path))?;
            changed.push(segment);
        }
        self.cut_tail(examined, &mut changed)?;
        for segment in changed {
            segment.file.sync_data().map_err(failed("sync", &segment.path))?;
        }
        for (path, is_dirty) in walked.tail.surplus.iter().rev() {
            // the last first: no hole if this is cut short
            self.remove_surplus(path, *is_dirty)?;
        }
        self.sync_log_folders(files)?;
        replay::log_files(self.config, self.fs)
    }

    fn writable(&self, segment: &Segment) -> Result<Segment, StoreError> {
        let file = self.fs.open(&segment.path, false).map_err(failed("open", &segment.path))?;
        Ok(Segment { path: segment.path.clone(), start: segment.start, file })
    }

    /// Zeroes what lies behind the last record in its file.
    fn cut_tail(&self, examined: &Examined, changed: &mut Vec<Segment>) -> Result<(), StoreError> {
        let (files, tail) = (&examined.log, &examined.walked.tail);
        let Some((_, behind)) = tail.dirty else { return Ok(()) };
        let segment = self.writable(&files.segments[tail.index])?;
        let blank = blank_at(&segment, tail.at, files.file_size)?;
        let hole = Hole { place: Place { index: tail.index, at: tail.at + blank }, end: behind };
        seal::keep(&**self.fs, &self.config.root, &segment, hole)?;
        zero(&segment, tail.at + blank, files.file_size)?;
        changed.push(segment);
        Ok(())
    }

    fn remove_surplus(&mut self, path: &Path, is_dirty: bool) -> Result<(), StoreError> {
        if !is_dirty {
            return self.fs.remove_file(path).map_err(failed("remove", path));
        }
        let folder = self.kept().join("commitlog");
        create_dir(&**self.fs, &folder)?;
        let to = folder.join(path.file_name().unwrap_or_default());
        self.fs.rename(path, &to).map_err(failed("move", path))?;
        self.fs.sync_dir(&folder).map_err(failed("sync", &folder))
    }
}
