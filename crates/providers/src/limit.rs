//! What providers tell of their limits: one vocabulary for all of them, and the words that errors of
//! different programs have in common. Each provider reads its own payloads in its own file; what only a
//! sentence tells is read here.

use super::json::Look;
use super::{Activity, Step, wire};
use serde::{Deserialize, Serialize};

/// Of the words of a refusal so many bytes are kept: its reset is read from them.
pub const WORDS_LIMIT_BYTES: usize = 400;
/// A number below this is taken for seconds, one from it on for milliseconds since 1970 (or in a delay).
const MILLISECONDS_FROM: u64 = 100_000_000_000;
/// Longer delays than a year are nonsense.
const DELAY_MAX_MS: u64 = 366 * 86_400_000;

/// Why nothing is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// What may be used in a window of time, or of a quota, is used up.
    Window,
    /// Too many requests at once.
    Rate,
    /// The endpoint has too much to do.
    Overload,
    /// The endpoint cannot be reached.
    Network,
}

/// Where a limit was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The program's own event or figures about its limits.
    Event,
    /// The status and the fields of an error.
    Error,
    /// The words of an error, and nothing else.
    Text,
}

/// What a provider told of one window, or why it answers nothing now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    pub kind: Kind,
    /// Whether nothing is answered before it opens.
    pub closed: bool,
    /// The provider's word for it, for example `five_hour`; empty where it told none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub window: String,
    /// Of what may be used, as the provider counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_percent: Option<f64>,
    /// When it opens, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at_ms: Option<u64>,
    /// In how many milliseconds it opens, from when this was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_in_ms: Option<u64>,
    /// The words that may tell when it opens: at most [`WORDS_LIMIT_BYTES`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
    pub source: Source,
}

impl Limit {
    /// One of this kind of which nothing else is known.
    pub fn new(kind: Kind, source: Source) -> Self {
        Self {
            kind,
            closed: true,
            window: String::new(),
            used_percent: None,
            resets_at_ms: None,
            resets_in_ms: None,
            words: String::new(),
            source,
        }
    }

    /// A window that is open, or of which the closing is told elsewhere.
    pub fn window(name: &str, used_percent: Option<f64>, resets_at_ms: Option<u64>) -> Self {
        let window = wire::cut(name, 64);
        Self { closed: false, window, used_percent, resets_at_ms, ..Self::new(Kind::Window, Source::Event) }
    }

    /// Whether the provider itself told when it opens.
    pub fn tells_reset(&self) -> bool {
        self.resets_at_ms.is_some() || self.resets_in_ms.is_some()
    }
}

/// A point in time that a program told in seconds or in milliseconds.
pub fn instant_ms(number: u64) -> Option<u64> {
    (number > 0).then(|| if number < MILLISECONDS_FROM { number * 1000 } else { number })
}

/// The point in time under `key`, in seconds, in milliseconds, or as a number in text.
pub fn instant_at(value: &impl Look, key: &str) -> Option<u64> {
    let told = value.get(key)?;
    told.as_u64().or_else(|| told.as_str()?.trim().parse().ok()).and_then(instant_ms)
}

/// The seconds of a `Retry-After` (`20`, `1.5`) in milliseconds. A date in it is left to the words.
pub fn delay_ms(text: &str) -> Option<u64> {
    let seconds: f64 = text.trim().parse().ok()?;
    let fits = seconds > 0.0 && seconds * 1000.0 <= 31_622_400_000.0;
    // At most a year, and never negative.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let millis = (seconds * 1000.0).ceil() as u64;
    fits.then_some(millis.min(DELAY_MAX_MS))
}

/// What is used up until a time, in the words of errors.
const WINDOW: &[&str] = &[
    "usage limit",
    "session limit",
    "weekly limit",
    "monthly limit",
    "daily limit",
    "hour limit",
    "hit your limit",
    "usage cap",
    "quota",
    "exhausted your",
    "out of usage credits",
    "out of credits",
    "credit balance is too low",
    "spend limit",
    "premium request",
    "nutzungslimit",
    "limite d'utilisation",
];
/// Too much at once.
const RATE: &[&str] = &["rate limit", "rate_limit", "ratelimit", "too many requests", "resource_exhausted"];
const OVERLOAD: &[&str] =
    &["overloaded", "service unavailable", "bad gateway", "server is busy", "high demand", "at capacity"];
const NETWORK: &[&str] = &[
    "econnrefused",
    "econnreset",
    "enotfound",
    "etimedout",
    "eai_again",
    "enetunreach",
    "ehostunreach",
    "connection refused",
    "connection reset",
    "connection error",
    "connection timed out",
    "cannot reach",
    "could not resolve",
    "unable to connect",
    "network is unreachable",
    "network error",
    "fetch failed",
    "error sending request",
    "socket hang up",
    "dns error",
];

/// What the failure of a turn says of a limit, from its status, where one is known apart, and its words.
/// `None` for every other failure.
pub fn of_failure(status: Option<u64>, words: &str) -> Option<Limit> {
    let low = words.to_lowercase();
    let has = |list: &[&str]| list.iter().any(|word| low.contains(word));
    let told = ["error", "status", "code", "http", "answered"].iter().any(|word| low.contains(word));
    let stands = |number: &str| low.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == number);
    let is = |number: u64| status.map_or_else(|| told && stands(&number.to_string()), |one| one == number);
    let kind = if has(WINDOW) && (is(429) || is(402) || is(403) || status.is_none()) {
        Kind::Window
    } else if is(429) || status.is_none() && has(RATE) {
        Kind::Rate
    } else if [529, 503, 502, 504].into_iter().any(is) || status.is_none() && has(OVERLOAD) {
        Kind::Overload
    } else if status.is_none() && has(NETWORK) {
        Kind::Network
    } else {
        return None;
    };
    let source = if status.is_some() { Source::Error } else { Source::Text };
    Some(Limit { words: wire::cut(words, WORDS_LIMIT_BYTES), ..Limit::new(kind, source) })
}

/// Tells of the limit that the failure of a turn names, if it names one. To be told before the turn's end.
pub fn told(out: &mut Vec<Step>, status: Option<u64>, words: &str, retry_after: &str) {
    if let Some(mut limit) = of_failure(status, words) {
        limit.resets_in_ms = delay_ms(retry_after);
        wire::emit(out, Activity::Limit(limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(words: &str) -> Option<Kind> {
        of_failure(None, words).map(|limit| limit.kind)
    }

    #[test]
    fn the_words_of_eight_programs_are_told_apart() {
        for (words, wanted) in [
            ("You've hit your session limit · resets 3:30am (Europe/Berlin)", Kind::Window),
            ("Claude AI usage limit reached|1795221836", Kind::Window),
            ("You've hit your usage limit. Upgrade to Pro or try again at 3:05 PM.", Kind::Window),
            (
                "You have exhausted your capacity on this model. Your quota will reset after 2h13m5s.",
                Kind::Window,
            ),
            ("You have exceeded your premium request allowance.", Kind::Window),
            ("exceeded retry limit, last status: 429 Too Many Requests", Kind::Rate),
            ("error 429: Rate limit reached for requests", Kind::Rate),
            ("the endpoint answered 503: loading", Kind::Overload),
            ("API Error: 529 {\"type\":\"overloaded_error\"}", Kind::Overload),
            ("Internal error: fetch failed", Kind::Network),
            ("cannot reach http://127.0.0.1:9/v1: Connection refused", Kind::Network),
        ] {
            assert_eq!(kind(words), Some(wanted), "{words}");
        }
        for words in [
            "the limit of turns was reached",
            "the answer has 429 lines",
            "unexpected status 401 Unauthorized",
            "the scripted model refuses this request",
            "exit 503",
        ] {
            assert_eq!(kind(words), None, "{words}");
        }
    }

    #[test]
    fn a_status_that_is_known_is_believed_before_the_words() {
        let of = |status, words| of_failure(Some(status), words).map(|limit| limit.kind);
        assert_eq!(of(429, "busy"), Some(Kind::Rate));
        assert_eq!(of(429, "insufficient_quota"), Some(Kind::Window));
        assert_eq!(of(503, "x"), Some(Kind::Overload));
        assert_eq!(of(400, "rate limit of your prompt: 429"), None);
        assert_eq!(of(401, "the quota of the key"), None);
    }

    #[test]
    fn seconds_and_milliseconds_are_told_apart() {
        assert_eq!(instant_ms(1_795_221_836), Some(1_795_221_836_000));
        assert_eq!(instant_ms(1_795_221_836_476), Some(1_795_221_836_476));
        assert_eq!((instant_ms(0), delay_ms("0"), delay_ms("soon")), (None, None, None));
        assert_eq!((delay_ms("20"), delay_ms(" 1.5 ")), (Some(20_000), Some(1_500)));
        assert_eq!(delay_ms("1e300"), None);
    }
}
