//! Creating and editing: what a body may say, and what it becomes.
//!
//! **Invariant:** nothing here reads a clock or a store; what a [`Draft`] holds has passed every rule.

pub mod content;
pub mod moves;
pub mod slug;
pub mod text;

use crate::authors;
use crate::model::{Category, Profile};
use content::Content;
use serde_json::{Map, Value, json};
use svc_base::api::{Fields, Problem, Validator};

/// Fewest and most characters of a name.
pub const NAME_CHARS: (usize, usize) = (3, 100);
/// Fewest and most characters of a description.
pub const DESCRIPTION_CHARS: (usize, usize) = (10, 500);
/// Most tags.
pub const TAGS: usize = 10;
/// Most roles.
pub const ROLES: usize = 20;
/// Fewest and most characters of a tag or role.
pub const TAG_CHARS: (usize, usize) = (2, 30);
/// Longest display name of an author.
pub const AUTHOR_CHARS: usize = 100;
/// Longest biography.
pub const BIO_CHARS: usize = 500;
/// The author of a skill that names none.
pub const DEFAULT_AUTHOR: &str = "Community";

/// Fields that only the service sets; in a body they are ignored and named in `X-Ignored-Fields`.
pub const SERVER_FIELDS: &[&str] = &[
    "id",
    "source",
    "status",
    "downloads",
    "rating",
    "ratingCount",
    "featured",
    "verified",
    "verification",
    "authorId",
    "contentUrl",
    "createdAt",
    "updatedAt",
];

/// What a body says, field by field; `None` where it is silent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    /// Display name of the skill.
    pub name: Option<String>,
    pub description: Option<String>,
    /// Display name of the author.
    pub author: Option<String>,
    pub profile: Option<ProfilePatch>,
    pub category: Option<Category>,
    pub tags: Option<Vec<String>>,
    pub roles: Option<Vec<String>>,
    pub icon: Option<String>,
    /// Markdown.
    pub content: Option<Content>,
    /// In cents.
    pub price_cents: Option<u64>,
    /// The author's label.
    pub version: Option<String>,
}

/// The told keys of an author's profile; an empty text takes one back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfilePatch {
    /// URL.
    pub avatar: Option<String>,
    /// URL.
    pub website: Option<String>,
    /// Handle.
    pub github: Option<String>,
    /// Handle.
    pub twitter: Option<String>,
    pub bio: Option<String>,
}

impl ProfilePatch {
    /// Writes the told keys over `profile`.
    pub fn apply(&self, profile: &mut Profile) {
        set(&mut profile.avatar, self.avatar.as_ref());
        set(&mut profile.website, self.website.as_ref());
        set(&mut profile.github, self.github.as_ref());
        set(&mut profile.twitter, self.twitter.as_ref());
        set(&mut profile.bio, self.bio.as_ref());
    }

    /// Reads the five keys off any object reader.
    pub fn read(fields: &mut Fields, prefix: &str) -> Self {
        let at = |key: &str| format!("{prefix}{key}");
        let mut text = |key: &str, rule: &dyn Fn(&mut Validator, &str, &str) -> String| {
            let raw = fields.string(key)?;
            Some(rule(&mut fields.validator, &at(key), raw))
        };
        Self {
            avatar: text("avatar", &text::url),
            website: text("website", &text::url),
            github: text("github", &text::handle),
            twitter: text("twitter", &text::handle),
            bio: text("bio", &|v, field, raw| text::line(v, field, raw, 0, BIO_CHARS)),
        }
    }
}

/// Writes what is told over a field.
pub fn set<T: Clone>(field: &mut T, told: Option<&T>) {
    if let Some(told) = told {
        field.clone_from(told);
    }
}

/// The names of server-set fields in a body.
pub fn ignored_fields(body: &Map<String, Value>) -> Vec<&'static str> {
    SERVER_FIELDS.iter().filter(|name| body.contains_key(**name)).copied().collect()
}

/// Reads the body of a create.
///
/// Errors: 400 with every violation.
pub fn parse_new(body: &Map<String, Value>) -> Result<Draft, Problem> {
    let mut fields = Fields::new(body);
    for required in ["name", "description", "category"] {
        if fields.value(required).is_none() {
            fields.validator.fail(required, format!("{required} is required and must be a string"));
        }
    }
    let draft = read(&mut fields);
    fields.validator.finish()?;
    Ok(draft)
}

/// Reads the body of an edit.
///
/// Errors: 400 with every violation.
pub fn parse_edit(body: &Map<String, Value>) -> Result<Draft, Problem> {
    let mut fields = Fields::new(body);
    let draft = read(&mut fields);
    fields.validator.finish()?;
    Ok(draft)
}

fn read(fields: &mut Fields) -> Draft {
    let mut line = |name: &str, (min, max): (usize, usize)| {
        let raw = fields.string(name)?;
        Some(text::line(&mut fields.validator, name, raw, min, max))
    };
    let name = line("name", NAME_CHARS);
    let description = line("description", DESCRIPTION_CHARS);
    let author = line("author", (1, AUTHOR_CHARS));
    if let Some(author) = &author {
        authors::refuse_reserved(&mut fields.validator, "author", author);
    }
    Draft {
        name,
        description,
        author,
        profile: read_profile(fields),
        category: fields.choice("category", Category::WORDS).and_then(Category::from_word),
        tags: read_list(fields, "tags", TAGS),
        roles: read_list(fields, "roles", ROLES),
        icon: fields.string("icon").map(|raw| text::icon(&mut fields.validator, raw)),
        content: read_content(fields),
        price_cents: fields.value("price").map(|value| text::price(&mut fields.validator, value)),
        version: fields.string("version").map(|raw| text::version(&mut fields.validator, raw)),
    }
}

fn read_profile(fields: &mut Fields) -> Option<ProfilePatch> {
    let value = fields.value("authorProfile")?;
    let Some(object) = value.as_object() else {
        fields.validator.fail("authorProfile", "authorProfile must be an object");
        return None;
    };
    let mut inner = Fields::new(object);
    let patch = ProfilePatch::read(&mut inner, "authorProfile.");
    if let Err(problem) = inner.validator.finish() {
        for error in problem.errors {
            // Type errors are found by the inner reader, which knows only the inner name.
            let field = error.field.strip_prefix("authorProfile.").unwrap_or(&error.field).to_owned();
            fields.validator.fail(&format!("authorProfile.{field}"), error.message);
        }
    }
    Some(patch)
}

/// Tags or roles: trimmed, each of its length, no two alike but for case.
fn read_list(fields: &mut Fields, name: &str, most: usize) -> Option<Vec<String>> {
    let raw = fields.strings(name)?;
    let v = &mut fields.validator;
    v.check(raw.len() <= most, name, || {
        format!("{name} must have at most {most} items, it has {}", raw.len())
    });
    let mut list: Vec<String> = Vec::new();
    let mut seen = Vec::new();
    for (at, item) in raw.into_iter().enumerate().take(most) {
        let field = format!("{name}[{at}]");
        let item = text::line(v, &field, item, TAG_CHARS.0, TAG_CHARS.1);
        let folded = item.to_lowercase();
        v.check(!seen.contains(&folded), &field, || format!("{field} {item:?} is there twice"));
        seen.push(folded);
        list.push(item);
    }
    Some(list)
}

fn read_content(fields: &mut Fields) -> Option<Content> {
    let text = fields.string("content")?;
    let mut v = Validator::default();
    content::check(&mut v, text);
    match v.finish() {
        Ok(()) => Some(Content::new(text.to_owned())),
        Err(problem) => {
            for error in problem.errors {
                fields.validator.fail("content", error.message);
            }
            None
        }
    }
}

/// JSON schema of the create body.
pub fn new_schema() -> Value {
    let mut schema = edit_schema();
    schema["required"] = json!(["name", "description", "category"]);
    let properties = &mut schema["properties"];
    properties["name"] = text::line_schema(NAME_CHARS.0, NAME_CHARS.1, false);
    properties["description"] = text::line_schema(DESCRIPTION_CHARS.0, DESCRIPTION_CHARS.1, false);
    properties["category"] = json!({"type": "string", "enum": Category::WORDS});
    schema
}

/// JSON schema of the edit body.
pub fn edit_schema() -> Value {
    let list = |most: usize| {
        json!({
            "type": ["array", "null"], "maxItems": most, "uniqueItems": true,
            "items": text::line_schema(TAG_CHARS.0, TAG_CHARS.1, false),
        })
    };
    let mut categories: Vec<Value> = Category::WORDS.iter().map(|word| json!(word)).collect();
    categories.push(Value::Null);
    json!({
        "type": "object",
        "properties": {
            "name": text::line_schema(NAME_CHARS.0, NAME_CHARS.1, true),
            "description": text::line_schema(DESCRIPTION_CHARS.0, DESCRIPTION_CHARS.1, true),
            "author": authors::name_schema(),
            "authorProfile": profile_schema(),
            "category": {"enum": categories},
            "tags": list(TAGS),
            "roles": list(ROLES),
            "icon": text::icon_schema(),
            "content": {
                "type": ["string", "null"], "maxLength": content::CONTENT_BYTES,
                "pattern": content::PATTERN, "description": "markdown; the limit is in bytes",
            },
            "price": {"type": ["number", "null"], "minimum": 0, "maximum": 99.99, "multipleOf": 0.01},
            "version": text::version_schema(),
        },
    })
}

fn profile_schema() -> Value {
    json!({
        "type": ["object", "null"],
        "properties": {
            "avatar": text::url_schema(),
            "website": text::url_schema(),
            "github": text::handle_schema(),
            "twitter": text::handle_schema(),
            "bio": text::line_schema(0, BIO_CHARS, true),
        },
    })
}

#[cfg(test)]
mod tests;
