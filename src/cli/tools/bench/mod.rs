//! `petrel bench`: a load generator that is a process apart from the broker, for Petrel and any other RocketMQ broker.
//!
//! - Every answer is checked: code, opaque, queue, offsets, and of pulled messages density, topic, length and CRC. A load with one wrong
//!   answer has no figures.
//! - Requests are encoded once and patched (`frame`); one or two threads drive non-blocking connections (`driver`); latencies of an open
//!   loop count from the moment a request was due (`pace`).
//! - The null broker (`null_broker`) is the ceiling: the same protocol, nothing stored.

mod driver;
mod frame;
mod histogram;
mod link;
mod load;
mod null_broker;
mod pace;
mod report;
mod suite;
mod target;
mod work;

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;

use super::{Failure, finish, parse_duration, parse_rate, show_log};
use histogram::Outcome;
use load::Load;
use null_broker::NullBroker;
use report::Row;
use target::Target;

/// Measure a broker: any RocketMQ broker, beside a null broker that stores nothing
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Send
    Send(LoadArgs),
    /// Pull a backlog, which is made first when it is not there
    Pull(LoadArgs),
    /// Send at a rate and receive: latency from producer to consumer
    E2e(LoadArgs),
    /// Serve as a broker that answers at once and stores nothing
    NullBroker {
        /// Port; 0: a free one
        #[arg(short, long, value_name = "N", default_value_t = 0)]
        port: u16,
        /// Print one line of JSON when serving
        #[arg(long)]
        ready_json: bool,
    },
    /// All loads beside the null broker
    Suite(suite::Args),
}

#[derive(Clone, Debug, clap::Args)]
struct LoadArgs {
    /// Broker to measure
    #[arg(long, value_name = "BROKER")]
    addr: Option<String>,
    /// Name servers, when no broker is named; the first master they know is measured
    #[arg(short, long, value_name = "NS", env = "NAMESRV_ADDR", default_value = "127.0.0.1:9876")]
    namesrv: String,
    /// Connections
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    connections: usize,
    /// Requests in flight on each connection
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pipeline: usize,
    /// Length of bodies
    #[arg(short, long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Messages of a send (1), most messages of a pull (32)
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    batch: Option<usize>,
    /// Time measured
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse_duration)]
    seconds: Duration,
    /// Time before that
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    warm_up: Option<Duration>,
    /// End after so many messages instead
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Open loop: messages per second; latency counts from the moment a message was due
    #[arg(long, value_name = "N/s", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Send without answers
    #[arg(long)]
    oneway: bool,
    /// Topic
    #[arg(long, value_name = "T")]
    topic: Option<String>,
    /// Queues of the topic
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..))]
    queues: i32,
    /// Messages that a pull finds
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    backlog: u64,
    /// Threads of the generator
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
    /// JSON
    #[arg(long)]
    json: bool,
}

/// Runs the tool; its exit status.
pub fn run(args: Args) -> i32 {
    show_log(log::LevelFilter::Off);
    finish(
        "bench",
        match args.command {
            Command::Send(args) => send(&args),
            Command::Pull(args) => pull(&args),
            Command::E2e(args) => end_to_end(&args),
            Command::NullBroker { port, ready_json } => null_broker(port, ready_json),
            Command::Suite(args) => suite::run(&args),
        },
    )
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| (1..=1 << 20).contains(number)).ok_or_else(|| format!("expected a number from 1 to {}", 1 << 20))
}

impl LoadArgs {
    fn target(&self) -> Result<Target, Failure> {
        match &self.addr {
            Some(address) => Target::broker(address),
            None => Target::of_namesrv(&self.namesrv),
        }
        .map_err(Failure::Failed)
    }

    fn load(&self, topic: &str, batch: usize) -> Load {
        Load {
            topic: self.topic.clone().unwrap_or_else(|| topic.to_owned()),
            queues: self.queues,
            connections: self.connections,
            pipeline: self.pipeline,
            body_bytes: self.size,
            batch: self.batch.unwrap_or(batch),
            oneway: self.oneway,
            warm_up: self.warm_up.unwrap_or_else(|| (self.seconds / 10).min(Duration::from_secs(1))),
            time: self.seconds,
            count: self.count,
            rate: self.rate,
            threads: self.threads,
            backlog: self.backlog,
            max_bytes: None,
        }
    }

    fn row(&self, work: &str, outcome: Outcome) -> Row {
        Row {
            broker: "broker".to_owned(),
            work: work.to_owned(),
            connections: self.connections,
            pipeline: (!self.oneway).then_some(self.pipeline),
            body_bytes: self.size,
            outcome,
            null_rate: None,
        }
    }

    /// Prints the figures; of several rows the first is the load's.
    fn tell(&self, target: &Target, rows: &[Row]) -> Result<(), Failure> {
        let mut out = std::io::stdout();
        if self.json {
            let mut values = rows.iter().map(Row::json);
            let mut value = values.next().unwrap_or_default();
            for (part, row) in values.zip(&rows[1..]) {
                value[&row.work] = part;
            }
            value["address"] = target.address().into();
            value["rate"] = self.rate.into();
            return Ok(writeln!(out, "{value}")?);
        }
        writeln!(out, "{}", report::head())?;
        rows.iter().try_for_each(|row| writeln!(out, "{}", row.text()))?;
        Ok(())
    }
}

fn send(args: &LoadArgs) -> Result<(), Failure> {
    let target = args.target()?;
    let load = args.load("petrel_bench", 1);
    let outcome = load::send(&target, &load).map_err(Failure::Failed)?;
    let work = match (load.oneway, load.batch) {
        (true, 1) => "one-way".to_owned(),
        (false, 1) => "send".to_owned(),
        (_, batch) => format!("batch {batch}"),
    };
    let lost = outcome.lost;
    args.tell(&target, &[args.row(&work, outcome)])?;
    if lost > 0 { Err(Failure::Failed(format!("{lost} one-way messages were not stored"))) } else { Ok(()) }
}

fn pull(args: &LoadArgs) -> Result<(), Failure> {
    if args.oneway || args.rate.is_some() {
        return Err(Failure::Usage("a pull has an answer and no rate: --oneway and --rate do not fit".to_owned()));
    }
    let target = args.target()?;
    let outcome = load::pull(&target, &args.load(&format!("petrel_bench_pull_{}", args.size), 32)).map_err(Failure::Failed)?;
    args.tell(&target, &[args.row("pull", outcome)])
}

fn end_to_end(args: &LoadArgs) -> Result<(), Failure> {
    if args.oneway || args.size < frame::STAMP_LEN {
        return Err(Failure::Usage(format!("an end-to-end load needs answers and bodies of at least {} bytes", frame::STAMP_LEN)));
    }
    let target = args.target()?;
    let mut load = args.load("petrel_bench_e2e", 1);
    load.rate = load.rate.or(Some(1000.0));
    let result = load::end_to_end(&target, &load).map_err(Failure::Failed)?;
    args.tell(&target, &[args.row("e2e", result.received), args.row("send", result.sent)])
}

fn null_broker(port: u16, ready_json: bool) -> Result<(), Failure> {
    let broker = NullBroker::start(port).map_err(|error| Failure::Failed(format!("port {port}: {error}")))?;
    let mut out = std::io::stdout();
    if ready_json {
        writeln!(out, "{}", json!({"ready": true, "pid": std::process::id(), "broker": broker.address().to_string()}))?;
    } else {
        writeln!(out, "null broker on {}", broker.address())?;
    }
    out.flush()?;
    broker.wait();
    Ok(())
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
        Line::try_parse_from(std::iter::once("bench").chain(line.iter().copied())).map(|line| line.args.command)
    }

    #[test]
    fn every_option_of_the_contract_is_there() {
        let Command::Send(args) = parse(&[
            "send",
            "--addr",
            "a:1",
            "--connections",
            "32",
            "--pipeline",
            "16",
            "--size",
            "128",
            "--batch",
            "8",
            "--seconds",
            "2",
            "--rate",
            "1000/s",
            "--count",
            "100",
            "--oneway",
            "--json",
        ])
        .unwrap() else {
            panic!("not send")
        };
        assert_eq!((args.connections, args.pipeline, args.size, args.batch, args.seconds), (32, 16, 128, Some(8), Duration::from_secs(2)));
        assert!(matches!(parse(&["pull", "-n", "a:1"]).unwrap(), Command::Pull(_)));
        assert!(matches!(parse(&["e2e"]).unwrap(), Command::E2e(_)));
        assert!(matches!(parse(&["null-broker", "--port", "7"]).unwrap(), Command::NullBroker { port: 7, .. }));
        assert!(matches!(parse(&["suite", "--quick", "--json-out", "x", "--broker", "a:1"]).unwrap(), Command::Suite(_)));
        for bad in [&["send", "--connections", "0"][..], &["send", "--rate", "0"], &[]] {
            assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad:?}");
        }
    }
}
