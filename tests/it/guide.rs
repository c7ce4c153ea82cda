//! `docs/guide.md` is true: each `svc` command in its examples is run, in order, in a fresh project.

use crate::support::folder::Folder;
use std::path::Path;
use std::process::{Command, Stdio};

/// Lines with this words need what a test does not have, and say what.
const NOT_TRIED: &str = "# not in the test";

/// The lines of all `sh` blocks.
fn examples(guide: &str) -> Vec<String> {
    let blocks = guide.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.flat_map(str::lines).map(ToOwned::to_owned).collect()
}

fn run(folder: &Path, line: &str) -> (bool, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_svc")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-c", line]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL");
    let output = command.env("XDG_CONFIG_HOME", folder.join(".config")).output().unwrap();
    let told =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), told)
}

struct Stopped<'a>(&'a Path);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        run(self.0, "svc stop");
    }
}

#[test]
fn issue_7_every_command_of_the_guide_works_as_written() {
    let guide = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide.md")).unwrap();
    let folder = Folder::new("guide");
    let _stopped = Stopped(folder.path());
    let mut tried = 0;
    for line in examples(&guide) {
        let is_ours = line.starts_with("svc ") || line.contains("$(svc ");
        if !is_ours || line.contains(NOT_TRIED) {
            continue;
        }
        tried += 1;
        // A port of its own, so that tests side by side do not meet.
        let line = line.replace("start --background", "start --background --port 0");
        let (is_good, told) = run(folder.path(), &line);
        assert!(is_good, "{line}\n{told}");
    }
    assert!(tried > 40, "only {tried} commands were tried");
    assert!(!folder.path().join(".svc/daemon.port").exists(), "the guide ends with svc stop");
}
