//! What the host says of itself: its name and its addresses. Asked once, at start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// The host's name; `DEFAULT_BROKER` (the reference's) when it has none.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().trim().to_owned();
    if name.is_empty() { "DEFAULT_BROKER".to_owned() } else { name }
}

/// The host's first usable IPv4 address: the one that packets to elsewhere leave from, else any that is not loopback.
pub fn first_address() -> Option<Ipv4Addr> {
    outgoing_address().or_else(|| std::fs::read_to_string("/proc/net/fib_trie").ok().and_then(|text| first_local_address(&text)))
}

/// An IPv4-mapped IPv6 address as IPv4; any other as it is.
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// `host:port`; an IPv6 host in brackets, an IPv4-mapped one as IPv4. A name stays as it is.
pub fn join(host: &str, port: u16) -> String {
    match bare(host).parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(canonical(address), port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address.
///
/// # Errors
/// The host is empty or the port is no number from 1 to 65535.
pub fn split(text: &str) -> Result<(String, Option<u16>), String> {
    if let Ok(address) = bare(text).parse::<IpAddr>() {
        return Ok((address.to_string(), None));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => {
            let number = port.parse::<u16>().ok().filter(|port| *port != 0);
            (host, Some(number.ok_or_else(|| format!("{text:?}: port {port:?} is no number from 1 to 65535"))?))
        }
        None => (text, None),
    };
    let host = bare(host);
    if host.trim().is_empty() || host.contains([' ', '/', ',', ';']) {
        return Err(format!("{text:?}: expected HOST or HOST:PORT"));
    }
    Ok((host.to_owned(), port))
}

/// Without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// Source address of the default route. Connecting a datagram socket sends nothing; 192.0.2.1 is reserved for documentation.
fn outgoing_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) if is_usable(address) => Some(address),
        _ => None,
    }
}

/// Reads the kernel's table of local addresses: a line with the address, then one that says that it is local.
fn first_local_address(fib_trie: &str) -> Option<Ipv4Addr> {
    let mut last = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.trim().parse::<Ipv4Addr>().ok();
        } else if line.ends_with("host LOCAL") && last.is_some_and(is_usable) {
            return last;
        }
    }
    None
}

fn is_usable(address: Ipv4Addr) -> bool {
    !address.is_loopback() && !address.is_unspecified() && !address.is_link_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.0.0\n        /16 link UNICAST\nLocal:\n     |-- 127.0.0.1\n        /32 host LOCAL\n     \
                    |-- 10.1.0.7\n        /32 host LOCAL\n";
        assert_eq!(first_local_address(text), Some(Ipv4Addr::new(10, 1, 0, 7)));
        assert_eq!(first_local_address("Local:\n  |-- 127.0.0.1\n  /32 host LOCAL\n"), None);
        assert_eq!(first_local_address(""), None);
    }

    #[test]
    fn joined_and_split() {
        for (host, expected) in [
            ("10.0.0.1", "10.0.0.1:1"),
            ("::ffff:10.0.0.1", "10.0.0.1:1"),
            ("fe80::1", "[fe80::1]:1"),
            ("[::1]", "[::1]:1"),
            ("mq.example.org", "mq.example.org:1"),
        ] {
            assert_eq!(join(host, 1), expected);
        }
        assert_eq!(split("mq.example.org").unwrap(), ("mq.example.org".to_owned(), None));
        assert_eq!(split("mq.example.org:10911").unwrap(), ("mq.example.org".to_owned(), Some(10911)));
        assert_eq!(split("::1").unwrap(), ("::1".to_owned(), None));
        assert_eq!(split("[::1]").unwrap(), ("::1".to_owned(), None));
        assert_eq!(split("[::1]:99").unwrap(), ("::1".to_owned(), Some(99)));
        for bad in ["", ":1", "host:", "host:0", "host:65536", "host:x", "a b:1", "[::1]:0"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn this_host() {
        assert!(!host_name().is_empty());
        if let Some(address) = first_address() {
            assert!(is_usable(address));
        }
    }
}
