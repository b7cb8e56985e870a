//! A consumer group that is online: an immutable snapshot of what it consumes and how, and its members.
//!
//! - The snapshot is replaced when a setting or the valid subscription of a topic changes; a client that joins or leaves and changes
//!   neither costs the logarithm of the group's size.
//! - The expression of a subscription is compiled once, when it begins to count.
//! - All snapshots of a group share its members: they are those of now, not those of the snapshot's time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::broker::expressions;
use crate::common::subscription::{ConsumeFromWhere, ConsumeType, MessageModel, SQL92, SubscriptionData};
use crate::filter::Expression;
use crate::net::connection::ConnectionId;

use super::{Client, ConsumerHeartbeat, refresh};

/// Subscriptions by topic.
pub type Subscriptions = BTreeMap<String, Arc<SubscriptionData>>;

/// What the subscriptions that are not of tags have been compiled to, by topic; or why not, text for the client.
pub type Expressions = BTreeMap<String, Result<Arc<Expression>, String>>;

/// Subscriptions for one topic.
type ByVersion = BTreeMap<(Reverse<i64>, ConnectionId), Arc<SubscriptionData>>;

/// A consumer group that is online.
#[derive(Clone, Default)]
pub struct ConsumerGroup {
    /// Pull, push or pop.
    pub consume_type: ConsumeType,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Where a new group begins.
    pub consume_from_where: ConsumeFromWhere,
    /// The subscriptions that count, by topic.
    pub subscriptions: Arc<Subscriptions>,
    /// Their expressions.
    pub expressions: Arc<Expressions>,
    members: Arc<Mutex<Members>>,
}

#[derive(Default)]
struct Members {
    clients: BTreeMap<ConnectionId, Arc<Client>>,
    /// All subscriptions by topic, the one that counts first: of the highest version that of the oldest connection.
    topics: BTreeMap<String, ByVersion>,
}

/// What a leaving client leaves behind.
pub(super) enum Left {
    /// It was no member.
    NotThere,
    /// Others, and the snapshot to put up if it is another.
    Others(Option<ConsumerGroup>),
    /// Nobody.
    Nobody,
}

impl ConsumerGroup {
    /// Its clients by connection, the newest connection at the end.
    pub fn clients(&self) -> Vec<Arc<Client>> {
        self.members.lock().clients.values().cloned().collect()
    }

    /// Client ids, each once, in the order of their connections.
    pub fn client_ids(&self) -> Vec<String> {
        let clients = self.clients();
        let mut seen = HashSet::with_capacity(clients.len());
        clients.iter().filter(|client| seen.insert(client.client_id.as_str())).map(|client| client.client_id.clone()).collect()
    }

    /// How many topics the group subscribes to if a client adds these.
    pub(super) fn topics_with(&self, said: &[SubscriptionData]) -> usize {
        let unknown = said.iter().filter(|new| !self.subscriptions.contains_key(&new.topic));
        self.subscriptions.len() + unknown.count()
    }

    pub(super) fn member(&self, connection: ConnectionId) -> Option<Arc<Client>> {
        self.members.lock().clients.get(&connection).cloned()
    }

    /// Refreshes a known client; true when its heartbeat said nothing that changes the group.
    pub(super) fn hears_nothing_new(
        &self, heartbeat: &ConsumerHeartbeat, client: &Client, said: &[Arc<SubscriptionData>], keep_subscriptions: bool,
    ) -> bool {
        let Some(member) = self.member(client.connection.id()).filter(|member| refresh(member, client)) else { return false };
        let same = self.consume_type == heartbeat.consume_type
            && self.message_model == heartbeat.message_model
            && self.consume_from_where == heartbeat.consume_from_where
            && (keep_subscriptions || *member.subscriptions == *said);
        if same && !keep_subscriptions {
            // Without subscriptions it proves nothing about the ones we know.
            member.fingerprint.store(heartbeat.fingerprint, Ordering::Relaxed);
        }
        same
    }

    /// Takes a client in. Returns the snapshot to put up if it is another, and whether clients or topics have changed.
    pub(super) fn enter(
        &self, heartbeat: &ConsumerHeartbeat, client: &Client, said: &[Arc<SubscriptionData>], keep_subscriptions: bool,
    ) -> (Option<Self>, bool) {
        let connection = client.connection.id();
        let mut members = self.members.lock();
        let before = members.clients.get(&connection).cloned();
        let joined = before.as_ref().is_none_or(|before| before.client_id != client.client_id);
        let subscriptions = match &before {
            Some(before) if keep_subscriptions => Arc::clone(&before.subscriptions),
            _ => share(said, &self.subscriptions),
        };
        // A heartbeat without subscriptions says nothing about the ones we know: their fingerprint stays.
        let fingerprint = match &before {
            Some(before) if keep_subscriptions => before.fingerprint.load(Ordering::Relaxed),
            None if keep_subscriptions => 0,
            _ => heartbeat.fingerprint,
        };
        let old = before.as_ref().map_or(&[][..], |before| &before.subscriptions);
        members.unsubscribe(connection, old);
        members.subscribe(&heartbeat.group, connection, &subscriptions);
        let gathered = members.gather(&self.subscriptions, old, &subscriptions);
        members.clients.insert(connection, Arc::new(client.member(subscriptions, fingerprint)));
        drop(members);
        let topics_changed = gathered.as_ref().is_some_and(|(_, topics_changed)| *topics_changed);
        let next = Self {
            consume_type: heartbeat.consume_type,
            message_model: heartbeat.message_model,
            consume_from_where: heartbeat.consume_from_where,
            ..self.with_subscriptions(&heartbeat.group, gathered.as_ref().map(|(subscriptions, _)| Arc::clone(subscriptions)))
        };
        let same = gathered.is_none()
            && next.consume_type == self.consume_type
            && next.message_model == self.message_model
            && next.consume_from_where == self.consume_from_where;
        ((!same).then_some(next), joined || topics_changed)
    }

    /// Takes a client out.
    pub(super) fn leave(&self, group: &str, connection: ConnectionId) -> Left {
        let mut members = self.members.lock();
        let Some(gone) = members.clients.remove(&connection) else { return Left::NotThere };
        members.unsubscribe(connection, &gone.subscriptions);
        if members.clients.is_empty() {
            return Left::Nobody;
        }
        let gathered = members.gather(&self.subscriptions, &gone.subscriptions, &[]);
        Left::Others(gathered.map(|(subscriptions, _)| self.with_subscriptions(group, Some(subscriptions))))
    }

    fn with_subscriptions(&self, group: &str, subscriptions: Option<Arc<Subscriptions>>) -> Self {
        let Some(subscriptions) = subscriptions else { return self.clone() };
        let has_expressions = !self.expressions.is_empty() || subscriptions.values().any(|subscription| !subscription.is_tag());
        let expressions = if has_expressions { Arc::new(self.compiled(group, &subscriptions)) } else { Arc::clone(&self.expressions) };
        Self { subscriptions, expressions, ..self.clone() }
    }

    /// The expressions of these subscriptions; those that are known already stay the same.
    fn compiled(&self, group: &str, subscriptions: &Subscriptions) -> Expressions {
        let is_known = |subscription: &SubscriptionData| {
            let known = self.subscriptions.get(&subscription.topic);
            known.is_some_and(|known| known.expression_type == subscription.expression_type && known.sub_string == subscription.sub_string)
        };
        let compiled = subscriptions.values().filter(|subscription| !subscription.is_tag()).map(|subscription| {
            let known = self.expressions.get(&subscription.topic).filter(|_| is_known(subscription));
            (subscription.topic.clone(), known.cloned().unwrap_or_else(|| compile(group, subscription)))
        });
        compiled.collect()
    }
}

impl Members {
    fn unsubscribe(&mut self, connection: ConnectionId, subscriptions: &[Arc<SubscriptionData>]) {
        for subscription in subscriptions {
            let Some(all) = self.topics.get_mut(&subscription.topic) else { continue };
            all.remove(&(Reverse(subscription.sub_version), connection));
            if all.is_empty() {
                self.topics.remove(&subscription.topic);
            }
        }
    }

    fn subscribe(&mut self, group: &str, connection: ConnectionId, subscriptions: &[Arc<SubscriptionData>]) {
        for subscription in subscriptions {
            if !self.topics.contains_key(&subscription.topic) {
                self.topics.insert(subscription.topic.clone(), ByVersion::new());
            }
            let Some(all) = self.topics.get_mut(&subscription.topic) else { continue };
            if let Some(known) = all.values().next()
                && (known.sub_string != subscription.sub_string || known.expression_type != subscription.expression_type)
            {
                log::warn!(
                    "consumers of one group subscribe differently, the newer expression counts: group={group} topic={} expressions={:?},{:?}",
                    subscription.topic,
                    known.sub_string,
                    subscription.sub_string
                );
            }
            all.insert((Reverse(subscription.sub_version), connection), Arc::clone(subscription));
        }
    }

    /// The subscriptions that count now that `old` ones have gone and `new` ones have come, if they are others than `known`; and whether
    /// a topic has come or gone.
    fn gather(
        &self, known: &Subscriptions, old: &[Arc<SubscriptionData>], new: &[Arc<SubscriptionData>],
    ) -> Option<(Arc<Subscriptions>, bool)> {
        let first = |topic: &str| self.topics.get(topic).and_then(|all| all.values().next());
        let touched = old.iter().chain(new).map(|subscription| subscription.topic.as_str());
        let differing: Vec<&str> = touched.filter(|topic| first(topic) != known.get(*topic)).collect();
        if differing.is_empty() {
            return None;
        }
        let (mut next, mut topics_changed) = (known.clone(), false);
        for topic in differing {
            topics_changed |= match first(topic) {
                Some(subscription) => next.insert(topic.to_owned(), Arc::clone(subscription)).is_none(),
                None => next.remove(topic).is_some(),
            };
        }
        Some((Arc::new(next), topics_changed))
    }
}

fn compile(group: &str, subscription: &SubscriptionData) -> Result<Arc<Expression>, String> {
    let SubscriptionData { topic, sub_string, expression_type, .. } = subscription;
    let compiled = if expression_type.eq_ignore_ascii_case(SQL92) {
        expressions::compile(sub_string).map(Arc::new)
    } else {
        Err(format!("the expression type {expression_type:?} is neither TAG nor SQL92"))
    };
    match &compiled {
        Ok(expression) => {
            if let Some(position) = expression.ignored_from() {
                log::warn!("expression is ignored from {position} on: group={group} topic={topic} expression={sub_string:?}");
            }
        }
        Err(why) => log::warn!("subscription is of no use: group={group} topic={topic} expression={sub_string:?} cause={why}"),
    }
    compiled
}

/// The same subscriptions, using what the group has already: a thousand equal clients hold one copy.
fn share(said: &[Arc<SubscriptionData>], known: &Subscriptions) -> Arc<[Arc<SubscriptionData>]> {
    said.iter().map(|new| Arc::clone(known.get(&new.topic).filter(|known| *known == new).unwrap_or(new))).collect()
}
