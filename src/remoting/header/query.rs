//! Headers of message look-ups (12, 33, 321) and of the send-back (36).

use std::borrow::Cow;

use crate::remoting::command::Command;
use crate::remoting::ext::{CustomHeader, FieldError, HeaderWriter};

/// Free field of 12: the key is a unique key.
pub const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";

/// Field of 12: what the key is. `T`: tags; anything else: a key.
const INDEX_TYPE: &str = "indexType";
/// Value of [`INDEX_TYPE`].
const TAGS_TYPE: &str = "T";

/// Header of 12.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryMessageRequest<'a> {
    /// Topic.
    pub topic: Cow<'a, str>,
    /// A word of KEYS, or a unique key.
    pub key: Cow<'a, str>,
    /// Messages at most.
    pub max_num: i32,
    /// Earliest store time, ms.
    pub begin_timestamp: i64,
    /// Latest store time, ms.
    pub end_timestamp: i64,
    /// The key is a unique key ([`UNIQUE_KEY_QUERY`]).
    pub unique_key: bool,
    /// The key is the tags of messages; a unique key is none.
    pub tags: bool,
}

impl<'a> QueryMessageRequest<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// A needed field is missing or malformed.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        let unique_key = ext.bool(UNIQUE_KEY_QUERY).unwrap_or(false);
        Ok(Self {
            topic: ext.need_text("topic")?,
            key: ext.need_text("key")?,
            max_num: ext.need_i32("maxNum")?,
            begin_timestamp: ext.need_i64("beginTimestamp")?,
            end_timestamp: ext.need_i64("endTimestamp")?,
            unique_key,
            tags: !unique_key && ext.text(INDEX_TYPE).as_deref() == Some(TAGS_TYPE),
        })
    }
}

impl CustomHeader for QueryMessageRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("topic", &self.topic);
        out.text("key", &self.key);
        out.int("maxNum", self.max_num.into());
        out.int("beginTimestamp", self.begin_timestamp);
        out.int("endTimestamp", self.end_timestamp);
        if self.unique_key {
            out.bool(UNIQUE_KEY_QUERY, true);
        } else if self.tags {
            out.text(INDEX_TYPE, TAGS_TYPE);
        }
    }
}

/// Answer of 12: how far the index has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryMessageResponse {
    /// Store time of the last message indexed, ms.
    pub index_last_update_timestamp: i64,
    /// Physical offset of the last message indexed.
    pub index_last_update_phyoffset: i64,
}

impl QueryMessageResponse {
    /// Reads an answer (clients).
    ///
    /// # Errors
    /// A field is missing or malformed.
    pub fn decode(command: &Command<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            index_last_update_timestamp: command.ext.need_i64("indexLastUpdateTimestamp")?,
            index_last_update_phyoffset: command.ext.need_i64("indexLastUpdatePhyoffset")?,
        })
    }
}

impl CustomHeader for QueryMessageResponse {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.int("indexLastUpdateTimestamp", self.index_last_update_timestamp);
        out.int("indexLastUpdatePhyoffset", self.index_last_update_phyoffset);
    }
}

/// Header of 33.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewMessageRequest {
    /// Physical offset of the record.
    pub offset: i64,
}

impl ViewMessageRequest {
    /// Reads the header.
    ///
    /// # Errors
    /// The field is missing or malformed.
    pub fn decode(command: &Command<'_>) -> Result<Self, FieldError> {
        Ok(Self { offset: command.ext.need_i64("offset")? })
    }
}

impl CustomHeader for ViewMessageRequest {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.int("offset", self.offset);
    }
}

/// Header of 321.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryConsumeQueueRequest<'a> {
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Queue.
    pub queue_id: i32,
    /// First queue offset wanted.
    pub index: i64,
    /// Units at most.
    pub count: i32,
    /// Group whose subscription is to be told.
    pub consumer_group: Option<Cow<'a, str>>,
}

impl<'a> QueryConsumeQueueRequest<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// topic, queueId, index or count is missing or malformed.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            topic: ext.need_text("topic")?,
            queue_id: ext.need_i32("queueId")?,
            index: ext.need_i64("index")?,
            count: ext.need_i32("count")?,
            consumer_group: ext.text("consumerGroup"),
        })
    }
}

impl CustomHeader for QueryConsumeQueueRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("topic", &self.topic);
        out.int("queueId", self.queue_id.into());
        out.int("index", self.index);
        out.int("count", self.count.into());
        out.option_text("consumerGroup", self.consumer_group.as_deref());
    }
}

/// Header of 36.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendBackRequest<'a> {
    /// Physical offset of the message.
    pub offset: i64,
    /// Group that failed to consume it.
    pub group: Cow<'a, str>,
    /// Delay level; 0: by the number of deliveries, negative: to the dead letters.
    pub delay_level: i32,
    /// Id of the message, for traces.
    pub origin_msg_id: Option<Cow<'a, str>>,
    /// Topic of the message, for traces.
    pub origin_topic: Option<Cow<'a, str>>,
    /// Unit mode.
    pub unit_mode: bool,
    /// Most deliveries; the group's when `None`.
    pub max_reconsume_times: Option<i32>,
}

impl<'a> SendBackRequest<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// offset, group or delayLevel is missing or malformed.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            offset: ext.need_i64("offset")?,
            group: ext.need_text("group")?,
            delay_level: ext.need_i32("delayLevel")?,
            origin_msg_id: ext.text("originMsgId"),
            origin_topic: ext.text("originTopic"),
            unit_mode: ext.bool("unitMode").unwrap_or(false),
            max_reconsume_times: ext.i32("maxReconsumeTimes")?,
        })
    }
}

impl CustomHeader for SendBackRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.int("offset", self.offset);
        out.text("group", &self.group);
        out.int("delayLevel", self.delay_level.into());
        out.option_text("originMsgId", self.origin_msg_id.as_deref());
        out.option_text("originTopic", self.origin_topic.as_deref());
        out.bool("unitMode", self.unit_mode);
        if let Some(max) = self.max_reconsume_times {
            out.int("maxReconsumeTimes", max.into());
        }
    }
}
