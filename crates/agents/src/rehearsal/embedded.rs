//! Where scenarios come from: the project's own, then those that come with `svc`.

use super::scenario::{Scenario, parse};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// A larger scenario file is refused.
const FILE_LIMIT_BYTES: u64 = 1024 * 1024;
/// Longer names are refused.
const NAME_LIMIT_BYTES: usize = 64;

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../data/rehearsals/", $name, ".json")))),*]
    };
}

/// Name and text of each scenario that comes with `svc`.
const EMBEDDED: &[(&str, &str)] = embedded![
    "default",
    "planner",
    "builder",
    "reviewer",
    "quick",
    "chatty",
    "flood",
    "stubborn",
    "crash",
    "segfault",
    "hang",
    "limit",
    "repeat-usage",
    "halfline",
    "badutf8",
    "hugeline",
    "ask",
    "team-planner",
    "team-builder",
    "team-crasher",
    "degrading",
];

/// The scenario of this name: `.svc/rehearsals/NAME.json` below the project, or else an embedded one.
///
/// Errors: a sentence that names the file, and step and field where they are wrong.
pub fn find(name: &str, project: Option<&Path>) -> Result<Scenario, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_LIMIT_BYTES || name.starts_with('.') || !name.bytes().all(plain) {
        return Err(format!(
            "scenario {name:?}: a name has 1 to {NAME_LIMIT_BYTES} letters, digits, dots, dashes and \
             underscores, and does not begin with a dot"
        ));
    }
    let file = format!(".svc/rehearsals/{name}.json");
    if let Some(project) = project {
        match read(&project.join(&file)) {
            Ok(Some(text)) => return parse(&text).map_err(|error| format!("{file}: {error}")),
            Ok(None) => {}
            Err(error) => return Err(format!("{file}: {error}")),
        }
    }
    let Some((_, text)) = EMBEDDED.iter().find(|(embedded, _)| *embedded == name) else {
        let names: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        return Err(format!("scenario {name}: no {file}, and none of the embedded: {}", names.join(", ")));
    };
    parse(text).map_err(|error| format!("embedded {name}.json: {error}"))
}

/// The text of a file; `None` when there is none.
fn read(path: &Path) -> Result<Option<String>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    file.take(FILE_LIMIT_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_LIMIT_BYTES {
        return Err(format!("has more than {FILE_LIMIT_BYTES} bytes"));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_providers::Provider;
    use svc_providers::script::Script;

    #[test]
    fn every_embedded_scenario_is_good_and_tells_what_it_is() {
        for (name, _) in EMBEDDED {
            assert!(!find(name, None).unwrap().description.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_models_of_the_provider_are_scenarios() {
        for model in Script.info().models {
            find(model.id, None).unwrap();
        }
    }

    #[test]
    fn a_name_is_no_path() {
        for bad in ["", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a\0b", &"a".repeat(65)] {
            assert!(find(bad, None).unwrap_err().contains("a name has 1 to 64"), "{bad:?}");
        }
        assert!(
            find("nothing", None).unwrap_err().starts_with("scenario nothing: no .svc/rehearsals/nothing")
        );
    }
}
