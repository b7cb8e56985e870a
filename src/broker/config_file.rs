//! Apache's JSON files, written atomically: temporary file, fsync, rename, fsync of the folder; the version before stays as `.bak`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Called once the write that contains a change is durable, or has failed (with the text for the client).
pub type Persisted = Box<dyn FnOnce(Result<(), String>) + Send>;

/// One metadata file.
#[derive(Clone)]
pub struct ConfigFile {
    path: PathBuf,
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
        let _ = parse;
        todo!()
    }

    /// Writes durably.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn store(&self, content: &str) -> io::Result<()> {
        let _ = content;
        todo!()
    }
}

/// Writes metadata files on its own thread (`tasks`): changes made while a write runs share the next one.
#[derive(Clone)]
pub struct MetadataWriter {
    inner: Arc<WriterInner>,
}

struct WriterInner {}

impl MetadataWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's.
    pub fn start(tag: &str) -> io::Result<Self> {
        let _ = tag;
        Ok(Self { inner: Arc::new(WriterInner {}) })
    }

    /// Registers a file and how its content is made; the number is the file's handle.
    pub fn register(&self, file: ConfigFile, content: Arc<dyn Fn() -> String + Send + Sync>) -> usize {
        let _ = (&self.inner, file, content);
        todo!()
    }

    /// Marks a file dirty; `done` is called after a write that contains everything changed before this call.
    pub fn write(&self, file: usize, done: Option<Persisted>) {
        let _ = (file, done);
        todo!()
    }

    /// Marks a file dirty and waits. Not on a net thread.
    ///
    /// # Errors
    /// The text for the client.
    pub fn write_and_wait(&self, file: usize) -> Result<(), String> {
        let _ = file;
        todo!()
    }

    /// Writes what is dirty, ends the thread. Twice is harmless.
    pub fn shutdown(&self) {
        todo!()
    }
}
