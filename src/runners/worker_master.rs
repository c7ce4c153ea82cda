//! A connection of ssh's to each runner in use, which stands as long as this daemon: a line that goes over it
//! is spared the handshakes of one of its own. Its keys, keepalives and bounds are those of any.
//!
//! ssh keeps it for as long as a line goes over it, also after this daemon: what it waits for is the end of
//! its standard input, which is this daemon's. A line does not need it: without one, ssh makes one for it.

use super::kind::{Spot, engine};
use super::worker_host::{client, own_hash, standing_script};
use super::{Kind, Runner, worker_direct};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use svc_base::folders::RUNS;
use svc_sys::clock;
use svc_sys::process::{Exit, Processes};
use svc_sys::threads::lock;

/// Bytes of a socket's path, with what ssh puts behind it while it makes it.
const PATH_BYTES_MAX: usize = 80;
/// Between two tries to have one.
const AGAIN: Duration = Duration::from_secs(30);

/// By the runners' places.
static STANDING: Mutex<BTreeMap<String, Standing>> = Mutex::new(BTreeMap::new());

struct Standing {
    socket: PathBuf,
    /// Of the socket there, see [`super::worker_direct`].
    number: String,
    /// What leads to it, once that was tried.
    direct: Arc<OnceLock<Option<PathBuf>>>,
    began: Instant,
    exit: crossbeam_channel::Receiver<Exit>,
    /// Its end is the connection's.
    _input: Option<File>,
}

/// The socket of the connection to this runner, where one stands, and a socket that leads there through it;
/// where none does, one is begun for the next.
pub fn standing(
    processes: &Processes,
    project: &Path,
    runner: &Runner,
    spot: &Spot,
    home: &str,
) -> Option<(PathBuf, Option<PathBuf>)> {
    if runner.kind != Kind::Ssh {
        return None;
    }
    let mut all = lock(&STANDING);
    if let Some(standing) = all.get(&runner.folder) {
        let is_gone = !standing.exit.is_empty();
        if !is_gone {
            let Standing { socket, number, direct, .. } = standing;
            let (socket, number, direct) = (socket.clone(), number.clone(), Arc::clone(direct));
            // ssh may take its time to be told: those of other runners do not wait for that.
            drop(all);
            if !socket.exists() {
                return None;
            }
            let direct = direct.get_or_init(|| worker_direct::lead(processes, &socket, home, &number));
            return Some((socket, direct.clone()));
        }
        if standing.began.elapsed() < AGAIN {
            return None;
        }
    }
    // No room shows it.
    let folder = project.join(RUNS);
    let number = format!("{:08x}", clock::random() >> 32);
    let socket = folder.join(format!("ssh-{number}"));
    let shown = socket.to_str()?;
    // ssh reads more into other characters.
    let is_plain = shown.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    if !is_plain || shown.len() > PATH_BYTES_MAX {
        return None;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let script = standing_script(own_hash().ok()?, &number);
    let mut spec = client(&(engine(spot.kind).run)(spot, &script));
    let words = ["-oControlMaster=yes".to_owned(), format!("-oControlPath={shown}")];
    spec.args.splice(0..0, words.map(Into::into));
    // Without one a line has a connection of its own.
    let running = processes.spawn(&spec).ok()?;
    let (began, exit, direct) = (Instant::now(), running.exit, Arc::default());
    let standing = Standing { socket, number, direct, began, exit, _input: running.stdin };
    all.insert(runner.folder.clone(), standing);
    None
}
