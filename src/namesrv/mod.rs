//! The name server: which broker has which topic.

pub mod server;
