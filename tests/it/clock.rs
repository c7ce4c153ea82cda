//! The system's clock is set while the built daemon runs: time-outs keep their length, and what people see
//! follows.
//!
//! A small library before the C library gives the daemon a wall clock that the test sets. The kernel cannot
//! tell of that one, so the daemon looks at it.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const HOUR: Duration = Duration::from_secs(3600);

/// The wall clock is behind by as many seconds as the file that `TEST_CLOCK_BEHIND` names has bytes.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, id, time);
    const char *path = getenv("TEST_CLOCK_BEHIND");
    struct stat file;
    if (result == 0 && id == CLOCK_REALTIME && path && stat(path, &file) == 0)
        time->tv_sec -= file.st_size;
    return result;
}

int timerfd_create(int clock, int flags) {
    errno = ENOSYS;
    return -1;
}
"#;

/// A daemon whose wall clock is set by the size of a file.
struct Clocked {
    daemon: Daemon,
    behind: PathBuf,
}

impl Clocked {
    fn start() -> Self {
        let folder = Arc::new(Folder::new("clock"));
        let (shim, behind) = (folder.path().join("shim.so"), folder.path().join("behind"));
        fs::write(&behind, "").unwrap();
        compile(&folder.path().join("shim.c"), &shim);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let env = [("LD_PRELOAD", text(&shim)), ("TEST_CLOCK_BEHIND", text(&behind))];
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Self { daemon: Daemon::start_in(Arc::clone(&folder), &env), behind }
    }

    /// Sets the daemon's wall clock behind the true one.
    fn set_behind(&self, by: Duration) {
        fs::File::options().write(true).open(&self.behind).unwrap().set_len(by.as_secs()).unwrap();
    }

    fn lock(&self, agent: &str, ttl_ms: u64) {
        let wish = json!({"agentId": agent, "operation": "deploy", "resources": [agent], "ttlMs": ttl_ms});
        self.daemon.post("/api/coordination/declare", &wish);
    }

    fn holds(&self, agent: &str) -> bool {
        !self.daemon.get("/api/coordination")["operations"][agent].is_null()
    }

    /// How far the daemon's time is behind the true one, by what it writes into a new record.
    fn told_behind(&self) -> Duration {
        let id = self.daemon.spawn("quick");
        let record = self.daemon.get(&format!("/api/agents/{id}"));
        let told: jiff::Timestamp = record["spawnedAt"].as_str().unwrap().parse().unwrap();
        SystemTime::now().duration_since(told.into()).unwrap_or_default()
    }
}

fn compile(source: &Path, into: &Path) {
    fs::write(source, SHIM).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(into)
        .arg(source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(target_os = "linux")]
#[test]
fn the_clock_is_set_back_and_forward_by_an_hour_and_time_outs_keep_their_length() {
    let clocked = Clocked::start();
    assert!(clocked.told_behind() < HOUR / 2);
    clocked.lock("short", 2_000);
    clocked.lock("long", 600_000);
    clocked.set_behind(HOUR);
    // By the wall clock alone it would be held for an hour.
    wait_for("a lock of two seconds to expire", || (!clocked.holds("short")).then_some(()));
    assert!(clocked.holds("long"), "its ten minutes have not passed");
    let behind = clocked.told_behind();
    assert!(behind >= HOUR && behind < HOUR * 2, "what people see follows the clock: {behind:?}");

    clocked.set_behind(Duration::ZERO);
    let behind = clocked.told_behind();
    assert!(behind < HOUR / 2, "{behind:?}");
    assert!(clocked.holds("long"), "ten minutes do not pass with an hour of the wall clock");
    let log = fs::read_to_string(clocked.daemon.project.join(".svc/daemon.log")).unwrap();
    for way in ["back", "forward"] {
        let words = format!(" s {way} at once: time-outs are moved along");
        assert!(log.contains(&words), "{log}");
    }
    assert_eq!(clocked.daemon.get("/api/health")["status"], Value::from("ok"));
}
