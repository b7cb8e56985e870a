//! A handle to one peer.

use std::net::SocketAddr;
use std::time::Duration;

use crate::remoting::command::{Body, OwnedCommand};
use crate::remoting::ext::CustomHeader;

/// Identity of a connection, never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Why a request of ours was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvokeError {
    /// The address does not resolve or the connection could not be made: address and reason.
    Connect(String, String),
    /// No answer in time: address and milliseconds.
    Timeout(String, u64),
    /// The connection went away before the answer: address.
    Closed(String),
    /// More requests wait than the bound allows: address and bound.
    TooMany(String, usize),
}

impl std::fmt::Display for InvokeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(address, reason) => write!(f, "connect to {address} failed: {reason}"),
            Self::Timeout(address, ms) => write!(f, "no answer from {address} within {ms} ms"),
            Self::Closed(address) => write!(f, "connection to {address} was closed before the answer"),
            Self::TooMany(address, bound) => write!(f, "{bound} requests wait for {address} already"),
        }
    }
}

impl std::error::Error for InvokeError {}

/// What becomes of a request of ours.
pub type InvokeCallback = Box<dyn FnOnce(Result<OwnedCommand, InvokeError>) + Send>;

/// A connection as other threads see it: cheap to clone, valid after the peer has gone (then it does nothing).
#[derive(Clone)]
pub struct Connection {
    inner: std::sync::Arc<ConnectionInner>,
}

struct ConnectionInner {}

impl Connection {
    /// A connection without a socket: in-process transports and tests. Frames pushed to it go to `sink`.
    pub fn detached(peer: SocketAddr, local: SocketAddr, sink: impl Fn(Vec<u8>) + Send + Sync + 'static) -> Self {
        let _ = (peer, local, sink);
        todo!()
    }

    /// Identity.
    pub fn id(&self) -> ConnectionId {
        let _ = &self.inner;
        todo!()
    }

    /// Peer's address; an IPv4-mapped IPv6 address is given as IPv4.
    pub fn peer(&self) -> SocketAddr {
        todo!()
    }

    /// Our address of this connection; an IPv4-mapped IPv6 address is given as IPv4.
    pub fn local(&self) -> SocketAddr {
        todo!()
    }

    /// Whether the peer may still be there.
    pub fn is_open(&self) -> bool {
        todo!()
    }

    /// Closes once what was written has left.
    pub fn close(&self) {
        todo!()
    }

    /// Sends a request that nobody answers.
    pub fn oneway(&self, code: i32, header: &(impl CustomHeader + ?Sized), body: Body) {
        let _ = (code, header, body);
        todo!()
    }

    /// Sends a request; `done` is called exactly once, on a net thread, and must not block.
    pub fn invoke(&self, code: i32, header: &(impl CustomHeader + ?Sized), body: Body, timeout: Duration, done: InvokeCallback) {
        let _ = (code, header, body, timeout, done);
        todo!()
    }
}
