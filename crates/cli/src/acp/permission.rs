//! What waits for a person, asked in the editor: approvals as requests for permission, questions as words
//! that the next prompt answers. What is decided elsewhere meanwhile is withdrawn here.

use super::super::render::one_line;
use super::super::session::complain;
use super::super::target::text;
use super::Door;
use super::seat::Seat;
use super::updates::{Scribe, kind};
use serde_json::{Value, json};
use std::sync::Arc;
use std::thread;

/// Requests that wait for the editor's answer; further approvals are left to the console and 'svc approvals'.
pub const MAX_ASKED: usize = 64;

const ALLOW: &str = "allow";
const REJECT: &str = "reject";

/// A request to the editor.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The approval's id, which also is that of the call in the editor.
    approval: String,
    session: String,
    /// The editor has answered; the daemon is being told.
    is_answered: bool,
}

/// Whether the editor was asked something in this session and the daemon does not know the answer yet.
pub fn is_open(door: &Door, seat: &Seat) -> bool {
    door.asked().values().any(|asked| asked.session == seat.id)
}

/// The turn is over: an answer that comes now is none, and what waits still is asked again in the next one.
pub fn forget(door: &Door, seat: &Seat) {
    seat.lock().asked.clear();
    door.asked().retain(|_, asked| asked.session != seat.id);
}

/// Asks for what is new among the pending approvals of this agent, and withdraws what is pending no more.
pub fn look(door: &Door, seat: &Seat, record: &Value, pending: &[Value], scribe: &mut Scribe) {
    let is_own = |one: &&Value| {
        text(one, "agentId") == text(record, "id") || text(one, "agentName") == text(record, "name")
    };
    let own: Vec<&Value> = pending.iter().filter(is_own).collect();
    let is_pending = |id: &str| own.iter().any(|one| text(one, "id") == id);
    {
        let mut inner = seat.lock();
        inner.asked.retain(|id| is_pending(id));
        inner.question = inner.question.take().filter(|id| is_pending(id));
    }
    withdraw(door, seat, is_pending);
    for one in own {
        let id = text(one, "id").to_owned();
        if seat.lock().asked.contains(&id) {
            continue;
        }
        if one["action"]["type"] == "question" {
            let words = format!("{}\n\n(Your next message is the answer.)", text(&one["action"], "question"));
            seat.lock().question = Some(id.clone());
            scribe.said(&words).into_iter().for_each(|update| door.wire.update(&seat.id, &update));
        } else {
            ask(door, seat, one);
        }
        seat.lock().asked.insert(id);
    }
}

fn ask(door: &Door, seat: &Seat, approval: &Value) {
    let id = text(approval, "id");
    let request = door.next_request();
    {
        let mut asked = door.asked();
        if asked.len() >= MAX_ASKED {
            complain(&format!("{MAX_ASKED} requests wait for the editor; decide {id} with 'svc approvals'"));
            return;
        }
        let entry = Asked { approval: id.to_owned(), session: seat.id.clone(), is_answered: false };
        asked.insert(request, entry);
    }
    let action = &approval["action"];
    let tool = match action["type"].as_str() {
        Some("scope_violation") => "write",
        _ => text(action, "tool"),
    };
    let mut call = json!({
        "toolCallId": id,
        "title": one_line(text(action, "description")),
        "kind": kind(tool, false),
        "status": "pending",
        "rawInput": action["params"],
    });
    if let Some(file) = action["filePath"].as_str() {
        call["locations"] = json!([{"path": seat.folder.join(file).to_string_lossy()}]);
    }
    let mut update = call.clone();
    update["sessionUpdate"] = "tool_call".into();
    door.wire.update(&seat.id, &update);
    let options = json!([
        {"optionId": ALLOW, "name": "Allow once", "kind": "allow_once"},
        {"optionId": REJECT, "name": "Reject", "kind": "reject_once"},
    ]);
    let params = json!({"sessionId": seat.id, "toolCall": call, "options": options});
    door.wire.ask(request, "session/request_permission", &params);
}

/// Somebody has decided in another place.
fn withdraw(door: &Door, seat: &Seat, is_pending: impl Fn(&str) -> bool) {
    let mut gone = Vec::new();
    door.asked().retain(|request, asked| {
        let is_over = asked.session == seat.id && !asked.is_answered && !is_pending(&asked.approval);
        if is_over {
            gone.push((*request, asked.approval.clone()));
        }
        !is_over
    });
    for (request, approval) in gone {
        door.wire.notify("$/cancel_request", &json!({"requestId": request}));
        over(door, &seat.id, &approval, "completed", "decided elsewhere");
    }
}

fn over(door: &Door, session: &str, call: &str, status: &str, words: &str) {
    let content = json!([{"type": "content", "content": {"type": "text", "text": words}}]);
    let update = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status, "content": content,
    });
    door.wire.update(session, &update);
}

/// The editor has answered a request.
pub fn answered(door: &Arc<Door>, message: &Value) {
    let known = message["id"].as_u64().and_then(|request| {
        let mut asked = door.asked();
        let asked = asked.get_mut(&request).filter(|asked| !asked.is_answered)?;
        asked.is_answered = true;
        Some((request, asked.clone()))
    });
    // One that was withdrawn is answered all the same.
    let Some((request, asked)) = known else { return };
    let outcome = &message["result"]["outcome"];
    let allow = match (outcome["outcome"].as_str(), outcome["optionId"].as_str()) {
        (Some("selected"), Some(ALLOW)) => Some(true),
        (Some("selected"), Some(REJECT)) => Some(false),
        _ => None,
    };
    let door = Arc::clone(door);
    // The daemon may take its time, and the editor has more to say.
    thread::spawn(move || {
        let Asked { approval, session, .. } = &asked;
        match allow.map(|allow| (allow, door.link.decide(approval, allow, ""))) {
            None => over(&door, session, approval, "failed", "left to 'svc approvals' and the console"),
            Some((true, Ok(_))) => over(&door, session, approval, "completed", "approved"),
            Some((false, Ok(_))) => over(&door, session, approval, "failed", "rejected"),
            Some((_, Err(broken))) => {
                let words = super::wire::Fault::from(broken).message;
                over(&door, session, approval, "failed", &words);
                // It waits still, as far as anybody knows: it is asked again.
                if let Some(seat) = door.seats().get(session) {
                    seat.lock().asked.remove(approval);
                }
            }
        }
        door.asked().remove(&request);
    });
}
