//! Memory for large frames that are being read, shared by all connections of a server.
//!
//! - First come, first served: nobody overtakes a connection that waits, so a large frame is not starved by smaller ones.
//! - What is granted is a [`Permit`]; its drop gives the bytes back and serves those who wait.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::remoting::codec::MAX_FRAME_LEN;

use super::connection::ConnectionId;
use super::mailbox::{Home, Message};

/// Bytes that frames above [`super::inbound::LARGE_FRAME`] may hold together.
pub(super) struct InboundBudget {
    state: Mutex<State>,
}

struct State {
    free: usize,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    len: usize,
    home: Arc<Home>,
    slot: usize,
    id: ConnectionId,
}

impl InboundBudget {
    /// At least one frame of the greatest length must fit, or it could never be read.
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { free: bytes.max(MAX_FRAME_LEN), waiting: VecDeque::new() }) })
    }

    /// Takes `len` bytes now, or queues the connection, which then gets [`Message::Granted`].
    pub(super) fn acquire(self: &Arc<Self>, len: usize, home: &Arc<Home>, slot: usize, id: ConnectionId) -> Option<Permit> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && state.free >= len {
            state.free -= len;
            return Some(Permit { budget: self.clone(), len });
        }
        state.waiting.push_back(Waiting { len, home: home.clone(), slot, id });
        None
    }

    /// A connection that waits has gone.
    pub(super) fn cancel(self: &Arc<Self>, id: ConnectionId) {
        self.state.lock().waiting.retain(|waiting| waiting.id != id);
        self.release(0); // it may have stood in front of others that fit
    }

    fn release(self: &Arc<Self>, len: usize) {
        let mut granted = Vec::new();
        let mut state = self.state.lock();
        state.free += len;
        while let Some(next) = state.waiting.front()
            && next.len <= state.free
        {
            state.free -= next.len;
            granted.extend(state.waiting.pop_front());
        }
        drop(state);
        for Waiting { len, home, slot, id } in granted {
            // When that loop has ended the message comes back, and dropping it serves the next one.
            drop(home.post(Message::Granted(slot, id, Permit { budget: self.clone(), len })));
        }
    }
}

/// The right to hold so many bytes.
pub(super) struct Permit {
    budget: Arc<InboundBudget>,
    len: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.release(self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI32;

    fn home() -> (mio::Poll, Arc<Home>) {
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        (poll, Arc::new(Home::new(waker, Arc::new(AtomicI32::new(0)), 1, None)))
    }

    fn granted(home: &Home) -> Vec<(u64, Permit)> {
        let mut messages = Vec::new();
        home.take(&mut messages);
        let grants = messages.into_iter().map(|message| match message {
            Message::Granted(_, id, permit) => (id.0, permit),
            _ => panic!("only grants are posted here"),
        });
        grants.collect()
    }

    #[test]
    fn waits_in_order_and_nobody_overtakes() {
        let (_poll, home) = home();
        let budget = InboundBudget::new(0); // one greatest frame
        let first = budget.acquire(MAX_FRAME_LEN - 10, &home, 0, ConnectionId(1)).unwrap();
        assert!(budget.acquire(100, &home, 0, ConnectionId(2)).is_none());
        assert!(budget.acquire(5, &home, 0, ConnectionId(3)).is_none(), "5 bytes are free, but 2 waits in front");
        budget.cancel(ConnectionId(2));
        let third = granted(&home);
        assert_eq!(third.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3], "2 is gone, 3 fits");
        assert!(budget.acquire(MAX_FRAME_LEN, &home, 0, ConnectionId(4)).is_none());
        drop(first);
        assert!(granted(&home).is_empty(), "3 still holds 5 bytes");
        drop(third);
        assert_eq!(granted(&home).len(), 1);
    }

    #[test]
    fn a_grant_to_an_ended_loop_goes_to_the_next() {
        let (_poll, ended) = home();
        let (_poll, running) = home();
        let budget = InboundBudget::new(0);
        let all = budget.acquire(MAX_FRAME_LEN, &running, 0, ConnectionId(1)).unwrap();
        assert!(budget.acquire(MAX_FRAME_LEN, &ended, 0, ConnectionId(2)).is_none());
        assert!(budget.acquire(MAX_FRAME_LEN, &running, 0, ConnectionId(3)).is_none());
        ended.close();
        drop(all);
        assert_eq!(granted(&running).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3]);
    }
}
