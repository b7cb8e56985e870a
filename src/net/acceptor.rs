//! A listener: bound early, accepting when a loop has it.

use std::io;
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, Socket, Type};

use super::service::Port;

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// Connections accepted in one turn.
const ACCEPT_TURN: usize = 256;
/// Pause after an error that the next attempt would meet again (no descriptors left).
const PAUSE_MS: u64 = 100;

/// Binds a socket; an unspecified IPv6 address takes IPv4 too.
pub(super) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A listener of a loop.
pub(super) struct Acceptor {
    pub(super) listener: TcpListener,
    pub(super) port: Port,
    /// The system may have more.
    pub(super) ready: bool,
    paused_until_ms: u64,
    /// The error that paused it was logged.
    complained: bool,
}

impl Acceptor {
    pub(super) fn new(listener: std::net::TcpListener, port: Port) -> Self {
        Self { listener: TcpListener::from_std(listener), port, ready: false, paused_until_ms: 0, complained: false }
    }

    /// When it goes on, in the loop's milliseconds; `None` while it waits for an event.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.ready.then_some(self.paused_until_ms)
    }

    /// Accepts what is there, within a turn's budget.
    pub(super) fn accept(&mut self, now_ms: u64, mut take: impl FnMut(TcpStream, SocketAddr)) {
        if !self.ready || now_ms < self.paused_until_ms {
            return;
        }
        for _ in 0..ACCEPT_TURN {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    self.complained = false;
                    take(stream, peer);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        self.ready = false;
                        return;
                    }
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset => {}
                    _ => return self.pause(now_ms, &error),
                },
            }
        }
    }

    fn pause(&mut self, now_ms: u64, error: &io::Error) {
        self.paused_until_ms = now_ms + PAUSE_MS;
        if !std::mem::replace(&mut self.complained, true) {
            log::error!("cannot accept connections, trying again every {PAUSE_MS} ms: error={error} (ulimit -n limits them)");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_v6_takes_v4_too() {
        let Ok(listener) = bind("[::]:0".parse().unwrap()) else { return }; // no IPv6 on this machine
        let port = listener.local_addr().unwrap().port();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert!(std::net::TcpStream::connect(("::1", port)).is_ok());
    }

    #[test]
    fn pauses_and_goes_on() {
        let mut acceptor = Acceptor::new(bind("127.0.0.1:0".parse().unwrap()).unwrap(), Port::Main);
        assert_eq!(acceptor.due_ms(), None);
        acceptor.ready = true;
        acceptor.pause(1000, &io::Error::from_raw_os_error(24));
        assert_eq!(acceptor.due_ms(), Some(1000 + PAUSE_MS));
        let mut accepted = 0;
        acceptor.accept(1000 + PAUSE_MS - 1, |_, _| accepted += 1);
        assert!(acceptor.ready, "not tried while paused");
        acceptor.accept(1000 + PAUSE_MS, |_, _| accepted += 1);
        assert!(!acceptor.ready, "nobody was there");
        assert_eq!(accepted, 0);
    }
}
