//! Both ways of reading the log at start, on the same damaged store: every file and every table must come out the same.

use super::*;
use crate::store::RecoveryReport;

/// Cases of one run; more with `PETREL_PATH_CASES`.
const CASES: u64 = 40;
const TOPICS: [&str; 3] = ["orders", "invoices", "SCHEDULE_TOPIC_XXXX"];

/// What a start made of a store: its numbers, its tables, and after a stop its files.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    opened: Result<Tables, String>,
    files: Vec<(String, u64, u32)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Tables {
    report: RecoveryReport,
    end: i64,
    queues: Vec<(String, i32, i64, i64)>,
}

/// Some records of several queues, transactions and delays, with and without keys, over several files.
fn fill(store: &MessageStore, random: &mut fastrand::Rng) {
    for number in 0..random.usize(150..420) {
        let (topic, queue_id) = (TOPICS[random.usize(..TOPICS.len())], random.i32(0..2));
        let properties = match random.u8(0..4) {
            0 => String::new(),
            1 => format!("UNIQ_KEY\u{1}U{number}\u{2}TAGS\u{1}t\u{2}"),
            _ => format!("KEYS\u{1}k{} l\u{2}DELAY\u{1}{}\u{2}", number % 7, number % 5),
        };
        let body = body(number, random.usize(0..1_400));
        let mut message = draft(topic, queue_id, &properties, &body);
        message.sys_flag = match random.u8(0..12) {
            0 => sysflag::TRANSACTION_PREPARED,
            1 => sysflag::TRANSACTION_ROLLBACK,
            2 => sysflag::TRANSACTION_COMMIT,
            _ => 0,
        };
        store.put(&message).unwrap();
    }
}

/// Damages the log, and sometimes what is derived from it.
fn damage_somehow(root: &Path, random: &mut fastrand::Rng) -> Vec<String> {
    let mut done = Vec::new();
    for _ in 0..random.usize(0..4) {
        done.push(damage_log(root, random));
    }
    if random.u8(0..4) == 0 {
        std::fs::remove_file(root.join("checkpoint")).unwrap_or_default();
        done.push("no checkpoint".to_owned());
    }
    match random.u8(0..10) {
        0 => {
            std::fs::remove_dir_all(root.join("consumequeue")).unwrap_or_default();
            done.push("no consume queues".to_owned());
        }
        1 => {
            std::fs::remove_dir_all(root.join("consumequeue/orders")).unwrap_or_default();
            done.push("no queues of one topic".to_owned());
        }
        2 => {
            std::fs::remove_dir_all(root.join("index")).unwrap_or_default();
            done.push("no index".to_owned());
        }
        3 => {
            for path in all_files(&root.join("consumequeue")) {
                let mut bytes = std::fs::read(&path).unwrap();
                let from = random.usize(..bytes.len());
                let to = (from + random.usize(1..300)).min(bytes.len());
                bytes[from..to].fill(0);
                std::fs::write(&path, bytes).unwrap();
            }
            done.push("zeros in consume queues".to_owned());
        }
        _ => {}
    }
    done
}

fn damage_log(root: &Path, random: &mut fastrand::Rng) -> String {
    let files = all_files(&root.join("commitlog"));
    let path = &files[random.usize(..files.len())];
    let mut bytes = std::fs::read(path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    let at = random.usize(..used);
    let done = match random.u8(0..12) {
        0 | 1 => {
            for _ in 0..random.usize(1..20) {
                let bit = random.usize(..used * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            "bits flipped".to_owned()
        }
        2 | 3 => {
            let to = (at + random.usize(1..5_000)).min(bytes.len());
            bytes[at..to].fill(0);
            format!("zeros in {at}..{to}")
        }
        4 => {
            bytes[at..].fill(0);
            format!("nothing from {at} on")
        }
        5 => {
            let block = [512, 4096][random.usize(..2)];
            let (a, b) = (random.usize(..used.div_ceil(block)) * block, random.usize(..used.div_ceil(block)) * block);
            for offset in 0..block {
                bytes.swap(a + offset, b + offset);
            }
            format!("blocks of {block} at {a} and {b} swapped")
        }
        6 => {
            let magic = record::MAGIC_BLANK.to_be_bytes();
            match bytes.windows(4).rposition(|window| window == magic) {
                Some(found) => bytes[found - 4..found + 4].fill(0),
                None => return "no blank record to remove".to_owned(),
            }
            "blank record removed".to_owned()
        }
        7 => {
            let total = [-1, 0, 1, 87, 1 << 20, i32::MAX, i32::MIN, random.i32(..)][random.usize(..8)];
            let start = record_start(&bytes, at);
            bytes[start..start + 4].copy_from_slice(&total.to_be_bytes());
            format!("total size {total} at {start}")
        }
        8 => {
            let to = (at + random.usize(1..2_000)).min(bytes.len());
            bytes[at..to].iter_mut().for_each(|byte| *byte = random.u8(..));
            format!("noise in {at}..{to}")
        }
        9 => {
            let len = random.usize(1..3_000).min(bytes.len() - at);
            let from = random.usize(..bytes.len() - len);
            bytes.copy_within(from..from + len, at);
            format!("{len} bytes of {from} again at {at}")
        }
        10 => {
            bytes.truncate(at);
            format!("file cut to {at} bytes")
        }
        _ => {
            std::fs::remove_file(path).unwrap();
            return format!("{} removed", path.display());
        }
    };
    std::fs::write(path, bytes).unwrap();
    format!("{}: {done}", path.file_name().unwrap().display())
}

/// Start of the last record that begins at or before `at`, by the magics.
fn record_start(bytes: &[u8], at: usize) -> usize {
    let magic = record::MAGIC_V1.to_be_bytes();
    bytes[..(at + 8).min(bytes.len())].windows(4).rposition(|window| window == magic).map_or(0, |found| found.saturating_sub(4))
}

fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return found };
    for entry in entries {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() { found.extend(all_files(&entry.path())) } else { found.push(entry.path()) }
    }
    found.sort();
    found
}

/// On a file system whose syncs do nothing: no power is cut here, and they take most of the time.
fn open_unsynced(config: StoreConfig) -> Result<Arc<MessageStore>, StoreError> {
    open_with(config, Arc::new(TestFs::default()))
}

fn recover(root: &Path, mode: FlushDiskType, optimized: bool) -> Outcome {
    let config = StoreConfig { optimized_recovery: optimized, ..config(root, mode) };
    let shown = root.display().to_string();
    let opened = open_unsynced(config).map_err(|error| error.to_string().replace(&shown, "ROOT")).map(|store| {
        let queues = store.topics().into_iter().flat_map(|(topic, ids)| ids.into_iter().map(move |id| (topic.clone(), id)));
        let bounds = |(topic, id): (String, i32)| {
            let (min, max) = store.queue_bounds(&topic, id);
            (topic, id, min, max)
        };
        let report = RecoveryReport { ms: 0, ..store.recovery() };
        let tables = Tables { report, end: store.stats().max_physical_offset, queues: queues.map(bounds).collect() };
        assert!(store.shutdown(DEADLINE).clean);
        tables
    });
    let mut index_files = 0;
    let name = |path: &Path| {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if !name.starts_with("index/") {
            return name;
        }
        index_files += 1; // named by the time of their creation
        format!("index/{index_files}")
    };
    let paths = all_files(root);
    let names: Vec<String> = paths.iter().map(|path| path.as_path()).map(name).collect();
    let files = names.into_iter().zip(&paths).map(|(name, path)| {
        let bytes = std::fs::read(path).unwrap();
        (name, bytes.len() as u64, crc32fast::hash(&bytes))
    });
    Outcome { opened, files: files.collect() }
}

#[test]
fn both_paths_make_the_same_of_any_damage() {
    let cases = std::env::var("PETREL_PATH_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(CASES);
    let (mut started, mut sealed, mut truncated) = (0, 0, 0);
    for seed in 0..cases {
        let mut random = fastrand::Rng::with_seed(seed);
        let mode = BOTH[random.usize(..2)];
        let folder = tempfile::tempdir().unwrap();
        let store = open_unsynced(config(folder.path(), mode)).unwrap();
        fill(&store, &mut random);
        let killed = random.bool();
        let damaged = if killed { Some(copy(folder.path())) } else { None };
        assert!(store.shutdown(DEADLINE).clean);
        let root = damaged.as_ref().map_or(folder.path(), TempDir::path);
        let done = damage_somehow(root, &mut random);
        let other = copy(root);
        let (batches, records) = (recover(root, mode, true), recover(other.path(), mode, false));
        assert_eq!(batches, records, "seed {seed}, {mode:?}, killed {killed}: {done:?}");
        if let Ok(tables) = &batches.opened {
            started += 1;
            sealed += tables.report.sealed;
            truncated += tables.report.truncated_bytes;
        }
    }
    assert!(started > cases / 2 && sealed > 0 && truncated > 0, "started={started} sealed={sealed} truncated={truncated}");
}

#[test]
fn a_large_record_at_the_end_of_a_batch_is_the_same_to_both() {
    for place in (65_400..65_560).step_by(7) {
        let folder = tempfile::tempdir().unwrap();
        let large = StoreConfig { commit_log_file_size: 1 << 20, ..config(folder.path(), FlushDiskType::Async) };
        let store = open_with(large.clone(), RealFs::shared()).unwrap();
        put(&store, "T", 0, &body(1, place));
        put(&store, "T", 0, &body(2, 70_000));
        put(&store, "T", 0, &body(3, 10));
        let ends = [true, false].map(|optimized_recovery| {
            let crashed = copy(folder.path());
            let config = StoreConfig { root: crashed.path().to_owned(), optimized_recovery, ..large.clone() };
            let store = open_with(config, RealFs::shared()).unwrap();
            assert_eq!(bodies(&store, "T", 0).len(), 3);
            let report = store.recovery();
            assert_eq!((report.records, report.files), (3, 1));
            store.stats().max_physical_offset
        });
        assert_eq!(ends[0], ends[1]);
    }
}
