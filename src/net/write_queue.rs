//! Frames on their way out.
//!
//! A connection's frames form one stream: small pieces are copied one behind the other into one buffer, large slices (of the
//! mapped log) are only referred to, each with the place in that buffer where it belongs. Writers fill the [`Outbox`] under its
//! lock; the net thread takes what is there into its [`WriteQueue`] and writes without any lock.
//! - Bytes leave in the order of the frames, each once, however the system cuts the writes.
//! - A slice is let go as soon as its last byte has left.

use std::io::{self, IoSlice, Write};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::remoting::code::response;
use crate::remoting::codec::{self, Head};
use crate::remoting::command::{Body, FLAG_RESPONSE};
use crate::remoting::ext::CustomHeader;

/// Slices up to this length are copied: cheaper than an entry of their own in a vectored write.
const COPY_LEN: usize = 4096;
/// Slices that one system call takes.
const WRITE_SLICES: usize = 64;
/// A buffer that grew beyond this is not kept for the next frames.
const KEEP_LEN: usize = 256 << 10;

/// A run of frames.
#[derive(Default)]
pub(super) struct Frames {
    copied: Vec<u8>,
    /// (position in `copied` in front of which the slice belongs, slice), ascending.
    slices: Vec<(usize, Bytes)>,
}

impl Frames {
    /// Appends a frame; gives its length. A header that panics while it writes leaves no trace.
    pub(super) fn append(&mut self, head: &Head<'_>, header: &(impl CustomHeader + ?Sized), body: Body) -> usize {
        let start = self.copied.len();
        let mut guard = Unfinished { copied: &mut self.copied, start, finished: false };
        let body = encode(guard.copied, head, header, body);
        guard.finished = true;
        drop(guard);
        let (head_len, body_len) = (self.copied.len() - start, body.len());
        match body {
            Body::Empty => {}
            Body::Owned(bytes) if bytes.len() <= COPY_LEN => self.copied.extend_from_slice(&bytes),
            Body::Owned(bytes) => self.refer(bytes.into()),
            Body::Shared(slices) => slices.into_iter().for_each(|slice| self.refer(slice)),
        }
        head_len + body_len
    }

    /// Appends bytes as they are.
    pub(super) fn append_raw(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.copied.is_empty() && self.slices.is_empty()
    }

    fn refer(&mut self, slice: Bytes) {
        if slice.len() <= COPY_LEN {
            self.copied.extend_from_slice(&slice);
        } else {
            self.slices.push((self.copied.len(), slice));
        }
    }

    fn clear(&mut self) {
        self.copied.clear();
        self.slices.clear();
        if self.copied.capacity() > KEEP_LEN {
            self.copied = Vec::new();
        }
    }

    fn trim(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

/// Appends the head of a frame and gives the body that is to follow it. An answer that no peer could read, for it is longer than
/// [`codec::MAX_FRAME_LEN`], becomes one that says so.
pub(super) fn encode(out: &mut Vec<u8>, head: &Head<'_>, header: &(impl CustomHeader + ?Sized), body: Body) -> Body {
    let start = out.len();
    codec::encode_head(out, head, header, body.len());
    let len = out.len() - start + body.len();
    if len <= codec::MAX_FRAME_LEN || head.flag & FLAG_RESPONSE == 0 {
        return body;
    }
    out.truncate(start);
    let remark = format!("the answer has {len} bytes, a frame takes {}", codec::MAX_FRAME_LEN);
    codec::encode_head(out, &Head { code: response::SYSTEM_ERROR, remark: Some(&remark), ..*head }, &(), 0);
    Body::Empty
}

struct Unfinished<'a> {
    copied: &'a mut Vec<u8>,
    start: usize,
    finished: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.copied.truncate(self.start);
        }
    }
}

/// Where all threads leave a connection's frames.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) frames: Frames,
    /// The net thread knows that it has to come; nobody needs to tell it.
    pub(super) scheduled: bool,
    /// Takes nothing any more.
    pub(super) closed: bool,
}

impl Outbox {
    /// Lets go of buffers that are not in use.
    pub(super) fn trim(&mut self) {
        self.frames.trim();
    }
}

/// What is being written.
#[derive(Default)]
pub(super) struct WriteQueue {
    frames: Frames,
    copied_done: usize,
    slices_done: usize,
    /// Within the first slice that is not done.
    slice_done: usize,
}

impl WriteQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes the frames of an outbox in exchange for the buffers of those written before.
    pub(super) fn fill(&mut self, outbox: &mut Outbox) {
        debug_assert!(self.is_empty());
        std::mem::swap(&mut self.frames, &mut outbox.frames);
    }

    /// Writes once. Gives the bytes taken by the stream and whether all is written.
    ///
    /// # Errors
    /// The stream's, `WouldBlock` and `Interrupted` included.
    pub(super) fn write(&mut self, stream: &mut impl Write) -> io::Result<(usize, bool)> {
        let mut pieces: SmallVec<[IoSlice<'_>; WRITE_SLICES]> = SmallVec::new();
        self.pieces(&mut pieces);
        let written = match pieces.as_slice() {
            [] => return Ok((0, true)),
            [one] => stream.write(one)?,
            several => stream.write_vectored(several)?,
        };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        drop(pieces);
        self.advance(written);
        Ok((written, self.is_empty()))
    }

    /// Lets go of buffers that are not in use.
    pub(super) fn trim(&mut self) {
        self.frames.trim();
    }

    fn pieces<'a>(&'a self, out: &mut SmallVec<[IoSlice<'a>; WRITE_SLICES]>) {
        let mut at = self.copied_done;
        let mut skip = self.slice_done;
        for (place, slice) in &self.frames.slices[self.slices_done..] {
            if out.len() + 2 > WRITE_SLICES {
                return;
            }
            if at < *place {
                out.push(IoSlice::new(&self.frames.copied[at..*place]));
                at = *place;
            }
            out.push(IoSlice::new(&slice[skip..]));
            skip = 0;
        }
        if at < self.frames.copied.len() && out.len() < WRITE_SLICES {
            out.push(IoSlice::new(&self.frames.copied[at..]));
        }
    }

    fn advance(&mut self, mut written: usize) {
        while let Some((place, slice)) = self.frames.slices.get_mut(self.slices_done) {
            let copied = (*place - self.copied_done).min(written);
            self.copied_done += copied;
            written -= copied;
            let of_slice = (slice.len() - self.slice_done).min(written);
            self.slice_done += of_slice;
            written -= of_slice;
            if self.copied_done < *place || self.slice_done < slice.len() {
                debug_assert_eq!(written, 0);
                return;
            }
            *slice = Bytes::new();
            self.slices_done += 1;
            self.slice_done = 0;
        }
        self.copied_done += written;
        if self.copied_done == self.frames.copied.len() {
            self.frames.clear();
            (self.copied_done, self.slices_done) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::command::{Command, SerializeType};
    use crate::remoting::ext::HeaderWriter;

    /// Takes at most so many bytes a call, then refuses once.
    struct Dribble {
        taken: Vec<u8>,
        at_most: usize,
        refuse: bool,
    }

    impl Write for Dribble {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.refuse = !self.refuse;
            if self.refuse {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let len = bytes.len().min(self.at_most);
            self.taken.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            assert!(pieces.len() <= WRITE_SLICES);
            let some: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).take(self.at_most).collect();
            self.write(&some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn head(opaque: i32) -> Head<'static> {
        Head { code: 0, flag: FLAG_RESPONSE, opaque, remark: None, serialize_type: SerializeType::Json }
    }

    fn bodies() -> Vec<Body> {
        let slice = |fill: u8, len: usize| Bytes::from(vec![fill; len]);
        let mut bodies = vec![
            Body::Empty,
            Body::Owned(vec![1; 10]),
            Body::Owned(vec![2; 9000]),
            Body::Shared([slice(3, 5000), slice(4, 7), slice(5, 4097), slice(6, 4096)].into_iter().collect()),
            Body::Shared([slice(7, 0), slice(8, 20_000)].into_iter().collect()),
            Body::Empty,
        ];
        bodies.extend((0..100).map(|n| Body::Shared([slice(n, 4100)].into_iter().collect())));
        bodies
    }

    fn flat(body: &Body) -> Vec<u8> {
        match body {
            Body::Empty => Vec::new(),
            Body::Owned(bytes) => bytes.clone(),
            Body::Shared(slices) => slices.iter().flat_map(|slice| slice.to_vec()).collect(),
        }
    }

    #[test]
    fn bytes_leave_in_order_however_writes_are_cut() {
        for at_most in [13, 4095, 4096, 4100, 65_000, usize::MAX] {
            let mut outbox = Outbox::default();
            let mut expected = 0;
            for (opaque, body) in bodies().into_iter().enumerate() {
                expected += outbox.frames.append(&head(opaque as i32), &[("k", "v")], body);
            }
            let mut queue = WriteQueue::default();
            queue.fill(&mut outbox);
            assert!(outbox.frames.is_empty());
            let mut stream = Dribble { taken: Vec::new(), at_most, refuse: true };
            loop {
                match queue.write(&mut stream) {
                    Ok((_, true)) => break,
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            assert_eq!(stream.taken.len(), expected);
            let mut rest = stream.taken.as_slice();
            for (opaque, body) in bodies().into_iter().enumerate() {
                let len = codec::frame_len(rest).unwrap().unwrap();
                let command = Command::parse(&rest[..len]).unwrap();
                assert_eq!((command.opaque, command.body), (opaque as i32, flat(&body).as_slice()));
                rest = &rest[len..];
            }
            assert!(queue.is_empty() && rest.is_empty());
        }
    }

    #[test]
    fn an_answer_longer_than_a_frame_is_refused_with_the_numbers() {
        let mut outbox = Outbox::default();
        let fits = codec::MAX_FRAME_LEN - outbox.frames.append(&head(1), &(), Body::Empty);
        for (len, code) in [(fits, 0), (fits + 1, 1)] {
            let mut outbox = Outbox::default();
            let slices = [Bytes::from(vec![0; len - 5]), Bytes::from(vec![0; 5])];
            let appended = outbox.frames.append(&head(1), &(), Body::Shared(slices.into_iter().collect()));
            let mut queue = WriteQueue::default();
            queue.fill(&mut outbox);
            let mut bytes = Vec::new();
            while !queue.write(&mut bytes).unwrap().1 {}
            assert_eq!(bytes.len(), appended);
            let answer = Command::parse(&bytes).unwrap();
            assert_eq!((answer.code, answer.opaque), (code, 1));
            let text = "the answer has 16777217 bytes, a frame takes 16777216";
            assert_eq!(answer.remark.as_deref(), (code == 1).then_some(text));
        }
        let request = Head { flag: 0, ..head(1) };
        assert!(outbox.frames.append(&request, &(), Body::Owned(vec![0; fits + 1])) > codec::MAX_FRAME_LEN, "the peer decides");
    }

    #[test]
    fn large_slices_are_not_copied_and_let_go_when_sent() {
        let buffer = Bytes::from(vec![9; 100_000]);
        let mut outbox = Outbox::default();
        let slices = [buffer.slice(..50_000), buffer.slice(50_000..)];
        outbox.frames.append(&head(1), &(), Body::Shared(slices.into_iter().collect()));
        assert!(outbox.frames.copied.len() < 200);
        let mut queue = WriteQueue::default();
        queue.fill(&mut outbox);
        let head_len = queue.frames.slices[0].0;
        queue.advance(head_len + 50_000);
        assert!(queue.frames.slices[0].1.is_empty(), "the first slice has left");
        assert_eq!(queue.frames.slices[1].1.as_ptr(), buffer[50_000..].as_ptr());
        queue.advance(50_000);
        assert!(queue.is_empty());
        assert!(buffer.try_into_mut().is_ok(), "nobody holds the buffer any more");
    }

    #[test]
    fn a_panicking_header_leaves_no_trace() {
        struct Broken;
        impl CustomHeader for Broken {
            fn write(&self, out: &mut HeaderWriter<'_>) {
                out.text("half", "written");
                panic!("broken header");
            }
        }
        let mut outbox = Outbox::default();
        outbox.frames.append(&head(1), &(), Body::Empty);
        let before = outbox.frames.copied.clone();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| outbox.frames.append(&head(2), &Broken, Body::Empty)));
        assert!(panicked.is_err());
        assert_eq!(outbox.frames.copied, before);
    }
}
