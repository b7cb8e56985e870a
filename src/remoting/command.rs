//! What a frame says.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;

use super::codec::{self, DecodeError};
use super::ext::ExtFields;

/// Version that our answers carry: the ordinal of 5.5.0 (`MQVersion`), at least 232 so that clients use SQL92.
pub const VERSION: i32 = 513;
/// Flag bit: the frame is a response.
pub const FLAG_RESPONSE: i32 = 1;
/// Flag bit: nobody waits for a response.
pub const FLAG_ONEWAY: i32 = 2;

/// How a header is encoded; the top byte of the frame's second word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SerializeType {
    /// Type 0.
    #[default]
    Json,
    /// Type 1, binary.
    Rocketmq,
}

/// Language of a sender: the ordinal of `LanguageCode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language(pub u8);

#[allow(missing_docs, reason = "names of the protocol")]
impl Language {
    pub const JAVA: Self = Self(0);
    pub const CPP: Self = Self(1);
    pub const DOTNET: Self = Self(2);
    pub const PYTHON: Self = Self(3);
    pub const OTHER: Self = Self(7);
    pub const GO: Self = Self(9);
    pub const RUST: Self = Self(12);
    pub const NODE_JS: Self = Self(13);

    const NAMES: [&'static str; 14] =
        ["JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS"];

    /// Name of the protocol; OTHER for an unknown ordinal.
    pub fn name(self) -> &'static str {
        Self::NAMES.get(usize::from(self.0)).copied().unwrap_or("OTHER")
    }

    /// Language of a name; OTHER for an unknown one.
    pub fn from_name(name: &str) -> Self {
        Self::NAMES.iter().position(|known| *known == name).map_or(Self::OTHER, |ordinal| Self(ordinal as u8))
    }
}

/// A frame in place: everything is borrowed from the buffer it lies in.
#[derive(Clone, Debug)]
pub struct Command<'a> {
    /// Request code, or response code when [`Command::is_response`].
    pub code: i32,
    /// Language of the sender.
    pub language: Language,
    /// Version ordinal of the sender.
    pub version: i32,
    /// Id of the request, unique to its sender's connection.
    pub opaque: i32,
    /// [`FLAG_RESPONSE`], [`FLAG_ONEWAY`].
    pub flag: i32,
    /// Encoding of the header.
    pub serialize_type: SerializeType,
    /// Text of an error.
    pub remark: Option<Cow<'a, str>>,
    /// Custom header and free fields.
    pub ext: ExtFields<'a>,
    /// Body.
    pub body: &'a [u8],
    /// The whole frame, for a request that is handed to another thread.
    pub frame: &'a [u8],
}

impl<'a> Command<'a> {
    /// Reads one whole frame (with its length word).
    ///
    /// # Errors
    /// [`DecodeError`]; the connection must be closed.
    pub fn parse(frame: &'a [u8]) -> Result<Self, DecodeError> {
        codec::decode(frame)
    }

    /// Whether the frame answers a request.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether nobody waits for a response.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }
}

/// A frame with its own buffer, for what outlives a connection's buffer: the work pool, answers to our requests.
#[derive(Clone, Debug)]
pub struct OwnedCommand {
    frame: Box<[u8]>,
}

impl OwnedCommand {
    /// Keeps a frame that decodes.
    ///
    /// # Errors
    /// [`DecodeError`] when it does not.
    pub fn new(frame: impl Into<Box<[u8]>>) -> Result<Self, DecodeError> {
        let frame = frame.into();
        codec::decode(&frame)?;
        Ok(Self { frame })
    }

    /// The frame's content.
    pub fn view(&self) -> Command<'_> {
        codec::decode(&self.frame).expect("decoded once in `new`; the bytes are private and do not change")
    }
}

/// Body of an outgoing frame.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// None.
    #[default]
    Empty,
    /// One buffer.
    Owned(Vec<u8>),
    /// Slices (of the mapped log) that leave one after the other without being copied.
    Shared(SmallVec<[Bytes; 2]>),
}

impl Body {
    /// Total bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Owned(bytes) => bytes.len(),
            Self::Shared(slices) => slices.iter().map(Bytes::len).sum(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Owned(text.into_bytes())
    }
}
