//! Skills: what the marketplace offers, what is installed here, and which agents use it.
//!
//! A skill is a markdown file of instructions. It is installed once per project into
//! `.svc/skills/<id>/SKILL.md` and linked into the working directory of every live agent that has it
//! attached (`worker_links`).
//!
//! **Invariant:** a record names the SHA-256 of the file that was saved before it; a file that has another
//! digest is attached to nobody.
//! **Invariant:** an id is a slug ([`check_id`]) before it becomes part of a path or of an address.
//! **Invariant:** whatever the marketplace says is cut to the lengths of its own rules before it is kept.

pub mod api;
pub use svc_base::bundled;
#[cfg(test)]
mod tests;
pub mod worker;
pub mod worker_client;
pub mod worker_files;
pub mod worker_links;

use crate::api::{Problem, Reply, Validator};
use crate::core::Notice;
use crate::core::time::{Time, rfc3339};
use crate::core::{CallId, Context, Document, Durability, Effect, State as All};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use svc_base::sorted::Gather;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;
/// Skills installed in one project at most.
pub const MAX_INSTALLED: usize = 200;
/// Bytes of a skill's content, as the marketplace's own rule has it.
pub const MAX_CONTENT_BYTES: usize = 51_200;
/// Bytes of an id: the marketplace cuts slugs at 64, and may add a number.
pub const MAX_ID_BYTES: usize = 80;
/// Characters of a name or author.
const MAX_NAME_CHARS: usize = 100;
/// Characters of a description.
const MAX_DESCRIPTION_CHARS: usize = 500;
/// Characters of a version label, a category, a tag or a role.
const MAX_WORD_CHARS: usize = 32;
/// Tags or roles kept.
const MAX_WORDS: usize = 20;

/// Where a skill's text came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    Live,
    Bundled,
}

impl Origin {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Bundled => "bundled",
        }
    }
}

/// One installed skill, as it is stored and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Installed {
    pub id: String,
    /// For people.
    pub name: String,
    /// What it is for.
    pub description: String,
    pub author: String,
    /// One of the marketplace's categories.
    pub category: String,
    pub tags: Vec<String>,
    pub roles: Vec<String>,
    /// A label.
    pub version: String,
    /// Where its text came from.
    pub source: Origin,
    /// `sha256:` and 64 hexadecimal digits: of the file.
    pub digest: String,
    /// Size of the file.
    pub content_bytes: u64,
    /// When it was installed first.
    #[serde(with = "rfc3339")]
    pub installed_at: Time,
    /// When its text changed last.
    #[serde(with = "rfc3339")]
    pub updated_at: Time,
}

impl Installed {
    /// A record of `content` with what the registry tells about it, cut to its lengths.
    pub fn new(id: &str, listed: &Value, content: &str, source: Origin, now: Time) -> Self {
        let text = |name: &str, chars: usize| clipped(listed[name].as_str().unwrap_or_default(), chars);
        let words = |name: &str| -> Vec<String> {
            let list = listed[name].as_array().map(Vec::as_slice).unwrap_or_default();
            let words = list.iter().filter_map(Value::as_str).take(MAX_WORDS);
            words.map(|word| clipped(word, MAX_WORD_CHARS)).collect()
        };
        let name = text("name", MAX_NAME_CHARS);
        Self {
            id: id.to_owned(),
            name: if name.is_empty() { id.to_owned() } else { name },
            description: text("description", MAX_DESCRIPTION_CHARS),
            author: text("author", MAX_NAME_CHARS),
            category: text("category", MAX_WORD_CHARS),
            tags: words("tags"),
            roles: words("roles"),
            version: text("version", MAX_WORD_CHARS),
            source,
            digest: digest(content.as_bytes()),
            content_bytes: content.len() as u64,
            installed_at: now,
            updated_at: now,
        }
    }
}

/// One line of at most so many characters, without control characters.
fn clipped(text: &str, chars: usize) -> String {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).collect();
    let line: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    line.join(" ").chars().take(chars).collect()
}

/// The digest of a skill's file: `sha256:` and 64 hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    format!("sha256:{}", svc_base::hex::encode(&Sha256::digest(bytes)))
}

/// Checks an id: `a-z 0-9` in words joined by single hyphens, at most [`MAX_ID_BYTES`]. No such text leads
/// anywhere else when it is put into a path or an address.
pub fn check_id(id: &str) -> Result<(), Problem> {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if id.len() <= MAX_ID_BYTES && id.split('-').all(is_word) {
        return Ok(());
    }
    let message = format!("id must be words of a-z 0-9 joined by -, at most {MAX_ID_BYTES} characters");
    Err(Problem::invalid("id", message))
}

/// The installed skills.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    installed: BTreeMap<String, Installed>,
}

/// `.svc/state/skills.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    pub installed: Vec<Installed>,
}

/// What an agent has attached, for the threads that link it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub id: String,
    /// What its file must be.
    pub digest: String,
}

/// A wish about skills. The files are in place already, or set aside.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// This skill's file was saved.
    Keep(Box<Installed>),
    /// This skill's file was set aside.
    Forget(String),
    /// The marketplace took a rating and says what came of it.
    Rated {
        id: String,
        /// 1 to 5.
        rating: u64,
        answer: Value,
    },
}

impl State {
    /// All installed skills, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Installed> {
        self.installed.values()
    }

    /// The installed skill of this id.
    pub fn get(&self, id: &str) -> Option<&Installed> {
        self.installed.get(id)
    }

    /// Refuses skills that are not installed, for a new agent.
    pub fn check_installed(&self, skills: &[String], validator: &mut Validator) {
        for skill in skills {
            validator.check(self.get(skill).is_some(), "skills", || {
                format!("skills names {skill:?}, which is not installed")
            });
        }
    }

    /// What is to be linked for an agent with these skills.
    pub fn attached(&self, skills: &[String]) -> Vec<Attached> {
        let found = skills.iter().filter_map(|id| self.get(id));
        found.map(|skill| Attached { id: skill.id.clone(), digest: skill.digest.clone() }).collect()
    }

    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        Stored { version: STORED_VERSION, installed: self.installed.values().cloned().collect() }
    }

    /// What an earlier daemon has left. A record whose id is none is passed over: ids become paths.
    pub fn restore(stored: Stored) -> Self {
        let kept = stored.installed.into_iter().filter(|skill| check_id(&skill.id).is_ok());
        Self { installed: kept.map(|skill| (skill.id.clone(), skill)).gather() }
    }
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| match command {
        Command::Keep(skill) => keep(all, cx, *skill),
        Command::Forget(id) => forget(all, cx, &id),
        Command::Rated { id, rating, answer } => {
            cx.audit("skill.rate", &json!({"skillId": id, "rating": rating}));
            Ok(Reply::ok(&answer))
        }
    });
    cx.answer(call, result);
}

fn keep(all: &mut All, cx: &mut Context, mut skill: Installed) -> Result<Reply, Problem> {
    let before = all.market.get(&skill.id).cloned();
    if before.is_none() && all.market.installed.len() >= MAX_INSTALLED {
        let text = format!("{MAX_INSTALLED} skills are installed and that is the limit; remove some first");
        return Err(Problem::new(409, "too_many_skills", text));
    }
    let is_new = before.is_none();
    if let Some(before) = &before {
        skill.installed_at = before.installed_at;
        if before.digest == skill.digest {
            skill.updated_at = before.updated_at;
        }
    }
    let updated = before.is_some_and(|before| before.digest != skill.digest);
    let event = if is_new { "skill.install" } else { "skill.update" };
    cx.audit(
        event,
        &json!({"skillId": skill.id, "version": skill.version, "digest": skill.digest, "source": skill.source}),
    );
    cx.notice(Notice::SkillInstalled { skill_id: skill.id.clone(), updated });
    let mut body = json!(skill);
    body["updated"] = json!(updated);
    Arc::make_mut(&mut all.market).installed.insert(skill.id.clone(), skill);
    cx.push(Effect::Put(Document::Skills, Durability::BeforeReply));
    Ok(Reply::json(if is_new { 201 } else { 200 }, &body))
}

fn forget(all: &mut All, cx: &mut Context, id: &str) -> Result<Reply, Problem> {
    in_use(all, id)?;
    if Arc::make_mut(&mut all.market).installed.remove(id).is_none() {
        return Err(not_installed(id));
    }
    cx.audit("skill.remove", &json!({"skillId": id}));
    cx.notice(Notice::SkillRemoved { skill_id: id.to_owned() });
    cx.push(Effect::Put(Document::Skills, Durability::BeforeReply));
    Ok(Reply::ok(&json!({"ok": true, "id": id})))
}

/// Refuses while live agents have the skill attached.
///
/// Errors: 409 `skill_in_use`, which names them.
pub fn in_use(all: &All, id: &str) -> Result<(), Problem> {
    let users = users_of(all, id);
    if users.is_empty() {
        return Ok(());
    }
    let text = format!("skill {id} is attached to {}; end them first", users.join(", "));
    Err(Problem::new(409, "skill_in_use", text).with("agents", json!(users)))
}

/// 404: it is not installed.
pub fn not_installed(id: &str) -> Problem {
    Problem::not_found(format!("skill {id} is not installed; GET /api/skills/installed lists those that are"))
}

/// Names of the live agents that have a skill attached.
pub fn users_of(all: &All, id: &str) -> Vec<String> {
    let using = all.agents.live().filter(|agent| agent.skills.iter().any(|skill| skill == id));
    using.map(|agent| agent.name.clone()).collect()
}

/// What an agent is told about its skills: one line each.
pub fn briefing_lines(all: &All, skills: &[String]) -> Vec<String> {
    let line = |id: &String| match all.market.get(id) {
        Some(skill) => {
            format!("- {} (.agents/skills/{id}/SKILL.md): {}", skill.name, skill.description)
        }
        None => format!("- {id} was attached and is not installed any more"),
    };
    skills.iter().map(line).collect()
}
