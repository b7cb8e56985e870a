//! Every byte of the store's files; records are in `common::record`.
