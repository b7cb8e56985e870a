//! Signals as values: the first SIGTERM or SIGINT asks for an orderly stop, a second one ends the process at once with 130; SIGHUP asks
//! for the log file and other files to be opened again.
//!
//! A thread of its own hears them, so that a second signal works whatever the main thread does: a recovery, a stop that hangs. The same
//! signal again within [`ECHO`] is not a second one: `timeout` and other wrappers signal the process and then its whole group.

use std::io;
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, Sender};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::runtime::thread::Thread;

/// Status of a process that a second signal ended.
const KILLED: i32 = 130;
/// Within this time the same signal again is the same wish.
const ECHO: Duration = Duration::from_millis(100);
/// Requests to open files again that may wait.
const MAX_HANG_UPS: usize = 4;

/// The signals of this process from now on. Dropping it ends its thread; signals are then ignored.
pub struct Waiter {
    heard: Receiver<Heard>,
    handle: Handle,
    thread: Option<Thread>,
}

enum Heard {
    HangUp,
    Stop(i32),
}

impl Waiter {
    /// Takes the signals over. Before anything is started: a stop asked for during the start is carried out after it.
    ///
    /// # Errors
    /// The system's.
    pub fn install() -> io::Result<Self> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let handle = signals.handle();
        let (sender, heard) = channel::bounded(MAX_HANG_UPS + 1);
        let thread = Thread::spawn("", "signals", move || listen(&mut signals, &sender))?;
        Ok(Self { heard, handle, thread: Some(thread) })
    }

    /// Waits for the signal to stop; `hang_up` is called for each SIGHUP until then.
    pub fn wait(&self, mut hang_up: impl FnMut()) -> &'static str {
        loop {
            match self.heard.recv() {
                Ok(Heard::HangUp) => hang_up(),
                Ok(Heard::Stop(SIGINT)) => return "SIGINT",
                // The thread ends only with this value.
                Ok(Heard::Stop(_)) | Err(_) => return "SIGTERM",
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.handle.close();
        self.thread.take();
    }
}

fn listen(signals: &mut Signals, sender: &Sender<Heard>) {
    let mut first: Option<(i32, Instant)> = None;
    for signal in signals.forever() {
        match first {
            // Some wait already: one more changes nothing, and the signal to stop must never wait for room.
            _ if signal == SIGHUP && sender.len() >= MAX_HANG_UPS => {}
            _ if signal == SIGHUP => {
                let _ = sender.send(Heard::HangUp); // or nobody waits any more
            }
            None => {
                first = Some((signal, Instant::now()));
                let _ = sender.send(Heard::Stop(signal)); // or nobody waits any more
            }
            Some((before, at)) if signal == before && at.elapsed() < ECHO => {}
            Some(_) => signal_hook::low_level::exit(KILLED),
        }
    }
}
