//! Every configuration key that is known: those of Apache RocketMQ 5.5 (`keys.tsv`, read from running servers) and ours.
//!
//! A known key is not an unknown one even when nothing here uses it: a typing error and a key of a feature that is not built are two
//! different warnings.

/// Which of the reference's classes a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `AuthConfig`.
    Auth,
    /// `BrokerConfig`.
    Broker,
    /// `MessageStoreConfig`.
    Store,
    /// `NettyServerConfig`.
    Server,
    /// `NettyClientConfig`.
    Client,
    /// `NamesrvConfig`.
    Namesrv,
    /// `ControllerConfig`.
    Controller,
    /// Found in old files and on web pages; no released 5.x server knows it.
    Retired,
    /// Ours.
    Petrel,
}

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// true or false.
    Bool,
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
    /// A number with a fraction.
    Double,
    /// Any text.
    Text,
}

impl Kind {
    /// For error texts.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Int => "a 32-bit integer",
            Self::Long => "a 64-bit integer",
            Self::Double => "a number",
            Self::Text => "a text",
        }
    }

    /// Whether a trimmed value is of this kind.
    pub fn accepts(self, value: &str) -> bool {
        match self {
            Self::Bool => value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false"),
            Self::Int => value.parse::<i32>().is_ok(),
            Self::Long => value.parse::<i64>().is_ok(),
            Self::Double => value.parse::<f64>().is_ok(),
            Self::Text => true,
        }
    }
}

/// One known key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its class.
    pub class: Class,
    /// Its name.
    pub name: &'static str,
    /// Type of its value.
    pub kind: Kind,
    /// The reference's default; empty when it has none.
    pub default: &'static str,
}

const TABLE: &str = include_str!("keys.tsv");

/// All known keys by name; a key of two classes comes twice.
pub fn known_keys() -> impl Iterator<Item = Key> {
    TABLE.lines().filter_map(parse_line)
}

/// The kind of a known key.
pub fn kind_of(name: &str) -> Option<Kind> {
    known_keys().find(|key| key.name == name).map(|key| key.kind)
}

/// Whether a key is only known from old files and web pages.
pub fn is_retired(name: &str) -> bool {
    name.starts_with("tieredStore") || known_keys().any(|key| key.name == name && key.class == Class::Retired)
}

/// Whether a key is known at all.
pub fn is_known(name: &str) -> bool {
    is_retired(name) || kind_of(name).is_some()
}

/// The known key that an unknown one most likely means; `None` when none is near.
pub fn nearest(name: &str) -> Option<&'static str> {
    let wanted = name.to_ascii_lowercase();
    let limit = (wanted.len() * 2 / 5).max(2);
    known_keys()
        .filter(|key| key.class != Class::Retired && key.name.len().abs_diff(wanted.len()) <= limit)
        .map(|key| (edit_distance(&wanted, &key.name.to_ascii_lowercase()), key.name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

fn parse_line(line: &'static str) -> Option<Key> {
    let mut fields = line.split('\t');
    let class = match fields.next()? {
        "auth" => Class::Auth,
        "broker" => Class::Broker,
        "store" => Class::Store,
        "server" => Class::Server,
        "client" => Class::Client,
        "namesrv" => Class::Namesrv,
        "controller" => Class::Controller,
        "retired" => Class::Retired,
        "petrel" => Class::Petrel,
        _ => return None,
    };
    let name = fields.next()?;
    let kind = match fields.next()? {
        "boolean" => Kind::Bool,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "double" | "float" => Kind::Double,
        "String" => Kind::Text,
        _ => return None,
    };
    Some(Key { class, name, kind, default: fields.next().unwrap_or("") })
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from one text to the other.
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for row in 1..=from.len() {
        let mut current = vec![row; to.len() + 1];
        for column in 1..=to.len() {
            let replace = last[column - 1] + usize::from(from[row - 1] != to[column - 1]);
            current[column] = replace.min(last[column] + 1).min(current[column - 1] + 1);
            let swapped = row > 1 && column > 1 && from[row - 1] == to[column - 2] && from[row - 2] == to[column - 1];
            if swapped {
                current[column] = current[column].min(before_last[column - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_key_whose_default_is_of_its_kind() {
        assert_eq!(known_keys().count(), TABLE.lines().count());
        for key in known_keys() {
            assert!(key.default.is_empty() || key.kind.accepts(key.default), "{key:?}");
        }
        assert_eq!(kind_of("listenPort"), Some(Kind::Int));
        assert_eq!(kind_of("flushDiskType"), Some(Kind::Text));
        assert_eq!(kind_of("listenport"), None);
    }

    #[test]
    fn nearest_keys() {
        for (given, expected) in [
            ("brokerNmae", Some("brokerName")),
            ("listenport", Some("listenPort")),
            ("flushDiskTyp", Some("flushDiskType")),
            ("autoCreateTopic", Some("autoCreateTopicEnable")),
            ("zzzzzzzzzzzz", None),
            ("x", None),
        ] {
            assert_eq!(nearest(given), expected, "{given}");
        }
    }

    #[test]
    fn retired_keys_are_known() {
        assert!(is_retired("storePathConsumeQueue") && is_known("storePathConsumeQueue"));
        assert!(is_known("tieredStoreFilepath"));
        assert!(!is_known("brokerNmae"));
    }

    #[test]
    fn distances() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("abc", "abc"), 0);
        assert_eq!(edit_distance("abc", "acb"), 1);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
