//! All endpoints, in one table.

use super::{BODY_LIMIT_BYTES, Market, discovery, legacy, reads, system, writes};
use crate::authoring;
use crate::authors;
use crate::keys::Access;
use crate::limits::client::Client;
use crate::page;
use svc_base::api::{Method, Params, Problem, Reply, Request, Route, Table};

/// What a handler gets.
pub struct Ask<'a> {
    pub market: &'a Market,
    pub request: &'a Request,
    /// Values of the path.
    pub params: &'a Params,
    pub client: Client,
    /// Whether a valid key of either kind came along.
    pub keyed: bool,
}

/// A handler's function.
pub type Call = fn(&Ask) -> Result<Reply, Problem>;

/// What answers a route.
#[derive(Debug, Clone, Copy)]
pub enum Handler {
    /// Reads; gets an entity tag.
    Get(Call),
    /// Changes something; needs this key.
    Write(Access, Call),
}

impl Handler {
    /// The key it needs.
    pub fn access(self) -> Access {
        match self {
            Self::Get(_) => Access::Public,
            Self::Write(access, _) => access,
        }
    }
}

const LIST_QUERY: &[(&str, &str)] = &[
    (
        "search",
        "words that must all fit name, description or tags; what fits best comes first unless sort is given",
    ),
    ("category", "design, quality, devtools, workflow, security or specialized"),
    ("sort", "popular (default), rating, newest or name"),
    ("status", "published (default), draft, review, rejected, unlisted; all with the key"),
    ("author", "an authorId"),
    ("limit", "page size, 1 to 200, default 50"),
    ("offset", "where the page begins"),
];

const SEARCH_QUERY: &[(&str, &str)] = &[
    ("q", "words, as in search of the list"),
    ("limit", "how many, 1 to 200, default 50"),
    ("owner", "a GitHub handle"),
];

fn get(path: &'static str, summary: &'static str, call: Call) -> Route<Handler> {
    Route::new(Method::Get, path, summary, Handler::Get(call)).body_limit(BODY_LIMIT_BYTES)
}

fn write(
    method: Method,
    path: &'static str,
    summary: &'static str,
    access: Access,
    call: Call,
) -> Route<Handler> {
    Route::new(method, path, summary, Handler::Write(access, call)).body_limit(BODY_LIMIT_BYTES)
}

/// The table of the service.
pub fn table() -> Table<Handler> {
    let mut routes = public();
    routes.extend(keyed());
    routes.extend(files());
    routes.extend(indexes());
    Table::new(routes)
}

fn public() -> Vec<Route<Handler>> {
    vec![
        get("/api/v1/skills", "List and search skills", reads::list)
            .query(LIST_QUERY)
            .replies(&[(200, "skills, total and categories"), (400, "a query value breaks a rule")]),
        get("/api/v1/skills/registry.json", "All published skills as a bare array", legacy::registry),
        get("/api/v1/skills/:id", "One skill, without content", reads::one)
            .replies(&[(200, "the skill"), (404, "no such skill")]),
        get("/api/v1/skills/:id/content", "A skill's markdown", reads::content).replies(&[
            (200, "id and content"),
            (404, "no such skill, or not published"),
            (410, "no longer published"),
        ]),
        get("/api/v1/authors/:id", "An author with their published skills", reads::author)
            .replies(&[(200, "the author"), (404, "no such author")]),
        write(Method::Post, "/api/v1/skills/:id/rate", "Rate a skill", Access::Public, writes::rate)
            .body(writes::rate_schema)
            .replies(&[
                (200, "id, rating and rating_count"),
                (400, "no whole number from 1 to 5"),
                (404, "no such skill, or not published"),
                (410, "no longer published"),
            ]),
        write(
            Method::Post,
            "/api/v1/skills/:id/install",
            "Count an install",
            Access::Public,
            writes::install,
        )
        .replies(&[
            (200, "downloads and counted"),
            (404, "no such skill, or not published"),
            (410, "no longer published"),
        ]),
        get("/api/v1/openapi.json", "This description", system::openapi),
    ]
}

fn keyed() -> Vec<Route<Handler>> {
    vec![
        write(Method::Post, "/api/v1/skills", "Create a skill", Access::Writer, writes::create)
            .body(authoring::new_schema)
            .replies(&[(201, "the skill"), (400, "a field breaks a rule"), (401, "no or a wrong key")]),
        write(Method::Put, "/api/v1/skills/:id", "Edit a skill", Access::Writer, writes::edit)
            .body(authoring::edit_schema)
            .replies(&[
                (200, "the skill"),
                (400, "a field breaks a rule"),
                (401, "no or a wrong key"),
                (403, "the vendor's skill"),
                (404, "no such skill"),
            ]),
        write(
            Method::Delete,
            "/api/v1/skills/:id",
            "Take a skill off the list",
            Access::Writer,
            writes::unlist,
        )
        .replies(&[(200, "the skill"), (401, "no or a wrong key"), (404, "no such skill")]),
        write(Method::Post, "/api/v1/skills/:id/publish", "Publish", Access::Writer, writes::publish)
            .replies(&[
                (200, "the skill"),
                (400, "the skill has no content"),
                (401, "no or a wrong key"),
                (404, "no such skill"),
            ]),
        write(Method::Post, "/api/v1/skills/:id/review", "Approve or reject", Access::Admin, writes::review)
            .body(crate::review::schema)
            .replies(&[
                (200, "the skill"),
                (400, "no decision"),
                (401, "no or a wrong key"),
                (404, "no such skill"),
                (409, "not in review"),
            ]),
        write(Method::Put, "/api/v1/authors/:id", "Edit an author", Access::Writer, writes::edit_author)
            .body(authors::edit_schema)
            .replies(&[
                (200, "the author"),
                (400, "a field breaks a rule"),
                (401, "no or a wrong key"),
                (403, "the vendor"),
                (404, "no such author"),
            ]),
    ]
}

fn files() -> Vec<Route<Handler>> {
    vec![
        get("/skills/registry.json", "Legacy registry file", legacy::registry),
        get("/skills/content/:file", "Legacy content file <id>.md", legacy::content_file).replies(&[
            (200, "markdown"),
            (404, "no such file"),
            (410, "no longer published"),
        ]),
        get("/healthz", "Whether the service works", system::health)
            .replies(&[(200, "it does"), (503, "the store cannot be read")]),
        get("/metrics", "Counters, as Prometheus text", system::metrics),
        get("/", "The catalogue as a page", page::home).query(LIST_QUERY),
        get("/s/:id", "A skill as a page", page::skill).replies(&[
            (200, "the page"),
            (404, "no such skill"),
            (410, "no longer published"),
        ]),
        get("/market.css", "The style of the pages", page::style),
    ]
}

const SKILL_MD: &str = "A skill as a SKILL.md file";
const ONE: &str = "Agent Skills discovery of one skill";

/// What the public command-line client installs from: the whole market, or one skill under its page's path.
fn indexes() -> Vec<Route<Handler>> {
    let replies: &[_] = &[(200, "markdown"), (404, "no such skill"), (410, "no longer published")];
    let one: &[_] = &[(200, "the index"), (404, "no such skill"), (410, "no longer published")];
    vec![
        get("/.well-known/agent-skills/index.json", "Agent Skills discovery", discovery::of_market),
        get("/.well-known/agent-skills/:file/SKILL.md", SKILL_MD, discovery::file).replies(replies),
        get(
            "/.well-known/skills/index.json",
            "Agent Skills discovery, first format",
            discovery::of_market_first,
        ),
        get("/.well-known/skills/:file/SKILL.md", SKILL_MD, discovery::file).replies(replies),
        get("/s/:id/.well-known/agent-skills/index.json", ONE, discovery::of_skill).replies(one),
        get("/s/:id/.well-known/agent-skills/:file/SKILL.md", SKILL_MD, discovery::file).replies(replies),
        get("/s/:id/.well-known/skills/index.json", ONE, discovery::of_skill_first).replies(one),
        get("/s/:id/.well-known/skills/:file/SKILL.md", SKILL_MD, discovery::file).replies(replies),
        get("/api/search", "Search, as the public command-line client asks", reads::search)
            .query(SEARCH_QUERY)
            .replies(&[(200, "query, count and skills"), (400, "a query value breaks a rule")]),
    ]
}

/// Whether a route serves a file that an index names.
pub fn is_indexed_file(route: &Route<Handler>) -> bool {
    route.path.ends_with("/:file/SKILL.md")
}
