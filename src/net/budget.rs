//! Memory for large frames that are being read, shared by all connections of a server.
//!
//! A frame is charged as its bytes arrive, in steps, so a length that was only announced costs nothing. A connection reads one
//! frame at a time: its share is one frame of the greatest length.
//! - Nobody waits for ever for the others: a part of the memory, enough for one frame of the greatest length, is kept for one
//!   connection at a time, the one that has waited longest, which can therefore always go on to its frame's end.
//! - The rest goes to those who want least, so that many large beginnings do not stand in front of small frames.
//! - When somebody has to wait, those that hold memory and hardly bring anything are told to go, the slowest first.
//! - What a connection holds is its [`Permit`]'s; its drop gives everything back and serves those who wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::remoting::codec::MAX_FRAME_LEN;

use super::connection::ConnectionId;
use super::mailbox::{Home, Message};

/// Bytes a second that a connection brings when it is not slow.
pub(super) const MIN_RATE: u64 = 1 << 20;
/// Time over which a connection's rate is measured.
const WINDOW: Duration = Duration::from_millis(500);

/// Bytes that frames above [`super::inbound::LARGE_FRAME`] may hold together.
pub(super) struct InboundBudget {
    state: Mutex<State>,
}

struct State {
    /// Bytes that anybody may take.
    free: usize,
    /// Who takes from the part that is kept for one.
    reserve: Option<ConnectionId>,
    /// Counts those who begin to wait.
    turn: u64,
    holders: HashMap<ConnectionId, Holder>,
}

struct Holder {
    home: Arc<Home>,
    slot: usize,
    /// Bytes taken from what anybody may take.
    shared: usize,
    /// Bytes held.
    held: usize,
    waits: Option<Wait>,
    /// Bytes that came in so far.
    received: Arc<AtomicU64>,
    /// `received` at the begin of the present window.
    mark: u64,
    marked: Instant,
    /// Bytes a second in the last whole window.
    rate: Option<u64>,
    /// Was told to go.
    evicted: bool,
}

struct Wait {
    /// Bytes that it wants to hold.
    wants: usize,
    turn: u64,
}

impl InboundBudget {
    /// At least one frame of the greatest length must fit, or it could never be read.
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        let free = bytes.saturating_sub(MAX_FRAME_LEN);
        Arc::new(Self { state: Mutex::new(State { free, reserve: None, turn: 0, holders: HashMap::new() }) })
    }

    /// A connection begins a large frame; it holds nothing yet.
    pub(super) fn enter(self: &Arc<Self>, home: &Arc<Home>, slot: usize, id: ConnectionId) -> Permit {
        let received = Arc::new(AtomicU64::new(0));
        let holder = Holder {
            home: home.clone(),
            slot,
            shared: 0,
            held: 0,
            waits: None,
            received: received.clone(),
            mark: 0,
            marked: Instant::now(),
            rate: None,
            evicted: false,
        };
        self.state.lock().holders.insert(id, holder);
        Permit { budget: self.clone(), id, received }
    }

    /// Measures the rates, and tells slow connections to go when others wait. Called now and then.
    pub(super) fn look(&self, now: Instant) {
        let mut state = self.state.lock();
        if !state.holders.is_empty() {
            state.measure(now);
            let evicted = state.evict();
            drop(state);
            tell(evicted);
        }
    }

    fn ask(&self, id: ConnectionId, wants: usize) -> bool {
        debug_assert!(wants <= MAX_FRAME_LEN);
        let mut state = self.state.lock();
        if state.holders.get(&id).is_none_or(|holder| holder.waits.is_some()) {
            return false; // it has asked already
        }
        state.turn += 1;
        let turn = state.turn;
        if let Some(holder) = state.holders.get_mut(&id) {
            holder.waits = Some(Wait { wants, turn });
        }
        let mut granted = state.serve();
        let is_granted = granted.iter().any(|(_, _, served)| *served == id);
        let evicted = if is_granted {
            Vec::new()
        } else {
            state.measure(Instant::now());
            state.evict()
        };
        drop(state);
        granted.retain(|(_, _, served)| *served != id);
        announce(granted);
        tell(evicted);
        is_granted
    }

    fn leave(&self, id: ConnectionId) {
        let mut state = self.state.lock();
        if let Some(holder) = state.holders.remove(&id) {
            state.free += holder.shared;
        }
        if state.reserve == Some(id) {
            state.reserve = None;
        }
        let granted = state.serve();
        drop(state);
        announce(granted);
    }
}

type Address = (Arc<Home>, usize, ConnectionId);

impl State {
    /// Gives memory to those who wait, as far as it goes.
    fn serve(&mut self) -> Vec<Address> {
        let mut served = Vec::new();
        loop {
            let waiting = || self.holders.iter().filter_map(|(id, holder)| holder.waits.as_ref().map(|wait| (*id, holder, wait)));
            let of_reserve = self.reserve.filter(|id| self.holders.get(id).is_some_and(|holder| holder.waits.is_some()));
            let of_shared = || {
                let least = waiting().min_by_key(|(_, _, wait)| (wait.wants, wait.turn));
                least.filter(|(_, holder, wait)| wait.wants - holder.held <= self.free).map(|(id, ..)| id)
            };
            let longest = || waiting().min_by_key(|(_, _, wait)| wait.turn).map(|(id, ..)| id);
            let (id, reserved) = if let Some(id) = of_reserve {
                (id, true)
            } else if let Some(id) = of_shared() {
                (id, false)
            } else if self.reserve.is_none()
                && let Some(id) = longest()
            {
                (id, true)
            } else {
                return served;
            };
            if reserved {
                self.reserve = Some(id);
            }
            let Some(holder) = self.holders.get_mut(&id) else { return served };
            let Some(wait) = holder.waits.take() else { return served };
            if !reserved {
                self.free -= wait.wants - holder.held;
                holder.shared += wait.wants - holder.held;
            }
            holder.held = wait.wants;
            holder.begin_window(Instant::now()); // the time of waiting is not its fault
            served.push((holder.home.clone(), holder.slot, id));
        }
    }

    fn measure(&mut self, now: Instant) {
        for holder in self.holders.values_mut() {
            let elapsed = now.saturating_duration_since(holder.marked);
            if elapsed >= WINDOW {
                let received = holder.received.load(Ordering::Relaxed) - holder.mark;
                let rate = u128::from(received) * 1_000 / elapsed.as_millis().max(1);
                holder.begin_window(now);
                holder.rate = Some(u64::try_from(rate).unwrap_or(u64::MAX));
            }
        }
    }

    /// The slowest holders whose memory those who wait need.
    fn evict(&mut self) -> Vec<Address> {
        let lacking: usize = self.holders.values().filter_map(|holder| Some(holder.waits.as_ref()?.wants - holder.held)).sum();
        let leaving: usize = self.holders.values().filter(|holder| holder.evicted).map(|holder| holder.held).sum();
        if lacking <= leaving {
            return Vec::new();
        }
        let is_slow = |holder: &Holder| holder.waits.is_none() && !holder.evicted && holder.rate.is_some_and(|rate| rate < MIN_RATE);
        let mut slow: Vec<(ConnectionId, &mut Holder)> =
            self.holders.iter_mut().filter(|(_, holder)| is_slow(holder)).map(|(id, holder)| (*id, holder)).collect();
        slow.sort_by_key(|(_, holder)| (holder.rate, std::cmp::Reverse(holder.held)));
        let mut missing = lacking - leaving;
        let mut evicted = Vec::new();
        for (id, holder) in slow {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(holder.held);
            holder.evicted = true;
            evicted.push((holder.home.clone(), holder.slot, id));
        }
        evicted
    }
}

impl Holder {
    fn begin_window(&mut self, now: Instant) {
        self.mark = self.received.load(Ordering::Relaxed);
        self.marked = now;
        self.rate = None;
    }
}

/// An ended loop has dropped its permits, or will: what is said to it is of no importance.
fn announce(granted: Vec<Address>) {
    for (home, slot, id) in granted {
        drop(home.post(Message::Granted(slot, id)));
    }
}

fn tell(evicted: Vec<Address>) {
    for (home, slot, id) in evicted {
        drop(home.post(Message::Evict(slot, id)));
    }
}

/// What one connection holds for the large frame it reads.
pub(super) struct Permit {
    budget: Arc<InboundBudget>,
    id: ConnectionId,
    received: Arc<AtomicU64>,
}

impl Permit {
    /// Takes as much as is needed to hold `bytes` in all. When that has to wait the connection gets [`Message::Granted`].
    pub(super) fn ask(&self, bytes: usize) -> bool {
        self.budget.ask(self.id, bytes)
    }

    /// So many bytes came in.
    pub(super) fn note_received(&self, len: usize) {
        self.received.fetch_add(len as u64, Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI32;

    const MIB: usize = 1 << 20;

    fn home() -> (mio::Poll, Arc<Home>) {
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        (poll, Arc::new(Home::new(waker, Arc::new(AtomicI32::new(0)), 1, None)))
    }

    /// Who was granted memory, and who was told to go.
    fn told(home: &Home) -> (Vec<u64>, Vec<u64>) {
        let mut messages = Vec::new();
        home.take(&mut messages);
        let (mut granted, mut evicted) = (Vec::new(), Vec::new());
        for message in messages {
            match message {
                Message::Granted(_, id) => granted.push(id.0),
                Message::Evict(_, id) => evicted.push(id.0),
                _ => panic!("nothing else is posted here"),
            }
        }
        (granted, evicted)
    }

    #[test]
    fn the_oldest_goes_on_and_the_rest_is_for_the_small() {
        let (_poll, home) = home();
        let budget = InboundBudget::new(MAX_FRAME_LEN + 4 * MIB);
        let enter = |id| budget.enter(&home, 0, ConnectionId(id));
        let (first, second, third) = (enter(1), enter(2), enter(3));
        assert!(first.ask(3 * MIB) && second.ask(MIB));
        assert!(second.ask(2 * MIB), "nobody has what is kept for one");
        assert!(!first.ask(6 * MIB), "second has it, and 0 of 4 MiB are free");
        assert!(!first.ask(6 * MIB), "asking twice changes nothing");
        assert!(second.ask(MAX_FRAME_LEN), "whoever has it goes on to the end");
        assert!(!third.ask(MIB));
        assert_eq!(told(&home), (vec![], vec![]));
        drop(second);
        // What second held is free: the small one gets it, the other one what is kept.
        assert_eq!(told(&home), (vec![3, 1], vec![]));
        assert!(first.ask(MAX_FRAME_LEN));
        drop((first, third));
        let state = budget.state.lock();
        assert!(state.free == 4 * MIB && state.reserve.is_none() && state.holders.is_empty());
    }

    #[test]
    fn the_smallest_budget_takes_one_after_the_other() {
        let (_poll, home) = home();
        let budget = InboundBudget::new(0);
        let permits: Vec<Permit> = (1..=3).map(|id| budget.enter(&home, 0, ConnectionId(id))).collect();
        assert!(permits[0].ask(100) && !permits[1].ask(100) && !permits[2].ask(5));
        let mut permits = permits.into_iter();
        drop(permits.next());
        assert_eq!(told(&home).0, [2], "it has waited longest");
        drop(permits.next());
        assert_eq!(told(&home).0, [3]);
    }

    #[test]
    fn who_waits_makes_the_slowest_go() {
        let (_poll, home) = home();
        let budget = InboundBudget::new(MAX_FRAME_LEN + 4 * MIB);
        let enter = |id| budget.enter(&home, 0, ConnectionId(id));
        let (fast, slow, slower, large) = (enter(1), enter(2), enter(3), enter(4));
        assert!(fast.ask(MIB) && slow.ask(MIB) && slower.ask(2 * MIB) && large.ask(MAX_FRAME_LEN));
        let later = Instant::now() + Duration::from_secs(2);
        fast.note_received(3 * MIB);
        slow.note_received(MIB);
        slower.note_received(1000);
        large.note_received(5 * MIB);
        budget.look(later);
        assert_eq!(told(&home), (vec![], vec![]), "nobody waits");
        let waiting = enter(5);
        assert!(!waiting.ask(2 * MIB));
        assert_eq!(told(&home), (vec![], vec![3]), "one is enough");
        budget.look(later);
        assert_eq!(told(&home), (vec![], vec![]), "it is told once");
        let another = enter(6);
        assert!(!another.ask(MIB));
        assert_eq!(told(&home), (vec![], vec![2]));
        drop(slower);
        assert_eq!(told(&home).0, [6], "the smaller wish first");
        drop(slow);
        assert_eq!(told(&home).0, [5]);
        assert!(!fast.ask(2 * MIB));
        assert_eq!(told(&home), (vec![], vec![]), "those that are left are not slow");
    }
}
