//! The daemon's sentences name calls of its API, as its other clients need them; here they name commands.

/// A call, and the command that does it. `{}` stands for one part of a path, in both the same.
const COMMANDS: &[(&str, &str)] = &[
    ("GET /api/agents", "svc agents"),
    ("POST /api/agents", "svc spawn ROLE"),
    ("GET /api/approvals", "svc approvals --all"),
    ("GET /api/teams", "svc team list"),
    ("GET /api/plans", "svc agents"),
    ("GET /api/schedules", "svc schedule list"),
    ("GET /api/credentials", "svc credentials list"),
    ("GET /api/config", "svc config"),
    ("GET /api/providers", "svc providers"),
    ("GET /api/federation/peers", "svc peers"),
    ("GET /api/indexer/workspaces", "svc index --json"),
    ("GET /api/integrations", "svc integrations"),
    ("GET /api/integrations/{}", "svc integrations --json"),
    ("POST /api/integrations/{}/install", "svc integrations install {}"),
    ("POST /api/integrations/{}/credentials {\"key\",\"value\"}", "svc integrations credentials {} KEY"),
    ("POST /api/integrations/{}/credentials", "svc integrations credentials {}"),
    ("POST /api/integrations/{}/exec", "svc integrations exec {}"),
    ("GET /api/gateways", "svc gateways list"),
    ("GET /api/toys", "svc toys"),
    ("GET /api/memory/constraints", "svc memory rules"),
    ("GET /api/memory/specializations", "svc memory profiles"),
    ("GET /api/skills/installed", "svc skills"),
    ("GET /api/skills/{}/content", "svc skills show {}"),
];
/// Bytes of a sentence that is looked through; looking costs their square at worst.
const LONGEST_BYTES: usize = 8192;
/// How a call begins in a sentence.
const METHODS: [&str; 4] = ["GET /api/", "POST /api/", "PATCH /api/", "DELETE /api/"];

/// `sentence` with each call that a command does replaced by that command in quotes.
pub(super) fn with_commands(sentence: &str) -> String {
    if sentence.len() > LONGEST_BYTES {
        return sentence.to_owned();
    }
    let mut told = String::new();
    let mut rest = sentence;
    while let Some(at) = METHODS.iter().filter_map(|method| rest.find(method)).min() {
        let (before, call) = rest.split_at(at);
        told.push_str(before);
        let best = COMMANDS.iter().filter_map(|row| fitting(call, row)).max_by_key(|(length, _)| *length);
        if let Some((length, command)) = best {
            told.push('\'');
            told.push_str(&command);
            told.push('\'');
            rest = &call[length..];
        } else {
            let end = call.find("/api/").map_or(call.len(), |at| at + 1);
            told.push_str(&call[..end]);
            rest = &call[end..];
        }
    }
    told.push_str(rest);
    told
}

/// Bytes of `call` that the row's call takes, and its command; `None` when it is another call.
fn fitting(call: &str, (pattern, command): &(&str, &str)) -> Option<(usize, String)> {
    let mut rest = call;
    let mut command = (*command).to_owned();
    for (at, literal) in pattern.split("{}").enumerate() {
        if at > 0 {
            let end = rest.find(ends_a_part).unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            command = command.replacen("{}", &rest[..end], 1);
            rest = &rest[end..];
        }
        rest = rest.strip_prefix(literal)?;
    }
    let goes_on = |c: char| c == '/' || !ends_a_part(c);
    (!rest.starts_with(goes_on)).then(|| (call.len() - rest.len(), command))
}

fn ends_a_part(c: char) -> bool {
    !(c.is_alphanumeric() || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::super::args::{parse, split_command};
    use super::*;
    use std::path::Path;

    #[test]
    fn calls_become_commands_and_other_words_stay() {
        for (told, wanted) in [
            (
                "no approval has the id \"z\"; GET /api/approvals lists them",
                "no approval has the id \"z\"; 'svc approvals --all' lists them",
            ),
            (
                "integration x-1 is not installed; install it with POST /api/integrations/x-1/install",
                "integration x-1 is not installed; install it with 'svc integrations install x-1'",
            ),
            (
                "set KEY first: POST /api/integrations/x/credentials {\"key\",\"value\"}",
                "set KEY first: 'svc integrations credentials x KEY'",
            ),
            ("there is no GET /api/agentsx", "there is no GET /api/agentsx"),
            ("GET /api/agents/7/log, GET /api/teams", "GET /api/agents/7/log, 'svc team list'"),
            ("nothing of the kind", "nothing of the kind"),
        ] {
            assert_eq!(with_commands(told), wanted);
        }
    }

    #[test]
    fn every_command_named_is_one() {
        for (call, command) in COMMANDS {
            let words = split_command(&command.replace("{}", "x")).unwrap();
            assert!(parse(words[1..].iter().map(Into::into).collect()).is_ok(), "{call}: {command}");
        }
    }

    /// Calls that the daemon's sentences may name although no command does them.
    const WITHOUT_COMMAND: [&str; 2] = ["GET /api/files/tree", "GET /api/openapi.json"];

    #[test]
    fn every_call_in_a_sentence_of_the_daemon_has_its_command() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut open = vec![root];
        let mut seen = 0;
        while let Some(path) = open.pop() {
            let name = path.to_string_lossy().into_owned();
            if path.is_dir() {
                open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let is_ours =
                ["/cli/", "/runtime/", "tests", "/gateways/worker"].iter().any(|part| name.contains(part));
            if is_ours || path.extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                let Some(at) = METHODS.iter().filter_map(|method| line.find(method)).min() else { continue };
                let call = line[at..].replace("{integration_id}", "x").replace("{id}", "x");
                if WITHOUT_COMMAND.iter().any(|known| call.starts_with(known)) {
                    continue;
                }
                seen += 1;
                assert!(with_commands(&call).starts_with("'svc "), "{name}: {line}\nadd it to {}", file!());
            }
        }
        assert!(seen > 15, "only {seen} sentences were found");
    }
}
