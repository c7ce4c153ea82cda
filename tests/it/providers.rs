//! The programs of the providers as the built daemon finds them: at once, again, and with what they say of
//! themselves; and what of the daemon's environment reaches them.

use crate::support::aimock::Cli;
use crate::support::daemon::{Daemon, OPEN};
use crate::support::folder::Folder;
use crate::support::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a start of the daemon is tried how often.
const STARTS: usize = 20;
/// Far below the 3 s that the slow program takes.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A result of Claude Code, after which its program ends.
const RESULT: &str = r#"cat > /dev/null
echo '{"type":"system","subtype":"init","session_id":"s","model":"m"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s","usage":{}}'
"#;

/// A project with a folder of programs, which stands first on the `PATH`.
struct Stage {
    project: Arc<Folder>,
    path: String,
}

impl Stage {
    fn new() -> Self {
        let project = Arc::new(Folder::new("providers"));
        fs::create_dir_all(project.path().join("bin")).unwrap();
        let path = format!("{}/bin:/usr/bin:/bin", project.path().display());
        Self { project, path }
    }

    /// Puts a shell script on the `PATH`, all at once.
    fn program(&self, name: &str, script: &str) {
        let folder = self.project.path().join("bin");
        let (new, path) = (folder.join(format!(".{name}")), folder.join(name));
        fs::write(&new, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, path).unwrap();
    }

    fn daemon(&self, more: &[(&str, &str)]) -> Daemon {
        let home = self.project.path().to_str().unwrap();
        let variables = [&[("PATH", self.path.as_str()), ("HOME", home)], more].concat();
        Daemon::start_in(Arc::clone(&self.project), &variables)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.project.path().join(name)).ok().filter(|text| text.ends_with("end\n"))
    }
}

fn spawn(daemon: &Daemon, body: &Value) -> (u16, Value) {
    daemon.send("POST", "/api/agents", body)
}

fn dev(provider: &str) -> Value {
    json!({"role": "dev", "provider": provider, "prompt": "go"})
}

fn provider(daemon: &Daemon, query: &str, id: &str) -> Value {
    let list = daemon.get(&format!("/api/providers{query}"));
    list.as_array().unwrap().iter().find(|one| one["id"] == id).unwrap().clone()
}

fn svc(daemon: &Daemon, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).args(["--url", &daemon.url]).current_dir(&daemon.project);
    command.env_remove("SVC_AGENT_ID").env("XDG_CONFIG_HOME", daemon.project.join(".config"));
    command.output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The slowest program's version once held up all of them.
#[test]
fn a_program_on_the_path_is_accepted_at_once_however_long_its_version_takes() {
    let stage = Stage::new();
    stage.program("claude", &format!("[ \"$1\" = --version ] && {{ sleep 3; echo 1.2.3; exit; }}\n{RESULT}"));
    stage.program("gemini", "sleep 600");
    let mut accepted = 0;
    for _ in 0..STARTS {
        let daemon = stage.daemon(&[]);
        let started = Instant::now();
        let (status, body) = spawn(&daemon, &dev("claude-code"));
        assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
        accepted += usize::from(status == 201);
        assert_eq!(status, 201, "{body}");
        let shown = provider(&daemon, "", "claude-code");
        assert_eq!((&shown["installed"], &shown["state"]), (&json!(true), &json!("looking")), "{shown}");
        let started = Instant::now();
        assert_eq!(daemon.stop(), Some(0));
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "programs that are asked do not hold up the end"
        );
    }
    assert_eq!(accepted, STARTS);
    let daemon = stage.daemon(&[]);
    wait_for("its version", || (provider(&daemon, "", "claude-code")["version"] == "1.2.3").then_some(()));
    let slow = provider(&daemon, "", "gemini");
    assert_eq!(
        (&slow["state"], &slow["version"]),
        (&json!("looking"), &Value::Null),
        "one does not wait for another"
    );
}

#[test]
fn what_is_installed_or_removed_later_is_seen() {
    let stage = Stage::new();
    let daemon = stage.daemon(&[]);
    let (status, body) = spawn(&daemon, &dev("claude-code"));
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("provider")), "{body}");
    assert!(body.to_string().contains("npm install"), "it says how: {body}");
    stage.program("claude", RESULT);
    assert_eq!(spawn(&daemon, &dev("claude-code")).0, 201, "the same wish right after");
    assert_eq!(provider(&daemon, "", "codex")["state"], "absent");
    stage.program("codex", "echo codex-cli 0.1.0");
    let found = provider(&daemon, "?wait=true", "codex");
    assert_eq!((&found["state"], &found["version"]), (&json!("present"), &json!("0.1.0")));
    stage.program("codex", "echo codex-cli 0.2.0");
    wait_for("the newer version", || {
        (provider(&daemon, "?wait=true", "codex")["version"] == "0.2.0").then_some(())
    });
    fs::remove_file(daemon.project.join("bin/codex")).unwrap();
    wait_for("it to be gone", || (provider(&daemon, "", "codex")["state"] == "absent").then_some(()));
    assert_eq!(spawn(&daemon, &dev("codex")).0, 400);
}

/// It may have been too busy to answer.
#[test]
fn a_version_that_was_not_told_is_asked_for_again() {
    let stage = Stage::new();
    let bin = stage.project.path().join("bin");
    // The script is there, what runs it is not: it cannot be asked.
    fs::write(bin.join("codex"), format!("#!{}/late\n", bin.display())).unwrap();
    fs::set_permissions(bin.join("codex"), fs::Permissions::from_mode(0o755)).unwrap();
    let daemon = stage.daemon(&[]);
    let version = || provider(&daemon, "", "codex")["version"].as_str().map(str::to_owned);
    wait_for("the question in vain", || version().filter(|version| version == "unknown"));
    stage.program("late", "echo codex-cli 7.8.9");
    wait_for("the next question", || version().filter(|version| version == "7.8.9"));
}

#[test]
fn doctor_and_providers_tell_who_is_logged_in_and_never_a_secret() {
    let stage = Stage::new();
    let told = "case \"$*\" in\n--version) echo 1.2.3 ;;\n'auth status') cat \"$HOME/status\" ;;\nesac\n";
    stage.program("claude", told);
    stage.program(
        "codex",
        "case \"$*\" in --version) echo 0.1 ;; *) echo 'API key configured - sk-abc***xyz' ;; esac",
    );
    stage.program("gemini", "echo 0.61.0");
    let write = |name: &str, text: &str| stage.project.write(name, text);
    write("status", r#"{"loggedIn": false, "authMethod": "none"}"#);
    let daemon = stage
        .daemon(&[("GEMINI_API_KEY", "planted-gemini-key"), ("SVC_OLLAMA_URL", "http://127.0.0.1:9/v1")]);
    let doctor = || words(&svc(&daemon, &["doctor"]));
    let text = doctor();
    assert!(text.contains("provider claude-code: 1.2.3, not logged in"), "{text}");
    assert!(
        text.contains("log in: claude auth login, or store a key: svc credentials set claude-code"),
        "{text}"
    );
    assert!(text.contains("claude-code is installed, but: not logged in"), "the default: {text}");
    assert!(text.contains("provider codex: 0.1, logged in with an API key"), "{text}");
    assert!(text.contains("its key comes from the environment (GEMINI_API_KEY)"), "{text}");
    assert!(text.contains("provider ollama: built in, nobody answers at http://127.0.0.1:9/v1"), "{text}");
    assert!(text.contains("provider script: built in\n"), "{text}");
    assert!(!text.contains("sk-abc") && !text.contains("planted"), "{text}");
    write("status", r#"{"loggedIn": true, "authMethod": "claude.ai", "email": "me@example.com"}"#);
    wait_for("the login to be seen", || {
        doctor().contains("1.2.3, logged in as me@example.com").then_some(())
    });
    let table = words(&svc(&daemon, &["providers"]));
    let row = |id: &str| table.lines().find(|line| line.starts_with(id)).unwrap().to_owned();
    assert!(row("claude-code").contains(" login "), "{table}");
    assert!(row("script").contains("built in"), "svc's own version is nobody else's: {table}");
    let acp = provider(&daemon, "", "acp");
    assert_eq!((&acp["builtIn"], &acp["version"]), (&json!(true), &Value::Null));
}

/// Gemini CLI writes into its home folder even then: an agent that started just so could read empty settings.
#[test]
fn a_program_that_writes_when_it_is_asked_for_its_version_changes_nothing() {
    let settings = r#"{"security": "mine"}"#;
    let writes = "home=${GEMINI_CLI_HOME:-$HOME}\nmkdir -p \"$home/.gemini\"\n\
                  echo '{}' > \"$home/.gemini/settings.json\"\necho \"$home\" > \"$HOME/ran\"\necho 0.50.0";
    for is_package in [true, false] {
        let stage = Stage::new();
        stage.project.write(".gemini/settings.json", settings);
        stage.program("gemini", writes);
        if is_package {
            let root = stage.project.path();
            let package = root.join("lib/node_modules/@google/gemini-cli");
            stage.project.write(
                "lib/node_modules/@google/gemini-cli/package.json",
                r#"{"name": "@google/gemini-cli", "version": "0.61.0"}"#,
            );
            fs::create_dir_all(package.join("bundle")).unwrap();
            fs::rename(root.join("bin/gemini"), package.join("bundle/gemini.js")).unwrap();
            std::os::unix::fs::symlink(package.join("bundle/gemini.js"), root.join("bin/gemini")).unwrap();
        }
        let daemon = stage.daemon(&[]);
        let found = provider(&daemon, "?wait=true", "gemini");
        let version = if is_package { "0.61.0" } else { "0.50.0" };
        assert_eq!((&found["state"], &found["version"]), (&json!("present"), &json!(version)), "{found}");
        let read = |name: &str| fs::read_to_string(stage.project.path().join(name)).ok();
        assert_eq!(read(".gemini/settings.json").as_deref(), Some(settings));
        let ran = read("ran");
        assert_eq!(ran.is_none(), is_package, "what stands in a package is not run");
        assert!(ran.is_none_or(|home| !Path::new(home.trim()).exists()), "its empty folder is gone");
        assert_eq!(daemon.stop(), Some(0));
    }
}

/// The names and the contents of the files below a folder, and when they were changed.
fn all_below(folder: &Path) -> Vec<(std::path::PathBuf, std::time::SystemTime, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, data) = (entry.path(), entry.metadata().unwrap());
        if data.is_dir() {
            all.extend(all_below(&path));
        } else {
            all.push((path.clone(), data.modified().unwrap(), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

/// As installed, and behind a script that somebody has put before it.
#[test]
fn the_real_gemini_changes_nothing_when_it_is_asked_for_its_version() {
    let Some(real) = Cli::Gemini.here_alone() else { return };
    for is_behind_a_script in [false, true] {
        let stage = Stage::new();
        stage.project.write("home/.gemini/settings.json", "{}");
        if is_behind_a_script {
            stage.program("gemini", &format!("exec '{}' \"$@\"", real.display()));
        } else {
            std::os::unix::fs::symlink(&real, stage.project.path().join("bin/gemini")).unwrap();
        }
        let home = stage.project.path().join("home");
        let before = all_below(&home);
        let path = format!("{}:{}", stage.path, std::env::var("PATH").unwrap());
        let daemon = stage.daemon(&[("HOME", home.to_str().unwrap()), ("PATH", &path)]);
        let version = wait_within(Duration::from_secs(60), "its version", || {
            let version = provider(&daemon, "?wait=true", "gemini")["version"].as_str()?.to_owned();
            (version != "unknown").then_some(version)
        });
        assert!(version.starts_with("0."), "{version}");
        let gemini = |all: Vec<(std::path::PathBuf, _, _)>| {
            all.into_iter().filter(|(path, _, _)| path.starts_with(home.join(".gemini"))).collect::<Vec<_>>()
        };
        assert_eq!(gemini(all_below(&home)), gemini(before));
    }
}

/// What is asked to tell its version gets no project, no person's rights, and no secret of svc.
#[test]
fn programs_are_asked_outside_of_the_project_and_not_as_a_person() {
    let stage = Stage::new();
    stage.program(
        "claude",
        "pwd > \"$HOME/asked\"; env >> \"$HOME/asked\"; echo end >> \"$HOME/asked\"; echo 1.0",
    );
    let daemon = stage.daemon(&[("SVC_OPERATOR_TOKEN", "planted"), ("DATABASE_URL", "planted")]);
    provider(&daemon, "?wait=true", "claude-code");
    let asked = wait_for("the question", || stage.read("asked"));
    assert!(asked.starts_with("/\n"), "{asked}");
    assert!(asked.contains("SVC_AGENT_ID="), "it is marked as a process of the daemon's: {asked}");
    assert!(!asked.contains("planted"), "{asked}");
}

#[test]
fn the_environment_of_an_agent_is_settled_by_persons() {
    let stage = Stage::new();
    let tell = "env > \"$SVC_PROJECT_DIR/$SVC_AGENT_NAME.env\"; echo end >> \"$SVC_PROJECT_DIR/$SVC_AGENT_NAME.env\"\n";
    stage.program("claude", &format!("[ \"$1\" = --version ] && exit\n{tell}{RESULT}"));
    let daemon = stage.daemon(&[
        ("HTTPS_PROXY", "http://proxy:1"),
        ("NODE_EXTRA_CA_CERTS", "/ca.pem"),
        ("AWS_SECRET_ACCESS_KEY", "planted"),
        ("SSH_AUTH_SOCK", "/sock"),
        ("DATABASE_URL", "postgres://planted"),
        ("SKILLS_API_KEY", "planted"),
    ]);
    let env_of = |name: &str, env: &Value| {
        let mut body = dev("claude-code");
        body["name"] = json!(name);
        if env.is_object() {
            body["env"] = env.clone();
        }
        let (status, answer) = spawn(&daemon, &body);
        assert_eq!(status, 201, "{answer}");
        wait_for("its environment", || stage.read(&format!("{name}.env")))
    };
    let plain = env_of("plain", &Value::Null);
    assert!(
        plain.contains("HTTPS_PROXY=http://proxy:1\n") && plain.contains("NODE_EXTRA_CA_CERTS=/ca.pem\n"),
        "{plain}"
    );
    for held in ["AWS_SECRET", "SSH_AUTH_SOCK", "DATABASE_URL", "SKILLS_API_KEY"] {
        assert!(!plain.contains(held), "{held}: {plain}");
    }
    let own = env_of("own", &json!({"pass": ["SSH_AUTH_SOCK"], "set": {"CLAUDE_CODE_USE_BEDROCK": "1"}}));
    assert!(
        own.contains("SSH_AUTH_SOCK=/sock\n") && own.contains("AWS_SECRET_ACCESS_KEY=planted\n"),
        "{own}"
    );
    let settings = json!({"env": {"pass": ["DATABASE_*"], "providers": {"claude-code": {"set": {"HTTPS_PROXY": null}}}}});
    assert_eq!(daemon.send("PATCH", "/api/config", &settings).0, 200);
    let set = env_of("set", &Value::Null);
    assert!(set.contains("DATABASE_URL=postgres://planted\n") && !set.contains("HTTPS_PROXY"), "{set}");
    let told = daemon.get("/api/providers/claude-code/environment");
    let has = |list: &str, name: &str| told[list].as_array().unwrap().contains(&json!(name));
    assert!(has("passed", "DATABASE_URL") && has("passed", "NODE_EXTRA_CA_CERTS"), "{told}");
    assert!(
        has("held", "SSH_AUTH_SOCK") && has("held", "HTTPS_PROXY") && has("held", "SKILLS_API_KEY"),
        "{told}"
    );
    assert!(!told.to_string().contains("planted"), "names only: {told}");
    let doctor = words(&svc(&daemon, &["doctor"]));
    assert!(doctor.contains("held back: ") && doctor.contains("SSH_AUTH_SOCK"), "{doctor}");
    assert!(!doctor.contains("planted"), "{doctor}");
    let wrong = words(&svc(&daemon, &["spawn", "dev", "--env", "OPENAI_API_KEY=x", "go"]));
    assert!(wrong.contains("svc credentials set"), "a secret has another place: {wrong}");
    let given =
        svc(&daemon, &["spawn", "dev", "--name", "cli", "--env", "A=b c", "--pass-env", "SSH_*", "go"]);
    assert!(given.status.success(), "{}", words(&given));
    let env = wait_for("its environment", || stage.read("cli.env"));
    assert!(env.contains("A=b c\n") && env.contains("SSH_AUTH_SOCK=/sock\n"), "{env}");
}

/// An agent tries to give its child what it has not got itself.
#[test]
fn an_agent_cannot_widen_the_environment_of_its_child() {
    if Command::new("curl").arg("--version").output().is_err() {
        return eprintln!("skipped: there is no curl for the agent to call with");
    }
    let stage = Stage::new();
    let body = r#"{"role":"dev","name":"child","provider":"claude-code","env":{"pass":["SSH_AUTH_SOCK"]}}"#;
    let call = format!(
        "curl -s -d '{body}' -H 'content-type: application/json' \"$SVC_DAEMON_URL/api/agents\" > \"$HOME/answer\"\n\
         echo end >> \"$HOME/answer\"\n"
    );
    stage.program("claude", &format!("[ \"$1\" = --version ] && exit\n{call}{RESULT}"));
    let daemon = stage.daemon(&[("SSH_AUTH_SOCK", "/sock")]);
    assert_eq!(spawn(&daemon, &dev("claude-code")).0, 201);
    let answer = wait_for("the answer", || stage.read("answer"));
    assert!(answer.contains("agent_may_not"), "{answer}");
    assert_eq!(daemon.send("GET", "/api/agents/child", &Value::Null).0, 404);
}

#[test]
fn why_a_program_crashed_stands_where_one_looks() {
    let stage = Stage::new();
    stage.program(
        "codex",
        "[ \"$1\" = --version ] && exit\necho 'error: config.toml: bad line 3' >&2\nexit 1\n",
    );
    let daemon = stage.daemon(&[]);
    let mut body = dev("codex");
    body["name"] = json!("c");
    assert_eq!(spawn(&daemon, &body).0, 201);
    daemon.wait_state("c", &["crashed"]);
    let why = "it exited with code 1: error: config.toml: bad line 3";
    for args in [&["agents"][..], &["logs", "c"], &["wait", "c"]] {
        let told = words(&svc(&daemon, args));
        assert!(told.contains(why), "svc {args:?}: {told}");
    }
}

/// `auto` lets an agent work in its project and nowhere else: the kernel holds what the program does not.
#[test]
fn a_program_without_a_fence_of_its_own_works_in_its_project_and_not_outside() {
    if !svc_sys::confine::is_possible() {
        return eprintln!("skipped: this kernel cannot fence a process in");
    }
    // Not below the temporary folder, which is open to all.
    let project = Arc::new(Folder::in_target("auto-fence"));
    fs::create_dir_all(project.path().join("project/bin")).unwrap();
    let outside = project.path().join("outside.txt");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit\necho \"$@\" > args.txt\necho yes > inside.txt\n\
         mkdir -p web && (cd web && echo yes > deep.txt)\necho no > '{}'\necho end > done.txt\n",
        outside.display()
    );
    for (id, program, flag) in [
        ("gemini", "gemini", "--approval-mode yolo"),
        ("qwen", "qwen", "--yolo"),
        ("copilot", "copilot", "--allow-all-tools"),
        ("cline", "cline", "--auto-approve true"),
    ] {
        let root = Arc::new(Folder::in_target(&format!("auto-{id}")));
        // What the fence does alone; a room would keep the last one in, too.
        root.write(".svc/config.json", OPEN);
        let bin = project.path().join("project/bin");
        fs::write(bin.join(program), &script).unwrap();
        fs::set_permissions(bin.join(program), fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let daemon = Daemon::start_in(root, &[("PATH", &path)]);
        assert_eq!(spawn(&daemon, &dev(id)).0, 201);
        let read = |name: &str| fs::read_to_string(daemon.project.join(name)).ok();
        wait_for(&format!("{id} to have worked"), || read("done.txt"));
        assert_eq!(read("inside.txt").as_deref(), Some("yes\n"), "{id}");
        assert_eq!(read("web/deep.txt").as_deref(), Some("yes\n"), "{id}");
        assert!(read("args.txt").unwrap().contains(flag), "{id}: {:?}", read("args.txt"));
        assert!(!Path::new(&outside).exists(), "{id} wrote outside");
        let mut loose = dev(id);
        loose["permission"] = json!("full");
        assert_eq!(spawn(&daemon, &loose).0, 201);
        wait_for(&format!("{id} to write outside, as it was let loose"), || outside.exists().then_some(()));
        fs::remove_file(&outside).unwrap();
    }
}
