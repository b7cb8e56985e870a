//! JSON bodies. Read leniently (`fastjson::parse`), written as Java writes them.

pub mod admin;
pub mod client;
pub mod group;
pub mod heartbeat;
pub mod lock;
pub mod namesrv;
pub mod object;
pub mod queue;
pub mod register;
pub mod route;
pub mod topic;
