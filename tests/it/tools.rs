//! The tools as people and scripts call them: the executable against a name server and a broker of this process.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::support::Cluster;

fn petrel(cluster: &Cluster, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_petrel"))
        .args(args)
        .env("NAMESRV_ADDR", cluster.namesrv())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn ok(cluster: &Cluster, args: &[&str]) -> String {
    ok_with(cluster, args, "")
}

fn ok_with(cluster: &Cluster, args: &[&str], input: &str) -> String {
    let output = petrel(cluster, args, input);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {:?} {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Runs what must fail with `status`; its one line of reason.
fn fails(cluster: &Cluster, args: &[&str], status: i32) -> String {
    let output = petrel(cluster, args, "");
    assert_eq!(output.status.code(), Some(status), "{args:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_is_sent_is_consumed() {
    let cluster = Cluster::start();
    let text = ok(&cluster, &["send", "T", "héllo", "--tag", "a", "--key", "k1", "--key", "k2", "--property", "color=red", "--json"]);
    let receipt = &json_lines(&text)[0];
    assert_eq!((&receipt["status"], &receipt["topic"], &receipt["queueOffset"]), (&"SEND_OK".into(), &"T".into(), &0.into()));
    let text = ok(&cluster, &["consume", "T", "--count", "1", "--wait", "20s", "--json"]);
    let message = &json_lines(&text)[0];
    assert_eq!((&message["body"], &message["tags"], &message["keys"][1]), (&"héllo".into(), &"a".into(), &"k2".into()));
    assert_eq!((&message["msgId"], &message["offsetMsgId"]), (&receipt["msgId"], &receipt["offsetMsgId"]));
    assert_eq!(message["properties"]["color"], "red");
    // Read again: nothing was committed.
    assert_eq!(ok(&cluster, &["consume", "T", "--count", "1"]), "héllo\n");
}

#[test]
fn lines_of_standard_input_are_messages_and_a_group_goes_on() {
    let cluster = Cluster::start();
    let receipts = ok_with(&cluster, &["send", "T", "--json"], "one\ntwo\r\nthree");
    assert_eq!(json_lines(&receipts).len(), 3);
    let first = ok(&cluster, &["consume", "T", "--group", "g", "--count", "2", "--wait", "20s"]);
    let rest = ok(&cluster, &["consume", "T", "--group", "g", "--count", "1", "--wait", "20s"]);
    let mut lines: Vec<&str> = first.lines().chain(rest.lines()).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["one", "three", "two"]);
    let reason = fails(&cluster, &["consume", "T", "--group", "g", "--count", "1", "--wait", "300ms"], 1);
    assert!(reason.contains("0 of 1"), "{reason}");
    assert_eq!(ok(&cluster, &["consume", "T", "--group", "g", "--wait", "300ms"]), "");
}

#[test]
fn a_new_group_begins_where_from_says_however_young_the_topic_is() {
    let cluster = Cluster::start();
    ok(&cluster, &["topic", "create", "T", "--queues", "1"]);
    ok_with(&cluster, &["send", "T"], "a\nb\nc\n");
    let consume = |group: &str, more: &[&str]| {
        let mut words = vec!["consume", "T", "--group", group, "--wait", "1s"];
        words.extend_from_slice(more);
        ok(&cluster, &words)
    };
    assert_eq!(consume("offset", &["--from", "2"]), "c\n");
    assert_eq!(consume("offset", &["--from", "first"]), "", "it has an offset now");
    assert_eq!(consume("last", &["--from", "last"]), "");
    assert_eq!(consume("orderly", &["--from", "1", "--orderly"]), "b\nc\n");
    assert_eq!(consume("queue", &["--from", "1", "--queue", "broker-a:0"]), "b\nc\n");
    assert_eq!(consume("default", &[]), "a\nb\nc\n");
}

#[test]
fn empty_lines_are_skipped_and_told() {
    let cluster = Cluster::start();
    let output = petrel(&cluster, &["send", "T"], "one\n\n\r\n \ntwo");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "petrel send: 2 empty lines skipped\n");
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 3, "a blank is no empty line");
    let output = petrel(&cluster, &["send", "T", "--batch", "8"], "\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "petrel send: 1 empty line skipped\n");
    assert!(output.status.success() && output.stdout.is_empty());
}

#[test]
fn a_consumer_whose_servers_went_away_fails_with_the_reason() {
    let cluster = Cluster::start();
    ok(&cluster, &["topic", "create", "T", "--queues", "1"]);
    ok(&cluster, &["send", "T", "x"]);
    let home = tempfile::tempdir().unwrap();
    let modes: [&[&str]; 5] = [
        &[],
        &["--group", "g"],
        &["--group", "o", "--orderly"],
        &["--group", "b", "--broadcast"],
        &["--group", "q", "--queue", "broker-a:0"],
    ];
    let mut children: Vec<Child> = modes
        .iter()
        .map(|mode| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_petrel"));
            command.args(["consume", "T", "--wait", "6s", "-n", &cluster.namesrv()]).args(*mode).env("HOME", home.path());
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in &mut children {
        let mut line = [0; 2];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        assert_eq!(&line, b"x\n");
    }
    drop(cluster);
    for (child, mode) in children.into_iter().zip(modes) {
        let output = child.wait_with_output().unwrap();
        let reason = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), reason.lines().count()), (Some(1), 1), "{mode:?}: {reason}");
        assert!(reason.contains("127.0.0.1:") && reason.contains("1 messages came"), "{mode:?}: {reason}");
    }
}

#[test]
fn queues_batches_generated_bodies_and_one_way() {
    let cluster = Cluster::start();
    ok(&cluster, &["topic", "create", "T", "--queues", "3"]);
    let receipts =
        json_lines(&ok(&cluster, &["send", "T", "--queue", "broker-a:2", "--count", "10", "--size", "20", "--batch", "4", "--json"]));
    assert_eq!(receipts.iter().map(|receipt| receipt["queueOffset"].as_i64().unwrap()).collect::<Vec<_>>(), [0, 4, 8]);
    assert!(receipts.iter().all(|receipt| receipt["queueId"] == 2));
    let bodies = ok(&cluster, &["consume", "T", "--queue", "broker-a:2", "--from", "7", "--count", "3", "--wait", "20s"]);
    let starts: Vec<&str> = bodies.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(starts, ["7", "8", "9"]);
    assert!(bodies.lines().all(|line| line.len() == 20));
    assert_eq!(ok(&cluster, &["send", "T", "x", "--oneway", "--queue", "broker-a:0"]), "");
    assert_eq!(ok(&cluster, &["consume", "T", "--queue", "broker-a:0", "--count", "1", "--wait", "20s"]), "x\n");
    let reason = fails(&cluster, &["send", "T", "x", "--queue", "broker-a:9"], 2);
    assert!(reason.contains("broker-a:0-2"), "{reason}");
}

#[test]
fn topics_are_made_shown_listed_and_deleted() {
    let cluster = Cluster::start();
    ok(&cluster, &["topic", "create", "orders", "--read", "2", "--write", "3", "--perm", "r", "--type", "FIFO"]);
    let list: Value = serde_json::from_str(&ok(&cluster, &["topic", "list", "--json"])).unwrap();
    let orders = list.as_array().unwrap().iter().find(|topic| topic["topic"] == "orders").unwrap().clone();
    assert_eq!((&orders["kind"], &orders["queues"][0]["writeQueueNums"]), (&"user".into(), &3.into()));
    assert!(!ok(&cluster, &["topic", "list"]).contains("TBW102"));
    assert!(ok(&cluster, &["topic", "list", "--all"]).contains("TBW102"));
    ok(&cluster, &["topic", "create", "orders", "--queues", "2"]);
    ok(&cluster, &["send", "orders", "x", "--queue", "broker-a:1"]);
    let show: Value = serde_json::from_str(&ok(&cluster, &["topic", "show", "orders", "--json"])).unwrap();
    assert_eq!(show["brokers"][0]["readQueueNums"], 2);
    assert_eq!(show["queues"].as_array().unwrap().len(), 2);
    let table = ok(&cluster, &["topic", "show", "orders"]);
    assert!(table.contains("broker-a") && table.contains("rw"), "{table}");
    ok(&cluster, &["topic", "delete", "orders"]);
    assert!(fails(&cluster, &["topic", "show", "orders"], 1).contains("does not exist"));
    assert!(fails(&cluster, &["topic", "delete", "orders"], 1).contains("does not exist"));
}

#[test]
fn messages_are_chosen_by_their_properties() {
    let cluster = Cluster::start();
    for (body, weight) in [("light", "3"), ("heavy", "12"), ("odd", "much")] {
        ok(&cluster, &["send", "T", body, "--property", &format!("weight={weight}"), "--queue", "broker-a:0"]);
    }
    ok(&cluster, &["send", "T", "none", "--queue", "broker-a:0"]);
    let consumed = |sql: &str| ok(&cluster, &["consume", "T", "--sql", sql, "--queue", "broker-a:0", "--wait", "1s"]);
    assert_eq!(consumed("weight > 5"), "heavy\n");
    assert_eq!(consumed("weight IS NULL OR weight = 'much'"), "odd\nnone\n");
    assert_eq!(ok(&cluster, &["consume", "T", "--group", "g", "--sql", "weight < 5", "--count", "1"]), "light\n");
}

#[test]
fn wrong_use_ends_with_2_and_failure_with_1() {
    let cluster = Cluster::start();
    assert!(fails(&cluster, &["send", "T", "x", "--deliver-at", "+30s"], 2).contains("timer"));
    assert_eq!(petrel(&cluster, &["consume", "T", "--sql", "a = "], "").status.code(), Some(2));
    assert!(fails(&cluster, &["topic", "create", "a b"], 2).contains("illegal character"));
    assert!(fails(&cluster, &["send", "T", "x", "-n", "127.0.0.1:1", "--timeout", "500ms"], 1).contains("127.0.0.1:1"));
    assert!(fails(&cluster, &["topic", "list", "-n", "127.0.0.1:1"], 1).contains("127.0.0.1:1"));
}

#[test]
fn loads_run_and_are_checked() {
    let cluster = Cluster::start();
    let broker = cluster.broker_address();
    let run = |args: &[&str]| -> Value {
        let mut words = vec!["bench"];
        words.extend_from_slice(args);
        words.extend_from_slice(&["--addr", &broker, "--json", "--count", "2000", "--size", "100"]);
        serde_json::from_str(&ok(&cluster, &words)).unwrap()
    };
    for args in [
        &["send", "-c", "4", "-p", "8"][..],
        &["send", "-c", "2", "-p", "2", "--batch", "32"],
        &["send", "--oneway", "-c", "2"],
        &["send", "--rate", "5000/s", "-c", "2", "-p", "4"],
    ] {
        let row = run(args);
        assert!(row["messages"].as_i64().unwrap() >= 2000, "{args:?} {row}");
        assert!(row["messagesPerSecond"].as_f64().unwrap() > 0.0);
    }
    assert!(run(&["pull", "-c", "2", "-p", "2", "--backlog", "3000"])["messages"].as_i64().unwrap() > 1000);
    let e2e = run(&["e2e", "--rate", "2000/s"]);
    assert_eq!(e2e["messages"], 2000);
    assert!(e2e["p50Us"].as_f64().unwrap() > 0.0);
    let show: Value = serde_json::from_str(&ok(&cluster, &["topic", "show", "petrel_bench_e2e", "--json"])).unwrap();
    let stored: i64 = show["queues"].as_array().unwrap().iter().map(|queue| queue["maxOffset"].as_i64().unwrap()).sum();
    assert_eq!(stored, 2000);
}
