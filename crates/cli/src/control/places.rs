//! Folders that nobody means as one project: a daemon there would index everything below, and every folder
//! below would belong to its project from then on.

use super::super::session::Failure;
use std::path::{Path, PathBuf};

/// Refuses the root of the file system, the home folder and what is above it, and the temporary folders.
///
/// `dir` is canonical, and found from the folder `here`. Errors: what it is, and the ways on.
pub(super) fn refuse_wide(dir: &Path, here: &Path) -> Result<(), Failure> {
    let home = std::env::var_os("HOME").map(PathBuf::from).and_then(|home| home.canonicalize().ok());
    let temporary = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
    let temporary: Vec<PathBuf> = temporary.iter().filter_map(|dir| dir.canonicalize().ok()).collect();
    match what_it_is(dir, home.as_deref(), &temporary) {
        None => Ok(()),
        // Somebody has made it a project once, and so it claims what is below.
        Some(what) if here.canonicalize().is_ok_and(|here| here != dir) => {
            let (dir, here) = (dir.display(), here.display());
            Err(Failure::failed(format!(
                "{here} belongs to the project {dir}, which is {what}: name the one you mean, --project . or \
                 --project {dir}; if {dir}/.svc was made by mistake, remove it"
            )))
        }
        Some(what) => {
            let dir = dir.display();
            Err(Failure::failed(format!(
                "{dir} is {what}, not one project: all of it would be indexed, and every folder below would \
                 belong to it; change into your project's folder, or insist with --project {dir}"
            )))
        }
    }
}

fn what_it_is(dir: &Path, home: Option<&Path>, temporary: &[PathBuf]) -> Option<&'static str> {
    if dir.parent().is_none() {
        return Some("the root of the file system");
    }
    match home {
        Some(home) if home == dir => return Some("your home folder"),
        Some(home) if home.starts_with(dir) => return Some("above your home folder"),
        _ => {}
    }
    temporary.iter().any(|one| one == dir).then_some("a folder for temporary files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_the_home_and_the_temporary_folders_are_no_projects_and_folders_in_them_are() {
        let (home, temporary) = (Some(Path::new("/users/ann")), [PathBuf::from("/tmp")]);
        for (dir, what) in [
            ("/", Some("the root of the file system")),
            ("/users/ann", Some("your home folder")),
            ("/users", Some("above your home folder")),
            ("/tmp", Some("a folder for temporary files")),
            ("/users/ann/shop", None),
            ("/users/anna", None),
            ("/tmp/shop", None),
            ("/srv", None),
        ] {
            assert_eq!(what_it_is(Path::new(dir), home, &temporary), what, "{dir}");
        }
        assert_eq!(what_it_is(Path::new("/users"), None, &[]), None);
        assert_eq!(what_it_is(Path::new("/"), None, &[]), Some("the root of the file system"));
    }
}
