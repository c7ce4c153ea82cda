//! `docs/tutorials/` are true: each command in them is run, in order, in a fresh project, and prints what is
//! shown there.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::document::{Piece, Stage, compared, pieces};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// All of them, by file, with the test that plays them.
const TUTORIALS: [&str; 10] = [
    "first-team",
    "review-and-undo",
    "adopt",
    "editor-and-tools",
    "ci",
    "night",
    "phone",
    "small-board",
    "upgrade-and-backup",
    "when-something-is-wrong",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tutorials")
}

fn tutorial(name: &str) -> Vec<Piece> {
    assert!(TUTORIALS.contains(&name));
    pieces(&std::fs::read_to_string(folder().join(name).with_extension("md")).unwrap())
}

/// Plays a tutorial; at least so many of its commands are run.
fn plays(stage: &Stage, name: &str, at_least: usize) {
    // The project is there, and who reads it goes there first.
    let tried = stage.play(&tutorial(name), |line| !line.starts_with("cd "));
    assert!(tried >= at_least, "only {tried} commands of {name} were tried");
}

/// The repository of a small shop.
fn shop() -> Stage {
    let stage = Stage::new("shop");
    stage.home().write(".gitconfig", "[user]\nname = You\nemail = you@example.org\n");
    stage.project().write("README.md", "# Shop\n");
    stage.project().write("src/index.html", "<h1>Shop</h1>\n");
    stage.project().write("Makefile", "test:\n\tgrep -q h1 src/index.html\n");
    let (is_good, told) =
        stage.run("git init --quiet -b main && git add . && git commit --quiet -m 'A shop'");
    assert!(is_good, "{told}");
    stage
}

#[test]
fn the_index_names_every_tutorial_and_every_one_is_played() {
    let index = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> =
        files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.retain(|name| name != "README");
    names.sort();
    let mut played = TUTORIALS.map(ToOwned::to_owned);
    played.sort();
    assert_eq!(names, played);
    for name in names {
        assert!(index.contains(&format!("({name}.md)")), "README.md does not name {name}.md");
    }
}

/// The shop of a person whose agents are rehearsals where nothing else is said.
fn rehearsed() -> Stage {
    let stage = shop();
    stage.home().write(".config/svc/config.json", r#"{"defaultProvider": "script"}"#);
    stage
}

/// What a rehearsal plays that names no model.
fn rehearses(stage: &Stage, steps: &Value) {
    stage.project().write(".svc/rehearsals/default.json", &json!({ "steps": steps }).to_string());
}

/// The shop of a person with the real Claude Code, at a scripted model; `None` where that is absent.
fn with_claude() -> Option<(Stage, Aimock)> {
    if !Cli::Claude.is_here() {
        return None;
    }
    let mut stage = shop();
    let aimock = Aimock::start(stage.project().path());
    for (name, value) in Home::new(&aimock.url).variables(Cli::Claude, &aimock.url) {
        // The home is the person's, who has set up nothing.
        if name != "HOME" {
            stage.set(name, &value);
        }
    }
    Some((stage, aimock))
}

#[test]
fn first_team() {
    let Some((stage, _aimock)) = with_claude() else { return };
    plays(&stage, "first-team", 17);
}

#[test]
fn adopt() {
    let Some((stage, _aimock)) = with_claude() else { return };
    plays(&stage, "adopt", 9);
}

/// What the agent of the tutorial does, by commands alone: a page first, a password when it comes again.
const LOGIN: &str = r#"if [ -e src/login.html ]; then
    sed -i 's/^<.form>/  <input name="password" type="password">\n<\/form>/' src/login.html
else
    printf '<form action="/login">\n  <input name="user">\n</form>\n' > src/login.html
    printf '<a href="login.html">Log in</a>\n' >> src/index.html
fi
"#;

#[test]
fn review_and_undo() {
    let stage = rehearsed();
    stage.project().write(".svc/rehearsals/login.sh", LOGIN);
    rehearses(
        &stage,
        &json!([{"run": {"command": "sh .svc/rehearsals/login.sh"}}, {"answer": "The page is there."}]),
    );
    plays(&stage, "review-and-undo", 18);
}

#[test]
fn editor_and_tools() {
    let stage = rehearsed();
    let order = r#"svc integrations exec shop order '{"article": "tea"}'"#;
    rehearses(
        &stage,
        &json!([
            {"run": {"command": order}},
            {"ask": "I wait for a person."},
            {"run": {"command": format!("{order} --approval \"$(svc approvals --all -q)\"")}},
            {"answer": "The tea is ordered."},
        ]),
    );
    plays(&stage, "editor-and-tools", 11);
}

#[test]
fn ci() {
    plays(&rehearsed(), "ci", 5);
}

#[test]
fn night() {
    plays(&rehearsed(), "night", 23);
}

#[test]
fn phone() {
    let stage = rehearsed();
    stage.project().write("bot-token.txt", "12345:scripted-bot-token\n");
    plays(&stage, "phone", 10);
}

#[test]
fn small_board() {
    plays(&rehearsed(), "small-board", 17);
}

#[test]
fn upgrade_and_backup() {
    plays(&rehearsed(), "upgrade-and-backup", 17);
}

#[test]
fn when_something_is_wrong() {
    plays(&rehearsed(), "when-something-is-wrong", 17);
}

#[test]
fn a_document_is_files_commands_and_what_they_print() {
    let text = "Make `a/b.json`:\n\n```json\n{}\n```\n\n```sh\nsvc a \\\n  b\n# no\nsvc c   # why\n```\n\n```text\nx\n```\n\
                \n```text\nnobody's\n```\n";
    let run = |line, command: &str, prints: Option<&str>| Piece::Run {
        line,
        command: command.to_owned(),
        prints: prints.map(|line| vec![line.to_owned()]),
    };
    assert_eq!(
        pieces(text),
        [
            Piece::Write { path: "a/b.json".into(), text: "{}\n".into() },
            run(8, "svc a   b", None),
            run(11, "svc c   # why", Some("x")),
        ]
    );
}

#[test]
fn what_is_shown_is_held_against_what_was_seen() {
    let lines = |text: &str| -> Vec<String> { text.lines().map(ToOwned::to_owned).collect() };
    let seen =
        lines("NAME   ID        TOKENS\na-1    dddbee45    4.7k\nb-1    0a0b0c0d   12.3k\n\ndone after 12s");
    let fits = |wanted: &str| compared(&lines(wanted), &seen).is_ok();
    assert!(fits("NAME ID TOKENS\na-2 1f2e3d4c 3k\nb-1 1234567 5.0k\ndone after 1m"));
    assert!(fits("NAME ID TOKENS\n…\ndone after 0s") && fits("NAME…\n…") && fits("…\nb-1 1234567 1k\n…"));
    assert!(!fits("NAME ID TOKENS\na-2 1f2e3d4c 3k"), "more was seen");
    assert!(!fits("…\ndone after all") && !fits("…\nc-1 1234567 1k\n…") && !fits("NAME ID COST…\n…"));
    assert!(fits("…\nb-1 … 1k\n…\ndone … after 0s") && fits("NAME … TOKENS\n…"), "words, or none");
    assert!(!fits("NAME … COST\n…") && !fits("ID … TOKENS\n…") && !fits("…\ndone after … after 0s"));
    assert!(!fits("…\nb-1 1234567 1k\na-1 1234567 1k\n…"), "in another order");
    let ids = compared(&lines("…\nb-1 1234567 1k\n…"), &seen).unwrap();
    assert_eq!(ids, [("1234567".to_owned(), "0a0b0c0d".to_owned())]);
}
