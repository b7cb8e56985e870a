//! The hot paths in instructions, for `benches/instructions.sh`: a path is repeated as often as asked, so that the difference between
//! two runs under callgrind is the path alone. `instructions list` names the paths.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use petrel::common::record::{Draft, Record};
use petrel::remoting::code::request;
use petrel::remoting::codec::{self, Head};
use petrel::remoting::command::{Command, FLAG_RESPONSE, SerializeType};
use petrel::remoting::ext::{CustomHeader, ExtText};
use petrel::remoting::header::pull::{PullMessageRequest, PullMessageResponse};
use petrel::remoting::header::send::{SendMessageRequest, SendMessageResponse};
use petrel::runtime::clock::Clock;
use petrel::store::reading::AllMessages;
use petrel::store::{AppendBatch, FlushDiskType, GetLimits, MessageStore, RealFs, StoreConfig};

const PROPERTIES: &str = "UNIQ_KEY\u{1}7F0000010A2B18B4AAC2000000000000\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA\u{2}";
const BODY: [u8; 1024] = [7; 1024];

/// Repeats a path.
type Path = fn(usize);

const PATHS: [(&str, Path); 10] = [
    ("read a send header, JSON", |times| read_send(SerializeType::Json, times)),
    ("read a send header, binary", |times| read_send(SerializeType::Rocketmq, times)),
    ("read a pull header, JSON", read_pull),
    ("encode a record of 1 KiB (its CRC included)", encode_record),
    ("read a record of 1 KiB (its CRC included)", read_record),
    ("encode the answer to a send", encode_send_answer),
    ("encode the answer to a pull", encode_pull_answer),
    ("append a record of 1 KiB, 16 at a time", |times| append(16, times)),
    ("append a record of 1 KiB, alone", |times| append(1, times)),
    ("get 32 messages", get),
];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    match (arguments.next().as_deref(), arguments.next()) {
        (Some(number), Some(times)) => {
            let number: usize = number.parse().expect("the number of a path");
            PATHS[number].1(times.parse().expect("how often"));
        }
        _ => PATHS.iter().for_each(|(name, _)| println!("{name}")),
    }
}

fn host() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 10911))
}

fn frame(code: i32, kind: SerializeType, header: &dyn CustomHeader, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    codec::encode_head(&mut out, &Head { code, flag: 0, opaque: 4711, remark: None, serialize_type: kind }, header, body.len());
    out.extend_from_slice(body);
    out
}

fn read_send(kind: SerializeType, times: usize) {
    let header = SendMessageRequest {
        producer_group: "orders-producer".into(),
        topic: "orders".into(),
        default_topic: "TBW102".into(),
        default_topic_queue_nums: 4,
        queue_id: 3,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        flag: 0,
        properties: Some(ExtText::Plain(PROPERTIES)),
        reconsume_times: 0,
        unit_mode: false,
        max_reconsume_times: None,
        batch: false,
    };
    let frame = frame(request::SEND_MESSAGE_V2, kind, &header, &BODY);
    let mut properties = String::with_capacity(1024);
    for _ in 0..times {
        let command = Command::parse(black_box(&frame)).expect("a frame");
        let header = SendMessageRequest::decode(&command).expect("a send");
        properties.clear();
        if let Some(text) = &header.properties {
            text.append_to(&mut properties);
        }
        black_box((&header, &properties));
    }
}

fn read_pull(times: usize) {
    let header = PullMessageRequest {
        consumer_group: "orders-worker".into(),
        topic: "orders".into(),
        queue_id: 3,
        queue_offset: 123_456_789,
        max_msg_nums: 32,
        sys_flag: 6,
        suspend_timeout_millis: 15_000,
        subscription: Some("*".into()),
        sub_version: 1_700_000_000_000,
        expression_type: Some("TAG".into()),
        ..PullMessageRequest::default()
    };
    let frame = frame(request::PULL_MESSAGE, SerializeType::Json, &header, &[]);
    for _ in 0..times {
        let command = Command::parse(black_box(&frame)).expect("a frame");
        black_box(PullMessageRequest::decode(&command).expect("a pull"));
    }
}

fn draft() -> Draft<'static> {
    Draft {
        topic: "orders",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: host(),
        store_host: host(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &BODY,
        properties: PROPERTIES.as_bytes(),
    }
}

fn encode_record(times: usize) {
    let mut out = Vec::with_capacity(2048);
    for _ in 0..times {
        out.clear();
        black_box(draft()).encode(&mut out);
        black_box(&out);
    }
}

fn read_record(times: usize) {
    let mut bytes = Vec::new();
    draft().encode(&mut bytes);
    for _ in 0..times {
        let record = Record::parse(black_box(&bytes)).expect("a record");
        record.check_crc().expect("its CRC");
        black_box(record.queue_offset);
    }
}

fn encode_send_answer(times: usize) {
    let answer = SendMessageResponse {
        msg_id: "C0A8010100002A9F0000000000000FA0".to_owned(),
        queue_id: 3,
        queue_offset: 123_456_789,
        transaction_id: Some("7F0000010A2B18B4AAC2000000000000".to_owned()),
        region: "DefaultRegion".into(),
        trace_on: true,
    };
    encode_answer(&answer, times);
}

fn encode_pull_answer(times: usize) {
    let answer = PullMessageResponse { next_begin_offset: 123_456_789, max_offset: 123_999_999, ..PullMessageResponse::default() };
    encode_answer(&answer, times);
}

fn encode_answer(answer: &dyn CustomHeader, times: usize) {
    let mut out = Vec::with_capacity(1024);
    for _ in 0..times {
        out.clear();
        let head = Head { code: 0, flag: FLAG_RESPONSE, opaque: 4711, remark: None, serialize_type: SerializeType::Json };
        codec::encode_head(&mut out, &head, black_box(answer), 0);
        black_box(&out);
    }
}

fn store() -> (tempfile::TempDir, Arc<MessageStore>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = StoreConfig { flush_disk_type: FlushDiskType::Async, disk_free_reserve: Some(0), ..StoreConfig::new(folder.path()) };
    let store = MessageStore::open(config, RealFs::shared(), Clock::System).expect("an empty store");
    (folder, store)
}

/// Appends `times` records; the threads of the store work beside it and are counted too: dispatch is in the figure.
fn append(together: usize, times: usize) {
    let (_folder, store) = store();
    fill(&store, together, times);
}

fn fill(store: &MessageStore, together: usize, times: usize) {
    let (mut batch, mut outcomes) = (AppendBatch::default(), Vec::new());
    for _ in 0..times / together {
        for _ in 0..together {
            store.stage(&mut batch, &draft()).expect("a legal message");
        }
        outcomes.clear();
        store.append(&mut batch, &mut outcomes);
        black_box(&outcomes);
    }
}

/// Looks `times` times 32 cached messages up.
fn get(times: usize) {
    let (_folder, store) = store();
    fill(&store, 16, 64);
    while store.queue_bounds("orders", 0).1 < 64 {
        std::thread::yield_now();
    }
    for _ in 0..times {
        let found = store.get("orders", 0, 16, &GetLimits::default(), &AllMessages);
        assert_eq!((black_box(&found).messages, found.slices.len()), (32, 1), "32 neighbours are one slice");
    }
}
