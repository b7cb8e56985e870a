//! Gives a message that could not be processed back to the broker, which delivers it again later (36).

use crate::common::message::MessageExt;
use crate::common::{properties, topic};
use crate::remoting::code::request;
use crate::remoting::command::Body;
use crate::remoting::ext::ExtText;
use crate::remoting::header::send::SendMessageRequest;

use super::error::ClientError;
use super::instance::{Instance, succeeded};
use super::outgoing::borrowed;

/// Group under which messages are sent back by an ordinary send.
const INNER_PRODUCER: &str = "CLIENT_INNER_PRODUCER";
/// Delay level of the first redelivery: 10 s.
const FIRST_DELAY_LEVEL: i32 = 3;

/// Gives `message` back; when its broker does not take it, sends it to the group's retry topic at any broker.
///
/// # Errors
/// The second attempt's.
pub(super) fn send_back(instance: &Instance, group: &str, message: &MessageExt, max_reconsume_times: i32) -> Result<(), ClientError> {
    let refused = match give_back(instance, group, message, max_reconsume_times) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    log::warn!("message not taken back, it is sent to the retry topic: group={group} id={} error={refused}", message.message_id());
    resend(instance, group, message, max_reconsume_times)
}

fn give_back(instance: &Instance, group: &str, message: &MessageExt, max_reconsume_times: i32) -> Result<(), ClientError> {
    let address = instance.routes().master(&message.broker_name).unwrap_or_else(|| message.store_host.to_string());
    let (offset, max) = (message.physical_offset.to_string(), max_reconsume_times.to_string());
    let id = message.message_id();
    let header = [
        ("offset", offset.as_str()),
        ("group", group),
        ("delayLevel", "0"),
        ("originMsgId", id.as_str()),
        ("originTopic", message.message.topic.as_str()),
        ("unitMode", "false"),
        ("maxReconsumeTimes", max.as_str()),
    ];
    instance.call(&address, request::CONSUMER_SEND_MSG_BACK, &header, Body::Empty).map(|_| ())
}

fn resend(instance: &Instance, group: &str, message: &MessageExt, max_reconsume_times: i32) -> Result<(), ClientError> {
    let retry_topic = topic::retry_topic(group);
    let route = instance.publish_route(&retry_topic)?;
    let queue = &route.publish[fastrand::usize(..route.publish.len())];
    let address = instance.master(&retry_topic, &queue.broker_name)?;
    let mut sent = message.message.clone();
    let origin = sent.properties.get(properties::ORIGIN_MESSAGE_ID).cloned().unwrap_or_else(|| message.message_id());
    sent.properties.remove(properties::TRAN_MSG);
    sent.properties.entry(properties::RETRY_TOPIC.to_owned()).or_insert_with(|| message.message.topic.clone());
    let sent = sent
        .property(properties::ORIGIN_MESSAGE_ID, origin)
        .property(properties::RECONSUME_TIME, (message.reconsume_times + 1).to_string())
        .property(properties::MAX_RECONSUME_TIMES, max_reconsume_times.to_string())
        .property(properties::DELAY, (FIRST_DELAY_LEVEL + message.reconsume_times).to_string());
    let text = sent.properties_text();
    let header = SendMessageRequest {
        producer_group: borrowed(INNER_PRODUCER),
        topic: borrowed(&retry_topic),
        default_topic: borrowed(topic::TBW102),
        default_topic_queue_nums: 1,
        queue_id: queue.queue_id,
        sys_flag: 0, // the body was inflated when it came
        born_timestamp: instance.now_ms(),
        flag: sent.flag,
        properties: Some(ExtText::Plain(&text)),
        reconsume_times: message.reconsume_times + 1,
        unit_mode: false,
        max_reconsume_times: Some(max_reconsume_times),
        batch: false,
    };
    let answer = instance.transport().invoke(&address, request::SEND_MESSAGE_V2, &header, sent.body.into(), instance.config().timeout)?;
    succeeded(&address, answer).map(|_| ())
}
