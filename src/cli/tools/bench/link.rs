//! One connection of the load: requests under way, bytes in and out.
//!
//! - An opaque names its slot, and each use of a slot has another opaque: an answer is matched exactly, or it is an error.
//! - Nothing here blocks unless the socket does.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use crate::remoting::codec;

use super::frame::{FIRST_OPAQUE, OPAQUES};

/// Room for what one read brings.
const READ_BYTES: usize = 256 << 10;

/// A connection.
pub struct Link {
    stream: TcpStream,
    /// What came and was not read yet.
    pub inbox: Inbox,
    /// Requests under way.
    pub slots: Slots,
    /// Requests that have not left yet.
    pub out: Vec<u8>,
    written: usize,
}

/// Bytes that came.
pub struct Inbox {
    bytes: Vec<u8>,
    /// Bytes that hold something, and those already taken as frames.
    filled: usize,
    taken: usize,
}

/// Requests under way on one connection.
pub struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    uses: i32,
    opaque: Option<i32>,
    since_ns: u64,
}

/// What a read of the socket came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadState {
    /// Bytes came.
    Some,
    /// None are there now.
    Empty,
}

impl Link {
    /// A link with `pipeline` slots.
    pub fn new(stream: TcpStream, pipeline: usize) -> Self {
        Self {
            stream,
            inbox: Inbox { bytes: vec![0; READ_BYTES], filled: 0, taken: 0 },
            slots: Slots { slots: vec![Slot::default(); pipeline], free: (0..pipeline).rev().collect() },
            out: Vec::with_capacity(READ_BYTES),
            written: 0,
        }
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Writes what waits. Whether everything has left.
    ///
    /// # Errors
    /// The system's.
    pub fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(true)
    }

    /// Reads once.
    ///
    /// # Errors
    /// The system's; an end of the stream is [`io::ErrorKind::UnexpectedEof`].
    pub fn fill(&mut self) -> io::Result<ReadState> {
        match self.stream.read(self.inbox.room()) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.inbox.filled += count;
                Ok(ReadState::Some)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::TimedOut) => {
                Ok(ReadState::Empty)
            }
            Err(error) => Err(error),
        }
    }
}

impl Inbox {
    /// Takes the next whole frame that has come.
    ///
    /// # Errors
    /// When the bytes are no frame.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, String> {
        let rest = &self.bytes[self.taken..self.filled];
        match codec::frame_len(rest).map_err(|error| error.to_string())? {
            Some(len) if rest.len() >= len => {
                self.taken += len;
                Ok(Some(&rest[..len]))
            }
            _ => Ok(None),
        }
    }

    /// Room for the next read, behind what is there; grows for a frame that is longer. Bounded: `next_frame` refuses frames beyond the
    /// protocol's limit.
    fn room(&mut self) -> &mut [u8] {
        if self.taken > 0 {
            self.bytes.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        if self.filled == self.bytes.len() {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
        &mut self.bytes[self.filled..]
    }
}

impl Slots {
    /// Whether a request may be sent.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Requests without an answer yet.
    pub fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a free slot for a request whose latency counts from `since_ns`; the slot and its opaque.
    pub fn begin(&mut self, since_ns: u64) -> Option<(usize, i32)> {
        let at = self.free.pop()?;
        let count = self.slots.len() as i32;
        let slot = &mut self.slots[at];
        let opaque = FIRST_OPAQUE + (slot.uses * count + at as i32);
        slot.uses = (slot.uses + 1) % (OPAQUES / count);
        slot.opaque = Some(opaque);
        slot.since_ns = since_ns;
        Some((at, opaque))
    }

    /// Frees the slot of an answer; the slot and the moment its latency counts from.
    ///
    /// # Errors
    /// When nobody waits for this opaque.
    pub fn end(&mut self, opaque: i32) -> Result<(usize, u64), String> {
        let number = opaque.checked_sub(FIRST_OPAQUE).and_then(|number| usize::try_from(number).ok());
        let at = number.map_or(0, |number| number % self.slots.len());
        match &mut self.slots[at] {
            slot if slot.opaque == Some(opaque) => {
                slot.opaque = None;
                self.free.push(at);
                Ok((at, slot.since_ns))
            }
            _ => Err(format!("an answer has the opaque {opaque}, for which nobody waits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::cli::tools::bench::frame::Template;
    use crate::remoting::command::Command;
    use crate::remoting::command::FLAG_RESPONSE;

    fn pair() -> (Link, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Link::new(stream, 3), listener.accept().unwrap().0)
    }

    #[test]
    fn slots_and_opaques_are_used_once_each() {
        let (mut link, _peer) = pair();
        let begun: Vec<(usize, i32)> = (0..3).map(|n| link.slots.begin(n).unwrap()).collect();
        assert_eq!(link.slots.begin(9), None);
        assert_eq!(link.slots.under_way(), 3);
        let (slot, opaque) = begun[1];
        assert_eq!(link.slots.end(opaque), Ok((slot, 1)));
        assert!(link.slots.end(opaque).is_err(), "answered twice");
        let (again, other) = link.slots.begin(5).unwrap();
        assert!(again == slot && other != opaque);
        assert!(link.slots.end(opaque).is_err(), "answered late");
        for stranger in [0, -1, i32::MAX, i32::MIN] {
            assert!(link.slots.end(stranger).is_err());
        }
        assert_eq!(link.slots.end(other), Ok((slot, 5)));
    }

    #[test]
    fn opaques_keep_ten_digits_when_they_start_over() {
        let (mut link, _peer) = pair();
        link.slots.slots[0].uses = OPAQUES / 3 - 1;
        let (slot, opaque) = link.slots.begin(0).unwrap();
        assert_eq!(slot, 0);
        assert!((FIRST_OPAQUE..i32::MAX).contains(&opaque));
        link.slots.end(opaque).unwrap();
        assert_eq!(link.slots.begin(0).unwrap().1, FIRST_OPAQUE);
    }

    #[test]
    fn frames_are_found_whatever_way_they_are_cut() {
        let (mut link, mut peer) = pair();
        let mut bytes = Vec::new();
        let now = super::super::frame::WallClock::new(1_700_000_000_000);
        for (opaque, len) in [(1_000_000_001, 0), (1_000_000_002, 5), (1_000_000_003, 300 << 10)] {
            Template::request(0, FLAG_RESPONSE, &(), &vec![7; len]).append(&mut bytes, opaque, 0, &now, None);
        }
        let mut seen = Vec::new();
        let mut pieces = bytes.chunks(97_001);
        while seen.len() < 3 {
            if let Some(piece) = pieces.next() {
                peer.write_all(piece).unwrap();
            }
            assert_eq!(link.fill().unwrap(), ReadState::Some);
            while let Some(frame) = link.inbox.next_frame().unwrap() {
                let command = Command::parse(frame).unwrap();
                seen.push((command.opaque, command.body.len()));
            }
        }
        assert_eq!(seen, [(1_000_000_001, 0), (1_000_000_002, 5), (1_000_000_003, 300 << 10)]);
        drop(peer);
        assert_eq!(link.fill().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
