//! Records as a client's language can read them.
//!
//! - C++ (and Python on top of it) reads hosts of 4 bytes only: records with IPv6 hosts are written anew in the IPv4 form.
//! - Go and C++ read one byte of topic length: records of topics above 127 bytes are never sent to them.
//!
//! For everybody else, and for every record that needs nothing, the body is the log's own bytes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::common::record::{self, Draft, Record};
use crate::common::sysflag;
use crate::remoting::command::{Body, Language};

/// Whether the client takes the first byte of a record's topic length for all of it.
pub(crate) fn reads_one_topic_length_byte(language: Language) -> bool {
    matches!(language, Language::GO | Language::CPP | Language::PYTHON)
}

/// The body that carries `slices` of whole records to a client.
pub(crate) fn body(slices: SmallVec<[Bytes; 2]>, language: Language) -> Body {
    let reads_ipv4_only = matches!(language, Language::CPP | Language::PYTHON);
    if reads_ipv4_only && slices.iter().any(|slice| records(slice).any(|record| has_ipv6(&record))) {
        return Body::Owned(in_ipv4_form(&slices));
    }
    Body::Shared(slices)
}

/// The records of a slice, up to the first that cannot be read.
pub(crate) fn records(slice: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = slice;
    std::iter::from_fn(move || {
        let record = Record::parse(rest).ok()?;
        rest = &rest[record.total_size..];
        Some(record)
    })
}

fn has_ipv6(record: &Record<'_>) -> bool {
    record.sys_flag & (sysflag::BORN_HOST_V6 | sysflag::STORE_HOST_V6) != 0
}

fn in_ipv4_form(slices: &[Bytes]) -> Vec<u8> {
    let mut out = Vec::with_capacity(slices.iter().map(Bytes::len).sum());
    for record in slices.iter().flat_map(|slice| records(slice)) {
        let draft = Draft {
            topic: record.topic,
            queue_id: record.queue_id,
            flag: record.flag,
            sys_flag: record.sys_flag,
            born_timestamp: record.born_timestamp,
            born_host: ipv4(record.born_host),
            store_host: ipv4(record.store_host),
            reconsume_times: record.reconsume_times,
            prepared_transaction_offset: record.prepared_transaction_offset,
            body: record.body,
            properties: record.properties.as_bytes(),
        };
        let start = out.len();
        draft.encode(&mut out);
        record::place(&mut out[start..], record.queue_offset, record.physical_offset, record.store_timestamp);
    }
    out
}

/// The IPv4 address inside an IPv4-mapped one, else 0.0.0.0; the port stays.
fn ipv4(host: SocketAddr) -> SocketAddr {
    match host.ip() {
        IpAddr::V4(_) => host,
        IpAddr::V6(ip) => SocketAddr::new(ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED).into(), host.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(born: &str, body: &[u8]) -> Vec<u8> {
        let draft = Draft {
            topic: "T",
            queue_id: 1,
            flag: 2,
            sys_flag: 0,
            born_timestamp: 3,
            born_host: born.parse().unwrap(),
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 4,
            prepared_transaction_offset: 5,
            body,
            properties: b"K\x01v\x02",
        };
        let mut bytes = Vec::new();
        draft.encode(&mut bytes);
        record::place(&mut bytes, 6, 7, 8);
        bytes
    }

    #[test]
    fn only_clients_that_need_it_get_records_rewritten() {
        let mut bytes = record("1.2.3.4:5", b"one");
        bytes.extend(record("[fe80::1]:6", b"two"));
        let slices: SmallVec<[Bytes; 2]> = SmallVec::from_vec(vec![Bytes::from(bytes.clone())]);
        for language in [Language::JAVA, Language::GO, Language::NODE_JS] {
            let Body::Shared(same) = body(slices.clone(), language) else { panic!("copied for {language:?}") };
            assert_eq!(same[0], bytes);
        }
        let Body::Owned(rewritten) = body(slices, Language::CPP) else { panic!("not rewritten") };
        let all: Vec<_> = records(&rewritten).collect();
        assert_eq!(all.iter().map(|record| record.total_size).sum::<usize>(), rewritten.len());
        assert_eq!(all.iter().map(|record| record.body).collect::<Vec<_>>(), [&b"one"[..], b"two"]);
        assert_eq!(all[1].born_host, "0.0.0.0:6".parse().unwrap());
        assert_eq!((all[1].queue_offset, all[1].physical_offset, all[1].store_timestamp), (6, 7, 8));
        assert_eq!((all[1].sys_flag, all[1].properties, all[1].reconsume_times), (0, "K\u{1}v\u{2}", 4));
        assert_eq!(ipv4("[::ffff:9.8.7.6]:1".parse().unwrap()), "9.8.7.6:1".parse().unwrap());
    }

    #[test]
    fn ipv4_records_go_to_cpp_as_they_are() {
        let bytes = record("1.2.3.4:5", b"one");
        let slices: SmallVec<[Bytes; 2]> = SmallVec::from_vec(vec![Bytes::from(bytes)]);
        assert!(matches!(body(slices, Language::PYTHON), Body::Shared(_)));
    }
}
