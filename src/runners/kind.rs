//! How a command is run on a runner, with its standard input and output: a command line of a program that
//! people have. Another kind is another arm of both functions.

use super::Kind;

/// Bytes of a destination.
pub const MAX_DESTINATION_BYTES: usize = 255;
/// Seconds between two signs of life on a connection that is silent.
const ALIVE_SECONDS: u32 = 5;
/// So many without an answer end it.
const ALIVE_COUNT: u32 = 3;
/// Seconds until a connection has to stand.
const CONNECT_SECONDS: u32 = 10;

/// What is wrong with a destination, if anything.
pub fn fault(kind: Kind, destination: &str) -> Option<String> {
    match kind {
        Kind::Ssh => ssh_fault(destination),
    }
}

/// The command line that has the login shell of a runner run `script`. What both are given was looked at:
/// [`fault`] has nothing against the destination, and `script` is this program's own.
pub fn command_line(kind: Kind, destination: &str, script: &str) -> (&'static str, Vec<String>) {
    match kind {
        Kind::Ssh => ("ssh", ssh(destination, script)),
    }
}

/// Whatever else the person's own settings of ssh say holds. What is set here nobody may set otherwise: no
/// question is asked, no unknown key of a host is taken, a line that is cut is noticed, and neither the
/// person's keys nor ports nor screen are lent to that machine.
fn ssh(destination: &str, script: &str) -> Vec<String> {
    let alive = [
        format!("-oServerAliveInterval={ALIVE_SECONDS}"),
        format!("-oServerAliveCountMax={ALIVE_COUNT}"),
        format!("-oConnectTimeout={CONNECT_SECONDS}"),
    ];
    let fixed = [
        "-T",
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        // A connection of its own: one that is shared hears of a cut when its owner does.
        "-oControlPath=none",
        "-oForwardAgent=no",
        "-oForwardX11=no",
        "-oClearAllForwardings=yes",
        "-oPermitLocalCommand=no",
    ];
    let own = fixed.map(str::to_owned).into_iter().chain(alive);
    own.chain(["--", destination, script].map(str::to_owned)).collect()
}

/// `user@host`, a name of the person's settings of ssh, or `ssh://user@host:port`.
fn ssh_fault(destination: &str) -> Option<String> {
    let rest = destination.strip_prefix("ssh://").unwrap_or(destination);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:@[]%+".contains(c);
    let (user, host) = rest.rsplit_once('@').unwrap_or(("u", rest));
    let is_word = |word: &str| !word.is_empty() && !word.starts_with('-');
    let fits = destination.len() <= MAX_DESTINATION_BYTES
        && rest.chars().all(is_plain)
        && is_word(user)
        && is_word(host);
    (!fits).then(|| {
        format!(
            "must be USER@HOST, a host of your ~/.ssh/config or ssh://USER@HOST:PORT, of at most \
             {MAX_DESTINATION_BYTES} of A-Z a-z 0-9 . _ - : @ [ ] % +, and neither user nor host may begin with -"
        )
    })
}
