//! The command line: roles (server, namesrv, broker) and tools.

pub mod tools;
