//! What a loop's owner does with requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::remoting::code::response;
use crate::remoting::command::Command;

use super::connection::Connection;
use super::responder::Responder;
use super::service::{Lane, Placement, Service};
use super::work_pool::WorkPool;

/// Called by the loop on its thread. Nothing in here may block.
pub(super) trait Dispatch: Send {
    /// A request came.
    fn request(&mut self, request: &Command<'_>, connection: &Connection);

    /// All requests of one read were given.
    fn read_done(&mut self) {}

    /// Somebody woke the lane.
    fn woken(&mut self) {}

    /// A connection that was there is gone.
    fn closed(&mut self, connection: &Connection);

    /// The loop ends: what waits for an answer gets none any more.
    fn ending(&mut self) {}

    /// A connection could not be made.
    fn unreachable(&mut self, _connection: &Connection) {}
}

/// Gives requests to a role: to this thread's lane, to the work pool, or to nobody.
pub(super) struct ServerDispatch {
    service: Arc<dyn Service>,
    /// `None` once the loop ends.
    lane: Option<Box<dyn Lane>>,
    pool: Arc<WorkPool>,
    /// The lane has handled requests since `read_done`.
    staged: bool,
}

impl ServerDispatch {
    pub(super) fn new(service: Arc<dyn Service>, lane: Box<dyn Lane>, pool: Arc<WorkPool>) -> Self {
        Self { service, lane: Some(lane), pool, staged: false }
    }
}

impl Dispatch for ServerDispatch {
    fn request(&mut self, request: &Command<'_>, connection: &Connection) {
        let responder = Responder::new(request, connection.clone());
        guarded("a request's handler", || match self.service.placement(request.code, connection.port()) {
            Placement::Inline => {
                self.staged = true;
                if let Some(lane) = &mut self.lane {
                    lane.handle(request, responder);
                }
            }
            Placement::Pool => self.pool.submit(request, responder),
            Placement::Unknown => unsupported(request, responder),
        });
    }

    fn read_done(&mut self) {
        if std::mem::take(&mut self.staged)
            && let Some(lane) = &mut self.lane
        {
            guarded("the lane of a net thread", || lane.read_done());
        }
    }

    fn woken(&mut self) {
        if let Some(lane) = &mut self.lane {
            guarded("the lane of a net thread", || lane.woken());
        }
    }

    fn ending(&mut self) {
        self.lane = None; // with it go the responders that it kept
    }

    fn closed(&mut self, connection: &Connection) {
        guarded("a close handler", || self.service.closed(connection));
    }
}

/// Answers a request that nobody serves.
pub(super) fn unsupported(request: &Command<'_>, responder: Responder) {
    responder.error(response::REQUEST_CODE_NOT_SUPPORTED, &format!(" request type {} not supported", request.code));
}

/// Runs what a role does; a panic in there is logged and goes no further.
pub(super) fn guarded(what: &str, run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        log::error!("{what} panicked: text={:?}", text.unwrap_or("?"));
    }
}
