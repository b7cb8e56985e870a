//! What a role (broker, name server, controller) implements to be served.

use crate::remoting::command::Command;

use super::connection::Connection;
use super::responder::Responder;

/// Which listener a request came in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// `listenPort`.
    Main,
    /// `listenPort - 2` (VIP): no pulls, no pops.
    Fast,
}

/// Where a request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On the net thread that read it: must never block.
    Inline,
    /// On a `work-N` thread.
    Pool,
    /// Nowhere: the server answers code 3, ` request type N not supported`.
    Unknown,
}

/// What kind of thread a lane belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// A net thread: requests are handled in batches, nothing may block.
    Net,
    /// A work thread: one request at a time, may block.
    Work,
}

/// A role's side of the server.
pub trait Service: Send + Sync + 'static {
    /// Where requests of this code go. Called for each request; must be a plain table look-up.
    fn placement(&self, code: i32, port: Port) -> Placement;

    /// State of one thread that handles requests: one per net thread and one per work thread.
    /// `waker` makes that thread call [`Lane::woken`] soon; cheap to call, may be called from any thread.
    fn lane(&self, kind: LaneKind, waker: LaneWaker) -> Box<dyn Lane>;

    /// A connection is gone. Called once, on its net thread; must not block.
    fn closed(&self, connection: &Connection);
}

/// One thread's state of a [`Service`].
pub trait Lane: Send {
    /// Handles a request: answers now, or keeps the responder.
    fn handle(&mut self, request: &Command<'_>, responder: Responder);

    /// All requests that one read of one connection brought have been handled: what was staged is to be carried out.
    fn read_done(&mut self) {}

    /// Somebody called the lane's waker.
    fn woken(&mut self) {}
}

/// Wakes the thread that owns a [`Lane`].
#[derive(Clone)]
pub struct LaneWaker(std::sync::Arc<dyn Fn() + Send + Sync>);

impl LaneWaker {
    /// A waker that calls `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(std::sync::Arc::new(wake))
    }

    /// Makes the lane's thread call [`Lane::woken`].
    pub fn wake(&self) {
        (self.0)();
    }
}
