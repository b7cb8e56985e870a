//! The remoting protocol: bytes in, values out. No I/O, no threads, no clock.
//!
//! - [`command`]: what a frame says: [`command::Command`] borrows it from the buffer, [`command::OwnedCommand`] keeps it.
//! - [`codec`]: frames split and joined; JSON and ROCKETMQ headers both ways.
//! - [`ext`]: the fields of a header, read ([`ext::ExtFields`]) and written ([`ext::HeaderWriter`]).
//! - [`header`]: typed headers, one file per family; [`body`]: JSON bodies; [`fastjson`]: Java's dialect of JSON.

pub mod body;
pub mod code;
pub mod codec;
pub mod command;
pub mod ext;
pub mod fastjson;
pub mod header;
mod json_text;
