//! Where the daemon may send what others must not read, and when it may ask again.

use crate::time::Time;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Hosts that are this machine, as they stand in an address.
const OWN: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The rule in words.
pub const RULE: &str = "an https:// address, or http:// on this machine (127.0.0.1, localhost, [::1])";

/// Whether what is sent to this address travels in the open within this machine at most: `https://`, or
/// `http://` to this machine. No user, no fragment, nothing that programs read differently.
pub fn is_guarded(url: &str) -> bool {
    if url.contains(|c: char| c.is_whitespace() || c.is_control() || "#@\\\"".contains(c)) {
        return false;
    }
    if let Some(rest) = url.strip_prefix("https://") {
        return !rest.is_empty() && !rest.starts_with(['/', ':', '?']);
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    OWN.iter().any(|host| {
        authority.strip_prefix(host).is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
        })
    })
}

/// Host and port of an `https://` address that [`is_guarded`]; a host of IPv6 without its brackets.
pub fn https_host(url: &str) -> Option<(&str, u16)> {
    let rest = url.strip_prefix("https://").filter(|_| is_guarded(url))?;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = if port.is_empty() { 443 } else { port.strip_prefix(':')?.parse().ok()? };
        return host.parse::<Ipv6Addr>().is_ok().then_some((host, port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, 443),
    };
    let is_host = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    is_host.then_some((host, port))
}

/// Whether an address is one of the internet, as far as its numbers tell: none of this machine, of a network
/// of one's own, of a group, for examples, kept for later, or one that wraps another of these.
pub fn is_outside(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_outside_4(ip),
        IpAddr::V6(ip) => {
            let wrapped = |high: u16, low: u16| {
                let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
                is_outside_4(Ipv4Addr::new(a, b, c, d))
            };
            match ip.segments() {
                // Mapped, and what stands for IPv4 behind a translator: its own, then 6to4.
                [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                    wrapped(high, low)
                }
                [0x2002, high, low, ..] => wrapped(high, low),
                // Teredo, other uses of the protocol itself, and examples.
                [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
                // Of what is left, all that was ever given to anybody begins with the bits 001.
                [first, ..] => first & 0xe000 == 0x2000,
            }
        }
    }
}

fn is_outside_4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_special = ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_documentation()
        || matches!(
            (a, b, c),
            (0 | 224.., ..) | (100, 64..128, _) | (192, 0, 0) | (192, 88, 99) | (198, 18 | 19, _)
        );
    !is_special
}

/// How long a server asks to be left alone: `Retry-After`, in seconds or as a date of HTTP.
pub fn retry_after(said: &str, now: Time) -> Option<Duration> {
    let said = said.trim();
    if !said.is_empty() && said.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(said.parse().unwrap_or(u64::MAX)));
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(said).ok()?;
    let at = u64::try_from(at.as_millisecond()).unwrap_or_default();
    Some(Time(at).since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_told_or_there_is_none() {
        for (url, host) in [
            ("https://push.example.org/a?b", Some(("push.example.org", 443))),
            ("https://push.example.org:8443/a", Some(("push.example.org", 8443))),
            ("https://[::1]:1/a", Some(("::1", 1))),
            ("https://[fd00::1]", Some(("fd00::1", 443))),
            ("https://127.1", Some(("127.1", 443))),
            ("http://127.0.0.1/", None),
            ("https://[::1", None),
            ("https://[::1]x", None),
            ("https://a:b", None),
            ("https://a:65536", None),
            ("https://a:1:2", None),
            ("https://a%2eb/", None),
            ("https://ä.org/", None),
            ("https://me@a/", None),
            ("HTTPS://a/", None),
        ] {
            assert_eq!(https_host(url), host, "{url}");
        }
    }

    #[test]
    fn what_is_inside_is_not_outside_however_it_is_written() {
        for inside in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "192.88.99.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:c0a8:1::1",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
        ] {
            assert!(!is_outside(inside.parse().unwrap()), "{inside}");
        }
        for outside in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "2001:4860::8888",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_outside(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn a_server_asks_for_time_in_seconds_or_by_a_date() {
        let now = Time::parse("1994-11-06T08:49:00Z").unwrap();
        for (said, seconds) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(37)),
            ("Sun, 06 Nov 1994 08:48:37 GMT", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(said, now), seconds.map(Duration::from_secs), "{said:?}");
        }
    }

    #[test]
    fn secrets_travel_in_the_open_only_within_this_machine() {
        for good in [
            "https://example.org/hook?key=1",
            "https://10.0.0.1:8443",
            "http://127.0.0.1:9/a",
            "http://localhost",
            "http://[::1]:80?x",
        ] {
            assert!(is_guarded(good), "{good}");
        }
        for bad in [
            "",
            "https://",
            "https:///a",
            "http://example.org",
            "http://127.0.0.1.example.org",
            "http://127.0.0.1@example.org",
            "http://127.0.0.1:80:80",
            "http://localhost\\.example.org",
            "https://example.org/#a",
            "https://example.org/a b",
            "ftp://localhost",
            "file:///etc/passwd",
            "http://10.0.0.1",
        ] {
            assert!(!is_guarded(bad), "{bad}");
        }
    }
}
