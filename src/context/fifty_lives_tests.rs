//! Fifty lives of all kinds, played by chance, with what must hold of each after every step.

use super::lives_tests::{
    HANDOFF, Told, agent, bench, command, failed_end, good_end, killed, model_call, obey, today, write,
};
use super::triggers::{CEILING_LIVES, COOLDOWN};
use crate::providers::Activity;
use crate::testing::Bench;
use serde_json::{Value, json};
use std::time::Duration;

/// What happens in a simulated life, by chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// A life that is played for many steps, with what must hold of it.
struct Play {
    bench: Bench,
    dice: Dice,
    told: Told,
    budget: Option<f64>,
    context: u64,
    /// Every word that somebody has said to it.
    words: Vec<String>,
    /// Starts that a person has wished for, a message that begins a next life included.
    wished: usize,
    /// A successor was begun and has not ended a turn well.
    is_handed_over: bool,
    /// It was stopped at its ceiling or for the budget's sake.
    was_stopped: bool,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let budget = (dice.below(2) == 0).then_some(1.5);
        let ceiling = if dice.below(3) == 0 { 60_000 } else { 5_000_000 };
        let mid_turn = if dice.below(2) == 0 { "warn" } else { "stop" };
        let mut bench = bench(&json!({
            "safety": {"dailyBudgetUsd": budget, "tokenCeilingPerAgent": ceiling},
            "budget": {"midTurn": mid_turn},
        }));
        agent(&mut bench, "one", "claude-sonnet-4-5");
        let lingers = dice.below(4) == 0;
        let (told, words) = (Told { lingers, ..Told::default() }, Vec::new());
        Self {
            bench,
            dice,
            told,
            budget,
            context: 20_000,
            words,
            wished: 1,
            is_handed_over: false,
            was_stopped: false,
        }
    }

    /// One step: what the agent, its program, a person or the daemon's end do.
    fn step(&mut self, n: u64) {
        let id = obey(&mut self.bench, "one", &mut self.told);
        let is_live = self.bench.state.agents.get(id).unwrap().status.is_live();
        match self.dice.below(48) {
            0..24 if is_live => {
                self.context = (self.context + self.dice.below(9_000)).min(195_000);
                self.bench.does(id, model_call(n, self.context));
            }
            24..28 if is_live => {
                let error = self.dice.below(2) == 0;
                self.bench.does(id, [write(n, "src/tax.rs"), command(n, "cargo test", error)].concat());
            }
            28 if is_live => self.bench.does(id, vec![Activity::TurnStarted, good_end()]),
            29 if is_live => self.bench.does(id, vec![Activity::TurnStarted, failed_end()]),
            30 if is_live => self.bench.exits(id, i32::from(self.dice.below(2) == 0)),
            31 => {
                let words = format!("word-{n}.");
                let deliver = if n.is_multiple_of(2) { "rotation" } else { "idle" };
                let body = json!({"message": words, "deliver": deliver});
                let (status, _) = self.bench.ask("POST", "/api/agents/one/instruct", &body);
                self.words.extend((status == 200).then_some(words));
                self.wished += 1;
            }
            32 if is_live => {
                drop(self.bench.wish("POST", "/api/agents/one/rotate", &Value::Null));
                self.wished += 1;
            }
            33..39 if !is_live => {
                self.bench.ask("POST", "/api/agents/one/resume", &json!({}));
                self.wished += 1;
            }
            39 if self.dice.below(4) == 0 => {
                killed(&mut self.bench);
            }
            _ => self.bench.pass(Duration::from_secs(self.dice.below(90))),
        }
        self.holds(n);
    }

    /// What must hold after every step.
    fn holds(&mut self, n: u64) {
        let before = self.told.starts.len();
        let id = obey(&mut self.bench, "one", &mut self.told);
        for (prompt, is_fresh) in &self.told.starts[before..] {
            self.context = if *is_fresh { 20_000 } else { self.context };
            let is_kept = !is_fresh || !self.is_handed_over || prompt.contains(HANDOFF);
            assert!(is_kept, "step {n}: the handoff is lost: {prompt}");
            self.is_handed_over |= prompt.contains(HANDOFF);
        }
        let agent = self.bench.state.agents.get(id).unwrap();
        if agent.last_turn.as_ref().is_some_and(|turn| !turn.is_error) {
            self.is_handed_over = false;
        }
        self.was_stopped |= agent.status_reason.code() == "limit-reached";
        if let Some(budget) = self.budget {
            let spent = today(&self.bench);
            let is_kept = spent <= budget + budget / 4.0;
            assert!(
                is_kept,
                "step {n}: {spent} {:?} {:?} {}",
                agent.status, agent.phase, agent.status_reason
            );
        }
        let unasked: Vec<_> = self.bench.state.agents.rotations().entries.iter().collect();
        let unasked: Vec<_> =
            unasked.into_iter().filter(|e| !matches!(&*e.reason, "manual" | "natural_compaction")).collect();
        let ceilings = unasked.iter().filter(|entry| entry.reason == "token_limit_exceeded").count();
        let days = 1 + usize::try_from((self.bench.now.0 - 1_767_225_600_000) / 86_400_000).unwrap();
        assert!(ceilings < CEILING_LIVES * days, "step {n}: {ceilings} at the ceiling");
        for pair in unasked.windows(2).filter(|pair| pair[1].reason != "token_limit_exceeded") {
            assert!(pair[1].timestamp.since(pair[0].timestamp) >= COOLDOWN, "step {n}: no cooldown");
        }
        let (starts, most) = (self.told.starts.len(), self.wished + unasked.len());
        assert!(starts <= most, "step {n}: a loop: {starts} starts, of which {most} had a reason");
    }

    /// Nothing that was said is nowhere.
    fn ends(&mut self) {
        let id = obey(&mut self.bench, "one", &mut self.told);
        let agent = self.bench.state.agents.get(id).unwrap();
        for words in &self.words {
            let was_told = self.told.said.iter().any(|said| said.contains(words))
                || self.told.starts.iter().any(|(prompt, _)| prompt.contains(words))
                || agent.queue.iter().any(|message| message.text.contains(&**words));
            assert!(was_told, "{words} is lost");
        }
    }
}

#[test]
fn in_fifty_lives_there_is_no_loop_no_lost_handoff_and_no_budget_outrun_by_more_than_a_turn() {
    let (mut rotations, mut stops) = (0, 0);
    for seed in 1..=50 {
        let mut play = Play::new(seed);
        println!("life {seed}: budget {:?}", play.budget);
        (0..200).for_each(|n| play.step(n));
        play.ends();
        rotations += play.bench.state.agents.rotations().total;
        stops += u32::from(play.was_stopped);
    }
    assert!(rotations > 50 && stops > 5, "they came to something: {rotations} rotations, {stops} stops");
}
