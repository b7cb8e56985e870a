//! Changes values in the text of a properties file and leaves the rest of it (comments, order, other keys) as it is.

/// The text with each key set to its value: where the key stands already (its last occurrence wins when it is read, so every one is
/// replaced), else at the end.
pub fn with_values(text: &str, changes: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut found = vec![false; changes.len()];
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let change = key_of(line).and_then(|key| changes.iter().position(|(name, _)| *name == key));
        match change {
            Some(at) => {
                found[at] = true;
                push_entry(&mut out, &changes[at]);
                let mut last = line;
                while continues(last) {
                    let Some(next) = lines.next() else { break };
                    last = next;
                }
            }
            None => {
                push_line(&mut out, line);
                let mut last = line;
                while continues(last) && key_of(line).is_some() {
                    let Some(next) = lines.next() else { break };
                    push_line(&mut out, next);
                    last = next;
                }
            }
        }
    }
    for (change, _) in changes.iter().zip(found).filter(|(_, found)| !found) {
        push_entry(&mut out, change);
    }
    out
}

/// The key of a line that begins an entry.
fn key_of(line: &str) -> Option<String> {
    let line = line.trim_start();
    if line.is_empty() || line.starts_with(['#', '!']) {
        return None;
    }
    let mut key = String::new();
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => key.extend(characters.next()),
            '=' | ':' => break,
            character if character.is_whitespace() => break,
            character => key.push(character),
        }
    }
    Some(key)
}

/// Whether the line goes on in the next one: an odd number of backslashes at its end.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

fn push_entry(out: &mut String, (key, value): &(String, String)) {
    push_escaped(out, key, true);
    out.push('=');
    push_escaped(out, value, false);
    out.push('\n');
}

/// ASCII only, so that it reads the same as UTF-8 and as ISO-8859-1.
fn push_escaped(out: &mut String, text: &str, is_key: bool) {
    use std::fmt::Write as _;
    for (at, character) in text.chars().enumerate() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' ' if at == 0 || is_key => out.push_str("\\ "),
            '=' | ':' if is_key => {
                out.push('\\');
                out.push(character);
            }
            '#' | '!' if at == 0 && is_key => {
                out.push('\\');
                out.push(character);
            }
            character if character.is_ascii() => out.push(character),
            character => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}"); // writing to a String does not fail
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::raw::RawConfig;

    fn changed(text: &str, changes: &[(&str, &str)]) -> String {
        let changes: Vec<_> = changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        with_values(text, &changes)
    }

    #[test]
    fn comments_and_other_keys_stay() {
        let text = "# mine\nbrokerName = a\n\n! listenPort=1\nlistenPort:2\nlong=1,\\\n  listenPort=3\n";
        assert_eq!(
            changed(text, &[("listenPort", "5"), ("new", "x")]),
            "# mine\nbrokerName = a\n\n! listenPort=1\nlistenPort=5\nlong=1,\\\n  listenPort=3\nnew=x\n"
        );
        assert_eq!(changed(text, &[("long", "9")]), "# mine\nbrokerName = a\n\n! listenPort=1\nlistenPort:2\nlong=9\n");
        assert_eq!(changed("a=1\na=2", &[("a", "3")]), "a=3\na=3\n");
        assert_eq!(changed("", &[("a", "3")]), "a=3\n");
        assert_eq!(changed("a=1\\", &[("a", "3")]), "a=3\n");
    }

    #[test]
    fn values_come_back() {
        for value in ["plain", "back\\slash", "line\nbreak", "gr\u{fc}n \u{4e2d}", "a = b : c", "#x", "tab\there"] {
            let mut raw = RawConfig::new();
            raw.read_request(changed("", &[("key one", value)]).as_bytes()).unwrap();
            assert_eq!(raw.get("key one").unwrap().value, value);
        }
    }
}
