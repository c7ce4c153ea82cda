//! A program's own screen with a person at it: it prints nothing that is told, so what was said and used is
//! read from its record of the session.
//!
//! Between the daemon and the program stands `svc __terminal` (`crates/keeper`), whose lines these are.

use super::json::{Json, Look};
use super::{Activity, Args, Conversation, Launch, LaunchProgram, Program, Provider, Ruling, SessionStart};
use super::{LaunchRequest, Step, Tokens, claude_code, codex, gemini, opencode, saved, script, wire};
use serde::{Deserialize, Serialize};

/// The question by which [`Conversation::decide`] is told of a person who may come; the reason is the token.
pub const PERSON: &str = "person";
/// What stands before a complaint that nothing could be read of what was said.
const UNTOLD: &str = "svc: what was said at the terminal cannot be told";

/// A run with a person at the program's own screen.
pub struct AtTerminal {
    /// The interactive program, and the conversation for what is told of it.
    pub launch: Launch,
    /// The arguments with which the same program tells, once the person has left, what was said; empty where
    /// its record is read while it runs.
    pub last: Vec<String>,
}

/// The session that a person is to go on with.
///
/// Errors: there is none.
pub(super) fn session(request: &LaunchRequest) -> Result<(&str, Tokens), String> {
    wire::check_names(request)?;
    match &request.session {
        SessionStart::Resume { id, counted } => Ok((id, *counted)),
        _ => Err("a screen goes on with a session, and there is none".to_owned()),
    }
}

impl AtTerminal {
    /// One of the program of this name.
    pub(super) fn of(provider: &dyn Provider, args: Args, session: &str, reads: Reads) -> Self {
        let program = match provider.info().program {
            Program::OnPath(name, _) => LaunchProgram::Named(name.to_owned()),
            Program::Itself => LaunchProgram::Itself,
        };
        let conversation = Terminal { session: session.to_owned(), is_shown: false, reads };
        let conversation: Box<dyn Conversation> = Box::new(conversation);
        let launch = Launch { program, args: args.0, env: Vec::new(), stdin: true, conversation };
        Self { launch, last: Vec::new() }
    }
}

/// The conversation that was saved, see [`Provider::restore`].
///
/// Errors: as there.
pub fn restore(provider: &str, saved: &str) -> Result<Box<dyn Conversation>, String> {
    saved::restore::<Terminal>(provider, saved)
}

/// How a record is read.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reads {
    Claude(claude_code::Told),
    Codex(codex::Told),
    OpenCode(opencode::Told),
    Gemini(gemini::Told),
    Script(script::Told),
}

impl Reads {
    pub(super) fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        match self {
            Self::Claude(told) => told.line(line, out),
            Self::Codex(told) => told.line(line, out),
            Self::OpenCode(told) => told.line(line, out),
            Self::Gemini(told) => told.line(line, out),
            Self::Script(told) => told.line(line, out),
        }
    }

    /// Nothing follows: what no line has told as over is told so.
    pub(super) fn end(&mut self, out: &mut Vec<Step>) {
        match self {
            Self::Claude(told) => told.end(out),
            Self::Gemini(told) => told.end(out),
            Self::Codex(_) | Self::OpenCode(_) | Self::Script(_) => {}
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Terminal {
    session: String,
    is_shown: bool,
    reads: Reads,
}

impl Conversation for Terminal {
    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let own = wire::object(line).map(|line| wire::text(&line, "terminal").to_owned());
        match own.as_deref() {
            Some("shown") if !self.is_shown => {
                self.is_shown = true;
                wire::emit(out, Activity::Session { id: self.session.clone(), model: None });
            }
            Some("") => self.reads.line(line, out),
            _ => {}
        }
    }

    fn complaint(&mut self, line: &str, out: &mut Vec<Step>) {
        if line.starts_with(UNTOLD) {
            wire::trouble(out, line.trim_start_matches("svc: "));
        }
    }

    fn record(&mut self, line: &str, out: &mut Vec<Step>) {
        self.reads.line(line, out);
    }

    fn decide(&mut self, question: &str, ruling: &Ruling, out: &mut Vec<Step>) {
        if question == PERSON && !ruling.reason.contains('\n') {
            out.push(Step::Write(format!("expect {}\n", ruling.reason)));
        }
    }

    fn finish(&mut self, out: &mut Vec<Step>) {
        out.push(Step::Write("leave\n".to_owned()));
    }
}

/// The text of the blocks of a content that have some, see [`wire::words`], whole.
pub(super) fn text_of(content: &Json<'_>) -> String {
    if let Some(text) = content.as_str() {
        return wire::cut(text, wire::JOINED_TEXT_LIMIT_BYTES);
    }
    let texts = content.as_array().unwrap_or(&[]).iter().map(|block| wire::text(block, "text"));
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    wire::cut(&texts.join("\n"), wire::JOINED_TEXT_LIMIT_BYTES)
}

/// Adds what a person has said.
pub(super) fn said(out: &mut Vec<Step>, text: &str) {
    if !text.trim().is_empty() {
        out.push(Step::Said(text.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TokensDelta, Usage, by_id};

    /// What is told of these lines by a person's life at the screen, in short; the saved conversation goes on
    /// after each of them.
    fn told(provider: &str, lines: &[&str]) -> Vec<String> {
        let counted = Tokens { input: 100, output: 10, ..Tokens::default() };
        let mut request = crate::command_lines::request("");
        request.session = SessionStart::Resume { id: "s1".to_owned(), counted };
        let screen = by_id(provider).unwrap().at_terminal(&request, 7).unwrap();
        let mut conversation = screen.launch.conversation;
        let mut short = Vec::new();
        for line in lines {
            let mut steps = Vec::new();
            conversation.record(line, &mut steps);
            conversation = restore(provider, &conversation.save()).unwrap();
            short.extend(steps.into_iter().map(|step| match step {
                Step::Said(text) => format!("> {text}"),
                Step::Event(Activity::Text { text }) => text,
                Step::Event(Activity::TurnStarted) => "begin".to_owned(),
                Step::Event(Activity::TurnEnded(end)) => format!("end {}", end.text),
                Step::Event(Activity::Usage(Usage { delta: TokensDelta { input, output, .. }, .. })) => {
                    format!("{input} {output}")
                }
                Step::Event(Activity::ToolStarted { name, path, .. }) => format!("{name} {path:?}"),
                other => format!("{other:?}"),
            }));
        }
        short
    }

    #[test]
    fn codex_tells_each_word_once_and_sums_that_stand_there_again_count_once() {
        let count = |input: u64, output: u64| {
            format!(
                "{{\"type\":\"event_msg\",\"payload\":{{\"type\":\"token_count\",\"info\":{{\
                 \"total_token_usage\":{{\"input_tokens\":{input},\"output_tokens\":{output}}},\
                 \"last_token_usage\":{{\"input_tokens\":5}}}}}}}}"
            )
        };
        let event = |payload: &str| format!("{{\"type\":\"event_msg\",\"payload\":{payload}}}");
        let item = |item: &str| event(&format!("{{\"type\":\"item_completed\",\"item\":{item}}}"));
        let lines = [
            count(100, 10),
            event("{\"type\":\"task_started\"}"),
            "{\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"user\"}}".to_owned(),
            item("{\"type\":\"UserMessage\",\"content\":[{\"type\":\"text\",\"text\":\"do it\"}]}"),
            item("{\"type\":\"AgentMessage\",\"content\":[{\"type\":\"Text\",\"text\":\"done\"}]}"),
            item("{\"type\":\"FileChange\",\"id\":\"c\",\"status\":\"completed\",\"changes\":{\"/p/a\":{}}}"),
            count(150, 12),
            count(150, 12),
            event("{\"type\":\"task_complete\",\"last_agent_message\":\"done\"}"),
            event("{\"type\":\"turn_aborted\"}"),
            "no JSON".to_owned(),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let found = told("codex", &lines);
        let wanted = ["begin", "> do it", "done", "file_change Some(\"/p/a\")"];
        assert_eq!(found[..4], wanted);
        assert!(found[4].contains("ToolEnded"), "{found:?}");
        assert_eq!(found[5..], ["50 2", "end done", "end "]);
    }

    #[test]
    fn opencode_tells_its_parts_and_a_turn_that_was_left_is_not_ended() {
        let part = |role: &str, part: &str| format!("{{\"role\":\"{role}\",\"part\":{part}}}");
        let finish = |reason: &str| {
            part(
                "assistant",
                &format!(
                    "{{\"type\":\"step-finish\",\"reason\":\"{reason}\",\"tokens\":{{\"input\":20,\
                     \"output\":3}}}}"
                ),
            )
        };
        let lines = [
            part("user", "{\"type\":\"text\",\"text\":\"do it\"}"),
            part("user", "{\"type\":\"text\",\"text\":\"made up\",\"synthetic\":true}"),
            part("assistant", "{\"type\":\"step-start\"}"),
            finish("tool-calls"),
            part("assistant", "{\"type\":\"step-start\"}"),
            part("assistant", "{\"type\":\"text\",\"text\":\"done\"}"),
            finish("stop"),
            part("user", "{\"type\":\"text\",\"text\":\"and more\"}"),
            part("assistant", "{\"type\":\"step-start\"}"),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let wanted = ["> do it", "begin", "20 3", "done", "20 3", "end done", "> and more", "begin"];
        assert_eq!(told("opencode", &lines), wanted);
    }

    #[test]
    fn claude_code_tells_its_main_thread_and_counts_by_its_own_sums() {
        let models = |input: u64, output: u64| {
            format!(
                "{{\"type\":\"cost-state\",\"modelUsage\":{{\"m\":{{\"inputTokens\":{input},\
                 \"outputTokens\":{output}}}}}}}"
            )
        };
        let says = |more: &str, reason: &str| {
            format!(
                "{{\"type\":\"assistant\"{more},\"message\":{{\"content\":[{{\"type\":\"text\",\"text\":\
                 \"done\"}}],\"stop_reason\":\"{reason}\"}}}}"
            )
        };
        let lines = [
            "{\"type\":\"user\",\"message\":{\"content\":\"do it\"}}".to_owned(),
            says(",\"isSidechain\":true", "end_turn"),
            says("", "end_turn"),
            models(130, 14),
            models(130, 14),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(told("claude-code", &lines), ["> do it", "begin", "done", "end done", "30 4"]);
    }

    #[test]
    fn a_session_that_is_no_name_gets_no_screen_and_who_has_none_says_so() {
        let mut request = crate::command_lines::request("");
        assert!(by_id("codex").unwrap().at_terminal(&request, 0).is_err(), "no session");
        for id in ["-x", "a'; drop table message; --", "a b"] {
            request.session = SessionStart::Resume { id: id.to_owned(), counted: Tokens::default() };
            assert!(by_id("opencode").unwrap().at_terminal(&request, 0).is_err(), "{id}");
        }
        request.session = SessionStart::Resume { id: "s1".to_owned(), counted: Tokens::default() };
        for provider in crate::all() {
            let info = provider.info();
            assert_eq!(provider.at_terminal(&request, 0).is_ok(), info.has_screen, "{}", info.id);
        }
    }

    #[test]
    fn a_person_is_let_in_and_out_over_the_standard_input_of_the_terminal() {
        let mut request = crate::command_lines::request("");
        request.session = SessionStart::Resume { id: "s1".to_owned(), counted: Tokens::default() };
        let mut conversation = by_id("script").unwrap().at_terminal(&request, 0).unwrap().launch.conversation;
        let mut steps = Vec::new();
        let ruling = |reason: &str| Ruling { allow: true, reason: reason.to_owned() };
        conversation.decide(PERSON, &ruling("t0ken"), &mut steps);
        conversation.decide(PERSON, &ruling("x\nleave"), &mut steps);
        conversation.decide("another question", &ruling("x"), &mut steps);
        conversation.finish(&mut steps);
        let wanted = ["expect t0ken\n", "leave\n"].map(|text| Step::Write(text.to_owned()));
        assert_eq!(steps, wanted);
        assert!(!conversation.save().contains("t0ken"), "it stands in no file");
    }
}
