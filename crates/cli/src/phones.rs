//! `svc pair` and `svc phones`.

use super::client::encode;
use super::commands::{Command, Group, Words, switch, value};
use super::render::{Table, age_of, clean, one_line};
use super::session::{Failure, Outcome, Session, now};
use super::target::text;
use qrcodegen::{QrCode, QrCodeEcc};
use serde_json::{Value, json};

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "pair",
        group: Group::Trust,
        summary: "show a code that lets a phone look at what waits, and decide it",
        usage: "pair",
        words: (0, 0),
        options: &[
            value(
                "address",
                "IP[:PORT]",
                "where phones call: an address of this machine; the one of before if absent",
            ),
            value("name", "TEXT", "what the phone is called"),
            value("may", "RIGHTS", "look, answer, approve, with commas; all three if absent"),
            switch("no-picture", "no picture of the address to be read by the phone's camera"),
        ],
        details: "The daemon listens for phones from here on, at this one address, by TLS with a certificate of its own,\n\
                  until the last phone is revoked. The code is good once, for five minutes and five tries. Type it only\n\
                  where the browser shows the same fingerprint. The phone never gets more than its rights: no settings,\n\
                  no keys, no terminal, no new agents.",
        run: pair,
        ..Command::PLAIN
    },
    Command {
        name: "phones",
        group: Group::Trust,
        summary: "list paired phones, or revoke one",
        usage: "phones [list | revoke NAME | certificate]",
        words: (0, 2),
        complete: Words::OneOf(&["list", "revoke", "certificate"]),
        details: "A revoked phone is out at once. 'certificate' prints what a phone may be made to trust, so that its\n\
                  browser warns no more and keeps the page; bring it there by a way of your own.",
        run: phones,
        ..Command::PLAIN
    },
];

fn pair(session: &Session) -> Outcome {
    let args = &session.args;
    let mut body = args.given(&["address", "name"]);
    if let Some(rights) = args.value("may") {
        let rights: Vec<&str> = rights.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        body.insert("rights".into(), json!(rights));
    }
    let answer = session.client()?.post("/api/phones/codes", &Value::Object(body))?;
    let url = text(&answer, "url");
    let mut lines = Vec::new();
    if !args.flag("no-picture") && !session.out.quiet {
        // The fingerprint stands behind the address, where the browser shows it beside the certificate.
        lines.extend(picture(&format!("{url}#{}", text(&answer, "fingerprint").replace(':', ""))));
    }
    let code = text(&answer, "code");
    let rights: Vec<&str> =
        answer["rights"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    lines.push(format!("open         {url}"));
    lines.push(format!("fingerprint  {}", text(&answer, "fingerprint")));
    lines.push(format!(
        "code         {} {}",
        code.get(..3).unwrap_or(code),
        code.get(3..).unwrap_or_default()
    ));
    let minutes = answer["expiresInSeconds"].as_u64().unwrap_or_default() / 60;
    lines.push(format!(
        "\nIt may {}. The code is good once, within {minutes} minutes.\n\
         The browser warns of the certificate: look at it there, and go on only if its SHA-256 is the one above.",
        rights.join(", ")
    ));
    if answer["near"] == false {
        lines.push("This address is not of a network of your own: whoever reaches it can try.".into());
    }
    session.out.told(&answer, code, &lines.join("\n"))
}

/// The address for the phone's camera: two rows of it in a line of text, dark on light whatever the colours
/// of the terminal are.
fn picture(words: &str) -> Vec<String> {
    // One that does not fit is typed.
    let Ok(code) = QrCode::encode_text(words, QrCodeEcc::Low) else { return Vec::new() };
    let (from, to) = (-4, code.size() + 4);
    (from..to)
        .step_by(2)
        .map(|y| {
            let blocks = (from..to).map(|x| match (code.get_module(x, y), code.get_module(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
            format!("\u{1b}[30;107m{}\u{1b}[0m", blocks.collect::<String>())
        })
        .collect()
}

fn phones(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["list"] => list(session),
        ["revoke", name] => {
            let answer = session.client()?.call("DELETE", &format!("/api/phones/{}", encode(name)), None)?;
            session.out.told(
                &answer,
                text(&answer, "id"),
                &format!("revoked {}", clean(text(&answer, "name"))),
            )
        }
        ["certificate"] => {
            let answer = session.client()?.get("/api/phones")?;
            let certificate = text(&answer["listener"]["toTrust"], "certificate");
            if certificate.is_empty() {
                return Err(Failure::usage("phones cannot call now; 'svc pair' opens a listener for them"));
            }
            session.out.line(certificate.trim_end())
        }
        _ => Err(Failure::usage("see 'svc help phones'")),
    }
}

/// The push service that tells a phone, and what went wrong there last.
fn told_by(push: &Value) -> String {
    let (host, error) = (text(push, "host"), text(push, "lastError"));
    match (host.is_empty(), error.is_empty()) {
        (true, _) => "-".to_owned(),
        (_, true) => one_line(host),
        _ => one_line(&format!("{host}: {error}")),
    }
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/phones")?;
    let Some(list) = out.rows(&answer, &answer["phones"], "id")? else { return Ok(()) };
    let age = |time: &str| if time.is_empty() { "-".to_owned() } else { age_of(time, now()) };
    let mut table = Table::new(&["ID", "NAME", "MAY", "PAIRED", "SEEN", "TOLD BY"]);
    for one in list {
        let rights: Vec<&str> =
            one["rights"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        table.row(&[
            text(one, "id").into(),
            one_line(text(one, "name")),
            rights.join(","),
            age(text(one, "pairedAt")),
            age(text(one, "lastSeen")),
            told_by(&one["push"]),
        ]);
    }
    out.table(&table, "no phones; 'svc pair' makes a code for one")?;
    let listener = &answer["listener"];
    if listener.is_null() {
        return Ok(());
    }
    out.line(&format!(
        "they call at {}, whose certificate is {}",
        text(listener, "url"),
        text(listener, "fingerprint")
    ))
}
