//! How many more agents fit, with the numbers behind it.

use super::{Expected, MIB, Machine, Memory, expected, megabytes, memory, pressed};
use crate::core::State as All;
use crate::core::time::Time;
use crate::settings::Admit;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use svc_base::sorted::{self, Gather};

/// Kinds that are shown.
const MAX_SHOWN: usize = 50;

/// `GET /api/capacity`: for agents of this provider, or of the usual one, and of this role.
pub fn capacity(
    all: &All,
    now: Time,
    machine: &Machine,
    provider: Option<&str>,
    role: Option<&str>,
) -> Value {
    let config = all.settings.config();
    let provider = provider.unwrap_or(&config.default_provider);
    let memory = memory(all, now, machine);
    let live = all.agents.live().count();
    let places = config.max_agents.saturating_sub(live);
    let pressure = pressed(machine, memory.in_turn).filter(|_| config.governor.admit != Admit::Off);
    let is_off = config.governor.admit == Admit::Off || machine.memory_total == 0;
    let fit = |expected: Expected| match () {
        () if is_off => places,
        // One always may run.
        () if memory.running + memory.running_elsewhere == 0 => {
            places.min(by_memory(&memory, expected).max(1))
        }
        () if pressure.is_some() => 0,
        () => places.min(by_memory(&memory, expected)),
    };
    let asked = expected(all, now, provider, role.unwrap_or_default());
    let known = all.governor.kinds.keys().map(|(provider, role)| (&**provider, &**role));
    let running = all.agents.live().filter(|agent| agent.has_process());
    let kinds: BTreeSet<(&str, &str)> =
        known.chain(running.map(|agent| (agent.provider.as_str(), agent.role.as_str()))).gather();
    let kinds: Vec<Value> = kinds
        .into_iter()
        .take(MAX_SHOWN)
        .map(|(provider, role)| {
            let expected = expected(all, now, provider, role);
            let mut shown = shown(expected, fit(expected));
            shown["provider"] = json!(provider);
            shown["role"] = json!(role);
            shown
        })
        .collect();
    let mut answer = shown(asked, fit(asked));
    answer["provider"] = json!(provider);
    answer["role"] = json!(role);
    answer["why"] = json!(pressure);
    answer["admit"] = json!(config.governor.admit);
    answer["places"] = json!({"live": live, "max": config.max_agents});
    answer["memory"] = memory_shown(machine, &memory, config.governor.ceiling());
    answer["pressure"] = pressure_shown(machine);
    answer["kinds"] = json!(kinds);
    answer["agents"] = agents_shown(all);
    answer["queued"] = queued_shown(all);
    for (which, is_still) in [("putAway", false), ("frozen", true)] {
        let named = all
            .agents
            .live()
            .filter(|agent| if is_still { agent.stands_still() } else { agent.is_put_away() });
        answer[which] = named.map(|agent| json!({"agentId": agent.id, "name": agent.name})).collect();
    }
    answer
}

/// How many more of a kind fit into the memory that is left.
fn by_memory(memory: &Memory, expected: Expected) -> usize {
    usize::try_from(memory.left / expected.bytes.max(MIB)).unwrap_or(usize::MAX)
}

fn shown(expected: Expected, fit: usize) -> Value {
    json!({
        "more": fit,
        "eachMegabytes": megabytes(expected.bytes),
        "basis": expected.basis,
        "runs": expected.runs,
    })
}

fn memory_shown(machine: &Machine, memory: &Memory, ceiling: u64) -> Value {
    json!({
        "totalMegabytes": machine.memory_total / MIB,
        "freeMegabytes": machine.memory_free / MIB,
        "promisedMegabytes": megabytes(memory.promised),
        "elsewhereMegabytes": megabytes(memory.elsewhere),
        "reserveMegabytes": megabytes(memory.reserve),
        "leftMegabytes": memory.left / MIB,
        "agentMegabytes": Some(ceiling / MIB).filter(|most| *most > 0),
        "limitedBy": if machine.is_confined { "cgroup" } else { "machine" },
    })
}

fn pressure_shown(machine: &Machine) -> Value {
    let percent = |share: Option<u32>| share.map(|share| f64::from(share) / 100.0);
    let is_told = machine.memory_full.is_some() || machine.cpu_some.is_some();
    json!({
        "source": if is_told { "psi" } else { "load" },
        "memoryFullPercent": percent(machine.memory_full),
        "memorySomePercent": percent(machine.memory_some),
        "cpuSomePercent": percent(machine.cpu_some),
        "ioFullPercent": percent(machine.io_full),
        "load": f64::from(machine.load) / 100.0,
        "cpus": machine.cpus,
    })
}

fn agents_shown(all: &All) -> Value {
    let running = all.agents.live().filter(|agent| agent.has_process());
    let shown = running.filter_map(|agent| {
        let own = all.governor.use_of(agent.id)?;
        Some(json!({
            "agentId": agent.id, "name": agent.name,
            "megabytes": megabytes(own.now), "peakMegabytes": megabytes(own.peak),
        }))
    });
    shown.collect()
}

fn queued_shown(all: &All) -> Value {
    let mut waiting: Vec<_> =
        all.agents.live().filter_map(|agent| Some((agent.place_in_queue()?, agent))).collect();
    sorted::by_key(&mut waiting, |(place, _)| *place);
    let shown = waiting.into_iter().map(|(_, agent)| {
        json!({
            "agentId": agent.id, "name": agent.name, "priority": agent.priority,
            "since": agent.status_since.to_string(), "why": agent.status_reason.to_string(),
        })
    });
    shown.collect()
}
