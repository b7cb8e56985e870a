//! What the threads of one consumer share, and how deliveries end.
//!
//! | thread | does |
//! |---|---|
//! | `members` | decides which queues are ours (`membership.rs`), persists offsets, renews locks |
//! | `pull` | pulls the queues we have (`pull_loop.rs`), keeps its timers |
//! | `consume-N` | the application's listener, or the thread that polls |
//! | `consume-direct` | the listener with one message, when a broker asks for it (`inquiry.rs`) |
//!
//! - Lock order: the table of queues, then a queue's state, then the work list. None is held while the network is used.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;
use parking_lot::{Mutex, RwLock};

use crate::common::message::MessageExt;
use crate::common::subscription::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use crate::common::topic;
use crate::net::responder::Responder;
use crate::remoting::body::heartbeat::ConsumerData;
use crate::remoting::body::queue::MessageQueue;
use crate::remoting::code::response;

use super::error::ClientError;
use super::inquiry::DirectConsumption;
use super::instance::{GroupMember, Instance};
use super::offset_store::OffsetStore;
use super::process_queue::{CacheLimits, ProcessQueue, Taken, WorkList};
use super::pull_loop::PullEvent;
use super::push_consumer::Listener;
use super::queue_api;
use super::send_back::send_back;

/// How long an orderly queue rests after a message that could not be processed, and any delivery that was dropped.
const SUSPEND: Duration = Duration::from_secs(1);
/// How long a message rests that could not be sent back.
const SEND_BACK_RETRY: Duration = Duration::from_secs(5);
/// How long a delivery waits for the lock of its queue to be renewed.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);
/// Deliveries of a message when nothing else is said: 16.
const DEFAULT_MAX_RECONSUME: i32 = 16;

/// Where a group begins in a queue of which it has committed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumeFrom {
    /// At the end.
    Last,
    /// At the beginning.
    First,
    /// At the first message stored at or after this time, milliseconds since 1970.
    Timestamp(i64),
    /// At this offset of every queue.
    Offset(i64),
}

/// What became of delivered messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumeStatus {
    /// Processed.
    Success,
    /// Not processed; deliver again later. Clustering: through the broker's retry topic, with growing delays. Orderly: the queue rests
    /// one second, then the same message comes again. Broadcasting: dropped, nobody keeps it.
    Later,
}

/// How a consumer works.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// Each message to one member of the group, or to all.
    pub model: MessageModel,
    /// Where a new group begins: the end.
    pub from: ConsumeFrom,
    /// One message of a queue after the other, each queue locked at its broker.
    pub orderly: bool,
    /// Threads that call the listener: 4.
    pub threads: usize,
    /// Messages handed to the listener at once, at most: 1.
    pub batch: usize,
    /// Messages pulled at once, at most: 32.
    pub pull_batch: u32,
    /// Messages of one queue that may wait here: 1000.
    pub max_cached_messages: usize,
    /// Bytes of one queue that may wait here: 100 MiB.
    pub max_cached_bytes: usize,
    /// Distance between the first and the last message of one queue that wait here: 2000.
    pub max_cached_span: i64,
    /// Deliveries before a message goes to the dead letters; -1: 16, orderly: no end.
    pub max_reconsume_times: i32,
    /// Time a broker may hold a pull: 15 s.
    pub suspend: Duration,
    /// Time between two rebalances: 20 s.
    pub rebalance_interval: Duration,
    /// Time between two commits: 5 s.
    pub persist_interval: Duration,
    /// Whether a group without an offset begins at 0 in a queue that is so young that its broker has all of it in memory, whatever
    /// [`ConsumerConfig::from`] says: true, as Java's consumers do.
    pub young_is_zero: bool,
    /// Folder of a broadcasting group's offsets; `~/.rocketmq_offsets` when `None`.
    pub offset_dir: Option<PathBuf>,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            model: MessageModel::Clustering,
            from: ConsumeFrom::Last,
            orderly: false,
            threads: 4,
            batch: 1,
            pull_batch: 32,
            max_cached_messages: 1000,
            max_cached_bytes: 100 << 20,
            max_cached_span: 2000,
            max_reconsume_times: -1,
            suspend: Duration::from_secs(15),
            rebalance_interval: Duration::from_secs(20),
            persist_interval: Duration::from_secs(5),
            young_is_zero: true,
            offset_dir: None,
        }
    }
}

/// Which queues a consumer reads.
#[derive(Clone, Debug)]
pub(super) enum Membership {
    /// Its share of the group's, or all when broadcasting.
    Group,
    /// These and no others, whoever else reads them; all of the subscribed topics when `None`. No heartbeat tells of it.
    Assigned(Option<Vec<MessageQueue>>),
}

/// The shared part of a consumer.
pub(super) struct Consumer {
    pub(super) instance: Arc<Instance>,
    pub(super) group: String,
    pub(super) config: ConsumerConfig,
    pub(super) membership: Membership,
    /// By topic, the group's retry topic included.
    pub(super) subscriptions: BTreeMap<String, SubscriptionData>,
    pub(super) offsets: OffsetStore,
    pub(super) queues: RwLock<HashMap<MessageQueue, Arc<ProcessQueue>>>,
    pub(super) work: WorkList,
    /// To the `pull` thread. Unbounded, but short by construction: one event per queue and one per delivery that is out.
    pub(super) pull: Sender<PullEvent>,
    /// To the `members` thread.
    pub(super) wake: Sender<()>,
    /// Milliseconds since 1970.
    pub(super) started_ms: i64,
    /// What a broker that asks for it has called; nothing when the consumer is polled.
    pub(super) listener: Option<Arc<Listener>>,
    /// A message being consumed for a broker.
    pub(super) direct: DirectConsumption,
    /// Offsets to go on at, for the `members` thread.
    pub(super) resets: Mutex<BTreeMap<MessageQueue, i64>>,
    /// Why the last rebalance did not come to its end.
    pub(super) unbalanced: Mutex<Option<ClientError>>,
    /// Set once, before the threads are woken to end.
    pub(super) stopping: AtomicBool,
}

impl Consumer {
    pub(super) fn cache_limits(&self) -> CacheLimits {
        CacheLimits { messages: self.config.max_cached_messages, bytes: self.config.max_cached_bytes, span: self.config.max_cached_span }
    }

    /// Whether queues must be locked at their broker.
    pub(super) fn locks(&self) -> bool {
        self.config.orderly && self.config.model == MessageModel::Clustering && matches!(self.membership, Membership::Group)
    }

    fn max_reconsume_times(&self) -> i32 {
        match self.config.max_reconsume_times {
            -1 if self.config.orderly => i32::MAX,
            -1 => DEFAULT_MAX_RECONSUME,
            times => times,
        }
    }

    /// Ends a delivery. May use the network; not for net threads.
    pub(super) fn done(&self, taken: Taken, status: ConsumeStatus) {
        let (now_ms, succeeded) = (self.instance.now_ms(), status == ConsumeStatus::Success);
        taken.queue.stats().consumed(now_ms, taken.messages.len(), taken.started.elapsed(), succeeded);
        match status {
            ConsumeStatus::Success => self.finished(taken),
            ConsumeStatus::Later if self.config.orderly => self.suspend(taken),
            ConsumeStatus::Later if self.gives_back() => self.give_back(taken),
            ConsumeStatus::Later => {
                for message in &taken.messages {
                    log::warn!("message dropped: group={} id={} reason=not processed, nobody keeps it", self.group, message.message_id());
                }
                self.finished(taken);
            }
        }
    }

    /// A delivery nobody ended: it comes again.
    pub(super) fn abandoned(&self, taken: Taken) {
        self.return_later(taken, SUSPEND);
    }

    fn gives_back(&self) -> bool {
        self.config.model == MessageModel::Clustering && matches!(self.membership, Membership::Group)
    }

    fn finished(&self, taken: Taken) {
        self.work.offer(&taken.finish());
    }

    /// The next delivery; waits until `deadline` (`None`: for ever). `None` when the consumer stops or the time is over.
    pub(super) fn take(&self, deadline: Option<Instant>) -> Option<Taken> {
        loop {
            let taken = self.work.take(self.config.batch, deadline)?;
            let now_ms = self.instance.now_ms();
            if !self.locks() || taken.queue.is_locked(now_ms) {
                taken.queue.note_consume(now_ms);
                return Some(taken);
            }
            self.return_later(taken, LOCK_PATIENCE);
        }
    }

    /// Makes the positions reached known to the offset store and has it keep them.
    ///
    /// # Errors
    /// The last failure; what failed is tried again next time.
    pub(super) fn persist(&self) -> Result<(), ClientError> {
        for queue in self.queues.read().values() {
            self.offsets.update(&queue.queue, queue.position());
        }
        self.offsets.persist(&self.instance)
    }

    /// Asks whether everything there was has been pulled: whether the name server and the brokers of the queues answer, and nothing lies
    /// behind a queue whose pulls fail. Uses the network.
    pub(super) fn check(&self) -> Result<(), ClientError> {
        if let Some(error) = self.unbalanced.lock().clone() {
            return Err(error);
        }
        for topic in self.subscriptions.keys().filter(|topic| !topic.starts_with(topic::RETRY_PREFIX)) {
            self.instance.fetch_route(topic)?;
        }
        let queues: Vec<Arc<ProcessQueue>> = self.queues.read().values().cloned().collect();
        for queue in queues {
            let end = queue_api::max_offset(&self.instance, &queue.queue)?;
            let Some(error) = queue.trouble() else { continue };
            if !matches!(error, ClientError::Invoke(_)) || queue.next_pull().is_none_or(|(_, offset)| offset < end) {
                return Err(error);
            }
        }
        Ok(())
    }

    fn suspend(&self, mut taken: Taken) {
        let max = self.max_reconsume_times();
        for message in &mut taken.messages {
            message.reconsume_times = message.reconsume_times.saturating_add(1);
        }
        if taken.messages.iter().all(|message| message.reconsume_times > max) && self.gives_back() {
            return self.give_back(taken); // the broker counts too and makes it a dead letter
        }
        self.return_later(taken, SUSPEND);
    }

    /// Sends every message back; those that cannot be are delivered again from here.
    fn give_back(&self, taken: Taken) {
        let max = self.max_reconsume_times();
        let (given, kept) = taken.partition(|message| match send_back(&self.instance, &self.group, message, max) {
            Ok(()) => true,
            Err(error) => {
                log::error!("message not sent back, it comes again here: group={} id={} error={error}", self.group, message.message_id());
                false
            }
        });
        self.finished(given);
        if !kept.messages.is_empty() {
            self.return_later(kept, SEND_BACK_RETRY);
        }
    }

    fn return_later(&self, taken: Taken, after: Duration) {
        if let Err(refused) = self.pull.send(PullEvent::Return(taken, after))
            && let PullEvent::Return(taken, _) = refused.0
        {
            taken.put_back(); // shut down: nobody takes it any more, and it stays uncommitted
        }
    }
}

impl GroupMember for Consumer {
    fn data(&self) -> ConsumerData {
        ConsumerData {
            group_name: self.group.clone(),
            consume_type: ConsumeType::Passively,
            message_model: self.config.model,
            consume_from_where: match self.config.from {
                ConsumeFrom::Last => ConsumeFromWhere::LastOffset,
                ConsumeFrom::First | ConsumeFrom::Offset(_) => ConsumeFromWhere::FirstOffset,
                ConsumeFrom::Timestamp(_) => ConsumeFromWhere::Timestamp,
            },
            unit_mode: false,
            subscriptions: self.subscriptions.values().cloned().collect(),
        }
    }

    fn members_changed(&self) {
        let _ = self.wake.try_send(()); // full: it is awake already
    }

    fn running_info(&self) -> String {
        self.running_info_json()
    }

    fn status(&self, topic: &str) -> String {
        self.status_json(topic)
    }

    fn reset_offsets(&self, topic: &str, offsets: Vec<(MessageQueue, i64)>) {
        self.resets.lock().extend(offsets.into_iter().filter(|(queue, _)| queue.topic == topic));
        self.members_changed();
    }

    fn consume_directly(&self, message: MessageExt, responder: Responder) {
        match &self.listener {
            Some(listener) => self.direct.begin(self, listener.clone(), message, responder),
            None => responder.error(response::REQUEST_CODE_NOT_SUPPORTED, "the consumer is polled: it has no listener to call"),
        }
    }
}
