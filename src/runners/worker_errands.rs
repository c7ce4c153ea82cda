//! The threads that do errands, one for a machine at a time: see [`super::errands`].
//!
//! A tree on a machine goes only when the commit that it stands at is in the project here, and it holds
//! nothing that no commit does. What stays is told.

use super::errands::{Done, Errand, Order, Report};
use super::worker_bring::headed;
use super::worker_tidy::{Cleared, Found, KEEP, NONE};
use super::{Runner, worker_bundle, worker_host, worker_place};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use svc_base::untrusted::untrusted_prose;
use svc_sys::process::{Captured, Processes, Spec};

/// One call: what is to end has [`super::worker_tidy`]'s 20 s of it.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of an answer.
const ANSWER_BYTES: usize = 64 << 10;
/// One look of git here.
const GIT_LIMIT: Duration = Duration::from_secs(20);
/// Bytes of what git says here.
const GIT_BYTES: usize = 4 << 10;
/// Characters of why something stays.
const WHY_CHARS: usize = 200;

/// Does errands.
pub struct Errands {
    processes: Arc<Processes>,
    project: PathBuf,
    report: Arc<dyn Fn(Report) + Send + Sync>,
}

impl Errands {
    /// Nothing is done yet.
    pub fn new(
        processes: Arc<Processes>,
        project: PathBuf,
        report: impl Fn(Report) + Send + Sync + 'static,
    ) -> Self {
        Self { processes, project, report: Arc::new(report) }
    }

    /// Does it, without waiting for it; nor does anybody when the daemon ends: the next one does it again.
    ///
    /// Errors: there is no thread for it.
    pub fn order(&self, order: Order) -> Result<(), Report> {
        let Order { runner, errands } = order;
        let (processes, project, report) =
            (Arc::clone(&self.processes), self.project.clone(), Arc::clone(&self.report));
        let told = |outcome| Report { runner: runner.name.clone(), errands: errands.clone(), outcome };
        let failed = told(Err("no thread for it".to_owned()));
        let body = move || {
            let outcome = run(&processes, &project, &runner, &errands);
            if let Err(why) = &outcome {
                log::info!("runner {}: {} errands wait: {why}", runner.name, errands.len());
            }
            report(Report { runner: runner.name.clone(), errands, outcome });
        };
        let spawned = thread::Builder::new().name("errand".into()).spawn(body);
        spawned.map(drop).map_err(|_| failed)
    }
}

/// Those that are done.
///
/// Errors: a sentence; that machine was not reached.
fn run(
    processes: &Processes,
    project: &Path,
    runner: &Runner,
    errands: &[Arc<Errand>],
) -> Result<Vec<Done>, String> {
    let spot = worker_place::find(processes, runner)?;
    let call = |word: &str, words: &[String]| {
        let words = format!("{word} {} {}", runner.folder, words.join(" "));
        worker_host::run_far(processes, &spot, &words, LIMIT, ANSWER_BYTES)
    };
    let named = |errand: &Arc<Errand>| {
        let lives = errand.ends.iter().map(ToString::to_string);
        [errand.lineage.to_string()].into_iter().chain(lives).collect::<Vec<_>>().join(".")
    };
    let found: Vec<Found> = answered(call("end", &errands.iter().map(named).collect::<Vec<_>>())?)?;
    let (mut done, mut words) = (Vec::new(), Vec::new());
    for errand in errands {
        let work = errand.lineage.to_string();
        let Some(found) = found.iter().find(|found| found.work == work && !found.runs) else { continue };
        let mut left = None;
        if errand.tidies {
            left = why_left(processes, project, found);
            let tip = found.tip.as_deref().unwrap_or(NONE);
            words.push(format!("{work}.{}", if left.is_some() { KEEP } else { tip }));
        }
        done.push(Done { lineage: errand.lineage, ended: found.ended, left });
    }
    if words.is_empty() {
        return Ok(done);
    }
    let cleared: Vec<Cleared> = answered(call("clear", &words)?)?;
    for one in &mut done {
        let cleared = cleared.iter().find(|cleared| cleared.work == one.lineage.to_string());
        let why = cleared.and_then(|cleared| cleared.left.as_deref());
        let why = why.map(|why| untrusted_prose(why).chars().take(WHY_CHARS).collect());
        one.left = one.left.take().or(why);
    }
    Ok(done)
}

fn answered<T: serde::de::DeserializeOwned>(said: Captured) -> Result<T, String> {
    headed(said).map(|(answer, _)| answer)
}

/// Why a tree is not to go: it holds work that is not here.
fn why_left(processes: &Processes, project: &Path, found: &Found) -> Option<String> {
    if found.dirty {
        return Some("its tree there holds work that no commit does".to_owned());
    }
    let tip = found.tip.as_deref()?;
    if !worker_bundle::is_id(tip) {
        return Some("it stands at no commit".to_owned());
    }
    let is_here = is_here(processes, project, tip);
    (!is_here).then(|| format!("its last commit there, {tip}, was not fetched"))
}

/// Whether the project has this commit. Git runs nothing that settings name, and fetches nothing.
fn is_here(processes: &Processes, project: &Path, commit: &str) -> bool {
    let name = format!("{commit}^{{commit}}");
    let mut spec = Spec::tool("git", &["-c", "core.fsmonitor=false", "cat-file", "-e", &name], project);
    let fixed = [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_ALLOW_PROTOCOL", "none"),
    ];
    spec.env.extend(fixed.map(|(name, value)| (name.into(), value.into())));
    processes.capture(&spec, b"", GIT_LIMIT, GIT_BYTES).is_ok_and(|said| said.is_success())
}
