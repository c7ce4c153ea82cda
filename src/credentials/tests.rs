use super::*;
use crate::api::Fields;
use crate::assembly::documents::encode;
use crate::testing::Bench;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const PLANTED: &str = "sk-planted-0123456789-secret";

/// A folder of this test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("svc-vault-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn decisions_13_a_sealed_secret_opens_under_its_name_alone() {
    let folder = Folder::new("seal");
    let vault = Vault::open_in(&folder.0, None).unwrap();
    assert!(!folder.0.join(worker::KEY_FILE).exists(), "no key before there is a secret");
    let secret = Secret::new(PLANTED);
    let sealed = vault.seal("claude-code", &secret).unwrap();
    assert_ne!(sealed, vault.seal("claude-code", &secret).unwrap(), "a random nonce each time");
    assert_eq!(vault.open("claude-code", &sealed), Ok(secret.clone()));
    assert!(vault.open("codex", &sealed).is_err(), "the name is authenticated");
    for at in 0..sealed.0.len() {
        let mut damaged = sealed.clone();
        damaged.0[at] ^= 1;
        assert!(vault.open("claude-code", &damaged).is_err(), "byte {at}");
    }
    for short in [vec![], vec![0; 11], vec![0; 12], vec![0; 28]] {
        assert!(vault.open("claude-code", &Sealed(short)).is_err());
    }
    let again = Vault::open_in(&folder.0, None).unwrap();
    assert_eq!(again.open("claude-code", &sealed), Ok(secret), "the key is in its file");
    let key = folder.0.join(worker::KEY_FILE);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&key, "nonsense").unwrap();
    assert!(Vault::open_in(&folder.0, None).is_err_and(|error| error.contains("restore it")));
    fs::remove_file(&key).unwrap();
    let other = Vault::open_in(&folder.0, None).unwrap();
    assert!(other.open("claude-code", &sealed).is_err_and(|error| error.contains("set it again")));
}

#[test]
fn decisions_13_the_key_may_come_from_the_environment() {
    let folder = Folder::new("master");
    let hex = "0123456789abcdef".repeat(4);
    let passphrase = "correct horse battery staple and so on";
    for text in [hex.as_str(), passphrase] {
        let vault = Vault::open_in(&folder.0, Some(text)).unwrap();
        let sealed = vault.seal("a", &Secret::new(PLANTED)).unwrap();
        let again = Vault::open_in(&folder.0, Some(&format!("{text}\n"))).unwrap();
        assert_eq!(again.open("a", &sealed), Ok(Secret::new(PLANTED)));
        let other = Vault::open_in(&folder.0, Some(&"f".repeat(64))).unwrap();
        assert!(other.open("a", &sealed).is_err());
    }
    assert!(!folder.0.join(worker::KEY_FILE).exists(), "no key's file then");
    assert!(Vault::open_in(&folder.0, Some("short")).is_err_and(|error| error.contains("64 hexadecimal")));
}

#[test]
fn decisions_13_keys_are_masked() {
    for (key, masked) in [
        ("abcdefgh12345678", "abcd...5678"),
        ("abcdefghijkl", "abcd...ijkl"),
        ("abcdefghijk", "****"),
        ("", "****"),
        ("ääääbbbbcccc", "ääää...cccc"),
    ] {
        assert_eq!(Secret::new(key).masked(), masked);
    }
}

#[test]
fn a_secret_never_prints() {
    let secret = Secret::new(PLANTED);
    assert_eq!(format!("{secret:?}"), "Secret(****)");
    let folder = Folder::new("print");
    let sealed = Vault::open_in(&folder.0, None).unwrap().seal("a", &secret).unwrap();
    assert_eq!(format!("{sealed:?}"), format!("Sealed({} bytes)", PLANTED.len() + 28));
}

#[test]
fn decisions_13_set_and_remove_are_durable_and_audited_without_the_key() {
    let folder = Folder::new("set");
    let vault = Vault::open_in(&folder.0, None).unwrap();
    let mut bench = Bench::new();
    let sealed = vault.seal("codex", &Secret::new(PLANTED)).unwrap();
    let command = Command::Put { name: "codex".into(), sealed, masked: "sk-p...cret".into() };
    let reply = bench.command(crate::core::Command::Credentials(command)).unwrap();
    let body: Value = serde_json::from_slice(reply.body.bytes()).unwrap();
    assert_eq!(
        (reply.status, body),
        (200, json!({"ok": true, "provider": "codex", "masked": "sk-p...cret"}))
    );
    let durable =
        |effect: &Effect| matches!(effect, Effect::Put(Document::Credentials, Durability::BeforeReply));
    assert!(bench.effects.iter().any(durable));
    assert_eq!(bench.audited("credentials.set")[0]["name"], "codex");
    let bytes = encode(Document::Credentials, &bench.state).unwrap().unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(!text.contains("planted") && text.contains("codex"), "{text}");
    let stored: Stored = serde_json::from_slice(&bytes).unwrap();
    let restored = State::restore(stored);
    assert_eq!(vault.open("codex", &restored.get("codex").unwrap().sealed), Ok(Secret::new(PLANTED)));
    assert_eq!(bench.ask("DELETE", "/api/credentials/codex", &Value::Null).0, 200);
    assert_eq!(bench.ask("DELETE", "/api/credentials/codex", &Value::Null).0, 404);
    assert_eq!(bench.audited("credentials.remove").len(), 1);
}

#[test]
fn a_providers_key_reaches_its_agents_and_no_others() {
    let folder = Folder::new("reach");
    let vault = Vault::open_in(&folder.0, None).unwrap();
    let mut bench = Bench::new();
    for name in ["codex", "script"] {
        let sealed = vault.seal(name, &Secret::new(PLANTED)).unwrap();
        bench.with(|all, cx| put(all, cx, name, sealed)).unwrap();
    }
    assert_eq!(variables(&bench.state, "script", None, None), [], "script has no variable for a key");
    assert_eq!(variables(&bench.state, "claude-code", None, None), [], "nor is this one's set");
    let sealed = variables(&bench.state, "codex", None, None);
    assert_eq!(vault.variables(&sealed), Ok(vec![("OPENAI_API_KEY".into(), PLANTED.into())]));
    let list = crate::programs::api::shown(&bench.state, &[]);
    let has = |id: &str| list.iter().find(|p| p["id"] == id).unwrap()["hasKey"].clone();
    assert_eq!((has("codex"), has("gemini")), (json!(true), json!(false)));
}

#[test]
fn a_token_of_a_login_goes_into_the_variable_that_it_is_for() {
    let folder = Folder::new("token");
    let vault = Vault::open_in(&folder.0, None).unwrap();
    let mut bench = Bench::new();
    let mut set = |name: &str, secret: &str| {
        let sealed = vault.seal(name, &Secret::new(secret)).unwrap();
        bench.with(|all, cx| put(all, cx, name, sealed)).unwrap();
        vault.variables(&variables(&bench.state, name, None, None)).unwrap()
    };
    let key = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let token = "sk-ant-oat01-0123456789";
    assert_eq!(
        set("claude-code", token),
        [key("CLAUDE_CODE_OAUTH_TOKEN", token), key("ANTHROPIC_API_KEY", "")],
        "a key of the daemon's environment would come first"
    );
    assert_eq!(set("claude-code", "sk-ant-api03-1"), [key("ANTHROPIC_API_KEY", "sk-ant-api03-1")]);
    assert_eq!(set("codex", token), [key("OPENAI_API_KEY", token)], "it is a token of one program alone");
}

#[test]
fn everything_below_a_prefix_goes_at_once() {
    let mut bench = Bench::new();
    for name in
        ["gateway/telegram-1/bot_token", "gateway/telegram-1/app_token", "gateway/telegram-10/bot_token"]
    {
        bench.with(|all, cx| put(all, cx, name, Sealed(vec![0]))).unwrap();
    }
    assert_eq!(bench.with(|all, cx| remove_below(all, cx, "gateway/telegram-1/")), 2);
    assert_eq!(
        bench.state.credentials.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["gateway/telegram-10/bot_token"]
    );
}

#[test]
fn names_and_keys_are_checked_and_the_key_is_not_repeated() {
    for good in ["claude-code", "integration/github/token", "toy/nasa.apod"] {
        assert_eq!(check_name(good), Ok(()), "{good}");
    }
    for bad in ["", "/", "a/", "a//b", "a b", "ä", "a\0", &"x".repeat(201)] {
        assert!(check_name(bad).is_err(), "{bad:?}");
    }
    let body =
        json!({"key": format!("{PLANTED}\n\u{7}x"), "fine": format!("  {PLANTED}\n"), "list": [PLANTED]});
    let mut fields = Fields::new(body.as_object().unwrap());
    assert_eq!(api::secret(&mut fields, "fine"), Secret::new(PLANTED));
    api::secret(&mut fields, "key");
    api::secret(&mut fields, "list");
    api::secret(&mut fields, "absent");
    let problem = fields.validator.finish().unwrap_err();
    assert_eq!(problem.errors.len(), 3, "{problem}");
    assert!(!problem.to_string().contains("planted"), "{problem}");
}
