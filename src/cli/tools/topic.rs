//! `petrel topic`: lists, makes, shows and deletes topics.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde_json::{Value, json};

use crate::client::{Client, ClientError, Instance};
use crate::common::topic::{self, DLQ_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX};
use crate::remoting::body::route::TopicRouteData;
use crate::remoting::code::{request, response};
use crate::remoting::command::Body;
use crate::remoting::fastjson;

use super::{ClusterArgs, Failure, finish, show_log};

/// List, make, show and delete topics
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Topics with their brokers and queues
    List {
        /// The brokers' own topics too
        #[arg(short, long)]
        all: bool,
        /// JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Make a topic on every master, or change it
    Create(CreateArgs),
    /// Configuration, queues and offsets of a topic
    Show {
        /// Topic
        name: String,
        /// JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Delete a topic and its messages from all brokers and name servers
    Delete {
        /// Topic
        name: String,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
}

#[derive(Clone, Debug, clap::Args)]
struct CreateArgs {
    /// Topic
    name: String,
    /// Read and write queues on each broker
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    queues: u16,
    /// Queues that consumers see
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    read: Option<u16>,
    /// Queues that producers see
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    write: Option<u16>,
    /// r, w or rw
    #[arg(long, value_name = "PERM", default_value = "rw", value_parser = parse_perm)]
    perm: i32,
    /// Kind of messages
    #[arg(long = "type", value_name = "TYPE", value_parser = ["NORMAL", "FIFO", "DELAY", "TRANSACTION"], ignore_case = true)]
    kind: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the tool; its exit status.
pub fn run(args: Args) -> i32 {
    show_log(log::LevelFilter::Off); // the reason for a failure is told once, at the end
    finish(
        "topic",
        match args.command {
            Command::List { all, json, cluster } => cluster.client().map_err(Failure::from).and_then(|client| list(&client, all, json)),
            Command::Create(args) => create(&args),
            Command::Show { name, json, cluster } => cluster.client().map_err(Failure::from).and_then(|client| show(&client, &name, json)),
            Command::Delete { name, cluster } => delete(&cluster, &name),
        },
    )
}

fn parse_perm(text: &str) -> Result<i32, String> {
    match text.to_ascii_lowercase().as_str() {
        "r" => Ok(PERM_READ),
        "w" => Ok(PERM_WRITE),
        "rw" | "wr" => Ok(PERM_READ | PERM_WRITE),
        _ => Err("expected r, w or rw".to_owned()),
    }
}

fn perm_text(perm: i32) -> String {
    [(PERM_READ, 'r'), (PERM_WRITE, 'w'), (topic::PERM_INHERIT, 'x')]
        .iter()
        .filter(|(bit, _)| perm & bit != 0)
        .map(|(_, letter)| *letter)
        .collect()
}

/// Kind of a topic by its name: user, retry, dlq or system.
fn kind(name: &str, own_names: &[String]) -> &'static str {
    if name.starts_with(RETRY_PREFIX) {
        "retry"
    } else if name.starts_with(DLQ_PREFIX) {
        "dlq"
    } else if topic::is_system_topic(name)
        || name.starts_with("RMQ_SYS_")
        || own_names.iter().any(|own| own == name)
        || name.ends_with(topic::REPLY_SUFFIX)
    {
        "system"
    } else {
        "user"
    }
}

fn list(client: &Client, all: bool, as_json: bool) -> Result<(), Failure> {
    let instance = client.instance();
    let mut names = topic_list(instance.call_namesrv(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &(), Vec::new())?.view().body)?;
    names.sort();
    let own_names = topic_list(instance.call_namesrv(request::GET_SYSTEM_TOPIC_LIST_FROM_NS, &(), Vec::new())?.view().body)?;
    let mut rows = Vec::new();
    for name in names {
        let kind = kind(&name, &own_names);
        if kind == "system" && !all {
            continue;
        }
        let route = match instance.fetch_route(&name) {
            Ok(route) => route,
            Err(error) if error.code() == Some(response::TOPIC_NOT_EXIST) => continue, // deleted since
            Err(error) => return Err(error.into()),
        };
        rows.push((name, kind, route));
    }
    if as_json {
        let topics: Vec<Value> =
            rows.iter().map(|(name, kind, route)| json!({"topic": name, "kind": kind, "queues": queue_datas(route)})).collect();
        println!("{}", Value::from(topics));
        return Ok(());
    }
    let mut table = table(&["TOPIC", "KIND", "BROKER", "READ", "WRITE", "PERM"]);
    for (name, kind, route) in &rows {
        for queues in &route.queue_datas {
            let cells = [
                name.clone(),
                (*kind).to_owned(),
                queues.broker_name.clone(),
                queues.read_queue_nums.to_string(),
                queues.write_queue_nums.to_string(),
                perm_text(queues.perm),
            ];
            table.add_row(cells);
        }
    }
    println!("{table}");
    Ok(())
}

fn topic_list(body: &[u8]) -> Result<Vec<String>, Failure> {
    let value = fastjson::parse(body).map_err(|what| Failure::Failed(format!("the topic list is not understood: {what}")))?;
    let topics = value.get("topicList").map(fastjson::Value::elements).unwrap_or_default();
    Ok(topics.iter().filter_map(|name| name.as_text().map(std::borrow::Cow::into_owned)).collect())
}

fn queue_datas(route: &TopicRouteData) -> Vec<Value> {
    let of = |queues: &crate::remoting::body::route::QueueData| {
        json!({
            "brokerName": queues.broker_name,
            "readQueueNums": queues.read_queue_nums,
            "writeQueueNums": queues.write_queue_nums,
            "perm": queues.perm,
        })
    };
    route.queue_datas.iter().map(of).collect()
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(head.iter().copied());
    table
}

/// Masters of all brokers the name server knows: broker name and address.
fn masters(instance: &Instance) -> Result<BTreeMap<String, String>, Failure> {
    let answer = instance.call_namesrv(request::GET_BROKER_CLUSTER_INFO, &(), Vec::new())?;
    let not_understood = |what: String| Failure::Failed(format!("the cluster's description is not understood: {what}"));
    let value = fastjson::parse(answer.view().body).map_err(not_understood)?;
    let mut masters = BTreeMap::new();
    for (name, broker) in value.get("brokerAddrTable").map(fastjson::Value::members).unwrap_or_default() {
        let members = broker.get("brokerAddrs").map(fastjson::Value::members).unwrap_or_default();
        let master = members.iter().find(|(id, _)| id.as_i64() == Some(0)).and_then(|(_, address)| address.as_text());
        if let (Some(name), Some(address)) = (name.as_text(), master) {
            masters.insert(name.into_owned(), address.into_owned());
        }
    }
    if masters.is_empty() {
        return Err(Failure::Failed("the name server knows no master".to_owned()));
    }
    Ok(masters)
}

fn create(args: &CreateArgs) -> Result<(), Failure> {
    topic::check_topic(&args.name).map_err(Failure::Usage)?;
    let client = args.cluster.client()?;
    let (read, write) = (args.read.unwrap_or(args.queues).to_string(), args.write.unwrap_or(args.queues).to_string());
    let perm = args.perm.to_string();
    let attributes = args.kind.as_ref().map(|kind| format!("+message.type={}", kind.to_ascii_uppercase())).unwrap_or_default();
    let mut header = vec![
        ("topic", args.name.as_str()),
        ("defaultTopic", topic::TBW102),
        ("readQueueNums", read.as_str()),
        ("writeQueueNums", write.as_str()),
        ("perm", perm.as_str()),
        ("topicFilterType", "SINGLE_TAG"),
        ("topicSysFlag", "0"),
        ("order", "false"),
    ];
    if !attributes.is_empty() {
        header.push(("attributes", attributes.as_str()));
    }
    let header: Vec<(String, String)> = header.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    on_all(&masters(client.instance())?, |address| {
        client.instance().call(address, request::UPDATE_AND_CREATE_TOPIC, &header, Body::Empty).map(|_| ())
    })
}

/// Does something on every broker; all of them are tried, each failure is told.
fn on_all(brokers: &BTreeMap<String, String>, act: impl Fn(&str) -> Result<(), ClientError>) -> Result<(), Failure> {
    let failures: Vec<String> =
        brokers.iter().filter_map(|(name, address)| act(address).err().map(|error| format!("broker {name}: {error}"))).collect();
    if failures.is_empty() { Ok(()) } else { Err(Failure::Failed(failures.join("; "))) }
}

fn delete(cluster: &ClusterArgs, name: &str) -> Result<(), Failure> {
    let client = cluster.client()?;
    let instance = client.instance();
    let route = match instance.fetch_route(name) {
        Err(error) if error.code() == Some(response::TOPIC_NOT_EXIST) => {
            return Err(Failure::Failed(format!("topic {name} does not exist")));
        }
        other => other?,
    };
    let of_topic: BTreeMap<String, String> = route
        .broker_datas
        .iter()
        .filter_map(|broker| broker.broker_addrs.get(&0).map(|address| (broker.broker_name.clone(), address.clone())))
        .collect();
    on_all(&of_topic, |address| instance.call(address, request::DELETE_TOPIC_IN_BROKER, &[("topic", name)], Body::Empty).map(|_| ()))?;
    let namesrvs = instance.config().namesrv.iter().map(|address| (address.clone(), address.clone())).collect();
    on_all(&namesrvs, |address| instance.call(address, request::DELETE_TOPIC_IN_NAMESRV, &[("topic", name)], Body::Empty).map(|_| ()))
}

/// Offsets of one queue.
struct QueueState {
    broker_name: String,
    queue_id: i64,
    min_offset: i64,
    max_offset: i64,
    last_update_ms: i64,
}

fn show(client: &Client, name: &str, as_json: bool) -> Result<(), Failure> {
    let instance = client.instance();
    let route = match instance.fetch_route(name) {
        Err(error) if error.code() == Some(response::TOPIC_NOT_EXIST) => {
            return Err(Failure::Failed(format!("topic {name} does not exist")));
        }
        other => other?,
    };
    let mut brokers = Vec::new();
    let mut queues = Vec::new();
    for broker in &route.broker_datas {
        let Some(address) = broker.broker_addrs.get(&0) else { continue };
        let config = instance.call(address, request::GET_TOPIC_CONFIG, &[("topic", name)], Body::Empty)?;
        let config = read(address, config.view().body)?;
        let stats = instance.call(address, request::GET_TOPIC_STATS_INFO, &[("topic", name)], Body::Empty)?;
        queues.extend(queue_states(&read(address, stats.view().body)?));
        brokers.push((broker.broker_name.clone(), address.clone(), config));
    }
    queues.sort_by(|a, b| (&a.broker_name, a.queue_id).cmp(&(&b.broker_name, b.queue_id)));
    if as_json {
        show_json(name, &brokers, &queues)
    } else {
        show_tables(name, &brokers, &queues)
    }
    Ok(())
}

fn read(address: &str, body: &[u8]) -> Result<fastjson::Value, Failure> {
    fastjson::parse(body).map_err(|what| Failure::Failed(format!("answer of {address} is not understood: {what}")))
}

fn queue_states(stats: &fastjson::Value) -> Vec<QueueState> {
    let number = |value: &fastjson::Value, name| value.get(name).and_then(fastjson::Value::as_i64).unwrap_or(0);
    let entries = stats.get("offsetTable").map(fastjson::Value::members).unwrap_or_default();
    let of = |(queue, offsets): &(fastjson::Value, fastjson::Value)| QueueState {
        broker_name: queue.get("brokerName").and_then(fastjson::Value::as_text).unwrap_or_default().into_owned(),
        queue_id: number(queue, "queueId"),
        min_offset: number(offsets, "minOffset"),
        max_offset: number(offsets, "maxOffset"),
        last_update_ms: number(offsets, "lastUpdateTimestamp"),
    };
    entries.iter().map(of).collect()
}

/// A topic's configuration as a broker answers it: the member `topicConfig` (351), or the configuration itself.
fn config_member<'a>(config: &'a fastjson::Value, name: &str) -> Option<&'a fastjson::Value> {
    config.get("topicConfig").unwrap_or(config).get(name)
}

fn config_number(config: &fastjson::Value, name: &str) -> i64 {
    config_member(config, name).and_then(fastjson::Value::as_i64).unwrap_or(0)
}

fn show_json(name: &str, brokers: &[(String, String, fastjson::Value)], queues: &[QueueState]) {
    let brokers: Vec<Value> = brokers
        .iter()
        .map(|(broker_name, address, config)| {
            json!({
                "brokerName": broker_name,
                "address": address,
                "readQueueNums": config_number(config, "readQueueNums"),
                "writeQueueNums": config_number(config, "writeQueueNums"),
                "perm": config_number(config, "perm"),
                "order": config_member(config, "order").and_then(fastjson::Value::as_bool).unwrap_or(false),
                "attributes": config_member(config, "attributes").map_or(json!({}), fastjson::Value::to_standard),
            })
        })
        .collect();
    let queues: Vec<Value> = queues
        .iter()
        .map(|queue| {
            json!({
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "minOffset": queue.min_offset,
                "maxOffset": queue.max_offset,
                "lastUpdateTimestamp": queue.last_update_ms,
            })
        })
        .collect();
    println!("{}", json!({"topic": name, "brokers": brokers, "queues": queues}));
}

fn show_tables(name: &str, brokers: &[(String, String, fastjson::Value)], queues: &[QueueState]) {
    println!("topic {name}");
    let mut of_brokers = table(&["BROKER", "ADDRESS", "READ", "WRITE", "PERM", "ATTRIBUTES"]);
    for (broker_name, address, config) in brokers {
        let attributes = config_member(config, "attributes").map(fastjson::Value::members).unwrap_or_default();
        let attributes: Vec<String> = attributes
            .iter()
            .map(|(name, value)| format!("{}={}", name.as_text().unwrap_or_default(), value.as_text().unwrap_or_default()))
            .collect();
        of_brokers.add_row([
            broker_name.clone(),
            address.clone(),
            config_number(config, "readQueueNums").to_string(),
            config_number(config, "writeQueueNums").to_string(),
            perm_text(config_number(config, "perm") as i32),
            attributes.join(" "),
        ]);
    }
    println!("{of_brokers}");
    let mut of_queues = table(&["BROKER", "QUEUE", "MIN", "MAX", "MESSAGES", "LAST"]);
    for queue in queues {
        of_queues.add_row([
            queue.broker_name.clone(),
            queue.queue_id.to_string(),
            queue.min_offset.to_string(),
            queue.max_offset.to_string(),
            (queue.max_offset - queue.min_offset).to_string(),
            time_text(queue.last_update_ms),
        ]);
    }
    println!("{of_queues}");
}

fn time_text(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) if ms > 0 => format!("{time:.3}"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &[&str]) -> Result<Command, clap::Error> {
        Line::try_parse_from(std::iter::once("topic").chain(line.iter().copied())).map(|line| line.args.command)
    }

    #[test]
    fn every_option_of_the_contract_is_there() {
        let Command::Create(args) =
            parse(&["create", "T", "--queues", "4", "--read", "2", "--write", "3", "--perm", "r", "--type", "fifo"]).unwrap()
        else {
            panic!("not create")
        };
        assert_eq!((args.queues, args.read, args.write, args.perm), (4, Some(2), Some(3), 4));
        assert!(parse(&["list", "--json"]).is_ok() && parse(&["show", "T", "--json"]).is_ok() && parse(&["delete", "T"]).is_ok());
        for bad in
            [&["create", "T", "--queues", "0"][..], &["create", "T", "--perm", "q"], &["create", "T", "--type", "MIXED"], &["show"], &["x"]]
        {
            assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad:?}");
        }
    }

    #[test]
    fn kinds_follow_names() {
        let own = ["broker-a".to_owned(), "DefaultCluster".to_owned()];
        for (name, expected) in [
            ("orders", "user"),
            ("%RETRY%g", "retry"),
            ("%DLQ%g", "dlq"),
            ("TBW102", "system"),
            ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "system"),
            ("broker-a", "system"),
            ("DefaultCluster_REPLY_TOPIC", "system"),
        ] {
            assert_eq!(kind(name, &own), expected, "{name}");
        }
        assert_eq!((perm_text(6), perm_text(7), perm_text(4)), ("rw".to_owned(), "rwx".to_owned(), "r".to_owned()));
    }

    #[test]
    fn statistics_of_queues_are_read_from_the_dialect() {
        let text = br#"{"offsetTable":{{"brokerName":"a","queueId":1,"topic":"T"}:{"lastUpdateTimestamp":5,"maxOffset":9,"minOffset":2}},"topicPutTps":0.0}"#;
        let states = queue_states(&fastjson::parse(text).unwrap());
        let state = &states[0];
        assert_eq!(
            (state.broker_name.as_str(), state.queue_id, state.min_offset, state.max_offset, state.last_update_ms),
            ("a", 1, 2, 9, 5)
        );
        assert_eq!((time_text(0), time_text(1_700_000_000_123)), ("-".to_owned(), "2023-11-14T22:13:20.123Z".to_owned()));
    }
}
