//! All tests of the built marketplace, in one program of their own. Each subject is a module.

#[path = "../support"]
#[allow(dead_code, reason = "shared with the tests of the daemon")]
mod support {
    pub mod dice;
    pub mod folder;
    pub mod market;
    pub mod postgres;
    pub mod processes;
    pub mod proxy;
    pub mod real;
    pub mod tools;
    pub mod wait;
}

mod api;
mod cli;
mod kill_nine;
mod migrate;
mod postgres;
mod postgres_wire;
mod schema;
mod service;
