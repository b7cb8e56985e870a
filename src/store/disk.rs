//! Whether the disk has room, and what a sender is told when it has not.
//!
//! Writes are refused below the reserve, above the warning ratio when that is set, and after the system has said that there
//! is no space. Whoever finds room again (`alloc`, every half second while refused) ends the refusal.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::config::StoreConfig;
use super::fs::{Fs, Space};

/// Largest default reserve.
const DEFAULT_RESERVE_BYTES: u64 = 4 << 30;

/// The commit log's disk.
#[derive(Debug)]
pub(super) struct DiskGuard {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    reserve: Option<u64>,
    max_used_ratio: Option<u8>,
    clean_forcibly_ratio: Option<u8>,
    warning_ratio: Option<u8>,
    refused: AtomicBool,
    refusal: RwLock<Option<String>>,
}

/// What the disk's state asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pressure {
    /// Expired files are to be deleted whatever the hour.
    pub(super) expired: bool,
    /// Files are to be deleted even if they are not expired.
    pub(super) any: bool,
}

impl DiskGuard {
    /// A guard of the disk that holds `path`.
    pub(super) fn new(config: &StoreConfig, fs: Arc<dyn Fs>, path: &Path) -> Self {
        Self {
            fs,
            path: path.to_owned(),
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
        let Ok(space) = self.fs.space(&self.path) else { return true }; // what cannot be measured does not refuse
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
            log::info!("writes accepted: path={} free={}", self.path.display(), self.space().free);
        }
    }

    /// What cleaning should do.
    pub(super) fn pressure(&self) -> Pressure {
        let Ok(space) = self.fs.space(&self.path) else { return Pressure { expired: false, any: false } };
        let used = used_percent(space);
        let above = |limit: Option<u8>| limit.is_some_and(|limit| used > u64::from(limit));
        let any = space.free < self.reserve(space) || above(self.clean_forcibly_ratio) || above(self.warning_ratio);
        Pressure { expired: any || above(self.max_used_ratio), any }
    }

    fn shortage(&self, space: Space) -> Option<String> {
        let (used, reserve) = (used_percent(space), self.reserve(space));
        if space.free < reserve {
            let (path, free, total) = (self.path.display(), space.free, space.total);
            return Some(format!("{path} has {free} bytes free of {total}, diskFreeReserveBytes={reserve}"));
        }
        let limit = self.warning_ratio.filter(|limit| used > u64::from(*limit))?;
        Some(format!("{} is {used} % full, diskSpaceWarningLevelRatio={limit}; {} bytes free", self.path.display(), space.free))
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
