//! The map of a project on a disk.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use svc_map::{Map, Order, Wish};

struct Project(PathBuf);

impl Project {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("svc-map-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let project = Self(path.canonicalize().unwrap());
        project.write("Cargo.toml", "[package]\nname = \"shop\"\n");
        project.write(
            "web/package.json",
            "{\n  \"name\": \"shop-web\",\n  \"scripts\": {\n    \"build\": \"tsc\",\n    \
             \"test\": \"vitest\"\n  }\n}\n",
        );
        project.write(
            "src/session.rs",
            "pub struct Session;\npub fn expire_session(at: u64) -> Session { monotonic_now(); Session }\n",
        );
        project
            .write("src/login.rs", "use session::expire_session;\npub fn log_in() { expire_session(3) }\n");
        project.write("src/invoice.rs", "pub fn round_amount(cents: u64) {}\n");
        project.write("src/clock.rs", "pub fn monotonic_now() -> u64 { 1 }\n");
        project.write("tests/session.rs", "fn a_session_expires() { expire_session(1) }\n");
        project.write("web/src/cart.ts", "export class Cart {\n  total(): number {\n    return 1\n  }\n}\n");
        project
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn map(&self) -> Map {
        let mut map = Map::new(self.0.clone());
        map.refresh(&AtomicBool::new(false)).unwrap();
        map
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ranked(map: &Map, wish: &Wish) -> Vec<String> {
    map.rank(wish, 20).into_iter().map(|ranked| ranked.path.to_owned()).collect()
}

fn task(task: &str) -> Wish<'_> {
    Wish { task, ..Wish::default() }
}

#[test]
fn the_file_of_a_task_comes_first_then_who_uses_it_and_tests_where_they_are_asked_for() {
    let project = Project::new("first");
    let map = project.map();
    let sessions = ranked(&map, &task("Sessions expire too early"));
    assert_eq!(sessions[0], "src/session.rs");
    // It shares no word with the task.
    assert!(sessions.contains(&"src/clock.rs".to_owned()), "{sessions:?}");
    assert_eq!(ranked(&map, &task("the test of sessions fails"))[0], "tests/session.rs");
    assert_eq!(ranked(&map, &task("mend `round_amount`"))[0], "src/invoice.rs");
    assert_eq!(ranked(&map, &task("see src/login.rs:2, it crashes"))[0], "src/login.rs");
    assert!(ranked(&map, &task("zzz")).is_empty());
}

#[test]
fn a_scope_and_what_a_role_has_changed_count() {
    let project = Project::new("scope");
    let map = project.map();
    let scope = ["web/**".to_owned()];
    let own = Wish { task: "improve it", scope: &scope, ..Wish::default() };
    assert!(ranked(&map, &own).iter().all(|path| path.starts_with("web/")), "{:?}", ranked(&map, &own));
    let there = Wish { task: "improve it", dir: "web", ..Wish::default() };
    assert_eq!(ranked(&map, &there), ranked(&map, &own));
    let whole = ["**".to_owned()];
    assert!(ranked(&map, &Wish { task: "improve it", scope: &whole, ..Wish::default() }).is_empty());
    let touched = ["src/invoice.rs".to_owned()];
    assert_eq!(
        ranked(&map, &Wish { task: "improve it", touched: &touched, ..Wish::default() }),
        ["src/invoice.rs"]
    );
}

#[test]
fn the_text_tells_definitions_with_lines_and_how_to_test_and_keeps_to_its_room() {
    let project = Project::new("text");
    let map = project.map();
    let text = map.text(&task("the total of the cart is wrong"), 2_000);
    assert!(text.contains("- web: shop-web (npm run build | test)\n"), "{text}");
    assert!(text.contains("- The root: Rust package shop (cargo test -p shop)\n"), "{text}");
    assert!(text.contains("- web/src/cart.ts: class Cart 1, total 2\n"), "{text}");
    for room in 0..400 {
        let text = map.text(&task("sessions expire too early"), room);
        assert!(text.chars().count() <= room, "{room}: {text}");
    }
}

#[test]
fn a_look_reads_what_has_changed_and_nothing_else_and_follows_no_links() {
    let project = Project::new("look");
    let other = Project::new("look-other");
    other.write("secret.rs", "fn outside() {}\n");
    symlink(other.0.join("secret.rs"), project.0.join("src/link.rs")).unwrap();
    symlink(&other.0, project.0.join("linked")).unwrap();
    project.write(".gitignore", "made/\n");
    project.write("made/out.rs", "fn made() {}\n");
    project.write("node_modules/x/index.js", "function installed() {}\n");
    let go = AtomicBool::new(false);
    let mut map = Map::new(project.0.clone());
    let first = map.refresh(&go).unwrap();
    assert_eq!((first.files, first.read), (8, 8));
    assert_eq!(map.refresh(&go).unwrap().read, 0);
    project.write("src/invoice.rs", "pub fn cancel_subscription() {}\n");
    fs::remove_file(project.0.join("src/login.rs")).unwrap();
    let next = map.refresh(&go).unwrap();
    assert_eq!((next.files, next.read), (7, 1));
    assert_eq!(ranked(&map, &task("cancel a subscription")), ["src/invoice.rs"]);
    assert!(ranked(&map, &task("outside made installed")).is_empty());
    // Told to stop, it knows what it knew.
    project.write("src/new.rs", "");
    assert_eq!(map.refresh(&AtomicBool::new(true)).unwrap().files, 7);
}

#[test]
fn what_is_no_text_or_too_large_is_known_by_its_path() {
    let project = Project::new("odd");
    fs::write(project.0.join("src/blob.rs"), [0xff, 0xfe, 0x00]).unwrap();
    project.write("src/huge.rs", &"fn generated() {}\n".repeat(40_000));
    project.write("src/a\u{1b}[31m.rs", "fn coloured() {}\n");
    let map = project.map();
    assert_eq!(ranked(&map, &task("blob")), ["src/blob.rs"]);
    assert_eq!(ranked(&map, &task("huge")), ["src/huge.rs"]);
    assert!(ranked(&map, &task("generated")).is_empty());
    assert!(!map.text(&task("coloured"), 500).contains('\u{1b}'));
}

#[test]
fn an_order_puts_its_text_where_it_belongs_and_fences_it() {
    let project = Project::new("order");
    project.write("src/a```b.rs", "fn sessions() {}\n");
    let map = project.map();
    let order = Order {
        at: 6,
        room: 1_000,
        task: "sessions".into(),
        scope: Vec::new(),
        dir: String::new(),
        touched: Vec::new(),
    };
    let text = order.text(&map).unwrap();
    assert!(text.contains("\n````\n") && text.chars().count() <= 1_000, "{text}");
    let mut message = "above\nbelow".to_owned();
    order.put("MAP\n", &mut message);
    assert_eq!(message, "above\nMAP\nbelow");
    let mut short = "ü".to_owned();
    Order { at: 1, ..order.clone() }.put("MAP", &mut short);
    assert_eq!(short, "ü");
    assert_eq!(Order { room: 50, ..order }.text(&map), None);
}
