//! A broker on a disk that is slow, or whose sync fails: what its senders are told, and what its consumers see.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use petrel::store::fs::{Fs, FsFile, RealFs, Space};

use crate::support::{PATIENCE, Pull, Send, TestBroker, until};

/// What syncs of commit-log files do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syncs {
    Work,
    Hang,
    Fail,
}

#[derive(Debug)]
struct Switch {
    syncs: Mutex<Syncs>,
    changed: Condvar,
}

impl Switch {
    fn new() -> Arc<Self> {
        Arc::new(Self { syncs: Mutex::new(Syncs::Work), changed: Condvar::new() })
    }

    fn set(&self, syncs: Syncs) {
        *self.syncs.lock() = syncs;
        self.changed.notify_all();
    }
}

#[derive(Debug)]
struct SlowFs(RealFs, Arc<Switch>);

impl Fs for SlowFs {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn FsFile>> {
        let file = self.0.open(path, create)?;
        let of_the_log = path.ends_with("commitlog.new") || path.parent().is_some_and(|folder| folder.ends_with("commitlog"));
        if !of_the_log {
            return Ok(file);
        }
        Ok(Arc::new(SlowFile(file, Arc::clone(&self.1))))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        self.0.list(path)
    }
    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        self.0.space(path)
    }
}

#[derive(Debug)]
struct SlowFile(Arc<dyn FsFile>, Arc<Switch>);

impl FsFile for SlowFile {
    fn sync_data(&self) -> io::Result<()> {
        let mut syncs = self.1.syncs.lock();
        while *syncs == Syncs::Hang {
            self.1.changed.wait(&mut syncs);
        }
        if *syncs == Syncs::Fail { Err(io::Error::from_raw_os_error(5)) } else { self.0.sync_data() }
    }
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, at)
    }
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }
    fn write_back(&self, at: u64, len: u64) -> io::Result<()> {
        self.0.write_back(at, len)
    }
    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        self.0.allocate(at, len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn modified_ms(&self) -> io::Result<i64> {
        self.0.modified_ms()
    }
    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.0.next_data(at)
    }
    fn as_std(&self) -> Option<&std::fs::File> {
        self.0.as_std()
    }
}

#[test]
fn a_late_flush_is_told_and_the_message_comes_all_the_same() {
    let switch = Switch::new();
    let broker = TestBroker::on(Arc::new(SlowFs(RealFs, Arc::clone(&switch))), |config| config.store.sync_flush_timeout_ms = 300);
    broker.send(&Send::new("T", "first")).expect(0);
    broker.await_max_offset("T", 0, 1);
    switch.set(Syncs::Hang);
    let late: Vec<_> = (0..3).map(|n| broker.send_later(&Send::new("T", format!("late {n}")))).collect();
    broker.send(&Send::new("T", "hurry").property("WAIT", "false")).expect(0);
    for (n, answer) in late.iter().enumerate() {
        let answer = answer.recv_timeout(PATIENCE).unwrap().expect(10);
        assert!(answer.remark().contains("syncFlushTimeout of 300 ms"), "{}", answer.remark());
        // A usable send result: all of the header.
        assert_eq!(
            (answer.number("queueOffset"), answer.field("msgId").len(), answer.field("TRACE_ON").as_str()),
            (n as i64 + 1, 32, "true")
        );
    }
    assert_eq!(broker.max_offset("T", 0), 1, "what is not on disk is not shown");
    switch.set(Syncs::Work);
    assert_eq!(broker.consume("T", 0, 5).len(), 5);
    broker.send(&Send::new("T", "after")).expect(0);
}

#[test]
fn a_failed_sync_is_told_with_its_reason_and_ends_writing() {
    let switch = Switch::new();
    let broker = TestBroker::on(Arc::new(SlowFs(RealFs, Arc::clone(&switch))), |_| {});
    broker.send(&Send::new("T", "good")).expect(0);
    broker.await_max_offset("T", 0, 1);
    switch.set(Syncs::Hang);
    let waiting: Vec<_> = (0..3).map(|n| broker.send_later(&Send::new("T", n.to_string()))).collect();
    assert!(waiting[0].recv_timeout(Duration::from_millis(100)).is_err());
    switch.set(Syncs::Fail);
    for answer in waiting {
        answer.recv_timeout(PATIENCE).unwrap().refused(1, &["os error 5", "commitlog"]);
    }
    until("the latch", || broker.send(&Send::new("T", "x")).code() == 14);
    broker.send(&Send::new("T", "x")).refused(14, &["os error 5"]);
    broker.send(&Send::new("U", "x")).refused(14, &["os error 5"]);
    let answer = broker.pull(&Pull::new("T", 0, 0)).expect(0);
    assert_eq!((answer.messages().len(), answer.number("maxOffset")), (1, 1));
    let unfinished = broker.broker.as_ref().unwrap().shutdown(Duration::from_secs(2));
    assert!(!unfinished.is_empty(), "a stop after a failed sync is not a clean one");
}
