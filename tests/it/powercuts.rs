//! Some states of a disk that a power cut could leave, see tests/powercuts: a sample of `make powercuts`.

use std::process::{Command, Output};

/// The exit status where a machine has no loop devices, no FUSE, no qemu-storage-daemon, or no root.
const CANNOT: i32 = 3;

/// Some states after a few seconds of work; `None` where they cannot be tried here.
fn cuts(words: &[&str]) -> Option<Output> {
    let svc = env!("CARGO_BIN_EXE_svc");
    let market = std::path::Path::new(svc).with_file_name("svc-skills");
    assert!(market.exists(), "{} is not built: cargo build -p svc-skills", market.display());
    let out = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/powercuts/cuts.py"))
        .args(["--svc", svc, "--market"])
        .arg(market)
        .args(words)
        .output()
        .expect("python3 starts");
    if out.status.code() == Some(CANNOT) {
        eprintln!("SKIPPED: {}", String::from_utf8_lossy(&out.stdout));
        return None;
    }
    Some(out)
}

#[test]
fn what_was_acknowledged_outlives_a_power_cut_on_a_real_file_system() {
    let Some(out) = cuts(&["--states", "40", "--seconds", "4"]) else { return };
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && said.contains("in all 40 states, 0 broken"),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// What looks at the states can see that something is missing.
#[test]
fn a_disk_that_says_it_has_flushed_and_has_not_is_found_out() {
    let Some(out) = cuts(&["--states", "8", "--seconds", "3", "--lying"]) else { return };
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("is None, and may be"), "nothing that was acknowledged is missed: {said}");
}
