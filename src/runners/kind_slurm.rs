//! Jobs of Slurm: nothing, or the name of a partition. One job a runner, which holds one node, and in which
//! all of its agents are; how long and how large it is says what the person has told Slurm (`SBATCH_*`).
//!
//! Slurm ends what a step has started with the step, and a line is a step. So the script of the job starts
//! the keepers: it is told of them through a pipe in its folder, see [`super::worker_begin`].

use super::kind::{Engine, Key, Line, MAX_DESTINATION_BYTES, Places, Said, Seen, Spot, is_plain};
use svc_base::untrusted::untrusted_prose;

/// What goes there of this machine's variables.
const SENT: &str = "--export=HOME,PATH,USER,LOGNAME,LANG";
/// What lives in the job: it starts each keeper that it is told of. What it is told is a path of this
/// program there, and of the folder of a run.
const SCRIPT: &str = r#"#!/bin/sh
umask 077
d=$HOME/.local/state/svc/jobs/$SLURM_JOB_ID
mkdir -p "$d" && rm -f "$d/begin" && mkfifo "$d/begin" && exec 3<>"$d/begin" || exit 1
trap 'rm -rf "$d"; exit 0' TERM
while read -r program run <&3; do
  "$program" __far begin "$run" 3<&- &
done
"#;

/// What there is to know of the kind `slurm`.
pub static ENGINE: Engine = Engine {
    fault,
    run,
    refusal: None,
    open: "open job",
    places: Some(Places {
        noun: "job",
        look,
        seen,
        make,
        wake: None,
        end: |_, id| Line::new("scancel", &["--full", id]),
    }),
};

fn fault(destination: &str) -> Option<String> {
    let fits = destination.len() <= MAX_DESTINATION_BYTES
        && (destination.is_empty() || is_plain(destination, "._-"));
    (!fits).then(|| {
        format!(
            "must be a partition's name or nothing, of at most {MAX_DESTINATION_BYTES} of A-Z a-z 0-9 . _ - and not \
             begin with -"
        )
    })
}

/// Without a buffer, or Slurm keeps back what does not end with a line's end.
fn run(spot: &Spot, script: &str) -> Line {
    let job = format!("--jobid={}", spot.id);
    let own = ["--overlap", "--quiet", "--unbuffered", "--nodes=1", "--ntasks=1", SENT];
    let shell = ["sh", "-c", script];
    Line::new("srun", &[&[job.as_str()][..], &own, &shell].concat())
}

fn make(destination: &str, name: &str) -> Line {
    let (name_is, partition) = (format!("--job-name={name}"), format!("--partition={destination}"));
    let own = ["--parsable", "--nodes=1", "--ntasks=1", "--no-requeue", "--output=/dev/null", SENT];
    let mut args = [&own[..], &[&name_is]].concat();
    if !destination.is_empty() {
        args.push(&partition);
    }
    Line { input: SCRIPT.to_owned(), ..Line::new("sbatch", &args) }
}

/// The person's own jobs alone: another's may have that name.
fn look(_: &str, key: Key<'_>) -> Line {
    let which = match key {
        Key::Name(name) => format!("--name={name}"),
        Key::Id(id) => format!("--jobs={id}"),
    };
    Line::new("squeue", &["--me", "--noheader", "--states=all", "--format=%i|%T|%r", &which])
}

fn seen(key: Key<'_>, said: &Said) -> Result<Seen, String> {
    if !said.is_success {
        let is_absent = said.stderr.contains("Invalid job id");
        return if is_absent { Ok(Seen::Nothing) } else { Err(said.stderr.clone()) };
    }
    let mut last = Seen::Nothing;
    for line in said.stdout.lines() {
        let mut words = line.split('|').map(str::trim);
        let mut word = || words.next().unwrap_or_default();
        let (id, state, reason) = (word(), word(), word());
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        if !is_id || matches!(key, Key::Id(wanted) if wanted != id) {
            continue;
        }
        let shown = untrusted_prose(reason);
        match state {
            "RUNNING" => return Ok(Seen::Stands(id.to_owned())),
            "PENDING" | "CONFIGURING" | "SUSPENDED" | "REQUEUED" | "RESIZING" | "SPECIAL_EXIT" => {
                return Ok(Seen::Waits(id.to_owned(), format!("{id} waits in the queue: {state}, {shown}")));
            }
            state => last = Seen::Over(format!("{id} is over: {}", untrusted_prose(state))),
        }
    }
    Ok(last)
}
