//! The checkpoint against the log.

use std::path::Path;
use std::sync::Arc;

use crate::store::checkpoint::Positions;
use crate::store::error::StoreError;
use crate::store::file_cache::failed;
use crate::store::fs::Fs;
use crate::store::start_place::CLOCK_TOLERANCE_MS;

use super::damage::NextStart;
use super::layout::LogFiles;
use super::log::Walked;
use super::report::{Finding, Findings, Kind, Remedy, Severity};

/// Lengths that brokers give the file: an old one's three fields, with the later ones, as it is today.
const LENGTHS: [u64; 5] = [24, 32, 40, 48, 4096];
/// Position of the first dispatched record's offset.
const LOGICS_OFFSET: u64 = 40;

/// Tells what cannot be in the checkpoint of the store in `root`. `logics_found`: a record begins where it says that the last dispatched one
/// does.
///
/// # Errors
/// The system's.
pub(super) fn tell(
    root: &Path, view: &Arc<dyn Fs>, files: &LogFiles, walked: &Walked, next_start: NextStart, logics_found: bool, findings: &mut Findings,
) -> Result<(), StoreError> {
    let path = root.join("checkpoint");
    let Some((last_record, newest)) = walked.last_record else { return Ok(()) };
    if !view.exists(&path) {
        let text = "no checkpoint: the next start reads the whole log";
        findings.add(Finding::new(Kind::CheckpointMissing, Severity::Warning, &path, text, Remedy::Start));
        return Ok(());
    }
    let file = view.open_read(&path).map_err(failed("open", &path))?;
    let len = file.len().map_err(failed("stat", &path))?;
    if !LENGTHS.contains(&len) {
        let text = format!("{len} bytes instead of 4096: what is missing counts as zero");
        findings.add(Finding::new(Kind::CheckpointLength, Severity::Warning, &path, text, Remedy::Start));
    }
    let mut bytes = vec![0; usize::try_from(len.min(48)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0).map_err(failed("read", &path))?;
    let mut wrong = |severity, at: u64, text: String, remedy| {
        findings.add(Finding::new(Kind::CheckpointField, severity, &path, text, remedy).at(at));
    };
    for (place, field) in bytes.chunks_exact(8).enumerate() {
        if field[0] & 0x80 != 0 {
            wrong(Severity::Warning, place as u64 * 8, format!("field {place} is negative: it counts as zero"), Remedy::Start);
        }
    }
    let Positions { physic_timestamp, logics_timestamp, index_timestamp, confirm_offset, logics_offset, .. } = next_start.positions;
    let times = [
        (0, "physicMsgTimestamp", physic_timestamp),
        (8, "logicsMsgTimestamp", logics_timestamp),
        (16, "indexMsgTimestamp", index_timestamp),
    ];
    for (at, name, time) in times {
        if time > newest.saturating_add(CLOCK_TOLERANCE_MS) {
            let text = format!("{name} {time} lies more than an hour behind the newest record's time {newest}");
            wrong(Severity::Warning, at, text, Remedy::Start);
        }
    }
    let end = walked.tail.end;
    if confirm_offset > end {
        wrong(Severity::Warning, 32, format!("confirmPhyOffset {confirm_offset} lies behind the end of the log, {end}"), Remedy::Start);
    }
    if logics_offset > 0 && logics_offset >= files.min_offset() && !logics_found {
        let text = format!(
            "logicsPhysicalOffset {logics_offset} is no record's (the last one's is {last_record}): an abrupt stop would lose units"
        );
        wrong(Severity::Error, LOGICS_OFFSET, text, Remedy::Repair);
    }
    Ok(())
}
