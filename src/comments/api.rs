//! `/api/agents/:id/comments`.

use super::{Command, MAX_LINES, MAX_QUOTE_CHARS, MAX_TEXT_CHARS, Side, worker};
use crate::api::{Fields, Method, Problem, Route, schema_of};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::json;

/// Characters of a path.
const MAX_PATH_CHARS: usize = 4_096;
/// The highest number of a line.
const MAX_LINE: u64 = 10_000_000;

/// The routes of comments.
pub fn routes() -> Vec<Route<Handler>> {
    use Access::{Anyone, OperatorOnly};
    use Handler::{Work, Write};
    vec![
        Route::new(
            Method::Get,
            "/api/agents/:id/comments",
            "Comments of persons on the work of an agent",
            Work(Anyone, worker::list),
        )
        .replies(&[(
            200,
            "comments, oldest first: id, path, line, lastLine, side, quote, text, at, sentAt, doneAt, state \
             (open, sent or done), changed: whether its lines stand in the file no more, or are removed no \
             more, stands: the line where they begin now",
        )]),
        Route::new(
            Method::Post,
            "/api/agents/:id/comments",
            "Comment on lines of a file in the folder of an agent",
            Work(OperatorOnly, worker::add),
        )
        .body(|| schema_of(wish))
        .replies(&[
            (201, "the comment"),
            (404, "no such agent, file or line"),
            (409, "too_many_comments, or lines_differ: its file does not hold the lines of quote"),
        ]),
        Route::new(
            Method::Post,
            "/api/agents/:id/comments/send",
            "Give an agent all open comments as one message",
            Write(OperatorOnly, |ask| {
                let message = if ask.request.body.is_empty() { None } else { ask.request.read(words)? };
                Ok(Command::Send { target: ask.target(), message }.into())
            }),
        )
        .body(|| schema_of(words))
        .replies(&[
            (200, "agentId, agentName, sent: the ids, left: how many did not fit, message"),
            (409, "nothing_to_send, queue_full"),
        ]),
        Route::new(
            Method::Patch,
            "/api/agents/:id/comments/:comment",
            "Tick a comment, or open it again",
            Write(OperatorOnly, |ask| {
                let done = ask.request.read(|fields| fields.boolean("done"))?.unwrap_or(true);
                Ok(Command::Tick { target: ask.target(), id: number(ask)?, done }.into())
            }),
        )
        .body(|| schema_of(|fields| fields.boolean("done")))
        .replies(&[(200, "the comment"), (404, "no such comment")]),
        Route::new(
            Method::Delete,
            "/api/agents/:id/comments/:comment",
            "Remove a comment",
            Write(OperatorOnly, |ask| Ok(Command::Remove { target: ask.target(), id: number(ask)? }.into())),
        )
        .replies(&[(200, "removed, id"), (404, "no such comment")]),
    ]
}

/// Errors: 404 for what is no number.
fn number(ask: &Ask) -> Result<u64, Problem> {
    let text = ask.params.get("comment");
    text.parse().map_err(|_| Problem::not_found(format!("comments have numbers, {text:?} is none")))
}

fn words(fields: &mut Fields) -> Option<String> {
    fields.text("message", MAX_TEXT_CHARS).filter(|text| !text.is_empty()).map(ToOwned::to_owned)
}

/// Lines, and what is said of them.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub path: String,
    pub line: u64,
    pub last_line: u64,
    pub side: Side,
    /// The lines as whoever writes it has them before the eyes, in a copy of the file: they are commented on
    /// wherever they stand in the agent's.
    pub quote: Option<String>,
    pub text: String,
}

pub(super) fn wish(fields: &mut Fields) -> Wish {
    fields.tell("path", || json!({"minLength": 1, "maxLength": MAX_PATH_CHARS}));
    let path = fields.required_string("path").unwrap_or_default().to_owned();
    fields.validator.check(path.chars().count() <= MAX_PATH_CHARS, "path", || {
        format!("path has {} characters, {MAX_PATH_CHARS} are the most", path.chars().count())
    });
    fields.tell_required("line");
    let line = fields.integer("line", 1, MAX_LINE);
    fields.validator.check(line.is_some(), "line", || "line is required: the first line, from 1".to_owned());
    let line = line.unwrap_or(1);
    let last_line = fields.integer("lastLine", 1, MAX_LINE).unwrap_or(line);
    fields.validator.check((line..line + MAX_LINES).contains(&last_line), "lastLine", || {
        format!("lastLine must be from {line} to {}, it is {last_line}", line + MAX_LINES - 1)
    });
    let side = fields.choice("side", &["new", "old"]).map_or(Side::New, |word| match word {
        "old" => Side::Old,
        _ => Side::New,
    });
    fields.tell("quote", || json!({"maxLength": MAX_QUOTE_CHARS}));
    let quote = fields.string("quote").filter(|quote| !quote.is_empty()).map(ToOwned::to_owned);
    let chars = quote.as_ref().map_or(0, |quote| quote.chars().count());
    fields.validator.check(chars <= MAX_QUOTE_CHARS, "quote", || {
        format!("quote must have at most {MAX_QUOTE_CHARS} characters, it has {chars}; name fewer lines")
    });
    let text = fields.required_text("text", MAX_TEXT_CHARS);
    Wish { path, line, last_line, side, quote, text }
}
