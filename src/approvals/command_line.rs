//! The command line that a tool runs, and where: what can be compared of it, and whether a shell is still
//! where it began.
//!
//! Nothing here says what a command does. Its words are compared as they are, byte by byte.

use super::action::hash;
use crate::core::ids::AgentId;
use crate::providers::Activity;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Characters of a command line that a person can see whole; a longer one cannot be compared by its words.
pub const MAX_COMMAND_CHARS: usize = 4_000;
/// Agents whose shells may have moved that are remembered; with more, nobody's is known to be at home.
const MAX_SHELLS: usize = 4_096;
/// Arguments of such a tool that say where the command runs.
const FOLDERS: [&str; 5] = ["cwd", "workdir", "directory", "dir_path", "working_directory"];
/// Further arguments that change nothing of what is run. A tool with any other is not understood.
const HARMLESS: [&str; 2] = ["description", "timeout"];
/// Words of a shell that change where it is, or run words that are not seen.
const MOVING: [&str; 17] = [
    "cd", "pushd", "popd", "eval", "source", ".", "exec", "builtin", "command", "alias", "unalias", "trap",
    "function", "enable", "set", "shopt", "fg",
];

/// What is run, where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct CommandLine {
    /// Whole, as the agent gave it.
    pub text: String,
    /// Relative to the project; empty is the project itself. `None` where it cannot be told.
    pub folder: Option<String>,
}

impl CommandLine {
    /// The command line in the arguments of a tool, if it is all that they say.
    pub fn of(params: &Value, folder: Option<&str>) -> Option<Self> {
        let params = params.as_object()?;
        let text = params.get("command")?.as_str()?;
        let is_known =
            |name: &String| name == "command" || HARMLESS.contains(&&**name) || FOLDERS.contains(&&**name);
        let is_short = !text.trim().is_empty() && text.chars().count() <= MAX_COMMAND_CHARS;
        if !is_short || !params.keys().all(is_known) {
            return None;
        }
        Some(Self { text: text.to_owned(), folder: folder_of(params, folder) })
    }

    /// What two equal ones have in common.
    pub fn key(&self) -> String {
        hash(&Value::from(self.text.as_str()))
    }
}

/// A folder that the call names itself is not followed: where it leads is the program's business.
fn folder_of(params: &Map<String, Value>, folder: Option<&str>) -> Option<String> {
    let named = FOLDERS.iter().filter_map(|name| params.get(*name));
    let is_own = |value: &Value| value.as_str().is_some_and(|text| matches!(text, "" | "." | "./"));
    let mut named = named.filter(|value| !value.is_null());
    named.all(is_own).then(|| folder.map(str::to_owned)).flatten()
}

/// Whether a shell may be in another folder behind a command line. Only one that is made of plain words says
/// no; everything else may.
pub fn may_move(text: &str) -> bool {
    has_open_words(text) || text.split(|c: char| !is_word(c)).any(|word| MOVING.contains(&word))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || "_-./:=,@%+".contains(c)
}

/// Whether what runs cannot be told from the words: they are put together by the shell.
pub fn has_open_words(text: &str) -> bool {
    let mut quote = None;
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match quote {
            Some(open) if c == open => {
                quote = None;
                // A quote that ends inside of a word makes one word of two.
                if chars.peek().is_some_and(|next| !next.is_whitespace() && !";|&)<>".contains(*next)) {
                    return true;
                }
            }
            Some('"') if "$`\\!".contains(c) => return true,
            Some(_) => {}
            None if "'\"".contains(c) => {
                if !before.is_whitespace() && before != '=' {
                    return true;
                }
                quote = Some(c);
            }
            None if is_word(c) || c.is_whitespace() || ";|&()<>".contains(c) => {}
            None => return true,
        }
        before = c;
    }
    quote.is_some()
}

/// Where the shells of running agents are: a program may keep one shell for all its commands.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Shells {
    /// By agent: the one command line that may have moved its shell, or `None` when it is not known where
    /// that is.
    moved: BTreeMap<AgentId, Option<String>>,
}

impl Shells {
    /// Takes in what an agent does.
    pub fn heard(&mut self, agent: AgentId, activity: &Activity) {
        let Activity::ToolStarted { input, .. } = activity else { return };
        // Whatever names a command, understood or not.
        let Some(command) = input.get("command") else { return };
        let text = command.as_str().map_or_else(|| command.to_string(), str::to_owned);
        if !may_move(&text) && command.is_string() {
            return;
        }
        let key = hash(&Value::from(text));
        let is_first = !self.moved.contains_key(&agent);
        if self.moved.len() < MAX_SHELLS || !is_first {
            self.moved.insert(agent, is_first.then_some(key));
        }
    }

    /// Whether a command line that is asked about now would run where the program began. The one that has
    /// just been announced may move the shell itself; it has not yet.
    pub fn is_at_home(&self, agent: AgentId, command: &CommandLine) -> bool {
        match self.moved.get(&agent) {
            // With so many it is not known of one that is not among them.
            None => self.moved.len() < MAX_SHELLS,
            Some(by) => *by == Some(command.key()),
        }
    }

    /// It is not known any more where the shell of this agent is.
    pub fn lose(&mut self, agent: AgentId) {
        self.moved.insert(agent, None);
    }

    /// The process is gone.
    pub fn forget(&mut self, agent: AgentId) {
        self.moved.remove(&agent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn started(command: &str) -> Activity {
        let input = json!({"command": command});
        Activity::ToolStarted { id: "t".into(), name: "Bash".into(), input, path: None, writes: false }
    }

    fn line(text: &str) -> CommandLine {
        CommandLine { text: text.into(), folder: Some(String::new()) }
    }

    #[test]
    fn a_command_line_is_what_a_tool_runs_and_nothing_else() {
        let of = |params: Value| CommandLine::of(&params, Some("web"));
        let plain = json!({"command": "make test", "description": "Runs the tests", "timeout": 9});
        assert_eq!(of(plain), Some(CommandLine { text: "make test".into(), folder: Some("web".into()) }));
        for more in [
            json!({"command": "make", "dangerouslyDisableSandbox": true}),
            json!({"command": "make", "run_in_background": true}),
            json!({"command": "make", "env": {"CC": "evil"}}),
            json!({"command": ["bash", "-lc", "make"]}),
            json!({"command": " "}),
            json!({"command": "x".repeat(MAX_COMMAND_CHARS + 1)}),
            json!({"cmd": "make"}),
            json!("make"),
        ] {
            assert_eq!(of(more.clone()), None, "{more}");
        }
        let elsewhere = of(json!({"command": "make", "cwd": "/etc"})).expect("a command");
        assert_eq!(elsewhere.folder, None, "where the call says itself is not followed");
        let here = of(json!({"command": "make", "cwd": "."})).expect("a command");
        assert_eq!(here.folder.as_deref(), Some("web"));
    }

    #[test]
    fn only_plain_words_leave_a_shell_where_it_is() {
        for stays in [
            "make test",
            "cargo test -p svc 2>&1 | tail -5",
            "git commit -m 'cd is no word here, but told as one is enough'; ls",
            "CC=gcc make -j4",
            "echo \"plain words\" > out.txt",
        ] {
            let says_cd = stays.contains("cd");
            assert_eq!(may_move(stays), says_cd, "{stays}");
        }
        for moves in [
            "cd sub",
            "make; cd ..",
            "(pushd x)",
            ". ./env",
            "source env",
            "eval ls",
            "c\"\"d /",
            "'c'd /",
            "c\\d /",
            "$X /",
            "`echo c`d /",
            "{cd,/}",
            "c? /",
            "~/x",
            "echo \"$(cd /)\"",
            "echo 'open",
            "X=1 cd /",
            "ls\ncd /",
            "!!",
            "command cd /",
        ] {
            assert!(may_move(moves), "{moves}");
        }
    }

    #[test]
    fn a_shell_that_may_have_moved_is_not_at_home() {
        let (agent, other) = (AgentId(1), AgentId(2));
        let mut shells = Shells::default();
        shells.heard(agent, &started("ls -l"));
        assert!(shells.is_at_home(agent, &line("make")));
        shells.heard(agent, &started("cd sub"));
        assert!(shells.is_at_home(agent, &line("cd sub")), "it has not run yet");
        assert!(!shells.is_at_home(agent, &line("make")), "now it may have");
        assert!(shells.is_at_home(other, &line("make")), "another's is its own");
        shells.heard(agent, &started("cd sub"));
        assert!(!shells.is_at_home(agent, &line("cd sub")), "the second one begins where the first led");
        shells.forget(agent);
        assert!(shells.is_at_home(agent, &line("make")), "a new process begins anew");
        let list = json!({"command": ["bash", "-lc", "ls"]});
        let odd = Activity::ToolStarted {
            id: "t".into(),
            name: "x".into(),
            input: list,
            path: None,
            writes: false,
        };
        shells.heard(agent, &odd);
        assert!(!shells.is_at_home(agent, &line("make")), "what is not understood may have moved it");
    }
}
