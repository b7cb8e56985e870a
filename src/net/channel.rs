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

use super::budget::{InboundBudget, MIN_RATE};
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
/// Time for a frame, besides that for its length at [`MIN_RATE`]; and for the memory that it needs.
const FRAME_MS: u64 = 30_000;
/// Time for a frame's length word, without which nothing is known of a peer.
const FIRST_WORD_MS: u64 = 10_000;
/// Time for what is due to a peer that has sent its last byte.
const HALF_CLOSED_MS: u64 = 5_000;
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
    /// A frame did not get on: its bytes so far, its length (0: unknown) and the milliseconds since its first.
    Stalled(usize, usize, u64),
    /// A large frame waited in vain for memory: its length and the milliseconds.
    NoMemory(usize, u64),
    /// Others needed the memory of its large frame, which hardly got on: its bytes so far and its length.
    Evicted(usize, usize),
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
            Self::Stalled(bytes, 0, ms) => write!(f, "the length of a frame is not there, only {bytes} bytes in {ms} ms"),
            Self::Stalled(bytes, len, ms) => write!(f, "a frame of {len} bytes is too slow: {bytes} bytes in {ms} ms"),
            Self::NoMemory(len, ms) => write!(f, "no memory for a frame of {len} bytes for {ms} ms"),
            Self::Evicted(bytes, len) => write!(f, "a frame of {len} bytes is slow, at {bytes}, and others need its memory"),
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
    /// Waits for memory since then.
    waits_since_ms: Option<u64>,
    /// In the loop's list of those that go on in the next turn.
    pub(super) listed: bool,
    /// Nothing is read any more; closed when all is written.
    pub(super) finishing: Option<Reason>,
    last_io_ms: u64,
    last_write_ms: u64,
    /// When the frame that is being read began; the time it waited for memory is taken out.
    begun_ms: u64,
    /// Until when a peer that has sent its last byte gets what is due to it.
    half_closed_until_ms: Option<u64>,
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
            waits_since_ms: None,
            listed: false,
            finishing: None,
            last_io_ms: now_ms,
            last_write_ms: now_ms,
            begun_ms: now_ms,
            half_closed_until_ms: None,
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
        while self.readable && self.waits_since_ms.is_none() {
            if brought >= READ_TURN_LEN {
                return Verdict::Again;
            }
            let target = self.inbound.target(scratch);
            let room = target.len();
            let len = match self.stream.read(target) {
                Ok(0) => {
                    return self.read_ended(now_ms);
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
            // A short read has emptied the socket, and what comes later is a new event. Only the end of the stream may have
            // been announced already.
            self.readable = len == room || self.read_closed;
            let Self { inbound, connection, .. } = self;
            let mut begins = inbound.begun().is_none();
            let outcome = inbound.read(scratch, len, &mut |frame| {
                begins = true;
                handle(frame, connection, shared, dispatch)
            });
            dispatch.read_done();
            if begins {
                self.begun_ms = now_ms;
            }
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
        self.begun_ms = now_ms;
        let Self { inbound, connection, .. } = self;
        let outcome = inbound.resume(&mut |frame| handle(frame, connection, shared, dispatch));
        dispatch.read_done();
        match self.after(outcome, slot, shared, now_ms) {
            Some(verdict) => verdict,
            None if self.readable => Verdict::Again,
            None => Verdict::Wait,
        }
    }

    /// Has the memory for the next part of its large frame.
    pub(super) fn granted(&mut self, now_ms: u64) -> Verdict {
        let Some(since_ms) = self.waits_since_ms.take() else { return Verdict::Wait };
        self.inbound.enlarged();
        self.begun_ms += now_ms.saturating_sub(since_ms);
        Verdict::Again
    }

    /// Has to give its memory to others.
    pub(super) fn evict(&self) -> Verdict {
        match self.inbound.begun() {
            Some(len) if self.finishing.is_none() => Verdict::Close(Reason::Evicted(self.inbound.begun_len(), len)),
            _ => Verdict::Wait,
        }
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
    pub(super) fn sweep(&mut self, shared: &Shared, now_ms: u64) -> Option<Verdict> {
        if let Some(until_ms) = self.half_closed_until_ms
            && self.is_open()
            && self.finishing.is_none()
            && now_ms >= until_ms
        {
            return Some(Verdict::Finish(Reason::Peer));
        }
        self.overdue(shared, now_ms).map(Verdict::Close)
    }

    fn overdue(&mut self, shared: &Shared, now_ms: u64) -> Option<Reason> {
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
        if let Some(len) = self.inbound.begun()
            && !self.paused
            && self.finishing.is_none()
        {
            let ms = since(self.waits_since_ms.unwrap_or(self.begun_ms));
            if self.waits_since_ms.is_some() {
                return (ms >= FRAME_MS).then_some(Reason::NoMemory(len, ms));
            }
            if ms >= time_for(len) {
                return Some(Reason::Stalled(self.inbound.begun_len(), len, ms));
            }
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
            Ok(Need::Memory) => {
                let id = self.connection.id();
                if !self.inbound.enlarge(|| shared.budget.enter(&shared.home, slot, id)) {
                    self.waits_since_ms = Some(now_ms);
                }
                None
            }
            Err(Trouble::Malformed(error)) => Some(Verdict::Finish(Reason::Malformed(error))),
            Err(Trouble::Foreign(protocol)) => {
                if let Some(bytes) = protocol.refusal() {
                    self.connection.push_raw(&bytes);
                }
                Some(Verdict::Finish(Reason::Foreign(protocol)))
            }
        }
    }

    /// The peer has sent its last byte. What is due to it soon still leaves.
    fn read_ended(&mut self, now_ms: u64) -> Verdict {
        (self.read_closed, self.readable) = (true, false);
        if !self.connection.half_close() {
            return Verdict::Finish(Reason::Peer);
        }
        self.half_closed_until_ms.get_or_insert(now_ms + HALF_CLOSED_MS);
        Verdict::Wait
    }

    /// All is written: a connection that finishes says so to its peer and gives it a moment to read, for closing a socket with
    /// unread bytes in it would take the last answer away.
    fn written(&mut self, now_ms: u64) -> Verdict {
        let Some(reason) = &self.finishing else {
            let is_over = self.half_closed_until_ms.is_some() && !self.connection.half_close() && self.is_flushed();
            return if is_over { Verdict::Finish(Reason::Peer) } else { Verdict::Wait };
        };
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

/// Milliseconds that a frame of `len` bytes may take (0: the length is not known yet).
fn time_for(len: usize) -> u64 {
    if len == 0 { FIRST_WORD_MS } else { FRAME_MS + len as u64 * 1_000 / MIN_RATE }
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
    use std::sync::atomic::AtomicI32;

    use super::super::connection::INNER_LEN;
    use super::super::service::Port;
    use super::*;
    use crate::remoting::codec::MAX_FRAME_LEN;

    /// A channel that has just got `bytes`, at millisecond 1,000.
    fn channel(shared: &Shared, bytes: &[u8]) -> Channel {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        let connection = Connection::incoming(shared.home.clone(), 0, Port::Main, address, address);
        let mut channel = Channel::new(connection, stream, Stage::Open, Inbound::new(), 1_000);
        let mut scratch = Scratch::new();
        channel.inbound.target(&mut scratch)[..bytes.len()].copy_from_slice(bytes);
        let outcome = channel.inbound.read(&mut scratch, bytes.len(), &mut |_| Ok(Flow::Go));
        assert!(channel.after(outcome, 0, shared, 1_000).is_none());
        channel
    }

    fn shared(waker: &mio::Poll, budget: &Arc<InboundBudget>) -> Shared {
        let waker = mio::Waker::new(waker.registry(), mio::Token(0)).unwrap();
        let home = Arc::new(Home::new(waker, Arc::new(AtomicI32::new(0)), 1, None));
        Shared { home, budget: budget.clone(), write_high_water: 1, idle_ms: 600_000 }
    }

    #[test]
    fn a_frame_has_its_time() {
        let poll = mio::Poll::new().unwrap();
        let shared = shared(&poll, &InboundBudget::new(0));
        let begin = |len: usize| (len as u32 - 4).to_be_bytes();
        for (bytes, over_ms, text) in [
            (&[0][..], 10_000, "the length of a frame is not there, only 1 bytes in 10000 ms"),
            (b"PRI", 10_000, "the length of a frame is not there, only 3 bytes in 10000 ms"),
            (&begin(1_000)[..], 30_000, "a frame of 1000 bytes is too slow: 4 bytes in 30000 ms"),
            (&begin(MAX_FRAME_LEN)[..], 46_000, "a frame of 16777216 bytes is too slow: 4 bytes in 46000 ms"),
        ] {
            let mut channel = channel(&shared, bytes);
            channel.last_io_ms = 1_000 + over_ms - 1; // its last byte has just come
            assert!(channel.sweep(&shared, 1_000 + over_ms - 1).is_none());
            let Some(Verdict::Close(reason)) = channel.sweep(&shared, 1_000 + over_ms) else { panic!("{bytes:?} is not over") };
            assert_eq!(reason.to_string(), text);
        }
        assert!(channel(&shared, &[]).sweep(&shared, 300_000).is_none(), "between frames there is time");
    }

    #[test]
    fn waiting_for_memory_is_not_the_peers_time() {
        let poll = mio::Poll::new().unwrap();
        let shared = shared(&poll, &InboundBudget::new(0));
        let begin = ((MAX_FRAME_LEN - 4) as u32).to_be_bytes();
        let holds = channel(&shared, &begin);
        assert!(holds.waits_since_ms.is_none());
        let mut waits = channel(&shared, &begin);
        assert_eq!(waits.waits_since_ms, Some(1_000));
        assert!(waits.sweep(&shared, 30_999).is_none());
        assert!(matches!(waits.overdue(&shared, 31_000), Some(Reason::NoMemory(MAX_FRAME_LEN, 30_000))));
        drop(holds);
        assert!(matches!(waits.granted(21_000), Verdict::Again));
        assert!(waits.sweep(&shared, 21_000 + 45_999).is_none());
        assert!(matches!(waits.overdue(&shared, 21_000 + 46_000), Some(Reason::Stalled(..))));
    }

    #[test]
    fn an_idle_connection_is_small() {
        // The table of channels may be twice as long as it needs to be.
        let total = 2 * size_of::<Channel>() + INNER_LEN;
        assert!(total < 2048, "{total} bytes");
    }
}
