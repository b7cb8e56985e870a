//! A broker's configuration, resolved. Java's key stands behind each field where the name does not say it.

use std::net::{IpAddr, Ipv4Addr};

use crate::store::StoreConfig;

/// `brokerRole`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BrokerRole {
    /// Answers without waiting for replicas.
    #[default]
    AsyncMaster,
    /// Answers when enough replicas have the message.
    SyncMaster,
    /// Follows a master.
    Slave,
}

/// What a broker needs to know.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// `brokerClusterName`.
    pub cluster_name: String,
    /// `brokerName`.
    pub broker_name: String,
    /// `brokerId`: 0 is the master.
    pub broker_id: i64,
    /// `brokerRole`.
    pub broker_role: BrokerRole,
    /// `brokerIP1`, when set: what clients are told and what messages carry as store host.
    pub broker_ip1: Option<String>,
    /// `brokerIP2`: told for HA; `brokerIP1` when `None`.
    pub broker_ip2: Option<String>,
    /// Port told to clients, when it differs from the listening port (`--advertise HOST:PORT`).
    pub advertised_port: Option<u16>,
    /// `bindAddress`.
    pub bind_address: IpAddr,
    /// `listenPort`; 0: a free one whose neighbours -2 and +1 are free too.
    pub listen_port: u16,
    /// `haListenPort`; `listenPort + 1` when `None`.
    pub ha_listen_port: Option<u16>,
    /// `namesrvAddr`, split at `;`.
    pub namesrv_addresses: Vec<String>,
    /// `brokerPermission`.
    pub broker_permission: i32,
    /// `autoCreateTopicEnable`.
    pub auto_create_topic: bool,
    /// `defaultTopicQueueNums`.
    pub default_topic_queue_nums: i32,
    /// `autoCreateSubscriptionGroup`.
    pub auto_create_subscription_group: bool,
    /// `clusterTopicEnable`.
    pub cluster_topic_enable: bool,
    /// `brokerTopicEnable`.
    pub broker_topic_enable: bool,
    /// `traceTopicEnable`.
    pub trace_topic_enable: bool,
    /// `msgTraceTopicName`.
    pub trace_topic: String,
    /// `traceOn`.
    pub trace_on: bool,
    /// `regionId`.
    pub region_id: String,
    /// `rejectTransactionMessage`.
    pub reject_transaction_message: bool,
    /// `transactionTimeOut`, ms: nobody is asked about a half message that is younger.
    pub transaction_timeout_ms: i64,
    /// `transactionCheckMax`: a half message about which somebody was asked so often in vain is put aside.
    pub transaction_check_max: i32,
    /// `transactionCheckInterval`, ms.
    pub transaction_check_interval_ms: u64,
    /// `litePullMessageEnable`.
    pub lite_pull_enable: bool,
    /// `longPollingEnable`.
    pub long_polling_enable: bool,
    /// `shortPollingTimeMills`.
    pub short_polling_ms: u64,
    /// `notifyConsumerIdsChangedEnable`.
    pub notify_consumer_ids_changed: bool,
    /// `enablePropertyFilter` (SQL92).
    pub enable_property_filter: bool,
    /// `filterDataCleanTimeSpan`, ms.
    pub filter_data_clean_span_ms: i64,
    /// `maxErrorRateOfBloomFilter`, percent, and `expectConsumerNumUseFilter`.
    pub bloom_filter: (i32, i32),
    /// `maxTransfer…OnMessageIn…`.
    pub get_limits: crate::store::GetLimits,
    /// `pullBatchMaxMessageCount`.
    pub pull_batch_max: i32,
    /// `defaultQueryMaxNum`.
    pub default_query_max: usize,
    /// `flushConsumerOffsetInterval`, ms.
    pub flush_consumer_offset_interval_ms: u64,
    /// `flushDelayOffsetInterval`, ms.
    pub flush_delay_offset_interval_ms: u64,
    /// `registerNameServerPeriod`, ms, 10 000 to 60 000.
    pub register_period_ms: u64,
    /// `registerBrokerTimeoutMills`.
    pub register_timeout_ms: u64,
    /// `forceRegister`: false asks by 322 first and registers only when something changed.
    pub force_register: bool,
    /// `petrel server`: shows the name server of the same process that the registration is its own broker's, whose address it may
    /// replace by the one each client reached it by. `None` when an address was set.
    pub own_name_server_token: Option<String>,
    /// `useServerSideResetOffset`.
    pub server_side_reset_offset: bool,
    /// `storeReplyMessageEnable`.
    pub store_reply_message: bool,
    /// `validateSystemTopicWhenUpdateTopic`.
    pub validate_system_topic: bool,
    /// `serverChannelMaxIdleTimeSeconds`.
    pub idle_seconds: u64,
    /// `netThreads` (ours); `None`: min(cores, 4).
    pub net_threads: Option<usize>,
    /// `workThreads` (ours); `None`: by cores.
    pub work_threads: Option<usize>,
    /// `allowEmptyConfigOnCorruption` (ours): a metadata file that is damaged and has no readable backup counts as empty.
    pub allow_empty_config_on_corruption: bool,
    /// The store's part; `root` is `storePathRootDir`.
    pub store: StoreConfig,
    /// Every key given or defaulted, as text, for request 26; sorted by key.
    pub all: std::collections::BTreeMap<String, String>,
}

impl BrokerConfig {
    /// Defaults, in `root`.
    pub fn new(root: impl Into<std::path::PathBuf>) -> Self {
        Self {
            cluster_name: "DefaultCluster".to_owned(),
            broker_name: "broker-a".to_owned(),
            broker_id: 0,
            broker_role: BrokerRole::AsyncMaster,
            broker_ip1: None,
            broker_ip2: None,
            advertised_port: None,
            bind_address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            listen_port: 10911,
            ha_listen_port: None,
            namesrv_addresses: Vec::new(),
            broker_permission: 6,
            auto_create_topic: true,
            default_topic_queue_nums: 8,
            auto_create_subscription_group: true,
            cluster_topic_enable: true,
            broker_topic_enable: true,
            trace_topic_enable: false,
            trace_topic: crate::common::topic::TRACE_TOPIC.to_owned(),
            trace_on: true,
            region_id: "DefaultRegion".to_owned(),
            reject_transaction_message: false,
            transaction_timeout_ms: 6_000,
            transaction_check_max: 15,
            transaction_check_interval_ms: 30_000,
            lite_pull_enable: true,
            long_polling_enable: true,
            short_polling_ms: 1_000,
            notify_consumer_ids_changed: true,
            enable_property_filter: true,
            filter_data_clean_span_ms: 86_400_000,
            bloom_filter: (20, 32),
            get_limits: crate::store::GetLimits::default(),
            pull_batch_max: 160,
            default_query_max: 32,
            flush_consumer_offset_interval_ms: 5_000,
            flush_delay_offset_interval_ms: 10_000,
            register_period_ms: 30_000,
            register_timeout_ms: 24_000,
            force_register: true,
            own_name_server_token: None,
            server_side_reset_offset: true,
            store_reply_message: true,
            validate_system_topic: true,
            idle_seconds: 120,
            net_threads: None,
            work_threads: None,
            allow_empty_config_on_corruption: false,
            store: StoreConfig::new(root),
            all: std::collections::BTreeMap::new(),
        }
    }
}
