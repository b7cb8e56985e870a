//! Every command of the README works: `console` blocks are run against a fresh server, beside the store `petrel-data` of a stopped one;
//! `make` targets exist.
//!
//! In a `console` block a line `$ command` must exit 0; the lines below it are its output, where `…` stands for anything.

mod server;

use std::path::Path;
use std::process::Command;

use server::Server;

/// Commands of all `console` blocks with the output each is shown with.
fn commands(readme: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside {
            match (line.strip_prefix("$ "), found.last_mut()) {
                (Some(command), _) => found.push((command.to_owned(), Vec::new())),
                (None, Some((_, output))) => output.push(line.to_owned()),
                (None, None) => panic!("a console block starts with output: {line}"),
            }
        }
    }
    found
}

fn matches(pattern: &str, line: &str) -> bool {
    let mut pieces = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(pieces.next().unwrap_or("")) else { return false };
    let mut last = None;
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
        last = Some(piece);
    }
    rest.is_empty() || last == Some("")
}

#[test]
fn every_command_works() {
    let readme = include_str!("../README.md");
    let makefile = include_str!("../Makefile");
    let server = Server::start(None);
    let folder = tempfile::tempdir().expect("temporary folder");
    Server::start(Some(&folder.path().join("petrel-data"))).stop();
    let bin = Path::new(env!("CARGO_BIN_EXE_petrel")).parent().expect("a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let commands = commands(readme);
    assert!(commands.len() > 8, "the README shows hardly any command");
    for (command, expected) in commands {
        if let Some(target) = command.strip_prefix("make ") {
            let target = target.split(' ').next().unwrap_or("");
            assert!(makefile.contains(&format!("\n{target}:")), "README says `{command}`, the Makefile has no such target");
            continue;
        }
        let output = Command::new("timeout")
            .args(["60", "sh", "-c", &command])
            .env("PATH", &path)
            .env("NAMESRV_ADDR", server.namesrv())
            .current_dir(folder.path())
            .output()
            .expect("sh runs");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "`{command}` failed: {}{stdout}", String::from_utf8_lossy(&output.stderr));
        if !expected.is_empty() {
            let lines: Vec<&str> = stdout.lines().collect();
            let same = lines.len() == expected.len() && expected.iter().zip(&lines).all(|(pattern, line)| matches(pattern, line));
            assert!(same, "`{command}` printed\n{stdout}\nthe README shows\n{}", expected.join("\n"));
        }
    }
}

#[test]
fn patterns() {
    assert!(matches("a…c", "abbc") && matches("…", "x") && matches("a", "a") && matches("a…", "abc"));
    assert!(!matches("a…c", "abb") && !matches("a", "ab"));
}
