//! What a store needs to know; filled from the broker's configuration. Java's key stands behind each field.

use std::path::PathBuf;

/// When an append is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushDiskType {
    /// After fdatasync (group commit). Our default.
    #[default]
    Sync,
    /// Once it is in the page cache.
    Async,
}

/// Configuration of a [`super::MessageStore`].
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Prefix of thread names; may be empty.
    pub tag: String,
    /// `storePathRootDir`.
    pub root: PathBuf,
    /// `storePathCommitLog`, the first path; `<root>/commitlog` when `None`.
    pub commit_log_path: Option<PathBuf>,
    /// The other paths of `storePathCommitLog`: files of the log are spread over all of them.
    pub more_commit_log_paths: Vec<PathBuf>,
    /// `readOnlyCommitLogStorePaths`: paths whose files are read, but in which none is made. They may be missing.
    pub read_only_commit_log_paths: Vec<PathBuf>,
    /// `mappedFileSizeCommitLog`, bytes.
    pub commit_log_file_size: usize,
    /// `mappedFileSizeConsumeQueue`, bytes, a multiple of 20.
    pub consume_queue_file_size: usize,
    /// `maxMessageSize`, bytes of a body.
    pub max_message_size: usize,
    /// `flushDiskType`.
    pub flush_disk_type: FlushDiskType,
    /// `flushIntervalCommitLog`, ms (ASYNC_FLUSH).
    pub flush_interval_ms: u64,
    /// `syncFlushTimeout`, ms.
    pub sync_flush_timeout_ms: u64,
    /// `flushIntervalConsumeQueue`, ms.
    pub flush_consume_queue_interval_ms: u64,
    /// `messageIndexEnable`.
    pub index_enable: bool,
    /// `maxHashSlotNum`.
    pub index_slots: u32,
    /// `maxIndexNum`.
    pub index_entries: u32,
    /// `maxMsgsNumBatch`.
    pub max_query_messages: usize,
    /// `fileReservedTime`, hours.
    pub file_reserved_hours: u64,
    /// `deleteWhen`, local hours of the day.
    pub delete_when_hours: Vec<u8>,
    /// `deleteFileBatchMax`.
    pub delete_file_batch_max: usize,
    /// `cleanResourceInterval`, ms.
    pub clean_interval_ms: u64,
    /// `cleanFileForciblyEnable`.
    pub clean_file_forcibly: bool,
    /// `diskMaxUsedSpaceRatio` in percent, when set.
    pub disk_max_used_ratio: Option<u8>,
    /// `diskSpaceCleanForciblyRatio` in percent, when set.
    pub disk_clean_forcibly_ratio: Option<u8>,
    /// `diskSpaceWarningLevelRatio` in percent, when set.
    pub disk_warning_ratio: Option<u8>,
    /// `diskFreeReserveBytes` (ours): below so much free space appends are refused; 4 GiB or 5 % of the disk, whichever is smaller, when `None`.
    pub disk_free_reserve: Option<u64>,
    /// `accessMessageInMemoryMaxRatio`, percent of memory.
    pub in_memory_ratio: u8,
    /// `checkCRCOnRecover`.
    pub check_crc_on_recover: bool,
    /// `enabledAppendPropCRC`: records get a CRC that covers all of them.
    pub append_record_crc: bool,
    /// `forceVerifyPropCRC`: recovery wants that CRC in every record, and does not look at the body's.
    pub force_record_crc: bool,
    /// `allowCommitLogHole` (ours): recovery goes on behind missing files, whose messages are lost; else it refuses to.
    pub allow_commit_log_hole: bool,
    /// `allowEmptyCommitLog` (ours): a log without files empties the queues that point into it, as in Java; else the start is refused.
    pub allow_empty_commit_log: bool,
    /// `ROCKETMQ_USE_OPTIMIZED_RECOVERY` (a variable of the environment): recovery reads the log in batches, not record by record.
    pub optimized_recovery: bool,
    /// `recoverConcurrently`.
    pub recover_concurrently: bool,
    /// `recoverThreadPoolNums`.
    pub recover_threads: usize,
    /// Delay of each level in ms, level 1 first: the consume queue of SCHEDULE_TOPIC_XXXX holds deliver times.
    pub delay_levels_ms: Vec<i64>,
}

impl StoreConfig {
    /// Defaults, in `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            tag: String::new(),
            root: root.into(),
            commit_log_path: None,
            more_commit_log_paths: Vec::new(),
            read_only_commit_log_paths: Vec::new(),
            commit_log_file_size: 1 << 30,
            consume_queue_file_size: 6_000_000,
            max_message_size: 4 << 20,
            flush_disk_type: FlushDiskType::Sync,
            flush_interval_ms: 500,
            sync_flush_timeout_ms: 5_000,
            flush_consume_queue_interval_ms: 1_000,
            index_enable: true,
            index_slots: 5_000_000,
            index_entries: 20_000_000,
            max_query_messages: 64,
            file_reserved_hours: 72,
            delete_when_hours: vec![4],
            delete_file_batch_max: 10,
            clean_interval_ms: 10_000,
            clean_file_forcibly: true,
            disk_max_used_ratio: None,
            disk_clean_forcibly_ratio: None,
            disk_warning_ratio: None,
            disk_free_reserve: None,
            in_memory_ratio: 40,
            check_crc_on_recover: true,
            append_record_crc: false,
            force_record_crc: false,
            allow_commit_log_hole: false,
            allow_empty_commit_log: true,
            optimized_recovery: true,
            recover_concurrently: false,
            recover_threads: 32,
            delay_levels_ms: parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h").unwrap_or_default(),
        }
    }
}

impl StoreConfig {
    /// Folders of the commit log in which files may be made: ascending, as Java numbers them.
    pub fn writable_commit_log_folders(&self) -> Vec<PathBuf> {
        let first = self.commit_log_path.clone().unwrap_or_else(|| self.root.join("commitlog"));
        let all: Vec<PathBuf> = std::iter::once(first).chain(self.more_commit_log_paths.iter().cloned()).collect();
        let mut writable: Vec<PathBuf> = all.iter().filter(|path| !self.read_only_commit_log_paths.contains(path)).cloned().collect();
        if writable.is_empty() {
            writable = all; // the log must go on somewhere
        }
        writable.sort();
        writable.dedup();
        writable
    }
}

/// Reads `messageDelayLevel`: numbers with s, m, h or d, separated by blanks. `None` when it is malformed or empty.
pub fn parse_delay_levels(text: &str) -> Option<Vec<i64>> {
    let levels: Option<Vec<i64>> = text
        .split_ascii_whitespace()
        .map(|level| {
            let unit_ms = match level.as_bytes().last()? {
                b's' => 1_000,
                b'm' => 60_000,
                b'h' => 3_600_000,
                b'd' => 86_400_000,
                _ => return None,
            };
            level[..level.len() - 1].parse::<i64>().ok().filter(|n| *n >= 0)?.checked_mul(unit_ms)
        })
        .collect();
    levels.filter(|levels| !levels.is_empty())
}
