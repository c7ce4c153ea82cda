//! The public tools that tests/real/setup-market installs.

use std::path::{Path, PathBuf};

/// A file of an installed tool; says so when it is not installed.
///
/// Panics where `SVC_REAL_CLIS=require`.
pub fn tool(name: &str, file: &str) -> Option<PathBuf> {
    // The marketplace is a package of its own below the root.
    let mut above =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().filter(|at| at.join("Cargo.lock").exists());
    let default = || above.next().expect("a workspace").join("target/real-market").into();
    let folder = PathBuf::from(std::env::var_os("SVC_REAL_MARKET_DIR").unwrap_or_else(default)).join(name);
    let path = folder.join(file);
    if folder.join("installed").is_file() && path.exists() {
        return Some(path);
    }
    super::real::absent(name, "setup-market");
    None
}
