//! Pulls: 11 and 361.
//!
//! - A pull is decided by [`Pull::plan`], checks in the order of `PullMessageProcessor`, and [`Pull::read`], the store's look-up and the code.
//! - A pull that found nothing and may wait is held; it is executed once more when a message arrives or its time is up. When none of the
//!   messages that have arrived passes its filter, it goes on waiting, behind them.
//! - A filter that would keep a net thread for long is left to a work thread.
//! - The answer's body is slices of the log, except for clients that cannot read a record as it lies there ([`super::client_view`]).

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::broker::clients::ConsumerGroup;
use crate::broker::context::BrokerContext;
use crate::broker::hold::{Ending, HeldPull, Waiter, Waiting, Wanted};
use crate::common::subscription::{self, MessageModel, SQL92, SubscriptionData, SubscriptionGroupConfig, TAG};
use crate::common::topic::{self, PERM_READ, TopicConfig};
use crate::common::{hash, sysflag};
use crate::net::responder::Responder;
use crate::net::service::LaneKind;
use crate::remoting::code::{request as code, response};
use crate::remoting::command::{Body, Command, Language};
use crate::remoting::header::pull::{PullMessageRequest, PullMessageResponse};
use crate::store::reading::{GetLimits, GetResult, GetStatus, MessageFilter};

use super::client_view;

/// Longest time a pull is held, whatever the client asks, ms: a connection is closed after as long without a request.
const MAX_SUSPEND_MS: i64 = 120_000;
/// Parts of an expression times units that one pull may evaluate on a net thread; about a millisecond.
const NET_THREAD_PARTS: usize = 100_000;
/// Units that one pull scans, about.
const SCANNED_UNITS: i64 = 800;

/// Tags codes, sorted, each once; empty: everything passes.
type Codes = SmallVec<[i32; 4]>;

/// A pull request.
pub(crate) struct Pull<'a> {
    header: PullMessageRequest<'a>,
    lite: bool,
    language: Language,
}

/// A pull that may be served.
struct Plan {
    topic_sys_flag: i32,
    group_sys_flag: i32,
    wanted: Wanted,
}

/// What a pull comes to.
struct Reading {
    code: i32,
    remark: &'static str,
    header: PullMessageResponse,
    found: Option<GetResult>,
}

/// Why a pull is refused.
struct Refusal {
    code: i32,
    text: String,
    forbidden_type: Option<i32>,
}

impl Refusal {
    fn new(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), forbidden_type: None }
    }

    fn forbidden(kind: i32, text: impl Into<String>) -> Self {
        Self { code: response::NO_PERMISSION, text: text.into(), forbidden_type: Some(kind) }
    }
}

/// Serves a pull on a thread of `kind`.
pub(crate) fn handle(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder, kind: LaneKind) {
    let header = match PullMessageRequest::decode(request) {
        Ok(header) => header,
        Err(error) => return responder.error(response::SYSTEM_ERROR, &error.to_string()),
    };
    if kind == LaneKind::Net && context.store.likely_cold(&header.topic, header.queue_id, header.queue_offset) {
        return responder.defer(request);
    }
    let pull = Pull { header, lite: request.code == code::LITE_PULL_MESSAGE, language: request.language };
    let plan = match pull.plan(context, None) {
        Ok(plan) => plan,
        Err(refusal) => return refuse(responder, &refusal),
    };
    if kind == LaneKind::Net && pull.is_slow(context, &plan.wanted) {
        return responder.defer(request);
    }
    let reading = pull.read(context, &plan, pull.header.queue_offset);
    pull.commit(context);
    if reading.code == response::PULL_NOT_FOUND && pull.header.sys_flag & sysflag::PULL_SUSPEND != 0 {
        return pull.wait(context, responder, plan.wanted);
    }
    pull.answer(context, responder, reading);
}

/// Executes a pull that is held no longer: whatever there is now is its answer, unless it was woken by messages that are not for it.
pub(crate) fn execute_held(context: &BrokerContext, mut waiting: Waiting) {
    loop {
        if !waiting.value.responder.connection().is_open() {
            return waiting.value.responder.silent();
        }
        let reading = match waiting.value.pull.read_held(context, &mut waiting.wanted, &mut waiting.offset) {
            Ok(reading) => reading,
            Err(refusal) => return refuse(waiting.value.responder, &refusal),
        };
        match wait_on(context, waiting, &reading) {
            ControlFlow::Continue(Some(back)) => waiting = back,
            ControlFlow::Continue(None) => return,
            ControlFlow::Break(Waiter { value: HeldPull { pull, responder }, .. }) => return pull.answer(context, responder, reading),
        }
    }
}

/// Lets a woken pull wait behind what it has read and may not have. Breaks when the reading is its answer; the pull comes back when
/// there is more to read already.
fn wait_on(context: &BrokerContext, mut waiting: Waiting, reading: &Reading) -> ControlFlow<Waiting, Option<Waiting>> {
    let nothing_for_it = reading.code == response::PULL_RETRY_IMMEDIATELY && reading.header.next_begin_offset > waiting.offset;
    if waiting.ending == Ending::Over || !nothing_for_it {
        return ControlFlow::Break(waiting);
    }
    waiting.offset = reading.header.next_begin_offset;
    ControlFlow::Continue(hold(context, waiting).err())
}

/// Holds a pull; it comes back, as if woken, when it cannot wait.
fn hold(context: &BrokerContext, waiting: Waiting) -> Result<(), Waiting> {
    let (topic, queue_id) = (waiting.value.pull.header.topic.to_string(), waiting.value.pull.header.queue_id);
    let max_offset = || context.store.queue_bounds(&topic, queue_id).1;
    let held = context.hold.hold(&topic, queue_id, Waiter { ending: Ending::Over, ..waiting }, max_offset);
    held.map_err(|back| Waiter { ending: Ending::Perhaps, ..back })
}

fn refuse(responder: Responder, refusal: &Refusal) {
    let header = PullMessageResponse { forbidden_type: refusal.forbidden_type, ..PullMessageResponse::default() };
    responder.reply(refusal.code, Some(&refusal.text), &header, Body::Empty);
}

impl Pull<'_> {
    /// Checks the request. `own`: what its own text came to, when it has been read before.
    fn plan(&self, context: &BrokerContext, own: Option<&Wanted>) -> Result<Plan, Refusal> {
        let group = self.check_group(context)?;
        let topic = self.check_topic(context)?;
        let wanted = self.wanted(context, &group, own)?;
        Ok(Plan { topic_sys_flag: topic.topic_sys_flag, group_sys_flag: group.group_sys_flag, wanted })
    }

    /// Looks up what there is from `offset` on.
    fn read(&self, context: &BrokerContext, plan: &Plan, offset: i64) -> Reading {
        let mut header = PullMessageResponse {
            topic_sys_flag: Some(plan.topic_sys_flag),
            group_sys_flag: Some(plan.group_sys_flag),
            ..PullMessageResponse::default()
        };
        let request = &self.header;
        if context.config.server_side_reset_offset
            && let Some(offset) = context.offsets.take_reset(&request.topic, &request.consumer_group, request.queue_id)
        {
            (header.min_offset, header.max_offset) = context.store.queue_bounds(&request.topic, request.queue_id);
            header.next_begin_offset = offset;
            return Reading { code: response::PULL_OFFSET_MOVED, remark: "OFFSET_RESET", header, found: None };
        }
        let found = context.store.get(&request.topic, request.queue_id, offset, &self.limits(context), &PullFilter(&plan.wanted));
        header.next_begin_offset = found.next_begin_offset;
        header.min_offset = found.min_offset;
        header.max_offset = found.max_offset;
        let (code, remark) = code_of(found.status, offset);
        Reading { code, remark, header, found: Some(found) }
    }

    /// Reads for a pull that was held. `offset` is behind messages that `wanted` has rejected; they are looked at again if what is wanted
    /// has changed meanwhile. Both are those of the reading afterwards.
    fn read_held(&self, context: &BrokerContext, wanted: &mut Wanted, offset: &mut i64) -> Result<Reading, Refusal> {
        let asked = self.header.queue_offset;
        let plan = self.plan(context, Some(wanted))?;
        if !is_same(&plan.wanted, wanted) {
            *offset = asked;
        }
        let mut reading = self.read(context, &plan, *offset);
        if reading.code == response::PULL_NOT_FOUND && *offset > asked {
            // As for any client that is to ask from another offset on.
            (reading.code, reading.remark) = code_of(GetStatus::NoMatchedMessage, *offset);
        }
        *wanted = plan.wanted;
        Ok(reading)
    }

    /// Whether the filter would keep a thread for long.
    fn is_slow(&self, context: &BrokerContext, wanted: &Wanted) -> bool {
        let Wanted::Matching(expression) = wanted else { return false };
        let request = &self.header;
        let behind = context.store.queue_bounds(&request.topic, request.queue_id).1.saturating_sub(request.queue_offset);
        let units = usize::try_from(behind.min(SCANNED_UNITS)).unwrap_or(0);
        expression.parts().saturating_mul(units) > NET_THREAD_PARTS
    }

    /// The broker's and the group's permissions.
    fn check_group(&self, context: &BrokerContext) -> Result<Arc<SubscriptionGroupConfig>, Refusal> {
        let config = &context.config;
        let group = &*self.header.consumer_group;
        let permission = context.settings.broker_permission();
        if permission & PERM_READ == 0 {
            let text = format!("the broker[{}] pulling message is forbidden: brokerPermission={permission}", context.store_host.ip());
            return Err(Refusal::forbidden(1, text));
        }
        if self.lite && !config.lite_pull_enable {
            let text = format!("the broker[{}] for lite pull consumer is forbidden: litePullMessageEnable=false", context.store_host.ip());
            return Err(Refusal::new(response::NO_PERMISSION, text));
        }
        let Some(group_config) = context.groups.find_or_create(group, context.clock.now_ms()) else {
            let text = format!("subscription group [{group}] does not exist, and was not created (autoCreateSubscriptionGroup)");
            return Err(Refusal::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, text));
        };
        if !group_config.consume_enable {
            return Err(Refusal::forbidden(2, format!("subscription group no permission, {group}: consumeEnable=false")));
        }
        Ok(group_config)
    }

    fn check_topic(&self, context: &BrokerContext) -> Result<Arc<TopicConfig>, Refusal> {
        let request = &self.header;
        let Some(topic) = context.topics.get(&request.topic) else {
            let text = format!("topic[{}] not exist, apply first please!", request.topic);
            return Err(Refusal::new(response::TOPIC_NOT_EXIST, text));
        };
        if topic.perm & PERM_READ == 0 {
            return Err(Refusal::forbidden(3, format!("the topic[{}] pulling message is forbidden: perm={}", request.topic, topic.perm)));
        }
        if !(0..topic.read_queue_nums).contains(&request.queue_id) {
            let text = format!(
                "queueId[{}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}]",
                request.queue_id, request.topic, topic.read_queue_nums
            );
            return Err(Refusal::new(response::INVALID_PARAMETER, text));
        }
        if topic.topic_name.len() > topic::MAX_TOPIC_LEN && client_view::reads_one_topic_length_byte(self.language) {
            let text = format!(
                "topic of {} bytes: clients in {} cannot read records whose topic exceeds {} bytes",
                topic.topic_name.len(),
                self.language.name(),
                topic::MAX_TOPIC_LEN
            );
            return Err(Refusal::new(response::SYSTEM_ERROR, text));
        }
        Ok(topic)
    }

    /// What passes: by the request's own text, or by the group's subscription.
    fn wanted(&self, context: &BrokerContext, group: &SubscriptionGroupConfig, own: Option<&Wanted>) -> Result<Wanted, Refusal> {
        let request = &self.header;
        if request.sys_flag & sysflag::PULL_CLASS_FILTER != 0 {
            return Err(no_class_filter(&request.topic));
        }
        if request.sys_flag & sysflag::PULL_SUBSCRIPTION != 0 {
            if let Some(wanted) = own {
                return Ok(wanted.clone());
            }
            let expression = request.subscription.as_deref().unwrap_or_default();
            let kind = request.expression_type.as_deref().unwrap_or(TAG);
            return self.wanted_by_text(context, expression, kind);
        }
        let name = &*request.consumer_group;
        let Some(online) = context.clients.consumer_group(name) else {
            let text = format!("the consumer's group info not exist: {name} has sent no heartbeat to this broker");
            return Err(Refusal::new(response::SUBSCRIPTION_NOT_EXIST, text));
        };
        if !group.consume_broadcast_enable && online.message_model == MessageModel::Broadcasting {
            let text = format!("the consumer group[{name}] can not consume by broadcast way: consumeBroadcastEnable=false");
            return Err(Refusal::forbidden(4, text));
        }
        if context.groups.is_forbidden(name, &request.topic) {
            return Err(Refusal::forbidden(5, format!("the consumer group[{name}] is forbidden for topic[{}]", request.topic)));
        }
        let Some(subscription) = online.subscriptions.get(&*request.topic) else {
            let text = format!("the consumer's subscription not exist: group {name}, topic {}", request.topic);
            return Err(Refusal::new(response::SUBSCRIPTION_NOT_EXIST, text));
        };
        if subscription.sub_version < request.sub_version {
            let text = format!(
                "the consumer's subscription not latest: group {name}, topic {}, version {} here, {} in the request",
                request.topic, subscription.sub_version, request.sub_version
            );
            return Err(Refusal::new(response::SUBSCRIPTION_NOT_LATEST, text));
        }
        if subscription.class_filter_mode {
            return Err(no_class_filter(&request.topic));
        }
        if !subscription.is_tag() {
            return self.wanted_by_group(context, &online, subscription);
        }
        if subscription.is_all() || request.topic == topic::SCHEDULE_TOPIC {
            return Ok(Wanted::Codes(Codes::new()));
        }
        Ok(of_codes(subscription.code_set.iter().copied().collect()))
    }

    /// By the expression that the group's subscription has been compiled to. The two come with one heartbeat, so that there is no
    /// `FILTER_DATA_NOT_LATEST` (28): an older expression than the subscription's.
    fn wanted_by_group(&self, context: &BrokerContext, online: &ConsumerGroup, subscription: &SubscriptionData) -> Result<Wanted, Refusal> {
        let (group, topic) = (&*self.header.consumer_group, &*self.header.topic);
        if let Some(why) = context.no_sql92() {
            return Err(Refusal::new(response::SYSTEM_ERROR, why));
        }
        let why = match online.expressions.get(topic) {
            Some(Ok(expression)) => return Ok(Wanted::Matching(Arc::clone(expression))),
            Some(Err(why)) => why.as_str(),
            None => "it has no expression",
        };
        let text = format!("the subscription of group {group} to topic {topic}, version {}, is of no use: {why}", subscription.sub_version);
        Err(Refusal::new(response::FILTER_DATA_NOT_EXIST, text))
    }

    fn wanted_by_text(&self, context: &BrokerContext, expression: &str, kind: &str) -> Result<Wanted, Refusal> {
        let topic = &*self.header.topic;
        let unreadable =
            |text| Refusal::new(response::SUBSCRIPTION_PARSE_FAILED, format!("parse the consumer's subscription failed: {text}"));
        subscription::check_length("subscription", topic, expression.len()).map_err(unreadable)?;
        if !kind.is_empty() && !kind.eq_ignore_ascii_case(TAG) {
            if !kind.eq_ignore_ascii_case(SQL92) {
                return Err(unreadable(format!("the expression type {kind:?} of topic {topic} is neither TAG nor SQL92")));
            }
            if let Some(why) = context.no_sql92() {
                return Err(Refusal::new(response::SYSTEM_ERROR, why));
            }
            return context.expressions.get(expression).map(Wanted::Matching).map_err(unreadable);
        }
        if expression == "*" || expression.trim().is_empty() {
            return Ok(Wanted::Codes(Codes::new()));
        }
        let codes: Codes = subscription::tags(expression).map(hash::java_hash).collect();
        if codes.is_empty() {
            return Err(unreadable(subscription::no_tag(topic, expression)));
        }
        Ok(if topic == topic::SCHEDULE_TOPIC { Wanted::Codes(Codes::new()) } else { of_codes(codes) })
    }

    fn limits(&self, context: &BrokerContext) -> GetLimits {
        let mut limits = context.config.get_limits;
        let wish = self.header.max_msg_nums.clamp(1, context.config.pull_batch_max.max(1));
        limits.max_messages = usize::try_from(wish).unwrap_or(1);
        if let Some(bytes) = self.header.max_msg_bytes.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes > 0) {
            limits.max_bytes = limits.max_bytes.min(bytes);
            limits.max_bytes_on_disk = limits.max_bytes_on_disk.min(bytes);
        }
        limits
    }

    /// Commits the offset that came along; only on the first execution.
    fn commit(&self, context: &BrokerContext) {
        let request = &self.header;
        if request.sys_flag & sysflag::PULL_COMMIT_OFFSET != 0 && request.commit_offset >= 0 {
            context.offsets.commit(&request.topic, &request.consumer_group, request.queue_id, request.commit_offset);
        }
    }

    /// Waits for a message, if there is still none.
    fn wait(self, context: &BrokerContext, mut responder: Responder, mut wanted: Wanted) {
        let config = &context.config;
        let wish_ms = self.header.suspend_timeout_millis.clamp(0, MAX_SUSPEND_MS);
        let wait_ms = if config.long_polling_enable { wish_ms } else { wish_ms.min(config.short_polling_ms.min(120_000) as i64) };
        let deadline_ms = context.clock.now_ms() + wait_ms;
        responder.hold();
        let pull = Box::new(self.into_owned());
        let offset = pull.header.queue_offset;
        let owner = responder.connection().id().0;
        let mut bytes = pull.heap_bytes();
        match &mut wanted {
            Wanted::Codes(codes) => codes.shrink_to_fit(), // what equal tags took is not to be held
            Wanted::Matching(expression) if pull.header.sys_flag & sysflag::PULL_SUBSCRIPTION != 0 => bytes += expression.heap_bytes(),
            Wanted::Matching(_) => {} // the group's
        }
        let waiting = Waiter { offset, wanted, deadline_ms, owner, bytes, ending: Ending::Over, value: HeldPull { pull, responder } };
        if let Err(waiting) = hold(context, waiting) {
            execute_held(context, waiting);
        }
    }

    fn answer(&self, context: &BrokerContext, responder: Responder, reading: Reading) {
        let Reading { code, remark, header, found, .. } = reading;
        let body = match found {
            Some(found) if code == response::SUCCESS => {
                let request = &self.header;
                let (messages, bytes) = (found.messages as u64, found.bytes as u64);
                context.stats.got(&request.topic, request.queue_id, &request.consumer_group, messages, bytes);
                context.offsets.note_pull(&request.topic, &request.consumer_group, request.queue_id, header.next_begin_offset);
                client_view::body(found.slices, self.language)
            }
            _ => {
                context.stats.missed();
                Body::Empty
            }
        };
        responder.reply(code, Some(remark), &header, body);
    }

    /// Bytes on the heap of one that is [`Pull::into_owned`].
    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.header.consumer_group.len() + self.header.topic.len()
    }

    /// What a held pull needs: what its expression came to is kept instead of the text.
    fn into_owned(self) -> Pull<'static> {
        fn own(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }
        let header = self.header;
        Pull {
            header: PullMessageRequest {
                consumer_group: own(header.consumer_group),
                topic: own(header.topic),
                queue_id: header.queue_id,
                queue_offset: header.queue_offset,
                max_msg_nums: header.max_msg_nums,
                sys_flag: header.sys_flag,
                commit_offset: header.commit_offset,
                suspend_timeout_millis: header.suspend_timeout_millis,
                subscription: None,
                sub_version: header.sub_version,
                expression_type: None,
                max_msg_bytes: header.max_msg_bytes,
                request_source: header.request_source,
                proxy_forward_client_id: None,
            },
            lite: self.lite,
            language: self.language,
        }
    }
}

fn no_class_filter(topic: &str) -> Refusal {
    let text = format!("the subscription to topic {topic} asks for a class filter, which no broker of this line runs: use tags or SQL92");
    Refusal::new(response::SYSTEM_ERROR, text)
}

/// Response code and remark of a look-up at `offset`.
fn code_of(status: GetStatus, offset: i64) -> (i32, &'static str) {
    let nothing_there = if offset == 0 { response::PULL_NOT_FOUND } else { response::PULL_OFFSET_MOVED };
    match status {
        GetStatus::Found => (response::SUCCESS, "FOUND"),
        GetStatus::NoMatchedLogicQueue => (nothing_there, "NO_MATCHED_LOGIC_QUEUE"),
        GetStatus::NoMessageInQueue => (nothing_there, "NO_MESSAGE_IN_QUEUE"),
        GetStatus::NoMatchedMessage => (response::PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"),
        GetStatus::MessageWasRemoving => (response::PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING"),
        GetStatus::OffsetFoundNull => (response::PULL_NOT_FOUND, "OFFSET_FOUND_NULL"),
        GetStatus::OffsetOverflowOne => (response::PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"),
        GetStatus::OffsetOverflowBadly => (response::PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"),
        GetStatus::OffsetTooSmall => (response::PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"),
    }
}

/// Codes in any order, given any number of times.
fn of_codes(mut codes: Codes) -> Wanted {
    codes.sort_unstable();
    codes.dedup();
    Wanted::Codes(codes)
}

fn is_same(one: &Wanted, other: &Wanted) -> bool {
    match (one, other) {
        (Wanted::Codes(one), Wanted::Codes(other)) => one == other,
        (Wanted::Matching(one), Wanted::Matching(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

/// Passes messages of some tags by the hash in the consume queue, clients compare the texts; or those that pass an expression.
struct PullFilter<'a>(&'a Wanted);

impl MessageFilter for PullFilter<'_> {
    fn matches_code(&self, tags_code: i64) -> bool {
        match self.0 {
            Wanted::Codes(codes) => codes.is_empty() || codes.binary_search(&(tags_code as i32)).is_ok(),
            Wanted::Matching(_) => true,
        }
    }

    fn matches_properties(&self, properties: &str) -> bool {
        match self.0 {
            Wanted::Codes(_) => true,
            Wanted::Matching(expression) => expression.matches(properties),
        }
    }

    fn needs_properties(&self) -> bool {
        matches!(self.0, Wanted::Matching(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_look_ups() {
        assert_eq!(code_of(GetStatus::Found, 3).0, 0);
        assert_eq!(code_of(GetStatus::NoMatchedLogicQueue, 0).0, 19);
        assert_eq!(code_of(GetStatus::NoMatchedLogicQueue, 1).0, 21);
        assert_eq!(code_of(GetStatus::NoMessageInQueue, 0).0, 19);
        assert_eq!(code_of(GetStatus::NoMessageInQueue, 9).0, 21);
        assert_eq!(code_of(GetStatus::NoMatchedMessage, 0), (20, "NO_MATCHED_MESSAGE"));
        assert_eq!(code_of(GetStatus::OffsetOverflowOne, 7).0, 19);
        assert_eq!(code_of(GetStatus::OffsetOverflowBadly, 7).0, 21);
        assert_eq!(code_of(GetStatus::OffsetTooSmall, 7).0, 21);
    }

    #[test]
    fn tags_filter_by_hash() {
        let wanted = of_codes(["TagC", "TagA", "TagC"].into_iter().map(hash::java_hash).collect());
        assert!(matches!(&wanted, Wanted::Codes(codes) if codes.len() == 2));
        let filter = PullFilter(&wanted);
        assert!(filter.matches_code(hash::tags_code(Some("TagA"))));
        assert!(!filter.matches_code(hash::tags_code(Some("TagB"))) && !filter.matches_code(0));
        assert!(PullFilter(&Wanted::Codes(Codes::new())).matches_code(0));
    }
}
