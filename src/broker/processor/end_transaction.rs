//! The end of a transaction: 37. Its checks come in the order of `EndTransactionProcessor`.

use std::sync::Arc;

use crate::broker::context::BrokerContext;
use crate::broker::transaction::decisions::Decision;
use crate::broker::transaction::half::Half;
use crate::broker::transaction::transactions::Refusal;
use crate::common::record::Record;
use crate::common::sysflag;
use crate::config::broker::BrokerRole;
use crate::net::responder::Responder;
use crate::net::service::Placement;
use crate::remoting::code::{request as code, response};
use crate::remoting::command::Command;
use crate::remoting::header::transaction::EndTransactionRequest;
use crate::store::message_store::Durability;

use super::Handler;
use super::parked::when_durable;

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[(code::END_TRANSACTION, Placement::Pool, end_transaction)];

fn end_transaction(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let header = match EndTransactionRequest::decode(request) {
        Ok(header) => header,
        Err(error) => return responder.error(response::SYSTEM_ERROR, &error.to_string()),
    };
    if context.config.broker_role == BrokerRole::Slave {
        let text = format!("transactions end at the master, this broker is a slave (brokerRole), group {}", header.producer_group);
        return responder.error(response::SLAVE_NOT_AVAILABLE, &text);
    }
    let decision = match header.commit_or_rollback {
        sysflag::TRANSACTION_COMMIT => Decision::Committed,
        sysflag::TRANSACTION_ROLLBACK => Decision::RolledBack,
        other => {
            log::debug!("transaction not decided yet: group={} state={other} key={}", header.producer_group, header.msg_id);
            return responder.silent(); // as in the reference: nobody waits for an answer to this
        }
    };
    match decide(context, &header, decision) {
        Ok(end) => when_durable(&context.store, end, true, move |outcome| match outcome {
            Durability::Durable | Durability::TimedOut => responder.ok(), // late, but stored
            Durability::Failed(why) => responder.error(response::SYSTEM_ERROR, &why),
        }),
        Err((code, text)) => {
            if responder.is_oneway() {
                log::warn!(
                    "transaction not ended: group={} half_offset={} physical_offset={} key={} reason={text}",
                    header.producer_group,
                    header.tran_state_table_offset,
                    header.commit_log_offset,
                    header.msg_id
                );
            }
            responder.error(code, &text);
        }
    }
}

fn decide(context: &BrokerContext, header: &EndTransactionRequest<'_>, decision: Decision) -> Result<i64, Refusal> {
    let error = |text: String| (response::SYSTEM_ERROR, text);
    let at = header.commit_log_offset;
    let not_found = |why: &str| error(format!("Find prepared transaction message failed: commitLogOffset {at}, {why}"));
    let bytes = (at >= 0).then(|| context.store.record_at(at)).flatten().ok_or_else(|| not_found("no message begins there"))?;
    let record = Record::parse(&bytes).map_err(|why| not_found(&why.to_string()))?;
    let half = Half::read(&record).map_err(|why| not_found(&why))?;
    if !header.from_transaction_check
        && let Some(immunity_ms) = half.own_immunity_ms(context.config.transaction_timeout_ms)
    {
        let age_ms = context.clock.now_ms() - record.store_timestamp;
        if age_ms > immunity_ms {
            let text = format!(
                "the decision comes {age_ms} ms after the half message, later than CHECK_IMMUNITY_TIME_IN_SECONDS allows ({immunity_ms} ms): \
                 the producer will be asked"
            );
            return Err((response::ILLEGAL_OPERATION, text));
        }
    }
    if half.group != header.producer_group {
        return Err(error(format!("The producer group wrong: {:?}, the half message is of {:?}", header.producer_group, half.group)));
    }
    if record.queue_offset != header.tran_state_table_offset {
        let (given, stored) = (header.tran_state_table_offset, record.queue_offset);
        return Err(error(format!("The transaction state table offset wrong: {given}, the half message is at {stored}")));
    }
    context.transactions.decide(context, &half, decision)
}
