//! Messages as applications see them: what is sent, and what is received.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{message_id, properties, record::Record};

/// A message to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Topic.
    pub topic: String,
    /// The application's flag.
    pub flag: i32,
    /// Properties by name.
    pub properties: BTreeMap<String, String>,
    /// Body as the application gave it.
    pub body: Vec<u8>,
}

impl Message {
    /// A message of `topic`.
    pub fn new(topic: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { topic: topic.into(), body: body.into(), ..Self::default() }
    }

    /// Sets the tag.
    #[must_use]
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.property(properties::TAGS, tag)
    }

    /// Adds a key by which the message can be found.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        let keys = self.properties.entry(properties::KEYS.to_owned()).or_default();
        if !keys.is_empty() {
            keys.push(' ');
        }
        keys.push_str(key);
        self
    }

    /// Sets the delay level, 1 and up.
    #[must_use]
    pub fn delay_level(self, level: u32) -> Self {
        self.property(properties::DELAY, level.to_string())
    }

    /// Sets a property; names and values must be non-empty and free of the bytes 1 and 2.
    #[must_use]
    pub fn property(mut self, name: &str, value: impl Into<String>) -> Self {
        self.properties.insert(name.to_owned(), value.into());
        self
    }

    /// The properties as the protocol carries them.
    pub fn properties_text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.properties {
            properties::push(&mut text, name, value);
        }
        text
    }
}

/// A message received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageExt {
    /// What was sent.
    pub message: Message,
    /// Broker it came from, when known.
    pub broker_name: String,
    /// Queue.
    pub queue_id: i32,
    /// Offset in the queue.
    pub queue_offset: i64,
    /// Offset in the commit log.
    pub physical_offset: i64,
    /// Bytes of the record.
    pub store_size: usize,
    /// System flags.
    pub sys_flag: i32,
    /// Client's milliseconds.
    pub born_timestamp: i64,
    /// Client's address.
    pub born_host: SocketAddr,
    /// Broker's milliseconds.
    pub store_timestamp: i64,
    /// Broker's address.
    pub store_host: SocketAddr,
    /// Deliveries before this one.
    pub reconsume_times: i32,
    /// Physical offset of the half message of a committed message.
    pub prepared_transaction_offset: i64,
}

impl MessageExt {
    /// Copies a record. The body is as stored (perhaps compressed).
    pub fn from_record(record: &Record<'_>) -> Self {
        let properties = properties::iterate(record.properties).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        Self {
            message: Message { topic: record.topic.to_owned(), flag: record.flag, properties, body: record.body.to_vec() },
            broker_name: String::new(),
            queue_id: record.queue_id,
            queue_offset: record.queue_offset,
            physical_offset: record.physical_offset,
            store_size: record.total_size,
            sys_flag: record.sys_flag,
            born_timestamp: record.born_timestamp,
            born_host: record.born_host,
            store_timestamp: record.store_timestamp,
            store_host: record.store_host,
            reconsume_times: record.reconsume_times,
            prepared_transaction_offset: record.prepared_transaction_offset,
        }
    }

    /// Id made by the broker from its address and the physical offset.
    pub fn offset_message_id(&self) -> String {
        message_id::format(self.store_host, self.physical_offset)
    }

    /// Id made by the client, else the offset id.
    pub fn message_id(&self) -> String {
        self.message.properties.get(properties::UNIQ_KEY).cloned().unwrap_or_else(|| self.offset_message_id())
    }
}
