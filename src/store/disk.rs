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

/// The commit log's disk, and that of the rest of the store.
#[derive(Debug)]
pub(super) struct DiskGuard {
    fs: Arc<dyn Fs>,
    path: PathBuf,
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
    /// A guard of the disk that holds the log, in `path`, and of the one that holds the store's root.
    pub(super) fn new(config: &StoreConfig, fs: Arc<dyn Fs>, path: &Path) -> Self {
        Self {
            fs,
            path: path.to_owned(),
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
        self.fs.space(&self.path).unwrap_or(Space { total: 0, free: 0 })
    }

    /// Free bytes below which appends are refused.
    pub(super) fn reserve(&self, space: Space) -> u64 {
        self.reserve.unwrap_or_else(|| DEFAULT_RESERVE_BYTES.min(space.total / 20))
    }

    /// Free bytes above the reserve: what may be taken ahead of the appender. No bound when the system does not say.
    pub(super) fn room(&self) -> u64 {
        self.fs.space(&self.path).map_or(u64::MAX, |space| space.free.saturating_sub(self.reserve(space)))
    }

    /// So few bytes are left above the reserve that the appender gets none of them.
    pub(super) fn no_room(&self) {
        let space = self.space();
        let (path, reserve) = (self.path.display(), self.reserve(space));
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
        let path = self.root.as_ref().unwrap_or(&self.path);
        let Ok(space) = self.fs.space(path) else { return Ok(()) };
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
        Err(StoreError::Damaged(path.clone(), why))
    }

    /// Why appends are refused, if they are.
    pub(super) fn refusal(&self) -> Option<String> {
        if self.refused.load(Ordering::Acquire) { self.refusal.read().clone() } else { None }
    }

    /// Whether appends are refused.
    pub(super) fn refuses(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// The disks that must have room, as far as the system tells: what cannot be measured does not refuse.
    fn disks(&self) -> impl Iterator<Item = (&Path, Space)> {
        let paths = [Some(&self.path), self.root.as_ref()].into_iter().flatten();
        paths.filter_map(|path| self.fs.space(path).ok().map(|space| (path.as_path(), space)))
    }

    /// Looks at the disks and begins to refuse if one is too full. Returns whether there is room.
    pub(super) fn check(&self) -> bool {
        match self.disks().find_map(|(path, space)| self.shortage(path, space)) {
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
            log::info!("writes accepted: path={} free={}", self.path.display(), self.space().free);
        }
    }

    /// What cleaning should do, with a log of so many bytes.
    pub(super) fn pressure(&self, log_bytes: i64) -> Pressure {
        let any = self.disks().find_map(|(path, space)| self.emergency(path, space));
        let full = |(_, space)| self.max_used_ratio.is_some_and(|limit| used_percent(space) > u64::from(limit));
        let (share_full, over_share) = self.share(log_bytes);
        let any = any.or(over_share);
        Pressure { expired: any.is_some() || share_full || self.disks().any(full), any }
    }

    /// Why files must go from a disk even if they are not expired.
    fn emergency(&self, path: &Path, space: Space) -> Option<String> {
        let used = used_percent(space);
        let forced = |limit: &u8| used > u64::from(*limit);
        let forced = self
            .clean_forcibly_ratio
            .filter(forced)
            .map(|limit| format!("{} is {used} % full, {} bytes free, diskSpaceCleanForciblyRatio={limit}", path.display(), space.free));
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

    fn shortage(&self, path: &Path, space: Space) -> Option<String> {
        let (used, reserve, path) = (used_percent(space), self.reserve(space), path.display());
        if space.free < reserve {
            let (free, total) = (space.free, space.total);
            return Some(format!("{path} has {free} bytes free of {total}, diskFreeReserveBytes={reserve}"));
        }
        let limit = self.warning_ratio.filter(|limit| used > u64::from(*limit))?;
        Some(format!("{path} is {used} % full, diskSpaceWarningLevelRatio={limit}; {} bytes free", space.free))
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
