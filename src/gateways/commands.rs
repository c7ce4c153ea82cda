//! The commands that people give in chats: what is one, who may give it, what it comes to.
//!
//! All of it is pure: a line of text and the state give a [`Plan`]; a thread carries it out through the
//! same door as REST ([`super::worker`]).

use super::answers;
use super::message::Text;
use super::record::{CommandPermission, Gateway};
use super::targets::{self, Found, Want};
use crate::agents::{self, Agent, Deliver};
use crate::api::Problem;
use crate::approvals::{self, Decision};
use crate::core::ids::LineageId;
use crate::core::time::Time;
use crate::core::{Command, State as All};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use svc_base::sorted::Gather;

/// A command, as the help lists it.
pub struct Described {
    /// Without the slash.
    pub name: &'static str,
    pub arguments: &'static str,
    pub summary: &'static str,
    /// Whether a gateway with the permission `read-only` has it.
    pub looks_only: bool,
}

const fn look(name: &'static str, summary: &'static str) -> Described {
    Described { name, arguments: "", summary, looks_only: true }
}

const fn act(name: &'static str, arguments: &'static str, summary: &'static str) -> Described {
    Described { name, arguments, summary, looks_only: false }
}

/// Whether a command (its words begin with `/`) changes nothing; what is no command changes nothing either.
pub fn looks_only(text: &str) -> bool {
    let name = text.trim_start_matches('/').split_whitespace().next().unwrap_or_default();
    ALL.iter().find(|known| known.name == name).is_none_or(|known| known.looks_only)
}

/// All commands, in the order of the help.
pub const ALL: [Described; 17] = [
    look("status", "how the daemon and its agents are"),
    look("agents", "list agents"),
    look("teams", "list teams"),
    look("schedules", "list schedules"),
    look("help", "list commands"),
    act("spawn", "<role> [name=.. provider=.. model=.. team=.. scope=..] [task]", "start an agent"),
    act("kill", "<target>", "end an agent"),
    act("rotate", "<target>", "replace an agent by a fresh one"),
    act("approve", "[id] [reason]", "approve what an agent asks"),
    act("reject", "[id] [reason]", "reject it"),
    act("instruct", "<target> <message>", "say something to an agent or a team's lead"),
    act("query", "<target> <question>", "ask without disturbing"),
    act("log", "<target> [lines]", "what an agent did last"),
    act("recall", "<words>", "what agents said, did and found out"),
    act("plan", "<description>", "have a planner design a team"),
    act("brief", "", "what happened lately"),
    act("tokens", "", "what was used"),
];

/// Lines of a log shown unasked, and at most.
const LOG_LINES: (u64, u64) = (12, 50);

/// What a command comes to.
#[derive(Debug)]
pub enum Plan {
    /// This is the answer.
    Say(Text),
    /// A person has to say which; each choice is a whole command.
    Choose(Text, Vec<(String, String)>),
    /// An earlier question is answered: by its number in the chat's last question, or in the question named.
    Pick(Option<u32>, usize),
    /// The core is to do this; the answer is made of what became of it.
    Do(Box<Command>),
    /// The last lines of a log are to be read.
    Log(String, LineageId, u64),
    /// All that is known is to be asked for these words.
    Recall(String),
}

/// The command in a message as `/name rest`; `None` for talk that is not for the bot. `bot` is our own name.
/// `addressed`: the message is for us alone, so that a command needs no slash.
pub fn normalise(text: &str, bot: &str, addressed: bool) -> Option<String> {
    let text = text.trim();
    let slashed =
        text.strip_prefix(['/', '!']).filter(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
    if let Some(rest) = slashed {
        let (name, arguments) = split_word(rest);
        let (name, whose) = name.split_once('@').unwrap_or((name, ""));
        let ours = whose.is_empty() || bot.is_empty() || whose.eq_ignore_ascii_case(bot);
        return ours.then(|| join(&name.to_ascii_lowercase(), arguments));
    }
    if !addressed || text.is_empty() {
        return None;
    }
    if text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(format!("/pick {text}"));
    }
    let (name, arguments) = split_word(text);
    let name = name.to_ascii_lowercase();
    let known = ALL.iter().any(|command| command.name == name);
    Some(if known { join(&name, arguments) } else { "/help".into() })
}

fn join(name: &str, arguments: &str) -> String {
    if arguments.is_empty() { format!("/{name}") } else { format!("/{name} {arguments}") }
}

/// The first word, or what stands in quotation marks, and the rest.
fn split_target(text: &str) -> (&str, &str) {
    let text = text.trim();
    for (open, close) in [('"', '"'), ('\'', '\''), ('“', '”')] {
        if let Some((inside, rest)) = text.strip_prefix(open).and_then(|rest| rest.split_once(close)) {
            return (inside.trim(), rest.trim());
        }
    }
    split_word(text)
}

fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    match text.find(char::is_whitespace) {
        Some(at) => (&text[..at], text[at..].trim()),
        None => (text, ""),
    }
}

/// Whether this asks for the help. Telegram begins every talk with a bot by `/start`.
pub fn is_help(text: &str) -> bool {
    matches!(split_word(text.trim_start_matches('/')).0, "help" | "start")
}

/// What a command of this gateway comes to. `text` is as [`normalise`] gives it.
pub fn plan(all: &All, gateway: &Gateway, now: Time, text: &str) -> Plan {
    let (name, arguments) = split_word(text.trim_start_matches('/'));
    if name == "pick" {
        return pick(arguments);
    }
    let name = if is_help(text) { "help" } else { name };
    let Some(command) = ALL.iter().find(|command| command.name == name) else {
        return Plan::Say(
            Text::from("there is no command ").code(format!("/{name}")).plain("; /help lists them"),
        );
    };
    if gateway.command_permission == CommandPermission::ReadOnly && !command.looks_only {
        let text = Text::from("this gateway is read-only: ").code(format!("/{name}"));
        return Plan::Say(text.plain(" needs the permission full"));
    }
    let result = match command.name {
        "status" => Ok(Plan::Say(answers::status(all, now))),
        "agents" => Ok(Plan::Say(answers::agents(all, now))),
        "teams" => Ok(Plan::Say(answers::teams(all))),
        "schedules" => Ok(Plan::Say(super::sources::schedules(all))),
        "spawn" => spawn(arguments),
        "kill" => kill(all, arguments),
        "rotate" => rotate(all, arguments),
        "approve" => decide(all, Decision::Approve, arguments),
        "reject" => decide(all, Decision::Reject, arguments),
        "instruct" => instruct(all, arguments),
        "query" => query(all, arguments),
        "log" => log(all, arguments),
        "recall" if !arguments.is_empty() => Ok(Plan::Recall(arguments.to_owned())),
        "recall" => Err(Refused::Usage),
        "plan" => planner(arguments),
        "brief" => Ok(Plan::Say(answers::brief(all, now))),
        "tokens" => Ok(Plan::Say(super::sources::tokens(all))),
        _ => Ok(Plan::Say(answers::help(gateway))),
    };
    result.unwrap_or_else(|refused| match refused {
        Refused::Words(words) => Plan::Say(words),
        Refused::Usage => Plan::Say(answers::usage(command)),
        Refused::Choice(question, choices) => Plan::Choose(question, choices),
    })
}

/// Why there is nothing to do yet.
enum Refused {
    Words(Text),
    Usage,
    Choice(Text, Vec<(String, String)>),
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Words(problem.error.into())
    }
}

fn pick(arguments: &str) -> Plan {
    let (first, second) = split_word(arguments);
    let number = |text: &str| text.parse::<usize>().ok();
    match (u32::from_str_radix(first, 16).ok(), number(second), number(first)) {
        (Some(question), Some(number), _) => Plan::Pick(Some(question), number),
        (_, None, Some(number)) if second.is_empty() => Plan::Pick(None, number),
        _ => Plan::Say("which one? answer with its number".into()),
    }
}

/// Whom `target` means. `again` makes the whole command for another target.
fn find(all: &All, target: &str, want: Want, again: impl Fn(&str) -> String) -> Result<Arc<Agent>, Refused> {
    if target.is_empty() {
        return Err(Refused::Usage);
    }
    match targets::resolve(all, target, want) {
        Found::One(agent) => Ok(agent),
        Found::Nobody(why) => Err(Refused::Words(why.into())),
        Found::Many(candidates) => {
            let question = Text::from("which one is ").code(target).plain("?");
            let choices = candidates.into_iter().map(|one| (one.label, again(&one.id))).collect();
            Err(Refused::Choice(question, choices))
        }
    }
}

fn agents_command(command: agents::Command) -> Result<Plan, Refused> {
    Ok(Plan::Do(Box::new(Command::Agents(command))))
}

fn kill(all: &All, arguments: &str) -> Result<Plan, Refused> {
    let (target, _) = split_target(arguments);
    let agent = find(all, target, Want::Member, |id| format!("/kill {id}"))?;
    if !agent.status.is_live() {
        return Err(Refused::Words(Text::new().bold(agent.name.clone()).plain(" has ended already")));
    }
    agents_command(agents::Command::Delete(agent.id.to_string()))
}

fn rotate(all: &All, arguments: &str) -> Result<Plan, Refused> {
    let (target, _) = split_target(arguments);
    let agent = find(all, target, Want::Member, |id| format!("/rotate {id}"))?;
    agents_command(agents::Command::Rotate(agent.id.to_string()))
}

/// Whom the command `name` is to say something to, by its id, and what.
fn addressed(all: &All, name: &str, arguments: &str) -> Result<(String, String), Refused> {
    let (target, words) = split_target(arguments);
    if words.is_empty() {
        return Err(Refused::Usage);
    }
    let agent = find(all, target, Want::Lead, |id| format!("/{name} {id} {words}"))?;
    Ok((agent.id.to_string(), words.to_owned()))
}

fn instruct(all: &All, arguments: &str) -> Result<Plan, Refused> {
    let (target, message) = addressed(all, "instruct", arguments)?;
    agents_command(agents::Command::Instruct { target, message, deliver: Deliver::Auto })
}

fn query(all: &All, arguments: &str) -> Result<Plan, Refused> {
    let (target, question) = addressed(all, "query", arguments)?;
    agents_command(agents::Command::Query { target, question })
}

fn log(all: &All, arguments: &str) -> Result<Plan, Refused> {
    let (target, lines) = split_target(arguments);
    let agent = find(all, target, Want::Lead, |id| format!("/log {id} {lines}"))?;
    let (usual, most) = LOG_LINES;
    let count = lines.parse().unwrap_or(usual).clamp(1, most);
    Ok(Plan::Log(agent.name.clone(), agent.lineage_id, count))
}

fn decide(all: &All, decision: Decision, arguments: &str) -> Result<Plan, Refused> {
    let (first, rest) = split_word(arguments);
    let word = if decision == Decision::Approve { "approve" } else { "reject" };
    let named = first.trim_start_matches("apr-").to_lowercase();
    let pending: Vec<_> = all.approvals.pending().collect();
    let begins =
        |approval: &&Arc<approvals::Approval>| approval.id.to_string()["apr-".len()..].starts_with(&named);
    // Words such as "added" are hexadecimal, too: without a digit only the beginning of what waits is an id.
    let is_id = !named.is_empty()
        && (first.starts_with("apr-")
            || (named.len() >= 4
                && named.bytes().all(|b| b.is_ascii_hexdigit())
                && (named.bytes().any(|b| b.is_ascii_digit()) || pending.iter().any(begins))));
    let (id, reason) = if is_id {
        let wanted = format!("apr-{named}");
        let mut begun = pending.iter().filter(|approval| approval.id.to_string().starts_with(&wanted));
        let id = match (begun.next(), begun.next()) {
            (Some(one), None) => one.id.to_string(),
            // The door says what is wrong with it: unknown, or resolved already.
            _ => wanted,
        };
        (id, rest)
    } else {
        match pending.as_slice() {
            [] => return Err(Refused::Words("no approval is pending".into())),
            [one] => (one.id.to_string(), arguments),
            several => {
                let choice = |approval: &&Arc<approvals::Approval>| {
                    let label = format!("{}: {}", approval.agent_name, approval.action.description());
                    (label, format!("/{word} {} {arguments}", approval.id).trim_end().to_owned())
                };
                let choices = several.iter().map(choice).collect();
                return Err(Refused::Choice(format!("which one do you {word}?").into(), choices));
            }
        }
    };
    let reason = Some(reason.trim()).filter(|text| !text.is_empty());
    let reason = reason.map(|text| super::message::cut(text, approvals::api::MAX_REASON_CHARS));
    let command = Command::Approvals(approvals::Command::Decide { id, decision, reason });
    Ok(Plan::Do(Box::new(command)))
}

/// The options of `/spawn`, as `name=value` before the task.
const SPAWN_OPTIONS: [&str; 6] = ["name", "provider", "model", "team", "scope", "effort"];

fn spawn(arguments: &str) -> Result<Plan, Refused> {
    let (role, mut rest) = split_word(arguments);
    if role.is_empty() {
        return Err(Refused::Usage);
    }
    let mut body: Map<String, Value> = [("role".to_owned(), json!(role))].into_iter().gather();
    loop {
        let (word, after) = split_word(rest);
        let Some((name, value)) = word.split_once('=') else { break };
        if !SPAWN_OPTIONS.contains(&name) || value.is_empty() {
            break;
        }
        match name {
            "team" => body.insert("teamId".into(), json!(value)),
            "scope" => body.insert("scope".into(), json!(value.split(',').collect::<Vec<_>>())),
            other => body.insert(other.to_owned(), json!(value)),
        };
        rest = after;
    }
    body.insert("prompt".into(), json!(rest));
    spawned(&body)
}

fn spawned(body: &Map<String, Value>) -> Result<Plan, Refused> {
    let request = agents::api::spawn_body(body)?;
    agents_command(agents::Command::Spawn(Box::new(request)))
}

fn planner(arguments: &str) -> Result<Plan, Refused> {
    if arguments.is_empty() {
        return Err(Refused::Usage);
    }
    let words = [("role".into(), json!("planner")), ("prompt".into(), json!(arguments))];
    spawned(&words.into_iter().gather())
}
