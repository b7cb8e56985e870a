//! Headers of the end of a transaction (37) and of the question about one (39).

use std::borrow::Cow;

use crate::remoting::command::Command;
use crate::remoting::ext::{CustomHeader, FieldError, HeaderWriter};

/// Header of 37.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndTransactionRequest<'a> {
    /// Producer group.
    pub producer_group: Cow<'a, str>,
    /// Queue offset of the half message.
    pub tran_state_table_offset: i64,
    /// Physical offset of the half message.
    pub commit_log_offset: i64,
    /// Transaction type of `sysFlag`: 8 commit, 12 roll back, 0 not decided.
    pub commit_or_rollback: i32,
    /// It answers a question of the broker (39).
    pub from_transaction_check: bool,
    /// The client's id of the message; only told.
    pub msg_id: Cow<'a, str>,
    /// Transaction id; only told.
    pub transaction_id: Option<Cow<'a, str>>,
}

impl<'a> EndTransactionRequest<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// A needed field is missing or malformed.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            producer_group: ext.need_text("producerGroup")?,
            tran_state_table_offset: ext.need_i64("tranStateTableOffset")?,
            commit_log_offset: ext.need_i64("commitLogOffset")?,
            commit_or_rollback: ext.need_i32("commitOrRollback")?,
            from_transaction_check: ext.bool("fromTransactionCheck").unwrap_or(false),
            msg_id: ext.text("msgId").unwrap_or_default(),
            transaction_id: ext.text("transactionId"),
        })
    }
}

impl CustomHeader for EndTransactionRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("producerGroup", &self.producer_group);
        out.int("tranStateTableOffset", self.tran_state_table_offset);
        out.int("commitLogOffset", self.commit_log_offset);
        out.int("commitOrRollback", self.commit_or_rollback.into());
        out.bool("fromTransactionCheck", self.from_transaction_check);
        out.text("msgId", &self.msg_id);
        out.option_text("transactionId", self.transaction_id.as_deref());
    }
}

/// Header of 39.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckTransactionState<'a> {
    /// Topic the half message is stored on.
    pub topic: Cow<'a, str>,
    /// Queue offset of the half message.
    pub tran_state_table_offset: i64,
    /// Physical offset of the half message.
    pub commit_log_offset: i64,
    /// Unique key of the message, which is its transaction id too.
    pub unique_key: Cow<'a, str>,
    /// Offset message id of the half message.
    pub offset_msg_id: Cow<'a, str>,
    /// Name of the broker.
    pub broker_name: Cow<'a, str>,
}

impl<'a> CheckTransactionState<'a> {
    /// Reads the header (clients).
    ///
    /// # Errors
    /// A needed field is missing or malformed.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            topic: ext.text("topic").unwrap_or_default(),
            tran_state_table_offset: ext.need_i64("tranStateTableOffset")?,
            commit_log_offset: ext.need_i64("commitLogOffset")?,
            unique_key: ext.text("transactionId").unwrap_or_default(),
            offset_msg_id: ext.text("offsetMsgId").unwrap_or_default(),
            broker_name: ext.text("bname").unwrap_or_default(),
        })
    }
}

impl CustomHeader for CheckTransactionState<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("topic", &self.topic);
        out.int("tranStateTableOffset", self.tran_state_table_offset);
        out.int("commitLogOffset", self.commit_log_offset);
        if !self.unique_key.is_empty() {
            out.text("msgId", &self.unique_key);
            out.text("transactionId", &self.unique_key);
        }
        out.text("offsetMsgId", &self.offset_msg_id);
        out.text("bname", &self.broker_name);
    }
}
