//! Lists, orders, counts and searches, against a plain and slow way of doing the same.

use super::entry::Entry;
use super::query::{ListQuery, Sort, searched};
use super::snapshot::Snapshot;
use crate::model::{Category, Skill, Status};
use crate::store::Changes;
use crate::store::contract::skill;
use std::cmp::Reverse;
use svc_base::api::{Method, Request, parse_query};
use svc_base::time::Time;

fn request(query: &str) -> Request {
    Request {
        method: Method::Get,
        path: "/api/v1/skills".into(),
        segments: Vec::new(),
        query: parse_query(query).unwrap(),
        headers: Vec::new(),
        body: Vec::new(),
        peer: ([127, 0, 0, 1], 1).into(),
        local: ([127, 0, 0, 1], 2).into(),
        base: String::new(),
        caller: std::sync::Arc::default(),
    }
}

fn parse(query: &str) -> ListQuery {
    ListQuery::parse(&request(query)).unwrap()
}

fn status(query: &str) -> u16 {
    ListQuery::parse(&request(query)).unwrap_err().status
}

#[test]
fn decisions_3_query_values() {
    assert_eq!(parse(""), ListQuery::default());
    assert_eq!((parse("limit=200").limit, parse("limit=201").limit), (200, 200));
    assert_eq!(parse("limit=99999999999999999999999").limit, 200);
    assert_eq!(parse("offset=7&limit=3").offset, 7);
    assert_eq!(parse("limit=&sort=&category=&search=&status=&author=&offset="), ListQuery::default());
    assert_eq!(parse("unknown=1&unknown=2"), ListQuery::default());
    assert!(parse("status=all").wants_all());
    assert_eq!(parse("search=Git+GIT++review").words, ["git", "review"]);
    for bad in [
        "limit=0",
        "limit=-1",
        "limit=1.5",
        "limit=x",
        "offset=-1",
        "offset=x",
        "limit=1&limit=2",
        "search=a&search=b",
        "category=games",
        "sort=best",
        "status=hidden",
        &format!("search={}", "x".repeat(201)),
    ] {
        assert_eq!(status(bad), 400, "{bad}");
    }
    let all = ListQuery::parse(&request("limit=0&sort=x&category=y")).unwrap_err();
    assert_eq!(all.errors.len(), 3, "all violations at once");
}

#[test]
fn decisions_3_links_lead_to_the_other_pages() {
    let links = parse("search=a%20b&limit=10&offset=20").links("/p", 45).unwrap();
    assert_eq!(
        links,
        "</p?search=a%20b&limit=10>; rel=\"first\", </p?search=a%20b&limit=10&offset=10>; rel=\"prev\", \
         </p?search=a%20b&limit=10&offset=30>; rel=\"next\", </p?search=a%20b&limit=10&offset=40>; rel=\"last\""
    );
    assert_eq!(parse("").links("/p", 50), None);
    assert!(!parse("offset=1000").links("/p", 51).unwrap().contains("next"));
}

/// A repeatable stream of numbers.
fn random(seed: &mut u64, below: u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed % below
}

fn some(seed: &mut u64, n: u64) -> Skill {
    let word = ["git", "Review", "tests", "Äpfel"][usize::try_from(random(seed, 4)).unwrap()];
    Skill {
        id: format!("skill-{n}"),
        name: format!("{word} {}", random(seed, 5)),
        description: format!("About {} and more", random(seed, 7)),
        downloads: random(seed, 4),
        rating_sum: 3 * random(seed, 3),
        rating_count: random(seed, 3),
        category: Category::ALL[usize::try_from(random(seed, 6)).unwrap()],
        status: Status::ALL[usize::try_from(random(seed, 5)).unwrap()],
        author_id: format!("author-{}", random(seed, 3)),
        created_at: Time(random(seed, 5)),
        ..skill("x")
    }
}

/// The slow way: filter and sort everything.
fn slow<'a>(all: &'a Snapshot, query: &ListQuery) -> (Vec<&'a str>, usize, [usize; 6]) {
    let mut found: Vec<&Entry> = all
        .entries()
        .iter()
        .map(AsRef::as_ref)
        .filter(|e| query.status.is_none_or(|s| s == e.skill.status))
        .filter(|e| query.author.as_ref().is_none_or(|a| *a == e.skill.author_id))
        .filter(|e| {
            let text = searched(&format!("{} {}", e.skill.name, e.skill.description));
            // Ids and authors are found by their whole words; here these are numbers.
            let more = searched(&format!("{} {}", e.skill.id, e.skill.author));
            let holds = |word: &String| {
                text.contains(word) || more.split(|c: char| !c.is_alphanumeric()).any(|part| part == word)
            };
            query.words.iter().all(holds)
        })
        .collect();
    let mut counts = [0; 6];
    for entry in &found {
        counts[entry.skill.category as usize] += 1;
    }
    found.retain(|e| query.category.is_none_or(|c| c == e.skill.category));
    found.sort_by(|a, b| a.skill.id.cmp(&b.skill.id));
    match query.sort {
        Sort::Popular => found.sort_by_key(|e| Reverse(e.skill.downloads)),
        Sort::Rating => found.sort_by_key(|e| (Reverse(e.rating), Reverse(e.raters))),
        Sort::Newest => found.sort_by_key(|e| Reverse(e.skill.created_at)),
        Sort::Name => found.sort_by_key(|e| e.skill.name.to_lowercase()),
    }
    let total = found.len();
    let page = found.iter().skip(query.offset).take(query.limit).map(|e| e.skill.id.as_str()).collect();
    (page, total, counts)
}

#[test]
fn decisions_3_lists_equal_the_slow_way_after_any_changes() {
    let mut seed = 0x9e37_79b9_u64;
    let mut all = Snapshot::default();
    for round in 0..60_u64 {
        let many = if round % 7 == 0 { 90 } else { 3 };
        let mut skills: Vec<Skill> = (0..many)
            .map(|_| {
                let n = random(&mut seed, 150);
                some(&mut seed, n)
            })
            .collect();
        // A store tells each skill once.
        skills.sort_by(|a, b| a.id.cmp(&b.id));
        skills.dedup_by(|a, b| a.id == b.id);
        all = all.with(Changes { generation: round + 1, skills, authors: Vec::new() }, "http://here");
        all.assert_sound();
        for query in [
            "",
            "sort=rating&limit=7",
            "sort=newest&offset=3",
            "sort=name&category=design",
            "search=git&sort=popular",
            "search=äPFEL+about&sort=name",
            "status=review&sort=rating",
            "status=all&category=quality",
            "author=author-1&search=3&sort=popular",
            "offset=10000",
        ] {
            let query = parse(query);
            let (page, total, counts) = all.find(&query);
            let page: Vec<&str> = page.iter().map(|e| e.skill.id.as_str()).collect();
            assert_eq!((page, total, counts), slow(&all, &query), "{query:?} in round {round}");
        }
    }
}

#[test]
fn decisions_3_bodies_are_cached_with_a_bound_and_tags_follow_the_content() {
    let one = Skill { id: "one".into(), status: Status::Published, ..skill("one") };
    let changes =
        |skill: &Skill, generation| Changes { generation, skills: vec![skill.clone()], authors: vec![] };
    let first = Snapshot::default().with(changes(&one, 1), "http://here");
    let same = Snapshot::default().with(changes(&one, 9), "http://here");
    let tag = |all: &Snapshot, query: &str| all.list(&parse(query), "/p").etag;
    assert_eq!(tag(&first, ""), tag(&same, ""), "equal content, equal tag");
    let more = first.with(changes(&Skill { downloads: 1, ..one.clone() }, 2), "http://here");
    assert_ne!(tag(&first, ""), tag(&more, ""));
    let draft = Skill { id: "two".into(), status: Status::Draft, ..one };
    let hidden = first.with(changes(&draft, 2), "http://here");
    assert_eq!(tag(&first, ""), tag(&hidden, ""), "a draft does not show");
    for n in 0..2000 {
        first.list(&parse(&format!("offset={n}")), "/p");
    }
    let body = first.list(&parse(""), "/p").body;
    let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((value["total"].as_u64(), value["categories"].as_array().unwrap().len()), (Some(1), 6));
    assert!(value["skills"][0].get("content").is_none());
}

/// The ids that a search finds, in its order.
fn finds(all: &Snapshot, search: &str) -> Vec<String> {
    let query = parse(&format!("search={}", search.replace(' ', "+")));
    all.find(&query).0.iter().map(|entry| entry.skill.id.clone()).collect()
}

fn described(id: &str, name: &str, description: &str, tags: &[&str], downloads: u64) -> Skill {
    Skill {
        id: id.into(),
        name: name.into(),
        description: description.into(),
        tags: tags.iter().map(ToString::to_string).collect(),
        roles: vec!["architect".into()],
        status: Status::Published,
        downloads,
        ..skill(id)
    }
}

#[test]
fn what_fits_a_search_best_comes_first_by_stem_and_in_spite_of_slips() {
    let skills = vec![
        described("a", "Team Habits", "Reviewing code, security audits, TypeScript and more", &[], 9_000),
        described("b", "Code Review", "Looks at a change", &["quality"], 10),
        described("c", "Review Helper", "Helps with it in 9000 ways", &[], 500),
        described("d", "Größe prüfen", "Measures things", &["review"], 1),
    ];
    let all = Snapshot::default().with(Changes { generation: 1, skills, authors: Vec::new() }, "http://here");
    assert_eq!(finds(&all, "code review"), ["b", "a"], "the name that is the search");
    assert_eq!(finds(&all, "review"), ["c", "b", "d", "a"], "names, tags, then a description's stem");
    assert_eq!(finds(&all, "reviewing"), ["c", "b", "d", "a"], "a stem in a name before the word in a text");
    assert_eq!(finds(&all, "reveiw"), ["c", "b", "d"], "swapped letters");
    assert_eq!(finds(&all, "securty audit"), ["a"], "a slip in one word, the stem of another");
    assert_eq!(finds(&all, "GROSSE prufen"), ["d"], "without case and accents");
    assert_eq!(finds(&all, "architect").len(), 4, "roles are searched");
    assert_eq!(finds(&all, "eviewin"), ["a"], "the specification's substring");
    assert!(finds(&all, "kubernetes").is_empty());
    assert!(finds(&all, "reveiwkubernetes").is_empty(), "hardly anything in common");
    assert!(finds(&all, "9001").is_empty(), "and no other number for a number");
    let query = parse("search=review&sort=popular");
    let popular: Vec<&str> = all.find(&query).0.iter().map(|e| e.skill.id.as_str()).collect();
    assert_eq!(popular, ["a", "c", "b", "d"], "an order that is asked for is kept");
    assert_eq!(query.page_at(0), "?search=review&sort=popular&limit=50");
    assert_eq!(parse("search=review").page_at(0), "?search=review&limit=50");
}

#[test]
fn the_index_finds_what_looking_at_each_skill_finds_after_any_changes() {
    let mut seed = 0x1234_5678_9abc_u64;
    let parts = ["test", "tests", "(testing)", "re-view", "c++", "git", "Äpfel", "largest-of-all"];
    let mut all = Snapshot::default();
    for round in 0..12_u64 {
        let mut skills = Vec::new();
        for n in 0..if round == 6 { 400 } else { 5 } {
            let mut word = || parts[usize::try_from(random(&mut seed, 8)).unwrap()];
            let (name, about, tag) = (word(), format!("{} {}", word(), word()), word());
            skills.push(described(&format!("s{n}-{}", round % 3), name, &about, &[tag], n));
        }
        all = all.with(Changes { generation: round + 1, skills, authors: Vec::new() }, "http://here");
        all.assert_sound();
        for word in
            ["test", "testin", "git", "gti", "apfel", "appel", "+", "-", "largets-of-all", "view", "3"]
        {
            let repaired = |entry: &Entry, on| super::index::weigh_one(entry, word, on);
            let plainly = all.entries().iter().any(|entry| repaired(entry, false) > 0);
            let mut wanted: Vec<&str> = all
                .entries()
                .iter()
                .filter(|entry| repaired(entry, !plainly) > 0)
                .map(|entry| entry.skill.id.as_str())
                .collect();
            let query = ListQuery { limit: 10_000, ..parse(&format!("search={}", word.replace('+', "%2B"))) };
            let mut found: Vec<&str> = all.find(&query).0.iter().map(|e| e.skill.id.as_str()).collect();
            wanted.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, wanted, "{word} in round {round}");
        }
    }
}
