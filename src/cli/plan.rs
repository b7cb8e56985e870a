//! From options and files to configurations: what is to be started. Nothing is started or created here, and every error is found.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::config::broker::BrokerConfig;
use crate::config::host;
use crate::config::namesrv::NamesrvConfig;
use crate::config::raw::{RawConfig, Source};
use crate::config::resolve::{DEFAULT_NAMESRV_PORT, Resolver, parse_name_servers};

use super::args::{BrokerArgs, BrokerOptions, CommonArgs, NamesrvArgs, ServerArgs};

/// Where data goes when nothing says otherwise.
const DEFAULT_STORE: &str = "petrel-data";

/// What is to be started.
#[derive(Debug)]
pub struct Plan {
    /// A name server.
    pub namesrv: Option<NamesrvConfig>,
    /// A broker.
    pub broker: Option<BrokerConfig>,
    /// The data go into a temporary folder: [`Plan::place`] before the start.
    pub ephemeral: bool,
    /// For the log, once it is there.
    pub warnings: Vec<String>,
}

/// How the text and the options are to be understood.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    broker: bool,
    namesrv: bool,
    /// Called by a name of the reference's: its folders are where the reference has them.
    java: bool,
}

/// Plans `petrel server`.
///
/// # Errors
/// One line per error: wrong use.
pub fn for_server(args: &ServerArgs) -> Result<Plan, Vec<String>> {
    let namesrv_port = args.namesrv_port;
    Planner::new(&args.common, Manner { broker: true, namesrv: true, java: false })?.plan(&args.broker, namesrv_port, &environment)
}

/// Plans `petrel namesrv`.
///
/// # Errors
/// One line per error: wrong use.
pub fn for_namesrv(args: &NamesrvArgs) -> Result<Plan, Vec<String>> {
    let options = BrokerOptions { port: args.port, store: args.store.clone(), ..BrokerOptions::default() };
    Planner::new(&args.common, Manner { namesrv: true, ..Manner::default() })?.plan(&options, None, &environment)
}

/// Plans `petrel broker`.
///
/// # Errors
/// One line per error: wrong use.
pub fn for_broker(args: &BrokerArgs) -> Result<Plan, Vec<String>> {
    Planner::new(&args.common, Manner { broker: true, ..Manner::default() })?.plan(&args.broker, None, &environment)
}

/// Plans `mqbroker` and `mqnamesrv`.
///
/// # Errors
/// One line per error: wrong use.
pub fn for_java(is_broker: bool, config: Option<&Path>, namesrv: Option<&str>) -> Result<Plan, Vec<String>> {
    let common = CommonArgs { config: config.map(Path::to_owned), ..CommonArgs::default() };
    let options = BrokerOptions { namesrv: namesrv.map(str::to_owned).filter(|_| is_broker), ..BrokerOptions::default() };
    Planner::new(&common, Manner { broker: is_broker, namesrv: !is_broker, java: true })?.plan(&options, None, &environment)
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

struct Planner<'a> {
    common: &'a CommonArgs,
    manner: Manner,
    raw: RawConfig,
    errors: Vec<String>,
}

impl<'a> Planner<'a> {
    /// Reads the file and `--set`.
    fn new(common: &'a CommonArgs, manner: Manner) -> Result<Self, Vec<String>> {
        let mut this = Self { common, manner, raw: RawConfig::new(), errors: Vec::new() };
        if let Some(path) = &common.config {
            let read = this.raw.read_file(path);
            this.check(read);
        }
        for assignment in &common.set {
            let set = this.raw.set(assignment);
            this.check(set);
        }
        if let Some(address) = common.bind {
            this.put("bindAddress", &address.to_string(), "--bind");
        }
        if this.errors.is_empty() { Ok(this) } else { Err(this.errors) }
    }

    fn plan(
        mut self, options: &BrokerOptions, namesrv_port: Option<u16>, environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Plan, Vec<String>> {
        self.options(options);
        let home = environment("HOME").map(PathBuf::from);
        let mut raw = std::mem::take(&mut self.raw);
        let root = self.store_root(Resolver::new(&raw, environment).store_root(), options.ephemeral, home.as_deref());
        if self.manner.broker && self.common.config.is_none() && !options.ephemeral {
            let added = add_changed_settings(&mut raw, &root);
            self.check(added);
        }
        let mut resolver = Resolver::new(&raw, environment);
        let _ = resolver.store_root(); // read above; marks its key as used
        let broker = self.manner.broker.then(|| resolver.broker(&root));
        let namesrv = self.manner.namesrv.then(|| {
            let folder = if self.manner.java { home.clone().unwrap_or_default() } else { root.clone() }.join("namesrv");
            resolver.namesrv(&folder, !self.manner.broker)
        });
        let findings = resolver.finish(self.common.strict);
        self.errors.extend(findings.errors);
        let advertised = options.advertise.as_deref().map(host::split).transpose();
        let advertised = advertised.unwrap_or_else(|why| {
            self.errors.push(format!("--advertise {why}"));
            None
        });
        if self.errors.is_empty() {
            self.errors.extend(findings.refusals);
        }
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        let mut plan = Plan { namesrv, broker, ephemeral: options.ephemeral, warnings: findings.warnings };
        if let (Some(broker), Some((host, port))) = (&mut plan.broker, advertised) {
            broker.all.insert("brokerIP1".to_owned(), host.clone());
            broker.broker_ip1 = Some(host);
            broker.advertised_port = port;
        }
        self.adjust(&mut plan, options, namesrv_port, &raw);
        Ok(plan)
    }

    /// Options that are keys.
    fn options(&mut self, options: &BrokerOptions) {
        if let Some(port) = options.port {
            self.put("listenPort", &port.to_string(), "--port");
        }
        if let Some(addresses) = &options.namesrv {
            match parse_name_servers(addresses) {
                Ok(list) if list.is_empty() => self.errors.push("--namesrv names no address".to_owned()),
                Ok(_) => self.put("namesrvAddr", addresses, "--namesrv"),
                Err(why) => self.errors.push(format!("--namesrv {why}")),
            }
        }
        if let Some(store) = &options.store {
            self.put("storePathRootDir", &store.display().to_string(), "--store");
        }
    }

    /// `--store` or its key; a Java file's or a Java name's own place; else a folder here.
    fn store_root(&self, given: Option<PathBuf>, ephemeral: bool, home: Option<&Path>) -> PathBuf {
        if ephemeral {
            return PathBuf::new();
        }
        let java = self.manner.broker && (self.manner.java || self.common.config.is_some());
        let default = match home.filter(|_| java) {
            Some(home) => home.join("store"),
            None => PathBuf::from(DEFAULT_STORE),
        };
        absolute(&given.unwrap_or(default))
    }

    /// What only the whole of the options decides.
    fn adjust(&self, plan: &mut Plan, options: &BrokerOptions, namesrv_port: Option<u16>, raw: &RawConfig) {
        let is_port_given = raw.get("listenPort").is_some();
        if let Some(broker) = &mut plan.broker {
            let root = absolute(&broker.store.root);
            broker.all.insert("storePathRootDir".to_owned(), root.display().to_string());
            broker.store.root = root;
            if let Some(path) = &self.common.config {
                broker.all.insert("brokerConfigPath".to_owned(), absolute(path).display().to_string());
            }
            if options.ephemeral && !is_port_given {
                broker.listen_port = 0;
                broker.all.insert("listenPort".to_owned(), "0".to_owned());
            }
        }
        if let Some(namesrv) = &mut plan.namesrv {
            if self.manner.broker {
                let free = options.port == Some(0) || options.ephemeral;
                namesrv.listen_port = namesrv_port.unwrap_or(if free { 0 } else { DEFAULT_NAMESRV_PORT });
                namesrv.tag = "ns".to_owned();
            }
            namesrv.all.insert("listenPort".to_owned(), namesrv.listen_port.to_string());
            let is_path_given = raw.get("configStorePath").is_some();
            if let Some(path) = self.common.config.as_ref().filter(|_| self.manner.java && !is_path_given) {
                namesrv.config_store_path.clone_from(path);
            }
        }
    }

    fn put(&mut self, key: &str, value: &str, option: &'static str) {
        self.raw.put(key, value, Source::Option(option));
    }

    fn check(&mut self, result: Result<(), String>) {
        self.errors.extend(result.err());
    }
}

impl Plan {
    /// Puts everything that is written into `root`.
    pub fn place(&mut self, root: &Path) {
        if let Some(broker) = &mut self.broker {
            broker.store.root = root.to_owned();
            broker.store.commit_log_path = None;
            broker.store.more_commit_log_paths.clear();
            broker.store.read_only_commit_log_paths.clear();
            broker.all.insert("storePathRootDir".to_owned(), root.display().to_string());
            broker.all.remove("storePathCommitLog");
            broker.all.remove("readOnlyCommitLogStorePaths");
        }
        if let Some(namesrv) = &mut self.namesrv {
            let placed = NamesrvConfig::new(root);
            namesrv.kv_config_path = placed.kv_config_path;
            namesrv.config_store_path = placed.config_store_path;
        }
    }

    /// Makes the broker register with the name server of the same process, which listens on `port`, before all others. Clients of that
    /// name server are told the address by which they reached it, unless one was set.
    pub fn join(broker: &mut BrokerConfig, bind: IpAddr, port: u16, token: &str) {
        let own = host::join(&loopback_of(bind).to_string(), port);
        let is_own = |address: &String| *address == own || is_this_host(address, bind, port);
        broker.namesrv_addresses.retain(|address| !is_own(address));
        broker.namesrv_addresses.insert(0, own);
        broker.all.insert("namesrvAddr".to_owned(), broker.namesrv_addresses.join(";"));
        if broker.broker_ip1.is_none() {
            broker.own_name_server_token = Some(token.to_owned());
        }
    }
}

/// The address by which this process reaches a listener of its own.
pub fn loopback_of(bind: IpAddr) -> IpAddr {
    match bind {
        IpAddr::V4(address) if address.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

/// Whether an address plainly means the listener on `bind` and `port`.
fn is_this_host(address: &str, bind: IpAddr, port: u16) -> bool {
    let Ok((host, Some(its_port))) = host::split(address) else { return false };
    let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified() || ip == bind);
    its_port == port && is_local
}

/// Without a file of its own a broker keeps what administrators change in its store: it is in effect where nothing else is given.
fn add_changed_settings(raw: &mut RawConfig, root: &Path) -> Result<(), String> {
    let path = root.join("config/broker.properties");
    if !path.is_file() {
        return Ok(());
    }
    let mut changed = RawConfig::new();
    changed.read_file(&path)?;
    for given in changed.winners() {
        if given.key != "storePathRootDir" && raw.get(&given.key).is_none() {
            raw.put(&given.key, &given.value, given.source.clone());
        }
    }
    Ok(())
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests;
