//! Writes that no tool call names: a command has changed somebody's file.
//!
//! ```text
//! a command begins or ends ──▶ look which files of owners have changed since ──▶ each change rests SETTLE,
//!         ▲       │            (a thread, by the kernel's time of change)          │
//!         └─PACE──┘ while one runs                                                 ▼
//!                                  whose command was under way at that time? conflict, question, or nothing
//! ```
//! A change rests for a moment because some programs tell a call only when it is over. One that a tool call
//! names, or that was made through this daemon, is explained and not looked at further.
//!
//! **Invariant:** a change while no command of another agent was under way is nobody's: a person may edit.
//! **Invariant:** an agent is asked about a write only when it alone can have made it and its command names
//! the file or its folder; else the conflict says that it is not known who wrote.

use super::{State, Trespass, judged, unknown_writer, within};
use crate::agents::Agent;
use crate::approvals::Certainty;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{Context, Effect, State as All, Timer};
use crate::providers::Activity;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use svc_base::bounded;
use svc_base::folders::{DECISIONS_FILE, MAP_FILE};
use svc_base::scopes::{self, owns};
use svc_base::sorted::{self, Gather};

/// Commands remembered, those under way among them; the oldest goes first.
const MAX_COMMANDS: usize = 256;
/// Writes of tools and of this daemon remembered; the oldest goes first.
const MAX_EXPLAINED: usize = 256;
/// Changes that wait to be judged; further ones are counted in the daemon's log.
const MAX_PENDING: usize = 1_024;
/// Files told of one agent at once; further ones are counted in the audit log.
const MAX_TOLD: usize = 20;
/// Characters of a command in which files are looked for.
const COMMAND_CHARS: usize = 8_000;
/// Folders looked at; with more the whole project is.
const MAX_ROOTS: usize = 64;
/// A change is judged so long after it was found.
const SETTLE: Duration = Duration::from_secs(1);
/// A call may have begun this long before its beginning is heard, but not before its agent's last sign of
/// life.
const HEARD_LATE: Duration = Duration::from_millis(500);
/// How coarse the kernel's times of change are.
const GRAIN: Duration = Duration::from_millis(20);
/// How far the times of a change and of the tool call that explains it may lie apart.
const TOOL_SLACK: Duration = Duration::from_secs(2);
/// Ended commands are remembered so long.
const MEMORY: Duration = Duration::from_secs(60);
/// While a command runs, files are looked at this often.
const PACE: Duration = Duration::from_secs(2);
/// Between two looks.
pub(super) const PAUSE: Duration = Duration::from_millis(300);
/// A look may take this part of the time between two of them.
pub(super) const LOOK_SHARE: u32 = 10;
/// A call that is told when it is over may have begun this long ago.
const TOLD_LATE: Duration = Duration::from_secs(300);

/// Words in the names of tools that write no files. A helper of an agent reports what it does itself.
const READING: [&str; 15] = [
    "read", "grep", "glob", "list", "search", "fetch", "todo", "web", "view", "task", "agent", "think",
    "plan", "question", "skill",
];

/// What the thread is to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Folders or files, relative to the project; the empty one is the project.
    pub roots: Vec<String>,
    /// Changes from this time on are wanted.
    pub since: Time,
    /// Files whose time of change is asked for one by one.
    pub files: Vec<String>,
}

/// What the thread has seen.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Looked {
    pub began: Time,
    pub ended: Time,
    /// Files that were changed, newest first.
    pub changes: Vec<Change>,
    /// Changes that are not told.
    pub more: usize,
    /// Whether there were too many files to see them all.
    pub is_cut: bool,
    /// The files asked for one by one: when they were changed, `None` when they are gone.
    pub files: Vec<(String, Option<Time>)>,
}

/// What was found; `None` when nobody could look.
pub type Report = Option<Looked>;

/// A file that was changed between these two times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, svc_base::recorded::Recorded)]
pub struct Change {
    /// Relative to the project.
    pub path: String,
    /// Not before.
    pub from: Time,
    /// Not after.
    pub to: Time,
    /// Whether it is not there any more.
    pub gone: bool,
}

/// A command of an agent, or another call that may write what it does not name.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
struct Ran {
    agent: AgentId,
    lineage: LineageId,
    call: Arc<str>,
    text: Arc<str>,
    from: Time,
    /// `None` while it runs.
    to: Option<Time>,
    /// Its call ends before it does.
    detached: bool,
}

/// What is remembered of commands and changes.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Commands {
    ran: VecDeque<Ran>,
    explained: VecDeque<(String, Time)>,
    /// Changes, and when they were found.
    pending: VecDeque<(Time, Change)>,
    /// The changes that the last look found.
    found: BTreeSet<Change>,
    /// Whether the thread is at it.
    looking: bool,
    /// Whether something has happened since the last look was ordered.
    wanted: bool,
    /// When the last look began.
    looked_at: Time,
    /// When the next one may begin.
    next_look: Time,
}

fn edit(all: &mut All) -> &mut Commands {
    Arc::make_mut(&mut Arc::make_mut(&mut all.ownership).commands)
}

/// Takes in what an agent does.
pub fn heard(all: &mut All, cx: &Context, id: AgentId, activities: &[Activity]) {
    let tells = |activity: &Activity| match activity {
        Activity::ToolStarted { .. } => command_of(activity).is_some(),
        Activity::ToolEnded { .. } | Activity::TurnEnded(_) => true,
        _ => false,
    };
    if !activities.iter().any(tells) {
        return;
    }
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let mut is_news = false;
    for (at, activity) in activities.iter().enumerate() {
        is_news |= match activity {
            Activity::ToolStarted { id: call, input, .. } => match command_of(activity) {
                Some(text) if may_reach(&all.project.dir, &agent, &text) => {
                    let ends =
                        |later: &Activity| matches!(later, Activity::ToolEnded { id, .. } if id == call);
                    let is_late = activities[at..].iter().any(ends);
                    begun(edit(all), &agent, call, text, is_detached(input), from(&agent, cx.now, is_late));
                    true
                }
                _ => false,
            },
            Activity::ToolEnded { id: call, .. } => {
                let is_it = |ran: &Ran| ran.agent == id && *ran.call == **call && !ran.detached;
                ended(all, cx.now, is_it)
            }
            Activity::TurnEnded(_) => ended(all, cx.now, |ran| ran.agent == id && !ran.detached),
            _ => false,
        };
    }
    if is_news {
        look_at(all, cx.now);
    }
}

/// Whether a command may write into the project's own files. One of an agent with a worktree stays there
/// unless it names the project or goes up.
fn may_reach(project: &Path, agent: &Agent, text: &str) -> bool {
    let Some(worktree) = &agent.worktree else { return true };
    let own = project.join(worktree);
    let left = text.replace(&*own.to_string_lossy(), "");
    left.contains("..") || left.contains(&*project.to_string_lossy())
}

/// When a call began whose beginning is heard `now`; the agent's record has not taken it in yet.
fn from(agent: &Agent, now: Time, is_late: bool) -> Time {
    let earliest = now - if is_late { TOLD_LATE } else { HEARD_LATE };
    agent.last_activity.max(earliest).min(now)
}

fn begun(commands: &mut Commands, agent: &Agent, call: &str, text: String, detached: bool, from: Time) {
    let (agent, lineage) = (agent.id, agent.lineage_id);
    let ran = Ran { agent, lineage, call: call.into(), text: text.into(), from, to: None, detached };
    bounded::push(&mut commands.ran, ran, MAX_COMMANDS);
}

/// Ends those that run and fit; whether there was one.
fn ended(all: &mut All, now: Time, fits: impl Fn(&Ran) -> bool) -> bool {
    let runs = |ran: &Ran| ran.to.is_none() && fits(ran);
    if !all.ownership.commands.ran.iter().any(runs) {
        return false;
    }
    for ran in edit(all).ran.iter_mut().filter(|ran| runs(ran)) {
        ran.to = Some(now);
    }
    true
}

/// The process of an agent is gone, with everything that it had started.
pub fn agent_ended(all: &mut All, now: Time, id: AgentId) {
    if ended(all, now, |ran| ran.agent == id) {
        look_at(all, now);
    }
}

/// A file was written by a tool call that names it, or through this daemon.
pub fn explained(all: &mut All, now: Time, file: &str) {
    bounded::push(&mut edit(all).explained, (file.to_owned(), now), MAX_EXPLAINED);
}

/// Has files looked at soon.
pub fn look_at(all: &mut All, at: Time) {
    edit(all).wanted = true;
    wake(all, at);
}

fn wake(all: &mut All, at: Time) {
    if all.timers.get(Timer::Writes).is_none_or(|due| due > at) {
        Arc::make_mut(&mut all.timers).set(Timer::Writes, at);
    }
}

/// The time has come to look, or to judge what has rested.
pub fn due(all: &mut All, cx: &mut Context) {
    judge_pending(all, cx);
    let now = cx.now;
    forget(edit(all), now);
    let files = super::undo::files(all);
    let roots = roots(all);
    let commands = edit(all);
    let nothing = roots.is_empty() && files.is_empty();
    if nothing {
        commands.wanted = false;
    } else if commands.wanted && !commands.looking && now >= commands.next_look {
        let first = commands.ran.iter().map(|ran| ran.from).min().unwrap_or(now);
        // What was seen by the last look is known.
        let since = first.max(commands.looked_at);
        (commands.wanted, commands.looking) = (false, true);
        cx.push(Effect::Ownership(Order { roots, since: since - GRAIN, files }));
    }
    rearm(all, now, nothing);
}

/// Sets the next time: what rests is judged, what is wanted is looked at, a running command is watched.
fn rearm(all: &mut All, now: Time, nothing: bool) {
    let commands = &all.ownership.commands;
    let judged = commands.pending.front().map(|(found, _)| *found + SETTLE);
    let wanted = (commands.wanted && !commands.looking).then_some(commands.next_look);
    let runs = !nothing && commands.ran.iter().any(|ran| ran.to.is_none());
    let watched = (runs && !commands.looking && !commands.wanted).then(|| now + PACE);
    if runs && watched.is_some() {
        edit(all).wanted = true;
    }
    if let Some(next) = [judged, wanted, watched].into_iter().flatten().min() {
        wake(all, next.max(now + Duration::from_millis(1)));
    }
}

/// The thread has looked, or could not.
pub fn looked(all: &mut All, cx: &mut Context, looked: Report) {
    let now = cx.now;
    let commands = edit(all);
    commands.looking = false;
    let Some(looked) = looked else {
        commands.wanted = true;
        return wake(all, now + PACE);
    };
    commands.looked_at = looked.began;
    let took = looked.ended.since(looked.began);
    commands.next_look = looked.ended + PAUSE.max(took.saturating_mul(LOOK_SHARE));
    let found: BTreeSet<Change> = looked.changes.into_iter().gather();
    let news: Vec<Change> = found.difference(&commands.found).cloned().collect();
    commands.found = found;
    let room = MAX_PENDING.saturating_sub(commands.pending.len());
    let lost = looked.more + news.len().saturating_sub(room);
    commands.pending.extend(news.into_iter().take(room).map(|change| (now, change)));
    if lost > 0 || looked.is_cut {
        let text = format!("{lost} changed files are not attributed to an agent: there are too many at once");
        cx.push(Effect::Warn(text));
    }
    super::undo::looked(all, cx, &looked.files);
    wake(all, now);
}

/// Forgets what explains nothing any more.
fn forget(commands: &mut Commands, now: Time) {
    commands.ran.retain(|ran| ran.to.is_none_or(|to| now.since(to) < MEMORY));
    while commands.explained.front().is_some_and(|(_, at)| now.since(*at) >= MEMORY) {
        commands.explained.pop_front();
    }
}

/// Agents whose files others may not change unasked.
fn owners(all: &All) -> impl Iterator<Item = &Arc<Agent>> {
    all.agents.live().filter(|agent| agent.worktree.is_none() && !agent.scope.is_empty())
}

/// Where a command of one agent may have changed files of another.
fn roots(all: &All) -> Vec<String> {
    let ran = &all.ownership.commands.ran;
    let others = owners(all).filter(|owner| ran.iter().any(|ran| ran.lineage != owner.lineage_id));
    folders(others)
}

/// What an agent might change of others with its first command: it is to be known what is there before that
/// one begins. Empty where no other agent owns anything.
pub fn baseline(all: &All, id: AgentId) -> Vec<String> {
    let Some(agent) = all.agents.get(id) else { return Vec::new() };
    let has_others = owners(all).any(|owner| owner.lineage_id != agent.lineage_id);
    if has_others { folders(owners(all)) } else { Vec::new() }
}

fn folders<'a>(owners: impl Iterator<Item = &'a Arc<Agent>>) -> Vec<String> {
    let mut roots: Vec<String> = owners.flat_map(|owner| scopes::folders(&owner.scope)).collect();
    sorted::up(&mut roots);
    // A folder comes before what lies in it.
    roots.dedup_by(|later, earlier| earlier.is_empty() || scopes::is_below(later, earlier));
    if roots.len() > MAX_ROOTS { vec![String::new()] } else { roots }
}

fn judge_pending(all: &mut All, cx: &mut Context) {
    let mut told: BTreeMap<LineageId, usize> = BTreeMap::new();
    while let Some((found, _)) = all.ownership.commands.pending.front()
        && *found + SETTLE <= cx.now
    {
        let Some((_, change)) = edit(all).pending.pop_front() else { break };
        let blame = blame(all, &change);
        let count = blame.first().map(|agent| told.entry(agent.lineage_id).or_default());
        let is_within = count.is_none_or(|count| {
            *count += 1;
            *count <= MAX_TOLD
        });
        if is_within && !blame.is_empty() {
            accuse(all, cx, &blame, &change);
        }
    }
    for (lineage, count) in told.into_iter().filter(|(_, count)| *count > MAX_TOLD) {
        let details = serde_json::json!({"lineageId": lineage, "files": count - MAX_TOLD});
        cx.audit("ownership.more", &details);
    }
}

fn accuse(all: &mut All, cx: &mut Context, blame: &[Arc<Agent>], change: &Change) {
    let path = &change.path;
    let commands = Arc::clone(&all.ownership.commands);
    let names = |agent: &Agent| {
        let its = commands.ran.iter().filter(|ran| ran.lineage == agent.lineage_id && overlaps(ran, change));
        its.into_iter().any(|ran| names_file(&ran.text, path, &agent.working_dir))
    };
    match blame {
        [agent] if names(agent) => {
            let owner = owners(all).find(|owner| owns(&owner.scope, path));
            let owner = owner.map(|owner| (owner.id, owner.name.clone()));
            judged(all, cx, agent, &Trespass { file: path.clone(), owner }, Certainty::Likely);
        }
        several => unknown_writer(all, cx, path, several),
    }
}

fn overlaps(ran: &Ran, change: &Change) -> bool {
    ran.from <= change.to + GRAIN && ran.to.is_none_or(|to| change.from <= to + GRAIN)
}

/// Who may have made this change of another's file, if anybody: those whose commands name the file, else all
/// who had one under way.
fn blame(all: &All, change: &Change) -> Vec<Arc<Agent>> {
    let path = &change.path;
    let is_ours = *path == MAP_FILE || *path == DECISIONS_FILE || path.starts_with(".svc/");
    let commands = &all.ownership.commands;
    let explains = |(file, at): &(String, Time)| {
        file == path && change.from <= *at + TOOL_SLACK && *at <= change.to + TOOL_SLACK
    };
    if is_ours || commands.explained.iter().any(explains) || open_write(&all.ownership, all, path) {
        return Vec::new();
    }
    let Some(owner) = owners(all).find(|owner| owns(&owner.scope, path)) else { return Vec::new() };
    let ran: Vec<&Ran> = commands.ran.iter().filter(|ran| overlaps(ran, change)).collect();
    let agent = |ran: &Ran| all.agents.by_lineage(ran.lineage).cloned();
    let named: Vec<&Ran> = ran
        .iter()
        .copied()
        .filter(|ran| agent(ran).is_some_and(|agent| names_file(&ran.text, path, &agent.working_dir)))
        .collect();
    let suspects = if named.is_empty() { ran } else { named };
    let mut agents: Vec<Arc<Agent>> = Vec::new();
    for agent in suspects.into_iter().rev().filter_map(agent) {
        let may = agent.worktree.is_none() && owns(&agent.scope, path);
        if may || agent.lineage_id == owner.lineage_id {
            // It may, and that is the simplest explanation.
            return Vec::new();
        }
        if agents.iter().all(|known| known.lineage_id != agent.lineage_id) {
            agents.push(agent);
        }
    }
    agents
}

/// Whether a tool call under way names this file.
fn open_write(state: &State, all: &All, path: &str) -> bool {
    state.open.iter().any(|(id, calls)| {
        let dir = all.agents.get(*id).map_or("", |agent| agent.working_dir.as_str());
        calls.values().any(|file| within(&all.project.dir, dir, file).as_deref() == Some(path))
    })
}

/// Whether a command runs on after its call has ended.
fn is_detached(input: &Value) -> bool {
    input.get("run_in_background").and_then(Value::as_bool).unwrap_or(false)
}

/// What a call does that may write files which it does not name: a command line, or the arguments of a tool
/// that nobody here knows. `None` for tools that only read.
fn command_of(activity: &Activity) -> Option<String> {
    let Activity::ToolStarted { name, input, path: None, .. } = activity else { return None };
    let command =
        ["command", "cmd", "commands", "script"].iter().find_map(|field| match input.get(field)? {
            Value::String(text) => Some(text.clone()),
            Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
            _ => None,
        });
    let lower = name.to_lowercase();
    let reads = READING.iter().any(|word| lower.contains(word));
    let text = command.or_else(|| (!reads).then(|| input.to_string()))?;
    Some(text.chars().take(COMMAND_CHARS).collect())
}

/// Whether a command names a file or the folder that it lies in, from the project or from where it runs.
fn names_file(command: &str, path: &str, working_dir: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let from_there = path.strip_prefix(working_dir).and_then(|rest| rest.strip_prefix('/'));
    let mut folders: Vec<&str> = Vec::new();
    let mut above = folder;
    while !above.is_empty() {
        folders.push(above);
        above = above.rsplit_once('/').map_or("", |(above, _)| above);
    }
    let last = folder.rsplit('/').next().filter(|last| !last.is_empty());
    let wanted = [Some(path), Some(name), from_there, last].into_iter().flatten().chain(folders);
    wanted.into_iter().any(|word| has_word(command, word))
}

/// Whether `word` stands in `text` and is no part of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(|c| joins(c) || c == '.') && !after.is_some_and(joins)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_all_providers_are_known_and_readers_are_none() {
        let call = |name: &str, input: Value, path: Option<&str>| {
            let (id, path) = ("1".to_owned(), path.map(ToOwned::to_owned));
            command_of(&Activity::ToolStarted { id, name: name.into(), input, path, writes: false })
        };
        for (name, input) in [
            ("Bash", serde_json::json!({"command": "touch a.rs", "description": "x"})),
            ("run_commands", serde_json::json!({"commands": ["cd api", "touch a.rs"]})),
            ("shell", serde_json::json!({"command": ["sh", "-c", "touch a.rs"]})),
            ("execute", serde_json::json!({"title": "touch a.rs"})),
            ("mcp__fs__move", serde_json::json!({"from": "b.rs", "to": "a.rs"})),
        ] {
            let text = call(name, input, None).expect(name);
            assert!(has_word(&text, "a.rs"), "{name}: {text}");
        }
        for name in ["Grep", "WebFetch", "TodoWrite", "list_directory", "Task"] {
            assert_eq!(call(name, serde_json::json!({"pattern": "a.rs"}), None), None, "{name}");
        }
        assert_eq!(call("Read", serde_json::json!({"file_path": "a.rs"}), Some("a.rs")), None);
    }

    #[test]
    fn a_worktrees_commands_reach_the_project_where_they_name_it_or_go_up() {
        let mut bench = crate::testing::Bench::new();
        let id = bench.agent("one");
        let mut agent = (**bench.state.agents.get(id).unwrap()).clone();
        let reaches = |agent: &Agent, text: &str| may_reach(Path::new("/p"), agent, text);
        assert!(reaches(&agent, "touch a"));
        agent.worktree = Some(".svc/worktrees/one".into());
        assert!(!reaches(&agent, "touch a && touch /p/.svc/worktrees/one/b"));
        assert!(reaches(&agent, "touch /p/api/a") && reaches(&agent, "cd ../../.. && touch api/a"));
    }

    #[test]
    fn a_command_names_a_file_by_path_name_or_folder() {
        for (command, dir) in [
            ("echo hi > api/shell.txt", ""),
            ("sed -i s/a/b/ ../api/shell.txt", "web"),
            ("cd api && echo hi > shell.txt", ""),
            ("rm -rf api", ""),
            ("perl -pi -e 's/a/b/' api/*.txt", ""),
            ("touch shell.txt", "api"),
        ] {
            assert!(names_file(command, "api/shell.txt", dir), "{command}");
        }
        for command in ["cargo test", "echo hi > web/shell.txt2", "ls apis myapi/ my-api", "make all"] {
            assert!(!names_file(command, "api/shell.txt", ""), "{command}");
        }
    }
}
