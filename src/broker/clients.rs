//! Connected producers and consumers, by group.

use std::sync::Arc;

use crate::common::subscription::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use crate::net::connection::{Connection, ConnectionId};
use crate::remoting::command::Language;

/// A connected client.
#[derive(Clone)]
pub struct Client {
    /// Client id.
    pub client_id: String,
    /// Language as the client says.
    pub language: Language,
    /// Version ordinal.
    pub version: i32,
    /// Its connection.
    pub connection: Connection,
    /// Milliseconds of the last heartbeat.
    pub last_update_ms: i64,
}

/// What a heartbeat says of one consumer group.
#[derive(Clone, Debug, Default)]
pub struct ConsumerHeartbeat {
    /// Group.
    pub group: String,
    /// Pull, push or pop.
    pub consume_type: ConsumeType,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Where a new group begins.
    pub consume_from_where: ConsumeFromWhere,
    /// Subscriptions, tag codes recomputed from the expression.
    pub subscriptions: Vec<SubscriptionData>,
}

/// A consumer group that is online.
#[derive(Clone)]
pub struct ConsumerGroup {
    /// Pull, push or pop.
    pub consume_type: ConsumeType,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Where a new group begins.
    pub consume_from_where: ConsumeFromWhere,
    /// Subscriptions by topic.
    pub subscriptions: std::collections::BTreeMap<String, Arc<SubscriptionData>>,
    /// Clients by connection.
    pub clients: Vec<Client>,
}

/// The tables.
pub struct ClientTable {}

impl ClientTable {
    /// Empty tables; `notify` says whether a group wants request 40.
    pub fn new(notify: Box<dyn Fn(&str) -> bool + Send + Sync>) -> Self {
        let _ = notify;
        todo!()
    }

    /// A producer's heartbeat.
    pub fn producer_heartbeat(&self, group: &str, client: Client) {
        let _ = (group, client);
        todo!()
    }

    /// A consumer's heartbeat. Sends 40 to the group when clients or topics changed. True when something changed.
    /// `keep_subscriptions`: a v2 heartbeat without subscriptions (`withoutSub`).
    pub fn consumer_heartbeat(&self, heartbeat: ConsumerHeartbeat, client: Client, keep_subscriptions: bool) -> bool {
        let _ = (heartbeat, client, keep_subscriptions);
        todo!()
    }

    /// Takes a client out of the named groups.
    pub fn unregister(&self, connection: ConnectionId, client_id: &str, producer_group: Option<&str>, consumer_group: Option<&str>) {
        let _ = (connection, client_id, producer_group, consumer_group);
        todo!()
    }

    /// A connection is gone: takes its clients out everywhere. Must not block.
    pub fn closed(&self, connection: ConnectionId) {
        let _ = connection;
        todo!()
    }

    /// Removes clients that sent no heartbeat for 120 s (and closes their connections).
    pub fn expire(&self, now_ms: i64) {
        let _ = now_ms;
        todo!()
    }

    /// A group that is online.
    pub fn consumer_group(&self, group: &str) -> Option<Arc<ConsumerGroup>> {
        let _ = group;
        todo!()
    }

    /// Names of the consumer groups online.
    pub fn consumer_groups(&self) -> Vec<String> {
        todo!()
    }

    /// Clients of a producer group.
    pub fn producers(&self, group: &str) -> Vec<Client> {
        let _ = group;
        todo!()
    }

    /// Names of the producer groups online.
    pub fn producer_groups(&self) -> Vec<String> {
        todo!()
    }

    /// A producer client by its id, in any group (reply messages).
    pub fn producer_by_client_id(&self, client_id: &str) -> Option<Client> {
        let _ = client_id;
        todo!()
    }

    /// A consumer client of a group.
    pub fn consumer_by_client_id(&self, group: &str, client_id: &str) -> Option<Client> {
        let _ = (group, client_id);
        todo!()
    }
}
