//! The route table: the one list from which routing, `Allow`, `OpenAPI` and the README's table come.

use super::Method;
use crate::sorted;
use serde_json::Value;

/// One endpoint. `H` is what the owner of the table calls; the table itself never calls anything.
#[derive(Debug, Clone)]
pub struct Route<H> {
    /// The method; `HEAD` is served by every `GET`, `OPTIONS` by every path.
    pub method: Method,
    /// The path with `:name` parameters, for example `/api/agents/:id`.
    pub path: &'static str,
    /// One line for `OpenAPI` and README.
    pub summary: &'static str,
    /// JSON schema of the request body, if the route takes one.
    pub body: Option<fn() -> Value>,
    /// Query parameters: name and what it means.
    pub query: &'static [(&'static str, &'static str)],
    /// Statuses beyond the common ones, with their meaning.
    pub replies: &'static [(u16, &'static str)],
    /// Largest body in bytes.
    pub body_limit_bytes: usize,
    pub handler: H,
}

/// Default limit of a request body: 1 MiB.
pub const BODY_LIMIT_BYTES: usize = 1 << 20;

impl<H> Route<H> {
    /// A route with the default body limit and nothing documented beyond the summary.
    pub const fn new(method: Method, path: &'static str, summary: &'static str, handler: H) -> Self {
        Self {
            method,
            path,
            summary,
            body: None,
            query: &[],
            replies: &[],
            body_limit_bytes: BODY_LIMIT_BYTES,
            handler,
        }
    }

    /// Documents the request body.
    #[must_use]
    pub const fn body(mut self, schema: fn() -> Value) -> Self {
        self.body = Some(schema);
        self
    }

    /// Documents query parameters.
    #[must_use]
    pub const fn query(mut self, query: &'static [(&'static str, &'static str)]) -> Self {
        self.query = query;
        self
    }

    /// Documents the statuses of this route.
    #[must_use]
    pub const fn replies(mut self, replies: &'static [(u16, &'static str)]) -> Self {
        self.replies = replies;
        self
    }

    /// Sets another body limit.
    #[must_use]
    pub const fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit_bytes = bytes;
        self
    }
}

/// Values of the `:name` parameters of a matched path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params(Vec<(&'static str, String)>);

impl Params {
    /// The value of `:name`; empty when the route has no such parameter, which is a bug in the route.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value)
    }
}

/// What the table says of a method and path.
#[derive(Debug)]
pub enum Found<'a, H> {
    /// A route serves it.
    Route(&'a Route<H>, Params),
    /// The path exists, for the methods listed (the `Allow` header).
    OtherMethods(String),
    Nothing,
}

/// All routes of a service, grouped by their first two segments for a quick look-up.
#[derive(Debug)]
pub struct Table<H> {
    routes: Vec<Route<H>>,
}

impl<H> Table<H> {
    /// A table of these routes; literal segments win over parameters, whatever the order.
    pub fn new(mut routes: Vec<Route<H>>) -> Self {
        sorted::by_key(&mut routes, |route| route.path.matches(':').count());
        Self { routes }
    }

    /// All routes, those with fewer parameters first.
    pub fn routes(&self) -> &[Route<H>] {
        &self.routes
    }

    /// Finds the route for a method (`HEAD` counts as `GET`) and decoded path segments.
    pub fn find(&self, method: &Method, segments: &[String]) -> Found<'_, H> {
        let wanted = if *method == Method::Head { &Method::Get } else { method };
        let mut allowed: Vec<&Method> = Vec::new();
        for route in &self.routes {
            let Some(params) = matches(route.path, segments) else { continue };
            if route.method == *wanted {
                return Found::Route(route, params);
            }
            allowed.push(&route.method);
        }
        if allowed.is_empty() {
            return Found::Nothing;
        }
        let mut names: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        if allowed.contains(&&Method::Get) {
            names.push("HEAD".into());
        }
        names.push("OPTIONS".into());
        sorted::up(&mut names);
        names.dedup();
        Found::OtherMethods(names.join(", "))
    }
}

fn matches(pattern: &'static str, segments: &[String]) -> Option<Params> {
    let mut values = Vec::new();
    let mut rest = segments.iter();
    for part in pattern.trim_start_matches('/').split('/') {
        let value = rest.next()?;
        match part.strip_prefix(':') {
            Some(name) if !value.is_empty() => values.push((name, value.clone())),
            None if part == value => {}
            _ => return None,
        }
    }
    rest.next().is_none().then_some(Params(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(table: &Table<u8>, method: &Method, path: &str) -> Result<(u8, Params), String> {
        let segments: Vec<String> = path.trim_start_matches('/').split('/').map(Into::into).collect();
        match table.find(method, &segments) {
            Found::Route(route, params) => Ok((route.handler, params)),
            Found::OtherMethods(allow) => Err(allow),
            Found::Nothing => Err("nothing".into()),
        }
    }

    #[test]
    fn literal_segments_win_and_the_allow_list_is_whole() {
        let table = Table::new(vec![
            Route::new(Method::Get, "/a/:id", "", 1),
            Route::new(Method::Delete, "/a/:id", "", 2),
            Route::new(Method::Get, "/a/all", "", 3),
            Route::new(Method::Get, "/", "", 4),
        ]);
        assert_eq!(find(&table, &Method::Get, "/a/all").unwrap().0, 3);
        let (handler, params) = find(&table, &Method::Head, "/a/x y").unwrap();
        assert_eq!((handler, params.get("id")), (1, "x y"));
        assert_eq!(find(&table, &Method::Get, "/").unwrap().0, 4);
        assert_eq!(find(&table, &Method::Put, "/a/x").unwrap_err(), "DELETE, GET, HEAD, OPTIONS");
        for path in ["/a", "/a/", "/a/x/y", "/b"] {
            assert_eq!(find(&table, &Method::Get, path).unwrap_err(), "nothing", "{path}");
        }
    }
}
