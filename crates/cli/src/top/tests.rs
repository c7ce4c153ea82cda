//! The screen without a terminal.

use super::frame::frame;
use super::keys::Key;
use super::view::{Look, Pane, Pick, View, Wish};
use crate::render::text_width;
use serde_json::{Value, json};
use svc_base::time::Time;

fn agent(id: &str, name: &str, state: &str, tokens: u64) -> Value {
    json!({"id": id, "name": name, "state": state, "tokensUsed": tokens, "contextUsage": 0.42, "costUsd": 0.5,
        "currentActivity": "Write src/a.rs", "statusReason": "because", "spawnedAt": "1970-01-01T00:00:00.000Z"})
}

fn approval(id: &str, agent: &str, at: u64) -> Value {
    json!({"id": id, "agentId": agent, "agentName": "b-1", "requestedAt": Time(at).to_string(),
        "action": {"description": "delete the data\u{1b}[2J base", "params": {"table": "users"}}})
}

fn look(at: u64, agents: Vec<Value>, approvals: Vec<Value>) -> Look {
    Look { at: Time(at), agents, approvals, ..Look::default() }
}

fn view() -> View {
    let mut view = View::new("/tmp/demo".into());
    let agents = vec![
        agent("3", "c-1", "completed", 5),
        agent("1", "a-1", "running", 1000),
        agent("2", "b-1", "waiting", 0),
    ];
    view.saw(look(1000, agents, vec![approval("apr-2", "9", 900), approval("apr-1", "2", 800)]));
    view
}

fn shown(view: &View, columns: usize, lines: usize) -> Vec<String> {
    let frame = frame(view, (columns, lines), false);
    assert_eq!(frame.len(), lines);
    for line in &frame {
        assert!(text_width(line) <= columns, "{line:?} is wider than {columns}");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    frame
}

#[test]
fn a_usual_terminal_shows_what_waits_on_top_and_then_the_agents() {
    let frame = shown(&view(), 80, 24);
    let at = |words: &str| {
        frame.iter().position(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {frame:#?}"))
    };
    assert!(frame[0].contains("2 live of 3") && frame[0].contains("2 to decide"), "{}", frame[0]);
    assert!(at("apr-1") < at("apr-2") && at("apr-2") < at("waiting"));
    assert!(frame[at("apr-1")].starts_with("> apr-1"), "the oldest approval is chosen at first");
    assert!(at("waiting") < at("running") && at("running") < at("completed"));
    assert!(frame[at("running")].contains("42% ##...") && frame[at("running")].contains("Write src/a.rs"));
    assert!(frame[at("waiting")].contains("because"));
    assert!(frame[23].starts_with("q quit"));
}

#[test]
fn every_size_is_filled_and_never_overrun() {
    for (columns, lines) in [(1, 1), (5, 2), (10, 3), (20, 4), (40, 10), (80, 24), (200, 60)] {
        let mut view = view();
        shown(&view, columns, lines);
        view.key(Key::Enter);
        shown(&view, columns, lines);
        view.look.log = Some(("1".into(), vec!["界".repeat(70), "x".repeat(500)]));
        view.pane = Some(Pane::Log { agent: "1".into(), name: "a-1".into(), back: 0 });
        shown(&view, columns, lines);
    }
    shown(&View::new("x".into()), 80, 24);
}

#[test]
fn what_the_providers_and_the_machine_still_have_stands_in_one_line_each() {
    let mut view = view();
    let window = |account: &str, name: &str, left: Value, closed: bool| {
        json!({"provider": "codex", "account": account, "window": name, "leftPercent": left, "closed": closed,
            "opensAt": Time(3_601_000).to_string()})
    };
    view.look.quota = json!({"windows": [
        window("default", "week", json!(58.0), false),
        window("work", "five_hour", json!(7.5), false),
        window("priv", "five_hour", Value::Null, true),
        window("silent", "five_hour", Value::Null, false),
    ], "held": [{"name": "a-1"}, {"name": "b-1"}]});
    view.look.capacity = json!({"more": 3, "provider": "codex", "eachMegabytes": 300, "basis": "guessed",
        "queued": [{"name": "c"}]});
    let frame = shown(&view, 200, 24);
    let limits = "limits: codex (priv) five_hour closed, opens in 1h; codex (work) five_hour 7.5% left; codex \
                  week 58% left; 2 held";
    assert_eq!(frame[1], limits);
    assert_eq!(frame[2], "capacity: 3 more agents of codex fit, 300 MB each (a guess); 1 waits");
    assert!(frame[3].contains("WAITS FOR YOU") && shown(&view, 200, 24)[23].starts_with("q quit"));
    // A low screen has room for the agents alone, a log for itself.
    assert!(!shown(&view, 80, 9).join("").contains("capacity"));
    view.key(Key::Enter);
    assert!(!shown(&view, 80, 24).join("").contains("capacity"));
    // Who has told nothing takes no line.
    view.key(Key::Escape);
    view.look.quota = json!({"windows": [], "held": []});
    assert!(shown(&view, 200, 24)[1].starts_with("capacity:"));
}

#[test]
fn the_chosen_row_is_kept_by_its_id_and_stays_in_sight() {
    let mut view = view();
    view.key(Key::End);
    assert_eq!(view.pick, Some(Pick::Agent("3".into())));
    let mut agents: Vec<Value> =
        (10..60).map(|n| agent(&n.to_string(), &format!("z-{n}"), "running", 0)).collect();
    agents.push(agent("3", "c-1", "completed", 5));
    view.saw(look(2000, agents, Vec::new()));
    assert_eq!(view.pick, Some(Pick::Agent("3".into())));
    assert!(shown(&view, 80, 24).iter().any(|line| line.starts_with("> c-1")));
    view.key(Key::Home);
    view.key(Key::Up);
    assert!(shown(&view, 80, 24).iter().any(|line| line.starts_with("> z-10")));
}

#[test]
fn only_the_chosen_approval_is_decided() {
    let mut view = view();
    assert_eq!(view.key(Key::Char('a')), Some(Wish::Decide { id: "apr-1".into(), approve: true }));
    view.key(Key::Down);
    assert_eq!(view.key(Key::Char('r')), Some(Wish::Decide { id: "apr-2".into(), approve: false }));
    view.key(Key::Down);
    assert_eq!(
        view.key(Key::Char('a')),
        Some(Wish::Decide { id: "apr-1".into(), approve: true }),
        "its agent's"
    );
    view.key(Key::Down);
    assert_eq!(view.key(Key::Char('a')), None, "an agent that waits for nothing");
    assert!(shown(&view, 80, 24)[22].contains("choose an approval"));
}

fn typed(view: &mut View, words: &str) -> Vec<Wish> {
    words.chars().filter_map(|c| view.key(if c == '\n' { Key::Enter } else { Key::Char(c) })).collect()
}

fn answers(id: &str, words: &str) -> Wish {
    Wish::Answer { id: id.into(), words: words.into() }
}

/// Two questions, one of which offers something.
fn asked() -> View {
    let mut view = View::new("/tmp/demo".into());
    let mut free = approval("apr-1", "2", 800);
    free["action"] = json!({"type": "question", "question": "how long?", "description": "know: how long?"});
    let mut offers = approval("apr-2", "1", 900);
    let options = json!([{"label": "tabs", "description": "as now"}, {"label": "spaces", "description": ""}]);
    let questions = json!([{"question": "Which one?", "options": options}]);
    offers["action"] = json!({"type": "tool_permission", "tool": "AskUserQuestion",
        "description": "use AskUserQuestion", "params": {"questions": questions}});
    offers["card"] = json!({"kind": "tool"});
    let agents = vec![agent("1", "a-1", "waiting", 0), agent("2", "b-1", "waiting", 0)];
    view.saw(look(1000, agents, vec![free, offers]));
    view
}

/// Whoever names a tool of an integration, or what runs a command, like the tool for questions gets no yes by
/// an answer.
#[test]
fn only_a_programs_own_tool_for_questions_asks_one() {
    use crate::approvals::is_question;
    let asks = json!({"type": "tool_permission", "tool": "AskUserQuestion",
        "params": {"questions": [{"question": "Which one?"}]}});
    assert!(is_question(&json!({"action": asks})));
    for (field, value) in [
        ("type", json!("integration_exec")),
        ("tool", json!("Bash")),
        ("command", json!({"text": "rm -rf ."})),
        ("params", json!({})),
    ] {
        let mut other = asks.clone();
        other[field] = value;
        assert!(!is_question(&json!({"action": other})), "{field}");
    }
}

#[test]
fn a_question_is_answered_with_words_and_not_approved() {
    let mut view = asked();
    assert_eq!(view.key(Key::Char('a')), None, "nobody has answered yet");
    let text = shown(&view, 80, 24);
    assert!(text.join("\n").contains("how long?") && text[22] == "answer: _", "{text:#?}");
    assert!(text[23].starts_with("enter send"), "{}", text[23]);
    assert_eq!(typed(&mut view, "\n"), [], "it says nothing yet");
    // Letters are letters now: a, r, K and q as well.
    assert_eq!(typed(&mut view, "8 houxr aKq é"), []);
    for _ in 0..8 {
        view.key(Key::Backspace);
    }
    typed(&mut view, "rs  ");
    assert_eq!(shown(&view, 80, 24)[22], "answer: 8 hours  _");
    assert_eq!(shown(&view, 14, 24)[22], "answer: urs  _", "its end");
    assert_eq!(typed(&mut view, "\n"), [answers("apr-1", "8 hours")]);
    assert_eq!((&view.pane, &view.answer), (&None, &None));
    // It can be left, or left to the agent.
    view.key(Key::Char('a'));
    assert_eq!((typed(&mut view, "no"), view.key(Key::Escape)), (vec![], None));
    assert!(shown(&view, 80, 24)[22].contains("not answered"));
    assert_eq!(view.key(Key::Char('r')), Some(Wish::Decide { id: "apr-1".into(), approve: false }));
    // One that was answered elsewhere takes what is typed along.
    view.key(Key::Char('a'));
    view.saw(look(2000, Vec::new(), Vec::new()));
    assert_eq!(typed(&mut view, "x\n"), []);
    assert_eq!(view.answer, None);
}

#[test]
fn what_a_question_offers_is_chosen_by_its_number() {
    let mut view = asked();
    view.key(Key::Down);
    assert!(shown(&view, 80, 24).join("\n").contains("know: Which one?"));
    view.key(Key::Char('a'));
    let text = shown(&view, 80, 24).join("\n");
    assert!(text.contains("1: tabs (as now)") && text.contains("2: spaces"), "{text}");
    assert_eq!(typed(&mut view, "2\n"), [answers("apr-2", "spaces")]);
    for other in ["3", "0", "both, 2 first"] {
        view.key(Key::Char('a'));
        assert_eq!(typed(&mut view, &format!("{other}\n")), [answers("apr-2", other)]);
    }
    view.key(Key::Home);
    view.key(Key::Char('a'));
    assert_eq!(typed(&mut view, "2\n"), [answers("apr-1", "2")], "nothing is offered there");
}

#[test]
fn an_agent_is_ended_only_after_a_y() {
    let mut view = view();
    assert_eq!(view.key(Key::Char('K')), None, "an approval is no agent");
    view.key(Key::End);
    view.key(Key::Char('K'));
    assert!(shown(&view, 80, 24)[22].contains("remove c-1? y"));
    assert_eq!(view.key(Key::Char('q')), None, "a q means no here");
    view.key(Key::Char('K'));
    assert_eq!(view.key(Key::Char('y')), Some(Wish::Kill { id: "3".into(), name: "c-1".into() }));
    assert_eq!(view.key(Key::Char('y')), None);
    view.key(Key::Char('K'));
    view.saw(look(2000, Vec::new(), Vec::new()));
    assert_eq!(view.key(Key::Char('y')), None, "it is gone");
}

#[test]
fn panes_open_scroll_and_close() {
    let mut view = view();
    assert_eq!(view.key(Key::Enter), None);
    let text = shown(&view, 80, 24).join("\n");
    assert!(text.contains("\"table\": \"users\""), "exact parameters: {text}");
    assert_eq!(view.key(Key::Char('a')), Some(Wish::Decide { id: "apr-1".into(), approve: true }));
    view.key(Key::Escape);
    assert_eq!(view.pane, None);
    view.key(Key::End);
    assert_eq!(view.key(Key::Enter), Some(Wish::Watch(Some("3".into()))));
    view.look.log = Some(("3".into(), (0..100).map(|n| format!("line {n}")).collect()));
    assert!(shown(&view, 80, 24)[21].contains("line 99"));
    view.key(Key::PageUp);
    assert!(shown(&view, 80, 24)[21].contains("line 89"));
    view.key(Key::End);
    assert!(shown(&view, 80, 24)[21].contains("line 99"));
    assert_eq!(view.key(Key::Char('q')), Some(Wish::Watch(None)));
    assert_eq!(view.key(Key::Char('q')), Some(Wish::Quit));
    assert_eq!(view.key(Key::Interrupt), Some(Wish::Quit));
}

#[test]
fn tokens_per_second_are_of_the_last_ten_seconds() {
    let mut view = View::new(String::new());
    assert_eq!(view.rate("1"), None);
    for second in 0..30_u64 {
        let tokens = if second < 15 { second * 1000 } else { 15_000 + (second - 15) * 20 };
        view.saw(look(second * 1000, vec![agent("1", "a-1", "running", tokens)], Vec::new()));
    }
    assert_eq!(view.rate("1"), Some(20));
    view.saw(Look { trouble: Some("gone".into()), ..Look::default() });
    assert!(shown(&view, 80, 24)[22].contains("gone"));
    assert_eq!(view.look.agents.len(), 1, "what was seen last stays");
}
