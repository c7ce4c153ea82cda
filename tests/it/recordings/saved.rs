//! A conversation that is saved and restored goes on as one that never was: the program outlives the daemon,
//! and the next one reads on where the last one stopped.

use crate::recordings::mutations::mutated;
use crate::recordings::replay::{Replay, conversation, counted_before, lines, names, provider_of};
use crate::support::dice::Dice;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use svc::providers::{
    Activity, Conversation, Effort, LaunchRequest, Permission, Purpose, Ruling, SAVED_LIMIT_BYTES, Save,
    SessionStart, Step, Tokens, all, by_id,
};

/// Walks through each recording that save at random places.
const WALKS: u64 = 20;
/// Damaged texts of each recording.
const DAMAGED: usize = 60;

/// Hands the conversation on to a restored one, each time or now and then.
struct Relay {
    provider: &'static str,
    conversation: Box<dyn Conversation>,
    /// One time in so many.
    one_in: usize,
    dice: Dice,
}

impl Relay {
    fn of(name: &str, conversation: Box<dyn Conversation>, one_in: usize, seed: u64) -> Self {
        Self { provider: provider_of(name), conversation, one_in, dice: Dice::seeded(seed) }
    }

    fn hand_on(&mut self) {
        if self.dice.roll(self.one_in) == 0 {
            let saved = self.conversation.save();
            self.conversation = restored(self.provider, &saved);
            assert_eq!(self.conversation.save(), saved, "the same state gives the same text");
        }
    }
}

impl Save for Relay {
    fn save(&self) -> String {
        self.conversation.save()
    }
}

impl Conversation for Relay {
    fn open(&mut self, out: &mut Vec<Step>) {
        self.hand_on();
        self.conversation.open(out);
        self.hand_on();
    }

    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        self.conversation.line(line, out);
        self.hand_on();
    }

    fn complaint(&mut self, line: &str, out: &mut Vec<Step>) {
        self.conversation.complaint(line, out);
        self.hand_on();
    }

    fn say(&mut self, text: &str, out: &mut Vec<Step>) -> bool {
        let is_taken = self.conversation.say(text, out);
        self.hand_on();
        is_taken
    }

    fn record(&mut self, line: &str, out: &mut Vec<Step>) {
        self.conversation.record(line, out);
        self.hand_on();
    }

    fn interrupt(&mut self, out: &mut Vec<Step>) {
        self.conversation.interrupt(out);
        self.hand_on();
    }

    fn decide(&mut self, question: &str, ruling: &Ruling, out: &mut Vec<Step>) {
        self.conversation.decide(question, ruling, out);
        self.hand_on();
    }

    fn finish(&mut self, out: &mut Vec<Step>) {
        self.conversation.finish(out);
        self.hand_on();
    }

    fn end(&mut self, out: &mut Vec<Step>) {
        self.conversation.end(out);
        self.hand_on();
    }
}

fn start_of(name: &str) -> SessionStart {
    let counted = counted_before(name);
    counted.map_or(SessionStart::Fresh, |counted| SessionStart::Resume { id: "given".to_owned(), counted })
}

fn restored(provider: &str, saved: &str) -> Box<dyn Conversation> {
    let provider = by_id(provider).expect("a registered provider");
    provider.restore(saved).unwrap_or_else(|fault| panic!("{fault}: {saved}"))
}

/// Where a program keeps a record, lines such as stand there.
const RECORD: [&str; 4] = [
    r#"{"type":"turn_context","payload":{"model":"gpt-5.5"}}"#,
    r#"{"payload":{"type":"token_count","info":{"last_token_usage":{"input_tokens":812}}}}"#,
    r#"{"type":"gemini","tokens":{"input":6043}}"#,
    "{",
];

const COMPLAINTS: [&str; 3] = [
    "Attempt 2 failed. Retrying with backoff... Error: 503",
    r#"time=1 message="stream error" error.error="AI_APICallError: overloaded" x"#,
    "",
];

/// Requests for permission, of the programs that have such.
const ASKS: [&str; 3] = [
    r#"{"type":"control_request","request_id":"q-1","request":{"subtype":"can_use_tool","tool_name":"Bash",
        "input":{"command":"make","share":0.30000000000000004}}}"#,
    r#"{"id":41,"method":"session/request_permission","params":{"sessionId":"s",
        "toolCall":{"toolCallId":"c","kind":"execute","rawInput":{"command":"make","share":5e-324}},
        "options":[{"kind":"allow_once","optionId":"y"},{"kind":"reject_once","optionId":"n"}]}}"#,
    r#"{"id":"a","method":"session/request_permission","params":{"toolCall":{"toolCallId":"d"},"options":[]}}"#,
];

/// An agent that has to ask.
fn cautious(name: &str) -> Box<dyn Conversation> {
    let provider = by_id(provider_of(name)).expect("a registered provider");
    let session = Some(start_of(name)).filter(|_| provider.info().capabilities.resume);
    let request = LaunchRequest {
        permission: Permission::Auto,
        session: session.unwrap_or(SessionStart::Fresh),
        ..request(provider.info().id)
    };
    provider.launch(&request).expect("a launch").conversation
}

/// Does one of the things that happen to a conversation; `asked` are the questions so far.
fn act(conversation: &mut dyn Conversation, line: &str, dice: &mut Dice, asked: &[String]) -> Vec<Step> {
    let mut steps = Vec::new();
    let out = &mut steps;
    match dice.roll(12) {
        0 => drop(conversation.say("and \"that\" too", out)),
        1 => conversation.interrupt(out),
        2 | 3 => {
            let question = dice.pick(asked).unwrap_or_else(|| "nobody asked".to_owned());
            let reason = if dice.roll(2) == 0 { "not here".to_owned() } else { String::new() };
            conversation.decide(&question, &Ruling { allow: dice.roll(2) == 0, reason }, out);
        }
        4 => conversation.complaint(COMPLAINTS[dice.roll(COMPLAINTS.len())], out),
        5 => conversation.record(RECORD[dice.roll(RECORD.len())], out),
        6 if dice.roll(8) == 0 => conversation.finish(out),
        7 => conversation.line(&mutated(line, dice), out),
        8 => conversation.line(ASKS[dice.roll(ASKS.len())], out),
        _ => conversation.line(line, out),
    }
    steps
}

fn questions(steps: &[Step]) -> impl Iterator<Item = String> {
    steps.iter().filter_map(|step| match step {
        Step::Event(Activity::PermissionAsked { question, .. }) => Some(question.clone()),
        _ => None,
    })
}

#[test]
fn saved_after_every_line_each_recording_goes_on_as_if_nothing_had_been() {
    for name in names() {
        let lines = lines(&name);
        let plain = Replay::of(&name);
        let handed_on =
            Replay::by(&name, &mut Relay::of(&name, conversation(&name, start_of(&name)), 1, 0), &lines);
        assert_eq!(handed_on.steps, plain.steps, "{name}");
    }
}

/// Messages, answers, complaints and nonsense come in between, and the question is where it was saved.
#[test]
fn saved_anywhere_everything_that_is_done_to_it_goes_on_as_if_nothing_had_been() {
    let mut asked_in_all = 0;
    for (number, name) in names().iter().enumerate() {
        let lines = lines(name);
        for walk in 0..WALKS {
            let seed = u64::try_from(number).expect("few recordings") * WALKS + walk;
            let mut plain = cautious(name);
            let mut relay = Relay::of(name, cautious(name), 3, seed);
            let (mut steps, mut relayed) = (Vec::new(), Vec::new());
            plain.open(&mut steps);
            relay.open(&mut relayed);
            let (mut dice, mut same_dice) = (Dice::seeded(seed), Dice::seeded(seed));
            let mut asked: Vec<String> = Vec::new();
            for line in &lines {
                let wanted = act(plain.as_mut(), line, &mut dice, &asked);
                let found = act(&mut relay, line, &mut same_dice, &asked);
                assert_eq!(found, wanted, "{name}, seed {seed}");
                asked.extend(questions(&wanted));
            }
            plain.end(&mut steps);
            relay.end(&mut relayed);
            assert_eq!(relayed, steps, "{name}, seed {seed}");
            assert_eq!(relay.save(), plain.save(), "{name}, seed {seed}");
            asked_in_all += asked.len();
        }
    }
    assert!(asked_in_all > 100, "questions were waiting when it was saved: {asked_in_all}");
}

/// What comes out of a damaged file is refused, or goes on without a panic.
#[test]
fn no_text_makes_a_restore_panic() {
    let (mut refused, mut taken) = (0, 0);
    for (number, name) in names().iter().enumerate() {
        let provider = by_id(provider_of(name)).expect("a registered provider");
        let mut dice = Dice::seeded(u64::try_from(number).expect("few recordings"));
        let lines = lines(name);
        let mut whole = conversation(name, start_of(name));
        whole.open(&mut Vec::new());
        let stop = dice.roll(lines.len());
        lines.iter().take(stop).for_each(|line| whole.line(line, &mut Vec::new()));
        for text in ["", "{", "null", "[]", "{}", "\u{0}"].map(str::to_owned) {
            assert!(provider.restore(&text).is_err(), "{name}: {text:?}");
        }
        for _ in 0..DAMAGED {
            let damaged = mutated(&whole.save(), &mut dice);
            match provider.restore(&damaged) {
                Err(fault) => {
                    refused += 1;
                    assert!(fault.starts_with("this is no saved conversation with"), "{fault}");
                    assert!(fault.len() < 400, "{fault}");
                }
                Ok(mut conversation) => {
                    taken += 1;
                    conversation.open(&mut Vec::new());
                    for line in lines.iter().skip(stop).take(20) {
                        act(conversation.as_mut(), line, &mut dice, &[]);
                    }
                    conversation.end(&mut Vec::new());
                }
            }
        }
    }
    assert!(refused > 1000 && taken > 100, "{refused} refused, {taken} taken");
}

fn request(provider: &str) -> LaunchRequest {
    LaunchRequest {
        purpose: Purpose::Work,
        prompt: "do it".to_owned(),
        model: (provider == "acp").then(|| "qwen".to_owned()),
        effort: Effort::Medium,
        permission: Permission::Auto,
        working_dir: PathBuf::from("/project"),
        project_dir: PathBuf::from("/project"),
        session: SessionStart::Fresh,
        command: Vec::new(),
        has_integrations: true,
        hook_program: None,
        fence: None,
        room: None,
        extra_env: svc::providers::environment::Extra::default(),
    }
}

#[test]
fn what_another_provider_saved_is_refused_with_words() {
    // One protocol, two programs that speak it.
    let kin = ["script", "ollama"];
    for one in all() {
        let id = one.info().id;
        let saved = one.launch(&request(id)).expect("a launch").conversation.save();
        for other in all().iter().map(|other| other.info().id) {
            let result = by_id(other).expect("registered").restore(&saved).map(|_| ());
            let is_kin = id == other || (kin.contains(&id) && kin.contains(&other));
            assert_eq!(result.is_ok(), is_kin, "{other} reads what {id} saved: {result:?}");
        }
        let long = " ".repeat(SAVED_LIMIT_BYTES) + &saved;
        let fault = one.restore(&long).map(|_| ()).expect_err("too long");
        assert!(fault.starts_with("a saved conversation has at most 33554432 bytes, not"), "{fault}");
    }
}

/// The file is for its owner's eyes, and all the same no key stands in it.
#[test]
fn no_key_that_a_person_gives_its_programs_is_saved() {
    for provider in all() {
        let id = provider.info().id;
        let mut request = request(id);
        let key = Some("sk-not-to-be-told".to_owned());
        request.extra_env.set.insert("OPENAI_API_KEY".to_owned(), key);
        let mut conversation = provider.launch(&request).expect("a launch").conversation;
        let before = conversation.save();
        conversation.open(&mut Vec::new());
        let after = conversation.save();
        assert!(!before.contains("sk-not-to-be-told") && !after.contains("sk-not-to-be-told"), "{id}");
        // The prompt waits only until the program is there; over ACP until the session is open.
        assert!(!after.contains("do it") || id == "acp", "{id}: {after}");
        assert!(after.len() < 1000, "{id}: {after}");
    }
}

#[test]
fn a_folder_whose_name_is_no_text_is_restored() {
    let folder = PathBuf::from(std::ffi::OsString::from_vec(b"/pro\xffject".to_vec()));
    for id in ["aider", "acp"] {
        let request = LaunchRequest { working_dir: folder.clone(), ..request(id) };
        let provider = by_id(id).expect("registered");
        let saved = provider.launch(&request).expect("a launch").conversation.save();
        assert!(saved.contains("[47,112,114,111,255,106"), "{saved}");
        assert_eq!(restored(id, &saved).save(), saved);
    }
}

/// Costs are added up over restarts: each has to come back to the last digit.
#[test]
fn figures_are_restored_to_the_last_digit() {
    let mut dice = Dice::seeded(7);
    let mut conversation = conversation("opencode-default", SessionStart::Fresh);
    for _ in 0..500 {
        #[allow(clippy::cast_precision_loss, reason = "any number will do")]
        let cost = dice.throw() as f64 / 1e19;
        let part = serde_json::json!({"tokens": {"input": 1}, "cost": cost});
        let line = serde_json::json!({"type": "step_finish", "part": part}).to_string();
        conversation.line(&line, &mut Vec::new());
        let saved = conversation.save();
        assert_eq!(restored("opencode", &saved).save(), saved);
    }
}

/// The arguments of a tool that waits for a decision may be nested as deep as a line may.
#[test]
fn what_waits_for_a_decision_is_restored_however_deep_it_is() {
    let deep = format!("{}1.0e0{}", "[".repeat(124), "]".repeat(124));
    let asked = |request: &str| {
        format!(r#"{{"type":"control_request","request_id":"q","request":{{{request}"input":{deep}}}}}"#)
    };
    let mut conversation = conversation("claude-default", SessionStart::Fresh);
    let mut steps = Vec::new();
    conversation.line(&asked(r#""subtype":"can_use_tool","tool_name":"Bash","#), &mut steps);
    assert_eq!(questions(&steps).collect::<Vec<_>>(), ["q"]);
    let mut again = restored("claude-code", &conversation.save());
    let ruling = Ruling { allow: true, reason: String::new() };
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    conversation.decide("q", &ruling, &mut wanted);
    again.decide("q", &ruling, &mut found);
    assert_eq!(found, wanted);
    assert!(matches!(&wanted[..], [Step::Write(text)] if text.contains("[[[[1.0]]]]")), "{wanted:?}");
}

/// A meter that has counted something goes on from there.
#[test]
fn a_built_in_agent_is_restored_with_what_was_counted() {
    let usage = |input: u64| {
        let total = Tokens { input, ..Tokens::default() };
        let usage = svc::providers::Usage { session_total: Some(total), ..Default::default() };
        serde_json::to_string(&Activity::Usage(usage)).expect("an activity is JSON")
    };
    for id in ["script", "ollama"] {
        let provider = by_id(id).expect("registered");
        let mut conversation = provider.launch(&request(id)).expect("a launch").conversation;
        let mut steps = Vec::new();
        conversation.open(&mut steps);
        conversation.line(&usage(10), &mut steps);
        let mut again = restored(id, &conversation.save());
        steps.clear();
        again.open(&mut steps);
        again.line(&usage(12), &mut steps);
        assert!(again.say("more", &mut steps), "{id}");
        let [Step::Event(Activity::Usage(told)), Step::Write(said)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(told.delta.input, 2, "{id}");
        assert_eq!(said, "{\"type\":\"say\",\"text\":\"more\"}\n");
    }
}
