//! What is fuzzed: everything that reads bytes which others have made. Each target is one function of bytes
//! that must not panic, hang, or break what is asserted in it; and where its first bytes come from.
//!
//! Two programs share this file: the fuzzer (`make fuzz`), and a test of the ordinary suite that plays the
//! seeds and mutations of them by dice.

#[path = "state.rs"]
mod state;

use std::collections::{BTreeMap, HashSet};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use svc::api::Validator;
use svc::core::CallId;
use svc::core::time::Time;
use svc::gateways::{Kind, worker::heard};
use svc::integrations::protocol::{Ask, Client, Step as ToolStep};
use svc::providers::{
    Conversation, Effort, LaunchRequest, Permission, Provider, Purpose, SAVED_LIMIT_BYTES, SessionStart,
    Step, Tokens, all,
};
use svc_base::scopes;
use svc_keeper::frames::Frames;
use svc_keeper::protocol::{FRAME_BYTES_MAX, FromKeeper, ToKeeper, records};
use svc_sys::http::{Framing, Input, Limits, parse_head};

/// One thing that is fuzzed.
pub struct Target {
    /// Its name, as `make fuzz TARGET=..` has it.
    pub name: String,
    run: Run,
    seeds: Seeds,
}

/// Of the target with this name.
type Seeds = fn(&str) -> Vec<Vec<u8>>;

/// Its name, what is done with bytes, and where they begin.
type Plain = (&'static str, fn(&[u8]), Seeds);

enum Run {
    Plain(fn(&[u8])),
    Provider(&'static dyn Provider),
}

impl Target {
    /// Gives it these bytes.
    pub fn run(&self, data: &[u8]) {
        match self.run {
            Run::Plain(run) => run(data),
            Run::Provider(provider) => conversation(provider, data),
        }
    }

    /// What it begins with, read from `tests/data` and from what stands beside this file.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        (self.seeds)(&self.name)
    }
}

/// Removes what targets have written.
#[allow(dead_code, reason = "the fuzzer ends too suddenly for it")]
pub fn clean() {
    state::clean();
}

/// All of them.
pub fn targets() -> Vec<Target> {
    let plain: [Plain; 13] = [
        ("http-head", http_head, |_| HEADS.iter().map(|head| head.as_bytes().to_vec()).collect()),
        ("http-chunks", http_chunks, |_| CHUNKS.iter().map(|body| body.as_bytes().to_vec()).collect()),
        ("mcp", tool_server, |_| lines_of(TOOL_SERVER)),
        ("mcp-file", mcp_file, |_| lines_of(MCP_FILES)),
        ("chat-telegram", |data| chat(Kind::Telegram, data), |_| lines_of(TELEGRAM)),
        ("chat-discord", |data| chat(Kind::Discord, data), |_| lines_of(DISCORD)),
        ("chat-slack", |data| chat(Kind::Slack, data), |_| lines_of(SLACK)),
        ("keeper-frames", keeper_frames, |_| frame_seeds()),
        ("keeper-records", keeper_records, |_| record_seeds()),
        ("state-files", state::files, |_| state::seeds()),
        ("state-ahead", state::ahead, |_| state::ahead_seeds()),
        ("cron", cron, |_| lines_of(CRON)),
        ("globs", globs, |_| lines_of(GLOBS)),
    ];
    let plain = plain.map(|(name, run, seeds)| Target { name: name.to_owned(), run: Run::Plain(run), seeds });
    let provider = |provider: &&'static dyn Provider| Target {
        name: format!("provider-{}", provider.info().id),
        run: Run::Provider(*provider),
        seeds: recordings,
    };
    plain.into_iter().chain(all().iter().map(provider)).collect()
}

const HEADS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: 127.0.0.1:31415\r\n\r\n",
    "POST /api/agents?x=%20 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\
     Content-Type: application/json\r\n\r\n{}",
    "PUT /a HTTP/1.0\r\nHost: [::1]:1\r\nTransfer-Encoding: chunked\r\n\
     Expect: 100-continue\r\nConnection: close\r\n\r\n",
    "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
     Sec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://a\r\n\r\n",
    "GET http://a/b HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\nX: a, b\r\n\r\n",
];
const CHUNKS: &[&str] = &[
    "\x09\x095\r\nhello\r\n0\r\n\r\n",
    "\x40a;name=value\r\n0123456789\r\n1\r\nx\r\n0\r\nTrailer: yes\r\n\r\n",
    "\x02FFFFFFFFFFFFFFFF\r\n",
    "\x7f0\r\n\r\n",
];
const TOOL_SERVER: &str = include_str!("seeds/mcp.jsonl");
const MCP_FILES: &str = include_str!("seeds/mcp-file.jsonl");
const TELEGRAM: &str = include_str!("seeds/telegram.jsonl");
const DISCORD: &str = include_str!("seeds/discord.jsonl");
const SLACK: &str = include_str!("seeds/slack.jsonl");
const CRON: &str = "0 9 * * 1-5\n*/15 * * * *\n30 2 29 2 *\n0 0 1,15 * 0\n59 23 31 12 7\n\
                    0-59/7 1-5 * 1-12/3 *\n0 9 * * MON\n";
const GLOBS: &str = "src/**\tsrc/a/b.rs\tsrc/a/*\nsrc/{a,b}/*.rs\tsrc/a/x.rs\tsrc/**\n\
                     ./docs/\tdocs/x\tdocs/[a-z]*\n\
                     **/*.rs\ta.rs\t*\na/{b,{c,d}}/e\ta/d/e\ta/?/e\n";

fn lines_of(text: &str) -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
    seeds.push(text.as_bytes().to_vec());
    seeds
}

/// The folder of the tests, wherever the program that asks stands.
fn tests() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    [here.join("tests"), here.join("..")]
        .into_iter()
        .find(|path| path.join("data").exists())
        .unwrap_or_default()
}

/// A head that is taken is taken the same without what stands behind it, and never before its end.
fn http_head(data: &[u8]) {
    let limits = Limits { head_bytes: 4 << 10, target_bytes: 1 << 10, headers: 20, ..Limits::default() };
    let Ok(Some((head, length))) = parse_head(data, &limits) else { return };
    assert!(length <= data.len() && length <= limits.head_bytes);
    let (again, same) = parse_head(&data[..length], &limits).unwrap().unwrap();
    assert_eq!((format!("{head:?}"), length), (format!("{again:?}"), same));
    assert!(matches!(parse_head(&data[..length - 1], &limits), Ok(None)), "taken before its end");
}

/// A body in chunks is at most as long as it may be, and comes the same when sent again in one chunk. The
/// first byte is the limit.
fn http_chunks(data: &[u8]) {
    let Some((limit, data)) = data.split_first() else { return };
    let limit = usize::from(*limit) * 16;
    let Some(body) = body_of(data, limit) else { return };
    assert!(body.len() <= limit);
    let mut whole = format!("{:x}\r\n", body.len()).into_bytes();
    whole.extend(&body);
    whole.extend(if body.is_empty() { &b"\r\n"[..] } else { b"\r\n0\r\n\r\n" });
    assert_eq!(body_of(&whole, limit).as_ref(), Some(&body));
}

fn body_of(data: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut ahead = data.to_vec();
    Input::new(ended_stream(), &mut ahead, &Limits::default()).body(Framing::Chunked, limit).ok()
}

/// A connection whose other end has said all: what is not there ahead never comes.
fn ended_stream() -> &'static TcpStream {
    static STREAM: OnceLock<(TcpStream, TcpStream)> = OnceLock::new();
    let both = STREAM.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        other.shutdown(Shutdown::Write).unwrap();
        (listener.accept().unwrap().0, other)
    });
    &both.0
}

/// What a program prints, its first byte being how its session began. A conversation can always be written
/// down and gone on with, and what goes on is the same.
fn conversation(provider: &'static dyn Provider, data: &[u8]) {
    let Some((how, data)) = data.split_first() else { return };
    let Some(mut one) = begin(provider, *how) else { return };
    let mut steps = Vec::new();
    one.open(&mut steps);
    let text = String::from_utf8_lossy(data);
    for (number, line) in text.lines().take(64).enumerate() {
        if number % 8 == 3 {
            one = restored(provider, one.as_ref());
        }
        match line.strip_prefix('\u{1}') {
            Some(said) => drop(one.say(said, &mut steps)),
            None if line.starts_with('\u{2}') => one.record(&line[1..], &mut steps),
            None => one.line(line, &mut steps),
        }
    }
    let mut other = restored(provider, one.as_ref());
    let (mut ends, mut others) = (Vec::new(), Vec::new());
    one.end(&mut ends);
    other.end(&mut others);
    assert_eq!(ends, others, "what was restored ends otherwise");
    // Others are given their task as it is, and the end of their input.
    if provider.info().capabilities.live_input {
        for step in steps.iter().chain(&ends) {
            if let Step::Write(line) = step {
                assert!(line.ends_with('\n'), "half a line is written: {line:?}");
            }
        }
    }
}

fn restored(provider: &'static dyn Provider, conversation: &dyn Conversation) -> Box<dyn Conversation> {
    let saved = conversation.save();
    assert!(saved.len() <= SAVED_LIMIT_BYTES);
    let restored = provider.restore(&saved).expect("what was saved can be restored");
    assert_eq!(restored.save(), saved);
    restored
}

fn begin(provider: &dyn Provider, how: u8) -> Option<Box<dyn Conversation>> {
    let counted = Tokens { input: 1000, output: 40, cache_read: 5000, cache_creation: 300 };
    let session = match how % 3 {
        0 => SessionStart::Fresh,
        1 => SessionStart::Resume { id: "s".to_owned(), counted },
        _ => SessionStart::Fork { id: "s".to_owned(), counted },
    };
    let request = LaunchRequest {
        purpose: if how & 4 == 0 { Purpose::Work } else { Purpose::Query },
        prompt: "do it".to_owned(),
        model: (provider.info().id == "acp").then(|| "qwen".to_owned()),
        effort: Effort::Medium,
        permission: if how & 8 == 0 { Permission::Auto } else { Permission::Full },
        working_dir: PathBuf::from("/project"),
        project_dir: PathBuf::from("/project"),
        session,
        command: Vec::new(),
        has_integrations: false,
        hook_program: None,
        fence: None,
        room: None,
        extra_env: svc::providers::environment::Extra::default(),
    };
    provider.launch(&request).ok().map(|launch| launch.conversation)
}

/// The recordings of the provider that the target is named for; a byte for the session's beginning stands
/// before each.
fn recordings(name: &str) -> Vec<Vec<u8>> {
    let provider = name.trim_start_matches("provider-");
    let word = if provider == "claude-code" { "claude" } else { provider };
    let folder = tests().join("data/recordings");
    let folder = if word == "acp" { folder.join("acp") } else { folder };
    let mut seeds = vec![b"\0{\"type\":\"x\"}\n\x01hello\n".to_vec()];
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.file_name().into_string().unwrap_or_default();
        if file.strip_suffix(".jsonl").is_some() && (word == "acp" || file.starts_with(word)) {
            let text = std::fs::read(entry.path()).unwrap_or_default();
            // Long ones teach no more than their beginning, and slow everything down.
            let end = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(40);
            let end = end.map_or(text.len(), |(at, _)| at).min(16 << 10);
            seeds.push([&[u8::try_from(seeds.len() % 12).unwrap()], &text[..end]].concat());
        }
    }
    seeds.sort();
    seeds
}

/// What a tool server prints: each call is answered once at most, and a cancelled one never.
fn tool_server(data: &[u8]) {
    let mut client = Client::new(Some("file:///project".to_owned()));
    let mut steps = Vec::new();
    client.open(&mut steps);
    let (mut cancelled, mut answers) = (HashSet::new(), BTreeMap::<u64, u32>::new());
    for (number, line) in (1..).zip(String::from_utf8_lossy(data).lines().take(64)) {
        let ask = if number % 3 == 0 {
            Ask::Tools
        } else {
            Ask::Tool { name: "t".to_owned(), params: Arc::new(serde_json::json!({})) }
        };
        client.ask(CallId(number), &ask, &mut steps);
        if number % 5 == 4 {
            client.cancel(CallId(number - 1), "over", &mut steps);
            cancelled.insert(number - 1);
        }
        let before = steps.len();
        if let Ok(message) = serde_json::from_str(line) {
            client.message(message, &mut steps);
        }
        for step in &steps[before..] {
            if let ToolStep::Answer(call, _) = step {
                assert!(!cancelled.contains(&call.0), "a cancelled call is answered");
            }
        }
    }
    client.fail_all("gone", &mut steps);
    for step in &steps {
        match step {
            ToolStep::Answer(call, _) => *answers.entry(call.0).or_default() += 1,
            ToolStep::Write(line) => assert!(line.ends_with('\n')),
            _ => {}
        }
    }
    assert!(answers.values().all(|count| *count == 1), "answered twice: {answers:?}");
}

/// A person's `.mcp.json`: adding our server and taking it out again leaves all others, and twice adds
/// nothing.
fn mcp_file(data: &[u8]) {
    use svc::integrations::mcp_file::{Change, add, remove};
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(Change::Write(with)) = add(Some(text), "/bin/svc") else { return };
    assert!(matches!(add(Some(&with), "/bin/svc"), Ok(Change::Keep)), "added twice: {with}");
    let servers = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).expect("what is written is JSON");
        value["mcpServers"].as_object_mut().map(|servers| {
            servers.remove("svc");
            serde_json::json!(servers)
        })
    };
    let before = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    let mut own = before["mcpServers"].clone();
    if let Some(own) = own.as_object_mut() {
        own.remove("svc");
        assert_eq!(servers(&with).as_ref(), Some(&serde_json::json!(own)), "servers of others: {text}");
    }
    let _ = remove(&with, "/bin/svc");
}

/// What a chat platform sends.
fn chat(kind: Kind, data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n').take(16) {
        let Ok(message) = serde_json::from_slice(line) else { continue };
        if let Some(heard) = heard(kind, "svc_bot", &message) {
            assert!(heard.button || heard.text.starts_with('/'), "not a command: {heard:?}");
        }
    }
}

/// What comes over a keeper's socket, in pieces of the first byte's size: the frames are the same as in one
/// piece, and each message that is understood says the same when it is said again.
fn keeper_frames(data: &[u8]) {
    let Some((piece, data)) = data.split_first() else { return };
    let whole = frames(data, 1 << 20);
    assert_eq!(frames(data, usize::from(*piece) + 1), whole);
    for (kind, payload) in whole {
        if let Ok(message) = ToKeeper::decode(kind, &payload) {
            let again = message.encode().expect("what was understood can be said");
            let (kind, payload) = frames(&again, 1 << 20).remove(0);
            assert!(ToKeeper::decode(kind, &payload).is_ok_and(|other| other == message));
        }
        if let Ok(message) = FromKeeper::decode(kind, &payload) {
            let again = message.encode().expect("what was understood can be said");
            let (kind, payload) = frames(&again, 1 << 20).remove(0);
            assert!(FromKeeper::decode(kind, &payload).is_ok_and(|other| other == message));
        }
    }
}

fn frames(mut data: &[u8], piece: usize) -> Vec<(u8, Vec<u8>)> {
    let (mut frames, mut found) = (Frames::new(piece), Vec::new());
    loop {
        match frames.next(FRAME_BYTES_MAX.min(1 << 20)) {
            Ok(Some((kind, place))) => found.push((kind, frames.payload(place).to_vec())),
            Ok(None) if frames.fill(&mut data).unwrap() > 0 => {}
            _ => return found,
        }
    }
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let answers = [
        (1, "{}"),
        (2, "\x01\0\0\0\0\0\0\0hello"),
        (3, "{\"kind\":\"stop\"}"),
        (4, "\0\0\0\0\0\0\0\0"),
        (5, "{}"),
    ];
    let frame = |(kind, payload): &(u8, &str)| {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        [&[7], &length[..], &[*kind], payload.as_bytes()].concat()
    };
    answers.iter().map(frame).chain(record_seeds().into_iter().map(|seed| [vec![9], seed].concat())).collect()
}

/// A keeper's spool: what is read of it can be written again, and reads the same.
fn keeper_records(data: &[u8]) {
    let mut again = Vec::new();
    let mut last = 0;
    let read: Vec<_> = records(data).collect();
    for (end, time, record) in &read {
        assert!(*end > last && usize::try_from(*end).unwrap() <= data.len());
        last = *end;
        record.put(*time, &mut again).expect("what was read can be written");
    }
    let same = |(_, time, record): &(u64, u64, _)| (*time, format!("{record:?}"));
    assert!(records(&again).map(|entry| same(&entry)).eq(read.iter().map(same)));
}

fn record_seeds() -> Vec<Vec<u8>> {
    use svc_keeper::protocol::Record;
    let mut out = Vec::new();
    for record in [
        Record::Started { pid: 7, start_ticks: 99 },
        Record::Out(b"{\"type\":\"x\"}\n"),
        Record::Err(b"oh\n"),
        Record::Written { seq: 1 },
        Record::Lost { seq: 2 },
        Record::Stuck { seconds: 60 },
        Record::Ended { code: Some(0), signal: None, signalled: false, leaked: 0, killed: 0, over: None },
        Record::StartFailed { error: "no".to_owned() },
    ] {
        record.put(1_790_000_000_000, &mut out).expect("it is short");
    }
    vec![out[..40].to_vec(), out]
}

/// A schedule's expression: its next time is later, on a whole minute, and none lies between.
fn cron(data: &[u8]) {
    use svc::schedules::cron::{Cron, MINUTE_MS, zone};
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(parsed) = Cron::parse(text) else { return };
    for (name, after) in
        [("UTC", 0), ("Europe/Berlin", 1_774_745_000_000), ("Pacific/Apia", 1_325_200_000_000)]
    {
        let zone = zone(name).expect("a zone that exists");
        let Some(next) = parsed.next(Time(after), &zone) else { continue };
        assert!(next.0 > after && next.0 % MINUTE_MS == 0, "{text} after {after}: {next:?}");
        let between = Time(after + (next.0 - after) / 2);
        assert_eq!(parsed.next(between, &zone), Some(next), "{text} after {between:?} in {name}");
    }
}

/// Two globs and a file, separated by tabs: what covers another owns what it owns, and what owns the same
/// file overlaps.
fn globs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parts: Vec<&str> = text.trim_end_matches('\n').split('\t').collect();
    let &[one, file, other] = parts.as_slice() else { return };
    let mut validator = Validator::default();
    svc::agents::scope::check(&[one, other], &mut validator);
    let is_plain =
        !file.is_empty() && !file.starts_with(['/', '.']) && !file.contains("//") && !file.ends_with('/');
    if validator.finish().is_err() || !is_plain {
        return;
    }
    let (one, other) = ([one.to_owned()], [other.to_owned()]);
    let owns = (scopes::owns(&one, file), scopes::owns(&other, file));
    if owns.1 && scopes::covers(&one[0], &other[0]) {
        assert!(owns.0, "{one:?} covers {other:?}, and does not own {file:?}");
    }
    if owns == (true, true) {
        assert!(!svc::agents::scope::overlaps(&one, &other).is_empty(), "{one:?} and {other:?} own {file:?}");
    }
    let _ = scopes::folders(&one);
}
