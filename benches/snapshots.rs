//! What a snapshot costs beside `git stash create`, on the same tree in the same run, and what a thousand
//! turns leave on the disk. `cargo bench -p svc-snapshots`; `-- 1000` takes a tree of so many files alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use svc_snapshots::{Id, Place, Store, take};

const RUNS: usize = 11;
const CHANGED: usize = 20;
const LIMIT: Duration = Duration::from_secs(600);
const TURNS: usize = 1_000;
const KEPT: usize = 100;
/// As the daemon tidies.
const TIDY_EVERY: usize = 64;

struct Tree {
    home: PathBuf,
    files: usize,
    store: Store,
    place: Place,
    edits: usize,
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn git(folder: &Path, args: &[&str]) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0"]).args(args).current_dir(folder);
    let said = git.output().unwrap();
    assert!(said.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&said.stderr));
}

impl Tree {
    fn new(files: usize) -> Self {
        let home = std::env::temp_dir().join(format!("svc-bench-snapshots-{}-{files}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        let root = home.join("work");
        let packed = |_: &[Id]| Err(std::io::Error::other("nothing is packed"));
        let store = Store::open(&home.join("store"), Box::new(packed)).unwrap();
        let place = Place { root, index: home.join("index"), exclude: home.join("none"), also: "" };
        let mut tree = Self { home, files, store, place, edits: 0 };
        for n in 0..files {
            tree.write(n);
        }
        fs::write(tree.place.root.join(".gitignore"), "*.log\ntarget/\n").unwrap();
        git(&tree.place.root, &["init", "-q"]);
        git(&tree.place.root, &["add", "-A"]);
        git(&tree.place.root, &["commit", "-qm", "first"]);
        tree
    }

    fn write(&mut self, n: usize) {
        let folder = self.place.root.join(format!("part{}/module{}", n / 1000, n / 40));
        if n.is_multiple_of(40) {
            fs::create_dir_all(&folder).unwrap();
        }
        self.edits += 1;
        let text =
            format!("// file {n}, edit {}\n", self.edits) + &"let value = compute(input);\n".repeat(60);
        fs::write(folder.join(format!("file{n}.rs")), text).unwrap();
    }

    fn edit(&mut self) {
        for n in 0..CHANGED {
            self.write((n * 7919 + self.edits) % self.files);
        }
    }

    fn take(&self) -> Duration {
        let began = Instant::now();
        take(&self.store, &self.place, "{}", LIMIT).unwrap();
        began.elapsed()
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

fn speed(files: usize) {
    let mut tree = Tree::new(files);
    let first = tree.take();
    let (mut snapshots, mut quiet, mut stashes) = (Vec::new(), Vec::new(), Vec::new());
    tree.take();
    for _ in 0..RUNS {
        tree.edit();
        snapshots.push(tree.take());
        tree.edit();
        let began = Instant::now();
        git(&tree.place.root, &["stash", "create"]);
        stashes.push(began.elapsed());
        tree.take();
        std::thread::sleep(Duration::from_millis(60));
        tree.take();
        quiet.push(tree.take());
    }
    let (snapshot, stash) = (median(snapshots), median(stashes));
    println!("| {files} files, first | {:.0} ms | |", first.as_secs_f64() * 1000.0);
    println!(
        "| {files} files, {CHANGED} changed | {snapshot:.1} ms | git stash create {stash:.1} ms, {:.2} x |",
        snapshot / stash
    );
    println!("| {files} files, none changed | {:.1} ms | |", median(quiet));
}

fn disk(files: usize) {
    let mut tree = Tree::new(files);
    let store = tree.home.join("store");
    let mut most = 0;
    for turn in 0..TURNS {
        tree.edit();
        let taken = take(&tree.store, &tree.place, "{}", LIMIT).unwrap();
        tree.store.name(&format!("1/{turn}"), taken.commit).unwrap();
        if turn >= KEPT {
            tree.store.forget(&format!("1/{}", turn - KEPT)).unwrap();
        }
        if turn % TIDY_EVERY == TIDY_EVERY - 1 {
            most = most.max(tree.store.size().0);
            git(&store, &["--git-dir=.", "repack", "-a", "-d", "-q"]);
            git(&store, &["--git-dir=.", "prune", "--expire=now"]);
        }
    }
    let bytes = tree.store.size().0;
    println!(
        "| {TURNS} turns of {CHANGED} files, {KEPT} kept, {files} files | {} KiB | {} KiB at most |",
        bytes >> 10,
        most >> 10
    );
}

fn main() {
    let only: Option<usize> = std::env::args().skip(1).find_map(|word| word.parse().ok());
    println!("| What | Seen | Beside |\n|---|---|---|");
    for files in only.map_or_else(|| vec![200, 10_000, 100_000], |files| vec![files]) {
        speed(files);
    }
    disk(only.unwrap_or(2_000));
}
