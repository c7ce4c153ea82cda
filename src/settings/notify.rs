//! What tells a person's desktop that something waits.

use serde::Deserialize;
use serde_json::Value;

/// `notify`.
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
pub struct Notify {
    /// The program and its arguments; empty for none. From the person's own file alone.
    pub command: Vec<String>,
}

/// Arguments of the command at most, the program among them.
pub const MAX_ARGS: usize = 32;
/// Characters of each of them.
pub const MAX_ARG_CHARS: usize = 1_000;

/// What is wrong with a command.
pub(super) fn check(value: &Value) -> Option<String> {
    let is_arg = |arg: &Value| {
        arg.as_str().is_some_and(|arg| arg.chars().count() <= MAX_ARG_CHARS && !arg.contains('\0'))
    };
    let has_program = |args: &[Value]| args.first().is_none_or(|program| program.as_str() != Some(""));
    let fits = value
        .as_array()
        .is_some_and(|args| args.len() <= MAX_ARGS && args.iter().all(is_arg) && has_program(args));
    (!fits).then(|| {
        format!(
            "must be a list of a program and its arguments, at most {MAX_ARGS} texts of {MAX_ARG_CHARS} \
             characters"
        )
    })
}
