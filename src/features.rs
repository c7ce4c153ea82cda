//! All features in three tables: what each has for the daemon, what waits for a time, and what lasts.
//!
//! The tables say names. The model (`core`) makes its types of them, the assembly the calls of the rules;
//! whoever wants a table gives it the name of a macro that takes its rows.

/// What each feature has. Left of the arrow its data: a part of the [`State`](crate::core::State), what may
/// be wished of it, what its threads report, and the orders to them. Right of it its rules, `_` for none: who
/// hears of a [`Moment`](crate::core::Moment), who hears what agents do, and where its routes stand. A
/// feature that takes wishes has a function `command`, one that takes reports a function `report`.
///
/// Moments and deeds are told in this order.
macro_rules! features {
    ($take:ident) => { $take! {
        /// The agents.
        agents Agents: state(State) wish(Command) => moment, _, _;
        /// What waits for a person's yes or no.
        approvals Approvals: state(State) wish(Command) => moment, _, api;
        /// Teams, recommendations, plans.
        teams Teams: state(State) wish(Command) report(Report) order(Order) => moment, heard, api;
        /// When agents are rotated, and what was learned from their lives.
        triggers Triggers: state(State) => moment, heard, _;
        /// What agents use, and what follows from it.
        usage Usage: state(State) => moment, heard, api;
        /// What came of work here, by the task and the model that did it.
        outcomes Outcomes: state(State) => moment, heard, _;
        /// What models cost.
        prices Prices: state(State) wish(Command) => _, _, api;
        /// What the counters said and what happened to agents.
        timeline Timeline: state(State) => moment, heard, _;
        /// Who owns which files.
        ownership Ownership: state(State) wish(Command) report(Report) order(Order) => moment, heard, api;
        /// Who holds which shared resources.
        coordination Coordination: state(State) wish(Command) => moment, _, api;
        /// The chat gateways.
        gateways Gateways: state(State) wish(Command) report(Report) order(Order) => moment, _, api;
        /// What a person's desktop is told.
        alerts Alerts: state(State) order(Order) => _, _, _;
        /// What is posted to addresses of a person's own.
        webhooks Webhooks: state(State) wish(Command) report(Report) order(Order) => moment, _, api;
        /// Browsers on other devices that look at what waits, and decide it.
        phones Phones: state(State) wish(Command) report(Report) order(Order) => _, _, api;
        /// Spans of what agents do, for a collector.
        telemetry Telemetry: state(State) report(Report) order(Order) => moment, heard, api;
        /// Signed messages from outside.
        inlets Inlets: state(State) wish(Command) report(Report) => _, _, api;
        /// What the agents have learned.
        memory Memory: state(State) wish(Command) => moment, heard, api;
        /// What agents did, written down.
        journalist Journalist: state(State) wish(Command) report(Report) order(Order) => moment, heard, api;
        /// What is started by the clock.
        schedules Schedules: state(State) wish(Command) => moment, _, api;
        /// The project manager's reviews.
        pm Pm: state(State) wish(Command) => moment, _, _;
        /// The vault's sealed entries.
        credentials Credentials: state(State) wish(Command) => _, _, api;
        /// Homes of providers' programs beside the default ones.
        accounts Accounts: state(State) wish(Command) report(Report) order(Order) => _, _, api;
        /// Other machines.
        runners Runners: state(State) wish(Command) report(Report) order(Order) => moment, _, api;
        /// Sessions that people had with programs, and that become agents.
        adoption Adoption: wish(Command) => _, _, api;
        /// Teams around public APIs.
        toys Toys: wish(Command) => _, _, api;
        /// The integrations.
        integrations Integrations: state(State) wish(Command) report(Report) order(Order) => _, _, api;
        /// The worktrees of agents.
        isolation Isolation: wish(Command) => _, _, api;
        /// What stood in the folders of agents.
        snapshots Snapshots: wish(Command) => _, _, api;
        /// Comments of persons on the work of agents.
        comments Comments: state(State) wish(Command) => moment, _, api;
        /// What it takes to decide an approval.
        cards Cards: => _, _, api;
        /// The configuration.
        settings Settings: state(State) wish(Command) => _, _, api;
        /// What is known of the project's files.
        workspace Workspace: state(State) wish(Command) report(Report) order(Order) => _, _, api;
        /// What a thread keeps ready for briefings.
        context Context: state(State) report(Report) => moment, _, api;
        /// Questions of the daemon's own to a model.
        questions Questions: state(State) => _, _, _;
        /// The installed skills.
        market Market: state(State) wish(Command) => _, _, api;
        /// What the other projects of this user have told.
        fleet Fleet: state(State) report(Report) => _, _, _;
        /// Whether one more agent fits on this machine.
        governor Governor: state(State) report(Report) order(Order) => moment, _, api;
        /// When old things were removed last.
        cleanup Cleanup: state(State) report(Report) order(Order) => _, _, _;
        /// Other daemons.
        federation Federation: state(State) wish(Command) => _, _, api;
        /// Questions over all that is known.
        recall Recall: => _, _, api;
        /// The programs of the providers.
        programs Programs: => _, _, api;
        /// Health, metrics, audit, shutdown.
        oversight Oversight: => moment, _, api;
        /// The web console.
        console Console: => _, _, api;
    } };
}
pub(crate) use features;

/// What waits for a time, and the rule that is applied when it has come. Of deadlines at the same time the
/// upper one comes first.
macro_rules! timers {
    ($take:ident) => {
        $take! {
            /// Push the coalesced `state` message.
            StateNotice => agents::send_state;
            /// An agent inside a turn has said nothing for too long.
            Silence(agent: AgentId) => agents::silence;
            /// A held agent goes on, now that its provider answers again.
            LimitOpens(agent: AgentId) => agents::limit::opens;
            /// The next life of a held agent is on the disk: its process is to be started.
            LimitGoesOn(agent: AgentId) => agents::limit::go_on;
            /// There is room for an agent that has waited, and that is on the disk: it is to be started.
            QueueGoesOn(agent: AgentId) => agents::queue::go_on;
            /// A schedule's next time has come.
            ScheduleDue(id: ScheduleId) => schedules::due;
            /// A schedule's next time comes soon: who is logged in is to be known by then.
            ScheduleSoon(id: ScheduleId) => schedules::soon;
            /// A schedule's agent is to be started, now that its time is marked on the disk.
            ScheduleStart(id: ScheduleId) => schedules::start;
            /// The ten minutes after a rotation to this agent are over.
            Velocity(agent: AgentId) => agents::history::velocity_due;
            /// A snapshot of the counters is due.
            Snapshot => oversight::timeline::snapshot;
            /// A question has taken too long.
            Query(call: CallId) => agents::query_timeout;
            /// A tool server has not shaken hands in time.
            IntegrationStart(run: RunId) => integrations::start_timeout;
            /// A tool server has not answered in time.
            IntegrationCall(call: CallId) => integrations::call_timeout;
            /// A tool server has had nothing to do for long.
            IntegrationIdle(run: RunId) => integrations::idle;
            /// An installation takes long.
            IntegrationInstall(call: CallId) => integrations::install_patience;
            /// The next lock expires.
            Locks => coordination::expire;
            /// An approval expires.
            Approval(id: ApprovalId) => approvals::expire;
            /// What a rule allows is granted, now that its use is on the disk.
            ApprovalByRule(id: ApprovalId) => approvals::rules::grant;
            /// A rule expires.
            Rule(id: RuleId) => approvals::rules::expire;
            /// The daemon has started: gateways connect.
            GatewaysBoot => gateways::boot;
            /// Who waits for a gateway's connection has waited long enough.
            GatewayConnect(id: GatewayId) => gateways::connect_due;
            /// What was gathered for a gateway is told.
            GatewayDigest(id: GatewayId) => gateways::digest_due;
            /// Approvals that a platform did not take are sent to it again.
            GatewayCards(id: GatewayId) => gateways::cards_due;
            /// What waits for a webhook's receiver is to be sent, now that it is on the disk, or once more.
            WebhookDue(id: WebhookId) => webhooks::due;
            /// What a phone is to be told is to be sent, now that it is on the disk, or once more.
            PhoneDue(id: PhoneId) => phones::due;
            /// The journalist's next cycle.
            Journalist => journalist::due;
            /// The daily cleanup.
            Cleanup => oversight::cleanup::due;
            /// A question of the daemon's own has taken too long.
            Question(call: CallId) => oversight::questions::timeout;
            /// What is to be done on other machines is tried again.
            Errands => runners::errands_due;
            /// Files of owners are looked at, or what was found there is judged.
            Writes => ownership::commands::due;
        }
    };
}
pub(crate) use timers;

/// What lasts, each with its path below `.svc/`. Those of one part of the state say how they are written and
/// which part it is; `by` names the function that takes one over after a start, where it is not
/// `State::restore` alone. They are written and read in this order.
macro_rules! documents {
    ($take:ident) => {
        $take! {
            /// Webhooks, and what is still to be told of what stands in the others.
            Webhooks = "state/webhooks.json": compact webhooks by restore;
            /// Paired phones, where they call, and what they are still to be told.
            Phones = "state/phones.json": compact phones by restore;
            /// The prices that a person has given.
            Prices = "state/prices.json": compact prices;
            /// The ledger. It is written first: an account is closed on disk before its record is gone from
        /// there.
            Usage = "state/usage.json": compact usage by restore;
            /// What came of work here.
            Outcomes = "state/outcomes.json": compact outcomes;
            /// What was learned about how full a context may get.
            Adaptive = "state/adaptive.json": compact triggers;
            /// Agents and everything that must agree with them.
            Agents = "state/agents.json";
            /// Sealed keys and tokens.
            Credentials = "credentials.json": pretty credentials;
            /// Which accounts there are.
            Accounts = "state/accounts.json": compact accounts;
            /// Which other machines there are.
            Runners = "state/runners.json": compact runners;
            /// Who holds which shared resources.
            Locks = "state/locks.json": compact coordination by restore;
            /// What waits for a person, and what was decided last.
            Approvals = "state/approvals.json": compact approvals by restore;
            /// The chat gateways, and what is between them and us.
            Gateways = "state/gateways.json": compact gateways by restore;
            /// When old things were removed last.
            Cleanup = "state/cleanup.json": compact cleanup by restore;
            /// Teams, recommendation, plans.
            Teams = "state/teams.json": compact teams by restore;
            /// Schedules and their histories.
            Schedules = "state/schedules.json": compact schedules;
            /// Which integrations are installed.
            Integrations = "state/integrations.json": compact integrations;
            /// Webhooks in, and which messages they have taken.
            Inlets = "state/inlets.json": compact inlets;
            /// The project's settings.
            Config = "config.json";
            /// Other daemons that are known.
            Federation = "state/federation.json": pretty federation;
            /// The journalist's notes.
            Journalist = "state/journalist.json": compact journalist by restore;
            /// The project manager's reviews.
            PmReviews = "state/pm-reviews.json": compact pm;
            /// The rules for all agents.
            Constraints = "memory/constraints.json";
            /// What worked.
            Discoveries = "memory/discoveries.json";
            /// The last handoffs of each role.
            HandoffChains = "memory/handoff-chains.json";
            /// What agents and roles have shown.
            Specializations = "memory/specializations.json";
            /// The installed skills.
            Skills = "state/skills.json": pretty market;
            /// Comments of persons on the work of agents.
            Comments = "state/comments.json": compact comments;
            /// What the counters said and what happened.
            Timeline = "state/timeline.json": compact timeline;
            /// What agents of each kind have used of the machine.
            Governor = "state/governor.json": compact governor;
        }
    };
}
pub(crate) use documents;
