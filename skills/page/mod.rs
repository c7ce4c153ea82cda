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
use std::fmt::Write as _;
use svc_base::api::{Problem, Reply, Request};
use svc_base::untrusted::escape_html as escape;

const STYLE: &str = include_str!("market.css");
const HTML: &str = "text/html; charset=utf-8";
/// Nothing but our own style, icon and form.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; \
     frame-ancestors 'none'";
/// The browser's tab shows this; in the page itself, so that no further request is counted.
const FAVICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E\
     %3Crect width='32' height='32' rx='8' fill='%230b6bcb'/%3E%3Cpath d='M9 9h14v4H9zm0 6h14v2H9zm0 4h9v2H9z' \
     fill='%23fff'/%3E%3C/svg%3E";
/// What the whole is, in a sentence.
const ABOUT: &str = "Instructions that make a coding agent good at one thing: reviewing, designing, testing, \
     shipping. Plain markdown, rated by people who use it.";
/// Skills on one page.
const CARDS: usize = 48;

/// Whether a refusal is better told as a page.
pub fn wants_html(request: &Request) -> bool {
    request.path == "/" || request.segments.len() == 2 && request.segments[0] == "s"
}

/// A refusal as a page.
pub fn refusal(problem: &Problem) -> Reply {
    let body = format!(
        "<main class=\"narrow\"><h1>{}</h1><p>{}</p><p><a href=\"/\">All skills</a></p></main>",
        problem.status,
        escape(&problem.error)
    );
    html(problem.status, "Not here", ABOUT, "", &body)
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

fn html(status: u16, title: &str, about: &str, search: &str, body: &str) -> Reply {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"description\" content=\"{}\">\
         <link rel=\"icon\" href=\"{FAVICON}\"><link rel=\"stylesheet\" href=\"/market.css\"></head><body>\
         <header><a class=\"brand\" href=\"/\">svc <b>skills</b></a>\
         <form action=\"/\" role=\"search\"><input type=\"search\" name=\"search\" value=\"{}\" \
         maxlength=\"200\" placeholder=\"Search skills\" aria-label=\"Search skills\">\
         <button>Search</button></form></header>{body}\
         <footer><span>Skills are markdown instructions for coding agents.</span>\
         <nav aria-label=\"Formats\"><a href=\"/api/v1/skills\">JSON</a><a href=\"/api/v1/openapi.json\">API</a>\
         <a href=\"/.well-known/agent-skills/index.json\">Discovery</a></nav></footer></body></html>\n",
        escape(title),
        escape(about),
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
    let by = query.author.as_deref().map(|id| snapshot.author(id).map_or(id, |a| a.display_name.as_str()));
    let is_front = query == ListQuery { limit: CARDS, ..ListQuery::default() };
    if is_front {
        let base = escape(&ask.market.base(ask.request));
        let _ = write!(
            body,
            "<section class=\"hero\"><h1>Skills for coding agents</h1><p>{ABOUT}</p>\
             <pre class=\"install\"><code>npx skills add {base}</code></pre></section>"
        );
    }
    filters(&mut body, &query, &counts);
    heading(&mut body, &query, total, by);
    body.push_str("<ul class=\"cards\">");
    for entry in &cards {
        card(&mut body, entry);
    }
    body.push_str("</ul>");
    if cards.is_empty() {
        body.push_str(
            "<p class=\"empty\">Nothing fits. Try fewer or shorter words, or \
             <a href=\"/\">look at all skills</a>.</p>",
        );
    }
    pages(&mut body, &query, total);
    body.push_str("</main>");
    Ok(html(200, "Skills for coding agents", ABOUT, &query.search, &body))
}

/// How many were found of what.
fn heading(body: &mut String, query: &ListQuery, total: usize, author: Option<&str>) {
    let _ = write!(body, "<p class=\"found\">{}", found(total));
    if let Some(category) = query.category {
        let _ = write!(body, " in {category}");
    }
    if let Some(author) = author {
        let _ = write!(body, " by <b>{}</b>", escape(author));
    }
    if !query.search.is_empty() {
        let _ = write!(body, " for <q>{}</q>", escape(&query.search));
    }
    if author.is_some() || !query.search.is_empty() {
        body.push_str(" <a href=\"/\">show all</a>");
    }
    body.push_str("</p>");
}

fn found(total: usize) -> String {
    if total == 1 { "1 skill".into() } else { format!("{} skills", grouped(total as u64)) }
}

/// A number with a comma between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Category and order, as links that keep the rest of the query.
fn filters(body: &mut String, query: &ListQuery, counts: &[usize; 6]) {
    let link = |query: &ListQuery, here: bool, label: &str, count: Option<usize>| {
        let current = if here { " aria-current=\"true\"" } else { "" };
        let count = count.map(|n| format!(" <small>{n}</small>")).unwrap_or_default();
        format!("<a href=\"/{}\"{current}>{label}{count}</a>", escape(&query.page_at(0)))
    };
    body.push_str("<div class=\"bar\"><nav class=\"filters\" aria-label=\"Categories\">");
    let all = ListQuery { category: None, ..query.clone() };
    body.push_str(&link(&all, query.category.is_none(), "all", Some(counts.iter().sum())));
    for category in Category::ALL {
        let one = ListQuery { category: Some(*category), ..query.clone() };
        let here = query.category == Some(*category);
        body.push_str(&link(&one, here, category.word(), Some(counts[*category as usize])));
    }
    body.push_str("</nav><nav class=\"sorts\" aria-label=\"Order\"><small>Sort by</small>");
    for sort in Sort::ALL {
        let one = ListQuery { sort, by_relevance: false, ..query.clone() };
        body.push_str(&link(&one, query.sort == sort && !query.by_relevance, sort.word(), None));
    }
    body.push_str("</nav></div>");
}

fn pages(body: &mut String, query: &ListQuery, total: usize) {
    if total <= query.limit && query.offset == 0 {
        return;
    }
    body.push_str("<nav class=\"pages\" aria-label=\"Pages\">");
    if query.offset > 0 {
        let before = query.page_at(query.offset.saturating_sub(query.limit));
        let _ = write!(body, "<a rel=\"prev\" href=\"/{}\">← Previous</a>", escape(&before));
    }
    let (page, last) = (query.offset / query.limit + 1, total.div_ceil(query.limit).max(1));
    let _ = write!(body, "<span>Page {page} of {last}</span>");
    if query.offset + query.limit < total {
        let next = query.page_at(query.offset + query.limit);
        let _ = write!(body, "<a rel=\"next\" href=\"/{}\">Next →</a>", escape(&next));
    }
    body.push_str("</nav>");
}

fn card(body: &mut String, entry: &Entry) {
    let skill = &entry.skill;
    let featured = if skill.featured { "<b class=\"featured\">featured</b>" } else { "" };
    let _ = write!(
        body,
        "<li class=\"card\"><a href=\"/s/{}\"><span class=\"head\">{}<span><h2>{}</h2>\
         <small>{}{}</small></span>{featured}</span><p>{}</p><p class=\"figures\">{}</p></a></li>",
        escape(&skill.id),
        icon(entry),
        escape(&skill.name),
        escape(&skill.author),
        mark(entry),
        escape(&skill.description),
        figures(entry)
    );
}

fn icon(entry: &Entry) -> String {
    let (category, icon) = (entry.skill.category, escape(&entry.skill.icon));
    format!("<span class=\"icon {category}\" aria-hidden=\"true\">{icon}</span>")
}

/// Rating, downloads and price in one line.
fn figures(entry: &Entry) -> String {
    let skill = &entry.skill;
    let mut parts = Vec::new();
    if entry.raters > 0 {
        let (rating, raters) = (hundredths(entry.rating), grouped(entry.raters));
        parts.push(format!(
            "<span title=\"rated {rating} of 5 by {raters}\"><span class=\"star\">★</span> {rating} \
             <small>({raters})</small></span>"
        ));
    }
    let installs = if skill.downloads == 1 { "install" } else { "installs" };
    parts.push(format!("<span>{} {installs}</span>", grouped(skill.downloads)));
    if skill.price_cents > 0 {
        let (whole, cents) = (skill.price_cents / 100, skill.price_cents % 100);
        parts.push(format!("<span class=\"price\">${whole}.{cents:02}</span>"));
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
    let id = escape(&skill.id);
    let author = svc_base::percent::encode(&skill.author_id);
    let mut body =
        String::from("<main class=\"narrow\"><p class=\"back\"><a href=\"/\">← All skills</a></p>");
    let _ = write!(
        body,
        "<section class=\"top\">{}<div><h1>{}</h1><p class=\"by\">by <a href=\"/?author={author}\">{}</a>{}</p>\
         </div></section><p class=\"lead\">{}</p><p class=\"figures\">{}{}</p>",
        icon(entry),
        escape(&skill.name),
        escape(&skill.author),
        mark(entry),
        escape(&skill.description),
        figures(entry),
        about(&skill.version, &skill.updated_at.to_string())
    );
    labels(&mut body, entry);
    let _ = write!(
        body,
        "<pre class=\"install\"><code>npx skills add {}/s/{id}</code></pre>\
         <p class=\"raw\">or read it as <a href=\"/skills/content/{id}.md\">plain markdown</a></p>\
         <article>{}</article></main>",
        escape(&ask.market.base(ask.request)),
        without_title(&markdown::render(&text), &skill.name)
    );
    Ok(html(200, &skill.name, &skill.description, "", &body))
}

/// Version and day of the last change.
fn about(version: &str, updated_at: &str) -> String {
    let day = updated_at.split('T').next().unwrap_or_default();
    format!("<span>version {}</span><span>updated {day}</span>", escape(version))
}

/// Category, tags and roles as links that find others alike.
fn labels(body: &mut String, entry: &Entry) {
    let skill = &entry.skill;
    let _ = write!(body, "<p class=\"tags\"><a href=\"/?category={0}\">{0}</a>", skill.category);
    for tag in skill.tags.iter().filter(|tag| tag.as_str() != skill.category.word()) {
        let query = svc_base::percent::encode(tag);
        let _ = write!(body, "<a href=\"/?search={query}\">{}</a>", escape(tag));
    }
    body.push_str("</p>");
    if !skill.roles.is_empty() {
        let roles = escape(&skill.roles.join(", "));
        let _ = write!(body, "<p class=\"roles\">for agents in the role of {roles}</p>");
    }
}

/// The page has the name as its title already.
fn without_title<'a>(html: &'a str, name: &str) -> &'a str {
    html.strip_prefix(&format!("<h1>{}</h1>", escape(name))).unwrap_or(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_title_that_repeats_the_name_is_left_out() {
        assert_eq!(without_title("<h1>A &amp; B</h1><p>x</p>", "A & B"), "<p>x</p>");
        assert_eq!(without_title("<h1>Other</h1>", "A & B"), "<h1>Other</h1>");
    }
}
