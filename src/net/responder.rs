//! The duty to answer one request.

use crate::remoting::command::{Body, Command};
use crate::remoting::ext::CustomHeader;

use super::connection::Connection;

/// Answers one request exactly once, from any thread. Dropping it answers SYSTEM_ERROR (1, `not set any response code`),
/// unless the request was one-way.
pub struct Responder {
    connection: Connection,
}

impl Responder {
    /// A responder whose answer is handed to `sink` as an encoded frame: in-process transports and tests.
    pub fn detached(request: &Command<'_>, connection: Connection, sink: Box<dyn FnOnce(Vec<u8>) + Send>) -> Self {
        let _ = (request, sink);
        Self { connection }
    }

    /// The connection the request came by.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether nobody waits for the answer.
    pub fn is_oneway(&self) -> bool {
        todo!()
    }

    /// Answers.
    pub fn reply(self, code: i32, remark: Option<&str>, header: &(impl CustomHeader + ?Sized), body: Body) {
        let _ = (code, remark, header, body);
        todo!()
    }

    /// Answers with a code and a text.
    pub fn error(self, code: i32, remark: &str) {
        self.reply(code, Some(remark), &(), Body::Empty);
    }

    /// Answers code 0 without header and body.
    pub fn ok(self) {
        self.reply(0, None, &(), Body::Empty);
    }

    /// Hands the request to a work thread (its lane of kind [`super::service::LaneKind::Work`] handles it from the start):
    /// for a request that turns out to be slow. A full work queue answers SYSTEM_BUSY. On a work thread, or when detached, do not call this.
    pub fn defer(self, request: &Command<'_>) {
        let _ = request;
        todo!()
    }

    /// Gives no answer at all, where the protocol says so.
    pub fn silent(self) {
        todo!()
    }
}
