//! Replies of request-reply: 324 and 325 bring one, 326 pushes it to the client that waits.
//!
//! The answer to the replier comes after the push was answered or failed (10 s), so it never comes from the thread that read the reply.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use crate::broker::context::BrokerContext;
use crate::common::properties;
use crate::common::record::Draft;
use crate::net::connection::{Connection, InvokeError};
use crate::net::responder::Responder;
use crate::net::service::Placement;
use crate::remoting::code::{request as code, response};
use crate::remoting::command::{Body, Command, OwnedCommand};
use crate::remoting::ext::{CustomHeader, HeaderWriter};
use crate::remoting::header::send::SendMessageRequest;

use super::Handler;
use super::parked::{KeyBytes, SendAnswer, SendAnswerHeader};
use super::send::{Refusal, resolve};
use super::stored_properties::{Rewrite, Wishes};

/// What this file serves. A work thread may create the reply topic; the push itself waits for nobody.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] =
    &[(code::SEND_REPLY_MESSAGE, Placement::Pool, reply), (code::SEND_REPLY_MESSAGE_V2, Placement::Pool, reply)];

/// Time for the waiting client to take a reply.
const PUSH_TIMEOUT: Duration = Duration::from_secs(10);

fn reply(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let header = match SendMessageRequest::decode(request) {
        Ok(header) => header,
        Err(error) => return responder.error(response::SYSTEM_ERROR, &error.to_string()),
    };
    let text = header.properties.as_ref().map(crate::remoting::ext::ExtText::text).unwrap_or_default();
    let wishes = match Wishes::read(&text) {
        Ok(wishes) => wishes,
        Err(why) => return responder.error(response::MESSAGE_ILLEGAL, &why),
    };
    let born_host = responder.connection().peer();
    let target = match resolve(context, &header, request.version, born_host, true) {
        Ok(target) => target,
        Err(Refusal::Answer(code, why)) => return responder.error(code, &why),
        Err(Refusal::Defer) => return responder.error(response::SYSTEM_BUSY, "a topic is being created, try again"),
    };
    let unique_key = wishes.unique_key.map(|key| KeyBytes::from_slice(key.as_bytes())).unwrap_or_default();
    let stored = context
        .config
        .store_reply_message
        .then(|| store(context, request, &header, &target.topic.topic_name, target.queue_id, &text, born_host));
    let mut outcome = Outcome {
        context: Arc::clone(context),
        responder,
        client_id: wishes.reply_to.unwrap_or_default().to_owned(),
        queue_id: target.queue_id,
        stored: None,
    };
    match stored {
        Some(Ok((physical_offset, queue_offset))) => {
            let physical_offsets = smallvec![physical_offset];
            outcome.stored = Some(SendAnswer { physical_offsets, queue_id: target.queue_id, queue_offset, unique_key });
        }
        Some(Err(why)) => log::warn!("reply message not stored: topic={} reason={why}", target.topic.topic_name),
        None => {}
    }
    let Some(client) = wishes.reply_to.and_then(|client_id| context.clients.producer_by_client_id(client_id)) else {
        let why = if wishes.reply_to.is_none() {
            "push reply message fail, property REPLY_TO_CLIENT is missing.".to_owned()
        } else {
            format!("push reply message fail, channel of <{}> not found.", outcome.client_id)
        };
        return outcome.finish(Err(why));
    };
    push(context, &client.connection, request, &header, &target.topic.topic_name, target.queue_id, &text, born_host, outcome);
}

#[allow(clippy::too_many_arguments, reason = "one message, spread over what was borrowed from it")]
fn push(
    context: &BrokerContext, client: &Connection, request: &Command<'_>, header: &SendMessageRequest<'_>, topic: &str, queue_id: i32,
    text: &str, born_host: SocketAddr, outcome: Outcome,
) {
    let now_ms = context.clock.now_ms();
    let mut text = text.to_owned();
    properties::set(&mut text, properties::PUSH_REPLY_TIME, itoa::Buffer::new().format(now_ms));
    let pushed = ReplyMessage {
        producer_group: &header.producer_group,
        topic,
        default_topic: &header.default_topic,
        default_topic_queue_nums: header.default_topic_queue_nums,
        queue_id,
        sys_flag: header.sys_flag,
        born_timestamp: header.born_timestamp,
        flag: header.flag,
        properties: &text,
        reconsume_times: header.reconsume_times,
        unit_mode: header.unit_mode,
        born_host: &born_host.to_string(),
        store_host: &context.store_host.to_string(),
        store_timestamp: now_ms,
    };
    let body = Body::Owned(request.body.to_vec());
    let done = Box::new(move |answer| outcome.pushed(answer));
    client.invoke(code::PUSH_REPLY_MESSAGE_TO_CLIENT, &pushed, body, PUSH_TIMEOUT, done);
}

/// What the replier will be told.
struct Outcome {
    context: Arc<BrokerContext>,
    responder: Responder,
    client_id: String,
    queue_id: i32,
    stored: Option<SendAnswer>,
}

impl Outcome {
    fn pushed(self, answer: Result<OwnedCommand, InvokeError>) {
        let result = match answer.as_ref().map(OwnedCommand::view) {
            Ok(answer) if answer.code == response::SUCCESS => Ok(()),
            Ok(answer) => Err(format!("push reply message to {}fail: it answered {}", self.client_id, answer.code)),
            Err(error) => Err(format!("push reply message to {}fail: {error}", self.client_id)),
        };
        self.finish(result);
    }

    fn finish(self, result: Result<(), String>) {
        let (code, remark) = match result {
            Ok(()) => (response::SUCCESS, None),
            Err(why) => (response::SYSTEM_ERROR, Some(why)),
        };
        if let Some(answer) = &self.stored {
            return answer.reply(&self.context, self.responder, code, remark.as_deref(), &mut String::new());
        }
        let header = SendAnswerHeader {
            message_id: "0",
            queue_id: self.queue_id,
            queue_offset: 0,
            unique_key: "",
            region: &self.context.config.region_id,
            trace_on: self.context.config.trace_on,
        };
        self.responder.reply(code, remark.as_deref(), &header, Body::Empty);
    }
}

/// Stores the reply; its physical and queue offset.
fn store(
    context: &BrokerContext, request: &Command<'_>, header: &SendMessageRequest<'_>, topic: &str, queue_id: i32, text: &str,
    born_host: SocketAddr,
) -> Result<(i64, i64), String> {
    let mut stored = String::new();
    Rewrite { additions: &context.property_additions, ..Rewrite::default() }.write(text, &mut stored)?;
    let draft = Draft {
        topic,
        queue_id,
        flag: header.flag,
        sys_flag: header.sys_flag,
        born_timestamp: header.born_timestamp,
        born_host,
        store_host: context.store_host,
        reconsume_times: header.reconsume_times,
        prepared_transaction_offset: 0,
        body: request.body,
        properties: stored.as_bytes(),
    };
    let appended = context.store.put(&draft).map_err(|error| error.to_string())?;
    context.stats.put(topic, queue_id, 1, appended.size as u64);
    Ok((appended.physical_offset, appended.queue_offset))
}

/// Header of 326.
struct ReplyMessage<'a> {
    producer_group: &'a str,
    topic: &'a str,
    default_topic: &'a str,
    default_topic_queue_nums: i32,
    queue_id: i32,
    sys_flag: i32,
    born_timestamp: i64,
    flag: i32,
    properties: &'a str,
    reconsume_times: i32,
    unit_mode: bool,
    born_host: &'a str,
    store_host: &'a str,
    store_timestamp: i64,
}

impl CustomHeader for ReplyMessage<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("producerGroup", self.producer_group);
        out.text("topic", self.topic);
        out.text("defaultTopic", self.default_topic);
        out.int("defaultTopicQueueNums", self.default_topic_queue_nums.into());
        out.int("queueId", self.queue_id.into());
        out.int("sysFlag", self.sys_flag.into());
        out.int("bornTimestamp", self.born_timestamp);
        out.int("flag", self.flag.into());
        out.text("properties", self.properties);
        out.int("reconsumeTimes", self.reconsume_times.into());
        out.bool("unitMode", self.unit_mode);
        out.text("bornHost", self.born_host);
        out.text("storeHost", self.store_host);
        out.int("storeTimestamp", self.store_timestamp);
    }
}
