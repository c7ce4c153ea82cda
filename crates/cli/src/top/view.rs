//! What `svc top` shows and which row is chosen. Pure: keys and looks at the daemon come in, wishes go out.
//!
//! **Invariant:** the choice is kept by id, so that a row that moves takes it along; a key never acts on a
//! row that took another's place.

use super::keys::Key;
use crate::approvals::{answer_of, is_question};
use crate::render::one_line;
use crate::target::{is_live, state, text};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use svc_base::sorted;
use svc_base::time::Time;

/// The tokens per second are of the last so many milliseconds.
const RATE_WINDOW_MS: u64 = 10_000;
/// Lines that a page key moves.
const PAGE_LINES: usize = 10;
/// Characters of an answer that is typed; the daemon takes no more.
const ANSWER_CHARS: usize = 2000;

/// One look at the daemon.
#[derive(Debug, Clone, Default)]
pub struct Look {
    pub at: Time,
    /// `GET /api/agents`.
    pub agents: Vec<Value>,
    /// The pending ones of `GET /api/approvals`.
    pub approvals: Vec<Value>,
    /// `GET /api/quota`; null where nobody has said.
    pub quota: Value,
    /// `GET /api/capacity`; null where nobody has said.
    pub capacity: Value,
    /// The lines of the agent that is watched, oldest first, and its id.
    pub log: Option<(String, Vec<String>)>,
    /// Projects whose daemons gave no answer.
    pub silent: Vec<String>,
    /// Why the look failed; the rest is then empty.
    pub trouble: Option<String>,
}

/// What is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    Approval(String),
    Agent(String),
}

/// What covers the lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pane {
    /// The log of this agent, so many lines from its end.
    Log {
        agent: String,
        name: String,
        /// 0 stays at the end.
        back: usize,
    },
    /// The whole record of this approval, from this line on.
    Approval {
        id: String,
        /// Lines left out above.
        from: usize,
    },
}

/// What a key asks of the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    Quit,
    Decide {
        id: String,
        approve: bool,
    },
    /// Say this to who has asked.
    Answer {
        id: String,
        words: String,
    },
    /// End an agent, or remove an ended one.
    Kill {
        id: String,
        name: String,
    },
    /// Read this agent's log from now on; none when `None`.
    Watch(Option<String>),
}

/// The state of the screen.
#[derive(Debug, Default)]
pub struct View {
    /// The project's folder, or the daemon's address.
    pub place: String,
    /// The last look, its agents in the order of the screen.
    pub look: Look,
    pub pick: Option<Pick>,
    /// What covers the lists.
    pub pane: Option<Pane>,
    /// The agent (id and name) whose end waits for a y.
    pub asked: Option<(String, String)>,
    /// The question (its id) that is being answered, and what is typed so far.
    pub answer: Option<(String, String)>,
    pub said: String,
    samples: BTreeMap<String, VecDeque<(Time, u64)>>,
}

/// Where an agent stands in the list: those that wait for someone first, the ended last.
fn rank(agent: &Value) -> u8 {
    match state(agent) {
        "waiting" => 0,
        _ if is_live(agent) => 1,
        "crashed" | "interrupted" => 2,
        _ => 3,
    }
}

impl View {
    /// A screen that has seen nothing yet.
    pub fn new(place: String) -> Self {
        Self { place, ..Self::default() }
    }

    /// Takes a look at the daemon over. One that failed leaves the lists as they were.
    pub fn saw(&mut self, mut look: Look) {
        if let Some(trouble) = look.trouble {
            self.look.trouble = Some(trouble);
            return;
        }
        sorted::by(&mut look.agents, |a, b| (rank(a), text(a, "name")).cmp(&(rank(b), text(b, "name"))));
        sorted::by(&mut look.approvals, |a, b| text(a, "requestedAt").cmp(text(b, "requestedAt")));
        self.sample(&look);
        self.look = look;
        let rows = self.rows();
        if !self.pick.as_ref().is_some_and(|pick| rows.contains(pick)) {
            self.pick = rows.first().cloned();
        }
        if let Some(Pane::Approval { id, .. }) = &self.pane
            && !rows.contains(&Pick::Approval(id.clone()))
        {
            self.pane = None;
        }
        if self.asked.as_ref().is_some_and(|(id, _)| self.agent(id).is_none()) {
            self.asked = None;
        }
        if let Some((id, _)) = self.answer.take_if(|(id, _)| !rows.contains(&Pick::Approval(id.clone()))) {
            self.said = format!("{id} waits no more");
        }
    }

    fn sample(&mut self, look: &Look) {
        let tokens = |agent: &Value| agent["tokensUsed"].as_u64().unwrap_or(0);
        self.samples.retain(|id, _| look.agents.iter().any(|agent| text(agent, "id") == id));
        for agent in &look.agents {
            let samples = self.samples.entry(text(agent, "id").into()).or_default();
            samples.push_back((look.at, tokens(agent)));
            while samples.len() > 2 && look.at.0.saturating_sub(samples[1].0.0) >= RATE_WINDOW_MS {
                samples.pop_front();
            }
        }
    }

    /// Tokens per second of an agent; `None` before the second look.
    pub fn rate(&self, id: &str) -> Option<u64> {
        let samples = self.samples.get(id)?;
        let ((from, before), (to, after)) = (samples.front()?, samples.back()?);
        let passed_ms = to.0.checked_sub(from.0).filter(|passed| *passed > 0)?;
        Some(after.saturating_sub(*before).saturating_mul(1000) / passed_ms)
    }

    /// What can be chosen, in the order of the screen.
    pub fn rows(&self) -> Vec<Pick> {
        let approvals = self.look.approvals.iter().map(|one| Pick::Approval(text(one, "id").into()));
        approvals.chain(self.look.agents.iter().map(|one| Pick::Agent(text(one, "id").into()))).collect()
    }

    /// The record of an agent.
    pub fn agent(&self, id: &str) -> Option<&Value> {
        self.look.agents.iter().find(|agent| text(agent, "id") == id)
    }

    /// Answers a key.
    pub fn key(&mut self, key: Key) -> Option<Wish> {
        if key == Key::Interrupt {
            return Some(Wish::Quit);
        }
        if let Some((id, name)) = self.asked.take() {
            self.said = if key == Key::Char('y') { format!("ending {name}") } else { "not ended".into() };
            return (key == Key::Char('y')).then_some(Wish::Kill { id, name });
        }
        self.said.clear();
        if let Some((id, words)) = self.answer.take() {
            return self.answer_key(id, words, key);
        }
        match key {
            Key::Char('a') => return self.decide(true),
            Key::Char('r') => return self.decide(false),
            _ => {}
        }
        match self.pane.take() {
            Some(pane) => self.pane_key(pane, key),
            None => self.list_key(key),
        }
    }

    fn list_key(&mut self, key: Key) -> Option<Wish> {
        match key {
            Key::Char('q') => return Some(Wish::Quit),
            Key::Up | Key::Char('k') => self.step(|at, _| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.step(|at, last| (at + 1).min(last)),
            Key::PageUp => self.step(|at, _| at.saturating_sub(PAGE_LINES)),
            Key::PageDown => self.step(|at, last| (at + PAGE_LINES).min(last)),
            Key::Home | Key::Char('g') => self.step(|_, _| 0),
            Key::End | Key::Char('G') => self.step(|_, last| last),
            Key::Enter => return self.open(),
            Key::Char('K' | 'x') => match self.pick.clone() {
                Some(Pick::Agent(id)) => {
                    let name = self.agent(&id).map(|agent| one_line(text(agent, "name")));
                    self.asked = name.map(|name| (id, name));
                }
                _ => "choose an agent to end".clone_into(&mut self.said),
            },
            _ => {}
        }
        None
    }

    fn pane_key(&mut self, pane: Pane, key: Key) -> Option<Wish> {
        let is_log = matches!(pane, Pane::Log { .. });
        if matches!(key, Key::Char('q') | Key::Escape | Key::Enter) {
            return is_log.then_some(Wish::Watch(None));
        }
        // Up means older lines: further back from a log's end, nearer to a record's beginning.
        let lines = match key {
            Key::Up | Key::Char('k') => -1,
            Key::Down | Key::Char('j') => 1,
            Key::PageUp => -PAGE_LINES.cast_signed(),
            Key::PageDown => PAGE_LINES.cast_signed(),
            Key::Home | Key::Char('g') => isize::MIN + 1,
            Key::End | Key::Char('G') => isize::MAX,
            _ => 0,
        };
        self.pane = Some(match pane {
            Pane::Log { agent, name, back } => {
                let most = self.look.log.as_ref().map_or(0, |(_, lines)| lines.len().saturating_sub(1));
                Pane::Log { agent, name, back: back.saturating_add_signed(-lines).min(most) }
            }
            Pane::Approval { id, from } => {
                let most = self.approval_lines(&id).len().saturating_sub(1);
                Pane::Approval { id, from: from.saturating_add_signed(lines).min(most) }
            }
        });
        None
    }

    /// All that it takes to decide an approval: its card or, where there is none yet, its whole record; empty
    /// when it is gone.
    pub fn approval_lines(&self, id: &str) -> Vec<String> {
        match self.approval(id) {
            Some(record) if record["card"].is_object() => crate::card::lines(record, &record["card"]),
            Some(record) => format!("{record:#}").lines().map(ToOwned::to_owned).collect(),
            None => Vec::new(),
        }
    }

    /// The record of an approval that waits.
    fn approval(&self, id: &str) -> Option<&Value> {
        self.look.approvals.iter().find(|record| text(record, "id") == id)
    }

    /// Answers a key while an answer is typed: all letters are its own.
    fn answer_key(&mut self, id: String, mut words: String, key: Key) -> Option<Wish> {
        match key {
            Key::Escape => {
                "not answered".clone_into(&mut self.said);
                return None;
            }
            Key::Enter if !words.trim().is_empty() => {
                let words = self.approval(&id).map(|record| answer_of(record, words.trim()))?;
                self.pane = None;
                return Some(Wish::Answer { id, words });
            }
            Key::Backspace => drop(words.pop()),
            Key::Char(c) if words.chars().count() < ANSWER_CHARS => words.push(c),
            _ => {}
        }
        self.answer = Some((id, words));
        None
    }

    fn step(&mut self, to: impl Fn(usize, usize) -> usize) {
        let rows = self.rows();
        let at = rows.iter().position(|row| Some(row) == self.pick.as_ref()).unwrap_or(0);
        self.pick = rows.get(to(at, rows.len().saturating_sub(1))).cloned();
    }

    fn open(&mut self) -> Option<Wish> {
        match self.pick.clone()? {
            Pick::Approval(id) => {
                self.pane = Some(Pane::Approval { id, from: 0 });
                None
            }
            Pick::Agent(id) => {
                let name = one_line(text(self.agent(&id)?, "name"));
                self.pane = Some(Pane::Log { agent: id.clone(), name, back: 0 });
                Some(Wish::Watch(Some(id)))
            }
        }
    }

    /// The approval that is open or chosen; else the only one of the agent that is. A question is not
    /// approved: its answer is typed, below all that it asks.
    fn decide(&mut self, approve: bool) -> Option<Wish> {
        let chosen = match (&self.pane, &self.pick) {
            (Some(Pane::Approval { id, .. }), _) | (None, Some(Pick::Approval(id))) => Some(id.clone()),
            (Some(Pane::Log { agent, .. }), _) | (None, Some(Pick::Agent(agent))) => {
                let own = |record: &&Value| text(record, "agentId") == agent;
                let mut own = self.look.approvals.iter().filter(own);
                let first = own.next().map(|record| text(record, "id").to_owned());
                first.filter(|_| own.next().is_none())
            }
            (None, None) => None,
        };
        if chosen.is_none() {
            "choose an approval to decide".clone_into(&mut self.said);
        }
        let id = chosen?;
        if approve && self.approval(&id).is_some_and(is_question) {
            self.answer = Some((id.clone(), String::new()));
            self.pane = Some(Pane::Approval { id, from: 0 });
            return None;
        }
        Some(Wish::Decide { id, approve })
    }
}
