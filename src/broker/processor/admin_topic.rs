//! Administration of topics: 17, 18, 21, 202, 215, 300, 305, 316, 343, 351.
//!
//! Whatever changes the table is durable and registered with the name servers before it is answered.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::broker::attributes;
use crate::broker::context::BrokerContext;
use crate::common::topic::{self, TopicConfig, retry_topic};
use crate::config::broker::BrokerRole;
use crate::net::service::Placement;
use crate::remoting::body::group::group_list_json;
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::body::topic::{
    TopicOffset, topic_config_json, topic_config_list, topic_config_table_json, topic_list_json, topic_stats_json, write_data_version,
};
use crate::remoting::code::{request as code, response};
use crate::remoting::command::Command;
use crate::remoting::header::admin::{CreateTopicRequest, TablePage};
use crate::store::StoreError;

use super::Handler;
use super::answer::{Answer, Outcome, Refusal, send};

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[
    (code::UPDATE_AND_CREATE_TOPIC, Placement::Pool, |context, request, to| send(to, update(context, request))),
    (code::UPDATE_AND_CREATE_TOPIC_LIST, Placement::Pool, |context, request, to| send(to, update_list(context, request))),
    (code::DELETE_TOPIC_IN_BROKER, Placement::Pool, |context, request, to| send(to, delete(context, request))),
    (code::GET_ALL_TOPIC_CONFIG, Placement::Pool, |context, request, to| send(to, all(context, request))),
    (code::GET_TOPIC_CONFIG, Placement::Inline, |context, request, to| send(to, one(context, request))),
    (code::GET_TOPIC_STATS_INFO, Placement::Pool, |context, request, to| send(to, stats(context, request))),
    (code::QUERY_TOPIC_CONSUME_BY_WHO, Placement::Pool, |context, request, to| send(to, groups_of(context, request))),
    (code::QUERY_TOPICS_BY_CONSUMER, Placement::Pool, |context, request, to| send(to, topics_of(context, request))),
    (code::GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Placement::Pool, |context, _request, to| send(to, Ok(system_topics(context)))),
    (code::CLEAN_UNUSED_TOPIC, Placement::Pool, |context, _request, to| send(to, clean_unused(context))),
];

/// Queues of a topic at most: beyond it files and routes grow without use.
const MAX_QUEUES: i32 = 16_384;

/// Refuses administrative changes on a slave: they would not reach the master.
pub(super) fn check_master(context: &BrokerContext, what: &str) -> Result<(), Refusal> {
    let (id, role) = (context.config.broker_id, context.config.broker_role);
    if id == 0 && role != BrokerRole::Slave {
        return Ok(());
    }
    let text = format!("Can't modify {what} from slave broker: brokerId={id} brokerRole={role:?}, send this to the master");
    Err(Refusal(response::SYSTEM_ERROR, text))
}

fn invalid(text: impl Into<String>) -> Refusal {
    Refusal(response::INVALID_PARAMETER, text.into())
}

fn update(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    check_master(context, "topic")?;
    let header = CreateTopicRequest::decode(request)?;
    let wanted = TopicConfig {
        attributes: attributes::parse(&header.attributes).map_err(invalid)?,
        order: header.order,
        perm: header.perm,
        read_queue_nums: header.read_queue_nums,
        topic_filter_type: header.topic_filter_type.into_owned(),
        topic_name: header.topic.into_owned(),
        topic_sys_flag: header.topic_sys_flag,
        write_queue_nums: header.write_queue_nums,
    };
    let name = wanted.topic_name.clone();
    let config = checked(context, wanted)?;
    if context.topics.update(config, context.clock.now_ms())? {
        context.registration.register_topic(&name);
    }
    Ok(Answer::default())
}

/// Unlike the reference, a topic of the list that is stored like this already does not keep the others from being stored.
fn update_list(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    check_master(context, "topic")?;
    let wanted = topic_config_list(request.body)?;
    let configs: Vec<TopicConfig> = wanted.into_iter().map(|wanted| checked(context, wanted)).collect::<Result<_, _>>()?;
    if context.topics.update_all(configs, context.clock.now_ms())? {
        context.registration.register_all();
    }
    Ok(Answer::default())
}

/// The configuration to store: `wanted` holds changes of attributes.
fn checked(context: &BrokerContext, mut wanted: TopicConfig) -> Result<TopicConfig, Refusal> {
    topic::check_topic(&wanted.topic_name).map_err(invalid)?;
    check_system(context, &wanted.topic_name)?;
    for (name, queues) in [("readQueueNums", wanted.read_queue_nums), ("writeQueueNums", wanted.write_queue_nums)] {
        if !(0..=MAX_QUEUES).contains(&queues) {
            return Err(invalid(format!("{name} of topic {} is {queues}, expected 0 to {MAX_QUEUES}", wanted.topic_name)));
        }
    }
    if !(0..=15).contains(&wanted.perm) {
        return Err(invalid(format!("perm of topic {} is {}, expected 0 to 15 (4 read, 2 write)", wanted.topic_name, wanted.perm)));
    }
    if !["SINGLE_TAG", "MULTI_TAG"].contains(&wanted.topic_filter_type.as_str()) {
        let kind = &wanted.topic_filter_type;
        return Err(invalid(format!("topicFilterType of topic {} is {kind:?}, expected SINGLE_TAG or MULTI_TAG", wanted.topic_name)));
    }
    let stored = context.topics.get(&wanted.topic_name);
    let current = stored.as_ref().map(|stored| &stored.attributes);
    wanted.attributes = attributes::alter(current.unwrap_or(&attributes::Attributes::new()), &wanted.attributes).map_err(invalid)?;
    attributes::check_topic(current, &wanted.attributes).map_err(invalid)?;
    if wanted.attributes.get("message.type").is_some_and(|kind| kind == "MIXED") {
        return Err(invalid("MIXED message type is not supported."));
    }
    Ok(wanted)
}

fn check_system(context: &BrokerContext, topic: &str) -> Result<(), Refusal> {
    if context.config.validate_system_topic && context.topics.is_system(topic) {
        return Err(invalid(format!("The topic[{topic}] is conflict with system topic. (validateSystemTopicWhenUpdateTopic=true)")));
    }
    Ok(())
}

fn delete(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    check_master(context, "topic")?;
    let topic = request.ext.text("topic").unwrap_or_default();
    if topic.trim().is_empty() {
        return Err(invalid("The specified topic is blank."));
    }
    check_system(context, &topic)?;
    delete_topic(context, &topic)?;
    Ok(Answer::default())
}

/// Removes a topic with its offsets, statistics and queues, and tells the name servers.
pub(super) fn delete_topic(context: &BrokerContext, topic: &str) -> Result<bool, Refusal> {
    let removed = context.topics.delete(topic, context.clock.now_ms())?;
    context.offsets.remove_topic(topic);
    context.offsets.persist();
    context.stats.topic_deleted(topic);
    let deleted = context.store.delete_topic(topic);
    if removed {
        context.registration.register_all();
    }
    deleted.map_err(|error| not_deleted(topic, &error))?;
    Ok(removed)
}

fn not_deleted(topics: &str, error: &StoreError) -> Refusal {
    log::error!("queues not deleted: topic={topics} {error}");
    Refusal(response::SYSTEM_ERROR, format!("queues of {topics} not deleted: {error}; delete the topic again"))
}

fn all(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let version = context.topics.data_version();
    let topics = context.topics.all();
    if topics.is_empty() {
        return Err(Refusal(response::SYSTEM_ERROR, "No topic in this broker".to_owned()));
    }
    let mut current = String::new();
    write_data_version(&mut current, &version);
    let page = TablePage::decode(request, "topicSeq", "maxTopicNum", &current)?;
    let body = topic_config_table_json(TablePage::of(page, &topics), &version);
    Ok(Answer::json(body).field("totalTopicNum", topics.len().to_string()))
}

fn one(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let name = request.ext.need_text("topic")?;
    let topic = context.topics.get(&name);
    let topic = topic.ok_or_else(|| Refusal(response::TOPIC_NOT_EXIST, format!("No topic in this broker. topic: {name}")))?;
    Ok(Answer::json(topic_config_json(&topic)))
}

/// The topic of a request that needs an existing one.
pub(super) fn existing_topic(context: &BrokerContext, name: &str) -> Result<Arc<TopicConfig>, Refusal> {
    context.topics.get(name).ok_or_else(|| Refusal(response::TOPIC_NOT_EXIST, format!("topic[{name}] not exist")))
}

fn stats(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let name = request.ext.need_text("topic")?;
    let topic = existing_topic(context, &name)?;
    let offset_of = |queue_id: i32| {
        let (min_offset, max_offset) = context.store.queue_bounds(&name, queue_id);
        let last = if max_offset > min_offset { context.store.store_time(&name, queue_id, max_offset - 1) } else { 0 };
        TopicOffset { min_offset, max_offset, last_update_timestamp: last.max(0) }
    };
    let queues: Vec<_> = (0..topic.read_queue_nums.max(topic.write_queue_nums))
        .map(|queue_id| (MessageQueue::new(&*name, &context.config.broker_name, queue_id), offset_of(queue_id)))
        .collect();
    Ok(Answer::json(topic_stats_json(&queues, context.stats.topic_put_tps(&name, context.clock.now_ms()))))
}

fn groups_of(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let topic = request.ext.need_text("topic")?;
    let mut groups: BTreeSet<String> = context.clients.consumer_groups_of(&topic).into_iter().collect();
    groups.extend(context.offsets.groups_of(&topic));
    Ok(Answer::json(group_list_json(groups)))
}

fn topics_of(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let group = request.ext.need_text("group")?;
    Ok(Answer::json(topic_list_json(context.offsets.topics_of(&group), Some(&context.store_host.to_string()))))
}

fn system_topics(context: &BrokerContext) -> Answer {
    Answer::json(topic_list_json(context.topics.system_names(), Some(&context.store_host.to_string())))
}

/// Removes the queues of topics that no longer exist.
fn clean_unused(context: &BrokerContext) -> Outcome {
    let mut unused = Vec::new();
    for (topic, queues) in context.store.topics() {
        if context.topics.get(&topic).is_none() && !context.topics.is_system(&topic) && !is_retry_of_known_group(context, &topic) {
            log::info!("queues of an unused topic are removed: topic={topic} queues={}", queues.len());
            unused.push(topic);
        }
    }
    if !unused.is_empty() {
        let topics: Vec<&str> = unused.iter().map(String::as_str).collect();
        context.store.delete_topics(&topics).map_err(|error| not_deleted(&unused.join(","), &error))?;
    }
    Ok(Answer::default())
}

/// The retry topic of a group that exists may come back with the next heartbeat.
fn is_retry_of_known_group(context: &BrokerContext, topic: &str) -> bool {
    topic.strip_prefix(topic::RETRY_PREFIX).is_some_and(|group| context.groups.get(group).is_some() && retry_topic(group) == topic)
}
