//! Agents in git worktrees of their own: what they changed (`svc diff`) and how it comes into the project
//! (`svc merge`). Real daemon, real children, real git.

use crate::support::daemon::{Daemon, next_message};
use crate::support::folder::Folder;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

/// Git as a person in this folder, whatever this machine's own settings are.
fn try_git(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=Person", "-c", "user.email=person@example.com"]).args(args);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    command.current_dir(folder).output().expect("git is needed on PATH")
}

fn git(folder: &Path, args: &[&str]) -> String {
    let output = try_git(folder, args);
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// A repository with one commit, a daemon in it, and scenarios to play.
struct Project {
    daemon: Daemon,
    folder: Arc<Folder>,
}

impl Project {
    fn new(scenarios: &[(&str, Value)]) -> Self {
        let folder = Arc::new(Folder::new("isolation"));
        folder.write("src/a.txt", "one\ntwo\nthree\n");
        folder.write("src/b.txt", "b\n");
        folder.write("notes.md", "notes\n");
        git(folder.path(), &["init", "--quiet", "-b", "main"]);
        git(folder.path(), &["add", "-A"]);
        git(folder.path(), &["commit", "--quiet", "-m", "First"]);
        // The journalist's documents are not what these tests look at.
        folder.write(".git/info/exclude", "SVC_*\n");
        for (name, steps) in scenarios {
            folder.write(&format!(".svc/rehearsals/{name}.json"), &json!({"steps": steps}).to_string());
        }
        let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        Self { daemon, folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Plays a scenario in a worktree of its own, to its end; the record.
    fn play(&self, scenario: &str) -> Value {
        let record = self.begin(scenario);
        self.daemon.wait_state(record["id"].as_str().unwrap(), &["completed"])
    }

    fn begin(&self, scenario: &str) -> Value {
        self.daemon.post(
            "/api/agents",
            &json!({
                "role": "dev", "name": scenario, "provider": "script", "model": scenario, "prompt": "p",
                "isolation": "worktree",
            }),
        )
    }

    fn merge(&self, agent: &str, body: &Value) -> (u16, Value) {
        self.daemon.send("POST", &format!("/api/agents/{agent}/merge"), body)
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap_or_default()
    }

    /// What a person sees of a folder's state: commits and `git status`.
    fn state(&self) -> (String, String) {
        (git(self.path(), &["rev-parse", "HEAD"]), git(self.path(), &["status", "--porcelain"]))
    }

    /// Runs `svc` in the project as a person.
    fn svc(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(args).current_dir(self.path());
        let output = command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

fn write(path: &str, text: &str) -> Value {
    json!({"write": {"path": path, "text": text}})
}

fn run(command: &str) -> Value {
    json!({"run": {"command": command, "timeoutMs": 20_000}})
}

/// Changes a line, adds a file, removes one, and commits nothing.
fn leaves_work() -> Value {
    json!([write("src/a.txt", "one\n2\nthree\n"), write("src/new.txt", "new\n"), run("rm src/b.txt"),
           {"answer": "done"}])
}

/// Commits one change and leaves another.
fn commits_and_leaves() -> Value {
    json!([
        write("src/a.txt", "ONE\ntwo\nthree\n"),
        run("git -c user.name=Dev -c user.email=dev@example.com commit -qam 'Shout'"),
        write("src/c.txt", "c\n"),
        {"answer": "done"},
    ])
}

#[test]
fn issue_4_8_a_diff_shows_committed_uncommitted_and_new_files_against_the_base() {
    let project = Project::new(&[("mixed", commits_and_leaves())]);
    let agent = project.play("mixed");
    // The project goes on meanwhile; that is not the agent's doing.
    project.folder.write("notes.md", "more notes\n");
    git(project.path(), &["commit", "--quiet", "-am", "Notes"]);
    let diff = project.daemon.get("/api/agents/mixed/diff");
    let files: Vec<_> = diff["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["path"].as_str().unwrap(), f["status"].as_str().unwrap(), f["added"].as_u64().unwrap()))
        .collect();
    assert_eq!(files, [("src/a.txt", "modified", 1), ("src/c.txt", "added", 1)], "{diff}");
    assert_eq!((&diff["commits"], &diff["uncommitted"]), (&json!(1), &json!(true)));
    assert_eq!((&diff["added"], &diff["removed"]), (&json!(2), &json!(1)));
    let base = git(project.path(), &["rev-parse", "HEAD~1"]);
    assert_eq!(diff["base"], json!(base), "where its branch began");
    let patch = diff["diff"].as_str().unwrap();
    assert!(patch.contains("-one\n+ONE\n") && patch.contains("+++ b/src/c.txt\n"), "{patch}");
    assert!(!patch.contains("notes"), "{patch}");
    let tree = project.path().join(agent["worktree"].as_str().unwrap());
    assert_eq!(git(&tree, &["status", "--porcelain"]), "?? src/c.txt", "looking changes nothing");

    let one = project.daemon.get("/api/agents/mixed/diff?path=src/c.txt");
    assert_eq!(one["files"].as_array().unwrap().len(), 1, "{one}");
    let (status, body) = project.daemon.send("GET", "/api/agents/mixed/diff?path=../x", &Value::Null);
    assert_eq!((status, &body["code"]), (400, &json!("validation_failed")));

    let (code, out, err) = project.svc(&["diff", "mixed", "--stat"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("mixed: 2 files, +2 -1 on svc/dev-"), "{err}");
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            vec!["CHANGE", "+", "-", "FILE"],
            vec!["modified", "1", "1", "src/a.txt"],
            vec!["added", "1", "0", "src/c.txt"],
        ]
    );
    let (_, out, _) = project.svc(&["diff", "mixed"]);
    assert!(out.starts_with("diff --git a/src/a.txt b/src/a.txt\n"), "{out}");
    let (_, out, _) = project.svc(&["diff", "mixed", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), diff);
    let (_, out, _) = project.svc(&["diff", "mixed", "--quiet"]);
    assert_eq!(out, "src/a.txt\nsrc/c.txt\n");
}

#[test]
fn an_agent_in_the_shared_folder_shows_its_folder_and_what_it_wrote() {
    let project = Project::new(&[("writes", json!([write("src/mine.txt", "x\n"), {"answer": "done"}]))]);
    let body =
        json!({"role": "dev", "name": "shared", "provider": "script", "model": "writes", "prompt": "p"});
    let id = project.daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    project.daemon.wait_state(&id, &["completed"]);
    project.folder.write("src/b.txt", "by a person\n");
    let own = project.daemon.get("/api/agents/shared/diff");
    assert_eq!((&own["source"], own["files"].as_array().unwrap().len()), (&json!("snapshots"), 1), "{own}");
    assert_eq!(own["files"][0]["path"], "src/mine.txt");
    let diff = project.daemon.get("/api/agents/shared/diff?whole=true");
    let written: Vec<_> = diff["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["path"].as_str().unwrap(), file["written"].as_bool().unwrap()))
        .collect();
    assert_eq!(written, [("src/b.txt", false), ("src/mine.txt", true)], "{diff}");
    let (status, body) = project.merge("shared", &json!({}));
    assert_eq!((status, &body["code"]), (409, &json!("no_worktree")), "{body}");
}

#[test]
fn issue_4_8_a_merge_commits_what_the_agent_left_and_brings_it_into_the_current_branch() {
    let project = Project::new(&[("leaves", leaves_work())]);
    // A hook of the repository would be a surprise: it is not run.
    let hooks = project.path().join(".git/hooks");
    for hook in ["pre-commit", "commit-msg", "post-merge", "post-checkout", "pre-merge-commit"] {
        let script = format!("#!/bin/sh\ntouch '{}/ran-{hook}'\nexit 1\n", project.path().display());
        let path = hooks.join(hook);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let agent = project.play("leaves");
    project.folder.write("notes.md", "a person's own, not committed\n");
    let mut socket = project.daemon.connect("?types=agent:merged");
    let (status, merged) = project.merge("leaves", &json!({"message": "Take the work of leaves"}));
    assert_eq!((status, &merged["merged"], &merged["into"]), (200, &json!(true), &json!("main")), "{merged}");
    assert_eq!(project.read("src/a.txt"), "one\n2\nthree\n");
    assert_eq!(project.read("src/new.txt"), "new\n");
    assert!(!project.path().join("src/b.txt").exists());
    assert_eq!(project.state().1, " M notes.md", "what a person had not committed is as it was");
    let commit = |name: &str| git(project.path(), &["show", "--quiet", "--format=%an|%ae|%s|%P", name]);
    let merge = commit("HEAD");
    let parents = merge.rsplit('|').next().unwrap().split(' ').count();
    assert!(merge.contains("|Take the work of leaves|"), "{merge}");
    assert_eq!(parents, 2, "a merge commit, so that it is seen who did what: {merge}");
    let id = agent["id"].as_str().unwrap();
    let own = format!("leaves|{id}@agents.svc.invalid|Work of leaves that it has not committed itself|");
    assert!(commit("HEAD^2").starts_with(&own), "{}", commit("HEAD^2"));
    let mut messages = std::iter::repeat_with(|| next_message(&mut socket));
    let told = messages.find(|message| message["type"] == "agent:merged").unwrap();
    assert_eq!((&told["agentName"], &told["commit"]), (&json!("leaves"), &merged["commit"]), "{told}");
    let audit = project.daemon.get("/api/audit?event=agent.merge");
    assert_eq!(audit["entries"][0]["actor"], "operator", "{audit}");
    assert_eq!(audit["entries"][0]["files"], json!(["src/a.txt", "src/b.txt", "src/new.txt"]));
    let ran: Vec<_> = std::fs::read_dir(project.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("ran-"))
        .collect();
    assert!(ran.is_empty(), "hooks ran: {ran:?}");

    let (status, again) = project.merge("leaves", &json!({"remove": true}));
    assert_eq!((status, &again["merged"]), (200, &json!(false)), "{again}");
    assert_eq!(again["worktreeRemoved"], true, "{again}");
    assert!(!project.path().join(agent["worktree"].as_str().unwrap()).exists());
    assert_eq!(git(project.path(), &["branch", "--list", "svc/*"]), "", "its branch went with it");
    assert_eq!(project.daemon.get("/api/agents/leaves")["worktree"], Value::Null);
    let (status, gone) = project.daemon.send("POST", "/api/agents/leaves/undo", &json!({}));
    assert_eq!((status, &gone["code"]), (409, &json!("no_worktree")), "{gone}");
    let (status, gone) = project.merge("leaves", &json!({}));
    assert_eq!((status, &gone["code"]), (409, &json!("no_worktree")), "{gone}");
    project.daemon.post("/api/agents/leaves/resume", &json!({}));
    let id = project.daemon.get("/api/agents/leaves")["id"].as_str().unwrap().to_owned();
    project.daemon.wait_state(&id, &["completed"]);
}

#[test]
fn issue_4_8_a_conflict_is_named_and_nothing_is_touched() {
    let project = Project::new(&[("leaves", leaves_work())]);
    let agent = project.play("leaves");
    project.folder.write("src/a.txt", "one\nTWO\nthree\n");
    project.folder.write("src/b.txt", "b, and more\n");
    git(project.path(), &["commit", "--quiet", "-am", "Mine"]);
    project.folder.write("notes.md", "in the middle of something\n");
    let before = project.state();
    for body in [json!({"dryRun": true}), json!({}), json!({})] {
        let (status, refused) = project.merge("leaves", &body);
        assert_eq!((status, &refused["code"]), (409, &json!("merge_conflict")), "{refused}");
        assert_eq!(refused["files"], json!(["src/a.txt", "src/b.txt"]), "{refused}");
        let words = refused["error"].as_str().unwrap();
        assert!(words.contains("src/a.txt") && words.contains("svc resume leaves"), "{words}");
        assert_eq!(project.state(), before);
        assert!(!project.path().join(".git/MERGE_HEAD").exists());
    }
    // Its remedy: the agent's branch takes the project's in; then it merges.
    let tree = project.path().join(agent["worktree"].as_str().unwrap());
    let merge = try_git(&tree, &["merge", "--quiet", "-X", "ours", "main"]);
    assert!(!merge.status.success(), "src/b.txt was removed here and changed there");
    let (status, busy) = project.merge("leaves", &json!({}));
    assert_eq!((status, &busy["code"]), (409, &json!("git_busy")), "{busy}");
    git(&tree, &["rm", "--quiet", "src/b.txt"]);
    git(&tree, &["commit", "--quiet", "--no-edit"]);
    let (status, merged) = project.merge("leaves", &json!({}));
    assert_eq!((status, &merged["merged"]), (200, &json!(true)), "{merged}");
    assert_eq!(project.read("src/a.txt"), "one\n2\nthree\n");
}

#[test]
fn issue_4_8_a_dirty_project_is_refused_only_where_the_merge_would_write() {
    let project = Project::new(&[("leaves", leaves_work())]);
    project.play("leaves");
    for (path, text) in [("src/a.txt", "being edited\n"), ("src/new.txt", "untracked, and mine\n")] {
        let old = project.read(path);
        project.folder.write(path, text);
        let (status, refused) = project.merge("leaves", &json!({}));
        assert_eq!((status, &refused["code"]), (409, &json!("project_dirty")), "{refused}");
        assert_eq!(refused["files"], json!([path]));
        assert!(refused["error"].as_str().unwrap().contains("git stash"), "{refused}");
        assert_eq!(project.read(path), text, "it is as it was");
        if old.is_empty() {
            std::fs::remove_file(project.path().join(path)).unwrap();
        } else {
            project.folder.write(path, &old);
        }
    }
    project.folder.write("notes.md", "staged\n");
    git(project.path(), &["add", "notes.md"]);
    let (status, refused) = project.merge("leaves", &json!({}));
    assert_eq!((status, &refused["files"]), (409, &json!(["notes.md"])), "{refused}");
    git(project.path(), &["restore", "--staged", "notes.md"]);
    let (code, out, err) = project.svc(&["merge", "leaves", "--dry-run"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("would merge svc/dev-") && out.contains("into main: 3 files, +2 -2"), "{out}");
    let before = project.state();
    let (code, out, err) = project.svc(&["merge", "leaves", "--remove", "-m", "In it goes"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with("merged svc/dev-") && out.contains("removed the worktree .svc/worktrees/"),
        "{out}"
    );
    assert_eq!(git(project.path(), &["rev-parse", "HEAD^1"]), before.0);
    assert_eq!(project.state().1, " M notes.md");
}

#[test]
fn issue_4_8_a_running_agent_is_merged_only_by_force_and_only_what_it_has_committed() {
    let steps = json!([
        write("src/a.txt", "ONE\ntwo\nthree\n"),
        run("git -c user.name=Dev -c user.email=dev@example.com commit -qam 'Shout'"),
        write("src/half.txt", "half\n"),
        {"hang": true},
    ]);
    let project = Project::new(&[("runs", steps)]);
    let agent = project.begin("runs");
    let tree = project.path().join(agent["worktree"].as_str().unwrap());
    crate::support::wait::wait_for("its second write", || tree.join("src/half.txt").exists().then_some(()));
    let (status, refused) = project.merge("runs", &json!({"remove": true}));
    assert_eq!((status, &refused["code"]), (409, &json!("agent_running")), "{refused}");
    let (status, merged) = project.merge("runs", &json!({"force": true, "remove": true}));
    assert_eq!((status, &merged["merged"]), (200, &json!(true)), "{merged}");
    assert_eq!(merged["worktreeRemoved"], false, "it works there: {merged}");
    assert_eq!(project.read("src/a.txt"), "ONE\ntwo\nthree\n");
    assert!(!project.path().join("src/half.txt").exists(), "what it has not committed is its own");
    assert_eq!(git(&tree, &["status", "--porcelain"]), "?? src/half.txt");
}

#[test]
fn a_worktree_is_discarded_and_its_work_stays_on_its_branch() {
    let discards = run("curl -s -X POST $SVC_DAEMON_URL/api/agents/leaves/discard > said.json; true");
    let tries = json!([discards, {"answer": "done"}]);
    let hangs = json!([{"hang": true}]);
    let project = Project::new(&[("leaves", leaves_work()), ("tries", tries), ("runs", hangs)]);
    let discard =
        |agent: &str| project.daemon.send("POST", &format!("/api/agents/{agent}/discard"), &json!({}));
    let agent = project.play("leaves");
    let tree = project.path().join(agent["worktree"].as_str().unwrap());
    let tries = project.play("tries");
    let said = project.read(&format!("{}/said.json", tries["worktree"].as_str().unwrap()));
    assert!(said.contains("agent_may_not"), "a person discards, not an agent: {said:?}");
    let runs = project.begin("runs");
    project.daemon.wait_state(runs["id"].as_str().unwrap(), &["running"]);
    let (status, refused) = discard("runs");
    assert_eq!((status, &refused["code"]), (409, &json!("agent_running")), "{refused}");
    let branch = git(&tree, &["symbolic-ref", "--short", "HEAD"]);
    git(&tree, &["checkout", "--quiet", "--detach"]);
    let (status, refused) = discard("leaves");
    assert_eq!((status, &refused["code"]), (409, &json!("no_branch")), "{refused}");
    git(&tree, &["checkout", "--quiet", &branch]);
    let before = project.state();
    let (code, out, err) = project.svc(&["discard", "leaves"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("removed the worktree .svc/worktrees/") && out.contains(&branch), "{out}");
    assert_eq!((tree.exists(), project.state()), (false, before), "nothing of it is merged");
    assert_eq!(git(project.path(), &["show", &format!("{branch}:src/new.txt")]), "new");
    assert_eq!(project.daemon.get("/api/agents/leaves")["worktree"], Value::Null);
    let (status, gone) = discard("leaves");
    assert_eq!((status, &gone["code"]), (409, &json!("no_worktree")), "{gone}");
    let (_, gone) = project.merge("leaves", &json!({}));
    assert!(gone["error"].as_str().unwrap().contains("was removed"), "{gone}");
    let audit = project.daemon.get("/api/audit?event=agent.worktree_removed");
    assert_eq!(audit["entries"][0]["actor"], "operator", "{audit}");
}

#[test]
fn a_detached_project_and_an_agent_are_refused() {
    let merges = run("curl -s -X POST $SVC_DAEMON_URL/api/agents/tries/merge > said.json; true");
    let project = Project::new(&[("tries", json!([merges, {"answer": "done"}]))]);
    let agent = project.play("tries");
    let said = project.read(&format!("{}/said.json", agent["worktree"].as_str().unwrap()));
    assert!(said.contains("agent_may_not"), "a person merges, not an agent: {said:?}");
    git(project.path(), &["checkout", "--quiet", "--detach"]);
    let (status, refused) = project.merge("tries", &json!({}));
    assert_eq!((status, &refused["code"]), (409, &json!("no_branch")), "{refused}");
}

#[test]
fn issue_4_8_what_svc_leaves_in_a_worktree_is_no_work_and_a_dirty_worktree_stays() {
    let steps = json!([run("mkdir .svc && echo {} > .svc/recommended-team.json"), {"answer": "done"}]);
    let project = Project::new(&[("plans", steps), ("leaves", leaves_work())]);
    let agent = project.play("plans");
    assert_eq!(project.daemon.get("/api/agents/plans/diff")["files"], json!([]));
    let (_, merged) = project.merge("plans", &json!({"remove": true}));
    assert_eq!((&merged["merged"], &merged["worktreeRemoved"]), (&json!(false), &json!(true)), "{merged}");
    assert!(!project.path().join(agent["worktree"].as_str().unwrap()).exists());
    // Removing the record never removes the work.
    let agent = project.play("leaves");
    let (status, _) = project.daemon.send("DELETE", "/api/agents/leaves", &Value::Null);
    assert_eq!(status, 200);
    assert!(project.path().join(agent["worktree"].as_str().unwrap()).join("src/new.txt").exists());
}

/// Every way of a repository, and of a person's settings, to name a program: each leaves a file with its
/// name.
fn trap(project: &Path, home: &Path, marks: &Path) {
    let program = marks.with_file_name("program");
    // A filter, driver or helper that does its work, so that git would be content with it.
    let text =
        format!("#!/bin/sh\ntouch {}/\"$1\"\ncase $1 in filter*|textconv*) cat;; esac\n", marks.display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let runs = |what: &str| format!("{} {what}", program.display());
    let drivers = |from: &str| {
        let (clean, smudge) = (runs(&format!("filter-{from}")), runs(&format!("filter-smudge-{from}")));
        format!(
            "[filter \"x\"]\n\tclean = {clean}\n\tsmudge = {smudge}\n\trequired = true\n\
             [merge \"x\"]\n\tdriver = {}\n[diff \"x\"]\n\ttextconv = {}\n\tcommand = {}\n\
             [merge]\n\tdefault = x\n[diff]\n\texternal = {}\n",
            runs(&format!("merge-{from}")),
            runs(&format!("textconv-{from}")),
            runs(&format!("diff-{from}")),
            runs(&format!("external-{from}")),
        )
    };
    let own = format!(
        "{}[core]\n\tfsmonitor = {}\n\tpager = {}\n\teditor = {}\n\tsshCommand = {}\n\thooksPath = {}\n\
         \tattributesFile = {}\n\tworktree = {}\n[gpg]\n\tprogram = {}\n[commit]\n\tgpgSign = true\n\
         [credential]\n\thelper = !{}\n[alias]\n\tstatus = !{}\n[user]\n\tname = Somebody\n\
         \temail = some@body.example\n\tsigningKey = x\n[extensions]\n\tworktreeConfig = true\n[include]\n\tpath = {}\n",
        drivers("repository"),
        runs("fsmonitor"),
        runs("pager"),
        runs("editor"),
        runs("ssh"),
        project.join("hooks").display(),
        project.join("attributes").display(),
        marks.display(),
        program.display(),
        runs("credential"),
        runs("alias"),
        project.join("included").display(),
    );
    let git_dir = project.join(".git");
    let config = std::fs::read_to_string(git_dir.join("config")).unwrap();
    std::fs::write(git_dir.join("config"), config + &own).unwrap();
    std::fs::write(git_dir.join("config.worktree"), drivers("worktree")).unwrap();
    std::fs::write(project.join("included"), drivers("included")).unwrap();
    let attributes = "* filter=x merge=x diff=x\n";
    for place in ["attributes", ".gitattributes", ".git/info/attributes"] {
        std::fs::write(project.join(place), attributes).unwrap();
    }
    std::fs::create_dir_all(home.join(".config/git")).unwrap();
    std::fs::write(home.join(".config/git/config"), drivers("xdg")).unwrap();
    std::fs::write(home.join(".config/git/attributes"), attributes).unwrap();
    std::fs::write(home.join(".gitconfig"), drivers("home")).unwrap();
    for hook in [
        "pre-commit",
        "post-checkout",
        "post-merge",
        "pre-merge-commit",
        "post-index-change",
        "reference-transaction",
        "post-commit",
        "prepare-commit-msg",
        "commit-msg",
    ] {
        for folder in [project.join("hooks"), git_dir.join("hooks")] {
            std::fs::create_dir_all(&folder).unwrap();
            let path = folder.join(hook);
            std::fs::write(&path, format!("#!/bin/sh\n{}\n", runs(&format!("hook-{hook}")))).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
}

/// A repository with another one in it, both full of traps, and an agent's scenario `works`.
fn trapped(folder: &Folder, home: &Path, marks: &Path) {
    std::fs::create_dir_all(marks).unwrap();
    for (name, text) in [("src/a.txt", "1\n2\n3\n4\n5\n6\n7\n"), ("src/b.txt", "b\n"), ("sub/in.txt", "in\n")]
    {
        folder.write(name, text);
    }
    // A repository in the repository, with traps of its own.
    let sub = folder.path().join("sub");
    for (place, add) in [(sub.as_path(), "."), (folder.path(), "src"), (folder.path(), "sub")] {
        if !place.join(".git").exists() {
            git(place, &["init", "--quiet", "-b", "main"]);
        }
        git(place, &["add", "--", add]);
        git(place, &["commit", "--quiet", "-m", "First"]);
    }
    folder.write(".git/info/exclude", "SVC_*\n.svc\nhooks\nincluded\nattributes\n");
    let steps = json!([write("src/a.txt", "one\n2\n3\n4\n5\n6\n7\n"), write("src/new.txt", "new\n"), {"answer": "done"}]);
    folder.write(".svc/rehearsals/works.json", &json!({"steps": steps}).to_string());
    trap(folder.path(), home, marks);
    trap(&sub, home, marks);
    folder.write("sub/in.txt", "changed\n");
}

#[test]
fn git_of_the_daemon_runs_no_program_that_a_repository_or_settings_name() {
    let folder = Arc::new(Folder::new("trapped"));
    let outside = Folder::new("trapped-outside");
    let (home, marks) = (outside.path().join("home"), outside.path().join("marks"));
    trapped(&folder, &home, &marks);
    let at_home = home.to_str().unwrap();
    let xdg = home.join(".config");
    let env = [("HOME", at_home), ("XDG_CONFIG_HOME", xdg.to_str().unwrap())];
    let project = Project { daemon: Daemon::start_in(Arc::clone(&folder), &env), folder };
    let sprung = || {
        let names = std::fs::read_dir(&marks).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<Vec<_>>()
    };
    // What git does by itself in this place, to know that the traps are set.
    let _ = Command::new("git").args(["diff", "--stat"]).envs(env).current_dir(project.path()).output();
    assert!(!sprung().is_empty(), "no trap is set");
    for name in sprung() {
        std::fs::remove_file(marks.join(name)).unwrap();
    }
    let status = project.daemon.get("/api/files/git-status");
    assert_eq!((&status["repository"], &status["branch"]), (&json!(true), &json!("main")), "{status}");
    project.play("works");
    // The project goes on in the same file, so that both sides are merged line by line.
    project.folder.write("src/a.txt", "1\n2\n3\n4\n5\n6\nseven\n");
    let diff = project.daemon.get("/api/files/git-diff?path=src/a.txt");
    assert!(diff["diff"].as_str().unwrap().contains("+seven"), "{diff}");
    let told = project.daemon.get("/api/agents/works/diff");
    assert!(told["diff"].as_str().unwrap().contains("+one"), "{told}");
    assert_eq!(sprung(), Vec::<std::ffi::OsString>::new(), "looked at");

    let plain = [
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "commit.gpgSign=false",
        "-c",
        "filter.x.clean=cat",
        "-c",
        "filter.x.smudge=cat",
    ];
    let top = format!("--work-tree={}", project.path().display());
    let commit = |args: &[&str]| git(project.path(), &[&plain[..], &[top.as_str()], args].concat());
    commit(&["commit", "--quiet", "-m", "Seven", "--", "src/a.txt"]);
    for name in sprung() {
        std::fs::remove_file(marks.join(name)).unwrap();
    }
    let (status, rehearsed) = project.merge("works", &json!({"dryRun": true}));
    assert_eq!(status, 200, "{rehearsed}");
    let (status, merged) = project.merge("works", &json!({"remove": true}));
    assert_eq!(
        (status, &merged["merged"], &merged["worktreeRemoved"]),
        (200, &json!(true), &json!(true)),
        "{merged}"
    );
    assert_eq!(project.read("src/a.txt"), "one\n2\n3\n4\n5\n6\nseven\n");
    assert_eq!(project.read("src/new.txt"), "new\n");
    assert_eq!(sprung(), Vec::<std::ffi::OsString>::new(), "merged");
    let by = git(project.path(), &["-c", "core.worktree=.", "log", "-1", "--format=%an <%ae>"]);
    assert_eq!(by, "Somebody <some@body.example>", "a person's name is kept");
}
