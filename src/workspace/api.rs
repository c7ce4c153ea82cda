//! `/api/files`, `/api/indexer`, `/api/repos`: the routes.

use super::{worker_files, worker_git, worker_import, worker_index, worker_map, worker_write};
use crate::api::{Method, Reply, Route};
use crate::endpoint::{Access, Handler};
use serde_json::{Value, json};

/// Bytes of a request that carries a file.
const WRITE_BODY_BYTES: usize = 8 << 20;

/// The routes of the workspace.
pub fn routes() -> Vec<Route<Handler>> {
    let mut routes = reading();
    routes.extend(writing());
    routes.extend(indexing());
    routes.extend(importing());
    routes
}

const PATH: (&str, &str) = ("path", "relative to the project's root");

fn reading() -> Vec<Route<Handler>> {
    use Access::Anyone;
    use Handler::Work;
    vec![
        Route::new(Method::Get, "/api/files/tree", "Files and folders", Work(Anyone, worker_files::tree))
            .query(&[
                PATH,
                ("depth", "levels, 1 to 32, usually 3"),
                ("limit", "entries, 1 to 20000, usually 2000"),
            ])
            .replies(&[(200, "path, entries, count, truncated"), (404, "no such folder")]),
        Route::new(Method::Get, "/api/files/read", "The text of a file", Work(Anyone, worker_files::read))
            .query(&[PATH])
            .replies(&[
                (200, "path, content, size, mtime, etag; or path, binary true, size"),
                (403, "it leads out of the project, is protected, or is no plain file"),
                (404, "no such file"),
                (413, "above 5 MB"),
            ]),
        Route::new(Method::Get, "/api/files/raw", "The bytes of a file", Work(Anyone, worker_files::raw))
            .query(&[PATH, ("download", "1 to have it saved under its name")])
            .replies(&[(200, "the bytes"), (404, "no such file"), (413, "above 50 MB")]),
        Route::new(
            Method::Get,
            "/api/files/git-status",
            "Changed files, according to git",
            Work(Anyone, worker_git::status),
        ),
        Route::new(
            Method::Get,
            "/api/files/git-diff",
            "Changes against HEAD",
            Work(Anyone, worker_git::diff),
        )
        .query(&[PATH])
        .replies(&[(200, "path, diff, truncated"), (409, "not a git repository")]),
    ]
}

/// Agents write with their own tools, under their own confinement; this door is the operator's.
fn writing() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::Work;
    const MISSING: (u16, &str) = (404, "the folder or file is missing");
    const EXISTS: (u16, &str) = (409, "the name is taken");
    const LARGE: (u16, &str) = (413, "above 5 MB");
    vec![
        Route::new(
            Method::Post,
            "/api/files/write",
            "Replace a file, at once",
            Work(OperatorOnly, worker_write::write),
        )
        .body(|| text_schema(true))
        .body_limit(WRITE_BODY_BYTES)
        .replies(&[
            (200, "path, size, mtime, etag, created"),
            MISSING,
            (409, "it is not what etag or mtime say any more"),
            LARGE,
        ]),
        Route::new(
            Method::Post,
            "/api/files/create",
            "Make a file",
            Work(OperatorOnly, worker_write::create),
        )
        .body(|| text_schema(false))
        .body_limit(WRITE_BODY_BYTES)
        .replies(&[(201, "path, size, mtime, etag"), MISSING, EXISTS, LARGE]),
        Route::new(
            Method::Post,
            "/api/files/mkdir",
            "Make a folder",
            Work(OperatorOnly, worker_write::mkdir),
        )
        .body(|| path_schema(&["path"]))
        .replies(&[(201, "path"), MISSING, EXISTS]),
        Route::new(
            Method::Post,
            "/api/files/rename",
            "Rename or move a file or folder",
            Work(OperatorOnly, worker_write::rename),
        )
        .body(|| path_schema(&["from", "to"]))
        .replies(&[(200, "from, to"), MISSING, EXISTS]),
        Route::new(
            Method::Delete,
            "/api/files/delete",
            "Remove a file or folder",
            Work(OperatorOnly, worker_write::delete),
        )
        .query(&[PATH, ("recursive", "true to remove a folder with all in it")])
        .replies(&[(200, "path, type"), MISSING, (409, "the folder is not empty")]),
    ]
}

fn indexing() -> Vec<Route<Handler>> {
    use Handler::{Read, Work};
    const STATUS: &[(u16, &str)] = &[(200, "indexed, lastIndexTime, workspaceCount, stats")];
    vec![
        Route::new(
            Method::Get,
            "/api/indexer",
            "What is known of the codebase",
            Read(|ask| Ok(Reply::ok(&ask.state.workspace.index_status()))),
        )
        .replies(STATUS),
        Route::new(
            Method::Get,
            "/api/indexer/workspaces",
            "The packages of the project",
            Read(|ask| Ok(Reply::ok(&json!({"workspaces": ask.state.workspace.workspaces()})))),
        ),
        Route::new(
            Method::Post,
            "/api/indexer/rescan",
            "Scan the project again",
            Work(Access::Anyone, worker_index::rescan),
        )
        .replies(STATUS),
        Route::new(
            Method::Get,
            "/api/map",
            "Which files a task is about, what they define, how to build and test them",
            Work(Access::Anyone, worker_map::answer),
        )
        .query(&[
            ("task", "what is to be done; required"),
            ("chars", "of the answer, 1 to 40000; 8000 when absent"),
        ])
        .replies(&[
            (200, "task, text, truncated"),
            (400, "task is missing or too long"),
            (503, "the first look at a large project is not over"),
        ]),
    ]
}

fn importing() -> Vec<Route<Handler>> {
    use Handler::{Read, Work};
    vec![
        Route::new(
            Method::Post,
            "/api/repos/import",
            "Clone a repository into the project",
            Work(Access::OperatorOnly, worker_import::begin),
        )
        .body(|| {
            let properties = json!({
                "url": {"type": "string"}, "path": {"type": "string"}, "createTeam": {"type": "boolean"},
                "teamName": {"type": "string"},
            });
            json!({"type": "object", "required": ["url"], "properties": properties})
        })
        .replies(&[
            (202, "importId; repos:import reports its progress"),
            (400, "the address is neither https nor ssh"),
            (409, "there is something at path already"),
            (429, "two imports are under way"),
        ]),
        Route::new(
            Method::Get,
            "/api/repos/imports",
            "Imports, newest first",
            Read(|ask| {
                let imports: Vec<_> = ask.state.workspace.imports().newest_first().collect();
                Ok(Reply::ok(&json!({"imports": imports})))
            }),
        ),
    ]
}

fn text_schema(replaces: bool) -> Value {
    let mut properties = json!({"path": {"type": "string"}, "content": {"type": "string"}});
    if replaces {
        properties["etag"] = json!({"type": "string"});
        properties["mtime"] = json!({"type": "string"});
        return json!({"type": "object", "required": ["path", "content"], "properties": properties});
    }
    properties["parents"] = json!({"type": "boolean"});
    json!({"type": "object", "required": ["path"], "properties": properties})
}

fn path_schema(names: &[&str]) -> Value {
    let mut properties = json!({"parents": {"type": "boolean"}});
    for name in names {
        properties[*name] = json!({"type": "string"});
    }
    json!({"type": "object", "required": names, "properties": properties})
}
