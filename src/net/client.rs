//! Outgoing connections: one per address, made when first needed, made again after a loss.

use std::sync::Arc;
use std::time::Duration;

use crate::remoting::command::{Body, Command, OwnedCommand};
use crate::remoting::ext::CustomHeader;

use super::connection::{Connection, InvokeCallback, InvokeError};
use super::responder::Responder;

/// Handles requests that servers send to us (39, 40, 220, 221, 307, 309, 326); runs on the net thread, must not block.
pub type PushHandler = Arc<dyn Fn(&Command<'_>, Responder) + Send + Sync>;

/// How a client runs.
#[derive(Clone)]
pub struct RemotingClientConfig {
    /// Prefix of the net thread's name; may be empty.
    pub tag: String,
    /// Time for a connection to be made.
    pub connect_timeout: Duration,
    /// Silence after which a connection is closed.
    pub idle: Duration,
    /// Handles what servers ask.
    pub push_handler: Option<PushHandler>,
    /// Told when a connection is gone: its address as given to `invoke`.
    pub on_close: Option<Arc<dyn Fn(&str) + Send + Sync>>,
}

impl Default for RemotingClientConfig {
    fn default() -> Self {
        Self {
            tag: String::new(),
            connect_timeout: Duration::from_secs(3),
            idle: Duration::from_secs(120),
            push_handler: None,
            on_close: None,
        }
    }
}

/// Connections to servers, on one net thread.
pub struct RemotingClient {}

impl RemotingClient {
    /// Starts the net thread.
    ///
    /// # Errors
    /// The system's.
    pub fn start(config: RemotingClientConfig) -> std::io::Result<Self> {
        let _ = config;
        todo!()
    }

    /// Sends a request to `address` (`host:port`, `[v6]:port`) and waits for the answer. Not from the net thread.
    ///
    /// # Errors
    /// [`InvokeError`].
    pub fn invoke(
        &self, address: &str, code: i32, header: &(impl CustomHeader + ?Sized), body: Body, timeout: Duration,
    ) -> Result<OwnedCommand, InvokeError> {
        let _ = (address, code, header, body, timeout);
        todo!()
    }

    /// Sends a request; `done` is called exactly once, on the net thread, and must not block. Does not block itself.
    pub fn invoke_async(
        &self, address: &str, code: i32, header: &(impl CustomHeader + ?Sized), body: Body, timeout: Duration, done: InvokeCallback,
    ) {
        let _ = (address, code, header, body, timeout, done);
        todo!()
    }

    /// Sends a request that nobody answers. Waits at most for the connection.
    ///
    /// # Errors
    /// [`InvokeError::Connect`].
    pub fn oneway(&self, address: &str, code: i32, header: &(impl CustomHeader + ?Sized), body: Body) -> Result<(), InvokeError> {
        let _ = (address, code, header, body);
        todo!()
    }

    /// The connection to `address`, made when there is none.
    ///
    /// # Errors
    /// [`InvokeError::Connect`].
    pub fn connection(&self, address: &str) -> Result<Connection, InvokeError> {
        let _ = address;
        todo!()
    }

    /// Ends the thread and closes everything; waiting requests end with [`InvokeError::Closed`]. Twice is harmless.
    pub fn shutdown(&self) {
        todo!()
    }
}
