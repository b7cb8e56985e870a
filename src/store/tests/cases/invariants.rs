//! I1, I2 and I4 on the files of a store that has stopped, read without the store's own readers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::record::{self, Record, RecordError};
use crate::common::sysflag;
use crate::store::config::StoreConfig;
use crate::store::format::cq_unit::{CQ_UNIT_SIZE, CqUnit};

/// A record of the log.
struct Entry {
    size: usize,
    topic: String,
    queue_id: i32,
    queue_offset: i64,
    transaction: i32,
}

/// Checks the files of a stopped store whose log ends at `end`; with `damaged`, bodies are let pass.
pub(in crate::store::tests) fn hold(config: &StoreConfig, end: i64, damaged: bool) {
    let files = log_files(config);
    let records = read_log(&files, config.commit_log_file_size, end, damaged);
    let last = files.last_key_value().map_or(0, |(start, _)| *start);
    assert!(last <= end, "I4: the file at {last} lies behind the end {end}");
    let units = read_queues(config);
    for ((topic, queue_id, offset), unit) in &units {
        let what = format!("unit {offset} of {topic} {queue_id}, {unit:?}");
        let file = unit.physical_offset - unit.physical_offset % config.commit_log_file_size as i64;
        if !unit.is_present() || !files.contains_key(&file) {
            continue; // of what was removed
        }
        let Some((start, entry)) = records.range(..=unit.physical_offset).next_back() else { panic!("I1: {what}: no record") };
        assert!(unit.end() <= *start + entry.size as i64, "I1: {what}: not in one record");
        if entry.transaction == sysflag::TRANSACTION_ROLLBACK {
            continue; // a seal
        }
        assert_eq!((*start, entry.size), (unit.physical_offset, unit.size as usize), "I1: {what}");
        assert_eq!((&entry.topic, entry.queue_id, entry.queue_offset), (topic, *queue_id, *offset), "I1: {what}");
    }
    for (start, entry) in &records {
        if matches!(entry.transaction, sysflag::TRANSACTION_NOT | sysflag::TRANSACTION_COMMIT) {
            let unit = units.get(&(entry.topic.clone(), entry.queue_id, entry.queue_offset));
            assert_eq!(
                unit.map(|unit| unit.physical_offset),
                Some(*start),
                "I2: {} {} {}",
                entry.topic,
                entry.queue_id,
                entry.queue_offset
            );
        }
    }
}

fn log_files(config: &StoreConfig) -> BTreeMap<i64, PathBuf> {
    numbered(&config.commit_log_path.clone().unwrap_or_else(|| config.root.join("commitlog")))
}

fn numbered(folder: &Path) -> BTreeMap<i64, PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return BTreeMap::new() };
    let number = |path: PathBuf| {
        let start = path.file_name()?.to_str()?.parse().ok().filter(|_| path.is_file())?;
        Some((start, path))
    };
    entries.filter_map(|entry| number(entry.unwrap().path())).collect()
}

fn read_log(files: &BTreeMap<i64, PathBuf>, file_size: usize, end: i64, damaged: bool) -> BTreeMap<i64, Entry> {
    let mut records = BTreeMap::new();
    for (start, path) in files {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes.len(), file_size, "{}", path.display());
        let mut at = 0;
        while start + (at as i64) < end && bytes.len() - at >= record::BLANK_SIZE {
            let record = match Record::parse(&bytes[at..]) {
                Ok(record) => record,
                Err(RecordError::Blank) => break,
                Err(error) => panic!("the log cannot be walked at {}: {error}", start + at as i64),
            };
            assert!(damaged || record.check_crc().is_ok(), "a damaged body at {}", start + at as i64);
            let entry = Entry {
                size: record.total_size,
                topic: record.topic.to_owned(),
                queue_id: record.queue_id,
                queue_offset: record.queue_offset,
                transaction: sysflag::transaction_type(record.sys_flag),
            };
            assert_eq!(record.physical_offset, start + at as i64);
            records.insert(record.physical_offset, entry);
            at += record.total_size;
        }
        let behind = usize::try_from(end - start).unwrap_or(0).min(file_size);
        if start + (file_size as i64) > end {
            let blank =
                if bytes[behind..].len() >= 8 && bytes[behind + 4..behind + 8] == record::MAGIC_BLANK.to_be_bytes() { 8 } else { 0 };
            assert!(bytes[behind + blank..].iter().all(|byte| *byte == 0), "zeros behind the end, {}", path.display());
        }
    }
    records
}

fn read_queues(config: &StoreConfig) -> BTreeMap<(String, i32, i64), CqUnit> {
    let mut units = BTreeMap::new();
    let folders = |path: &Path| -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    };
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    for topic in folders(&config.root.join("consumequeue")) {
        for queue in folders(&topic) {
            let files = numbered(&queue);
            let starts: Vec<i64> = files.keys().copied().collect();
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == config.consume_queue_file_size as i64), "{starts:?}");
            let last = starts.last().copied();
            for (start, path) in files {
                let bytes = std::fs::read(&path).unwrap();
                let valid = CqUnit::decode_all(&bytes).take_while(CqUnit::is_valid).count();
                assert!(bytes[valid * CQ_UNIT_SIZE..].iter().all(|byte| *byte == 0), "a hole in {}", path.display());
                assert!(Some(start) == last || valid * CQ_UNIT_SIZE == bytes.len(), "not full: {}", path.display());
                for (place, unit) in CqUnit::decode_all(&bytes[..valid * CQ_UNIT_SIZE]).enumerate() {
                    let offset = start / CQ_UNIT_SIZE as i64 + place as i64;
                    units.insert((name(&topic), name(&queue).parse().unwrap(), offset), unit);
                }
            }
        }
    }
    units
}
