//! Author records: how they come to be, and how they are edited.

use crate::authoring::{AUTHOR_CHARS, ProfilePatch, set, slug, text};
use crate::model::{Author, Profile, Skill, VENDOR_AUTHOR_ID, VENDOR_NAME};
use serde_json::{Map, Value, json};
use svc_base::api::{Fields, Problem, Validator};
use svc_base::time::Time;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Longest short name.
const USERNAME_CHARS: usize = 64;
/// What the id of an author known by a code-host handle begins with.
const HANDLE_PREFIX: &str = "gh-";

/// The id of the record for a handle at the code host.
pub fn id_of_handle(handle: &str) -> String {
    format!("{HANDLE_PREFIX}{}", handle.to_ascii_lowercase())
}

/// The id of the record for a name and profile: by handle where there is one, else by name.
pub fn id_of(name: &str, profile: &Profile) -> String {
    if !profile.github.is_empty() {
        return id_of_handle(&profile.github);
    }
    let words = slug::words(name);
    if words.is_empty() {
        return format!("author-{}", slug::short_hash(name));
    }
    // A name alone must not lead to the record of somebody known by handle.
    if words.starts_with(HANDLE_PREFIX) { format!("author-{words}") } else { words }
}

/// Letters of other scripts, and signs, that look like those of the vendor's name; all of one group are read
/// as its first.
const LOOKALIKES: [&str; 5] = [
    "sѕꜱ5ʂ",
    "vѵνᴠ",
    "cсϲᴄⲥ",
    "kкκᴋⲕқ",
    // Upright strokes are hard to tell apart in most typefaces.
    "liіιıɩӏ1ǀ",
];
/// Signs that stand for a letter where they are in the middle of a name.
const SIGNS: [(char, char); 5] = [('$', 's'), ('!', 'l'), ('|', 'l'), ('¢', 'c'), ('∨', 'v')];

/// How a name looks: its letters and digits alone, lookalikes as one, signs as letters or left out.
fn look(name: &str, with_signs: bool) -> String {
    let folded = name.nfkd().flat_map(char::to_lowercase).filter(|c| !is_combining_mark(*c));
    let seen = folded.map(|c| {
        let sign = SIGNS.iter().find(|(sign, _)| with_signs && *sign == c).map(|(_, letter)| *letter);
        let group = LOOKALIKES.iter().find(|group| group.contains(c));
        sign.or_else(|| group.and_then(|group| group.chars().next())).unwrap_or(c)
    });
    seen.filter(|c| c.is_alphanumeric()).collect()
}

/// Whether a name is the vendor's or looks like it.
pub fn is_reserved(name: &str) -> bool {
    let vendor = look(VENDOR_NAME, false);
    look(name, false) == vendor || look(name, true) == vendor
}

/// Refuses the vendor's name for anybody else, however it is written.
pub fn refuse_reserved(v: &mut Validator, field: &str, name: &str) {
    v.check(!is_reserved(name), field, || format!("{field} {name:?} is reserved"));
}

/// The record for a skill's author as it is made with the first skill.
pub fn of_skill(skill: &Skill, now: Time) -> Author {
    Author {
        id: skill.author_id.clone(),
        github_id: String::new(),
        username: if skill.profile.github.is_empty() {
            slug::words(&skill.author)
        } else {
            skill.profile.github.clone()
        },
        display_name: skill.author.clone(),
        profile: skill.profile.clone(),
        portfolio: String::new(),
        created_at: now,
    }
}

/// An edit of an author record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorPatch {
    /// Full name.
    pub display_name: Option<String>,
    /// Short name.
    pub username: Option<String>,
    /// Numeric id at the code host, as text.
    pub github_id: Option<String>,
    /// URL.
    pub portfolio: Option<String>,
    /// The five keys of the profile.
    pub profile: ProfilePatch,
}

impl AuthorPatch {
    /// Reads the body of `PUT /authors/:id`.
    ///
    /// Errors: 400 with every violation.
    pub fn parse(body: &Map<String, Value>) -> Result<Self, Problem> {
        let mut fields = Fields::new(body);
        let display_name = fields.string("displayName").map(|raw| {
            let name = text::line(&mut fields.validator, "displayName", raw, 1, AUTHOR_CHARS);
            refuse_reserved(&mut fields.validator, "displayName", &name);
            name
        });
        let username = fields
            .string("username")
            .map(|raw| text::line(&mut fields.validator, "username", raw, 1, USERNAME_CHARS));
        let github_id =
            fields.string("githubId").map(|raw| text::handle(&mut fields.validator, "githubId", raw));
        let portfolio =
            fields.string("portfolio").map(|raw| text::url(&mut fields.validator, "portfolio", raw));
        let profile = ProfilePatch::read(&mut fields, "");
        fields.validator.finish()?;
        Ok(Self { display_name, username, github_id, portfolio, profile })
    }

    /// Writes the told fields over the record.
    pub fn apply(&self, author: &mut Author) {
        set(&mut author.display_name, self.display_name.as_ref());
        set(&mut author.username, self.username.as_ref());
        set(&mut author.github_id, self.github_id.as_ref());
        set(&mut author.portfolio, self.portfolio.as_ref());
        self.profile.apply(&mut author.profile);
    }

    /// The same edit on the copy that a skill of this author carries.
    pub fn apply_to_copy(&self, skill: &mut Skill) {
        set(&mut skill.author, self.display_name.as_ref());
        self.profile.apply(&mut skill.profile);
    }
}

/// 403 for the vendor's record.
pub fn refuse_vendor(author: &Author) -> Result<(), Problem> {
    if author.id != VENDOR_AUTHOR_ID {
        return Ok(());
    }
    Err(Problem::new(403, "vendor_author", "the vendor's author record cannot be edited through the API"))
}

/// JSON schema of an author's name: any but the vendor's.
pub fn name_schema() -> Value {
    let mut schema = text::line_schema(1, AUTHOR_CHARS, true);
    let reserved =
        "^[^A-Za-z0-9]*[sS5][vV][cC][^A-Za-z0-9]*[sS5][kK][iIlL1][iIlL1][iIlL1][sS5][^A-Za-z0-9]*$";
    schema["not"] = json!({"pattern": reserved, "type": "string"});
    schema
}

/// JSON schema of the edit body.
pub fn edit_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "displayName": name_schema(),
            "username": text::line_schema(1, USERNAME_CHARS, true),
            "githubId": text::handle_schema(),
            "avatar": text::url_schema(),
            "bio": text::line_schema(0, crate::authoring::BIO_CHARS, true),
            "website": text::url_schema(),
            "github": text::handle_schema(),
            "twitter": text::handle_schema(),
            "portfolio": text::url_schema(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_2_author_ids_come_from_the_handle_or_the_name() {
        let handle = Profile { github: "Ada-L".into(), ..Profile::default() };
        let nothing = Profile::default();
        assert_eq!(id_of("Ada", &handle), "gh-ada-l");
        assert_eq!(id_of("Ada Lovelace", &nothing), "ada-lovelace");
        assert_eq!(id_of("GH Ada-L", &nothing), "author-gh-ada-l");
        assert!(id_of("日本", &nothing).starts_with("author-"));
    }

    #[test]
    fn decisions_2_the_vendors_name_is_reserved_however_written() {
        let refused = |name: &str| {
            let mut v = Validator::default();
            refuse_reserved(&mut v, "author", name);
            !v.is_clean()
        };
        for bad in ["Svc Skills", "svc-skills", "ＳＶＣ  skills", "Svc. Skills!"] {
            assert!(refused(bad), "{bad}");
        }
        // Cyrillic, Greek, digits and strokes that look the same, marks, and no space.
        for bad in
            ["Ѕvc Skills", "Svс Skіllѕ", "Sνc Sκills", "Svc Ski11s", "Svc SkiIIs", "Śvc Skılls", "SvcSkills"]
        {
            assert!(refused(bad), "{bad}");
        }
        for good in ["Svc Skill", "My Svc Skills", "Skills", "Ada", "Совет"] {
            assert!(!refused(good), "{good}");
        }
    }
}
