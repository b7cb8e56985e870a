//! Bodies about clients: consumer list (38), connections (203, 204, 328), configuration check (46).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::subscription::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use crate::remoting::fastjson::{self, Value};

use super::heartbeat::subscription;
use super::object::{ObjectWriter, object_text, write_array};
use super::topic::text;

/// A connected client as the administration sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientConnection {
    /// Client id.
    pub client_id: String,
    /// Its address, `ip:port`.
    pub client_addr: String,
    /// Its language's name.
    pub language: &'static str,
    /// Version ordinal.
    pub version: i32,
    /// Milliseconds of its last heartbeat.
    pub last_update_ms: i64,
}

impl ClientConnection {
    fn write(&self, out: &mut String) {
        ObjectWriter::new(out)
            .text("clientAddr", &self.client_addr)
            .text("clientId", &self.client_id)
            .text("language", self.language)
            .int("version", self.version.into());
    }

    fn write_producer_info(&self, out: &mut String) {
        ObjectWriter::new(out)
            .text("clientId", &self.client_id)
            .text("language", self.language)
            .int("lastUpdateTimestamp", self.last_update_ms)
            .text("remoteIP", &self.client_addr)
            .int("version", self.version.into());
    }
}

/// Body of 38's answer.
pub fn consumer_list_json<T: AsRef<str>>(client_ids: impl IntoIterator<Item = T>) -> String {
    object_text(|body| {
        body.texts("consumerIdList", client_ids);
    })
}

/// Reads 38's answer (clients).
///
/// # Errors
/// What is wrong, and where.
pub fn consumer_list(body: &[u8]) -> Result<Vec<String>, String> {
    let value = fastjson::parse(body)?;
    let ids = value.get("consumerIdList").map_or(&[][..], Value::elements);
    Ok(ids.iter().filter_map(|id| id.as_text().map(std::borrow::Cow::into_owned)).collect())
}

/// Body of 203's answer.
pub fn consumer_connection_json(
    connections: &[ClientConnection], consume_type: ConsumeType, message_model: MessageModel, consume_from_where: ConsumeFromWhere,
    subscriptions: &BTreeMap<String, Arc<SubscriptionData>>,
) -> String {
    object_text(|body| {
        body.value("connectionSet", |out| write_array(out, connections, |out, connection| connection.write(out)));
        body.serde("consumeFromWhere", &consume_from_where).serde("consumeType", &consume_type).serde("messageModel", &message_model);
        body.object("subscriptionTable", |table| {
            for (topic, subscription) in subscriptions {
                table.serde(topic, &**subscription);
            }
        });
    })
}

/// Body of 204's answer.
pub fn producer_connection_json(connections: &[ClientConnection]) -> String {
    object_text(|body| {
        body.value("connectionSet", |out| write_array(out, connections, |out, connection| connection.write(out)));
    })
}

/// Body of 328's answer.
pub fn producer_table_json(groups: &BTreeMap<String, Vec<ClientConnection>>) -> String {
    object_text(|body| {
        body.object("data", |data| {
            for (group, connections) in groups {
                data.value(group, |out| write_array(out, connections, |out, connection| connection.write_producer_info(out)));
            }
        });
    })
}

/// Body of 345's answer; the subscription is absent when the group has none of the topic.
pub fn subscription_json(group: &str, topic: &str, subscription: Option<&SubscriptionData>) -> String {
    object_text(|body| {
        body.text("group", group);
        if let Some(subscription) = subscription {
            body.serde("subscriptionData", subscription);
        }
        body.text("topic", topic);
    })
}

/// Body of 46.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckClientBody {
    /// Client.
    pub client_id: String,
    /// Group.
    pub group: String,
    /// What it is going to subscribe to.
    pub subscription: Option<SubscriptionData>,
}

impl CheckClientBody {
    /// Reads a request.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_json(body: &[u8]) -> Result<Self, String> {
        let value = fastjson::parse_object(body, "CheckClientRequestBody")?;
        Ok(Self {
            client_id: text(&value, "clientId").unwrap_or_default(),
            group: text(&value, "group").unwrap_or_default(),
            subscription: value.get("subscriptionData").filter(|data| matches!(data, Value::Object(_))).map(subscription).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> ClientConnection {
        ClientConnection {
            client_id: "c@1".to_owned(),
            client_addr: "1.2.3.4:5".to_owned(),
            language: "GO",
            version: 317,
            last_update_ms: 9,
        }
    }

    #[test]
    fn bodies_as_the_reference_writes_them() {
        assert_eq!(consumer_list_json(["a", "b"]), r#"{"consumerIdList":["a","b"]}"#);
        assert_eq!(consumer_list(br#"{"consumerIdList":["a","b"]}"#).unwrap(), ["a", "b"]);
        let subscriptions = BTreeMap::from([("T".to_owned(), Arc::new(SubscriptionData::parse("T", "TagA", "TAG", 7).unwrap()))]);
        assert_eq!(
            consumer_connection_json(
                &[connection()],
                ConsumeType::Passively,
                MessageModel::Clustering,
                ConsumeFromWhere::LastOffset,
                &subscriptions
            ),
            r#"{"connectionSet":[{"clientAddr":"1.2.3.4:5","clientId":"c@1","language":"GO","version":317}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{"T":{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":7,"tagsSet":["TagA"],"topic":"T"}}}"#
        );
        assert_eq!(
            producer_table_json(&BTreeMap::from([("p".to_owned(), vec![connection()])])),
            r#"{"data":{"p":[{"clientId":"c@1","language":"GO","lastUpdateTimestamp":9,"remoteIP":"1.2.3.4:5","version":317}]}}"#
        );
        assert_eq!(subscription_json("g", "T", None), r#"{"group":"g","topic":"T"}"#);
    }

    #[test]
    fn client_checks() {
        let body = CheckClientBody::from_json(
            br#"{"clientId":"c","group":"g","subscriptionData":{"topic":"T","subString":"a > 1","expressionType":"SQL92"}}"#,
        )
        .unwrap();
        assert_eq!(body.subscription.unwrap().expression_type, "SQL92");
        assert_eq!(CheckClientBody::from_json(b"{}").unwrap(), CheckClientBody::default());
        assert_eq!(CheckClientBody::from_json(b"[]").unwrap_err(), "the body CheckClientRequestBody is an array, expected an object");
    }
}
