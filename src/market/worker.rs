//! The endpoints of the skills: they ask the marketplace and write files on the connection's own thread, and
//! leave the deciding to the core.

use super::worker_client::{Marketplace, Trouble};
use super::worker_files::{self, FILE, FOLDER};
use super::{Command, Installed, Origin, bundled, check_id, in_use, not_installed, users_of};
use crate::api::{Fields, Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use serde_json::{Map, Value, json};

/// What a source has of one skill.
struct Offer {
    listed: Value,
    content: String,
    origin: Origin,
}

fn base_url<'a>(ask: &'a Ask) -> &'a str {
    &ask.state.settings.config().skills.base_url
}

/// The `:id` of the path.
fn skill_id<'a>(ask: &'a Ask) -> Result<&'a str, Problem> {
    let id = ask.params.get("id");
    check_id(id).map(|()| id)
}

/// `GET /api/skills`.
pub fn registry(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let refresh = ask.request.query("refresh").is_some_and(|word| word == "1" || word == "true");
    let live = host.market.registry(base_url(ask), refresh);
    let (skills, source): (&[Value], Origin) = match &live {
        Ok(skills) => (skills, Origin::Live),
        Err(_) => (bundled::registry(), Origin::Bundled),
    };
    let search = ask.request.query("search").unwrap_or_default().to_lowercase();
    let words: Vec<&str> = search.split_whitespace().collect();
    let category = ask.request.query("category").filter(|word| !word.is_empty());
    let found = skills.iter().filter(|skill| fits(skill, &words));
    let mut categories = Map::new();
    let mut shown = Vec::new();
    for skill in found {
        let own = skill["category"].as_str().unwrap_or_default();
        let count = categories.get(own).and_then(Value::as_u64).unwrap_or(0);
        categories.insert(own.to_owned(), json!(count + 1));
        if category.is_none_or(|category| category == own) {
            shown.push(offered(ask, skill));
        }
    }
    let categories: Vec<Value> =
        categories.into_iter().map(|(id, count)| json!({"id": id, "count": count})).collect();
    let mut body = json!({
        "skills": shown, "total": shown.len(), "categories": categories, "source": source.word(),
    });
    if let Err(trouble) = live {
        body["why"] =
            json!(format!("the marketplace at {} is not reached: {}", base_url(ask), trouble.words()));
    }
    Ok(Answer::Reply(Reply::ok(&body)))
}

fn fits(skill: &Value, words: &[&str]) -> bool {
    let word = |name: &str| skill[name].as_str().unwrap_or_default().to_lowercase();
    let tags = skill["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
    let tags: Vec<String> = tags.iter().filter_map(Value::as_str).map(str::to_lowercase).collect();
    let text = format!("{}\n{}\n{}\n{}", word("id"), word("name"), word("description"), tags.join("\n"));
    words.iter().all(|word| text.contains(word))
}

/// A listed skill with what is known of it here.
fn offered(ask: &Ask, skill: &Value) -> Value {
    let mut shown = skill.clone();
    let here = skill["id"].as_str().and_then(|id| ask.state.market.get(id));
    if let Some(object) = shown.as_object_mut() {
        object.remove("content");
        object.insert("installed".into(), json!(here.is_some()));
        if let Some(here) = here {
            object.insert("installedVersion".into(), json!(here.version));
            let listed = object.get("version").and_then(Value::as_str);
            let newer = listed.is_some_and(|version| version != here.version);
            object.insert("updateAvailable".into(), json!(newer));
        }
    }
    shown
}

/// `GET /api/skills/installed`.
pub fn installed(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let shown = |skill: &Installed| {
        let mut value = json!(skill);
        value["intact"] = json!(worker_files::is_intact(&host.project, &skill.id, &skill.digest));
        value["path"] = json!(format!("{FOLDER}/{}/{FILE}", skill.id));
        value["usedBy"] = json!(users_of(ask.state, &skill.id));
        value
    };
    let skills: Vec<Value> = ask.state.market.iter().map(shown).collect();
    Ok(Answer::Reply(Reply::ok(&json!({"skills": skills}))))
}

/// `GET /api/skills/:id/content`: the text that agents get, or would get once it is installed.
pub fn content(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let id = skill_id(ask)?;
    let installed = ask.state.market.get(id);
    let here = installed.and_then(|skill| worker_files::read_intact(&host.project, id, &skill.digest));
    let (content, source) = match here {
        Some(content) => (content, "installed"),
        None => match Marketplace::content(base_url(ask), id) {
            Ok(content) => (content, Origin::Live.word()),
            Err(trouble) => match (&trouble, bundled::content(id)) {
                (Trouble::Unreachable(_), Some(content)) => (content.to_owned(), Origin::Bundled.word()),
                _ => return Err(trouble.problem(base_url(ask))),
            },
        },
    };
    Ok(Answer::Reply(Reply::ok(&json!({"id": id, "content": content, "source": source}))))
}

/// `POST /api/skills/:id/install`: install, then content, then the file, then the record.
pub fn install(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let id = skill_id(ask)?;
    let busy = host.market.begin(id)?;
    if let Some(skill) = ask.state.market.get(id)
        && worker_files::is_intact(&host.project, id, &skill.digest)
    {
        let mut body = json!(skill);
        body["updated"] = json!(false);
        return Ok(Answer::Reply(Reply::ok(&body)));
    }
    let offer = match from_marketplace(base_url(ask), id, true) {
        Ok(offer) => offer,
        Err(trouble @ Trouble::Unreachable(_)) => {
            from_bundle(id).ok_or_else(|| trouble.problem(base_url(ask)))?
        }
        Err(trouble) => return Err(trouble.problem(base_url(ask))),
    };
    keep(host, ask, id, &offer, busy)
}

/// `POST /api/skills/:id/update`. A text from the marketplace is never replaced by an embedded one.
pub fn update(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let id = skill_id(ask)?;
    let busy = host.market.begin(id)?;
    let skill = ask.state.market.get(id).ok_or_else(|| not_installed(id))?;
    let offer = match from_marketplace(base_url(ask), id, false) {
        Ok(offer) => offer,
        Err(trouble @ Trouble::Unreachable(_)) if skill.source == Origin::Bundled => {
            from_bundle(id).ok_or_else(|| trouble.problem(base_url(ask)))?
        }
        Err(trouble) => return Err(trouble.problem(base_url(ask))),
    };
    keep(host, ask, id, &offer, busy)
}

fn from_marketplace(base: &str, id: &str, counts: bool) -> Result<Offer, Trouble> {
    if counts {
        Marketplace::count_install(base, id)?;
    }
    let content = Marketplace::content(base, id)?;
    let listed = Marketplace::listed(base, id)?;
    Ok(Offer { listed, content, origin: Origin::Live })
}

fn from_bundle(id: &str) -> Option<Offer> {
    let (listed, content) = (bundled::listed(id)?.clone(), bundled::content(id)?.to_owned());
    Some(Offer { listed, content, origin: Origin::Bundled })
}

fn keep(
    host: &Host,
    ask: &Ask,
    id: &str,
    offer: &Offer,
    busy: super::worker_client::Busy,
) -> Result<Answer, Problem> {
    ask.state.health.writable()?;
    let skill = Installed::new(id, &offer.listed, &offer.content, offer.origin, ask.now);
    let saved = worker_files::save(&host.project, &skill, &offer.content)?;
    let command = Command::Keep(Box::new(skill)).into();
    // Whether it is called or dropped, the closure goes after the core has answered, and the claim with it.
    let undo = move || {
        let _busy = busy;
        saved.undo();
    };
    Ok(Answer::Undoable(command, Box::new(undo)))
}

/// `DELETE /api/skills/:id`.
pub fn remove(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let id = skill_id(ask)?;
    let busy = host.market.begin(id)?;
    ask.state.market.get(id).ok_or_else(|| not_installed(id))?;
    // The core looks again; here it keeps the file in its place meanwhile.
    in_use(ask.state, id)?;
    let removed = worker_files::set_aside(&host.project, id)?;
    let undo = move || {
        let _busy = busy;
        removed.undo();
    };
    let command = Command::Forget(id.to_owned()).into();
    Ok(Answer::Undoable(command, Box::new(undo)))
}

/// Reads the body of a rating.
pub fn rating(fields: &mut Fields) -> u64 {
    fields.tell_required("rating");
    let rating = fields.integer("rating", 1, 5);
    let absent = fields.value("rating").is_none();
    fields
        .validator
        .check(!absent, "rating", || "rating is required and must be a whole number from 1 to 5".to_owned());
    rating.unwrap_or_default()
}

/// `POST /api/skills/:id/rate`.
pub fn rate(_host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let id = skill_id(ask)?;
    let rating = ask.request.read(rating)?;
    let answer =
        Marketplace::rate(base_url(ask), id, rating).map_err(|trouble| trouble.problem(base_url(ask)))?;
    let command = Command::Rated { id: id.to_owned(), rating, answer };
    Ok(Answer::Command(command.into()))
}
