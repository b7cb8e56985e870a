//! The protocol's hot paths, one message each: frames split, headers read (JSON as Java sends it, and binary), the record encoded, the
//! answer encoded, the filter evaluated. `cargo bench --bench codec`.

use std::net::{Ipv4Addr, SocketAddr};

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use petrel::common::record::{Draft, Record};
use petrel::filter::Expression;
use petrel::remoting::code::request;
use petrel::remoting::codec::{self, Head};
use petrel::remoting::command::{Command, FLAG_RESPONSE, SerializeType};
use petrel::remoting::ext::{CustomHeader, ExtText};
use petrel::remoting::header::pull::{PullMessageRequest, PullMessageResponse};
use petrel::remoting::header::send::{SendMessageRequest, SendMessageResponse};

const PROPERTIES: &str = "UNIQ_KEY\u{1}7F0000010A2B18B4AAC2000000000000\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA\u{2}";
const BODY_LEN: usize = 1024;
/// Frames that one read of a socket brings.
const FRAMES: usize = 16;

fn main() {
    divan::main();
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

fn send_header() -> SendMessageRequest<'static> {
    SendMessageRequest {
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
    }
}

#[divan::bench(args = [SerializeType::Json, SerializeType::Rocketmq])]
fn read_send(bencher: Bencher<'_, '_>, kind: SerializeType) {
    let frame = frame(request::SEND_MESSAGE_V2, kind, &send_header(), &[7; BODY_LEN]);
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        let command = Command::parse(divan::black_box(&frame)).expect("a frame");
        SendMessageRequest::decode(&command).expect("a send").queue_id
    });
}

#[divan::bench]
fn read_pull(bencher: Bencher<'_, '_>) {
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
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        let command = Command::parse(divan::black_box(&frame)).expect("a frame");
        PullMessageRequest::decode(&command).expect("a pull").queue_offset
    });
}

#[divan::bench]
fn split_and_read_sixteen_sends(bencher: Bencher<'_, '_>) {
    let bytes = frame(request::SEND_MESSAGE_V2, SerializeType::Json, &send_header(), &[7; BODY_LEN]).repeat(FRAMES);
    bencher.counter(ItemsCount::new(FRAMES)).counter(BytesCount::new(bytes.len())).bench_local(|| {
        let mut rest = divan::black_box(bytes.as_slice());
        let mut queues = 0;
        while let Some(len) = codec::frame_len(rest).expect("a length") {
            let command = Command::parse(&rest[..len]).expect("a frame");
            queues += SendMessageRequest::decode(&command).expect("a send").queue_id;
            rest = &rest[len..];
        }
        queues
    });
}

fn draft(body: &[u8]) -> Draft<'_> {
    Draft {
        topic: "orders",
        queue_id: 3,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: host(),
        store_host: host(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: PROPERTIES.as_bytes(),
    }
}

#[divan::bench(args = [128, 1024, 65_536])]
fn encode_record(bencher: Bencher<'_, '_>, body_len: usize) {
    let body = vec![7; body_len];
    let draft = draft(&body);
    let mut out = Vec::with_capacity(draft.size());
    bencher.counter(ItemsCount::new(1usize)).counter(BytesCount::new(body_len)).bench_local(|| {
        out.clear();
        divan::black_box(&draft).encode(&mut out);
        out.len()
    });
}

#[divan::bench(args = [128, 1024])]
fn read_record(bencher: Bencher<'_, '_>, body_len: usize) {
    let body = vec![7; body_len];
    let mut bytes = Vec::new();
    draft(&body).encode(&mut bytes);
    bencher.counter(ItemsCount::new(1usize)).counter(BytesCount::new(body_len)).bench_local(|| {
        let record = Record::parse(divan::black_box(&bytes)).expect("a record");
        record.check_crc().expect("its CRC");
        record.queue_offset
    });
}

const EXPRESSION: &str = "region = 'eu' AND weight BETWEEN 5 AND 20 AND (kind IN ('order', 'refund') OR note IS NOT NULL)";

/// Eight properties; the expression has to look at three of them, and matches.
fn filtered_record() -> Vec<u8> {
    let pairs = ["region\u{1}eu", "weight\u{1}12", "kind\u{1}order", "customer\u{1}4711", "shop\u{1}north-7"];
    let properties = format!("{}\u{2}{PROPERTIES}", pairs.join("\u{2}"));
    let mut bytes = Vec::new();
    Draft { properties: properties.as_bytes(), ..draft(&[7; BODY_LEN]) }.encode(&mut bytes);
    bytes
}

/// What a pull does with each record that its expression has to decide about.
#[divan::bench]
fn filter_record(bencher: Bencher<'_, '_>) {
    let bytes = filtered_record();
    let expression = Expression::compile(EXPRESSION).expect("an expression");
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        let record = Record::parse(divan::black_box(&bytes)).expect("a record");
        assert!(expression.matches(record.properties));
    });
}

/// The evaluation alone.
#[divan::bench]
fn evaluate_expression(bencher: Bencher<'_, '_>) {
    let bytes = filtered_record();
    let record = Record::parse(&bytes).expect("a record");
    let expression = Expression::compile(EXPRESSION).expect("an expression");
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| expression.matches(divan::black_box(record.properties)));
}

#[divan::bench]
fn compile_expression(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| Expression::compile(divan::black_box(EXPRESSION)).map(|one| one.parts()));
}

#[divan::bench]
fn encode_send_answer(bencher: Bencher<'_, '_>) {
    let answer = SendMessageResponse {
        msg_id: "C0A8010100002A9F0000000000000FA0".to_owned(),
        queue_id: 3,
        queue_offset: 123_456_789,
        transaction_id: Some("7F0000010A2B18B4AAC2000000000000".to_owned()),
        region: "DefaultRegion".into(),
        trace_on: true,
    };
    encode_answer(bencher, &answer);
}

#[divan::bench]
fn encode_pull_answer(bencher: Bencher<'_, '_>) {
    let answer = PullMessageResponse { next_begin_offset: 123_456_789, max_offset: 123_999_999, ..PullMessageResponse::default() };
    encode_answer(bencher, &answer);
}

fn encode_answer(bencher: Bencher<'_, '_>, answer: &dyn CustomHeader) {
    let mut out = Vec::with_capacity(1024);
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        out.clear();
        let head = Head { code: 0, flag: FLAG_RESPONSE, opaque: 4711, remark: None, serialize_type: SerializeType::Json };
        codec::encode_head(&mut out, &head, divan::black_box(answer), 0);
        out.len()
    });
}
