//! The command line: `serve` and what an operator does beside it.

use crate::authoring::moves::Move;
use crate::catalogue::Catalogue;
use crate::config::{ADDRESS, Config, DATABASE};
use crate::model::Verification;
use crate::review::NOTE_CHARS;
use crate::store::Store;
use crate::{log_lines, mirror, seed, serve};
use lexopt::prelude::*;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use svc::runtime::clock::now;

const HELP: &str = "svc-skills: the skills marketplace service

usage: svc-skills [COMMAND] [--db FILE]

  serve [--addr IP:PORT] [--no-seed]   serve the API (the default)
  review                               list what waits for a decision
  review ID approve|reject [NOTE]      decide
  verify ID service|creator|none       vouch for a skill, or take it back
  feature ID on|off                    highlight a skill, or take it back
  export DIR                           write a static mirror: skills/registry.json, skills/content/<id>.md
  import DIR                           take such a mirror in; known skills keep their counters
  backup FILE                          write a whole copy of the database, also while it is served
  seed                                 take in the embedded skills again
  check                                look whether database and ledger are sound

Commands may run while the service does; it sees their changes at once.
";

/// Exit code of a failure.
const FAILED: u8 = 1;
/// Exit code of wrong usage.
const WRONG_USAGE: u8 = 2;

/// The arguments, taken apart.
struct Args {
    words: Vec<String>,
    address: Option<String>,
    database: Option<PathBuf>,
    seeds: bool,
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
    let mut parsed = Args { words: Vec::new(), address: None, database: None, seeds: true };
    while let Some(arg) = parser.next()? {
        match arg {
            Long("addr") => parsed.address = Some(parser.value()?.string()?),
            Long("db") => parsed.database = Some(parser.value()?.into()),
            Long("no-seed") => parsed.seeds = false,
            Long("help") | Short('h') => {
                print!(
                    "{HELP}\nserve listens on {ADDRESS} and keeps {DATABASE} in the current folder unless told \
                     otherwise.\nEnvironment: SKILLS_API_KEY, SKILLS_API_KEY_PREVIOUS, SKILLS_ADMIN_KEY, \
                     SKILLS_BASE_URL,\nSKILLS_PUBLIC_RPM, SKILLS_TRUSTED_PROXIES, SKILLS_SITE_ORIGINS, \
                     DATABASE_URL, SVC_LOG\n"
                );
                return Ok(None);
            }
            Long("version") | Short('V') => {
                println!("svc-skills {}", svc::VERSION);
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
    let mut config = Config::read(|name| std::env::var(name).ok()).map_err(usage)?;
    if let Some(address) = &args.address {
        let text = format!("--addr {address:?} is no address such as {ADDRESS}");
        config.address = address.parse().map_err(|_| usage(text))?;
    }
    if let Some(database) = &args.database {
        config.database.clone_from(database);
        // What is said on the command line goes before the environment.
        config.database_url = None;
    }
    config.seeds = args.seeds;
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let open = || serve::open_store(&config).map_err(failed);
    match words[..] {
        [] | ["serve"] => serve::run(&config).map(|()| String::new()).map_err(failed),
        ["review"] => waiting(&*open()?),
        ["review", id, decision] => decide(&*open()?, id, decision, ""),
        ["review", id, decision, note] => decide(&*open()?, id, decision, note),
        ["verify", id, who] => verify(&*open()?, id, who),
        ["feature", id, word @ ("on" | "off")] => make(&*open()?, id, Move::Feature(word == "on")),
        ["export", folder] => {
            let base_url = config.base_url.clone().unwrap_or_else(|| format!("http://{}", config.address));
            let catalogue = Catalogue::load(open()?, base_url).map_err(failed)?;
            let count = mirror::export(&catalogue, folder.as_ref()).map_err(failed)?;
            Ok(format!("exported {count} skills to {folder}\n"))
        }
        ["import", folder] => {
            let incoming = mirror::read(folder.as_ref(), now()).map_err(failed)?;
            let changed = open()?.take_in(incoming, now()).map_err(failed)?.value;
            Ok(format!("imported {changed} new or changed skills\n"))
        }
        ["backup", file] => {
            open()?.backup(file.as_ref()).map_err(failed)?;
            Ok(format!("backed up to {file}\n"))
        }
        ["seed"] => {
            let changed = open()?.take_in(seed::all().map_err(failed)?, now()).map_err(failed)?.value;
            Ok(format!("took in {changed} new or changed skills\n"))
        }
        ["check"] => check(&*open()?),
        [command, ..] => Err(usage(format!("{command:?} is no command, or its words are wrong; see --help"))),
    }
}

fn waiting(store: &dyn Store) -> Said {
    let mut skills = store.changes_since(0).map_err(failed)?.skills;
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

fn decide(store: &dyn Store, id: &str, decision: &str, note: &str) -> Said {
    if note.chars().count() > NOTE_CHARS {
        return Err(usage(format!("the note has more than {NOTE_CHARS} characters")));
    }
    let approve = match decision {
        "approve" => true,
        "reject" => false,
        other => return Err(usage(format!("the decision must be approve or reject, it is {other:?}"))),
    };
    make(store, id, Move::Review { approve, note: note.to_owned() })
}

fn verify(store: &dyn Store, id: &str, who: &str) -> Said {
    let verification = Verification::from_word(who).filter(|found| *found != Verification::Vendor);
    let verification = verification
        .ok_or_else(|| usage(format!("a skill is verified by service, creator or none, not by {who:?}")))?;
    make(store, id, Move::Verify(verification))
}

fn make(store: &dyn Store, id: &str, step: Move) -> Said {
    let skill = store.transition(id, step, now()).map_err(failed)?.value;
    Ok(format!(
        "{}: {}, verification {}, featured {}\n",
        skill.id, skill.status, skill.verification, skill.featured
    ))
}

fn check(store: &dyn Store) -> Said {
    let skills = store.changes_since(0).map_err(failed)?.skills;
    for skill in &skills {
        let content = store.content(&skill.digest).map_err(failed)?;
        let content = content.ok_or_else(|| failed(format!("the content of {} is missing", skill.id)))?;
        if crate::hex::sha256(content.as_bytes()) != skill.digest {
            return Err(failed(format!("the content of {} is not what its digest says", skill.id)));
        }
    }
    let unbalanced = store.unbalanced_transactions().map_err(failed)?;
    if !unbalanced.is_empty() {
        return Err(failed(format!("the ledger does not balance in transactions {unbalanced:?}")));
    }
    Ok(format!("{} skills with their contents, and the ledger, are sound\n", skills.len()))
}
