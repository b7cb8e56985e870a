//! Frames split and joined; JSON and ROCKETMQ headers both ways.

use super::command::{Command, SerializeType};
use super::ext::{CustomHeader, HeaderWriter};

/// Largest frame in bytes, its length word included (`com.rocketmq.remoting.frameMaxLength`).
pub const MAX_FRAME_LEN: usize = 16 * 1024 * 1024;

/// Why a frame cannot be read. The connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Longer than [`MAX_FRAME_LEN`]: the length it claims.
    TooLong(u64),
    /// A length word below 4 or negative.
    Length(i32),
    /// Header length beyond the frame: (header, frame).
    HeaderLength(usize, usize),
    /// Neither JSON nor ROCKETMQ.
    SerializeType(u8),
    /// JSON that does not parse: what and where.
    Json(String),
    /// A binary header whose lengths run past its end.
    Binary(&'static str),
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong(len) => write!(f, "frame of {len} bytes exceeds the limit of {MAX_FRAME_LEN}"),
            Self::Length(len) => write!(f, "frame length {len} is impossible"),
            Self::HeaderLength(header, frame) => write!(f, "header of {header} bytes in a frame of {frame}"),
            Self::SerializeType(kind) => write!(f, "unknown serialize type {kind}"),
            Self::Json(what) => write!(f, "header is no JSON object: {what}"),
            Self::Binary(what) => write!(f, "binary header is cut short in its {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Length of the first frame of `bytes` (length word included), once its length word is there.
///
/// # Errors
/// [`DecodeError::TooLong`] and [`DecodeError::Length`] as soon as the four bytes are there.
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let _ = bytes;
    todo!()
}

/// Reads one whole frame, length word included.
///
/// # Errors
/// [`DecodeError`].
pub fn decode(frame: &[u8]) -> Result<Command<'_>, DecodeError> {
    let _ = frame;
    todo!()
}

/// What stands in a frame's head besides its fields.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Code.
    pub code: i32,
    /// Flag bits.
    pub flag: i32,
    /// Opaque.
    pub opaque: i32,
    /// Remark, absent when `None`.
    pub remark: Option<&'a str>,
    /// Encoding.
    pub serialize_type: SerializeType,
}

/// Appends length word, header word and header of a frame whose body of `body_len` bytes follows.
pub fn encode_head(out: &mut Vec<u8>, head: &Head<'_>, header: &(impl CustomHeader + ?Sized), body_len: usize) {
    let _ = (out, head, header, body_len);
    todo!()
}

/// Appends the unescaped form of well-formed JSON string content.
pub(super) fn unescape_into(raw: &str, out: &mut String) {
    let _ = (raw, out);
    todo!()
}

/// Writes one field in the frame's encoding.
pub(super) fn write_field(writer: &mut HeaderWriter<'_>, name: &str, value: &str) {
    let _ = (writer, name, value);
    todo!()
}
