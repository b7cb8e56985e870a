//! Delay levels: SCHEDULE_TOPIC_XXXX.
