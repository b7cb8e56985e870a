//! Sends: 10, 310 and 320; their checks, and the way of many messages into the log at once.
//!
//! - A net thread stages every send of one read into its batch and appends them under one acquisition of the put lock
//!   ([`SendLane::append_staged`]), then answers (ASYNC_FLUSH, WAIT=false) or parks the answers until they are on disk.
//! - A send that has to create a topic is handed to a work thread, which appends each message by itself.
//! - The checks come in the order of `SendMessageProcessor`, so that a client sees the same code for the same mistake.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::broker::context::BrokerContext;
use crate::broker::transaction;
use crate::common::record::Draft;
use crate::common::sysflag;
use crate::common::topic::{self, TopicConfig};
use crate::net::responder::Responder;
use crate::net::service::{LaneKind, LaneWaker};
use crate::remoting::code::response;
use crate::remoting::command::Command;
use crate::remoting::ext::ExtText;
use crate::remoting::header::send::SendMessageRequest;
use crate::store::append::{AppendBatch, AppendOutcome};
use crate::store::error::PutError;

use super::parked::{KeyBytes, Parked, SendAnswer, when_durable};
use super::send_batch::{self, BatchEntries};
use super::stored_properties::{HalfOf, Parked as OnLevel, Rewrite, Wishes};

/// Staged bytes from which on a read's sends are appended before the read is done.
const APPEND_EARLY_BYTES: usize = 1 << 20;
/// Outcomes whose memory is kept; those of a large batch take megabytes.
const OUTCOMES_KEPT: usize = 4_096;
/// First client version whose `maxReconsumeTimes` counts: 3.4.9.
const VERSION_MAX_RECONSUME: i32 = 121;

/// One thread's sends.
pub(crate) struct SendLane {
    context: Arc<BrokerContext>,
    /// A net thread's parked answers; `None` on a work thread.
    parked: Option<Parked>,
    batch: AppendBatch,
    outcomes: Vec<AppendOutcome>,
    staged: Vec<StagedSend>,
    /// Buffers, reused.
    raw: String,
    stored: String,
    scratch: String,
}

/// A request whose records are in the batch.
struct StagedSend {
    responder: Responder,
    /// Records of the batch that are this request's.
    first: usize,
    count: usize,
    send: Staged,
}

/// What the answer needs to know of a send whose records are in the batch.
struct Staged {
    topic: Arc<TopicConfig>,
    queue_id: i32,
    /// The record lies on this topic of the broker's until its time has come.
    parked_on: Option<&'static str>,
    /// Answer only when durable.
    wait: bool,
    unique_key: KeyBytes,
}

/// Why a send is not stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Something has to be created: on a thread that may block.
    Defer,
    /// The answer.
    Answer(i32, String),
}

impl Refusal {
    fn illegal(text: impl Into<String>) -> Self {
        Self::Answer(response::MESSAGE_ILLEGAL, text.into())
    }
}

impl From<PutError> for Refusal {
    fn from(error: PutError) -> Self {
        Self::Answer(put_error_code(&error), error.to_string())
    }
}

/// Response code of a put that failed.
pub(crate) fn put_error_code(error: &PutError) -> i32 {
    match error {
        PutError::BodyTooLong(..) | PutError::PropertiesTooLong(..) | PutError::TopicTooLong(..) | PutError::RecordTooLong(..) => {
            response::MESSAGE_ILLEGAL
        }
        PutError::Unavailable(_) => response::SERVICE_NOT_AVAILABLE,
        _ => response::SYSTEM_ERROR,
    }
}

impl SendLane {
    /// The sends of one thread of `kind`.
    pub(crate) fn new(context: Arc<BrokerContext>, kind: LaneKind, waker: LaneWaker) -> Self {
        let parked = (kind == LaneKind::Net && context.store.is_sync_flush()).then(|| Parked::new(&context, waker));
        Self {
            context,
            parked,
            batch: AppendBatch::default(),
            outcomes: Vec::new(),
            staged: Vec::new(),
            raw: String::new(),
            stored: String::new(),
            scratch: String::new(),
        }
    }

    /// Stages a send; on a work thread also appends it.
    pub(crate) fn handle(&mut self, request: &Command<'_>, responder: Responder, kind: LaneKind) {
        let header = match SendMessageRequest::decode(request) {
            Ok(header) => header,
            Err(error) => return responder.error(response::SYSTEM_ERROR, &error.to_string()),
        };
        let first = self.batch.len();
        let born_host = responder.connection().peer();
        match self.stage(request, &header, born_host, kind == LaneKind::Work) {
            Ok(send) => self.staged.push(StagedSend { responder, first, count: self.batch.len() - first, send }),
            Err(refusal) => {
                self.batch.truncate(first);
                return match refusal {
                    Refusal::Defer => responder.defer(request),
                    Refusal::Answer(code, text) => responder.error(code, &text),
                };
            }
        }
        if kind == LaneKind::Work || self.batch.size() >= APPEND_EARLY_BYTES {
            self.append_staged();
        }
    }

    /// Appends what was staged and answers, or parks the answers.
    pub(crate) fn append_staged(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        self.outcomes.clear();
        self.context.store.append(&mut self.batch, &mut self.outcomes);
        self.batch.clear();
        let now_ms = self.context.clock.now_ms();
        let mut staged = std::mem::take(&mut self.staged);
        for send in staged.drain(..) {
            self.finish(send, now_ms);
        }
        self.staged = staged; // keeps its memory
        self.outcomes.clear();
        self.outcomes.shrink_to(OUTCOMES_KEPT);
    }

    /// The flushed offset has moved, a sync has failed, or an answer is overdue.
    pub(crate) fn release(&mut self) {
        if let Some(parked) = &mut self.parked {
            parked.release(&self.context, &mut self.scratch);
        }
    }

    fn stage(
        &mut self, request: &Command<'_>, header: &SendMessageRequest<'_>, born_host: SocketAddr, may_block: bool,
    ) -> Result<Staged, Refusal> {
        let Self { context, batch, raw, stored, .. } = self;
        raw.clear();
        let text: &str = match &header.properties {
            None => "",
            Some(ExtText::Plain(text)) => text,
            Some(escaped) => {
                escaped.append_to(raw);
                raw
            }
        };
        let wishes = Wishes::read(text).map_err(Refusal::illegal)?;
        let target = resolve(context, header, request.version, born_host, may_block)?;
        let mut sys_flag = header.sys_flag;
        if target.topic.topic_filter_type == "MULTI_TAG" {
            sys_flag |= sysflag::MULTI_TAGS;
        }
        let draft = Draft {
            topic: &target.topic.topic_name,
            queue_id: target.queue_id,
            flag: header.flag,
            sys_flag,
            born_timestamp: header.born_timestamp,
            born_host,
            store_host: context.store_host,
            reconsume_times: header.reconsume_times,
            prepared_transaction_offset: 0,
            body: request.body,
            properties: &[],
        };
        let parked_on = if header.batch {
            stage_batch(context, batch, stored, &draft, &wishes)?;
            None
        } else if is_half(&draft, &wishes) {
            stage_half(context, batch, stored, &draft, &wishes, text, &header.producer_group)?;
            Some(topic::HALF_TOPIC)
        } else {
            stage_one(context, batch, stored, &draft, &wishes, text, target.dead)?
        };
        let unique_key = wishes.unique_key.map(|key| KeyBytes::from_slice(key.as_bytes())).unwrap_or_default();
        // The answer to a half message leads to its decision, which must find it: it is waited for in any case.
        let is_half = parked_on == Some(topic::HALF_TOPIC);
        let (queue_id, wait) = if is_half { (transaction::QUEUE, true) } else { (target.queue_id, !wishes.no_wait) };
        Ok(Staged { topic: target.topic, queue_id, parked_on, wait, unique_key })
    }

    fn finish(&mut self, staged: StagedSend, now_ms: i64) {
        let StagedSend { responder, first, count, send } = staged;
        let outcomes = self.outcomes.get(first..first + count).unwrap_or_default();
        let mut answer = SendAnswer {
            physical_offsets: smallvec::SmallVec::new(),
            queue_id: send.queue_id,
            queue_offset: 0,
            unique_key: send.unique_key,
        };
        let (mut bytes, mut end) = (0, 0);
        for outcome in outcomes {
            match outcome {
                Ok(appended) => {
                    if answer.physical_offsets.is_empty() {
                        answer.queue_offset = appended.queue_offset;
                    }
                    answer.physical_offsets.push(appended.physical_offset);
                    bytes += appended.size as u64;
                    end = appended.end();
                }
                Err(error) => return responder.error(put_error_code(error), &error.to_string()),
            }
        }
        let topic = send.parked_on.unwrap_or(&send.topic.topic_name);
        self.context.stats.put(topic, send.queue_id, count as u64, bytes);
        if responder.is_oneway() {
            return responder.silent();
        }
        if !send.wait || !self.context.store.is_sync_flush() {
            return answer.reply(&self.context, responder, response::SUCCESS, None, &mut self.scratch);
        }
        match &mut self.parked {
            Some(parked) => parked.park(end, now_ms, responder, answer),
            None => {
                let context = Arc::clone(&self.context);
                when_durable(&self.context.store, end, true, move |outcome| {
                    answer.reply_durability(&context, responder, &outcome, &mut String::new());
                });
            }
        }
    }
}

/// Where a message goes.
pub(crate) struct Target {
    /// Topic.
    pub(crate) topic: Arc<TopicConfig>,
    /// Queue.
    pub(crate) queue_id: i32,
    /// It was consumed in vain too often: a dead letter.
    pub(crate) dead: bool,
}

/// Finds the topic and queue of a send, creates the topic where the rules allow it.
pub(crate) fn resolve(
    context: &BrokerContext, header: &SendMessageRequest<'_>, version: i32, born_host: SocketAddr, may_block: bool,
) -> Result<Target, Refusal> {
    let found = context.topics.get(&header.topic);
    if context.settings.broker_permission() & topic::PERM_WRITE == 0 && found.as_ref().is_some_and(|topic| topic.order) {
        return Err(Refusal::Answer(
            response::NO_PERMISSION,
            format!(
                "the broker[{}] sending message is forbidden: brokerPermission={}, ordered topic {}",
                context.store_host.ip(),
                context.settings.broker_permission(),
                header.topic
            ),
        ));
    }
    if topic::is_send_forbidden(&header.topic) {
        return Err(Refusal::Answer(response::NO_PERMISSION, format!("Sending message to topic[{}] is forbidden.", header.topic)));
    }
    let topic = match found {
        Some(topic) => topic,
        None => create_topic(context, header, may_block)?,
    };
    let queues = topic.read_queue_nums.max(topic.write_queue_nums);
    if header.queue_id >= queues {
        return Err(Refusal::Answer(
            response::INVALID_PARAMETER,
            format!(
                "request queueId[{}] is illegal, topic {} has {queues} queues (readQueueNums={}, writeQueueNums={}), client {born_host}",
                header.queue_id, topic.topic_name, topic.read_queue_nums, topic.write_queue_nums
            ),
        ));
    }
    if let Some(group) = topic.topic_name.strip_prefix(topic::RETRY_PREFIX)
        && !header.batch
        && is_dead(context, group, header, version)?
    {
        let topic = ensure_topic(context, &topic::dlq_topic(group), may_block)?;
        context.stats.dead_letter(&topic.topic_name, group);
        return Ok(Target { topic, queue_id: 0, dead: true });
    }
    if header.queue_id < 0 && topic.write_queue_nums <= 0 {
        return Err(Refusal::Answer(
            response::INVALID_PARAMETER,
            format!(
                "request queueId[{}] leaves the choice to the broker, topic {} has no queue to choose (readQueueNums={}, writeQueueNums={}), \
                 client {born_host}",
                header.queue_id, topic.topic_name, topic.read_queue_nums, topic.write_queue_nums
            ),
        ));
    }
    let queue_id = if header.queue_id < 0 { fastrand::i32(0..topic.write_queue_nums) } else { header.queue_id };
    Ok(Target { topic, queue_id, dead: false })
}

/// Whether a message to a retry topic has been delivered too often.
fn is_dead(context: &BrokerContext, group: &str, header: &SendMessageRequest<'_>, version: i32) -> Result<bool, Refusal> {
    let now_ms = context.clock.now_ms();
    let Some(config) = context.groups.find_or_create(group, now_ms) else {
        return Err(Refusal::Answer(
            response::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("subscription group {group} does not exist and was not created (autoCreateSubscriptionGroup)"),
        ));
    };
    let own = header.max_reconsume_times.filter(|max| version >= VERSION_MAX_RECONSUME && *max >= 0);
    Ok(header.reconsume_times > own.unwrap_or(config.retry_max_times) || context.locks.is_any_locked(group, now_ms))
}

fn create_topic(context: &BrokerContext, header: &SendMessageRequest<'_>, may_block: bool) -> Result<Arc<TopicConfig>, Refusal> {
    topic::check_topic(&header.topic).map_err(|text| Refusal::Answer(response::INVALID_PARAMETER, text))?;
    let is_retry = header.topic.starts_with(topic::RETRY_PREFIX); // made with one queue if need be
    if !is_retry && let Some(template) = context.topics.template(&header.default_topic) {
        check_queues(header, &template)?;
    }
    if let Some(why) = context.store.refusal() {
        return Err(PutError::Unavailable(why).into());
    }
    if !may_block {
        return Err(Refusal::Defer);
    }
    let created = context
        .topics
        .create_on_send(&header.topic, &header.default_topic, header.default_topic_queue_nums, header.unit_mode, context.clock.now_ms())
        .map_err(|text| Refusal::Answer(response::SYSTEM_ERROR, text))?;
    if let Some(topic) = created {
        context.registration.register_topic(&topic.topic_name);
        return Ok(topic);
    }
    if is_retry {
        return ensure_topic(context, &header.topic, may_block);
    }
    Err(Refusal::Answer(
        response::TOPIC_NOT_EXIST,
        format!(
            "topic[{}] not exist, apply first please!\nIt was not created from default topic {:?} (autoCreateTopicEnable={}).",
            header.topic, header.default_topic, context.config.auto_create_topic
        ),
    ))
}

/// Refuses the first send of a topic that would have no queue.
fn check_queues(header: &SendMessageRequest<'_>, template: &TopicConfig) -> Result<(), Refusal> {
    let (wanted, most) = (header.default_topic_queue_nums, template.write_queue_nums);
    if wanted.min(most) > 0 {
        return Ok(());
    }
    Err(Refusal::Answer(
        response::INVALID_PARAMETER,
        format!(
            "topic[{}] is not created without a queue: defaultTopicQueueNums is {wanted}, writeQueueNums of default topic {} is {most}, \
             both must be at least 1",
            header.topic, template.topic_name
        ),
    ))
}

/// A retry or dead-letter topic, made with one queue when it is missing.
fn ensure_topic(context: &BrokerContext, name: &str, may_block: bool) -> Result<Arc<TopicConfig>, Refusal> {
    if let Some(topic) = context.topics.get(name) {
        return Ok(topic);
    }
    if !may_block {
        return Err(Refusal::Defer);
    }
    let (topic, created) = context
        .topics
        .ensure(name, 1, topic::PERM_READ_WRITE, 0, context.clock.now_ms())
        .map_err(|text| Refusal::Answer(response::SYSTEM_ERROR, text))?;
    if created {
        context.registration.register_topic(name);
    }
    Ok(topic)
}

/// Whether the message waits for its producer's decision.
fn is_half(draft: &Draft<'_>, wishes: &Wishes<'_>) -> bool {
    // A consumer sends a committed message back with all its properties: that is a retry.
    wishes.transaction && !(draft.reconsume_times > 0 && wishes.delay_level > 0)
}

/// Stages a half message. Its delay, if it has one, begins when it is committed.
fn stage_half(
    context: &BrokerContext, batch: &mut AppendBatch, stored: &mut String, draft: &Draft<'_>, wishes: &Wishes<'_>, text: &str, group: &str,
) -> Result<(), Refusal> {
    if context.config.reject_transaction_message {
        return Err(Refusal::Answer(
            response::NO_PERMISSION,
            format!("the broker[{}] sending transaction message is forbidden: rejectTransactionMessage=true", context.store_host.ip()),
        ));
    }
    check_inner_batch(draft, wishes)?;
    check_no_timer(wishes)?;
    if draft.body.is_empty() {
        return Err(Refusal::illegal("the message is illegal: its body is empty"));
    }
    if wishes.producer_group.is_none() && group.is_empty() {
        return Err(Refusal::illegal("the message is illegal: a half message needs its producer group (property PGROUP)"));
    }
    let made_key = wishes.unique_key.is_none().then(|| context.unique_ids.next(context.clock.now_ms()));
    let half = HalfOf {
        topic: draft.topic,
        queue_id: draft.queue_id,
        producer_group: wishes.producer_group.is_none().then_some(group),
        transaction_id: wishes.unique_key.or(made_key.as_deref()).unwrap_or_default(),
    };
    let additions = &context.property_additions;
    let rewrite = Rewrite { additions, unique_key: made_key.as_deref(), half: Some(half), ..Rewrite::default() };
    stored.clear();
    rewrite.write(text, stored).map_err(Refusal::illegal)?;
    let sys_flag = draft.sys_flag & !sysflag::TRANSACTION_MASK;
    let draft = Draft { topic: topic::HALF_TOPIC, queue_id: transaction::QUEUE, sys_flag, properties: stored.as_bytes(), ..*draft };
    Ok(context.store.stage(batch, &draft)?)
}

/// Stages a single message; returns where it is parked, if it has a delay level.
fn stage_one(
    context: &BrokerContext, batch: &mut AppendBatch, stored: &mut String, draft: &Draft<'_>, wishes: &Wishes<'_>, text: &str, dead: bool,
) -> Result<Option<&'static str>, Refusal> {
    check_kind(draft, wishes)?;
    let level = if dead { 0 } else { clamp_level(context, wishes.delay_level) };
    if level == 0 && !dead {
        check_no_timer(wishes)?;
    }
    if draft.body.is_empty() {
        return Err(Refusal::illegal("the message is illegal: its body is empty"));
    }
    let made_key = wishes.unique_key.is_none().then(|| context.unique_ids.next(context.clock.now_ms()));
    let rewrite = Rewrite {
        additions: &context.property_additions,
        unique_key: made_key.as_deref(),
        parked: (level > 0).then_some(OnLevel { level, topic: draft.topic, queue_id: draft.queue_id }),
        dead,
        half: None,
    };
    stored.clear();
    rewrite.write(text, stored).map_err(Refusal::illegal)?;
    let mut draft = Draft { properties: stored.as_bytes(), ..*draft };
    if level > 0 {
        draft.topic = topic::SCHEDULE_TOPIC;
        draft.queue_id = level - 1;
    }
    context.store.stage(batch, &draft)?;
    Ok((level > 0).then_some(topic::SCHEDULE_TOPIC))
}

/// Stages the messages of a client's batch as a group that lies in one file.
fn stage_batch(
    context: &BrokerContext, batch: &mut AppendBatch, stored: &mut String, draft: &Draft<'_>, wishes: &Wishes<'_>,
) -> Result<(), Refusal> {
    check_batch(context, draft, wishes)?;
    // The C++ client compresses a whole batch above 4 KiB; its messages are stored as they were before.
    let inflated;
    let draft = if draft.sys_flag & sysflag::COMPRESSED == 0 {
        draft
    } else {
        let body = send_batch::inflate(draft.body, draft.sys_flag, context.config.store.max_message_size).map_err(Refusal::illegal)?;
        inflated = body;
        &Draft { body: &inflated, sys_flag: draft.sys_flag & !(sysflag::COMPRESSED | sysflag::COMPRESSION_MASK), ..*draft }
    };
    let mut count = 0;
    // Unlike a single message, an entry may be empty: the reference stores it, and clients batch what their application gave them.
    for entry in BatchEntries::new(draft.body) {
        let entry = entry.map_err(Refusal::illegal)?;
        let own = Wishes::read(entry.properties).map_err(Refusal::illegal)?;
        if own.delay_level > 0 || own.transaction || own.timer.is_some() {
            return Err(Refusal::illegal(format!(
                "the message is illegal: entry {count} of the batch asks for a delay or a transaction, which a batch cannot carry"
            )));
        }
        let made_key = own.unique_key.is_none().then(|| context.unique_ids.next(context.clock.now_ms()));
        stored.clear();
        Rewrite { unique_key: made_key.as_deref(), ..Rewrite::default() }.write(entry.properties, stored).map_err(Refusal::illegal)?;
        let draft = Draft { flag: entry.flag, body: entry.body, properties: stored.as_bytes(), ..*draft };
        context.store.stage(batch, &draft)?;
        count += 1;
    }
    if count == 0 {
        return Err(Refusal::illegal("the message is illegal: the batch is empty"));
    }
    context.store.group(batch, count);
    Ok(())
}

/// Refuses kinds of messages that cannot be stored as what they claim to be.
fn check_kind(draft: &Draft<'_>, wishes: &Wishes<'_>) -> Result<(), Refusal> {
    let kind = sysflag::transaction_type(draft.sys_flag);
    if kind == sysflag::TRANSACTION_PREPARED || kind == sysflag::TRANSACTION_ROLLBACK {
        return Err(Refusal::illegal(format!(
            "the message is illegal: sysFlag {} marks it as half or rolled back, property TRAN_MSG does not: no consumer would see it",
            draft.sys_flag
        )));
    }
    check_inner_batch(draft, wishes)
}

fn check_inner_batch(draft: &Draft<'_>, wishes: &Wishes<'_>) -> Result<(), Refusal> {
    if wishes.inner_batch || draft.sys_flag & (sysflag::INNER_BATCH | sysflag::NEED_UNWRAP) != 0 {
        return Err(Refusal::illegal(format!(
            "the message is illegal: it is an inner batch (sysFlag {}, INNER_NUM {}), topic {} is not of queue.type=BatchCQ",
            draft.sys_flag,
            if wishes.inner_batch { "set" } else { "not set" },
            draft.topic
        )));
    }
    Ok(())
}

fn check_no_timer(wishes: &Wishes<'_>) -> Result<(), Refusal> {
    match wishes.timer {
        None => Ok(()),
        Some(name) => Err(Refusal::illegal(format!(
            "the message is illegal: property {name} asks for an arbitrary deliver time, which is not served by this version yet; use a \
             delay level (property DELAY)"
        ))),
    }
}

fn check_batch(context: &BrokerContext, draft: &Draft<'_>, wishes: &Wishes<'_>) -> Result<(), Refusal> {
    let limit = context.config.store.max_message_size;
    let what = if draft.topic.len() > topic::MAX_TOPIC_LEN {
        format!("topic of {} bytes exceeds {} bytes", draft.topic.len(), topic::MAX_TOPIC_LEN)
    } else if draft.topic.starts_with(topic::RETRY_PREFIX) {
        format!("a batch cannot go to retry topic {}", draft.topic)
    } else if sysflag::transaction_type(draft.sys_flag) != sysflag::TRANSACTION_NOT || wishes.transaction {
        format!("a batch cannot be part of a transaction (sysFlag {})", draft.sys_flag)
    } else if wishes.delay_level > 0 || wishes.timer.is_some() {
        format!("a batch cannot be delayed (DELAY {})", wishes.delay_level)
    } else if wishes.inner_batch || draft.sys_flag & (sysflag::INNER_BATCH | sysflag::NEED_UNWRAP) != 0 {
        format!("inner batch (sysFlag {}), topic {} is not of queue.type=BatchCQ", draft.sys_flag, draft.topic)
    } else if draft.body.len() > limit {
        format!("batch of {} bytes exceeds maxMessageSize of {limit} bytes", draft.body.len())
    } else {
        return Ok(());
    };
    Err(Refusal::illegal(format!("the message is illegal: {what}")))
}

/// A delay level as it is served: at most the highest, 0 for none.
pub(crate) fn clamp_level(context: &BrokerContext, level: i32) -> i32 {
    level.clamp(0, i32::try_from(context.config.store.delay_levels_ms.len()).unwrap_or(i32::MAX))
}
