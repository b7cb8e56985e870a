//! What all producers and consumers of one client share: connections, routes, heartbeats, identity.
//!
//! - One thread (`client`) refreshes the known routes and sends heartbeats; it also beats soon after a connection was lost, so that a
//!   broker that forgot us learns of us again. It holds no strong reference between two turns: dropping the last handle ends it.
//! - Lock order: none of the locks here is held while another is taken or while the network is used.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;

use crate::common::message::MessageExt;
use crate::common::topic::TBW102;
use crate::common::unique_id::UniqueIds;
use crate::net::client::RemotingClientConfig;
use crate::net::connection::InvokeError;
use crate::net::responder::Responder;
use crate::remoting::body::heartbeat::{ConsumerData, HeartbeatData};
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::body::route::TopicRouteData;
use crate::remoting::code::{request, response};
use crate::remoting::command::{Body, OwnedCommand};
use crate::remoting::ext::CustomHeader;
use crate::runtime::clock::Clock;
use crate::runtime::thread::Thread;

use super::error::ClientError;
use super::inquiry::push_handler;
use super::route::{RouteTable, TopicRoute};
use super::transport::{TcpTransport, Transport};

/// Least time between two heartbeats, or two look-ups of routes, that lost connections ask for.
const EXTRA_GAP: Duration = Duration::from_secs(1);
/// Most queues a producer assumes for a topic that its first message will make.
const DEFAULT_TOPIC_QUEUES: i32 = 4;

/// How a client runs.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Name servers, `host:port`.
    pub namesrv: Vec<String>,
    /// Second part of the client id; the process id and a number when `None`. Give a name to keep a broadcast consumer's offsets.
    pub instance_name: Option<String>,
    /// Prefix of thread names; may be empty.
    pub tag: String,
    /// Time for one request (Java: `mqClientApiTimeout`, `sendMsgTimeout`): 3 s.
    pub timeout: Duration,
    /// Time for a connection to be made: 3 s.
    pub connect_timeout: Duration,
    /// Time between two look-ups of the known routes: 30 s.
    pub route_interval: Duration,
    /// Time between two heartbeats: 30 s.
    pub heartbeat_interval: Duration,
}

impl ClientConfig {
    /// Defaults for the name servers in `addresses`, separated by `;`.
    pub fn new(addresses: &str) -> Self {
        Self {
            namesrv: addresses.split(';').map(str::trim).filter(|address| !address.is_empty()).map(str::to_owned).collect(),
            instance_name: None,
            tag: String::new(),
            timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(3),
            route_interval: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(30),
        }
    }
}

/// A consumer as brokers know it.
pub(super) trait GroupMember: Send + Sync {
    /// What heartbeats say about it.
    fn data(&self) -> ConsumerData;
    /// The group's members or subscriptions changed (40). Must not block.
    fn members_changed(&self);
    /// Body of its running information (307).
    fn running_info(&self) -> String;
    /// Body that tells its offsets in a topic (221).
    fn status(&self, topic: &str) -> String;
    /// Goes on at other offsets (220), in those of the queues that it reads. Must not block.
    fn reset_offsets(&self, topic: &str, offsets: Vec<(MessageQueue, i64)>);
    /// Processes one message at once and answers what became of it (309). Must not block.
    fn consume_directly(&self, message: MessageExt, responder: Responder);
}

/// Groups of this client, shared with the handler of pushes.
#[derive(Default)]
pub(super) struct Groups {
    producers: Mutex<BTreeMap<String, usize>>,
    consumers: Mutex<BTreeMap<String, Arc<dyn GroupMember>>>,
}

impl Groups {
    /// The consumer of a group.
    pub(super) fn consumer(&self, group: &str) -> Option<Arc<dyn GroupMember>> {
        self.consumers.lock().get(group).cloned()
    }
}

/// The shared part of a client.
pub struct Instance {
    config: ClientConfig,
    client_id: String,
    transport: Arc<dyn Transport>,
    namesrv_at: AtomicUsize,
    routes: RouteTable,
    groups: Arc<Groups>,
    unique_ids: UniqueIds,
    clock: Clock,
    beat: Sender<()>,
    /// Set when a broker could not be reached where the routes say it is.
    stale: AtomicBool,
    task: Mutex<Option<Thread>>,
    closed: AtomicBool,
}

impl Instance {
    /// Starts the net thread and the `client` thread. No connection is made yet.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] without a name server, [`ClientError::Local`] when a thread cannot be made.
    pub fn start(config: ClientConfig) -> Result<Arc<Self>, ClientError> {
        let (beat, inbox) = bounded(1);
        let groups = Arc::new(Groups::default());
        let lost = beat.clone();
        let remoting = RemotingClientConfig {
            tag: config.tag.clone(),
            connect_timeout: config.connect_timeout,
            push_handler: Some(push_handler(groups.clone())),
            on_close: Some(Arc::new(move |_address| {
                let _ = lost.try_send(()); // full: a heartbeat is due already
            })),
            ..RemotingClientConfig::default()
        };
        let transport =
            TcpTransport::start(remoting).map_err(|error| ClientError::Local(format!("cannot start the net thread: {error}")))?;
        Self::assemble(config, Arc::new(transport), Clock::System, groups, beat, inbox)
    }

    /// Starts over a given transport: tests and in-process forms.
    ///
    /// # Errors
    /// As [`Instance::start`].
    pub fn with_transport(config: ClientConfig, transport: Arc<dyn Transport>, clock: Clock) -> Result<Arc<Self>, ClientError> {
        let (beat, inbox) = bounded(1);
        Self::assemble(config, transport, clock, Arc::new(Groups::default()), beat, inbox)
    }

    fn assemble(
        config: ClientConfig, transport: Arc<dyn Transport>, clock: Clock, groups: Arc<Groups>, beat: Sender<()>, inbox: Receiver<()>,
    ) -> Result<Arc<Self>, ClientError> {
        if config.namesrv.is_empty() {
            return Err(ClientError::Invalid("no name server address is given".to_owned()));
        }
        let ip = local_ip(&config.namesrv[0]);
        let seed = fastrand::u32(..);
        let name = config.instance_name.clone().unwrap_or_else(|| format!("{}#{seed}", std::process::id()));
        let instance = Arc::new(Self {
            client_id: format!("{ip}@{name}"),
            transport,
            namesrv_at: AtomicUsize::new(0),
            routes: RouteTable::default(),
            groups,
            unique_ids: UniqueIds::new(ip, std::process::id(), seed),
            clock,
            beat,
            stale: AtomicBool::new(false),
            task: Mutex::new(None),
            closed: AtomicBool::new(false),
            config,
        });
        let weak = Arc::downgrade(&instance);
        let (routes, heartbeats) = (instance.config.route_interval, instance.config.heartbeat_interval);
        let thread = Thread::spawn(&instance.config.tag, "client", move || run_tasks(&weak, &inbox, routes, heartbeats))
            .map_err(|error| ClientError::Local(format!("cannot start a thread: {error}")))?;
        *instance.task.lock() = Some(thread);
        Ok(instance)
    }

    /// Id by which brokers know this client.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// How the client runs.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// The next unique id.
    pub fn next_id(&self) -> String {
        self.unique_ids.next(self.now_ms())
    }

    /// Known routes.
    pub fn routes(&self) -> &RouteTable {
        &self.routes
    }

    /// Groups of this client.
    #[cfg(test)]
    pub(super) fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// The way to servers.
    pub(super) fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    /// Asks a server and waits; an answer of another code than 0 is an error.
    ///
    /// # Errors
    /// [`ClientError::Invoke`], [`ClientError::Response`].
    pub fn call(&self, address: &str, code: i32, header: &dyn CustomHeader, body: Body) -> Result<OwnedCommand, ClientError> {
        self.call_within(address, code, header, body, self.config.timeout)
    }

    /// As [`Instance::call`], with a time of its own.
    ///
    /// # Errors
    /// As [`Instance::call`].
    pub fn call_within(
        &self, address: &str, code: i32, header: &dyn CustomHeader, body: Body, timeout: Duration,
    ) -> Result<OwnedCommand, ClientError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(ClientError::Closed);
        }
        let answer = self.transport.invoke(address, code, header, body, timeout)?;
        succeeded(address, answer)
    }

    /// Asks the name servers, one after the other until one answers, beginning with the one that answered last.
    ///
    /// # Errors
    /// The last one's, when none answers; a refusal is an answer.
    pub fn call_namesrv(&self, code: i32, header: &dyn CustomHeader, body: Vec<u8>) -> Result<OwnedCommand, ClientError> {
        let first = self.namesrv_at.load(Ordering::Relaxed);
        let mut last = ClientError::Closed;
        for step in 0..self.config.namesrv.len() {
            let at = (first + step) % self.config.namesrv.len();
            match self.call(&self.config.namesrv[at], code, header, Body::Owned(body.clone())) {
                Err(ClientError::Invoke(error)) => last = ClientError::Invoke(error),
                answered => {
                    self.namesrv_at.store(at, Ordering::Relaxed);
                    return answered;
                }
            }
        }
        Err(last)
    }

    /// Asks the name server where a topic is, without looking at what is known.
    ///
    /// # Errors
    /// Code 17 when it does not know the topic.
    pub fn fetch_route(&self, topic: &str) -> Result<TopicRouteData, ClientError> {
        let answer = self.call_namesrv(request::GET_ROUTEINFO_BY_TOPIC, &[("topic", topic)], Vec::new())?;
        let parsed = std::str::from_utf8(answer.view().body).map_err(|error| error.to_string()).and_then(TopicRouteData::from_json);
        parsed.map_err(|what| ClientError::Answer("the name server".to_owned(), format!("route of {topic}: {what}")))
    }

    /// Looks the route up and remembers it; whether it changed.
    ///
    /// # Errors
    /// As [`Instance::fetch_route`]; the known route stays.
    pub fn refresh_route(&self, topic: &str) -> Result<bool, ClientError> {
        let data = self.fetch_route(topic)?;
        Ok(self.routes.put(topic, TopicRoute::new(topic, data)))
    }

    /// The route of an existing topic, known or looked up.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] when no name server knows it.
    pub fn route(&self, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
        if let Some(route) = self.routes.get(topic) {
            return Ok(route);
        }
        match self.refresh_route(topic) {
            Ok(_) => {}
            Err(error) if error.code() == Some(response::TOPIC_NOT_EXIST) => {
                return Err(ClientError::NoRoute(topic.to_owned(), "the topic does not exist".to_owned()));
            }
            Err(error) => return Err(error),
        }
        self.routes.get(topic).ok_or_else(|| ClientError::NoRoute(topic.to_owned(), "the topic does not exist".to_owned()))
    }

    /// The route to send to a topic that may not exist yet: then that of the template topic TBW102, with 4 queues at most.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] when neither is known or nothing may be written.
    pub fn publish_route(&self, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
        let route = match self.route(topic) {
            Err(ClientError::NoRoute(..)) => Arc::new(self.template_route(topic)?),
            other => other?,
        };
        if route.publish.is_empty() {
            return Err(ClientError::NoRoute(
                topic.to_owned(),
                "none of its queues may be written (no master, or no permission)".to_owned(),
            ));
        }
        Ok(route)
    }

    /// Not remembered under the topic's name: the next send looks for the true route again until it is there.
    fn template_route(&self, topic: &str) -> Result<TopicRoute, ClientError> {
        match self.route(TBW102) {
            Ok(template) => {
                let route = TopicRoute::from_template(topic, template.data.clone(), DEFAULT_TOPIC_QUEUES);
                Ok(route)
            }
            Err(ClientError::NoRoute(..)) => Err(ClientError::NoRoute(
                topic.to_owned(),
                "the topic does not exist and brokers create none by themselves (autoCreateTopicEnable)".to_owned(),
            )),
            Err(error) => Err(error),
        }
    }

    /// Master of a broker name.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] when no route named it.
    pub fn master(&self, topic: &str, broker_name: &str) -> Result<String, ClientError> {
        if let Some(address) = self.routes.master(broker_name) {
            return Ok(address);
        }
        self.refresh_route(topic)?;
        self.routes.master(broker_name).ok_or_else(|| ClientError::NoRoute(topic.to_owned(), format!("broker {broker_name} has no master")))
    }

    /// Adds a producer group to the heartbeats.
    pub(super) fn register_producer(&self, group: &str) {
        *self.groups.producers.lock().entry(group.to_owned()).or_default() += 1;
        self.beat_soon();
    }

    /// Takes a producer group out of the heartbeats and, when it was the last of its name, tells the brokers.
    pub(super) fn unregister_producer(&self, group: &str) {
        let mut producers = self.groups.producers.lock();
        let Some(count) = producers.get_mut(group) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        producers.remove(group);
        drop(producers);
        self.unregister(group, "producerGroup");
    }

    /// Adds a consumer group.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] when this client has a consumer of that group already.
    pub(super) fn register_consumer(&self, group: &str, member: Arc<dyn GroupMember>) -> Result<(), ClientError> {
        let mut consumers = self.groups.consumers.lock();
        if consumers.contains_key(group) {
            return Err(ClientError::Invalid(format!(
                "this client has a consumer of group {group} already; use another client for a second one"
            )));
        }
        consumers.insert(group.to_owned(), member);
        Ok(())
    }

    /// Takes a consumer group out and tells the brokers.
    pub(super) fn unregister_consumer(&self, group: &str) {
        if self.groups.consumers.lock().remove(group).is_some() {
            self.unregister(group, "consumerGroup");
        }
    }

    fn unregister(&self, group: &str, kind: &str) {
        for address in self.routes.broker_addresses(true) {
            let header = [("clientID", self.client_id.as_str()), (kind, group)];
            if let Err(error) = self.call(&address, request::UNREGISTER_CLIENT, &header, Body::Empty) {
                log::debug!("unregistering failed: group={group} broker={address} error={error}");
            }
        }
    }

    /// Asks the `client` thread for a heartbeat.
    pub(super) fn beat_soon(&self) {
        let _ = self.beat.try_send(()); // full: one is due already
    }

    /// Tells that a broker was not reached: the routes are looked up again soon, it may be elsewhere now.
    pub(super) fn routes_are_stale(&self) {
        if !self.stale.swap(true, Ordering::AcqRel) {
            self.beat_soon();
        }
    }

    /// Sends a heartbeat to every known broker at once and waits for the answers; how many succeeded.
    pub fn heartbeat(&self) -> usize {
        let members: Vec<Arc<dyn GroupMember>> = self.groups.consumers.lock().values().cloned().collect();
        let data = HeartbeatData {
            client_id: self.client_id.clone(),
            producers: self.groups.producers.lock().keys().cloned().collect(),
            consumers: members.iter().map(|member| member.data()).collect(),
            fingerprint: 0,
            without_sub: false,
        };
        if data.producers.is_empty() && data.consumers.is_empty() || self.closed.load(Ordering::Acquire) {
            return 0;
        }
        let body = data.to_json();
        let addresses = self.routes.broker_addresses(!members.is_empty());
        let (done, answers) = bounded(addresses.len().max(1));
        for address in &addresses {
            let (done, name) = (done.clone(), address.clone());
            let callback = Box::new(move |answer: Result<OwnedCommand, InvokeError>| {
                let _ = done.send((name.clone(), answer.map_err(ClientError::from).and_then(|answer| succeeded(&name, answer))));
            });
            self.transport.invoke_async(address, request::HEART_BEAT, &(), body.clone().into(), self.config.timeout, callback);
        }
        drop(done);
        let mut beaten = 0;
        for (address, answer) in answers {
            match answer {
                Ok(_) => beaten += 1,
                Err(error) => log::warn!("heartbeat failed: broker={address} error={error}"),
            }
        }
        beaten
    }

    fn refresh_known_routes(&self) {
        for topic in self.routes.topics() {
            match self.refresh_route(&topic) {
                Ok(true) => {
                    log::info!("route changed: topic={topic}");
                    self.beat_soon(); // a new broker must learn of us
                    let members: Vec<Arc<dyn GroupMember>> = self.groups.consumers.lock().values().cloned().collect();
                    members.iter().for_each(|member| member.members_changed());
                }
                Ok(false) => {}
                Err(error) => log::debug!("route not refreshed: topic={topic} error={error}"),
            }
        }
    }

    /// Ends connections; calls fail with [`ClientError::Closed`] from here on. Twice is harmless.
    pub fn shutdown(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.transport.shutdown();
        }
        self.beat_soon();
        let task = self.task.lock().take();
        drop(task); // joins; from the thread itself it only lets go
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// An answer of code 0, else the error it tells of.
pub(super) fn succeeded(address: &str, answer: OwnedCommand) -> Result<OwnedCommand, ClientError> {
    let error = {
        let view = answer.view();
        (view.code != response::SUCCESS).then(|| ClientError::Response {
            address: address.to_owned(),
            code: view.code,
            remark: view.remark.as_deref().unwrap_or_default().to_owned(),
        })
    };
    error.map_or(Ok(answer), Err)
}

/// The `client` thread: heartbeats and routes, each in its interval and, when asked for, sooner.
fn run_tasks(instance: &Weak<Instance>, inbox: &Receiver<()>, route_interval: Duration, heartbeat_interval: Duration) {
    let mut routes = Turn::new(route_interval);
    let mut beats = Turn::new(heartbeat_interval);
    loop {
        let asked = match inbox.recv_deadline(routes.next.min(beats.next)) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(instance) = instance.upgrade().filter(|instance| !instance.closed.load(Ordering::Acquire)) else { return };
        if asked {
            beats.sooner();
            if instance.stale.load(Ordering::Acquire) {
                routes.sooner();
            }
        }
        if routes.is_due() {
            instance.stale.store(false, Ordering::Release);
            instance.refresh_known_routes();
            routes.done();
        }
        if beats.is_due() {
            instance.heartbeat();
            beats.done();
        }
    }
}

/// Something done in an interval.
struct Turn {
    interval: Duration,
    next: Instant,
    last: Option<Instant>,
}

impl Turn {
    fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now() + interval, last: None }
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Not in its time but as soon as the gap allows.
    fn sooner(&mut self) {
        self.next = self.last.map_or_else(Instant::now, |last| last + EXTRA_GAP).min(self.next);
    }

    fn done(&mut self) {
        let now = Instant::now();
        self.last = Some(now);
        self.next = now + self.interval;
    }
}

/// The address of this host that leads to `peer`; loopback when there is none. A connected UDP socket sends nothing.
fn local_ip(peer: &str) -> IpAddr {
    let probe = |peer: std::net::SocketAddr| {
        let any: std::net::SocketAddr = if peer.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(peer).ok()?;
        socket.local_addr().ok().map(|local| local.ip())
    };
    peer.to_socket_addrs().ok().and_then(|mut addresses| addresses.find_map(probe)).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use super::super::fake::{self, Fake};
    use super::*;

    #[test]
    fn an_unknown_topic_takes_the_template_and_is_looked_up_again() {
        let fake = Fake::new(|call| match (call.code, call.field("topic").as_str()) {
            (request::GET_ROUTEINFO_BY_TOPIC, TBW102) => fake::route(&[("a", "a:1")], 8),
            (request::GET_ROUTEINFO_BY_TOPIC, _) => fake::refusal(response::TOPIC_NOT_EXIST, "no such topic"),
            _ => fake::ok(),
        });
        let instance = fake.instance();
        assert_eq!(instance.publish_route("new").unwrap().publish.len(), 4);
        assert!(matches!(instance.route("new"), Err(ClientError::NoRoute(..))));
        assert_eq!(instance.publish_route("new").unwrap().publish.len(), 4);
        let asked = fake.calls().iter().filter(|call| call.field("topic") == "new").count();
        assert_eq!(asked, 3);
    }

    #[test]
    fn the_next_name_server_is_asked_when_one_is_gone() {
        let fake = Fake::new(|call| match call.address.as_str() {
            "ns1:1" => Err(InvokeError::Connect("ns1:1".into(), "refused".into())),
            _ => fake::route(&[("a", "a:1")], 2),
        });
        let instance = fake.instance_of("ns1:1;ns2:2");
        assert_eq!(instance.route("T").unwrap().publish.len(), 2);
        instance.refresh_route("T").unwrap();
        let order: Vec<String> = fake.calls().iter().map(|call| call.address.clone()).collect();
        assert_eq!(order, ["ns1:1", "ns2:2", "ns2:2"]);
    }

    #[test]
    fn heartbeats_reach_every_broker_and_count_successes() {
        let fake = Fake::new(|call| match (call.code, call.address.as_str()) {
            (request::GET_ROUTEINFO_BY_TOPIC, _) => fake::route(&[("a", "a:1"), ("b", "b:1")], 2),
            (_, "b:1") => fake::refusal(1, "no"),
            _ => fake::ok(),
        });
        let instance = fake.instance();
        instance.route("T").unwrap();
        assert_eq!(instance.heartbeat(), 0, "no group, no heartbeat");
        instance.register_producer("g");
        assert_eq!(instance.heartbeat(), 1);
        instance.unregister_producer("g");
        let calls = fake.calls();
        let unregistered: Vec<&fake::Call> = calls.iter().filter(|call| call.code == request::UNREGISTER_CLIENT).collect();
        assert_eq!(unregistered.len(), 2);
        assert_eq!(unregistered[0].field("producerGroup"), "g");
        assert_eq!(unregistered[0].field("clientID"), instance.client_id());
    }

    #[test]
    fn routes_are_looked_up_again_when_a_broker_is_gone() {
        let fake = Fake::new(|_| fake::route(&[("a", "a:1")], 1));
        let instance = fake.instance();
        instance.route("T").unwrap();
        instance.routes_are_stale();
        let deadline = Instant::now() + Duration::from_secs(20);
        while fake.calls_of(request::GET_ROUTEINFO_BY_TOPIC).len() < 2 {
            assert!(Instant::now() < deadline, "not looked up within 20 s, far less than the interval");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    #[test]
    fn after_shutdown_calls_fail_at_once() {
        let fake = Fake::new(|_| fake::ok());
        let instance = fake.instance();
        instance.shutdown();
        instance.shutdown();
        assert_eq!(instance.route("T").unwrap_err(), ClientError::Closed);
        assert_eq!(fake.calls().len(), 0);
    }
}
