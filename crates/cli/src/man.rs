//! `svc man`: manual pages in roff, from the table of commands.

use super::args::unknown_command;
use super::commands::{Command, GLOBAL_OPTIONS, Group, Opt, Words, all, find, value};
use super::examples;
use super::help::{VERSION, listed_name, option_name};
use super::session::{Failure, Outcome, Session};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The command of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "man",
    alias: "",
    group: Group::Help,
    summary: "print a manual page",
    usage: "man [COMMAND | --into DIR]",
    words: (0, 1),
    complete: Words::Commands,
    options: &[value("into", "DIR", "write svc.1 and a page for each command into this folder")],
    details: "Read it with: svc man spawn | man -l -",
    run: man,
}];

/// `svc man [COMMAND | --into DIR]`.
pub fn man(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    if let Some(dir) = args.value("into") {
        if !args.words.is_empty() {
            return Err(Failure::usage("give a COMMAND or --into, not both; see 'svc help man'"));
        }
        let names = write_all(&session.surroundings.folder.join(dir))?;
        let words = format!("{} pages in {dir}", names.len());
        return out.told(&json!({"pages": names}), "", &words);
    }
    let page = match args.words.first() {
        None => overview(),
        Some(word) => page(find(word).ok_or_else(|| unknown_command(word))?),
    };
    out.said(&json!({"page": page}), page.trim_end())
}

fn write_all(dir: &Path) -> Result<Vec<String>, Failure> {
    let fail = |path: &Path, error: &std::io::Error| {
        Failure::failed(format!("{} cannot be written: {error}; choose another folder", path.display()))
    };
    fs::create_dir_all(dir).map_err(|error| fail(dir, &error))?;
    let mut pages = vec![("svc.1".to_owned(), overview())];
    pages.extend(all().map(|command| (format!("svc-{}.1", command.name), page(command))));
    for (name, text) in &pages {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| fail(&path, &error))?;
    }
    Ok(pages.into_iter().map(|(name, _)| name).collect())
}

/// Text that roff prints as it stands: no escapes, no requests at the beginning of a line.
fn plain(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        if line.starts_with('.') { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn heading(name: &str) -> String {
    format!(".TH {} 1 \"\" \"svc {}\" \"User Commands\"\n", plain(&name.to_uppercase()), plain(VERSION))
}

fn entry(text: &mut String, tag: &str, words: &str) {
    let _ = write!(text, ".TP\n.B {}\n{}\n", plain(tag), plain(words));
}

fn option_entries(text: &mut String, options: &[Opt]) {
    for option in options.iter().filter(|option| !option.help.is_empty()) {
        entry(text, &option_name(option), option.help);
    }
}

/// `svc(1)`.
fn overview() -> String {
    let mut text = heading("svc");
    text.push_str(".SH NAME\nsvc \\- run many AI coding agents on this machine\n");
    text.push_str(".SH SYNOPSIS\n.B svc\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n");
    text.push_str(&plain(
        "A local daemon spawns, tracks, rotates and stops coding agents of a project; these commands talk to \
         it. Start it in the project's folder with 'svc start --background'. Each command has a page of its \
         own, svc-COMMAND(1).",
    ));
    text.push('\n');
    for group in Group::ALL {
        let _ = writeln!(text, ".SH {}", plain(&group.title().to_uppercase()));
        for command in all().filter(|command| command.group == group) {
            entry(&mut text, &listed_name(command), command.summary);
        }
    }
    text.push_str(".SH OPTIONS\n");
    option_entries(&mut text, GLOBAL_OPTIONS);
    text.push_str(".SH EXIT STATUS\n");
    entry(&mut text, "0", "Success.");
    entry(&mut text, "1", "The operation failed; standard error says why and what to do.");
    entry(&mut text, "2", "The command line is wrong.");
    text.push_str(".SH ENVIRONMENT\n");
    entry(
        &mut text,
        "SVC_DAEMON_URL",
        "The daemon, where no project is found. The daemon sets it for its agents.",
    );
    entry(
        &mut text,
        "SVC_OPERATOR_TOKEN",
        "Proves a person in place of .svc/token, where the daemon was started with the same.",
    );
    entry(&mut text, "NO_COLOR", "No colours, if it is set and not empty.");
    entry(&mut text, "COLUMNS", "The width of tables, instead of the terminal's.");
    text.push_str(".SH FILES\n");
    entry(&mut text, ".svc/", "The state of a project, for its owner alone: configuration, records, logs.");
    entry(&mut text, ".svc/daemon.log", "What the daemon says when it runs in the background.");
    entry(
        &mut text,
        ".svc/token",
        "Proves a person to the daemon of this project. Each start makes another; svc shows it by itself.",
    );
    entry(&mut text, ".svc/daemon.port", "Where the daemon listens, while it runs.");
    text
}

/// `svc-COMMAND(1)`.
fn page(command: &Command) -> String {
    let name = command.name;
    let mut text = heading(&format!("svc-{name}"));
    let _ = writeln!(text, ".SH NAME\n{} \\- {}", plain(&format!("svc-{name}")), plain(command.summary));
    let _ = writeln!(text, ".SH SYNOPSIS\n.B svc {}", plain(command.usage));
    if !command.alias.is_empty() {
        let _ = writeln!(text, ".br\n.B svc {}", plain(command.alias));
    }
    text.push_str(".SH DESCRIPTION\n");
    let summary = command.summary;
    let mut letters = summary.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let _ = writeln!(text, "{}.", plain(&format!("{first}{}", letters.as_str())));
    if !command.details.is_empty() {
        // The details may hold examples, whose lines must stay.
        let _ = writeln!(text, ".PP\n.nf\n{}\n.fi", plain(command.details));
    }
    if command.options.iter().any(|option| !option.help.is_empty()) {
        text.push_str(".SH OPTIONS\n");
        option_entries(&mut text, command.options);
    }
    let examples = examples::of(name).join("\n");
    let _ = writeln!(text, ".SH EXAMPLES\n.nf\n{}\n.fi", plain(&examples));
    text.push_str(".SH OPTIONS OF EVERY COMMAND\n");
    option_entries(&mut text, GLOBAL_OPTIONS);
    text.push_str(".SH SEE ALSO\n.BR svc (1)\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_taken_for_a_request_or_an_escape() {
        assert_eq!(plain(".svc/x\na\\b 'c' -d"), "\\&.svc/x\na\\eb \\(aqc\\(aq \\-d");
    }

    #[test]
    fn every_command_and_option_has_its_page() {
        let overview = overview();
        for command in all() {
            assert!(overview.contains(&plain(&listed_name(command))), "{}", command.name);
            let page = page(command);
            for option in command.options {
                let long = plain(&format!("--{}", option.long));
                assert_eq!(page.contains(&long), !option.help.is_empty(), "{} {long}", command.name);
            }
            assert!(page.lines().all(|line| !line.starts_with('\'')), "{page}");
        }
    }
}
