//! People in a chat, allowed ones and strangers, and the desk that does what they say.

use super::invariants::{Rule, ensure};
use super::machine::Machine;
use super::promises::{Claim, Key};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use svc::core::{Actor, CallId, Command, Response, State};
use svc::gateways::commands::{self, Plan};
use svc::gateways::{self, Entry, Errand, GatewayId, Heard, Receipt};

/// Who may give commands.
const FRIEND: &str = "u1";
/// Who may not.
const STRANGER: &str = "evil";

/// What the desks have in hand.
#[derive(Default)]
pub struct Chat {
    taking: BTreeMap<CallId, (GatewayId, String)>,
    /// Gateways that a person removes: what is taken meanwhile goes with them.
    leaving: BTreeSet<GatewayId>,
    beginning: BTreeMap<CallId, (Arc<Entry>, Command)>,
    doing: BTreeMap<CallId, u64>,
    /// Commands that were begun, ever.
    begun: BTreeSet<u64>,
    keys: u64,
}

impl Chat {
    /// The daemon is gone; what was begun stays begun.
    pub fn cut(&mut self) {
        *self = Self { begun: std::mem::take(&mut self.begun), keys: self.keys, ..Self::default() };
    }
}

impl Machine {
    fn some_gateway(&mut self) -> Option<GatewayId> {
        let ids: Vec<GatewayId> = self.core.state.gateways.iter().map(|gateway| gateway.id).collect();
        self.dice.pick(&ids)
    }

    /// A person makes, changes or removes a gateway.
    pub fn gateways(&mut self) {
        let says = |body: &Value, _: &State| {
            let id = body["id"].as_str().unwrap_or_default().to_owned();
            vec![(Key::Gateway(id), Some(body["chatId"].clone()))]
        };
        let Some(id) = self.some_gateway().filter(|_| self.dice.below(4) > 0) else {
            if self.core.state.gateways.iter().count() < 3 {
                let kind = self.dice.pick(&["telegram", "slack", "discord"]).unwrap();
                let told = json!({"preset": "all"});
                let body =
                    json!({"type": kind, "chatId": "7", "allowedUsers": [FRIEND], "notifications": told});
                let claim = Claim::Body(Vec::new(), Box::new(says));
                self.ask(&Actor::Operator, "POST", "/api/gateways", &body, claim);
            }
            return;
        };
        let (path, key) = (format!("/api/gateways/{id}"), Key::Gateway(id.to_string()));
        match self.dice.below(12) {
            0 => {
                let claim = Claim::Facts(vec![(key, None)]);
                self.promises.forget(|key| matches!(key, Key::Chat(_)));
                self.chat.leaving.insert(id);
                self.ask(&Actor::Operator, "DELETE", &path, &Value::Null, claim);
            }
            1 => {
                self.asks_for("POST", &format!("{path}/disconnect"), &Value::Null, Claim::Change);
            }
            2 | 3 => {
                let body = json!({"chatId": format!("{}", 7 + self.dice.below(2))});
                let claim = Claim::Body(vec![key], Box::new(says));
                self.ask(&Actor::Operator, "PATCH", &path, &body, claim);
            }
            _ => self.connects(id, &path),
        }
    }

    fn connects(&mut self, id: GatewayId, path: &str) {
        for key in id.kind.credentials() {
            let name = self.core.state.gateways.get(id).map(|gateway| gateway.credential(key));
            if name.is_some_and(|name| !self.core.state.credentials.has(&name)) {
                let sealed = serde_json::from_str("\"00ff00ff\"").unwrap();
                let (target, key) = (id.to_string(), (*key).to_owned());
                let set = gateways::Command::SetCredential { target, key, sealed };
                self.command(&Actor::Operator, Command::Gateways(set), Claim::Change);
            }
        }
        self.ask(&Actor::Operator, "POST", &format!("{path}/connect"), &Value::Null, Claim::Change);
    }

    /// Somebody says something in a chat, or a desk does what was said.
    pub fn chat_acts(&mut self) {
        if self.dice.below(2) == 0 {
            return self.desk_acts();
        }
        let Some(id) = self.some_gateway() else { return };
        let pending: Vec<String> =
            self.core.state.approvals.pending().map(|one| one.id.to_string()).collect();
        let agents: Vec<String> = self.core.state.agents.iter().map(|agent| agent.name.clone()).collect();
        let target = self.dice.pick(&agents).unwrap_or_default();
        let text = match (self.dice.below(6), self.dice.pick(&pending)) {
            (0..=2, Some(approval)) if self.dice.below(3) == 0 => format!("/reject {approval} no"),
            (0..=2, Some(approval)) => format!("/approve {approval}"),
            (3, _) => format!("/kill {target}"),
            (4, _) => format!("/rotate {target}"),
            _ => "/status".to_owned(),
        };
        let user = if self.dice.below(4) == 0 { STRANGER } else { FRIEND };
        // Now and then the platform says again what it has said.
        if self.dice.below(5) > 0 {
            self.chat.keys += 1;
        }
        let said_at = Some(self.core.now).filter(|_| self.dice.below(3) == 0);
        let heard = Heard {
            key: format!("k{}", self.chat.keys),
            user: user.into(),
            user_name: user.into(),
            chat: "7".into(),
            text,
            said_at,
            ..Heard::default()
        };
        let take = gateways::Command::Inbox(Errand::Take(id, Box::new(heard)));
        self.chat.taking.insert(self.coming_call(), (id, user.to_owned()));
        self.command(&Actor::Chat(user.into()), Command::Gateways(take), Claim::Change);
    }

    fn errand(&mut self, entry: &Entry, errand: Errand) {
        self.promises.forget(|key| *key == Key::Chat(entry.number));
        let actor = Actor::Chat(entry.user.as_str().into());
        self.command(&actor, Command::Gateways(gateways::Command::Inbox(errand)), Claim::Change);
    }

    fn desk_acts(&mut self) {
        let Some(entry) = self.programs.desk.pop_front() else { return };
        let state = &self.core.state;
        let is_open = |known: &&Arc<Entry>| known.number == entry.number && !known.running;
        let (true, Some(gateway)) =
            (state.gateways.inbox().iter().find(is_open).is_some(), state.gateways.get(entry.gateway))
        else {
            return;
        };
        ensure(Rule::StrangersNever, entry.user == FRIEND, || format!("{} says {}", entry.user, entry.text));
        match commands::plan(state, gateway, self.core.now, &entry.text) {
            Plan::Do(command) => {
                self.chat.beginning.insert(self.coming_call(), (Arc::clone(&entry), *command));
                self.errand(&entry, Errand::Begin(entry.number));
            }
            _ => self.errand(&entry, Errand::Done(entry.number)),
        }
    }

    /// An errand of a desk, or a command of its, is answered.
    pub fn chat_answered(&mut self, call: CallId, response: &Response) {
        if let Some((gateway, user)) = self.chat.taking.remove(&call)
            && let Response::Inbox(Receipt::Entry(number)) = response
        {
            ensure(Rule::StrangersNever, user == FRIEND, || format!("{user} was obeyed"));
            self.seen.count("commands of chats");
            if !self.chat.leaving.contains(&gateway) {
                self.promises.holds(Key::Chat(*number));
            }
        }
        if let Some(number) = self.chat.doing.remove(&call) {
            let entry = self.core.state.gateways.inbox().iter().find(|entry| entry.number == number).cloned();
            if let Some(entry) = entry {
                self.errand(&entry, Errand::Done(number));
            }
        }
        let Some((entry, command)) = self.chat.beginning.remove(&call) else { return };
        if !matches!(response, Response::Inbox(Receipt::Begun)) {
            return;
        }
        let is_first = self.chat.begun.insert(entry.number);
        ensure(Rule::ChatOnce, is_first, || format!("{} was begun twice", entry.text));
        let mut words = entry.text.split(' ');
        if let (Some("/approve"), Some(id)) = (words.next(), words.next()) {
            self.person_says("approve", id);
        }
        self.chat.doing.insert(self.coming_call(), entry.number);
        let actor = Actor::Chat(format!("telegram:{}", entry.user).into());
        self.command(&actor, command, Claim::Change);
    }
}
