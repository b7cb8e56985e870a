//! Which address of a broker a client is told.
//!
//! A client has proved that it reaches this host by the address its connection came to. So the broker of this process (which set no
//! address) and any broker that registered from loopback (which is on this host) are told by that address and their own port: loopback,
//! LAN and VPN clients each get one that works for them.

use std::net::{IpAddr, SocketAddr};

/// A broker's address as it was registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    /// `host:port`, the broker's identity in requests about it.
    pub text: String,
    /// The broker is this process's own and was not given an address.
    pub own: bool,
}

/// Who asks: the address of ours by which it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Viewer {
    local: IpAddr,
}

impl Viewer {
    /// A client whose connection came to `local`.
    pub fn new(local: IpAddr) -> Self {
        Self { local: local.to_canonical() }
    }

    /// What this client is told.
    pub fn address(&self, address: &BrokerAddress) -> String {
        self.translate(&address.text, address.own)
    }

    /// What this client is told instead of `text`, an address of a broker of which `own` says whether it is this process's.
    pub fn translate(&self, text: &str, own: bool) -> String {
        let Ok(registered) = text.parse::<SocketAddr>() else { return text.to_owned() };
        let ip = registered.ip().to_canonical();
        let is_local_secret = ip.is_loopback() && !self.local.is_loopback();
        let told = if own || is_local_secret { self.local } else { ip };
        SocketAddr::new(told, registered.port()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_addresses() {
        for (local, registered, own, expected) in [
            // This process's broker: always the way the client came.
            ("127.0.0.1", "127.0.0.1:10911", true, "127.0.0.1:10911"),
            ("10.0.0.5", "127.0.0.1:10911", true, "10.0.0.5:10911"),
            ("192.168.1.5", "10.0.0.5:10911", true, "192.168.1.5:10911"),
            ("::ffff:10.0.0.5", "127.0.0.1:10911", true, "10.0.0.5:10911"),
            ("fd00::5", "127.0.0.1:10911", true, "[fd00::5]:10911"),
            ("::1", "127.0.0.1:10911", true, "[::1]:10911"),
            // Another broker: loopback only to those who came by loopback.
            ("127.0.0.1", "127.0.0.1:10921", false, "127.0.0.1:10921"),
            ("10.0.0.5", "127.0.0.1:10921", false, "10.0.0.5:10921"),
            ("10.0.0.5", "[::1]:10921", false, "10.0.0.5:10921"),
            ("10.0.0.5", "10.9.9.9:10921", false, "10.9.9.9:10921"),
            ("10.0.0.5", "[::ffff:10.9.9.9]:10921", false, "10.9.9.9:10921"),
            ("10.0.0.5", "mq.example.org:10921", false, "mq.example.org:10921"),
            ("10.0.0.5", "nonsense", true, "nonsense"),
        ] {
            let viewer = Viewer::new(local.parse().unwrap());
            let address = BrokerAddress { text: registered.to_owned(), own };
            assert_eq!(viewer.address(&address), expected, "{local} {registered} {own}");
        }
    }
}
