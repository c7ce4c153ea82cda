//! What no rule can allow: a person looks at it each time.
//!
//! Asked when a rule is made, so that nobody relies on one that does nothing, and again when one is used.
//! What cannot be told counts as forbidden.

use super::action::{Action, Danger};
use super::command_line::has_open_words;
use super::rule::Deed;
use serde_json::Value;

/// One thing that no rule can allow.
pub struct Forbidden {
    /// Its word on the wire.
    pub word: &'static str,
    /// Why, for people; it follows "no rule can allow this: ".
    pub reason: &'static str,
    holds: fn(&Seen) -> bool,
}

/// What is known of a deed.
struct Seen<'a> {
    /// What it says that could name files or commands.
    texts: Vec<&'a str>,
    /// Whether that is everything a person was shown, and everything there is.
    whole: bool,
    danger: Option<Danger>,
    /// The command line, of a deed that is one.
    command: Option<&'a str>,
    /// The file, of a deed that is writing one.
    file: Option<&'a str>,
}

/// The floor: everything that no rule can allow.
pub const FLOOR: &[Forbidden] = &[
    Forbidden {
        word: "unseen",
        reason: "not all of it can be shown to you: parameters are cut, or left out by their names",
        holds: |seen| !seen.whole,
    },
    Forbidden {
        word: "open",
        reason: "its words leave open what runs: the shell puts them together (variables, substitutions, patterns)",
        holds: |seen| seen.command.is_some_and(has_open_words),
    },
    Forbidden {
        word: "destroys",
        reason: "it cannot be taken back: its server calls it destructive, or its name does",
        holds: |seen| seen.danger == Some(Danger::Destroys),
    },
    Forbidden { word: "pays", reason: "it moves money", holds: |seen| seen.danger == Some(Danger::Pays) },
    Forbidden {
        word: "outside",
        reason: "it reaches out of the project",
        holds: |seen| {
            seen.file.is_some_and(|file| {
                file.starts_with(['/', '~', '\\']) || parts(file).any(|part| part == "..")
            })
        },
    },
    Forbidden {
        word: "daemon",
        reason: "it is about svc itself: its state, its settings, its command",
        holds: |seen| words(seen).any(|word| is_of_svc(&word)),
    },
    Forbidden {
        word: "secrets",
        reason: "it names what may hold credentials",
        holds: |seen| words(seen).any(|word| is_secret(&word)),
    },
    Forbidden {
        word: "programs",
        reason: "it names what tells agent programs and your shell what they may do and run",
        holds: |seen| words(seen).any(|word| PROGRAMS.contains(&word.as_str())),
    },
    Forbidden {
        word: "repository",
        reason: "it may merge, discard or publish work: of git, rules allow looking, adding and committing only",
        holds: |seen| {
            words(seen).any(|word| word == ".git" || word == ".gitmodules")
                || seen.command.is_some_and(is_more_than_plain_git)
        },
    },
    Forbidden {
        word: "removes",
        reason: "it may remove files or overwrite a disk",
        holds: |seen| seen.command.is_some_and(|text| parts(text).any(|word| REMOVING.contains(&word))),
    },
    Forbidden {
        word: "rights",
        reason: "it asks for the rights of another user, or for another room",
        holds: |seen| seen.command.is_some_and(|text| parts(text).any(|word| RAISING.contains(&word))),
    },
];

/// Folders and files of programs that read them as orders.
const PROGRAMS: [&str; 27] = [
    ".claude",
    ".claude.json",
    ".mcp.json",
    ".codex",
    ".gemini",
    ".qwen",
    ".opencode",
    "opencode.json",
    ".cline",
    ".cursor",
    ".copilot",
    ".aider.conf.yml",
    ".agents",
    ".vscode",
    ".idea",
    ".husky",
    ".envrc",
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".gitconfig",
    ".config",
    ".github",
    ".gitlab-ci.yml",
    ".circleci",
];
const REMOVING: [&str; 12] = [
    "rm", "rmdir", "unlink", "shred", "dd", "mkfs", "truncate", "wipefs", "fdisk", "parted", "-delete",
    "--delete",
];
const RAISING: [&str; 12] = [
    "sudo", "doas", "su", "pkexec", "runuser", "chroot", "nsenter", "unshare", "setpriv", "docker", "podman",
    "ssh",
];
/// What of git changes nothing that cannot be taken back.
const PLAIN_GIT: [&str; 11] =
    ["status", "diff", "log", "show", "add", "commit", "blame", "grep", "ls-files", "describe", "rev-parse"];
/// Programs that do what git does, or speak for the person to where it publishes.
const OTHER_GIT: [&str; 6] = ["gh", "glab", "hub", "jj", "svn", "hg"];

/// Arguments of tools that are run.
const RUNS: [&str; 10] = [
    "command",
    "cmd",
    "script",
    "code",
    "program",
    "executable",
    "argv",
    "args",
    "commands",
    "shell_command",
];

/// Why no rule can allow this deed; `None` where one can. `action` is what a person sees of it, where it is
/// asked for already.
pub fn forbids(deed: &Deed, action: Option<&Action>) -> Option<&'static Forbidden> {
    let mut seen = Seen { texts: Vec::new(), whole: true, danger: None, command: None, file: None };
    match deed {
        Deed::Write { file_path } => {
            seen.texts.push(file_path);
            seen.file = Some(file_path);
        }
        Deed::Command { command, folder, .. } => {
            seen.texts.extend([command.as_str(), folder.as_str()]);
            seen.command = Some(command);
        }
        Deed::Tool { tool, .. } => {
            seen.texts.push(tool);
            let Some(Action::ToolPermission { params, whole, .. }) = action else { return FLOOR.first() };
            texts_of(params, &mut seen.texts);
            let runs: Vec<&Value> =
                RUNS.iter().map(|name| &params[name]).filter(|run| !run.is_null()).collect();
            seen.command = runs.first().and_then(|run| run.as_str());
            // Words in a list, or in several places, are a command line that is not told as one.
            seen.whole = *whole && (runs.is_empty() || runs.len() == 1 && seen.command.is_some());
        }
        Deed::Call { tool, .. } => {
            seen.texts.push(tool);
            let Some(Action::IntegrationExec { params, whole, danger, .. }) = action else {
                return FLOOR.first();
            };
            (seen.whole, seen.danger) = (*whole, *danger);
            texts_of(params, &mut seen.texts);
        }
    }
    FLOOR.iter().find(|forbidden| (forbidden.holds)(&seen))
}

fn texts_of<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts_of(item, texts)),
        Value::Object(members) => members.values().for_each(|member| texts_of(member, texts)),
        _ => {}
    }
}

/// Everything in it that could be the name of a file or of a folder, or a word, in lower case.
fn words(seen: &Seen) -> impl Iterator<Item = String> {
    seen.texts.iter().flat_map(|text| parts(text)).map(str::to_lowercase)
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || "._-".contains(c))).filter(|part| !part.is_empty())
}

fn is_of_svc(word: &str) -> bool {
    matches!(word, "svc" | ".svc" | "svc-cli" | "svc-skills")
        || word.starts_with("svc_")
        || word.starts_with(".svc.")
}

fn is_secret(word: &str) -> bool {
    const NAMES: [&str; 22] = [
        ".env",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".pgpass",
        ".git-credentials",
        ".ssh",
        ".aws",
        ".gnupg",
        ".kube",
        ".docker",
        ".azure",
        ".password-store",
        "credentials",
        "credentials.json",
        "id_rsa",
        "id_dsa",
        "id_ecdsa",
        "id_ed25519",
        "authorized_keys",
        "secrets",
        "keychain",
    ];
    let ends = [".pem", ".key", ".p12", ".pfx", ".keystore", ".jks", ".kdbx"];
    NAMES.contains(&word) || word.starts_with(".env.") || ends.iter().any(|end| word.ends_with(end))
}

/// Whether a command line has git in it and is not one plain call of what only looks, adds or commits.
fn is_more_than_plain_git(text: &str) -> bool {
    let words: Vec<&str> = parts(text).collect();
    if words.iter().any(|word| OTHER_GIT.contains(word)) {
        return true;
    }
    if !words.iter().any(|word| *word == "git" || word.starts_with("git-")) {
        return false;
    }
    let is_one = !text.contains([';', '|', '&', '\n', '(', ')', '<', '>']);
    let plain = text.split_whitespace().collect::<Vec<_>>();
    let is_plain = matches!(plain.as_slice(), ["git", what, ..] if PLAIN_GIT.contains(what));
    !(is_one && is_plain) || words.iter().filter(|word| **word == "git").count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn command(text: &str) -> Option<&'static str> {
        let deed = Deed::Command { tool: "Bash".into(), command: text.into(), folder: String::new() };
        forbids(&deed, None).map(|forbidden| forbidden.word)
    }

    fn write(path: &str) -> Option<&'static str> {
        forbids(&Deed::Write { file_path: path.into() }, None).map(|forbidden| forbidden.word)
    }

    #[test]
    fn plain_commands_and_files_may_be_allowed() {
        for text in ["make test", "cargo test -p api", "npm run lint", "git status", "git commit -m 'Fix it'"]
        {
            assert_eq!(command(text), None, "{text}");
        }
        for path in ["src/main.rs", "docs/environment.md", "api/keys.rs", "svcs/a.txt"] {
            assert_eq!(write(path), None, "{path}");
        }
    }

    #[test]
    fn the_floor_holds_for_commands() {
        for (text, word) in [
            ("svc approve apr-1", "daemon"),
            ("/usr/local/bin/svc merge a", "daemon"),
            ("cat .svc/token", "daemon"),
            ("make && SVC stop", "daemon"),
            ("git merge main", "repository"),
            ("git -C x push", "repository"),
            ("git status; git push", "repository"),
            ("git status && git reset --hard", "repository"),
            ("git worktree remove x", "repository"),
            ("gh pr merge 7", "repository"),
            ("cp x .git/hooks/pre-commit", "repository"),
            ("rm -rf build", "removes"),
            ("find . -name x -delete", "removes"),
            ("sudo make install", "rights"),
            ("docker run -v /:/x y", "rights"),
            ("cat .env", "secrets"),
            ("cat deploy/server.pem", "secrets"),
            ("cat config/.env.local", "secrets"),
            ("tee .claude/settings.json", "programs"),
            ("make $TARGET", "open"),
            ("make `cat target`", "open"),
            ("r\"\"m -r x", "open"),
            ("ls *", "open"),
        ] {
            assert_eq!(command(text), Some(word), "{text}");
        }
    }

    #[test]
    fn the_floor_holds_for_files() {
        for (path, word) in [
            ("/etc/passwd", "outside"),
            ("../other/x", "outside"),
            ("a/../../x", "outside"),
            (".svc/config.json", "daemon"),
            (".SVC/config.json", "daemon"),
            ("web/.env", "secrets"),
            (".git/config", "repository"),
            ("sub/.git/hooks/post-merge", "repository"),
            (".mcp.json", "programs"),
            (".github/workflows/release.yml", "programs"),
            (".claude/settings.local.json", "programs"),
        ] {
            assert_eq!(write(path), Some(word), "{path}");
        }
    }

    #[test]
    fn what_a_person_has_not_seen_whole_is_below_the_floor() {
        let deed = |action: &Action| Deed::exactly(action).expect("one that rules know");
        let word = |action: &Action| forbids(&deed(action), Some(action)).map(|forbidden| forbidden.word);
        let call = |params| Action::integration_exec("hub", "create_issue", &params);
        assert_eq!(word(&call(json!({"title": "x"}))), None);
        assert_eq!(word(&call(json!({"title": "x".repeat(600)}))), Some("unseen"));
        assert_eq!(word(&call(json!({"title": "x", "token": "t"}))), Some("unseen"));
        assert_eq!(word(&call(json!({"path": ".svc/config.json"}))), Some("daemon"));
        let destroys = call(json!({})).with_danger(Some(Danger::Destroys));
        assert_eq!(word(&destroys), Some("destroys"));
        assert_eq!(word(&call(json!({})).with_danger(Some(Danger::Pays))), Some("pays"));
        assert_eq!(forbids(&deed(&destroys), None).map(|one| one.word), Some("unseen"), "unknown is no");
        let tool = |params| Action::tool_permission("Write", &params, "q");
        assert_eq!(word(&tool(json!({"file_path": "src/a.rs", "content": "x"}))), None);
        assert_eq!(word(&tool(json!({"file_path": "a/.env", "content": "x"}))), Some("secrets"));
        assert_eq!(word(&tool(json!({"command": "rm -r x"}))), Some("removes"));
        assert_eq!(word(&tool(json!({"script": "rm -r x"}))), Some("removes"));
        for several in [json!({"command": ["rm", "x"]}), json!({"program": "rm", "args": ["x"]})] {
            assert_eq!(word(&tool(several.clone())), Some("unseen"), "{several}");
        }
    }

    #[test]
    fn every_entry_of_the_floor_has_its_own_word_and_a_reason() {
        let words: std::collections::BTreeSet<_> = FLOOR.iter().map(|one| one.word).collect();
        assert_eq!(words.len(), FLOOR.len());
        assert!(FLOOR.iter().all(|one| one.reason.len() > 10 && !one.reason.ends_with('.')));
    }
}
