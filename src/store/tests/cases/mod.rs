//! The table of crash and corruption cases: one row each, with what the start after it must keep, drop, seal or refuse.
//!
//! Most rows prepare a store through [`MessageStore`], stop it, damage its files and start it again, in both flush modes and for
//! each way in which the last run can have ended. After each of them the invariants hold:
//! - I1: unit k of a queue points at a whole record of that topic, queue and offset (or is a filler, or points at a seal);
//! - I2: every record that belongs into a queue has its unit;
//! - I3: a queue's max offset is the next offset that is given;
//! - I4: there is no file behind the end of the log, but one empty one;
//! - I5: a start without writes changes no file, be it after a clean stop or after a kill;
//! - I6: such a start has nothing to cut and nothing to seal.
//!
//! `PETREL_CASE=15` runs one row.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::store::message_store::StoreStats;
use crate::store::recovery::RecoveryReport;

mod derived;
pub(super) mod invariants;
mod log;
mod sealing;

/// A row of the table.
pub(super) struct Row {
    /// Its number there.
    pub(super) number: &'static str,
    /// What happens, in a few words.
    pub(super) name: &'static str,
    /// How it is tested.
    pub(super) case: Case,
}

/// How a row is tested.
#[derive(Clone, Copy)]
pub(super) enum Case {
    /// The set-up is filled and stopped in each of these ways, damaged, and started.
    Start(&'static SetUp, &'static [Stop], fn(&mut Stopped) -> Expected),
    /// Anything else; asserts by itself.
    Run(fn()),
    /// A test of another module: its file below `src`, and its name.
    Elsewhere(&'static str, &'static str),
    /// Belongs to something that is not there yet: what.
    Gap(&'static str),
}

/// How the last run ended (the table's column "abort": N, A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Stop {
    /// In order: there is no `abort`.
    Clean,
    /// It did not: there is one. Everything is on disk, and the checkpoint current.
    Abrupt,
}

/// N.
pub(super) const N: &[Stop] = &[Stop::Clean];
/// A.
pub(super) const A: &[Stop] = &[Stop::Abrupt];
/// A/N.
pub(super) const AN: &[Stop] = &[Stop::Abrupt, Stop::Clean];

/// What a store is made of before it is damaged.
pub(super) struct SetUp {
    /// Changes the configuration of [`base_config`].
    pub(super) configure: fn(&mut StoreConfig),
    /// Puts messages.
    pub(super) fill: fn(&MessageStore) -> Vec<Sent>,
}

/// Four files of log, the last one half full; 3 topics with 2 queues each.
pub(super) static STANDARD: SetUp = SetUp { configure: |_| {}, fill: |store| fill_log(store, 7 * FILE_SIZE as i64 / 2, 300) };

/// Topics of [`fill_log`].
pub(super) const TOPICS: [&str; 3] = ["TopicA", "TopicB", "TopicC"];
/// Queues of each.
pub(super) const QUEUES: i32 = 2;

/// Puts messages of about `len` bytes into the queues by turns until the log has come to `end`.
pub(super) fn fill_log(store: &MessageStore, end: i64, len: usize) -> Vec<Sent> {
    let mut sent = Vec::new();
    while store.stats().max_physical_offset < end {
        let number = sent.len();
        sent.push(send(store, TOPICS[number % 3], (number / 3) as i32 % QUEUES, number, len + number * 7 % 50));
    }
    sent
}

/// Puts one message whose body, tag and key follow from `number`.
pub(super) fn send(store: &MessageStore, topic: &str, queue_id: i32, number: usize, len: usize) -> Sent {
    let key = format!("key-{number}");
    let properties = format!("TAGS\u{1}tag-{}\u{2}KEYS\u{1}{key}\u{2}", number % 5);
    let body = body(number, len);
    let appended = store.put(&draft(topic, queue_id, &properties, &body)).unwrap();
    Sent { topic: topic.to_owned(), queue_id, key, body, appended }
}

/// Files of 64 KiB of log and of 1000 units.
pub(super) fn base_config(root: &Path, mode: FlushDiskType) -> StoreConfig {
    StoreConfig { consume_queue_file_size: 20 * 1000, ..config(root, mode) }
}

/// A message that was put.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) topic: String,
    pub(super) queue_id: i32,
    pub(super) key: String,
    pub(super) body: Vec<u8>,
    pub(super) appended: Appended,
}

impl Sent {
    /// Physical offset of its record.
    pub(super) fn offset(&self) -> i64 {
        self.appended.physical_offset
    }

    /// Bytes of its record.
    pub(super) fn size(&self) -> usize {
        self.appended.size
    }

    /// Physical offset behind its record.
    pub(super) fn end(&self) -> i64 {
        self.appended.end()
    }
}

/// A store that has stopped, about to be damaged.
pub(super) struct Stopped {
    pub(super) folder: TempDir,
    /// Of the next start.
    pub(super) config: StoreConfig,
    pub(super) mode: FlushDiskType,
    pub(super) stop: Stop,
    /// Every message, in the order of the log.
    pub(super) sent: Vec<Sent>,
}

impl Stopped {
    pub(super) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Path of something in the store's folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// The file of the log that starts there.
    pub(super) fn log_file(&self, start: usize) -> PathBuf {
        log_file(self.root(), start)
    }

    /// Changes the log's bytes from a physical offset on; the slice goes to the end of the file.
    pub(super) fn damage(&self, offset: i64, change: impl FnOnce(&mut [u8])) {
        damage(self.root(), offset, change);
    }

    /// Behind the last record.
    pub(super) fn end(&self) -> i64 {
        self.sent.last().map_or(0, Sent::end)
    }

    /// Indexes of the messages with records in the log's file `number`.
    pub(super) fn in_file(&self, number: usize) -> std::ops::Range<usize> {
        let file_of = |sent: &Sent| sent.offset() as usize / FILE_SIZE;
        let first = self.sent.partition_point(|sent| file_of(sent) < number);
        first..self.sent.partition_point(|sent| file_of(sent) <= number)
    }
}

/// What the start must do.
pub(super) enum Expected {
    /// It opens the store.
    Opens(Opens),
    /// It does not, for a reason with these parts, and changes nothing.
    Refuses(Vec<String>),
}

/// What a start keeps of the messages: all that are not named here, whole, at their queue offsets.
#[derive(Default)]
pub(super) struct Opens {
    /// Indexes of messages that are cut off the end: their queue offsets are given again.
    pub(super) dropped: Vec<usize>,
    /// Indexes of messages whose record is gone while the queue goes on behind them: no message is there.
    pub(super) lost: Vec<usize>,
    /// Indexes of messages before the log's first file: they lie below the queue's min offset.
    pub(super) gone: Vec<usize>,
    /// Indexes of messages that come back with another body.
    pub(super) changed: Vec<usize>,
    /// The log's end, when it is not the end of the last message.
    pub(super) end: Option<i64>,
    /// Holes sealed, each kept under `lost/`.
    pub(super) sealed: u64,
    /// What is wrong lies before the place where the start began to read; another start may find it.
    pub(super) unread: bool,
    /// Parts of lines that are logged.
    pub(super) logs: Vec<&'static str>,
    /// More that must be true.
    pub(super) and: Option<fn(&Opened<'_>)>,
    /// And of the files in the end, when the store has been written on.
    pub(super) then: Option<fn(&Stopped)>,
}

impl Opens {
    /// Everything is kept.
    pub(super) fn whole() -> Expected {
        Expected::Opens(Self::default())
    }

    /// The messages from this index on are cut.
    pub(super) fn cut_from(stopped: &Stopped, first: usize) -> Self {
        let end = Some(stopped.sent[first].offset());
        Self { dropped: (first..stopped.sent.len()).collect(), end, ..Self::default() }
    }
}

/// A store that has been started on damaged files.
pub(super) struct Opened<'a> {
    pub(super) store: &'a MessageStore,
    pub(super) stopped: &'a Stopped,
    pub(super) report: &'a RecoveryReport,
    pub(super) stats: StoreStats,
    /// What the start logged.
    pub(super) lines: &'a [String],
}

// ---- the runner ----

/// Runs rows and names those that fail.
pub(super) fn run(rows: &[Row]) {
    let wanted = std::env::var("PETREL_CASE").ok();
    let mut bases = Bases::default();
    let mut failed = Vec::new();
    for row in rows.iter().filter(|row| wanted.as_deref().is_none_or(|wanted| wanted == row.number)) {
        let begin = Instant::now();
        let what = format!("row {} ({})", row.number, row.name);
        match row.case {
            Case::Elsewhere(file, test) => {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
                let text = std::fs::read_to_string(path).unwrap();
                if !text.contains(&format!("#[test]\nfn {test}() {{")) {
                    failed.push(format!("{what}: {file} has no test {test}"));
                }
            }
            Case::Gap(why) => println!("{what}: not here: {why}"),
            Case::Run(test) => {
                if catch_unwind(test).is_err() {
                    failed.push(what.clone());
                }
            }
            Case::Start(set_up, stops, damage) => {
                for (stop, mode) in stops.iter().flat_map(|stop| BOTH.map(|mode| (*stop, mode))) {
                    let stopped = bases.stopped(set_up, stop, mode);
                    if catch_unwind(AssertUnwindSafe(|| start(stopped, damage))).is_err() {
                        failed.push(format!("{what} after a {stop:?} stop, {mode:?}"));
                    }
                }
            }
        }
        println!("{what}: {} ms", begin.elapsed().as_millis());
    }
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
}

/// Filled stores, made once each.
#[derive(Default)]
struct Bases(HashMap<(*const SetUp, bool), (TempDir, Vec<Sent>)>);

impl Bases {
    fn stopped(&mut self, set_up: &'static SetUp, stop: Stop, mode: FlushDiskType) -> Stopped {
        let key = (std::ptr::from_ref(set_up), mode == FlushDiskType::Sync);
        let (base, sent) = self.0.entry(key).or_insert_with(|| fill(set_up, mode));
        let folder = copy(base.path());
        let mut config = base_config(folder.path(), mode);
        (set_up.configure)(&mut config);
        if stop == Stop::Abrupt {
            std::fs::write(folder.path().join("abort"), "1").unwrap();
        }
        Stopped { folder, config, mode, stop, sent: sent.clone() }
    }
}

fn fill(set_up: &SetUp, mode: FlushDiskType) -> (TempDir, Vec<Sent>) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = base_config(folder.path(), mode);
    (set_up.configure)(&mut config);
    let store = open_with(config, RealFs::shared()).unwrap();
    let sent = (set_up.fill)(&store);
    settled(&store);
    assert!(store.shutdown(DEADLINE).clean);
    (folder, sent)
}

fn start(mut stopped: Stopped, damage: fn(&mut Stopped) -> Expected) {
    match damage(&mut stopped) {
        Expected::Refuses(parts) => refuses(&stopped, &parts),
        Expected::Opens(opens) => opens_and_holds(&stopped, &opens),
    }
}

fn refuses(stopped: &Stopped, parts: &[String]) {
    let marks = |files: &mut BTreeMap<PathBuf, Vec<u8>>| files.retain(|path, _| !path.ends_with("abort") && !path.ends_with("lock"));
    let mut before = files_of(stopped.root());
    marks(&mut before);
    let text = match open_with(stopped.config.clone(), RealFs::shared()) {
        Ok(_) => panic!("the store opens, expected a refusal with {parts:?}"),
        Err(error) => error.to_string(),
    };
    assert!(parts.iter().all(|part| text.contains(part)), "{text}\nhas not all of {parts:?}");
    let mut after = files_of(stopped.root());
    marks(&mut after);
    assert_same(&before, &after, "a refused start changes nothing");
    assert_eq!(stopped.path("abort").exists(), stopped.stop == Stop::Abrupt, "nor does it forget how the last run ended");
}

fn opens_and_holds(stopped: &Stopped, opens: &Opens) {
    let (store, lines) = logged(|| open_with(stopped.config.clone(), RealFs::shared()));
    let store = store.unwrap_or_else(|error| panic!("does not open: {error}"));
    settled(&store);
    let report = store.recovery();
    assert_eq!(report.sealed, opens.sealed, "sealed: {report}");
    for part in &opens.logs {
        assert!(lines.iter().any(|line| line.contains(part)), "not logged: {part}\n{lines:#?}");
    }
    check_messages(&store, stopped, opens);
    if let Some(and) = opens.and {
        and(&Opened { store: &store, stopped, report: &report, stats: store.stats(), lines: &lines });
    }
    let end = store.stats().max_physical_offset;
    assert!(store.shutdown(DEADLINE).clean);
    drop(store);
    invariants::hold(&stopped.config, end, !opens.changed.is_empty());
    let files = files_of(stopped.root());
    let stops = if opens.unread { N } else { &[Stop::Clean, Stop::Abrupt] };
    for stop in stops.iter().copied() {
        if stop == Stop::Abrupt {
            std::fs::write(stopped.path("abort"), "1").unwrap();
        }
        let store = open_with(stopped.config.clone(), RealFs::shared()).unwrap();
        let report = store.recovery();
        assert_eq!((report.sealed, report.truncated_bytes), (0, 0), "I6 after a {stop:?} stop: {report}");
        assert_eq!(store.stats().max_physical_offset, end, "I5");
        check_messages(&store, stopped, opens);
        if stop == Stop::Abrupt {
            write_on(&store);
        }
        assert!(store.shutdown(DEADLINE).clean);
        if stop == Stop::Clean {
            assert_same(&files, &files_of(stopped.root()), "I5: a start without writes");
        }
    }
    let store = open_with(stopped.config.clone(), RealFs::shared()).unwrap();
    check_messages(&store, stopped, opens);
    let end = store.stats().max_physical_offset;
    assert!(store.shutdown(DEADLINE).clean);
    invariants::hold(&stopped.config, end, !opens.changed.is_empty());
    if let Some(then) = opens.then {
        then(stopped);
    }
}

/// What is kept is where it was, what is not is not.
fn check_messages(store: &MessageStore, stopped: &Stopped, opens: &Opens) {
    let mut bounds = HashMap::new();
    for (index, sent) in stopped.sent.iter().enumerate() {
        let queue = (sent.topic.as_str(), sent.queue_id);
        let (min, max) = *bounds.entry(queue).or_insert_with(|| store.queue_bounds(&sent.topic, sent.queue_id));
        let offset = sent.appended.queue_offset;
        let what = format!("message {index} at {} of {queue:?}, its offset {offset} of {min}..{max}", sent.offset());
        if opens.dropped.contains(&index) {
            let next = store.message_at(&sent.topic, sent.queue_id, offset).and_then(|(_, record)| record);
            let same = next.is_some_and(|record| Record::parse(&record).unwrap().body == sent.body);
            assert!(!same, "{what}: not dropped");
            continue;
        }
        if opens.gone.contains(&index) {
            assert!(offset < min, "{what}: not gone");
            continue;
        }
        assert!((min..max).contains(&offset) || offset < min && opens.lost.contains(&index), "{what}: outside");
        let record = store.message_at(&sent.topic, sent.queue_id, offset).and_then(|(_, record)| record);
        if opens.lost.contains(&index) {
            assert!(record.is_none(), "{what}: not lost");
            continue;
        }
        let record = record.unwrap_or_else(|| panic!("{what}: not found"));
        let record = Record::parse(&record).unwrap();
        assert_eq!((record.topic, record.queue_id, record.queue_offset), (&*sent.topic, sent.queue_id, offset), "{what}");
        assert_eq!(record.physical_offset, sent.offset(), "{what}");
        assert_eq!(record.body == sent.body, !opens.changed.contains(&index), "{what}: body");
    }
    for ((topic, queue_id), (_, max)) in bounds {
        let of_queue = stopped.sent.iter().enumerate().filter(|(_, sent)| (&*sent.topic, sent.queue_id) == (topic, queue_id));
        let kept = of_queue.filter(|(index, _)| !opens.dropped.contains(index)).map(|(_, sent)| sent.appended.queue_offset + 1).max();
        let wrote_on = max - kept.unwrap_or(0);
        assert!((0..=WRITTEN_ON).contains(&wrote_on), "{topic} {queue_id} ends at {max}, expected {kept:?}");
    }
    let end = opens.end.unwrap_or_else(|| stopped.end());
    let found = store.stats().max_physical_offset;
    assert!((end..end + 4 * FILE_SIZE as i64).contains(&found), "the log ends at {found}, expected {end}");
}

/// Messages that [`write_on`] puts into each queue.
const WRITTEN_ON: i64 = 3;

/// Every queue goes on where it ends.
fn write_on(store: &MessageStore) {
    for (topic, ids) in store.topics() {
        for queue_id in ids {
            let (_, max) = store.queue_bounds(&topic, queue_id);
            for number in 0..WRITTEN_ON {
                let sent = send(store, &topic, queue_id, 9_000 + number as usize, 200);
                assert_eq!(sent.appended.queue_offset, max + number, "I3: {topic} {queue_id}");
            }
        }
    }
    settled(store);
}

/// Every file below a folder with its bytes; of the checkpoint and the marks only that they are there.
pub(super) fn files_of(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                files.insert(entry.path().strip_prefix(root).unwrap().to_owned(), std::fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

fn assert_same(before: &BTreeMap<PathBuf, Vec<u8>>, after: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(before), names(after), "{what}");
    for (path, bytes) in before {
        let first = bytes.iter().zip(&after[path]).position(|(before, after)| before != after);
        assert!(*bytes == after[path], "{what}: {} differs from byte {first:?} on", path.display());
    }
}

// ---- what is logged ----

std::thread_local! {
    static LINES: std::cell::RefCell<Option<Vec<String>>> = const { std::cell::RefCell::new(None) };
}

struct Collector;

impl ::log::Log for Collector {
    fn enabled(&self, _: &::log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &::log::Record<'_>) {
        let line = || format!("{} {}", record.level(), record.args());
        LINES.with_borrow_mut(|lines| lines.iter_mut().for_each(|lines| lines.push(line())));
    }

    fn flush(&self) {}
}

/// What this thread logs meanwhile.
pub(crate) fn logged<T>(act: impl FnOnce() -> T) -> (T, Vec<String>) {
    static COLLECTOR: Collector = Collector;
    if ::log::set_logger(&COLLECTOR).is_ok() {
        ::log::set_max_level(::log::LevelFilter::Info);
    }
    LINES.with_borrow_mut(|lines| *lines = Some(Vec::new()));
    let done = act();
    (done, LINES.take().unwrap_or_default())
}

// ---- the table ----

/// Rows that belong to what is not there yet.
const GAPS: &[Row] = &[
    gap("64", "timer wheel file of another length", "messages delayed by the timer wheel are not there yet"),
    gap("65", "timer log torn in its last unit", "messages delayed by the timer wheel are not there yet"),
    gap("66", "timer checkpoint missing or zero", "messages delayed by the timer wheel are not there yet"),
    gap("74", "V2 record at the tail in controller mode", "there is no controller mode yet"),
    gap("76", "confirm offset behind the end", "there is no controller mode yet"),
    gap("77", "confirm offset before the start", "there is no controller mode yet"),
    gap("78", "epoch file torn", "there is no controller mode yet"),
    gap("79", "slave killed in the middle of a chunk", "there is no replication yet"),
    gap(
        "84",
        "store of a Java broker, there and back",
        "needs a Java broker: the stores it made and the round trip with it are tested apart",
    ),
    gap("88", "half messages at the tail, the op message lost", "transactions are not there yet"),
];

const fn gap(number: &'static str, name: &'static str, why: &'static str) -> Row {
    Row { number, name, case: Case::Gap(why) }
}

#[test]
fn rows_of_the_log() {
    run(log::ROWS);
}

#[test]
fn rows_of_derived_files_and_configuration() {
    run(derived::ROWS);
}

#[test]
fn every_row_stands_in_the_table_once() {
    let mut expected: Vec<String> = (1..=88).map(|number| number.to_string()).collect();
    expected.push("60b".to_owned());
    let rows = GAPS.iter().chain(log::ROWS).chain(derived::ROWS);
    let mut found: Vec<&str> = rows.map(|row| row.number).collect();
    expected.sort();
    found.sort_unstable();
    assert_eq!(found, expected);
}
