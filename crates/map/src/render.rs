//! The map as an agent reads it, within a room.

use super::rank::{Ranked, Wish};
use super::{Map, commands, symbols, words};
use std::fmt::Write as _;
use svc_base::sorted;

/// Files that are told with what they define.
const WITH_SYMBOLS: usize = 15;
/// Files that are told by their paths alone.
const BY_PATH: usize = 45;
/// Definitions of one file that are told.
const SYMBOLS: usize = 8;
/// A file far below the best one has nothing to do with the task.
const LEAST_SHARE: f32 = 0.04;

impl Map {
    /// What an agent with this task should know of the files, within `room` characters; empty where nothing
    /// fits. Lines of Markdown; names come from the disk, so it is data.
    pub fn text(&self, wish: &Wish, room: usize) -> String {
        let mut ranked = self.rank(wish, WITH_SYMBOLS + BY_PATH);
        let least = ranked.first().map_or(0.0, |best| best.score * LEAST_SHARE);
        ranked.retain(|file| file.score >= least);
        let mut text = Room { text: String::new(), left: room };
        for line in commands::of(self, &ranked) {
            text.line(&line);
        }
        let split = ranked.len().min(WITH_SYMBOLS);
        for Ranked { path, .. } in &ranked[..split] {
            let told = self.symbols_of(path, wish);
            if !text.line(&format!("- {path}{told}")) {
                text.line(&format!("- {path}"));
            }
        }
        for line in by_folder(&ranked[split..]) {
            text.line(&line);
        }
        text.text
    }

    /// `: fn a 12, struct B 40`, those with words of the task first.
    fn symbols_of(&self, path: &str, wish: &Wish) -> String {
        let Some(source) = self.read(path) else { return String::new() };
        let wanted = words::of_task(wish.task, usize::MAX);
        let mut found: Vec<(usize, symbols::Symbol)> = Vec::new();
        for symbol in symbols::of(path, &source) {
            let mut hits = 0;
            words::each_word(symbol.name.as_bytes(), |key| hits += usize::from(wanted.contains(&key)));
            found.push((hits, symbol));
        }
        // The file's own order stays among equals.
        sorted::by_key(&mut found, |(hits, symbol)| (std::cmp::Reverse(*hits), symbol.line));
        let more = found.len().saturating_sub(SYMBOLS);
        found.truncate(SYMBOLS);
        sorted::by_key(&mut found, |(_, symbol)| symbol.line);
        let mut text = String::new();
        for (_, symbol) in &found {
            let kind = if symbol.kind.is_empty() { "" } else { " " };
            let comma = if text.is_empty() { ": " } else { ", " };
            let _ = write!(text, "{comma}{}{kind}{} {}", symbol.kind, symbol.name, symbol.line);
        }
        if more > 0 {
            let _ = write!(text, ", and {more} more");
        }
        text
    }
}

/// Lines of files by their folder, the folder with the best file first.
fn by_folder(files: &[Ranked]) -> Vec<String> {
    let mut folders: Vec<(&str, Vec<&str>)> = Vec::new();
    for Ranked { path, .. } in files {
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        match folders.iter_mut().find(|(known, _)| *known == folder) {
            Some((_, names)) => names.push(name),
            None => folders.push((folder, vec![name])),
        }
    }
    folders.into_iter().map(|(folder, names)| format!("- {folder}/: {}", names.join(", "))).collect()
}

/// Text that keeps to a number of characters.
struct Room {
    text: String,
    left: usize,
}

impl Room {
    /// Adds a line where it fits; whether it did.
    fn line(&mut self, line: &str) -> bool {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        let chars = line.chars().count() + 1;
        let fits = chars <= self.left;
        if fits {
            self.left -= chars;
            self.text.push_str(&line);
            self.text.push('\n');
        }
        fits
    }
}
