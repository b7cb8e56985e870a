//! A name server's configuration, resolved.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

/// What a name server needs to know.
#[derive(Clone, Debug)]
pub struct NamesrvConfig {
    /// `bindAddress`.
    pub bind_address: IpAddr,
    /// `listenPort`; 0: a free one.
    pub listen_port: u16,
    /// `kvConfigPath`.
    pub kv_config_path: PathBuf,
    /// `configStorePath`: what update requests (318) write.
    pub config_store_path: PathBuf,
    /// `configBlackList`: keys that 318 must not touch.
    pub config_black_list: Vec<String>,
    /// `orderMessageEnable`.
    pub order_message_enable: bool,
    /// `returnOrderTopicConfigToBroker`.
    pub return_order_topic_config: bool,
    /// `deleteTopicWithBrokerRegistration`, ours: a full registration replaces what the broker dropped.
    pub delete_topic_with_registration: bool,
    /// `enableAllTopicList`.
    pub enable_all_topic_list: bool,
    /// `enableTopicList`.
    pub enable_topic_list: bool,
    /// `supportActingMaster`.
    pub support_acting_master: bool,
    /// `notifyMinBrokerIdChanged`.
    pub notify_min_broker_id_changed: bool,
    /// `needWaitForService`.
    pub need_wait_for_service: bool,
    /// `waitSecondsForService`.
    pub wait_seconds_for_service: u64,
    /// `scanNotActiveBrokerInterval`, ms.
    pub scan_interval_ms: u64,
    /// `serverChannelMaxIdleTimeSeconds`.
    pub idle_seconds: u64,
    /// Prefix of thread names; may be empty.
    pub tag: String,
    /// `netThreads` (ours); `None`: 1.
    pub net_threads: Option<usize>,
    /// `petrel server`: clients are told the address of this process's broker by which they reached the name server, unless the broker
    /// was given one.
    pub answer_local_address: bool,
    /// Every key given or defaulted, as text, for request 319; sorted by key.
    pub all: std::collections::BTreeMap<String, String>,
}

impl NamesrvConfig {
    /// Defaults, with files in `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let folder = root.into().join("namesrv");
        Self {
            bind_address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            listen_port: 9876,
            kv_config_path: folder.join("kvConfig.json"),
            config_store_path: folder.join("namesrv.properties"),
            config_black_list: ["configBlackList", "configStorePath", "kvConfigPath"].map(str::to_owned).to_vec(),
            order_message_enable: false,
            return_order_topic_config: true,
            delete_topic_with_registration: true,
            enable_all_topic_list: true,
            enable_topic_list: true,
            support_acting_master: false,
            notify_min_broker_id_changed: false,
            need_wait_for_service: false,
            wait_seconds_for_service: 45,
            scan_interval_ms: 5_000,
            idle_seconds: 120,
            tag: String::new(),
            net_threads: None,
            answer_local_address: false,
            all: std::collections::BTreeMap::new(),
        }
    }
}
