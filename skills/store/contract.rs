//! What every store must do, as one suite that takes any store. A store's own tests call [`all`].

use super::{ClientHash, Incoming, Store, StoreError};
use crate::authoring::moves::{self, Move};
use crate::authoring::{content::Content, parse_edit, parse_new};
use crate::authors::AuthorPatch;
use crate::catalogue::Catalogue;
use crate::catalogue::query::ListQuery;
use crate::installs::WINDOW_MS;
use crate::model::{Skill, Status, Verification};
use crate::{ratings, seed};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use svc_base::time::Time;

/// A skill for tests.
pub fn skill(name: &str) -> Skill {
    let body =
        json!({"name": format!("Skill {name}"), "description": "Made for a test.", "category": "quality"});
    moves::create(parse_new(body.as_object().unwrap()).unwrap(), Time(1))
}

/// One part of the suite, on an empty store.
type Part = fn(&Arc<dyn Store>);

/// Runs the whole suite; `fresh` gives an empty store each time.
pub fn all(fresh: &dyn Fn() -> Arc<dyn Store>) {
    let parts: [(&str, Part); 15] = [
        ("create gives everything back", create_gives_everything_back),
        ("slug collisions", slug_collisions_take_the_lowest_free_suffix),
        ("edits", edits_keep_what_they_do_not_name),
        ("moves", moves_are_refused_as_the_table_says),
        ("ratings", ratings_replace_and_average),
        ("installs", installs_count_once_per_window),
        ("hidden skills", hidden_skills_take_neither_rating_nor_install),
        ("authors", authors_are_made_filled_and_edited),
        ("marks", marks_go_with_text_and_author),
        ("sources", a_record_changes_only_skills_of_its_own_source),
        ("seeds", seeds_come_twice_and_keep_their_counters),
        ("generations", changes_follow_the_generation),
        ("concurrent writers", thirty_two_writers_lose_and_double_nothing),
        ("catalogue", the_catalogue_follows),
        ("backup and ledger", the_ledger_of_an_empty_market_balances),
    ];
    for (name, part) in parts {
        eprintln!("contract: {name}");
        part(&fresh());
    }
}

/// A draft with further fields.
pub fn draft(name: &str, more: &Value) -> crate::authoring::Draft {
    let mut body = json!({
        "name": name, "description": "Made for a test.", "category": "quality", "content": "# Text\n",
    });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    parse_new(body.as_object().unwrap()).unwrap()
}

fn edit(body: &Value) -> crate::authoring::Draft {
    parse_edit(body.as_object().unwrap()).unwrap()
}

/// A client of a number.
pub fn client(n: u8) -> ClientHash {
    ClientHash([n; 16])
}

/// The status of a refusal.
pub fn refused<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> u16 {
    match outcome {
        Err(StoreError::Refused(problem)) => problem.status,
        other => panic!("not refused: {other:?}"),
    }
}

fn published(store: &dyn Store, name: &str) -> String {
    let id = store.create(draft(name, &json!({})), Time(1000)).unwrap().value.id;
    store.transition(&id, Move::Publish, Time(1000)).unwrap();
    id
}

fn read(store: &dyn Store, id: &str) -> Skill {
    let all = store.changes_since(0).unwrap().skills;
    all.into_iter().find(|skill| skill.id == id).unwrap()
}

fn create_gives_everything_back(store: &Arc<dyn Store>) {
    let more = json!({
        "author": "Ada", "authorProfile": {"github": "ada", "website": "https://a.example", "twitter": "ada_l"},
        "tags": ["One", "zwei"], "roles": ["backend"], "icon": "🇩🇪", "price": 4.99, "version": "2.0-rc.1",
    });
    let made = store.create(draft("Ünïcode Näme", &more), Time(1234)).unwrap().value;
    let found = read(&**store, "unicode-name");
    assert_eq!(found, made);
    assert_eq!((found.price_cents, found.status, found.created_at), (499, Status::Draft, Time(1234)));
    assert_eq!(found.profile.twitter, "ada_l");
    assert_eq!(store.content(&found.digest).unwrap().as_deref(), Some("# Text\n"));
    assert_eq!(store.content(&"0".repeat(64)).unwrap(), None);
    assert_eq!(store.health().unwrap(), None);
}

fn slug_collisions_take_the_lowest_free_suffix(store: &Arc<dyn Store>) {
    let ids: Vec<String> = ["A Skill", "a skill!", "A-SKILL", "a skill 3"]
        .iter()
        .map(|name| store.create(draft(name, &json!({})), Time(1)).unwrap().value.id)
        .collect();
    assert_eq!(ids, ["a-skill", "a-skill-2", "a-skill-3", "a-skill-3-2"]);
    store.transition("a-skill-2", Move::Unlist, Time(2)).unwrap();
    let next = store.create(draft("a skill", &json!({})), Time(3)).unwrap().value.id;
    assert_eq!(next, "a-skill-4", "ids are never used again");
}

fn edits_keep_what_they_do_not_name(store: &Arc<dyn Store>) {
    let made = store.create(draft("Edits", &json!({"tags": ["keep"]})), Time(1000)).unwrap();
    let same = store.update("edits", edit(&json!({})), Time(2000)).unwrap();
    assert_eq!((same.value, same.generation), (made.value, made.generation), "nothing moved");
    let body = json!({"name": "Renamed", "content": "# New\n", "price": 1});
    let after = store.update("edits", edit(&body), Time(2000)).unwrap().value;
    assert_eq!(read(&**store, "edits"), after);
    assert_eq!((after.name.as_str(), after.tags.len(), after.updated_at), ("Renamed", 1, Time(2000)));
    assert_eq!(store.content(&after.digest).unwrap().as_deref(), Some("# New\n"));
    assert_eq!(refused(store.update("nobody", edit(&json!({})), Time(3))), 404);
}

fn moves_are_refused_as_the_table_says(store: &Arc<dyn Store>) {
    let review = |approve| Move::Review { approve, note: "because".into() };
    let id = store.create(draft("Paid", &json!({"price": 5})), Time(1)).unwrap().value.id;
    let to = |step: Move| store.transition(&id, step, Time(2)).map(|done| done.value.status);
    assert_eq!(refused(to(review(true))), 409);
    assert_eq!(to(Move::Publish).unwrap(), Status::Review);
    assert_eq!(to(review(false)).unwrap(), Status::Rejected);
    assert_eq!(to(Move::Publish).unwrap(), Status::Review);
    assert_eq!(to(review(true)).unwrap(), Status::Published);
    assert_eq!(refused(to(review(true))), 409);
    assert_eq!(to(Move::Publish).unwrap(), Status::Published);
    assert_eq!(to(Move::Unlist).unwrap(), Status::Unlisted);
    assert_eq!(to(Move::Unlist).unwrap(), Status::Unlisted, "idempotent");
    assert_eq!(refused(store.transition("nobody", Move::Publish, Time(2))), 404);
    let empty = store.create(draft("Empty", &json!({"content": ""})), Time(1)).unwrap().value.id;
    assert_eq!(refused(store.transition(&empty, Move::Publish, Time(2))), 400);
    rejected_is_approved_before_it_is_listed(&**store);
    let marked = store.transition(&id, Move::Verify(Verification::Creator), Time(3)).unwrap().value;
    assert_eq!(marked.verification, Verification::Creator);
}

fn rejected_is_approved_before_it_is_listed(store: &dyn Store) {
    let review = |approve| Move::Review { approve, note: "because".into() };
    let id = store.create(draft("Rejected", &json!({"price": 5})), Time(1)).unwrap().value.id;
    let to = |step: Move| store.transition(&id, step, Time(2)).unwrap().value.status;
    to(Move::Publish);
    to(review(false));
    to(Move::Unlist);
    store.update(&id, edit(&json!({"price": 0})), Time(3)).unwrap();
    assert_eq!(to(Move::Publish), Status::Review, "neither DELETE nor a price of 0 leads past the operator");
    to(Move::Unlist);
    assert_eq!(to(Move::Publish), Status::Review, "nor does asking again");
    assert_eq!(to(review(true)), Status::Published);
    to(Move::Unlist);
    assert_eq!(to(Move::Publish), Status::Published, "the last decision counts");
}

fn ratings_replace_and_average(store: &Arc<dyn Store>) {
    let id = published(&**store, "Rated");
    let rate = |n, rating| {
        let skill = store.rate(&id, client(n), rating, Time(5)).unwrap().value;
        (ratings::average(&skill), ratings::raters(&skill))
    };
    assert_eq!(rate(1, 5), (500, 1));
    assert_eq!(rate(2, 2), (350, 2));
    assert_eq!(rate(1, 1), (150, 2), "a repeat replaces");
    assert_eq!(rate(1, 1), (150, 2));
    assert_eq!(rate(3, 5), (267, 3));
    let found = read(&**store, &id);
    assert_eq!((found.rating_sum, found.rating_count), (8, 3));
}

fn installs_count_once_per_window(store: &Arc<dyn Store>) {
    let id = published(&**store, "Installed");
    let at = |n, ms| {
        let done = store.install(&id, client(n), Time(ms)).unwrap().value;
        (done.downloads, done.counted)
    };
    assert_eq!(at(1, 10_000), (1, true));
    assert_eq!(at(1, 10_000 + WINDOW_MS - 1), (1, false));
    assert_eq!(at(2, 10_000 + WINDOW_MS - 1), (2, true), "another client counts");
    assert_eq!(at(1, 10_000 + WINDOW_MS), (3, true));
    assert_eq!(at(1, 10_000 + WINDOW_MS + 1), (3, false), "from the last counted one");
    assert_eq!(read(&**store, &id).downloads, 3);
    assert_eq!(store.prune(Time(10_000 + 2 * WINDOW_MS)).unwrap(), 1, "the second client's has passed");
    assert_eq!(at(1, 10_000 + 2 * WINDOW_MS - 1), (3, false), "a window that holds is not forgotten");
    assert_eq!(at(3, 10_000 + 9 * WINDOW_MS), (4, true), "by a clock that is far ahead");
    assert_eq!(store.prune(Time(10_000 + 2 * WINDOW_MS)).unwrap(), 1, "which is not believed");
}

fn hidden_skills_take_neither_rating_nor_install(store: &Arc<dyn Store>) {
    let id = store.create(draft("Hidden", &json!({})), Time(1)).unwrap().value.id;
    let both = || {
        let rate = refused(store.rate(&id, client(1), 5, Time(2)));
        (rate, refused(store.install(&id, client(1), Time(2))))
    };
    assert_eq!(both(), (404, 404));
    store.transition(&id, Move::Unlist, Time(2)).unwrap();
    assert_eq!(both(), (404, 404), "never published");
    store.transition(&id, Move::Publish, Time(3)).unwrap();
    store.transition(&id, Move::Unlist, Time(4)).unwrap();
    assert_eq!(both(), (410, 410), "once published");
    assert_eq!(refused(store.install("nobody", client(1), Time(2))), 404);
    let found = read(&**store, &id);
    assert_eq!((found.downloads, found.rating_count), (0, 0));
}

fn authors_are_made_filled_and_edited(store: &Arc<dyn Store>) {
    let with = |profile: Value| json!({"author": "Ada", "authorProfile": profile});
    store.create(draft("First", &with(json!({"github": "ada", "bio": "one"}))), Time(1)).unwrap();
    let more = with(json!({"github": "ada", "bio": "two", "website": "https://a.example"}));
    store.create(draft("Second", &more), Time(2)).unwrap();
    let author = |id: &str| {
        let all = store.changes_since(0).unwrap().authors;
        all.into_iter().find(|author| author.id == id).unwrap()
    };
    let found = author("gh-ada");
    assert_eq!((found.display_name.as_str(), found.created_at), ("Ada", Time(1)));
    assert_eq!(
        (found.profile.bio.as_str(), found.profile.website.as_str()),
        ("one", "https://a.example"),
        "a create fills only what is empty"
    );
    let patch = json!({"displayName": "Ada L", "bio": "three", "portfolio": "https://p.example"});
    let patch = AuthorPatch::parse(patch.as_object().unwrap()).unwrap();
    store.edit_author("gh-ada", patch.clone(), Time(3)).unwrap();
    assert_eq!(author("gh-ada").portfolio, "https://p.example");
    for id in ["first", "second"] {
        let skill = read(&**store, id);
        assert_eq!((skill.author.as_str(), skill.profile.bio.as_str()), ("Ada L", "three"), "the copies");
    }
    assert_eq!(refused(store.edit_author("nobody", patch.clone(), Time(3))), 404);
    store.take_in(seed::all().unwrap(), Time(4)).unwrap();
    assert_eq!(refused(store.edit_author(crate::model::VENDOR_AUTHOR_ID, patch, Time(5))), 403);
}

fn marks_go_with_text_and_author(store: &Arc<dyn Store>) {
    let profile = json!({"author": "Ada", "authorProfile": {"github": "ada"}});
    let id = store.create(draft("Marked", &profile), Time(1)).unwrap().value.id;
    let mark = || {
        store.transition(&id, Move::Verify(Verification::Creator), Time(2)).unwrap();
        store.transition(&id, Move::Feature(true), Time(2)).unwrap();
    };
    let marks = || {
        let skill = read(&**store, &id);
        (skill.verification, skill.featured)
    };
    let renamed = json!({"displayName": "Somebody Else"});
    let other_text = || {
        let mut incoming = Incoming { skill: read(&**store, &id), content: "# Other\n".into() };
        incoming.skill.digest = Content::new(incoming.content.clone()).digest;
        incoming
    };
    mark();
    store.update(&id, edit(&json!({"tags": ["new"]})), Time(3)).unwrap();
    assert_eq!(marks(), (Verification::Creator, true), "tags say nothing");
    store.update(&id, edit(&json!({"author": "Mallory"})), Time(3)).unwrap();
    assert_eq!(marks(), (Verification::Nobody, false), "an edit");
    mark();
    store.edit_author("gh-ada", AuthorPatch::parse(renamed.as_object().unwrap()).unwrap(), Time(4)).unwrap();
    assert_eq!(marks(), (Verification::Nobody, false), "a renamed author");
    mark();
    store.take_in(vec![other_text()], Time(5)).unwrap();
    assert_eq!(marks(), (Verification::Nobody, false), "an import");
    assert_eq!(store.flaws().unwrap(), Vec::<String>::new());
}

fn a_record_changes_only_skills_of_its_own_source(store: &Arc<dyn Store>) {
    let mut theirs = seed::all().unwrap();
    theirs.truncate(1);
    let id = theirs[0].skill.id.clone();
    let mut others = theirs.clone();
    let skill = &mut others[0].skill;
    skill.source = crate::model::Source::Community;
    skill.name = "Taken Over".into();
    (skill.author, skill.author_id) = ("Mallory".into(), "mallory".into());
    store.take_in(theirs.clone(), Time(1)).unwrap();
    assert_eq!(store.take_in(others.clone(), Time(2)).unwrap().value, 0, "the vendor's stays as it is");
    assert_eq!(read(&**store, &id).name, theirs[0].skill.name);
    skill_of_another(store, others, theirs);
}

fn skill_of_another(store: &Arc<dyn Store>, mut others: Vec<Incoming>, mut theirs: Vec<Incoming>) {
    for incoming in others.iter_mut().chain(&mut theirs) {
        incoming.skill.id = "came-first".into();
    }
    store.take_in(others, Time(3)).unwrap();
    assert_eq!(
        store.take_in(theirs, Time(4)).unwrap().value,
        0,
        "nor does the vendor put its name on another's"
    );
    assert_eq!(read(&**store, "came-first").author, "Mallory");
}

fn seeds_come_twice_and_keep_their_counters(store: &Arc<dyn Store>) {
    let first = store.take_in(seed::all().unwrap(), Time(1)).unwrap();
    assert_eq!(first.value, 21);
    let again = store.take_in(seed::all().unwrap(), Time(2)).unwrap();
    assert_eq!((again.value, again.generation), (0, first.generation), "nothing moved");
    store.install("code-review", client(1), Time(3)).unwrap();
    let rated = store.rate("code-review", client(1), 1, Time(3)).unwrap().value;
    assert_eq!((ratings::average(&rated), ratings::raters(&rated)), (488, 202));
    assert_eq!(refused(store.update("code-review", edit(&json!({})), Time(4))), 403);
    let mut changed = seed::all().unwrap();
    changed.retain(|seed| seed.skill.id == "code-review");
    let content = Content::new("# Other\n".into());
    let Incoming { skill, .. } = changed.remove(0);
    let skill = Skill { digest: content.digest.clone(), downloads: 0, ..skill };
    store.take_in(vec![Incoming { skill, content: content.text }], Time(5)).unwrap();
    let found = read(&**store, "code-review");
    assert_eq!((found.downloads, found.rating_count, found.updated_at), (2351, 1, Time(5)));
    assert_eq!(store.content(&found.digest).unwrap().as_deref(), Some("# Other\n"));
}

fn changes_follow_the_generation(store: &Arc<dyn Store>) {
    let one = store.create(draft("One", &json!({})), Time(1)).unwrap();
    let two = store.create(draft("Two", &json!({})), Time(1)).unwrap();
    assert!(two.generation > one.generation);
    assert_eq!(store.generation().unwrap(), two.generation);
    let changes = store.changes_since(one.generation).unwrap();
    let ids: Vec<&str> = changes.skills.iter().map(|skill| skill.id.as_str()).collect();
    assert_eq!((ids, changes.generation), (vec!["two"], two.generation));
    assert_eq!(store.changes_since(two.generation).unwrap().skills, []);
    let refused_one = store.transition("nobody", Move::Publish, Time(2));
    assert_eq!(refused(refused_one), 404);
    assert_eq!(store.generation().unwrap(), two.generation, "a refusal changes nothing");
}

fn thirty_two_writers_lose_and_double_nothing(store: &Arc<dyn Store>) {
    const WRITERS: u8 = 32;
    const ROUNDS: u8 = 8;
    let id = published(&**store, "Busy");
    let ids: Vec<HashSet<String>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| {
                let id = &id;
                scope.spawn(move || {
                    let mut made = HashSet::new();
                    for round in 0..ROUNDS {
                        store.install(id, client(n), Time(u64::from(round) * 10 + 5000)).unwrap();
                        store.rate(id, client(n), u64::from(n % 5) + 1, Time(5000)).unwrap();
                        let new = store.create(draft("Same Name", &json!({})), Time(6000)).unwrap();
                        made.insert(new.value.id);
                    }
                    made
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let found = read(&**store, &id);
    assert_eq!(found.downloads, u64::from(WRITERS), "each client counts once");
    assert_eq!(found.rating_count, u64::from(WRITERS));
    assert_eq!(found.rating_sum, (0..u64::from(WRITERS)).map(|n| n % 5 + 1).sum::<u64>());
    let distinct: HashSet<&String> = ids.iter().flatten().collect();
    assert_eq!(distinct.len(), usize::from(WRITERS) * usize::from(ROUNDS), "no id twice");
    let last = format!("same-name-{}", usize::from(WRITERS) * usize::from(ROUNDS));
    assert!(distinct.contains(&last), "and none left out");
}

fn the_catalogue_follows(store: &Arc<dyn Store>) {
    store.take_in(seed::all().unwrap(), Time(1)).unwrap();
    let catalogue = Catalogue::load(Arc::clone(store), "http://here".into()).unwrap();
    let before = catalogue.snapshot();
    let done = store.install("math-olympiad", client(1), Time(2)).unwrap();
    assert_eq!(before.get("math-olympiad").unwrap().skill.downloads, 340);
    let after = catalogue.reach(done.generation).unwrap();
    assert_eq!(after.get("math-olympiad").unwrap().skill.downloads, 341);
    let id = published(&**store, "Fresh");
    catalogue.follow().unwrap();
    let (page, total, _) = catalogue.snapshot().find(&ListQuery::default()).pipe();
    assert_eq!((page.last().unwrap().as_str(), total), (id.as_str(), 22));
    catalogue.snapshot().assert_sound();
}

/// Page as ids, so that it outlives its snapshot.
trait Pipe {
    fn pipe(self) -> (Vec<String>, usize, [usize; 6]);
}

impl Pipe for (Vec<&crate::catalogue::entry::Entry>, usize, [usize; 6]) {
    fn pipe(self) -> (Vec<String>, usize, [usize; 6]) {
        (self.0.iter().map(|entry| entry.skill.id.clone()).collect(), self.1, self.2)
    }
}

fn the_ledger_of_an_empty_market_balances(store: &Arc<dyn Store>) {
    assert_eq!(store.unbalanced_transactions().unwrap(), Vec::<String>::new());
}
