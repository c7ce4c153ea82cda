//! Examples of every command, for its help and its manual page.

/// By command: lines that can be typed as they stand, the most usual first. A comment says what is not plain.
pub(super) static EXAMPLES: &[(&str, &[&str])] = &[
    (
        "start",
        &[
            "svc start --background",
            "svc start --background --port 8080    # this port or none",
            "svc start --project ~/shop --host 192.168.1.10   # for other machines, with a token",
        ],
    ),
    ("stop", &["svc stop", "svc stop --project ~/shop", "svc stop --keep    # agents work on"]),
    ("restart", &["svc restart", "svc restart --project ~/shop"]),
    ("status", &["svc status", "svc status -q    # only the address"]),
    ("open", &["svc open", "svc open --project ~/shop", "svc open --forget"]),
    ("ps", &["svc ps", "svc ps --json", "svc ps --forget old-shop"]),
    ("agents", &["svc agents", "svc agents --live", "svc agents --json"]),
    (
        "spawn",
        &[
            "svc spawn backend --scope 'src/**' 'Add a login page'",
            "svc spawn backend --provider codex --account auto --follow 'Mend the failing test'",
            "svc spawn backend --runner label:big 'Find the slow query'",
        ],
    ),
    ("kill", &["svc kill backend-1", "svc kill --all"]),
    ("logs", &["svc logs backend-1 --tail 20", "svc logs backend-1 -f", "svc logs backend-1 --since 10m -t"]),
    (
        "instruct",
        &[
            "svc instruct backend-1 --now 'use tabs'",
            "svc instruct backend-1 --idle 'then write the tests'",
            "svc instruct backend-1 - < notes.md",
        ],
    ),
    ("attach", &["svc attach backend-1", "svc attach backend-1 --now"]),
    ("sessions", &["svc sessions", "svc sessions --provider codex"]),
    (
        "adopt",
        &[
            "svc adopt 0199f3c2-5d1e-7c40-9a57-3f6d2b1c8e90",
            "svc adopt ses_df61bd939ffe --name login --scope 'src/login/**'",
        ],
    ),
    ("query", &["svc query backend-1 'how far are you?'", "svc ask backend-1 'what blocks you?'"]),
    (
        "rotate",
        &["svc rotate backend-1 --dry-run    # what its successor would be told", "svc rotate backend-1"],
    ),
    (
        "resume",
        &[
            "svc resume backend-1",
            "svc resume backend-1 'and now the footer'",
            "svc resume backend-1 --runner box",
        ],
    ),
    (
        "move",
        &[
            "svc move backend-1 box",
            "svc move backend-1 here --now",
            "svc move backend-1 box 'and now the benchmarks'",
        ],
    ),
    ("wait", &["svc wait", "svc wait --asked", "svc wait backend-1 --timeout 30m"]),
    (
        "diff",
        &["svc diff backend-1 --stat", "svc diff backend-1 src/login.rs", "svc diff backend-1 --turn 3"],
    ),
    ("snapshots", &["svc snapshots backend-1", "svc snapshots backend-1 --json"]),
    ("undo", &["svc undo backend-1", "svc undo backend-1 --turn 3"]),
    ("redo", &["svc redo backend-1", "svc redo backend-1 --quiet"]),
    ("fork", &["svc fork backend-1 'try it with a queue'", "svc fork backend-1 --turn 3 --name other-way"]),
    (
        "comment",
        &[
            "svc comment backend-1 src/login.rs:10-14 'say why this may fail'",
            "svc comment backend-1 README.md:3 'one sentence is enough'",
            "svc comment backend-1 src/login.rs:7-9 'we need this check' --removed",
        ],
    ),
    ("comments", &["svc comments backend-1", "svc comments backend-1 --send --say 'before we merge:'"]),
    ("discard", &["svc discard backend-1", "svc discard backend-1 --json"]),
    ("merge", &["svc merge backend-1 --dry-run", "svc merge backend-1 -m 'Add a login page' --remove"]),
    (
        "memory",
        &[
            "svc memory rule 'Use tabs in Makefiles'",
            "svc memory rules",
            "svc memory discover 'tests hang on port 80' 'run them with --port 0'",
        ],
    ),
    ("map", &["svc map fix the login timeout", "svc map --chars 2000 who may release a lock"]),
    (
        "recall",
        &[
            "svc recall why no redis",
            "svc recall --agent backend-1 expected 412",
            "svc recall --limit 30 webhook",
        ],
    ),
    (
        "search",
        &[
            "svc search login timeout",
            "svc search --agent backend-1 --in tool '\"expected 412\"'",
            "svc search --outside why no redis    # in sessions that you had without svc",
        ],
    ),
    ("brief", &["svc brief backend", "svc brief backend 'Mend the tests'"]),
    ("review", &["svc review backend-1", "svc review --history"]),
    ("top", &["svc top", "svc top --all", "svc top --once    # one look, for a script"]),
    (
        "team",
        &[
            "svc team save crew backend-1 frontend-1 --runner backend-1=label:big",
            "svc team load crew",
            "svc team retry    # a phase that failed",
        ],
    ),
    ("plan", &["svc plan 'Build a small blog'", "svc plan --launch 'Build a hello page'"]),
    (
        "schedule",
        &[
            "svc schedule add '30 6 * * mon-fri' tester 'Run all tests'",
            "svc schedule add '0 2 * * *' nightly 'Run the benchmarks' --runner label:big",
            "svc schedule run tester",
        ],
    ),
    ("toys", &["svc toys", "svc toys --category weather"]),
    (
        "gateways",
        &["svc gateways add telegram --chat 4711", "svc gateways token 3f2a", "svc gateways connect 3f2a"],
    ),
    ("approvals", &["svc approvals", "svc approvals apr-1f2e", "svc approvals --all"]),
    ("approve", &["svc approve apr-1f2e", "svc approve apr-1f2e --reason 'this once'"]),
    ("reject", &["svc reject apr-1f2e", "svc reject apr-1f2e --reason 'use api/ instead'"]),
    ("answer", &["svc answer apr-1f2e 'eight hours after the login'", "svc answer apr-1f2e - < answer.txt"]),
    (
        "rules",
        &[
            "svc rules allow apr-1f2e --uses 20",
            "svc rules allow apr-1f2e --command --for role --minutes 480",
            "svc rules revoke rul-7c01",
        ],
    ),
    ("locks", &["svc locks", "svc locks --json"]),
    (
        "credentials",
        &[
            "svc credentials list",
            "svc credentials set claude-code    # asks for the key",
            "svc credentials remove claude-code",
        ],
    ),
    ("audit", &["svc audit --limit 5", "svc audit --event approval"]),
    ("conflicts", &["svc conflicts", "svc conflicts --json"]),
    ("hook", &["svc hook < call.json", "svc hook --project ~/shop < call.json"]),
    ("journalist", &["svc journalist", "svc journalist --cycle"]),
    ("tokens", &["svc tokens", "svc tokens --by-team", "svc tokens --by-model"]),
    (
        "account",
        &[
            "svc account add work --provider claude-code    # then log in as it says",
            "svc account change work --label 'The firm pays'",
            "svc account disable work",
        ],
    ),
    (
        "runner",
        &[
            "svc runner add box ssh me@box.example.org --label big",
            "svc runner add cell container podman my-tools:1",
            "svc runner grant box claude-code    # its key from your vault, for runs there",
        ],
    ),
    (
        "prices",
        &["svc prices", "svc prices --json > prices.json    # to be edited", "svc prices update prices.json"],
    ),
    (
        "routing",
        &[
            "svc routing",
            "svc routing Fix the rounding of prices",
            "svc routing --role security audit the login",
        ],
    ),
    ("quota", &["svc quota", "svc quota --json", "svc quota -q    # the agents that are held"]),
    ("capacity", &["svc capacity", "svc capacity --provider codex --role backend", "svc capacity --json"]),
    ("rotations", &["svc rotations", "svc rotations --json"]),
    (
        "skills",
        &["svc skills search code review", "svc skills show code-review", "svc skills install code-review"],
    ),
    ("telemetry", &["svc telemetry", "svc telemetry --json"]),
    (
        "webhook",
        &[
            "svc webhook add https://example.org/svc --events agent:exit,approval:request",
            "svc webhook test example.org",
            "svc webhook in add ci --role fixer --say 'A build failed. Find out why.'",
        ],
    ),
    ("pair", &["svc pair", "svc pair --address 192.168.1.5 --name 'my phone'", "svc pair --may look,answer"]),
    ("phones", &["svc phones", "svc phones revoke 'my phone'", "svc phones certificate >svc.crt"]),
    ("peers", &["svc peers", "svc peers add http://192.168.1.20:31415", "svc peers agents laptop"]),
    ("index", &["svc index", "svc index --rescan"]),
    (
        "import",
        &[
            "svc import https://example.org/owner/project.git",
            "svc import https://example.org/owner/project.git vendor/project --team",
        ],
    ),
    (
        "integrations",
        &[
            "svc integrations",
            "svc integrations install brave-search",
            "svc integrations credentials brave-search",
        ],
    ),
    ("acp", &["svc acp", "svc acp --agent backend-1", "svc acp --provider claude-code --role pair"]),
    ("mcp", &["svc mcp", "claude mcp add svc -- svc mcp"]),
    ("providers", &["svc providers", "svc providers -q    # only those that are installed"]),
    (
        "config",
        &[
            "svc config",
            "svc config describe safety.dailyBudgetUsd",
            "svc config set safety.dailyBudgetUsd 20",
        ],
    ),
    (
        "record",
        &[
            "svc record",
            "svc record export crash.rec",
            "svc record export --without-text crash.rec    # to give to others",
        ],
    ),
    (
        "replay",
        &["svc replay crash.rec", "svc replay crash.rec --until 4711 --json", "svc replay crash.rec -q"],
    ),
    ("doctor", &["svc doctor", "svc doctor -q    # only what is not ok"]),
    ("rehearse", &["svc rehearse", "svc rehearse --project /tmp/rehearsal --keep"]),
    ("demo", &["svc demo", "svc demo --fast"]),
    ("man", &["svc man spawn | man -l -", "svc man --into ~/.local/share/man/man1"]),
    ("completions", &["source <(svc completions bash)", "svc completions fish | source"]),
    ("version", &["svc version", "svc version -q"]),
    ("help", &["svc help spawn", "svc help --all"]),
];

/// The examples of one command.
pub(super) fn of(name: &str) -> &'static [&'static str] {
    EXAMPLES.iter().find(|(command, _)| *command == name).map_or(&[], |(_, lines)| lines)
}

#[cfg(test)]
mod tests {
    use super::super::args::{parse, split_command};
    use super::super::commands::{all, find};
    use super::*;

    /// The columns that help may take on the smallest usual terminal, indented by two.
    const COLUMNS: usize = 90;

    /// The words of the line that `svc` gets: without comment, pipe and redirection.
    fn words(line: &str) -> Vec<String> {
        let line = line.split("  #").next().unwrap_or_default();
        let line = line.split_once("<(").map_or(line, |(_, inner)| inner.trim_end_matches(')'));
        let line = line.split(" | ").next().and_then(|line| line.split(" < ").next()).unwrap_or_default();
        let all = split_command(line).unwrap();
        let at =
            all.iter().rposition(|word| word == "svc").unwrap_or_else(|| panic!("{line} does not call svc"));
        all[at + 1..].to_vec()
    }

    #[test]
    fn every_command_has_examples_that_its_own_table_accepts() {
        for command in all() {
            let lines = of(command.name);
            let name = command.name;
            assert!((2..=3).contains(&lines.len()), "{name} has {} examples in {}", lines.len(), file!());
            for line in lines {
                assert!(line.chars().count() <= COLUMNS, "{line}");
                let (found, _) = parse(words(line).into_iter().map(Into::into).collect())
                    .unwrap_or_else(|error| panic!("{line}: {error:?}"));
                assert_eq!(found.map(|command| command.name), Some(name), "{line}");
            }
        }
        for (name, _) in EXAMPLES {
            assert!(find(name).is_some(), "there is no command {name}");
        }
    }
}
