//! What the pure parts promise.

use super::import::repository_name;
use super::index::{Focus, Folder, Folders, Index, MARKED, Stats, VERSION, Workspace, detect, summary};
use super::path::ProjectPath;
use super::worker_git::parse_status;
use super::worker_import::parse_progress;

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

/// Folders by path, with the marked files each holds; and the texts of manifests.
fn detected(folders: &[(&str, &[&str])], texts: &[(&str, &str)]) -> Vec<(String, String, &'static str)> {
    let mut all = Folders::new();
    for (path, names) in folders {
        let bit = |name: &&str| 1 << MARKED.iter().position(|marked| marked == name).unwrap();
        let marks = names.iter().map(bit).sum();
        all.insert(
            (*path).into(),
            Folder { files: u32::try_from(names.len()).unwrap(), marks, changed_ns: 1 },
        );
    }
    let mut read =
        |path: &str| texts.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
    detect(&all, &mut read).into_iter().map(|w| (w.path, w.name, w.kind)).collect()
}

fn row(path: &str, name: &str, kind: &'static str) -> (String, String, &'static str) {
    (path.into(), name.into(), kind)
}

const P: &[&str] = &["package.json"];

#[test]
fn spec_workspaces_of_npm_and_yarn_come_from_package_json() {
    let folders: &[(&str, &[&str])] =
        &[("", P), ("packages/a", P), ("packages/a/deep", P), ("packages/b", &[]), ("x", P)];
    let texts = [
        ("package.json", r#"{"workspaces": ["packages/*"]}"#),
        ("packages/a/package.json", r#"{"name":"@o/a"}"#),
    ];
    assert_eq!(detected(folders, &texts), [row("packages/a", "@o/a", "npm-workspaces")]);
    let folders: &[(&str, &[&str])] = &[("", &["package.json", "yarn.lock"]), ("a", P), ("b", P), ("c", P)];
    let texts = [("package.json", r#"{"workspaces": {"packages": ["./{a,b,c}/", "!c"]}}"#)];
    assert_eq!(
        detected(folders, &texts),
        [row("a", "a", "yarn-workspaces"), row("b", "b", "yarn-workspaces")]
    );
}

#[test]
fn spec_workspaces_of_pnpm_lerna_and_side_by_side() {
    let pnpm = "# all\npackages:\n  # ours\n  - 'apps/**'  # deep\n  - \"libs/*\"\n  - '!**/test/**'\ncatalog:\n  - no\n";
    let folders: &[(&str, &[&str])] =
        &[("", &["pnpm-workspace.yaml"]), ("apps/a/inner", P), ("apps/test/x", P), ("libs/c", P), ("no", P)];
    let wanted = [row("apps/a/inner", "inner", "pnpm-workspaces"), row("libs/c", "c", "pnpm-workspaces")];
    assert_eq!(detected(folders, &[("pnpm-workspace.yaml", pnpm)]), wanted);
    let flow = "packages: ['apps/**', \"libs/*\",\n  '!**/test/**']\n";
    assert_eq!(detected(folders, &[("pnpm-workspace.yaml", flow)]), wanted);

    let folders: &[(&str, &[&str])] = &[("", &["lerna.json"]), ("packages/a", P), ("other", P)];
    assert_eq!(detected(folders, &[("lerna.json", "{}")]), [row("packages/a", "a", "lerna-workspaces")]);

    let folders: &[(&str, &[&str])] = &[("", P), ("web", P), ("services/api", P), ("a/b/c", P)];
    let wanted = [row("services/api", "api", "multi-package"), row("web", "web", "multi-package")];
    assert_eq!(detected(folders, &[("package.json", "{}")]), wanted);
    assert!(detected(&[("", P), ("web", P)], &[]).is_empty(), "one is not several");
}

#[test]
fn decisions_13_workspaces_of_cargo_go_and_uv() {
    let folders: &[(&str, &[&str])] = &[
        ("", &["Cargo.toml", "go.work", "pyproject.toml"]),
        ("crates/a", &["Cargo.toml"]),
        ("crates/old", &["Cargo.toml"]),
        ("go/one", &["go.mod"]),
        ("go/two", &["go.mod"]),
        ("py/x", &["pyproject.toml"]),
    ];
    let cargo = "[package]\nname = \"root\"\n[workspace]\nmembers = [\n  \"crates/*\", # all\n]\nexclude = [\"crates/old\"]\n";
    let texts = [
        ("Cargo.toml", cargo),
        ("crates/a/Cargo.toml", "[package]\nname = \"alpha\"\n[dependencies]\nname = \"no\"\n"),
        ("go.work", "go 1.22\n\nuse ./go/one\nuse (\n\t./go/two // second\n)\n"),
        ("go/one/go.mod", "module example.test/one\n"),
        ("pyproject.toml", "[tool.uv.workspace]\nmembers = [\"py/*\"]\n"),
        ("py/x/pyproject.toml", "[project]\nname = 'ex'\n"),
    ];
    let wanted = [
        row("crates/a", "alpha", "cargo-workspaces"),
        row("go/one", "example.test/one", "go-workspaces"),
        row("go/two", "two", "go-workspaces"),
        row("py/x", "ex", "uv-workspaces"),
    ];
    assert_eq!(detected(folders, &texts), wanted);
}

#[test]
fn spec_the_summary_has_name_counts_workspaces_and_key_files_and_is_bounded() {
    let workspace = |n: usize| Workspace {
        path: format!("packages/{n}"),
        name: "evil\nname".repeat(50),
        kind: "npm-workspaces",
        files: 3,
        dirs: 1,
    };
    let index = Index {
        version: VERSION,
        project_name: "demo".into(),
        last_index_time: 1,
        duration_ms: 1,
        stats: Stats { total_files: 7, total_dirs: 2, tree_depth: 2 },
        workspaces: (0..1_000).map(workspace).collect(),
        key_files: vec!["README.md".into()],
        truncated: false,
    };
    let text = summary(&index, &Focus::default());
    let head = "Project demo: 7 files in 2 folders, 2 levels deep.\nWorkspaces (1000), the nearest to your \
                task first:\n";
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains("- packages/0 (evilname"), "{text}");
    assert!(text.contains("npm-workspaces): 3 files, 1 folders"), "{text}");
    assert!(text.contains("and 975 more") && text.ends_with("Key files: README.md\n"), "{text}");
    assert!(text.len() < 5_000);
}

#[test]
fn the_packages_that_matter_for_a_task_are_named_first() {
    let workspace = |(path, files): &(&str, u64)| Workspace {
        path: (*path).to_owned(),
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        kind: "npm-workspaces",
        files: *files,
        dirs: 1,
    };
    let paths = [("packages/alpha", 3), ("packages/billing", 5), ("packages/ui", 90), ("apps/web", 7)];
    let index = Index {
        version: VERSION,
        project_name: "demo".into(),
        last_index_time: 1,
        duration_ms: 1,
        stats: Stats::default(),
        workspaces: paths.iter().map(workspace).collect(),
        key_files: Vec::new(),
        truncated: false,
    };
    let order = |focus: &Focus| -> Vec<String> {
        let text = summary(&index, focus);
        let lines = text.lines().filter_map(|line| line.strip_prefix("- "));
        lines.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    let by_size = ["packages/ui", "apps/web", "packages/billing", "packages/alpha"];
    assert_eq!(order(&Focus::default()), by_size);
    let task = "Round the totals of invoices in billing to cents";
    let by_task = ["packages/billing", "packages/ui", "apps/web", "packages/alpha"];
    assert_eq!(order(&Focus { task, ..Focus::default() }), by_task);
    let scope = ["packages/alpha/src/**".to_owned()];
    let by_scope = ["packages/alpha", "packages/billing", "packages/ui", "apps/web"];
    assert_eq!(order(&Focus { task, scope: &scope, dir: "" }), by_scope);
    assert_eq!(order(&Focus { task, scope: &[], dir: "apps" })[..2], ["apps/web", "packages/billing"]);
}

#[test]
fn decisions_13_only_https_and_ssh_urls_are_imported() {
    for (url, name) in [
        ("https://git.example.test/team/repo.git", "repo"),
        ("https://git.example.test:8443/repo/", "repo"),
        ("ssh://git@git.example.test:2222/a/b.c", "b.c"),
        ("git@git.example.test:team/repo.git", "repo"),
    ] {
        assert_eq!(repository_name(url).as_deref(), Ok(name), "{url}");
    }
    for url in [
        "http://git.example.test/repo",
        "git://git.example.test/repo",
        "file:///srv/repo",
        "/srv/repo",
        "../repo",
        "ext::sh -c touch%20x",
        "ext::a@b:c",
        "--upload-pack=x",
        "-oProxyCommand=x@host:repo",
        "ssh://-oProxyCommand=x/repo",
        "ssh://git@-oProxyCommand=x/repo",
        "git@-host:repo",
        "ssh://user:password@host/repo",
        "https://token@git.example.test/repo",
        "https://user:password@git.example.test/repo",
        "https:///repo",
        "https://host",
        "https://host/",
        "https://host/..",
        "https://host/a b",
        "https://host/a\nb",
        "HTTPS://host/repo;x",
        "",
    ] {
        assert!(repository_name(url).is_err(), "{url:?}");
    }
    assert!(repository_name(&format!("https://host/{}", "a".repeat(2_000))).is_err());
}

#[test]
fn gits_progress_is_read() {
    assert_eq!(
        parse_progress("Receiving objects:  45% (9/20), 1.2 MiB"),
        Some(("Receiving objects".into(), 45))
    );
    let remote = "remote: Compressing objects: 100% (3/3), done.";
    assert_eq!(parse_progress(remote), Some(("Compressing objects".into(), 100)));
    for line in ["Cloning into 'x'...", "fatal: 50% of it", "a: 101%", "a: %"] {
        assert_eq!(parse_progress(line), None, "{line}");
    }
}
