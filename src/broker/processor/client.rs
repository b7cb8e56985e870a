//! Clients: heartbeats (34), leaving (35), who is there (38, 203, 204, 328), what they may subscribe to (46).
//!
//! A heartbeat is served on the thread that read it, so that the pulls behind it find the group and its subscriptions. When it brings a
//! group or a retry topic into being, they exist at once, and the answer waits, parked, until the files hold them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::broker::clients::{Client, ConsumerGroup, ConsumerHeartbeat};
use crate::broker::context::BrokerContext;
use crate::broker::expressions;
use crate::broker::topic::FLAG_UNIT_SUB;
use crate::common::subscription::{SQL92, SubscriptionGroupConfig};
use crate::common::topic::{PERM_READ_WRITE, TopicConfig, retry_topic};
use crate::net::responder::Responder;
use crate::net::service::Placement;
use crate::remoting::body::client::{
    CheckClientBody, ClientConnection, consumer_connection_json, consumer_list_json, producer_connection_json, producer_table_json,
};
use crate::remoting::body::heartbeat::{ConsumerData, HeartbeatData};
use crate::remoting::code::{request as code, response};
use crate::remoting::command::{Body, Command};
use crate::remoting::header::client::{SUBSCRIPTIONS_WANTED, SUPPORTS_HEARTBEAT_V2, UnregisterClientRequest};

use super::Handler;
use super::answer::{Answer, Outcome, Refusal, send};

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[
    (code::HEART_BEAT, Placement::Inline, heartbeat),
    (code::UNREGISTER_CLIENT, Placement::Inline, unregister),
    (code::GET_CONSUMER_LIST_BY_GROUP, Placement::Inline, |context, request, to| send(to, consumer_list(context, request))),
    (code::CHECK_CLIENT_CONFIG, Placement::Inline, |context, request, to| send(to, check_client(context, request))),
    (code::GET_CONSUMER_CONNECTION_LIST, Placement::Pool, |context, request, to| send(to, consumer_connections(context, request))),
    (code::GET_PRODUCER_CONNECTION_LIST, Placement::Pool, |context, request, to| send(to, producer_connections(context, request))),
    (code::GET_ALL_PRODUCER_INFO, Placement::Pool, |context, _request, to| send(to, all_producers(context))),
];

fn heartbeat(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let data = match HeartbeatData::from_json(request.body) {
        Ok(data) if !data.client_id.is_empty() => data,
        Ok(_) => return responder.error(response::SYSTEM_ERROR, "the heartbeat names no clientID"),
        Err(why) => return responder.error(response::SYSTEM_ERROR, &format!("the heartbeat cannot be read: {why}")),
    };
    if let Err(why) = context.clients.check_room(responder.connection().id(), &data) {
        return responder.error(response::SYSTEM_ERROR, &why);
    }
    let now_ms = context.clock.now_ms();
    let client = Client::new(data.client_id.as_str(), request.language, request.version, responder.connection().clone(), now_ms);
    let producers: Vec<&str> = data.producers.iter().map(String::as_str).filter(|group| !group.is_empty()).collect();
    context.clients.producer_heartbeat(&producers, &client);
    let mut made = Made::default();
    // Without a fingerprint (version 1) every heartbeat carries the subscriptions anyway, and the reference says "true".
    let mut subscriptions_wanted = data.fingerprint == 0;
    for consumer in data.consumers {
        let Some((config, created)) = context.groups.find_or_create_flagged(&consumer.group_name, now_ms) else { continue };
        made.group |= created;
        made.topic |= ensure_retry_topic(context, &config, &consumer, now_ms);
        let group = consumer.group_name.clone();
        let keep_subscriptions = data.without_sub && data.fingerprint != 0;
        if keep_subscriptions && !context.clients.has_fingerprint(&group, client.connection.id(), data.fingerprint) {
            subscriptions_wanted = true;
        }
        let before = context.clients.consumer_group(&group).filter(|known| !known.expressions.is_empty());
        context.clients.consumer_heartbeat(&of_group(consumer, data.fingerprint), &client, keep_subscriptions);
        if let Some(before) = before {
            release_pulls(context, &group, &before);
        }
    }
    if made.topic {
        context.registration.request();
    }
    answer_heartbeat(context, &made, subscriptions_wanted, responder);
}

/// Lets go of the pulls that wait for matches of expressions that are no longer the group's.
fn release_pulls(context: &BrokerContext, group: &str, before: &ConsumerGroup) {
    let now = context.clients.consumer_group(group);
    for (topic, expression) in before.expressions.iter().filter_map(|(topic, compiled)| Some((topic, compiled.as_ref().ok()?))) {
        let current = now.as_ref().and_then(|now| now.expressions.get(topic)).and_then(|compiled| compiled.as_ref().ok());
        if current.is_none_or(|current| !Arc::ptr_eq(current, expression)) {
            context.hold.expression_gone(topic, expression);
        }
    }
}

/// What a heartbeat has brought into being.
#[derive(Default)]
struct Made {
    group: bool,
    topic: bool,
}

fn of_group(consumer: ConsumerData, fingerprint: i32) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        group: consumer.group_name,
        consume_type: consumer.consume_type,
        message_model: consumer.message_model,
        consume_from_where: consumer.consume_from_where,
        subscriptions: consumer.subscriptions,
        fingerprint,
    }
}

/// True when the group's retry topic was missing.
fn ensure_retry_topic(context: &BrokerContext, config: &SubscriptionGroupConfig, consumer: &ConsumerData, now_ms: i64) -> bool {
    let name = retry_topic(&config.group_name);
    if config.retry_queue_nums <= 0 || context.topics.get(&name).is_some() {
        return false;
    }
    let is_ordered = |topic: &str| context.topics.get(topic).is_some_and(|topic| topic.order);
    let topic = TopicConfig {
        order: consumer.subscriptions.iter().any(|subscription| is_ordered(&subscription.topic)),
        topic_sys_flag: if consumer.unit_mode { FLAG_UNIT_SUB } else { 0 },
        ..TopicConfig::new(name, config.retry_queue_nums, PERM_READ_WRITE)
    };
    context.topics.ensure_in_memory(topic, now_ms).1
}

fn answer_heartbeat(context: &BrokerContext, made: &Made, subscriptions_wanted: bool, responder: Responder) {
    let parked = Arc::new(ParkedHeartbeat { responder: Mutex::new(Some(responder)), subscriptions_wanted });
    if made.group {
        context.groups.when_durable(parked.release());
    }
    if made.topic {
        context.topics.when_durable(parked.release());
    }
}

/// Answers when the last one who waits lets go of it; at once when nobody does.
struct ParkedHeartbeat {
    responder: Mutex<Option<Responder>>,
    subscriptions_wanted: bool,
}

impl ParkedHeartbeat {
    fn release(self: &Arc<Self>) -> Box<dyn FnOnce(Result<(), String>) + Send> {
        let parked = Arc::clone(self);
        Box::new(move |written| {
            // The client is registered all the same, and the writer tries again: nothing the client could do better.
            if let Err(why) = written {
                log::error!("heartbeat answered although what it made is not durable yet: cause={why}");
            }
            drop(parked);
        })
    }
}

impl Drop for ParkedHeartbeat {
    fn drop(&mut self) {
        if let Some(responder) = self.responder.lock().take() {
            let wanted = if self.subscriptions_wanted { "true" } else { "false" };
            let header = [(SUPPORTS_HEARTBEAT_V2, "true"), (SUBSCRIPTIONS_WANTED, wanted)];
            responder.reply(response::SUCCESS, None, &header, Body::Empty);
        }
    }
}

fn unregister(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let header = UnregisterClientRequest::decode(request);
    let connection = responder.connection().id();
    context.clients.unregister(connection, &header.client_id, header.producer_group.as_deref(), header.consumer_group.as_deref());
    responder.ok();
}

/// An empty list would make clients drop their queues: nobody there is an error.
fn consumer_list(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let group = request.ext.need_text("consumerGroup")?;
    let known = context.clients.consumer_group(&group).map(|known| known.client_ids()).filter(|known| !known.is_empty());
    let known = known.ok_or_else(|| Refusal(response::SYSTEM_ERROR, format!("no consumer for this group, {group}")))?;
    Ok(Answer::json(consumer_list_json(known)))
}

fn check_client(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let body = CheckClientBody::from_json(request.body)?;
    let Some(subscription) = body.subscription.filter(|subscription| !subscription.is_tag()) else { return Ok(Answer::default()) };
    if !subscription.expression_type.eq_ignore_ascii_case(SQL92) {
        let text =
            format!("the expression type {:?} of topic {} is neither TAG nor SQL92", subscription.expression_type, subscription.topic);
        return Err(Refusal(response::SUBSCRIPTION_PARSE_FAILED, text));
    }
    if let Some(why) = context.no_sql92() {
        return Err(Refusal(response::SYSTEM_ERROR, why));
    }
    match expressions::compile(&subscription.sub_string) {
        Ok(_) => Ok(Answer::default()),
        Err(why) => Err(Refusal(response::SUBSCRIPTION_PARSE_FAILED, format!("topic {}: {why}", subscription.topic))),
    }
}

fn consumer_connections(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let group = request.ext.need_text("consumerGroup")?;
    let offline = || Refusal(response::CONSUMER_NOT_ONLINE, format!("the consumer group[{group}] not online"));
    let known = context.clients.consumer_group(&group).ok_or_else(offline)?;
    let connections = views(&known.clients());
    Ok(Answer::json(consumer_connection_json(
        &connections,
        known.consume_type,
        known.message_model,
        known.consume_from_where,
        &known.subscriptions,
    )))
}

fn producer_connections(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let group = request.ext.need_text("producerGroup")?;
    let clients = context.clients.producers(&group);
    if clients.is_empty() {
        return Err(Refusal(response::SYSTEM_ERROR, format!("the producer group[{group}] not exist")));
    }
    Ok(Answer::json(producer_connection_json(&views(&clients))))
}

fn all_producers(context: &BrokerContext) -> Outcome {
    let groups = context.clients.producer_groups().into_iter();
    let table: std::collections::BTreeMap<_, _> = groups
        .map(|group| {
            let clients = views(&context.clients.producers(&group));
            (group, clients)
        })
        .filter(|(_, clients)| !clients.is_empty())
        .collect();
    if table.is_empty() {
        return Err(Refusal(response::SYSTEM_ERROR, "no producer is connected to this broker".to_owned()));
    }
    Ok(Answer::json(producer_table_json(&table)))
}

fn views(clients: &[Arc<Client>]) -> Vec<ClientConnection> {
    let view = |client: &Arc<Client>| ClientConnection {
        client_id: client.client_id.clone(),
        client_addr: client.connection.peer().to_string(),
        language: client.language.name(),
        version: client.version,
        last_update_ms: client.last_update_ms(),
    };
    clients.iter().map(view).collect()
}
