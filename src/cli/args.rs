//! What may be written on the command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use super::tools;

/// The whole command line. Without a command it is `petrel server`.
#[derive(Debug, Parser)]
#[command(name = "petrel", version, about = "A message broker that speaks Apache RocketMQ's protocol and keeps its files.")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `petrel server`, when no command is named.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Name server and broker in one process (the default)
    Server(ServerArgs),
    /// Name server only
    Namesrv(NamesrvArgs),
    /// Broker only
    Broker(BrokerArgs),
    /// Controller only
    Controller(ControllerArgs),
    /// Send messages
    Send(tools::send::Args),
    /// Print messages
    Consume(tools::consume::Args),
    /// List, create, show, delete topics
    Topic(tools::topic::Args),
    /// Measure a broker
    Bench(tools::bench::Args),
    /// Look at the files of a stopped broker, mend them
    Store(tools::store::Args),
}

/// Options of every server role.
#[derive(Clone, Debug, Default, Args)]
pub struct CommonArgs {
    /// Java properties file (broker.conf, namesrv.conf …), unchanged
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One configuration key; repeatable; wins over the file
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Address listened on, v4 or v6 [default: 0.0.0.0]
    #[arg(long, value_name = "ADDR")]
    pub bind: Option<IpAddr>,
    /// Print one line of JSON on standard output when serving
    #[arg(long)]
    pub ready_json: bool,
    /// Log to a file (reopened on SIGHUP) instead of standard error
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Unknown keys in a file are errors
    #[arg(long)]
    pub strict: bool,
    /// Log less
    #[arg(short, long, action = ArgAction::Count)]
    pub quiet: u8,
    /// Log more
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,
}

/// Options of roles that are a broker.
#[derive(Clone, Debug, Default, Args)]
pub struct BrokerOptions {
    /// Listening port of the broker; 0: a free one [default: 10911]
    #[arg(short, long, value_name = "N")]
    pub port: Option<u16>,
    /// What clients are told instead of an address of this host
    #[arg(long, value_name = "HOST[:PORT]")]
    pub advertise: Option<String>,
    /// Name servers to register with [default: $NAMESRV_ADDR]
    #[arg(short, long, value_name = "ADDR[;ADDR]")]
    pub namesrv: Option<String>,
    /// The data folder [default: ./petrel-data]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Data in a temporary folder, removed at exit; port 0 where no port is given
    #[arg(long, conflicts_with = "store")]
    pub ephemeral: bool,
}

/// Options of `petrel server`.
#[derive(Clone, Debug, Default, Args)]
pub struct ServerArgs {
    /// Options of every role.
    #[command(flatten)]
    pub common: CommonArgs,
    /// The broker's.
    #[command(flatten)]
    pub broker: BrokerOptions,
    /// Listening port of the name server; 0: a free one; with --port 0 also free unless given [default: 9876]
    #[arg(long, value_name = "N")]
    pub namesrv_port: Option<u16>,
}

/// Options of `petrel namesrv`.
#[derive(Clone, Debug, Default, Args)]
pub struct NamesrvArgs {
    /// Options of every role.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Listening port; 0: a free one [default: 9876]
    #[arg(short, long, value_name = "N")]
    pub port: Option<u16>,
    /// The data folder [default: ./petrel-data]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// Options of `petrel broker`.
#[derive(Clone, Debug, Default, Args)]
pub struct BrokerArgs {
    /// Options of every role.
    #[command(flatten)]
    pub common: CommonArgs,
    /// The broker's.
    #[command(flatten)]
    pub broker: BrokerOptions,
}

/// Options of `petrel controller`.
#[derive(Clone, Debug, Default, Args)]
pub struct ControllerArgs {
    /// Options of every role.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Listening port; 0: a free one [default: 19876]
    #[arg(short, long, value_name = "N")]
    pub port: Option<u16>,
    /// The data folder [default: ./petrel-data]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"petrel").chain(words))
    }

    #[test]
    fn the_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_is_server() {
        let cli = parse(&["--ephemeral", "--ready-json", "-v"]).unwrap();
        assert!(cli.command.is_none() && cli.server.broker.ephemeral && cli.server.common.ready_json);
        let Some(Command::Server(args)) = parse(&["server", "-p", "0", "--namesrv-port", "1"]).unwrap().command else { panic!() };
        assert_eq!((args.broker.port, args.namesrv_port), (Some(0), Some(1)));
    }

    #[test]
    fn wrong_use() {
        for words in [
            &["--no-such-option"][..],
            &["server", "--port", "x"],
            &["server", "--port", "65536"],
            &["server", "--bind", "nowhere"],
            &["server", "--ephemeral", "--store", "x"],
            &["server", "-q", "-v"],
            &["namesrv", "--ephemeral"],
            &["no-such-command"],
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.use_stderr() && error.exit_code() == 2, "{words:?}");
        }
    }

    #[test]
    fn options_of_the_contract() {
        let Some(Command::Broker(args)) = parse(&[
            "broker",
            "-c",
            "b.conf",
            "--set",
            "a=1",
            "--set",
            "b=2",
            "-p",
            "10911",
            "--bind",
            "::",
            "--advertise",
            "h:1",
            "-n",
            "a;b",
            "--store",
            "d",
            "--log-file",
            "l",
            "-q",
            "--strict",
        ])
        .unwrap()
        .command
        else {
            panic!()
        };
        assert_eq!(args.common.set, ["a=1", "b=2"]);
        assert_eq!(args.broker.namesrv.as_deref(), Some("a;b"));
        assert!(matches!(parse(&["controller", "-p", "1"]).unwrap().command, Some(Command::Controller(_))));
    }
}
