//! A keeper in a job of Slurm. What a step has started ends with the step, so `svc __far open`, which is one,
//! has the script of the job start it: through a pipe with a name, of the job's user alone.
//!
//! ```text
//! ~/.local/state/svc/jobs/<job>/begin      a line each: this program, and the folder of a run
//!                     <run>/begin.json     what is to be begun
//!                     <run>/begin.error    why it was not
//! ```

use super::dialogue::Opening;
use super::worker_open::{self, home};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use svc_keeper::client::{self, Next};
use svc_sys::process::Processes;

/// How long the keeper may take to be there.
const LIMIT: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The variable with the number of the job.
const JOB: &str = "SLURM_JOB_ID";
const PIPE: &str = "begin";
const ORDER: &str = "begin.json";
const FAILED: &str = "begin.error";

#[derive(Serialize, Deserialize)]
struct Order {
    opening: Opening,
    tree: PathBuf,
}

/// Has the job's script start the keeper of a run.
///
/// Errors: a sentence; none runs then.
pub(super) fn ask(opening: &Opening, run: &Path, tree: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", run.display());
    DirBuilder::new().recursive(true).mode(0o700).create(run).map_err(failed)?;
    let order = Order { opening: opening.clone(), tree: tree.to_path_buf() };
    let text = serde_json::to_vec(&order).map_err(|error| error.to_string())?;
    fs::write(run.join(ORDER), text).map_err(failed)?;
    let own = std::env::current_exe().map_err(failed)?;
    let line = format!("{} {}\n", own.display(), run.display());
    if line.split_whitespace().count() != 2 {
        return Err("HOME there has white space in it".to_owned());
    }
    let job = std::env::var(JOB).ok().filter(|job| job.bytes().all(|byte| byte.is_ascii_digit()));
    let job = job.ok_or("there is no job of Slurm around it")?;
    let pipe = home()?.join(".local/state/svc/jobs").join(job).join(PIPE);
    let until = Instant::now() + LIMIT;
    // Where nobody reads it that fails, and does not wait. A step may run before the job's script does.
    let told = loop {
        match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(&pipe) {
            Err(_) if Instant::now() < until => thread::sleep(LOOK_AGAIN),
            told => break told,
        }
    };
    let mut told =
        told.map_err(|error| format!("the job's script is not there: {}: {error}", pipe.display()))?;
    told.write_all(line.as_bytes()).map_err(failed)?;
    while Instant::now() < until {
        if client::door(run).is_ok_and(|door| door.is_some()) {
            return Ok(());
        }
        if let Ok(why) = fs::read_to_string(run.join(FAILED)) {
            return Err(why);
        }
        thread::sleep(LOOK_AGAIN);
    }
    Err(format!("the job's script has started no keeper within {} s", LIMIT.as_secs()))
}

/// `svc __far begin RUN`.
pub(super) fn begin(run: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", run.display());
    let path = run.join(ORDER);
    let text = fs::read(&path).map_err(failed)?;
    fs::remove_file(&path).map_err(failed)?;
    let begun = serde_json::from_slice(&text).map_err(|error| error.to_string()).and_then(|order| {
        let Order { opening, tree } = order;
        let processes = Processes::start().map_err(|error| error.to_string())?;
        worker_open::begin(&processes, &opening, &[], run, &tree)
    });
    match begun {
        // Held until the one that has asked takes over: a keeper without a daemon may end its program.
        Ok(mut link) => {
            let until = Instant::now() + LIMIT;
            while matches!(link.reader.next(Some(until)), Next::Records { .. } | Next::Woken) {}
            Ok(())
        }
        Err(why) => {
            let _ = fs::write(run.join(FAILED), &why);
            Err(why)
        }
    }
}
