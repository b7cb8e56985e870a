//! The process's own machinery: threads, clock.
//!
//! Only this module spawns threads.

pub mod clock;
pub mod port_holder;
pub mod thread;
