//! `petrel send`: one message from the command line, or one per line of standard input, or generated ones.

use std::io::{self, BufRead as _, Write as _};
use std::time::{Duration, Instant};

use crate::client::{MessageQueue, Producer, ProducerConfig, SendReceipt, SendStatus};
use crate::common::message::Message;

use super::{ClusterArgs, Failure, finish, message_json, parse_property, parse_queue, parse_rate, queue_of, show_log};

/// Body of generated messages when no size is given.
const DEFAULT_SIZE: usize = 128;

/// Send messages: BODY, or each line of standard input, or generated ones (--count, --size)
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Topic; made by the first message where brokers allow it
    topic: String,
    /// Body; without it each line of standard input is a message, but for empty ones
    body: Option<String>,
    /// Tag
    #[arg(long, value_name = "T")]
    tag: Option<String>,
    /// Key by which the message can be found; repeatable
    #[arg(long, value_name = "K")]
    key: Vec<String>,
    /// Property; repeatable
    #[arg(long, value_name = "K=V", value_parser = parse_property)]
    property: Vec<(String, String)>,
    /// Deliver after the delay of this level (1: 1s, 2: 5s, 3: 10s, 4: 30s, 5: 1m … 18: 2h)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    delay_level: Option<u32>,
    /// Deliver at this time, or after it (+30s); not there yet
    #[arg(long, value_name = "RFC3339|+TIME", conflicts_with = "delay_level")]
    deliver_at: Option<String>,
    /// Messages of one sharding key stay in order in one queue
    #[arg(long, value_name = "K", conflicts_with_all = ["queue", "batch", "oneway"])]
    sharding_key: Option<String>,
    /// Send to this queue
    #[arg(long, value_name = "BROKER:ID", value_parser = parse_queue)]
    queue: Option<(String, i32)>,
    /// Producer group
    #[arg(long, value_name = "G", default_value = "petrel_send")]
    group: String,
    /// Send so many messages as one request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,
    /// Do not wait for answers; nothing is printed
    #[arg(long, conflicts_with = "batch")]
    oneway: bool,
    /// Messages per second at most
    #[arg(long, value_name = "N/s", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Send BODY, or generated bodies, so many times
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Length of generated bodies
    #[arg(long, value_name = "BYTES", conflicts_with = "body")]
    size: Option<usize>,
    /// One JSON object per receipt
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the tool; its exit status.
pub fn run(args: Args) -> i32 {
    show_log(log::LevelFilter::Off); // the reason for a failure is told once, at the end
    finish("send", send(&args))
}

fn send(args: &Args) -> Result<(), Failure> {
    if args.deliver_at.is_some() {
        return Err(Failure::Usage("--deliver-at needs timer messages, which this version does not have; --delay-level works".to_owned()));
    }
    if args.delay_level.is_some() && args.batch > 1 {
        return Err(Failure::Usage("messages of a batch cannot be delayed: --delay-level and --batch exclude each other".to_owned()));
    }
    let client = args.cluster.client()?;
    let producer = client.producer_with(&args.group, ProducerConfig { timeout: args.cluster.timeout, ..ProducerConfig::default() })?;
    let mut sender = Sender::new(args, &producer);
    let sent = sender.send_all(bodies(args)?);
    sender.out.flush()?;
    sent.and_then(|()| sender.verdict())?;
    match sender.empty {
        0 => {}
        1 => eprintln!("petrel send: 1 empty line skipped"),
        lines => eprintln!("petrel send: {lines} empty lines skipped"),
    }
    Ok(())
}

/// The bodies to send, one after the other.
type Bodies = Box<dyn Iterator<Item = io::Result<Vec<u8>>>>;

fn bodies(args: &Args) -> Result<Bodies, Failure> {
    if let Some(body) = &args.body {
        let body = body.clone().into_bytes();
        return Ok(Box::new((0..args.count.unwrap_or(1)).map(move |_| Ok(body.clone()))));
    }
    if args.count.is_some() || args.size.is_some() {
        let size = args.size.unwrap_or(DEFAULT_SIZE);
        return Ok(Box::new((0..args.count.unwrap_or(1)).map(move |number| Ok(generated(number, size)))));
    }
    let lines = io::BufReader::new(io::stdin()).split(b'\n');
    Ok(Box::new(lines.map(|line| {
        line.map(|mut line| {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            line
        })
    })))
}

/// A body of `size` bytes that begins with its number: text, so that it can be printed.
fn generated(number: u64, size: usize) -> Vec<u8> {
    let mut body = format!("{number} ").into_bytes();
    let mut random = fastrand::Rng::with_seed(number);
    body.resize_with(size.max(body.len()), || random.alphanumeric() as u8);
    body.truncate(size);
    body
}

struct Sender<'a> {
    args: &'a Args,
    producer: &'a Producer,
    queue: Option<MessageQueue>,
    out: io::BufWriter<io::Stdout>,
    started: Instant,
    sent: u64,
    late: Option<SendStatus>,
    /// Lines of standard input without a character: brokers take no empty body.
    empty: u64,
}

impl<'a> Sender<'a> {
    fn new(args: &'a Args, producer: &'a Producer) -> Self {
        let queue = args.queue.as_ref().map(|queue| queue_of(&args.topic, queue));
        Self { args, producer, queue, out: io::BufWriter::new(io::stdout()), started: Instant::now(), sent: 0, late: None, empty: 0 }
    }

    fn send_all(&mut self, bodies: Bodies) -> Result<(), Failure> {
        let mut waiting: Vec<Message> = Vec::new();
        for body in bodies {
            let body = body.map_err(|error| Failure::Failed(format!("reading standard input: {error}")))?;
            if body.is_empty() && self.reads_lines() {
                self.empty += 1;
                continue;
            }
            waiting.push(self.message(body));
            if waiting.len() >= self.args.batch as usize {
                self.send(&mut waiting)?;
            }
        }
        if waiting.is_empty() { Ok(()) } else { self.send(&mut waiting) }
    }

    /// Whether the bodies are lines of standard input.
    fn reads_lines(&self) -> bool {
        self.args.body.is_none() && self.args.count.is_none() && self.args.size.is_none()
    }

    fn message(&self, body: Vec<u8>) -> Message {
        let mut message = Message::new(self.args.topic.clone(), body);
        for (name, value) in &self.args.property {
            message = message.property(name, value.clone());
        }
        for key in &self.args.key {
            message = message.key(key);
        }
        if let Some(tag) = &self.args.tag {
            message = message.tag(tag.clone());
        }
        if let Some(level) = self.args.delay_level {
            message = message.delay_level(level);
        }
        message
    }

    fn send(&mut self, messages: &mut Vec<Message>) -> Result<(), Failure> {
        self.keep_rate();
        let count = messages.len() as u64;
        let receipt = self.send_once(messages);
        messages.clear();
        match receipt {
            Ok(Some(receipt)) => self.print(&receipt)?,
            Ok(None) => {}
            Err(failure) => return Err(self.after(failure)),
        }
        self.sent += count;
        Ok(())
    }

    fn send_once(&self, messages: &[Message]) -> Result<Option<SendReceipt>, Failure> {
        let producer = self.producer;
        let receipt = match (messages, &self.queue) {
            ([message], Some(queue)) if self.args.oneway => return Ok(producer.send_oneway_to(message, queue).map(|()| None)?),
            ([message], None) if self.args.oneway => return Ok(producer.send_oneway(message).map(|()| None)?),
            (messages, Some(queue)) if self.args.batch > 1 => producer.send_batch_to(messages, queue),
            (messages, None) if self.args.batch > 1 => producer.send_batch(messages),
            ([message], Some(queue)) => producer.send_to(message, queue),
            ([message], None) => match &self.args.sharding_key {
                Some(key) => producer.send_sharded(message, key),
                None => producer.send(message),
            },
            _ => return Ok(None), // without --batch there is exactly one
        };
        Ok(Some(receipt?))
    }

    fn keep_rate(&self) {
        if let Some(rate) = self.args.rate {
            let due = Duration::from_secs_f64(self.sent as f64 / rate);
            if let Some(early) = due.checked_sub(self.started.elapsed()) {
                std::thread::sleep(early);
            }
        }
    }

    fn print(&mut self, receipt: &SendReceipt) -> Result<(), Failure> {
        if receipt.status != SendStatus::Ok {
            self.late = Some(receipt.status);
        }
        if self.args.json {
            writeln!(self.out, "{}", message_json::receipt(receipt))?;
        } else {
            let queue = &receipt.queue;
            let (status, id) = (receipt.status.name(), &receipt.message_id);
            writeln!(self.out, "{status} {id} {}:{} {}", queue.broker_name, queue.queue_id, receipt.queue_offset)?;
        }
        if self.reads_lines() {
            self.out.flush()?; // somebody types, or a pipe that pauses
        }
        Ok(())
    }

    fn after(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Failed(what) if self.sent > 0 => Failure::Failed(format!("{what} (after {} messages)", self.sent)),
            other => other,
        }
    }

    fn verdict(&self) -> Result<(), Failure> {
        self.late.map_or(Ok(()), |status| Err(Failure::Failed(format!("stored, but not as the broker promises: {}", status.name()))))
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
        Line::try_parse_from(std::iter::once("send").chain(line.iter().copied())).map(|line| line.args)
    }

    #[test]
    fn every_option_of_the_contract_is_there() {
        let args = parse(&[
            "T",
            "body",
            "--tag",
            "t",
            "--key",
            "a",
            "--key",
            "b",
            "--property",
            "k=v",
            "--delay-level",
            "3",
            "--queue",
            "broker-a:1",
            "--group",
            "g",
            "--rate",
            "10/s",
            "--count",
            "2",
            "--json",
            "-n",
            "a:1;b:2",
            "--timeout",
            "500ms",
        ])
        .unwrap();
        assert_eq!((args.key.len(), args.queue, args.rate), (2, Some(("broker-a".to_owned(), 1)), Some(10.0)));
        assert_eq!((args.cluster.namesrv.as_str(), args.cluster.timeout), ("a:1;b:2", Duration::from_millis(500)));
        assert!(parse(&["T", "--batch", "32", "--size", "100", "--count", "64"]).is_ok());
        assert!(parse(&["T", "x", "--oneway"]).is_ok() && parse(&["T", "x", "--sharding-key", "k"]).is_ok());
        for bad in [&["T", "x", "--delay-level", "0"][..], &["T", "--batch", "0"], &["T", "--queue", "a"], &["T", "--property", "x"], &[]] {
            assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad:?}");
        }
    }

    #[test]
    fn what_comes_later_is_named() {
        let failure = send(&parse(&["T", "x", "--deliver-at", "+30s"]).unwrap()).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(text) if text.contains("timer")), "{failure:?}");
        let failure = send(&parse(&["T", "x", "--delay-level", "1", "--batch", "2"]).unwrap()).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)));
    }

    #[test]
    fn generated_bodies_have_their_size_and_number() {
        let args = parse(&["T", "--count", "12", "--size", "50"]).unwrap();
        let bodies: Vec<Vec<u8>> = bodies(&args).unwrap().map(Result::unwrap).collect();
        assert_eq!(bodies.len(), 12);
        assert!(bodies.iter().all(|body| body.len() == 50));
        assert!(bodies[11].starts_with(b"11 ") && bodies[3] != bodies[4]);
        assert_eq!(generated(123, 2), b"12");
    }
}
