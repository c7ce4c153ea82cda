//! Runs of a tiny provider whose program is a shell script: what comes out, in which order, and what is left.

use crossbeam_channel::{Receiver, unbounded};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use svc::agents::report::{Batch, Credit, LogEntry, Other, RunReport};
use svc::agents::worker::{BATCHES_IN_FLIGHT, Limits, RunSpec, Runs};
use svc::agents::worker_log::{LogStore, Page, Query};
use svc::core::ids::{AgentId, LineageId};
use svc::providers::{
    Activity, Capabilities, Conversation, Effort, Info, Launch, LaunchProgram, LaunchRequest, Permission,
    Program, Provider, Purpose, Save, SessionStart, Step,
};
use svc_sys::process::Processes;

/// How long anything may take to happen.
const PATIENCE: Duration = Duration::from_secs(30);

static INFO: Info = Info {
    id: "shell",
    name: "Shell",
    program: Program::OnPath("sh", &[]),
    auth_type: "none",
    env_key: "",
    install_command: "",
    pass_env: &[],
    models: &[],
    any_model: true,
    capabilities: Capabilities { resume: false, live_input: true, hooks: false, mcp: false, headless: false },
    ..Info::PLAIN
};

/// Runs its prompt as a shell script; each line is a text, and `! words` are written back.
struct Shell;

struct Echo;

impl Provider for Shell {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        match request.prompt.as_str() {
            "refuse" => return Err("shell refuses".into()),
            "panic" => panic!("a bug in a provider"),
            _ => {}
        }
        Ok(Launch {
            program: LaunchProgram::Named(request.model.clone().unwrap_or_else(|| "sh".into())),
            args: vec!["-c".into(), request.prompt.clone()],
            env: vec![("FROM_LAUNCH".into(), "1".into())],
            stdin: request.effort != Effort::Low,
            conversation: Box::new(Echo),
        })
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        if saved == "echo" { Ok(Box::new(Echo)) } else { Err("shell never saved that".into()) }
    }
}

impl Save for Echo {
    fn save(&self) -> String {
        "echo".to_owned()
    }
}

impl Conversation for Echo {
    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        assert_ne!(line, "panic", "a bug in a parser");
        if let Some(words) = line.strip_prefix("! ") {
            out.push(Step::Write(format!("{words}\n")));
        }
        if line.starts_with('[') {
            let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let (id, name) = (String::new(), String::new());
            let activity = Activity::ToolStarted { id, name, input: value, path: None, writes: false };
            return out.push(Step::Event(activity));
        }
        out.push(Step::Event(Activity::Text { text: line.into() }));
    }

    fn say(&mut self, text: &str, out: &mut Vec<Step>) -> bool {
        out.push(Step::Write(format!("{text}\n")));
        text != "untakeable"
    }

    fn end(&mut self, out: &mut Vec<Step>) {
        out.push(Step::Event(Activity::Text { text: "<end>".into() }));
    }
}

/// The daemon's side.
struct Desk {
    runs: Runs,
    logs: Arc<LogStore>,
    reports: Receiver<(AgentId, RunReport)>,
    folder: PathBuf,
}

fn desk() -> Desk {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("svc-runs-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    let logs = Arc::new(LogStore::open(&folder).expect("opens"));
    let (sender, reports) = unbounded();
    let report = Arc::new(move |agent, report| drop(sender.send((agent, report))));
    let limits = Limits { finish_grace: Duration::from_millis(300), stop_grace: Duration::from_millis(300) };
    let processes = Processes::start().expect("starts");
    let runs = Runs::with_limits(processes, Arc::clone(&logs), report, PROGRAM.into(), limits);
    Desk { runs, logs, reports, folder }
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_svc");

impl Drop for Desk {
    fn drop(&mut self) {
        self.runs.stop_all();
        self.runs.shutdown(Instant::now() + PATIENCE);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn unique_agent() -> AgentId {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    AgentId((std::process::id() << 8) | NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Desk {
    fn spec(&self, script: &str) -> RunSpec {
        let request = LaunchRequest {
            purpose: Purpose::Work,
            prompt: script.into(),
            model: None,
            effort: Effort::Medium,
            permission: Permission::Auto,
            working_dir: std::env::temp_dir(),
            project_dir: self.folder.clone(),
            session: SessionStart::Fresh,
            command: Vec::new(),
            has_integrations: false,
            hook_program: None,
            fence: None,
            room: None,
            extra_env: svc::providers::environment::Extra::default(),
        };
        let agent = unique_agent();
        let env_extra = vec![("SVC_AGENT_NAME".into(), "backend-1".into())];
        RunSpec {
            agent,
            lineage: LineageId(agent.0),
            request,
            provider: &Shell,
            env_extra,
            prepare: Vec::new(),
            nice: 0,
            ceiling: 0,
            orphan: Duration::ZERO,
            at_screen: None,
            complete: None,
            turns: None,
            far: None,
            ground: None,
        }
    }

    fn start(&self, script: &str) -> AgentId {
        let spec = self.spec(script);
        let agent = spec.agent;
        self.runs.start(spec).expect("starts");
        agent
    }

    /// The next report, with its credit.
    fn next_held(&self) -> RunReport {
        self.reports.recv_timeout(PATIENCE).expect("a report in time").1
    }

    /// The next report; its credit is given back, as the hub does.
    fn next(&self) -> RunReport {
        match self.next_held() {
            RunReport::Output(batch) => RunReport::Output(Batch { credit: Credit::free(), ..batch }),
            other => other,
        }
    }

    /// All reports up to the last one.
    fn all(&self) -> Vec<RunReport> {
        let mut all = Vec::new();
        loop {
            let report = self.next();
            let is_last = matches!(report, RunReport::Exited { .. } | RunReport::StartFailed { .. });
            all.push(report);
            if is_last {
                return all;
            }
        }
    }

    /// Reports until this text came out.
    fn until_text(&self, wanted: &str) -> Vec<RunReport> {
        let mut all = Vec::new();
        while !texts(&all).iter().any(|text| text == wanted) {
            all.push(self.next());
        }
        all
    }

    fn log(&self, agent: AgentId) -> Page {
        self.logs.read(LineageId(agent.0), Query::default()).expect("reads")
    }
}

fn texts(reports: &[RunReport]) -> Vec<String> {
    let batches = reports.iter().filter_map(|report| match report {
        RunReport::Output(batch) => Some(batch.activities.iter()),
        _ => None,
    });
    let text = |activity: &Activity| match activity {
        Activity::Text { text } => Some(text.clone()),
        _ => None,
    };
    batches.flatten().filter_map(text).collect()
}

fn exit(reports: &[RunReport]) -> (Option<i32>, Option<i32>, String, u32) {
    match reports.last() {
        Some(RunReport::Exited { code, signal, stderr_tail, leaked, .. }) => {
            (*code, *signal, stderr_tail.clone(), *leaked)
        }
        other => panic!("{other:?} is no exit"),
    }
}

/// Whether the exit says that signals were sent from here.
fn was_signalled(reports: &[RunReport]) -> bool {
    matches!(reports.last(), Some(RunReport::Exited { signalled: true, .. }))
}

#[test]
fn decisions_2_exit_is_reported_once_after_the_last_output() {
    let desk = desk();
    let agent = desk.start("echo one; echo oops >&2; printf 'last\\377 without newline'; exit 3");
    let reports = desk.all();
    assert!(matches!(reports[0], RunReport::Started { pid, start_ticks } if pid > 1 && start_ticks > 0));
    assert_eq!(texts(&reports), ["one", "last\u{fffd} without newline", "<end>"]);
    assert_eq!(exit(&reports), (Some(3), None, "oops\n".into(), 0));
    assert!(desk.reports.is_empty());
    let log = desk.log(agent);
    assert_eq!(log.entries.len(), 3);
    assert_eq!((log.entries[0].n, log.entries[0].agent_id), (1, agent));
    assert!(!desk.runs.say(agent, 1, "too late".into()));
    desk.runs.stop(agent);
}

#[test]
fn decisions_2_a_child_that_outlives_the_program_does_not_delay_its_exit() {
    let desk = desk();
    desk.start("(trap '' TERM; echo child; while :; do sleep 1000; done) & read line");
    let reports = desk.until_text("child");
    let RunReport::Started { pid, .. } = reports[0] else { panic!("{reports:?}") };
    // The leader ends by a signal that nobody here sent; its child keeps the pipe.
    let kill = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).spawn();
    drop(kill.expect("starts"));
    let reports = desk.all();
    let (code, signal, _, leaked) = exit(&reports);
    assert_eq!((code, signal, leaked), (None, Some(9), 0));
    assert!(!was_signalled(&reports), "its child was, but only after its end");
    assert_eq!(texts(&reports), ["<end>"]);
}

#[test]
fn decisions_2_frames_are_ready_for_the_hub() {
    let desk = desk();
    let agent = desk.start("echo hi");
    let reports = desk.all();
    let RunReport::Output(Batch { frames, .. }) = &reports[1] else { panic!("{reports:?}") };
    let wanted = format!(
        r#"{{"type":"agent:output","agentId":"{agent}","data":{{"type":"activity","subtype":"assistant","data":{{"text":"hi"}}}}"#
    );
    let first = frames.iter().next().expect("a frame");
    assert_eq!(std::str::from_utf8(first).expect("text"), wanted);
}

#[test]
fn lines_right_behind_one_another_travel_together() {
    const LINES: usize = 500;
    let desk = desk();
    let began = Instant::now();
    // Slow enough that each line is there alone when it is looked for.
    let think = "i=0; while [ $i -lt 150 ]; do i=$((i+1)); done";
    desk.start(&format!("n=0; while [ $n -lt {LINES} ]; do n=$((n+1)); echo $n; {think}; done"));
    let reports = desk.all();
    let batches = reports.iter().filter(|report| matches!(report, RunReport::Output(_))).count();
    let texts = texts(&reports);
    assert_eq!(texts.len(), LINES + 1, "and the end");
    assert!((1..=LINES).zip(&texts).all(|(n, text)| *text == n.to_string()), "all, in order");
    // A batch is full, or comes 2 ms after the one before; the first and the last do neither.
    let paced = usize::try_from(began.elapsed().as_millis()).unwrap() / 2;
    assert!(batches <= LINES / 64 + paced + 4, "{batches} batches, {paced} times 2 ms");
}

#[test]
fn decisions_2_the_child_gets_an_allow_list() {
    let desk = desk();
    let agent = desk.start("env");
    let lines = texts(&desk.all());
    let has = |wanted: &str| lines.iter().any(|line| line == wanted);
    assert!(has("SVC_AGENT_NAME=backend-1") && has("FROM_LAUNCH=1"));
    assert!(has(&format!("SVC_AGENT_ID={agent}")));
    assert!(has(&format!("SVC_PROJECT_DIR={}", desk.folder.display())));
    // Cargo sets many for its tests; only where a person's packages are is an agent's business.
    let is_of_cargo = |line: &&String| line.starts_with("CARGO") && !line.starts_with("CARGO_HOME=");
    assert_eq!(lines.iter().find(is_of_cargo), None);
}

#[test]
fn decisions_2_long_lines_split_characters_and_deep_json_are_survived() {
    let desk = desk();
    let mut spec = desk.spec(
        "head -c 1000000 /dev/zero | tr '\\0' a; echo; printf '\\360\\237'; sleep 0.05; printf \
             '\\230\\200\\n'; \
         head -c 5000000 /dev/zero | tr '\\0' b; echo; \
         printf '[%.0s' $(seq 120); printf ']%.0s' $(seq 120); echo; echo panic; echo after",
    );
    spec.request.model = Some("bash".into());
    desk.runs.start(spec).expect("starts");
    let reports = desk.all();
    let lines = texts(&reports);
    let lengths: Vec<usize> = lines.iter().map(String::len).collect();
    let cut = 4 * 1024 * 1024 + "… [cut at 4 MiB]".len();
    assert_eq!(lengths, [1_000_000, 4, cut, 5, 5]);
    assert_eq!((lines[1].as_str(), lines[3].as_str()), ("\u{1F600}", "after"));
    assert_eq!(exit(&reports).0, Some(0));
}

#[test]
fn decisions_2_what_is_said_arrives_in_order_and_is_answered() {
    let desk = desk();
    let agent = desk.start("while read line; do echo \"got $line\"; done; echo closed");
    for (id, text) in [(1, "a"), (2, "b")] {
        assert!(desk.runs.say(agent, id, text.into()));
    }
    let mut reports = desk.until_text("got b");
    assert!(desk.runs.say(agent, 3, "untakeable".into()));
    desk.runs.finish(agent);
    reports.extend(desk.all());
    let said: Vec<_> = reports
        .iter()
        .filter_map(|report| match report {
            RunReport::Said { message_id, delivered } => Some((*message_id, *delivered)),
            _ => None,
        })
        .collect();
    assert_eq!(said, [(1, true), (2, true), (3, false)]);
    assert_eq!(texts(&reports), ["got a", "got b", "got untakeable", "closed", "<end>"]);
    assert_eq!(exit(&reports), (Some(0), None, String::new(), 0));
    let user = |text: &str| LogEntry::Other(Other::User { text: text.into() });
    let log = desk.log(agent);
    let users = log.entries.iter().filter(|record| [user("a"), user("b")].contains(&record.entry));
    assert_eq!(users.count(), 2);
}

#[test]
fn every_message_is_answered_although_the_program_never_reads() {
    let desk = desk();
    let agent = desk.start("echo ready; sleep 1000");
    desk.until_text("ready");
    let big = "x".repeat(1 << 20);
    let accepted = (0..40).take_while(|id| desk.runs.say(agent, *id, big.clone())).count();
    // Besides those that wait, what went on to its keeper meanwhile, 7 MiB at most, and one on its way there.
    assert!((8..=24).contains(&accepted), "16 MiB may wait, {accepted} were taken");
    desk.runs.stop(agent);
    let reports = desk.all();
    let answers = reports.iter().filter(|report| matches!(report, RunReport::Said { delivered: false, .. }));
    assert_eq!(answers.count(), accepted);
    assert_eq!(exit(&reports), (None, Some(15), String::new(), 0));
}

#[test]
fn a_child_that_floods_and_never_reads_does_not_deadlock() {
    let desk = desk();
    // Each line makes the conversation write an answer that nobody reads: more than the pipe holds.
    desk.start("i=0; while [ $i -lt 20000 ]; do echo '! an answer that is never read'; i=$((i+1)); done");
    let reports = desk.all();
    assert_eq!(texts(&reports).len(), 20_001);
    assert_eq!(exit(&reports).0, Some(0));
}

#[test]
fn design_4_four_batches_in_flight_then_the_source_waits() {
    let desk = desk();
    let agent = desk.start("yes flood");
    let mut held: Vec<RunReport> = Vec::new();
    let is_batch = |report: &RunReport| matches!(report, RunReport::Output(_));
    while held.iter().filter(|report| is_batch(report)).count() < BATCHES_IN_FLIGHT {
        held.push(desk.next_held());
    }
    // Nothing more comes, although the program prints as fast as it can.
    assert!(desk.reports.recv_timeout(Duration::from_millis(300)).is_err());
    held.retain(|report| !is_batch(report));
    // On a slow machine a checkpoint becomes due in between.
    let mut more =
        std::iter::repeat_with(|| desk.next()).filter(|one| !matches!(one, RunReport::Checkpoint { .. }));
    assert!(more.by_ref().take(100).all(|report| is_batch(&report)));
    desk.runs.stop(agent);
    assert_eq!(exit(&desk.all()), (None, Some(15), String::new(), 0));
}

#[test]
fn design_6_the_exit_does_not_overtake_output_that_waits_for_credits() {
    let desk = desk();
    // Few enough bytes that the program has long ended when the fifth batch waits.
    desk.start("seq 2000");
    let mut held = Vec::new();
    while held.len() < 1 + BATCHES_IN_FLIGHT {
        held.push(desk.next_held());
    }
    assert!(desk.reports.recv_timeout(Duration::from_millis(300)).is_err());
    let mut lines = texts(&held);
    drop(held);
    let reports = desk.all();
    lines.extend(texts(&reports));
    assert_eq!((lines.len(), lines[1999].as_str()), (2001, "2000"));
    assert_eq!(exit(&reports).0, Some(0));
}

#[test]
fn a_reporter_that_blocks_makes_the_agent_wait_and_loses_nothing() {
    let folder = std::env::temp_dir().join(format!("svc-runs-block-{}", std::process::id()));
    let logs = Arc::new(LogStore::open(&folder).expect("opens"));
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let (sender, reports) = unbounded();
    let inner = Arc::clone(&gate);
    let report = Arc::new(move |agent, report| {
        let is_open = inner.0.lock().expect("not poisoned");
        drop(inner.1.wait_while(is_open, |is_open| !*is_open).expect("not poisoned"));
        drop(sender.send((agent, report)));
    });
    let processes = Processes::start().expect("starts");
    let runs = Runs::new(processes, Arc::clone(&logs), report, PROGRAM.into());
    let desk = Desk { runs, logs, reports, folder };
    let agent = desk.start("seq 1000");
    desk.runs.stop(AgentId(1));
    desk.runs.say(agent, 1, "hello".into());
    assert!(desk.reports.recv_timeout(Duration::from_millis(100)).is_err());
    *gate.0.lock().expect("not poisoned") = true;
    gate.1.notify_all();
    let lines = texts(&desk.all());
    assert_eq!((lines.len(), lines[999].as_str()), (1001, "1000"));
}

#[test]
fn decisions_2_finish_ends_one_that_does_not_end_by_itself() {
    let desk = desk();
    let agent = desk.start("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done");
    desk.until_text("ready");
    desk.runs.finish(agent);
    desk.runs.finish(agent);
    let (code, signal, _, leaked) = exit(&desk.all());
    assert_eq!((code, signal, leaked), (Some(0), None, 0));
}

#[test]
fn decisions_2_finish_waits_as_long_as_there_is_output() {
    let desk = desk();
    let script = "cat >/dev/null; i=0; while [ $i -lt 20 ]; do echo $i; sleep 0.05; i=$((i+1)); done";
    let agent = desk.start(script);
    desk.runs.finish(agent);
    let reports = desk.all();
    assert_eq!(texts(&reports).len(), 21, "a second of output is longer than the grace of 0.3 s");
    assert_eq!(exit(&reports).0, Some(0));
}

#[test]
fn decisions_2_a_stop_before_the_start_ends_without_a_process() {
    let desk = desk();
    for _ in 0..20 {
        let agent = desk.start("sleep 1000");
        desk.runs.stop(agent);
        desk.runs.stop(agent);
        let (code, _, _, leaked) = exit(&desk.all());
        assert_eq!((code, leaked), (None, 0));
    }
}

#[test]
fn what_cannot_start_says_why() {
    let desk = desk();
    let failed = |change: &dyn Fn(&mut RunSpec)| {
        let mut spec = desk.spec("true");
        change(&mut spec);
        desk.runs.start(spec).expect("accepted");
        match desk.all().as_slice() {
            [RunReport::StartFailed { error }] => error.clone(),
            other => panic!("{other:?}"),
        }
    };
    let missing = failed(&|spec| spec.request.model = Some("codex-nowhere".into()));
    assert_eq!(missing, "cannot start codex-nowhere: not found on PATH");
    assert_eq!(failed(&|spec| spec.request.prompt = "refuse".into()), "shell refuses");
    assert!(failed(&|spec| spec.request.prompt = "panic".into()).contains("provider shell failed"));
}

#[test]
fn without_standard_input_nothing_is_delivered() {
    let desk = desk();
    let mut spec = desk.spec("read line || echo empty; exec sleep 1000");
    spec.request.effort = Effort::Low;
    let agent = spec.agent;
    desk.runs.start(spec).expect("starts");
    desk.until_text("empty");
    assert!(desk.runs.say(agent, 5, "hello".into()));
    loop {
        if let RunReport::Said { message_id, delivered } = desk.next() {
            assert_eq!((message_id, delivered), (5, false));
            break;
        }
    }
}

#[test]
fn decisions_2_shutdown_ends_all_in_parallel() {
    let desk = desk();
    let agents: Vec<AgentId> =
        (0..30).map(|_| desk.start("trap '' TERM; echo ready; while :; do sleep 1000; done")).collect();
    let mut ready = 0;
    while ready < agents.len() {
        ready += texts(&[desk.next()]).len();
    }
    let begun = Instant::now();
    assert_eq!(desk.runs.shutdown(begun + PATIENCE), 0);
    assert!(begun.elapsed() < Duration::from_secs(8), "thirty times 0.3 s of grace, at the same time");
    let exits = desk.reports.try_iter().filter(|(_, report)| matches!(report, RunReport::Exited { .. }));
    assert_eq!(exits.count(), 30);
    assert_eq!(desk.runs.start(desk.spec("true")), Err("the daemon is stopping".into()));
}
