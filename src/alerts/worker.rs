//! The thread that runs `notify.command`, one at a time.

use super::Order;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use svc_sys::process::{Processes, Spec, Stdin};
use svc_sys::threads::Worker;

/// One alert gets this long; then its program is ended with all that it started.
const LIMIT: Duration = Duration::from_secs(10);
/// Alerts that wait while one is told; further ones are not.
const MAX_WAITING: usize = 8;
/// Bytes of what the program says that are kept, to say why it failed.
const MAX_OUTPUT_BYTES: usize = 2_000;
/// What a program needs of the daemon's own environment to reach the person's desktop.
const DESKTOP: [&str; 6] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "XDG_CURRENT_DESKTOP",
];

/// The running thread; it ends when this is dropped, and the program that it runs with it.
pub struct Teller {
    worker: Worker<Order>,
    is_over: Arc<AtomicBool>,
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

impl Teller {
    /// Starts the thread. Programs run in `project`.
    ///
    /// Errors: no thread.
    pub fn start(project: PathBuf, processes: Arc<Processes>) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let worker = Worker::start("alerts", MAX_WAITING, move |order: Order| {
            if ends.load(Ordering::Acquire) {
                return;
            }
            if let Err(why) = tell(&processes, &order, &project, &ends) {
                log::warn!("notify.command has not told \"{}\": {why}", order.title);
            }
        })?;
        Ok(Self { worker, is_over })
    }

    /// Has it told, unless too many wait.
    pub fn order(&self, order: Order) {
        if !self.worker.order(order) {
            log::warn!("notify.command is slower than what there is to tell: an alert was dropped");
        }
    }
}

fn tell(processes: &Processes, order: &Order, project: &Path, ends: &AtomicBool) -> Result<(), String> {
    let Some(spec) = spec(order, project) else { return Ok(()) };
    let said = processes.capture_unless(&spec, b"", LIMIT, MAX_OUTPUT_BYTES, ends)?;
    if said.is_success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&said.stderr);
    Err(format!("it failed with {:?}: {}", said.exit, words.lines().last().unwrap_or_default()))
}

/// The program as it is run; `None` without one.
pub(super) fn spec(order: &Order, project: &Path) -> Option<Spec> {
    let (program, args) = order.command.split_first()?;
    let args: Vec<String> = args.iter().map(|arg| filled(arg, order)).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut spec = Spec::tool(program, &args, project);
    spec.stdin = Stdin::Null;
    let own = |name: &&str| Some((OsString::from(name), std::env::var_os(name)?));
    spec.env.extend(DESKTOP.iter().filter_map(own));
    for (name, value) in [
        ("SVC_NOTIFY_KIND", order.kind),
        ("SVC_NOTIFY_TITLE", &order.title),
        ("SVC_NOTIFY_TEXT", &order.text),
        ("SVC_NOTIFY_URL", &order.url),
    ] {
        spec.env.push((name.into(), value.into()));
    }
    Some(spec)
}

/// An argument with the words that it asks for. Words of agents that would begin it get a blank before them
/// where they could pass for an option.
fn filled(arg: &str, order: &Order) -> String {
    let mut text = String::new();
    let mut rest = arg;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let words = [
            ("{kind}", order.kind),
            ("{title}", &order.title),
            ("{text}", &order.text),
            ("{url}", &order.url),
        ];
        if let Some((name, words)) = words.iter().find(|(name, _)| rest.starts_with(name)) {
            if text.is_empty() && words.starts_with('-') {
                text.push(' ');
            }
            text.push_str(words);
            rest = &rest[name.len()..];
        } else {
            text.push('{');
            rest = &rest[1..];
        }
    }
    text + rest
}
