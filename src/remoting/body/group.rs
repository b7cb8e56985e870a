//! Bodies about consumer groups: configuration (200, 201, 225, 352), prohibitions (353), lists (300), request modes (401, 402).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::subscription::SubscriptionGroupConfig;
use crate::common::topic::DataVersion;
use crate::remoting::fastjson::{self, Value};

use super::object::object_text;
use super::topic::{text, texts_by_name, write_data_version};

/// Prohibitions: group, topic, bits.
pub type ForbiddenTable = BTreeMap<String, BTreeMap<String, i32>>;

/// Reads a group's configuration; missing members have their defaults. `name` stands where the value names none.
///
/// # Errors
/// The value is no object.
pub fn group_config(value: &Value, name: &str) -> Result<SubscriptionGroupConfig, String> {
    if !matches!(value, Value::Object(_)) {
        return Err(format!("the configuration of group {name:?} is no object"));
    }
    let default = SubscriptionGroupConfig::default();
    let long = |member: &str, default: i64| value.get(member).and_then(Value::as_i64).unwrap_or(default);
    let int = |member: &str, default: i32| long(member, default.into()) as i32;
    let bool = |member: &str, default: bool| value.get(member).and_then(Value::as_bool).unwrap_or(default);
    let any = |member: &str| value.get(member).filter(|value| **value != Value::Null).map(Value::to_standard);
    Ok(SubscriptionGroupConfig {
        attributes: texts_by_name(value.get("attributes")),
        broker_id: long("brokerId", default.broker_id),
        consume_broadcast_enable: bool("consumeBroadcastEnable", default.consume_broadcast_enable),
        consume_enable: bool("consumeEnable", default.consume_enable),
        consume_from_min_enable: bool("consumeFromMinEnable", default.consume_from_min_enable),
        consume_message_orderly: bool("consumeMessageOrderly", default.consume_message_orderly),
        consume_timeout_minute: int("consumeTimeoutMinute", default.consume_timeout_minute),
        group_name: text(value, "groupName").filter(|name| !name.is_empty()).unwrap_or_else(|| name.to_owned()),
        group_retry_policy: any("groupRetryPolicy").unwrap_or(default.group_retry_policy),
        group_sys_flag: int("groupSysFlag", default.group_sys_flag),
        notify_consumer_ids_changed_enable: bool("notifyConsumerIdsChangedEnable", default.notify_consumer_ids_changed_enable),
        retry_max_times: int("retryMaxTimes", default.retry_max_times),
        retry_queue_nums: int("retryQueueNums", default.retry_queue_nums),
        subscription_data_set: any("subscriptionDataSet"),
        which_broker_when_consume_slowly: long("whichBrokerWhenConsumeSlowly", default.which_broker_when_consume_slowly),
    })
}

/// Reads the body of 200.
///
/// # Errors
/// What is wrong, and where.
pub fn group_config_body(body: &[u8]) -> Result<SubscriptionGroupConfig, String> {
    group_config(&fastjson::parse(body)?, "")
}

/// Reads the body of 225.
///
/// # Errors
/// What is wrong, and where.
pub fn group_config_list(body: &[u8]) -> Result<Vec<SubscriptionGroupConfig>, String> {
    let value = fastjson::parse_object(body, "SubscriptionGroupList")?;
    value.get("groupConfigList").map_or(&[][..], Value::elements).iter().map(|config| group_config(config, "")).collect()
}

/// Reads the table of `subscriptionGroup.json` and of the answer to 201.
///
/// # Errors
/// An entry is no object.
pub fn group_config_table(value: &Value) -> Result<Vec<SubscriptionGroupConfig>, String> {
    let members = value.get("subscriptionGroupTable").map_or(&[][..], Value::members);
    members.iter().map(|(name, config)| group_config(config, &name.as_text().unwrap_or_default())).collect()
}

/// Reads the prohibitions of the same.
pub fn forbidden_table(value: &Value) -> ForbiddenTable {
    let groups = value.get("forbiddenTable").map_or(&[][..], Value::members);
    let topics_of = |value: &Value| {
        let topics = value.members().iter();
        topics.filter_map(|(topic, bits)| Some((topic.as_text()?.into_owned(), bits.as_i64()? as i32))).collect()
    };
    groups.iter().filter_map(|(group, topics)| Some((group.as_text()?.into_owned(), topics_of(topics)))).collect()
}

/// Body of 201's answer.
pub fn group_config_table_json(groups: &[Arc<SubscriptionGroupConfig>], forbidden: &ForbiddenTable, version: &DataVersion) -> String {
    object_text(|body| {
        body.value("dataVersion", |out| write_data_version(out, version));
        body.serde("forbiddenTable", forbidden);
        body.object("subscriptionGroupTable", |table| {
            for group in groups {
                table.serde(&group.group_name, &**group);
            }
        });
    })
}

/// Body of 353's answer.
pub fn group_forbidden_json(group: &str, topic: &str, readable: bool) -> String {
    object_text(|body| {
        body.text("group", group).bool("readable", readable).text("topic", topic);
    })
}

/// Body `{"groupList":[…]}` (300).
pub fn group_list_json<T: AsRef<str>>(groups: impl IntoIterator<Item = T>) -> String {
    object_text(|body| {
        body.texts("groupList", groups);
    })
}

/// How a group asks for messages of a topic when the broker assigns the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageRequestMode {
    /// Each consumer pulls the queues assigned to it.
    #[default]
    Pull,
    /// Consumers pop.
    Pop,
}

impl MessageRequestMode {
    /// Name of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pull => "PULL",
            Self::Pop => "POP",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Pull, Self::Pop].into_iter().find(|mode| mode.name().eq_ignore_ascii_case(name))
    }
}

/// Request mode of a group on a topic (401).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestModeSetting {
    /// Topic.
    pub topic: String,
    /// Group.
    pub consumer_group: String,
    /// Pull or pop.
    pub mode: MessageRequestMode,
    /// Pop: queues of how many further clients one client shares; 0 and below: all queues.
    pub pop_share_queue_num: i32,
}

impl RequestModeSetting {
    /// Reads one.
    ///
    /// # Errors
    /// A mode that is neither PULL nor POP.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let mode = text(value, "mode").unwrap_or_else(|| "PULL".to_owned());
        Ok(Self {
            topic: text(value, "topic").unwrap_or_default(),
            consumer_group: text(value, "consumerGroup").unwrap_or_default(),
            mode: MessageRequestMode::from_name(&mode)
                .ok_or_else(|| format!("the message request mode {mode:?} is neither PULL nor POP"))?,
            pop_share_queue_num: value.get("popShareQueueNum").and_then(Value::as_i64).unwrap_or(0) as i32,
        })
    }
}

/// Body of 402's answer and content of `messageRequestMode.json`.
pub fn request_modes_json(settings: &BTreeMap<String, BTreeMap<String, RequestModeSetting>>) -> String {
    object_text(|body| {
        body.object("messageRequestModeMap", |topics| {
            for (topic, groups) in settings {
                topics.object(topic, |object| {
                    for (group, setting) in groups {
                        object.object(group, |object| {
                            object
                                .text("consumerGroup", &setting.consumer_group)
                                .text("mode", setting.mode.name())
                                .int("popShareQueueNum", setting.pop_share_queue_num.into())
                                .text("topic", &setting.topic);
                        });
                    }
                });
            }
        });
    })
}

/// Reads `messageRequestMode.json`.
///
/// # Errors
/// What is wrong, and where.
pub fn request_modes(body: &[u8]) -> Result<BTreeMap<String, BTreeMap<String, RequestModeSetting>>, String> {
    let value = fastjson::parse(body)?;
    let mut table = BTreeMap::<String, BTreeMap<_, _>>::new();
    for (topic, groups) in value.get("messageRequestModeMap").map_or(&[][..], Value::members) {
        for (group, setting) in groups.members() {
            let (Some(topic), Some(group)) = (topic.as_text(), group.as_text()) else { continue };
            table.entry(topic.into_owned()).or_default().insert(group.into_owned(), RequestModeSetting::from_value(setting)?);
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_configurations() {
        let group = group_config_body(br#"{"groupName":"g","consumeEnable":"false","retryMaxTimes":3,"groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5}},"subscriptionDataSet":null}"#).unwrap();
        assert_eq!((group.consume_enable, group.retry_max_times, group.retry_queue_nums), (false, 3, 1));
        assert_eq!(group.group_retry_policy["exponentialRetryPolicy"]["initial"], 5);
        assert_eq!(group.subscription_data_set, None);
        assert!(group_config_body(b"[]").is_err());
        let table = fastjson::parse(br#"{"subscriptionGroupTable":{"a":{}},"forbiddenTable":{"a":{"T":4}}}"#).unwrap();
        assert_eq!(group_config_table(&table).unwrap()[0].group_name, "a");
        let forbidden = forbidden_table(&table);
        assert_eq!(forbidden["a"]["T"], 4);
        let text = group_config_table_json(&[Arc::new(group)], &forbidden, &DataVersion::default());
        assert!(text.starts_with(r#"{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"forbiddenTable":{"a":{"T":4}},"subscriptionGroupTable":{"g":{"attributes":{},"brokerId":0,"#), "{text}");
    }

    #[test]
    fn request_modes_both_ways() {
        let text = r#"{"messageRequestModeMap":{"T":{"g":{"consumerGroup":"g","mode":"POP","popShareQueueNum":2,"topic":"T"}}}}"#;
        let modes = request_modes(text.as_bytes()).unwrap();
        assert_eq!(modes["T"]["g"].mode, MessageRequestMode::Pop);
        assert_eq!(request_modes_json(&modes), text);
        assert!(request_modes(br#"{"messageRequestModeMap":{"T":{"g":{"mode":"PUSH"}}}}"#).is_err());
    }
}
