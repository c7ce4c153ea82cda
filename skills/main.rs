//! `svc-skills`: the skills marketplace service. A JSON API over HTTP that lists, serves, creates, edits,
//! publishes, rates and counts installs of skills: markdown instructions for coding agents.
//!
//! The modules in reading order: [`model`] has the nouns; [`authoring`], [`authors`], [`review`],
//! [`ratings`], [`installs`] and [`ledger`] are the pure rules; [`store`] is where everything lasts;
//! [`catalogue`] what is served from memory; [`limits`] and [`keys`] who may ask; [`http`] and [`page`] the
//! endpoints; [`seed`] and [`mirror`] skills from outside; [`serve`], [`config`], [`cli`] and [`help`] the
//! program.

mod authoring;
mod authors;
mod catalogue;
mod cli;
mod config;
mod help;
mod hex;
mod http;
mod installs;
mod keys;
mod ledger;
mod limits;
mod log_lines;
mod mirror;
mod model;
mod page;
mod ratings;
mod review;
mod seed;
mod serve;
mod store;

use std::process::ExitCode;

fn main() -> ExitCode {
    svc_sys::secrets::hide();
    ExitCode::from(cli::run(std::env::args_os().skip(1).collect()))
}
