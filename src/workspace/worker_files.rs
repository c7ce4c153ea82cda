//! Looking at files: the tree, text, raw bytes. Runs on the caller's connection thread.

use super::path::ProjectPath;
use crate::api::{Problem, Reply, Request, Validator};
use crate::assembly::host::Host;
use crate::core::time::Time;
use crate::endpoint::{Answer, Ask};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;
use svc_base::percent;
use svc_base::sorted;
use svc_sys::beneath::{Dir, Root};

/// Bytes of a text that is read or written: 5 MB.
pub const TEXT_LIMIT_BYTES: u64 = 5 << 20;
/// Bytes of a file that is sent raw: 50 MB.
const RAW_LIMIT_BYTES: u64 = 50 << 20;
/// A NUL within these first bytes makes a file binary.
const SNIFFED_BYTES: usize = 8 << 10;
/// Folder levels shown unless asked otherwise, and at most.
const TREE_DEPTH: (usize, usize) = (3, 32);
/// Entries shown unless asked otherwise, and at most.
const TREE_ENTRIES: (usize, usize) = (2_000, 20_000);
/// Names of one folder that are read at most.
const FOLDER_NAMES: usize = 50_000;
/// Where the daemon's own files stand: keys, tokens, settings, records.
const STATE_FOLDERS: [&str; 2] = [".svc", ".svc/state"];
/// Files that the endpoints make on their way start with this; the tree does not show them.
pub const TEMPORARY_PREFIX: &str = ".svc-write-";

/// Opens the project's root.
pub fn root(host: &Host) -> Result<Root, Problem> {
    Root::open(&host.project).map_err(|error| refusal(&error, &ProjectPath::found("")))
}

/// The refusal for what the system says of `path`.
pub fn refusal(error: &io::Error, path: &ProjectPath) -> Problem {
    let name = path.as_str();
    let new = |status, code, text: String| Problem::new(status, code, text);
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::EILSEQ) => {
            Problem::not_found(format!("there is no {name:?} in this project; GET /api/files/tree lists it"))
        }
        Some(libc::EXDEV) => {
            new(403, "outside_project", format!("path {name:?} leads out of the project through a link"))
        }
        Some(libc::ELOOP) => {
            new(403, "link_refused", format!("path {name:?} goes through a link that is not followed"))
        }
        Some(libc::EEXIST) => new(409, "exists", format!("{name:?} exists already")),
        Some(libc::ENOTEMPTY) => {
            new(409, "not_empty", format!("the folder {name:?} is not empty; add recursive=true"))
        }
        Some(libc::EAGAIN | libc::EBUSY) => {
            new(409, "changed_meanwhile", format!("{name:?} was being changed meanwhile; try again"))
        }
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            new(403, "no_permission", format!("the system does not let svc at {name:?}: {error}"))
        }
        Some(libc::ENAMETOOLONG) => {
            new(400, "path_too_long", format!("path {name:?} has a name that is too long"))
        }
        Some(libc::ENXIO) => not_a_file(path),
        Some(libc::EISDIR) => is_a_folder(path),
        Some(libc::EINVAL) => new(400, "bad_path", format!("the system refuses path {name:?}")),
        Some(libc::ENOSPC | libc::EDQUOT) => new(
            503,
            "storage_unavailable",
            format!("{name:?} could not be written: {error}; free space, then retry"),
        )
        .with_header("Retry-After", "5"),
        _ => new(500, "io_failed", format!("{name:?}: {error}")),
    }
}

fn not_a_file(path: &ProjectPath) -> Problem {
    let text = format!("{:?} is neither a file nor a folder but a pipe, socket or device", path.as_str());
    Problem::new(403, "special_file", text)
}

/// 400 for a folder where a file is wanted.
pub fn is_a_folder(path: &ProjectPath) -> Problem {
    Problem::bad_request("is_a_folder", format!("{:?} is a folder, not a file", path.as_str()))
}

/// 413 for a file over a limit.
pub fn too_large(path: &ProjectPath, size: u64, limit: u64) -> Problem {
    let text = format!("{:?} has {size} bytes, the limit is {limit} ({} MB)", path.as_str(), limit >> 20);
    Problem::new(413, "too_large", text).with("size", size).with("limit", limit)
}

/// `path` of the query, which must be there.
pub fn query_path(request: &Request) -> Result<ProjectPath, Problem> {
    let Some(text) = request.query("path").filter(|text| !text.is_empty()) else {
        let text = "path is required: ?path=src/main.rs, relative to the project's root";
        return Err(Problem::invalid("path", text));
    };
    ProjectPath::parse(text)
}

/// Where `path` really is; what may not be read is refused by both names.
pub fn locate(root: &Root, path: &ProjectPath) -> Result<ProjectPath, Problem> {
    path.check_readable()?;
    let real = root.locate(path.as_str()).map_err(|error| refusal(&error, path))?;
    let real = ProjectPath::found(&real);
    real.check_readable()?;
    Ok(real)
}

/// Opens a plain file for reading; nothing else is ever opened.
fn open(root: &Root, path: &ProjectPath) -> Result<(File, Metadata), Problem> {
    let real = locate(root, path)?;
    let said = |error: io::Error| refusal(&error, path);
    check_plain(&root.look(real.as_str()).map_err(said)?, path)?;
    let file = root.file(real.as_str()).map_err(said)?;
    let meta = file.metadata().map_err(said)?;
    // It may have become something else in between.
    check_plain(&meta, path)?;
    if meta.nlink() > 1 && is_state(root, &meta) {
        return Err(path.not_for_reading());
    }
    Ok((file, meta))
}

/// Whether a file is one of the daemon's own under a second name: a hard link has no other sign. What cannot
/// be looked through counts as one.
fn is_state(root: &Root, file: &Metadata) -> bool {
    let same = |meta: &Metadata| (meta.dev(), meta.ino()) == (file.dev(), file.ino());
    STATE_FOLDERS.iter().any(|folder| match root.dir(folder).and_then(|dir| Ok((dir.entries()?, dir))) {
        Ok((entries, dir)) => entries.take(FOLDER_NAMES + 1).enumerate().any(|(at, entry)| {
            let Ok(entry) = entry else { return true };
            let look = entry.file_name().to_str().map(|name| dir.look(name));
            at == FOLDER_NAMES || look.is_none_or(|look| look.is_ok_and(|meta| same(&meta)))
        }),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    })
}

/// Refuses everything but a plain file.
pub fn check_plain(meta: &Metadata, path: &ProjectPath) -> Result<(), Problem> {
    match meta.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(is_a_folder(path)),
        kind if kind.is_symlink() => Err(refusal(&io::Error::from_raw_os_error(libc::ELOOP), path)),
        _ => Err(not_a_file(path)),
    }
}

/// Names one content of a file: a changed file has another one.
pub fn etag(meta: &Metadata) -> String {
    let nanos = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    format!("{:x}-{:x}-{:x}", meta.ino(), nanos, meta.len())
}

/// When a file was changed.
pub fn modified(meta: &Metadata) -> Time {
    let since = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Time(since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
}

/// Size, time and etag of a file, as every answer has them.
pub fn told(path: &ProjectPath, meta: &Metadata) -> Value {
    json!({
        "path": path.as_str(), "size": meta.len(), "mtime": modified(meta).to_string(), "etag": etag(meta),
    })
}

fn read_whole(file: File, path: &ProjectPath, limit: u64) -> Result<Vec<u8>, Problem> {
    // Room for all of it at once: a buffer that grows is held twice each time it moves.
    let size = file.metadata().map_or(0, |meta| meta.len().min(limit));
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default() + 1);
    let mut bounded = file.take(limit + 1);
    bounded.read_to_end(&mut bytes).map_err(|error| refusal(&error, path))?;
    // A file that grows while it is read.
    let size = bytes.len() as u64;
    if size > limit { Err(too_large(path, size, limit)) } else { Ok(bytes) }
}

/// The text of a file that may be read, of [`TEXT_LIMIT_BYTES`] at most.
///
/// Errors: what a reader of files gets, and 415 `not_text`.
pub fn text_of(root: &Root, path: &ProjectPath) -> Result<String, Problem> {
    let (file, _) = open(root, path)?;
    let bytes = read_whole(file, path, TEXT_LIMIT_BYTES)?;
    let fault = || Problem::new(415, "not_text", format!("{:?} is not a file of text", path.as_str()));
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or_else(fault)
}

/// `GET /api/files/read`.
pub fn read(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let path = query_path(ask.request)?;
    let (mut file, meta) = open(&root(host)?, &path)?;
    let mut start = Vec::with_capacity(SNIFFED_BYTES);
    file.by_ref()
        .take(SNIFFED_BYTES as u64)
        .read_to_end(&mut start)
        .map_err(|error| refusal(&error, &path))?;
    let mut body = told(&path, &meta);
    if start.contains(&0) {
        body["binary"] = json!(true);
        return Ok(Answer::Reply(Reply::ok(&body)));
    }
    if meta.len() > TEXT_LIMIT_BYTES {
        return Err(too_large(&path, meta.len(), TEXT_LIMIT_BYTES));
    }
    start.extend(read_whole(file, &path, TEXT_LIMIT_BYTES - start.len() as u64)?);
    match String::from_utf8(start) {
        Ok(content) if !content.contains('\0') => {
            body["binary"] = json!(false);
            body["content"] = json!(content);
        }
        _ => body["binary"] = json!(true),
    }
    Ok(Answer::Reply(Reply::ok(&body)))
}

/// `GET /api/files/raw`.
pub fn raw(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let path = query_path(ask.request)?;
    let (file, meta) = open(&root(host)?, &path)?;
    if meta.len() > RAW_LIMIT_BYTES {
        return Err(too_large(&path, meta.len(), RAW_LIMIT_BYTES));
    }
    let etag = format!("\"{}\"", etag(&meta));
    if ask.request.header("if-none-match") == Some(etag.as_str()) {
        let reply = Reply { status: 304, ..Reply::no_content() };
        return Ok(Answer::Reply(reply.with_header("ETag", etag)));
    }
    let (_, name) = path.split();
    let (kind, active) = content_type(name);
    let bytes = read_whole(file, &path, RAW_LIMIT_BYTES)?;
    let mut reply = Reply::bytes(200, kind, bytes)
        .with_header("ETag", etag)
        // Whatever a browser makes of it, it runs nothing and reaches nothing.
        .with_header("Content-Security-Policy", "sandbox; default-src 'none'");
    let wanted = ask.request.query("download").is_some_and(|value| value == "1" || value == "true");
    if active || wanted {
        reply = reply.with_header("Content-Disposition", disposition(name));
    }
    Ok(Answer::Reply(reply))
}

/// The media type of a name, and whether a browser would run what is in it.
fn content_type(name: &str) -> (&'static str, bool) {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    match extension.as_str() {
        "html" | "htm" => ("text/html; charset=utf-8", true),
        "xhtml" => ("application/xhtml+xml", true),
        "svg" => ("image/svg+xml", true),
        "xml" | "xsl" | "xslt" => ("text/xml; charset=utf-8", true),
        "js" | "mjs" | "cjs" => ("text/javascript; charset=utf-8", true),
        "css" => ("text/css; charset=utf-8", true),
        "wasm" => ("application/wasm", true),
        "pdf" => ("application/pdf", true),
        "swf" => ("application/x-shockwave-flash", true),
        "png" => ("image/png", false),
        "jpg" | "jpeg" => ("image/jpeg", false),
        "gif" => ("image/gif", false),
        "webp" => ("image/webp", false),
        "avif" => ("image/avif", false),
        "ico" => ("image/x-icon", false),
        "bmp" => ("image/bmp", false),
        "mp4" => ("video/mp4", false),
        "webm" => ("video/webm", false),
        "mp3" => ("audio/mpeg", false),
        "wav" => ("audio/wav", false),
        "ogg" => ("audio/ogg", false),
        "woff2" => ("font/woff2", false),
        "json" => ("application/json", false),
        "zip" => ("application/zip", false),
        "txt" | "md" | "rs" | "ts" | "tsx" | "jsx" | "py" | "go" | "java" | "c" | "h" | "cpp" | "toml"
        | "yaml" | "yml" | "sh" | "log" | "csv" | "lock" | "sql" | "rb" => {
            ("text/plain; charset=utf-8", false)
        }
        _ => ("application/octet-stream", false),
    }
}

/// `attachment` with the name, also for names beyond ASCII (RFC 6266).
fn disposition(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_graphic() && c != '"' && c != '\\' || c == ' ' { c } else { '_' })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", percent::encode(name))
}

/// `GET /api/files/tree`.
pub fn tree(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let path = ProjectPath::parse(ask.request.query("path").unwrap_or_default())?;
    let mut validator = Validator::default();
    let mut number = |name, (usual, most)| validator.whole_number(name, ask.request.query(name), usual, most);
    let (depth, limit) = (number("depth", TREE_DEPTH), number("limit", TREE_ENTRIES));
    validator.finish()?;
    let root = root(host)?;
    let real = locate(&root, &path)?;
    let said = |error: io::Error| refusal(&error, &path);
    if !root.look(real.as_str()).map_err(said)?.is_dir() {
        return Err(Problem::bad_request("not_a_folder", format!("{:?} is not a folder", path.as_str())));
    }
    let dir = root.dir(real.as_str()).map_err(said)?;
    let mut walk = Walk { nodes: Vec::new(), truncated: false, limit };
    let top = walk.run(&dir, &path, depth);
    let mut body = json!({"path": path.as_str(), "count": walk.nodes.len(), "truncated": walk.truncated});
    body["entries"] = walk.render(&top);
    Ok(Answer::Reply(Reply::ok(&body)))
}

/// One entry of the tree.
struct Node {
    fields: Map<String, Value>,
    /// Its own entries, if they were looked at.
    children: Option<Vec<usize>>,
}

/// The tree level by level, so that a limit cuts the deepest.
struct Walk {
    nodes: Vec<Node>,
    truncated: bool,
    limit: usize,
}

impl Walk {
    fn run(&mut self, top: &Dir, path: &ProjectPath, depth: usize) -> Vec<usize> {
        let mut waiting = VecDeque::new();
        let first = self.folder(top, path);
        waiting.extend(first.iter().map(|node| (*node, path.clone(), 1)));
        // Folders are opened again from the top, name by name, so that no descriptor waits for its turn.
        while let Some((node, parent, level)) = waiting.pop_front() {
            if level >= depth || self.nodes[node].fields["type"] != "dir" {
                continue;
            }
            let Some(name) = self.nodes[node].fields["name"].as_str() else { continue };
            let here = parent.join(name);
            let relative = here.as_str().strip_prefix(path.as_str()).unwrap_or_default();
            let opened = relative
                .split('/')
                .filter(|part| !part.is_empty())
                .try_fold(None, |at: Option<Dir>, part| at.as_ref().unwrap_or(top).dir(part).map(Some));
            // Gone or unreadable meanwhile: shown without its entries.
            let Ok(Some(dir)) = opened else { continue };
            let children = self.folder(&dir, &here);
            waiting.extend(children.iter().map(|child| (*child, here.clone(), level + 1)));
            self.nodes[node].children = Some(children);
        }
        first
    }

    /// The entries of one folder: folders first, then by name.
    fn folder(&mut self, dir: &Dir, path: &ProjectPath) -> Vec<usize> {
        let Ok(entries) = dir.entries() else { return Vec::new() };
        let mut names: Vec<(bool, String, Map<String, Value>)> = Vec::new();
        for entry in entries.flatten() {
            if names.len() >= FOLDER_NAMES {
                self.truncated = true;
                break;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let here = path.join(&name);
            let hidden = name.eq_ignore_ascii_case(".git") || here.as_str().eq_ignore_ascii_case(".svc");
            if hidden || name.starts_with(TEMPORARY_PREFIX) || here.check_readable().is_err() {
                continue;
            }
            let Ok(meta) = entry.metadata() else { continue };
            let mut fields = Map::new();
            fields.insert("name".into(), json!(name));
            fields.insert("path".into(), json!(here.as_str()));
            let kind = kind_of(&meta);
            fields.insert("type".into(), json!(kind));
            if kind == "file" {
                fields.insert("size".into(), json!(meta.len()));
            }
            fields.insert("mtime".into(), json!(modified(&meta).to_string()));
            names.push((kind != "dir", name, fields));
        }
        sorted::by(&mut names, |a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let room = self.limit.saturating_sub(self.nodes.len());
        if names.len() > room {
            self.truncated = true;
            names.truncate(room);
        }
        let begin = self.nodes.len();
        self.nodes.extend(names.into_iter().map(|(_, _, fields)| Node { fields, children: None }));
        (begin..self.nodes.len()).collect()
    }

    fn render(&self, nodes: &[usize]) -> Value {
        let one = |node: &usize| {
            let node = &self.nodes[*node];
            let mut fields = node.fields.clone();
            if let Some(children) = &node.children {
                fields.insert("children".into(), self.render(children));
            }
            Value::Object(fields)
        };
        nodes.iter().map(one).collect()
    }
}

fn kind_of(meta: &Metadata) -> &'static str {
    match meta.file_type() {
        kind if kind.is_dir() => "dir",
        kind if kind.is_file() => "file",
        kind if kind.is_symlink() => "symlink",
        _ => "other",
    }
}
