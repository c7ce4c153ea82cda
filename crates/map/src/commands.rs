//! How the packages are built and tested in which a task's files lie, as their manifests say.

use super::Map;
use super::rank::Ranked;
use std::fmt::Write as _;

/// Packages that are told.
const MAX_PACKAGES: usize = 4;
/// Commands of one package that are told.
const MAX_COMMANDS: usize = 8;

/// A line for each package: its folder, its name and its commands.
pub fn of(map: &Map, files: &[Ranked]) -> Vec<String> {
    let mut told: Vec<(String, String)> = Vec::new();
    for Ranked { path, .. } in files {
        for folder in above(path) {
            if told.len() >= MAX_PACKAGES || told.iter().any(|(known, _)| known == folder) {
                break;
            }
            if let Some(line) = package(map, folder) {
                told.push((folder.to_owned(), line));
                break;
            }
        }
    }
    // What the root offers holds for all.
    if !told.iter().any(|(known, _)| known.is_empty())
        && let Some(line) = package(map, "")
    {
        told.push((String::new(), line));
    }
    let place = |folder: &str| if folder.is_empty() { "The root".to_owned() } else { folder.to_owned() };
    told.into_iter().map(|(folder, line)| format!("- {}: {line}", place(&folder))).collect()
}

/// The folders above a file, the nearest first.
fn above(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let folder = rest?.rsplit_once('/').map_or("", |(folder, _)| folder);
        rest = (!folder.is_empty()).then_some(folder);
        Some(folder)
    })
}

/// What the manifests of one folder say.
fn package(map: &Map, folder: &str) -> Option<String> {
    let has = |name: &str| {
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        map.files.contains_key(path.as_str()).then_some(path)
    };
    let read = |name: &str| has(name).and_then(|path| map.read(&path));
    let mut parts = Vec::new();
    if let Some(text) = read("Cargo.toml") {
        let name = value_of(&text, "[package]", "name");
        parts.push(match name {
            Some(name) => format!("Rust package {name} (cargo test -p {name})"),
            None => "a Cargo workspace (cargo test)".to_owned(),
        });
    }
    if let Some(text) = read("package.json") {
        let scripts = keys_of(&text, "\"scripts\"");
        let name = after(&text, "\"name\"").unwrap_or("npm package");
        let list = listed(&scripts);
        parts.push(if list.is_empty() { name.to_owned() } else { format!("{name} (npm run {list})") });
    }
    if let Some(text) = read("pyproject.toml") {
        let name = value_of(&text, "[project]", "name").unwrap_or("Python package");
        let test = if text.contains("pytest") { " (pytest)" } else { "" };
        parts.push(format!("{name}{test}"));
    }
    if let Some(text) = read("go.mod") {
        let module = text.lines().find_map(|line| line.strip_prefix("module ")).unwrap_or("Go module");
        parts.push(format!("{} (go test ./...)", module.trim()));
    }
    for (file, command) in
        [("pom.xml", "mvn test"), ("build.gradle", "gradle test"), ("build.gradle.kts", "gradle test")]
    {
        if has(file).is_some() {
            parts.push(format!("{file} ({command})"));
        }
    }
    if let Some(text) = read("Makefile") {
        let list = listed(&targets(&text));
        parts.push(format!("make {list}"));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn listed(names: &[&str]) -> String {
    let mut text = names.iter().take(MAX_COMMANDS).copied().collect::<Vec<_>>().join(" | ");
    if names.len() > MAX_COMMANDS {
        let _ = write!(text, " | {} more", names.len() - MAX_COMMANDS);
    }
    text
}

/// The text behind a key of TOML, in its table.
fn value_of<'a>(text: &'a str, table: &str, key: &str) -> Option<&'a str> {
    let lines = text.lines().skip_while(|line| line.trim() != table).skip(1);
    let mut own = lines.take_while(|line| !line.starts_with('['));
    own.find_map(|line| {
        let value = line.strip_prefix(key)?.trim_start().strip_prefix('=')?.trim();
        value.strip_prefix('"')?.split('"').next()
    })
}

/// The text behind the first such key of JSON.
fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, behind) = text.split_once(key)?;
    behind.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?.split('"').next()
}

/// Keys of an object of JSON whose values are texts.
fn keys_of<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let inside = text.split_once(key).and_then(|(_, behind)| behind.trim_start().strip_prefix(':'));
    let Some(inside) = inside.and_then(|behind| behind.trim_start().strip_prefix('{')) else {
        return Vec::new();
    };
    let lines = inside.lines().take_while(|line| !line.trim_start().starts_with('}'));
    lines
        .filter_map(|line| line.trim_start().strip_prefix('"')?.split_once('"'))
        .filter(|(_, behind)| behind.trim_start().starts_with(':'))
        .map(|(key, _)| key)
        .collect()
}

/// Targets of a Makefile that have a name of their own.
fn targets(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for line in text.lines() {
        let Some((name, behind)) = line.split_once(':') else { continue };
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if is_name && !behind.starts_with('=') && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}
