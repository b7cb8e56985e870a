//! Tells brokers that the lowest broker id of their name changed (905). Off unless `notifyMinBrokerIdChanged`; the thread and its
//! connections are made when the first change is to be told.

use crossbeam::channel::{self, Receiver, Sender, TrySendError};
use parking_lot::Mutex;

use crate::net::client::{RemotingClient, RemotingClientConfig};
use crate::remoting::code::request;
use crate::remoting::command::Body;
use crate::remoting::ext::{CustomHeader, HeaderWriter};
use crate::runtime::thread::Thread;

use super::route_table::MinBrokerIdChange;

/// Changes that may wait; more are dropped, as brokers also ask by themselves.
const MAX_WAITING: usize = 1_000;

/// The thread that tells.
pub struct Notifier {
    tag: String,
    running: Mutex<State>,
}

enum State {
    Idle,
    Running(Sender<MinBrokerIdChange>, Thread),
    Stopped,
}

impl Notifier {
    /// Nothing runs yet; `tag` goes in front of the thread's name.
    pub fn new(tag: &str) -> Self {
        Self { tag: tag.to_owned(), running: Mutex::new(State::Idle) }
    }

    /// Tells a change soon. Does not block.
    pub fn tell(&self, change: MinBrokerIdChange) {
        let mut state = self.running.lock();
        if let State::Idle = *state {
            match self.start() {
                Ok(running) => *state = running,
                Err(error) => log::error!("brokers cannot be told of a changed minimum broker id: {error}"),
            }
        }
        if let State::Running(sender, _) = &*state
            && let Err(TrySendError::Full(change)) = sender.try_send(change)
        {
            log::warn!("a change of the minimum broker id is not told, {MAX_WAITING} wait: address={}", change.min_broker_addr);
        }
    }

    /// Ends the thread. Twice is harmless.
    pub fn shutdown(&self) {
        let state = std::mem::replace(&mut *self.running.lock(), State::Stopped);
        if let State::Running(sender, thread) = state {
            drop(sender);
            thread.join();
        }
    }

    fn start(&self) -> std::io::Result<State> {
        let (sender, receiver) = channel::bounded(MAX_WAITING);
        let client = RemotingClient::start(RemotingClientConfig { tag: self.tag.clone(), ..RemotingClientConfig::default() })?;
        let thread = Thread::spawn(&self.tag, "notify", move || run(&client, &receiver))?;
        Ok(State::Running(sender, thread))
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn run(client: &RemotingClient, receiver: &Receiver<MinBrokerIdChange>) {
    while let Ok(change) = receiver.recv() {
        for address in &change.tell {
            if let Err(error) = client.oneway(address, request::NOTIFY_MIN_BROKER_ID_CHANGE, &change, Body::Empty) {
                log::warn!("broker was not told of a changed minimum broker id: address={address} cause={error}");
            }
        }
    }
    client.shutdown();
}

impl CustomHeader for MinBrokerIdChange {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.int("minBrokerId", self.min_broker_id);
        out.text("minBrokerAddr", &self.min_broker_addr);
        out.option_text("offlineBrokerAddr", self.offline_broker_addr.as_deref());
        out.option_text("haBrokerAddr", self.ha_broker_addr.as_deref());
    }
}
