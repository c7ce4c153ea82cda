//! Questions of the daemon's own to a model: one headless call of an installed provider, for the journalist
//! and the project manager.
//!
//! **Invariant:** every question gets one answer or one failure, after 60 s at the latest.

use crate::agents::{Job, QUERY_TIMEOUT};
use crate::core::ids::AgentId;
use crate::core::{CallId, Context, Effect, Moment, State as All, Timer};
use crate::credentials;
use crate::providers::{
    self, Effort, LaunchRequest, Permission, Program, Purpose, SessionStart, Tier, Tokens,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Questions under way at once.
pub const MAX_QUESTIONS: usize = 4;
/// Call numbers with this bit are questions of the daemon's own: the state thread counts its callers from 1.
const OWN: u64 = 1 << 63;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, svc_base::recorded::Recorded)]
pub enum Asker {
    /// `__journalist__`.
    Journalist,
    /// `__pm__`, for the review of this number.
    Pm(u64),
}

impl Asker {
    /// The reserved agent id its tokens are booked to.
    pub fn reserved_id(self) -> &'static str {
        match self {
            Self::Journalist => "__journalist__",
            Self::Pm(_) => "__pm__",
        }
    }
}

/// The questions under way, and what all have cost since the start.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    /// Who asks, and the model that answers.
    pending: BTreeMap<CallId, (Asker, String)>,
    asked: u64,
    tokens: BTreeMap<&'static str, Tokens>,
}

impl State {
    /// What questions have cost since the daemon's start, by reserved agent id.
    pub fn tokens(&self) -> &BTreeMap<&'static str, Tokens> {
        &self.tokens
    }
}

/// The provider and model to ask: the configured default's cheapest, else that of the first real one
/// installed.
fn choose(all: &All) -> Option<(&'static dyn providers::Provider, Option<String>)> {
    let default = all.settings.config().default_provider.as_str();
    let usable = |provider: &&'static dyn providers::Provider| {
        let info = provider.info();
        let wanted = info.id == default || (info.program != Program::Itself && info.id != "acp");
        wanted && info.capabilities.headless && all.providers.is_installed(info.id)
    };
    let all_usable: Vec<_> = providers::all().iter().copied().filter(|p| usable(p)).collect();
    let chosen = all_usable.iter().find(|p| p.info().id == default).or(all_usable.first())?;
    let light = chosen.info().models.iter().find(|model| model.tier == Tier::Light);
    Some((*chosen, light.map(|model| model.id.to_owned())))
}

/// Whether there is somebody to ask.
pub fn can_ask(all: &All) -> bool {
    choose(all).is_some()
}

/// Asks; the answer comes to the asker.
///
/// Errors: nobody can be asked, or too many questions are under way.
pub fn ask(all: &mut All, cx: &mut Context, asker: Asker, prompt: String) -> Result<(), String> {
    if all.questions.pending.len() >= MAX_QUESTIONS {
        return Err(format!("{MAX_QUESTIONS} questions are under way already"));
    }
    let Some((provider, model)) = choose(all) else {
        return Err("no provider that answers questions is installed".to_owned());
    };
    let request = LaunchRequest {
        purpose: Purpose::Query,
        prompt,
        model,
        effort: Effort::Low,
        permission: Permission::Auto,
        working_dir: all.project.dir.clone(),
        project_dir: all.project.dir.clone(),
        session: SessionStart::Fresh,
        command: Vec::new(),
        has_integrations: false,
        hook_program: None,
        fence: None,
        room: crate::agents::room(all),
        extra_env: all.settings.config().env.of(provider.info().id),
    };
    let questions = Arc::make_mut(&mut all.questions);
    questions.asked += 1;
    let call = CallId(OWN | questions.asked);
    questions.pending.insert(call, (asker, request.model.clone().unwrap_or_default()));
    Arc::make_mut(&mut all.timers).set(Timer::Question(call), cx.now + QUERY_TIMEOUT);
    cx.push(Effect::Job(Job::Query {
        call,
        // No agent has the number 0: the process is the daemon's own.
        agent: AgentId(0),
        provider: provider.info().id,
        request: Box::new(request),
        secrets: credentials::of_provider(all, provider.info()),
        env: vec![("SVC_PROJECT_DIR".into(), all.project.dir.to_string_lossy().into_owned())],
    }));
    Ok(())
}

/// Whether a question is one of these.
pub fn is_own(call: CallId) -> bool {
    call.0 & OWN != 0
}

/// A question was answered.
pub fn answered(all: &mut All, cx: &mut Context, call: CallId, result: &Result<(String, Tokens), String>) {
    Arc::make_mut(&mut all.timers).clear(Timer::Question(call));
    let questions = Arc::make_mut(&mut all.questions);
    // One that took too long was given up already.
    let Some((asker, model)) = questions.pending.remove(&call) else { return };
    if let Ok((_, tokens)) = result {
        let booked = questions.tokens.entry(asker.reserved_id()).or_default();
        *booked = *booked + *tokens;
        crate::usage::book(all, cx, asker.reserved_id(), &model, *tokens, None);
    }
    let answer = result.clone().map(|(text, _)| text);
    cx.moment(Moment::ModelAnswered(asker, answer));
}

/// A question has taken too long.
pub fn timeout(all: &mut All, cx: &mut Context, call: CallId) {
    let Some((asker, _)) = Arc::make_mut(&mut all.questions).pending.remove(&call) else { return };
    cx.push(Effect::Job(Job::CancelQuery(call)));
    let late = format!("no answer within {} s", QUERY_TIMEOUT.as_secs());
    cx.moment(Moment::ModelAnswered(asker, Err(late)));
}
