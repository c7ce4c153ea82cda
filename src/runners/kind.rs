//! What a kind of runner is: command lines of programs that people have. Another kind is another file like
//! `kind_container.rs`, a word of [`Kind`] and an arm of [`engine`]; nothing else knows of it.
//!
//! A runner of kind `ssh` is there. Those of the other kinds stand in a *place* that their engine makes when
//! it is first needed, and ends when the runner is removed; its name is the runner's alone.

use super::{Kind, Runner, kind_container, kind_kubernetes, kind_slurm};
use serde::{Deserialize, Serialize};

/// Bytes of a destination.
pub const MAX_DESTINATION_BYTES: usize = 255;
/// Seconds between two signs of life on a connection that is silent.
const ALIVE_SECONDS: u32 = 5;
/// So many without an answer end it.
const ALIVE_COUNT: u32 = 3;
/// Seconds until a connection has to stand.
const CONNECT_SECONDS: u32 = 10;

/// Where a runner is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spot {
    pub kind: Kind,
    pub destination: String,
    /// What the engine calls its place, and no later one; empty where the machine needs none.
    pub id: String,
}

/// A command line, and what goes to its standard input.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub program: String,
    pub args: Vec<String>,
    pub input: String,
}

impl Line {
    pub fn new(program: &str, args: &[&str]) -> Self {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        Self { program: program.to_owned(), args, input: String::new() }
    }
}

/// What a command line came to.
#[derive(Debug, Clone, Default)]
pub struct Said {
    pub is_success: bool,
    pub stdout: String,
    pub stderr: String,
}

/// By what a place is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'a> {
    /// The one that this daemon makes.
    Name(&'a str),
    /// This one, and none that was made later.
    Id(&'a str),
}

/// What a look at a place came to. A text ends a sentence that begins with what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Stands(String),
    /// It was made and does not stand yet; and why.
    Waits(String, String),
    /// It can be started again, with the files that it had.
    Stopped(String),
    /// It has ended, and how.
    Over(String),
    Nothing,
}

/// The command lines of a kind. What they are given was looked at: `fault` has nothing against the
/// destination, and scripts and names are this program's own.
pub struct Engine {
    /// What is wrong with a destination, if anything.
    pub fault: fn(&str) -> Option<String>,
    /// Has the shell there run a script, with the client's standard input and output.
    pub run: fn(&Spot, &str) -> Line,
    /// The exit code with which the client speaks for itself, if it has one.
    pub refusal: Option<i32>,
    /// The words of `svc __far` that begin a keeper.
    pub open: &'static str,
    pub places: Option<Places>,
}

/// What makes and ends places.
pub struct Places {
    /// What people call one.
    pub noun: &'static str,
    pub look: fn(&str, Key<'_>) -> Line,
    /// What [`Places::look`] has said.
    ///
    /// Errors: it cannot be told, or is somebody else's.
    pub seen: fn(Key<'_>, &Said) -> Result<Seen, String>,
    /// Makes one of this name; whether it is there is looked at afterwards.
    pub make: fn(&str, &str) -> Line,
    /// Starts one again that is [`Seen::Stopped`]; `None` where none ever is.
    pub wake: Option<fn(&str, &str) -> Line>,
    /// Ends one, with all that is in it.
    pub end: fn(&str, &str) -> Line,
}

/// What there is to know of a kind.
pub fn engine(kind: Kind) -> &'static Engine {
    match kind {
        Kind::Ssh => &SSH,
        Kind::Container => &kind_container::ENGINE,
        Kind::Slurm => &kind_slurm::ENGINE,
        Kind::Kubernetes => &kind_kubernetes::ENGINE,
    }
}

/// What a runner's place is called: no other runner's has this name.
pub fn place_name(runner: &Runner) -> String {
    format!("svc-{}", runner.folder.to_ascii_lowercase())
}

/// Whether all of a word is of letters, digits and these, and it is taken for no option.
pub fn is_plain(word: &str, more: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    !word.is_empty() && !word.starts_with('-') && word.chars().all(fits)
}

static SSH: Engine = Engine { fault: ssh_fault, run: ssh, refusal: Some(255), open: "open", places: None };

/// Whatever else the person's own settings of ssh say holds. What is set here nobody may set otherwise: no
/// question is asked, no unknown key of a host is taken, a line that is cut is noticed, and neither the
/// person's keys nor ports nor screen are lent to that machine.
fn ssh(spot: &Spot, script: &str) -> Line {
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
    let args = own.chain(["--", &spot.destination, script].map(str::to_owned)).collect();
    Line { args, ..Line::new("ssh", &[]) }
}

/// `user@host`, a name of the person's settings of ssh, or `ssh://user@host:port`.
fn ssh_fault(destination: &str) -> Option<String> {
    let rest = destination.strip_prefix("ssh://").unwrap_or(destination);
    let (user, host) = rest.rsplit_once('@').unwrap_or(("u", rest));
    let may = "._-:@[]%+";
    let fits = destination.len() <= MAX_DESTINATION_BYTES && is_plain(user, may) && is_plain(host, may);
    (!fits).then(|| {
        format!(
            "must be USER@HOST, a host of your ~/.ssh/config or ssh://USER@HOST:PORT, of at most \
             {MAX_DESTINATION_BYTES} of A-Z a-z 0-9 . _ - : @ [ ] % +, and neither user nor host may begin with -"
        )
    })
}
