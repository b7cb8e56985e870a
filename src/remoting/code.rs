//! Request and response codes (`RequestCode`, `ResponseCode`, `RemotingSysResponseCode` of the reference; 5.5.0's included).

/// Codes of requests.
pub mod request {
    /// Sent by client (old, C++); served by broker, proxy.
    pub const SEND_MESSAGE: i32 = 10;
    /// Sent by client, broker; served by broker, proxy.
    pub const PULL_MESSAGE: i32 = 11;
    /// Sent by mqadmin, client; served by broker.
    pub const QUERY_MESSAGE: i32 = 12;
    /// Sent by nobody; served by nobody (code 3).
    pub const QUERY_BROKER_OFFSET: i32 = 13;
    /// Sent by client, mqadmin; served by broker, proxy.
    pub const QUERY_CONSUMER_OFFSET: i32 = 14;
    /// Sent by client, mqadmin; served by broker, proxy.
    pub const UPDATE_CONSUMER_OFFSET: i32 = 15;
    /// Sent by mqadmin, client createTopic; served by broker.
    pub const UPDATE_AND_CREATE_TOPIC: i32 = 17;
    /// Sent by mqadmin; served by broker.
    pub const UPDATE_AND_CREATE_TOPIC_LIST: i32 = 18;
    /// Sent by slave, mqadmin, dashboard; served by broker.
    pub const GET_ALL_TOPIC_CONFIG: i32 = 21;
    /// Sent by nobody; served by nobody.
    pub const GET_TOPIC_CONFIG_LIST: i32 = 22;
    /// Sent by nobody; served by nobody.
    pub const GET_TOPIC_NAME_LIST: i32 = 23;
    /// Sent by mqadmin; served by broker, container.
    pub const UPDATE_BROKER_CONFIG: i32 = 25;
    /// Sent by mqadmin, dashboard; served by broker, container.
    pub const GET_BROKER_CONFIG: i32 = 26;
    /// Sent by nobody; served by nobody.
    pub const TRIGGER_DELETE_FILES: i32 = 27;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const GET_BROKER_RUNTIME_INFO: i32 = 28;
    /// Sent by client, mqadmin; served by broker, proxy.
    pub const SEARCH_OFFSET_BY_TIMESTAMP: i32 = 29;
    /// Sent by client, mqadmin, broker; served by broker, proxy.
    pub const GET_MAX_OFFSET: i32 = 30;
    /// Sent by client, mqadmin, broker; served by broker, proxy.
    pub const GET_MIN_OFFSET: i32 = 31;
    /// Sent by mqadmin, client; served by broker.
    pub const GET_EARLIEST_MSG_STORETIME: i32 = 32;
    /// Sent by client, mqadmin; served by broker.
    pub const VIEW_MESSAGE_BY_ID: i32 = 33;
    /// Sent by client; served by broker, proxy.
    pub const HEART_BEAT: i32 = 34;
    /// Sent by client; served by broker, proxy.
    pub const UNREGISTER_CLIENT: i32 = 35;
    /// Sent by client; served by broker, proxy.
    pub const CONSUMER_SEND_MSG_BACK: i32 = 36;
    /// Sent by client; served by broker, proxy.
    pub const END_TRANSACTION: i32 = 37;
    /// Sent by client; served by broker, proxy.
    pub const GET_CONSUMER_LIST_BY_GROUP: i32 = 38;
    /// Sent by broker (proxy); served by client (producer).
    pub const CHECK_TRANSACTION_STATE: i32 = 39;
    /// Sent by broker; served by client (consumer).
    pub const NOTIFY_CONSUMER_IDS_CHANGED: i32 = 40;
    /// Sent by client, broker; served by broker, proxy.
    pub const LOCK_BATCH_MQ: i32 = 41;
    /// Sent by client, broker; served by broker, proxy.
    pub const UNLOCK_BATCH_MQ: i32 = 42;
    /// Sent by slave; served by broker.
    pub const GET_ALL_CONSUMER_OFFSET: i32 = 43;
    /// Sent by slave; served by broker.
    pub const GET_ALL_DELAY_OFFSET: i32 = 45;
    /// Sent by client (consumer); served by broker, proxy.
    pub const CHECK_CLIENT_CONFIG: i32 = 46;
    /// Sent by nobody; served by nobody.
    pub const GET_CLIENT_CONFIG: i32 = 47;
    /// Sent by slave; served by broker.
    pub const GET_TIMER_CHECK_POINT: i32 = 60;
    /// Sent by slave; served by broker.
    pub const GET_TIMER_METRICS: i32 = 61;
    /// Sent by mqadmin; served by namesrv.
    pub const PUT_KV_CONFIG: i32 = 100;
    /// Sent by mqadmin, client; served by namesrv.
    pub const GET_KV_CONFIG: i32 = 101;
    /// Sent by mqadmin; served by namesrv.
    pub const DELETE_KV_CONFIG: i32 = 102;
    /// Sent by broker; served by namesrv.
    pub const REGISTER_BROKER: i32 = 103;
    /// Sent by broker; served by namesrv.
    pub const UNREGISTER_BROKER: i32 = 104;
    /// Sent by client, mqadmin, broker, proxy; served by namesrv, proxy.
    pub const GET_ROUTEINFO_BY_TOPIC: i32 = 105;
    /// Sent by mqadmin, dashboard, broker; served by namesrv.
    pub const GET_BROKER_CLUSTER_INFO: i32 = 106;
    /// Sent by mqadmin; served by broker.
    pub const UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: i32 = 200;
    /// Sent by slave, mqadmin, dashboard; served by broker.
    pub const GET_ALL_SUBSCRIPTIONGROUP_CONFIG: i32 = 201;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const GET_TOPIC_STATS_INFO: i32 = 202;
    /// Sent by mqadmin, dashboard; served by broker, proxy.
    pub const GET_CONSUMER_CONNECTION_LIST: i32 = 203;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const GET_PRODUCER_CONNECTION_LIST: i32 = 204;
    /// Sent by mqadmin; served by namesrv.
    pub const WIPE_WRITE_PERM_OF_BROKER: i32 = 205;
    /// Sent by mqadmin, dashboard; served by namesrv.
    pub const GET_ALL_TOPIC_LIST_FROM_NAMESERVER: i32 = 206;
    /// Sent by mqadmin; served by broker.
    pub const DELETE_SUBSCRIPTIONGROUP: i32 = 207;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const GET_CONSUME_STATS: i32 = 208;
    /// Sent by nobody; served by nobody.
    pub const SUSPEND_CONSUMER: i32 = 209;
    /// Sent by nobody; served by nobody.
    pub const RESUME_CONSUMER: i32 = 210;
    /// Sent by nobody; served by nobody.
    pub const RESET_CONSUMER_OFFSET_IN_CONSUMER: i32 = 211;
    /// Sent by nobody; served by nobody.
    pub const RESET_CONSUMER_OFFSET_IN_BROKER: i32 = 212;
    /// Sent by nobody; served by nobody.
    pub const ADJUST_CONSUMER_THREAD_POOL: i32 = 213;
    /// Sent by nobody; served by nobody.
    pub const WHO_CONSUME_THE_MESSAGE: i32 = 214;
    /// Sent by mqadmin; served by broker.
    pub const DELETE_TOPIC_IN_BROKER: i32 = 215;
    /// Sent by mqadmin; served by namesrv.
    pub const DELETE_TOPIC_IN_NAMESRV: i32 = 216;
    /// Sent by broker; served by namesrv.
    pub const REGISTER_TOPIC_IN_NAMESRV: i32 = 217;
    /// Sent by mqadmin; served by namesrv.
    pub const GET_KVLIST_BY_NAMESPACE: i32 = 219;
    /// Sent by broker; served by client (consumer).
    pub const RESET_CONSUMER_CLIENT_OFFSET: i32 = 220;
    /// Sent by broker; served by client (consumer).
    pub const GET_CONSUMER_STATUS_FROM_CLIENT: i32 = 221;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const INVOKE_BROKER_TO_RESET_OFFSET: i32 = 222;
    /// Sent by mqadmin; served by broker.
    pub const INVOKE_BROKER_TO_GET_CONSUMER_STATUS: i32 = 223;
    /// Sent by mqadmin; served by namesrv.
    pub const GET_TOPICS_BY_CLUSTER: i32 = 224;
    /// Sent by mqadmin; served by broker.
    pub const UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: i32 = 225;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const QUERY_TOPIC_CONSUME_BY_WHO: i32 = 300;
    /// Sent by nobody; served by nobody.
    pub const REGISTER_FILTER_SERVER: i32 = 301;
    /// Sent by nobody; served by nobody.
    pub const REGISTER_MESSAGE_FILTER_CLASS: i32 = 302;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const QUERY_CONSUME_TIME_SPAN: i32 = 303;
    /// Sent by mqadmin, dashboard; served by namesrv.
    pub const GET_SYSTEM_TOPIC_LIST_FROM_NS: i32 = 304;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const GET_SYSTEM_TOPIC_LIST_FROM_BROKER: i32 = 305;
    /// Sent by mqadmin; served by broker.
    pub const CLEAN_EXPIRED_CONSUMEQUEUE: i32 = 306;
    /// Sent by mqadmin, dashboard → broker → client; served by broker, client, proxy.
    pub const GET_CONSUMER_RUNNING_INFO: i32 = 307;
    /// Sent by mqadmin API; served by broker.
    pub const QUERY_CORRECTION_OFFSET: i32 = 308;
    /// Sent by mqadmin, dashboard → broker → client; served by broker, client, proxy.
    pub const CONSUME_MESSAGE_DIRECTLY: i32 = 309;
    /// Sent by client; served by broker, proxy.
    pub const SEND_MESSAGE_V2: i32 = 310;
    /// Sent by mqadmin API; served by namesrv.
    pub const GET_UNIT_TOPIC_LIST: i32 = 311;
    /// Sent by mqadmin API; served by namesrv.
    pub const GET_HAS_UNIT_SUB_TOPIC_LIST: i32 = 312;
    /// Sent by mqadmin API; served by namesrv.
    pub const GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: i32 = 313;
    /// Sent by mqadmin API; served by broker.
    pub const CLONE_GROUP_OFFSET: i32 = 314;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const VIEW_BROKER_STATS_DATA: i32 = 315;
    /// Sent by mqadmin; served by broker.
    pub const CLEAN_UNUSED_TOPIC: i32 = 316;
    /// Sent by mqadmin; served by broker.
    pub const GET_BROKER_CONSUME_STATS: i32 = 317;
    /// Sent by mqadmin; served by namesrv.
    pub const UPDATE_NAMESRV_CONFIG: i32 = 318;
    /// Sent by mqadmin; served by namesrv.
    pub const GET_NAMESRV_CONFIG: i32 = 319;
    /// Sent by client; served by broker, proxy.
    pub const SEND_BATCH_MESSAGE: i32 = 320;
    /// Sent by mqadmin; served by broker.
    pub const QUERY_CONSUME_QUEUE: i32 = 321;
    /// Sent by broker; served by namesrv.
    pub const QUERY_DATA_VERSION: i32 = 322;
    /// Sent by mqadmin API; served by broker.
    pub const RESUME_CHECK_HALF_MESSAGE: i32 = 323;
    /// Sent by client; served by broker.
    pub const SEND_REPLY_MESSAGE: i32 = 324;
    /// Sent by client; served by broker.
    pub const SEND_REPLY_MESSAGE_V2: i32 = 325;
    /// Sent by broker; served by client (producer).
    pub const PUSH_REPLY_MESSAGE_TO_CLIENT: i32 = 326;
    /// Sent by mqadmin; served by namesrv.
    pub const ADD_WRITE_PERM_OF_BROKER: i32 = 327;
    /// Sent by mqadmin; served by broker.
    pub const GET_ALL_PRODUCER_INFO: i32 = 328;
    /// Sent by mqadmin; served by broker.
    pub const DELETE_EXPIRED_COMMITLOG: i32 = 329;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const QUERY_TOPICS_BY_CONSUMER: i32 = 343;
    /// Sent by mqadmin API; served by broker.
    pub const QUERY_SUBSCRIPTION_BY_CONSUMER: i32 = 345;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const GET_TOPIC_CONFIG: i32 = 351;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const GET_SUBSCRIPTIONGROUP_CONFIG: i32 = 352;
    /// Sent by mqadmin API; served by broker.
    pub const UPDATE_AND_GET_GROUP_FORBIDDEN: i32 = 353;
    /// Sent by mqadmin; served by broker.
    pub const CHECK_ROCKSDB_CQ_WRITE_PROGRESS: i32 = 354;
    /// Sent by mqadmin; served by broker.
    pub const EXPORT_ROCKSDB_CONFIG_TO_JSON: i32 = 355;
    /// Sent by client (lite pull consumer); served by broker, proxy.
    pub const LITE_PULL_MESSAGE: i32 = 361;
    /// Sent by client (producer); served by broker, proxy.
    pub const RECALL_MESSAGE: i32 = 370;
    /// Sent by client (pop / server rebalance); served by broker.
    pub const QUERY_ASSIGNMENT: i32 = 400;
    /// Sent by mqadmin setConsumeMode; served by broker.
    pub const SET_MESSAGE_REQUEST_MODE: i32 = 401;
    /// Sent by slave; served by broker.
    pub const GET_ALL_MESSAGE_REQUEST_MODE: i32 = 402;
    /// Sent by mqadmin; served by broker.
    pub const UPDATE_AND_CREATE_STATIC_TOPIC: i32 = 513;
    /// Sent by broker; served by namesrv.
    pub const GET_BROKER_MEMBER_GROUP: i32 = 901;
    /// Sent by mqadmin; served by container.
    pub const ADD_BROKER: i32 = 902;
    /// Sent by mqadmin; served by container.
    pub const REMOVE_BROKER: i32 = 903;
    /// Sent by broker; served by namesrv, controller.
    pub const BROKER_HEARTBEAT: i32 = 904;
    /// Sent by namesrv; served by broker.
    pub const NOTIFY_MIN_BROKER_ID_CHANGE: i32 = 905;
    /// Sent by broker; served by broker.
    pub const EXCHANGE_BROKER_HA_INFO: i32 = 906;
    /// Sent by mqadmin; served by broker.
    pub const GET_BROKER_HA_STATUS: i32 = 907;
    /// Sent by mqadmin; served by broker (slave).
    pub const RESET_MASTER_FLUSH_OFFSET: i32 = 908;
    /// Sent by broker; served by controller.
    pub const CONTROLLER_ALTER_SYNC_STATE_SET: i32 = 1001;
    /// Sent by broker, mqadmin; served by controller.
    pub const CONTROLLER_ELECT_MASTER: i32 = 1002;
    /// Sent by broker; served by controller.
    pub const CONTROLLER_REGISTER_BROKER: i32 = 1003;
    /// Sent by broker; served by controller.
    pub const CONTROLLER_GET_REPLICA_INFO: i32 = 1004;
    /// Sent by broker, mqadmin; served by controller.
    pub const CONTROLLER_GET_METADATA_INFO: i32 = 1005;
    /// Sent by mqadmin; served by controller.
    pub const CONTROLLER_GET_SYNC_STATE_DATA: i32 = 1006;
    /// Sent by mqadmin; served by broker.
    pub const GET_BROKER_EPOCH_CACHE: i32 = 1007;
    /// Sent by controller; served by broker.
    pub const NOTIFY_BROKER_ROLE_CHANGED: i32 = 1008;
    /// Sent by mqadmin; served by controller.
    pub const UPDATE_CONTROLLER_CONFIG: i32 = 1009;
    /// Sent by mqadmin; served by controller.
    pub const GET_CONTROLLER_CONFIG: i32 = 1010;
    /// Sent by mqadmin; served by controller.
    pub const CLEAN_BROKER_DATA: i32 = 1011;
    /// Sent by broker; served by controller.
    pub const CONTROLLER_GET_NEXT_BROKER_ID: i32 = 1012;
    /// Sent by broker; served by controller.
    pub const CONTROLLER_APPLY_BROKER_ID: i32 = 1013;
    /// Sent by controller internal (JRaft log entry); served by controller.
    pub const BROKER_CLOSE_CHANNEL_REQUEST: i32 = 1014;
    /// Sent by controller internal; served by controller.
    pub const CHECK_NOT_ACTIVE_BROKER_REQUEST: i32 = 1015;
    /// Sent by controller internal; served by controller.
    pub const GET_BROKER_LIVE_INFO_REQUEST: i32 = 1016;
    /// Sent by controller internal; served by controller.
    pub const GET_SYNC_STATE_DATA_REQUEST: i32 = 1017;
    /// Sent by controller internal; served by controller.
    pub const RAFT_BROKER_HEART_BEAT_EVENT_REQUEST: i32 = 1018;
    /// Sent by mqadmin; served by broker.
    pub const UPDATE_COLD_DATA_FLOW_CTR_CONFIG: i32 = 2001;
    /// Sent by mqadmin; served by broker.
    pub const REMOVE_COLD_DATA_FLOW_CTR_CONFIG: i32 = 2002;
    /// Sent by mqadmin; served by broker.
    pub const GET_COLD_DATA_FLOW_CTR_INFO: i32 = 2003;
    /// Sent by mqadmin; served by broker.
    pub const SET_COMMITLOG_READ_MODE: i32 = 2004;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const AUTH_CREATE_USER: i32 = 3001;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const AUTH_UPDATE_USER: i32 = 3002;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const AUTH_DELETE_USER: i32 = 3003;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const AUTH_GET_USER: i32 = 3004;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const AUTH_LIST_USER: i32 = 3005;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const AUTH_CREATE_ACL: i32 = 3006;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const AUTH_UPDATE_ACL: i32 = 3007;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const AUTH_DELETE_ACL: i32 = 3008;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const AUTH_GET_ACL: i32 = 3009;
    /// Sent by mqadmin, dashboard; served by broker.
    pub const AUTH_LIST_ACL: i32 = 3010;
    /// Sent by client, proxy; served by broker, proxy.
    pub const POP_MESSAGE: i32 = 200_050;
    /// Sent by client, proxy; served by broker, proxy.
    pub const ACK_MESSAGE: i32 = 200_051;
    /// Sent by client API; served by broker.
    pub const PEEK_MESSAGE: i32 = 200_052;
    /// Sent by client, proxy; served by broker, proxy.
    pub const CHANGE_MESSAGE_INVISIBLETIME: i32 = 200_053;
    /// Sent by proxy; served by broker.
    pub const NOTIFICATION: i32 = 200_054;
    /// Sent by client API; served by broker.
    pub const POLLING_INFO: i32 = 200_055;
    /// Sent by mqadmin exportPopRecord; served by broker.
    pub const POP_ROLLBACK: i32 = 200_056;
    /// Sent by client, proxy; served by broker.
    pub const BATCH_ACK_MESSAGE: i32 = 200_151;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const SWITCH_TIMER_ENGINE: i32 = 5001;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const POP_LITE_MESSAGE: i32 = 200_070;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const LITE_SUBSCRIPTION_CTL: i32 = 200_071;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const ACK_LITE_MESSAGE: i32 = 200_072;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const NOTIFY_UNSUBSCRIBE_LITE: i32 = 200_073;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const GET_BROKER_LITE_INFO: i32 = 200_074;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const GET_PARENT_TOPIC_INFO: i32 = 200_075;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const GET_LITE_TOPIC_INFO: i32 = 200_076;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const GET_LITE_CLIENT_INFO: i32 = 200_077;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const GET_LITE_GROUP_INFO: i32 = 200_078;
    /// Since 5.4; answered 3 (not supported) for now.
    pub const TRIGGER_LITE_DISPATCH: i32 = 200_079;
    /// ACL 1.0 of 4.x; answered 3 (not supported).
    pub const UPDATE_AND_CREATE_ACL_CONFIG: i32 = 50;
    /// ACL 1.0 of 4.x; answered 3 (not supported).
    pub const DELETE_ACL_CONFIG: i32 = 51;
    /// ACL 1.0 of 4.x; answered 3 (not supported).
    pub const GET_BROKER_CLUSTER_ACL_INFO: i32 = 52;
    /// ACL 1.0 of 4.x; answered 3 (not supported).
    pub const UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: i32 = 53;
    /// ACL 1.0 of 4.x; answered 3 (not supported).
    pub const GET_BROKER_CLUSTER_ACL_CONFIG: i32 = 54;
}

/// Codes of responses.
pub mod response {
    /// See the reference.
    pub const SUCCESS: i32 = 0;
    /// Exceptions, generic failures.
    pub const SYSTEM_ERROR: i32 = 1;
    /// Flow control.
    pub const SYSTEM_BUSY: i32 = 2;
    /// Unknown code.
    pub const REQUEST_CODE_NOT_SUPPORTED: i32 = 3;
    /// See the reference.
    pub const TRANSACTION_FAILED: i32 = 4;
    /// Send stored, sync flush timed out (counts as sent).
    pub const FLUSH_DISK_TIMEOUT: i32 = 10;
    /// Send stored, no slave (counts as sent); also END_TRANSACTION on a slave.
    pub const SLAVE_NOT_AVAILABLE: i32 = 11;
    /// Send stored, slave sync timed out (counts as sent).
    pub const FLUSH_SLAVE_TIMEOUT: i32 = 12;
    /// See the reference.
    pub const MESSAGE_ILLEGAL: i32 = 13;
    /// Store shutting down, disk full.
    pub const SERVICE_NOT_AVAILABLE: i32 = 14;
    /// See the reference.
    pub const VERSION_NOT_SUPPORTED: i32 = 15;
    /// Perm bits, ACL/auth failure, black-listed config.
    pub const NO_PERMISSION: i32 = 16;
    /// See the reference.
    pub const TOPIC_NOT_EXIST: i32 = 17;
    /// See the reference.
    pub const TOPIC_EXIST_ALREADY: i32 = 18;
    /// Nothing new.
    pub const PULL_NOT_FOUND: i32 = 19;
    /// No match in scanned range.
    pub const PULL_RETRY_IMMEDIATELY: i32 = 20;
    /// Illegal offset, take nextBeginOffset.
    pub const PULL_OFFSET_MOVED: i32 = 21;
    /// See the reference.
    pub const QUERY_NOT_FOUND: i32 = 22;
    /// See the reference.
    pub const SUBSCRIPTION_PARSE_FAILED: i32 = 23;
    /// See the reference.
    pub const SUBSCRIPTION_NOT_EXIST: i32 = 24;
    /// See the reference.
    pub const SUBSCRIPTION_NOT_LATEST: i32 = 25;
    /// See the reference.
    pub const SUBSCRIPTION_GROUP_NOT_EXIST: i32 = 26;
    /// See the reference.
    pub const FILTER_DATA_NOT_EXIST: i32 = 27;
    /// See the reference.
    pub const FILTER_DATA_NOT_LATEST: i32 = 28;
    /// See the reference.
    pub const INVALID_PARAMETER: i32 = 29;
    /// See the reference.
    pub const TRANSACTION_SHOULD_COMMIT: i32 = 200;
    /// See the reference.
    pub const TRANSACTION_SHOULD_ROLLBACK: i32 = 201;
    /// See the reference.
    pub const TRANSACTION_STATE_UNKNOW: i32 = 202;
    /// See the reference.
    pub const TRANSACTION_STATE_GROUP_WRONG: i32 = 203;
    /// Client retry list.
    pub const NO_BUYER_ID: i32 = 204;
    /// Client retry list.
    pub const NOT_IN_CURRENT_UNIT: i32 = 205;
    /// See the reference.
    pub const CONSUMER_NOT_ONLINE: i32 = 206;
    /// See the reference.
    pub const CONSUME_MSG_TIMEOUT: i32 = 207;
    /// Pop: ack/pop with bad offset.
    pub const NO_MESSAGE: i32 = 208;
    /// See the reference.
    pub const POLLING_FULL: i32 = 209;
    /// See the reference.
    pub const POLLING_TIMEOUT: i32 = 210;
    /// See the reference.
    pub const BROKER_NOT_EXIST: i32 = 211;
    /// See the reference.
    pub const BROKER_DISPATCH_NOT_COMPLETE: i32 = 212;
    /// See the reference.
    pub const BROADCAST_CONSUMPTION: i32 = 213;
    /// Pull flow control (cold data).
    pub const FLOW_CONTROL: i32 = 215;
    /// Static topic.
    pub const NOT_LEADER_FOR_QUEUE: i32 = 501;
    /// See the reference.
    pub const ILLEGAL_OPERATION: i32 = 604;
    /// Internal RPC client.
    pub const RPC_UNKNOWN: i32 = -1000;
    /// Internal.
    pub const RPC_ADDR_IS_NULL: i32 = -1002;
    /// Internal.
    pub const RPC_SEND_TO_CHANNEL_FAILED: i32 = -1004;
    /// Internal.
    pub const RPC_TIME_OUT: i32 = -1006;
    /// Graceful shutdown.
    pub const GO_AWAY: i32 = 1500;
    /// See the reference.
    pub const CONTROLLER_FENCED_MASTER_EPOCH: i32 = 2000;
    /// See the reference.
    pub const CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH: i32 = 2001;
    /// See the reference.
    pub const CONTROLLER_INVALID_MASTER: i32 = 2002;
    /// See the reference.
    pub const CONTROLLER_INVALID_REPLICAS: i32 = 2003;
    /// See the reference.
    pub const CONTROLLER_MASTER_NOT_AVAILABLE: i32 = 2004;
    /// See the reference.
    pub const CONTROLLER_INVALID_REQUEST: i32 = 2005;
    /// See the reference.
    pub const CONTROLLER_BROKER_NOT_ALIVE: i32 = 2006;
    /// See the reference.
    pub const CONTROLLER_NOT_LEADER: i32 = 2007;
    /// See the reference.
    pub const CONTROLLER_BROKER_METADATA_NOT_EXIST: i32 = 2008;
    /// See the reference.
    pub const CONTROLLER_INVALID_CLEAN_BROKER_METADATA: i32 = 2009;
    /// See the reference.
    pub const CONTROLLER_BROKER_NEED_TO_BE_REGISTERED: i32 = 2010;
    /// See the reference.
    pub const CONTROLLER_MASTER_STILL_EXIST: i32 = 2011;
    /// See the reference.
    pub const CONTROLLER_ELECT_MASTER_FAILED: i32 = 2012;
    /// See the reference.
    pub const CONTROLLER_ALTER_SYNC_STATE_SET_FAILED: i32 = 2013;
    /// See the reference.
    pub const CONTROLLER_BROKER_ID_INVALID: i32 = 2014;
    /// See the reference.
    pub const CONTROLLER_JRAFT_INTERNAL_ERROR: i32 = 2015;
    /// See the reference.
    pub const CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS: i32 = 2016;
    /// Auth admin.
    pub const USER_NOT_EXIST: i32 = 3001;
    /// Auth admin.
    pub const POLICY_NOT_EXIST: i32 = 3002;
    /// Since 5.4.
    pub const LMQ_QUOTA_EXCEEDED: i32 = 2017;
    /// Since 5.4.
    pub const LITE_SUBSCRIPTION_QUOTA_EXCEEDED: i32 = 2018;
}
