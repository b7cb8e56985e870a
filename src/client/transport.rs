//! How requests reach a server.
//!
//! The library above knows only [`Transport`]; [`TcpTransport`] is its form over sockets. A form that hands frames to an embedded
//! broker in the same process needs these four methods and nothing else.

use std::time::Duration;

use crate::net::client::{RemotingClient, RemotingClientConfig};
use crate::net::connection::{InvokeCallback, InvokeError};
use crate::remoting::command::{Body, OwnedCommand};
use crate::remoting::ext::CustomHeader;

/// Carries requests to servers named by address.
pub trait Transport: Send + Sync {
    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// [`InvokeError`]; an answer with any code is no error here.
    fn invoke(
        &self, address: &str, code: i32, header: &dyn CustomHeader, body: Body, timeout: Duration,
    ) -> Result<OwnedCommand, InvokeError>;

    /// Sends a request; `done` is called exactly once, perhaps before this returns, and must not block.
    fn invoke_async(&self, address: &str, code: i32, header: &dyn CustomHeader, body: Body, timeout: Duration, done: InvokeCallback);

    /// Sends a request that nobody answers.
    ///
    /// # Errors
    /// [`InvokeError`] when it could not be handed to a connection.
    fn oneway(&self, address: &str, code: i32, header: &dyn CustomHeader, body: Body) -> Result<(), InvokeError>;

    /// Ends all connections; waiting requests end with [`InvokeError::Closed`]. Twice is harmless.
    fn shutdown(&self);
}

/// Connections over TCP, one per address.
pub struct TcpTransport {
    client: RemotingClient,
}

impl TcpTransport {
    /// Starts the net thread; no connection is made yet.
    ///
    /// # Errors
    /// The system's.
    pub fn start(config: RemotingClientConfig) -> std::io::Result<Self> {
        Ok(Self { client: RemotingClient::start(config)? })
    }
}

impl Transport for TcpTransport {
    fn invoke(
        &self, address: &str, code: i32, header: &dyn CustomHeader, body: Body, timeout: Duration,
    ) -> Result<OwnedCommand, InvokeError> {
        self.client.invoke(address, code, header, body, timeout)
    }

    fn invoke_async(&self, address: &str, code: i32, header: &dyn CustomHeader, body: Body, timeout: Duration, done: InvokeCallback) {
        self.client.invoke_async(address, code, header, body, timeout, done);
    }

    fn oneway(&self, address: &str, code: i32, header: &dyn CustomHeader, body: Body) -> Result<(), InvokeError> {
        self.client.oneway(address, code, header, body)
    }

    fn shutdown(&self) {
        self.client.shutdown();
    }
}
