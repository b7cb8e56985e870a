//! Requests about one queue, to its broker: offsets, and the form of pulls and their answers.

use std::time::Duration;

use crate::common::message::MessageExt;
use crate::common::subscription::SubscriptionData;
use crate::common::sysflag;
use crate::filter::Expression;
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::code::{request, response};
use crate::remoting::command::{Body, OwnedCommand};
use crate::remoting::ext::CustomHeader;
use crate::remoting::header::offset::QueryConsumerOffsetRequest;
use crate::remoting::header::pull::{PullMessageRequest, PullMessageResponse};

use super::error::ClientError;
use super::incoming;
use super::instance::{Instance, succeeded};
use super::outgoing::borrowed;

/// What a pull found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStatus {
    /// Messages.
    Found,
    /// The offset is the queue's end.
    NoNewMessage,
    /// Messages were there, none passed the filter; go on at the next offset.
    NoMatchedMessage,
    /// The offset is outside the queue; go on at the next offset.
    OffsetIllegal,
}

/// Answer to a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullResult {
    /// What was found.
    pub status: PullStatus,
    /// Messages, in order.
    pub messages: Vec<MessageExt>,
    /// Offset to pull next.
    pub next_offset: i64,
    /// Smallest offset of the queue.
    pub min_offset: i64,
    /// Offset behind the last message of the queue.
    pub max_offset: i64,
    /// Broker id to pull from next.
    pub suggested_broker: i64,
}

/// A pull, before it is sent.
pub(super) struct Pull<'a> {
    pub group: &'a str,
    pub queue: &'a MessageQueue,
    pub offset: i64,
    pub max_messages: i32,
    /// Offset to commit along with the pull.
    pub commit: Option<i64>,
    /// How long the broker may hold the request when there is nothing.
    pub suspend: Option<Duration>,
    pub subscription: &'a SubscriptionData,
}

impl<'a> Pull<'a> {
    /// The header. The subscription always comes along: the pull then does not depend on a heartbeat having been there before.
    pub(super) fn header(&self) -> PullMessageRequest<'a> {
        let mut sys_flag = sysflag::PULL_SUBSCRIPTION;
        if self.commit.is_some() {
            sys_flag |= sysflag::PULL_COMMIT_OFFSET;
        }
        if self.suspend.is_some() {
            sys_flag |= sysflag::PULL_SUSPEND;
        }
        PullMessageRequest {
            consumer_group: borrowed(self.group),
            topic: borrowed(&self.queue.topic),
            queue_id: self.queue.queue_id,
            queue_offset: self.offset,
            max_msg_nums: self.max_messages,
            sys_flag,
            commit_offset: self.commit.unwrap_or(0),
            suspend_timeout_millis: self.suspend.map_or(0, |time| time.as_millis() as i64),
            subscription: Some(borrowed(&self.subscription.sub_string)),
            sub_version: self.subscription.sub_version,
            expression_type: Some(borrowed(&self.subscription.expression_type)),
            ..PullMessageRequest::default()
        }
    }
}

/// A subscription to a topic. A SQL92 expression that a broker would refuse is refused here.
///
/// # Errors
/// [`ClientError::Invalid`]: what is wrong with the expression, and where.
pub(super) fn subscription(topic: &str, expression: &str, kind: &str, version: i64) -> Result<SubscriptionData, ClientError> {
    let data = SubscriptionData::parse(topic, expression, kind, version).map_err(ClientError::Invalid)?;
    if !data.is_tag() {
        let wrong = |error| ClientError::Invalid(format!("the SQL92 expression of topic {topic} is wrong at {error}"));
        Expression::compile(expression).map_err(wrong)?;
    }
    Ok(data)
}

/// Reads the answer to a pull.
///
/// # Errors
/// [`ClientError::Response`] for a refusal, [`ClientError::Answer`] for an answer that does not parse.
pub(super) fn read_pull(
    address: &str, queue: &MessageQueue, subscription: &SubscriptionData, answer: OwnedCommand,
) -> Result<PullResult, ClientError> {
    let code = answer.view().code;
    let status = match code {
        response::SUCCESS => PullStatus::Found,
        response::PULL_NOT_FOUND => PullStatus::NoNewMessage,
        response::PULL_RETRY_IMMEDIATELY => PullStatus::NoMatchedMessage,
        response::PULL_OFFSET_MOVED => PullStatus::OffsetIllegal,
        _ => return succeeded(address, answer).and(Err(ClientError::Closed)), // never 0 here: always the refusal
    };
    let view = answer.view();
    let not_understood = |what: String| ClientError::Answer(address.to_owned(), what);
    let header = PullMessageResponse::decode(&view).map_err(|error| not_understood(error.to_string()))?;
    let mut messages = Vec::new();
    if status == PullStatus::Found {
        messages = incoming::records(view.body).map_err(not_understood)?;
        messages.retain(|message| incoming::passes(message, subscription));
        for message in &mut messages {
            message.broker_name.clone_from(&queue.broker_name);
        }
    }
    Ok(PullResult {
        status,
        messages,
        next_offset: header.next_begin_offset,
        min_offset: header.min_offset,
        max_offset: header.max_offset,
        suggested_broker: header.suggest_which_broker_id,
    })
}

/// Smallest offset of a queue.
pub(super) fn min_offset(instance: &Instance, queue: &MessageQueue) -> Result<i64, ClientError> {
    ask(instance, queue, request::GET_MIN_OFFSET, &[("topic", queue.topic.as_str()), ("queueId", &queue.queue_id.to_string())])
}

/// Offset behind the last message of a queue.
pub(super) fn max_offset(instance: &Instance, queue: &MessageQueue) -> Result<i64, ClientError> {
    ask(instance, queue, request::GET_MAX_OFFSET, &[("topic", queue.topic.as_str()), ("queueId", &queue.queue_id.to_string())])
}

/// Offset of the first message stored at or after a time.
pub(super) fn search_offset(instance: &Instance, queue: &MessageQueue, timestamp_ms: i64) -> Result<i64, ClientError> {
    let (id, time) = (queue.queue_id.to_string(), timestamp_ms.to_string());
    ask(instance, queue, request::SEARCH_OFFSET_BY_TIMESTAMP, &[("topic", queue.topic.as_str()), ("queueId", &id), ("timestamp", &time)])
}

/// Committed offset of a group; `None` when it has committed nothing there. With `young_is_zero` the broker may answer 0 instead, while
/// all messages of the queue are still in its memory.
pub(super) fn committed(instance: &Instance, group: &str, queue: &MessageQueue, young_is_zero: bool) -> Result<Option<i64>, ClientError> {
    let header = QueryConsumerOffsetRequest {
        consumer_group: borrowed(group),
        topic: borrowed(&queue.topic),
        queue_id: queue.queue_id,
        set_zero_if_not_found: (!young_is_zero).then_some(false),
    };
    match ask(instance, queue, request::QUERY_CONSUMER_OFFSET, &header) {
        Ok(offset) => Ok(Some(offset).filter(|offset| *offset >= 0)),
        Err(error) if error.code() == Some(response::QUERY_NOT_FOUND) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Commits an offset and waits for the answer.
pub(super) fn commit(instance: &Instance, group: &str, queue: &MessageQueue, offset: i64) -> Result<(), ClientError> {
    let (id, offset) = (queue.queue_id.to_string(), offset.to_string());
    let header = [("consumerGroup", group), ("topic", queue.topic.as_str()), ("queueId", id.as_str()), ("commitOffset", offset.as_str())];
    let address = instance.master(&queue.topic, &queue.broker_name)?;
    instance.call(&address, request::UPDATE_CONSUMER_OFFSET, &header, Body::Empty).map(|_| ())
}

fn ask(instance: &Instance, queue: &MessageQueue, code: i32, header: &dyn CustomHeader) -> Result<i64, ClientError> {
    let address = instance.master(&queue.topic, &queue.broker_name)?;
    let answer = instance.call(&address, code, header, Body::Empty)?;
    answer.view().ext.need_i64("offset").map_err(|error| ClientError::Answer(address, error.to_string()))
}
