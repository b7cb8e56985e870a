//! Calls to name servers: registration in the background, so that a missing name server never holds a client up.
//!
//! Each name server has a thread of its own (`register-N`), which connects, registers and waits; they share one state under one lock.
//! - A thread registers everything at its start, when the period has passed, when it is asked to, and at once when the connection was
//!   lost (a name server keeps its table in memory only: one that was restarted must hear from us again).
//! - A name server that does not answer is tried again after half a second, then after twice as long, up to ten seconds; nobody waits
//!   for it meanwhile, and single topics are not told to it: the next registration of everything brings them.
//! - Requests that come while a registration runs share the next one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::common::topic::{DataVersion, TopicConfig};
use crate::config::broker::BrokerConfig;
use crate::config::host;
use crate::net::client::{RemotingClient, RemotingClientConfig};
use crate::remoting::body::namesrv::kv_table_from_json;
use crate::remoting::body::register::{body_crc32, register_body_json};
use crate::remoting::body::topic::write_data_version;
use crate::remoting::code::{request, response};
use crate::remoting::command::{Body, OwnedCommand};
use crate::remoting::header::namesrv::{BrokerIdentity, RegisterBrokerRequest};
use crate::runtime::clock::Clock;
use crate::runtime::thread::Thread;

/// First pause after a name server did not answer.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// Longest pause.
const LAST_RETRY: Duration = Duration::from_secs(10);
/// How long a caller waits for one topic to be registered: a client waits for the caller.
const TOPIC_PATIENCE: Duration = Duration::from_secs(1);
/// How long a name server may take to let us go.
const LEAVE_PATIENCE: Duration = Duration::from_millis(1_000);
/// Single topics that may wait for a name server; more make it hear everything.
const MAX_WAITING_TOPICS: usize = 1_000;

/// What is registered.
pub trait Registered: Send + Sync {
    /// Topics to tell (perm already ANDed with brokerPermission), with the table's version.
    fn topics(&self) -> (Vec<Arc<TopicConfig>>, DataVersion);
    /// An order topic list came back (order configuration of the name server).
    fn order_topics(&self, topics: &[String]);
}

/// Keeps a broker registered with its name servers.
pub struct Registration {
    shared: Arc<Shared>,
    threads: Mutex<Vec<Thread>>,
    client: OnceLock<Arc<RemotingClient>>,
}

impl Registration {
    /// A registration that does nothing until [`Registration::start`].
    pub fn new(config: &BrokerConfig, clock: Clock) -> Self {
        // Pauses are measured, not read off a clock that may be set; a test's clock does not hurry them.
        let _ = clock;
        let servers = config.namesrv_addresses.iter().map(|address| NameServer::new(address)).collect();
        let shared = Shared {
            identity: Identity::of(config),
            period: Duration::from_millis(config.register_period_ms),
            timeout: Duration::from_millis(config.register_timeout_ms),
            force: config.force_register,
            tag: config.store.tag.clone(),
            state: Mutex::new(State { stopping: false, wanted: 0, servers }),
            changed: Condvar::new(),
        };
        Self { shared: Arc::new(shared), threads: Mutex::new(Vec::new()), client: OnceLock::new() }
    }

    /// Starts one thread per name server, each of which registers at once; `port` and `ha_port` are those that are told to
    /// clients and slaves. Only the first call does anything.
    ///
    /// # Errors
    /// The system's, when no thread can be made.
    pub fn start(&self, port: u16, ha_port: u16, registered: Arc<dyn Registered>) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        let addresses: Vec<String> = self.shared.state.lock().servers.iter().map(|server| server.address.clone()).collect();
        if addresses.is_empty() || self.client.get().is_some() {
            return Ok(());
        }
        let shared = Arc::downgrade(&self.shared);
        let client = Arc::new(RemotingClient::start(RemotingClientConfig {
            tag: self.shared.tag.clone(),
            on_close: Some(Arc::new(move |address| lost(&shared, address))),
            ..RemotingClientConfig::default()
        })?);
        let client = Arc::clone(self.client.get_or_init(|| client));
        for (at, address) in addresses.into_iter().enumerate() {
            let worker = Worker {
                shared: Arc::clone(&self.shared),
                client: Arc::clone(&client),
                registered: Arc::clone(&registered),
                at,
                address,
                port,
                ha_port,
                ordered: None,
            };
            threads.push(Thread::spawn(&self.shared.tag, &format!("register-{at}"), move || worker.run())?);
        }
        Ok(())
    }

    /// Registers everything now, on all name servers, and waits for the answers of those that are not known to be away; at most
    /// `registerBrokerTimeoutMills`. Returns how many answered success. Not on net threads.
    pub fn register_all(&self) -> usize {
        if self.client.get().is_none() {
            return 0;
        }
        let deadline = Instant::now() + self.shared.timeout;
        let mut state = self.shared.state.lock();
        state.wanted += 1;
        let wanted = state.wanted;
        self.shared.changed.notify_all();
        let is_waited_for = |server: &NameServer| server.health != Health::Away && server.done < wanted && !server.gone;
        while !state.stopping && state.servers.iter().any(is_waited_for) {
            if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.servers.iter().filter(|server| server.health == Health::Reached && server.done >= wanted).count()
    }

    /// Registers one topic and waits, shortly: so that a client that created a topic finds its route. Not on net threads.
    pub fn register_topic(&self, topic: &str) {
        if self.client.get().is_none() {
            return;
        }
        let deadline = Instant::now() + TOPIC_PATIENCE;
        let mut state = self.shared.state.lock();
        let mut tickets = Vec::new();
        for (at, server) in state.servers.iter_mut().enumerate().filter(|(_, server)| server.health != Health::Away) {
            tickets.push((at, server.enqueue(topic)));
        }
        self.shared.changed.notify_all();
        let is_waited_for = |(at, ticket): &(usize, u64), state: &State| {
            let server = &state.servers[*at];
            server.health != Health::Away && server.topics_done < *ticket && !server.gone
        };
        while !state.stopping && tickets.iter().any(|ticket| is_waited_for(ticket, &state)) {
            if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    /// Asks for a registration soon, from any thread.
    pub fn request(&self) {
        self.shared.state.lock().wanted += 1;
        self.shared.changed.notify_all();
    }

    /// Tells all name servers that we go, and ends the threads. Twice is harmless.
    pub fn unregister(&self) {
        let mut threads = self.threads.lock();
        let deadline = Instant::now() + LEAVE_PATIENCE + FIRST_RETRY;
        let mut state = self.shared.state.lock();
        state.stopping = true;
        self.shared.changed.notify_all();
        while !threads.is_empty() && state.servers.iter().any(|server| !server.gone) {
            if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        drop(state);
        if let Some(client) = self.client.get() {
            client.shutdown(); // whoever still waits for an answer gets none
        }
        threads.drain(..).for_each(Thread::join);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.unregister();
    }
}

struct Shared {
    identity: Identity,
    period: Duration,
    timeout: Duration,
    force: bool,
    tag: String,
    state: Mutex<State>,
    changed: Condvar,
}

/// Who we are, but for the address.
struct Identity {
    cluster_name: String,
    broker_name: String,
    broker_id: i64,
    host: Option<String>,
    ha_host: Option<String>,
    bound: Option<IpAddr>,
    own_token: Option<String>,
}

impl Identity {
    fn of(config: &BrokerConfig) -> Self {
        Self {
            cluster_name: config.cluster_name.clone(),
            broker_name: config.broker_name.clone(),
            broker_id: config.broker_id,
            host: config.broker_ip1.clone(),
            ha_host: config.broker_ip2.clone(),
            bound: Some(config.bind_address).filter(|address| !address.is_unspecified()),
            own_token: config.own_name_server_token.clone(),
        }
    }

    /// The hosts told to clients and to slaves, when no connection is needed to know them.
    fn hosts(&self) -> Option<(String, String)> {
        let host = self.host.clone().or_else(|| self.bound.map(|address| address.to_string()))?;
        Some((host.clone(), self.ha_host.clone().unwrap_or(host)))
    }
}

struct State {
    stopping: bool,
    /// Number of the last request to register everything.
    wanted: u64,
    servers: Vec<NameServer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// Not tried yet.
    Unknown,
    /// The last registration was answered.
    Reached,
    /// It was not.
    Away,
}

/// One name server.
struct NameServer {
    address: String,
    health: Health,
    /// Request that the last registration answered.
    done: u64,
    /// Topics to register alone.
    topics: VecDeque<String>,
    /// Number of the last topic that was put into `topics`.
    topics_wanted: u64,
    /// Number of the last topic that was told, or given up.
    topics_done: u64,
    /// The connection was lost.
    lost: bool,
    /// Its thread has ended.
    gone: bool,
}

impl NameServer {
    fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            health: Health::Unknown,
            done: 0,
            topics: VecDeque::new(),
            topics_wanted: 0,
            topics_done: 0,
            lost: false,
            gone: false,
        }
    }

    fn enqueue(&mut self, topic: &str) -> u64 {
        self.topics_wanted += 1;
        if !self.topics.iter().any(|waiting| waiting == topic) {
            self.topics.push_back(topic.to_owned());
        }
        self.topics_wanted
    }
}

/// A connection was lost: its name server may have been restarted.
fn lost(shared: &Weak<Shared>, address: &str) {
    let Some(shared) = shared.upgrade() else { return };
    let mut state = shared.state.lock();
    state.servers.iter_mut().filter(|server| server.address == address).for_each(|server| server.lost = true);
    drop(state);
    shared.changed.notify_all();
}

/// What a thread is to do next.
enum Job {
    Everything { wanted: u64, asked: bool },
    Topics { names: Vec<String>, upto: u64 },
    Leave,
}

/// The thread of one name server.
struct Worker {
    shared: Arc<Shared>,
    client: Arc<RemotingClient>,
    registered: Arc<dyn Registered>,
    at: usize,
    address: String,
    port: u16,
    ha_port: u16,
    /// Order topics as last applied.
    ordered: Option<Vec<String>>,
}

/// What it tells of a registration that failed.
type Failure = String;

impl Worker {
    fn run(mut self) {
        let mut due = Instant::now();
        let mut earliest = due;
        let mut pause = FIRST_RETRY;
        loop {
            match self.next_job(earliest, due) {
                Job::Leave => break,
                Job::Everything { wanted, asked } => {
                    let topics_upto = self.shared.state.lock().servers[self.at].topics_wanted;
                    let outcome = self.register_everything(asked);
                    earliest = Instant::now() + FIRST_RETRY;
                    due = Instant::now() + if outcome.is_ok() { self.shared.period } else { pause };
                    pause = if outcome.is_ok() { FIRST_RETRY } else { (pause * 2).min(LAST_RETRY) };
                    self.everything_done(outcome, wanted, topics_upto);
                }
                Job::Topics { names, upto } => match self.register_topics(&names) {
                    Ok(()) => self.topics_done(upto),
                    // Whatever went wrong, registering everything puts it right, and tells whether the server is there.
                    Err(_) => due = Instant::now(),
                },
            }
        }
        self.leave();
        let mut state = self.shared.state.lock();
        state.servers[self.at].gone = true;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits for something to do. Everything is registered at `due` at the latest, and for a lost connection at `earliest`: a peer that
    /// closes each connection must not make us spin.
    fn next_job(&self, earliest: Instant, due: Instant) -> Job {
        let mut state = self.shared.state.lock();
        loop {
            if state.stopping {
                return Job::Leave;
            }
            let wanted = state.wanted;
            let server = &mut state.servers[self.at];
            let away = server.health == Health::Away;
            let due = if server.lost && !away { earliest.min(due) } else { due };
            if Instant::now() >= due {
                let asked = server.lost || server.health != Health::Reached;
                server.lost = false;
                return Job::Everything { wanted, asked };
            }
            if server.done < wanted && !away || server.topics.len() > MAX_WAITING_TOPICS {
                return Job::Everything { wanted, asked: true };
            }
            if !server.topics.is_empty() && !away {
                return Job::Topics { names: server.topics.drain(..).collect(), upto: server.topics_wanted };
            }
            self.shared.changed.wait_until(&mut state, due);
        }
    }

    fn topics_done(&self, upto: u64) {
        self.shared.state.lock().servers[self.at].topics_done = upto;
        self.shared.changed.notify_all();
    }

    fn everything_done(&self, outcome: Result<(), Failure>, wanted: u64, topics_upto: u64) {
        let mut state = self.shared.state.lock();
        let stopping = state.stopping;
        let server = &mut state.servers[self.at];
        let before = server.health;
        server.health = if outcome.is_ok() { Health::Reached } else { Health::Away };
        let after = server.health;
        server.done = wanted;
        server.topics_done = topics_upto;
        if server.topics_wanted == topics_upto {
            server.topics.clear(); // all of them were in the table that was told
        }
        drop(state);
        self.shared.changed.notify_all();
        match outcome {
            Err(why) if before != Health::Away && !stopping => {
                log::warn!("name server is not reached, it is tried again: address={} cause={why}", self.address);
            }
            Ok(()) if before != after => log::info!("registered: name_server={}", self.address),
            _ => {}
        }
    }

    fn register_everything(&mut self, asked: bool) -> Result<(), Failure> {
        if !asked && !self.shared.force && !self.has_changed()? {
            return Ok(());
        }
        let (topics, version) = self.registered.topics();
        let answer = self.register(&topics, &version, true)?;
        let body = answer.view().body.to_vec();
        if !body.is_empty() {
            let table = kv_table_from_json(&body).map_err(|why| format!("the order configuration does not parse: {why}"))?;
            let topics: Vec<String> = table.into_keys().collect();
            if self.ordered.as_ref() != Some(&topics) {
                self.registered.order_topics(&topics);
                self.ordered = Some(topics);
            }
        }
        Ok(())
    }

    fn register_topics(&self, names: &[String]) -> Result<(), Failure> {
        let (topics, version) = self.registered.topics();
        let topics: Vec<_> = topics.into_iter().filter(|topic| names.contains(&topic.topic_name)).collect();
        if topics.is_empty() {
            return Ok(()); // deleted meanwhile
        }
        self.register(&topics, &version, false).map(|_| ())
    }

    fn register(&self, topics: &[Arc<TopicConfig>], version: &DataVersion, full: bool) -> Result<OwnedCommand, Failure> {
        let body = register_body_json(topics, version).into_bytes();
        let (broker, ha_server_addr) = self.broker()?;
        let header = RegisterBrokerRequest {
            broker,
            ha_server_addr,
            heartbeat_timeout_ms: None,
            enable_acting_master: Some(false),
            body_crc32: body_crc32(&body),
            zone_name: None,
            full: Some(full),
            own_token: self.shared.identity.own_token.clone(),
        };
        let answer = self.client.invoke(&self.address, request::REGISTER_BROKER, &header, Body::Owned(body), self.shared.timeout);
        checked(answer.map_err(|error| error.to_string())?)
    }

    /// Asks whether the name server knows another version than ours (322).
    fn has_changed(&self) -> Result<bool, Failure> {
        let (_, version) = self.registered.topics();
        let mut body = String::new();
        write_data_version(&mut body, &version);
        let (broker, _) = self.broker()?;
        let answer = self.client.invoke(&self.address, request::QUERY_DATA_VERSION, &broker, body.into(), self.shared.timeout);
        let answer = checked(answer.map_err(|error| error.to_string())?)?;
        Ok(answer.view().ext.bool("changed").unwrap_or(true))
    }

    fn leave(&self) {
        if self.shared.state.lock().servers[self.at].health != Health::Reached {
            return;
        }
        let gone = self.broker().and_then(|(broker, _)| {
            let answer = self.client.invoke(&self.address, request::UNREGISTER_BROKER, &broker, Body::Empty, LEAVE_PATIENCE);
            checked(answer.map_err(|error| error.to_string())?)
        });
        if let Err(why) = gone {
            log::warn!("name server was not told that the broker stops: address={} cause={why}", &self.address);
        }
    }

    /// Who we are to this name server, and where slaves find us: by the address of our own that reaches it, unless one was set.
    fn broker(&self) -> Result<(BrokerIdentity, String), Failure> {
        let identity = &self.shared.identity;
        let (host, ha_host) = match identity.hosts() {
            Some(hosts) => hosts,
            None => {
                let local = self.client.connection(&self.address).map_err(|error| error.to_string())?.local().ip().to_string();
                (local.clone(), identity.ha_host.clone().unwrap_or(local))
            }
        };
        let broker = BrokerIdentity {
            broker_name: identity.broker_name.clone(),
            broker_addr: host::join(&host, self.port),
            cluster_name: identity.cluster_name.clone(),
            broker_id: identity.broker_id,
        };
        Ok((broker, host::join(&ha_host, self.ha_port)))
    }
}

fn checked(answer: OwnedCommand) -> Result<OwnedCommand, Failure> {
    let view = answer.view();
    if view.code == response::SUCCESS {
        drop(view);
        return Ok(answer);
    }
    Err(format!("code {}: {}", view.code, view.remark.as_deref().unwrap_or("")))
}

#[cfg(test)]
mod tests;
