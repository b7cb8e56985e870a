//! Headers of client management: 35, and what is relayed to one consumer (307, 309).

use std::borrow::Cow;

use crate::remoting::command::Command;
use crate::remoting::ext::{CustomHeader, FieldError, HeaderWriter};

/// Free field of a heartbeat's answer: this server understands heartbeats of the second version.
pub const SUPPORTS_HEARTBEAT_V2: &str = "IS_SUPPORT_HEART_BEAT_V2";
/// Free field of a heartbeat's answer: the next heartbeat is to carry the subscriptions.
pub const SUBSCRIPTIONS_WANTED: &str = "IS_SUB_CHANGE";

/// Header of 35.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnregisterClientRequest<'a> {
    /// Client.
    pub client_id: Cow<'a, str>,
    /// Producer group to leave.
    pub producer_group: Option<Cow<'a, str>>,
    /// Consumer group to leave.
    pub consumer_group: Option<Cow<'a, str>>,
}

impl<'a> UnregisterClientRequest<'a> {
    /// Reads the header; a blank group is none.
    pub fn decode(command: &'a Command<'_>) -> Self {
        let ext = &command.ext;
        let group = |name| ext.text(name).filter(|group| !group.is_empty());
        Self {
            client_id: ext.text("clientID").unwrap_or_default(),
            producer_group: group("producerGroup"),
            consumer_group: group("consumerGroup"),
        }
    }
}

impl CustomHeader for UnregisterClientRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("clientID", &self.client_id);
        out.option_text("producerGroup", self.producer_group.as_deref());
        out.option_text("consumerGroup", self.consumer_group.as_deref());
    }
}

/// The consumer that 307 and 309 are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerClientRequest<'a> {
    /// Group.
    pub consumer_group: Cow<'a, str>,
    /// Client.
    pub client_id: Cow<'a, str>,
}

impl<'a> ConsumerClientRequest<'a> {
    /// Reads the fields that both headers have.
    ///
    /// # Errors
    /// Group or client is missing.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        Ok(Self { consumer_group: command.ext.need_text("consumerGroup")?, client_id: command.ext.need_text("clientId")? })
    }
}
