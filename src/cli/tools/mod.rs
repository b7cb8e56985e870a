//! Tools: clients on the command line.

pub mod bench;
pub mod consume;
pub mod send;
pub mod topic;
