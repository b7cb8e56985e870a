//! Damage in the middle of the log, beyond the rows of the table.

use std::ops::Range;

use super::*;
use crate::common::record::Draft;
use crate::store::consume_queue::CqUnit;
use crate::store::fs::{FsFile, Space};

/// Few and small messages, so that every byte of one can be damaged.
static SMALL: SetUp = SetUp { configure: |_| {}, fill: |store| (0..30).map(|number| small(store, number)).collect() };
/// Half a file more than one.
static TWO_FILES: SetUp = SetUp { configure: |_| {}, fill: |store| fill_log(store, 3 * FILE_SIZE as i64 / 2, 300) };
/// Long topics and IPv6 addresses between ordinary messages.
static ALL_FORMS: SetUp = SetUp {
    configure: |_| {},
    fill: |store| {
        let long = "%RETRY%".to_owned() + &"g".repeat(180);
        let mut sent = Vec::new();
        for number in 0..20 {
            sent.push(small(store, number));
            let topic = if number % 2 == 0 { long.as_str() } else { TOPICS[0] };
            let body = body(number, 120);
            let host = "[fd00::1]:1234".parse().unwrap();
            let ipv6 = Draft { born_host: host, store_host: host, ..draft(topic, 1, "TAGS\u{1}t\u{2}", &body) };
            let appended = store.put(&ipv6).unwrap();
            sent.push(Sent { topic: topic.to_owned(), queue_id: 1, key: String::new(), body, appended });
        }
        sent
    },
};

fn small(store: &MessageStore, number: usize) -> Sent {
    send(store, TOPICS[number % 3], (number / 3) as i32 % QUEUES, number, 20)
}

fn after_a_kill(set_up: &'static SetUp, mode: FlushDiskType) -> Stopped {
    Bases::default().stopped(set_up, Stop::Abrupt, mode)
}

/// As if no unit had reached the disk.
fn forget_queues(stopped: &Stopped) {
    std::fs::remove_dir_all(stopped.path("consumequeue")).unwrap();
    std::fs::remove_file(stopped.path("checkpoint")).unwrap();
}

fn lost_files(stopped: &Stopped) -> Vec<(i64, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(stopped.path("lost")) else { return Vec::new() };
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().parse().unwrap(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// The bytes of the log from a physical offset on, in one file.
fn log_bytes(stopped: &Stopped, range: Range<i64>) -> Vec<u8> {
    let file = range.start as usize / FILE_SIZE * FILE_SIZE;
    std::fs::read(stopped.log_file(file)).unwrap()[range.start as usize - file..range.end as usize - file].to_vec()
}

/// Units of a message's queue, with the seals they point at: (queue offset, physical offset, size).
fn units_at(stopped: &Stopped, sent: &Sent) -> Vec<CqUnit> {
    let path = stopped.path(&format!("consumequeue/{}/{}/{:020}", sent.topic, sent.queue_id, 0));
    CqUnit::decode_all(&std::fs::read(path).unwrap()).take_while(CqUnit::is_valid).collect()
}

/// Every message's unit points at a record; those of lost ones exactly at a seal.
fn units_point_at_seals(stopped: &Stopped, lost: &[usize]) {
    for index in lost {
        let sent = &stopped.sent[*index];
        let unit = units_at(stopped, sent)[sent.appended.queue_offset as usize];
        if sent.appended.queue_offset == 0 && !unit.is_present() {
            continue; // the queue begins behind it
        }
        assert!(unit.is_present(), "never a filler: {unit:?}");
        let bytes = log_bytes(stopped, unit.physical_offset..unit.end());
        let seal = Record::parse(&bytes).unwrap_or_else(|error| panic!("message {index}, {unit:?}: {error}"));
        assert_eq!((seal.total_size, seal.physical_offset), (unit.size as usize, unit.physical_offset));
        assert!(crate::store::seal::is_seal(&seal), "{seal:?}");
    }
}

#[test]
fn any_damaged_byte_of_a_record_costs_at_most_that_message() {
    let bases = &mut Bases::default();
    let index = 15;
    let sizes: Vec<usize> = bases.stopped(&SMALL, Stop::Abrupt, FlushDiskType::Async).sent.iter().map(Sent::size).collect();
    assert!(sizes[index] < 200, "{}", sizes[index]);
    let variants: [(FlushDiskType, bool, &[u8]); 3] =
        [(FlushDiskType::Async, true, &[0x02]), (FlushDiskType::Sync, true, &[0x80]), (FlushDiskType::Async, false, &[0x80])];
    for (mode, units_on_disk, masks) in variants {
        for at in 0..sizes[index] {
            for mask in masks.iter().copied() {
                let stopped = bases.stopped(&SMALL, Stop::Abrupt, mode);
                if !units_on_disk {
                    if log_bytes(&stopped, stopped.sent[index].offset()..stopped.sent[index].end())[at] ^ mask == b'C' {
                        continue; // it names a queue that takes it for its own: without units nobody can tell
                    }
                    forget_queues(&stopped);
                }
                let what = format!("{mode:?}, byte {at} ^ {mask:02x}, units on disk: {units_on_disk}");
                one_damaged_byte(&stopped, index, at, mask, units_on_disk, &what);
            }
        }
    }
}

fn one_damaged_byte(stopped: &Stopped, index: usize, at: usize, mask: u8, units_on_disk: bool, what: &str) {
    let hit = &stopped.sent[index];
    stopped.damage(hit.offset(), |bytes| bytes[at] ^= mask);
    let before = log_bytes(stopped, 0..FILE_SIZE as i64);
    let store = open_with(stopped.config.clone(), unsynced()).unwrap();
    settled(&store);
    let report = store.recovery();
    assert!(report.sealed <= 1 && report.truncated_bytes == 0, "{what}: {report}");
    for (number, sent) in stopped.sent.iter().enumerate().filter(|(number, _)| *number != index) {
        let record = store.message_at(&sent.topic, sent.queue_id, sent.appended.queue_offset).and_then(|(_, record)| record);
        let record = record.unwrap_or_else(|| panic!("{what}: message {number} is lost"));
        let record = Record::parse(&record).unwrap();
        assert_eq!((record.body, record.queue_offset), (&*sent.body, sent.appended.queue_offset), "{what}: message {number}");
    }
    for topic in TOPICS {
        for queue_id in 0..QUEUES {
            assert_eq!(store.queue_bounds(topic, queue_id), (0, 5), "{what}");
        }
    }
    if units_on_disk {
        let topics: Vec<String> = store.topics().into_iter().map(|(topic, _)| topic).collect();
        assert_eq!(topics, TOPICS, "{what}: nothing else is made of it");
        let found = store.message_at(&hit.topic, hit.queue_id, hit.appended.queue_offset).unwrap().1;
        let claim = found.as_ref().map(|record| Record::parse(record).unwrap());
        assert!(
            claim.is_none_or(|claim| (claim.topic, claim.queue_id, claim.queue_offset) == (&*hit.topic, hit.queue_id, 2)),
            "{what}: whoever is shown something there is shown that message"
        );
    }
    assert!(store.shutdown(DEADLINE).clean);
    drop(store);
    let after = log_bytes(stopped, 0..FILE_SIZE as i64);
    let (start, end) = (hit.offset() as usize, hit.end() as usize);
    assert!(after[..start] == before[..start] && after[end..] == before[end..], "{what}: another record has changed");
    let lost = lost_files(stopped);
    if report.sealed == 0 {
        assert!(lost.is_empty() && after == before, "{what}");
    } else {
        assert_eq!(lost, [(hit.offset(), before[start..end].to_vec())], "{what}");
    }
}

#[test]
fn a_lost_page_leaves_every_unit_pointing_at_a_seal_and_no_number_unused() {
    for mode in BOTH {
        for units_on_disk in [true, false] {
            let stopped = after_a_kill(&TWO_FILES, mode);
            if !units_on_disk {
                forget_queues(&stopped);
            }
            // a page in which seven records or so begin, end, or both
            let page = 5 * 4096;
            let lost: Vec<usize> = (0..stopped.sent.len())
                .filter(|index| (stopped.sent[*index].offset() as usize) < page + 2500 && stopped.sent[*index].end() as usize > page)
                .collect();
            assert!(lost.len() > 5);
            stopped.damage(page as i64, |bytes| bytes[..2500].fill(0));
            let opens = Opens { lost: lost.clone(), sealed: 1, ..Opens::default() };
            let (first, last) = (stopped.sent[lost[0]].offset(), stopped.sent[lost[lost.len() - 1]].end());
            let damaged = log_bytes(&stopped, first..last);
            opens_and_holds(&stopped, &opens);
            units_point_at_seals(&stopped, &lost);
            assert_eq!(lost_files(&stopped), [(first, damaged)]);
        }
    }
}

#[test]
fn what_never_reached_the_disk_is_sealed_without_a_copy_when_nobody_waited_for_it() {
    let stopped = after_a_kill(&TWO_FILES, FlushDiskType::Async);
    let index = stopped.in_file(1).start + 10;
    stopped.damage(stopped.sent[index].offset(), |bytes| bytes[..1_100].fill(0));
    set_flushed(stopped.root(), stopped.sent[index].offset());
    let end = stopped.sent[index].offset() + 1_100;
    let lost = stopped.sent.iter().enumerate().filter(|(place, sent)| *place >= index && sent.offset() < end).map(|(place, _)| place);
    let and = |opened: &Opened<'_>| {
        assert!(lost_files(opened.stopped).is_empty());
        assert!(opened.lines.iter().any(|line| line.starts_with("WARN") && line.contains("it never reached the disk")));
        assert!(!opened.lines.iter().any(|line| line.starts_with("ERROR")), "{:#?}", opened.lines);
    };
    opens_and_holds(&stopped, &Opens { lost: lost.collect(), sealed: 1, and: Some(and), ..Opens::default() });
}

#[test]
fn a_hole_over_the_end_of_a_file_is_sealed_on_both_sides() {
    for units_on_disk in [true, false] {
        let stopped = after_a_kill(&STANDARD, FlushDiskType::Async);
        if !units_on_disk {
            forget_queues(&stopped);
        }
        let border = stopped.in_file(1).end;
        let (first, last) = (border - 2, border + 2);
        stopped.damage(stopped.sent[first].offset(), |bytes| bytes.fill(0xA5));
        let end = stopped.sent[last].end() - 7;
        stopped.damage(2 * FILE_SIZE as i64, |bytes| bytes[..end as usize - 2 * FILE_SIZE].fill(0x5A));
        let opens = Opens { lost: (first..=last).collect(), sealed: 2, ..Opens::default() };
        opens_and_holds(&stopped, &opens);
        if units_on_disk {
            units_point_at_seals(&stopped, &(first..=last).collect::<Vec<_>>());
        }
        let starts: Vec<i64> = lost_files(&stopped).into_iter().map(|(start, _)| start).collect();
        assert_eq!(starts, [stopped.sent[first].offset(), 2 * FILE_SIZE as i64]);
        assert!(stopped.log_file(3 * FILE_SIZE).exists());
    }
}

#[test]
fn the_blank_record_of_a_file_is_spared_or_written_anew() {
    for mode in BOTH {
        // only the record in front of it is damaged
        let stopped = after_a_kill(&STANDARD, mode);
        let index = stopped.in_file(1).end - 1;
        let last = &stopped.sent[index];
        let blank = log_bytes(&stopped, last.end()..2 * FILE_SIZE as i64);
        stopped.damage(last.offset(), |bytes| bytes[50..100].fill(0xEE));
        let damaged = log_bytes(&stopped, last.offset()..last.end());
        opens_and_holds(&stopped, &Opens { lost: vec![index], sealed: 1, ..Opens::default() });
        assert_eq!(lost_files(&stopped), [(last.offset(), damaged)]);
        assert_eq!(log_bytes(&stopped, last.end()..2 * FILE_SIZE as i64), blank);
        units_point_at_seals(&stopped, &[index]);
        // only it
        let stopped = after_a_kill(&STANDARD, mode);
        stopped.damage(stopped.sent[index].end(), |bytes| bytes[5] ^= 0x10);
        opens_and_holds(&stopped, &Opens { sealed: 1, ..Opens::default() });
        assert_eq!(log_bytes(&stopped, stopped.sent[index].end()..2 * FILE_SIZE as i64), blank);
    }
}

#[test]
fn several_holes_each_cost_what_they_hit() {
    for units_on_disk in [true, false] {
        let stopped = after_a_kill(&STANDARD, FlushDiskType::Async);
        if !units_on_disk {
            forget_queues(&stopped);
        }
        // first record of the log and of files, neighbours, and single ones
        let starts = [0, 1, 2, 3].map(|file| stopped.in_file(file).start);
        let mut lost: Vec<usize> = starts.into_iter().chain([40, 41, 90, 200, 202, 203, 300]).collect();
        lost.sort_unstable();
        let kinds: [fn(&mut [u8]); 5] = [
            |record| record[4] = 0,             // magic
            |record| record[..4].fill(0x7F),    // total size
            |record| record[30] ^= 0x40,        // physical offset
            |record| record[100] ^= 1,          // body
            |record| record[84..88].fill(0xFF), // body length
        ];
        for (number, index) in lost.iter().enumerate() {
            let sent = &stopped.sent[*index];
            stopped.damage(sent.offset(), |bytes| kinds[number % kinds.len()](&mut bytes[..sent.size()]));
        }
        // a number is lost for good only where neither a unit nor the record tells of it
        let holes = lost.len() as u64 - 2; // 40 and 41, 202 and 203
        let store = open_with(stopped.config.clone(), RealFs::shared()).unwrap();
        assert!((holes..=lost.len() as u64).contains(&store.recovery().sealed), "{}", store.recovery());
        settled(&store);
        check_messages(&store, &stopped, &Opens { lost: lost.clone(), ..Opens::default() });
        assert!(store.shutdown(DEADLINE).clean);
        drop(store);
        std::fs::write(stopped.path("abort"), "1").unwrap();
        opens_and_holds(&stopped, &Opens { lost: lost.clone(), ..Opens::default() });
        units_point_at_seals(&stopped, &lost);
    }
}

#[test]
fn records_of_every_form_are_sealed() {
    for mode in BOTH {
        for units_on_disk in [true, false] {
            for index in 10..16 {
                let stopped = after_a_kill(&ALL_FORMS, mode);
                if !units_on_disk {
                    forget_queues(&stopped);
                }
                let sent = &stopped.sent[index];
                let length_at = record::store_timestamp_at(if index % 2 == 1 { sysflag::BORN_HOST_V6 } else { 0 }) + 20;
                stopped.damage(sent.offset(), |bytes| bytes[length_at + 30] ^= 1);
                let opens = Opens { lost: vec![index], sealed: 1, ..Opens::default() };
                opens_and_holds(&stopped, &opens);
                units_point_at_seals(&stopped, &[index]);
            }
        }
    }
}

#[test]
fn a_hole_too_small_for_a_record_is_widened() {
    let stopped = after_a_kill(&TWO_FILES, FlushDiskType::Async);
    let index = 60;
    let sent = &stopped.sent[index];
    // inside a damaged record lies something that looks like a record in its place, too near to its start
    let at = sent.offset() + 60;
    let mut fake = Vec::new();
    draft("fake", 0, "", &[1; 30]).encode(&mut fake);
    record::place(&mut fake, 0, at, sent.appended.store_timestamp);
    stopped.damage(sent.offset(), |bytes| {
        bytes[4..8].fill(9);
        bytes[60..60 + fake.len()].copy_from_slice(&fake);
    });
    opens_and_holds(&stopped, &Opens { lost: vec![index], sealed: 1, ..Opens::default() });
    assert_eq!(lost_files(&stopped).iter().map(|(start, bytes)| (*start, bytes.len())).collect::<Vec<_>>(), [(sent.offset(), sent.size())]);
}

#[test]
fn the_number_of_a_queue_s_last_message_is_not_given_again_when_the_message_is_lost() {
    for units_on_disk in [true, false] {
        let stopped = after_a_kill(&SMALL, FlushDiskType::Async);
        if !units_on_disk {
            forget_queues(&stopped);
        }
        let index = 26; // the last of its queue, with others behind it
        let sent = &stopped.sent[index];
        assert_eq!((sent.appended.queue_offset, &*sent.topic, sent.queue_id), (4, TOPICS[2], 0));
        stopped.damage(sent.offset(), |bytes| bytes[90] ^= 1);
        opens_and_holds(&stopped, &Opens { lost: vec![index], sealed: 1, ..Opens::default() });
        units_point_at_seals(&stopped, &[index]);
    }
}

/// Damages what no CRC covers so that a record claims to be another's; by name, queue or number.
#[test]
fn a_record_that_claims_to_be_another_s_pushes_nobody_aside() {
    let topic_at = |sent: &Sent| 88 + sent.body.len() + 1;
    type Forgery = (&'static str, fn(&mut [u8], usize));
    let forgeries: [Forgery; 7] = [
        ("another topic that exists", |record, topic_at| record[topic_at + 5] = b'C'),
        ("a topic that does not", |record, topic_at| record[topic_at] = b'X'),
        ("another queue that exists", |record, _| record[15] ^= 1),
        ("a queue that does not", |record, _| record[14] ^= 1),
        ("the number behind", |record, _| record[27] += 1),
        ("a number far behind", |record, _| record[25] ^= 1),
        ("a number in front", |record, _| record[27] -= 1),
    ];
    for units_on_disk in [true, false] {
        for (name, forge) in forgeries {
            for index in [6, 12, 18, 19, 24] {
                let stopped = after_a_kill(&SMALL, FlushDiskType::Async);
                if !units_on_disk {
                    forget_queues(&stopped);
                }
                let sent = stopped.sent[index].clone();
                stopped.damage(sent.offset(), |bytes| forge(bytes, topic_at(&sent)));
                let what = format!("message {index} claims {name}, units on disk: {units_on_disk}");
                if !units_on_disk && name.ends_with("that exists") {
                    continue; // without units nobody can tell
                }
                let store = open_with(stopped.config.clone(), unsynced()).unwrap();
                settled(&store);
                for (number, other) in stopped.sent.iter().enumerate().filter(|(number, _)| *number != index) {
                    let found = store.message_at(&other.topic, other.queue_id, other.appended.queue_offset).and_then(|(_, record)| record);
                    let found = found.unwrap_or_else(|| panic!("{what}: message {number} is lost"));
                    assert_eq!(Record::parse(&found).unwrap().body, other.body, "{what}: message {number}");
                }
                if units_on_disk {
                    assert_eq!(store.recovery().sealed, 1, "{what}");
                    assert!(store.message_at(&sent.topic, sent.queue_id, sent.appended.queue_offset).unwrap().1.is_none(), "{what}");
                    assert_eq!(store.topics().len(), 3, "{what}");
                    assert!(store.shutdown(DEADLINE).clean);
                    drop(store);
                    std::fs::write(stopped.path("abort"), "1").unwrap();
                    opens_and_holds(&stopped, &Opens { lost: vec![index], ..Opens::default() });
                }
            }
        }
    }
}

#[test]
fn shifted_queues_of_another_broker_accuse_nobody() {
    let stopped = after_a_kill(&SMALL, FlushDiskType::Async);
    // as Java leaves a queue that lacked a unit: everything behind stands one too low
    let path = stopped.path("consumequeue/TopicB/1/00000000000000000000");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.copy_within(40..5 * 20, 20);
    bytes[4 * 20..5 * 20].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let store = open_with(stopped.config.clone(), RealFs::shared()).unwrap();
    assert_eq!(store.recovery().sealed, 0, "{}", store.recovery());
    assert!(lost_files(&stopped).is_empty());
}

/// Whatever happens to some bytes in front of the last record: no message is lost whose bytes were not touched, and the invariants hold.
/// More with `PETREL_DAMAGE_CASES`.
#[test]
fn random_damage_costs_at_most_what_it_touched() {
    let cases = std::env::var("PETREL_DAMAGE_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(12);
    let bases = &mut Bases::default();
    for seed in 0..cases {
        let mut random = fastrand::Rng::with_seed(seed);
        let mode = BOTH[random.usize(..2)];
        let stopped = bases.stopped(&STANDARD, Stop::Abrupt, mode);
        let limit = stopped.sent[last_index(&stopped)].offset() as usize;
        let mut touched: Vec<Range<usize>> = Vec::new();
        for _ in 0..random.usize(1..6) {
            let range = damage_somewhere(&stopped, limit, &mut random);
            touched.push(range);
        }
        let units_on_disk = random.bool();
        if !units_on_disk {
            std::fs::remove_dir_all(stopped.path("consumequeue")).unwrap();
        }
        let what = format!("seed {seed}, {mode:?}, units on disk: {units_on_disk}, {touched:?}");
        let is_touched =
            |sent: &Sent| touched.iter().any(|range| (sent.offset() as usize) < range.end && sent.end() as usize > range.start);
        for round in 0..2 {
            let (store, lines) = logged(|| open_with(stopped.config.clone(), unsynced()));
            let store = store.unwrap_or_else(|error| panic!("{what}: {error}"));
            let what = format!("{what}\n{lines:#?}");
            settled(&store);
            let report = store.recovery();
            assert!(round == 0 || (report.sealed, report.truncated_bytes) == (0, 0), "{what}: I6: {report}");
            for (index, sent) in stopped.sent.iter().enumerate().filter(|(_, sent)| !is_touched(sent)) {
                let found = store.message_at(&sent.topic, sent.queue_id, sent.appended.queue_offset).and_then(|(_, record)| record);
                let found = found.unwrap_or_else(|| panic!("{what}: message {index} at {} is lost", sent.offset()));
                assert_eq!(Record::parse(&found).unwrap().body, sent.body, "{what}: message {index}");
            }
            let end = store.stats().max_physical_offset;
            assert_eq!(end, stopped.end(), "{what}");
            assert!(store.shutdown(DEADLINE).clean);
            drop(store);
            let held = catch_unwind(AssertUnwindSafe(|| invariants::hold(&stopped.config, end, false)));
            assert!(held.is_ok(), "{what}: the invariants do not hold");
            std::fs::write(stopped.path("abort"), "1").unwrap();
        }
    }
}

fn last_index(stopped: &Stopped) -> usize {
    stopped.sent.len() - 1
}

/// Changes some bytes of the log before `limit`; returns where.
fn damage_somewhere(stopped: &Stopped, limit: usize, random: &mut fastrand::Rng) -> Range<usize> {
    let start = random.usize(..limit);
    let file = start / FILE_SIZE * FILE_SIZE;
    let len = [1, 1, random.usize(1..100), random.usize(100..5_000), 4096][random.usize(..5)];
    let end = (start + len).min(limit).min(file + FILE_SIZE);
    let kind = random.u8(0..4);
    let from = random.usize(..FILE_SIZE - (end - start));
    stopped.damage(file as i64, |bytes| {
        let range = start - file..end - file;
        match kind {
            0 => bytes[range].fill(0),
            1 => bytes[range].iter_mut().for_each(|byte| *byte = random.u8(..)),
            2 => bytes[range].iter_mut().for_each(|byte| *byte ^= 0x20),
            _ => bytes.copy_within(from..from + (end - start), range.start),
        }
    });
    start..end
}

// ---- cut short ----

/// What was done to files, in order.
#[derive(Debug, Default)]
struct Journal {
    events: Mutex<Vec<(&'static str, PathBuf)>>,
    /// Writes into the log that succeed before all fail.
    writes_left: AtomicUsize,
}

#[derive(Debug)]
struct Journaled(Arc<Journal>);

#[derive(Debug)]
struct JournaledFile {
    file: Arc<dyn FsFile>,
    path: PathBuf,
    journal: Arc<Journal>,
}

impl Fs for Journaled {
    fn open(&self, path: &Path, create: bool) -> std::io::Result<Arc<dyn FsFile>> {
        let file = RealFs.open(path, create)?;
        Ok(Arc::new(JournaledFile { file, path: path.to_owned(), journal: Arc::clone(&self.0) }))
    }

    fn create_dir_all(&self, path: &Path) -> std::io::Result<()> {
        RealFs.create_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        self.0.events.lock().push(("sync folder", path.to_owned()));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> std::io::Result<()> {
        RealFs.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> std::io::Result<()> {
        RealFs.remove_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        RealFs.rename(from, to)
    }

    fn list(&self, path: &Path) -> std::io::Result<Vec<(PathBuf, bool)>> {
        RealFs.list(path)
    }

    fn exists(&self, path: &Path) -> bool {
        RealFs.exists(path)
    }

    fn space(&self, path: &Path) -> std::io::Result<Space> {
        RealFs.space(path)
    }
}

impl FsFile for JournaledFile {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        if self.path.parent().is_some_and(|parent| parent.ends_with("commitlog") || parent.ends_with("lost")) {
            self.journal.events.lock().push(("write", self.path.clone()));
            let left = self.journal.writes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            if left.is_err() {
                self.file.write_all_at(&bytes[..bytes.len() / 2], at)?;
                return Err(std::io::Error::other("power cut"));
            }
        }
        self.file.write_all_at(bytes, at)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.journal.events.lock().push(("sync", self.path.clone()));
        Ok(())
    }

    fn write_back(&self, at: u64, len: u64) -> std::io::Result<()> {
        self.file.write_back(at, len)
    }

    fn allocate(&self, at: u64, len: u64) -> std::io::Result<()> {
        self.file.allocate(at, len)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn modified_ms(&self) -> std::io::Result<i64> {
        self.file.modified_ms()
    }

    fn as_std(&self) -> Option<&std::fs::File> {
        self.file.as_std()
    }
}

/// A file system whose syncs do nothing, which is fast.
fn unsynced() -> Arc<dyn Fs> {
    Arc::new(Journaled(Arc::new(Journal { writes_left: AtomicUsize::new(usize::MAX), ..Journal::default() })))
}

#[test]
fn the_damaged_bytes_are_durable_before_they_are_written_over_and_a_cut_in_between_costs_nothing_more() {
    let damage = |stopped: &Stopped| {
        stopped.damage(stopped.sent[50].offset() + 70, |bytes| bytes[..900].fill(7));
        stopped.damage(stopped.sent[100].offset(), |bytes| bytes[4] ^= 1);
    };
    let first = after_a_kill(&TWO_FILES, FlushDiskType::Async);
    let end = first.sent[50].offset() + 970;
    let mut lost: Vec<usize> = (50..100).filter(|index| first.sent[*index].offset() < end).collect();
    lost.push(100);
    let mut cuts = 0;
    for writes_left in 0.. {
        let stopped = after_a_kill(&TWO_FILES, FlushDiskType::Async);
        damage(&stopped);
        let journal = Arc::new(Journal { writes_left: AtomicUsize::new(writes_left), ..Journal::default() });
        let opened = open_with(stopped.config.clone(), Arc::new(Journaled(Arc::clone(&journal))));
        let whole = opened.is_ok();
        drop(opened);
        let events = journal.events.lock().clone();
        for (number, (_, path)) in
            events.iter().enumerate().filter(|(_, (what, path))| *what == "write" && path.ends_with("00000000000000000000"))
        {
            let name = |(_, path): &(&str, PathBuf)| path.parent().is_some_and(|parent| parent.ends_with("lost"));
            let kept = events[..number].iter().rposition(|event| event.0 == "write" && name(event)).expect("kept first");
            let between = &events[kept..number];
            assert!(between.iter().any(|event| event.0 == "sync" && name(event)), "{} synced before the seal", path.display());
            assert!(between.iter().any(|event| event.0 == "sync folder" && event.1.ends_with("lost")), "and its folder");
        }
        std::fs::write(stopped.path("abort"), "1").unwrap();
        let store = open_with(stopped.config.clone(), RealFs::shared()).unwrap();
        assert!(store.recovery().sealed <= if whole { 0 } else { 2 }, "{}", store.recovery());
        settled(&store);
        assert!(store.shutdown(DEADLINE).clean);
        drop(store);
        std::fs::write(stopped.path("abort"), "1").unwrap();
        opens_and_holds(&stopped, &Opens { lost: lost.clone(), ..Opens::default() });
        if whole {
            break;
        }
        cuts += 1;
    }
    assert!(cuts >= 4, "{cuts}");
}
