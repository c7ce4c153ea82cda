//! The store: what goes together, what waits, and what a disk that refuses leaves behind.

use super::round::take;
use super::*;

/// A schedule's start must never overtake its mark.
#[test]
fn what_waits_for_the_disk_is_told_when_everything_put_before_is_there() {
    let folder = std::env::temp_dir().join(format!("svc-stored-{}", std::process::id()));
    let path = folder.join(Document::Schedules.path());
    // A folder stands where the document is to be: it cannot be written.
    fs::create_dir_all(path.join("in the way")).unwrap();
    let logs = Arc::new(LogStore::open(&folder.join("logs")).unwrap());
    let (tell, told) = crossbeam_channel::unbounded();
    let store = Store::start(folder.clone(), logs, move |what| tell.send(what).unwrap()).unwrap();
    store.put(Document::Schedules, &Arc::new(State::default()), Duration::ZERO);
    store.tell_when_stored(Timer::Snapshot);
    let next = || told.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(matches!(next(), Told::Trouble(Some(_))), "the disk refuses, and nothing else is told");
    fs::remove_dir_all(&path).unwrap();
    let after: Vec<Told> = std::iter::repeat_with(next)
        .skip_while(|what| matches!(what, Told::Trouble(Some(_))))
        .take(2)
        .collect();
    assert_eq!(after, [Told::Trouble(None), Told::Stored(Timer::Snapshot)]);
    assert!(path.is_file());
    drop(store);
    fs::remove_dir_all(&folder).unwrap();
}

/// A power cut between the two would leave a record that does not know what it is to do.
#[test]
fn a_task_is_on_disk_before_the_record_that_it_belongs_to() {
    let folder = std::env::temp_dir().join(format!("svc-task-{}", std::process::id()));
    let mut bench = crate::testing::Bench::new();
    let agent = bench.agent("dev");
    let lineage = bench.state.agents.get(agent).unwrap().lineage_id;
    let task = folder.join(Document::Prompt(lineage).path());
    fs::create_dir_all(task.join("in the way")).unwrap();
    let logs = Arc::new(LogStore::open(&folder.join("logs")).unwrap());
    let (tell, told) = crossbeam_channel::unbounded();
    let store = Store::start(folder.clone(), logs, move |what| tell.send(what).unwrap()).unwrap();
    let state = Arc::new(bench.state.clone());
    store.put(Document::Agents, &state, SOON);
    store.put(Document::Prompt(lineage), &state, SOON);
    store.tell_when_stored(Timer::Snapshot);
    let refused = told.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(matches!(refused, Told::Trouble(Some(_))));
    assert!(!folder.join(Document::Agents.path()).exists(), "its task is not there");
    drop(store);
    fs::remove_dir_all(&folder).unwrap();
}

/// The disk has refused it and takes everything again, and the record is due before the next try.
#[test]
fn a_task_that_was_refused_goes_with_the_next_records_and_not_behind_them() {
    let now = Instant::now();
    let lineage = crate::core::ids::LineageId(7);
    let [task, brief] = [Document::Prompt(lineage), Document::Handoff(lineage)];
    for is_later in [false, true] {
        let mut inbox = Inbox::default();
        inbox.due.extend([task, brief, Document::Schedules].map(|document| (document, now + RETRY)));
        assert_eq!(take(&mut inbox, now).documents, []);
        let records = if is_later { &mut inbox.later } else { &mut inbox.due };
        records.insert(Document::Agents, now);
        assert_eq!(take(&mut inbox, now).documents, [task, brief, Document::Agents]);
        assert_eq!(take(&mut inbox, now + RETRY).documents, [Document::Schedules]);
    }
}

/// What grows with the history would make every change as slow as the history is long.
#[test]
fn what_somebody_waits_for_takes_along_what_is_due_soon_but_not_the_ledger() {
    let now = Instant::now();
    let mut inbox = Inbox::default();
    let soon = [Document::Usage, Document::Timeline, Document::Agents];
    inbox.due.extend(soon.map(|document| (document, now + SOON)));
    inbox.due.insert(Document::Locks, now);
    let waiting = || Waiting::Core(CallId(1), Box::new(|_| ()));
    inbox.waiting.push(waiting());
    assert_eq!(take(&mut inbox, now).documents, [Document::Agents, Document::Locks]);
    inbox.waiting.push(waiting());
    inbox.refused.insert(Document::Timeline);
    assert_eq!(take(&mut inbox, now).documents, [Document::Timeline], "while the disk refuses it");
    assert_eq!(take(&mut inbox, now + SOON).documents, [Document::Usage], "when it is due");
}

/// An acknowledged change without its line in the audit log would be one that nobody can trace.
#[test]
fn a_change_is_refused_while_its_audit_line_cannot_be_written_and_the_line_comes_later() {
    let folder = std::env::temp_dir().join(format!("svc-unwritten-{}", std::process::id()));
    let path = folder.join(Journal::Audit.path());
    fs::create_dir_all(path.join("in the way")).unwrap();
    let logs = Arc::new(LogStore::open(&folder.join("logs")).unwrap());
    let (tell, told) = crossbeam_channel::unbounded();
    let store = Store::start(folder.clone(), logs, move |what| tell.send(what).unwrap()).unwrap();
    let change = |line: &str| {
        let state = Arc::new(State::default());
        let (answer, reply) = crossbeam_channel::bounded(1);
        store.append(Journal::Audit, line.as_bytes().into());
        store.put(Document::Schedules, &state, Duration::ZERO);
        store.commit(&state, vec![(answer, crate::api::Reply::json(200, &serde_json::json!({})).into())]);
        reply.recv_timeout(Duration::from_secs(20)).unwrap().http().status
    };
    assert_eq!(change(r#"{"n":1}"#), 503);
    assert!(matches!(told.recv().unwrap(), Told::Trouble(Some(_))));
    fs::remove_dir_all(&path).unwrap();
    while told.recv_timeout(Duration::from_secs(20)).unwrap() != Told::Trouble(None) {}
    assert_eq!(change(r#"{"n":2}"#), 200);
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"n\":1}\n{\"n\":2}\n");
    drop(store);
    fs::remove_dir_all(&folder).unwrap();
}

/// A keeper forgets what is settled: what was only being written, or is due later, is not.
#[test]
fn settled_is_what_was_put_before_and_is_on_disk_however_late_it_was_due() {
    let folder = std::env::temp_dir().join(format!("svc-settled-{}", std::process::id()));
    let path = folder.join(Document::Usage.path());
    fs::create_dir_all(path.join("in the way")).unwrap();
    let logs = Arc::new(LogStore::open(&folder.join("logs")).unwrap());
    let store = Store::start(folder.clone(), logs, |_| ()).unwrap();
    let state = Arc::new(State::default());
    let (settled, told) = crossbeam_channel::unbounded();
    let tell = |n: u32| {
        let settled = settled.clone();
        move || settled.send(n).unwrap()
    };
    store.when_settled(tell(1));
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(1), "nothing was put");
    store.put(Document::Agents, &state, SOON);
    store.put_later(Document::Usage, &state);
    store.when_settled(tell(2));
    while !folder.join(Document::Agents.path()).is_file() {
        assert!(told.recv_timeout(Duration::from_millis(5)).is_err(), "one of both is not there");
    }
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(2));
    assert!(path.is_file() && folder.join(Document::Agents.path()).is_file());
    store.put(Document::Agents, &state, Duration::from_secs(600));
    store.when_settled(tell(3));
    store.remove(Document::Agents);
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(3), "what is removed need not be written");
    drop(store);
    fs::remove_dir_all(&folder).unwrap();
}

/// A round that was taken before a document was put again has written what it was before that.
#[test]
fn settling_waits_for_the_round_after_the_one_that_is_under_way() {
    let now = Instant::now();
    let mut inbox = Inbox::default();
    inbox.due.extend([Document::Agents, Document::Locks].map(|document| (document, now)));
    let first = take(&mut inbox, now).documents;
    inbox.put(Document::Agents, now);
    let needs = inbox.needs();
    inbox.settling.push(Settling { needs, then: Box::new(|| ()) });
    inbox.written(&first);
    assert_eq!(inbox.settling[0].needs.keys().collect::<Vec<_>>(), [&Document::Agents]);
    let second = take(&mut inbox, now).documents;
    inbox.written(&second);
    assert!(inbox.settling[0].needs.is_empty());
}

/// Every batch of output has the same few documents put again: a thread woken for each would cost more than
/// the lines do.
#[test]
fn the_thread_is_woken_for_what_is_new_or_sooner_and_not_for_what_is_due_already() {
    let now = Instant::now();
    let mut inbox = Inbox::default();
    assert!(inbox.put(Document::Agents, now + SOON), "it is new");
    assert!(!inbox.put(Document::Agents, now + 2 * SOON), "it is written before");
    assert_eq!(inbox.due[&Document::Agents], now + SOON);
    assert!(inbox.put(Document::Agents, now), "it is sooner");
    assert!(!inbox.put_later(Document::Agents, now + SOON), "it goes along");
    assert!(inbox.put_later(Document::Usage, now + SOON), "it is new");
    assert!(!inbox.put_later(Document::Usage, now + SOON));
    assert!(inbox.put(Document::Usage, now + SOON), "it goes along now");
    assert!(inbox.later.is_empty());
    inbox.removals.insert(Document::Schedules);
    assert!(inbox.put(Document::Schedules, now + SOON) && inbox.removals.is_empty(), "it is there again");
}
