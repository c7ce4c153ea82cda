use super::kind::{Engine, Key, Places, Said, Seen, Spot, engine};
use super::*;

/// What pods are made of, in Kubernetes 1.20.2: of its `api/openapi-spec/swagger.json`, without what it says
/// about each.
const SCHEMA: &str = include_str!("../../tests/data/kubernetes-pod-1.20.2.json");
const FULL: &str = "gke_a_b.c tools:1 namespace=work cpu=500m memory=4Gi";
const NAME: &str = "svc-pshop-01";

fn kubernetes() -> (&'static Engine, &'static Places) {
    let engine = engine(Kind::Kubernetes);
    (engine, engine.places.as_ref().unwrap())
}

fn manifest(destination: &str) -> Value {
    serde_json::from_str(&(kubernetes().1.make)(destination, NAME).input).unwrap()
}

#[test]
fn a_destination_is_a_context_an_image_and_amounts() {
    for (destination, fits) in [
        ("admin@home tools:1", true),
        ("arn:aws:eks:a:1:cluster/b reg.example/tools@sha256:ab", true),
        (FULL, true),
        ("a b memory=2 cpu=1.5", true),
        ("", false),
        ("a", false),
        ("a ", false),
        ("a  b", false),
        ("--kubeconfig=x b", false),
        ("a -b", false),
        ("a b namespace=Work", false),
        ("a b namespace=--all", false),
        ("a b namespace=", false),
        ("a b cpu=1 cpu=2", false),
        ("a b cpu=much", false),
        ("a b cpu=-1", false),
        ("a b memory=4GB", false),
        ("a b gpu=1", false),
        ("a b c", false),
        ("a b\nc", false),
    ] {
        assert_eq!((kubernetes().0.fault)(destination).is_none(), fits, "{destination:?}");
    }
    let long = format!("a {}", "b".repeat(300));
    assert!((kubernetes().0.fault)(&long).unwrap().contains("get-contexts"));
}

#[test]
fn kubectl_is_told_the_context_and_which_of_its_words_are_for_the_pod() {
    let (engine, places) = kubernetes();
    let id = format!("{NAME}/0a-1b");
    let spot = Spot { kind: Kind::Kubernetes, destination: FULL.into(), id: id.clone() };
    let told = [
        (places.make)(FULL, NAME),
        (places.end)(FULL, &id),
        (places.wake.unwrap())(FULL, &id),
        (engine.run)(&spot, "echo hi"),
    ];
    let typed = told.iter().map(|line| format!("{} {}", line.program, line.args.join(" ")));
    let start = "kubectl --context=gke_a_b.c --namespace=work";
    assert_eq!(
        typed.collect::<Vec<_>>(),
        [
            format!("{start} --request-timeout=20s create --filename=-"),
            format!("{start} --request-timeout=20s delete pod {NAME} --ignore-not-found --wait=false"),
            format!("{start} --request-timeout=20s delete pod {NAME} --ignore-not-found --wait=false"),
            format!("{start} exec --stdin --container=agents {NAME} -- sh -c echo hi"),
        ]
    );
    let look = |key| (places.look)("a b", key).args;
    assert_eq!(look(Key::Id(&id)), look(Key::Name(NAME)));
    assert!(!look(Key::Name(NAME)).iter().any(|word| word.starts_with("--namespace")), "the context has one");
}

/// Where a value is none of this definition.
fn strangers(schema: &Value, of: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let of = match of["$ref"].as_str() {
        Some(name) if schema[name].is_null() => {
            return found.push(format!("{path}: {name} is not in the excerpt"));
        }
        Some(name) => &schema[name],
        None => of,
    };
    let fits = match of["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        _ => value.is_string(),
    };
    if !fits {
        found.push(format!("{path} is no {}", of["type"]));
    }
    for name in of["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value[name].is_null() {
            found.push(format!("{path}.{name} is missing"));
        }
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let (path, more) = (format!("{path}.{name}"), &of["additionalProperties"]);
        match (of["properties"].get(name), more.is_null()) {
            (Some(of), _) => strangers(schema, of, inner, &path, found),
            (None, false) => strangers(schema, more, inner, &path, found),
            (None, true) => found.push(format!("{path} is not known")),
        }
    }
    for (at, inner) in value.as_array().into_iter().flatten().enumerate() {
        strangers(schema, &of["items"], inner, &format!("{path}[{at}]"), found);
    }
}

#[test]
fn a_pod_is_one_by_kubernetes_own_schema_and_has_no_way_into_the_cluster() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let pod = json!({"$ref": "io.k8s.api.core.v1.Pod"});
    let found = |value: &Value| {
        let mut found = Vec::new();
        strangers(&schema, &pod, value, "pod", &mut found);
        found
    };
    for destination in [FULL, "a b"] {
        assert_eq!(found(&manifest(destination)), Vec::<String>::new());
    }
    let mut wrong = manifest(FULL);
    wrong["spec"]["restartPolicies"] = json!("Never");
    wrong["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!(1);
    assert_eq!(found(&wrong).len(), 2, "the schema tells: {:?}", found(&wrong));
    let made = manifest(FULL);
    let (spec, ours) = (&made["spec"], &made["spec"]["containers"][0]);
    assert_eq!(made["metadata"]["name"], NAME);
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(
        ours["securityContext"],
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
    );
    assert_eq!(ours["resources"]["limits"], json!({"cpu": "500m", "memory": "4Gi"}));
    for lent in ["volumes", "hostNetwork", "hostPID", "hostIPC", "serviceAccountName"] {
        assert!(spec[lent].is_null(), "{lent}");
    }
}

#[test]
fn a_pod_is_its_runners_by_its_label_and_by_what_no_other_pod_ever_has() {
    let seen = kubernetes().1.seen;
    let said = |lines: [&str; 9]| Said { is_success: true, stdout: lines.join("\n"), stderr: String::new() };
    let own = format!("{NAME}/0a-1b");
    let (by_name, by_id) = (Key::Name(NAME), Key::Id(&own));
    let stands = ["0a-1b", NAME, "Running", "", "2026-01-01T00:00:00Z", " ", "", "", ""];
    let waits = ["0a-1b", NAME, "Pending", "", "", " ", "0/1 nodes are available", "", ""];
    let pulls = ["0a-1b", NAME, "Pending", "", "", " ", "", "ErrImagePull", "no such\nimage"];
    let over = ["0a-1b", NAME, "Failed", "", "", "Evicted OOMKilled", "", "", ""];
    let goes = ["0a-1b", NAME, "Running", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", " ", "", "", ""];
    let with = |lines: [&'static str; 9], at: usize, word: &'static str| {
        let mut lines = lines;
        lines[at] = word;
        said(lines)
    };
    let waiting = |why: &str| Ok(Seen::Waits(own.clone(), why.to_owned()));
    let gone = Said { stdout: String::new(), ..said(stands) };
    let refused = Said { stderr: "Error from server (Forbidden)".into(), ..Said::default() };
    for (key, said, wanted) in [
        (by_name, said(stands), Ok(Seen::Stands(own.clone()))),
        (by_id, said(stands), Ok(Seen::Stands(own.clone()))),
        (by_name, said(waits), waiting("does not run yet: Pending, 0/1 nodes are available")),
        (by_id, said(pulls), waiting("does not run yet: Pending, ErrImagePull, no such image")),
        (by_name, said(goes), waiting("is being removed, before a new one")),
        (by_id, said(goes), Ok(Seen::Over("is being removed".into()))),
        (by_name, said(over), Ok(Seen::Stopped(own.clone()))),
        (by_id, said(over), Ok(Seen::Over("is over: Failed, Evicted OOMKilled".into()))),
        (by_name, gone, Ok(Seen::Nothing)),
        (by_id, with(stands, 0, "2c-3d"), Ok(Seen::Nothing)),
        (by_name, refused, Err("Forbidden")),
        (by_name, with(stands, 1, ""), Err("svc has not made")),
        (by_name, with(stands, 0, "-o=x"), Err("cannot be read")),
        (by_name, with(stands, 2, "Unknown"), Err("the pod is Unknown")),
    ] {
        let found = seen(key, &said);
        let is_so = match (&found, &wanted) {
            (Err(why), Err(words)) => why.contains(words),
            (found, wanted) => found.as_ref().ok() == wanted.as_ref().ok(),
        };
        assert!(is_so, "{said:?}: {found:?}");
    }
}
