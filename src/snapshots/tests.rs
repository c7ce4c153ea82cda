//! What lines tell of turns, and what the core does with an undo.

use super::lines::to_redo;
use super::*;
use crate::testing::Bench;
use svc_snapshots::Id;

fn snap(byte: u8) -> Option<Snap> {
    let id = Id([byte; 32]);
    Some(Snap { commit: id, files: id, meta: id })
}

fn line(n: u64, kind: Kind, turn: u64, at: u64) -> Line {
    let byte = u8::try_from(n).unwrap();
    Line {
        n,
        kind,
        turn,
        at,
        folder: String::new(),
        snap: snap(byte),
        missed: None,
        late: false,
        of: 0,
        files: 1,
        left: 0,
        ms: 1,
    }
}

#[test]
fn lines_tell_turns_and_what_was_undone_of_them() {
    let mut lines = vec![
        line(1, Kind::Begin, 1, 10),
        line(2, Kind::End, 1, 20),
        line(3, Kind::Begin, 2, 30),
        line(4, Kind::End, 2, 40),
        line(5, Kind::Merge, 2, 45),
        line(6, Kind::Begin, 3, 50),
        line(7, Kind::End, 3, 60),
    ];
    let undone = |lines: &[Line]| turns(lines).iter().map(|turn| turn.undone).collect::<Vec<_>>();
    assert_eq!(undone(&lines), [None, None, None]);
    assert_eq!(to_redo(&lines), None);
    lines.push(Line { of: 3, ..line(8, Kind::Undo, 3, 70) });
    lines.push(Line { of: 2, ..line(9, Kind::Undo, 1, 80) });
    assert_eq!(undone(&lines), [Some(9), Some(9), Some(8)]);
    assert_eq!(to_redo(&lines).unwrap().n, 9);
    lines.push(Line { of: 9, ..line(10, Kind::Redo, 1, 90) });
    assert_eq!(undone(&lines), [None, None, Some(8)]);
    assert_eq!(to_redo(&lines).unwrap().n, 8);
    // One that is undone by two stays undone by the first.
    lines.push(Line { of: 3, ..line(11, Kind::Undo, 1, 95) });
    assert_eq!(undone(&lines), [Some(11), Some(11), Some(8)]);
}

#[test]
fn a_turn_whose_end_nobody_saw_ends_with_the_next_and_is_not_sharp() {
    let lines = [line(1, Kind::Begin, 1, 10), line(2, Kind::Begin, 2, 30), line(3, Kind::End, 2, 40)];
    let known = turns(&lines);
    assert_eq!(known[0].snaps(), Some((snap(1).unwrap(), snap(2).unwrap())));
    assert!(!known[0].is_sharp() && known[1].is_sharp());
    let missed = Line { snap: None, missed: Some("no space left".into()), ..line(4, Kind::Begin, 3, 50) };
    let known = turns(&[missed, line(5, Kind::End, 3, 60)]);
    assert_eq!((known[0].snaps(), known[0].why_not().as_deref()), (None, Some("no space left")));
    let open = turns(&[line(1, Kind::Begin, 1, 10)]);
    assert!(open[0].snaps().is_none() && open[0].why_not().is_some());
}

#[test]
fn a_turn_is_alone_where_no_other_was_open_in_the_same_folder_meanwhile() {
    let one = &turns(&[line(1, Kind::Begin, 1, 10), line(2, Kind::End, 1, 20)])[0];
    let other = |folder: &str, from: u64, to: u64| {
        let begin = Line { folder: folder.into(), ..line(1, Kind::Begin, 1, from) };
        turns(&[begin, Line { folder: folder.into(), ..line(2, Kind::End, 1, to) }])
    };
    assert!(is_alone(one, &[]));
    assert!(is_alone(one, &other("", 1, 9)) && is_alone(one, &other("", 21, 30)));
    assert!(!is_alone(one, &other("", 1, 10)) && !is_alone(one, &other("", 12, 13)));
    assert!(!is_alone(one, &other("", 20, 30)) && is_alone(one, &other(".svc/worktrees/x", 12, 13)));
    assert!(!is_alone(one, &turns(&[line(1, Kind::Begin, 1, 5)])), "one that is still open");
}

#[test]
fn an_undo_is_audited_with_a_bounded_list_of_files() {
    let mut bench = Bench::new();
    let agent = bench.agent("one");
    for is_redo in [false, true] {
        let restored = Restored {
            agent,
            is_redo,
            turn: 2,
            files: (0..30).map(|n| format!("f{n}")).collect(),
            reply: json!({"ok": true}),
        };
        let command = Command::Restored(Box::new(restored));
        assert_eq!(bench.command(crate::core::Command::Snapshots(command)).unwrap().status, 200);
    }
    for action in ["agent.undo", "agent.redo"] {
        let entry = &bench.audited(action)[0];
        assert_eq!((&entry["agentName"], &entry["fileCount"]), (&json!("one"), &json!(30)));
        assert_eq!(entry["files"].as_array().unwrap().len(), MAX_NAMED);
    }
}

#[test]
fn only_a_person_undoes_and_redoes() {
    let table = crate::assembly::routes::table();
    for path in ["/api/agents/:id/undo", "/api/agents/:id/redo"] {
        let route = table.routes().iter().find(|route| route.path == path).unwrap();
        let handler = format!("{:?}", route.handler);
        assert!(handler.starts_with("Work(OperatorOnly"), "{path}: {handler}");
    }
}
