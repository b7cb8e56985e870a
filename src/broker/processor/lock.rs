//! Queue locks of orderly consumers: 41 locks, 42 unlocks. A lone broker decides by itself.

use std::collections::HashSet;
use std::sync::Arc;

use crate::broker::context::BrokerContext;
use crate::net::service::Placement;
use crate::remoting::body::lock::{LockBatchBody, lock_ok_json};
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::code::request as code;
use crate::remoting::command::Command;

use super::Handler;
use super::answer::{Answer, Outcome, send};

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[
    (code::LOCK_BATCH_MQ, Placement::Inline, |context, request, to| send(to, lock(context, request))),
    (code::UNLOCK_BATCH_MQ, Placement::Inline, |context, request, to| send(to, unlock(context, request))),
];

fn lock(context: &Arc<BrokerContext>, request: &Command<'_>) -> Outcome {
    let body = LockBatchBody::from_json(request.body)?;
    let held = context.locks.lock(&body.consumer_group, &body.client_id, &queues(&body), context.clock.now_ms());
    let held: HashSet<(&str, i32)> = held.iter().map(|(topic, queue_id)| (topic.as_str(), *queue_id)).collect();
    // The client finds its queues again by name: they go back as they came, broker name included.
    let held: Vec<MessageQueue> =
        body.mq_set.iter().filter(|queue| held.contains(&(queue.topic.as_str(), queue.queue_id))).cloned().collect();
    Ok(Answer::json(lock_ok_json(&held)))
}

fn unlock(context: &Arc<BrokerContext>, request: &Command<'_>) -> Outcome {
    let body = LockBatchBody::from_json(request.body)?;
    context.locks.unlock(&body.consumer_group, &body.client_id, &queues(&body));
    Ok(Answer::default())
}

fn queues(body: &LockBatchBody) -> Vec<(String, i32)> {
    body.mq_set.iter().map(|queue| (queue.topic.clone(), queue.queue_id)).collect()
}
