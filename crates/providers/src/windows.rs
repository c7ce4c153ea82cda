//! Names of models under their many spellings, and how much context each takes where its program does not
//! tell: `data/windows.json`, read once.

use serde::Deserialize;
use std::sync::OnceLock;

/// The window behind the mark `[1m]` of a Claude model's name, in tokens.
const MARKED_WINDOW: u64 = 1_000_000;
/// How Claude Code and its users mark a window of a million tokens.
const MARK: &str = "[1m]";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    windows: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    /// A provider's id, or `*`.
    provider: String,
    /// A plain name, or the beginning of one and `*`.
    model: String,
    tokens: u64,
    /// Taken only of a model that no other entry knows.
    #[serde(default)]
    assumed: bool,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        serde_json::from_slice(include_bytes!("../../../data/windows.json"))
            .expect("data/windows.json is part of the program, and a test reads it")
    })
}

/// The context window in tokens with which a provider's program runs a model; `None` when nobody here knows.
pub fn window_of(provider: &str, model: &str) -> Option<u64> {
    let plain = plain_name(model);
    if is_marked(model) && plain.starts_with("claude") {
        return Some(MARKED_WINDOW);
    }
    let fits = |entry: &&Entry| {
        let begins = entry.model.strip_suffix('*');
        let named = begins.map_or(plain == entry.model, |begin| plain.starts_with(begin));
        named && (entry.provider == provider || entry.provider == "*")
    };
    let own = |entry: &&Entry| (!entry.assumed, entry.provider == provider, entry.model.len());
    table().windows.iter().filter(fits).max_by_key(own).map(|entry| entry.tokens)
}

fn is_marked(model: &str) -> bool {
    model.len() >= MARK.len()
        && model.is_char_boundary(model.len() - MARK.len())
        && model[model.len() - MARK.len()..].eq_ignore_ascii_case(MARK)
}

/// Vendors as Amazon Bedrock writes them before a model, behind a region or not.
const VENDORS: [&str; 9] =
    ["anthropic.", "amazon.", "cohere.", "deepseek.", "google.", "meta.", "mistral.", "openai.", "qwen."];

/// A model's name without what vendors, clouds and dates add to it: `claude-sonnet-4-5` of
/// `us.anthropic.claude-sonnet-4-5-20250929-v1:0`, `anthropic/claude-sonnet-4.5`,
/// `claude-sonnet-4-5@20250929` and `claude-sonnet-4-5[1m]`; `gemini-2.5-pro` of
/// `gemini-2.5-pro-001`. What makes it another product stays:
/// `gpt-6-sol-fast`, `gpt-6-sol:batch`.
pub fn plain_name(model: &str) -> String {
    let name = model.trim().to_ascii_lowercase();
    let name = name.rsplit('/').next().unwrap_or(&name);
    let name = without_vendor(name);
    let name = name.strip_suffix(MARK).unwrap_or(name);
    let name = without_date(without_version(name));
    if name.starts_with("claude") {
        // Of Vertex AI before the day, of newer models of Amazon Bedrock without a revision.
        let revised = name.rsplit_once("-v").filter(|(_, version)| is_number(version));
        return revised.map_or(name, |(plain, _)| plain).replace('.', "-");
    }
    let revised = name.rsplit_once("-00").filter(|(_, n)| n.len() == 1 && is_number(n));
    revised.filter(|_| name.starts_with("gemini")).map_or(name, |(plain, _)| plain).to_owned()
}

fn without_vendor(name: &str) -> &str {
    let behind = |vendor: &str| {
        let at = name.rfind(vendor)?;
        (at == 0 || name[..at].ends_with('.')).then(|| &name[at + vendor.len()..])
    };
    VENDORS.iter().find_map(|vendor| behind(vendor)).unwrap_or(name)
}

/// Without the `-v1:0` of Amazon Bedrock, behind which a window may stand: `-v1:0:200k`.
fn without_version(name: &str) -> &str {
    let revised = |name: &str| {
        let (before, revision) = name.rsplit_once(':')?;
        let (plain, version) = before.rsplit_once("-v")?;
        (is_number(revision) && is_number(version)).then_some(plain.len())
    };
    let sized = || {
        let (before, window) = name.rsplit_once(':')?;
        window.strip_suffix('k').filter(|tokens| is_number(tokens))?;
        revised(before)
    };
    revised(name).or_else(sized).map_or(name, |length| &name[..length])
}

/// Without the day of its release, or the word for the newest one: `-20250929`, `@20250929`, `-2026-03-05`,
/// `-latest`.
fn without_date(name: &str) -> &str {
    if let Some(plain) = name.strip_suffix("-latest").or_else(|| name.strip_suffix("@default")) {
        return plain;
    }
    let digits = |text: &str, count: usize| text.len() == count && is_number(text);
    if let Some((plain, day)) = name.rsplit_once(['-', '@'])
        && digits(day, 8)
    {
        return plain;
    }
    let mut parts = name.rsplitn(4, '-');
    let is_date = [2, 2, 4].into_iter().all(|count| parts.next().is_some_and(|part| digits(part, count)));
    parts.next().filter(|_| is_date).unwrap_or(name)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_model_have_one_name() {
        for spelling in [
            "claude-sonnet-4-5",
            "claude-sonnet-4-5-20250929",
            "claude-sonnet-4-5@20250929",
            "claude-sonnet-4-5[1m]",
            "claude-sonnet-4-5-latest",
            "anthropic/claude-sonnet-4.5",
            "openrouter/anthropic/claude-sonnet-4.5",
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "Claude-Sonnet-4-5",
            "anthropic.claude-sonnet-4-5-v1",
            "global.anthropic.claude-sonnet-4-5-20250929-v1:0:200k",
            "bedrock/converse/jp.anthropic.claude-sonnet-4-5-20250929-v1:0[1m]",
            "publishers/anthropic/models/claude-sonnet-4-5@20250929",
            "vertex_ai/claude-sonnet-4-5-v2@20250929",
            "claude-sonnet-4-5@default",
        ] {
            assert_eq!(plain_name(spelling), "claude-sonnet-4-5", "{spelling}");
        }
        for (spelling, name) in [
            ("gpt-5.5-2026-04-01", "gpt-5.5"),
            ("openai/gpt-6-sol", "gpt-6-sol"),
            ("gpt-6-sol-fast", "gpt-6-sol-fast"),
            ("openai/gpt-6-sol:batch", "gpt-6-sol:batch"),
            ("claude-opus-4-1", "claude-opus-4-1"),
            ("qwen3:8b", "qwen3:8b"),
            ("publishers/google/models/gemini-2.5-pro-001", "gemini-2.5-pro"),
            ("gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash-preview-09-2025"),
            ("us.amazon.nova-pro-v1:0", "nova-pro"),
            ("misanthropic.claude-opus-4-1", "misanthropic.claude-opus-4-1"),
            ("claude-opus-4-1-very", "claude-opus-4-1-very"),
            ("", ""),
            ("[1m]", ""),
            ("é", "é"),
            ("-20250929", ""),
        ] {
            assert_eq!(plain_name(spelling), name, "{spelling}");
        }
    }

    #[test]
    fn a_window_is_the_programs_own_then_the_vendors_then_an_assumption() {
        for (provider, model, tokens) in [
            ("claude-code", "claude-sonnet-4-5", 200_000),
            ("claude-code", "claude-sonnet-4-5[1m]", 1_000_000),
            ("claude-code", "claude-opus-4-6", 200_000),
            ("opencode", "anthropic/claude-opus-4-6", 1_000_000),
            ("claude-code", "claude-opus-5-5", 1_000_000),
            ("claude-code", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
            ("claude-code", "nobody-knows-it", 1_000_000),
            ("codex", "gpt-5.5", 258_400),
            ("codex", "gpt-6-sol", 258_400),
            ("codex", "gpt-6.1-terra", 475_000),
            ("codex", "auto", 258_400),
            ("gemini", "gemini-2.5-pro", 1_048_576),
            ("gemini", "gemma-4-31b-it", 256_000),
            ("qwen", "qwen3-coder-plus", 1_000_000),
            ("qwen", "nobody-knows-it", 131_072),
            ("opencode", "aimock/gpt-4o", 128_000),
            ("cline", "nobody-knows-it", 128_000),
            ("acp", "anthropic/claude-haiku-4.5", 200_000),
        ] {
            assert_eq!(window_of(provider, model), Some(tokens), "{provider} {model}");
        }
        assert_eq!(window_of("ollama", "nobody-knows-it"), None);
        assert_eq!(window_of("script", "auto"), None);
        let raw: serde_json::Value =
            serde_json::from_str(include_str!("../../../data/windows.json")).expect("the table is JSON");
        let dated = ["asOf", "source"].map(|key| raw[key].as_str().map_or(0, str::len) >= 10);
        assert_eq!(dated, [true, true], "it says of which day and whose it is");
    }

    #[test]
    fn what_is_listed_of_a_provider_agrees_with_the_table() {
        for provider in super::super::all() {
            let info = provider.info();
            let known = info.models.iter().filter_map(|model| Some((model, window_of(info.id, model.id)?)));
            for (model, window) in known {
                assert_eq!(model.context_window, window, "{} {}", info.id, model.id);
            }
        }
    }
}
