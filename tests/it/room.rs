//! The room of an agent, tried from inside: as root, where root runs the tests, and as an ordinary user.

use crate::support::daemon::{Daemon, is_root};
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// An ordinary user, where root runs the tests.
const USER: u32 = 12_345;
const TOKEN: &str = "a-token-that-no-agent-gets";
const TRIES: &str = include_str!("../support/room.py");

/// Whether this system can make rooms; one that cannot has nothing to be tried here.
pub fn has_rooms() -> bool {
    let tried = Command::new(env!("CARGO_BIN_EXE_svc")).args(["__cage", "--try"]).output().unwrap();
    if !tried.status.success() {
        eprintln!("SKIPPED, NO ROOMS HERE: {}", String::from_utf8_lossy(&tried.stdout));
    }
    tried.status.success()
}

/// Files that others may read, as those of a person's home folder are.
fn put(folder: &Folder, path: &str, text: &str) {
    folder.write(path, text);
    fs::set_permissions(folder.path().join(path), fs::Permissions::from_mode(0o644)).unwrap();
}

/// Git of a person's.
fn git(folder: &Path, line: &str) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(line.split(' ')).current_dir(folder);
    let done = git.output().unwrap();
    assert!(done.status.success(), "git {line}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

struct Stage {
    daemon: Daemon,
    home: Folder,
    outside: Folder,
}

impl Stage {
    /// A project in a repository, a home folder with secrets, and a folder beside both.
    fn new(user: Option<u32>, settings: &Value) -> Self {
        let folder = Folder::new("room");
        git(folder.path(), "init -q");
        Self::on(folder, user, settings)
    }

    /// The same on a project that is there.
    fn on(folder: Folder, user: Option<u32>, settings: &Value) -> Self {
        Self::with_home(folder, Folder::new("room-home"), user, settings)
    }

    fn with_home(folder: Folder, home: Folder, user: Option<u32>, settings: &Value) -> Self {
        let outside = Folder::new("room-outside");
        folder.write(".svc/config.json", &settings.to_string());
        folder.write(".svc/token", "the daemon's");
        folder.write("tries.py", TRIES);
        for secret in
            [".ssh/id", ".aws/credentials", ".netrc", ".config/gh/hosts.yml", ".claude/.credentials.json"]
        {
            put(&home, secret, "a secret");
        }
        put(&home, ".bashrc", "as it was");
        put(&home, "notes", "to be read");
        put(&outside, "victim", "as it was");
        if let Some(user) = user.filter(|_| is_root()) {
            home.give_to(user);
            outside.give_to(user);
        }
        let home_folder = home.path().to_str().unwrap().to_owned();
        let path = format!("{home_folder}/bin:{}", std::env::var("PATH").unwrap());
        let env = [("HOME", home_folder.as_str()), ("PATH", path.as_str()), ("SVC_OPERATOR_TOKEN", TOKEN)];
        let daemon = match user {
            Some(user) => Daemon::start_as(user, Arc::new(folder), &env),
            None => Daemon::start_in(Arc::new(folder), &env),
        };
        // A person of another user's has to prove it.
        let daemon = daemon.with_token(TOKEN);
        Self { daemon, home, outside }
    }

    /// Runs a command line as an agent; when it has ended.
    fn agent_runs(&self, name: &str, command: &str) -> String {
        let steps = json!({"steps": [{"run": {"command": command, "timeoutMs": 120_000}}]});
        let folder = self.daemon.project.join(".svc/rehearsals");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.json")), steps.to_string()).unwrap();
        let body = json!({"role": "dev", "name": name, "provider": "script", "model": name, "prompt": "go"});
        let id = self.daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
        self.daemon.wait_state(&id, &["completed", "killed"]);
        id
    }
}

fn nothing_gets_out(user: Option<u32>) {
    if !has_rooms() {
        return;
    }
    let stage = Stage::new(user, &json!({}));
    let project = stage.daemon.project.display();
    let mut rings = Command::new("python3");
    rings.arg(stage.daemon.project.join("tries.py")).arg("--key-ring");
    let ring = String::from_utf8(rings.output().unwrap().stdout).unwrap();
    let line = format!(
        "python3 tries.py tries.json {} {project} {} {}",
        stage.daemon.pid(),
        stage.outside.path().display(),
        ring.trim()
    );
    stage.agent_runs("tries", &line);
    let told: Value = serde_json::from_str(&stage.daemon_file("tries.json")).unwrap();
    let tried = told.as_object().unwrap();
    assert!(tried.len() >= 35, "{}", tried.len());
    let got: Vec<_> = tried.iter().filter(|(_, got)| !got.is_null()).collect();
    assert!(got.is_empty(), "{got:#?}");
    // Seen from outside.
    let home = |name: &str| fs::read_to_string(stage.home.path().join(name)).ok();
    assert_eq!(home(".bashrc").as_deref(), Some("as it was"));
    assert_eq!(home("new-of-the-agent"), None, "it went with the room");
    let outside: Vec<_> =
        fs::read_dir(stage.outside.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(outside, ["victim"]);
    assert_eq!(fs::read_to_string(stage.outside.path().join("victim")).unwrap(), "as it was");
    assert_eq!(stage.daemon.get("/api/config")["maxAgents"], 10);
    wait_for("the room's folder to be gone", || {
        fs::read_dir(stage.daemon.project.join(".svc/rooms")).unwrap().next().is_none().then_some(())
    });
    assert_eq!(stage.daemon.get("/api/health")["leaked"], 0);
}

impl Stage {
    fn daemon_file(&self, name: &str) -> String {
        fs::read_to_string(self.daemon.project.join(name)).unwrap()
    }
}

#[test]
fn nothing_that_an_agent_tries_from_inside_gets_out() {
    nothing_gets_out(None);
}

#[test]
fn nothing_that_an_agent_of_an_ordinary_user_tries_from_inside_gets_out() {
    nothing_gets_out(Some(USER));
}

/// What a room is for: the work.
#[test]
fn in_its_room_an_agent_can_do_its_work() {
    if !has_rooms() {
        return;
    }
    let stage = Stage::new(None, &json!({}));
    let work = "{ cat ~/notes; printf x > ~/cache && cat ~/cache; printf x > /tmp/a && cat /tmp/a; printf x > made.txt; \
                git -c user.name=a -c user.email=a@b add made.txt && git -c user.name=a -c user.email=a@b commit -qm one \
                && git log --format=%s; curl -fs $SVC_DAEMON_URL/api/health | cut -c1-10; printf %s \"$TMPDIR\"; \
                python3 -c 'import pty; pty.spawn([\"true\"])' && echo terminal; } > out.txt 2>&1";
    let id = stage.agent_runs("work", work);
    let room = &stage.daemon.get(&format!("/api/agents/{id}"))["room"];
    assert_eq!(room, &json!({"home": "overlay", "kept": ["**"]}));
    assert_eq!(stage.daemon_file("out.txt"), "to be readxxone\n{\"agents\":\n/tmpterminal\n");
    assert_eq!(stage.daemon_file("made.txt"), "x");
}

/// The kernel ends a room as a whole with the process that holds it.
#[test]
fn when_a_room_is_ended_nothing_of_it_is_left() {
    if !has_rooms() {
        return;
    }
    let stage = Stage::new(None, &json!({}));
    let daemonised =
        "(setsid sh -c 'exec -a of-this-room sleep 4711' >/dev/null 2>&1 &) ; touch ready; sleep 60";
    let steps =
        json!({"steps": [{"run": {"command": format!("bash -c \"{daemonised}\""), "timeoutMs": 120_000}}]});
    fs::create_dir_all(stage.daemon.project.join(".svc/rehearsals")).unwrap();
    fs::write(stage.daemon.project.join(".svc/rehearsals/stays.json"), steps.to_string()).unwrap();
    let id = stage.daemon.spawn("stays");
    wait_for("it to work", || stage.daemon.project.join("ready").exists().then_some(()));
    let left = || Command::new("pgrep").args(["-f", "of-this-room|sleep 4711"]).output().unwrap().stdout;
    // Its work may be seen before its process is told.
    let pid = || stage.daemon.get(&format!("/api/agents/{id}"))["pid"].as_u64();
    let pid = wait_for("its process", pid).to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let record = stage.daemon.wait_state(&id, &["killed"]);
    assert_eq!(record["exit"]["signal"], 9, "{record}");
    wait_for("everything inside to be gone", || left().is_empty().then_some(()));
}

#[test]
fn a_home_folder_is_shown_as_the_settings_say() {
    if !has_rooms() {
        return;
    }
    let look =
        "{ cat ~/notes; printf x > ~/made && echo written; cat ~/.ssh/id; } > out.txt 2>/dev/null; true";
    for (home, seen) in [("overlay", "to be readwritten\n"), ("read", "to be read"), ("hide", "written\n")] {
        let stage = Stage::new(None, &json!({"isolation": {"home": home}}));
        stage.agent_runs("look", look);
        assert_eq!(stage.daemon_file("out.txt"), seen, "{home}");
        assert!(!stage.home.path().join("made").exists());
    }
    let stage = Stage::new(None, &json!({"isolation": {"grants": ["~/.ssh"]}}));
    stage.agent_runs("look", look);
    assert_eq!(stage.daemon_file("out.txt"), "to be readwritten\na secret", "granted by name");
}

/// A program of Node's or Python's is a link to one of many packages; here all lies where a room has
/// something of its own.
#[test]
fn a_program_is_found_with_what_belongs_to_it_where_a_room_shows_something_else() {
    if !has_rooms() {
        return;
    }
    let said = "[ \"$1\" != --version ] || { echo codex-cli 0.169.0; exit; }\n\
        case \"$*\" in *login*) echo Logged in; exit ;; esac\ncat >/dev/null\n\
        cat \"$HOME/notes\" >seen 2>/dev/null\n\
        echo '{\"type\":\"thread.started\",\"thread_id\":\"t\"}'\n\
        echo '{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":5,\"output_tokens\":5}}'\n";
    let script = "#!/bin/sh\n. \"$(dirname \"$(readlink -f \"$0\")\")/../words/said\"\n";
    for (settings, root, mark) in [
        (json!({"isolation": {"home": "hide"}}), "lib/node_modules", None),
        (json!({}), "lib/node_modules", None),
        (json!({"isolation": {"home": "hide"}}), "venvs/tool", Some("venvs/tool/pyvenv.cfg")),
        // Marked as if all of the home folder belonged to it: what does not is still hidden.
        (json!({"isolation": {"home": "hide"}}), ".", Some("pyvenv.cfg")),
    ] {
        let script = if root == "." { format!("#!/bin/sh\n{said}") } else { script.to_owned() };
        let home = Folder::new("room-installed");
        put(&home, &format!("{root}/words/said"), said);
        put(&home, &format!("{root}/tool/run"), &script);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(home.path().join(root).join("tool/run"), mode).unwrap();
        if let Some(mark) = mark {
            put(&home, mark, "");
        }
        fs::create_dir(home.path().join("bin")).unwrap();
        symlink(home.path().join(root).join("tool/run"), home.path().join("bin/codex")).unwrap();
        let stage = Stage::with_home(Folder::new("room"), home, None, &settings);
        let body = json!({"role": "dev", "provider": "codex", "model": "gpt-5.5", "prompt": "go"});
        let id = wait_for("codex to be found", || {
            let (status, record) = stage.daemon.send("POST", "/api/agents", &body);
            (status == 201).then(|| record["id"].as_str().unwrap().to_owned())
        });
        let record = stage.daemon.wait_state(&id, &["completed", "crashed"]);
        assert_eq!(record["state"], "completed", "{record:#}");
        let home = record["room"]["home"].as_str().expect("it had one");
        let seen = stage.daemon_file("seen");
        assert_eq!(seen, if home == "hide" { "" } else { "to be read" }, "{root}, {mark:?}");
    }
}

/// What is not there yet could be made, and your next session would obey it.
#[test]
fn settings_of_a_program_that_are_not_there_cannot_be_made_by_its_agent() {
    if !has_rooms() {
        return;
    }
    let (folder, home) = (Folder::new("room"), Folder::new("room-home"));
    git(folder.path(), "init -q");
    let program = "#!/bin/sh\n[ \"$1\" = --version ] && echo 0.61.0 && exit\ncd ~/.gemini\n\
                   rm -rf settings.json extensions\nmv commands away\nfor name in settings.json GEMINI.md \
                   commands/a.toml extensions/b policies/c; do printf got >$name; done\nprintf got >state\n";
    put(&home, "bin/gemini", program);
    fs::set_permissions(home.path().join("bin/gemini"), fs::Permissions::from_mode(0o755)).unwrap();
    let stage = Stage::with_home(folder, home, None, &json!({}));
    let body = json!({"role": "dev", "provider": "gemini", "permission": "full", "prompt": "go"});
    let id = stage.daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    stage.daemon.wait_state(&id, &["completed", "crashed"]);
    let state = stage.home.path().join(".gemini");
    let text = |name: &str| fs::read_to_string(state.join(name)).unwrap();
    assert_eq!(text("state"), "got", "its own state it writes");
    assert_eq!([text("settings.json"), text("GEMINI.md")], ["{}\n", ""]);
    for name in ["commands", "extensions", "policies"] {
        assert_eq!(fs::read_dir(state.join(name)).unwrap().count(), 0, "{name}");
    }
    assert!(!state.join("away").exists());
}

/// What is not there cannot be covered; what an agent has made of it goes with its room.
#[test]
fn git_that_an_agent_has_led_elsewhere_is_led_back() {
    if !has_rooms() {
        return;
    }
    let stage = Stage::new(None, &json!({}));
    let project = stage.daemon.project.clone();
    git(&project, "commit -q --allow-empty -m one");
    let led = project.join(".git/commondir");
    stage.agent_runs("leads", "git init -q --bare away; printf ../away > .git/commondir");
    wait_for("git to be led back", || (!led.exists()).then_some(()));
    assert_eq!(git(&project, "log -1 --format=%s"), "one");
    assert!(project.join("away/HEAD").exists(), "it has done what it was to do");
    // A person's own stays.
    fs::write(&led, ".\n").unwrap();
    stage.agent_runs("leads-not", "true");
    wait_for("the room to be gone", || {
        fs::read_dir(project.join(".svc/rooms")).unwrap().next().is_none().then_some(())
    });
    assert!(led.exists());
}

/// A linked worktree and a submodule keep their commits elsewhere, and say there whose they are.
#[test]
fn commits_are_made_where_a_projects_git_lies_elsewhere_and_obeyed_files_there_are_not_written() {
    if !has_rooms() {
        return;
    }
    let work = "{ git -c user.name=a -c user.email=a@b commit -q --allow-empty -m two; D=$(git rev-parse \
                --git-common-dir); printf x >> $D/config; printf x > $D/hooks/post-commit; mv .git away; \
                printf x > .git; printf x >> $D/worktrees/room/commondir; } > out.txt 2>&1; true";
    for kind in ["worktree", "submodule", "unknown"] {
        let (main, folder) = (Folder::new("room-main"), Folder::new("room"));
        let kept = main.path().join("kept");
        if kind == "worktree" {
            git(main.path(), "init -q");
            git(main.path(), "commit -q --allow-empty -m one");
            git(main.path(), &format!("worktree add -q -b room {}", folder.path().display()));
        } else {
            git(folder.path(), &format!("init -q --separate-git-dir={}", kept.display()));
            git(folder.path(), "commit -q --allow-empty -m one");
        }
        if kind == "submodule" {
            git(folder.path(), &format!("config core.worktree {}", folder.path().display()));
        }
        let common = git(folder.path(), "rev-parse --path-format=absolute --git-common-dir");
        let before = fs::read(Path::new(&common).join("config")).unwrap();
        let pointer = fs::read(folder.path().join(".git")).unwrap();
        let stage = Stage::on(folder, None, &json!({}));
        stage.agent_runs("work", work);
        let (project, said) = (&stage.daemon.project, stage.daemon_file("out.txt"));
        // One that does not say whose it is may be anybody's: an agent could have made the file that leads
        // there.
        let last = if kind == "unknown" { "one" } else { "two" };
        assert_eq!(git(project, "log -1 --format=%s"), last, "{kind}: {said}");
        assert_eq!(fs::read(Path::new(&common).join("config")).unwrap(), before, "{kind}");
        assert!(!Path::new(&common).join("hooks/post-commit").exists(), "{kind}");
        assert_eq!(fs::read(project.join(".git")).unwrap(), pointer, "{kind}");
    }
}

/// What one agent leaves behind must not open the next one's room.
#[test]
fn links_that_an_earlier_agent_has_left_lead_no_room_out() {
    if !has_rooms() {
        return;
    }
    let stage = Stage::new(None, &json!({"enforcement": "kernel"}));
    let (project, outside) = (&stage.daemon.project, stage.outside.path());
    fs::remove_dir_all(project.join(".git")).unwrap();
    for name in ["src", ".git"] {
        symlink(outside, project.join(name)).unwrap();
    }
    let write =
        format!("printf got > {0}/victim; printf got > src/new; printf got > .git/new", outside.display());
    let steps = json!({"steps": [{"run": {"command": write}}]});
    fs::create_dir_all(project.join(".svc/rehearsals")).unwrap();
    fs::write(project.join(".svc/rehearsals/follows.json"), steps.to_string()).unwrap();
    for (scope, enforcement) in [(json!(["src/**"]), "kernel"), (json!([]), "advisory")] {
        let settings = json!({"enforcement": enforcement});
        assert_eq!(stage.daemon.send("PATCH", "/api/config", &settings).0, 200);
        let body =
            json!({"role": "dev", "provider": "script", "model": "follows", "prompt": "go", "scope": scope});
        let id = stage.daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
        stage.daemon.wait_state(&id, &["completed", "crashed"]);
        let files: Vec<_> = fs::read_dir(outside).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(files, ["victim"], "{enforcement}");
        assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "as it was", "{enforcement}");
    }
}

/// The same where agents have no rooms, but a fence: a link in the place of a scope's folder, or on the way
/// to one that is yet to be made.
#[test]
fn links_that_an_earlier_agent_has_left_widen_no_fence() {
    if !svc_sys::confine::is_possible() {
        eprintln!("SKIPPED, NO FENCE HERE");
        return;
    }
    let stage = Stage::new(None, &json!({"enforcement": "kernel", "isolation": {"cage": "off"}}));
    let (project, outside) = (&stage.daemon.project, stage.outside.path());
    for name in ["src", "docs"] {
        symlink(outside, project.join(name)).unwrap();
    }
    let write = format!(
        "printf got > {0}/victim; printf got > src/new; printf x > own/here; true",
        outside.display()
    );
    let steps = json!({"steps": [{"run": {"command": write}}]});
    fs::create_dir_all(project.join(".svc/rehearsals")).unwrap();
    fs::write(project.join(".svc/rehearsals/follows.json"), steps.to_string()).unwrap();
    let body = json!({"role": "dev", "provider": "script", "model": "follows", "prompt": "go",
                      "scope": ["src/**", "docs/deep/**", "own/**"]});
    let id = stage.daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    stage.daemon.wait_state(&id, &["completed"]);
    let files: Vec<_> = fs::read_dir(outside).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(files, ["victim"]);
    assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "as it was");
    assert_eq!(stage.daemon_file("own/here"), "x", "its own scope is open");
}

/// How often a room is made while somebody swaps a folder; so many that were made are enough.
const SWAPPED_ROOMS: usize = 600;
const MADE_ROOMS: usize = 60;

/// Puts the link `link` in the place of the folder `real` and back until `ends`, as fast as rooms are made.
fn swap(project: &Path, ends: &AtomicBool) {
    let rename = |from: &str, to: &str| fs::rename(project.join(from), project.join(to)).unwrap();
    let linger = || {
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(20) {
            std::thread::yield_now();
        }
    };
    while !ends.load(Ordering::Relaxed) {
        for (from, to) in [("real", "away"), ("link", "real")] {
            rename(from, to);
        }
        linger();
        for (from, to) in [("real", "link"), ("away", "real")] {
            rename(from, to);
        }
        linger();
    }
}

/// A room is made as it was planned, or not at all.
#[test]
fn a_folder_that_is_swapped_while_rooms_are_made_moves_no_protection() {
    if !has_rooms() {
        return;
    }
    let folder = Folder::new("room-swapped");
    let project = folder.path().canonicalize().unwrap();
    folder.write("real/guarded", "");
    folder.write("other/guarded", "");
    symlink("other", project.join("link")).unwrap();
    let share = |path: &str, writable| json!({"share": {"path": project.join(path), "writable": writable}});
    let steps = [share("", true), share("real", true), share("real/guarded", false)];
    let plan = json!({"steps": steps, "cwd": "/", "fence": null}).to_string();
    let program = format!(
        "echo ready; read go; cd {}; (printf x >>real/guarded) 2>&- && echo open; \
         (printf x >>other/guarded) 2>&- || echo shut",
        project.display()
    );
    let mut made = 0;
    for _ in 0..SWAPPED_ROOMS {
        let ends = AtomicBool::new(false);
        let told = std::thread::scope(|scope| {
            scope.spawn(|| swap(&project, &ends));
            let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
            command.args(["__cage", &plan, "--", "sh", "-c", &program]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut room = command.spawn().unwrap();
            let mut output = BufReader::new(room.stdout.take().unwrap());
            let mut told = String::new();
            output.read_line(&mut told).unwrap();
            ends.store(true, Ordering::Relaxed);
            (room, output, told)
        });
        let (mut room, mut output, mut told) = told;
        if told == "ready\n" {
            made += 1;
            room.stdin.take().unwrap().write_all(b"\n").unwrap();
            output.read_to_string(&mut told).unwrap();
            assert_eq!(told, "ready\n", "open: the protected file can be written; shut: another one cannot");
        }
        room.wait().unwrap();
        if made == MADE_ROOMS {
            return;
        }
    }
    assert!(made > 0, "no room was made");
}

/// Its token proves a person there, and its vault's key opens what it holds.
#[test]
fn the_state_of_other_projects_of_the_same_person_is_not_there() {
    if !has_rooms() {
        return;
    }
    let settings = Folder::in_target("settings");
    let env = [("XDG_CONFIG_HOME", settings.path().to_str().unwrap())];
    let (one, other) = (Arc::new(Folder::in_target("one")), Arc::new(Folder::in_target("other")));
    other.write("README.md", "of the other project");
    let _other = Daemon::start_in(Arc::clone(&other), &env);
    let token = fs::read_to_string(other.path().join(".svc/token")).unwrap();
    let place = other.path().display();
    let command = format!("cat {place}/README.md; ls -A {place}/.svc; cat {place}/.svc/token; echo looked");
    let steps = json!({"steps": [{"run": {"command": command}}, {"answer": "done"}]});
    one.write(".svc/rehearsals/look.json", &steps.to_string());
    let daemon = Daemon::start_in(one, &env);
    let id = daemon.spawn("look");
    daemon.wait_state(&id, &["completed"]);
    let log = daemon.get(&format!("/api/agents/{id}/log?tail=100")).to_string();
    // In a checkout below /tmp the room has another folder there.
    let is_there = !other.path().starts_with("/tmp");
    assert_eq!((log.contains("looked"), log.contains("of the other project")), (true, is_there), "{log}");
    assert!(!log.contains(token.trim()) && !log.contains("daemon.lock"), "{log}");
}

/// People who spare their disk work in memory: what processes share by files there is the room's own, but for
/// the project.
#[test]
fn a_project_in_shared_memory_is_there_and_nothing_else_of_it() {
    let memory = Path::new("/dev/shm");
    if !has_rooms() || !memory.is_dir() {
        return;
    }
    let (folder, other) = (Folder::below(memory, "project"), Folder::below(memory, "other"));
    other.write("secret", "of somebody else");
    let (all, secret) = (memory.display(), other.path().join("secret"));
    let command = format!("ls -A {all} >seen.txt; cat {}; echo looked", secret.display());
    let steps = json!({"steps": [{"run": {"command": command}}, {"answer": "done"}]});
    folder.write(".svc/rehearsals/look.json", &steps.to_string());
    let daemon = Daemon::start_in(Arc::new(folder), &[]);
    let id = daemon.spawn("look");
    daemon.wait_state(&id, &["completed"]);
    let log = daemon.get(&format!("/api/agents/{id}/log?tail=100")).to_string();
    assert!(log.contains("looked") && !log.contains("of somebody else"), "{log}");
    let own = daemon.project.file_name().unwrap().to_str().unwrap();
    assert_eq!(fs::read_to_string(daemon.project.join("seen.txt")).unwrap().trim(), own, "it alone");
}
