//! Importing repositories: which addresses are taken, and what is remembered of each import. Pure: git
//! runs in `worker_import.rs`.

use super::path::ProjectPath;
use crate::api::{Fields, MAX_TITLE_CHARS, Problem, Reply};
use crate::core::Notice;
use crate::core::ids::TeamId;
use crate::core::time::{Time, rfc3339};
use crate::core::{CallId, Context, Effect, State as All};
use crate::teams;
use serde::Serialize;
use serde_json::json;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Imports under way at once.
pub const MAX_RUNNING: usize = 2;
/// Imports remembered, the oldest that has ended going first.
pub const MAX_REMEMBERED: usize = 50;
const MAX_URL_CHARS: usize = 2_000;
/// Characters of a team's name; the rest of what a team's name may have is for a number behind it.
const MAX_TEAM_CHARS: usize = MAX_TITLE_CHARS - 10;

/// Names one import: 8 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, svc_base::recorded::Recorded)]
pub struct ImportId(pub u32);

impl fmt::Display for ImportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl Serialize for ImportId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What somebody wants imported.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Request {
    /// An https or ssh address.
    pub url: String,
    /// Where it goes; nothing is there yet.
    pub path: ProjectPath,
    /// The name of a team that is to work there once it is in its place.
    pub team: Option<String>,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Git works on it.
    Running,
    /// It is in its place.
    Completed,
    /// Nothing is left of it.
    Failed,
}

/// One import, as `GET /api/repos/imports` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Import {
    pub import_id: ImportId,
    /// Where it comes from.
    pub url: String,
    /// Where it goes, relative to the project's root.
    pub path: String,
    /// How far it is.
    pub status: Status,
    /// What git does, in its words, for example `Receiving objects`.
    pub phase: String,
    /// Of the phase, 0 to 100.
    pub percent: u8,
    /// When it was asked for.
    #[serde(with = "rfc3339")]
    pub started_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Settings and instructions for coding agents that came along: whoever starts an agent there should
    /// read them first.
    pub agent_settings: Vec<String>,
    /// How the team is to be called that is made at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team_name: Option<String>,
    /// The team that was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team_id: Option<TeamId>,
    /// Why no team was made although one was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team_error: Option<String>,
}

/// The imports, oldest first.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Imports(VecDeque<Import>);

impl Imports {
    /// Newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Import> {
        self.0.iter().rev()
    }

    fn running(&self) -> impl Iterator<Item = &Import> {
        self.0.iter().filter(|import| import.status == Status::Running)
    }
}

/// An order to the import threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub id: ImportId,
    /// What to fetch, and where to.
    pub request: Request,
}

/// What an import thread reports.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub enum Progress {
    /// Git is in this phase, so many percent of it.
    At(String, u8),
    /// It is in its place, with these settings for agents in it; or it failed.
    Ended(Result<Vec<String>, String>),
}

/// Reads `POST /api/repos/import`.
///
/// Errors: 400, with every fault.
pub fn parse(request: &crate::api::Request) -> Result<Request, Problem> {
    let body = request.object()?;
    let mut fields = Fields::new(&body);
    let url = fields.required_string("url").unwrap_or_default().to_owned();
    let mut name = None;
    if !url.is_empty() {
        match repository_name(&url) {
            Ok(found) => name = Some(found),
            Err(rule) => fields.validator.fail("url", format!("url {rule}")),
        }
    }
    let path = fields.string("path").filter(|path| !path.is_empty()).map(ToOwned::to_owned);
    let wants_team = fields.boolean("createTeam") == Some(true);
    let team = team_name(&mut fields);
    fields.validator.check(wants_team || team.is_none(), "teamName", || {
        "teamName is the name of the team that createTeam makes; set createTeam to true".to_owned()
    });
    fields.validator.finish()?;
    let path = ProjectPath::parse(&path.or(name).unwrap_or_default())?;
    if path.is_root() {
        return Err(Problem::bad_request("is_root", "path must name a new folder inside the project"));
    }
    path.check_writable()?;
    let of_folder = || path.split().1.chars().take(MAX_TEAM_CHARS).collect();
    let team = wants_team.then(|| team.unwrap_or_else(of_folder));
    Ok(Request { url, path, team })
}

fn team_name(fields: &mut Fields) -> Option<String> {
    let name = fields.string("teamName")?.trim().to_owned();
    let chars = name.chars().count();
    let fits = (1..=MAX_TEAM_CHARS).contains(&chars) && !name.chars().any(char::is_control);
    fields.validator.check(fits, "teamName", || {
        format!(
            "teamName must have 1 to {MAX_TEAM_CHARS} characters and no control characters, it has {chars}"
        )
    });
    Some(name)
}

/// The name of the repository that an https or ssh address names.
///
/// Errors: the rule it breaks, as the rest of a sentence.
pub fn repository_name(url: &str) -> Result<String, &'static str> {
    const ONLY: &str = "must be https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH";
    if url.chars().count() > MAX_URL_CHARS {
        return Err("must have at most 2000 characters");
    }
    if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("must not hold spaces or control characters");
    }
    let path = if let Some(rest) = url.strip_prefix("https://") {
        let (host, path) = rest.split_once('/').ok_or(ONLY)?;
        if host.contains('@') {
            return Err("must not carry a user name or token; let git's credential helper know it");
        }
        check_host(host)?;
        path
    } else if let Some(rest) = url.strip_prefix("ssh://") {
        let (authority, path) = rest.split_once('/').ok_or(ONLY)?;
        let (user, host) = authority.rsplit_once('@').unwrap_or(("git", authority));
        check_user(user)?;
        check_host(host)?;
        path
    } else {
        let (user, rest) = url.split_once('@').ok_or(ONLY)?;
        let (host, path) = rest.split_once(':').ok_or(ONLY)?;
        check_user(user)?;
        check_host(host)?;
        path
    };
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(".git").unwrap_or(name);
    let plain = name.chars().all(|c| c.is_alphanumeric() || "._-+".contains(c));
    if name.is_empty() || name.starts_with(['.', '-']) || !plain { Err(ONLY) } else { Ok(name.to_owned()) }
}

fn check_user(user: &str) -> Result<(), &'static str> {
    let plain = user.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if user.is_empty() || user.starts_with('-') || !plain {
        return Err("must have a plain user name without a password");
    }
    Ok(())
}

/// A host that starts with a dash would be an option to ssh.
fn check_host(host: &str) -> Result<(), &'static str> {
    let plain = host.chars().all(|c| c.is_ascii_alphanumeric() || ".-:[]".contains(c));
    if host.is_empty() || host.starts_with(['-', ':', '.']) || !plain {
        Err("must name a host")
    } else {
        Ok(())
    }
}

/// Begins an import.
pub fn begin(all: &mut All, cx: &mut Context, call: CallId, request: Request) {
    let state = Arc::make_mut(&mut all.workspace);
    let imports = Arc::make_mut(&mut state.imports);
    let same = imports.running().any(|import| import.path == request.path.as_str());
    if same {
        let text = format!("{:?} is being imported already", request.path.as_str());
        return cx.reply(call, Problem::new(409, "exists", text));
    }
    if imports.running().count() >= MAX_RUNNING {
        let text = format!("{MAX_RUNNING} imports are under way; wait for one to end");
        return cx.reply(call, Problem::new(429, "too_many_imports", text).with_header("Retry-After", "10"));
    }
    let id = ImportId(cx.fresh_id(|id| imports.0.iter().any(|import| import.import_id.0 == id)));
    let import = Import {
        import_id: id,
        url: request.url.clone(),
        path: request.path.as_str().to_owned(),
        status: Status::Running,
        phase: "starting".into(),
        percent: 0,
        started_at: cx.now,
        error: None,
        agent_settings: Vec::new(),
        team_name: request.team.clone(),
        team_id: None,
        team_error: None,
    };
    cx.reply(call, Reply::json(202, &import));
    cx.audit("repos.import", &json!({"importId": id, "url": import.url, "path": import.path}));
    imports.0.push_back(import);
    while imports.0.len() > MAX_REMEMBERED {
        let Some(ended) = imports.0.iter().position(|import| import.status != Status::Running) else { break };
        imports.0.remove(ended);
    }
    cx.push(Effect::Workspace(Order { id, request }));
}

/// Takes in how far an import is, and tells the clients.
pub fn progress(all: &mut All, cx: &mut Context, id: ImportId, progress: Progress) {
    let team = match &progress {
        Progress::Ended(Ok(_)) => team_for(all, cx, id),
        _ => None,
    };
    let state = Arc::make_mut(&mut all.workspace);
    let imports = Arc::make_mut(&mut state.imports);
    let Some(import) = imports.0.iter_mut().find(|import| import.import_id == id) else { return };
    match progress {
        Progress::At(phase, percent) => {
            import.phase = phase;
            import.percent = percent;
        }
        Progress::Ended(Ok(settings)) => {
            import.status = Status::Completed;
            import.phase = "done".into();
            import.percent = 100;
            import.agent_settings = settings;
            match team {
                Some(Ok(team)) => import.team_id = Some(team),
                Some(Err(problem)) => import.team_error = Some(problem.error),
                None => {}
            }
        }
        Progress::Ended(Err(error)) => {
            import.status = Status::Failed;
            import.error = Some(error);
        }
    }
    if import.status != Status::Running {
        let word = json!({
            "importId": id, "path": import.path, "status": import.status, "error": import.error,
            "teamId": import.team_id,
        });
        cx.audit("repos.imported", &word);
    }
    cx.notice(Notice::RepoImport(Box::new(import.clone())));
}

/// Makes the team that an import was asked to make; `None` where none was wanted.
fn team_for(all: &mut All, cx: &mut Context, id: ImportId) -> Option<Result<TeamId, Problem>> {
    let import = all.workspace.imports.0.iter().find(|import| import.import_id == id)?;
    let (name, folder) = (import.team_name.clone()?, import.path.clone());
    Some(teams::create_in(all, cx, &name, &folder))
}
