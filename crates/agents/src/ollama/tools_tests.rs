use super::*;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicU32, Ordering};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("svc-tools-{}-{number}", std::process::id()));
        fs::create_dir_all(dir.join("in")).expect("temp dir");
        Self(dir.canonicalize().expect("there"))
    }

    fn tools(&self, reach: Reach) -> Tools {
        Tools::new(&self.0.join("in"), reach).expect("there")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn call(tools: &Tools, name: &str, arguments: &Value) -> Result<String, String> {
    tools.call(name, arguments.as_object().expect("an object"))
}

#[test]
fn files_are_written_read_in_part_edited_listed_and_searched() {
    let folder = Folder::new();
    let tools = folder.tools(Reach::Auto);
    let use_tool = |name: &str, arguments: Value| call(&tools, name, &arguments);
    let content = "one\ntwo\nthree\n";
    let wrote = use_tool("write_file", json!({"path": "a/b.txt", "content": content}));
    assert_eq!(wrote, Ok("wrote 14 bytes to a/b.txt".into()));
    assert_eq!(use_tool("read_file", json!({"path": "a/b.txt"})), Ok(content.into()));
    let part = json!({"path": "a/b.txt", "first_line": 2, "lines": 1});
    assert_eq!(use_tool("read_file", part), Ok("two\n".into()));
    let edit = json!({"path": "a/b.txt", "old": "two", "new": "2"});
    assert_eq!(use_tool("edit_file", edit.clone()), Ok("changed a/b.txt".into()));
    assert_eq!(use_tool("edit_file", edit), Err("a/b.txt does not contain `old`".into()));
    let twice = use_tool("edit_file", json!({"path": "a/b.txt", "old": "e", "new": ""}));
    assert_eq!(twice, Err("a/b.txt contains `old` 3 times; give more of its surroundings".into()));
    assert_eq!(use_tool("list_files", json!({})), Ok("a/".into()));
    assert_eq!(use_tool("list_files", json!({"path": "a"})), Ok("b.txt".into()));
    assert_eq!(use_tool("search", json!({"text": "thr"})), Ok("a/b.txt:3: three".into()));
    assert_eq!(use_tool("search", json!({"text": "four"})), Ok("nothing found in 1 files".into()));
    // An absolute path below the working directory is the same file.
    let absolute = folder.0.join("in/a/b.txt");
    let read = use_tool("read_file", json!({"path": absolute}));
    assert_eq!(read, Ok("one\n2\nthree\n".into()));
    assert_eq!(tools.file_of("read_file", &json!({"path": absolute})), Some("a/b.txt".into()));
}

#[test]
fn no_tool_leaves_the_working_directory() {
    let folder = Folder::new();
    let tools = folder.tools(Reach::Full);
    fs::write(folder.0.join("secret"), "secret").expect("written");
    symlink(&folder.0, folder.0.join("in/out")).expect("a link");
    for path in ["../secret", "out/secret", "/etc/passwd", "a/../../secret"] {
        for (name, more) in [
            ("read_file", json!({})),
            ("write_file", json!({"content": "x"})),
            ("edit_file", json!({"old": "secret", "new": "x"})),
            ("list_files", json!({})),
            ("search", json!({"text": "secret"})),
        ] {
            let mut arguments = more;
            arguments["path"] = json!(path);
            assert!(call(&tools, name, &arguments).is_err(), "{name} {path}");
        }
    }
    assert_eq!(fs::read_to_string(folder.0.join("secret")).expect("there"), "secret");
    let found = call(&tools, "search", &json!({"text": "secret"}));
    assert_eq!(found, Ok("nothing found in 0 files".into()), "links are not followed");
}

#[test]
fn commands_run_in_the_working_directory_with_a_time_limit() {
    let folder = Folder::new();
    let tools = folder.tools(Reach::Auto);
    let here = call(&tools, "shell", &json!({"command": "pwd"})).expect("it runs");
    assert_eq!(Path::new(here.trim()), folder.0.join("in"));
    let late = call(&tools, "shell", &json!({"command": "echo on; sleep 60", "timeout_seconds": 1}));
    assert_eq!(late, Err("on\n[killed after 1000 ms]".into()));
}

#[test]
fn decisions_2_a_question_changes_nothing() {
    let folder = Folder::new();
    let tools = folder.tools(Reach::Read);
    let names: Vec<_> = tools.definitions().as_array().expect("a list").iter().collect();
    let names: Vec<_> = names.iter().map(|tool| tool["function"]["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["read_file", "list_files", "search"]);
    let write = json!({"path": "a", "content": "x", "old": "", "new": "", "command": "touch a"});
    for name in ["write_file", "edit_file", "shell"] {
        assert!(call(&tools, name, &write).expect_err(name).contains("not allowed"));
    }
    assert_eq!(fs::read_dir(folder.0.join("in")).expect("there").count(), 0);
}

#[test]
fn wrong_arguments_are_told_to_the_model() {
    let folder = Folder::new();
    let tools = folder.tools(Reach::Auto);
    fs::write(folder.0.join("in/binary"), [0, 255]).expect("written");
    let cases = [
        ("read_file", json!({}), "`path` is missing"),
        ("read_file", json!({"path": 1}), "`path` must be a string"),
        ("read_file", json!({"path": "x", "lines": -1}), "`lines` must be a whole number, not -1"),
        ("read_file", json!({"path": "."}), ".: is not a file"),
        ("read_file", json!({"path": "binary"}), "binary: is not UTF-8 text"),
        ("dance", json!({}), "there is no tool `dance`"),
    ];
    for (name, arguments, words) in cases {
        assert_eq!(call(&tools, name, &arguments), Err(words.into()));
    }
}

#[test]
fn a_long_file_says_that_it_was_cut() {
    let folder = Folder::new();
    let tools = folder.tools(Reach::Auto);
    fs::write(folder.0.join("in/long"), "x".repeat(RESULT_LIMIT_BYTES + 1)).expect("written");
    let read = call(&tools, "read_file", &json!({"path": "long"})).expect("read");
    assert!(read.len() <= RESULT_LIMIT_BYTES && read.ends_with("long has 65537 bytes]"));
}
