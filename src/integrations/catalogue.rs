//! The known integrations (`data/integrations.json`), and the definition that a custom one shares with them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use svc_base::sorted;

/// What an integration is for; by it the specification gates tools.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Repositories and their issues.
    SourceHosting,
    Payments,
    Email,
    Calendar,
    IssueTracker,
    Notes,
    HomeAutomation,
    /// Everything else, read-only and low-risk ones included.
    #[default]
    Other,
}

/// A variable of a server's environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
pub struct EnvKey {
    pub key: String,
    /// Whether the integration counts as configured only with it.
    #[serde(default)]
    pub required: bool,
}

/// How a token is had from an authorisation server (RFC 6749 with PKCE, RFC 7636). The `*Key` fields name
/// variables of the server's environment, under which the values are kept as credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct OAuth {
    /// Where the person consents.
    pub authorize_url: String,
    /// Where codes and refresh tokens become access tokens.
    pub token_url: String,
    /// What is asked for.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Variable of the client's id.
    pub client_id_key: String,
    /// Variable of the client's secret; public clients have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_key: Option<String>,
    /// Variable that receives the refresh token.
    pub refresh_token_key: String,
    /// Variable that receives the access token, for servers that do not refresh it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_token_key: Option<String>,
    /// Further parameters of the consent address.
    #[serde(default)]
    pub extra: BTreeMap<String, String>,
}

/// An integration as the catalogue or the person who added it describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// Unique.
    pub id: String,
    /// For people.
    pub name: String,
    /// What it is, in a sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// For the shelf in the catalogue.
    pub category: String,
    /// `stdio`; the only one so far.
    pub transport: String,
    /// What starts its server. `npx` in the catalogue: the package is installed instead of being fetched
    /// each time.
    pub command: String,
    pub args: Vec<String>,
    /// `api-key`, `oauth-google`, `google-autoauth`, `oauth`, `none`.
    pub auth_type: String,
    /// What its server needs to know.
    pub env: Vec<EnvKey>,
    /// Gated tools beyond those of its kind.
    pub gated_tools: Vec<String>,
    /// See [`Kind`].
    #[serde(default)]
    pub kind: Kind,
    /// The version of the package that was tried; the newest when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How to get a token, for those with a consent flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OAuth>,
}

impl Definition {
    /// The npm package behind `npx -y PACKAGE [ARGS..]`, and the arguments of its program.
    pub fn package(&self) -> Option<(&str, &[String])> {
        let (flag, rest) = self.args.split_first()?;
        let (package, args) = rest.split_first()?;
        (self.command == "npx" && flag == "-y").then_some((package.as_str(), args))
    }

    /// Every variable it may be given, those of its consent flow included.
    pub fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = self.env.iter().map(|env| env.key.as_str()).collect();
        if let Some(oauth) = &self.oauth {
            let optional = oauth.client_secret_key.iter().chain(&oauth.access_token_key);
            keys.extend([oauth.client_id_key.as_str(), oauth.refresh_token_key.as_str()]);
            keys.extend(optional.map(String::as_str));
        }
        sorted::up(&mut keys);
        keys.dedup();
        keys
    }
}

static CATALOGUE: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    // Compiled in, and read by a test.
    serde_json::from_slice(include_bytes!("../../data/integrations.json")).unwrap_or_default()
});

/// All known integrations, in the catalogue's order.
pub fn all() -> &'static [Definition] {
    &CATALOGUE
}

/// The known integration of this id.
pub fn find(id: &str) -> Option<&'static Definition> {
    all().iter().find(|definition| definition.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn decisions_11_the_catalogue_is_read_and_every_package_is_named() {
        assert_eq!(all().len(), 31);
        let ids: BTreeSet<_> = all().iter().map(|definition| &definition.id).collect();
        assert_eq!(ids.len(), all().len(), "an id stands twice");
        for definition in all() {
            assert!(definition.package().is_some(), "{}", definition.id);
            let says = &definition.description;
            assert!(says.len() > 20 && says.ends_with('.'), "{}: {says:?}", definition.id);
            assert_eq!(definition.transport, "stdio", "{}", definition.id);
            assert_eq!(
                definition.auth_type == "oauth-google",
                definition.oauth.is_some(),
                "{}",
                definition.id
            );
        }
        let stripe = find("stripe").unwrap().package().unwrap();
        assert_eq!(stripe, ("@stripe/agent-toolkit", ["mcp".to_owned()].as_slice()));
    }
}
