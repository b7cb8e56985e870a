//! Connected producers and consumers, by group.
//!
//! - What pulls look at takes no lock: what a group consumes is an immutable snapshot. A heartbeat that says nothing new stores one number.
//! - A group's subscriptions are those of its present clients; of two for one topic the one with the higher version counts. So a client
//!   that leaves takes its subscription with it, and one that does not know a topic yet does not take it away from the others.
//! - One record per group and connection. A client id that is there twice (a reconnect whose old connection lingers) is listed once.
//! - Coming and going costs the logarithm of a group's size and of the number of groups, whoever else is there; how many groups and topics
//!   there may be is bounded.
//! - Request 40 goes out when a client has joined or left and when a topic has come or gone, not for another expression or version
//!   alone, and to no broadcasting group. Who changes a group only notes it down; [`ClientTable::notify_changed`] tells each client once
//!   of all that has changed since the last round. No lock is held while sending.
//! - A heartbeat that arrives after its connection has gone leaves nothing behind: it looks at the connection once more after registering.
//! - Lock order: what one connection is registered for, a shard of a table, the members of a group. What is due is locked last.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::common::subscription::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use crate::net::connection::{Connection, ConnectionId};
use crate::remoting::body::heartbeat::HeartbeatData;
use crate::remoting::code::request::NOTIFY_CONSUMER_IDS_CHANGED;
use crate::remoting::command::{Body, Language};

use super::table::{Change, NameTable};

mod consumer_group;
mod presence;
#[cfg(test)]
mod tests;

pub use consumer_group::{ConsumerGroup, Expressions, Subscriptions};

use consumer_group::Left;
use presence::Presence;

/// Silence of a client after which it is forgotten.
pub const CLIENT_EXPIRY_MS: i64 = 120_000;

/// Producer and consumer groups that one connection may be in, and one heartbeat may name.
pub const MAX_GROUPS_PER_CONNECTION: usize = 10_000;

/// Topics that one consumer group may subscribe to.
pub const MAX_TOPICS_PER_GROUP: usize = 4_096;

/// A client that has not read so many bytes yet is told of changed groups only when it has.
const NOTIFY_UNSENT_BYTES: usize = 64 * 1024;

/// A connected client, as a member of one group.
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
    last_update_ms: AtomicI64,
    fingerprint: AtomicI32,
}

impl Client {
    /// A client whose heartbeat came at `now_ms`.
    pub fn new(client_id: impl Into<String>, language: Language, version: i32, connection: Connection, now_ms: i64) -> Self {
        Self {
            client_id: client_id.into(),
            language,
            version,
            connection,
            subscriptions: Arc::new([]),
            last_update_ms: AtomicI64::new(now_ms),
            fingerprint: AtomicI32::new(0),
        }
    }

    /// Milliseconds of the last heartbeat.
    pub fn last_update_ms(&self) -> i64 {
        self.last_update_ms.load(Ordering::Relaxed)
    }

    /// The same client as the member of a group: with a record of its own.
    fn member(&self, subscriptions: Arc<[Arc<SubscriptionData>]>, fingerprint: i32) -> Self {
        let fresh = Self::new(self.client_id.clone(), self.language, self.version, self.connection.clone(), self.last_update_ms());
        Self { subscriptions, fingerprint: AtomicI32::new(fingerprint), ..fresh }
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

/// Clients by connection.
type Clients = Arc<Mutex<BTreeMap<ConnectionId, Arc<Client>>>>;

/// The tables.
pub struct ClientTable {
    consumers: NameTable<Arc<ConsumerGroup>>,
    producers: NameTable<Clients>,
    /// Producers by client id.
    producer_ids: NameTable<Clients>,
    present: Mutex<HashMap<ConnectionId, Arc<Mutex<Presence>>>>,
    due: Mutex<Due>,
    notify: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

/// Whom the next round of notifications tells.
#[derive(Default)]
struct Due {
    /// All clients of these groups.
    groups: HashSet<Arc<str>>,
    /// Clients that had not read enough at the last round.
    owed: Vec<(Arc<str>, Arc<Client>)>,
}

impl ClientTable {
    /// Empty tables; `notify` says whether a group wants request 40.
    pub fn new(notify: Box<dyn Fn(&str) -> bool + Send + Sync>) -> Self {
        Self {
            consumers: NameTable::default(),
            producers: NameTable::default(),
            producer_ids: NameTable::default(),
            present: Mutex::default(),
            due: Mutex::default(),
            notify,
        }
    }

    /// Whether what a heartbeat names is within the bounds, together with what is there already.
    ///
    /// # Errors
    /// The number, the limit and its name: text for the client.
    pub fn check_room(&self, connection: ConnectionId, heartbeat: &HeartbeatData) -> Result<(), String> {
        let named = heartbeat.producers.len() + heartbeat.consumers.len();
        let limit = MAX_GROUPS_PER_CONNECTION;
        if named > limit {
            return Err(format!("the heartbeat names {named} groups, at most {limit} may be (MAX_GROUPS_PER_CONNECTION)"));
        }
        let present = self.presence(connection);
        let total = present.map_or(named, |present| total_groups(&present.lock(), heartbeat));
        if total > limit {
            return Err(format!("the connection would be in {total} groups, at most {limit} may be (MAX_GROUPS_PER_CONNECTION)"));
        }
        let limit = MAX_TOPICS_PER_GROUP;
        for consumer in &heartbeat.consumers {
            let (group, said) = (&consumer.group_name, &consumer.subscriptions);
            let topics = self.consumers.with(group, |known| known.topics_with(said)).unwrap_or(said.len());
            if topics.max(said.len()) > limit {
                let text = format!("the group {group:?} would subscribe to {topics} topics, at most {limit} may be (MAX_TOPICS_PER_GROUP)");
                return Err(text);
            }
        }
        Ok(())
    }

    /// A producer's heartbeat.
    pub fn producer_heartbeat<S: AsRef<str>>(&self, groups: &[S], client: &Client) {
        let connection = client.connection.id();
        let is_known = |group: &str| {
            let member = self.producers.with(group, |clients| clients.lock().get(&connection).cloned()).flatten();
            member.is_some_and(|member| refresh(&member, client))
        };
        let new: Vec<&str> = groups.iter().map(AsRef::as_ref).filter(|group| !is_known(group)).collect();
        if new.is_empty() {
            return;
        }
        let member = || Arc::new(client.member(Arc::new([]), 0));
        self.register(client, |present| {
            let client_id: Arc<str> = client.client_id.as_str().into();
            let abandoned: Vec<_> = new.iter().filter_map(|group| present.enter_producer(group, &client_id)).collect();
            self.producers.change_all(new.iter().copied(), |_, clients| entered(clients, member()));
            self.producer_ids.change(&client_id, |clients| (entered(clients, member()), ()));
            self.producer_ids.change_all(abandoned.iter().map(|id| &**id), |_, clients| left(clients, connection));
        });
    }

    /// A consumer's heartbeat. Says whether clients or topics changed, of which the group is told then.
    /// `keep_subscriptions`: a v2 heartbeat without subscriptions (`withoutSub`).
    pub fn consumer_heartbeat(&self, heartbeat: &ConsumerHeartbeat, client: &Client, keep_subscriptions: bool) -> bool {
        let group = &heartbeat.group;
        let said = sorted(&heartbeat.subscriptions);
        let refreshed = self.consumers.with(group, |known| known.hears_nothing_new(heartbeat, client, &said, keep_subscriptions));
        if refreshed == Some(true) {
            return false;
        }
        self.register(client, |present| {
            present.enter_consumer(group);
            let changed = self.consumers.change(group, |known| {
                let made = known.is_none().then(ConsumerGroup::default);
                let (next, changed) = match (known, &made) {
                    (Some(known), _) => known.enter(heartbeat, client, &said, keep_subscriptions),
                    (None, Some(made)) => made.enter(heartbeat, client, &said, keep_subscriptions),
                    (None, None) => (None, false),
                };
                (next.or(made).map_or(Change::Keep, |next| Change::Put(Arc::new(next))), changed)
            });
            if changed {
                self.due.lock().groups.insert(group.as_str().into());
            }
            changed
        })
    }

    /// Whether the last heartbeat of this connection for the group had this fingerprint (and so its subscriptions are known).
    pub fn has_fingerprint(&self, group: &str, connection: ConnectionId, fingerprint: i32) -> bool {
        let member = self.consumers.with(group, |group| group.member(connection)).flatten();
        member.is_some_and(|member| member.fingerprint.load(Ordering::Relaxed) == fingerprint)
    }

    /// Takes a client out of the named groups.
    pub fn unregister(&self, connection: ConnectionId, client_id: &str, producer_group: Option<&str>, consumer_group: Option<&str>) {
        let Some(present) = self.presence(connection) else { return };
        let mut present = present.lock();
        let gone = self.take_out(connection, &mut present, producer_group.as_slice(), consumer_group.as_slice());
        if gone > 0 {
            log::info!("client leaves: client={client_id} producer_group={producer_group:?} consumer_group={consumer_group:?}");
        }
    }

    /// A connection is gone: takes its clients out everywhere. Must not block.
    pub fn closed(&self, connection: ConnectionId) {
        let present = self.present.lock().remove(&connection);
        if let Some(present) = present {
            self.take_all_out(connection, &mut present.lock());
        }
    }

    /// Removes clients that sent no heartbeat for 120 s, and closes a connection whose clients are all gone like this.
    pub fn expire(&self, now_ms: i64) {
        for (id, stale) in self.stale(now_ms) {
            let Some(present) = self.presence(id) else { continue };
            let mut present = present.lock();
            let names = |groups: &'_ [Arc<str>]| groups.iter().map(|group| group.to_string()).collect::<Vec<_>>();
            let (producers, consumers) = (names(&stale.producer_groups), names(&stale.consumer_groups));
            self.take_out(id, &mut present, &producers, &consumers);
            let nothing_left = present.len() == 0;
            drop(present);
            log::warn!(
                "client expires: client={} peer={} silent_ms={} producer_groups={} consumer_groups={} first_group={}",
                stale.client.client_id,
                stale.client.connection.peer(),
                now_ms - stale.client.last_update_ms(),
                producers.len(),
                consumers.len(),
                consumers.iter().chain(&producers).next().map_or("", String::as_str)
            );
            if nothing_left {
                stale.client.connection.close();
            }
        }
    }

    /// Sends 40 to the clients of all groups that have changed since the last call: to each client once per group, to one that does not
    /// read as soon as it does. Returns how many were sent.
    pub fn notify_changed(&self) -> usize {
        self.notify_round(|client| client.connection.unsent() > NOTIFY_UNSENT_BYTES)
    }

    fn notify_round(&self, is_behind: impl Fn(&Client) -> bool) -> usize {
        let Due { groups, owed } = std::mem::take(&mut *self.due.lock());
        let mut addressees: Vec<_> = owed.into_iter().filter(|(group, _)| !groups.contains(group)).collect();
        for group in groups {
            let Some(known) = self.consumers.get(&group) else { continue };
            if known.message_model != MessageModel::Broadcasting && (self.notify)(&group) {
                addressees.extend(known.clients().into_iter().map(|client| (Arc::clone(&group), client)));
            }
        }
        addressees.retain(|(_, client)| client.connection.is_open());
        let (behind, ready): (Vec<_>, Vec<_>) = addressees.into_iter().partition(|(_, client)| is_behind(client));
        for (group, client) in &ready {
            client.connection.oneway(NOTIFY_CONSUMER_IDS_CHANGED, &[("consumerGroup", &**group)], Body::Empty);
        }
        if !behind.is_empty() {
            self.due.lock().owed.extend(behind);
        }
        ready.len()
    }

    /// A group that is online.
    pub fn consumer_group(&self, group: &str) -> Option<Arc<ConsumerGroup>> {
        self.consumers.get(group)
    }

    /// The consumer groups online, by name.
    pub(crate) fn all_consumer_groups(&self) -> impl Iterator<Item = (Arc<str>, Arc<ConsumerGroup>)> {
        self.consumers.entries().into_iter()
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
    pub fn producers(&self, group: &str) -> Vec<Arc<Client>> {
        self.producers.with(group, |clients| clients.lock().values().cloned().collect()).unwrap_or_default()
    }

    /// Names of the producer groups online.
    pub fn producer_groups(&self) -> Vec<String> {
        self.producers.entries().into_iter().map(|(group, _)| group.to_string()).collect()
    }

    /// A producer client by its id, in any group (reply messages).
    pub fn producer_by_client_id(&self, client_id: &str) -> Option<Arc<Client>> {
        self.producer_ids.with(client_id, |clients| newest(clients.lock().values()))?
    }

    /// A consumer client of a group.
    pub fn consumer_by_client_id(&self, group: &str, client_id: &str) -> Option<Arc<Client>> {
        let clients = self.consumers.get(group)?.clients();
        newest(clients.iter().filter(|client| client.client_id == client_id))
    }

    fn presence(&self, connection: ConnectionId) -> Option<Arc<Mutex<Presence>>> {
        self.present.lock().get(&connection).cloned()
    }

    /// Changes what a client's connection is registered for, alone; all is taken out again if the connection has gone meanwhile.
    fn register<R>(&self, client: &Client, enter: impl FnOnce(&mut Presence) -> R) -> R {
        let connection = client.connection.id();
        let shared = Arc::clone(self.present.lock().entry(connection).or_default());
        let mut present = shared.lock();
        let result = enter(&mut present);
        if !client.connection.is_open() {
            // `closed` may have come between: then it has not seen what was entered now.
            self.take_all_out(connection, &mut present);
            drop(present);
            self.present.lock().remove(&connection);
        }
        result
    }

    fn take_all_out(&self, connection: ConnectionId, present: &mut Presence) {
        let all = std::mem::take(present);
        self.producers.change_all(all.producer_groups(), |_, clients| left(clients, connection));
        self.producer_ids.change_all(all.producer_ids(), |_, clients| left(clients, connection));
        self.take_consumers_out(connection, all.consumer_groups());
    }

    /// Takes a connection out of some groups; of how many it was a member.
    fn take_out<S: AsRef<str>>(&self, connection: ConnectionId, present: &mut Presence, producers: &[S], consumers: &[S]) -> usize {
        let mut members = 0;
        for group in producers.iter().map(AsRef::as_ref) {
            let Some(abandoned) = present.leave_producer(group) else { continue };
            members += 1;
            self.producers.change(group, |clients| (left(clients, connection), ()));
            if let Some(client_id) = abandoned {
                self.producer_ids.change(&client_id, |clients| (left(clients, connection), ()));
            }
        }
        let consumers: Vec<&str> = consumers.iter().map(AsRef::as_ref).filter(|group| present.leave_consumer(group)).collect();
        members += consumers.len();
        self.take_consumers_out(connection, consumers);
        members
    }

    fn take_consumers_out<'a>(&self, connection: ConnectionId, groups: impl IntoIterator<Item = &'a str>) {
        let mut changed: Vec<Arc<str>> = Vec::new();
        self.consumers.change_all(groups, |group, known| match known.map_or(Left::NotThere, |known| known.leave(group, connection)) {
            Left::NotThere => Change::Keep,
            Left::Nobody => Change::Remove,
            Left::Others(next) => {
                changed.push(group.into());
                next.map_or(Change::Keep, |next| Change::Put(Arc::new(next)))
            }
        });
        if !changed.is_empty() {
            self.due.lock().groups.extend(changed);
        }
    }

    /// Records that no heartbeat has renewed in time, by connection.
    fn stale(&self, now_ms: i64) -> BTreeMap<ConnectionId, Stale> {
        let is_stale = |client: &Arc<Client>| now_ms - client.last_update_ms() > CLIENT_EXPIRY_MS;
        let of = |client: Arc<Client>| Stale { client, producer_groups: Vec::new(), consumer_groups: Vec::new() };
        let mut all = BTreeMap::<ConnectionId, Stale>::new();
        for (group, clients) in self.producers.entries() {
            for client in clients.lock().values().filter(|client| is_stale(client)) {
                let stale = all.entry(client.connection.id()).or_insert_with(|| of(Arc::clone(client)));
                stale.producer_groups.push(Arc::clone(&group));
            }
        }
        for (group, known) in self.consumers.entries() {
            for client in known.clients().into_iter().filter(is_stale) {
                let stale = all.entry(client.connection.id()).or_insert_with(|| of(client));
                stale.consumer_groups.push(Arc::clone(&group));
            }
        }
        all
    }
}

/// Records of one connection that are to be removed.
struct Stale {
    client: Arc<Client>,
    producer_groups: Vec<Arc<str>>,
    consumer_groups: Vec<Arc<str>>,
}

/// How many groups a connection is in after a heartbeat.
fn total_groups(present: &Presence, heartbeat: &HeartbeatData) -> usize {
    let producers = heartbeat.producers.iter().filter(|group| !present.has_producer(group)).count();
    let consumers = heartbeat.consumers.iter().filter(|consumer| !present.has_consumer(&consumer.group_name)).count();
    present.len() + producers + consumers
}

/// Stores the time of a heartbeat in the client's record; false when it is another client's.
fn refresh(known: &Client, heartbeat: &Client) -> bool {
    let same = known.client_id == heartbeat.client_id;
    if same {
        known.last_update_ms.store(heartbeat.last_update_ms(), Ordering::Relaxed);
    }
    same
}

fn entered(clients: Option<&Clients>, client: Arc<Client>) -> Change<Clients> {
    let connection = client.connection.id();
    match clients {
        Some(clients) => {
            clients.lock().insert(connection, client);
            Change::Keep
        }
        None => Change::Put(Arc::new(Mutex::new(BTreeMap::from([(connection, client)])))),
    }
}

fn left(clients: Option<&Clients>, connection: ConnectionId) -> Change<Clients> {
    let Some(clients) = clients else { return Change::Keep };
    let mut clients = clients.lock();
    clients.remove(&connection);
    if clients.is_empty() { Change::Remove } else { Change::Keep }
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

/// The client whose connection is the newest that is open; else the newest.
fn newest<'a>(clients: impl DoubleEndedIterator<Item = &'a Arc<Client>>) -> Option<Arc<Client>> {
    let mut last = None;
    for client in clients.rev() {
        if client.connection.is_open() {
            return Some(Arc::clone(client));
        }
        last = last.or(Some(client));
    }
    last.cloned()
}
