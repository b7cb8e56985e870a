//! Frames split and joined; JSON and ROCKETMQ headers both ways.
//!
//! A JSON header is read by one pass over its bytes that borrows every text ([`scan`]). Whatever that pass does not expect
//! (nested unknown members, single quotes, fractions …) goes to the general reader, which is as lenient as Java's.

use std::borrow::Cow;

use super::code::response::SYSTEM_ERROR;
use super::command::{Command, FLAG_RESPONSE, Language, SerializeType, VERSION};
use super::ext::{CustomHeader, ExtFields, ExtText, HeaderWriter};
use super::fastjson::{self, Value};
use super::json_text::{self, quote};

/// Largest frame in bytes, its length word included (`com.rocketmq.remoting.frameMaxLength`).
pub const MAX_FRAME_LEN: usize = 16 * 1024 * 1024;
/// Bytes in front of the header: the length word and the header word.
pub const PREFIX_LEN: usize = 8;
/// Longest header in bytes that the header word can tell.
pub const MAX_HEADER_LEN: usize = (1 << 24) - 1;

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
    let Some(word) = bytes.first_chunk::<4>() else { return Ok(None) };
    let len = i32::from_be_bytes(*word);
    if len < 4 {
        return Err(DecodeError::Length(len));
    }
    let whole = len as u64 + 4;
    if whole > MAX_FRAME_LEN as u64 {
        return Err(DecodeError::TooLong(whole));
    }
    Ok(Some(whole as usize))
}

/// Reads one whole frame, length word included.
///
/// # Errors
/// [`DecodeError`].
pub fn decode(frame: &[u8]) -> Result<Command<'_>, DecodeError> {
    if frame_len(frame)? != Some(frame.len()) || frame.len() < PREFIX_LEN {
        return Err(DecodeError::HeaderLength(0, frame.len()));
    }
    let header_len = usize::from(frame[5]) << 16 | usize::from(frame[6]) << 8 | usize::from(frame[7]);
    let rest = &frame[PREFIX_LEN..];
    if header_len > rest.len() {
        return Err(DecodeError::HeaderLength(header_len, frame.len()));
    }
    let (header, body) = rest.split_at(header_len);
    let mut command = empty_command();
    match frame[4] {
        0 => decode_json(header, &mut command)?,
        1 => decode_binary(header, &mut command)?,
        other => return Err(DecodeError::SerializeType(other)),
    }
    command.body = body;
    command.frame = frame;
    Ok(command)
}

fn empty_command<'a>() -> Command<'a> {
    Command {
        code: 0,
        language: Language::OTHER,
        version: 0,
        opaque: 0,
        flag: 0,
        serialize_type: SerializeType::Json,
        remark: None,
        ext: ExtFields::default(),
        body: &[],
        frame: &[],
    }
}

// ---- JSON, read ----

fn decode_json<'a>(header: &'a [u8], command: &mut Command<'a>) -> Result<(), DecodeError> {
    let text = std::str::from_utf8(header).map_err(|error| DecodeError::Json(error.to_string()))?;
    if scan(text, command).is_none() {
        *command = general(header)?;
    }
    Ok(())
}

/// Reads a header of the shape that every client sends; `None` for any other, with the command half read.
fn scan<'a>(text: &'a str, command: &mut Command<'a>) -> Option<()> {
    let mut scanner = Scanner { text, at: 0 };
    let mut more = scanner.begin()?;
    while more {
        match scanner.name()? {
            "code" => command.code = scanner.int()?,
            "flag" => command.flag = scanner.int()?,
            "opaque" => command.opaque = scanner.int()?,
            "version" => command.version = scanner.int()?,
            "language" => {
                command.language = match scanner.scalar()? {
                    Some(ExtText::Plain(text)) => language(text),
                    _ => Language::OTHER,
                }
            }
            "remark" => command.remark = scanner.scalar()?.map(|text| text.to_cow()).filter(|text| !text.is_empty()),
            "extFields" => {
                if !scanner.null() {
                    scan_fields(&mut scanner, &mut command.ext)?;
                }
            }
            _ => {
                scanner.scalar()?;
            }
        }
        more = scanner.more()?;
    }
    scanner.blank();
    (scanner.at == text.len()).then_some(())
}

fn scan_fields<'a>(scanner: &mut Scanner<'a>, ext: &mut ExtFields<'a>) -> Option<()> {
    let mut more = scanner.begin()?;
    while more {
        let name = scanner.name()?;
        if let Some(value) = scanner.scalar()? {
            ext.push(ExtText::Plain(name), value);
        }
        more = scanner.more()?;
    }
    Some(())
}

/// A client's language, by name or by ordinal.
fn language(text: &str) -> Language {
    match text.parse::<u8>() {
        Ok(ordinal) => Language(ordinal),
        Err(_) => Language::from_name(text),
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    #[inline]
    fn eat(&mut self, byte: u8) -> Option<()> {
        self.blank();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Enters an object: whether it has members.
    #[inline]
    fn begin(&mut self) -> Option<bool> {
        self.eat(b'{')?;
        self.blank();
        let empty = self.peek()? == b'}';
        self.at += usize::from(empty);
        Some(!empty)
    }

    /// The name of a member, up to behind its colon.
    #[inline]
    fn name(&mut self) -> Option<&'a str> {
        self.blank();
        let (name, escaped) = self.string()?;
        self.eat(b':')?;
        (!escaped).then_some(name)
    }

    /// Whether another member follows; otherwise stands behind the object.
    #[inline]
    fn more(&mut self) -> Option<bool> {
        self.blank();
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Some(true),
            b'}' => Some(false),
            _ => None,
        }
    }

    #[inline]
    fn null(&mut self) -> bool {
        self.blank();
        let is_null = self.text[self.at..].starts_with("null");
        if is_null {
            self.at += 4;
        }
        is_null
    }

    /// A string, number or boolean; `Some(None)` for null; `None` for anything else.
    #[inline]
    fn scalar(&mut self) -> Option<Option<ExtText<'a>>> {
        self.blank();
        match self.peek()? {
            b'"' => {
                let (text, escaped) = self.string()?;
                Some(Some(if escaped { ExtText::Escaped(text) } else { ExtText::Plain(text) }))
            }
            b'-' | b'0'..=b'9' => Some(Some(ExtText::Plain(self.number()))),
            b'n' => self.null().then_some(None),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            _ => None,
        }
    }

    fn word(&mut self, word: &'static str) -> Option<Option<ExtText<'a>>> {
        self.text[self.at..].starts_with(word).then(|| {
            self.at += word.len();
            Some(ExtText::Plain(word))
        })
    }

    #[inline]
    fn number(&mut self) -> &'a str {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn int(&mut self) -> Option<i32> {
        match self.scalar()? {
            Some(ExtText::Plain(text)) => text.parse().ok(),
            _ => None,
        }
    }

    /// A string, still escaped, and whether it has escapes.
    #[inline]
    fn string(&mut self) -> Option<(&'a str, bool)> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at + 1;
        let (end, escaped) = json_text::end_of_string(self.text.as_bytes(), start)?;
        self.at = end + 1;
        Some((&self.text[start..end], escaped))
    }
}

/// The general reader: everything Java accepts.
fn general(header: &[u8]) -> Result<Command<'_>, DecodeError> {
    let value = fastjson::parse(header).map_err(DecodeError::Json)?;
    if !matches!(value, Value::Object(_)) {
        return Err(DecodeError::Json("the header is no object".to_owned()));
    }
    let int = |name: &str| value.get(name).and_then(Value::as_i64).map_or(0, |number| number as i32);
    let mut command = empty_command();
    command.code = int("code");
    command.flag = int("flag");
    command.opaque = int("opaque");
    command.version = int("version");
    command.language = value.get("language").and_then(Value::as_text).map_or(Language::OTHER, |text| language(&text));
    command.remark = value.get("remark").and_then(Value::as_text).filter(|text| !text.is_empty()).map(|text| Cow::Owned(text.into_owned()));
    for (name, field) in value.get("extFields").map_or(&[][..], Value::members) {
        if let (Some(name), Some(text)) = (name.as_text(), scalar_text(field)) {
            command.ext.push(ExtText::Owned(name.into_owned()), ExtText::Owned(text));
        }
    }
    Ok(command)
}

/// Text of a field: a nested value keeps its JSON form, as in a map of strings that fastjson fills.
fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Array(_) | Value::Object(_) => Some(value.to_standard().to_string()),
        other => other.as_text().map(Cow::into_owned),
    }
}

// ---- ROCKETMQ, read ----

fn decode_binary<'a>(header: &'a [u8], command: &mut Command<'a>) -> Result<(), DecodeError> {
    let mut reader = BinaryReader { bytes: header };
    command.serialize_type = SerializeType::Rocketmq;
    command.code = i32::from(i16::from_be_bytes(reader.array("code")?));
    command.language = Language(u8::from_be_bytes(reader.array("language")?));
    command.version = i32::from(i16::from_be_bytes(reader.array("version")?));
    command.opaque = i32::from_be_bytes(reader.array("opaque")?);
    command.flag = i32::from_be_bytes(reader.array("flag")?);
    let remark = reader.text32("remark")?;
    command.remark = (!remark.is_empty()).then_some(remark);
    let ext_len = i32::from_be_bytes(reader.array("ext length")?);
    let mut ext = BinaryReader { bytes: reader.take(ext_len, "ext fields")? };
    while !ext.bytes.is_empty() {
        let name_len = i32::from(i16::from_be_bytes(ext.array("field name length")?));
        let name = lossy(ext.take(name_len, "field name")?);
        let value = ext.text32("field value")?;
        if !value.is_empty() {
            command.ext.push(name.into(), value.into());
        }
    }
    if !command.is_response() {
        command.code = unwrap_code(command.code);
    }
    Ok(())
}

/// Codes above 32 767 do not fit the binary header's 16 bits; what arrives wrapped is meant unwrapped.
fn unwrap_code(code: i32) -> i32 {
    const FIRST_WRAPPED: i32 = super::code::request::POP_MESSAGE - 3 * 65_536; // 3442
    const LAST_WRAPPED: i32 = super::code::request::BATCH_ACK_MESSAGE - 3 * 65_536; // 3543
    if (FIRST_WRAPPED..=LAST_WRAPPED).contains(&code) { code + 3 * 65_536 } else { code }
}

struct BinaryReader<'a> {
    bytes: &'a [u8],
}

impl<'a> BinaryReader<'a> {
    fn take(&mut self, len: i32, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(len).map_err(|_| DecodeError::Binary(what))?;
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(DecodeError::Binary(what))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(DecodeError::Binary(what))?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn text32(&mut self, what: &'static str) -> Result<Cow<'a, str>, DecodeError> {
        let len = i32::from_be_bytes(self.array(what)?);
        self.take(len, what).map(lossy)
    }
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

impl<'a> From<Cow<'a, str>> for ExtText<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Self::Plain(text),
            Cow::Owned(text) => Self::Owned(text),
        }
    }
}

// ---- write ----

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

impl Head<'_> {
    /// Servers answer as JAVA, which every client's enumeration knows; our own requests say what we are.
    fn language(&self) -> Language {
        if self.flag & FLAG_RESPONSE != 0 { Language::JAVA } else { Language::RUST }
    }
}

/// Appends length word, header word and header of a frame whose body of `body_len` bytes follows. A header beyond
/// [`MAX_HEADER_LEN`], which would run into the serialize type, is replaced by one with code 1 and a text that says so.
pub fn encode_head(out: &mut Vec<u8>, head: &Head<'_>, header: &(impl CustomHeader + ?Sized), body_len: usize) {
    let start = out.len();
    encode_header(out, head, header);
    let mut header_len = out.len() - start - PREFIX_LEN;
    if header_len > MAX_HEADER_LEN {
        out.truncate(start);
        let remark = format!("the header has {header_len} bytes, a frame takes {MAX_HEADER_LEN}");
        encode_header(out, &Head { code: SYSTEM_ERROR, remark: Some(&remark), ..*head }, &());
        header_len = out.len() - start - PREFIX_LEN;
    }
    let total = header_len + 4 + body_len;
    out[start..start + 4].copy_from_slice(&(total as u32).to_be_bytes());
    let kind = u32::from(head.serialize_type == SerializeType::Rocketmq) << 24;
    out[start + 4..start + 8].copy_from_slice(&(kind | header_len as u32).to_be_bytes());
}

fn encode_header(out: &mut Vec<u8>, head: &Head<'_>, header: &(impl CustomHeader + ?Sized)) {
    out.extend_from_slice(&[0; PREFIX_LEN]);
    match head.serialize_type {
        SerializeType::Json => encode_json(out, head, header),
        SerializeType::Rocketmq => encode_binary(out, head, header),
    }
}

fn encode_json(out: &mut Vec<u8>, head: &Head<'_>, header: &(impl CustomHeader + ?Sized)) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"{\"code\":");
    out.extend_from_slice(digits.format(head.code).as_bytes());
    let mut writer = HeaderWriter { out, serialize_type: SerializeType::Json, count: 0 };
    header.write(&mut writer);
    if writer.count > 0 {
        out.push(b'}');
    }
    out.extend_from_slice(b",\"flag\":");
    out.extend_from_slice(digits.format(head.flag).as_bytes());
    out.extend_from_slice(b",\"language\":\"");
    out.extend_from_slice(head.language().name().as_bytes());
    out.extend_from_slice(b"\",\"opaque\":");
    out.extend_from_slice(digits.format(head.opaque).as_bytes());
    if let Some(remark) = head.remark {
        out.extend_from_slice(b",\"remark\":");
        quote(out, remark);
    }
    out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    out.extend_from_slice(digits.format(VERSION).as_bytes());
    out.push(b'}');
}

fn encode_binary(out: &mut Vec<u8>, head: &Head<'_>, header: &(impl CustomHeader + ?Sized)) {
    out.extend_from_slice(&(head.code as i16).to_be_bytes());
    out.push(head.language().0);
    out.extend_from_slice(&(VERSION as i16).to_be_bytes());
    out.extend_from_slice(&head.opaque.to_be_bytes());
    out.extend_from_slice(&head.flag.to_be_bytes());
    let remark = head.remark.unwrap_or("");
    out.extend_from_slice(&(remark.len() as u32).to_be_bytes());
    out.extend_from_slice(remark.as_bytes());
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    header.write(&mut HeaderWriter { out, serialize_type: SerializeType::Rocketmq, count: 0 });
    let ext_len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&ext_len.to_be_bytes());
}

/// Writes one field in the frame's encoding.
pub(super) fn write_field(writer: &mut HeaderWriter<'_>, name: &str, value: &str) {
    match writer.serialize_type {
        SerializeType::Json => {
            begin_json_field(writer);
            quote(writer.out, name);
            writer.out.push(b':');
            quote(writer.out, value);
        }
        SerializeType::Rocketmq => write_binary_field(writer.out, name, value),
    }
    writer.count += 1;
}

/// Writes one field whose name and value need no escapes in JSON.
pub(super) fn write_plain_field(writer: &mut HeaderWriter<'_>, name: &str, value: &str) {
    match writer.serialize_type {
        SerializeType::Json => {
            begin_json_field(writer);
            for piece in ["\"", name, "\":\"", value, "\""] {
                writer.out.extend_from_slice(piece.as_bytes());
            }
        }
        SerializeType::Rocketmq => write_binary_field(writer.out, name, value),
    }
    writer.count += 1;
}

fn begin_json_field(writer: &mut HeaderWriter<'_>) {
    writer.out.extend_from_slice(if writer.count == 0 { b",\"extFields\":{" } else { b"," });
}

fn write_binary_field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(&(name.len() as i16).to_be_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&(value.len() as i32).to_be_bytes());
    out.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests;
