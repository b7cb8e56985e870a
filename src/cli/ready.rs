//! What a server says when it serves.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// The ready line; a role that does not run has no member.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// Always true.
    pub ready: bool,
    /// This process.
    pub pid: u32,
    /// Where the name server listens, as this host reaches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namesrv: Option<SocketAddr>,
    /// Where the broker listens, as this host reaches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<SocketAddr>,
    /// The broker's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_name: Option<String>,
    /// The broker's data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    /// Milliseconds from the start to now.
    pub start_ms: u64,
}

impl Ready {
    /// A line without roles.
    pub fn new(after: Duration) -> Self {
        Self { ready: true, pid: std::process::id(), start_ms: after.as_millis() as u64, ..Self::default() }
    }

    /// As one line of JSON.
    pub fn to_json(&self) -> String {
        // Only a path that is no UTF-8 cannot be written; then the line comes without it.
        serde_json::to_string(self).unwrap_or_else(|_| {
            let store = self.store.as_ref().map(|path| PathBuf::from(path.to_string_lossy().into_owned()));
            serde_json::to_string(&Self { store, broker_name: self.broker_name.clone(), ..*self }).unwrap_or_default()
        })
    }
}

/// Prints a line and flushes it: whoever started us waits for it.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush()); // nobody reads it
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_contract() {
        let ready = Ready {
            pid: 4711,
            namesrv: Some("127.0.0.1:9876".parse().unwrap()),
            broker: Some("127.0.0.1:10911".parse().unwrap()),
            broker_name: Some("broker-a".to_owned()),
            store: Some("/data".into()),
            ..Ready::new(Duration::from_millis(31))
        };
        assert_eq!(
            ready.to_json(),
            r#"{"ready":true,"pid":4711,"namesrv":"127.0.0.1:9876","broker":"127.0.0.1:10911","brokerName":"broker-a","store":"/data","startMs":31}"#
        );
        let namesrv = Ready { pid: 1, broker: None, broker_name: None, store: None, ..ready };
        assert_eq!(namesrv.to_json(), r#"{"ready":true,"pid":1,"namesrv":"127.0.0.1:9876","startMs":31}"#);
    }

    #[test]
    fn odd_paths() {
        use std::os::unix::ffi::OsStringExt;
        let odd = std::ffi::OsString::from_vec(vec![b'/', 0xff]);
        let ready = Ready { store: Some(odd.into()), ..Ready::new(Duration::ZERO) };
        assert!(ready.to_json().contains("\"store\":\"/\u{fffd}\""), "{}", ready.to_json());
    }
}
