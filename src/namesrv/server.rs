//! A running name server.

use std::net::SocketAddr;
use std::time::Duration;

use crate::config::namesrv::NamesrvConfig;
use crate::runtime::clock::Clock;

/// A name server. Dropping it stops it.
pub struct Namesrv {}

impl Namesrv {
    /// Binds, loads the KV configuration, serves.
    ///
    /// # Errors
    /// One line for a person: port taken, file unreadable.
    pub fn start(config: NamesrvConfig, clock: Clock) -> Result<Self, String> {
        let _ = (config, clock);
        todo!()
    }

    /// Address listened on.
    pub fn address(&self) -> SocketAddr {
        todo!()
    }

    /// Whether a broker of this name is in the route table.
    pub fn knows_broker(&self, broker_name: &str) -> bool {
        let _ = broker_name;
        todo!()
    }

    /// Stops; at most `deadline`. Twice is harmless.
    pub fn shutdown(&self, deadline: Duration) {
        let _ = deadline;
        todo!()
    }
}
