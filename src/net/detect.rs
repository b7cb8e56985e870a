//! What the first bytes of a connection say it is.
//!
//! A remoting frame starts with the top byte of its length, which is 0 for every legal one, so nothing is ambiguous. The
//! other protocols are told apart here so that they can be refused by name today and served tomorrow.

/// What a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Frames of the remoting protocol, or bytes that are none and will not pass as such.
    Remoting,
    /// A TLS record of type handshake.
    Tls,
    /// HAProxy's preamble, as text or binary.
    Proxy,
    /// HTTP/2 with prior knowledge: gRPC.
    Http2,
    /// HTTP/1.
    Http1,
}

const KNOWN: [(&[u8], Protocol); 13] = [
    (b"\x16", Protocol::Tls),
    (b"PROXY ", Protocol::Proxy),
    (b"\r\n\r\n\0\r\nQUIT\n", Protocol::Proxy),
    (b"PRI * HTTP/2", Protocol::Http2),
    (b"GET /", Protocol::Http1),
    (b"POST /", Protocol::Http1),
    (b"PUT /", Protocol::Http1),
    (b"HEAD /", Protocol::Http1),
    (b"PATCH /", Protocol::Http1),
    (b"DELETE /", Protocol::Http1),
    (b"OPTIONS ", Protocol::Http1),
    (b"CONNECT ", Protocol::Http1),
    (b"TRACE /", Protocol::Http1),
];

impl Protocol {
    /// What `first` is; `None` while more bytes are needed to say.
    pub(super) fn detect(first: &[u8]) -> Option<Self> {
        if first.is_empty() {
            return None;
        }
        let mut undecided = false;
        for (start, protocol) in KNOWN {
            if first.starts_with(start) {
                return Some(protocol);
            }
            undecided |= start.starts_with(first);
        }
        if undecided { None } else { Some(Self::Remoting) }
    }

    /// For logs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Remoting => "RocketMQ remoting",
            Self::Tls => "TLS",
            Self::Proxy => "PROXY protocol",
            Self::Http2 => "HTTP/2 (gRPC)",
            Self::Http1 => "HTTP/1",
        }
    }

    /// What the peer is told in its own language before it is closed. PROXY has none: what follows its preamble could be anything.
    pub(super) fn refusal(self) -> Option<Vec<u8>> {
        match self {
            Self::Tls => Some(TLS_ALERT.to_vec()),
            Self::Http2 => Some(goaway()),
            Self::Http1 => Some(bad_request().into_bytes()),
            Self::Proxy | Self::Remoting => None,
        }
    }
}

/// A record of type alert: fatal, protocol_version.
const TLS_ALERT: [u8; 7] = [0x15, 3, 1, 0, 2, 2, 70];
/// What HTTP peers are told.
const NOT_HTTP: &str = "This port speaks the RocketMQ remoting protocol, not HTTP.";

fn bad_request() -> String {
    let len = NOT_HTTP.len() + 1;
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{NOT_HTTP}\n"
    )
}

/// The settings that a server must begin with, and the end of the connection with a text that clients show.
fn goaway() -> Vec<u8> {
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    const PROTOCOL_ERROR: u32 = 1;
    let frame_head = |len: usize, kind: u8| [&(len as u32).to_be_bytes()[1..], &[kind, 0, 0, 0, 0, 0]].concat();
    let (no_stream, error) = (0_u32.to_be_bytes(), PROTOCOL_ERROR.to_be_bytes());
    [&frame_head(0, SETTINGS), &frame_head(8 + NOT_HTTP.len(), GOAWAY), &no_stream[..], &error, NOT_HTTP.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_is_told_at_every_length() {
        for (start, protocol) in KNOWN {
            for len in 1..start.len() {
                let so_far = Protocol::detect(&start[..len]);
                assert!(so_far.is_none(), "{start:?} cut at {len}: {so_far:?}");
            }
            assert_eq!(Protocol::detect(start), Some(protocol));
            let longer = [start, b" and more"].concat();
            assert_eq!(Protocol::detect(&longer), Some(protocol));
        }
    }

    #[test]
    fn the_rest_is_remoting() {
        let none: [&[u8]; 6] = [b"\0", b"\0\0\0\x40", b"\xff\xff\xff\xff", b"PROXIES", b"GETX", b"\r\n\r\n\r"];
        for bytes in none {
            assert_eq!(Protocol::detect(bytes), Some(Protocol::Remoting), "{bytes:?}");
        }
        assert_eq!(Protocol::detect(b""), None);
    }

    #[test]
    fn http_is_told_so_in_http() {
        let text = String::from_utf8(Protocol::Http1.refusal().unwrap()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        assert_eq!(Protocol::Proxy.refusal(), None);
        assert_eq!(Protocol::Tls.refusal().unwrap(), [0x15, 3, 1, 0, 2, 2, 70]);
    }

    #[test]
    fn http2_is_told_so_in_two_frames() {
        let bytes = Protocol::Http2.refusal().unwrap();
        assert_eq!(bytes[..9], [0, 0, 0, 4, 0, 0, 0, 0, 0], "empty settings");
        let (head, payload) = bytes[9..].split_at(9);
        assert_eq!(*head, [0, 0, payload.len() as u8, 7, 0, 0, 0, 0, 0]);
        assert_eq!(payload[..8], [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(&payload[8..], NOT_HTTP.as_bytes());
    }
}
