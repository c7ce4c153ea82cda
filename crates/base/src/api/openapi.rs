//! `OpenAPI` 3.1, generated from the route table, so that it cannot say anything else.

use super::{Method, Table, problem::title};
use serde_json::{Map, Value, json};

/// The document for a table. `title` and `version` go to `info`.
pub fn document<H>(table: &Table<H>, name: &str, version: &str) -> Value {
    let mut paths = Map::new();
    for route in table.routes() {
        let mut path = String::new();
        let mut parameters = Vec::new();
        for part in route.path.trim_start_matches('/').split('/') {
            path.push('/');
            if let Some(param) = part.strip_prefix(':') {
                path.extend(["{", param, "}"]);
                parameters.push(json!({
                    "name": param, "in": "path", "required": true, "schema": {"type": "string"}
                }));
            } else {
                path.push_str(part);
            }
        }
        for (param, meaning) in route.query {
            parameters.push(json!({
                "name": param, "in": "query", "description": meaning, "schema": {"type": "string"}
            }));
        }
        let operation = json!({
            "summary": route.summary,
            "operationId": operation_id(&route.method, route.path),
            "parameters": parameters,
            "responses": responses(route.replies, route.success),
        });
        let slot = paths.entry(path).or_insert_with(|| json!({}));
        let method = route.method.to_string().to_ascii_lowercase();
        slot[&method] = operation;
        if let Some(schema) = route.body {
            slot[&method]["requestBody"] = json!({
                "content": {"application/json": {"schema": schema()}}
            });
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": name, "version": version},
        "paths": paths,
        "components": {"schemas": {"Problem": problem_schema()}},
    })
}

fn operation_id(method: &Method, path: &str) -> String {
    let words: Vec<String> = path
        .split(['/', ':', '.', '-'])
        .filter(|word| !word.is_empty() && *word != "api")
        .map(str::to_ascii_lowercase)
        .collect();
    format!("{}_{}", method.to_string().to_ascii_lowercase(), words.join("_"))
}

fn responses(replies: &[(u16, &str)], success: Option<fn() -> Value>) -> Value {
    let mut out = Map::new();
    let documented: &[(u16, &str)] = if replies.is_empty() { &[(200, "success")] } else { replies };
    for (status, meaning) in documented {
        let content = match status {
            204 | 304 => json!({}),
            400.. => {
                json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}})
            }
            _ => {
                json!({"application/json": {"schema": success.map_or_else(|| json!({}), |schema| schema())}})
            }
        };
        let mut response = json!({"description": meaning});
        if content.as_object().is_some_and(|map| !map.is_empty()) {
            response["content"] = content;
        }
        out.insert(status.to_string(), response);
    }
    out.insert(
        "default".into(),
        json!({
            "description": "any refusal",
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }),
    );
    Value::Object(out)
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error", "code", "status", "title", "detail"],
        "properties": {
            "error": {"type": "string", "description": "a sentence that names field, rule and remedy"},
            "code": {"type": "string", "description": "a stable snake_case word"},
            "status": {"type": "integer"},
            "title": {"type": "string", "examples": [title(400)]},
            "detail": {"type": "string"},
            "errors": {"type": "array", "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            }},
        },
    })
}
