//! Administration of consumption: 43, 208, 222, 303, 308, 314, 317.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::broker::context::BrokerContext;
use crate::common::topic::TopicConfig;
use crate::net::service::Placement;
use crate::remoting::body::admin::{ConsumeOffset, ConsumeStats, consume_stats_list_json, correction_offsets_json, reset_offset_json};
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::body::topic::{QueueTimeSpan, time_spans_json};
use crate::remoting::code::{request as code, response};
use crate::remoting::command::{Command, Language};
use crate::remoting::header::admin::ResetOffsetRequest;
use crate::store::reading::Boundary;

use super::Handler;
use super::admin_topic::{check_master, existing_topic};
use super::answer::{Answer, Outcome, Refusal, send};
use super::relay::FIRST_STATUS_VERSION;

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[
    (code::GET_ALL_CONSUMER_OFFSET, Placement::Pool, |context, _request, to| send(to, all_offsets(context))),
    (code::GET_CONSUME_STATS, Placement::Pool, |context, request, to| send(to, consume_stats(context, request))),
    (code::GET_BROKER_CONSUME_STATS, Placement::Pool, |context, request, to| send(to, broker_consume_stats(context, request))),
    (code::INVOKE_BROKER_TO_RESET_OFFSET, Placement::Pool, |context, request, to| send(to, reset(context, request))),
    (code::QUERY_CONSUME_TIME_SPAN, Placement::Pool, |context, request, to| send(to, time_spans(context, request))),
    (code::QUERY_CORRECTION_OFFSET, Placement::Pool, |context, request, to| send(to, correction_offsets(context, request))),
    (code::CLONE_GROUP_OFFSET, Placement::Pool, |context, request, to| send(to, clone_offsets(context, request))),
];

fn all_offsets(context: &BrokerContext) -> Outcome {
    if context.offsets.is_empty() {
        return Err(Refusal(response::SYSTEM_ERROR, "No consumer offset in this broker".to_owned()));
    }
    Ok(Answer::json(context.offsets.to_json()))
}

fn consume_stats(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let group = request.ext.need_text("consumerGroup")?;
    let list = request.ext.text("topicList").unwrap_or_default();
    let topic = request.ext.text("topic").unwrap_or_default();
    let listed: Vec<String> = list.split(';').map(str::trim).filter(|topic| !topic.is_empty()).map(str::to_owned).collect();
    let topics = match (listed.is_empty(), topic.trim().is_empty()) {
        (false, _) => listed,
        (true, false) => vec![topic.trim().to_owned()],
        (true, true) => context.offsets.topics_of(&group),
    };
    let mut stats = ConsumeStats::default();
    for topic in topics.iter().filter_map(|topic| consumed_topic(context, &group, topic)) {
        let part = topic_consume_stats(context, &group, &topic, topic.read_queue_nums);
        stats.queues.extend(part.queues);
        stats.consume_tps += part.consume_tps;
    }
    Ok(Answer::json(stats.to_json()))
}

/// The topic, if it exists and the group, when it is online, subscribes to it: what it dropped is not what it lags behind in.
fn consumed_topic(context: &BrokerContext, group: &str, topic: &str) -> Option<Arc<TopicConfig>> {
    let config = context.topics.get(topic)?;
    let online = context.clients.consumer_group(group);
    let dropped = online.is_some_and(|online| !online.subscriptions.is_empty() && !online.subscriptions.contains_key(topic));
    (!dropped).then_some(config)
}

fn topic_consume_stats(context: &BrokerContext, group: &str, topic: &TopicConfig, queues: i32) -> ConsumeStats {
    let name = &topic.topic_name;
    let queue_of = |queue_id: i32| {
        let (_, broker_offset) = context.store.queue_bounds(name, queue_id);
        let consumer_offset = context.offsets.get(name, group, queue_id).unwrap_or(0).max(0);
        let pull_offset = context.offsets.pulled(name, group, queue_id).unwrap_or(0).max(consumer_offset);
        let last_timestamp = if consumer_offset > 0 { context.store.store_time(name, queue_id, consumer_offset - 1).max(0) } else { 0 };
        (queue(context, name, queue_id), ConsumeOffset { broker_offset, consumer_offset, pull_offset, last_timestamp })
    };
    ConsumeStats {
        queues: (0..queues).map(queue_of).collect(),
        consume_tps: context.stats.group_get_tps(name, group, context.clock.now_ms()),
    }
}

fn broker_consume_stats(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let ordered = request.ext.bool("isOrder").unwrap_or(false);
    let stats_of = |group: &str| {
        let topics = context.offsets.topics_of(group);
        let topics = topics.iter().filter_map(|topic| consumed_topic(context, group, topic)).filter(|topic| topic.order == ordered);
        topics.map(|topic| topic_consume_stats(context, group, &topic, topic.write_queue_nums)).collect::<Vec<_>>()
    };
    let groups: Vec<_> = context.groups.all().iter().map(|group| (group.group_name.clone(), stats_of(&group.group_name))).collect();
    Ok(Answer::json(consume_stats_list_json(&context.store_host.to_string(), &groups)))
}

fn reset(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let header = ResetOffsetRequest::decode(request)?;
    let offsets =
        if context.config.server_side_reset_offset { reset_on_server(context, &header)? } else { reset_on_clients(context, &header)? };
    log::info!("offsets reset: group={} topic={} timestamp={} queues={}", header.group, header.topic, header.timestamp, offsets.len());
    Ok(Answer::json(reset_offset_json(&offsets, request.language == Language::CPP)))
}

type QueueOffsets = Vec<(MessageQueue, i64)>;

/// Each queue's target becomes the committed offset and is what the group's next pull is answered.
fn reset_on_server(context: &BrokerContext, header: &ResetOffsetRequest<'_>) -> Result<QueueOffsets, Refusal> {
    check_master(context, "consumer offset").map_err(|_| {
        Refusal(response::SYSTEM_ERROR, format!("Can not reset offset in slave broker: brokerId={}", context.config.broker_id))
    })?;
    let (name, group) = (&*header.topic, &*header.group);
    let topic = context.topics.get(name).ok_or_else(|| Refusal(response::TOPIC_NOT_EXIST, format!("Topic {name} does not exist")))?;
    if context.groups.get(group).is_none() {
        return Err(Refusal(response::SUBSCRIPTION_GROUP_NOT_EXIST, format!("Group {group} does not exist")));
    }
    let queue_ids = if header.queue_id >= 0 { header.queue_id..header.queue_id.saturating_add(1) } else { 0..topic.read_queue_nums };
    if header.queue_id >= topic.read_queue_nums {
        let text = format!("queue {} of topic {name} does not exist, it has {} read queues", header.queue_id, topic.read_queue_nums);
        return Err(Refusal(response::INVALID_PARAMETER, text));
    }
    if queue_ids.is_empty() {
        return Err(Refusal(
            response::SYSTEM_ERROR,
            format!("No queues to reset: topic {name} has {} read queues.", topic.read_queue_nums),
        ));
    }
    let targets: Vec<(i32, i64)> =
        queue_ids.map(|queue_id| Ok((queue_id, target(context, header, queue_id)?))).collect::<Result<_, Refusal>>()?;
    for (queue_id, offset) in &targets {
        context.offsets.reset(name, group, *queue_id, *offset);
    }
    context.offsets.persist_and_wait()?;
    Ok(targets.into_iter().map(|(queue_id, offset)| (queue(context, name, queue_id), offset)).collect())
}

fn target(context: &BrokerContext, header: &ResetOffsetRequest<'_>, queue_id: i32) -> Result<i64, Refusal> {
    let (min_offset, max_offset) = context.store.queue_bounds(&header.topic, queue_id);
    if let Some(offset) = header.offset.filter(|_| header.queue_id >= 0) {
        if !(min_offset..=max_offset + 1).contains(&offset) {
            let text = format!("Target offset {offset} not in consume queue range [{min_offset}-{max_offset}]");
            return Err(Refusal(response::SYSTEM_ERROR, text));
        }
        return Ok(offset);
    }
    Ok(offset_at(context, &header.topic, queue_id, header.timestamp, max_offset))
}

fn offset_at(context: &BrokerContext, topic: &str, queue_id: i32, timestamp_ms: i64, max_offset: i64) -> i64 {
    if timestamp_ms < 0 { max_offset } else { context.store.offset_by_time(topic, queue_id, timestamp_ms, Boundary::Lower).max(0) }
}

/// The group's clients are told (220) and commit the offsets themselves.
fn reset_on_clients(context: &BrokerContext, header: &ResetOffsetRequest<'_>) -> Result<QueueOffsets, Refusal> {
    let (name, group) = (&*header.topic, &*header.group);
    let topic = existing_topic(context, name)?;
    let mut offsets = QueueOffsets::new();
    for queue_id in 0..topic.write_queue_nums {
        let committed = context.offsets.get(name, group, queue_id).filter(|offset| *offset >= 0);
        let unknown = || {
            Refusal(
                response::SYSTEM_ERROR,
                format!("THe consumer group <{group}> not exist: no offset of queue {queue_id} of topic {name}"),
            )
        };
        let committed = committed.ok_or_else(unknown)?;
        let (_, max_offset) = context.store.queue_bounds(name, queue_id);
        let wanted = offset_at(context, name, queue_id, header.timestamp, max_offset);
        let target = if header.is_force || wanted < committed { wanted } else { committed };
        offsets.push((queue(context, name, queue_id), target));
    }
    let offline = || {
        let text = format!("Consumer not online, so can not reset offset, Group: {group} Topic: {name} Timestamp: {}", header.timestamp);
        Refusal(response::CONSUMER_NOT_ONLINE, text)
    };
    let online = context.clients.consumer_group(group).ok_or_else(offline)?;
    let clients = online.clients();
    if let Some(old) = clients.iter().find(|client| client.version < FIRST_STATUS_VERSION) {
        let text = format!(
            "the client {} does not support this feature, its version is {}, needed is {FIRST_STATUS_VERSION}",
            old.client_id, old.version
        );
        return Err(Refusal(response::SYSTEM_ERROR, text));
    }
    let (timestamp, is_force) = (header.timestamp.to_string(), header.is_force.to_string());
    let fields = [("topic", name), ("group", group), ("timestamp", timestamp.as_str()), ("isForce", is_force.as_str())];
    for client in &clients {
        let body = reset_offset_json(&offsets, matches!(client.language, Language::CPP | Language::PYTHON));
        client.connection.oneway(code::RESET_CONSUMER_CLIENT_OFFSET, &fields, body.into());
    }
    Ok(offsets)
}

fn time_spans(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let name = request.ext.need_text("topic")?;
    let group = request.ext.need_text("group")?;
    let topic = existing_topic(context, &name)?;
    let now_ms = context.clock.now_ms();
    let span_of = |queue_id: i32| {
        let (min_offset, max_offset) = context.store.queue_bounds(&name, queue_id);
        let time_at = |offset: i64| context.store.store_time(&name, queue_id, offset);
        let is_empty = min_offset >= max_offset;
        let min_timestamp = if is_empty { -1 } else { time_at(min_offset) };
        let consumed = context.offsets.get(&name, &group, queue_id).unwrap_or(0);
        QueueTimeSpan {
            queue: queue(context, &name, queue_id),
            min_timestamp,
            max_timestamp: if is_empty { -1 } else { time_at(max_offset - 1) },
            consume_timestamp: if consumed > 0 { time_at(consumed - 1) } else { min_timestamp },
            delay_time: if consumed < max_offset { (now_ms - time_at(consumed.max(min_offset))).max(0) } else { 0 },
        }
    };
    let spans: Vec<_> = (0..topic.write_queue_nums).map(span_of).collect();
    Ok(Answer::json(time_spans_json(&spans)))
}

/// For each queue in which `compareGroup` has an offset, the smallest of the other groups' offsets; no limit where that is larger. Unlike the
/// reference, a query removes nothing: `filterGroups` are left out of the comparison only.
fn correction_offsets(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let topic = request.ext.need_text("topic")?;
    let compared = request.ext.need_text("compareGroup")?;
    let left_out = request.ext.text("filterGroups").unwrap_or_default();
    let left_out: Vec<&str> = left_out.split(',').map(str::trim).collect();
    let mut smallest = BTreeMap::<i32, i64>::new();
    for group in context.offsets.groups_of(&topic).iter().filter(|group| !left_out.contains(&group.as_str())) {
        for (queue_id, offset) in context.offsets.queues(&topic, group) {
            let (min_offset, _) = context.store.queue_bounds(&topic, queue_id);
            if offset >= min_offset {
                smallest.entry(queue_id).and_modify(|known| *known = offset.min(*known)).or_insert(offset);
            }
        }
    }
    let own = context.offsets.queues(&topic, &compared);
    let corrected = own.into_iter().map(|(queue_id, offset)| {
        let correction = smallest.get(&queue_id).copied().filter(|correction| *correction <= offset);
        (queue_id, correction.unwrap_or(i64::MAX))
    });
    Ok(Answer::json(correction_offsets_json(&corrected.collect())))
}

/// Copies offsets of a topic, or of all topics of the source group (which the reference promises but does not do).
fn clone_offsets(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    check_master(context, "consumer offset")?;
    let source = request.ext.need_text("srcGroup")?;
    let target = request.ext.need_text("destGroup")?;
    let topic = request.ext.text("topic").filter(|topic| !topic.trim().is_empty());
    let offline = request.ext.bool("offline").unwrap_or(false);
    let topics = topic.map_or_else(|| context.offsets.topics_of(&source), |topic| vec![topic.into_owned()]);
    for topic in topics {
        let wanted = if offline { context.topics.get(&topic) } else { consumed_topic(context, &source, &topic) };
        if wanted.is_some() {
            for (queue_id, offset) in context.offsets.queues(&topic, &source) {
                context.offsets.commit(&topic, &target, queue_id, offset);
            }
        }
    }
    context.offsets.persist_and_wait()?;
    Ok(Answer::default())
}

fn queue(context: &BrokerContext, topic: &str, queue_id: i32) -> MessageQueue {
    MessageQueue::new(topic, &context.config.broker_name, queue_id)
}
