//! What brokers ask of a consumer: its running information (307), its offsets (221), other offsets (220), one message at once (309).
//!
//! - Runs on the net thread: everything here answers from memory. A reset is carried out by the `members` thread, a message consumed by
//!   a thread of its own; at most one at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::common::message::MessageExt;
use crate::net::client::PushHandler;
use crate::net::responder::Responder;
use crate::remoting::body::queue::{MessageQueue, write_queue_map};
use crate::remoting::code::{request, response};
use crate::remoting::command::{Body, Command};
use crate::remoting::fastjson::{self, write_text};
use crate::runtime::thread::Thread;

use super::consumer::{ConsumeStatus, Consumer};
use super::consumer_stats::Totals;
use super::incoming;
use super::instance::{GroupMember, Groups};
use super::process_queue::QueueInfo;
use super::push_consumer::Listener;

/// Name of the protocol version that requests of this client carry.
const CLIENT_VERSION: &str = "V5_5_0";

/// Answers what brokers ask of clients.
pub(super) fn push_handler(groups: Arc<Groups>) -> PushHandler {
    Arc::new(move |command: &Command<'_>, responder: Responder| match command.code {
        request::NOTIFY_CONSUMER_IDS_CHANGED => {
            if let Some(member) = member(&groups, command, "consumerGroup") {
                member.members_changed();
            }
            responder.ok();
        }
        request::GET_CONSUMER_RUNNING_INFO => answer(&groups, command, responder, "consumerGroup", |member| Ok(member.running_info())),
        request::GET_CONSUMER_STATUS_FROM_CLIENT => {
            answer(&groups, command, responder, "group", |member| Ok(member.status(&command.ext.text("topic").unwrap_or_default())))
        }
        request::RESET_CONSUMER_CLIENT_OFFSET => answer(&groups, command, responder, "group", |member| {
            let topic = command.ext.text("topic").unwrap_or_default();
            member.reset_offsets(&topic, read_offsets(command.body)?);
            Ok(String::new())
        }),
        request::CONSUME_MESSAGE_DIRECTLY => consume_directly(&groups, command, responder),
        code => responder.error(response::REQUEST_CODE_NOT_SUPPORTED, &format!(" request type {code} not supported")),
    })
}

fn member(groups: &Groups, command: &Command<'_>, field: &str) -> Option<Arc<dyn GroupMember>> {
    groups.consumer(&command.ext.text(field).unwrap_or_default())
}

fn no_such_group(command: &Command<'_>, field: &str) -> String {
    format!("the consumer group {:?} does not exist in this client", command.ext.text(field).unwrap_or_default())
}

/// Answers with a body, or with code 1 and the reason why there is none.
fn answer(
    groups: &Groups, command: &Command<'_>, responder: Responder, field: &str,
    make: impl FnOnce(&dyn GroupMember) -> Result<String, String>,
) {
    let made = member(groups, command, field).ok_or_else(|| no_such_group(command, field)).and_then(|member| make(&*member));
    match made {
        Ok(body) => responder.reply(response::SUCCESS, None, &(), if body.is_empty() { Body::Empty } else { body.into() }),
        Err(why) => {
            log::warn!("broker's request not served: code={} cause={why}", command.code);
            responder.error(response::SYSTEM_ERROR, &why);
        }
    }
}

/// The offsets of a reset, in the form with object keys.
fn read_offsets(body: &[u8]) -> Result<Vec<(MessageQueue, i64)>, String> {
    let value = fastjson::parse(body).map_err(|what| format!("body of the reset: {what}"))?;
    let table = value.get("offsetTable").ok_or("body of the reset: offsetTable is missing")?;
    let entry = |(queue, offset): &(fastjson::Value, fastjson::Value)| {
        let offset = offset.as_i64().filter(|offset| *offset >= 0).ok_or("body of the reset: an offset is no number or negative")?;
        Ok((MessageQueue::from_value(queue), offset))
    };
    table.members().iter().map(entry).collect()
}

fn consume_directly(groups: &Groups, command: &Command<'_>, responder: Responder) {
    let Some(member) = member(groups, command, "consumerGroup") else {
        return responder.error(response::SYSTEM_ERROR, &no_such_group(command, "consumerGroup"));
    };
    let mut messages = match incoming::records(command.body) {
        Ok(messages) => messages,
        Err(why) => return responder.error(response::SYSTEM_ERROR, &format!("body is no message: {why}")),
    };
    let Some(mut message) = messages.pop().filter(|_| messages.is_empty()) else {
        return responder.error(response::SYSTEM_ERROR, "body is not one message");
    };
    message.broker_name = command.ext.text("brokerName").unwrap_or_default().into_owned();
    incoming::restore_topic(&mut message);
    member.consume_directly(message, responder);
}

/// The thread that consumes one message for a broker.
#[derive(Default)]
pub(super) struct DirectConsumption {
    busy: Arc<AtomicBool>,
    thread: Mutex<Option<Thread>>,
}

impl DirectConsumption {
    /// Hands `message` to the listener and answers what became of it. One at a time: another is refused meanwhile.
    pub(super) fn begin(&self, consumer: &Consumer, listener: Arc<Listener>, message: MessageExt, responder: Responder) {
        let mut thread = self.thread.lock();
        if consumer.stopping.load(Ordering::Acquire) {
            return responder.error(response::SYSTEM_ERROR, "the consumer is shut down");
        }
        if self.busy.swap(true, Ordering::AcqRel) {
            return responder.error(response::SYSTEM_ERROR, "another message is consumed directly at the moment (1 at a time)");
        }
        let (busy, order) = (self.busy.clone(), consumer.config.orderly);
        let body = move || {
            let started = Instant::now();
            let status = catch_unwind(AssertUnwindSafe(|| listener(std::slice::from_ref(&message))));
            let body = direct_result(order, status.ok(), started.elapsed().as_millis() as i64);
            busy.store(false, Ordering::Release);
            responder.reply(response::SUCCESS, None, &(), body.into());
        };
        match Thread::spawn(&consumer.instance.config().tag, "consume-direct", body) {
            Ok(started) => *thread = Some(started), // the one before has done its work: its join is short
            Err(error) => {
                self.busy.store(false, Ordering::Release); // the responder went with the body and has answered
                log::error!("message not consumed directly, no thread: group={} error={error}", consumer.group);
            }
        }
    }

    /// Waits for the end of the one that runs. `stopping` has been set.
    pub(super) fn finish(&self) {
        let thread = self.thread.lock().take();
        drop(thread); // joins
    }
}

/// `ConsumeMessageDirectlyResult`; no status: the listener panicked.
fn direct_result(order: bool, status: Option<ConsumeStatus>, spent_ms: i64) -> String {
    let (result, remark) = match status {
        Some(ConsumeStatus::Success) => ("CR_SUCCESS", "null"),
        Some(ConsumeStatus::Later) => ("CR_LATER", "null"),
        None => ("CR_THROW_EXCEPTION", "\"the listener panicked\""),
    };
    format!("{{\"autoCommit\":true,\"consumeResult\":\"{result}\",\"order\":{order},\"remark\":{remark},\"spentTimeMills\":{spent_ms}}}")
}

impl Consumer {
    /// `ConsumerRunningInfo`. There is no stack of Java threads to tell.
    pub(super) fn running_info_json(&self) -> String {
        let now_ms = self.instance.now_ms();
        let mut queues: Vec<_> = self.queues.read().iter().map(|(name, queue)| (name.clone(), queue.clone())).collect();
        queues.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut out = String::from("{\"mqPopTable\":{},\"mqTable\":");
        write_queue_map(&mut out, queues.iter().map(|(name, queue)| (name, queue.info(now_ms))), |out, info| write_queue_info(out, &info));
        out.push_str(",\"properties\":{");
        for (at, (name, value)) in self.running_properties().iter().enumerate() {
            out.push_str(if at > 0 { "," } else { "" });
            write_text(&mut out, name);
            out.push(':');
            write_text(&mut out, value);
        }
        out.push_str("},\"statusTable\":{");
        for (at, topic) in self.subscriptions.keys().enumerate() {
            let mut totals = Totals::default();
            queues.iter().filter(|(name, _)| name.topic == *topic).for_each(|(_, queue)| queue.stats().add_to(&mut totals, now_ms));
            out.push_str(if at > 0 { "," } else { "" });
            write_text(&mut out, topic);
            out.push(':');
            write_totals(&mut out, &totals);
        }
        out.push_str("},\"subscriptionSet\":[");
        for (at, subscription) in self.subscriptions.values().enumerate() {
            out.push_str(if at > 0 { "," } else { "" });
            // Texts, numbers and lists of them: it always serializes.
            out.push_str(&serde_json::to_string(subscription).unwrap_or_default());
        }
        out.push_str("],\"userConsumerInfo\":{}}");
        out
    }

    fn running_properties(&self) -> [(&'static str, String); 6] {
        [
            ("PROP_CLIENT_VERSION", CLIENT_VERSION.to_owned()),
            ("PROP_CONSUMEORDERLY", self.config.orderly.to_string()),
            ("PROP_CONSUMER_START_TIMESTAMP", self.started_ms.to_string()),
            ("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY".to_owned()),
            ("PROP_NAMESERVER_ADDR", format!("{};", self.instance.config().namesrv.join(";"))),
            ("PROP_THREADPOOL_CORE_SIZE", self.config.threads.to_string()),
        ]
    }

    /// `GetConsumerStatusBody` of one topic.
    pub(super) fn status_json(&self, topic: &str) -> String {
        let mut positions: Vec<(MessageQueue, i64)> = self
            .queues
            .read()
            .iter()
            .filter(|(name, _)| name.topic == topic)
            .map(|(name, queue)| (name.clone(), queue.position()))
            .collect();
        positions.sort();
        let mut out = String::from("{\"consumerTable\":null,\"messageQueueTable\":");
        write_queue_map(&mut out, positions.iter().map(|(name, offset)| (name, *offset)), |out, offset| {
            out.push_str(itoa::Buffer::new().format(offset));
        });
        out.push('}');
        out
    }
}

fn write_queue_info(out: &mut String, info: &QueueInfo) {
    let (cached, taken) = (&info.cached, &info.transaction);
    let numbers = [
        ("cachedMsgCount", cached.count),
        ("cachedMsgMaxOffset", cached.max_offset),
        ("cachedMsgMinOffset", cached.min_offset),
        ("cachedMsgSizeInMiB", info.bytes >> 20),
        ("commitOffset", info.position),
        ("lastConsumeTimestamp", info.last_consume_ms),
        ("lastLockTimestamp", info.last_lock_ms),
        ("lastPullTimestamp", info.last_pull_ms),
        ("transactionMsgCount", taken.count),
        ("transactionMsgMaxOffset", taken.max_offset),
        ("transactionMsgMinOffset", taken.min_offset),
        ("tryUnlockTimes", 0),
    ];
    out.push('{');
    for (name, number) in numbers {
        write_text(out, name);
        out.push(':');
        out.push_str(itoa::Buffer::new().format(number));
        out.push(',');
    }
    out.push_str(&format!("\"droped\":{},\"locked\":{}}}", info.leaving, info.locked));
}

fn write_totals(out: &mut String, totals: &Totals) {
    out.push_str(&format!(
        "{{\"consumeFailedMsgs\":{},\"consumeFailedTPS\":{:.3},\"consumeOKTPS\":{:.3},\"consumeRT\":{:.3},\"pullRT\":{:.3},\"pullTPS\":{:.3}}}",
        totals.failed,
        totals.failed_tps,
        totals.ok_tps,
        totals.consume_rt(),
        totals.pull_rt(),
        totals.pull_tps
    ));
}
