//! `#[derive(Recorded)]`: how a value of the core stands in a recording, field after field, with no names.
//! What it writes is read again by the same definition alone, so each type also has its `SHAPE`, a number
//! that changes with its definition or with that of anything in it.
//!
//! A field marked `#[recorded(skip)]` is not written and comes back as its default: for caches, and for what
//! the rules never look at. Of one marked `#[recorded(secret)]` the length stands there and nothing else,
//! of a text marked `#[recorded(line)]` its first line.

use proc_macro::{Delimiter, TokenStream, TokenTree};
use std::fmt::Write;

/// A field: its name, or its place where it has none, and its type.
struct Field {
    name: String,
    of: String,
    mark: Mark,
}

/// What an attribute says of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    Skip,
    Secret,
    Line,
}

/// What stands between braces or parentheses.
struct Fields {
    all: Vec<Field>,
}

/// See the crate.
#[proc_macro_derive(Recorded, attributes(recorded))]
pub fn derive(item: TokenStream) -> TokenStream {
    let mut tokens = item.into_iter().peekable();
    let mut kind = String::new();
    let name = loop {
        match tokens.next() {
            Some(TokenTree::Ident(word)) if ["struct", "enum"].contains(&word.to_string().as_str()) => {
                kind = word.to_string();
            }
            Some(TokenTree::Ident(word)) if !kind.is_empty() => break word.to_string(),
            Some(_) => {}
            None => return failed("only a struct or an enum can be recorded"),
        }
    };
    let body = tokens.find_map(|token| match token {
        TokenTree::Group(group) => Some(group),
        _ => None,
    });
    let made = match (kind.as_str(), body) {
        ("struct", Some(body)) => of_struct(&name, &fields(body.stream(), body.delimiter())),
        ("struct", None) => of_struct(&name, &Fields { all: Vec::new() }),
        (_, Some(body)) => of_enum(&name, body.stream()),
        _ => return failed("an enum without a body cannot be recorded"),
    };
    made.parse().unwrap_or_else(|_| failed("this definition cannot be recorded by deriving"))
}

fn failed(why: &str) -> TokenStream {
    format!("::core::compile_error!({why:?});").parse().unwrap_or_default()
}

/// Cuts at the commas that stand in no brackets of any kind.
fn pieces(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let (mut pieces, mut depth) = (vec![Vec::new()], 0_i32);
    let mut before = ' ';
    for token in tokens {
        if let TokenTree::Punct(sign) = &token {
            match sign.as_char() {
                '<' => depth += 1,
                '>' if before != '-' => depth -= 1,
                ',' if depth == 0 => {
                    pieces.push(Vec::new());
                    continue;
                }
                _ => {}
            }
            before = sign.as_char();
        } else {
            before = ' ';
        }
        if let Some(last) = pieces.last_mut() {
            last.push(token);
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Takes the attributes off; what ours says.
fn bare(piece: Vec<TokenTree>) -> (Vec<TokenTree>, Mark) {
    let (mut rest, mut mark, mut is_attribute) = (Vec::new(), Mark::None, false);
    for token in piece {
        match &token {
            TokenTree::Punct(sign) if sign.as_char() == '#' && rest.is_empty() => is_attribute = true,
            TokenTree::Group(group) if is_attribute => {
                is_attribute = false;
                let text = group.stream().to_string();
                if text.starts_with("recorded") {
                    mark = match text {
                        _ if text.contains("secret") => Mark::Secret,
                        _ if text.contains("line") => Mark::Line,
                        _ => Mark::Skip,
                    };
                }
            }
            _ => rest.push(token),
        }
    }
    (rest, mark)
}

fn fields(tokens: TokenStream, delimiter: Delimiter) -> Fields {
    let named = delimiter == Delimiter::Brace;
    let all = pieces(tokens).into_iter().enumerate().map(|(at, piece)| {
        let (mut rest, mark) = bare(piece);
        let is_word = |token: Option<&TokenTree>, word: &str| {
            matches!(token, Some(TokenTree::Ident(found)) if found.to_string() == word)
        };
        if is_word(rest.first(), "pub") {
            rest.remove(0);
            let is_scope = matches!(rest.first(), Some(TokenTree::Group(group))
                if group.delimiter() == Delimiter::Parenthesis && named);
            let is_tuple_scope = matches!(rest.first(), Some(TokenTree::Group(group))
                if group.delimiter() == Delimiter::Parenthesis && !named && rest.len() > 1);
            if is_scope || is_tuple_scope {
                rest.remove(0);
            }
        }
        let name = if named {
            let name = rest.remove(0).to_string();
            rest.remove(0);
            name
        } else {
            at.to_string()
        };
        Field { name, of: rest.into_iter().collect::<TokenStream>().to_string(), mark }
    });
    Fields { all: all.collect() }
}

/// FNV-1a, as good as any for telling two definitions apart.
fn hash(text: &str) -> u64 {
    text.bytes().filter(|byte| !byte.is_ascii_whitespace()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The expression of a shape: of the names, and of the types in it.
fn shape(name: &str, all: &[&Fields]) -> String {
    let told: Vec<String> =
        all.iter().flat_map(|fields| &fields.all).map(|one| format!("{}:{}", one.name, one.of)).collect();
    let mut made = format!("{}_u64", hash(&format!("{name}{told:?}")));
    for field in all.iter().flat_map(|fields| &fields.all).filter(|field| field.mark != Mark::Skip) {
        let _ = write!(
            made,
            ".rotate_left(5).wrapping_mul(0x9e3779b97f4a7c15) ^ <{} as ::svc_base::recorded::Recorded>::SHAPE",
            field.of
        );
        made = format!("({made})");
    }
    made
}

fn wrapped(name: &str, shape: &str, write: &str, read: &str) -> String {
    format!(
        "#[automatically_derived] #[allow(clippy::all, clippy::pedantic, improper_ctypes_definitions)]
        impl ::svc_base::recorded::Recorded for {name} {{
            const SHAPE: u64 = {shape};
            fn write(&self, to: &mut ::std::vec::Vec<u8>) {{ let _ = &to; {write} }}
            extern \"C\" fn read(from: &mut ::svc_base::recorded::Reader) -> Self {{ let _ = &from; {read} }}
        }}"
    )
}

/// The expression that makes a value of its fields.
fn made(path: &str, fields: &Fields) -> String {
    let mut read = format!("{path} {{");
    for field in &fields.all {
        let value = if field.mark == Mark::Skip {
            "::core::default::Default::default()"
        } else {
            "::svc_base::recorded::Recorded::read(from)"
        };
        let _ = write!(read, "{}: {value},", field.name);
    }
    read + "}"
}

/// What writes a field.
fn writer(field: &Field) -> &'static str {
    match field.mark {
        Mark::Secret => "::svc_base::recorded::Hidden::write_hidden",
        Mark::Line => "::svc_base::recorded::first_line",
        Mark::None | Mark::Skip => "::svc_base::recorded::Recorded::write",
    }
}

fn of_struct(name: &str, fields: &Fields) -> String {
    let mut write = String::new();
    for field in fields.all.iter().filter(|field| field.mark != Mark::Skip) {
        let _ = write!(write, "{}(&self.{}, to);", writer(field), field.name);
    }
    wrapped(name, &shape(name, &[fields]), &write, &made("Self", fields))
}

fn of_enum(name: &str, body: TokenStream) -> String {
    let mut variants = Vec::new();
    for piece in pieces(body) {
        let (rest, _) = bare(piece);
        let variant = rest.first().map(ToString::to_string).unwrap_or_default();
        let of = match rest.get(1) {
            Some(TokenTree::Group(group)) => fields(group.stream(), group.delimiter()),
            _ => Fields { all: Vec::new() },
        };
        variants.push((variant, of));
    }
    let (mut write, mut read) = (String::from("match self {"), String::from("match from.tag() {"));
    for (tag, (variant, of)) in variants.iter().enumerate() {
        let _ = write!(write, "Self::{variant} {{");
        for (at, field) in of.all.iter().enumerate() {
            let bound = if field.mark == Mark::Skip { "_".to_owned() } else { format!("field{at}") };
            let _ = write!(write, "{}: {bound},", field.name);
        }
        let _ = write!(write, "}} => {{ to.push({tag}_u8);");
        for (at, field) in of.all.iter().enumerate().filter(|(_, field)| field.mark != Mark::Skip) {
            let _ = write!(write, "{}(field{at}, to);", writer(field));
        }
        write.push('}');
        // Whatever cannot be read is the last one: reading ends with an error anyway.
        let pattern = if tag + 1 == variants.len() { "_".to_owned() } else { format!("{tag}_u8") };
        let _ = write!(read, "{pattern} => {},", made(&format!("Self::{variant}"), of));
    }
    let count = variants.len();
    let all: Vec<&Fields> = variants.iter().map(|(_, of)| of).collect();
    let names: Vec<&str> = variants.iter().map(|(variant, _)| variant.as_str()).collect();
    let told = format!("{name}{names:?}");
    let read = read.replacen("from.tag()", &format!("from.tag({count}_u8)"), 1);
    wrapped(name, &shape(&told, &all), &(write + "}"), &(read + "}"))
}
