//! The indexer on a tree of 100 000 files, against `rg --files` in the same run (or a plain walk of the
//! same tree where there is no rg). Medians of fifteen runs. `cargo bench --bench indexer`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use svc::workspace::worker_index::Indexer;
use svc_sys::clock;

const RUNS: usize = 15;
const FOLDERS: usize = 5_000;
const FILES_PER_FOLDER: usize = 20;
const CHANGED: usize = 10;
/// Memory of a process that has indexed the tree, at most.
const MEMORY_LIMIT_MB: f64 = 60.0;

struct Tree(PathBuf);

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Five kinds of workspaces, ten packages each, and the rest in folders three levels down.
fn tree() -> Tree {
    let root = std::env::temp_dir().join(format!("svc-bench-index-{}", std::process::id()));
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it is below the root")).expect("a folder is made");
        fs::write(path, text).expect("a file is written");
    };
    write("package.json", r#"{"workspaces": ["npm/*"]}"#);
    write("pnpm-workspace.yaml", "packages:\n  - 'pnpm/*'\n");
    write("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\n");
    write("pyproject.toml", "[tool.uv.workspace]\nmembers = [\"py/*\"]\n");
    let uses = (0..10).map(|n| format!("use ./go/{n}")).collect::<Vec<_>>().join("\n");
    write("go.work", &uses);
    write(".gitignore", "*.o\nbuild/\n");
    fs::create_dir_all(root.join(".git")).expect("a folder is made");
    for n in 0..10 {
        write(&format!("npm/{n}/package.json"), "{}");
        write(&format!("pnpm/{n}/package.json"), "{}");
        write(&format!("crates/{n}/Cargo.toml"), "[package]\nname = \"c\"\n");
        write(&format!("py/{n}/pyproject.toml"), "[project]\nname = \"p\"\n");
        write(&format!("go/{n}/go.mod"), "module m\n");
    }
    for folder in 0..FOLDERS {
        let at = root.join(format!("src/m{}/p{}/f{folder}", folder % 20, folder / 20 % 25));
        fs::create_dir_all(&at).expect("a folder is made");
        for file in 0..FILES_PER_FOLDER {
            fs::write(at.join(format!("file{file}.rs")), "").expect("a file is written");
        }
    }
    Tree(root)
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut times: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

fn millis(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1000.0
}

fn rg(root: &Path) -> bool {
    let run =
        Command::new("rg").args(["--files", "--hidden"]).current_dir(root).stdout(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

fn plain_walk(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| if entry.file_type().is_ok_and(|t| t.is_dir()) { plain_walk(&entry.path()) } else { 1 })
        .sum()
}

fn peak_memory_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN) / 1024.0
}

fn main() {
    let tree = tree();
    let has_rg = rg(&tree.0);
    let mut first = Vec::new();
    let mut base = Vec::new();
    // In turns, so that both meet the same machine.
    for _ in 0..RUNS {
        base.push(millis(|| {
            let files = if has_rg { usize::from(rg(&tree.0)) } else { plain_walk(&tree.0) };
            assert!(files > 0);
        }));
        let indexer = Indexer::new(tree.0.clone());
        first.push(millis(|| drop(indexer.scan(clock::now()))));
    }
    let middle = |times: &[f64]| {
        let mut times = times.to_vec();
        times.sort_by(f64::total_cmp);
        times[RUNS / 2]
    };
    let (first, base) = (middle(&first), middle(&base));
    let indexer = Indexer::new(tree.0.clone());
    let index = indexer.scan(clock::now()).expect("it is scanned");
    let mut round = 0;
    let rescan = median(|| {
        round += 1;
        for n in 0..CHANGED {
            let name = format!("src/m{n}/p{n}/changed-{round}.rs");
            fs::write(tree.0.join(name), "").expect("a file is written");
        }
        millis(|| drop(indexer.scan(clock::now())))
    });
    let kinds: std::collections::BTreeSet<_> = index.workspaces.iter().map(|w| w.kind).collect();
    let ok = |holds: bool| if holds { "ok" } else { "MISSED" };
    println!("{} files, {} folders, workspaces {kinds:?}", index.stats.total_files, index.stats.total_dirs);
    println!(
        "{:<44} {base:>9.1} ms",
        if has_rg { "rg --files --hidden" } else { "plain walk (no rg on this machine)" }
    );
    println!(
        "{:<44} {first:>9.1} ms  {:.2} of it, at most 1.5: {}",
        "first scan",
        first / base,
        ok(first / base <= 1.5)
    );
    println!(
        "{:<44} {rescan:>9.1} ms  {:.3} of the first, at most 0.1: {}",
        format!("rescan after {CHANGED} new files"),
        rescan / first,
        ok(rescan / first <= 0.1)
    );
    let memory = peak_memory_mb();
    println!(
        "{:<44} {memory:>9.1} MB  at most {MEMORY_LIMIT_MB}: {}",
        "peak memory",
        ok(memory < MEMORY_LIMIT_MB)
    );
}
