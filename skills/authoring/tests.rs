//! Every rule of a create and edit body, and every move.

use super::moves::{Move, after_publish, create, edit, make, require_listed};
use super::*;
use crate::model::{Skill, Source, Status, Verification};
use svc_base::time::Time;

fn body(changes: &[(&str, Value)]) -> Map<String, Value> {
    let mut body = json!({
        "name": "Tidy Tests", "description": "Makes tests tidy and quick.", "category": "quality",
        "content": "# Tidy\n",
    });
    for (key, value) in changes {
        body[*key] = value.clone();
    }
    body.as_object().unwrap().clone()
}

fn made(changes: &[(&str, Value)]) -> Skill {
    create(parse_new(&body(changes)).unwrap(), Time(1000))
}

#[test]
fn limits_every_broken_rule_names_its_field() {
    let rows = [
        ("name", json!("ab")),
        ("name", json!("x".repeat(101))),
        ("name", json!("a\u{202e}bc")),
        ("name", json!(5)),
        ("name", json!(null)),
        ("description", json!("too short")),
        ("description", json!("x".repeat(501))),
        ("category", json!("games")),
        ("category", json!(["design"])),
        ("tags", json!(["a"])),
        ("tags", json!(vec!["x".repeat(31)])),
        ("tags", json!((0..11).map(|n| format!("tag{n}")).collect::<Vec<_>>())),
        ("tags", json!(["Rust", "rust"])),
        ("tags", json!("rust")),
        ("tags", json!([1])),
        ("roles", json!(["r"])),
        ("roles", json!((0..21).map(|n| format!("role{n}")).collect::<Vec<_>>())),
        ("icon", json!("")),
        ("icon", json!("AB")),
        ("content", json!("x".repeat(51_201))),
        ("content", json!("a\u{0}b")),
        ("content", json!(["x"])),
        ("price", json!(-1)),
        ("price", json!(100)),
        ("price", json!(1.234)),
        ("price", json!("3")),
        ("version", json!("one")),
        ("author", json!("Svc Skills")),
        ("author", json!("")),
        ("authorProfile", json!("me")),
        ("authorProfile.website", json!({"website": "ftp://x"})),
        ("authorProfile.github", json!({"github": "a b"})),
        ("authorProfile.twitter", json!({"twitter": 5})),
    ];
    for (field, value) in rows {
        let key = field.split('.').next().unwrap();
        let problem = parse_new(&body(&[(key, value.clone())])).unwrap_err();
        assert_eq!(problem.status, 400);
        let named = problem.errors.iter().any(|e| e.field.starts_with(field));
        assert!(named, "{field} = {value}: {problem:?}");
        if value != json!(null) {
            let only = json!({ key: value });
            assert!(parse_edit(only.as_object().unwrap()).is_err(), "an edit of {field} is checked, too");
        }
    }
    let all = parse_new(&Map::new()).unwrap_err();
    assert_eq!(all.errors.len(), 3, "all violations at once: {all:?}");
}

#[test]
fn decisions_2_defaults_of_a_create() {
    let skill = made(&[]);
    assert_eq!(
        (skill.id.as_str(), skill.icon.as_str(), skill.version.as_str()),
        ("tidy-tests", "T", "1.0.0")
    );
    assert_eq!((skill.author.as_str(), skill.author_id.as_str()), ("Community", "community"));
    assert_eq!((skill.status, skill.source, skill.downloads), (Status::Draft, Source::Community, 0));
    assert_eq!(ignored_fields(&body(&[("id", json!("x")), ("downloads", json!(9))])), ["id", "downloads"]);
}

#[test]
fn transitions_publish_by_price_from_every_status() {
    use Status::{Draft, Published, Rejected, Review, Unlisted};
    for (from, free, paid) in [
        (Draft, Published, Review),
        (Unlisted, Published, Review),
        (Published, Published, Published),
        (Review, Review, Review),
        (Rejected, Review, Review),
    ] {
        assert_eq!(after_publish(from, 0, false), free, "{from} free");
        assert_eq!(after_publish(from, 1, false), paid, "{from} paid");
        let again = if from == Published { Published } else { Review };
        assert_eq!(after_publish(from, 0, true), again, "{from} free, rejected before");
        let mut skill = Skill { status: from, ..made(&[]) };
        make(&mut skill, &Move::Unlist, false, Time(5)).unwrap();
        assert_eq!(skill.status, Unlisted, "DELETE from {from}");
        for approve in [true, false] {
            let mut skill = Skill { status: from, ..made(&[]) };
            let outcome = make(&mut skill, &Move::Review { approve, note: String::new() }, false, Time(5));
            match from {
                Review => assert_eq!(skill.status, if approve { Published } else { Rejected }),
                _ => assert_eq!(outcome.unwrap_err().status, 409, "{from}"),
            }
        }
    }
    let mut empty = made(&[("content", json!(""))]);
    assert_eq!(make(&mut empty, &Move::Publish, false, Time(5)).unwrap_err().code, "content_required");
}

#[test]
fn decisions_2_put_moves_updated_at_only_with_the_bytes_of_content() {
    let mut skill = made(&[]);
    let draft = |value: Value| parse_edit(value.as_object().unwrap()).unwrap();
    edit(&mut skill, &draft(json!({"description": "Something else entirely."})), Time(2000)).unwrap();
    edit(&mut skill, &draft(json!({"content": "# Tidy\n"})), Time(2000)).unwrap();
    edit(&mut skill, &draft(json!({})), Time(2000)).unwrap();
    assert_eq!(skill.updated_at, Time(1000));
    edit(&mut skill, &draft(json!({"content": "# Tidy\n\n"})), Time(2000)).unwrap();
    assert_eq!((skill.updated_at, skill.created_at), (Time(2000), Time(1000)));
    edit(&mut skill, &draft(json!({"name": "New Name"})), Time(2000)).unwrap();
    assert_eq!(skill.id, "tidy-tests", "the id is immutable");
}

#[test]
fn decisions_2_a_published_skill_that_costs_goes_back_to_review() {
    let published = Skill { status: Status::Published, ..made(&[]) };
    let after = |start: &Skill, change: Value| {
        let mut skill = start.clone();
        edit(&mut skill, &parse_edit(change.as_object().unwrap()).unwrap(), Time(2)).unwrap();
        skill.status
    };
    let paid = Skill { price_cents: 500, ..published.clone() };
    assert_eq!(after(&published, json!({"content": "new"})), Status::Published);
    assert_eq!(after(&published, json!({"price": 1})), Status::Review);
    assert_eq!(after(&paid, json!({"content": "new"})), Status::Review);
    assert_eq!(after(&paid, json!({"price": 6})), Status::Published);
    assert_eq!(after(&paid, json!({"price": 0, "content": "new"})), Status::Published);
    let mut skill = published;
    let empty = parse_edit(json!({"content": ""}).as_object().unwrap()).unwrap();
    assert_eq!(edit(&mut skill, &empty, Time(2)).unwrap_err().code, "content_required");
}

#[test]
fn decisions_2_no_mark_survives_another_text_or_another_hand() {
    let marked = |verification| Skill { verification, featured: true, ..made(&[]) };
    for mark in [Verification::Service, Verification::Creator] {
        let after = |change: Value| {
            let mut skill = marked(mark);
            edit(&mut skill, &parse_edit(change.as_object().unwrap()).unwrap(), Time(2)).unwrap();
            (skill.verification, skill.featured)
        };
        for change in [
            json!({"content": "new"}),
            json!({"name": "Another Name"}),
            json!({"description": "Says something else."}),
            json!({"author": "Mallory"}),
            json!({"authorProfile": {"github": "mallory"}}),
            json!({"authorProfile": {"website": "https://evil.example"}}),
        ] {
            assert_eq!(after(change.clone()), (Verification::Nobody, false), "{mark} {change}");
        }
        for same in [
            json!({}),
            json!({"content": "# Tidy\n", "name": "Tidy Tests", "author": "Community"}),
            json!({"tags": ["new"], "price": 0, "version": "2.0.0", "icon": "X", "roles": ["reviewer"]}),
        ] {
            assert_eq!(after(same.clone()), (mark, true), "{mark} {same}");
        }
    }
}

#[test]
fn decisions_2_visibility_by_status() {
    let status = |status, once: bool| {
        let first_published_at = once.then_some(Time(1));
        require_listed(&Skill { status, first_published_at, ..made(&[]) }).map_err(|p| p.status)
    };
    assert_eq!(status(Status::Published, true), Ok(()));
    assert_eq!(status(Status::Unlisted, true), Err(410));
    for hidden in [Status::Draft, Status::Review, Status::Rejected, Status::Unlisted] {
        assert_eq!(status(hidden, false), Err(404), "{hidden}");
    }
}

#[test]
fn decisions_1_put_on_a_vendor_skill_is_403_and_delete_is_not() {
    let mut skill = Skill { source: Source::Vendor, ..made(&[]) };
    assert_eq!(edit(&mut skill, &Draft::default(), Time(2)).unwrap_err().status, 403);
    make(&mut skill, &Move::Unlist, false, Time(2)).unwrap();
    make(&mut skill, &Move::Publish, false, Time(2)).unwrap();
}
