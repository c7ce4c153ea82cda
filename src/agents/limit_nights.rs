//! Many nights at limits in virtual time, through the readers of all programs: what they print of a refusal
//! goes through their conversations, and their runs are those that the core orders.

use super::limit::planted::{self, Bug};
use super::limit_tests::{HOUR_MS, PROVIDERS, bench, spawn, starts};
use super::{StartOrder, State, Status, limit};
use crate::core::Timer;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::providers::{self, Activity, Step, TurnEnd};
use crate::settings::QuietHours;
use crate::testing::Bench;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const MINUTE_MS: u64 = 60_000;

/// How a refusal tells when it opens.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Seconds,
    Millis,
    Zoned,
    Local,
    German,
    Span,
    Rfc,
    Nothing,
}

const SHAPES: [Shape; 8] = [
    Shape::Seconds,
    Shape::Millis,
    Shape::Zoned,
    Shape::Local,
    Shape::German,
    Shape::Span,
    Shape::Rfc,
    Shape::Nothing,
];

fn wall(at: Time, zone: &TimeZone) -> jiff::civil::DateTime {
    zone.to_datetime(jiff::Timestamp::from_millisecond(i64::try_from(at.0).unwrap()).unwrap())
}

fn words(shape: Shape, now: Time, opens: Time, zone: &TimeZone) -> String {
    let here = wall(opens, zone);
    let (hour, minute) = (here.hour(), here.minute());
    let half = if hour < 12 { "am" } else { "pm" };
    let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
    match shape {
        Shape::Seconds => format!("Claude AI usage limit reached|{}", opens.0.div_ceil(1000)),
        Shape::Millis => format!("usage limit reached, resets at {}", opens.0),
        Shape::Zoned => {
            let name = zone.iana_name().unwrap_or("UTC");
            format!("You've hit your session limit · resets {twelve}:{minute:02}{half} ({name})")
        }
        Shape::Local => format!("You've hit your usage limit. Try again at {twelve}:{minute:02} {half}."),
        Shape::German => format!("Nutzungslimit erreicht, wieder verfügbar um {hour}:{minute:02} Uhr"),
        Shape::Span => {
            let left = opens.since(now).as_secs() + 1;
            format!("Your quota will reset after {}h{}m{}s.", left / 3600, left / 60 % 60, left % 60)
        }
        Shape::Rfc => format!("quota exceeded until {opens}"),
        Shape::Nothing => "You've hit your usage limit.".to_owned(),
    }
}

/// What the program of this provider prints of a refusal.
fn refusal(provider: &str, words: &str, opens: Option<Time>) -> Vec<String> {
    let lines = match provider {
        "claude-code" => {
            let info = opens.map(|at| {
                let info = json!({"status": "rejected", "resetsAt": at.0.div_ceil(1000), "utilization": 1.0,
                    "rateLimitType": "five_hour", "isUsingOverage": false});
                json!({"type": "rate_limit_event", "rate_limit_info": info})
            });
            let init = json!({"type": "system", "subtype": "init", "session_id": "s-1", "model": "m"});
            let end = json!({"type": "result", "subtype": "success", "is_error": true, "result": words});
            [Some(init), info, Some(end)].into_iter().flatten().collect()
        }
        "codex" => vec![
            json!({"type": "thread.started", "thread_id": "s-1"}),
            json!({"type": "turn.started"}),
            json!({"type": "turn.failed", "error": {"message": words}}),
        ],
        "gemini" => vec![
            json!({"type": "init", "session_id": "s-1", "model": "m"}),
            json!({"type": "result", "status": "error", "error": {"message": words}, "stats": {}}),
        ],
        "copilot" => vec![
            json!({"type": "model.call_failure", "data": {"statusCode": 429, "errorMessage": words}}),
            json!({"type": "session.error", "data": {"errorType": "quota", "message": words}}),
            json!({"type": "result", "sessionId": "s-1", "exitCode": 1}),
        ],
        "opencode" => vec![json!({"type": "error", "sessionID": "s-1", "error": {"name": "APIError",
            "data": {"message": words, "statusCode": 429, "responseHeaders": {}}}})],
        "qwen" => vec![
            json!({"type": "system", "subtype": "init", "session_id": "s-1", "model": "m"}),
            json!({"type": "result", "subtype": "error", "is_error": true, "error": {"message": words}}),
        ],
        "cline" => vec![json!({"type": "error", "message": words})],
        _ => vec![
            json!({"type": "session", "id": "s-1"}),
            json!({"type": "limit", "kind": "window", "closed": true, "words": words, "source": "error"}),
            json!({"type": "turn-ended", "isError": true, "error": words}),
        ],
    };
    lines.iter().map(Value::to_string).collect()
}

/// Random numbers of one night.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What one night came to.
#[derive(Default)]
struct Seen {
    /// When it was issued after the first time, and since when it was allowed by what was told last.
    issues: u64,
    done: bool,
    crashed: bool,
    early: bool,
    in_quiet: bool,
    refused: u64,
}

struct Night {
    provider: &'static str,
    shape: Shape,
    policy: &'static str,
    zone: TimeZone,
    quiet: Option<QuietHours>,
    opens: Time,
    moves: u64,
    restarts: bool,
}

impl Night {
    fn new(dice: &mut Dice, now: Time) -> Self {
        let zones = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"];
        let quiet = ["22:00-07:00", "01:15-03:45"][usize::try_from(dice.roll(2)).unwrap()];
        Self {
            provider: PROVIDERS[usize::try_from(dice.roll(8)).unwrap()],
            shape: SHAPES[usize::try_from(dice.roll(8)).unwrap()],
            policy: ["wait", "wait", "wait", "ask", "stop"][usize::try_from(dice.roll(5)).unwrap()],
            zone: TimeZoneDatabase::bundled().get(zones[usize::try_from(dice.roll(5)).unwrap()]).unwrap(),
            quiet: (dice.roll(4) == 0).then(|| QuietHours::parse(quiet).unwrap()),
            opens: Time(now.0 + 2 * MINUTE_MS + dice.roll(12 * HOUR_MS)),
            moves: if dice.roll(4) == 0 { 1 + dice.roll(2) } else { 0 },
            restarts: dice.roll(3) == 0,
        }
    }

    /// The program runs: it is refused while the window is closed, else it does its work.
    fn run(
        &mut self,
        bench: &mut Bench,
        id: AgentId,
        order: &StartOrder,
        dice: &mut Dice,
    ) -> (bool, Option<Time>) {
        let provider = providers::by_id(order.provider).unwrap();
        let mut conversation = provider.launch(&order.request).unwrap().conversation;
        let mut steps = Vec::new();
        conversation.open(&mut steps);
        if bench.now >= self.opens && self.moves > 0 {
            self.moves -= 1;
            self.opens = Time(bench.now.0 + 3 * MINUTE_MS + dice.roll(6 * HOUR_MS));
        }
        let refused = bench.now < self.opens;
        let mut told = None;
        if refused {
            let words = words(self.shape, bench.now, self.opens, &self.zone);
            told = (self.shape != Shape::Nothing).then_some(self.opens);
            let event = Some(self.opens).filter(|_| self.shape == Shape::Seconds);
            for line in refusal(self.provider, &words, event) {
                conversation.line(&line, &mut steps);
            }
            conversation.end(&mut steps);
        }
        bench
            .apply(crate::core::Event::Run(id, super::report::RunReport::Started { pid: 1, start_ticks: 1 }));
        let mut done: Vec<Activity> = steps
            .into_iter()
            .filter_map(|step| if let Step::Event(activity) = step { Some(activity) } else { None })
            .collect();
        if !refused {
            done.push(Activity::TurnEnded(TurnEnd { text: "done".into(), ..TurnEnd::default() }));
        }
        bench.does(id, done);
        bench.exits(id, i32::from(refused));
        (refused, told)
    }

    fn live(&mut self, bench: &mut Bench, dice: &mut Dice) -> Seen {
        let mut seen = Seen::default();
        let begun = bench.now;
        let id = spawn(bench, self.provider, "TASK");
        let mut told = None;
        let mut first = true;
        let mut pending = starts(bench);
        assert_eq!(pending.len(), 1);
        let _ = id;
        while bench.now.0 < begun.0 + 72 * HOUR_MS {
            for (id, order) in std::mem::take(&mut pending) {
                if order.request.prompt.contains("TASK") {
                    if !std::mem::take(&mut first) {
                        seen.issues += 1;
                        seen.early |= told.is_some_and(|at: Time| bench.now < at);
                        let here = wall(bench.now, &self.zone);
                        let minute =
                            u16::try_from(60 * i32::from(here.hour()) + i32::from(here.minute())).unwrap();
                        seen.in_quiet |= self.quiet.is_some_and(|quiet| quiet.has(minute));
                    }
                } else {
                    seen.crashed = true;
                }
                let refused;
                (refused, told) = self.run(bench, id, &order, dice);
                seen.refused += u64::from(refused);
                seen.done |= !refused;
            }
            let status = bench.state.agents.find("dev").unwrap().status;
            seen.crashed |= matches!(status, Status::Crashed | Status::Interrupted);
            for timer in [Timer::Snapshot, Timer::StateNotice, Timer::Journalist, Timer::Cleanup] {
                Arc::make_mut(&mut bench.state.timers).clear(timer);
            }
            if self.restarts && dice.roll(3) == 0 {
                restart(bench);
            }
            pending = starts(bench);
            if pending.is_empty() {
                let Some((at, _)) = bench.state.timers.next() else { break };
                bench.pass(at.since(bench.now));
                pending = starts(bench);
            }
        }
        seen
    }
}

/// The daemon was killed and the next one has started; nothing of the agents was left.
fn restart(bench: &mut Bench) {
    if bench.state.agents.live().any(|agent| !agent.has_no_run()) {
        return;
    }
    let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
    let prompt = |_| "TASK".into();
    let state = State::restore(serde_json::from_slice(&stored).unwrap(), prompt, &HashSet::new(), bench.now);
    bench.state.agents = Arc::new(state);
    bench.state.timers = Arc::default();
    bench.with(|all, _| limit::started(all));
}

/// So many nights from this seed; the faults that were seen.
fn nights(count: u64, seed: u64) -> (Vec<&'static str>, [u64; 4]) {
    let mut faults: Vec<&'static str> = Vec::new();
    let mut sums = [0; 4];
    let mut bench = bench(&json!({}));
    let fresh = bench.state.clone();
    let mut settings = BTreeMap::new();
    for night in 0..count {
        let mut dice = Dice((seed + night).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        dice.roll(2);
        bench.state = fresh.clone();
        // Any minute of 2026, the nights in which clocks change more often than others.
        let changes = [1_774_746_000_000, 1_792_890_000_000, 1_772_953_200_000, 1_793_512_800_000];
        bench.now = match dice.roll(4) {
            0 => Time(changes[usize::try_from(dice.roll(4)).unwrap()] - dice.roll(8 * HOUR_MS)),
            _ => Time(1_767_225_600_000 + dice.roll(364 * 24 * HOUR_MS)),
        };
        let mut it = Night::new(&mut dice, bench.now);
        Arc::make_mut(&mut bench.state.project).zone = it.zone.iana_name().unwrap_or("UTC").to_owned();
        let quiet = it.quiet.map(|quiet| {
            let text = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
            format!("{}-{}", text(quiet.from), text(quiet.to))
        });
        let known = settings.entry((it.policy, quiet.clone())).or_insert_with(|| {
            let settings = json!({"onLimit": it.policy, "limits": {"quietHours": quiet}});
            assert_eq!(bench.ask("PATCH", "/api/config", &settings).0, 200);
            Arc::clone(&bench.state.settings)
        });
        bench.state.settings = Arc::clone(known);
        let seen = it.live(&mut bench, &mut dice);
        sums[0] += 1;
        sums[1] += seen.refused;
        sums[2] += seen.issues;
        sums[3] += u64::from(seen.done);
        let may = it.policy == "wait";
        for (is, what) in [
            (seen.crashed, "crashed"),
            (seen.early, "before the reset"),
            (seen.in_quiet, "in quiet hours"),
            (!may && seen.issues > 0, "outside of policy"),
            (may && !seen.done, "never issued again"),
            (may && seen.issues != seen.refused, "not once for each refusal"),
        ] {
            if is && !faults.contains(&what) {
                eprintln!("{what}: seed {} {} {:?} {}", seed + night, it.provider, it.shape, it.policy);
                faults.push(what);
            }
        }
    }
    (faults, sums)
}

#[test]
fn in_ten_thousand_nights_each_cut_off_prompt_is_issued_again_once_and_only_as_was_said() {
    let (faults, [nights, refused, issues, done]) = nights(10_000, 1);
    eprintln!("{nights} nights: refused {refused}, issued again {issues}, done {done}");
    assert_eq!(faults, Vec::<&str>::new());
    assert!(nights == 10_000 && refused >= nights && issues > nights / 2 && done > nights / 2);
}

#[test]
fn a_bug_in_each_rule_is_found_in_some_nights() {
    for (bug, found) in [
        (Bug::Early, "before the reset"),
        (Bug::Quiet, "in quiet hours"),
        (Bug::Consent, "outside of policy"),
        (Bug::Twice, "not once for each refusal"),
        (Bug::Lost, "never issued again"),
        (Bug::Crash, "crashed"),
    ] {
        planted::set(Some(bug));
        let (faults, _) = nights(400, 1);
        planted::set(None);
        assert!(faults.contains(&found), "{bug:?} is not found, only {faults:?}");
    }
}
