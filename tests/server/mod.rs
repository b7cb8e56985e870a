//! A `petrel server` in a process of its own, on free ports of loopback; killed when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub struct Server {
    child: Child,
    ready: serde_json::Value,
}

#[allow(dead_code, reason = "each test uses what it needs")]
impl Server {
    /// Starts with data in `store`, or in a temporary folder, and waits until it serves.
    pub fn start(store: Option<&Path>) -> Self {
        Self::start_with(store, &[])
    }

    /// As [`Server::start`], with settings of its own (`key=value`).
    pub fn start_with(store: Option<&Path>, settings: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_petrel"));
        command.args(["server", "--bind", "127.0.0.1", "--port", "0", "--namesrv-port", "0", "--ready-json", "-q"]);
        settings.iter().for_each(|setting| {
            command.args(["--set", setting]);
        });
        match store {
            Some(store) => command.arg("--store").arg(store),
            None => command.arg("--ephemeral"),
        };
        let mut child = command.stdout(Stdio::piped()).spawn().expect("petrel starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line).expect("ready line");
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("ready line {line:?}: {error}"));
        Self { child, ready }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The broker's address.
    pub fn broker(&self) -> &str {
        self.ready["broker"].as_str().expect("an address")
    }

    /// The name server's address.
    pub fn namesrv(&self) -> &str {
        self.ready["namesrv"].as_str().expect("an address")
    }

    /// SIGKILL; returns when the process has ended.
    pub fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("the process ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
