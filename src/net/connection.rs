//! A handle to one peer.
//!
//! Any thread may leave frames: they go into the connection's outbox, and its net thread is told once that it has to come.
//! - After the end of a connection whatever is left for it is dropped, and every request of ours has been told.
//! - Lock order: the table of calls and the outbox are never held together, nor while a callback runs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::remoting::codec::Head;
use crate::remoting::command::{Body, Command, FLAG_ONEWAY, OwnedCommand, SerializeType};
use crate::remoting::ext::CustomHeader;

use super::calls::{self, Call, Calls, MAX_CALLS, Refused};
use super::mailbox::{Home, Message};
use super::service::Port;
use super::write_queue::{self, Frames, Outbox};

/// Requests of one connection that may wait for, or run on, work threads before it is not read any more.
pub(super) const MAX_POOLED: usize = 64;

/// Identity of a connection, never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    fn next() -> Self {
        // The one thing that all servers and clients of a process share: only so is an identity unique in it.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

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
    /// The peer does not read; so many bytes wait to be sent to it: address, bytes and bound.
    Congested(String, usize, usize),
}

impl std::fmt::Display for InvokeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(address, reason) => write!(f, "connect to {address} failed: {reason}"),
            Self::Timeout(address, ms) => write!(f, "no answer from {address} within {ms} ms"),
            Self::Closed(address) => write!(f, "connection to {address} was closed before the answer"),
            Self::TooMany(address, bound) => write!(f, "{bound} requests wait for {address} already"),
            Self::Congested(address, bytes, bound) => {
                write!(f, "{address} does not read: {bytes} bytes wait to be sent to it, {bound} may")
            }
        }
    }
}

impl std::error::Error for InvokeError {}

/// What becomes of a request of ours.
pub type InvokeCallback = Box<dyn FnOnce(Result<OwnedCommand, InvokeError>) + Send>;

/// A connection as other threads see it: cheap to clone, valid after the peer has gone (then it does nothing).
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    id: ConnectionId,
    /// Listener it came in by.
    port: Port,
    /// Peer's and our address, once connected.
    ends: OnceLock<(SocketAddr, SocketAddr)>,
    open: AtomicBool,
    calls: Mutex<Calls>,
    /// When the loop must look at the calls, in its milliseconds.
    calls_due_ms: AtomicU64,
    outbox: Mutex<Outbox>,
    /// Bytes in the outbox and in the loop's write queue.
    unsent: AtomicUsize,
    pooled: AtomicUsize,
    /// Requests whose answers are due soon.
    due: AtomicUsize,
    /// The peer has sent its last byte, and the loop waits for what is due.
    half_closed: AtomicBool,
    wire: Wire,
}

/// Heap of a connection's handle.
#[cfg(test)]
pub(super) const INNER_LEN: usize = size_of::<Inner>() + 2 * size_of::<usize>();

enum Wire {
    Socket { home: Arc<Home>, slot: AtomicUsize, outgoing: Option<Box<Outgoing>> },
    Detached { opaques: AtomicI32, epoch: Instant, sink: Box<dyn Fn(Vec<u8>) + Send + Sync> },
}

/// What a connection that we make has beyond one that we accept.
struct Outgoing {
    /// Address as it was asked for.
    address: Box<str>,
    /// `None` while it is being made.
    outcome: Mutex<Option<Result<(), String>>>,
    changed: Condvar,
    /// Threads that wait for room to write.
    writers: AtomicUsize,
}

/// Why a connection ends.
pub(super) enum Ended {
    /// It was there and is gone.
    Closed,
    /// It could not be made.
    Unreachable(String),
}

impl Connection {
    /// A connection without a socket: in-process transports and tests. Frames pushed to it go to `sink`; answers to them come
    /// by [`Connection::answer`].
    pub fn detached(peer: SocketAddr, local: SocketAddr, sink: impl Fn(Vec<u8>) + Send + Sync + 'static) -> Self {
        let wire = Wire::Detached { opaques: AtomicI32::new(1), epoch: Instant::now(), sink: Box::new(sink) };
        let connection = Self::new(Port::Main, wire);
        connection.set_ends(peer, local);
        connection
    }

    /// An accepted one.
    pub(super) fn incoming(home: Arc<Home>, slot: usize, port: Port, peer: SocketAddr, local: SocketAddr) -> Self {
        let connection = Self::new(port, Wire::Socket { home, slot: AtomicUsize::new(slot), outgoing: None });
        connection.set_ends(peer, local);
        connection
    }

    /// One that is going to be made; frames left for it wait until it is.
    pub(super) fn outgoing(home: Arc<Home>, address: &str) -> Self {
        let outgoing =
            Outgoing { address: address.into(), outcome: Mutex::new(None), changed: Condvar::new(), writers: AtomicUsize::new(0) };
        let wire = Wire::Socket { home, slot: AtomicUsize::new(usize::MAX), outgoing: Some(Box::new(outgoing)) };
        let connection = Self::new(Port::Main, wire);
        connection.inner.outbox.lock().scheduled = true; // the loop comes by itself when it is connected
        connection
    }

    fn new(port: Port, wire: Wire) -> Self {
        Self {
            inner: Arc::new(Inner {
                id: ConnectionId::next(),
                port,
                ends: OnceLock::new(),
                open: AtomicBool::new(true),
                calls: Mutex::default(),
                calls_due_ms: AtomicU64::new(u64::MAX),
                outbox: Mutex::default(),
                unsent: AtomicUsize::new(0),
                pooled: AtomicUsize::new(0),
                due: AtomicUsize::new(0),
                half_closed: AtomicBool::new(false),
                wire,
            }),
        }
    }

    /// Identity.
    pub fn id(&self) -> ConnectionId {
        self.inner.id
    }

    /// Peer's address; an IPv4-mapped IPv6 address is given as IPv4. Unspecified while the connection is being made.
    pub fn peer(&self) -> SocketAddr {
        self.ends().0
    }

    /// Our address of this connection; an IPv4-mapped IPv6 address is given as IPv4. Unspecified while the connection is being made.
    pub fn local(&self) -> SocketAddr {
        self.ends().1
    }

    /// Whether the peer may still be there.
    pub fn is_open(&self) -> bool {
        self.inner.open.load(Ordering::Acquire)
    }

    /// Bytes that wait to be sent.
    pub fn unsent(&self) -> usize {
        self.inner.unsent.load(Ordering::Relaxed)
    }

    /// Closes once what was written has left.
    pub fn close(&self) {
        if !self.inner.open.swap(false, Ordering::AcqRel) {
            return;
        }
        match &self.inner.wire {
            Wire::Socket { home, slot, .. } => {
                self.inner.outbox.lock().closed = true;
                let _ = home.post(Message::Close(slot.load(Ordering::Acquire), self.inner.id)); // an ended loop has closed it
            }
            Wire::Detached { .. } => self.end(&Ended::Closed),
        }
    }

    /// Sends a request that nobody answers. It is dropped when the peer is gone, or does not read while megabytes wait for it.
    pub fn oneway(&self, code: i32, header: &(impl CustomHeader + ?Sized), body: Body) {
        if let Err(error) = self.send_oneway(code, header, body) {
            log::debug!("one-way request dropped: code={code} reason={error}");
        }
    }

    /// Sends a request; `done` is called exactly once, on a net thread (or, when that has ended, on this one), and must not block.
    pub fn invoke(&self, code: i32, header: &(impl CustomHeader + ?Sized), body: Body, timeout: Duration, done: InvokeCallback) {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        if self.is_congested() {
            return self.refuse(done, self.congested());
        }
        let deadline_ms = self.now_ms().saturating_add(timeout_ms).saturating_add(1); // the millisecond has begun already
        let mut calls = self.inner.calls.lock();
        let entered = calls.insert(self.opaques(), Call { deadline_ms, timeout_ms, done });
        let sooner = entered.is_ok() && self.inner.calls_due_ms.fetch_min(deadline_ms, Ordering::AcqRel) > deadline_ms;
        drop(calls);
        match entered {
            Ok(opaque) => {
                // When the connection closes at this moment the frame is dropped and the call, being in the table, is ended.
                self.push(&request_head(code, 0, opaque), header, body);
                if sooner {
                    self.tell_due();
                }
            }
            Err((Refused::Closed, done)) => self.refuse(done, self.gone()),
            Err((Refused::TooMany, done)) => self.refuse(done, InvokeError::TooMany(self.name(), MAX_CALLS)),
        }
    }

    /// Takes a peer's answer to a request that [`Connection::invoke`] sent over a detached connection. One that matches nothing
    /// is ignored.
    pub fn answer(&self, answer: OwnedCommand) {
        let done = self.inner.calls.lock().remove(answer.view().opaque);
        if let Some(done) = done {
            calls::finish(done, Ok(answer));
        }
    }

    /// Hands an answer to the request of ours that waits for it; one that matches nothing is ignored.
    pub(super) fn complete(&self, answer: &Command<'_>) {
        let done = self.inner.calls.lock().remove(answer.opaque);
        if let Some(done) = done {
            let owned = OwnedCommand::new(answer.frame).map_err(|_| InvokeError::Closed(self.name())); // it has been decoded before
            calls::finish(done, owned);
        }
    }

    /// Sends a request that nobody answers, or says why not.
    pub(super) fn send_oneway(&self, code: i32, header: &(impl CustomHeader + ?Sized), body: Body) -> Result<(), InvokeError> {
        if self.is_congested() {
            return Err(self.congested());
        }
        let opaque = self.opaques().fetch_add(1, Ordering::Relaxed);
        if self.push(&request_head(code, FLAG_ONEWAY, opaque), header, body) { Ok(()) } else { Err(self.gone()) }
    }

    /// Leaves a frame for the peer; `false` when the connection is closed.
    pub(super) fn push(&self, head: &Head<'_>, header: &(impl CustomHeader + ?Sized), body: Body) -> bool {
        match &self.inner.wire {
            Wire::Socket { .. } => {
                let mut outbox = self.inner.outbox.lock();
                if outbox.closed {
                    return false;
                }
                let len = outbox.frames.append(head, header, body);
                self.inner.unsent.fetch_add(len, Ordering::Relaxed);
                let first = !std::mem::replace(&mut outbox.scheduled, true);
                drop(outbox);
                if first {
                    self.nudge();
                }
                true
            }
            Wire::Detached { sink, .. } => {
                let open = self.is_open();
                if open {
                    sink(encode(head, header, body));
                }
                open
            }
        }
    }

    /// Leaves bytes that are no frame.
    pub(super) fn push_raw(&self, bytes: &[u8]) {
        self.inner.outbox.lock().frames.append_raw(bytes);
        self.inner.unsent.fetch_add(bytes.len(), Ordering::Relaxed);
    }

    /// The listener it came in by.
    pub(super) fn port(&self) -> Port {
        self.inner.port
    }

    pub(super) fn home(&self) -> Option<&Arc<Home>> {
        match &self.inner.wire {
            Wire::Socket { home, .. } => Some(home),
            Wire::Detached { .. } => None,
        }
    }

    /// The address as it was asked for, of a connection that we made; the peer's otherwise.
    pub(super) fn name(&self) -> String {
        match self.outgoing_part() {
            Some(outgoing) => outgoing.address.to_string(),
            None => self.peer().to_string(),
        }
    }

    // ---- for the loop ----

    pub(super) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.inner.outbox.lock()
    }

    /// So many bytes have left.
    pub(super) fn sent(&self, len: usize) {
        let before = self.inner.unsent.fetch_sub(len, Ordering::SeqCst);
        if let Some(outgoing) = self.outgoing_part()
            && outgoing.writers.load(Ordering::SeqCst) > 0
            && before - len <= self.push_limit() / 2
        {
            outgoing.notify();
        }
    }

    /// Takes no further frame; what was left still leaves.
    pub(super) fn shut(&self) {
        self.inner.open.store(false, Ordering::Release);
        self.inner.outbox.lock().closed = true;
    }

    pub(super) fn set_slot(&self, new: usize) {
        if let Wire::Socket { slot, .. } = &self.inner.wire {
            slot.store(new, Ordering::Release);
        }
    }

    /// The socket is connected.
    pub(super) fn connected(&self, peer: SocketAddr, local: SocketAddr) {
        self.set_ends(peer, local);
        if let Some(outgoing) = self.outgoing_part() {
            *outgoing.outcome.lock() = Some(Ok(()));
            outgoing.notify();
        }
    }

    /// The connection is gone: whoever waits for it is told.
    pub(super) fn end(&self, why: &Ended) {
        self.inner.open.store(false, Ordering::Release);
        let mut outbox = self.inner.outbox.lock();
        outbox.closed = true;
        outbox.frames = Frames::default();
        drop(outbox);
        self.inner.unsent.store(0, Ordering::Relaxed);
        if let Some(outgoing) = self.outgoing_part() {
            let mut outcome = outgoing.outcome.lock();
            if outcome.is_none() {
                *outcome = Some(Err(match why {
                    Ended::Closed => "closed before it was made".to_owned(),
                    Ended::Unreachable(reason) => reason.clone(),
                }));
            }
            drop(outcome);
            outgoing.notify();
        }
        let waiting = self.inner.calls.lock().close();
        for call in waiting {
            calls::finish(call.done, Err(self.gone()));
        }
    }

    /// When [`Connection::expire`] is due, in the loop's milliseconds.
    pub(super) fn calls_due_ms(&self) -> u64 {
        self.inner.calls_due_ms.load(Ordering::Acquire)
    }

    /// Ends the calls whose time is over.
    pub(super) fn expire(&self, now_ms: u64) {
        let mut calls = self.inner.calls.lock();
        let (late, next) = calls.expire(now_ms);
        self.inner.calls_due_ms.store(next.unwrap_or(u64::MAX), Ordering::Release); // only written under the table's lock
        drop(calls);
        for call in late {
            calls::finish(call.done, Err(self.too_late(call.timeout_ms)));
        }
    }

    /// Lets go of memory that is not in use.
    pub(super) fn trim(&self) {
        self.inner.outbox.lock().trim();
        self.inner.calls.lock().trim();
    }

    // ---- for the work pool ----

    /// One request more is with the work pool.
    pub(super) fn enter_pool(&self) {
        self.inner.pooled.fetch_add(1, Ordering::Relaxed);
    }

    /// One less; the loop is told when it may read again.
    pub(super) fn leave_pool(&self) {
        let before = self.inner.pooled.fetch_sub(1, Ordering::AcqRel);
        if before == MAX_POOLED / 2 {
            self.nudge();
        }
    }

    /// Whether no further request is to be handled for now.
    pub(super) fn is_over(&self, write_high_water: usize) -> bool {
        self.unsent() > write_high_water || self.inner.pooled.load(Ordering::Acquire) >= MAX_POOLED
    }

    /// Whether requests may be handled again.
    pub(super) fn is_relieved(&self, write_high_water: usize) -> bool {
        self.unsent() <= write_high_water / 2 && self.inner.pooled.load(Ordering::Acquire) < MAX_POOLED / 2
    }

    // ---- for responders ----

    /// One answer more is due soon.
    pub(super) fn enter_due(&self) {
        self.inner.due.fetch_add(1, Ordering::Relaxed);
    }

    /// One less: it was left for the peer, or is given up; the loop is told when it waits for the last one.
    pub(super) fn leave_due(&self) {
        let before = self.inner.due.fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.inner.half_closed.load(Ordering::SeqCst) {
            self.nudge();
        }
    }

    /// The peer has sent its last byte. Whether answers are due to it; then the loop is told of the last one. A server that we
    /// connected to has gone then: our requests to it must not wait.
    pub(super) fn half_close(&self) -> bool {
        if self.outgoing_part().is_some() {
            return false;
        }
        self.inner.half_closed.store(true, Ordering::SeqCst);
        self.inner.due.load(Ordering::SeqCst) > 0
    }

    // ---- for the client ----

    /// Waits until the connection is made.
    pub(super) fn wait_connected(&self, until: Instant) -> Result<(), InvokeError> {
        let Some(outgoing) = self.outgoing_part() else { return Ok(()) };
        let mut outcome = outgoing.outcome.lock();
        while outcome.is_none() {
            if outgoing.changed.wait_until(&mut outcome, until).timed_out() && outcome.is_none() {
                return Err(InvokeError::Connect(self.name(), "no connection in time".to_owned()));
            }
        }
        match &*outcome {
            Some(Err(reason)) => Err(InvokeError::Connect(self.name(), reason.clone())),
            _ => Ok(()),
        }
    }

    /// Waits until so few bytes are unsent that another request is taken.
    pub(super) fn wait_writable(&self, until: Instant) -> Result<(), InvokeError> {
        let Some(outgoing) = self.outgoing_part() else { return Ok(()) };
        if !self.is_congested() {
            return Ok(());
        }
        outgoing.writers.fetch_add(1, Ordering::SeqCst);
        let mut outcome = outgoing.outcome.lock();
        while self.is_open() && self.inner.unsent.load(Ordering::SeqCst) > self.push_limit() / 2 {
            if outgoing.changed.wait_until(&mut outcome, until).timed_out() {
                break;
            }
        }
        drop(outcome);
        outgoing.writers.fetch_sub(1, Ordering::SeqCst);
        if self.is_congested() { Err(self.congested()) } else { Ok(()) }
    }

    /// The error of a request that its time-out ended.
    pub(super) fn too_late(&self, timeout_ms: u64) -> InvokeError {
        let made = self.outgoing_part().is_none_or(|outgoing| outgoing.outcome.lock().is_some());
        if made {
            InvokeError::Timeout(self.name(), timeout_ms)
        } else {
            InvokeError::Connect(self.name(), format!("no connection within {timeout_ms} ms"))
        }
    }

    fn outgoing_part(&self) -> Option<&Outgoing> {
        match &self.inner.wire {
            Wire::Socket { outgoing, .. } => outgoing.as_deref(),
            Wire::Detached { .. } => None,
        }
    }

    fn set_ends(&self, peer: SocketAddr, local: SocketAddr) {
        let _ = self.inner.ends.set((canonical(peer), canonical(local))); // set once, when the socket is there
    }

    fn ends(&self) -> (SocketAddr, SocketAddr) {
        let unspecified = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        self.inner.ends.get().copied().unwrap_or((unspecified, unspecified))
    }

    fn opaques(&self) -> &AtomicI32 {
        match &self.inner.wire {
            Wire::Socket { home, .. } => &home.opaques,
            Wire::Detached { opaques, .. } => opaques,
        }
    }

    fn now_ms(&self) -> u64 {
        match &self.inner.wire {
            Wire::Socket { home, .. } => home.now_ms(),
            Wire::Detached { epoch, .. } => u64::try_from(epoch.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn push_limit(&self) -> usize {
        self.home().map_or(usize::MAX, |home| home.push_limit)
    }

    fn is_congested(&self) -> bool {
        self.unsent() > self.push_limit()
    }

    fn congested(&self) -> InvokeError {
        InvokeError::Congested(self.name(), self.unsent(), self.push_limit())
    }

    /// The error of a request to a connection that has ended.
    fn gone(&self) -> InvokeError {
        if let Some(outgoing) = self.outgoing_part()
            && let Some(Err(reason)) = &*outgoing.outcome.lock()
        {
            return InvokeError::Connect(self.name(), reason.clone());
        }
        InvokeError::Closed(self.name())
    }

    /// Ends a call that did not enter, on the net thread: its caller may hold a lock that the callback takes.
    fn refuse(&self, done: InvokeCallback, error: InvokeError) {
        let run: Box<dyn FnOnce() + Send> = Box::new(move || calls::finish(done, Err(error)));
        match self.home() {
            None => run(),
            Some(home) => {
                if let Err(Message::Run(run)) = home.post(Message::Run(run)) {
                    run();
                }
            }
        }
    }

    /// A call is due before all others: the loop looks at the clock anew. A detached connection has no loop; there each
    /// such request looks for those before it.
    fn tell_due(&self) {
        match &self.inner.wire {
            Wire::Socket { .. } => self.nudge(),
            Wire::Detached { .. } => self.expire(self.now_ms()),
        }
    }

    /// Makes the loop look at this connection; an ended loop has nothing to look at.
    fn nudge(&self) {
        if let Wire::Socket { home, slot, .. } = &self.inner.wire {
            let _ = home.post(Message::Flush(slot.load(Ordering::Acquire), self.inner.id));
        }
    }
}

impl Outgoing {
    fn notify(&self) {
        drop(self.outcome.lock()); // who has looked and not yet waits holds it
        self.changed.notify_all();
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("id", &self.inner.id.0).field("peer", &self.peer()).field("open", &self.is_open()).finish()
    }
}

/// A whole frame in one buffer.
pub(super) fn encode(head: &Head<'_>, header: &(impl CustomHeader + ?Sized), body: Body) -> Vec<u8> {
    let mut frame = Vec::with_capacity(256 + body.len());
    match write_queue::encode(&mut frame, head, header, body) {
        Body::Empty => {}
        Body::Owned(bytes) => frame.extend_from_slice(&bytes),
        Body::Shared(slices) => slices.iter().for_each(|slice| frame.extend_from_slice(slice)),
    }
    frame
}

fn request_head(code: i32, flag: i32, opaque: i32) -> Head<'static> {
    Head { code, flag, opaque, remark: None, serialize_type: SerializeType::Json }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
