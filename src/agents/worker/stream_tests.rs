//! What the core is told of a stream, and in which order.

use super::*;
use crate::agents::wire::Wire;
use crate::agents::worker_log::LogStore;
use crate::core::ids::{AgentId, LineageId};
use crate::providers::SessionStart;
use crate::providers::native::Native;
use std::sync::Mutex;

/// Its turn's end and the message stand in what was read at once: the turn is over before the message begins
/// another, or the core would take the message's work for done.
#[test]
fn a_message_is_told_after_what_its_program_did_before() {
    let folder = std::env::temp_dir().join(format!("svc-stream-{}", std::process::id()));
    let logs = Arc::new(LogStore::open(&folder).unwrap());
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&told);
    let report = Arc::new(move |_: AgentId, report: RunReport| {
        hears.lock().unwrap().push(match report {
            RunReport::Output(batch) => format!("{:?} {}", batch.activities[0], batch.upto),
            other => format!("{other:?}"),
        });
    });
    let (_open, gate) = crossbeam_channel::bounded(0);
    let output = Output::new(AgentId(1), LineageId(2), logs, report, gate, Wire::new(AgentId(1)));
    let conversation = Box::new(Native::new("go", &SessionStart::Fresh));
    let mut stream = Stream::new(output, Arc::default(), conversation);
    // There is no keeper, but all that is written counts as written.
    stream.seq_known = 10;
    stream.act(Act::Open);
    stream.act(Act::Say { message: 7, text: "and now this".into() });
    let line = b"{\"type\":\"turn-ended\",\"text\":\"done\"}\n";
    stream.take(40, Time(1), Record::Out(line));
    stream.take(50, Time(1), Record::Written { seq: 2 });
    let told = told.lock().unwrap().clone();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("TurnEnded") && told[0].ends_with(" 1"), "{told:?}");
    assert_eq!(told[1], "Said { message_id: 7, delivered: true }");
}
