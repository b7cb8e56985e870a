//! Runs a server: starts what a plan says, says that it serves, waits for a signal, stops in order.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use crate::broker::broker::Broker;
use crate::namesrv::server::Namesrv;
use crate::runtime::clock::Clock;

use super::args::CommonArgs;
use super::logging::Log;
use super::plan::{Plan, loopback_of};
use super::ready::{Ready, say};
use super::signals::Waiter;
use super::{DONE, FAILED, complain, usage};

/// How long the broker may take to reach the name server of its own process.
const JOIN_PATIENCE: Duration = Duration::from_secs(10);
/// How long each step of a stop may take.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Runs a role of ours until a signal stops it.
pub fn run(plan: Result<Plan, Vec<String>>, common: &CommonArgs, started: Instant) -> i32 {
    let announce = |running: &Running| {
        let line = running.ready(started.elapsed()).to_json();
        log::info!("serving: {line}");
        if common.ready_json {
            say(&line);
        }
    };
    run_plan(plan, common, announce)
}

/// Runs what a plan says; `announce` is called when it serves.
pub fn run_plan(plan: Result<Plan, Vec<String>>, common: &CommonArgs, announce: impl FnOnce(&Running)) -> i32 {
    let plan = match plan {
        Ok(plan) => plan,
        Err(lines) => return usage(&lines),
    };
    match serve(plan, common, announce) {
        Ok(()) => DONE,
        Err(line) => {
            complain(&line);
            FAILED
        }
    }
}

fn serve(plan: Plan, common: &CommonArgs, announce: impl FnOnce(&Running)) -> Result<(), String> {
    let log = Log::install(common)?;
    plan.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    raise_descriptor_limit();
    let waiter = Waiter::install().map_err(|error| format!("cannot take over signals: {error}"))?;
    let running = Running::start(plan)?;
    announce(&running);
    let signal = waiter.wait(|| log.reopen());
    log::info!("stopping: signal={signal}");
    let unfinished = running.stop();
    if unfinished.is_empty() {
        log::info!("stopped");
        return Ok(());
    }
    Err(format!("stopped, but not in order: {}", unfinished.join("; ")))
}

/// What runs. The order of the fields is that of the stop: the broker leaves the name server, the data go last.
pub struct Running {
    broker: Option<Broker>,
    namesrv: Option<Namesrv>,
    broker_name: Option<String>,
    store: Option<std::path::PathBuf>,
    name_servers: Vec<String>,
    ephemeral: Option<TempDir>,
}

impl Running {
    /// Starts everything; on return it serves, and the broker is in the route table of the name server beside it.
    fn start(mut plan: Plan) -> Result<Self, String> {
        let ephemeral = if plan.ephemeral { Some(temporary_folder(&mut plan)?) } else { None };
        let mut running = Self { broker: None, namesrv: None, broker_name: None, store: None, name_servers: Vec::new(), ephemeral };
        if let Some(mut config) = plan.namesrv.take() {
            config.answer_local_address = plan.broker.as_ref().is_some_and(|broker| broker.broker_ip1.is_none());
            running.namesrv = Some(Namesrv::start(config, Clock::System)?);
        }
        let Some(mut config) = plan.broker.take() else { return Ok(running) };
        if let Some(namesrv) = &running.namesrv {
            let address = namesrv.address();
            Plan::join(&mut config, address.ip(), address.port(), namesrv.own_broker_token());
        } else if config.namesrv_addresses.is_empty() {
            log::warn!("no name server is given (-n, NAMESRV_ADDR): the broker runs unregistered, clients find it by its address only");
        }
        running.broker_name = Some(config.broker_name.clone());
        running.store = Some(config.store.root.clone());
        running.name_servers.clone_from(&config.namesrv_addresses);
        let name = config.broker_name.clone();
        running.broker = Some(Broker::start(config, Clock::System).map_err(|error| error.to_string())?);
        if let Some(namesrv) = &running.namesrv
            && !namesrv.wait_for_broker(&name, JOIN_PATIENCE)
        {
            let address = namesrv.address();
            return Err(format!("the broker did not reach its own name server at {address} within {} s", JOIN_PATIENCE.as_secs()));
        }
        Ok(running)
    }

    /// What to say when it serves.
    pub fn ready(&self, after: Duration) -> Ready {
        let reached = |address: SocketAddr| SocketAddr::new(loopback_of(address.ip()), address.port());
        Ready {
            namesrv: self.namesrv.as_ref().map(|namesrv| reached(namesrv.address())),
            broker: self.broker.as_ref().map(|broker| reached(broker.address())),
            broker_name: self.broker_name.clone(),
            store: self.store.clone(),
            ..Ready::new(after)
        }
    }

    /// Where the name server listens.
    pub fn namesrv_address(&self) -> Option<SocketAddr> {
        self.namesrv.as_ref().map(Namesrv::address)
    }

    /// The broker's name, the address that clients are told, and its name servers.
    pub fn broker_identity(&self) -> Option<(&str, SocketAddr, &[String])> {
        let broker = self.broker.as_ref()?;
        Some((self.broker_name.as_deref()?, broker.address(), &self.name_servers))
    }

    fn stop(mut self) -> Vec<String> {
        let mut unfinished = Vec::new();
        if let Some(broker) = self.broker.take() {
            unfinished.extend(broker.shutdown(STOP_DEADLINE));
        }
        if let Some(namesrv) = self.namesrv.take() {
            namesrv.shutdown(STOP_DEADLINE);
        }
        if let Some(folder) = self.ephemeral.take() {
            let path = folder.path().display().to_string();
            if let Err(error) = folder.close() {
                unfinished.push(format!("the temporary folder {path} was not removed: {error}"));
            }
        }
        unfinished
    }
}

/// Takes as many descriptors as the system allows: each connection and each open file of the store is one, and the usual soft limit of
/// 1024 is meant for programs that call `select`.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        if let Err(error) = raised {
            log::warn!("the limit of open files stays as it is: limit={:?} error={error}", limit.current);
        }
    }
}

fn temporary_folder(plan: &mut Plan) -> Result<TempDir, String> {
    let place = std::env::temp_dir();
    let failed = |error: io::Error| format!("cannot make a temporary folder in {}: {error}", place.display());
    let folder = tempfile::Builder::new().prefix("petrel-").tempdir().map_err(failed)?;
    plan.place(folder.path());
    Ok(folder)
}
