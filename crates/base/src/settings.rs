//! Which settings there are, with their defaults and what each is for: for the daemon, whose rules stand in
//! its `settings`, for `svc config describe`, for docs/configuration.md, and for whoever mistypes a key.

use crate::nearest::nearest;
use serde_json::{Map, Value, json};

/// Where the skills marketplace of this machine listens; no daemon takes that port by itself.
pub const MARKET_PORT: u16 = 31416;

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Dotted, for example `safety.dailyBudgetUsd`.
    pub key: &'static str,
    /// Which values it takes, with their unit.
    pub takes: &'static str,
    /// What it does, as one sentence without its period.
    pub what: &'static str,
}

const fn key(key: &'static str, takes: &'static str, what: &'static str) -> Key {
    Key { key, takes, what }
}

/// All settings, in the order in which people read them.
pub const KEYS: &[Key] = &[
    key(
        "port",
        "whole number 0 to 65535; 0 takes any",
        "the port to listen on, or another that is free; takes effect at the next start",
    ),
    key(
        "host",
        "an IP address of this machine",
        "the address to listen on; beyond this machine it asks for .svc/token; takes effect at the next start",
    ),
    key(
        "door",
        "whole number 0 to 65535; 0 is none",
        "the port of the one door to all your projects, at 127.0.0.1, where each stands below /p/NAME/; takes effect at the next start",
    ),
    key(
        "maxAgents",
        "whole number 1 to 1000",
        "agents that live at the same time, at most; one place in five is kept for agents that people start",
    ),
    key(
        "rotationThreshold",
        "number 0.05 to 1, a share of the context",
        "how full a context is when its agent is rotated, to begin with; it adapts by provider and role",
    ),
    key("autoRotation", "true or false", "whether agents are rotated without being asked"),
    key(
        "askBeforeRotation",
        "true or false",
        "whether an agent that is to be replaced is asked for its last word, up to 30 seconds",
    ),
    key(
        "learnFromLogs",
        "true or false",
        "whether what failed and went well then, as an agent's log shows at its end, is told to agents with such a task",
    ),
    key("qcThreshold", "whole number 1 to 1000", "live agents at which quality control is announced"),
    key(
        "journalistInterval",
        "whole number 5 to 86400, in seconds",
        "time between two cycles of the journalist, who writes the project map and the decisions",
    ),
    key(
        "journalist.mode",
        "deterministic or model",
        "whether the journalist writes from what agents did, or with the cheapest model",
    ),
    key(
        "defaultProvider",
        "the id of a provider, see 'svc providers'",
        "which program runs an agent that names none",
    ),
    key(
        "defaultModel",
        "a model id of 1 to 200 characters, or auto",
        "the model of an agent of the default provider that names none; auto is the program's own, or what routing says",
    ),
    key(
        "routing",
        "off, suggest or on",
        "whether tier and model are suggested for an agent that names none; on suggests too: its choice would be too weak too often",
    ),
    key(
        "models",
        "an object of at most 200: by model id, contextWindow in tokens and price in dollars per million tokens; null forgets one",
        "windows and prices of models, where a person knows better than the tables",
    ),
    key(
        "env.pass",
        "a list of names of variables; a name may end with *",
        "variables of the daemon's own environment that every agent gets beside the usual ones",
    ),
    key(
        "env.set",
        "an object: a value by name; null keeps a variable away",
        "variables that every agent gets; no secrets, which belong in 'svc credentials'",
    ),
    key(
        "env.providers",
        "an object: by provider id, pass and set as above",
        "the same for the agents of one provider",
    ),
    key(
        "safety.tokenCeilingPerAgent",
        "whole number 1000 to 1000000000000, in tokens",
        "tokens that one life of an agent may use before it is rotated",
    ),
    key(
        "safety.roleMultipliers",
        "an object of roles with numbers above 0 up to 1000",
        "how many times the ceiling a role may use; a role that is not named has 1",
    ),
    key(
        "safety.dailyBudgetUsd",
        "number above 0 up to 1000000, in US dollars, or null",
        "what all agents may cost in a day; null is no budget",
    ),
    key(
        "safety.dailyBudgetAllUsd",
        "number above 0 up to 1000000, in US dollars, or null",
        "what the agents of all your projects together may cost in a day; in your own file only, read anew each time",
    ),
    key(
        "budget.midTurn",
        "warn or stop",
        "whether a spent daily budget only lets nothing new begin, or also stops agents at the next safe place in a turn",
    ),
    key(
        "onLimit",
        "ask, wait, handover or stop",
        "what an agent does at its provider's usage limit: wait for your word, go on when it opens, go on with another one, end",
    ),
    key(
        "governor.admit",
        "off, queue or refuse",
        "what becomes of an agent for which this machine has no room now: it is started all the same, waits its turn, is refused",
    ),
    key(
        "governor.reserveMegabytes",
        "whole number 0 to 16777216, in megabytes, or null",
        "memory that agents leave free for you; null is a sixteenth of it, 32 to 1024",
    ),
    key(
        "governor.agentMegabytes",
        "0, or a whole number 32 to 16777216, in megabytes",
        "memory that one agent may hold with all that it starts, before it alone is ended; 0 is as much as there is",
    ),
    key(
        "governor.putAway",
        "true or false",
        "whether agents that wait for you lose their processes while memory is short; the next word starts them again in their sessions",
    ),
    key(
        "governor.freeze",
        "true or false",
        "whether the newest agents stand still in mid-turn while memory is short and idle ones have given all; one always goes on",
    ),
    key(
        "limits.teams",
        "an object of at most 200: ask, wait, handover or stop by the name or id of a team",
        "the same for the agents of one team",
    ),
    key(
        "limits.handoverTo",
        "1 to 8 accounts or provider ids with commas between, or null",
        "the account or provider with which an agent goes on whose onLimit is handover",
    ),
    key(
        "limits.reserve",
        "whole number 1 to 99, in percent of each window, or null",
        "kept for you: where a provider tells that no more is left of a window, no agent begins a turn by itself until it opens",
    ),
    key(
        "limits.quietHours",
        "like 22:00-07:00, in the machine's time, or null",
        "when no agent goes on by itself after a limit",
    ),
    key(
        "limits.capTokens",
        "whole number 1000 to 1000000000000, in tokens, or null",
        "an agent that has used more goes on after a limit only when a person says so",
    ),
    key("limits.capUsd", "number above 0 up to 1000000, in US dollars, or null", "the same in dollars"),
    key(
        "limits.retrySeconds",
        "whole number 1 to 3600, in seconds",
        "the first delay where nobody tells when a limit opens, and after an overload; it doubles up to an hour",
    ),
    key(
        "notify.command",
        "a list of a program and its arguments, which may have {title}, {text}, {kind} and {url}; [] for none",
        "what tells your desktop that something waits, at most 5 times a minute; in your own file only, not a project's",
    ),
    key(
        "push.hosts",
        "a list of at most 16 host names; [] for any",
        "the push services that phones may be told by; in your own file only; takes effect at the next start",
    ),
    key(
        "push.own",
        "a list of at most 16 host names and IP addresses",
        "your own push services, which may be inside your network; no others may; in your own file only; takes effect at the next start",
    ),
    key(
        "push.certificate",
        "an absolute path of a PEM file; null for the well-known authorities",
        "who vouches for the push services of your own; in your own file only; takes effect at the next start",
    ),
    key(
        "push.contact",
        "a mailto: or https:// address; null for none",
        "how a push service reaches you; told to it with every message; in your own file only; takes effect at the next start",
    ),
    key(
        "telemetry.endpoint",
        "an https:// address, or http:// on this machine; null for none",
        "the OTLP endpoint that gets spans of what agents do; in your own file only; takes effect at the next start",
    ),
    key(
        "telemetry.content",
        "true or false",
        "whether spans hold what agents said and what tools were given and returned; in your own file only",
    ),
    key("skills.baseUrl", "an http:// or https:// address", "where the skills marketplace answers"),
    key(
        "enforcement",
        "advisory or kernel",
        "whether scopes are advice that is watched over, or held by the kernel (Linux)",
    ),
    key(
        "isolation.cage",
        "auto, require or off",
        "whether each agent gets a room of its own (Linux): auto where the system can make one, require always or not at all",
    ),
    key(
        "isolation.home",
        "overlay, read or hide",
        "what a room shows of the home folder: with a layer that is thrown away, to be read, or only what the program needs",
    ),
    key(
        "isolation.grants",
        "a list of at most 64: ssh-agent, docker, and paths that begin with / or ~/",
        "what rooms show beside: the person's ssh agent, the container engine, files and folders, which can be written",
    ),
    key(
        "resumeOnStart",
        "never, ask or auto",
        "whether agents that ended with the machine or a killed daemon go on in their sessions when the next one starts",
    ),
    key(
        "keeper.orphanMinutes",
        "whole number 0 to 10080, in minutes",
        "how long agents work on without a daemon, after it was killed, for example; 0 ends them at once",
    ),
    key(
        "keeper.nice",
        "whole number 0 to 19",
        "how far agents and all they start stand back behind other programs that want the processor, as for nice",
    ),
    key(
        "integrations.idleStopSeconds",
        "whole number 1 to 86400, in seconds",
        "time without a call after which the server of an integration is stopped",
    ),
    key(
        "record.enabled",
        "true or false",
        "whether the flight recorder keeps what happened last, for 'svc replay'; takes effect at the next start",
    ),
    key(
        "record.maxMegabytes",
        "whole number 8 to 10240, in MiB",
        "what the flight recorder takes of the disk, at most; the oldest goes first; takes effect at the next start",
    ),
    key(
        "snapshots.enabled",
        "true or false",
        "whether the folder of an agent is kept before and after each of its turns, for 'svc undo'; for runs that start from now on",
    ),
    key(
        "snapshots.turns",
        "whole number 1 to 10000",
        "turns of each agent whose snapshots are kept; older ones go",
    ),
    key(
        "snapshots.maxMegabytes",
        "whole number 16 to 1048576, in MiB",
        "what snapshots take of the disk; beyond it the older half of all turns goes",
    ),
];

/// The setting of this dotted key.
pub fn find(key: &str) -> Option<&'static Key> {
    KEYS.iter().find(|one| one.key == key)
}

/// The setting that a mistyped key may mean: near to it, or the same without its group.
pub fn meant(key: &str) -> Option<&'static str> {
    let all = || KEYS.iter().map(|one| one.key);
    let name = |dotted: &str| dotted.rsplit('.').next().unwrap_or_default().to_lowercase();
    nearest(key, all()).or_else(|| all().find(|one| name(one) == name(key)))
}

/// The default configuration as JSON, in the order people read it.
pub fn defaults() -> Map<String, Value> {
    let value = json!({
        "port": 31415,
        "host": "127.0.0.1",
        "door": 31415,
        "maxAgents": 10,
        "rotationThreshold": 0.75,
        "autoRotation": true,
        "askBeforeRotation": true,
        "learnFromLogs": true,
        "qcThreshold": 4,
        "journalistInterval": 120,
        "journalist": {"mode": "deterministic"},
        "defaultProvider": "claude-code",
        "defaultModel": "auto",
        "routing": "off",
        "models": {},
        "safety": {
            "tokenCeilingPerAgent": 5_000_000,
            "roleMultipliers": {"planner": 10.0, "analyst": 5.0, "fullstack": 4.0, "security": 4.0},
            "dailyBudgetUsd": null, "dailyBudgetAllUsd": null,
        },
        "budget": {"midTurn": "warn"},
        "onLimit": "ask",
        "limits": {
            "teams": {}, "handoverTo": null, "reserve": null, "quietHours": null, "capTokens": null, "capUsd": null,
            "retrySeconds": 60,
        },
        "governor": {"admit": "queue", "reserveMegabytes": null, "agentMegabytes": 0, "putAway": true, "freeze": true},
        "notify": {"command": []},
        "push": {"hosts": [], "own": [], "certificate": null, "contact": null},
        "telemetry": {"endpoint": null, "content": false},
        "skills": {"baseUrl": format!("http://127.0.0.1:{MARKET_PORT}/api/v1")},
        "enforcement": "advisory",
        "isolation": {"cage": "auto", "home": "overlay", "grants": []},
        "resumeOnStart": "ask",
        "keeper": {"orphanMinutes": 30, "nice": 5},
        "integrations": {"idleStopSeconds": 600},
        "record": {"enabled": true, "maxMegabytes": 64},
        "snapshots": {"enabled": true, "turns": 100, "maxMegabytes": 2048},
        "env": {"pass": [], "set": {}, "providers": {}},
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
