//! Phones: browsers on other devices that a person has paired by a code, and that look at what waits, answer
//! questions and decide approvals; nothing else.
//!
//! A phone calls at a listener of its own, by TLS; `assembly::phone_service` says which routes there are for
//! it. What proves it is in two halves, a cookie and a key that its own page keeps, because browsers send a
//! cookie to every port of a machine.
//!
//! **Invariant:** of what proves a phone only a digest is kept; one that is revoked proves nothing any more.
//! **Invariant:** the core takes from a phone nothing but decisions and where it is told itself, and from one
//! that is not paired nothing.

pub mod api;
mod page;
pub mod push;
#[cfg(test)]
mod push_tests;
mod store;
#[cfg(test)]
mod tests;
pub mod worker;
pub mod worker_certificate;
pub mod worker_codes;
pub mod worker_door;
mod worker_encrypt;
pub mod worker_push;
mod worker_vapid;

pub use push::{Order, clock_set, due, overheard};
pub use store::{STORED_VERSION, Stored, restore};

use crate::api::{Problem, Reply};
use crate::approvals::Action;
use crate::core::ids::PhoneId;
use crate::core::time::{Time, rfc3339};
use crate::core::{self, CallId, Context, Document, Durability, Effect, State as All};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Phones at most; a further one is refused.
pub const MAX_PHONES: usize = 16;
/// Characters of a name.
pub const MAX_NAME_CHARS: usize = 40;
/// How one is called that was given no name; the next one `phone-2`.
const NAME: &str = "phone";

/// What a phone may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// See agents, and what waits for a person.
    Look,
    /// Answer what agents ask in words.
    Answer,
    /// Say yes or no to what agents may not do alone.
    Approve,
}

impl Right {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Look, Self::Answer, Self::Approve];
    /// Their words, in the same order.
    pub const WORDS: [&str; 3] = ["look", "answer", "approve"];

    /// The right that deciding this takes.
    pub fn to_decide(action: &Action) -> Self {
        if matches!(action, Action::Question { .. }) { Self::Answer } else { Self::Approve }
    }
}

/// A paired phone.
#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Phone {
    pub id: PhoneId,
    /// Unique.
    pub name: String,
    pub rights: Vec<Right>,
    /// The digest of both halves of what proves it.
    pub proof: String,
    #[serde(with = "rfc3339")]
    pub paired_at: Time,
    /// Where it wants to be told of what waits, while its page is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<push::Subscription>,
}

impl Phone {
    /// Whether it may.
    pub fn may(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }

    /// The record as REST shows it.
    pub fn shown(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "rights": self.rights, "pairedAt": self.paired_at.to_string(),
            "push": self.push.as_ref().map(push::Subscription::shown),
        })
    }
}

/// All phones.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    phones: BTreeMap<PhoneId, Arc<Phone>>,
    /// Where phones call: an address of this machine and a port.
    listen: Option<String>,
}

impl State {
    /// By id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Phone>> {
        self.phones.values()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.phones.is_empty()
    }

    /// The phone of this id.
    pub fn get(&self, id: PhoneId) -> Option<&Arc<Phone>> {
        self.phones.get(&id)
    }

    /// Where phones call, once a person has said so.
    pub fn listen(&self) -> Option<SocketAddr> {
        self.listen.as_ref()?.parse().ok()
    }

    /// The phone of this id or exact name.
    ///
    /// Errors: 404.
    pub fn find(&self, word: &str) -> Result<&Arc<Phone>, Problem> {
        let by_id = word.parse().ok().and_then(|id| self.phones.get(&id));
        by_id.or_else(|| self.iter().find(|phone| phone.name == word)).ok_or_else(|| {
            Problem::not_found(format!("no phone has the id or name {word:?}; 'svc phones' lists them"))
        })
    }

    fn free_name(&self, wanted: Option<String>) -> String {
        let is_free = |name: &String| self.iter().all(|phone| phone.name != *name);
        let stem = wanted.unwrap_or_else(|| NAME.to_owned());
        if is_free(&stem) {
            return stem;
        }
        // One more than there are phones is enough.
        let numbered = (2..=MAX_PHONES + 2).map(|n| format!("{stem}-{n}"));
        numbered.into_iter().find(is_free).unwrap_or(stem)
    }
}

/// What a code gives to whoever shows it.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Grant {
    /// What the person calls the phone; a name is chosen where there is none.
    pub name: Option<String>,
    pub rights: Vec<Right>,
}

/// A wish about phones. Targets are ids or exact names.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// A code is made for this, and phones call at this address of this machine.
    Invite(String, Grant),
    /// Whoever shows what has this digest is a phone.
    Pair(PhoneId, Grant, String),
    Revoke(String),
    /// The phone wants to be told of what waits.
    Subscribe(PhoneId, Box<push::Address>),
    Unsubscribe(PhoneId),
}

/// A fact from the threads that serve phones.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Report {
    /// Somebody has shown a wrong code while there was one.
    WrongCode { from: String, tries: u32, is_void: bool },
    /// What came of telling a phone.
    Tried(push::Tried),
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| match command {
        Command::Invite(listen, grant) => Ok(invite(all, cx, listen, &grant)),
        Command::Pair(id, grant, proof) => pair(all, cx, id, grant, proof),
        Command::Revoke(word) => revoke(all, cx, &word),
        Command::Subscribe(id, address) => push::subscribe(all, cx, id, *address),
        Command::Unsubscribe(id) => push::unsubscribe(all, cx, id),
    });
    cx.answer(call, result);
}

/// Handles a report.
pub fn report(all: &mut All, cx: &mut Context, report: Report) {
    match report {
        Report::WrongCode { from, tries, is_void } => {
            cx.audit("phone.wrong-code", &json!({"from": from, "tries": tries, "void": is_void}));
        }
        Report::Tried(tried) => push::report(all, cx, tried),
    }
}

/// Whether a phone of this name may wish this now: it may have been revoked since it has asked.
///
/// Errors: 401 `phone_not_paired`, 403 `phone_may_not`.
pub fn may_wish(all: &All, name: &str, command: &core::Command) -> Result<(), Problem> {
    let phone = all.phones.iter().find(|phone| phone.name == name).ok_or_else(not_paired)?;
    let id = match command {
        core::Command::Approvals(crate::approvals::Command::Decide { id, .. }) => id,
        // Where it is told itself.
        core::Command::Phones(Command::Subscribe(id, _) | Command::Unsubscribe(id)) if *id == phone.id => {
            return Ok(());
        }
        _ => return Err(may_not(name)),
    };
    let right = all.approvals.find(id).map_or(Right::Approve, |approval| Right::to_decide(&approval.action));
    if phone.may(right) { Ok(()) } else { Err(may_not(name)) }
}

/// What a phone may not do is a person's, at the machine.
pub fn may_not(name: &str) -> Problem {
    let text = format!(
        "{name} is a phone and may not do this; a person does it at the machine, with svc or the console"
    );
    Problem::new(403, "phone_may_not", text)
}

/// Whoever is no paired phone is told how to become one.
pub fn not_paired() -> Problem {
    Problem::new(
        401,
        "phone_not_paired",
        "this is no paired phone; 'svc pair' at the machine makes a code for it",
    )
}

fn save(cx: &mut Context) {
    cx.push(Effect::Put(Document::Phones, Durability::BeforeReply));
}

fn invite(all: &mut All, cx: &mut Context, listen: String, grant: &Grant) -> Reply {
    cx.audit("phone.invite", &json!({"listen": listen, "rights": grant.rights}));
    Arc::make_mut(&mut all.phones).listen = Some(listen);
    save(cx);
    Reply::no_content()
}

fn pair(all: &mut All, cx: &mut Context, id: PhoneId, grant: Grant, proof: String) -> Result<Reply, Problem> {
    if all.phones.phones.len() >= MAX_PHONES {
        let text = format!("there are {MAX_PHONES} phones and that is the limit; revoke one first");
        return Err(Problem::new(409, "too_many_phones", text));
    }
    if all.phones.phones.contains_key(&id) {
        return Err(Problem::new(409, "phone_exists", "there is such a phone; pair again"));
    }
    let phones = Arc::make_mut(&mut all.phones);
    let name = phones.free_name(grant.name);
    let phone = Phone { id, name, rights: grant.rights, proof, paired_at: cx.now, push: None };
    let shown = phone.shown();
    cx.audit("phone.pair", &json!({"phoneId": id, "name": phone.name, "rights": phone.rights}));
    phones.phones.insert(id, Arc::new(phone));
    save(cx);
    Ok(Reply::json(201, &shown))
}

fn revoke(all: &mut All, cx: &mut Context, word: &str) -> Result<Reply, Problem> {
    let phone = Arc::clone(all.phones.find(word)?);
    Arc::make_mut(&mut all.phones).phones.remove(&phone.id);
    push::forget(all, cx, phone.id, phone.push.is_some());
    cx.audit("phone.revoke", &json!({"phoneId": phone.id, "name": phone.name}));
    save(cx);
    Ok(Reply::ok(&json!({"ok": true, "id": phone.id, "name": phone.name})))
}
