//! The broker under load: finding it, making the topic, asking for offsets, connecting.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::client::transport::{TcpTransport, Transport};
use crate::net::client::RemotingClientConfig;
use crate::remoting::body::route::TopicRouteData;
use crate::remoting::code::{request, response};
use crate::remoting::command::{Body, OwnedCommand};
use crate::remoting::ext::CustomHeader;

use crate::common::topic::TBW102;

/// Time for one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long sent messages may take to be visible to consumers.
const DISPATCH: Duration = Duration::from_secs(30);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// A broker and a way to ask it.
pub struct Target {
    transport: TcpTransport,
    address: String,
}

impl Target {
    /// The broker at `address`.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn broker(address: &str) -> Result<Self, String> {
        let transport =
            TcpTransport::start(RemotingClientConfig::default()).map_err(|error| format!("cannot start the net thread: {error}"))?;
        Ok(Self { transport, address: address.to_owned() })
    }

    /// The first master that a name server knows for topics that are made by their first message, or for any.
    ///
    /// # Errors
    /// When none answers or none is known.
    pub fn of_namesrv(addresses: &str) -> Result<Self, String> {
        let mut last = "no name server address is given".to_owned();
        for namesrv in addresses.split(';').map(str::trim).filter(|address| !address.is_empty()) {
            let mut target = Self::broker(namesrv)?;
            match target.first_master() {
                Ok(master) => {
                    target.address = master;
                    return Ok(target);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn first_master(&self) -> Result<String, String> {
        let answer = self.call(request::GET_ROUTEINFO_BY_TOPIC, &[("topic", TBW102)])?;
        let text = std::str::from_utf8(answer.view().body).map_err(|error| error.to_string())?.to_owned();
        let route = TopicRouteData::from_json(&text)?;
        let master = route.broker_datas.iter().find_map(|broker| broker.broker_addrs.get(&0).cloned());
        master.ok_or_else(|| format!("{} knows no master; name one with --addr", self.address))
    }

    /// Address of the broker.
    pub fn address(&self) -> &str {
        &self.address
    }

    fn call(&self, code: i32, header: &dyn CustomHeader) -> Result<OwnedCommand, String> {
        let answer = self.transport.invoke(&self.address, code, header, Body::Empty, TIMEOUT).map_err(|error| error.to_string())?;
        let failure = {
            let view = answer.view();
            let remark = view.remark.as_deref().unwrap_or_default();
            (view.code != response::SUCCESS).then(|| format!("{} answered request {code} with code {}: {remark}", self.address, view.code))
        };
        failure.map_or(Ok(answer), Err)
    }

    /// Makes the topic, or gives it so many queues.
    ///
    /// # Errors
    /// The broker's.
    pub fn make_topic(&self, topic: &str, queues: i32) -> Result<(), String> {
        let queues = queues.to_string();
        let header = [
            ("topic", topic),
            ("defaultTopic", TBW102),
            ("readQueueNums", queues.as_str()),
            ("writeQueueNums", queues.as_str()),
            ("perm", "6"),
            ("topicFilterType", "SINGLE_TAG"),
            ("topicSysFlag", "0"),
            ("order", "false"),
        ];
        self.call(request::UPDATE_AND_CREATE_TOPIC, &header).map(|_| ())
    }

    /// Smallest offset of a queue, and the one behind its last message.
    ///
    /// # Errors
    /// The broker's.
    pub fn range(&self, topic: &str, queue_id: i32) -> Result<(i64, i64), String> {
        let id = queue_id.to_string();
        let header = [("topic", topic), ("queueId", id.as_str())];
        let offset = |code| self.call(code, &header)?.view().ext.need_i64("offset").map_err(|error| error.to_string());
        Ok((offset(request::GET_MIN_OFFSET)?.max(0), offset(request::GET_MAX_OFFSET)?.max(0)))
    }

    /// Sum of the ends of all queues.
    ///
    /// # Errors
    /// The broker's.
    pub fn total(&self, topic: &str, queues: i32) -> Result<i64, String> {
        (0..queues).map(|queue| self.range(topic, queue).map(|(_, end)| end)).sum()
    }

    /// Waits until the queues hold at least `expected` messages in all, or do not grow any more; how many they hold.
    ///
    /// # Errors
    /// The broker's.
    pub fn await_total(&self, topic: &str, queues: i32, expected: i64) -> Result<i64, String> {
        let (mut last, mut since) = (self.total(topic, queues)?, Instant::now());
        let deadline = since + DISPATCH;
        while last < expected && since.elapsed() < Duration::from_secs(2) && Instant::now() < deadline {
            std::thread::sleep(LOOK);
            let total = self.total(topic, queues)?;
            if total != last {
                (last, since) = (total, Instant::now());
            }
        }
        Ok(last)
    }

    /// `count` new connections.
    ///
    /// # Errors
    /// The address and the system's reason.
    pub fn connect(&self, count: usize) -> Result<Vec<TcpStream>, String> {
        let failed = |error: std::io::Error| format!("connect to {} failed: {error}", self.address);
        let address = self.address.to_socket_addrs().map_err(failed)?.next().ok_or_else(|| format!("{} does not resolve", self.address))?;
        (0..count)
            .map(|_| {
                let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                Ok(stream)
            })
            .collect()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.transport.shutdown();
    }
}
