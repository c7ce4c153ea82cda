use super::*;
use crate::accounts::Command;
use crate::agents::SpawnRequest;
use crate::agents::limit_tests::{at_limit, starts};
use crate::core::Effect;
use crate::credentials;
use crate::providers::limit::Limit;
use crate::providers::{Activity, SessionStart};
use crate::settings::Cage;
use crate::testing::Bench;
use serde_json::{Value, json};
use std::time::Duration;

fn bench() -> Bench {
    let mut bench = Bench::with_programs();
    for (name, home) in [("work", "/srv/work"), ("priv", "/srv/priv")] {
        assert_eq!(bench.account(name, "codex", Some(home)).0, 201);
    }
    bench
}

fn chosen(bench: &mut Bench, name: &str) -> Value {
    let body = json!({"role": "dev", "name": name, "provider": "codex", "account": "auto"});
    let (status, told) = bench.ask("POST", "/api/agents", &body);
    if status == 201 { told["account"].clone() } else { told["code"].clone() }
}

fn used(window: &str, percent: f64, bench: &Bench) -> Vec<Activity> {
    let resets = bench.now + Duration::from_secs(3600);
    vec![Activity::Limit(Limit::window(window, Some(percent), Some(resets.0)))]
}

#[test]
fn an_account_that_there_is_not_is_refused_with_those_that_there_are() {
    let mut bench = bench();
    for (provider, account, words) in
        [("codex", "home", "there are priv, work"), ("claude-code", "work", "of claude-code, nor any other")]
    {
        let body = json!({"role": "dev", "provider": provider, "account": account});
        let (status, told) = bench.ask("POST", "/api/agents", &body);
        assert!(status == 400 && told.to_string().contains(words), "{told}");
    }
    let (status, told) = bench.ask("POST", "/api/agents", &json!({"role": "dev", "account": "home"}));
    assert!(status == 400 && told["errors"][0]["field"] == "account", "{told}");
    assert!(told.to_string().contains("there are priv, work"), "{told}");
}

#[test]
fn auto_takes_the_account_with_the_most_room_of_those_that_somebody_is_logged_in_to() {
    let mut bench = bench();
    // Nothing is known: one after the other.
    assert_eq!(
        [chosen(&mut bench, "a"), chosen(&mut bench, "b"), chosen(&mut bench, "c")],
        ["default", "priv", "work"]
    );
    for (name, percent) in [("a", 30.0), ("b", 60.0), ("c", 10.0)] {
        let id = bench.state.agents.find(name).unwrap().id;
        let told = used("five_hour", percent, &bench);
        bench.does(id, told);
    }
    assert_eq!(chosen(&mut bench, "d"), "work");
    // Its week is nearly over: the fullest of its windows counts.
    let id = bench.state.agents.find("c").unwrap().id;
    let told = used("seven_day", 95.0, &bench);
    bench.does(id, told);
    assert_eq!(chosen(&mut bench, "e"), "default");
    // Who is known to be logged in goes before.
    bench.logged_in("priv", true);
    assert_eq!(chosen(&mut bench, "f"), "priv");
    for key in ["codex", "priv", "work"] {
        bench.logged_in(key, false);
    }
    let body = json!({"role": "dev", "provider": "codex", "account": "auto"});
    let (status, told) = bench.ask("POST", "/api/agents", &body);
    assert_eq!((status, &told["code"]), (409, &json!("no_account")));
    assert!(told["error"].as_str().unwrap().contains("CODEX_HOME=/srv/work codex login"), "{told}");
    // The window of one has opened meanwhile.
    bench.logged_in("work", true);
    bench.logged_in("priv", true);
    bench.pass(Duration::from_secs(3601));
    assert_eq!(chosen(&mut bench, "g"), "priv", "both are open, and fewer agents use it");
}

#[test]
fn the_windows_and_the_reserve_are_those_of_the_account() {
    let mut bench = bench();
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"limits": {"reserve": 30}})).0, 200);
    let ids =
        ["work", "priv"].map(|name| bench.spawn(&json!({"role": "dev", "name": name, "account": name})));
    let told = used("five_hour", 80.0, &bench);
    bench.does(ids[0], told);
    let quota = bench.get("/api/quota");
    let shown = |at: usize, name: &str| quota["windows"][at][name].clone();
    assert_eq!((shown(0, "account"), shown(0, "usedPercent")), (json!("work"), json!(80.0)), "{quota:#}");
    assert_eq!(quota["windows"].as_array().unwrap().len(), 1);
    assert_eq!(quota["reserve"]["withoutFigure"], json!(["codex (priv)"]));
    let now = bench.now;
    let scarce = |name: &str| quota::scarce(&bench.state, now, "codex", name).is_some();
    assert!(scarce("work") && !scarce("priv") && !scarce(DEFAULT));
    // They outlive a restart, and what was written before there were accounts is the usual one's.
    let stored = json!(bench.state.usage.stored()).to_string();
    let older = stored.replace(",\"work\"]", "]");
    assert_ne!(stored, older);
    for (stored, account) in [(stored, "work"), (older, "default")] {
        bench.with(|all, _| crate::usage::restore(all, serde_json::from_str(&stored).unwrap(), now));
        assert_eq!(bench.get("/api/quota")["windows"][0]["account"], account);
    }
}

#[test]
fn a_start_has_the_variables_and_the_key_of_its_account_alone() {
    let mut bench = bench();
    let seal = |name: &str| {
        let sealed = serde_json::from_str("\"00ff00ff\"").unwrap();
        crate::core::Command::Credentials(credentials::Command::Put {
            name: name.into(),
            sealed,
            masked: String::new(),
        })
    };
    bench.command(seal("codex"));
    bench.command(seal("account/priv"));
    let config = json!({"env": {"set": {"CODEX_HOME": "/of/the/project"}}, "isolation": {"cage": "require"}});
    assert_eq!(bench.ask("PATCH", "/api/config", &config).0, 200);
    assert_eq!(bench.state.settings.config().isolation.cage, Cage::Require);
    for (account, home, keys, hidden) in [
        ("work", "/srv/work", vec![], vec!["/srv/priv"]),
        ("priv", "/srv/priv", vec!["account/priv"], vec!["/srv/work"]),
        ("default", "/of/the/project", vec!["codex"], vec!["/srv/priv", "/srv/work"]),
    ] {
        starts(&mut bench);
        bench.spawn(&json!({"role": "dev", "name": account, "provider": "codex", "account": account}));
        let (_, order) = starts(&mut bench).remove(0);
        let given = &order.request.extra_env;
        assert_eq!(given.set["CODEX_HOME"].as_deref(), Some(home));
        assert_eq!(given.own_login, account != "default");
        let names: Vec<&str> = order.secrets.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, keys, "{account}");
        let room = order.request.room.clone().unwrap();
        assert_eq!(room.hidden, hidden.iter().map(std::path::PathBuf::from).collect::<Vec<_>>());
    }
}

#[test]
fn an_account_that_is_a_key_alone_starts_nothing_without_it() {
    let mut bench = Bench::with_programs();
    assert_eq!(bench.account("paid", "aider", None).0, 201);
    let body = json!({"role": "dev", "account": "paid"});
    let (status, told) = bench.ask("POST", "/api/agents", &body);
    assert_eq!((status, &told["code"]), (409, &json!("account_without_key")), "{told}");
    assert!(told["error"].as_str().unwrap().contains("svc credentials set account/paid"));
}

/// The same program goes on with another login, in a session of its own, with its model and a brief; each in
/// the order that was said, and never back.
#[test]
fn a_hand_over_goes_from_account_to_account_and_then_to_the_other_provider() {
    let mut bench = bench();
    let settings = json!({"onLimit": "handover", "limits": {"handoverTo": "codex, work, priv, claude-code"}});
    assert_eq!(bench.ask("PATCH", "/api/config", &settings).0, 200);
    bench.logged_in("priv", false);
    let body =
        json!({"role": "dev", "name": "dev", "provider": "codex", "model": "gpt-6-luna", "prompt": "TASK"});
    bench.spawn(&body);
    for (account, provider, model) in
        [("work", "codex", json!("gpt-6-luna")), ("default", "claude-code", json!("auto"))]
    {
        let id = bench.state.agents.find("dev").unwrap().id;
        let reset = bench.now + Duration::from_secs(9 * 3600);
        bench.does(id, at_limit(Some(reset)));
        starts(&mut bench);
        bench.exits(id, 0);
        bench.pass(Duration::from_secs(1));
        bench.apply(crate::core::Event::Job(crate::agents::JobReport::Brief(id, Ok("THE BRIEF".into()))));
        let issued = starts(&mut bench);
        assert_eq!(issued.len(), 1, "{account}");
        let order = &issued[0].1;
        assert_eq!((order.provider, &order.request.session), (provider, &SessionStart::Fresh));
        assert!(order.request.prompt.contains("THE BRIEF"));
        let record = bench.get("/api/agents/dev");
        assert_eq!((&record["account"], &record["model"]), (&json!(account), &model), "{record:#}");
        let id = bench.state.agents.find("dev").unwrap().id;
        bench.apply(crate::core::Event::Run(
            id,
            crate::agents::report::RunReport::Started { pid: 1, start_ticks: 1 },
        ));
    }
    // It is at the end: nobody goes back to where it came from.
    let id = bench.state.agents.find("dev").unwrap().id;
    bench.does(id, at_limit(Some(bench.now + Duration::from_secs(3600))));
    bench.exits(id, 0);
    bench.pass(Duration::from_secs(48 * 3600));
    assert_eq!(starts(&mut bench).len(), 0);
    assert_eq!(bench.get("/api/agents/dev")["limit"]["goesOnAt"], Value::Null);
    let said: Vec<Value> =
        bench.audited("limit.goesOn").iter().map(|one| one["handoverTo"].clone()).collect();
    assert!(said.is_empty() || said == ["work", "claude-code"], "{said:?}");
}

/// What one account's window tells holds nobody of another one.
#[test]
fn one_account_s_limit_moves_nobody_of_another() {
    let mut bench = bench();
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"onLimit": "wait"})).0, 200);
    let [work, privately] =
        ["work", "priv"].map(|name| bench.spawn(&json!({"role": "dev", "name": name, "account": name})));
    let reset = bench.now + Duration::from_secs(3600);
    bench.does(work, at_limit(Some(reset)));
    bench.exits(work, 0);
    let goes_on = |bench: &mut Bench| bench.get("/api/agents/work")["limit"]["goesOnAt"].clone();
    assert_eq!(bench.get("/api/agents/work")["limit"]["account"], "work");
    let before = goes_on(&mut bench);
    let later = Limit::window("five_hour", Some(50.0), Some((reset + Duration::from_secs(7200)).0));
    bench.does(privately, vec![Activity::Limit(later.clone())]);
    assert_eq!(goes_on(&mut bench), before);
    let third = bench.spawn(&json!({"role": "dev", "name": "third", "account": "work"}));
    bench.does(third, vec![Activity::Limit(later)]);
    assert_ne!(goes_on(&mut bench), before);
}

/// A schedule's or a team's agent chooses anew each time.
#[test]
fn who_is_started_later_chooses_then() {
    let mut bench = bench();
    let mut request =
        SpawnRequest { role: "dev".into(), account: Some("auto".into()), ..SpawnRequest::default() };
    request.provider = Some("codex".into());
    let info = providers::info_of("codex");
    assert!(check_account(&bench.state, &Maker::person(), info, &request).is_ok());
    assert_eq!(request.account.as_deref(), Some("auto"));
    bench.command(crate::core::Command::Accounts(Command::Remove("work".into())));
    request.account = Some("work".into());
    assert!(check_account(&bench.state, &Maker::person(), info, &request).is_err());
    assert!(!bench.effects.iter().any(|effect| matches!(effect, Effect::Run(..))));
}
