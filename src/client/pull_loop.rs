//! The `pull` thread of a consumer: keeps one pull going for every queue, and the consumer's timers.
//!
//! - A queue has at most one pull under way: each answer, delay or refusal leads to the next one, and a queue that is left to none.
//! - Answers are read here, not on the net thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError};

use crate::net::connection::InvokeError;
use crate::remoting::code::{request, response};
use crate::remoting::command::{Body, OwnedCommand};

use super::consumer::{Consumer, Membership};
use super::error::ClientError;
use super::incoming;
use super::process_queue::{ProcessQueue, Taken};
use super::pull_consumer::ANSWER_MARGIN;
use super::queue_api::{self, Pull, PullResult, PullStatus};

/// Delay after a failed pull.
const AFTER_FAILURE: Duration = Duration::from_secs(3);
/// Delay after the broker asked for one (215).
const AFTER_FLOW_CONTROL: Duration = Duration::from_millis(20);
/// Delay while the queue's cache is full.
const WHILE_FULL: Duration = Duration::from_millis(50);
/// Delay after an answer that led nowhere at once: the next would, too.
const AFTER_NOTHING: Duration = Duration::from_millis(200);
/// An empty answer that comes sooner than this was not held.
const HELD: Duration = Duration::from_millis(10);

/// What the `pull` thread is told.
pub(super) enum PullEvent {
    /// Begin with a queue.
    Pull(Arc<ProcessQueue>),
    /// A pull was answered.
    Answer(Box<Answer>),
    /// Put a delivery back after a time.
    Return(Taken, Duration),
    /// End.
    Stop,
}

/// A pull and what became of it.
pub(super) struct Answer {
    queue: Arc<ProcessQueue>,
    address: String,
    epoch: u64,
    offset: i64,
    asked: Instant,
    answer: Result<OwnedCommand, InvokeError>,
}

enum Due {
    Pull(Arc<ProcessQueue>),
    Return(Taken),
}

/// The thread.
pub(super) fn run(consumer: &Arc<Consumer>, events: &Receiver<PullEvent>) {
    let mut timers: BTreeMap<(Instant, u64), Due> = BTreeMap::new();
    let mut sequence = 0;
    loop {
        let event = match timers.first_key_value() {
            Some(((at, _), _)) => events.recv_deadline(*at),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let due = match event {
            Ok(PullEvent::Pull(queue)) => pull(consumer, queue),
            Ok(PullEvent::Answer(answer)) => answered(consumer, *answer),
            Ok(PullEvent::Return(taken, after)) => Some((Due::Return(taken), after)),
            Ok(PullEvent::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => match timers.pop_first() {
                Some((_, Due::Pull(queue))) => pull(consumer, queue),
                Some((_, Due::Return(taken))) => {
                    consumer.work.offer(&taken.put_back());
                    None
                }
                None => None,
            },
        };
        if let Some((due, after)) = due {
            sequence += 1;
            timers.insert((Instant::now() + after, sequence), due);
        }
    }
}

/// Sends the next pull of a queue, or says when to try again.
fn pull(consumer: &Arc<Consumer>, queue: Arc<ProcessQueue>) -> Option<(Due, Duration)> {
    let (epoch, offset) = queue.next_pull()?;
    if queue.is_full(consumer.cache_limits()) {
        return Some((Due::Pull(queue), WHILE_FULL));
    }
    let address = consumer.instance.routes().member(&queue.queue.broker_name, queue.suggested_broker());
    let (Some(address), Some(subscription)) = (address, consumer.subscriptions.get(&queue.queue.topic)) else {
        log::warn!("queue not pulled, its broker is not known: queue={:?}", queue.queue);
        let reason = format!("broker {} is not known", queue.queue.broker_name);
        queue.set_trouble(Some(ClientError::NoRoute(queue.queue.topic.clone(), reason)));
        return Some((Due::Pull(queue), AFTER_FAILURE));
    };
    queue.note_pull(consumer.instance.now_ms());
    let process_queue = queue.clone();
    let header = Pull {
        group: &consumer.group,
        queue: &process_queue.queue,
        offset,
        max_messages: i32::try_from(consumer.config.pull_batch).unwrap_or(i32::MAX),
        commit: Some(queue.position()).filter(|position| *position > 0 && consumer.offsets.commits_with_pulls()),
        suspend: Some(consumer.config.suspend),
        subscription,
    }
    .header();
    let events = consumer.pull.clone();
    let to = address.clone();
    let asked = Instant::now();
    let done = Box::new(move |answer| {
        let answer = Answer { queue, address: to, epoch, offset, asked, answer };
        let _ = events.send(PullEvent::Answer(Box::new(answer))); // fails only when the consumer has stopped
    });
    let timeout = consumer.config.suspend + ANSWER_MARGIN;
    consumer.instance.transport().invoke_async(&address, request::PULL_MESSAGE, &header, Body::Empty, timeout, done);
    None
}

/// Takes in an answer and goes on pulling.
fn answered(consumer: &Arc<Consumer>, answer: Answer) -> Option<(Due, Duration)> {
    let Answer { queue, address, epoch, offset, asked, answer } = answer;
    let subscription = consumer.subscriptions.get(&queue.queue.topic)?;
    let result = answer.map_err(ClientError::from).and_then(|answer| queue_api::read_pull(&address, &queue.queue, subscription, answer));
    let delay = match result {
        Ok(result) => {
            queue.set_trouble(None);
            take_in(consumer, &queue, epoch, offset, asked, result)
        }
        Err(error) => {
            let delay = failed(consumer, &queue, &address, &error);
            if error.code() != Some(response::FLOW_CONTROL) {
                queue.set_trouble(Some(error));
            }
            delay
        }
    };
    if delay.is_zero() { pull(consumer, queue) } else { Some((Due::Pull(queue), delay)) }
}

fn take_in(consumer: &Consumer, queue: &Arc<ProcessQueue>, epoch: u64, offset: i64, asked: Instant, mut result: PullResult) -> Duration {
    queue.suggest_broker(result.suggested_broker);
    result.messages.iter_mut().for_each(incoming::restore_topic);
    if result.status == PullStatus::OffsetIllegal {
        log::warn!("offset outside the queue: queue={:?} offset={offset} next={}", queue.queue, result.next_offset);
        queue.reset(result.next_offset);
        return if result.next_offset == offset { AFTER_NOTHING } else { Duration::ZERO };
    }
    let found = !result.messages.is_empty();
    if found {
        queue.stats().pulled(consumer.instance.now_ms(), result.messages.len(), asked.elapsed());
    }
    if queue.put(epoch, result.messages, result.next_offset) && found {
        consumer.work.offer(queue);
    }
    let led_nowhere = match result.status {
        PullStatus::NoNewMessage => asked.elapsed() < HELD,
        PullStatus::NoMatchedMessage => result.next_offset == offset,
        PullStatus::Found | PullStatus::OffsetIllegal => false,
    };
    if led_nowhere { AFTER_NOTHING } else { Duration::ZERO }
}

fn failed(consumer: &Consumer, queue: &ProcessQueue, address: &str, error: &ClientError) -> Duration {
    queue.suggest_broker(super::route::MASTER_ID); // a slave that fails is not asked again
    if error.code() == Some(response::FLOW_CONTROL) {
        return AFTER_FLOW_CONTROL;
    }
    if matches!(error, ClientError::Invoke(_)) {
        consumer.instance.routes_are_stale();
    }
    let unknown_group = matches!(
        error.code(),
        Some(response::SUBSCRIPTION_NOT_EXIST | response::SUBSCRIPTION_NOT_LATEST | response::SUBSCRIPTION_GROUP_NOT_EXIST)
    );
    if unknown_group && matches!(consumer.membership, Membership::Group) {
        consumer.instance.beat_soon();
    }
    log::warn!("pull failed: group={} queue={:?} broker={address} error={error}", consumer.group, queue.queue);
    AFTER_FAILURE
}
