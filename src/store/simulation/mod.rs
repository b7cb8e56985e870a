//! The store on a disk that fails and forgets: what must hold afterwards, and the machinery to find out.
//!
//! - [`disk`]: files whose unsynced changes a power cut takes, in part and out of order; calls that fail.
//! - [`life`]: what is done to a store, from a seed. [`model`]: what it must hold then.
//! - [`invariants`]: what holds of every store, whatever was done to it.
//!
//! `PETREL_SIM_SEED=n` lives through one seed, `PETREL_SIM_SEEDS=n` through so many. A seed fixes the operations and what the
//! power cuts leave of a given state. What the store's own threads do between two operations (the next file made ahead, an
//! asynchronous flush) is theirs, so a seed may need several runs to show a race again.

mod disk;
pub(super) mod invariants;
mod life;
mod model;
#[cfg(test)]
mod stops;

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use parking_lot::Mutex;

    use super::life::{Journal, live};
    use crate::runtime::thread::Thread;

    /// Seeds of an ordinary test run.
    const SEEDS: u64 = 300;
    const THREADS: usize = 2;
    /// More failures than this are counted only.
    const MAX_TOLD: usize = 5;

    fn number(name: &str) -> Option<u64> {
        std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    }

    /// What broke, with all that was done.
    fn failure_of(seed: u64) -> Option<String> {
        let journal = Journal::default();
        let lived = catch_unwind(AssertUnwindSafe(|| live(seed, Arc::clone(&journal))));
        let why = match lived {
            Ok(Ok(())) => return None,
            Ok(Err(why)) => why,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
                format!("panic: {}", text.unwrap_or("?"))
            }
        };
        let done = journal.lock().join("\n  ");
        Some(format!("PETREL_SIM_SEED={seed}\n  {done}\n{why}"))
    }

    #[test]
    fn nothing_promised_is_lost_whatever_fails() {
        let single = number("PETREL_SIM_SEED");
        let (first, count) = single.map_or((0, number("PETREL_SIM_SEEDS").unwrap_or(SEEDS)), |seed| (seed, 1));
        let next = Arc::new(AtomicU64::new(first));
        let failures = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<Thread> = (0..THREADS)
            .map(|number| {
                let (next, failures) = (Arc::clone(&next), Arc::clone(&failures));
                let run = move || {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= first + count {
                            return;
                        }
                        if let Some(failure) = failure_of(seed) {
                            failures.lock().push((seed, failure));
                        }
                    }
                };
                Thread::spawn("", &format!("sim-{number}"), run).unwrap()
            })
            .collect();
        threads.into_iter().for_each(Thread::join);
        let mut failures = std::mem::take(&mut *failures.lock());
        failures.sort();
        let seeds: Vec<u64> = failures.iter().map(|(seed, _)| *seed).collect();
        let told: Vec<String> = failures.into_iter().take(MAX_TOLD).map(|(_, failure)| failure).collect();
        assert!(seeds.is_empty(), "{}\n{} of {count} seeds failed: {seeds:?}", told.join("\n\n"), seeds.len());
    }
}
