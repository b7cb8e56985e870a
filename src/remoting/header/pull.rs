//! Headers of pulls (11, 361) and their answer.

use std::borrow::Cow;

use crate::remoting::command::Command;
use crate::remoting::ext::{CustomHeader, FieldError, HeaderWriter};

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
        let _ = command;
        todo!()
    }
}

impl CustomHeader for PullMessageRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        let _ = out;
        todo!()
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
