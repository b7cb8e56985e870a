//! Signals as values: the first SIGTERM or SIGINT asks for an orderly stop, a second one ends the process at once with 130; SIGHUP asks
//! for the log file and other files to be opened again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// Status of a process that a second signal ended.
const KILLED: i32 = 130;

/// The signals of this process from now on.
pub struct Waiter {
    signals: Signals,
}

impl Waiter {
    /// Takes the signals over. Before anything is started: a stop asked for during the start is carried out after it.
    ///
    /// # Errors
    /// The system's.
    pub fn install() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag down and raises it, the second finds it up.
            flag::register_conditional_shutdown(signal, KILLED, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self { signals: Signals::new([SIGTERM, SIGINT, SIGHUP])? })
    }

    /// Waits for the signal to stop; `hang_up` is called for each SIGHUP until then.
    pub fn wait(&mut self, mut hang_up: impl FnMut()) -> &'static str {
        for signal in self.signals.forever() {
            match signal {
                SIGHUP => hang_up(),
                SIGINT => return "SIGINT",
                _ => return "SIGTERM",
            }
        }
        "nothing" // the iterator ends only when it is closed, and nobody closes it
    }
}
