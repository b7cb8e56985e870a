//! The store on a disk that fails and forgets: what must hold afterwards, and the machinery to find out.

pub(super) mod invariants;

mod disk;
