//! `svc help` and `svc version`, from the table of commands.

use super::args::unknown_command;
use super::commands::{Command, GLOBAL_OPTIONS, Group, Opt, all, find};
use super::examples;
use super::render::Style;
use super::session::{Out, Outcome, Session};
use serde_json::json;

/// What a newcomer needs, in the order of a first day.
const FIRST_DAY: [&str; 10] =
    ["demo", "start", "spawn", "agents", "top", "logs", "instruct", "approvals", "doctor", "stop"];
/// Columns of the short help, which fits the smallest usual terminal: 80 by 24.
const SHORT_COLUMNS: usize = 80;
/// Lines of the short help: the prompt takes one of the 24.
const SHORT_LINES: usize = 23;
/// What stands for the names that the short help has no room for.
const MORE: &str = ", ..";

/// This program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `svc help [COMMAND | --all]`.
pub fn help(session: &Session) -> Outcome {
    match session.args.words.first() {
        None if session.args.flag("all") => everything(&session.out),
        None => overview(&session.out),
        Some(word) => of(&session.out, find(word).ok_or_else(|| unknown_command(word))?),
    }
}

/// `svc version`, `svc --version`.
pub fn version(session: &Session) -> Outcome {
    print_version(&session.out)
}

/// Prints the version.
pub fn print_version(out: &Out) -> Outcome {
    out.told(&json!({"version": VERSION}), VERSION, &format!("svc {VERSION}"))
}

/// Prints the help of the whole command line, on one screen: what a first day needs with a line each, and
/// the names of the rest.
pub fn overview(out: &Out) -> Outcome {
    if out.json {
        return list(out);
    }
    let width = FIRST_DAY.iter().filter_map(|name| find(name)).map(|one| listed_name(one).len()).max();
    let width = width.unwrap_or(0);
    let mut lines = vec![format!("svc {VERSION}: runs many AI coding agents on this machine")];
    lines.push("Usage: svc COMMAND [OPTIONS]; 'svc help COMMAND' or 'svc help --all'".into());
    lines.push(out.paint(Style::Bold, "A first day"));
    for command in FIRST_DAY.iter().filter_map(|name| find(name)) {
        lines.push(format!("  {:width$}  {}", listed_name(command), command.summary));
    }
    lines.push(out.paint(Style::Bold, "And then"));
    let groups = Group::ALL.iter().map(|&group| {
        let names = all().filter(|command| command.group == group && !FIRST_DAY.contains(&command.name));
        name_lines(group.title(), names.map(|command| command.name), SHORT_COLUMNS - MORE.len())
    });
    let room = SHORT_LINES.saturating_sub(lines.len() + 1);
    lines.extend(fit(groups.collect(), room).into_iter().flatten());
    lines.push(footer_exit(out));
    out.lines(&lines)
}

/// `  Title     name, name, ..`, as many lines as it takes; none without names.
fn name_lines<'a>(title: &str, names: impl Iterator<Item = &'a str>, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for name in names {
        if line.is_empty() {
            line = format!("  {title:9} {name}");
        } else if line.len() + name.len() + 2 > columns {
            lines.push(format!("{line},"));
            line = format!("  {:9} {name}", "");
        } else {
            line.push_str(", ");
            line.push_str(name);
        }
    }
    lines.extend(Some(line).filter(|line| !line.is_empty()));
    lines
}

/// The groups in at most `room` lines, so that new commands never push the help off the screen: the longest
/// group gives way first, its last line ends with [`MORE`], and each keeps a line.
fn fit(mut groups: Vec<Vec<String>>, room: usize) -> Vec<Vec<String>> {
    while groups.iter().map(Vec::len).sum::<usize>() > room {
        let Some(longest) = groups.iter_mut().rev().max_by_key(|group| group.len()) else { break };
        if longest.len() < 2 {
            break;
        }
        longest.pop();
        if let Some(last) = longest.last_mut() {
            let kept = last.trim_end_matches(MORE).trim_end_matches(',').len();
            last.truncate(kept);
            last.push_str(MORE);
        }
    }
    groups
}

fn footer_exit(out: &Out) -> String {
    format!("{} 0 success, 1 the operation failed, 2 wrong usage", out.paint(Style::Bold, "Exit   "))
}

fn list(out: &Out) -> Outcome {
    let commands: Vec<_> = all()
        .map(|command| {
            json!({
                "name": command.name,
                "alias": command.alias,
                "usage": format!("svc {}", command.usage),
                "summary": command.summary,
            })
        })
        .collect();
    out.document(&json!({"version": VERSION, "commands": commands}))
}

/// Prints all commands by groups, one line each.
fn everything(out: &Out) -> Outcome {
    if out.json {
        return list(out);
    }
    let width = all().map(|command| listed_name(command).len()).max().unwrap_or(0);
    let bold = |text: &str| out.paint(Style::Bold, text);
    let mut lines = vec![format!("svc {VERSION}: runs many AI coding agents on this machine")];
    lines.push("Usage: svc COMMAND [OPTIONS]; 'svc help COMMAND' tells more".into());
    for group in Group::ALL {
        lines.push(String::new());
        lines.push(bold(group.title()));
        for command in all().filter(|command| command.group == group) {
            let mut name = listed_name(command);
            for part in broken(command.summary, SHORT_COLUMNS.saturating_sub(width + 4)) {
                lines.push(format!("  {name:width$}  {part}"));
                name.clear();
            }
        }
    }
    let globals: Vec<String> = GLOBAL_OPTIONS.iter().map(option_name).collect();
    lines.push(String::new());
    lines.push(format!("{} {}", bold("Options"), globals.join("  ")));
    lines.push(format!("{} an agent's id, its name, or the beginning of one", bold("TARGET ")));
    lines.push(footer_exit(out));
    out.lines(&lines)
}

/// A text in lines of at most so many columns, as far as its words allow.
pub(super) fn broken(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.len() + 1 + word.len() <= columns) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The command's name and alias.
pub(super) fn listed_name(command: &Command) -> String {
    if command.alias.is_empty() {
        command.name.to_owned()
    } else {
        format!("{}, {}", command.name, command.alias)
    }
}

/// Prints the help of one command.
pub fn of(out: &Out, command: &Command) -> Outcome {
    if out.json {
        let options: Vec<_> = command
            .options
            .iter()
            .filter(|option| !option.help.is_empty())
            .map(|option| json!({"name": format!("--{}", option.long), "value": option.value, "help": option.help}))
            .collect();
        return out.document(&json!({
            "name": command.name,
            "alias": command.alias,
            "usage": format!("svc {}", command.usage),
            "summary": command.summary,
            "options": options,
            "examples": examples::of(command.name),
        }));
    }
    let mut lines = vec![format!("svc {}: {}", command.name, command.summary)];
    lines.push(format!("Usage: svc {}", command.usage));
    if !command.alias.is_empty() {
        lines.push(format!("Alias: svc {}", command.alias));
    }
    if !command.details.is_empty() {
        lines.push(String::new());
        lines.push(command.details.to_owned());
    }
    lines.push(String::new());
    lines.push(out.paint(Style::Bold, "Examples"));
    lines.extend(examples::of(command.name).iter().map(|line| format!("  {line}")));
    for (title, options) in [("Options", command.options), ("Everywhere", GLOBAL_OPTIONS)] {
        let shown: Vec<&Opt> = options.iter().filter(|option| !option.help.is_empty()).collect();
        if shown.is_empty() {
            continue;
        }
        let width = shown.iter().map(|option| option_name(option).len()).max().unwrap_or(0);
        lines.push(String::new());
        lines.push(out.paint(Style::Bold, title));
        lines.extend(shown.iter().map(|option| format!("  {:width$}  {}", option_name(option), option.help)));
    }
    out.lines(&lines)
}

/// `-f, --follow` or `--tail N`.
pub(super) fn option_name(option: &Opt) -> String {
    let short = option.short.map(|letter| format!("-{letter}, ")).unwrap_or_default();
    let value = if option.value.is_empty() { String::new() } else { format!(" {}", option.value) };
    format!("{short}--{}{value}", option.long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_summaries_are_broken_between_words() {
        assert_eq!(broken("serve it to a client", 10), ["serve it", "to a", "client"]);
        assert_eq!(broken("short", 2), ["short"]);
    }

    #[test]
    fn groups_give_way_evenly_and_keep_a_line_each() {
        let names = ["integrations"; 40];
        let long = name_lines("Setup", names.into_iter(), SHORT_COLUMNS - MORE.len());
        let short = name_lines("Help", ["man", "help"].into_iter(), SHORT_COLUMNS - MORE.len());
        assert!(long.len() > 6, "{long:?}");
        let all = vec![short.clone(), long.clone(), long.clone()];
        assert_eq!(fit(all.clone(), 99), all);
        let fitted = fit(all.clone(), 5);
        assert_eq!(fitted.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 2]);
        assert_eq!(fitted[0], short);
        for group in &fitted[1..] {
            let last = group.last().unwrap();
            assert!(last.ends_with("integrations, .."), "{last}");
            assert!(group.iter().all(|line| line.len() <= SHORT_COLUMNS), "{group:?}");
        }
        assert_eq!(fit(all, 0).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
    }
}
