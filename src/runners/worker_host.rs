//! Running this program on a runner: the very file that runs here is put there first, where it is not.
//!
//! ```text
//! ~/.cache/svc/bin/<SHA-256>/svc       0700, written beside and renamed when its hash is right
//! ```

use super::SUB_COMMAND;
use super::kind::{Line, Spot, engine};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use svc_base::hex;
use svc_base::untrusted::untrusted_prose;
use svc_sys::process::{Captured, Processes, Spec};

/// One call, connecting included.
const CALL_LIMIT: Duration = Duration::from_secs(25);
/// Copying this program.
const COPY_LIMIT: Duration = Duration::from_secs(90);
/// Bytes of an answer that are kept.
const ANSWER_BYTES: usize = 64 << 10;
/// Characters of what a client complains.
const COMPLAINT_CHARS: usize = 400;
/// This program's file, even when another one was put in its place.
const OWN_FILE: &str = "/proc/self/exe";
/// Before what is said to this program; a login shell may say more.
pub(super) const SAYS: &str = "svc-far ";
/// Said where the file is not there, with the system and the processor.
const ABSENT: &str = "svc-absent ";
const COPIED: &str = "svc-copied";
const DIFFERS: &str = "svc-differs";
/// What a client needs of the daemon's environment beyond what all tools get.
const CLIENT_VARIABLES: [&str; 7] = [
    "SSH_AUTH_SOCK",
    "LOGNAME",
    "XDG_RUNTIME_DIR",
    "KRB5CCNAME",
    "SSH_ASKPASS_REQUIRE",
    "SLURM_CONF",
    "KUBECONFIG",
];
/// The same by how their names begin: with which settings, and with which engine, podman, docker and sbatch
/// are to work.
const CLIENT_PREFIXES: [&str; 3] = ["CONTAINER", "DOCKER_", "SBATCH_"];

/// SHA-256 of this program, in hex.
///
/// Errors: its file cannot be read.
pub fn own_hash() -> Result<&'static str, String> {
    static HASH: OnceLock<Result<String, String>> = OnceLock::new();
    let hashed = HASH.get_or_init(|| {
        let file = own_file().map_err(|error| format!("this program's own file cannot be read: {error}"))?;
        Ok(hex::encode(&Sha256::digest(&file)))
    });
    hashed.as_ref().map(String::as_str).map_err(Clone::clone)
}

fn own_file() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(OWN_FILE)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Says something to the daemon that has called this program.
///
/// Errors: the system's words; whoever does not hear it has gone.
pub(super) fn tell(what: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(what).map_err(|error| error.to_string())?;
    let mut out = io::stdout().lock();
    writeln!(out, "{SAYS}{text}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// What a login shell is to run: `script` by the plain shell, whatever shell it is itself. There is no
/// quotation mark in it.
fn by_sh(script: &str) -> String {
    format!("exec sh -c '{script}'")
}

/// Runs this program there with these words; where its file is not there, says so.
pub(super) fn run_script(hash: &str, words: &str) -> String {
    by_sh(&format!(
        "p=$HOME/.cache/svc/bin/{hash}/svc; if [ -x \"$p\" ]; then exec \"$p\" {SUB_COMMAND} {words}; fi; \
         echo {ABSENT}$(uname -s) $(uname -m)"
    ))
}

/// What stands there as long as its input lasts, and has this program listen meanwhile, where it can.
pub(super) fn standing_script(hash: &str, number: &str) -> String {
    by_sh(&format!(
        "p=$HOME/.cache/svc/bin/{hash}/svc; if [ -x \"$p\" ]; then \"$p\" {SUB_COMMAND} doors {number}; fi; \
         exec cat >/dev/null"
    ))
}

/// Whether a line says that this program is not there.
pub(super) fn is_absent(line: &str) -> bool {
    line.starts_with(ABSENT)
}

fn copy_script(hash: &str) -> String {
    by_sh(&format!(
        "umask 077; d=$HOME/.cache/svc/bin/{hash}; mkdir -p \"$d\" || exit 3; t=$d/new.$$; \
         cat > \"$t\" || {{ rm -f \"$t\"; exit 3; }}; \
         s=$( (sha256sum \"$t\" || shasum -a 256 \"$t\") 2>/dev/null ); \
         case $s in {hash}*) chmod 700 \"$t\" && mv -f \"$t\" \"$d/svc\" && echo {COPIED};; \
         *) rm -f \"$t\"; echo {DIFFERS};; esac"
    ))
}

/// The process of a client or an engine.
pub(super) fn client(line: &Line) -> Spec {
    let args: Vec<&str> = line.args.iter().map(String::as_str).collect();
    let mut spec = Spec::tool(&line.program, &args, Path::new("/"));
    spec.env.extend(client_variables());
    spec
}

fn client_variables() -> impl Iterator<Item = (OsString, OsString)> {
    let is_ours = |name: &str| {
        CLIENT_VARIABLES.contains(&name) || CLIENT_PREFIXES.iter().any(|start| name.starts_with(start))
    };
    std::env::vars_os().filter(move |(name, _)| name.to_str().is_some_and(is_ours))
}

/// All variables of a process that is to start such a client.
pub fn line_variables() -> Vec<(OsString, OsString)> {
    Spec::tool("", &[], Path::new("/")).env.into_iter().chain(client_variables()).collect()
}

/// What [`call`] has come to.
pub(super) struct Answer {
    /// The line for this program, without [`SAYS`].
    pub said: String,
    /// Whether the file had to be copied.
    pub copied: bool,
    /// How long the call took that was answered, in milliseconds.
    pub took_ms: u64,
}

/// Runs this program on a runner with these words, and copies it there before if need be.
///
/// Errors: a sentence for people.
pub(super) fn call(processes: &Processes, spot: &Spot, words: &str) -> Result<Answer, String> {
    let hash = own_hash()?;
    let mut copied = false;
    loop {
        let began = std::time::Instant::now();
        let said = run(processes, spot, &run_script(hash, words), b"", (CALL_LIMIT, ANSWER_BYTES))?;
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let text = String::from_utf8_lossy(&said.stdout);
        let line = |mark: &str| text.lines().find_map(|line| line.strip_prefix(mark)).map(str::to_owned);
        if let Some(said) = line(SAYS) {
            return Ok(Answer { said, copied, took_ms });
        }
        match line(ABSENT) {
            Some(machine) if !copied => {
                check_machine(&machine)?;
                copy(processes, spot)?;
                copied = true;
            }
            _ => return Err(unable(&said)),
        }
    }
}

/// Runs this program there with these words, where it is; all that it prints.
///
/// Errors: a sentence for people.
pub(super) fn run_far(
    processes: &Processes,
    spot: &Spot,
    words: &str,
    limit: Duration,
    max_bytes: usize,
) -> Result<Captured, String> {
    let said = run(processes, spot, &run_script(own_hash()?, words), b"", (limit, max_bytes))?;
    if String::from_utf8_lossy(&said.stdout).lines().take(10).any(is_absent) {
        return Err("this program is not on that machine any more: svc runner check puts it there".to_owned());
    }
    Ok(said)
}

/// The program that runs here can run on a machine that calls itself so.
fn check_machine(machine: &str) -> Result<(), String> {
    let own = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let same = machine.trim().eq_ignore_ascii_case(&own);
    if same {
        return Ok(());
    }
    Err(format!(
        "that machine is {}, and this program is for {own}: it is not copied there",
        untrusted_prose(machine)
    ))
}

/// Puts this program there.
///
/// Errors: a sentence for people.
pub(super) fn copy(processes: &Processes, spot: &Spot) -> Result<(), String> {
    let hash = own_hash()?;
    let file = own_file().map_err(|error| format!("this program's own file cannot be read: {error}"))?;
    let said = run(processes, spot, &copy_script(hash), &file, (COPY_LIMIT, ANSWER_BYTES))?;
    let text = String::from_utf8_lossy(&said.stdout);
    if text.lines().any(|line| line == COPIED) {
        return Ok(());
    }
    if text.lines().any(|line| line == DIFFERS) {
        return Err("what arrived there is not what was sent, by SHA-256, or that machine has neither \
                    sha256sum nor shasum; nothing was left there"
            .to_owned());
    }
    Err(format!("the program could not be copied there: {}", complaint(&said)))
}

/// Why the file that is there did not answer.
fn unable(said: &Captured) -> String {
    let words = complaint(said);
    match said.exit.code {
        // The shell's words for a file that is there, and needs a loader or a library that is not.
        Some(126 | 127) => format!(
            "the program was copied, and that machine cannot run it ({words}): it needs shared libraries that are \
             not there. Use a static one: make static, or an installed svc"
        ),
        code => format!(
            "the program there has not answered (exit code {}): {words}",
            code.map_or_else(|| "none".to_owned(), |code| code.to_string())
        ),
    }
}

fn run(
    processes: &Processes,
    spot: &Spot,
    script: &str,
    input: &[u8],
    (limit, max_bytes): (Duration, usize),
) -> Result<Captured, String> {
    let engine = engine(spot.kind);
    let line = (engine.run)(spot, script);
    let said = processes.capture(&client(&line), input, limit, max_bytes)?;
    if engine.refusal.is_none() || said.exit.code != engine.refusal {
        return Ok(said);
    }
    let (program, words, Spot { destination, .. }) = (&line.program, complaint(&said), spot);
    let place = engine.places.as_ref().map(|places| format!("the {} of {destination}", places.noun));
    Err(place.map_or_else(
        || {
            format!(
                "{program} cannot reach {destination}: {words}; it asks nobody here, so connect once yourself: \
                 {program} {destination}"
            )
        },
        |place| format!("{program} cannot reach {place}: {words}"),
    ))
}

/// The client's last words, or the shell's.
pub(super) fn complaint(said: &Captured) -> String {
    let text = String::from_utf8_lossy(&said.stderr);
    let last: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = last.get(last.len().saturating_sub(2)..).unwrap_or_default().join("; ");
    let words: String = untrusted_prose(&last).chars().take(COMPLAINT_CHARS).collect();
    if words.is_empty() { "it said nothing".to_owned() } else { words }
}
