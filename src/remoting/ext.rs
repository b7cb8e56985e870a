//! Fields of a header (`extFields`): read without a map, written in both encodings.

use std::borrow::Cow;

use smallvec::SmallVec;

/// Text of a name or a value as it lies in the frame.
#[derive(Clone, Debug)]
pub enum ExtText<'a> {
    /// As it is (no escapes; numbers and booleans in their JSON form).
    Plain(&'a str),
    /// JSON text with escapes, without the quotes; known to be well formed.
    Escaped(&'a str),
    /// Unescaped by the general reader.
    Owned(String),
}

impl<'a> ExtText<'a> {
    /// The text, unescaped; allocates only for [`ExtText::Escaped`].
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Plain(text) => Cow::Borrowed(text),
            Self::Escaped(raw) => {
                let mut out = String::with_capacity(raw.len());
                super::json_text::unescape_into(raw, &mut out);
                Cow::Owned(out)
            }
            Self::Owned(text) => Cow::Borrowed(text),
        }
    }

    /// The text for as long as the frame lives; allocates unless it is plain.
    pub fn to_cow(&self) -> Cow<'a, str> {
        match self {
            Self::Plain(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.text().into_owned()),
        }
    }

    /// The text when it lies plainly in the frame.
    pub fn as_plain(&self) -> Option<&'a str> {
        match self {
            Self::Plain(text) => Some(text),
            _ => None,
        }
    }

    /// The text that the general reader unescaped.
    pub fn as_owned(&self) -> Option<&str> {
        match self {
            Self::Owned(text) => Some(text),
            _ => None,
        }
    }

    /// Appends the text, unescaped, without another allocation.
    pub fn append_to(&self, out: &mut String) {
        match self {
            Self::Plain(text) => out.push_str(text),
            Self::Escaped(raw) => super::json_text::unescape_into(raw, out),
            Self::Owned(text) => out.push_str(text),
        }
    }
}

/// All fields of one header, in the order they came.
#[derive(Clone, Debug, Default)]
pub struct ExtFields<'a> {
    fields: SmallVec<[(ExtText<'a>, ExtText<'a>); 20]>,
}

/// A field that is needed and missing, or does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// Not there.
    Missing(&'static str),
    /// There, but not of its type: name, what was there, what was expected.
    Malformed(&'static str, String, &'static str),
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "the custom field <{name}> is null"),
            Self::Malformed(name, value, expected) => {
                write!(f, "the custom field <{name}> is {:?}, expected {expected}", shorten(value, MAX_ECHO_LEN))
            }
        }
    }
}

impl std::error::Error for FieldError {}

/// Bytes of a peer's text that an error repeats.
const MAX_ECHO_LEN: usize = 100;

/// A text as it may be repeated: beyond `max` bytes it is cut (between two characters), and its length is told.
pub fn shorten(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let start = &text[..text.floor_char_boundary(max)];
    Cow::Owned(format!("{start}… ({} bytes)", text.len()))
}

impl<'a> ExtFields<'a> {
    /// Adds a field (decoders, tests).
    pub fn push(&mut self, name: ExtText<'a>, value: ExtText<'a>) {
        self.fields.push((name, value));
    }

    /// The fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&ExtText<'a>, &ExtText<'a>)> {
        self.fields.iter().map(|(name, value)| (name, value))
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Value of a field; the last of equal names wins, as in a map.
    pub fn get(&self, name: &str) -> Option<&ExtText<'a>> {
        self.fields
            .iter()
            .rev()
            .find(|(key, _)| matches!(key, ExtText::Plain(text) if *text == name) || key.text() == name)
            .map(|(_, value)| value)
    }

    /// Text of a field.
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name).map(ExtText::text)
    }

    /// Text of a needed field.
    ///
    /// # Errors
    /// [`FieldError::Missing`].
    pub fn need_text(&self, name: &'static str) -> Result<Cow<'_, str>, FieldError> {
        self.text(name).ok_or(FieldError::Missing(name))
    }

    /// A 32-bit number.
    ///
    /// # Errors
    /// [`FieldError::Malformed`] when it is there and no such number.
    pub fn i32(&self, name: &'static str) -> Result<Option<i32>, FieldError> {
        self.number(name, "a 32-bit integer")
    }

    /// A 64-bit number.
    ///
    /// # Errors
    /// [`FieldError::Malformed`] when it is there and no such number.
    pub fn i64(&self, name: &'static str) -> Result<Option<i64>, FieldError> {
        self.number(name, "a 64-bit integer")
    }

    /// A needed 32-bit number.
    ///
    /// # Errors
    /// [`FieldError`].
    pub fn need_i32(&self, name: &'static str) -> Result<i32, FieldError> {
        self.i32(name)?.ok_or(FieldError::Missing(name))
    }

    /// A needed 64-bit number.
    ///
    /// # Errors
    /// [`FieldError`].
    pub fn need_i64(&self, name: &'static str) -> Result<i64, FieldError> {
        self.i64(name)?.ok_or(FieldError::Missing(name))
    }

    /// A truth value: "true" in any case and "1" are true (the C++ client sends "1"), anything else is false.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.text(name).map(|text| text.eq_ignore_ascii_case("true") || text == "1")
    }

    fn number<T: std::str::FromStr>(&self, name: &'static str, expected: &'static str) -> Result<Option<T>, FieldError> {
        match self.text(name) {
            None => Ok(None),
            Some(text) => text.trim().parse().map(Some).map_err(|_| FieldError::Malformed(name, text.into_owned(), expected)),
        }
    }
}

/// The number in the text of field `name`.
///
/// # Errors
/// [`FieldError::Malformed`].
pub(super) fn integer<T: std::str::FromStr>(name: &'static str, value: &ExtText<'_>) -> Result<T, FieldError> {
    if let Some(number) = value.as_plain().and_then(|text| text.parse().ok()) {
        return Ok(number);
    }
    let text = value.text();
    let expected = if size_of::<T>() == size_of::<i32>() { "a 32-bit integer" } else { "a 64-bit integer" };
    text.trim().parse().map_err(|_| FieldError::Malformed(name, text.into_owned(), expected))
}

/// A header that writes itself as fields.
pub trait CustomHeader {
    /// Writes every field that is present.
    fn write(&self, out: &mut HeaderWriter<'_>);
}

/// No fields.
impl CustomHeader for () {
    fn write(&self, _out: &mut HeaderWriter<'_>) {}
}

/// Free fields.
impl CustomHeader for [(&str, &str)] {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        for (name, value) in self {
            out.text(name, value);
        }
    }
}

/// Free fields.
impl<const N: usize> CustomHeader for [(&str, &str); N] {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        self.as_slice().write(out);
    }
}

/// Free fields.
impl CustomHeader for Vec<(String, String)> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        for (name, value) in self {
            out.text(name, value);
        }
    }
}

/// Writes fields into a frame, straight into its buffer; values are JSON strings or binary texts as the frame needs.
pub struct HeaderWriter<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) serialize_type: super::command::SerializeType,
    pub(super) count: usize,
}

impl HeaderWriter<'_> {
    /// Writes a text field.
    pub fn text(&mut self, name: &str, value: &str) {
        super::codec::write_field(self, name, value);
    }

    /// Writes a number.
    pub fn int(&mut self, name: &str, value: i64) {
        super::codec::write_plain_field(self, name, itoa::Buffer::new().format(value));
    }

    /// Writes a truth value.
    pub fn bool(&mut self, name: &str, value: bool) {
        super::codec::write_plain_field(self, name, if value { "true" } else { "false" });
    }

    /// Writes a text field that may be absent.
    pub fn option_text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_repeated_cut() {
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten("abcdef", 5), "abcde… (6 bytes)");
        assert_eq!(shorten("grün", 3), "gr… (5 bytes)", "not inside a character");
        let long = "\"".repeat(4 << 20);
        let mut fields = ExtFields::default();
        fields.push(ExtText::Plain("queueId"), ExtText::Plain(&long));
        let text = fields.need_i32("queueId").unwrap_err().to_string();
        assert!(text.len() < 400 && text.contains("(4194304 bytes)") && text.contains("expected a 32-bit integer"), "{text}");
        let whole = FieldError::Malformed("x", long.clone(), "a number").to_string();
        assert!(whole.len() < 400, "{} bytes", whole.len());
    }
}
