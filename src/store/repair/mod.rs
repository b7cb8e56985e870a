//! stub
/// Where repairs build.
pub(super) const WORK_FOLDER: &str = "repair.tmp";
