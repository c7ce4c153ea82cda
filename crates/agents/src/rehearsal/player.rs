//! Plays the steps of a scenario.

use super::output::Output;
use super::scenario::{Fork, Step};
use super::{input, tools};
use serde_json::{Value, json};
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use svc_providers::native::Input;
use svc_providers::{Activity, Tokens, TurnEnd, Usage};
use svc_sys::rehearsal_signals;

/// The longest hang, so that a forgotten rehearsal ends by itself.
const HANG_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Why the steps of a turn were left before their end.
#[derive(Debug)]
pub enum Stop {
    /// The turn has failed; the agent goes on.
    Failed(String),
    /// Standard input has ended where a message was waited for.
    InputEnded,
    /// The agent exits at once, with this code.
    Exit(u8),
    /// Something was said that is not of the protocol.
    BadInput(String),
    /// Nobody reads any more.
    Broken,
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// What `{{...}}` in a text stands for.
#[derive(Debug, Default)]
pub struct Words {
    /// `{{prompt}}`
    pub prompt: String,
    /// `{{message}}`: what was said last.
    pub message: String,
    /// `{{role}}`
    pub role: String,
    /// `{{name}}`
    pub name: String,
    /// `{{agentId}}`
    pub agent_id: String,
}

impl Words {
    /// Fills a template in one pass, so that braces in a prompt stay as they are. An unknown word stays too.
    pub fn fill(&self, template: &str) -> String {
        let mut filled = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("{{") {
            filled.push_str(before);
            let word =
                after.split_once("}}").and_then(|(word, after)| Some((self.word(word.trim())?, after)));
            if let Some((value, after)) = word {
                filled.push_str(value);
                rest = after;
            } else {
                filled.push_str("{{");
                rest = after;
            }
        }
        filled.push_str(rest);
        filled
    }

    fn word(&self, name: &str) -> Option<&str> {
        Some(match name {
            "prompt" => &self.prompt,
            "message" => &self.message,
            "role" => &self.role,
            "name" => &self.name,
            "agentId" => &self.agent_id,
            _ => return None,
        })
    }
}

/// One life of the agent.
pub struct Player {
    pub output: Output,
    /// Its working directory, which its tools do not leave.
    pub root: PathBuf,
    pub words: Words,
    /// What the session has used, earlier lives included.
    pub total: Tokens,
    /// The usage line that can be repeated.
    last_usage: Usage,
    /// Numbers the tool calls.
    tool_calls: u64,
    /// Text of the turn's end.
    answer: String,
    /// Processes left behind; kept so that none is dropped unwaited while the agent lives.
    forks: Vec<Child>,
}

impl Player {
    /// A player that has not begun.
    pub fn new(root: PathBuf, words: Words, total: Tokens) -> Self {
        let last_usage = Usage { session_total: Some(total), ..Usage::default() };
        let (forks, answer) = (Vec::new(), String::new());
        Self { output: Output::new(), root, words, total, last_usage, tool_calls: 0, answer, forks }
    }

    /// One turn, from its start to its end. Half a line stays half: no end of the turn is told then.
    pub fn turn(&mut self, steps: &[Step]) -> Result<(), Stop> {
        self.output.emit(&Activity::TurnStarted)?;
        let played = self.play(steps);
        let text = std::mem::take(&mut self.answer);
        let end = match &played {
            Ok(()) | Err(Stop::InputEnded) if self.output.has_open_line() => return Err(Stop::Exit(0)),
            Ok(()) | Err(Stop::InputEnded) => TurnEnd { text, ..TurnEnd::default() },
            Err(Stop::Failed(error) | Stop::BadInput(error)) => failure(error),
            Err(Stop::Exit(_) | Stop::Broken) => return played,
        };
        self.output.emit(&Activity::TurnEnded(end))?;
        if matches!(played, Err(Stop::Failed(_))) { Ok(()) } else { played }
    }

    fn play(&mut self, steps: &[Step]) -> Result<(), Stop> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Say(text) => self.output.text(self.words.fill(text))?,
            Step::Think(text) => self.output.emit(&Activity::Thinking { text: self.words.fill(text) })?,
            Step::Read(_) | Step::Write { .. } | Step::Run { .. } => self.tool(step)?,
            Step::Ask(question) => self.ask(question)?,
            Step::Usage { tokens, context_window } => self.usage(*tokens, *context_window)?,
            Step::RepeatUsage(times) => {
                for _ in 0..*times {
                    self.output.emit(&Activity::Usage(self.last_usage.clone()))?;
                }
            }
            Step::SleepMs(ms) => thread::sleep(Duration::from_millis(*ms)),
            Step::Flood { lines, bytes } => self.output.flood(*lines, *bytes)?,
            Step::HalfLine(text) => self.output.raw(self.words.fill(text).as_bytes())?,
            Step::Newline => self.output.raw(b"\n")?,
            Step::BadUtf8 => self.output.raw(b"{\"type\":\"text\",\"text\":\"bad \xff\xfe\xc3 UTF-8\"}\n")?,
            Step::HugeLine(bytes) => self.output.text("x".repeat(*bytes))?,
            Step::Fork(fork) => self.fork(*fork)?,
            Step::IgnoreTerm => rehearsal_signals::ignore_term(),
            Step::Hang => {
                thread::sleep(HANG_LIMIT);
                return Err(Stop::Failed(format!("nobody ended the hang in {} s", HANG_LIMIT.as_secs())));
            }
            Step::Exit(code) => return Err(Stop::Exit(*code)),
            Step::DieBySignal(signal) => {
                rehearsal_signals::die_by(*signal);
                return Err(Stop::Failed(format!("signal {signal} does not end a process")));
            }
            Step::Limit(message) => {
                let text = self.words.fill(message);
                self.output.emit(&Activity::Trouble { text: text.clone() })?;
                return Err(Stop::Failed(text));
            }
            Step::Fail(message) => return Err(Stop::Failed(self.words.fill(message))),
            Step::Answer(text) => {
                self.answer = self.words.fill(text);
                self.output.text(self.answer.clone())?;
            }
            Step::Loop { times, steps } => (0..*times).try_for_each(|_| self.play(steps))?,
            Step::WaitForFile { path, timeout_ms } => {
                let (path, timeout) = (self.words.fill(path), Duration::from_millis(*timeout_ms));
                tools::wait_for_file(&self.root, &path, timeout).map_err(Stop::Failed)?;
            }
        }
        Ok(())
    }

    /// A tool with its start and end. That it fails is told, and the rehearsal goes on.
    fn tool(&mut self, step: &Step) -> Result<(), Stop> {
        let (name, input, path, writes): (_, Value, _, _) = match step {
            Step::Read(path) => {
                let path = self.words.fill(path);
                ("read", json!({"path": path}), Some(path), false)
            }
            Step::Write { path, text } => {
                let path = self.words.fill(path);
                ("write", json!({"path": path, "text": self.words.fill(text)}), Some(path), true)
            }
            Step::Run { command, .. } => ("run", json!({"command": self.words.fill(command)}), None, false),
            _ => return Ok(()),
        };
        self.tool_calls += 1;
        let id = format!("tool-{}", self.tool_calls);
        let argument = |field: &str| input[field].as_str().unwrap_or_default().to_owned();
        let (text, command, place) = (argument("text"), argument("command"), argument("path"));
        self.output.emit(&Activity::ToolStarted {
            id: id.clone(),
            name: name.to_owned(),
            input,
            path,
            writes,
        })?;
        let result = match step {
            Step::Run { timeout_ms, .. } => {
                tools::run(&self.root, &command, Duration::from_millis(*timeout_ms))
            }
            Step::Write { .. } => {
                tools::inside(&self.root, &place).and_then(|file| tools::write(&file, &place, &text))
            }
            _ => tools::read(&self.root, &place),
        };
        let error = result.is_err();
        let output = result.unwrap_or_else(|error| error);
        Ok(self.output.emit(&Activity::ToolEnded { id, error, output })?)
    }

    fn ask(&mut self, question: &str) -> Result<(), Stop> {
        self.output.text(self.words.fill(question))?;
        match input::next().map_err(Stop::BadInput)? {
            Some(Input::Prompt { text } | Input::Say { text }) => self.words.message = text,
            None => return Err(Stop::InputEnded),
        }
        Ok(())
    }

    fn usage(&mut self, tokens: Tokens, context_window: u64) -> Result<(), Stop> {
        self.total = self.total + tokens;
        self.last_usage = Usage {
            session_total: Some(self.total),
            context_tokens: Some(tokens.input + tokens.cache_read + tokens.cache_creation),
            context_window: Some(context_window),
            ..Usage::default()
        };
        Ok(self.output.emit(&Activity::Usage(self.last_usage.clone()))?)
    }

    /// Leaves a process behind, and goes on when it is as unpleasant as asked for.
    fn fork(&mut self, fork: Fork) -> Result<(), Stop> {
        let failed = |error: io::Error| Stop::Failed(format!("cannot fork: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args([svc_providers::script::SUB_COMMAND, super::LINGER_OPTION, &fork.seconds.to_string()]);
        if fork.ignore_term {
            command.arg(super::LINGER_IGNORE_TERM_OPTION);
        }
        if fork.own_session {
            command.arg(super::LINGER_OWN_SESSION_OPTION);
        }
        let stdout = if fork.hold_pipe { Stdio::inherit() } else { Stdio::null() };
        // Its standard error tells us that it is ready, so it never is the agent's.
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let mut ready = [0; 1];
        if let Some(stderr) = &mut child.stderr {
            stderr.read_exact(&mut ready).map_err(failed)?;
        }
        self.output.text(format!("left process {} behind", child.id()))?;
        self.forks.push(child);
        Ok(())
    }
}

/// The end of a failed turn.
pub fn failure(error: &str) -> TurnEnd {
    TurnEnd { is_error: true, error: error.to_owned(), ..TurnEnd::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_once() {
        let words =
            Words { prompt: "{{name}} {{".to_owned(), name: "backend-1".to_owned(), ..Words::default() };
        assert_eq!(words.fill("{{ name }}: {{prompt}}{{role}}."), "backend-1: {{name}} {{.");
        assert_eq!(words.fill("{{unknown}} {{{name}} {{"), "{{unknown}} {{{name}} {{");
    }
}
