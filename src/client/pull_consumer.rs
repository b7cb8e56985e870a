//! Reads queues at offsets that the caller keeps.

use std::sync::Arc;
use std::time::Duration;

use crate::common::subscription::{SQL92, TAG};
use crate::common::topic;
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::code::request;
use crate::remoting::command::Body;

use super::error::ClientError;
use super::instance::Instance;
use super::queue_api::{self, Pull, PullResult};

/// Time that an answer may take beyond the time the broker may hold the request.
pub(super) const ANSWER_MARGIN: Duration = Duration::from_secs(15);

/// Pulls messages; no threads, no state but the shared connections.
pub struct PullConsumer {
    instance: Arc<Instance>,
    group: String,
}

impl PullConsumer {
    /// A consumer in the name of `group`.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] when the group's name is not allowed.
    pub(super) fn new(instance: Arc<Instance>, group: &str) -> Result<Self, ClientError> {
        topic::check_group(group).map_err(ClientError::Invalid)?;
        Ok(Self { instance, group: group.to_owned() })
    }

    /// Queues of a topic that may be read.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`].
    pub fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
        self.instance.route(topic).map(|route| route.subscribe.clone())
    }

    /// Pulls at most `max_messages` from `offset` on, of those whose tags pass `filter` (`*`: all); does not wait for messages.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a malformed filter, else the request's.
    pub fn pull(&self, queue: &MessageQueue, filter: &str, offset: i64, max_messages: u32) -> Result<PullResult, ClientError> {
        self.pull_with(queue, (filter, TAG), offset, max_messages, None)
    }

    /// As [`PullConsumer::pull_wait`], of the messages whose properties pass a SQL92 expression, which the broker evaluates; without
    /// `wait` it does not wait.
    ///
    /// # Errors
    /// As [`PullConsumer::pull`].
    pub fn pull_sql(
        &self, queue: &MessageQueue, expression: &str, offset: i64, max_messages: u32, wait: Option<Duration>,
    ) -> Result<PullResult, ClientError> {
        self.pull_with(queue, (expression, SQL92), offset, max_messages, wait)
    }

    /// As [`PullConsumer::pull`], but waits up to `wait` for a message when the offset is the queue's end.
    ///
    /// # Errors
    /// As [`PullConsumer::pull`].
    pub fn pull_wait(
        &self, queue: &MessageQueue, filter: &str, offset: i64, max_messages: u32, wait: Duration,
    ) -> Result<PullResult, ClientError> {
        self.pull_with(queue, (filter, TAG), offset, max_messages, Some(wait))
    }

    fn pull_with(
        &self, queue: &MessageQueue, (expression, kind): (&str, &str), offset: i64, max_messages: u32, suspend: Option<Duration>,
    ) -> Result<PullResult, ClientError> {
        let subscription = queue_api::subscription(&queue.topic, expression, kind, 0)?;
        let address = self.instance.master(&queue.topic, &queue.broker_name)?;
        let max_messages = i32::try_from(max_messages).unwrap_or(i32::MAX);
        let pull = Pull { group: &self.group, queue, offset, max_messages, commit: None, suspend, subscription: &subscription };
        let timeout = suspend.map_or(self.instance.config().timeout, |time| time + ANSWER_MARGIN);
        let answer = self.instance.transport().invoke(&address, request::PULL_MESSAGE, &pull.header(), Body::Empty, timeout)?;
        queue_api::read_pull(&address, queue, &subscription, answer)
    }

    /// Smallest offset of a queue.
    ///
    /// # Errors
    /// The request's.
    pub fn min_offset(&self, queue: &MessageQueue) -> Result<i64, ClientError> {
        queue_api::min_offset(&self.instance, queue)
    }

    /// Offset behind the last message of a queue.
    ///
    /// # Errors
    /// The request's.
    pub fn max_offset(&self, queue: &MessageQueue) -> Result<i64, ClientError> {
        queue_api::max_offset(&self.instance, queue)
    }

    /// Offset of the first message stored at or after `timestamp_ms` (milliseconds since 1970).
    ///
    /// # Errors
    /// The request's.
    pub fn search_offset(&self, queue: &MessageQueue, timestamp_ms: i64) -> Result<i64, ClientError> {
        queue_api::search_offset(&self.instance, queue, timestamp_ms)
    }

    /// Offset the group has committed; `None` when none.
    ///
    /// # Errors
    /// The request's.
    pub fn committed(&self, queue: &MessageQueue) -> Result<Option<i64>, ClientError> {
        queue_api::committed(&self.instance, &self.group, queue, true)
    }

    /// Commits an offset of the group.
    ///
    /// # Errors
    /// The request's.
    pub fn commit(&self, queue: &MessageQueue, offset: i64) -> Result<(), ClientError> {
        queue_api::commit(&self.instance, &self.group, queue, offset)
    }
}
