//! Offset message ids: store host and physical offset as upper-case hex (32 digits for IPv4, 56 for IPv6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Writes the id of the record at `physical_offset` on `host`.
pub fn write(out: &mut String, host: SocketAddr, physical_offset: i64) {
    match host.ip() {
        IpAddr::V4(ip) => hex(out, &ip.octets()),
        IpAddr::V6(ip) => hex(out, &ip.octets()),
    }
    hex(out, &u32::from(host.port()).to_be_bytes());
    hex(out, &physical_offset.to_be_bytes());
}

/// The id as a new text.
pub fn format(host: SocketAddr, physical_offset: i64) -> String {
    let mut out = String::with_capacity(56);
    write(&mut out, host, physical_offset);
    out
}

/// Host and physical offset of an id; `None` when it is not one.
pub fn parse(id: &str) -> Option<(SocketAddr, i64)> {
    let bytes = unhex(id)?;
    let address_len = match bytes.len() {
        16 => 4,
        28 => 16,
        _ => return None,
    };
    let (address, rest) = bytes.split_at(address_len);
    let ip = match address_len {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(address).ok()?)),
        _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?)),
    };
    let port = u32::from_be_bytes(rest[..4].try_into().ok()?);
    let offset = i64::from_be_bytes(rest[4..].try_into().ok()?);
    Some((SocketAddr::new(ip, u16::try_from(port).ok()?), offset))
}

fn hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_the_specification() {
        let host: SocketAddr = "192.168.1.1:10911".parse().unwrap();
        let id = format(host, 4000);
        assert_eq!(id, "C0A8010100002A9F0000000000000FA0");
        assert_eq!(parse(&id), Some((host, 4000)));
    }

    #[test]
    fn ipv6_has_56_digits_and_garbage_is_no_id() {
        let host: SocketAddr = "[fe80::1]:10911".parse().unwrap();
        let id = format(host, i64::MAX);
        assert_eq!(id.len(), 56);
        assert_eq!(parse(&id), Some((host, i64::MAX)));
        for bad in ["", "C0", "ZZA8010100002A9F0000000000000FA0", "C0A8010100FF2A9F0000000000000FA0", "é"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
