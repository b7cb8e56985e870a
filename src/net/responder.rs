//! The duty to answer one request.

use crate::remoting::code::response;
use crate::remoting::codec::Head;
use crate::remoting::command::{Body, Command, FLAG_RESPONSE, SerializeType};
use crate::remoting::ext::{CustomHeader, shorten};

use super::connection::{self, Connection};

/// Bytes of a remark; a longer one repeats what its peer sent, most likely.
const MAX_REMARK_LEN: usize = 4096;

/// Answers one request exactly once, from any thread. Dropping it answers SYSTEM_ERROR (1, `not set any response code`),
/// unless the request was one-way.
pub struct Responder {
    connection: Connection,
    opaque: i32,
    serialize_type: SerializeType,
    oneway: bool,
    sink: Sink,
    /// Counted among the answers that are due soon.
    due: bool,
}

enum Sink {
    Connection,
    Detached(Box<dyn FnOnce(Vec<u8>) + Send>),
    /// Answered, or handed on.
    Done,
}

impl Responder {
    /// A responder whose answer is handed to `sink` as an encoded frame: in-process transports and tests. A one-way request's
    /// sink is dropped without a call.
    pub fn detached(request: &Command<'_>, connection: Connection, sink: Box<dyn FnOnce(Vec<u8>) + Send>) -> Self {
        let mut responder = Self::new(request, connection);
        responder.sink = Sink::Detached(sink);
        responder.not_due();
        responder
    }

    /// A responder that answers over the connection the request came by.
    pub(super) fn new(request: &Command<'_>, connection: Connection) -> Self {
        connection.enter_due();
        Self {
            connection,
            opaque: request.opaque,
            serialize_type: request.serialize_type,
            oneway: request.is_oneway(),
            sink: Sink::Connection,
            due: true,
        }
    }

    /// The connection the request came by.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether nobody waits for the answer.
    pub fn is_oneway(&self) -> bool {
        self.oneway
    }

    /// Answers.
    pub fn reply(mut self, code: i32, remark: Option<&str>, header: &(impl CustomHeader + ?Sized), body: Body) {
        self.send(code, remark, header, body);
    }

    /// Answers with a code and a text.
    pub fn error(self, code: i32, remark: &str) {
        self.reply(code, Some(remark), &(), Body::Empty);
    }

    /// Answers code 0 without header and body.
    pub fn ok(self) {
        self.reply(response::SUCCESS, None, &(), Body::Empty);
    }

    /// Hands the request to a work thread (its lane of kind [`super::service::LaneKind::Work`] handles it from the start):
    /// for a request that turns out to be slow. A full work queue answers SYSTEM_BUSY. On a work thread, or when detached, do not call this.
    pub fn defer(self, request: &Command<'_>) {
        match self.connection.home().and_then(|home| home.pool.clone()) {
            Some(pool) => pool.submit(request, self),
            None => self.error(response::SYSTEM_ERROR, "no work thread serves this connection"),
        }
    }

    /// The answer may take long (a pull that waits for messages): a peer that has ended its direction is not kept for it.
    pub fn hold(&mut self) {
        self.not_due();
    }

    /// Gives no answer at all, where the protocol says so.
    pub fn silent(mut self) {
        self.sink = Sink::Done;
    }

    fn not_due(&mut self) {
        if std::mem::replace(&mut self.due, false) {
            self.connection.leave_due();
        }
    }

    fn send(&mut self, code: i32, remark: Option<&str>, header: &(impl CustomHeader + ?Sized), body: Body) {
        if self.oneway {
            self.sink = Sink::Done;
            return;
        }
        let remark = remark.map(|text| shorten(text, MAX_REMARK_LEN));
        let remark = remark.as_deref();
        let head = Head { code, flag: FLAG_RESPONSE, opaque: self.opaque, remark, serialize_type: self.serialize_type };
        if matches!(self.sink, Sink::Connection) {
            self.connection.push(&head, header, body); // when the header panics, the drop still answers
            self.sink = Sink::Done;
        } else {
            let frame = connection::encode(&head, header, body);
            if let Sink::Detached(sink) = std::mem::replace(&mut self.sink, Sink::Done) {
                sink(frame);
            }
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !matches!(self.sink, Sink::Done) {
            self.send(response::SYSTEM_ERROR, Some("not set any response code"), &(), Body::Empty);
        }
        self.not_due(); // after the answer was left
    }
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responder").field("connection", &self.connection.id().0).field("opaque", &self.opaque).finish_non_exhaustive()
    }
}
