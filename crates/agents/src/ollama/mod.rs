//! `svc agent-ollama`: the child process behind the provider `ollama`. It works on its task with the model
//! of an OpenAI-compatible endpoint and a few tools that stay in its working directory.
//!
//! The files: [`endpoint`] sends requests, [`stream`] reads the answers, [`tools`] does what the model asks
//! for, [`session`] keeps the history, [`agent`] is the loop over all of these.

mod agent;
mod endpoint;
mod search;
mod session;
mod stream;
mod tools;

use crate::rehearsal::{input, output::Output};
use agent::Agent;
use endpoint::Endpoint;
pub use endpoint::look;
use session::Session;
use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use svc_providers::native::Input;
use svc_providers::ollama::{PROJECT_DIR_VARIABLE, SUB_COMMAND};
use svc_providers::{Activity, Tokens, TurnEnd};
use tools::{Reach, Tools};

/// The exit code of a wrong command line, session or input line.
const EXIT_USAGE: u8 = 2;

/// The command line.
#[derive(Debug, Default)]
struct Options {
    model: String,
    context_window: Option<u64>,
    effort: Option<String>,
    resume: Option<String>,
    fork: Option<String>,
    counted: Tokens,
    full: bool,
    query: bool,
}

/// Runs the agent: `--model NAME [--context TOKENS] [--effort low|high] [--resume ID --counted JSON |
/// --fork ID] [--full] [--query]`. Speaks the protocol of [`svc_providers::native`].
///
/// Exit codes: 0 at the end of standard input or after a question, 1 when the question or the last turn has
/// failed or nobody reads the output, 2 for a wrong command line, session or input line.
pub fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let mut output = Output::new();
    match parse_options(args).and_then(|options| run(options, &mut output)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let end = TurnEnd { is_error: true, error: error.clone(), ..TurnEnd::default() };
            // Nobody may be reading; the exit code tells it all the same.
            let _ = output.emit(&Activity::TurnEnded(end));
            let _ = writeln!(io::stderr(), "svc {SUB_COMMAND}: {error}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn parse_options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg}: needs a value"));
        match arg.as_str() {
            "--model" => options.model = value()?,
            "--context" => {
                let number = value()?.parse().map_err(|error| format!("--context: {error}"))?;
                options.context_window = Some(number);
            }
            "--effort" => options.effort = Some(value()?),
            "--resume" => options.resume = Some(value()?),
            "--fork" => options.fork = Some(value()?),
            "--counted" => {
                options.counted = serde_json::from_slice(value()?.as_bytes())
                    .map_err(|error| format!("--counted: {error}"))?;
            }
            "--full" => options.full = true,
            "--query" => options.query = true,
            _ => return Err(format!("{arg}: unknown option")),
        }
    }
    if options.model.is_empty() { Err("--model: is missing".to_owned()) } else { Ok(options) }
}

/// `Ok` tells whether the last turn went well.
fn run(options: Options, output: &mut Output) -> Result<bool, String> {
    let root = env::current_dir().map_err(|error| format!("working directory: {error}"))?;
    let project = env::var_os(PROJECT_DIR_VARIABLE).map_or_else(|| root.clone(), PathBuf::from);
    let endpoint = Endpoint::from_environment(options.model.clone(), options.effort)?;
    let reach = match (options.query, options.full) {
        (true, _) => Reach::Read,
        (false, false) => Reach::Auto,
        (false, true) => Reach::Full,
    };
    let tools = Tools::new(&root, reach)?;
    let first = match input::next()? {
        Some(Input::Prompt { text }) => text,
        Some(Input::Say { .. }) => return Err("standard input: begins without a prompt".into()),
        None => return Ok(true),
    };
    let session = match (&options.resume, &options.fork) {
        (Some(id), _) => Session::resume(&project, id)?.introduced(&tools.introduction()),
        (None, Some(id)) if options.query => Session::fork(&project, id)?,
        (None, Some(id)) => Session::copy(&project, id)?.introduced(&tools.introduction()),
        (None, None) if options.query => Session::unsaved(&tools.introduction()),
        (None, None) => Session::fresh(&project, &tools.introduction())?,
    };
    let opening = Activity::Session { id: session.id().to_owned(), model: Some(options.model) };
    let mut agent = Agent::new(endpoint, tools, session, output, options.counted, options.context_window);
    // A question has no session of its own that could be continued.
    if !options.query && agent.output.emit(&opening).is_err() {
        return Ok(false);
    }
    let mut message = first;
    loop {
        let Ok(well) = agent.turn(&message) else { return Ok(false) };
        if options.query {
            return Ok(well);
        }
        message = match input::next()? {
            Some(Input::Say { text } | Input::Prompt { text }) => text,
            None => return Ok(well),
        };
    }
}
