//! Commits from a runner's machine: `svc __far bring`, and who calls it.

use super::dialogue::{is_name, place_folder};
use super::worker_bundle::is_id;
use super::worker_host::{self, SAYS};
use super::worker_open::{Git, home};
use super::{Runner, worker_place};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::time::Duration;
use svc_sys::process::{Captured, Processes};

/// The whole call.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes that may come at once: they are held in memory.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of what stands before a bundle.
const HEAD_BYTES: usize = 64 << 10;

/// What was brought.
pub struct Brought {
    /// The last commit there.
    pub tip: String,
    /// A bundle of it, without what is here; empty where there is nothing new.
    pub bundle: Vec<u8>,
    /// Whether something there is in no commit.
    pub uncommitted: bool,
}

/// What is said before the bundle.
#[derive(Serialize, Deserialize)]
struct Head {
    tip: String,
    bytes: u64,
    uncommitted: bool,
}

/// Brings what an agent has committed there since `known`. With `settles` what it has left uncommitted
/// becomes a commit first.
///
/// Errors: a sentence.
pub fn bring(
    processes: &Processes,
    runner: &Runner,
    place: &str,
    work: &str,
    known: &str,
    settles: bool,
) -> Result<Brought, String> {
    if !is_name(place) || !is_name(work) || !is_id(known) {
        return Err("its work has no name there".to_owned());
    }
    let how = if settles { "settle" } else { "look" };
    let words = format!("bring {place} {work} {known} {how}");
    let spot = worker_place::find(processes, runner)?;
    let said = worker_host::run_far(processes, &spot, &words, LIMIT, BYTES_MAX)?;
    if said.truncated {
        return Err(format!("more than {} MiB have changed there; push them from there", BYTES_MAX >> 20));
    }
    let (head, bundle) = headed::<Head>(said)?;
    if !is_id(&head.tip) || u64::try_from(bundle.len()).ok() != Some(head.bytes) {
        return Err("what was brought is not whole".to_owned());
    }
    Ok(Brought { tip: head.tip, bundle, uncommitted: head.uncommitted })
}

/// What is said in a line, and all that stands behind it.
///
/// Errors: a sentence.
pub(super) fn headed<T: serde::de::DeserializeOwned>(said: Captured) -> Result<(T, Vec<u8>), String> {
    let complaint = worker_host::complaint(&said);
    let mut rest = said.stdout;
    let words = &rest[..rest.len().min(HEAD_BYTES)];
    let start =
        words.windows(SAYS.len()).position(|bytes| bytes == SAYS.as_bytes()).map(|at| at + SAYS.len());
    let line = start.and_then(|start| {
        let length = words[start..].iter().position(|byte| *byte == b'\n')?;
        Some(start..start + length)
    });
    let line = line.ok_or_else(|| format!("nothing was brought: {complaint}"))?;
    let head = serde_json::from_slice(&rest[line.clone()])
        .map_err(|error| format!("what it tells cannot be read: {error}"))?;
    rest.drain(..=line.end);
    Ok((head, rest))
}

/// The pack in a bundle that holds this commit and no other name.
///
/// Errors: it is none, or would name more.
pub fn pack_of<'a>(bundle: &'a [u8], tip: &str) -> Result<&'a [u8], String> {
    let mut rest = bundle;
    let mut is_first = true;
    let mut names = 0;
    loop {
        let length = rest.iter().take(HEAD_BYTES).position(|byte| *byte == b'\n');
        let length = length.ok_or("what was brought is no bundle")?;
        let (line, behind) = (&rest[..length], &rest[length + 1..]);
        rest = behind;
        let line = std::str::from_utf8(line).map_err(|_| "what was brought is no bundle")?;
        match line {
            "# v2 git bundle" | "# v3 git bundle" if is_first => {}
            _ if is_first => return Err("what was brought is no bundle".to_owned()),
            "" if names == 1 => return Ok(rest),
            "" => return Err("the bundle that was brought names no commit".to_owned()),
            // What it builds on is here, or the pack is refused.
            line if line.starts_with('-') || line.starts_with("@object-format=") => {}
            line if line.split_once(' ') == Some((tip, "HEAD")) => names += 1,
            _ => return Err("the bundle that was brought holds more than the agent's branch".to_owned()),
        }
        is_first = false;
    }
}

/// `svc __far bring PLACE WORK KNOWN settle|look`.
pub(super) fn far(place: &str, work: &str, known: &str, settles: bool) -> Result<(), String> {
    if !is_name(place) || !is_name(work) || !is_id(known) {
        return Err("a name leads elsewhere".to_owned());
    }
    let processes = Processes::start().map_err(|error| error.to_string())?;
    let folder = place_folder(&home()?, place).join(work);
    let tree = folder.join("tree");
    let git = Git { processes: &processes, folder: &tree };
    let changed = || git.run(&["status", "--porcelain", "--", ".", ":(top,exclude).svc"]);
    let mut uncommitted = !changed()?.trim().is_empty();
    if uncommitted && settles {
        git.run(&["add", "--all", "--", ".", ":(top,exclude).svc"])?;
        git.run(&["commit", "--quiet", "--no-verify", "-m", "Work that its agent has not committed itself"])?;
        uncommitted = !changed()?.trim().is_empty();
    }
    let tip = git.run(&["rev-parse", "HEAD"])?.trim().to_owned();
    let tell = |bytes: u64| worker_host::tell(&Head { tip: tip.clone(), bytes, uncommitted });
    if tip == known {
        return tell(0);
    }
    let path = folder.join("outgoing.bundle");
    let shown = path.to_string_lossy().into_owned();
    let mut args = vec!["bundle", "create", "--quiet", shown.as_str(), "HEAD"];
    if git.run(&["cat-file", "-e", &format!("{known}^{{commit}}")]).is_ok() {
        args.extend(["--not", known]);
    }
    let told = git.run(&args).and_then(|_| {
        let failed = |error: io::Error| error.to_string();
        let mut file = File::open(&path).map_err(failed)?;
        tell(file.metadata().map_err(failed)?.len())?;
        io::copy(&mut file, &mut io::stdout().lock()).map(|_| ()).map_err(failed)
    });
    let _ = fs::remove_file(&path);
    told
}

#[cfg(test)]
mod tests {
    use super::pack_of;

    #[test]
    fn a_bundle_is_one_of_the_commit_that_was_named_and_of_nothing_else() {
        let tip = "0123456789abcdef0123456789abcdef01234567";
        let bundle = |lines: &str| format!("# v2 git bundle\n{lines}\nPACK\n\nmore");
        let good = bundle(&format!("-{tip} before\n{tip} HEAD\n"));
        assert_eq!(pack_of(good.as_bytes(), tip), Ok(&b"PACK\n\nmore"[..]));
        for (text, words) in [
            (String::new(), "no bundle"),
            ("PACK".to_owned(), "no bundle"),
            ("x\n\nPACK".to_owned(), "no bundle"),
            (bundle(""), "names no commit"),
            (bundle(&format!("{tip} refs/heads/main\n")), "more than"),
            (bundle(&format!("{tip} HEAD\n{tip} refs/heads/main\n")), "more than"),
            (bundle(&format!("{} HEAD\n", "f".repeat(40))), "more than"),
            (bundle(&format!("{tip} HEAD\n{tip} HEAD\n")), "names no commit"),
            ("# v2 git bundle\n".to_owned() + &"x".repeat(100_000), "no bundle"),
        ] {
            assert!(pack_of(text.as_bytes(), tip).is_err_and(|why| why.contains(words)), "{text:.80}");
        }
    }
}
