//! Looking at messages: 12 (by key), 33 (by physical offset), 321 (a consume queue).

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use smallvec::{SmallVec, smallvec};

use crate::broker::context::BrokerContext;
use crate::common::record::Record;
use crate::net::responder::Responder;
use crate::net::service::Placement;
use crate::remoting::code::{request as code, response};
use crate::remoting::codec::MAX_FRAME_LEN;
use crate::remoting::command::{Body, Command};
use crate::remoting::header::query::{QueryConsumeQueueRequest, QueryMessageRequest, QueryMessageResponse, ViewMessageRequest};

use super::{Handler, client_view};

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[
    (code::QUERY_MESSAGE, Placement::Pool, query_message),
    (code::VIEW_MESSAGE_BY_ID, Placement::Pool, view_message),
    (code::QUERY_CONSUME_QUEUE, Placement::Pool, query_consume_queue),
];

/// Bytes of messages in one answer to 12; the rest of the frame is for its header.
const MAX_BODY_LEN: usize = MAX_FRAME_LEN - (64 << 10);
/// Units that one 321 tells at most.
const MAX_UNITS: i32 = 1_024;

fn query_message(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let header = match QueryMessageRequest::decode(request) {
        Ok(header) => header,
        Err(error) => return responder.error(response::SYSTEM_ERROR, &error.to_string()),
    };
    // Several messages may carry one unique key (retries): a search for it must not stop at the first.
    let max = if header.unique_key { context.config.default_query_max } else { usize::try_from(header.max_num).unwrap_or(0) };
    let found = context.store.query(&header.topic, &header.key, max, header.begin_timestamp, header.end_timestamp);
    let answer = QueryMessageResponse {
        index_last_update_timestamp: found.index_last_update_timestamp,
        index_last_update_phyoffset: found.index_last_update_physical_offset,
    };
    if found.records.is_empty() {
        let remark = "can not find message, maybe time range not correct";
        return responder.reply(response::QUERY_NOT_FOUND, Some(remark), &answer, Body::Empty);
    }
    let body = client_view::body(records_that_fit(found.records), request.language);
    responder.reply(response::SUCCESS, None, &answer, body);
}

/// The first records that one answer carries: at least one.
fn records_that_fit(mut records: Vec<Bytes>) -> SmallVec<[Bytes; 2]> {
    let mut room = MAX_BODY_LEN;
    let fit = records.iter().take_while(|record| {
        let fits = record.len() <= room;
        room = room.saturating_sub(record.len());
        fits
    });
    let fit = fit.count().max(1);
    records.truncate(fit);
    records.into()
}

fn view_message(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let header = match ViewMessageRequest::decode(request) {
        Ok(header) => header,
        Err(error) => return responder.error(response::SYSTEM_ERROR, &error.to_string()),
    };
    match context.store.record_at(header.offset) {
        Some(record) => responder.reply(response::SUCCESS, None, &(), client_view::body(smallvec![record], request.language)),
        None => responder.error(response::SYSTEM_ERROR, &format!("can not find message by the offset, {}", header.offset)),
    }
}

fn query_consume_queue(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let header = match QueryConsumeQueueRequest::decode(request) {
        Ok(header) => header,
        Err(error) => return responder.error(response::SYSTEM_ERROR, &error.to_string()),
    };
    if !context.store.has_queue(&header.topic, header.queue_id) {
        return responder.error(response::SYSTEM_ERROR, &format!("{}@{} is not exist!", header.queue_id, header.topic));
    }
    let (min_offset, max_offset) = context.store.queue_bounds(&header.topic, header.queue_id);
    let mut body = serde_json::Map::new();
    if let Some(group) = &header.consumer_group {
        let online = context.clients.consumer_group(group);
        let subscription = online.and_then(|online| online.subscriptions.get(&*header.topic).cloned());
        body.insert("subscriptionData".to_owned(), json!(subscription.as_deref()));
        if let Some(data) = context.filter_data.get(&header.topic, group) {
            body.insert("filterData".to_owned(), json!(json!(data).to_string()));
        } else if subscription.is_none() {
            body.insert("filterData".to_owned(), json!(format!("group {group} is not online or does not subscribe to {}", header.topic)));
        }
    }
    body.insert("maxQueueIndex".to_owned(), json!(max_offset));
    body.insert("minQueueIndex".to_owned(), json!(min_offset));
    if !(min_offset..max_offset).contains(&header.index) {
        let remark =
            format!("index {} is not in the queue: its offsets are {min_offset} to {max_offset}, the last one not included", header.index);
        return responder.reply(response::SUCCESS, Some(&remark), &(), Body::Empty);
    }
    let end = max_offset.min(header.index.saturating_add(header.count.clamp(0, MAX_UNITS).into()));
    let units: Vec<Value> = (header.index..end).map(|offset| unit(context, &header, offset)).collect();
    body.insert("queueData".to_owned(), Value::Array(units));
    responder.reply(response::SUCCESS, None, &(), Value::Object(body).to_string().into());
}

fn unit(context: &BrokerContext, header: &QueryConsumeQueueRequest<'_>, offset: i64) -> Value {
    let found = context.store.message_at(&header.topic, header.queue_id, offset);
    let tags_code = found.as_ref().map_or(0, |(tags_code, _)| *tags_code);
    let bytes = found.and_then(|(_, bytes)| bytes);
    match bytes.as_deref().map(Record::parse) {
        Some(Ok(record)) => json!({
            "physicOffset": record.physical_offset,
            "physicSize": record.total_size,
            "tagsCode": tags_code,
            "eval": true,
        }),
        unreadable => {
            let why = unreadable.and_then(Result::err).map_or_else(|| "the log no longer has it".to_owned(), |error| error.to_string());
            json!({"physicOffset": -1, "physicSize": 0, "tagsCode": tags_code, "eval": false, "msg": why})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_carries_what_a_frame_takes_and_at_least_one() {
        let record = |len: usize| Bytes::from(vec![0; len]);
        let count = |lens: &[usize]| records_that_fit(lens.iter().map(|len| record(*len)).collect()).len();
        assert_eq!(count(&[4 << 20; 5]), 3, "a fourth leaves no room for the header");
        assert_eq!(count(&[MAX_BODY_LEN - 10, 10, 1]), 2);
        assert_eq!(count(&[MAX_BODY_LEN - 10, 11, 1]), 1, "none is left out in between");
        assert_eq!(count(&[MAX_BODY_LEN + 1, 1]), 1);
        assert_eq!(count(&[100; 64]), 64);
    }
}
