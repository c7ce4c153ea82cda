//! Which files a task is about: by its words (BM25, a word in a path or in a defined name counting more), by
//! names and paths that stand in it, by the scope and what was changed before, and by who uses whom.

use super::{Map, symbols, words};
use std::collections::HashMap;
use svc_base::scopes;

/// Words of a task that are looked for.
const MAX_WORDS: usize = 60;
/// Files whose neighbours are looked at.
const SPREAD_FROM: usize = 25;
/// A name that more files define tells nothing of where it comes from.
const MAX_DEFINERS: usize = 6;
/// Saturation of repeated words, and how much longer files are discounted, as is customary.
const K1: f32 = 1.2;
const B: f32 = 0.6;
/// What a word counts in a file's name, in its folders, and in a name that it defines; in its text it is 1.
const IN_FILE_NAME: f32 = 2.2;
const IN_FOLDERS: f32 = 0.8;
const IN_DEFINITION: f32 = 0.9;
/// What a defined name counts that stands in the task as it is, and one that is also a plain word.
const NAMED: f32 = 2.5;
const PLAIN: f32 = 0.8;
/// Files that stand in the task by their path.
const MENTIONED: f32 = 30.0;
/// Shares of a file's score that the files have that it uses, and those that use it.
const TO_USED: f32 = 0.22;
const TO_USERS: f32 = 0.12;
/// Tests and texts are about the same words as what they test and tell of.
const OF_TESTS: f32 = 0.5;
const OF_TEXTS: f32 = 0.45;
/// Words, without their endings, in the paths of tests and of what belongs to them.
const OF_TEST_PATHS: &[&str] = &["test", "spec", "fixtur", "mock", "example", "bench", "snapshot"];
/// Files of the agent's own, and files that its role has changed before.
const IN_SCOPE: f32 = 1.6;
const TOUCHED: f32 = 1.25;

/// What is asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'a> {
    pub task: &'a str,
    /// Globs, relative to the map's folder.
    pub scope: &'a [String],
    /// The folder that the agent works in, relative; empty for the whole project.
    pub dir: &'a str,
    /// Files that its role has changed before.
    pub touched: &'a [String],
}

/// A file and how much it has to do with a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked<'a> {
    pub path: &'a str,
    pub score: f32,
}

impl Map {
    /// The files that have to do with a task, the most fitting first, at most `most`.
    pub fn rank(&self, wish: &Wish, most: usize) -> Vec<Ranked<'_>> {
        let wanted = words::of_task(wish.task, MAX_WORDS);
        let places: Vec<Place> = self.files.keys().map(|path| Place::of(path)).collect();
        let mut scores = self.by_words(&wanted, &places);
        self.by_names(wish.task, &mut scores);
        let is_about_tests = wanted.contains(&words::key(b"test"));
        for ((score, path), place) in scores.iter_mut().zip(self.files.keys()).zip(&places) {
            if !is_about_tests && place.is_of_tests() {
                *score *= OF_TESTS;
            }
            if !symbols::is_known(path) {
                *score *= OF_TEXTS;
            }
        }
        self.spread(&mut scores);
        let own = own_folders(wish);
        for (score, path) in scores.iter_mut().zip(self.files.keys()) {
            if own.iter().any(|folder| scopes::is_below(path, folder)) {
                *score = *score * IN_SCOPE + 0.1;
            }
            if wish.touched.iter().any(|touched| **touched == **path) {
                *score = *score * TOUCHED + 0.05;
            }
        }
        let mut ranked: Vec<Ranked> = self
            .files
            .keys()
            .zip(scores)
            .filter(|(_, score)| *score > 0.0)
            .map(|(path, score)| Ranked { path, score })
            .collect();
        ranked.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.path.cmp(b.path)));
        ranked.truncate(most);
        ranked
    }

    fn by_words(&self, wanted: &[u32], places: &[Place]) -> Vec<f32> {
        let mut scores = vec![0.0; self.files.len()];
        let mean =
            self.files.values().map(|file| as_f32(file.digest.length)).sum::<f32>() / as_f32(self.count());
        for word in wanted {
            let mut found: Vec<(usize, f32)> = Vec::new();
            for (at, (file, place)) in self.files.values().zip(places).enumerate() {
                let digest = &file.digest;
                let times = as_f32(digest.count(*word));
                let long = 1.0 - B + B * as_f32(digest.length) / mean.max(1.0);
                let mut score = times * (K1 + 1.0) / (times + K1 * long);
                for (is, weight) in [
                    (place.name.contains(word), IN_FILE_NAME),
                    (place.folders.contains(word), IN_FOLDERS),
                    (digest.defines_word(*word), IN_DEFINITION),
                ] {
                    score += if is { weight } else { 0.0 };
                }
                if score > 0.0 {
                    found.push((at, score));
                }
            }
            let rarity = rarity(self.files.len(), found.len());
            for (at, score) in found {
                scores[at] += score * rarity;
            }
        }
        scores
    }

    /// Names and paths that stand in the task as they are.
    fn by_names(&self, task: &str, scores: &mut [f32]) {
        let mut names: Vec<(u32, f32)> = Vec::new();
        words::each_name(task.as_bytes(), |name| {
            let key = words::key(name);
            if name.len() >= 4 && names.len() < MAX_WORDS && !names.iter().any(|(known, _)| *known == key) {
                let is_plain = name.iter().skip(1).all(u8::is_ascii_lowercase);
                names.push((key, if is_plain { PLAIN } else { NAMED }));
            }
        });
        for (name, weight) in names {
            let defines = |file: &super::File| file.digest.defined.binary_search(&name).is_ok();
            let definers: Vec<usize> =
                self.files.values().enumerate().filter(|(_, file)| defines(file)).map(|(at, _)| at).collect();
            let rarity = rarity(self.files.len(), definers.len());
            for at in definers {
                scores[at] += weight * rarity;
            }
        }
        for word in task.split(|c: char| c.is_whitespace() || "\"'`()[]<>,;".contains(c)) {
            let word = word.trim_end_matches(['.', ':', '!', '?']).trim_start_matches("./");
            if word.len() < 4 || !word.contains(['.', '/']) {
                continue;
            }
            for (score, path) in scores.iter_mut().zip(self.files.keys()) {
                let is =
                    path.strip_suffix(word).is_some_and(|before| before.is_empty() || before.ends_with('/'));
                *score += if is { MENTIONED } else { 0.0 };
            }
        }
    }

    /// Gives a share of the best files' scores to those that they use and that use them.
    fn spread(&self, scores: &mut [f32]) {
        let files: Vec<&super::File> = self.files.values().collect();
        let mut best: Vec<usize> = (0..files.len()).filter(|at| scores[*at] > 0.0).collect();
        best.sort_unstable_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        best.truncate(SPREAD_FROM);
        let mut definers: HashMap<u32, Vec<usize>> = HashMap::new();
        for at in &best {
            let digest = &files[*at].digest;
            for name in digest.used.iter().chain(&digest.defined) {
                definers.entry(*name).or_default();
            }
        }
        for (at, file) in files.iter().enumerate() {
            for name in &file.digest.defined {
                if let Some(known) = definers.get_mut(name).filter(|known| known.len() <= MAX_DEFINERS) {
                    known.push(at);
                }
            }
        }
        definers.retain(|_, known| (1..=MAX_DEFINERS).contains(&known.len()));
        let mut given = vec![0.0_f32; files.len()];
        for from in &best {
            let mut share = Share::default();
            for name in &files[*from].digest.used {
                for to in definers.get(name).into_iter().flatten() {
                    share.add(*to, definers[name].len());
                }
            }
            share.give(scores[*from] * TO_USED, &mut given);
        }
        let rank: HashMap<usize, usize> = best.iter().enumerate().map(|(rank, at)| (*at, rank)).collect();
        let mut users: Vec<Share> = best.iter().map(|_| Share::default()).collect();
        for (user, file) in files.iter().enumerate() {
            for name in &file.digest.used {
                for used in definers.get(name).into_iter().flatten() {
                    if let Some(rank) = rank.get(used) {
                        users[*rank].add(user, definers[name].len());
                    }
                }
            }
        }
        for (share, at) in users.into_iter().zip(&best) {
            share.give(scores[*at] * TO_USERS, &mut given);
        }
        for (score, given) in scores.iter_mut().zip(given) {
            *score += given;
        }
    }

    fn count(&self) -> u32 {
        u32::try_from(self.files.len()).unwrap_or(u32::MAX)
    }
}

/// How much each file has to do with one.
#[derive(Default)]
struct Share(HashMap<usize, f32>);

impl Share {
    fn add(&mut self, file: usize, definers: usize) {
        *self.0.entry(file).or_default() += 1.0 / as_f32(u32::try_from(definers).unwrap_or(1));
    }

    /// The file that has most to do with it gets all of `amount`, the others less.
    fn give(self, amount: f32, to: &mut [f32]) {
        let most = self.0.values().copied().fold(0.0, f32::max);
        for (file, share) in self.0 {
            to[file] += amount * (share / most).sqrt();
        }
    }
}

fn rarity(all: usize, holders: usize) -> f32 {
    let [all, holders] = [all, holders].map(|count| as_f32(u32::try_from(count).unwrap_or(u32::MAX)));
    ((all - holders + 0.5) / (holders + 0.5)).ln_1p()
}

#[allow(clippy::cast_precision_loss, reason = "counts of words and files are far below 2^23")]
fn as_f32(count: u32) -> f32 {
    count as f32
}

/// Words of a file's name, and of its folders.
struct Place {
    name: Vec<u32>,
    folders: Vec<u32>,
}

impl Place {
    fn of(path: &str) -> Self {
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
        let of = |text: &str| {
            let mut keys = Vec::new();
            words::each_name(text.as_bytes(), |part| words::each_word(part, |key| keys.push(key)));
            keys
        };
        Self { name: of(name), folders: of(folders) }
    }

    fn is_of_tests(&self) -> bool {
        OF_TEST_PATHS.iter().any(|word| {
            let key = words::key(word.as_bytes());
            self.name.contains(&key) || self.folders.contains(&key)
        })
    }
}

/// The folders that are the agent's: those of its scope, else the one that it works in.
fn own_folders(wish: &Wish) -> Vec<String> {
    let own = if wish.scope.is_empty() { vec![wish.dir.to_owned()] } else { scopes::folders(wish.scope) };
    // The whole project tells nothing of a task.
    own.into_iter().filter(|folder| !folder.is_empty()).collect()
}
