//! Java's dialect of JSON (fastjson): integer and object keys, read leniently, written as Java writes it.

/// Any JSON value; objects keep their order and may have any value as a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// null.
    Null,
    /// true, false.
    Bool(bool),
    /// A number, as it was written.
    Number(String),
    /// A string, unescaped.
    Text(String),
    /// An array.
    Array(Vec<Value>),
    /// An object: keys are usually texts, in Java's output also numbers and objects. Of equal keys the last wins on look-up.
    Object(Vec<(Value, Value)>),
}

/// Nesting beyond which a text is refused.
pub const MAX_DEPTH: usize = 128;

/// Reads a text: standard JSON, and beyond it unquoted integer keys, object keys, unquoted names, single quotes, trailing commas,
/// white space anywhere.
///
/// # Errors
/// What was expected and at which byte.
pub fn parse(text: &[u8]) -> Result<Value, String> {
    let _ = text;
    todo!()
}

impl Value {
    /// Member of an object by its text key.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Object(members) => members.iter().rev().find(|(key, _)| matches!(key, Self::Text(text) if text == name)).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Text of a string, number or boolean.
    pub fn as_text(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Self::Text(text) | Self::Number(text) => Some(text.into()),
            Self::Bool(value) => Some(if *value { "true" } else { "false" }.into()),
            _ => None,
        }
    }

    /// An integer, also from its text.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(text) | Self::Text(text) => {
                text.trim().parse().ok().or_else(|| text.trim().parse::<f64>().ok().map(|number| number as i64))
            }
            _ => None,
        }
    }

    /// A truth value, also from its text or a number.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            Self::Text(text) => Some(text.eq_ignore_ascii_case("true") || text == "1"),
            Self::Number(text) => Some(text != "0"),
            _ => None,
        }
    }

    /// Elements of an array; none for anything else.
    pub fn elements(&self) -> &[Value] {
        match self {
            Self::Array(elements) => elements,
            _ => &[],
        }
    }

    /// Members of an object; none for anything else.
    pub fn members(&self) -> &[(Value, Value)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// As standard JSON (every key a string), for `serde_json`.
    pub fn to_standard(&self) -> serde_json::Value {
        todo!()
    }
}

/// Appends `text` as a quoted JSON string, non-ASCII as it is.
pub fn write_text(out: &mut String, text: &str) {
    let _ = (out, text);
    todo!()
}

/// Appends `text` as a quoted JSON string, non-ASCII as \uXXXX.
pub fn write_text_ascii(out: &mut String, text: &str) {
    let _ = (out, text);
    todo!()
}
