//! Taking a port: the one that was named or none; the usual one, one of the next, or any.

use crate::port_holder::holder_of;
use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};
use svc_base::settings::MARKET_PORT;

/// On a conflict the usual port is tried again for this long.
pub const CONFLICT_WAIT: Duration = Duration::from_secs(5);
/// Then this many of the following ports are tried.
pub const FURTHER_PORTS: u16 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Which port is wanted, and how firmly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// This one or none: whoever names a port talks to it next.
    Named(u16),
    /// This one, or one of the next that is free, or any.
    Usual(u16),
}

/// A listening socket and where it listens.
#[derive(Debug)]
pub struct Bound {
    pub listener: TcpListener,
    /// Its address, with the port that was taken.
    pub address: SocketAddr,
}

/// Why no port could be taken.
#[derive(Debug, PartialEq, Eq)]
pub enum BindError {
    /// The address is not one interface of this machine.
    Address(String),
    /// No port was free.
    Ports(String),
}

impl BindError {
    /// 2 for an impossible wish, 1 for a failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Address(_) => 2,
            Self::Ports(_) => 1,
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(text) | Self::Ports(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for BindError {}

/// Listens on `host:port`; 0 takes any. On a conflict a port that was named is given up at once. The usual
/// one is waited for, up to `wait`, unless another daemon of ours answers there and so will stay; then the
/// next ports are tried, but for that of the skills marketplace, and any port where none of them is free.
/// The log says who is in the way, and which port is taken instead.
///
/// Errors: all interfaces at once, an address that is not of this machine, no free port.
pub fn bind(host: &str, port: Port, wait: Duration) -> Result<Bound, BindError> {
    let ip: IpAddr = host.trim_matches(['[', ']']).parse().map_err(|_| {
        BindError::Address(format!(
            "host {host:?} is not an IP address; use 127.0.0.1 or one interface's address"
        ))
    })?;
    if ip.is_unspecified() {
        return Err(BindError::Address(format!(
            "host {host} would listen on all interfaces; name one address, for example 127.0.0.1"
        )));
    }
    let (Port::Named(number) | Port::Usual(number)) = port;
    if let Some(bound) = listen(ip, number)? {
        return Ok(bound);
    }
    let holder = holder_of(ip, number);
    if port == Port::Named(number) {
        return Err(BindError::Ports(format!(
            "port {number} is {holder}; end that, or choose another with --port; 0 takes any"
        )));
    }
    if !holder.is_daemon() && !wait.is_zero() {
        log::warn!("port {number} is {holder}; waiting up to {} s for it", wait.as_secs());
        if let Some(bound) = wait_for(ip, number, wait)? {
            return Ok(bound);
        }
    }
    let last = number.saturating_add(FURTHER_PORTS);
    let next = (number.saturating_add(1)..=last).filter(|next| *next != MARKET_PORT);
    for next in next.chain([0]) {
        if let Some(bound) = listen(ip, next)? {
            log::warn!("port {number} is {holder}; using {}", bound.address.port());
            return Ok(bound);
        }
    }
    Err(BindError::Ports(format!("no port of {host} is free; end a program that listens there")))
}

/// `None` when the port is still in use after `wait`.
fn wait_for(ip: IpAddr, port: u16, wait: Duration) -> Result<Option<Bound>, BindError> {
    let until = Instant::now() + wait;
    loop {
        match listen(ip, port)? {
            Some(bound) => return Ok(Some(bound)),
            None if Instant::now() >= until => return Ok(None),
            None => thread::sleep(BETWEEN_TRIES),
        }
    }
}

/// `None` when the port is in use.
fn listen(ip: IpAddr, port: u16) -> Result<Option<Bound>, BindError> {
    let outcome = TcpListener::bind((ip, port)).and_then(|listener| {
        let address = listener.local_addr()?;
        Ok(Bound { listener, address })
    });
    match outcome {
        Ok(bound) => Ok(Some(bound)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            Err(BindError::Address(format!("host {ip} is not an address of this machine")))
        }
        Err(error) => Err(BindError::Ports(format!("cannot listen on {ip} port {port}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_1_all_interfaces_are_refused_with_exit_code_2() {
        for host in ["0.0.0.0", "::", "[::]", "localhost", "8.8.8.8"] {
            let error = bind(host, Port::Named(0), Duration::ZERO).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{host}: {error}");
        }
    }

    #[test]
    fn limits_a_port_in_use_falls_back_to_one_of_the_next_ten() {
        let first = bind("127.0.0.1", Port::Named(0), Duration::ZERO).unwrap();
        let taken = first.address.port();
        let next = bind("127.0.0.1", Port::Usual(taken), Duration::ZERO).unwrap().address.port();
        assert_ne!(next, taken);
    }

    #[test]
    fn the_port_of_the_marketplace_is_left_to_it_and_there_is_no_end_of_ports() {
        // Taken by this test or by whoever has them: of the usual port and the next ten none is free.
        let first = MARKET_PORT - 1;
        let mut taken = Vec::new();
        for _ in 0..=FURTHER_PORTS + 1 {
            taken.push(bind("127.0.0.1", Port::Usual(first), Duration::ZERO).unwrap());
        }
        let ports: Vec<u16> = taken.iter().map(|bound| bound.address.port()).collect();
        assert!(!ports.contains(&MARKET_PORT), "{ports:?}");
        assert!(ports.iter().any(|port| !(first..=first + FURTHER_PORTS).contains(port)), "{ports:?}");
    }

    #[test]
    fn a_named_port_in_use_is_refused_at_once_with_who_has_it() {
        let first = bind("127.0.0.1", Port::Named(0), Duration::ZERO).unwrap();
        let taken = first.address.port();
        let began = Instant::now();
        let error = bind("127.0.0.1", Port::Named(taken), CONFLICT_WAIT).unwrap_err();
        assert!(began.elapsed() < CONFLICT_WAIT, "it waited {:?}", began.elapsed());
        assert_eq!(error.exit_code(), 1);
        let words = error.to_string();
        assert!(words.starts_with(&format!("port {taken} is in use (")), "{words}");
    }
}
