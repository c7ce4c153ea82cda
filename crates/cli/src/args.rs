//! The command line of one call, read by the table of commands.

use super::client::encode;
use super::commands::{Command, GLOBAL_OPTIONS, Opt, all, find};
use super::session::Failure;
use lexopt::Arg;
use serde_json::{Map, Value};
use std::ffi::OsString;
use svc_base::nearest::nearest;

/// What was given after the command's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args {
    /// Words that are no options, in order.
    pub words: Vec<String>,
    options: Vec<(&'static str, String)>,
}

impl Args {
    /// Whether an option was given.
    pub fn flag(&self, long: &str) -> bool {
        self.options.iter().any(|(name, _)| *name == long)
    }

    /// The value of an option; the last one wins.
    pub fn value(&self, long: &str) -> Option<&str> {
        self.options.iter().rev().find(|(name, _)| *name == long).map(|(_, value)| value.as_str())
    }

    /// All values of an option that may be repeated.
    pub fn values(&self, long: &str) -> Vec<&str> {
        self.options.iter().filter(|(name, _)| *name == long).map(|(_, value)| value.as_str()).collect()
    }

    /// Those of these options that were given, as members of a call's body: `--on-limit` is `onLimit` there.
    pub fn given(&self, longs: &[&str]) -> Map<String, Value> {
        let given = |long: &&str| Some((camel(long), Value::from(self.value(long)?)));
        longs.iter().filter_map(given).collect()
    }

    /// Those of these options that were given, as parameters of a call's address: `&role=api&limit=5`.
    pub fn query(&self, longs: &[&str]) -> String {
        longs.iter().filter_map(|long| Some(format!("&{long}={}", encode(self.value(long)?)))).collect()
    }

    /// The words from number `from` (counted from 0), joined by blanks.
    pub fn text_from(&self, from: usize) -> String {
        self.words.get(from..).unwrap_or_default().join(" ")
    }
}

fn camel(long: &str) -> String {
    let mut words = long.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

/// Reads a command line. The command is `None` when none is named, for example `svc --version`.
///
/// Errors: usage, with the nearest command or option where one is near.
pub fn parse(raw: Vec<OsString>) -> Result<(Option<&'static Command>, Args), Failure> {
    let mut parser = lexopt::Parser::from_args(raw);
    let mut command: Option<&'static Command> = None;
    let mut args = Args::default();
    let problem = |error: lexopt::Error| Failure::usage(format!("{error}; see 'svc help'"));
    while let Some(arg) = parser.next().map_err(problem)? {
        let option = match arg {
            Arg::Value(word) => {
                let word = utf8(word)?;
                match command {
                    None => command = Some(find(&word).ok_or_else(|| unknown_command(&word))?),
                    Some(_) => args.words.push(word),
                }
                continue;
            }
            Arg::Long(name) => {
                let known = options(command).find(|option| option.long == name);
                known.ok_or_else(|| unknown_option(command, &format!("--{name}")))?
            }
            Arg::Short(letter) => {
                let known = options(command).find(|option| option.short == Some(letter));
                known.ok_or_else(|| unknown_option(command, &format!("-{letter}")))?
            }
        };
        let value =
            if option.value.is_empty() { String::new() } else { utf8(parser.value().map_err(problem)?)? };
        args.options.push((option.long, value));
    }
    if let Some(command) = command {
        check(command, &args)?;
    }
    Ok((command, args))
}

fn options(command: Option<&'static Command>) -> impl Iterator<Item = &'static Opt> {
    GLOBAL_OPTIONS.iter().chain(command.map_or(&[][..], |command| command.options))
}

fn check(command: &Command, args: &Args) -> Result<(), Failure> {
    if args.flag("help") {
        return Ok(());
    }
    for option in command.options.iter().filter(|option| !option.choices.is_empty()) {
        let wrong = args.values(option.long).into_iter().find(|value| !option.choices.contains(value));
        if let Some(value) = wrong {
            let choices = option.choices.join(", ");
            return Err(Failure::usage(format!("--{} is one of {choices}, not '{value}'", option.long)));
        }
    }
    let (min, max) = command.words;
    let how = if args.words.len() < min {
        "takes more words"
    } else if args.words.len() > max {
        "takes fewer words"
    } else {
        return Ok(());
    };
    let (name, usage) = (command.name, command.usage);
    Err(Failure::usage(format!("'svc {name}' {how}: usage: svc {usage}; see 'svc help {name}'")))
}

fn utf8(word: OsString) -> Result<String, Failure> {
    word.into_string().map_err(|word| {
        Failure::usage(format!("'{}' is not UTF-8; name it in UTF-8", word.to_string_lossy()))
    })
}

/// The complaint about a command that does not exist.
pub fn unknown_command(word: &str) -> Failure {
    let names = all().flat_map(|command| [command.name, command.alias]);
    let hint = nearest(word, names).map(|name| format!("did you mean '{name}'? ")).unwrap_or_default();
    Failure::usage(format!("there is no command '{word}'; {hint}see 'svc help'"))
}

fn unknown_option(command: Option<&'static Command>, given: &str) -> Failure {
    let Some(command) = command else {
        return Failure::usage(format!("{given} is not an option of svc; a command's options come after it"));
    };
    let near = nearest(given.trim_start_matches('-'), options(Some(command)).map(|option| option.long));
    let hint = near.map(|name| format!("; did you mean --{name}?")).unwrap_or_default();
    let name = command.name;
    Failure::usage(format!(
        "{given} is not an option of 'svc {name}'{hint}; see 'svc help {name}', and put -- before text that \
             begins \
         with a dash"
    ))
}

/// Splits a command given as one text, as a shell would: blanks separate, quotes and backslashes protect.
/// Nothing is expanded.
///
/// Errors: an open quote.
pub fn split_command(text: &str) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Failure::usage("--command has a quote that is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[&str]) -> Result<(Option<&'static Command>, Args), Failure> {
        parse(line.iter().map(Into::into).collect())
    }

    fn complaint(line: &[&str]) -> String {
        match read(line) {
            Err(Failure::Say { code: 2, message }) => message,
            other => panic!("{line:?} gives {:?}", other.map(|(_, args)| args)),
        }
    }

    #[test]
    fn global_options_stand_anywhere_and_repeated_ones_add_up() {
        let line =
            ["--json", "spawn", "backend", "--scope", "a/**", "do", "it", "--scope=b", "-q", "--", "-x"];
        let (command, args) = read(&line).unwrap();
        assert_eq!(command.unwrap().name, "spawn");
        assert_eq!(args.words, ["backend", "do", "it", "-x"]);
        assert_eq!(args.text_from(1), "do it -x");
        assert_eq!(args.values("scope"), ["a/**", "b"]);
        assert!(args.flag("json") && args.flag("quiet") && !args.flag("wait"));
    }

    #[test]
    fn options_that_were_given_go_into_a_call() {
        let (_, args) = read(&["spawn", "x", "--on-limit", "wait", "--name", "a&b"]).unwrap();
        let body = serde_json::json!({"name": "a&b", "onLimit": "wait"});
        assert_eq!(Value::Object(args.given(&["name", "on-limit", "model"])), body);
        assert_eq!(args.query(&["model", "name"]), "&name=a%26b");
        assert_eq!(args.query(&["model"]), "");
    }

    #[test]
    fn wrong_usage_names_the_rule_and_the_way_out() {
        assert!(complaint(&["spwan"]).contains("did you mean 'spawn'?"));
        assert!(complaint(&["xyzzy"]).starts_with("there is no command 'xyzzy'; see"));
        assert!(complaint(&["spawn", "x", "--modle", "y"]).contains("did you mean --model?"));
        assert!(complaint(&["spawn", "x", "--model"]).contains("--model"));
        assert!(complaint(&["spawn", "x", "--effort", "huge"]).contains("low, medium, high, max"));
        assert!(complaint(&["logs"]).contains("usage: svc logs"));
        assert!(complaint(&["status", "now"]).contains("fewer"));
        assert!(complaint(&["--port", "1"]).contains("come after it"));
    }

    #[test]
    fn commands_are_split_as_a_shell_does() {
        let split = |text| split_command(text).unwrap();
        assert_eq!(split("qwen  --acp"), ["qwen", "--acp"]);
        assert_eq!(split(r#"a 'b c' "d \" e" f\ g '' "#), ["a", "b c", "d \" e", "f g", ""]);
        assert!(split_command("a 'b").is_err());
    }
}
