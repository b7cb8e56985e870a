//! Apache's JSON files, written atomically: temporary file, fsync, rename, fsync of the folder; the version before stays as `.bak`.
//!
//! - A crash at any moment leaves the new version, or the one before it (as the file or as its `.bak`), never a torn file.
//! - A damaged file is never thrown away or written over: it is kept as `.corrupt.<ms>`, under a name of its own each time.
//! - What a damaged file held is never given up silently: without a readable copy the start fails, and both copies stay where they are,
//!   unless the configuration says to begin empty ([`ConfigFile::of_broker`]).
//! - One thread writes all files of a broker. A change made while a write runs is in the next one, together with all others.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;

use crate::runtime::clock::Clock;
use crate::runtime::thread::Thread;

use super::broker::BrokerConfig;

/// Called once the write that contains a change is durable, or has failed (with the text for the client).
pub type Persisted = Box<dyn FnOnce(Result<(), String>) + Send>;

/// How long [`MetadataWriter::write_and_wait`] waits for the disk.
const WRITE_DEADLINE: Duration = Duration::from_secs(30);
/// Pause before a write that failed is tried again: doubled up to the second value.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The key by which a broker begins without what its damaged files held.
const ALLOW_EMPTY_KEY: &str = "allowEmptyConfigOnCorruption";

/// One metadata file.
#[derive(Clone)]
pub struct ConfigFile {
    path: PathBuf,
    unreadable: Unreadable,
}

/// What is done when a damaged file has no readable backup.
#[derive(Clone, Copy)]
enum Unreadable {
    /// The start fails.
    Fails,
    /// The start fails; a key would allow to begin empty.
    FailsUnlessAllowed,
    /// Empty: the key allows it.
    Allowed,
    /// Empty: nothing of worth is lost.
    NoMatter,
}

/// What lies at a path.
enum Copy<T> {
    Absent,
    /// Nothing but white space.
    Blank,
    Read(T),
    Damaged(String),
}

impl ConfigFile {
    /// The file at `path`; it need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), unreadable: Unreadable::Fails }
    }

    /// A file of a broker's `config` folder; `allowEmptyConfigOnCorruption` decides what comes of it when it is damaged.
    pub fn of_broker(config: &BrokerConfig, name: &str) -> Self {
        let allowed = config.allow_empty_config_on_corruption;
        let unreadable = if allowed { Unreadable::Allowed } else { Unreadable::FailsUnlessAllowed };
        Self { path: config.store.root.join("config").join(name), unreadable }
    }

    /// Path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and parses the file with `parse`; when it is missing, blank or damaged, its `.bak`, out of which the file is written anew
    /// at once. `None` when there is neither.
    ///
    /// # Errors
    /// The file is damaged or gone and its `.bak` does not help: the text names both. Or the system's.
    pub fn load<T>(&self, parse: impl Fn(&str) -> Result<T, String>) -> io::Result<Option<T>> {
        let main = read_copy(&self.path, &parse)?;
        if let Copy::Read(value) = main {
            return Ok(Some(value));
        }
        let backup_path = self.with_suffix(".bak");
        match (&main, read_copy(&backup_path, &parse)?) {
            (_, Copy::Read(value)) => {
                self.restore(&main, &backup_path)?;
                Ok(Some(value))
            }
            (Copy::Damaged(_), backup) | (_, backup @ Copy::Damaged(_)) => self.without_copies(&main, &backup).map(|()| None),
            (Copy::Blank, _) => {
                log::warn!("metadata file is empty and there is no backup, starting without: file={}", self.path.display());
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// As [`ConfigFile::load`], for what may be lost: whatever is wrong with the file is a warning, and a damaged one is kept aside.
    pub fn load_or_begin_anew<T>(&self, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let lenient = Self { unreadable: Unreadable::NoMatter, ..self.clone() };
        lenient.load(parse).unwrap_or_else(|error| {
            log::warn!("file cannot be read, beginning anew: file={} error={error}", self.path.display());
            None
        })
    }

    /// Puts a damaged file aside and the backup in its place. The backup stays.
    fn restore<T>(&self, main: &Copy<T>, backup: &Path) -> io::Result<()> {
        let path = self.path.display();
        match main {
            Copy::Damaged(why) => {
                let kept = put_aside(&self.path)?;
                log::error!("metadata file is damaged, its backup is used: file={path} kept_as={} cause={why}", kept.display());
            }
            _ => log::warn!("metadata file is {}, its backup is used: file={path}", main.state()),
        }
        // On a full disk the backup serves as well: the next write, or the next start, tries again.
        if let Err(error) = fs::read(backup).and_then(|bytes| self.replace(&bytes)) {
            log::error!("metadata file was not restored from its backup: file={path} error={error}");
        }
        Ok(())
    }

    /// Neither copy can be read, and at least one of them held something.
    fn without_copies<T>(&self, main: &Copy<T>, backup: &Copy<T>) -> io::Result<()> {
        let backup_path = self.with_suffix(".bak");
        let (path, bak) = (self.path.display(), backup_path.display());
        let (main_state, backup_state) = (main.state(), backup.state());
        let refused = |advice: &str| {
            let text = format!("{path} cannot be read ({main_state}), nor can its backup {bak} ({backup_state}): {advice}");
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let level = match self.unreadable {
            Unreadable::Fails => return Err(refused("repair one, or move both away to start without")),
            Unreadable::FailsUnlessAllowed => {
                return Err(refused(&format!("repair one, or set {ALLOW_EMPTY_KEY}=true to start without (they are kept)")));
            }
            Unreadable::Allowed => log::Level::Error,
            Unreadable::NoMatter => log::Level::Warn,
        };
        log::log!(level, "metadata is lost, starting without: file={path} state={main_state:?} backup={bak} backup_state={backup_state:?}");
        for (copy, at) in [(main, &self.path), (backup, &backup_path)] {
            if let Copy::Damaged(_) = copy {
                let kept = put_aside(at)?;
                log::warn!("damaged metadata file is kept: file={} kept_as={}", at.display(), kept.display());
            }
        }
        Ok(())
    }

    /// Writes durably.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn store(&self, content: &str) -> io::Result<()> {
        let folder = self.folder();
        if !folder.exists() {
            fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
            if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) {
                sync_folder(above).map_err(|error| at(above, &error))?;
            }
        }
        let fresh = self.write_fresh(content.as_bytes())?;
        // An empty file (a crash of a writer in place) must not push a good backup out.
        if fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() > 0) {
            self.keep_backup()?;
        }
        self.take_place(&fresh)
    }

    /// Makes the present version the backup. It stays in its own place as well, so that a reader always finds the file; a file system
    /// without hard links has a moment with only the backup.
    fn keep_backup(&self) -> io::Result<()> {
        let (backup, link) = (self.with_suffix(".bak"), self.with_suffix(".bak.tmp"));
        let _ = fs::remove_file(&link); // left by a crash, or not there
        let outcome = match fs::hard_link(&self.path, &link) {
            Ok(()) => fs::rename(&link, &backup),
            Err(_) => fs::rename(&self.path, &backup),
        };
        let _ = fs::remove_file(&link); // a rename onto another name of the same file leaves both
        outcome.map_err(|error| at(&backup, &error))
    }

    /// Writes durably; the backup stays what it is.
    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let fresh = self.write_fresh(bytes)?;
        self.take_place(&fresh)
    }

    fn write_fresh(&self, bytes: &[u8]) -> io::Result<PathBuf> {
        let fresh = self.with_suffix(".tmp");
        write_synced(&fresh, bytes).map_err(|error| at(&fresh, &error))?;
        Ok(fresh)
    }

    fn take_place(&self, fresh: &Path) -> io::Result<()> {
        fs::rename(fresh, &self.path).map_err(|error| at(&self.path, &error))?;
        sync_folder(self.folder()).map_err(|error| at(self.folder(), &error))
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn with_suffix(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.path, suffix)
    }
}

impl<T> Copy<T> {
    /// For texts.
    fn state(&self) -> &str {
        match self {
            Self::Absent => "missing",
            Self::Blank => "empty",
            Self::Read(_) => "readable",
            Self::Damaged(why) => why,
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}

/// Gives a damaged file a name that no other has.
fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let mut ms = Clock::System.now_ms();
    let mut aside = with_suffix(path, &format!(".corrupt.{ms}"));
    while fs::symlink_metadata(&aside).is_ok() {
        ms += 1;
        aside = with_suffix(path, &format!(".corrupt.{ms}"));
    }
    fs::rename(path, &aside).map_err(|error| at(path, &error))?;
    Ok(aside)
}

fn read_copy<T>(path: &Path, parse: &impl Fn(&str) -> Result<T, String>) -> io::Result<Copy<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Copy::Absent),
        Err(error) => return Err(at(path, &error)),
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Copy::Blank);
    }
    let parsed = std::str::from_utf8(&bytes).map_err(|error| format!("no UTF-8: {error}")).and_then(parse);
    Ok(parsed.map_or_else(Copy::Damaged, Copy::Read))
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

    /// What was put aside, by content.
    fn kept(folder: &tempfile::TempDir) -> Vec<String> {
        let names = fs::read_dir(folder.path().join("config")).unwrap().map(|entry| entry.unwrap().path());
        let mut kept: Vec<String> = names.filter(|path| path.to_string_lossy().contains(".corrupt.")).filter_map(read).collect();
        kept.sort();
        kept
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
            let damaged = main.filter(|text| !text.trim().is_empty());
            assert_eq!(kept(&folder), Vec::from_iter(damaged), "main {main:?}");
            assert_eq!(read(file.path()).as_deref(), Some("{old}"), "written anew at once, main {main:?}");
            assert_eq!(read(file.with_suffix(".bak")).as_deref(), Some("{old}"), "main {main:?}");
            assert_eq!(read(file.with_suffix(".tmp")), None, "main {main:?}");
            file.store("{next}").unwrap();
            assert_eq!(read(file.with_suffix(".bak")).as_deref(), Some("{old}"), "main {main:?}");
        }
    }

    #[test]
    fn a_kept_copy_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_in(&folder);
        file.store("{1}").unwrap();
        file.store("{2}").unwrap();
        let damages = ["a", "b", "c"];
        for damage in damages {
            fs::write(file.path(), damage).unwrap();
            assert_eq!(file.load(parse).unwrap().as_deref(), Some("{1}"));
        }
        assert_eq!(kept(&folder), damages);
    }

    /// Main and backup, both of which are no help.
    const LOST: [(Option<&str>, Option<&str>); 6] = [
        (Some("main"), None),
        (Some("{tor"), Some("")),
        (Some("main"), Some("backup")),
        (None, Some("backup")),
        (Some(" "), Some("backup")),
        (Some("\0"), None),
    ];

    fn write_copies(file: &ConfigFile, main: Option<&str>, backup: Option<&str>) {
        fs::create_dir_all(file.folder()).unwrap();
        for (path, text) in [(file.path(), main), (&*file.with_suffix(".bak"), backup)] {
            if let Some(text) = text {
                fs::write(path, text).unwrap();
            }
        }
    }

    #[test]
    fn what_was_lost_ends_the_start_and_stays_where_it_is() {
        for (main, backup) in LOST {
            let folder = tempfile::tempdir().unwrap();
            let file = ConfigFile::of_broker(&BrokerConfig::new(folder.path()), "topics.json");
            write_copies(&file, main, backup);
            for _ in 0..2 {
                let text = file.load(parse).unwrap_err().to_string();
                for part in ["topics.json cannot", "topics.json.bak", "allowEmptyConfigOnCorruption=true"] {
                    assert!(text.contains(part), "{part} in {text}");
                }
                assert_eq!(text.lines().count(), 1, "{text}");
                assert_eq!((read(file.path()).as_deref(), read(file.with_suffix(".bak")).as_deref()), (main, backup));
            }
            let text = ConfigFile::new(file.path()).load(parse).unwrap_err().to_string();
            assert!(!text.contains("allowEmpty"), "no broker's: {text}");
        }
    }

    #[test]
    fn the_key_allows_to_start_without() {
        for (main, backup) in LOST {
            let folder = tempfile::tempdir().unwrap();
            let config = BrokerConfig { allow_empty_config_on_corruption: true, ..BrokerConfig::new(folder.path()) };
            let file = ConfigFile::of_broker(&config, "topics.json");
            write_copies(&file, main, backup);
            assert_eq!(file.load(parse).unwrap(), None);
            let mut expected: Vec<&str> = [main, backup].into_iter().flatten().filter(|text| !text.trim().is_empty()).collect();
            expected.sort_unstable();
            assert_eq!(kept(&folder), expected);
            assert_eq!(ConfigFile::new(file.path()).load(parse).unwrap(), None, "the next start is none of a damaged file");
        }
    }

    #[test]
    fn nothing_or_nothing_written_is_a_fresh_start() {
        for (main, backup) in [(None, None), (Some(""), None), (None, Some("")), (Some("\n"), Some(" "))] {
            let folder = tempfile::tempdir().unwrap();
            let file = file_in(&folder);
            write_copies(&file, main, backup);
            assert_eq!(file.load(parse).unwrap(), None, "{main:?} {backup:?}");
        }
    }

    #[test]
    fn what_may_be_lost_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_in(&folder);
        write_copies(&file, Some("main"), Some("backup"));
        assert_eq!(file.load_or_begin_anew(parse), None);
        assert_eq!(kept(&folder), ["backup", "main"]);
        fs::create_dir(file.path()).unwrap();
        assert_eq!(file.load_or_begin_anew(parse), None, "not even a file");
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
