//! Follows the commit log up to the visible offset; feeds consume queues and index ("reput").

use std::sync::Arc;

use crate::common::record::Record;

use super::consume_queue_table::ConsumeQueueTable;
use super::error::StoreError;
use super::index::Index;

/// Puts one record into its consume queue and the index. Shared by the dispatch thread and recovery.
pub(super) struct Dispatcher {
    queues: Arc<ConsumeQueueTable>,
    index: Option<Arc<Index>>,
    delay_levels_ms: Vec<i64>,
}

impl Dispatcher {
    /// A dispatcher into these tables.
    pub(super) fn new(queues: Arc<ConsumeQueueTable>, index: Option<Arc<Index>>, delay_levels_ms: Vec<i64>) -> Self {
        Self { queues, index, delay_levels_ms }
    }

    /// Dispatches a record that lies at `physical_offset`; returns its tags code (deliver time on the schedule topic).
    /// Prepared and rollback records get no unit. A record that cannot be dispatched is counted and skipped by the caller.
    ///
    /// # Errors
    /// The consume queue's; index failures pause the index and are not returned.
    pub(super) fn dispatch(&self, record: &Record<'_>, physical_offset: i64) -> Result<i64, StoreError> {
        let _ = (record, physical_offset, &self.queues, &self.index, &self.delay_levels_ms);
        todo!()
    }
}
