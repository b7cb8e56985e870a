//! `petrel bench suite`: the whole, side by side: the null broker, then a server with either flush mode (or a given broker), in the
//! same loads, each a process of its own.
//!
//! - A load ends by time or by bytes, whichever comes first; a server is replaced by a fresh one before it has written more than
//!   [`LIFE_BYTES`]. What it wrote is thrown away unsynced with its folder.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::load::{self, Load};
use super::report::{self, Row};
use super::target::Target;
use crate::cli::tools::{Failure, parse_duration};

/// Bytes a server may write before it is replaced.
const LIFE_BYTES: u64 = 3_000_000_000;
/// Bytes of one load.
const LOAD_BYTES: u64 = 600_000_000;
const _: () = assert!(LOAD_BYTES < LIFE_BYTES); // else a server would be replaced for ever

/// Messages that pull loads find.
const BACKLOG: u64 = 100_000;
/// Messages of a batch, and most of a pull.
const BATCH: usize = 32;
const QUEUES: i32 = 8;

/// Everything beside the null broker: send, one-way, batch and pull at growing loads
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json_out: Option<PathBuf>,
    /// A few loads only
    #[arg(long)]
    quick: bool,
    /// Measure this broker instead of starting servers
    #[arg(long, value_name = "ADDR")]
    broker: Option<String>,
    /// Time of each load
    #[arg(long, value_name = "TIME", default_value = "700ms", value_parser = parse_duration)]
    time: Duration,
    /// Folder for the servers' data
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Threads of the generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Send,
    OneWay,
    Batch,
    Pull,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::OneWay => "one-way",
            Self::Batch => "batch 32",
            Self::Pull => "pull",
        }
    }
}

/// One load of the suite; the same for every broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Case {
    kind: Kind,
    connections: usize,
    pipeline: usize,
    body_bytes: usize,
}

/// The loads, smallest first.
fn cases(kinds: &[Kind], quick: bool) -> Vec<Case> {
    let levels: &[(usize, usize)] = if quick {
        &[(1, 1), (16, 16), (64, 16)]
    } else {
        &[(1, 1), (1, 16), (1, 64), (16, 1), (16, 16), (16, 64), (64, 1), (64, 16), (64, 64)]
    };
    let bodies: &[usize] = if quick { &[1024] } else { &[128, 1024] };
    let mut cases = Vec::new();
    for kind in kinds {
        for body_bytes in bodies {
            for (connections, pipeline) in levels {
                let case = Case { kind: *kind, connections: *connections, pipeline: *pipeline, body_bytes: *body_bytes };
                // Nothing is in flight one way: only connections count.
                let same = |other: &Case| {
                    other.kind == Kind::OneWay
                        && case.kind == Kind::OneWay
                        && other.connections == case.connections
                        && other.body_bytes == case.body_bytes
                };
                if !cases.iter().any(same) {
                    cases.push(case);
                }
            }
        }
    }
    cases
}

/// Runs the suite.
///
/// # Errors
/// The first load that fails, or a server that does not start.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut null_rates = HashMap::new();
    println!("{}", report::head());
    let all = [Kind::Send, Kind::OneWay, Kind::Batch, Kind::Pull];
    let mut null = Subject::null();
    for case in cases(&all, args.quick) {
        let row = measure(args, &mut null, case, None)?;
        null_rates.insert(case, row.outcome.rate());
        tell(&mut rows, row);
    }
    null.stop();
    let subjects: Vec<(Subject, &[Kind])> = match &args.broker {
        Some(address) => vec![(Subject::foreign(address), &all)],
        None => vec![
            (Subject::server("async", "ASYNC_FLUSH", args.dir.clone()), &all),
            (Subject::server("sync", "SYNC_FLUSH", args.dir.clone()), &[Kind::Send, Kind::Batch]),
        ],
    };
    for (mut subject, kinds) in subjects {
        for case in cases(kinds, args.quick) {
            let row = measure(args, &mut subject, case, null_rates.get(&case).copied())?;
            tell(&mut rows, row);
        }
        subject.stop();
    }
    if let Some(path) = &args.json_out {
        let value = json!({"machine": machine(), "secondsPerLoad": args.time.as_secs_f64(), "rows": rows.iter().map(Row::json).collect::<Vec<Value>>()});
        fs::write(path, format!("{value:#}\n")).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

fn tell(rows: &mut Vec<Row>, row: Row) {
    println!("{}", row.text());
    rows.push(row);
}

fn measure(args: &Args, subject: &mut Subject, case: Case, null_rate: Option<f64>) -> Result<Row, Failure> {
    let address = subject.address().map_err(Failure::Failed)?;
    let batch = if case.kind == Kind::Send || case.kind == Kind::OneWay { 1 } else { BATCH };
    let load = Load {
        topic: if case.kind == Kind::Pull { format!("petrel_bench_pull_{}", case.body_bytes) } else { "petrel_bench".to_owned() },
        queues: QUEUES,
        connections: case.connections,
        pipeline: case.pipeline,
        body_bytes: case.body_bytes,
        batch,
        oneway: case.kind == Kind::OneWay,
        warm_up: args.time / 5,
        time: args.time,
        count: None,
        rate: None,
        threads: args.threads,
        backlog: BACKLOG,
        max_bytes: subject.max_bytes(),
    };
    let failed =
        |what: String| Failure::Failed(format!("{} {} {}x{}: {what}", subject.name, case.kind.name(), case.connections, case.pipeline));
    let target = Target::broker(&address).map_err(failed)?;
    let outcome = match case.kind {
        Kind::Pull => load::pull(&target, &load),
        Kind::Send | Kind::OneWay | Kind::Batch => load::send(&target, &load),
    };
    let outcome = outcome.map_err(failed)?;
    drop(target);
    if case.kind == Kind::Pull {
        subject.wrote(0);
    } else {
        subject.wrote(outcome.all_messages * (case.body_bytes as u64 + 300));
    }
    Ok(Row {
        broker: subject.name.to_owned(),
        work: case.kind.name().to_owned(),
        connections: case.connections,
        pipeline: (case.kind != Kind::OneWay).then_some(case.pipeline),
        body_bytes: case.body_bytes,
        outcome,
        null_rate,
    })
}

/// What is measured: a process of ours that lives as long as it may, or a broker that is there.
struct Subject {
    name: &'static str,
    start: Start,
    running: Option<Running>,
    written: u64,
}

enum Start {
    Null,
    Server(&'static str, Option<PathBuf>),
    Foreign(String),
}

struct Running {
    child: Child,
    address: String,
    /// Removed when the process is gone.
    _folder: Option<tempfile::TempDir>,
}

impl Subject {
    fn null() -> Self {
        Self { name: "null", start: Start::Null, running: None, written: 0 }
    }

    fn server(name: &'static str, flush: &'static str, dir: Option<PathBuf>) -> Self {
        Self { name, start: Start::Server(flush, dir), running: None, written: 0 }
    }

    fn foreign(address: &str) -> Self {
        Self { name: "broker", start: Start::Foreign(address.to_owned()), running: None, written: 0 }
    }

    /// The address; a process is started when there is none, or the one there has written enough.
    fn address(&mut self) -> Result<String, String> {
        if self.written + LOAD_BYTES > LIFE_BYTES {
            self.stop();
        }
        if let Some(running) = &self.running {
            return Ok(running.address.clone());
        }
        let running = match &self.start {
            Start::Foreign(address) => return Ok(address.clone()),
            Start::Null => Running::start(&["bench", "null-broker", "--port", "0", "--ready-json"], None)?,
            Start::Server(flush, dir) => {
                let folder = match dir {
                    Some(dir) => tempfile::Builder::new().prefix("petrel-bench-").tempdir_in(dir),
                    None => tempfile::Builder::new().prefix("petrel-bench-").tempdir(),
                };
                let folder = folder.map_err(|error| format!("cannot make a folder for data: {error}"))?;
                let flush = format!("flushDiskType={flush}");
                Running::start(&["server", "--ephemeral", "--ready-json", "-q", "--bind", "127.0.0.1", "--set", &flush], Some(folder))?
            }
        };
        Ok(self.running.insert(running).address.clone())
    }

    /// Bytes of one load: what is stored is bounded.
    fn max_bytes(&self) -> Option<u64> {
        (!matches!(self.start, Start::Null)).then_some(LOAD_BYTES)
    }

    fn wrote(&mut self, bytes: u64) {
        if matches!(self.start, Start::Server(..)) {
            self.written += bytes;
        }
    }

    fn stop(&mut self) {
        self.running = None;
        self.written = 0;
    }
}

impl Running {
    /// Starts this executable with `args` and waits for its ready line.
    fn start(args: &[&str], folder: Option<tempfile::TempDir>) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this executable: {error}"))?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(folder) = &folder {
            command.env("TMPDIR", folder.path());
        }
        let mut child = command.spawn().map_err(|error| format!("cannot start petrel {}: {error}", args.join(" ")))?;
        let mut line = String::new();
        let read = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let mut running = Self { child, address: String::new(), _folder: folder };
        let ready: Value = match read {
            Some(Ok(count)) if count > 0 => serde_json::from_str(&line).map_err(|error| format!("ready line {line:?}: {error}"))?,
            _ => return Err(format!("petrel {} ended before it was ready", args.join(" "))), // dropped: waited for
        };
        running.address = ready["broker"].as_str().ok_or_else(|| format!("the ready line names no broker: {line}"))?.to_owned();
        Ok(running)
    }
}

impl Drop for Running {
    /// Not asked to stop: an orderly stop would write what nobody wants to keep.
    fn drop(&mut self) {
        let _ = self.child.kill(); // gone already is as good
        let _ = self.child.wait();
    }
}

/// The machine, as far as it tells.
fn machine() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo")
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split(':').nth(1))
        .map(|text| text.trim().to_owned());
    json!({
        "cpu": cpu,
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "memory": read("/proc/meminfo").lines().next().map(|line| line.trim_start_matches("MemTotal:").trim().to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loads_are_those_of_the_contract() {
        let all = cases(&[Kind::Send, Kind::OneWay, Kind::Batch, Kind::Pull], false);
        assert_eq!(all.len(), 18 + 6 + 18 + 18);
        let unique: std::collections::HashSet<Case> = all.iter().copied().collect();
        assert_eq!(unique.len(), all.len());
        for (connections, pipeline) in [(1, 1), (16, 64), (64, 16)] {
            assert!(all.contains(&Case { kind: Kind::Send, connections, pipeline, body_bytes: 128 }));
        }
        assert!(cases(&[Kind::Send], true).len() < 5);
    }
}
