//! A running name server: its sockets, and the thread that looks for silent brokers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::config::namesrv::NamesrvConfig;
use crate::net::connection::Connection;
use crate::net::responder::Responder;
use crate::net::server::{Listener, Server, ServerConfig};
use crate::net::service::{Lane, LaneKind, LaneWaker, Placement, Port, Service};
use crate::remoting::command::Command;
use crate::runtime::clock::Clock;
use crate::runtime::port_holder;
use crate::runtime::thread::Thread;

use super::address::Viewer;
use super::processor::{Origin, Processor, placement};

/// A body beyond this is read on a work thread: a registration of many topics would hold the net thread up, bytes.
const MAX_INLINE_BODY: usize = 256 << 10;
/// One thread for the few requests that write files.
const WORK_THREADS: usize = 1;
/// Time that a dropped name server takes to stop.
const DROP_DEADLINE: Duration = Duration::from_secs(3);

/// A name server. Dropping it stops it.
pub struct Namesrv {
    processor: Arc<Processor>,
    server: Server,
    address: SocketAddr,
    scan: Scan,
}

impl Namesrv {
    /// Binds, loads the KV configuration, serves.
    ///
    /// # Errors
    /// One line for a person: port taken, file unreadable.
    pub fn start(config: NamesrvConfig, clock: Clock) -> Result<Self, String> {
        let wanted = SocketAddr::new(config.bind_address, config.listen_port);
        let listener = Listener::bind(wanted, Port::Main).map_err(|error| port_holder::bind_failure(wanted, &error))?;
        let address = listener.address();
        let server_config = ServerConfig {
            tag: config.tag.clone(),
            net_threads: config.net_threads.unwrap_or(1),
            work_threads: WORK_THREADS,
            idle: Duration::from_secs(config.idle_seconds),
            ..ServerConfig::default()
        };
        let (tag, scan_interval) = (config.tag.clone(), Duration::from_millis(config.scan_interval_ms));
        let processor = Arc::new(Processor::new(config, clock)?);
        let service = Arc::new(NamesrvService { processor: Arc::clone(&processor) });
        let server = Server::start(server_config, vec![listener], service)
            .map_err(|error| format!("cannot start the name server's threads: {error}"))?;
        let scan = Scan::start(&tag, scan_interval, Arc::clone(&processor))
            .map_err(|error| format!("cannot start the name server's threads: {error}"))?;
        log::info!("name server listens: address={address}");
        Ok(Self { processor, server, address, scan })
    }

    /// Address listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the broker of this process registers with, so that clients are told the address by which they came.
    pub fn own_broker_token(&self) -> &str {
        self.processor.own_token()
    }

    /// Whether a broker of this name is in the route table.
    pub fn knows_broker(&self, broker_name: &str) -> bool {
        self.processor.knows_broker(broker_name)
    }

    /// Waits until a broker of this name is in the route table; false when it is not in time.
    pub fn wait_for_broker(&self, broker_name: &str, patience: Duration) -> bool {
        self.processor.wait_for_broker(broker_name, patience)
    }

    /// Stops; at most `deadline`. Twice is harmless.
    pub fn shutdown(&self, deadline: Duration) {
        self.scan.stop();
        self.server.stop_reading();
        self.server.shutdown(deadline);
        self.processor.shutdown();
    }
}

impl Drop for Namesrv {
    fn drop(&mut self) {
        self.shutdown(DROP_DEADLINE);
    }
}

/// Looks for silent brokers at an interval.
struct Scan {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<Thread>>,
}

impl Scan {
    fn start(tag: &str, interval: Duration, processor: Arc<Processor>) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let thread = Thread::spawn(tag, "scan", {
            let stop = Arc::clone(&stop);
            move || {
                let (stopped, wake) = &*stop;
                let mut stopped = stopped.lock();
                while !*stopped {
                    if wake.wait_for(&mut stopped, interval).timed_out() {
                        processor.expire();
                    }
                }
            }
        })?;
        Ok(Self { stop, thread: Mutex::new(Some(thread)) })
    }

    fn stop(&self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            thread.join();
        }
    }
}

struct NamesrvService {
    processor: Arc<Processor>,
}

impl Service for NamesrvService {
    fn placement(&self, code: i32, _port: Port) -> Placement {
        placement(code)
    }

    fn lane(&self, kind: LaneKind, _waker: LaneWaker) -> Box<dyn Lane> {
        Box::new(NamesrvLane { processor: Arc::clone(&self.processor), kind })
    }

    fn closed(&self, connection: &Connection) {
        self.processor.connection_closed(connection.id());
    }
}

struct NamesrvLane {
    processor: Arc<Processor>,
    kind: LaneKind,
}

impl Lane for NamesrvLane {
    fn handle(&mut self, request: &Command<'_>, responder: Responder) {
        if self.kind == LaneKind::Net && request.body.len() > MAX_INLINE_BODY {
            responder.defer(request);
            return;
        }
        let connection = responder.connection().clone();
        let origin = Origin { connection: connection.id(), viewer: Viewer::new(connection.local().ip()) };
        let answer = self.processor.answer(request, origin);
        if self.kind == LaneKind::Work && !connection.is_open() {
            // It may have closed while this registration waited for a work thread: nobody would take it away again.
            self.processor.connection_closed(connection.id());
        }
        responder.reply(answer.code, answer.remark.as_deref(), &answer.header, answer.body);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use crate::common::topic::{DataVersion, TopicConfig};
    use crate::net::client::{RemotingClient, RemotingClientConfig};
    use crate::remoting::body::namesrv::topic_list_from_json;
    use crate::remoting::body::register::register_body_json;
    use crate::remoting::command::{Body, OwnedCommand};
    use crate::remoting::header::namesrv::BrokerIdentity;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn start(folder: &std::path::Path, port: u16) -> Result<Namesrv, String> {
        let config = NamesrvConfig { bind_address: Ipv4Addr::LOCALHOST.into(), listen_port: port, ..NamesrvConfig::new(folder) };
        Namesrv::start(config, Clock::System)
    }

    fn ask(client: &RemotingClient, namesrv: &Namesrv, code: i32, fields: &[(&str, &str)]) -> OwnedCommand {
        client.invoke(&namesrv.address().to_string(), code, fields, Body::Empty, PATIENCE).unwrap()
    }

    #[test]
    fn serves_over_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let namesrv = start(folder.path(), 0).unwrap();
        let client = RemotingClient::start(RemotingClientConfig::default()).unwrap();
        let topics: Vec<_> = (0..3_000).map(|at| Arc::new(TopicConfig::new(format!("topic-{at:04}"), 4, 6))).collect();
        let body = register_body_json(&topics, &DataVersion::default());
        assert!(body.len() > MAX_INLINE_BODY, "goes to a work thread");
        let broker = BrokerIdentity {
            broker_name: "b".to_owned(),
            broker_addr: "10.0.0.1:1".to_owned(),
            cluster_name: "c".to_owned(),
            broker_id: 0,
        };
        let answer = client.invoke(&namesrv.address().to_string(), 103, &broker, body.into(), PATIENCE).unwrap();
        assert_eq!(answer.view().code, 0);
        assert!(namesrv.knows_broker("b"));
        assert_eq!(topic_list_from_json(ask(&client, &namesrv, 206, &[]).view().body).unwrap().len(), 3_000);
        let put = ask(&client, &namesrv, 100, &[("namespace", "N"), ("key", "k"), ("value", "v")]);
        assert_eq!(put.view().code, 0);
        assert_eq!(ask(&client, &namesrv, 101, &[("namespace", "N"), ("key", "k")]).view().ext.text("value").as_deref(), Some("v"));
        let unknown = ask(&client, &namesrv, 10, &[]);
        assert_eq!((unknown.view().code, unknown.view().remark.as_deref()), (3, Some(" request type 10 not supported")));
        namesrv.shutdown(PATIENCE);
        namesrv.shutdown(PATIENCE);
    }

    #[test]
    fn a_taken_port_is_told_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let namesrv = start(folder.path(), 0).unwrap();
        let error = start(folder.path(), namesrv.address().port()).map(|_| ()).unwrap_err();
        assert!(error.contains(&namesrv.address().to_string()) && error.lines().count() == 1, "{error}");
    }
}
