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
                            subscription.topic,
                            known.sub_string,
                            subscription.sub_string
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

/// A client with the group it is a member of.
type InGroup = (Arc<str>, Client);

/// The tables.
pub struct ClientTable {
    consumers: NameTable<Arc<ConsumerGroup>>,
    producers: NameTable<Arc<Vec<Client>>>,
    /// Producers by client id, with their groups.
    producer_ids: NameTable<Arc<Vec<InGroup>>>,
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
            log::warn!(
                "client expires: group={group} client={} peer={} silent_ms={}",
                client.client_id,
                connection.peer(),
                now_ms - client.last_update_ms()
            );
            let (producer_group, consumer_group) = if is_producer { (Some(&*group), None) } else { (None, Some(&*group)) };
            self.unregister(id, &client.client_id, producer_group, consumer_group);
            let left =
                self.registered.lock().get(&id).is_some_and(|left| !left.consumer_groups.is_empty() || !left.producer_groups.is_empty());
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::remoting::body::heartbeat::{ConsumerData, HeartbeatData};
    use crate::remoting::command::Command;

    /// A client's end: what it was sent.
    struct Peer {
        connection: Connection,
        pushed: Arc<Mutex<Vec<(i32, String)>>>,
        id: String,
    }

    impl Peer {
        fn new(id: &str) -> Self {
            let pushed = Arc::new(Mutex::new(Vec::new()));
            let address = SocketAddr::from(([10, 0, 0, 1], 4_000));
            let connection = Connection::detached(address, SocketAddr::from(([10, 0, 0, 9], 10_911)), {
                let pushed = Arc::clone(&pushed);
                move |frame| {
                    let command = Command::parse(&frame).unwrap();
                    assert!(command.is_oneway());
                    pushed.lock().push((command.code, command.ext.text("consumerGroup").unwrap().into_owned()));
                }
            });
            Self { connection, pushed, id: id.to_owned() }
        }

        fn client(&self, now_ms: i64) -> Client {
            Client::new(&self.id, Language::JAVA, 513, self.connection.clone(), now_ms)
        }

        /// Groups that 40 was sent for since the last call.
        fn notified(&self) -> Vec<String> {
            std::mem::take(&mut *self.pushed.lock())
                .into_iter()
                .map(|(code, group)| {
                    assert_eq!(code, NOTIFY_CONSUMER_IDS_CHANGED);
                    group
                })
                .collect()
        }
    }

    fn table() -> ClientTable {
        ClientTable::new(Box::new(|group| group != "silent"))
    }

    fn heartbeat(group: &str, subscriptions: &[(&str, &str, i64)]) -> ConsumerHeartbeat {
        let parse = |(topic, expression, version): &(&str, &str, i64)| SubscriptionData::parse(topic, expression, "TAG", *version).unwrap();
        ConsumerHeartbeat {
            group: group.to_owned(),
            subscriptions: subscriptions.iter().map(parse).collect(),
            ..ConsumerHeartbeat::default()
        }
    }

    fn beat(table: &ClientTable, peer: &Peer, group: &str, subscriptions: &[(&str, &str, i64)]) -> bool {
        table.consumer_heartbeat(heartbeat(group, subscriptions), peer.client(1_000), false)
    }

    fn expression(table: &ClientTable, group: &str, topic: &str) -> Option<String> {
        table.consumer_group(group)?.subscriptions.get(topic).map(|subscription| subscription.sub_string.clone())
    }

    #[test]
    fn group_is_told_of_members_and_topics_but_not_of_expressions() {
        let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
        assert!(beat(&table, &a, "g", &[("T", "*", 1)]));
        assert_eq!(a.notified(), ["g"], "a joins");
        assert!(!beat(&table, &a, "g", &[("T", "*", 1)]));
        assert!(beat(&table, &b, "g", &[("T", "*", 1)]));
        assert_eq!((a.notified(), b.notified()), (vec!["g".to_owned()], vec!["g".to_owned()]), "b joins");
        assert!(!beat(&table, &a, "g", &[("T", "x", 2)]));
        assert!(!beat(&table, &a, "g", &[("T", "x", 3)]));
        assert_eq!((a.notified(), b.notified()), (vec![], vec![]), "another expression, another version");
        assert_eq!(expression(&table, "g", "T").as_deref(), Some("x"));
        assert!(beat(&table, &a, "g", &[("T", "x", 3), ("U", "*", 4)]));
        assert_eq!((a.notified().len(), b.notified().len()), (1, 1), "a new topic");
        assert!(beat(&table, &a, "g", &[("T", "x", 3)]));
        assert_eq!((a.notified().len(), b.notified().len()), (1, 1), "a topic dropped");
        table.unregister(b.connection.id(), "b", None, Some("g"));
        assert_eq!((a.notified().len(), b.notified().len()), (1, 0), "b leaves");
        table.closed(a.connection.id());
        assert!(table.consumer_group("g").is_none() && table.consumer_groups().is_empty());
    }

    #[test]
    fn broadcasting_and_silent_groups_are_not_told() {
        let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
        for peer in [&a, &b] {
            let broadcasting = ConsumerHeartbeat { message_model: MessageModel::Broadcasting, ..heartbeat("all", &[("T", "*", 1)]) };
            assert!(table.consumer_heartbeat(broadcasting, peer.client(0), false));
            assert!(beat(&table, peer, "silent", &[("T", "*", 1)]));
        }
        table.closed(a.connection.id());
        assert_eq!((a.notified(), b.notified()), (vec![], vec![]));
    }

    #[test]
    fn subscriptions_are_those_of_the_present_clients() {
        let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
        beat(&table, &a, "g", &[("T", "old", 1), ("OnlyA", "*", 1)]);
        beat(&table, &b, "g", &[("T", "new", 2)]);
        assert_eq!(expression(&table, "g", "T").as_deref(), Some("new"));
        assert!(expression(&table, "g", "OnlyA").is_some(), "b does not know the topic, but a does");
        table.closed(b.connection.id());
        assert_eq!(expression(&table, "g", "T").as_deref(), Some("old"), "b took its subscription along");
        assert_eq!(table.consumer_groups_of("OnlyA"), ["g"]);
        assert!(table.consumer_groups_of("U").is_empty());
    }

    #[test]
    fn one_connection_in_several_groups() {
        let (table, a) = (table(), Peer::new("a"));
        beat(&table, &a, "g", &[("T", "*", 1)]);
        beat(&table, &a, "h", &[("T", "*", 1)]);
        table.producer_heartbeat("p", a.client(1_000));
        table.producer_heartbeat("q", a.client(1_000));
        assert_eq!(table.producer_groups(), ["p", "q"]);
        table.unregister(a.connection.id(), "a", Some("p"), Some("g"));
        assert_eq!((table.producer_groups(), table.consumer_groups()), (vec!["q".to_owned()], vec!["h".to_owned()]));
        assert!(table.producer_by_client_id("a").is_some());
        table.closed(a.connection.id());
        assert!(table.producer_groups().is_empty() && table.consumer_groups().is_empty());
        assert!(table.producer_by_client_id("a").is_none());
        assert!(table.registered.lock().is_empty());
    }

    #[test]
    fn a_reconnected_client_is_listed_once_and_found_by_its_new_connection() {
        let (table, old, new) = (table(), Peer::new("a"), Peer::new("a"));
        for peer in [&old, &new] {
            beat(&table, peer, "g", &[("T", "*", 1)]);
            table.producer_heartbeat("p", peer.client(0));
        }
        assert_eq!(table.consumer_group("g").unwrap().client_ids(), ["a"]);
        assert_eq!(table.consumer_by_client_id("g", "a").unwrap().connection.id(), new.connection.id());
        assert_eq!(table.producer_by_client_id("a").unwrap().connection.id(), new.connection.id());
        table.closed(old.connection.id());
        assert_eq!(table.consumer_by_client_id("g", "a").unwrap().connection.id(), new.connection.id());
        assert!(table.producer_by_client_id("a").is_some());
        assert!(table.consumer_by_client_id("g", "b").is_none() && table.consumer_by_client_id("x", "a").is_none());
    }

    #[test]
    fn silent_clients_expire() {
        let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
        let start = 1_000_000;
        for peer in [&a, &b] {
            table.consumer_heartbeat(heartbeat("g", &[("T", "*", 1)]), peer.client(start), false);
            table.producer_heartbeat("p", peer.client(start));
        }
        let later = start + CLIENT_EXPIRY_MS;
        table.expire(later);
        assert_eq!(table.producers("p").len(), 2, "the limit itself is in time");
        table.consumer_heartbeat(heartbeat("g", &[("T", "*", 1)]), b.client(later), false);
        assert_eq!(table.consumer_by_client_id("g", "b").unwrap().last_update_ms(), later);
        b.notified();
        table.expire(later + 1);
        assert_eq!(table.consumer_group("g").unwrap().client_ids(), ["b"]);
        assert_eq!(b.notified(), ["g"]);
        assert!(table.producers("p").is_empty(), "one record per group: b's heartbeat named only g");
        assert!(!a.connection.is_open() && b.connection.is_open(), "a connection is closed once none of its clients is left");
    }

    #[test]
    fn a_heartbeat_after_the_end_leaves_nothing() {
        let (table, a) = (table(), Peer::new("a"));
        a.connection.close();
        assert!(!a.connection.is_open());
        beat(&table, &a, "g", &[("T", "*", 1)]);
        table.producer_heartbeat("p", a.client(0));
        assert!(table.consumer_groups().is_empty() && table.producer_groups().is_empty());
        assert!(table.producer_by_client_id("a").is_none());
    }

    #[test]
    fn heartbeats_of_the_second_version() {
        let (table, a, b) = (table(), Peer::new("a"), Peer::new("b"));
        let full = ConsumerHeartbeat { fingerprint: 77, ..heartbeat("g", &[("T", "x", 1)]) };
        let bare = |fingerprint| ConsumerHeartbeat { fingerprint, ..heartbeat("g", &[]) };
        table.consumer_heartbeat(bare(77), b.client(0), true);
        assert!(!table.has_fingerprint("g", b.connection.id(), 77), "its subscriptions never came");
        table.consumer_heartbeat(full, a.client(0), false);
        a.notified();
        assert!(!table.consumer_heartbeat(bare(77), a.client(5), true));
        assert_eq!(expression(&table, "g", "T").as_deref(), Some("x"), "none said, none dropped");
        assert!(table.has_fingerprint("g", a.connection.id(), 77));
        assert!(!table.has_fingerprint("g", a.connection.id(), 78) && !table.has_fingerprint("h", a.connection.id(), 77));
        table.consumer_heartbeat(bare(78), a.client(6), true);
        assert!(table.has_fingerprint("g", a.connection.id(), 77), "what we know is still what 77 said");
        assert_eq!(a.notified(), Vec::<String>::new());
        beat(&table, &a, "g", &[("T", "x", 1)]);
        assert!(!table.has_fingerprint("g", a.connection.id(), 77), "a v1 heartbeat");
    }

    #[test]
    fn heartbeats_of_all_languages_say_the_same() {
        let java = br#"{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":17,"tagsSet":["TagA"],"topic":"T"},{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":17,"tagsSet":[],"topic":"%RETRY%g"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}"#;
        let go = br#"{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"classFilterMode":false,"topic":"%RETRY%g","subString":"*","tagsSet":null,"codeSet":null,"subVersion":17,"expressionType":"TAG"},{"classFilterMode":false,"topic":"T","subString":"TagA","tagsSet":["TagA"],"codeSet":["2598919"],"subVersion":17,"expressionType":"TAG"}],"unitMode":false}]}"#;
        let cpp = b"{\"clientID\":\"c\",\"consumerDataSet\":[{\"consumeFromWhere\":4,\"consumeType\":1,\"groupName\":\"g\",\"messageModel\":1,\"subscriptionDataSet\":[{\"codeSet\":[0],\"subString\":\"TagA\",\"subVersion\":\"17\",\"tagsSet\":[\"TagA\"],\"topic\":\"T\"},{\"codeSet\":[],\"subString\":\"*\",\"subVersion\":\"17\",\"tagsSet\":[],\"topic\":\"%RETRY%g\"}]}]}\n";
        let table = table();
        let mut snapshots = Vec::new();
        for body in [&java[..], go, cpp] {
            let peer = Peer::new("c");
            let data = HeartbeatData::from_json(body).unwrap();
            let ConsumerData { group_name, consume_type, message_model, consume_from_where, subscriptions, .. } = data.consumers[0].clone();
            let heartbeat =
                ConsumerHeartbeat { group: group_name, consume_type, message_model, consume_from_where, subscriptions, fingerprint: 0 };
            table.consumer_heartbeat(heartbeat, peer.client(0), false);
            let group = table.consumer_group("g").unwrap();
            snapshots.push((group.subscriptions.clone(), group.consume_from_where, group.message_model));
            table.closed(peer.connection.id());
        }
        assert_eq!(snapshots[0].0["T"].code_set, [2_598_919]);
        assert!(snapshots.iter().all(|snapshot| *snapshot == snapshots[0]), "{snapshots:?}");
    }

    /// Joins, leaves and changes in any order: the table agrees with a list of who is there and what each says.
    #[test]
    fn behaves_as_a_list_of_members() {
        let table = table();
        let peers: Vec<Peer> = (0..6).map(|n| Peer::new(&format!("c{n}"))).collect();
        let mut model = BTreeMap::<usize, Vec<(&str, &str, i64)>>::new();
        let mut random = fastrand::Rng::with_seed(3);
        for step in 0..5_000i64 {
            let n = random.usize(0..peers.len());
            let topics_before = topics(&model);
            let was_there = model.contains_key(&n);
            let (told, expected) = if random.u8(0..3) == 0 {
                table.unregister(peers[n].connection.id(), &peers[n].id, None, Some("g"));
                model.remove(&n);
                (None, was_there && !model.is_empty())
            } else {
                let all = [("A", "*", 1), ("A", "x", 2), ("B", "*", 3), ("C", "y", step)];
                let said: Vec<_> = all.into_iter().filter(|_| random.bool()).collect();
                let changed = beat(&table, &peers[n], "g", &said);
                model.insert(n, said);
                (Some(changed), !was_there || topics(&model) != topics_before)
            };
            if let Some(told) = told {
                assert_eq!(told, expected, "step {step}");
            }
            let notified: Vec<usize> = (0..peers.len()).filter(|n| !peers[*n].notified().is_empty()).collect();
            assert_eq!(notified, if expected { model.keys().copied().collect() } else { Vec::new() }, "step {step}");
            let group = table.consumer_group("g");
            assert_eq!(group.is_some(), !model.is_empty(), "step {step}");
            let subscriptions = group.map_or_else(BTreeMap::new, |group| group.subscriptions.clone());
            assert_eq!(subscriptions.keys().map(String::as_str).collect::<BTreeSet<_>>(), topics(&model), "step {step}");
            for (topic, subscription) in &subscriptions {
                let newest = model.values().flatten().filter(|(other, ..)| other == topic).map(|(_, _, version)| *version).max();
                assert_eq!(Some(subscription.sub_version), newest, "step {step}");
            }
        }

        fn topics<'a>(model: &BTreeMap<usize, Vec<(&'a str, &'a str, i64)>>) -> BTreeSet<&'a str> {
            model.values().flatten().map(|(topic, ..)| *topic).collect()
        }
    }
}
