//! Rows of consume queues, index, checkpoint and configuration: 34-54, 58-63, 80.

use super::*;

/// The rows.
pub(super) const ROWS: &[Row] = &[];
