//! Whom the kernel ends first when the machine has no memory left: programs of agents before their keepers,
//! and those before the daemon, which goes before nobody whom it did not go before already.

use super::os;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// How much sooner a keeper goes than its daemon, in thousandths of the machine's memory.
const KEEPER: i32 = 100;
/// How much sooner than the daemon a program goes.
const PROGRAM: i32 = 300;
/// The kernel knows no more.
const MOST: i32 = 1_000;

/// What a keeper has to say so with, and what the daemon has.
static SCORE: OnceLock<(File, i32)> = OnceLock::new();

/// This process, a keeper, goes before its daemon, and what it starts before it. Said before its memory is
/// closed, with which these files become somebody else's. What cannot be had is done without.
pub fn go_before_daemon() {
    if let Ok((file, daemon)) = open() {
        set(&file, daemon + KEEPER);
        let _ = SCORE.set((file, daemon));
    }
}

fn open() -> io::Result<(File, i32)> {
    let mut file = File::options().read(true).write(true).open(os::OWN_SCORE)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok((file, text.trim().parse().map_err(io::Error::other)?))
}

fn set(file: &File, score: i32) {
    // Everybody may raise it, and lower it again to where somebody with the right to has left it.
    let _ = file.write_all_at(score.min(MOST).to_string().as_bytes(), 0);
}

/// Starts a program of a keeper's: it inherits what this process has for that moment, for between fork and
/// exec it could not say so itself.
pub(super) fn as_program<T>(start: impl FnOnce() -> T) -> T {
    let Some((file, daemon)) = SCORE.get() else { return start() };
    set(file, daemon + PROGRAM);
    let started = start();
    set(file, daemon + KEEPER);
    started
}
