//! The stream of Claude Code: one JSON object a line in both directions.
//!
//! A message given while tools run joins the running turn with the next tool result; otherwise it becomes
//! a turn of its own, right behind the running one and also when the input has been closed meanwhile
//! (tried with 2.1.329).

use crate::json::{Json, Look};
use crate::limit::{self, Kind, Limit, Source};
use crate::shares::{Figure, Shares};
use crate::wire::{self, CostMeter, Meter};
use crate::{Activity, Conversation, Ruling, SessionStart, Step, Tokens, TurnEnd, Usage, windows};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Of so many messages in a turn the usage is shown before the turn's end; the rest counts at its end.
const PROVISIONAL_MESSAGES_MAX: usize = 4096;
/// At most this many questions wait for a person at once; further ones are refused.
const QUESTIONS_MAX: usize = 64;
/// Nor do more than this many bytes of arguments: those of one fit in any case, for a line has 4 MiB.
const QUESTIONS_LIMIT_BYTES: usize = 8 * 1024 * 1024;
/// Its tool for asking a person; whoever lets it be used says the answers in its arguments.
const ASKS: &str = "AskUserQuestion";

/// The conversation of one run.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    /// The first message, until it is written.
    prompt: Option<String>,
    session: String,
    model: String,
    working: bool,
    /// Messages of this turn whose provisional usage was counted: the same usage stands on every line of
    /// a message.
    counted_messages: BTreeSet<String>,
    /// Questions that wait for a person, with the tool's arguments.
    questions: BTreeMap<String, Box<RawValue>>,
    /// Of these the ones that ask for an answer, and not for a permission.
    #[serde(default)]
    asks: BTreeSet<String>,
    meter: Meter,
    cost: CostMeter,
    #[serde(default)]
    shares: Shares,
    /// The first result of a continued session is still to come. Its totals begin with what was used before
    /// this run: all of it after a SIGTERM, less after a SIGKILL, and the original's in a copy.
    continued: bool,
}

impl Stream {
    pub(super) fn new(prompt: &str, session: &SessionStart) -> Self {
        let counted = match session {
            SessionStart::Resume { counted, .. } => *counted,
            SessionStart::Fresh | SessionStart::Fork { .. } => Tokens::default(),
        };
        Self {
            prompt: Some(prompt.to_owned()),
            session: String::new(),
            model: String::new(),
            working: false,
            counted_messages: BTreeSet::new(),
            questions: BTreeMap::new(),
            asks: BTreeSet::new(),
            meter: Meter::starting_at(counted),
            cost: CostMeter::new(*session != SessionStart::Fresh),
            shares: Shares::default(),
            continued: *session != SessionStart::Fresh,
        }
    }

    /// The program asks for permission. Without an answer it waits forever, so everything else is refused.
    fn asked(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let id = wire::text(event, "request_id");
        let request = event.get("request").unwrap_or(&Json::Null);
        let input = request.get("input").map(Json::to_value).unwrap_or_default();
        let is_known =
            wire::text(request, "subtype") == "can_use_tool" && !wire::name(event, "request_id").is_empty();
        let Some(kept) = to_raw_value(&input).ok().filter(|kept| is_known && self.has_room(kept)) else {
            let error = "not supported by this client";
            return respond(out, &json!({"subtype": "error", "request_id": id, "error": error}));
        };
        self.questions.insert(id.to_owned(), kept);
        let name = wire::text(request, "tool_name").to_owned();
        if name == ASKS {
            self.asks.insert(id.to_owned());
        }
        wire::emit(out, Activity::PermissionAsked { question: id.to_owned(), name, input });
    }

    fn has_room(&self, input: &RawValue) -> bool {
        let waiting: usize = self.questions.values().map(|input| input.get().len()).sum();
        self.questions.len() < QUESTIONS_MAX && waiting + input.get().len() <= QUESTIONS_LIMIT_BYTES
    }

    fn system(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        match wire::text(event, "subtype") {
            "init" => self.init(event, out),
            "api_retry" => wire::trouble(out, &retry_text(event)),
            "compact_boundary" => {
                wire::emit(out, Activity::Compacted);
                let after =
                    event.get("compact_metadata").and_then(|data| wire::count_if_any(data, "post_tokens"));
                wire::usage(out, Usage { context_tokens: after, ..Usage::default() });
            }
            _ => {}
        }
    }

    fn init(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let (id, model) = (wire::name(event, "session_id"), wire::name(event, "model"));
        // Every turn repeats it.
        if !id.is_empty() && (id != self.session || model != self.model) {
            id.clone_into(&mut self.session);
            model.clone_into(&mut self.model);
            let model = (!model.is_empty()).then(|| model.to_owned());
            wire::emit(out, Activity::Session { id: id.to_owned(), model });
        }
        wire::turn_started(out, &mut self.working);
    }

    fn assistant(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let Some(message) = event.get("message") else { return };
        let by_subagent = is_subagent(event);
        // A message that the program made up itself, about an error, comes again in the result.
        let synthetic = wire::text(message, "model") == "<synthetic>";
        for block in wire::items(message, "content") {
            match wire::text(block, "type") {
                "text" if !by_subagent && !synthetic => wire::say(out, wire::text(block, "text")),
                "thinking" if !by_subagent => wire::think(out, wire::text(block, "thinking")),
                "tool_use" => tool_started(block, out),
                _ => {}
            }
        }
        if !synthetic {
            self.provisional_usage(message, by_subagent, out);
        }
    }

    /// Counts the input of a message when it is first seen, so that counters move during a turn. Its
    /// output is a placeholder: the result has the truth.
    fn provisional_usage(&mut self, message: &Json<'_>, by_subagent: bool, out: &mut Vec<Step>) {
        let (Some(figures), id) = (message.get("usage"), wire::name(message, "id")) else { return };
        let room = self.counted_messages.len() < PROVISIONAL_MESSAGES_MAX;
        if id.is_empty() || !room || self.counted_messages.contains(id) {
            return;
        }
        self.counted_messages.insert(id.to_owned());
        let tokens = Tokens { output: 0, ..tokens_of_message(figures) };
        let delta = self.meter.provisional(tokens);
        let context_tokens = (!by_subagent).then(|| tokens.total());
        let told = wire::name(message, "model");
        let model = self.of_its_own(told, by_subagent);
        let counts = self.shares.provisional(model.unwrap_or(&self.model), tokens);
        let model = model.filter(|_| counts).map(str::to_owned);
        wire::usage(out, Usage { model, delta, context_tokens, ..Usage::default() });
    }

    /// The model of a sub-agent's message that is not the session's. Others than the maker's own are names
    /// that a gateway has put there: the result calls them otherwise.
    fn of_its_own<'a>(&self, told: &'a str, by_subagent: bool) -> Option<&'a str> {
        let plain = windows::plain_name(told);
        let is_other = plain.starts_with("claude") && plain != windows::plain_name(&self.model);
        (by_subagent && is_other && !self.model.is_empty()).then_some(told)
    }

    fn result(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let cost_usd = self.account(event, out);
        let failure = has_failed(event).then(|| error_text(event));
        if let Some(error) = &failure {
            limit::told(out, wire::count_if_any(event, "api_error_status"), error, "");
        }
        wire::emit(out, Activity::TurnEnded(TurnEnd { cost_usd, ..turn_end(event, failure) }));
        self.working = false;
        self.counted_messages.clear();
        if wire::count(event, "queued_turn_count") > 0 {
            // A message that came during the turn is answered next: the agent is not idle in between.
            wire::turn_started(out, &mut self.working);
        }
    }

    /// Corrects the provisional counts to the totals of the session. Returns the cost of the turn.
    fn account(&mut self, event: &Json<'_>, out: &mut Vec<Step>) -> Option<f64> {
        let since_last = event.get("model_usage_since_last_result");
        // The cumulative cost of a continued session has an unknown start; newer versions also tell the
        // turn's own.
        let cumulative = self.cost.total(event.get("total_cost_usd").and_then(Json::as_f64));
        let cost_usd = since_last.map(cost_of_models).or(cumulative);
        let mut usage = Usage { cost_usd, ..Usage::default() };
        // A turn that never reached the model has no figures, which is not a total of zero.
        let models = event.get("modelUsage").filter(|models| !models.fields().is_empty());
        if let Some(models) = models {
            let session_total = sum_of_models(models);
            // What newer versions tell of this run alone is better than the difference to what was counted
            // before: that lacks what an interrupted run has used.
            let is_first = std::mem::take(&mut self.continued);
            if let Some(since_last) = since_last.filter(|_| is_first) {
                self.meter.start_before(session_total, sum_of_models(since_last));
            }
            usage.delta = self.meter.total(session_total);
            usage.session_total = Some(session_total);
            usage.context_window = window_of(models, &self.model);
            let figures = figures(models, since_last);
            for part in self.shares.part(&self.model, &figures, is_first, &mut usage) {
                wire::usage(out, part);
            }
        }
        wire::usage(out, usage);
        cost_usd
    }
}

impl Conversation for Stream {
    fn open(&mut self, out: &mut Vec<Step>) {
        if let Some(prompt) = self.prompt.take() {
            wire::turn_started(out, &mut self.working);
            out.push(Step::Write(user_line(&prompt)));
        }
    }

    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line) else { return wire::noise(line, out) };
        match wire::text(&event, "type") {
            "" => wire::noise(line, out),
            "control_cancel_request" => {
                self.questions.remove(wire::text(&event, "request_id"));
                self.asks.remove(wire::text(&event, "request_id"));
            }
            "system" => self.system(&event, out),
            "assistant" => self.assistant(&event, out),
            "user" => tool_results(&event, out),
            "result" => self.result(&event, out),
            "control_request" => self.asked(&event, out),
            "rate_limit_event" => limits(event.get("rate_limit_info").unwrap_or(&Json::Null), out),
            _ => {}
        }
    }

    fn say(&mut self, text: &str, out: &mut Vec<Step>) -> bool {
        wire::turn_started(out, &mut self.working);
        out.push(Step::Write(user_line(text)));
        true
    }

    fn interrupt(&mut self, out: &mut Vec<Step>) {
        let request = json!({"subtype": "interrupt"});
        let line = json!({"type": "control_request", "request_id": "svc-interrupt", "request": request});
        out.push(Step::Write(format!("{line}\n")));
    }

    fn decide(&mut self, question: &str, ruling: &Ruling, out: &mut Vec<Step>) {
        let Some(input) = self.questions.remove(question) else { return };
        let mut input: Value = serde_json::from_slice(input.get().as_bytes()).unwrap_or_default();
        if self.asks.remove(question) && !ruling.reason.is_empty() {
            answer(&mut input, &ruling.reason);
        }
        let behavior = if ruling.allow {
            json!({"behavior": "allow", "updatedInput": input})
        } else {
            json!({"behavior": "deny", "message": ruling.refusal()})
        };
        respond(out, &json!({"subtype": "success", "request_id": question, "response": behavior}));
    }
}

/// Puts a person's words into the arguments of [`ASKS`], as the answer to each question in them: free words
/// are as good as the name of what was offered.
fn answer(input: &mut Value, words: &str) {
    let questions = input["questions"].as_array().into_iter().flatten();
    let answers = questions.filter_map(|one| Some((one["question"].as_str()?.to_owned(), words.into())));
    let answers: serde_json::Map<String, Value> = answers.collect();
    if let Some(input) = input.as_object_mut() {
        input.insert("answers".to_owned(), answers.into());
    }
}

fn user_line(text: &str) -> String {
    let content = json!([{"type": "text", "text": text}]);
    format!("{}\n", json!({"type": "user", "message": {"role": "user", "content": content}}))
}

fn respond(out: &mut Vec<Step>, response: &Value) {
    out.push(Step::Write(format!("{}\n", json!({"type": "control_response", "response": response}))));
}

/// Whether a line is of a sub-agent. Qwen Code has the same mark.
pub(crate) fn is_subagent(event: &Json<'_>) -> bool {
    event.get("parent_tool_use_id").is_some_and(|parent| !parent.is_null())
}

pub(super) fn tool_started(block: &Json<'_>, out: &mut Vec<Step>) {
    let name = wire::text(block, "name");
    let input = block.get("input").map(Json::to_value).unwrap_or_default();
    let writes = matches!(name, "Write" | "Edit" | "MultiEdit" | "NotebookEdit");
    let path = if writes || name == "Read" { wire::path_in(&input) } else { None };
    let id = wire::text(block, "id").to_owned();
    wire::emit(out, Activity::ToolStarted { id, name: name.to_owned(), input, path, writes });
}

/// The ends of tool calls in a `user` line. Qwen Code has the same lines.
pub(crate) fn tool_results(event: &Json<'_>, out: &mut Vec<Step>) {
    let Some(message) = event.get("message") else { return };
    for block in wire::items(message, "content") {
        if wire::text(block, "type") == "tool_result" {
            let error = block.get("is_error").and_then(Json::as_bool).unwrap_or(false);
            let output = block.get("content").map(wire::words).unwrap_or_default();
            wire::tool_ended(out, wire::text(block, "tool_use_id"), error, &output);
        }
    }
}

/// Whether a `result` line tells of a turn that failed. Qwen Code has the same marks.
pub(crate) fn has_failed(event: &Json<'_>) -> bool {
    event.get("is_error").and_then(Json::as_bool).unwrap_or(false)
        || !matches!(wire::text(event, "subtype"), "success" | "")
}

/// The end of a turn in a `result` line, its cost apart; `failure` says why it failed, if it did. Qwen Code
/// has the same lines.
pub(crate) fn turn_end(event: &Json<'_>, failure: Option<String>) -> TurnEnd {
    let denied = wire::items(event, "permission_denials").iter().take(wire::DENIED_MAX);
    TurnEnd {
        turns: wire::count_if_any(event, "num_turns"),
        duration_ms: wire::count_if_any(event, "duration_ms"),
        denied: denied.map(|denial| wire::text(denial, "tool_name").to_owned()).collect(),
        ..TurnEnd::of(wire::text(event, "result").to_owned(), failure)
    }
}

/// Its windows: the one that matters now, and beside it those that newer versions list.
fn limits(info: &Json<'_>, out: &mut Vec<Step>) {
    let status = wire::text(info, "status");
    if !matches!(status, "" | "allowed") {
        wire::trouble(out, &format!("rate limit: {status}"));
    }
    let percent = |part: &Json<'_>| part.get("utilization").and_then(Json::as_f64).map(|used| used * 100.0);
    for (name, part) in info.get("unifiedWindows").map(Json::fields).unwrap_or_default() {
        let reset = limit::instant_at(part, "resetsAt");
        wire::emit(out, Activity::Limit(Limit::window(name, percent(part), reset)));
    }
    if status.is_empty() {
        return;
    }
    let uses_overage = info.get("isUsingOverage").and_then(Json::as_bool).unwrap_or(false);
    let closed = status == "rejected" && !uses_overage;
    let reset = limit::instant_at(info, "resetsAt");
    let told = Limit::window(wire::text(info, "rateLimitType"), percent(info), reset);
    wire::emit(out, Activity::Limit(Limit { closed, kind: Kind::Window, source: Source::Event, ..told }));
}

fn retry_text(event: &Json<'_>) -> String {
    let (attempt, max) = (wire::count(event, "attempt"), wire::count(event, "max_retries"));
    let reason = match wire::count_if_any(event, "error_status") {
        Some(status) => format!("error {status}"),
        None => "a broken connection".to_owned(),
    };
    format!("retry {attempt} of {max} after {reason}")
}

/// Why a turn failed, for people. The program's own diagnostics come last: they are not written for them.
fn error_text(event: &Json<'_>) -> String {
    let result = wire::text(event, "result");
    if !result.is_empty() {
        return wire::cut(result, wire::NOISE_LIMIT_BYTES);
    }
    let reason = wire::text(event, "terminal_reason");
    match wire::text(event, "subtype") {
        "error_max_turns" => "the limit of turns was reached".to_owned(),
        "error_max_budget_usd" => "the budget was reached".to_owned(),
        _ if reason.starts_with("aborted") => "the turn was interrupted".to_owned(),
        _ => match wire::items(event, "errors").iter().find_map(Json::as_str) {
            Some(first) => wire::cut(first, wire::NOISE_LIMIT_BYTES),
            None => format!("the turn failed: {reason}"),
        },
    }
}

/// The figures of one message; in the stream its output is a placeholder.
pub(super) fn tokens_of_message(figures: &Json<'_>) -> Tokens {
    Tokens {
        input: wire::count(figures, "input_tokens"),
        output: wire::count(figures, "output_tokens"),
        cache_read: wire::count(figures, "cache_read_input_tokens"),
        cache_creation: wire::count(figures, "cache_creation_input_tokens"),
    }
}

fn tokens_of_model(figures: &Json<'_>) -> Tokens {
    Tokens {
        input: wire::count(figures, "inputTokens"),
        output: wire::count(figures, "outputTokens"),
        cache_read: wire::count(figures, "cacheReadInputTokens"),
        cache_creation: wire::count(figures, "cacheCreationInputTokens"),
    }
}

pub(super) fn sum_of_models(models: &Json<'_>) -> Tokens {
    models.fields().values().fold(Tokens::default(), |sum, figures| sum + tokens_of_model(figures))
}

/// What is told of each model. With the figures of the turn, one that they do not name has used nothing.
pub(super) fn figures(models: &Json<'_>, turn: Option<&Json<'_>>) -> Vec<Figure> {
    let cost = |figures: &Json<'_>| {
        let told = figures.get("costUSD").and_then(Json::as_f64);
        told.filter(|cost| cost.is_finite() && *cost >= 0.0)
    };
    let of_turn = |turn: &Json<'_>, name: &str| {
        let nothing = || (Tokens::default(), Some(0.0));
        turn.get(name).map_or_else(nothing, |figures| (tokens_of_model(figures), cost(figures)))
    };
    let told = models.fields().into_iter().filter(|(name, _)| name.len() <= wire::NAME_LIMIT_BYTES);
    let figure = |(name, figures): (&str, &Json<'_>)| Figure {
        name: name.to_owned(),
        total: tokens_of_model(figures),
        total_usd: cost(figures),
        turn: turn.map(|turn| of_turn(turn, name)),
    };
    told.map(figure).collect()
}

fn cost_of_models(models: &Json<'_>) -> f64 {
    let models = models.fields();
    let costs = models.values().filter_map(|figures| figures.get("costUSD").and_then(Json::as_f64));
    costs.filter(|cost| *cost >= 0.0).fold(0.0, wire::sum_of_costs)
}

/// The window of the main model; where its name is told differently, of the model with the most tokens.
fn window_of(models: &Json<'_>, main: &str) -> Option<u64> {
    let window =
        |figures: &Json<'_>| wire::count_if_any(figures, "contextWindow").filter(|window| *window > 0);
    if let Some(found) = models.get(main).and_then(window) {
        return Some(found);
    }
    window(models.fields().values().max_by_key(|figures| tokens_of_model(figures).total())?)
}
