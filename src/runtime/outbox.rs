//! Where effects go. Nothing here blocks: each destination has a cap and says what happens at it.

use super::clock;
use super::state_thread::Core;
use super::store::Store;
use super::ws::{Hub, HubMessage};
use crate::agents::report::RunReport;
use crate::agents::worker::{RunSpec, Runs};
use crate::agents::worker_jobs::Jobs;
use crate::agents::{AgentChanges, RunOrder};
use crate::api::Reply;
use crate::core::ids::AgentId;
use crate::core::{Durability, Effect, Event, SOON, State};
use crate::integrations::worker::Servers;
use crate::providers;
use crossbeam_channel::Sender;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The threads that take orders. Fields in the order in which they end.
pub struct Outbox {
    /// Where refusals of the destinations go.
    pub core: Core,
    /// One-off jobs.
    pub jobs: Jobs,
    /// The runs of the agents.
    pub runs: Runs,
    /// The servers of the integrations.
    pub servers: Servers,
    /// WebSocket clients.
    pub hub: Hub,
    /// The disk; last, because all others may still have something to write.
    pub store: Store,
}

impl Outbox {
    /// Performs one effect. Replies and the exit are the state thread's own business.
    pub fn perform(&mut self, effect: Effect, state: &Arc<State>) {
        match effect {
            Effect::Put(document, Durability::Soon) => self.store.put(document, state, SOON),
            Effect::Put(document, Durability::BeforeReply) => self.store.put(document, state, Duration::ZERO),
            Effect::Remove(document) => self.store.remove(document),
            Effect::Append(journal, line) => self.store.append(journal, line),
            Effect::Notice(kind, body) => self.hub.send(HubMessage::publish(kind, body)),
            Effect::Output(batch) => self.hub.send(HubMessage::Output(batch)),
            Effect::StateChanged(changes) => self.hub.send(state_message(state, changes)),
            Effect::Run(agent, order) => self.order(agent, order),
            Effect::Job(job) => self.jobs.order(job),
            Effect::Integration(order) => self.servers.order(order),
            Effect::Log(lineage, agent, entry) => self.store.log(lineage, agent, clock::now(), entry),
            Effect::Warn(text) => log::warn!("{text}"),
            Effect::Reply(..) | Effect::Exit => {}
        }
    }

    /// Sends the answers when everything put before is on disk.
    pub fn commit(&mut self, state: &Arc<State>, answers: Vec<(Sender<Reply>, Reply)>) {
        self.store.commit(state, answers);
    }

    fn order(&mut self, agent: AgentId, order: RunOrder) {
        match order {
            RunOrder::Start(start) => {
                let Some(provider) = providers::by_id(start.provider) else { return };
                let (lineage, request) = (start.lineage, start.request);
                let spec = RunSpec { agent, lineage, request, provider, env_extra: start.env };
                if let Err(error) = self.runs.start(spec) {
                    self.core.control(Event::Run(agent, RunReport::StartFailed { error }));
                }
            }
            RunOrder::Say { message_id, text } => {
                if !self.runs.say(agent, message_id, text) {
                    self.core.control(Event::Run(agent, RunReport::Said { message_id, delivered: false }));
                }
            }
            RunOrder::Finish => self.runs.finish(agent),
            RunOrder::Stop => self.runs.stop(agent),
        }
    }
}

/// The full state is encoded only if some client wants it; the delta likewise.
fn state_message(state: &Arc<State>, changes: AgentChanges) -> HubMessage {
    let full_state = Arc::clone(state);
    let delta_state = Arc::clone(state);
    HubMessage::State {
        full: Box::new(move || state_body(&full_state)),
        delta: Box::new(move || {
            let changed: Vec<_> = changes
                .changed
                .iter()
                .filter_map(|id| delta_state.agents.get(*id))
                .map(|a| a.live_view())
                .collect();
            open(&json!({
                "type": "state:delta", "data": {"changed": changed, "removed": changes.removed},
            }))
        }),
    }
}

/// The `state` message without its closing brace.
pub fn state_body(state: &State) -> Vec<u8> {
    let agents: Vec<_> = state.agents.iter().map(|agent| agent.live_view()).collect();
    open(&json!({"type": "state", "data": agents}))
}

fn open(value: &serde_json::Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.pop();
    bytes
}
