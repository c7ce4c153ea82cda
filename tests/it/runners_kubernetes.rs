//! Runners that are pods of a real Kubernetes: etcd, API server, scheduler, kubelet and containerd on one
//! node, which is a network namespace with a cable that can be pulled.
//!
//! `tests/real/setup-kubernetes` builds it from Debian's source, which takes longer than all that CI does. So
//! where it is not built these tests say that they were skipped, also where `SVC_REAL_CLIS=require`, which
//! speaks of what CI installs.

use crate::runners::{
    SHOWN_WITHIN, agent, check, counted, repository, said, spawn_there, wait_code, wait_finished,
};
use crate::support::daemon::{Daemon, is_root};
use crate::support::folder::Folder;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As the context may that the script has made for a person, in the namespace that is its own.
const POD: &str = "person svc.test/box:1 namespace=work cpu=500m memory=1Gi";

/// A cluster; it is gone on drop.
struct Cluster {
    folder: Folder,
}

impl Cluster {
    fn start() -> Option<Self> {
        let cluster = Self { folder: Folder::new("kube") };
        if !is_root() || cluster.setup("--status").is_err() {
            eprintln!("SKIPPED: Kubernetes, or root's rights, absent; tests/real/setup-kubernetes builds it");
            return None;
        }
        cluster.do_("start");
        Some(cluster)
    }

    fn setup(&self, word: &str) -> Result<(), String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/setup-kubernetes");
        let mut command = Command::new(script);
        command.arg(word);
        if word != "--status" {
            command.arg(self.folder.path());
        }
        // What stays is asked nothing, and must not hold a pipe.
        let path = self.folder.path().join("setup.log");
        let log = File::create(&path).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let status = command.status().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(fs::read_to_string(path).unwrap()) }
    }

    /// `cut`, `mend`: see the script.
    fn do_(&self, word: &str) {
        self.setup(word).unwrap_or_else(|error| panic!("setup-kubernetes {word}: {error}"));
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn daemon(&self, project: Arc<Folder>) -> Daemon {
        let path = format!("{}/bin:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        let config = self.kubeconfig().display().to_string();
        Daemon::start_in(project, &[("PATH", &path), ("KUBECONFIG", &config)])
    }

    /// As somebody who may everything.
    fn kubectl(&self, args: &[&str]) -> Output {
        let config = self.kubeconfig();
        let mut command = Command::new(self.folder.path().join("bin/kubectl"));
        command.arg("--kubeconfig").arg(config).args(["--context=admin", "--namespace=work"]);
        command.args(args).output().unwrap()
    }

    fn pods(&self) -> Vec<Value> {
        let said = self.kubectl(&["get", "pods", "--output=json"]);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let list: Value = serde_json::from_slice(&said.stdout).unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// A cluster takes its time to remove what it was told to.
    fn await_empty(&self) {
        wait_within(Duration::from_secs(60), "no pod to be left", || self.pods().is_empty().then_some(()));
    }

    fn name_of_one(&self) -> String {
        let pods = self.pods();
        assert_eq!(pods.len(), 1, "{pods:#?}");
        pods[0]["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// Kills each client of a line, as the system does that has no memory left; how many there were.
    fn kill_lines(&self) -> usize {
        let own = format!("KUBECONFIG={}", self.kubeconfig().display());
        let all = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
            let read = |name: &str| {
                Some(String::from_utf8_lossy(&fs::read(entry.path().join(name)).ok()?).into_owned())
            };
            let words = read("cmdline")?;
            let is_line = words.starts_with("kubectl") && words.contains("__far open");
            (is_line && read("environ")?.contains(&own)).then_some(pid)
        });
        let all: Vec<String> = all.map(|pid| pid.to_string()).collect();
        assert!(!all.is_empty(), "there is a line");
        assert!(Command::new("kill").arg("-KILL").args(&all).status().unwrap().success());
        all.len()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if is_root() {
            // One that was not started leaves nothing to stop.
            let _ = self.setup("stop");
        }
    }
}

fn add(daemon: &Daemon, name: &str, destination: &str) {
    daemon.post("/api/runners", &json!({"name": name, "kind": "kubernetes", "destination": destination}));
}

#[test]
fn an_agent_works_in_a_pod_its_work_comes_back_and_no_pod_is_left() {
    let Some(cluster) = Cluster::start() else { return };
    let daemon = cluster.daemon(repository(3, 20));
    add(&daemon, "cell", POD);
    assert_eq!(cluster.pods(), Vec::<Value>::new(), "it is made when it is needed");
    let began = Instant::now();
    let first = check(&daemon, "cell");
    assert_eq!((&first["error"], &first["copied"]), (&Value::Null, &json!(true)), "{first:#}");
    eprintln!("a pod was made, and this program copied there, in {:?}", began.elapsed());
    assert!(first["facts"]["git"].as_str().unwrap().starts_with("git version"), "{first:#}");
    assert_eq!(check(&daemon, "cell")["copied"], false);
    let pod = cluster.pods()[0].clone();
    let name = cluster.name_of_one();
    assert!(name.starts_with("svc-p"), "{name}");
    assert_eq!(pod["metadata"]["labels"], json!({"app.kubernetes.io/managed-by": "svc", "svc.runner": name}));
    let (spec, ours) = (&pod["spec"], &pod["spec"]["containers"][0]);
    assert_eq!(
        (&spec["restartPolicy"], &spec["automountServiceAccountToken"]),
        (&json!("Never"), &json!(false))
    );
    assert_eq!(
        (&spec["volumes"], &ours["volumeMounts"]),
        (&Value::Null, &Value::Null),
        "nothing is lent to it"
    );
    assert_eq!(ours["resources"]["limits"], json!({"cpu": "500m", "memory": "1Gi"}));
    assert_eq!(ours["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    let looked =
        cluster.kubectl(&["exec", &name, "--", "sh", "-c", "grep Cap /proc/1/status; ls /var/run/secrets"]);
    let inside = String::from_utf8_lossy(&looked.stdout).into_owned();
    assert!(inside.contains("CapEff:\t0000000000000000\n") && !looked.status.success(), "{inside}");
    let id = spawn_there(&daemon, "one", "cell");
    wait_finished(&daemon, &id);
    assert_eq!(said(&daemon, &id), counted(3));
    let fetched = daemon.post(&format!("/api/agents/{id}/fetch"), &Value::Null);
    assert_eq!((&fetched["commits"], &fetched["uncommitted"]), (&json!(1), &json!(false)), "{fetched:#}");
    let merged = daemon.post(&format!("/api/agents/{id}/merge"), &json!({}));
    assert_eq!(merged["merged"], true, "{merged:#}");
    assert_eq!(fs::read_to_string(daemon.project.join("where")).unwrap().trim(), "/root");
    let (status, told) = daemon.send("DELETE", "/api/runners/cell", &Value::Null);
    assert_eq!((status, &told["left"]), (200, &Value::Null), "{told}");
    cluster.await_empty();
}

#[test]
fn neither_a_killed_kubectl_nor_a_killed_daemon_nor_a_pulled_cable_interrupts_a_turn() {
    let Some(cluster) = Cluster::start() else { return };
    let count = 900;
    let folder = repository(count, 100);
    let mut daemon = cluster.daemon(Arc::clone(&folder));
    add(&daemon, "cell", POD);
    assert_eq!(check(&daemon, "cell")["error"], Value::Null);
    let id = spawn_there(&daemon, "one", "cell");
    let hears_more = |daemon: &Daemon| {
        let before = said(daemon, &id).len();
        wait_within(Duration::from_secs(60), "more lines", || {
            (said(daemon, &id).len() > before + 9).then_some(())
        });
    };
    hears_more(&daemon);
    assert_eq!(cluster.kill_lines(), 1);
    hears_more(&daemon);
    daemon.kill();
    daemon = cluster.daemon(folder);
    hears_more(&daemon);
    cluster.do_("cut");
    let began = Instant::now();
    let cut = wait_code(&daemon, &id, "unreachable");
    let known = began.elapsed();
    assert!(known < SHOWN_WITHIN, "{known:?}");
    assert_eq!(cut["status"], "active", "{cut:#}");
    let heard = said(&daemon, &id).len();
    assert!(heard < count, "the cable was pulled before its end");
    cluster.do_("mend");
    wait_finished(&daemon, &id);
    assert_eq!(said(&daemon, &id), counted(count), "each line once, in its order");
    assert_eq!(agent(&daemon, &id)["turns"], 1, "the turn was not interrupted");
    eprintln!("the pulled cable was known after {known:?}, {heard} lines before");
}

#[test]
fn what_has_become_of_a_pod_is_told_in_its_clusters_words() {
    let Some(cluster) = Cluster::start() else { return };
    let daemon = cluster.daemon(repository(900, 100));
    for (name, destination, words) in [
        ("large", "person svc.test/box:1 namespace=work cpu=900", "Insufficient cpu"),
        ("absent", "person svc.test/none:1 namespace=work", "ImagePull"),
        ("foreign", "person svc.test/box:1 namespace=default", "Forbidden"),
        ("nowhere", "moon svc.test/box:1", "moon"),
    ] {
        add(&daemon, name, destination);
        let told = check(&daemon, name);
        assert!(told["error"].as_str().unwrap_or_default().contains(words), "{name}: {told:#}");
        let (status, told) = daemon.send("DELETE", &format!("/api/runners/{name}"), &Value::Null);
        assert_eq!(status, 200, "{told}");
    }
    cluster.await_empty();
    add(&daemon, "cell", POD);
    assert_eq!(check(&daemon, "cell")["error"], Value::Null);
    let id = spawn_there(&daemon, "one", "cell");
    wait_within(Duration::from_secs(60), "some lines", || (said(&daemon, &id).len() > 9).then_some(()));
    let deleted = cluster.kubectl(&["delete", "pod", &cluster.name_of_one()]);
    assert!(deleted.status.success(), "{deleted:?}");
    let ended = wait_within(Duration::from_secs(120), "its end", || {
        let agent = agent(&daemon, &id);
        (agent["status"] != "active").then_some(agent)
    });
    let why = ended["error"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("its pod is"), "{ended:#}");
    let again = check(&daemon, "cell");
    assert_eq!((&again["error"], &again["copied"]), (&Value::Null, &json!(true)), "{again:#}");
    let next = spawn_there(&daemon, "two", "cell");
    wait_within(Duration::from_secs(60), "some lines", || (said(&daemon, &next).len() > 9).then_some(()));
}

#[test]
fn this_cluster_refuses_what_no_pod_may_have() {
    let Some(cluster) = Cluster::start() else { return };
    let path = cluster.folder.path().join("pod.json");
    let container = |more: Value| {
        let mut own = json!({"name": "a", "image": "svc.test/box:1"});
        own.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"automountServiceAccountToken": false, "containers": [own]}})
    };
    for (pod, words) in [
        (container(json!({})), ""),
        (container(json!({"resource": {}})), "unknown field \"resource\""),
        (container(json!({"imagePullPolicy": "Perhaps"})), "Unsupported value"),
        (container(json!({"resources": {"limits": {"cpu": "much"}}})), "quantities must match"),
    ] {
        fs::write(&path, pod.to_string()).unwrap();
        let told = cluster.kubectl(&["create", "--dry-run=server", "--filename", path.to_str().unwrap()]);
        let stderr = String::from_utf8_lossy(&told.stderr);
        assert_eq!(told.status.success(), words.is_empty(), "{pod}: {stderr}");
        assert!(stderr.contains(words), "{pod}: {stderr}");
    }
}
