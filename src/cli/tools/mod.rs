//! The tools of the command line: clients of a cluster, one file per family.
//!
//! - Results go to standard output, one line of reason for a failure to standard error.
//! - Exit status 0 only on full success, 1 when it could not be done, 2 for wrong use.

pub mod bench;
pub mod consume;
pub mod message_json;
pub mod send;
pub mod store;
pub mod topic;

use std::time::Duration;

use crate::client::{Client, ClientConfig, ClientError, MessageQueue};

/// Exit status of a failure.
pub const FAILED: i32 = 1;
/// Exit status of wrong use.
pub const USAGE: i32 = 2;

/// Options of every tool that asks a cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterArgs {
    /// Name servers, host:port, several separated by ';'
    #[arg(short, long, value_name = "ADDR[;ADDR]", env = "NAMESRV_ADDR", default_value = "127.0.0.1:9876")]
    pub namesrv: String,
    /// Time for one request
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    pub timeout: Duration,
}

impl ClusterArgs {
    /// A client of the cluster.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn client(&self) -> Result<Client, ClientError> {
        Client::with_config(ClientConfig {
            timeout: self.timeout,
            connect_timeout: self.timeout.min(Duration::from_secs(3)),
            ..ClientConfig::new(&self.namesrv)
        })
    }
}

/// Why a tool ends without success.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It could not be done.
    Failed(String),
    /// It was asked wrongly.
    Usage(String),
    /// Nobody reads the output any more: no error to tell, nobody to tell it to.
    Quiet,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Invalid(what) => Self::Usage(what),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe { Self::Quiet } else { Self::Failed(error.to_string()) }
    }
}

/// Runs a tool: prints its failure, and yields its exit status.
pub fn finish(tool: &str, result: Result<(), Failure>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(Failure::Quiet) => FAILED,
        Err(Failure::Failed(what)) => {
            eprintln!("petrel {tool}: {}", one_line(&what));
            FAILED
        }
        Err(Failure::Usage(what)) => {
            eprintln!("petrel {tool}: {}", one_line(&what));
            USAGE
        }
    }
}

/// Shows the client library's log on standard error from `level` on, and what `RUST_LOG` asks for.
fn show_log(level: log::LevelFilter) {
    let mut builder = env_logger::Builder::new();
    let _ = builder.filter_level(level).parse_default_env().try_init(); // an embedding program may have its own
}

/// Text for one line of standard error.
pub fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A time such as `3s`, `500ms`, `2m`, `1h`; a bare number counts seconds.
///
/// # Errors
/// What is expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "" | "s" => 1.0,
        "us" => 0.000_001,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(format!("unknown unit {unit:?}; expected a time such as 500ms, 3s, 2m, 1h")),
    };
    let number: f64 = number.parse().map_err(|_| "expected a time such as 500ms, 3s, 2m, 1h".to_owned())?;
    Duration::try_from_secs_f64(number * scale).map_err(|error| error.to_string())
}

/// A rate such as `1000` or `1000/s`.
///
/// # Errors
/// What is expected.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("expected messages per second, such as 1000/s".to_owned()),
    }
}

/// A queue such as `broker-a:3`.
///
/// # Errors
/// What is expected.
pub fn parse_queue(text: &str) -> Result<(String, i32), String> {
    let (broker, id) = text.rsplit_once(':').ok_or("expected BROKER:ID, such as broker-a:0")?;
    let id =
        id.parse().ok().filter(|id| *id >= 0).ok_or_else(|| format!("{id:?} is no queue id; expected BROKER:ID, such as broker-a:0"))?;
    if broker.is_empty() {
        return Err("the broker's name is missing; expected BROKER:ID, such as broker-a:0".to_owned());
    }
    Ok((broker.to_owned(), id))
}

/// A property such as `color=red`.
///
/// # Errors
/// What is expected.
pub fn parse_property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE, neither of them empty".to_owned()),
    }
}

/// The queue of `topic` that the command line names.
pub fn queue_of(topic: &str, (broker_name, queue_id): &(String, i32)) -> MessageQueue {
    MessageQueue { topic: topic.to_owned(), broker_name: broker_name.clone(), queue_id: *queue_id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_rates_queues_and_properties() {
        for (text, ms) in [("3s", 3000), ("500ms", 500), ("2", 2000), ("1.5m", 90_000), ("1h", 3_600_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "s", "3 parsecs", "1e3", "-1s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!((parse_rate("1000/s"), parse_rate("2.5")), (Ok(1000.0), Ok(2.5)));
        assert!(["", "0", "-1", "x/s", "inf"].iter().all(|bad| parse_rate(bad).is_err()));
        assert_eq!(parse_queue("a:b:3"), Ok(("a:b".to_owned(), 3)));
        assert!(["a", ":1", "a:", "a:-1", "a:x"].iter().all(|bad| parse_queue(bad).is_err()));
        assert_eq!(parse_property("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(["a", "=b", "a="].iter().all(|bad| parse_property(bad).is_err()));
    }

    #[test]
    fn a_failure_is_one_line_and_has_its_status() {
        assert_eq!(one_line("a\n  b\r\n\nc"), "a b c");
        assert_eq!(Failure::from(ClientError::Invalid("x".into())), Failure::Usage("x".into()));
        assert_eq!(finish("x", Ok(())), 0);
        assert_eq!(finish("x", Err(Failure::Usage("test".into()))), 2);
        assert_eq!(finish("x", Err(Failure::Failed("test".into()))), 1);
    }
}
