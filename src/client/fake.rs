//! A transport for tests: a closure plays all servers, and every call is written down.

use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, bounded};
use parking_lot::Mutex;

use crate::net::connection::{Connection, InvokeCallback, InvokeError};
use crate::net::responder::Responder;
use crate::remoting::body::route::{BrokerData, QueueData, TopicRouteData};
use crate::remoting::codec::{self, Head};
use crate::remoting::command::{Body, Command, FLAG_RESPONSE, OwnedCommand, SerializeType};
use crate::remoting::ext::CustomHeader;
use crate::runtime::clock::Clock;

use super::inquiry::push_handler;
use super::instance::{ClientConfig, Instance};
use super::transport::Transport;

/// One request as a server saw it.
#[derive(Clone, Debug)]
pub struct Call {
    pub address: String,
    pub code: i32,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub oneway: bool,
}

impl Call {
    pub fn field(&self, name: &str) -> String {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }
}

pub type Answer = Result<OwnedCommand, InvokeError>;
type Server = dyn Fn(&Call) -> Answer + Send + Sync;

/// The transport and its notes.
#[derive(Clone)]
pub struct Fake {
    server: Arc<Server>,
    calls: Arc<Mutex<Vec<Call>>>,
    parked: Arc<Mutex<Vec<InvokeCallback>>>,
}

/// The text of an [`InvokeError::Closed`] that means "hold this request until shutdown".
const HOLD: &str = "hold";

/// Holds the request, as a long poll.
pub fn hold() -> Answer {
    Err(InvokeError::Closed(HOLD.to_owned()))
}

impl Fake {
    pub fn new(server: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> Self {
        Self { server: Arc::new(server), calls: Arc::default(), parked: Arc::default() }
    }

    pub fn instance(&self) -> Arc<Instance> {
        self.instance_of("ns:9876")
    }

    pub fn instance_of(&self, namesrv: &str) -> Arc<Instance> {
        Instance::with_transport(ClientConfig::new(namesrv), Arc::new(self.clone()), Clock::System).unwrap()
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    pub fn calls_of(&self, code: i32) -> Vec<Call> {
        self.calls.lock().iter().filter(|call| call.code == code).cloned().collect()
    }

    fn serve(&self, address: &str, code: i32, header: &dyn CustomHeader, body: Body, oneway: bool) -> Answer {
        let body = match body {
            Body::Empty => Vec::new(),
            Body::Owned(bytes) => bytes,
            Body::Shared(slices) => slices.concat(),
        };
        let request = frame(code, None, header, Vec::new());
        let fields = request.view().ext.iter().map(|(name, value)| (name.text().into_owned(), value.text().into_owned())).collect();
        let call = Call { address: address.to_owned(), code, fields, body, oneway };
        self.calls.lock().push(call.clone());
        (self.server)(&call)
    }
}

impl Transport for Fake {
    fn invoke(&self, address: &str, code: i32, header: &dyn CustomHeader, body: Body, _timeout: Duration) -> Answer {
        self.serve(address, code, header, body, false)
    }

    fn invoke_async(&self, address: &str, code: i32, header: &dyn CustomHeader, body: Body, _timeout: Duration, done: InvokeCallback) {
        match self.serve(address, code, header, body, false) {
            Err(InvokeError::Closed(text)) if text == HOLD => self.parked.lock().push(done),
            answer => done(answer),
        }
    }

    fn oneway(&self, address: &str, code: i32, header: &dyn CustomHeader, body: Body) -> Result<(), InvokeError> {
        self.serve(address, code, header, body, true).map(|_| ())
    }

    fn shutdown(&self) {
        let parked = std::mem::take(&mut *self.parked.lock());
        parked.into_iter().for_each(|done| done(Err(InvokeError::Closed("fake".to_owned()))));
    }
}

/// An answer with everything.
pub fn answer(code: i32, remark: Option<&str>, header: &dyn CustomHeader, body: Vec<u8>) -> Answer {
    Ok(frame(code, remark, header, body))
}

/// An empty answer of code 0.
pub fn ok() -> Answer {
    answer(0, None, &(), Vec::new())
}

/// A refusal.
pub fn refusal(code: i32, remark: &str) -> Answer {
    answer(code, Some(remark), &(), Vec::new())
}

/// Has a client's handler of pushes serve a request of a broker; its answer comes by the channel.
pub fn push(instance: &Instance, code: i32, header: &dyn CustomHeader, body: Vec<u8>) -> Receiver<OwnedCommand> {
    let (sender, receiver) = bounded(1);
    let local = "127.0.0.1:1".parse().unwrap();
    let frame = frame_of(0, code, None, header, body);
    let sink = Box::new(move |bytes: Vec<u8>| sender.send(OwnedCommand::new(bytes).unwrap()).unwrap());
    let responder = Responder::detached(&frame.view(), Connection::detached(local, local, |_| {}), sink);
    push_handler(instance.groups().clone())(&frame.view(), responder);
    receiver
}

/// A route whose brokers (name, master's address) have `queues` queues each.
pub fn route(brokers: &[(&str, &str)], queues: i32) -> Answer {
    let data = TopicRouteData {
        queue_datas: brokers
            .iter()
            .map(|(name, _)| QueueData {
                broker_name: (*name).to_owned(),
                read_queue_nums: queues,
                write_queue_nums: queues,
                perm: 6,
                topic_sys_flag: 0,
            })
            .collect(),
        broker_datas: brokers
            .iter()
            .map(|(name, address)| BrokerData {
                cluster: "c".to_owned(),
                broker_name: (*name).to_owned(),
                broker_addrs: [(0, (*address).to_owned())].into(),
                enable_acting_master: false,
            })
            .collect(),
        order_topic_conf: None,
    };
    answer(0, None, &(), data.to_json(true).into_bytes())
}

fn frame(code: i32, remark: Option<&str>, header: &dyn CustomHeader, body: Vec<u8>) -> OwnedCommand {
    frame_of(FLAG_RESPONSE, code, remark, header, body)
}

fn frame_of(flag: i32, code: i32, remark: Option<&str>, header: &dyn CustomHeader, body: Vec<u8>) -> OwnedCommand {
    let mut bytes = Vec::new();
    let head = Head { code, flag, opaque: 0, remark, serialize_type: SerializeType::Json };
    codec::encode_head(&mut bytes, &head, header, body.len());
    bytes.extend_from_slice(&body);
    debug_assert!(Command::parse(&bytes).is_ok());
    OwnedCommand::new(bytes).unwrap()
}
