//! `svc providers`, `svc config`.

use super::help::broken;
use super::render::{Style, Table};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use serde_json::{Map, Value, json};
use svc_base::settings::{self as keys, defaults};

/// `svc providers`.
pub fn providers(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/providers?wait=true")?;
    if out.json {
        return out.document(&answer);
    }
    let list = answer.as_array().cloned().unwrap_or_default();
    if out.quiet {
        let installed = list.iter().filter(|provider| provider["installed"] == true);
        return out.lines(&installed.map(|provider| text(provider, "id").to_owned()).collect::<Vec<_>>());
    }
    let mut table = Table::new(&["ID", "NAME", "INSTALLED", "VERSION", "KEY", "MODELS OR REMEDY"])
        .status_column(2)
        .optional(&[1]);
    for provider in &list {
        let installed = provider["installed"] == true;
        let key =
            match (text(provider, "envKey"), provider["hasKey"] == true, provider["login"]["ok"].as_bool()) {
                (_, true, _) => "yes",
                // Nobody asked for an endpoint's key: being there is enough.
                _ if provider["builtIn"] == true => "-",
                (_, _, Some(true)) => "login",
                ("", _, None) => "-",
                _ => "no",
            };
        let version = match (text(provider, "version"), text(provider, "state")) {
            _ if provider["builtIn"] == true => "built in",
            ("", "looking") => "?",
            (version, _) => version,
        };
        let models = provider["models"].as_array().into_iter().flatten();
        let models: Vec<&str> = models.map(|model| text(model, "id")).collect();
        let told = if installed { models.join(" ") } else { text(provider, "installCommand").to_owned() };
        table.row(&[
            text(provider, "id").into(),
            text(provider, "name").into(),
            if installed { "yes" } else { "no" }.into(),
            version.into(),
            key.into(),
            told,
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

/// `svc config`, `svc config get [KEY]`, `svc config set KEY VALUE`, `svc config describe [KEY]`.
pub fn config(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => overview(session),
        ["get"] => get(session, None),
        ["get", key] => get(session, Some(key)),
        ["set", key, value] => set(session, key, value),
        ["describe"] => describe(session, keys::KEYS),
        ["describe", key] => {
            let one = keys::find(key).map(std::slice::from_ref).ok_or_else(|| no_such(key))?;
            describe(session, one)
        }
        _ => Err(Failure::usage(
            "usage: svc config get [KEY] | svc config set KEY VALUE | svc config describe [KEY]; \
             see 'svc help config'",
        )),
    }
}

fn no_such(key: &str) -> Failure {
    let meant = keys::meant(key).map(|key| format!("did you mean {key}? ")).unwrap_or_default();
    Failure::failed(format!("there is no setting '{key}'; {meant}'svc config' lists them"))
}

/// All settings with their values and what they do.
fn overview(session: &Session) -> Outcome {
    let out = &session.out;
    if out.json || out.quiet {
        return get(session, None);
    }
    let whole = session.client()?.get("/api/config")?;
    let mut table = Table::new(&["KEY", "VALUE", "DESCRIPTION"]);
    // A daemon of another version may have others.
    let known =
        keys::KEYS.iter().filter_map(|key| Some((key.key.to_owned(), lookup(&whole, key.key)?, key.what)));
    let is_known = |name: &str| {
        keys::KEYS.iter().any(|key| name == key.key || name.starts_with(&format!("{}.", key.key)))
    };
    let others = flatten(&whole)
        .into_iter()
        .filter(|(name, _)| !is_known(name))
        .map(|(name, value)| (name, value, ""));
    for (name, value, what) in known.chain(others) {
        table.row(&[name, plain(value), what.into()]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

/// What settings do, which values they take, their defaults; needs no daemon.
fn describe(session: &Session, keys: &[keys::Key]) -> Outcome {
    let out = &session.out;
    let defaults = Value::Object(defaults());
    let default = |key: &keys::Key| lookup(&defaults, key.key).cloned().unwrap_or_default();
    if out.json {
        let list = keys.iter().map(|key| {
            json!({"key": key.key, "takes": key.takes, "default": default(key), "description": key.what})
        });
        return out.document(&list.collect());
    }
    if out.quiet {
        return out.lines(&keys.iter().map(|key| key.key.to_owned()).collect::<Vec<_>>());
    }
    let columns = out.width.unwrap_or(usize::MAX).saturating_sub(10);
    let lines = keys.iter().flat_map(|key| {
        let what = broken(key.what, columns).join("\n          ");
        [
            out.paint(Style::Bold, key.key),
            format!("  does    {what}"),
            format!("  takes   {}", key.takes),
            format!("  default {}", plain(&default(key))),
        ]
    });
    out.lines(&lines.collect::<Vec<_>>())
}

fn get(session: &Session, key: Option<&str>) -> Outcome {
    let out = &session.out;
    let whole = session.client()?.get("/api/config")?;
    let value = match key {
        None => &whole,
        Some(key) => lookup(&whole, key).ok_or_else(|| {
            if keys::meant(key).is_some() {
                return no_such(key);
            }
            let keys = flatten(&whole).into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(", ");
            Failure::failed(format!("there is no setting '{key}'; there are {keys}"))
        })?,
    };
    match value {
        value if out.json => out.document(value),
        Value::Object(_) => {
            let prefix = key.map(|key| format!("{key}.")).unwrap_or_default();
            let lines = flatten(value).into_iter().map(|(key, value)| format!("{prefix}{key} = {value}"));
            out.lines(&lines.collect::<Vec<_>>())
        }
        value => out.line(&plain(value)),
    }
}

fn set(session: &Session, key: &str, value: &str) -> Outcome {
    let out = &session.out;
    if key.split('.').any(str::is_empty) {
        return Err(Failure::usage(format!("a key is like safety.dailyBudgetUsd, not '{key}'")));
    }
    let change = patch(key, parse(value));
    let whole = session.client()?.call("PATCH", "/api/config", Some(&change))?;
    if out.json {
        return out.document(&whole);
    }
    if out.quiet {
        return Ok(());
    }
    let now = lookup(&whole, key).map(Value::to_string).unwrap_or_default();
    out.line(&format!("{key} = {now}"))
}

/// A value of the command line: JSON if it reads as JSON, else text.
fn parse(text: &str) -> Value {
    serde_json::from_slice(text.as_bytes()).unwrap_or_else(|_| json!(text))
}

/// The value behind a dotted key.
fn lookup<'a>(whole: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(whole, |value, part| value.as_object()?.get(part))
}

/// The object that changes one dotted key.
fn patch(key: &str, value: Value) -> Value {
    key.rsplit('.').fold(value, |inner, part| {
        let mut outer = Map::new();
        outer.insert(part.to_owned(), inner);
        Value::Object(outer)
    })
}

/// All settings by their dotted keys.
fn flatten(value: &Value) -> Vec<(String, &Value)> {
    let Value::Object(members) = value else { return Vec::new() };
    let mut all = Vec::new();
    for (name, value) in members {
        if value.as_object().is_some_and(|inner| !inner.is_empty()) {
            all.extend(flatten(value).into_iter().map(|(rest, value)| (format!("{name}.{rest}"), value)));
        } else {
            all.push((name.clone(), value));
        }
    }
    all
}

/// A value without JSON's quotes around a text.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_keys_lead_into_objects_and_back() {
        assert_eq!(patch("safety.a.b", json!(1)), json!({"safety": {"a": {"b": 1}}}));
        assert_eq!(patch("port", json!(1)), json!({"port": 1}));
        let whole = json!({"port": 1, "safety": {"x": null, "m": {"planner": 10.0}, "none": {}}});
        assert_eq!(lookup(&whole, "safety.m.planner"), Some(&json!(10.0)));
        assert_eq!(lookup(&whole, "safety.q"), None);
        assert_eq!(lookup(&whole, "port.q"), None);
        let keys: Vec<_> = flatten(&whole).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["port", "safety.m.planner", "safety.none", "safety.x"]);
    }

    #[test]
    fn values_are_json_else_text() {
        assert_eq!(parse("0.5"), json!(0.5));
        assert_eq!(parse("true"), json!(true));
        assert_eq!(parse("{\"a\":1}"), json!({"a": 1}));
        assert_eq!(parse("claude-code"), json!("claude-code"));
        assert_eq!(parse("\"5\""), json!("5"));
    }
}
