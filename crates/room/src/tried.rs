//! What the try of a room has come to, in the words of `svc __cage --try`.

use serde::{Deserialize, Serialize};

/// Why no room can be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// What stands in the way.
    pub cause: Cause,
    /// A sentence for people, without a capital and a period.
    pub reason: String,
}

/// What stands in the way of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// `AppArmor` gives user namespaces only to programs that a profile names.
    AppArmor,
    /// This user gets no user namespaces.
    UserNamespaces,
    /// Parts of `/proc` are covered, as in containers.
    Covered,
    /// Something else; the reason says what.
    Other,
}

impl Cause {
    /// What a person can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::AppArmor => {
                "load the AppArmor profile that is installed beside svc: see 'On Ubuntu' in docs/trust.md"
            }
            Self::UserNamespaces => {
                "allow user namespaces (kernel.unprivileged_userns_clone, user.max_user_namespaces); see \
                 'A room for each agent' in docs/trust.md"
            }
            Self::Covered => "run svc outside of the container, or let the container have an uncovered /proc",
            Self::Other => "see 'A room for each agent' in docs/trust.md",
        }
    }
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self { cause: Cause::Other, reason }
    }
}

/// The outcome of a try: one line of JSON on standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tried {
    /// `None` where rooms can be made.
    pub refusal: Option<Refusal>,
}

impl Tried {
    /// Reads what a try printed. One that told nothing was ended.
    pub fn read(output: &[u8]) -> Self {
        serde_json::from_slice(output).unwrap_or_else(|_| Self {
            refusal: Some("the try was ended before it told anything".to_owned().into()),
        })
    }

    /// The line for [`Tried::read`].
    #[cfg(target_os = "linux")]
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_tells_nothing_is_no_room() {
        assert_eq!(Tried::read(b"{\"refusal\":null}\n").refusal, None);
        let said = Tried::read(b"{\"refusal\":{\"cause\":\"appArmor\",\"reason\":\"no\"}}").refusal.unwrap();
        assert_eq!((said.cause, said.reason.as_str()), (Cause::AppArmor, "no"));
        for told in ["", "svc: what?", "{}x", "{\"refusal\":{\"cause\":\"new\",\"reason\":\"\"}}"] {
            assert_eq!(Tried::read(told.as_bytes()).refusal.unwrap().cause, Cause::Other, "{told}");
        }
    }
}
