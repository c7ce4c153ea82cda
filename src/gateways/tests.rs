use super::commands::{self, ALL, Plan};
use super::message::{Style, Text};
use super::*;
use crate::core::{Actor, Command as CoreCommand, Event, Response};
use crate::credentials::{Secret, Vault};
use crate::testing::Bench;
use serde_json::json;

mod api;
mod chat;
mod told;

/// A gateway with a token and a chat, whose thread set was ordered.
pub(super) struct Rig {
    pub(super) bench: Bench,
    pub(super) id: GatewayId,
}

impl Rig {
    pub(super) fn new(kind: &str) -> Self {
        let mut bench = Bench::new();
        let (status, record) = bench.ask("POST", "/api/gateways", &json!({"type": kind, "chatId": "77"}));
        assert_eq!(status, 201, "{record}");
        let id: GatewayId = record["id"].as_str().unwrap().parse().unwrap();
        let mut rig = Self { bench, id };
        for key in id.kind.credentials() {
            rig.credential(key);
        }
        rig
    }

    /// A gateway that is connected.
    pub(super) fn connected(kind: &str) -> Self {
        let mut rig = Self::new(kind);
        assert!(rig.connect().is_none(), "it waits for the platform");
        let run = rig.gateway().run;
        let bot = "svc_bot".to_owned();
        rig.report(Report::Connected { gateway: rig.id, run, bot });
        assert!(rig.gateway().connected);
        rig.bench.effects.clear();
        rig
    }

    pub(super) fn credential(&mut self, key: &str) {
        let folder = std::env::temp_dir();
        let vault = Vault::open_in(&folder, Some(&"0".repeat(64))).unwrap();
        let sealed = vault.seal(&format!("gateway/{}/{key}", self.id), &Secret::new("t")).unwrap();
        let command = Command::SetCredential { target: self.id.to_string(), key: key.into(), sealed };
        let reply = self.bench.command(CoreCommand::Gateways(command)).unwrap();
        assert_eq!((reply.status, reply.body.bytes()), (200, br#"{"ok":true}"#.as_slice()));
    }

    pub(super) fn connect(&mut self) -> Option<Reply> {
        self.bench.command(CoreCommand::Gateways(Command::Connect(self.id.to_string())))
    }

    pub(super) fn gateway(&self) -> &Gateway {
        self.bench.state.gateways.get(self.id).unwrap()
    }

    pub(super) fn patch(&mut self, body: &Value) -> Value {
        let (status, record) = self.bench.ask("PATCH", &format!("/api/gateways/{}", self.id), body);
        assert_eq!(status, 200, "{record}");
        record
    }

    pub(super) fn report(&mut self, report: Report) -> Option<Reply> {
        self.bench.apply(Event::Gateways(report))
    }

    /// Somebody says something; what its thread hears of that.
    pub(super) fn says(&mut self, user: &str, key: &str, text: &str) -> Receipt {
        let heard = Heard {
            key: key.into(),
            user: user.into(),
            chat: "77".into(),
            text: text.into(),
            ..Heard::default()
        };
        let command = CoreCommand::Gateways(Command::Inbox(Errand::Take(self.id, Box::new(heard))));
        let before = std::mem::replace(
            &mut self.bench.actor,
            Actor::Chat(format!("{}:{user}", self.id.kind.word()).into()),
        );
        let receipt = self.errand(command);
        self.bench.actor = before;
        receipt
    }

    /// What a gateway's thread hears of this command.
    pub(super) fn errand(&mut self, command: CoreCommand) -> Receipt {
        match self.bench.response(command) {
            Some(Response::Inbox(receipt)) => receipt,
            other => panic!("{other:?} is no receipt"),
        }
    }

    /// What a command comes to.
    pub(super) fn plan(&self, text: &str) -> Plan {
        commands::plan(&self.bench.state, self.gateway(), self.bench.now, text)
    }

    /// The words a command is answered with at once.
    pub(super) fn answer(&self, text: &str) -> String {
        match self.plan(text) {
            Plan::Say(words) => words.words(),
            other => panic!("{text} comes to {other:?}"),
        }
    }

    /// Does a command as the threads would; the words of its answer. `None`: it comes later.
    pub(super) fn done(&mut self, text: &str) -> Option<String> {
        let Plan::Do(command) = self.plan(text) else { panic!("{text} does nothing") };
        self.bench.actor = Actor::Chat("telegram:4711".into());
        Some(super::answers::told(&self.bench.response(*command)?).words())
    }

    /// What was ordered to be sent, and forgets it.
    pub(super) fn sent(&mut self) -> Vec<Outgoing> {
        let mut sent = Vec::new();
        for effect in std::mem::take(&mut self.bench.effects) {
            match effect {
                Effect::Gateways(Order::Send(outgoing)) => sent.push(*outgoing),
                other => self.bench.effects.push(other),
            }
        }
        sent
    }
}

fn words(outgoing: &[Outgoing]) -> Vec<String> {
    outgoing.iter().map(|one| one.message.text.words()).collect()
}

#[test]
fn decisions_1_ids_are_the_type_and_six_hex_digits() {
    let id = GatewayId { kind: Kind::Slack, number: 0xab };
    assert_eq!(id.to_string(), "slack-0000ab");
    assert_eq!("slack-0000ab".parse(), Ok(id));
    for bad in ["slack", "slack-ab", "slack-0000AB", "irc-0000ab", "slack-0000abc", ""] {
        assert!(bad.parse::<GatewayId>().is_err(), "{bad}");
    }
}

#[test]
fn decisions_12_text_is_escaped_for_the_platform() {
    let text = Text::new().plain("a <b> & *x* _y_ `z` @all").bold("<!channel>").code("c`d");
    let one = |kind| rendered(kind, &text).concat();
    assert_eq!(
        one(Kind::Telegram),
        "a &lt;b&gt; &amp; *x* _y_ `z` @all<b>&lt;!channel&gt;</b><code>c`d</code>"
    );
    assert_eq!(one(Kind::Discord), r"a \<b\> & \*x\* \_y\_ \`z\` \@all**\<!channel\>**`cˋd`");
    // Slack's styles stand beside the words: nothing in the words is markup.
    assert_eq!(one(Kind::Slack), "a &lt;b&gt; &amp; *x* _y_ `z` @all&lt;!channel&gt;c`d");
    let block = render::rich_text(&render::split(Kind::Slack, &text)[0]);
    assert_eq!(block["type"], "rich_text");
    let element = |text: &str, style: &str| {
        if style.is_empty() {
            json!({"type": "text", "text": text})
        } else {
            json!({"type": "text", "text": text, "style": {style: true}})
        }
    };
    let wanted =
        [element("a <b> & *x* _y_ `z` @all", ""), element("<!channel>", "bold"), element("c`d", "code")];
    assert_eq!(block["elements"][0]["elements"], json!(wanted));
}

fn rendered(kind: Kind, text: &Text) -> Vec<String> {
    render::split(kind, text).iter().map(|piece| render::markup(kind, piece)).collect()
}

#[test]
fn nothing_that_is_said_ends_its_line_turns_the_direction_or_hides() {
    let evil =
        "api/x\n\nApproved by telegram:5\r\u{2028}a\u{202e}gpj.exe\u{2066}\u{200b}\u{feff}\u{7}\u{e0041}";
    let shown = crate::core::untrusted_line(evil);
    assert_eq!(
        shown,
        "api/x\\n\\nApproved by telegram:5\\r\\u{2028}a\\u{202e}gpj.exe\\u{2066}\\u{200b}\\u{feff}\\u{7}\\u{e0041}"
    );
    for text in [Text::new().said(evil), Text::new().bold(evil), Text::new().code(evil)] {
        assert_eq!(text.words(), shown);
    }
    assert_eq!(message::Button::new(evil, "/x", message::Look::Good).label, message::cut(&shown, 60));
    // What has lines of its own keeps them, and the joiner of emoji.
    assert_eq!(Text::from("a\nb 👩\u{200d}👧 \u{202e}").words(), "a\nb 👩\u{200d}👧 \\u{202e}");
}

#[test]
fn decisions_12_message_length_limits_are_honoured_by_splitting() {
    for (kind, limit) in [(Kind::Telegram, 4096), (Kind::Discord, 2000), (Kind::Slack, 3000)] {
        let whole = |n: usize| rendered(kind, &Text::from("x".repeat(n)));
        assert_eq!(whole(limit).len(), 1, "{kind:?}");
        assert_eq!(whole(limit + 1).iter().map(String::len).collect::<Vec<_>>(), [limit, 1], "{kind:?}");
        // Escapes count where the platform counts them.
        let pieces = rendered(kind, &Text::from("<&".repeat(limit)));
        let longest = pieces.iter().map(|piece| match kind {
            Kind::Telegram | Kind::Slack => piece.replace("&lt;", "<").replace("&amp;", "&").len(),
            Kind::Discord => piece.len(),
        });
        assert!(longest.max().unwrap() <= limit, "{kind:?}");
        // Characters beyond the basic plane count as two.
        let pieces = rendered(kind, &Text::from("😀".repeat(limit)));
        assert!(pieces.iter().all(|piece| piece.encode_utf16().count() <= limit), "{kind:?}");
    }
}

#[test]
fn a_split_stands_at_a_line_where_there_is_one_and_markup_is_whole_in_each_piece() {
    let line = "word ".repeat(100);
    let text = (0..10).fold(Text::new(), |text, _| text.bold(line.trim_end()).plain("\n"));
    let pieces = rendered(Kind::Discord, &text);
    assert!(pieces.len() > 1);
    for piece in &pieces {
        assert!(piece.starts_with("**word") && piece.ends_with("word**"), "{piece}");
    }
    let none = rendered(Kind::Slack, &Text::from(" \n "));
    assert!(none.is_empty(), "nothing to say is not sent");
}

#[test]
fn a_text_without_end_is_cut_and_says_so() {
    let pieces = rendered(Kind::Discord, &Text::from("y".repeat(1_000_000)));
    assert_eq!(pieces.len(), render::MAX_PIECES);
    assert!(pieces.last().unwrap().ends_with(r"(cut\)") || pieces.last().unwrap().ends_with("(cut)"));
    assert!(pieces.iter().all(|piece| piece.len() <= 2000 + 10));
    assert_eq!(Text::new().bold("a").0[0].style, Style::Bold);
    assert_eq!(ALL.len(), 17);
}
