//! The environment of an agent: an allow-list, never the daemon's own.

use super::fence;
use crate::providers::{Info, Launch, LaunchProgram, LaunchRequest};
use crate::runtime::process::{Marker, Spec, Stdin};
use std::ffi::OsString;

/// The process of a launch: its program, its arguments, and an environment that is an allow-list.
pub fn process_spec(
    launch: &Launch,
    info: &Info,
    extra: &[(String, String)],
    request: &LaunchRequest,
    marker: &Marker,
) -> Spec {
    let program = match &launch.program {
        LaunchProgram::Named(name) => OsString::from(name),
        LaunchProgram::Itself => own_program(),
    };
    let args: Vec<OsString> = launch.args.iter().map(OsString::from).collect();
    let (program, args) = match &request.fence {
        Some(scope) => {
            let places = fence::places(&request.base_dir(), &request.working_dir, scope);
            (own_program(), fence::command_line(&places, program, args))
        }
        None => (program, args),
    };
    Spec {
        program,
        args,
        env: child_environment(std::env::vars_os(), info.pass_env, &launch.env, extra),
        cwd: request.working_dir.clone(),
        stdin: if launch.stdin { Stdin::Piped } else { Stdin::Null },
        marker: Some(marker.clone()),
    }
}

fn own_program() -> OsString {
    std::env::current_exe().map_or_else(|_| "svc".into(), OsString::from)
}

/// What every program needs. A trailing `*` takes all with that prefix. `SSH_AUTH_SOCK` is left out: keys
/// that sign for the user are not an agent's by default.
const COMMON: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TERM", "TMPDIR", "TZ", "XDG_*"];

/// What a child gets: the common variables and the provider's `pass` of those `inherited`, then the
/// launch's own, then `extra`. A later value replaces an earlier one.
fn child_environment(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    pass: &[&str],
    launch: &[(String, String)],
    extra: &[(String, String)],
) -> Vec<(OsString, OsString)> {
    let is_allowed = |name: &OsString| {
        name.to_str().is_some_and(|name| COMMON.iter().chain(pass).any(|p| matches(p, name)))
    };
    let own = launch.iter().chain(extra).map(|(name, value)| (name.into(), value.into()));
    inherited.filter(|(name, _)| is_allowed(name)).chain(own).collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_2_the_environment_is_an_allow_list() {
        let inherited =
            ["PATH", "LC_TIME", "SECRET", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "PATHS", "SVC_X"];
        let inherited = inherited.map(|name| (name.into(), "1".into()));
        let own = |name: &str| vec![(name.to_owned(), "2".to_owned())];
        let env =
            child_environment(inherited.into_iter(), &["ANTHROPIC_*"], &own("PATH"), &own("SVC_AGENT_ID"));
        let text: Vec<String> = env.iter().map(|(n, v)| format!("{}={}", n.display(), v.display())).collect();
        assert_eq!(text, ["PATH=1", "LC_TIME=1", "ANTHROPIC_API_KEY=1", "PATH=2", "SVC_AGENT_ID=2"]);
    }
}
