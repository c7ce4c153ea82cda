//! What waits to be sent: how it comes in, when it is tried, and what becomes of it.

use super::{
    AGENT_START, AGENT_TURN, MAX_ASKED, MAX_BODY_BYTES, MAX_DEAD, MAX_DEAD_BYTES, MAX_WAITING,
    MAX_WAITING_BYTES, Message, Order, RETRIES, Refusal, Report, Sending, TEST, Webhook, gone, previous_name,
    save, secret_name,
};
use crate::api::{Problem, Reply};
use crate::core::ids::{AgentId, WebhookId};
use crate::core::time::Time;
use crate::core::{Context, Document, Durability, Effect, Moment, State as All, Timer};
use serde_json::{Value, json};
use std::sync::Arc;
use svc_base::untrusted::untrusted_line;

/// Characters of why a try failed.
const MAX_WHY_CHARS: usize = 300;

/// Looks at what the event that was just applied tells WebSocket clients.
pub fn overheard(all: &mut All, cx: &mut Context) {
    if all.webhooks.webhooks.is_empty() {
        return;
    }
    for notice in cx.notices() {
        tell(all, cx, notice.kind(), || notice.body());
    }
}

/// What no message to WebSocket clients tells: beginnings, and the ends of turns.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    if all.webhooks.webhooks.is_empty() {
        return;
    }
    let (id, event, resumed) = match *moment {
        Moment::Spawned(id) => (id, AGENT_START, false),
        Moment::Resumed { new, .. } => (new, AGENT_START, true),
        Moment::TurnEnded(id) => (id, AGENT_TURN, false),
        _ => return,
    };
    let Some(mut data) = of_agent(all, id) else { return };
    if event == AGENT_START {
        data["resumed"] = resumed.into();
    }
    tell(all, cx, event, || data);
}

fn of_agent(all: &All, id: AgentId) -> Option<Value> {
    let agent = all.agents.get(id)?;
    Some(json!({
        "agentId": agent.id, "agentName": agent.name, "role": agent.role, "provider": agent.provider,
        "model": agent.model, "teamId": agent.team_id, "status": agent.status, "turns": agent.turns,
    }))
}

/// Has every webhook that wants it told of an event.
fn tell(all: &mut All, cx: &mut Context, event: &str, data: impl FnOnce() -> Value) {
    let to: Vec<WebhookId> = all.webhooks.iter().filter(|one| one.wants(event)).map(|one| one.id).collect();
    if !to.is_empty() {
        let message = Arc::new(message(all, cx, event, &data()));
        for id in to {
            put(all, cx, id, &message);
        }
    }
}

/// `{"type","timestamp","project","data"}`, as the specification has it but for the project.
fn message(all: &All, cx: &mut Context, event: &str, data: &Value) -> Message {
    let project = all.project.dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let body = |data: &Value| {
        json!({"type": event, "timestamp": cx.now.to_string(), "project": project, "data": data}).to_string()
    };
    let mut text = body(data);
    if text.len() > MAX_BODY_BYTES {
        let omitted = format!("it has {} bytes, and {MAX_BODY_BYTES} are the limit", text.len());
        text = body(&json!({"omitted": omitted}));
    }
    let at = cx.now;
    let id = format!("msg_{:016x}{:016x}", cx.random(), cx.random());
    let (event, body) = (event.into(), text.into());
    Message { id: id.into(), event, at, body, tries: 0, next_at: at, error: None }
}

/// One more message waits. It lasts as what it tells of does: see [`super`].
fn put(all: &mut All, cx: &mut Context, id: WebhookId, message: &Arc<Message>) {
    let Some(webhook) = Arc::make_mut(&mut all.webhooks).edit(id) else { return };
    webhook.waiting.push(Arc::clone(message));
    while webhook.waiting.len() > MAX_WAITING || bytes(&webhook.waiting) > MAX_WAITING_BYTES {
        let mut oldest = webhook.waiting.remove(0);
        Arc::make_mut(&mut oldest).error = Some("more waited than there is room for".into());
        webhook.bury(oldest);
    }
    cx.put_along(Document::Webhooks);
    announce(all, cx, id);
}

fn bytes(messages: &[Arc<Message>]) -> usize {
    messages.iter().map(|message| message.body.len()).sum()
}

impl Webhook {
    /// It is not tried again by itself.
    fn bury(&mut self, message: Arc<Message>) {
        self.dead.push(message);
        while self.dead.len() > MAX_DEAD || bytes(&self.dead) > MAX_DEAD_BYTES {
            self.dead.remove(0);
            self.dropped += 1;
        }
    }

    /// When the next one is to be tried.
    fn next_at(&self) -> Option<Time> {
        let is_free = self.enabled && self.under_way.is_none();
        self.waiting.iter().map(|message| message.next_at).min().filter(|_| is_free)
    }
}

/// Looks for what is to be sent as soon as the disk has all that waits.
pub fn announce(all: &mut All, cx: &mut Context, id: WebhookId) {
    let Some(webhook) = Arc::make_mut(&mut all.webhooks).edit(id) else { return };
    let next = webhook.next_at();
    cx.send_when_due(&mut all.timers, Timer::WebhookDue(id), next, &mut webhook.awaits_disk);
}

/// What waits may be due.
pub fn due(all: &mut All, cx: &mut Context, id: WebhookId) {
    let now = cx.now;
    let Some(webhook) = Arc::make_mut(&mut all.webhooks).edit(id) else { return };
    webhook.awaits_disk = false;
    let timers = Arc::make_mut(&mut all.timers);
    let next = webhook.next_at();
    if next.is_none_or(|at| at > now) {
        return timers.put(Timer::WebhookDue(id), next);
    }
    let Some(message) = webhook.waiting.iter().find(|message| message.next_at <= now).cloned() else {
        return;
    };
    webhook.under_way = Some(Arc::clone(&message.id));
    let url = webhook.url.clone();
    let both = webhook.both_until.is_some_and(|until| until > now);
    let names = std::iter::once(secret_name(id)).chain(both.then(|| previous_name(id)));
    let sealed = |name: String| Some((name.clone(), all.credentials.get(&name)?.sealed.clone()));
    let secrets = names.filter_map(sealed).collect();
    let (body, message) = (Arc::clone(&message.body), Arc::clone(&message.id));
    timers.clear(Timer::WebhookDue(id));
    cx.push(Effect::Webhooks(Order::Send(Box::new(Sending { webhook: id, url, message, body, secrets }))));
}

/// What came of a try.
pub fn report(all: &mut All, cx: &mut Context, report: Report) {
    let Report::Tried { webhook: id, message, outcome } = report;
    let now = cx.now;
    let Some(webhook) = Arc::make_mut(&mut all.webhooks).edit(id) else { return };
    if webhook.under_way.as_ref() == Some(&message) {
        webhook.under_way = None;
    }
    let Some(at) = webhook.waiting.iter().position(|waiting| waiting.id == message) else {
        return announce(all, cx, id);
    };
    match outcome {
        Ok(()) => {
            webhook.waiting.remove(at);
            webhook.taken += 1;
            webhook.taken_at = Some(now);
            webhook.error = None;
            webhook.error_at = None;
        }
        Err(refusal) => {
            let is_gone = refusal.is_gone;
            webhook.fail(at, now, &refusal);
            if is_gone {
                webhook.enabled = false;
                cx.audit("webhook.gone", &json!({"webhookId": id, "name": webhook.name}));
            }
        }
    }
    save(cx, Durability::Soon);
    announce(all, cx, id);
}

impl Webhook {
    /// The message at this place was refused.
    fn fail(&mut self, at: usize, now: Time, refusal: &Refusal) {
        let why: Arc<str> =
            untrusted_line(&refusal.why).chars().take(MAX_WHY_CHARS).collect::<String>().into();
        self.refused += 1;
        self.error = Some(Arc::clone(&why));
        self.error_at = Some(now);
        let message = Arc::make_mut(&mut self.waiting[at]);
        message.error = Some(why);
        message.tries += 1;
        let wait = RETRIES.get(message.tries - 1).copied().filter(|_| !refusal.is_gone);
        let asked = refusal.after.unwrap_or_default().min(MAX_ASKED);
        if let Some(wait) = wait {
            message.next_at = now + wait.max(asked);
        } else {
            let message = self.waiting.remove(at);
            self.bury(message);
        }
    }
}

/// Errors: 404, 409 `webhook_disabled`.
pub fn test(all: &mut All, cx: &mut Context, word: &str) -> Result<Reply, Problem> {
    let webhook = all.webhooks.find(word)?;
    if !webhook.enabled {
        let text = format!("webhook {} is disabled; enable it first", webhook.name);
        return Err(Problem::new(409, "webhook_disabled", text));
    }
    let (id, data) = (webhook.id, json!({"webhookId": webhook.id, "webhookName": webhook.name}));
    let message = Arc::new(message(all, cx, TEST, &data));
    save(cx, Durability::BeforeReply);
    put(all, cx, id, &message);
    cx.audit("webhook.test", &json!({"webhookId": id}));
    Ok(Reply::json(202, &json!({"webhookId": id, "message": message.id})))
}

/// Errors: 404 for an unknown webhook or message, 409 `queue_full`.
pub fn resend(all: &mut All, cx: &mut Context, word: &str, message: Option<&str>) -> Result<Reply, Problem> {
    let id = all.webhooks.find(word)?.id;
    let Some(webhook) = Arc::make_mut(&mut all.webhooks).edit(id) else { return Err(gone(word)) };
    let is_meant = |one: &Arc<Message>| message.is_none_or(|wanted| *one.id == *wanted);
    if let Some(wanted) = message
        && !webhook.dead.iter().any(is_meant)
    {
        let text = format!("webhook {} has no dead message {wanted:?}", webhook.name);
        return Err(Problem::not_found(text));
    }
    let mut sent = Vec::new();
    let mut left = Vec::new();
    for mut dead in std::mem::take(&mut webhook.dead) {
        let fits = webhook.waiting.len() < MAX_WAITING
            && bytes(&webhook.waiting) + dead.body.len() <= MAX_WAITING_BYTES;
        if !is_meant(&dead) || !fits {
            left.push(dead);
            continue;
        }
        let again = Arc::make_mut(&mut dead);
        (again.tries, again.next_at) = (0, cx.now);
        sent.push(Arc::clone(&again.id));
        webhook.waiting.push(dead);
    }
    webhook.dead = left;
    let is_full = sent.is_empty() && message.is_some();
    if is_full {
        let text = format!("{MAX_WAITING} messages or {MAX_WAITING_BYTES} bytes wait already; retry later");
        return Err(Problem::new(409, "queue_full", text));
    }
    let answer =
        json!({"webhookId": id, "sent": sent, "dead": webhook.dead.len(), "enabled": webhook.enabled});
    cx.audit("webhook.resend", &json!({"webhookId": id, "messages": sent.len()}));
    save(cx, Durability::BeforeReply);
    announce(all, cx, id);
    Ok(Reply::ok(&answer))
}
