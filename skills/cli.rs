//! The command line: `serve` and what an operator does beside it.

use crate::authoring::moves::Move;
use crate::catalogue::Catalogue;
use crate::config::{ADDRESS, Config};
use crate::mirror::Trust;
use crate::model::Verification;
use crate::review::NOTE_CHARS;
use crate::store::migrate::Trouble;
use crate::store::sqlite::Opening;
use crate::store::{Partial, Store, StoreError};
use crate::{help, log_lines, mirror, seed, serve, store};
use lexopt::prelude::*;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use svc_sys::clock::now;
use svc_sys::signals::Signals;

/// Exit code of a failure.
const FAILED: u8 = 1;
/// Exit code of wrong usage.
const WRONG_USAGE: u8 = 2;
/// Exit code when a signal broke it off.
const BROKEN_OFF: i32 = 130;

/// The arguments, taken apart.
struct Args {
    words: Vec<String>,
    address: Option<String>,
    database: Option<PathBuf>,
    seeds: bool,
    trust: Trust,
    from: Option<PathBuf>,
    to: Option<String>,
    wants_help: bool,
}

/// Runs a command line; the exit code.
pub fn run(args: Vec<OsString>) -> u8 {
    log_lines::start();
    let parsed = match parse(args) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return 0,
        Err(error) => {
            eprintln!("svc-skills: {error}; see svc-skills --help");
            return WRONG_USAGE;
        }
    };
    match dispatch(&parsed) {
        Ok(said) => {
            print!("{said}");
            0
        }
        Err((code, error)) => {
            eprintln!("svc-skills: {error}");
            code
        }
    }
}

fn parse(args: Vec<OsString>) -> Result<Option<Args>, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut parsed = Args {
        words: Vec::new(),
        address: None,
        database: None,
        seeds: true,
        trust: Trust::Text,
        from: None,
        to: None,
        wants_help: false,
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Long("addr") => parsed.address = Some(parser.value()?.string()?),
            Long("db") => parsed.database = Some(parser.value()?.into()),
            Long("from") => parsed.from = Some(parser.value()?.into()),
            Long("to") => parsed.to = Some(parser.value()?.string()?),
            Long("no-seed") => parsed.seeds = false,
            Long("trust") => parsed.trust = Trust::Figures,
            Long("help") | Short('h') => parsed.wants_help = true,
            Long("version") | Short('V') => {
                println!("svc-skills {}", env!("CARGO_PKG_VERSION"));
                return Ok(None);
            }
            Value(word) => parsed.words.push(word.string()?),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Some(parsed))
}

type Said = Result<String, (u8, String)>;

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failed(error: impl ToString) -> (u8, String) {
    (FAILED, error.to_string())
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn usage(error: impl ToString) -> (u8, String) {
    (WRONG_USAGE, error.to_string())
}

fn dispatch(args: &Args) -> Said {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    match words[..] {
        [command, ..] if args.wants_help && command != "help" => return helped(command),
        _ if args.wants_help => return Ok(help::general()),
        ["help"] => return Ok(help::general()),
        ["help", command] => return helped(command),
        _ => {}
    }
    if words != ["migrate"] && (args.from.is_some() || args.to.is_some()) {
        return Err(usage("--from and --to belong to migrate"));
    }
    let config = configured(args)?;
    let database = Database { config: &config };
    match words[..] {
        [] | ["serve"] => serve::run(&config).map(|()| String::new()).map_err(failed),
        ["review"] => waiting(&database),
        ["review", id, decision] => decide(&database, id, decision, ""),
        ["review", id, decision, note] => decide(&database, id, decision, note),
        ["verify", id, who] => verify(&database, id, who),
        ["feature", id, word @ ("on" | "off")] => make(&database, id, Move::Feature(word == "on")),
        ["export", folder] => export(&database, folder),
        ["import", folder] => import(&database, folder.as_ref(), args.trust),
        ["backup", file] => backup(&database, file.as_ref()),
        ["seed"] => {
            let store = database.open(Opening::OrMake)?;
            let seeds = seed::all().map_err(failed)?;
            let changed = store.take_in(seeds, now()).map_err(|error| database.met(&error))?.value;
            Ok(format!("took in {changed} new or changed skills\n"))
        }
        ["migrate"] => migrate(args, &config),
        ["check"] => check(&database),
        [command, ..] => {
            Err(usage(format!("{command:?} is not a command, or its arguments are wrong; see --help")))
        }
    }
}

fn helped(command: &str) -> Said {
    help::of(command).ok_or_else(|| usage(format!("{command:?} is not a command")))
}

fn configured(args: &Args) -> Result<Config, (u8, String)> {
    let mut config = Config::read(|name| std::env::var(name).ok()).map_err(usage)?;
    if let Some(address) = &args.address {
        let text = format!("--addr {address:?} is not an address such as {ADDRESS}");
        config.address = address.parse().map_err(|_| usage(text))?;
    }
    if let Some(database) = &args.database {
        config.database.clone_from(database);
        // What is said on the command line goes before the environment.
        config.database_url = None;
    }
    config.seeds = args.seeds;
    Ok(config)
}

/// The configured database, which names itself in what goes wrong.
struct Database<'a> {
    config: &'a Config,
}

impl Database<'_> {
    fn open(&self, opening: Opening) -> Result<Arc<dyn Store>, (u8, String)> {
        serve::open_store(self.config, opening).map_err(failed)
    }

    /// What an operation met, with the database's name where it is the database's trouble.
    fn met(&self, error: &StoreError) -> (u8, String) {
        match error {
            StoreError::Refused(problem) => failed(&problem.error),
            error if self.config.database_url.is_some() => {
                failed(format!("the database of DATABASE_URL: {error}"))
            }
            error => failed(format!("{}: {error}", self.config.database.display())),
        }
    }
}

fn export(database: &Database, folder: &str) -> Said {
    let config = database.config;
    let base_url = config.base_url.clone().unwrap_or_else(|| format!("http://{}", config.address));
    let store = database.open(Opening::Existing)?;
    let catalogue = Catalogue::load(store, base_url).map_err(|error| database.met(&error))?;
    let count = mirror::export(&catalogue, folder.as_ref()).map_err(failed)?;
    Ok(format!("exported {count} skills to {folder}\n"))
}

fn import(database: &Database, folder: &Path, trust: Trust) -> Said {
    let mirror = mirror::read(folder, trust, now()).map_err(failed)?;
    let store = database.open(Opening::OrMake)?;
    let changed = mirror::take_in(&*store, mirror.skills, now()).map_err(|error| database.met(&error))?;
    let mut said = format!("imported {changed} new or changed skills\n");
    if mirror.skipped > 0 {
        let _ = writeln!(
            said,
            "left out {} under the vendor's name, source or ids: those come with the program",
            mirror.skipped
        );
    }
    Ok(said)
}

fn backup(database: &Database, file: &Path) -> Said {
    let store = database.open(Opening::Existing)?;
    let partial = Partial::name(file);
    let signals = Signals::start(move || {
        // Half a copy is of no use to anybody; there may be none yet.
        let _ = std::fs::remove_file(&partial);
        std::process::exit(BROKEN_OFF)
    });
    let _signals = signals.map_err(|error| failed(format!("cannot catch signals: {error}")))?;
    store.backup(file).map_err(|error| failed(format!("cannot back up to {}: {error}", file.display())))?;
    Ok(format!("backed up to {}\n", file.display()))
}

fn migrate(args: &Args, config: &Config) -> Said {
    let from = args.from.as_deref();
    let from = from.ok_or_else(|| usage("migrate needs the database to move: --from FILE"))?;
    let to = args.to.as_deref().or(config.database_url.as_deref());
    let to = to.ok_or_else(|| {
        usage("migrate needs the database to move to: DATABASE_URL in the environment, or --to URL")
    })?;
    let moved = store::migrate::run(from, to, &mut |progress| eprintln!("{progress}"));
    let moved = moved.map_err(|trouble| match trouble {
        Trouble::Source(error) => failed(format!("{}: {error}", from.display())),
        Trouble::Target(StoreError::OutcomeUnknown(error)) => failed(format!(
            "the new database was lost at the very end, it has all or nothing: run this again, which refuses a \
             database that has it all ({error})"
        )),
        Trouble::Target(error) => failed(format!("the new database: {error}")),
    })?;
    let mut said = String::new();
    for (table, rows) in moved {
        let _ = writeln!(said, "{rows:>10}  {table}");
    }
    let _ = writeln!(said, "all of it is in the new database, compared; {} is as it was", from.display());
    Ok(said)
}

fn waiting(database: &Database) -> Said {
    let store = database.open(Opening::Existing)?;
    let mut skills = store.changes_since(0).map_err(|error| database.met(&error))?.skills;
    skills.retain(|skill| skill.status == crate::model::Status::Review);
    if skills.is_empty() {
        return Ok("nothing waits for review\n".into());
    }
    let mut said = String::new();
    for skill in skills {
        let price = crate::model::hundredths(skill.price_cents);
        let _ = writeln!(said, "{:40} {price:>6}  {} ({})", skill.id, skill.name, skill.author);
    }
    Ok(said)
}

fn decide(database: &Database, id: &str, decision: &str, note: &str) -> Said {
    if note.chars().count() > NOTE_CHARS {
        return Err(usage(format!("the note has more than {NOTE_CHARS} characters")));
    }
    let approve = match decision {
        "approve" => true,
        "reject" => false,
        other => return Err(usage(format!("the decision must be approve or reject, it is {other:?}"))),
    };
    make(database, id, Move::Review { approve, note: note.to_owned() })
}

fn verify(database: &Database, id: &str, who: &str) -> Said {
    let verification = Verification::from_word(who).filter(|found| *found != Verification::Vendor);
    let verification = verification
        .ok_or_else(|| usage(format!("a skill is verified by service, creator or none, not by {who:?}")))?;
    make(database, id, Move::Verify(verification))
}

fn make(database: &Database, id: &str, step: Move) -> Said {
    let store = database.open(Opening::Existing)?;
    let skill = store.transition(id, step, now()).map_err(|error| database.met(&error))?.value;
    Ok(format!(
        "{}: {}, verification {}, featured {}\n",
        skill.id, skill.status, skill.verification, skill.featured
    ))
}

fn check(database: &Database) -> Said {
    let store = database.open(Opening::Existing)?;
    let met = |error: StoreError| database.met(&error);
    let mut flaws = store.flaws().map_err(met)?;
    let skills = store.changes_since(0).map_err(met)?.skills;
    for skill in &skills {
        // Those that are missing are told above.
        let Some(content) = store.content(&skill.digest).map_err(met)? else { continue };
        if crate::hex::sha256(content.as_bytes()) != skill.digest {
            flaws.push(format!("the content of {} is not what its digest says", skill.id));
        }
    }
    let unbalanced = store.unbalanced_transactions().map_err(met)?;
    if !unbalanced.is_empty() {
        flaws.push(format!("the ledger does not balance in transactions {}", unbalanced.join(", ")));
    }
    if flaws.is_empty() {
        return Ok(format!(
            "{} skills with their contents, history, authors and counters, and the ledger, are sound\n",
            skills.len()
        ));
    }
    let text = format!("damaged, restore a backup: {}", flaws.join("; "));
    Err(met(StoreError::Unavailable(text)))
}
