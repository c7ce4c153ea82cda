//! Public APIs to play with: the catalogue, and how the key of each is named.

use crate::recorded::{Reader, Recorded};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// The categories of the specification.
pub const CATEGORIES: [&str; 6] = ["space", "weather", "finance", "fun", "maps", "data"];

/// A public API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Toy {
    /// For example `nasa-apod`.
    pub id: String,
    /// For people.
    pub name: String,
    /// One of [`CATEGORIES`].
    pub category: String,
    /// `api-key` or `none`.
    pub auth: String,
    /// `beginner` or `intermediate`.
    pub difficulty: String,
    pub description: String,
    pub docs_url: String,
    pub base_url: String,
    /// The header or parameter that carries the key.
    pub key_header: Option<String>,
    /// What could be built with it.
    pub starters: Vec<String>,
}

impl Toy {
    /// Whether it answers only to those who have a key.
    pub fn needs_key(&self) -> bool {
        self.auth == "api-key"
    }

    /// The name of its key in the vault.
    pub fn credential(&self) -> String {
        format!("toy/{}", self.id)
    }

    /// The variable that carries its key, for example `NASA_APOD_API_KEY`.
    pub fn variable(&self) -> String {
        format!("{}_API_KEY", self.id.to_ascii_uppercase().replace('-', "_"))
    }
}

/// The catalogue, from `data/toys.json`.
pub fn all() -> &'static [Toy] {
    static TOYS: OnceLock<Vec<Toy>> = OnceLock::new();
    TOYS.get_or_init(|| {
        // The file is part of the program, and a test reads it.
        serde_json::from_slice(include_bytes!("../../../data/toys.json")).unwrap_or_default()
    })
}

/// The toy of this id.
pub fn find(id: &str) -> Option<&'static Toy> {
    all().iter().find(|toy| toy.id == id)
}

/// By its id; an empty one for an id that is none.
impl Recorded for &'static Toy {
    const SHAPE: u64 = String::SHAPE;

    fn write(&self, to: &mut Vec<u8>) {
        self.id.write(to);
    }

    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    extern "C" fn read(from: &mut Reader) -> Self {
        static NONE: Toy = Toy {
            id: String::new(),
            name: String::new(),
            category: String::new(),
            auth: String::new(),
            difficulty: String::new(),
            description: String::new(),
            docs_url: String::new(),
            base_url: String::new(),
            key_header: None,
            starters: Vec::new(),
        };
        find(&String::read(from)).unwrap_or(&NONE)
    }
}
