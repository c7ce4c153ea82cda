//! Where everything lasts: one trait of coarse, atomic operations, and the stores that keep it.
//!
//! **Invariant:** an operation that returned `Ok` is durable and will be there after a kill; one that
//! returned `Err` has changed nothing, but for [`StoreError::OutcomeUnknown`], which says so. Each write
//! raises the store's generation; what changed after a generation can be asked for, so that a catalogue in
//! memory follows any number of writers.

#[cfg(test)]
pub mod contract;
pub mod flaws;
pub mod migrate;
mod partial;
pub mod postgres;
mod rows;
pub mod session;
mod sql;
pub mod sqlite;
mod writer;
mod writes;

use crate::authoring::Draft;
use crate::authoring::moves::Move;
use crate::authors::AuthorPatch;
use crate::installs;
use crate::limits::Elsewhere;
use crate::model::{Author, Skill};
pub use partial::Partial;
use session::Session;
use std::fmt;
use std::path::Path;
use svc_base::api::Problem;
use svc_base::time::Time;
use writer::Writer;

/// A client under a keyed hash: stored instead of its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientHash(pub [u8; 16]);

/// Why an operation did nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum StoreError {
    /// The wish itself is refused: 4xx.
    Refused(Box<Problem>),
    /// Too many writes wait.
    Overloaded,
    /// There is no room left, or the disk takes no more for another reason.
    Full(String),
    /// The database cannot be used at the moment, or a bug: the message is for the log.
    Unavailable(String),
    /// The connection was lost between the order to commit and its answer, and the database could not be
    /// asked afterwards: the change was made or not.
    OutcomeUnknown(String),
}

impl From<Problem> for StoreError {
    fn from(problem: Problem) -> Self {
        Self::Refused(Box::new(problem))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let (code, text, after) = match error {
            StoreError::Refused(problem) => return *problem,
            StoreError::Overloaded => ("writer_overloaded", "too many writes wait, try again", "1"),
            StoreError::Full(_) => {
                ("storage_full", "the storage takes no more at the moment, nothing was changed", "10")
            }
            StoreError::OutcomeUnknown(_) => {
                // Without `Retry-After`: who sends it again at once may do it twice.
                let text = "the database was lost while it kept the change: whether it was made is not known; \
                            look with GET before you send it again";
                return Problem::new(503, "outcome_unknown", text);
            }
            StoreError::Unavailable(_) => {
                ("storage_unavailable", "the storage cannot be used at the moment, nothing was changed", "5")
            }
        };
        Problem::new(503, code, text).with_header("Retry-After", after)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(problem) => write!(f, "{}", problem.error),
            Self::Overloaded => f.write_str("too many writes wait"),
            Self::Full(text) => write!(f, "the storage takes no more: {text}"),
            Self::Unavailable(text) => f.write_str(text),
            Self::OutcomeUnknown(text) => {
                write!(
                    f,
                    "whether the last changes were kept is not known, look before you repeat them: {text}"
                )
            }
        }
    }
}

impl std::error::Error for StoreError {}

/// What an operation gave, and the generation at which a catalogue shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written<T> {
    pub value: T,
    /// A catalogue of this generation or a later one includes it.
    pub generation: u64,
}

/// The outcome of an install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Installed {
    pub downloads: u64,
    /// Whether this install raised it.
    pub counted: bool,
}

/// A skill that comes from outside with an id and figures of its own: a seed or an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The record to be, `digest` and the like included.
    pub skill: Skill,
    /// Its markdown.
    pub content: String,
}

/// What changed after a generation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The generation up to which this tells.
    pub generation: u64,
    /// Skills made or changed.
    pub skills: Vec<Skill>,
    /// Authors made or changed.
    pub authors: Vec<Author>,
}

/// A durable store. All operations are atomic and may be called from many threads. What is written goes the
/// same way for every [`Database`]; only the reads are each one's own.
pub trait Store: Reads {
    /// Makes a skill, its author if new (else fills the author's empty fields), its content and first
    /// version. The id is the lowest free one for the name's slug.
    fn create(&self, draft: Draft, now: Time) -> Result<Written<Skill>, StoreError>;

    /// Edits a skill. Errors: 404, 403, 400.
    fn update(&self, id: &str, draft: Draft, now: Time) -> Result<Written<Skill>, StoreError>;

    /// Moves a skill. Errors: 404, 400, 409.
    fn transition(&self, id: &str, step: Move, now: Time) -> Result<Written<Skill>, StoreError>;

    /// Records a client's rating in place of its earlier one. Errors: 404, 410.
    fn rate(
        &self,
        id: &str,
        client: ClientHash,
        rating: u64,
        now: Time,
    ) -> Result<Written<Skill>, StoreError>;

    /// Counts an install once per window. Errors: 404, 410.
    fn install(&self, id: &str, client: ClientHash, now: Time) -> Result<Written<Installed>, StoreError>;

    /// Edits an author record and the copies that its skills carry. Errors: 404, 403.
    fn edit_author(&self, id: &str, patch: AuthorPatch, now: Time) -> Result<Written<Author>, StoreError>;

    /// Takes in seeds or an export: new ids as they come, known ids with their text only: counters and
    /// status stay, the operator's marks as long as text and author do. A vendor's skill is only changed by
    /// the vendor's own record, and another's only by another's: what does not fit is left alone.
    /// Gives how many records were made or changed.
    fn take_in(&self, incoming: Vec<Incoming>, now: Time) -> Result<Written<u64>, StoreError>;

    /// Forgets install windows and counted requests that have passed; how many windows.
    fn prune(&self, now: Time) -> Result<u64, StoreError>;
}

/// What a store is asked, answered from what is on disk.
pub trait Reads: Send + Sync {
    /// A content by its digest.
    fn content(&self, digest: &str) -> Result<Option<String>, StoreError>;

    /// The generation of the last write.
    fn generation(&self) -> Result<u64, StoreError>;

    /// What changed after a generation; 0 asks for everything.
    fn changes_since(&self, generation: u64) -> Result<Changes, StoreError>;

    /// Writes a whole, consistent copy to a new file.
    fn backup(&self, file: &Path) -> Result<(), StoreError>;

    /// Whether it can be read; and why the last write failed, if the storage was the reason.
    fn health(&self) -> Result<Option<String>, StoreError>;

    /// The key under which clients are hashed; the same for all instances on one database.
    fn client_key(&self) -> [u8; 32];

    /// Whether instances on this database share the limit of a client.
    fn shares_requests(&self) -> bool {
        false
    }

    /// Tells the other instances how many requests of these clients have passed here since it was last told,
    /// and learns what has passed there, in the order of the clients; nothing where each counts for itself.
    fn share_requests(&self, _told: &[(ClientHash, u32)]) -> Result<Vec<Elsewhere>, StoreError> {
        Ok(Vec::new())
    }

    /// Forgets what instances have told each other of requests outside of the window.
    fn forget_requests(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Transactions whose ledger entries do not add up to zero; none in a sound database.
    fn unbalanced_transactions(&self) -> Result<Vec<String>, StoreError>;

    /// What is damaged, a sentence each: the answers to [`flaws::QUESTIONS`], and what the database says of
    /// itself. None in a sound database.
    fn flaws(&self) -> Result<Vec<String>, StoreError>;
}

/// A database under a store: its reads, and the writer to which every write goes.
pub trait Database: Reads {
    /// The connection that writes.
    type Session: Session;

    /// The one writer of this process.
    fn writer(&self) -> &Writer<Self::Session>;
}

impl<D: Database> Store for D {
    fn create(&self, draft: Draft, now: Time) -> Result<Written<Skill>, StoreError> {
        self.writer().write(now, move |write| write.create(draft))
    }

    fn update(&self, id: &str, draft: Draft, now: Time) -> Result<Written<Skill>, StoreError> {
        let id = id.to_owned();
        self.writer().write(now, move |write| write.update(&id, &draft))
    }

    fn transition(&self, id: &str, step: Move, now: Time) -> Result<Written<Skill>, StoreError> {
        let id = id.to_owned();
        self.writer().write(now, move |write| write.transition(&id, &step))
    }

    fn rate(
        &self,
        id: &str,
        client: ClientHash,
        rating: u64,
        now: Time,
    ) -> Result<Written<Skill>, StoreError> {
        let id = id.to_owned();
        self.writer().write(now, move |write| write.rate(&id, client, rating))
    }

    fn install(&self, id: &str, client: ClientHash, now: Time) -> Result<Written<Installed>, StoreError> {
        let id = id.to_owned();
        self.writer().write(now, move |write| write.install(&id, client))
    }

    fn edit_author(&self, id: &str, patch: AuthorPatch, now: Time) -> Result<Written<Author>, StoreError> {
        let id = id.to_owned();
        self.writer().write(now, move |write| write.edit_author(&id, &patch))
    }

    fn take_in(&self, incoming: Vec<Incoming>, now: Time) -> Result<Written<u64>, StoreError> {
        self.writer().write(now, move |write| write.take_in(&incoming))
    }

    fn prune(&self, now: Time) -> Result<u64, StoreError> {
        self.forget_requests()?;
        let passed = Time(now.0.saturating_sub(installs::WINDOW_MS));
        Ok(self.writer().write(now, move |write| write.prune(passed))?.value)
    }
}

/// 404 for an id that does not exist.
pub fn no_such_skill(id: &str) -> Problem {
    Problem::not_found(format!("there is no skill {id:?}; GET /api/v1/skills lists them"))
}

/// 404 for an author that does not exist.
pub fn no_such_author(id: &str) -> Problem {
    Problem::not_found(format!("there is no author {id:?}"))
}
