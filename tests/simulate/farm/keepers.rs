//! Keepers, which hold a program when the daemon goes, and the daemon's thread that reads from one, as
//! `src/agents/worker/run.rs` and `stream.rs` do: records in one order, deeds with numbers, checkpoints that
//! count when the state on disk is as new.

use super::invariants::{Rule, ensure};
use super::limits;
use super::machine::{Machine, Plant};
use super::programs::Process;
use crate::support::world::activity;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use svc::agents::report::{Batch, Credit, Keeper, Packed, RunReport};
use svc::agents::{Agent, LAST_CHECKPOINT};
use svc::core::ids::{AgentId, LineageId};
use svc::core::time::Time;
use svc::providers::Activity;

/// A keeper waits so long for the next daemon, as `keeper.orphanMinutes` is unless set.
const ORPHAN_MS: u64 = 30 * 60_000;

/// What a keeper has to tell, in order.
enum Record {
    /// The program has printed this: a deed.
    Out(Activity),
    /// It has taken this message: a deed.
    Taken(u64),
    /// This message has not reached it.
    Lost(u64),
}

impl Record {
    fn deeds(&self) -> u64 {
        u64::from(!matches!(self, Self::Lost(_)))
    }

    fn tokens(&self) -> u64 {
        match self {
            Self::Out(Activity::Usage(usage)) => u64::try_from(usage.delta.input).unwrap(),
            _ => 0,
        }
    }

    fn message(&self) -> Option<u64> {
        match self {
            Self::Taken(id) | Self::Lost(id) if *id > 0 => Some(*id),
            _ => None,
        }
    }
}

/// What waits for the thread.
enum Order {
    Say(u64, String),
    /// The answer to this question.
    Decide(String),
}

/// How a program has ended.
#[derive(Clone, Copy)]
pub struct End {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// Because it was told to.
    pub signalled: bool,
}

/// Where a later daemon may read on.
#[derive(Clone, Copy)]
struct Checkpoint {
    n: u64,
    read: usize,
    deed: u64,
}

/// One keeper, its program, and the thread of the daemon that listens.
pub struct Kept {
    lineage: LineageId,
    /// What its lineage had used before.
    base: u64,
    /// What its program is started with, and whether it runs and has that.
    prompt: String,
    has_begun: bool,
    records: Vec<Record>,
    end: Option<End>,
    /// Its input is closed.
    is_deaf: bool,
    /// Something has not reached it: its next life is told.
    pub is_refused: bool,
    /// Whether it is in a turn.
    pub is_busy: bool,
    /// Paragraphs that it was told since its last good turn.
    pub working: Vec<String>,
    /// Whether its provider refuses, and until when.
    pub is_at_limit: bool,
    pub opens: Option<Time>,
    /// Messages that it has heard.
    heard: BTreeSet<u64>,
    /// What the thread has read, and the last deed of it.
    read: usize,
    deed: u64,
    /// Deeds that the state has of an earlier daemon.
    known: u64,
    orders: VecDeque<Order>,
    /// What its program asks and nobody has answered.
    pub asked: BTreeSet<String>,
    is_start_told: bool,
    /// What stood there when this daemon came, until all of that is told.
    greeting: Option<usize>,
    /// Messages that the state believes to be on their way, and that never came to the keeper.
    missing: Vec<u64>,
    said_before: BTreeSet<u64>,
    checkpoints: Vec<Checkpoint>,
    pending: Option<u64>,
    is_orphaned: bool,
    is_left: bool,
}

impl Kept {
    /// That of a new run.
    pub fn new(lineage: LineageId, base: u64, prompt: String) -> Self {
        Self {
            lineage,
            base,
            prompt,
            has_begun: false,
            records: Vec::new(),
            end: None,
            is_deaf: false,
            is_refused: false,
            is_busy: true,
            working: Vec::new(),
            is_at_limit: false,
            opens: None,
            heard: BTreeSet::new(),
            read: 0,
            deed: 0,
            known: 0,
            orders: VecDeque::new(),
            asked: BTreeSet::new(),
            is_start_told: false,
            greeting: None,
            missing: Vec::new(),
            said_before: BTreeSet::new(),
            checkpoints: vec![Checkpoint { n: 0, read: 0, deed: 0 }],
            pending: None,
            is_orphaned: false,
            is_left: false,
        }
    }

    /// Whether all of before this daemon was told.
    pub fn has_caught_up(&self) -> bool {
        self.greeting.is_none()
    }

    /// Whether its program is over, though nobody may have been told.
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Something waits to be said to it.
    pub fn say(&mut self, message: u64, text: String) {
        self.orders.push_back(Order::Say(message, text));
    }

    /// Its question is answered.
    pub fn decide(&mut self, question: String) {
        self.orders.push_back(Order::Decide(question));
    }

    /// Whether the daemon knows all of it, and it all that the daemon wants.
    pub fn is_at_rest(&self) -> bool {
        self.has_caught_up() && self.orders.is_empty() && self.read == self.records.len() && !self.is_over()
    }

    /// Whether something waits to be said to it.
    pub fn is_spoken_to(&self) -> bool {
        !self.orders.is_empty()
    }

    fn prints(&mut self, activity: Activity) {
        self.notes_limit(&activity);
        match &activity {
            Activity::PermissionAsked { question, .. } => drop(self.asked.insert(question.clone())),
            Activity::TurnEnded(_) => self.is_busy = false,
            Activity::TurnStarted | Activity::ToolStarted { .. } => self.is_busy = true,
            _ => {}
        }
        self.records.push(Record::Out(activity));
    }

    /// Tokens of its lineage, up to this deed.
    fn used(&self, deed: u64) -> u64 {
        let mut number = 0;
        let up_to = |record: &&Record| {
            number += record.deeds();
            number <= deed
        };
        self.base + self.records.iter().take_while(up_to).map(Record::tokens).sum::<u64>()
    }

    /// Another daemon has come, whose state knows this agent so.
    fn greet(&mut self, agent: &Agent) {
        let name = &agent.name;
        let newest = self.checkpoints.iter().rev().find(|one| one.deed <= agent.heard).copied();
        let lines = || format!("{name} has heard {} deeds, and no checkpoint is as old", agent.heard);
        ensure(Rule::NoLineLost, newest.is_some(), lines);
        let (told, used) = (agent.tokens.total(), self.used(agent.heard));
        let said = || format!("{name} has used {used} in {} deeds, its record says {told}", agent.heard);
        ensure(Rule::NoLineLost, told == used, said);
        let Checkpoint { n, read, deed } = newest.unwrap();
        self.checkpoints.retain(|one| one.n <= n);
        (self.read, self.deed, self.known, self.pending) = (read, deed, agent.heard, None);
        self.orders.clear();
        self.is_start_told = agent.pid.is_some();
        self.greeting = Some(self.records.len());
        self.is_left = false;
        self.said_before = self.records[read..].iter().filter_map(Record::message).collect();
        let sent = agent.queue.iter().filter(|message| message.sent).map(|message| message.id);
        self.missing = sent.filter(|message| !self.said_before.contains(message)).collect();
    }
}

impl Machine {
    fn kept(&mut self, id: AgentId) -> Option<&mut Kept> {
        self.programs.keepers.get_mut(&id)
    }

    /// A program runs: what stood in its prompt has reached it.
    pub fn begins(&mut self, id: AgentId) {
        self.programs.processes.insert(id, Process::Runs);
        self.has_prompt(id);
    }

    fn has_prompt(&mut self, id: AgentId) {
        let Some(kept) = self.programs.keepers.get_mut(&id) else { return };
        if !std::mem::replace(&mut kept.has_begun, true) {
            kept.working = limits::paragraphs(&kept.prompt);
            self.promises.taken(kept.lineage, &kept.prompt);
            self.starts.begun(id);
            self.dies_soon |= self.dice.below(128) == 0 || self.plant == Plant::ForgetsBegun;
        }
    }

    /// A program prints. Mostly its thread reads that at once.
    pub fn prints(&mut self, id: AgentId, told: Vec<Activity>) {
        let state = &self.core.state;
        if let Some(agent) = state.agents.get(id) {
            for activity in &told {
                self.accounts.printed(state, agent, activity);
            }
        }
        let Some(kept) = self.kept(id) else { return };
        for activity in told {
            kept.prints(activity);
        }
        if self.dice.below(4) > 0 {
            self.reads(id);
            // What follows from it is mostly said at once.
            while self.dice.below(4) > 0 && self.thread_acts(id) {}
        }
    }

    /// A program ends. Mostly its thread hears of that at once.
    pub fn ends(&mut self, id: AgentId, end: End) {
        let Some(kept) = self.kept(id) else { return };
        kept.end = kept.end.or(Some(end));
        while self.dice.below(8) > 0 && self.thread_acts(id) {}
    }

    /// The thread of a run does what is next. Whether there was anything.
    pub fn thread_acts(&mut self, id: AgentId) -> bool {
        if self.programs.processes.get(&id).is_none_or(|process| *process == Process::Ordered) {
            return false;
        }
        let Some(kept) = self.kept(id).filter(|kept| !kept.is_left) else { return false };
        if !kept.is_start_told {
            self.tells_start(id);
        } else if let Some(message_id) = kept.missing.pop() {
            kept.is_refused = true;
            self.report(id, RunReport::Said { message_id, delivered: false });
        } else if kept.read < kept.records.len() {
            self.reads(id);
        } else if kept.greeting.take().is_some() {
            self.seen.count("runs gone on with");
            self.report(id, RunReport::CaughtUp);
        } else if kept.end.is_some() {
            self.tells_end(id);
        } else {
            match kept.orders.pop_front() {
                Some(Order::Say(message, text)) => self.says(id, message, &text),
                Some(Order::Decide(question)) => drop(kept.asked.remove(&question)),
                None => return false,
            }
        }
        true
    }

    /// A keeper's first record: the program runs.
    fn tells_start(&mut self, id: AgentId) {
        let Some(kept) = self.kept(id).filter(|kept| !kept.is_start_told) else { return };
        kept.is_start_told = true;
        let (pid, start_ticks) = (id.0 | 1, 7);
        // One that is to be stopped may have begun.
        self.has_prompt(id);
        self.report(id, RunReport::Started { pid, start_ticks });
    }

    /// The thread takes in what there is, or the first part of it.
    fn reads(&mut self, id: AgentId) {
        self.tells_start(id);
        let there = self.kept(id).map_or(0, |kept| kept.records.len() - kept.read);
        let part = if there > 1 && self.dice.below(4) == 0 { 1 + self.dice.roll(there) } else { there };
        let Some(kept) = self.kept(id) else { return };
        let until = kept.read + part;
        // What comes of one report may be the end of the run.
        while self.kept(id).is_some_and(|kept| kept.read < until) {
            self.reads_on(id, until);
        }
    }

    /// The thread takes in what was printed up to the next message, or that message.
    fn reads_on(&mut self, id: AgentId, until: usize) {
        let Some(kept) = self.kept(id) else { return };
        let (mut activities, mut used) = (Vec::new(), 0);
        let mut said = None;
        while kept.read < until && said.is_none() {
            let record = &kept.records[kept.read];
            if !matches!(record, Record::Out(_)) && !activities.is_empty() {
                break;
            }
            kept.read += 1;
            kept.deed += record.deeds();
            match record {
                Record::Out(activity) if kept.deed > kept.known => {
                    used += record.tokens();
                    activities.push(activity.clone());
                }
                Record::Out(_) => {}
                Record::Taken(message) => said = Some((*message, true)),
                Record::Lost(message) => {
                    said = Some((*message, false));
                    kept.said_before.remove(message);
                }
            }
        }
        let (upto, lineage) = (kept.deed, kept.lineage);
        if let Some((message_id, delivered)) = said {
            self.report(id, RunReport::Said { message_id, delivered });
        } else if !activities.is_empty() {
            *self.programs.fed.entry(lineage).or_default() += used;
            let batch = Batch { activities, frames: Packed::default(), upto, credit: Credit::free() };
            self.report(id, RunReport::Output(batch));
        }
    }

    /// The thread says something to the program.
    fn says(&mut self, id: AgentId, message: u64, text: &str) {
        let hears = self.dice.below(6) > 0;
        // What was said and is not in the state on disk is what a kill may have said again.
        let forgets = self.plant == Plant::SaysAgain;
        // That one shows over a kill alone.
        self.dies_soon |= self.dice.below(8) == 0 || forgets;
        self.seen.count("messages to programs");
        let Some(kept) = self.kept(id) else { return };
        if kept.said_before.contains(&message) && !forgets {
            // This daemon has only heard why an earlier one has said it.
            self.seen.count("messages that an earlier daemon has said");
            return;
        }
        let (is_new, lineage) = (message == 0 || !kept.heard.contains(&message), kept.lineage);
        kept.is_deaf |= !hears;
        kept.is_refused |= kept.is_deaf;
        if kept.is_deaf {
            kept.records.push(Record::Lost(message));
        } else {
            kept.heard.insert(message);
            kept.is_busy = true;
            kept.working.extend(limits::paragraphs(text));
            kept.records.push(Record::Taken(message));
            let is_new = is_new && !(text.starts_with("message-") && kept.prompt.contains(text));
            ensure(Rule::OrderOnce, is_new, || format!("{id} was told twice: {text}"));
            self.promises.taken(lineage, text);
        }
        if self.dice.below(3) > 0 {
            self.reads(id);
        }
    }

    /// The thread reports the end of all that it had started.
    fn tells_end(&mut self, id: AgentId) {
        let Some(mut kept) = self.programs.keepers.remove(&id) else { return };
        for order in std::mem::take(&mut kept.orders) {
            if let Order::Say(message_id, _) = order {
                self.report(id, RunReport::Said { message_id, delivered: false });
            }
        }
        let process = self.programs.processes.remove(&id);
        let Some(End { code, signal, signalled }) = kept.end else { return };
        let by_itself = limits::ends_by_itself(process.as_ref()) && code.is_some() && !kept.is_orphaned;
        let keeper = if kept.is_orphaned { Keeper::Orphaned } else { Keeper::Told };
        if self.plant == Plant::LosesExits {
            return;
        }
        let (stderr_tail, before) = (String::new(), self.core.state.clone());
        self.report(id, RunReport::Exited { code, signal, signalled, stderr_tail, leaked: 0, keeper });
        self.ended_at_limit(id, &kept, by_itself, &before);
        // It stays until its end is on disk.
        self.programs.ended.insert(id, kept);
    }

    /// The thread notes where a later daemon may read on.
    pub fn checkpoints(&mut self, id: AgentId) {
        let Some(kept) = self.kept(id).filter(|kept| kept.has_caught_up() && kept.pending.is_none()) else {
            return;
        };
        let Some(last) = kept.checkpoints.last().copied().filter(|last| last.read < kept.read) else {
            return;
        };
        let (n, deed) = (last.n + 1, kept.deed);
        kept.checkpoints.push(Checkpoint { n, read: kept.read, deed });
        kept.pending = Some(n);
        self.seen.count("checkpoints");
        self.report(id, RunReport::Checkpoint { n, deed });
    }

    /// What the state knew at this checkpoint is on disk: nothing before is needed again.
    pub fn settled(&mut self, id: AgentId, n: u64) {
        if n == LAST_CHECKPOINT {
            self.programs.ended.remove(&id);
        } else if let Some(kept) = self.kept(id).filter(|kept| kept.pending == Some(n)) {
            kept.pending = None;
            kept.checkpoints.retain(|one| one.n >= n);
        }
    }

    /// The thread leaves its run to the keeper and the next daemon. Whether there was one.
    pub fn leaves(&mut self, id: AgentId) -> bool {
        let Some(kept) = self.kept(id).filter(|kept| !kept.is_left) else { return false };
        kept.is_left = true;
        // Whatever was read is flushed, and what stands behind it is the next daemon's.
        let last = kept.checkpoints.last().map_or(0, |last| last.n);
        kept.checkpoints.push(Checkpoint { n: last + 1, read: kept.read, deed: kept.deed });
        self.report(id, RunReport::Left);
        true
    }

    /// The daemon is gone: the keepers that stay.
    pub fn survivors(&mut self) -> BTreeMap<AgentId, Kept> {
        let mut kept = std::mem::take(&mut self.programs.ended);
        for (id, mut one) in std::mem::take(&mut self.programs.keepers) {
            match self.programs.processes.get(&id) {
                // Its keeper was not begun.
                None => continue,
                Some(Process::Ordered) if self.dice.below(2) == 0 => continue,
                // The keeper has had the order.
                Some(Process::Stopping) if self.dice.below(2) == 0 => {
                    let told = End { code: None, signal: Some(15), signalled: true };
                    one.is_orphaned = true;
                    one.end = one.end.or(Some(told));
                }
                _ => {}
            }
            kept.insert(id, one);
        }
        kept
    }

    /// Programs go on while no daemon is there.
    pub fn live_on(&mut self, millis: u64) {
        let ids: Vec<AgentId> = self.programs.keepers.keys().copied().collect();
        for id in ids {
            // The keeper of one that was only ordered has begun it by now.
            self.has_prompt(id);
            for _ in 0..self.dice.below(4) {
                let activity = match self.dice.below(4) {
                    0 => activity("says", "on my own"),
                    1 => activity("ends-turn", "ok"),
                    2 => activity("writes", "src/p0/f0.rs"),
                    _ => self.used_alone(),
                };
                if let Some(kept) = self.kept(id).filter(|kept| !kept.is_over()) {
                    kept.prints(activity);
                }
            }
            let ends = self.dice.below(6) == 0;
            let Some(kept) = self.kept(id).filter(|kept| !kept.is_over()) else { continue };
            if ends {
                kept.end = Some(End { code: Some(0), signal: None, signalled: false });
            } else if millis >= ORPHAN_MS {
                kept.end = Some(End { code: None, signal: Some(15), signalled: true });
                kept.is_orphaned = true;
            }
        }
    }

    /// Another daemon has read the state and finds the keepers.
    pub fn greet(&mut self) {
        for (id, mut kept) in std::mem::take(&mut self.programs.keepers) {
            let agent =
                self.core.state.agents.get(id).filter(|agent| agent.status.is_live() && !agent.has_no_run());
            let Some(agent) = agent else {
                // Nobody knows it any more: it is ended.
                continue;
            };
            kept.greet(agent);
            self.programs.fed.insert(kept.lineage, kept.used(kept.known));
            self.programs.keepers.insert(id, kept);
            self.begins(id);
        }
    }
}
