//! Accounts of a provider: the environment and the places that its program really gets, with and without a
//! room, as root and as an ordinary user; and the real Codex with two homes.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::daemon::{Daemon, OPEN, is_root};
use crate::support::folder::Folder;
use crate::support::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// An ordinary user, where root runs the tests.
const USER: u32 = 12_346;
const TOKEN: &str = "a-token-that-no-agent-gets";
const KEY: &str = "sk-usual-key-of-the-environment";
const OWN_KEY: &str = "sk-own-key-of-the-vault-0123456789";
/// A turn of the real Codex takes some seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Speaks as Codex does, and tells what it sees: its variables, and which logins it can read.
const PROGRAM: &str = r#"#!/bin/sh
[ "$1" != --version ] || { echo codex-cli 0.169.0; exit; }
home="${CODEX_HOME:-$HOME/.codex}"
if [ "$1" = login ]; then
  grep -q login "$home/auth.json" 2>/dev/null && { echo "Logged in using ChatGPT"; exit; }
  echo "Not logged in"; exit 1
fi
cat >/dev/null
echo written >"$home/written-by-$SVC_AGENT_NAME"
{
  echo "CODEX_HOME=$CODEX_HOME"
  echo "OPENAI_API_KEY=$OPENAI_API_KEY"
  for file in $HOME/.codex/auth.json $(cat logins); do
    cat "$file" 2>/dev/null
  done
  # What it could write there, if anything, goes nowhere.
  for place in "$HOME/.codex" "$HOME/.config/svc" $(dirname $(cat logins)); do
    [ "$place" = "$home" ] || { echo planted >"$place/planted"; } 2>/dev/null
  done
  find "$HOME/.config/svc" -name auth.json 2>/dev/null
} >"seen-$SVC_AGENT_NAME"
echo '{"type":"thread.started","thread_id":"thread-1"}'
echo '{"type":"turn.started"}'
echo '{"type":"turn.completed","usage":{"input_tokens":5,"output_tokens":5}}'
"#;

struct Stage {
    daemon: Daemon,
    home: Folder,
}

impl Stage {
    fn new(user: Option<u32>, settings: &str) -> Self {
        Self::with_key(user, settings, KEY)
    }

    /// `key`: of the daemon's environment.
    fn with_key(user: Option<u32>, settings: &str, key: &str) -> Self {
        let (project, home) = (Folder::new("accounts"), Folder::new("accounts-home"));
        project.write(".svc/config.json", settings);
        home.write("bin/codex", PROGRAM);
        home.write(".codex/auth.json", "login-usual\n");
        home.write(".config/svc/config.json", "{}");
        fs::set_permissions(home.path().join("bin/codex"), fs::Permissions::from_mode(0o755)).unwrap();
        if let Some(user) = user.filter(|_| is_root()) {
            home.give_to(user);
        }
        let path = format!("{}/bin:{}", home.path().display(), std::env::var("PATH").unwrap());
        let config = home.path().join(".config");
        let env = [
            ("HOME", home.path().to_str().unwrap()),
            ("XDG_CONFIG_HOME", config.to_str().unwrap()),
            ("PATH", path.as_str()),
            ("OPENAI_API_KEY", key),
            ("SVC_OPERATOR_TOKEN", TOKEN),
        ];
        let daemon = match user {
            Some(user) => Daemon::start_as(user, Arc::new(project), &env),
            None => Daemon::start_in(Arc::new(project), &env),
        };
        Self { daemon: daemon.with_token(TOKEN), home }
    }

    fn account_home(&self, name: &str) -> PathBuf {
        self.home.path().join(".config/svc/accounts").join(name).join("codex")
    }

    /// Adds one; the person logs in.
    fn account(&self, name: &str) -> Value {
        let told = self.daemon.post("/api/accounts", &json!({"name": name, "provider": "codex"}));
        let home = self.account_home(name);
        assert_eq!(told["home"], home.to_str().unwrap(), "{told}");
        assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(home.join("auth.json"), format!("login-{name}\n")).unwrap();
        fs::set_permissions(home.join("auth.json"), fs::Permissions::from_mode(0o644)).unwrap();
        told
    }

    /// What an agent of this account has seen: its home, its key, the logins, and where it found some.
    fn seen(&self, name: &str, body: &Value) -> (String, String, Vec<String>) {
        let mut body = body.clone();
        (body["role"], body["name"], body["prompt"]) = (json!("dev"), json!(name), json!("go"));
        let id = wait_for("codex to be found", || {
            let (status, record) = self.daemon.send("POST", "/api/agents", &body);
            (status == 201).then(|| record["id"].as_str().unwrap().to_owned())
        });
        let ended = self.daemon.wait_state(&id, &["completed", "crashed", "killed"]);
        assert_eq!(ended["state"], "completed", "{ended:#}\n{}", self.daemon.log());
        let told = fs::read_to_string(self.daemon.project.join(format!("seen-{name}"))).unwrap();
        let mut lines = told.lines().map(str::to_owned);
        let mut value = |name: &str| lines.next().unwrap().strip_prefix(name).unwrap().to_owned();
        let (home, key) = (value("CODEX_HOME="), value("OPENAI_API_KEY="));
        let mut seen: Vec<String> = lines.collect();
        // The order of a folder is nobody's.
        let found = seen.iter().position(|line| line.starts_with('/')).unwrap_or(seen.len());
        seen[found..].sort();
        (home, key, seen)
    }
}

/// Whether this system can make rooms; one that cannot has nothing to be tried here.
fn has_rooms() -> bool {
    let tried = Command::new(env!("CARGO_BIN_EXE_svc")).args(["__cage", "--try"]).output().unwrap();
    if !tried.status.success() {
        eprintln!("SKIPPED, NO ROOMS HERE: {}", String::from_utf8_lossy(&tried.stdout));
    }
    tried.status.success()
}

fn each_sees_its_own_login(user: Option<u32>, settings: &str, has_room: bool) {
    if has_room && !has_rooms() {
        return;
    }
    let stage = Stage::new(user, settings);
    let daemon = &stage.daemon;
    let told = stage.account("work");
    let command = format!("CODEX_HOME={} codex login", stage.account_home("work").display());
    assert_eq!((&told["loginCommand"], &told["keyName"]), (&json!(command), &json!("account/work")));
    stage.account("priv");
    daemon.post("/api/credentials", &json!({"provider": "account/priv", "key": OWN_KEY}));
    let folder = |name: &str| stage.account_home(name).to_str().unwrap().to_owned();
    let set = stage.home.path().join("set-for-one");
    fs::create_dir(&set).unwrap();
    fs::write(set.join("auth.json"), "login-set\n").unwrap();
    if let Some(user) = user.filter(|_| is_root()) {
        stage.home.give_to(user);
    }
    let set = set.to_str().unwrap().to_owned();
    let all = [folder("work"), folder("priv"), set.clone()].map(|home| format!("{home}/auth.json"));
    fs::write(daemon.project.join("logins"), all.join("\n")).unwrap();

    let everything = ["login-usual", "login-work", "login-priv", "login-set"];
    let is_hidden = settings.contains("hide");
    let logins = |home: &str, own: &[&str]| -> Vec<String> {
        let shown: &[&str] = if has_room { own } else { &everything };
        let of_others = |login: &&&str| !(is_hidden && **login == "login-set" && own.len() > 1);
        let mut seen: Vec<String> = shown.iter().filter(of_others).map(|&login| login.to_owned()).collect();
        // Of svc's own folder it finds its own place, and nothing else.
        let found: Vec<String> = ["priv", "work"]
            .map(|name| stage.account_home(name))
            .iter()
            .map(|home| format!("{}/auth.json", home.display()))
            .collect();
        seen.extend(
            found.into_iter().filter(|place| !has_room || (!home.is_empty() && place.starts_with(home))),
        );
        seen
    };
    let expected = |home: &str, key: &str, own: &[&str]| (home.to_owned(), key.to_owned(), logins(home, own));
    let of = |account: &str| json!({"provider": "codex", "account": account});
    // The folder that a person has set for one agent is in nobody's way but by its own place.
    assert_eq!(stage.seen("a", &of("default")), expected("", KEY, &["login-usual", "login-set"]));
    assert_eq!(stage.seen("b", &of("work")), expected(&folder("work"), "", &["login-work", "login-set"]));
    let told = stage.seen("c", &json!({"account": "priv"}));
    assert_eq!(told, expected(&folder("priv"), OWN_KEY, &["login-priv", "login-set"]));
    let body = json!({"provider": "codex", "env": {"set": {"CODEX_HOME": set}}});
    assert_eq!(stage.seen("d", &body), expected(&set, KEY, &["login-set"]));
    // What each has written stays, in its own home.
    let usual = stage.home.path().join(".codex");
    let homes = [usual, stage.account_home("work"), stage.account_home("priv"), PathBuf::from(set)];
    for (home, name) in homes.iter().zip(["a", "b", "c", "d"]) {
        let wrote = ["a", "b", "c", "d"].map(|name| home.join(format!("written-by-{name}")).exists());
        assert_eq!(wrote, ["a", "b", "c", "d"].map(|one| one == name), "{name}");
    }
    if has_room {
        let planted = homes.iter().filter(|home| home.join("planted").exists()).count();
        assert!(planted == 0 && !stage.home.path().join(".config/svc/planted").exists());
    }
    let records = daemon.get("/api/agents");
    let word = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    let mut accounts: Vec<_> =
        records.as_array().unwrap().iter().map(|one| (word(one, "name"), word(one, "account"))).collect();
    accounts.sort();
    let of = |name: &str, account: &str| (name.to_owned(), account.to_owned());
    assert_eq!(accounts, [of("a", "default"), of("b", "work"), of("c", "priv"), of("d", "default")]);
    // No answer and no file of the project has the key.
    let listed = daemon.get("/api/accounts?login=true");
    assert_eq!(listed["accounts"][0]["login"]["told"], "logged in with ChatGPT", "{listed:#}");
    assert!(!listed.to_string().contains(OWN_KEY));
    for file in ["state/accounts.json", "audit.log", "state/agents.json"] {
        let text = fs::read_to_string(daemon.project.join(".svc").join(file)).unwrap_or_default();
        assert!(!text.contains(OWN_KEY), "{file}");
    }
}

#[test]
fn each_account_sees_its_own_login_in_a_room() {
    each_sees_its_own_login(None, "{}", true);
}

#[test]
fn each_account_sees_its_own_login_in_a_room_of_an_ordinary_user() {
    each_sees_its_own_login(Some(USER), "{}", true);
}

#[test]
fn each_account_sees_its_own_login_where_the_home_folder_is_only_read() {
    each_sees_its_own_login(None, r#"{"isolation": {"home": "read"}}"#, true);
}

#[test]
fn each_account_sees_its_own_login_where_the_home_folder_is_hidden() {
    each_sees_its_own_login(None, r#"{"isolation": {"home": "hide"}}"#, true);
}

#[test]
fn each_account_sees_its_own_login_behind_the_kernel_s_fence_in_a_room() {
    each_sees_its_own_login(Some(USER), r#"{"enforcement": "kernel"}"#, true);
}

#[test]
fn each_account_gets_its_own_variables_without_a_room() {
    each_sees_its_own_login(None, OPEN, false);
}

#[test]
fn auto_asks_who_is_logged_in_and_places_that_are_none_of_an_account_s_are_refused() {
    let stage = Stage::with_key(None, OPEN, "");
    fs::write(stage.daemon.project.join("logins"), "").unwrap();
    for name in ["one", "two"] {
        stage.account(name);
    }
    // Nobody is logged in to the usual one and the first.
    fs::write(stage.home.path().join(".codex/auth.json"), "out").unwrap();
    fs::write(stage.account_home("one").join("auth.json"), "out").unwrap();
    let told = stage.seen("a", &json!({"provider": "codex", "account": "auto"}));
    assert_eq!((told.0, told.1), (stage.account_home("two").to_str().unwrap().to_owned(), String::new()));
    let listed = stage.daemon.get("/api/accounts");
    assert_eq!(
        (&listed["accounts"][0]["ready"], &listed["accounts"][1]["ready"]),
        (&json!(false), &json!(true))
    );
    // Programs that are asked at once do not end each other.
    for n in 0..8 {
        stage.account(&format!("more-{n}"));
    }
    let listed = stage.daemon.get("/api/accounts?login=true");
    let told = |one: &Value| one["login"]["told"].as_str().map(str::to_owned);
    let told: Vec<_> = listed["accounts"].as_array().unwrap().iter().map(told).collect();
    assert!(told.len() == 10 && told.iter().all(Option::is_some), "{told:?}");
    for n in 0..8 {
        let (status, _) = stage.daemon.send("DELETE", &format!("/api/accounts/more-{n}"), &Value::Null);
        assert_eq!(status, 200);
    }
    // Places that are none of an account's.
    for (home, words) in [
        (stage.daemon.project.join("in").to_str().unwrap(), "in the project"),
        (stage.home.path().to_str().unwrap(), "your home folder"),
        ("/", "around it"),
        ("/proc/1/x", ""),
    ] {
        let body = json!({"name": "bad", "provider": "codex", "home": home});
        let (status, told) = stage.daemon.send("POST", "/api/accounts", &body);
        assert!(status == 400 && told["errors"][0]["field"] == "home", "{home}: {told}");
        assert!(told.to_string().contains(words), "{home}: {told}");
    }
    assert!(!stage.daemon.project.join("in").exists());
    let open = stage.home.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let body = json!({"name": "bad", "provider": "codex", "home": open.to_str().unwrap()});
    assert!(stage.daemon.send("POST", "/api/accounts", &body).1.to_string().contains("chmod 700"));
    let stored = fs::read_to_string(stage.daemon.project.join(".svc/state/accounts.json")).unwrap();
    let stored: Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(stored["accounts"].as_array().unwrap().len(), 2, "{stored}");
}

/// Each home has a session of its own, which the other one does not know; svc reads its record there.
#[test]
fn real_codex_works_with_two_homes() {
    if !Cli::Codex.is_here() {
        return;
    }
    let project = Arc::new(Folder::in_target("accounts"));
    project.write(".svc/config.json", OPEN);
    let aimock = Aimock::start(project.path());
    let home = Home::new(&aimock.url);
    let variables = home.variables(Cli::Codex, &aimock.url);
    let of = |wanted: &str| {
        variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone()).unwrap()
    };
    let settings = fs::read_to_string(Path::new(&of("CODEX_HOME")).join("config.toml")).unwrap();
    // The usual home is set up to talk to nobody.
    home.write(".codex/config.toml", &settings.replace(&aimock.url, "http://127.0.0.1:9"));
    let env: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let daemon = Daemon::start_in(Arc::clone(&project), &env);
    let root = PathBuf::from(of("HOME"));
    for name in ["one", "two"] {
        home.write(&format!("accounts/{name}/config.toml"), &settings);
        let folder = root.join("accounts").join(name);
        let body = json!({"name": name, "provider": "codex", "home": folder.to_str().unwrap()});
        daemon.post("/api/accounts", &body);
        let key = json!({"provider": format!("account/{name}"), "key": "scripted-model-key-0123456789"});
        daemon.post("/api/credentials", &key);
    }
    let turn = |name: &str, path: &str, body: &Value| {
        daemon.post(path, body);
        wait_within(LIMIT, "the turn", || {
            let record = daemon.get(&format!("/api/agents/{name}"));
            (record["status"] != "active").then_some(record)
        })
    };
    let sessions = |name: &str| {
        let list =
            Command::new("find").arg(root.join(name)).args(["-name", "rollout-*.jsonl"]).output().unwrap();
        String::from_utf8(list.stdout).unwrap().lines().count()
    };
    for name in ["one", "two"] {
        let body = json!({"role": "dev", "name": name, "account": name, "model": Cli::Codex.model(),
            "prompt": "Please do REAL-PLAIN now."});
        let ended = turn(name, "/api/agents", &body);
        let log = daemon.get(&format!("/api/agents/{name}/log?tail=1000"));
        assert_eq!(ended["state"], "completed", "{ended:#}\n{log:#}");
        assert!(log.to_string().contains("This is the plain answer."), "{log:#}");
        assert!(ended["contextWindow"].as_u64().unwrap() > 0, "its record was found: {ended:#}");
    }
    assert_eq!(["accounts/one", "accounts/two", ".codex"].map(sessions), [1, 1, 0]);
    // It goes on in its own home.
    let body = json!({"message": "Please do REAL-SECOND now."});
    let ended = turn("two", "/api/agents/two/resume", &body);
    let log = daemon.get("/api/agents/two/log?tail=1000");
    assert_eq!(ended["state"], "completed", "{ended:#}\n{log:#}");
    assert!(log.to_string().contains("This is the answer to the second message."), "{log:#}");
    assert_eq!(["accounts/one", "accounts/two", ".codex"].map(sessions), [1, 1, 0]);
}
