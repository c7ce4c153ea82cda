//! The walls inside of the daemon, read from its syntax trees: which feature uses which.
//! docs/develop/modules.md draws it, so that a new arrow is seen by whoever reads the change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use syn::visit::{self, Visit};

use crate::tidy::{expect_file, files};

/// Modules that are no features: the model below them, what an endpoint is, and what puts all together.
const FLOORS: [&str; 3] = ["core", "assembly", "endpoint"];
/// The floors that name features, and nothing but their types: data, no rule.
const MODEL: [&str; 2] = ["core", "endpoint"];
/// The one circle: a life's start, its context, what it uses and what it learned are one thing.
const LIFE: [&str; 4] = ["agents", "context", "memory", "usage"];

type Graph = BTreeMap<String, BTreeSet<String>>;

/// A path from the crate's root: `["agents", "report", "RunReport"]`.
type Path = Vec<String>;

/// A file by its path below `src/`, in parts, and what it names.
type Named = (Path, BTreeSet<Path>);

/// What of the crate a file names.
#[derive(Default)]
struct Names {
    /// Where the file stands: `["agents", "worker"]`.
    place: Path,
    /// What it has imported, by the names it has here.
    imported: BTreeMap<String, Path>,
    found: BTreeSet<Path>,
}

impl Names {
    /// The names in this file, tests apart.
    fn of(place: Path, file: &syn::File) -> BTreeSet<Path> {
        let mut names = Self { place, ..Self::default() };
        names.visit_file(file);
        names.found
    }

    /// The path from the crate's root, if it is one of the crate's.
    fn resolve(&self, segments: &[String]) -> Option<Path> {
        let ups = segments.iter().take_while(|segment| *segment == "super").count();
        match segments.first()?.as_str() {
            "crate" => Some(segments[1..].to_vec()),
            "super" if ups == self.place.len() => Some(segments[ups..].to_vec()),
            first => Some([self.imported.get(first)?, &segments[1..]].concat()),
        }
    }

    fn tree(&mut self, before: &mut Path, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
            syn::UseTree::Name(name) => self.imports(before, &name.ident.to_string(), None),
            syn::UseTree::Rename(name) => {
                self.imports(before, &name.ident.to_string(), Some(name.rename.to_string()));
            }
            // Whatever it may be: no type.
            syn::UseTree::Glob(_) => self.imports(before, "*", None),
        }
    }

    fn imports(&mut self, before: &Path, name: &str, renamed: Option<String>) {
        let whole = if name == "self" { before.clone() } else { [&before[..], &[name.to_owned()]].concat() };
        let Some(path) = self.resolve(&whole) else { return };
        self.found.insert(path.clone());
        let name = renamed.or_else(|| path.last().cloned()).unwrap_or_default();
        self.imported.insert(name, path);
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
        let segments: Path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.found.extend(self.resolve(&segments));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        // What a macro is given is no syntax tree yet: its words outside of quotes, `$feature` like a name.
        let text = call.tokens.to_string().replace(" ::", "::").replace(":: ", "::").replace("$ ", "$");
        let code = text.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        for word in code.split(|c: char| !(c.is_alphanumeric() || "_:$".contains(c))) {
            let segments: Path = word.split("::").map(str::to_owned).collect();
            let path = self.resolve(&segments).filter(|_| segments.len() > 1);
            self.found.extend(path);
        }
        visit::visit_macro(self, call);
    }
}

/// What each file of the daemon names, tests apart.
fn named() -> Vec<Named> {
    let read = |(name, text): &(String, String)| {
        let inside = name.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
        let place: Path = inside.split('/').map(str::to_owned).collect();
        let is_test = place.iter().any(|part| part.contains("test"));
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (!is_test).then(|| (place.clone(), Names::of(place, &file)))
    };
    files(&["src"], &[".rs"]).iter().filter_map(read).collect()
}

/// The features: the folders that are no floors.
fn features(named: &[Named]) -> BTreeSet<String> {
    let folders = named.iter().filter(|(place, _)| place.len() > 1).map(|(place, _)| place[0].clone());
    folders.filter(|name| !FLOORS.contains(&name.as_str())).collect()
}

/// Which feature uses which, tests apart.
fn graph(named: Vec<Named>) -> Graph {
    let features = features(&named);
    let mut graph: Graph = features.iter().map(|name| (name.clone(), BTreeSet::new())).collect();
    for (place, found) in named {
        let Some(uses) = graph.get_mut(&place[0]) else { continue };
        let others = found.into_iter().filter_map(|path| path.into_iter().next());
        uses.extend(others.filter(|found| *found != place[0] && features.contains(found)));
    }
    graph
}

/// Whether a path ends at a type, or at a module that only leads to some.
fn is_type(path: &Path, modules: &BTreeSet<Path>) -> bool {
    let is_capital =
        |name: &String| name.trim_start_matches('$').starts_with(|c: char| c.is_ascii_uppercase());
    let is_upper = path.last().is_some_and(is_capital);
    is_upper || modules.contains(path)
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

/// In one test, for the whole source is read for it, which takes two seconds.
#[test]
fn the_walls_inside_of_the_daemon_stand_and_their_drawing_is_true() {
    let named = named();
    the_model_names_types_of_features_and_no_rule(&named);
    features_name_nothing_of_the_assembly_but_the_means_of_handlers(&named);
    let graph = graph(named);
    features_use_each_other_in_one_direction_but_for_the_life_of_an_agent(&graph);
    the_drawing_of_the_features_is_true(&graph);
}

fn features_use_each_other_in_one_direction_but_for_the_life_of_an_agent(graph: &Graph) {
    let life: BTreeSet<String> = LIFE.map(str::to_owned).into();
    assert_eq!(circles(graph), BTreeSet::from([life]), "a circle between features");
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
    let place = ["agents", "worker"].map(str::to_owned).to_vec();
    let found = Names::of(place, &syn::parse_file(text).unwrap());
    let firsts: BTreeSet<&String> = found.iter().filter_map(|path| path.first()).collect();
    assert_eq!(firsts.into_iter().collect::<Vec<_>>(), ["market", "memory", "teams", "usage"]);
}

fn the_model_names_types_of_features_and_no_rule(named: &[Named]) {
    let (features, modules) = (features(named), named.iter().map(|(place, _)| place.clone()).collect());
    let model = named.iter().filter(|(place, _)| MODEL.contains(&place[0].as_str()));
    let rules: Vec<String> = model
        .flat_map(|(place, found)| found.iter().map(move |path| (place, path)))
        .filter(|(_, path)| path.first().is_some_and(|name| features.contains(name) || name.starts_with('$')))
        .filter(|(_, path)| !is_type(path, &modules))
        .map(|(place, path)| format!("src/{}: {}", place.join("/"), path.join("::")))
        .collect();
    assert!(
        rules.is_empty(),
        "the model is below the rules; the dispatch is in assembly/:\n{}",
        rules.join("\n")
    );
}

fn features_name_nothing_of_the_assembly_but_the_means_of_handlers(named: &[Named]) {
    let below = named.iter().filter(|(place, _)| place[0] != "assembly" && place[0] != "main");
    let found: Vec<String> = below
        .flat_map(|(place, found)| found.iter().map(move |path| (place, path)))
        .filter(|(_, path)| path.first().is_some_and(|name| name == "assembly"))
        .filter(|(_, path)| path.get(1).is_none_or(|name| name != "host"))
        .map(|(place, path)| format!("src/{}: {}", place.join("/"), path.join("::")))
        .collect();
    assert!(
        found.is_empty(),
        "the assembly is above the features, and they know its host.rs alone:\n{}",
        found.join("\n")
    );
}

#[test]
fn a_rule_named_by_the_model_would_be_seen() {
    let text = "use crate::{agents::{self, report::RunReport}, context as briefing, usage::clock_set};\n\
                struct All { agents: agents::State, next: briefing::Report, last: RunReport }\n\
                fn f() { agents::stop_all(); briefing::State::default(); rows!(crate::teams::found(x), agents::Job) }\n\
                macro_rules! each { ($f:ident $T:ident) => { struct A(crate::$f::$T); crate::$f::due(\"agents::x\") } }";
    let found = Names::of(vec!["core".into()], &syn::parse_file(text).unwrap());
    let modules = BTreeSet::from([vec!["agents".to_owned()], vec!["context".to_owned()]]);
    let rules: Vec<String> =
        found.iter().filter(|path| !is_type(path, &modules)).map(|path| path.join("::")).collect();
    assert_eq!(
        rules,
        ["$f::due", "agents::stop_all", "context::State::default", "teams::found", "usage::clock_set"]
    );
    assert!(found.contains(["agents", "Job"].map(str::to_owned).as_slice()), "{found:?}");
}

#[test]
fn a_feature_with_all_there_is_takes_nine_lines_in_five_files_outside_of_its_folder() {
    let is_floor = |name: &str| {
        let folder = name.split('/').nth(1).unwrap_or_default();
        name.matches('/').count() == 1 || FLOORS.contains(&folder) || name == "src/gateways/digest.rs"
    };
    let sources = files(&["src"], &[".rs"]);
    let outside = sources.iter().filter(|(name, _)| is_floor(name) && !name.contains("test"));
    let lines: Vec<&str> = outside
        .flat_map(|(name, text)| {
            let code = text.split("mod tests {").next().unwrap_or_default();
            let is_plug = |line: &&str| !line.trim().starts_with("//") && line.contains("ournalist");
            code.lines().filter(is_plug).map(move |_| name.as_str())
        })
        .collect();
    let files: BTreeSet<&str> = lines.iter().copied().collect();
    let told = "`journalist`, which has all of that, takes nine lines in five files";
    assert_eq!((lines.len(), files.len()), (9, 5), "ARCHITECTURE.md says: {told}; {lines:?}");
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    assert!(std::fs::read_to_string(page).unwrap().contains(told));
}

fn the_drawing_of_the_features_is_true(graph: &Graph) {
    let mut text = String::from(
        "# Which feature uses which\n\n\
         Drawn by `UPDATE_EXPECT=1 cargo nextest run -p svc --test it modules::` from the syntax trees of `src/`, tests \
         apart; the\nsame tests hold the floors and refuse a circle. Four floors, each of which knows what is below it:\n\n\
         1. the model, `core`: the state, and what may happen to it. It names types of features and none of their \
         functions\n\
         2. `endpoint`: what a request comes to, by the same rule\n\
         3. the features, which are the rules. Of the assembly their threads name the means it gives them, \
         `assembly::host`, and one function\n\
         4. `assembly`: gives each event to its rule, and has the threads\n\n\
         Below are crates, whose walls the compiler keeps. Drawn are the features alone: an arrow is a `use` or a path; \
         reading another\nfeature's part of the state through its methods needs none.\n\n",
    );
    text.push_str(
        "Lowest first; a feature uses only what stands above it in this list, but for the one circle, the life of an \
         agent\n(`agents`, `context`, `memory`, `usage`): a life begins with a context that is made of what was \
         learned and may be used.\n\n",
    );
    for (at, floor) in floors(graph).iter().enumerate() {
        let _ = writeln!(text, "{}. {}", at + 1, floor.join(", "));
    }
    text.push_str("\n```mermaid\nflowchart BT\n");
    for (from, uses) in graph {
        for to in uses {
            let _ = writeln!(text, "    {from} --> {to}");
        }
    }
    text.push_str("```\n");
    expect_file("docs/develop/modules.md", &text);
}
