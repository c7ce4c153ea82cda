//! Pods of Kubernetes: `CONTEXT IMAGE [namespace=N] [cpu=Q] [memory=Q]`. One pod a runner, in which all of
//! its agents are, made by the person's own `kubectl` with what that context may.
//!
//! What is in a pod can neither speak for the cluster (no token of a service account is in it) nor gain
//! rights on its node; who may reach it, and whom it may, is the cluster's own business.

use super::kind::{Engine, Key, Line, MAX_DESTINATION_BYTES, Places, Said, Seen, Spot, is_plain};
use super::kind_container::{LABEL, WAIT};
use serde_json::{Value, json};
use svc_base::untrusted::untrusted_prose;

/// The one container of ours: a cluster may put others beside it.
const CONTAINER: &str = "agents";
/// What goes before all others but `exec`, whose streams it would end.
const LIMIT: &str = "--request-timeout=20s";
/// Seconds between TERM and KILL.
const GRACE_SECONDS: u32 = 5;
/// Characters of a namespace, as Kubernetes has them.
const NAMESPACE_CHARS: usize = 63;
/// Characters of an amount.
const AMOUNT_CHARS: usize = 12;
/// Characters of what a cluster says of a pod.
const WHY_CHARS: usize = 300;

/// What there is to know of the kind `kubernetes`.
pub static ENGINE: Engine = Engine {
    fault,
    run,
    // It ends with 1 for itself, as others may.
    refusal: None,
    open: "open",
    places: Some(Places {
        noun: "pod",
        look,
        seen,
        make: |destination, name| {
            let line = kubectl(destination, &[LIMIT, "create", "--filename=-"]);
            Line { input: manifest(destination, name).to_string(), ..line }
        },
        // A pod is never started again. Once it is removed a new one is made.
        wake: Some(end),
        end,
    }),
};

/// What a destination says.
struct Words<'a> {
    context: &'a str,
    image: &'a str,
    namespace: Option<&'a str>,
    cpu: Option<&'a str>,
    memory: Option<&'a str>,
}

impl<'a> Words<'a> {
    /// `None`: it is no destination.
    fn read(destination: &'a str) -> Option<Self> {
        let mut words = destination.split(' ');
        let (context, image) = (words.next()?, words.next()?);
        let mut read = Self { context, image, namespace: None, cpu: None, memory: None };
        for word in words {
            let (name, value) = word.split_once('=')?;
            let (place, fits) = match name {
                "namespace" => (&mut read.namespace, is_namespace(value)),
                "cpu" => (&mut read.cpu, is_amount(value)),
                "memory" => (&mut read.memory, is_amount(value)),
                _ => return None,
            };
            if !fits || place.replace(value).is_some() {
                return None;
            }
        }
        (is_plain(context, "._:/@-") && is_plain(image, "._/:@-")).then_some(read)
    }
}

fn is_namespace(word: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !word.is_empty() && !word.starts_with('-') && word.len() <= NAMESPACE_CHARS && word.bytes().all(fits)
}

/// A number with a unit or without, as `2`, `500m` and `4Gi`.
fn is_amount(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let units = ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"];
    word.starts_with(|c: char| c.is_ascii_digit()) && word.len() <= AMOUNT_CHARS && units.contains(&unit)
}

fn fault(destination: &str) -> Option<String> {
    let fits = destination.len() <= MAX_DESTINATION_BYTES && Words::read(destination).is_some();
    (!fits).then(|| {
        format!(
            "must be CONTEXT IMAGE, and may have namespace=N cpu=2 memory=4Gi behind them, of at most \
             {MAX_DESTINATION_BYTES} bytes: CONTEXT and IMAGE of A-Z a-z 0-9 . _ / : @ - and not begin with -; see \
             kubectl config get-contexts"
        )
    })
}

/// By the context that the record names, whichever is the person's current one by now.
fn kubectl(destination: &str, words: &[&str]) -> Line {
    let read = Words::read(destination);
    let context = read.as_ref().map_or("", |read| read.context);
    let mut args = vec![format!("--context={context}")];
    args.extend(read.and_then(|read| read.namespace).map(|namespace| format!("--namespace={namespace}")));
    args.extend(words.iter().map(|&word| word.to_owned()));
    Line { args, ..Line::new("kubectl", &[]) }
}

fn run(spot: &Spot, script: &str) -> Line {
    let container = format!("--container={CONTAINER}");
    let words = ["exec", "--stdin", &container, pod(&spot.id), "--", "sh", "-c", script];
    kubectl(&spot.destination, &words)
}

/// It is on its way then, and its cluster sees to the rest: that takes ten seconds.
fn end(destination: &str, id: &str) -> Line {
    kubectl(destination, &[LIMIT, "delete", "pod", pod(id), "--ignore-not-found", "--wait=false"])
}

/// The name in an id, behind which stands what no other pod ever has. A later one of this name has nothing of
/// the runs of this one, and says so.
fn pod(id: &str) -> &str {
    id.split_once('/').map_or(id, |(name, _)| name)
}

/// The pod.
fn manifest(destination: &str, name: &str) -> Value {
    let read = Words::read(destination);
    let amounts = read.iter().flat_map(|read| [("cpu", read.cpu), ("memory", read.memory)]);
    let amounts: serde_json::Map<String, Value> =
        amounts.filter_map(|(what, amount)| Some((what.to_owned(), json!(amount?)))).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "svc", LABEL: name}},
        "spec": {
            // What is in one is not there any more when it starts again.
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": CONTAINER,
                "image": read.map_or("", |read| read.image),
                "command": ["sh", "-c", WAIT],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "resources": {"requests": amounts, "limits": amounts},
            }],
        },
    })
}

/// What is asked of a pod, a line each; what may have lines itself is the last.
fn fields() -> [String; 9] {
    let state =
        |word: &str| format!("{{.status.containerStatuses[?(@.name==\"{CONTAINER}\")].state.{word}}}");
    [
        "{.metadata.uid}".to_owned(),
        format!("{{.metadata.labels.{}}}", LABEL.replace('.', "\\.")),
        "{.status.phase}".to_owned(),
        "{.metadata.deletionTimestamp}".to_owned(),
        state("running.startedAt"),
        format!("{{.status.reason}} {}", state("terminated.reason")),
        "{.status.conditions[?(@.type==\"PodScheduled\")].message}".to_owned(),
        state("waiting.reason"),
        state("waiting.message"),
    ]
}

fn look(destination: &str, key: Key<'_>) -> Line {
    let name = match key {
        Key::Name(name) => name,
        Key::Id(id) => pod(id),
    };
    let shown = format!("--output=jsonpath={}", fields().join("{\"\\n\"}"));
    kubectl(destination, &[LIMIT, "get", "pod", name, "--ignore-not-found", &shown])
}

fn seen(key: Key<'_>, said: &Said) -> Result<Seen, String> {
    if !said.is_success {
        return Err(said.stderr.clone());
    }
    if said.stdout.trim().is_empty() {
        return Ok(Seen::Nothing);
    }
    let mut lines = said.stdout.splitn(fields().len(), '\n').map(str::trim);
    let mut line = || lines.next().unwrap_or_default();
    let (uid, label, phase, removed) = (line(), line(), line(), line());
    let (running, ended, unplaced) = (line(), line(), line());
    let (reason, message) = (line(), line());
    if !is_plain(uid, "-") {
        return Err("what it tells cannot be read".to_owned());
    }
    let id = match key {
        Key::Name(name) if label == name => format!("{name}/{uid}"),
        Key::Name(name) => {
            return Err(format!(
                "there is a pod {name} that svc has not made: it is neither used nor removed"
            ));
        }
        // It is the name of another one by now.
        Key::Id(id) if !id.ends_with(&format!("/{uid}")) => return Ok(Seen::Nothing),
        Key::Id(id) => id.to_owned(),
    };
    let is_named = matches!(key, Key::Name(_));
    // By its name it is in the way of the next one.
    let over = |why: String| if is_named { Seen::Stopped(id.clone()) } else { Seen::Over(why) };
    let words = |text: &str| untrusted_prose(text).chars().take(WHY_CHARS).collect::<String>();
    Ok(match phase {
        _ if !removed.is_empty() && is_named => {
            Seen::Waits(id, "is being removed, before a new one".to_owned())
        }
        _ if !removed.is_empty() => Seen::Over("is being removed".to_owned()),
        "Succeeded" | "Failed" => over(format!("is over: {phase}, {}", words(ended))),
        "Running" if !running.is_empty() => Seen::Stands(id),
        "Running" if !ended.is_empty() => over(format!("is over: {}", words(ended))),
        "Pending" | "Running" => {
            let why = [unplaced, reason, message].map(words);
            let why: Vec<&str> = why.iter().map(String::as_str).filter(|why| !why.is_empty()).collect();
            Seen::Waits(id, format!("does not run yet: {phase}, {}", why.join(", ")))
        }
        // Nothing has been heard of its node.
        other => return Err(format!("the pod is {}", words(other))),
    })
}
