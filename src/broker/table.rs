//! Tables from names that clients choose to shared values: read without a lock, changed by copying a shard.
//!
//! - A reader sees each change whole or not at all, and never waits for a writer.
//! - Changes of one shard are serialized by the shard's mutex, which is held for a copy of the shard only, never over I/O.
//! - A change costs 1/1024 of the table, many changes at once the same for each shard they meet: the creations of a million names stay
//!   cheap.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::quality::RandomState;
use parking_lot::Mutex;

const SHARDS: usize = 1024;

type Map<V> = HashMap<Arc<str>, V, RandomState>;

/// What a change does to an entry.
pub(crate) enum Change<V> {
    /// Nothing.
    Keep,
    /// Adds or replaces it.
    Put(V),
    /// Removes it.
    Remove,
}

/// A table of cheap-to-clone values by name.
pub(crate) struct NameTable<V> {
    shards: Box<[Shard<V>]>,
    hasher: RandomState,
}

struct Shard<V> {
    map: ArcSwap<Map<V>>,
    change: Mutex<()>,
}

impl<V> Default for NameTable<V> {
    fn default() -> Self {
        let hasher = RandomState::default();
        let empty = Arc::new(Map::with_hasher(hasher.clone()));
        let shard = |_| Shard { map: ArcSwap::new(Arc::clone(&empty)), change: Mutex::new(()) };
        Self { shards: (0..SHARDS).map(shard).collect(), hasher }
    }
}

impl<V: Clone> NameTable<V> {
    /// The value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<V> {
        self.shard(name).map.load().get(name).cloned()
    }

    /// Reads a value in place.
    pub(crate) fn with<R>(&self, name: &str, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.shard(name).map.load().get(name).map(read)
    }

    /// Decides about one entry while no one else changes it; returns what `decide` returns besides.
    pub(crate) fn change<R>(&self, name: &str, decide: impl FnOnce(Option<&V>) -> (Change<V>, R)) -> R {
        let shard = self.shard(name);
        let _changing = shard.change.lock();
        let map = shard.map.load_full();
        let (change, result) = decide(map.get(name));
        match change {
            Change::Keep => {}
            Change::Put(value) => {
                let mut next = Map::clone(&map);
                next.insert(name.into(), value);
                shard.map.store(Arc::new(next));
            }
            Change::Remove => {
                let mut next = Map::clone(&map);
                next.remove(name);
                shard.map.store(Arc::new(next));
            }
        }
        result
    }

    /// Decides about many entries, each while no one else changes it; each shard is copied once at most.
    pub(crate) fn change_all<'a>(
        &self, names: impl IntoIterator<Item = &'a str>, mut decide: impl FnMut(&'a str, Option<&V>) -> Change<V>,
    ) {
        let mut placed: Vec<(usize, &str)> = names.into_iter().map(|name| (self.index(name), name)).collect();
        placed.sort_by_key(|(index, _)| *index);
        for names in placed.chunk_by(|(a, _), (b, _)| a == b) {
            let shard = &self.shards[names[0].0];
            let _changing = shard.change.lock();
            let map = shard.map.load_full();
            let mut next: Option<Map<V>> = None;
            for (_, name) in names {
                let change = decide(name, next.as_ref().unwrap_or(&map).get(*name));
                match change {
                    Change::Keep => {}
                    Change::Put(value) => {
                        next.get_or_insert_with(|| Map::clone(&map)).insert((*name).into(), value);
                    }
                    Change::Remove => {
                        next.get_or_insert_with(|| Map::clone(&map)).remove(*name);
                    }
                }
            }
            if let Some(next) = next {
                shard.map.store(Arc::new(next));
            }
        }
    }

    /// Adds many entries, those of equal names replaced; each shard is copied once.
    pub(crate) fn extend(&self, entries: impl IntoIterator<Item = (Arc<str>, V)>) {
        let mut by_shard: Vec<Vec<(Arc<str>, V)>> = (0..SHARDS).map(|_| Vec::new()).collect();
        for (name, value) in entries {
            by_shard[self.index(&name)].push((name, value));
        }
        for (shard, entries) in self.shards.iter().zip(by_shard) {
            if !entries.is_empty() {
                let _changing = shard.change.lock();
                let mut next = Map::clone(&shard.map.load());
                next.extend(entries);
                shard.map.store(Arc::new(next));
            }
        }
    }

    /// All entries, sorted by name. Not a snapshot of one moment.
    pub(crate) fn entries(&self) -> Vec<(Arc<str>, V)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.map.load().iter().map(|(name, value)| (Arc::clone(name), value.clone())));
        }
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    fn shard(&self, name: &str) -> &Shard<V> {
        &self.shards[self.index(name)]
    }

    /// Bits that the maps themselves do not look at first (they use the lowest and the highest ones).
    fn index(&self, name: &str) -> usize {
        (self.hasher.hash_one(name) >> 40) as usize % SHARDS
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn behaves_as_a_map() {
        let table = NameTable::<u64>::default();
        let mut model = BTreeMap::new();
        let mut random = fastrand::Rng::with_seed(7);
        for step in 0..20_000u64 {
            let name = format!("name-{}", random.u32(0..300));
            match random.u32(0..4) {
                0 => {
                    table.change(&name, |_| (Change::Remove, ()));
                    model.remove(&name);
                }
                1 => {
                    let seen = table.change(&name, |old| (Change::Keep, old.copied()));
                    assert_eq!(seen, model.get(&name).copied(), "step {step}");
                }
                _ => {
                    table.change(&name, |_| (Change::Put(step), ()));
                    model.insert(name.clone(), step);
                }
            }
            assert_eq!(table.get(&name), model.get(&name).copied(), "step {step}");
        }
        let entries: Vec<(String, u64)> = table.entries().into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        assert_eq!(entries, model.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn many_changes_at_once_are_as_many_single_ones() {
        let (together, singly) = (NameTable::<u64>::default(), NameTable::<u64>::default());
        let mut random = fastrand::Rng::with_seed(8);
        for round in 0..50u64 {
            let names: Vec<String> = (0..2_000).map(|_| format!("name-{}", random.u32(0..3_000))).collect();
            let decide = |old: Option<&u64>| match old {
                None => Change::Put(round),
                Some(old) if (old + round) % 3 == 0 => Change::Remove,
                Some(old) if (old + round) % 3 == 1 => Change::Keep,
                Some(old) => Change::Put(old + 1),
            };
            together.change_all(names.iter().map(String::as_str), |_, old| decide(old));
            for name in &names {
                singly.change(name, |old| (decide(old), ()));
            }
            assert_eq!(together.entries(), singly.entries(), "round {round}");
        }
        assert!(!singly.entries().is_empty());
    }

    #[test]
    fn extend_replaces_and_adds() {
        let table = NameTable::<u32>::default();
        table.change("a", |_| (Change::Put(1), ()));
        table.extend([("a".into(), 2), ("b".into(), 3)]);
        assert_eq!((table.get("a"), table.get("b"), table.get("c")), (Some(2), Some(3), None));
        assert_eq!(table.with("b", |value| value + 1), Some(4));
    }

    #[test]
    fn concurrent_changes_of_one_entry_are_not_lost() {
        let table = NameTable::<u64>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        table.change("counter", |old| (Change::Put(old.copied().unwrap_or(0) + 1), ()));
                    }
                });
            }
        });
        assert_eq!(table.get("counter"), Some(4_000));
    }
}
