//! A server on disks that are full, that fail, that lose files; and one that stands still for a while.
//!
//! - What was acknowledged is there afterwards; what is refused is refused with cause, numbers and key; reads go on; nothing
//!   dies of a signal; what can heal heals by itself.
//! - Disks are mounted by the tests where that is permitted; failing calls are preloaded into the server (`tests/disk`).

mod disk;
mod server;
mod wire;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use disk::{Disk, Faults, Kind};
use petrel::remoting::code::{request, response};
use rustix::process::Signal;
use server::{Launch, Server};
use wire::{Answer, Message, PATIENCE, Wire, until};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const SYNC: &str = "SYNC_FLUSH";
const ASYNC: &str = "ASYNC_FLUSH";
/// How soon writes go on when there is space again.
const HEALING: Duration = Duration::from_secs(2);

/// A server under test, and what it acknowledged.
struct Scene {
    launch: Launch,
    server: Option<Server>,
    wire: Wire,
    log: PathBuf,
    store: PathBuf,
    acknowledged: BTreeMap<(String, i32, i64), String>,
    _folder: tempfile::TempDir,
}

impl Scene {
    /// A server with its store in `store`, or in a folder of its own.
    fn start(store: Option<&Path>, adjust: impl FnOnce(Launch) -> Launch) -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let store = store.map_or_else(|| folder.path().join("store"), Path::to_owned);
        let log = folder.path().join("log");
        let launch = adjust(Launch::on(&store).log(&log).set("maxHashSlotNum", 1000).set("maxIndexNum", 4000));
        let server = launch.start();
        let wire = Wire::to(server.broker());
        Self { launch, server: Some(server), wire, log, store, acknowledged: BTreeMap::new(), _folder: folder }
    }

    fn on_faults(faults: &Faults, flush: &str) -> Self {
        let [(preload, library), (rules, file)] = faults.environment();
        Self::start(None, |launch| launch.env(preload, library).env(rules, file).set("flushDiskType", flush))
    }

    fn try_send(&mut self, message: &Message) -> Answer {
        let answer = self.wire.send(message);
        if answer.code() == response::SUCCESS {
            let place = (message.topic.clone(), message.queue_id, answer.number("queueOffset"));
            assert_eq!(self.acknowledged.insert(place, message.body.clone()), None, "two messages at one place");
        }
        answer
    }

    #[track_caller]
    fn send(&mut self, message: &Message) {
        self.try_send(message).expect(response::SUCCESS);
    }

    /// Sends messages of `bytes` to topic T.
    #[track_caller]
    fn send_some(&mut self, count: usize, bytes: usize) {
        for number in 0..count {
            let body = format!("{}-{}", self.acknowledged.len(), "x".repeat(bytes));
            self.send(&Message::new("T", (number % 4) as i32, body).property("KEYS", format!("k{number}")));
        }
    }

    /// Sends until a send is refused; that answer.
    #[track_caller]
    fn send_until_refused(&mut self, bytes: usize) -> Answer {
        let begin = Instant::now();
        loop {
            let body = format!("{}-{}", self.acknowledged.len(), "x".repeat(bytes));
            let answer = self.try_send(&Message::new("T", 0, body));
            if answer.code() != response::SUCCESS {
                return answer;
            }
            assert!(begin.elapsed() < PATIENCE, "nothing is refused");
        }
    }

    /// Everything acknowledged is there, once, with its body.
    #[track_caller]
    fn check(&self) {
        let mut found = BTreeMap::new();
        for (topic, queue_id, _) in self.acknowledged.keys() {
            found.entry((topic, queue_id)).or_insert_with(|| {
                let (min, messages) = self.wire.read_queue(topic, *queue_id, 0);
                assert_eq!(min, 0);
                messages.into_iter().collect::<BTreeMap<_, _>>()
            });
        }
        for ((topic, queue_id, offset), body) in &self.acknowledged {
            assert_eq!(found[&(topic, queue_id)].get(offset), Some(body), "{topic} {queue_id} {offset}");
        }
    }

    /// Waits until everything acknowledged can be pulled.
    #[track_caller]
    fn settle(&self) {
        for (topic, queue_id, offset) in self.acknowledged.keys() {
            until("the messages", PATIENCE, || self.wire.max_offset(topic, *queue_id) > *offset);
        }
    }

    #[track_caller]
    fn await_writes(&mut self, begin: Instant) {
        until("writes to go on", HEALING, || self.try_send(&Message::new("T", 1, "again")).code() == response::SUCCESS);
        assert!(begin.elapsed() < HEALING, "it took {:?}", begin.elapsed());
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    #[track_caller]
    fn await_log(&self, words: &[&str]) {
        let has = |line: &str| words.iter().all(|word| line.contains(word));
        until(&format!("a line with {words:?}"), PATIENCE, || self.log_text().lines().any(has));
    }

    #[track_caller]
    fn stop(&mut self) -> std::process::ExitStatus {
        self.server.take().expect("it runs").stop()
    }

    #[track_caller]
    fn start_again(&mut self) {
        self.server = Some(self.launch.start());
        self.wire = Wire::to(self.server.as_ref().expect("it runs").broker());
    }

    fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
    }
}

impl Drop for Scene {
    /// Whatever happened, the server must not have died by itself.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(&self.log).unwrap_or_default());
            return;
        }
        if let Some(server) = &mut self.server {
            assert_eq!(server.ended(), None, "the server died");
        }
        assert!(!self.log_text().contains("panicked"), "{}", self.log_text());
    }
}

// ---- full disks ----

fn create_topic(wire: &Wire, topic: &str) -> Answer {
    let fields = [
        ("topic", topic),
        ("defaultTopic", "TBW102"),
        ("readQueueNums", "4"),
        ("writeQueueNums", "4"),
        ("perm", "6"),
        ("topicFilterType", "SINGLE_TAG"),
        ("topicSysFlag", "0"),
        ("order", "false"),
    ];
    wire.call(request::UPDATE_AND_CREATE_TOPIC, &fields)
}

/// Another program takes the space down to below the reserve.
fn below_the_reserve(kind: Kind, flush: &str) {
    let Some(disk) = Disk::mount(kind, 64) else { return };
    let mut scene = Scene::start(Some(&disk.path.join("store")), |launch| launch.set("flushDiskType", flush));
    scene.send_some(20, 10_000);
    let ballast = disk.fill(5 << 19);
    let refused = scene.send_until_refused(10_000);
    refused.refused(response::SERVICE_NOT_AVAILABLE, &["commitlog has ", " bytes free of ", "diskFreeReserveBytes="]);
    scene.settle();
    scene.check();
    create_topic(&scene.wire, "New").expect(response::SUCCESS); // what the reserve is for
    let begin = Instant::now();
    drop(ballast);
    scene.await_writes(begin);
    scene.send_some(20, 10_000);
    scene.settle();
    scene.check();
    scene.await_log(&["writes refused", "diskFreeReserveBytes="]);
    scene.await_log(&["writes accepted"]);
    assert!(scene.stop().success());
    scene.start_again();
    scene.check();
}

/// Not a byte is left, and nothing is reserved.
fn without_a_byte(kind: Kind, flush: &str) {
    let Some(disk) = Disk::mount(kind, 64) else { return };
    let mut scene = Scene::start(Some(&disk.path.join("store")), |launch| {
        launch.set("flushDiskType", flush).set("diskFreeReserveBytes", 0).set("mappedFileSizeCommitLog", 4 << 20)
    });
    scene.send_some(20, 10_000);
    let ballast = disk.fill(0);
    let refused = scene.send_until_refused(100_000);
    refused.refused(response::SERVICE_NOT_AVAILABLE, &["commitlog", " bytes free of ", "diskFreeReserveBytes=0"]);
    scene.settle();
    scene.check();
    let created = create_topic(&scene.wire, "New");
    if created.code() != response::SUCCESS {
        created.refused(response::SYSTEM_ERROR, &["topics.json", "No space left on device"]);
    }
    for death in [true, false] {
        if death {
            scene.kill();
        } else {
            scene.stop(); // in order or not: queues may not have fitted
        }
        scene.start_again();
        scene.check();
        scene.send_until_refused(100_000).refused(response::SERVICE_NOT_AVAILABLE, &[" bytes free of "]);
    }
    let begin = Instant::now();
    drop(ballast);
    scene.await_writes(begin);
    scene.send_some(20, 10_000);
    scene.settle();
    scene.check();
    assert!(scene.stop().success());
    scene.start_again();
    scene.check();
    assert!(scene.stop().success());
}

#[test]
fn below_the_reserve_on_tmpfs() {
    below_the_reserve(Kind::Tmpfs, SYNC);
    below_the_reserve(Kind::Tmpfs, ASYNC);
}

#[test]
fn below_the_reserve_on_ext4() {
    below_the_reserve(Kind::Ext4, SYNC);
    below_the_reserve(Kind::Ext4, ASYNC);
}

#[test]
fn without_a_byte_on_tmpfs() {
    without_a_byte(Kind::Tmpfs, SYNC);
    without_a_byte(Kind::Tmpfs, ASYNC);
}

#[test]
fn without_a_byte_on_ext4() {
    without_a_byte(Kind::Ext4, SYNC);
    without_a_byte(Kind::Ext4, ASYNC);
}

#[test]
fn a_new_store_on_a_full_disk_is_refused_in_one_line() {
    for kind in [Kind::Tmpfs, Kind::Ext4] {
        let Some(disk) = Disk::mount(kind, 32) else { return };
        let _ballast = disk.fill(0);
        let refused = Launch::on(&disk.path.join("store")).refused();
        assert_eq!(refused.status.code(), Some(1), "{}", refused.text);
        assert!(refused.text.contains("No space left on device") && refused.text.contains("/disk/store"), "{}", refused.text);
    }
}

#[test]
fn a_short_disk_gives_up_what_is_oldest_and_says_whose_it_was() {
    let Some(disk) = Disk::mount(Kind::Tmpfs, 64) else { return };
    let mut scene = Scene::start(Some(&disk.path.join("store")), |launch| {
        launch.set("mappedFileSizeCommitLog", 1 << 20).set("cleanResourceInterval", 100).set("deleteCommitLogFilesInterval", 0)
    });
    scene.wire.group = "reader";
    scene.send_some(40, 100_000);
    let read = scene.wire.pull("T", 0, 0);
    assert!(read.next >= 1);
    let fields = [("consumerGroup", "reader"), ("topic", "T"), ("queueId", "0"), ("commitOffset", "1")];
    scene.wire.call(request::UPDATE_CONSUMER_OFFSET, &fields).expect(response::SUCCESS);
    let ballast = disk.fill(2 << 20);
    scene.await_log(&["files deleted", "diskFreeReserveBytes="]);
    scene.await_log(&["unconsumed deleted", "group=reader topic=T messages="]);
    let gone = scene.wire.pull("T", 0, 0);
    assert_eq!((gone.code, gone.next), (response::PULL_OFFSET_MOVED, gone.min), "{gone:?}");
    assert!(gone.min > 0);
    let (_, left) = scene.wire.read_queue("T", 0, 0);
    for (offset, body) in left {
        assert_eq!(scene.acknowledged.get(&("T".to_owned(), 0, offset)), Some(&body));
    }
    drop(ballast);
    scene.await_writes(Instant::now());
}

// ---- failing calls ----

/// A sync of the log fails while many wait for it.
fn failed_sync_of_the_log(faults: &Faults, errno: i32, text: &str) {
    faults.fail(&[]);
    let mut scene = Scene::on_faults(faults, SYNC);
    scene.send_some(20, 1000);
    scene.settle();
    let shown = scene.wire.max_offset("T", 0);
    faults.fail(&[("sync", "/commitlog/", errno)]);
    let (give, take) = crossbeam::channel::unbounded();
    for number in 0..8 {
        let (give, message) = (give.clone(), Message::new("T", 0, format!("lost {number}")));
        let done = Box::new(move |answer: Result<_, _>| give.send(Answer(answer.expect("an answer"))).expect("a reader"));
        let body = petrel::remoting::command::Body::Owned(message.body.clone().into_bytes());
        scene.wire.client.invoke_async(&scene.wire.address, request::SEND_MESSAGE_V2, &message.header(false), body, PATIENCE, done);
    }
    let mut waited = 0;
    for _ in 0..8 {
        let answer = take.recv_timeout(PATIENCE).expect("an answer");
        let words = [text, "/commitlog/"];
        if answer.code() == response::SYSTEM_ERROR {
            waited += 1;
            answer.refused(response::SYSTEM_ERROR, &words);
        } else {
            answer.refused(response::SERVICE_NOT_AVAILABLE, &words);
        }
    }
    assert!(waited > 0, "none of them waited for the sync that failed");
    faults.fail(&[]); // a later sync would work, and yet
    for topic in ["T", "U"] {
        scene.try_send(&Message::new(topic, 0, "x")).refused(response::SERVICE_NOT_AVAILABLE, &[text, "open the store again"]);
    }
    scene.check();
    assert_eq!(scene.wire.max_offset("T", 0), shown, "what was not synced is not shown");
    let status = scene.stop();
    assert_eq!(status.code(), Some(1), "not in order");
    assert!(scene.store.join("abort").exists());
    scene.start_again();
    scene.check();
    scene.send_some(4, 1000);
    scene.settle();
    scene.check();
    assert!(scene.stop().success());
    assert!(!scene.store.join("abort").exists());
}

#[test]
fn a_failed_sync_of_the_log_ends_writing_until_the_next_start() {
    let Some(faults) = Faults::compile() else { return };
    failed_sync_of_the_log(&faults, EIO, "Input/output error");
    failed_sync_of_the_log(&faults, ENOSPC, "No space left on device");
}

#[test]
fn with_async_flush_too() {
    let Some(faults) = Faults::compile() else { return };
    let mut scene = Scene::on_faults(&faults, ASYNC);
    scene.send_some(20, 1000);
    scene.settle();
    faults.fail(&[("sync", "/commitlog/", EIO)]);
    let refused = scene.send_until_refused(10);
    refused.refused(response::SERVICE_NOT_AVAILABLE, &["Input/output error", "/commitlog/", "open the store again"]);
    scene.check();
    faults.fail(&[]);
    scene.stop();
    assert!(scene.store.join("abort").exists());
    scene.start_again();
    scene.check();
}

#[test]
fn syncs_that_fail_elsewhere_do_not_stop_senders() {
    let Some(faults) = Faults::compile() else { return };
    for (part, told) in [("/consumequeue/", "consumequeue"), ("/index/", "index"), ("/checkpoint", "checkpoint"), ("/config/", "config")] {
        faults.fail(&[]);
        let mut scene = Scene::on_faults(&faults, SYNC);
        scene.send_some(10, 1000);
        faults.fail(&[("sync", part, EIO)]);
        let begin = Instant::now();
        while !scene.log_text().contains("Input/output error") {
            assert!(begin.elapsed() < PATIENCE, "{part}: it is not told");
            scene.send_some(4, 1000);
            if part == "/config/" {
                create_topic(&scene.wire, "New").refused(response::SYSTEM_ERROR, &["topics.json", "Input/output error"]);
            }
        }
        scene.await_log(&[told, "Input/output error"]);
        scene.send_some(10, 1000);
        scene.settle();
        scene.check();
        faults.fail(&[]);
        if part == "/config/" {
            until("the topic", PATIENCE, || create_topic(&scene.wire, "New").code() == response::SUCCESS);
        } else if part != "/index/" {
            scene.await_log(&["derived files are flushed again"]); // while it runs; the index heals with the next start
        }
        let status = scene.stop();
        assert_eq!(status.success(), part != "/index/", "{part}: {status}");
        scene.start_again();
        scene.send_some(10, 1000);
        scene.settle();
        scene.check();
        assert!(scene.stop().success(), "{part}: the next run is in order");
    }
}

#[test]
fn writes_that_fail_are_told_and_heal() {
    let Some(faults) = Faults::compile() else { return };
    let mut scene = Scene::on_faults(&faults, SYNC);
    scene.send_some(10, 1000);
    for (errno, code, text) in [
        (EIO, response::SYSTEM_ERROR, "Input/output error"),
        (EROFS, response::SYSTEM_ERROR, "Read-only file system"),
        (ENOSPC, response::SERVICE_NOT_AVAILABLE, "No space left on device"),
    ] {
        faults.fail(&[("write", "/commitlog/", errno)]);
        scene.send_until_refused(1000).refused(code, &[text, "/commitlog/"]);
        scene.settle();
        scene.check();
        faults.fail(&[]);
        scene.await_writes(Instant::now());
    }
    faults.fail(&[("write", "/consumequeue/", EIO), ("write", "/index/", EIO), ("write", "/checkpoint", EIO)]);
    let begin = Instant::now();
    while !scene.log_text().contains("derived files cannot be flushed") {
        assert!(begin.elapsed() < PATIENCE, "it is not told");
        scene.send_some(4, 1000);
    }
    scene.settle();
    scene.check();
    faults.fail(&[]);
    scene.await_log(&["derived files are flushed again"]);
    assert!(scene.stop().success());
    scene.start_again();
    scene.check();
}

#[test]
fn files_that_cannot_be_made_are_told_and_heal() {
    let Some(faults) = Faults::compile() else { return };
    let [(preload, library), (rules, file)] = faults.environment();
    for (errno, code, text) in [
        (EIO, response::SYSTEM_ERROR, "Input/output error"),
        (ENOSPC, response::SERVICE_NOT_AVAILABLE, "No space left on device"),
        (24, response::SYSTEM_ERROR, "Too many open files"),
    ] {
        faults.fail(&[]);
        let mut scene =
            Scene::start(None, |launch| launch.env(preload, &library).env(rules, &file).set("mappedFileSizeCommitLog", 1 << 20));
        scene.send_some(4, 1000);
        faults.fail(&[("open", "/commitlog", errno)]); // files are made beside the folder
        scene.send_until_refused(100_000).refused(code, &[text, "/commitlog/"]);
        scene.settle();
        scene.check();
        faults.fail(&[]);
        scene.await_writes(Instant::now());
        scene.send_some(20, 100_000);
        scene.settle();
        scene.check();
        assert!(scene.stop().success());
    }
}

#[test]
fn reads_that_fail_are_told_and_heal() {
    let Some(faults) = Faults::compile() else { return };
    let mut scene = Scene::on_faults(&faults, SYNC);
    scene.send_some(40, 1000);
    assert!(scene.stop().success());
    for part in ["/commitlog/", "/consumequeue/", "/index/", "/checkpoint"] {
        faults.fail(&[("read", part, EIO)]);
        let refused = scene.launch.refused();
        assert_eq!(refused.status.code(), Some(1), "{part}");
        assert!(refused.text.contains("Input/output error") && refused.text.contains(part), "{part}: {}", refused.text);
        faults.fail(&[]);
        scene.start_again();
        scene.check();
        assert!(scene.stop().success());
    }
    scene.start_again();
    faults.fail(&[("read", "/consumequeue/", EIO)]);
    let unread = scene.wire.pull("T", 0, 0);
    assert_eq!((unread.code, unread.next), (response::PULL_NOT_FOUND, 0), "to be tried again: {unread:?}");
    scene.await_log(&["consume queue not read", "Input/output error"]);
    scene.send_some(10, 1000);
    faults.fail(&[]);
    scene.settle();
    scene.check();
}

// ---- files that go ----

#[test]
fn a_removed_log_file_ends_writing_and_reads_go_on() {
    for flush in [SYNC, ASYNC] {
        let mut scene = Scene::start(None, |launch| launch.set("flushDiskType", flush));
        scene.send_some(10, 1000);
        scene.settle();
        std::fs::remove_dir_all(scene.store.join("commitlog")).expect("removed");
        let refused = scene.send_until_refused(10);
        assert!([response::SYSTEM_ERROR, response::SERVICE_NOT_AVAILABLE].contains(&refused.code()));
        refused.refused(refused.code(), &["commitlog/00000000000000000000", "was removed"]);
        scene.check();
        assert_eq!(scene.stop().code(), Some(1));
        assert!(scene.store.join("abort").exists());
    }
}

#[test]
fn an_old_log_file_that_is_removed_is_told() {
    let mut scene = Scene::start(None, |launch| launch.set("mappedFileSizeCommitLog", 1 << 20).set("cleanResourceInterval", 100));
    scene.send_some(30, 100_000);
    scene.settle();
    std::fs::remove_file(scene.store.join("commitlog/00000000000000000000")).expect("removed");
    scene.await_log(&["commitlog/00000000000000000000", "removed by somebody"]);
    scene.send_some(4, 1000);
    scene.check();
}

#[test]
fn removed_queues_come_back_with_the_next_start() {
    for part in ["consumequeue", "consumequeue/T", "index", "config"] {
        let mut scene = Scene::start(None, |launch| launch);
        scene.send(&Message::new("Other", 0, "other"));
        scene.send_some(40, 1000);
        scene.settle();
        until("queues on disk", PATIENCE, || scene.store.join("consumequeue/T/0").exists());
        let folder = scene.store.join(part);
        until("no folder", PATIENCE, || std::fs::remove_dir_all(&folder).is_ok()); // the server makes files meanwhile
        scene.send_some(40, 1000);
        scene.settle();
        scene.check();
        if part == "config" {
            create_topic(&scene.wire, "New").expect(response::SUCCESS); // all topics are written, not the new one alone
        }
        scene.stop();
        scene.start_again();
        scene.check();
        scene.send_some(4, 1000);
        scene.settle();
        scene.check();
        assert!(scene.stop().success());
    }
}

#[test]
fn a_file_system_that_turns_read_only_is_told() {
    for flush in [SYNC, ASYNC] {
        let Some(disk) = Disk::mount(Kind::Ext4, 64) else { return };
        let mut scene =
            Scene::start(Some(&disk.path.join("store")), |launch| launch.set("flushDiskType", flush).set("diskFreeReserveBytes", 0));
        scene.send_some(20, 1000);
        scene.settle();
        if let Err(why) = disk.remount("abort") {
            return eprintln!("skipped, a file system cannot be made to fail here: {why}");
        }
        let refused = scene.send_until_refused(1000);
        assert!([response::SYSTEM_ERROR, response::SERVICE_NOT_AVAILABLE].contains(&refused.code()));
        refused.refused(refused.code(), &["Read-only file system", "/commitlog/"]);
        let created = create_topic(&scene.wire, "New");
        created.refused(response::SYSTEM_ERROR, &["topics.json", "Read-only file system"]);
        scene.check();
        assert_eq!(scene.stop().code(), Some(1));
    }
}

// ---- a server that stands still ----

#[test]
fn a_server_that_stood_still_goes_on() {
    for flush in [SYNC, ASYNC] {
        let mut scene = Scene::start(None, |launch| launch.set("flushDiskType", flush));
        scene.send_some(10, 1000);
        scene.settle();
        let server = scene.server.as_ref().expect("it runs");
        server.signal(Signal::STOP);
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("it is there");
        until("the stop", PATIENCE, || state().contains(") T "));
        let (give, take) = crossbeam::channel::unbounded();
        for number in 0..32 {
            let (give, message) = (give.clone(), Message::new("T", number % 4, format!("while it stands {number}")));
            let (header, body) = (message.header(false), petrel::remoting::command::Body::Owned(message.body.clone().into_bytes()));
            let done = Box::new(move |answer: Result<_, _>| give.send((message, Answer(answer.expect("an answer")))).expect("a reader"));
            scene.wire.client.invoke_async(&scene.wire.address, request::SEND_MESSAGE_V2, &header, body, PATIENCE, done);
        }
        assert!(take.recv_timeout(Duration::from_secs(5)).is_err(), "it stands");
        scene.server.as_ref().expect("it runs").signal(Signal::CONT);
        for _ in 0..32 {
            let (message, answer) = take.recv_timeout(PATIENCE).expect("an answer");
            // Late is not lost: 10 says that it is stored.
            assert!([response::SUCCESS, response::FLUSH_DISK_TIMEOUT].contains(&answer.code()), "{} {}", answer.code(), answer.remark());
            scene.acknowledged.insert((message.topic, message.queue_id, answer.number("queueOffset")), message.body);
        }
        scene.settle();
        scene.send_some(10, 1000);
        scene.settle();
        scene.check();
        assert!(scene.stop().success());
    }
}
