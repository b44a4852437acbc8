//! [`free_address`]: where a program of a test can listen.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

const FIRST_PORT: u16 = 2000;

static NEXT_PORT: AtomicU16 = AtomicU16::new(FIRST_PORT);

/// An address that nobody else takes before the program that it is for does, each time another one.
///
/// A port of 127.0.0.1 that was free a moment ago is soon one that some connection begins from, if other tests run. So every
/// process has an address of loopback to itself, by its number: connections begin from 127.0.0.1.
#[expect(clippy::panic, reason = "it is how a test fails")]
pub fn free_address() -> SocketAddr {
    let own = Ipv4Addr::from_bits(Ipv4Addr::new(127, 64, 0, 0).to_bits() | (std::process::id() & 0x3f_ffff));
    loop {
        let address = SocketAddr::from((own, NEXT_PORT.fetch_add(1, Ordering::Relaxed)));
        if address.port() < FIRST_PORT {
            panic!("every port of {own} was handed out, or nobody can listen there");
        }
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn each_address_is_another_and_no_connection_begins_there() {
        let (one, other) = (free_address(), free_address());
        assert_ne!(one, other);
        let listener = TcpListener::bind(one).unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_ne!(one.ip(), connection.local_addr().unwrap().ip());
    }
}
