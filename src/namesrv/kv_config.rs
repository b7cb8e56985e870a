//! The KV table: namespaces of keys and values, in memory and in `kvConfig.json`.
//!
//! A change is durable before it is visible, and visible before it is answered. Reads take no lock that a write holds over I/O.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::config::config_file::{ConfigFile, to_pretty_json};
use crate::remoting::fastjson::{self, Value};

/// Namespace of order configurations: topic to `broker:count;…`.
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

/// Bytes of a namespace or a key.
const MAX_NAME_LEN: usize = 1 << 10;
/// Bytes of a value.
const MAX_VALUE_LEN: usize = 64 << 10;
/// Bytes of the keys and values of a namespace: their JSON, each byte an escape of six, still fits in an answer.
const MAX_NAMESPACE_LEN: usize = 2 << 20;
/// Bytes of the whole table, which every change copies and writes.
const MAX_TABLE_LEN: usize = 16 << 20;

type Table = BTreeMap<String, BTreeMap<String, String>>;

/// The table and its file.
pub struct KvConfig {
    table: ArcSwap<Table>,
    file: Mutex<ConfigFile>,
}

impl KvConfig {
    /// Loads the file, when there is one.
    ///
    /// # Errors
    /// Neither the file nor its backup can be read.
    pub fn load(path: &Path) -> io::Result<Self> {
        let file = ConfigFile::new(path);
        let table = file.load(parse)?.unwrap_or_default();
        Ok(Self { table: ArcSwap::from_pointee(table), file: Mutex::new(file) })
    }

    /// One value (101).
    pub fn get(&self, namespace: &str, key: &str) -> Option<String> {
        self.table.load().get(namespace)?.get(key).cloned()
    }

    /// A namespace (219).
    pub fn namespace(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        self.table.load().get(namespace).cloned()
    }

    /// Sets a value (100). Writes a file: not on a net thread.
    ///
    /// # Errors
    /// A bound is exceeded ([`io::ErrorKind::InvalidInput`]) or the file could not be written; nothing changed.
    pub fn put(&self, namespace: &str, key: &str, value: &str) -> io::Result<()> {
        bound("the namespace's name", namespace.len(), MAX_NAME_LEN)?;
        bound("the key", key.len(), MAX_NAME_LEN)?;
        bound("the value", value.len(), MAX_VALUE_LEN)?;
        self.change(|table| {
            let values = table.entry(namespace.to_owned()).or_default();
            let before = len_of(values);
            if values.insert(key.to_owned(), value.to_owned()).as_deref() == Some(value) {
                return Ok(false);
            }
            let after = len_of(values);
            if after > before {
                bound("the namespace with this value", after, MAX_NAMESPACE_LEN)?;
                let total = table.iter().map(|(name, values)| name.len() + len_of(values)).sum();
                bound("the table with this value", total, MAX_TABLE_LEN)?;
            }
            Ok(true)
        })
    }

    /// Removes a value (102). Writes a file: not on a net thread.
    ///
    /// # Errors
    /// The file could not be written; nothing changed.
    pub fn delete(&self, namespace: &str, key: &str) -> io::Result<()> {
        self.change(|table| {
            let Some(values) = table.get_mut(namespace) else { return Ok(false) };
            let changed = values.remove(key).is_some();
            if values.is_empty() {
                table.remove(namespace);
            }
            Ok(changed)
        })
    }

    fn change(&self, change: impl FnOnce(&mut Table) -> io::Result<bool>) -> io::Result<()> {
        let file = self.file.lock(); // writers one after the other
        let mut table = (**self.table.load()).clone();
        if change(&mut table)? {
            file.store(&to_pretty_json(&BTreeMap::from([("configTable", &table)])))?;
            self.table.store(Arc::new(table));
        }
        Ok(())
    }
}

fn bound(what: &str, len: usize, limit: usize) -> io::Result<()> {
    if len <= limit {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{what} has {len} bytes, limit {limit}")))
}

fn len_of(values: &BTreeMap<String, String>) -> usize {
    values.iter().map(|(key, value)| key.len() + value.len()).sum()
}

fn parse(text: &str) -> Result<Table, String> {
    let value = fastjson::parse(text.as_bytes())?;
    let Some(namespaces @ Value::Object(_)) = value.get("configTable") else {
        return Err("there is no object configTable".to_owned());
    };
    let text = |value: &Value| value.as_text().map(std::borrow::Cow::into_owned);
    let values = |value: &Value| value.members().iter().filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect();
    Ok(namespaces.members().iter().filter_map(|(name, table)| Some((text(name)?, values(table)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_a_restart_in_javas_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("namesrv/kvConfig.json");
        let kv = KvConfig::load(&path).unwrap();
        assert!(!path.exists(), "reading creates nothing");
        kv.put("N", "k", "v").unwrap();
        kv.put("N", "gone", "v").unwrap();
        kv.put(ORDER_TOPIC_CONFIG, "T", "b:4").unwrap();
        kv.delete("N", "gone").unwrap();
        kv.delete("none", "k").unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "{\n\t\"configTable\":{\n\t\t\"N\":{\n\t\t\t\"k\":\"v\"\n\t\t},\n\t\t\"ORDER_TOPIC_CONFIG\":{\n\t\t\t\"T\":\"b:4\"\n\t\t}\n\t}\n}"
        );
        drop(kv);
        let kv = KvConfig::load(&path).unwrap();
        assert_eq!(kv.get("N", "k").as_deref(), Some("v"));
        assert_eq!(kv.get("N", "gone"), None);
        assert_eq!(kv.get("none", "k"), None);
        assert_eq!(kv.namespace(ORDER_TOPIC_CONFIG).unwrap().len(), 1);
        assert_eq!(kv.namespace("none"), None);
    }

    #[test]
    fn everything_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let kv = KvConfig::load(&folder.path().join("kv.json")).unwrap();
        let refused = |namespace: &str, key: &str, value: &str| kv.put(namespace, key, value).unwrap_err().to_string();
        let (name, value) = ("n".repeat(MAX_NAME_LEN), "v".repeat(MAX_VALUE_LEN));
        kv.put(&name, &name, &value).unwrap();
        assert_eq!(refused(&format!("{name}n"), "k", "v"), "the namespace's name has 1025 bytes, limit 1024");
        assert_eq!(refused("N", &format!("{name}n"), "v"), "the key has 1025 bytes, limit 1024");
        assert_eq!(refused("N", "k", &format!("{value}v")), "the value has 65537 bytes, limit 65536");
        assert_eq!(kv.namespace("N"), None, "what is refused leaves nothing");

        let full: BTreeMap<String, String> = (10..42).map(|key| (key.to_string(), "v".repeat(MAX_VALUE_LEN - 2))).collect();
        assert_eq!(len_of(&full), MAX_NAMESPACE_LEN);
        kv.table.store(Arc::new((0..7).map(|name| (name.to_string(), full.clone())).collect()));
        assert_eq!(refused("0", "k", ""), "the namespace with this value has 2097153 bytes, limit 2097152");
        assert_eq!(refused("0", "10", &value), "the namespace with this value has 2097154 bytes, limit 2097152");
        kv.put("0", "10", "short").unwrap();
        kv.put("0", "k", "v").unwrap();
        let mut table: Table = (**kv.table.load()).clone();
        table.insert("7".to_owned(), full);
        kv.table.store(Arc::new(table));
        kv.delete("0", "k").unwrap();
        let text = refused("8", "k", &value);
        assert!(text.starts_with("the table with this value has 167") && text.ends_with(" bytes, limit 16777216"), "{text}");
    }

    #[test]
    fn a_write_that_fails_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let kv = KvConfig::load(&folder.path().join("kv.json")).unwrap();
        kv.put("N", "k", "v").unwrap();
        *kv.file.lock() = ConfigFile::new(folder.path().join("file/kv.json"));
        assert!(kv.put("N", "k", "w").is_err());
        assert_eq!(kv.get("N", "k").as_deref(), Some("v"));
        kv.put("N", "k", "v").unwrap();
    }

    #[test]
    fn damaged_files_fall_back_to_the_backup() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv.json");
        let kv = KvConfig::load(&path).unwrap();
        kv.put("N", "k", "1").unwrap();
        kv.put("N", "k", "2").unwrap();
        std::fs::write(&path, "{\"configTable\":").unwrap();
        assert_eq!(KvConfig::load(&path).unwrap().get("N", "k").as_deref(), Some("1"));
    }
}
