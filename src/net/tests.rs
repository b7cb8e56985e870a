//! Servers and clients over loopback.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::client::{RemotingClient, RemotingClientConfig};
use super::connection::{Connection, InvokeError};
use super::responder::Responder;
use super::server::{Listener, Server, ServerConfig};
use super::service::{Lane, LaneKind, LaneWaker, Placement, Port, Service};
use crate::remoting::codec::{self, Head, MAX_FRAME_LEN};
use crate::remoting::command::{Body, Command, FLAG_ONEWAY, OwnedCommand, SerializeType};
use crate::remoting::ext::{CustomHeader, HeaderWriter};

const LONG: Duration = Duration::from_secs(20);

// What the service under test does with each code.
const ECHO: i32 = 1;
const DROP: i32 = 2;
const PANIC: i32 = 3;
const POOL_ECHO: i32 = 4;
const DEFER: i32 = 5;
const POOL_PANIC: i32 = 6;
const PARK: i32 = 7;
const BIG: i32 = 8;
const SILENT: i32 = 9;
const STAGE: i32 = 10;
const UNTIL_WOKEN: i32 = 11;
const POOL_GATE: i32 = 12;
const CLOSE: i32 = 13;
const BAD_HEADER: i32 = 15;
const BAD_PLACEMENT: i32 = 16;
const FAST_ONLY: i32 = 14;
const BIG_LEN: usize = 1 << 20;

#[derive(Default)]
struct Shared {
    parked: Mutex<Vec<Responder>>,
    wakers: Mutex<Vec<LaneWaker>>,
    closed: Mutex<Vec<Connection>>,
    handled: AtomicUsize,
    woken: AtomicUsize,
    gate_open: Mutex<bool>,
    changed: Condvar,
}

impl Shared {
    fn open_gate(&self) {
        *self.gate_open.lock() = true;
        self.changed.notify_all();
    }

    fn take_parked(&self, count: usize) -> Vec<Responder> {
        wait_for("parked requests", || self.parked.lock().len() >= count);
        std::mem::take(&mut *self.parked.lock())
    }
}

struct TestService(Arc<Shared>);

impl Service for TestService {
    fn placement(&self, code: i32, port: Port) -> Placement {
        match (code, port) {
            (POOL_ECHO | POOL_PANIC | POOL_GATE, _) => Placement::Pool,
            (FAST_ONLY, Port::Fast) | (ECHO..=CLOSE | BAD_HEADER, _) => Placement::Inline,
            (BAD_PLACEMENT, _) => panic!("this table look-up panics"),
            _ => Placement::Unknown,
        }
    }

    fn lane(&self, kind: LaneKind, waker: LaneWaker) -> Box<dyn Lane> {
        self.0.wakers.lock().push(waker.clone());
        Box::new(TestLane { shared: self.0.clone(), kind, staged: Vec::new(), until_woken: Vec::new() })
    }

    fn closed(&self, connection: &Connection) {
        self.0.closed.lock().push(connection.clone());
    }
}

struct TestLane {
    shared: Arc<Shared>,
    kind: LaneKind,
    staged: Vec<Responder>,
    until_woken: Vec<Responder>,
}

impl Lane for TestLane {
    fn handle(&mut self, request: &Command<'_>, responder: Responder) {
        self.shared.handled.fetch_add(1, Ordering::SeqCst);
        let echo = |responder: Responder| responder.reply(0, None, &[("k", "v")], Body::Owned(request.body.to_vec()));
        match request.code {
            ECHO | POOL_ECHO | FAST_ONLY => echo(responder),
            DROP => drop(responder),
            PANIC | POOL_PANIC => panic!("this handler panics"),
            DEFER if self.kind == LaneKind::Net => responder.defer(request),
            DEFER => echo(responder),
            PARK => self.shared.parked.lock().push(responder),
            BIG => {
                let half = Bytes::from(vec![responder.connection().id().0 as u8; BIG_LEN / 2]);
                responder.reply(0, None, &(), Body::Shared([half.clone(), half].into_iter().collect()));
            }
            SILENT => responder.silent(),
            STAGE => self.staged.push(responder),
            UNTIL_WOKEN => self.until_woken.push(responder),
            POOL_GATE => {
                let mut open = self.shared.gate_open.lock();
                while !*open {
                    assert!(!self.shared.changed.wait_for(&mut open, LONG).timed_out(), "the gate stays closed");
                }
                drop(open);
                echo(responder);
            }
            CLOSE => {
                let connection = responder.connection().clone();
                responder.ok();
                connection.close();
            }
            BAD_HEADER => responder.reply(0, None, &BrokenHeader, Body::Empty),
            other => panic!("code {other} was not to be placed"),
        }
    }

    fn read_done(&mut self) {
        let count = self.staged.len();
        for responder in self.staged.drain(..) {
            responder.reply(0, Some(&count.to_string()), &(), Body::Empty);
        }
    }

    fn woken(&mut self) {
        self.shared.woken.fetch_add(1, Ordering::SeqCst);
        self.until_woken.drain(..).for_each(Responder::ok);
    }
}

struct BrokenHeader;

impl CustomHeader for BrokenHeader {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("half", "written");
        panic!("this header panics");
    }
}

struct Rig {
    server: Server,
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Rig {
    fn start(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig { net_threads: 2, work_threads: 2, ..ServerConfig::default() };
        change(&mut config);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Port::Main).unwrap();
        let address = listener.address();
        let shared = Arc::new(Shared::default());
        let server = Server::start(config, vec![listener], Arc::new(TestService(shared.clone()))).unwrap();
        Self { server, shared, address }
    }

    fn plain() -> Self {
        Self::start(|_| {})
    }

    fn connect(&self) -> Peer {
        Peer::connect(self.address)
    }
}

/// A peer that speaks frames over a blocking socket.
struct Peer(TcpStream);

impl Peer {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn receive(&mut self) -> OwnedCommand {
        let mut word = [0; 4];
        self.0.read_exact(&mut word).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(word) as usize + 4];
        frame[..4].copy_from_slice(&word);
        self.0.read_exact(&mut frame[4..]).unwrap();
        OwnedCommand::new(frame).unwrap()
    }

    fn call(&mut self, code: i32, opaque: i32, body: &[u8]) -> OwnedCommand {
        self.send(&request(code, opaque, body));
        let answer = self.receive();
        assert_eq!((answer.view().opaque, answer.view().flag), (opaque, 1));
        answer
    }

    /// Reads until the other side closes; an answer to what is not a frame may come before.
    fn read_to_close(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match self.0.read(&mut piece) {
                Ok(0) => return rest,
                Ok(len) => rest.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return rest,
                Err(error) => panic!("the connection was not closed: {error}"),
            }
        }
    }
}

fn frame(serialize_type: SerializeType, code: i32, flag: i32, opaque: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    codec::encode_head(&mut frame, &Head { code, flag, opaque, remark: None, serialize_type }, &[("a", "b")], body.len());
    frame.extend_from_slice(body);
    frame
}

fn request(code: i32, opaque: i32, body: &[u8]) -> Vec<u8> {
    frame(SerializeType::Json, code, 0, opaque, body)
}

#[track_caller]
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[track_caller]
fn assert_answer(answer: &OwnedCommand, code: i32, remark: Option<&str>) {
    let view = answer.view();
    assert_eq!((view.code, view.remark.as_deref()), (code, remark));
}

// ---- requests and answers ----

#[test]
fn answers_carry_body_fields_opaque_and_the_requests_encoding() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    for serialize_type in [SerializeType::Json, SerializeType::Rocketmq] {
        for (opaque, len) in [(-5, 0), (1, 1), (i32::MAX, 4096), (4, 5000), (5, 70_000), (6, 1_000_000)] {
            let body: Vec<u8> = (0..len).map(|n: u32| n as u8).collect();
            peer.send(&frame(serialize_type, ECHO, 0, opaque, &body));
            let answer = peer.receive();
            let view = answer.view();
            assert_eq!((view.code, view.opaque, view.flag, view.serialize_type), (0, opaque, 1, serialize_type));
            assert_eq!(view.ext.text("k").as_deref(), Some("v"));
            assert!(view.body == body, "body of {len} bytes");
        }
    }
}

#[test]
fn pipelined_requests_are_all_answered_in_order() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    let mut reading = Peer(peer.0.try_clone().unwrap());
    let count = 20_000;
    let writer = std::thread::spawn(move || {
        let all: Vec<u8> = (0..count).flat_map(|opaque| request(ECHO, opaque, &opaque.to_be_bytes())).collect();
        for piece in all.chunks(77_777) {
            peer.send(piece);
        }
        peer
    });
    for opaque in 0..count {
        let answer = reading.receive();
        assert_eq!((answer.view().opaque, answer.view().body), (opaque, opaque.to_be_bytes().as_slice()));
    }
    writer.join().unwrap();
}

#[test]
fn every_request_has_one_answer_whatever_becomes_of_it() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    let unset = Some("not set any response code");
    assert_answer(&peer.call(DROP, 1, b""), 1, unset);
    assert_answer(&peer.call(PANIC, 2, b""), 1, unset);
    assert_answer(&peer.call(POOL_PANIC, 3, b""), 1, unset);
    assert_answer(&peer.call(POOL_PANIC, 4, b""), 1, unset);
    assert_answer(&peer.call(BAD_HEADER, 12, b""), 1, unset);
    assert_answer(&peer.call(BAD_PLACEMENT, 13, b""), 1, unset);
    assert_answer(&peer.call(9999, 5, b""), 3, Some(" request type 9999 not supported"));
    assert_answer(&peer.call(FAST_ONLY, 6, b""), 3, Some(" request type 14 not supported"));
    for (code, opaque) in [(POOL_ECHO, 7), (DEFER, 8), (ECHO, 9)] {
        let answer = peer.call(code, opaque, b"body");
        assert_answer(&answer, 0, None);
        assert_eq!(answer.view().body, b"body");
    }
    peer.send(&request(PARK, 10, b""));
    let parked = rig.shared.take_parked(1);
    assert_answer(&peer.call(ECHO, 11, b""), 0, None); // answers need not be in order
    std::thread::spawn(move || parked.into_iter().for_each(|responder| responder.error(17, "no such topic"))).join().unwrap();
    assert_answer(&peer.receive(), 17, Some("no such topic"));
}

#[test]
fn one_way_and_silent_requests_get_no_answer() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    let mut bytes = Vec::new();
    for code in [ECHO, DROP, PANIC, POOL_ECHO, POOL_PANIC, DEFER, BIG, STAGE, 9999] {
        bytes.extend(frame(SerializeType::Json, code, FLAG_ONEWAY, 1, b""));
    }
    bytes.extend(request(SILENT, 2, b""));
    peer.send(&bytes);
    wait_for("the pool's three", || rig.shared.handled.load(Ordering::SeqCst) == 10); // DEFER is handled twice, 9999 never
    assert_answer(&peer.call(POOL_ECHO, 3, b""), 0, None);
}

#[test]
fn what_one_read_brought_is_carried_out_together() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    let count = 100;
    peer.send(&(0..count).flat_map(|opaque| request(STAGE, opaque, b"")).collect::<Vec<u8>>());
    let mut batches = 0.0;
    for _ in 0..count {
        let answer = peer.receive();
        batches += 1.0 / answer.view().remark.as_deref().unwrap().parse::<f64>().unwrap();
    }
    assert!(batches < 10.0, "{count} requests in one write came in {batches} batches");
    assert!((batches - batches.round()).abs() < 1e-6, "each batch answers as many as it counts");
}

#[test]
fn a_lane_is_woken_as_often_as_needed() {
    let rig = Rig::start(|config| config.net_threads = 1);
    let mut peer = rig.connect();
    let wakers = std::mem::take(&mut *rig.shared.wakers.lock());
    assert_eq!(wakers.len(), 3, "two work threads and a net thread");
    let waker = wakers.last().unwrap();
    for opaque in 0..1000 {
        peer.send(&request(UNTIL_WOKEN, opaque, b""));
        wait_for("the request", || rig.shared.handled.load(Ordering::SeqCst) == opaque as usize + 1);
        waker.wake();
        assert_eq!(peer.receive().view().opaque, opaque);
    }
    let before = rig.shared.woken.load(Ordering::SeqCst);
    assert!(before >= 1000);
    wakers.iter().for_each(LaneWaker::wake);
    wait_for("all lanes", || rig.shared.woken.load(Ordering::SeqCst) >= before + 3);
}

#[test]
fn replies_of_other_threads_wake_the_loop() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    let shared = rig.shared.clone();
    let answering = std::thread::spawn(move || {
        for _ in 0..1000 {
            shared.take_parked(1).into_iter().for_each(Responder::ok);
        }
    });
    for opaque in 0..1000 {
        assert_answer(&peer.call(PARK, opaque, b""), 0, None);
    }
    answering.join().unwrap();
}

#[test]
fn a_full_pool_is_said_so_and_recovers() {
    let rig = Rig::start(|config| (config.work_threads, config.work_queue) = (1, 4));
    let mut peer = rig.connect();
    peer.send(&request(POOL_GATE, 0, b""));
    wait_for("the thread to be busy", || rig.shared.handled.load(Ordering::SeqCst) == 1);
    peer.send(&(1..=6).flat_map(|opaque| request(POOL_GATE, opaque, b"")).collect::<Vec<u8>>());
    let text = "[OVERLOAD]system busy, start flow control for a while: 4 requests wait, limit workQueueCapacity";
    for opaque in [5, 6] {
        let answer = peer.receive();
        assert_answer(&answer, 2, Some(text));
        assert_eq!(answer.view().opaque, opaque);
    }
    assert_eq!(rig.server.work_queue_len(), 4);
    assert_answer(&peer.call(ECHO, 7, b""), 0, None);
    rig.shared.open_gate();
    let answered: BTreeSet<i32> = (0..5).map(|_| peer.receive().view().opaque).collect();
    assert_eq!(answered, (0..5).collect());
    assert_answer(&peer.call(POOL_ECHO, 8, b""), 0, None);
}

#[test]
fn one_peer_cannot_fill_the_pool() {
    let rig = Rig::start(|config| config.work_threads = 1);
    let mut greedy = rig.connect();
    greedy.send(&(0..500).flat_map(|opaque| request(POOL_GATE, opaque, b"")).collect::<Vec<u8>>());
    wait_for("its share to be taken", || rig.server.work_queue_len() >= super::connection::MAX_POOLED - 1);
    let mut other = rig.connect();
    assert_answer(&other.call(ECHO, 1, b""), 0, None);
    other.send(&request(POOL_ECHO, 2, b""));
    wait_for("the other's request", || rig.server.work_queue_len() == super::connection::MAX_POOLED);
    rig.shared.open_gate();
    assert_eq!(other.receive().view().opaque, 2);
    let answered: BTreeSet<i32> = (0..500).map(|_| greedy.receive().view().opaque).collect();
    assert_eq!(answered.len(), 500);
}

// ---- bounds ----

#[test]
fn a_peer_that_does_not_read_costs_a_bounded_amount_and_harms_nobody() {
    let high_water = 4 << 20;
    let rig = Rig::start(|config| (config.net_threads, config.write_high_water) = (1, high_water));
    let mut slow = rig.connect();
    slow.send(&request(PARK, 0, b""));
    let held = rig.shared.take_parked(1).pop().unwrap();
    let connection = held.connection().clone();
    let count = 200;
    slow.send(&(1..=count).flat_map(|opaque| request(BIG, opaque, b"")).collect::<Vec<u8>>());
    // It stops somewhere between half the mark and the mark: the kernel takes some after the pause.
    wait_for("answers to pile up", || connection.unsent() > high_water / 2);
    let mut other = rig.connect();
    for opaque in 0..100 {
        assert_answer(&other.call(ECHO, opaque, b""), 0, None);
        assert!(connection.unsent() <= high_water + 2 * BIG_LEN, "{} bytes wait", connection.unsent());
    }
    let handled = rig.shared.handled.load(Ordering::SeqCst);
    assert!(handled < 150, "{handled} requests were handled though nobody reads");
    for opaque in 1..=count {
        let answer = slow.receive();
        assert_eq!((answer.view().opaque, answer.view().body.len()), (opaque, BIG_LEN));
        assert!(answer.view().body.iter().all(|byte| *byte == connection.id().0 as u8));
    }
    held.ok();
    assert_eq!(slow.receive().view().opaque, 0);
    wait_for("all to be sent", || connection.unsent() == 0);
}

#[test]
fn what_is_no_frame_closes_its_connection_and_no_other() {
    let rig = Rig::plain();
    let mut other = rig.connect();
    let json = b"{\"code\":1,\"opaque\":";
    let mut no_json = (json.len() as u32 + 4).to_be_bytes().to_vec();
    no_json.extend_from_slice(&(json.len() as u32).to_be_bytes());
    no_json.extend_from_slice(json);
    let cases: [&[u8]; 8] = [
        &[0xff, 0xff, 0xff, 0xff],
        &[0x80, 0, 0, 0],
        &[0, 0, 0, 0],
        &[0, 0, 0, 4, 0, 0, 0, 1],
        &[0, 0, 0, 4, 9, 0, 0, 0],
        &(MAX_FRAME_LEN as u32 - 3).to_be_bytes(),
        b"random bytes that are none of ours",
        &no_json,
    ];
    for (at, case) in cases.iter().enumerate() {
        let mut peer = rig.connect();
        assert_answer(&peer.call(ECHO, 1, b""), 0, None);
        let before = request(ECHO, 2, b"before");
        peer.send(&[before.as_slice(), case].concat());
        assert_eq!(peer.receive().view().body, b"before");
        assert!(peer.read_to_close().is_empty(), "case {at}");
        let mut fresh = rig.connect();
        fresh.send(case);
        assert!(fresh.read_to_close().is_empty(), "case {at}");
        assert_answer(&other.call(ECHO, at as i32, b""), 0, None);
    }
    wait_for("the closes", || rig.server.connections() == 1 && rig.shared.closed.lock().len() == 2 * cases.len());
}

#[test]
fn half_a_frame_and_gone() {
    let rig = Rig::plain();
    let whole = request(ECHO, 1, &[7; 100_000]);
    for cut in [1, 3, 4, 9, 70_000, whole.len() - 1] {
        let mut peer = rig.connect();
        peer.send(&whole[..cut]);
        drop(peer);
    }
    wait_for("the closes", || rig.shared.closed.lock().len() == 6);
    assert_eq!(rig.shared.handled.load(Ordering::SeqCst), 0);
}

#[test]
fn a_frame_of_16_mib_is_served() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    let empty = request(ECHO, 1, b"").len();
    let answer = peer.call(ECHO, 1, &vec![5; MAX_FRAME_LEN - empty]);
    assert_eq!(answer.view().body.len(), MAX_FRAME_LEN - empty);
}

#[test]
fn large_frames_wait_for_each_other() {
    let rig = Rig::start(|config| config.inbound_budget = 0); // one greatest frame
    let frame = request(ECHO, 1, &vec![1; 10 << 20]);
    let mut first = rig.connect();
    first.send(&frame[..200_000]);
    assert_answer(&rig.connect().call(ECHO, 1, &[2; 60_000]), 0, None); // by now the first one's length is known or will soon be
    let mut others: Vec<Peer> = (0..2).map(|_| rig.connect()).collect();
    let senders: Vec<_> = others
        .iter()
        .map(|peer| {
            let (mut peer, frame) = (Peer(peer.0.try_clone().unwrap()), frame.clone());
            std::thread::spawn(move || peer.send(&frame))
        })
        .collect();
    first.send(&frame[200_000..]);
    assert_eq!(first.receive().view().body.len(), 10 << 20);
    for peer in &mut others {
        assert_eq!(peer.receive().view().body.len(), 10 << 20);
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn healthy_senders_go_on_while_others_trickle_large_frames() {
    let rig = Rig::start(|config| config.inbound_budget = 2 * MAX_FRAME_LEN);
    let mut length = request(ECHO, 1, b"");
    length[..4].copy_from_slice(&(MAX_FRAME_LEN as u32 - 4).to_be_bytes());
    let mut attackers: Vec<Peer> = (0..40).map(|_| rig.connect()).collect();
    for attacker in &mut attackers {
        attacker.send(&length);
    }
    let mut healthy = rig.connect();
    let body = vec![3; 4 << 20];
    for opaque in 0..10 {
        attackers.iter_mut().for_each(|attacker| attacker.send(&[0; 100]));
        assert_eq!(healthy.call(ECHO, opaque, &body).view().body.len(), body.len());
    }
    assert_eq!(rig.server.connections(), 41, "nobody had to go");
}

#[test]
fn who_holds_memory_and_brings_nothing_goes_when_others_wait() {
    let rig = Rig::start(|config| config.inbound_budget = MAX_FRAME_LEN);
    let frame = request(ECHO, 1, &vec![0; 15 << 20]);
    let mut holder = rig.connect();
    holder.send(&frame[..4 << 20]);
    let mut healthy = rig.connect();
    assert_answer(&healthy.call(ECHO, 1, b""), 0, None);
    wait_for("the other to go", || {
        assert_eq!(healthy.call(ECHO, 2, &vec![3; 4 << 20]).view().body.len(), 4 << 20);
        rig.server.connections() == 1
    });
    assert!(holder.read_to_close().is_empty());
}

#[test]
fn whole_frames_but_for_a_byte_do_not_shut_others_out() {
    let rig = Rig::start(|config| config.inbound_budget = 3 * MAX_FRAME_LEN);
    let empty = request(ECHO, 1, b"").len();
    let frame: Arc<[u8]> = request(ECHO, 1, &vec![0; MAX_FRAME_LEN - empty]).into();
    let attackers: Vec<Peer> = (0..6).map(|_| rig.connect()).collect();
    let sending: Vec<_> = attackers
        .iter()
        .map(|attacker| {
            let (mut stream, frame) = (attacker.0.try_clone().unwrap(), frame.clone());
            std::thread::spawn(move || stream.write_all(&frame[..frame.len() - 1]).is_ok()) // some are closed meanwhile
        })
        .collect();
    let mut healthy = rig.connect();
    for opaque in 0..20 {
        assert_eq!(healthy.call(ECHO, opaque, &vec![3; 1 << 20]).view().body.len(), 1 << 20);
    }
    attackers.iter().for_each(|attacker| attacker.0.shutdown(Shutdown::Both).unwrap_or_default());
    sending.into_iter().for_each(|sender| _ = sender.join().unwrap());
}

#[test]
fn an_answer_that_no_frame_takes_is_refused() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    peer.send(&request(PARK, 1, b""));
    let held = rig.shared.take_parked(1).pop().unwrap();
    held.reply(0, None, &(), vec![0; MAX_FRAME_LEN].into());
    let answer = peer.receive();
    assert_eq!(answer.view().code, 1);
    assert!(answer.view().remark.unwrap().ends_with(" bytes, a frame takes 16777216"));
    peer.send(&request(PARK, 2, b""));
    let held = rig.shared.take_parked(1).pop().unwrap();
    held.error(17, &"\u{fc}".repeat(3_000_000));
    let answer = peer.receive();
    let remark = answer.view().remark.unwrap().into_owned();
    assert!(remark.len() < 4_200 && remark.ends_with("\u{fc}… (6000000 bytes)"), "{} bytes", remark.len());
    assert_answer(&peer.call(ECHO, 3, b""), 0, None);
}

#[test]
fn connections_are_bounded() {
    let rig = Rig::start(|config| config.max_connections = 3);
    let mut peers: Vec<Peer> = (0..3).map(|_| rig.connect()).collect();
    for peer in &mut peers {
        assert_answer(&peer.call(ECHO, 1, b""), 0, None);
    }
    assert!(rig.connect().read_to_close().is_empty());
    peers.pop();
    wait_for("room", || rig.server.connections() == 2);
    assert_answer(&rig.connect().call(ECHO, 1, b""), 0, None);
}

#[test]
fn other_protocols_are_refused() {
    let rig = Rig::plain();
    let mut http = rig.connect();
    http.send(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n");
    let answer = String::from_utf8(http.read_to_close()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("remoting"), "{answer}");
    for (first, alert) in [
        (b"\x16\x03\x01\x02\x00".as_slice(), b"\x15\x03\x01\x00\x02\x02\x46".as_slice()),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", b""),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x42\x07"),
    ] {
        let mut peer = rig.connect();
        peer.send(first);
        let told = peer.read_to_close();
        assert!(told.starts_with(alert) && told.is_empty() == alert.is_empty(), "{told:?}");
    }
}

// ---- lives of connections ----

#[test]
fn silence_closes_and_talk_does_not() {
    let rig = Rig::start(|config| config.idle = Duration::from_millis(300));
    let start = Instant::now();
    let mut silent = rig.connect();
    let mut talking = rig.connect();
    let watcher = std::thread::spawn(move || {
        assert!(silent.read_to_close().is_empty());
        start.elapsed()
    });
    while !watcher.is_finished() {
        assert_answer(&talking.call(ECHO, 1, b""), 0, None);
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let closed_after = watcher.join().unwrap();
    assert!(closed_after >= Duration::from_millis(299), "{closed_after:?}"); // the loop counts whole milliseconds
    assert_answer(&talking.call(ECHO, 2, b""), 0, None);
    wait_for("the close", || rig.shared.closed.lock().len() == 1);
}

#[test]
fn a_stuck_reader_is_closed() {
    let rig = Rig::start(|config| config.idle = Duration::from_millis(300));
    let mut peer = rig.connect();
    peer.send(&(1..=50).flat_map(|opaque| request(BIG, opaque, b"")).collect::<Vec<u8>>());
    wait_for("the close", || rig.shared.closed.lock().len() == 1);
    assert!(!rig.shared.closed.lock()[0].is_open());
    assert_eq!(rig.shared.closed.lock()[0].unsent(), 0);
}

#[test]
fn a_peer_that_only_ends_its_own_direction_gets_its_answers() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    peer.send(&request(BIG, 1, b""));
    peer.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.receive().view().body.len(), BIG_LEN);
    assert!(peer.read_to_close().is_empty());
}

#[test]
fn answers_that_are_due_reach_a_peer_that_has_ended_its_direction() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    peer.send(&[request(POOL_GATE, 1, b""), request(PARK, 2, b""), request(DROP, 3, b"")].concat());
    peer.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.receive().view().opaque, 3);
    let parked = rig.shared.take_parked(1);
    rig.shared.open_gate();
    assert_eq!(peer.receive().view().opaque, 1);
    assert!(parked[0].connection().is_open());
    parked.into_iter().for_each(Responder::ok);
    assert_eq!(peer.receive().view().opaque, 2);
    assert!(peer.read_to_close().is_empty());
    wait_for("the close", || rig.server.connections() == 0);
}

#[test]
fn a_peer_that_has_ended_its_direction_is_not_kept_for_what_may_take_long() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    peer.send(&[request(PARK, 1, b""), request(PARK, 2, b"")].concat());
    let mut parked = rig.shared.take_parked(2);
    parked[0].hold();
    peer.0.shutdown(Shutdown::Write).unwrap();
    parked.remove(1).ok();
    assert_eq!(peer.receive().view().opaque, 2);
    assert!(peer.read_to_close().is_empty());
    wait_for("the close", || !parked[0].connection().is_open());
    // One that is due but never comes keeps the connection for a few seconds only.
    let mut peer = rig.connect();
    peer.send(&request(PARK, 3, b""));
    let never = rig.shared.take_parked(1);
    peer.0.shutdown(Shutdown::Write).unwrap();
    assert!(peer.read_to_close().is_empty());
    drop(never);
}

#[test]
fn close_lets_the_last_answer_leave() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    peer.send(&[request(CLOSE, 1, b""), request(ECHO, 2, b"")].concat());
    assert_answer(&peer.receive(), 0, None);
    assert!(peer.read_to_close().is_empty(), "the second one is not handled");
    wait_for("the close", || rig.shared.closed.lock().len() == 1);
    assert_eq!(rig.shared.handled.load(Ordering::SeqCst), 1);
}

#[test]
fn a_late_answer_does_not_reach_the_next_owner_of_the_slot() {
    let rig = Rig::start(|config| config.net_threads = 1);
    let mut old = rig.connect();
    old.send(&request(PARK, 77, b""));
    let late = rig.shared.take_parked(1);
    let old_id = late[0].connection().id();
    drop(old);
    wait_for("the close", || rig.server.connections() == 0);
    let mut new = rig.connect();
    new.send(&request(PARK, 78, b""));
    let current = rig.shared.take_parked(1);
    assert_ne!(current[0].connection().id(), old_id);
    assert!(!late[0].connection().is_open());
    late.into_iter().for_each(Responder::ok);
    current.into_iter().for_each(Responder::ok);
    assert_eq!(new.receive().view().opaque, 78);
    assert_answer(&new.call(ECHO, 79, b""), 0, None);
}

#[test]
fn ipv6_and_its_addresses() {
    let Ok(listener) = Listener::bind("[::]:0".parse().unwrap(), Port::Fast) else { return }; // no IPv6 on this machine
    let port = listener.address().port();
    let shared = Arc::new(Shared::default());
    let server = Server::start(ServerConfig::default(), vec![listener], Arc::new(TestService(shared.clone()))).unwrap();
    for ip in ["127.0.0.1", "::1"] {
        let mut peer = Peer::connect(SocketAddr::new(ip.parse().unwrap(), port));
        assert_answer(&peer.call(FAST_ONLY, 1, b""), 0, None);
        peer.send(&request(PARK, 2, b""));
        let parked = shared.take_parked(1);
        assert_eq!(parked[0].connection().local(), SocketAddr::new(ip.parse().unwrap(), port));
        assert_eq!(parked[0].connection().peer(), peer.0.local_addr().unwrap());
    }
    server.shutdown(LONG);
}

// ---- requests of the server ----

fn outcome_of(invoke: impl FnOnce(super::connection::InvokeCallback)) -> Result<OwnedCommand, InvokeError> {
    let (sender, receiver) = mpsc::channel();
    invoke(Box::new(move |outcome| sender.send(outcome).unwrap()));
    let outcome = receiver.recv_timeout(LONG).expect("the callback is called");
    assert!(receiver.recv_timeout(LONG).is_err(), "once");
    outcome
}

#[test]
fn the_server_asks_and_is_answered_or_told_why_not() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    peer.send(&request(PARK, 1, b""));
    let held = rig.shared.take_parked(1).pop().unwrap();
    let connection = held.connection().clone();

    connection.oneway(40, &[("consumerGroup", "g")], Body::Empty);
    let pushed = peer.receive();
    assert_eq!((pushed.view().code, pushed.view().flag), (40, FLAG_ONEWAY));

    let (sender, receiver) = mpsc::channel();
    for code in [307, 220] {
        let sender = sender.clone();
        let done = Box::new(move |outcome: Result<OwnedCommand, InvokeError>| {
            sender.send((code, outcome.unwrap().view().body.to_vec())).unwrap();
        });
        connection.invoke(code, &(), Body::Owned(vec![1; 3]), LONG, done);
    }
    let asked: Vec<OwnedCommand> = (0..2).map(|_| peer.receive()).collect();
    peer.send(&frame(SerializeType::Json, 0, 1, 123_456, b"matches nothing"));
    for request in asked.iter().rev() {
        peer.send(&frame(SerializeType::Json, 0, 1, request.view().opaque, &request.view().code.to_be_bytes()));
    }
    for code in [220_i32, 307] {
        assert_eq!(receiver.recv_timeout(LONG).unwrap(), (code, code.to_be_bytes().to_vec()));
    }

    let start = Instant::now();
    let outcome = outcome_of(|done| connection.invoke(307, &(), Body::Empty, Duration::from_millis(50), done));
    assert_eq!(outcome.err(), Some(InvokeError::Timeout(connection.peer().to_string(), 50)));
    assert!(start.elapsed() >= Duration::from_millis(50));
    let late = peer.receive();
    peer.send(&frame(SerializeType::Json, 0, 1, late.view().opaque, b"too late"));
    assert_answer(&peer.call(ECHO, 5, b""), 0, None);

    let outcome = outcome_of(|done| {
        connection.invoke(307, &(), Body::Empty, LONG, done);
        peer.receive();
        drop(peer);
    });
    assert_eq!(outcome.err(), Some(InvokeError::Closed(connection.peer().to_string())));
    let outcome = outcome_of(|done| connection.invoke(307, &(), Body::Empty, LONG, done));
    assert_eq!(outcome.err(), Some(InvokeError::Closed(connection.peer().to_string())));
    connection.oneway(40, &(), Body::Empty);
    held.ok();
}

#[test]
fn a_detached_connection_works_without_a_socket() {
    let address = "127.0.0.1:1".parse().unwrap();
    let pushed = Arc::new(Mutex::new(Vec::new()));
    let sink = pushed.clone();
    let connection = Connection::detached(address, address, move |frame| sink.lock().push(frame));
    let (sender, answers) = mpsc::channel();
    let bytes = request(ECHO, 5, b"x");
    let asked = Command::parse(&bytes).unwrap();
    for turn in 0..2 {
        let sender = sender.clone();
        let responder = Responder::detached(&asked, connection.clone(), Box::new(move |frame| sender.send(frame).unwrap()));
        if turn == 0 {
            responder.reply(0, None, &(), Body::Owned(vec![1, 2]));
        } else {
            drop(responder);
        }
    }
    let first = OwnedCommand::new(answers.recv().unwrap()).unwrap();
    assert_eq!((first.view().opaque, first.view().body), (5, [1, 2].as_slice()));
    assert_answer(&OwnedCommand::new(answers.recv().unwrap()).unwrap(), 1, Some("not set any response code"));

    let outcome = outcome_of(|done| {
        connection.invoke(307, &(), Body::Empty, LONG, done);
        let request = OwnedCommand::new(pushed.lock().pop().unwrap()).unwrap();
        connection.answer(OwnedCommand::new(frame(SerializeType::Json, 0, 1, request.view().opaque, b"y")).unwrap());
    });
    assert_eq!(outcome.unwrap().view().body, b"y");
    let outcome = outcome_of(|done| {
        connection.invoke(307, &(), Body::Empty, LONG, done);
        connection.close();
    });
    assert!(matches!(outcome, Err(InvokeError::Closed(_))));
    assert!(!connection.is_open());
}

// ---- stopping ----

#[test]
fn shutdown_answers_what_is_under_way_and_may_be_called_by_many() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    peer.send(&[request(POOL_GATE, 1, b""), request(UNTIL_WOKEN, 2, b"")].concat());
    wait_for("both", || rig.shared.handled.load(Ordering::SeqCst) == 2);
    rig.server.stop_reading();
    rig.server.stop_reading();
    wait_for("the listener to close", || TcpStream::connect(rig.address).is_err());
    peer.send(&request(ECHO, 3, b""));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| rig.server.shutdown(LONG));
        }
        scope.spawn(|| rig.shared.open_gate());
    });
    let mut answers = [peer.receive(), peer.receive()];
    answers.sort_by_key(|answer| answer.view().opaque);
    assert_answer(&answers[0], 0, None);
    assert_answer(&answers[1], 1, Some("not set any response code")); // its lane kept it to the end
    assert!(peer.read_to_close().is_empty(), "the third was not read");
    assert_eq!((rig.server.connections(), rig.shared.closed.lock().len()), (0, 1));
    rig.server.shutdown(Duration::ZERO);
}

#[test]
fn shutdown_keeps_its_deadline() {
    let rig = Rig::plain();
    let mut peer = rig.connect();
    peer.send(&request(POOL_GATE, 1, b""));
    wait_for("the request", || rig.shared.handled.load(Ordering::SeqCst) == 1);
    let start = Instant::now();
    rig.server.shutdown(Duration::from_millis(100));
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    rig.shared.open_gate();
}

// ---- the client ----

fn client(change: impl FnOnce(&mut RemotingClientConfig)) -> RemotingClient {
    let mut config = RemotingClientConfig::default();
    change(&mut config);
    RemotingClient::start(config).unwrap()
}

#[test]
fn a_client_asks_by_address_and_by_name() {
    let rig = Rig::plain();
    let client = client(|_| {});
    let by_name = format!("localhost:{}", rig.address.port());
    for address in [rig.address.to_string(), by_name.clone()] {
        for len in [0, 10, 5000, 1_000_000] {
            let answer = client.invoke(&address, ECHO, &[("a", "b")], Body::Owned(vec![3; len]), LONG).unwrap();
            assert_eq!(answer.view().body.len(), len);
        }
    }
    assert_eq!(rig.server.connections(), 2, "one per address as given");
    assert!(client.connection(&by_name).unwrap().is_open());
    let outcome = outcome_of(|done| client.invoke_async(&by_name, ECHO, &(), Body::Owned(vec![1]), LONG, done));
    assert_eq!(outcome.unwrap().view().body, [1]);
    let another = self::client(|_| {});
    let outcome = outcome_of(|done| another.invoke_async(&by_name, ECHO, &(), Body::Owned(vec![2]), LONG, done));
    assert_eq!(outcome.unwrap().view().body, [2], "resolved without blocking");
    let before = rig.shared.handled.load(Ordering::SeqCst);
    client.oneway(&by_name, ECHO, &(), Body::Empty).unwrap();
    wait_for("the one-way request", || rig.shared.handled.load(Ordering::SeqCst) == before + 1);
}

#[test]
fn many_threads_share_a_connection() {
    let rig = Rig::plain();
    let client = client(|_| {});
    let address = rig.address.to_string();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let (client, address) = (&client, &address);
            scope.spawn(move || {
                for turn in 0..200_u8 {
                    let answer =
                        client.invoke(address, [ECHO, POOL_ECHO][usize::from(turn % 2)], &(), vec![thread, turn].into(), LONG).unwrap();
                    assert_eq!(answer.view().body, [thread, turn]);
                }
            });
        }
    });
    assert_eq!(rig.server.connections(), 1);
}

#[test]
fn a_client_says_why_it_failed() {
    let rig = Rig::plain();
    let client = client(|_| {});
    let address = rig.address.to_string();
    let outcome = client.invoke(&address, PARK, &(), Body::Empty, Duration::from_millis(50));
    assert_eq!(outcome.err(), Some(InvokeError::Timeout(address.clone(), 50)));
    let outcome = outcome_of(|done| client.invoke_async(&address, PARK, &(), Body::Empty, Duration::from_millis(50), done));
    assert_eq!(outcome.err(), Some(InvokeError::Timeout(address.clone(), 50)));

    let unused = Listener::bind("127.0.0.1:0".parse().unwrap(), Port::Main).unwrap().address().to_string(); // closed again
    for attempt in [client.invoke(&unused, ECHO, &(), Body::Empty, LONG).err(), client.oneway(&unused, ECHO, &(), Body::Empty).err()] {
        let Some(InvokeError::Connect(of, reason)) = attempt else { panic!("{attempt:?}") };
        assert!(of == unused && reason.contains("refused"), "{reason}");
    }
    for address in ["nowhere.invalid:1", "no port", "", "1.2.3.4:99999"] {
        let outcome = client.invoke(address, ECHO, &(), Body::Empty, LONG);
        assert!(matches!(&outcome, Err(InvokeError::Connect(of, _)) if of == address), "{address}: {outcome:?}");
        let outcome = outcome_of(|done| client.invoke_async(address, ECHO, &(), Body::Empty, LONG, done));
        assert!(matches!(&outcome, Err(InvokeError::Connect(of, _)) if of == address), "{address}: {outcome:?}");
    }
}

#[test]
fn a_connect_that_nobody_answers_ends_in_time() {
    // A backlog that is full: the system drops what comes then.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut filling = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        filling.push(stream);
        assert!(filling.len() < 100, "the backlog does not fill");
    }
    let client = client(|config| config.connect_timeout = Duration::from_millis(150));
    let start = Instant::now();
    let outcome = client.invoke(&address.to_string(), ECHO, &(), Body::Empty, LONG);
    assert!(matches!(outcome, Err(InvokeError::Connect(..))), "{outcome:?}");
    assert!(start.elapsed() >= Duration::from_millis(150));
    let outcome = outcome_of(|done| client.invoke_async(&address.to_string(), ECHO, &(), Body::Empty, Duration::from_millis(40), done));
    let reason = format!("connect to {address} failed: no connection within 40 ms");
    assert_eq!(outcome.unwrap_err().to_string(), reason);
}

#[test]
fn a_client_connects_again_after_a_loss() {
    let closed = Arc::new(Mutex::new(Vec::new()));
    let client = client(|config| {
        let closed = closed.clone();
        config.on_close = Some(Arc::new(move |address| closed.lock().push(address.to_owned())));
    });
    let rig = Rig::plain();
    let address = rig.address.to_string();
    let first = client.connection(&address).unwrap();
    let waiting = outcome_of(|done| {
        client.invoke_async(&address, PARK, &(), Body::Empty, LONG, done);
        rig.shared.take_parked(1).iter().for_each(|held| held.connection().close());
    });
    assert!(waiting.is_err() || waiting.is_ok_and(|answer| answer.view().code == 1));
    wait_for("the loss", || !first.is_open() && closed.lock().len() == 1);
    assert_eq!(closed.lock()[0], address);
    assert!(client.invoke(&address, ECHO, &(), Body::Empty, LONG).is_ok());
    assert_ne!(client.connection(&address).unwrap().id(), first.id());

    drop(rig);
    wait_for("the next loss", || closed.lock().len() == 2);
    assert!(matches!(client.invoke(&address, ECHO, &(), Body::Empty, LONG), Err(InvokeError::Connect(..))));
    let listener = Listener::bind(address.parse().unwrap(), Port::Main).unwrap();
    let server = Server::start(ServerConfig::default(), vec![listener], Arc::new(TestService(Arc::default()))).unwrap();
    assert!(client.invoke(&address, ECHO, &(), Body::Empty, LONG).is_ok());
    assert_eq!(closed.lock().len(), 2, "a connect that fails is no loss");
    server.shutdown(LONG);
}

#[test]
fn a_client_answers_its_server() {
    let client = client(|config| {
        config.push_handler = Some(Arc::new(|request, responder| match request.code {
            307 => responder.reply(0, None, &(), Body::Owned(request.body.to_vec())),
            _ => panic!("this handler panics"),
        }));
    });
    let mute = self::client(|_| {});
    let rig = Rig::plain();
    let address = rig.address.to_string();
    let ask = |client: &RemotingClient, code| {
        client.invoke_async(&address, PARK, &(), Body::Empty, LONG, Box::new(|_| {}));
        let held = rig.shared.take_parked(1).pop().unwrap();
        outcome_of(|done| held.connection().invoke(code, &(), Body::Owned(vec![8]), LONG, done)).unwrap()
    };
    assert_eq!(ask(&client, 307).view().body, [8]);
    assert_answer(&ask(&client, 309), 1, Some("not set any response code"));
    assert_answer(&ask(&mute, 307), 3, Some(" request type 307 not supported"));
}

#[test]
fn a_client_ends_from_any_thread_and_tells_who_waits() {
    let rig = Rig::plain();
    let address = rig.address.to_string();
    let client = client(|_| {});
    let outcome = outcome_of(|done| {
        client.invoke_async(&address, PARK, &(), Body::Empty, LONG, done);
        let held = rig.shared.take_parked(1);
        std::thread::scope(|scope| {
            scope.spawn(|| client.shutdown());
            scope.spawn(|| client.shutdown());
        });
        drop(held);
    });
    assert_eq!(outcome.err(), Some(InvokeError::Closed(address.clone())));
    client.shutdown();
    for _ in 0..2 {
        let outcome = client.invoke(&address, ECHO, &(), Body::Empty, LONG);
        assert!(matches!(outcome, Err(InvokeError::Connect(..))), "{outcome:?}");
    }

    let (sender, receiver) = mpsc::channel();
    let last = Arc::new(self::client(|_| {}));
    let held = last.clone();
    let done = Box::new(move |outcome: Result<OwnedCommand, InvokeError>| {
        let nested = held.invoke("127.0.0.1:1", ECHO, &(), Body::Empty, LONG);
        held.shutdown();
        drop(held); // perhaps the last one, on the client's own thread
        sender.send((outcome.is_ok(), nested.is_err())).unwrap();
    });
    last.invoke_async(&address, ECHO, &(), Body::Empty, LONG, done);
    drop(last);
    assert_eq!(receiver.recv_timeout(LONG), Ok((true, true)));
}

#[test]
fn a_client_gives_up_an_idle_connection() {
    let rig = Rig::plain();
    let client = client(|config| config.idle = Duration::from_millis(200));
    let address = rig.address.to_string();
    client.invoke(&address, ECHO, &(), Body::Empty, LONG).unwrap();
    wait_for("the server to see the close", || rig.server.connections() == 0);
    client.invoke(&address, ECHO, &(), Body::Empty, LONG).unwrap();
}

#[test]
fn a_request_to_a_server_that_does_not_read_is_refused_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap(); // accepts nothing, reads nothing
    let address = listener.local_addr().unwrap().to_string();
    let client = client(|config| config.connect_timeout = Duration::from_millis(300));
    let error = (0..100).find_map(|_| client.oneway(&address, ECHO, &(), vec![0; 8 << 20].into()).err());
    assert!(matches!(error, Some(InvokeError::Congested(..))), "{error:?}");
}
