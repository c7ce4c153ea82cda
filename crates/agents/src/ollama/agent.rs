//! The loop: ask the model, do what it asks for, tell it what came of it, until it asks for nothing more.

use super::endpoint::Endpoint;
use super::session::Session;
use super::stream::{Call, CallUsage, Reply};
use super::tools::Tools;
use crate::rehearsal::output::Output;
use serde_json::{Map, Value, json};
use std::io;
use std::time::Instant;
use svc_providers::{Activity, Tokens, TurnEnd, Usage};

/// A turn ends with an error after this many answers of the model.
const MODEL_CALLS_LIMIT: u64 = 50;

/// One process life of the agent.
pub struct Agent<'a> {
    endpoint: Endpoint,
    tools: Tools,
    session: Session,
    pub output: &'a mut Output,
    /// Of the session, over resumes.
    total: Tokens,
    context_window: Option<u64>,
    tool_calls: u64,
}

/// Why a turn ended without an answer.
enum Stop {
    Failed(String),
    /// Nobody reads the output.
    Unread(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Unread(error)
    }
}

impl<'a> Agent<'a> {
    /// An agent whose session has consumed `total` so far.
    pub fn new(
        endpoint: Endpoint,
        tools: Tools,
        session: Session,
        output: &'a mut Output,
        total: Tokens,
        context_window: Option<u64>,
    ) -> Self {
        Self { endpoint, tools, session, output, total, context_window, tool_calls: 0 }
    }

    /// Works on one message. Returns whether it went well.
    ///
    /// Errors: nobody reads the output.
    pub fn turn(&mut self, message: &str) -> io::Result<bool> {
        let began = Instant::now();
        self.output.emit(&Activity::TurnStarted)?;
        self.session.begin_turn(message);
        let mut end = TurnEnd::default();
        let mut model_calls = 0;
        match self.work(&mut model_calls) {
            Ok(text) => end.text = text,
            Err(Stop::Failed(error)) => (end.is_error, end.error) = (true, error),
            Err(Stop::Unread(error)) => return Err(error),
        }
        end.turns = Some(model_calls);
        end.duration_ms = u64::try_from(began.elapsed().as_millis()).ok();
        let well = !end.is_error;
        self.save()?;
        self.output.emit(&Activity::TurnEnded(end))?;
        Ok(well)
    }

    fn work(&mut self, model_calls: &mut u64) -> Result<String, Stop> {
        while *model_calls < MODEL_CALLS_LIMIT {
            let reply = self.ask()?;
            *model_calls += 1;
            if let Some(usage) = reply.usage {
                self.count(usage)?;
            }
            self.session.push(assistant(&reply));
            if reply.calls.is_empty() {
                return Ok(reply.text);
            }
            for call in &reply.calls {
                let result = self.use_tool(call)?;
                self.session.push(json!({"role": "tool", "tool_call_id": call.id, "content": result}));
            }
            // What has been done is not forgotten, whatever happens next.
            self.save()?;
        }
        Err(Stop::Failed(format!("stopped after {MODEL_CALLS_LIMIT} answers of the model without a result")))
    }

    fn ask(&mut self) -> Result<Reply, Stop> {
        let body = self.endpoint.body(self.session.messages(), self.tools.definitions());
        let mut unread = None;
        let output = &mut *self.output;
        let mut emit = |activity: Activity| {
            if let Err(error) = output.emit(&activity) {
                unread.get_or_insert(error);
            }
        };
        let reply = self.endpoint.ask(&body, &mut emit);
        match unread {
            Some(error) => Err(Stop::Unread(error)),
            None => reply.map_err(Stop::Failed),
        }
    }

    fn count(&mut self, usage: CallUsage) -> io::Result<()> {
        self.total = self.total + usage.tokens;
        self.output.emit(&Activity::Usage(Usage {
            session_total: Some(self.total),
            context_tokens: Some(usage.context),
            context_window: self.context_window,
            ..Usage::default()
        }))
    }

    /// What the model is told of the tool's work.
    fn use_tool(&mut self, call: &Call) -> io::Result<String> {
        let arguments = match call.arguments.trim() {
            "" => Ok(Map::new()),
            text => serde_json::from_slice(text.as_bytes())
                .map_err(|error| format!("the arguments are not an object: {error}")),
        };
        let shown =
            arguments.as_ref().map_or_else(|_| Value::from(call.arguments.as_str()), |map| json!(map));
        self.tool_calls += 1;
        let id = format!("tool-{}", self.tool_calls);
        self.output.emit(&Activity::ToolStarted {
            id: id.clone(),
            name: call.name.clone(),
            path: self.tools.file_of(&call.name, &shown),
            input: shown,
            writes: Tools::writes(&call.name),
        })?;
        let result = arguments.and_then(|arguments| self.tools.call(&call.name, &arguments));
        let error = result.is_err();
        let output = result.unwrap_or_else(|error| error);
        self.output.emit(&Activity::ToolEnded { id, error, output: output.clone() })?;
        // The protocol has no flag for it, so the words must say it.
        Ok(if error { format!("error: {output}") } else { output })
    }

    fn save(&mut self) -> io::Result<()> {
        match self.session.save() {
            Ok(()) => Ok(()),
            Err(error) => self.output.emit(&Activity::Trouble { text: format!("not resumable: {error}") }),
        }
    }
}

fn assistant(reply: &Reply) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.text});
    if !reply.calls.is_empty() {
        let call = |call: &Call| {
            json!({"id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": call.arguments}})
        };
        message["tool_calls"] = reply.calls.iter().map(call).collect();
    }
    message
}
