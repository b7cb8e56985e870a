//! `HeartbeatData` (34).

use crate::common::subscription::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};

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
    /// Subscriptions; codes recomputed from the expression, whoever sent them (remoting.md 7.3).
    pub subscriptions: Vec<SubscriptionData>,
}

impl HeartbeatData {
    /// Reads the bodies of all clients (enumerations as names or ordinals, missing members, numbers as texts).
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        let _ = text;
        todo!()
    }

    /// As Java writes it (clients).
    pub fn to_json(&self) -> String {
        todo!()
    }
}
