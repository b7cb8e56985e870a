//! Headers of offset requests (14, 15, 29 to 32) and of their answers.

use std::borrow::Cow;

use crate::remoting::command::Command;
use crate::remoting::ext::{CustomHeader, FieldError, HeaderWriter};

/// Header of 14.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryConsumerOffsetRequest<'a> {
    /// Group.
    pub consumer_group: Cow<'a, str>,
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Queue.
    pub queue_id: i32,
    /// `false`: a group without an offset is told so, whatever the queue holds.
    pub set_zero_if_not_found: Option<bool>,
}

impl<'a> QueryConsumerOffsetRequest<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// consumerGroup, topic or queueId is missing or malformed.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            consumer_group: ext.need_text("consumerGroup")?,
            topic: ext.need_text("topic")?,
            queue_id: ext.need_i32("queueId")?,
            set_zero_if_not_found: ext.bool("setZeroIfNotFound"),
        })
    }
}

impl CustomHeader for QueryConsumerOffsetRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("consumerGroup", &self.consumer_group);
        out.text("topic", &self.topic);
        out.int("queueId", self.queue_id.into());
        if let Some(set_zero) = self.set_zero_if_not_found {
            out.bool("setZeroIfNotFound", set_zero);
        }
    }
}

/// Header of 15.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateConsumerOffsetRequest<'a> {
    /// Group.
    pub consumer_group: Cow<'a, str>,
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Queue.
    pub queue_id: i32,
    /// The next offset to consume.
    pub commit_offset: i64,
}

impl<'a> UpdateConsumerOffsetRequest<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// A field is missing or malformed.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            consumer_group: ext.need_text("consumerGroup")?,
            topic: ext.need_text("topic")?,
            queue_id: ext.need_i32("queueId")?,
            commit_offset: ext.need_i64("commitOffset")?,
        })
    }
}

impl CustomHeader for UpdateConsumerOffsetRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("consumerGroup", &self.consumer_group);
        out.text("topic", &self.topic);
        out.int("queueId", self.queue_id.into());
        out.int("commitOffset", self.commit_offset);
    }
}

/// Header of 29.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchOffsetRequest<'a> {
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Queue.
    pub queue_id: i32,
    /// Milliseconds.
    pub timestamp: i64,
    /// Of several messages of that time the last (`boundaryType` is `upper`), not the first.
    pub upper: bool,
}

impl<'a> SearchOffsetRequest<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// topic, queueId or timestamp is missing or malformed.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            topic: ext.need_text("topic")?,
            queue_id: ext.need_i32("queueId")?,
            timestamp: ext.need_i64("timestamp")?,
            upper: ext.text("boundaryType").is_some_and(|boundary| boundary.eq_ignore_ascii_case("upper")),
        })
    }
}

impl CustomHeader for SearchOffsetRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("topic", &self.topic);
        out.int("queueId", self.queue_id.into());
        out.int("timestamp", self.timestamp);
        out.text("boundaryType", if self.upper { "upper" } else { "lower" });
    }
}

/// Header of 30, 31 and 32: a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueRequest<'a> {
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Queue.
    pub queue_id: i32,
}

impl<'a> QueueRequest<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// A field is missing or malformed.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        Ok(Self { topic: command.ext.need_text("topic")?, queue_id: command.ext.need_i32("queueId")? })
    }
}

impl CustomHeader for QueueRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("topic", &self.topic);
        out.int("queueId", self.queue_id.into());
    }
}

/// Answer of 14, 29, 30 and 31.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffsetResponse {
    /// Queue offset.
    pub offset: i64,
}

impl OffsetResponse {
    /// Reads an answer (clients).
    ///
    /// # Errors
    /// The field is missing or malformed.
    pub fn decode(command: &Command<'_>) -> Result<Self, FieldError> {
        Ok(Self { offset: command.ext.need_i64("offset")? })
    }
}

impl CustomHeader for OffsetResponse {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.int("offset", self.offset);
    }
}

/// Answer of 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimestampResponse {
    /// Milliseconds; -1 when the queue holds nothing.
    pub timestamp: i64,
}

impl TimestampResponse {
    /// Reads an answer (clients).
    ///
    /// # Errors
    /// The field is missing or malformed.
    pub fn decode(command: &Command<'_>) -> Result<Self, FieldError> {
        Ok(Self { timestamp: command.ext.need_i64("timestamp")? })
    }
}

impl CustomHeader for TimestampResponse {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.int("timestamp", self.timestamp);
    }
}
