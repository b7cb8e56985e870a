//! Which broker is there and which topics it has. Pure: no I/O, no clock (`now_ms` is an argument).
//!
//! - A topic is listed only with brokers that are registered, a broker only while one of its addresses is; the last one takes everything
//!   of it away.
//! - A registration remembers the connection it came by. When a connection closes, only registrations that came by it go: a broker that
//!   has come back by another connection stays.
//! - A registration that names every topic of its broker takes away those it does not name. Java brokers do not say whether they name
//!   every topic (a single changed topic and the parts of a split table look the same), so without the word of one of ours it is guessed
//!   (`names_everything`); one topic alone never takes anything away.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::topic::{DataVersion, OFFSET_MOVED_EVENT, PERM_READ_WRITE, PERM_WRITE, SCHEDULE_TOPIC, SELF_TEST_TOPIC, TopicConfig};
use crate::net::connection::ConnectionId;
use crate::remoting::body::namesrv::ClusterInfo;
use crate::remoting::body::route::{BrokerData, QueueData, TopicRouteData};

use super::address::{BrokerAddress, Viewer};

/// Silence after which a broker that names no time of its own is dropped, ms.
pub const DEFAULT_HEARTBEAT_TIMEOUT_MS: i64 = 120_000;
/// Id of a master.
pub const MASTER_ID: i64 = 0;
/// Longest topic name taken in, bytes.
const MAX_TOPIC_LEN: usize = 255;
/// Topics that every real broker has: a table without one of them is not the whole table.
const MARKERS: [&str; 3] = [SELF_TEST_TOPIC, OFFSET_MOVED_EVENT, SCHEDULE_TOPIC];
/// A topic that a Java broker named within this time is not taken away by a guess: it may have been in another part of a split table, ms.
const SPLIT_GUARD_MS: i64 = 5_000;
/// Topics that acting masters use to find each other: never answered with an acting master.
const SYNC_MEMBER_PREFIX: &str = "rmq_sys_SYNC_BROKER_MEMBER_";

/// What a broker registers.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Cluster.
    pub cluster: String,
    /// Broker name.
    pub broker_name: String,
    /// 0 for a master.
    pub broker_id: i64,
    /// Where clients reach it.
    pub address: BrokerAddress,
    /// Where slaves reach it.
    pub ha_address: String,
    /// Zone, when it says one.
    pub zone: Option<String>,
    /// Silence after which it is dropped, when it says one, ms.
    pub timeout_ms: Option<i64>,
    /// Whether a slave may act as master; old brokers do not say.
    pub enable_acting_master: Option<bool>,
    /// Whether `topics` are all its topics, when it says so (brokers of ours).
    pub full: Option<bool>,
    /// Topics.
    pub topics: Vec<TopicConfig>,
    /// Version of its topic table.
    pub version: DataVersion,
    /// Static topics came along: nothing is taken away then.
    pub has_mappings: bool,
    /// Where it came by.
    pub connection: Option<ConnectionId>,
}

/// What became of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registered {
    /// It stands.
    Accepted {
        /// The address was not registered before.
        is_new: bool,
        /// For a slave: its master's address and HA address.
        master: Option<(BrokerAddress, String)>,
        /// Told to the other members, when that is switched on.
        change: Option<MinBrokerIdChange>,
    },
    /// Another address holds the id with a newer state version; answered like a success.
    Outdated,
    /// The broker is unknown and named one topic only: it must register everything first.
    Incomplete,
}

/// The lowest broker id of a name changed (905).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinBrokerIdChange {
    /// Lowest id now.
    pub min_broker_id: i64,
    /// Its address.
    pub min_broker_addr: String,
    /// Who went.
    pub offline_broker_addr: Option<String>,
    /// HA address of who came.
    pub ha_broker_addr: Option<String>,
    /// Who is to be told.
    pub tell: Vec<String>,
}

/// How routes are answered.
#[derive(Clone, Copy, Debug)]
pub struct RouteOptions<'a> {
    /// Who asks.
    pub viewer: Viewer,
    /// `supportActingMaster`.
    pub acting_master: bool,
    /// Only brokers of this zone (and those without a master).
    pub zone: Option<&'a str>,
}

/// The tables.
#[derive(Debug, Default)]
pub struct RouteTable {
    /// By topic: the brokers that have it, by name. A vector, as most topics are on one broker.
    topics: BTreeMap<Arc<str>, Vec<(Arc<str>, Queues)>>,
    brokers: BTreeMap<Arc<str>, Group>,
}

/// Brokers of one name.
#[derive(Debug)]
struct Group {
    cluster: String,
    zone: Option<String>,
    enable_acting_master: bool,
    members: BTreeMap<i64, Member>,
}

/// One registered address.
#[derive(Debug)]
struct Member {
    address: BrokerAddress,
    ha_address: String,
    last_seen_ms: i64,
    timeout_ms: i64,
    version: DataVersion,
    connection: Option<ConnectionId>,
}

/// A topic on one broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queues {
    read: i32,
    write: i32,
    /// In effect: what was registered, or what 205 and 327 made of it.
    perm: i32,
    registered_perm: i32,
    sys_flag: i32,
    /// When a registration named it last.
    named_ms: i64,
}

impl RouteTable {
    /// Takes a registration in. `replace`: take away what a full registration does not name.
    pub fn register(&mut self, registration: &Registration, replace: bool, now_ms: i64) -> Registered {
        let name: Arc<str> = registration.broker_name.as_str().into();
        let id = registration.broker_id;
        let known = self.brokers.get(&name);
        let known_member = known.and_then(|group| group.members.get(&id));
        if let Some(member) = known_member {
            let other_address = member.address.text != registration.address.text;
            if other_address && member.version.state_version > registration.version.state_version {
                return Registered::Outdated;
            }
        }
        let known_version = known_member.map(|member| member.version);
        let is_new = known_member.is_none_or(|member| member.address.text != registration.address.text);
        if known_version.is_none() && registration.topics.len() == 1 && registration.full != Some(true) {
            return Registered::Incomplete;
        }
        let min_before = known.and_then(|group| group.members.keys().next().copied());
        let takes_all = replace && self.names_everything(registration);

        self.enter_member(Arc::clone(&name), registration, now_ms);
        let group = &self.brokers[&name];
        let min_now = group.members.keys().next().copied().unwrap_or(id);
        let is_prime_slave = registration.enable_acting_master.is_some() && id != MASTER_ID && id == min_now;
        let read_only = is_prime_slave && group.enable_acting_master;
        if id == MASTER_ID || is_prime_slave {
            let changed = known_version != Some(registration.version);
            if takes_all {
                let guard_ms = if registration.full == Some(true) || !self.has_marker(&name) { i64::MIN } else { SPLIT_GUARD_MS };
                self.take_away_unnamed(&name, registration, guard_ms, now_ms);
            }
            self.enter_topics(&name, &registration.topics, changed, read_only, now_ms);
        }

        let group = &self.brokers[&name];
        let master = if id == MASTER_ID { None } else { group.members.get(&MASTER_ID) };
        let change = min_before.filter(|before| id < *before).and_then(|_| group.min_change(None, Some(&registration.ha_address)));
        self.check_invariants();
        Registered::Accepted { is_new, master: master.map(|master| (master.address.clone(), master.ha_address.clone())), change }
    }

    /// Removes one registered address (104).
    pub fn unregister(&mut self, broker_name: &str, broker_addr: &str) -> Vec<MinBrokerIdChange> {
        self.remove_members(|name, _, member| name == broker_name && member.address.text == broker_addr)
    }

    /// Removes what was registered by a connection that is gone.
    pub fn connection_closed(&mut self, connection: ConnectionId) -> Vec<MinBrokerIdChange> {
        self.remove_members(|_, _, member| member.connection == Some(connection))
    }

    /// Removes brokers that were silent for too long; `removed` is told each one's name and address.
    pub fn expire(&mut self, now_ms: i64, mut removed: impl FnMut(&str, &str)) -> Vec<MinBrokerIdChange> {
        self.remove_members(|name, _, member| {
            let silent = now_ms.saturating_sub(member.last_seen_ms) > member.timeout_ms;
            if silent {
                removed(name, &member.address.text);
            }
            silent
        })
    }

    /// A sign of life (322, 904): the version known of the broker; `None` when it is not registered.
    pub fn touch(&mut self, broker_name: &str, broker_addr: &str, now_ms: i64) -> Option<DataVersion> {
        let group = self.brokers.get_mut(broker_name)?;
        let member = group.members.values_mut().find(|member| member.address.text == broker_addr)?;
        member.last_seen_ms = now_ms;
        Some(member.version)
    }

    /// Whether a broker of this name is registered.
    pub fn knows_broker(&self, broker_name: &str) -> bool {
        self.brokers.contains_key(broker_name)
    }

    /// Where a topic is (105).
    pub fn route(&self, topic: &str, options: &RouteOptions<'_>) -> Option<TopicRouteData> {
        let queues = self.topics.get(topic)?;
        let acting = options.acting_master && !topic.starts_with(SYNC_MEMBER_PREFIX);
        let mut route = TopicRouteData::default();
        for (name, queues) in queues {
            let Some(group) = self.brokers.get(name) else { continue };
            if options.zone.is_some_and(|zone| !group.is_in_zone(zone)) {
                continue;
            }
            let mut broker = group.data(name, options.viewer);
            let is_writable = queues.perm & PERM_WRITE != 0;
            let needs_master = acting && group.enable_acting_master && !is_writable && !group.members.contains_key(&MASTER_ID);
            if needs_master && let Some((_, address)) = broker.broker_addrs.pop_first() {
                broker.broker_addrs.insert(MASTER_ID, address);
            }
            route.broker_datas.push(broker);
            route.queue_datas.push(queues.data(name));
        }
        Some(route).filter(|route| !route.broker_datas.is_empty())
    }

    /// All brokers and clusters (106).
    pub fn cluster_info(&self, viewer: Viewer) -> ClusterInfo {
        let mut info = ClusterInfo::default();
        for (name, group) in &self.brokers {
            info.brokers.insert(name.to_string(), group.data(name, viewer));
            info.clusters.entry(group.cluster.clone()).or_default().push(name.to_string());
        }
        info
    }

    /// The members of one broker name (901); without addresses when it is unknown.
    pub fn member_group(&self, cluster: &str, broker_name: &str, viewer: Viewer) -> BrokerData {
        match self.brokers.get(broker_name) {
            Some(group) => group.data(broker_name, viewer),
            None => BrokerData { cluster: cluster.to_owned(), broker_name: broker_name.to_owned(), ..BrokerData::default() },
        }
    }

    /// All topics (206).
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(|topic| &**topic)
    }

    /// Topics that a broker of the cluster has (224).
    pub fn topics_of_cluster<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = &'a str> {
        let is_of_cluster = move |name: &Arc<str>| self.brokers.get(name).is_some_and(|group| group.cluster == cluster);
        self.topics.iter().filter(move |(_, queues)| queues.iter().any(|(name, _)| is_of_cluster(name))).map(|(topic, _)| &**topic)
    }

    /// Topics by their flags (311, 312, 313), as the first broker of each says.
    pub fn topics_by_flag(&self, wanted: impl Fn(i32) -> bool) -> impl Iterator<Item = &str> {
        let is_wanted = move |queues: &Vec<(Arc<str>, Queues)>| queues.first().is_some_and(|(_, queues)| wanted(queues.sys_flag));
        self.topics.iter().filter(move |(_, queues)| is_wanted(queues)).map(|(topic, _)| &**topic)
    }

    /// Names of clusters and brokers, which are topics of the system, and one broker's address (304).
    pub fn system_topics(&self, viewer: Viewer) -> (Vec<String>, Option<String>) {
        let info = self.cluster_info(viewer);
        let mut names: Vec<String> = Vec::new();
        for (cluster, brokers) in info.clusters {
            names.push(cluster);
            names.extend(brokers);
        }
        names.dedup();
        let address = info.brokers.into_values().find_map(|broker| broker.broker_addrs.into_values().next());
        (names, address)
    }

    /// Takes the write bit from every topic of a broker (205); how many topics it has.
    pub fn wipe_write_perm(&mut self, broker_name: &str) -> usize {
        self.alter_perms(broker_name, |perm| perm & !PERM_WRITE)
    }

    /// Gives every topic of a broker read and write (327); how many topics it has.
    pub fn add_write_perm(&mut self, broker_name: &str) -> usize {
        self.alter_perms(broker_name, |_| PERM_READ_WRITE)
    }

    /// Enters one topic (217); queues of brokers that are not registered are left out.
    pub fn register_topic(&mut self, topic: &str, queue_datas: &[QueueData], now_ms: i64) {
        if topic.len() > MAX_TOPIC_LEN {
            return;
        }
        for data in queue_datas {
            let Some((name, _)) = self.brokers.get_key_value(data.broker_name.as_str()) else { continue };
            let name = Arc::clone(name);
            let told = Queues {
                read: data.read_queue_nums,
                write: data.write_queue_nums,
                perm: data.perm,
                registered_perm: data.perm,
                sys_flag: data.topic_sys_flag,
                named_ms: now_ms,
            };
            self.enter_topic(topic, &name, told, true);
        }
        self.check_invariants();
    }

    /// Removes a topic (216), from the brokers of one cluster or from all.
    pub fn remove_topic(&mut self, topic: &str, cluster: Option<&str>) {
        let Some(queues) = self.topics.get_mut(topic) else { return };
        match cluster {
            None => queues.clear(),
            Some(cluster) => queues.retain(|(name, _)| self.brokers.get(name).is_none_or(|group| group.cluster != cluster)),
        }
        if queues.is_empty() {
            self.topics.remove(topic);
        }
        self.check_invariants();
    }

    /// Whether a registration names every topic of its broker. One of ours says so. Of others, a table with the topics that every real
    /// broker has is taken for the whole one, and so is any table of a broker that has never named them (a program that only acts as a
    /// broker); a table with some of them is a part, one without them a change of a few topics.
    fn names_everything(&self, registration: &Registration) -> bool {
        if let Some(full) = registration.full {
            return full;
        }
        if registration.topics.len() <= 1 || registration.has_mappings {
            return false;
        }
        match MARKERS.iter().filter(|marker| registration.topics.iter().any(|topic| topic.topic_name == **marker)).count() {
            0 => !self.has_marker(&registration.broker_name),
            count => count == MARKERS.len(),
        }
    }

    fn has_marker(&self, broker_name: &str) -> bool {
        MARKERS.iter().any(|marker| self.topics.get(*marker).is_some_and(|queues| queues.iter().any(|(name, _)| &**name == broker_name)))
    }

    fn enter_member(&mut self, name: Arc<str>, registration: &Registration, now_ms: i64) {
        let group = self.brokers.entry(name).or_insert_with(|| Group {
            cluster: String::new(),
            zone: None,
            enable_acting_master: false,
            members: BTreeMap::new(),
        });
        group.cluster.clone_from(&registration.cluster);
        group.zone.clone_from(&registration.zone);
        group.enable_acting_master = registration.enable_acting_master == Some(true);
        // A slave that became master comes with the same address under another id.
        group.members.retain(|id, member| *id == registration.broker_id || member.address.text != registration.address.text);
        let member = Member {
            address: registration.address.clone(),
            ha_address: registration.ha_address.clone(),
            last_seen_ms: now_ms,
            timeout_ms: registration.timeout_ms.filter(|timeout| *timeout > 0).unwrap_or(DEFAULT_HEARTBEAT_TIMEOUT_MS),
            version: registration.version,
            connection: registration.connection,
        };
        group.members.insert(registration.broker_id, member);
    }

    fn enter_topics(&mut self, name: &Arc<str>, topics: &[TopicConfig], changed: bool, read_only: bool, now_ms: i64) {
        for topic in topics.iter().filter(|topic| !topic.topic_name.is_empty() && topic.topic_name.len() <= MAX_TOPIC_LEN) {
            let perm = if read_only { topic.perm & !PERM_WRITE } else { topic.perm };
            let told = Queues {
                read: topic.read_queue_nums,
                write: topic.write_queue_nums,
                perm,
                registered_perm: perm,
                sys_flag: topic.topic_sys_flag,
                named_ms: now_ms,
            };
            self.enter_topic(&topic.topic_name, name, told, changed);
        }
    }

    fn take_away_unnamed(&mut self, broker_name: &str, registration: &Registration, guard_ms: i64, now_ms: i64) {
        let named: std::collections::HashSet<&str> = registration.topics.iter().map(|topic| topic.topic_name.as_str()).collect();
        self.topics.retain(|topic, queues| {
            if !named.contains(&**topic) {
                queues.retain(|(name, known)| &**name != broker_name || now_ms.saturating_sub(known.named_ms) < guard_ms);
            }
            !queues.is_empty()
        });
    }

    /// Enters what was told of a topic on a broker. `changed`: whatever 205 and 327 made of the permission is forgotten.
    fn enter_topic(&mut self, topic: &str, broker_name: &Arc<str>, told: Queues, changed: bool) {
        let Some(queues) = self.topics.get_mut(topic) else {
            self.topics.insert(topic.into(), vec![(Arc::clone(broker_name), told)]);
            return;
        };
        match queues.binary_search_by(|(name, _)| name.cmp(broker_name)) {
            Err(at) => queues.insert(at, (Arc::clone(broker_name), told)),
            Ok(at) => {
                let known = &mut queues[at].1;
                // A wiped permission survives registrations that tell nothing new.
                let perm = if changed || !known.was_told_as(&told) { told.perm } else { known.perm };
                *known = Queues { perm, ..told };
            }
        }
    }

    fn alter_perms(&mut self, broker_name: &str, alter: impl Fn(i32) -> i32) -> usize {
        let mut count = 0;
        let of_broker = self.topics.values_mut().flatten().filter(|(name, _)| &**name == broker_name);
        for (_, queues) in of_broker {
            queues.perm = alter(queues.perm);
            count += 1;
        }
        count
    }

    fn remove_members(&mut self, mut is_gone: impl FnMut(&str, i64, &Member) -> bool) -> Vec<MinBrokerIdChange> {
        let mut changes = Vec::new();
        let mut emptied: Vec<Arc<str>> = Vec::new();
        let mut headless: Vec<Arc<str>> = Vec::new();
        for (name, group) in &mut self.brokers {
            let min_before = group.members.keys().next().copied();
            let mut gone = Vec::new();
            group.members.retain(|id, member| {
                let stays = !is_gone(name, *id, member);
                if !stays {
                    gone.push((*id, member.address.text.clone()));
                }
                stays
            });
            let Some((id, address)) = gone.into_iter().next() else { continue };
            if group.members.is_empty() {
                emptied.push(Arc::clone(name));
                continue;
            }
            if group.enable_acting_master && !group.members.contains_key(&MASTER_ID) {
                headless.push(Arc::clone(name));
            }
            if min_before == Some(id) {
                changes.extend(group.min_change(Some(address), None));
            }
        }
        if !emptied.is_empty() {
            self.topics.retain(|_, queues| {
                queues.retain(|(name, _)| !emptied.contains(name));
                !queues.is_empty()
            });
            self.brokers.retain(|name, _| !emptied.contains(name));
        }
        for name in headless {
            self.alter_perms(&name, |perm| perm & !PERM_WRITE);
        }
        self.check_invariants();
        changes
    }

    /// Whole-table check, in tests only: it would make each registration cost the whole table.
    fn check_invariants(&self) {
        #[cfg(test)]
        {
            for (name, group) in &self.brokers {
                assert!(!group.members.is_empty(), "{name} has no member");
                let addresses: std::collections::HashSet<&str> =
                    group.members.values().map(|member| member.address.text.as_str()).collect();
                assert_eq!(addresses.len(), group.members.len(), "{name} has an address twice");
            }
            for (topic, queues) in &self.topics {
                assert!(!queues.is_empty(), "{topic} is nowhere");
                assert!(queues.is_sorted_by(|(a, _), (b, _)| a < b), "{topic}: brokers are unsorted or double");
                assert!(queues.iter().all(|(name, _)| self.brokers.contains_key(name)), "{topic} is on an unknown broker");
            }
        }
    }
}

impl Group {
    fn data(&self, name: &str, viewer: Viewer) -> BrokerData {
        BrokerData {
            cluster: self.cluster.clone(),
            broker_name: name.to_owned(),
            broker_addrs: self.members.iter().map(|(id, member)| (*id, viewer.address(&member.address))).collect(),
            enable_acting_master: self.enable_acting_master,
        }
    }

    /// A broker without a master is in every zone: its slaves must stay readable.
    fn is_in_zone(&self, zone: &str) -> bool {
        !self.members.contains_key(&MASTER_ID) || self.zone.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(zone))
    }

    fn min_change(&self, offline: Option<String>, ha_broker_addr: Option<&str>) -> Option<MinBrokerIdChange> {
        let (min_broker_id, min) = self.members.iter().next()?;
        let tell_all = offline.is_some() || self.members.len() == 1;
        let told = self.members.iter().filter(|(id, _)| tell_all || *id != min_broker_id);
        Some(MinBrokerIdChange {
            min_broker_id: *min_broker_id,
            min_broker_addr: min.address.text.clone(),
            offline_broker_addr: offline,
            ha_broker_addr: ha_broker_addr.map(str::to_owned),
            tell: told.map(|(_, member)| member.address.text.clone()).collect(),
        })
    }
}

impl Queues {
    fn data(&self, broker_name: &str) -> QueueData {
        QueueData {
            broker_name: broker_name.to_owned(),
            read_queue_nums: self.read,
            write_queue_nums: self.write,
            perm: self.perm,
            topic_sys_flag: self.sys_flag,
        }
    }

    /// Whether a registration tells the same as the one before.
    fn was_told_as(&self, told: &Self) -> bool {
        let key = |queues: &Self| (queues.read, queues.write, queues.registered_perm, queues.sys_flag);
        key(self) == key(told)
    }
}

#[cfg(test)]
mod tests;
