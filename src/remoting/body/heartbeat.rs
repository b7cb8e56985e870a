//! `HeartbeatData` (34).

use crate::common::subscription::{self, ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use crate::remoting::fastjson::{self, Value, write_text};

/// A client's heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatData {
    /// Client id.
    pub client_id: String,
    /// Producer groups.
    pub producers: Vec<String>,
    /// Consumer groups.
    pub consumers: Vec<ConsumerData>,
    /// v2: fingerprint of the subscriptions; 0: v1.
    pub fingerprint: i32,
    /// v2: no subscriptions in this one.
    pub without_sub: bool,
}

/// One consumer group of a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerData {
    /// Group.
    pub group_name: String,
    /// Pull, push or pop.
    pub consume_type: ConsumeType,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Where a new group begins.
    pub consume_from_where: ConsumeFromWhere,
    /// Unit mode.
    pub unit_mode: bool,
    /// Subscriptions; codes recomputed from the expression, whoever sent them.
    pub subscriptions: Vec<SubscriptionData>,
}

impl HeartbeatData {
    /// Reads the bodies of all clients (enumerations as names or ordinals, missing members, numbers as texts).
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        let value = fastjson::parse(text)?;
        if !matches!(value, Value::Object(_)) {
            return Err("the heartbeat is no JSON object".to_owned());
        }
        let list = |name| value.get(name).map_or(&[][..], Value::elements);
        Ok(Self {
            client_id: text_of(&value, "clientID"),
            producers: list("producerDataSet").iter().map(|data| text_of(data, "groupName")).collect(),
            consumers: list("consumerDataSet").iter().map(ConsumerData::from_value).collect::<Result<_, _>>()?,
            fingerprint: value.get("heartbeatFingerprint").and_then(Value::as_i64).unwrap_or(0) as i32,
            without_sub: value.get("withoutSub").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// As Java writes it (clients).
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\"clientID\":");
        write_text(&mut out, &self.client_id);
        out.push_str(",\"consumerDataSet\":[");
        for (at, consumer) in self.consumers.iter().enumerate() {
            out.push_str(if at > 0 { "," } else { "" });
            consumer.write(&mut out);
        }
        out.push_str("],\"heartbeatFingerprint\":");
        out.push_str(itoa::Buffer::new().format(self.fingerprint));
        out.push_str(",\"producerDataSet\":[");
        for (at, producer) in self.producers.iter().enumerate() {
            out.push_str(if at > 0 { ",{\"groupName\":" } else { "{\"groupName\":" });
            write_text(&mut out, producer);
            out.push('}');
        }
        out.push_str(if self.without_sub { "],\"withoutSub\":true}" } else { "],\"withoutSub\":false}" });
        out
    }
}

impl ConsumerData {
    fn from_value(value: &Value) -> Result<Self, String> {
        let subscriptions = value.get("subscriptionDataSet").map_or(&[][..], Value::elements);
        Ok(Self {
            group_name: text_of(value, "groupName"),
            consume_type: enumeration(value.get("consumeType"), &CONSUME_TYPES),
            message_model: enumeration(value.get("messageModel"), &MESSAGE_MODELS),
            consume_from_where: enumeration(value.get("consumeFromWhere"), &CONSUME_FROM_WHERES),
            unit_mode: value.get("unitMode").and_then(Value::as_bool).unwrap_or(false),
            subscriptions: subscriptions.iter().map(subscription).collect::<Result<_, _>>()?,
        })
    }

    fn write(&self, out: &mut String) {
        out.push_str("{\"consumeFromWhere\":");
        write_text(out, name_of(self.consume_from_where, &CONSUME_FROM_WHERES));
        out.push_str(",\"consumeType\":");
        write_text(out, name_of(self.consume_type, &CONSUME_TYPES));
        out.push_str(",\"groupName\":");
        write_text(out, &self.group_name);
        out.push_str(",\"messageModel\":");
        write_text(out, name_of(self.message_model, &MESSAGE_MODELS));
        out.push_str(",\"subscriptionDataSet\":[");
        for (at, subscription) in self.subscriptions.iter().enumerate() {
            out.push_str(if at > 0 { "," } else { "" });
            // A SubscriptionData is texts, numbers and lists of them: it always serializes.
            out.push_str(&serde_json::to_string(subscription).unwrap_or_default());
        }
        out.push_str(if self.unit_mode { "],\"unitMode\":true}" } else { "],\"unitMode\":false}" });
    }
}

/// Names in the order of their ordinals.
const CONSUME_TYPES: [(&str, ConsumeType); 3] =
    [("CONSUME_ACTIVELY", ConsumeType::Actively), ("CONSUME_PASSIVELY", ConsumeType::Passively), ("CONSUME_POP", ConsumeType::Pop)];
const MESSAGE_MODELS: [(&str, MessageModel); 2] = [("BROADCASTING", MessageModel::Broadcasting), ("CLUSTERING", MessageModel::Clustering)];
const CONSUME_FROM_WHERES: [(&str, ConsumeFromWhere); 6] = [
    ("CONSUME_FROM_LAST_OFFSET", ConsumeFromWhere::LastOffset),
    ("CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", ConsumeFromWhere::LastOffsetAndFromMinWhenBootFirst),
    ("CONSUME_FROM_MIN_OFFSET", ConsumeFromWhere::MinOffset),
    ("CONSUME_FROM_MAX_OFFSET", ConsumeFromWhere::MaxOffset),
    ("CONSUME_FROM_FIRST_OFFSET", ConsumeFromWhere::FirstOffset),
    ("CONSUME_FROM_TIMESTAMP", ConsumeFromWhere::Timestamp),
];

fn enumeration<T: Copy + Default>(value: Option<&Value>, names: &[(&str, T)]) -> T {
    let Some(text) = value.and_then(Value::as_text) else { return T::default() };
    match text.parse::<usize>() {
        Ok(ordinal) => names.get(ordinal).map_or_else(T::default, |(_, value)| *value),
        Err(_) => names.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text)).map_or_else(T::default, |(_, value)| *value),
    }
}

fn name_of<T: PartialEq>(value: T, names: &[(&'static str, T)]) -> &'static str {
    names.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

fn text_of(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_text).map(std::borrow::Cow::into_owned).unwrap_or_default()
}

/// Reads a subscription. Codes are computed from the tags: C++ sends 0 and Go hashes UTF-8 bytes.
///
/// # Errors
/// The expression, or its tags together, are longer than [`subscription::MAX_EXPRESSION_BYTES`]: the text names the topic and both lengths.
pub fn subscription(value: &Value) -> Result<SubscriptionData, String> {
    let topic = text_of(value, "topic");
    let sub_version = value.get("subVersion").and_then(Value::as_i64).unwrap_or(0);
    let expression = text_of(value, "subString");
    let expression_type = text_of(value, "expressionType");
    subscription::check_length("subscription", &topic, expression.len())?;
    let mut data = SubscriptionData::parse(&topic, &expression, &expression_type, sub_version).unwrap_or_else(|_| SubscriptionData {
        topic: topic.clone(),
        sub_string: expression.clone(),
        sub_version,
        ..SubscriptionData::default()
    });
    if data.is_tag() && data.tags_set.is_empty() && !data.is_all() {
        let tags = value.get("tagsSet").map_or(&[][..], Value::elements);
        let tags: Vec<String> = tags.iter().filter_map(|tag| tag.as_text().map(std::borrow::Cow::into_owned)).collect();
        subscription::check_length("tagsSet", &topic, tags.iter().map(String::len).sum())?;
        data.set_tags(tags);
    }
    data.class_filter_mode = value.get("classFilterMode").and_then(Value::as_bool).unwrap_or(false);
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_go_and_cpp() {
        let java = br#"{"clientID":"10.0.0.1@1#2","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":17,"tagsSet":["TagA"],"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"p"}],"withoutSub":false}"#;
        let cpp = b"{\"clientID\":\"10.0.0.1@1#2\",\"consumerDataSet\":[{\"consumeFromWhere\":4,\"consumeType\":1,\"groupName\":\"g\",\"messageModel\":1,\"subscriptionDataSet\":[{\"codeSet\":[0],\"subString\":\"TagA\",\"subVersion\":\"17\",\"tagsSet\":[\"TagA\"],\"topic\":\"T\"}]}],\"producerDataSet\":[{\"groupName\":\"p\"}]}\n";
        let from_java = HeartbeatData::from_json(java).unwrap();
        assert_eq!(from_java.consumers[0].subscriptions[0].code_set, [2_598_919]);
        assert_eq!(from_java.consumers[0].consume_from_where, ConsumeFromWhere::FirstOffset);
        assert_eq!(HeartbeatData::from_json(cpp).unwrap(), from_java);
        assert_eq!(HeartbeatData::from_json(from_java.to_json().as_bytes()).unwrap(), from_java);
        let go = br#"{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"BROADCASTING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{"classFilterMode":false,"topic":"T","subString":"*","tagsSet":null,"codeSet":["1"],"subVersion":1,"expressionType":""}],"unitMode":false}]}"#;
        let from_go = HeartbeatData::from_json(go).unwrap();
        assert_eq!(from_go.consumers[0].message_model, MessageModel::Broadcasting);
        assert!(from_go.consumers[0].subscriptions[0].is_all());
    }

    #[test]
    fn long_subscriptions_are_refused() {
        let heartbeat = |expression: &str, tag: &str| {
            format!(
                r#"{{"clientID":"c","consumerDataSet":[{{"groupName":"g","subscriptionDataSet":[{{"topic":"T","subString":"{expression}","tagsSet":["{tag}"]}}]}}]}}"#
            )
        };
        let limit = subscription::MAX_EXPRESSION_BYTES;
        let (longest, longer) = ("t".repeat(limit), "t".repeat(limit + 1));
        for (expression, tag) in [(longest.as_str(), ""), ("||", &longest)] {
            let read = HeartbeatData::from_json(heartbeat(expression, tag).as_bytes()).unwrap();
            assert_eq!(read.consumers[0].subscriptions[0].tags_set, [longest.as_str()]);
        }
        for (expression, tag) in [(longer.as_str(), ""), ("||", &longer)] {
            let refusal = HeartbeatData::from_json(heartbeat(expression, tag).as_bytes()).unwrap_err();
            assert!(refusal.contains("topic T") && refusal.contains("65537") && refusal.contains("65536"), "{refusal}");
        }
    }

    #[test]
    fn broken_bodies() {
        for bad in [&b""[..], b"[]", b"{\"clientID\":", b"\xff"] {
            assert!(HeartbeatData::from_json(bad).is_err());
        }
        assert_eq!(HeartbeatData::from_json(b"{}").unwrap(), HeartbeatData::default());
    }
}
