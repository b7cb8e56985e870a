//! Headers of pulls (11, 361) and their answer.

use std::borrow::Cow;

use crate::remoting::command::Command;
use crate::remoting::ext::{CustomHeader, FieldError, HeaderWriter, integer as int};

/// Header of 11 and 361.
#[derive(Clone, Debug, Default)]
pub struct PullMessageRequest<'a> {
    /// Group.
    pub consumer_group: Cow<'a, str>,
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Queue.
    pub queue_id: i32,
    /// First offset wanted.
    pub queue_offset: i64,
    /// Messages at most.
    pub max_msg_nums: i32,
    /// `common::sysflag::PULL_*`.
    pub sys_flag: i32,
    /// Offset to commit.
    pub commit_offset: i64,
    /// Milliseconds the request may be held.
    pub suspend_timeout_millis: i64,
    /// Expression.
    pub subscription: Option<Cow<'a, str>>,
    /// Version of the subscription.
    pub sub_version: i64,
    /// TAG or SQL92.
    pub expression_type: Option<Cow<'a, str>>,
    /// Bytes at most.
    pub max_msg_bytes: Option<i32>,
    /// 1 and 2: a proxy asks.
    pub request_source: Option<i32>,
    /// Client behind a proxy (`proxyFrowardClientId`).
    pub proxy_forward_client_id: Option<Cow<'a, str>>,
}

impl<'a> PullMessageRequest<'a> {
    /// Reads the header in one pass over its fields.
    ///
    /// # Errors
    /// consumerGroup, topic, queueId, queueOffset, maxMsgNums or sysFlag is missing or malformed.
    pub fn decode(command: &Command<'a>) -> Result<Self, FieldError> {
        let mut header = Self::default();
        let mut seen = 0u32;
        for (name, value) in command.ext.iter() {
            let Some(name) = name.as_plain().or_else(|| name.as_owned()) else { continue };
            match name {
                "consumerGroup" => (header.consumer_group, seen) = (value.to_cow(), seen | 1),
                "topic" => (header.topic, seen) = (value.to_cow(), seen | 2),
                "queueId" => (header.queue_id, seen) = (int("queueId", value)?, seen | 4),
                "queueOffset" => (header.queue_offset, seen) = (int("queueOffset", value)?, seen | 8),
                "maxMsgNums" => (header.max_msg_nums, seen) = (int("maxMsgNums", value)?, seen | 16),
                "sysFlag" => (header.sys_flag, seen) = (int("sysFlag", value)?, seen | 32),
                "commitOffset" => header.commit_offset = int("commitOffset", value)?,
                "suspendTimeoutMillis" => header.suspend_timeout_millis = int("suspendTimeoutMillis", value)?,
                "subscription" => header.subscription = Some(value.to_cow()),
                "subVersion" => header.sub_version = int("subVersion", value)?,
                "expressionType" => header.expression_type = Some(value.to_cow()),
                "maxMsgBytes" => header.max_msg_bytes = Some(int("maxMsgBytes", value)?),
                "requestSource" => header.request_source = Some(int("requestSource", value)?),
                "proxyFrowardClientId" => header.proxy_forward_client_id = Some(value.to_cow()),
                _ => {}
            }
        }
        match NEEDED.iter().enumerate().find(|(at, _)| seen & (1 << at) == 0) {
            Some((_, name)) => Err(FieldError::Missing(name)),
            None => Ok(header),
        }
    }
}

/// Fields without which a pull means nothing, in the order of their bits.
const NEEDED: [&str; 6] = ["consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag"];

/// What clients send.
impl CustomHeader for PullMessageRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("consumerGroup", &self.consumer_group);
        out.text("topic", &self.topic);
        out.int("queueId", self.queue_id.into());
        out.int("queueOffset", self.queue_offset);
        out.int("maxMsgNums", self.max_msg_nums.into());
        out.int("sysFlag", self.sys_flag.into());
        out.int("commitOffset", self.commit_offset);
        out.int("suspendTimeoutMillis", self.suspend_timeout_millis);
        out.option_text("subscription", self.subscription.as_deref());
        out.int("subVersion", self.sub_version);
        out.option_text("expressionType", self.expression_type.as_deref());
        if let Some(bytes) = self.max_msg_bytes {
            out.int("maxMsgBytes", bytes.into());
        }
    }
}

/// Header of a pull's answer; the first four are in every answer of code 0, 19, 20 and 21.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullMessageResponse {
    /// Broker to ask next.
    pub suggest_which_broker_id: i64,
    /// Where to go on.
    pub next_begin_offset: i64,
    /// Smallest offset of the queue.
    pub min_offset: i64,
    /// Offset behind the last message.
    pub max_offset: i64,
    /// Flags of the topic.
    pub topic_sys_flag: Option<i32>,
    /// Flags of the group.
    pub group_sys_flag: Option<i32>,
    /// Why a pull was forbidden (1 to 5).
    pub forbidden_type: Option<i32>,
}

impl CustomHeader for PullMessageResponse {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.int("suggestWhichBrokerId", self.suggest_which_broker_id);
        out.int("nextBeginOffset", self.next_begin_offset);
        out.int("minOffset", self.min_offset);
        out.int("maxOffset", self.max_offset);
        for (name, value) in
            [("topicSysFlag", self.topic_sys_flag), ("groupSysFlag", self.group_sys_flag), ("forbiddenType", self.forbidden_type)]
        {
            if let Some(value) = value {
                out.int(name, value.into());
            }
        }
    }
}

impl PullMessageResponse {
    /// Reads an answer (clients).
    ///
    /// # Errors
    /// A needed field is missing or malformed.
    pub fn decode(command: &Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            suggest_which_broker_id: ext.need_i64("suggestWhichBrokerId")?,
            next_begin_offset: ext.need_i64("nextBeginOffset")?,
            min_offset: ext.need_i64("minOffset")?,
            max_offset: ext.need_i64("maxOffset")?,
            topic_sys_flag: ext.i32("topicSysFlag")?,
            group_sys_flag: ext.i32("groupSysFlag")?,
            forbidden_type: ext.i32("forbiddenType")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::codec;
    use crate::remoting::command::SerializeType;

    #[test]
    fn round_trip_and_needed_fields() {
        let header = PullMessageRequest {
            consumer_group: "G".into(),
            topic: "T".into(),
            queue_id: 1,
            queue_offset: 2,
            max_msg_nums: 32,
            sys_flag: 6,
            commit_offset: 3,
            suspend_timeout_millis: 15_000,
            subscription: Some("a || b".into()),
            sub_version: 9,
            expression_type: Some("TAG".into()),
            ..PullMessageRequest::default()
        };
        let mut out = Vec::new();
        let head = codec::Head { code: 11, flag: 0, opaque: 1, remark: None, serialize_type: SerializeType::Rocketmq };
        codec::encode_head(&mut out, &head, &header, 0);
        let command = codec::decode(&out).unwrap();
        let read = PullMessageRequest::decode(&command).unwrap();
        assert_eq!(format!("{read:?}"), format!("{header:?}"));

        let mut out = Vec::new();
        codec::encode_head(&mut out, &head, &[("consumerGroup", "G"), ("topic", "T"), ("queueId", "0"), ("queueOffset", "0")], 0);
        assert_eq!(PullMessageRequest::decode(&codec::decode(&out).unwrap()).unwrap_err(), FieldError::Missing("maxMsgNums"));

        for (name, value, expected) in
            [("queueId", "4294967296", "expected a 32-bit integer"), ("queueOffset", "x", "expected a 64-bit integer")]
        {
            let mut out = Vec::new();
            codec::encode_head(&mut out, &head, &[(name, value)], 0);
            let text = PullMessageRequest::decode(&codec::decode(&out).unwrap()).unwrap_err().to_string();
            assert!(text.contains(name) && text.contains(value) && text.contains(expected), "{text}");
        }
    }
}
