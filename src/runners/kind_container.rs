//! Containers of podman and docker: `podman IMAGE`. One container a runner, in which all of its agents are.
//!
//! What may leave the container is what the engine's own settings say: no folder of this machine is shown
//! there, no right is added, and no socket of an engine is lent.

use super::kind::{Engine, Key, Line, MAX_DESTINATION_BYTES, Places, Said, Seen, is_plain};

/// What a runner's container is, beside the name: somebody else's may have that.
pub const LABEL: &str = "svc.runner";
/// What is its first process: it waits, collects what others leave, and goes at once when it is told to.
pub const WAIT: &str = "trap 'exit 0' TERM; while :; do sleep 86400 & wait $!; done";
/// Digits of a container's id.
const ID_DIGITS: usize = 64;

/// What there is to know of the kind `container`.
pub static ENGINE: Engine = Engine {
    fault,
    run: |spot, script| {
        let shell = ["exec", "--interactive", &spot.id, "sh", "-c", script];
        Line::new(parts(&spot.destination).0, &shell)
    },
    refusal: Some(125),
    open: "open",
    places: Some(Places {
        noun: "container",
        look,
        seen,
        make,
        wake: Some(|destination, id| Line::new(parts(destination).0, &["start", id])),
        end: |destination, id| Line::new(parts(destination).0, &["rm", "--force", "--volumes", id]),
    }),
};

fn fault(destination: &str) -> Option<String> {
    let (engine, image) = parts(destination);
    let fits = destination.len() <= MAX_DESTINATION_BYTES
        && ["podman", "docker"].contains(&engine)
        && is_plain(image, "._/:@-");
    (!fits).then(|| {
        format!(
            "must be podman IMAGE or docker IMAGE, of at most {MAX_DESTINATION_BYTES} bytes, and IMAGE of A-Z a-z 0-9 \
             . _ / : @ - and not begin with -"
        )
    })
}

/// The engine's program, and the image.
fn parts(destination: &str) -> (&str, &str) {
    destination.split_once(' ').unwrap_or((destination, ""))
}

fn make(destination: &str, name: &str) -> Line {
    let (engine, image) = parts(destination);
    let (name_is, label) = (format!("--name={name}"), format!("--label={LABEL}={name}"));
    Line::new(engine, &["run", "--detach", &name_is, &label, "--entrypoint=sh", image, "-c", WAIT])
}

fn look(destination: &str, key: Key<'_>) -> Line {
    let (Key::Name(word) | Key::Id(word)) = key;
    let shown =
        format!("--format={{{{.Id}}}} {{{{.State.Status}}}} {{{{index .Config.Labels \"{LABEL}\"}}}}");
    Line::new(parts(destination).0, &["container", "inspect", &shown, word])
}

fn seen(key: Key<'_>, said: &Said) -> Result<Seen, String> {
    if !said.is_success {
        let is_absent = said.stderr.to_ascii_lowercase().contains("no such container");
        return if is_absent { Ok(Seen::Nothing) } else { Err(said.stderr.clone()) };
    }
    let mut words = said.stdout.split_whitespace();
    let (id, status) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let label = words.next().unwrap_or_default();
    let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        return Err("what it tells cannot be read".to_owned());
    }
    match key {
        Key::Name(name) if label != name => {
            return Err(format!(
                "there is a container {name} that svc has not made: it is neither used nor removed"
            ));
        }
        // It is the name of another one by now.
        Key::Id(other) if other != id => return Ok(Seen::Nothing),
        _ => {}
    }
    Ok(match status {
        "running" => Seen::Stands(id.to_owned()),
        "exited" | "created" | "stopped" | "configured" | "initialized" => Seen::Stopped(id.to_owned()),
        "removing" | "stopping" | "dead" => Seen::Over(format!("is {status}")),
        // A paused one is its person's.
        other => return Err(format!("the container is {}", svc_base::untrusted::untrusted_prose(other))),
    })
}
