//! Random work of several agents and a person in one folder, undone and redone: what was the agent's comes
//! back byte for byte, with its permissions, and nothing else changes.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use svc_snapshots::{
    Id, Place, Plan, Store, Taken, apply, changes, current, plan, spans, take, taken_back, view,
};
use svc_sys::beneath::Root;

const LIMIT: Duration = Duration::from_secs(60);
/// What says in which world a process is to undo until it is killed.
const VICTIM: &str = "SVC_SNAPSHOT_VICTIM";

/// A file or a link: its permissions, and its bytes or where it leads.
type Thing = (u32, Vec<u8>);
type Tree = BTreeMap<String, Thing>;

struct World {
    home: PathBuf,
    store: Store,
    place: Place,
    seed: u64,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

impl World {
    fn new(name: &str, seed: u64) -> Self {
        let home = std::env::temp_dir().join(format!("svc-snapshots-{name}-{}-{seed}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        Self::at(home, seed)
    }

    fn at(home: PathBuf, seed: u64) -> Self {
        let root = home.join("work");
        fs::create_dir_all(&root).unwrap();
        let packed = |_: &[Id]| Err(std::io::Error::other("nothing is packed here"));
        let store = Store::open(&home.join("store"), Box::new(packed)).unwrap();
        let place =
            Place { root, index: home.join("index"), exclude: home.join("exclude"), also: "/ours.md\n" };
        Self { home, store, place, seed: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        usize::try_from(self.seed >> 33).unwrap() % below
    }

    fn take(&self) -> Taken {
        take(&self.store, &self.place, "{}", LIMIT).unwrap()
    }

    fn root(&self) -> Root {
        Root::open(&self.place.root).unwrap()
    }

    fn path(&mut self) -> String {
        let folders = ["", "a/", "a/b/", "a-b/", "c/", "a/b.d/"];
        let names = ["one", "two", "three", "a", "b", "ü ö"];
        format!("{}{}", folders[self.random(6)], names[self.random(6)])
    }

    /// One piece of work, of those that shells, editors and tools do.
    fn work(&mut self) {
        let (one, other) = (self.path(), self.path());
        let (one, other) = (self.place.root.join(one), self.place.root.join(other));
        let byte = u8::try_from(self.random(256)).unwrap();
        match self.random(12) {
            0..=3 => {
                let _ = fs::create_dir_all(one.parent().unwrap());
                let _ = fs::write(&one, vec![byte; [0, 7, 70_000][self.random(3)]]);
            }
            4 => drop(fs::remove_file(&one)),
            5 => drop(fs::remove_dir_all(one.parent().filter(|up| *up != self.place.root).unwrap_or(&one))),
            6 => {
                let mode = [0o600, 0o644, 0o755, 0o711, 0o664, 0o444, 0o4755][self.random(7)];
                if fs::symlink_metadata(&one).is_ok_and(|meta| meta.is_file()) {
                    fs::set_permissions(&one, Permissions::from_mode(mode)).unwrap();
                }
            }
            7 => drop(symlink(["../work", "one", "nowhere"][self.random(3)], &one)),
            8 | 9 => drop(fs::rename(&one, &other)),
            10 => {
                // As large as before, and by its time of change as old.
                if let Ok(meta) = fs::symlink_metadata(&one)
                    && meta.is_file()
                {
                    let was = meta.modified().unwrap();
                    fs::write(&one, vec![byte; usize::try_from(meta.len()).unwrap()]).unwrap();
                    fs::File::open(&one).unwrap().set_modified(was).unwrap();
                }
            }
            _ => {
                // A file where a folder is, and the other way round.
                if one.is_dir() {
                    let _ = fs::remove_dir_all(&one);
                    let _ = fs::write(&one, [byte]);
                } else if fs::remove_file(&one).is_ok() {
                    fs::create_dir(&one).unwrap();
                    fs::write(one.join("one"), [byte]).unwrap();
                }
            }
        }
    }

    fn look(&self) -> Tree {
        let mut tree = Tree::new();
        look(&self.place.root, "", &mut tree);
        tree
    }

    fn changes(&self, from: &Taken, to: &Taken) -> BTreeMap<String, svc_snapshots::Change> {
        let mut one = view(&self.store, from.files_tree, from.meta).unwrap();
        let mut other = view(&self.store, to.files_tree, to.meta).unwrap();
        changes(&mut one, &mut other).unwrap()
    }
}

fn look(folder: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            look(&entry.path(), &format!("{name}/"), tree);
        } else if meta.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            tree.insert(name, (0o120_000, target.into_os_string().into_encoded_bytes()));
        } else {
            tree.insert(name, (meta.mode() & 0o7777, fs::read(entry.path()).unwrap()));
        }
    }
}

/// So many, or as many as `SVC_SNAPSHOT_SEEDS` says.
fn seeds(usual: u64) -> u64 {
    std::env::var("SVC_SNAPSHOT_SEEDS").map_or(usual, |count| count.parse().unwrap())
}

/// What a turn has made of each path, as it was seen by looking.
fn seen(before: &Tree, after: &Tree) -> BTreeMap<String, (Option<Thing>, Option<Thing>)> {
    let paths = before.keys().chain(after.keys());
    let pair = |path: &String| (path.clone(), (before.get(path).cloned(), after.get(path).cloned()));
    paths.map(pair).filter(|(_, (was, is))| was != is).collect()
}

struct Turn {
    before: Taken,
    after: Taken,
    seen: BTreeMap<String, (Option<Thing>, Option<Thing>)>,
}

/// What is to be there when these turns are undone, and whether that is refused, by looking alone.
fn expected(turns: &[Turn], now: &Tree) -> Option<Tree> {
    let mut spans: BTreeMap<&String, (Option<Thing>, Option<Thing>, bool)> = BTreeMap::new();
    for (path, (was, is)) in turns.iter().flat_map(|turn| &turn.seen) {
        let span = spans.entry(path).or_insert((was.clone(), was.clone(), false));
        span.2 |= span.1 != *was;
        span.1.clone_from(is);
    }
    let mut tree = now.clone();
    for (path, (was, is, is_broken)) in spans {
        let there = now.get(path).cloned();
        if was == is || there == was {
            continue;
        }
        if there != is || is_broken {
            return None;
        }
        match was {
            Some(was) => drop(tree.insert(path.clone(), was)),
            None => drop(tree.remove(path)),
        }
    }
    // A file cannot be where others stand below.
    let is_below = |path: &String| {
        let below = format!("{path}/");
        tree.range(below.clone()..).next().is_some_and(|(next, _)| next.starts_with(&below))
    };
    (!tree.keys().any(is_below)).then_some(tree)
}

fn undo(world: &World, turns: &[Turn]) -> Result<(Plan, Taken), Vec<svc_snapshots::Left>> {
    let kept = world.take();
    let mut now = view(&world.store, kept.files_tree, kept.meta).unwrap();
    let of_turns = spans(turns.iter().map(|turn| world.changes(&turn.before, &turn.after)));
    let (found, against) = plan(&world.root(), &mut now, &of_turns).unwrap();
    if !against.is_empty() {
        return Err(against);
    }
    let left = apply(&world.store, &world.root(), &found);
    assert_eq!(left, [], "nothing has changed meanwhile");
    Ok((found, kept))
}

#[test]
fn any_work_of_several_is_undone_for_one_alone_and_redone() {
    let (mut undone, mut refused) = (0, 0);
    let seeds = seeds(400);
    for seed in 1..=seeds {
        let mut world = World::new("random", seed);
        let mut turns: [Vec<Turn>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..world.random(30) {
            world.work();
        }
        for _ in 0..=world.random(6) {
            let who = world.random(3);
            let (before, was) = (world.take(), world.look());
            for _ in 0..world.random(6) {
                world.work();
            }
            if let Some(turns) = turns.get_mut(who) {
                let after = world.take();
                let seen = seen(&was, &world.look());
                turns.push(Turn { before, after, seen });
            }
        }
        let mine = &turns[0];
        if mine.is_empty() {
            continue;
        }
        let from = world.random(mine.len());
        let was = world.look();
        match (undo(&world, &mine[from..]), expected(&mine[from..], &was)) {
            (Ok((done, _)), Some(tree)) => {
                assert_eq!(world.look(), tree, "seed {seed}: undone");
                let kept = world.take();
                let mut now = view(&world.store, kept.files_tree, kept.meta).unwrap();
                let (back, against) = plan(&world.root(), &mut now, &taken_back(&done)).unwrap();
                assert_eq!(against, [], "seed {seed}");
                assert_eq!(apply(&world.store, &world.root(), &back), []);
                assert_eq!(world.look(), was, "seed {seed}: redone");
                undone += 1;
            }
            (Err(against), None) => {
                assert!(against.iter().all(|one| !one.path.is_empty()));
                assert_eq!(world.look(), was, "seed {seed}: refused, so nothing changes");
                refused += 1;
            }
            (undone, expected) => panic!("seed {seed}: {undone:?}, but {expected:?}"),
        }
    }
    println!("{undone} undone and redone, {refused} refused");
    assert!(undone > seeds / 4 && refused > seeds / 40, "{undone} undone, {refused} refused");
}

#[test]
fn a_plan_that_is_cut_anywhere_and_carried_out_again_comes_to_the_same() {
    for seed in 1..=40 {
        let mut world = World::new("cut", seed);
        for _ in 0..20 {
            world.work();
        }
        let (before, was) = (world.take(), world.look());
        for _ in 0..12 {
            world.work();
        }
        let (after, is) = (world.take(), world.look());
        let turn = [Turn { before, after, seen: seen(&was, &is) }];
        let kept = world.take();
        let mut now = view(&world.store, kept.files_tree, kept.meta).unwrap();
        let of_turn = spans(turn.iter().map(|turn| world.changes(&turn.before, &turn.after)));
        let (whole, against) = plan(&world.root(), &mut now, &of_turn).unwrap();
        assert_eq!(against, []);
        for cut in 0..whole.len() {
            // As one that was killed has left it: removals come first, from the end, then what is written.
            let order = whole.iter().rev().filter(|(_, step)| step.to.is_none());
            let order = order.chain(whole.iter().filter(|(_, step)| step.to.is_some()));
            let part: Plan = order.take(cut).map(|(path, step)| (path.clone(), *step)).collect();
            apply(&world.store, &world.root(), &part);
            fs::write(world.place.root.join(".svc-undo-0"), "half").unwrap();
            assert_eq!(apply(&world.store, &world.root(), &whole), [], "seed {seed}, cut {cut}");
            let _ = fs::remove_file(world.place.root.join(".svc-undo-0"));
            assert_eq!(world.look(), was, "seed {seed}, cut {cut}");
            // And forth again, for the next cut.
            let (back, against) = {
                let kept = world.take();
                let mut now = view(&world.store, kept.files_tree, kept.meta).unwrap();
                plan(&world.root(), &mut now, &taken_back(&whole)).unwrap()
            };
            assert_eq!(against, []);
            apply(&world.store, &world.root(), &back);
            assert_eq!(world.look(), is, "seed {seed}, cut {cut}: forth");
        }
    }
}

/// Takes snapshots and carries two plans out, there and back, each noted before, until somebody kills this
/// process.
fn undo_until_killed(home: &Path) -> ! {
    let world = World::at(home.to_path_buf(), 1);
    let plans: [Plan; 2] = serde_json::from_slice(&fs::read(home.join("plans")).unwrap()).unwrap();
    println!("begins");
    loop {
        for (number, plan) in plans.iter().enumerate() {
            world.take();
            svc_sys::files::replace_soon(&home.join("begun"), number.to_string().as_bytes()).unwrap();
            assert_eq!(apply(&world.store, &world.root(), plan), []);
        }
    }
}

/// Has this very program undo in that folder, and kills it after so many microseconds.
fn kill_one_that_undoes(test: &str, home: &Path, after: u64) {
    let mut victim = Command::new(std::env::current_exe().unwrap());
    let victim = victim.args(["--exact", test, "--nocapture"]).env(VICTIM, home);
    let mut victim = victim.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(victim.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("begins")), "it ended");
    // Any moment will do, whatever this machine comes to in that time.
    std::thread::sleep(Duration::from_micros(after));
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[test]
fn a_process_that_is_killed_anywhere_in_a_snapshot_or_an_undo_leaves_what_the_next_one_ends() {
    if let Some(home) = std::env::var_os(VICTIM) {
        undo_until_killed(Path::new(&home));
    }
    let name = "a_process_that_is_killed_anywhere_in_a_snapshot_or_an_undo_leaves_what_the_next_one_ends";
    let (mut halves, seeds) = (0, seeds(40));
    for seed in 1..=seeds {
        let mut world = World::new("killed", seed);
        for _ in 0..60 {
            world.work();
        }
        let (before, was) = (world.take(), world.look());
        for _ in 0..60 {
            world.work();
        }
        let (after, is) = (world.take(), world.look());
        let files = [before.files_tree, after.files_tree];
        let turn = [Turn { before, after, seen: seen(&was, &is) }];
        let (there, _) = undo(&world, &turn).unwrap();
        let kept = world.take();
        let mut now = view(&world.store, kept.files_tree, kept.meta).unwrap();
        let (back, against) = plan(&world.root(), &mut now, &taken_back(&there)).unwrap();
        assert_eq!(against, [], "seed {seed}");
        assert_eq!(apply(&world.store, &world.root(), &back), []);
        let plans = [there, back];
        fs::write(world.home.join("plans"), serde_json::to_vec(&plans).unwrap()).unwrap();
        let after = u64::try_from(world.random(30_000)).unwrap();
        kill_one_that_undoes(name, &world.home, after);

        // What the next daemon does: it carries out again what was noted, from wherever that was left.
        let found = world.look();
        halves += u64::from(found != was && found != is);
        let begun: usize = match fs::read_to_string(world.home.join("begun")) {
            Ok(number) => number.parse().unwrap(),
            Err(_) => continue,
        };
        assert_eq!(apply(&world.store, &world.root(), &plans[begun]), [], "seed {seed}");
        let trees = [&was, &is];
        assert_eq!(&world.look(), trees[begun], "seed {seed}: whole, and nothing lies beside it");
        assert_eq!(world.take().files_tree, files[begun], "seed {seed}: what stands there is seen");
        assert_eq!(apply(&world.store, &world.root(), &plans[1 - begun]), [], "seed {seed}");
        assert_eq!(&world.look(), trees[1 - begun], "seed {seed}: and the other way");
    }
    println!("{halves} of {seeds} were killed in the middle of an undo");
    assert!(halves > 0, "none was killed in the middle");
}

#[test]
fn what_is_there_is_taken_byte_for_byte_whatever_attributes_and_settings_say() {
    let world = World::new("bytes", 1);
    let root = &world.place.root;
    fs::write(
        root.join(".gitattributes"),
        "* text=auto eol=lf ident filter=evil working-tree-encoding=UTF-16\n",
    )
    .unwrap();
    fs::write(root.join("dos.txt"), "a\r\n$Id$\r\n").unwrap();
    fs::create_dir_all(root.join(".git")).unwrap();
    fs::write(root.join(".git/config"), "[filter \"evil\"]\n\tclean = touch /tmp/never\n").unwrap();
    let taken = world.take();
    let mut view = view(&world.store, taken.files_tree, taken.meta).unwrap();
    let id = view.file("dos.txt").unwrap().unwrap().id;
    assert_eq!(world.store.get(id).unwrap(), b"a\r\n$Id$\r\n");
    assert_eq!(view.find(".git").unwrap(), None);
}

#[test]
fn what_stands_behind_another_repository_is_seen_when_it_changes() {
    let world = World::new("behind", 1);
    let root = &world.place.root;
    for folder in ["a", "other/.git", "z/deep"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["a/file", "other/file", "z/file", "z/deep/file"] {
        fs::write(root.join(file), "before").unwrap();
    }
    // So old that no folder is listed anew.
    let old = std::time::SystemTime::now() - Duration::from_secs(3_600);
    for folder in ["z/deep", "z", "other", "a", ""] {
        fs::File::open(root.join(folder)).unwrap().set_modified(old).unwrap();
    }
    let left = |taken: &Taken| taken.left.clone();
    let first = world.take();
    let second = world.take();
    assert_eq!((left(&first), first.files), (left(&second), second.files));
    for file in ["a/file", "z/file", "z/deep/file"] {
        fs::write(root.join(file), "after").unwrap();
    }
    let third = world.take();
    let changed: Vec<_> = world.changes(&second, &third).into_keys().collect();
    assert_eq!(changed, ["a/file", "z/deep/file", "z/file"]);
    assert_eq!(left(&third), [("other".to_owned(), "a repository of its own")]);
}

#[test]
fn limits_what_is_left_out_is_told_with_its_reason_and_never_written_over() {
    let world = World::new("left", 1);
    let root = &world.place.root;
    fs::write(root.join(".gitignore"), "*.log\n!keep.log\nout/\n").unwrap();
    for file in
        ["a.log", "keep.log", "out/x", "in/.gitignore", "in/a.tmp", "in/deep/b.tmp", "b.tmp", "ours.md"]
    {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), "x").unwrap();
    }
    fs::write(root.join("in/.gitignore"), "*.tmp\n").unwrap();
    fs::write(&world.place.exclude, "secret\n").unwrap();
    fs::write(root.join("secret"), "x").unwrap();
    let large = fs::File::create(root.join("large")).unwrap();
    large.set_len(svc_snapshots::MAX_FILE_BYTES + 1).unwrap();
    fs::create_dir_all(root.join("other/.git")).unwrap();
    fs::write(root.join("other/file"), "x").unwrap();
    assert!(Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
    for round in 0..3 {
        let taken = world.take();
        let left: Vec<_> = taken.left.iter().map(|(path, why)| (path.as_str(), *why)).collect();
        let expected = [
            ("large", "it is larger than 32 MiB"),
            ("pipe", "it is a socket, a pipe or a device"),
            ("other", "a repository of its own"),
        ];
        assert_eq!(left, expected, "round {round}");
        let mut view = view(&world.store, taken.files_tree, taken.meta).unwrap();
        for path in [".gitignore", "keep.log", "b.tmp", "in/.gitignore"] {
            assert!(view.file(path).unwrap().is_some(), "{path}");
        }
        for path in ["a.log", "out/x", "in/a.tmp", "in/deep/b.tmp", "secret", "other/file", "ours.md"] {
            assert!(view.find(path).unwrap().is_none(), "{path}");
        }
        assert_eq!(view.why_left("other/file"), Some("a repository of its own"));
    }
    // Rules that change are heeded although no folder has changed.
    fs::write(root.join(".gitignore"), "out/\n").unwrap();
    let before = world.take();
    assert!(view(&world.store, before.files_tree, before.meta).unwrap().file("a.log").unwrap().is_some());
    // What a turn has made ignored is not written over, though its beginning holds an earlier one.
    fs::write(root.join("a.log"), "newer").unwrap();
    fs::write(root.join(".gitignore"), "*.log\n").unwrap();
    let after = world.take();
    let turn = [Turn { before, after, seen: BTreeMap::new() }];
    let against = undo(&world, &turn).unwrap_err();
    assert!(against.iter().any(|one| one.path == "a.log"), "{against:?}");
    assert_eq!(fs::read(root.join("a.log")).unwrap(), b"newer");
}

#[test]
fn nothing_is_put_over_a_link_or_outside_of_the_folder() {
    let world = World::new("links", 1);
    let root = world.place.root.clone();
    let outside = world.home.join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(root.join("in")).unwrap();
    fs::write(root.join("in/file"), "mine").unwrap();
    let before = world.take();
    fs::remove_file(root.join("in/file")).unwrap();
    let after = world.take();
    fs::remove_dir(root.join("in")).unwrap();
    symlink(&outside, root.join("in")).unwrap();
    let turn = [Turn { before, after, seen: BTreeMap::new() }];
    let against = undo(&world, &turn).unwrap_err();
    assert_eq!((against[0].path.as_str(), against[0].why.as_str()), ("in/file", "in stands in its place"));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(current(&world.root(), "in/file").unwrap(), None);
}

#[test]
fn a_file_comes_back_where_folders_without_a_file_stand_and_not_where_something_does() {
    let world = World::new("empty", 1);
    let root = world.place.root.clone();
    fs::write(root.join("a"), "a file").unwrap();
    let before = world.take();
    fs::remove_file(root.join("a")).unwrap();
    let after = world.take();
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir_all(root.join("a/d")).unwrap();
    let turn = [Turn { before, after, seen: BTreeMap::new() }];
    undo(&world, &turn).unwrap();
    assert_eq!(fs::read(root.join("a")).unwrap(), b"a file");
    fs::remove_file(root.join("a")).unwrap();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/mine"), "a person's").unwrap();
    let against = undo(&world, &turn).unwrap_err();
    assert_eq!((against[0].path.as_str(), against[0].why.as_str()), ("a", "a/b/mine stands in its place"));
    assert_eq!(fs::read(root.join("a/b/mine")).unwrap(), b"a person's");
}

#[test]
fn git_calls_the_store_whole_and_reads_the_same_out_of_it() {
    let mut world = World::new("git", 7);
    for _ in 0..60 {
        world.work();
    }
    let taken = world.take();
    world.store.name("1/1", taken.commit).unwrap();
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).arg("--git-dir");
        let said = git.arg(world.store.folder()).args(args).output().unwrap();
        assert!(said.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    };
    git(&["fsck", "--strict", "--full"]);
    let listed = git(&["ls-tree", "-r", "-z", "--name-only", "refs/svc/1/1:files"]);
    let listed: Vec<&str> = listed.split_terminator('\0').collect();
    let tree = world.look();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, tree.keys().map(String::as_str).collect::<Vec<_>>());
    let names = world.store.folder().join("refs/svc/1");
    let is_name = |entry: fs::DirEntry| entry.file_name() == "1";
    assert!(fs::read_dir(&names).unwrap().flatten().all(is_name), "nothing stands beside it");
    // As a power cut leaves one that was being written.
    fs::write(names.join("2"), "").unwrap();
    assert_eq!((world.store.mend_names().unwrap(), world.store.mend_names().unwrap()), (1, 0));
    git(&["repack", "-a", "-d", "-q"]);
    git(&["prune", "--expire=now"]);
    assert_eq!(world.store.size().1, 0, "all is packed");
}

#[test]
fn what_has_not_changed_is_not_read_again_and_a_time_limit_holds() {
    let world = World::new("quiet", 1);
    for n in 0..200 {
        fs::create_dir_all(world.place.root.join(format!("d{}", n % 10))).unwrap();
        fs::write(world.place.root.join(format!("d{}/f{n}", n % 10)), format!("{n}")).unwrap();
    }
    let first = take(&world.store, &world.place, "one", LIMIT).unwrap();
    let second = take(&world.store, &world.place, "two", LIMIT).unwrap();
    assert_eq!((first.files, first.files_tree), (200, second.files_tree));
    let error = take(&world.store, &world.place, "three", Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}
