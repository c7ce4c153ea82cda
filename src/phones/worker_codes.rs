//! The code of six digits by which a phone is paired: one at a time, good once, for five minutes and for five
//! tries; after a wrong one nobody is listened to for a moment.
//!
//! **Invariant:** however many call at once, of a million codes no more than [`TRIES`] are tried.

use super::Grant;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use svc_sys::http::same_bytes;

/// A code is good for so long.
pub const LIFE: Duration = Duration::from_secs(5 * 60);
/// Wrong tries; the last one ends it.
pub const TRIES: u32 = 5;
/// After a wrong try, what is shown within this is not looked at.
pub const PAUSE: Duration = Duration::from_secs(1);
/// How many codes there are.
const CODES: u32 = 1_000_000;

/// What a try comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Tried {
    /// It is used up.
    Good(Grant),
    /// As many wrong ones so far; whether that was the last.
    Wrong { tries: u32, is_void: bool },
    /// There is no code, or none any more.
    NoCode,
    /// It was not looked at.
    TooSoon,
}

/// The code there is.
#[derive(Default)]
pub struct Codes {
    open: Mutex<Option<Code>>,
}

struct Code {
    digits: String,
    grant: Grant,
    until: Instant,
    tries: u32,
    not_before: Instant,
}

impl Codes {
    /// A new code, in the place of any other.
    ///
    /// Errors: the system gives no randomness.
    pub fn make(&self, grant: Grant, now: Instant) -> io::Result<String> {
        let digits = format!("{:06}", draw()?);
        let code = Code { digits: digits.clone(), grant, until: now + LIFE, tries: 0, not_before: now };
        *self.open() = Some(code);
        Ok(digits)
    }

    /// Whether there is one.
    pub fn has_any(&self, now: Instant) -> bool {
        self.open().as_ref().is_some_and(|code| now < code.until)
    }

    /// Ends it.
    pub fn forget(&self) {
        *self.open() = None;
    }

    /// Tries a code.
    pub fn redeem(&self, shown: &str, now: Instant) -> Tried {
        let mut open = self.open();
        let Some(code) = open.as_mut().filter(|code| now < code.until) else {
            *open = None;
            return Tried::NoCode;
        };
        if now < code.not_before {
            return Tried::TooSoon;
        }
        if same_bytes(shown.as_bytes(), code.digits.as_bytes()) {
            return open.take().map_or(Tried::NoCode, |code| Tried::Good(code.grant));
        }
        code.tries += 1;
        code.not_before = now + PAUSE;
        let (tries, is_void) = (code.tries, code.tries >= TRIES);
        if is_void {
            *open = None;
        }
        Tried::Wrong { tries, is_void }
    }

    fn open(&self) -> MutexGuard<'_, Option<Code>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number below [`CODES`], each as likely as the others.
fn draw() -> io::Result<u32> {
    loop {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes)
            .map_err(|error| io::Error::other(format!("the system gives no randomness: {error}")))?;
        let number = u32::from_be_bytes(bytes);
        // What is left above the last whole million would make the first codes likelier.
        if number < u32::MAX - u32::MAX % CODES {
            return Ok(number % CODES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Right;
    use super::*;

    fn grant() -> Grant {
        Grant { name: None, rights: Right::ALL.to_vec() }
    }

    fn other(code: &str) -> String {
        format!("{:06}", (code.parse::<u32>().unwrap() + 1) % CODES)
    }

    #[test]
    fn a_code_is_good_once_and_for_five_minutes() {
        let (codes, now) = (Codes::default(), Instant::now());
        assert_eq!(codes.redeem("000000", now), Tried::NoCode);
        let code = codes.make(grant(), now).unwrap();
        assert!(code.len() == 6 && code.bytes().all(|byte| byte.is_ascii_digit()), "{code}");
        assert_eq!(codes.redeem(&code, now), Tried::Good(grant()));
        assert_eq!(codes.redeem(&code, now), Tried::NoCode, "replayed");
        let code = codes.make(grant(), now).unwrap();
        assert!(codes.has_any(now) && !codes.has_any(now + LIFE));
        assert_eq!(codes.redeem(&code, now + LIFE), Tried::NoCode, "too late");
        let first = codes.make(grant(), now).unwrap();
        let second = codes.make(grant(), now).unwrap();
        if first != second {
            assert_eq!(codes.redeem(&first, now), Tried::Wrong { tries: 1, is_void: false });
        }
        assert_eq!(codes.redeem(&second, now + PAUSE), Tried::Good(grant()), "the newer one alone");
    }

    #[test]
    fn five_wrong_tries_end_it_and_each_costs_a_moment() {
        let (codes, mut now) = (Codes::default(), Instant::now());
        let code = codes.make(grant(), now).unwrap();
        for tries in 1..=TRIES {
            let is_void = tries == TRIES;
            assert_eq!(codes.redeem(&other(&code), now), Tried::Wrong { tries, is_void });
            if !is_void {
                assert_eq!(codes.redeem(&code, now), Tried::TooSoon, "even the right one");
            }
            now += PAUSE;
        }
        assert_eq!(codes.redeem(&code, now), Tried::NoCode);
    }

    #[test]
    fn what_is_no_code_is_a_wrong_try() {
        let (codes, mut now) = (Codes::default(), Instant::now());
        let code = codes.make(grant(), now).unwrap();
        for wrong in ["", &code[1..], &format!("{code} ")] {
            assert!(matches!(codes.redeem(wrong, now), Tried::Wrong { .. }), "{wrong:?}");
            now += PAUSE;
        }
    }

    #[test]
    fn many_at_once_get_no_more_tries_than_one() {
        let (codes, now) = (Codes::default(), Instant::now());
        let code = codes.make(grant(), now).unwrap();
        let wrong = other(&code);
        let counted = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..64)
                .map(|n| {
                    let (codes, wrong) = (&codes, &wrong);
                    scope.spawn(move || codes.redeem(wrong, now + PAUSE * n))
                })
                .collect();
            let all: Vec<Tried> = tries.into_iter().map(|one| one.join().unwrap()).collect();
            all.iter().filter(|tried| matches!(tried, Tried::Wrong { .. })).count()
        });
        assert!(counted <= TRIES as usize, "{counted}");
    }
}
