//! Requests of ours that wait for their answers, per connection.
//!
//! A call is in the table or its callback has been handed out, never both and never neither; after [`Calls::close`] nothing
//! enters any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};

use foldhash::fast::RandomState;

use crate::remoting::command::OwnedCommand;

use super::connection::{InvokeCallback, InvokeError};
use super::dispatch::guarded;

/// Requests that may wait on one connection.
pub(super) const MAX_CALLS: usize = 65_535;

/// One request that waits.
pub(super) struct Call {
    /// Milliseconds of the loop.
    pub(super) deadline_ms: u64,
    pub(super) timeout_ms: u64,
    pub(super) done: InvokeCallback,
}

/// Why a call did not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Closed,
    TooMany,
}

#[derive(Default)]
pub(super) struct Calls {
    waiting: HashMap<i32, Call, RandomState>,
    closed: bool,
}

impl Calls {
    /// Enters a call under a number that no other one has.
    pub(super) fn insert(&mut self, opaques: &AtomicI32, call: Call) -> Result<i32, (Refused, InvokeCallback)> {
        if self.closed {
            return Err((Refused::Closed, call.done));
        }
        if self.waiting.len() >= MAX_CALLS {
            return Err((Refused::TooMany, call.done));
        }
        let opaque = loop {
            let next = opaques.fetch_add(1, Ordering::Relaxed);
            if !self.waiting.contains_key(&next) {
                break next;
            }
        };
        self.waiting.insert(opaque, call);
        Ok(opaque)
    }

    /// Hands out the call of an answer.
    pub(super) fn remove(&mut self, opaque: i32) -> Option<InvokeCallback> {
        self.waiting.remove(&opaque).map(|call| call.done)
    }

    /// Hands out the calls whose time is over, and says when the next one's is.
    pub(super) fn expire(&mut self, now_ms: u64) -> (Vec<Call>, Option<u64>) {
        let late: Vec<i32> = self.waiting.iter().filter(|(_, call)| call.deadline_ms <= now_ms).map(|(opaque, _)| *opaque).collect();
        let late = late.into_iter().filter_map(|opaque| self.waiting.remove(&opaque)).collect();
        (late, self.waiting.values().map(|call| call.deadline_ms).min())
    }

    /// Hands out all calls and takes no more.
    pub(super) fn close(&mut self) -> Vec<Call> {
        self.closed = true;
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// Lets go of a table that is not in use.
    pub(super) fn trim(&mut self) {
        if self.waiting.is_empty() && self.waiting.capacity() > 0 {
            self.waiting = HashMap::default();
        }
    }
}

/// Tells the one who asked. A panic in there is logged and goes no further.
pub(super) fn finish(done: InvokeCallback, outcome: Result<OwnedCommand, InvokeError>) {
    guarded("the callback of a request", || done(outcome));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(deadline_ms: u64) -> Call {
        Call { deadline_ms, timeout_ms: 1, done: Box::new(|_| {}) }
    }

    #[test]
    fn numbers_are_distinct_also_when_they_wrap() {
        let opaques = AtomicI32::new(i32::MAX);
        let mut calls = Calls::default();
        let first = calls.insert(&opaques, call(1)).ok();
        let second = calls.insert(&opaques, call(1)).ok();
        assert_eq!((first, second), (Some(i32::MAX), Some(i32::MIN)));
        opaques.store(i32::MAX, Ordering::Relaxed);
        assert_eq!(calls.insert(&opaques, call(1)).ok(), Some(i32::MIN + 1));
    }

    #[test]
    fn expires_what_is_due_and_names_the_next() {
        let opaques = AtomicI32::new(0);
        let mut calls = Calls::default();
        for deadline_ms in [30, 10, 20] {
            assert!(calls.insert(&opaques, call(deadline_ms)).is_ok());
        }
        assert_eq!(calls.expire(9).1, Some(10));
        let (late, next) = calls.expire(20);
        assert_eq!((late.len(), next), (2, Some(30)));
        assert!(calls.remove(1).is_none(), "10 is out");
        assert!(calls.remove(0).is_some());
        assert_eq!(calls.expire(100).1, None);
    }

    #[test]
    fn is_bounded_and_closes_for_good() {
        let opaques = AtomicI32::new(0);
        let mut calls = Calls::default();
        for _ in 0..MAX_CALLS {
            assert!(calls.insert(&opaques, call(1)).is_ok());
        }
        assert_eq!(calls.insert(&opaques, call(1)).err().map(|(why, _)| why), Some(Refused::TooMany));
        assert_eq!(calls.close().len(), MAX_CALLS);
        assert_eq!(calls.insert(&opaques, call(1)).err().map(|(why, _)| why), Some(Refused::Closed));
        assert!(calls.close().is_empty());
    }
}
