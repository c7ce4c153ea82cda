//! What a list request asks for.

use crate::model::{Category, Status};
use std::fmt::Write as _;
use svc_base::api::{Problem, Request, Validator};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Page size unless asked otherwise.
pub const LIMIT_DEFAULT: usize = 50;
/// Largest page; more is cut to it.
pub const LIMIT_MAX: usize = 200;
/// Characters of a search.
pub const SEARCH_CHARS: usize = 200;

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Most downloads first.
    Popular,
    /// Best average first.
    Rating,
    Newest,
    /// By name.
    Name,
}

impl Sort {
    /// All orders, in the order in which a snapshot keeps them.
    pub const ALL: [Self; 4] = [Self::Popular, Self::Rating, Self::Newest, Self::Name];
    /// Their words.
    pub const WORDS: [&'static str; 4] = ["popular", "rating", "newest", "name"];

    /// Its word.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// A checked list request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// Lower-case words, all of which must be found.
    pub words: Vec<String>,
    /// The search as it came, for links and the page.
    pub search: String,
    pub category: Option<Category>,
    /// The order; of equals where [`Self::by_relevance`].
    pub sort: Sort,
    /// What fits the search best comes first: nobody has asked for another order.
    pub by_relevance: bool,
    /// One status; `None` means all, which needs the key.
    pub status: Option<Status>,
    pub author: Option<String>,
    /// Page size, 1 to [`LIMIT_MAX`].
    pub limit: usize,
    /// Where the page begins.
    pub offset: usize,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            search: String::new(),
            category: None,
            sort: Sort::Popular,
            by_relevance: false,
            status: Some(Status::Published),
            author: None,
            limit: LIMIT_DEFAULT,
            offset: 0,
        }
    }
}

impl ListQuery {
    /// Reads the query of a request. `all` of `status` is the caller's to allow, see [`Self::wants_all`].
    ///
    /// Errors: 400 with every violation.
    pub fn parse(request: &Request) -> Result<Self, Problem> {
        let mut v = Validator::default();
        let mut query = Self::default();
        if let Some(search) = once(&mut v, request, "search") {
            query.set_search(&mut v, search);
        }
        if let Some(word) = once(&mut v, request, "category") {
            query.category = Category::from_word(word);
            one_of(&mut v, query.category.is_some(), "category", Category::WORDS, word);
        }
        if let Some(word) = once(&mut v, request, "sort") {
            let found = Sort::ALL.into_iter().find(|sort| sort.word() == word);
            one_of(&mut v, found.is_some(), "sort", &Sort::WORDS, word);
            query.sort = found.unwrap_or(Sort::Popular);
        } else {
            query.by_relevance = !query.words.is_empty();
        }
        if let Some(word) = once(&mut v, request, "status") {
            query.status = Status::from_word(word);
            one_of(&mut v, query.status.is_some() || word == "all", "status", Status::WORDS, word);
        }
        query.author = once(&mut v, request, "author").map(str::to_owned);
        if let Some(limit) = whole(&mut v, request, "limit", 1) {
            query.limit = limit.min(LIMIT_MAX);
        }
        if let Some(offset) = whole(&mut v, request, "offset", 0) {
            query.offset = offset;
        }
        v.finish()?;
        Ok(query)
    }

    /// Whether every status is asked for.
    pub fn wants_all(&self) -> bool {
        self.status.is_none()
    }

    fn set_search(&mut self, v: &mut Validator, search: &str) {
        let length = search.chars().count();
        v.check(length <= SEARCH_CHARS, "search", || {
            format!("search must have at most {SEARCH_CHARS} characters, it has {length}")
        });
        search.trim().clone_into(&mut self.search);
        let text = searched(search);
        for word in text.split_whitespace() {
            if !self.words.iter().any(|known| known == word) {
                self.words.push(word.to_owned());
            }
        }
    }

    /// The query string of another page of the same list.
    pub fn page_at(&self, offset: usize) -> String {
        let mut out = String::new();
        let mut add = |name: &str, value: &str| {
            let glue = if out.is_empty() { '?' } else { '&' };
            let _ = write!(out, "{glue}{name}={}", svc_base::percent::encode(value));
        };
        if !self.search.is_empty() {
            add("search", &self.search);
        }
        if let Some(category) = self.category {
            add("category", category.word());
        }
        let is_usual = self.sort == Sort::Popular && self.words.is_empty();
        if !self.by_relevance && !is_usual {
            add("sort", self.sort.word());
        }
        if self.status != Some(Status::Published) {
            add("status", self.status.map_or("all", Status::word));
        }
        if let Some(author) = &self.author {
            add("author", author);
        }
        add("limit", &self.limit.to_string());
        if offset > 0 {
            add("offset", &offset.to_string());
        }
        out
    }

    /// The `Link` header for a list of `total`; `None` when there is only one page.
    pub fn links(&self, path: &str, total: usize) -> Option<String> {
        let last = total.saturating_sub(1) / self.limit * self.limit;
        if total <= self.limit && self.offset == 0 {
            return None;
        }
        let mut links = vec![(0, "first")];
        if self.offset > 0 {
            links.push((self.offset.saturating_sub(self.limit).min(last), "prev"));
        }
        if self.offset + self.limit < total {
            links.push((self.offset + self.limit, "next"));
        }
        links.push((last, "last"));
        let links = links.iter().map(|(at, rel)| format!("<{path}{}>; rel=\"{rel}\"", self.page_at(*at)));
        Some(links.collect::<Vec<_>>().join(", "))
    }
}

/// How names and searches are compared: composed, without case.
pub fn folded(text: &str) -> String {
    text.nfc().flat_map(char::to_lowercase).collect()
}

/// How searches and what they look at are compared: without case, accents and ligatures.
pub fn searched(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.nfkd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase) {
        match c {
            'ß' => out.push_str("ss"),
            'æ' => out.push_str("ae"),
            'œ' => out.push_str("oe"),
            'ø' => out.push('o'),
            'ł' => out.push('l'),
            'đ' => out.push('d'),
            c => out.push(c),
        }
    }
    out
}

/// A value that may come once; an empty one counts as absent.
fn once<'a>(v: &mut Validator, request: &'a Request, name: &str) -> Option<&'a str> {
    let mut values = request.query.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str());
    let first = values.next();
    v.check(values.next().is_none(), name, || format!("{name} is there twice, give it once"));
    first.filter(|value| !value.trim().is_empty())
}

fn one_of(v: &mut Validator, holds: bool, name: &str, words: &[&str], given: &str) {
    v.check(holds, name, || {
        let given: String = given.chars().take(40).collect();
        format!("{name} must be one of {}, it is {given:?}", words.join(", "))
    });
}

/// A whole number of at least `least`; one beyond the machine's range counts as the largest.
fn whole(v: &mut Validator, request: &Request, name: &str, least: usize) -> Option<usize> {
    let text = once(v, request, name)?.trim();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Far below the end, so that sums of two stay in range.
    let number = digits.then(|| text.parse().unwrap_or(usize::MAX).min(usize::MAX / 4));
    let number = number.filter(|number| *number >= least);
    v.check(number.is_some(), name, || {
        let given: String = text.chars().take(40).collect();
        format!("{name} must be a whole number of at least {least}, it is {given:?}")
    });
    number
}
