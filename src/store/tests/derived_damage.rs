//! Random damage to consume queues, index and checkpoint: every message stays where it was. `PETREL_SEED=7` replays one seed,
//! `PETREL_SEEDS=1000` runs more of them.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use super::cases::invariants;
use super::*;

const SEEDS: u64 = 30;

fn settings(root: &Path, mode: FlushDiskType) -> StoreConfig {
    StoreConfig { consume_queue_file_size: 20 * 25, flush_consume_queue_interval_ms: 5, ..config(root, mode) }
}

/// Topics of one and of several words, one whose records have the second form.
fn topics() -> [String; 4] {
    ["T".to_owned(), "a-b-1".to_owned(), "%RETRY%g|1".to_owned(), format!("%RETRY%{}", "long-".repeat(35))]
}

/// Body of each message by topic, queue and offset; its key is made of them.
type Messages = BTreeMap<(String, i32, i64), Vec<u8>>;

fn key(topic: &str, queue_id: i32, offset: i64) -> String {
    format!("{}-{queue_id}-{offset}", topic.len())
}

fn put_random(store: &MessageStore, count: usize, random: &mut fastrand::Rng, messages: &mut Messages) {
    for _ in 0..count {
        let (topic, queue_id) = (&topics()[random.usize(0..4)], random.i32(0..2));
        let next = messages.range((topic.clone(), queue_id, 0)..(topic.clone(), queue_id, i64::MAX)).count() as i64;
        let (len, properties) = (random.usize(1..900), format!("TAGS\u{1}t\u{2}KEYS\u{1}{}\u{2}", key(topic, queue_id, next)));
        let body: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
        let appended = store.put(&draft(topic, queue_id, &properties, &body)).unwrap();
        assert_eq!(appended.queue_offset, next, "{topic} {queue_id}");
        messages.insert((topic.clone(), queue_id, next), body);
    }
}

/// Files of a store that can be made anew. After a clean stop the checkpoint tells what should be there: it may then be removed, but not be
/// made to say that another broker has been there.
fn derived_files(root: &Path) -> Vec<PathBuf> {
    let is_derived = |path: &PathBuf| path.starts_with("consumequeue") || path.starts_with("index") || path.ends_with("checkpoint");
    cases::files_of(root).into_keys().filter(is_derived).map(|path| root.join(path)).collect()
}

/// Damages a file; says how.
fn damage_file(path: &Path, random: &mut fastrand::Rng) -> String {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let used = std::fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).map_or(1, |last| last as u64 + 1);
    match random.u32(0..10) {
        0..5 => {
            let mut flipped = Vec::new();
            for _ in 0..random.u32(1..8) {
                let at = if random.u32(0..8) == 0 { random.u64(0..len) } else { random.u64(0..used) };
                let (bit, mut byte) = (1u8 << random.u32(0..8), [0]);
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ bit], at).unwrap();
                flipped.push((at, bit));
            }
            format!("bits flipped {flipped:?}")
        }
        5..7 => {
            let at = random.u64(0..used);
            let garbage: Vec<u8> = (0..random.u64(1..200).min(len - at)).map(|_| if random.bool() { 0 } else { random.u8(..) }).collect();
            file.write_all_at(&garbage, at).unwrap();
            format!("{} bytes of garbage at {at}", garbage.len())
        }
        7 => {
            let at = random.u64(0..used);
            file.write_all_at(&vec![0; 512.min(len - at) as usize], at).unwrap();
            format!("zeros at {at}")
        }
        8 => {
            let to = random.u64(0..len);
            file.set_len(to).unwrap();
            format!("cut to {to}")
        }
        _ => {
            std::fs::remove_file(path).unwrap();
            "removed".to_owned()
        }
    }
}

/// Opens the store; what cannot be read is removed as the refusal says.
fn open_after_damage(root: &Path, mode: FlushDiskType, what: &str) -> Arc<MessageStore> {
    for _ in 0..20 {
        match open_with(settings(root, mode), RealFs::shared()) {
            Ok(store) => return store,
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("does not match mappedFileSizeConsumeQueue=500") && text.contains("remove"), "{what}: {text}");
                let queues = derived_files(root).into_iter().filter(|path| path.starts_with(root.join("consumequeue")));
                let queues = queues.filter_map(|path| path.parent().map(Path::to_owned));
                let named: Vec<PathBuf> = queues.filter(|queue| text.contains(&format!("folder {} ", queue.display()))).collect();
                assert!(!named.is_empty(), "{what}: {text}");
                for queue in named.iter().filter(|queue| queue.exists()) {
                    std::fs::remove_dir_all(queue).unwrap();
                }
                let _ = std::fs::remove_file(root.join("checkpoint")); // may be gone already
            }
        }
    }
    panic!("{what}: the store does not open however much is removed");
}

/// Every message comes with its queue's pulls, at its offset.
fn all_served(store: &MessageStore, messages: &Messages, what: &str) {
    let begin = Instant::now();
    for topic in topics() {
        for queue_id in 0..2 {
            let expected: Vec<&Vec<u8>> =
                messages.range((topic.clone(), queue_id, 0)..(topic.clone(), queue_id, i64::MAX)).map(|(_, body)| body).collect();
            let queue = format!("{what}: {} {queue_id}", topic.get(..10).unwrap_or(&topic));
            let bounds = store.queue_bounds(&topic, queue_id);
            assert_eq!(bounds, (0, expected.len() as i64), "{queue}");
            let mut at = 0;
            while at < bounds.1 {
                let result = store.get(&topic, queue_id, at, &GetLimits::default(), &AllMessages);
                let waits = result.status == GetStatus::OffsetFoundNull && result.next_begin_offset == at;
                assert!(result.status == GetStatus::Found || waits, "{queue}: {:?} at {at}", result.status);
                assert!(begin.elapsed() < DEADLINE, "{queue}: waits at {at} for ever");
                for slice in &result.slices {
                    let mut rest = &slice[..];
                    while !rest.is_empty() {
                        let record = Record::parse(rest).unwrap();
                        assert_eq!((record.topic, record.queue_id, record.queue_offset), (&*topic, queue_id, at), "{queue}");
                        assert_eq!(record.body, expected[at as usize], "{queue} at {at}");
                        at += 1;
                        rest = &rest[record.total_size..];
                    }
                }
                assert_eq!(result.next_begin_offset, at, "{queue}");
                if waits {
                    std::thread::yield_now();
                }
            }
        }
    }
}

/// What is found by key is right; how many were found.
fn found_by_key(store: &MessageStore, messages: &Messages, what: &str) -> usize {
    let mut found = 0;
    for (topic, queue_id, offset) in messages.keys() {
        let records = store.query(topic, &key(topic, *queue_id, *offset), 8, 0, i64::MAX).records;
        for record in &records {
            let record = Record::parse(record).unwrap();
            assert_eq!((record.topic, record.queue_id, record.queue_offset), (&**topic, *queue_id, *offset), "{what}");
        }
        found += records.len();
    }
    assert!(found <= messages.len(), "{what}: none twice");
    found
}

/// As many as are wanted.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let wanted = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let only = wanted("PETREL_SEED").map(|seed| seed..seed + 1);
    only.unwrap_or(0..wanted("PETREL_SEEDS").unwrap_or(count))
}

#[test]
fn every_message_survives_whatever_happens_to_derived_files() {
    for seed in seeds(SEEDS) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mode = BOTH[random.usize(0..2)];
        let (folder, mut messages) = (tempfile::tempdir().unwrap(), Messages::new());
        let root = folder.path();
        let store = open_with(settings(root, mode), RealFs::shared()).unwrap();
        put_random(&store, 500, &mut random, &mut messages);
        settled(&store);
        assert!(store.shutdown(DEADLINE).clean);
        drop(store);
        for round in 0..3 {
            let mut done = Vec::new();
            let mut index_touched = false;
            let clean = random.bool();
            for _ in 0..random.usize(1..6) {
                let mut files = derived_files(root);
                files.retain(|path| !clean || !path.ends_with("checkpoint"));
                if clean && random.u32(0..20) == 0 {
                    let _ = std::fs::remove_file(root.join("checkpoint"));
                }
                let path = &files[random.usize(0..files.len())];
                index_touched |= path.starts_with(root.join("index"));
                done.push(format!("{}: {}", path.strip_prefix(root).unwrap().display(), damage_file(path, &mut random)));
            }
            if !clean {
                std::fs::write(root.join("abort"), "1").unwrap();
            }
            let what = format!("seed {seed} round {round} {mode:?} clean={clean} {done:#?}");
            let (store, lines) = cases::logged(|| open_after_damage(root, mode, &what));
            let what = format!("{what}\n{lines:#?}");
            settled(&store);
            all_served(&store, &messages, &what);
            let found = found_by_key(&store, &messages, &what);
            assert!(index_touched || round > 0 || found == messages.len(), "{found} of {} by key, {what}", messages.len());
            put_random(&store, random.usize(0..60), &mut random, &mut messages);
            settled(&store);
            all_served(&store, &messages, &what);
            let end = store.stats().max_physical_offset;
            assert!(store.shutdown(DEADLINE).clean);
            drop(store);
            invariants::hold(&settings(root, mode), end, false);
        }
    }
}
