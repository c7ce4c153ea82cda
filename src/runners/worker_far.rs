//! `svc __far`: this program on a runner's machine, called by the daemon on another one.

use super::Facts;
use super::dialogue::is_name;
use super::worker_begin;
use super::worker_host::{own_hash, tell};
use super::worker_open::{self, home};
use super::worker_parcel::{self, Work};
use super::{worker_bring, worker_direct, worker_tidy};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use svc_room::{TRY, Tried};
use svc_sys::process::{Captured, Processes, Spec};

/// The hidden sub-command.
pub const SUB_COMMAND: &str = "__far";
/// How long git may take to say its name.
const GIT_LIMIT: Duration = Duration::from_secs(5);
/// How long the try of a room may take.
const TRY_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of what either prints.
const ANSWER_BYTES: usize = 4 << 10;
/// This program.
const OWN_FILE: &str = "/proc/self/exe";

/// Runs it.
pub fn main(args: &[OsString]) -> ExitCode {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let told = match words.as_slice() {
        ["check"] => facts().and_then(|facts| tell(&facts)),
        ["doors", number] if is_name(number) => worker_direct::main(number),
        ["open"] => return worker_open::main(false),
        ["open", "job"] => return worker_open::main(true),
        ["begin", run] => worker_begin::begin(Path::new(run)),
        ["session", place, work, provider, session, folder] => {
            worker_parcel::far(&Work { place, work }, provider, session, folder)
        }
        ["bring", place, work, known, how] => worker_bring::far(place, work, known, *how == "settle"),
        ["end", place, works @ ..] => worker_tidy::far_end(place, works),
        ["clear", place, works @ ..] => worker_tidy::far_clear(place, works),
        _ => Err(format!("{SUB_COMMAND} is for the daemon of another machine: see svc help runner")),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("svc: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What this machine has.
fn facts() -> Result<Facts, String> {
    let processes = Processes::start().map_err(|error| error.to_string())?;
    let asked = Spec::tool("git", &["--version"], Path::new("/"));
    let git = processes.capture(&asked, b"", GIT_LIMIT, ANSWER_BYTES).ok().filter(Captured::is_success);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").map_err(|error| error.to_string())?;
    let memory = fs::read_to_string("/proc/meminfo").map_err(|error| error.to_string())?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: own_hash()?.to_owned(),
        kernel: kernel.trim().to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        home: home()?.to_str().ok_or("HOME there is no text")?.to_owned(),
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
        memory: megabytes(&memory, "MemTotal:"),
        available: megabytes(&memory, "MemAvailable:"),
        no_room: why_no_room(&processes),
        git: git.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned()),
    })
}

/// Why this machine's kernel gives no rooms, if it does not.
fn why_no_room(processes: &Processes) -> Option<String> {
    let tried = Spec::tool(OWN_FILE, &[svc_room::SUB_COMMAND, TRY], Path::new("/"));
    match processes.capture(&tried, b"", TRY_LIMIT, ANSWER_BYTES) {
        Ok(said) => Tried::read(&said.stdout).refusal.map(|refusal| refusal.reason),
        Err(error) => Some(error),
    }
}

/// A line of `/proc/meminfo`, which counts in units of 1024 bytes.
fn megabytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) / 1024
}
