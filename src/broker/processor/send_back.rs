//! Messages that a consumer could not use: 36. They go to the group's retry topic by way of a delay level, or to its dead letters.

use std::sync::Arc;

use crate::broker::context::BrokerContext;
use crate::common::record::{Draft, Record};
use crate::common::subscription::SubscriptionGroupConfig;
use crate::common::topic::{self, PERM_READ_WRITE, PERM_WRITE, TopicConfig};
use crate::common::{message_id, properties};
use crate::net::responder::Responder;
use crate::net::service::Placement;
use crate::remoting::code::{request as code, response};
use crate::remoting::command::Command;
use crate::remoting::header::query::SendBackRequest;
use crate::store::message_store::Durability;

use super::Handler;
use super::parked::when_durable;
use super::send::{clamp_level, put_error_code};
use super::stored_properties;

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[(code::CONSUMER_SEND_MSG_BACK, Placement::Pool, send_back)];

/// First client version whose `maxReconsumeTimes` counts: 3.4.9.
const VERSION_MAX_RECONSUME: i32 = 121;
/// Delay level of the first retry; each further one is a level higher.
const FIRST_RETRY_LEVEL: i32 = 3;
/// Flag of topics that units subscribe to.
const TOPIC_FLAG_UNIT_SUB: i32 = 2;

/// Why the message is not stored: code and text.
type Refusal = (i32, String);

/// A message on its way back, with what is counted once it is there.
struct Returned {
    end: i64,
    topic: String,
    dead: bool,
}

fn send_back(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let header = match SendBackRequest::decode(request) {
        Ok(header) => header,
        Err(error) => return responder.error(response::SYSTEM_ERROR, &error.to_string()),
    };
    let returned = match store_back(context, &header, request.version) {
        Ok(Some(returned)) => returned,
        Ok(None) => return responder.ok(),
        Err((code, text)) => return responder.error(code, &text),
    };
    if returned.dead {
        context.stats.dead_letter(&returned.topic, &header.group);
    }
    context.stats.sent_back(&returned.topic, &header.group);
    // The consumer forgets the message once we say so: not before it is safe.
    when_durable(&context.store, returned.end, true, move |outcome| match outcome {
        Durability::Durable => responder.ok(),
        Durability::Failed(why) => responder.error(response::SYSTEM_ERROR, &why),
        Durability::TimedOut => responder.error(response::SYSTEM_ERROR, "FLUSH_DISK_TIMEOUT"),
    });
}

/// Stores the message for its retry; `None` when the group keeps no retries.
fn store_back(context: &BrokerContext, header: &SendBackRequest<'_>, version: i32) -> Result<Option<Returned>, Refusal> {
    let now_ms = context.clock.now_ms();
    let Some(group) = context.groups.find_or_create(&header.group, now_ms) else {
        let text = format!("subscription group not exist, {}; it was not created (autoCreateSubscriptionGroup)", header.group);
        return Err((response::SUBSCRIPTION_GROUP_NOT_EXIST, text));
    };
    if context.settings.broker_permission() & PERM_WRITE == 0 {
        let permission = context.settings.broker_permission();
        let text = format!("the broker[{}] sending message is forbidden: brokerPermission={permission}", context.store_host.ip());
        return Err((response::NO_PERMISSION, text));
    }
    if group.retry_queue_nums <= 0 {
        return Ok(None);
    }
    let flags = if header.unit_mode { TOPIC_FLAG_UNIT_SUB } else { 0 };
    let retry = ensure(context, &topic::retry_topic(&group.group_name), group.retry_queue_nums, flags)?;
    if retry.perm & PERM_WRITE == 0 {
        return Err((
            response::NO_PERMISSION,
            format!("the topic[{}] sending message is forbidden: perm={}", retry.topic_name, retry.perm),
        ));
    }
    let bytes = context.store.record_at(header.offset);
    let record = match bytes.as_deref().map(Record::parse) {
        Some(Ok(record)) => record,
        _ => return Err((response::SYSTEM_ERROR, format!("look message by offset failed, {}", header.offset))),
    };
    let dead = is_dead(header, &group, &record, version);
    let (topic, queue_id) = if dead {
        (ensure(context, &topic::dlq_topic(&group.group_name), 1, 0)?, 0)
    } else {
        (retry, fastrand::i32(0..group.retry_queue_nums))
    };
    let level = if dead { 0 } else { retry_level(context, header, &record) };
    let end = append(context, &record, &topic.topic_name, queue_id, level)?;
    Ok(Some(Returned { end, topic: record.topic.to_owned(), dead }))
}

fn is_dead(header: &SendBackRequest<'_>, group: &SubscriptionGroupConfig, record: &Record<'_>, version: i32) -> bool {
    let own = header.max_reconsume_times.filter(|max| version >= VERSION_MAX_RECONSUME && *max >= 0);
    record.reconsume_times >= own.unwrap_or(group.retry_max_times) || header.delay_level < 0
}

/// Delay level of the retry, at least 1: a retry goes through the schedule topic, whatever the client asks.
fn retry_level(context: &BrokerContext, header: &SendBackRequest<'_>, record: &Record<'_>) -> i32 {
    let level = if header.delay_level == 0 { record.reconsume_times.saturating_add(FIRST_RETRY_LEVEL) } else { header.delay_level };
    clamp_level(context, level)
}

fn ensure(context: &BrokerContext, name: &str, queues: i32, flags: i32) -> Result<Arc<TopicConfig>, Refusal> {
    if let Some(topic) = context.topics.get(name) {
        return Ok(topic);
    }
    let (topic, created) = context
        .topics
        .ensure(name, queues, PERM_READ_WRITE, flags, context.clock.now_ms())
        .map_err(|text| (response::SYSTEM_ERROR, format!("topic[{name}] not exist: {text}")))?;
    if created {
        context.registration.register_topic(name);
    }
    Ok(topic)
}

/// Appends the message anew, on `level` (0: at once); returns the end of its record.
fn append(context: &BrokerContext, record: &Record<'_>, topic: &str, queue_id: i32, level: i32) -> Result<i64, Refusal> {
    let mut text = record.properties.to_owned();
    if properties::find(&text, properties::RETRY_TOPIC).is_none() {
        properties::set(&mut text, properties::RETRY_TOPIC, record.topic);
    }
    if properties::find(&text, properties::ORIGIN_MESSAGE_ID).is_none() {
        let id = message_id::format(record.store_host, record.physical_offset);
        properties::set(&mut text, properties::ORIGIN_MESSAGE_ID, &id);
    }
    let mut buffer = itoa::Buffer::new();
    properties::set(&mut text, properties::DELAY, buffer.format(level));
    if level > 0 {
        properties::set(&mut text, properties::REAL_TOPIC, topic);
        properties::set(&mut text, properties::REAL_QID, buffer.format(queue_id));
    }
    stored_properties::fit(&mut text).map_err(|why| (response::MESSAGE_ILLEGAL, why))?;
    let (topic, queue_id) = if level > 0 { (topic::SCHEDULE_TOPIC, level - 1) } else { (topic, queue_id) };
    let draft = Draft {
        topic,
        queue_id,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_timestamp: record.born_timestamp,
        born_host: record.born_host,
        store_host: context.store_host,
        reconsume_times: record.reconsume_times.saturating_add(1),
        prepared_transaction_offset: 0,
        body: record.body,
        properties: text.as_bytes(),
    };
    match context.store.put(&draft) {
        Ok(appended) => {
            context.stats.put(topic, queue_id, 1, appended.size as u64);
            Ok(appended.end())
        }
        Err(error) => Err((put_error_code(&error), error.to_string())),
    }
}
