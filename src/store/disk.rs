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

/// What stands in for `diskMaxUsedSpaceRatio` when the log has a share of its disk.
const SHARE_MAX_USED_RATIO: u8 = 75;

/// The commit log's disk, and that of the rest of the store; with a log on several, the one with the smallest used share decides.
#[derive(Debug)]
pub(super) struct DiskGuard {
    fs: Arc<dyn Fs>,
    folders: Vec<PathBuf>,
    /// The store's root, when the log lies elsewhere.
    root: Option<PathBuf>,
    replicas: u64,
    share_clean_forcibly_ratio: u8,
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
    /// A guard of the disks that hold the log, and of the one that holds the store's root.
    pub(super) fn new(config: &StoreConfig, fs: Arc<dyn Fs>) -> Self {
        Self {
            fs,
            folders: config.writable_commit_log_folders(),
            root: config.commit_log_path.is_some().then(|| config.root.clone()),
            replicas: config.replicas_per_disk.max(1),
            share_clean_forcibly_ratio: config.share_clean_forcibly_ratio,
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
        let root = self.root.as_deref().and_then(|root| Some((root, self.fs.space(root).ok()?)));
        let Some((path, space)) = root.or_else(|| self.measure()) else { return Ok(()) };
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

    /// The disks that must have room and how they are called, as far as the system tells: what cannot be measured does not refuse.
    fn disks(&self) -> impl Iterator<Item = (String, Space)> {
        let log = self.measure().map(|(_, space)| (self.shown(), space));
        let root = self.root.as_ref().and_then(|root| Some((root.display().to_string(), self.fs.space(root).ok()?)));
        log.into_iter().chain(root)
    }

    /// Looks at the disks and begins to refuse if one is too full. Returns whether there is room.
    pub(super) fn check(&self) -> bool {
        match self.disks().find_map(|(path, space)| self.shortage(&path, space)) {
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

    /// What cleaning should do, with a log of so many bytes.
    pub(super) fn pressure(&self, log_bytes: i64) -> Pressure {
        let any = self.disks().find_map(|(path, space)| self.emergency(&path, space));
        let full = |(_, space): (String, Space)| self.max_used_ratio.is_some_and(|limit| used_percent(space) > u64::from(limit));
        let (share_full, over_share) = self.share(log_bytes);
        let any = any.or(over_share);
        Pressure { expired: any.is_some() || share_full || self.disks().any(full), any }
    }

    /// Why files must go from a disk even if they are not expired.
    fn emergency(&self, path: &str, space: Space) -> Option<String> {
        let used = used_percent(space);
        let forced = |limit: &u8| used > u64::from(*limit);
        let forced = self
            .clean_forcibly_ratio
            .filter(forced)
            .map(|limit| format!("{path} is {used} % full, {} bytes free, diskSpaceCleanForciblyRatio={limit}", space.free));
        self.shortage(path, space).or_else(|| self.nearly_short(space)).or(forced)
    }

    /// When several brokers share a disk: whether the log takes so much of its share that expired files must go, and why others must too.
    fn share(&self, log_bytes: i64) -> (bool, Option<String>) {
        let share = self.space().total / self.replicas;
        if self.replicas < 2 || share == 0 {
            return (false, None);
        }
        let (used, limit) = (u64::try_from(log_bytes).unwrap_or(0).saturating_mul(100) / share, self.share_clean_forcibly_ratio);
        let over = (used > u64::from(limit)).then(|| {
            let limit = f64::from(limit) / 100.0;
            format!(
                "the log takes {used} % of its share of {share} bytes, logicalDiskSpaceCleanForciblyThreshold={limit} replicasPerDiskPartition={}",
                self.replicas
            )
        });
        (used > u64::from(self.max_used_ratio.unwrap_or(SHARE_MAX_USED_RATIO)), over)
    }

    /// Appends are refused although the reserve is whole: there is no room above it.
    fn nearly_short(&self, space: Space) -> Option<String> {
        let room = space.free.saturating_sub(self.reserve(space));
        if room >= MIN_ROOM { None } else { self.refusal() }
    }

    fn shortage(&self, path: &str, space: Space) -> Option<String> {
        let (used, reserve) = (used_percent(space), self.reserve(space));
        if space.free < reserve {
            let (free, total) = (space.free, space.total);
            return Some(format!("{path} has {free} bytes free of {total}, diskFreeReserveBytes={reserve}"));
        }
        let limit = self.warning_ratio.filter(|limit| used > u64::from(*limit))?;
        Some(format!("{path} is {used} % full, diskSpaceWarningLevelRatio={limit}; {} bytes free", space.free))
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
