//! Queues assigned by the broker (400) and how groups ask for messages then (401, 402).
//!
//! The queues are this broker's own; a topic on several brokers is assigned by each for itself.

use std::sync::Arc;

use crate::broker::context::BrokerContext;
use crate::common::topic::{RETRY_PREFIX, retry_topic};
use crate::net::service::Placement;
use crate::remoting::body::admin::{QueryAssignmentBody, assignments_json, request_mode_body};
use crate::remoting::body::group::MessageRequestMode;
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::code::{request as code, response};
use crate::remoting::command::Command;

use super::Handler;
use super::answer::{Answer, Outcome, Refusal, send};

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[
    (code::QUERY_ASSIGNMENT, Placement::Inline, |context, request, to| send(to, query(context, request))),
    (code::SET_MESSAGE_REQUEST_MODE, Placement::Pool, |context, request, to| send(to, set_mode(context, request))),
    (code::GET_ALL_MESSAGE_REQUEST_MODE, Placement::Pool, |context, _request, to| {
        send(to, Ok(Answer::json(context.groups.request_modes().to_json())));
    }),
];

/// How queues are dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    /// Neighbouring queues; the first clients get one more when it does not divide.
    Average,
    /// In turn.
    Circle,
}

impl Strategy {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "AVG" => Some(Self::Average),
            "AVG_BY_CIRCLE" => Some(Self::Circle),
            _ => None,
        }
    }

    /// The share of client `index` of `clients`.
    fn share<T: Clone>(self, queues: &[T], index: usize, clients: usize) -> Vec<T> {
        match self {
            Self::Average => {
                let (least, rest) = (queues.len() / clients, queues.len() % clients);
                let begin = index * least + index.min(rest);
                let count = least + usize::from(index < rest);
                queues[begin..begin + count].to_vec()
            }
            Self::Circle => queues.iter().skip(index).step_by(clients).cloned().collect(),
        }
    }
}

fn query(context: &Arc<BrokerContext>, request: &Command<'_>) -> Outcome {
    let body = QueryAssignmentBody::from_json(request.body)?;
    let setting = context.groups.request_modes().get(&body.topic, &body.consumer_group);
    let setting = setting.filter(|_| !body.topic.starts_with(RETRY_PREFIX)).unwrap_or_default();
    let queues = assigned(context, &body, setting.mode, setting.pop_share_queue_num);
    Ok(Answer::json(assignments_json(queues.as_deref(), setting.mode)))
}

fn assigned(
    context: &BrokerContext, body: &QueryAssignmentBody, mode: MessageRequestMode, pop_share_queue_num: i32,
) -> Option<Vec<MessageQueue>> {
    let topic = context.topics.get(&body.topic)?;
    let queue = |queue_id: i32| MessageQueue::new(&body.topic, &context.config.broker_name, queue_id);
    let queues: Vec<MessageQueue> = (0..topic.read_queue_nums).map(queue).collect();
    if body.is_broadcasting {
        return Some(queues);
    }
    let strategy = Strategy::from_name(&body.strategy_name)?;
    let group = context.clients.consumer_group(&body.consumer_group)?;
    let clients = group.client_ids();
    let mut clients: Vec<&str> = clients.iter().map(String::as_str).collect();
    clients.sort_unstable();
    match mode {
        MessageRequestMode::Pull => {
            let index = clients.iter().position(|client| *client == body.client_id);
            Some(index.map_or_else(Vec::new, |index| strategy.share(&queues, index, clients.len())))
        }
        MessageRequestMode::Pop => Some(pop_share(strategy, &queues, &clients, &body.client_id, pop_share_queue_num, queue(-1))),
    }
}

/// In pop mode clients share queues: all of them (queue -1), or their own and those of the `shared` clients that follow.
fn pop_share(
    strategy: Strategy, queues: &[MessageQueue], clients: &[&str], client_id: &str, shared: i32, any_queue: MessageQueue,
) -> Vec<MessageQueue> {
    let shared = usize::try_from(shared).unwrap_or(0);
    if shared == 0 || shared + 1 >= clients.len() {
        return vec![any_queue];
    }
    let Some(own) = clients.iter().position(|client| *client == client_id) else { return Vec::new() };
    if clients.len() > queues.len() {
        // More clients than queues: each has one, and several have the same.
        return queues.get(own % queues.len().max(1)).cloned().into_iter().collect();
    }
    (own..=own + shared).flat_map(|index| strategy.share(queues, index % clients.len(), clients.len())).collect()
}

fn set_mode(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let setting = request_mode_body(request.body)?;
    if setting.topic.starts_with(RETRY_PREFIX) || setting.topic == retry_topic(&setting.consumer_group) {
        return Err(Refusal(response::NO_PERMISSION, format!("retry topic is not allowed to set mode: {}", setting.topic)));
    }
    if context.topics.get(&setting.topic).is_none() {
        return Err(Refusal(response::TOPIC_NOT_EXIST, format!("topic[{}] not exist", setting.topic)));
    }
    if context.groups.get(&setting.consumer_group).is_none() {
        return Err(Refusal(
            response::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("subscription group [{}] does not exist", setting.consumer_group),
        ));
    }
    context.groups.request_modes().set(setting)?;
    Ok(Answer::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_disjoint_complete_and_even() {
        for queues in 0..12usize {
            let all: Vec<usize> = (0..queues).collect();
            for clients in 1..8usize {
                for strategy in [Strategy::Average, Strategy::Circle] {
                    let shares: Vec<Vec<usize>> = (0..clients).map(|index| strategy.share(&all, index, clients)).collect();
                    let mut dealt: Vec<usize> = shares.iter().flatten().copied().collect();
                    dealt.sort_unstable();
                    assert_eq!(dealt, all, "{strategy:?} {queues} queues, {clients} clients");
                    let sizes = shares.iter().map(Vec::len);
                    assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1, "{strategy:?} {shares:?}");
                }
            }
        }
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(Strategy::Average.share(&all, 0, 3), [0, 1, 2]);
        assert_eq!(Strategy::Average.share(&all, 2, 3), [6, 7]);
        assert_eq!(Strategy::Circle.share(&all, 1, 3), [1, 4, 7]);
    }

    #[test]
    fn pop_clients_share() {
        let queues: Vec<MessageQueue> = (0..4).map(|id| MessageQueue::new("T", "b", id)).collect();
        let any = MessageQueue::new("T", "b", -1);
        let ids = |clients: &[&str], client: &str, shared: i32| -> Vec<i32> {
            let share = pop_share(Strategy::Average, &queues, clients, client, shared, any.clone());
            share.iter().map(|queue| queue.queue_id).collect()
        };
        assert_eq!(ids(&["a", "b", "c", "d"], "b", 0), [-1]);
        assert_eq!(ids(&["a", "b"], "b", 1), [-1], "all clients share");
        assert_eq!(ids(&["a", "b", "c", "d"], "d", 1), [3, 0]);
        assert_eq!(ids(&["a", "b", "c", "d", "e", "f"], "f", 1), [1], "more clients than queues");
        assert_eq!(ids(&["a", "b", "c", "d"], "x", 1), [] as [i32; 0]);
    }
}
