//! The one door to all projects of a user, against real daemons.

use super::{Stopped, User};
use crate::callers::{spawn_running, told};
use crate::room::has_rooms;
use crate::support::daemon::{Daemon, OPEN};
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// A port that is free, outside of those that programs are given when they name none.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 10_000 + u16::try_from(std::process::id() * 7 % 20_000).unwrap();
    (0..500)
        .map(|_| base + NEXT.fetch_add(1, Ordering::Relaxed))
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// A user whose daemons take this door.
struct Door {
    user: User,
    port: u16,
}

impl Door {
    fn new() -> Self {
        let (user, port) = (User::new(), free_port());
        let config = user.config().join("svc");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::write(config.join("config.json"), json!({"port": 0, "door": port}).to_string()).unwrap();
        Self { user, port }
    }

    fn start(&self, name: &str) -> Daemon {
        self.start_in(Arc::new(Folder::new(name)), &[])
    }

    fn start_in(&self, folder: Arc<Folder>, args: &[&str]) -> Daemon {
        Daemon::start_with(folder, args, &[("XDG_CONFIG_HOME", self.user.config().to_str().unwrap())])
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Status and body of a request on a connection of its own.
    fn ask(&self, method: &str, path: &str, more: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect();
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let port = self.port;
        let host =
            if more.contains("Host: ") { String::new() } else { format!("Host: 127.0.0.1:{port}\r\n") };
        write!(stream, "{method} {path} HTTP/1.1\r\n{host}{more}{length}\r\n{body}").unwrap();
        read_reply(&mut stream)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "", "")
    }

    /// Lets an agent of this daemon knock at the sockets of the door; what it was answered.
    fn knocked(&self, daemon: &Daemon) -> String {
        let script = daemon.project.join("knock.py");
        std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/knock.py"), &script).unwrap();
        let (project, folder) = (daemon.project.display(), self.user.registry());
        let words = format!("{} {}.sock .door-{}", folder.display(), name(daemon), self.port);
        spawn_running(daemon, "knock", &format!("python3 {project}/knock.py {project}/knocked {words}"));
        told(daemon, "knocked")
    }

    /// Waits until the door leads to a project.
    fn wait_for(&self, daemon: &Daemon) -> String {
        let name = name(daemon);
        wait_for("the door to lead to the project", || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let path = format!("/p/{name}/api/status");
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", self.port).ok()?;
            let mut byte = [0];
            (stream.peek(&mut byte).ok()? == 1).then_some(())?;
            (read_reply(&mut stream).0 == 200).then_some(())
        });
        name
    }
}

fn name(daemon: &Daemon) -> String {
    daemon.get("/api/status")["name"].as_str().unwrap().to_owned()
}

/// One reply with its body by its length.
fn read_reply(stream: &mut TcpStream) -> (u16, String) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    (status, head + &String::from_utf8(body).unwrap())
}

#[test]
fn the_door_leads_to_every_project_and_own_addresses_stay() {
    let door = Door::new();
    let (shop, blog) = (door.start("shop"), door.start("shop"));
    let names = [door.wait_for(&shop), door.wait_for(&blog)];
    assert_ne!(names[0], names[1]);
    for (name, daemon) in names.iter().zip([&shop, &blog]) {
        let dir = daemon.project.to_str().unwrap();
        let (status, text) = door.get(&format!("/p/{name}/api/status"));
        assert!(status == 200 && text.contains(dir), "{text}");
        assert_eq!(daemon.get("/api/status")["projectDir"], dir);
        assert_eq!(daemon.get(&format!("/p/{name}/api/status"))["projectDir"], dir, "by its own address");
        assert!(door.get(&format!("/p/{name}/")).1.contains("modulepreload"), "its console");
        assert!(door.get(&format!("/p/{name}")).1.contains(&format!("Location: /p/{name}/\r\n")));
    }
    let other = shop.send("GET", &format!("/p/{}/api/status", names[1]), &Value::Null);
    assert_eq!(other.0, 404, "an own address leads to its project alone");
    for path in ["/", "/p/"] {
        let (status, page) = door.get(path);
        assert_eq!(status, 200);
        for name in &names {
            assert!(page.contains(&format!("<a href=\"/p/{name}/\">{name}</a>")), "{page}");
        }
    }
    assert_eq!(door.get("/api/status").0, 421, "whose status is not said");
    // One connection goes from daemon to daemon, and so do requests that come at once.
    let mut stream = door.connect();
    let ask = |name: &str| format!("GET /p/{name}/api/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let all: String = [0, 1, 1, 0].map(|n| ask(&names[n])).concat();
    for text in [all, ask(&names[1]), ask(&names[0]) + &ask(&names[1])] {
        let count = text.matches("GET ").count();
        stream.write_all(text.as_bytes()).unwrap();
        for line in text.lines().filter(|line| line.starts_with("GET ")).take(count) {
            let reply = read_reply(&mut stream).1;
            let name = line.split('/').nth(2).unwrap();
            assert!(reply.contains(&format!("\"name\":\"{name}\"")), "{line}: {reply}");
        }
    }
    let body =
        json!({"role": "tester", "provider": "script", "model": "quick", "prompt": "x".repeat(60_000)});
    let json = "Content-Type: application/json\r\n";
    let (status, reply) = door.ask("POST", &format!("/p/{}/api/agents", names[1]), json, &body.to_string());
    assert_eq!(status, 201, "{reply}");
    if let Some(location) = reply.lines().find_map(|line| line.strip_prefix("Location: ")) {
        assert!(location.starts_with(&format!("/p/{}/api/", names[1])), "{location}");
    }
    assert_eq!(
        (shop.get("/api/status")["agents"].clone(), blog.get("/api/status")["agents"].clone()),
        (0.into(), 1.into())
    );
}

#[test]
fn what_is_no_project_leads_nowhere() {
    let door = Door::new();
    let (shop, blog) = (door.start("shop"), door.start("blog"));
    let (shop_name, name) = (door.wait_for(&shop), door.wait_for(&blog));
    let upper = name.to_uppercase();
    for path in [
        "/p/none/api/status",
        "/p/../api/status",
        "/p/%2e%2e/api/status",
        &format!("/p/{upper}/api/status"),
        &format!("/p/%{:02x}{}/api/status", name.as_bytes()[0], &name[1..]),
        &format!("/p//{name}/api/status"),
        &format!("//p/{name}/api/status"),
        &format!("/p/{name}%2fapi/status"),
        &format!("/p/{shop_name}/p/{name}/api/status"),
        &format!("/p/{shop_name}/../{name}/api/status"),
        &format!("/p/{name}.json/api/status"),
        &format!("/p/{name}.sock/api/status"),
        "/p/.lock/",
        "/p/.door-1/",
    ] {
        let (status, text) = door.get(path);
        assert!(matches!(status, 404 | 421), "{path}: {text}");
    }
    for (why, more) in [
        ("a page of another site", "Origin: https://evil.example\r\n"),
        ("a page of another site that says so", "Sec-Fetch-Site: cross-site\r\n"),
        ("a name of somebody else's", "Host: evil.example\r\n"),
        ("no page at all", "Origin: null\r\n"),
    ] {
        for path in [format!("/p/{name}/api/status"), "/p/".into(), "/".into()] {
            assert_eq!(door.ask("GET", &path, more, "").0, 403, "{why}: {path}");
        }
    }
    let form = "Origin: http://127.0.0.1:1\r\nContent-Type: text/plain\r\n";
    assert_eq!(door.ask("POST", &format!("/p/{name}/api/agents"), form, "{}").0, 403, "a form");
    let path = format!("/p/{name}/api/agents");
    let hidden = format!("0\r\n\r\nGET /p/{shop_name}/api/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for (why, more, expected) in [
        ("both framings", "Transfer-Encoding: chunked\r\n", 400),
        ("two lengths", "Content-Length: 0\r\n", 400),
        ("a hidden framing", "Transfer-Encoding : chunked\r\n", 400),
        ("another coding", "Transfer-Encoding: xchunked\r\n", 400),
        ("many headers", &"a: b\r\n".repeat(101), 431),
        ("a long header", &format!("a: {}\r\n", "b".repeat(40_000)), 431),
    ] {
        let (status, text) = door.ask("POST", &path, more, &hidden);
        assert_eq!(status, expected, "{why}: {text}");
        assert!(text.contains("Connection: close"), "{why}: what comes behind is not read: {text}");
    }
    assert_eq!(blog.get("/api/status")["agents"], 0);
}

#[test]
fn one_projects_token_and_session_are_worth_nothing_at_another() {
    let door = Door::new();
    let (shop, blog) = (door.start("shop"), door.start("blog"));
    let (shop_name, blog_name) = (door.wait_for(&shop), door.wait_for(&blog));
    let token = std::fs::read_to_string(shop.project.join(".svc/token")).unwrap();
    let shows = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", token.trim());
    let secrets = |name: &str| door.ask("GET", &format!("/p/{name}/api/credentials"), &shows, "").0;
    assert_eq!((secrets(&shop_name), secrets(&blog_name)), (200, 403));
    wait_for("the links to lead to the door", || {
        let link = blog.post("/api/console/codes", &json!({}))["link"].as_str().unwrap().to_owned();
        link.starts_with(&format!("http://127.0.0.1:{}/p/{blog_name}/#code=", door.port)).then_some(())
    });
    let code = blog.post("/api/console/codes", &json!({}))["code"].clone();
    let json = "Content-Type: application/json\r\n";
    let begin = |name: &str| {
        door.ask("POST", &format!("/p/{name}/api/console/session"), json, &json!({"code": code}).to_string())
    };
    assert_eq!(begin(&shop_name).0, 403, "a link of another project");
    let (status, reply) = begin(&blog_name);
    assert_eq!(status, 200, "{reply}");
    let cookie = reply.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).unwrap();
    assert!(cookie.ends_with(&format!("; Path=/p/{blog_name}/")), "{cookie}");
    assert!(cookie.starts_with(&format!("svc-console-{}-{blog_name}=", door.port)), "{cookie}");
}

#[test]
fn a_websocket_outlives_the_door_and_another_daemon_takes_it() {
    let door = Door::new();
    let mut first = door.start("first");
    door.wait_for(&first);
    let (shop, blog) = (door.start("shop"), door.start("blog"));
    let (name, _) = (door.wait_for(&shop), door.wait_for(&blog));
    let (mut socket, _) =
        tungstenite::connect(format!("ws://127.0.0.1:{}/p/{name}/ws?types=agent:exit", door.port)).unwrap();
    if let tungstenite::stream::MaybeTlsStream::Plain(stream) = socket.get_ref() {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
    }
    first.kill();
    shop.spawn("quick");
    let heard = |socket: &mut tungstenite::WebSocket<_>| {
        let until = Instant::now() + LIMIT;
        // Pings come all the while.
        while !socket.read().unwrap().into_text().unwrap().contains("agent:exit") {
            assert!(Instant::now() < until, "nothing came through");
        }
    };
    heard(&mut socket);
    door.wait_for(&shop);
    door.wait_for(&blog);
    let gone = door.user.listed().into_iter().find(|one| one["state"] == "stopped").unwrap();
    let (status, text) = door.get(&format!("/p/{}/api/status", gone["name"].as_str().unwrap()));
    assert!(status == 503 && text.contains("project_stopped"), "{text}");
    shop.spawn("quick");
    heard(&mut socket);
    // A daemon whose own address the door is to be gets it, and all others stay.
    let again = door.start_in(first.folder(), &["--port", &door.port.to_string()]);
    assert_eq!(again.url, format!("http://127.0.0.1:{}", door.port));
    assert_eq!(again.get("/api/status")["projectDir"], again.project.to_str().unwrap());
    door.wait_for(&shop);
    door.wait_for(&again);
    assert_eq!(again.stop(), Some(0));
    door.wait_for(&blog);
    assert_eq!(door.get("/api/status").0, 421, "nobody stands in for a project that is stopped");
    shop.spawn("quick");
    heard(&mut socket);
}

#[test]
fn a_daemon_that_hangs_is_given_up_and_does_not_do_later_what_was_refused() {
    let door = Door::new();
    let (shop, blog) = (door.start("shop"), door.start("blog"));
    let (shop_name, name) = (door.wait_for(&shop), door.wait_for(&blog));
    let body = json!({"role": "tester", "provider": "script", "model": "quick", "prompt": "go"}).to_string();
    {
        let _stopped = Stopped::new(blog.pid());
        let json = "Content-Type: application/json\r\n";
        let (status, text) = door.ask("POST", &format!("/p/{name}/api/agents"), json, &body);
        assert!(status == 504 && text.contains("project_silent"), "{text}");
        assert_eq!(door.get(&format!("/p/{shop_name}/api/status")).0, 200, "the others are answered");
    }
    door.wait_for(&blog);
    assert_eq!(blog.get("/api/status")["agents"], 0);
}

#[test]
fn an_agent_is_not_heard_at_the_sockets_of_the_door() {
    let door = Door::new();
    let (shop, folder) = (door.start("shop"), Folder::new("open"));
    folder.write(".svc/config.json", OPEN);
    let open = door.start_in(Arc::new(folder), &[]);
    door.wait_for(&shop);
    door.wait_for(&open);
    let refused = |daemon: &Daemon| daemon.log().matches("was not taken: permission denied").count();
    // The same from outside: what is given is no connection, and the door is another's to have.
    let own = format!("{}.sock", name(&open));
    let given = svc_sys::hand_over::connect(&door.user.registry(), &own).unwrap();
    svc_sys::hand_over::send(&given, b'c', std::os::fd::AsFd::as_fd(&given)).unwrap();
    assert_eq!((&given).read(&mut [0]).unwrap(), 0);
    wait_for("it to be refused for what it is", || {
        open.log().contains("was not taken: invalid data").then_some(())
    });
    assert_eq!(refused(&open), 0);
    assert_eq!(door.knocked(&open), "ended ended", "without a room it comes to the sockets, and no further");
    assert_eq!(refused(&open), 1, "for whose it is");
    if has_rooms() {
        assert_eq!(door.knocked(&shop), "FileNotFoundError FileNotFoundError", "a room does not show them");
        assert_eq!(refused(&shop), 0);
    }
    assert_eq!(door.get(&format!("/p/{}/api/status", name(&shop))).0, 200, "the door is where it was");
    // A person's process is given the door.
    let holder = svc_sys::hand_over::connect(&door.user.registry(), &format!(".door-{}", door.port)).unwrap();
    (&holder).write_all(b"y").unwrap();
    let (answer, socket) = svc_sys::hand_over::receive(&holder).unwrap();
    assert_eq!((answer, socket.is_some()), (b'l', true));
}
