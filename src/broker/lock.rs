//! Queue locks of orderly consumers (requests 41 and 42): per group and queue, 60 s.
//!
//! - A queue has one holder at a time; a lock that its holder does not renew for 60 s is anybody's.
//! - What has expired is forgotten when its group is next looked at, and at the latest when the table has doubled since.

use std::collections::HashMap;

use parking_lot::Mutex;

/// How long a lock holds without being renewed.
pub const LOCK_MS: i64 = 60_000;
/// Groups below which nothing is swept.
const SWEEP_FLOOR: usize = 1_024;

/// The locks of one broker.
#[derive(Default)]
pub struct QueueLocks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: HashMap<String, HashMap<(String, i32), Lock>>,
    /// Groups that were left after the last sweep.
    swept: usize,
}

struct Lock {
    client_id: String,
    renewed_ms: i64,
}

impl Lock {
    fn is_valid(&self, now_ms: i64) -> bool {
        now_ms - self.renewed_ms <= LOCK_MS
    }
}

impl QueueLocks {
    /// Locks each (topic, queue id) that is free, expired or the client's own; returns those.
    pub fn lock(&self, group: &str, client_id: &str, queues: &[(String, i32)], now_ms: i64) -> Vec<(String, i32)> {
        let mut state = self.state.lock();
        state.sweep(now_ms);
        let locks = state.groups.entry(group.to_owned()).or_default();
        let mut held = Vec::with_capacity(queues.len());
        for queue in queues {
            match locks.get_mut(queue) {
                Some(lock) if lock.client_id != client_id && lock.is_valid(now_ms) => continue,
                Some(lock) => {
                    if lock.client_id != client_id {
                        log::info!(
                            "queue lock expired and changes hands: group={group} topic={} queue={} from={} to={client_id}",
                            queue.0,
                            queue.1,
                            lock.client_id
                        );
                        client_id.clone_into(&mut lock.client_id);
                    }
                    lock.renewed_ms = now_ms;
                }
                None => {
                    locks.insert(queue.clone(), Lock { client_id: client_id.to_owned(), renewed_ms: now_ms });
                }
            }
            held.push(queue.clone());
        }
        held
    }

    /// Releases those that are the client's.
    pub fn unlock(&self, group: &str, client_id: &str, queues: &[(String, i32)]) {
        let mut state = self.state.lock();
        let Some(locks) = state.groups.get_mut(group) else { return };
        for queue in queues {
            if locks.get(queue).is_some_and(|lock| lock.client_id == client_id) {
                locks.remove(queue);
            }
        }
        if locks.is_empty() {
            state.groups.remove(group);
        }
    }

    /// Whether an unexpired lock of the group exists on any queue.
    pub fn is_any_locked(&self, group: &str, now_ms: i64) -> bool {
        let mut state = self.state.lock();
        let Some(locks) = state.groups.get_mut(group) else { return false };
        locks.retain(|_, lock| lock.is_valid(now_ms));
        let locked = !locks.is_empty();
        if !locked {
            state.groups.remove(group);
        }
        locked
    }
}

impl State {
    fn sweep(&mut self, now_ms: i64) {
        if self.groups.len() < (self.swept * 2).max(SWEEP_FLOOR) {
            return;
        }
        self.groups.retain(|_, locks| {
            locks.retain(|_, lock| lock.is_valid(now_ms));
            !locks.is_empty()
        });
        self.swept = self.groups.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock::Clock;

    fn queues(ids: &[i32]) -> Vec<(String, i32)> {
        ids.iter().map(|id| ("T".to_owned(), *id)).collect()
    }

    #[test]
    fn one_holder_until_it_expires() {
        let clock = Clock::manual(1_000);
        let locks = QueueLocks::default();
        assert_eq!(locks.lock("g", "a", &queues(&[0, 1]), clock.now_ms()), queues(&[0, 1]));
        assert_eq!(locks.lock("g", "b", &queues(&[1, 2]), clock.now_ms()), queues(&[2]));
        assert_eq!(locks.lock("h", "b", &queues(&[1]), clock.now_ms()), queues(&[1]), "another group");
        clock.advance(LOCK_MS - 1);
        assert_eq!(locks.lock("g", "a", &queues(&[0]), clock.now_ms()), queues(&[0]), "renewed");
        clock.advance(2);
        assert_eq!(locks.lock("g", "b", &queues(&[0, 1]), clock.now_ms()), queues(&[1]), "1 expired, 0 was renewed");
        assert!(locks.is_any_locked("g", clock.now_ms()));
        clock.advance(LOCK_MS + 1);
        assert!(!locks.is_any_locked("g", clock.now_ms()) && !locks.is_any_locked("unknown", clock.now_ms()));
    }

    #[test]
    fn only_the_holder_unlocks() {
        let locks = QueueLocks::default();
        locks.lock("g", "a", &queues(&[0, 1]), 0);
        locks.unlock("g", "b", &queues(&[0]));
        assert!(locks.lock("g", "b", &queues(&[0]), 1).is_empty());
        locks.unlock("g", "a", &queues(&[0]));
        assert_eq!(locks.lock("g", "b", &queues(&[0, 1]), 1), queues(&[0]));
    }

    #[test]
    fn expired_locks_of_many_groups_are_forgotten() {
        let locks = QueueLocks::default();
        for n in 0..SWEEP_FLOOR {
            locks.lock(&format!("g{n}"), "a", &queues(&[0]), 0);
        }
        locks.lock("last", "a", &queues(&[0]), LOCK_MS + 1);
        assert_eq!(locks.state.lock().groups.len(), 1);
    }
}
