//! The lines of the screen of `svc top`. Pure.

use super::view::{Pane, Pick, View};
use crate::approvals::wish;
use crate::capacity::said;
use crate::render::{
    Style, Table, age, age_of, char_width, clean, count, cut, one_line, percent, text_width,
};
use crate::target::{is_live, state, text};
use crate::tokens::{priced, with_account};
use serde_json::{Value, json};
use svc_base::sorted;
use svc_base::time::Time;

/// Approvals take at most this part of the screen; more scroll.
const APPROVALS_PART: usize = 3;
/// With so many columns there is room for tokens and age.
const WIDE_COLUMNS: usize = 110;
/// A screen of so many lines has room for what providers and machine still have.
const NOTES_LINES: usize = 16;
/// Characters of the context bar.
const BAR_CHARS: usize = 5;

const KEYS: &str = "q quit  j/k move  enter open  a approve/answer  r reject  K kill";
const PANE_KEYS: &str = "q back  j/k scroll  G end  a approve/answer  r reject";
const ANSWER_KEYS: &str = "enter send  esc leave";
/// What stands before an answer that is typed.
const ANSWER: &str = "answer: ";

/// Exactly `lines` lines, none wider than `columns`.
pub fn frame(view: &View, (columns, lines): (usize, usize), colour: bool) -> Vec<String> {
    let mut frame = vec![painted(colour, Style::Bold, &cut(&headline(view), columns))];
    let body = lines.saturating_sub(3);
    if let Some(pane) = &view.pane {
        frame.extend(covered(view, pane, (columns, body), colour));
    } else {
        if lines >= NOTES_LINES {
            frame.extend(notes(view).iter().map(|line| cut(line, columns)));
        }
        frame.extend(approvals(view, (columns, body), colour));
        let left = (body + 1).saturating_sub(frame.len());
        frame.extend(agents(view, (columns, left), colour));
    }
    frame.resize(lines.saturating_sub(2), String::new());
    let (message, style) = message(view, columns);
    frame.push(painted(colour, style, &cut(&message, columns)));
    let keys = match (&view.answer, &view.pane) {
        (Some(_), _) => ANSWER_KEYS,
        (None, Some(_)) => PANE_KEYS,
        (None, None) => KEYS,
    };
    frame.push(painted(colour, Style::Dim, &cut(keys, columns)));
    frame.truncate(lines);
    frame
}

fn painted(colour: bool, style: Style, text: &str) -> String {
    if colour && !text.is_empty() { style.paint(text) } else { text.to_owned() }
}

/// Everything in one line.
pub fn headline(view: &View) -> String {
    let agents = &view.look.agents;
    let live = agents.iter().filter(|agent| is_live(agent)).count();
    let tokens: u64 = agents.iter().filter_map(|agent| agent["tokensUsed"].as_u64()).sum();
    // The sum of nothing would be below zero.
    let cost = 0.0 + agents.iter().filter_map(|agent| agent["costUsd"].as_f64()).sum::<f64>();
    let unpriced: u64 = agents.iter().filter_map(|agent| agent["unpricedTokens"].as_u64()).sum();
    let rates: Vec<u64> = agents.iter().filter_map(|agent| view.rate(text(agent, "id"))).collect();
    let rate = if rates.is_empty() { String::new() } else { format!("  {}/s", count(rates.iter().sum())) };
    let waiting = view.look.approvals.len();
    let waiting = if waiting == 0 { String::new() } else { format!("  {waiting} to decide") };
    format!(
        "svc top  {live} live of {}{waiting}  {} tokens{rate}  {}  {}",
        agents.len(),
        count(tokens),
        priced(&json!(cost), &json!({"unpricedTokens": unpriced})),
        one_line(&view.place)
    )
}

/// What the providers' windows and the machine still have: at most one line each.
pub fn notes(view: &View) -> Vec<String> {
    let look = &view.look;
    let limits = limits(&look.quota, look.at);
    let limits = (!limits.is_empty()).then(|| format!("limits: {}", limits.join("; ")));
    let waiting = look.capacity["queued"].as_array().map_or(0, Vec::len);
    let waiting = match waiting {
        0 => String::new(),
        1 => "; 1 waits".to_owned(),
        n => format!("; {n} wait"),
    };
    let capacity =
        look.capacity["more"].is_u64().then(|| format!("capacity: {}{waiting}", said(&look.capacity)));
    let silent = (!look.silent.is_empty()).then(|| format!("no answer: {}", look.silent.join(", ")));
    limits.into_iter().chain(capacity).chain(silent).map(|line| one_line(&line)).collect()
}

/// The windows of which a figure is known, the scarcest first, and how many agents are held.
fn limits(quota: &Value, now: Time) -> Vec<String> {
    let known = |one: &&Value| one["closed"] == true || one["leftPercent"].is_number();
    let mut windows: Vec<&Value> = quota["windows"].as_array().into_iter().flatten().filter(known).collect();
    let left =
        |one: &Value| if one["closed"] == true { 0.0 } else { one["leftPercent"].as_f64().unwrap_or(0.0) };
    sorted::by(&mut windows, |a, b| left(a).total_cmp(&left(b)));
    let shown = |one: &&Value| {
        let opens = Time::parse(text(one, "opensAt")).map(|at| format!(", opens in {}", age(at.since(now))));
        let state = if one["closed"] == true {
            format!("closed{}", opens.unwrap_or_default())
        } else {
            format!("{}% left", left(one))
        };
        [&with_account(one), text(one, "window"), &state].map(str::trim).join(" ")
    };
    let held = quota["held"].as_array().map_or(0, Vec::len);
    let held = (held > 0).then(|| format!("{held} held"));
    windows.iter().map(shown).chain(held).collect()
}

fn message(view: &View, columns: usize) -> (String, Style) {
    if let Some((_, words)) = &view.answer {
        let typed = format!("{}_", clean(words));
        // Its end is what is looked at.
        let mut room = columns.saturating_sub(ANSWER.len());
        let fits = |c: &char| room.checked_sub(char_width(*c)).map(|left| room = left).is_some();
        let end: Vec<char> = typed.chars().rev().take_while(fits).collect();
        return (format!("{ANSWER}{}", end.iter().rev().collect::<String>()), Style::Yellow);
    }
    if let Some((_, name)) = &view.asked {
        let ended = view.asked.as_ref().and_then(|(id, _)| view.agent(id)).is_some_and(|one| !is_live(one));
        let what = if ended { "remove" } else { "end" };
        return (format!("{what} {name}? y ends it, any other key does not"), Style::Yellow);
    }
    match &view.look.trouble {
        Some(trouble) => (one_line(trouble), Style::Red),
        None => (one_line(&view.said), Style::Bold),
    }
}

/// The first of `height` rows that are shown, so that row `at` of `rows` is among them.
fn first_row(rows: usize, at: Option<usize>, height: usize) -> usize {
    let last = rows.saturating_sub(height);
    at.map_or(0, |at| (at + 1).saturating_sub(height)).min(last)
}

fn marked(chosen: bool, line: &str, colour: bool) -> String {
    let mark = if chosen { painted(colour, Style::Bold, ">") } else { " ".into() };
    format!("{mark} {line}").trim_end().to_owned()
}

fn approvals(view: &View, (columns, lines): (usize, usize), colour: bool) -> Vec<String> {
    let records = &view.look.approvals;
    if records.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&["WAITS FOR YOU", "AGENT", "SINCE", "WANTS TO"]).numeric(&[2]);
    for record in records {
        table.row(&[
            text(record, "id").into(),
            text(record, "agentName").into(),
            age_of(text(record, "requestedAt"), view.look.at),
            wish(record),
        ]);
    }
    let chosen = records.iter().position(|one| view.pick == Some(Pick::Approval(text(one, "id").into())));
    let rows = (lines / APPROVALS_PART).saturating_sub(1).max(1);
    let mut shown = rows_of(&table, columns, chosen, rows, colour);
    shown.push(String::new());
    shown
}

/// The heading and at most `height` rows of a table, the chosen one marked and among them.
fn rows_of(table: &Table, columns: usize, chosen: Option<usize>, height: usize, colour: bool) -> Vec<String> {
    let lines = table.lines(Some(columns.saturating_sub(2)), colour);
    let Some((header, rows)) = lines.split_first() else { return Vec::new() };
    let from = first_row(rows.len(), chosen, height);
    let mut shown = vec![marked(false, header, colour)];
    let rows = rows.iter().enumerate().skip(from).take(height);
    shown.extend(rows.map(|(at, row)| marked(Some(at) == chosen, row, colour)));
    shown
}

fn agents(view: &View, (columns, lines): (usize, usize), colour: bool) -> Vec<String> {
    let records = &view.look.agents;
    if records.is_empty() {
        return vec!["no agents; start one with 'svc spawn ROLE PROMPT'".into()];
    }
    let chosen = records.iter().position(|one| view.pick == Some(Pick::Agent(text(one, "id").into())));
    rows_of(&table(view, columns), columns, chosen, lines.saturating_sub(1), colour)
}

/// The table of agents; narrow terminals leave tokens and age out.
pub fn table(view: &View, columns: usize) -> Table {
    let wide = columns >= WIDE_COLUMNS;
    let mut table = if wide {
        let header = ["NAME", "STATUS", "CONTEXT", "TOK/S", "TOKENS", "COST", "AGE", "DOING"];
        Table::new(&header).numeric(&[2, 3, 4, 5, 6])
    } else {
        Table::new(&["NAME", "STATUS", "CONTEXT", "TOK/S", "COST", "DOING"]).numeric(&[2, 3, 4])
    };
    table = table.status_column(1);
    for agent in &view.look.agents {
        let mut row = vec![
            text(agent, "name").to_owned(),
            state(agent).to_owned(),
            bar(agent["contextUsage"].as_f64().unwrap_or(0.0)),
            view.rate(text(agent, "id")).map_or_else(|| "-".into(), count),
        ];
        if wide {
            row.push(count(agent["tokensUsed"].as_u64().unwrap_or(0)));
        }
        row.push(priced(&agent["costUsd"], agent));
        if wide {
            row.push(age_of(text(agent, "spawnedAt"), view.look.at));
        }
        row.push(doing(agent).to_owned());
        table.row(&row);
    }
    table
}

/// What a living agent does; why one waits or has ended.
fn doing(agent: &Value) -> &str {
    let activity = text(agent, "currentActivity");
    let busy = is_live(agent) && state(agent) != "waiting" && !activity.is_empty();
    if busy { activity } else { text(agent, "statusReason") }
}

/// `42% ##...`; aligned to the right the bars stand below each other.
fn bar(fraction: f64) -> String {
    let full = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
    // Rounded by way of text: a float has no lossless way to an index.
    let filled = format!("{:.0}", full * 5.0).parse().unwrap_or(0).min(BAR_CHARS);
    format!("{} {}{}", percent(fraction), "#".repeat(filled), ".".repeat(BAR_CHARS - filled))
}

fn covered(view: &View, pane: &Pane, (columns, lines): (usize, usize), colour: bool) -> Vec<String> {
    let height = lines.saturating_sub(1);
    let wrapped =
        |lines: &[String]| -> Vec<String> { lines.iter().flat_map(|one| wrap(one, columns)).collect() };
    let (title, shown) = match pane {
        Pane::Log { agent, name, back } => {
            let lines =
                view.look.log.as_ref().filter(|(id, _)| id == agent).map(|(_, lines)| lines.as_slice());
            let lines = lines.unwrap_or_default();
            let lines = wrapped(&lines[..lines.len().saturating_sub(*back)]);
            let status = view.agent(agent).map_or("removed", state);
            let behind = if *back > 0 { format!("  {back} newer below") } else { String::new() };
            (format!("{name}  {status}{behind}"), lines[lines.len().saturating_sub(height)..].to_vec())
        }
        Pane::Approval { id, from } => {
            let lines = wrapped(view.approval_lines(id).get(*from..).unwrap_or_default());
            (format!("{id}  waits for you"), lines)
        }
    };
    let mut all = vec![painted(colour, Style::Cyan, &cut(&title, columns))];
    all.extend(shown.into_iter().take(height));
    all
}

/// A line broken at the last column; what steers or hides is shown as an escape.
fn wrap(line: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for c in clean(line).chars().filter(|c| *c != '\n') {
        if used + char_width(c) > columns.max(1) {
            lines.push(String::new());
            used = 0;
        }
        used += char_width(c);
        if let Some(last) = lines.last_mut() {
            last.push(c);
        }
    }
    debug_assert!(columns < 2 || lines.iter().all(|line| text_width(line) <= columns));
    lines
}
