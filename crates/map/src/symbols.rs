//! What a source file defines, found line by line as `ctags` does: no grammar, so that a file that does not
//! compile is read as well, and a language costs a row of a table.

use super::words::is_of_name;

/// Definitions of one file; further ones are not told.
pub const MAX_SYMBOLS: usize = 400;
/// A longer line is generated, or data.
const LINE_BYTES: usize = 400;

/// A definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The language's own word, for example `fn`.
    pub kind: &'a str,
    pub name: &'a str,
    /// From 1.
    pub line: u32,
}

/// How a family of languages defines.
struct Family {
    extensions: &'static [&'static str],
    /// Words that may stand before the defining one.
    modifiers: &'static [&'static str],
    /// Words behind which the name stands.
    anywhere: &'static [&'static str],
    /// The same, but only where the line is not indented.
    outermost: &'static [&'static str],
    comments: &'static [&'static str],
    calls: Calls,
}

/// Definitions of functions that no word begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    None,
    /// `name(..) {` inside of a class.
    Methods,
    /// `Type name(..) {`, with a type or a modifier before it.
    Typed,
    /// `type name(..)` that is not indented and not a declaration.
    C,
    /// `name() {` that is not indented.
    Shell,
}

const FAMILIES: &[Family] = &[
    Family {
        extensions: &["rs"],
        modifiers: &["pub", "async", "unsafe", "extern", "default", "const"],
        anywhere: &["fn", "struct", "enum", "trait", "union", "macro_rules!"],
        outermost: &["mod", "type", "const", "static"],
        comments: &["//"],
        calls: Calls::None,
    },
    Family {
        extensions: &["py", "pyi"],
        modifiers: &["async"],
        anywhere: &["def", "class"],
        outermost: &[],
        comments: &["#"],
        calls: Calls::None,
    },
    Family {
        extensions: &["js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte"],
        modifiers: &["export", "default", "async", "declare", "abstract"],
        anywhere: &["function", "function*", "class", "interface", "enum", "namespace"],
        outermost: &["const", "let", "var", "type"],
        comments: &["//", "*", "/*"],
        calls: Calls::Methods,
    },
    Family {
        extensions: &["go"],
        modifiers: &[],
        anywhere: &["func"],
        outermost: &["type", "var", "const"],
        comments: &["//"],
        calls: Calls::None,
    },
    Family {
        extensions: &["java", "cs", "kt", "kts", "scala", "swift", "dart", "groovy"],
        modifiers: &[
            "public",
            "private",
            "protected",
            "internal",
            "static",
            "final",
            "abstract",
            "sealed",
            "open",
            "data",
            "override",
            "suspend",
            "inline",
            "partial",
            "readonly",
            "case",
            "lazy",
            "implicit",
            "fileprivate",
            "mutating",
            "default",
            "synchronized",
            "virtual",
            "async",
            "native",
            "companion",
            "external",
        ],
        anywhere: &[
            "class",
            "interface",
            "enum",
            "record",
            "struct",
            "object",
            "trait",
            "protocol",
            "extension",
            "fun",
            "func",
            "def",
            "@interface",
            "delegate",
            "mixin",
            "actor",
        ],
        outermost: &["val", "var", "let", "typealias", "type"],
        comments: &["//", "*", "/*"],
        calls: Calls::Typed,
    },
    Family {
        extensions: &["c", "h", "cc", "cpp", "cxx", "hpp", "hh", "hxx", "m", "mm", "cu"],
        modifiers: &["typedef", "static", "extern", "inline", "constexpr", "template"],
        anywhere: &[
            "struct",
            "class",
            "enum",
            "union",
            "namespace",
            "#define",
            "@interface",
            "@implementation",
        ],
        outermost: &[],
        comments: &["//", "*", "/*"],
        calls: Calls::C,
    },
    Family {
        extensions: &["rb", "rake"],
        modifiers: &["private", "protected"],
        anywhere: &["def", "class", "module"],
        outermost: &[],
        comments: &["#"],
        calls: Calls::None,
    },
    Family {
        extensions: &["php"],
        modifiers: &["public", "private", "protected", "static", "final", "abstract", "readonly"],
        anywhere: &["function", "class", "interface", "trait", "enum"],
        outermost: &["const"],
        comments: &["//", "*", "/*", "#"],
        calls: Calls::None,
    },
    Family {
        extensions: &["sh", "bash", "zsh"],
        modifiers: &[],
        anywhere: &["function"],
        outermost: &[],
        comments: &["#"],
        calls: Calls::Shell,
    },
    Family {
        extensions: &["lua", "jl", "ex", "exs", "erl", "pl", "pm", "r", "zig"],
        modifiers: &["local", "pub", "export"],
        anywhere: &[
            "function",
            "def",
            "defp",
            "defmodule",
            "defmacro",
            "sub",
            "package",
            "fn",
            "struct",
            "module",
            "macro",
        ],
        outermost: &[],
        comments: &["--", "#", "//"],
        calls: Calls::None,
    },
];

/// Words that look like the name of a function that is defined.
const NO_FUNCTIONS: &[&str] = &[
    "if",
    "for",
    "while",
    "switch",
    "catch",
    "return",
    "else",
    "do",
    "try",
    "new",
    "await",
    "throw",
    "with",
    "foreach",
    "using",
    "lock",
    "super",
    "this",
    "sizeof",
    "function",
    "case",
    "when",
    "synchronized",
    "assert",
];

/// Whether definitions of such a file can be found.
pub fn is_known(path: &str) -> bool {
    family(path).is_some()
}

fn family(path: &str) -> Option<&'static Family> {
    let (_, extension) = path.rsplit_once('.')?;
    FAMILIES.iter().find(|family| family.extensions.contains(&extension))
}

/// The definitions of a file, in its order, at most [`MAX_SYMBOLS`].
pub fn of<'a>(path: &str, text: &'a str) -> Vec<Symbol<'a>> {
    let mut found = Vec::new();
    let Some(family) = family(path) else { return found };
    for (line, number) in text.lines().zip(1_u32..) {
        if found.len() >= MAX_SYMBOLS {
            break;
        }
        if line.len() > LINE_BYTES {
            continue;
        }
        if let Some((kind, name)) = family.definition(line) {
            found.push(Symbol { kind, name, line: number });
        }
    }
    found
}

impl Family {
    fn definition<'a>(&self, line: &'a str) -> Option<(&'a str, &'a str)> {
        let is_outermost = !line.starts_with([' ', '\t']);
        let code = line.trim_start();
        if code.is_empty()
            || self.comments.iter().any(|mark| code.starts_with(mark) && !code.starts_with("#define"))
        {
            return None;
        }
        let mut rest = code;
        let mut has_modifier = false;
        loop {
            let (word, behind) = first_word(rest);
            let bare = word.split_once('(').map_or(word, |(before, _)| before);
            let defines = |words: &[&str]| words.contains(&word);
            if defines(self.anywhere) || (is_outermost && defines(self.outermost)) {
                // `const fn` and `enum class` define what the second word says.
                let (next, _) = first_word(behind);
                if self.anywhere.contains(&next) {
                    rest = behind;
                    continue;
                }
                return name_in(behind).map(|name| (word, name));
            }
            if word.is_empty() || !self.modifiers.contains(&bare) {
                break;
            }
            has_modifier = true;
            // `pub(crate)`, `extern "C"`.
            rest = behind.trim_start_matches(['"', 'C']).trim_start();
        }
        self.function(code, is_outermost, has_modifier).map(|name| ("", name))
    }

    /// The name of a function that no word begins.
    fn function<'a>(&self, code: &'a str, is_outermost: bool, has_modifier: bool) -> Option<&'a str> {
        let open = code.find('(').filter(|_| self.calls != Calls::None)?;
        let before = code[..open].trim_end();
        let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '$').next()?;
        let head = &before[..before.len() - name.len()];
        let is_name = name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_' || c == '$');
        if !is_name || NO_FUNCTIONS.contains(&name) || head.contains(['=', '.', '"', '\'', ';']) {
            return None;
        }
        let begins_body = code.ends_with('{');
        let first = head.split_whitespace().next().unwrap_or_default();
        if NO_FUNCTIONS.contains(&first) {
            return None;
        }
        let is = match self.calls {
            Calls::None => false,
            Calls::Methods => {
                !is_outermost
                    && begins_body
                    && (head.trim().is_empty() || head.split_whitespace().all(is_method_modifier))
            }
            Calls::Typed => !head.trim().is_empty() && (begins_body || has_modifier) && !code.ends_with(';'),
            Calls::C => {
                is_outermost && !head.trim().is_empty() && !code.ends_with(';') && !head.contains(['(', ','])
            }
            Calls::Shell => is_outermost && head.is_empty() && code[open..].starts_with("()"),
        };
        is.then_some(name)
    }
}

fn is_method_modifier(word: &str) -> bool {
    matches!(
        word,
        "async"
            | "static"
            | "public"
            | "private"
            | "protected"
            | "readonly"
            | "override"
            | "get"
            | "set"
            | "abstract"
            | "*"
    )
}

/// The first word of a line and what is behind it.
fn first_word(text: &str) -> (&str, &str) {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// The name that stands at the beginning, behind the receiver of a method and pointers.
fn name_in(text: &str) -> Option<&str> {
    let text = match text.strip_prefix('(') {
        // Go: `func (s *Server) Serve(`.
        Some(inside) => inside.split_once(')')?.1.trim_start(),
        None => text,
    };
    let text = text.strip_prefix("self.").unwrap_or(text).trim_start_matches(['*', '&']);
    let end = text.bytes().position(|byte| !is_of_name(byte) && byte != b'$').unwrap_or(text.len());
    // Ruby's `def a?`, C++'s `A::b` and Kotlin's `fun String.words` begin with what tells enough.
    let name = &text[..end];
    name.chars().next().filter(|first| first.is_alphabetic() || *first == '_' || *first == '$').map(|_| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in these lines, one definition for each `line name` of `expected`.
    fn assert_found(path: &str, lines: &[&str], expected: &[&str]) {
        let text = lines.join("\n");
        let found: Vec<String> = of(path, &text)
            .iter()
            .map(|symbol| format!("{} {} {}", symbol.line, symbol.kind, symbol.name).replace("  ", " "))
            .collect();
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn definitions_of_rust_python_and_go_are_found() {
        let rust = [
            "pub(crate) const fn a() {}",
            "struct B;",
            "    let fn_ = 1;",
            "// fn no() {}",
            "macro_rules! m {",
            "pub enum E {",
            "const X: u8 = 1;",
            "    const Y: u8 = 1;",
            "unsafe extern \"C\" fn ffi() {}",
        ];
        assert_found(
            "a.rs",
            &rust,
            &["1 fn a", "2 struct B", "5 macro_rules! m", "6 enum E", "7 const X", "9 fn ffi"],
        );
        let python = ["class A(B):", "    async def run(self):", "# def no():", "def main():"];
        assert_found("a.py", &python, &["1 class A", "2 def run", "4 def main"]);
        let go = [
            "func (s *Server) Serve(l net.Listener) error {",
            "func New() *Server {",
            "type Server struct {",
            "\tvar x int",
            "var ErrClosed = errors.New(\"x\")",
        ];
        assert_found("a.go", &go, &["1 func Serve", "2 func New", "3 type Server", "5 var ErrClosed"]);
    }

    #[test]
    fn definitions_of_typescript_and_of_c_are_found() {
        let typescript = [
            "export default class A extends B {",
            "  async load(x: number) {",
            "    if (x) {",
            "    run(x)",
            "  }",
            "  private static of(): A {",
            "export const f = () => 1",
            "  const local = 1",
            "export interface I {",
            "export type T = string",
            "function* gen() {",
        ];
        let expected =
            ["1 class A", "2 load", "6 of", "7 const f", "9 interface I", "10 type T", "11 function* gen"];
        assert_found("a.ts", &typescript, &expected);
        let c = [
            "#define MAX 3",
            "static int run(int a)",
            "{",
            "int declared(void);",
            "    call(x);",
            "struct node {",
            "typedef struct pair {",
            "enum class Kind {",
        ];
        assert_found(
            "a.cc",
            &c,
            &["1 #define MAX", "2 run", "6 struct node", "7 struct pair", "8 class Kind"],
        );
    }

    #[test]
    fn definitions_of_languages_with_typed_methods_are_found() {
        let java = [
            "public final class A<T> {",
            "    private int size() {",
            "        return count(1);",
            "        if (x) {",
            "    public static void main(String[] args)",
            "    @Override public String toString() {",
            "        foo.bar() {",
        ];
        assert_found("A.java", &java, &["1 class A", "2 size", "5 main", "6 toString"]);
        let kotlin = ["data class A(val x: Int)", "suspend fun load() {", "private fun one() = 1"];
        assert_found("a.kt", &kotlin, &["1 class A", "2 fun load", "3 fun one"]);
        let csharp = ["public sealed class A", "    internal async Task<int> LoadAsync(int x)", "    {"];
        assert_found("a.cs", &csharp, &["1 class A", "2 LoadAsync"]);
        let swift = ["public struct A {", "    mutating func go() {"];
        assert_found("a.swift", &swift, &["1 struct A", "2 func go"]);
    }

    #[test]
    fn definitions_of_ruby_php_shells_and_lua_are_found() {
        let ruby = ["module M", "  class A", "    def self.of(x)", "    def ok?"];
        assert_found("a.rb", &ruby, &["1 module M", "2 class A", "3 def of", "4 def ok"]);
        let php = ["final class A {", "  public static function of($x) {"];
        assert_found("a.php", &php, &["1 class A", "2 function of"]);
        assert_found("a.sh", &["run() {", "function other {", "  inner() {"], &["1 run", "2 function other"]);
        assert_found("a.lua", &["local function go(x)", "-- function no()"], &["1 function go"]);
    }

    #[test]
    fn what_is_no_source_has_no_definitions_and_there_are_never_too_many() {
        assert!(of("a.md", "fn a() {}").is_empty());
        assert!(!is_known("Makefile"));
        assert_eq!(of("a.rs", &"fn a() {}\n".repeat(1_000)).len(), MAX_SYMBOLS);
        assert!(of("a.rs", &format!("fn {}() {{}}", "a".repeat(LINE_BYTES))).is_empty());
    }
}
