//! `svc completions`: scripts for three shells, from the table of commands.

use super::commands::{Command, GLOBAL_OPTIONS, Opt, Words, all};
use super::session::{Failure, Outcome, Session};
use serde_json::json;
use std::fmt::Write as _;

/// `svc completions bash|zsh|fish`.
pub fn completions(session: &Session) -> Outcome {
    let shell = session.args.words[0].as_str();
    let script = match shell {
        "bash" => bash(),
        "zsh" => zsh(),
        "fish" => fish(),
        other => {
            return Err(Failure::usage(format!(
                "there are completions for bash, zsh and fish, not '{other}'"
            )));
        }
    };
    session.out.said(&json!({"shell": shell, "script": script}), script.trim_end())
}

fn names(command: &Command) -> impl Iterator<Item = &'static str> {
    [command.name, command.alias].into_iter().filter(|name| !name.is_empty())
}

fn shown(options: &'static [Opt]) -> impl Iterator<Item = &'static Opt> {
    options.iter().filter(|option| !option.help.is_empty())
}

/// All options of a command, as a shell word list.
fn option_words(command: &Command) -> String {
    let all = shown(command.options).chain(shown(GLOBAL_OPTIONS));
    all.map(|option| format!("--{}", option.long)).collect::<Vec<_>>().join(" ")
}

fn all_names() -> String {
    all().flat_map(names).collect::<Vec<_>>().join(" ")
}

/// Shell text that prints the names of the agents; silent where no daemon runs.
const AGENT_NAMES: &str = "svc agents --names 2>/dev/null";

fn word_list(words: Words) -> String {
    match words {
        Words::Free => String::new(),
        Words::Agents => format!("$({AGENT_NAMES})"),
        Words::Commands => all_names(),
        Words::OneOf(words) => words.join(" "),
    }
}

fn bash() -> String {
    let mut script = String::from(
        "_svc() {\n  local current=\"${COMP_WORDS[COMP_CWORD]}\" command=\"\" word\n  \
         for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    \
         case \"$word\" in -*) ;; *) command=\"$word\"; break ;; esac\n  done\n  \
         local options=\"\" words=\"\"\n  case \"$command\" in\n",
    );
    for command in all() {
        let pattern = names(command).collect::<Vec<_>>().join("|");
        let (options, words) = (option_words(command), word_list(command.complete));
        let _ = writeln!(script, "    {pattern}) options=\"{options}\"; words=\"{words}\" ;;");
    }
    let _ = writeln!(script, "    *) options=\"--help --version\"; words=\"{}\" ;;\n  esac", all_names());
    script.push_str(
        "  case \"$current\" in\n    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n    \
         *) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n  esac\n}\ncomplete -o default -F \
              _svc svc svc-cli\n",
    );
    script
}

/// A text inside single quotes of a shell.
fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''")
}

fn zsh() -> String {
    let mut script = String::from("#compdef svc svc-cli\n_svc() {\n  local -a commands\n  commands=(\n");
    for command in all() {
        for name in names(command) {
            let _ = writeln!(script, "    '{name}:{}'", quoted(command.summary));
        }
    }
    script.push_str(
        "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  \
         case \"${words[2]}\" in\n",
    );
    for command in all() {
        let pattern = names(command).collect::<Vec<_>>().join("|");
        let _ = writeln!(script, "    {pattern})\n      _arguments -s \\");
        for option in shown(command.options).chain(shown(GLOBAL_OPTIONS)) {
            let help = quoted(option.help).replace(['[', ']'], "").replace(':', "\\:");
            let value = match (option.value, option.choices) {
                ("", _) => String::new(),
                (value, []) => format!(":{value}:_files"),
                (value, choices) => format!(":{value}:({})", choices.join(" ")),
            };
            let _ = writeln!(script, "        '*--{}[{help}]{value}' \\", option.long);
        }
        let words = match command.complete {
            Words::Free => "'*: :_files'".to_owned(),
            words => format!("\"*: :({})\"", word_list(words)),
        };
        let _ = writeln!(script, "        {words} ;;");
    }
    // In a folder of fpath the file itself is the function; sourced, it has to be made known.
    script.push_str("  esac\n}\n");
    script
        .push_str("if [[ ${funcstack[1]} == _svc ]]; then _svc \"$@\"; else compdef _svc svc svc-cli; fi\n");
    script
}

fn fish() -> String {
    let mut script = String::from("complete -c svc -f\ncomplete -c svc-cli -w svc\n");
    for command in all() {
        for name in names(command) {
            let summary = quoted(command.summary);
            let _ = writeln!(script, "complete -c svc -n __fish_use_subcommand -a {name} -d '{summary}'");
        }
        let seen = format!("'__fish_seen_subcommand_from {}'", names(command).collect::<Vec<_>>().join(" "));
        for option in shown(command.options) {
            let short = option.short.map(|letter| format!(" -s {letter}")).unwrap_or_default();
            let value = match (option.value, option.choices) {
                ("", _) => String::new(),
                (_, []) => " -r".to_owned(),
                (_, choices) => format!(" -r -a '{}'", choices.join(" ")),
            };
            let (long, help) = (option.long, quoted(option.help));
            let _ = writeln!(script, "complete -c svc -n {seen} -l {long}{short}{value} -d '{help}'");
        }
        let words = match command.complete {
            Words::Free => continue,
            Words::Agents => format!("({AGENT_NAMES})"),
            words => word_list(words),
        };
        let _ = writeln!(script, "complete -c svc -n {seen} -a '{words}'");
    }
    for option in shown(GLOBAL_OPTIONS) {
        let value = if option.value.is_empty() { "" } else { " -r" };
        let _ = writeln!(script, "complete -c svc -l {}{value} -d '{}'", option.long, quoted(option.help));
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_option_of_the_table_is_in_every_shell() {
        for script in [bash(), zsh(), fish()] {
            for command in all() {
                assert!(script.contains(command.name), "{}", command.name);
                for option in shown(command.options) {
                    assert!(script.contains(option.long), "{} --{}", command.name, option.long);
                }
            }
            assert!(!script.contains("stderr-is-log"), "a hidden option is shown");
        }
    }
}
