//! Configuration that administrators read and change while the broker runs (25, 26).
//!
//! - A change is checked like the configuration at start, and written into the properties file before it is in effect; the file keeps its
//!   comments and its other lines.
//! - A few keys take effect at once; the answer names those that wait for the next start.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::Mutex;

use crate::common::topic::DataVersion;
use crate::config::broker::BrokerConfig;
use crate::config::config_file::ConfigFile;
use crate::config::edit::with_values;
use crate::config::keys;
use crate::config::raw::{RawConfig, Source};
use crate::config::resolve::Resolver;

/// Keys that take effect at once.
const RUN_TIME_KEYS: [&str; 3] = ["brokerPermission", "autoCreateTopicEnable", "autoCreateSubscriptionGroup"];
/// Keys that no request may change, besides those that `configBlackList` names.
const BLACK_LIST: [&str; 2] = ["configBlackList", "brokerConfigPath"];

/// The configuration as it is told and changed.
pub struct Settings {
    file: ConfigFile,
    root: PathBuf,
    broker_permission: AtomicI32,
    state: Mutex<State>,
}

struct State {
    all: BTreeMap<String, String>,
    version: DataVersion,
}

/// Why a change is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// A key that may not be changed.
    BlackListed(String),
    /// The text cannot be read, a value is wrong, the file cannot be written.
    Other(String),
}

/// What a change came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changed {
    /// Keys that have another value now.
    pub keys: Vec<String>,
    /// Those of them that take effect at the next start.
    pub at_next_start: Vec<String>,
    /// `autoCreateTopicEnable` now.
    pub auto_create_topic: bool,
    /// `autoCreateSubscriptionGroup` now.
    pub auto_create_subscription_group: bool,
}

impl Settings {
    /// Settings as the broker was started with. Changes go to `brokerConfigPath`, else to `config/broker.properties` of the store.
    pub fn new(config: &BrokerConfig, now_ms: i64) -> Self {
        let path = config.all.get("brokerConfigPath").filter(|path| !path.is_empty()).map(PathBuf::from);
        let path = path.unwrap_or_else(|| config.store.root.join("config/broker.properties"));
        Self {
            file: ConfigFile::new(path),
            root: config.store.root.clone(),
            broker_permission: AtomicI32::new(config.broker_permission),
            state: Mutex::new(State { all: config.all.clone(), version: DataVersion { timestamp: now_ms, ..DataVersion::default() } }),
        }
    }

    /// `brokerPermission` now.
    pub fn broker_permission(&self) -> i32 {
        self.broker_permission.load(Ordering::Relaxed)
    }

    /// One `key=value` line per key, and the version (26).
    pub fn text(&self) -> (String, DataVersion) {
        let state = self.state.lock();
        let lines = state.all.iter().map(|(key, value)| format!("{key}={value}\n"));
        (lines.collect(), state.version)
    }

    /// Changes what the properties text names (25); unknown keys are left out. Durable on return: only on work threads.
    ///
    /// # Errors
    /// [`SettingsError`]; nothing was changed.
    pub fn update(&self, body: &[u8], now_ms: i64) -> Result<(Changed, DataVersion), SettingsError> {
        let mut request = RawConfig::new();
        request.read_request(body).map_err(|why| SettingsError::Other(format!("string2Properties error: {why}")))?;
        let mut state = self.state.lock();
        if let Some(given) = request.winners().find(|given| state.is_black_listed(&given.key)) {
            return Err(SettingsError::BlackListed(given.key.clone()));
        }
        let changes: Vec<(String, String)> = request
            .winners()
            .filter(|given| keys::is_known(&given.key) || state.all.contains_key(&given.key))
            .filter(|given| state.all.get(&given.key) != Some(&given.value))
            .map(|given| (given.key.clone(), given.value.clone()))
            .collect();
        let fresh = self.resolve(&state.all, &changes)?;
        if !changes.is_empty() {
            self.write(&changes).map_err(|error| SettingsError::Other(format!("the configuration was not written: {error}")))?;
            state.all.extend(changes.iter().cloned());
            state.version.next(now_ms);
            self.broker_permission.store(fresh.broker_permission, Ordering::Relaxed);
        }
        for (key, value) in &changes {
            log::info!("configuration changed: key={key} value={value}");
        }
        let keys: Vec<String> = changes.into_iter().map(|(key, _)| key).collect();
        let changed = Changed {
            at_next_start: keys.iter().filter(|key| !RUN_TIME_KEYS.contains(&key.as_str())).cloned().collect(),
            keys,
            auto_create_topic: fresh.auto_create_topic,
            auto_create_subscription_group: fresh.auto_create_subscription_group,
        };
        Ok((changed, state.version))
    }

    /// The configuration with the changes, checked as at start.
    fn resolve(&self, all: &BTreeMap<String, String>, changes: &[(String, String)]) -> Result<BrokerConfig, SettingsError> {
        let mut raw = RawConfig::new();
        for (key, value) in all.iter().chain(changes.iter().map(|(key, value)| (key, value))) {
            raw.put(key, value, Source::Request);
        }
        let no_environment = |_: &str| None;
        let mut resolver = Resolver::new(&raw, &no_environment);
        let fresh = resolver.broker(&self.root);
        let findings = resolver.finish(false);
        // What was wrong before is not this change's fault.
        let is_ours = |problem: &&String| changes.iter().any(|(key, _)| problem.contains(key.as_str()));
        match findings.errors.iter().chain(&findings.refusals).find(is_ours) {
            Some(problem) => Err(SettingsError::Other(problem.clone())),
            None => Ok(fresh),
        }
    }

    fn write(&self, changes: &[(String, String)]) -> io::Result<()> {
        let old = match std::fs::read(self.file.path()) {
            Ok(bytes) => String::from_utf8(bytes).unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", self.file.path().display()))),
        };
        self.file.store(&with_values(&old, changes))
    }
}

impl State {
    fn is_black_listed(&self, key: &str) -> bool {
        let more = self.all.get("configBlackList").map_or("", String::as_str);
        BLACK_LIST.contains(&key) || more.split(';').any(|other| other.trim() == key)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn settings(folder: &tempfile::TempDir, given: &[(&str, &str)]) -> Settings {
        let mut raw = RawConfig::new();
        for (key, value) in given {
            raw.put(key, value, Source::Set);
        }
        let no_environment = |_: &str| None;
        let config = Resolver::new(&raw, &no_environment).broker(folder.path());
        Settings::new(&config, 5)
    }

    fn file(folder: &tempfile::TempDir) -> String {
        fs::read_to_string(folder.path().join("config/broker.properties")).unwrap_or_default()
    }

    #[test]
    fn a_change_is_checked_written_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder, &[]);
        assert!(settings.text().0.contains("\nbrokerPermission=6\n"), "{}", settings.text().0);
        let (changed, version) =
            settings.update(b"brokerPermission=4\nautoCreateTopicEnable=false\nnoSuchKey=1\nfileReservedTime=48\n", 9).unwrap();
        assert_eq!(changed.keys, ["brokerPermission", "autoCreateTopicEnable", "fileReservedTime"]);
        assert_eq!(changed.at_next_start, ["fileReservedTime"]);
        assert!(!changed.auto_create_topic && changed.auto_create_subscription_group);
        assert_eq!((version.counter, version.timestamp), (1, 9));
        assert_eq!(settings.broker_permission(), 4);
        assert_eq!(file(&folder), "brokerPermission=4\nautoCreateTopicEnable=false\nfileReservedTime=48\n");
        assert!(settings.text().0.contains("\nbrokerPermission=4\n") && !settings.text().0.contains("noSuchKey"));
        let (changed, version) = settings.update(b"brokerPermission=4", 10).unwrap();
        assert_eq!((changed.keys.len(), version.counter), (0, 1), "equal: nothing happens");
    }

    #[test]
    fn wrong_values_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder, &[("configBlackList", "fileReservedTime; brokerPermission")]);
        for body in ["fileReservedTime=1", "brokerPermission=4", "configBlackList=x", "brokerConfigPath=/x"] {
            assert!(matches!(settings.update(body.as_bytes(), 1), Err(SettingsError::BlackListed(_))), "{body}");
        }
        let error = settings.update(b"defaultTopicQueueNums=many\nautoCreateTopicEnable=false", 1).unwrap_err();
        assert!(
            matches!(&error, SettingsError::Other(text) if text.contains("defaultTopicQueueNums") && text.contains("many")),
            "{error:?}"
        );
        assert_eq!(file(&folder), "");
        assert_eq!(settings.text().1.counter, 0);
    }

    #[test]
    fn comments_of_the_file_stay() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("config")).unwrap();
        fs::write(folder.path().join("config/broker.properties"), "# mine\nbrokerPermission = 6\n").unwrap();
        settings(&folder, &[]).update(b"brokerPermission=2", 1).unwrap();
        assert_eq!(file(&folder), "# mine\nbrokerPermission=2\n");
    }
}
