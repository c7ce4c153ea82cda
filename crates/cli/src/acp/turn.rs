//! A prompt, from the agent that hears it to the end of its turn.
//!
//! What the agent does is read from its log, a few times a second, and its record tells when it is done: a
//! daemon that is killed and started again in the meantime costs a pause and no word.

use super::super::target::{is_live, state, text};
use super::Door;
use super::link::{Broken, DAEMON_PATIENCE};
use super::permission;
use super::seat::{Seat, path};
use super::updates::Scribe;
use super::wire::Fault;
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};
use svc_providers::acp::{OUT_OF_REQUESTS, OUT_OF_TOKENS, REFUSED};

/// Between two looks at a turn.
const POLL: Duration = Duration::from_millis(150);
/// Entries of a log that are told again when a session is loaded: the latest.
pub const REPLAYED_ENTRIES: u64 = 5_000;
/// Characters of an answer to a question; the daemon takes as many.
const MAX_ANSWER_CHARS: usize = 2_000;

struct Turn<'a> {
    door: &'a Door,
    seat: &'a Seat,
    scribe: Scribe,
    agent: String,
    /// The last entry that was told.
    last: u64,
    /// The agent is at work, as far as its log tells.
    is_at_work: bool,
    /// How its last turn ended.
    end: Value,
    /// The agent was ended for the editor.
    is_stopped: bool,
}

/// What one look at a turn has shown.
enum Seen {
    More,
    Nothing,
    Over(Result<&'static str, Fault>),
}

/// Says something to the agent of a session, tells what it does, and answers why it stopped.
pub fn take(door: &Door, seat: &Seat, words: &str) -> Result<Value, Fault> {
    let (agent, last) = deliver(door, seat, words)?;
    let mut turn = Turn {
        door,
        seat,
        scribe: Scribe::new(&seat.folder.to_string_lossy(), false),
        agent,
        last,
        is_at_work: true,
        end: Value::Null,
        is_stopped: false,
    };
    let stop = turn.follow();
    permission::forget(door, seat);
    stop.map(|reason| json!({"stopReason": reason}))
}

/// Gives the words to the agent; its id, and the entry of its log behind which they stand.
fn deliver(door: &Door, seat: &Seat, words: &str) -> Result<(String, u64), Fault> {
    let (known, question) = {
        let inner = seat.lock();
        (inner.agent.clone(), inner.question.clone())
    };
    let Some(agent) = known else {
        let started = door.link.post("/api/agents", &seat.spawn_body(&door.wish, words));
        // Where the answer was lost it may have been started all the same, with these words.
        let record = started.or_else(|broken| match door.link.get(&path(&seat.id, "")) {
            Ok(record) if text(&record, "prompt").trim() == words.trim() => Ok(record),
            _ => Err(broken),
        })?;
        let id = text(&record, "id").to_owned();
        seat.lock().agent = Some(id.clone());
        return Ok((id, 0));
    };
    let last = end_of_log(door, &agent)?;
    if let Some(question) = question {
        if words.chars().count() > MAX_ANSWER_CHARS {
            let limit = format!("prompt: an answer has at most {MAX_ANSWER_CHARS} characters; shorten it");
            return Err(Fault::parameter(limit));
        }
        let answer = door.link.decide(&question, true, words);
        seat.lock().question = None;
        match answer {
            Ok(_) => return Ok((agent, last)),
            // It was answered elsewhere: these words are for the agent all the same.
            Err(Broken::Refused { status: 404 | 409, .. }) => {}
            Err(broken) => return Err(broken.into()),
        }
    }
    let body = json!({"message": words, "deliver": "auto"});
    door.link.post(&path(&agent, "/instruct"), &body)?;
    Ok((agent, last))
}

fn end_of_log(door: &Door, agent: &str) -> Result<u64, Fault> {
    let answer = door.link.get(&path(agent, "/log?tail=1"))?;
    Ok(answer["entries"][0]["n"].as_u64().unwrap_or(0))
}

/// Tells the editor what stands in the log of an agent.
pub fn replay(door: &Door, seat: &Seat, record: &Value) -> Result<(), Fault> {
    let agent = text(record, "id");
    let end = end_of_log(door, agent)?;
    let mut last = end.saturating_sub(REPLAYED_ENTRIES);
    let mut scribe = Scribe::new(&seat.folder.to_string_lossy(), true);
    let task = text(record, "prompt").trim();
    while last < end {
        let mut answer = door.link.get(&path(agent, &format!("/log?since={last}")))?;
        let entries = entries(&mut answer);
        if entries.is_empty() {
            break;
        }
        for mut entry in entries {
            last = entry["n"].as_u64().unwrap_or(last + 1).max(last);
            // The first message has a briefing before the task, which the person has not written.
            if entry["type"] == "user" && !task.is_empty() && text(&entry, "text").trim_end().ends_with(task)
            {
                entry["text"] = task.into();
            }
            if let Some(update) = scribe.updates(&entry) {
                door.wire.update(&seat.id, &update);
            }
        }
    }
    Ok(())
}

fn entries(answer: &mut Value) -> Vec<Value> {
    match answer["entries"].take() {
        Value::Array(entries) => entries,
        _ => Vec::new(),
    }
}

impl Turn<'_> {
    fn follow(&mut self) -> Result<&'static str, Fault> {
        let mut gone: Option<Instant> = None;
        loop {
            match self.look() {
                Ok(Seen::Over(stop)) => return stop,
                Ok(Seen::More) => gone = None,
                Ok(Seen::Nothing) => {
                    gone = None;
                    thread::sleep(POLL);
                }
                Err(Broken::Gone(_)) if gone.is_none_or(|since| since.elapsed() < DAEMON_PATIENCE) => {
                    gone = gone.or_else(|| Some(Instant::now()));
                    thread::sleep(POLL);
                }
                Err(broken) => return Err(broken.into()),
            }
        }
    }

    fn look(&mut self) -> Result<Seen, Broken> {
        if self.seat.is_cancelled() && !self.is_stopped {
            self.stop()?;
        }
        // The order matters: what an agent wrote before it was seen to have ended is in the log by then.
        let record = self.door.link.get(&path(&self.agent, ""))?;
        if self.read()? {
            return Ok(Seen::More);
        }
        let pending = self.door.link.pending()?;
        permission::look(self.door, self.seat, &record, &pending, &mut self.scribe);
        Ok(self.verdict(&record).map_or(Seen::Nothing, Seen::Over))
    }

    /// Ends the run of the agent: its session stays, and the next prompt goes on with it.
    fn stop(&mut self) -> Result<(), Broken> {
        let record = self.door.link.get(&path(&self.agent, ""))?;
        // The same call removes the record of one that has ended.
        if is_live(&record) {
            self.door.link.end(&path(&self.agent, ""))?;
        }
        self.is_stopped = true;
        Ok(())
    }

    /// Tells what is new in the log; whether there was anything.
    fn read(&mut self) -> Result<bool, Broken> {
        let mut answer = self.door.link.get(&path(&self.agent, &format!("/log?since={}", self.last)))?;
        let entries = entries(&mut answer);
        for entry in &entries {
            self.last = entry["n"].as_u64().unwrap_or(self.last).max(self.last);
            match text(entry, "type") {
                "turn-ended" => {
                    self.is_at_work = false;
                    self.end = entry.clone();
                }
                "user" | "turn-started" | "text" | "tool-started" => self.is_at_work = true,
                _ => {}
            }
            if let Some(update) = self.scribe.updates(entry) {
                self.door.wire.update(&self.seat.id, &update);
            }
        }
        Ok(!entries.is_empty())
    }

    /// Why the turn is over; `None` while it is not.
    fn verdict(&self, record: &Value) -> Option<Result<&'static str, Fault>> {
        let why = || super::super::render::one_line(text(record, "statusReason"));
        if self.is_stopped {
            return Some(Ok("cancelled"));
        }
        if !self.is_at_work && self.seat.lock().question.is_some() {
            return Some(Ok("end_turn"));
        }
        if is_live(record) {
            let is_held = state(record) == "limited" && !self.is_at_work;
            return is_held.then(|| Err(Fault::failed(format!("{}; the agent is held until then", why()))));
        }
        match state(record) {
            "killed" => Some(Ok("cancelled")),
            // What a person decides may start it again.
            "completed" if permission::is_open(self.door, self.seat) => None,
            _ if self.end["isError"] == true => Some(stop_reason(text(&self.end, "error"))),
            "completed" => Some(Ok("end_turn")),
            other => Some(Err(Fault::failed(format!("the agent is {other}: {}", why())))),
        }
    }
}

/// The protocol's word for a turn that failed, where it has one.
fn stop_reason(error: &str) -> Result<&'static str, Fault> {
    match error {
        REFUSED => Ok("refusal"),
        OUT_OF_TOKENS => Ok("max_tokens"),
        OUT_OF_REQUESTS => Ok("max_turn_requests"),
        "" => Err(Fault::failed("the turn failed; see 'svc logs'")),
        words => Err(Fault::failed(super::super::render::one_line(words))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_provider_said_of_a_failure_is_told_in_the_words_of_the_protocol() {
        for (error, reason) in
            [(REFUSED, "refusal"), (OUT_OF_TOKENS, "max_tokens"), (OUT_OF_REQUESTS, "max_turn_requests")]
        {
            assert_eq!(stop_reason(error), Ok(reason));
        }
        assert_eq!(stop_reason("out\nof credit").unwrap_err().message, "out of credit");
    }
}
