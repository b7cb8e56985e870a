//! Bodies of 41 and 42.

use super::queue::MessageQueue;

/// Request body of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockBatchBody {
    /// Group.
    pub consumer_group: String,
    /// Client.
    pub client_id: String,
    /// Queues.
    pub mq_set: Vec<MessageQueue>,
    /// Do not ask other replicas.
    pub only_this_broker: bool,
}

impl LockBatchBody {
    /// Reads a request.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        let _ = text;
        todo!()
    }

    /// As Java writes it (clients).
    pub fn to_json(&self) -> String {
        todo!()
    }
}

/// Body of 41's answer.
pub fn lock_ok_json(queues: &[MessageQueue]) -> String {
    let _ = queues;
    todo!()
}

/// Reads 41's answer (clients).
///
/// # Errors
/// What is wrong, and where.
pub fn lock_ok_from_json(text: &[u8]) -> Result<Vec<MessageQueue>, String> {
    let _ = text;
    todo!()
}
