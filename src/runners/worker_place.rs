//! The places of runners that are no machines of their own: made when they are first needed, looked at,
//! ended. What there is says the engine, so nothing of it is written down here.

use super::kind::{Key, Line, Places, Said, Seen, Spot, engine, place_name};
use super::worker_host::{client, complaint, copy};
use super::{Kind, Runner};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use svc_sys::process::{PLACE_VARIABLE, Processes};
use svc_sys::threads::lock;

/// A look, and one call to start or end what is there.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Making one: an image may have to be brought first.
const MAKE_LIMIT: Duration = Duration::from_secs(140);
/// How long a check waits for one that waits itself.
const SOON: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Looks until one that was made has to be seen.
const LOOKS: usize = 3;
/// Bytes of what an engine says.
const SAID_BYTES: usize = 64 << 10;

/// One at a time makes or ends a runner's place, by its name.
static TURNS: Mutex<BTreeMap<String, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());

/// A place that was asked for.
pub struct Had {
    pub spot: Spot,
    /// Why nothing can be run there yet.
    waits: Option<String>,
    is_new: bool,
}

fn said(processes: &Processes, line: &Line, limit: Duration) -> Result<Said, String> {
    let mut spec = client(line);
    // podman has a process of its own beside each container, which is adopted by this one.
    spec.env.push((PLACE_VARIABLE.into(), "1".into()));
    let captured = processes.capture(&spec, line.input.as_bytes(), limit, SAID_BYTES)?;
    let stdout = String::from_utf8_lossy(&captured.stdout).into_owned();
    Ok(Said { is_success: captured.is_success(), stdout, stderr: complaint(&captured) })
}

/// Runs what makes, starts or ends a place.
fn done(processes: &Processes, line: &Line, limit: Duration) -> Result<(), String> {
    let said = said(processes, line, limit)?;
    let what = line.args.first().map_or("", String::as_str);
    if said.is_success { Ok(()) } else { Err(format!("{} {what}: {}", line.program, said.stderr)) }
}

fn look(processes: &Processes, places: &Places, runner: &Runner, name: &str) -> Result<Seen, String> {
    let (line, key) = ((places.look)(&runner.destination, Key::Name(name)), Key::Name(name));
    let said = said(processes, &line, CALL_LIMIT)?;
    (places.seen)(key, &said).map_err(|error| format!("{}: {error}", line.program))
}

fn spot(runner: &Runner, id: String) -> Spot {
    Spot { kind: runner.kind, destination: runner.destination.clone(), id }
}

/// Where a runner is that stands.
///
/// Errors: a sentence; it does not.
pub fn find(processes: &Processes, runner: &Runner) -> Result<Spot, String> {
    let Some(places) = &engine(runner.kind).places else { return Ok(spot(runner, String::new())) };
    let noun = places.noun;
    match look(processes, places, runner, &place_name(runner))? {
        Seen::Stands(id) => Ok(spot(runner, id)),
        Seen::Stopped(_) => Err(format!("its {noun} is stopped; svc runner check {} starts it", runner.name)),
        Seen::Waits(_, why) | Seen::Over(why) => Err(format!("its {noun} {why}")),
        Seen::Nothing => Err(format!("its {noun} is not there any more, nor what was in it alone")),
    }
}

/// Where a runner is; its place is made, or started again, where it does not stand.
///
/// Errors: a sentence.
pub fn have(processes: &Processes, runner: &Runner) -> Result<Had, String> {
    let had = |id, waits, is_new| Ok(Had { spot: spot(runner, id), waits, is_new });
    let Some(places) = &engine(runner.kind).places else { return had(String::new(), None, false) };
    let name = place_name(runner);
    let turn = turn(&name);
    let _turn = lock(&turn);
    let mut is_new = false;
    for _ in 0..LOOKS {
        match (look(processes, places, runner, &name)?, places.wake) {
            (Seen::Stands(id), _) => return had(id, None, is_new),
            (Seen::Waits(id, why), _) => return had(id, Some(why), is_new),
            (Seen::Stopped(id), Some(wake)) => {
                done(processes, &wake(&runner.destination, &id), CALL_LIMIT)?;
            }
            _ if is_new => thread::sleep(LOOK_AGAIN),
            _ => {
                let made = done(processes, &(places.make)(&runner.destination, &name), MAKE_LIMIT);
                made.map_err(|why| format!("its {} could not be made: {why}", places.noun))?;
                is_new = true;
            }
        }
    }
    Err(format!("its {} was made, and does not stay", places.noun))
}

/// As [`have`], for somebody who waits a little for one that waits itself.
///
/// Errors: a sentence, also when it waits for longer.
pub fn have_soon(processes: &Processes, runner: &Runner) -> Result<Spot, String> {
    soon(processes, runner).map(|had| had.spot)
}

fn soon(processes: &Processes, runner: &Runner) -> Result<Had, String> {
    let until = Instant::now() + SOON;
    let mut is_new = false;
    loop {
        let had = have(processes, runner)?;
        is_new |= had.is_new;
        let Some(why) = had.waits else { return Ok(Had { is_new, ..had }) };
        if Instant::now() >= until {
            let noun = engine(runner.kind).places.as_ref().map_or("", |places| places.noun);
            return Err(format!("its {noun} {why}; svc runner check {} looks again", runner.name));
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// A place that this program is in.
pub struct Ready {
    pub spot: Spot,
    /// Nothing can be run there yet.
    pub waits: bool,
    /// This program had to be put there.
    pub copied: bool,
}

/// As [`have`], with this program in it: one that was made anew has none.
///
/// Errors: a sentence.
pub fn ready(processes: &Processes, runner: &Runner) -> Result<Ready, String> {
    // The files of a job are those of the person's home, and it may wait for hours.
    let is_job = runner.kind == Kind::Slurm;
    let had = if is_job { have(processes, runner)? } else { soon(processes, runner)? };
    let copied = had.is_new && !is_job;
    if copied {
        copy(processes, &had.spot)?;
    }
    Ok(Ready { spot: had.spot, waits: had.waits.is_some(), copied })
}

/// Ends a runner's place, if it has one.
///
/// Errors: what may be left, and how it is ended by hand.
pub fn end(processes: &Processes, runner: &Runner) -> Result<(), String> {
    let Some(places) = &engine(runner.kind).places else { return Ok(()) };
    let name = place_name(runner);
    let turn = turn(&name);
    let _turn = lock(&turn);
    lock(&TURNS).remove(&name);
    let left = |why: String| format!("the {} {name} may be left: {why}", places.noun);
    match look(processes, places, runner, &name).map_err(left)? {
        Seen::Stands(id) | Seen::Waits(id, _) | Seen::Stopped(id) => {
            done(processes, &(places.end)(&runner.destination, &id), CALL_LIMIT).map_err(left)
        }
        Seen::Over(_) | Seen::Nothing => Ok(()),
    }
}

fn turn(name: &str) -> Arc<Mutex<()>> {
    let mut turns = lock(&TURNS);
    Arc::clone(turns.entry(name.to_owned()).or_default())
}
