//! Headers of sends: 10 (long names), 310 and 320 (short names), and their answer.

use crate::remoting::command::Command;
use crate::remoting::ext::{CustomHeader, ExtText, FieldError, HeaderWriter};

/// Header of 10, 310, 320, 324 and 325. The text fields are borrowed from the frame where they hold no escapes.
#[derive(Clone, Debug)]
pub struct SendMessageRequest<'a> {
    /// Producer group (a).
    pub producer_group: std::borrow::Cow<'a, str>,
    /// Topic (b).
    pub topic: std::borrow::Cow<'a, str>,
    /// Topic whose configuration a new topic inherits (c).
    pub default_topic: std::borrow::Cow<'a, str>,
    /// Queues of a new topic (d).
    pub default_topic_queue_nums: i32,
    /// Queue; negative: the broker picks one (e).
    pub queue_id: i32,
    /// System flags (f).
    pub sys_flag: i32,
    /// Client's milliseconds (g).
    pub born_timestamp: i64,
    /// The application's flag (h).
    pub flag: i32,
    /// Properties text, still escaped (i).
    pub properties: Option<ExtText<'a>>,
    /// Deliveries so far (j).
    pub reconsume_times: i32,
    /// Unit mode (k).
    pub unit_mode: bool,
    /// Most deliveries, retry topics (l).
    pub max_reconsume_times: Option<i32>,
    /// The body is a batch (m).
    pub batch: bool,
}

impl<'a> SendMessageRequest<'a> {
    /// Reads the header of a send in one pass over its fields; 310, 320 and 325 have short names, 10 and 324 long ones.
    ///
    /// # Errors
    /// A needed field (b, e, f, g, h of 310; the same of 10) is missing or malformed.
    pub fn decode(command: &Command<'a>) -> Result<Self, FieldError> {
        let _ = command;
        todo!()
    }
}

/// Writes the short names (310, 320): what clients send.
impl CustomHeader for SendMessageRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        let _ = out;
        todo!()
    }
}

/// Header of a send's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendMessageResponse {
    /// Offset message id; for a batch the ids joined by commas.
    pub msg_id: String,
    /// Queue.
    pub queue_id: i32,
    /// Queue offset (of the first message of a batch).
    pub queue_offset: i64,
    /// The unique key.
    pub transaction_id: Option<String>,
    /// Region (free field MSG_REGION), always sent.
    pub region: std::sync::Arc<str>,
    /// Trace switch (free field TRACE_ON), always sent.
    pub trace_on: bool,
}

impl CustomHeader for SendMessageResponse {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("msgId", &self.msg_id);
        out.int("queueId", self.queue_id.into());
        out.int("queueOffset", self.queue_offset);
        out.option_text("transactionId", self.transaction_id.as_deref());
        out.text("MSG_REGION", &self.region);
        out.bool("TRACE_ON", self.trace_on);
    }
}

impl SendMessageResponse {
    /// Reads an answer (clients).
    ///
    /// # Errors
    /// A needed field is missing or malformed.
    pub fn decode(command: &Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            msg_id: ext.need_text("msgId")?.into_owned(),
            queue_id: ext.need_i32("queueId")?,
            queue_offset: ext.need_i64("queueOffset")?,
            transaction_id: ext.text("transactionId").map(std::borrow::Cow::into_owned),
            region: ext.text("MSG_REGION").unwrap_or(std::borrow::Cow::Borrowed("DefaultRegion")).as_ref().into(),
            trace_on: ext.bool("TRACE_ON").unwrap_or(true),
        })
    }
}
