//! What an idle server costs: memory, memory per connection, disk.

mod server;

use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::Server;

/// Anonymous memory that an idle server may have, in KiB.
const IDLE_KIB: u64 = 20 << 10;
/// Bytes of anonymous memory that an idle connection may cost.
const CONNECTION_BYTES: u64 = 4 << 10;
/// Connections wanted; fewer when the system allows this process fewer descriptors.
const CONNECTIONS: u64 = 10_000;
/// Real disk that a store with one message may take, in bytes.
const STORE_BYTES: u64 = 5_000_000;

/// Anonymous resident memory in KiB.
fn anonymous_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Open descriptors.
fn descriptors(server: &Server) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the server runs").count() as u64
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
    let server = Server::start(Some(folder.path()));
    let idle = anonymous_kib(&server);
    assert!(idle < IDLE_KIB, "an idle server has {idle} KiB of anonymous memory");

    let before = descriptors(&server);
    let connections: Vec<TcpStream> = (0..wanted).map(|_| TcpStream::connect(server.broker()).expect("a connection")).collect();
    wait_until("all connections are accepted", || descriptors(&server) >= before + wanted);
    let grown = anonymous_kib(&server).saturating_sub(idle) * 1024;
    assert!(grown < wanted * CONNECTION_BYTES, "{wanted} idle connections cost {grown} bytes of anonymous memory");
    drop(connections);
    wait_until("all connections are gone", || descriptors(&server) <= before);
}

#[test]
fn one_message_takes_little_disk() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let server = Server::start(Some(folder.path()));
    let status = Command::new(env!("CARGO_BIN_EXE_petrel"))
        .args(["send", "T", "one message", "--key", "k", "-n", server.namesrv()])
        .stdout(Stdio::null())
        .status()
        .expect("petrel runs");
    assert!(status.success());
    let bytes = disk_bytes(folder.path());
    assert!(bytes < STORE_BYTES, "a store with one message takes {bytes} bytes of disk");
}
