//! Named threads with one owner that joins them.

use std::io;
use std::thread::{self, JoinHandle};

/// Longest thread name that Linux keeps, in bytes.
const MAX_NAME_LEN: usize = 15;

/// A thread that is joined when its handle is dropped. What makes it end (a closed channel, a flag and a wake-up) is its
/// owner's business and must have happened before.
#[derive(Debug)]
pub struct Thread {
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts a thread; `tag` (a broker's, may be empty) goes in front of the name, which is cut at 15 bytes.
    ///
    /// # Errors
    /// The system's, when no thread can be made.
    pub fn spawn(tag: &str, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let mut full = if tag.is_empty() { name.to_owned() } else { format!("{tag}-{name}") };
        while full.len() > MAX_NAME_LEN {
            full.pop();
        }
        let handle = thread::Builder::new().name(full).spawn(body)?;
        Ok(Self { handle: Some(handle) })
    }

    /// Waits for the end. A panic in the thread has been reported by its hook; it is logged here.
    pub fn join(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        if handle.thread().id() == thread::current().id() {
            return; // the last owner was dropped by the thread itself
        }
        let name = handle.thread().name().unwrap_or("?").to_owned();
        if handle.join().is_err() {
            log::error!("thread ended by a panic: name={name}");
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.finish();
    }
}
