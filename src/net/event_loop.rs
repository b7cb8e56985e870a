//! One net thread: a poll, its connections, its inbox.
//!
//! A turn: take the events, read and handle (each connection within its budget), call the lane if somebody woke it, do what
//! other threads and this turn's handlers left in the inbox (above all: write, once per connection), look at the clock.
//! - A connection is known by slot and identity; a message for one that is gone finds nobody, also when its slot is taken again.
//!   An event that was reported for the slot's former owner only makes the new one look in vain.
//! - The loop never blocks but in `poll`, and sleeps only when nothing is left to do.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use super::acceptor::Acceptor;
use super::channel::{Channel, Reason, Shared, Stage, Verdict};
use super::connection::{Connection, ConnectionId, Ended};
use super::dispatch::Dispatch;
use super::inbound::{Inbound, Scratch};
use super::log_gate::LogGate;
use super::mailbox::{Home, Message};
use super::service::Port;

pub(super) const WAKER: Token = Token(usize::MAX);
const FIRST_ACCEPTOR: usize = usize::MAX / 2;
const EVENTS: usize = 1024;
/// Times that the inbox is emptied in one turn; what is posted later waits for the next one.
const INBOX_ROUNDS: usize = 8;
/// Longest time between two looks at all connections.
const MAX_SWEEP_MS: u64 = 1_000;
const MIN_SWEEP_MS: u64 = 10;

/// How a loop runs.
pub(super) struct Limits {
    pub(super) max_connections: usize,
    /// Open connections of all loops that share the bound.
    pub(super) connections: Arc<AtomicUsize>,
}

/// A net thread's state.
pub(super) struct EventLoop<D> {
    poll: Poll,
    shared: Shared,
    limits: Limits,
    dispatch: D,
    acceptors: Vec<Acceptor>,
    /// Loops that get the accepted connections in turn.
    homes: Vec<Arc<Home>>,
    next_home: usize,
    channels: Slab<Channel>,
    /// Connections that have something to do in the next turn.
    again: VecDeque<(usize, ConnectionId)>,
    scratch: Scratch,
    messages: Vec<Message>,
    now_ms: u64,
    sweep_ms: u64,
    next_sweep_ms: u64,
    /// When a request of ours or a connect is due.
    next_due_ms: u64,
    reading: bool,
    finish_by: Option<Instant>,
    complaints: LogGate,
    foreigners: LogGate,
}

impl<D: Dispatch> EventLoop<D> {
    pub(super) fn new(poll: Poll, shared: Shared, limits: Limits, dispatch: D) -> Self {
        let sweep_ms = (shared.idle_ms / 8).clamp(MIN_SWEEP_MS, MAX_SWEEP_MS);
        Self {
            poll,
            shared,
            limits,
            dispatch,
            acceptors: Vec::new(),
            homes: Vec::new(),
            next_home: 0,
            channels: Slab::new(),
            again: VecDeque::new(),
            scratch: Scratch::new(),
            messages: Vec::new(),
            now_ms: 0,
            sweep_ms,
            next_sweep_ms: 0,
            next_due_ms: u64::MAX,
            reading: true,
            finish_by: None,
            complaints: LogGate::new(),
            foreigners: LogGate::rare(),
        }
    }

    /// Makes this loop accept for `homes`.
    pub(super) fn accept_for(&mut self, acceptors: Vec<Acceptor>, homes: Vec<Arc<Home>>) -> io::Result<()> {
        self.acceptors = acceptors;
        self.homes = homes;
        for (index, acceptor) in self.acceptors.iter_mut().enumerate() {
            self.poll.registry().register(&mut acceptor.listener, Token(FIRST_ACCEPTOR + index), Interest::READABLE)?;
        }
        Ok(())
    }

    /// The thread's body: ends after [`Message::Finish`].
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        while !self.is_finished() {
            if let Err(error) = self.wait(&mut events) {
                log::error!("net thread ends, it cannot wait for events: error={error}");
                break;
            }
            for event in &events {
                self.take_event(event);
            }
            self.accept();
            self.go_on();
            if self.shared.home.take_lane_wake() {
                self.dispatch.woken();
            }
            self.empty_inbox();
            self.look_at_clock();
        }
        self.end();
    }

    // ---- waiting ----

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let timeout = self.time_to_wait();
        let busy = timeout == Some(Duration::ZERO) || !self.shared.home.fall_asleep();
        let outcome = self.poll.poll(events, if busy { Some(Duration::ZERO) } else { timeout });
        self.shared.home.awake();
        self.now_ms = self.shared.home.now_ms();
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            outcome => outcome,
        }
    }

    fn time_to_wait(&self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let mut due_ms = self.next_due_ms;
        if !self.channels.is_empty() {
            due_ms = due_ms.min(self.next_sweep_ms);
        }
        for acceptor in &self.acceptors {
            due_ms = due_ms.min(acceptor.due_ms().unwrap_or(u64::MAX));
        }
        let by_clock = (due_ms != u64::MAX).then(|| Duration::from_millis(due_ms.saturating_sub(self.now_ms)));
        let by_end = self.finish_by.map(|until| until.saturating_duration_since(Instant::now()));
        match (by_clock, by_end) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn look_at_clock(&mut self) {
        if self.now_ms >= self.next_due_ms {
            self.expire();
        }
        if self.now_ms >= self.next_sweep_ms {
            self.next_sweep_ms = self.now_ms + self.sweep_ms;
            self.sweep();
        }
    }

    /// Ends requests and connects whose time is over.
    fn expire(&mut self) {
        let mut next_ms = u64::MAX;
        let mut late = Vec::new();
        for (slot, channel) in &self.channels {
            if channel.connection.calls_due_ms() <= self.now_ms {
                channel.connection.expire(self.now_ms);
            }
            next_ms = next_ms.min(channel.connection.calls_due_ms());
            if let Stage::Connecting { deadline_ms, .. } = channel.stage {
                if deadline_ms <= self.now_ms {
                    late.push(slot);
                } else {
                    next_ms = next_ms.min(deadline_ms);
                }
            }
        }
        self.next_due_ms = next_ms;
        for slot in late {
            self.abandon(slot, "the peer did not answer in time");
        }
    }

    fn sweep(&mut self) {
        let mut over = Vec::new();
        for (slot, channel) in &mut self.channels {
            self.next_due_ms = self.next_due_ms.min(channel.connection.calls_due_ms());
            if let Some(verdict) = channel.sweep(&self.shared, self.now_ms) {
                over.push((slot, verdict));
            }
        }
        for (slot, verdict) in over {
            self.settle(slot, verdict);
        }
        self.shared.budget.look(Instant::now());
    }

    // ---- events ----

    fn take_event(&mut self, event: &Event) {
        let Token(token) = event.token();
        if event.token() == WAKER {
            return;
        }
        if let Some(acceptor) = token.checked_sub(FIRST_ACCEPTOR).and_then(|index| self.acceptors.get_mut(index)) {
            acceptor.ready = true;
            return;
        }
        let Some(channel) = self.channels.get_mut(token) else { return };
        channel.ready(event.is_readable() || event.is_error(), event.is_writable() || event.is_error(), event.is_read_closed());
        if let Stage::Connecting { .. } = channel.stage {
            return self.check_connect(token);
        }
        if event.is_error() && event.is_write_closed() {
            let error = channel.stream.take_error().ok().flatten();
            return self.close(token, &error.map_or(Reason::Peer, Reason::Io));
        }
        if event.is_writable() {
            self.flush(token);
        }
        if event.is_readable() || event.is_read_closed() {
            self.read(token);
        }
    }

    fn accept(&mut self) {
        let Self { acceptors, homes, next_home, limits, now_ms, complaints, .. } = self;
        for acceptor in acceptors {
            let port = acceptor.port;
            acceptor.accept(*now_ms, |stream, peer| {
                if limits.connections.fetch_add(1, Ordering::Relaxed) >= limits.max_connections {
                    limits.connections.fetch_sub(1, Ordering::Relaxed);
                    if let Some(withheld) = complaints.pass(Instant::now()) {
                        let max = limits.max_connections;
                        log::warn!("connection refused, there are too many: peer={peer} maxConnections={max} withheld={withheld}");
                    }
                    return;
                }
                *next_home = (*next_home + 1) % homes.len();
                if homes[*next_home].post(Message::Adopt(stream, peer, port)).is_err() {
                    limits.connections.fetch_sub(1, Ordering::Relaxed); // that loop has ended
                }
            });
        }
    }

    /// Goes on with the connections whose budget ran out in the last turn.
    fn go_on(&mut self) {
        for _ in 0..self.again.len() {
            let Some((slot, id)) = self.again.pop_front() else { return };
            if let Some(channel) = self.channel(slot, id) {
                channel.listed = false;
                self.flush(slot);
                if self.channel(slot, id).is_some() {
                    self.read(slot);
                }
            }
        }
    }

    fn empty_inbox(&mut self) {
        for _ in 0..INBOX_ROUNDS {
            let mut messages = std::mem::take(&mut self.messages);
            self.shared.home.take(&mut messages);
            if messages.is_empty() {
                self.messages = messages;
                return;
            }
            for message in messages.drain(..) {
                self.take_message(message);
            }
            self.messages = messages;
        }
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Flush(slot, id) => {
                if let Some(channel) = self.channel(slot, id) {
                    let due_ms = channel.connection.calls_due_ms();
                    self.next_due_ms = self.next_due_ms.min(due_ms);
                    self.flush(slot);
                }
            }
            Message::Close(slot, id) => {
                if self.channel(slot, id).is_some() {
                    self.settle(slot, Verdict::Finish(Reason::Asked));
                }
            }
            Message::Granted(slot, id) => {
                let now_ms = self.now_ms;
                if let Some(channel) = self.channel(slot, id) {
                    let verdict = channel.granted(now_ms);
                    self.settle(slot, verdict);
                }
            }
            Message::Evict(slot, id) => {
                if let Some(channel) = self.channel(slot, id) {
                    let verdict = channel.evict();
                    self.settle(slot, verdict);
                }
            }
            Message::Adopt(stream, peer, port) => self.adopt(stream, peer, port),
            Message::Connect(connection, addresses, deadline_ms) => self.connect(connection, addresses, deadline_ms),
            Message::Unreachable(connection, reason) => self.give_up(&connection, reason),
            Message::Run(run) => run(),
            Message::StopReading(_done) => {
                self.reading = false;
                self.acceptors.clear();
            }
            Message::Finish(until) => {
                self.reading = false;
                self.acceptors.clear();
                self.finish_by.get_or_insert(until);
            }
        }
    }

    // ---- connections ----

    fn channel(&mut self, slot: usize, id: ConnectionId) -> Option<&mut Channel> {
        self.channels.get_mut(slot).filter(|channel| channel.connection.id() == id)
    }

    fn read(&mut self, slot: usize) {
        let Some(channel) = self.channels.get_mut(slot) else { return };
        if !self.reading && channel.finishing.is_none() {
            return;
        }
        let verdict = channel.read(slot, &self.shared, &mut self.scratch, &mut self.dispatch, self.now_ms);
        self.settle(slot, verdict);
    }

    /// Writes, and reads again from a peer that has caught up.
    fn flush(&mut self, slot: usize) {
        let Some(channel) = self.channels.get_mut(slot) else { return };
        if let Stage::Connecting { .. } = channel.stage {
            return;
        }
        let verdict = channel.flush(self.now_ms);
        let goes_on = !matches!(verdict, Verdict::Close(_));
        self.settle(slot, verdict);
        if goes_on
            && self.reading
            && let Some(channel) = self.channels.get_mut(slot)
        {
            let verdict = channel.relieve(slot, &self.shared, &mut self.dispatch, self.now_ms);
            self.settle(slot, verdict);
        }
    }

    fn settle(&mut self, slot: usize, verdict: Verdict) {
        match verdict {
            Verdict::Wait => {}
            Verdict::Again => self.list(slot),
            Verdict::Close(reason) => self.close(slot, &reason),
            Verdict::Finish(reason) => {
                let Some(channel) = self.channels.get_mut(slot) else { return };
                if let Stage::Connecting { .. } = channel.stage {
                    return self.close(slot, &reason);
                }
                channel.finish(reason);
                match channel.flush(self.now_ms) {
                    Verdict::Wait => {}
                    Verdict::Again => self.list(slot),
                    Verdict::Finish(reason) | Verdict::Close(reason) => self.close(slot, &reason),
                }
            }
        }
    }

    fn list(&mut self, slot: usize) {
        if let Some(channel) = self.channels.get_mut(slot)
            && !std::mem::replace(&mut channel.listed, true)
        {
            self.again.push_back((slot, channel.connection.id()));
        }
    }

    fn adopt(&mut self, stream: TcpStream, peer: SocketAddr, port: Port) {
        let outcome = stream.local_addr().and_then(|local| stream.set_nodelay(true).map(|()| local));
        let inserted = outcome.and_then(|local| {
            let slot = self.channels.vacant_key();
            let connection = Connection::incoming(self.shared.home.clone(), slot, port, peer, local);
            let channel = Channel::new(connection, stream, Stage::Open, Inbound::new(), self.now_ms);
            self.insert(channel)
        });
        if let Err(error) = inserted {
            self.limits.connections.fetch_sub(1, Ordering::Relaxed);
            log::debug!("accepted connection is gone already: peer={peer} error={error}");
        }
    }

    fn insert(&mut self, mut channel: Channel) -> io::Result<()> {
        let slot = self.channels.vacant_key();
        self.poll.registry().register(&mut channel.stream, Token(slot), Interest::READABLE | Interest::WRITABLE)?;
        if self.channels.is_empty() {
            self.next_sweep_ms = self.now_ms + self.sweep_ms;
        }
        self.channels.insert(channel);
        Ok(())
    }

    /// Takes a connection out and tells whoever has to do with it.
    fn close(&mut self, slot: usize, reason: &Reason) {
        let Some(mut channel) = self.channels.try_remove(slot) else { return };
        let connection = channel.connection.clone();
        let _ = self.poll.registry().deregister(&mut channel.stream); // dropping the socket does it, too
        let was_made = !matches!(channel.stage, Stage::Connecting { .. });
        drop(channel);
        self.limits.connections.fetch_sub(1, Ordering::Relaxed);
        self.report(&connection, reason);
        connection.end(&Ended::Closed);
        if was_made {
            self.dispatch.closed(&connection);
        } else {
            self.dispatch.unreachable(&connection);
        }
    }

    fn report(&mut self, connection: &Connection, reason: &Reason) {
        let peer = connection.peer();
        let is_trouble = matches!(
            reason,
            Reason::Malformed(_)
                | Reason::Foreign(_)
                | Reason::Stalled(..)
                | Reason::NoMemory(..)
                | Reason::Evicted(..)
                | Reason::NotReading(_)
        );
        if !is_trouble {
            return log::debug!("connection closed: peer={peer} reason={reason}");
        }
        // Whoever connects with the wrong protocol looks for the reason here.
        if let Reason::Foreign(_) = reason
            && let Some(withheld) = self.foreigners.pass(Instant::now())
        {
            let port = connection.local().port();
            return log::warn!("connection closed: peer={peer} port={port} reason={reason} withheld={withheld}");
        }
        if let Some(withheld) = self.complaints.pass(Instant::now()) {
            let port = connection.local().port();
            log::info!("connection closed: peer={peer} port={port} reason={reason} withheld={withheld}");
        }
    }

    // ---- outgoing connections ----

    fn connect(&mut self, connection: Connection, addresses: Vec<SocketAddr>, deadline_ms: u64) {
        self.limits.connections.fetch_add(1, Ordering::Relaxed);
        if !connection.is_open() {
            self.limits.connections.fetch_sub(1, Ordering::Relaxed);
            return self.give_up(&connection, "closed before it was made".to_owned());
        }
        self.try_next(connection, addresses, deadline_ms, "the name has no address".to_owned());
    }

    /// Starts to connect to the first address that does not fail at once.
    fn try_next(&mut self, connection: Connection, mut addresses: Vec<SocketAddr>, deadline_ms: u64, mut failure: String) {
        addresses.reverse();
        while let Some(address) = addresses.pop() {
            match TcpStream::connect(address) {
                Err(error) => failure = error.to_string(),
                Ok(stream) => {
                    addresses.reverse();
                    connection.set_slot(self.channels.vacant_key());
                    self.next_due_ms = self.next_due_ms.min(deadline_ms).min(connection.calls_due_ms());
                    let stage = Stage::Connecting { rest: addresses, deadline_ms };
                    let channel = Channel::new(connection.clone(), stream, stage, Inbound::remoting(), self.now_ms);
                    match self.insert(channel) {
                        Ok(()) => return,
                        Err(error) => failure = error.to_string(),
                    }
                    break;
                }
            }
        }
        self.limits.connections.fetch_sub(1, Ordering::Relaxed);
        self.give_up(&connection, failure);
    }

    fn check_connect(&mut self, slot: usize) {
        let Some(channel) = self.channels.get_mut(slot) else { return };
        let failure = match channel.stream.take_error() {
            Ok(None) => match channel.stream.peer_addr() {
                Ok(peer) => return self.connected(slot, peer),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return,
                Err(error) => error,
            },
            Ok(Some(error)) | Err(error) => error,
        };
        if let Stage::Connecting { rest, deadline_ms } = &mut channel.stage {
            let (rest, deadline_ms) = (std::mem::take(rest), *deadline_ms);
            let mut channel = self.channels.remove(slot);
            let _ = self.poll.registry().deregister(&mut channel.stream); // dropping the socket does it, too
            self.try_next(channel.connection, rest, deadline_ms, failure.to_string());
        }
    }

    fn connected(&mut self, slot: usize, peer: SocketAddr) {
        let Some(channel) = self.channels.get_mut(slot) else { return };
        let outcome = channel.stream.local_addr().and_then(|local| channel.stream.set_nodelay(true).map(|()| local));
        match outcome {
            Err(error) => self.abandon(slot, &error.to_string()),
            Ok(local) => {
                channel.stage = Stage::Open;
                channel.connection.connected(peer, local);
                self.flush(slot);
                self.read(slot);
            }
        }
    }

    /// Ends a connect that took too long.
    fn abandon(&mut self, slot: usize, reason: &str) {
        let Some(mut channel) = self.channels.try_remove(slot) else { return };
        let _ = self.poll.registry().deregister(&mut channel.stream); // dropping the socket does it, too
        self.limits.connections.fetch_sub(1, Ordering::Relaxed);
        self.give_up(&channel.connection, reason.to_owned());
    }

    fn give_up(&mut self, connection: &Connection, reason: String) {
        log::debug!("cannot connect: address={} reason={reason}", connection.name());
        self.dispatch.unreachable(connection);
        connection.end(&Ended::Unreachable(reason));
    }

    // ---- the end ----

    fn is_finished(&self) -> bool {
        let Some(until) = self.finish_by else { return false };
        if Instant::now() >= until {
            return true;
        }
        self.shared.home.is_quiet() && self.channels.iter().all(|(_, channel)| !channel.is_open() || channel.is_flushed())
    }

    fn end(mut self) {
        self.dispatch.ending();
        let slots: Vec<usize> = self.channels.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.flush(slot);
            self.close(slot, &Reason::Shutdown);
        }
        for message in self.shared.home.close() {
            match message {
                Message::Connect(connection, ..) | Message::Unreachable(connection, _) => connection.end(&Ended::Closed),
                Message::Run(run) => run(),
                Message::Adopt(..) => {
                    self.limits.connections.fetch_sub(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
    }
}
