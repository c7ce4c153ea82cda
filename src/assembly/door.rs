//! This daemon among all of its user.

use crate::core::Project;
use crate::core::time::Time;
use std::path::Path;
use svc_sys::registry::{Facts, Registry, Seat};

/// Takes this project's place in the registry. A daemon without one works all the same, and only its own
/// address leads to it.
pub fn join(project: &Path, since: Time) -> Option<Seat> {
    let registry = Registry::of_user()?;
    let facts =
        Facts { project: project.to_owned(), url: String::new(), pid: std::process::id(), since: since.0 };
    match registry.join(facts) {
        Ok(seat) => Some(seat),
        Err(error) => {
            log::warn!("'svc ps' does not list this project: {}: {error}", registry.folder().display());
            None
        }
    }
}

/// Tells others where this daemon listens.
pub fn tell(seat: Option<&mut Seat>, project: &Project) {
    let Some(seat) = seat else { return };
    if let Err(error) = seat.tell_url(&project.url()) {
        log::warn!("'svc ps' does not tell where this daemon listens: {error}");
    }
}
