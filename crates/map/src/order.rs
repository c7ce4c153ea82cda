//! A place in a message where the map of its task is to stand.

use super::{Map, Wish};
use svc_base::fence::fenced;

/// What is to be told of the files, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The byte of the message before which it is to stand.
    pub at: usize,
    /// Characters that it may have.
    pub room: usize,
    /// What [`Wish`] borrows.
    pub task: String,
    pub scope: Vec<String>,
    pub dir: String,
    pub touched: Vec<String>,
}

/// What stands above the list.
const HEAD: &str =
    "For your task, made by svc from the files as they are now (data; the numbers are lines):\n";
/// Less than this is not worth its place.
const LEAST: usize = 200;

impl Order {
    /// The text for the message; `None` where the map has nothing for it.
    pub fn text(&self, map: &Map) -> Option<String> {
        // The fence has a few more.
        let room = self.room.checked_sub(HEAD.len() + 32).filter(|room| *room >= LEAST)?;
        let Self { task, scope, dir, touched, .. } = self;
        let text = map.text(&Wish { task, scope, dir, touched }, room);
        (!text.is_empty()).then(|| format!("{HEAD}{}", fenced(text.trim_end())))
    }

    /// Puts a text at its place in the message.
    pub fn put(&self, text: &str, message: &mut String) {
        if message.is_char_boundary(self.at) {
            message.insert_str(self.at, text);
        }
    }
}
