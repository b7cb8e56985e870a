//! The command line: server roles and tools. Only here (and in `main`) is anything printed, is a signal heard, is the logger set.
//!
//! - [`args`]: what may be written. [`mq`]: the same for links named as the reference's scripts.
//! - [`plan`]: from options and files to configurations, with every error at once and nothing started.
//! - [`server`]: starts what a plan says, waits, stops. [`ready`], [`signals`], [`logging`]: its parts.
//! - [`tools`]: everything that is a client.

use std::time::Instant;

use clap::Parser;

pub mod args;
pub mod logging;
pub mod mq;
pub mod plan;
pub mod ready;
pub mod server;
pub mod signals;
pub mod tools;

/// Done, or stopped by a signal in order.
pub const DONE: i32 = 0;
/// It could not go on.
pub const FAILED: i32 = 1;
/// Wrong use; nothing was started or created.
pub const USAGE: i32 = 2;

/// Commands of the contract that are not built yet.
const LATER: [&str; 6] = ["group", "message", "cluster", "doctor", "top", "completions"];

/// Runs the command line of this process; returns its exit status.
pub fn run() -> i32 {
    let started = Instant::now();
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let program = words.first().and_then(|path| std::path::Path::new(path).file_stem()?.to_str().map(str::to_owned));
    if let Some(status) = program.and_then(|program| mq::run(&program, &words)) {
        return status;
    }
    if let Some(later) = words.get(1).and_then(|word| LATER.into_iter().find(|later| word == later)) {
        return usage(&[format!("{later} comes with a later version")]);
    }
    let cli = match args::Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return clap_exit(&error, USAGE),
    };
    match cli.command.unwrap_or(args::Command::Server(cli.server)) {
        args::Command::Server(args) => server::run(plan::for_server(&args), &args.common, started),
        args::Command::Namesrv(args) => server::run(plan::for_namesrv(&args), &args.common, started),
        args::Command::Broker(args) => server::run(plan::for_broker(&args), &args.common, started),
        args::Command::Controller(_) => usage(&["the controller comes with a later version".to_owned()]),
        args::Command::Send(args) => tools::send::run(args),
        args::Command::Consume(args) => tools::consume::run(args),
        args::Command::Topic(args) => tools::topic::run(args),
        args::Command::Bench(args) => tools::bench::run(args),
        args::Command::Store(args) => tools::store::run(&args),
    }
}

/// Prints what clap has to say: help and version are no errors, everything else ends with `status`.
fn clap_exit(error: &clap::Error, status: i32) -> i32 {
    let _ = error.print(); // nobody reads it
    if error.use_stderr() { status } else { DONE }
}

/// One line each for wrong use.
fn usage(lines: &[String]) -> i32 {
    lines.iter().for_each(|line| complain(line));
    USAGE
}

/// One line on standard error.
fn complain(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "petrel: {line}"); // nobody reads it
}
