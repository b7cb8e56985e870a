//! The `members` thread of a consumer: decides which queues it reads, renews their locks, persists its offsets.
//!
//! - A queue is read by one member at a time as far as the client can see to it: it is committed (and unlocked) before it is given up.
//! - When a broker does not answer, what was decided stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError};

use crate::common::subscription::MessageModel;
use crate::common::topic;
use crate::remoting::body::lock::{LockBatchBody, lock_ok_from_json};
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::code::request;
use crate::remoting::command::Body;
use crate::remoting::fastjson;

use super::consumer::{ConsumeFrom, Consumer, Membership};
use super::error::ClientError;
use super::process_queue::ProcessQueue;
use super::pull_loop::PullEvent;
use super::queue_api;
use super::rebalance::averagely;
use super::route::TopicRoute;

/// First and longest delay before a rebalance that did not come to an end is repeated.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// Time between two renewals of locks.
const LOCK_INTERVAL: Duration = Duration::from_secs(20);
/// How long a lock is trusted; brokers keep it for 60 s.
const LOCK_LIFE_MS: i64 = 30_000;
/// How long a reset waits for messages to be processed.
const RESET_PATIENCE: Duration = Duration::from_secs(10);
/// How long giving up a queue waits for its messages to be processed.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

/// The thread.
pub(super) fn run(consumer: &Arc<Consumer>, wake: &Receiver<()>) {
    let (mut next_rebalance, mut next_persist, mut next_lock) =
        (Instant::now(), Instant::now() + consumer.config.persist_interval, Instant::now() + LOCK_INTERVAL);
    let mut retry = RETRY.0;
    introduce(consumer);
    while !consumer.stopping.load(Ordering::Acquire) {
        reset(consumer);
        let now = Instant::now();
        if now >= next_rebalance {
            let balanced = rebalance(consumer);
            next_rebalance = Instant::now() + if balanced { consumer.config.rebalance_interval } else { retry };
            retry = if balanced { RETRY.0 } else { (retry * 2).min(RETRY.1) };
        }
        if now >= next_persist {
            let _ = consumer.persist(); // has been logged, and comes again
            next_persist = Instant::now() + consumer.config.persist_interval;
        }
        if consumer.locks() && now >= next_lock {
            let queues: Vec<MessageQueue> = consumer.queues.read().keys().cloned().collect();
            lock(consumer, &queues);
            next_lock = Instant::now() + LOCK_INTERVAL;
        }
        let mut until = next_rebalance.min(next_persist);
        if consumer.locks() {
            until = until.min(next_lock);
        }
        match wake.recv_deadline(until) {
            Ok(()) => next_rebalance = Instant::now(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Goes on at the offsets that a broker asks for: the queues are left, their new offsets committed, and the rebalance that follows begins
/// them again, there. What is being processed is waited for; what it comes to then no longer moves the offset.
fn reset(consumer: &Consumer) {
    let resets = std::mem::take(&mut *consumer.resets.lock());
    let held: Vec<(Arc<ProcessQueue>, i64)> = {
        let queues = consumer.queues.read();
        resets.iter().filter_map(|(name, offset)| Some((queues.get(name)?.clone(), *offset))).collect()
    };
    if held.is_empty() {
        return;
    }
    let deadline = Instant::now() + RESET_PATIENCE;
    held.iter().for_each(|(queue, _)| queue.stop());
    for (queue, offset) in &held {
        if !queue.leave(deadline.saturating_duration_since(Instant::now())) {
            log::warn!("queue reset while a message is processed: group={} queue={:?}", consumer.group, queue.queue);
        }
        consumer.queues.write().remove(&queue.queue);
        consumer.offsets.update(&queue.queue, *offset);
        log::info!("queue reset: group={} queue={:?} offset={offset}", consumer.group, queue.queue);
    }
    let _ = consumer.persist(); // has been logged; what was not committed is begun at all the same
}

/// Makes the group known to the brokers of its topics, so that the first rebalance finds it.
fn introduce(consumer: &Consumer) {
    if !matches!(consumer.membership, Membership::Group) {
        return;
    }
    for topic in consumer.subscriptions.keys() {
        if let Err(error) = consumer.instance.route(topic) {
            log::debug!("route not known yet: topic={topic} error={error}");
        }
    }
    consumer.instance.heartbeat();
}

/// Decides anew for every topic. Whether everything was there to decide by, and is carried out.
fn rebalance(consumer: &Arc<Consumer>) -> bool {
    let mut balanced = true;
    let mut trouble = None;
    for topic in consumer.subscriptions.keys() {
        match ours(consumer, topic).and_then(|ours| change(consumer, topic, &ours)) {
            Ok(done) => balanced &= done,
            Err(error) => {
                balanced = false;
                log::log!(level_of(topic), "not rebalanced: group={} topic={topic} error={error}", consumer.group);
                if !topic.starts_with(topic::RETRY_PREFIX) {
                    trouble = Some(error);
                }
            }
        }
    }
    *consumer.unbalanced.lock() = trouble;
    balanced
}

/// A retry topic does not exist before the group's first heartbeat: nothing to tell a person.
fn level_of(topic: &str) -> log::Level {
    if topic.starts_with(topic::RETRY_PREFIX) { log::Level::Debug } else { log::Level::Warn }
}

/// The queues of a topic that are to be read here.
fn ours(consumer: &Consumer, topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
    let route = known_route(consumer, topic)?;
    match &consumer.membership {
        Membership::Assigned(Some(queues)) => Ok(queues.iter().filter(|queue| queue.topic == topic).cloned().collect()),
        Membership::Assigned(None) => Ok(route.subscribe.clone()),
        Membership::Group if consumer.config.model == MessageModel::Broadcasting => Ok(route.subscribe.clone()),
        Membership::Group => {
            let members = members(consumer, topic, &route)?;
            let mut queues = route.subscribe.clone();
            queues.sort();
            Ok(averagely(&queues, &members, consumer.instance.client_id()).to_vec())
        }
    }
}

/// The topic's route. When it is new here, its brokers learn of us before they are asked who we are.
fn known_route(consumer: &Consumer, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
    if let Some(route) = consumer.instance.routes().get(topic) {
        return Ok(route);
    }
    let route = consumer.instance.route(topic)?;
    if matches!(consumer.membership, Membership::Group) {
        consumer.instance.heartbeat();
    }
    Ok(route)
}

/// Client ids of the group's members, sorted, from any broker of the topic.
fn members(consumer: &Consumer, topic: &str, route: &TopicRoute) -> Result<Vec<String>, ClientError> {
    let brokers = &route.data.broker_datas;
    let first = fastrand::usize(..brokers.len().max(1));
    let mut last = ClientError::NoRoute(topic.to_owned(), "no broker".to_owned());
    for step in 0..brokers.len() {
        let broker = &brokers[(first + step) % brokers.len()];
        let Some(address) = consumer.instance.routes().member(&broker.broker_name, super::route::MASTER_ID) else { continue };
        let header = [("consumerGroup", consumer.group.as_str())];
        match consumer.instance.call(&address, request::GET_CONSUMER_LIST_BY_GROUP, &header, Body::Empty) {
            Ok(answer) => return read_members(consumer, &address, answer.view().body),
            Err(error) => last = error,
        }
    }
    consumer.instance.beat_soon(); // the broker may have forgotten us
    Err(last)
}

fn read_members(consumer: &Consumer, address: &str, body: &[u8]) -> Result<Vec<String>, ClientError> {
    let value = fastjson::parse(body).map_err(|what| ClientError::Answer(address.to_owned(), what))?;
    let list = value.get("consumerIdList").map(fastjson::Value::elements).unwrap_or_default();
    let mut members: Vec<String> = list.iter().filter_map(|id| id.as_text().map(std::borrow::Cow::into_owned)).collect();
    members.sort_unstable();
    if !members.iter().any(|member| member == consumer.instance.client_id()) {
        consumer.instance.beat_soon();
        return Err(ClientError::Answer(address.to_owned(), format!("the members of {} are told without this one", consumer.group)));
    }
    Ok(members)
}

/// Gives up queues of `topic` that are not among `ours`, begins those that are new. Whether all of it could be done; an error when a queue
/// could not be begun for it.
fn change(consumer: &Arc<Consumer>, topic: &str, ours: &[MessageQueue]) -> Result<bool, ClientError> {
    let wanted: BTreeSet<&MessageQueue> = ours.iter().collect();
    let held: Vec<Arc<ProcessQueue>> = consumer.queues.read().values().filter(|held| held.queue.topic == topic).cloned().collect();
    let mut done = true;
    for lost in held.iter().filter(|held| !wanted.contains(&held.queue)) {
        done &= give_up(consumer, lost);
    }
    let new: Vec<MessageQueue> = wanted.into_iter().filter(|wanted| !held.iter().any(|held| held.queue == **wanted)).cloned().collect();
    if new.is_empty() {
        return Ok(done);
    }
    let locked = if consumer.locks() { lock(consumer, &new) } else { new.iter().cloned().collect() };
    let mut failure = None;
    for queue in new {
        if !locked.contains(&queue) {
            done = false;
        } else if let Err(error) = begin(consumer, queue) {
            failure = Some(error);
        }
    }
    failure.map_or(Ok(done), Err)
}

/// Stops reading a queue. An orderly queue stays until its message is processed.
fn give_up(consumer: &Consumer, queue: &Arc<ProcessQueue>) -> bool {
    let quiet = queue.leave(LEAVE_PATIENCE);
    if !quiet && consumer.config.orderly {
        return false;
    }
    let _ = consumer.persist(); // has been logged; the next member repeats what was not committed
    consumer.queues.write().remove(&queue.queue);
    consumer.offsets.forget(&queue.queue);
    if consumer.locks() {
        unlock(consumer, std::slice::from_ref(&queue.queue));
    }
    log::info!("queue given up: group={} queue={:?}", consumer.group, queue.queue);
    true
}

fn begin(consumer: &Arc<Consumer>, queue: MessageQueue) -> Result<(), ClientError> {
    let offset = start_offset(consumer, &queue)?;
    log::info!("queue begun: group={} queue={queue:?} offset={offset}", consumer.group);
    let now_ms = consumer.instance.now_ms();
    let process_queue = Arc::new(ProcessQueue::new(queue.clone(), offset, consumer.config.orderly, now_ms));
    if consumer.locks() {
        process_queue.locked(now_ms, now_ms + LOCK_LIFE_MS);
    }
    consumer.queues.write().insert(queue, process_queue.clone());
    consumer.pull.send(PullEvent::Pull(process_queue)).map_err(|_| ClientError::Closed)
}

fn start_offset(consumer: &Consumer, queue: &MessageQueue) -> Result<i64, ClientError> {
    let instance = &consumer.instance;
    if let Some(offset) = consumer.offsets.read(instance, queue)? {
        return Ok(offset);
    }
    let retry = queue.topic.starts_with(topic::RETRY_PREFIX);
    match consumer.config.from {
        ConsumeFrom::Last | ConsumeFrom::Offset(_) if retry => Ok(0),
        ConsumeFrom::Last => queue_api::max_offset(instance, queue),
        ConsumeFrom::First => queue_api::min_offset(instance, queue).map(|offset| offset.max(0)),
        ConsumeFrom::Timestamp(_) if retry => queue_api::max_offset(instance, queue),
        ConsumeFrom::Timestamp(at_ms) => queue_api::search_offset(instance, queue, at_ms),
        ConsumeFrom::Offset(offset) => Ok(offset),
    }
}

/// Asks the brokers for the locks of `queues`; which of them are ours. Queues held here have their lock prolonged or taken away.
fn lock(consumer: &Consumer, queues: &[MessageQueue]) -> BTreeSet<MessageQueue> {
    let mut locked = BTreeSet::new();
    for (broker, queues) in by_broker(queues) {
        let asked_ms = consumer.instance.now_ms();
        match ask_lock(consumer, &broker, &queues, request::LOCK_BATCH_MQ) {
            Ok(ours) => {
                for queue in &queues {
                    let is_ours = ours.contains(queue);
                    if let Some(held) = consumer.queues.read().get(queue) {
                        if is_ours {
                            held.locked(asked_ms, asked_ms + LOCK_LIFE_MS);
                        } else {
                            held.not_locked();
                        }
                    }
                }
                locked.extend(ours);
            }
            Err(error) => log::warn!("queues not locked: group={} broker={broker} error={error}", consumer.group),
        }
    }
    locked
}

/// Gives locks back.
pub(super) fn unlock(consumer: &Consumer, queues: &[MessageQueue]) {
    for (broker, queues) in by_broker(queues) {
        if let Err(error) = ask_lock(consumer, &broker, &queues, request::UNLOCK_BATCH_MQ) {
            log::warn!("queues not unlocked, their locks expire: group={} broker={broker} error={error}", consumer.group);
        }
    }
}

fn ask_lock(consumer: &Consumer, broker: &str, queues: &[MessageQueue], code: i32) -> Result<Vec<MessageQueue>, ClientError> {
    let topic = queues.first().map(|queue| queue.topic.as_str()).unwrap_or_default();
    let address = consumer.instance.master(topic, broker)?;
    let body = LockBatchBody {
        consumer_group: consumer.group.clone(),
        client_id: consumer.instance.client_id().to_owned(),
        mq_set: queues.to_vec(),
        only_this_broker: false,
    };
    let answer = consumer.instance.call(&address, code, &(), body.to_json().into())?;
    if code == request::UNLOCK_BATCH_MQ {
        return Ok(Vec::new());
    }
    lock_ok_from_json(answer.view().body).map_err(|what| ClientError::Answer(address, what))
}

fn by_broker(queues: &[MessageQueue]) -> BTreeMap<String, Vec<MessageQueue>> {
    let mut brokers: BTreeMap<String, Vec<MessageQueue>> = BTreeMap::new();
    for queue in queues {
        brokers.entry(queue.broker_name.clone()).or_default().push(queue.clone());
    }
    brokers
}
