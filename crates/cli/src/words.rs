//! That every call in a sentence of the daemon has its command, and every command named is one.

#[cfg(test)]
mod tests {
    use crate::args::{parse, split_command};
    use std::path::Path;
    use svc_base::words::{COMMANDS, METHODS, with_commands};

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
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src");
        let mut open = vec![root];
        let mut seen = 0;
        while let Some(path) = open.pop() {
            let name = path.to_string_lossy().into_owned();
            if path.is_dir() {
                open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let is_ours = ["/assembly/", "tests", "/gateways/worker"].iter().any(|part| name.contains(part));
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
