//! What an agent's room shows of this machine: the project, what its program keeps, and no secrets.
//!
//! ```text
//! .svc/rooms/<agent>/tmp    /tmp in the room             home   what is written in the home folder
//!                    var    /var/tmp                     svc    .svc
//!                    run    /run/user/<uid>              none   an empty folder; the others are the kernel's
//! ```
//! The folder goes when the run is over, with everything in it.

mod git;

use super::fence;
use super::projects;
use crate::agents::worker::ROOMS;
use crate::providers::{self, Home, Info, LaunchRequest, Room};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use svc_room::{Plan, Step, Tried};
use svc_sys::clock;
use svc_sys::files::missing_is_fine;
use svc_sys::process::{Processes, Spec};

/// The planner's file, which is taken along into the room and out of it.
const PLAN: &str = "recommended-team.json";
/// Keeps git from seeing the folder, in the room as well.
const IGNORED: &str = ".gitignore";
/// Below `.svc`: what agents may read there.
const READ_OF_STATE: [&str; 2] = ["skills", "rehearsals"];
/// Below `.svc`: where the built-in agents keep their sessions.
const SESSIONS: &str = "sessions";

/// Below the home folder: secrets of other programs and of the person. No room shows them unless they are
/// granted.
const SECRETS: [&str; 40] = [
    ".ssh",
    ".gnupg",
    ".pki",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".oci",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/doctl",
    ".config/rclone",
    ".config/op",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/autostart",
    ".config/systemd",
    ".config/svc",
    ".local/share/keyrings",
    ".mozilla",
    ".thunderbird",
    ".password-store",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    ".cargo/credentials.toml",
    ".terraform.d",
    ".1password",
    ".vault-token",
    ".minikube",
    ".colima",
    ".lima",
    ".orbstack",
    ".rd",
    ".local/share/containers",
];
/// What of `/run` programs need to find names on the network, and the system's own programs.
const OF_RUN: [&str; 6] =
    ["systemd/resolve", "resolvconf", "NetworkManager", "nscd", "current-system", "wrappers"];
/// The container engines' sockets.
const ENGINES: [&str; 3] = ["/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"];

/// How long the try of a room may take, and what is kept of its words.
const TRY_LIMIT: Duration = Duration::from_secs(5);
const TRY_OUTPUT_BYTES: usize = 1024;

/// Tells in a room's folder, for the next daemon, that the project's own git was led elsewhere before.
const LED: &str = "led";

/// The folder of a room; removed on drop, with its content.
pub struct RoomFolder {
    path: PathBuf,
    project: PathBuf,
    /// Whether the project's own git was led elsewhere before.
    is_led: bool,
}

impl RoomFolder {
    /// Makes it, for its owner alone. `name` is the agent's id, so that one life has one room.
    ///
    /// Errors: a sentence.
    pub fn make(project: &Path, name: &str) -> Result<Self, String> {
        let path = project.join(ROOMS).join(name);
        let is_led = git::is_led(project);
        let made = || {
            remove(&path)?;
            let builder = |mode| {
                let mut builder = DirBuilder::new();
                builder.recursive(true).mode(mode);
                builder
            };
            for part in ["home", "home-work", "none", "run", "svc", "tmp-work"] {
                builder(0o700).create(path.join(part))?;
            }
            for part in ["tmp", "var"] {
                let part = path.join(part);
                builder(0o700).create(&part)?;
                fs::set_permissions(&part, Permissions::from_mode(0o1777))?;
            }
            if is_led {
                fs::write(path.join(LED), "")?;
            }
            [PLAN, IGNORED].iter().try_for_each(|name| {
                take_along(&project.join(".svc").join(name), &path.join("svc").join(name))
            })
        };
        made().map_err(|error| format!("the room's folder {} cannot be made: {error}", path.display()))?;
        Ok(Self { path, project: project.to_path_buf(), is_led })
    }

    /// One that an earlier daemon has made.
    pub fn of(project: &Path, name: &str) -> Self {
        let path = project.join(ROOMS).join(name);
        let is_led = path.join(LED).exists();
        Self { path, project: project.to_path_buf(), is_led }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name for the room of a question, which is asked beside the agent's own run.
    pub fn name_of_question() -> String {
        format!("question-{:016x}", clock::random())
    }
}

impl Drop for RoomFolder {
    fn drop(&mut self) {
        if !self.is_led {
            git::lead_back(&self.project);
        }
        let plan = self.path.join("svc").join(PLAN);
        let is_file = fs::symlink_metadata(&plan).is_ok_and(|meta| meta.is_file());
        if is_file && let Err(error) = fs::rename(&plan, self.project.join(".svc").join(PLAN)) {
            log::warn!("{} cannot be kept: {error}", plan.display());
        }
        if let Err(error) = remove(&self.path) {
            log::warn!("{} cannot be removed: {error}", self.path.display());
        }
    }
}

/// Why this system can give no process a room; `None` where it can. Tries it, which takes a few milliseconds.
pub fn why_none(processes: &Processes) -> Option<String> {
    let tried =
        Spec::tool(super::env::own_program(), &[svc_room::SUB_COMMAND, svc_room::TRY], Path::new("/"));
    match processes.capture(&tried, b"", TRY_LIMIT, TRY_OUTPUT_BYTES) {
        Ok(captured) => Tried::read(&captured.stdout).refusal.map(|refusal| refusal.reason),
        Err(error) => Some(error),
    }
}

/// Removes all rooms: those of an earlier daemon, when nothing of it runs any more.
pub fn remove_all(project: &Path, kept: &[PathBuf]) {
    let Ok(rooms) = fs::read_dir(project.join(ROOMS)) else { return };
    for room in rooms.flatten().map(|room| room.path()).filter(|room| !kept.contains(room)) {
        if let Err(error) = remove(&room) {
            log::warn!("{} of an earlier daemon cannot be removed: {error}", room.display());
        }
    }
}

/// Copies a file, if it is there, with its time: by that one sees whether it was written anew.
fn take_along(from: &Path, to: &Path) -> std::io::Result<()> {
    // Neither a link, which may lead anywhere, nor a pipe, which may never end.
    let written = match fs::symlink_metadata(from) {
        Ok(meta) if meta.is_file() => meta.modified()?,
        _ => return Ok(()),
    };
    fs::copy(from, to)?;
    fs::File::options().write(true).open(to)?.set_modified(written)
}

/// Removes a folder with everything in it; the kernel leaves ones behind that not even their owner may open.
fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            open_up(path);
            fs::remove_dir_all(path)
        }
        removed => removed.or_else(missing_is_fine),
    }
}

fn open_up(path: &Path) {
    // What cannot be opened is told by the removal.
    let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// What of the daemon's surroundings a room depends on.
pub struct Surroundings<'a> {
    /// The person's home folder.
    pub home: Option<PathBuf>,
    /// A variable of the daemon's.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The `PATH` that the program gets.
    pub path: OsString,
    /// This program.
    pub own_program: PathBuf,
    /// The agent's.
    pub program: PathBuf,
    /// The user.
    pub uid: u32,
}

/// The plan of the room for one run.
pub fn plan(
    folder: &RoomFolder,
    room: &Room,
    request: &LaunchRequest,
    info: &Info,
    around: &Surroundings<'_>,
) -> Plan {
    let part = |name: &str| folder.path.join(name);
    let mut plan = Plan { cwd: request.working_dir.clone(), ..Plan::default() };
    let private = [PathBuf::from("/tmp"), "/var/tmp".into(), format!("/run/user/{}", around.uid).into()];
    let [tmp, var, run] = private.clone();
    plan.hide("/run".into());
    plan.read(OF_RUN.map(|name| Path::new("/run").join(name)));
    // Codex looks for the folder behind it on the machine where it is not a file system of its own, and its
    // sandbox fails.
    let (below, upper, work) = (part("none"), part("tmp"), part("tmp-work"));
    plan.steps.push(Step::Layer { path: tmp, below, upper, work });
    // Small systems have neither, and nothing can be made where the machine can only be read.
    if var.is_dir() {
        plan.steps.push(Step::Private { path: var, content: part("var") });
    }
    if Path::new("/run").is_dir() {
        plan.steps.push(Step::Private { path: run, content: part("run") });
    }
    match (&around.home, room.home) {
        (Some(home), Home::Overlay) => {
            let (upper, work) = (part("home"), part("home-work"));
            plan.steps.push(Step::Layer { path: home.clone(), below: home.clone(), upper, work });
        }
        (Some(home), Home::Hide) => {
            plan.steps.push(Step::Private { path: home.clone(), content: part("home") });
            plan.read([home.join(".gitconfig"), home.join(".config/git")]);
        }
        (Some(home), Home::Read) => plan.read([home.clone()]),
        (None, _) => {}
    }
    // The programs that the daemon finds where the room shows something else.
    let home_is_covered = |place: &Path| {
        room.home == Home::Hide && around.home.as_ref().is_some_and(|home| place.starts_with(home))
    };
    // Never all of what is covered: anybody may put a mark of an environment into the temporary folder.
    let is_cover = |place: &Path| {
        let covers = private.iter().chain(around.home.as_ref().filter(|_| room.home == Home::Hide));
        covers.into_iter().any(|cover| cover.starts_with(place))
    };
    // A built-in agent's is this one, and a file is put in its place once.
    let own = around.own_program.canonicalize().ok();
    let installed = installation(&around.program, is_cover).filter(|real| own.as_ref() != Some(real));
    let programs = std::env::split_paths(&around.path).chain(own.clone()).chain(installed);
    plan.read(programs.filter(|place| {
        !is_cover(place)
            && (home_is_covered(place) || private.iter().any(|private| place.starts_with(private)))
    }));
    show_project(&mut plan, request, part("svc"));
    if let Some(home) = &around.home {
        hide_secrets(&mut plan, home, request, info, around);
        show_state(&mut plan, home, room, info, around);
    }
    for grant in &room.grants {
        match grant.as_str() {
            Room::SSH_AGENT => plan.write((around.variable)("SSH_AUTH_SOCK").map(PathBuf::from)),
            Room::DOCKER => plan.write(ENGINES.map(PathBuf::from)),
            path => plan.write(from_home(path, around.home.as_deref())),
        }
    }
    // After what was granted: a grant of a folder is none of what other projects keep in it.
    for state in projects::states_of_others(&request.project_dir) {
        plan.hide(state);
    }
    plan.fence = request.fence.as_ref().map(|scope| {
        let mut places = fence::places(request, scope, info.id);
        places.extend(private);
        places.push(request.project_dir.join(".svc"));
        places.extend(around.home.clone().filter(|_| room.home != Home::Read));
        places
    });
    plan
}

/// What a program needs of the place where it is installed, to which its name on the `PATH` may be but a
/// link: all packages, where it is one of Node's, its whole environment, where it is Python's, else itself.
fn installation(program: &Path, is_cover: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let real = program.canonicalize().ok()?;
    let packages = real.ancestors().filter(|place| place.ends_with("node_modules")).last();
    let environment = || real.parent()?.parent().filter(|place| place.join("pyvenv.cfg").is_file());
    packages.or_else(environment).filter(|place| !is_cover(place)).map(Path::to_path_buf).or(Some(real))
}

/// The project: as it is, or, for one that is fenced in, to be read but for its scope. Of `.svc` only what is
/// the agent's own.
fn show_project(plan: &mut Plan, request: &LaunchRequest, own_state: PathBuf) {
    let (project, base) = (request.project_dir.clone(), request.base_dir());
    let has_worktree = base != project;
    let root = project.clone();
    let show = |plan: &mut Plan, place: PathBuf| match &request.fence {
        None => plan.write([place]),
        Some(scope) => {
            plan.read([place]);
            plan.write(fence::scope_places(request, scope));
        }
    };
    let state = project.join(".svc");
    show(plan, project);
    let dot = root.join(".git");
    let in_scope = |places: Vec<PathBuf>| places.iter().any(|place| dot.starts_with(place));
    let commits = has_worktree
        || request.fence.as_ref().is_none_or(|scope| in_scope(fence::scope_places(request, scope)));
    for (place, is_written) in git::Places::of(&root).into_iter() {
        // Of the project's own the rest is as the scope has it.
        if commits || !is_written || !place.starts_with(&root) {
            plan.share([place], is_written && commits);
        }
    }
    let sessions = state.join(SESSIONS);
    // Where it cannot be made, the agent that keeps a session there says so.
    let _ = DirBuilder::new().recursive(true).mode(0o700).create(&sessions);
    let kept = READ_OF_STATE.map(|name| state.join(name));
    plan.steps.push(Step::Private { path: state, content: own_state });
    plan.write([sessions]);
    plan.read(kept);
    if has_worktree {
        show(plan, base.clone());
    }
}

/// What the program keeps in the home folder, to be written, but for what makes it run things.
fn show_state(plan: &mut Plan, home: &Path, room: &Room, info: &Info, around: &Surroundings<'_>) {
    let state = fence::program_places(home, info.id, around.variable);
    for (folder, _) in state.iter().filter(|(_, is_folder)| *is_folder) {
        // Its program would make it, in a layer that is thrown away.
        let _ = fs::create_dir_all(folder);
    }
    // A file alone cannot be put in the place of another one: in a layer it can.
    let shown = |(_, is_folder): &(PathBuf, bool)| *is_folder || room.home != Home::Overlay;
    let shown: Vec<PathBuf> = state.into_iter().filter(shown).map(|(place, _)| place).collect();
    plan.write(shown.clone());
    let obeyed = fence::obeyed_places(home, info.id, around.variable);
    for state in shown {
        for (place, is_folder) in obeyed.iter().filter(|(place, _)| place.starts_with(&state)) {
            if *place != state
                && let Err(error) = fence::make_empty(&state, place, *is_folder)
            {
                log::warn!("{} cannot be made, so an agent may make it: {error}", place.display());
            }
            // Folders on the way are places of their own: those cannot be moved away from inside.
            let on_the_way = place
                .ancestors()
                .skip(1)
                .take_while(|folder| folder.starts_with(&state) && **folder != *state);
            let on_the_way: Vec<_> = on_the_way.map(Path::to_path_buf).collect();
            plan.share_within(&state, on_the_way.into_iter().rev(), true);
            plan.share_within(&state, [place.clone()], false);
        }
    }
}

/// Hides the person's secrets, those of other providers' programs and those of other accounts, wherever they
/// are shown by now. What holds some of its own state is hidden with the rest, for that is shown after it.
fn hide_secrets(
    plan: &mut Plan,
    home: &Path,
    request: &LaunchRequest,
    info: &Info,
    around: &Surroundings<'_>,
) {
    let project = &request.project_dir;
    let own = fence::state_places(home, info.id, around.variable);
    let is_own = |place: &Path| own.iter().any(|(one, _)| place.starts_with(one));
    // By the agent's own variables and by the daemon's: what moves its state moves nobody else's, and the
    // usual places of its own program are then another account's.
    let places = |info: &Info| {
        let own = fence::program_places(home, info.id, around.variable);
        own.into_iter().chain(fence::program_places(home, info.id, |name| std::env::var_os(name)))
    };
    let programs = providers::all().iter().flat_map(|provider| places(provider.info()));
    let accounts = request.room.iter().flat_map(|room| room.hidden.clone()).chain(projects::user_folder());
    let secrets = SECRETS.iter().map(|name| home.join(name)).chain(programs.map(|(place, _)| place));
    for place in secrets.chain(accounts).filter(|place| !is_own(place) && !project.starts_with(place)) {
        plan.hide(place);
    }
}

fn from_home(path: &str, home: Option<&Path>) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(rest) => home.map(|home| home.join(rest)),
        None => Some(path.into()),
    }
}

/// The user this process runs as.
pub fn own_uid() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid())
}

/// How a plan is filled. Links lead to places that the room may show otherwise: the place itself is named.
trait Fill {
    fn share(&mut self, paths: impl IntoIterator<Item = PathBuf>, writable: bool);
    /// Leaves out what leads out of `root`.
    fn share_within(&mut self, root: &Path, paths: impl IntoIterator<Item = PathBuf>, writable: bool);
    fn hide(&mut self, path: PathBuf);
    fn read(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        self.share(paths, false);
    }
    fn write(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        self.share(paths, true);
    }
}

impl Fill for Plan {
    fn share(&mut self, paths: impl IntoIterator<Item = PathBuf>, writable: bool) {
        let there = paths.into_iter().filter_map(|path| path.canonicalize().ok());
        self.steps.extend(there.map(|path| Step::Share { path, writable }));
    }

    fn share_within(&mut self, root: &Path, paths: impl IntoIterator<Item = PathBuf>, writable: bool) {
        self.share(paths.into_iter().filter_map(|path| fence::within(root, &path)), writable);
    }

    fn hide(&mut self, path: PathBuf) {
        let mut hides = self.steps.iter().rev().map_while(|step| match step {
            Step::Hide { path } => Some(path),
            _ => None,
        });
        // Programs share places, and each cover takes time at every start. What was shown since is covered
        // again.
        if let Ok(path) = path.canonicalize()
            && !hides.any(|hidden| path.starts_with(hidden))
        {
            self.steps.push(Step::Hide { path });
        }
    }
}

/// The command line that runs `program` in the room.
pub fn command_line(plan: &Plan, program: OsString, args: Vec<OsString>) -> Vec<OsString> {
    let text = serde_json::to_string(plan).unwrap_or_default();
    let mut line =
        vec![OsString::from(svc_room::SUB_COMMAND), OsString::from(text), OsString::from("--"), program];
    line.extend(args);
    line
}
