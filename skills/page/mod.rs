//! The public catalogue as pages: plain HTML from the snapshot, no script.
//!
//! **Invariant:** everything that comes from people goes through [`escape`] or [`markdown::render`].

pub mod markdown;

use crate::authoring::moves::require_listed;
use crate::catalogue::entry::Entry;
use crate::catalogue::query::{ListQuery, Sort};
use crate::http::routes::Ask;
use crate::keys::Access;
use crate::model::{Category, Source, Verification, hundredths};
use crate::store::no_such_skill;
use markdown::escape;
use std::fmt::Write as _;
use svc::api::{Problem, Reply, Request};

const STYLE: &str = include_str!("market.css");
const HTML: &str = "text/html; charset=utf-8";
/// Nothing but our own style and form.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// Skills on one page.
const CARDS: usize = 48;

/// Whether a refusal is better told as a page.
pub fn wants_html(request: &Request) -> bool {
    request.path == "/" || request.path.starts_with("/s/")
}

/// A refusal as a page.
pub fn refusal(problem: &Problem) -> Reply {
    let body = format!(
        "<main class=\"narrow\"><h1>{}</h1><p>{}</p><p><a href=\"/\">All skills</a></p></main>",
        problem.status,
        escape(&problem.error)
    );
    html(problem.status, "Not here", "", &body)
}

/// `GET /market.css`.
pub fn style(_: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::bytes(200, "text/css; charset=utf-8", STYLE))
}

/// `GET /`.
pub fn home(ask: &Ask) -> Result<Reply, Problem> {
    Ok(home_page(ask).unwrap_or_else(|problem| refusal(&problem)))
}

/// `GET /s/:id`.
pub fn skill(ask: &Ask) -> Result<Reply, Problem> {
    Ok(skill_page(ask).unwrap_or_else(|problem| refusal(&problem)))
}

fn html(status: u16, title: &str, search: &str, body: &str) -> Reply {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <link rel=\"stylesheet\" href=\"/market.css\"></head><body>\
         <header><a class=\"brand\" href=\"/\">svc <b>skills</b></a>\
         <form action=\"/\" role=\"search\"><input type=\"search\" name=\"search\" value=\"{}\" \
         maxlength=\"200\" placeholder=\"Search skills\" aria-label=\"Search skills\">\
         <button>Search</button></form></header>{body}\
         <footer>Skills are markdown instructions for coding agents. \
         <a href=\"/api/v1/openapi.json\">API</a></footer></body></html>\n",
        escape(title),
        escape(search)
    );
    Reply::bytes(status, HTML, page).with_header("Content-Security-Policy", POLICY)
}

fn home_page(ask: &Ask) -> Result<Reply, Problem> {
    let mut query = ListQuery::parse(ask.request)?;
    if query.wants_all() && !ask.keyed {
        ask.market.keys.check(Access::Writer, ask.request.header("authorization"))?;
    }
    query.limit = CARDS;
    let snapshot = ask.market.catalogue.snapshot();
    let (cards, total, counts) = snapshot.find(&query);
    let mut body = String::from("<main>");
    filters(&mut body, &query, &counts);
    let _ = write!(body, "<p class=\"found\">{}</p><ul class=\"cards\">", found(total));
    for entry in &cards {
        card(&mut body, entry);
    }
    body.push_str("</ul>");
    if cards.is_empty() {
        body.push_str("<p class=\"empty\">Nothing fits. <a href=\"/\">Show all skills</a></p>");
    }
    pages(&mut body, &query, total);
    body.push_str("</main>");
    Ok(html(200, "Skills for coding agents", &query.search, &body))
}

fn found(total: usize) -> String {
    if total == 1 { "1 skill".into() } else { format!("{total} skills") }
}

/// Category and order, as links that keep the rest of the query.
fn filters(body: &mut String, query: &ListQuery, counts: &[usize; 6]) {
    let link = |query: &ListQuery, here: bool, label: &str, count: Option<usize>| {
        let current = if here { " aria-current=\"true\"" } else { "" };
        let count = count.map(|n| format!(" <small>{n}</small>")).unwrap_or_default();
        format!("<a href=\"/{}\"{current}>{label}{count}</a>", escape(&query.page_at(0)))
    };
    body.push_str("<nav class=\"filters\" aria-label=\"Categories\">");
    let all = ListQuery { category: None, ..query.clone() };
    body.push_str(&link(&all, query.category.is_none(), "all", Some(counts.iter().sum())));
    for category in Category::ALL {
        let one = ListQuery { category: Some(*category), ..query.clone() };
        let here = query.category == Some(*category);
        body.push_str(&link(&one, here, category.word(), Some(counts[*category as usize])));
    }
    body.push_str("</nav><nav class=\"filters sorts\" aria-label=\"Order\">");
    for sort in Sort::ALL {
        let one = ListQuery { sort, ..query.clone() };
        body.push_str(&link(&one, query.sort == sort, sort.word(), None));
    }
    body.push_str("</nav>");
}

fn pages(body: &mut String, query: &ListQuery, total: usize) {
    if total <= query.limit && query.offset == 0 {
        return;
    }
    body.push_str("<nav class=\"pages\" aria-label=\"Pages\">");
    if query.offset > 0 {
        let before = query.page_at(query.offset.saturating_sub(query.limit));
        let _ = write!(body, "<a rel=\"prev\" href=\"/{}\">Earlier</a>", escape(&before));
    }
    if query.offset + query.limit < total {
        let next = query.page_at(query.offset + query.limit);
        let _ = write!(body, "<a rel=\"next\" href=\"/{}\">More</a>", escape(&next));
    }
    body.push_str("</nav>");
}

fn card(body: &mut String, entry: &Entry) {
    let skill = &entry.skill;
    let featured = if skill.featured { " featured" } else { "" };
    let _ = write!(
        body,
        "<li class=\"card{featured}\"><a href=\"/s/{}\"><span class=\"icon {}\" aria-hidden=\"true\">{}</span>\
         <h2>{}</h2><p>{}</p><p class=\"figures\">{}</p></a></li>",
        escape(&skill.id),
        skill.category,
        escape(&skill.icon),
        escape(&skill.name),
        escape(&skill.description),
        figures(entry)
    );
}

/// Author, rating, downloads and price in one line.
fn figures(entry: &Entry) -> String {
    let skill = &entry.skill;
    let mut parts = vec![format!("<span>{}{}</span>", escape(&skill.author), mark(entry))];
    if entry.raters > 0 {
        parts.push(format!("<span>★ {} <small>({})</small></span>", hundredths(entry.rating), entry.raters));
    }
    parts.push(format!("<span>{} installs</span>", skill.downloads));
    if skill.price_cents > 0 {
        parts.push(format!("<span class=\"price\">${}</span>", hundredths(skill.price_cents)));
    }
    parts.concat()
}

fn mark(entry: &Entry) -> &'static str {
    match (entry.skill.source, entry.skill.verification) {
        (Source::Vendor, _) | (_, Verification::Vendor) => " <b class=\"mark\">official</b>",
        (_, Verification::Service) => " <b class=\"mark\">verified</b>",
        (_, Verification::Creator) => " <b class=\"mark\">known creator</b>",
        (_, Verification::Nobody) => "",
    }
}

fn skill_page(ask: &Ask) -> Result<Reply, Problem> {
    let id = ask.params.get("id");
    let snapshot = ask.market.catalogue.snapshot();
    let entry = snapshot.get(id).ok_or_else(|| no_such_skill(id))?;
    require_listed(&entry.skill)?;
    let skill = &entry.skill;
    let text = ask.market.catalogue.content(&skill.digest)?;
    let mut tags = String::new();
    for tag in &skill.tags {
        let query = crate::catalogue::query::encoded(tag);
        let _ = write!(tags, "<a href=\"/?search={query}\">{}</a>", escape(tag));
    }
    let body = format!(
        "<main class=\"narrow\"><section class=\"top\"><span class=\"icon {}\" aria-hidden=\"true\">{}</span>\
         <div><h1>{}</h1><p>{}</p><p class=\"figures\">{}<span>version {}</span></p>\
         <p class=\"tags\">{tags}</p></div></section>\
         <pre class=\"install\"><code>npx skills add {} --skill {}</code></pre>\
         <article>{}</article></main>",
        skill.category,
        escape(&skill.icon),
        escape(&skill.name),
        escape(&skill.description),
        figures(entry),
        escape(&skill.version),
        escape(ask.market.catalogue.base_url()),
        escape(&skill.id),
        markdown::render(&text)
    );
    Ok(html(200, &skill.name, "", &body))
}
