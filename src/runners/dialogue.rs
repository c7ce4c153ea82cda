//! What the two ends of a line say to each other before the keeper's own protocol begins, and where things
//! stand on a runner's machine.
//!
//! ```text
//! ~/.local/state/svc/runners/<place>/repo.git              the project's commits, as far as they were sent
//!                                    <work>/tree           what an agent works on, over all its lives
//!                                    <work>/run-<run>      of its keeper, as .svc/run/<agent> is here
//! ```

use crate::providers::environment::Extra;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use svc_base::ids::AgentId;

use super::kind::Spot;

/// The first words of the end that calls, after their length and that of what follows them: the first frames
/// for the keeper.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    pub place: String,
    pub work: String,
    pub run: String,
    /// What is to be begun; `None` where it was.
    pub opening: Option<Opening>,
    /// What comes for an agent that moves there; nothing is begun then.
    #[serde(default)]
    pub parcel: Option<Parcel>,
    /// Variables whose values are keys that were granted: for the program, and for no file.
    #[serde(default)]
    pub lent: Vec<(String, String)>,
}

/// What goes along with an agent that moves, beside its branch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parcel {
    pub session: Option<Record>,
}

/// The record of a session with a program; its bytes follow once the tree is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub session: String,
    /// Of its file.
    pub name: String,
    pub bytes: u64,
}

/// What a keeper there is to start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Opening {
    /// The provider's id.
    pub provider: String,
    /// Its program; `None` for this one.
    pub program: Option<String>,
    pub args: Vec<String>,
    /// Variables of the launch, and those that svc adds.
    pub env: Vec<(String, String)>,
    pub own_env: Vec<(String, String)>,
    /// What a person has said about variables.
    pub extra: Extra,
    /// Below the tree.
    pub folder: String,
    pub stdin: bool,
    pub agent: AgentId,
    /// What the keeper is to be shown by whoever comes.
    pub token: String,
    pub stop_grace_ms: u64,
    pub orphan_ms: u64,
    pub nice: u32,
    pub ceiling: u64,
    /// The branch that the tree is on, and the commit that it begins with.
    pub branch: String,
    pub tip: String,
}

/// What the other end answers, until it is `There`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Says {
    /// From here on the keeper itself speaks.
    There,
    /// A bundle of the branch is to be sent, after its length, without what these commits have.
    Wants { have: Vec<String> },
    /// The keeper is gone, and what it kept.
    Gone { why: String },
    /// It cannot be.
    Refused { why: String },
}

/// What `svc __line` is to do, in the folder of its run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub spot: Spot,
    /// Its place did not stand yet.
    pub waits: bool,
    /// The socket of a connection that stands already.
    pub socket: Option<PathBuf>,
    /// A socket here that leads to one there through that connection.
    #[serde(default)]
    pub direct: Option<PathBuf>,
    /// SHA-256 of this program, which is to be there.
    pub program: String,
    /// Where its branch is.
    pub project: PathBuf,
    /// Before what is told to the daemon among the program's complaints; nobody else knows it.
    pub mark: String,
    pub place: String,
    pub work: String,
    pub run: String,
    pub opening: Opening,
    /// See [`Call::parcel`].
    #[serde(default)]
    pub parcel: Option<Parcel>,
}

impl Plan {
    /// The words of a call, with the first frames for the keeper behind them.
    ///
    /// Errors: they are too long.
    pub fn call(&self, begins: bool, lent: Vec<(String, String)>, frames: &[u8]) -> Result<Vec<u8>, String> {
        let Self { place, work, run, opening, parcel, .. } = self;
        let (opening, parcel) = (begins.then(|| opening.clone()), parcel.clone());
        let call = Call { place: place.clone(), work: work.clone(), run: run.clone(), opening, parcel, lent };
        let words = serde_json::to_vec(&call).map_err(|error| error.to_string())?;
        let mut all = Vec::with_capacity(words.len() + frames.len() + 2 * size_of::<u32>());
        for part in [words.as_slice(), frames] {
            let length = u32::try_from(part.len()).ok().filter(|length| *length <= PART_BYTES_MAX);
            let length = length.ok_or("its first words are too long to be sent")?;
            all.extend(length.to_le_bytes());
        }
        all.extend(words);
        all.extend(frames);
        Ok(all)
    }
}

/// Bytes of either part of a call: words for a program are in it.
pub const PART_BYTES_MAX: u32 = 16 << 20;
/// How the names of variables begin in which `svc __line` gets granted keys. No process that it starts gets
/// them.
pub const LENT: &str = "SVC_LENT_";
/// The file of a plan.
pub const PLAN: &str = "line.json";
/// Beside it, the record of a session that is to be sent.
pub const SESSION: &str = "session";
/// Behind the mark: the line is cut, and why.
pub const CUT: &str = "cut ";
/// Behind the mark: it stands again.
pub const BACK: &str = "back";
/// Behind the mark: nothing of it runs there any more.
pub const OVER: &str = "over";

/// The folder of a project's work.
pub fn place_folder(home: &Path, place: &str) -> PathBuf {
    home.join(".local/state/svc/runners").join(place)
}

/// The tree of an agent.
pub fn tree(home: &Path, place: &str, work: &str) -> PathBuf {
    place_folder(home, place).join(work).join("tree")
}

/// Whether this is a name and no path.
pub fn is_name(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with(['.', '-'])
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Whether this is a branch of an agent.
pub fn is_branch(word: &str) -> bool {
    word.strip_prefix("svc/").is_some_and(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        assert!(is_name("shop-1f") && is_name("a.b_c"));
        for other in ["", ".", "..", "../x", "a/b", "-o", "a b", "a\n"] {
            assert!(!is_name(other), "{other:?}");
        }
    }
}
