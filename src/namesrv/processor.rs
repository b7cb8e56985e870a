//! What the name server answers. Works on values: a request and who asks; sockets are `server`'s business.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::common::topic::{TopicConfig, check_topic};
use crate::config::edit;
use crate::config::namesrv::NamesrvConfig;
use crate::config::raw::{RawConfig, Source};
use crate::config::resolve::Resolver;
use crate::net::connection::ConnectionId;
use crate::net::service::Placement;
use crate::remoting::body::namesrv::{kv_table_json, member_group_json};
use crate::remoting::body::register::{RegisterBrokerBody, body_crc32};
use crate::remoting::body::route::TopicRouteData;
use crate::remoting::body::topic::{data_version, topic_list_json, write_data_version};
use crate::remoting::code::{request, response};
use crate::remoting::command::{Body, Command};
use crate::remoting::ext::{FieldError, shorten};
use crate::remoting::fastjson;
use crate::remoting::header::namesrv::{BrokerIdentity, RegisterBrokerRequest, ZONE_MODE_FIELD, ZONE_NAME_FIELD, need_name};
use crate::runtime::clock::Clock;

use super::address::{BrokerAddress, Viewer};
use super::kv_config::{KvConfig, ORDER_TOPIC_CONFIG};
use super::notify::Notifier;
use super::route_table::{MinBrokerIdChange, Registered, Registration, RouteOptions, RouteTable};

/// First version (4.9.4) whose route reader takes standard JSON.
const STANDARD_JSON_VERSION: i32 = 401;
/// What Java's answer to an unknown topic adds.
const FAQ_LINE: &str = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.";
/// Keys of 318 that take effect without a restart.
const RUN_TIME_KEYS: [&str; 9] = [
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "deleteTopicWithBrokerRegistration",
    "enableAllTopicList",
    "enableTopicList",
    "supportActingMaster",
    "notifyMinBrokerIdChanged",
    "needWaitForService",
    "waitSecondsForService",
];

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Its connection.
    pub connection: ConnectionId,
    /// How it came.
    pub viewer: Viewer,
}

/// An answer.
#[derive(Debug, Default)]
pub struct Answer {
    /// Code.
    pub code: i32,
    /// Text, for errors and remarks.
    pub remark: Option<String>,
    /// Fields.
    pub header: Vec<(String, String)>,
    /// Body.
    pub body: Body,
}

impl Answer {
    fn body(body: String) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    fn field(name: &str, value: impl ToString) -> Self {
        Self { header: vec![(name.to_owned(), value.to_string())], ..Self::default() }
    }
}

/// A refused request: code and text.
#[derive(Debug)]
struct Refusal {
    code: i32,
    remark: String,
}

impl Refusal {
    fn new(code: i32, remark: impl Into<String>) -> Self {
        Self { code, remark: remark.into() }
    }
}

impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Self {
        Self::new(response::SYSTEM_ERROR, error.to_string())
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self { code: refusal.code, remark: Some(refusal.remark), ..Self::default() }
    }
}

/// A name server's state.
pub struct Processor {
    config: ArcSwap<NamesrvConfig>,
    /// Updates of the configuration, one after the other.
    updating: Mutex<()>,
    table: RwLock<RouteTable>,
    kv: KvConfig,
    time: Time,
    own_token: String,
    /// Counts registrations, for who waits for one. Taken before `table` when both are.
    registrations: Mutex<u64>,
    registered: Condvar,
    notifier: Notifier,
}

/// Time that does not jump: the table measures silences, and a clock that is set must not drop every broker.
struct Time {
    clock: Clock,
    started: Instant,
}

impl Time {
    fn now_ms(&self) -> i64 {
        match &self.clock {
            Clock::System => self.started.elapsed().as_millis() as i64,
            manual => manual.now_ms(),
        }
    }
}

/// Where requests of a code are handled: those that write a file on the pool.
pub fn placement(code: i32) -> Placement {
    use request as code_of;
    match code {
        code_of::PUT_KV_CONFIG | code_of::DELETE_KV_CONFIG | code_of::UPDATE_NAMESRV_CONFIG => Placement::Pool,
        code_of::GET_ROUTEINFO_BY_TOPIC
        | code_of::REGISTER_BROKER
        | code_of::UNREGISTER_BROKER
        | code_of::GET_BROKER_CLUSTER_INFO
        | code_of::GET_KV_CONFIG
        | code_of::GET_KVLIST_BY_NAMESPACE
        | code_of::WIPE_WRITE_PERM_OF_BROKER
        | code_of::ADD_WRITE_PERM_OF_BROKER
        | code_of::GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        | code_of::DELETE_TOPIC_IN_NAMESRV
        | code_of::REGISTER_TOPIC_IN_NAMESRV
        | code_of::GET_TOPICS_BY_CLUSTER
        | code_of::GET_SYSTEM_TOPIC_LIST_FROM_NS
        | code_of::GET_UNIT_TOPIC_LIST
        | code_of::GET_HAS_UNIT_SUB_TOPIC_LIST
        | code_of::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
        | code_of::GET_NAMESRV_CONFIG
        | code_of::QUERY_DATA_VERSION
        | code_of::GET_BROKER_MEMBER_GROUP
        | code_of::BROKER_HEARTBEAT => Placement::Inline,
        _ => Placement::Unknown,
    }
}

impl Processor {
    /// State with what the KV file holds.
    ///
    /// # Errors
    /// The KV file is unreadable: one line.
    pub fn new(config: NamesrvConfig, clock: Clock) -> Result<Self, String> {
        let kv = KvConfig::load(&config.kv_config_path).map_err(|error| format!("cannot read the KV configuration: {error}"))?;
        let notifier = Notifier::new(&config.tag);
        Ok(Self {
            config: ArcSwap::from_pointee(config),
            updating: Mutex::new(()),
            table: RwLock::default(),
            kv,
            time: Time { clock, started: Instant::now() },
            own_token: format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)),
            registrations: Mutex::new(0),
            registered: Condvar::new(),
            notifier,
        })
    }

    /// What the broker of this process registers with, so that it is known as such.
    pub fn own_token(&self) -> &str {
        &self.own_token
    }

    /// The configuration in effect.
    pub fn config(&self) -> Arc<NamesrvConfig> {
        self.config.load_full()
    }

    /// Whether a broker of this name is in the route table.
    pub fn knows_broker(&self, broker_name: &str) -> bool {
        self.table.read().knows_broker(broker_name)
    }

    /// Waits until a broker of this name is in the route table; false when it is not in time.
    pub fn wait_for_broker(&self, broker_name: &str, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut registrations = self.registrations.lock();
        while !self.knows_broker(broker_name) {
            if self.registered.wait_until(&mut registrations, deadline).timed_out() {
                return self.knows_broker(broker_name);
            }
        }
        true
    }

    /// A connection is gone.
    pub fn connection_closed(&self, connection: ConnectionId) {
        let changes = self.table.write().connection_closed(connection);
        self.tell(changes);
    }

    /// Drops brokers that were silent for too long.
    pub fn expire(&self) {
        let now_ms = self.time.now_ms();
        let dropped =
            |name: &str, address: &str| log::warn!("broker was silent for too long and is dropped: name={name} address={address}");
        let changes = self.table.write().expire(now_ms, dropped);
        self.tell(changes);
    }

    /// Stops what tells brokers of changes.
    pub fn shutdown(&self) {
        self.notifier.shutdown();
    }

    /// Answers a request.
    pub fn answer(&self, command: &Command<'_>, origin: Origin) -> Answer {
        self.process(command, origin).unwrap_or_else(Answer::from)
    }

    fn process(&self, command: &Command<'_>, origin: Origin) -> Result<Answer, Refusal> {
        let ext = &command.ext;
        match command.code {
            request::GET_ROUTEINFO_BY_TOPIC => self.route(command, origin),
            request::REGISTER_BROKER => self.register_broker(command, origin),
            request::UNREGISTER_BROKER => self.unregister_broker(command),
            request::QUERY_DATA_VERSION => self.query_data_version(command),
            request::BROKER_HEARTBEAT => self.broker_heartbeat(command),
            request::GET_BROKER_CLUSTER_INFO => Ok(Answer::body(self.table.read().cluster_info(origin.viewer).to_json())),
            request::GET_BROKER_MEMBER_GROUP => {
                let (cluster, name) = (need_name(ext, "clusterName")?, need_name(ext, "brokerName")?);
                Ok(Answer::body(member_group_json(&self.table.read().member_group(&cluster, &name, origin.viewer))))
            }
            request::WIPE_WRITE_PERM_OF_BROKER => {
                let name = need_name(ext, "brokerName")?;
                let count = self.table.write().wipe_write_perm(&name);
                log::info!("write permission wiped: broker={name} topics={count}");
                Ok(Answer::field("wipeTopicCount", count))
            }
            request::ADD_WRITE_PERM_OF_BROKER => {
                let name = need_name(ext, "brokerName")?;
                let count = self.table.write().add_write_perm(&name);
                log::info!("write permission added: broker={name} topics={count}");
                Ok(Answer::field("addTopicCount", count))
            }
            request::DELETE_TOPIC_IN_NAMESRV => {
                let topic = need_name(ext, "topic")?;
                let cluster = ext.text("clusterName").filter(|cluster| !cluster.is_empty());
                self.table.write().remove_topic(&topic, cluster.as_deref());
                Ok(Answer::default())
            }
            request::REGISTER_TOPIC_IN_NAMESRV => self.register_topic(command),
            request::PUT_KV_CONFIG => {
                let (namespace, key) = (ext.need_text("namespace")?, ext.need_text("key")?);
                self.kv.put(&namespace, &key, &ext.need_text("value")?).map_err(|error| kv_failure(&error))?;
                Ok(Answer::default())
            }
            request::GET_KV_CONFIG => {
                let (namespace, key) = (ext.need_text("namespace")?, ext.need_text("key")?);
                let missing = || Refusal::new(response::QUERY_NOT_FOUND, format!("No config item, Namespace: {namespace} Key: {key}"));
                self.kv.get(&namespace, &key).map(|value| Answer::field("value", value)).ok_or_else(missing)
            }
            request::DELETE_KV_CONFIG => {
                self.kv.delete(&ext.need_text("namespace")?, &ext.need_text("key")?).map_err(|error| kv_failure(&error))?;
                Ok(Answer::default())
            }
            request::GET_KVLIST_BY_NAMESPACE => {
                let namespace = ext.need_text("namespace")?;
                let missing = || Refusal::new(response::QUERY_NOT_FOUND, format!("No config item, Namespace: {namespace}"));
                self.kv_body(&namespace).map(Answer::body).ok_or_else(missing)
            }
            request::GET_NAMESRV_CONFIG => {
                let config = self.config.load();
                Ok(Answer::body(config.all.iter().map(|(key, value)| format!("{key}={value}\n")).collect()))
            }
            request::UPDATE_NAMESRV_CONFIG => self.update_config(command.body),
            _ => self.topic_list(command, origin),
        }
    }

    fn route(&self, command: &Command<'_>, origin: Origin) -> Result<Answer, Refusal> {
        let topic = command.ext.need_text("topic")?;
        let config = self.config.load();
        let waits = config.need_wait_for_service && self.time.started.elapsed() < Duration::from_secs(config.wait_seconds_for_service);
        if waits {
            return Err(Refusal::new(response::SYSTEM_ERROR, "name server not ready"));
        }
        let zone = command.ext.text(ZONE_NAME_FIELD).filter(|_| command.ext.bool(ZONE_MODE_FIELD) == Some(true));
        let options = RouteOptions { viewer: origin.viewer, acting_master: config.support_acting_master, zone: zone.as_deref() };
        let found = self.table.read().route(&topic, &options);
        let Some(mut route) = found else {
            let text = format!("No topic route info in name server for the topic: {topic}\n{FAQ_LINE}");
            return Err(Refusal::new(response::TOPIC_NOT_EXIST, text));
        };
        if config.order_message_enable {
            route.order_topic_conf = self.kv.get(ORDER_TOPIC_CONFIG, &topic).filter(|conf| is_order_conf(conf));
        }
        let wants_standard = command.version >= STANDARD_JSON_VERSION || command.ext.bool("acceptStandardJsonOnly") == Some(true);
        Ok(Answer::body(route.to_json(wants_standard && zone.is_none())))
    }

    fn register_broker(&self, command: &Command<'_>, origin: Origin) -> Result<Answer, Refusal> {
        let header = RegisterBrokerRequest::decode(&command.ext)?;
        check_address(&header.broker.broker_addr)?;
        let crc = body_crc32(command.body);
        if header.body_crc32 != 0 && header.body_crc32 != crc {
            let text = format!("crc32 not match: the header says {}, the body has {crc}", header.body_crc32);
            return Err(Refusal::new(response::SYSTEM_ERROR, text));
        }
        let mut body = RegisterBrokerBody::decode(command.body)
            .map_err(|why| Refusal::new(response::SYSTEM_ERROR, format!("register broker failed: {why}")))?;
        leave_out_illegal(&mut body.topics, &header.broker.broker_name);
        let config = self.config.load();
        let own = config.answer_local_address && header.own_token.as_deref() == Some(&*self.own_token);
        let registration = Registration {
            cluster: header.broker.cluster_name,
            broker_name: header.broker.broker_name,
            broker_id: header.broker.broker_id,
            address: BrokerAddress { text: header.broker.broker_addr, own },
            ha_address: header.ha_server_addr,
            zone: header.zone_name,
            timeout_ms: header.heartbeat_timeout_ms,
            enable_acting_master: header.enable_acting_master,
            full: header.full,
            topics: body.topics,
            version: body.data_version,
            has_mappings: body.has_mappings,
            connection: Some(origin.connection),
        };
        let outcome = self.table.write().register(&registration, config.delete_topic_with_registration, self.time.now_ms());
        let broker = || format!("name={} id={} address={}", registration.broker_name, registration.broker_id, registration.address.text);
        let (master, change) = match outcome {
            Registered::Accepted { is_new, master, change } => {
                if is_new {
                    log::info!("broker registered: {} topics={}", broker(), registration.topics.len());
                }
                (master, change)
            }
            Registered::Outdated => {
                log::warn!("registration ignored, another address holds the broker id with a newer state version: {}", broker());
                return Ok(Answer::default());
            }
            Registered::Incomplete => {
                let text = "register broker failed: the broker is unknown and names one topic only; it must register all first";
                return Err(Refusal::new(response::SYSTEM_ERROR, text));
            }
        };
        self.tell(change);
        self.announce();
        let mut answer = Answer::default();
        if let Some((address, ha_address)) = master {
            let ha_address = origin.viewer.translate(&ha_address, address.own);
            answer.header.push(("haServerAddr".to_owned(), ha_address));
            answer.header.push(("masterAddr".to_owned(), origin.viewer.address(&address)));
        }
        if config.return_order_topic_config {
            answer.body = self.kv_body(ORDER_TOPIC_CONFIG).map(Body::from).unwrap_or_default();
        }
        Ok(answer)
    }

    fn unregister_broker(&self, command: &Command<'_>) -> Result<Answer, Refusal> {
        let broker = BrokerIdentity::decode(&command.ext)?;
        let changes = self.table.write().unregister(&broker.broker_name, &broker.broker_addr);
        log::info!("broker unregistered: name={} id={} address={}", broker.broker_name, broker.broker_id, broker.broker_addr);
        self.tell(changes);
        Ok(Answer::default())
    }

    fn query_data_version(&self, command: &Command<'_>) -> Result<Answer, Refusal> {
        let broker = BrokerIdentity::decode(&command.ext)?;
        let value = if command.body.is_empty() { fastjson::Value::Null } else { parse_body(command.body)? };
        let told = data_version(Some(&value));
        let known = self.table.write().touch(&broker.broker_name, &broker.broker_addr, self.time.now_ms());
        let mut answer = Answer::field("changed", known != Some(told));
        if let Some(known) = known {
            let mut body = String::new();
            write_data_version(&mut body, &known);
            answer.body = body.into();
        }
        Ok(answer)
    }

    fn broker_heartbeat(&self, command: &Command<'_>) -> Result<Answer, Refusal> {
        let broker = BrokerIdentity::decode_without_id(&command.ext)?;
        self.table.write().touch(&broker.broker_name, &broker.broker_addr, self.time.now_ms());
        Ok(Answer::default())
    }

    fn register_topic(&self, command: &Command<'_>) -> Result<Answer, Refusal> {
        let topic = need_name(&command.ext, "topic")?;
        check_topic(&topic).map_err(|why| Refusal::new(response::SYSTEM_ERROR, why))?;
        let text = std::str::from_utf8(command.body).map_err(|error| Refusal::new(response::SYSTEM_ERROR, error.to_string()))?;
        if !text.is_empty() {
            let route = TopicRouteData::from_json(text).map_err(|why| Refusal::new(response::SYSTEM_ERROR, why))?;
            self.table.write().register_topic(&topic, &route.queue_datas, self.time.now_ms());
        }
        Ok(Answer::default())
    }

    fn topic_list(&self, command: &Command<'_>, origin: Origin) -> Result<Answer, Refusal> {
        let config = self.config.load();
        let is_all = command.code == request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER;
        if !(if is_all { config.enable_all_topic_list } else { config.enable_topic_list }) {
            return Err(Refusal::new(response::SYSTEM_ERROR, "disable"));
        }
        let table = self.table.read();
        let (unit, unit_sub) = (|flag: i32| flag & 1 != 0, |flag: i32| flag & 2 != 0);
        let body = match command.code {
            request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => topic_list_json(table.topics(), None),
            request::GET_TOPICS_BY_CLUSTER => topic_list_json(table.topics_of_cluster(&command.ext.need_text("cluster")?), None),
            request::GET_UNIT_TOPIC_LIST => topic_list_json(table.topics_by_flag(unit), None),
            request::GET_HAS_UNIT_SUB_TOPIC_LIST => topic_list_json(table.topics_by_flag(unit_sub), None),
            request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => {
                topic_list_json(table.topics_by_flag(|flag| unit_sub(flag) && !unit(flag)), None)
            }
            request::GET_SYSTEM_TOPIC_LIST_FROM_NS => {
                let (names, address) = table.system_topics(origin.viewer);
                topic_list_json(names, address.as_deref())
            }
            code => return Err(Refusal::new(response::REQUEST_CODE_NOT_SUPPORTED, format!(" request type {code} not supported"))),
        };
        Ok(Answer::body(body))
    }

    /// Changes keys at run time (318): all or nothing, and kept in the file.
    fn update_config(&self, body: &[u8]) -> Result<Answer, Refusal> {
        let _updating = self.updating.lock();
        let refuse = |text: String| Refusal::new(response::SYSTEM_ERROR, text);
        let mut update = RawConfig::new();
        update.read_request(body).map_err(|why| refuse(format!("string2Properties error: {why}")))?;
        let config = self.config.load_full();
        if update.winners().any(|given| config.config_black_list.contains(&given.key)) {
            return Err(Refusal::new(response::NO_PERMISSION, "Can not update config in black list."));
        }
        let changes: Vec<(String, String)> = update
            .winners()
            .filter(|given| config.all.get(&given.key).is_some_and(|value| *value != given.value))
            .map(|given| (given.key.clone(), given.value.clone()))
            .collect();
        if changes.is_empty() {
            return Ok(Answer::default());
        }
        let fresh = resolve_update(&config, &changes).map_err(refuse)?;
        let path = &config.config_store_path;
        let old = match std::fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(refuse(format!("{}: {error}", path.display()))),
        };
        let file = crate::config::config_file::ConfigFile::new(path);
        file.store(&edit::with_values(&old, &changes)).map_err(|error| refuse(error.to_string()))?;
        self.config.store(Arc::new(fresh));
        let later: Vec<&str> = changes.iter().map(|(key, _)| key.as_str()).filter(|key| !RUN_TIME_KEYS.contains(key)).collect();
        for (key, value) in &changes {
            log::info!("configuration changed: key={key} value={value}");
        }
        let remark = (!later.is_empty()).then(|| format!("takes effect at the next start: {}", later.join(", ")));
        Ok(Answer { remark, ..Answer::default() })
    }

    fn kv_body(&self, namespace: &str) -> Option<String> {
        let table = self.kv.namespace(namespace)?;
        Some(kv_table_json(table.iter().map(|(key, value)| (key.as_str(), value.as_str()))))
    }

    fn announce(&self) {
        *self.registrations.lock() += 1;
        self.registered.notify_all();
    }

    fn tell(&self, changes: impl IntoIterator<Item = MinBrokerIdChange>) {
        if self.config.load().notify_min_broker_id_changed {
            changes.into_iter().for_each(|change| self.notifier.tell(change));
        }
    }
}

/// The configuration with changed values. What needs a restart is changed in the table of all keys only.
fn resolve_update(config: &NamesrvConfig, changes: &[(String, String)]) -> Result<NamesrvConfig, String> {
    let mut raw = RawConfig::new();
    for (key, value) in &config.all {
        raw.put(key, value, Source::Request);
    }
    for (key, value) in changes {
        raw.put(key, value, Source::Request);
    }
    let no_environment = |_: &str| None;
    let mut resolver = Resolver::new(&raw, &no_environment);
    let fresh = resolver.namesrv(std::path::Path::new(""), true);
    let findings = resolver.finish(false);
    if let Some(problem) = findings.errors.first().or(findings.refusals.first()) {
        return Err(problem.clone());
    }
    Ok(NamesrvConfig {
        order_message_enable: fresh.order_message_enable,
        return_order_topic_config: fresh.return_order_topic_config,
        delete_topic_with_registration: fresh.delete_topic_with_registration,
        enable_all_topic_list: fresh.enable_all_topic_list,
        enable_topic_list: fresh.enable_topic_list,
        support_acting_master: fresh.support_acting_master,
        notify_min_broker_id_changed: fresh.notify_min_broker_id_changed,
        need_wait_for_service: fresh.need_wait_for_service,
        wait_seconds_for_service: fresh.wait_seconds_for_service,
        all: fresh.all,
        ..config.clone()
    })
}

/// Refuses an address that clients could not connect to, or that would break the route readers that cut JSON at commas.
fn check_address(address: &str) -> Result<(), Refusal> {
    let refuse = |rule: &str| {
        let address = shorten(address, 100);
        Refusal::new(response::SYSTEM_ERROR, format!("register broker failed: brokerAddr is {address:?}, expected host:port, {rule}"))
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(|| refuse("there is no colon"))?;
    if !port.bytes().all(|byte| byte.is_ascii_digit()) || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(refuse("the port a number from 1 to 65535"));
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let bare_ip = bare.split_once('%').map_or(bare, |(ip, _zone)| ip);
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_ipv6 = bare_ip.parse::<std::net::Ipv6Addr>().is_ok() && bare.chars().all(|c| is_name_char(c) || matches!(c, ':' | '%'));
    let is_name = (1..=253).contains(&host.len()) && host.chars().all(is_name_char);
    if is_ipv6 || is_name { Ok(()) } else { Err(refuse("the host a name of letters, digits, '.', '-' and '_' or an IP address")) }
}

/// Leaves out topics whose names no client may use: one such topic must not take its broker's others away.
fn leave_out_illegal(topics: &mut Vec<TopicConfig>, broker_name: &str) {
    let count = topics.len();
    let mut first = None;
    topics.retain(|topic| match check_topic(&topic.topic_name) {
        Ok(()) => true,
        Err(why) => {
            first.get_or_insert(why);
            false
        }
    });
    if let Some(why) = first {
        let (count, why) = (count - topics.len(), shorten(&why, 300));
        log::warn!("topics of a registration left out, their names are illegal: broker={broker_name} topics={count} first={why:?}");
    }
}

fn parse_body(body: &[u8]) -> Result<fastjson::Value, Refusal> {
    fastjson::parse(body).map_err(|why| Refusal::new(response::SYSTEM_ERROR, why))
}

fn kv_failure(error: &std::io::Error) -> Refusal {
    let what = if error.kind() == std::io::ErrorKind::InvalidInput { "refused" } else { "not written" };
    Refusal::new(response::SYSTEM_ERROR, format!("the KV configuration was {what}: {error}"))
}

/// Whether clients can read an order configuration: `broker:count` once or more. Anything else makes them throw.
fn is_order_conf(conf: &str) -> bool {
    let is_entry = |entry: &str| entry.split_once(':').is_some_and(|(broker, count)| !broker.is_empty() && count.parse::<u32>().is_ok());
    !conf.is_empty() && conf.split(';').all(is_entry)
}

#[cfg(test)]
mod tests;
