//! Bytes that came in, split into frames in place.
//!
//! All connections of a thread read into one [`Scratch`] buffer and keep only what is not a whole frame yet; an idle connection
//! keeps nothing. A frame that is longer than [`LARGE_FRAME`] and did not come at once gets a buffer of its own, which grows with
//! what has come when the process can spare the memory.
//! - Every frame is handled once, whole and in order, wherever the reads were cut.
//! - Nothing is read while whole frames wait or memory for a large one has not been granted, so a connection keeps at most one
//!   scratch buffer's content, or one large frame.

use crate::remoting::codec::{self, DecodeError};

use super::budget::Permit;
use super::detect::Protocol;

/// Longest frame in bytes that is kept without asking the [`super::budget::InboundBudget`].
pub(super) const LARGE_FRAME: usize = 64 << 10;
/// Bytes that one read brings at most.
pub(super) const READ_LEN: usize = 256 << 10;
/// First length of a large frame's buffer; it doubles whenever it is full.
const FIRST_STEP: usize = 128 << 10;

/// Where a thread's reads land: room for a kept beginning, then for what is read.
pub(super) struct Scratch(Box<[u8]>);

impl Scratch {
    pub(super) fn new() -> Self {
        Self(vec![0; LARGE_FRAME + READ_LEN].into_boxed_slice())
    }

    /// Where connections that end throw away what still comes.
    pub(super) fn rubbish(&mut self) -> &mut [u8] {
        &mut self.0[LARGE_FRAME..]
    }
}

/// What the handler of a frame wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// The next frame.
    Go,
    /// None for now.
    Pause,
}

/// What the connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// To be read.
    Bytes,
    /// [`Inbound::resume`], when its peer has taken its answers.
    Resume,
    /// [`Inbound::enlarge`].
    Memory,
}

/// Why the bytes cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No frame.
    Malformed(DecodeError),
    /// Another protocol.
    Foreign(Protocol),
}

impl From<DecodeError> for Trouble {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

/// The incoming side of one connection.
pub(super) struct Inbound {
    pending: Vec<u8>,
    /// Bytes at the start of `pending` that were handled already.
    handled: usize,
    large: Option<Large>,
    detected: bool,
}

struct Large {
    /// What is charged for.
    frame: Vec<u8>,
    filled: usize,
    /// The whole frame's length.
    len: usize,
    permit: Permit,
}

impl Large {
    /// How long the buffer is to be next.
    fn next_len(&self) -> usize {
        (2 * self.filled).max(FIRST_STEP).min(self.len)
    }
}

impl Inbound {
    /// Of a connection whose first bytes decide what it is.
    pub(super) fn new() -> Self {
        Self { pending: Vec::new(), handled: 0, large: None, detected: false }
    }

    /// Of a connection that is known to carry frames.
    pub(super) fn remoting() -> Self {
        Self { detected: true, ..Self::new() }
    }

    /// Where the next read goes. Only while bytes are needed.
    pub(super) fn target<'a>(&'a mut self, scratch: &'a mut Scratch) -> &'a mut [u8] {
        match &mut self.large {
            Some(large) => {
                let end = large.frame.len().min(large.filled + READ_LEN);
                &mut large.frame[large.filled..end]
            }
            None => &mut scratch.0[LARGE_FRAME..],
        }
    }

    /// Handles what `len` bytes read into [`Inbound::target`] made whole.
    ///
    /// # Errors
    /// [`Trouble`]; the connection must be closed.
    pub(super) fn read(
        &mut self, scratch: &mut Scratch, len: usize, handle: &mut impl FnMut(&[u8]) -> Result<Flow, DecodeError>,
    ) -> Result<Need, Trouble> {
        if self.large.is_some() {
            return Ok(self.read_large(len, handle)?);
        }
        debug_assert_eq!(self.handled, 0);
        let end = LARGE_FRAME + len;
        if self.pending.is_empty() {
            return self.split(&scratch.0[LARGE_FRAME..end], handle);
        }
        if self.detected && codec::frame_len(&self.pending)?.is_some_and(|frame| frame > self.pending.len() + len) {
            self.pending.extend_from_slice(&scratch.0[LARGE_FRAME..end]);
            return Ok(Need::Bytes);
        }
        let start = LARGE_FRAME - self.pending.len();
        scratch.0[start..LARGE_FRAME].copy_from_slice(&self.pending);
        self.pending.clear();
        self.split(&scratch.0[start..end], handle)
    }

    /// Handles whole frames that had to wait.
    ///
    /// # Errors
    /// [`Trouble`]; the connection must be closed.
    pub(super) fn resume(&mut self, handle: &mut impl FnMut(&[u8]) -> Result<Flow, DecodeError>) -> Result<Need, Trouble> {
        if self.large.is_some() {
            return Ok(Need::Bytes);
        }
        let (handled, stop) = split(&self.pending[self.handled..], handle)?;
        self.handled += handled;
        if stop == Need::Bytes {
            self.pending.drain(..self.handled);
            self.handled = 0;
            self.pending.shrink_to(LARGE_FRAME);
        }
        Ok(stop)
    }

    /// Makes room for what is still to come of a large frame; `enter` is called at its begin. False when the memory has to be
    /// waited for: then [`Inbound::enlarged`] when it is there.
    pub(super) fn enlarge(&mut self, enter: impl FnOnce() -> Permit) -> bool {
        let large = match &mut self.large {
            Some(large) => large,
            None => {
                let begun = self.pending.split_off(self.handled);
                (self.handled, self.pending) = (0, Vec::new());
                let len = codec::frame_len(&begun).ok().flatten().unwrap_or(begun.len()); // it was read before
                self.large.insert(Large { filled: begun.len(), frame: begun, len, permit: enter() })
            }
        };
        let is_granted = large.permit.ask(large.next_len());
        if is_granted {
            self.enlarged();
        }
        is_granted
    }

    /// The memory for the next part of a large frame is there.
    pub(super) fn enlarged(&mut self) {
        if let Some(large) = &mut self.large {
            let len = large.next_len();
            large.frame.reserve_exact(len - large.filled);
            large.frame.resize(len, 0);
        }
    }

    /// Length of the frame that has begun, as far as it is known: 0 before its length word is there. `None` between frames.
    pub(super) fn begun(&self) -> Option<usize> {
        match &self.large {
            Some(large) => Some(large.len),
            None if self.pending.len() == self.handled => None,
            None => Some(codec::frame_len(&self.pending[self.handled..]).ok().flatten().unwrap_or(0)),
        }
    }

    /// Bytes of it that are there.
    pub(super) fn begun_len(&self) -> usize {
        self.large.as_ref().map_or(self.pending.len() - self.handled, |large| large.filled)
    }

    /// Lets go of a buffer that is not in use.
    pub(super) fn trim(&mut self) {
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
    }

    fn read_large(&mut self, len: usize, handle: &mut impl FnMut(&[u8]) -> Result<Flow, DecodeError>) -> Result<Need, DecodeError> {
        let Some(large) = &mut self.large else { return Ok(Need::Bytes) };
        large.filled += len;
        large.permit.note_received(len);
        if large.filled < large.frame.len() {
            return Ok(Need::Bytes);
        }
        if large.filled < large.len {
            return Ok(Need::Memory);
        }
        let flow = handle(&large.frame);
        self.large = None;
        Ok(match flow? {
            Flow::Go => Need::Bytes,
            Flow::Pause => Need::Resume,
        })
    }

    /// Handles the frames of `bytes`, which follow nothing, and keeps the rest.
    fn split(&mut self, bytes: &[u8], handle: &mut impl FnMut(&[u8]) -> Result<Flow, DecodeError>) -> Result<Need, Trouble> {
        if !self.detected {
            match Protocol::detect(bytes) {
                None => {
                    self.pending.extend_from_slice(bytes);
                    return Ok(Need::Bytes);
                }
                Some(Protocol::Remoting) => self.detected = true,
                Some(foreign) => return Err(Trouble::Foreign(foreign)),
            }
        }
        let (handled, stop) = split(bytes, handle)?;
        self.pending.extend_from_slice(&bytes[handled..]);
        Ok(stop)
    }
}

/// Handles whole frames from the start of `bytes` until the handler pauses or no whole one is left.
fn split(bytes: &[u8], handle: &mut impl FnMut(&[u8]) -> Result<Flow, DecodeError>) -> Result<(usize, Need), DecodeError> {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Some(len) = codec::frame_len(rest)? else { return Ok((at, Need::Bytes)) };
        let Some(frame) = rest.get(..len) else {
            return Ok((at, if len > LARGE_FRAME { Need::Memory } else { Need::Bytes }));
        };
        at += len;
        if handle(frame)? == Flow::Pause {
            return Ok((at, Need::Resume));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::InboundBudget;
    use super::super::connection::ConnectionId;
    use super::super::mailbox::Home;
    use super::*;
    use crate::remoting::codec::MAX_FRAME_LEN;
    use std::sync::Arc;
    use std::sync::atomic::AtomicI32;

    fn frame(len: usize, fill: u8) -> Vec<u8> {
        let mut frame = vec![fill; len];
        frame[..4].copy_from_slice(&(len as u32 - 4).to_be_bytes());
        frame
    }

    fn permit() -> Permit {
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let home = Arc::new(Home::new(waker, Arc::new(AtomicI32::new(0)), 1, None));
        InboundBudget::new(0).enter(&home, 0, ConnectionId(1))
    }

    /// Feeds `pieces` as reads; every `pause`-th frame asks for a pause (0: none does). Gives the frames handled.
    fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, pause: usize) -> (Vec<Vec<u8>>, Inbound) {
        let mut inbound = Inbound::new();
        let mut scratch = Scratch::new();
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for mut piece in pieces {
            while !piece.is_empty() {
                let mut handle = |frame: &[u8]| {
                    frames.push(frame.to_vec());
                    Ok(if pause > 0 && frames.len().is_multiple_of(pause) { Flow::Pause } else { Flow::Go })
                };
                let target = inbound.target(&mut scratch);
                let len = target.len().min(piece.len());
                target[..len].copy_from_slice(&piece[..len]);
                piece = &piece[len..];
                let mut need = inbound.read(&mut scratch, len, &mut handle).unwrap();
                while need != Need::Bytes {
                    match need {
                        Need::Memory => {
                            assert!(inbound.enlarge(permit));
                            need = Need::Bytes;
                        }
                        _ => need = inbound.resume(&mut handle).unwrap(),
                    }
                }
            }
        }
        (frames, inbound)
    }

    #[test]
    fn every_split_point_gives_the_same_frames() {
        let frames = [frame(8, 1), frame(9, 2), frame(300, 3), frame(8, 4), frame(77, 5)];
        let all = frames.concat();
        for pause in [0, 1, 2] {
            for first in 0..=all.len() {
                let (one, rest) = all.split_at(first);
                let (second, third) = rest.split_at(rest.len() / 2);
                let (handled, inbound) = feed([one, second, third], pause);
                assert_eq!(handled, frames, "split at {first}, pause {pause}");
                assert_eq!((inbound.pending.len(), inbound.handled), (0, 0));
            }
            let (handled, _) = feed(all.chunks(1), pause);
            assert_eq!(handled, frames, "byte by byte");
        }
    }

    #[test]
    fn large_frames_between_small_ones() {
        for large in [LARGE_FRAME, LARGE_FRAME + 1, 200_000, READ_LEN + 1, 3_000_000] {
            let frames = [frame(50, 1), frame(large, 2), frame(60, 3), frame(large, 4)];
            let all = frames.concat();
            for chunk in [1000, 65_536, READ_LEN, READ_LEN - 1] {
                for pause in [0, 1] {
                    let (handled, inbound) = feed(all.chunks(chunk), pause);
                    assert!(handled == frames, "large {large}, chunk {chunk}, pause {pause}");
                    assert_eq!(inbound.begun(), None);
                    assert!(inbound.pending.capacity() <= LARGE_FRAME + READ_LEN);
                }
            }
        }
    }

    #[test]
    fn keeps_nothing_between_frames() {
        let (_, mut inbound) = feed([frame(40, 1).as_slice(), &frame(50_000, 2)[..30_000]], 0);
        assert_eq!(inbound.pending.len(), 30_000);
        let mut scratch = Scratch::new();
        inbound.target(&mut scratch)[..20_000].fill(2);
        inbound.read(&mut scratch, 20_000, &mut |_| Ok(Flow::Go)).unwrap();
        inbound.trim();
        assert_eq!(inbound.pending.capacity(), 0);
    }

    #[test]
    fn a_large_frames_buffer_grows_with_what_has_come() {
        let frame = frame(MAX_FRAME_LEN, 7);
        let (_, mut inbound) = feed([&frame[..70_000]], 0);
        let mut scratch = Scratch::new();
        let mut come = 70_000;
        assert_eq!((inbound.begun(), inbound.begun_len()), (Some(MAX_FRAME_LEN), come));
        let mut handled = Vec::new();
        while come < MAX_FRAME_LEN {
            let buffer = inbound.large.as_ref().unwrap().frame.capacity();
            assert!(buffer <= FIRST_STEP.max(2 * come), "{buffer} bytes for {come}");
            let target = inbound.target(&mut scratch);
            let len = target.len().min(50_000);
            target[..len].copy_from_slice(&frame[come..come + len]);
            come += len;
            let mut keep = |frame: &[u8]| {
                handled = frame.to_vec();
                Ok(Flow::Go)
            };
            if inbound.read(&mut scratch, len, &mut keep).unwrap() == Need::Memory {
                assert!(inbound.enlarge(permit));
            }
        }
        assert!(handled == frame && inbound.begun().is_none());
    }

    #[test]
    fn bad_lengths_are_seen_with_their_four_bytes() {
        let cases: [(&[u8], DecodeError); 4] = [
            (&[0xff, 0xff, 0xff, 0xff], DecodeError::Length(-1)),
            (&[0, 0, 0, 3], DecodeError::Length(3)),
            (&[0, 0xff, 0xff, 0xfd], DecodeError::TooLong(16 * 1024 * 1024 + 1)),
            (b"abcd", DecodeError::TooLong(0x6162_6364 + 4)),
        ];
        for (bytes, error) in cases {
            for cut in 0..4 {
                let mut inbound = Inbound::new();
                let mut scratch = Scratch::new();
                let mut outcome = Ok(Need::Bytes);
                for piece in [&bytes[..cut], &bytes[cut..]] {
                    inbound.target(&mut scratch)[..piece.len()].copy_from_slice(piece);
                    outcome = inbound.read(&mut scratch, piece.len(), &mut |_| panic!("no frame"));
                }
                assert_eq!(outcome, Err(Trouble::Malformed(error.clone())), "{bytes:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn foreign_protocols_are_named_wherever_they_are_cut() {
        let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        for cut in 1..12 {
            let mut inbound = Inbound::new();
            let mut scratch = Scratch::new();
            inbound.target(&mut scratch)[..cut].copy_from_slice(&hello[..cut]);
            assert_eq!(inbound.read(&mut scratch, cut, &mut |_| panic!("no frame")), Ok(Need::Bytes));
            let rest = &hello[cut..];
            inbound.target(&mut scratch)[..rest.len()].copy_from_slice(rest);
            let outcome = inbound.read(&mut scratch, rest.len(), &mut |_| panic!("no frame"));
            assert_eq!(outcome, Err(Trouble::Foreign(Protocol::Http2)));
        }
    }
}
