//! `petrel consume`: prints messages, as a member of a group or as a reader that leaves no trace.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, ClientError, ConsumeFrom, ConsumeStatus, PolledConsumer};
use crate::common::message::MessageExt;
use crate::filter::Expression;

use super::{ClusterArgs, Failure, finish, message_json, parse_duration, parse_queue, queue_of, show_log};

/// Group that readers without a group of their own name in their requests; brokers make it at their start.
const TOOLS_GROUP: &str = "TOOLS_CONSUMER";
/// How often a wait looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

/// Print the messages of a topic, one body a line
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Topic
    topic: String,
    /// Consumer group: its offsets are used and committed; without one, everything is read and nothing committed
    #[arg(long, value_name = "G")]
    group: Option<String>,
    /// Where to begin when the group has no offset, or there is no group: first (the default), last, a time, or an offset
    #[arg(long, value_name = "first|last|RFC3339|OFFSET", value_parser = parse_from)]
    from: Option<ConsumeFrom>,
    /// Tags, such as 'a || b'
    #[arg(long, value_name = "TAGS", default_value = "*", conflicts_with = "sql")]
    filter: String,
    /// SQL92 expression over the properties, such as "region = 'eu' AND weight > 5"
    #[arg(long, value_name = "EXPR", value_parser = parse_sql)]
    sql: Option<String>,
    /// End after so many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End when nothing came for so long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// One message of a queue after the other, queues locked at their broker (with --group)
    #[arg(long)]
    orderly: bool,
    /// Every member of the group gets every message; offsets are kept on this host
    #[arg(long, requires = "group")]
    broadcast: bool,
    /// Read this queue only
    #[arg(long, value_name = "BROKER:ID", value_parser = parse_queue, conflicts_with = "broadcast")]
    queue: Option<(String, i32)>,
    /// One JSON object per message
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the tool; its exit status.
pub fn run(args: Args) -> i32 {
    // Who waits without end should be told why nothing comes; with --wait the reason is told once, at the end.
    show_log(if args.wait.is_some() { log::LevelFilter::Off } else { log::LevelFilter::Warn });
    finish("consume", consume(&args))
}

fn parse_from(text: &str) -> Result<ConsumeFrom, String> {
    match text {
        "first" => return Ok(ConsumeFrom::First),
        "last" => return Ok(ConsumeFrom::Last),
        _ => {}
    }
    if let Ok(offset) = text.parse::<i64>() {
        return if offset >= 0 { Ok(ConsumeFrom::Offset(offset)) } else { Err("an offset is not negative".to_owned()) };
    }
    let time = text
        .parse::<jiff::Timestamp>()
        .map_err(|error| format!("expected first, last, a time such as 2026-01-31T12:00:00Z, or an offset ({error})"))?;
    Ok(ConsumeFrom::Timestamp(time.as_millisecond()))
}

fn parse_sql(text: &str) -> Result<String, String> {
    Expression::compile(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn consume(args: &Args) -> Result<(), Failure> {
    if args.count == Some(0) {
        return Ok(());
    }
    let stop = stop_flag()?;
    let client = args.cluster.client()?;
    if !topic_exists(args, &client, &stop)? {
        return Ok(());
    }
    let group = args.group.as_deref().unwrap_or(TOOLS_GROUP);
    let builder = client.push_consumer(group);
    let subscribed = match &args.sql {
        Some(expression) => builder.subscribe_sql(&args.topic, expression),
        None => builder.subscribe(&args.topic, &args.filter),
    };
    let mut builder = subscribed.from(ConsumeFrom::First);
    if let Some(from) = args.from {
        builder = builder.exactly_from(from);
    }
    if args.orderly {
        builder = builder.orderly();
    }
    if args.broadcast {
        builder = builder.broadcast();
    }
    if let Some(queue) = &args.queue {
        let queue = queue_of(&args.topic, queue);
        let known = client.instance().route(&args.topic)?.subscribe.clone();
        if !known.contains(&queue) {
            let names: Vec<String> = known.iter().map(|queue| format!("{}:{}", queue.broker_name, queue.queue_id)).collect();
            return Err(Failure::Failed(format!(
                "topic {} has no readable queue {}:{}; it has {}",
                args.topic,
                queue.broker_name,
                queue.queue_id,
                names.join(", ")
            )));
        }
        builder = builder.queues(vec![queue]);
    }
    if args.group.is_none() {
        builder = builder.read_only();
    }
    let consumer = builder.poll()?;
    let printed = print_all(args, &consumer, &stop);
    let committed = consumer.close();
    printed.and_then(|()| committed.map_err(|error| Failure::Failed(format!("not committed, the last messages will come again: {error}"))))
}

/// Waits for the topic, at most as long as for messages. Whether it is there; if not, a signal came.
fn topic_exists(args: &Args, client: &Client, stop: &AtomicBool) -> Result<bool, Failure> {
    let started = Instant::now();
    let mut told = false;
    while !stop.load(Ordering::Acquire) {
        match client.instance().route(&args.topic) {
            Ok(_) => return Ok(true),
            Err(error @ ClientError::NoRoute(..)) => {
                if args.wait.is_some_and(|wait| started.elapsed() >= wait) {
                    return Err(error.into());
                }
                if !told {
                    eprintln!("petrel consume: topic {} does not exist yet; waiting for it", args.topic);
                    told = true;
                }
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Set by SIGINT and SIGTERM: the consumer then commits and leaves its group.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

fn print_all(args: &Args, consumer: &PolledConsumer, stop: &AtomicBool) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout());
    let mut printed = 0;
    let mut last = Instant::now();
    while !stop.load(Ordering::Acquire) {
        let Some(delivery) = consumer.poll(if printed == 0 || out.buffer().is_empty() { LOOK } else { Duration::ZERO }) else {
            out.flush()?;
            if args.wait.is_some_and(|wait| last.elapsed() >= wait) {
                return wait_is_over(args, consumer, printed);
            }
            continue;
        };
        for message in delivery.messages() {
            print(args, &mut out, message)?;
            printed += 1;
        }
        delivery.end(ConsumeStatus::Success);
        last = Instant::now();
        if args.count.is_some_and(|count| printed >= count) {
            break;
        }
    }
    Ok(out.flush()?)
}

/// Nothing came for so long: because nothing is there, or because a server is not.
fn wait_is_over(args: &Args, consumer: &PolledConsumer, printed: u64) -> Result<(), Failure> {
    let came = match args.count {
        Some(count) => format!("{printed} of {count} messages came before the wait was over"),
        None => format!("{printed} messages came before the wait was over"),
    };
    match consumer.check() {
        Err(error) => Err(Failure::Failed(format!("{came}, and there may be more: {error}"))),
        Ok(()) if args.count.is_some() => Err(Failure::Failed(came)),
        Ok(()) => Ok(()),
    }
}

fn print(args: &Args, out: &mut impl io::Write, message: &MessageExt) -> io::Result<()> {
    if args.json {
        writeln!(out, "{}", message_json::message(message))
    } else {
        out.write_all(&message.message.body)?;
        out.write_all(b"\n")
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

    fn parse(line: &[&str]) -> Result<Args, clap::Error> {
        Line::try_parse_from(std::iter::once("consume").chain(line.iter().copied())).map(|line| line.args)
    }

    #[test]
    fn every_option_of_the_contract_is_there() {
        let args =
            parse(&["T", "--group", "g", "--from", "last", "--filter", "a || b", "--count", "5", "--wait", "5s", "--orderly", "--json"])
                .unwrap();
        assert_eq!((args.from, args.count, args.wait), (Some(ConsumeFrom::Last), Some(5), Some(Duration::from_secs(5))));
        assert_eq!(parse(&["T"]).unwrap().from, None);
        assert_eq!(parse(&["T", "--from", "17"]).unwrap().from, Some(ConsumeFrom::Offset(17)));
        let from = parse(&["T", "--from", "2023-11-14T22:13:20Z"]).unwrap().from;
        assert_eq!(from, Some(ConsumeFrom::Timestamp(1_700_000_000_000)));
        assert!(parse(&["T", "--group", "g", "--broadcast"]).is_ok() && parse(&["T", "--queue", "a:0"]).is_ok());
        for bad in [&["T", "--broadcast"][..], &["T", "--from", "yesterday"], &["T", "--from", "-3"], &["T", "--wait", "x"], &[]] {
            assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad:?}");
        }
    }

    #[test]
    fn a_wrong_expression_is_wrong_use() {
        assert_eq!(parse(&["T", "--sql", "a > 1"]).unwrap().sql.as_deref(), Some("a > 1"));
        let error = parse(&["T", "--sql", "a >"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("line 1, column 4"), "{error}");
        assert!(parse(&["T", "--sql", "a = 1", "--filter", "a"]).is_err());
    }
}
