//! Outgoing connections: one per address, made when first needed, made again after a loss.
//!
//! A connection is in the table from the moment somebody wants it; what is sent while it is being made waits in it. Names are
//! resolved by the thread that asks, or for requests that must not block by a helper.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crossbeam::channel::{self, RecvTimeoutError, Sender, TrySendError};
use mio::{Poll, Waker};
use parking_lot::Mutex;

use crate::remoting::command::{Body, Command, OwnedCommand};
use crate::remoting::ext::CustomHeader;
use crate::runtime::thread::Thread;

use super::budget::InboundBudget;
use super::channel::Shared;
use super::connection::{Connection, Ended, InvokeCallback, InvokeError};
use super::dispatch::{self, Dispatch};
use super::event_loop::{EventLoop, Limits, WAKER};
use super::mailbox::{Home, Message};
use super::responder::Responder;

/// Unsent bytes of a connection above which it takes no further requests.
const PUSH_LIMIT: usize = 32 << 20;
/// Bytes that large answers may hold while they are read.
const INBOUND_BUDGET: usize = 256 << 20;
/// A client always reads: were it to wait until its requests have left, it and a server that waits until its answers have been
/// read would wait for each other.
const WRITE_HIGH_WATER: usize = usize::MAX;
/// Names that may wait to be resolved for requests that do not block.
const MAX_NAMES: usize = 1024;
/// Time that the thread gets to send what was written when the client ends.
const FINISH: Duration = Duration::from_millis(500);

/// Handles requests that servers send to us (39, 40, 220, 221, 307, 309, 326); runs on the net thread, must not block.
pub type PushHandler = Arc<dyn Fn(&Command<'_>, Responder) + Send + Sync>;

/// Told that a connection is gone: its address as given to `invoke`. Runs on the net thread, must not block.
pub type CloseHandler = Arc<dyn Fn(&str) + Send + Sync>;

/// How a client runs.
#[derive(Clone)]
pub struct RemotingClientConfig {
    /// Prefix of the net thread's name; may be empty.
    pub tag: String,
    /// Time for a connection to be made.
    pub connect_timeout: Duration,
    /// Silence after which a connection is closed.
    pub idle: Duration,
    /// Handles what servers ask.
    pub push_handler: Option<PushHandler>,
    /// Told when a connection is gone.
    pub on_close: Option<CloseHandler>,
}

impl Default for RemotingClientConfig {
    fn default() -> Self {
        Self {
            tag: String::new(),
            connect_timeout: Duration::from_secs(3),
            idle: Duration::from_secs(120),
            push_handler: None,
            on_close: None,
        }
    }
}

/// Connections to servers, on one net thread.
pub struct RemotingClient {
    tag: String,
    connect_timeout: Duration,
    home: Arc<Home>,
    table: Arc<Table>,
    stopped: AtomicBool,
    net_thread: Arc<OnceLock<ThreadId>>,
    thread: Mutex<Option<Thread>>,
    resolver: Mutex<Option<Resolver>>,
}

/// The latest connection of each address.
type Table = Mutex<HashMap<String, Connection>>;

/// The thread that resolves names for those who must not wait.
struct Resolver {
    names: Sender<Name>,
    /// Joined after `names` is gone.
    _thread: Thread,
}

struct Name {
    connection: Connection,
    address: String,
    deadline_ms: u64,
}

/// Whether the calling thread may wait for a name server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    MayBlock,
    MustNotBlock,
}

impl RemotingClient {
    /// Starts the net thread.
    ///
    /// # Errors
    /// The system's.
    pub fn start(config: RemotingClientConfig) -> io::Result<Self> {
        let RemotingClientConfig { tag, connect_timeout, idle, push_handler, on_close } = config;
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let home = Arc::new(Home::new(waker, Arc::new(AtomicI32::new(1)), PUSH_LIMIT, None));
        let table = Arc::new(Table::default());
        let shared = Shared {
            home: home.clone(),
            budget: InboundBudget::new(INBOUND_BUDGET),
            write_high_water: WRITE_HIGH_WATER,
            idle_ms: u64::try_from(idle.as_millis()).unwrap_or(u64::MAX),
        };
        let limits = Limits { max_connections: usize::MAX, connections: Arc::new(AtomicUsize::new(0)) };
        let event_loop = EventLoop::new(poll, shared, limits, ClientDispatch { table: table.clone(), push_handler, on_close });
        let net_thread = Arc::new(OnceLock::new());
        let own_id = net_thread.clone();
        let thread = Thread::spawn(&tag, "net-out", move || {
            let _ = own_id.set(std::thread::current().id()); // set once
            event_loop.run();
        })?;
        Ok(Self {
            tag,
            connect_timeout,
            home,
            table,
            stopped: AtomicBool::new(false),
            net_thread,
            thread: Mutex::new(Some(thread)),
            resolver: Mutex::new(None),
        })
    }

    /// Sends a request to `address` (`host:port`, `[v6]:port`) and waits for the answer. Not from the net thread.
    ///
    /// # Errors
    /// [`InvokeError`].
    pub fn invoke(
        &self, address: &str, code: i32, header: &(impl CustomHeader + ?Sized), body: Body, timeout: Duration,
    ) -> Result<OwnedCommand, InvokeError> {
        if self.is_net_thread() {
            return Err(InvokeError::Connect(address.to_owned(), "a net thread must not wait for an answer".to_owned()));
        }
        let until = Instant::now() + timeout;
        let connection = self.obtain(address, Patience::MayBlock);
        connection.wait_writable(until)?;
        let (sender, receiver) = channel::bounded(1);
        let done = Box::new(move |outcome| {
            let _ = sender.send(outcome); // the one who asked may have given up
        });
        connection.invoke(code, header, body, timeout, done);
        match receiver.recv_deadline(until) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => Err(connection.too_late(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))),
            Err(RecvTimeoutError::Disconnected) => Err(InvokeError::Closed(address.to_owned())),
        }
    }

    /// Sends a request; `done` is called exactly once, on the net thread (after its end, on this one), and must not block. Does
    /// not block itself.
    pub fn invoke_async(
        &self, address: &str, code: i32, header: &(impl CustomHeader + ?Sized), body: Body, timeout: Duration, done: InvokeCallback,
    ) {
        self.obtain(address, Patience::MustNotBlock).invoke(code, header, body, timeout, done);
    }

    /// Sends a request that nobody answers. Waits at most for the connection, and while the peer is slow to read; on the net
    /// thread it waits for neither.
    ///
    /// # Errors
    /// [`InvokeError::Connect`], [`InvokeError::Closed`], [`InvokeError::Congested`].
    pub fn oneway(&self, address: &str, code: i32, header: &(impl CustomHeader + ?Sized), body: Body) -> Result<(), InvokeError> {
        if self.is_net_thread() {
            return self.obtain(address, Patience::MustNotBlock).send_oneway(code, header, body);
        }
        let connection = self.connection(address)?;
        connection.wait_writable(Instant::now() + self.connect_timeout)?;
        connection.send_oneway(code, header, body)
    }

    /// The connection to `address`, made when there is none. Not from the net thread.
    ///
    /// # Errors
    /// [`InvokeError::Connect`].
    pub fn connection(&self, address: &str) -> Result<Connection, InvokeError> {
        let connection = self.obtain(address, Patience::MayBlock);
        if self.is_net_thread() {
            return Ok(connection);
        }
        // The net thread gives up in time; the margin is for it being busy.
        connection.wait_connected(Instant::now() + self.connect_timeout + Duration::from_secs(1))?;
        Ok(connection)
    }

    /// Ends the thread and closes everything; waiting requests end with [`InvokeError::Closed`]. Twice is harmless.
    pub fn shutdown(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _ = self.home.post(Message::Finish(Instant::now() + FINISH)); // an ended loop has finished
        let resolver = self.resolver.lock().take();
        if let Some(Resolver { names, _thread: thread }) = resolver {
            drop(names);
            // It may sit in a look-up that nobody can cut short. It ends by itself, for its queue is closed.
            std::mem::forget(thread);
        }
        if self.is_net_thread() {
            return; // it ends when this callback has returned
        }
        let mut thread = self.thread.lock(); // a second caller waits for the first
        drop(thread.take());
    }

    fn is_net_thread(&self) -> bool {
        self.net_thread.get() == Some(&std::thread::current().id())
    }

    /// The connection to `address`; a new one is on its way when there was none.
    fn obtain(&self, address: &str, patience: Patience) -> Connection {
        let mut table = self.table.lock();
        if let Some(connection) = table.get(address)
            && connection.is_open()
        {
            return connection.clone();
        }
        let connection = Connection::outgoing(self.home.clone(), address);
        table.insert(address.to_owned(), connection.clone());
        drop(table);
        self.begin_connect(&connection, address, patience);
        connection
    }

    fn begin_connect(&self, connection: &Connection, address: &str, patience: Patience) {
        if self.stopped.load(Ordering::SeqCst) {
            self.table.lock().remove(address);
            return connection.end(&Ended::Unreachable("the client is shut down".to_owned()));
        }
        let deadline_ms = self.home.deadline_ms(self.connect_timeout);
        if let Ok(literal) = address.parse::<SocketAddr>() {
            return post(&self.home, Message::Connect(connection.clone(), vec![literal], deadline_ms));
        }
        let name = Name { connection: connection.clone(), address: address.to_owned(), deadline_ms };
        if patience == Patience::MayBlock && !self.is_net_thread() {
            resolve(&self.home, name);
        } else {
            self.resolve_elsewhere(name);
        }
    }

    fn resolve_elsewhere(&self, name: Name) {
        let mut resolver = self.resolver.lock();
        if resolver.is_none() {
            let (names, receiver) = channel::bounded::<Name>(MAX_NAMES);
            let home = self.home.clone();
            match Thread::spawn(&self.tag, "resolve", move || receiver.iter().for_each(|name| resolve(&home, name))) {
                Ok(thread) => *resolver = Some(Resolver { names, _thread: thread }),
                Err(error) => return post(&self.home, Message::Unreachable(name.connection, error.to_string())),
            }
        }
        let Some(Resolver { names, .. }) = &*resolver else { return };
        if let Err(TrySendError::Full(name) | TrySendError::Disconnected(name)) = names.try_send(name) {
            let reason = format!("{MAX_NAMES} names wait to be resolved already");
            post(&self.home, Message::Unreachable(name.connection, reason));
        }
    }
}

impl Drop for RemotingClient {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Looks a name up, which may take long, and lets the loop connect.
fn resolve(home: &Home, name: Name) {
    let Name { connection, address, deadline_ms } = name;
    let message = match address.to_socket_addrs() {
        Ok(addresses) => Message::Connect(connection, addresses.collect(), deadline_ms),
        Err(error) => Message::Unreachable(connection, format!("the address does not resolve: {error}")),
    };
    post(home, message);
}

/// Leaves a message about a new connection; when the loop has ended, so does the connection.
fn post(home: &Home, message: Message) {
    if let Err(Message::Connect(connection, ..) | Message::Unreachable(connection, _)) = home.post(message) {
        connection.end(&Ended::Unreachable("the client is shut down".to_owned()));
    }
}

/// What a client's loop does with requests of servers.
struct ClientDispatch {
    table: Arc<Table>,
    push_handler: Option<PushHandler>,
    on_close: Option<CloseHandler>,
}

impl ClientDispatch {
    /// Takes the connection out of the table, unless a newer one stands there already.
    fn forget(&self, connection: &Connection) -> String {
        let address = connection.name();
        let mut table = self.table.lock();
        if table.get(&address).is_some_and(|known| known.id() == connection.id()) {
            table.remove(&address);
        }
        address
    }
}

impl Dispatch for ClientDispatch {
    fn request(&mut self, request: &Command<'_>, connection: &Connection) {
        let responder = Responder::new(request, connection.clone());
        match &self.push_handler {
            Some(handler) => dispatch::guarded("a handler of a server's request", || handler(request, responder)),
            None => dispatch::unsupported(request, responder),
        }
    }

    fn closed(&mut self, connection: &Connection) {
        let address = self.forget(connection);
        if let Some(on_close) = &self.on_close {
            dispatch::guarded("a close handler", || on_close(&address));
        }
    }

    fn unreachable(&mut self, connection: &Connection) {
        self.forget(connection);
    }
}
