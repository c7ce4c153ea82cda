//! Nonsense made from the recordings: no line may panic, and none may make much out of little.

use crate::recordings::replay::{conversation, lines, names};
use crate::support::dice::Dice;
use serde_json::{Value, json};
use svc::providers::{Conversation, SessionStart, Step, Tokens};

/// Mutated lines for each recorded one.
const MUTATIONS_PER_LINE: u64 = 12;
/// A line may grow by this factor, and by a fixed amount besides: quoting, and the answer to it.
const GROWTH_MAX: usize = 8;
/// Bytes; see [`GROWTH_MAX`]. Joined text that becomes too long comes out with a short line.
const GROWTH_BASE_BYTES: usize = 600 * 1024;

fn swapped(dice: &mut Dice) -> Value {
    match dice.roll(10) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(u64::MAX),
        3 => json!(i64::MIN),
        4 => json!(1e308),
        5 => json!(""),
        6 => json!("ein \u{1F9EA} mit ü".repeat(40)),
        7 => json!([]),
        8 => json!({}),
        _ => json!([{"type": "text", "text": [1, {"content": null}]}]),
    }
}

/// Replaces one value somewhere inside by one of another type.
fn swap(value: &mut Value, dice: &mut Dice) {
    let stop = dice.roll(4) == 0;
    match value {
        Value::Object(fields) if !fields.is_empty() && !stop => {
            let index = dice.roll(fields.len());
            if let Some(inner) = fields.values_mut().nth(index) {
                swap(inner, dice);
            }
        }
        Value::Array(items) if !items.is_empty() && !stop => {
            let index = dice.roll(items.len());
            swap(&mut items[index], dice);
        }
        other => *other = swapped(dice),
    }
}

/// The line with something wrong in it.
pub fn mutated(line: &str, dice: &mut Dice) -> String {
    let mut bytes = line.as_bytes().to_vec();
    match dice.roll(6) {
        0 => bytes.truncate(dice.roll(line.len())),
        1 => {
            for _ in 0..=dice.roll(4) {
                let at = dice.roll(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << dice.roll(8);
                }
            }
        }
        2 => return format!("{}{line}{}", "[".repeat(5000), "]".repeat(5000)),
        3 => {
            let levels = dice.roll(300);
            return format!("{}{line}{}", "{\"item\":".repeat(levels), "}".repeat(levels));
        }
        _ => {
            if let Ok(mut value) = serde_json::from_str::<Value>(line) {
                for _ in 0..=dice.roll(3) {
                    swap(&mut value, dice);
                }
                return value.to_string();
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn size(steps: &[Step]) -> usize {
    let size = |step: &Step| match step {
        Step::Event(activity) => serde_json::to_string(activity).expect("an activity is JSON").len(),
        Step::Write(text) | Step::Said(text) => text.len(),
        Step::CloseInput => 0,
    };
    steps.iter().map(size).sum()
}

fn feed(conversation: &mut dyn Conversation, line: &str, tokens: &mut Tokens) {
    let mut steps = Vec::new();
    conversation.line(line, &mut steps);
    let grown = size(&steps);
    assert!(grown <= GROWTH_BASE_BYTES + GROWTH_MAX * line.len(), "{grown} bytes from {}", line.len());
    for step in &steps {
        if let Step::Event(svc::providers::Activity::Usage(usage)) = step {
            *tokens += usage.delta;
            let _ = tokens.total();
        }
    }
}

#[test]
fn no_mutated_line_panics_or_explodes() {
    for (number, name) in names().iter().enumerate() {
        let lines = lines(name);
        let mut dice = Dice::seeded(u64::try_from(number).expect("few recordings"));
        for round in 0..MUTATIONS_PER_LINE {
            let counted = Tokens { input: round * 1000, ..Tokens::default() };
            let session = match round % 3 {
                0 => SessionStart::Resume { id: "s".to_owned(), counted },
                _ => SessionStart::Fresh,
            };
            let mut conversation = conversation(name, session);
            let (mut steps, mut tokens) = (Vec::new(), Tokens::default());
            conversation.open(&mut steps);
            for line in &lines {
                let nonsense = mutated(line, &mut dice);
                feed(conversation.as_mut(), &nonsense, &mut tokens);
                // Half of the rounds also have the true line, so that the nonsense meets every state.
                if round % 2 == 0 {
                    feed(conversation.as_mut(), line, &mut tokens);
                }
            }
            conversation.say("more", &mut steps);
            conversation.finish(&mut steps);
            conversation.end(&mut steps);
        }
    }
}

/// Every program's lines also go to every other parser.
#[test]
fn foreign_protocols_do_no_harm() {
    let parsers = [
        "claude-default",
        "codex-default",
        "gemini-default",
        "opencode-default",
        "qwen-default",
        "copilot-default",
        "cline-default",
        "aider-plain",
        "acp/codex-allow",
    ];
    for parser in parsers {
        let mut conversation = conversation(parser, SessionStart::Fresh);
        let mut tokens = Tokens::default();
        for name in names() {
            for line in lines(&name) {
                feed(conversation.as_mut(), &line, &mut tokens);
            }
        }
        conversation.end(&mut Vec::new());
    }
}

/// Deltas without an end come out in pieces instead of filling the memory.
#[test]
fn endless_deltas_are_told_in_pieces() {
    let word = "x".repeat(1000);
    let delta = json!({"type": "message", "role": "assistant", "content": word, "delta": true}).to_string();
    let mut conversation = conversation("gemini-default", SessionStart::Fresh);
    let mut steps = Vec::new();
    for _ in 0..2000 {
        conversation.line(&delta, &mut steps);
    }
    assert!(steps.len() >= 7, "{} pieces", steps.len());
    let longest = steps.iter().map(|step| size(std::slice::from_ref(step))).max();
    assert!(longest < Some(300_000), "{longest:?}");
}

/// A tool's output is cut to 64 KiB and noise to 4 KiB, between two characters.
#[test]
fn long_outputs_and_noise_are_cut() {
    let long = "ü".repeat(100_000);
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": long});
    let line = json!({"type": "user", "message": {"content": [result]}}).to_string();
    let mut conversation = conversation("claude-default", SessionStart::Fresh);
    let mut steps = Vec::new();
    conversation.line(&line, &mut steps);
    conversation.line(&long, &mut steps);
    let lengths: Vec<usize> = steps
        .iter()
        .map(|step| match step {
            Step::Event(svc::providers::Activity::ToolEnded { output, .. }) => output.len(),
            Step::Event(svc::providers::Activity::Noise { text }) => text.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [64 * 1024, 4 * 1024]);
}
