//! Planted bugs.

use super::*;

impl Simulation {
    /// Does what the planted bug does.
    pub(super) fn bug(&mut self) {
        let is_seldom = self.dice.below(20) == 0;
        match self.plant {
            Plant::ForgetRestarts => self.spoil_plans(|plan| {
                for member in &mut plan.members {
                    member.restarts = 0;
                }
            }),
            Plant::ForgetMember if is_seldom => self.spoil_plans(|plan| {
                let works = |member: &&mut Member| member.outcome == Outcome::Working;
                if let Some(member) = plan.members.iter_mut().find(works) {
                    (member.lineage, member.outcome) = (None, Outcome::Pending);
                }
            }),
            Plant::CompleteEarly if is_seldom => self.spoil_plans(|plan| {
                for member in plan.members.iter_mut().filter(|member| member.outcome == Outcome::Working) {
                    member.outcome = Outcome::Completed;
                }
            }),
            Plant::LosePlan if is_seldom => {
                let mut stored = self.world.state.teams.stored();
                stored.plans.pop();
                self.world.state.teams = Arc::new(teams::State::restore(stored, self.world.now));
            }
            Plant::ForgetStarted => self.spoil_schedules(|schedule| schedule["started"] = json!([])),
            Plant::LoseHistory if is_seldom => self.spoil_schedules(|schedule| {
                schedule["history"].as_array_mut().unwrap().pop();
            }),
            Plant::LoseTimer if is_seldom => {
                let timers = Arc::make_mut(&mut self.world.state.timers);
                for id in &self.schedules {
                    timers.clear(Timer::ScheduleDue(*id));
                }
            }
            _ => {}
        }
    }

    pub(super) fn forget_marks(&mut self) {
        self.spoil_schedules(|schedule| {
            let marked = schedule["marked"].take();
            if !marked.is_null() {
                schedule["nextRun"] = marked;
            }
        });
    }

    fn spoil_plans(&mut self, spoil: impl Fn(&mut Plan)) {
        let mut stored = self.world.state.teams.stored();
        for plan in &mut stored.plans {
            spoil(Arc::make_mut(plan));
        }
        self.world.state.teams = Arc::new(teams::State::restore(stored, self.world.now));
    }

    fn spoil_schedules(&mut self, spoil: impl Fn(&mut Value)) {
        let mut stored = serde_json::to_value(self.world.state.schedules.stored()).unwrap();
        for schedule in stored["schedules"].as_array_mut().unwrap() {
            spoil(schedule);
        }
        let stored = serde_json::from_value(stored).unwrap();
        self.world.state.schedules = Arc::new(schedules::State::restore(stored));
    }
}
