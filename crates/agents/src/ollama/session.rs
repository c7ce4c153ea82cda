//! The history of a session: in memory while the process lives, in `.svc/sessions/` for a resume.

use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use svc_sys::clock;
use svc_sys::files::replace;

/// A saved session has at most this much; the oldest turns go first.
const SESSION_LIMIT_BYTES: usize = 8 * 1024 * 1024;
/// The layout of the file.
const VERSION: u64 = 1;
const ID_BYTES: usize = 8;
const ID_LENGTH_LIMIT: usize = 64;

/// The messages of a session.
///
/// **Invariant:** the first one is the introduction; whatever is saved is a history that the endpoint
/// accepts: each tool call in it has its result.
#[derive(Debug)]
pub struct Session {
    id: String,
    /// Where it is kept; a question is not.
    path: Option<PathBuf>,
    messages: Vec<Value>,
    /// When each message of the user came, in epoch milliseconds; 0 where a version that noted none has saved
    /// it.
    began: Vec<u64>,
}

impl Session {
    /// A new session that begins with this introduction.
    ///
    /// Errors: the operating system gives no randomness.
    pub fn fresh(project: &Path, introduction: &str) -> Result<Self, String> {
        Self::unsaved(introduction).named(project)
    }

    /// A session that is never saved.
    pub fn unsaved(introduction: &str) -> Self {
        let messages = vec![json!({"role": "system", "content": introduction})];
        Self { id: String::new(), path: None, messages, began: Vec::new() }
    }

    /// Continues a saved session.
    ///
    /// Errors: a sentence that names the session.
    pub fn resume(project: &Path, id: &str) -> Result<Self, String> {
        let path = file_of(project, id)?;
        let (messages, began) =
            read(&path).map_err(|error| format!("session {id} cannot be resumed: {error}"))?;
        Ok(Self { id: id.to_owned(), path: Some(path), messages, began })
    }

    /// A copy of a saved session, for a question: the session itself stays as it is.
    pub fn fork(project: &Path, id: &str) -> Result<Self, String> {
        Ok(Self { path: None, ..Self::resume(project, id)? })
    }

    /// A copy of a saved session that goes on under a name of its own.
    ///
    /// Errors: as [`Session::resume`] and [`Session::fresh`].
    pub fn copy(project: &Path, id: &str) -> Result<Self, String> {
        Self::fork(project, id)?.named(project)
    }

    fn named(self, project: &Path) -> Result<Self, String> {
        let mut bytes = [0; ID_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| format!("no random number: {error}"))?;
        let id = format!("ollama-{:016x}", u64::from_be_bytes(bytes));
        let path = Some(file_of(project, &id)?);
        Ok(Self { id, path, ..self })
    }

    /// The same with this introduction: the folder is another one for a copy, and for who has moved.
    pub fn introduced(mut self, introduction: &str) -> Self {
        self.messages[0] = json!({"role": "system", "content": introduction});
        self
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// All messages, oldest first.
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// A message of the user.
    pub fn begin_turn(&mut self, text: &str) {
        self.messages.push(json!({"role": "user", "content": text}));
        self.began.push(clock::now().0);
    }

    /// A message of the model or of a tool.
    pub fn push(&mut self, message: Value) {
        self.messages.push(message);
    }

    /// Saves it, readable by its owner alone, whole or not at all.
    ///
    /// Errors: it cannot be written, or its last turn alone is above the limit.
    pub fn save(&self) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let (mut messages, mut began) = (&self.messages[1..], self.began.as_slice());
        loop {
            let history = json!({
                "version": VERSION, "introduction": self.messages[0], "messages": messages, "began": began,
            });
            let text = history.to_string();
            if text.len() <= SESSION_LIMIT_BYTES {
                return replace(path, text.as_bytes()).map_err(|error| error.to_string());
            }
            let is_user = |message: &Value| message["role"] == "user";
            match messages.iter().skip(1).position(is_user) {
                Some(next) => {
                    messages = &messages[next + 1..];
                    began = began.get(1..).unwrap_or_default();
                }
                None => return Err(format!("its last turn has more than {SESSION_LIMIT_BYTES} bytes")),
            }
        }
    }
}

/// Errors: an id that could lead out of the folder.
fn file_of(project: &Path, id: &str) -> Result<PathBuf, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if id.is_empty() || id.len() > ID_LENGTH_LIMIT || !id.bytes().all(is_plain) {
        return Err(format!(
            "a session id has 1 to {ID_LENGTH_LIMIT} letters, digits and dashes, not `{id}`"
        ));
    }
    Ok(project.join(".svc/sessions").join(format!("{id}.json")))
}

/// The messages, and when those of the user came.
fn read(path: &Path) -> Result<(Vec<Value>, Vec<u64>), String> {
    let mut text = String::new();
    let limit = SESSION_LIMIT_BYTES as u64;
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(limit).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let mut history: Value = serde_json::from_slice(text.as_bytes()).map_err(|error| error.to_string())?;
    if history["version"] != VERSION {
        return Err(format!("its version is {}, not {VERSION}", history["version"]));
    }
    let mut messages = vec![history["introduction"].take()];
    match history["messages"].take() {
        Value::Array(rest) => messages.extend(rest),
        _ => return Err("it has no messages".to_owned()),
    }
    let began = history["began"].as_array().into_iter().flatten().map(|at| at.as_u64().unwrap_or(0));
    let mut began: Vec<u64> = began.collect();
    let users = messages.iter().filter(|message| message["role"] == "user").count();
    began.resize(users, 0);
    Ok((messages, began))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("svc-session-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_saved_session_is_continued_and_a_copy_leaves_it_alone() {
        let folder = Folder::new("resume");
        let mut session = Session::fresh(&folder.0, "be brief").expect("randomness");
        session.begin_turn("hello");
        session.push(json!({"role": "assistant", "content": "hi"}));
        session.save().expect("saved");
        let file = folder.0.join(".svc/sessions").join(format!("{}.json", session.id()));
        let mode = fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = Session::resume(&folder.0, session.id()).expect("saved before");
        assert_eq!(again.messages(), session.messages());
        let mut copy = Session::fork(&folder.0, session.id()).expect("saved before");
        copy.begin_turn("why");
        copy.save().expect("nothing to do");
        assert_eq!(Session::resume(&folder.0, session.id()).expect("there").messages().len(), 3);
        let mut own = Session::copy(&folder.0, session.id()).expect("saved").introduced("be long");
        own.begin_turn("go on");
        own.save().expect("saved");
        let saved = Session::resume(&folder.0, own.id()).expect("under a name of its own");
        assert_eq!((saved.messages().len(), &saved.messages()[0]["content"]), (4, &json!("be long")));
        assert_eq!((&saved.began, saved.began.len()), (&own.began, 2));
        assert_eq!(Session::resume(&folder.0, session.id()).expect("there").messages().len(), 3);
    }

    #[test]
    fn the_oldest_turns_go_when_a_session_is_too_long() {
        let folder = Folder::new("limit");
        let mut session = Session::fresh(&folder.0, "be brief").expect("randomness");
        for name in ["a", "b", "c"] {
            session.begin_turn(name);
            session.push(json!({"role": "tool", "content": name.repeat(SESSION_LIMIT_BYTES * 2 / 5)}));
        }
        session.save().expect("saved");
        let kept = Session::resume(&folder.0, session.id()).expect("saved before");
        let words = |index: usize| &kept.messages()[index]["content"];
        assert_eq!(kept.messages().len(), 5);
        assert_eq!((words(0), words(1), words(3)), (&json!("be brief"), &json!("b"), &json!("c")));
        assert_eq!(kept.began, session.began[1..]);
        session.begin_turn(&"d".repeat(SESSION_LIMIT_BYTES));
        assert!(session.save().expect_err("too long").contains("more than 8388608 bytes"));
    }

    #[test]
    fn an_id_is_no_path_and_a_broken_file_is_named() {
        let folder = Folder::new("broken");
        for bad in ["../x", "", "a/b", &"a".repeat(65)] {
            assert!(Session::resume(&folder.0, bad).expect_err(bad).contains("a session id has"));
        }
        let error = Session::resume(&folder.0, "gone").expect_err("not there");
        assert!(error.starts_with("session gone cannot be resumed: No such file"), "{error}");
        replace(&folder.0.join(".svc/sessions/torn.json"), b"{\"version\":1").expect("written");
        replace(&folder.0.join(".svc/sessions/new.json"), b"{\"version\":2}").expect("written");
        assert!(Session::resume(&folder.0, "torn").is_err());
        let error = Session::resume(&folder.0, "new").expect_err("newer");
        assert!(error.ends_with("its version is 2, not 1"), "{error}");
    }
}
