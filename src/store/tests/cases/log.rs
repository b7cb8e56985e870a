//! Rows of the commit log: 1-33, 55-57, 67-73, 75, 81-83, 85-87.

use super::*;

/// The rows.
pub(super) const ROWS: &[Row] = &[
    Row { number: "1", name: "clean stop, nothing touched", case: Case::Start(&STANDARD, N, |_| nothing_is_lost("last_stop=clean")) },
    Row { number: "2", name: "kill -9 while idle", case: Case::Start(&STANDARD, A, |_| nothing_is_lost("last_stop=abrupt")) },
];

fn nothing_is_lost(logs: &'static str) -> Expected {
    Expected::Opens(Opens { logs: vec![logs], ..Opens::default() })
}
