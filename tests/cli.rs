//! The executable as scripts see it: exit statuses, the ready line, signals, one-line errors.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use petrel::net::client::{RemotingClient, RemotingClientConfig};
use petrel::remoting::body::route::TopicRouteData;
use petrel::remoting::command::Body;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than anything here takes; a test that waits so long fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn petrel() -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_petrel")))
}

fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env_remove("NAMESRV_ADDR").env_remove("RUST_LOG");
    command
}

/// A running server; killed when it is dropped.
struct Server {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    ready: Value,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        Self::spawn(petrel().args(arguments).arg("--ready-json"))
    }

    fn spawn(command: &mut Command) -> Self {
        let (mut this, line) = Self::spawn_and_read(command);
        this.ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?} {}", this.complaint()));
        this
    }

    fn spawn_and_read(command: &mut Command) -> (Self, String) {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut this = Self { child, out, ready: Value::Null };
        let mut line = String::new();
        this.out.read_line(&mut line).unwrap(); // ends when the process does
        (this, line)
    }

    fn text(&self, member: &str) -> &str {
        self.ready[member].as_str().unwrap_or_else(|| panic!("{member} in {}", self.ready))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Stops it in order; what it wrote to standard error.
    fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        assert_eq!(self.wait().code(), Some(0));
        self.complaint()
    }

    fn complaint(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may be gone
        let _ = self.child.wait();
    }
}

/// Runs to the end; status and standard error.
fn fails(arguments: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = petrel().args(arguments).current_dir(folder.path()).env("HOME", folder.path()).output().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something was created: {arguments:?}");
    assert!(output.stdout.is_empty());
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Text of the answer to a request that must succeed: its remark and its body.
fn ask(address: &str, code: i32, body: &str) -> (String, String) {
    let client = RemotingClient::start(RemotingClientConfig::default()).unwrap();
    let answer = client.invoke(address, code, &[], Body::Owned(body.into()), PATIENCE).unwrap();
    let answer = answer.view();
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    (answer.remark.unwrap_or_default().to_string(), String::from_utf8_lossy(answer.body).into_owned())
}

fn route(namesrv: &str, topic: &str) -> TopicRouteData {
    let client = RemotingClient::start(RemotingClientConfig::default()).unwrap();
    let answer = client.invoke(namesrv, 105, &[("topic", topic)], Body::Empty, PATIENCE).unwrap();
    assert_eq!(answer.view().code, 0, "{:?}", answer.view().remark);
    TopicRouteData::from_json(std::str::from_utf8(answer.view().body).unwrap()).unwrap()
}

#[test]
fn wrong_use_is_status_2_and_starts_nothing() {
    for (arguments, expected) in [
        (&["--no-such-option"][..], "--no-such-option"),
        (&["server", "--port", "x"], "invalid value 'x'"),
        (&["server", "--set", "brokerNmae=x"], "petrel: --set: unknown key brokerNmae, nearest known key brokerName"),
        (&["server", "--set", "listenPort=abc"], "listenPort=abc: expected a 32-bit integer from 0 to 65535"),
        (&["broker", "--set", "flushDiskType=MAYBE"], "expected SYNC_FLUSH or ASYNC_FLUSH"),
        (&["broker", "--set", "brokerRole=SLAVE"], "replication comes with a later version"),
        (&["namesrv", "-c", "/no/such/file.conf"], "/no/such/file.conf"),
        (&["broker", "-n", "host:port"], "port \"port\" is no number"),
        (&["controller"], "later version"),
        (&["doctor"], "later version"),
    ] {
        let (status, text) = fails(arguments);
        assert_eq!(status, 2, "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    let (_, text) = fails(&["server", "--set", "listenPort=abc", "--set", "brokerId=x"]);
    assert_eq!(text.lines().count(), 2, "all at once, one line each: {text}");
}

#[test]
fn help_and_version_are_no_errors() {
    let output = petrel().arg("--help").output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["server", "namesrv", "broker", "send", "consume", "topic", "bench", "store", "--ephemeral"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(petrel().arg("--version").output().unwrap().status.success());
}

#[test]
fn an_ephemeral_server_serves_and_leaves_nothing() {
    let mut server = Server::start(&["--ephemeral", "--set", "brokerName=broker-x"]);
    assert_eq!(server.ready["ready"], Value::Bool(true));
    assert_eq!(server.ready["pid"].as_u64(), Some(server.child.id().into()));
    assert_eq!(server.text("brokerName"), "broker-x");
    assert!(server.ready["startMs"].is_u64());
    let members: Vec<&str> = server.ready.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, ["ready", "pid", "namesrv", "broker", "brokerName", "store", "startMs"]);
    let store = server.text("store").to_owned();
    assert!(Path::new(&store).join("abort").exists());
    let broker = server.text("broker").to_owned();
    let found = route(server.text("namesrv"), "TBW102");
    assert_eq!(found.broker_datas[0].broker_addrs[&0], broker, "registered before the ready line");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    assert!(!Path::new(&store).exists());
    let mut rest = String::new();
    server.out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "one line only");
}

#[test]
fn each_client_is_told_the_address_by_which_it_came() {
    let server = Server::start(&["server", "--ephemeral"]);
    let (namesrv, broker): (SocketAddr, SocketAddr) = (server.text("namesrv").parse().unwrap(), server.text("broker").parse().unwrap());
    let told = |host: std::net::IpAddr| {
        route(&SocketAddr::new(host, namesrv.port()).to_string(), "TBW102").broker_datas[0].broker_addrs[&0].clone()
    };
    assert_eq!(told("127.0.0.1".parse().unwrap()), format!("127.0.0.1:{}", broker.port()));
    assert_eq!(told("127.0.0.2".parse().unwrap()), format!("127.0.0.2:{}", broker.port()));
    if let Some(address) = petrel::config::host::first_address() {
        assert_eq!(told(address.into()), format!("{address}:{}", broker.port()));
    }
    server.stop();

    let server = Server::start(&["server", "--ephemeral", "--advertise", "192.0.2.7:7"]);
    assert_eq!(route(server.text("namesrv"), "TBW102").broker_datas[0].broker_addrs[&0], "192.0.2.7:7");
    server.stop();
}

#[test]
fn a_broker_registers_with_a_name_server_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("data");
    let namesrv = Server::start(&["namesrv", "--port", "0", "--store", store.to_str().unwrap()]);
    assert!(namesrv.ready.get("broker").is_none() && namesrv.ready.get("store").is_none());
    assert!(!store.exists(), "a name server writes only what it is told to keep");
    let broker = Server::start(&["broker", "--ephemeral", "-n", namesrv.text("namesrv"), "--set", "brokerName=b"]);
    assert!(broker.ready.get("namesrv").is_none());
    let deadline = Instant::now() + PATIENCE;
    let client = RemotingClient::start(RemotingClientConfig::default()).unwrap();
    let code = || client.invoke(namesrv.text("namesrv"), 105, &[("topic", "b")], Body::Empty, PATIENCE).unwrap().view().code;
    while code() != 0 {
        assert!(Instant::now() < deadline);
        std::thread::park_timeout(Duration::from_millis(5));
    }
    broker.stop();
    assert_eq!(code(), 17, "unregistered");
    let text = Server::start(&["broker", "--ephemeral"]).stop();
    assert!(text.contains("unregistered"), "{text}");
}

#[test]
fn a_taken_port_is_status_1_and_names_its_holder() {
    let holder = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    for arguments in
        [&["namesrv", "--port", &port][..], &["server", "--ephemeral", "--namesrv-port", &port], &["broker", "--ephemeral", "-p", &port]]
    {
        let output = petrel().args(arguments).arg("-q").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        let line = text.lines().last().unwrap();
        assert!(line.starts_with("petrel: ") && line.contains(&port), "{text}");
        assert!(line.contains(&format!("process {}", std::process::id())), "{text}");
    }
}

#[test]
fn a_store_belongs_to_one_broker() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().to_str().unwrap();
    let server = Server::start(&["server", "--port", "0", "--store", store]);
    assert_eq!(server.text("store"), store);
    let output = petrel().args(["broker", "--port", "0", "--store", store]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.lines().last().unwrap().contains(store), "{text}");
    server.stop();
    assert!(!folder.path().join("abort").exists(), "stopped in order");
    Server::start(&["server", "--port", "0", "--store", store]).stop();
}

#[test]
fn damaged_metadata_is_status_1_and_names_both_copies() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().to_str().unwrap();
    let config = folder.path().join("config");
    let start = ["broker", "--port", "0", "--bind", "127.0.0.1", "--store", store];
    let allowed = [&start[..], &["--set", "allowEmptyConfigOnCorruption=true"]].concat();
    Server::start(&start).stop();
    for name in ["topics.json", "subscriptionGroup.json", "consumerOffset.json"] {
        let file = config.join(name);
        let _ = std::fs::remove_file(config.join(format!("{name}.bak"))); // it may not be there
        for damage in ["{\"dataVersion\":{\"counter\":", "garbage", "\0\0\0"] {
            std::fs::write(&file, damage).unwrap();
            for _ in 0..2 {
                let (status, text) = fails(&start);
                let error = text.lines().last().unwrap();
                assert!(
                    status == 1
                        && error.starts_with("petrel: ")
                        && error.contains(&format!("{name} "))
                        && error.contains(&format!("{name}.bak ")),
                    "{status} {text}"
                );
                assert_eq!(std::fs::read_to_string(&file).unwrap(), damage);
            }
        }
        Server::start(&allowed).stop();
        let kept = std::fs::read_dir(&config).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(kept.filter(|kept| kept.starts_with(&format!("{name}.corrupt."))).count(), 1);
        std::fs::write(&file, "").unwrap();
        Server::start(&start).stop();
    }
    std::fs::write(config.join("stats.json"), "garbage").unwrap();
    std::fs::write(config.join("stats.json.bak"), "garbage").unwrap();
    let text = Server::start(&start).stop();
    assert!(text.contains("stats.json"), "{text}");
}

#[test]
fn changed_configuration_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "# mine\nfileReservedTime = 72\n").unwrap();
    for with_file in [false, true] {
        let store = folder.path().join(format!("store-{with_file}"));
        let mut arguments = vec!["broker", "--port", "0", "--bind", "127.0.0.1", "--store", store.to_str().unwrap()];
        if with_file {
            arguments.extend(["-c", file.to_str().unwrap()]);
        }
        let server = Server::start(&arguments);
        let (remark, _) = ask(server.text("broker"), 25, "brokerPermission=4\nfileReservedTime=48\nmaxMessageSize=1000\n");
        assert!(remark.contains("next start") && remark.contains("fileReservedTime") && remark.contains("maxMessageSize"), "{remark}");
        assert!(!remark.contains("brokerPermission"), "{remark}");
        server.stop();
        let server = Server::start(&arguments);
        let (_, text) = ask(server.text("broker"), 26, "");
        for line in ["brokerPermission=4", "fileReservedTime=48", "maxMessageSize=1000"] {
            assert!(text.lines().any(|other| other == line), "{line}, file {with_file}: {text}");
        }
        server.stop();
    }
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("# mine\n"));
}

/// Runs `petrel store`; status, standard output, standard error.
fn store_tool(arguments: &[&str]) -> (i32, String, String) {
    let output = petrel().arg("store").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn files_below(folder: &Path) -> Vec<(std::path::PathBuf, u64, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.metadata().unwrap();
        if metadata.is_dir() {
            found.extend(files_below(&path));
        }
        found.push((path, metadata.len(), metadata.modified().unwrap()));
    }
    found.sort();
    found
}

/// Small files: a check reads holes as well.
const SMALL_FILES: [&str; 8] = [
    "--set",
    "mappedFileSizeCommitLog=1048576",
    "--set",
    "mappedFileSizeConsumeQueue=2000",
    "--set",
    "maxHashSlotNum=1000",
    "--set",
    "maxIndexNum=4000",
];

#[test]
fn a_stopped_store_is_checked_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("data");
    let store = store.to_str().unwrap();
    let server = Server::start(&[&["server", "--port", "0", "--store", store][..], &SMALL_FILES].concat());
    let namesrv = server.text("namesrv").to_owned();
    for body in ["one", "two", "three"] {
        let sent = petrel().args(["send", "orders", body, "--key", body, "-n", &namesrv]).output().unwrap();
        assert!(sent.status.success());
    }
    let (status, out, err) = store_tool(&["check", store]);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    assert!(err.contains(store) && err.contains("--running") && err.lines().count() == 1, "{err}");
    assert_eq!(store_tool(&["repair", store, "--apply"]).0, 1);
    let (status, out, _) = store_tool(&["check", store, "--running", "--json"]);
    assert_eq!(status, 0, "{out}");
    server.stop();

    let before = files_below(Path::new(store));
    let (status, out, err) = store_tool(&["check", store]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("3 records") && out.contains("clean"), "{out}");
    let (status, out, _) = store_tool(&["check", store, "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, &report["clean"], &report["damaged"]), (0, &Value::Bool(true), &Value::Bool(false)));
    assert_eq!(report["counts"]["records"], 3);
    assert_eq!(report["sizes"]["mappedFileSizeCommitLog"], 1_048_576);
    assert_eq!(report["findings"][0]["kind"], "foundSizes");
    assert_eq!(store_tool(&["repair", store]).0, 0, "nothing to do");
    assert_eq!(files_below(Path::new(store)), before, "nothing was touched");

    std::fs::remove_dir_all(Path::new(store).join("consumequeue")).unwrap();
    let topics = Path::new(store).join("config/topics.json");
    let content = std::fs::read(&topics).unwrap();
    std::fs::write(&topics, "{").unwrap();
    let before = files_below(Path::new(store));
    let (status, out, _) = store_tool(&["check", store, "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, &report["damaged"], &report["worst"]), (1, &Value::Bool(true), &Value::from("error")));
    let kinds: Vec<&str> = report["findings"].as_array().unwrap().iter().map(|group| group["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"queueMissing") && kinds.iter().any(|kind| kind.starts_with("metadata")), "{kinds:?}");
    let (status, out, _) = store_tool(&["check", store]);
    assert!(
        status == 1 && out.contains("damaged: ") && out.contains("petrel store repair") && out.contains("consumequeue/orders"),
        "{out}"
    );
    let (status, _, err) = store_tool(&["repair", store]);
    assert!(status == 1 && err.contains("mappedFileSizeConsumeQueue: give the broker's configuration"), "{err}");
    let repair = [&["repair", store][..], &SMALL_FILES].concat();
    let (status, out, _) = store_tool(&repair);
    assert!(status == 1 && out.contains("would be done with --apply") && out.contains("rebuildQueue"), "{out}");
    assert_eq!(files_below(Path::new(store)), before, "a dry run touches nothing");

    std::fs::write(&topics, content).unwrap();
    let (status, out, _) = store_tool(&[&repair[..], &["--apply", "--json"]].concat());
    let done: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (status, &done["applied"], &done["before"]["damaged"], &done["after"]["damaged"]),
        (0, &true.into(), &true.into(), &false.into())
    );
    let (status, out, _) = store_tool(&["repair", store, "--apply", "--queues", "--index"]);
    assert!(status == 0 && out.contains("rebuildIndex") && out.contains("lost/replaced.1"), "{out}");
    let (status, out, _) = store_tool(&["check", store, "--strict", "--for", "4.9"]);
    assert!(status == 1 && out.contains("mappedFileSizeCommitLog is 1048576"), "{out}");

    let server = Server::start(&[&["server", "--port", "0", "--store", store][..], &SMALL_FILES].concat());
    let read = petrel()
        .args(["consume", "orders", "--count", "3", "--wait", "20s", "--from", "first", "-n", server.text("namesrv")])
        .output()
        .unwrap();
    let mut bodies: Vec<String> = String::from_utf8(read.stdout).unwrap().lines().map(str::to_owned).collect();
    bodies.sort();
    assert_eq!(bodies, ["one", "three", "two"]);
    server.stop();
}

#[test]
fn what_is_no_store_is_status_1_and_wrong_use_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for tool in ["check", "repair"] {
        let (status, out, err) = store_tool(&[tool, path]);
        assert_eq!((status, out.as_str()), (1, ""));
        assert!(err.starts_with("petrel store: ") && err.contains(path) && err.contains("no store"), "{err}");
        assert_eq!(store_tool(&[tool]).0, 2);
        assert_eq!(store_tool(&[tool, path, "--set", "mapedFileSizeCommitLog=1"]).0, 2);
        assert_eq!(store_tool(&[tool, path, "-c", "/no/such.conf"]).0, 2);
    }
    assert_eq!(store_tool(&["repair", path, "--apply"]).0, 1);
    assert_eq!(store_tool(&["check", path, "--apply"]).0, 2);
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "nothing was created");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start(&["--ephemeral"]);
    let store = server.text("store").to_owned();
    // Stopped, it finds both signals when it goes on.
    server.signal(Signal::STOP);
    server.signal(Signal::TERM);
    server.signal(Signal::INT);
    server.signal(Signal::CONT);
    assert_eq!(server.wait().code(), Some(130));
    std::fs::remove_dir_all(store).unwrap();
}

#[test]
fn a_log_file_is_opened_again_on_sighup() {
    let folder = tempfile::tempdir().unwrap();
    let (log, moved) = (folder.path().join("log"), folder.path().join("moved"));
    let mut server = Server::start(&["namesrv", "--port", "0", "--log-file", log.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&log).unwrap().contains("serving"));
    std::fs::rename(&log, &moved).unwrap();
    server.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    while !log.exists() {
        assert!(Instant::now() < deadline);
        std::thread::park_timeout(Duration::from_millis(5));
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    assert!(std::fs::read_to_string(&log).unwrap().contains("stopping: signal=SIGTERM"));
    assert_eq!(server.complaint(), "", "nothing on standard error");
}

#[test]
fn unknown_keys_in_a_file_are_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "# mine\nbrokerName = b \nbrokerNmae=c\nsendMessageThreadPoolNums=128\n").unwrap();
    let file = file.to_str().unwrap();
    let server = Server::start(&["server", "--ephemeral", "-c", file]);
    assert_eq!(server.text("brokerName"), "b");
    let text = server.stop();
    assert!(text.contains(&format!("{file}:3: unknown key brokerNmae, nearest known key brokerName")), "{text}");
    assert!(text.contains(&format!("{file}:4: sendMessageThreadPoolNums=128 has no effect")), "{text}");
    let (status, text) = fails(&["server", "--ephemeral", "--strict", "-c", file]);
    assert_eq!((status, text.lines().count()), (2, 1), "{text}");
}

#[test]
fn links_named_as_the_references_scripts() {
    let folder = tempfile::tempdir().unwrap();
    let link = |name: &str| {
        let path = folder.path().join(name);
        symlink(env!("CARGO_BIN_EXE_petrel"), &path).unwrap();
        let mut command = program(&path);
        command.env("HOME", folder.path());
        command
    };
    let file = folder.path().join("namesrv.conf");
    std::fs::write(&file, "listenPort=0\n").unwrap();
    let (namesrv, line) = Server::spawn_and_read(link("mqnamesrv").arg("-c").arg(&file));
    let address = line.trim_end().strip_prefix("The Name Server boot success. serializeType=JSON, address ").unwrap().to_owned();
    let port = address.rsplit_once(':').unwrap().1;

    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "listenPort=0\nbrokerName=b\n").unwrap();
    let mut command = link("mqbroker");
    let (broker, line) = Server::spawn_and_read(command.arg("-c").arg(&file).args(["-n", &format!("127.0.0.1:{port}")]));
    assert!(
        line.starts_with("The broker[b, ") && line.contains("] boot success. serializeType=JSON and name server is 127.0.0.1:"),
        "{line}"
    );
    assert!(folder.path().join("store/commitlog").exists(), "where the reference has it");
    broker.stop();
    namesrv.stop();

    let output = program(&folder.path().join("mqbroker")).env("HOME", folder.path()).args(["-p", "-c"]).arg(&file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("\nbrokerName=b\n") && text.contains("\ntransactionTimeOut=6000\n"), "{text}");
    let output = program(&folder.path().join("mqbroker")).args(["-m", "-c"]).arg(&file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("brokerName=b\n") && !text.contains("transactionTimeOut"), "{text}");
    let output = program(&folder.path().join("mqbroker")).arg("--no-such-option").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_same_signal_twice_at_once_is_one_wish() {
    // As `timeout` sends it: to the process, then to its group.
    let mut server = Server::start(&["--ephemeral"]);
    for _ in 0..3 {
        server.signal(Signal::TERM);
    }
    assert_eq!(server.wait().code(), Some(0));
    assert!(!Path::new(server.text("store")).exists());
}
