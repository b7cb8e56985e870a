//! Administration of groups: 200, 201, 207, 225, 345, 352, 353.
//!
//! Whatever changes the table is durable before it is answered.

use crate::broker::attributes;
use crate::broker::context::BrokerContext;
use crate::common::subscription::SubscriptionGroupConfig;
use crate::common::topic::check_group;
use crate::net::service::Placement;
use crate::remoting::body::client::subscription_json;
use crate::remoting::body::group::{group_config_body, group_config_list, group_config_table_json, group_forbidden_json};
use crate::remoting::body::topic::write_data_version;
use crate::remoting::code::{request as code, response};
use crate::remoting::command::Command;
use crate::remoting::header::admin::TablePage;

use super::Handler;
use super::admin_topic::check_master;
use super::answer::{Answer, Outcome, Refusal, send};

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[
    (code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Placement::Pool, |context, request, to| send(to, update(context, request))),
    (code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, Placement::Pool, |context, request, to| send(to, update_list(context, request))),
    (code::DELETE_SUBSCRIPTIONGROUP, Placement::Pool, |context, request, to| send(to, delete(context, request))),
    (code::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Placement::Pool, |context, request, to| send(to, all(context, request))),
    (code::GET_SUBSCRIPTIONGROUP_CONFIG, Placement::Inline, |context, request, to| send(to, one(context, request))),
    (code::QUERY_SUBSCRIPTION_BY_CONSUMER, Placement::Inline, |context, request, to| send(to, subscription(context, request))),
    (code::UPDATE_AND_GET_GROUP_FORBIDDEN, Placement::Pool, |context, request, to| send(to, forbidden(context, request))),
];

fn update(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    check_master(context, "subscription group")?;
    let config = checked(context, group_config_body(request.body)?)?;
    context.groups.update(config, context.clock.now_ms())?;
    Ok(Answer::default())
}

fn update_list(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    check_master(context, "subscription group")?;
    let wanted = group_config_list(request.body)?;
    let configs: Vec<_> = wanted.into_iter().map(|wanted| checked(context, wanted)).collect::<Result<_, _>>()?;
    context.groups.update_all(configs, context.clock.now_ms())?;
    Ok(Answer::default())
}

/// The configuration to store: `wanted` holds changes of attributes.
fn checked(context: &BrokerContext, mut wanted: SubscriptionGroupConfig) -> Result<SubscriptionGroupConfig, Refusal> {
    let invalid = |text: String| Refusal(response::INVALID_PARAMETER, text);
    check_group(&wanted.group_name).map_err(invalid)?;
    let stored = context.groups.get(&wanted.group_name);
    let current = stored.map(|stored| stored.attributes.clone()).unwrap_or_default();
    wanted.attributes = attributes::alter(&current, &wanted.attributes).map_err(invalid)?;
    Ok(wanted)
}

fn delete(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    check_master(context, "subscription group")?;
    let group = request.ext.need_text("groupName")?;
    context.groups.delete(&group, context.clock.now_ms())?;
    context.stats.group_deleted(&group);
    if request.ext.bool("cleanOffset").unwrap_or(false) {
        context.offsets.remove_group(&group);
        context.offsets.persist_and_wait()?;
    }
    Ok(Answer::default())
}

fn all(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let version = context.groups.data_version();
    let groups = context.groups.all();
    if groups.is_empty() {
        return Err(Refusal(response::SYSTEM_ERROR, "No subscription group in this broker".to_owned()));
    }
    let mut current = String::new();
    write_data_version(&mut current, &version);
    let page = TablePage::decode(request, "groupSeq", "maxGroupNum", &current)?;
    let body = group_config_table_json(TablePage::of(page, &groups), &context.groups.forbidden(), &version);
    Ok(Answer::json(body).field("totalGroupNum", groups.len().to_string()))
}

fn one(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let name = request.ext.need_text("group")?;
    let absent = || Refusal(response::SUBSCRIPTION_GROUP_NOT_EXIST, format!("No group in this broker. group: {name}"));
    let group = context.groups.get(&name).ok_or_else(absent)?;
    let body = serde_json::to_string(&*group).map_err(|error| error.to_string())?;
    Ok(Answer::json(body))
}

fn subscription(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let group = request.ext.need_text("group")?;
    let topic = request.ext.need_text("topic")?;
    let known = context.clients.consumer_group(&group);
    let data = known.as_ref().and_then(|known| known.subscriptions.get(&*topic));
    Ok(Answer::json(subscription_json(&group, &topic, data.map(|data| &**data))))
}

fn forbidden(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let group = request.ext.need_text("group")?;
    let topic = request.ext.need_text("topic")?;
    if let Some(readable) = request.ext.bool("readable") {
        check_master(context, "subscription group")?;
        context.groups.set_forbidden(&group, &topic, !readable, context.clock.now_ms())?;
    }
    let readable = !context.groups.is_forbidden(&group, &topic);
    Ok(Answer { remark: Some(String::new()), ..Answer::json(group_forbidden_json(&group, &topic, readable)) })
}
