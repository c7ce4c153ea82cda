//! A real `PostgreSQL` server of a test's own: `tests/real/setup-postgres` makes, starts and stops it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A cluster in a folder of its own; stopped and removed on drop.
pub struct Cluster(PathBuf);

fn script(words: &[&str]) -> Output {
    // The marketplace is a package of its own below the root.
    let mut above =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|at| at.join("tests/real/setup-postgres"));
    let script = above.find(|script| script.exists()).expect("tests/real/setup-postgres is there");
    Command::new(script).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

impl Cluster {
    /// A running one; `None`, and a line that says so, where no `PostgreSQL` is installed.
    pub fn start() -> Option<Self> {
        let cluster = Self::absent()?;
        cluster.resume();
        Some(cluster)
    }

    /// One that is not made yet.
    fn absent() -> Option<Self> {
        let status = said(&script(&["--status"]));
        if status.contains("absent") {
            let required = std::env::var("SVC_REAL_CLIS").is_ok_and(|word| word == "require");
            assert!(!required, "PostgreSQL is required and not installed; run tests/real/setup-postgres");
            eprintln!("skipped: {status}");
            return None;
        }
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Some(Self(std::env::temp_dir().join(format!("svc-postgres-{}-{n}", std::process::id()))))
    }

    /// One that also listens on a port of 127.0.0.1; `prepare` puts into its folder what it is started with:
    /// a certificate `server.pem` with its `server.key`, a list `pg_hba.conf` of who may come.
    pub fn listening(prepare: impl FnOnce(&Path)) -> Option<Self> {
        let unused = Self::absent()?;
        std::fs::create_dir_all(&unused.0).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::write(unused.0.join("port"), free.to_string()).unwrap();
        prepare(&unused.0);
        unused.resume();
        Some(unused)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        let told = std::fs::read_to_string(self.0.join("port")).ok().and_then(|text| text.parse().ok());
        told.unwrap_or(5432)
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join(format!(".s.PGSQL.{}", self.port()))
    }

    fn folder(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Starts it again after a stop.
    pub fn resume(&self) {
        let output = script(&["start", self.folder()]);
        assert!(output.status.success(), "{}", said(&output));
    }

    /// Stops it as a crash would: nothing is written, nobody is told.
    pub fn crash(&self) {
        let output = script(&["stop", self.folder(), "immediate"]);
        assert!(output.status.success(), "{}", said(&output));
    }

    /// Runs SQL or other words of psql; what it printed, bare.
    pub fn psql(&self, database: &str, words: &[&str]) -> String {
        let mut all = vec!["psql", self.folder(), database, "--tuples-only", "--no-align"];
        all.extend(words);
        let output = script(&all);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A new, empty database: its name and its `DATABASE_URL`.
    pub fn database(&self) -> (String, String) {
        let name = format!("market_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &["--command", &format!("CREATE DATABASE {name}")]);
        let folder = self.folder().replace('/', "%2F");
        let url = format!("postgresql://postgres@{folder}:{}/{name}", self.port());
        (name, url)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may be stopped already.
        let _ = script(&["stop", self.folder(), "immediate"]);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
