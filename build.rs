//! Writes the console's scripts and styles as they are served, so that comments and indentation cost readers of
//! the source nothing and browsers no bytes. No tool takes part: what a browser gets has the same lines.

use std::path::PathBuf;
use std::{env, fs, process};

#[path = "src/console/lean.rs"]
mod lean;

const ASSETS: &str = "src/console/assets";

fn main() {
    println!("cargo::rerun-if-changed={ASSETS}");
    println!("cargo::rerun-if-changed=src/console/lean.rs");
    println!("cargo::rerun-if-changed=build.rs");
    if let Err(why) = write_all() {
        println!("cargo::error=the console's files cannot be made lean: {why}");
        process::exit(1);
    }
}

fn write_all() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?).join("console");
    fs::create_dir_all(&out).map_err(at("OUT_DIR"))?;
    for entry in fs::read_dir(ASSETS).map_err(at(ASSETS))? {
        let path = entry.map_err(at(ASSETS))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let text = fs::read_to_string(&path).map_err(at(name))?;
        fs::write(out.join(name), lean::lean(name, &text)?).map_err(at(name))?;
    }
    Ok(())
}

fn at(what: &str) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{what}: {error}")
}
