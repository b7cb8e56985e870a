//! Bytes that came in, split into frames in place.
//!
//! All connections of a thread read into one [`Scratch`] buffer and keep only what is not a whole frame yet; an idle connection
//! keeps nothing. A frame that is longer than [`LARGE_FRAME`] and did not come at once gets a buffer of its own when the
//! process can spare the memory.
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
    /// [`Inbound::grant`] of so many bytes.
    Permit(usize),
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
    frame: Vec<u8>,
    filled: usize,
    _permit: Permit,
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

    /// The memory for a large frame is there.
    pub(super) fn grant(&mut self, len: usize, permit: Permit) {
        let begun = &self.pending[self.handled..];
        let mut frame = vec![0; len];
        frame[..begun.len()].copy_from_slice(begun);
        self.large = Some(Large { frame, filled: begun.len(), _permit: permit });
        self.handled = 0;
        self.pending = Vec::new();
    }

    /// Whether a large frame is under way.
    pub(super) fn is_large(&self) -> bool {
        self.large.is_some()
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
        if large.filled < large.frame.len() {
            return Ok(Need::Bytes);
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
            return Ok((at, if len > LARGE_FRAME { Need::Permit(len) } else { Need::Bytes }));
        };
        at += len;
        if handle(frame)? == Flow::Pause {
            return Ok((at, Need::Resume));
        }
    }
}
