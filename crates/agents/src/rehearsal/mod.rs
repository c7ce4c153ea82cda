//! The rehearsal agent: the child process behind the provider `script`. It plays a scenario file with real
//! effects, real signals and real descendants, so that everything around an agent can be tried without a
//! network and without tokens.

mod embedded;
pub use embedded::find as find_scenario;
pub mod input;
mod node;
pub mod output;
mod player;
pub mod scenario;
mod terminal;
pub mod tools;

use player::{Player, Stop, Words, failure};
use scenario::{Scenario, Step};
use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use svc_providers::native::Input;
use svc_providers::script::{PROJECT_DIR_VARIABLE, TERMINAL_OPTION};
use svc_providers::{Activity, Tokens, TurnEnd};
use svc_sys::rehearsal_signals;

/// Played when no scenario is named.
const DEFAULT_SCENARIO: &str = "default";
/// The exit code of a wrong command line, scenario or input line.
const EXIT_USAGE: u8 = 2;
/// With this option and a number of seconds the program is a descendant that a scenario leaves behind.
const LINGER_OPTION: &str = "--linger";
/// The descendant ignores SIGTERM.
const LINGER_IGNORE_TERM_OPTION: &str = "--ignore-term";
/// The descendant has a session of its own.
const LINGER_OWN_SESSION_OPTION: &str = "--own-session";
/// Bytes of a fresh session id.
const SESSION_ID_BYTES: usize = 16;

/// The command line.
#[derive(Debug, Default)]
struct Options {
    query: bool,
    resume: Option<String>,
    counted: Tokens,
    model: Option<String>,
    linger_seconds: Option<u64>,
    ignore_term: bool,
    own_session: bool,
    terminal: bool,
}

/// Runs the agent: `[--query] [--resume ID --counted JSON] [--model NAME]`, where NAME is the scenario's;
/// with `--terminal` a person goes on with the session. Speaks the protocol of [`svc_providers::native`] on
/// its standard input and output.
///
/// Exit codes: 0 at the end of standard input, 2 for a wrong command line, scenario or input line, 1 when
/// nobody reads its output, or what the scenario says.
pub fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let options = match parse_options(args) {
        Ok(options) => options,
        Err(error) => return refuse(&error),
    };
    if let Some(seconds) = options.linger_seconds {
        return linger(&options, seconds);
    }
    if options.terminal {
        return match terminal::run(&options.resume.unwrap_or_default(), options.counted) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => refuse(&format!("the screen: {error}")),
        };
    }
    match run(options) {
        Ok(()) | Err(Stop::InputEnded) => ExitCode::SUCCESS,
        Err(Stop::Exit(code)) => ExitCode::from(code),
        Err(Stop::Failed(error) | Stop::BadInput(error)) => refuse(&error),
        Err(Stop::Broken) => ExitCode::FAILURE,
    }
}

fn parse_options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg}: needs a value"));
        match arg.as_str() {
            "--query" => options.query = true,
            "--resume" => options.resume = Some(value()?),
            "--counted" => {
                options.counted = serde_json::from_slice(value()?.as_bytes())
                    .map_err(|error| format!("--counted: {error}"))?;
            }
            "--model" => options.model = Some(value()?),
            LINGER_OPTION => {
                let seconds = value()?.parse().map_err(|error| format!("{LINGER_OPTION}: {error}"))?;
                options.linger_seconds = Some(seconds);
            }
            TERMINAL_OPTION => options.terminal = true,
            LINGER_IGNORE_TERM_OPTION => options.ignore_term = true,
            LINGER_OWN_SESSION_OPTION => options.own_session = true,
            _ => return Err(format!("{arg}: unknown option")),
        }
    }
    Ok(options)
}

/// Says on standard error what is wrong.
fn refuse(error: &str) -> ExitCode {
    // Nobody may be reading there; the exit code tells it all the same.
    let _ = writeln!(io::stderr(), "svc agent-script: {error}");
    ExitCode::from(EXIT_USAGE)
}

/// The life of a descendant that a scenario leaves behind.
fn linger(options: &Options, seconds: u64) -> ExitCode {
    if options.ignore_term {
        rehearsal_signals::ignore_term();
    }
    if options.own_session {
        rehearsal_signals::own_session();
    }
    // The agent waits for this, so that nobody can meet a descendant that is not ready.
    let _ = writeln!(io::stderr(), "ready");
    std::thread::sleep(Duration::from_secs(seconds));
    ExitCode::SUCCESS
}

fn run(options: Options) -> Result<(), Stop> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let root = env::current_dir().map_err(|error| Stop::BadInput(format!("working directory: {error}")))?;
    let prompt = match input::next().map_err(Stop::BadInput)? {
        Some(Input::Prompt { text }) => text,
        Some(Input::Say { .. }) => {
            return Err(Stop::BadInput("standard input: begins without a prompt".into()));
        }
        None => return Err(Stop::InputEnded),
    };
    let words = Words {
        prompt,
        message: String::new(),
        role: variable("SVC_AGENT_ROLE"),
        name: variable("SVC_AGENT_NAME"),
        agent_id: variable("SVC_AGENT_ID"),
    };
    let name = options.model.unwrap_or_else(|| DEFAULT_SCENARIO.to_owned());
    let mut player = Player::new(root, words, options.counted);
    let project = env::var_os(PROJECT_DIR_VARIABLE);
    let scenario = match embedded::find(&name, project.as_deref().map(Path::new)) {
        Ok(scenario) => scenario,
        Err(error) => {
            player.output.emit(&Activity::TurnEnded(failure(&error)))?;
            return Err(Stop::BadInput(error));
        }
    };
    let id = match options.resume {
        Some(id) => id,
        None => fresh_session_id().map_err(Stop::BadInput)?,
    };
    player.output.emit(&Activity::Session { id, model: Some(name) })?;
    if options.query { answer(&mut player, &scenario) } else { work(&mut player, &scenario) }
}

/// A question: one answer, no effects.
fn answer(player: &mut Player, scenario: &Scenario) -> Result<(), Stop> {
    let template = scenario.query.as_deref().unwrap_or("a rehearsed answer to: {{prompt}}");
    let text = player.words.fill(template);
    player.output.emit(&Activity::TurnStarted)?;
    player.output.text(text.clone())?;
    Ok(player.output.emit(&Activity::TurnEnded(TurnEnd { text, ..TurnEnd::default() }))?)
}

/// The first turn, and one more for each message.
fn work(player: &mut Player, scenario: &Scenario) -> Result<(), Stop> {
    player.turn(&scenario.steps)?;
    let noted = [Step::Answer("noted: {{message}}".to_owned())];
    let on_say = scenario.on_say.as_deref().unwrap_or(&noted);
    while let Some(Input::Say { text } | Input::Prompt { text }) = input::next().map_err(Stop::BadInput)? {
        player.words.message = text;
        player.turn(on_say)?;
    }
    Ok(())
}

/// A random id in hexadecimal digits.
fn fresh_session_id() -> Result<String, String> {
    let mut bytes = [0; SESSION_ID_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random number: {error}"))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
