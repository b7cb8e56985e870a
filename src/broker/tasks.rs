//! What a broker does now and then, on one thread: persist offsets, tell consumers of changed groups, expire
//! clients, note the groups' expressions, sample statistics, look for overdue answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::runtime::thread::Thread;

use super::context::BrokerContext;

/// How often consumers are told what has changed in their groups.
const NOTIFY_CONSUMERS: Duration = Duration::from_millis(50);
/// How often silent clients are looked for.
const EXPIRE_CLIENTS: Duration = Duration::from_secs(10);
/// How often the groups' expressions are noted.
const NOTE_EXPRESSIONS: Duration = Duration::from_secs(10);
/// How often rates are sampled.
const SAMPLE_STATS: Duration = Duration::from_secs(10);
/// How often answers that wait for the disk are looked for; `syncFlushTimeout` is kept that exactly.
const OVERDUE_ANSWERS: Duration = Duration::from_millis(500);

/// One thing to do.
struct Task {
    every: Duration,
    due: Instant,
    run: fn(&BrokerContext),
}

/// The thread; ends with [`Tasks::shutdown`].
pub struct Tasks {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

#[derive(Default)]
struct Shared {
    stopping: Mutex<bool>,
    wake: Condvar,
}

impl Tasks {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(context: Arc<BrokerContext>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut tasks = list(&context);
        let thread = Thread::spawn(&context.config.store.tag.clone(), "periodic", {
            let shared = Arc::clone(&shared);
            move || shared.run(&context, &mut tasks)
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Ends the thread after the task it is at. Twice is harmless.
    pub(crate) fn shutdown(&self) {
        *self.shared.stopping.lock() = true;
        self.shared.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

fn list(context: &BrokerContext) -> Vec<Task> {
    let now = Instant::now();
    let task = |every: Duration, run: fn(&BrokerContext)| Task { every, due: now + every, run };
    let persist = Duration::from_millis(context.config.flush_consumer_offset_interval_ms.max(1));
    let mut tasks = vec![
        task(persist, |context| context.offsets.persist()),
        task(NOTIFY_CONSUMERS, |context| {
            context.clients.notify_changed();
        }),
        task(EXPIRE_CLIENTS, |context| context.clients.expire(context.clock.now_ms())),
        task(NOTE_EXPRESSIONS, BrokerContext::sweep_filter_data),
        task(SAMPLE_STATS, |context| context.stats.sample(context.clock.now_ms())),
    ];
    if context.store.is_sync_flush() {
        tasks.push(task(OVERDUE_ANSWERS, |context| context.parked_lanes.wake_overdue(context.clock.now_ms())));
    }
    tasks
}

impl Shared {
    fn run(&self, context: &BrokerContext, tasks: &mut [Task]) {
        loop {
            let now = Instant::now();
            for task in tasks.iter_mut().filter(|task| task.due <= now) {
                (task.run)(context);
                task.due = now + task.every;
            }
            let Some(next) = tasks.iter().map(|task| task.due).min() else { return };
            let mut stopping = self.stopping.lock();
            if *stopping {
                return;
            }
            self.wake.wait_until(&mut stopping, next);
            if *stopping {
                return;
            }
        }
    }
}
