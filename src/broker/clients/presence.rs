//! What one connection is registered for: what is to be taken out when it goes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Groups of one connection.
#[derive(Default)]
pub(super) struct Presence {
    consumer_groups: HashSet<String>,
    /// Client id by group: a connection may speak for several.
    producer_groups: HashMap<String, Arc<str>>,
    /// In how many producer groups each client id is.
    producer_ids: HashMap<Arc<str>, usize>,
}

impl Presence {
    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.consumer_groups.len() + self.producer_groups.len()
    }

    pub(super) fn has_consumer(&self, group: &str) -> bool {
        self.consumer_groups.contains(group)
    }

    pub(super) fn has_producer(&self, group: &str) -> bool {
        self.producer_groups.contains_key(group)
    }

    pub(super) fn enter_consumer(&mut self, group: &str) {
        if !self.consumer_groups.contains(group) {
            self.consumer_groups.insert(group.to_owned());
        }
    }

    /// False when it was not there.
    pub(super) fn leave_consumer(&mut self, group: &str) -> bool {
        self.consumer_groups.remove(group)
    }

    /// Returns the client id that the group had before, if it is in no group any more.
    pub(super) fn enter_producer(&mut self, group: &str, client_id: &Arc<str>) -> Option<Arc<str>> {
        *self.producer_ids.entry(Arc::clone(client_id)).or_default() += 1;
        let before = self.producer_groups.insert(group.to_owned(), Arc::clone(client_id))?;
        self.release(before)
    }

    /// `None` when the group was not there; else the client id, if it is in no group any more.
    pub(super) fn leave_producer(&mut self, group: &str) -> Option<Option<Arc<str>>> {
        let client_id = self.producer_groups.remove(group)?;
        Some(self.release(client_id))
    }

    fn release(&mut self, client_id: Arc<str>) -> Option<Arc<str>> {
        let count = self.producer_ids.get_mut(&client_id)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.producer_ids.remove(&client_id);
        Some(client_id)
    }

    pub(super) fn consumer_groups(&self) -> impl Iterator<Item = &str> {
        self.consumer_groups.iter().map(String::as_str)
    }

    pub(super) fn producer_groups(&self) -> impl Iterator<Item = &str> {
        self.producer_groups.keys().map(String::as_str)
    }

    pub(super) fn producer_ids(&self) -> impl Iterator<Item = &str> {
        self.producer_ids.keys().map(|client_id| &**client_id)
    }
}
