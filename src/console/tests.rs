//! What the pages promise, read from the files themselves.

use super::*;

#[test]
fn what_agents_say_cannot_become_markup() {
    for asset in assets::ALL.iter().filter(|asset| asset.content_type().contains("javascript")) {
        for door in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "srcdoc",
            "eval(",
            "new Function",
            "setAttribute(\"style\"",
            "javascript:",
            "setHTML",
        ] {
            assert!(!asset.text.contains(door), "{} holds {door}", asset.name);
        }
    }
}

#[test]
fn decisions_1_nothing_is_inline_and_nothing_comes_from_elsewhere() {
    let page = page(&State::default());
    assert!(page.contains("No agents yet") && page.contains("<noscript>"));
    assert!(page.contains("modulepreload") && !page.contains("<!--"));
    for inline in [" style=", "<style", " onclick", " onload", "javascript:", "http://", "https://"] {
        assert!(!page.contains(inline), "the page holds {inline}");
    }
    for script in page.split("<script").skip(1) {
        assert!(script.contains("></script>"), "a script stands in the page: {script}");
    }
    for asset in assets::ALL {
        let text = asset.text.replace("http://www.w3.org/2000/svg", "");
        for far in ["http://", "https://", "@import", "url(", "sourceMappingURL"] {
            assert!(!text.contains(far), "{} names {far}", asset.name);
        }
    }
}

#[test]
fn the_whole_console_stays_below_its_weight() {
    let weight = assets::SHELL.len() + assets::ALL.iter().map(|asset| asset.text.len()).sum::<usize>();
    assert!(weight < WEIGHT_LIMIT_BYTES, "{weight} bytes, the limit is {WEIGHT_LIMIT_BYTES}");
}

#[test]
fn every_import_leads_to_a_file() {
    for asset in assets::ALL.iter().filter(|asset| asset.content_type().contains("javascript")) {
        for part in asset.text.split(" from \"./").skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            assert!(assets::find(name).is_some(), "{} imports {name}, which is not served", asset.name);
        }
    }
    let main = assets::find("main.js").map_or("", |asset| asset.text);
    let pages = main
        .split_once("PAGES = [")
        .and_then(|(_, rest)| rest.split_once("\n];"))
        .map_or("", |(list, _)| list);
    let modules: Vec<&str> = pages.lines().filter_map(|line| line.split('"').nth(5)).collect();
    assert!(modules.len() >= 10, "{modules:?}");
    for module in modules {
        assert!(assets::find(&format!("{module}.js")).is_some(), "page {module} is not served");
    }
}

#[test]
fn what_is_served_has_the_lines_of_the_source_without_indentation_and_comments() {
    let source = "// Told once.\n\n/**\n * A sum.\n */\nexport function sum(a, b) {\n  // both\n  return a + b; // here\n}\n";
    let served = lean::lean("sum.js", source).unwrap();
    assert_eq!(served, "export function sum(a, b) {\nreturn a + b; // here\n}\n");
    let styles = lean::lean("a.css", "/* Colours. */\nb {\n  color: red;\n}\n").unwrap();
    assert_eq!(styles, "b {\ncolor: red;\n}\n");
    assert_eq!(lean::lean("a.svg", " <svg/>\n").unwrap(), " <svg/>\n");
}

#[test]
fn a_text_that_may_span_lines_is_refused_with_its_line() {
    for (name, text, line) in [
        ("a.js", "let a = 1;\nlet b = `one\n  two`;\n", "a.js:2"),
        ("a.js", "let b = \"one \\\n  two\";\n", "a.js:1"),
        ("a.js", "/* a */ let b = 1;\n", "a.js:1"),
        ("a.css", "b::after {\n  content: \"one\n", "a.css:2"),
        ("a.js", "let b = `\\``;\nlet c = `${b}`;\nlet d = \\`;\nlet e = `;\n", "a.js:4"),
        ("a.js", "/*\n", "a.js: a comment"),
    ] {
        let said = lean::lean(name, text).unwrap_err();
        assert!(said.starts_with(line), "{said}");
    }
}
