//! Whether the disk has room, and what a sender is told when it has not.
//!
//! Writes are refused below the reserve, above the warning ratio when that is set, and after the system has said that there
//! is no space. What is taken ahead of the appender never reaches into the reserve; consume queues and index may use it down to
//! a floor, below which only small metadata is written. Whoever finds room again (`alloc`, every half second while refused) ends the refusal.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::config::StoreConfig;
use super::error::StoreError;
use super::fs::{Fs, Space};

/// Room above the reserve that ends a refusal: the smallest window of `alloc`, and smallest piece it takes.
pub(super) const MIN_ROOM: u64 = 1 << 20;
/// The floor is this part of the reserve,
const FLOOR_SHARE: u64 = 4;
/// and at most so many bytes.
const MAX_FLOOR_BYTES: u64 = 64 << 20;
/// Largest default reserve.
const DEFAULT_RESERVE_BYTES: u64 = 4 << 30;

/// The commit log's disk; with a log on several, the one with the smallest used share decides.
#[derive(Debug)]
pub(super) struct DiskGuard {
    fs: Arc<dyn Fs>,
    folders: Vec<PathBuf>,
    reserve: Option<u64>,
    max_used_ratio: Option<u8>,
    clean_forcibly_ratio: Option<u8>,
    warning_ratio: Option<u8>,
    refused: AtomicBool,
    refusal: RwLock<Option<String>>,
}

/// What the disk's state asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pressure {
    /// Expired files are to be deleted whatever the hour.
    pub(super) expired: bool,
    /// Files are to be deleted even if they are not expired: why.
    pub(super) any: Option<String>,
}

impl DiskGuard {
    /// A guard of the disks that hold the log.
    pub(super) fn new(config: &StoreConfig, fs: Arc<dyn Fs>) -> Self {
        Self {
            fs,
            folders: config.writable_commit_log_folders(),
            reserve: config.disk_free_reserve,
            max_used_ratio: config.disk_max_used_ratio,
            clean_forcibly_ratio: config.disk_clean_forcibly_ratio,
            warning_ratio: config.disk_warning_ratio,
            refused: AtomicBool::new(false),
            refusal: RwLock::new(None),
        }
    }

    /// Total and free bytes; zeros when the system does not say.
    pub(super) fn space(&self) -> Space {
        self.measure().map_or(Space { total: 0, free: 0 }, |(_, space)| space)
    }

    /// The folder whose disk has the smallest used share, and that disk's bytes.
    fn measure(&self) -> Option<(&Path, Space)> {
        let measured = self.folders.iter().filter_map(|folder| Some((folder.as_path(), self.fs.space(folder).ok()?)));
        measured.min_by_key(|(_, space)| used_percent(*space))
    }

    /// Where the log's file of a number is made: the folders take turns, as long as their disks have room.
    pub(super) fn folder_of_new_file(&self, number: i64) -> &Path {
        let has_room = |folder: &&PathBuf| self.folders.len() == 1 || self.fs.space(folder).is_ok_and(|space| !self.is_full(space));
        let mut with_room: Vec<&PathBuf> = self.folders.iter().filter(has_room).collect();
        if with_room.is_empty() {
            with_room = self.folders.iter().collect();
        }
        with_room[number.unsigned_abs() as usize % with_room.len()]
    }

    fn is_full(&self, space: Space) -> bool {
        space.free < self.reserve(space) || self.clean_forcibly_ratio.is_some_and(|limit| used_percent(space) > u64::from(limit))
    }

    /// Free bytes below which appends are refused.
    pub(super) fn reserve(&self, space: Space) -> u64 {
        self.reserve.unwrap_or_else(|| DEFAULT_RESERVE_BYTES.min(space.total / 20))
    }

    /// Free bytes above the reserve: what may be taken ahead of the appender. No bound when the system does not say.
    pub(super) fn room(&self) -> u64 {
        self.measure().map_or(u64::MAX, |(_, space)| space.free.saturating_sub(self.reserve(space)))
    }

    /// So few bytes are left above the reserve that the appender gets none of them.
    pub(super) fn no_room(&self) {
        let space = self.space();
        let (path, reserve) = (self.shown(), self.reserve(space));
        self.refuse(format!(
            "{path} has {} bytes free of {}, no room for more above diskFreeReserveBytes={reserve}",
            space.free, space.total
        ));
    }

    /// Whether consume queues and index may grow; what is left below is for metadata.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_floor(&self) -> Result<(), StoreError> {
        let Some((path, space)) = self.measure() else { return Ok(()) };
        let floor = (self.reserve(space) / FLOOR_SHARE).min(MAX_FLOOR_BYTES);
        if space.free >= floor {
            return Ok(());
        }
        let why = format!(
            "{} bytes free of {}, the last {floor} are kept for metadata (diskFreeReserveBytes={})",
            space.free,
            space.total,
            self.reserve(space)
        );
        Err(StoreError::Damaged(path.to_owned(), why))
    }

    /// Why appends are refused, if they are.
    pub(super) fn refusal(&self) -> Option<String> {
        if self.refused.load(Ordering::Acquire) { self.refusal.read().clone() } else { None }
    }

    /// Whether appends are refused.
    pub(super) fn refuses(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// Looks at the disk and begins to refuse if it is too full. Returns whether there is room.
    pub(super) fn check(&self) -> bool {
        let Some((_, space)) = self.measure() else { return true }; // what cannot be measured does not refuse
        match self.shortage(space) {
            Some(why) => {
                self.refuse(why);
                false
            }
            None => true,
        }
    }

    /// The system refused space for `path`.
    pub(super) fn no_space(&self, path: &Path, error: &io::Error) -> String {
        let space = self.space();
        let why = format!(
            "no space for {}: {error}; {} bytes free of {}, diskFreeReserveBytes={}; appends go on when there is space again",
            path.display(),
            space.free,
            space.total,
            self.reserve(space)
        );
        self.refuse(why.clone());
        why
    }

    /// There is room, and the system has just given some of it.
    pub(super) fn accept(&self) {
        if self.refused.swap(false, Ordering::AcqRel) {
            *self.refusal.write() = None;
            log::info!("writes accepted: path={} free={}", self.shown(), self.space().free);
        }
    }

    /// What cleaning should do.
    pub(super) fn pressure(&self) -> Pressure {
        let Some((_, space)) = self.measure() else { return Pressure { expired: false, any: None } };
        let used = used_percent(space);
        let above = |limit: Option<u8>| limit.filter(|limit| used > u64::from(*limit));
        let forced = |limit: u8| format!("{used} % used, {} bytes free, diskSpaceCleanForciblyRatio={limit}", space.free);
        let any = self.shortage(space).or_else(|| self.nearly_short(space)).or_else(|| above(self.clean_forcibly_ratio).map(forced));
        Pressure { expired: any.is_some() || above(self.max_used_ratio).is_some(), any }
    }

    /// Appends are refused although the reserve is whole: there is no room above it.
    fn nearly_short(&self, space: Space) -> Option<String> {
        let room = space.free.saturating_sub(self.reserve(space));
        if room >= MIN_ROOM { None } else { self.refusal() }
    }

    fn shortage(&self, space: Space) -> Option<String> {
        let (used, reserve) = (used_percent(space), self.reserve(space));
        if space.free < reserve {
            let (path, free, total) = (self.shown(), space.free, space.total);
            return Some(format!("{path} has {free} bytes free of {total}, diskFreeReserveBytes={reserve}"));
        }
        let limit = self.warning_ratio.filter(|limit| used > u64::from(*limit))?;
        Some(format!("{} is {used} % full, diskSpaceWarningLevelRatio={limit}; {} bytes free", self.shown(), space.free))
    }

    /// The folders, for texts.
    fn shown(&self) -> String {
        let shown: Vec<String> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        shown.join(", ")
    }

    fn refuse(&self, why: String) {
        let mut refusal = self.refusal.write();
        if !self.refused.swap(true, Ordering::AcqRel) {
            log::error!("writes refused: {why}");
        }
        *refusal = Some(why);
    }
}

/// Used share in percent, rounded up.
fn used_percent(space: Space) -> u64 {
    if space.total == 0 { 0 } else { (space.total.saturating_sub(space.free) * 100).div_ceil(space.total) }
}

/// Whether an error says that there is no space (or no quota) left.
pub(super) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
