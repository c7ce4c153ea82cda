//! One-off jobs: building a handoff brief from a log, asking a question in a process of its own.

use super::worker::{Beside, RoomFolder, process_spec};
use super::worker_log::LogStore;
use super::{Job, JobReport, moving};
use crate::context::{brief, worker_brief};
use crate::core::CallId;
use crate::core::ids::{AgentId, LineageId};
use crate::providers::{self, Activity, Launch, LaunchRequest, Step, Tokens};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use svc_sys::process::{Identity, Marker, Processes, Running};
use svc_sys::threads::{Thread, lock};

/// Bytes of an answer kept; a longer one is cut.
const ANSWER_BYTES: usize = 256 << 10;
/// Bytes of one line of output; a longer one is read in pieces.
const LINE_BYTES: u64 = 4 << 20;
/// Bytes of standard error kept for the error message.
const STDERR_BYTES: u64 = 4 << 10;
/// Between TERM and KILL when a question is given up.
const GRACE: Duration = Duration::from_secs(1);

type Report = Arc<dyn Fn(JobReport) + Send + Sync>;
/// Brings an agent to another machine.
pub type Carrier = Box<dyn Fn(&moving::Order) -> Result<moving::Trip, String> + Send + Sync>;
/// The process of each question, once it runs; `None` before.
type Asked = Arc<Mutex<HashMap<CallId, Option<(Identity, Marker)>>>>;

/// Runs jobs, each on a thread of its own. The core bounds how many there are: one brief per agent, and
/// [`super::MAX_QUERIES`] questions.
pub struct Jobs {
    means: Arc<Means>,
    threads: Vec<Thread>,
}

struct Means {
    processes: Arc<Processes>,
    logs: Arc<LogStore>,
    project: PathBuf,
    report: Report,
    carrier: Carrier,
    asked: Asked,
}

impl Drop for Jobs {
    fn drop(&mut self) {
        let asked: Vec<CallId> = lock(&self.means.asked).keys().copied().collect();
        for call in asked {
            self.means.cancel(call);
        }
        self.threads.clear();
    }
}

impl Jobs {
    /// Nothing runs yet.
    pub fn new(
        processes: Arc<Processes>,
        logs: Arc<LogStore>,
        project: PathBuf,
        report: Report,
        carrier: Carrier,
    ) -> Self {
        let means = Means { processes, logs, project, report, carrier, asked: Asked::default() };
        Self { means: Arc::new(means), threads: Vec::new() }
    }

    /// Does a job, without waiting for it.
    pub fn order(&mut self, job: Job) {
        self.threads.retain(|thread| !thread.is_finished());
        let means = Arc::clone(&self.means);
        let failed = match &job {
            Job::Brief { agent, .. } => Some(JobReport::Brief(*agent, Err("no thread for it".into()))),
            Job::Move(order) => Some(JobReport::Moved(order.agent.id, Err("no thread for it".into()))),
            Job::Learn { agent, .. } => Some(JobReport::Learned(*agent, Vec::new())),
            Job::Query { call, .. } => {
                lock(&self.means.asked).insert(*call, None);
                Some(JobReport::Query(*call, Err("no thread for it".into())))
            }
            Job::CancelQuery(_) => None,
        };
        if matches!(job, Job::Move(_)) {
            // Nobody waits for it when the daemon ends: the next one does it again.
            let spawned = std::thread::Builder::new().name("move".into()).spawn(move || means.run(job));
            return self.unless(spawned.map(drop), failed);
        }
        match Thread::spawn("job", move || means.run(job)) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => self.unless(Err(error), failed),
        }
    }

    /// Reports the failure of a job for which there was no thread.
    fn unless(&self, spawned: std::io::Result<()>, failed: Option<JobReport>) {
        let Err(error) = spawned else { return };
        log::error!("a job could not be started: {error}");
        if let Some(report) = failed {
            // From a thread of the core's own the report must not wait for the core.
            let report_to = Arc::clone(&self.means.report);
            report_to(report);
        }
    }
}

impl Means {
    fn run(&self, job: Job) {
        match job {
            Job::Brief { agent, lineage, facts } => {
                (self.report)(JobReport::Brief(agent, self.brief(lineage, &facts)));
            }
            Job::Learn { agent, lineage, facts } => {
                let learned = worker_brief::learn(&self.logs, lineage, &facts).unwrap_or_else(|error| {
                    log::warn!("the log of agent {agent} cannot be read to learn from it: {error}");
                    Vec::new()
                });
                (self.report)(JobReport::Learned(agent, learned));
            }
            Job::Query { call, agent, provider, request, env, .. } => {
                let answer = self.ask(call, agent, provider, &request, &env);
                lock(&self.asked).remove(&call);
                (self.report)(JobReport::Query(call, answer));
            }
            Job::Move(order) => {
                let moved = (self.carrier)(&order);
                (self.report)(JobReport::Moved(order.agent.id, moved));
            }
            Job::CancelQuery(call) => self.cancel(call),
        }
    }

    fn brief(&self, lineage: LineageId, facts: &brief::Facts) -> Result<String, String> {
        let (built, _) = worker_brief::build(&self.logs, lineage, facts)
            .map_err(|error| format!("the log cannot be read: {error}"))?;
        Ok(built.text)
    }

    /// Ends the process of a question; one that has not started yet will not.
    fn cancel(&self, call: CallId) {
        let running = lock(&self.asked).remove(&call).flatten();
        if let Some((identity, marker)) = running {
            self.processes.stop_tree(identity, Some(&marker), GRACE);
        }
    }

    fn ask(
        &self,
        call: CallId,
        agent: AgentId,
        provider: &str,
        request: &LaunchRequest,
        env: &[(String, String)],
    ) -> Result<(String, Tokens), String> {
        let provider = providers::by_id(provider).ok_or("its provider is gone")?;
        let launch = provider.launch(request)?;
        let marker = Marker { agent, project_dir: self.project.clone() };
        let beside = Beside::make(request, &RoomFolder::name_of_question())?;
        let spec = process_spec(&launch, provider.info(), env, request, &marker, &beside);
        let running = self.processes.spawn_tied(&spec).map_err(|error| error.to_string())?;
        let identity = running.identity;
        let wanted = match lock(&self.asked).get_mut(&call) {
            Some(slot) => {
                *slot = Some((identity, marker.clone()));
                true
            }
            None => false,
        };
        let heard = wanted.then(|| converse(launch, running));
        // The question's processes carry the agent's own marker, so only its tree is ended here.
        self.processes.stop_tree(identity, None, GRACE);
        match heard {
            Some((heard, complaints)) => heard.answer(&complaints.join().unwrap_or_default()),
            None => Err("nobody waits any more".into()),
        }
    }
}

/// Speaks with a one-shot process until its output ends.
fn converse(mut launch: Launch, running: Running) -> (Heard, JoinHandle<String>) {
    let Running { stdin, stdout, stderr, .. } = running;
    let complaints = std::thread::spawn(move || tail_of(stderr));
    let mut input = stdin;
    let mut heard = Heard::default();
    let mut steps = Vec::new();
    launch.conversation.open(&mut steps);
    heard.take(&mut steps, &mut input);
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        launch.conversation.line(text.trim_end_matches(['\n', '\r']), &mut steps);
        heard.take(&mut steps, &mut input);
        if heard.ended {
            launch.conversation.finish(&mut steps);
            heard.take(&mut steps, &mut input);
            break;
        }
    }
    launch.conversation.end(&mut steps);
    heard.take(&mut steps, &mut input);
    drop(input);
    (heard, complaints)
}

fn tail_of(file: File) -> String {
    let mut kept = Vec::new();
    // What comes after the limit is drained so that the program does not block on it.
    let mut file = file;
    let _ = Read::by_ref(&mut file).take(STDERR_BYTES).read_to_end(&mut kept);
    let _ = std::io::copy(&mut file, &mut std::io::sink());
    String::from_utf8_lossy(&kept).into_owned()
}

/// What came out of a conversation so far.
#[derive(Default)]
struct Heard {
    said: String,
    result: Option<String>,
    error: Option<String>,
    tokens: Tokens,
    ended: bool,
}

impl Heard {
    fn take(&mut self, steps: &mut Vec<Step>, input: &mut Option<File>) {
        for step in steps.drain(..) {
            match step {
                Step::Event(activity) => self.activity(activity),
                Step::Write(text) => {
                    let written = input.as_mut().map(|file| file.write_all(text.as_bytes()));
                    if !matches!(written, Some(Ok(()))) {
                        self.error.get_or_insert_with(|| "it does not take its input".to_owned());
                    }
                }
                Step::CloseInput => *input = None,
                // Nobody is at the screen of a question.
                Step::Said(_) => {}
            }
        }
    }

    fn activity(&mut self, activity: Activity) {
        match activity {
            Activity::Text { text } if self.said.len() < ANSWER_BYTES => {
                if !self.said.is_empty() {
                    self.said.push_str("\n\n");
                }
                self.said.push_str(&text);
            }
            Activity::Usage(usage) => self.tokens += usage.delta,
            Activity::Trouble { text } => self.error = Some(text),
            Activity::TurnEnded(end) => {
                self.ended = true;
                if end.is_error {
                    self.error = Some(end.error);
                } else {
                    self.error = None;
                    self.result = Some(end.text).filter(|text| !text.trim().is_empty());
                }
            }
            _ => {}
        }
    }

    fn answer(self, complaints: &str) -> Result<(String, Tokens), String> {
        if let Some(error) = self.error {
            return Err(error);
        }
        match self.result.or(Some(self.said).filter(|text| !text.trim().is_empty())) {
            Some(answer) => Ok((answer, self.tokens)),
            None => Err(complaints.trim().lines().next_back().unwrap_or("it said nothing").to_owned()),
        }
    }
}
