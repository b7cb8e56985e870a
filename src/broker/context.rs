//! What the processors of one broker share.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::unique_id::UniqueIds;
use crate::config::broker::BrokerConfig;
use crate::runtime::clock::Clock;
use crate::store::MessageStore;

use super::clients::ClientTable;
use super::delay::DelayLevels;
use super::expressions::ExpressionCache;
use super::filter_data::FilterDataTable;
use super::group::GroupTable;
use super::hold::Hold;
use super::lock::QueueLocks;
use super::offset::OffsetTable;
use super::out_api::Registration;
use super::processor::parked::ParkedLanes;
use super::settings::Settings;
use super::stats::BrokerStats;
use super::topic::TopicTable;
use super::transaction::Transactions;

/// One broker's state.
pub struct BrokerContext {
    /// Configuration.
    pub config: Arc<BrokerConfig>,
    /// Time.
    pub clock: Clock,
    /// Messages.
    pub store: Arc<MessageStore>,
    /// Topics.
    pub topics: TopicTable,
    /// Consumer groups.
    pub groups: GroupTable,
    /// Committed offsets.
    pub offsets: OffsetTable,
    /// Connected producers and consumers.
    pub clients: ClientTable,
    /// Expressions of pulls that carry their own.
    pub expressions: ExpressionCache,
    /// Expressions that groups have subscribed with.
    pub filter_data: FilterDataTable,
    /// Queue locks of orderly consumers.
    pub locks: QueueLocks,
    /// Long polls.
    pub hold: Arc<Hold>,
    /// Delay levels.
    pub delay: Arc<DelayLevels>,
    /// Half messages and what became of them.
    pub transactions: Arc<Transactions>,
    /// Configuration that is changed while running.
    pub settings: Settings,
    /// Counters and rates.
    pub stats: BrokerStats,
    /// Name servers.
    pub registration: Registration,
    /// What messages carry as store host: the advertised address.
    pub store_host: SocketAddr,
    /// Milliseconds of the start.
    pub boot_ms: i64,
    /// Ids for messages that come without one.
    pub unique_ids: UniqueIds,
    /// Net threads on which answers wait for the disk.
    pub(crate) parked_lanes: ParkedLanes,
    /// Properties that the broker adds to every message sent to it.
    pub(crate) property_additions: String,
}

/// What clients of the reference look for when SQL92 is not served.
const NO_SQL92: &str = "The broker does not support consumer to filter message by SQL92";

impl BrokerContext {
    /// Why SQL92 is not served, if it is not: text for the client.
    pub(crate) fn no_sql92(&self) -> Option<String> {
        (!self.config.enable_property_filter).then(|| format!("{NO_SQL92}: enablePropertyFilter=false"))
    }

    /// Notes which groups subscribe with which expressions now.
    pub(crate) fn sweep_filter_data(&self) {
        self.filter_data.sweep(self.clients.all_consumer_groups(), self.clock.now_ms());
    }
}
