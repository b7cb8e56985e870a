//! One socket, as its net thread sees it: what may be read, what is to be written, when it was last heard of.
//!
//! Readiness is edge-like: [`Channel::readable`] and [`Channel::writable`] stay set until the system says that nothing is left,
//! so a turn may stop at its budget without losing the event.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;

use mio::net::TcpStream;

use crate::remoting::codec::DecodeError;
use crate::remoting::command::Command;

use super::budget::{InboundBudget, Permit};
use super::connection::Connection;
use super::detect::Protocol;
use super::dispatch::Dispatch;
use super::inbound::{Flow, Inbound, Need, Scratch, Trouble};
use super::mailbox::Home;
use super::write_queue::WriteQueue;

/// Bytes that one connection may bring in one turn before others get theirs.
const READ_TURN_LEN: usize = 256 << 10;
/// Bytes that one connection may take in one turn.
const WRITE_TURN_LEN: usize = 1 << 20;
/// Progress of a large frame within [`LARGE_STALL_MS`] that keeps its connection.
const LARGE_PROGRESS: usize = 64 << 10;
/// Time without progress of a large frame after which its connection is closed.
const LARGE_STALL_MS: u64 = 30_000;
/// Time for a peer to take the last answer of a connection that we close.
const LINGER_MS: u64 = 1_000;

/// What a loop's channels share.
pub(super) struct Shared {
    pub(super) home: Arc<Home>,
    pub(super) budget: Arc<InboundBudget>,
    pub(super) write_high_water: usize,
    pub(super) idle_ms: u64,
}

/// How far a connection is.
pub(super) enum Stage {
    /// Being made: further addresses to try, and when to give up.
    Connecting { rest: Vec<SocketAddr>, deadline_ms: u64 },
    /// Served.
    Open,
    /// Everything is written and the peer was told so; waits for it to close, or until then.
    Lingering { until_ms: u64 },
}

/// Why a connection is closed.
#[derive(Debug)]
pub(super) enum Reason {
    /// The peer closed it.
    Peer,
    /// The system's error.
    Io(io::Error),
    /// Bytes that are no frame.
    Malformed(DecodeError),
    /// Another protocol than the remoting one.
    Foreign(Protocol),
    /// Neither side said anything for so many milliseconds.
    Idle(u64),
    /// The peer took none of so many unsent bytes.
    NotReading(usize),
    /// A large frame did not get on.
    Stalled,
    /// We wanted it.
    Asked,
    /// The loop ends.
    Shutdown,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Peer => f.write_str("closed by the peer"),
            Self::Io(error) => write!(f, "{error}"),
            Self::Malformed(error) => write!(f, "{error}"),
            Self::Foreign(protocol) => write!(f, "{} is not served yet on this port", protocol.name()),
            Self::Idle(ms) => write!(f, "silent for {ms} ms"),
            Self::NotReading(bytes) => write!(f, "the peer does not read: {bytes} bytes wait to be sent"),
            Self::Stalled => write!(f, "a large frame did not get on for {LARGE_STALL_MS} ms"),
            Self::Asked => f.write_str("closed by us"),
            Self::Shutdown => f.write_str("shutdown"),
        }
    }
}

/// What is to become of a channel after a turn.
pub(super) enum Verdict {
    /// It waits for an event.
    Wait,
    /// Its budget ran out: it goes on in the next turn.
    Again,
    /// Write what is there, then close.
    Finish(Reason),
    /// Close at once.
    Close(Reason),
}

pub(super) struct Channel {
    pub(super) connection: Connection,
    pub(super) stream: TcpStream,
    pub(super) stage: Stage,
    inbound: Inbound,
    queue: WriteQueue,
    readable: bool,
    writable: bool,
    /// The peer has sent its last byte: reads go on until they say so.
    read_closed: bool,
    /// Requests wait until the peer has taken its answers.
    paused: bool,
    /// Waits for the budget, with a frame of this length.
    wants: Option<usize>,
    /// In the loop's list of those that go on in the next turn.
    pub(super) listed: bool,
    /// Nothing is read any more; closed when all is written.
    pub(super) finishing: Option<Reason>,
    last_io_ms: u64,
    last_write_ms: u64,
    large_since_ms: u64,
    large_progress: usize,
    /// Holds buffers that a sweep may let go.
    warm: bool,
}

impl Channel {
    pub(super) fn new(connection: Connection, stream: TcpStream, stage: Stage, inbound: Inbound, now_ms: u64) -> Self {
        Self {
            connection,
            stream,
            stage,
            inbound,
            queue: WriteQueue::default(),
            readable: false,
            writable: false,
            read_closed: false,
            paused: false,
            wants: None,
            listed: false,
            finishing: None,
            last_io_ms: now_ms,
            last_write_ms: now_ms,
            large_since_ms: now_ms,
            large_progress: 0,
            warm: false,
        }
    }

    /// Notes what an event said.
    pub(super) fn ready(&mut self, readable: bool, writable: bool, read_closed: bool) {
        self.readable |= readable;
        self.writable |= writable;
        self.read_closed |= read_closed;
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Waits for memory for a large frame.
    pub(super) fn is_waiting(&self) -> bool {
        self.wants.is_some()
    }

    /// Reads and handles requests until nothing is left, the turn's budget is used up or something has to be waited for.
    pub(super) fn read(
        &mut self, slot: usize, shared: &Shared, scratch: &mut Scratch, dispatch: &mut impl Dispatch, now_ms: u64,
    ) -> Verdict {
        if self.finishing.is_some() {
            return self.discard(scratch);
        }
        if self.paused {
            return Verdict::Wait; // `relieve` puts it back to work
        }
        let mut brought = 0;
        while self.readable && self.wants.is_none() {
            if brought >= READ_TURN_LEN {
                return Verdict::Again;
            }
            let target = self.inbound.target(scratch);
            let room = target.len();
            let len = match self.stream.read(target) {
                Ok(0) => {
                    self.read_closed = true;
                    return Verdict::Finish(Reason::Peer);
                }
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Verdict::Close(Reason::Io(error)),
            };
            brought += len;
            self.last_io_ms = now_ms;
            self.warm = true;
            self.note_progress(len, now_ms);
            // A short read has emptied the socket, and what comes later is a new event. Only the end of the stream may have
            // been announced already.
            self.readable = len == room || self.read_closed;
            let Self { inbound, connection, .. } = self;
            let outcome = inbound.read(scratch, len, &mut |frame| handle(frame, connection, shared, dispatch));
            dispatch.read_done();
            if let Some(verdict) = self.after(outcome, slot, shared, now_ms) {
                return verdict;
            }
        }
        Verdict::Wait
    }

    /// Takes up a connection whose peer has caught up with its answers.
    pub(super) fn relieve(&mut self, slot: usize, shared: &Shared, dispatch: &mut impl Dispatch, now_ms: u64) -> Verdict {
        if !self.paused || !self.connection.is_open() || !self.connection.is_relieved(shared.write_high_water) {
            return Verdict::Wait;
        }
        self.paused = false;
        let Self { inbound, connection, .. } = self;
        let outcome = inbound.resume(&mut |frame| handle(frame, connection, shared, dispatch));
        dispatch.read_done();
        match self.after(outcome, slot, shared, now_ms) {
            Some(verdict) => verdict,
            None if self.readable => Verdict::Again,
            None => Verdict::Wait,
        }
    }

    /// Has the memory for its large frame.
    pub(super) fn grant(&mut self, permit: Permit, now_ms: u64) -> Verdict {
        let Some(len) = self.wants.take() else { return Verdict::Wait };
        self.inbound.grant(len, permit);
        self.start_large(now_ms);
        Verdict::Again
    }

    /// Writes until nothing is left, the socket takes no more or the turn's budget is used up.
    pub(super) fn flush(&mut self, now_ms: u64) -> Verdict {
        let mut taken = 0;
        loop {
            if self.queue.is_empty() {
                let mut outbox = self.connection.outbox();
                if outbox.frames.is_empty() {
                    outbox.scheduled = false;
                    drop(outbox);
                    return self.written(now_ms);
                }
                self.queue.fill(&mut outbox);
                self.last_write_ms = now_ms; // what waits, waits from now on
            }
            if !self.writable {
                return Verdict::Wait;
            }
            if taken >= WRITE_TURN_LEN {
                return Verdict::Again;
            }
            match self.queue.write(&mut self.stream) {
                Ok((len, _)) => {
                    taken += len;
                    self.connection.sent(len);
                    self.warm = true;
                    (self.last_io_ms, self.last_write_ms) = (now_ms, now_ms);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Verdict::Close(Reason::Io(error)),
            }
        }
    }

    /// Takes no more requests; what is written leaves, then the connection is closed.
    pub(super) fn finish(&mut self, reason: Reason) {
        if self.finishing.is_none() {
            self.connection.shut();
            self.finishing = Some(reason);
        }
    }

    /// Whether everything has left.
    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty() && self.connection.outbox().frames.is_empty()
    }

    /// Looks whether its time is over, and lets go of buffers that were not used since the last look.
    pub(super) fn sweep(&mut self, shared: &Shared, now_ms: u64) -> Option<Reason> {
        let since = |then: u64| now_ms.saturating_sub(then);
        if let Stage::Lingering { until_ms } = self.stage {
            return (now_ms >= until_ms).then_some(Reason::Asked);
        }
        if !self.is_open() {
            return None; // the deadline of the connect is looked after elsewhere
        }
        if since(self.last_io_ms) >= shared.idle_ms && self.connection.unsent() == 0 {
            return Some(Reason::Idle(since(self.last_io_ms)));
        }
        if since(self.last_write_ms) >= shared.idle_ms && self.connection.unsent() > 0 {
            return Some(Reason::NotReading(self.connection.unsent()));
        }
        if (self.inbound.is_large() || self.wants.is_some()) && since(self.large_since_ms) >= LARGE_STALL_MS {
            return Some(Reason::Stalled);
        }
        if self.warm && since(self.last_io_ms) > 0 {
            self.warm = false;
            self.queue.trim();
            self.inbound.trim();
            self.connection.trim();
        }
        None
    }

    fn after(&mut self, outcome: Result<Need, Trouble>, slot: usize, shared: &Shared, now_ms: u64) -> Option<Verdict> {
        match outcome {
            Ok(Need::Bytes) => None,
            Ok(Need::Resume) => {
                self.paused = true;
                Some(Verdict::Wait)
            }
            Ok(Need::Permit(len)) => {
                self.start_large(now_ms);
                match shared.budget.acquire(len, &shared.home, slot, self.connection.id()) {
                    Some(permit) => self.inbound.grant(len, permit),
                    None => self.wants = Some(len),
                }
                None
            }
            Err(Trouble::Malformed(error)) => Some(Verdict::Finish(Reason::Malformed(error))),
            Err(Trouble::Foreign(protocol)) => {
                if let Some(text) = protocol.refusal() {
                    self.connection.push_raw(text.as_bytes());
                }
                Some(Verdict::Finish(Reason::Foreign(protocol)))
            }
        }
    }

    fn start_large(&mut self, now_ms: u64) {
        (self.large_since_ms, self.large_progress) = (now_ms, 0);
    }

    fn note_progress(&mut self, len: usize, now_ms: u64) {
        self.large_progress += len;
        if self.large_progress >= LARGE_PROGRESS {
            self.start_large(now_ms);
        }
    }

    /// All is written: a connection that finishes says so to its peer and gives it a moment to read, for closing a socket with
    /// unread bytes in it would take the last answer away.
    fn written(&mut self, now_ms: u64) -> Verdict {
        let Some(reason) = &self.finishing else { return Verdict::Wait };
        if matches!(self.stage, Stage::Lingering { .. }) {
            return Verdict::Wait; // `discard` or the sweep ends it
        }
        let is_over = self.read_closed || matches!(reason, Reason::Malformed(_));
        if is_over || self.stream.shutdown(Shutdown::Write).is_err() {
            return Verdict::Close(self.finishing.take().unwrap_or(Reason::Asked));
        }
        self.stage = Stage::Lingering { until_ms: now_ms + LINGER_MS };
        if self.readable { Verdict::Again } else { Verdict::Wait }
    }

    /// Throws away what still comes on a connection that is closed soon.
    fn discard(&mut self, scratch: &mut Scratch) -> Verdict {
        for _ in 0..4 {
            match self.stream.read(scratch.rubbish()) {
                Ok(0) => {
                    self.read_closed = true;
                    if self.is_flushed() {
                        return Verdict::Close(self.finishing.take().unwrap_or(Reason::Peer));
                    }
                    self.readable = false;
                    return Verdict::Wait;
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Verdict::Wait;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Verdict::Close(Reason::Io(error)),
            }
        }
        Verdict::Again
    }
}

fn handle(frame: &[u8], connection: &Connection, shared: &Shared, dispatch: &mut impl Dispatch) -> Result<Flow, DecodeError> {
    let command = Command::parse(frame)?;
    if command.is_response() {
        connection.complete(&command);
    } else {
        dispatch.request(&command, connection);
    }
    Ok(if connection.is_over(shared.write_high_water) || !connection.is_open() { Flow::Pause } else { Flow::Go })
}

#[cfg(test)]
mod tests {
    use super::super::connection::INNER_LEN;
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // The table of channels may be twice as long as it needs to be.
        let total = 2 * size_of::<Channel>() + INNER_LEN;
        assert!(total < 2048, "{total} bytes");
    }
}
