//! Who asks: the socket's other end, or whom a trusted proxy names.

use crate::store::ClientHash;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::net::IpAddr;

/// A client's network: an IPv4 address, or the /64 of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client(u64, bool);

impl Client {
    /// The client at an address; an IPv4 address inside of IPv6 counts as the IPv4 address.
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(u32::from(v4)), false),
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                let net = [a, b, c, d].into_iter().fold(0, |net, part| net << 16 | u64::from(part));
                Self(net, true)
            }
        }
    }

    /// What is stored instead of the address.
    pub fn hash(self, key: &[u8; 32]) -> ClientHash {
        // A key of any length is taken.
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(&[u8::from(self.1)]);
        mac.update(&self.0.to_be_bytes());
        let digest = mac.finalize().into_bytes();
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        ClientHash(half)
    }

    /// A number by which clients are spread over maps.
    pub fn spread(self) -> usize {
        // Fibonacci hashing: the high bits of the product depend on all bits.
        usize::try_from(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).unwrap_or_default()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses go into no log.
        f.write_str("Client(..)")
    }
}

/// One address range, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    network: u128,
    bits: u32,
    v6: bool,
}

impl Range {
    /// Parses an address or `address/bits`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let ip = address.trim_matches(['[', ']']).parse::<IpAddr>().ok()?.to_canonical();
        let v6 = ip.is_ipv6();
        let width = if v6 { 128 } else { 32 };
        let bits = bits.map_or(Some(width), |bits| bits.parse().ok().filter(|bits| *bits <= width))?;
        Some(Self { network: shifted(ip, bits), bits, v6 })
    }

    /// Whether an address lies in it.
    pub fn holds(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv6() == self.v6 && shifted(ip, self.bits) == self.network
    }
}

/// The first `bits` bits of an address.
fn shifted(ip: IpAddr, bits: u32) -> u128 {
    let (number, width) = match ip {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    number.checked_shr(width - bits).unwrap_or(0)
}

/// The proxies whose `X-Forwarded-For` is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxies(Vec<Range>);

impl Proxies {
    /// The default: this machine.
    pub fn loopback() -> Self {
        Self(["127.0.0.0/8", "::1"].into_iter().filter_map(Range::parse).collect())
    }

    /// A list of addresses and ranges, separated by commas or spaces; an empty one trusts nobody.
    ///
    /// Errors: the part that is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
        parts
            .map(|part| Range::parse(part).ok_or_else(|| format!("{part:?} is not an address or range")))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether what a peer says of others is believed.
    pub fn trusts(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|range| range.holds(ip))
    }

    /// The client behind a peer: with a trusted peer the right-most address of the forwarding chain that is
    /// not a trusted proxy. What stands left of it, or cannot be read, may be forged and is not looked at.
    pub fn client<'a>(&self, peer: IpAddr, forwarded: impl DoubleEndedIterator<Item = &'a str>) -> IpAddr {
        let mut known = peer;
        if !self.trusts(peer) {
            return known;
        }
        for part in forwarded.rev().flat_map(|line| line.rsplit(',')) {
            let Some(ip) = parse_forwarded(part.trim()) else { return known };
            known = ip;
            if !self.trusts(ip) {
                return known;
            }
        }
        known
    }
}

/// An address with or without port and brackets.
fn parse_forwarded(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(address.ip());
    }
    text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(proxies: &Proxies, peer: &str, forwarded: &[&str]) -> String {
        proxies.client(peer.parse().unwrap(), forwarded.iter().copied()).to_string()
    }

    #[test]
    fn decisions_1_only_trusted_peers_name_the_client() {
        let default = Proxies::loopback();
        assert_eq!(client(&default, "203.0.113.9", &["198.51.100.1"]), "203.0.113.9", "forged");
        assert_eq!(client(&default, "127.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client(&default, "127.0.0.1", &["6.6.6.6, 198.51.100.1"]), "198.51.100.1");
        assert_eq!(client(&default, "127.0.0.1", &["6.6.6.6", "198.51.100.1, 127.0.0.1"]), "198.51.100.1");
        assert_eq!(client(&default, "127.0.0.1", &["198.51.100.1:4711"]), "198.51.100.1");
        assert_eq!(client(&default, "127.0.0.1", &["[2001:db8::1]:80"]), "2001:db8::1");
        for nothing in [&[][..], &["unknown"], &[""]] {
            assert_eq!(client(&default, "127.0.0.1", nothing), "127.0.0.1");
        }
        assert_eq!(client(&default, "127.0.0.1", &["198.51.100.1, garbage"]), "127.0.0.1");
        let ours = Proxies::parse("10.0.0.0/8, 2001:db8::/32").unwrap();
        assert_eq!(client(&ours, "10.1.2.3", &["198.51.100.1, 10.9.9.9"]), "198.51.100.1");
        assert_eq!(client(&ours, "::ffff:10.1.2.3", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client(&ours, "127.0.0.1", &["198.51.100.1"]), "127.0.0.1");
        assert_eq!(client(&Proxies::parse("").unwrap(), "127.0.0.1", &["1.1.1.1"]), "127.0.0.1");
        for bad in ["10.0.0.0/33", "host", "::/129"] {
            assert!(Proxies::parse(bad).is_err(), "{bad}");
        }
        assert!(Proxies::parse("0.0.0.0/0").unwrap().trusts("9.9.9.9".parse().unwrap()));
    }

    #[test]
    fn decisions_1_ipv6_is_keyed_by_64_and_mapped_ipv4_is_unmapped() {
        let of = |text: &str| Client::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:1.2.3.4"), of("1.2.3.4"));
        assert_ne!(of("1.2.3.4"), of("1.2.3.5"));
        assert_ne!(of("0.0.0.1").hash(&[0; 32]), of("0:0:0:1::").hash(&[0; 32]));
        assert_ne!(of("1.2.3.4").hash(&[0; 32]), of("1.2.3.4").hash(&[1; 32]), "the key matters");
    }
}
