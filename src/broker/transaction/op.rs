//! Op messages: which half messages are finished.
//!
//! Tag `d`, the body a queue offset of the half queue in decimal: what brokers of 4.x write, and all read. Those of 5.x write several,
//! a comma behind each. Ours say in a property, a letter for each offset, which way it went; other brokers do not look at it.

use crate::common::properties;
use crate::common::record::Record;

use super::decisions::Decision;

/// Tag of an op message that finishes half messages.
const REMOVE_TAG: &str = "d";
/// Letter per offset of the body: [`COMMITTED`], [`ROLLED_BACK`].
const DECISIONS: &str = "PETREL_DECISIONS";
const COMMITTED: u8 = b'c';
const ROLLED_BACK: u8 = b'r';

/// Properties text of an op message of one half message.
pub(crate) fn properties_text(decision: Decision, unique_key: &str) -> String {
    let mut text = String::new();
    properties::push(&mut text, properties::TAGS, REMOVE_TAG);
    properties::push(&mut text, properties::UNIQ_KEY, unique_key);
    match decision {
        Decision::Committed => properties::push(&mut text, DECISIONS, "c"),
        Decision::RolledBack => properties::push(&mut text, DECISIONS, "r"),
        Decision::Unknown => {}
    }
    text
}

/// The half messages that an op message finishes; what of it cannot be read is left out.
pub(crate) fn finished<'a>(record: &Record<'a>) -> impl Iterator<Item = (i64, Decision)> + use<'a> {
    let removes = properties::find(record.properties, properties::TAGS) == Some(REMOVE_TAG);
    let letters = properties::find(record.properties, DECISIONS).unwrap_or_default().as_bytes();
    let body = if removes { std::str::from_utf8(record.body).unwrap_or_default() } else { "" };
    body.split(',').enumerate().filter_map(move |(index, offset)| {
        let offset = offset.trim().parse::<i64>().ok().filter(|offset| *offset >= 0)?;
        let decision = match letters.get(index) {
            Some(&COMMITTED) => Decision::Committed,
            Some(&ROLLED_BACK) => Decision::RolledBack,
            _ => Decision::Unknown,
        };
        Some((offset, decision))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::record::Draft;
    use crate::common::topic::OP_HALF_TOPIC;

    fn read(body: &str, text: &str) -> Vec<(i64, Decision)> {
        let host = "127.0.0.1:1".parse().unwrap();
        let draft = Draft {
            topic: OP_HALF_TOPIC,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 0,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: body.as_bytes(),
            properties: text.as_bytes(),
        };
        let mut bytes = Vec::new();
        draft.encode(&mut bytes);
        finished(&Record::parse(&bytes).unwrap()).collect()
    }

    #[test]
    fn ours_say_which_way() {
        for decision in [Decision::Committed, Decision::RolledBack, Decision::Unknown] {
            assert_eq!(read("42", &properties_text(decision, "K")), [(42, decision)]);
        }
    }

    #[test]
    fn those_of_the_reference_are_read() {
        use Decision::Unknown;
        let tag = "TAGS\u{1}d\u{2}";
        assert_eq!(read("7", tag), [(7, Unknown)]);
        assert_eq!(read("7,8,12,", tag), [(7, Unknown), (8, Unknown), (12, Unknown)]);
        assert_eq!(read("x,,-3,99999999999999999999,5", tag), [(5, Unknown)]);
        assert_eq!(read("7", "TAGS\u{1}e\u{2}"), []);
        assert_eq!(read("", tag), []);
    }
}
