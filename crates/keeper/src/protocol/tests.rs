use super::*;
use serde_json::json;
use std::os::unix::ffi::OsStringExt;

fn order() -> Order {
    let no_text = || OsString::from_vec(vec![0xff, b'x', 0xfe]);
    Order {
        token: "token".into(),
        run_dir: no_text().into(),
        program: no_text(),
        args: vec!["-c".into(), no_text(), OsString::new()],
        env: vec![("A".into(), no_text()), ("B".into(), OsString::new())],
        cwd: "/".into(),
        stdin: true,
        marker: Marker { agent: AgentId(0xdead_beef), project_dir: no_text().into() },
        stop_grace_ms: u64::MAX,
        orphan_ms: 0,
        nice: 7,
        ceiling: 8,
    }
}

fn orders() -> Vec<ToKeeper> {
    let note = Note { after: 9, what: json!({ "said": ["a", 1, null] }) };
    vec![
        ToKeeper::Start(order()),
        ToKeeper::Hello { version: 1, token: "t".into(), from: u64::MAX },
        ToKeeper::Write { seq: 1, note: None, bytes: vec![0, 255], close: false },
        ToKeeper::Write { seq: 2, note: Some(note), bytes: Vec::new(), close: true },
        ToKeeper::Stop { grace_ms: 5 },
        ToKeeper::Taken { offset: 1, seq: 2 },
        ToKeeper::Settings { orphan_ms: 3, ceiling: Some(9), frozen: true },
        ToKeeper::Forget,
    ]
}

fn answers() -> Vec<FromKeeper> {
    let welcome = Welcome {
        version: 1,
        pid: 2,
        start_ticks: 3,
        first: 4,
        end: 5,
        last_seq: 6,
        notes: vec![(7, Note { after: 8, what: json!(null) })],
    };
    let mut bytes = Vec::new();
    for record in all_records() {
        record.put(11, &mut bytes).unwrap();
    }
    vec![
        FromKeeper::Welcome(welcome),
        FromKeeper::Refused { why: "no".into() },
        FromKeeper::Records { offset: 7, bytes },
        FromKeeper::Records { offset: u64::MAX, bytes: Vec::new() },
    ]
}

fn all_records() -> Vec<Record<'static>> {
    vec![
        Record::Started { pid: 1, start_ticks: 2 },
        Record::StartFailed { error: "no".into() },
        Record::Out(b"out\0"),
        Record::Err(b""),
        Record::Written { seq: 3 },
        Record::Lost { seq: 4 },
        Record::Stuck { seconds: 5 },
        Record::Ended { code: None, signal: Some(9), signalled: true, leaked: 1, killed: 2, over: None },
        Record::Ended {
            code: None,
            signal: Some(9),
            signalled: true,
            leaked: 0,
            killed: 2,
            over: Some(Over { held: 9, ceiling: 8 }),
        },
    ]
}

fn split(frame: &[u8]) -> (u8, &[u8]) {
    let length = u32::from_le_bytes(frame[..4].try_into().unwrap());
    assert_eq!(frame.len(), HEAD_BYTES + usize::try_from(length).unwrap());
    (frame[4], &frame[HEAD_BYTES..])
}

#[test]
fn everything_arrives_as_it_was_said() {
    for order in orders() {
        let frame = order.encode().unwrap();
        let (kind, payload) = split(&frame);
        assert_eq!(ToKeeper::decode(kind, payload), Ok(order));
    }
    for answer in answers() {
        let frame = answer.encode().unwrap();
        let (kind, payload) = split(&frame);
        assert_eq!(FromKeeper::decode(kind, payload), Ok(answer));
    }
}

#[test]
fn what_is_cut_or_has_more_behind_it_is_refused() {
    for order in orders() {
        let frame = order.encode().unwrap();
        let (kind, payload) = split(&frame);
        for cut in 0..payload.len() {
            let found = ToKeeper::decode(kind, &payload[..cut]);
            // Bytes for the program end where the frame does.
            assert!(found.is_err() || matches!(found, Ok(ToKeeper::Write { .. })), "{order:?} {cut}");
        }
        let more = ToKeeper::decode(kind, &[payload, b"x"].concat());
        assert!(more.is_err() || matches!(more, Ok(ToKeeper::Write { .. })), "{order:?}");
    }
    for kind in 0..=u8::MAX {
        for garbage in [&b""[..], b"{}", b"null", &[0xff; 40], &[0; 40]] {
            // No panic and no great room, whatever it is taken for.
            let _ = (ToKeeper::decode(kind, garbage), FromKeeper::decode(kind, garbage));
        }
    }
}

#[test]
fn records_are_read_one_by_one_up_to_the_last_whole_one() {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    for (at, record) in all_records().iter().enumerate() {
        record.put(at as u64, &mut bytes).unwrap();
        ends.push(bytes.len() as u64);
    }
    for cut in 0..=bytes.len() {
        let whole = ends.iter().filter(|end| **end <= cut as u64).count();
        let found: Vec<_> = records(&bytes[..cut]).collect();
        assert_eq!(found.len(), whole, "{cut}");
        for (at, (end, time, record)) in found.into_iter().enumerate() {
            assert_eq!((end, time, &record), (ends[at], at as u64, &all_records()[at]));
        }
        let frame = FromKeeper::Records { offset: 3, bytes: bytes[..cut].to_vec() }.encode().unwrap();
        let (kind, payload) = split(&frame);
        assert_eq!(
            FromKeeper::decode(kind, payload).is_ok(),
            whole > 0 && ends[whole - 1] == cut as u64 || cut == 0
        );
    }
}

#[test]
fn an_order_tells_nobody_its_secrets() {
    let shown = format!(
        "{:?}",
        ToKeeper::Start(Order { token: "hush".into(), env: vec![("K".into(), "shh".into())], ..order() })
    );
    assert!(!shown.contains("hush") && !shown.contains("shh"), "{shown}");
}

#[test]
fn a_frame_beyond_the_bound_is_not_made() {
    let write = |bytes| ToKeeper::Write { seq: 1, note: None, bytes: vec![0; bytes], close: false };
    assert!(write(FRAME_BYTES_MAX).encode().is_err());
    assert!(write(FRAME_BYTES_MAX - 100).encode().is_ok());
}
