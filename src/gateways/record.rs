//! The record of a gateway, and how it is shown.

use crate::core::time::{Time, rfc3339};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use svc_base::choice::of_word;
use svc_base::recorded::Recorded;

/// A chat platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Bot API, long polling.
    Telegram,
    /// Gateway WebSocket and REST.
    Discord,
    /// Socket Mode and Web API.
    Slack,
}

impl Kind {
    /// All, in the order of the specification.
    pub const WORDS: [&str; 3] = ["telegram", "discord", "slack"];

    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
            Self::Discord => "discord",
            Self::Slack => "slack",
        }
    }

    /// As people write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Telegram => "Telegram",
            Self::Discord => "Discord",
            Self::Slack => "Slack",
        }
    }

    /// The keys of its credentials, all of them required.
    pub fn credentials(self) -> &'static [&'static str] {
        match self {
            Self::Telegram | Self::Discord => &["bot_token"],
            Self::Slack => &["bot_token", "app_token"],
        }
    }

    /// Where its Web API is, without a slash at the end.
    pub fn default_api(self) -> &'static str {
        match self {
            Self::Telegram => "https://api.telegram.org",
            Self::Discord => "https://discord.com/api/v10",
            Self::Slack => "https://slack.com/api",
        }
    }
}

/// Names a gateway: its type, and 6 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Recorded)]
pub struct GatewayId {
    pub kind: Kind,
    /// 24 random bits.
    pub number: u32,
}

/// The bits of [`GatewayId::number`].
pub const ID_MASK: u32 = 0x00ff_ffff;

impl fmt::Display for GatewayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:06x}", self.kind.word(), self.number)
    }
}

/// Text that names no gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAGateway;

impl FromStr for GatewayId {
    type Err = NotAGateway;

    fn from_str(text: &str) -> Result<Self, NotAGateway> {
        let (word, hex) = text.split_once('-').ok_or(NotAGateway)?;
        let kind = of_word(word).ok_or(NotAGateway)?;
        let is_hex = hex.len() == 6 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let number = u32::from_str_radix(hex, 16).ok().filter(|_| is_hex).ok_or(NotAGateway)?;
        Ok(Self { kind, number })
    }
}

impl Serialize for GatewayId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GatewayId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|_| serde::de::Error::custom("not the id of a gateway"))
    }
}

/// Which events a gateway is told of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    #[default]
    Critical,
    Lifecycle,
    /// Everything except raw output.
    All,
}

impl Preset {
    /// All words, the quietest first.
    pub const WORDS: [&str; 3] = ["critical", "lifecycle", "all"];
}

/// What people in the chat may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "kebab-case")]
pub enum CommandPermission {
    #[default]
    Full,
    /// Looking only: status, agents, teams, schedules, help.
    ReadOnly,
}

impl CommandPermission {
    /// All words.
    pub const WORDS: [&str; 2] = ["full", "read-only"];
}

/// The facts of one gateway. Stored as it is, but for what `serde(skip)` marks.
#[derive(Debug, Clone, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Gateway {
    /// Never changes.
    pub id: GatewayId,
    /// For people.
    pub display_name: String,
    /// Whether it may connect at all.
    pub enabled: bool,
    /// Whether a person wants it connected; what a restart of the daemon goes by.
    pub wanted: bool,
    /// Where notifications go; empty: nowhere.
    pub chat_id: String,
    /// Which events are told.
    pub preset: Preset,
    /// What people in the chat may do.
    pub command_permission: CommandPermission,
    /// The platform's ids of users; empty: everybody.
    pub allowed_users: Vec<String>,
    /// Where the platform's Web API is; its own when absent.
    pub api_base: Option<String>,
    /// The bot's name, once it has connected.
    pub bot_username: String,
    /// Up to where the platform's stream was taken: Telegram's last update, Discord's session.
    #[serde(default)]
    pub cursor: String,
    /// Keys of what was taken last, oldest first: what comes again is not done again.
    #[serde(default)]
    pub recent: VecDeque<String>,
    /// When it was made.
    #[serde(with = "rfc3339")]
    pub created_at: Time,
    /// How often it was given another chat: what was asked in one before is asked there anew.
    #[serde(default)]
    pub moves: u32,
    /// Whether its connection stands.
    #[serde(skip)]
    pub connected: bool,
    /// Why it does not, or what the platform refused last.
    #[serde(skip)]
    pub last_error: Option<String>,
    /// Which of its thread sets speaks; reports of an earlier one are void.
    #[serde(skip)]
    pub run: u64,
    /// Whether a thread set is at work.
    #[serde(skip)]
    pub running: bool,
    /// How often in a row an approval could not be sent; the next try waits the longer.
    #[serde(skip)]
    pub unsent: u32,
}

impl Gateway {
    /// Whether it is to be connected.
    pub fn is_due(&self) -> bool {
        self.enabled && self.wanted
    }

    /// Whether this user may give commands.
    pub fn allows(&self, user: &str) -> bool {
        self.allowed_users.is_empty() || self.allowed_users.iter().any(|allowed| allowed == user)
    }

    /// The vault's name of a credential.
    pub fn credential(&self, key: &str) -> String {
        format!("gateway/{}/{key}", self.id)
    }

    /// Where its Web API is.
    pub fn api(&self) -> &str {
        self.api_base.as_deref().unwrap_or_else(|| self.id.kind.default_api())
    }

    /// The record in lists: `allowedUsers` is a number.
    pub fn listed(&self, credentials: &[&str]) -> Value {
        let mut shown = self.shown(credentials);
        shown["allowedUsers"] = json!(self.allowed_users.len());
        shown
    }

    /// The record by itself: `allowedUsers` lists them.
    pub fn shown(&self, credentials: &[&str]) -> Value {
        json!({
            "id": self.id,
            "type": self.id.kind,
            "displayName": self.display_name,
            "connected": self.connected,
            "enabled": self.enabled,
            "chatId": self.chat_id,
            "notifications": {"preset": self.preset},
            "commandPermission": self.command_permission,
            "allowedUsers": self.allowed_users,
            "botUsername": self.bot_username,
            "apiBase": self.api_base,
            "credentials": credentials,
            "lastError": self.last_error,
            "createdAt": self.created_at.to_string(),
        })
    }
}
