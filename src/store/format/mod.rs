//! Every byte of the store's files; records are in `common::record`.

pub(crate) mod cq_unit;
pub(crate) mod index;
