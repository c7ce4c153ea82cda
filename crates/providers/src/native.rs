//! The protocol of the built-in agents (`script`, `ollama`).
//!
//! Out of the program: one [`Activity`] per line, as JSON. Into it: first `{"type":"prompt","text":"..."}`,
//! then any number of `{"type":"say","text":"..."}`. When its standard input is closed it ends.

use super::script::PROJECT_DIR_VARIABLE;
use super::{Activity, Args, Conversation, Launch, LaunchProgram, LaunchRequest, SessionStart, Step, Tokens};
use serde::{Deserialize, Serialize};

/// A line that is not of the protocol is shown up to this many bytes.
const NOISE_LIMIT_BYTES: usize = 4 * 1024;

/// The first `limit_bytes` of a text, less if that would split a character.
pub fn cut(text: &str, limit_bytes: usize) -> &str {
    let mut end = limit_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// One line to a built-in agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Input {
    /// What the run is for; always the first line.
    Prompt {
        /// The words, briefing included.
        text: String,
    },
    /// A message to the running agent.
    Say { text: String },
}

impl Input {
    /// The line, with its newline.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("a tagged string always has a JSON form");
        line.push('\n');
        line
    }
}

/// One run of a built-in agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Native {
    /// Sent when the process has started, and then dropped.
    prompt: Option<String>,
    /// The session's total that has been counted so far.
    counted: Tokens,
}

impl Native {
    /// A run that begins with `prompt`. A resumed session starts from what was counted for it, so that its
    /// cumulative figures are not counted again.
    pub fn new(prompt: &str, session: &SessionStart) -> Self {
        let counted = match session {
            SessionStart::Resume { counted, .. } => *counted,
            SessionStart::Fresh | SessionStart::Fork { .. } => Tokens::default(),
        };
        Self { prompt: Some(prompt.to_owned()), counted }
    }

    /// A run of a built-in agent, which is told where the project is.
    pub(super) fn launch(args: Args, request: &LaunchRequest) -> Launch {
        let project = request.project_dir.to_string_lossy().into_owned();
        Launch {
            program: LaunchProgram::Itself,
            args: args.0,
            env: vec![(PROJECT_DIR_VARIABLE.to_owned(), project)],
            stdin: true,
            conversation: Box::new(Self::new(&request.prompt, &request.session)),
        }
    }

    /// The delta is ours to compute wherever the program tells a cumulative figure: the same line twice
    /// then counts once.
    fn count(&mut self, mut activity: Activity) -> Activity {
        if let Activity::Usage(usage) = &mut activity
            && let Some(total) = usage.session_total
        {
            usage.delta = total.minus(self.counted);
            self.counted = total;
        }
        activity
    }
}

impl Conversation for Native {
    fn open(&mut self, out: &mut Vec<Step>) {
        if let Some(text) = self.prompt.take() {
            out.push(Step::Write(Input::Prompt { text }.to_line()));
        }
    }

    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        if line.trim().is_empty() {
            return;
        }
        let activity = match serde_json::from_str(line) {
            Ok(activity) => self.count(activity),
            Err(_) => Activity::Noise { text: cut(line, NOISE_LIMIT_BYTES).to_owned() },
        };
        out.push(Step::Event(activity));
    }

    fn say(&mut self, text: &str, out: &mut Vec<Step>) -> bool {
        out.push(Step::Write(Input::Say { text: text.to_owned() }.to_line()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TokensDelta, Usage};

    fn tokens(input: u64, output: u64) -> Tokens {
        Tokens { input, output, ..Tokens::default() }
    }

    fn usage_line(total: Tokens) -> String {
        let usage = Usage { session_total: Some(total), ..Usage::default() };
        serde_json::to_string(&Activity::Usage(usage)).unwrap()
    }

    fn events(native: &mut Native, lines: &[String]) -> Vec<Activity> {
        let mut out = Vec::new();
        for line in lines {
            native.line(line, &mut out);
        }
        out.into_iter()
            .map(|step| match step {
                Step::Event(activity) => activity,
                other => panic!("{other:?} is not an event"),
            })
            .collect()
    }

    fn deltas(native: &mut Native, totals: &[Tokens]) -> Vec<TokensDelta> {
        let lines: Vec<String> = totals.iter().copied().map(usage_line).collect();
        let of = |activity| match activity {
            Activity::Usage(usage) => usage.delta,
            other => panic!("{other:?} is not a usage"),
        };
        events(native, &lines).into_iter().map(of).collect()
    }

    #[test]
    fn the_prompt_goes_first_and_messages_follow_as_lines() {
        let mut native = Native::new("do\n\"this\"", &SessionStart::Fresh);
        let mut out = Vec::new();
        native.open(&mut out);
        assert!(native.say("-x", &mut out));
        native.finish(&mut out);
        assert_eq!(
            out,
            [
                Step::Write("{\"type\":\"prompt\",\"text\":\"do\\n\\\"this\\\"\"}\n".to_owned()),
                Step::Write("{\"type\":\"say\",\"text\":\"-x\"}\n".to_owned()),
                Step::CloseInput,
            ]
        );
    }

    #[test]
    fn a_repeated_usage_line_counts_once() {
        let mut native = Native::new("", &SessionStart::Fresh);
        let found = deltas(&mut native, &[tokens(10, 2), tokens(10, 2), tokens(15, 2)]);
        let delta = |input, output| TokensDelta { input, output, ..TokensDelta::default() };
        assert_eq!(found, [delta(10, 2), delta(0, 0), delta(5, 0)]);
    }

    #[test]
    fn a_resumed_session_counts_from_where_it_stood() {
        let session = SessionStart::Resume { id: "s".to_owned(), counted: tokens(10, 2) };
        let found = deltas(&mut Native::new("", &session), &[tokens(12, 3)]);
        assert_eq!(found, [TokensDelta { input: 2, output: 1, ..TokensDelta::default() }]);
    }

    #[test]
    fn anything_else_is_noise_cut_at_4_kib() {
        let long = format!("x{}", "é".repeat(NOISE_LIMIT_BYTES));
        let lines = ["{\"type\":\"text\"}", "[1]", "\u{fffd}\u{0}", "{\"type\":\"nonsense\"}", &long];
        let found = events(&mut Native::new("", &SessionStart::Fresh), &lines.map(str::to_owned));
        for (line, activity) in lines.iter().zip(&found) {
            let Activity::Noise { text } = activity else { panic!("{activity:?} is not noise") };
            // The long line is cut one byte short, so as not to split an é.
            let length = if line.len() > NOISE_LIMIT_BYTES { NOISE_LIMIT_BYTES - 1 } else { line.len() };
            assert!(line.starts_with(text.as_str()));
            assert_eq!(text.len(), length);
        }
        assert_eq!(found.len(), lines.len());
    }
}
