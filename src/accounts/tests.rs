use super::api::wish;
use super::*;
use crate::api::Fields;
use crate::assembly::documents::encode;
use crate::core::Actor;
use crate::core::ids::AgentId;
use crate::testing::{Bench, parsed};

const WORK: Option<&str> = Some("/h/.config/svc/accounts/work/codex");

fn read(body: &Value) -> Result<api::Wish, Problem> {
    let mut fields = Fields::new(body.as_object().unwrap());
    let read = wish(&mut fields);
    fields.validator.finish().map(|()| read)
}

fn refused(body: &Value) -> String {
    read(body).err().map_or_else(String::new, |problem| json!(problem.errors).to_string())
}

#[test]
fn a_wish_names_a_word_a_provider_that_can_and_an_absolute_folder() {
    for (body, words) in [
        (json!({"name": "work", "provider": "codex"}), ""),
        (json!({"name": "work", "provider": "codex", "home": "/srv/a"}), ""),
        (json!({"name": "k-1", "provider": "aider"}), ""),
        (json!({}), "provider"),
        (json!({"name": "auto", "provider": "codex"}), "neither default nor auto nor a provider's id"),
        (json!({"name": "claude-code", "provider": "codex"}), "nor a provider's id"),
        (json!({"name": "../up", "provider": "codex"}), "begin with a letter or digit"),
        (json!({"name": "a".repeat(41), "provider": "codex"}), "1 to 40"),
        (json!({"name": "work", "provider": "nobody"}), "those that can: claude-code, codex"),
        (json!({"name": "work", "provider": "qwen"}), "can have no accounts"),
        (json!({"name": "work", "provider": "script"}), "can have no accounts"),
        (json!({"name": "work", "provider": "codex", "home": "here"}), "absolute"),
        (json!({"name": "k", "provider": "aider", "home": "/srv/a"}), "knows no other home"),
    ] {
        let told = refused(&body);
        assert!(told.contains(words) && told.is_empty() == words.is_empty(), "{body}: {told}");
    }
}

#[test]
fn accounts_are_added_listed_and_removed_by_persons_and_outlive_a_restart() {
    let mut bench = Bench::new();
    assert!(bench.get("/api/openapi.json")["paths"]["/api/accounts"]["post"].is_object());
    let (status, told) = bench.account("work", "codex", WORK);
    assert_eq!(status, 201, "{told}");
    let command = format!("CODEX_HOME={} codex login", WORK.unwrap());
    assert_eq!((&told["loginCommand"], &told["keyName"]), (&json!(command), &json!("account/work")));
    assert_eq!(
        (&told["ready"], &told["hasKey"], &told["login"]),
        (&Value::Null, &json!(false), &Value::Null)
    );
    assert_eq!(bench.audited("account.add").len(), 1);
    // A name and a folder are one account's.
    for (name, home) in [
        ("work", "/srv/other"),
        ("two", WORK.unwrap()),
        ("two", "/h/.config/svc/accounts/work"),
        ("two", "/h/.config/svc/accounts/work/codex/in"),
    ] {
        let (status, told) = bench.account(name, "codex", Some(home));
        assert_eq!((status, &told["code"]), (409, &json!("account_exists")), "{name} {home}");
    }
    let stored: Stored =
        serde_json::from_slice(&encode(Document::Accounts, &bench.state).unwrap().unwrap()).unwrap();
    assert_eq!(State::restore(stored).get("work"), bench.state.accounts.get("work"));
    bench.logged_in("work", true);
    let listed = list(&bench.state);
    assert_eq!(
        (&listed["accounts"][0]["ready"], &listed["accounts"][0]["login"]["ok"]),
        (&json!(true), &json!(true))
    );
    let gone = bench.ask("DELETE", "/api/accounts/work", &Value::Null);
    assert_eq!((gone.0, &gone.1["keptHome"]), (200, &json!(WORK)));
    let (status, told) = bench.ask("DELETE", "/api/accounts/work", &Value::Null);
    assert_eq!(status, 404, "{told}");
    bench.account("work", "codex", WORK);
    assert_eq!(list(&bench.state)["accounts"][0]["login"], Value::Null, "what was told was of another one");
}

fn changed(bench: &mut Bench, name: &str, change: Change) -> (u16, Value) {
    let command = crate::core::Command::Accounts(Command::Change(name.into(), change));
    parsed(&bench.command(command).expect("an answer"))
}

#[test]
fn an_account_gets_another_label_and_folder_and_is_disabled_by_a_person() {
    let mut bench = Bench::with_programs();
    bench.account("work", "codex", WORK);
    bench.account("other", "codex", Some("/srv/other"));
    bench.logged_in("work", true);
    let label = |text: &str| Change { label: Some(text.into()), ..Change::default() };
    let home = |home: &str| Change { home: Some(home.into()), ..Change::default() };
    let enabled = |is_on| Change { enabled: Some(is_on), ..Change::default() };
    let (status, told) = changed(&mut bench, "work", label("The firm's"));
    assert_eq!((status, &told["label"], &told["enabled"]), (200, &json!("The firm's"), &json!(true)));
    assert_eq!((&told["home"], &told["ready"]), (&json!(WORK), &json!(true)), "nothing else is another");
    assert_eq!(changed(&mut bench, "work", label("")).1["label"], Value::Null);
    assert_eq!(changed(&mut bench, "nobody", label("x")).0, 404);
    let (status, told) = changed(&mut bench, "work", home("/srv/other/in"));
    assert_eq!((status, &told["code"]), (409, &json!("account_exists")), "{told}");
    let id = spawn(&mut bench, json!({"name": "bob", "account": "work"}));
    let (status, told) = changed(&mut bench, "work", home("/srv/new"));
    assert_eq!((status, &told["code"]), (409, &json!("account_in_use")), "{told}");
    assert_eq!(changed(&mut bench, "work", home(WORK.unwrap())).0, 200, "it is there already");
    // Who runs goes on; nobody else begins.
    assert_eq!(changed(&mut bench, "work", enabled(false)).1["enabled"], json!(false));
    let wish = json!({"role": "dev", "provider": "codex", "account": "work"});
    let (status, told) = bench.ask("POST", "/api/agents", &wish);
    assert_eq!((status, &told["code"]), (409, &json!("account_disabled")), "{told}");
    let auto = json!({"role": "dev", "provider": "codex", "account": "auto"});
    bench.logged_in("other", true);
    assert_eq!(bench.post("/api/agents", &auto)["account"], json!("other"));
    bench.exits(id, 0);
    assert_eq!(bench.ask("POST", "/api/agents/bob/resume", &json!({})).1["code"], json!("account_disabled"));
    let stored: Stored =
        serde_json::from_slice(&encode(Document::Accounts, &bench.state).unwrap().unwrap()).unwrap();
    assert_eq!(State::restore(stored).get("work"), bench.state.accounts.get("work"));
    // Its login was in the other folder.
    assert_eq!(changed(&mut bench, "work", home("/srv/new")).1["login"], Value::Null);
    assert_eq!(changed(&mut bench, "work", enabled(true)).0, 200);
    assert_eq!(bench.ask("POST", "/api/agents/bob/resume", &json!({})).0, 200);
    assert_eq!(bench.audited("account.change").len(), 6);
}

#[test]
fn a_change_of_an_account_is_read_with_its_faults() {
    let read = |body: &Value| {
        let mut fields = Fields::new(body.as_object().unwrap());
        let change = api::change(&mut fields);
        fields.validator.finish().map(|()| change).map_err(|problem| json!(problem.errors).to_string())
    };
    let all = read(&json!({"label": " a ", "home": "/srv/a", "enabled": false})).unwrap();
    let told = (all.label.as_deref(), all.home.as_deref(), all.enabled);
    assert_eq!(told, (Some("a"), Some("/srv/a"), Some(false)));
    assert_eq!(read(&json!({})).unwrap(), Change::default());
    for (body, words) in [
        (json!({"label": "a".repeat(MAX_LABEL_CHARS + 1)}), "at most 80"),
        (json!({"label": "a\nb"}), "control characters"),
        (json!({"home": "here"}), "absolute"),
        (json!({"enabled": "no"}), "true or false"),
    ] {
        assert!(read(&body).unwrap_err().contains(words), "{body}");
    }
}

#[test]
fn limits_accounts_are_bounded() {
    let mut bench = Bench::new();
    for n in 0..MAX_ACCOUNTS {
        assert_eq!(bench.account(&format!("a{n}"), "codex", Some(&format!("/srv/{n}/x"))).0, 201);
    }
    let (status, told) = bench.account("more", "codex", Some("/srv/more"));
    assert_eq!((status, &told["code"]), (409, &json!("too_many_accounts")));
}

fn spawn(bench: &mut Bench, body: Value) -> AgentId {
    let mut body = body;
    body["role"] = json!("dev");
    bench.spawn(&body)
}

#[test]
fn an_account_in_use_is_not_removed_and_its_key_goes_with_it() {
    let mut bench = Bench::with_programs();
    bench.account("work", "codex", WORK);
    let sealed = serde_json::from_str("\"00ff00ff\"").unwrap();
    let put = credentials::Command::Put { name: key_name("work"), sealed, masked: String::new() };
    bench.command(crate::core::Command::Credentials(put));
    assert_eq!(is_ready(&bench.state, "codex", Some("work")), Some(true), "it has a key");
    let id = spawn(&mut bench, json!({"name": "bob", "account": "work"}));
    assert_eq!(bench.get("/api/agents/bob")["account"], json!("work"));
    assert_eq!(bench.get("/api/agents/bob")["provider"], json!("codex"), "its account says so");
    let (status, told) = bench.ask("DELETE", "/api/accounts/work", &Value::Null);
    assert_eq!((status, &told["code"]), (409, &json!("account_in_use")));
    assert!(told["error"].as_str().unwrap().contains("svc kill bob"), "{told}");
    bench.exits(id, 0);
    assert_eq!(bench.ask("DELETE", "/api/accounts/work", &Value::Null).0, 200);
    assert!(!bench.state.credentials.has("account/work"));
    // Its session is in no other account.
    let (status, told) = bench.ask("POST", "/api/agents/bob/resume", &json!({}));
    assert_eq!((status, &told["code"]), (409, &json!("account_gone")), "{told}");
}

#[test]
fn an_account_gets_its_own_variables_and_no_login_of_another() {
    let mut bench = Bench::new();
    bench.account("work", "codex", WORK);
    bench.account("priv", "claude-code", Some("/srv/p q"));
    bench.account("data", "opencode", Some("/srv/oc"));
    let all = &bench.state;
    let set = |provider: &str, name: Option<&str>| environment(all, provider, name).set;
    let one = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    assert_eq!(set("codex", Some("work")), [one("CODEX_HOME", WORK.unwrap())].into());
    assert_eq!(set("claude-code", Some("priv")), [one("CLAUDE_CONFIG_DIR", "/srv/p q")].into());
    let both = [one("XDG_DATA_HOME", "/srv/oc/data"), one("XDG_STATE_HOME", "/srv/oc/state")];
    assert_eq!(set("opencode", Some("data")), both.into());
    assert_eq!(environment(all, "codex", None), Extra::default());
    // Of one that is gone, or of another provider's: a folder that nobody can use.
    for name in ["gone", "priv"] {
        let extra = environment(all, "codex", Some(name));
        assert_eq!((extra.set, extra.own_login), ([one("CODEX_HOME", NOWHERE)].into(), true));
    }
    assert_eq!(others(all, Some("work")).len(), 2);
    assert_eq!(others(all, None).len(), 3);
    assert_eq!(
        remedy(all, "priv"),
        "log in: CLAUDE_CONFIG_DIR='/srv/p q' claude auth login, or store a key: svc credentials set account/priv"
    );
}

#[test]
fn what_is_named_for_a_hand_over_is_there() {
    let mut bench = Bench::new();
    bench.account("work", "codex", WORK);
    let mut set = |names: &str| {
        let told = bench.ask("PATCH", "/api/config", &json!({"limits": {"handoverTo": names}}));
        (told.0, told.1.to_string())
    };
    assert_eq!(set("work, claude-code").0, 200);
    let (status, told) = set("work,home");
    assert!(status == 400 && told.contains("there are work") && told.contains("claude-code"), "{told}");
    assert_eq!(set("a,b,c,d,e,f,g,h,i").0, 400);
    assert_eq!(set("").0, 400);
}

/// No agent names an account, or removes one by its rights: only persons reach these routes.
#[test]
fn agents_choose_no_account() {
    let mut bench = Bench::with_programs();
    bench.account("work", "codex", WORK);
    let default = spawn(&mut bench, json!({"name": "plain", "provider": "codex"}));
    let own = spawn(&mut bench, json!({"name": "own", "account": "work"}));
    let wishes = |name: &str| json!({"role": "x", "provider": "codex", "account": name, "prompt": "x"});
    bench.actor = Actor::Agent(default);
    for name in ["work", "auto"] {
        let (status, told) = bench.ask("POST", "/api/agents", &wishes(name));
        assert_eq!((status, &told["code"]), (403, &json!("agent_may_not")), "{name}");
    }
    bench.actor = Actor::Agent(own);
    assert_eq!(bench.ask("POST", "/api/agents", &wishes("default")).0, 403);
    // What it starts with the same program uses its own login; with another one the usual.
    let made = bench.post("/api/agents", &json!({"role": "x", "provider": "codex", "prompt": "x"}));
    assert_eq!(made["account"], json!("work"));
    let made = bench.post("/api/agents", &json!({"role": "x", "provider": "claude-code", "prompt": "x"}));
    assert_eq!(made["account"], json!("default"));
}
