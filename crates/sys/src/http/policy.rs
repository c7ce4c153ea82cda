//! Who may call: the Host header against DNS rebinding, the Origin header against other sites.

use super::head::Head;
use std::net::IpAddr;
use std::sync::Arc;
use svc_base::api::{Method, Problem, Request};

/// The port of an address without one.
const HTTP_PORT: u16 = 80;

/// Which Host headers are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRule {
    /// `localhost`, `127.0.0.1`, `[::1]`, any port; and this address if one is bound.
    Local(Option<IpAddr>),
    /// This one alone, with its port where it is not the usual one.
    Only(String),
    /// Any: for a service behind a name of its own.
    Any,
}

/// Which origins may call from a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginRule {
    /// Pages served from this machine, and from this address if one is bound.
    Local(Option<IpAddr>),
    /// This one alone (`https://192.168.1.5:31450`), and whoever is no page.
    Only(String),
    /// The service decides for itself.
    Any,
    /// Nobody is refused; pages of this machine and of these origins (`https://example.org`) may read
    /// replies.
    Reflect(Arc<[String]>),
}

/// What is checked before a handler runs, and the headers every reply gets.
#[derive(Debug, Clone)]
pub struct Policy {
    pub hosts: HostRule,
    pub origins: OriginRule,
    /// `Cache-Control` of replies that set none.
    pub cache_control: &'static str,
}

impl Policy {
    /// The daemon's: this machine only, plus the bound address.
    pub fn local(bound: IpAddr) -> Self {
        let other = (!bound.is_loopback()).then_some(bound);
        Self { hosts: HostRule::Local(other), origins: OriginRule::Local(other), cache_control: "no-store" }
    }

    /// That of a service under one address (`192.168.1.5:31450`), by TLS: for its own pages alone.
    pub fn only(authority: &str) -> Self {
        let origin = format!("https://{authority}");
        let (hosts, origins) = (HostRule::Only(authority.to_owned()), OriginRule::Only(origin));
        Self { hosts, origins, cache_control: "no-store" }
    }

    /// Refuses what this policy does not allow.
    ///
    /// Errors: 400 for a missing or doubled Host, 403, 415.
    pub fn check(&self, head: &Head) -> Result<(), Problem> {
        self.check_host(head)?;
        self.check_origin(head)
    }

    /// The origin to be echoed to a browser that may call.
    pub fn echoed_origin<'a>(&self, head: &'a Head) -> Option<&'a str> {
        let origin = head.header("origin")?;
        let allowed = match &self.origins {
            OriginRule::Local(bound) => is_local_origin(origin, *bound),
            OriginRule::Reflect(sites) => {
                head.count("origin") == 1
                    && (is_local_origin(origin, None)
                        || sites.iter().any(|site| site.eq_ignore_ascii_case(origin)))
            }
            OriginRule::Any | OriginRule::Only(_) => false,
        };
        allowed.then_some(origin)
    }

    /// Whether a cache must keep replies to different origins apart, also those without CORS headers.
    pub fn varies_by_origin(&self) -> bool {
        matches!(self.origins, OriginRule::Reflect(_))
    }

    fn check_host(&self, head: &Head) -> Result<(), Problem> {
        let host = match (head.count("host"), head.old) {
            (1, _) => head.header("host").unwrap_or_default(),
            (0, true) if !matches!(self.hosts, HostRule::Only(_)) => return Ok(()),
            (0, _) => return Err(Problem::bad_request("host_missing", "the request has no Host header")),
            _ => {
                return Err(Problem::bad_request(
                    "host_doubled",
                    "the request has more than one Host header",
                ));
            }
        };
        let text = match &self.hosts {
            HostRule::Any => return Ok(()),
            HostRule::Local(bound) if is_local_host(host, *bound) => return Ok(()),
            HostRule::Local(_) => format!("host {host:?} is not this machine; call 127.0.0.1 or localhost"),
            HostRule::Only(own) if host.eq_ignore_ascii_case(own) => return Ok(()),
            HostRule::Only(own) => format!("host {host:?} is not served here; call {own}"),
        };
        Err(Problem::new(403, "host_not_allowed", text))
    }

    fn check_origin(&self, head: &Head) -> Result<(), Problem> {
        let origin = head.header("origin");
        let is_foreign = |origin: &str| match &self.origins {
            OriginRule::Local(bound) => !is_local_origin(origin, *bound),
            OriginRule::Only(own) => !origin.eq_ignore_ascii_case(own),
            OriginRule::Any | OriginRule::Reflect(_) => false,
        };
        if matches!(self.origins, OriginRule::Any | OriginRule::Reflect(_)) {
            return Ok(());
        }
        if head.count("origin") > 1 || origin.is_some_and(is_foreign) {
            let text = format!("origin {:?} may not call this daemon", origin.unwrap_or_default());
            return Err(Problem::new(403, "origin_not_allowed", text));
        }
        let site = head.header("sec-fetch-site");
        // Another port of the same machine is another origin of the same site.
        let is_near = site.is_some_and(|site| site.eq_ignore_ascii_case("same-site"));
        if is_near && matches!(self.origins, OriginRule::Only(_)) {
            let text = "a page of another port may not call this service (Sec-Fetch-Site: same-site)";
            return Err(Problem::new(403, "cross_site", text));
        }
        if site.is_some_and(|site| site.eq_ignore_ascii_case("cross-site")) {
            let text = "another site's page may not call this daemon (Sec-Fetch-Site: cross-site)";
            return Err(Problem::new(403, "cross_site", text));
        }
        let reads = matches!(head.method, Method::Get | Method::Head | Method::Options);
        if reads || (origin.is_none() && site.is_none()) {
            return Ok(());
        }
        Self::check_browser_mutation(head, site)
    }

    /// A browser sends some bodies to other sites without asking first; JSON is not among them.
    fn check_browser_mutation(head: &Head, site: Option<&str>) -> Result<(), Problem> {
        let kind = head.header("content-type").unwrap_or_default();
        let json = kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json");
        let empty = matches!(head.framing, super::head::Framing::None | super::head::Framing::Length(0));
        let same_origin = match (site, head.header("origin"), head.header("host")) {
            (Some(site), _, _) => {
                site.eq_ignore_ascii_case("same-origin") || site.eq_ignore_ascii_case("none")
            }
            (None, Some(origin), Some(host)) => {
                origin.split_once("://").is_some_and(|(_, rest)| rest == host)
            }
            _ => false,
        };
        if json || (empty && same_origin) {
            return Ok(());
        }
        let text =
            "a browser's request must be application/json, or have no body and come from the same origin";
        Err(Problem::new(403, "csrf", text))
    }
}

/// Whether a request comes from a page of the daemon's own origin (scheme, host and port), or from no page.
pub fn is_own_page(request: &Request) -> bool {
    let site = request.header("sec-fetch-site").unwrap_or("none");
    if !site.eq_ignore_ascii_case("same-origin") && !site.eq_ignore_ascii_case("none") {
        return false;
    }
    let Some(origin) = request.header("origin") else { return true };
    let host = request.header("host").unwrap_or_default();
    let port = split_port(host).and_then(|(_, port)| port?.parse().ok()).unwrap_or(HTTP_PORT);
    port == request.local.port()
        && origin.strip_prefix("http://").is_some_and(|theirs| theirs.eq_ignore_ascii_case(host))
}

/// Takes the same time wherever the bytes differ.
pub fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

fn is_local_host(host: &str, bound: Option<IpAddr>) -> bool {
    let Some((name, port)) = split_port(host) else { return false };
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return false;
    }
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let ip: Option<IpAddr> = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(inner) => inner.parse().ok().filter(IpAddr::is_ipv6),
        None => name.parse().ok().filter(IpAddr::is_ipv4),
    };
    ip.is_some_and(|ip| {
        let loopback = matches!(ip.to_string().as_str(), "127.0.0.1" | "::1");
        loopback || bound == Some(ip)
    })
}

/// `name` and `port` of `name:port`, where the name may be a bracketed IPv6 address.
fn split_port(host: &str) -> Option<(&str, Option<&str>)> {
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, rest) = host.split_at(end);
    if rest.is_empty() { Some((name, None)) } else { Some((name, Some(rest.strip_prefix(':')?))) }
}

fn is_local_origin(origin: &str, bound: Option<IpAddr>) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|host| is_local_host(host, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_1_hosts_of_this_machine_only() {
        for good in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:31415", "[::1]", "[::1]:80"] {
            assert!(is_local_host(good, None), "{good}");
        }
        for bad in [
            "",
            "example.com",
            "localhost.evil.com",
            "127.0.0.1.evil.com",
            "127.0.0.1:x",
            "::1",
            "[::1",
            "[::1]x",
            "127.0.0.2",
            "10.0.0.5",
            "localhost:99999",
            "0x7f.1",
            "user@localhost",
        ] {
            assert!(!is_local_host(bad, None), "{bad}");
        }
        let bound = "10.0.0.5".parse().ok();
        assert!(is_local_host("10.0.0.5:31415", bound));
        assert!(!is_local_host("10.0.0.6", bound));
    }

    #[test]
    fn a_service_under_one_address_answers_there_and_to_its_own_pages_alone() {
        let policy = Policy::only("192.168.1.5:31450");
        let check = |request: &str| {
            let parsed = super::super::head::parse(request.as_bytes(), &super::super::Limits::default());
            let (head, _) = parsed.unwrap().unwrap();
            assert_eq!(policy.echoed_origin(&head), None, "no page of another origin reads a reply");
            policy.check(&head).map_err(|problem| problem.code)
        };
        let own = "GET / HTTP/1.1\r\nHost: 192.168.1.5:31450\r\n";
        for good in ["", "Origin: https://192.168.1.5:31450\r\n", "Sec-Fetch-Site: none\r\n"] {
            assert_eq!(check(&format!("{own}{good}\r\n")), Ok(()), "{good}");
        }
        for bad in ["http://192.168.1.5:31450", "https://192.168.1.5", "https://192.168.1.5:31451", "null"] {
            assert_eq!(check(&format!("{own}Origin: {bad}\r\n\r\n")), Err("origin_not_allowed"), "{bad}");
        }
        for site in ["same-site", "cross-site"] {
            assert_eq!(check(&format!("{own}Sec-Fetch-Site: {site}\r\n\r\n")), Err("cross_site"), "{site}");
        }
        for host in ["192.168.1.5", "127.0.0.1:31450", "localhost:31450", "evil.example:31450", ""] {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(check(&request), Err("host_not_allowed"), "{host}");
        }
        assert_eq!(check("GET / HTTP/1.0\r\n\r\n"), Err("host_missing"));
    }

    #[test]
    fn skills_decisions_1_cors_reflects_localhost_and_listed_sites_and_refuses_nobody() {
        let sites = ["https://market.example".to_owned()].into();
        let policy =
            Policy { hosts: HostRule::Any, origins: OriginRule::Reflect(sites), cache_control: "no-store" };
        let echoed = |origin: &str| {
            let text = format!("POST /a HTTP/1.1\r\nHost: any.example\r\nOrigin: {origin}\r\n\r\n");
            let parsed = super::super::head::parse(text.as_bytes(), &super::super::Limits::default());
            let (head, _) = parsed.unwrap().unwrap();
            assert_eq!(policy.check(&head), Ok(()), "{origin}");
            policy.echoed_origin(&head).map(str::to_owned)
        };
        for good in ["http://localhost:5173", "http://[::1]:1", "https://127.0.0.1", "https://market.example"]
        {
            assert_eq!(echoed(good).as_deref(), Some(good));
        }
        for bad in ["null", "https://evil.example", "http://localhost.evil.example", "http://market.example"]
        {
            assert_eq!(echoed(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_pages_of_the_daemons_own_origin_are_its_own() {
        let own = |headers: &[(&str, &str)]| {
            let address = "127.0.0.1:31415".parse().unwrap();
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            is_own_page(&Request {
                method: Method::Post,
                path: "/".into(),
                base: String::new(),
                segments: Vec::new(),
                query: Vec::new(),
                headers: headers.collect(),
                body: Vec::new(),
                peer: address,
                local: address,
                caller: Arc::default(),
            })
        };
        let host = ("host", "localhost:31415");
        assert!(own(&[host]), "no browser");
        assert!(own(&[host, ("origin", "http://localhost:31415"), ("sec-fetch-site", "same-origin")]));
        assert!(own(&[host, ("sec-fetch-site", "none")]), "typed by a person");
        for origin in [
            "http://localhost:3000",
            "https://localhost:31415",
            "http://127.0.0.1:31415",
            "http://localhost",
            "null",
        ] {
            assert!(!own(&[host, ("origin", origin)]), "{origin}");
        }
        assert!(!own(&[host, ("sec-fetch-site", "same-site")]), "a page of another port");
        assert!(
            !own(&[("host", "localhost:3000"), ("origin", "http://localhost:3000")]),
            "passed on by another"
        );
        assert!(!own(&[("origin", "http://localhost:31415")]), "without a host nothing is its own");
    }

    #[test]
    fn decisions_1_origins_of_this_machine_only() {
        for good in ["http://localhost:5173", "https://127.0.0.1", "http://[::1]:3000"] {
            assert!(is_local_origin(good, None), "{good}");
        }
        for bad in ["null", "http://evil.com", "file://localhost", "http://localhost/path", "localhost"] {
            assert!(!is_local_origin(bad, None), "{bad}");
        }
    }
}
