//! The sessions of an agent with its program: the one that it is in, and those that it has left.

use super::Agent;
use crate::providers::{Provider, SessionStart, Tokens};
use std::sync::Arc;

/// Sessions of earlier lives that are remembered; of more the oldest are taken for a person's.
const LEFT_MAX: usize = 200;

impl Agent {
    /// How its next life begins: in its session, if there is one that its program can go on with.
    pub(super) fn session_start(&self, provider: &dyn Provider) -> SessionStart {
        match self.session_id.clone().filter(|_| provider.info().capabilities.resume) {
            Some(id) => SessionStart::Resume { id, counted: self.session_counted },
            None => SessionStart::Fresh,
        }
    }

    /// Its next life begins in a session of its own.
    pub(super) fn leave_session(&mut self) {
        self.change_session(None);
        self.session_counted = Tokens::default();
        self.context_tokens = 0;
    }

    /// It is in this session from now on. One that it leaves is remembered as its own: a program's records do
    /// not tell whose they are.
    pub(super) fn change_session(&mut self, session: Option<String>) {
        if self.session_id == session {
            return;
        }
        let left = self.session_id.take();
        self.session_id = session;
        let Some(left) = left.filter(|left| !self.left_sessions.contains(left)) else { return };
        let sessions = Arc::make_mut(&mut self.left_sessions);
        if sessions.len() >= LEFT_MAX {
            sessions.remove(0);
        }
        sessions.push(left);
    }

    /// Whether it is or was in this session of this provider.
    pub(super) fn has_session(&self, provider: &str, session: &str) -> bool {
        let is_in = self.provider == provider && self.session_id.as_deref() == Some(session);
        is_in || self.left_sessions.iter().any(|left| left == session)
    }
}
