//! Attributes of topics and groups: how an administrative request alters them.
//!
//! A request carries `+name` (add or alter) and `-name` (remove); tables and files carry bare names.

use std::collections::BTreeMap;

/// Attributes by bare name.
pub(crate) type Attributes = BTreeMap<String, String>;

/// Splits the header text `+a=1,-b`; blank pieces are skipped.
///
/// # Errors
/// A piece without a sign, an added one without a value: the text for the client.
pub(crate) fn parse(text: &str) -> Result<Attributes, String> {
    let mut changes = Attributes::new();
    for piece in text.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
        let (name, value) = piece.split_once('=').map_or((piece, ""), |(name, value)| (name.trim(), value.trim()));
        let well_formed = if name.starts_with('+') { !value.is_empty() } else { name.starts_with('-') && value.is_empty() };
        if !well_formed {
            return Err(format!("the attribute {piece:?} is malformed, expected +name=value or -name"));
        }
        changes.insert(name.to_owned(), value.to_owned());
    }
    Ok(changes)
}

/// `current` after the changes; a name without a sign counts as added.
///
/// # Errors
/// A blank name, a removal of what is not there, a name both added and removed: the text for the client.
pub(crate) fn alter(current: &Attributes, changes: &Attributes) -> Result<Attributes, String> {
    let mut next = current.clone();
    for (signed, value) in changes {
        let (removed, name) = match signed.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, signed.strip_prefix('+').unwrap_or(signed)),
        };
        if name.trim().is_empty() || name.contains(char::is_whitespace) || value.contains(char::is_whitespace) {
            return Err(format!("the attribute {signed:?}={value:?} is malformed: neither name nor value may be blank or hold blanks"));
        }
        if removed && changes.contains_key(&format!("+{name}")) {
            return Err(format!("the attribute {name} is both added and removed"));
        }
        if !removed {
            next.insert(name.to_owned(), value.clone());
        } else if next.remove(name).is_none() {
            return Err(format!("the attribute {name} is not there, so it cannot be removed"));
        }
    }
    Ok(next)
}

/// Checks the known attributes of a topic that changes from `current` (`None`: a new one) to `next`.
///
/// # Errors
/// An unknown value, an attribute that cannot be changed any more: the text for the client.
pub(crate) fn check_topic(current: Option<&Attributes>, next: &Attributes) -> Result<(), String> {
    const FIXED: [(&str, &str); 2] = [("queue.type", "SimpleCQ"), ("cleanup.policy", "DELETE")];
    const VALUES: [(&str, &[&str]); 3] = [
        ("queue.type", &["SimpleCQ"]),
        ("cleanup.policy", &["DELETE", "COMPACTION"]),
        ("message.type", &["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED"]),
    ];
    for (name, allowed) in VALUES {
        if let Some(value) = next.get(name).filter(|value| !allowed.contains(&value.as_str()))
            && current.and_then(|current| current.get(name)) != Some(value)
        {
            return Err(format!("the attribute {name} is {value:?}, expected one of {}", allowed.join(", ")));
        }
    }
    if let Some(value) = next.get("reserve.time")
        && value.parse::<i64>().is_err()
    {
        return Err(format!("the attribute reserve.time is {value:?}, expected a number of milliseconds, or -1"));
    }
    let Some(current) = current else { return Ok(()) };
    for (name, default) in FIXED {
        let value_in = |attributes: &Attributes| attributes.get(name).map_or(default, String::as_str).to_owned();
        let (old, new) = (value_in(current), value_in(next));
        if old != new {
            return Err(format!("the attribute {name} cannot be changed from {old} to {new} once the topic exists"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(text: &[(&str, &str)]) -> Attributes {
        text.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn header_texts() {
        assert_eq!(parse("+a=1, -b ,").unwrap(), attributes(&[("+a", "1"), ("-b", "")]));
        assert_eq!(parse("").unwrap(), attributes(&[]));
        for bad in ["a=", "a=1", "a", "+a", "-a=1", "+a="] {
            assert!(parse(bad).unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn altering() {
        let current = attributes(&[("a", "1"), ("b", "2")]);
        assert_eq!(alter(&current, &attributes(&[("+a", "9"), ("-b", ""), ("c", "3")])).unwrap(), attributes(&[("a", "9"), ("c", "3")]));
        assert!(alter(&current, &attributes(&[("-c", "")])).unwrap_err().contains('c'));
        assert!(alter(&current, &attributes(&[("+a", "1"), ("-a", "")])).is_err());
        assert!(alter(&current, &attributes(&[("+", "1")])).is_err());
        assert!(alter(&current, &attributes(&[("+x y", "1")])).is_err());
    }

    #[test]
    fn known_attributes() {
        let check =
            |current: Option<&[(&str, &str)]>, next: &[(&str, &str)]| check_topic(current.map(attributes).as_ref(), &attributes(next));
        assert!(check(None, &[("message.type", "FIFO"), ("reserve.time", "-1"), ("anything", "x")]).is_ok());
        assert!(check(None, &[("message.type", "fifo")]).unwrap_err().contains("FIFO"));
        assert!(check(None, &[("reserve.time", "x")]).is_err());
        assert!(check(None, &[("queue.type", "BatchCQ")]).is_err());
        assert!(check(Some(&[("queue.type", "BatchCQ")]), &[("queue.type", "BatchCQ")]).is_ok(), "a topic taken over keeps its type");
        assert!(check(Some(&[]), &[("cleanup.policy", "DELETE")]).is_ok());
        assert!(check(Some(&[]), &[("cleanup.policy", "COMPACTION")]).unwrap_err().contains("cannot be changed"));
    }
}
