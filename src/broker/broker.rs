//! Builds a broker, starts it, stops it in order.
//!
//! [`Broker::start`] goes bottom up, [`Broker::shutdown`] top down; dropping a broker stops it. Sockets are bound first, so that a
//! port that is taken leaves the store untouched; they accept last.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::common::topic::{DataVersion, PERM_READ_WRITE, TopicConfig};
use crate::common::unique_id::UniqueIds;
use crate::config::broker::BrokerConfig;
use crate::config::config_file::MetadataWriter;
use crate::config::host;
use crate::net::server::{Listener, Server, ServerConfig};
use crate::net::service::Port;
use crate::runtime::clock::Clock;
use crate::runtime::port_holder;
use crate::store::MessageStore;
use crate::store::arrival::{Arrival, ArrivalListener};
use crate::store::fs::{Fs, RealFs};

use super::clients::ClientTable;
use super::context::BrokerContext;
use super::delay::DelayLevels;
use super::deletion::Deletions;
use super::expressions::ExpressionCache;
use super::filter_data::FilterDataTable;
use super::group::GroupTable;
use super::hold::{Hold, Waiting};
use super::lock::QueueLocks;
use super::offset::OffsetTable;
use super::out_api::{Registered, Registration};
use super::processor::parked::ParkedLanes;
use super::processor::{BrokerService, pull, stored_properties};
use super::settings::Settings;
use super::stats::BrokerStats;
use super::tasks::Tasks;
use super::topic::TopicTable;
use super::transaction::Transactions;

/// Distance of the VIP port below the listening port.
const FAST_PORT_DISTANCE: u16 = 2;
/// Distance of the HA port above the listening port.
const HA_PORT_DISTANCE: u16 = 1;
/// Free ports that are tried until one has free neighbours.
const PORT_ATTEMPTS: usize = 200;
/// Time for each step of an orderly stop, when the broker is dropped.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// A running broker. Dropping it stops it.
pub struct Broker {
    context: Arc<BrokerContext>,
    writer: MetadataWriter,
    server: Server,
    tasks: Tasks,
    address: SocketAddr,
    stopped: Mutex<Option<Vec<String>>>,
}

/// Why a broker does not start: one line for a person.
#[derive(Debug)]
pub struct StartError(pub String);

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl StartError {
    fn of(what: &str, why: impl std::fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

impl Broker {
    /// Opens the store, recovers, listens, registers (in the background; see [`Broker::register_now`]).
    ///
    /// # Errors
    /// [`StartError`]: port taken, store locked or not writable, metadata damaged.
    pub fn start(config: BrokerConfig, clock: Clock) -> Result<Self, StartError> {
        Self::start_on(config, clock, RealFs::shared())
    }

    /// As [`Broker::start`], with the log on a file system of one's own: tests make it fail.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn start_on(config: BrokerConfig, clock: Clock, fs: Arc<dyn Fs>) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let listeners = bind(&config)?;
        let address = listeners[0].address();
        let store = MessageStore::open(config.store.clone(), fs, clock.clone()).map_err(|why| StartError(why.to_string()))?;
        let writer = MetadataWriter::start(&config.store.tag).map_err(|why| StartError::of("thread not started", why))?;
        let opened = Opened { config, clock, store: Arc::clone(&store), writer: writer.clone(), address };
        match opened.serve(listeners) {
            Ok((context, server, tasks)) => Ok(Self { context, writer, server, tasks, address, stopped: Mutex::new(None) }),
            Err(error) => {
                writer.shutdown();
                store.shutdown(STOP_DEADLINE);
                Err(error)
            }
        }
    }

    /// Address listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address that messages carry as store host and that clients are told.
    pub fn store_host(&self) -> SocketAddr {
        self.context.store_host
    }

    /// Name of this broker.
    pub fn name(&self) -> &str {
        &self.context.config.broker_name
    }

    /// Registers with all name servers and waits; how many answered.
    pub fn register_now(&self) -> usize {
        self.context.registration.register_all()
    }

    /// Stops in order: leave the name servers, stop reading, answer held polls, stop the delay levels and the transaction checks, write metadata, flush and close
    /// the store, send the remaining answers; at most `deadline` for each step. Returns what did not finish. Twice is harmless.
    pub fn shutdown(&self, deadline: Duration) -> Vec<String> {
        let mut stopped = self.stopped.lock();
        if let Some(unfinished) = &*stopped {
            return unfinished.clone();
        }
        let context = &self.context;
        let mut unfinished = Vec::new();
        context.registration.unregister();
        self.server.stop_reading();
        context.sweep_filter_data();
        context.hold.shutdown();
        self.tasks.shutdown();
        context.transactions.shutdown();
        context.delay.shutdown(deadline);
        if let Err(why) = context.offsets.persist_and_wait() {
            unfinished.push(why);
        }
        let report = context.store.shutdown(deadline);
        if !report.clean {
            let behind = report.dispatch_behind_bytes;
            unfinished.push(format!("the store did not stop cleanly (dispatch {behind} bytes behind): the next start recovers"));
        }
        // Under ASYNC_FLUSH only the store's own stop made the last deliveries durable.
        context.delay.persist_and_wait();
        context.stats.persist();
        self.server.shutdown(deadline);
        self.writer.shutdown();
        *stopped = Some(unfinished.clone());
        unfinished
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        for what in self.shutdown(STOP_DEADLINE) {
            log::error!("broker stopped, but: {what}");
        }
    }
}

/// A broker whose store is open.
struct Opened {
    config: Arc<BrokerConfig>,
    clock: Clock,
    store: Arc<MessageStore>,
    writer: MetadataWriter,
    address: SocketAddr,
}

impl Opened {
    /// Loads the tables, starts the services, accepts.
    fn serve(self, listeners: Vec<Listener>) -> Result<(Arc<BrokerContext>, Server, Tasks), StartError> {
        let context = self.context()?;
        let thread = |why| StartError::of("thread not started", why);
        let tag = &self.config.store.tag;
        let weak = Arc::downgrade(&context);
        let execute = move |waiting: Waiting| {
            if let Some(context) = weak.upgrade() {
                pull::execute_held(&context, waiting);
            }
        };
        context.hold.start(tag, self.clock.clone(), execute).map_err(thread)?;
        context.store.report_deletions(Arc::new(Deletions(Arc::downgrade(&context))));
        context.store.serve(Arc::new(Arrivals { hold: Arc::clone(&context.hold), delay: Arc::clone(&context.delay) }));
        let started = self.start_threads(&context, listeners);
        if started.is_err() {
            context.registration.unregister();
            context.hold.shutdown();
            context.transactions.shutdown();
            context.delay.shutdown(STOP_DEADLINE);
        }
        let (server, tasks) = started?;
        Ok((context, server, tasks))
    }

    fn start_threads(&self, context: &Arc<BrokerContext>, listeners: Vec<Listener>) -> Result<(Server, Tasks), StartError> {
        let thread = |why| StartError::of("thread not started", why);
        context.delay.start(Arc::clone(context)).map_err(thread)?;
        context.transactions.start(Arc::clone(context)).map_err(thread)?;
        let tasks = Tasks::start(Arc::clone(context)).map_err(thread)?;
        let service = Arc::new(BrokerService::new(Arc::clone(context)));
        let server =
            Server::start(server_config(&self.config), listeners, service).map_err(|why| StartError::of("server not started", why));
        let server = match server {
            Ok(server) => server,
            Err(error) => {
                tasks.shutdown();
                return Err(error);
            }
        };
        let ha_port = self.config.ha_listen_port.unwrap_or_else(|| self.address.port().saturating_add(HA_PORT_DISTANCE));
        let registered = Arc::new(Registrant { context: Arc::downgrade(context) });
        if let Err(why) = context.registration.start(context.store_host.port(), ha_port, registered) {
            server.shutdown(STOP_DEADLINE);
            tasks.shutdown();
            return Err(thread(why));
        }
        Ok((server, tasks))
    }

    fn context(&self) -> Result<Arc<BrokerContext>, StartError> {
        let config = &self.config;
        let now_ms = self.clock.now_ms();
        let damaged = |why: std::io::Error| StartError(why.to_string());
        let store_host = store_host(config, self.address)?;
        let topics = TopicTable::load(config, self.writer.clone(), now_ms).map_err(damaged)?;
        let groups = GroupTable::load(config, self.writer.clone(), now_ms).map_err(damaged)?;
        let offsets = OffsetTable::load(config, self.writer.clone()).map_err(damaged)?;
        let delay = DelayLevels::load(config, Arc::clone(&self.store), self.writer.clone()).map_err(damaged)?;
        offsets.report_ahead(|topic, queue_id| self.store.queue_bounds(topic, queue_id).1);
        let transactions = Transactions::load(&self.store, &offsets);
        let stats = BrokerStats::load(config, self.writer.clone(), now_ms);
        let registration = Registration::new(config, self.clock.clone());
        Ok(Arc::new_cyclic(|weak| BrokerContext {
            clients: ClientTable::new(wants_notification(weak.clone())),
            clock: self.clock.clone(),
            store: Arc::clone(&self.store),
            topics,
            groups,
            offsets,
            expressions: ExpressionCache::default(),
            filter_data: FilterDataTable::load(config, self.writer.clone(), now_ms),
            locks: QueueLocks::default(),
            hold: Hold::new(),
            delay,
            transactions,
            settings: Settings::new(config, now_ms),
            stats,
            registration,
            store_host,
            boot_ms: now_ms,
            unique_ids: UniqueIds::new(store_host.ip(), std::process::id(), fastrand::u32(..)),
            parked_lanes: ParkedLanes::default(),
            property_additions: stored_properties::additions(config),
            config: Arc::clone(config),
        }))
    }
}

/// Whether a group's clients are told when the group changes (request 40).
fn wants_notification(context: std::sync::Weak<BrokerContext>) -> Box<dyn Fn(&str) -> bool + Send + Sync> {
    Box::new(move |group| {
        let Some(context) = context.upgrade() else { return false };
        context.config.notify_consumer_ids_changed
            && context.groups.get(group).is_none_or(|config| config.notify_consumer_ids_changed_enable)
    })
}

/// Whom the dispatcher tells.
struct Arrivals {
    hold: Arc<Hold>,
    delay: Arc<DelayLevels>,
}

impl ArrivalListener for Arrivals {
    fn arrived(&self, arrival: &Arrival<'_>) {
        self.delay.arrived(arrival);
        self.hold.arrived(arrival);
    }

    fn round_done(&self) {
        self.hold.round_done();
    }
}

/// What the name servers are told of a broker.
struct Registrant {
    context: std::sync::Weak<BrokerContext>,
}

impl Registered for Registrant {
    fn topics(&self) -> (Vec<Arc<TopicConfig>>, DataVersion) {
        let Some(context) = self.context.upgrade() else { return Default::default() };
        let permission = context.settings.broker_permission();
        let version = context.topics.data_version(); // before the topics: a change in between is told again
        let limited = |topic: Arc<TopicConfig>| {
            // A broker that may be read and written leaves the bit of inheritance alone, as the reference does.
            if permission & PERM_READ_WRITE == PERM_READ_WRITE || topic.perm & permission == topic.perm {
                return topic;
            }
            Arc::new(TopicConfig { perm: topic.perm & permission, ..TopicConfig::clone(&topic) })
        };
        (context.topics.all().into_iter().map(limited).collect(), version)
    }

    fn order_topics(&self, topics: &[String]) {
        if let Some(context) = self.context.upgrade() {
            context.topics.mark_ordered(topics, context.clock.now_ms());
        }
    }
}

fn server_config(config: &BrokerConfig) -> ServerConfig {
    let defaults = ServerConfig::default();
    ServerConfig {
        tag: config.store.tag.clone(),
        net_threads: config.net_threads.unwrap_or(defaults.net_threads).max(1),
        work_threads: config.work_threads.unwrap_or(defaults.work_threads).max(1),
        idle: Duration::from_secs(config.idle_seconds.max(1)),
        ..defaults
    }
}

/// Binds the listening port and the VIP port below it.
fn bind(config: &BrokerConfig) -> Result<Vec<Listener>, StartError> {
    if config.listen_port == 0 {
        return bind_free(config.bind_address);
    }
    let main = bind_at(config.bind_address, config.listen_port, Port::Main)?;
    let Some(fast) = config.listen_port.checked_sub(FAST_PORT_DISTANCE).filter(|port| *port > 0) else { return Ok(vec![main]) };
    Ok(vec![main, bind_at(config.bind_address, fast, Port::Fast)?])
}

/// Binds a free port whose neighbours for VIP and HA are free too.
fn bind_free(address: IpAddr) -> Result<Vec<Listener>, StartError> {
    let mut refused = None;
    for _ in 0..PORT_ATTEMPTS {
        let main = bind_at(address, 0, Port::Main)?;
        let port = main.address().port();
        let Some(ha) = port.checked_add(HA_PORT_DISTANCE) else { continue };
        match bind_at(address, port.saturating_sub(FAST_PORT_DISTANCE), Port::Fast) {
            Ok(fast) if std::net::TcpListener::bind((address, ha)).is_ok() => return Ok(vec![main, fast]),
            Ok(_) => {}
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| StartError(format!("no free port of {address} has free ports 2 below and 1 above it"))))
}

fn bind_at(address: IpAddr, port: u16, kind: Port) -> Result<Listener, StartError> {
    let address = SocketAddr::new(address, port);
    let key = if kind == Port::Fast { "the VIP port, listenPort - 2" } else { "listenPort" };
    Listener::bind(address, kind).map_err(|why| StartError(format!("{} ({key})", port_holder::bind_failure(address, &why))))
}

/// What messages carry as store host.
fn store_host(config: &BrokerConfig, listening: SocketAddr) -> Result<SocketAddr, StartError> {
    let port = config.advertised_port.unwrap_or(listening.port());
    let ip = match &config.broker_ip1 {
        Some(name) => resolve(name)?,
        None if !listening.ip().is_unspecified() => listening.ip(),
        None => host::first_address().unwrap_or(Ipv4Addr::LOCALHOST).into(),
    };
    Ok(SocketAddr::new(ip.to_canonical(), port))
}

/// The address of `brokerIP1`, which may be a name; IPv4 if it has both.
fn resolve(name: &str) -> Result<IpAddr, StartError> {
    let found: Vec<SocketAddr> =
        (name, 0).to_socket_addrs().map_err(|why| StartError(format!("brokerIP1 {name} does not resolve: {why}")))?.collect();
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    address.map(SocketAddr::ip).ok_or_else(|| StartError(format!("brokerIP1 {name} has no address")))
}

#[cfg(test)]
mod cases;
