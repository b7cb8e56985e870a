//! Message properties: their names and the text they are stored as (`key 0x01 value 0x02 …`).
//!
//! Readers follow Java: a piece without separator, with an empty key or an empty value is skipped, a missing last 0x02 is
//! accepted, the last of two equal keys wins.

/// Separates a name from its value.
pub const NAME_VALUE_SEPARATOR: u8 = 1;
/// Ends a property.
pub const PROPERTY_SEPARATOR: u8 = 2;
/// Longest stored properties text in bytes: its length is an int16.
pub const MAX_PROPERTIES_LEN: usize = i16::MAX as usize;

use super::byte_search::position;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => { $($(#[$doc])* pub const $name: &str = $text;)* };
}

names! {
    /// Keys of a message, separated by blanks.
    KEYS = "KEYS";
    /// Tag of a message.
    TAGS = "TAGS";
    /// "false": answer before the message is flushed and replicated.
    WAIT = "WAIT";
    /// Delay level, 1 and up.
    DELAY = "DELAY";
    /// Original topic of a retried message.
    RETRY_TOPIC = "RETRY_TOPIC";
    /// Real destination of a parked message.
    REAL_TOPIC = "REAL_TOPIC";
    /// Real queue of a parked message.
    REAL_QID = "REAL_QID";
    /// "true": half message.
    TRAN_MSG = "TRAN_MSG";
    /// Producer group of a transaction.
    PGROUP = "PGROUP";
    /// Smallest offset, set by clients.
    MIN_OFFSET = "MIN_OFFSET";
    /// Largest offset, set by clients.
    MAX_OFFSET = "MAX_OFFSET";
    /// Id of the first message of a retry chain.
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID";
    /// Reconsume times of a message that a client sends back itself.
    RECONSUME_TIME = "RECONSUME_TIME";
    /// Most reconsume times.
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES";
    /// Region of the broker.
    MSG_REGION = "MSG_REGION";
    /// Trace switch.
    TRACE_ON = "TRACE_ON";
    /// Unique id made by the client.
    UNIQ_KEY = "UNIQ_KEY";
    /// Transaction id of a half message.
    TRANSACTION_ID = "__transactionId__";
    /// How often the producers were asked about a half message.
    TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES";
    /// Queue offset of the half message that this one is a copy of.
    TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET";
    /// Seconds during which nobody is asked about a half message.
    CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS";
    /// Cluster of the receiving broker.
    CLUSTER = "CLUSTER";
    /// Receipt handle of pop.
    POP_CK = "POP_CK";
    /// Sharding key of ordered messages.
    SHARDING_KEY = "__SHARDINGKEY";
    /// Deliver after so many seconds.
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC";
    /// Deliver after so many milliseconds.
    TIMER_DELAY_MS = "TIMER_DELAY_MS";
    /// Deliver at this time.
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS";
    /// Deliver time of the wheel.
    TIMER_OUT_MS = "TIMER_OUT_MS";
    /// Deletes a pending timer.
    TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY";
    /// Request-reply: correlation.
    CORRELATION_ID = "CORRELATION_ID";
    /// Request-reply: client id of the requester.
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT";
    /// Request-reply: milliseconds to live.
    TTL = "TTL";
    /// Request-reply: "reply".
    MSG_TYPE = "MSG_TYPE";
    /// Request-reply: when the reply was pushed.
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME";
    /// Number of messages of an inner batch.
    INNER_NUM = "INNER_NUM";
    /// First queue offset of an inner batch.
    INNER_BASE = "INNER_BASE";
    /// Multi dispatch names.
    INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH";
    /// Topic of a dead letter before it died.
    DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC";
    /// Id of a dead letter before it died.
    DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID";
    /// Reply topic suffix is no property, but lives beside these: instance of a namespace.
    INSTANCE_ID = "INSTANCE_ID";
}

/// The properties of a text, in order, as a Java reader sees them.
pub fn iterate(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = position(rest.as_bytes(), PROPERTY_SEPARATOR);
            let piece = &rest[..end.unwrap_or(rest.len())];
            rest = end.map_or("", |end| &rest[end + 1..]);
            let Some(middle) = position(piece.as_bytes(), NAME_VALUE_SEPARATOR) else { continue };
            let (name, value) = (&piece[..middle], &piece[middle + 1..]);
            if !name.is_empty() && !value.is_empty() {
                return Some((name, value));
            }
        }
        None
    })
}

/// The value of one property; the last of equal names wins.
pub fn find<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    iterate(text).filter(|(key, _)| *key == name).last().map(|(_, value)| value)
}

/// Appends one property.
pub fn push(text: &mut String, name: &str, value: &str) {
    text.reserve(name.len() + value.len() + 2);
    text.push_str(name);
    text.push('\u{1}');
    text.push_str(value);
    text.push('\u{2}');
}

/// A copy of `text` in which `name` is absent.
pub fn without(text: &str, name: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (key, value) in iterate(text).filter(|(key, _)| *key != name) {
        push(&mut out, key, value);
    }
    out
}

/// Sets `name` to `value`, replacing what stood there.
pub fn set(text: &mut String, name: &str, value: &str) {
    if find(text, name).is_some() {
        *text = without(text, name);
    } else if !text.is_empty() && !text.ends_with('\u{2}') {
        text.push('\u{2}');
    }
    push(text, name, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_java_reads() {
        let text = "A\u{1}1\u{2}B\u{1}\u{2}\u{1}x\u{2}C\u{2}D\u{1}4";
        assert_eq!(iterate(text).collect::<Vec<_>>(), [("A", "1"), ("D", "4")]);
    }

    #[test]
    fn set_replaces_and_appends() {
        let mut text = String::from("A\u{1}1");
        set(&mut text, "B", "2");
        set(&mut text, "A", "3");
        assert_eq!(iterate(&text).collect::<Vec<_>>(), [("B", "2"), ("A", "3")]);
        assert_eq!(find(&text, "A"), Some("3"));
        assert_eq!(without(&text, "B"), "A\u{1}3\u{2}");
    }
}
