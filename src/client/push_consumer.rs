//! Consumers that are handed messages: a listener on threads of the consumer, or a caller that polls.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{bounded, unbounded};
use parking_lot::{Mutex, RwLock};

use crate::common::message::MessageExt;
use crate::common::subscription::{MessageModel, SQL92, SubscriptionData, TAG};
use crate::common::topic;
use crate::remoting::body::queue::MessageQueue;
use crate::runtime::thread::Thread;

use super::consumer::{ConsumeFrom, ConsumeStatus, Consumer, ConsumerConfig, Membership};
use super::error::ClientError;
use super::inquiry::DirectConsumption;
use super::instance::Instance;
use super::membership;
use super::offset_store::{OffsetStore, Place};
use super::process_queue::{Taken, WorkList};
use super::pull_loop::{self, PullEvent};
use super::queue_api;

/// Folder of the offsets of broadcasting groups, below the user's home.
const OFFSET_FOLDER: &str = ".rocketmq_offsets";

/// Called with delivered messages; from several threads at once unless the consumer has one or the messages are of one orderly queue.
/// A panic counts as [`ConsumeStatus::Later`].
pub type Listener = dyn Fn(&[MessageExt]) -> ConsumeStatus + Send + Sync;

/// Puts a consumer together.
#[must_use = "nothing is consumed before `start` or `poll`"]
pub struct ConsumerBuilder {
    instance: Arc<Instance>,
    group: String,
    config: ConsumerConfig,
    membership: Membership,
    committing: bool,
    /// Topic, expression and its type.
    subscriptions: Vec<(String, String, &'static str)>,
}

impl ConsumerBuilder {
    pub(super) fn new(instance: Arc<Instance>, group: &str) -> Self {
        Self {
            instance,
            group: group.to_owned(),
            config: ConsumerConfig::default(),
            membership: Membership::Group,
            committing: true,
            subscriptions: Vec::new(),
        }
    }

    /// Subscribes to messages of `topic` whose tag is in `tags` (`a || b`; `*`: all).
    pub fn subscribe(mut self, topic: &str, tags: &str) -> Self {
        self.subscriptions.push((topic.to_owned(), tags.to_owned(), TAG));
        self
    }

    /// Subscribes to messages of `topic` whose properties pass a SQL92 expression, such as `region = 'eu' AND weight > 5`. The broker
    /// evaluates it; it has to serve SQL92 (`enablePropertyFilter`).
    pub fn subscribe_sql(mut self, topic: &str, expression: &str) -> Self {
        self.subscriptions.push((topic.to_owned(), expression.to_owned(), SQL92));
        self
    }

    /// Where a new group begins. In a queue so young that its broker has all of it in memory a new group begins at 0 all the same,
    /// unless [`ConsumerBuilder::exactly_from`] is used: that is what Java's consumers do.
    pub fn from(mut self, from: ConsumeFrom) -> Self {
        self.config.from = from;
        self
    }

    /// Where a new group begins, however young the queue is.
    pub fn exactly_from(mut self, from: ConsumeFrom) -> Self {
        self.config.young_is_zero = false;
        self.from(from)
    }

    /// One message of a queue after the other.
    pub fn orderly(mut self) -> Self {
        self.config.orderly = true;
        self
    }

    /// Every member of the group gets every message; offsets are kept in a file of this host.
    pub fn broadcast(mut self) -> Self {
        self.config.model = MessageModel::Broadcasting;
        self
    }

    /// Threads that call the listener.
    pub fn threads(mut self, threads: usize) -> Self {
        self.config.threads = threads.max(1);
        self
    }

    /// Everything that can be set, at once.
    pub fn config(mut self, config: ConsumerConfig) -> Self {
        self.config = config;
        self
    }

    /// Reads these queues, whatever other members of the group read; the group's committed offsets are still used and moved.
    pub fn queues(mut self, queues: Vec<MessageQueue>) -> Self {
        self.membership = Membership::Assigned(Some(queues));
        self
    }

    /// Reads without being a member of the group and without committing: all queues of the topics, unless [`ConsumerBuilder::queues`]
    /// names some.
    pub fn read_only(mut self) -> Self {
        if matches!(self.membership, Membership::Group) {
            self.membership = Membership::Assigned(None);
        }
        self.committing = false;
        self
    }

    /// Starts; `listener` is called with messages until the consumer is shut down or dropped.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a group, topic or expression that is not allowed, or a second consumer of the group;
    /// [`ClientError::Local`] when threads cannot be made or offsets not be read.
    pub fn start(self, listener: impl Fn(&[MessageExt]) -> ConsumeStatus + Send + Sync + 'static) -> Result<PushConsumer, ClientError> {
        let running = Running::start(self, Some(Arc::new(listener)))?;
        Ok(PushConsumer { running })
    }

    /// Starts; messages are fetched with [`PolledConsumer::poll`].
    ///
    /// # Errors
    /// As [`ConsumerBuilder::start`].
    pub fn poll(self) -> Result<PolledConsumer, ClientError> {
        let running = Running::start(self, None)?;
        Ok(PolledConsumer { running })
    }

    fn parse(&self) -> Result<BTreeMap<String, SubscriptionData>, ClientError> {
        topic::check_group(&self.group).map_err(ClientError::Invalid)?;
        if self.subscriptions.is_empty() {
            return Err(ClientError::Invalid("a consumer needs a topic to subscribe to".to_owned()));
        }
        let version = self.instance.now_ms();
        let mut parsed = BTreeMap::new();
        for (topic, expression, kind) in &self.subscriptions {
            topic::check_topic(topic).map_err(ClientError::Invalid)?;
            let data = queue_api::subscription(topic, expression, kind, version)?;
            parsed.insert(topic.clone(), data);
        }
        if self.config.model == MessageModel::Clustering && matches!(self.membership, Membership::Group) {
            let retry = topic::retry_topic(&self.group);
            let data = SubscriptionData::parse(&retry, "*", TAG, version).map_err(ClientError::Invalid)?;
            parsed.insert(retry, data);
        }
        Ok(parsed)
    }

    fn place(&self) -> Place {
        if !self.committing {
            return Place::Nowhere;
        }
        if self.config.model == MessageModel::Clustering {
            return Place::Broker { group: self.group.clone(), young_is_zero: self.config.young_is_zero };
        }
        // A client id that is the same after a restart: Java, too, keeps the instance name DEFAULT for broadcasting.
        let ip = self.instance.client_id().split('@').next().unwrap_or_default();
        let name = self.instance.config().instance_name.as_deref().unwrap_or("DEFAULT");
        let folder = self.config.offset_dir.clone().unwrap_or_else(|| {
            let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
            home.join(OFFSET_FOLDER)
        });
        Place::File(folder.join(format!("{ip}@{name}")).join(&self.group).join("offsets.json"))
    }
}

/// A consumer that calls a listener. Dropping it shuts it down.
pub struct PushConsumer {
    running: Running,
}

impl PushConsumer {
    /// Queues read here at present, sorted.
    pub fn assignment(&self) -> Vec<MessageQueue> {
        self.running.assignment()
    }

    /// Waits for the listener's running calls, commits, leaves the group. Twice is harmless; each call returns when it is done.
    pub fn shutdown(&self) {
        let _ = self.running.shutdown(); // a commit that failed has been logged
    }
}

/// A consumer that is polled. Dropping it shuts it down.
pub struct PolledConsumer {
    running: Running,
}

impl PolledConsumer {
    /// The next messages; waits at most `wait`. `None` when none came, or after a shutdown.
    pub fn poll(&self, wait: Duration) -> Option<Delivery> {
        let consumer = &self.running.consumer;
        let taken = consumer.take(Some(Instant::now() + wait))?;
        Some(Delivery { consumer: consumer.clone(), taken: Some(taken) })
    }

    /// Queues read here at present, sorted.
    pub fn assignment(&self) -> Vec<MessageQueue> {
        self.running.assignment()
    }

    /// Commits what was acknowledged and leaves the group. Twice is harmless.
    pub fn shutdown(&self) {
        let _ = self.running.shutdown(); // a commit that failed has been logged
    }

    /// As [`PolledConsumer::shutdown`], but tells whether the last commit succeeded.
    ///
    /// # Errors
    /// The commit's: what was acknowledged since the last commit will be delivered again.
    pub fn close(self) -> Result<(), ClientError> {
        self.running.shutdown()
    }

    /// Asks the servers whether "nothing came" means that there is nothing: `Ok` when the name server and the brokers of the queues read
    /// here answer, and no queue holds messages that could not be pulled.
    ///
    /// # Errors
    /// What keeps the consumer from its messages; it goes on trying.
    pub fn check(&self) -> Result<(), ClientError> {
        self.running.consumer.check()
    }
}

/// Messages that were delivered and wait for their end. Dropping it has them delivered again after a second.
pub struct Delivery {
    consumer: Arc<Consumer>,
    taken: Option<Taken>,
}

impl Delivery {
    /// The messages.
    pub fn messages(&self) -> &[MessageExt] {
        self.taken.as_ref().map_or(&[], |taken| &taken.messages)
    }

    /// Ends it. [`ConsumeStatus::Later`] uses the network.
    pub fn end(mut self, status: ConsumeStatus) {
        if let Some(taken) = self.taken.take() {
            self.consumer.done(taken, status);
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(taken) = self.taken.take() {
            self.consumer.abandoned(taken);
        }
    }
}

/// A consumer and its threads.
struct Running {
    consumer: Arc<Consumer>,
    threads: Mutex<Option<Threads>>,
}

#[derive(Default)]
struct Threads {
    members: Option<Thread>,
    pull: Option<Thread>,
    workers: Vec<Thread>,
}

impl Running {
    fn start(builder: ConsumerBuilder, listener: Option<Arc<Listener>>) -> Result<Self, ClientError> {
        let subscriptions = builder.parse()?;
        let offsets = OffsetStore::open(builder.place())?;
        let (pull, pull_inbox) = unbounded();
        let (wake, wake_inbox) = bounded(1);
        let started_ms = builder.instance.now_ms();
        let consumer = Arc::new(Consumer {
            instance: builder.instance,
            group: builder.group,
            config: builder.config,
            membership: builder.membership,
            subscriptions,
            offsets,
            queues: RwLock::new(HashMap::new()),
            work: WorkList::default(),
            pull,
            wake,
            started_ms,
            listener: listener.clone(),
            direct: DirectConsumption::default(),
            resets: Mutex::default(),
            unbalanced: Mutex::new(None),
            stopping: AtomicBool::new(false),
        });
        if matches!(consumer.membership, Membership::Group) {
            consumer.instance.register_consumer(&consumer.group, consumer.clone())?;
        }
        let running = Self { consumer: consumer.clone(), threads: Mutex::new(Some(Threads::default())) };
        let tag = consumer.instance.config().tag.clone();
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            Thread::spawn(&tag, name, body).map_err(|error| ClientError::Local(format!("cannot start a thread: {error}")))
        };
        let mut threads = running.threads.lock();
        let started = threads.insert(Threads::default());
        let shared = consumer.clone();
        started.pull = Some(spawn("pull", Box::new(move || pull_loop::run(&shared, &pull_inbox)))?);
        let shared = consumer.clone();
        started.members = Some(spawn("members", Box::new(move || membership::run(&shared, &wake_inbox)))?);
        if let Some(listener) = listener {
            for number in 0..consumer.config.threads.max(1) {
                let (shared, listener) = (consumer.clone(), listener.clone());
                started.workers.push(spawn(&format!("consume-{number}"), Box::new(move || consume(&shared, &*listener)))?);
            }
        }
        drop(threads);
        Ok(running)
    }

    fn assignment(&self) -> Vec<MessageQueue> {
        let mut queues: Vec<MessageQueue> = self.consumer.queues.read().keys().cloned().collect();
        queues.sort();
        queues
    }

    /// The order matters: nothing is delivered any more, running calls end, then nothing moves any more, then positions are final.
    fn shutdown(&self) -> Result<(), ClientError> {
        let mut threads = self.threads.lock();
        let Some(running) = threads.take() else { return Ok(()) };
        let consumer = &self.consumer;
        consumer.stopping.store(true, Ordering::Release);
        consumer.work.close();
        drop(running.workers);
        consumer.direct.finish();
        let _ = consumer.wake.try_send(()); // full: it is awake already
        drop(running.members);
        let _ = consumer.pull.send(PullEvent::Stop); // fails when the thread has ended
        drop(running.pull);
        let committed = consumer.persist();
        let queues = self.assignment();
        if consumer.locks() {
            membership::unlock(consumer, &queues);
        }
        consumer.queues.write().clear();
        if matches!(consumer.membership, Membership::Group) {
            consumer.instance.unregister_consumer(&consumer.group);
        }
        committed
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.shutdown(); // a commit that failed has been logged
    }
}

/// A `consume` thread.
fn consume(consumer: &Consumer, listener: &Listener) {
    while let Some(taken) = consumer.take(None) {
        let status = catch_unwind(AssertUnwindSafe(|| listener(&taken.messages))).unwrap_or_else(|_| {
            log::error!("the listener panicked, its messages come again: group={} queue={:?}", consumer.group, taken.queue.queue);
            ConsumeStatus::Later
        });
        consumer.done(taken, status);
    }
}
