//! `svc __far open`: has an agent's keeper run here, and is the pipe to it. It ends with its line; the keeper
//! stays.

use super::dialogue::{Call, Opening, PART_BYTES_MAX, Says, is_branch, is_name, place_folder};
use super::worker_begin;
use super::worker_bundle::{BUNDLE_BYTES_MAX, HAVE_MAX, is_id};
use super::worker_host::tell;
use super::{worker_parcel, worker_tidy};
use crate::providers::{self, environment};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use svc_base::untrusted::untrusted_prose;
use svc_keeper::client::{self, Link};
use svc_keeper::protocol::{FromKeeper, HEAD_BYTES, Order};
use svc_sys::process::{Marker, Processes, Spec};
use svc_sys::sockets::Poll;

/// Without a word of the other end for so long the line is cut: it says one every 10 s.
const SILENCE_LIMIT: Duration = Duration::from_secs(45);
/// So often the other end hears of this one, also while the program says nothing.
const SIGN_EVERY: Duration = Duration::from_secs(5);
/// How long the keeper may take to hear what was said last.
const FAREWELL: Duration = Duration::from_secs(2);
/// One call of git.
const GIT_LIMIT: Duration = Duration::from_secs(300);
/// Bytes of what git says.
const GIT_BYTES: usize = 64 << 10;
/// Folders of a person's own programs, which a login without a screen often leaves out of PATH.
const OWN_PROGRAMS: [&str; 2] = [".local/bin", "bin"];
const CHUNK_BYTES: usize = 64 << 10;
/// Between two looks whether the keeper has gone.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Runs it. In a job somebody else starts the keeper, see [`worker_begin`].
pub fn main(in_job: bool) -> ExitCode {
    let opened = input().and_then(|mut input| {
        let (call, frames) = read_call(&mut input)?;
        open(&call, &frames, input, in_job)
    });
    match opened {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&Says::Refused { why });
            ExitCode::FAILURE
        }
    }
}

pub(super) fn say(says: &Says) {
    // Whoever does not hear it has gone.
    let _ = tell(says);
}

/// Standard input, of which nothing is read ahead.
fn input() -> Result<File, String> {
    let owned = io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    Ok(File::from(owned))
}

fn read_call(input: &mut File) -> Result<(Call, Vec<u8>), String> {
    let failed = |error: io::Error| format!("the call cannot be read: {error}");
    let mut lengths = [[0; 4]; 2];
    for length in &mut lengths {
        input.read_exact(length).map_err(failed)?;
    }
    let lengths = lengths.map(u32::from_le_bytes);
    if lengths.iter().any(|length| *length > PART_BYTES_MAX) {
        return Err("the call is too long".to_owned());
    }
    let mut parts = lengths.map(|length| vec![0; usize::try_from(length).unwrap_or_default()]);
    for part in &mut parts {
        input.read_exact(part).map_err(failed)?;
    }
    let [words, frames] = parts;
    let call: Call = serde_json::from_slice(&words).map_err(|error| failed(error.into()))?;
    if [&call.place, &call.work, &call.run].iter().any(|name| !is_name(name)) {
        return Err("a name in the call leads elsewhere".to_owned());
    }
    Ok((call, frames))
}

pub(super) fn home() -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.ok_or_else(|| "there is no HOME on that machine".to_owned())
}

fn open(call: &Call, frames: &[u8], mut input: File, in_job: bool) -> Result<(), String> {
    let work = place_folder(&home()?, &call.place).join(&call.work);
    if let (Some(parcel), Some(opening)) = (&call.parcel, &call.opening) {
        return worker_parcel::take(call, opening, parcel, &mut input);
    }
    let run = work.join(format!("run-{}", call.run));
    let processes = Processes::start().map_err(|error| error.to_string())?;
    // Held until the one that comes takes over: a keeper without a daemon may end its program.
    let mut begun: Option<Link> = None;
    let found = client::door(&run)?;
    let opening = call.opening.as_ref().filter(|_| found.is_none() && !client::is_left(&run));
    if let Some(opening) = opening {
        let place = place_folder(&home()?, &call.place);
        worker_tidy::end_others(&work, Some(&run))?;
        let tree = ready(&processes, &mut input, &place, &work.join("tree"), opening)?;
        if !in_job {
            begun = Some(begin(&processes, opening, &call.lent, &run, &tree)?);
        } else if call.lent.is_empty() {
            worker_begin::ask(opening, &run, &tree)?;
        } else {
            return Err("keys are not lent to a job of Slurm: they would go through a file there".to_owned());
        }
    } else if found.is_none() {
        let why = "its keeper on that machine is gone: the machine was started anew, or the keeper killed";
        say(&Says::Gone { why: why.to_owned() });
        return Ok(());
    }
    let opened = if found.is_some() { found } else { client::door(&run)? };
    let door = opened.ok_or("its keeper has gone at once")?;
    say(&Says::There);
    let folder = run.clone();
    let passed = pass(door, input, frames, move || {
        let until = Instant::now() + FAREWELL;
        // One that was let go takes a moment for it; one that has another daemon now stays.
        while Instant::now() < until && !client::is_left(&folder) {
            if client::door(&folder).is_ok_and(|door| door.is_none()) {
                let _ = fs::remove_dir_all(&folder);
                return;
            }
            thread::sleep(LOOK_AGAIN);
        }
    });
    drop(begun);
    passed
}

/// Starts the keeper of a run.
pub(super) fn begin(
    processes: &Processes,
    opening: &Opening,
    lent: &[(String, String)],
    run: &Path,
    tree: &Path,
) -> Result<Link, String> {
    let failed = |error: io::Error| format!("{}: {error}", run.display());
    DirBuilder::new().recursive(true).mode(0o700).create(run).map_err(failed)?;
    let own = std::env::current_exe().map_err(failed)?;
    let info = providers::info_of(&opening.provider);
    let inherited = std::env::vars_os().filter(|(name, _)| name != "PATH");
    let path = (std::ffi::OsString::from("PATH"), search_path()?);
    let own_env = [opening.own_env.as_slice(), lent].concat();
    let env = environment::of_child(inherited.chain([path]), info, &opening.extra, &opening.env, &own_env);
    let cwd = if opening.folder.is_empty() { tree.to_path_buf() } else { tree.join(&opening.folder) };
    let order = Order {
        token: opening.token.clone(),
        run_dir: run.to_path_buf(),
        program: opening.program.as_ref().map_or_else(|| own.clone().into(), Into::into),
        args: opening.args.iter().map(Into::into).collect(),
        env,
        cwd,
        stdin: opening.stdin,
        marker: Marker { agent: opening.agent, project_dir: tree.to_path_buf() },
        stop_grace_ms: opening.stop_grace_ms,
        orphan_ms: opening.orphan_ms,
        nice: opening.nice,
        ceiling: opening.ceiling,
    };
    client::start(processes, own.into(), &order)
}

pub(super) fn search_path() -> Result<std::ffi::OsString, String> {
    let home = home()?;
    let own = OWN_PROGRAMS.iter().map(|folder| home.join(folder)).filter(|folder| folder.is_dir());
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = own.chain(std::env::split_paths(&usual)).collect();
    std::env::join_paths(all).map_err(|error| error.to_string())
}

/// Makes the tree that an agent works on, where it is not there; answers where it is.
pub(super) fn ready(
    processes: &Processes,
    input: &mut File,
    place: &Path,
    tree: &Path,
    opening: &Opening,
) -> Result<PathBuf, String> {
    let failed = |error: io::Error| format!("{}: {error}", place.display());
    DirBuilder::new().recursive(true).mode(0o700).create(place).map_err(failed)?;
    // One at a time; it is let go with the file.
    let lock = File::create(place.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    if tree.join(".git").exists() {
        return Ok(tree.to_path_buf());
    }
    if !is_id(&opening.tip) || !is_branch(&opening.branch) {
        return Err("the call names no commit, or no branch".to_owned());
    }
    let repo = place.join("repo.git");
    let git = Git { processes, folder: &repo };
    let reference = format!("refs/heads/{}", opening.branch);
    has_commit(&git, input, place, &opening.tip)?;
    git.run(&["worktree", "prune"])?;
    git.run(&["update-ref", &reference, &opening.tip])?;
    let shown = tree.to_string_lossy().into_owned();
    git.run(&["worktree", "add", "--quiet", &shown, &opening.branch])?;
    if git.run(&["config", "user.email"]).is_err() {
        // Nobody has said who commits on this machine.
        git.run(&["config", "user.name", "svc"])?;
        git.run(&["config", "user.email", "svc@agents.svc.invalid"])?;
    }
    Ok(tree.to_path_buf())
}

/// Has the repository of a place, which is made where there is none, hold this commit.
pub(super) fn has_commit(git: &Git, input: &mut File, place: &Path, tip: &str) -> Result<(), String> {
    if !git.folder.join("HEAD").exists() {
        let shown = git.folder.to_string_lossy().into_owned();
        Git { folder: place, ..*git }.run(&["init", "--bare", "--quiet", &shown])?;
    }
    let commit = format!("{tip}^{{commit}}");
    if git.run(&["cat-file", "-e", &commit]).is_ok() {
        return Ok(());
    }
    let have = git.run(&["for-each-ref", "--format=%(objectname)"])?;
    say(&Says::Wants { have: have.lines().take(HAVE_MAX).map(str::to_owned).collect() });
    let bundle = place.join("incoming.bundle");
    let taken = receive(input, &bundle).and_then(|()| {
        let shown = bundle.to_string_lossy().into_owned();
        git.run(&["bundle", "unbundle", &shown])
    });
    let _ = fs::remove_file(&bundle);
    taken?;
    git.run(&["cat-file", "-e", &commit]).map(drop)
}

/// Takes a bundle from the other end.
fn receive(input: &mut File, path: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("the repository did not arrive: {error}");
    let mut length = [0; 8];
    input.read_exact(&mut length).map_err(failed)?;
    let length = u64::from_le_bytes(length);
    if length > BUNDLE_BYTES_MAX {
        return Err("the repository is larger than 4 GiB".to_owned());
    }
    let mut file = File::create(path).map_err(failed)?;
    let taken = io::copy(&mut input.take(length), &mut file).map_err(failed)?;
    if taken == length { Ok(()) } else { Err("the repository did not arrive as a whole".to_owned()) }
}

/// Git here, with this machine's settings.
pub(super) struct Git<'a> {
    pub processes: &'a Processes,
    pub folder: &'a Path,
}

impl Git<'_> {
    /// What it prints.
    pub fn run(&self, args: &[&str]) -> Result<String, String> {
        let mut spec = Spec::tool("git", args, self.folder);
        spec.env.push(("GIT_TERMINAL_PROMPT".into(), "0".into()));
        let said = self.processes.capture(&spec, b"", GIT_LIMIT, GIT_BYTES)?;
        if said.is_success() {
            return Ok(String::from_utf8_lossy(&said.stdout).into_owned());
        }
        Err(format!(
            "git on that machine failed: {}",
            untrusted_prose(&String::from_utf8_lossy(&said.stderr))
        ))
    }
}

/// Where a stream of frames has come to.
#[derive(Default)]
struct Place {
    /// Of the head of a frame: its length stands first.
    head: Vec<u8>,
    /// Bytes that are to come of a frame whose head has.
    left: usize,
    has_begun: bool,
}

impl Place {
    /// Whether a frame has passed, and none is under way.
    fn is_between(&self) -> bool {
        self.has_begun && self.head.is_empty() && self.left == 0
    }

    fn pass(&mut self, mut bytes: &[u8]) {
        self.has_begun = true;
        while !bytes.is_empty() {
            let now = if self.left > 0 { self.left } else { HEAD_BYTES - self.head.len() }.min(bytes.len());
            let (first, rest) = bytes.split_at(now);
            bytes = rest;
            if self.left > 0 {
                self.left -= now;
                continue;
            }
            self.head.extend(first);
            if let (HEAD_BYTES, Some(length)) = (self.head.len(), self.head.first_chunk()) {
                self.left = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
                self.head.clear();
            }
        }
    }
}

/// Copies between this process's pipes and the keeper's socket until one of them ends. `over` is called when
/// the keeper has ended it.
fn pass(
    mut door: UnixStream,
    mut input: File,
    frames: &[u8],
    over: impl FnOnce() + Send + 'static,
) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    let mut back = door.try_clone().map_err(told)?;
    back.set_read_timeout(Some(SIGN_EVERY)).map_err(told)?;
    let sign =
        FromKeeper::Records { offset: 0, bytes: Vec::new() }.encode().map_err(|error| error.to_string())?;
    let (says, ended) = channel();
    // Without a buffer: what the keeper says goes out at once.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(told)?);
    let pass_back = move || {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut place = Place::default();
        // Not `io::copy`: that has the kernel move the bytes, which waits for more before it shows any.
        loop {
            match back.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The keeper has nothing to say; between two of its frames the other end hears so.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if place.is_between() && out.write_all(&sign).is_err() {
                        break;
                    }
                }
                Ok(count @ 1..) if out.write_all(&chunk[..count]).is_ok() => place.pass(&chunk[..count]),
                // Either end has gone.
                _ => break,
            }
        }
        over();
        let _ = says.send(());
        std::process::exit(0);
    };
    thread::Builder::new().name("back".into()).spawn(pass_back).map_err(told)?;
    door.write_all(frames).map_err(told)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let mut poll = Poll::default();
        let place = poll.add(input.as_fd(), true, false);
        poll.wait(Some(SILENCE_LIMIT)).map_err(told)?;
        if !poll.is_ready(place) {
            // Without a word why: a pipe that nobody empties would hold this process, and with it the keeper.
            std::process::exit(1);
        }
        match input.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(count) if count > 0 => door.write_all(&chunk[..count]).map_err(told)?,
            _ => break,
        }
    }
    let _ = door.shutdown(Shutdown::Write);
    let _: Result<(), _> = ended.recv_timeout(2 * FAREWELL);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_stands_between_two_frames_wherever_their_bytes_are_cut() {
        let frame = |payload: &[u8]| {
            let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
            [&length[..], &[4], payload].concat()
        };
        let all = [frame(b"one"), frame(b""), frame(&[0; 300])].concat();
        let ends = [8, 13, all.len()];
        for size in 1..20 {
            let (mut place, mut passed) = (Place::default(), 0);
            assert!(!place.is_between(), "not before the first: it is the greeting");
            for bytes in all.chunks(size) {
                place.pass(bytes);
                passed += bytes.len();
                assert_eq!(place.is_between(), ends.contains(&passed), "{size}: {passed}");
            }
        }
    }
}
