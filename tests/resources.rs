//! What an idle server costs: memory, memory per connection, disk.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Anonymous memory that an idle server may have, in KiB.
const IDLE_KIB: u64 = 20 << 10;
/// Bytes of anonymous memory that an idle connection may cost.
const CONNECTION_BYTES: u64 = 4 << 10;
/// Connections wanted; fewer when the system allows this process fewer descriptors.
const CONNECTIONS: u64 = 10_000;
/// Real disk that a store with one message may take, in bytes.
const STORE_BYTES: u64 = 5_000_000;

struct Server {
    child: Child,
    namesrv: String,
    broker: String,
}

impl Server {
    fn start(store: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_petrel"))
            .args(["server", "--bind", "127.0.0.1", "--port", "0", "--namesrv-port", "0", "--ready-json", "-q", "--store"])
            .arg(store)
            .stdout(Stdio::piped())
            .spawn()
            .expect("petrel starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line).expect("ready line");
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("ready line {line:?}: {error}"));
        let text = |name: &str| ready[name].as_str().expect("an address").to_owned();
        Self { child, namesrv: text("namesrv"), broker: text("broker") }
    }

    /// Anonymous resident memory in KiB.
    fn anonymous_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Open descriptors.
    fn descriptors(&self) -> u64 {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("the server runs").count() as u64
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes of real disk below a folder.
fn disk_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .map(|path| {
            let metadata = std::fs::symlink_metadata(&path).expect("metadata");
            if metadata.is_dir() { disk_bytes(&path) } else { metadata.blocks() * 512 }
        })
        .sum()
}

#[test]
fn an_idle_server_and_its_idle_connections_are_small() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let wanted = CONNECTIONS.min(allowed.saturating_sub(100));
    assert!(wanted >= 500, "this process may open only {allowed} files");

    let folder = tempfile::tempdir().expect("temporary folder");
    let server = Server::start(folder.path());
    let idle = server.anonymous_kib();
    assert!(idle < IDLE_KIB, "an idle server has {idle} KiB of anonymous memory");

    let before = server.descriptors();
    let connections: Vec<TcpStream> = (0..wanted).map(|_| TcpStream::connect(&server.broker).expect("a connection")).collect();
    wait_until("all connections are accepted", || server.descriptors() >= before + wanted);
    let grown = server.anonymous_kib().saturating_sub(idle) * 1024;
    assert!(grown < wanted * CONNECTION_BYTES, "{wanted} idle connections cost {grown} bytes of anonymous memory");
    drop(connections);
    wait_until("all connections are gone", || server.descriptors() <= before);
}

#[test]
fn one_message_takes_little_disk() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let server = Server::start(folder.path());
    let status = Command::new(env!("CARGO_BIN_EXE_petrel"))
        .args(["send", "T", "one message", "--key", "k", "-n", &server.namesrv])
        .stdout(Stdio::null())
        .status()
        .expect("petrel runs");
    assert!(status.success());
    let bytes = disk_bytes(folder.path());
    assert!(bytes < STORE_BYTES, "a store with one message takes {bytes} bytes of disk");
}
