//! Paths as agents name them, and as the project knows them.

use super::Agent;
use std::path::{Component, Path, PathBuf};

impl Agent {
    /// The path below the project's root that it means by `path`. Absolute ones lose the project's (or the
    /// worktree's) prefix, relative ones get the agent's working directory; what lies outside stays as it is.
    pub fn project_path(&self, project: &Path, path: &str) -> String {
        let given = Path::new(path);
        let worktree = self.worktree.as_ref().map(|worktree| project.join(worktree));
        let inside = worktree.as_deref().and_then(|base| given.strip_prefix(base).ok());
        let relative = match inside.or_else(|| given.strip_prefix(project).ok()) {
            Some(inside) => inside.to_path_buf(),
            None if given.is_absolute() => return path.to_owned(),
            None => Path::new(&self.working_dir).join(given),
        };
        let mut plain = PathBuf::new();
        for part in relative.components() {
            match part {
                Component::ParentDir if plain.pop() => {}
                Component::ParentDir => return path.to_owned(),
                Component::Normal(name) => plain.push(name),
                _ => {}
            }
        }
        plain.to_string_lossy().into_owned()
    }
}
