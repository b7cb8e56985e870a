//! Units as they are read: by window, out of files of which only some are open.

use std::sync::Arc;

use crate::store::error::StoreError;
use crate::store::file_cache::failed;
use crate::store::format::cq_unit::{CQ_UNIT_SIZE, CqUnit};
use crate::store::fs::{Fs, FsFile};

use super::{MAX_SHIFT, QueueCheck, Run, UNIT, Wrong};

/// Bytes of one read behind the end of a queue.
const BATCH: usize = 64_000;

impl QueueCheck<'_> {
    /// The unit at a queue offset; `None` where there is no file for it.
    pub(super) fn read_unit(&mut self, place: usize, at: i64) -> Result<Option<CqUnit>, StoreError> {
        let queue = &self.queues[place];
        let in_window = usize::try_from(at - queue.window_first).ok().filter(|unit| (unit + 1) * CQ_UNIT_SIZE <= queue.window.len());
        if let Some(unit) = in_window {
            return Ok(Some(CqUnit::decode(&queue.window[unit * CQ_UNIT_SIZE..])));
        }
        let start = at * UNIT - (at * UNIT) % self.file_size as i64;
        let Ok(file) = queue.files.binary_search_by_key(&start, |(start, _)| *start) else { return Ok(None) };
        let len = queue.files[file].1 as i64 / UNIT;
        let within = at - start / UNIT;
        if within >= len {
            return Ok(None);
        }
        let opened = self.open(place, start)?;
        let from = (within - MAX_SHIFT).max(0);
        let units = self.windows.min((len - from) as usize);
        let queue = &mut self.queues[place];
        queue.window.resize(units * CQ_UNIT_SIZE, 0);
        queue.window.shrink_to(units * CQ_UNIT_SIZE);
        queue.window_first = i64::MAX; // nothing, should the read fail
        let read = opened.read_exact_at(&mut queue.window, (from * UNIT) as u64);
        read.map_err(failed("read", &queue.path(&self.root, start)))?;
        queue.window_first = at - (within - from);
        Ok(Some(CqUnit::decode(&queue.window[(within - from) as usize * CQ_UNIT_SIZE..])))
    }

    fn open(&self, place: usize, start: i64) -> Result<Arc<dyn FsFile>, StoreError> {
        let key = (place as u64, start);
        if let Some(file) = self.cache.get(key) {
            return Ok(file);
        }
        let path = self.queues[place].path(&self.root, start);
        let file = self.fs.open_read(&path).map_err(failed("open", &path))?;
        self.cache.insert(key, Arc::clone(&file));
        Ok(file)
    }

    /// What is no unit must be the end: only zeros may follow.
    pub(super) fn behind_units(&mut self, place: usize, from: i64, to: i64) -> Result<(), StoreError> {
        let files = self.queues[place].files.clone();
        let mut buffer = vec![0; BATCH];
        for (start, len) in files {
            let mut at = (from * UNIT - start).max(0) as u64;
            if start + (len as i64) <= from * UNIT || at >= len {
                continue;
            }
            let path = self.queues[place].path(&self.root, start);
            let file = self.open(place, start)?;
            while let Some(data) = file.next_data(at).map_err(failed("read", &path))?.filter(|data| *data < len) {
                let bytes = &mut buffer[..(len - data).min(BATCH as u64) as usize];
                file.read_exact_at(bytes, data).map_err(failed("read", &path))?;
                if let Some(dirty) = bytes.iter().position(|byte| *byte != 0) {
                    let unit = (start + data as i64 + dirty as i64) / UNIT;
                    self.queues[place].note(Run { to, ..Run::one(Wrong::Zero, from.min(unit), -1, 0) });
                    return Ok(());
                }
                at = data + bytes.len() as u64;
            }
        }
        Ok(())
    }
}
