//! Agents that ended with an earlier daemon, for example with the machine's power: whether they go on in
//! their sessions. `resumeOnStart` says so, and by default a person is asked once for all of them.

use crate::agents::{self, Status};
use crate::approvals::{self, Action, ApprovalId, NewApproval};
use crate::core::ids::AgentId;
use crate::core::{Context, Effect, Moment, State as All};
use crate::providers;
use crate::settings::ResumeOnStart;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The daemon has started and knows its providers.
pub fn started(all: &mut All, cx: &mut Context) {
    agents::go_on(all, cx);
    let agents = Arc::make_mut(&mut all.agents);
    let (unbegun, mut lost) = (agents.take_unbegun(), agents.take_lost());
    lost.extend(start_again(all, cx, unbegun));
    // What an earlier daemon asked, and nobody has answered, is asked along.
    let mut last_asked = BTreeMap::new();
    for approval in all.approvals.iter() {
        if let Action::ResumeAgents { agents, .. } = &approval.action {
            last_asked.extend(agents.iter().map(|id| (*id, approval.status)));
        }
    }
    let unanswered = last_asked.into_iter().filter(|(_, status)| *status == approvals::Status::Expired);
    lost.extend(unanswered.map(|(id, _)| id).filter(|id| !lost.contains(id)).collect::<Vec<_>>());
    let lost: Vec<AgentId> = lost.into_iter().filter(|id| may_go_on(all, *id)).collect();
    if lost.is_empty() {
        return;
    }
    match all.settings.config().resume_on_start {
        ResumeOnStart::Never => {}
        ResumeOnStart::Auto => go_on(all, cx, &lost),
        ResumeOnStart::Ask => {
            let named: Vec<(AgentId, &str)> = lost
                .iter()
                .filter_map(|id| all.agents.get(*id))
                .map(|agent| (agent.id, agent.name.as_str()))
                .collect();
            let action = Action::resume_agents(&named);
            if let Err(problem) = approvals::request(all, cx, NewApproval { agent: None, action }) {
                cx.push(Effect::Warn(format!("nobody is asked to resume what was interrupted: {problem}")));
            }
        }
    }
}

/// Orders to start that the last daemon had acknowledged and did not come to: nobody is asked about them.
/// Those that are not carried out.
fn start_again(all: &mut All, cx: &mut Context, unbegun: Vec<AgentId>) -> Vec<AgentId> {
    let config = all.settings.config();
    // Where agents end with their daemon, these have.
    if config.resume_on_start == ResumeOnStart::Never || config.keeper.orphan().is_zero() {
        return unbegun;
    }
    for id in unbegun {
        if let Err(problem) = agents::start_again(all, cx, id) {
            cx.push(Effect::Warn(format!("agent {id} is not started: {problem}")));
        }
    }
    Vec::new()
}

/// A person has decided.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    if let Moment::Decided { approval, approved: true } = *moment {
        decided(all, cx, approval);
    }
}

fn decided(all: &mut All, cx: &mut Context, approval: ApprovalId) {
    let Ok(found) = all.approvals.find(&approval.to_string()).cloned() else { return };
    let Action::ResumeAgents { agents, .. } = &found.action else { return };
    // Its one attempt is this.
    approvals::claim(all, cx, &approval.to_string(), None, &found.action);
    go_on(all, cx, agents);
}

fn go_on(all: &mut All, cx: &mut Context, lost: &[AgentId]) {
    for id in lost {
        // Somebody may have resumed or removed it meanwhile.
        if !may_go_on(all, *id) {
            continue;
        }
        if let Err(problem) = agents::resume(all, cx, &id.to_string(), None) {
            cx.push(Effect::Warn(format!("agent {id} is not resumed: {problem}")));
        }
    }
}

/// Whether its program has a session to go on in.
fn may_go_on(all: &All, id: AgentId) -> bool {
    all.agents.get(id).is_some_and(|agent| {
        let resumes = providers::by_id(&agent.provider).is_some_and(|one| one.info().capabilities.resume);
        agent.status == Status::Interrupted && agent.session_id.is_some() && resumes
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Event;
    use crate::providers::Activity;
    use crate::testing::Bench;
    use serde_json::{Value, json};
    use std::collections::HashSet;

    /// A daemon after the power was cut: three agents, of which one had no session yet.
    fn after_a_cut(policy: &str) -> Bench {
        let mut bench = Bench::new();
        let patch = json!({"resumeOnStart": policy});
        assert_eq!(bench.ask("PATCH", "/api/config", &patch).0, 200);
        for name in ["one", "two", "early"] {
            let id = bench.agent(name);
            if name != "early" {
                bench.does(id, vec![Activity::Session { id: format!("session-{name}"), model: None }]);
            }
        }
        cut(&mut bench);
        bench
    }

    /// The power is cut, and comes back.
    fn cut(bench: &mut Bench) {
        let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
        let stored = serde_json::from_slice(&stored).unwrap();
        let restored = agents::State::restore(stored, |_| "p".into(), &HashSet::new(), bench.now);
        bench.state.agents = Arc::new(restored);
        let stored = serde_json::to_vec(&bench.state.approvals.stored()).unwrap();
        approvals::restore(&mut bench.state, serde_json::from_slice(&stored).unwrap(), bench.now);
        bench.effects.clear();
        bench.with(started);
    }

    fn decide(bench: &mut Bench, id: &str, approved: bool) -> u16 {
        bench
            .ask(
                "POST",
                "/api/approvals",
                &json!({"id": id, "decision": if approved { "approve" } else { "reject" }}),
            )
            .0
    }

    fn states(bench: &mut Bench) -> Vec<String> {
        let (_, agents) = bench.ask("GET", "/api/agents", &Value::Null);
        let mut states: Vec<String> = agents
            .as_array()
            .unwrap()
            .iter()
            .map(|agent| format!("{} {}", agent["name"].as_str().unwrap(), agent["state"].as_str().unwrap()))
            .collect();
        states.sort();
        states
    }

    const GONE: [&str; 3] = ["early interrupted", "one interrupted", "two interrupted"];
    const BACK: [&str; 3] = ["early interrupted", "one starting", "two starting"];

    #[test]
    fn a_person_is_asked_once_for_all_whose_sessions_are_there() {
        let mut bench = after_a_cut("ask");
        assert_eq!(states(&mut bench), GONE);
        let (_, waiting) = bench.ask("GET", "/api/approvals", &Value::Null);
        let cards = waiting["pending"].as_array().unwrap();
        assert_eq!(cards.len(), 1, "{waiting}");
        let words = cards[0]["action"]["description"].as_str().unwrap();
        assert!(
            words.starts_with("resume 2 agents") && words.contains("one") && words.contains("two"),
            "{words}"
        );
        assert_eq!(decide(&mut bench, cards[0]["id"].as_str().unwrap(), true), 200);
        assert_eq!(states(&mut bench), BACK);
    }

    #[test]
    fn a_no_leaves_them_and_one_that_was_resumed_meanwhile_is_not_resumed_twice() {
        let mut bench = after_a_cut("ask");
        let id = bench.state.approvals.pending().next().unwrap().id;
        assert_eq!(bench.ask("POST", "/api/agents/one/resume", &Value::Null).0, 200);
        assert_eq!(decide(&mut bench, &id.to_string(), false), 200);
        assert_eq!(states(&mut bench), ["early interrupted", "one starting", "two interrupted"]);
        let mut bench = after_a_cut("ask");
        let id = bench.state.approvals.pending().next().unwrap().id;
        assert_eq!(bench.ask("POST", "/api/agents/one/resume", &Value::Null).0, 200);
        let one = bench.state.agents.find("one").unwrap().id;
        assert_eq!(decide(&mut bench, &id.to_string(), true), 200);
        assert_eq!(bench.state.agents.find("one").unwrap().id, one);
        assert_eq!(states(&mut bench), BACK);
    }

    /// A second cut before anybody has answered, and a third after one went on and ended again.
    #[test]
    fn a_question_that_nobody_has_answered_is_asked_again_as_one() {
        let mut bench = after_a_cut("ask");
        cut(&mut bench);
        let cards: Vec<_> = bench.state.approvals.pending().cloned().collect();
        assert_eq!(cards.len(), 1);
        assert!(cards[0].action.description().starts_with("resume 2 agents"), "{:?}", cards[0].action);
        assert_eq!(bench.ask("POST", "/api/agents/one/resume", &Value::Null).0, 200);
        let one = bench.state.agents.find("one").unwrap().id;
        bench.does(one, vec![Activity::Session { id: "session-one".into(), model: None }]);
        cut(&mut bench);
        let cards: Vec<_> = bench.state.approvals.pending().cloned().collect();
        assert_eq!(cards.len(), 1);
        assert!(cards[0].action.description().starts_with("resume 2 agents"), "{:?}", cards[0].action);
        let id = cards[0].id.to_string();
        assert_eq!(decide(&mut bench, &id, false), 200);
        cut(&mut bench);
        assert_eq!(bench.state.approvals.pending().count(), 0, "a no is a no");
    }

    #[test]
    fn never_is_silent_and_auto_asks_nobody() {
        for (policy, wanted) in [("never", GONE), ("auto", BACK)] {
            let mut bench = after_a_cut(policy);
            assert_eq!(states(&mut bench), wanted, "{policy}");
            assert_eq!(bench.state.approvals.pending().count(), 0, "{policy}");
            // Detection may come again.
            bench.with(started);
            assert_eq!(states(&mut bench), wanted, "{policy}");
            bench.apply(Event::Panicked);
        }
    }
}
