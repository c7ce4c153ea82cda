//! Notifications that chats get without asking.
//!
//! Everything that WebSocket clients are told is overheard here, so that a new event of any feature reaches
//! the chats without a word from that feature. Events are gathered for 3 seconds and told together;
//! approvals are told at once, one message each, with buttons.
//!
//! **Invariant:** one pending approval is one message in each chat; after the decision it says what was
//! decided. A daemon that is killed between a platform's taking a message and its own hearing of that finds
//! the message again where the platform can be asked for it (by [`Outgoing::key`]), and where somebody
//! clicks it.

use super::digest::describe;
use super::message::{Button, Look, Message, Place, Text, cut_middle};
use super::record::{Gateway, GatewayId, Preset};
use super::{Order, Outgoing, Why, save};
use crate::approvals::{Action, Approval, ApprovalId, Status};
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Context, Durability, Effect, Moment, Notice, State as All, Timer};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Events are gathered this long.
pub const COALESCE: Duration = Duration::from_secs(3);
/// Characters of a tool's arguments shown with an approval.
const MAX_PARAMS_CHARS: usize = 1_500;

/// An approval in a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    pub gateway: GatewayId,
    pub approval: ApprovalId,
    /// Where it stands; `None` while it is on its way.
    pub place: Option<Place>,
    /// Which thread set was to send it; what another one was to send may be lost.
    #[serde(skip)]
    pub run: u64,
}

/// Messages that ask for one approval through one gateway at most: each kill of the daemon may leave one.
const MAX_CARDS: usize = 8;
/// An approval that a platform did not take is sent again after this, and after twice as long each
/// further time.
const RETRY: Duration = Duration::from_secs(30);
/// The longest wait between two such tries.
const MAX_RETRY: Duration = Duration::from_secs(15 * 60);

/// Whether this gateway is told anything.
fn is_told(gateway: &Gateway) -> bool {
    gateway.is_due() && !gateway.chat_id.is_empty()
}

/// Looks at what the event that was just applied tells WebSocket clients.
pub fn overheard(all: &mut All, cx: &mut Context) {
    if all.gateways.cards.is_empty() && !all.gateways.iter().any(|gateway| is_told(gateway)) {
        return;
    }
    for notice in cx.notices() {
        match &*notice {
            Notice::ApprovalRequest { data } => send_cards(all, cx, data.id),
            Notice::ApprovalResolved { data } => settle(all, cx, data.id),
            other => {
                if let Some((preset, line)) = describe(all, other) {
                    tell(all, cx, preset, &line);
                }
            }
        }
    }
}

/// What no event tells: beginnings.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    let (id, what) = match *moment {
        Moment::Spawned(id) => (id, " was started"),
        Moment::Resumed { new, .. } => (new, " goes on"),
        _ => return,
    };
    let line = spawned_line(all, id, what);
    tell(all, cx, Preset::Lifecycle, &line);
}

fn spawned_line(all: &All, id: AgentId, what: &str) -> Text {
    let Some(agent) = all.agents.get(id) else { return Text::new() };
    let details = format!("{what} ({}, {})", agent.role, agent.provider);
    Text::new().bold(agent.name.clone()).plain(details)
}

/// Adds a line to what waits for each gateway that is told of such events.
fn tell(all: &mut All, cx: &Context, preset: Preset, line: &Text) {
    let told = |gateway: &&Arc<Gateway>| is_told(gateway) && gateway.preset >= preset;
    let ids: Vec<GatewayId> = all.gateways.iter().filter(told).map(|gateway| gateway.id).collect();
    for id in ids {
        Arc::make_mut(&mut all.gateways).digests.entry(id).or_default().add(line.clone());
        let timer = Timer::GatewayDigest(id);
        if !all.timers.is_set(timer) {
            Arc::make_mut(&mut all.timers).set(timer, cx.now + COALESCE);
        }
    }
}

/// What was gathered is told.
pub fn digest_due(all: &mut All, cx: &mut Context, id: GatewayId) {
    let digest = Arc::make_mut(&mut all.gateways).digests.remove(&id);
    let Some(gateway) = all.gateways.get(id).filter(|gateway| is_told(gateway)) else { return };
    let Some(text) = digest.and_then(super::digest::Digest::message) else { return };
    push(cx, outgoing(gateway, text.into(), Why::Notice));
}

/// A message to the gateway's chat.
fn outgoing(gateway: &Gateway, message: Message, why: Why) -> Outgoing {
    Outgoing::new(gateway.id, gateway.chat_id.clone(), message, why)
}

/// Has a message sent.
pub fn push(cx: &mut Context, outgoing: Outgoing) {
    cx.push(Effect::Gateways(Order::Send(Box::new(outgoing))));
}

/// Names the message that asks for this approval in the gateway's present chat.
fn card_key(gateway: &Gateway, approval: ApprovalId) -> String {
    // FNV-1a; only to tell a few chats of one bot apart.
    let words = format!("{} {} {}", gateway.id, gateway.chat_id, gateway.moves);
    let hash =
        words.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{approval}-{hash:08x}")
}

fn send_cards(all: &mut All, cx: &mut Context, id: ApprovalId) {
    let Ok(approval) = all.approvals.find(&id.to_string()).cloned() else { return };
    let ids: Vec<GatewayId> = all.gateways.iter().filter(|g| is_told(g)).map(|g| g.id).collect();
    for gateway in ids {
        send_card(all, cx, gateway, &approval, false);
    }
}

/// Sends a card. `again`: it may stand in the chat already.
fn send_card(all: &mut All, cx: &mut Context, id: GatewayId, approval: &Approval, again: bool) {
    let Some(gateway) = all.gateways.get(id).cloned() else { return };
    let key = card_key(&gateway, approval.id);
    let card = outgoing(&gateway, request(approval), Why::Approval(approval.id));
    push(cx, Outgoing { key, again, ..card });
    let cards = &mut Arc::make_mut(&mut all.gateways).cards;
    cards.retain(|card| card.gateway != id || card.approval != approval.id);
    cards.push(Card { gateway: id, approval: approval.id, place: None, run: gateway.run });
    save(cx, Durability::Soon);
}

/// The chat is another one: what stands in the old one asks no more, and is asked in the new one.
pub fn leave_chat(all: &mut All, cx: &mut Context, id: GatewayId) {
    let gateways = Arc::make_mut(&mut all.gateways);
    let (left, kept) = std::mem::take(&mut gateways.cards).into_iter().partition(|card| card.gateway == id);
    gateways.cards = kept;
    let left: Vec<Card> = left;
    for card in left {
        if let Some(place) = card.place {
            let text = Text::from("This approval is asked for in another chat now: ")
                .code(card.approval.to_string());
            cx.push(Effect::Gateways(Order::Edit(id, place, Box::new(text.into()))));
        }
    }
}

/// A connection stands, a chat was named, a platform takes messages again, or it is time to try: the
/// approvals that its chat does not show are sent.
pub fn send_missing_cards(all: &mut All, cx: &mut Context, id: GatewayId) {
    let Some(gateway) = all.gateways.get(id).filter(|gateway| is_told(gateway)).cloned() else { return };
    if !gateway.connected {
        // Its connection sends them.
        return;
    }
    let is_shown = |approval: ApprovalId| {
        all.gateways.cards.iter().any(|card| {
            card.gateway == id
                && card.approval == approval
                && (card.place.is_some() || card.run == gateway.run)
        })
    };
    let missing: Vec<Arc<Approval>> =
        all.approvals.pending().filter(|approval| !is_shown(approval.id)).cloned().collect();
    for approval in missing {
        send_card(all, cx, id, &approval, true);
    }
    let decided = |card: &&Card| {
        card.gateway == id && card.place.is_some() && all.approvals.pending().all(|p| p.id != card.approval)
    };
    let decided: Vec<ApprovalId> =
        all.gateways.cards.iter().filter(decided).map(|card| card.approval).collect();
    for approval in decided {
        settle(all, cx, approval);
    }
}

/// An approval stands in a chat now. It may have been decided on the way.
pub fn sent(all: &mut All, cx: &mut Context, id: GatewayId, approval: ApprovalId, place: Place) {
    let cards = &mut Arc::make_mut(&mut all.gateways).cards;
    let of_it = |card: &&mut Card| card.gateway == id && card.approval == approval;
    // One that has a place was found by a click meanwhile.
    let card = cards.iter_mut().filter(of_it).min_by_key(|card| card.place.is_some());
    let Some(card) = card else {
        // Decided while it was being sent; the message still asks.
        if let Ok(approval) = all.approvals.find(&approval.to_string()) {
            let message = outcome(approval).into();
            cx.push(Effect::Gateways(Order::Edit(id, place, Box::new(message))));
        }
        return;
    };
    if card.place.is_none() {
        card.place = Some(place);
    } else if card.place.as_ref() != Some(&place) {
        adopt(all, id, approval, place);
    }
    if let Some(gateway) = Arc::make_mut(&mut all.gateways).edit(id) {
        gateway.unsent = 0;
    }
    // At once: until it is on disk, the next daemon may ask a second time.
    save(cx, Durability::BeforeReply);
    if all.approvals.pending().all(|pending| pending.id != approval) {
        settle(all, cx, approval);
    }
}

/// Takes a message for one that asks for this approval; `false` when it is known, or there are too many.
fn adopt(all: &mut All, id: GatewayId, approval: ApprovalId, place: Place) -> bool {
    let cards = &mut Arc::make_mut(&mut all.gateways).cards;
    let of_it = || cards.iter().filter(|card| card.gateway == id && card.approval == approval);
    if of_it().count() >= MAX_CARDS || of_it().any(|card| card.place.as_ref() == Some(&place)) {
        return false;
    }
    cards.push(Card { gateway: id, approval, place: Some(place), run: 0 });
    true
}

/// Somebody has clicked a button below a message. If that asks for an approval, it is to show the decision,
/// also where nobody knew of it: who sent it may have been killed before it heard where it stands.
pub fn clicked(all: &mut All, cx: &mut Context, id: GatewayId, command: &str, place: Place) {
    let mut words = command.split_whitespace();
    let (Some("/approve" | "/reject"), Some(approval)) = (words.next(), words.next()) else { return };
    let Ok(approval) = all.approvals.find(approval).map(|approval| approval.id) else { return };
    if !adopt(all, id, approval, place) {
        return;
    }
    save(cx, Durability::Soon);
    if all.approvals.pending().all(|pending| pending.id != approval) {
        settle(all, cx, approval);
    }
}

/// An approval could not be sent: it stands in no chat, and is sent again in a while, when the platform
/// takes another message, or with the next connection.
pub fn unsent(all: &mut All, now: Time, id: GatewayId, approval: ApprovalId) {
    let gateways = Arc::make_mut(&mut all.gateways);
    let Some(card) = gateways.cards.iter_mut().find(|card| card.gateway == id && card.approval == approval)
    else {
        return;
    };
    // No thread set has this number.
    card.run = 0;
    let Some(gateway) = gateways.edit(id) else { return };
    let wait = RETRY.saturating_mul(1 << gateway.unsent.min(5)).min(MAX_RETRY);
    gateway.unsent = gateway.unsent.saturating_add(1);
    Arc::make_mut(&mut all.timers).set(Timer::GatewayCards(id), now + wait);
}

/// Shows the decision in every chat that asked for it.
fn settle(all: &mut All, cx: &mut Context, id: ApprovalId) {
    // What stands in a chat that we cannot reach now is changed when we can again.
    let reaches = |card: &Card| all.gateways.get(card.gateway).is_some_and(|gateway| gateway.running);
    let is_due = |card: &Card| card.approval == id && (reaches(card) || card.place.is_none());
    let (decided, kept): (Vec<Card>, Vec<Card>) = all.gateways.cards.iter().cloned().partition(is_due);
    if decided.is_empty() {
        return;
    }
    Arc::make_mut(&mut all.gateways).cards = kept;
    save(cx, Durability::Soon);
    let Ok(approval) = all.approvals.find(&id.to_string()).cloned() else { return };
    for card in decided {
        if let Some(place) = card.place {
            let message: Message = outcome(&approval).into();
            cx.push(Effect::Gateways(Order::Edit(card.gateway, place, Box::new(message))));
        }
    }
}

/// The message that asks for a decision.
pub fn request(approval: &Approval) -> Message {
    let text = Text::new()
        .bold("Approval needed")
        .plain("\n")
        .bold(approval.agent_name.clone())
        .plain(" wants to ")
        .said(approval.action.description())
        .plain("\n");
    let text = match params(&approval.action) {
        Some(params) => text.code(params).plain("\n"),
        None => text,
    };
    let id = approval.id.to_string();
    let buttons = vec![
        Button::new("Approve", format!("/approve {id}"), Look::Good),
        Button::new("Reject", format!("/reject {id}"), Look::Bad),
    ];
    Message { text: text.code(id), buttons }
}

fn params(action: &Action) -> Option<String> {
    let (Action::ToolPermission { params, .. } | Action::IntegrationExec { params, .. }) = action else {
        return None;
    };
    let text = params.as_str().map_or_else(|| params.to_string(), ToOwned::to_owned);
    (text != "{}" && text != "null").then(|| cut_middle(&text, MAX_PARAMS_CHARS))
}

/// What the message says after the decision.
pub fn outcome(approval: &Approval) -> Text {
    let word = match approval.status {
        Status::Pending => "Pending",
        Status::Approved => "Approved",
        Status::Rejected => "Rejected",
        Status::Expired => "Expired",
    };
    let by = approval.resolved_by.as_deref().filter(|_| approval.status != Status::Expired);
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let what = format!("{} wants to {}", approval.agent_name, approval.action.description());
    let text =
        Text::new().bold(word).said(&by).plain("\n").said(&what).plain("\n").code(approval.id.to_string());
    match approval.reason.as_deref() {
        Some(why) => text.plain("\n").said(why),
        None => text,
    }
}
