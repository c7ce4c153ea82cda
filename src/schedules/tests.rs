//! Each test names the line of the specification that it holds. The bench's clock begins on 2026-01-01
//! 00:00 UTC, a Thursday.

use super::*;
use crate::agents::Status;
use crate::core::Event;
use crate::testing::Bench;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn wish(cron: &str) -> Value {
    json!({"name": "tidy", "cron": cron, "agent": {"role": "cleaner", "provider": "script", "prompt": "tidy up"}})
}

fn bench(cron: &str) -> (Bench, ScheduleId) {
    let mut bench = Bench::new();
    let (status, body) = bench.ask("POST", "/api/schedules", &wish(cron));
    assert_eq!(status, 201, "{body}");
    (bench, body["id"].as_str().unwrap().parse().unwrap())
}

fn shown(bench: &mut Bench) -> Value {
    bench.ask("GET", "/api/schedules/tidy", &Value::Null).1
}

fn outcomes(bench: &mut Bench) -> Vec<String> {
    let history = shown(bench)["history"].clone();
    history.as_array().unwrap().iter().map(|run| run["outcome"].as_str().unwrap().to_owned()).collect()
}

/// Ends all agents, so that none keeps the next from starting.
fn end_all(bench: &mut Bench) {
    let live: Vec<AgentId> = bench.state.agents.live().map(|agent| agent.id).collect();
    for id in live {
        bench.exits(id, 0);
    }
}

/// The daemon is killed and starts again after `pause`.
fn restart(bench: &mut Bench, pause: Duration) {
    let schedules = serde_json::to_vec(&bench.state.schedules.stored()).unwrap();
    let agents = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
    let now = bench.now + pause;
    *bench = Bench::new();
    bench.now = now;
    bench.state.schedules = Arc::new(State::restore(serde_json::from_slice(&schedules).unwrap()));
    let restored = agents::State::restore(
        serde_json::from_slice(&agents).unwrap(),
        |_| "p".into(),
        &std::collections::HashSet::default(),
        now,
    );
    bench.state.agents = Arc::new(restored);
    bench.apply(Event::Detected(vec![]));
    bench.pass(Duration::from_secs(1));
}

#[test]
fn decisions_13_a_schedule_has_the_fields_of_the_decision() {
    let (mut bench, id) = bench("30 6 * * *");
    let body = shown(&mut bench);
    let expected = json!({"id": id, "name": "tidy", "cron": "30 6 * * *", "timezone": "UTC", "enabled": true,
        "maxConcurrent": 1, "catchUp": "skip", "lastRun": null, "nextRun": "2026-01-01T06:30:00.000Z", "history": []});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(body[field], *value, "{field}");
    }
    assert_eq!((&body["agent"]["role"], &body["agent"]["prompt"]), (&json!("cleaner"), &json!("tidy up")));
    assert_eq!(bench.ask("GET", "/api/schedules", &Value::Null).1[0]["id"], json!(id));
    assert_eq!(bench.ask("GET", "/api/schedules/nobody", &Value::Null).0, 404);
    assert_eq!(bench.audited("schedule.create").len(), 1);
}

#[test]
fn decisions_13_invalid_cron_is_400_with_the_field_and_the_rule() {
    let mut bench = Bench::new();
    let body = json!({"cron": "61 * * * *", "timezone": "Mars/Olympus", "maxConcurrent": 0, "catchUp": "all",
        "agent": {"role": "a b", "isolation": "worktree"}});
    let (status, body) = bench.ask("POST", "/api/schedules", &body);
    let fields: Vec<&str> =
        body["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect();
    assert_eq!((status, fields), (400, vec!["cron", "timezone", "catchUp", "maxConcurrent", "agent.role"]));
    assert_eq!(body["errors"][0]["message"], "cron minute \"61\" must be a number from 0 to 59");
    let (status, body) = bench.ask("POST", "/api/schedules", &json!({}));
    assert_eq!((status, body["errors"].as_array().unwrap().len()), (400, 2), "{body}");
    let mut unknown = wish("* * * * *");
    unknown["agent"]["provider"] = json!("nonsense");
    let (status, body) = bench.ask("POST", "/api/schedules", &unknown);
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("agent.provider")));
    unknown["agent"] = json!({"role": "x", "provider": "script", "teamId": "nobody"});
    assert_eq!(bench.ask("POST", "/api/schedules", &unknown).1["errors"][0]["field"], "agent.teamId");
}

#[test]
fn schedule_execute_is_told_when_the_clock_starts_an_agent() {
    let (mut bench, id) = bench("0 1 * * *");
    bench.pass(HOUR + MINUTE);
    let agent = bench.state.agents.find("cleaner-1").unwrap().id;
    let told = bench.notices("schedule:execute");
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0]["scheduleId"], &told[0]["agentId"]), (&json!(id), &json!(agent)));
    let body = shown(&mut bench);
    assert_eq!(body["nextRun"], "2026-01-02T01:00:00.000Z");
    let run = &body["history"][0];
    assert_eq!(
        (&run["outcome"], &run["scheduledFor"]),
        (&json!("started"), &json!("2026-01-01T01:00:00.000Z"))
    );
    assert_eq!(bench.audited("agent.spawn")[0]["actor"], "daemon");
}

#[test]
fn decisions_13_max_concurrent_and_a_history_of_50() {
    let (mut bench, _) = bench("* * * * *");
    bench.pass(3 * MINUTE + MINUTE / 2);
    assert_eq!(outcomes(&mut bench), ["started", "skipped", "skipped"]);
    let (status, body) = bench.ask("POST", "/api/schedules/tidy/run", &Value::Null);
    assert_eq!((status, &body["code"]), (409, &json!("max_concurrent")));
    bench.ask("PATCH", "/api/schedules/tidy", &json!({"maxConcurrent": 2}));
    assert_eq!(bench.ask("POST", "/api/schedules/tidy/run", &Value::Null).0, 200);
    for _ in 0..60 {
        end_all(&mut bench);
        bench.pass(MINUTE);
    }
    let body = shown(&mut bench);
    assert_eq!(body["history"].as_array().unwrap().len(), 50);
    assert_eq!(body["history"][49]["outcome"], "started");
    let names: std::collections::BTreeSet<_> =
        bench.state.agents.iter().map(|agent| agent.name.clone()).collect();
    assert_eq!(names.len(), bench.state.agents.iter().count());
}

#[test]
fn a_rotated_agent_still_counts_as_running() {
    let (mut bench, _) = bench("* * * * *");
    bench.pass(MINUTE + MINUTE / 2);
    bench.rotates("cleaner-1");
    bench.pass(MINUTE);
    assert_eq!(outcomes(&mut bench), ["started", "skipped"]);
}

#[test]
fn an_ended_agent_that_a_person_resumes_counts_and_the_next_time_is_skipped() {
    let (mut bench, _) = bench("* * * * *");
    bench.pass(MINUTE + MINUTE / 2);
    end_all(&mut bench);
    bench.pass(MINUTE);
    end_all(&mut bench);
    assert_eq!(outcomes(&mut bench), ["started", "started"]);
    assert_eq!(bench.ask("POST", "/api/agents/cleaner-1/resume", &Value::Null).0, 200);
    bench.pass(MINUTE);
    let history = shown(&mut bench)["history"].clone();
    assert_eq!(history[2]["outcome"], "skipped", "{history}");
    let reason = history[2]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("1 of its agents are alive") && reason.contains("maxConcurrent is 1"),
        "{reason}"
    );
    end_all(&mut bench);
    bench.pass(MINUTE);
    assert_eq!(outcomes(&mut bench)[3], "started", "when it has ended, the clock starts again");
}

#[test]
fn an_agent_that_has_ended_while_its_successor_is_prepared_counts() {
    let (mut bench, _) = bench("* * * * *");
    bench.pass(MINUTE + MINUTE / 2);
    let id = bench.state.agents.find("cleaner-1").unwrap().id;
    bench.command(crate::core::Command::Agents(agents::Command::Rotate("cleaner-1".into())));
    bench.exits(id, 0);
    bench.pass(MINUTE);
    assert_eq!(outcomes(&mut bench), ["started", "skipped"]);
}

#[test]
fn decisions_13_disable_enable_change_delete() {
    let (mut bench, id) = bench("* * * * *");
    assert_eq!(bench.ask("POST", "/api/schedules/tidy/disable", &Value::Null).1["nextRun"], Value::Null);
    assert!(!bench.state.timers.is_set(Timer::ScheduleDue(id)), "nothing waits for it");
    bench.pass(HOUR);
    assert!(outcomes(&mut bench).is_empty());
    let (_, body) = bench.ask("POST", "/api/schedules/tidy/enable", &Value::Null);
    assert_eq!(body["nextRun"], "2026-01-01T01:01:00.000Z", "nothing is made up for");
    let (status, body) = bench.ask(
        "PATCH",
        &format!("/api/schedules/{id}"),
        &json!({"cron": "0 9 * * *", "timezone": "Asia/Tokyo"}),
    );
    assert_eq!((status, &body["nextRun"]), (200, &json!("2026-01-02T00:00:00.000Z")));
    assert_eq!(bench.ask("PATCH", "/api/schedules/tidy", &json!({"cron": "x"})).0, 400);
    let (status, body) = bench.ask("DELETE", "/api/schedules/tidy", &Value::Null);
    assert_eq!((status, &body["ok"]), (200, &json!(true)));
    assert!(!bench.state.timers.is_set(Timer::ScheduleDue(id)), "nothing waits for it");
    bench.pass(48 * HOUR);
    assert!(bench.notices("schedule:execute").is_empty());
    assert_eq!(bench.ask("DELETE", "/api/schedules/tidy", &Value::Null).0, 404);
}

#[test]
fn decisions_13_never_twice_for_one_minute_over_a_restart() {
    for catch_up in ["skip", "once"] {
        let (mut bench, _) = bench("0 1 * * *");
        bench.ask("PATCH", "/api/schedules/tidy", &json!({"catchUp": catch_up}));
        bench.pass(HOUR + Duration::from_secs(1));
        assert_eq!(outcomes(&mut bench), ["started"]);
        restart(&mut bench, Duration::from_secs(3));
        bench.pass(MINUTE);
        assert_eq!(outcomes(&mut bench), ["started"], "{catch_up}");
        assert_eq!(shown(&mut bench)["nextRun"], "2026-01-02T01:00:00.000Z");
    }
}

#[test]
fn a_kill_between_mark_and_start_does_not_start_twice() {
    let (mut bench, _) = bench("0 1 * * *");
    bench.ask("PATCH", "/api/schedules/tidy", &json!({"catchUp": "once"}));
    bench.disk_hangs = true;
    bench.pass(HOUR + MINUTE / 2);
    assert!(outcomes(&mut bench).is_empty(), "marked, not yet started");
    let mark_then_start = bench
        .effects
        .iter()
        .rposition(|effect| matches!(effect, Effect::Put(Document::Schedules, Durability::BeforeReply)))
        < bench
            .effects
            .iter()
            .rposition(|effect| matches!(effect, Effect::WhenStored(Timer::ScheduleStart(_))));
    assert!(mark_then_start, "the start waits for the mark on disk");
    assert_eq!(bench.state.agents.iter().count(), 0, "nothing starts before the mark is on disk");
    restart(&mut bench, Duration::from_secs(3));
    assert_eq!(outcomes(&mut bench), ["missed"]);
    assert_eq!(bench.state.agents.iter().count(), 0);
}

/// A run that makes up for a missed time uses the minute that it is made in, even when a kill cuts it off and
/// the clock says that minute again.
#[test]
fn a_late_run_that_a_kill_cut_off_has_used_its_minute_too() {
    let (mut bench, _) = bench("*/5 * * * *");
    bench.ask("PATCH", "/api/schedules/tidy", &json!({"catchUp": "once", "maxConcurrent": 100}));
    bench.disk_hangs = true;
    // The machine slept over 00:05 and 00:10, and wakes at 00:15.
    bench.now = bench.now + 15 * MINUTE;
    bench.pass(Duration::from_secs(1));
    bench.disk_hangs = false;
    // After the kill the clock is ten minutes behind.
    let behind = Time(bench.now.0 - 10 * MINUTE_MS);
    let schedules = serde_json::to_vec(&bench.state.schedules.stored()).unwrap();
    bench = Bench::new();
    bench.now = behind;
    bench.state.schedules = Arc::new(State::restore(serde_json::from_slice(&schedules).unwrap()));
    bench.apply(Event::Detected(vec![]));
    bench.pass(12 * MINUTE);
    let started = |run: &&Value| run["outcome"] == "started";
    let history = shown(&mut bench)["history"].as_array().unwrap().clone();
    let times: Vec<_> = history.iter().filter(started).map(|run| run["scheduledFor"].clone()).collect();
    assert_eq!(times, ["2026-01-01T00:10:00.000Z"], "00:15 was used: {history:?}");
}

#[test]
fn a_late_run_that_waits_for_the_disk_while_the_clock_is_set_back_is_not_made_again() {
    use crate::core::time::Jump;
    let (mut bench, id) = bench("*/5 * * * *");
    bench.ask("PATCH", "/api/schedules/tidy", &json!({"catchUp": "once", "maxConcurrent": 100}));
    bench.disk_hangs = true;
    bench.now = bench.now + 17 * MINUTE;
    bench.pass(Duration::from_secs(1));
    let jump = Jump { is_back: true, by: 15 * MINUTE };
    bench.now = bench.now.moved(jump);
    bench.apply(Event::ClockSet(jump));
    bench.disk_hangs = false;
    bench.apply(Event::Timer(Timer::ScheduleStart(id)));
    bench.pass(20 * MINUTE);
    let history = shown(&mut bench)["history"].as_array().unwrap().clone();
    let started = |run: &&Value| run["outcome"] == "started";
    let times: Vec<_> = history.iter().filter(started).map(|run| run["scheduledFor"].to_string()).collect();
    let distinct: std::collections::BTreeSet<_> = times.iter().collect();
    assert!(times.len() > 1 && distinct.len() == times.len(), "{history:?}");
}

#[test]
fn a_run_that_waits_for_the_disk_while_the_clock_goes_forward_marks_the_minute_that_it_uses_up() {
    use crate::core::time::Jump;
    let (mut bench, id) = bench("*/5 * * * *");
    bench.ask("PATCH", "/api/schedules/tidy", &json!({"catchUp": "once", "maxConcurrent": 100}));
    bench.disk_hangs = true;
    bench.pass(5 * MINUTE);
    let jump = Jump { is_back: false, by: 5 * MINUTE };
    bench.now = bench.now.moved(jump);
    bench.apply(Event::ClockSet(jump));
    bench.apply(Event::Timer(Timer::ScheduleStart(id)));
    assert_eq!(outcomes(&mut bench), [""; 0], "00:10 is to be on the disk before");
    bench.disk_hangs = false;
    bench.apply(Event::Timer(Timer::ScheduleStart(id)));
    bench.pass(Duration::from_secs(50));
    let history = shown(&mut bench)["history"].as_array().unwrap().clone();
    let started = history.iter().filter(|run| run["outcome"] == "started");
    assert_eq!(started.count(), 1, "{history:?}");
}

#[test]
fn a_late_run_does_not_come_into_a_minute_that_was_used_before_the_clock_was_set_back() {
    use crate::core::time::Jump;
    let (mut bench, _) = bench("*/5 * * * *");
    bench.ask("PATCH", "/api/schedules/tidy", &json!({"catchUp": "once", "maxConcurrent": 100}));
    bench.pass(5 * MINUTE + Duration::from_secs(10));
    assert_eq!(outcomes(&mut bench), ["started"]);
    for (is_back, seconds) in [(true, 480), (false, 500)] {
        let jump = Jump { is_back, by: Duration::from_secs(seconds) };
        bench.now = bench.now.moved(jump);
        bench.apply(Event::ClockSet(jump));
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(outcomes(&mut bench), ["started", "missed"], "00:05 has had its run");
}

/// A run that the disk holds up comes later than its time, as one does that was missed.
#[test]
fn a_run_that_the_disk_holds_up_does_not_come_into_a_minute_that_was_used_before() {
    use crate::core::time::Jump;
    let (mut bench, id) = bench("*/5 * * * *");
    bench.ask("PATCH", "/api/schedules/tidy", &json!({"maxConcurrent": 100}));
    bench.pass(10 * MINUTE + Duration::from_secs(10));
    assert_eq!(outcomes(&mut bench), ["started", "started"]);
    // 00:05 has had its run and is not made again; 00:08 is of the new times, and its mark waits for two
    // minutes.
    let jump = Jump { is_back: true, by: 4 * MINUTE };
    bench.now = bench.now.moved(jump);
    bench.apply(Event::ClockSet(jump));
    bench.ask("PATCH", "/api/schedules/tidy", &json!({"cron": "*/2 * * * *"}));
    bench.disk_hangs = true;
    bench.pass(2 * MINUTE);
    bench.pass(2 * MINUTE);
    bench.disk_hangs = false;
    bench.apply(Event::Timer(Timer::ScheduleStart(id)));
    let outcomes = outcomes(&mut bench);
    assert_eq!(outcomes, ["started", "started", "missed"], "00:10 has had its run");
}

/// Each run of a full history may have used two minutes, its own and the one that it was made in.
#[test]
fn a_clock_that_goes_back_behind_a_full_history_of_late_runs_passes_over_all_their_minutes() {
    let (mut bench, id) = bench("* * * * *");
    let from = bench.now;
    let schedule = Arc::make_mut(&mut bench.state.schedules).edit(id).unwrap();
    for run in 0..u32::try_from(MAX_HISTORY).unwrap() {
        let due = from + (2 * run + 1) * MINUTE;
        schedule.history.push_back(Run {
            at: due + MINUTE,
            scheduled_for: Some(due.to_string()),
            outcome: Outcome::Failed,
            agent_id: None,
            reason: None,
        });
    }
    running::plan_next(&mut bench.state, from, id);
    let next = bench.state.schedules.iter().next().unwrap().next_run;
    assert_eq!(next, Some(from + 101 * MINUTE));
}

/// The first time it comes again it is passed over, and its note is the oldest of a full history: what goes
/// is what is first by the clock.
#[test]
fn a_minute_that_comes_a_third_time_is_still_known() {
    use crate::core::time::Jump;
    let (mut bench, _) = bench("* * * * *");
    let back = |bench: &mut Bench, minutes: u32| {
        let jump = Jump { is_back: true, by: minutes * MINUTE };
        bench.now = bench.now.moved(jump);
        bench.apply(Event::ClockSet(jump));
    };
    let mut made: Vec<Value> = Vec::new();
    let mut pass = |bench: &mut Bench, minutes: u32| {
        for _ in 0..minutes {
            bench.pass(MINUTE);
            let history = shown(bench)["history"].as_array().unwrap().clone();
            let seen = history.iter().rposition(|run| made.last() == Some(run));
            made.extend_from_slice(&history[seen.map_or(0, |seen| seen + 1)..]);
        }
    };
    pass(&mut bench, 1);
    bench.now = bench.now + 60 * MINUTE;
    pass(&mut bench, 2);
    back(&mut bench, 55);
    pass(&mut bench, 60);
    back(&mut bench, 8);
    pass(&mut bench, 12);
    let times: Vec<_> = made.iter().map(|run| run["scheduledFor"].to_string()).collect();
    let distinct: std::collections::BTreeSet<_> = times.iter().collect();
    assert!(distinct.len() >= 60 && distinct.len() == times.len(), "{times:?}");
}

#[test]
fn catch_up_skip_notes_missed_times_and_once_makes_up_with_one_run() {
    let (mut first, _) = bench("*/10 * * * *");
    restart(&mut first, HOUR + 5 * MINUTE);
    assert_eq!(outcomes(&mut first), ["missed"]);
    assert_eq!(shown(&mut first)["nextRun"], "2026-01-01T01:10:00.000Z");
    let (mut second, _) = bench("*/10 * * * *");
    second.ask("PATCH", "/api/schedules/tidy", &json!({"catchUp": "once"}));
    restart(&mut second, HOUR + 5 * MINUTE);
    assert_eq!(outcomes(&mut second), ["started"]);
    second.pass(5 * MINUTE);
    assert_eq!(outcomes(&mut second), ["started", "skipped"], "the first still runs");
}

#[test]
fn a_time_of_this_very_minute_is_not_a_missed_one() {
    let (mut bench, _) = bench("*/10 * * * *");
    restart(&mut bench, HOUR + Duration::from_secs(5));
    assert_eq!(outcomes(&mut bench), ["missed", "started"]);
}

#[test]
fn a_clock_that_was_set_back_does_not_repeat_a_minute() {
    let (mut bench, _) = bench("* * * * *");
    bench.pass(5 * MINUTE + MINUTE / 2);
    end_all(&mut bench);
    let told = outcomes(&mut bench).len();
    let stored = serde_json::to_vec(&bench.state.schedules.stored()).unwrap();
    let mut earlier = Bench::new();
    earlier.state.schedules = Arc::new(State::restore(serde_json::from_slice(&stored).unwrap()));
    earlier.apply(Event::Detected(vec![]));
    earlier.pass(5 * MINUTE + MINUTE / 2);
    assert_eq!(outcomes(&mut earlier).len(), told);
}

/// The history tells nothing of it yet: the mark knows the minute in which a late run is being made.
#[test]
fn a_minute_in_which_a_late_run_is_being_made_is_not_used_again() {
    use crate::core::time::Jump;
    let (mut bench, id) = bench("*/5 * * * *");
    bench.ask("PATCH", "/api/schedules/tidy", &json!({"catchUp": "once", "maxConcurrent": 100}));
    bench.disk_hangs = true;
    bench.now = bench.now + 20 * MINUTE + Duration::from_secs(30);
    bench.pass(Duration::from_secs(1));
    let jump = Jump { is_back: true, by: MINUTE };
    bench.now = bench.now.moved(jump);
    bench.apply(Event::ClockSet(jump));
    assert_eq!(shown(&mut bench)["nextRun"], "2026-01-01T00:25:00.000Z", "00:20 is in use");
    bench.disk_hangs = false;
    bench.apply(Event::Timer(Timer::ScheduleStart(id)));
    assert_eq!(outcomes(&mut bench), ["started"]);
}

#[test]
fn a_spawn_that_is_refused_is_told_in_the_history() {
    let (mut bench, _) = bench("* * * * *");
    bench.agent("other");
    bench.ask("PATCH", "/api/config", &json!({"maxAgents": 1}));
    bench.pass(MINUTE + MINUTE / 2);
    let body = shown(&mut bench);
    assert_eq!(body["history"][0]["outcome"], "failed");
    assert!(body["history"][0]["reason"].as_str().unwrap().contains("maxAgents"));
}

#[test]
fn post_agents_with_schedule_also_creates_one() {
    let mut bench = Bench::new();
    let request = SpawnRequest {
        role: "cleaner".into(),
        name: Some("tidy".into()),
        provider: Some("script".into()),
        ..SpawnRequest::default()
    };
    let timing = Timing::parse("0 1 * * *", "UTC").unwrap();
    let reply = bench.command(crate::assembly::spawn::command(request, Some(timing))).unwrap();
    let body: Value = serde_json::from_slice(reply.body.bytes()).unwrap();
    assert_eq!((reply.status, &body["scheduleId"]), (201, &shown(&mut bench)["id"]));
    bench.pass(HOUR + MINUTE);
    assert_eq!(outcomes(&mut bench), ["skipped"], "the first one is alive");
    end_all(&mut bench);
    bench.pass(24 * HOUR);
    let second = bench.state.agents.find("tidy-2").unwrap();
    assert!(second.status.is_live() && bench.state.agents.find("tidy").unwrap().status == Status::Completed);
}

#[test]
fn a_deleted_team_is_left_by_its_schedules() {
    let (mut bench, _) = bench("0 1 * * *");
    bench.ask("POST", "/api/teams", &json!({"name": "crew"}));
    let agent = json!({"role": "cleaner", "provider": "script", "teamId": "crew"});
    bench.ask("PATCH", "/api/schedules/tidy", &json!({"agent": agent}));
    bench.ask("DELETE", "/api/teams/crew", &Value::Null);
    assert_eq!(shown(&mut bench)["agent"]["teamId"], "00000001");
}

#[test]
fn the_account_of_its_agent_is_kept_and_has_to_be_there() {
    let mut bench = Bench::with_programs();
    let mut body = wish("0 1 * * *");
    body["agent"]["provider"] = json!("codex");
    body["agent"]["account"] = json!("auto");
    assert_eq!(bench.ask("POST", "/api/schedules", &body).0, 201);
    assert_eq!(shown(&mut bench)["agent"]["account"], "auto");
    body["name"] = json!("other");
    body["agent"]["account"] = json!("nobody");
    let (status, answer) = bench.ask("POST", "/api/schedules", &body);
    assert_eq!((status, &answer["errors"][0]["field"]), (400, &json!("agent.account")), "{answer}");
}

/// Its programs take half a minute to tell who is logged in, and its start waits for nobody.
#[test]
fn who_is_logged_in_is_asked_before_the_time_of_a_schedule_that_takes_the_roomiest_account() {
    let mut bench = Bench::with_programs();
    let body = json!({"role": "cleaner", "name": "tidy", "provider": "codex", "account": "auto",
        "prompt": "tidy up", "schedule": "0 1 * * *"});
    bench.post("/api/agents", &body);
    end_all(&mut bench);
    let asked = |bench: &Bench| {
        let wanted = crate::accounts::Order::Ask("codex".into());
        bench.effects.iter().filter(|one| matches!(one, Effect::Accounts(order) if *order == wanted)).count()
    };
    bench.pass(HOUR.abs_diff(running::ASKED_BEFORE + Duration::from_secs(1)));
    assert_eq!(asked(&bench), 0);
    bench.pass(Duration::from_secs(1));
    assert_eq!((asked(&bench), outcomes(&mut bench).len()), (1, 0), "before its time");
    bench.pass(running::ASKED_BEFORE);
    assert_eq!((asked(&bench), outcomes(&mut bench)), (1, vec!["started".to_owned()]));
    // For one that is gone nobody is asked.
    assert_eq!(bench.ask("DELETE", "/api/schedules/tidy", &Value::Null).0, 200);
    bench.pass(24 * HOUR);
    assert_eq!(asked(&bench), 1);
}

fn far(runner: &str) -> Value {
    json!({"name": "tidy", "cron": "0 * * * *", "maxConcurrent": 9,
        "agent": {"role": "cleaner", "provider": "script", "prompt": "tidy up", "runner": runner}})
}

#[test]
fn an_agent_that_the_clock_starts_works_where_a_person_has_said() {
    let mut bench = Bench::new();
    let (status, told) = bench.ask("POST", "/api/schedules", &far("box"));
    assert!(status == 400 && told.to_string().contains("there is no runner"), "{told}");
    let (status, told) = bench.ask("POST", "/api/schedules", &far("label:big"));
    assert!(status == 400 && told.to_string().contains("no runner has that label"), "{told}");
    bench.runner("box", &["big"], Some(Ok(crate::testing::facts(48_000))));
    bench.runner("second", &["big"], Some(Ok(crate::testing::facts(40_000))));
    let (status, told) = bench.ask("POST", "/api/schedules", &far("label:big"));
    assert_eq!((status, &told["agent"]["runner"]), (201, &json!("label:big")), "{told}");
    for _ in 0..2 {
        bench.pass(HOUR);
    }
    let started: Vec<_> = bench.state.agents.iter().map(|agent| (**agent).clone()).collect();
    let mut runners: Vec<_> = started.iter().filter_map(|agent| agent.runner.as_deref()).collect();
    svc_base::sorted::up(&mut runners);
    assert_eq!(runners, ["box", "second"], "which one is chosen at each start");
    let trees: Vec<_> = started.iter().filter_map(|agent| agent.worktree.clone()).collect();
    assert!(trees.iter().all(|tree| tree.starts_with(".svc/worktrees/cleaner-")), "{trees:?}");
    assert!(trees[0] != trees[1] && bench.audited("agent.placed").len() == 2);
    // None fits: that stands in its history.
    for name in ["box", "second"] {
        bench.checked(name, false, Err("no route".into()));
    }
    bench.pass(HOUR);
    let last = shown(&mut bench)["history"][2].clone();
    assert_eq!(last["outcome"], "failed", "{last}");
    assert!(last["reason"].as_str().unwrap().contains("no route"), "{last}");
}

#[test]
fn no_agent_has_the_clock_send_work_to_another_machine() {
    let mut bench = Bench::new();
    bench.runner("box", &[], Some(Ok(crate::testing::facts(48_000))));
    let maker = bench.agent("maker");
    bench.actor = crate::core::Actor::Agent(maker);
    assert_eq!(bench.ask("POST", "/api/schedules", &far("box")).0, 403);
    assert_eq!(bench.ask("POST", "/api/schedules", &wish("0 * * * *")).0, 201);
    let change = json!({"agent": far("box")["agent"]});
    assert_eq!(bench.ask("PATCH", "/api/schedules/tidy", &change).0, 403);
    bench.actor = crate::core::Actor::Operator;
    assert_eq!(bench.ask("PATCH", "/api/schedules/tidy", &change).0, 200);
    bench.actor = crate::core::Actor::Agent(maker);
    let (status, told) = bench.ask("POST", "/api/schedules/tidy/run", &json!({}));
    assert!(status == 403 && told.to_string().contains("another machine"), "{told}");
}
