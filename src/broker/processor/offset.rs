//! Offsets: 14, 15 (committed), 29 to 32 (of a queue), 45 (delay levels).

use std::sync::Arc;

use crate::broker::context::BrokerContext;
use crate::net::responder::Responder;
use crate::net::service::Placement;
use crate::remoting::code::{request as code, response};
use crate::remoting::command::{Body, Command};
use crate::remoting::ext::FieldError;
use crate::remoting::header::offset::{
    OffsetResponse, QueryConsumerOffsetRequest, QueueRequest, SearchOffsetRequest, TimestampResponse, UpdateConsumerOffsetRequest,
};
use crate::store::reading::Boundary;

use super::Handler;

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[
    (code::QUERY_CONSUMER_OFFSET, Placement::Inline, query_consumer_offset),
    (code::UPDATE_CONSUMER_OFFSET, Placement::Inline, update_consumer_offset),
    // Searches by time look at records all over the log.
    (code::SEARCH_OFFSET_BY_TIMESTAMP, Placement::Pool, search_offset),
    (code::GET_MAX_OFFSET, Placement::Inline, max_offset),
    (code::GET_MIN_OFFSET, Placement::Inline, min_offset),
    (code::GET_EARLIEST_MSG_STORETIME, Placement::Pool, earliest_store_time),
    (code::GET_ALL_DELAY_OFFSET, Placement::Pool, delay_offsets),
];

fn query_consumer_offset(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let header = match QueryConsumerOffsetRequest::decode(request) {
        Ok(header) => header,
        Err(error) => return responder.error(response::SYSTEM_ERROR, &error.to_string()),
    };
    match committed_offset(context, &header) {
        Ok(offset) => reply_offset(responder, offset),
        Err(text) => responder.error(response::QUERY_NOT_FOUND, text),
    }
}

/// The offset at which a group goes on, or why it has none: that difference decides where a new group begins.
fn committed_offset(context: &BrokerContext, header: &QueryConsumerOffsetRequest<'_>) -> Result<i64, &'static str> {
    let (topic, group, queue_id) = (&*header.topic, &*header.consumer_group, header.queue_id);
    if context.config.server_side_reset_offset
        && let Some(offset) = context.offsets.pending_reset(topic, group, queue_id)
    {
        return Ok(offset);
    }
    if let Some(offset) = context.offsets.get(topic, group, queue_id).filter(|offset| *offset >= 0) {
        return Ok(offset);
    }
    if header.set_zero_if_not_found == Some(false) {
        return Err("Not found, do not set to zero, maybe this group boot first");
    }
    let (min_offset, _) = context.store.queue_bounds(topic, queue_id);
    // A young queue that memory still holds is consumed from its start, even by groups that begin at the end.
    if min_offset <= 0 && context.store.first_message_in_memory(topic, queue_id) {
        return Ok(0);
    }
    Err("Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
}

fn update_consumer_offset(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let header = match UpdateConsumerOffsetRequest::decode(request) {
        Ok(header) => header,
        Err(error) => {
            let absent = matches!(error, FieldError::Missing("queueId" | "commitOffset"));
            return responder.error(if absent { response::INVALID_PARAMETER } else { response::SYSTEM_ERROR }, &error.to_string());
        }
    };
    if context.groups.get(&header.consumer_group).is_none() {
        return responder.error(response::SUBSCRIPTION_GROUP_NOT_EXIST, &format!("Group {} not exist!", header.consumer_group));
    }
    if context.topics.get(&header.topic).is_none() {
        return responder.error(response::TOPIC_NOT_EXIST, &format!("Topic {} not exist!", header.topic));
    }
    if context.offsets.commit(&header.topic, &header.consumer_group, header.queue_id, header.commit_offset) {
        responder.ok();
    } else {
        responder.reply(response::SUCCESS, Some("Offset has been previously reset"), &(), Body::Empty);
    }
}

fn search_offset(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    match SearchOffsetRequest::decode(request) {
        Ok(header) => {
            let boundary = if header.upper { Boundary::Upper } else { Boundary::Lower };
            reply_offset(responder, context.store.offset_by_time(&header.topic, header.queue_id, header.timestamp, boundary));
        }
        Err(error) => responder.error(response::SYSTEM_ERROR, &error.to_string()),
    }
}

fn max_offset(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    match QueueRequest::decode(request) {
        Ok(header) => reply_offset(responder, context.store.queue_bounds(&header.topic, header.queue_id).1),
        Err(error) => responder.error(response::SYSTEM_ERROR, &error.to_string()),
    }
}

fn min_offset(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    match QueueRequest::decode(request) {
        Ok(header) => reply_offset(responder, context.store.queue_bounds(&header.topic, header.queue_id).0),
        Err(error) => responder.error(response::SYSTEM_ERROR, &error.to_string()),
    }
}

fn earliest_store_time(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let header = match QueueRequest::decode(request) {
        Ok(header) => header,
        Err(error) => return responder.error(response::SYSTEM_ERROR, &error.to_string()),
    };
    let (min_offset, max_offset) = context.store.queue_bounds(&header.topic, header.queue_id);
    let timestamp = if min_offset < max_offset { context.store.store_time(&header.topic, header.queue_id, min_offset) } else { -1 };
    responder.reply(response::SUCCESS, None, &TimestampResponse { timestamp }, Body::Empty);
}

fn delay_offsets(context: &Arc<BrokerContext>, _request: &Command<'_>, responder: Responder) {
    responder.reply(response::SUCCESS, None, &(), context.delay.to_json().into());
}

fn reply_offset(responder: Responder, offset: i64) {
    responder.reply(response::SUCCESS, None, &OffsetResponse { offset }, Body::Empty);
}
