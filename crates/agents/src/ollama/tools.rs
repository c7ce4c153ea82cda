//! What the model can do. Files are read and written inside the working directory only, component by
//! component; the shell starts there and has a time limit.

use super::search;
use crate::rehearsal::tools::{first_bytes, inside, run, write};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use svc_providers::native::cut;

/// What a tool returns to the model, and shows.
pub const RESULT_LIMIT_BYTES: usize = 64 * 1024;
/// Files above this are neither read nor edited.
const FILE_LIMIT_BYTES: u64 = 5 * 1024 * 1024;
const LIST_LIMIT: usize = 1000;
const SHELL_DEFAULT_SECONDS: u64 = 120;
const SHELL_AUTO_LIMIT_SECONDS: u64 = 10 * 60;
const SHELL_FULL_LIMIT_SECONDS: u64 = 60 * 60;

/// How far the tools go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Read,
    /// Edits, and commands for some minutes.
    Auto,
    /// Edits, and commands for up to an hour.
    Full,
}

/// The tools of one agent.
#[derive(Debug)]
pub struct Tools {
    /// Canonical.
    root: PathBuf,
    reach: Reach,
    definitions: Value,
}

type Arguments = Map<String, Value>;

impl Tools {
    /// Tools that work in `root`.
    ///
    /// Errors: it does not exist.
    pub fn new(root: &Path, reach: Reach) -> Result<Self, String> {
        let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
        Ok(Self { root, reach, definitions: definitions(reach) })
    }

    /// What the model is told about its situation.
    pub fn introduction(&self) -> String {
        let root = self.root.display();
        let task = match self.reach {
            Reach::Read => "Answer the question. You can look at files but change nothing.",
            Reach::Auto | Reach::Full => {
                "Work on the task until it is done, with the tools you have; do not ask for what a tool can \
                 tell you. Check what you have done. When nothing is left to do, answer without a tool call \
                 and say in a few sentences what you did."
            }
        };
        format!("You are a coding agent. Your working directory is {root}; paths are relative to it. {task}")
    }

    /// The list for the endpoint.
    pub fn definitions(&self) -> &Value {
        &self.definitions
    }

    /// Whether a tool changes the file it names.
    pub fn writes(name: &str) -> bool {
        matches!(name, "write_file" | "edit_file")
    }

    /// The file that a call is about, relative to the working directory.
    pub fn file_of(&self, name: &str, arguments: &Value) -> Option<String> {
        let is_about_file = matches!(name, "read_file" | "write_file" | "edit_file");
        let path = arguments["path"].as_str().filter(|_| is_about_file)?;
        Some(self.relative(path).to_owned())
    }

    /// Uses a tool. `Err` tells the model what went wrong.
    pub fn call(&self, name: &str, arguments: &Arguments) -> Result<String, String> {
        let changes = Self::writes(name) || name == "shell";
        if changes && self.reach == Reach::Read {
            return Err(format!("{name} is not allowed here: nothing may be changed"));
        }
        let result = match name {
            "read_file" => self.read_file(arguments),
            "write_file" => self.write_file(arguments),
            "edit_file" => self.edit_file(arguments),
            "list_files" => self.list_files(arguments),
            "search" => self.search(arguments),
            "shell" => self.shell(arguments),
            _ => Err(format!("there is no tool `{name}`")),
        };
        match result {
            Ok(text) => Ok(cut(&text, RESULT_LIMIT_BYTES).to_owned()),
            Err(text) => Err(cut(&text, RESULT_LIMIT_BYTES).to_owned()),
        }
    }

    /// Models like to name files absolutely: inside the working directory that means the same.
    fn relative<'p>(&self, path: &'p str) -> &'p str {
        let below = Path::new(path).strip_prefix(&self.root).ok().and_then(Path::to_str);
        below.map_or(path, |below| if below.is_empty() { "." } else { below })
    }

    fn place(&self, path: &str) -> Result<PathBuf, String> {
        inside(&self.root, self.relative(path))
    }

    fn read_file(&self, arguments: &Arguments) -> Result<String, String> {
        let path = text(arguments, "path")?;
        let first = whole(arguments, "first_line")?.unwrap_or(1).max(1);
        let count = whole(arguments, "lines")?.unwrap_or(u64::MAX);
        let content = read(&self.place(path)?, path)?;
        let skip = usize::try_from(first - 1).unwrap_or(usize::MAX);
        let take = usize::try_from(count).unwrap_or(usize::MAX);
        let part: String = content.split_inclusive('\n').skip(skip).take(take).collect();
        if part.len() <= RESULT_LIMIT_BYTES {
            return Ok(part);
        }
        // The note must survive the cut, or the model takes the part for the whole.
        let note =
            format!("\n[cut: ask for less with first_line and lines; {path} has {} bytes]", content.len());
        Ok(format!("{}{note}", cut(&part, RESULT_LIMIT_BYTES - note.len())))
    }

    fn write_file(&self, arguments: &Arguments) -> Result<String, String> {
        let (path, content) = (text(arguments, "path")?, text(arguments, "content")?);
        write(&self.place(path)?, path, content)
    }

    fn edit_file(&self, arguments: &Arguments) -> Result<String, String> {
        let path = text(arguments, "path")?;
        let (old, new) = (text(arguments, "old")?, text(arguments, "new")?);
        let place = self.place(path)?;
        let content = read(&place, path)?;
        match content.matches(old).count() {
            _ if old.is_empty() => Err("`old` is empty".to_owned()),
            1 => {
                fs::write(&place, content.replacen(old, new, 1))
                    .map_err(|error| format!("{path}: {error}"))?;
                Ok(format!("changed {path}"))
            }
            0 => Err(format!("{path} does not contain `old`")),
            times => Err(format!("{path} contains `old` {times} times; give more of its surroundings")),
        }
    }

    fn list_files(&self, arguments: &Arguments) -> Result<String, String> {
        let path = optional_text(arguments, "path")?.unwrap_or(".");
        let entries = fs::read_dir(self.place(path)?).map_err(|error| format!("{path}: {error}"))?;
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                format!("{}{}", entry.file_name().to_string_lossy(), if is_folder { "/" } else { "" })
            })
            .collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(LIST_LIMIT);
        names.truncate(LIST_LIMIT);
        if more > 0 {
            names.push(format!("[and {more} more]"));
        }
        Ok(names.join("\n"))
    }

    fn search(&self, arguments: &Arguments) -> Result<String, String> {
        let wanted = text(arguments, "text")?;
        let path = optional_text(arguments, "path")?.unwrap_or(".");
        search::search(&self.root, &self.place(path)?, wanted)
    }

    fn shell(&self, arguments: &Arguments) -> Result<String, String> {
        let limit =
            if self.reach == Reach::Full { SHELL_FULL_LIMIT_SECONDS } else { SHELL_AUTO_LIMIT_SECONDS };
        let seconds = whole(arguments, "timeout_seconds")?.unwrap_or(SHELL_DEFAULT_SECONDS);
        run(&self.root, text(arguments, "command")?, Duration::from_secs(seconds.clamp(1, limit)))
    }
}

/// The text of a file.
fn read(place: &Path, path: &str) -> Result<String, String> {
    let bytes = first_bytes(place, path, FILE_LIMIT_BYTES + 1)?;
    if bytes.len() as u64 > FILE_LIMIT_BYTES {
        return Err(format!("{path}: has more than {FILE_LIMIT_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| format!("{path}: is not UTF-8 text"))
}

fn text<'a>(arguments: &'a Arguments, name: &str) -> Result<&'a str, String> {
    optional_text(arguments, name)?.ok_or_else(|| format!("`{name}` is missing"))
}

fn optional_text<'a>(arguments: &'a Arguments, name: &str) -> Result<Option<&'a str>, String> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` must be a string")),
    }
}

fn whole(arguments: &Arguments, name: &str) -> Result<Option<u64>, String> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_u64().map(Some).ok_or_else(|| format!("`{name}` must be a whole number, not {value}"))
        }
    }
}

fn definitions(reach: Reach) -> Value {
    let path = json!({"type": "string", "description": "relative to the working directory"});
    let string = |description: &str| json!({"type": "string", "description": description});
    let number = |description: &str| json!({"type": "integer", "description": description});
    let tool = |name: &str, description: &str, properties: Value, required: &[&str]| {
        json!({"type": "function", "function": {"name": name, "description": description,
            "parameters": {"type": "object", "properties": properties, "required": required}}})
    };
    let mut tools = vec![
        tool(
            "read_file",
            "Read a text file, or some of its lines.",
            json!({"path": path, "first_line": number("1 is the first"), "lines": number("how many")}),
            &["path"],
        ),
        tool("list_files", "List a folder; folders end with a slash.", json!({"path": path}), &[]),
        tool(
            "search",
            "Find literal text in all files below a folder. Gives path:line: text.",
            json!({"text": string("case matters"), "path": path}),
            &["text"],
        ),
    ];
    if reach != Reach::Read {
        tools.extend([
            tool(
                "write_file",
                "Write a whole file and the folders it needs.",
                json!({"path": path, "content": string("the whole text")}),
                &["path", "content"],
            ),
            tool(
                "edit_file",
                "Replace a text that occurs exactly once in a file.",
                json!({"path": path, "old": string("with enough surroundings"), "new": string("instead")}),
                &["path", "old", "new"],
            ),
            tool(
                "shell",
                "Run a command with sh in the working directory, without input. It must exit on its own.",
                json!({"command": string("one line or more"), "timeout_seconds": number("120 by default")}),
                &["command"],
            ),
        ]);
    }
    Value::Array(tools)
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
