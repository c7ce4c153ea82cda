//! Talking to agents: instructions, questions, and continuing an ended agent.
//!
//! **Invariant:** an acknowledged instruction stays in the record until a program has taken it. One that
//! stands in a prompt is taken when the program that gets the prompt runs.

use super::limit::reserve;
use super::reason::Remark;
use super::record::{Agent, Attached, Deliver, Instruction, Phase, Status};
use super::{Job, Outcome, RunOrder, last_word, life, limit, new_life, queue, rotation, spawn, touch, wait};
use crate::accounts;
use crate::api::Problem;
use crate::context::briefing;
use crate::core::ids::AgentId;
use crate::core::notice::{Notice, Undelivered};
use crate::core::{CallId, Context, Durability, Effect, Moment, State as All, Timer};
use crate::providers::{self, Purpose, SessionStart, Tokens};
use crate::usage;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Messages that may wait for one agent.
pub const MAX_QUEUED: usize = 100;
/// Characters shown of a message that was not delivered.
const UNDELIVERED_CHARS: usize = 300;
/// Questions under way at once.
pub const MAX_QUERIES: usize = 8;
/// A question that takes longer is given up with 504.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Queues a message, or delivers it at once: 200.
///
/// Errors: 404, 409 `queue_full`, what a resume refuses.
pub fn instruct(
    all: &mut All,
    cx: &mut Context,
    target: &str,
    message: String,
    deliver: Deliver,
) -> Result<Outcome, Problem> {
    let agent = Arc::clone(all.agents.find(target)?);
    usage::outcomes::told(all, cx, &agent, &message);
    if !agent.status.is_live() || agent.is_put_away() {
        // Whoever speaks to an agent that has ended, or was put away, wants it back.
        let next = continue_with(all, cx, &agent, Some(message))?;
        return Ok(Outcome::Resumed { old: agent.id, agent: next, instructed: true });
    }
    if agent.queue.len() >= MAX_QUEUED {
        let text =
            format!("{MAX_QUEUED} messages wait for {} already; rotate it to deliver them", agent.name);
        return Err(Problem::new(409, "queue_full", text));
    }
    let live_input = wait::takes_input(&agent.provider);
    let deliver = match deliver {
        Deliver::Auto if live_input => Deliver::Now,
        // Its program reads nothing while it runs; the next life begins with the message.
        Deliver::Auto => Deliver::Rotation,
        named => named,
    };
    // What an agent says to another is not to begin a turn in what is kept: it waits for its end.
    let is_kept = cx.actor.agent().is_some() && reserve::is_kept(all, cx.now, agent.id);
    let deliver = if is_kept { Deliver::Idle } else { deliver };
    // A person is at its screen: it hears it when the person has left.
    let deliver = if agent.attached == Attached::Here { Deliver::Idle } else { deliver };
    let agents = Arc::make_mut(&mut all.agents);
    let message_id = agents.number_message();
    let Some(record) = agents.edit(agent.id) else { return Err(Problem::not_found("the agent is gone")) };
    // In every other phase its input is closed, or closes soon: the message waits for the next life.
    let now = deliver == Deliver::Now && live_input && record.phase == Phase::Working;
    let text: Arc<str> = message.into();
    record.queue.push(Instruction { sent: now, ..Instruction::new(message_id, Arc::clone(&text), deliver) });
    let queued = record.queue.len();
    if now {
        cx.push(Effect::Run(agent.id, RunOrder::Say { message_id, text: text.to_string() }));
    } else if deliver == Deliver::Now && !live_input && !agent.has_no_run() {
        // A program without live input can be told at once only by starting it anew.
        rotation::begin(all, cx, agent.id, "manual", None);
    }
    // Who is told "queued" may rely on it, a crash included.
    touch(all, cx, Durability::BeforeReply);
    Ok(Outcome::Queued { id: agent.id, name: agent.name.clone(), deliver, queued })
}

/// As [`instruct`], for other features; the id of the life that hears it.
pub fn say_to(
    all: &mut All,
    cx: &mut Context,
    target: &str,
    message: String,
    deliver: Deliver,
) -> Result<AgentId, Problem> {
    Ok(match instruct(all, cx, target, message, deliver)? {
        Outcome::Resumed { agent, .. } => agent.id,
        _ => all.agents.find(target)?.id,
    })
}

/// A program took a message, or did not.
pub fn said(all: &mut All, cx: &mut Context, id: AgentId, message_id: u64, delivered: bool) {
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    if std::mem::take(&mut agent.turn_presumed) && !delivered {
        // What was to begin a turn has not arrived: none will end.
        agent.turn_open = false;
    }
    let Some(at) = agent.queue.iter().position(|message| message.id == message_id) else {
        if message_id == 0 {
            // The daemon's own word is in no queue.
            life::let_go_if_idle(all, cx, id);
        }
        return;
    };
    if delivered {
        // The run has logged it where it took it, among its other lines.
        let message = agent.queue.remove(at);
        agent.work_on(&message.text);
    } else {
        // It stays, and is said to the next life when this one has ended.
        agent.queue[at].sent = false;
    }
    // What came while this one was on its way, behind the turn's end, waits for no other turn to end.
    let is_free = delivered && !agent.turn_open && !agent.is_at_limit() && agent.put_away.is_none();
    let is_last = agent.attached == Attached::No && agent.queue.iter().all(|message| !message.sent);
    if !is_free || !is_last || rotation::under_way(all, id) || !deliver_idle(all, cx, id) {
        life::let_go_if_idle(all, cx, id);
    }
    touch(all, cx, Durability::Soon);
}

/// A turn is over and no rotation is due: says what waits, also what waited for a rotation, for without
/// another message the run ends here. Whether anything was said.
pub fn deliver_idle(all: &mut All, cx: &mut Context, id: AgentId) -> bool {
    // Another turn is something new, too: it ends, and what waits is told as not delivered.
    let is_spent = usage::check_budget(all, cx.now).is_err() || reserve::is_kept(all, cx.now, id);
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return false };
    if agent.phase != Phase::Working || !wait::takes_input(&agent.provider) || is_spent {
        return false;
    }
    if agent.moving.is_some() {
        // It hears it where it goes on.
        return false;
    }
    let Some(message) = agent.queue.iter_mut().find(|message| !message.sent && !message.is_note) else {
        return false;
    };
    message.sent = true;
    // The program takes it as a new turn, but says so only later: until then it must not pass for idle.
    (agent.turn_open, agent.turn_presumed) = (true, true);
    let order = RunOrder::Say { message_id: message.id, text: message.text.to_string() };
    cx.push(Effect::Run(id, order));
    true
}

/// An agent has ended by itself: if somebody spoke to it meanwhile, it goes on with that.
pub fn resume_if_spoken_to(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let rotating = all.agents.pending_rotations.contains_key(&id);
    if agent.status != Status::Completed || all.health.stopping || rotating {
        return;
    }
    // A note alone is worth no new life; it goes along with the next message.
    if agent.queue.iter().all(|message| message.is_note) {
        return;
    }
    // What waits is the first message of the next life.
    if let Err(problem) = continue_with(all, cx, &agent, None) {
        cx.push(Effect::Warn(format!("agent {id} could not go on with its instructions: {problem}")));
    }
}

/// An agent has ended for good while somebody's words still waited: they stay with its record, and that is
/// told where people look.
pub fn tell_undelivered(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let waiting: Vec<&Instruction> = agent.queue.iter().filter(|message| !message.is_note).collect();
    if agent.status.is_live() || waiting.is_empty() {
        return;
    }
    let (count, name) = (waiting.len(), &agent.name);
    let told = |message: &&Instruction| Undelivered {
        id: message.id,
        deliver: message.deliver,
        message: message.text.chars().take(UNDELIVERED_CHARS).collect(),
    };
    cx.notice(Notice::InstructionUndelivered {
        agent_id: id,
        agent_name: name.clone(),
        count,
        reason: agent.status_reason.to_string(),
        instructions: waiting.iter().map(told).collect(),
    });
    cx.audit("instruction.undelivered", &json!({"agentId": id, "name": name, "count": count}));
    if let Some(record) = Arc::make_mut(&mut all.agents).edit(id) {
        record.status_reason.remark(Remark::Undelivered { count, name: name.clone() });
    }
    touch(all, cx, Durability::Soon);
}

/// Continues an ended agent: 200 with the new record.
///
/// Errors: 404, 409 when it is alive, 409 `capacity`, 409 `rotation_under_way`.
pub fn resume(
    all: &mut All,
    cx: &mut Context,
    target: &str,
    message: Option<String>,
) -> Result<Outcome, Problem> {
    let agent = Arc::clone(all.agents.find(target)?);
    if agent.status == Status::Limited {
        return limit::resume(all, cx, &agent, message);
    }
    if agent.is_queued() {
        return queue::resume(all, cx, &agent, message);
    }
    if agent.status.is_live() && !agent.is_put_away() {
        let text =
            format!("agent {} is alive ({}); use instruct to talk to it", agent.name, agent.status_reason);
        return Err(Problem::new(409, "agent_alive", text));
    }
    let next = continue_with(all, cx, &agent, message)?;
    Ok(Outcome::Resumed { old: agent.id, agent: next, instructed: false })
}

/// An agent goes on with what it was about when its life ended.
///
/// Errors: as [`resume`].
pub fn go_on(all: &mut All, cx: &mut Context, agent: &Agent) -> Result<(), Problem> {
    continue_with(all, cx, agent, None).map(drop)
}

/// Puts a message with which an agent is to go on into its queue, to be given to its next life.
///
/// Errors: 409 `queue_full`.
pub(super) fn enqueue(all: &mut All, agent: &mut Agent, message: String) -> Result<(), Problem> {
    if agent.queue.len() >= MAX_QUEUED {
        let name = &agent.name;
        let text = format!(
            "{MAX_QUEUED} messages wait for {name} already; svc resume {name} without a message delivers them"
        );
        return Err(Problem::new(409, "queue_full", text));
    }
    let number = Arc::make_mut(&mut all.agents).number_message();
    agent.queue.push(Instruction::new(number, message.into(), Deliver::Rotation));
    Ok(())
}

impl Instruction {
    /// One that waits.
    pub(super) fn new(id: u64, text: Arc<str>, deliver: Deliver) -> Self {
        Self { id, text, deliver, sent: false, in_prompt: false, is_note: false }
    }
}

impl Agent {
    /// All that waits stands in the prompt of the life that is to begin, and is kept until that runs: while
    /// it is started the power may go, and it may fail.
    pub(super) fn begins_with_queue(&mut self) {
        for message in &mut self.queue {
            message.in_prompt = true;
        }
    }

    /// Its program runs: what it was started with has reached it.
    pub(super) fn has_prompt(&mut self) {
        let (taken, waiting) =
            std::mem::take(&mut self.queue).into_iter().partition(|message| message.in_prompt);
        self.queue = waiting;
        let taken: Vec<Instruction> = taken;
        for message in taken {
            self.work_on(&message.text);
        }
    }

    /// Its program is gone, or never came. What was on its way and is not confirmed is heard by the next
    /// life, rather twice than never.
    pub(super) fn nothing_on_its_way(&mut self) {
        for message in &mut self.queue {
            (message.sent, message.in_prompt) = (false, false);
        }
    }
}

/// Starts the next life of an ended agent with a message, in its provider session where there is one and
/// its context is not full.
fn continue_with(
    all: &mut All,
    cx: &mut Context,
    old: &Agent,
    message: Option<String>,
) -> Result<Arc<Agent>, Problem> {
    // Whoever asked for its rotation waits for the successor, which goes on from the same words.
    if rotation::under_way(all, old.id) {
        let name = &old.name;
        let text = format!(
            "a rotation of {name} is under way: its successor goes on by itself; svc resume {name} again if that fails"
        );
        return Err(Problem::new(409, "rotation_under_way", text));
    }
    let provider = spawn::provider_of(old)?;
    accounts::check(all, &old.provider, old.account.as_deref())?;
    // One that was put away or carried has kept its place, and waits for room with what it is told.
    let is_over = !old.status.is_live();
    if is_over {
        spawn::check_share(all, cx.actor.agent().is_some())?;
    }
    usage::check_budget(all, cx.now)?;
    if is_over {
        queue::check(all, cx.now, &old.provider, &old.role, old.priority)?;
    }
    let id = AgentId(cx.fresh_id(|id| all.agents.knows_id(id)));
    let mut agent = new_life::next(old, id, cx);
    agent.moving = None;
    message.map(|message| enqueue(all, &mut agent, message)).transpose()?;
    let (handoff, is_rotation) = rotation::handoff_of(all, cx.now, old).unzip();
    // With a brief the session is left behind: it was full, and would be again, or nobody knows it.
    let session = if handoff.is_some() { SessionStart::Fresh } else { agent.session_start(provider) };
    let queue = std::mem::take(&mut agent.queue);
    // What it was told without coming to the end of a turn is told again to a fresh session, unless the brief
    // has it.
    agent.under_way.retain(|words| {
        let first = words.lines().next().unwrap_or_default();
        session == SessionStart::Fresh && handoff.as_ref().is_none_or(|brief| !brief.contains(first))
    });
    let waiting = queue.iter().map(|message| &message.text);
    let words: Vec<String> = agent.under_way.iter().chain(waiting).map(ToString::to_string).collect();
    let prompt = match (&session, &handoff) {
        (SessionStart::Resume { .. }, _) if words.is_empty() => briefing::GO_ON.to_owned(),
        (SessionStart::Resume { .. }, _) => words.join("\n\n"),
        (_, Some(brief)) => briefing::spoken_to_after_rotation(all, &agent, brief, &words),
        (_, None) => briefing::without_session(all, &agent, &words),
    };
    agent.queue = queue;
    agent.begins_with_queue();
    if session == SessionStart::Fresh {
        agent.leave_session();
    }
    let agents = Arc::make_mut(&mut all.agents);
    // Before the start, for a lineage has one record and a name one holder.
    agents.retire(old.id);
    queue::start(all, cx, provider, agent, prompt, session);
    if is_rotation == Some(true) {
        rotation::hand_over(all, cx, old, id);
    }
    cx.moment(Moment::Resumed { old: old.id, new: id });
    touch(all, cx, Durability::BeforeReply);
    all.agents.get(id).cloned().ok_or_else(|| Problem::not_found("the agent is gone"))
}

/// Asks a question in a process of its own; the answer comes with a job report.
pub fn query(all: &mut All, cx: &mut Context, call: CallId, target: &str, question: String) {
    let agent = match all.agents.find(target) {
        Ok(agent) => Arc::clone(agent),
        Err(problem) => return cx.reply(call, problem),
    };
    let Some(provider) = providers::by_id(&agent.provider).filter(|p| p.info().capabilities.headless) else {
        let text = format!("provider {} cannot answer questions; use instruct", agent.provider);
        return cx.reply(call, Problem::new(409, "query_unsupported", text));
    };
    if let Some(runner) = &agent.runner {
        let text = format!("{} works on {runner}, and is asked nothing aside; use instruct", agent.name);
        return cx.reply(call, Problem::new(409, "query_unsupported", text));
    }
    if all.agents.queries.len() >= MAX_QUERIES {
        let text = format!("{MAX_QUERIES} questions are under way already; retry when one is answered");
        return cx.reply(call, Problem::new(429, "too_many_queries", text).with_header("Retry-After", "5"));
    }
    if let Some(problem) = reserve::refusal(all, cx, &agent) {
        return cx.reply(call, problem);
    }
    let capabilities = provider.info().capabilities;
    let (session, prompt) = match agent.session_id.clone().filter(|_| capabilities.resume) {
        // A copy of the session knows what the agent knows, and leaves the agent's own untouched.
        Some(id) if provider.forks() => (SessionStart::Fork { id, counted: agent.session_counted }, question),
        _ => (SessionStart::Fresh, briefing::question(all, &agent, &question)),
    };
    let request = spawn::launch_request(all, &agent, Purpose::Query, prompt, session);
    let env = spawn::environment(all, &agent);
    Arc::make_mut(&mut all.agents).queries.insert(call, agent.id);
    Arc::make_mut(&mut all.timers).set(Timer::Query(call), cx.now + QUERY_TIMEOUT);
    cx.push(Effect::Job(Job::Query {
        call,
        agent: agent.id,
        provider: provider.info().id,
        request: Box::new(request),
        env,
        secrets: spawn::secrets(all, &agent),
    }));
}

/// A question was answered, or failed.
pub fn query_done(all: &mut All, cx: &mut Context, call: CallId, result: Result<(String, Tokens), String>) {
    let Some(id) = all.agents.queries.get(&call).copied() else { return };
    let result = match result {
        Ok((answer, tokens)) => {
            let agents = Arc::make_mut(&mut all.agents);
            agents.qa_tokens = agents.qa_tokens + tokens;
            let record = agents.find(&id.to_string()).ok().cloned();
            let name = record.as_ref().map(|agent| agent.name.clone()).unwrap_or_default();
            let model = record.map(|agent| usage::model_of(all, &agent)).unwrap_or_default();
            // On an account of its own: the agent has not spent it, and its context has not grown by it.
            usage::book(all, cx, "__agent_qa__", &model, tokens, None);
            Ok(Outcome::Answered { id, name, answer, tokens: tokens.total() })
        }
        Err(error) => {
            Err(Problem::new(502, "query_failed", format!("the question was not answered: {error}")))
        }
    };
    end_query(all, cx, call, result);
}

/// Answers the caller of a question and forgets it.
pub fn end_query(all: &mut All, cx: &mut Context, call: CallId, result: Result<Outcome, Problem>) {
    Arc::make_mut(&mut all.timers).clear(Timer::Query(call));
    if Arc::make_mut(&mut all.agents).queries.remove(&call).is_some() {
        cx.push(Effect::Put(crate::core::Document::Agents, Durability::Soon));
        cx.answer(call, result);
    }
}

/// A question has taken too long: 504.
pub fn query_timeout(all: &mut All, cx: &mut Context, call: CallId) {
    if last_word::is_one(call) {
        return last_word::timeout(all, cx, call);
    }
    let seconds = QUERY_TIMEOUT.as_secs();
    let problem =
        Problem::new(504, "query_timeout", format!("no answer within {seconds} s; ask again or instruct"));
    end_query(all, cx, call, Err(problem));
    cx.push(Effect::Job(Job::CancelQuery(call)));
}
