//! What a line sends of a repository: a bundle of its agent's branch.

use super::worker_client::without_lent;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use svc_base::untrusted::untrusted_prose;

/// Bytes of a bundle; a larger one is refused.
pub(super) const BUNDLE_BYTES_MAX: u64 = 4 << 30;
/// Commits that the other end may say it has.
pub(super) const HAVE_MAX: usize = 100;

/// Sends the branch without what these commits have, behind its length.
///
/// Errors: a sentence.
pub(super) fn send(
    project: &Path,
    branch: &str,
    have: &[String],
    scratch: &Path,
    out: &mut impl Write,
) -> Result<(), String> {
    let branch = format!("refs/heads/{branch}");
    let shown = scratch.to_string_lossy().into_owned();
    let mut args = vec!["bundle", "create", "--quiet", shown.as_str(), branch.as_str()];
    let is_commit = |id: &&String| git(project, &["cat-file", "-e", &format!("{id}^{{commit}}")]).is_ok();
    let named = have.iter().take(HAVE_MAX).filter(|id| is_id(id));
    let known: Vec<&str> = named.filter(is_commit).map(String::as_str).collect();
    if !known.is_empty() {
        args.push("--not");
        args.extend(known);
    }
    git(project, &args)?;
    let sent = File::open(scratch).and_then(|mut file| {
        let length = file.metadata()?.len();
        if length > BUNDLE_BYTES_MAX {
            return Err(io::Error::other("it is larger than 4 GiB, and is not sent"));
        }
        out.write_all(&length.to_le_bytes())?;
        io::copy(&mut file, out)
    });
    let _ = fs::remove_file(scratch);
    sent.map(|_| ()).map_err(|error| format!("the repository could not be sent: {error}"))
}

/// A full name of an object.
pub(super) fn is_id(word: &str) -> bool {
    (40..=64).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The commit of a branch.
///
/// Errors: a sentence.
pub(super) fn tip(project: &Path, branch: &str) -> Result<String, String> {
    let said =
        git(project, &["rev-parse", "--verify", "--quiet", &format!("refs/heads/{branch}^{{commit}}")])?;
    let tip = said.trim().to_owned();
    if is_id(&tip) { Ok(tip) } else { Err(format!("there is no branch {branch}")) }
}

/// Git on names and objects alone: it runs nothing that a repository's settings name.
fn git(project: &Path, args: &[&str]) -> Result<String, String> {
    let settings = ["core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "protocol.allow=never"];
    let said = without_lent(&mut Command::new("git"))
        .args(settings.iter().flat_map(|one| ["-c", *one]))
        .args(args)
        .current_dir(project)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "none")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    if said.status.success() {
        return Ok(String::from_utf8_lossy(&said.stdout).into_owned());
    }
    Err(format!("git failed: {}", untrusted_prose(&String::from_utf8_lossy(&said.stderr))))
}
