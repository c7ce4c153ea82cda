//! All tests of the built programs, in one program of their own: what they share is compiled and linked once.
//! Each subject is a module; `cargo nextest run --test it trust::` runs one of them.

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "shared with the farm's own program")]
#[path = "../simulate/farm/mod.rs"]
mod farm;

mod accounts;
mod api;
mod attach;
mod callers;
mod callers_proof;
mod cleanup;
mod cli;
mod cli_finish;
mod cli_top;
mod clock;
mod command_line;
mod console;
mod cron;
mod daemon;
mod edge;
mod federation;
mod files;
mod flood;
mod full_disk;
mod fuzz;
mod gateways;
mod gateways_oracles;
mod governor;
mod guide;
mod import;
mod indexer;
mod integrations;
mod integrations_agents;
mod integrations_secrets;
mod isolation;
mod kept;
mod kept_orders;
mod kept_records;
mod kill_nine;
mod last_word;
mod limits;
mod map;
mod market;
mod memory;
mod modules;
mod ollama_agent;
mod ownership;
mod powercuts;
mod prices;
mod process_strays;
mod processes;
mod providers;
mod real_adoption;
mod real_attach;
mod real_claude;
mod real_clis;
mod real_environment;
mod real_integrations;
mod real_kills;
mod real_mcp;
mod real_skills;
mod recall;
mod record;
mod recordings;
mod room;
mod rotation_triggers;
mod runs;
mod script_agent;
mod shortage;
mod simulation;
mod simulation_plans;
mod simulation_trust;
mod snapshots;
mod storm;
mod teams;
mod tidy;
mod transcripts;
mod trust;
mod trust_session;
mod vm;
mod wakeups;
mod watch;
mod websocket;
