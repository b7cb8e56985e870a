//! Configuration: [`raw`] keeps what was given (text, source), [`keys`] is every known key, [`resolve`] turns text into [`broker`] and
//! [`namesrv`], with all errors at once. [`config_file`] keeps files that survive crashes.

pub mod broker;
pub mod config_file;
pub mod edit;
pub mod host;
pub mod keys;
pub mod namesrv;
pub mod raw;
pub mod resolve;
