//! What replies look like, in a notation short enough to be read beside the code: `OpenAPI` and `AsyncAPI`
//! are made of it.
//!
//! A statement begins at the margin and goes on in indented lines. `#` begins a comment.
//!
//! ```text
//! % agents: what the routes below have to do with               a tag
//! Tokens = {input: int, output: int} eg {"input": 3, "output": 4}     a shape with a name and an example
//! POST /api/agents < {"role": "backend"} -> 201 Agent & {overlaps: [Overlap]}, 202 Approval
//! ~ agent:exit {agentId: Id, code: int|null}                    a message to WebSocket clients
//! ```
//!
//! A shape is `str`, `int`, `num`, `bool`, `null`, `any`, `time`, a word in quotes, a name, a list `[SHAPE]`,
//! an object `{NAME: SHAPE, NAME?: SHAPE}`, a map `{*: SHAPE}`, or several of them: `A|B` is either, `A & B`
//! is both at once. A reply is a status (200 where none is given) with a shape, with a media type, or with
//! nothing.

use serde_json::{Map, Value, json};

/// A route's example of a body, and its replies: status, media type and schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Answers {
    pub method: String,
    /// With `:name` parameters, as in the route table.
    pub path: String,
    /// The tag it stands below.
    pub tag: String,
    /// A body that it takes.
    pub example: Option<Value>,
    /// Status, media type (empty for no body), schema (`null` for what is no JSON).
    pub replies: Vec<(u16, String, Value)>,
}

/// All that a text in this notation says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shapes {
    /// Tags with their descriptions, in the order of the text.
    pub tags: Vec<(String, String)>,
    /// Named shapes as JSON schemas.
    pub named: Vec<(String, Value)>,
    pub routes: Vec<Answers>,
    /// Messages to WebSocket clients: their `type`, and the schema of the rest.
    pub messages: Vec<(String, Value)>,
}

/// Where the schemas of names stand in a document.
const NAMED: &str = "#/components/schemas/";

impl Shapes {
    /// Reads a text in this notation; the statements that cannot be read are errors with what is wrong.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut shapes = Self::default();
        let mut statement = String::new();
        for line in text.lines().chain(["end"]).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if !line.starts_with(' ') && !statement.is_empty() {
                shapes.take(&statement).map_err(|wrong| format!("{wrong} in {statement:?}"))?;
                statement.clear();
            }
            statement.push_str(line);
        }
        Ok(shapes)
    }

    fn take(&mut self, statement: &str) -> Result<(), String> {
        let mut reader = Reader { left: statement };
        if reader.eat("%") {
            let (tag, about) = reader.left.split_once(": ").ok_or("a tag has a description")?;
            self.tags.push((tag.trim().to_owned(), about.to_owned()));
        } else if reader.eat("~") {
            let (kind, _) = reader.left.trim().split_once(' ').ok_or("a message has a shape")?;
            reader.eat(kind);
            self.messages.push((kind.to_owned(), reader.shape()?));
        } else if let Some((method, rest)) = statement.split_once(" /") {
            let path = format!("/{}", rest.split(' ').next().unwrap_or_default());
            reader.left = &statement[method.len() + 1 + path.len()..];
            let example = if reader.eat("<") { Some(reader.json()?) } else { None };
            let tag = self.tags.last().map(|(tag, _)| tag.clone()).unwrap_or_default();
            let replies = reader.replies()?;
            self.routes.push(Answers { method: method.to_owned(), path, tag, example, replies });
        } else {
            let name = reader.name().to_owned();
            reader.must("=")?;
            let mut schema = reader.shape()?;
            if reader.eat("eg ") {
                schema["examples"] = json!([reader.json()?]);
            }
            self.named.push((name, schema));
        }
        if reader.left.trim().is_empty() || statement.starts_with('%') {
            Ok(())
        } else {
            Err(format!("too much: {:?}", reader.left))
        }
    }
}

struct Reader<'a> {
    left: &'a str,
}

impl<'a> Reader<'a> {
    fn eat(&mut self, mark: &str) -> bool {
        let Some(rest) = self.left.trim_start().strip_prefix(mark) else { return false };
        self.left = rest;
        true
    }

    fn must(&mut self, mark: &str) -> Result<(), String> {
        if self.eat(mark) { Ok(()) } else { Err(format!("{mark:?} is missing before {:?}", self.left)) }
    }

    /// Letters, digits and what else stands in names of fields; `*` for all.
    fn name(&mut self) -> &'a str {
        let text = self.left.trim_start();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*' | '$');
        let (name, rest) = text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()));
        self.left = rest;
        name
    }

    fn json(&mut self) -> Result<Value, String> {
        let mut values = serde_json::Deserializer::from_str(self.left).into_iter();
        let value = values.next().ok_or("an example is missing")?.map_err(|error| error.to_string())?;
        self.left = &self.left[values.byte_offset()..];
        Ok(value)
    }

    fn replies(&mut self) -> Result<Vec<(u16, String, Value)>, String> {
        self.must("->")?;
        let mut replies = Vec::new();
        loop {
            let text = self.left.trim_start();
            let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            let status = if digits == 0 { 200 } else { text[..digits].parse().unwrap_or_default() };
            self.left = &text[digits..];
            let rest = self.left.trim_start();
            let end = rest.find(',').unwrap_or(rest.len());
            let is_media = rest[..end].contains('/') && !rest[..end].contains(['{', '"']);
            if rest[..end].trim().is_empty() {
                replies.push((status, String::new(), Value::Null));
            } else if is_media {
                replies.push((status, rest[..end].trim().to_owned(), Value::Null));
                self.left = &rest[end..];
            } else {
                replies.push((status, "application/json".to_owned(), self.shape()?));
            }
            if !self.eat(",") {
                return Ok(replies);
            }
        }
    }

    /// `A|B`, and what binds more.
    fn shape(&mut self) -> Result<Value, String> {
        let mut either = vec![self.whole()?];
        while self.eat("|") {
            either.push(self.whole()?);
        }
        Ok(joined(either))
    }

    /// `A & B`.
    fn whole(&mut self) -> Result<Value, String> {
        let first = self.atom()?;
        let mut parts = vec![first];
        while self.eat("&") {
            parts.push(self.atom()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { json!({"allOf": parts}) })
    }

    fn atom(&mut self) -> Result<Value, String> {
        if self.eat("[") {
            let items = self.shape()?;
            self.must("]")?;
            return Ok(json!({"type": "array", "items": items}));
        }
        if self.eat("{") {
            return self.object();
        }
        if self.left.trim_start().starts_with('"') {
            return Ok(json!({"enum": [self.json()?]}));
        }
        Ok(match self.name() {
            "str" => json!({"type": "string"}),
            "time" => json!({"type": "string", "format": "date-time"}),
            "int" => json!({"type": "integer"}),
            "num" => json!({"type": "number"}),
            "bool" => json!({"type": "boolean"}),
            "null" => json!({"type": "null"}),
            "any" => json!({}),
            name if name.starts_with(|c: char| c.is_ascii_uppercase()) => {
                json!({"$ref": format!("{NAMED}{name}")})
            }
            other => return Err(format!("{other:?} is no shape")),
        })
    }

    fn object(&mut self) -> Result<Value, String> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        let mut schema = json!({"type": "object"});
        while !self.eat("}") {
            let name = self.name();
            let is_optional = self.eat("?");
            self.must(":")?;
            let shape = self.shape()?;
            if name == "*" {
                schema["additionalProperties"] = shape;
            } else {
                properties.insert(name.to_owned(), shape);
                if !is_optional {
                    required.push(name);
                }
            }
            if !self.eat(",") && !self.left.trim_start().starts_with('}') {
                return Err(format!("a comma is missing before {:?}", self.left));
            }
        }
        if !properties.is_empty() {
            schema["properties"] = properties.into();
        }
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        Ok(schema)
    }
}

/// Either of these: words are one list, plain types are one list, and the rest are choices.
fn joined(either: Vec<Value>) -> Value {
    let mut words = Vec::new();
    let mut plain = Vec::new();
    let mut others = Vec::new();
    for shape in either {
        match shape.as_object() {
            Some(map) if map.contains_key("enum") => words.push(map["enum"][0].clone()),
            Some(map) if map.len() == 1 && map.contains_key("type") => plain.push(map["type"].clone()),
            _ => others.push(shape),
        }
    }
    if !words.is_empty() {
        if plain.contains(&json!("null")) {
            plain.retain(|kind| kind != "null");
            words.push(Value::Null);
        }
        others.push(json!({"enum": words}));
    }
    match plain.len() {
        0 => {}
        1 => others.push(json!({"type": plain[0]})),
        _ => others.push(json!({"type": plain})),
    }
    if others.len() == 1 { others.remove(0) } else { json!({"anyOf": others}) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_tags_shapes_routes_and_messages() {
        let text = r#"
# not this
% things: all of them
Id = str eg "a1"
POST /api/things < {"a": ["}"]} -> 201 Thing & {more?: [Id|null]},
  202 {*: "x"|"y"|null}, 204, 206 text/plain
GET /api/things/:id -> text/html
~ thing:gone {id: Id, code: int|null}
"#;
        let shapes = Shapes::read(text).unwrap();
        assert_eq!(shapes.tags, [("things".to_owned(), "all of them".to_owned())]);
        assert_eq!(shapes.named, [("Id".into(), json!({"type": "string", "examples": ["a1"]}))]);
        let id = json!({"$ref": "#/components/schemas/Id"});
        let more = json!({"type": "array", "items": {"anyOf": [id, {"type": "null"}]}});
        let json = || "application/json".to_owned();
        let both = json!({"allOf": [
            {"$ref": "#/components/schemas/Thing"}, {"type": "object", "properties": {"more": more}},
        ]});
        let map = json!({"type": "object", "additionalProperties": {"enum": ["x", "y", null]}});
        let first = &shapes.routes[0];
        assert_eq!((first.method.as_str(), first.path.as_str()), ("POST", "/api/things"));
        assert_eq!((first.tag.as_str(), &first.example), ("things", &Some(json!({"a": ["}"]}))));
        let nothing = || (204, String::new(), Value::Null);
        let plain = (206, "text/plain".to_owned(), Value::Null);
        assert_eq!(first.replies, [(201, json(), both), (202, json(), map), nothing(), plain]);
        assert_eq!(shapes.routes[1].replies, [(200, "text/html".to_owned(), Value::Null)]);
        let gone = json!({
            "type": "object", "required": ["id", "code"],
            "properties": {"id": id, "code": {"type": ["integer", "null"]}},
        });
        assert_eq!(shapes.messages, [("thing:gone".to_owned(), gone)]);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for (text, told) in [
            ("A = strng", "\"strng\" is no shape"),
            ("A = {a: int b: int}", "a comma is missing"),
            ("A = int int", "too much"),
            ("GET /x", "\"->\" is missing"),
        ] {
            let wrong = Shapes::read(text).unwrap_err();
            assert!(wrong.contains(told), "{text}: {wrong}");
        }
    }
}
