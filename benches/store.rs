//! Appends to the store: 1 KiB bodies, alone and in batches of 16, under both flush modes; and group commit, where each
//! batch is waited for. `cargo bench --bench store`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use petrel::common::record::Draft;
use petrel::runtime::clock::Clock;
use petrel::store::{AppendBatch, FlushDiskType, MessageStore, RealFs, StoreConfig};

const BODY_LEN: usize = 1024;

fn main() {
    divan::main();
}

fn store(flush_disk_type: FlushDiskType) -> (tempfile::TempDir, Arc<MessageStore>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = StoreConfig { flush_disk_type, disk_free_reserve: Some(0), ..StoreConfig::new(folder.path()) };
    let store = MessageStore::open(config, RealFs::shared(), Clock::System).expect("an empty store");
    (folder, store)
}

fn draft(body: &[u8]) -> Draft<'_> {
    let host = SocketAddr::from((Ipv4Addr::LOCALHOST, 10911));
    Draft {
        topic: "bench",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 0,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: b"UNIQ_KEY\x017F0000010A2B18B4AAC2000000000000\x02TAGS\x01t\x02",
    }
}

fn append(bencher: Bencher<'_, '_>, mode: FlushDiskType, records: usize, wait: bool) {
    let (_folder, store) = store(mode);
    let body = vec![7; BODY_LEN];
    let (mut batch, mut outcomes) = (AppendBatch::default(), Vec::new());
    let (sender, receiver) = crossbeam::channel::bounded(1);
    bencher.counter(ItemsCount::new(records)).counter(BytesCount::new(records * BODY_LEN)).bench_local(|| {
        for _ in 0..records {
            store.stage(&mut batch, &draft(&body)).expect("a legal message");
        }
        outcomes.clear();
        store.append(&mut batch, &mut outcomes);
        let end = outcomes.last().and_then(|last| last.as_ref().ok()).expect("appended").end();
        if wait {
            let sender = sender.clone();
            store.when_durable(end, Box::new(move |durability| sender.send(durability).expect("a receiver")));
            receiver.recv().expect("an answer");
        }
    });
}

#[divan::bench(args = [1, 16], sample_count = 200, sample_size = 500, max_time = 4)]
fn async_flush(bencher: Bencher<'_, '_>, records: usize) {
    append(bencher, FlushDiskType::Async, records, false);
}

#[divan::bench(args = [1, 16], sample_count = 200, sample_size = 500, max_time = 4)]
fn sync_flush_not_waiting(bencher: Bencher<'_, '_>, records: usize) {
    append(bencher, FlushDiskType::Sync, records, false);
}

#[divan::bench(args = [1, 16, 400], sample_count = 1000, sample_size = 1, max_time = 4)]
fn sync_flush_waiting(bencher: Bencher<'_, '_>, records: usize) {
    append(bencher, FlushDiskType::Sync, records, true);
}
