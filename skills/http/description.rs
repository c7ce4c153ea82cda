//! The `OpenAPI` document: generated from the route table, with the types of queries, bodies and answers.

use super::routes::Handler;
use crate::authoring;
use crate::catalogue::query::{SEARCH_CHARS, Sort};
use crate::keys::Access;
use crate::model::{Category, Source, Status, Verification};
use serde_json::{Value, json};
use svc_base::api::{Table, openapi};

/// Everything but NUL, which no request can carry.
const NO_NUL: &str = "^[^\\u0000]*$";

/// The document of a table.
pub fn of(table: &Table<Handler>) -> Value {
    let mut document = openapi::document(table, "svc-skills", env!("CARGO_PKG_VERSION"));
    document["info"]["description"] =
        json!("A marketplace of skills: markdown instructions for coding agents.");
    document["components"]["securitySchemes"] = json!({
        "sharedKey": {"type": "http", "scheme": "bearer", "description": "the key of SKILLS_API_KEY"},
        "adminKey": {"type": "http", "scheme": "bearer", "description": "the key of SKILLS_ADMIN_KEY"},
    });
    for (name, schema) in schemas() {
        document["components"]["schemas"][name] = schema;
    }
    for route in table.routes() {
        let path: String = route
            .path
            .split('/')
            .skip(1)
            .map(|part| part.strip_prefix(':').map_or(format!("/{part}"), |name| format!("/{{{name}}}")))
            .collect();
        let method = route.method.to_string().to_ascii_lowercase();
        let operation = &mut document["paths"][path.as_str()][method.as_str()];
        complete(operation, route.path, route.handler);
    }
    document
}

fn complete(operation: &mut Value, path: &str, handler: Handler) {
    match handler.access() {
        Access::Public => {}
        Access::Writer => operation["security"] = json!([{"sharedKey": []}]),
        Access::Admin => operation["security"] = json!([{"adminKey": []}]),
    }
    if needs_body(path, handler) {
        operation["requestBody"]["required"] = json!(true);
    }
    if let Some(parameters) = operation["parameters"].as_array_mut() {
        for parameter in parameters.iter_mut().filter(|parameter| parameter["in"] == "query") {
            parameter["schema"] = query_schema(parameter["name"].as_str().unwrap_or_default());
            // An empty value counts as absent.
            parameter["allowEmptyValue"] = json!(true);
        }
    }
    let content = success(path, matches!(handler, Handler::Get(_)));
    let responses = &mut operation["responses"];
    for status in ["200", "201"] {
        if let Some(response) = responses.get_mut(status) {
            response["content"] = content.clone();
        }
    }
    responses["429"] = refusal("too many requests; Retry-After says when to try again");
    if path == "/" || path == "/s/:id" {
        for status in ["404", "410", "429", "default"] {
            if let Some(response) = responses.get_mut(status) {
                response["content"]["text/html"] = json!({});
            }
        }
    }
    if matches!(handler, Handler::Get(_)) {
        responses["304"] = json!({"description": "the client has this version"});
    } else {
        responses["415"] = refusal("the body is not JSON");
        responses["413"] = refusal("the body is above 512 KiB");
        responses["503"] = refusal("the storage takes no more at the moment");
    }
}

/// An edit without a body changes nothing; the others are refused without one.
fn needs_body(path: &str, handler: Handler) -> bool {
    let creates = path == "/api/v1/skills" && !matches!(handler, Handler::Get(_));
    creates || path.ends_with("/rate") || path.ends_with("/review")
}

fn refusal(meaning: &str) -> Value {
    json!({
        "description": meaning,
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    })
}

/// What a success carries.
fn success(path: &str, reads: bool) -> Value {
    let named = |name: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    match path {
        "/api/v1/skills" if reads => named("SkillList"),
        "/api/v1/skills/registry.json" | "/skills/registry.json" => named("Registry"),
        "/api/v1/skills/:id/content" => named("Content"),
        "/api/v1/skills/:id/rate" => named("Rated"),
        "/api/v1/skills/:id/install" => named("Installed"),
        "/api/v1/authors/:id" => named("Author"),
        _ if path.starts_with("/api/v1/skills") => named("Skill"),
        _ if path.ends_with("/SKILL.md") || path.ends_with("/:file") => json!({"text/markdown": {}}),
        "/metrics" => json!({"text/plain": {}}),
        "/market.css" => json!({"text/css": {}}),
        "/" | "/s/:id" => json!({"text/html": {}}),
        _ => json!({"application/json": {"schema": {"type": "object"}}}),
    }
}

fn query_schema(name: &str) -> Value {
    let mut statuses = Status::WORDS.to_vec();
    statuses.push("all");
    match name {
        "limit" => json!({"type": "integer", "minimum": 1, "default": 50}),
        "offset" => json!({"type": "integer", "minimum": 0, "default": 0}),
        "category" => json!({"type": "string", "enum": Category::WORDS}),
        "sort" => json!({"type": "string", "enum": Sort::WORDS, "default": "popular"}),
        "status" => json!({"type": "string", "enum": statuses, "default": "published"}),
        "search" | "q" => json!({"type": "string", "maxLength": SEARCH_CHARS, "pattern": NO_NUL}),
        _ => json!({"type": "string", "pattern": NO_NUL}),
    }
}

fn schemas() -> [(&'static str, Value); 7] {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let count = json!({"type": "integer", "minimum": 0});
    let text = json!({"type": "string"});
    [
        ("Skill", skill()),
        ("Registry", json!({"type": "array", "items": reference("Skill")})),
        (
            "SkillList",
            object(&json!({
                "skills": {"type": "array", "items": reference("Skill")},
                "total": count,
                "categories": {"type": "array", "minItems": 6, "maxItems": 6, "items": object(&json!({
                    "id": {"type": "string", "enum": Category::WORDS}, "count": count,
                }))},
            })),
        ),
        ("Content", object(&json!({"id": text, "content": text}))),
        (
            "Rated",
            object(&json!({
                "id": text, "rating": {"type": "number", "minimum": 0, "maximum": 5}, "rating_count": count,
            })),
        ),
        ("Installed", object(&json!({"downloads": count, "counted": {"type": "boolean"}}))),
        (
            "Author",
            object(&json!({
                "id": text, "githubId": text, "username": text, "displayName": text, "avatar": text,
                "bio": text, "website": text, "github": text, "twitter": text, "portfolio": text,
                "createdAt": {"type": "string", "format": "date-time"}, "skillCount": count,
                "totalDownloads": count, "skills": {"type": "array", "items": reference("Skill")},
            })),
        ),
    ]
}

fn skill() -> Value {
    let text = json!({"type": "string"});
    let time = json!({"type": "string", "format": "date-time"});
    let list = json!({"type": "array", "items": text});
    object(&json!({
        "id": text, "name": text, "description": text, "author": text, "authorId": text,
        "authorProfile": {"type": "object", "additionalProperties": text},
        "category": {"type": "string", "enum": Category::WORDS},
        "tags": list, "roles": list,
        "source": {"type": "string", "enum": Source::WORDS},
        "icon": text, "contentUrl": text,
        "downloads": {"type": "integer", "minimum": 0},
        "rating": {"type": "number", "minimum": 0, "maximum": 5},
        "ratingCount": {"type": "integer", "minimum": 0},
        "price": {"type": "number", "minimum": 0, "maximum": 99.99},
        "featured": {"type": "boolean"}, "verified": {"type": "boolean"},
        "verification": {"type": "string", "enum": Verification::WORDS},
        "status": {"type": "string", "enum": Status::WORDS},
        "version": {"type": "string", "maxLength": authoring::text::VERSION_CHARS},
        "createdAt": time, "updatedAt": time,
    }))
}

/// An object all of whose properties are there.
fn object(properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().map(|map| map.keys().collect()).unwrap_or_default();
    json!({"type": "object", "required": required, "properties": properties})
}
