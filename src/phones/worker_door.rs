//! Where phones call: a listener that is open while there are phones, or a code for one; and what proves one.
//!
//! **Invariant:** it listens at one address that a person has named or agreed to, never at all of them.

use super::worker_certificate::Identity;
use super::worker_codes::{Codes, LIFE};
use super::worker_vapid::Vapid;
use super::{Phone, State};
use crate::api::{Problem, Request};
use crate::core::ids::PhoneId;
use crate::core::time::Time;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use svc_base::hex;
use svc_sys::http::{Bound, Head, Server, same_bytes};
use svc_sys::secrets;
use svc_sys::threads::lock;
use svc_sys::tls::Front;

/// The port for phones, unless a person names another; with the next ones, where it is taken.
pub const PORT: u16 = 31450;
/// As many of the next ones.
const FURTHER_PORTS: u16 = 10;
/// The cookie with one half of what proves a phone. Browsers take this name only for a whole address, by TLS.
const COOKIE: &str = "__Host-svc-phone";
/// The header with the other half; of a WebSocket, which can have none, the parameter `key`.
const HEADER: &str = "svc-phone";
/// How long a browser keeps the cookie: as long as it keeps any.
const COOKIE_SECONDS: u64 = 400 * 24 * 60 * 60;
/// Characters of a half.
const MAX_HALF_CHARS: usize = 100;
/// Connections end at once when the listener is closed.
const GRACE: Duration = Duration::from_millis(200);

/// Serves phones on a socket: what comes in, what stands before it, and the address by which it is called.
pub type Serve = Box<dyn Fn(Bound, Front, &str) -> io::Result<Server> + Send + Sync>;

/// The listener, the codes, and when each phone was seen.
pub struct Door {
    folder: PathBuf,
    /// The codes there are.
    pub codes: Codes,
    serve: OnceLock<Serve>,
    open: Mutex<Option<Open>>,
    seen: Mutex<HashMap<PhoneId, Time>>,
    /// Until when somebody looks whether it is still needed; `None` while nobody does.
    watch: Mutex<Option<Instant>>,
    /// The key by which push services know the daemon, once it was needed.
    vapid: Mutex<Option<Arc<Vapid>>>,
    /// Whether the daemon ends.
    is_over: AtomicBool,
}

struct Open {
    server: Server,
    address: SocketAddr,
    identity: Identity,
}

/// What is told of an open listener.
pub struct Shown {
    /// `https://192.168.1.5:31450`.
    pub url: String,
    pub address: SocketAddr,
    pub fingerprint: String,
    /// The certificate that a phone may be made to trust, and its fingerprint.
    pub to_trust: (String, String),
    pub until: Time,
}

impl Door {
    /// With what is below `.svc/`.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            codes: Codes::default(),
            serve: OnceLock::new(),
            open: Mutex::default(),
            seen: Mutex::default(),
            watch: Mutex::default(),
            vapid: Mutex::default(),
            is_over: AtomicBool::default(),
        }
    }

    /// Who serves those who call. To be said once.
    pub fn set_serve(&self, serve: Serve) {
        // Said once, by the assembly.
        let _ = self.serve.set(serve);
    }

    /// Listens there; with port 0 at the usual one, or one of the next. One that is open there stays.
    ///
    /// Errors: 409 `address_not_ours`, `port_taken`; 503.
    pub fn listen(&self, wanted: SocketAddr, now: Time) -> Result<Shown, Problem> {
        let mut open = lock(&self.open);
        let stays = |open: &&Open| {
            open.address.ip() == wanted.ip() && (wanted.port() == 0 || wanted.port() == open.address.port())
        };
        if let Some(open) = open.as_ref().filter(stays) {
            return Ok(shown(open));
        }
        let listener = bind(wanted)?;
        let started = (|| {
            let identity = Identity::open(&self.folder, wanted.ip(), now)?;
            let (front, address) = (identity.front()?, listener.local_addr()?);
            let serve = self.serve.get().filter(|_| !self.is_over.load(Ordering::SeqCst));
            let serve = serve.ok_or_else(|| io::Error::other("the daemon is starting or ending"))?;
            let server = serve(Bound { listener, address }, front, &authority(address))?;
            Ok::<_, io::Error>(Open { server, address, identity })
        })();
        let made = started.map_err(|error| {
            Problem::new(503, "no_listener", format!("the listener for phones cannot be opened: {error}"))
        })?;
        log::info!("phones may call at https://{}", authority(made.address));
        let told = shown(&made);
        *open = Some(made);
        Ok(told)
    }

    /// The key by which push services know this daemon; made when it is needed first.
    ///
    /// Errors: it cannot be read, made or kept.
    pub(super) fn vapid(&self) -> io::Result<Arc<Vapid>> {
        let mut kept = lock(&self.vapid);
        let vapid = match kept.take() {
            Some(vapid) => vapid,
            None => Arc::new(Vapid::open(&self.folder)?),
        };
        Ok(Arc::clone(kept.insert(vapid)))
    }

    /// What is told of the listener, while it is open.
    pub fn shown(&self) -> Option<Shown> {
        lock(&self.open).as_ref().map(shown)
    }

    /// Ends all connections of phones. Those that are still paired come again.
    pub fn hang_up(&self) {
        if let Some(open) = lock(&self.open).as_ref() {
            open.server.hang_up();
        }
    }

    /// Closes the listener, if nobody needs it: there is no phone and no code for one.
    pub fn rest(&self, phones: &State) {
        if phones.is_empty() && !self.codes.has_any(Instant::now()) {
            self.close();
        }
    }

    /// Closes it for good: the daemon ends.
    pub fn end(&self) {
        self.codes.forget();
        self.is_over.store(true, Ordering::SeqCst);
        self.close();
    }

    /// Closes it.
    pub fn close(&self) {
        let Some(open) = lock(&self.open).take() else { return };
        open.server.hang_up();
        open.server.stop(GRACE);
        log::info!("phones may call no more");
    }

    /// Looks whether it is still needed once a code that is made now has ended.
    pub fn watch(self: &Arc<Self>, look: impl Fn(&Self) + Send + 'static) {
        let mut watch = lock(&self.watch);
        if watch.replace(Instant::now() + LIFE).is_some() {
            return;
        }
        let door = Arc::downgrade(self);
        let body = move || {
            while let Some(left) = door.upgrade().and_then(|door| door.left()) {
                // A code lasts minutes, and nothing else ends this wait: the daemon does not wait for it.
                thread::sleep(left);
            }
            if let Some(door) = door.upgrade() {
                look(&door);
            }
        };
        if let Err(error) = thread::Builder::new().name("phone-code".into()).spawn(body) {
            *watch = None;
            log::warn!("the listener for phones stays open: no thread: {error}");
        }
    }

    /// How long a code may still last; with none left the watch is over.
    fn left(&self) -> Option<Duration> {
        let mut watch = lock(&self.watch);
        let left = watch.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.filter(|left| !left.is_zero());
        if left.is_none() {
            *watch = None;
        }
        left
    }

    /// Whose a request is, by both halves of the proof. `None` for nobody's.
    pub fn phone_of(&self, phones: &State, shown: &Shows, now: Time) -> Option<Arc<Phone>> {
        let proof = digest(shown.cookie.as_deref()?, shown.key.as_deref()?);
        let is_its = |phone: &&Arc<Phone>| same_bytes(phone.proof.as_bytes(), proof.as_bytes());
        let phone = phones.iter().find(is_its)?;
        lock(&self.seen).insert(phone.id, now);
        Some(Arc::clone(phone))
    }

    /// When a phone was here last, since the daemon has started.
    pub fn seen(&self, id: PhoneId) -> Option<Time> {
        lock(&self.seen).get(&id).copied()
    }

    /// Forgets when it was here.
    pub fn forget(&self, id: PhoneId) {
        lock(&self.seen).remove(&id);
    }
}

/// Both halves, as a request shows them.
pub struct Shows {
    cookie: Option<String>,
    key: Option<String>,
}

impl Shows {
    /// Of a request.
    pub fn of(request: &Request) -> Self {
        Self::read(&request.headers, request.header(HEADER))
    }

    /// Of what has come of one so far. Only a WebSocket says its key in its address.
    pub fn of_head(head: &Head, is_socket: bool) -> Self {
        let of_query = || head.query.iter().find(|(name, _)| name == "key").map(|(_, value)| value.as_str());
        let key = if is_socket { of_query() } else { head.header(HEADER) };
        Self::read(&head.headers, key)
    }

    fn read(headers: &[(String, String)], key: Option<&str>) -> Self {
        let fits = |half: &&str| !half.is_empty() && half.len() <= MAX_HALF_CHARS;
        let key = key.filter(fits).map(str::to_owned);
        Self { cookie: cookie_of(headers).filter(fits).map(str::to_owned), key }
    }

    /// Whether it shows something that could be a phone's.
    pub fn is_something(&self) -> bool {
        self.cookie.is_some() && self.key.is_some()
    }
}

/// The cookie; two of that name are none: one of them was planted.
fn cookie_of(headers: &[(String, String)]) -> Option<&str> {
    let mut found = headers
        .iter()
        .filter(|(header, _)| header == "cookie")
        .flat_map(|(_, value)| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// What proves a new phone.
pub struct Halves {
    /// The value of `Set-Cookie`.
    pub cookie: String,
    /// For its page.
    pub key: String,
    /// What is kept of both.
    pub proof: String,
}

impl Halves {
    /// New ones.
    ///
    /// Errors: the system gives no randomness.
    pub fn make() -> io::Result<Self> {
        let (cookie, key) = (secrets::random()?, secrets::random()?);
        let proof = digest(&cookie, &key);
        let rules = format!("Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={COOKIE_SECONDS}");
        Ok(Self { cookie: format!("{COOKIE}={cookie}; {rules}"), key, proof })
    }
}

/// Both halves are random and as long as a digest: nobody finds them from it.
fn digest(cookie: &str, key: &str) -> String {
    hex::encode(&Sha256::digest(format!("svc phone 1\n{cookie}\n{key}")))
}

/// How a browser calls it.
fn authority(address: SocketAddr) -> String {
    // Browsers leave out the usual port.
    match (address.port(), address.ip()) {
        (443, IpAddr::V4(ip)) => ip.to_string(),
        (443, IpAddr::V6(ip)) => format!("[{ip}]"),
        _ => address.to_string(),
    }
}

fn shown(open: &Open) -> Shown {
    Shown {
        url: format!("https://{}", authority(open.address)),
        address: open.address,
        fingerprint: open.identity.fingerprint(),
        to_trust: (open.identity.to_trust(), open.identity.fingerprint_to_trust()),
        until: open.identity.until(),
    }
}

fn bind(wanted: SocketAddr) -> Result<TcpListener, Problem> {
    let ports = if wanted.port() == 0 { PORT..=PORT + FURTHER_PORTS } else { wanted.port()..=wanted.port() };
    let mut last = None;
    for port in ports {
        match TcpListener::bind((wanted.ip(), port)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => last = Some(port),
            Err(error) => {
                let text = format!(
                    "phones cannot call at {}: {error}; name another address of this machine",
                    wanted.ip()
                );
                return Err(Problem::new(409, "address_not_ours", text));
            }
        }
    }
    let text = format!("port {} of {} is taken; name another", last.unwrap_or_default(), wanted.ip());
    Err(Problem::new(409, "port_taken", text))
}

/// The address of this machine by which it reaches others, where that is one of a network of one's own.
pub fn own_address() -> Option<IpAddr> {
    // Nothing is sent: the system only chooses by which interface it would be. The address is for examples.
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| is_near(*ip))
}

/// Whether an address is of a network of one's own: private, of a VPN, or of this machine alone.
pub fn is_near(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_prove_a_phone_and_neither_alone() {
        let halves = Halves::make().unwrap();
        let (name, value) = halves.cookie.split_once(';').unwrap().0.split_once('=').unwrap();
        assert_eq!(name, COOKIE);
        for rule in ["Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
            assert!(halves.cookie.split("; ").any(|one| one == rule), "{}", halves.cookie);
        }
        let phone = Phone {
            id: PhoneId(1),
            name: "phone".into(),
            rights: Vec::new(),
            proof: halves.proof.clone(),
            paired_at: Time(0),
            push: None,
        };
        let mut phones = State::default();
        phones.phones.insert(phone.id, Arc::new(phone));
        let door = Door::new(Path::new("/nowhere"));
        let knows = |cookies: &[String], key: Option<&str>| {
            let headers: Vec<_> = cookies.iter().map(|value| ("cookie".to_owned(), value.clone())).collect();
            door.phone_of(&phones, &Shows::read(&headers, key), Time(0)).is_some()
        };
        let right = format!("{COOKIE}={value}");
        let key = Some(halves.key.as_str());
        assert!(knows(&[format!("a=b; {right}")], key));
        assert!(!knows(std::slice::from_ref(&right), None) && !knows(&[], key), "one half");
        assert!(!knows(std::slice::from_ref(&right), Some(value)), "the cookie is not the key");
        assert!(!knows(&[right.clone(), right.clone()], key), "one of two was planted");
        assert!(!knows(&[format!("svc-phone={value}")], key), "a cookie that other ports may set");
        assert!(!knows(std::slice::from_ref(&right), Some(&halves.key[1..])), "a part");
        phones = State::default();
        let headers = [("cookie".to_owned(), right)];
        assert!(door.phone_of(&phones, &Shows::read(&headers, key), Time(0)).is_none(), "revoked");
    }

    #[test]
    fn phones_call_at_networks_of_ones_own_unless_a_person_says_otherwise() {
        for near in
            ["10.1.2.3", "192.168.0.1", "172.16.0.1", "100.64.0.1", "127.0.0.1", "fd00::1", "fe80::1", "::1"]
        {
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        for far in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "0.0.0.0", "::", "2001:db8::1"] {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
        assert_eq!(authority("10.0.0.1:443".parse().unwrap()), "10.0.0.1");
        assert_eq!(authority("[fd00::1]:443".parse().unwrap()), "[fd00::1]");
        assert_eq!(authority("[fd00::1]:31450".parse().unwrap()), "[fd00::1]:31450");
    }
}
