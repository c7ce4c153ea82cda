//! The shared key of writers and the operator's key.
//!
//! **Invariant:** an empty key is never accepted; keys are compared by digest, in constant time.

use sha2::{Digest, Sha256};
use svc_base::api::Problem;

/// Whose key a request must carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Public,
    Writer,
    Admin,
}

/// Digests of the configured keys.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    writers: Vec<[u8; 32]>,
    admin: Option<[u8; 32]>,
}

impl Keys {
    /// Takes the keys as configured; empty ones count as none.
    pub fn new(current: Option<&str>, previous: Option<&str>, admin: Option<&str>) -> Self {
        let digest = |key: &str| <[u8; 32]>::from(Sha256::digest(key.as_bytes()));
        let told = |key: Option<&str>| key.filter(|key| !key.trim().is_empty()).map(digest);
        let current = told(current);
        // Without a current key there is no rotation either: writes are off.
        let previous = current.and_then(|_| told(previous));
        Self { writers: current.into_iter().chain(previous).collect(), admin: told(admin) }
    }

    /// Whether anybody may write.
    pub fn any_writer(&self) -> bool {
        !self.writers.is_empty()
    }

    /// Checks the `Authorization` header.
    ///
    /// Errors: 401, with `invalid_token` when a key came but not the right one.
    pub fn check(&self, access: Access, header: Option<&str>) -> Result<(), Problem> {
        let (name, accepted) = match access {
            Access::Public => return Ok(()),
            Access::Writer => ("SKILLS_API_KEY", &self.writers[..]),
            Access::Admin => ("SKILLS_ADMIN_KEY", self.admin.as_slice()),
        };
        match header {
            None => Err(missing(name)),
            Some(header) if holds(accepted, header) => Ok(()),
            Some(_) => Err(wrong(name)),
        }
    }

    /// Whether the header carries a valid key of either kind.
    pub fn knows(&self, header: Option<&str>) -> bool {
        header.is_some_and(|header| holds(&self.writers, header) || holds(self.admin.as_slice(), header))
    }
}

fn holds(accepted: &[[u8; 32]], header: &str) -> bool {
    let Some((scheme, given)) = header.split_once(' ') else { return false };
    if !scheme.eq_ignore_ascii_case("bearer") || given.trim().is_empty() {
        return false;
    }
    let given: [u8; 32] = Sha256::digest(given.trim().as_bytes()).into();
    // All keys are looked at to the end, whatever matches.
    accepted.iter().fold(false, |found, key| found | same(key, &given))
}

fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

fn missing(name: &str) -> Problem {
    Problem::new(401, "key_required", format!("send Authorization: Bearer with the key of {name}"))
        .with_header("WWW-Authenticate", "Bearer realm=\"skills\"")
}

fn wrong(name: &str) -> Problem {
    Problem::new(401, "invalid_token", format!("the key is not the one of {name}"))
        .with_header("WWW-Authenticate", "Bearer realm=\"skills\", error=\"invalid_token\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_1_keys() {
        let keys = Keys::new(Some("new"), Some("old"), Some("boss"));
        for good in ["Bearer new", "bearer new", "Bearer old", "Bearer  new "] {
            assert_eq!(keys.check(Access::Writer, Some(good)), Ok(()), "{good}");
        }
        for bad in ["Bearer boss", "Bearer", "Bearer ", "Basic new", "new", "Bearer newx", ""] {
            let problem = keys.check(Access::Writer, Some(bad)).unwrap_err();
            assert!(problem.headers[0].1.contains("invalid_token"), "{bad}");
        }
        let problem = keys.check(Access::Writer, None).unwrap_err();
        assert_eq!((problem.status, problem.headers[0].1.as_str()), (401, "Bearer realm=\"skills\""));
        assert_eq!(keys.check(Access::Admin, Some("Bearer boss")), Ok(()));
        assert!(keys.check(Access::Admin, Some("Bearer new")).is_err());
        for empty in [None, Some(""), Some("  ")] {
            let keys = Keys::new(empty, Some("old"), None);
            for header in ["Bearer ", "Bearer old", "Bearer   ", "Bearer new"] {
                assert!(keys.check(Access::Writer, Some(header)).is_err(), "{empty:?} {header:?}");
                assert!(!keys.knows(Some(header)));
            }
        }
    }
}
