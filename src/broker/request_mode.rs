//! How groups ask for messages when the broker assigns their queues (401, 402), and `messageRequestMode.json`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::broker::BrokerConfig;
use crate::config::config_file::{ConfigFile, MetadataWriter};
use crate::remoting::body::group::{RequestModeSetting, request_modes, request_modes_json};

type Table = BTreeMap<String, BTreeMap<String, RequestModeSetting>>;

/// Settings by topic and group.
pub struct RequestModes {
    table: Arc<Mutex<Table>>,
    writer: MetadataWriter,
    file: usize,
}

impl RequestModes {
    /// Loads the file (or its `.bak`).
    ///
    /// # Errors
    /// Both copies are unreadable.
    pub(super) fn load(config: &BrokerConfig, writer: MetadataWriter) -> std::io::Result<Self> {
        let file = ConfigFile::of_broker(config, "messageRequestMode.json");
        let table = Arc::new(Mutex::new(file.load(|text| request_modes(text.as_bytes()))?.unwrap_or_default()));
        let content = Arc::clone(&table);
        let handle = writer.register(file, Arc::new(move || request_modes_json(&content.lock())));
        Ok(Self { table, writer, file: handle })
    }

    /// The setting of a group on a topic.
    pub fn get(&self, topic: &str, group: &str) -> Option<RequestModeSetting> {
        self.table.lock().get(topic)?.get(group).cloned()
    }

    /// Sets. Durable on return: only on work threads.
    ///
    /// # Errors
    /// The table could not be written: text for the client.
    pub fn set(&self, setting: RequestModeSetting) -> Result<(), String> {
        let (topic, group) = (setting.topic.clone(), setting.consumer_group.clone());
        self.table.lock().entry(topic).or_default().insert(group, setting);
        self.writer.write_and_wait(self.file)
    }

    /// All settings as the answer to 402 has them.
    pub fn to_json(&self) -> String {
        request_modes_json(&self.table.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::body::group::MessageRequestMode;

    #[test]
    fn survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let config = BrokerConfig::new(folder.path());
        let load = || RequestModes::load(&config, MetadataWriter::start("").unwrap()).unwrap();
        let setting = RequestModeSetting {
            topic: "T".to_owned(),
            consumer_group: "g".to_owned(),
            mode: MessageRequestMode::Pop,
            pop_share_queue_num: 3,
        };
        load().set(setting.clone()).unwrap();
        let modes = load();
        assert_eq!(modes.get("T", "g"), Some(setting));
        assert_eq!(modes.get("T", "h"), None);
        assert!(modes.to_json().contains("\"mode\":\"POP\""));
    }
}
