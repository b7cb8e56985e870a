//! Long polls: pull requests that found no message and wait for one.

use std::sync::Arc;

use crate::net::responder::Responder;
use crate::remoting::command::OwnedCommand;
use crate::store::arrival::{Arrival, ArrivalListener};

/// A pull that waits.
pub struct HeldPull {
    /// The request.
    pub request: OwnedCommand,
    /// Its duty.
    pub responder: Responder,
    /// Milliseconds at which it is answered 19.
    pub deadline_ms: i64,
    /// Offset it wants.
    pub offset: i64,
    /// Tags codes it wants; empty: all.
    pub codes: Vec<i64>,
}

/// The table of held pulls and its thread.
pub struct Hold {}

impl Hold {
    /// An empty table.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {})
    }
}

impl ArrivalListener for Hold {
    fn arrived(&self, arrival: &Arrival<'_>) {
        let _ = arrival;
        todo!()
    }
}
