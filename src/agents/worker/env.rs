//! The process of a launch: what is around it, and an environment that is an allow-list, never the daemon's
//! own.

use super::checkpoint::RunFile;
use super::fence::{self, Temporary};
use super::room::{self, RoomFolder, Surroundings};
use crate::providers::{Info, Launch, LaunchProgram, LaunchRequest, environment};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use svc_keeper::terminal;
use svc_sys::process::{Marker, Spec, Stdin, find_program};

/// What is made for one process; it goes when this is dropped.
pub enum Beside {
    /// Nothing.
    Nothing,
    /// A temporary folder, for one that is fenced in.
    Temporary(Temporary),
    /// A room of its own.
    Room(RoomFolder),
}

impl Beside {
    /// Makes what the request asks for. `name` tells rooms apart.
    ///
    /// Errors: it cannot be made.
    pub fn make(request: &LaunchRequest, name: &str) -> Result<Self, String> {
        if request.room.is_some() {
            return RoomFolder::make(&request.project_dir, name).map(Self::Room);
        }
        request.fence.as_ref().map_or(Ok(Self::Nothing), |_| Temporary::make().map(Self::Temporary))
    }

    /// What an earlier daemon has made for a process that still runs. It is removed in the end: so a place
    /// where it would not have made it, as somebody may have written there since, is none of ours.
    pub(super) fn of(file: &RunFile, project: &Path) -> Self {
        match &file.beside {
            None => Self::Nothing,
            Some(_) if file.has_room => Self::Room(RoomFolder::of(project, &file.agent.to_string())),
            Some(path) => Temporary::at(path.clone()).map_or(Self::Nothing, Self::Temporary),
        }
    }

    /// Where it is, and whether it is a room.
    pub(super) fn place(&self) -> (Option<PathBuf>, bool) {
        match self {
            Self::Nothing => (None, false),
            Self::Temporary(folder) => (Some(folder.path().to_path_buf()), false),
            Self::Room(room) => (Some(room.path().to_path_buf()), true),
        }
    }

    /// The folder for temporary files, as the process sees it.
    fn temporary(&self) -> Option<&Path> {
        match self {
            Self::Nothing => None,
            Self::Temporary(folder) => Some(folder.path()),
            Self::Room(_) => Some(Path::new("/tmp")),
        }
    }
}

/// The process of a launch: its program, its arguments, and an environment that is an allow-list.
pub fn process_spec(
    launch: &Launch,
    info: &Info,
    extra: &[(String, String)],
    request: &LaunchRequest,
    marker: &Marker,
    beside: &Beside,
) -> Spec {
    let program = match &launch.program {
        LaunchProgram::Named(name) => OsString::from(name),
        LaunchProgram::Itself => own_program(),
    };
    let args: Vec<OsString> = launch.args.iter().map(OsString::from).collect();
    let mut env = environment::of_child(std::env::vars_os(), info, &request.extra_env, &launch.env, extra);
    if let Some(folder) = beside.temporary() {
        let folder = OsString::from(folder);
        env.extend(TEMPORARY.iter().map(|name| (OsString::from(name), folder.clone())));
    }
    let (program, args) = around(program, args, info, request, beside, &env);
    Spec {
        program,
        args,
        env,
        cwd: request.working_dir.clone(),
        stdin: if launch.stdin { Stdin::Piped } else { Stdin::Null },
        marker: Some(marker.clone()),
    }
}

/// The process that holds a terminal for this one, and lets the other tell something behind it.
pub(super) fn on_terminal(mut process: Spec, last: Option<Spec>, run_dir: &Path) -> Spec {
    let words = |spec: Spec| std::iter::once(spec.program).chain(spec.args);
    let count = process.args.len() + 1;
    let mut args = vec![OsString::from(terminal::SUB_COMMAND), run_dir.into(), count.to_string().into()];
    let (program, own) = (std::mem::take(&mut process.program), std::mem::take(&mut process.args));
    args.extend(std::iter::once(program).chain(own));
    args.extend(last.into_iter().flat_map(words));
    Spec { program: own_program(), args, ..process }
}

/// The command line with what is put around the program.
fn around(
    program: OsString,
    args: Vec<OsString>,
    info: &Info,
    request: &LaunchRequest,
    beside: &Beside,
    env: &[(OsString, OsString)],
) -> (OsString, Vec<OsString>) {
    let path = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    let path = path.unwrap_or_default();
    match (beside, &request.room, &request.fence) {
        (Beside::Room(folder), Some(room), _) => {
            // One that is not there is told by whoever starts it, in words that name what is missing.
            let Ok(program) = find_program(&program, &path, &request.working_dir) else {
                return (program, args);
            };
            let surroundings = Surroundings {
                home: std::env::var_os("HOME").and_then(|home| PathBuf::from(home).canonicalize().ok()),
                variable: &|name| fence::variable(request, name),
                path,
                own_program: own_program().into(),
                program: PathBuf::from(&program),
                uid: room::own_uid(),
            };
            let plan = room::plan(folder, room, request, info, &surroundings);
            (own_program(), room::command_line(&plan, program.into(), args))
        }
        (_, _, Some(scope)) => {
            let mut places = fence::places(request, scope, info.id);
            places.extend(beside.temporary().and_then(|path| path.canonicalize().ok()));
            (own_program(), fence::command_line(&places, program, args))
        }
        _ => (program, args),
    }
}

/// The variables by which programs learn where temporary files go; Claude Code has one of its own.
const TEMPORARY: [&str; 4] = ["TMPDIR", "TMP", "TEMP", "CLAUDE_CODE_TMPDIR"];

/// This program. An update may have put another file into the place of ours; the kernel still has ours.
pub fn own_program() -> OsString {
    let kept = Path::new("/proc/self/exe");
    match std::env::current_exe() {
        Ok(path) if path.exists() => path.into(),
        _ if kept.exists() => kept.into(),
        _ => "svc".into(),
    }
}
