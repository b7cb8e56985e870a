//! Request processors, one file per family, and the table that knows which serves what.
//!
//! - A request is found in [`RequestTable`] by its code: hot ones are served on the net thread that read them, slow ones on a work thread.
//! - Sends are staged by the lane and appended together; every other request sees the sends that came before it in the same read.

pub(crate) mod admin_broker;
pub(crate) mod admin_group;
pub(crate) mod admin_offset;
pub(crate) mod admin_topic;
pub(crate) mod answer;
pub(crate) mod assignment;
pub(crate) mod client;
pub(crate) mod client_view;
pub(crate) mod end_transaction;
pub(crate) mod lock;
pub(crate) mod offset;
pub(crate) mod parked;
pub(crate) mod pull;
pub(crate) mod query;
pub(crate) mod relay;
pub(crate) mod reply;
pub(crate) mod send;
pub(crate) mod send_back;
pub(crate) mod send_batch;
pub(crate) mod stored_properties;

use std::collections::HashMap;
use std::sync::Arc;

use crate::net::connection::Connection;
use crate::net::responder::Responder;
use crate::net::service::{Lane, LaneKind, LaneWaker, Placement, Port, Service};
use crate::remoting::code::request;
use crate::remoting::command::Command;

use super::context::BrokerContext;
use send::SendLane;

/// Serves one request: answers, or keeps the responder.
pub(crate) type Handler = fn(&Arc<BrokerContext>, &Command<'_>, Responder);

/// What serves a code.
#[derive(Clone, Copy)]
enum Serving {
    /// The lane's own sends.
    Send,
    /// A pull, which may turn out to be slow.
    Pull,
    /// A function.
    Plain(Handler),
}

/// What each file serves.
const FAMILIES: &[&[(i32, Placement, Handler)]] = &[
    admin_broker::REQUESTS,
    admin_group::REQUESTS,
    admin_offset::REQUESTS,
    admin_topic::REQUESTS,
    assignment::REQUESTS,
    client::REQUESTS,
    end_transaction::REQUESTS,
    lock::REQUESTS,
    offset::REQUESTS,
    query::REQUESTS,
    relay::REQUESTS,
    reply::REQUESTS,
    send_back::REQUESTS,
];

/// Codes below this number are found by index.
const DENSE: usize = 1024;

/// Every code this broker serves.
pub(crate) struct RequestTable {
    dense: Vec<Option<(Placement, Serving)>>,
    sparse: HashMap<i32, (Placement, Serving)>,
}

impl RequestTable {
    /// The table of the broker.
    pub(crate) fn new() -> Self {
        let mut table = Self { dense: vec![None; DENSE], sparse: HashMap::new() };
        for code in [request::SEND_MESSAGE, request::SEND_MESSAGE_V2, request::SEND_BATCH_MESSAGE] {
            table.add(code, Placement::Inline, Serving::Send);
        }
        for code in [request::PULL_MESSAGE, request::LITE_PULL_MESSAGE] {
            table.add(code, Placement::Inline, Serving::Pull);
        }
        for (code, placement, handler) in FAMILIES.iter().copied().flatten() {
            table.add(*code, *placement, Serving::Plain(*handler));
        }
        table
    }

    fn add(&mut self, code: i32, placement: Placement, serving: Serving) {
        debug_assert!(self.get(code).is_none(), "code {code} is served twice");
        match usize::try_from(code).ok().and_then(|index| self.dense.get_mut(index)) {
            Some(slot) => *slot = Some((placement, serving)),
            None => {
                self.sparse.insert(code, (placement, serving));
            }
        }
    }

    fn get(&self, code: i32) -> Option<(Placement, Serving)> {
        match usize::try_from(code).ok().and_then(|index| self.dense.get(index)) {
            Some(slot) => *slot,
            None => self.sparse.get(&code).copied(),
        }
    }

    fn placement(&self, code: i32, port: Port) -> Placement {
        if port == Port::Fast && is_refused_on_fast_port(code) {
            return Placement::Unknown;
        }
        self.get(code).map_or(Placement::Unknown, |(placement, _)| placement)
    }
}

/// Pulls and pops are not served on the VIP port, which exists so that sends do not queue behind them.
fn is_refused_on_fast_port(code: i32) -> bool {
    matches!(
        code,
        request::PULL_MESSAGE
            | request::LITE_PULL_MESSAGE
            | request::POP_MESSAGE
            | request::PEEK_MESSAGE
            | request::NOTIFICATION
            | request::POLLING_INFO
    )
}

/// The broker's side of the server.
pub(crate) struct BrokerService {
    context: Arc<BrokerContext>,
    table: Arc<RequestTable>,
}

impl BrokerService {
    /// Serves `context`.
    pub(crate) fn new(context: Arc<BrokerContext>) -> Self {
        Self { context, table: Arc::new(RequestTable::new()) }
    }
}

impl Service for BrokerService {
    fn placement(&self, code: i32, port: Port) -> Placement {
        self.table.placement(code, port)
    }

    fn lane(&self, kind: LaneKind, waker: LaneWaker) -> Box<dyn Lane> {
        Box::new(BrokerLane {
            sends: SendLane::new(Arc::clone(&self.context), kind, waker),
            context: Arc::clone(&self.context),
            table: Arc::clone(&self.table),
            kind,
        })
    }

    fn closed(&self, connection: &Connection) {
        self.context.hold.closed(connection.id());
        self.context.clients.closed(connection.id());
    }
}

/// One thread's state.
struct BrokerLane {
    sends: SendLane,
    context: Arc<BrokerContext>,
    table: Arc<RequestTable>,
    kind: LaneKind,
}

impl Lane for BrokerLane {
    fn handle(&mut self, request: &Command<'_>, responder: Responder) {
        let Some((_, serving)) = self.table.get(request.code) else {
            let remark = format!(" request type {} not supported", request.code);
            return responder.error(crate::remoting::code::response::REQUEST_CODE_NOT_SUPPORTED, &remark);
        };
        if let Serving::Send = serving {
            return self.sends.handle(request, responder, self.kind);
        }
        self.sends.append_staged();
        match serving {
            Serving::Send => {}
            Serving::Pull => pull::handle(&self.context, request, responder, self.kind),
            Serving::Plain(handler) => handler(&self.context, request, responder),
        }
    }

    fn read_done(&mut self) {
        self.sends.append_staged();
    }

    fn woken(&mut self) {
        self.sends.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements() {
        let table = RequestTable::new();
        for code in [10, 310, 320, 11, 361, 14, 15, 30, 31] {
            assert_eq!(table.placement(code, Port::Main), Placement::Inline, "code {code}");
        }
        for code in [12, 33, 36, 37, 45, 321] {
            assert_eq!(table.placement(code, Port::Main), Placement::Pool, "code {code}");
            assert_eq!(table.placement(code, Port::Fast), Placement::Pool, "code {code}");
        }
        for code in [11, 361, 200_050, 200_052, 200_054, 200_055] {
            assert_eq!(table.placement(code, Port::Fast), Placement::Unknown, "code {code}");
        }
        for code in [13, 47, 209, -1, i32::MIN, i32::MAX, 1023, 1024] {
            assert_eq!(table.placement(code, Port::Main), Placement::Unknown, "code {code}");
        }
        assert_eq!(table.placement(310, Port::Fast), Placement::Inline);
    }
}
