//! The life of a connection: ordered, standing, in trouble, over.
//!
//! **Invariant:** only the thread set that was ordered last is believed; what an earlier one reports is void.

use super::{CONNECT_WAIT, MAX_CONNECTING};
use super::{Gateway, GatewayId, Order, Report, Start, announce, credentials_of, inbox, notify, save, shown};
use crate::api::{Problem, Reply};
use crate::core::{CallId, Context, Durability, Effect, State as All, Timer};
use serde_json::json;
use std::sync::Arc;

pub(super) fn connect(all: &mut All, cx: &mut Context, call: CallId, target: &str) {
    let id = match all.health.writable().and_then(|()| prepare_connect(all, target)) {
        Ok(id) => id,
        Err(problem) => return cx.reply(call, problem),
    };
    if let Some(gateway) = Arc::make_mut(&mut all.gateways).edit(id) {
        gateway.wanted = true;
    }
    cx.audit("gateway.connect", &json!({"gatewayId": id}));
    save(cx, Durability::BeforeReply);
    let gateway = all.gateways.get(id);
    if let Some(gateway) = gateway.filter(|gateway| gateway.connected) {
        return cx.reply(call, Reply::ok(&shown(all, gateway)));
    }
    let gateways = Arc::make_mut(&mut all.gateways);
    gateways.connecting.entry(id).or_default().push(call);
    // One that has given up, or waits before its next try, begins anew at once.
    start(all, cx, id);
    Arc::make_mut(&mut all.timers).set(Timer::GatewayConnect(id), cx.now + CONNECT_WAIT);
}

fn prepare_connect(all: &All, target: &str) -> Result<GatewayId, Problem> {
    let gateway = all.gateways.find(target)?;
    if !gateway.enabled {
        let text = format!("gateway {} is not enabled; PATCH it with \"enabled\": true first", gateway.id);
        return Err(Problem::new(409, "gateway_disabled", text));
    }
    check_credentials(all, gateway)?;
    if all.gateways.connecting.get(&gateway.id).is_some_and(|calls| calls.len() >= MAX_CONNECTING) {
        let text = format!("{MAX_CONNECTING} callers wait for gateway {} already", gateway.id);
        return Err(Problem::new(429, "busy", text).with_header("Retry-After", "5"));
    }
    Ok(gateway.id)
}

/// Errors: 409 `missing_credentials`.
pub fn check_credentials(all: &All, gateway: &Gateway) -> Result<(), Problem> {
    let set = credentials_of(all, gateway);
    let missing: Vec<_> =
        gateway.id.kind.credentials().iter().filter(|key| !set.contains(key)).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!(
        "gateway {} has no {}; POST it to /api/gateways/{}/credentials",
        gateway.id,
        missing.join(" and no "),
        gateway.id
    );
    Err(Problem::new(409, "missing_credentials", text))
}

pub(super) fn disconnect(all: &mut All, cx: &mut Context, target: &str) -> Result<Reply, Problem> {
    let id = all.gateways.find(target)?.id;
    stop(all, cx, id);
    if let Some(gateway) = Arc::make_mut(&mut all.gateways).edit(id) {
        gateway.wanted = false;
        gateway.last_error = None;
    }
    cx.audit("gateway.disconnect", &json!({"gatewayId": id}));
    announce(all, cx);
    save(cx, Durability::BeforeReply);
    let gateway = all.gateways.find(target)?;
    Ok(Reply::ok(&shown(all, gateway)))
}

/// Orders a thread set to connect, in place of an earlier one.
pub(super) fn start(all: &mut All, cx: &mut Context, id: GatewayId) {
    let Some(gateway) = all.gateways.get(id).cloned() else { return };
    if check_credentials(all, &gateway).is_err() || all.health.stopping {
        return;
    }
    let sealed = |key: &&'static str| {
        let name = gateway.credential(key);
        let sealed = all.credentials.get(&name)?.sealed.clone();
        Some((*key, name, sealed))
    };
    let credentials = id.kind.credentials().iter().filter_map(sealed).collect();
    let gateways = Arc::make_mut(&mut all.gateways);
    gateways.next_run += 1;
    let run = gateways.next_run;
    if let Some(gateway) = gateways.edit(id) {
        gateway.run = run;
        gateway.running = true;
        gateway.connected = false;
    }
    let (api, cursor) = (gateway.api().trim_end_matches('/').to_owned(), gateway.cursor.clone());
    let order = Start { gateway: id, run, api, cursor, credentials };
    cx.push(Effect::Gateways(Order::Start(Box::new(order))));
    // What was taken and not begun is for the new thread set to do.
    for entry in all.gateways.inbox.iter().filter(|entry| entry.gateway == id && !entry.running) {
        cx.push(Effect::Gateways(Order::Run(Arc::clone(entry))));
    }
    if gateway.connected {
        announce(all, cx);
    }
}

/// Orders the thread set to end; who waits for its connection is answered.
pub(super) fn stop(all: &mut All, cx: &mut Context, id: GatewayId) {
    if let Some(gateway) = Arc::make_mut(&mut all.gateways).edit(id) {
        gateway.connected = false;
        gateway.running = false;
        gateway.run = 0;
    }
    cx.push(Effect::Gateways(Order::Stop(id)));
    answer_connects(all, cx, id);
}

/// Answers who waits for a connection with the record as it is: it stands, is over, or the platform takes its
/// time.
pub fn answer_connects(all: &mut All, cx: &mut Context, id: GatewayId) {
    Arc::make_mut(&mut all.timers).clear(Timer::GatewayConnect(id));
    let calls = Arc::make_mut(&mut all.gateways).connecting.remove(&id).unwrap_or_default();
    let Some(gateway) = all.gateways.get(id) else { return };
    let record = shown(all, gateway);
    for call in calls {
        cx.reply(call, Reply::ok(&record));
    }
}

/// The daemon has started: those that were connected connect again.
pub fn boot(all: &mut All, cx: &mut Context) {
    let due: Vec<GatewayId> = all.gateways.iter().filter(|g| g.is_due()).map(|g| g.id).collect();
    for id in due {
        start(all, cx, id);
    }
    inbox::own_up(all, cx);
}

/// Handles a report of a gateway's threads.
pub fn report(all: &mut All, cx: &mut Context, report: Report) {
    match report {
        Report::Connected { gateway, run, bot } => connected(all, cx, gateway, run, bot),
        Report::Trouble { gateway, run, error, fatal } => trouble(all, cx, gateway, run, error, fatal),
        Report::Refused { gateway, run, error, approval } => {
            let Some(record) = speaker(all, gateway, run) else { return };
            cx.push(Effect::Warn(format!("gateway {gateway}: a message was not sent: {error}")));
            record.last_error = Some(error);
            if let Some(approval) = approval {
                notify::unsent(all, cx.now, gateway, approval);
            }
        }
        Report::Healed { gateway, run } => {
            let Some(record) = speaker(all, gateway, run) else { return };
            record.last_error = None;
            record.unsent = 0;
            announce(all, cx);
            notify::send_missing_cards(all, cx, gateway);
        }
        Report::Moved { gateway, cursor } => {
            if let Some(record) = Arc::make_mut(&mut all.gateways).edit(gateway) {
                record.cursor = cursor;
                save(cx, Durability::Soon);
            }
        }
        Report::Sent { gateway, approval, place } => notify::sent(all, cx, gateway, approval, place),
    }
}

fn trouble(all: &mut All, cx: &mut Context, id: GatewayId, run: u64, error: String, fatal: bool) {
    let Some(record) = speaker(all, id, run) else { return };
    cx.push(Effect::Warn(format!("gateway {id}: {error}")));
    let was = std::mem::replace(&mut record.connected, false);
    let is_news = was || record.last_error.as_ref() != Some(&error);
    record.last_error = Some(error);
    record.running = !fatal;
    if is_news {
        announce(all, cx);
    }
    answer_connects(all, cx, id);
}

/// The record, if the thread set that speaks is its present one.
fn speaker(all: &mut All, id: GatewayId, run: u64) -> Option<&mut Gateway> {
    Arc::make_mut(&mut all.gateways).edit(id).filter(|gateway| gateway.run == run)
}

fn connected(all: &mut All, cx: &mut Context, id: GatewayId, run: u64, bot: String) {
    let Some(record) = speaker(all, id, run) else { return };
    let is_news = !record.connected || record.bot_username != bot;
    record.connected = true;
    record.last_error = None;
    record.bot_username = bot;
    if is_news {
        announce(all, cx);
        save(cx, Durability::Soon);
    }
    answer_connects(all, cx, id);
    notify::send_missing_cards(all, cx, id);
}
