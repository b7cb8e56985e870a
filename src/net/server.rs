//! Listeners, net threads and the work pool of one role.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::service::{Port, Service};

/// How a server runs.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Prefix of thread names when several servers share a process; may be empty.
    pub tag: String,
    /// Net threads, 1 and up.
    pub net_threads: usize,
    /// Work threads, 1 and up.
    pub work_threads: usize,
    /// Requests that may wait for a work thread; more are answered SYSTEM_BUSY with this number and its key.
    pub work_queue: usize,
    /// Silence in both directions after which a connection is closed.
    pub idle: Duration,
    /// Bytes of unsent answers at which a connection's requests are no longer read.
    pub write_high_water: usize,
    /// Bytes that all frames above 64 KiB may hold while they are read.
    pub inbound_budget: usize,
    /// Connections at most; the next one is closed at once.
    pub max_connections: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            tag: String::new(),
            net_threads: cores.min(4),
            work_threads: cores.clamp(2, 8),
            work_queue: 10_000,
            idle: Duration::from_secs(120),
            write_high_water: 4 << 20,
            inbound_budget: 256 << 20,
            max_connections: 100_000,
        }
    }
}

/// A bound listener that does not accept yet.
pub struct Listener {}

impl Listener {
    /// Binds `address` (port 0: a free one; an unspecified IPv6 address takes IPv4 too).
    ///
    /// # Errors
    /// The system's.
    pub fn bind(address: SocketAddr, port: Port) -> std::io::Result<Self> {
        let _ = (address, port);
        todo!()
    }

    /// The address bound.
    pub fn address(&self) -> SocketAddr {
        todo!()
    }
}

/// A running server.
pub struct Server {}

impl Server {
    /// Starts the threads and accepts.
    ///
    /// # Errors
    /// The system's.
    pub fn start(config: ServerConfig, listeners: Vec<Listener>, service: Arc<dyn Service>) -> std::io::Result<Self> {
        let _ = (config, listeners, service);
        todo!()
    }

    /// Stops accepting and reading; what is being answered goes on.
    pub fn stop_reading(&self) {
        todo!()
    }

    /// Waits until the work pool is empty and the answers have left, then ends the threads; at most `deadline`.
    /// Twice is harmless.
    pub fn shutdown(&self, deadline: Duration) {
        let _ = deadline;
        todo!()
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        todo!()
    }

    /// Requests that wait for a work thread.
    pub fn work_queue_len(&self) -> usize {
        todo!()
    }
}
