use super::api::wish;
use super::kind::{Key, Said, Seen, Spot, engine, place_name};
use super::*;
use crate::api::Fields;
use crate::assembly::documents::encode;
use crate::testing::{Bench, facts};

fn spot(kind: Kind, destination: &str, id: &str) -> Spot {
    Spot { kind, destination: destination.into(), id: id.into() }
}

fn refused(body: &Value) -> String {
    let mut fields = Fields::new(body.as_object().unwrap());
    wish(&mut fields);
    let told = fields.validator.finish().err().map(|problem| json!(problem.errors).to_string());
    told.unwrap_or_default()
}

#[test]
fn a_wish_names_a_word_a_kind_and_a_destination_that_is_no_option() {
    let ssh =
        |name: &str, destination: &str| json!({"name": name, "kind": "ssh", "destination": destination});
    let of = |kind: &str, destination: &str| json!({"name": "a", "kind": kind, "destination": destination});
    let labelled = |labels: Value| json!({"name": "a", "kind": "ssh", "destination": "b", "labels": labels});
    for (body, words) in [
        (ssh("box", "me@box.example.org"), ""),
        (ssh("box", "box"), ""),
        (ssh("box", "ssh://me@[::1]:2222"), ""),
        (labelled(json!(["big", "gpu-2"])), ""),
        (json!({}), "destination"),
        (json!({"name": "a", "kind": "telnet", "destination": "b"}), "kind"),
        (of("container", "podman localhost/tools:1"), ""),
        (of("container", "docker tools@sha256:ab"), ""),
        (of("container", "tools"), "podman IMAGE"),
        (of("container", "podman"), "podman IMAGE"),
        (of("container", "nerdctl tools"), "podman IMAGE"),
        (of("container", "podman --privileged"), "begin with -"),
        (of("container", "podman tools --privileged"), "podman IMAGE"),
        (of("container", "podman  tools"), "podman IMAGE"),
        (of("container", "podman a;b"), "podman IMAGE"),
        (of("slurm", ""), ""),
        (of("slurm", "long_jobs"), ""),
        (of("slurm", "--wrap=x"), "begin with -"),
        (of("slurm", "a b"), "partition"),
        (of("slurm", "a,b"), "partition"),
        (of("ssh", ""), "USER@HOST"),
        (ssh("-a", "b"), "begin with a letter or digit"),
        (ssh("a/b", "b"), "1 to 40"),
        (ssh("a", "-oProxyCommand=x"), "may begin with -"),
        (ssh("a", "me@-oProxyCommand"), "may begin with -"),
        (ssh("a", "-l@b"), "may begin with -"),
        (ssh("a", "me@b c"), "USER@HOST"),
        (ssh("a", "me@b\n"), "USER@HOST"),
        (ssh("a", "$(x)@b"), "USER@HOST"),
        (ssh("a", "me@"), "USER@HOST"),
        (ssh("a", &"b".repeat(256)), "at most 255"),
        (labelled(json!(["--x"])), "begin with a letter or digit"),
        (labelled(json!(vec!["a"; 11])), "at most 10"),
    ] {
        let told = refused(&body);
        assert!(told.contains(words) && told.is_empty() == words.is_empty(), "{body}: {told}");
    }
}

#[test]
fn the_client_is_told_to_ask_nobody_and_to_lend_nothing_and_where_its_options_end() {
    let line = (engine(Kind::Ssh).run)(&spot(Kind::Ssh, "me@box", ""), "echo hi");
    let args = line.args;
    assert_eq!(line.program, "ssh");
    for option in [
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        "-oForwardAgent=no",
        "-oClearAllForwardings=yes",
        "-oServerAliveInterval=5",
        "-oServerAliveCountMax=3",
    ] {
        assert!(args.iter().any(|arg| arg == option), "{option}: {args:?}");
    }
    assert_eq!(args[args.len() - 3..], ["--", "me@box", "echo hi"]);
}

/// What an engine is told, as a person would type it.
fn typed(line: &kind::Line) -> String {
    format!("{} {}", line.program, line.args.join(" "))
}

#[test]
fn podman_and_docker_are_told_the_same_and_neither_is_given_a_folder_nor_a_right() {
    for program in ["podman", "docker"] {
        let destination = format!("{program} tools:1");
        let spot = spot(Kind::Container, &destination, "ab");
        let places = engine(Kind::Container).places.as_ref().unwrap();
        let told = [
            (places.make)(&destination, "svc-p-1"),
            (places.look)(&destination, Key::Name("svc-p-1")),
            (places.wake.unwrap())(&destination, "ab"),
            (places.end)(&destination, "ab"),
            (engine(Kind::Container).run)(&spot, "echo hi"),
        ];
        assert_eq!(
            told.iter().map(typed).collect::<Vec<_>>(),
            [
                "run --detach --name=svc-p-1 --label=svc.runner=svc-p-1 --entrypoint=sh tools:1 -c trap 'exit 0' TERM; \
                 while :; do sleep 86400 & wait $!; done",
                "container inspect --format={{.Id}} {{.State.Status}} {{index .Config.Labels \"svc.runner\"}} svc-p-1",
                "start ab",
                "rm --force --volumes ab",
                "exec --interactive ab sh -c echo hi",
            ]
            .map(|line| format!("{program} {line}"))
        );
    }
}

#[test]
fn a_container_is_its_runners_by_its_label_and_by_its_id() {
    let seen = engine(Kind::Container).places.as_ref().unwrap().seen;
    let said = |stdout: String| Said { is_success: true, stdout, stderr: String::new() };
    let none = |stderr: &str| Said { stderr: stderr.into(), ..Said::default() };
    let (own, other) = ("ab".repeat(32), "cd".repeat(32));
    let (by_name, by_id) = (Key::Name("svc-p-1"), Key::Id(&own));
    for (key, said, wanted) in [
        (by_name, said(format!("{own} running svc-p-1\n")), Ok(Seen::Stands(own.clone()))),
        (by_name, said(format!("{own} exited svc-p-1\n")), Ok(Seen::Stopped(own.clone()))),
        (by_name, none("Error: no such container svc-p-1"), Ok(Seen::Nothing)),
        (by_name, none("Error response from daemon: No such container: svc-p-1"), Ok(Seen::Nothing)),
        (by_name, none("Cannot connect to the Docker daemon"), Err("Cannot connect")),
        (by_name, said(format!("{own} running \n")), Err("svc has not made")),
        (by_name, said(format!("{own} running svc-p-2\n")), Err("svc has not made")),
        (by_name, said("--all running svc-p-1\n".into()), Err("cannot be read")),
        (by_name, said(format!("{own} paused svc-p-1\n")), Err("is paused")),
        (by_id, said(format!("{own} running svc-p-1\n")), Ok(Seen::Stands(own.clone()))),
        (by_id, said(format!("{other} running svc-p-1\n")), Ok(Seen::Nothing)),
    ] {
        let found = seen(key, &said);
        let is_so = match (&found, &wanted) {
            (Err(why), Err(words)) => why.contains(words),
            (found, wanted) => found.as_ref().ok() == wanted.as_ref().ok(),
        };
        assert!(is_so, "{said:?}: {found:?}");
    }
}

#[test]
fn a_job_is_the_persons_own_and_its_lines_keep_nothing_back() {
    let places = engine(Kind::Slurm).places.as_ref().unwrap();
    let made = (places.make)("long", "svc-p-1");
    assert!(
        made.args.contains(&"--partition=long".into()) && made.args.contains(&"--job-name=svc-p-1".into())
    );
    assert!(!(places.make)("", "svc-p-1").args.iter().any(|arg| arg.starts_with("--partition")));
    assert!(made.input.starts_with("#!/bin/sh\n") && made.input.contains("__far begin"), "{}", made.input);
    assert!(!made.args.contains(&"--export=ALL".into()), "nothing of this machine's variables goes along");
    let line = (engine(Kind::Slurm).run)(&spot(Kind::Slurm, "", "12"), "echo hi");
    assert!(
        line.args.contains(&"--unbuffered".into()) && line.args.contains(&"--overlap".into()),
        "{line:?}"
    );
    assert_eq!(line.args[line.args.len() - 3..], ["sh", "-c", "echo hi"]);
    let look = (places.look)("", Key::Name("svc-p-1"));
    assert!(look.args.contains(&"--me".into()), "another person's job may have that name");
    let said = |stdout: &str| Said { is_success: true, stdout: stdout.into(), stderr: String::new() };
    let by_name = |stdout: &str| (places.seen)(Key::Name("svc-p-1"), &said(stdout));
    assert_eq!(by_name(""), Ok(Seen::Nothing));
    assert_eq!(by_name("11|CANCELLED|None\n12|RUNNING|None\n"), Ok(Seen::Stands("12".into())));
    let waits = by_name("12|PENDING|Resources\n").unwrap();
    assert_eq!(waits, Seen::Waits("12".into(), "12 waits in the queue: PENDING, Resources".into()));
    let by_id = |stdout: &str| (places.seen)(Key::Id("11"), &said(stdout));
    assert_eq!(by_id("11|TIMEOUT|TimeLimit\n"), Ok(Seen::Over("11 is over: TIMEOUT".into())));
    assert_eq!(by_id("12|RUNNING|None\n"), Ok(Seen::Nothing));
    let gone = Said { stderr: "slurm_load_jobs error: Invalid job id specified".into(), ..Said::default() };
    assert_eq!((places.seen)(Key::Id("11"), &gone), Ok(Seen::Nothing));
}

#[test]
fn a_place_has_a_name_that_no_other_runners_has_nor_one_of_its_name_before() {
    let mut bench = Bench::new();
    bench.state.project = Arc::new(crate::core::Project {
        dir: format!("/a/{}", "Shop".repeat(20)).into(),
        ..Default::default()
    });
    let mut names: Vec<String> = Vec::new();
    for _ in 0..2 {
        assert_eq!(bench.ask("POST", "/api/runners", &json!({"name": "box", "kind": "slurm"})).0, 201);
        names.push(place_name(bench.state.runners.find("box").unwrap()));
        bench.command(crate::core::Command::Runners(Command::Remove("box".into())));
    }
    assert_ne!(names[0], names[1]);
    // As all engines take it.
    let is_fit = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    assert!(names[0].starts_with("svc-pshop") && names[0].len() <= 63, "{names:?}");
    assert!(names[0].bytes().all(is_fit), "{names:?}");
}

#[test]
fn runners_are_added_checked_listed_and_removed_and_outlive_a_restart() {
    let mut bench = Bench::new();
    let body = json!({"name": "box", "kind": "ssh", "destination": "me@box", "labels": ["big"]});
    let (status, told) = bench.ask("POST", "/api/runners", &body);
    assert_eq!(
        (status, &told["addedBy"], &told["checked"]),
        (201, &json!("operator"), &Value::Null),
        "{told}"
    );
    let (status, told) = bench.ask("POST", "/api/runners", &body);
    assert_eq!((status, &told["code"]), (409, &json!("runner_exists")), "{told}");
    assert_eq!(bench.audited("runner.add").len(), 1);
    assert_eq!(bench.checked("box", true, Ok(facts(1000))), Some(200));
    assert_eq!(bench.audited("runner.copy").len(), 1, "what is put on another machine stands in the log");
    let listed = bench.get("/api/runners")["runners"][0].clone();
    assert_eq!((&listed["labels"], &listed["checked"]["facts"]["memory"]), (&json!(["big"]), &json!(64_000)));
    let stored: Stored =
        serde_json::from_slice(&encode(Document::Runners, &bench.state).unwrap().unwrap()).unwrap();
    assert_eq!(State::restore(stored).known, bench.state.runners.known);
    bench.checked("box", true, Err("it is down".into()));
    let listed = bench.get("/api/runners")["runners"][0].clone();
    assert_eq!(
        (&listed["checked"]["error"], &listed["checked"]["facts"]),
        (&json!("it is down"), &Value::Null)
    );
    let remove = || crate::core::Command::Runners(Command::Remove("box".into()));
    assert_eq!(bench.command(remove()).unwrap().status, 200);
    assert_eq!(bench.command(remove()).unwrap().status, 404);
    assert_eq!(bench.checked("box", true, Ok(facts(1000))), Some(404), "it was removed meanwhile");
}

#[test]
fn limits_runners_are_bounded() {
    let mut bench = Bench::new();
    let body = |n: usize| json!({"name": format!("r{n}"), "kind": "ssh", "destination": "b"});
    for n in 0..MAX_RUNNERS {
        assert_eq!(bench.ask("POST", "/api/runners", &body(n)).0, 201);
    }
    let (status, told) = bench.ask("POST", "/api/runners", &body(MAX_RUNNERS));
    assert_eq!((status, &told["code"]), (409, &json!("too_many_runners")));
}
