//! The programs of the machine: agents, tool servers, chat platforms and the daemon's own threads. They do as
//! they like, and sometimes badly.

use super::invariants::{self, Rule, ensure};
use super::keepers::{End, Kept};
use super::machine::{Machine, Plant};
use super::people::Gated;
use crate::support::world::activity;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use svc::agents::report::RunReport;
use svc::agents::{Job, JobReport, RunOrder};
use svc::approvals::ApprovalId;
use svc::core::ids::{AgentId, LineageId};
use svc::core::{CallId, Effect, Event, State, Timer};
use svc::gateways::{self, Entry, GatewayId, Place, Why};
use svc::integrations::{self, RunId, protocol::Ask};
use svc::providers::{Activity, Tokens, TokensDelta, Usage};
use svc::teams::plan;
use svc::{governor, journalist, oversight, ownership};

/// What an agent's process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// It is being started.
    Ordered,
    Runs,
    /// It was asked to end by itself.
    Finishing,
    /// It is being killed.
    Stopping,
}

/// All of them, and what their threads have to report.
#[derive(Default)]
pub struct Programs {
    pub processes: BTreeMap<AgentId, Process>,
    /// Tokens that programs have told of, by lineage.
    pub fed: BTreeMap<LineageId, u64>,
    /// What holds each of them, and its thread.
    pub keepers: BTreeMap<AgentId, Kept>,
    /// Keepers of what is over, until that is on disk.
    pub ended: BTreeMap<AgentId, Kept>,
    briefs: Vec<AgentId>,
    /// Questions to models.
    pub queries: BTreeSet<CallId>,
    planners: Vec<AgentId>,
    looks: Vec<ownership::commands::Order>,
    writing: u32,
    cleaning: u32,
    servers: BTreeMap<RunId, Vec<CallId>>,
    /// Calls to a gated tool: the approval that they carry, and what they are for.
    pub gated: BTreeMap<CallId, (String, Gated)>,
    /// What people have approved.
    pub approved: BTreeMap<String, Gated>,
    /// Approvals whose call was given to a server.
    pub ran: BTreeSet<String>,
    links: BTreeMap<GatewayId, u64>,
    cards: Vec<(GatewayId, ApprovalId)>,
    /// Messages to runs that are over.
    unheard: Vec<(AgentId, u64)>,
    pub desk: VecDeque<Arc<Entry>>,
    /// The runs are to be left to their keepers.
    pub are_left: bool,
    /// The daemon has nobody left and may end.
    pub exit_asked: bool,
}

impl Programs {
    /// What outlives the daemon's end: what was counted outside of it, nothing that runs.
    pub fn cut(&mut self) {
        *self = Self {
            fed: std::mem::take(&mut self.fed),
            approved: std::mem::take(&mut self.approved),
            ran: std::mem::take(&mut self.ran),
            ..Self::default()
        };
    }

    /// Whether some process of an agent is there.
    pub fn is_quiet(&self) -> bool {
        self.processes.is_empty()
    }
}

impl Machine {
    /// An order to a thread.
    pub fn obey(&mut self, order: Effect, before: &State) {
        match order {
            Effect::Run(id, order) => self.run(id, order, before),
            Effect::LeaveRuns => self.programs.are_left = true,
            Effect::Job(Job::Brief { agent, .. }) => self.programs.briefs.push(agent),
            Effect::Job(Job::Query { call, .. }) => drop(self.programs.queries.insert(call)),
            Effect::Job(Job::CancelQuery(call)) => drop(self.programs.queries.remove(&call)),
            Effect::Teams(plan::Look(planner)) => self.programs.planners.push(planner),
            Effect::Ownership(order) => self.programs.looks.push(order),
            Effect::Journalist(_) => self.programs.writing += 1,
            Effect::Cleanup(_) => self.programs.cleaning += 1,
            Effect::Integrations(order) => self.serve(order),
            Effect::Gateways(order) => self.gateway(order),
            Effect::Governor(governor::Order::Look) => self.room.is_to_look = true,
            _ => {}
        }
    }

    fn run(&mut self, id: AgentId, order: RunOrder, before: &State) {
        match order {
            RunOrder::Start(start) => {
                invariants::check_start(self, before, id, start.lineage, self.core.now);
                if let Some(agent) = self.core.state.agents.get(id).cloned() {
                    self.check_account(&agent, &start, before);
                }
                let has_waited = self.check_room(before, id, start.lineage);
                self.programs.processes.insert(id, Process::Ordered);
                if has_waited != Some(false) {
                    self.check_goes_on(before, id, start.lineage, &start.request.prompt);
                }
                if self.starts.ordered(id, &start.request.prompt) {
                    self.seen.count("starts made again by the next daemon");
                }
                // Between an order and what becomes of it a kill is worst.
                self.dies_soon |= self.dice.below(128) == 0 || self.plant == Plant::ForgetsOrders;
                let used = self.programs.fed.get(&start.lineage).copied().unwrap_or_default();
                self.programs.keepers.insert(id, Kept::new(start.lineage, used, start.request.prompt));
                self.members(id, start.lineage);
                self.seen.count("lives");
            }
            RunOrder::Say { message_id, text } => match self.programs.keepers.get_mut(&id) {
                Some(kept) => kept.say(message_id, text),
                None => self.programs.unheard.push((id, message_id)),
            },
            RunOrder::Decide { question, .. } => {
                if let Some(kept) = self.programs.keepers.get_mut(&id) {
                    kept.decide(question);
                }
            }
            RunOrder::Interrupt => {}
            RunOrder::Settings => {
                let is_so = self.core.state.agents.get(id).is_some_and(|agent| agent.stands_still());
                self.room.freeze(id, is_so);
                self.seen.count(if is_so { "agents that were frozen" } else { "settings told to keepers" });
            }
            RunOrder::Finish => {
                invariants::check_finish(self, id);
                self.set(id, Process::Finishing);
            }
            RunOrder::Stop => self.set(id, Process::Stopping),
        }
    }

    fn set(&mut self, id: AgentId, to: Process) {
        if let Some(process) = self.programs.processes.get_mut(&id) {
            *process = to;
        }
    }

    /// A member of a plan is started, if it is one.
    fn members(&mut self, id: AgentId, lineage: LineageId) {
        let state = &self.core.state;
        for plan in state.teams.plans() {
            let Some(member) = plan.members.iter().find(|one| one.lineage == Some(lineage)) else { continue };
            let ahead = match plan.phase {
                svc::teams::phases::Phase::Working { phase }
                | svc::teams::phases::Phase::Blocked { phase, .. } => member.phase > phase,
                svc::teams::phases::Phase::Done => false,
            };
            ensure(Rule::MembersOnce, !ahead, || format!("{id} is ahead of its phase in {}", plan.id));
            let same = plan.members.iter().filter(|one| one.lineage == Some(lineage)).count();
            ensure(Rule::MembersOnce, same == 1, || format!("{lineage} is a member of {} twice", plan.id));
        }
    }

    /// Some agent's process does something.
    pub fn agent_acts(&mut self) {
        self.not_heard();
        let ids: Vec<AgentId> = self.programs.processes.keys().copied().collect();
        let Some(id) = self.dice.pick(&ids) else { return };
        let kept = self.programs.keepers.get(&id);
        let (is_over, is_spoken_to) = kept
            .map_or((false, false), |kept| (kept.is_over(), kept.is_spoken_to() || !kept.has_caught_up()));
        if is_over || self.dice.below(if is_spoken_to { 2 } else { 8 }) == 0 {
            if !self.thread_acts(id) {
                self.checkpoints(id);
            }
            return;
        }
        match (self.programs.processes[&id], self.dice.below(17)) {
            (Process::Ordered, 0) => {
                self.programs.processes.remove(&id);
                self.programs.keepers.remove(&id);
                self.report(id, RunReport::StartFailed { error: "no such program".into() });
            }
            (Process::Ordered, _) => {
                self.begins(id);
                self.thread_acts(id);
            }
            (Process::Runs, 0..=4) | (Process::Finishing, 0) => self.uses(id),
            (Process::Runs, 5..=7) => self.writes(id),
            (Process::Runs, 8) => self.commands(id),
            (Process::Runs, 9..=11) => self.prints(id, vec![activity("ends-turn", "ok")]),
            (Process::Runs, 12) => self.prints(id, vec![activity("fails-turn", "no")]),
            (Process::Runs, 13) => self.exit(id, Some(1), None),
            (Process::Runs, 14) if self.dice.below(3) == 0 => self.exit(id, None, Some(9)),
            (Process::Runs, 14) => self.exit(id, Some(0), None),
            (Process::Runs, 15) => self.comes_to_limit(id),
            (Process::Runs, _) => self.asks(id),
            (Process::Finishing, 1) => self.exit(id, None, Some(11)),
            (Process::Finishing, _) => self.exit(id, Some(0), None),
            (Process::Stopping, _) => self.exit(id, None, Some(15)),
        }
    }

    fn uses(&mut self, id: AgentId) {
        let session = activity("session", &format!("s{}", id.0));
        let used = self.used_alone();
        self.prints(id, vec![session, used, activity("says", "hm")]);
    }

    /// A program tells what it has used: now and then most of the context window of 1000 tokens, so that a
    /// rotation is due.
    pub fn used_alone(&mut self) -> Activity {
        let used =
            if self.dice.below(10) == 0 { 800 + self.dice.below(200) } else { self.dice.below(100) + 1 };
        let cost = (self.dice.below(3) == 0).then_some(0.25);
        let input = i64::try_from(used).unwrap();
        Activity::Usage(Usage {
            delta: TokensDelta { input, ..TokensDelta::default() },
            context_tokens: Some(used),
            context_window: Some(1000),
            cost_usd: cost,
            ..Usage::default()
        })
    }

    fn writes(&mut self, id: AgentId) {
        let path = format!("src/p{}/f{}.rs", self.dice.below(4), self.dice.below(6));
        let ended =
            Activity::ToolEnded { id: "t1".into(), error: self.dice.below(6) == 0, output: String::new() };
        self.prints(id, vec![activity("writes", &path), ended]);
    }

    fn commands(&mut self, id: AgentId) {
        let input = json!({"command": format!("touch src/p{}/x.rs", self.dice.below(4))});
        let (call, name) = ("c1".to_owned(), "bash".to_owned());
        let begun = Activity::ToolStarted { id: call.clone(), name, input, path: None, writes: false };
        let mut told = vec![begun];
        if self.dice.below(2) == 0 {
            told.push(Activity::ToolEnded { id: call, error: false, output: String::new() });
        }
        self.prints(id, told);
    }

    /// Its program asks a person whether it may use a tool.
    fn asks(&mut self, id: AgentId) {
        self.serial += 1;
        let question = format!("q{}", self.serial);
        let input = json!({"command": format!("rm {}", self.dice.below(3))});
        self.prints(id, vec![Activity::PermissionAsked { question, name: "bash".into(), input }]);
    }

    /// The end of a process and of all that it had started.
    pub fn exit(&mut self, id: AgentId, code: Option<i32>, signal: Option<i32>) {
        let stopped = self.programs.processes.get(&id) == Some(&Process::Stopping);
        self.ends(id, End { code, signal, signalled: stopped && signal.is_some() });
    }

    /// A run's threads report.
    pub fn report(&mut self, id: AgentId, report: RunReport) {
        if self.trace.is_some() {
            let name = self.core.state.agents.get(id).map_or_else(|| id.to_string(), |one| one.name.clone());
            let mut words = format!("{report:?}");
            words.truncate(160);
            self.note(|| format!("* {name} {words}"));
        }
        self.apply(Event::Run(id, report));
    }

    /// A thread of the daemon's own comes to an end with something.
    pub fn thread_reports(&mut self) {
        let fails = self.dice.below(5) == 0;
        match self.dice.below(6) {
            0 => drop(self.brief()),
            1 => {
                let Some(call) = self.programs.queries.pop_first() else { return };
                let answer =
                    if fails { Err("no answer".into()) } else { Ok(("yes".into(), Tokens::default())) };
                self.apply(Event::Job(JobReport::Query(call, answer)));
            }
            2 => {
                let Some(planner) = self.programs.planners.pop() else { return };
                self.apply(Event::Teams(plan::Found { planner, file: None }));
            }
            3 => self.looked(fails),
            4 if self.programs.writing > 0 => {
                self.programs.writing -= 1;
                let written = if fails { Err("it is full".to_owned()) } else { Ok(()) };
                self.apply(Event::Journalist(journalist::Report::Written(written)));
            }
            5 if self.programs.cleaning > 0 => {
                self.programs.cleaning -= 1;
                let outcome = oversight::cleanup::Outcome::default();
                self.apply(Event::Cleanup(oversight::cleanup::Report(outcome)));
            }
            _ => {}
        }
    }

    /// A handoff brief is there, or not. Whether one was awaited.
    pub fn brief(&mut self) -> bool {
        let Some(id) = self.programs.briefs.pop() else { return false };
        let brief = if self.dice.below(4) == 0 { Err("no log".to_owned()) } else { Ok("# brief".to_owned()) };
        self.note(|| format!("* {id} brief {brief:?}"));
        self.apply(Event::Job(JobReport::Brief(id, brief)));
        true
    }

    fn looked(&mut self, fails: bool) {
        let Some(order) = self.programs.looks.pop() else { return };
        let now = self.core.now;
        let change = ownership::commands::Change {
            path: format!("src/p{}/x.rs", self.dice.below(4)),
            from: order.since.min(now),
            to: now,
            gone: self.dice.below(4) == 0,
        };
        let looked = ownership::commands::Looked {
            began: now,
            ended: now,
            changes: vec![change],
            more: 0,
            is_cut: false,
            files: order.files.into_iter().map(|file| (file, Some(now))).collect(),
        };
        self.apply(Event::Ownership((!fails).then_some(looked)));
    }

    fn serve(&mut self, order: integrations::Order) {
        match order {
            integrations::Order::Start(run, _) => drop(self.programs.servers.insert(run, Vec::new())),
            integrations::Order::Stop(run) => {
                self.programs.servers.remove(&run);
                self.apply(Event::Integrations(integrations::Report::Exited(run, "it was stopped".into())));
            }
            integrations::Order::Ask(run, call, Ask::Tool { name, .. }) if name == "send" => {
                self.programs.servers.entry(run).or_default().push(call);
                self.given_to_a_server(call);
            }
            _ => {}
        }
    }

    /// The gated call reaches its server: from here on it counts as done.
    fn given_to_a_server(&mut self, call: CallId) {
        let known = self.programs.gated.get(&call).cloned();
        ensure(Rule::PersonSaidYes, known.is_some(), || format!("{call:?} ran without an approval"));
        let (id, wish) = known.unwrap();
        let allowed = self.programs.approved.get(&id);
        ensure(Rule::PersonSaidYes, allowed.is_some(), || {
            format!("{id} let a call through, and no person has")
        });
        ensure(Rule::PersonSaidYes, allowed == Some(&wish), || format!("{id} let another call through"));
        let is_first = self.programs.ran.insert(id.clone());
        ensure(Rule::YesIsUsedOnce, is_first, || format!("a call approved once by {id} ran twice"));
        self.seen.count("gated calls that ran");
    }

    /// A tool server becomes ready, answers, or crashes.
    pub fn server_acts(&mut self) {
        let runs: Vec<RunId> = self.programs.servers.keys().copied().collect();
        let Some(run) = self.dice.pick(&runs) else { return };
        let report = match (self.dice.below(8), self.programs.servers.get_mut(&run).and_then(Vec::pop)) {
            (0, _) => {
                self.programs.servers.remove(&run);
                integrations::Report::Exited(run, "it crashed".into())
            }
            (_, Some(call)) => integrations::Report::Answered(run, call, Ok(json!({"content": []}))),
            (_, None) => integrations::Report::Ready(run, "2025-06-18".into(), "hub 1".into()),
        };
        self.apply(Event::Integrations(report));
    }

    fn gateway(&mut self, order: gateways::Order) {
        match order {
            gateways::Order::Start(start) => {
                self.programs.desk.retain(|entry| entry.gateway != start.gateway);
                self.programs.links.insert(start.gateway, start.run);
            }
            gateways::Order::Stop(id) => {
                self.programs.links.remove(&id);
                self.programs.desk.retain(|entry| entry.gateway != id);
            }
            gateways::Order::Send(message) => {
                if let Why::Approval(approval) = message.why {
                    self.programs.cards.push((message.gateway, approval));
                }
            }
            gateways::Order::Edit(..) => {}
            gateways::Order::Run(entry) => self.programs.desk.push_back(entry),
        }
    }

    /// A chat platform connects, stumbles, or has taken a message.
    pub fn platform_acts(&mut self) {
        if let Some((gateway, approval)) = self.programs.cards.pop() {
            let run = self.programs.links.get(&gateway).copied().unwrap_or_default();
            let report = if self.dice.below(4) == 0 {
                gateways::Report::Refused { gateway, run, error: "too fast".into(), approval: Some(approval) }
            } else {
                let place = Place { chat: "7".into(), message: approval.to_string() };
                gateways::Report::Sent { gateway, approval, place }
            };
            return self.apply(Event::Gateways(report));
        }
        let links: Vec<(GatewayId, u64)> = self.programs.links.iter().map(|(id, run)| (*id, *run)).collect();
        let Some((gateway, run)) = self.dice.pick(&links) else { return };
        let report = match self.dice.below(8) {
            0 => gateways::Report::Trouble { gateway, run, error: "the line is cut".into(), fatal: false },
            1 => gateways::Report::Healed { gateway, run },
            2 => gateways::Report::Moved { gateway, cursor: self.dice.below(1000).to_string() },
            // What an earlier thread set says is void.
            3 => gateways::Report::Connected { gateway, run: run.saturating_sub(1), bot: "old".into() },
            _ => gateways::Report::Connected { gateway, run, bot: "bot".into() },
        };
        self.apply(Event::Gateways(report));
    }

    /// The process of some agent goes on to its end, without new ideas. Whether there was one.
    pub fn wind_down(&mut self) -> bool {
        if self.not_heard() || self.brief() || self.answer_queries() {
        } else if let Some((id, process)) = self.programs.processes.iter().next().map(|(id, one)| (*id, *one))
        {
            if process == Process::Ordered {
                self.begins(id);
            }
            if self.thread_acts(id) {
                return true;
            }
            match process {
                Process::Stopping => self.exit(id, None, Some(15)),
                _ => self.exit(id, Some(1), None),
            }
        } else {
            return false;
        }
        true
    }

    /// What was said to a run that is over reaches nobody.
    pub fn not_heard(&mut self) -> bool {
        let Some((id, message_id)) = self.programs.unheard.pop() else { return false };
        self.report(id, RunReport::Said { message_id, delivered: false });
        true
    }

    fn answer_queries(&mut self) -> bool {
        let Some(call) = self.programs.queries.pop_first() else { return false };
        self.apply(Event::Job(JobReport::Query(call, Err("no answer".into()))));
        true
    }

    /// What follows the state messages is brought up to date.
    pub fn tell_followers(&mut self) {
        self.apply(Event::Timer(Timer::StateNotice));
    }
}
