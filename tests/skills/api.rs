//! The built marketplace service over real sockets: each line of its specification that a client can see.

use crate::support::market::{ADMIN, KEY, Market};
use serde_json::{Value, json};

const SKILLS: &str = "/api/v1/skills";

fn new(name: &str) -> Value {
    json!({"name": name, "description": "Made for a test.", "category": "quality", "content": "# Text\n"})
}

fn at(id: &str, rest: &str) -> String {
    format!("{SKILLS}/{id}{rest}")
}

#[test]
fn resources_a_skill_has_every_field_and_no_content() {
    let market = Market::start(&[("SKILLS_BASE_URL", "https://market.example/")]);
    let skill = market.get(&at("code-review", "")).json();
    let expected = [
        ("id", json!("code-review")),
        ("name", json!("Code Review")),
        ("author", json!("Svc Skills")),
        ("category", json!("quality")),
        ("tags", json!(["review", "pr", "github", "quality"])),
        ("roles", json!(["testing", "fullstack"])),
        ("source", json!("vendor-official")),
        ("icon", json!("R")),
        ("contentUrl", json!("https://market.example/skills/content/code-review.md")),
        ("downloads", json!(2350)),
        ("rating", json!(4.9)),
        ("ratingCount", json!(201)),
        ("price", json!(0)),
        ("featured", json!(true)),
        ("verified", json!(true)),
        ("verification", json!("vendor")),
        ("status", json!("published")),
    ];
    for (field, value) in expected {
        assert_eq!(skill[field], value, "{field}");
    }
    for field in ["description", "authorId", "version", "createdAt", "updatedAt"] {
        assert!(skill[field].is_string(), "{field}");
    }
    assert!(skill["authorProfile"].is_object() && skill.get("content").is_none());
    assert!(skill["updatedAt"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn endpoints_list_filters_sorts_counts_and_pages() {
    let market = Market::start(&[]);
    let list = |query: &str| market.get(&format!("{SKILLS}{query}"));
    let all = list("").json();
    assert_eq!((all["total"].as_u64(), all["skills"].as_array().unwrap().len()), (Some(21), 21));
    assert_eq!(all["skills"][0]["id"], "code-review", "most popular first");
    let counts: Vec<(String, u64)> = all["categories"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| (part["id"].as_str().unwrap().to_owned(), part["count"].as_u64().unwrap()))
        .collect();
    let expected = [
        ("design", 2),
        ("quality", 3),
        ("devtools", 10),
        ("workflow", 4),
        ("security", 1),
        ("specialized", 1),
    ];
    assert_eq!(counts, expected.map(|(id, n)| (id.to_owned(), n)));
    let page = list("?category=devtools&limit=4&offset=4");
    let body = page.json();
    assert_eq!((body["total"].as_u64(), body["skills"].as_array().unwrap().len()), (Some(10), 4));
    assert_eq!(body["categories"][0]["count"], 2, "counts ignore the category filter");
    let link = page.header("link").unwrap();
    for rel in ["first", "prev", "next", "last"] {
        assert!(link.contains(&format!("rel=\"{rel}\"")), "{link}");
    }
    assert_eq!(list("?offset=500").json()["skills"], json!([]));
    assert_eq!(list("?search=OWASP").json()["total"], 1);
    assert_eq!(list("?sort=name&limit=1").json()["skills"][0]["id"], "agent-development");
    assert_eq!(list("?author=svc-skills").json()["total"], 21);
    assert_eq!(list("?author=nobody").json()["total"], 0);
    assert_eq!(list("?status=draft").json()["total"], 0);
    for bad in
        ["?limit=0", "?limit=x", "?sort=best", "?category=x", "?status=x", "?limit=1&limit=2", "?offset=-1"]
    {
        let answer = list(bad);
        assert_eq!(answer.status, 400, "{bad}");
        assert!(answer.json()["errors"][0]["field"].is_string());
    }
    assert_eq!(list("?status=all").status, 401);
    market.write("POST", SKILLS, &new("A Draft"));
    let keyed = market.write("GET", &format!("{SKILLS}?status=all"), &Value::Null);
    assert_eq!(
        (keyed.json()["total"].as_u64(), keyed.header("cache-control")),
        (Some(22), Some("private, no-store"))
    );
    assert_eq!(list("?status=draft").json()["total"], 1);
}

#[test]
fn endpoints_create_sets_what_the_server_sets() {
    let market = Market::start(&[]);
    let mut body = new("Crème Brûlée!");
    for (field, value) in [
        ("downloads", json!(99)),
        ("rating", json!(5)),
        ("id", json!("mine")),
        ("source", json!("vendor-official")),
        ("verified", json!(true)),
        ("unknown", json!(1)),
    ] {
        body[field] = value;
    }
    let made = market.write("POST", SKILLS, &body);
    assert_eq!((made.status, made.header("location")), (201, Some("/api/v1/skills/creme-brulee")));
    assert_eq!(made.header("x-ignored-fields"), Some("id, source, downloads, rating, verified"));
    let skill = made.json();
    for (field, value) in [
        ("id", json!("creme-brulee")),
        ("source", json!("community")),
        ("status", json!("draft")),
        ("downloads", json!(0)),
        ("rating", json!(0)),
        ("ratingCount", json!(0)),
        ("author", json!("Community")),
        ("icon", json!("C")),
        ("version", json!("1.0.0")),
        ("price", json!(0)),
        ("verified", json!(false)),
    ] {
        assert_eq!(skill[field], value, "{field}");
    }
    assert!(skill.get("content").is_none());
    let second = market.write("POST", SKILLS, &new("creme brulee")).json();
    assert_eq!(second["id"], "creme-brulee-2");
    assert_eq!(market.get(&at("creme-brulee", "")).json(), skill, "visible to the next request");
}

#[test]
fn decisions_1_refusals_of_bodies() {
    let market = Market::start(&[]);
    let key = format!("Authorization: Bearer {KEY}");
    let post = |headers: &[&str], body: &str| {
        let answer = market.send("POST", SKILLS, headers, body);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{}", answer.head);
        (answer.status, answer.json()["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(post(&[&key], "{"), (400, "malformed_json".into()));
    assert_eq!(post(&[&key], "[]"), (400, "not_an_object".into()));
    assert_eq!(post(&[&key, "Content-Type: text/plain"], "{}"), (415, "unsupported_media_type".into()));
    assert_eq!(post(&[&key], "{}").0, 400);
    assert_eq!(post(&[], "{}"), (401, "key_required".into()));
    assert_eq!(post(&["Authorization: Bearer x"], "{"), (401, "invalid_token".into()));
    assert_eq!(post(&[&key], &"x".repeat(513 << 10)).0, 413);
    assert_eq!(post(&[], &"x".repeat(513 << 10)).0, 401, "the key is looked at before the body");
    let answer = market.send("POST", SKILLS, &[&key], r#"{"name":"ab","price":-1,"tags":[1]}"#);
    let fields: Vec<Value> =
        answer.json()["errors"].as_array().unwrap().iter().map(|e| e["field"].clone()).collect();
    for field in ["name", "price", "tags", "description", "category"] {
        assert!(fields.contains(&json!(field)), "{field} in {fields:?}");
    }
    let unknown = market.send("PUT", &at("nobody", ""), &[], "{}");
    assert_eq!(unknown.status, 401, "the key is looked at before existence");
    assert_eq!(unknown.header("www-authenticate"), Some("Bearer realm=\"skills\""));
    assert_eq!(market.write("PUT", &at("nobody", ""), &json!({})).status, 404);
    let wrong = market.send("PATCH", &at("code-review", ""), &[], "");
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("DELETE, GET, HEAD, OPTIONS, PUT")));
    let file = market.write("PUT", "/api/v1/skills/registry.json", &json!({}));
    assert_eq!(
        (file.status, file.header("allow")),
        (405, Some("GET, HEAD, OPTIONS")),
        "no skill of that name"
    );
    assert_eq!(market.get("/api/v1/nothing").status, 404);
}

#[test]
fn transitions_and_visibility_over_the_api() {
    let market = Market::start(&[]);
    let mut body = new("Paid Skill");
    body["price"] = json!(4.99);
    body["content"] = json!("");
    let id = market.write("POST", SKILLS, &body).json()["id"].as_str().unwrap().to_owned();
    let publish = || market.write("POST", &at(&id, "/publish"), &Value::Null);
    let content = || market.get(&at(&id, "/content")).status;
    let admin = format!("Authorization: Bearer {ADMIN}");
    let review = |decision: &str| {
        let body = json!({"decision": decision, "note": "a note"}).to_string();
        market.send("POST", &at(&id, "/review"), &[&admin], &body)
    };
    assert_eq!(publish().json()["code"], "content_required");
    market.write("PUT", &at(&id, ""), &json!({"content": "# Paid\n"}));
    assert_eq!(review("approve").status, 409);
    assert_eq!(publish().json()["status"], "review");
    assert_eq!((content(), market.get(&at(&id, "")).status), (404, 200));
    assert_eq!(market.write("GET", &at(&id, "/content"), &Value::Null).json()["content"], "# Paid\n");
    let shared = market.write("POST", &at(&id, "/review"), &json!({"decision": "approve"}));
    assert_eq!(shared.status, 401, "the shared key does not decide");
    assert_eq!(review("maybe").status, 400);
    assert_eq!(review("reject").json()["status"], "rejected");
    market.write("DELETE", &at(&id, ""), &Value::Null);
    market.write("PUT", &at(&id, ""), &json!({"price": 0}));
    assert_eq!(publish().json()["status"], "review", "rejected, deleted and made free: reviewed again");
    market.write("PUT", &at(&id, ""), &json!({"price": 4.99}));
    assert_eq!(review("approve").json()["status"], "published");
    assert_eq!(content(), 200);
    let edited = market.write("PUT", &at(&id, ""), &json!({"content": "# Changed\n"})).json();
    assert_eq!(edited["status"], "review", "content of a paid skill is looked at again");
    review("approve");
    for _ in 0..2 {
        let deleted = market.write("DELETE", &at(&id, ""), &Value::Null);
        assert_eq!((deleted.status, deleted.json()["status"].clone()), (200, json!("unlisted")));
    }
    assert_eq!(content(), 410);
    for path in ["/rate", "/install"] {
        assert_eq!(market.send("POST", &at(&id, path), &[], r#"{"rating":5}"#).status, 410);
    }
    assert_eq!(market.get(&format!("/skills/content/{id}.md")).status, 410);
    assert_eq!(market.get(&at(&id, "")).json()["status"], "unlisted", "never deleted");
}

#[test]
fn decisions_2_the_vendors_skills_cannot_be_edited_but_unlisted_and_published() {
    let market = Market::start(&[]);
    assert_eq!(market.write("PUT", &at("hookify", ""), &json!({"name": "Mine now"})).status, 403);
    assert_eq!(market.write("DELETE", &at("hookify", ""), &Value::Null).json()["status"], "unlisted");
    assert_eq!(market.get(SKILLS).json()["total"], 20);
    let back = market.write("POST", &at("hookify", "/publish"), &Value::Null);
    assert_eq!(back.json()["status"], "published");
    let mut body = new("Impostor");
    body["author"] = json!("SVC  skills");
    assert_eq!(market.write("POST", SKILLS, &body).status, 400, "the vendor's name is reserved");
}

#[test]
fn decisions_2_put_is_partial_and_moves_updated_at_with_content_only() {
    let market = Market::start(&[]);
    let before = market.write("POST", SKILLS, &new("Partial")).json();
    let put = |body: Value| {
        let answer = market.write("PUT", &at("partial", ""), &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    };
    assert_eq!(put(json!({})), before, "an empty object changes nothing");
    let renamed = put(json!({"name": "Renamed", "tags": ["one"], "id": "x"}));
    assert_eq!((&renamed["id"], &renamed["updatedAt"]), (&json!("partial"), &before["updatedAt"]));
    let changed = put(json!({"content": "# Changed\n"}));
    assert!(changed["updatedAt"].as_str() > before["updatedAt"].as_str());
    assert_eq!(changed["createdAt"], before["createdAt"]);
    assert_eq!(put(json!({"content": "# Changed\n"})), changed, "the same bytes move nothing");
    let profile = put(json!({"author": "Ada", "authorProfile": {"github": "ada"}}));
    assert_eq!((&profile["author"], &profile["authorId"]), (&json!("Ada"), &json!("gh-ada")));
}

#[test]
fn must_show_two_raters_give_the_weighted_mean_and_a_repeat_replaces() {
    let market = Market::start(&[]);
    let id = market.publish("Rated");
    let rate = |id: &str, ip: &str, rating: Value| {
        let from = format!("X-Forwarded-For: {ip}");
        market.send("POST", &at(id, "/rate"), &[&from], &json!({"rating": rating}).to_string())
    };
    let first = rate(&id, "198.51.100.1", json!(5));
    assert_eq!(first.json(), json!({"id": id, "rating": 5, "rating_count": 1}));
    assert_eq!(rate(&id, "198.51.100.2", json!(2)).json()["rating"], 3.5);
    let repeat = rate(&id, "198.51.100.1", json!(1)).json();
    assert_eq!((&repeat["rating"], &repeat["rating_count"]), (&json!(1.5), &json!(2)));
    let skill = market.get(&at(&id, "")).json();
    assert_eq!((&skill["rating"], &skill["ratingCount"]), (&json!(1.5), &json!(2)));
    let seeded = rate("frontend-design", "198.51.100.1", json!(1)).json();
    assert_eq!((&seeded["rating"], &seeded["rating_count"]), (&json!(4.77), &json!(125)));
    assert_eq!(rate(&id, "198.51.100.9", json!(4.0)).json()["rating_count"], 3, "an integer in JSON Schema");
    for bad in [json!(0), json!(6), json!(2.5), json!(5.5), json!("5"), json!(null), json!(true), json!(1e99)]
    {
        assert_eq!(rate(&id, "198.51.100.3", bad.clone()).status, 400, "{bad}");
    }
    assert_eq!(market.send("POST", &at(&id, "/rate"), &[], "").status, 400);
    assert_eq!(rate("nobody", "198.51.100.1", json!(5)).status, 404);
}

#[test]
fn must_show_installs_count_once_per_client_and_hour() {
    let market = Market::start(&[]);
    let id = market.publish("Installed");
    let install =
        |ip: &str| market.send("POST", &at(&id, "/install"), &[&format!("X-Forwarded-For: {ip}")], "").json();
    assert_eq!(install("198.51.100.1"), json!({"downloads": 1, "counted": true}));
    assert_eq!(install("198.51.100.1"), json!({"downloads": 1, "counted": false}));
    assert_eq!(install("2001:db8::1"), json!({"downloads": 2, "counted": true}));
    assert_eq!(install("2001:db8::2"), json!({"downloads": 2, "counted": false}), "one /64");
    assert_eq!(install("::ffff:198.51.100.1"), json!({"downloads": 2, "counted": false}), "mapped");
    let after = market.get(&at(&id, "/content")).json();
    assert_eq!(after, json!({"id": id, "content": "# Text\n"}), "install, then content");
}

#[test]
fn must_show_the_61st_public_request_in_60_s_is_429() {
    let market = Market::start(&[("SKILLS_PUBLIC_RPM", "")]);
    let paths =
        [SKILLS, "/skills/registry.json", "/api/v1/skills/hookify/content", "/api/v1/authors/svc-skills"];
    for n in 0..60 {
        let answer = market.get(paths[n % paths.len()]);
        assert_eq!(answer.status, 200, "request {n}");
        assert!(answer.header("ratelimit").unwrap().starts_with(&format!("\"public\";r={};", 59 - n)));
        assert_eq!(answer.header("ratelimit-policy"), Some("\"public\";q=60;w=60"));
    }
    for (method, path) in [("GET", SKILLS), ("POST", "/api/v1/skills/hookify/install"), ("POST", SKILLS)] {
        let refused = market.send(method, path, &[], "");
        assert_eq!(refused.status, 429, "{method} {path}");
        let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds));
        assert_eq!(refused.json()["code"], "rate_limited");
    }
    assert_eq!(market.write("POST", SKILLS, &new("Free")).status, 201, "a write with the key is free");
    assert_eq!(market.send("OPTIONS", SKILLS, &[], "").status, 204);
    assert_eq!(market.get("/healthz").status, 200);
    let other = market.send("GET", SKILLS, &["X-Forwarded-For: 203.0.113.7"], "");
    assert_eq!(other.status, 200, "behind the trusted proxy another address counts apart");
}

#[test]
fn must_show_forwarding_of_an_untrusted_peer_is_ignored() {
    let market = Market::start(&[("SKILLS_PUBLIC_RPM", "5"), ("SKILLS_TRUSTED_PROXIES", "10.0.0.0/8")]);
    let from = |n: u32| market.send("GET", SKILLS, &[&format!("X-Forwarded-For: 203.0.113.{n}")], "").status;
    let statuses: Vec<u16> = (0..7).map(from).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
}

#[test]
fn decisions_1_keys_can_be_rotated_and_an_unset_one_refuses_all() {
    let market = Market::start(&[("SKILLS_API_KEY", "new"), ("SKILLS_API_KEY_PREVIOUS", "old")]);
    let write = |market: &Market, key: &str| {
        let header = format!("Authorization: Bearer {key}");
        market.send("POST", SKILLS, &[&header], &new("Keys").to_string()).status
    };
    assert_eq!((write(&market, "new"), write(&market, "old"), write(&market, "other")), (201, 201, 401));
    let closed = Market::start(&[("SKILLS_API_KEY", "")]);
    assert_eq!((write(&closed, ""), write(&closed, KEY)), (401, 401));
    assert!(closed.log().contains("SKILLS_API_KEY"), "it warns");
    assert_eq!(closed.get(SKILLS).status, 200);
}

#[test]
fn decisions_1_cors_reflects_localhost_and_listed_sites() {
    let market = Market::start(&[("SKILLS_SITE_ORIGINS", "https://market.example")]);
    let allowed = |method: &str, origin: &str| {
        let answer = market.send(method, SKILLS, &[&format!("Origin: {origin}")], "");
        assert_eq!(answer.header("vary"), Some("Origin"));
        (answer.status, answer.header("access-control-allow-origin").map(str::to_owned))
    };
    for good in
        ["http://localhost:5173", "https://127.0.0.1:1", "http://[::1]:3000", "https://market.example"]
    {
        assert_eq!(allowed("GET", good), (200, Some(good.into())));
        assert_eq!(allowed("OPTIONS", good), (204, Some(good.into())));
    }
    for bad in ["https://evil.example", "null", "http://localhost.evil.example", "http://market.example"] {
        assert_eq!(allowed("GET", bad), (200, None), "{bad}");
    }
    let read = market.send("GET", SKILLS, &["Origin: http://localhost:1"], "");
    let exposed = read.header("access-control-expose-headers").unwrap();
    assert!(exposed.contains("X-Content-Warnings") && exposed.contains("X-Ignored-Fields"), "{exposed}");
    let preflight = market.send("OPTIONS", SKILLS, &["Origin: http://localhost:1"], "");
    assert!(preflight.header("access-control-allow-methods").unwrap().contains("PUT"));
    assert!(preflight.header("access-control-allow-headers").unwrap().contains("Authorization"));
}

#[test]
fn decisions_3_content_urls_are_where_the_request_found_the_service() {
    let market = Market::start(&[]);
    let ask = |path: &str, headers: &[&str]| {
        let head = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{}\r\n\r\n", headers.join("\r\n"));
        market.raw(head.as_bytes()).unwrap()
    };
    let own = format!("http://{}", market.address);
    let host = "Host: skills.example:8080";
    for (headers, base) in [
        (&[host][..], "http://skills.example:8080"),
        (&[host, "X-Forwarded-Proto: https"], "https://skills.example:8080"),
        (&[host, "X-Forwarded-Proto: https", "X-Forwarded-Host: a.example, b.example"], "https://b.example"),
        (&["Host: [2001:db8::1]:80"], "http://[2001:db8::1]:80"),
        (&["Host: a\"onload=b"], own.as_str()),
        (&["Host: a.example/evil"], own.as_str()),
        (&[host, "X-Forwarded-Host: <b>"], "http://skills.example:8080"),
    ] {
        let url = |id: &str| format!("{base}/skills/content/{id}.md");
        assert_eq!(ask(&at("hookify", ""), headers).json()["contentUrl"], url("hookify"), "{headers:?}");
        let list = ask("/api/v1/skills?sort=name", headers).json();
        let registry = ask("/skills/registry.json", headers).json();
        let author = ask("/api/v1/authors/svc-skills", headers).json();
        for skill in [&list["skills"][0], &list["skills"][20], &registry[20], &author["skills"][20]] {
            assert_eq!(skill["contentUrl"], url(skill["id"].as_str().unwrap()), "{headers:?}");
        }
        let page = ask("/s/hookify", headers).text;
        assert!(page.contains(&format!("npx skills add {base}/s/hookify<")), "{headers:?}");
        assert!(ask("/", headers).text.contains(&format!("npx skills add {base}<")), "{headers:?}");
    }
    let tags = ["Host: a.example", "Host: b.example"].map(|host| ask(SKILLS, &[host]));
    let [a, b] = tags.map(|answer| answer.header("etag").unwrap().to_owned());
    assert_ne!(a, b, "each address has a tag of its own");
    assert_eq!(ask(SKILLS, &["Host: a.example", &format!("If-None-Match: {a}")]).status, 304);
    assert_eq!(ask(SKILLS, &["Host: b.example", &format!("If-None-Match: {a}")]).status, 200);
    let untrusting = Market::start(&[("SKILLS_TRUSTED_PROXIES", "10.0.0.0/8")]);
    let forged = untrusting.send("GET", &at("hookify", ""), &["X-Forwarded-Host: evil.example"], "").json();
    assert_eq!(forged["contentUrl"], "http://market/skills/content/hookify.md");
    let fixed = Market::start(&[("SKILLS_BASE_URL", "https://fixed.example/x")]);
    let skill = fixed.send("GET", &at("hookify", ""), &["X-Forwarded-Host: evil.example"], "").json();
    assert_eq!(skill["contentUrl"], "https://fixed.example/x/skills/content/hookify.md");
}

#[test]
fn decisions_3_every_get_has_a_tag_and_head_works() {
    let market = Market::start(&[]);
    for path in [
        SKILLS,
        "/api/v1/skills?search=review",
        "/api/v1/skills/hookify",
        "/api/v1/skills/hookify/content",
        "/api/v1/skills/registry.json",
        "/api/v1/authors/svc-skills",
        "/api/v1/openapi.json",
        "/skills/registry.json",
        "/skills/content/hookify.md",
        "/.well-known/agent-skills/index.json",
        "/.well-known/agent-skills/hookify/SKILL.md",
        "/",
        "/s/hookify",
        "/market.css",
    ] {
        let answer = market.get(path);
        let tag = answer.header("etag").unwrap_or_else(|| panic!("{path} has no tag")).to_owned();
        assert_eq!(answer.header("cache-control"), Some("public, max-age=0, must-revalidate"), "{path}");
        for known in [tag.clone(), format!("\"x\", W/{tag}"), "*".into()] {
            let again = market.send("GET", path, &[&format!("If-None-Match: {known}")], "");
            assert_eq!((again.status, again.text.as_str()), (304, ""), "{path} {known}");
            assert_eq!(again.header("etag"), Some(tag.as_str()));
        }
        assert_eq!(market.send("GET", path, &["If-None-Match: \"x\""], "").status, 200);
        let head = market.send("HEAD", path, &[], "");
        assert_eq!((head.status, head.text.as_str()), (200, ""), "{path}");
        assert_eq!(head.header("content-length"), answer.header("content-length"), "{path}");
    }
    let tag = market.get(SKILLS).header("etag").unwrap().to_owned();
    market.send("POST", "/api/v1/skills/hookify/install", &[], "");
    assert_ne!(market.get(SKILLS).header("etag"), Some(tag.as_str()), "a write's effect is visible");
}

#[test]
fn endpoints_authors_with_their_published_skills() {
    let market = Market::start(&[]);
    let vendor = market.get("/api/v1/authors/svc-skills").json();
    assert_eq!((&vendor["skillCount"], vendor["skills"].as_array().unwrap().len()), (&json!(21), 21));
    assert_eq!(market.get("/api/v1/authors/nobody").status, 404);
    let mut body = new("By Ada");
    body["author"] = json!("Ada");
    body["authorProfile"] = json!({"github": "ada", "website": "https://a.example", "twitter": "ada_l"});
    market.write("POST", SKILLS, &body);
    let author = market.get("/api/v1/authors/gh-ada").json();
    assert_eq!((&author["skills"], &author["skillCount"]), (&json!([]), &json!(0)), "only a draft yet");
    for (field, value) in
        [("displayName", "Ada"), ("github", "ada"), ("website", "https://a.example"), ("twitter", "ada_l")]
    {
        assert_eq!(author[field], value);
    }
    let put = |path: &str, body: Value| market.write("PUT", path, &body);
    let edited = put("/api/v1/authors/gh-ada", json!({"bio": "Counts.", "portfolio": "https://p.example"}));
    assert_eq!((edited.status, edited.json()["bio"].clone()), (200, json!("Counts.")));
    assert_eq!(market.get(&at("by-ada", "")).json()["authorProfile"]["bio"], "Counts.");
    assert_eq!(put("/api/v1/authors/gh-ada", json!({"website": "x"})).status, 400);
    assert_eq!(put("/api/v1/authors/nobody", json!({})).status, 404);
    assert_eq!(put("/api/v1/authors/svc-skills", json!({})).status, 403);
    assert_eq!(market.send("PUT", "/api/v1/authors/gh-ada", &[], "{}").status, 401);
}
