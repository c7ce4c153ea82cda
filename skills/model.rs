//! The nouns of the marketplace, as they are stored and shown.
//!
//! **Invariant:** money is whole cents, ratings are whole hundredths, times are milliseconds since 1970.

use serde::{Deserialize, Serialize};
use std::fmt;
use svc_base::time::Time;

/// The display name of the vendor's own skills; reserved.
pub const VENDOR_NAME: &str = "Svc Skills";
/// The vendor's author record.
pub const VENDOR_AUTHOR_ID: &str = "svc-skills";

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// All values, in the order of the specification.
            #[allow(dead_code, reason = "not every list of words is walked")]
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// Their words, in the same order.
            #[allow(dead_code, reason = "not every list of words is shown")]
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word in JSON and in the database.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The value of a word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words!(
    /// What a skill is for.
    Category {
        /// Interfaces and their looks.
        Design = "design",
        Quality = "quality",
        Devtools = "devtools",
        Workflow = "workflow",
        Security = "security",
        Specialized = "specialized",
    }
);

words!(
    /// Where a skill stands.
    Status {
        Draft = "draft",
        /// Waits for the operator's decision.
        Review = "review",
        Published = "published",
        /// Refused by the operator.
        Rejected = "rejected",
        /// Taken off the list; the record stays.
        Unlisted = "unlisted",
    }
);

words!(
    /// Who supplied a skill. Never changes.
    Source {
        Vendor = "vendor-official",
        Community = "community",
    }
);

words!(
    /// Who stands behind a skill.
    Verification {
        Vendor = "vendor",
        /// The operator has read this very content.
        Service = "service",
        /// The operator knows the creator.
        Creator = "creator",
        Nobody = "none",
    }
);

/// What an author tells of themselves; empty means not told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// URL of a picture.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub avatar: String,
    /// URL.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub website: String,
    /// Handle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github: String,
    /// Handle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub twitter: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bio: String,
}

impl Profile {
    /// Takes what `other` has where `self` has nothing; whether that changed anything.
    pub fn fill_from(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (mine, theirs) in self.parts().into_iter().zip(other.clone().parts()) {
            if mine.is_empty() {
                mine.clone_from(theirs);
            }
        }
        *self != before
    }

    fn parts(&mut self) -> [&mut String; 5] {
        [&mut self.avatar, &mut self.website, &mut self.github, &mut self.twitter, &mut self.bio]
    }
}

/// A skill without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Slug; never changes, never used again.
    pub id: String,
    /// 3-100 characters.
    pub name: String,
    /// 10-500 characters.
    pub description: String,
    /// Display name.
    pub author: String,
    /// Key of the author record.
    pub author_id: String,
    /// A copy of what the author told with this skill.
    pub profile: Profile,
    /// What it is for.
    pub category: Category,
    /// At most 10.
    pub tags: Vec<String>,
    /// At most 20.
    pub roles: Vec<String>,
    pub source: Source,
    /// One grapheme cluster.
    pub icon: String,
    /// SHA-256 of the content, 64 hexadecimal digits.
    pub digest: String,
    /// Length of the content.
    pub content_bytes: u64,
    /// Whether the content has the Agent Skills front matter, so that it can be installed as it is.
    pub has_front_matter: bool,
    /// Counted installs, the seed's included.
    pub downloads: u64,
    /// Average that the seed brought, in hundredths.
    pub seed_rating: u64,
    /// Raters behind it.
    pub seed_rating_count: u64,
    /// Sum of the ratings given here.
    pub rating_sum: u64,
    /// How many were given here.
    pub rating_count: u64,
    /// Price in cents.
    pub price_cents: u64,
    /// Highlighted.
    pub featured: bool,
    /// Who stands behind it.
    pub verification: Verification,
    pub status: Status,
    /// The author's label.
    pub version: String,
    /// When it was first listed, if ever.
    pub first_published_at: Option<Time>,
    /// When it was made.
    pub created_at: Time,
    /// When its content last changed.
    pub updated_at: Time,
}

/// A person or firm that supplies skills.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// `gh-<handle>` or the slug of the name.
    pub id: String,
    /// The numeric id at the code host, if known.
    pub github_id: String,
    /// Short name.
    pub username: String,
    /// Full name.
    pub display_name: String,
    pub profile: Profile,
    /// URL of further works.
    pub portfolio: String,
    /// When the record was made.
    pub created_at: Time,
}

/// A number of hundredths as JSON: `480` is `4.8`, `0` is `0`.
pub fn hundredths(value: u64) -> serde_json::Value {
    if value.is_multiple_of(100) {
        return (value / 100).into();
    }
    // Division of two small whole numbers gives the double that prints as the two decimals.
    #[allow(clippy::cast_precision_loss, reason = "prices and ratings are far below 2^53")]
    let number = value as f64 / 100.0;
    number.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hundredths_print_as_people_write_them() {
        for (value, text) in [(0, "0"), (480, "4.8"), (499, "4.99"), (9999, "99.99"), (500, "5")] {
            assert_eq!(hundredths(value).to_string(), text);
        }
    }

    #[test]
    fn decisions_2_a_profile_fills_only_what_is_empty() {
        let mut mine = Profile { website: "https://a".into(), ..Profile::default() };
        let theirs = Profile { website: "https://b".into(), bio: "x".into(), ..Profile::default() };
        assert!(mine.fill_from(&theirs));
        assert_eq!((mine.website.as_str(), mine.bio.as_str()), ("https://a", "x"));
        assert!(!mine.fill_from(&theirs));
    }
}
