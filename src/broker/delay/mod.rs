//! Delay levels: messages that wait on SCHEDULE_TOPIC_XXXX until their time has come.
//!
//! - [`progress`]: how far each level has been delivered, in memory and in `delayOffset.json`.
//! - [`levels`]: the `delay` thread.

mod levels;
mod progress;

pub use levels::DelayLevels;
