//! The sessions of an agent with its program: the one that it is in, and those that it has left.

use super::Agent;
use super::record::Opening;
use crate::providers::{self, Provider, SessionStart, Tokens};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Sessions of earlier lives that are remembered; of more the oldest are taken for a person's.
const LEFT_MAX: usize = 200;

impl Opening {
    /// That of one whose session is to be a copy of this one.
    pub fn copying(copies: Option<Copied>) -> Option<Arc<Self>> {
        copies.map(|copies| Arc::new(Self { copies: Some(copies), ..Self::default() }))
    }
}

/// A session that a new agent begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
pub struct Copied {
    pub session: String,
    /// What its program had counted for it: it counts on from there.
    pub counted: Tokens,
    /// It is a copy already, made for this agent, which goes on in it. Otherwise it is another agent's, as it
    /// is, and the program is to make a copy.
    #[serde(default)]
    pub is_own: bool,
}

impl Agent {
    /// How its next life begins: in its session, if there is one that its program can go on with.
    pub(super) fn session_start(&self, provider: &dyn Provider) -> SessionStart {
        match self.session_id.clone().filter(|_| provider.info().capabilities.resume) {
            Some(id) => SessionStart::Resume { id, counted: self.session_counted },
            None => match self.opening.as_ref().and_then(|opening| opening.copies.clone()) {
                Some(Copied { session: id, counted, is_own: true }) => SessionStart::Resume { id, counted },
                Some(Copied { session: id, counted, .. }) => SessionStart::Fork { id, counted },
                None => SessionStart::Fresh,
            },
        }
    }

    /// What its program is to be started with, kept until it runs.
    pub(super) fn opens_with(&mut self, prompt: String) {
        let opening = self.opening.as_deref().cloned().unwrap_or_default();
        self.opening = Some(Arc::new(Opening { prompt, ..opening }));
    }

    /// What a fork may begin with in another folder: a copy of its session, where its program can do that. In
    /// the middle of a turn there is none that is whole.
    pub fn copied(&self) -> Option<Copied> {
        let provider = providers::by_id(&self.provider)?;
        let may = provider.forks_elsewhere() && !self.turn_open && self.runner.is_none();
        let session = self.session_id.clone().filter(|_| may)?;
        Some(Copied { session, counted: self.session_counted, is_own: false })
    }

    /// Its sessions, the one that it is in first, then those that it has left, the last first.
    pub fn sessions(&self) -> impl Iterator<Item = &str> {
        let left = self.left_sessions.iter().rev();
        self.session_id.iter().chain(left).map(String::as_str)
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
