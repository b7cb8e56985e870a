//! Connected producers and consumers, by group.
//!
//! - Look-ups take no lock: a group is an immutable snapshot, replaced when a client joins, leaves or subscribes otherwise. A heartbeat
//!   that says nothing new stores one number.
//! - A group's subscriptions are those of its present clients; of two for one topic the one with the higher version counts. So a client
//!   that leaves takes its subscription with it, and one that does not know a topic yet does not take it away from the others.
//! - One record per group and connection. A client id that is there twice (a reconnect whose old connection lingers) is listed once.
//! - Request 40 goes out when a client has joined or left and when a topic has come or gone, not for another expression or version
//!   alone, and to no broadcasting group. No lock is held while sending.
//! - A heartbeat that arrives after its connection has gone leaves nothing behind: it looks at the connection once more after registering.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::common::subscription::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use crate::net::connection::{Connection, ConnectionId};
use crate::remoting::code::request::NOTIFY_CONSUMER_IDS_CHANGED;
use crate::remoting::command::{Body, Language};

use super::table::{Change, NameTable};

/// Silence of a client after which it is forgotten.
pub const CLIENT_EXPIRY_MS: i64 = 120_000;

/// A connected client, as a member of one group.
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
    /// What this client subscribes to, by topic; empty for producers.
    subscriptions: Arc<[Arc<SubscriptionData>]>,
    live: Arc<Live>,
}

struct Live {
    last_update_ms: AtomicI64,
    fingerprint: AtomicI32,
}

impl Client {
    /// A client whose heartbeat came at `now_ms`.
    pub fn new(client_id: impl Into<String>, language: Language, version: i32, connection: Connection, now_ms: i64) -> Self {
        let live = Live { last_update_ms: AtomicI64::new(now_ms), fingerprint: AtomicI32::new(0) };
        Self { client_id: client_id.into(), language, version, connection, subscriptions: Arc::new([]), live: Arc::new(live) }
    }

    /// Milliseconds of the last heartbeat.
    pub fn last_update_ms(&self) -> i64 {
        self.live.last_update_ms.load(Ordering::Relaxed)
    }

    /// The same client as the member of a group: with a record of its own.
    fn member(&self, subscriptions: Arc<[Arc<SubscriptionData>]>) -> Self {
        let fresh = Self::new(self.client_id.clone(), self.language, self.version, self.connection.clone(), self.last_update_ms());
        Self { subscriptions, ..fresh }
    }

    fn is_at(&self, connection: ConnectionId) -> bool {
        self.connection.id() == connection
    }
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
    /// Fingerprint of a v2 heartbeat; 0: v1.
    pub fingerprint: i32,
}

/// A consumer group that is online.
#[derive(Clone, Default)]
pub struct ConsumerGroup {
    /// Pull, push or pop.
    pub consume_type: ConsumeType,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Where a new group begins.
    pub consume_from_where: ConsumeFromWhere,
    /// Subscriptions by topic.
    pub subscriptions: BTreeMap<String, Arc<SubscriptionData>>,
    /// Clients by connection, the one that came last at the end.
    pub clients: Vec<Client>,
}

impl ConsumerGroup {
    /// Client ids, each once, in the order of their coming.
    pub fn client_ids(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.clients.iter().map(|client| client.client_id.as_str()).filter(|id| seen.insert(*id)).collect()
    }

    fn position(&self, connection: ConnectionId) -> Option<usize> {
        self.clients.iter().position(|client| client.is_at(connection))
    }

    /// Makes the subscriptions those of the clients. True when a topic has come or gone.
    fn gather_subscriptions(&mut self, group: &str) -> bool {
        let mut gathered = BTreeMap::<String, Arc<SubscriptionData>>::new();
        for subscription in self.clients.iter().flat_map(|client| client.subscriptions.iter()) {
            match gathered.get_mut(&subscription.topic) {
                None => {
                    gathered.insert(subscription.topic.clone(), Arc::clone(subscription));
                }
                Some(known) => {
                    if known.sub_string != subscription.sub_string || known.expression_type != subscription.expression_type {
                        log::warn!(
                            "consumers of one group subscribe differently, the newer expression counts: group={group} topic={} expressions={:?},{:?}",
                            subscription.topic, known.sub_string, subscription.sub_string
                        );
                    }
                    if subscription.sub_version > known.sub_version {
                        *known = Arc::clone(subscription);
                    }
                }
            }
        }
        let changed = !gathered.keys().eq(self.subscriptions.keys());
        self.subscriptions = gathered;
        changed
    }
}

/// The tables.
pub struct ClientTable {
    consumers: NameTable<Arc<ConsumerGroup>>,
    producers: NameTable<Arc<Vec<Client>>>,
    /// Producers by client id, with their groups.
    producer_ids: NameTable<Arc<Vec<(Arc<str>, Client)>>>,
    /// What is to be taken out when a connection goes.
    registered: Mutex<HashMap<ConnectionId, Registered>>,
    notify: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

#[derive(Default)]
struct Registered {
    consumer_groups: BTreeSet<String>,
    producer_groups: BTreeSet<String>,
}

impl ClientTable {
    /// Empty tables; `notify` says whether a group wants request 40.
    pub fn new(notify: Box<dyn Fn(&str) -> bool + Send + Sync>) -> Self {
        Self {
            consumers: NameTable::default(),
            producers: NameTable::default(),
            producer_ids: NameTable::default(),
            registered: Mutex::default(),
            notify,
        }
    }

    /// A producer's heartbeat.
    pub fn producer_heartbeat(&self, group: &str, client: Client) {
        let connection = client.connection.id();
        let refreshed = self.producers.with(group, |clients| refresh(clients, &client)).unwrap_or(false);
        if refreshed {
            return;
        }
        self.registered.lock().entry(connection).or_default().producer_groups.insert(group.to_owned());
        let member = client.member(Arc::new([]));
        self.producers.change(group, |clients| {
            let mut clients = clients.map_or_else(Vec::new, |clients| Vec::clone(clients));
            clients.retain(|other| !other.is_at(connection));
            clients.push(member.clone());
            (Change::Put(Arc::new(clients)), ())
        });
        self.producer_ids.change(&client.client_id, |entries| {
            let mut entries = entries.map_or_else(Vec::new, |entries| Vec::clone(entries));
            entries.retain(|(other, client)| !(client.is_at(connection) && &**other == group));
            entries.push((group.into(), member));
            (Change::Put(Arc::new(entries)), ())
        });
        if !client.connection.is_open() {
            self.remove_producer(group, connection);
        }
    }

    /// A consumer's heartbeat. Sends 40 to the group when clients or topics changed, and says so.
    /// `keep_subscriptions`: a v2 heartbeat without subscriptions (`withoutSub`).
    pub fn consumer_heartbeat(&self, heartbeat: ConsumerHeartbeat, client: Client, keep_subscriptions: bool) -> bool {
        let (group, connection) = (heartbeat.group.clone(), client.connection.id());
        let said = sorted(&heartbeat.subscriptions);
        let refreshed = self.consumers.with(&group, |known| says_nothing_new(known, &heartbeat, &client, &said, keep_subscriptions));
        if refreshed == Some(true) {
            return false;
        }
        self.registered.lock().entry(connection).or_default().consumer_groups.insert(group.clone());
        let (members, changed) = self.consumers.change(&group, |known| {
            let mut next = known.map_or_else(ConsumerGroup::default, |known| ConsumerGroup::clone(known));
            let at = next.position(connection);
            let before = at.map(|at| next.clients.remove(at));
            let joined = before.as_ref().is_none_or(|before| before.client_id != client.client_id);
            let subscriptions = match &before {
                Some(before) if keep_subscriptions => Arc::clone(&before.subscriptions),
                _ => share(&said, &next.subscriptions),
            };
            // A heartbeat without subscriptions says nothing about the ones we know: their fingerprint stays.
            let fingerprint = match &before {
                Some(before) if keep_subscriptions => before.live.fingerprint.load(Ordering::Relaxed),
                None if keep_subscriptions => 0,
                _ => heartbeat.fingerprint,
            };
            let member = client.member(subscriptions);
            member.live.fingerprint.store(fingerprint, Ordering::Relaxed);
            next.clients.insert(at.unwrap_or(next.clients.len()), member);
            next.consume_type = heartbeat.consume_type;
            next.message_model = heartbeat.message_model;
            next.consume_from_where = heartbeat.consume_from_where;
            let topics_changed = next.gather_subscriptions(&group);
            let next = Arc::new(next);
            (Change::Put(Arc::clone(&next)), (next, joined || topics_changed))
        });
        if !client.connection.is_open() {
            return self.remove_consumer(&group, connection) || changed;
        }
        if changed {
            self.tell(&group, &members);
        }
        changed
    }

    /// Whether the last heartbeat of this connection for the group had this fingerprint (and so its subscriptions are known).
    pub fn has_fingerprint(&self, group: &str, connection: ConnectionId, fingerprint: i32) -> bool {
        self.consumers
            .with(group, |group| {
                let client = group.clients.iter().find(|client| client.is_at(connection));
                client.is_some_and(|client| client.live.fingerprint.load(Ordering::Relaxed) == fingerprint)
            })
            .unwrap_or(false)
    }

    /// Takes a client out of the named groups.
    pub fn unregister(&self, connection: ConnectionId, client_id: &str, producer_group: Option<&str>, consumer_group: Option<&str>) {
        if let Some(group) = producer_group {
            self.remove_producer(group, connection);
            log::info!("producer leaves: group={group} client={client_id}");
        }
        if let Some(group) = consumer_group {
            self.remove_consumer(group, connection);
            log::info!("consumer leaves: group={group} client={client_id}");
        }
        if let Some(registered) = self.registered.lock().get_mut(&connection) {
            producer_group.map(|group| registered.producer_groups.remove(group));
            consumer_group.map(|group| registered.consumer_groups.remove(group));
        }
    }

    /// A connection is gone: takes its clients out everywhere. Must not block.
    pub fn closed(&self, connection: ConnectionId) {
        let Some(registered) = self.registered.lock().remove(&connection) else { return };
        for group in &registered.producer_groups {
            self.remove_producer(group, connection);
        }
        for group in &registered.consumer_groups {
            self.remove_consumer(group, connection);
        }
    }

    /// Removes clients that sent no heartbeat for 120 s, and closes a connection whose clients are all gone like this.
    pub fn expire(&self, now_ms: i64) {
        let is_stale = |client: &Client| now_ms - client.last_update_ms() > CLIENT_EXPIRY_MS;
        let mut stale = Vec::new();
        for (group, clients) in self.producers.entries() {
            stale.extend(clients.iter().filter(|client| is_stale(client)).map(|client| (Arc::clone(&group), client.clone(), true)));
        }
        for (group, known) in self.consumers.entries() {
            stale.extend(known.clients.iter().filter(|client| is_stale(client)).map(|client| (Arc::clone(&group), client.clone(), false)));
        }
        for (group, client, is_producer) in stale {
            let (id, connection) = (client.connection.id(), &client.connection);
            log::warn!("client expires: group={group} client={} peer={} silent_ms={}", client.client_id, connection.peer(), now_ms - client.last_update_ms());
            let (producer_group, consumer_group) = if is_producer { (Some(&*group), None) } else { (None, Some(&*group)) };
            self.unregister(id, &client.client_id, producer_group, consumer_group);
            let left = self.registered.lock().get(&id).is_some_and(|left| !left.consumer_groups.is_empty() || !left.producer_groups.is_empty());
            if !left {
                connection.close();
            }
        }
    }

    /// A group that is online.
    pub fn consumer_group(&self, group: &str) -> Option<Arc<ConsumerGroup>> {
        self.consumers.get(group)
    }

    /// Names of the consumer groups online.
    pub fn consumer_groups(&self) -> Vec<String> {
        self.consumers.entries().into_iter().map(|(group, _)| group.to_string()).collect()
    }

    /// Names of the consumer groups online that subscribe to the topic.
    pub fn consumer_groups_of(&self, topic: &str) -> Vec<String> {
        let groups = self.consumers.entries().into_iter();
        groups.filter(|(_, group)| group.subscriptions.contains_key(topic)).map(|(name, _)| name.to_string()).collect()
    }

    /// Clients of a producer group.
    pub fn producers(&self, group: &str) -> Vec<Client> {
        self.producers.get(group).map_or_else(Vec::new, |clients| Vec::clone(&clients))
    }

    /// Names of the producer groups online.
    pub fn producer_groups(&self) -> Vec<String> {
        self.producers.entries().into_iter().map(|(group, _)| group.to_string()).collect()
    }

    /// A producer client by its id, in any group (reply messages).
    pub fn producer_by_client_id(&self, client_id: &str) -> Option<Client> {
        self.producer_ids.with(client_id, |entries| newest(entries.iter().map(|(_, client)| client)))?
    }

    /// A consumer client of a group.
    pub fn consumer_by_client_id(&self, group: &str, client_id: &str) -> Option<Client> {
        self.consumers.with(group, |group| newest(group.clients.iter().filter(|client| client.client_id == client_id)))?
    }

    fn remove_producer(&self, group: &str, connection: ConnectionId) {
        let removed = self.producers.change(group, |clients| {
            let Some(clients) = clients else { return (Change::Keep, None) };
            let (gone, left): (Vec<_>, Vec<_>) = clients.iter().cloned().partition(|client| client.is_at(connection));
            match (gone.into_iter().next(), left.is_empty()) {
                (None, _) => (Change::Keep, None),
                (gone, true) => (Change::Remove, gone),
                (gone, false) => (Change::Put(Arc::new(left)), gone),
            }
        });
        let Some(removed) = removed else { return };
        self.producer_ids.change(&removed.client_id, |entries| {
            let mut left = entries.map_or_else(Vec::new, |entries| Vec::clone(entries));
            left.retain(|(other, client)| !(client.is_at(connection) && &**other == group));
            (if left.is_empty() { Change::Remove } else { Change::Put(Arc::new(left)) }, ())
        });
    }

    /// True when the client was there.
    fn remove_consumer(&self, group: &str, connection: ConnectionId) -> bool {
        let left = self.consumers.change(group, |known| {
            let Some((known, at)) = known.and_then(|known| Some((known, known.position(connection)?))) else { return (Change::Keep, None) };
            let mut next = ConsumerGroup::clone(known);
            next.clients.remove(at);
            next.gather_subscriptions(group);
            let next = Arc::new(next);
            let change = if next.clients.is_empty() { Change::Remove } else { Change::Put(Arc::clone(&next)) };
            (change, Some(next))
        });
        if let Some(left) = &left {
            self.tell(group, left);
        }
        left.is_some()
    }

    /// Sends 40 to all clients of a group.
    fn tell(&self, group: &str, members: &ConsumerGroup) {
        if members.message_model == MessageModel::Broadcasting || !(self.notify)(group) {
            return;
        }
        for client in &members.clients {
            client.connection.oneway(NOTIFY_CONSUMER_IDS_CHANGED, &[("consumerGroup", group)], Body::Empty);
        }
    }
}

/// Stores the time of a heartbeat of a client that is known; false when it is not.
fn refresh(clients: &[Client], heartbeat: &Client) -> bool {
    let known = clients.iter().find(|known| known.is_at(heartbeat.connection.id()) && known.client_id == heartbeat.client_id);
    if let Some(known) = known {
        known.live.last_update_ms.store(heartbeat.last_update_ms(), Ordering::Relaxed);
    }
    known.is_some()
}

/// Refreshes a known client; true when its heartbeat said nothing that changes the group.
fn says_nothing_new(
    known: &ConsumerGroup, heartbeat: &ConsumerHeartbeat, client: &Client, said: &[Arc<SubscriptionData>], keep_subscriptions: bool,
) -> bool {
    if !refresh(&known.clients, client) {
        return false;
    }
    let Some(member) = known.clients.iter().find(|member| member.is_at(client.connection.id())) else { return false };
    let same = known.consume_type == heartbeat.consume_type
        && known.message_model == heartbeat.message_model
        && known.consume_from_where == heartbeat.consume_from_where
        && (keep_subscriptions || *member.subscriptions == *said);
    if same && !keep_subscriptions {
        // Without subscriptions it proves nothing about the ones we know.
        member.live.fingerprint.store(heartbeat.fingerprint, Ordering::Relaxed);
    }
    same
}

/// Subscriptions in the order of their topics, each topic once: the highest version.
fn sorted(subscriptions: &[SubscriptionData]) -> Arc<[Arc<SubscriptionData>]> {
    let mut by_topic = BTreeMap::<&str, &SubscriptionData>::new();
    for subscription in subscriptions {
        let known = by_topic.entry(&subscription.topic).or_insert(subscription);
        if subscription.sub_version > known.sub_version {
            *known = subscription;
        }
    }
    by_topic.into_values().map(|subscription| Arc::new(subscription.clone())).collect()
}

/// The same subscriptions, using what the group has already: a thousand equal clients hold one copy.
fn share(said: &[Arc<SubscriptionData>], known: &BTreeMap<String, Arc<SubscriptionData>>) -> Arc<[Arc<SubscriptionData>]> {
    said.iter().map(|new| Arc::clone(known.get(&new.topic).filter(|known| *known == new).unwrap_or(new))).collect()
}

/// The client that came last and whose connection is open; else the one that came last.
fn newest<'a>(clients: impl Iterator<Item = &'a Client>) -> Option<Client> {
    let clients: Vec<&Client> = clients.collect();
    clients.iter().rev().find(|client| client.connection.is_open()).or(clients.last()).map(|client| (*client).clone())
}
