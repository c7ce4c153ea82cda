//! The environment of an agent: an allow-list, never the daemon's own.

use super::fence::{self, Temporary};
use crate::providers::{Info, Launch, LaunchProgram, LaunchRequest, environment};
use std::ffi::OsString;
use std::path::Path;
use svc_sys::process::{Marker, Spec, Stdin};

/// The temporary folder of a process that is fenced in; `None` for one that is not.
///
/// Errors: it cannot be made.
pub fn temporary_folder(request: &LaunchRequest) -> Result<Option<Temporary>, String> {
    request.fence.as_ref().map(|_| Temporary::make()).transpose()
}

/// The process of a launch: its program, its arguments, and an environment that is an allow-list.
pub fn process_spec(
    launch: &Launch,
    info: &Info,
    extra: &[(String, String)],
    request: &LaunchRequest,
    marker: &Marker,
    temporary: Option<&Temporary>,
) -> Spec {
    let program = match &launch.program {
        LaunchProgram::Named(name) => OsString::from(name),
        LaunchProgram::Itself => own_program(),
    };
    let args: Vec<OsString> = launch.args.iter().map(OsString::from).collect();
    let (program, args) = match &request.fence {
        Some(scope) => {
            let mut places = fence::places(&request.base_dir(), &request.working_dir, scope, info.id);
            places.extend(temporary.map(|folder| folder.path().to_path_buf()));
            (own_program(), fence::command_line(&places, program, args))
        }
        None => (program, args),
    };
    let mut env = environment::of_child(std::env::vars_os(), info, &request.extra_env, &launch.env, extra);
    if let Some(folder) = temporary {
        let folder = OsString::from(folder.path());
        env.extend(TEMPORARY.iter().map(|name| (OsString::from(name), folder.clone())));
    }
    Spec {
        program,
        args,
        env,
        cwd: request.working_dir.clone(),
        stdin: if launch.stdin { Stdin::Piped } else { Stdin::Null },
        marker: Some(marker.clone()),
    }
}

/// The variables by which programs learn where temporary files go; Claude Code has one of its own.
const TEMPORARY: [&str; 4] = ["TMPDIR", "TMP", "TEMP", "CLAUDE_CODE_TMPDIR"];

/// This program. An update may have put another file into the place of ours; the kernel still has ours.
fn own_program() -> OsString {
    let kept = Path::new("/proc/self/exe");
    match std::env::current_exe() {
        Ok(path) if path.exists() => path.into(),
        _ if kept.exists() => kept.into(),
        _ => "svc".into(),
    }
}
