//! Whom the built daemon trusts with what: agents' processes, however they hide, and a planted secret.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PLANTED: &str = "sk-planted-7f3a9c51d2e84b60-secret";

/// What only a person may do, each as a call: a word, method, path, body.
const FORBIDDEN: &[(&str, &str, &str, &str)] = &[
    ("approve", "POST", "/api/approvals", r#"{"id":"apr-00000001","decision":"approve"}"#),
    ("approve-by-path", "POST", "/api/approvals/apr-00000001/approve", "{}"),
    ("reject", "POST", "/api/approvals/apr-00000001/reject", "{}"),
    ("config", "PATCH", "/api/config", r#"{"maxAgents":99}"#),
    ("read-keys", "GET", "/api/credentials", ""),
    ("set-key", "POST", "/api/credentials", r#"{"provider":"codex","key":"stolen"}"#),
    ("remove-key", "DELETE", "/api/credentials/codex", ""),
    ("shutdown", "POST", "/api/shutdown", "{}"),
    (
        "act-as",
        "POST",
        "/api/coordination/declare",
        r#"{"agentId":"victim","operation":"o","resources":["r"]}"#,
    ),
    ("free-for", "POST", "/api/coordination/complete", r#"{"agentId":"victim"}"#),
];

/// A script that tries everything forbidden and writes `word status code` lines to the file it is given.
fn attempts(url: &str) -> String {
    let mut script = format!("#!/bin/sh\nPATH={}\nexport PATH\n", std::env::var("PATH").unwrap());
    script.push_str("rm -f \"$1\"; : > \"$1.tmp\"\n");
    for (word, method, path, body) in FORBIDDEN {
        let data = if body.is_empty() {
            String::new()
        } else {
            format!("-H 'content-type: application/json' -d '{body}'")
        };
        let _ = write!(
            script,
            "answer=$(curl -s -X {method} {data} -w ' %{{http_code}}' {url}{path})\n\
             status=${{answer##* }}\n\
             code=$(printf '%s' \"$answer\" | sed -n 's/.*\"code\":\"\\([a-z_]*\\)\".*/\\1/p')\n\
             echo \"{word} $status $code\" >> \"$1.tmp\"\n"
        );
    }
    script.push_str("mv \"$1.tmp\" \"$1\"\n");
    script
}

fn write_script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A project with `attempts.sh`, and a live agent `victim`.
fn daemon_with_victim() -> Daemon {
    let daemon = Daemon::start();
    write_script(&daemon.project.join("attempts.sh"), &attempts(&daemon.url));
    let victim = json!({"role": "dev", "name": "victim", "provider": "script", "model": "hang"});
    daemon.post("/api/agents", &victim);
    daemon
}

/// Spawns an agent that runs this command line and then hangs, so that it stays to be asked about.
fn spawn_running(daemon: &Daemon, name: &str, command: &str) -> String {
    let folder = daemon.project.join(".svc/rehearsals");
    fs::create_dir_all(&folder).unwrap();
    let steps = json!({"steps": [{"run": {"command": command, "timeoutMs": 60_000}}, {"hang": true}]});
    fs::write(folder.join(format!("{name}.json")), steps.to_string()).unwrap();
    let body = json!({"role": "dev", "name": name, "provider": "script", "model": name, "prompt": "go"});
    daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned()
}

fn all_refused(daemon: &Daemon, file: &str, how: &str) {
    let path = daemon.project.join(file);
    let told = wait_for(&format!("{how} to have tried"), || fs::read_to_string(&path).ok());
    let wanted: Vec<String> =
        FORBIDDEN.iter().map(|(word, ..)| format!("{word} 403 agent_may_not")).collect();
    assert_eq!(told.lines().collect::<Vec<_>>(), wanted, "{how}");
}

#[test]
fn decisions_4_an_agents_process_may_not_do_what_is_a_persons() {
    let daemon = daemon_with_victim();
    let id = spawn_running(&daemon, "thief", "sh attempts.sh plain");
    all_refused(&daemon, "plain", "its own shell");
    assert_eq!(daemon.get("/api/config")["maxAgents"], 10);
    // The same by a person's curl is answered on its merits.
    let (status, body) = daemon.send("POST", "/api/approvals/apr-00000001/approve", &json!({}));
    assert_eq!(status, 404, "{body}");
    assert_eq!(daemon.send("PATCH", "/api/config", &json!({"maxAgents": 12})).0, 200);
    assert_eq!(daemon.get("/api/credentials"), json!([]));
    let curl =
        Command::new("curl").args(["-s", &format!("{}/api/credentials", daemon.url)]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&curl.stdout), "[]");
    let audit = daemon.get("/api/audit?event=config.patch");
    let actors: Vec<_> = audit["entries"].as_array().unwrap().iter().map(|e| e["actor"].clone()).collect();
    assert_eq!(actors, ["operator"], "no attempt of {id} is recorded as done");
}

#[test]
fn decisions_4_a_process_that_left_its_agent_is_no_operator() {
    let daemon = daemon_with_victim();
    // Two forks, a session of its own, no variable left: nothing but the kernel's memory ties it to the
    // agent.
    let hide = "(env -i setsid sh -c 'while [ \"$(cut -d\" \" -f4 /proc/$$/stat)\" = \"'$$'\" ]; do :; done; \
                sh attempts.sh hidden' >/dev/null 2>&1 &)";
    spawn_running(&daemon, "thief", &format!("PATH=$PATH sh -c '{}'; true", hide.replace('\'', "'\\''")));
    all_refused(&daemon, "hidden", "a double fork without environment");
}

#[test]
fn decisions_4_a_marker_that_names_another_agent_is_not_believed() {
    let daemon = daemon_with_victim();
    let victim = daemon.get("/api/agents/victim")["id"].as_str().unwrap().to_owned();
    spawn_running(&daemon, "thief", &format!("SVC_AGENT_ID={victim} sh attempts.sh forged"));
    all_refused(&daemon, "forged", "a forged marker");
    spawn_running(&daemon, "thief2", &format!("SVC_AGENT_ID={victim} setsid sh attempts.sh forged2"));
    all_refused(&daemon, "forged2", "a forged marker in a session of its own");
}

#[test]
fn decisions_4_who_hangs_up_at_once_changes_nothing() {
    let daemon = daemon_with_victim();
    let address = daemon.url.trim_start_matches("http://");
    let (host, port) = address.split_once(':').unwrap();
    let body = r#"{"maxAgents":99}"#;
    let script = format!(
        "#!/bin/bash\nfor n in $(seq 50); do (\n exec 3<>/dev/tcp/{host}/{port}\n\
         printf 'PATCH /api/config HTTP/1.1\\r\\n\
         Host: {address}\\r\\nContent-Type: application/json\\r\\n\
         Content-Length: {}\\r\\n\\r\\n%s' '{body}' >&3; exec 3>&-\n ); done\n\
         touch rushed\n",
        body.len()
    );
    write_script(&daemon.project.join("rush.sh"), &script);
    spawn_running(&daemon, "thief", "./rush.sh");
    wait_for("the rush", || daemon.project.join("rushed").exists().then_some(()));
    // A later call on the calls' own lane comes after all of them.
    daemon.post("/api/agents/victim/instruct", &json!({"message": "x"}));
    assert_eq!(daemon.get("/api/config")["maxAgents"], 10);
    assert_eq!(daemon.get("/api/audit?event=config.patch")["entries"], json!([]));
}

#[test]
fn decisions_4_an_agents_own_id_is_filled_in() {
    let daemon = Daemon::start();
    let call = format!(
        "curl -s -o own.tmp -H 'content-type: application/json' -d '{{\"operation\":\"npm install\",\
         \"resources\":[\"package.json\"]}}' {}/api/coordination/declare && mv own.tmp own",
        daemon.url
    );
    let id = spawn_running(&daemon, "worker", &call);
    let path = daemon.project.join("own");
    let told = wait_for("the declaration", || fs::read_to_string(&path).ok());
    assert!(told.contains("\"declared\":true"), "{told}");
    let held = daemon.get("/api/coordination");
    assert_eq!(held["operations"][&id]["resources"], json!(["package.json"]), "{held}");
    let (status, body) = daemon.send(
        "POST",
        "/api/coordination/declare",
        &json!({"agentId": "someone", "operation": "o", "resources": ["package.json"]}),
    );
    assert_eq!((status, &body["owner"]), (423, &json!(id)));
    let audit = daemon.get("/api/audit?event=coordination.declare&limit=1");
    assert_eq!(audit["entries"][0]["actor"], format!("agent:{id}"));
    daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null);
    assert_eq!(daemon.get("/api/coordination")["operations"], json!({}), "an ended agent holds nothing");
}

/// Every file below a folder that holds these bytes.
fn files_with(folder: &Path, needle: &[u8], found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_with(&path, needle, found);
        } else if fs::read(&path).is_ok_and(|bytes| bytes.windows(needle.len()).any(|part| part == needle)) {
            found.push(path.display().to_string());
        }
    }
}

/// Puts a program in the place of a provider's, which tells whether it was given the key, without writing it
/// down. A `PATH` that finds it first.
fn stand_in_for_codex(folder: &Folder) -> String {
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let (head, tail) = PLANTED.split_at(10);
    write_script(
        &bin.join("codex"),
        &format!(
            "#!/bin/sh\ncase \"$*\" in *--version*) echo codex 9.9.9; exit;; esac\n\
             [ \"$OPENAI_API_KEY\" = \"{head}\"\"{tail}\" ] && echo yes > got-key || echo no > got-key\n\
             exec cat >/dev/null\n"
        ),
    );
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

/// Looks at every process of the project: no argument holds the key, and only the rich agent's environment
/// does.
fn no_process_but_the_agents_has_it(daemon: &Daemon) {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let is_ours =
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|dir| dir.starts_with(&daemon.project));
        if !is_ours && pid != daemon.pid() {
            continue;
        }
        let has = |bytes: &[u8], what: &str| bytes.windows(what.len()).any(|part| part == what.as_bytes());
        assert!(!has(&read("cmdline"), PLANTED), "in an argument of {pid}");
        let environ = read("environ");
        let is_rich = has(&environ, "SVC_AGENT_NAME=rich");
        assert!(is_rich || !has(&environ, PLANTED), "in the environment of {pid}");
    }
}

#[test]
fn issue_4_a_planted_secret_is_found_nowhere_but_in_its_agents_environment() {
    let folder = Arc::new(Folder::new("secret"));
    let path = stand_in_for_codex(&folder);
    let daemon = Daemon::start_in(Arc::clone(&folder), &[("PATH", &path), ("SVC_LOG", "trace")]);
    let (status, body) =
        daemon.send("POST", "/api/credentials", &json!({"provider": "codex", "key": PLANTED}));
    assert_eq!((status, body), (200, json!({"ok": true, "provider": "codex", "masked": "sk-p...cret"})));
    let (status, body) = daemon.send("POST", "/api/credentials", &json!({"provider": "a b", "key": PLANTED}));
    assert!(status == 400 && !body.to_string().contains(PLANTED), "{body}");
    let list = daemon.get("/api/credentials");
    assert_eq!((&list[0]["provider"], &list[0]["masked"]), (&json!("codex"), &json!("sk-p...cret")));
    let codex = wait_for("codex to be found", || {
        let list = daemon.get("/api/providers");
        list.as_array().unwrap().iter().find(|p| p["id"] == "codex" && p["installed"] == true).cloned()
    });
    assert_eq!(codex["hasKey"], true);
    daemon.post("/api/agents", &json!({"role": "dev", "name": "rich", "provider": "codex", "prompt": "go"}));
    daemon
        .post("/api/agents", &json!({"role": "dev", "name": "poor", "provider": "script", "model": "hang"}));
    let got = wait_for("the agent to look", || {
        fs::read_to_string(daemon.project.join("got-key")).ok().filter(|text| !text.is_empty())
    });
    assert_eq!(got.trim(), "yes");
    for path in [
        "/api/agents",
        "/api/agents/rich",
        "/api/agents/rich/log",
        "/api/config",
        "/api/audit",
        "/api/status",
        "/api/providers",
        "/api/credentials",
        "/api/openapi.json",
        "/metrics",
    ] {
        assert!(!daemon.get(path).to_string().contains(PLANTED), "{path}");
    }
    assert_eq!(daemon.get("/api/audit?event=credentials.set")["entries"][0]["name"], "codex");
    no_process_but_the_agents_has_it(&daemon);
    let project = daemon.project.clone();
    assert_eq!(daemon.stop(), Some(0));
    let mut found = Vec::new();
    files_with(&project, PLANTED.as_bytes(), &mut found);
    assert_eq!(found, Vec::<String>::new(), "on disk");
    let mode =
        |name: &str| fs::metadata(project.join(".svc").join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("credentials.key"), mode("credentials.json"), mode("audit.jsonl")),
        (0o600, 0o600, 0o600)
    );
    let again = Daemon::start_in(folder, &[]);
    assert_eq!(again.get("/api/credentials")[0]["masked"], "sk-p...cret", "it survives a restart");
    assert_eq!(again.send("DELETE", "/api/credentials/codex", &Value::Null).0, 200);
    assert_eq!(again.get("/api/credentials"), json!([]));
}

#[test]
fn credentials_without_their_key_stop_what_needs_them_and_stay_as_they_are() {
    let folder = Arc::new(Folder::new("lost-key"));
    let path = stand_in_for_codex(&folder);
    let daemon = Daemon::start_in(Arc::clone(&folder), &[("PATH", &path)]);
    daemon.post("/api/credentials", &json!({"provider": "codex", "key": PLANTED}));
    assert_eq!(daemon.stop(), Some(0));
    let (key, sealed) =
        (folder.path().join(".svc/credentials.key"), folder.path().join(".svc/credentials.json"));
    let before = fs::read(&sealed).unwrap();
    let good_key = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();

    let daemon = Daemon::start_in(Arc::clone(&folder), &[("PATH", &path)]);
    let words = "1 credentials cannot be opened: credentials.key is missing; restore it, or set them again";
    assert!(daemon.log().contains(words), "{}", daemon.log());
    wait_for("codex to be found", || {
        let list = daemon.get("/api/providers");
        list.as_array().unwrap().iter().any(|p| p["id"] == "codex" && p["installed"] == true).then_some(())
    });
    let wish = json!({"role": "dev", "name": "poor", "provider": "codex", "prompt": "go"});
    daemon.post("/api/agents", &wish);
    let record = daemon.wait_state("poor", &["crashed"]);
    let reason = record["statusReason"].as_str().unwrap();
    assert!(reason.contains("credential \"codex\" cannot be read with this key; restore"), "{reason}");
    assert!(!folder.path().join("got-key").exists(), "it was started without the key it needs");
    assert_eq!(daemon.stop(), Some(0));
    assert!(!key.exists(), "another key in its place would make the lost one useless");
    assert_eq!(fs::read(&sealed).unwrap(), before);

    fs::write(&key, good_key).unwrap();
    let daemon = Daemon::start_in(Arc::clone(&folder), &[("PATH", &path)]);
    assert_eq!(daemon.log().matches(words).count(), 1, "now it is there: {}", daemon.log());
    let wish = json!({"role": "dev", "name": "rich", "provider": "codex", "prompt": "go"});
    daemon.post("/api/agents", &wish);
    let got = wait_for("the agent to look", || {
        fs::read_to_string(folder.path().join("got-key")).ok().filter(|text| !text.is_empty())
    });
    assert_eq!(got.trim(), "yes");
}

/// One request on this connection; the time until its answer was read.
fn timed(stream: &mut TcpStream, request: &str) -> Duration {
    let begun = Instant::now();
    stream.write_all(request.as_bytes()).unwrap();
    let mut seen = Vec::new();
    let mut buffer = vec![0; 65536];
    loop {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "closed: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&seen);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")
                .and_then(|n| n.trim().parse::<usize>().ok())
        });
        if length.is_some_and(|length| body.len() >= length) {
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            return begun.elapsed();
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Prints what the look at the caller costs; no assertion, for the machine decides.
#[test]
fn issue_4_the_cost_of_knowing_the_caller_is_told() {
    let daemon = Daemon::start();
    daemon.send("PATCH", "/api/config", &json!({"maxAgents": 60}));
    let address = daemon.url.trim_start_matches("http://").to_owned();
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let connect = || {
        let stream = TcpStream::connect(&address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    };
    let mut alive = 0;
    for agents in [0, 10, 50] {
        while alive < agents {
            let id = daemon.spawn("hang");
            daemon.wait_state(&id, &["running"]);
            alive += 1;
        }
        let first = |path: &str| median((0..51).map(|_| timed(&mut connect(), &ask(path))).collect());
        let (plain, guarded) = (first("/api/config"), first("/api/credentials"));
        let mut kept = connect();
        timed(&mut kept, &ask("/api/credentials"));
        let later = median((0..51).map(|_| timed(&mut kept, &ask("/api/credentials"))).collect());
        println!(
            "{agents} agents: open endpoint {plain:?}, operator's endpoint first {guarded:?} (the look: \
             {:?}), same connection again {later:?}",
            guarded.saturating_sub(plain)
        );
    }
}

/// One call of the command line in a daemon's project.
fn svc(daemon: &Daemon, args: &[&str], input: &str) -> (Option<i32>, String, String) {
    use std::process::Stdio;
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).current_dir(&daemon.project).env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_command_line_keeps_keys_shows_locks_and_tells_who_changed_what() {
    let daemon = Daemon::start();
    let ok = |args: &[&str], input: &str| {
        let (code, out, err) = svc(&daemon, args, input);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}: {out}");
        out
    };
    assert_eq!(
        ok(&["credentials", "list"], ""),
        "no key is stored; store one with 'svc credentials set PROVIDER'\n"
    );
    let told = ok(&["credentials", "set", "codex"], &format!("{PLANTED}\n"));
    assert_eq!(told, "stored the key of codex: sk-p...cret\n");
    assert!(ok(&["credentials", "list"], "").contains("sk-p...cret"));
    assert_eq!(ok(&["credentials", "list", "-q"], ""), "codex\n");
    assert_eq!(ok(&["credentials", "remove", "codex"], ""), "forgot the key of codex\n");
    assert_eq!(svc(&daemon, &["credentials", "remove", "codex"], "").0, Some(1));
    assert_eq!(svc(&daemon, &["credentials", "set", "codex"], "\n").0, Some(2));
    assert_eq!(
        svc(&daemon, &["credentials", "set", "codex", "sk-an-argument"], "").0,
        Some(2),
        "never an argument"
    );
    assert_eq!(ok(&["locks"], ""), "nobody holds a resource\n");
    let body =
        json!({"agentId": "release", "operation": "npm install", "resources": ["package.json", "lock"]});
    daemon.post("/api/coordination/declare", &body);
    let locks = ok(&["locks"], "");
    assert!(locks.contains("npm install") && locks.contains("package.json lock"), "{locks}");
    assert_eq!(ok(&["approvals"], ""), "nothing waits for you\n");
    let audit = ok(&["audit", "--event", "credentials"], "");
    let events: Vec<_> = audit.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(events, ["credentials.remove", "credentials.set"], "{audit}");
    assert!(ok(&["audit", "-n", "1"], "").contains("coordination.declare"));
    assert_eq!(ok(&["audit", "--event", "nonsense"], ""), "no entry fits\n");
    assert_eq!(svc(&daemon, &["audit", "--limit", "many"], "").0, Some(1));
}

#[test]
fn decisions_5_and_13_what_was_acknowledged_survives_a_kill() {
    let folder = Arc::new(Folder::new("trust-kill"));
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    daemon.post("/api/credentials", &json!({"provider": "codex", "key": PLANTED}));
    let body = json!({"agentId": "release", "operation": "publish", "resources": ["registry"]});
    let until = daemon.post("/api/coordination/declare", &body)["expiresAt"].clone();
    daemon.kill();
    drop(daemon);
    let daemon = Daemon::start_in(folder, &[]);
    assert_eq!(daemon.get("/api/credentials")[0]["masked"], "sk-p...cret");
    let held = daemon.get("/api/coordination");
    assert_eq!(held["operations"]["release"]["resources"], json!(["registry"]));
    assert_eq!(held["operations"]["release"]["expiresAt"], until);
    let events = daemon.get("/api/audit");
    let events: Vec<_> =
        events["entries"].as_array().unwrap().iter().map(|entry| entry["event"].clone()).collect();
    assert_eq!(events, ["coordination.declare", "credentials.set"], "newest first");
}

#[test]
fn issue_4_an_agent_asks_cannot_answer_itself_and_goes_on_when_a_person_does() {
    let daemon = Daemon::start();
    let (url, json_body) = (&daemon.url, "-H 'content-type: application/json'");
    let ask = format!(
        "curl -s {json_body} -d '{{\"tool\":\"Edit\",\"path\":\"other.txt\"}}' {url}/api/hooks/write"
    );
    let grab = "sed 's/.*\\(apr-[0-9a-f]*\\).*/\\1/' asked";
    let cheat = format!(
        "curl -s -o cheated -w '%{{http_code}}' -X POST {url}/api/approvals/$({grab})/approve > cheat"
    );
    let scenario = json!({
        "steps": [
            {"run": {"command": format!("{ask} > asked"), "timeoutMs": 20000}},
            {"run": {"command": cheat, "timeoutMs": 20000}},
            {"answer": "I wait."},
        ],
        "onSay": [
            {"run": {"command": format!("echo '{{{{message}}}}' > told; {ask} > again"), "timeoutMs": 20000}},
            {"answer": "done"},
        ],
    });
    let folder = daemon.project.join(".svc/rehearsals");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("asker.json"), scenario.to_string()).unwrap();
    let body =
        json!({"role": "dev", "name": "asker", "provider": "script", "model": "asker", "scope": ["src/**"]});
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    let waiting = wait_for("its turn to end", || {
        Some(daemon.get("/api/agents/asker")).filter(|record| record["turns"] == 1)
    });
    assert_eq!((&waiting["state"], &waiting["status"]), (&json!("waiting"), &json!("active")), "{waiting}");
    let read = |name: &str| fs::read_to_string(daemon.project.join(name)).unwrap_or_default();
    assert_eq!(read("cheat"), "403", "{}", read("cheated"));
    let pending = daemon.get("/api/approvals")["pending"][0].clone();
    assert_eq!((&pending["agentId"], &pending["action"]["type"]), (&json!(id), &json!("scope_violation")));
    let approval = pending["id"].as_str().unwrap();
    let mut socket = daemon.connect("?types=approval:resolved");
    let (code, out, err) = svc(&daemon, &["approve", &approval[4..8], "--reason", "go ahead"], "");
    assert_eq!(code, Some(0), "{out}{err}");
    let mut messages = std::iter::repeat_with(|| crate::support::daemon::next_message(&mut socket));
    let told = messages.find(|message| message["type"] == "approval:resolved").unwrap();
    assert_eq!((&told["data"]["id"], &told["data"]["status"]), (&json!(approval), &json!("approved")));
    let ended = daemon.wait_state("asker", &["completed", "crashed", "killed"]);
    assert_eq!(ended["state"], "completed", "{ended}");
    assert!(read("again").contains("\"allow\""), "{}", read("again"));
    assert!(read("told").contains(approval) && read("told").contains("go ahead"), "{}", read("told"));
    let audit = daemon.get("/api/audit?event=approval");
    let who: Vec<_> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| format!("{} {}", entry["event"].as_str().unwrap(), entry["actor"].as_str().unwrap()))
        .collect();
    let agent = format!("agent:{id}");
    let wanted = [
        format!("approval.use {agent}"),
        "approval.approve operator".into(),
        format!("approval.request {agent}"),
    ];
    assert_eq!(who, wanted, "who did what, newest first");
}
