//! The file endpoints of the built daemon: shapes, limits, and forty ways out of the project that lead
//! nowhere (specification: "Further endpoints", "Limits"; decisions §13, Files).

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use serde_json::{Value, json};
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const SECRET: &str = "what stands outside of the project";
const MB: usize = 1 << 20;

/// A daemon whose project lies in a folder with a secret beside it.
struct Place {
    daemon: Daemon,
    outside: Folder,
}

impl Place {
    fn new() -> Self {
        let outside = Folder::new("outside");
        outside.write("secret.txt", SECRET);
        outside.write("folder/inner.txt", SECRET);
        Self { daemon: Daemon::start(), outside }
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.daemon.project.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, target: impl AsRef<std::path::Path>, name: &str) {
        symlink(target, self.daemon.project.join(name)).unwrap();
    }

    /// A GET of a raw target, as an attacker would write it.
    fn raw_get(&self, target: &str) -> (u16, String, String) {
        let address = self.daemon.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_owned(), body.to_owned())
    }

    fn post(&self, what: &str, body: &Value) -> (u16, Value) {
        self.daemon.send("POST", &format!("/api/files/{what}"), body)
    }

    fn code(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let (status, answer) = self.daemon.send(method, path, body);
        (status, answer["code"].as_str().unwrap_or_default().to_owned())
    }
}

#[test]
fn spec_files_tree_read_write_create_mkdir_rename_delete_raw() {
    let place = Place::new();
    let daemon = &place.daemon;
    let (status, made) = place.post("mkdir", &json!({"path": "src"}));
    assert_eq!((status, made["path"].as_str()), (201, Some("src")));
    assert_eq!(place.post("mkdir", &json!({"path": "src"})).0, 409);
    let (status, created) = place.post("create", &json!({"path": "src/a.txt", "content": "one"}));
    assert_eq!((status, created["size"].as_u64()), (201, Some(3)), "{created}");
    assert_eq!(place.post("create", &json!({"path": "src/a.txt"})).0, 409);
    assert_eq!(place.post("create", &json!({"path": "no/such/a.txt"})).0, 404);
    assert_eq!(place.post("create", &json!({"path": "no/such/b.txt", "parents": true})).0, 201);

    let read = daemon.get("/api/files/read?path=src/a.txt");
    assert_eq!(read["content"], "one");
    assert_eq!(read["etag"], created["etag"]);
    assert!(read["mtime"].as_str().unwrap().ends_with('Z'));
    assert_eq!(daemon.send("GET", "/api/files/read?path=src/b.txt", &Value::Null).0, 404);
    assert_eq!(place.code("GET", "/api/files/read?path=src", &Value::Null), (400, "is_a_folder".into()));
    assert_eq!(place.code("GET", "/api/files/read", &Value::Null), (400, "validation_failed".into()));

    let (status, written) = place.post("write", &json!({"path": "src/a.txt", "content": "two!"}));
    assert_eq!((status, &written["created"]), (200, &json!(false)));
    assert_eq!(daemon.get("/api/files/read?path=./src//a.txt")["content"], "two!");
    assert_eq!(place.post("write", &json!({"path": "src/new.txt", "content": ""})).1["created"], true);
    assert_eq!(place.post("write", &json!({"path": "gone/new.txt", "content": ""})).0, 404);
    assert_eq!(place.post("write", &json!({"path": "src", "content": ""})).0, 400);

    let (status, _) = place.post("rename", &json!({"from": "src/a.txt", "to": "src/b.txt"}));
    assert_eq!(status, 200);
    assert_eq!(place.post("rename", &json!({"from": "src/a.txt", "to": "src/c.txt"})).0, 404);
    assert_eq!(place.post("rename", &json!({"from": "src/b.txt", "to": "src/new.txt"})).0, 409);
    assert_eq!(place.post("rename", &json!({"from": "src", "to": "src/inner"})).1["code"], "into_itself");

    let tree = daemon.get("/api/files/tree");
    let names: Vec<_> =
        tree["entries"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["no", "src"], "neither .svc nor temporary files: {tree}");
    assert_eq!(tree["entries"][1]["children"][0]["path"], "src/b.txt");
    assert_eq!(tree["truncated"], false);
    let flat = daemon.get("/api/files/tree?path=src&depth=1&limit=1");
    assert_eq!((&flat["truncated"], &flat["count"]), (&json!(true), &json!(1)));

    assert_eq!(daemon.send("DELETE", "/api/files/delete?path=src", &Value::Null).0, 409);
    assert_eq!(daemon.send("DELETE", "/api/files/delete?path=src/b.txt", &Value::Null).0, 200);
    assert_eq!(daemon.send("DELETE", "/api/files/delete?path=src/b.txt", &Value::Null).0, 404);
    assert_eq!(daemon.send("DELETE", "/api/files/delete?path=src&recursive=true", &Value::Null).0, 200);
    assert!(!daemon.project.join("src").exists());

    let audit = fs::read_to_string(daemon.project.join(".svc/audit.jsonl")).unwrap();
    for event in ["file.mkdir", "file.create", "file.write", "file.rename", "file.delete"] {
        assert!(audit.contains(&format!("\"event\":\"{event}\"")), "{event}");
    }
}

#[test]
fn decisions_13_binary_files_are_told_and_raw_has_type_and_disposition() {
    let place = Place::new();
    fs::write(place.daemon.project.join("pic.png"), b"\x89PNG\0\x01").unwrap();
    fs::write(place.daemon.project.join("latin"), b"caf\xe9").unwrap();
    place.write("page.html", "<script>1</script>");
    for path in ["pic.png", "latin"] {
        let read = place.daemon.get(&format!("/api/files/read?path={path}"));
        assert_eq!((&read["binary"], read["path"].as_str()), (&json!(true), Some(path)));
        assert!(read["size"].as_u64().unwrap() > 0 && read.get("content").is_none(), "{read}");
    }
    let (status, head, _) = place.raw_get("/api/files/raw?path=pic.png");
    assert_eq!(status, 200);
    assert!(head.contains("Content-Type: image/png") && !head.contains("Content-Disposition"), "{head}");
    place.write("x\"y ü.svg", "<svg/>");
    for (path, kind) in [("page.html", "text/html"), ("x%22y%20%C3%BC.svg", "image/svg+xml")] {
        let (status, head, _) = place.raw_get(&format!("/api/files/raw?path={path}"));
        assert_eq!(status, 200);
        for wanted in [kind, "Content-Disposition: attachment; filename=\"", "nosniff", "sandbox"] {
            assert!(head.contains(wanted), "{wanted}: {head}");
        }
    }
    let etag = head_value(&head, "ETag");
    let client = ureq::agent();
    let url = format!("{}/api/files/raw?path=pic.png", place.daemon.url);
    let again = client.get(&url).header("If-None-Match", &etag).call().unwrap();
    assert_eq!(again.status().as_u16(), 304);
}

fn head_value(head: &str, name: &str) -> String {
    head.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap_or_default().to_owned()
}

/// The project with every trap in it.
fn trapped() -> Place {
    let place = Place::new();
    let outside = place.outside.path().to_path_buf();
    place.write("inside.txt", "fine");
    place.write(".git/config", "[core]\n");
    place.link(outside.join("secret.txt"), "to-secret");
    place.link(&outside, "to-outside");
    place.link(format!("../{}/secret.txt", outside.file_name().unwrap().to_str().unwrap()), "relative-out");
    place.link("/", "to-root");
    place.link(".svc", "to-state");
    place.link("loop-b", "loop-a");
    place.link("loop-a", "loop-b");
    place.link("/proc/self/root", "magic");
    let state = place.daemon.project.join(".svc");
    fs::write(state.join("token"), SECRET).unwrap();
    fs::write(state.join("credentials.key"), SECRET).unwrap();
    // A second name of the very same file, which is no link that could be followed.
    fs::hard_link(state.join("credentials.key"), place.daemon.project.join("key-again")).unwrap();
    fs::create_dir_all(state.join("state")).unwrap();
    fs::write(state.join("state/any.json"), SECRET).unwrap();
    fs::hard_link(state.join("state/any.json"), place.daemon.project.join("agents-again")).unwrap();
    place
}

/// Forty ways to reach what is not the caller's, each with the status that refuses it.
fn attacks() -> Vec<(String, u16)> {
    let long = "a".repeat(256);
    let deep = "d/".repeat(2_100);
    [
        ("../secret.txt", 400),
        ("..", 400),
        ("a/../../secret.txt", 400),
        ("./.././secret.txt", 400),
        ("inside.txt/../../secret.txt", 400),
        ("%2e%2e/secret.txt", 400),
        ("%2e%2e%2fsecret.txt", 400),
        ("..%2fsecret.txt", 400),
        ("%252e%252e%252fsecret.txt", 404),
        ("..%5c..%5csecret.txt", 404),
        ("....//secret.txt", 404),
        ("..;/secret.txt", 404),
        ("/etc/passwd", 400),
        ("//etc/passwd", 400),
        ("%2fetc%2fpasswd", 400),
        ("file:///etc/passwd", 404),
        ("~/.ssh/id_rsa", 404),
        ("C:/Windows/win.ini", 404),
        ("inside.txt%00.png", 400),
        ("%00", 400),
        ("%c0%ae%c0%ae/secret.txt", 400),
        ("%ef%bc%8e%ef%bc%8e/secret.txt", 404),
        ("to-secret", 403),
        ("to-outside/secret.txt", 403),
        ("to-outside/folder/inner.txt", 403),
        ("relative-out", 403),
        ("to-root/etc/passwd", 403),
        ("magic/etc/passwd", 403),
        ("loop-a", 403),
        (".svc/token", 403),
        (".SVC/token", 403),
        (".svc/credentials.key", 403),
        (".svc/state/agents.json", 403),
        ("./.svc/token", 403),
        ("to-state/token", 403),
        (".svc", 403),
        ("key-again", 403),
        ("agents-again", 403),
        (long.as_str(), 400),
        (deep.as_str(), 400),
        ("inside.txt/x", 404),
    ]
    .map(|(path, status)| (path.to_owned(), status))
    .to_vec()
}

#[test]
fn issue_6_forty_attack_paths_are_refused() {
    let place = trapped();
    let outside = place.outside.path().to_path_buf();
    let reads = attacks();
    assert!(reads.len() + 1 >= 40);
    for (path, status) in &reads {
        for endpoint in ["read", "raw"] {
            let (got, _, body) = place.raw_get(&format!("/api/files/{endpoint}?path={path}"));
            // On a file system that tells cases apart there is no .SVC.
            assert_eq!(got, *status, "{endpoint} {path}: {body}");
            assert!(!body.contains(SECRET) && !body.contains("root:"), "{path} leaks");
        }
    }
    for path in ["to-outside", "to-root", "..", "/", "to-state"] {
        let (got, _, body) = place.raw_get(&format!("/api/files/tree?path={path}"));
        assert!(got >= 400, "tree {path}: {got} {body}");
    }
    writes_are_refused(&place);
    assert_eq!(fs::read_to_string(outside.join("secret.txt")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 2, "nothing was made or removed outside");
}

fn writes_are_refused(place: &Place) {
    for path in [
        "../x",
        "/tmp/x",
        "to-outside/x",
        "to-secret",
        "relative-out",
        ".git/hooks/pre-commit",
        ".GIT/config",
        ".svc/token",
        ".Svc/x",
        "to-state/token",
        "a\\..\\x",
        "a\u{0}b",
        "a\nb",
        "",
        ".",
        "magic/tmp/x",
        "loop-a",
    ] {
        for what in ["write", "create", "mkdir"] {
            let (status, body) = place.post(what, &json!({"path": path, "content": "evil"}));
            // A link's own name is taken; nothing else may say so.
            let taken = status == 409 && ["to-secret", "relative-out", "loop-a"].contains(&path);
            assert!([400, 403].contains(&status) || taken, "{what} {path:?}: {status} {body}");
        }
        let moved = place.post("rename", &json!({"from": "inside.txt", "to": path}));
        assert!([400, 403, 409].contains(&moved.0), "rename to {path:?}: {moved:?}");
    }
    for path in
        ["to-outside/secret.txt", "..%2fsecret.txt", ".git", ".svc", ".svc/token", ".", "/", "to-state/token"]
    {
        let (status, body) = place.daemon.send(
            "DELETE",
            &format!("/api/files/delete?recursive=true&path={path}"),
            &Value::Null,
        );
        assert!([400, 403].contains(&status), "delete {path}: {status} {body}");
    }
    // A link is removed as the link it is, never what it leads to.
    assert_eq!(place.daemon.send("DELETE", "/api/files/delete?path=to-outside", &Value::Null).0, 200);
}

#[test]
fn issue_6_pipes_sockets_and_devices_are_refused_without_waiting() {
    let place = Place::new();
    let project = &place.daemon.project;
    let pipe = CString::new(project.join("pipe").to_str().unwrap()).unwrap();
    // SAFETY: the path ends with NUL and the call keeps nothing.
    #[allow(unsafe_code, reason = "std makes no pipes with a name")]
    let made = unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) };
    assert_eq!(made, 0);
    let _socket = UnixListener::bind(project.join("socket")).unwrap();
    place.link("/dev/zero", "device");
    place.link("pipe", "to-pipe");
    let began = Instant::now();
    for path in ["pipe", "to-pipe", "socket", "device"] {
        for endpoint in ["read", "raw"] {
            let (status, _, body) = place.raw_get(&format!("/api/files/{endpoint}?path={path}"));
            assert_eq!(status, 403, "{endpoint} {path}: {body}");
        }
        let (status, body) = place.post("write", &json!({"path": path, "content": "x"}));
        assert_eq!(status, 403, "write {path}: {body}");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "nobody waited for the other end of a pipe");
    let tree = place.daemon.get("/api/files/tree");
    let kind = |name: &str| {
        tree["entries"].as_array().unwrap().iter().find(|e| e["name"] == name).unwrap()["type"].clone()
    };
    assert_eq!((kind("pipe"), kind("device")), (json!("other"), json!("symlink")));
}

/// A thread swaps a folder for a link to the outside while the endpoints are called.
#[test]
fn issue_6_a_link_swapped_during_the_call_leads_nowhere() {
    let place = Place::new();
    place.write("real/inner.txt", "inside");
    let project = place.daemon.project.clone();
    let target = place.outside.path().join("folder");
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, project) = (Arc::clone(&stop), project.clone());
        std::thread::spawn(move || {
            symlink(&target, project.join("evil")).unwrap();
            let (swap, spare) = (project.join("swap"), project.join("spare"));
            while !stop.load(Ordering::Relaxed) {
                // Folder, link, folder, link: each step is one rename.
                let _ = fs::rename(project.join("real"), &swap);
                let _ = fs::rename(&swap, project.join("real"));
                let _ = fs::rename(project.join("evil"), &swap);
                let _ = fs::rename(&swap, &spare);
                let _ = fs::rename(&spare, project.join("evil"));
            }
        })
    };
    let (mut seen, mut refused) = (0, 0);
    for round in 0..600 {
        let (status, _, body) = place.raw_get("/api/files/read?path=swap/inner.txt");
        assert!(!body.contains(SECRET), "round {round}: {body}");
        assert!([200, 403, 404, 409].contains(&status), "{status} {body}");
        seen += u32::from(status == 200);
        refused += u32::from(status == 403);
        if round % 3 == 0 {
            let name = format!("swap/made-{round}.txt");
            place.post("create", &json!({"path": name, "content": "x"}));
            place.post("write", &json!({"path": "swap/inner.txt", "content": "inside"}));
            place.daemon.send("DELETE", "/api/files/delete?path=swap/inner2.txt", &Value::Null);
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    let outside = place.outside.path().join("folder");
    assert_eq!(fs::read_to_string(outside.join("inner.txt")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing was written outside");
    eprintln!("swapped: {seen} reads saw the folder, {refused} met the link");
}

#[test]
fn spec_limits_text_5_mb_raw_50_mb_and_a_body_of_8_mib() {
    let place = Place::new();
    let project = &place.daemon.project;
    fs::write(project.join("just.txt"), "x".repeat(5 * MB)).unwrap();
    fs::write(project.join("over.txt"), "x".repeat(5 * MB + 1)).unwrap();
    fs::write(project.join("over.bin"), vec![0; 5 * MB + 1]).unwrap();
    let just = place.daemon.get("/api/files/read?path=just.txt");
    assert_eq!(just["content"].as_str().unwrap().len(), 5 * MB);
    assert_eq!(place.code("GET", "/api/files/read?path=over.txt", &Value::Null), (413, "too_large".into()));
    assert_eq!(place.daemon.get("/api/files/read?path=over.bin")["binary"], true);

    let huge = fs::File::create(project.join("huge.bin")).unwrap();
    huge.set_len(50 * MB as u64 + 1).unwrap();
    assert_eq!(place.raw_get("/api/files/raw?path=huge.bin").0, 413);
    huge.set_len(50 * MB as u64).unwrap();
    let (status, _, body) = place.raw_get("/api/files/raw?path=huge.bin");
    assert_eq!((status, body.len()), (200, 50 * MB));

    let text = |size: usize| json!({"path": "written.txt", "content": "y".repeat(size)});
    assert_eq!(place.post("write", &text(5 * MB)).0, 200);
    assert_eq!(place.post("write", &text(5 * MB + 1)).0, 413);
    assert_eq!(place.post("create", &json!({"path": "n.txt", "content": "y".repeat(5 * MB + 1)})).0, 413);
    assert_eq!(fs::metadata(project.join("written.txt")).unwrap().len(), 5 * MB as u64);
    // Over the limit of the body the daemon does not even read it.
    let refused = place.daemon.try_send("POST", "/api/files/write", &text(9 * MB));
    assert!(refused.is_err() || refused.is_ok_and(|(status, _)| status == 413));
}

#[test]
fn issue_6_concurrent_writers_leave_one_whole_file() {
    let place = Place::new();
    place.write("shared.txt", "start");
    fs::set_permissions(place.daemon.project.join("shared.txt"), fs::Permissions::from_mode(0o750)).unwrap();
    let contents: Vec<String> = (0..8).map(|n| n.to_string().repeat(200_000)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = contents
            .iter()
            .map(|content| {
                let place = &place;
                scope.spawn(move || {
                    for _ in 0..10 {
                        assert_eq!(
                            place.post("write", &json!({"path": "shared.txt", "content": content})).0,
                            200
                        );
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let text = fs::read_to_string(place.daemon.project.join("shared.txt")).unwrap();
                assert!(text == "start" || contents.contains(&text), "a torn file of {} bytes", text.len());
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    let mode = fs::metadata(place.daemon.project.join("shared.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750, "permissions stay");
    let names: Vec<_> =
        fs::read_dir(&place.daemon.project).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with(".svc-write")), "{names:?}");
}

#[test]
fn of_two_writers_who_read_the_same_version_one_is_told() {
    let place = Place::new();
    place.write("shared.txt", "start");
    let seen = place.daemon.get("/api/files/read?path=shared.txt");
    let gate = Barrier::new(8);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let (place, gate, etag) = (&place, &gate, &seen["etag"]);
                scope.spawn(move || {
                    gate.wait();
                    let body = json!({"path": "shared.txt", "content": format!("writer {n}"), "etag": etag});
                    place.post("write", &body).0
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 7, "{statuses:?}");
    let stale = json!({"path": "shared.txt", "content": "x", "mtime": "2001-01-01T00:00:00.000Z"});
    assert_eq!(place.post("write", &stale).1["code"], "changed_meanwhile");
}

#[test]
fn git_status_and_diff_of_a_repository_and_of_none() {
    let place = Place::new();
    assert_eq!(place.daemon.get("/api/files/git-status")["repository"], false);
    assert_eq!(place.daemon.send("GET", "/api/files/git-diff", &Value::Null).0, 409);
    place.write("a b.txt", "one\n");
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["add", "a b.txt"],
        &["-c", "user.name=t", "-c", "user.email=t@example.test", "commit", "-qm", "first"],
    ] {
        let done = std::process::Command::new("git").args(args).current_dir(&place.daemon.project).status();
        assert!(done.unwrap().success());
    }
    place.write("a b.txt", "two\n");
    place.write("new.txt", "");
    let status = place.daemon.get("/api/files/git-status");
    assert_eq!((&status["repository"], &status["branch"]), (&json!(true), &json!("main")));
    let told: Vec<_> = status["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["path"].as_str().unwrap(), file["status"].as_str().unwrap()))
        .filter(|(path, _)| !path.starts_with('.'))
        .collect();
    assert_eq!(told, [("a b.txt", "modified"), ("new.txt", "untracked")]);
    let diff = place.daemon.get("/api/files/git-diff?path=a%20b.txt");
    assert!(diff["diff"].as_str().unwrap().contains("+two"), "{diff}");
    assert_eq!(place.daemon.send("GET", "/api/files/git-diff?path=../x", &Value::Null).0, 400);
}
