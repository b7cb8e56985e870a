//! Apache's JSON files, written atomically: temporary file, fsync, rename, fsync of the folder; the version before stays as `.bak`.
//!
//! - A crash at any moment leaves the new version, or the one before it (as the file or as its `.bak`), never a torn file.
//! - A file that does not parse is never thrown away: it is moved to `.damaged` once a readable copy, or none, has been settled on.
//! - One thread writes all files of a broker. A change made while a write runs is in the next one, together with all others.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;

use crate::runtime::thread::Thread;

/// Called once the write that contains a change is durable, or has failed (with the text for the client).
pub type Persisted = Box<dyn FnOnce(Result<(), String>) + Send>;

/// How long [`MetadataWriter::write_and_wait`] waits for the disk.
const WRITE_DEADLINE: Duration = Duration::from_secs(30);
/// Pause before a write that failed is tried again: doubled up to the second value.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// One metadata file.
#[derive(Clone)]
pub struct ConfigFile {
    path: PathBuf,
}

/// What lies at a path.
enum Copy<T> {
    Absent,
    Read(T),
    Unreadable(String),
}

impl ConfigFile {
    /// The file at `path`; it need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and parses the file with `parse`; when it is missing, empty or does not parse, its `.bak` (a damaged file is kept as
    /// `.damaged` and reported). `None` when neither exists.
    ///
    /// # Errors
    /// Both copies are unreadable: the text names them.
    pub fn load<T>(&self, parse: impl Fn(&str) -> Result<T, String>) -> io::Result<Option<T>> {
        let damage = match read_copy(&self.path, &parse)? {
            Copy::Read(value) => return Ok(Some(value)),
            Copy::Absent => None,
            Copy::Unreadable(why) => Some(why),
        };
        let backup_path = self.with_suffix(".bak");
        let backup = match read_copy(&backup_path, &parse)? {
            Copy::Read(value) => Some(value),
            Copy::Absent => None,
            Copy::Unreadable(why) => {
                let main = damage.unwrap_or_else(|| "missing or empty".to_owned());
                let (path, bak) = (self.path.display(), backup_path.display());
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "{path} cannot be read ({main}), nor can its backup {bak} ({why}); repair one, or move both away to start without"
                    ),
                ));
            }
        };
        if let Some(why) = damage {
            self.put_aside(&why, backup.is_some());
        } else if backup.is_some() {
            log::warn!("metadata file is missing or empty, its backup is used: file={}", self.path.display());
            remove_if_exists(&self.path)?; // a blank one: the next write must not make it the backup
        }
        Ok(backup)
    }

    /// Writes durably.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn store(&self, content: &str) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.exists() {
            fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
            if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) {
                sync_folder(above).map_err(|error| at(above, &error))?;
            }
        }
        let fresh = self.with_suffix(".tmp");
        write_synced(&fresh, content.as_bytes()).map_err(|error| at(&fresh, &error))?;
        // An empty file (a crash of a writer in place) must not push a good backup out.
        if fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() > 0) {
            let backup = self.with_suffix(".bak");
            fs::rename(&self.path, &backup).map_err(|error| at(&backup, &error))?;
        }
        fs::rename(&fresh, &self.path).map_err(|error| at(&self.path, &error))?;
        sync_folder(folder).map_err(|error| at(folder, &error))
    }

    fn put_aside(&self, why: &str, has_backup: bool) {
        let aside = self.with_suffix(".damaged");
        let instead = if has_backup { "its backup is used" } else { "there is no backup: starting without" };
        match fs::rename(&self.path, &aside) {
            Ok(()) => {
                log::error!("metadata file is damaged, {instead}: file={} kept_as={} cause={why}", self.path.display(), aside.display())
            }
            Err(error) => {
                log::error!(
                    "metadata file is damaged and cannot be put aside, {instead}: file={} cause={why} error={error}",
                    self.path.display()
                );
            }
        }
    }

    fn with_suffix(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        path.into()
    }
}

fn read_copy<T>(path: &Path, parse: &impl Fn(&str) -> Result<T, String>) -> io::Result<Copy<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Copy::Absent),
        Err(error) => return Err(at(path, &error)),
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Copy::Absent);
    }
    let parsed = std::str::from_utf8(&bytes).map_err(|error| format!("no UTF-8: {error}")).and_then(parse);
    Ok(parsed.map_or_else(Copy::Unreadable, Copy::Read))
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path, &error)),
        _ => Ok(()),
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// As the reference lays its files out: one member a line, tabs, no blank behind the colon.
pub(crate) fn to_pretty_json(value: &impl Serialize) -> String {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, TabFormatter::default());
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        // Only maps with keys that are no texts or numbers cannot be written, and a table has none.
        Err(error) => unreachable!("metadata is always JSON: {error}"),
    }
}

/// `serde_json`'s pretty formatter without the blank behind the colon.
struct TabFormatter(serde_json::ser::PrettyFormatter<'static>);

impl Default for TabFormatter {
    fn default() -> Self {
        Self(serde_json::ser::PrettyFormatter::with_indent(b"\t"))
    }
}

impl serde_json::ser::Formatter for TabFormatter {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b":")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

/// Writes metadata files on its own thread (`tasks`): changes made while a write runs share the next one.
#[derive(Clone)]
pub struct MetadataWriter {
    inner: Arc<WriterInner>,
}

struct WriterInner {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    files: Vec<Registered>,
    stopping: bool,
    stopped: bool,
}

struct Registered {
    file: ConfigFile,
    content: Content,
    dirty: bool,
    waiting: Vec<Persisted>,
    /// After a failure: when to try again, and the pause after the next failure.
    retry: Option<(Instant, Duration)>,
}

type Content = Arc<dyn Fn() -> String + Send + Sync>;

/// One write to be done.
struct Job {
    index: usize,
    file: ConfigFile,
    content: Content,
    waiting: Vec<Persisted>,
}

impl MetadataWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's.
    pub fn start(tag: &str) -> io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::new(State::default()), changed: Condvar::new() });
        let thread = Thread::spawn(tag, "tasks", {
            let shared = Arc::clone(&shared);
            move || shared.run()
        })?;
        Ok(Self { inner: Arc::new(WriterInner { shared, thread: Mutex::new(Some(thread)) }) })
    }

    /// Registers a file and how its content is made; the number is the file's handle.
    pub fn register(&self, file: ConfigFile, content: Arc<dyn Fn() -> String + Send + Sync>) -> usize {
        let mut state = self.inner.shared.state.lock();
        state.files.push(Registered { file, content, dirty: false, waiting: Vec::new(), retry: None });
        state.files.len() - 1
    }

    /// Marks a file dirty; `done` is called after a write that contains everything changed before this call, or when that write
    /// failed (it is then tried again by itself). Does not block; `done` runs on the writer's thread and must not block either.
    pub fn write(&self, file: usize, done: Option<Persisted>) {
        let mut state = self.inner.shared.state.lock();
        if state.stopped {
            let refusal = format!("{} was not written: the broker is stopping", state.files[file].file.path().display());
            drop(state);
            if let Some(done) = done {
                done(Err(refusal));
            }
            return;
        }
        let entry = &mut state.files[file];
        entry.dirty = true;
        if let Some(done) = done {
            entry.waiting.push(done);
            entry.retry = None; // somebody waits for the outcome: try now, not at the end of a pause
        }
        self.inner.shared.changed.notify_one();
    }

    /// Marks a file dirty and waits. Not on a net thread.
    ///
    /// # Errors
    /// The text for the client.
    pub fn write_and_wait(&self, file: usize) -> Result<(), String> {
        let (sender, receiver) = channel::bounded(1);
        self.write(
            file,
            Some(Box::new(move |result| {
                let _ = sender.send(result); // nobody listens any more after the deadline
            })),
        );
        receiver.recv_timeout(WRITE_DEADLINE).unwrap_or_else(|_| {
            let path = self.inner.shared.state.lock().files[file].file.path().display().to_string();
            Err(format!("{path} was not written within {} ms: the disk does not answer", WRITE_DEADLINE.as_millis()))
        })
    }

    /// Writes what is dirty, ends the thread. Twice is harmless.
    pub fn shutdown(&self) {
        self.inner.shutdown();
    }
}

impl WriterInner {
    fn shutdown(&self) {
        {
            let mut state = self.shared.state.lock();
            state.stopping = true;
            state.files.iter_mut().for_each(|entry| entry.retry = None); // one last try each
        }
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            thread.join();
        }
    }
}

impl Drop for WriterInner {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(job) = self.next_job() {
            let content = (job.content)();
            let outcome = job.file.store(&content);
            self.settle(job.index, outcome.as_ref().err());
            let result = outcome.map_err(|error| format!("the change could not be made durable (it will be tried again): {error}"));
            for done in job.waiting {
                done(result.clone());
            }
        }
    }

    /// The next file to write, or `None` at the end: when stopping, each dirty file has had its last try.
    fn next_job(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let stopping = state.stopping;
            let due = |entry: &Registered| entry.dirty && entry.retry.is_none_or(|(at, _)| !stopping && at <= now);
            if let Some(index) = state.files.iter().position(due) {
                let entry = &mut state.files[index];
                entry.dirty = false;
                return Some(Job {
                    index,
                    file: entry.file.clone(),
                    content: Arc::clone(&entry.content),
                    waiting: std::mem::take(&mut entry.waiting),
                });
            }
            if stopping {
                state.stopped = true;
                return None;
            }
            match state.files.iter().filter(|entry| entry.dirty).filter_map(|entry| entry.retry).map(|(at, _)| at).min() {
                Some(at) => {
                    self.changed.wait_until(&mut state, at);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    fn settle(&self, index: usize, failure: Option<&io::Error>) {
        let mut state = self.state.lock();
        let entry = &mut state.files[index];
        let Some(error) = failure else {
            entry.retry = None;
            return;
        };
        let pause = entry.retry.map_or(RETRY_PAUSE.0, |(_, pause)| pause);
        log::error!(
            "metadata was not written, will be tried again: file={} retry_in_ms={} error={error}",
            entry.file.path().display(),
            pause.as_millis()
        );
        entry.dirty = true;
        entry.retry = Some((Instant::now() + pause, (pause * 2).min(RETRY_PAUSE.1)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        if text.starts_with('{') && text.ends_with('}') { Ok(text.to_owned()) } else { Err(format!("no object: {text:?}")) }
    }

    fn file_in(folder: &tempfile::TempDir) -> ConfigFile {
        ConfigFile::new(folder.path().join("config/topics.json"))
    }

    fn read(path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn keeps_the_version_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_in(&folder);
        assert_eq!(file.load(parse).unwrap(), None);
        file.store("{1}").unwrap();
        assert_eq!(read(file.with_suffix(".bak")), None);
        file.store("{2}").unwrap();
        assert_eq!(read(file.with_suffix(".bak")).as_deref(), Some("{1}"));
        assert_eq!(file.load(parse).unwrap().as_deref(), Some("{2}"));
        assert_eq!(read(file.with_suffix(".tmp")), None);
    }

    #[test]
    fn falls_back_to_the_backup() {
        for main in [None, Some(""), Some(" \n"), Some("{torn"), Some("\0\0\0\0")] {
            let folder = tempfile::tempdir().unwrap();
            let file = file_in(&folder);
            file.store("{old}").unwrap();
            file.store("{new}").unwrap();
            match main {
                None => fs::remove_file(file.path()).unwrap(),
                Some(text) => fs::write(file.path(), text).unwrap(),
            }
            assert_eq!(file.load(parse).unwrap().as_deref(), Some("{old}"), "main {main:?}");
            let damaged = main.is_some_and(|text| !text.trim().is_empty());
            assert_eq!(read(file.with_suffix(".damaged")).as_deref(), main.filter(|_| damaged), "main {main:?}");
            // The backup survives the next write: the bad file must not replace it.
            file.store("{next}").unwrap();
            assert_eq!(read(file.with_suffix(".bak")).as_deref(), Some("{old}"), "main {main:?}");
        }
    }

    #[test]
    fn a_lone_damaged_file_is_kept_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_in(&folder);
        file.store("{x}").unwrap();
        fs::write(file.path(), [b'{', 0xff, b'}']).unwrap();
        assert_eq!(file.load(parse).unwrap(), None);
        assert_eq!(fs::read(file.with_suffix(".damaged")).unwrap(), [b'{', 0xff, b'}']);
    }

    #[test]
    fn two_damaged_copies_are_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_in(&folder);
        file.store("{x}").unwrap();
        fs::write(file.path(), "main").unwrap();
        fs::write(file.with_suffix(".bak"), "backup").unwrap();
        let text = file.load(parse).unwrap_err().to_string();
        for part in ["topics.json", "topics.json.bak", "main", "backup"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(read(file.path()).as_deref(), Some("main"));
    }

    #[test]
    fn pretty_as_the_reference_writes() {
        let value = serde_json::json!({"dataVersion": {"counter": 1}, "empty": {}, "list": [1, 2]});
        assert_eq!(
            to_pretty_json(&value),
            "{\n\t\"dataVersion\":{\n\t\t\"counter\":1\n\t},\n\t\"empty\":{},\n\t\"list\":[\n\t\t1,\n\t\t2\n\t]\n}"
        );
    }

    #[test]
    fn a_write_contains_what_was_changed_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let writer = MetadataWriter::start("").unwrap();
        let value = Arc::new(AtomicUsize::new(0));
        let file = writer.register(file_in(&folder), {
            let value = Arc::clone(&value);
            Arc::new(move || format!("{{{}}}", value.load(Ordering::SeqCst)))
        });
        for n in 1..=20 {
            value.store(n, Ordering::SeqCst);
            writer.write_and_wait(file).unwrap();
            assert_eq!(read(folder.path().join("config/topics.json")), Some(format!("{{{n}}}")));
        }
    }

    #[test]
    fn changes_made_meanwhile_share_the_next_write() {
        let folder = tempfile::tempdir().unwrap();
        let writer = MetadataWriter::start("").unwrap();
        let writes = Arc::new(AtomicUsize::new(0));
        let (started, on_start) = channel::bounded(1);
        let (go_on, gate) = channel::bounded::<()>(1);
        let file = writer.register(file_in(&folder), {
            let writes = Arc::clone(&writes);
            Arc::new(move || {
                if writes.fetch_add(1, Ordering::SeqCst) == 0 {
                    started.send(()).unwrap();
                    gate.recv().unwrap();
                }
                "{}".to_owned()
            })
        });
        let (done, outcomes) = channel::unbounded();
        let write = || {
            let done = done.clone();
            writer.write(file, Some(Box::new(move |result| done.send(result).unwrap())));
        };
        write();
        on_start.recv_timeout(Duration::from_secs(10)).unwrap();
        (0..100).for_each(|_| write());
        go_on.send(()).unwrap();
        for n in 0..101 {
            assert_eq!(outcomes.recv_timeout(Duration::from_secs(10)), Ok(Ok(())), "outcome {n}");
        }
        assert_eq!(writes.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_failed_write_is_told_and_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("config");
        fs::write(&blocked, "in the way").unwrap();
        let writer = MetadataWriter::start("").unwrap();
        let file = writer.register(file_in(&folder), Arc::new(|| "{}".to_owned()));
        let text = writer.write_and_wait(file).unwrap_err();
        assert!(text.contains("config"), "{text}");
        fs::remove_file(&blocked).unwrap();
        writer.shutdown(); // the last try
        assert_eq!(read(folder.path().join("config/topics.json")).as_deref(), Some("{}"));
        writer.shutdown();
        assert!(writer.write_and_wait(file).unwrap_err().contains("stopping"));
    }
}
