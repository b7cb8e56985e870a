//! The message record: one layout for the commit log and for the bodies of pull, view and query answers. Big-endian.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | total_size: the whole record |
//! | 4 | 4 | magic: V1, V2 (topic length of 2 bytes) or blank (end of a file) |
//! | 8 | 4 | body_crc: CRC-32 of the stored body, 31 bits |
//! | 12 | 4 | queue_id |
//! | 16 | 4 | flag: the application's |
//! | 20 | 8 | queue_offset |
//! | 28 | 8 | physical_offset |
//! | 36 | 4 | sys_flag |
//! | 40 | 8 | born_timestamp |
//! | 48 | 8 or 20 | born_host: address, port as i32 |
//! | … | 8 | store_timestamp |
//! | … | 8 or 20 | store_host |
//! | … | 4 | reconsume_times |
//! | … | 8 | prepared_transaction_offset |
//! | … | 4 + n | body |
//! | … | 1 or 2 + n | topic |
//! | … | 2 + n | properties |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::sysflag;

/// Magic of a record whose topic length is one byte.
pub const MAGIC_V1: i32 = -626_843_481;
/// Magic of a record whose topic length is two bytes.
pub const MAGIC_V2: i32 = -626_843_477;
/// Magic of the 8 bytes that end a commit-log file.
pub const MAGIC_BLANK: i32 = -875_286_124;
/// Bytes of the blank record, and the least space left behind every record of a file.
pub const BLANK_SIZE: usize = 8;

/// Position of the total size.
pub const TOTAL_SIZE: usize = 0;
/// Position of the magic.
pub const MAGIC: usize = 4;
/// Position of the body's CRC.
pub const BODY_CRC: usize = 8;
/// Position of the queue id.
pub const QUEUE_ID: usize = 12;
/// Position of the application's flag.
pub const FLAG: usize = 16;
/// Position of the queue offset, written under the put lock.
pub const QUEUE_OFFSET: usize = 20;
/// Position of the physical offset, written under the put lock.
pub const PHYSICAL_OFFSET: usize = 28;
/// Position of the system flags.
pub const SYS_FLAG: usize = 36;
/// Position of the born timestamp.
pub const BORN_TIMESTAMP: usize = 40;
/// Position of the born host.
pub const BORN_HOST: usize = 48;
/// Bytes before the body with the longest hosts.
const MAX_HEAD: usize = BORN_HOST + 20 + 8 + 20 + 4 + 8 + 4;
/// Smallest record: IPv4 hosts, no body, no topic, no properties, V1.
pub const MIN_SIZE: usize = 91;

/// Position of the store timestamp, written under the put lock.
pub const fn store_timestamp_at(sys_flag: i32) -> usize {
    BORN_HOST + host_len(sys_flag & sysflag::BORN_HOST_V6 != 0)
}

const fn host_len(v6: bool) -> usize {
    if v6 { 20 } else { 8 }
}

/// CRC-32 as RocketMQ stores it: 31 bits.
pub fn crc31(bytes: &[u8]) -> i32 {
    (crc32fast::hash(bytes) & 0x7fff_ffff) as i32
}

/// Property that holds the CRC of the whole record (`enabledAppendPropCRC`), always the last one.
pub const RECORD_CRC: &str = "__CRC32#";
/// Bytes of that property: name, separator, ten digits, separator.
pub const RECORD_CRC_SIZE: usize = RECORD_CRC.len() + 12;
/// Digits of its value, the least significant first.
const RECORD_CRC_DIGITS: usize = 10;

/// Properties with room for the record's CRC at their end; one that is already there goes.
pub fn with_record_crc(properties: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(properties).ok().filter(|text| text.contains(RECORD_CRC));
    let mut out = text.map_or_else(|| properties.to_vec(), |text| super::properties::without(text, RECORD_CRC).into_bytes());
    if out.last().is_some_and(|last| *last != 2) {
        out.push(2);
    }
    out.extend_from_slice(RECORD_CRC.as_bytes());
    out.push(1);
    out.extend_from_slice(&[b'0'; RECORD_CRC_DIGITS]);
    out.push(2);
    out
}

/// Where the digits of the CRC stand, if `record` ends with the property.
fn record_crc_digits(record: &[u8]) -> Option<std::ops::Range<usize>> {
    let start = record.len().checked_sub(RECORD_CRC_SIZE)?;
    let value = start + RECORD_CRC.len() + 1;
    let named = record[start..value - 1] == *RECORD_CRC.as_bytes() && record[value - 1] == 1 && record.last() == Some(&2);
    named.then_some(value..value + RECORD_CRC_DIGITS)
}

/// Whether a record ends with a CRC of its own. `record` has the record's length.
pub fn has_record_crc(record: &[u8]) -> bool {
    record_crc_digits(record).is_some()
}

/// Writes the CRC into a record that has room for it ([`with_record_crc`]) and its place ([`place`]).
pub fn fill_record_crc(record: &mut [u8]) {
    let Some(digits) = record_crc_digits(record) else { return };
    let mut crc = crc31(&record[..record.len() - RECORD_CRC_SIZE]);
    for digit in &mut record[digits] {
        *digit = b'0' + (crc % 10) as u8;
        crc /= 10;
    }
}

/// Compares the CRC of the whole record, which must be there. `record` has the record's length.
///
/// # Errors
/// [`RecordError::RecordCrc`] with the stored value, if there is one, and the computed one.
pub fn check_record_crc(record: &[u8]) -> Result<(), RecordError> {
    let computed = crc31(&record[..record.len().saturating_sub(RECORD_CRC_SIZE)]);
    let stored = record_crc_digits(record).and_then(|digits| {
        let value = |value: i64, digit: &u8| digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'));
        record[digits].iter().rev().try_fold(0, value)
    });
    if stored == Some(i64::from(computed)) { Ok(()) } else { Err(RecordError::RecordCrc(stored, computed)) }
}

/// What a record is made of, before it has a place.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// Topic, at most 127 bytes for V1; longer ones become V2.
    pub topic: &'a str,
    /// Queue.
    pub queue_id: i32,
    /// The application's flag.
    pub flag: i32,
    /// System flags; the address bits are set from the hosts, not from here.
    pub sys_flag: i32,
    /// Client's milliseconds.
    pub born_timestamp: i64,
    /// Client's address.
    pub born_host: SocketAddr,
    /// Broker's address.
    pub store_host: SocketAddr,
    /// Deliveries so far.
    pub reconsume_times: i32,
    /// Physical offset of the half message of a committed message.
    pub prepared_transaction_offset: i64,
    /// Body as stored.
    pub body: &'a [u8],
    /// Properties text as stored.
    pub properties: &'a [u8],
}

impl Draft<'_> {
    /// System flags with the address bits the hosts call for.
    pub fn effective_sys_flag(&self) -> i32 {
        let mut flags = self.sys_flag & !(sysflag::BORN_HOST_V6 | sysflag::STORE_HOST_V6);
        if self.born_host.is_ipv6() {
            flags |= sysflag::BORN_HOST_V6;
        }
        if self.store_host.is_ipv6() {
            flags |= sysflag::STORE_HOST_V6;
        }
        flags
    }

    /// Bytes of the record.
    pub fn size(&self) -> usize {
        MIN_SIZE
            + usize::from(self.is_v2())
            + if self.born_host.is_ipv6() { 12 } else { 0 }
            + if self.store_host.is_ipv6() { 12 } else { 0 }
            + self.body.len()
            + self.topic.len()
            + self.properties.len()
    }

    fn is_v2(&self) -> bool {
        self.topic.len() > i8::MAX as usize
    }

    /// Appends the record with its three placed fields (queue offset, physical offset, store timestamp) zero.
    /// The caller has checked the lengths: body below 2 GiB, topic and properties at most 32 767 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let size = self.size();
        let sys_flag = self.effective_sys_flag();
        debug_assert!(self.properties.len() <= i16::MAX as usize && self.topic.len() <= i16::MAX as usize);
        out.reserve(size);
        let start = out.len();
        let mut head = Head::default();
        head.push(&(size as i32).to_be_bytes());
        head.push(&(if self.is_v2() { MAGIC_V2 } else { MAGIC_V1 }).to_be_bytes());
        head.push(&crc31(self.body).to_be_bytes());
        head.push(&self.queue_id.to_be_bytes());
        head.push(&self.flag.to_be_bytes());
        head.push(&[0; 16]); // queue offset and physical offset
        head.push(&sys_flag.to_be_bytes());
        head.push(&self.born_timestamp.to_be_bytes());
        head.push_host(self.born_host);
        head.push(&[0; 8]); // store timestamp
        head.push_host(self.store_host);
        head.push(&self.reconsume_times.to_be_bytes());
        head.push(&self.prepared_transaction_offset.to_be_bytes());
        head.push(&(self.body.len() as i32).to_be_bytes());
        out.extend_from_slice(head.bytes());
        out.extend_from_slice(self.body);
        if self.is_v2() {
            out.extend_from_slice(&(self.topic.len() as i16).to_be_bytes());
        } else {
            out.push(self.topic.len() as u8);
        }
        out.extend_from_slice(self.topic.as_bytes());
        out.extend_from_slice(&(self.properties.len() as i16).to_be_bytes());
        out.extend_from_slice(self.properties);
        debug_assert_eq!(out.len() - start, size);
    }
}

/// Writes the three fields that only the append knows into an encoded record.
pub fn place(record: &mut [u8], queue_offset: i64, physical_offset: i64, store_timestamp: i64) {
    record[QUEUE_OFFSET..QUEUE_OFFSET + 8].copy_from_slice(&queue_offset.to_be_bytes());
    record[PHYSICAL_OFFSET..PHYSICAL_OFFSET + 8].copy_from_slice(&physical_offset.to_be_bytes());
    let at = store_timestamp_at(i32_at(record, SYS_FLAG));
    record[at..at + 8].copy_from_slice(&store_timestamp.to_be_bytes());
}

/// What stands before the body, put together before it is copied.
struct Head {
    bytes: [u8; MAX_HEAD],
    len: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self { bytes: [0; MAX_HEAD], len: 0 }
    }
}

impl Head {
    #[inline]
    fn push<const N: usize>(&mut self, field: &[u8; N]) {
        self.bytes[self.len..self.len + N].copy_from_slice(field);
        self.len += N;
    }

    #[inline]
    fn push_host(&mut self, host: SocketAddr) {
        match host.ip() {
            IpAddr::V4(ip) => self.push(&ip.octets()),
            IpAddr::V6(ip) => self.push(&ip.octets()),
        }
        self.push(&u32::from(host.port()).to_be_bytes());
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    i32::from_be_bytes(value)
}

/// A record in place.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are those of the table at the top of this file")]
pub struct Record<'a> {
    pub total_size: usize,
    pub v2: bool,
    pub body_crc: i32,
    pub queue_id: i32,
    pub flag: i32,
    pub queue_offset: i64,
    pub physical_offset: i64,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: SocketAddr,
    pub store_timestamp: i64,
    pub store_host: SocketAddr,
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
    pub body: &'a [u8],
    pub topic: &'a str,
    /// Properties text; empty when it is not UTF-8.
    pub properties: &'a str,
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// Fewer bytes than the record needs: (needed, there).
    Short(usize, usize),
    /// Neither V1 nor V2.
    Magic(i32),
    /// The blank record that ends a file.
    Blank,
    /// The lengths inside do not add up to the total: (total, sum).
    Length(usize, usize),
    /// The topic is not UTF-8.
    Topic,
    /// The body's CRC differs: (stored, computed).
    Crc(i32, i32),
    /// The whole record's CRC differs, or is missing: (stored, computed).
    RecordCrc(Option<i64>, i32),
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short(needed, there) => write!(f, "record needs {needed} bytes, {there} are there"),
            Self::Magic(magic) => write!(f, "illegal magic 0x{magic:08X}"),
            Self::Blank => write!(f, "blank record (end of file)"),
            Self::Length(total, sum) => write!(f, "total size {total} but the fields add up to {sum}"),
            Self::Topic => write!(f, "topic is not UTF-8"),
            Self::Crc(stored, computed) => write!(f, "body CRC {stored} stored, {computed} computed"),
            Self::RecordCrc(Some(stored), computed) => write!(f, "record CRC {stored} stored, {computed} computed"),
            Self::RecordCrc(None, computed) => write!(f, "no record CRC ({RECORD_CRC}) stored, {computed} computed"),
        }
    }
}

impl std::error::Error for RecordError {}

impl<'a> Record<'a> {
    /// Reads the record at the start of `bytes` (which may go on behind it). The CRC is not checked.
    ///
    /// # Errors
    /// [`RecordError`], never a panic, whatever the bytes are.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let mut cursor = Cursor { rest: bytes, len: bytes.len() };
        let total = cursor.i32()?;
        let magic = cursor.i32()?;
        let v2 = match magic {
            MAGIC_V1 => false,
            MAGIC_V2 => true,
            MAGIC_BLANK => return Err(RecordError::Blank),
            other => return Err(RecordError::Magic(other)),
        };
        let total_size = usize::try_from(total).map_err(|_| RecordError::Length(0, MIN_SIZE))?;
        if total_size > bytes.len() {
            return Err(RecordError::Short(total_size, bytes.len()));
        }
        cursor = Cursor { rest: &bytes[BLANK_SIZE..total_size.max(BLANK_SIZE)], len: total_size };
        let body_crc = cursor.i32()?;
        let queue_id = cursor.i32()?;
        let flag = cursor.i32()?;
        let queue_offset = cursor.i64()?;
        let physical_offset = cursor.i64()?;
        let sys_flag = cursor.i32()?;
        let born_timestamp = cursor.i64()?;
        let born_host = cursor.host(sys_flag & sysflag::BORN_HOST_V6 != 0)?;
        let store_timestamp = cursor.i64()?;
        let store_host = cursor.host(sys_flag & sysflag::STORE_HOST_V6 != 0)?;
        let reconsume_times = cursor.i32()?;
        let prepared_transaction_offset = cursor.i64()?;
        let body_len = usize::try_from(cursor.i32()?).unwrap_or(0); // Java counts a negative length as 0
        let body = cursor.take(body_len)?;
        let topic_len = if v2 { usize::try_from(cursor.i16()?).unwrap_or(0) } else { usize::from(cursor.take(1)?[0]) };
        let topic = std::str::from_utf8(cursor.take(topic_len)?).map_err(|_| RecordError::Topic)?;
        let properties_len = usize::try_from(cursor.i16()?).unwrap_or(0);
        let properties = std::str::from_utf8(cursor.take(properties_len)?).unwrap_or("");
        if !cursor.rest.is_empty() {
            return Err(RecordError::Length(total_size, total_size - cursor.rest.len()));
        }
        Ok(Self {
            total_size,
            v2,
            body_crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body,
            topic,
            properties,
        })
    }

    /// Compares the body's CRC. A record without body passes.
    ///
    /// # Errors
    /// [`RecordError::Crc`] with both values.
    pub fn check_crc(&self) -> Result<(), RecordError> {
        let computed = crc31(self.body);
        if self.body.is_empty() || computed == self.body_crc { Ok(()) } else { Err(RecordError::Crc(self.body_crc, computed)) }
    }
}

struct Cursor<'a> {
    rest: &'a [u8],
    /// With what has been read.
    len: usize,
}

impl<'a> Cursor<'a> {
    fn short(&self, len: usize) -> RecordError {
        RecordError::Short((self.len - self.rest.len()).saturating_add(len), self.len)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.short(len))?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (value, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.short(N))?;
        self.rest = rest;
        Ok(*value)
    }

    #[inline]
    fn i16(&mut self) -> Result<i16, RecordError> {
        self.array().map(i16::from_be_bytes)
    }

    #[inline]
    fn i32(&mut self) -> Result<i32, RecordError> {
        self.array().map(i32::from_be_bytes)
    }

    #[inline]
    fn i64(&mut self) -> Result<i64, RecordError> {
        self.array().map(i64::from_be_bytes)
    }

    fn host(&mut self, v6: bool) -> Result<SocketAddr, RecordError> {
        let ip = if v6 { IpAddr::V6(Ipv6Addr::from(self.array::<16>()?)) } else { IpAddr::V4(Ipv4Addr::from(self.array::<4>()?)) };
        let port = self.i32()?;
        Ok(SocketAddr::new(ip, port as u16)) // an i32 on disk, 16 bits of which mean something
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft<'a>(topic: &'a str, born: &str, store: &str) -> Draft<'a> {
        Draft {
            topic,
            queue_id: 3,
            flag: 7,
            sys_flag: sysflag::BORN_HOST_V6, // a lie that the encoder corrects
            born_timestamp: 1_700_000_000_000,
            born_host: born.parse().unwrap(),
            store_host: store.parse().unwrap(),
            reconsume_times: 2,
            prepared_transaction_offset: 99,
            body: b"hello",
            properties: b"TAGS\x01a\x02",
        }
    }

    #[test]
    fn every_form_survives_a_round_trip_and_every_truncation_is_an_error() {
        let long = "t".repeat(200);
        for topic in ["T", long.as_str()] {
            for born in ["1.2.3.4:5", "[::1]:5"] {
                for store in ["10.0.0.1:10911", "[fe80::2]:10911"] {
                    let draft = draft(topic, born, store);
                    let mut bytes = Vec::new();
                    draft.encode(&mut bytes);
                    assert_eq!(bytes.len(), draft.size());
                    place(&mut bytes, 11, 22, 33);
                    bytes.extend_from_slice(b"what follows");
                    let record = Record::parse(&bytes).unwrap();
                    assert_eq!((record.queue_offset, record.physical_offset, record.store_timestamp), (11, 22, 33));
                    assert_eq!((record.topic, record.v2), (topic, topic.len() > 127));
                    assert_eq!((record.born_host, record.store_host), (draft.born_host, draft.store_host));
                    assert_eq!((record.body, record.properties), (draft.body, "TAGS\u{1}a\u{2}"));
                    assert_eq!((record.queue_id, record.flag, record.reconsume_times), (3, 7, 2));
                    record.check_crc().unwrap();
                    for cut in 0..draft.size() {
                        assert!(Record::parse(&bytes[..cut]).is_err(), "cut at {cut}");
                    }
                }
            }
        }
    }

    #[test]
    fn golden_bytes() {
        let mut bytes = Vec::new();
        Draft { sys_flag: 0, ..draft("T", "1.2.3.4:5", "10.0.0.1:10911") }.encode(&mut bytes);
        place(&mut bytes, 1, 2, 3);
        let expected = "00000068 DAA320A7 3610A686 00000003 00000007 0000000000000001 0000000000000002 00000000 0000018BCFE56800 \
                        01020304 00000005 0000000000000003 0A000001 00002A9F 00000002 0000000000000063 00000005 68656C6C6F 01 54 0007 \
                        54414753016102";
        let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(hex, expected.replace(' ', ""));
    }

    #[test]
    fn a_record_s_own_crc_covers_all_of_it() {
        let crc_of = |properties: &[u8]| {
            let properties = with_record_crc(properties);
            let mut bytes = Vec::new();
            Draft { properties: &properties, ..draft("T", "1.2.3.4:5", "10.0.0.1:10911") }.encode(&mut bytes);
            place(&mut bytes, 1, 2, 3);
            fill_record_crc(&mut bytes);
            bytes
        };
        for properties in [&b""[..], b"TAGS\x01a\x02", b"TAGS\x01a", b"__CRC32#\x01123\x02TAGS\x01a\x02"] {
            let bytes = crc_of(properties);
            check_record_crc(&bytes).unwrap();
            let record = Record::parse(&bytes).unwrap();
            assert_eq!(super::super::properties::find(record.properties, "TAGS"), (!properties.is_empty()).then_some("a"));
            assert_eq!(record.properties.matches(RECORD_CRC).count(), 1);
            for at in 0..bytes.len() {
                for flip in [1, 0x80] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= flip;
                    let error = check_record_crc(&damaged);
                    assert!(matches!(error, Err(RecordError::RecordCrc(..))), "byte {at}: {error:?}");
                }
            }
        }
        let plain = crc_of(b"TAGS\x01a\x02");
        let digits = &plain[plain.len() - 11..plain.len() - 1];
        let value = digits.iter().rev().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        assert_eq!(value, i64::from(crc31(&plain[..plain.len() - RECORD_CRC_SIZE])), "least significant digit first");
        assert_eq!(check_record_crc(&plain[..plain.len() - 1]).unwrap_err().to_string().split(' ').next(), Some("no"));
        assert!(check_record_crc(b"").is_err());
    }

    #[test]
    fn damage_is_named() {
        let mut bytes = Vec::new();
        draft("T", "1.2.3.4:5", "10.0.0.1:10911").encode(&mut bytes);
        let mut blank = bytes.clone();
        blank[4..8].copy_from_slice(&MAGIC_BLANK.to_be_bytes());
        assert_eq!(Record::parse(&blank).unwrap_err(), RecordError::Blank);
        assert!(matches!(Record::parse(&[0; 100]).unwrap_err(), RecordError::Magic(0)));
        let mut long = bytes.clone();
        long.push(0);
        let size = (long.len() as i32).to_be_bytes();
        long[..4].copy_from_slice(&size);
        assert!(matches!(Record::parse(&long).unwrap_err(), RecordError::Length(..)));
        let at = bytes.len() - 20;
        bytes[at] ^= 1;
        assert!(Record::parse(&bytes).is_ok_and(|record| record.check_crc().is_err()) || Record::parse(&bytes).is_err());
    }
}
