//! A half message as it is stored, and what is made of it: the real message, the question to its producers, the message put aside.
//!
//! Body, flags and born values go from one to the other as they are, a compressed body as it was compressed.

use std::borrow::Cow;
use std::net::SocketAddr;

use crate::broker::processor::stored_properties;
use crate::common::properties;
use crate::common::record::{self, Draft, Record};
use crate::common::sysflag;
use crate::common::topic::{HALF_TOPIC, SCHEDULE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC};

/// A half message whose properties tell all that is needed.
pub(crate) struct Half<'a> {
    /// The record.
    pub(crate) record: &'a Record<'a>,
    /// Real topic.
    pub(crate) topic: &'a str,
    /// Real queue.
    pub(crate) queue_id: i32,
    /// Producer group.
    pub(crate) group: &'a str,
    /// Unique key, which is the transaction's id; empty when there is none.
    pub(crate) unique_key: &'a str,
    /// Delay level of the real message, not clamped.
    pub(crate) delay_level: i32,
}

impl<'a> Half<'a> {
    /// Reads a record of the half topic.
    ///
    /// # Errors
    /// What is missing or malformed: it can be neither committed nor asked about.
    pub(crate) fn read(record: &'a Record<'a>) -> Result<Self, String> {
        if record.topic != HALF_TOPIC {
            return Err(format!("the message is of topic {}, not of {HALF_TOPIC}", record.topic));
        }
        let mut half = Self { record, topic: "", queue_id: -1, group: "", unique_key: "", delay_level: 0 };
        for (name, value) in properties::iterate(record.properties) {
            match name {
                properties::REAL_TOPIC => half.topic = value,
                properties::REAL_QID => half.queue_id = value.parse().unwrap_or(-1),
                properties::PGROUP => half.group = value,
                properties::UNIQ_KEY => half.unique_key = value,
                properties::DELAY => half.delay_level = value.trim().parse().unwrap_or(0),
                _ => {}
            }
        }
        if half.topic.is_empty() || half.topic == HALF_TOPIC {
            return Err(format!("property REAL_TOPIC is {:?}", half.topic));
        }
        if half.queue_id < 0 {
            return Err("property REAL_QID is missing or no queue".to_owned());
        }
        if half.group.is_empty() {
            return Err("property PGROUP is missing".to_owned());
        }
        Ok(half)
    }

    /// Milliseconds during which nobody is asked: `timeout_ms`, or what the producer wishes when that is longer.
    pub(crate) fn immunity_ms(&self, timeout_ms: i64) -> i64 {
        self.own_immunity_ms(timeout_ms).unwrap_or(timeout_ms)
    }

    /// The immunity if the producer has a wish; at least `timeout_ms`.
    pub(crate) fn own_immunity_ms(&self, timeout_ms: i64) -> Option<i64> {
        let wish = properties::find(self.record.properties, properties::CHECK_IMMUNITY_TIME_IN_SECONDS)?;
        Some(wish.trim().parse::<i64>().unwrap_or(0).saturating_mul(1_000).max(timeout_ms))
    }

    /// How often producers were asked by a broker that keeps the number in the message.
    pub(crate) fn stored_checks(&self) -> u32 {
        properties::find(self.record.properties, properties::TRANSACTION_CHECK_TIMES).and_then(|times| times.parse().ok()).unwrap_or(0)
    }

    /// Properties text of the real message; `level` is its delay level, clamped.
    ///
    /// # Errors
    /// It would be too long.
    pub(crate) fn real_properties(&self, level: i32) -> Result<Cow<'a, str>, String> {
        if level <= 0 {
            return Ok(Cow::Borrowed(self.record.properties)); // the reference leaves all of them to consumers
        }
        let mut text = self.record.properties.to_owned();
        properties::set(&mut text, properties::DELAY, itoa::Buffer::new().format(level));
        stored_properties::fit(&mut text)?;
        Ok(Cow::Owned(text))
    }

    /// The real message, on the schedule topic when it has a delay level.
    pub(crate) fn real<'b>(&'b self, store_host: SocketAddr, level: i32, text: &'b str) -> Draft<'b> {
        let (topic, queue_id) = if level > 0 { (SCHEDULE_TOPIC, level - 1) } else { (self.topic, self.queue_id) };
        let sys_flag = self.record.sys_flag & !sysflag::TRANSACTION_MASK | sysflag::TRANSACTION_COMMIT;
        let prepared_transaction_offset = self.record.physical_offset;
        Draft { topic, queue_id, sys_flag, prepared_transaction_offset, ..copy(self.record, store_host, text) }
    }

    /// The record that a producer is sent with the question: as it will be when committed, at the half message's place.
    ///
    /// # Errors
    /// Its properties would be too long.
    pub(crate) fn question(&self, checks: u32) -> Result<Vec<u8>, String> {
        let mut text = properties::without(self.record.properties, properties::REAL_QID);
        properties::set(&mut text, properties::TRANSACTION_CHECK_TIMES, itoa::Buffer::new().format(checks));
        stored_properties::fit(&mut text)?;
        let draft = Draft { topic: self.topic, queue_id: self.queue_id, ..copy(self.record, self.record.store_host, &text) };
        let mut bytes = Vec::with_capacity(draft.size());
        draft.encode(&mut bytes);
        record::place(&mut bytes, self.record.queue_offset, self.record.physical_offset, self.record.store_timestamp);
        Ok(bytes)
    }
}

/// The message that is put aside.
pub(crate) fn put_aside<'a>(record: &Record<'a>, store_host: SocketAddr) -> Draft<'a> {
    Draft { topic: TRANS_CHECK_MAX_TIME_TOPIC, queue_id: 0, ..copy(record, store_host, record.properties) }
}

fn copy<'a>(record: &Record<'a>, store_host: SocketAddr, text: &'a str) -> Draft<'a> {
    Draft {
        topic: record.topic,
        queue_id: record.queue_id,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_timestamp: record.born_timestamp,
        born_host: record.born_host,
        store_host,
        reconsume_times: record.reconsume_times,
        prepared_transaction_offset: 0,
        body: record.body,
        properties: text.as_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pairs: &[(&str, &str)]) -> String {
        let mut out = String::new();
        pairs.iter().for_each(|(name, value)| properties::push(&mut out, name, value));
        out
    }

    fn stored(topic: &str, text: &str) -> Vec<u8> {
        let draft = Draft {
            topic,
            queue_id: 0,
            flag: 9,
            sys_flag: sysflag::COMPRESSED,
            born_timestamp: 11,
            born_host: "10.0.0.9:5".parse().unwrap(),
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 2,
            prepared_transaction_offset: 0,
            body: b"half",
            properties: text.as_bytes(),
        };
        let mut bytes = Vec::new();
        draft.encode(&mut bytes);
        record::place(&mut bytes, 6, 777, 1_000);
        bytes
    }

    const WHOLE: &[(&str, &str)] =
        &[("REAL_TOPIC", "T"), ("REAL_QID", "3"), ("PGROUP", "g"), ("UNIQ_KEY", "0A"), ("DELAY", "40"), ("TRAN_MSG", "true")];

    #[test]
    fn what_is_not_whole_is_told() {
        let without = |name: &str| properties::without(&text(WHOLE), name);
        for (topic, text, word) in [
            ("T", text(WHOLE), "topic T"),
            (HALF_TOPIC, without("REAL_TOPIC"), "REAL_TOPIC"),
            (HALF_TOPIC, without("REAL_QID"), "REAL_QID"),
            (HALF_TOPIC, without("PGROUP"), "PGROUP"),
            (HALF_TOPIC, text(&[("REAL_TOPIC", HALF_TOPIC), ("REAL_QID", "0"), ("PGROUP", "g")]), "REAL_TOPIC"),
            (HALF_TOPIC, text(&[("REAL_TOPIC", "T"), ("REAL_QID", "-1"), ("PGROUP", "g")]), "REAL_QID"),
        ] {
            let bytes = stored(topic, &text);
            let record = Record::parse(&bytes).unwrap();
            let why = Half::read(&record).err().unwrap();
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn the_real_message_carries_everything() {
        let bytes = stored(HALF_TOPIC, &text(WHOLE));
        let record = Record::parse(&bytes).unwrap();
        let half = Half::read(&record).unwrap();
        assert_eq!((half.topic, half.queue_id, half.group, half.unique_key, half.delay_level), ("T", 3, "g", "0A", 40));
        let properties_text = half.real_properties(0).unwrap();
        let real = half.real(record.store_host, 0, &properties_text);
        assert_eq!((real.topic, real.queue_id, real.flag, real.reconsume_times, real.born_timestamp), ("T", 3, 9, 2, 11));
        assert_eq!((real.sys_flag, real.prepared_transaction_offset, real.body), (0x9, 777, &b"half"[..]));
        assert_eq!(real.properties, text(WHOLE).as_bytes());
        let delayed = half.real_properties(18).unwrap();
        let real = half.real(record.store_host, 18, &delayed);
        assert_eq!((real.topic, real.queue_id), (SCHEDULE_TOPIC, 17));
        assert_eq!(properties::find(&delayed, "DELAY"), Some("18"));
        assert_eq!(properties::find(&delayed, "REAL_TOPIC"), Some("T"));
    }

    #[test]
    fn a_producer_is_asked_with_the_real_message() {
        let bytes = stored(HALF_TOPIC, &text(WHOLE));
        let record = Record::parse(&bytes).unwrap();
        let asked = Half::read(&record).unwrap().question(4).unwrap();
        let asked = Record::parse(&asked).unwrap();
        assert_eq!((asked.topic, asked.queue_id, asked.queue_offset, asked.physical_offset), ("T", 3, 6, 777));
        assert_eq!((asked.store_timestamp, asked.body, asked.sys_flag), (1_000, &b"half"[..], sysflag::COMPRESSED));
        let of = |name| properties::find(asked.properties, name);
        assert_eq!(
            (of("TRANSACTION_CHECK_TIMES"), of("PGROUP"), of("TRAN_MSG"), of("REAL_QID")),
            (Some("4"), Some("g"), Some("true"), None)
        );
    }

    #[test]
    fn immunity_is_never_shorter_than_the_timeout() {
        for (wish, own) in [(None, None), (Some("60"), Some(60_000)), (Some("1"), Some(6_000)), (Some("soon"), Some(6_000))] {
            let mut all = WHOLE.to_vec();
            all.extend(wish.map(|wish| ("CHECK_IMMUNITY_TIME_IN_SECONDS", wish)));
            let bytes = stored(HALF_TOPIC, &text(&all));
            let record = Record::parse(&bytes).unwrap();
            let half = Half::read(&record).unwrap();
            assert_eq!((half.own_immunity_ms(6_000), half.immunity_ms(6_000)), (own, own.unwrap_or(6_000)));
        }
    }
}
