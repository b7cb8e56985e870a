//! Configuration: [`raw`] keeps what was given (text, source, unknown keys), [`broker`] and [`namesrv`] are what it means.

pub mod broker;
pub mod namesrv;
