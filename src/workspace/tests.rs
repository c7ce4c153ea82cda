//! What the pure parts promise.

use super::path::ProjectPath;
use super::worker_git::parse_status;

#[test]
fn spec_files_no_traversal_and_no_absolute_paths() {
    for (text, code) in [
        ("/etc/passwd", "absolute_path"),
        ("//etc", "absolute_path"),
        ("..", "path_traversal"),
        ("a/../../b", "path_traversal"),
        ("a/..", "path_traversal"),
        ("./../x", "path_traversal"),
        ("a\0b", "bad_path"),
    ] {
        let problem = ProjectPath::parse(text).unwrap_err();
        assert_eq!((problem.status, problem.code), (400, code), "{text:?}");
    }
    assert_eq!(ProjectPath::parse(&"x".repeat(256)).unwrap_err().code, "path_too_long");
    assert_eq!(ProjectPath::parse(&"x/".repeat(2_100)).unwrap_err().code, "path_too_long");
    assert_eq!(ProjectPath::parse("./a//b/./c/").unwrap().as_str(), "a/b/c");
    assert!(ProjectPath::parse("...").unwrap().check_writable().is_ok());
}

#[test]
fn the_daemons_state_is_not_read_and_git_is_not_written_whatever_the_case() {
    let path = |text: &str| ProjectPath::parse(text).unwrap();
    for secret in [".svc", ".svc/token", ".SVC/token", ".svc/credentials.key", "./.svc/./state/agents.json"] {
        assert_eq!(path(secret).check_readable().unwrap_err().code, "protected_path", "{secret}");
    }
    for open in [".svc/worktrees/a/src/main.rs", ".svc/codebase-index.json", ".svcx", "a/.svc", ".git/HEAD"] {
        assert!(path(open).check_readable().is_ok(), "{open}");
    }
    for kept in [".git/hooks/pre-commit", ".GIT/config", "sub/.git", ".svc/skills/x", "a/.Svc/b"] {
        assert_eq!(path(kept).check_writable().unwrap_err().code, "protected_path", "{kept}");
    }
    assert!(path(".gitignore").check_writable().is_ok());
    for name in ["a\\b", "a\nb", "\u{7f}"] {
        assert_eq!(path(name).check_writable().unwrap_err().code, "bad_name", "{name:?}");
    }
}

#[test]
fn git_status_is_read_with_spaces_renames_and_conflicts() {
    let text = "# branch.oid abc\0# branch.head main\0\
        1 .M N... 100644 100644 100644 1 2 src/a b.rs\0\
        2 R. N... 100644 100644 100644 1 2 R100 new name\0old name\0\
        u UU N... 1 2 3 4 5 6 7 both.rs\0\
        1 D. N... 1 2 3 4 5 gone\0? fresh file\0";
    let (branch, files) = parse_status(text);
    assert_eq!(branch.as_deref(), Some("main"));
    let told: Vec<_> =
        files.iter().map(|file| (file["path"].as_str().unwrap(), file["status"].as_str().unwrap())).collect();
    let wanted = [
        ("src/a b.rs", "modified"),
        ("new name", "renamed"),
        ("both.rs", "conflicted"),
        ("gone", "deleted"),
        ("fresh file", "untracked"),
    ];
    assert_eq!(told, wanted);
    assert_eq!(files[1]["from"], "old name");
}
