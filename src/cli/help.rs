//! `svc help` and `svc version`, from the table of commands.

use super::args::unknown_command;
use super::commands::{Command, GLOBAL_OPTIONS, Group, Opt, all, find};
use super::render::Style;
use super::session::{Out, Outcome, Session};
use serde_json::json;

/// This program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `svc help [COMMAND]`.
pub fn help(session: &Session) -> Outcome {
    match session.args.words.first() {
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
    if out.json {
        return out.document(&json!({"version": VERSION}));
    }
    out.line(&if out.quiet { VERSION.to_owned() } else { format!("svc {VERSION}") })
}

/// Prints the help of the whole command line.
pub fn overview(out: &Out) -> Outcome {
    if out.json {
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
        return out.document(&json!({"version": VERSION, "commands": commands}));
    }
    let width = all().map(|command| listed_name(command).len()).max().unwrap_or(0);
    let bold = |text: &str| out.paint(Style::Bold, text);
    let mut lines = vec![format!("svc {VERSION}: runs many AI coding agents on this machine")];
    lines.push("Usage: svc COMMAND [OPTIONS]; 'svc help COMMAND' tells more".into());
    for group in Group::ALL {
        lines.push(String::new());
        lines.push(bold(group.title()));
        lines.extend(all().filter(|command| command.group == group).map(|command| {
            let name = listed_name(command);
            format!("  {name:width$}  {}", command.summary)
        }));
    }
    let globals: Vec<String> = GLOBAL_OPTIONS.iter().map(option_name).collect();
    lines.push(String::new());
    lines.push(format!("{} {}", bold("Options"), globals.join("  ")));
    lines.push(format!("{} an agent's id, its name, or the beginning of one", bold("TARGET ")));
    lines.push(format!("{} 0 success, 1 the operation failed, 2 wrong usage", bold("Exit   ")));
    out.lines(&lines)
}

fn listed_name(command: &Command) -> String {
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

fn option_name(option: &Opt) -> String {
    let short = option.short.map(|letter| format!("-{letter}, ")).unwrap_or_default();
    let value = if option.value.is_empty() { String::new() } else { format!(" {}", option.value) };
    format!("{short}--{}{value}", option.long)
}
