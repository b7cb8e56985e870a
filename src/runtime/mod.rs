//! The process's own machinery: threads, clock, who holds a port.
//!
//! Only this module spawns threads.

pub mod clock;
pub mod port_holder;
pub mod thread;
