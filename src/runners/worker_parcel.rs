//! What goes with an agent that moves: its branch, and the record of its session with its program. Both ends
//! find the place of that record here, by the environment of their own machine; a machine never tells where
//! something is to be put on another one.

use super::dialogue::{Call, Opening, PLAN, Parcel, Plan, SESSION, Says, is_name, place_folder, tree};
use super::kind::engine;
use super::worker_bring::headed;
use super::worker_bundle;
use super::worker_client::{Client, NoAnswer, answer};
use super::worker_host::{self, line_variables};
use super::worker_open::{Git, has_commit, home, ready, say, search_path};
use super::{Runner, worker_line, worker_place, worker_tidy};
use crate::providers::carried::{self, DAY_DEPTH, Place};
use crate::providers::environment::{self, Extra};
use crate::providers::{self, Carried};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use svc_base::hex;
use svc_base::untrusted::untrusted_prose;
use svc_sys::beneath::{Dir, Root};
use svc_sys::clock;
use svc_sys::files::replace_soon;
use svc_sys::process::{Processes, Spec};

/// Bytes of the record of a session; one that is longer goes nowhere.
pub const SESSION_BYTES_MAX: u64 = 64 << 20;
/// Bytes of what stands before it.
const HEAD_BYTES: u64 = 64 << 10;
/// Names that are looked at in search of one.
const NAMES_MAX: usize = 20_000;
/// Bringing one from there.
const LIMIT: Duration = Duration::from_secs(120);
/// Sending a branch and a session there.
const SEND_LIMIT: Duration = Duration::from_secs(900);
/// Bytes of what the sender says.
const SAID_BYTES: usize = 4 << 10;
/// Characters of why something failed.
const WHY_CHARS: usize = 300;

/// Whose record it is.
pub struct Whose<'a> {
    pub provider: &'a str,
    pub session: &'a str,
    /// What its program takes for the project.
    pub project: &'a Path,
    /// Where it works.
    pub folder: &'a Path,
    /// What a person has said about its variables.
    pub extra: &'a Extra,
}

impl Whose<'_> {
    /// What of the session goes along, and where that is on this machine.
    pub fn carried(&self) -> Carried {
        let Some(provider) = providers::by_id(self.provider) else {
            return Carried::Stays("this svc has no such provider");
        };
        let env = environment::of_child(std::env::vars_os(), provider.info(), self.extra, &[], &[]);
        let variable =
            |name: &str| env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| PathBuf::from(value));
        // Programs ask the system where they are, which knows no links.
        let [project, folder] =
            [self.project, self.folder].map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        provider.carried(self.session, &project, &folder, &variable)
    }
}

/// The record at a place: its name, and the file, which is a regular one and not too long.
///
/// Errors: a sentence.
pub fn open(place: &Place) -> Result<(String, File, u64), String> {
    let failed = |error: io::Error| format!("the record of its session cannot be read: {error}");
    let root = Root::open(&place.root).map_err(failed)?;
    let (name, file) = match &place.file {
        carried::File::Fixed(path) => {
            (path.rsplit('/').next().unwrap_or_default().to_owned(), root.file(path).map_err(failed)?)
        }
        carried::File::OfDay { folder, .. } => {
            let mut names = NAMES_MAX;
            let found = search(&root.dir(folder).map_err(failed)?, DAY_DEPTH, place, &mut names);
            found.ok_or("the record of its session is not where its program keeps it")?
        }
    };
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err("the record of its session is no regular file".to_owned());
    }
    if meta.len() > SESSION_BYTES_MAX {
        return Err(too_long(meta.len()));
    }
    Ok((name, file, meta.len()))
}

fn too_long(bytes: u64) -> String {
    format!("the record of its session has {bytes} bytes, and at most {SESSION_BYTES_MAX} go along")
}

/// The newest days first.
fn search(folder: &Dir, depth: usize, place: &Place, names: &mut usize) -> Option<(String, File)> {
    let mut all = Vec::new();
    for entry in folder.entries().ok()?.flatten() {
        *names = names.checked_sub(1)?;
        all.push(entry.file_name().to_string_lossy().into_owned());
    }
    svc_base::sorted::by_key(&mut all, |name| std::cmp::Reverse(name.clone()));
    if depth == 0 {
        let name = all.into_iter().find(|name| place.below(name).is_some())?;
        let file = folder.file(&name).ok()?;
        return Some((name, file));
    }
    all.iter().find_map(|name| search(&folder.dir(name).ok()?, depth - 1, place, names))
}

/// Writes the record of a session where its program looks for it: as a whole or not at all, and through no
/// link.
///
/// Errors: a sentence; nothing has changed but that folders may be there.
pub fn put(place: &Place, name: &str, bytes: u64, from: &mut impl Read) -> Result<(), String> {
    let failed = |error: io::Error| format!("the record of its session cannot be written: {error}");
    let path = place.below(name).ok_or("what came is not the record of its session")?;
    if bytes > SESSION_BYTES_MAX {
        return Err(too_long(bytes));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&place.root).map_err(failed)?;
    let mut folder = Root::open(&place.root).and_then(|root| root.dir("")).map_err(failed)?;
    let (above, last) = path.rsplit_once('/').unwrap_or(("", &path));
    for part in above.split('/').filter(|part| !part.is_empty()) {
        folder = match folder.dir(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                folder.make_dir(part).and_then(|()| folder.dir(part))
            }
            opened => opened,
        }
        .map_err(failed)?;
    }
    let beside = format!(".svc-{:016x}", clock::random());
    let written = folder.create(&beside, 0o600).and_then(|mut file| {
        let copied = io::copy(&mut from.take(bytes), &mut file)?;
        if copied != bytes {
            return Err(io::Error::other(format!("{copied} of {bytes} bytes came")));
        }
        file.sync_all()?;
        // A link of that name is replaced, and not followed.
        folder.rename(&beside, &folder, last)
    });
    if written.is_err() {
        let _ = folder.remove_file(&beside);
    }
    written.map_err(failed)
}

/// A folder of a project's work on a runner's machine, by its words.
pub(super) struct Work<'a> {
    pub place: &'a str,
    pub work: &'a str,
}

/// What is said before a record.
#[derive(Serialize, Deserialize)]
struct Head {
    name: String,
    bytes: u64,
    /// Why there is none.
    stays: Option<String>,
}

/// `svc __far session PLACE WORK PROVIDER SESSION FOLDER`, the last one in hex.
pub(super) fn far(work: &Work, provider: &str, session: &str, folder: &str) -> Result<(), String> {
    let folder = hex::decode(folder.trim_start_matches('-')).and_then(|bytes| String::from_utf8(bytes).ok());
    let folder = folder.filter(|_| is_name(work.place) && is_name(work.work));
    let folder = folder.ok_or("a name leads elsewhere")?;
    let project = tree(&home()?, work.place, work.work);
    let whose = Whose {
        provider,
        session,
        folder: &below(&project, &folder),
        project: &project,
        extra: &Extra::default(),
    };
    let opened = match whose.carried() {
        Carried::File(place) => open(&place),
        Carried::Nothing => Err("there is none".to_owned()),
        Carried::Stays(why) => Err(why.to_owned()),
    };
    let (head, file) = match opened {
        Ok((name, file, bytes)) => (Head { name, bytes, stays: None }, Some(file)),
        Err(why) => (Head { name: String::new(), bytes: 0, stays: Some(why) }, None),
    };
    let told = |error: io::Error| error.to_string();
    worker_host::tell(&head)?;
    // Its program is gone; of what somebody else appends meanwhile nothing goes along.
    let file = file.map(|file| io::copy(&mut file.take(head.bytes), &mut io::stdout().lock()));
    file.transpose().map_err(told).map(drop)
}

/// A folder of a tree. Joining nothing would add a slash.
fn below(tree: &Path, folder: &str) -> PathBuf {
    if folder.is_empty() { tree.to_owned() } else { tree.join(folder) }
}

/// What came of asking a runner's machine for the record of a session.
pub enum Told {
    /// The name of its file, and all of it.
    Came(String, Vec<u8>),
    /// That machine has none that could go, and why.
    Stays(String),
}

/// Brings the record of a session from there; `folder` is where it works, below its tree. What comes is no
/// more than a name and bytes: whether the name is the session's, [`Place::below`] says here.
///
/// Errors: a sentence.
pub fn bring(
    processes: &Processes,
    runner: &Runner,
    work: &str,
    (provider, session): (&str, &str),
    folder: &str,
) -> Result<Told, String> {
    let place = &runner.folder;
    if [place.as_str(), work, provider].iter().any(|word| !is_name(word)) || !carried::is_name(session) {
        return Err("its session has no name there".to_owned());
    }
    // A word that is not empty.
    let words = format!("session {place} {work} {provider} {session} -{}", hex::encode(folder.as_bytes()));
    let max = usize::try_from(SESSION_BYTES_MAX + HEAD_BYTES).unwrap_or(usize::MAX);
    let spot = worker_place::find(processes, runner)?;
    let said = worker_host::run_far(processes, &spot, &words, LIMIT, max)?;
    if said.truncated {
        return Err(format!(
            "that machine sends more than {SESSION_BYTES_MAX} bytes as the record of its session"
        ));
    }
    let (head, bytes) = headed::<Head>(said)?;
    if let Some(why) = head.stays {
        return Ok(Told::Stays(untrusted_prose(&why).chars().take(WHY_CHARS).collect()));
    }
    if u64::try_from(bytes.len()).ok() != Some(head.bytes) {
        return Err("the record of its session did not come as a whole".to_owned());
    }
    Ok(Told::Came(head.name, bytes))
}

/// Takes what comes for an agent that moves to this machine: its tree stands at the commit then, and its
/// session is where its program finds it. It begins nothing.
pub(super) fn take(call: &Call, opening: &Opening, parcel: &Parcel, input: &mut File) -> Result<(), String> {
    let processes = Processes::start().map_err(|error| error.to_string())?;
    let place = place_folder(&home()?, &call.place);
    let work = place.join(&call.work);
    check_program(opening)?;
    // Two would write to one tree.
    worker_tidy::end_others(&work, None)?;
    let tree = work.join("tree");
    if tree.join(".git").exists() {
        forward(&processes, input, &place, &tree, opening)?;
    } else {
        ready(&processes, input, &place, &tree, opening)?;
    }
    say(&Says::There);
    let Some(record) = &parcel.session else { return Ok(()) };
    let whose = Whose {
        provider: &opening.provider,
        session: &record.session,
        project: &tree,
        folder: &below(&tree, &opening.folder),
        extra: &opening.extra,
    };
    match whose.carried() {
        Carried::File(place) => put(&place, &record.name, record.bytes, input)?,
        Carried::Nothing => {}
        Carried::Stays(why) => return Err(why.to_owned()),
    }
    say(&Says::There);
    Ok(())
}

/// It would be started in vain.
fn check_program(opening: &Opening) -> Result<(), String> {
    let Some(program) = &opening.program else { return Ok(()) };
    let is_there = |folder: PathBuf| folder.join(program).is_file();
    if std::env::split_paths(&search_path()?).any(is_there) {
        return Ok(());
    }
    Err(format!("there is no program {program} on that machine"))
}

/// It was here before: its tree goes on to the commit, if nothing is in the way.
fn forward(
    processes: &Processes,
    input: &mut File,
    place: &Path,
    tree: &Path,
    opening: &Opening,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", place.display());
    let lock = File::create(place.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let git = Git { processes, folder: tree };
    if !git.run(&["status", "--porcelain", "--", ".", ":(top,exclude).svc"])?.trim().is_empty() {
        return Err("its tree of an earlier time there holds work that no commit does".to_owned());
    }
    let repo = place.join("repo.git");
    has_commit(&Git { processes, folder: &repo }, input, place, &opening.tip)?;
    git.run(&["merge", "--quiet", "--ff-only", &opening.tip]).map(drop).map_err(|error| {
        format!("its tree of an earlier time there does not lead to its last commit here: {error}")
    })
}

/// `svc __line FOLDER` of a plan with a parcel: brings it there.
pub(super) fn send(mut plan: Plan, folder: &Path) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    plan.opening.tip = worker_bundle::tip(&plan.project, &plan.opening.branch)?;
    let script = worker_host::run_script(&plan.program, engine(plan.spot.kind).open);
    let (mut client, mut socket) = Client::start(&plan, &script).map_err(told)?;
    let words = plan.call(true, Vec::new(), b"")?;
    socket.write_all(&words).map_err(|_| client.words())?;
    let until = Instant::now() + SEND_LIMIT;
    let mut may_want = true;
    let mut left = plan.parcel.as_ref().and_then(|parcel| parcel.session.as_ref());
    loop {
        match answer(&mut socket, until) {
            Ok(Says::There) => {
                let Some(record) = left.take() else { return Ok(()) };
                let file = File::open(folder.join(SESSION)).map_err(told)?;
                let sent = io::copy(&mut file.take(record.bytes), &mut socket);
                // What the other end has against it stands in its answer.
                if sent.is_ok_and(|sent| sent != record.bytes) {
                    return Err("the record of its session has changed meanwhile".to_owned());
                }
            }
            Ok(Says::Wants { have }) if std::mem::take(&mut may_want) => {
                let scratch = folder.join("bundle");
                worker_bundle::send(&plan.project, &plan.opening.branch, &have, &scratch, &mut socket)?;
            }
            Ok(Says::Wants { .. }) => return Err("that machine wants the repository twice".to_owned()),
            Ok(Says::Gone { why } | Says::Refused { why }) => {
                return Err(untrusted_prose(&why).chars().take(WHY_CHARS).collect());
            }
            Err(NoAnswer::Wrong(why)) => return Err(why),
            Err(NoAnswer::Cut) => return Err(client.words()),
        }
    }
}

/// Has a process of its own send what this plan says, whose folder this is; `session` is the file that its
/// parcel tells of. The folder is made, and gone afterwards.
///
/// Errors: a sentence.
pub fn dispatch(
    processes: &Processes,
    folder: &Path,
    program: std::ffi::OsString,
    plan: &Plan,
    session: Option<&mut dyn Read>,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    let _ = fs::remove_dir_all(folder);
    let sent = || {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        if let Some(session) = session {
            let mut file = File::create_new(folder.join(SESSION)).map_err(failed)?;
            io::copy(session, &mut file).map_err(failed)?;
        }
        let text = serde_json::to_vec(plan).map_err(|error| error.to_string())?;
        replace_soon(&folder.join(PLAN), &text).map_err(failed)?;
        let path = folder.to_string_lossy();
        let mut spec = Spec::tool("", &[worker_line::SUB_COMMAND, &path], Path::new("/"));
        (spec.program, spec.env) = (program, line_variables());
        let said = processes.capture(&spec, b"", SEND_LIMIT, SAID_BYTES)?;
        if said.is_success() {
            return Ok(());
        }
        let words = worker_host::complaint(&said);
        Err(words.strip_prefix("svc: ").unwrap_or(&words).to_owned())
    };
    let sent = sent();
    let _ = fs::remove_dir_all(folder);
    sent
}
