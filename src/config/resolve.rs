//! From text to meaning: every default, every check, all errors at once.
//!
//! - A value of a known key that does not parse is an error (`lenientConfig=true`: a warning, and the default stays, as in Java).
//! - An unknown key is an error in `--set` (nothing else can be meant), in a file a warning (`strict`: an error); it is kept and shown.
//! - A known key that nothing here uses is one warning, unless it was given its default.
//! - What would be dangerous to ignore (another store format, replication, authentication) is a refusal: the text loads, a server does
//!   not start.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::store::FlushDiskType;
use crate::store::config::parse_delay_levels;

use super::broker::{BrokerConfig, BrokerRole};
use super::host;
use super::keys::{self, Class, Key};
use super::namesrv::NamesrvConfig;
use super::raw::{Given, RawConfig, Source};

/// Port of a name server whose address names none.
pub const DEFAULT_NAMESRV_PORT: u16 = 9876;
/// Keys that mean nothing here and cost nothing when they are ignored.
const HARMLESS: [&str; 6] =
    ["rocketmqHome", "brokerConfigPath", "enableLiteEventMode", "useEpollNativeSelector", "productEnvName", "clusterTest"];
/// Largest value of a Java int.
const INT_MAX: i64 = i32::MAX as i64;

/// What came of it besides the configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The configuration is wrong: one line each.
    pub errors: Vec<String>,
    /// Worth a line in the log.
    pub warnings: Vec<String>,
    /// Asks for what this program does not do and must not pretend to do: one line each.
    pub refusals: Vec<String>,
}

/// Reads typed values out of text and collects what is wrong with it.
pub struct Resolver<'a> {
    raw: &'a RawConfig,
    environment: &'a dyn Fn(&str) -> Option<String>,
    lenient: bool,
    used: BTreeSet<&'static str>,
    effective: BTreeMap<String, String>,
    findings: Findings,
}

impl<'a> Resolver<'a> {
    /// A resolver; `environment` looks up a variable.
    pub fn new(raw: &'a RawConfig, environment: &'a dyn Fn(&str) -> Option<String>) -> Self {
        let mut this =
            Self { raw, environment, lenient: true, used: BTreeSet::new(), effective: BTreeMap::new(), findings: Findings::default() };
        this.lenient = this.bool("lenientConfig", false);
        this
    }

    /// A broker's configuration; `root` is the store folder when no key names one.
    pub fn broker(&mut self, root: &Path) -> BrokerConfig {
        self.effective.clear();
        let root = self.path("storePathRootDir").unwrap_or_else(|| root.to_owned());
        self.effective.insert("storePathRootDir".to_owned(), root.display().to_string());
        let mut config = BrokerConfig::new(root);
        self.identity(&mut config);
        self.network(&mut config);
        self.topics_and_limits(&mut config);
        self.store(&mut config);
        self.cleaning(&mut config);
        self.broker_refusals(&config);
        config.all = self.all(&[Class::Broker, Class::Store, Class::Server, Class::Client, Class::Auth, Class::Petrel]);
        config
    }

    /// A name server's configuration; its files are in `folder` unless keys say otherwise. `own_port`: `listenPort` of the text is its
    /// own (in one process with a broker it is the broker's).
    pub fn namesrv(&mut self, folder: &Path, own_port: bool) -> NamesrvConfig {
        self.effective.clear();
        let mut config = NamesrvConfig::new("");
        config.kv_config_path = self.path("kvConfigPath").unwrap_or_else(|| folder.join("kvConfig.json"));
        config.config_store_path = self.path("configStorePath").unwrap_or_else(|| folder.join("namesrv.properties"));
        let black_list = self.text("configBlackList", "configBlackList;configStorePath;kvConfigPath");
        config.config_black_list.extend(split_list(&black_list).map(str::to_owned));
        config.config_black_list.sort();
        config.config_black_list.dedup();
        config.bind_address = self.bind_address(config.bind_address);
        if own_port {
            config.listen_port = self.number("listenPort", config.listen_port.into(), 0..=65_535) as u16;
        }
        config.order_message_enable = self.bool("orderMessageEnable", config.order_message_enable);
        config.return_order_topic_config = self.bool("returnOrderTopicConfigToBroker", config.return_order_topic_config);
        config.delete_topic_with_registration = self.bool("deleteTopicWithBrokerRegistration", config.delete_topic_with_registration);
        config.enable_all_topic_list = self.bool("enableAllTopicList", config.enable_all_topic_list);
        config.enable_topic_list = self.bool("enableTopicList", config.enable_topic_list);
        config.support_acting_master = self.bool("supportActingMaster", config.support_acting_master);
        config.notify_min_broker_id_changed = self.bool("notifyMinBrokerIdChanged", config.notify_min_broker_id_changed);
        config.need_wait_for_service = self.bool("needWaitForService", config.need_wait_for_service);
        config.wait_seconds_for_service =
            self.number("waitSecondsForService", config.wait_seconds_for_service as i64, 0..=INT_MAX).unsigned_abs();
        config.scan_interval_ms = self.number("scanNotActiveBrokerInterval", config.scan_interval_ms as i64, 100..=INT_MAX).unsigned_abs();
        config.idle_seconds = self.idle_seconds();
        config.net_threads = self.threads("netThreads");
        if self.bool("enableControllerInNamesrv", false) {
            self.refuse("enableControllerInNamesrv=true", "the controller comes with a later version");
        }
        self.effective.insert("kvConfigPath".to_owned(), config.kv_config_path.display().to_string());
        self.effective.insert("configStorePath".to_owned(), config.config_store_path.display().to_string());
        config.all = self.all(&[Class::Namesrv, Class::Server, Class::Client]);
        config
    }

    /// The folder that a key names for the store, if one does.
    pub fn store_root(&mut self) -> Option<PathBuf> {
        self.path("storePathRootDir")
    }

    /// What was found, once every role was resolved.
    pub fn finish(mut self, strict: bool) -> Findings {
        let raw = self.raw;
        for given in raw.winners() {
            if !keys::is_known(&given.key) {
                self.unknown(given, strict);
            } else if keys::is_retired(&given.key) {
                self.warn(format!("{}: {} is no key of RocketMQ 5 and has no effect", given.source, given.key));
            } else if !self.used.contains(given.key.as_str()) {
                self.unused(given);
            }
        }
        self.findings
    }

    fn unknown(&mut self, given: &Given, strict: bool) {
        let hint = keys::nearest(&given.key).map_or_else(String::new, |near| format!(", nearest known key {near}"));
        let text = format!("{}: unknown key {}{hint}", given.source, given.key);
        match given.source {
            Source::File(..) if !strict => self.warn(text),
            Source::Request => self.warn(text),
            _ => self.findings.errors.push(text),
        }
    }

    fn unused(&mut self, given: &Given) {
        let Some(kind) = keys::kind_of(&given.key) else { return };
        if !kind.accepts(&given.value) {
            self.bad(given, kind.expected());
            return;
        }
        let is_default = keys::known_keys().any(|key| key.name == given.key && key.default.eq_ignore_ascii_case(&given.value));
        if !is_default && !HARMLESS.contains(&given.key.as_str()) {
            self.warn(format!("{}: {}={} has no effect here", given.source, given.key, given.value));
        }
    }

    fn identity(&mut self, config: &mut BrokerConfig) {
        config.cluster_name = self.broker_name("brokerClusterName", &config.cluster_name);
        config.broker_name = self.broker_name("brokerName", &host::host_name());
        config.broker_role = self.choice(
            "brokerRole",
            "ASYNC_MASTER",
            &[("ASYNC_MASTER", BrokerRole::AsyncMaster), ("SYNC_MASTER", BrokerRole::SyncMaster), ("SLAVE", BrokerRole::Slave)],
        );
        config.broker_id = self.number("brokerId", config.broker_id, -1..=i64::MAX);
        if config.broker_role != BrokerRole::Slave && config.broker_id > 0 {
            self.warn(format!("brokerId={} is not used: a master's id is 0 (brokerRole)", config.broker_id));
            config.broker_id = 0;
        }
        config.broker_ip1 = self.optional_text("brokerIP1");
        config.broker_ip2 = self.optional_text("brokerIP2");
        config.region_id = self.name("regionId", &config.region_id);
    }

    fn network(&mut self, config: &mut BrokerConfig) {
        config.bind_address = self.bind_address(config.bind_address);
        config.listen_port = self.number("listenPort", config.listen_port.into(), 0..=65_535) as u16;
        let ha = self.number("haListenPort", 0, 0..=65_535) as u16;
        config.ha_listen_port = Some(ha).filter(|port| *port != 0);
        config.namesrv_addresses = self.name_servers();
        config.register_period_ms = self.clamped("registerNameServerPeriod", config.register_period_ms, 10_000, 60_000);
        config.register_timeout_ms =
            self.number("registerBrokerTimeoutMills", config.register_timeout_ms as i64, 1..=INT_MAX).unsigned_abs();
        config.force_register = self.bool("forceRegister", config.force_register);
        config.idle_seconds = self.idle_seconds();
        config.net_threads = self.threads("netThreads");
        config.work_threads = self.threads("workThreads");
    }

    fn topics_and_limits(&mut self, config: &mut BrokerConfig) {
        config.broker_permission = self.number("brokerPermission", config.broker_permission.into(), 0..=15) as i32;
        config.auto_create_topic = self.bool("autoCreateTopicEnable", config.auto_create_topic);
        config.default_topic_queue_nums = self.number("defaultTopicQueueNums", config.default_topic_queue_nums.into(), 1..=65_535) as i32;
        config.auto_create_subscription_group = self.bool("autoCreateSubscriptionGroup", config.auto_create_subscription_group);
        config.cluster_topic_enable = self.bool("clusterTopicEnable", config.cluster_topic_enable);
        config.broker_topic_enable = self.bool("brokerTopicEnable", config.broker_topic_enable);
        config.trace_topic_enable = self.bool("traceTopicEnable", config.trace_topic_enable);
        config.trace_topic = self.name("msgTraceTopicName", &config.trace_topic);
        config.trace_on = self.bool("traceOn", config.trace_on);
        config.reject_transaction_message = self.bool("rejectTransactionMessage", config.reject_transaction_message);
        config.transaction_timeout_ms = self.number("transactionTimeOut", config.transaction_timeout_ms, 0..=INT_MAX);
        config.transaction_check_max = self.number("transactionCheckMax", config.transaction_check_max.into(), 1..=INT_MAX) as i32;
        config.transaction_check_interval_ms =
            self.number("transactionCheckInterval", config.transaction_check_interval_ms as i64, 10..=INT_MAX).unsigned_abs();
        config.lite_pull_enable = self.bool("litePullMessageEnable", config.lite_pull_enable);
        config.long_polling_enable = self.bool("longPollingEnable", config.long_polling_enable);
        config.short_polling_ms = self.number("shortPollingTimeMills", config.short_polling_ms as i64, 0..=INT_MAX).unsigned_abs();
        config.notify_consumer_ids_changed = self.bool("notifyConsumerIdsChangedEnable", config.notify_consumer_ids_changed);
        config.enable_property_filter = self.bool("enablePropertyFilter", config.enable_property_filter);
        config.filter_data_clean_span_ms = self.number("filterDataCleanTimeSpan", config.filter_data_clean_span_ms, 0..=i64::MAX);
        let (error_percent, groups) = config.bloom_filter;
        config.bloom_filter = (
            self.number("maxErrorRateOfBloomFilter", error_percent.into(), 1..=99) as i32,
            self.number("expectConsumerNumUseFilter", groups.into(), 1..=1_000_000) as i32,
        );
        config.server_side_reset_offset = self.bool("useServerSideResetOffset", config.server_side_reset_offset);
        config.store_reply_message = self.bool("storeReplyMessageEnable", config.store_reply_message);
        config.validate_system_topic = self.bool("validateSystemTopicWhenUpdateTopic", config.validate_system_topic);
        config.default_query_max = self.number("defaultQueryMaxNum", config.default_query_max as i64, 1..=INT_MAX) as usize;
        config.pull_batch_max = self.number("pullBatchMaxMessageCount", config.pull_batch_max.into(), 1..=INT_MAX) as i32;
        let limits = &mut config.get_limits;
        limits.max_bytes = self.number("maxTransferBytesOnMessageInMemory", limits.max_bytes as i64, 1..=INT_MAX) as usize;
        limits.max_messages_in_memory =
            self.number("maxTransferCountOnMessageInMemory", limits.max_messages_in_memory as i64, 1..=INT_MAX) as usize;
        limits.max_bytes_on_disk = self.number("maxTransferBytesOnMessageInDisk", limits.max_bytes_on_disk as i64, 1..=INT_MAX) as usize;
        limits.max_messages_on_disk =
            self.number("maxTransferCountOnMessageInDisk", limits.max_messages_on_disk as i64, 1..=INT_MAX) as usize;
        config.flush_consumer_offset_interval_ms =
            self.number("flushConsumerOffsetInterval", config.flush_consumer_offset_interval_ms as i64, 10..=INT_MAX).unsigned_abs();
        config.flush_delay_offset_interval_ms =
            self.number("flushDelayOffsetInterval", config.flush_delay_offset_interval_ms as i64, 10..=INT_MAX).unsigned_abs();
    }

    fn store(&mut self, config: &mut BrokerConfig) {
        config.allow_empty_config_on_corruption = self.bool("allowEmptyConfigOnCorruption", config.allow_empty_config_on_corruption);
        let store = &mut config.store;
        let mut paths = self.paths("storePathCommitLog").into_iter();
        store.commit_log_path = paths.next();
        store.more_commit_log_paths = paths.collect();
        store.read_only_commit_log_paths = self.paths("readOnlyCommitLogStorePaths");
        store.commit_log_file_size = self.number("mappedFileSizeCommitLog", store.commit_log_file_size as i64, 4_096..=INT_MAX) as usize;
        let units = self.number("mappedFileSizeConsumeQueue", store.consume_queue_file_size as i64, 20..=INT_MAX) as usize;
        store.consume_queue_file_size = units.div_ceil(20) * 20;
        store.max_message_size = self.number("maxMessageSize", store.max_message_size as i64, 1..=INT_MAX) as usize;
        store.flush_disk_type =
            self.choice("flushDiskType", "SYNC_FLUSH", &[("SYNC_FLUSH", FlushDiskType::Sync), ("ASYNC_FLUSH", FlushDiskType::Async)]);
        store.flush_interval_ms = self.number("flushIntervalCommitLog", store.flush_interval_ms as i64, 1..=INT_MAX).unsigned_abs();
        store.sync_flush_timeout_ms = self.number("syncFlushTimeout", store.sync_flush_timeout_ms as i64, 1..=INT_MAX).unsigned_abs();
        store.flush_consume_queue_interval_ms =
            self.number("flushIntervalConsumeQueue", store.flush_consume_queue_interval_ms as i64, 1..=INT_MAX).unsigned_abs();
        store.index_enable = self.bool("messageIndexEnable", store.index_enable);
        store.index_slots = self.number("maxHashSlotNum", store.index_slots.into(), 1..=100_000_000) as u32;
        store.index_entries = self.number("maxIndexNum", store.index_entries.into(), 2..=100_000_000) as u32;
        store.max_query_messages = self.number("maxMsgsNumBatch", store.max_query_messages as i64, 1..=INT_MAX) as usize;
        store.in_memory_ratio = self.number("accessMessageInMemoryMaxRatio", store.in_memory_ratio.into(), 0..=100) as u8;
        store.check_crc_on_recover = self.bool("checkCRCOnRecover", store.check_crc_on_recover);
        store.append_record_crc = self.bool("enabledAppendPropCRC", store.append_record_crc);
        store.force_record_crc = self.bool("forceVerifyPropCRC", store.force_record_crc);
        store.allow_commit_log_hole = self.bool("allowCommitLogHole", store.allow_commit_log_hole);
        store.allow_empty_commit_log = self.bool("allowEmptyCommitLog", store.allow_empty_commit_log);
        store.optimized_recovery = self.optimized_recovery();
        store.recover_concurrently = self.bool("recoverConcurrently", store.recover_concurrently);
        store.recover_threads = self.number("recoverThreadPoolNums", store.recover_threads as i64, 1..=1_024) as usize;
        let levels = self.text("messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h");
        match parse_delay_levels(&levels) {
            Some(levels) => store.delay_levels_ms = levels,
            None => self.bad_key("messageDelayLevel", "numbers with s, m, h or d, separated by blanks"),
        }
    }

    /// The variable disables only where it is exactly `false`: anything else is no answer.
    fn optimized_recovery(&self) -> bool {
        (self.environment)("ROCKETMQ_USE_OPTIMIZED_RECOVERY").and_then(|text| text.parse().ok()).unwrap_or(true)
    }

    fn cleaning(&mut self, config: &mut BrokerConfig) {
        let store = &mut config.store;
        store.file_reserved_hours = self.number("fileReservedTime", store.file_reserved_hours as i64, 0..=INT_MAX).unsigned_abs();
        let hours: Option<Vec<u8>> =
            split_list(&self.text("deleteWhen", "04")).map(|hour| hour.parse().ok().filter(|hour| *hour < 24)).collect();
        match hours {
            Some(hours) => store.delete_when_hours = hours,
            None => self.bad_key("deleteWhen", "hours from 00 to 23, separated by ;"),
        }
        store.delete_file_batch_max = self.number("deleteFileBatchMax", store.delete_file_batch_max as i64, 1..=INT_MAX) as usize;
        store.clean_interval_ms = self.number("cleanResourceInterval", store.clean_interval_ms as i64, 10..=INT_MAX).unsigned_abs();
        store.delete_files_interval_ms =
            self.number("deleteCommitLogFilesInterval", store.delete_files_interval_ms as i64, 0..=INT_MAX).unsigned_abs();
        store.redelete_interval_ms =
            self.number("redeleteHangedFileInterval", store.redelete_interval_ms as i64, 0..=INT_MAX).unsigned_abs();
        store.clean_file_forcibly = self.bool("cleanFileForciblyEnable", store.clean_file_forcibly);
        store.disk_max_used_ratio = self.ratio("diskMaxUsedSpaceRatio", "75").map(|used| if (10..=95).contains(&used) { used } else { 75 });
        store.disk_clean_forcibly_ratio = self.ratio("diskSpaceCleanForciblyRatio", "85").map(|used| used.clamp(30, 85));
        store.disk_warning_ratio = self.ratio("diskSpaceWarningLevelRatio", "90").map(|used| used.clamp(35, 90));
        store.replicas_per_disk = self.number("replicasPerDiskPartition", store.replicas_per_disk as i64, 1..=INT_MAX).unsigned_abs();
        store.share_clean_forcibly_ratio = self.fraction("logicalDiskSpaceCleanForciblyThreshold", "0.8");
        let is_reserve_given = self.raw.get("diskFreeReserveBytes").is_some();
        store.disk_free_reserve = is_reserve_given.then(|| self.number("diskFreeReserveBytes", 0, 0..=i64::MAX).unsigned_abs());
    }

    fn broker_refusals(&mut self, config: &BrokerConfig) {
        if config.broker_role == BrokerRole::Slave {
            self.refuse("brokerRole=SLAVE", "replication comes with a later version");
        }
        if config.broker_role == BrokerRole::SyncMaster {
            self.warn("brokerRole=SYNC_MASTER acts as ASYNC_MASTER: replication comes with a later version".to_owned());
        }
        for (key, why) in [
            ("enableControllerMode", "the controller comes with a later version"),
            ("enableDLegerCommitLog", "a DLedger commit log is not supported"),
            ("timerRocksDBEnable", "RocksDB stores are not supported"),
            ("transRocksDBEnable", "RocksDB stores are not supported"),
            ("authenticationEnabled", "authentication comes with a later version, and serving without it would open what was closed"),
            ("authorizationEnabled", "authorization comes with a later version, and serving without it would open what was closed"),
            ("aclEnable", "access control comes with a later version, and serving without it would open what was closed"),
        ] {
            if self.bool(key, false) {
                self.refuse(&format!("{key}=true"), why);
            }
        }
        let store_type = self.text("storeType", "default");
        if !store_type.eq_ignore_ascii_case("default") {
            self.refuse(&format!("storeType={store_type}"), "RocksDB stores are not supported");
        }
        if config.broker_id < 0 && !self.bool("enableControllerMode", false) {
            self.bad_key("brokerId", "a number from 0 up");
        }
    }

    /// Name servers: the key, else the environment.
    fn name_servers(&mut self) -> Vec<String> {
        self.used.insert("namesrvAddr");
        let given = match self.raw.get("namesrvAddr") {
            Some(given) => given.clone(),
            None => Given {
                key: "NAMESRV_ADDR".to_owned(),
                value: (self.environment)("NAMESRV_ADDR").unwrap_or_default().trim().to_owned(),
                source: Source::Environment("environment"),
            },
        };
        match parse_name_servers(&given.value) {
            Ok(addresses) => {
                if !addresses.is_empty() {
                    self.effective.insert("namesrvAddr".to_owned(), addresses.join(";"));
                }
                addresses
            }
            Err(why) => {
                self.bad(&given, &format!("HOST:PORT, several separated by ; ({why})"));
                Vec::new()
            }
        }
    }

    fn bind_address(&mut self, default: IpAddr) -> IpAddr {
        let text = self.text("bindAddress", &default.to_string());
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&text);
        match bare.parse() {
            Ok(address) => address,
            Err(_) => {
                self.bad_key("bindAddress", "an IPv4 or IPv6 address");
                default
            }
        }
    }

    fn idle_seconds(&mut self) -> u64 {
        self.number("serverChannelMaxIdleTimeSeconds", 120, 1..=INT_MAX).unsigned_abs()
    }

    fn threads(&mut self, key: &'static str) -> Option<usize> {
        self.raw.get(key)?;
        Some(self.number(key, 1, 1..=256) as usize)
    }

    /// Percent, when the key is set; the system property's name in the environment (a fraction) wins.
    fn ratio(&mut self, key: &'static str, default: &str) -> Option<u8> {
        let property = format!("rocketmq.broker.{key}");
        let variable = property.to_ascii_uppercase().replace('.', "_");
        if let Some(fraction) = (self.environment)(&property).or_else(|| (self.environment)(&variable)) {
            match fraction.trim().parse::<f64>() {
                Ok(fraction) if (0.0..=1.0).contains(&fraction) => {
                    self.used.insert(key);
                    return Some((fraction * 100.0) as u8);
                }
                _ => self.findings.errors.push(format!("environment: {variable}={fraction}: expected a fraction from 0 to 1")),
            }
        }
        if self.raw.get(key).is_none() {
            self.effective.insert(key.to_owned(), default.to_owned());
            return None;
        }
        Some(self.number(key, 75, 0..=INT_MAX).min(100) as u8)
    }

    /// Several paths, separated as the reference separates them.
    fn paths(&mut self, key: &'static str) -> Vec<PathBuf> {
        let property = "rocketmq.broker.multiPathSplitter";
        let variable = property.to_ascii_uppercase().replace('.', "_");
        let given = (self.environment)(property).or_else(|| (self.environment)(&variable)).filter(|splitter| !splitter.is_empty());
        let splitter = given.unwrap_or_else(|| ",".to_owned());
        let text = self.optional_text(key).unwrap_or_default();
        text.split(&splitter).map(str::trim).filter(|path| !path.is_empty()).map(PathBuf::from).collect()
    }

    fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.optional_text(key).map(PathBuf::from)
    }

    fn optional_text(&mut self, key: &'static str) -> Option<String> {
        self.used.insert(key);
        let value = self.raw.get(key)?.value.clone();
        self.effective.insert(key.to_owned(), value.clone());
        Some(value).filter(|value| !value.is_empty())
    }

    fn text(&mut self, key: &'static str, default: &str) -> String {
        self.used.insert(key);
        let value = self.raw.get(key).map_or(default, |given| &given.value).to_owned();
        self.effective.insert(key.to_owned(), value.clone());
        value
    }

    /// A text that must not be empty.
    fn name(&mut self, key: &'static str, default: &str) -> String {
        let value = self.text(key, default);
        if value.is_empty() {
            self.bad_key(key, "a text that is not empty");
            return default.to_owned();
        }
        value
    }

    /// A name that name servers and clients put into lists (`broker-a:4;broker-b:4`). No lenience: another name is another broker.
    fn broker_name(&mut self, key: &'static str, default: &str) -> String {
        let value = self.name(key, default);
        let separates = |c: char| c.is_whitespace() || c.is_control() || ";:,\"'`".contains(c);
        if let Some(wrong) = value.chars().find(|c| separates(*c)) {
            let source = self.raw.get(key).map_or_else(|| "default".to_owned(), |given| given.source.to_string());
            let text = format!(
                "{source}: {key}={}: {wrong:?} is not allowed, nor any other blank, control character, quote, ; : or ,",
                value.escape_debug()
            );
            if !self.findings.errors.contains(&text) {
                self.findings.errors.push(text);
            }
        }
        value
    }

    fn bool(&mut self, key: &'static str, default: bool) -> bool {
        self.used.insert(key);
        let raw = self.raw;
        let value = match raw.get(key) {
            None => default,
            Some(given) if given.value.eq_ignore_ascii_case("true") => true,
            Some(given) if given.value.eq_ignore_ascii_case("false") => false,
            Some(given) => {
                self.bad(given, keys::Kind::Bool.expected());
                default
            }
        };
        self.effective.insert(key.to_owned(), value.to_string());
        value
    }

    fn number(&mut self, key: &'static str, default: i64, range: RangeInclusive<i64>) -> i64 {
        self.used.insert(key);
        let raw = self.raw;
        let value = match raw.get(key) {
            None => default,
            Some(given) => match given.value.parse() {
                Ok(value) if range.contains(&value) => value,
                _ => {
                    let kind = keys::kind_of(key).map_or("a number", keys::Kind::expected);
                    self.bad(given, &format!("{kind} from {} to {}", range.start(), range.end()));
                    default
                }
            },
        };
        self.effective.insert(key.to_owned(), value.to_string());
        value
    }

    /// A share from 0 to 1, as percent.
    fn fraction(&mut self, key: &'static str, default: &'static str) -> u8 {
        let percent = |text: &str| text.parse::<f64>().ok().filter(|value| (0.0..=1.0).contains(value)).map(|value| (value * 100.0) as u8);
        let value = self.text(key, default);
        percent(&value).unwrap_or_else(|| {
            self.bad_key(key, "a fraction from 0 to 1");
            percent(default).unwrap_or(100)
        })
    }

    /// A number that is brought into its range, as the reference does it.
    fn clamped(&mut self, key: &'static str, default: u64, min: u64, max: u64) -> u64 {
        let value = self.number(key, default as i64, 0..=INT_MAX).unsigned_abs();
        if !(min..=max).contains(&value) {
            self.warn(format!("{key}={value} is brought into its range from {min} to {max}"));
        }
        value.clamp(min, max)
    }

    fn choice<T: Copy>(&mut self, key: &'static str, default: &str, choices: &[(&str, T)]) -> T {
        let value = self.text(key, default);
        let found = |wanted: &str| choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, choice)| *choice);
        if let Some(choice) = found(&value) {
            return choice;
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        self.bad_key(key, &names.join(" or "));
        found(default).unwrap_or(choices[0].1)
    }

    fn bad_key(&mut self, key: &'static str, expected: &str) {
        let raw = self.raw;
        if let Some(given) = raw.get(key) {
            self.bad(given, expected);
        }
    }

    fn bad(&mut self, given: &Given, expected: &str) {
        let text = format!("{}: {}={}: expected {expected}", given.source, given.key, given.value);
        if self.lenient {
            self.warn(format!("{text}; the default stays"));
        } else if !self.findings.errors.contains(&text) {
            self.findings.errors.push(text);
        }
    }

    fn warn(&mut self, text: String) {
        if !self.findings.warnings.contains(&text) {
            self.findings.warnings.push(text);
        }
    }

    fn refuse(&mut self, what: &str, why: &str) {
        let text = format!("{what}: {why}");
        if !self.findings.refusals.contains(&text) {
            self.findings.refusals.push(text);
        }
    }

    /// Every key of some classes with its value in effect, and whatever else was given.
    fn all(&self, classes: &[Class]) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> = keys::known_keys()
            .filter(|Key { class, default, .. }| classes.contains(class) && !default.is_empty())
            .map(|key| (key.name.to_owned(), key.default.to_owned()))
            .collect();
        for given in self.raw.winners() {
            let mut of_other_role = keys::known_keys().filter(|key| key.name == given.key).peekable();
            if of_other_role.peek().is_none() || of_other_role.any(|key| classes.contains(&key.class)) {
                all.insert(given.key.clone(), given.value.clone());
            }
        }
        all.extend(self.effective.iter().map(|(key, value)| (key.clone(), value.clone())));
        all
    }
}

/// Splits `host:port;host:port`; an address without a port has [`DEFAULT_NAMESRV_PORT`].
///
/// # Errors
/// Which address is wrong, and why.
pub fn parse_name_servers(text: &str) -> Result<Vec<String>, String> {
    let mut addresses = Vec::new();
    for address in split_list(text) {
        let (host, port) = host::split(address)?;
        let address = host::join(&host, port.unwrap_or(DEFAULT_NAMESRV_PORT));
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests;
