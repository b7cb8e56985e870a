//! Request and answer over loopback against a service that does nothing: what the event loop itself costs.
//!
//! Each figure is one connection; items are requests answered.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use petrel::net::connection::Connection;
use petrel::net::responder::Responder;
use petrel::net::server::{Listener, Server, ServerConfig};
use petrel::net::service::{Lane, LaneKind, LaneWaker, Placement, Port, Service};
use petrel::remoting::codec::{self, Head};
use petrel::remoting::command::{Body, Command, SerializeType};

const INLINE: i32 = 310;
const POOL: i32 = 12;

fn main() {
    divan::main();
}

struct Null;

impl Service for Null {
    fn placement(&self, code: i32, _port: Port) -> Placement {
        if code == POOL { Placement::Pool } else { Placement::Inline }
    }

    fn lane(&self, _kind: LaneKind, _waker: LaneWaker) -> Box<dyn Lane> {
        Box::new(Null)
    }

    fn closed(&self, _connection: &Connection) {}
}

impl Lane for Null {
    fn handle(&mut self, _request: &Command<'_>, responder: Responder) {
        responder.reply(0, None, &[("msgId", "7F0000010000000000000000"), ("queueId", "0"), ("queueOffset", "12345")], Body::Empty);
    }
}

/// Requests in flight, code, body bytes.
#[divan::bench(args = [(1, INLINE, 128), (16, INLINE, 128), (64, INLINE, 128), (64, INLINE, 1024), (1, POOL, 128), (64, POOL, 128)])]
fn answered(bencher: Bencher<'_, '_>, (in_flight, code, body_len): (usize, i32, usize)) {
    let listener = Listener::bind("127.0.0.1:0".parse().expect("a literal"), Port::Main).expect("a free port");
    let address = listener.address();
    let server = Server::start(ServerConfig { net_threads: 1, ..ServerConfig::default() }, vec![listener], Arc::new(Null));
    let _server = server.expect("the server starts");
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_nodelay(true).expect("a socket option");
    let burst = burst(in_flight, code, body_len);
    let mut buffer = vec![0; 1 << 20];
    bencher.counter(ItemsCount::new(in_flight)).bench_local(move || {
        stream.write_all(&burst).expect("the server reads");
        let (mut begin, mut end, mut answers) = (0, 0, 0);
        while answers < in_flight {
            end += stream.read(&mut buffer[end..]).expect("the server answers");
            while let Ok(Some(len)) = codec::frame_len(&buffer[begin..end])
                && len <= end - begin
            {
                begin += len;
                answers += 1;
            }
        }
    });
}

fn burst(in_flight: usize, code: i32, body_len: usize) -> Vec<u8> {
    let header =
        [("a", "producers"), ("b", "TopicTest"), ("c", "TBW102"), ("d", "4"), ("e", "0"), ("f", "0"), ("g", "1700000000000"), ("h", "0")];
    let mut burst = Vec::new();
    for opaque in 0..in_flight {
        let head = Head { code, flag: 0, opaque: opaque as i32, remark: None, serialize_type: SerializeType::Json };
        codec::encode_head(&mut burst, &head, &header, body_len);
        burst.resize(burst.len() + body_len, 7);
    }
    burst
}
