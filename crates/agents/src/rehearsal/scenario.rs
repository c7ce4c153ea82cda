//! What a rehearsed agent is to do: the scenario file as typed steps. The format is told in
//! `docs/rehearsals.md`.

use super::node::Node;
use serde_json::Value;
use svc_providers::Tokens;

/// Loops may stand in loops this deep.
const LOOP_DEPTH_LIMIT: usize = 8;
/// A loop runs at most so many times.
const LOOP_TIMES_LIMIT: u64 = 1_000_000;
/// No single wait is longer, so that a forgotten rehearsal ends by itself.
const WAIT_LIMIT_MS: u64 = 10 * 60 * 1000;
/// No forked process lives longer.
const FORK_LIMIT_SECONDS: u64 = 10 * 60;
/// A flood has at most so many lines.
const FLOOD_LIMIT_LINES: u64 = 10_000_000;
/// No line the agent is told to print is longer.
const LINE_LIMIT_BYTES: u64 = 64 * 1024 * 1024;
/// A usage line is repeated at most so often.
const REPEAT_LIMIT: u64 = 10_000;
/// One class of tokens in one step; sums of any scenario stay far from overflow.
const TOKENS_LIMIT: u64 = 1_000_000_000;
/// The last of the signals every Unix knows.
const SIGNAL_LIMIT: u64 = 31;
/// Exit codes are one byte.
const EXIT_CODE_LIMIT: u64 = 245;
/// How long a command may run unless its step says otherwise.
const RUN_TIMEOUT_MS: u64 = 60_000;
/// How long a file is waited for unless the step says otherwise.
const WAIT_FOR_FILE_TIMEOUT_MS: u64 = 30_000;
/// Life of a forked process unless the step says otherwise.
const FORK_SECONDS: u64 = 120;
/// Tokens, unless the step says otherwise.
const CONTEXT_WINDOW: u64 = 200_000;

/// A whole rehearsal.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// For people.
    pub description: String,
    /// The answer to a question that is put aside of the work.
    pub query: Option<String>,
    pub steps: Vec<Step>,
    /// Every later turn; without it a message is answered with a default.
    pub on_say: Option<Vec<Step>>,
}

/// One thing to do. Texts are templates.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Say(String),
    Think(String),
    Read(String),
    Write { path: String, text: String },
    Run { command: String, timeout_ms: u64 },
    Ask(String),
    Usage { tokens: Tokens, context_window: u64 },
    RepeatUsage(u64),
    SleepMs(u64),
    Flood { lines: u64, bytes: usize },
    HalfLine(String),
    Newline,
    BadUtf8,
    HugeLine(usize),
    Fork(Fork),
    IgnoreTerm,
    Hang,
    Exit(u8),
    DieBySignal(i32),
    Limit(String),
    Fail(String),
    Answer(String),
    Loop { times: u64, steps: Vec<Step> },
    WaitForFile { path: String, timeout_ms: u64 },
}

/// A process that the agent leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// It ignores SIGTERM.
    pub ignore_term: bool,
    /// It leaves the agent's session and group.
    pub own_session: bool,
    /// It keeps the agent's standard output open.
    pub hold_pipe: bool,
    /// It ends by itself after this time.
    pub seconds: u64,
}

/// Reads a scenario file's text.
///
/// Errors: a sentence that names step and field, for example `step 2, field run.command: must be a text`.
pub fn parse(text: &str) -> Result<Scenario, String> {
    let value: Value =
        serde_json::from_slice(text.as_bytes()).map_err(|error| format!("not JSON: {error}"))?;
    let top = Node { place: String::new(), field: String::new(), value: &value };
    let fields = top.object(&["description", "query", "steps", "onSay"])?;
    Ok(Scenario {
        description: fields.optional("description", Node::text)?.unwrap_or_default(),
        query: fields.optional("query", Node::text)?,
        steps: fields.required("steps", |node| steps(node, "step ", 0))?,
        on_say: fields.optional("onSay", |node| steps(node, "onSay step ", 0))?,
    })
}

/// The steps of a list; `prefix` and the number from 1 name each.
fn steps(list: &Node, prefix: &str, depth: usize) -> Result<Vec<Step>, String> {
    let Some(values) = list.value.as_array() else {
        return Err(list.wrong("must be a list of steps"));
    };
    values
        .iter()
        .enumerate()
        .map(|(index, value)| {
            let place = format!("{prefix}{}", index + 1);
            step(&Node { place, field: String::new(), value }, depth)
        })
        .collect()
}

/// One step: an object with one field, which names the kind.
fn step(node: &Node, depth: usize) -> Result<Step, String> {
    let single = node.value.as_object().filter(|object| object.len() == 1);
    let Some((kind, value)) = single.and_then(|object| object.iter().next()) else {
        return Err(node.wrong("must be an object with exactly one field, the kind of step"));
    };
    let node = Node { place: node.place.clone(), field: kind.clone(), value };
    Ok(match kind.as_str() {
        "say" => Step::Say(node.text()?),
        "think" => Step::Think(node.text()?),
        "read" => Step::Read(node.text()?),
        "ask" => Step::Ask(node.text()?),
        "halfLine" => Step::HalfLine(node.text()?),
        "limit" => Step::Limit(node.text()?),
        "fail" => Step::Fail(node.text()?),
        "answer" => Step::Answer(node.text()?),
        "repeatUsage" => Step::RepeatUsage(node.number(REPEAT_LIMIT)?),
        "sleepMs" => Step::SleepMs(node.number(WAIT_LIMIT_MS)?),
        "hugeLine" => Step::HugeLine(node.length(LINE_LIMIT_BYTES)?),
        "exit" => Step::Exit(u8::try_from(node.number(EXIT_CODE_LIMIT)?).unwrap_or(u8::MAX)),
        "dieBySignal" => Step::DieBySignal(i32::try_from(node.number(SIGNAL_LIMIT)?).unwrap_or(0)),
        "newline" => node.always().map(|()| Step::Newline)?,
        "badUtf8" => node.always().map(|()| Step::BadUtf8)?,
        "ignoreTerm" => node.always().map(|()| Step::IgnoreTerm)?,
        "hang" => node.always().map(|()| Step::Hang)?,
        _ => compound(&node, depth)?,
    })
}

/// The kinds of step that have fields of their own.
fn compound(node: &Node, depth: usize) -> Result<Step, String> {
    Ok(match node.field.as_str() {
        "write" => {
            let fields = node.object(&["path", "text"])?;
            Step::Write {
                path: fields.required("path", Node::text)?,
                text: fields.required("text", Node::text)?,
            }
        }
        "run" => {
            let fields = node.object(&["command", "timeoutMs"])?;
            let command = fields.required("command", Node::text)?;
            Step::Run { command, timeout_ms: fields.number("timeoutMs", RUN_TIMEOUT_MS, WAIT_LIMIT_MS)? }
        }
        "waitForFile" => {
            let fields = node.object(&["path", "timeoutMs"])?;
            let timeout_ms = fields.number("timeoutMs", WAIT_FOR_FILE_TIMEOUT_MS, WAIT_LIMIT_MS)?;
            Step::WaitForFile { path: fields.required("path", Node::text)?, timeout_ms }
        }
        "usage" => usage(node)?,
        "flood" => {
            let fields = node.object(&["lines", "bytes"])?;
            let lines = fields.required("lines", |node| node.number(FLOOD_LIMIT_LINES))?;
            Step::Flood { lines, bytes: fields.required("bytes", |node| node.length(LINE_LIMIT_BYTES))? }
        }
        "fork" => {
            let fields = node.object(&["ignoreTerm", "ownSession", "holdPipe", "seconds"])?;
            Step::Fork(Fork {
                ignore_term: fields.optional("ignoreTerm", Node::flag)?.unwrap_or(false),
                own_session: fields.optional("ownSession", Node::flag)?.unwrap_or(false),
                hold_pipe: fields.optional("holdPipe", Node::flag)?.unwrap_or(false),
                seconds: fields.number("seconds", FORK_SECONDS, FORK_LIMIT_SECONDS)?,
            })
        }
        "loop" if depth == LOOP_DEPTH_LIMIT => {
            return Err(node.wrong(&format!("loops may be nested at most {LOOP_DEPTH_LIMIT} deep")));
        }
        "loop" => {
            let fields = node.object(&["times", "steps"])?;
            let times = fields.required("times", |node| node.number(LOOP_TIMES_LIMIT))?;
            let prefix = format!("{}.", node.place);
            Step::Loop { times, steps: fields.required("steps", |list| steps(list, &prefix, depth + 1))? }
        }
        _ => return Err(node.wrong("there is no step of this kind")),
    })
}

/// The tokens a step adds.
fn usage(node: &Node) -> Result<Step, String> {
    let fields = node.object(&["input", "output", "cacheRead", "cacheCreation", "contextWindow"])?;
    Ok(Step::Usage {
        tokens: Tokens {
            input: fields.number("input", 0, TOKENS_LIMIT)?,
            output: fields.number("output", 0, TOKENS_LIMIT)?,
            cache_read: fields.number("cacheRead", 0, TOKENS_LIMIT)?,
            cache_creation: fields.number("cacheCreation", 0, TOKENS_LIMIT)?,
        },
        context_window: fields.number("contextWindow", CONTEXT_WINDOW, TOKENS_LIMIT)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps_of(json: &str) -> Vec<Step> {
        parse(&format!("{{\"steps\":[{json}]}}")).unwrap().steps
    }

    #[test]
    fn every_kind_of_step_is_read() {
        let text = include_str!("../../../../tests/data/rehearsals/every-step.json");
        let scenario = parse(text).unwrap();
        assert_eq!(scenario.steps.len(), 24);
        let kinds: std::collections::HashSet<_> = scenario.steps.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 24, "each kind once");
        assert_eq!(scenario.on_say, Some(vec![Step::Answer("again".to_owned())]));
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        assert_eq!(
            steps_of(r#"{"run":{"command":"true"}},{"fork":{}},{"usage":{"input":3}}"#),
            [
                Step::Run { command: "true".to_owned(), timeout_ms: 60_000 },
                Step::Fork(Fork { ignore_term: false, own_session: false, hold_pipe: false, seconds: 120 }),
                Step::Usage { tokens: Tokens { input: 3, ..Tokens::default() }, context_window: 200_000 },
            ]
        );
    }

    #[test]
    fn an_error_names_step_and_field() {
        let cases = [
            (r#"{"steps":[{"say":"a"},{"sya":"b"}]}"#, "step 2, field sya: there is no step of this kind"),
            (r#"{"steps":[{"say":1}]}"#, "step 1, field say: must be a text"),
            (r#"{"steps":[{"write":{"path":"a"}}]}"#, "step 1, field write.text: is missing"),
            (r#"{"steps":[{"run":{"command":["ls"]}}]}"#, "step 1, field run.command: must be a text"),
            (
                r#"{"steps":[{"run":{"command":"a","timeout":1}}]}"#,
                "step 1, field run.timeout: there is no such field",
            ),
            (
                r#"{"steps":[{"sleepMs":600001}]}"#,
                "step 1, field sleepMs: must be a whole number from 0 to 600000",
            ),
            (r#"{"steps":[{"hang":false}]}"#, "step 1, field hang: must be true"),
            (
                r#"{"steps":[{"say":"a","think":"b"}]}"#,
                "step 1: must be an object with exactly one field, the kind of step",
            ),
            (
                r#"{"steps":[{"loop":{"times":2,"steps":[{"say":"a"},{"exit":246}]}}]}"#,
                "step 1.2, field exit: must be a whole number from 0 to 245",
            ),
            (r#"{"steps":[],"onSay":[{"say":null}]}"#, "onSay step 1, field say: must be a text"),
            (r#"{"step":[]}"#, "field step: there is no such field"),
            ("{}", "field steps: is missing"),
            ("[]", "must be an object"),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn loops_nest_up_to_a_limit() {
        let nested = |depth: usize| {
            let open = r#"{"loop":{"times":1,"steps":["#.repeat(depth);
            parse(&format!("{{\"steps\":[{open}{}]}}", "]}}".repeat(depth)))
        };
        assert!(nested(LOOP_DEPTH_LIMIT).is_ok());
        assert!(nested(LOOP_DEPTH_LIMIT + 1).unwrap_err().contains("at most 8 deep"));
    }
}
