//! Runners: other machines of a person's own, each reached by a command line of the person's own (`ssh`).
//!
//! A runner is a name for a destination. Whoever names one decides where work, and what it is about, may go:
//! persons alone add and remove them. Reaching one, checking it and copying this program over is the
//! business of [`worker`].
//!
//! **Invariant:** nothing that stands in a record can be taken by a runner's client for an option, nor by a
//! shell for more than one word.

pub mod api;
pub mod dialogue;
mod errands;
mod grants;
pub mod kind;
mod kind_container;
mod kind_kubernetes;
mod kind_slurm;
#[cfg(test)]
mod kubernetes_tests;
#[cfg(test)]
mod tests;
pub mod worker;
mod worker_begin;
pub mod worker_bring;
mod worker_bundle;
mod worker_client;
mod worker_direct;
pub mod worker_errands;
mod worker_far;
pub mod worker_host;
mod worker_input;
pub mod worker_line;
pub mod worker_master;
mod worker_open;
pub mod worker_parcel;
pub mod worker_place;
mod worker_tidy;

pub use errands::{
    Errand, Order, Report, Work, due as errands_due, go_on, left_there, moment, report, set_off,
};
pub use grants::{Grant, lent};
pub use worker_far::{SUB_COMMAND, main};

use crate::api::{Problem, Reply};
use crate::core::time::{Time, rfc3339};
use crate::core::{CallId, Context, Document, Durability, Effect, State as All};
use crate::prices;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use svc_base::sorted::Gather;

/// Runners at most; a further one is refused.
pub const MAX_RUNNERS: usize = 100;
/// Characters of a name and of a label.
pub const MAX_NAME_CHARS: usize = 40;
/// Characters of the project in the name of a folder there.
pub const MAX_FOLDER_CHARS: usize = 30;
/// Labels of one runner.
pub const MAX_LABELS: usize = 10;
/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// How a runner is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// By the person's own `ssh`.
    Ssh,
    /// A container of `podman` or `docker`.
    Container,
    /// A job of Slurm.
    Slurm,
    /// A pod of Kubernetes.
    Kubernetes,
}

impl Kind {
    /// The words on the wire.
    pub const WORDS: [&str; 4] = ["ssh", "container", "slurm", "kubernetes"];

    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ssh => Self::WORDS[0],
            Self::Container => Self::WORDS[1],
            Self::Slurm => Self::WORDS[2],
            Self::Kubernetes => Self::WORDS[3],
        }
    }
}

/// What this program found out on a runner's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// Of this program.
    pub version: String,
    /// SHA-256 of this program, in hex, as that machine has it.
    pub program: String,
    /// The release of its kernel.
    pub kernel: String,
    /// Its processor, as `x86_64`.
    pub arch: String,
    /// The home folder of whoever logs in there, absolute.
    pub home: String,
    pub processors: u32,
    /// Megabytes in all, and what is available.
    pub memory: u64,
    pub available: u64,
    /// Why its kernel gives no rooms; `None` where it does.
    pub no_room: Option<String>,
    /// What its git calls itself; `None` where there is none.
    pub git: Option<String>,
}

/// What the last check came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    #[serde(with = "rfc3339")]
    pub at: Time,
    /// Milliseconds from the call to the answer, without copying.
    pub took_ms: u64,
    /// Whether this program had to be copied over.
    pub copied: bool,
    pub facts: Option<Facts>,
    /// Why there are no facts.
    pub error: Option<String>,
}

/// One runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Runner {
    /// Unique.
    pub name: String,
    pub kind: Kind,
    /// What its client or engine is told, as [`kind::Engine::fault`] allows it.
    pub destination: String,
    pub labels: Vec<String>,
    /// The folder of this project's work there, see [`dialogue`].
    #[serde(default)]
    pub folder: String,
    /// What of the vault its agents get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    pub added_by: String,
    #[serde(with = "rfc3339")]
    pub added_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
}

/// All of them, by name.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    known: BTreeMap<String, Arc<Runner>>,
    /// What is still to be done there, the oldest first.
    errands: Vec<Arc<Errand>>,
    /// Whose trees are there.
    works: BTreeSet<Work>,
    /// Runners on which something is being done.
    under_way: BTreeSet<String>,
}

/// `.svc/state/runners.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    pub runners: Vec<Arc<Runner>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errands: Vec<Arc<Errand>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub works: Vec<Work>,
}

/// A wish of a person's.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    Add {
        name: String,
        kind: Kind,
        destination: String,
        labels: Vec<String>,
    },
    Remove(String),
    /// Let the agents of a provider there have its key, or that of an account.
    Grant {
        name: String,
        provider: String,
        account: Option<String>,
    },
    /// They get it no more.
    Revoke {
        name: String,
        provider: String,
    },
    /// Its machine was asked.
    Checked {
        name: String,
        took_ms: u64,
        copied: bool,
        found: Result<Box<Facts>, String>,
    },
}

impl State {
    /// The runner of this name.
    ///
    /// Errors: 404.
    pub fn find(&self, name: &str) -> Result<&Arc<Runner>, Problem> {
        self.known.get(name).ok_or_else(|| Problem::not_found(self.unknown(name)))
    }

    /// That there is no such runner, and which there are.
    pub fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.known.keys().map(String::as_str).collect();
        match names.as_slice() {
            [] => format!(
                "there is no runner {name:?}, nor any other; svc runner add NAME ssh USER@HOST adds one"
            ),
            names => format!("there is no runner {name:?}; there are {}", names.join(", ")),
        }
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Runner>> {
        self.known.values()
    }

    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        Stored {
            version: STORED_VERSION,
            runners: self.known.values().map(Arc::clone).collect(),
            errands: self.errands.clone(),
            works: self.works.iter().cloned().collect(),
        }
    }

    /// What an earlier daemon has left.
    pub fn restore(stored: Stored) -> Self {
        let entry = |runner: Arc<Runner>| (runner.name.clone(), runner);
        Self {
            known: stored.runners.into_iter().map(entry).gather(),
            errands: stored.errands,
            works: stored.works.into_iter().gather(),
            under_way: BTreeSet::new(),
        }
    }
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| match command {
        Command::Add { name, kind, destination, labels } => {
            let (added_by, added_at) = (cx.actor.to_string(), cx.now);
            let folder = folder(all, cx);
            add(
                all,
                cx,
                Runner {
                    name,
                    kind,
                    destination,
                    labels,
                    folder,
                    grants: Vec::new(),
                    added_by,
                    added_at,
                    checked: None,
                },
            )
        }
        Command::Remove(name) => remove(all, cx, &name),
        Command::Grant { name, provider, account } => grants::grant(all, cx, &name, provider, account),
        Command::Revoke { name, provider } => grants::revoke(all, cx, &name, &provider),
        Command::Checked { name, took_ms, copied, found } => {
            let (facts, error) = match found {
                Ok(facts) => (Some(*facts), None),
                Err(error) => (None, Some(error)),
            };
            checked(all, cx, &name, Checked { at: cx.now, took_ms, copied, facts, error })
        }
    });
    cx.answer(call, result);
}

/// A name for a folder that no other project has there: what is random tells it from others of that name.
fn folder(all: &All, cx: &mut Context) -> String {
    let name = all.project.dir.file_name().unwrap_or_default().to_string_lossy();
    // A pod's name has no more than 63 characters with what is put around this.
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(MAX_FOLDER_CHARS).collect();
    format!("p{name}-{:016x}", cx.random())
}

fn add(all: &mut All, cx: &mut Context, runner: Runner) -> Result<Reply, Problem> {
    if let Some(known) = all.runners.known.get(&runner.name) {
        let text = format!(
            "there is a runner {} ({} {}); remove it first, or choose another name",
            known.name,
            known.kind.word(),
            known.destination
        );
        return Err(Problem::new(409, "runner_exists", text));
    }
    if all.runners.known.len() >= MAX_RUNNERS {
        let text = format!("{MAX_RUNNERS} runners are known and that is the limit; remove one first");
        return Err(Problem::new(409, "too_many_runners", text));
    }
    let told = shown(all, &runner);
    Arc::make_mut(&mut all.runners).known.insert(runner.name.clone(), Arc::new(runner));
    cx.audit("runner.add", &told);
    cx.push(Effect::Put(Document::Runners, Durability::BeforeReply));
    Ok(Reply::json(201, &told))
}

fn remove(all: &mut All, cx: &mut Context, name: &str) -> Result<Reply, Problem> {
    all.runners.find(name)?;
    let users = all.agents.live().filter(|agent| agent.runner.as_deref() == Some(name));
    let users: Vec<&str> = users.map(|agent| agent.name.as_str()).collect();
    if !users.is_empty() {
        let text = format!(
            "{} work on runner {name}; end them first: svc kill {}",
            users.join(", "),
            users.join(" ")
        );
        return Err(Problem::new(409, "runner_in_use", text));
    }
    let runners = Arc::make_mut(&mut all.runners);
    runners.known.remove(name);
    runners.errands.retain(|errand| errand.runner != name);
    runners.works.retain(|work| work.runner != name);
    cx.audit("runner.remove", &json!({"name": name}));
    cx.push(Effect::Put(Document::Runners, Durability::BeforeReply));
    Ok(Reply::ok(&json!({"ok": true, "name": name, "left": null})))
}

fn checked(all: &mut All, cx: &mut Context, name: &str, checked: Checked) -> Result<Reply, Problem> {
    // It may have been removed meanwhile.
    let mut runner = Runner::clone(all.runners.find(name)?);
    if checked.copied {
        let program = checked.facts.as_ref().map(|facts| &facts.program);
        cx.audit("runner.copy", &json!({"name": name, "program": program}));
    }
    let is_reached = checked.error.is_none();
    runner.checked = Some(checked);
    if runner.folder.is_empty() {
        // Of before agents worked there.
        runner.folder = folder(all, cx);
    }
    let reply = kept(all, cx, runner);
    if is_reached {
        set_off(all, cx, name);
    }
    Ok(reply)
}

/// Keeps a record that has changed; 200 with it.
fn kept(all: &mut All, cx: &mut Context, runner: Runner) -> Reply {
    let told = shown(all, &runner);
    Arc::make_mut(&mut all.runners).known.insert(runner.name.clone(), Arc::new(runner));
    cx.push(Effect::Put(Document::Runners, Durability::BeforeReply));
    Reply::ok(&told)
}

/// As callers see it, with its agents: how many live, of how many of these nothing is heard, and what all
/// that worked there last have cost.
fn shown(all: &All, runner: &Runner) -> Value {
    let Runner { name, kind, destination, labels, folder: _, grants, added_by, added_at, checked } = runner;
    let there = || all.agents.iter().filter(|agent| agent.runner.as_ref() == Some(name));
    let live = || there().filter(|agent| agent.status.is_live());
    let (unpriced, cost) = there().fold((0_u64, 0.0), |(unpriced, cost), agent| {
        (unpriced.saturating_add(agent.unpriced_tokens), cost + agent.cost_usd)
    });
    json!({
        "name": name, "kind": kind.word(), "destination": destination, "labels": labels,
        "grants": grants.iter().map(Grant::shown).collect::<Vec<_>>(),
        "addedBy": added_by, "addedAt": added_at.to_string(), "checked": checked,
        "agents": live().count(),
        "unreachable": live().filter(|agent| agent.status_reason.code() == "unreachable").count(),
        "costUsd": prices::known(cost, unpriced),
    })
}

/// `GET /api/runners`.
pub fn list(all: &All) -> Value {
    json!({"runners": all.runners.iter().map(|one| shown(all, one)).collect::<Vec<_>>(), "max": MAX_RUNNERS})
}
