//! Sockets: the only place that knows mio.
//!
//! - [`service`]: what a role implements ([`service::Service`], [`service::Lane`]).
//! - [`responder`]: the duty to answer a request exactly once.
//! - [`connection`]: a handle to one peer, for pushes and server-initiated requests.
//! - [`server`]: listeners, net threads, work pool. [`client`]: outgoing connections.
//!
//! Within: `event_loop` is a net thread, `mailbox` what other threads leave it, `channel` one of its sockets with its two
//! directions `inbound` (bytes to frames, `detect`, `budget`) and `write_queue` (frames to bytes). `dispatch` gives requests to
//! a role's lane or to the `work_pool`; `calls` are our own requests that wait.
//!
//! Threads and locks: a socket belongs to one net thread. Shared are a connection's outbox and calls, a loop's inbox, the budget
//! and the pool's queue, each behind a lock of its own that is held for a few instructions; of two, only the budget is held
//! when nothing else is taken, and no callback runs under any.

mod acceptor;
mod budget;
mod calls;
mod channel;
pub mod client;
pub mod connection;
mod detect;
mod dispatch;
mod event_loop;
mod inbound;
mod log_gate;
mod mailbox;
pub mod responder;
mod running;
pub mod server;
pub mod service;
#[cfg(test)]
mod tests;
mod work_pool;
mod write_queue;
