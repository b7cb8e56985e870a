//! Configuration as it was given: text, and where it came from. What it means is `resolve`'s business.
//!
//! Files are Java properties (escapes, continuation lines, `:` or `=` or a blank as separator, the last of two equal keys wins), read as
//! UTF-8 when they are valid UTF-8, else as ISO-8859-1. Values are trimmed at both ends: Java keeps blanks at a line's end, and silently
//! falls back to the default because of them.

use std::fmt;
use std::path::{Path, PathBuf};

use java_properties::{LineContent, PropertiesIter};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file and the line of the key.
    File(PathBuf, usize),
    /// `--set`.
    Set,
    /// Another option of the command line.
    Option(&'static str),
    /// A variable of the environment.
    Environment(&'static str),
    /// A body of an update request.
    Request,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Set => f.write_str("--set"),
            Self::Option(name) | Self::Environment(name) => f.write_str(name),
            Self::Request => f.write_str("update request"),
        }
    }
}

/// One key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Key.
    pub key: String,
    /// Value, trimmed.
    pub value: String,
    /// Where from.
    pub source: Source,
}

/// Everything given, in the order it was given: files first, then `--set`, then other options.
#[derive(Clone, Debug, Default)]
pub struct RawConfig {
    given: Vec<Given>,
}

impl RawConfig {
    /// Nothing given.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file.
    ///
    /// # Errors
    /// One line: the file is missing, unreadable, or not in the format (with its line).
    pub fn read_file(&mut self, path: &Path) -> Result<(), String> {
        let bytes = std::fs::read(path).map_err(|error| format!("cannot read configuration file {}: {error}", path.display()))?;
        self.read_bytes(&bytes, |line| Source::File(path.to_owned(), line)).map_err(|(line, why)| match line {
            Some(line) => format!("{}:{line}: {why}", path.display()),
            None => format!("{}: {why}", path.display()),
        })
    }

    /// Adds the text of an update request (318, 25).
    ///
    /// # Errors
    /// What is not in the format.
    pub fn read_request(&mut self, body: &[u8]) -> Result<(), String> {
        self.read_bytes(body, |_| Source::Request).map_err(|(line, why)| match line {
            Some(line) => format!("line {line}: {why}"),
            None => why,
        })
    }

    /// Adds one `KEY=VALUE` of `--set`.
    ///
    /// # Errors
    /// There is no `=`, or no key before it.
    pub fn set(&mut self, assignment: &str) -> Result<(), String> {
        match assignment.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                self.put(key.trim(), value, Source::Set);
                Ok(())
            }
            _ => Err(format!("--set {assignment}: expected KEY=VALUE")),
        }
    }

    /// Adds one value.
    pub fn put(&mut self, key: &str, value: &str, source: Source) {
        self.given.push(Given { key: key.to_owned(), value: value.trim().to_owned(), source });
    }

    /// What was given for a key; the last one wins.
    pub fn get(&self, key: &str) -> Option<&Given> {
        self.given.iter().rev().find(|given| given.key == key)
    }

    /// Every key once, with the value that wins, in the order of first mention.
    pub fn winners(&self) -> impl Iterator<Item = &Given> {
        self.given
            .iter()
            .enumerate()
            .filter(|(at, given)| !self.given[..*at].iter().any(|before| before.key == given.key))
            .filter_map(|(_, given)| self.get(&given.key))
    }

    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    fn read_bytes(&mut self, bytes: &[u8], source: impl Fn(usize) -> Source) -> Result<(), (Option<usize>, String)> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        for line in PropertiesIter::new_with_encoding(text.as_bytes(), encoding_rs::UTF_8) {
            let line = line.map_err(|error| (error.line_number(), error.to_string()))?;
            let number = line.line_number();
            if let LineContent::KVPair(key, value) = line.consume_content() {
                self.put(&key, &value, source(number));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> RawConfig {
        let mut raw = RawConfig::new();
        raw.read_bytes(text, |line| Source::File("f".into(), line)).unwrap();
        raw
    }

    fn value<'a>(raw: &'a RawConfig, key: &str) -> &'a str {
        &raw.get(key).unwrap().value
    }

    #[test]
    fn the_format() {
        let raw =
            read(b"# comment\n! comment\n\nbrokerName = broker-a  \nlistenPort:10911 \na b c\nlong=1,\\\n   2\nlast=1\nlast=2\nempty=\n");
        assert_eq!(value(&raw, "brokerName"), "broker-a");
        assert_eq!(value(&raw, "listenPort"), "10911");
        assert_eq!(value(&raw, "a"), "b c");
        assert_eq!(value(&raw, "long"), "1,2");
        assert_eq!(value(&raw, "last"), "2");
        assert_eq!(value(&raw, "empty"), "");
        assert_eq!(raw.get("brokerName").unwrap().source.to_string(), "f:4");
        assert_eq!(raw.winners().filter(|given| given.key == "last").count(), 1);
    }

    #[test]
    fn encodings() {
        assert_eq!(value(&read("name=gr\u{fc}n".as_bytes()), "name"), "gr\u{fc}n");
        assert_eq!(value(&read(b"name=gr\xfcn"), "name"), "gr\u{fc}n");
        assert_eq!(value(&read(b"name=gr\\u00fcn"), "name"), "gr\u{fc}n");
        assert_eq!(value(&read(b"\xef\xbb\xbfname=x"), "name"), "x");
        assert_eq!(value(&read(b"name=x\r\nother=y\r\n"), "name"), "x");
    }

    #[test]
    fn assignments() {
        let mut raw = RawConfig::new();
        raw.set("brokerName=a=b").unwrap();
        assert_eq!(value(&raw, "brokerName"), "a=b");
        assert!(raw.set("brokerName").unwrap_err().contains("KEY=VALUE"));
        assert!(raw.set("=x").is_err());
    }

    #[test]
    fn a_missing_file_and_a_bad_escape_are_told() {
        let mut raw = RawConfig::new();
        let error = raw.read_file(Path::new("/does/not/exist.conf")).unwrap_err();
        assert!(error.contains("/does/not/exist.conf"), "{error}");
        let (line, why) = raw.read_bytes(b"a=1\nb=\\u00zz\n", |_| Source::Set).unwrap_err();
        assert_eq!(line, Some(2), "{why}");
    }
}
