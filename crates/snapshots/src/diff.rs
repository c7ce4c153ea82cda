//! What is different between two snapshots.

use crate::meta::Meta;
use crate::worker_store::{Id, Node, Store, What, add_node, nodes};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

/// A file or a link as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub what: What,
    /// Its permissions, 12 bits; 0 for a link.
    pub mode: u32,
    pub id: Id,
}

/// What became of a path; none is that there is no file or link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub before: Option<Entry>,
    pub after: Option<Entry>,
}

/// A snapshot that can be asked for paths.
pub struct View<'a> {
    store: &'a Store,
    tree: Id,
    meta: Meta,
    /// Trees that were read.
    trees: HashMap<Id, BTreeMap<String, Node>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(store: &'a Store, tree: Id, meta: Meta) -> Self {
        Self { store, tree, meta, trees: HashMap::new() }
    }

    fn entry(&self, path: &str, node: Node) -> Entry {
        let mode = match node.what {
            What::Link | What::Folder => 0,
            What::File => self.meta.mode(path, false),
            What::Program => self.meta.mode(path, true),
        };
        Entry { what: node.what, mode, id: node.id }
    }

    /// What was at a path, be it a folder.
    ///
    /// Errors: the store cannot be read.
    pub fn find(&mut self, path: &str) -> io::Result<Option<Entry>> {
        let mut node = Node { what: What::Folder, id: self.tree };
        for part in path.split('/') {
            if node.what != What::Folder {
                return Ok(None);
            }
            if !self.trees.contains_key(&node.id) {
                let tree = nodes(&self.store.get(node.id)?)?;
                self.trees.insert(node.id, tree);
            }
            match self.trees.get(&node.id).and_then(|tree| tree.get(part)) {
                Some(found) => node = *found,
                None => return Ok(None),
            }
        }
        Ok(Some(self.entry(path, node)))
    }

    /// The same for files and links alone.
    ///
    /// Errors: as [`View::find`].
    pub fn file(&mut self, path: &str) -> io::Result<Option<Entry>> {
        Ok(self.find(path)?.filter(|entry| entry.what != What::Folder))
    }

    /// Why a path is not in it, where it was left out: by its own name, or a folder's above.
    pub fn why_left(&self, path: &str) -> Option<&str> {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        above.chain([path]).find_map(|path| self.meta.left.get(path)).map(String::as_str)
    }
}

/// Folders that differ, by path, with the tree of each side.
type Level = Vec<(String, Option<Id>, Option<Id>)>;

/// What is different from `one` to `other`, by path.
///
/// Errors: the store cannot be read.
pub fn changes(one: &mut View<'_>, other: &mut View<'_>) -> io::Result<BTreeMap<String, Change>> {
    let mut found = BTreeMap::new();
    let mut level: Level = Vec::new();
    if one.tree != other.tree {
        level.push((String::new(), Some(one.tree), Some(other.tree)));
    }
    while !level.is_empty() {
        // A level at a time, so that what is packed is asked for once.
        let ids: BTreeSet<Id> = level.iter().flat_map(|(_, one, other)| [*one, *other]).flatten().collect();
        let ids: Vec<Id> = ids.into_iter().collect();
        let mut trees = HashMap::new();
        for (id, bytes) in ids.iter().zip(one.store.get_all(&ids)?) {
            trees.insert(*id, nodes(&bytes)?);
        }
        let mut next = Level::new();
        let empty = BTreeMap::new();
        for (path, before, after) in level {
            let tree = |id: Option<Id>| id.and_then(|id| trees.get(&id)).unwrap_or(&empty);
            let (before, after) = (tree(before), tree(after));
            for name in before.keys().chain(after.keys().filter(|name| !before.contains_key(*name))) {
                let whole = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                let (was, is) = (before.get(name).copied(), after.get(name).copied());
                if was == is {
                    continue;
                }
                let folder =
                    |node: Option<Node>| node.filter(|node| node.what == What::Folder).map(|node| node.id);
                let (folders, file) = ((folder(was), folder(is)), |node: &Node| node.what != What::Folder);
                if folders != (None, None) {
                    next.push((whole.clone(), folders.0, folders.1));
                }
                let (was, is) = (was.filter(file), is.filter(file));
                if was.is_some() || is.is_some() {
                    let before = was.map(|node| one.entry(&whole, node));
                    let after = is.map(|node| other.entry(&whole, node));
                    found.insert(whole, Change { before, after });
                }
            }
        }
        level = next;
    }
    only_modes(one, other, &mut found)?;
    Ok(found)
}

/// Files of which nothing but the permissions has changed, in a way that a tree does not tell.
fn only_modes(
    one: &mut View<'_>,
    other: &mut View<'_>,
    found: &mut BTreeMap<String, Change>,
) -> io::Result<()> {
    if one.meta.mask == other.meta.mask && one.meta.modes == other.meta.modes {
        return Ok(());
    }
    let paths: BTreeSet<String> = one.meta.modes.keys().chain(other.meta.modes.keys()).cloned().collect();
    for path in paths {
        let is_same =
            one.meta.mask == other.meta.mask && one.meta.modes.get(&path) == other.meta.modes.get(&path);
        if is_same || found.contains_key(&path) {
            continue;
        }
        let change = Change { before: one.file(&path)?, after: other.file(&path)? };
        if change.before != change.after {
            found.insert(path, change);
        }
    }
    Ok(())
}

/// Keeps a tree of these files alone, so that git can be asked what is different between two such.
///
/// Errors: the store cannot be written.
pub fn tree_of(store: &Store, files: &[(&str, Entry)]) -> io::Result<Id> {
    let mut folders: BTreeMap<&str, Vec<(&str, Entry)>> = BTreeMap::new();
    // With the slash that git's order has behind folders.
    let mut names: BTreeMap<String, Node> = BTreeMap::new();
    for (path, entry) in files {
        match path.split_once('/') {
            Some((folder, rest)) => folders.entry(folder).or_default().push((rest, *entry)),
            None => drop(names.insert((*path).to_owned(), Node { what: entry.what, id: entry.id })),
        }
    }
    for (folder, files) in folders {
        let id = tree_of(store, &files)?;
        names.insert(format!("{folder}/"), Node { what: What::Folder, id });
    }
    let mut tree = Vec::new();
    for (name, node) in names {
        add_node(&mut tree, name.trim_end_matches('/'), node);
    }
    store.put("tree", &tree)
}
