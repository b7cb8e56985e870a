//! Stores that look like ours and are not to be served as such: opening them would lose what they hold.

use std::path::Path;

use crate::common::record;

use super::config::StoreConfig;
use super::error::StoreError;
use super::fs::Fs;
use super::mapped_file_queue::Segment;
use super::scan::read_record;

/// Refuses a folder whose consume queues or metadata are in RocksDB. A folder `rocksdbstore` alone proves nothing: newer Java brokers
/// make it in every store.
///
/// # Errors
/// [`StoreError::Damaged`] that names what was found; the system's.
pub(super) fn refuse_rocksdb(fs: &dyn Fs, root: &Path) -> Result<(), StoreError> {
    let queues = ["consumequeue", "consumequeue_r"].map(|name| root.join(name));
    let metadata = ["topics", "subscriptionGroups", "consumerOffsets", "rdb"].map(|name| root.join("config").join(name));
    let what = "is a RocksDB database of a broker with storeType=defaultRocksDB or RocksDB metadata, which cannot be read: have that broker \
                export it, or serve another folder";
    if let Some(found) = queues.into_iter().chain(metadata).find(|folder| fs.exists(&folder.join("CURRENT"))) {
        return Err(StoreError::Damaged(found, what.to_owned()));
    }
    let shared = root.join("rocksdbstore");
    for (path, is_folder) in fs.list(&shared).map_err(|error| StoreError::Io("list", shared.clone(), error))? {
        if !is_folder && holds_rocksdb_data(fs, &path)? {
            return Err(StoreError::Damaged(path, format!("the folder {what}")));
        }
    }
    Ok(())
}

fn holds_rocksdb_data(fs: &dyn Fs, path: &Path) -> Result<bool, StoreError> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("sst") => Ok(true),
        Some("log") => {
            let failed = |error| StoreError::Io("look at", path.to_path_buf(), error);
            Ok(fs.open(path, false).map_err(failed)?.len().map_err(failed)? > 0)
        }
        _ => Ok(false),
    }
}

/// With `forceVerifyPropCRC=true` a record without a CRC of its own ends the log: a log whose first record has none is refused, and so is
/// writing records without it.
///
/// # Errors
/// [`StoreError::Damaged`] that names the keys; the system's.
pub(super) fn refuse_records_without_crc(config: &StoreConfig, segments: &[Segment]) -> Result<(), StoreError> {
    if !config.force_record_crc {
        return Ok(());
    }
    let crc = record::RECORD_CRC;
    if let Some(first) = segments.first() {
        let mut bytes = Vec::new();
        let there = read_record(first, config.commit_log_file_size, 0, &mut bytes);
        let there = there.map_err(|error| StoreError::Io("read", first.path.clone(), error))?;
        if there && !record::has_record_crc(&bytes) {
            let why = format!(
                "forceVerifyPropCRC=true, but the first record has no {crc} property: every record without it would be cut off with all that \
                 follows; set forceVerifyPropCRC=false for a log that was not written with enabledAppendPropCRC=true from its begin on"
            );
            return Err(StoreError::Damaged(first.path.clone(), why));
        }
    }
    if config.append_record_crc {
        return Ok(());
    }
    let why = format!(
        "forceVerifyPropCRC=true needs enabledAppendPropCRC=true: messages stored without {crc} would be cut off by the next start"
    );
    Err(StoreError::Damaged(config.root.clone(), why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fs::RealFs;

    #[test]
    fn rocksdb_is_known_by_what_it_holds() {
        let refused = |name: &str, bytes: &[u8]| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, bytes).unwrap();
            refuse_rocksdb(&RealFs, folder.path()).err().map(|error| error.to_string())
        };
        for name in ["consumequeue/CURRENT", "consumequeue_r/CURRENT", "config/topics/CURRENT", "config/rdb/CURRENT"] {
            let text = refused(name, b"MANIFEST-000004\n").unwrap();
            assert!(text.contains("storeType=defaultRocksDB") && text.contains(name.trim_end_matches("/CURRENT")), "{text}");
        }
        assert!(refused("rocksdbstore/000007.sst", b"").is_some_and(|text| text.contains("000007.sst")));
        assert!(refused("rocksdbstore/000005.log", b"x").is_some());
        for (name, bytes) in [
            ("rocksdbstore/000005.log", &b""[..]),
            ("rocksdbstore/CURRENT", b"MANIFEST-000004\n"),
            ("config/topics.json", b"{}"),
            ("consumequeue/T/0/00000000000000000000", b""),
        ] {
            assert_eq!(refused(name, bytes), None, "{name}");
        }
    }
}
