//! The program under the names of the reference's scripts (links `mqnamesrv`, `mqbroker`): their options, their folders, and the texts
//! that people's scripts wait for.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

use crate::config::host;

use super::args::CommonArgs;
use super::plan::{self, Plan};
use super::ready::say;
use super::server::{Running, run_plan};
use super::{DONE, FAILED, clap_exit, usage};

/// Options of `mqbroker` and `mqnamesrv`.
#[derive(Debug, Parser)]
struct MqArgs {
    /// Properties file
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name servers, separated by ;
    #[arg(short = 'n', long = "namesrvAddr", value_name = "LIST")]
    namesrv: Option<String>,
    /// Print all configuration items and exit
    #[arg(short = 'p', long = "printConfigItem")]
    print: bool,
    /// Print the important configuration items and exit
    #[arg(short = 'm', long = "printImportantConfig")]
    print_important: bool,
}

/// Items that `-m` prints.
const IMPORTANT: [&str; 22] = [
    "bindAddress",
    "brokerClusterName",
    "brokerIP1",
    "brokerIP2",
    "brokerId",
    "brokerName",
    "brokerPermission",
    "brokerRole",
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "defaultTopicQueueNums",
    "deleteWhen",
    "fileReservedTime",
    "flushDiskType",
    "haListenPort",
    "listenPort",
    "maxMessageSize",
    "namesrvAddr",
    "rejectTransactionMessage",
    "slaveReadEnable",
    "storePathCommitLog",
    "storePathRootDir",
];

/// Runs as a script of the reference, when `program` is the name of one.
pub fn run(program: &str, words: &[OsString]) -> Option<i32> {
    match program {
        "mqbroker" => Some(run_role(true, words)),
        "mqnamesrv" => Some(run_role(false, words)),
        "mqadmin" | "mqcontroller" | "mqproxy" | "mqbrokercontainer" => Some(usage(&[format!("{program} comes with a later version")])),
        _ => None,
    }
}

fn run_role(is_broker: bool, words: &[OsString]) -> i32 {
    let args = match MqArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => return clap_exit(&error, FAILED),
    };
    let plan = plan::for_java(is_broker, args.config.as_deref(), args.namesrv.as_deref());
    if args.print || args.print_important {
        return print(plan, args.print);
    }
    run_plan(plan, &CommonArgs::default(), announce)
}

fn print(plan: Result<Plan, Vec<String>>, everything: bool) -> i32 {
    let plan = match plan {
        Ok(plan) => plan,
        Err(lines) => return usage(&lines),
    };
    let broker = plan.broker.map(|config| config.all);
    let all = broker.or_else(|| plan.namesrv.map(|config| config.all)).unwrap_or_default();
    for (key, value) in all.iter().filter(|(key, _)| everything || IMPORTANT.contains(&key.as_str())) {
        say(&format!("{key}={value}"));
    }
    DONE
}

/// Scripts wait for "boot success".
fn announce(running: &Running) {
    if let Some((name, address, name_servers)) = running.broker_identity() {
        let told = told(address);
        let registered = if name_servers.is_empty() { String::new() } else { format!(" and name server is {}", name_servers.join(";")) };
        say(&format!("The broker[{name}, {told}] boot success. serializeType=JSON{registered}"));
    } else if let Some(address) = running.namesrv_address() {
        say(&format!("The Name Server boot success. serializeType=JSON, address {address}"));
    }
}

fn told(address: SocketAddr) -> SocketAddr {
    match host::first_address() {
        Some(first) if address.ip().is_unspecified() => SocketAddr::new(first.into(), address.port()),
        _ => address,
    }
}
