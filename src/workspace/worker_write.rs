//! Changing files. A file is written beside its place and renamed over it, so that nobody sees half of it.

use super::Command;
use super::path::ProjectPath;
use super::worker_files::{
    TEMPORARY_PREFIX, TEXT_LIMIT_BYTES, check_plain, etag, is_a_folder, modified, refusal, root, told,
    too_large,
};
use crate::api::{Fields, Problem};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use serde_json::{Value, json};
use std::fs::{Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, PoisonError};
use svc_sys::beneath::{Dir, Root};
use svc_sys::clock;
use svc_sys::files::if_there;

/// Folder levels that are removed at once.
const MAX_REMOVED_LEVELS: usize = 128;
/// Permissions of a new file, before the umask.
const NEW_FILE_MODE: u32 = 0o666;
/// The bits of a mode that `chmod` knows.
const PERMISSION_BITS: u32 = 0o7777;

/// Held from the look at the old file until the new one is in its place, so that of two writers who have
/// seen the same version the second is told.
static REPLACING: Mutex<()> = Mutex::new(());

fn changed(event: &'static str, details: Value, status: u16, mut body: Value) -> Result<Answer, Problem> {
    body["ok"] = json!(true);
    Ok(Answer::Command(Command::Changed { event, details, status, body }.into()))
}

/// What the caller believes the file to be.
#[derive(Default)]
struct Expected {
    etag: Option<String>,
    mtime: Option<String>,
}

impl Expected {
    fn check(&self, path: &ProjectPath, now: Option<&Metadata>) -> Result<(), Problem> {
        if self.etag.is_none() && self.mtime.is_none() {
            return Ok(());
        }
        let differs = |wanted: &Option<String>, is: Option<String>| wanted.is_some() && *wanted != is;
        if !differs(&self.etag, now.map(etag))
            && !differs(&self.mtime, now.map(|meta| modified(meta).to_string()))
        {
            return Ok(());
        }
        let text = format!("{:?} has been changed since you read it; read it again", path.as_str());
        let problem = Problem::new(409, "changed_meanwhile", text);
        Err(match now {
            Some(meta) => problem.with("etag", etag(meta)).with("mtime", modified(meta).to_string()),
            None => problem,
        })
    }
}

fn check_size(path: &ProjectPath, content: &str) -> Result<(), Problem> {
    let size = content.len() as u64;
    if size > TEXT_LIMIT_BYTES { Err(too_large(path, size, TEXT_LIMIT_BYTES)) } else { Ok(()) }
}

/// A path field that must be there and must not be the root.
fn path_field(fields: &mut Fields, name: &str) -> Option<String> {
    fields.required_string(name).map(ToOwned::to_owned)
}

fn parse(text: Option<String>) -> Result<ProjectPath, Problem> {
    let path = ProjectPath::parse(&text.unwrap_or_default())?;
    if path.is_root() {
        return Err(Problem::bad_request("is_root", "this cannot be done to the project's root itself"));
    }
    path.check_writable()?;
    Ok(path)
}

/// The folder that holds `path`, without links in its real path, and the name there. With `parents`,
/// folders that are missing are made.
pub fn folder_of(root: &Root, path: &ProjectPath, parents: bool) -> Result<(Dir, ProjectPath), Problem> {
    let (folder, name) = path.split();
    if parents {
        make_parents(root, folder, path)?;
    }
    let said = |error: io::Error| refusal(&error, path);
    let real = ProjectPath::found(&root.locate(folder).map_err(said)?);
    let target = real.join(name);
    target.check_writable()?;
    let dir = root.dir(real.as_str()).map_err(said)?;
    Ok((dir, target))
}

fn make_parents(root: &Root, folder: &str, path: &ProjectPath) -> Result<(), Problem> {
    let mut at = ProjectPath::found("");
    for part in folder.split('/').filter(|part| !part.is_empty()) {
        let (dir, _) = folder_of(root, &at.join(part), false)?;
        match dir.make_dir(part) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refusal(&error, path)),
            _ => at = at.join(part),
        }
    }
    Ok(())
}

/// Writes a temporary file into `dir`; its name.
fn temporary(dir: &Dir, content: &str, mode: Option<u32>) -> io::Result<String> {
    let name = format!("{TEMPORARY_PREFIX}{:016x}", clock::random());
    let mut file = dir.create(&name, NEW_FILE_MODE)?;
    let written = file
        .write_all(content.as_bytes())
        .and_then(|()| mode.map_or(Ok(()), |mode| file.set_permissions(Permissions::from_mode(mode))))
        .and_then(|()| file.sync_all());
    written.map(|()| name.clone()).inspect_err(|_| drop(dir.remove_file(&name)))
}

/// `POST /api/files/write`.
pub fn write(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let path = path_field(&mut fields, "path");
    let content = fields.string("content");
    let missing = fields.value("content").is_none();
    fields.validator.check(!missing, "content", || "content is required and must be a string".to_owned());
    let text = |fields: &mut Fields, name| fields.string(name).map(ToOwned::to_owned);
    let expected = Expected { etag: text(&mut fields, "etag"), mtime: text(&mut fields, "mtime") };
    fields.validator.finish()?;
    let (path, content) = (parse(path)?, content.unwrap_or_default());
    check_size(&path, content)?;
    let (meta, created) = replace(&root(host)?, &path, content, &expected)?;
    let mut answer = told(&path, &meta);
    answer["created"] = json!(created);
    let details = json!({"path": path.as_str(), "size": content.len(), "created": created});
    changed("file.write", details, 200, answer)
}

/// Puts `content` in the place of `path`; what is there now, and whether nothing was there before. A link is
/// followed as long as it stays inside, so that it remains a link.
fn replace(
    root: &Root,
    path: &ProjectPath,
    content: &str,
    expected: &Expected,
) -> Result<(Metadata, bool), Problem> {
    let said = |error: io::Error| refusal(&error, path);
    let real = if_there(root.locate(path.as_str())).map_err(said)?;
    let place = real.map_or_else(|| path.clone(), |real| ProjectPath::found(&real));
    place.check_writable()?;
    let (dir, place) = folder_of(root, &place, false)?;
    let (_, name) = place.split();
    let old = if_there(dir.look(name)).map_err(said)?;
    if let Some(old) = &old {
        check_plain(old, path)?;
    }
    let mode = old.as_ref().map(|old| old.permissions().mode() & PERMISSION_BITS);
    let temporary = temporary(&dir, content, mode).map_err(said)?;
    let _guard = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
    let placed = (|| {
        let now = if_there(dir.look(name)).map_err(said)?;
        if let Some(now) = &now {
            check_plain(now, path)?;
        }
        expected.check(path, now.as_ref())?;
        let renamed = match now {
            Some(_) => dir.rename(&temporary, &dir, name),
            None => dir.rename_new(&temporary, &dir, name),
        };
        renamed.map_err(said)?;
        Ok(now.is_none())
    })();
    let created = placed.inspect_err(|_| drop(dir.remove_file(&temporary)))?;
    dir.sync().map_err(said)?;
    Ok((dir.look(name).map_err(said)?, created))
}

/// `POST /api/files/create`.
pub fn create(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let path = path_field(&mut fields, "path");
    let content = fields.string("content").unwrap_or_default();
    let parents = fields.boolean("parents").unwrap_or(false);
    fields.validator.finish()?;
    let path = parse(path)?;
    check_size(&path, content)?;
    let said = |error: io::Error| refusal(&error, &path);
    let (dir, place) = folder_of(&root(host)?, &path, parents)?;
    let (_, name) = place.split();
    let temporary = temporary(&dir, content, None).map_err(said)?;
    dir.rename_new(&temporary, &dir, name)
        .inspect_err(|_| drop(dir.remove_file(&temporary)))
        .and_then(|()| dir.sync())
        .map_err(said)?;
    let answer = told(&path, &dir.look(name).map_err(said)?);
    changed("file.create", json!({"path": path.as_str(), "size": content.len()}), 201, answer)
}

/// `POST /api/files/mkdir`.
pub fn mkdir(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let path = path_field(&mut fields, "path");
    let parents = fields.boolean("parents").unwrap_or(false);
    fields.validator.finish()?;
    let path = parse(path)?;
    let (dir, place) = folder_of(&root(host)?, &path, parents)?;
    let (_, name) = place.split();
    dir.make_dir(name).and_then(|()| dir.sync()).map_err(|error| refusal(&error, &path))?;
    changed("file.mkdir", json!({"path": path.as_str()}), 201, json!({"path": path.as_str()}))
}

/// `POST /api/files/rename`.
pub fn rename(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let old_names = fields.has("oldPath") || fields.has("newPath");
    let (from, to) = if old_names { ("oldPath", "newPath") } else { ("from", "to") };
    let (from, to) = (path_field(&mut fields, from), path_field(&mut fields, to));
    let parents = fields.boolean("parents").unwrap_or(false);
    fields.validator.finish()?;
    let (from, to) = (parse(from)?, parse(to)?);
    let root = root(host)?;
    let (dir, place) = folder_of(&root, &from, false)?;
    let (_, name) = place.split();
    dir.look(name).map_err(|error| refusal(&error, &from))?;
    let (to_dir, to_place) = folder_of(&root, &to, parents)?;
    if to_place.as_str().starts_with(&format!("{}/", place.as_str())) {
        let text = format!("{:?} cannot be moved into itself", from.as_str());
        return Err(Problem::bad_request("into_itself", text));
    }
    dir.rename_new(name, &to_dir, to_place.split().1).map_err(|error| refusal(&error, &to))?;
    let synced = to_dir.sync().and_then(|()| dir.sync());
    synced.map_err(|error| refusal(&error, &to))?;
    let told = json!({"from": from.as_str(), "to": to.as_str()});
    let body = json!({"from": from.as_str(), "to": to.as_str(), "path": to.as_str()});
    changed("file.rename", told, 200, body)
}

/// `DELETE /api/files/delete`.
pub fn delete(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let request = ask.request;
    let path = match request.query("path") {
        Some(path) if !path.is_empty() => Some(path.to_owned()),
        _ => path_field(&mut fields, "path"),
    };
    let asked = request.query("recursive").is_some_and(|value| value == "1" || value == "true");
    let recursive = fields.boolean("recursive").unwrap_or(false) || asked;
    fields.validator.finish()?;
    let path = parse(path)?;
    let (dir, place) = folder_of(&root(host)?, &path, false)?;
    let (_, name) = place.split();
    let said = |error: io::Error| refusal(&error, &path);
    let meta = dir.look(name).map_err(said)?;
    let removed = if !meta.is_dir() {
        dir.remove_file(name)
    } else if recursive {
        remove_tree(&dir, name)
    } else {
        dir.remove_dir(name)
    };
    removed.and_then(|()| dir.sync()).map_err(|error| match error.raw_os_error() {
        Some(libc::EISDIR) => is_a_folder(&path),
        _ => refusal(&error, &path),
    })?;
    let kind = if meta.is_dir() { "dir" } else { "file" };
    changed(
        "file.delete",
        json!({"path": path.as_str(), "type": kind}),
        200,
        json!({"path": path.as_str(), "type": kind}),
    )
}

/// A folder that is being emptied.
struct Level {
    dir: Dir,
    name: String,
    /// Folders in it that are left.
    folders: Vec<String>,
}

impl Level {
    /// Opens a folder and removes what in it is no folder.
    fn enter(parent: &Dir, name: String) -> io::Result<Self> {
        let dir = parent.dir(&name)?;
        let mut folders = Vec::new();
        for entry in dir.entries()? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|_| {
                io::Error::other("it holds a name that is not UTF-8; remove that one by hand")
            })?;
            if entry.metadata().is_ok_and(|meta| meta.is_dir()) {
                folders.push(name);
            } else {
                dir.remove_file(&name)?;
            }
        }
        Ok(Self { dir, name, folders })
    }
}

/// Removes a folder and all in it, by descriptors: a folder swapped for a link meanwhile is not entered.
pub fn remove_tree(dir: &Dir, name: &str) -> io::Result<()> {
    let mut levels = vec![Level::enter(dir, name.to_owned())?];
    while let Some(level) = levels.last_mut() {
        if let Some(inner) = level.folders.pop() {
            let next = Level::enter(&level.dir, inner)?;
            if levels.len() >= MAX_REMOVED_LEVELS {
                return Err(io::Error::other(format!("it has more than {MAX_REMOVED_LEVELS} levels")));
            }
            levels.push(next);
        } else {
            let name = std::mem::take(&mut level.name);
            levels.pop();
            levels.last().map_or(dir, |parent| &parent.dir).remove_dir(&name)?;
        }
    }
    Ok(())
}
