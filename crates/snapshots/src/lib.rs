//! Snapshots of working folders, in a git object store of the daemon's own: what is there is kept byte for
//! byte, with its permissions and links, and can be put back.
//!
//! ```text
//! working folder ──walk, against what was seen last──▶ objects ──▶ commit ──▶ refs/svc/..
//!                ◀──plan on disk, whole files replaced── two snapshots compared
//! ```
//! No program runs here, and git's settings, filters, attributes and hooks have no part in it. The tree of a
//! commit holds `files`, the folder, and `meta`, what a tree cannot say (see `meta.rs`).
//!
//! **Invariant:** the repository, index, refs and settings of the user are neither read nor written, but for
//! the patterns of `.gitignore` and `info/exclude`.

mod diff;
mod index;
mod meta;
mod rules;
mod undo;
mod worker_restore;
mod worker_store;
mod worker_take;
mod worker_walk;

pub use diff::{Change, Entry, View, changes, tree_of};
pub use rules::NEVER;
pub use undo::{Span, Spans, plan, spans, taken_back};
pub use worker_restore::{Left, Plan, Step, apply, current, obstacle};
pub use worker_store::{Id, Packed, SETTINGS, Store, What};
pub use worker_take::{Place, Taken, take, view};
pub use worker_walk::{MAX_DEPTH, MAX_FILE_BYTES, MAX_NAMED};
