//! A `petrel server` in a process of its own, on free ports of loopback; killed when dropped.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

pub struct Server {
    child: Child,
    ready: serde_json::Value,
}

/// How a server is started.
#[derive(Clone, Default)]
#[allow(dead_code, reason = "each test uses what it needs")]
pub struct Launch {
    store: Option<PathBuf>,
    set: Vec<String>,
    env: Vec<(OsString, OsString)>,
    log: Option<PathBuf>,
}

/// A start that did not come to serving.
#[derive(Debug)]
#[allow(dead_code, reason = "each test uses what it needs")]
pub struct Refused {
    pub status: ExitStatus,
    /// What was printed.
    pub text: String,
}

#[allow(dead_code, reason = "each test uses what it needs")]
impl Launch {
    /// With data in `store`.
    pub fn on(store: &Path) -> Self {
        Self { store: Some(store.to_owned()), ..Self::default() }
    }

    /// With a configuration key.
    pub fn set(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.set.push(format!("{key}={value}"));
        self
    }

    /// With an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// With its log (and what it prints on standard error) at the end of a file.
    pub fn log(mut self, path: &Path) -> Self {
        self.log = Some(path.to_owned());
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_petrel"));
        command.args(["server", "--bind", "127.0.0.1", "--port", "0", "--namesrv-port", "0", "--ready-json"]);
        match &self.store {
            Some(store) => command.arg("--store").arg(store),
            None => command.arg("--ephemeral"),
        };
        for assignment in &self.set {
            command.args(["--set", assignment]);
        }
        match &self.log {
            Some(log) => command.stderr(File::options().create(true).append(true).open(log).expect("log file")),
            None => command.arg("-q"),
        };
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts the process, which may not serve yet.
    pub fn spawn(&self) -> Child {
        self.command().stdout(Stdio::null()).spawn().expect("petrel starts")
    }

    /// Starts and waits until it serves.
    pub fn start(&self) -> Server {
        let mut child = self.command().stdout(Stdio::piped()).spawn().expect("petrel starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line).expect("ready line");
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("ready line {line:?}: {error}"));
        Server { child, ready }
    }

    /// Starts, and expects that it does not come to serving.
    pub fn refused(&self) -> Refused {
        let mut command = self.command();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("petrel starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line).expect("end of output");
        assert_eq!(line, "", "it serves");
        let mut text = String::new();
        child.stderr.take().expect("stderr is piped").read_to_string(&mut text).expect("text");
        Refused { status: child.wait().expect("the process ends"), text }
    }
}

#[allow(dead_code, reason = "each test uses what it needs")]
impl Server {
    /// Starts with data in `store`, or in a temporary folder, and waits until it serves.
    pub fn start(store: Option<&Path>) -> Self {
        Launch { store: store.map(Path::to_owned), ..Launch::default() }.start()
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

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("the process is there");
    }

    /// SIGTERM; how the process ended.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
