//! `OpenAPI` 3.1, generated from the route table and from what the routes' owners say of their replies.

use super::shapes::Shapes;
use super::{Method, Table, problem::title};
use serde_json::{Map, Value, json};

/// The document for a table. `title` and `version` go to `info`.
pub fn document<H>(table: &Table<H>, name: &str, version: &str) -> Value {
    let mut paths = Map::new();
    for route in table.routes() {
        let mut parameters = Vec::new();
        for param in route.path.split('/').filter_map(|part| part.strip_prefix(':')) {
            parameters.push(json!({
                "name": param, "in": "path", "required": true, "schema": {"type": "string"}
            }));
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
            "responses": responses(route.replies),
        });
        let slot = paths.entry(address(route.path)).or_insert_with(|| json!({}));
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

/// The address of a path with `:name` parameters, as the document has it.
pub fn address(path: &str) -> String {
    let part = |part: &str| part.strip_prefix(':').map_or(format!("/{part}"), |name| format!("/{{{name}}}"));
    path.split('/').skip(1).map(part).collect()
}

/// Adds what is said of the replies: their schemas, the tags, and examples of bodies.
pub fn complete(document: &mut Value, shapes: &Shapes) {
    let tag = |(name, about): &(String, String)| json!({"name": name, "description": about});
    document["tags"] = shapes.tags.iter().map(tag).collect();
    for (name, schema) in &shapes.named {
        document["components"]["schemas"][name] = schema.clone();
    }
    for route in &shapes.routes {
        let operation = &mut document["paths"][address(&route.path)][route.method.to_ascii_lowercase()];
        operation["tags"] = json!([route.tag]);
        if let Some(example) = &route.example {
            let body = &mut operation["requestBody"];
            body["content"]["application/json"]["example"] = example.clone();
            body["required"] = body["content"]["application/json"]["schema"]["required"].is_array().into();
        }
        let responses = &mut operation["responses"];
        // The word for a route of which nothing else was said.
        let is_other = !route.replies.iter().any(|(status, ..)| *status == 200);
        if let Some(map) = responses.as_object_mut().filter(|_| is_other) {
            map.remove("200");
        }
        for (status, media, schema) in &route.replies {
            let response = &mut responses[status.to_string()];
            if response.is_null() {
                *response =
                    if *status < 400 { json!({"description": "success"}) } else { refusal("a refusal") };
            }
            if !media.is_empty() {
                let content = if schema.is_null() { json!({}) } else { json!({"schema": schema}) };
                if response["content"]["application/json"]["schema"] == json!({}) {
                    response["content"] = json!({});
                }
                response["content"][media] = content;
            }
        }
    }
}

fn operation_id(method: &Method, path: &str) -> String {
    let words: Vec<String> = path
        .split(['/', ':', '.', '-'])
        .filter(|word| !word.is_empty() && *word != "api")
        .map(str::to_ascii_lowercase)
        .collect();
    format!("{}_{}", method.to_string().to_ascii_lowercase(), words.join("_"))
}

fn responses(replies: &[(u16, &str)]) -> Value {
    let mut out = Map::new();
    let documented: &[(u16, &str)] = if replies.is_empty() { &[(200, "success")] } else { replies };
    for (status, meaning) in documented {
        let response = match status {
            204 | 304 => json!({"description": meaning}),
            400.. => refusal(meaning),
            _ => json!({"description": meaning, "content": {"application/json": {"schema": {}}}}),
        };
        out.insert(status.to_string(), response);
    }
    out.insert("default".into(), refusal("any refusal"));
    Value::Object(out)
}

fn refusal(meaning: &str) -> Value {
    json!({
        "description": meaning,
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    })
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "description": "what was refused; some kinds say more, in fields of their own",
        "additionalProperties": {},
        "required": ["error", "code", "status", "title", "detail"],
        "properties": {
            "error": {"type": "string", "description": "a sentence that names field, rule and remedy"},
            "code": {"type": "string", "description": "a stable snake_case word"},
            "status": {"type": ["integer", "string"], "description": "of the reply; of an approval that was \
                       decided before, the word of its own"},
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
