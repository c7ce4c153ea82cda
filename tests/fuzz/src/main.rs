//! The fuzzer: libFuzzer drives the target that SVC_FUZZ_TARGET names. `tests/fuzz/run` builds and calls it;
//! with SVC_FUZZ_LIST=1 it prints the names of all targets, with SVC_FUZZ_SEEDS=FOLDER it writes the target's
//! seeds there first.
#![no_main]

#[path = "../targets.rs"]
mod targets;

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use targets::{Target, targets};

static TARGET: OnceLock<Target> = OnceLock::new();

fn begin() {
    if std::env::var_os("SVC_FUZZ_LIST").is_some() {
        for target in targets() {
            println!("{}", target.name);
        }
        std::process::exit(0);
    }
    let wanted = std::env::var("SVC_FUZZ_TARGET").unwrap_or_default();
    let found = targets().into_iter().find(|target| target.name == wanted);
    let Some(target) = found else {
        eprintln!("SVC_FUZZ_TARGET={wanted:?} is no target; SVC_FUZZ_LIST=1 lists them");
        std::process::exit(2);
    };
    if let Some(folder) = std::env::var_os("SVC_FUZZ_SEEDS") {
        for (number, seed) in target.seeds().iter().enumerate() {
            let path = std::path::Path::new(&folder).join(format!("seed-{number}"));
            std::fs::write(path, seed).expect("a seed is written");
        }
    }
    let _ = TARGET.set(target);
}

fuzz_target!(init: begin(), |data: &[u8]| {
    if let Some(target) = TARGET.get() {
        target.run(data);
    }
});
