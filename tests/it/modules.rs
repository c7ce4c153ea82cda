//! The walls inside of the daemon, read from its syntax trees: which feature uses which.
//! docs/develop/modules.md draws it, so that a new arrow is seen by whoever reads the change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use syn::visit::{self, Visit};

use crate::tidy::{expect_file, files};

/// Modules that name all features by their nature: the state and its dispatch, and what puts all together.
const ABOVE: [&str; 3] = ["core", "assembly", "endpoint"];
/// The one circle: a life's start, its context, what it uses and what it learned are one thing.
const LIFE: [&str; 4] = ["agents", "context", "memory", "usage"];

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The modules of the crate that a file names.
struct Names {
    /// Where the file stands: `["agents", "worker"]`.
    place: Vec<String>,
    found: BTreeSet<String>,
}

impl Names {
    fn path(&mut self, segments: &[String]) {
        let ups = segments.iter().take_while(|segment| *segment == "super").count();
        let first = match segments.first().map(String::as_str) {
            Some("crate") => segments.get(1),
            Some("super") if ups == self.place.len() => segments.get(ups),
            _ => None,
        };
        self.found.extend(first.cloned());
    }

    fn tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
            syn::UseTree::Name(name) => {
                let whole: Vec<String> = before.iter().cloned().chain([name.ident.to_string()]).collect();
                self.path(&whole);
            }
            syn::UseTree::Rename(name) => {
                let whole: Vec<String> = before.iter().cloned().chain([name.ident.to_string()]).collect();
                self.path(&whole);
            }
            syn::UseTree::Glob(_) => self.path(before),
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
    })
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.place.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.place.pop();
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(&segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        // What a macro is given is no syntax tree yet.
        let text = call.tokens.to_string();
        for rest in text.split("crate :: ").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            self.path(&["crate".to_owned(), name]);
        }
        visit::visit_macro(self, call);
    }
}

/// Which feature uses which, tests apart.
fn graph() -> Graph {
    let sources = files(&["src"], &[".rs"]);
    let place = |name: &str| -> Vec<String> {
        let inside = name.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
        inside.split('/').map(str::to_owned).collect()
    };
    let features: BTreeSet<String> = sources
        .iter()
        .filter(|(name, _)| name.matches('/').count() > 1)
        .map(|(name, _)| place(name).swap_remove(0))
        .filter(|name| !ABOVE.contains(&name.as_str()))
        .collect();
    let mut graph: Graph = features.iter().map(|name| (name.clone(), BTreeSet::new())).collect();
    for (name, text) in &sources {
        let place = place(name);
        let is_test = place.iter().any(|part| part.contains("test"));
        let Some(uses) = graph.get_mut(&place[0]).filter(|_| !is_test) else { continue };
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let own = place[0].clone();
        let mut names = Names { place, found: BTreeSet::new() };
        names.visit_file(&file);
        uses.extend(names.found.into_iter().filter(|found| *found != own && features.contains(found)));
    }
    graph
}

/// Everything that can be reached from a module.
fn below(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(next) = open.pop() {
        for name in &graph[&next] {
            if found.insert(name.clone()) {
                open.push(name.clone());
            }
        }
    }
    found
}

/// Modules that can reach themselves, each with those that it shares a circle with.
fn circles(graph: &Graph) -> BTreeSet<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|name| (name, below(graph, name))).collect();
    let circle = |name: &&String| -> BTreeSet<String> {
        reach[name].iter().filter(|other| reach[other].contains(*name)).cloned().collect()
    };
    graph.keys().filter(|name| reach[name].contains(*name)).map(|name| circle(&name)).collect()
}

/// How far above the lowest features each one is; a circle counts as one.
fn floors(graph: &Graph) -> Vec<Vec<String>> {
    let mut floors: Vec<Vec<String>> = Vec::new();
    let mut placed: BTreeSet<String> = BTreeSet::new();
    while placed.len() < graph.len() {
        let is_ready = |name: &&String| {
            let own = |other: &String| below(graph, other).contains(*name);
            !placed.contains(*name)
                && below(graph, name)
                    .iter()
                    .all(|other| placed.contains(other) || own(other) || other == *name)
        };
        let floor: Vec<String> = graph.keys().filter(is_ready).cloned().collect();
        placed.extend(floor.iter().cloned());
        floors.push(floor);
    }
    floors
}

#[test]
fn features_use_each_other_in_one_direction_but_for_the_life_of_an_agent() {
    let life: BTreeSet<String> = LIFE.map(str::to_owned).into();
    assert_eq!(circles(&graph()), BTreeSet::from([life]), "a circle between features");
}

#[test]
fn a_circle_would_be_seen() {
    let graph = |arrows: &[(&str, &str)]| {
        let mut graph = Graph::new();
        for (from, to) in arrows {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            graph.entry((*to).to_owned()).or_default();
        }
        graph
    };
    assert!(circles(&graph(&[("a", "b"), ("b", "c")])).is_empty());
    let found = circles(&graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]));
    assert_eq!(found, BTreeSet::from([["a", "b", "c"].map(str::to_owned).into()]));
    let text = "use crate::{usage, teams::plan as p};\nfn f() { json!(crate::memory::x()); super::super::market::y() }\n\
                #[cfg(test)]\nmod tests { use crate::toys; }";
    let mut names = Names { place: vec!["agents".into(), "worker".into()], found: BTreeSet::new() };
    names.visit_file(&syn::parse_file(text).unwrap());
    assert_eq!(names.found.into_iter().collect::<Vec<_>>(), ["market", "memory", "teams", "usage"]);
}

#[test]
fn the_drawing_of_the_features_is_true() {
    let graph = graph();
    let mut text = String::from(
        "# Which feature uses which\n\nDrawn by `UPDATE_EXPECT=1 cargo nextest run -p svc --test it modules::` from the \
         syntax trees of `src/`, tests apart; the\nsame test refuses a circle. An arrow is a `use` or a path; reading \
         another feature's part of the state through its methods\nneeds none. Not drawn: `core`, `endpoint` and \
         `assembly`, which name all features, and the crates below, whose walls\nthe compiler keeps.\n\n",
    );
    text.push_str("Lowest first; a feature uses only what stands above it in this list, but for the one circle, \
                   the life of an agent\n(`agents`, `context`, `memory`, `usage`): a life begins with a context that \
                   is made of what was learned and may be used.\n\n");
    for (at, floor) in floors(&graph).iter().enumerate() {
        let _ = writeln!(text, "{}. {}", at + 1, floor.join(", "));
    }
    text.push_str("\n```mermaid\nflowchart BT\n");
    for (from, uses) in &graph {
        for to in uses {
            let _ = writeln!(text, "    {from} --> {to}");
        }
    }
    text.push_str("```\n");
    expect_file("docs/develop/modules.md", &text);
}
