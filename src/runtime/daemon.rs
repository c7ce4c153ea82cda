//! The daemon as one call: `svc start` fills in the options and stays in here until the daemon ends.

use std::path::PathBuf;

/// What `svc start` asks for.
pub struct DaemonOptions {
    /// The project's root, absolute; its state goes to `.svc/` in there.
    pub project_dir: PathBuf,
    /// `--host`: the address to bind instead of the configured one.
    pub host: Option<String>,
    /// `--port`: the port to bind instead of the configured one; 0 takes any.
    pub port: Option<u16>,
    /// Whether standard error is `.svc/daemon.log` already (`svc start --background`), so that the daemon
    /// writes each log line once.
    pub stderr_is_log: bool,
    /// Called once, from any thread, when the daemon accepts connections and its port file is written.
    pub on_ready: Box<dyn FnOnce(&Listening) + Send>,
}

/// Where a daemon that accepts connections is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// For example `http://127.0.0.1:31415`, without a slash at the end.
    pub url: String,
    /// The port really bound.
    pub port: u16,
}

/// Why the daemon did not start, or ended otherwise than by being asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonError {
    /// 2 for options that can never work (`--host 0.0.0.0`), 1 for everything else.
    pub exit_code: u8,
    /// A sentence for people, lower case, without a period: what is wrong and what to do.
    pub message: String,
}

/// Runs the daemon until it is asked to end.
///
/// Errors: see [`DaemonError`].
pub fn run(options: DaemonOptions) -> Result<(), DaemonError> {
    let DaemonOptions { project_dir, .. } = options;
    let message = format!("the daemon for {} is not built yet", project_dir.display());
    Err(DaemonError { exit_code: 1, message })
}
