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
    let text = std::str::from_utf8(text).map_err(|error| format!("not UTF-8: {error}"))?;
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.blank();
    if reader.at < text.len() {
        return Err(reader.unexpected("the end"));
    }
    Ok(value)
}

/// Reads a text that has to be an object; `what` names it in errors.
///
/// # Errors
/// What was expected and at which byte, or what there is instead of an object.
pub fn parse_object(text: &[u8], what: &str) -> Result<Value, String> {
    let value = parse(text).map_err(|why| format!("the body {what} cannot be read: {why}"))?;
    let kind = match value {
        Value::Object(_) => return Ok(value),
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::Text(_) => "a string",
        Value::Array(_) => "an array",
    };
    Err(format!("the body {what} is {kind}, expected an object"))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn unexpected(&self, wanted: &str) -> String {
        match self.text[self.at..].chars().next() {
            Some(found) => format!("expected {wanted} at byte {}, found {found:?}", self.at),
            None => format!("expected {wanted} at byte {}, found the end", self.at),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} at byte {}", self.at));
        }
        self.blank();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(quote @ (b'"' | b'\'')) => self.string(quote).map(Value::Text),
            Some(b'-' | b'+' | b'.' | b'0'..=b'9') => self.number(),
            Some(byte) if is_word(byte) => {
                let word = self.word();
                match word.as_str() {
                    "null" | "undefined" | "NaN" => Ok(Value::Null),
                    "true" => Ok(Value::Bool(true)),
                    "false" => Ok(Value::Bool(false)),
                    _ => {
                        self.at -= word.len();
                        Err(self.unexpected("a value"))
                    }
                }
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut members = Vec::new();
        loop {
            self.blank();
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(members));
                }
                Some(b',') => {
                    self.at += 1;
                    continue;
                }
                _ => {}
            }
            let key = match self.peek() {
                Some(byte) if is_word(byte) && !byte.is_ascii_digit() => Value::Text(self.word()),
                _ => self.value(depth + 1)?,
            };
            self.blank();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("':'"));
            }
            self.at += 1;
            let value = self.value(depth + 1)?;
            members.push((key, value));
            self.blank();
            if !matches!(self.peek(), Some(b',' | b'}')) {
                return Err(self.unexpected("',' or '}'"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut elements = Vec::new();
        loop {
            self.blank();
            match self.peek() {
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(elements));
                }
                Some(b',') => {
                    self.at += 1;
                    continue;
                }
                _ => {}
            }
            elements.push(self.value(depth + 1)?);
            self.blank();
            if !matches!(self.peek(), Some(b',' | b']')) {
                return Err(self.unexpected("',' or ']'"));
            }
        }
    }

    fn word(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(is_word) {
            self.at += 1;
        }
        self.text[start..self.at].to_owned()
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        if matches!(self.peek(), Some(b'L' | b'S' | b'B' | b'F' | b'D')) {
            self.at += 1; // Java's type suffixes, which fastjson writes when asked to
        }
        if text.parse::<f64>().is_err() {
            self.at = start;
            return Err(self.unexpected("a number"));
        }
        Ok(Value::Number(text.to_owned()))
    }

    fn string(&mut self, quote: u8) -> Result<String, String> {
        let start = self.at;
        self.at += 1;
        let bytes = self.text.as_bytes();
        let mut out = String::new();
        loop {
            let Some(distance) = memchr::memchr2(quote, b'\\', &bytes[self.at..]) else {
                self.at = start;
                return Err(format!("the string at byte {start} does not end"));
            };
            out.push_str(&self.text[self.at..self.at + distance]);
            self.at += distance;
            if bytes[self.at] == quote {
                self.at += 1;
                return Ok(out);
            }
            self.escape(&mut out)?;
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), String> {
        let rest = &self.text[self.at..];
        let Some(kind) = rest[1..].chars().next() else { return Err(self.unexpected("an escape")) };
        let len = match kind {
            'u' if rest.as_bytes().get(2..6).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) => {
                let pair = rest.as_bytes().get(6..12).is_some_and(|next| {
                    next.starts_with(b"\\u") && next[2..].iter().all(u8::is_ascii_hexdigit) && is_high_surrogate(&rest[2..6])
                });
                if pair { 12 } else { 6 }
            }
            'u' => return Err(self.unexpected("four hexadecimal digits")),
            other => 1 + other.len_utf8(),
        };
        super::json_text::unescape_into(&rest[..len], out);
        self.at += len;
        Ok(())
    }
}

fn is_high_surrogate(digits: &str) -> bool {
    u16::from_str_radix(digits, 16).is_ok_and(|unit| (0xd800..0xdc00).contains(&unit))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.') || byte >= 0x80
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
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Number(text) => standard_number(text),
            Self::Text(text) => text.clone().into(),
            Self::Array(elements) => elements.iter().map(Self::to_standard).collect(),
            Self::Object(members) => {
                serde_json::Value::Object(members.iter().map(|(key, value)| (key.key_text(), value.to_standard())).collect())
            }
        }
    }

    /// The key as a text: of an object or array its JSON form.
    fn key_text(&self) -> String {
        match self.as_text() {
            Some(text) => text.into_owned(),
            None => self.to_standard().to_string(),
        }
    }
}

fn standard_number(text: &str) -> serde_json::Value {
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    text.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map_or(serde_json::Value::Null, serde_json::Value::Number)
}

/// Reads a body into a type, by way of standard JSON.
///
/// # Errors
/// What is wrong, and where.
pub fn from_slice<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_value(parse(text)?.to_standard()).map_err(|error| error.to_string())
}

/// Appends `text` as a quoted JSON string, non-ASCII as it is.
pub fn write_text(out: &mut String, text: &str) {
    write_quoted(out, text, false);
}

/// Appends `text` as a quoted JSON string, non-ASCII as \uXXXX.
pub fn write_text_ascii(out: &mut String, text: &str) {
    write_quoted(out, text, true);
}

fn write_quoted(out: &mut String, text: &str, ascii: bool) {
    use std::fmt::Write as _;
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            character if (character as u32) < 0x20 || (ascii && !character.is_ascii()) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a String does not fail.
                    let _ = write!(out, "\\u{unit:04X}");
                }
            }
            character => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_javas_dialect() {
        let text = br#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":9,},{"brokerName":"b","queueId":1,"topic":"T"}:5},addrs:{0:"10.0.0.1:1",1:'x'},"n":1.5,"b":TRUE_IS_NOT_A_VALUE}"#;
        assert!(parse(text).unwrap_err().contains("a value"));
        let text = br#" {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":9,},{"queueId":1}:5},addrs:{0:"10.0.0.1:1",1:'x'},"n":1.5,"z":007,"t":"\u0001\ud83d\ude00\/"} "#;
        let value = parse(text).unwrap();
        let table = value.get("offsetTable").unwrap().members();
        assert_eq!(table[0].0.get("topic").unwrap().as_text().unwrap(), "T");
        assert_eq!(table[0].1.get("maxOffset").unwrap().as_i64(), Some(9));
        assert_eq!(table[1].1.as_i64(), Some(5));
        let addrs = value.get("addrs").unwrap().members();
        assert_eq!(addrs[0].0.as_i64(), Some(0));
        assert_eq!(addrs[1].1.as_text().unwrap(), "x");
        assert_eq!(value.get("n").unwrap().as_i64(), Some(1));
        assert_eq!(value.get("z").unwrap().as_i64(), Some(7));
        assert_eq!(value.get("t").unwrap().as_text().unwrap(), "\u{1}😀/");
        let standard = value.to_standard();
        assert_eq!(standard["addrs"]["0"], "10.0.0.1:1");
        assert_eq!(standard["z"], 7);
    }

    #[test]
    fn the_last_of_equal_keys_wins() {
        assert_eq!(parse(br#"{"a":1,"a":2}"#).unwrap().get("a").unwrap().as_i64(), Some(2));
    }

    #[test]
    fn garbage_is_an_error_and_depth_is_bounded() {
        for bad in ["", "{", "[1", "{\"a\"}", "{\"a\":}", "\"x", "\"\\", "\"\\u12\"", "1 2", "-", "1e", "{\"a\":1]", "\u{1}"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(&[0xff, 0xfe]).is_err());
        assert!(parse("[".repeat(1_000_000).as_bytes()).unwrap_err().contains("128"));
        assert!(parse("{".repeat(1_000_000).as_bytes()).is_err());
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..rng.usize(..30)).map(|_| b"{}[]\"'\\u0:,1-.eltfna \xc3"[rng.usize(..22)]).collect();
            let _ = parse(&text);
        }
    }

    #[test]
    fn texts_are_quoted() {
        let mut out = String::new();
        write_text(&mut out, "a\"\\\u{1}\nü");
        assert_eq!(out, "\"a\\\"\\\\\\u0001\\nü\"");
        out.clear();
        write_text_ascii(&mut out, "ü😀/");
        assert_eq!(out, "\"\\u00FC\\uD83D\\uDE00/\"");
    }
}
