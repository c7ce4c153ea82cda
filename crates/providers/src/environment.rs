//! The environment of an agent's processes: an allow-list by name, never the daemon's own. What a program
//! documents beyond the common ones stands with its other facts ([`Info::pass_env`]); a person adds to it.

use super::Info;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// What every program needs. A trailing `*` takes all with that prefix. Left out on purpose, for a person
/// to name: what signs, logs in or commands elsewhere (`SSH_AUTH_SOCK`, `GNUPGHOME`, `DOCKER_HOST`,
/// `KUBECONFIG`, `DBUS_SESSION_BUS_ADDRESS`, `GH_TOKEN`, `DATABASE_URL`).
#[rustfmt::skip]
const COMMON: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "NO_COLOR", "TMPDIR", "TZ", "XDG_*",
    "LANG", "LANGUAGE", "LC_*",
    // The way out.
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    // Whom to trust there.
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "REQUESTS_CA_BUNDLE",
    "AWS_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "CARGO_HTTP_CAINFO", "PIP_CERT", "NIX_SSL_CERT_FILE",
    // In whose name a commit is made.
    "GIT_AUTHOR_*", "GIT_COMMITTER_*",
    // Where compilers, interpreters and their packages are.
    "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "GOPATH", "GOROOT", "GOBIN", "GOMODCACHE", "GOPROXY",
    "JAVA_HOME", "GRADLE_USER_HOME", "MAVEN_HOME", "ANDROID_HOME", "NVM_DIR", "NVM_BIN", "VOLTA_HOME", "FNM_*",
    "PNPM_HOME", "BUN_INSTALL", "DENO_DIR", "COREPACK_HOME", "npm_config_registry", "npm_config_cache",
    "PYENV_ROOT", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PIPX_HOME", "UV_CACHE_DIR", "UV_PYTHON",
    "RBENV_ROOT", "GEM_HOME", "GEM_PATH", "BUNDLE_PATH", "COMPOSER_HOME", "DOTNET_ROOT", "ASDF_DIR",
    "ASDF_DATA_DIR", "MISE_DATA_DIR", "MISE_CONFIG_DIR", "SDKMAN_DIR", "NIX_PATH", "NIX_PROFILES",
];

/// Keys of vendors of models, for programs that speak to many of them: see [`Info::vendor_keys`].
#[rustfmt::skip]
const VENDOR_KEYS: &[&str] = &[
    "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "GEMINI_API_KEY",
    "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY",
    "XAI_API_KEY", "DEEPSEEK_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY", "CEREBRAS_API_KEY",
    "COHERE_API_KEY", "PERPLEXITY_API_KEY", "DASHSCOPE_API_KEY", "MOONSHOT_API_KEY", "AZURE_API_KEY",
    "AZURE_RESOURCE_NAME", "AZURE_OPENAI_*", "LITELLM_*", "OLLAMA_HOST", "OLLAMA_API_BASE",
];

/// Secrets and marks of svc itself reach no agent by this way, whoever names them.
const OWN: &[&str] = &["SVC_*", "SKILLS_API_KEY"];

/// Names in one list.
pub const NAMES_MAX: usize = 100;
/// Characters of a name, and of a value.
const NAME_CHARS: usize = 200;
const VALUE_CHARS: usize = 4096;
/// Words of a name that is a secret's; `MAX_THINKING_TOKENS` is none.
const SECRET_WORDS: &[&str] =
    &["KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"];

/// What a person adds to the allow-list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(default)]
pub struct Extra {
    /// Names of the daemon's variables that are let through. A trailing `*` takes all with that prefix.
    pub pass: Vec<String>,
    /// Variables and their values; `null` keeps one away that would be there otherwise.
    pub set: BTreeMap<String, Option<String>>,
    /// The processes have a login of their own: none of the daemon's environment reaches them.
    #[serde(skip)]
    pub own_login: bool,
}

impl Extra {
    /// Whether it adds nothing.
    pub fn is_empty(&self) -> bool {
        self.pass.is_empty() && self.set.is_empty()
    }

    /// This, and then `closer`, whose values win.
    #[must_use]
    pub fn then(mut self, closer: &Self) -> Self {
        self.pass
            .extend(closer.pass.iter().filter(|name| !self.pass.contains(name)).cloned().collect::<Vec<_>>());
        self.set.extend(closer.set.clone());
        self.own_login |= closer.own_login;
        self
    }

    /// What is wrong with it, as a field's rest and a sentence's end.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.pass.len() > NAMES_MAX || self.set.len() > NAMES_MAX {
            faults.push(("pass", format!("has more than {NAMES_MAX} names")));
        }
        for pattern in &self.pass {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            if !is_name(name) {
                faults.push(("pass", format!("names {pattern:?}: a variable's name, a * may end it")));
            } else if is_own(name) {
                faults.push(("pass", format!("names {pattern:?}, which svc keeps to itself")));
            }
        }
        for (name, value) in &self.set {
            if !is_name(name) {
                faults.push(("set", format!("names {name:?}, which is not a variable's name")));
            } else if is_own(name) {
                faults.push(("set", format!("names {name:?}, which svc sets itself")));
            } else if value.is_some() && is_secret(name) {
                let remedy = "svc credentials set, or pass it from the daemon's environment by env.pass";
                faults.push((
                    "set",
                    format!("names {name:?}: a secret does not belong in a setting; {remedy}"),
                ));
            } else if value.as_ref().is_some_and(|text| text.len() > VALUE_CHARS || text.contains('\0')) {
                faults.push(("set", format!("{name} must have at most {VALUE_CHARS} bytes and no NUL")));
            }
        }
        faults
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_CHARS
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

fn is_own(name: &str) -> bool {
    OWN.iter().any(|pattern| matches(pattern, name))
}

fn is_secret(name: &str) -> bool {
    name.to_ascii_uppercase().split('_').any(|word| SECRET_WORDS.contains(&word))
}

/// Whether a variable may log this program in: a secret among those that it looks at, or what lets it go
/// through a cloud's login.
fn logs_in_to(info: &Info, name: &str) -> bool {
    let any = |patterns: &[&str]| patterns.iter().any(|pattern| matches(pattern, name));
    let is_login = is_secret(name)
        || name.to_ascii_uppercase().split('_').any(|word| ["AUTH", "CREDENTIALS"].contains(&word));
    let is_looked_at = any(info.pass_env)
        || any(VENDOR_KEYS)
        || info.pass_env_when.iter().any(|(_, names)| any(names))
        || name == info.env_key;
    (is_login && is_looked_at) || info.pass_env_when.iter().any(|(switch, _)| *switch == name)
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

/// Whether a variable of the daemon reaches the processes of this provider's agents. `is_set` tells of the
/// variables that switch others on.
pub fn is_passed(info: &Info, extra: &Extra, name: &str, is_set: &dyn Fn(&str) -> bool) -> bool {
    let any = |patterns: &[&str]| patterns.iter().any(|pattern| matches(pattern, name));
    if extra.own_login && logs_in_to(info, name) {
        return false;
    }
    if any(info.pass_env) {
        return true;
    }
    if is_own(name) {
        return false;
    }
    any(COMMON)
        || (info.vendor_keys && any(VENDOR_KEYS))
        || info.pass_env_when.iter().any(|(switch, names)| any(names) && is_set(switch))
        || extra.pass.iter().any(|pattern| matches(pattern, name))
}

/// What a child gets: those of the `inherited` variables that may pass, what a person set, then the launch's
/// own, then what svc adds. A later value replaces an earlier one.
pub fn of_child(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    info: &Info,
    extra: &Extra,
    launch: &[(String, String)],
    svc: &[(String, String)],
) -> Vec<(OsString, OsString)> {
    let inherited: Vec<(OsString, OsString)> = inherited.collect();
    let is_set = |switch: &str| match extra.set.get(switch) {
        Some(value) => value.is_some(),
        None => inherited.iter().any(|(name, _)| name == switch),
    };
    let is_kept_away = |name: &str| extra.set.get(name).is_some_and(Option::is_none);
    let may_pass = |name: &OsString| {
        name.to_str().is_some_and(|name| is_passed(info, extra, name, &is_set) && !is_kept_away(name))
    };
    let passed = inherited.iter().filter(|(name, _)| may_pass(name)).cloned();
    let set = extra.set.iter().filter_map(|(name, value)| Some((name.into(), value.as_ref()?.into())));
    let own = launch.iter().chain(svc).map(|(name, value)| (name.into(), value.into()));
    passed.chain(set).chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_id;

    fn reaches(provider: &str, extra: &Extra, names: &[&str]) -> Vec<String> {
        let info = by_id(provider).expect("a provider").info();
        let inherited = names.iter().map(|name| ((*name).into(), "1".into()));
        let env = of_child(inherited, info, extra, &[], &[]);
        env.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect()
    }

    fn plain(provider: &str, name: &str) -> bool {
        !reaches(provider, &Extra::default(), &[name]).is_empty()
    }

    #[test]
    fn decisions_2_the_environment_is_an_allow_list() {
        let info = by_id("claude-code").expect("a provider").info();
        let inherited =
            ["PATH", "LC_TIME", "SECRET", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "PATHS", "SVC_X"];
        let inherited = inherited.map(|name| (name.into(), "1".into()));
        let own = |name: &str| vec![(name.to_owned(), "2".to_owned())];
        let extra = Extra { set: [("SET".to_owned(), Some("3".to_owned()))].into(), ..Extra::default() };
        let env = of_child(inherited.into_iter(), info, &extra, &own("PATH"), &own("SVC_AGENT_ID"));
        let text: Vec<String> = env.iter().map(|(n, v)| format!("{}={}", n.display(), v.display())).collect();
        assert_eq!(text, ["PATH=1", "LC_TIME=1", "ANTHROPIC_API_KEY=1", "SET=3", "PATH=2", "SVC_AGENT_ID=2"]);
    }

    #[test]
    fn the_way_out_and_whom_to_trust_there_reach_every_program() {
        for provider in crate::all() {
            let id = provider.info().id;
            for name in [
                "HTTP_PROXY",
                "https_proxy",
                "NO_PROXY",
                "ALL_PROXY",
                "SSL_CERT_FILE",
                "SSL_CERT_DIR",
                "NODE_EXTRA_CA_CERTS",
                "REQUESTS_CA_BUNDLE",
                "CURL_CA_BUNDLE",
                "GIT_SSL_CAINFO",
                "GIT_AUTHOR_NAME",
                "GIT_COMMITTER_EMAIL",
                "CARGO_HOME",
                "GOPATH",
                "JAVA_HOME",
                "NVM_DIR",
                "PYENV_ROOT",
                "VIRTUAL_ENV",
                "TZ",
                "LC_ALL",
                "XDG_CACHE_HOME",
            ] {
                assert!(plain(id, name), "{id} {name}");
            }
            for name in [
                "SSH_AUTH_SOCK",
                "DATABASE_URL",
                "AWS_SECRET_ACCESS_KEY",
                "DOCKER_HOST",
                "SVC_OPERATOR_TOKEN",
                "SKILLS_API_KEY",
                "GPG_TTY",
                "NPM_TOKEN",
            ] {
                assert!(!plain(id, name), "{id} {name}");
            }
        }
    }

    #[test]
    fn keys_of_a_cloud_reach_a_program_that_is_told_to_use_that_cloud() {
        let aws = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
        assert!(reaches("claude-code", &Extra::default(), &aws).is_empty());
        let with = [&["CLAUDE_CODE_USE_BEDROCK"], &aws[..]].concat();
        assert_eq!(reaches("claude-code", &Extra::default(), &with), with);
        let set = |value: Option<&str>| Extra {
            set: [("CLAUDE_CODE_USE_BEDROCK".to_owned(), value.map(str::to_owned))].into(),
            ..Extra::default()
        };
        assert_eq!(reaches("claude-code", &set(Some("1")), &aws).len(), 4, "set by a person");
        assert!(reaches("claude-code", &set(None), &with).is_empty(), "kept away by a person");
        assert!(reaches("codex", &Extra::default(), &with).is_empty(), "another program");
        for (provider, name) in [
            ("claude-code", "CLOUD_ML_REGION_X"),
            ("gemini", "AZURE_OPENAI_API_KEY"),
            ("claude-code", "GOOGLE_APPLICATION_CREDENTIALS"),
        ] {
            assert!(!plain(provider, name), "{provider} {name}");
        }
        for (provider, name) in [
            ("codex", "AZURE_OPENAI_API_KEY"),
            ("codex", "OPENROUTER_API_KEY"),
            ("opencode", "MISTRAL_API_KEY"),
            ("qwen", "DASHSCOPE_API_KEY"),
            ("aider", "XAI_API_KEY"),
            ("gemini", "GOOGLE_CLOUD_PROJECT"),
            ("copilot", "COPILOT_MODEL"),
            ("claude-code", "MAX_THINKING_TOKENS"),
            ("ollama", "SVC_OLLAMA_KEY"),
        ] {
            assert!(plain(provider, name), "{provider} {name}");
        }
    }

    #[test]
    fn a_person_lets_more_through_but_nothing_of_svc_itself() {
        let extra = Extra {
            pass: ["SSH_AUTH_SOCK", "MY_*", "SVC_*", "SVC_OPERATOR_TOKEN", "S*"].map(str::to_owned).into(),
            ..Extra::default()
        };
        let names = ["SSH_AUTH_SOCK", "MY_KEY", "YOUR_KEY", "SVC_OPERATOR_TOKEN", "SKILLS_API_KEY", "SVC_X"];
        assert_eq!(reaches("codex", &extra, &names), ["SSH_AUTH_SOCK", "MY_KEY"]);
    }

    #[test]
    fn who_has_a_login_of_its_own_gets_no_secret_of_the_daemons_environment() {
        let names = [
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "AWS_SECRET_ACCESS_KEY",
            "MAX_THINKING_TOKENS",
            "PATH",
        ];
        let extra = Extra { own_login: true, ..Extra::default() };
        assert_eq!(
            reaches("claude-code", &extra, &names),
            ["ANTHROPIC_BASE_URL", "MAX_THINKING_TOKENS", "PATH"]
        );
        let names = ["OPENROUTER_API_KEY", "OPENCODE_AUTH_CONTENT", "GOOGLE_APPLICATION_CREDENTIALS"];
        assert!(reaches("opencode", &extra, &names).is_empty());
        let both = Extra { pass: vec!["MISTRAL_API_KEY".into()], ..Extra::default() }.then(&extra);
        assert!(reaches("opencode", &both, &["MISTRAL_API_KEY"]).is_empty(), "whoever lets it through");
        // What its tools need is a person's to give.
        let pass = ["SSH_AUTH_SOCK", "GH_TOKEN"].map(str::to_owned).into();
        let both = Extra { pass, ..Extra::default() }.then(&extra);
        assert_eq!(
            reaches("claude-code", &both, &["SSH_AUTH_SOCK", "GH_TOKEN"]),
            ["SSH_AUTH_SOCK", "GH_TOKEN"]
        );
        assert_eq!(reaches("copilot", &both, &["SSH_AUTH_SOCK", "GH_TOKEN"]), ["SSH_AUTH_SOCK"]);
    }

    #[test]
    fn what_a_person_adds_is_checked() {
        let of = |pass: &[&str], set: &[(&str, &str)]| {
            let pass = pass.iter().map(|name| (*name).to_owned()).collect();
            let set =
                set.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect();
            Extra { pass, set, ..Extra::default() }.faults()
        };
        assert!(
            of(&["A", "AWS_*", "_x"], &[("MAX_THINKING_TOKENS", "9"), ("NODE_OPTIONS", "--x=y")]).is_empty()
        );
        for wrong in ["", "*", "A B", "A*B", "SVC_OPERATOR_TOKEN", "SVC_*", "SKILLS_API_KEY", "1A", "A=B"] {
            assert_eq!(of(&[wrong], &[]).len(), 1, "{wrong:?}");
        }
        for (name, value) in [
            ("A B", ""),
            ("SVC_PROJECT_DIR", "/"),
            ("OPENAI_API_KEY", "x"),
            ("db_password", "x"),
            ("A", "\0"),
        ] {
            assert_eq!(of(&[], &[(name, value)]).len(), 1, "{name}");
        }
        assert_eq!(of(&["A"; 101], &[]).len(), 1);
        let away = Extra { set: [("OPENAI_API_KEY".to_owned(), None)].into(), ..Extra::default() };
        assert!(away.faults().is_empty(), "to keep a secret away is no secret");
    }

    #[test]
    fn the_closer_wish_wins() {
        let of = |value: &str| Extra {
            pass: vec!["P".into()],
            set: [("A".to_owned(), Some(value.to_owned()))].into(),
            own_login: false,
        };
        assert_eq!(of("1").then(&of("2")), of("2"));
        assert_eq!(of("1").then(&Extra::default()), of("1"));
    }
}
