//! The daemon's sentences name calls of its API, as programs need them; told to people they name commands.

/// A call, and the command that does it. `{}` stands for one part of a path, in both the same.
pub const COMMANDS: &[(&str, &str)] = &[
    ("GET /api/agents", "svc agents"),
    ("POST /api/agents", "svc spawn ROLE"),
    ("GET /api/approvals", "svc approvals --all"),
    ("GET /api/rules", "svc rules --all"),
    ("GET /api/teams", "svc team list"),
    ("GET /api/plans", "svc agents"),
    ("GET /api/schedules", "svc schedule list"),
    ("GET /api/credentials", "svc credentials list"),
    ("GET /api/config", "svc config"),
    ("GET /api/prices", "svc prices"),
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
    ("GET /api/webhooks", "svc webhook list"),
    ("GET /api/runners", "svc runners"),
    ("GET /api/inlets", "svc webhook in"),
    ("GET /api/toys", "svc toys"),
    ("GET /api/memory/constraints", "svc memory rules"),
    ("GET /api/memory/specializations", "svc memory profiles"),
    ("GET /api/skills/installed", "svc skills"),
    ("GET /api/skills/{}/content", "svc skills show {}"),
];
/// Bytes of a sentence that is looked through; looking costs their square at worst.
const LONGEST_BYTES: usize = 8192;
/// How a call begins in a sentence.
pub const METHODS: [&str; 4] = ["GET /api/", "POST /api/", "PATCH /api/", "DELETE /api/"];

/// `sentence` with each call that a command does replaced by that command in quotes.
pub fn with_commands(sentence: &str) -> String {
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
