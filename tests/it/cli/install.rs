//! Installing without a compiler: `data/install/install.sh` against a file server, and the Debian package of
//! `data/install/make-deb`, with a program that is none, so that nothing has to be built.

use super::fake::Folder;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const PROFILE: &str = include_str!("../../../data/install/apparmor.in");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {words}");
    String::from_utf8(output.stdout).unwrap()
}

/// The name that rustc has for this machine, as the installer must find it.
fn target() -> String {
    let os = if cfg!(target_os = "macos") { "apple-darwin" } else { "unknown-linux-gnu" };
    format!("{}-{os}", std::env::consts::ARCH)
}

/// What `make layout` leaves, with a program that only knows its version.
fn layout(dir: &Path) {
    let unit = "[Service]\nExecStart=%h/.local/bin/svc start --project %f\n";
    let program = format!("#!/bin/sh\necho {VERSION}\n");
    for (file, text) in [
        ("bin/svc", program.as_str()),
        ("share/man/man1/svc.1", ".TH SVC 1\n"),
        ("share/systemd/user/svc@.service", unit),
        ("share/svc/apparmor/svc", PROFILE),
    ] {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    fs::set_permissions(dir.join("bin/svc"), fs::Permissions::from_mode(0o755)).unwrap();
    for place in ["bin", "share/bash-completion/completions"] {
        fs::create_dir_all(dir.join(place)).unwrap();
        symlink("svc", dir.join(place).join("svc-cli")).unwrap();
    }
}

/// A folder of archives behind an address, as any file server would show it.
struct Releases {
    folder: Folder,
    url: String,
}

impl Releases {
    fn new() -> Self {
        let folder = Folder::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let place = folder.0.clone();
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer(&place, stream)));
        Self { folder, url }
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.folder.0.join(format!("svc-{VERSION}-{}{ending}", target()))
    }

    /// Packs what `change` leaves of the layout, and writes its sum beside it.
    fn publish(&self, change: impl FnOnce(&Path)) {
        let dir = self.file("");
        let _ = fs::remove_dir_all(&dir);
        layout(&dir);
        change(&dir);
        let (name, archive) = (dir.file_name().unwrap(), self.file(".tar.gz"));
        run(Command::new("tar").arg("-C").arg(&self.folder.0).arg("-czf").arg(&archive).arg(name));
        self.sum();
        fs::write(self.folder.0.join("latest"), format!("{VERSION}\n")).unwrap();
    }

    fn sum(&self) {
        let told = run(Command::new("sha256sum").arg(self.file(".tar.gz")));
        fs::write(self.file(".tar.gz.sha256"), told).unwrap();
    }

    fn install(&self, prefix: &Path, more: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command
            .arg(root().join("data/install/install.sh"))
            .env_remove("SVC_INSTALL_URL")
            .env_remove("PREFIX");
        command.args(["--from", &self.url, "--prefix"]).arg(prefix).args(more).output().unwrap()
    }
}

fn answer(place: &Path, mut stream: std::net::TcpStream) {
    let mut bytes = [0; 4096];
    let length = stream.read(&mut bytes).unwrap_or(0);
    let head = String::from_utf8_lossy(&bytes[..length]).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
    let (status, body) = match fs::read(place.join(path)) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

/// Must fail with these words, and leave nothing.
fn refused(output: &Output, prefix: &Path, words: &str) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains(words), "{words:?} in {told:?}");
    assert!(!prefix.exists(), "{words}: something was installed");
}

#[test]
fn an_archive_is_fetched_checked_and_installed_below_the_prefix() {
    let releases = Releases::new();
    releases.publish(|_| {});
    let home = Folder::new();
    let prefix = home.0.join("opt");
    for _ in 0..2 {
        let output = releases.install(&prefix, &[]);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(told.contains(&format!("installed svc {VERSION} below {}", prefix.display())), "{told}");
    }
    for name in ["svc", "svc-cli"] {
        assert_eq!(run(&mut Command::new(prefix.join("bin").join(name))).trim(), VERSION);
    }
    let unit = fs::read_to_string(prefix.join("share/systemd/user/svc@.service")).unwrap();
    assert!(unit.contains(&format!("ExecStart={}/bin/svc start", prefix.display())), "{unit}");
    assert!(prefix.join("share/man/man1/svc.1").exists());
    let mut names: Vec<_> =
        fs::read_dir(prefix.join("bin")).unwrap().map(|one| one.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["svc", "svc-cli"], "nothing half written is left");
}

/// A machine whose `AppArmor` restricts user namespaces: root's installer loads the profile, another one says
/// how.
#[test]
fn the_apparmor_profile_names_the_program_and_is_loaded_where_it_is_needed() {
    let releases = Releases::new();
    releases.publish(|_| {});
    let home = Folder::new();
    let (prefix, profiles, bin) = (home.0.join("opt"), home.0.join("apparmor.d"), home.0.join("bin"));
    for folder in [&profiles, &bin] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(home.0.join("restricts"), "1\n").unwrap();
    let parser = bin.join("apparmor_parser");
    fs::write(&parser, format!("#!/bin/sh\necho \"$*\" >>{}/loaded\n", home.0.display())).unwrap();
    fs::set_permissions(&parser, fs::Permissions::from_mode(0o755)).unwrap();
    let install = |restricts: &str| {
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.arg(root().join("data/install/install.sh")).args(["--from", &releases.url, "--prefix"]);
        command.arg(&prefix).env("PATH", path).env("SVC_INSTALL_PROFILES", &profiles);
        run(command.env("SVC_INSTALL_RESTRICTS", home.0.join(restricts)))
    };
    let told = install("absent");
    assert!(!told.contains("AppArmor"), "{told}");
    let profile = prefix.join("share/svc/apparmor/svc");
    let text = fs::read_to_string(&profile).unwrap();
    let line = format!("profile svc \"{}/bin/svc\" flags=(unconfined) {{", prefix.display());
    assert!(text.lines().any(|found| found == line), "{text}");
    let told = install("restricts");
    if crate::support::daemon::is_root() {
        let loaded = fs::read_to_string(home.0.join("loaded")).unwrap();
        assert_eq!(loaded.trim(), format!("-r {}/svc", profiles.display()));
        assert_eq!(fs::read_to_string(profiles.join("svc")).unwrap(), text);
    } else {
        assert!(told.contains(&format!("sudo install -m 644 {}", profile.display())), "{told}");
    }
}

#[test]
fn an_archive_that_is_not_what_was_expected_installs_nothing() {
    let releases = Releases::new();
    let home = Folder::new();
    let prefix = home.0.join("opt");
    refused(&releases.install(&prefix, &[]), &prefix, "latest cannot be fetched");
    refused(&releases.install(&prefix, &["--version", "../../x"]), &prefix, "is no version");
    releases.publish(|_| {});
    refused(&releases.install(&prefix, &["--version", "9.9.9"]), &prefix, "cannot be fetched");
    refused(&releases.install(&prefix, &["--sha256", &"0".repeat(64)]), &prefix, "was expected");
    refused(&releases.install(&prefix, &["--sha256", "0"]), &prefix, "is no SHA-256");
    let mut damaged = fs::read(releases.file(".tar.gz")).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(releases.file(".tar.gz"), damaged).unwrap();
    refused(&releases.install(&prefix, &[]), &prefix, "was expected");
    releases.publish(|dir| symlink("/etc/passwd", dir.join("share/link")).unwrap());
    refused(&releases.install(&prefix, &[]), &prefix, "neither file nor folder");
    releases.publish(|dir| {
        fs::remove_file(dir.join("bin/svc-cli")).unwrap();
        symlink("/bin/sh", dir.join("bin/svc-cli")).unwrap();
    });
    refused(&releases.install(&prefix, &[]), &prefix, "neither file nor folder");
    releases.publish(|dir| fs::write(dir.join("bin/svc"), "#!/bin/sh\necho 0.0.0\n").unwrap());
    refused(&releases.install(&prefix, &[]), &prefix, "version '0.0.0'");
    releases.publish(|dir| fs::remove_file(dir.join("bin/svc")).unwrap());
    refused(&releases.install(&prefix, &[]), &prefix, "no bin/svc");
    fs::write(releases.folder.0.join("stray"), "x").unwrap();
    let stray = ["-C", releases.folder.0.to_str().unwrap(), "-czf"];
    run(Command::new("tar").args(stray).arg(releases.file(".tar.gz")).arg("stray"));
    releases.sum();
    refused(&releases.install(&prefix, &[]), &prefix, "not below svc-");
    let mut nowhere = Command::new("sh");
    nowhere.arg(root().join("data/install/install.sh")).env_remove("SVC_INSTALL_URL");
    assert_eq!(nowhere.output().unwrap().status.code(), Some(2), "no address is named in the project");
}

#[test]
fn a_debian_package_holds_the_layout_and_says_what_it_is() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !["ar", "dpkg-deb"].iter().all(|program| has(program)) {
        eprintln!("SKIPPED: ar or dpkg-deb is absent");
        return;
    }
    let folder = Folder::new();
    let (system, package) = (folder.0.join("system"), folder.0.join("svc.deb"));
    layout(&system.join("usr"));
    let make = || {
        let mut command = Command::new(root().join("data/install/make-deb"));
        command.arg(&system).args([VERSION, "x86_64-unknown-linux-gnu", "1700000000"]).arg(&package);
        run(&mut command);
        fs::read(&package).unwrap()
    };
    let first = make();
    assert!(first == make(), "the same files make the same package");
    let field =
        |name: &str| run(Command::new("dpkg-deb").arg("-f").arg(&package).arg(name)).trim().to_owned();
    assert_eq!([field("Package"), field("Version"), field("Architecture")], ["svc", VERSION, "amd64"]);
    assert_eq!(field("Conflicts"), "daemontools", "which has a command of the same name");
    let place = folder.0.join("there");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&place));
    assert_eq!(run(&mut Command::new(place.join("usr/bin/svc-cli"))).trim(), VERSION);
    assert!(place.join("usr/share/systemd/user/svc@.service").exists());
    let control = folder.0.join("control");
    run(Command::new("dpkg-deb").arg("-e").arg(&package).arg(&control));
    for script in ["postinst", "postrm"] {
        let path = control.join(script);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755, "{script}");
        run(Command::new("sh").arg("-n").arg(&path));
        assert!(fs::read_to_string(&path).unwrap().contains("apparmor_parser"), "{script}");
    }
    let list = run(Command::new("dpkg-deb").arg("-c").arg(&package));
    assert!(list.lines().all(|line| line.contains(" 0/0 ")), "{list}");
    assert!(list.contains("-rwxr-xr-x") && list.contains("-rw-r--r--"), "{list}");
}

#[test]
fn cargo_binstall_is_told_the_archives_that_make_dist_writes() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    assert!(makefile.contains("DIST := svc-$(VERSION)-$(HOST)\n") && makefile.contains("$(DIST).tar.gz"));
    assert!(manifest.contains("/svc-{ version }-{ target }.tar.gz\""), "the archive");
    assert!(
        manifest.contains("\"svc-{ version }-{ target }/bin/{ bin }{ binary-ext }\""),
        "the program in it"
    );
}

/// The places in this folder that a page leads to, by its Markdown and its pictures.
fn places(page: &str) -> Vec<String> {
    let markdown = page.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let pictures = page.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let all = markdown.chain(pictures).filter(|place| !place.is_empty() && !place.contains("://"));
    all.map(ToOwned::to_owned).collect()
}

#[test]
fn no_page_of_an_archive_leads_to_one_that_it_does_not_hold() {
    let folder = Folder::new();
    let into = format!("DESTDIR={}", folder.0.display());
    run(Command::new("make").arg("-C").arg(root()).args(["documents", &into, "PREFIX="]));
    let documents = folder.0.join("share/doc/svc");
    let mut checked = 0;
    for place in ["", "docs", "docs/develop", "docs/tutorials"].map(|place| documents.join(place)) {
        let files = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path());
        for page in files.filter(|path| path.extension().is_some_and(|ending| ending == "md")) {
            for link in places(&fs::read_to_string(&page).unwrap()) {
                checked += 1;
                assert!(place.join(&link).exists(), "{} leads to {link}", page.display());
            }
        }
    }
    assert!(checked > 40, "the links are found: {checked}");
}
