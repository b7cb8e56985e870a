//! The properties text of a send: what it asks of the broker, and what of it is stored.
//!
//! Stored is the sender's text without what only steers the broker (POP_CK, WAIT=true) and without what the broker writes itself
//! (MSG_REGION, TRACE_ON, CLUSTER), then the broker's additions. The limit of 32 767 bytes counts the stored text.

use crate::common::properties::{self as names, MAX_PROPERTIES_LEN};
use crate::config::broker::BrokerConfig;

/// What the properties of one message ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes<'a> {
    /// The client's id of the message.
    pub(crate) unique_key: Option<&'a str>,
    /// Answer before the message is durable.
    pub(crate) no_wait: bool,
    /// Delay level, 0: none; not yet clamped.
    pub(crate) delay_level: i32,
    /// Half message.
    pub(crate) transaction: bool,
    /// Producer group of the transaction.
    pub(crate) producer_group: Option<&'a str>,
    /// Name of the property that asks for an arbitrary deliver time.
    pub(crate) timer: Option<&'a str>,
    /// Part of an inner batch.
    pub(crate) inner_batch: bool,
    /// Client that waits for this reply.
    pub(crate) reply_to: Option<&'a str>,
}

impl<'a> Wishes<'a> {
    /// Reads a properties text; the last of equal names wins.
    ///
    /// # Errors
    /// Which property is malformed: the text for code 13.
    pub(crate) fn read(text: &'a str) -> Result<Self, String> {
        let mut wishes = Self::default();
        let mut on_time = false; // it was a timer message once, and has been delivered
        for (name, value) in names::iterate(text) {
            match name {
                names::UNIQ_KEY => wishes.unique_key = Some(value),
                names::WAIT => wishes.no_wait = value == "false",
                names::DELAY => {
                    wishes.delay_level =
                        value.trim().parse().map_err(|_| format!("the message is illegal: property DELAY is {value:?}, not a number"))?;
                }
                names::TRAN_MSG => wishes.transaction = value.eq_ignore_ascii_case("true"),
                names::PGROUP => wishes.producer_group = Some(value),
                names::TIMER_DELAY_SEC | names::TIMER_DELAY_MS | names::TIMER_DELIVER_MS => wishes.timer = Some(name),
                names::TIMER_OUT_MS => on_time = true,
                names::INNER_NUM => wishes.inner_batch = true,
                names::REPLY_TO_CLIENT => wishes.reply_to = Some(value),
                LITE_TOPIC => check_names(LITE_TOPIC, value)?,
                names::INNER_MULTI_DISPATCH => value.split(',').try_for_each(|queue| check_names(names::INNER_MULTI_DISPATCH, queue))?,
                _ => {}
            }
        }
        wishes.timer = wishes.timer.filter(|_| !on_time);
        Ok(wishes)
    }
}

/// Names a light queue. A Java broker's dispatch stops for ever at one it cannot read, and it may be given this log one day.
const LITE_TOPIC: &str = "__LITE_TOPIC";

fn check_names(property: &str, value: &str) -> Result<(), String> {
    match value.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '%' | '|' | '_' | '-'))) {
        None => Ok(()),
        Some(bad) => Err(format!("the message is illegal: property {property} is {value:?} and contains the illegal character {bad:?}")),
    }
}

/// What becomes of a sender's text on its way into the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rewrite<'a> {
    /// Texts of the broker, appended as they are; empty for entries of a batch.
    pub(crate) additions: &'a str,
    /// A unique key for a message without one.
    pub(crate) unique_key: Option<&'a str>,
    /// The message is parked on this delay level (clamped): real topic and queue are written down.
    pub(crate) parked: Option<Parked<'a>>,
    /// The message is a half message: real topic and queue, producer group and transaction id are written down.
    pub(crate) half: Option<HalfOf<'a>>,
    /// The message is a dead letter: DELAY becomes 0.
    pub(crate) dead: bool,
}

/// A message that waits on a delay level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parked<'a> {
    /// Level, 1 to the highest.
    pub(crate) level: i32,
    /// Where it goes.
    pub(crate) topic: &'a str,
    /// Where it goes.
    pub(crate) queue_id: i32,
}

/// A message of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOf<'a> {
    /// Where it goes when it is committed.
    pub(crate) topic: &'a str,
    /// Where it goes when it is committed.
    pub(crate) queue_id: i32,
    /// Who decides, when the message itself does not say so.
    pub(crate) producer_group: Option<&'a str>,
    /// Id of the transaction: the unique key.
    pub(crate) transaction_id: &'a str,
}

impl Rewrite<'_> {
    /// Appends the stored form of `text` to `out`, which is empty.
    ///
    /// # Errors
    /// The stored text is too long: both lengths and the limit, for code 13.
    pub(crate) fn write(&self, text: &str, out: &mut String) -> Result<(), String> {
        for (name, value) in names::iterate(text) {
            if !self.drops(name, value) {
                names::push(out, name, value);
            }
        }
        if let Some(key) = self.unique_key {
            names::push(out, names::UNIQ_KEY, key);
        }
        if let Some(half) = &self.half {
            if let Some(group) = half.producer_group {
                names::push(out, names::PGROUP, group);
            }
            names::push(out, names::TRANSACTION_ID, half.transaction_id);
            names::push(out, names::REAL_TOPIC, half.topic);
            names::push(out, names::REAL_QID, itoa::Buffer::new().format(half.queue_id));
        }
        if let Some(parked) = &self.parked {
            names::push(out, names::DELAY, itoa::Buffer::new().format(parked.level));
            names::push(out, names::REAL_TOPIC, parked.topic);
            names::push(out, names::REAL_QID, itoa::Buffer::new().format(parked.queue_id));
        } else if self.dead {
            names::push(out, names::DELAY, "0");
        }
        out.push_str(self.additions);
        if out.len() <= MAX_PROPERTIES_LEN {
            return Ok(());
        }
        Err(format!(
            "the message is illegal: its properties of {} bytes become {} bytes as stored (MSG_REGION, TRACE_ON, CLUSTER and the like \
             are added), the limit is {MAX_PROPERTIES_LEN} bytes (32 KB)",
            text.len(),
            out.len()
        ))
    }

    fn drops(&self, name: &str, value: &str) -> bool {
        match name {
            names::POP_CK => true,
            names::WAIT => value != "false",
            names::MSG_REGION | names::TRACE_ON | names::CLUSTER => !self.additions.is_empty(),
            names::DELAY => self.parked.is_some() || self.dead,
            names::TRANSACTION_ID | names::TRANSACTION_CHECK_TIMES | names::TRAN_PREPARED_QUEUE_OFFSET => self.half.is_some(),
            names::REAL_TOPIC | names::REAL_QID => self.parked.is_some() || self.half.is_some(),
            names::TIMER_DELAY_SEC | names::TIMER_DELAY_MS | names::TIMER_DELIVER_MS => self.parked.is_some(),
            _ => false,
        }
    }
}

/// The texts that this broker adds to every message sent to it.
pub(crate) fn additions(config: &BrokerConfig) -> String {
    let mut text = String::new();
    names::push(&mut text, names::MSG_REGION, &config.region_id);
    names::push(&mut text, names::TRACE_ON, if config.trace_on { "true" } else { "false" });
    names::push(&mut text, names::CLUSTER, &config.cluster_name);
    text
}

/// Makes a text that the broker stores again fit: its own additions go first.
///
/// # Errors
/// It does not fit even so: length and limit.
pub(crate) fn fit(text: &mut String) -> Result<(), String> {
    for name in [names::MSG_REGION, names::TRACE_ON, names::CLUSTER] {
        if text.len() <= MAX_PROPERTIES_LEN {
            return Ok(());
        }
        *text = names::without(text, name);
    }
    if text.len() <= MAX_PROPERTIES_LEN {
        return Ok(());
    }
    Err(format!("the message is illegal: properties of {} bytes exceed the limit of {MAX_PROPERTIES_LEN} bytes (32 KB)", text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pairs: &[(&str, &str)]) -> String {
        let mut out = String::new();
        for (name, value) in pairs {
            names::push(&mut out, name, value);
        }
        out
    }

    #[test]
    fn wishes_are_read() {
        let all = text(&[
            ("UNIQ_KEY", "0A"),
            ("WAIT", "false"),
            ("DELAY", "3"),
            ("TRAN_MSG", "TRUE"),
            ("TIMER_DELAY_MS", "5"),
            ("INNER_NUM", "2"),
            ("REPLY_TO_CLIENT", "c"),
        ]);
        let wishes = Wishes::read(&all).unwrap();
        let expected = Wishes {
            unique_key: Some("0A"),
            no_wait: true,
            delay_level: 3,
            transaction: true,
            producer_group: None,
            timer: Some("TIMER_DELAY_MS"),
            inner_batch: true,
            reply_to: Some("c"),
        };
        assert_eq!(wishes, expected);
        assert_eq!(Wishes::read("").unwrap(), Wishes::default());
        assert!(Wishes::read(&text(&[("DELAY", "soon")])).unwrap_err().contains("\"soon\""));
        assert!(Wishes::read(&text(&[("__LITE_TOPIC", "a$b")])).unwrap_err().contains("'$'"));
        assert!(Wishes::read(&text(&[("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b")])).is_ok());
        assert!(Wishes::read(&text(&[("INNER_MULTI_DISPATCH", "%LMQ%a,b c")])).is_err());
    }

    #[test]
    fn what_is_stored() {
        let config = BrokerConfig::new("unused");
        let additions = additions(&config);
        let sent = text(&[("TAGS", "a"), ("WAIT", "true"), ("POP_CK", "x"), ("CLUSTER", "other"), ("K", "ключ")]);
        let mut out = String::new();
        Rewrite { additions: &additions, unique_key: Some("ID"), ..Rewrite::default() }.write(&sent, &mut out).unwrap();
        let kept: Vec<_> = names::iterate(&out).collect();
        let expected = [
            ("TAGS", "a"),
            ("K", "ключ"),
            ("UNIQ_KEY", "ID"),
            ("MSG_REGION", "DefaultRegion"),
            ("TRACE_ON", "true"),
            ("CLUSTER", "DefaultCluster"),
        ];
        assert_eq!(kept, expected);
    }

    #[test]
    fn a_parked_message_knows_its_way_and_a_dead_one_has_no_delay() {
        let sent = text(&[("DELAY", "99"), ("REAL_TOPIC", "lie"), ("TIMER_DELAY_SEC", "1"), ("WAIT", "false")]);
        let mut out = String::new();
        let parked = Some(Parked { level: 18, topic: "T", queue_id: 2 });
        Rewrite { parked, ..Rewrite::default() }.write(&sent, &mut out).unwrap();
        assert_eq!(out, text(&[("WAIT", "false"), ("DELAY", "18"), ("REAL_TOPIC", "T"), ("REAL_QID", "2")]));
        out.clear();
        Rewrite { dead: true, ..Rewrite::default() }.write(&text(&[("DELAY", "5")]), &mut out).unwrap();
        assert_eq!(out, text(&[("DELAY", "0")]));
    }

    #[test]
    fn a_half_message_knows_its_way_and_its_transaction() {
        let sent =
            text(&[("REAL_TOPIC", "lie"), ("__transactionId__", "lie"), ("TRANSACTION_CHECK_TIMES", "9"), ("DELAY", "3"), ("PGROUP", "g")]);
        let wishes = Wishes::read(&sent).unwrap();
        assert_eq!((wishes.producer_group, wishes.transaction), (Some("g"), false));
        let mut out = String::new();
        let half = HalfOf { topic: "T", queue_id: 2, producer_group: None, transaction_id: "ID" };
        Rewrite { half: Some(half), unique_key: Some("ID"), ..Rewrite::default() }.write(&sent, &mut out).unwrap();
        let expected =
            [("DELAY", "3"), ("PGROUP", "g"), ("UNIQ_KEY", "ID"), ("__transactionId__", "ID"), ("REAL_TOPIC", "T"), ("REAL_QID", "2")];
        assert_eq!(out, text(&expected));
        out.clear();
        Rewrite { half: Some(HalfOf { producer_group: Some("h"), ..half }), ..Rewrite::default() }.write("", &mut out).unwrap();
        assert_eq!(out, text(&[("PGROUP", "h"), ("__transactionId__", "ID"), ("REAL_TOPIC", "T"), ("REAL_QID", "2")]));
    }

    #[test]
    fn the_limit_counts_what_is_stored() {
        let additions = additions(&BrokerConfig::new("unused"));
        let room = MAX_PROPERTIES_LEN - additions.len() - "K\u{1}\u{2}".len();
        let mut out = String::new();
        let rewrite = Rewrite { additions: &additions, ..Rewrite::default() };
        rewrite.write(&text(&[("K", &"v".repeat(room))]), &mut out).unwrap();
        assert_eq!(out.len(), 32_767);
        out.clear();
        let refusal = rewrite.write(&text(&[("K", &"v".repeat(room + 1))]), &mut out).unwrap_err();
        assert!(refusal.contains("32768") && refusal.contains("32767") && refusal.contains(&(room + 4).to_string()), "{refusal}");
        let mut again = out.clone();
        fit(&mut again).unwrap();
        assert!(again.len() <= MAX_PROPERTIES_LEN && names::find(&again, "CLUSTER").is_some(), "only as much as needed goes");
        assert!(fit(&mut text(&[("K", &"v".repeat(40_000))])).is_err());
    }
}
