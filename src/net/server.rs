//! Listeners, net threads and the work pool of one role.
//!
//! Stopping goes: no more accepting and reading, the work pool empties, answers leave, threads end. Each step may be asked for
//! again, by any thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, RecvTimeoutError};
use mio::{Poll, Waker};
use parking_lot::Mutex;

use crate::runtime::thread::Thread;

use super::acceptor::{self, Acceptor};
use super::budget::InboundBudget;
use super::channel::Shared;
use super::dispatch::ServerDispatch;
use super::event_loop::{EventLoop, Limits, WAKER};
use super::mailbox::{Home, Message};
use super::running::Running;
use super::service::{LaneKind, LaneWaker, Port, Service};
use super::work_pool::WorkPool;

/// Time that net threads get to finish the requests they are at.
const STOP_DEADLINE: Duration = Duration::from_secs(1);
/// Time that a dropped server gives to its answers.
const DROP_DEADLINE: Duration = Duration::from_secs(3);

/// How a server runs.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Prefix of thread names when several servers share a process; may be empty.
    pub tag: String,
    /// Net threads, 1 and up.
    pub net_threads: usize,
    /// Work threads, 1 and up.
    pub work_threads: usize,
    /// Requests that may wait for a work thread; more are answered SYSTEM_BUSY with this number and its key.
    pub work_queue: usize,
    /// Silence in both directions after which a connection is closed.
    pub idle: Duration,
    /// Bytes of unsent answers at which a connection's requests are no longer read.
    pub write_high_water: usize,
    /// Bytes that all frames above 64 KiB may hold while they are read; at least one frame of the greatest length may. So many
    /// bytes of requests may wait for work threads, too.
    pub inbound_budget: usize,
    /// Connections at most; the next one is closed at once.
    pub max_connections: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            tag: String::new(),
            net_threads: cores.min(4),
            work_threads: cores.clamp(2, 8),
            work_queue: 10_000,
            idle: Duration::from_secs(120),
            write_high_water: 4 << 20,
            inbound_budget: 256 << 20,
            max_connections: 100_000,
        }
    }
}

/// A bound listener that does not accept yet.
#[derive(Debug)]
pub struct Listener {
    socket: std::net::TcpListener,
    address: SocketAddr,
    port: Port,
}

impl Listener {
    /// Binds `address` (port 0: a free one; an unspecified IPv6 address takes IPv4 too).
    ///
    /// # Errors
    /// The system's.
    pub fn bind(address: SocketAddr, port: Port) -> io::Result<Self> {
        let socket = acceptor::bind(address)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address, port })
    }

    /// The address bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A running server.
pub struct Server {
    homes: Vec<Arc<Home>>,
    pool: Arc<WorkPool>,
    connections: Arc<AtomicUsize>,
    running: Arc<Running>,
    threads: Mutex<Vec<Thread>>,
}

impl Server {
    /// Starts the threads and accepts.
    ///
    /// # Errors
    /// The system's.
    pub fn start(config: ServerConfig, listeners: Vec<Listener>, service: Arc<dyn Service>) -> io::Result<Self> {
        let work_threads = config.work_threads.max(1);
        let max_bytes = config.inbound_budget.max(crate::remoting::codec::MAX_FRAME_LEN);
        let mut server = Self {
            homes: Vec::new(),
            pool: Arc::new(WorkPool::new(work_threads, config.work_queue, max_bytes)),
            connections: Arc::new(AtomicUsize::new(0)),
            running: Arc::new(Running::default()),
            threads: Mutex::new(Vec::new()),
        };
        // An error on the way drops what has been started.
        for index in 0..work_threads {
            server.start_work_thread(&config.tag, index, &*service)?;
        }
        let mut loops = server.make_loops(&config, &service)?;
        let acceptors = listeners.into_iter().map(|listener| Acceptor::new(listener.socket, listener.port)).collect();
        if let Some(first) = loops.first_mut() {
            first.accept_for(acceptors, server.homes.clone())?;
        }
        for (index, event_loop) in loops.into_iter().enumerate() {
            server.spawn(&config.tag, &format!("net-{index}"), move || event_loop.run())?;
        }
        Ok(server)
    }

    /// Stops accepting and reading; what is being answered goes on. When it returns no further request is handled, unless a net
    /// thread hangs in a handler (or is the caller): it is given a second.
    pub fn stop_reading(&self) {
        let (sender, acknowledged) = channel::bounded::<()>(0);
        for home in &self.homes {
            let _ = home.post(Message::StopReading(sender.clone())); // an ended loop reads nothing
        }
        drop(sender);
        if acknowledged.recv_timeout(STOP_DEADLINE) == Err(RecvTimeoutError::Timeout) {
            log::warn!("a net thread is slow to stop reading: waited_ms={}", STOP_DEADLINE.as_millis());
        }
    }

    /// Waits until the work pool is empty and the answers have left, then ends the threads; at most `deadline`.
    /// Twice is harmless.
    pub fn shutdown(&self, deadline: Duration) {
        let until = Instant::now() + deadline;
        self.stop_reading();
        if !self.pool.wait_drained(until) {
            log::warn!("requests are still being worked on at the end: waiting={} deadline_ms={}", self.pool.len(), deadline.as_millis());
        }
        self.pool.close();
        for home in &self.homes {
            let _ = home.post(Message::Finish(until)); // an ended loop has finished
        }
        let all_ended = self.running.wait_none(until);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if all_ended {
                thread.join();
            } else {
                std::mem::forget(thread); // joining it would outlast the deadline
            }
        }
        if !all_ended {
            log::error!("threads did not end in time and are left to themselves: deadline_ms={}", deadline.as_millis());
        }
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Requests that wait for a work thread.
    pub fn work_queue_len(&self) -> usize {
        self.pool.len()
    }

    fn start_work_thread(&mut self, tag: &str, index: usize, service: &dyn Service) -> io::Result<()> {
        let pool = self.pool.clone();
        let lane = service.lane(LaneKind::Work, LaneWaker::new(move || pool.wake(index)));
        let pool = self.pool.clone();
        self.spawn(tag, &format!("work-{index}"), move || pool.run(index, lane))
    }

    fn make_loops(&mut self, config: &ServerConfig, service: &Arc<dyn Service>) -> io::Result<Vec<EventLoop<ServerDispatch>>> {
        let budget = InboundBudget::new(config.inbound_budget);
        let opaques = Arc::new(AtomicI32::new(1));
        let mut loops = Vec::new();
        for _ in 0..config.net_threads.max(1) {
            let poll = Poll::new()?;
            let waker = Waker::new(poll.registry(), WAKER)?;
            let home = Arc::new(Home::new(waker, opaques.clone(), config.write_high_water, Some(self.pool.clone())));
            self.homes.push(home.clone());
            let waking = home.clone();
            let lane = service.lane(LaneKind::Net, LaneWaker::new(move || waking.wake_lane()));
            let shared = Shared {
                home,
                budget: budget.clone(),
                write_high_water: config.write_high_water,
                idle_ms: u64::try_from(config.idle.as_millis()).unwrap_or(u64::MAX),
            };
            let limits = Limits { max_connections: config.max_connections, connections: self.connections.clone() };
            loops.push(EventLoop::new(poll, shared, limits, ServerDispatch::new(service.clone(), lane, self.pool.clone())));
        }
        Ok(loops)
    }

    fn spawn(&mut self, tag: &str, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let running = self.running.enter();
        let thread = Thread::spawn(tag, name, move || {
            let _running = running;
            body();
        })?;
        self.threads.get_mut().push(thread);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown(DROP_DEADLINE);
    }
}
