//! Spans of the built daemon: taken by a real OpenTelemetry collector, and held against the protocol's own
//! messages; and a collector that does not answer, or says no.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::real::doors;
use crate::support::receiver::{Answers, Receiver};
use crate::support::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A daemon whose spans go there.
fn daemon(endpoint: &str, content: bool) -> Daemon {
    let folder = Folder::new("telemetry");
    let settings = json!({"telemetry": {"endpoint": endpoint, "content": content}});
    folder.write(".svc/user/svc/config.json", &settings.to_string());
    Daemon::start_in(Arc::new(folder), &[])
}

fn work(daemon: &Daemon) {
    let steps = json!({"steps": [
        {"usage": {"input": 10, "output": 3}}, {"write": {"path": "a.txt", "text": "the launch code"}},
        {"usage": {"input": 2, "output": 4}}, {"answer": "the launch code is written"},
    ]});
    let rehearsals = daemon.project.join(".svc/rehearsals");
    std::fs::create_dir_all(&rehearsals).unwrap();
    std::fs::write(rehearsals.join("works.json"), steps.to_string()).unwrap();
    let id = daemon.spawn("works");
    daemon.wait_state(&id, &["completed"]);
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A running collector that prints what it takes.
struct Collector {
    child: Child,
    port: u16,
    output: PathBuf,
    _folder: Folder,
}

impl Collector {
    fn start(doors: &std::path::Path) -> Self {
        let folder = Folder::new("collector");
        let mut find = Command::new(doors.join("bin/python"));
        let place = said_by(find.args(["-c", "import rotel; print(rotel.__path__[0])"]));
        let (http, grpc) = (free_port(), free_port());
        let output = folder.path().join("output");
        let file = std::fs::File::create(&output).unwrap();
        let mut command = Command::new(PathBuf::from(place).join("rotel-agent"));
        command.args([
            "start",
            "--exporter",
            "blackhole",
            "--debug-log",
            "traces",
            "--debug-log-verbosity",
            "detailed",
        ]);
        command.args(["--otlp-http-endpoint", &format!("127.0.0.1:{http}")]);
        command.args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc}")]);
        command
            .arg("--pid-file")
            .arg(folder.path().join("pid"))
            .arg("--log-file")
            .arg(folder.path().join("log"));
        let child =
            command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        wait_for("the collector to listen", || std::net::TcpStream::connect(("127.0.0.1", http)).ok());
        Self { child, port: http, output, _folder: folder }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }
}

fn said_by(command: &mut Command) -> String {
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_collector_takes_the_spans_of_a_turn_without_a_word_of_it() {
    let Some(doors) = doors("rotel") else { return };
    let collector = Collector::start(&doors);
    let daemon = daemon(&format!("http://127.0.0.1:{}", collector.port), false);
    work(&daemon);
    let said = wait_for("the spans", || {
        let said = collector.said();
        said.contains("invoke_agent tester-1").then_some(said)
    });
    for wanted in [
        "execute_tool write",
        "gen_ai.operation.name: Str(execute_tool)",
        "gen_ai.operation.name: Str(chat)",
        "gen_ai.usage.input_tokens: Int(12)",
        "gen_ai.usage.output_tokens: Int(7)",
        "service.name: Str(svc)",
        "Kind           : SPAN_KIND_CLIENT",
    ] {
        assert!(said.contains(wanted), "{wanted} is missing in {said}");
    }
    assert!(!said.contains("launch"), "{said}");
    // Two steps of the model, one tool call, and the turn.
    let shown =
        wait_for("the count", || Some(daemon.get("/api/telemetry")).filter(|shown| shown["exported"] == 4));
    assert_eq!(
        (&shown["dropped"], &shown["rejected"], &shown["lastError"]),
        (&json!(0), &json!(0), &Value::Null)
    );
}

/// What was posted, parsed by the protocol's own messages: no unknown field, no wrong type.
fn judged(doors: &std::path::Path, body: &[u8]) -> String {
    const SCRIPT: &str = "
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
body = json.load(sys.stdin)
for resource in body['resourceSpans']:
    for scope in resource['scopeSpans']:
        for span in scope['spans']:
            # The protocol's one deviation from the JSON of protobuf: ids are hexadecimal.
            for name, size in (('traceId', 16), ('spanId', 8), ('parentSpanId', 8)):
                if name in span:
                    raw = bytes.fromhex(span[name])
                    assert len(raw) == size and any(raw), (name, span[name])
                    span[name] = base64.b64encode(raw).decode()
message = json_format.ParseDict(body, ExportTraceServiceRequest(), ignore_unknown_fields=False)
for span in message.resource_spans[0].scope_spans[0].spans:
    assert span.start_time_unix_nano <= span.end_time_unix_nano
    print(span.name, span.kind, len(span.attributes))
";
    let mut command = Command::new(doors.join("bin/python"));
    let mut child = command
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_posted_is_the_protocols_own_message_with_head_lines_from_the_vault() {
    let receiver = Receiver::start(Answers::Always(200));
    let daemon = daemon(&receiver.url(""), true);
    let key = "Bearer 0123456789abcdef";
    daemon.post("/api/credentials", &json!({"provider": "telemetry/authorization", "key": key}));
    work(&daemon);
    let got = wait_for("the spans", || receiver.all().into_iter().next());
    assert_eq!((got.path.as_str(), got.header("authorization")), ("/v1/traces", key));
    assert!(String::from_utf8_lossy(&got.body).contains("launch"), "content was asked for");
    let shown = daemon.get("/api/telemetry").to_string();
    assert!(!shown.contains("0123456789") && shown.contains("authorization"), "{shown}");
    let Some(doors) = doors("rotel") else { return };
    let names = judged(&doors, &got.body);
    assert!(names.contains("invoke_agent tester-1 3 "), "{names}");
}

#[test]
fn a_collector_that_says_no_or_nothing_is_counted_and_delays_nobody() {
    let receiver = Receiver::start(Answers::Always(400));
    let daemon = daemon(&receiver.url(""), false);
    work(&daemon);
    let shown = wait_for("the refusal", || {
        Some(daemon.get("/api/telemetry")).filter(|shown| shown["rejected"].as_u64() > Some(0))
    });
    assert!(shown["lastError"].as_str().unwrap().contains("status 400"), "{shown}");
    receiver.answer(Answers::Always(503));
    work(&daemon);
    let limit = Duration::from_secs(60);
    wait_within(limit, "what was tried in vain", || {
        Some(daemon.get("/api/telemetry")).filter(|shown| shown["dropped"].as_u64() > Some(0))
    });
    receiver.answer(Answers::Never);
    work(&daemon);
    let began = std::time::Instant::now();
    assert_eq!(daemon.stop(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
