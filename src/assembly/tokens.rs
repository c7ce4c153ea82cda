//! The person's token: where it comes from, who must show it, and what happens to those who guess.
//!
//! It is in `.svc/token`, which the rooms of agents do not show. `SVC_OPERATOR_TOKEN` takes its place where
//! that is set; no agent is given it, and no file holds it.
//!
//! **Invariant:** an empty token is no token. Tokens are compared in the same time wherever they differ.

use crate::agents::room;
use crate::api::Problem;
use crate::core::State;
use crate::core::actor::{Demands, Holder, Shown};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use svc_base::base64;
use svc_sys::files::if_there;
use svc_sys::http::same_bytes;

/// The variable with the operator's token.
pub use svc_sys::secrets::OPERATOR_TOKEN as VARIABLE;
/// The file of the person's token, below `.svc/`.
const FILE: &str = "token";
/// The user name of a browser that signs in; the password is the token.
const USER: &str = "svc";
/// Wrong tokens of one source within [`WINDOW`]; then it is not listened to until the window is over.
const WRONG_TOKENS: u32 = 10;
/// Begins with a source's first wrong token.
const WINDOW: Duration = Duration::from_secs(60);
/// A token of so many bytes is not guessed. Whoever shows it is listened to, so that nobody who guesses can
/// shut out the person who calls from the same place.
const UNGUESSABLE_BYTES: usize = 16;
/// Sources that are remembered.
const SOURCES: usize = 256;

/// Which token is in force, and where it must be shown.
pub struct Tokens {
    /// `SVC_OPERATOR_TOKEN`, for requests that only a person may make.
    operator: Option<String>,
    /// That of `.svc/token`, in its place. Absent where it could not be written.
    file: Option<String>,
    /// Whether every request must show it, because the daemon listens beyond this machine.
    is_at_door: bool,
    /// Whether, since this daemon has started, an agent without a room may have read the file.
    is_exposed: AtomicBool,
    brake: Mutex<Brake>,
}

/// Where a wrong token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Another machine; of an IPv6 address its network.
    Machine(IpAddr),
    /// A process of this machine that comes from no agent. Agents cannot use up its tries.
    Outside,
    /// An agent's process.
    Agent,
    /// Somebody on this machine who is not seen.
    Unseen,
}

/// A wrong token, to be told.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Where from.
    pub from: String,
    /// How many within the window.
    pub attempts: u32,
}

/// `SVC_OPERATOR_TOKEN`, if it says anything.
///
/// Errors: it is not text.
pub fn of_variable(value: Option<OsString>) -> io::Result<Option<String>> {
    let Some(value) = value else { return Ok(None) };
    let text = value
        .into_string()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{VARIABLE} must be UTF-8 text")))?;
    Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty()))
}

impl Tokens {
    /// The tokens of a daemon that listens `beyond` this machine or not. Without an `operator`'s one, it is
    /// in `folder`: made anew by `make` at each start, so that what somebody noted of it is worth nothing;
    /// but for other machines, which have been told it, the old one stays.
    ///
    /// Errors: one that other machines need cannot be read, made or written.
    pub fn open(
        folder: &Path,
        beyond: bool,
        operator: Option<String>,
        make: impl FnOnce() -> io::Result<String>,
    ) -> io::Result<Self> {
        let file = match &operator {
            Some(_) => {
                // One that proves nothing would be shown, and taken for a guess.
                let _ = std::fs::remove_file(folder.join(FILE));
                None
            }
            None if beyond => Some(of_file(folder, make)?),
            None => make().and_then(|token| written(folder, token)).map_or_else(
                |error| {
                    log::warn!("the person's token cannot be written: {error}; who is seen needs none");
                    None
                },
                Some,
            ),
        };
        let (is_exposed, brake) = (AtomicBool::default(), Mutex::default());
        Ok(Self { operator, file, is_at_door: beyond, is_exposed, brake })
    }

    /// What a header shows.
    pub fn shown(&self, authorization: &str) -> Shown {
        let shows =
            |token: &Option<String>| token.as_ref().is_some_and(|token| shows(Some(authorization), token));
        match (shows(&self.operator), shows(&self.file)) {
            (true, _) => Shown::Secret,
            (_, true) => Shown::Token,
            _ => Shown::Wrong,
        }
    }

    /// What is asked for a proof as things are.
    pub fn demands(&self, state: &State, hiders: bool) -> Demands {
        Demands { secret: self.operator.is_some(), private_token: self.is_private(state), hiders }
    }

    /// Notes that an agent has read the file, or can.
    pub fn expose(&self) {
        if !self.is_exposed.swap(true, Ordering::Relaxed) && self.file.is_some() {
            log::warn!(
                "an agent has shown the person's token, or can read it: it proves only who is seen from here on"
            );
        }
    }

    /// Whether no agent can have read the file. To be asked at each call, so that no change of the settings
    /// is missed.
    pub fn is_private(&self, state: &State) -> bool {
        if room(state).is_none() {
            self.is_exposed.store(true, Ordering::Relaxed);
        }
        self.file.is_some() && !self.is_exposed.load(Ordering::Relaxed)
    }

    /// Whether the operator's token is in force.
    pub fn has_operator(&self) -> bool {
        self.operator.is_some()
    }

    /// Whether there is a file with a token.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    fn person(&self) -> Option<&String> {
        self.operator.as_ref().or(self.file.as_ref())
    }

    /// Whether every request must show a token.
    pub fn guards_door(&self) -> bool {
        self.is_at_door
    }

    /// Whether a request may come in at all.
    ///
    /// Errors: 401 `token_required`.
    pub fn at_door(&self, authorization: Option<&str>, is_page: bool) -> Result<(), Problem> {
        if !self.is_at_door || self.person().is_some_and(|token| shows(authorization, token)) {
            return Ok(());
        }
        let whose = if self.operator.is_some() {
            format!("of the {VARIABLE} that it was started with")
        } else {
            "of .svc/token".to_owned()
        };
        let ask = if is_page {
            format!("Basic realm=\"user {USER}, password: the token {whose}\"")
        } else {
            "Bearer".into()
        };
        let text = format!(
            "this daemon listens beyond this machine: send Authorization: Bearer with the token {whose}"
        );
        Err(Problem::new(401, "token_required", text).with_header("WWW-Authenticate", ask))
    }

    /// Whether a right token is believed wherever it comes from: it is long, or nobody has shown a wrong one
    /// lately.
    pub fn is_believed(&self, now: Instant) -> bool {
        if self.person().is_some_and(|token| token.len() >= UNGUESSABLE_BYTES) {
            return true;
        }
        let mut brake = self.brake.lock().unwrap_or_else(PoisonError::into_inner);
        brake.wrong.retain(|_, one| now < one.until);
        brake.wrong.is_empty()
    }

    /// Whether a source is listened to that shows a wrong token, or a short one.
    ///
    /// Errors: 429 `too_many_wrong_tokens`.
    pub fn listen_to(&self, source: Source, now: Instant) -> Result<(), Problem> {
        let brake = self.brake.lock().unwrap_or_else(PoisonError::into_inner);
        let braked = brake.wrong.get(&source).filter(|one| one.attempts >= WRONG_TOKENS && now < one.until);
        let Some(one) = braked else { return Ok(()) };
        let seconds = one.until.saturating_duration_since(now).as_secs() + 1;
        let text = format!("{WRONG_TOKENS} wrong tokens came from here; try again in {seconds} s");
        Err(Problem::new(429, "too_many_wrong_tokens", text).with_header("Retry-After", seconds.to_string()))
    }

    /// Counts a wrong token; what is to be told of it: the first one and the one that makes the brake bite.
    pub fn count_wrong(&self, source: Source, now: Instant) -> Option<Wrong> {
        let mut brake = self.brake.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = brake.count(source, now);
        (attempts == 1 || attempts == WRONG_TOKENS).then(|| Wrong { from: source.to_string(), attempts })
    }
}

/// Wrong tokens, by where they came from.
#[derive(Default)]
struct Brake {
    wrong: HashMap<Source, Count>,
}

struct Count {
    attempts: u32,
    until: Instant,
}

impl Brake {
    fn count(&mut self, source: Source, now: Instant) -> u32 {
        self.wrong.retain(|_, one| now < one.until);
        if self.wrong.len() >= SOURCES && !self.wrong.contains_key(&source) {
            let least = self.wrong.iter().min_by_key(|(_, one)| (one.attempts, one.until));
            if let Some(least) = least.map(|(source, _)| *source) {
                self.wrong.remove(&least);
            }
        }
        let one = self.wrong.entry(source).or_insert(Count { attempts: 0, until: now + WINDOW });
        one.attempts = one.attempts.saturating_add(1);
        one.attempts
    }
}

impl Source {
    /// Where a connection comes from.
    pub fn of(holder: Holder, peer: IpAddr) -> Self {
        match holder {
            Holder::Elsewhere => Self::Machine(match peer.to_canonical() {
                IpAddr::V6(ip) => {
                    let [a, b, c, d, ..] = ip.segments();
                    Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
                }
                ip @ IpAddr::V4(_) => ip,
            }),
            Holder::Outside => Self::Outside,
            Holder::Agent(_) => Self::Agent,
            Holder::Unseen | Holder::Untold => Self::Unseen,
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Machine(ip) => write!(f, "{ip}"),
            Self::Outside => f.write_str("this machine"),
            Self::Agent => f.write_str("an agent's process"),
            Self::Unseen => f.write_str("somebody unseen on this machine"),
        }
    }
}

/// Whether an `Authorization` header shows a token: as `Bearer`, or as the password of a browser's sign-in.
fn shows(authorization: Option<&str>, token: &str) -> bool {
    let Some((kind, given)) = authorization.and_then(|value| value.split_once(' ')) else { return false };
    let wanted = match kind {
        "Bearer" => token.to_owned(),
        "Basic" => base64::encode(format!("{USER}:{token}").as_bytes()),
        _ => return false,
    };
    !token.is_empty() && same_bytes(given.trim().as_bytes(), wanted.as_bytes())
}

/// The token of the file, or a new one where that says nothing.
fn of_file(folder: &Path, make: impl FnOnce() -> io::Result<String>) -> io::Result<String> {
    let path = folder.join(FILE);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let text = if_there(svc_sys::regular::read_text(&path)).map_err(named)?.unwrap_or_default();
    if text.trim().is_empty() { written(folder, make()?) } else { Ok(text.trim().to_owned()) }
}

fn written(folder: &Path, token: String) -> io::Result<String> {
    svc_sys::files::replace(&folder.join(FILE), format!("{token}\n").as_bytes())?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(beyond: bool, operator: &str) -> Tokens {
        let operator = of_variable(Some(operator.into())).unwrap();
        let folder = Path::new("/nowhere/at/all");
        Tokens::open(folder, beyond, operator, || panic!("none is made")).unwrap()
    }

    #[test]
    fn an_empty_token_is_no_token() {
        for empty in ["", " ", "\n"] {
            assert_eq!(of_variable(Some(empty.into())).unwrap(), None);
        }
        assert_eq!(of_variable(Some(" s3cret\n".into())).unwrap().as_deref(), Some("s3cret"));
        let folder = std::env::temp_dir().join(format!("svc-tokens-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("token"), " \n").unwrap();
        let made = Tokens::open(&folder, true, None, || Ok("made".into())).unwrap();
        assert!(made.at_door(Some("Basic c3ZjOg=="), false).is_err(), "user svc without a password");
        assert_eq!(made.shown("Bearer "), Shown::Wrong);
        assert_eq!(made.at_door(Some("Bearer made"), false), Ok(()));
        assert_eq!(std::fs::read_to_string(folder.join("token")).unwrap(), "made\n");
        let again = Tokens::open(&folder, true, None, || panic!("it is there")).unwrap();
        assert_eq!(again.at_door(Some("Bearer made"), false), Ok(()));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn on_this_machine_each_start_makes_a_token_of_its_own() {
        let folder = std::env::temp_dir().join(format!("svc-tokens-anew-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("token"), "noted\n").unwrap();
        let tokens = Tokens::open(&folder, false, None, || Ok("made".into())).unwrap();
        assert_eq!(tokens.shown("Bearer noted"), Shown::Wrong);
        assert_eq!(tokens.shown("Bearer made"), Shown::Token);
        for wrong in ["bearer made", "Bearer MADE", "Bearer madee", "Bearer mad", "made", "Bearer made x"] {
            assert_eq!(tokens.shown(wrong), Shown::Wrong, "{wrong}");
        }
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(folder.join("token")).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        let operator = Tokens::open(&folder, false, Some("secret".into()), || panic!("none")).unwrap();
        assert_eq!(operator.shown("Bearer made"), Shown::Wrong);
        assert!(!folder.join("token").exists(), "one that proves nothing is not left to be shown");
        std::fs::remove_dir_all(&folder).unwrap();
        let nowhere = Tokens::open(Path::new("/proc/no"), false, None, || Ok("made".into())).unwrap();
        assert_eq!(nowhere.shown("Bearer made"), Shown::Wrong, "one that nobody can read proves nobody");
    }

    #[test]
    fn a_token_that_an_agent_may_have_read_is_not_private_again() {
        let folder = std::env::temp_dir().join(format!("svc-tokens-read-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let tokens = Tokens::open(&folder, false, None, || Ok("made".into())).unwrap();
        let caged = |can_cage| {
            let project = crate::core::Project { can_cage, ..crate::core::Project::default() };
            State { project: std::sync::Arc::new(project), ..State::default() }
        };
        assert!(tokens.is_private(&caged(true)));
        assert!(!tokens.is_private(&caged(false)));
        assert!(!tokens.is_private(&caged(true)), "an agent without a room may have noted it");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn decisions_1_beyond_this_machine_a_token_is_needed_and_a_browser_may_sign_in_with_it() {
        let beyond = tokens(true, "secret");
        for good in ["Bearer secret", "Basic c3ZjOnNlY3JldA=="] {
            assert_eq!(beyond.at_door(Some(good), false), Ok(()), "{good}");
            assert_eq!(beyond.shown(good), Shown::Secret);
        }
        for bad in ["Bearer wrong", "Basic secret", "Basic b3RoZXI6c2VjcmV0", "Basic ", "secret", "Bearer "] {
            assert!(beyond.at_door(Some(bad), false).is_err(), "{bad}");
            assert_eq!(beyond.shown(bad), Shown::Wrong);
        }
        let ask = |is_page| format!("{:?}", beyond.at_door(None, is_page));
        assert!(ask(false).contains("\"Bearer\"") && ask(true).contains("Basic realm="));
        assert!(
            ask(false).contains(VARIABLE) && !ask(true).contains(".svc/token"),
            "it names the one in force"
        );
        assert_eq!(tokens(false, "secret").at_door(None, false), Ok(()), "on this machine the door is open");
    }

    #[test]
    fn wrong_tokens_are_braked_by_source_and_told() {
        let tokens = tokens(true, "secret");
        let begun = Instant::now();
        assert!(tokens.is_believed(begun));
        let source = Source::of(Holder::Elsewhere, [10, 0, 0, 9].into());
        let told: Vec<u32> =
            (0..20).filter_map(|_| tokens.count_wrong(source, begun)).map(|wrong| wrong.attempts).collect();
        assert_eq!(told, [1, WRONG_TOKENS]);
        let refused = tokens.listen_to(source, begun).unwrap_err();
        assert_eq!((refused.status, refused.code), (429, "too_many_wrong_tokens"));
        assert_eq!(refused.headers, [("Retry-After", "61".to_owned())]);
        for other in [Source::Outside, Source::Unseen, Source::Machine([10, 0, 0, 8].into())] {
            assert_eq!(tokens.listen_to(other, begun), Ok(()), "{other}");
        }
        assert_eq!(tokens.listen_to(source, begun + WINDOW), Ok(()));
        assert!(!tokens.is_believed(begun) && tokens.is_believed(begun + WINDOW));
        let long = self::tokens(true, "a-long-token-of-a-person");
        long.count_wrong(source, begun);
        assert!(long.is_believed(begun), "a long token is not guessed, and nobody is shut out");
    }

    #[test]
    fn no_more_sources_are_remembered_than_there_is_room_for() {
        let mut brake = Brake::default();
        let now = Instant::now();
        for _ in 0..WRONG_TOKENS {
            brake.count(Source::Outside, now);
        }
        for n in 0..2000_u32 {
            brake.count(Source::Machine(std::net::Ipv4Addr::from(n).into()), now);
        }
        assert_eq!(brake.wrong.len(), SOURCES);
        assert!(brake.wrong[&Source::Outside].attempts >= WRONG_TOKENS, "the busiest is not forgotten");
        let network = |text: &str| Source::of(Holder::Elsewhere, text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::2"), "one network is one source");
    }
}
