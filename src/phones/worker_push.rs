//! The threads that tell phones: one for each phone that has something to be told, so that none waits for the
//! push service of another; and what makes sure that they reach nothing inside.
//!
//! **Invariant:** nothing is sent to an address that is not of the internet, whatever a name means at the
//! moment, but for hosts of `push.own`. No redirect is followed, and no proxy asked, which could.

use super::push::{Order, Refusal, Sending, Then, Tried};
use super::worker_door::Door;
use super::worker_encrypt::encrypt;
use crate::core::ids::PhoneId;
use crate::settings::Push;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use svc_base::{base64, outgoing};
use svc_sys::http::client;
use svc_sys::threads::{Line, Lines};
use svc_sys::{clock, regular};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

/// Bytes of `push.certificate` at most.
const CERTIFICATE_BYTES: usize = 64 << 10;
/// A newer message takes the place of one that a push service still keeps. An endpoint is of one browser and
/// one daemon, so one topic is enough.
const TOPIC: &str = "svc";
const USER_AGENT: &str = concat!("svc-push/", env!("CARGO_PKG_VERSION"));

/// Where outcomes go.
type Tell = Arc<dyn Fn(Tried) + Send + Sync>;

/// All threads.
pub struct Senders {
    door: Arc<Door>,
    tell: Tell,
    lines: Lines<PhoneId, Sending>,
}

impl Senders {
    /// None yet; the key is the door's, and outcomes are told to `tell`.
    pub fn new(door: Arc<Door>, tell: impl Fn(Tried) + Send + Sync + 'static) -> Self {
        Self { door, tell: Arc::new(tell), lines: Lines::default() }
    }

    /// Has a phone told, and never waits.
    ///
    /// Errors: no thread, as a report.
    pub fn order(&mut self, order: Order) -> Result<(), Tried> {
        let sending = match order {
            Order::Send(sending) => *sending,
            Order::Forget(id) => {
                self.lines.forget(&id);
                return Ok(());
            }
        };
        let (phone, message) = (sending.phone, sending.message);
        let (door, tell) = (Arc::clone(&self.door), Arc::clone(&self.tell));
        let given = self.lines.give(phone, sending, move |sending| line(sending, door, tell));
        given.map_err(|why| Tried { phone, message, outcome: Err(later(why)) })
    }
}

fn line(sending: &Sending, door: Arc<Door>, tell: Tell) -> io::Result<Line<Sending>> {
    let agent = agent(&sending.settings, &sending.address.endpoint)?;
    client::line("push", agent, move |agent, sending: Sending| {
        let outcome = try_once(agent, &door, &sending);
        tell(Tried { phone: sending.phone, message: sending.message, outcome });
    })
}

fn later(why: String) -> Refusal {
    Refusal { why, then: Then::Retry(None) }
}

fn never(why: String) -> Refusal {
    Refusal { why, then: Then::GiveUp }
}

/// Finds addresses, and refuses those inside.
#[derive(Debug)]
struct Outside<R> {
    inner: R,
    /// Its host is a push service of the person's own.
    is_own: bool,
}

impl<R: Resolver> Resolver for Outside<R> {
    fn resolve(&self, uri: &Uri, config: &Config, left: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.inner.resolve(uri, config, left)?;
        // One inside is enough: the next try could take it.
        let is_fine = self.is_own || found.iter().all(|address| outgoing::is_outside(address.ip()));
        is_fine.then_some(found).ok_or_else(|| {
            let host = uri.host().unwrap_or_default();
            let text =
                format!("{host} is inside this machine or your network, and push.own does not name it");
            Error::Io(io::Error::new(ErrorKind::PermissionDenied, text))
        })
    }
}

/// What follows no redirect and asks no proxy.
fn agent(settings: &Push, endpoint: &str) -> io::Result<Agent> {
    let is_own = outgoing::https_host(endpoint).is_some_and(|(host, _)| settings.is_own(host));
    let roots = match settings.certificate.as_deref().filter(|_| is_own) {
        Some(path) => RootCerts::Specific(Arc::new(authorities(Path::new(path))?)),
        None => RootCerts::WebPki,
    };
    let tls = TlsConfig::builder().root_certs(roots).build();
    let config = client::poster(USER_AGENT).proxy(None).https_only(true).tls_config(tls).build();
    Ok(Agent::with_parts(
        config,
        DefaultConnector::default(),
        Outside { inner: DefaultResolver::default(), is_own },
    ))
}

/// Who vouches for push services of the person's own.
///
/// Errors: no certificate can be read there.
fn authorities(path: &Path) -> io::Result<Vec<Certificate<'static>>> {
    let failed = |why: &str| io::Error::other(format!("push.certificate: {}: {why}", path.display()));
    let bytes = regular::read(path).map_err(|error| failed(&error.to_string()))?;
    if bytes.len() > CERTIFICATE_BYTES {
        return Err(failed(&format!("it has more than {CERTIFICATE_BYTES} bytes")));
    }
    let certificate = |item| match item {
        Ok(ureq::tls::PemItem::Certificate(one)) => Some(one),
        _ => None,
    };
    let all: Vec<_> = ureq::tls::parse_pem(&bytes).filter_map(certificate).collect();
    if all.is_empty() { Err(failed("it has no certificate")) } else { Ok(all) }
}

/// Looks whether messages may go to this endpoint, as far as can be told now; asks for the address of its
/// host.
///
/// Errors: the rule that is broken.
pub fn check(settings: &Push, endpoint: &str) -> Result<(), String> {
    let (host, port) = outgoing::https_host(endpoint).ok_or("it is no https:// address")?;
    settings.allows(host, port)?;
    let uri: Uri = endpoint.parse().map_err(|_| "it is no address".to_owned())?;
    let agent = agent(settings, endpoint).map_err(|error| error.to_string())?;
    let left = NextTimeout {
        after: ureq::unversioned::transport::time::Duration::Exact(client::CONNECT_TIMEOUT),
        reason: ureq::Timeout::Resolve,
        per_read: None,
        per_write: None,
    };
    let resolver = Outside { inner: DefaultResolver::default(), is_own: settings.is_own(host) };
    resolver.resolve(&uri, agent.config(), left).map(|_| ()).map_err(|error| match error {
        Error::Io(error) if error.kind() == ErrorKind::PermissionDenied => error.to_string(),
        error => format!("{host} has no address that can be found from here: {error}"),
    })
}

fn try_once(agent: &Agent, door: &Door, sending: &Sending) -> Result<(), Refusal> {
    let endpoint = sending.address.endpoint.as_str();
    let (host, port) =
        outgoing::https_host(endpoint).ok_or_else(|| never("it is no https:// address".into()))?;
    sending.settings.allows(host, port).map_err(never)?;
    let part = |text: &str| base64::decode_for_url(text).unwrap_or_default();
    let (key, auth) = (part(&sending.address.p256dh), part(&sending.address.auth));
    let body = encrypt(&key, &auth, sending.text.as_bytes()).map_err(never)?;
    let origin = endpoint.split('/').take(3).collect::<Vec<_>>().join("/");
    let origin = origin.split('?').next().unwrap_or_default();
    let vapid = door.vapid().map_err(|error| later(error.to_string()))?;
    // It tells when it is sent, by the clock as it is now: nothing of it is kept for the next one.
    let contact = sending.settings.contact.as_deref();
    let authorization =
        vapid.authorization(origin, contact, clock::now()).map_err(|error| later(error.to_string()))?;
    let request = agent
        .post(endpoint)
        .header("authorization", authorization)
        .header("content-encoding", "aes128gcm")
        .header("content-type", "application/octet-stream")
        .header("ttl", sending.kept.as_secs().to_string())
        .header("urgency", "high")
        .header("topic", TOPIC);
    let mut response = request.send(&body[..]).map_err(|error| match error {
        Error::Io(error) if error.kind() == ErrorKind::PermissionDenied => never(error.to_string()),
        error => later(error.to_string()),
    })?;
    let status = response.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(());
    }
    if (300..400).contains(&status) {
        return Err(never(format!("status {status}: it points elsewhere, which is not followed")));
    }
    let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let after = after.and_then(|said| outgoing::retry_after(said, clock::now()));
    let then = match status {
        404 | 410 => Then::Forget,
        408 | 429 | 500.. => Then::Retry(after),
        _ => Then::GiveUp,
    };
    Err(Refusal { why: client::refusal(&mut response), then })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(own: &[&str]) -> Push {
        let own = own.iter().map(|host| (*host).to_owned()).collect();
        Push { hosts: Vec::new(), own, certificate: None, contact: None }
    }

    #[test]
    fn an_endpoint_inside_is_refused_however_it_is_written() {
        for inside in [
            "https://127.0.0.1/x",
            "https://127.1/x",
            "https://2130706433/x",
            "https://0x7f000001/x",
            "https://0177.0.0.1/x",
            "https://localhost/x",
            "https://LOCALHOST./x",
            "https://10.0.0.1/x",
            "https://169.254.169.254/latest/meta-data",
            "https://[::1]/x",
            "https://[::ffff:127.0.0.1]/x",
            "https://0.0.0.0/x",
            "https://0/x",
        ] {
            let why = check(&settings(&[]), inside).expect_err(inside);
            assert!(why.contains("inside") || why.contains("no address"), "{inside}: {why}");
        }
        for wrong in ["http://127.0.0.1/", "https://", "ftp://a", "https://a@b/", "https://1.1.1.1:80/"] {
            assert!(check(&settings(&[]), wrong).is_err(), "{wrong}");
        }
        check(&settings(&["127.0.0.1", "::1"]), "https://127.0.0.1:1/x").expect("a person's own");
        check(&settings(&["127.0.0.1", "::1"]), "https://[::1]:1/x").expect("a person's own");
        assert!(check(&settings(&["127.0.0.1"]), "https://127.0.0.2:1/x").is_err());
        check(&settings(&[]), "https://1.1.1.1/x").expect("an address of the internet");
    }

    /// A name that means something else each time it is asked for.
    #[derive(Debug)]
    struct Says(Vec<&'static str>);

    impl Resolver for Says {
        fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
            let mut all = self.empty();
            for address in &self.0 {
                all.push(address.parse().unwrap());
            }
            Ok(all)
        }
    }

    #[test]
    fn a_name_that_comes_to_mean_something_inside_is_refused_when_it_is_sent_to() {
        let sends = |says: &[&'static str], is_own| {
            let agent = agent(&settings(&[]), "https://push.example.org/").unwrap();
            let resolver = Outside { inner: Says(says.to_vec()), is_own };
            let agent = Agent::with_parts(agent.config().clone(), DefaultConnector::default(), resolver);
            agent.post("https://push.example.org/").send(&b""[..]).unwrap_err()
        };
        for inside in [&["127.0.0.1:9"][..], &["1.1.1.1:443", "10.0.0.1:443"], &["[::1]:9"]] {
            let Error::Io(error) = sends(inside, false) else { panic!("{inside:?}") };
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{inside:?}");
        }
        // Nobody listens there; it was asked.
        assert!(matches!(sends(&["127.0.0.1:9"], true),
            Error::Io(error) if error.kind() != ErrorKind::PermissionDenied));
    }

    #[test]
    fn a_file_without_a_certificate_vouches_for_nobody() {
        let file = std::env::temp_dir().join(format!("svc-push-{}.pem", std::process::id()));
        assert!(authorities(&file).is_err());
        std::fs::write(&file, "nothing").unwrap();
        assert!(authorities(&file).unwrap_err().to_string().contains("no certificate"));
        std::fs::write(&file, vec![b'x'; CERTIFICATE_BYTES + 1]).unwrap();
        assert!(authorities(&file).unwrap_err().to_string().contains("more than"));
        std::fs::remove_file(&file).unwrap();
    }
}
