//! Which workspaces a project declares: npm, yarn, pnpm, lerna, Cargo, Go and uv, and packages that stand
//! side by side without a declaration.

use super::{Folder, Folders, MANIFEST_BITS, MAX_WORKSPACES, Workspace, counts};
use glob::{MatchOptions, Pattern};
use serde_json::Value;
use std::collections::BTreeMap;

/// Patterns of one declaration that are looked at.
const MAX_PATTERNS: usize = 200;

/// A star stays within one folder, as all these tools have it.
const MATCH: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Finds the workspaces. `read` gives the text of a manifest by its path, or nothing.
pub fn detect(folders: &Folders, read: &mut dyn FnMut(&str) -> Option<String>) -> Vec<Workspace> {
    let mut found = BTreeMap::new();
    let root = folders.get("").cloned().unwrap_or_default();
    let packages: Packages = folders
        .iter()
        .filter(|(path, folder)| folder.marks & MANIFEST_BITS != 0 && !path.is_empty())
        .map(|(path, folder)| (&**path, folder))
        .collect();
    let mut manifest = |name: &str| root.has(name).then(|| read(name)).flatten();
    let package =
        manifest("package.json").and_then(|text| serde_json::from_slice::<Value>(text.as_bytes()).ok());
    let javascript = [
        ("pnpm-workspaces", manifest("pnpm-workspace.yaml").map(|text| pnpm_packages(&text))),
        (
            if root.has("yarn.lock") { "yarn-workspaces" } else { "npm-workspaces" },
            package.as_ref().and_then(package_workspaces),
        ),
        ("lerna-workspaces", manifest("lerna.json").and_then(|text| lerna_packages(&text))),
    ];
    let mut declared = false;
    for (kind, patterns) in javascript {
        let Some(patterns) = patterns else { continue };
        declared = true;
        add(&mut found, &packages, kind, "package.json", &patterns, &[]);
    }
    if !declared {
        side_by_side(&mut found, &packages);
    }
    if let Some(text) = manifest("Cargo.toml") {
        let (members, without) = toml_lists(&text, "workspace", "members", "exclude");
        add(&mut found, &packages, "cargo-workspaces", "Cargo.toml", &members, &without);
    }
    if let Some(text) = manifest("go.work") {
        add(&mut found, &packages, "go-workspaces", "go.mod", &go_uses(&text), &[]);
    }
    if let Some(text) = manifest("pyproject.toml") {
        let (members, without) = toml_lists(&text, "tool.uv.workspace", "members", "exclude");
        add(&mut found, &packages, "uv-workspaces", "pyproject.toml", &members, &without);
    }
    found.into_iter().take(MAX_WORKSPACES).map(|(path, kind)| record(folders, path, kind, read)).collect()
}

fn record(
    folders: &Folders,
    path: String,
    (kind, manifest): (&'static str, &'static str),
    read: &mut dyn FnMut(&str) -> Option<String>,
) -> Workspace {
    let (files, dirs) = counts(folders, &path);
    let folder_name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let declared = read(&format!("{path}/{manifest}")).and_then(|text| match manifest {
        "package.json" => {
            serde_json::from_slice::<Value>(text.as_bytes()).ok()?["name"].as_str().map(ToOwned::to_owned)
        }
        "Cargo.toml" => toml_string(&text, "package", "name"),
        "pyproject.toml" => toml_string(&text, "project", "name"),
        _ => text
            .lines()
            .find_map(|line| line.trim().strip_prefix("module "))
            .map(|name| name.trim().to_owned()),
    });
    let name = declared.filter(|name| !name.trim().is_empty()).unwrap_or(folder_name);
    Workspace { path, name, kind, files, dirs }
}

/// Folders below the root that hold a manifest.
type Packages<'a> = Vec<(&'a str, &'a Folder)>;
type Found = BTreeMap<String, (&'static str, &'static str)>;

/// Adds every folder with the manifest that a pattern names. A pattern with `!` takes folders away. The first
/// declaration of a folder counts.
fn add(
    found: &mut Found,
    packages: &Packages,
    kind: &'static str,
    manifest: &'static str,
    patterns: &[String],
    without: &[String],
) {
    let compile = |text: String| Pattern::new(text.trim_start_matches("./").trim_end_matches('/')).ok();
    let wanted = patterns.iter().filter(|text| !text.starts_with('!')).flat_map(|text| braces(text));
    let wanted: Vec<Pattern> = wanted.take(MAX_PATTERNS).filter_map(compile).collect();
    let negated = patterns.iter().filter_map(|text| text.strip_prefix('!'));
    let unwanted = negated.chain(without.iter().map(String::as_str)).flat_map(braces);
    let unwanted: Vec<Pattern> = unwanted.take(MAX_PATTERNS).filter_map(compile).collect();
    if wanted.is_empty() {
        return;
    }
    for (path, _) in packages.iter().filter(|(_, folder)| folder.has(manifest)) {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches_with(path, MATCH));
        if any(&wanted) && !any(&unwanted) {
            found.entry((*path).to_owned()).or_insert((kind, manifest));
        }
    }
}

/// `a/{b,c}` as `a/b` and `a/c`; the first braces only.
fn braces(text: &str) -> Vec<String> {
    let split = text.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)));
    let Some((head, (choices, tail))) = split else { return vec![text.to_owned()] };
    choices.split(',').map(|choice| format!("{head}{choice}{tail}")).collect()
}

/// Two or more packages at depth 1 or 2 that nothing declares.
fn side_by_side(found: &mut Found, packages: &Packages) {
    let near = |path: &str| path.split('/').count() <= 2;
    let packages: Vec<_> =
        packages.iter().filter(|(path, folder)| near(path) && folder.has("package.json")).collect();
    if packages.len() > 1 {
        found.extend(packages.iter().map(|(path, _)| ((*path).into(), ("multi-package", "package.json"))));
    }
}

fn strings(value: &Value) -> Option<Vec<String>> {
    let list = value.as_array()?;
    Some(list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect())
}

/// `workspaces: [...]`, or `workspaces: {packages: [...]}`.
fn package_workspaces(package: &Value) -> Option<Vec<String>> {
    let field = &package["workspaces"];
    strings(field).or_else(|| strings(&field["packages"]))
}

/// `packages` of `lerna.json`; its own default is `packages/*`, unless it says that npm's list counts.
fn lerna_packages(text: &str) -> Option<Vec<String>> {
    let lerna: Value = serde_json::from_slice(text.as_bytes()).ok()?;
    if lerna["useWorkspaces"] == true {
        return None;
    }
    Some(strings(&lerna["packages"]).unwrap_or_else(|| vec!["packages/*".into()]))
}

/// The `packages:` list of `pnpm-workspace.yaml`, in block or flow style.
pub fn pnpm_packages(text: &str) -> Vec<String> {
    let mut lines = text.lines().map(without_comment);
    let mut packages = Vec::new();
    let Some(first) = lines.by_ref().find_map(|line| line.strip_prefix("packages:").map(str::to_owned))
    else {
        return packages;
    };
    let mut flow = first.trim().to_owned();
    for line in lines {
        let item = line.trim();
        if flow.starts_with('[') {
            if flow.contains(']') {
                break;
            }
            flow.push_str(item);
        } else if let Some(item) = item.strip_prefix('-') {
            packages.push(unquoted(item));
        } else if !item.is_empty() {
            break;
        }
    }
    if let Some(inner) = flow.strip_prefix('[') {
        let inner = inner.split(']').next().unwrap_or_default();
        packages.extend(inner.split(',').map(unquoted));
    }
    packages.retain(|package| !package.is_empty());
    packages
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches(['"', '\'']).to_owned()
}

/// A line up to its comment; a `#` inside quotes, or right after a word, is none.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '#' && before.is_whitespace() => return &line[..at],
            _ => {}
        }
        before = c;
    }
    line
}

/// `use` directives of `go.work`, alone or in a block.
pub fn go_uses(text: &str) -> Vec<String> {
    let mut uses = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        match line.strip_prefix("use").filter(|rest| rest.starts_with([' ', '\t', '('])) {
            Some(rest) if rest.trim() == "(" => in_block = true,
            Some(rest) => uses.push(unquoted(rest)),
            None if line == ")" => in_block = false,
            None if in_block && !line.is_empty() => uses.push(unquoted(line)),
            None => {}
        }
    }
    uses
}

/// The text of one TOML table, and the key within it: `[table]` with `key = `, or `last.key = ` in its
/// parent.
fn toml_value(text: &str, table: &str, key: &str) -> Option<String> {
    let (parent, last) = table.rsplit_once('.').unwrap_or(("", table));
    let mut here = String::new();
    let mut lines = text.lines().map(without_comment);
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            header.trim_matches(['[', ']', ' ']).clone_into(&mut here);
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        let name = name.trim();
        let direct = here == table && name == key;
        let dotted = here == parent && name.strip_prefix(last).is_some_and(|rest| rest == format!(".{key}"));
        if !direct && !dotted {
            continue;
        }
        let mut value = value.trim().to_owned();
        // A list goes on until its bracket.
        while value.starts_with('[') && !value.contains(']') {
            value.push_str(lines.next()?.trim());
        }
        return Some(value);
    }
    None
}

fn toml_string(text: &str, table: &str, key: &str) -> Option<String> {
    toml_value(text, table, key).filter(|value| value.starts_with(['"', '\''])).map(|value| unquoted(&value))
}

fn toml_list(text: &str, table: &str, key: &str) -> Vec<String> {
    let value = toml_value(text, table, key).unwrap_or_default();
    let Some(inner) = value.strip_prefix('[').and_then(|rest| rest.split(']').next()) else {
        return Vec::new();
    };
    inner.split(',').map(unquoted).filter(|item| !item.is_empty()).collect()
}

fn toml_lists(text: &str, table: &str, wanted: &str, unwanted: &str) -> (Vec<String>, Vec<String>) {
    (toml_list(text, table, wanted), toml_list(text, table, unwanted))
}
