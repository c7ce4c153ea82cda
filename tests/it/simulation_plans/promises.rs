//! The promises, looked at after every event and at the end.

use super::*;

impl Simulation {
    /// The mark at the beginning of an agent's task, which tells whose it is.
    fn mark(&self, id: AgentId) -> Option<String> {
        let agent = self.world.state.agents.get(id)?;
        agent.prompt.split(' ').next().filter(|mark| mark.starts_with('[')).map(ToOwned::to_owned)
    }

    /// A process was ordered: of a member once, in its turn, with what it has to know.
    pub(super) fn check_start(&mut self, id: AgentId, lineage: LineageId, prompt: &str) {
        let seed = self.seed;
        if let Some(mark) = self.mark(id).filter(|mark| mark.starts_with("[L")) {
            let lineages = self.marks.entry(mark.clone()).or_default();
            lineages.insert(lineage);
            assert!(lineages.len() < 2, "seed {seed}: the member {mark} was started twice");
        }
        let plans = self.world.state.teams.plans().to_vec();
        let mut found = plans.iter().flat_map(|plan| plan.members.iter().map(move |member| (plan, member)));
        let Some((plan, member)) = found.find(|(_, member)| member.lineage == Some(lineage)) else {
            return;
        };
        if self.crashed == Some(lineage) {
            let restarts = self.restarts.entry(lineage).or_default();
            *restarts += 1;
            assert!(*restarts <= MAX_RESTARTS, "seed {seed}: {lineage} was restarted too often");
        }
        if !self.begun.insert(lineage) {
            return;
        }
        self.later += usize::from(member.phase > 1);
        for before in plan.members.iter().filter(|before| before.phase < member.phase) {
            self.check_completed(before);
            let lineage = before.lineage.unwrap_or_default();
            let has_record = self.world.state.agents.iter().any(|agent| agent.lineage_id == lineage);
            let files = self.written.get(&lineage).filter(|_| has_record);
            for path in files.into_iter().flatten() {
                assert!(prompt.contains(path), "seed {seed}: phase {} is not told of {path}", member.phase);
            }
        }
    }

    /// The plan may believe what it likes: its agent has really completed.
    fn check_completed(&self, member: &Member) {
        let done = member.lineage.is_some_and(|lineage| self.completed.contains(&lineage));
        assert!(done, "seed {}: a member of phase {} has not completed", self.seed, member.phase);
    }

    /// A schedule's time has led to a start, or not.
    pub(super) fn check_run(&mut self, id: ScheduleId, at: Time, effects: &[Effect]) {
        let mark = |effect: &Effect| match effect {
            Effect::Run(id, RunOrder::Start(_)) => self.mark(*id).filter(|mark| mark.starts_with("[S")),
            _ => None,
        };
        let Some(mark) = effects.iter().find_map(mark) else { return };
        let (seed, minute) = (self.seed, self.noticed.get(&id).map_or(0, |noticed| noticed.0 / MINUTE_MS));
        assert!(self.times.insert((id, at)), "seed {seed}: schedule {id} ran twice for {at}");
        assert!(self.minutes.insert((id, minute)), "seed {seed}: schedule {id} ran twice in a minute");
        let alive = self.world.state.agents.live().filter(|agent| agent.prompt.starts_with(&mark)).count();
        let most = self.schedule(id).map_or(0, |schedule| schedule.max_concurrent);
        assert!(alive <= most, "seed {seed}: schedule {id} has more than maxConcurrent alive");
    }

    /// Holds after every event.
    pub(super) fn check(&self) {
        let seed = self.seed;
        let plans = self.world.state.teams.plans();
        for id in &self.plans {
            let kept = plans.len() >= MAX_PLANS || plans.iter().any(|plan| plan.id == *id);
            assert!(kept, "seed {seed}: plan {id} is lost");
        }
        let mut lineages = BTreeSet::new();
        for plan in plans {
            self.check_plan(plan);
            for lineage in plan.members.iter().filter_map(|member| member.lineage) {
                assert!(lineages.insert(lineage), "seed {seed}: {lineage} is a member twice");
            }
        }
        for id in &self.schedules {
            let schedule = self.schedule(*id).unwrap_or_else(|| panic!("seed {seed}: schedule {id} is lost"));
            self.check_schedule(schedule);
        }
    }

    fn check_plan(&self, plan: &Plan) {
        let (seed, id) = (self.seed, plan.id);
        let (now, blocked) = match &plan.phase {
            Phase::Working { phase } => (*phase, false),
            Phase::Blocked { phase, .. } => (*phase, true),
            Phase::Done => (usize::MAX, false),
        };
        for member in &plan.members {
            match &member.outcome {
                _ if member.phase < now => self.check_completed(member),
                Outcome::Failed(_) => assert!(blocked, "seed {seed}: plan {id} hides a failure"),
                Outcome::Pending => assert!(member.lineage.is_none(), "seed {seed}: a pending agent in {id}"),
                Outcome::Working | Outcome::Completed => {
                    assert!(member.lineage.is_some(), "seed {seed}: nobody works in {id}");
                }
                Outcome::Skipped => panic!("seed {seed}: nobody has passed over a member of {id}"),
            }
            assert!(
                member.phase <= now || member.lineage.is_none(),
                "seed {seed}: {id} is ahead of its phase"
            );
            if let (Outcome::Failed(error), Some(lineage)) = (&member.outcome, member.lineage)
                && error.contains("removed")
            {
                assert!(self.deleted.contains(&lineage), "seed {seed}: nobody has removed {lineage}");
            }
        }
        let failed = plan.members.iter().any(|member| matches!(member.outcome, Outcome::Failed(_)));
        assert!(!blocked || failed, "seed {seed}: plan {id} is blocked by nobody");
    }

    fn check_schedule(&self, schedule: &schedules::Schedule) {
        let (seed, id) = (self.seed, schedule.id);
        let waits = self.world.state.timers.is_set(Timer::ScheduleDue(id));
        assert!(schedule.enabled == waits, "seed {seed}: schedule {id} waits for nothing, or in vain");
        assert!(schedule.next_run.is_some() == waits, "seed {seed}: schedule {id} does not say when");
        assert!(schedule.history.len() <= MAX_HISTORY, "seed {seed}: the history of {id}");
        let noted: Vec<&String> =
            schedule.history.iter().filter_map(|run| run.scheduled_for.as_ref()).collect();
        let distinct: BTreeSet<&&String> = noted.iter().collect();
        assert_eq!(distinct.len(), noted.len(), "seed {seed}: {id} has noted a time twice");
        for at in self.came.get(&id).into_iter().flat_map(|came| came.iter().rev().take(LOOKED_FOR)) {
            let known = schedule.due == Some(*at) || noted.contains(&&at.to_string());
            assert!(known, "seed {seed}: nobody knows what became of {at} of schedule {id}");
        }
    }

    /// Everything comes to rest: every plan is over, or waits for a person.
    pub(super) fn settle(&mut self) {
        for id in self.schedules.clone() {
            self.call("POST", &format!("/api/schedules/{id}/disable"), &Value::Null);
        }
        for _ in 0..10_000 {
            if let Some((id, message_id)) = self.said.pop() {
                self.report(id, RunReport::Said { message_id, delivered: false });
            } else if !self.briefs.is_empty() {
                self.brief();
            } else if let Some(id) = self.processes.keys().next().copied() {
                self.goes_on(id);
            } else {
                break;
            }
            self.pass(100);
        }
        assert!(self.processes.is_empty(), "seed {}: there is no end to it", self.seed);
        self.done = self.world.state.teams.plans().iter().filter(|plan| plan.phase == Phase::Done).count();
        for plan in self.world.state.teams.plans() {
            let is_interrupted = |member: &Member| {
                let agents = &self.world.state.agents;
                let agent = agents.iter().find(|agent| Some(agent.lineage_id) == member.lineage);
                agent.is_some_and(|agent| agent.status == Status::Interrupted)
            };
            let waits = plan.members.iter().any(is_interrupted);
            let works = matches!(plan.phase, Phase::Working { .. });
            assert!(!works || waits, "seed {}: plan {} stands still: {plan:#?}", self.seed, plan.id);
        }
    }
}
