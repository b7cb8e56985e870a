//! `petrel store`: looks at the files of a broker, and mends them.
//!
//! Exit status: 0 when nothing is damaged (there may be warnings and notes), 1 when something is, or when the store could not be looked at,
//! 2 for wrong use. A repair that was only planned ends with 1 when there is something to do, one that was done with what is left.

use std::path::PathBuf;

use crate::cli::plan::{StorePlan, for_store};
use crate::store::check::{CheckOptions, Finding, Kind, Remedy, Report, Severity, check};
use crate::store::repair::{RepairOptions, repair};
use crate::store::{RealFs, StoreError};

use super::{Failure, USAGE, finish, show_log};

mod metadata;
mod print;
mod progress;

use metadata::Metadata;
use progress::Bar;

/// Look at the files of a stopped broker, mend them
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Compare everything with everything; changes nothing
    Check(CheckArgs),
    /// Build queues and index anew, seal damage; only says what it would do without --apply
    Repair(RepairArgs),
}

/// Which store, and how it was made.
#[derive(Clone, Debug, clap::Args)]
struct StoreArgs {
    /// The data folder
    #[arg(value_name = "DIR")]
    root: PathBuf,
    /// The broker's properties file, if it has one; sizes that are not given are taken from the files
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One configuration key; repeatable; wins over the file
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// Findings shown of each kind; all are counted
    #[arg(long, value_name = "N", default_value_t = 20)]
    findings: usize,
}

#[derive(Clone, Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Look although a broker has the store open; what it is writing looks like an abrupt stop
    #[arg(long)]
    running: bool,
    /// Warnings count as damage
    #[arg(long)]
    strict: bool,
    /// Say what a Java broker of this release would not read
    #[arg(long = "for", value_name = "VERSION", value_parser = parse_version)]
    release: Option<(u32, u32)>,
}

#[derive(Clone, Debug, clap::Args)]
struct RepairArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Do it
    #[arg(long)]
    apply: bool,
    /// Build all consume queues anew, not only those found wrong
    #[arg(long)]
    queues: bool,
    /// Build the key index anew, even if nothing is wrong with it
    #[arg(long)]
    index: bool,
}

/// Runs the tool; its exit status.
pub fn run(args: &Args) -> i32 {
    show_log(log::LevelFilter::Off); // everything is told once, in the report
    let done = match &args.command {
        Command::Check(args) => plan(&args.store).map(|plan| run_check(args, &plan)),
        Command::Repair(args) => plan(&args.store).map(|plan| run_repair(args, &plan)),
    };
    done.map_or_else(
        |lines| {
            lines.iter().for_each(|line| eprintln!("petrel store: {line}"));
            USAGE
        },
        |result| finish("store", result),
    )
}

fn plan(args: &StoreArgs) -> Result<StorePlan, Vec<String>> {
    for_store(args.config.as_deref(), &args.set, &args.root)
}

fn options(plan: &StorePlan, args: &StoreArgs, metadata: &Metadata, running: bool) -> CheckOptions {
    CheckOptions { given: plan.given, topics: metadata.topics.clone(), running, findings_per_kind: args.findings }
}

fn run_check(args: &CheckArgs, plan: &StorePlan) -> Result<(), Failure> {
    let metadata = Metadata::read(&plan.config.root);
    let mut bar = Bar::new();
    let checked = check(&plan.config, &RealFs::shared(), &options(plan, &args.store, &metadata, args.running), &mut |step| bar.show(step));
    drop(bar);
    let mut report = checked.map_err(|error| match error {
        StoreError::Locked(..) if !args.running => Failure::Failed(format!("{error}; stop the broker first, or look with --running")),
        error => Failure::Failed(error.to_string()),
    })?;
    metadata.compare(&mut report, plan.config.delay_levels_ms.len());
    if let Some(release) = args.release {
        foreign(&mut report, release);
    }
    if args.store.json {
        print::check_json(&report)?
    } else {
        print::check_tables(&report)?
    }
    let limit = if args.strict { Severity::Warning } else { Severity::Error };
    if report.findings.worst().is_some_and(|worst| worst >= limit) { Err(Failure::Quiet) } else { Ok(()) }
}

fn run_repair(args: &RepairArgs, plan: &StorePlan) -> Result<(), Failure> {
    let metadata = Metadata::read(&plan.config.root);
    let options = RepairOptions {
        check: options(plan, &args.store, &metadata, false),
        apply: args.apply,
        all_queues: args.queues,
        all_index: args.index,
    };
    let mut bar = Bar::new();
    let done = repair(&plan.config, &RealFs::shared(), &options, &mut |step| bar.show(step));
    drop(bar);
    let done = done.map_err(|error| Failure::Failed(error.to_string()))?;
    if args.store.json {
        print::repair_json(&done, args.store.findings)?
    } else {
        print::repair_tables(&done, args.store.findings)?
    }
    let left = !done.applied && !done.steps.is_empty();
    if left || done.now().is_damaged() { Err(Failure::Quiet) } else { Ok(()) }
}

/// What a Java broker of a release does not read, or does not accept, in this store.
fn foreign(report: &mut Report, (major, minor): (u32, u32)) {
    let mut findings: Vec<Finding> = Vec::new();
    let mut tell = |severity, text: String, remedy| findings.push(Finding::new(Kind::Foreign, severity, &report.root, text, remedy));
    let long = report.counts.long_topic_records;
    if long > 0 && major < 5 {
        let text = format!("{long} records of topics over 127 bytes, which release {major}.{minor} takes for the end of the log");
        tell(Severity::Error, text, Remedy::Act("go back to a release from 5.0 on"));
    }
    let default = crate::store::StoreConfig::new("");
    let sizes = report.sizes;
    for (key, size, default) in [
        ("mappedFileSizeCommitLog", sizes.commit_log as u64, default.commit_log_file_size as u64),
        ("mappedFileSizeConsumeQueue", sizes.consume_queue as u64, default.consume_queue_file_size as u64),
        ("maxHashSlotNum", sizes.index.0.into(), default.index_slots.into()),
        ("maxIndexNum", sizes.index.1.into(), default.index_entries.into()),
    ] {
        if size != default {
            let text = format!("{key} is {size}, not the default {default}");
            tell(Severity::Warning, text, Remedy::Act("give the Java broker the same value in its configuration"));
        }
    }
    if report.findings.total(Kind::StrayFile) > 0 {
        let text = "files in the store's folders that a Java broker does not start with".to_owned();
        tell(Severity::Error, text, Remedy::Act("move them away"));
    }
    if report.findings.total(Kind::Abort) > 0 {
        let text = "a Java broker cuts the log at the first record that it cannot read".to_owned();
        tell(Severity::Warning, text, Remedy::Act("start and stop this broker once more before going back"));
    }
    findings.into_iter().for_each(|finding| report.findings.add(finding));
}

fn parse_version(text: &str) -> Result<(u32, u32), String> {
    let mut numbers = text.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), None) => Ok((major, 0)),
        (Some(Ok(major)), Some(Ok(minor))) if numbers.all(|number| number.is_ok()) => Ok((major, minor)),
        _ => Err("expected a release such as 4.9 or 5.3.2".to_owned()),
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
        Line::try_parse_from(std::iter::once("store").chain(line.iter().copied())).map(|line| line.args.command)
    }

    #[test]
    fn every_option_is_there() {
        let Command::Check(args) =
            parse(&["check", "d", "-c", "f", "--set", "a=b", "--json", "--running", "--strict", "--for", "4.9.7", "--findings", "3"])
                .unwrap()
        else {
            panic!("not check")
        };
        assert_eq!((args.release, args.store.findings, args.running, args.strict), (Some((4, 9)), 3, true, true));
        let Command::Repair(args) = parse(&["repair", "d", "--apply", "--queues", "--index", "--json"]).unwrap() else {
            panic!("not repair")
        };
        assert!(args.apply && args.queues && args.index && args.store.json);
        let Command::Repair(args) = parse(&["repair", "d"]).unwrap() else { panic!("not repair") };
        assert!(!args.apply, "a dry run unless it is asked for");
        for bad in [&["check"][..], &["repair", "d", "--running"], &["check", "d", "--apply"], &["check", "d", "--for", "new"], &["x"]] {
            assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad:?}");
        }
    }
}
