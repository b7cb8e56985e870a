//! Transactions: half messages that wait for their producer's decision.
//!
//! - A half message lies in queue 0 of RMQ_SYS_TRANS_HALF_TOPIC, with its real topic and queue among its properties ([`half`]).
//! - A decision is an op message in RMQ_SYS_TRANS_OP_HALF_TOPIC that names the half message's queue offset ([`op`]). It is appended
//!   together with the committed message, so that at most the last one of a crash is missing.
//! - [`decisions`]: who is finished, in memory. [`transactions`]: decides, once. [`check`]: the `tx-check` thread, which asks the producers.

pub(crate) mod check;
pub(crate) mod decisions;
pub(crate) mod half;
pub(crate) mod op;
pub(crate) mod transactions;

pub use transactions::{TransactionStatus, Transactions};

/// Under this group the offsets of the half and of the op queue are kept.
pub(crate) const TRANSACTION_GROUP: &str = "CID_RMQ_SYS_TRANS";
/// The queue of half messages, and of op messages.
pub(crate) const QUEUE: i32 = 0;
