//! The built daemon on the kernels of Debian 12 and 13, booted by tests/vm/run: what holds an ordinary user's
//! agents back there, and what is left when the power is cut. Skipped, and said so, where tests/real/setup-vm
//! has not been.

use crate::support::folder::Folder;
use std::path::Path;
use std::process::Command;

/// It left 77 when there was no machine to boot.
const NO_MACHINE: i32 = 77;
/// Emulation is about ten times slower than the machine, which has other tests to run.
const LIMIT_SECONDS: &str = "280";

/// On a host that is full, emulation now and then gives the machine's kernel wrong registers. No program of a
/// user can do that to a kernel: the machine is booted anew, at most so many times.
const BOOTS: usize = 5;
/// All tasks wait for memory for so many percent of ten seconds at most, however much agents want.
const MOST_PRESSURE: f64 = 20.0;
/// The daemon answers within this.
const LATEST_HEALTH_MS: f64 = 100.0;
/// What a kernel says that falls.
const FALLEN: [&str; 3] = ["Oops: ", "PANIC: double fault", "Kernel panic"];

/// Runs a script of tests/vm in the machine; what it printed, `None` without a machine. `disk` is what is
/// begun anew with a machine that fell.
///
/// Panics when the script fails.
fn machine(options: &[&str], script: &str, disk: Option<&str>) -> Option<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    for boot in 1.. {
        let mut run = Command::new(top.join("tests/vm/run"));
        run.args(options).args(["-t", LIMIT_SECONDS, "-f", concat!(env!("CARGO_BIN_EXE_svc"), ":/bin/svc")]);
        let done = run.arg(top.join("tests/vm").join(script)).output().unwrap();
        let said =
            String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        if done.status.code() == Some(NO_MACHINE) {
            eprintln!("{said}");
            return None;
        }
        if boot < BOOTS && FALLEN.iter().any(|words| said.contains(words)) {
            eprintln!("THE MACHINE'S KERNEL FELL, and is booted anew:\n{said}");
            if let Some(disk) = disk {
                std::fs::remove_file(disk).unwrap();
            }
            continue;
        }
        assert!(done.status.success(), "{options:?} {script}: {}\n{said}", done.status);
        return Some(said);
    }
    None
}

#[test]
fn rooms_and_fence_hold_on_linux_6_1() {
    machine(&["-k", "6.1"], "rooms.sh", None).inspect(|said| assert!(said.contains("6.1."), "{said}"));
}

#[test]
fn rooms_and_fence_hold_on_linux_6_12() {
    machine(&["-k", "6.12"], "rooms.sh", None).inspect(|said| assert!(said.contains("6.12."), "{said}"));
}

/// A fence that was asked for and cannot be had: the agent does not run, and its record says why.
#[test]
fn without_landlock_no_agent_runs_that_was_to_be_fenced_in() {
    machine(&["-k", "6.1", "-a", "lsm=capability"], "rooms.sh", None);
}

#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged() {
    let folder = Folder::new("power-cut");
    let disk = folder.path().join("disk.img").to_str().unwrap().to_owned();
    let before =
        machine(&["-k", "6.1", "-d", &disk, "-c", "ALL ACKNOWLEDGED"], "acknowledged.sh", Some(&disk));
    let Some(before) = before else { return };
    assert!(!before.contains("stopped"), "{before}");
    let after = machine(&["-k", "6.1", "-d", &disk], "acknowledged.sh", None).unwrap();
    assert!(after.contains("stopped"), "{after}");
}

/// A sample; tests/vm/small has all of it. Each instruction takes a nanosecond of the machine's time, so that
/// what it measures is the same on a host that is busy.
#[test]
fn agents_that_want_300_mb_each_go_on_one_after_another_in_512_mb() {
    let folder = Folder::new("small");
    let disk = folder.path().join("disk.img").to_str().unwrap().to_owned();
    // The modules tell who holds a connection; a whole system loads them by itself.
    let modules = ["-i", "inet_diag", "-i", "tcp_diag"];
    let small = ["-n", "-k", "6.1", "-m", "512", "-d", &disk, "-a", "agents=3 hold=1 ways=with"];
    let options = [&modules[..], &small[..]].concat();
    let Some(said) = machine(&options, "small.sh", Some(&disk)) else { return };
    eprintln!("{said}");
    let figure = |words: &str| -> f64 {
        let behind = said.split_once(words).unwrap_or_else(|| panic!("no {words:?}\n{said}")).1;
        behind.split([' ', ',', '\n']).next().unwrap().parse().unwrap_or_else(|_| panic!("{words:?}\n{said}"))
    };
    assert!(said.contains("3 agents of 300 MB completed"), "{said}");
    assert_eq!((figure("at once: "), figure("ended by the kernel: ")), (1.0, 0.0), "{said}");
    assert!(figure("full avg10 at most: ") < MOST_PRESSURE, "{said}");
    assert!(figure("answered at most in ms: ") <= LATEST_HEALTH_MS, "{said}");
}

#[test]
fn an_agent_that_takes_memory_without_end_is_ended_alone_with_control_groups_and_without() {
    let Some(said) = machine(&["-k", "6.1", "-m", "768"], "governor.sh", None) else { return };
    eprintln!("{said}");
    assert!(
        said.contains("with control groups: took") && said.contains("without control groups: took"),
        "{said}"
    );
}
