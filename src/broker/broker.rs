//! Builds a broker, starts it, stops it in order.

use std::net::SocketAddr;
use std::time::Duration;

use crate::config::broker::BrokerConfig;
use crate::runtime::clock::Clock;

/// A running broker. Dropping it stops it.
pub struct Broker {}

/// Why a broker does not start: one line for a person.
#[derive(Debug)]
pub struct StartError(pub String);

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl Broker {
    /// Opens the store, recovers, listens, registers (in the background; see [`Broker::register_now`]).
    ///
    /// # Errors
    /// [`StartError`]: port taken, store locked or not writable, metadata damaged.
    pub fn start(config: BrokerConfig, clock: Clock) -> Result<Self, StartError> {
        let _ = (config, clock);
        todo!()
    }

    /// Address listened on.
    pub fn address(&self) -> SocketAddr {
        todo!()
    }

    /// Registers with all name servers and waits; how many answered.
    pub fn register_now(&self) -> usize {
        todo!()
    }

    /// Stops in order (style: leave the name server, stop reading, answer held polls, … checkpoint, abort, lock); at most `deadline`
    /// for each step. Returns what did not finish. Twice is harmless.
    pub fn shutdown(&self, deadline: Duration) -> Vec<String> {
        let _ = deadline;
        todo!()
    }
}
