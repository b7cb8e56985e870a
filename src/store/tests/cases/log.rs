//! Rows of the commit log: 1-33, 55-57, 67-73, 75, 81-83, 85-87.
//!
//! What a row calls "it" is the last message, or one in the middle of a file; see [`hit`].

use super::*;
use crate::common::record::BLANK_SIZE;
use crate::store::consume_queue_table::ConsumeQueueTable;
use crate::store::dispatch::Dispatcher;
use crate::store::fs::FsFile;
use crate::store::index::Index;
use crate::store::testing;

/// The rows.
pub(super) const ROWS: &[Row] = &[
    row("1", "clean stop, nothing touched", Case::Start(&STANDARD, N, |_| logs("last_stop=clean"))),
    row("2", "kill -9 while idle", Case::Start(&STANDARD, A, |_| logs("last_stop=abrupt"))),
    row("3", "kill -9 with records that are in no queue yet", Case::Run(killed_with_a_backlog)),
    row("4", "kill -9 during the previous start", Case::Run(killed_while_starting)),
    row("5", "last record: 3 bytes of its size, the rest zero", Case::Start(&STANDARD, A, |stopped| tear(stopped, 3, "illegal magic"))),
    row("6", "last record: size and magic, the rest zero", Case::Start(&STANDARD, A, |stopped| tear(stopped, 8, "add up to 91"))),
    row("7", "last record: zeros in its body", Case::Start(&STANDARD, A, zeros_in_the_last_body)),
    row("8", "the same with checkCRCOnRecover=false", Case::Start(&STANDARD, A, zeros_nobody_checks)),
    row("9", "last record: zeros for its properties", Case::Start(&STANDARD, A, zeros_for_properties)),
    row("10", "the same where every record has a CRC of its own", Case::Start(&RECORD_CRC, A, zeros_for_checked_properties)),
    row("11", "last record: total size wrong by 1", Case::Start(&STANDARD, A, |stopped| last_size(stopped, |size| size + 1, "total size"))),
    row(
        "12",
        "last record: total size beyond the file",
        Case::Start(&STANDARD, A, |stopped| last_size(stopped, |_| 1 << 20, "total size")),
    ),
    row("13", "last record: total size negative", Case::Start(&STANDARD, A, |stopped| last_size(stopped, |_| i32::MIN, "total size"))),
    row("14", "last record: illegal magic", Case::Start(&STANDARD, A, illegal_magic_at_the_end)),
    row("15", "one bit of a body in the middle of the last file", Case::Start(&STANDARD, A, |stopped| flip_a_bit(stopped, 3))),
    row("16", "one bit of a body in a middle file that is read", Case::Start(&STANDARD, A, |stopped| flip_a_bit(stopped, 1))),
    row("17", "one bit of a body before the file where the start begins", Case::Start(&STANDARD, AN, flip_a_bit_that_is_not_read)),
    row("18", "the same after a clean stop: sealed by the next start that reads it", Case::Run(unnoticed_until_it_is_read)),
    row("19", "a file full to its last byte, without blank record", Case::Start(&STANDARD, AN, full_to_the_last_byte)),
    row("20", "blank record of a middle file missing", Case::Start(&STANDARD, A, no_blank_in_the_middle)),
    row("21", "preallocated file of zeros behind a full one", Case::Start(&TO_THE_BRIM, AN, |stopped| zero_files(stopped, 1))),
    row("22", "two files of zeros behind the last one", Case::Start(&TO_THE_BRIM, AN, |stopped| zero_files(stopped, 2))),
    row("23", "only one file, of zeros", Case::Start(&NO_MESSAGE, A, only_zeros)),
    row("24", "no file of the log, the queues have units", Case::Start(&STANDARD, AN, no_log)),
    row("25", "first file removed by hand", Case::Start(&STANDARD, AN, first_file_removed)),
    row("26", "middle file removed before the place where the start begins", Case::Start(&STANDARD, AN, unread_file_removed)),
    row("27", "middle file removed that would be read", Case::Start(&STANDARD, A, middle_file_removed)),
    row("28", "last file cut to half its length", Case::Start(&STANDARD, AN, half_a_file)),
    row("29", "last file without a byte", Case::Start(&STANDARD, AN, empty_last_file)),
    row("30", "file without a byte in the middle", Case::Start(&STANDARD, AN, empty_middle_file)),
    row("31", "mappedFileSizeCommitLog changed", Case::Start(&STANDARD, N, other_file_size)),
    row("32", "stray files between those of the log", Case::Start(&STANDARD, N, stray_files)),
    row("33", "folders between the files of the log", Case::Start(&STANDARD, N, stray_folders)),
    row("55", "the clock went backwards while units were still in memory", Case::Start(&STANDARD, A, clock_went_backwards)),
    row("56", "abort, but nothing is wrong", Case::Start(&STANDARD, A, |_| logs("truncated_bytes=0 sealed=0"))),
    row("57", "lock held by a live broker", Case::Run(locked)),
    row("67", "disk full when a file of the log is created", Case::Run(full_disk_at_a_roll)),
    row("68", "disk full when pages of a sparse file are written", Case::Run(full_disk_inside_a_file)),
    row("69", "fsync fails", Case::Run(failed_sync)),
    row("70", "roll cut short: blank record, no next file", Case::Start(&TO_THE_BRIM, A, |stopped| end_with_blank(stopped, false))),
    row("71", "roll cut short: next file, no blank record", Case::Start(&TO_THE_BRIM, A, |stopped| end_with_blank(stopped, true))),
    row("72", "the same record dispatched twice", Case::Start(&STANDARD, A, dispatched_twice)),
    row("73", "stale record behind a new, shorter tail", Case::Run(two_crashes)),
    row("75", "forceVerifyPropCRC=true on an old store", Case::Start(&STANDARD, AN, forced_crc_on_an_old_store)),
    row("81", "read in batches and record by record", Case::Run(both_ways_of_reading)),
    row(
        "82",
        "3 files committed to memory only (there is no transient pool here: as Java's leaves it)",
        Case::Start(&STANDARD, A, lost_pool),
    ),
    row(
        "83",
        "torn record of an inner batch (there is no batch queue here: one unit each)",
        Case::Start(&INNER_BATCH, A, torn_inner_batch),
    ),
    row("85", "a record that leaves room for the blank record only", Case::Start(&EXACT, AN, |_| Opens::whole())),
    row("86", "the log on two paths, one missing", Case::Run(two_paths)),
    row("87", "folder that cannot be written", Case::Run(denied)),
];

const fn row(number: &'static str, name: &'static str, case: Case) -> Row {
    Row { number, name, case }
}

/// The last message ends a few bytes before a file does.
static TO_THE_BRIM: SetUp = SetUp {
    configure: |_| {},
    fill: |store| {
        let mut sent = fill_log(store, 2 * FILE_SIZE as i64 - 1_500, 300);
        let left = 2 * FILE_SIZE as i64 - 40 - store.stats().max_physical_offset;
        sent.push(send_exactly(store, sent.len(), left as usize));
        sent
    },
};
/// The last message of a file leaves 8 bytes.
static EXACT: SetUp = SetUp {
    configure: |_| {},
    fill: |store| {
        let mut sent = fill_log(store, FILE_SIZE as i64 - 1_500, 300);
        let left = (FILE_SIZE - BLANK_SIZE) as i64 - store.stats().max_physical_offset;
        sent.push(send_exactly(store, sent.len(), left as usize));
        assert_eq!(sent.last().unwrap().end() as usize, FILE_SIZE - BLANK_SIZE);
        let number = sent.len();
        sent.push(send(store, TOPICS[0], 0, number, 300));
        assert_eq!(sent.last().unwrap().offset() as usize, FILE_SIZE);
        sent
    },
};
static NO_MESSAGE: SetUp = SetUp { configure: |_| {}, fill: |_| Vec::new() };
/// Every record has its own CRC, and must.
static RECORD_CRC: SetUp = SetUp {
    configure: |config| (config.append_record_crc, config.force_record_crc) = (true, true),
    fill: |store| fill_log(store, FILE_SIZE as i64 + 5_000, 300),
};
static INNER_BATCH: SetUp = SetUp {
    configure: |_| {},
    fill: |store| {
        let mut sent = fill_log(store, 5_000, 300);
        for number in sent.len()..sent.len() + 3 {
            let properties = "INNER_NUM\u{1}3\u{2}INNER_BASE\u{1}0\u{2}";
            let body = body(number, 400);
            let draft = draft("Batches", 0, properties, &body);
            let flags = sysflag::INNER_BATCH | sysflag::NEED_UNWRAP;
            let appended = store.put(&record::Draft { sys_flag: flags, ..draft }).unwrap();
            sent.push(Sent { topic: "Batches".to_owned(), queue_id: 0, key: String::new(), body, appended });
        }
        sent
    },
};

/// Puts a message whose record has `size` bytes.
fn send_exactly(store: &MessageStore, number: usize, size: usize) -> Sent {
    let trial = body(number, 10);
    let key = format!("key-{number}");
    let properties = format!("TAGS\u{1}tag-{}\u{2}KEYS\u{1}{key}\u{2}", number % 5);
    let around = draft(TOPICS[1], 1, &properties, &trial).size() - trial.len();
    let sent = send(store, TOPICS[1], 1, number, size - around);
    assert_eq!(sent.size(), size);
    sent
}

fn logs(part: &'static str) -> Expected {
    Expected::Opens(Opens { logs: vec![part], ..Opens::default() })
}

fn last(stopped: &Stopped) -> usize {
    stopped.sent.len() - 1
}

/// Index of a message in the middle of file `number`.
fn hit(stopped: &Stopped, number: usize) -> usize {
    let range = stopped.in_file(number);
    range.start + range.len() / 2
}

/// Position in a record of the middle of its body.
fn in_body(sent: &Sent) -> usize {
    88 + sent.body.len() / 2
}

/// The last message is cut for a reason that is logged.
fn cut_last(stopped: &Stopped, why: &'static str) -> Expected {
    Expected::Opens(Opens { logs: vec!["what lay behind is cut", why], ..Opens::cut_from(stopped, last(stopped)) })
}

/// Makes the checkpoint's times say that all is flushed up to a moment to come, so that an abrupt stop is followed by a start
/// from the last file on. `logics_offset` is ours.
fn trust_all_but_the_last_file(stopped: &Stopped) {
    set_checkpoint(stopped, |fields| {
        fields[0] += 60_000;
        fields[1] += 60_000;
    });
}

/// Changes the 64-bit fields of the checkpoint.
fn set_checkpoint(stopped: &Stopped, change: impl FnOnce(&mut [i64])) {
    let path = stopped.path("checkpoint");
    let mut bytes = std::fs::read(&path).unwrap();
    let mut fields: Vec<i64> = bytes.chunks(8).map(|chunk| i64::from_be_bytes(chunk.try_into().unwrap())).collect();
    change(&mut fields);
    bytes.chunks_mut(8).zip(fields).for_each(|(chunk, field)| chunk.copy_from_slice(&field.to_be_bytes()));
    std::fs::write(path, bytes).unwrap();
}

// ---- the end of the log ----

fn tear(stopped: &mut Stopped, kept: usize, why: &'static str) -> Expected {
    let torn = &stopped.sent[last(stopped)];
    stopped.damage(torn.offset(), |bytes| bytes[kept..torn.size()].fill(0));
    cut_last(stopped, why)
}

fn zero_last_body(stopped: &Stopped) {
    let torn = &stopped.sent[last(stopped)];
    stopped.damage(torn.offset(), |bytes| bytes[in_body(torn)..in_body(torn) + 50].fill(0));
}

fn zeros_in_the_last_body(stopped: &mut Stopped) -> Expected {
    zero_last_body(stopped);
    cut_last(stopped, "body CRC")
}

fn zeros_nobody_checks(stopped: &mut Stopped) -> Expected {
    zero_last_body(stopped);
    stopped.config.check_crc_on_recover = false;
    Expected::Opens(Opens { changed: vec![last(stopped)], logs: vec!["checkCRCOnRecover=false"], ..Opens::default() })
}

fn zero_properties(stopped: &Stopped) {
    let torn = &stopped.sent[last(stopped)];
    let properties = torn.size() - (88 + torn.body.len() + 1 + torn.topic.len() + 2);
    stopped.damage(torn.offset(), |bytes| bytes[torn.size() - properties..torn.size()].fill(0));
}

fn zeros_for_properties(stopped: &mut Stopped) -> Expected {
    zero_properties(stopped);
    let and = |opened: &Opened<'_>| {
        let torn = opened.stopped.sent.last().unwrap();
        let record = opened.store.record_at(torn.offset()).unwrap();
        let record = Record::parse(&record).unwrap();
        assert_eq!(crate::common::properties::find(record.properties, "KEYS"), None);
        assert!(opened.store.query(&torn.topic, &torn.key, 10, 0, i64::MAX).records.is_empty(), "no key");
        let before = &opened.stopped.sent[opened.stopped.sent.len() - 2];
        assert_eq!(opened.store.query(&before.topic, &before.key, 10, 0, i64::MAX).records.len(), 1);
    };
    Expected::Opens(Opens { and: Some(and), ..Opens::default() })
}

fn zeros_for_checked_properties(stopped: &mut Stopped) -> Expected {
    zero_properties(stopped);
    cut_last(stopped, "record CRC")
}

fn last_size(stopped: &mut Stopped, size: fn(i32) -> i32, why: &'static str) -> Expected {
    let torn = &stopped.sent[last(stopped)];
    stopped.damage(torn.offset(), |bytes| bytes[..4].copy_from_slice(&size(torn.size() as i32).to_be_bytes()));
    cut_last(stopped, why)
}

fn illegal_magic_at_the_end(stopped: &mut Stopped) -> Expected {
    let torn = &stopped.sent[last(stopped)];
    stopped.damage(torn.offset(), |bytes| bytes[4..8].copy_from_slice(&[0x11; 4]));
    cut_last(stopped, "illegal magic 0x11111111")
}

// ---- the middle ----

fn flip_a_bit(stopped: &mut Stopped, file: usize) -> Expected {
    let index = hit(stopped, file);
    let damaged = &stopped.sent[index];
    let before = std::fs::read(stopped.log_file(file * FILE_SIZE)).unwrap();
    stopped.damage(damaged.offset(), |bytes| bytes[in_body(damaged)] ^= 4);
    std::fs::create_dir(stopped.path("before")).unwrap();
    std::fs::write(stopped.path("before/log"), before).unwrap();
    let and = |opened: &Opened<'_>| {
        let lost = std::fs::read_dir(opened.stopped.path("lost")).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        assert_eq!(lost.len(), 1);
        let offset: i64 = lost[0].file_name().unwrap().to_str().unwrap().parse().unwrap();
        let damaged = opened.stopped.sent.iter().find(|sent| sent.offset() == offset).unwrap();
        let mut kept = std::fs::read(&lost[0]).unwrap();
        kept[in_body(damaged)] ^= 4;
        let before = std::fs::read(opened.stopped.path("before/log")).unwrap();
        let at = offset as usize % FILE_SIZE;
        assert_eq!(kept, before[at..at + damaged.size()], "the damaged bytes are kept");
        let seal = opened.store.record_at(offset).unwrap();
        let seal = Record::parse(&seal).unwrap();
        seal.check_crc().unwrap();
        assert_eq!((seal.total_size, seal.physical_offset, seal.v2), (damaged.size(), offset, false));
        assert_eq!(sysflag::transaction_type(seal.sys_flag), sysflag::TRANSACTION_ROLLBACK);
        let line = opened.lines.iter().find(|line| line.starts_with("ERROR") && line.contains("its records are lost")).unwrap();
        let parts = [
            format!("offset={offset} bytes={} ", damaged.size()),
            format!("topic={} queue_id={} queue_offset={}", damaged.topic, damaged.queue_id, damaged.appended.queue_offset),
            lost[0].display().to_string(),
        ];
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    };
    Expected::Opens(Opens { lost: vec![index], sealed: 1, logs: vec!["body CRC"], and: Some(and), ..Opens::default() })
}

fn flip_a_bit_that_is_not_read(stopped: &mut Stopped) -> Expected {
    let index = hit(stopped, 1);
    let damaged = &stopped.sent[index];
    stopped.damage(damaged.offset(), |bytes| bytes[in_body(damaged)] ^= 4);
    trust_all_but_the_last_file(stopped);
    Expected::Opens(Opens { changed: vec![index], unread: true, ..Opens::default() })
}

fn unnoticed_until_it_is_read() {
    for mode in BOTH {
        let stopped = Bases::default().stopped(&STANDARD, Stop::Clean, mode);
        let index = hit(&stopped, 1);
        let damaged = &stopped.sent[index];
        stopped.damage(damaged.offset(), |bytes| bytes[in_body(damaged)] ^= 4);
        let open = || open_with(stopped.config.clone(), RealFs::shared()).unwrap();
        let store = open();
        check_messages(&store, &stopped, &Opens { changed: vec![index], ..Opens::default() });
        assert!(store.shutdown(DEADLINE).clean);
        drop(store);
        std::fs::write(stopped.path("abort"), "1").unwrap();
        opens_and_holds(&stopped, &Opens { lost: vec![index], sealed: 1, ..Opens::default() });
    }
}

fn full_to_the_last_byte(stopped: &mut Stopped) -> Expected {
    let index = stopped.in_file(1).end - 1;
    let long = &mut stopped.sent[index];
    let left = 2 * FILE_SIZE - long.offset() as usize;
    let size = if stopped.stop == Stop::Clean { left } else { left - 5 }; // no room for a blank record in both cases
    let properties = format!("TAGS\u{1}t\u{2}KEYS\u{1}{}\u{2}", long.key);
    let around = draft(&long.topic, long.queue_id, &properties, b"").size();
    long.body = body(index, size - around);
    long.appended.size = size;
    let mut bytes = Vec::new();
    draft(&long.topic, long.queue_id, &properties, &long.body).encode(&mut bytes);
    record::place(&mut bytes, long.appended.queue_offset, long.offset(), long.appended.store_timestamp);
    let offset = long.offset();
    stopped.damage(offset, |place| {
        place.fill(0);
        place[..bytes.len()].copy_from_slice(&bytes);
    });
    std::fs::remove_dir_all(stopped.path("consumequeue")).unwrap(); // the unit of the shorter record
    Opens::whole()
}

fn no_blank_in_the_middle(stopped: &mut Stopped) -> Expected {
    let end = stopped.sent[stopped.in_file(1).end - 1].end();
    stopped.damage(end, |bytes| bytes.fill(0));
    Expected::Opens(Opens { sealed: 1, logs: vec!["illegal magic 0x00000000"], ..Opens::default() })
}

// ---- files ----

fn write_blank(stopped: &Stopped) {
    stopped.damage(stopped.end(), |rest| {
        let blank = crate::store::append::blank(rest.len());
        rest[..BLANK_SIZE].copy_from_slice(&blank);
    });
}

fn zero_files(stopped: &mut Stopped, count: usize) -> Expected {
    write_blank(stopped);
    for number in 0..count {
        std::fs::write(stopped.log_file((2 + number) * FILE_SIZE), vec![0; FILE_SIZE]).unwrap();
    }
    let and = |opened: &Opened<'_>| {
        assert!(opened.stopped.log_file(2 * FILE_SIZE).exists() && !opened.stopped.log_file(3 * FILE_SIZE).exists());
        assert_eq!(opened.stats.max_physical_offset, 2 * FILE_SIZE as i64);
        assert_eq!(opened.report.truncated_bytes, 0);
    };
    Expected::Opens(Opens { end: Some(2 * FILE_SIZE as i64), and: Some(and), ..Opens::default() })
}

fn only_zeros(stopped: &mut Stopped) -> Expected {
    std::fs::create_dir_all(stopped.path("commitlog")).unwrap();
    std::fs::write(stopped.log_file(0), vec![0; FILE_SIZE]).unwrap();
    let and = |opened: &Opened<'_>| assert_eq!(opened.stats.max_physical_offset, 0);
    Expected::Opens(Opens { end: Some(0), and: Some(and), ..Opens::default() })
}

fn no_log(stopped: &mut Stopped) -> Expected {
    std::fs::remove_dir_all(stopped.path("commitlog")).unwrap();
    let dropped = (0..stopped.sent.len()).collect();
    let and = |opened: &Opened<'_>| {
        assert_eq!(opened.stats.max_physical_offset, 0);
        assert!(opened.lines.iter().any(|line| line.starts_with("ERROR") && line.contains("allowEmptyCommitLog")), "{:#?}", opened.lines);
    };
    Expected::Opens(Opens { dropped, end: Some(0), and: Some(and), ..Opens::default() })
}

fn first_file_removed(stopped: &mut Stopped) -> Expected {
    std::fs::remove_file(stopped.log_file(0)).unwrap();
    Expected::Opens(Opens { gone: stopped.in_file(0).collect(), ..Opens::default() })
}

fn unread_file_removed(stopped: &mut Stopped) -> Expected {
    std::fs::remove_file(stopped.log_file(FILE_SIZE)).unwrap();
    trust_all_but_the_last_file(stopped);
    let and = |opened: &Opened<'_>| {
        let sent = &opened.stopped.sent[opened.stopped.in_file(1).start];
        let limits = GetLimits::default();
        let result = opened.store.get(&sent.topic, sent.queue_id, sent.appended.queue_offset, &limits, &AllMessages);
        assert_eq!(result.status, GetStatus::Found, "a pull goes on behind the hole");
        let record = Record::parse(&result.slices[0]).unwrap().physical_offset;
        assert_eq!(record as usize / FILE_SIZE, 2);
    };
    Expected::Opens(Opens {
        lost: stopped.in_file(1).collect(),
        logs: vec!["commit log files are missing"],
        unread: true,
        and: Some(and),
        ..Opens::default()
    })
}

fn middle_file_removed(stopped: &mut Stopped) -> Expected {
    std::fs::remove_file(stopped.log_file(2 * FILE_SIZE)).unwrap();
    let named = format!("no file for offsets {} to {}", 2 * FILE_SIZE, 3 * FILE_SIZE);
    Expected::Refuses(vec![named, "allowCommitLogHole".to_owned()])
}

fn half_a_file(stopped: &mut Stopped) -> Expected {
    std::fs::File::options().write(true).open(stopped.log_file(3 * FILE_SIZE)).unwrap().set_len(FILE_SIZE as u64 / 2).unwrap();
    let texts = ["00000000000000196608", "32768 bytes", "mappedFileSizeCommitLog is 65536", "petrel store repair"];
    Expected::Refuses(texts.map(str::to_owned).to_vec())
}

fn empty_last_file(stopped: &mut Stopped) -> Expected {
    std::fs::write(stopped.log_file(4 * FILE_SIZE), b"").unwrap();
    let and = |opened: &Opened<'_>| {
        let made_ahead = std::fs::metadata(opened.stopped.log_file(4 * FILE_SIZE)).map_or(0, |file| file.len());
        assert!(made_ahead == 0 || made_ahead == FILE_SIZE as u64);
    };
    Expected::Opens(Opens { logs: vec!["file without bytes removed"], and: Some(and), ..Opens::default() })
}

fn empty_middle_file(stopped: &mut Stopped) -> Expected {
    std::fs::write(stopped.log_file(FILE_SIZE), b"").unwrap();
    Expected::Refuses(["00000000000000065536", "0 bytes", "65536"].map(str::to_owned).to_vec())
}

fn other_file_size(stopped: &mut Stopped) -> Expected {
    stopped.config.commit_log_file_size = 2 * FILE_SIZE;
    Expected::Refuses(["65536 bytes", "mappedFileSizeCommitLog is 131072"].map(str::to_owned).to_vec())
}

fn stray_files(stopped: &mut Stopped) -> Expected {
    for name in ["00000000000000000000.bak", ".DS_Store", "zzz"] {
        std::fs::write(stopped.path("commitlog").join(name), b"stray").unwrap();
    }
    logs("its name is not 20 digits")
}

fn stray_folders(stopped: &mut Stopped) -> Expected {
    for name in ["old", "00000000000000262144"] {
        std::fs::create_dir(stopped.path("commitlog").join(name)).unwrap();
    }
    Opens::whole()
}

/// The last units of every queue were in memory when the process died, and the checkpoint, which knows no offset (Java before 5.5),
/// is of the time before the clock was set back.
fn clock_went_backwards(stopped: &mut Stopped) -> Expected {
    set_checkpoint(stopped, |fields| {
        fields[0] += 600_000;
        fields[1] += 600_000;
        fields[5] = 0;
    });
    forget_units(stopped, 3 * FILE_SIZE as i64 / 2);
    Opens::whole()
}

/// Zeroes the units that point at or behind `offset`.
fn forget_units(stopped: &Stopped, offset: i64) {
    for path in files_of(&stopped.path("consumequeue")).into_keys() {
        let path = stopped.path("consumequeue").join(path);
        let mut bytes = std::fs::read(&path).unwrap();
        for unit in bytes.chunks_mut(20) {
            if i64::from_be_bytes(unit[..8].try_into().unwrap()) >= offset {
                unit.fill(0);
            }
        }
        std::fs::write(&path, bytes).unwrap();
    }
}

fn end_with_blank(stopped: &mut Stopped, instead: bool) -> Expected {
    if instead {
        std::fs::write(stopped.log_file(2 * FILE_SIZE), vec![0; FILE_SIZE]).unwrap();
    } else {
        write_blank(stopped);
    }
    let and = |opened: &Opened<'_>| {
        assert_eq!(opened.stats.max_physical_offset, opened.stopped.end(), "the place of the blank record");
    };
    let then = |stopped: &Stopped| {
        let bytes = std::fs::read(stopped.log_file(FILE_SIZE)).unwrap();
        let at = stopped.end() as usize - FILE_SIZE;
        assert_eq!(bytes[at..at + BLANK_SIZE], crate::store::append::blank(FILE_SIZE - at));
        let next = std::fs::read(stopped.log_file(2 * FILE_SIZE)).unwrap();
        assert_eq!(Record::parse(&next).unwrap().physical_offset, 2 * FILE_SIZE as i64, "the next message rolls");
    };
    Expected::Opens(Opens { end: Some(stopped.end()), and: Some(and), then: Some(then), ..Opens::default() })
}

fn lost_pool(stopped: &mut Stopped) -> Expected {
    let first = hit(stopped, 1);
    stopped.damage(stopped.sent[first].offset(), |bytes| bytes.fill(0));
    for file in [2, 3] {
        std::fs::write(stopped.log_file(file * FILE_SIZE), vec![0; FILE_SIZE]).unwrap();
    }
    Expected::Opens(Opens::cut_from(stopped, first))
}

fn torn_inner_batch(stopped: &mut Stopped) -> Expected {
    tear(stopped, 200, "total size")
}

fn forced_crc_on_an_old_store(stopped: &mut Stopped) -> Expected {
    stopped.config.force_record_crc = true;
    Expected::Refuses(["forceVerifyPropCRC", "__CRC32#", "00000000000000000000"].map(str::to_owned).to_vec())
}

fn dispatched_twice(stopped: &mut Stopped) -> Expected {
    let before = files_of(&stopped.path("consumequeue"));
    let fs = RealFs::shared();
    let queues = Arc::new(ConsumeQueueTable::load(&stopped.config, Arc::clone(&fs)).unwrap());
    let index = Arc::new(Index::load(&stopped.config, fs, None).unwrap());
    let deleted = testing::deleted(stopped.root());
    let dispatcher = Dispatcher::new(Arc::clone(&queues), Some(Arc::clone(&index)), deleted, Vec::new());
    for sent in stopped.sent.iter().chain(&stopped.sent) {
        let bytes = std::fs::read(stopped.log_file(sent.offset() as usize / FILE_SIZE * FILE_SIZE)).unwrap();
        let record = Record::parse(&bytes[sent.offset() as usize % FILE_SIZE..]).unwrap();
        dispatcher.dispatch(&record, sent.offset()).unwrap();
    }
    assert_eq!(queues.dirty_bytes(), 0, "no unit is new");
    queues.flush(true).unwrap();
    index.flush().unwrap();
    assert_same(&before, &files_of(&stopped.path("consumequeue")), "dispatching again");
    let and = |opened: &Opened<'_>| {
        for sent in &opened.stopped.sent {
            assert_eq!(opened.store.query(&sent.topic, &sent.key, 10, 0, i64::MAX).records.len(), 1, "{}", sent.key);
        }
    };
    Expected::Opens(Opens { and: Some(and), ..Opens::default() })
}

// ---- rows that are no start on damaged files ----

fn killed_with_a_backlog() {
    for mode in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let never = StoreConfig { flush_consume_queue_interval_ms: 3_600_000, ..base_config(folder.path(), mode) };
        let store = open_with(never, RealFs::shared()).unwrap();
        let sent = (STANDARD.fill)(&store);
        let killed = copy(folder.path());
        assert!(!killed.path().join("consumequeue").exists(), "no unit is on disk");
        let config = base_config(killed.path(), mode);
        opens_and_holds(&Stopped { folder: killed, config, mode, stop: Stop::Abrupt, sent }, &Opens::default());
    }
}

type Hook = Box<dyn Fn(&Path, bool) -> std::io::Result<()> + Send + Sync>;

/// The real file system, with something that happens before a file is opened (or created).
struct Hooked(Hook);

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl Fs for Hooked {
    fn open(&self, path: &Path, create: bool) -> std::io::Result<Arc<dyn FsFile>> {
        (self.0)(path, create)?;
        RealFs.open(path, create)
    }

    fn create_dir_all(&self, path: &Path) -> std::io::Result<()> {
        RealFs.create_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        RealFs.sync_dir(path)
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

    fn space(&self, path: &Path) -> std::io::Result<crate::store::fs::Space> {
        RealFs.space(path)
    }
}

fn killed_while_starting() {
    for mode in BOTH {
        let stopped = Bases::default().stopped(&STANDARD, Stop::Clean, mode);
        let (root, seen) = (stopped.root().to_owned(), Arc::new(Mutex::new(None)));
        let keep: Arc<Mutex<Option<TempDir>>> = Arc::clone(&seen);
        let hook = move |path: &Path, _| {
            if path.parent().is_some_and(|parent| parent.ends_with("commitlog")) {
                keep.lock().get_or_insert_with(|| copy(&root));
            }
            Ok(())
        };
        drop(open_with(stopped.config.clone(), Arc::new(Hooked(Box::new(hook)))).unwrap());
        let killed = seen.lock().take().unwrap();
        assert!(killed.path().join("abort").exists(), "before any file of the log is touched");
        let config = base_config(killed.path(), mode);
        let killed = Stopped { folder: killed, config, stop: Stop::Abrupt, ..stopped };
        opens_and_holds(&killed, &Opens { logs: vec!["last_stop=abrupt"], ..Opens::default() });
    }
}

fn locked() {
    let stopped = Bases::default().stopped(&STANDARD, Stop::Clean, FlushDiskType::Sync);
    let store = open_with(stopped.config.clone(), RealFs::shared()).unwrap();
    settled(&store);
    until("next file made ahead", || stopped.log_file(4 * FILE_SIZE).exists());
    let before = files_of(stopped.root());
    let error = open_with(stopped.config.clone(), RealFs::shared()).err().unwrap();
    assert!(matches!(&error, StoreError::Locked(path, Some(pid)) if path.ends_with("lock") && *pid == std::process::id()), "{error}");
    assert_same(&before, &files_of(stopped.root()), "whoever has no lock touches nothing");
    check_messages(&store, &stopped, &Opens::default());
    assert!(store.shutdown(DEADLINE).clean);
}

/// A store on a disk that can be made to fail.
fn on_test_fs(mode: FlushDiskType) -> (Stopped, Arc<TestFs>, Arc<MessageStore>) {
    let stopped = Bases::default().stopped(&STANDARD, Stop::Clean, mode);
    let fs = Arc::new(TestFs::default());
    let store = open_with(stopped.config.clone(), fs.clone()).unwrap();
    (stopped, fs, store)
}

/// After the trouble: everything that was answered is there.
fn ends_well(mut stopped: Stopped, store: Arc<MessageStore>, answered: Vec<Sent>) {
    settled(&store);
    stopped.sent.extend(answered);
    check_messages(&store, &stopped, &Opens::default());
    assert!(store.shutdown(DEADLINE).clean);
    drop(store);
    std::fs::write(stopped.path("abort"), "1").unwrap();
    opens_and_holds(&stopped, &Opens::default());
}

fn full_disk_at_a_roll() {
    for mode in BOTH {
        let mut stopped = Bases::default().stopped(&STANDARD, Stop::Clean, mode);
        let full = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let looks = Arc::clone(&full);
        let hook = move |path: &Path, create| {
            let in_log = path.ends_with("commitlog.new") || path.parent().is_some_and(|parent| parent.ends_with("commitlog"));
            let is_new = create && in_log && !path.exists();
            if is_new && looks.load(Ordering::Relaxed) { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        };
        let store = open_with(stopped.config.clone(), Arc::new(Hooked(Box::new(hook)))).unwrap();
        let refused = (0..100).find_map(|number| {
            let body = body(number, 3_000);
            match store.put(&draft(TOPICS[0], 0, "", &body)) {
                Ok(appended) => {
                    stopped.sent.push(Sent { topic: TOPICS[0].to_owned(), queue_id: 0, key: String::new(), body, appended });
                    None
                }
                Err(error) => Some(error.to_string()),
            }
        });
        let text = refused.expect("no more room");
        assert!(text.contains("00000000000000262144") && text.contains("bytes free") && text.contains("diskFreeReserveBytes"), "{text}");
        settled(&store);
        check_messages(&store, &stopped, &Opens::default());
        full.store(false, Ordering::Relaxed);
        until("healed", || store.refusal().is_none());
        let next = send(&store, TOPICS[0], 0, 1, 3_000);
        assert_eq!(next.offset(), 4 * FILE_SIZE as i64);
        ends_well(stopped, store, vec![next]);
    }
}

fn full_disk_inside_a_file() {
    for mode in BOTH {
        let (stopped, fs, store) = on_test_fs(mode);
        fs.trouble.cannot_allocate.store(true, Ordering::Relaxed); // so that the append itself meets it
        fs.trouble.full.store(true, Ordering::Relaxed);
        let mut answered = Vec::new();
        let refused = (0..200).find_map(|number| {
            let body = body(number, 500);
            match store.put(&draft(TOPICS[0], 0, "", &body)) {
                Ok(appended) => {
                    answered.push(Sent { topic: TOPICS[0].to_owned(), queue_id: 0, key: String::new(), body, appended });
                    None
                }
                Err(error) => Some(error.to_string()),
            }
        });
        let text = refused.expect("an error, not a signal");
        assert!(text.contains("bytes free") && text.contains("diskFreeReserveBytes"), "{text}");
        fs.trouble.cannot_allocate.store(false, Ordering::Relaxed);
        fs.trouble.full.store(false, Ordering::Relaxed);
        until("healed", || store.refusal().is_none());
        ends_well(stopped, store, answered);
    }
}

fn failed_sync() {
    for mode in BOTH {
        let (mut stopped, fs, store) = on_test_fs(mode);
        fs.trouble.sync_fails.store(true, Ordering::Relaxed);
        stopped.sent.push(send(&store, TOPICS[0], 0, 1, 300));
        until("latched", || store.sync_failure().is_some());
        fs.trouble.sync_fails.store(false, Ordering::Relaxed);
        for _ in 0..3 {
            let Err(PutError::Unavailable(why)) = store.put(&draft(TOPICS[0], 0, "", b"x")) else { panic!("not refused") };
            assert!(why.contains("EIO") && why.contains("commitlog"), "no later sync heals it: {why}");
        }
        let told = Arc::new(Mutex::new(None));
        let teller = Arc::clone(&told);
        store.when_durable(stopped.end(), Box::new(move |durability| *teller.lock() = Some(durability)));
        until("told", || told.lock().is_some());
        let told = told.lock().clone().unwrap();
        assert!(mode == FlushDiskType::Async || matches!(told, Durability::Failed(_)), "{told:?}");
        assert!(!store.shutdown(DEADLINE).clean);
        drop(store);
        assert!(stopped.path("abort").exists());
        stopped.stop = Stop::Abrupt;
        opens_and_holds(&stopped, &Opens { logs: vec!["a sync failed in the last run"], ..Opens::default() });
    }
}

/// Twice a tail is cut and written over by a shorter record behind which the old ones would fit.
fn two_crashes() {
    for mode in BOTH {
        let mut stopped = Bases::default().stopped(&STANDARD, Stop::Abrupt, mode);
        for round in 0..2 {
            let first = stopped.sent.len() - 6;
            let torn = stopped.sent[first].clone();
            stopped.damage(torn.offset(), |bytes| bytes[5..torn.size()].fill(0));
            // a group of which nothing was acknowledged: its first page did not arrive
            stopped.damage(torn.offset() + 600, |bytes| bytes[..2 * 512].fill(0));
            set_flushed(stopped.root(), torn.offset());
            std::fs::write(stopped.path("abort"), "1").unwrap();
            if mode == FlushDiskType::Async {
                stopped.damage(torn.offset() + 5, |bytes| bytes.fill(0)); // nobody waited: what arrived would be kept
            }
            let store = open_with(stopped.config.clone(), RealFs::shared()).unwrap();
            check_messages(&store, &stopped, &Opens::cut_from(&stopped, first));
            stopped.sent.truncate(first);
            let number = stopped.sent.len();
            let again = send(&store, &torn.topic, torn.queue_id, number, torn.body.len());
            assert_eq!((again.offset(), again.size()), (torn.offset(), torn.size()), "the next old record would fit behind it");
            stopped.sent.push(again);
            settled(&store);
            let killed = copy(stopped.root());
            drop(store);
            stopped.folder = killed;
            stopped.config.root = stopped.root().to_owned();
            let store = open_with(stopped.config.clone(), RealFs::shared()).unwrap();
            check_messages(&store, &stopped, &Opens::default());
            assert_eq!(store.stats().max_physical_offset, stopped.end(), "round {round}");
            assert!(store.shutdown(DEADLINE).clean);
        }
        opens_and_holds(&stopped, &Opens::default());
    }
}

fn both_ways_of_reading() {
    let damages: [fn(&mut Stopped) -> Expected; 6] = [
        |_| Opens::whole(),
        |stopped| flip_a_bit(stopped, 1),
        |stopped| tear(stopped, 90, "total size"),
        no_blank_in_the_middle,
        clock_went_backwards,
        lost_pool,
    ];
    for mode in BOTH {
        for damage in damages {
            let mut stopped = Bases::default().stopped(&STANDARD, Stop::Abrupt, mode);
            damage(&mut stopped);
            let again = copy(stopped.root());
            let recovered = |root: &Path, optimized_recovery: bool| {
                let config = StoreConfig { optimized_recovery, root: root.to_owned(), ..stopped.config.clone() };
                let (store, lines) = logged(|| open_with(config, RealFs::shared()).unwrap());
                let reads = if optimized_recovery { "reads=batches" } else { "reads=records" };
                assert!(lines.iter().any(|line| line.contains(reads)), "{lines:#?}");
                let mut tables = Vec::new();
                for (topic, ids) in store.topics() {
                    tables.extend(ids.into_iter().map(|id| (topic.clone(), id, store.queue_bounds(&topic, id))));
                }
                let report = RecoveryReport { ms: 0, ..store.recovery() };
                let end = store.stats().max_physical_offset;
                assert!(store.shutdown(DEADLINE).clean);
                (report, end, tables)
            };
            assert_eq!(recovered(stopped.root(), true), recovered(again.path(), false));
            assert_same(&files_of(stopped.root()), &files_of(again.path()), "both ways");
        }
    }
}

/// Files of the log by turns in two folders.
static TWO_PATHS: SetUp = SetUp {
    configure: |config| {
        config.commit_log_path = Some(config.root.join("b"));
        config.more_commit_log_paths = vec![config.root.join("a")];
    },
    ..STANDARD
};

fn two_paths() {
    let names = |stopped: &Stopped, folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(stopped.path(folder)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    for mode in BOTH {
        for stop in [Stop::Clean, Stop::Abrupt] {
            let fresh = || Bases::default().stopped(&TWO_PATHS, stop, mode);
            let stopped = fresh();
            assert_eq!(names(&stopped, "a"), ["00000000000000000000", "00000000000000131072"], "number modulo folders");
            assert_eq!(names(&stopped, "b"), ["00000000000000065536", "00000000000000196608"]);
            opens_and_holds(&stopped, &Opens::default());
            for folder in ["a", "b"] {
                // the disk is not mounted: the folder is not there, or an empty one is
                let stopped = fresh();
                std::fs::remove_dir_all(stopped.path(folder)).unwrap();
                let text = stopped.path(folder).display().to_string();
                refuses(&stopped, &[text, "storePathCommitLog".to_owned(), "readOnlyCommitLogStorePaths".to_owned()]);
                std::fs::create_dir(stopped.path(folder)).unwrap();
                refuses(&stopped, &["no file for offsets".to_owned(), "allowCommitLogHole".to_owned()]);
                // it was taken away on purpose
                let mut stopped = fresh();
                std::fs::remove_dir_all(stopped.path(folder)).unwrap();
                stopped.config.read_only_commit_log_paths = vec![stopped.path(folder)];
                let of_file = |file: &usize| stopped.in_file(*file);
                let opens = if folder == "a" {
                    Opens { gone: of_file(&0).collect(), lost: of_file(&2).collect(), unread: true, ..Opens::default() }
                } else {
                    let end = Some(stopped.sent[of_file(&3).start - 1].end());
                    let lost = of_file(&1).collect();
                    Opens { lost, dropped: of_file(&3).collect(), end, unread: true, ..Opens::default() }
                };
                opens_and_holds(&stopped, &opens);
            }
        }
    }
}

fn denied() {
    let denied = |name: &'static str, at_create: bool| {
        let stopped = Bases::default().stopped(&STANDARD, Stop::Clean, FlushDiskType::Sync);
        let mut before = files_of(stopped.root());
        let hook = move |path: &Path, create| {
            let hit = path.to_string_lossy().contains(name) && (create || !at_create);
            if hit { Err(std::io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
        };
        let error = open_with(stopped.config.clone(), Arc::new(Hooked(Box::new(hook)))).err().expect("it does not open").to_string();
        assert!(error.contains(name) && error.contains("permission denied"), "{error}");
        let mut after = files_of(stopped.root());
        after.remove(Path::new("lock"));
        before.remove(Path::new("lock"));
        assert_same(&before, &after, "a refused start changes nothing");
        let store = open_with(stopped.config.clone(), RealFs::shared()).expect("it opens when it may");
        check_messages(&store, &stopped, &Opens::default());
    };
    denied("lock", true);
    denied("abort", true);
    denied("commitlog/00000000000000065536", false);
    denied("consumequeue/TopicB/1", false);
    denied("checkpoint", false);
}

// ---- the keys that two rows name ----

#[test]
fn a_hole_in_the_log_is_crossed_when_it_may() {
    for mode in BOTH {
        let mut stopped = Bases::default().stopped(&STANDARD, Stop::Abrupt, mode);
        middle_file_removed(&mut stopped);
        stopped.config.allow_commit_log_hole = true;
        let lost = stopped.in_file(2).collect();
        opens_and_holds(&stopped, &Opens { lost, logs: vec!["commit log files are missing"], ..Opens::default() });
    }
}

#[test]
fn a_log_without_files_is_refused_when_it_may_not_begin_anew() {
    for stop in [Stop::Clean, Stop::Abrupt] {
        for only_index in [false, true] {
            let mut stopped = Bases::default().stopped(&STANDARD, stop, FlushDiskType::Async);
            no_log(&mut stopped);
            if only_index {
                std::fs::remove_dir_all(stopped.path("consumequeue")).unwrap();
            }
            stopped.config.allow_empty_commit_log = false;
            refuses(&stopped, &["no files".to_owned(), "allowEmptyCommitLog".to_owned()]);
        }
    }
    let mut empty = Bases::default().stopped(&NO_MESSAGE, Stop::Clean, FlushDiskType::Async);
    empty.config.allow_empty_commit_log = false;
    opens_and_holds(&empty, &Opens::default());
}

#[test]
fn records_with_a_crc_of_their_own_survive_damage_and_seals_have_one_too() {
    for mode in BOTH {
        let stopped = Bases::default().stopped(&RECORD_CRC, Stop::Abrupt, mode);
        let index = stopped.in_file(0).len() / 2;
        for (place, at) in [(index, 20), (index + 5, 40), (index + 9, stopped.sent[index + 9].size() - 30)] {
            stopped.damage(stopped.sent[place].offset(), |bytes| bytes[at] ^= 1); // queue offset, time, properties: no body
        }
        let lost = vec![index, index + 5, index + 9];
        opens_and_holds(&stopped, &Opens { lost, sealed: 3, logs: vec!["record CRC"], ..Opens::default() });
    }
    let mut forced = Bases::default().stopped(&NO_MESSAGE, Stop::Clean, FlushDiskType::Async);
    forced.config.force_record_crc = true;
    refuses(&forced, &["forceVerifyPropCRC=true".to_owned(), "enabledAppendPropCRC=true".to_owned()]);
}
