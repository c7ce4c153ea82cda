//! The tokens by which agents are known where the kernel does not tell: from a container, or over another
//! network.
//!
//! A token is made of the agent's id and a key of the daemon, so none has to be kept, and it stays good over
//! restarts of the daemon.
//!
//! **Invariant:** the key leaves this file only into its own, `.svc/state/agent-tokens.key`.

use crate::core::ids::AgentId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::io;
use std::path::Path;
use svc_base::hex::{self, bytes_32};
use svc_sys::http::same_bytes;
use svc_sys::{regular, secrets};

/// The variable with an agent's own token.
pub use svc_sys::secrets::AGENT_TOKEN as VARIABLE;
/// The file of the key, below `.svc/`.
const KEY_FILE: &str = "state/agent-tokens.key";
/// What every token of an agent begins with; its id and a code follow.
const SIGN: &str = "svc-agent";

/// Makes and knows the tokens of agents.
pub struct AgentTokens {
    key: [u8; 32],
}

impl AgentTokens {
    /// With the key in `folder` (`.svc`), which is made where there is none. One that cannot be kept is good
    /// as long as this daemon.
    ///
    /// Errors: the system gives no randomness.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(KEY_FILE);
        if let Some(key) = regular::read_text(&path).ok().and_then(|text| bytes_32(text.trim())) {
            return Ok(Self { key });
        }
        let text = secrets::random()?;
        if let Err(error) = svc_sys::files::replace(&path, format!("{text}\n").as_bytes()) {
            log::warn!("the key of the agents' tokens cannot be kept: {error}; they end with this daemon");
        }
        bytes_32(&text).map(|key| Self { key }).ok_or_else(|| io::Error::other("a key of another length"))
    }

    /// The token of an agent.
    pub fn token_of(&self, agent: AgentId) -> String {
        // The key has the length of a digest; every length is taken.
        let code = Hmac::<Sha256>::new_from_slice(&self.key).map(|mut code| {
            code.update(format!("svc agent token 1\n{agent}").as_bytes());
            hex::encode(&code.finalize().into_bytes())
        });
        format!("{SIGN}.{agent}.{}", code.unwrap_or_default())
    }

    /// The agent whose token a text is; `None` for a text that is no token of any agent of this daemon.
    pub fn agent_of(&self, text: &str) -> Option<AgentId> {
        let agent = text.strip_prefix(SIGN)?.strip_prefix('.')?.split('.').next()?.parse().ok()?;
        same_bytes(text.as_bytes(), self.token_of(agent).as_bytes()).then_some(agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_one_agents_and_one_daemons() {
        let folder = std::env::temp_dir().join(format!("svc-agent-tokens-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let tokens = AgentTokens::open(&folder).unwrap();
        let mode = std::fs::metadata(folder.join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (agent, other) = (AgentId(7), AgentId(8));
        let token = tokens.token_of(agent);
        assert_eq!(tokens.agent_of(&token), Some(agent));
        assert_ne!(token, tokens.token_of(other));
        let again = AgentTokens::open(&folder).unwrap();
        assert_eq!(again.agent_of(&token), Some(agent), "it outlives the daemon");
        let id = agent.to_string();
        for wrong in [
            String::new(),
            token.to_uppercase(),
            format!("{token} "),
            format!("{token}0"),
            token[..token.len() - 1].to_owned(),
            token.replace(&id, &other.to_string()),
            format!("{SIGN}.{id}."),
            format!("{SIGN}.."),
        ] {
            assert_eq!(tokens.agent_of(&wrong), None, "{wrong}");
        }
        std::fs::remove_file(folder.join(KEY_FILE)).unwrap();
        assert_eq!(AgentTokens::open(&folder).unwrap().agent_of(&token), None, "another daemon's");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
