//! `DATABASE_URL`: where the database is, who asks, and how the connection is secured.
//!
//! **Invariant:** no error here repeats any part of the URL but names of parameters and the values of
//! `sslmode` and `channel_binding`: a password that is not encoded well can end up anywhere else.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use svc_base::api::{decode_percent, parse_query};
use svc_base::secret::Secret;

/// Where a server listens unless told otherwise.
const PORT: u16 = 5432;
/// A server that does not answer is given up after this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest `connect_timeout`, in seconds.
const CONNECT_TIMEOUT_MAX_SECONDS: u64 = 60;
/// Where sockets are when no host is named: Debian's folder, then upstream's.
const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
/// `sslrootcert` of this name means the well-known authorities that come with this program.
const SYSTEM_ROOTS: &str = "system";
/// Parameters that can stand behind the question mark.
const PARAMETERS: &str = "host, port, user, password, dbname, sslmode, sslrootcert, channel_binding, \
     connect_timeout, application_name, options";

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A name or address, and a port.
    Tcp(String, u16),
    /// A socket of this machine.
    Unix(PathBuf),
}

/// How much a connection is secured, with the meaning that libpq gives to the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum SslMode {
    /// In the clear.
    Disable,
    /// Encrypted where the server can, else in the clear.
    Prefer,
    /// Encrypted, whoever the other end is.
    Require,
    /// Encrypted, and the certificate comes from a trusted authority.
    VerifyCa,
    /// The same, and it is for the host that was asked for.
    VerifyFull,
}

/// Which authorities are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// Those that come with the program.
    WellKnown,
    /// Those of a file.
    File(PathBuf),
}

/// Whether the proof of the password is bound to the TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// Where the server offers it.
    Prefer,
    /// Always: any other way to log in is refused.
    Require,
}

/// A `DATABASE_URL`, read.
#[derive(Debug, Clone)]
pub struct Target {
    pub place: Place,
    pub user: String,
    pub password: Option<Secret>,
    pub database: String,
    /// How it is secured.
    pub ssl_mode: SslMode,
    /// Who is believed, where anybody must be.
    pub roots: Option<Roots>,
    /// Whether the login is bound to it.
    pub channel_binding: ChannelBinding,
    /// For connecting and logging in together.
    pub connect_timeout: Duration,
    /// What the server shows of us.
    pub application_name: String,
    /// Settings for the server, as on its command line.
    pub options: Option<String>,
}

/// What stands in a URL, by name.
struct Parts(Vec<(String, String)>);

impl Parts {
    fn take(&mut self, name: &str) -> Option<String> {
        let mut found = None;
        self.0.retain_mut(|(given, value)| {
            let is_it = given == name;
            if is_it {
                found = Some(std::mem::take(value));
            }
            !is_it
        });
        found.filter(|value| !value.is_empty())
    }
}

impl Target {
    /// Reads a URL.
    ///
    /// Errors: what is wrong with which part, and what to write instead.
    pub fn parse(url: &str) -> Result<Self, String> {
        let mut parts = parts(url)?;
        let host = parts.take("host");
        let port = match parts.take("port") {
            None => PORT,
            Some(text) => text.parse().ok().filter(|port| *port > 0).ok_or(
                "the port must be a number from 1 to 65535; write special characters of user and password \
                 percent-encoded, a slash as %2F",
            )?,
        };
        let user = parts.take("user").ok_or("it names no user: postgresql://USER:PASSWORD@HOST/DATABASE")?;
        let place = place(host, port)?;
        let roots = parts.take("sslrootcert").map(|file| match file.as_str() {
            SYSTEM_ROOTS => Roots::WellKnown,
            file => Roots::File(file.into()),
        });
        let ssl_mode = ssl_mode(parts.take("sslmode").as_deref(), &place, roots.as_ref())?;
        let channel_binding = match parts.take("channel_binding").as_deref() {
            None | Some("prefer") => ChannelBinding::Prefer,
            Some("disable") => ChannelBinding::Disable,
            Some("require") => ChannelBinding::Require,
            Some(other) => {
                return Err(format!("channel_binding must be disable, prefer or require, it is {other:?}"));
            }
        };
        if channel_binding == ChannelBinding::Require && ssl_mode == SslMode::Disable {
            return Err("channel_binding=require needs TLS: set sslmode=require or more".into());
        }
        let target = Self {
            database: parts.take("dbname").unwrap_or_else(|| user.clone()),
            password: parts.take("password").map(Secret::new),
            connect_timeout: connect_timeout(parts.take("connect_timeout").as_deref())?,
            application_name: parts.take("application_name").unwrap_or_else(|| "svc-skills".into()),
            options: parts.take("options"),
            place,
            user,
            ssl_mode,
            roots,
            channel_binding,
        };
        match parts.0.first() {
            None => Ok(target),
            Some((name, _)) => {
                Err(format!("the parameter {name:?} is not supported; these are: {PARAMETERS}"))
            }
        }
    }
}

/// Takes a URL apart, escapes undone. What stands behind the question mark goes before what stands ahead of
/// it.
fn parts(url: &str) -> Result<Parts, String> {
    let rest = url.strip_prefix("postgresql://").or_else(|| url.strip_prefix("postgres://"));
    let rest = rest.ok_or("it must begin with postgresql:// or postgres://")?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, server) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    if server.contains(',') {
        return Err("it names more than one host, which is not supported: name one".into());
    }
    // The colons of an IPv6 address stand in brackets.
    let (host, port) = match server.rfind(']') {
        Some(end) => (&server[..=end], server[end + 1..].strip_prefix(':').unwrap_or(&server[end + 1..])),
        None => server.split_once(':').unwrap_or((server, "")),
    };
    let host = host.trim_matches(['[', ']']);
    let mut found = Vec::new();
    let ahead =
        [("user", user), ("password", password), ("host", host), ("port", port), ("dbname", database)];
    for (name, value) in ahead.into_iter().filter(|(_, value)| !value.is_empty()) {
        let value = decode_percent(value)
            .ok_or_else(|| format!("its {name} has a broken escape; write a per cent sign as %25"))?;
        found.push((name.to_owned(), value));
    }
    // A plus is a plus here, unlike in forms.
    let query = parse_query(&query.replace('+', "%2B")).ok_or("a parameter has a broken escape")?;
    found.extend(query);
    Ok(Parts(found))
}

fn place(host: Option<String>, port: u16) -> Result<Place, String> {
    let folder = match host {
        Some(host) if !host.starts_with('/') => return Ok(Place::Tcp(host, port)),
        Some(folder) => PathBuf::from(folder),
        None => {
            let folders = SOCKET_FOLDERS.iter().map(PathBuf::from);
            folders.into_iter().find(|folder| folder.is_dir()).ok_or("it names no host")?
        }
    };
    Ok(Place::Unix(folder.join(format!(".s.PGSQL.{port}"))))
}

/// Whether the way to a host does not leave this machine.
fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// As told; else nothing goes over a network in the clear.
fn ssl_mode(told: Option<&str>, place: &Place, roots: Option<&Roots>) -> Result<SslMode, String> {
    let Place::Tcp(host, _) = place else {
        // What goes through a socket of this machine is never encrypted, whatever is told: so does libpq.
        return Ok(SslMode::Disable);
    };
    let mode = match told {
        None if roots.is_some() => SslMode::VerifyFull,
        None if is_here(host) => SslMode::Prefer,
        None | Some("require") => SslMode::Require,
        Some("disable") => SslMode::Disable,
        Some("prefer") => SslMode::Prefer,
        Some("verify-ca") => SslMode::VerifyCa,
        Some("verify-full") => SslMode::VerifyFull,
        Some(other) => {
            return Err(format!(
                "sslmode must be disable, prefer, require, verify-ca or verify-full, it is {other:?}"
            ));
        }
    };
    match roots {
        Some(Roots::WellKnown) if mode != SslMode::VerifyFull => Err("sslrootcert=system needs \
             sslmode=verify-full: anybody can get a certificate of these authorities for a name of their own"
            .into()),
        // An authority that is named is asked, as in libpq.
        Some(_) if mode == SslMode::Require => Ok(SslMode::VerifyCa),
        _ => Ok(mode),
    }
}

fn connect_timeout(told: Option<&str>) -> Result<Duration, String> {
    let Some(text) = told else { return Ok(CONNECT_TIMEOUT) };
    let seconds = text.parse().ok().filter(|seconds| (1..=CONNECT_TIMEOUT_MAX_SECONDS).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        format!("connect_timeout must be a whole number of seconds from 1 to {CONNECT_TIMEOUT_MAX_SECONDS}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_its_escapes_are_undone() {
        let target = Target::parse("postgres://m%40rket:p%3Aw%2F%40%25+@db.internal:6543/my%20db").unwrap();
        assert_eq!(target.place, Place::Tcp("db.internal".into(), 6543));
        assert_eq!((target.user.as_str(), target.database.as_str()), ("m@rket", "my db"));
        assert_eq!(target.password.as_ref().unwrap().expose(), "p:w/@%+");
        assert!(!format!("{target:?}").contains("p:w"), "it does not print");
        let target = Target::parse("postgresql://ada@[2001:db8::1]").unwrap();
        assert_eq!(target.place, Place::Tcp("2001:db8::1".into(), PORT));
        assert_eq!((target.database.as_str(), target.password), ("ada", None));
        let socket = "postgresql://ada@%2Ftmp%2Fx:5433/d";
        assert_eq!(Target::parse(socket).unwrap().place, Place::Unix("/tmp/x/.s.PGSQL.5433".into()));
        let behind = "postgresql://one:two@here/three?host=/run&user=ada&password=a%26+b&dbname=d&port=1";
        let target = Target::parse(behind).unwrap();
        assert_eq!(target.place, Place::Unix("/run/.s.PGSQL.1".into()));
        assert_eq!((target.user.as_str(), target.database.as_str()), ("ada", "d"));
        assert_eq!(target.password.unwrap().expose(), "a&+b");
        let more = "postgresql://a@h/d?connect_timeout=9&application_name=x&options=-c%20geqo%3Doff";
        let target = Target::parse(more).unwrap();
        assert_eq!(target.connect_timeout, Duration::from_secs(9));
        assert_eq!(target.options.as_deref(), Some("-c geqo=off"));
    }

    #[test]
    fn nothing_goes_over_a_network_in_the_clear_unless_it_is_told() {
        for (url, mode) in [
            ("a@db.internal", SslMode::Require),
            ("a@192.0.2.7", SslMode::Require),
            ("a@localhost", SslMode::Prefer),
            ("a@127.0.0.1", SslMode::Prefer),
            ("a@[::1]", SslMode::Prefer),
            ("a@%2Ftmp", SslMode::Disable),
            ("a@%2Ftmp/d?sslmode=verify-full", SslMode::Disable),
            ("a@h/d?sslmode=disable", SslMode::Disable),
            ("a@h/d?sslmode=prefer", SslMode::Prefer),
            ("a@h/d?sslmode=require", SslMode::Require),
            ("a@h/d?sslmode=verify-ca", SslMode::VerifyCa),
            ("a@h/d?sslmode=verify-full", SslMode::VerifyFull),
            ("a@h/d?sslrootcert=/ca.pem", SslMode::VerifyFull),
            ("a@h/d?sslmode=require&sslrootcert=/ca.pem", SslMode::VerifyCa),
            ("a@h/d?sslrootcert=system", SslMode::VerifyFull),
        ] {
            assert_eq!(Target::parse(&format!("postgresql://{url}")).unwrap().ssl_mode, mode, "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_without_the_password() {
        for (url, word) in [
            ("mysql://a:hunter2@h/d", "postgresql://"),
            ("postgresql://a:hun/ter2@h/d", "port"),
            ("postgresql://a:hun%zzter2@h/d", "password"),
            ("postgresql://:hunter2@h/d", "user"),
            ("postgresql://a:hunter2@h,i/d", "more than one host"),
            ("postgresql://a:hunter2@h:0/d", "port"),
            ("postgresql://a:hunter2@h/d?sslmode=allow", "sslmode"),
            ("postgresql://a:hunter2@h/d?channel_binding=yes", "channel_binding"),
            ("postgresql://a:hunter2@h/d?sslmode=disable&channel_binding=require", "sslmode"),
            ("postgresql://a:hunter2@h/d?sslmode=require&sslrootcert=system", "verify-full"),
            ("postgresql://a:hunter2@h/d?connect_timeout=0", "connect_timeout"),
            ("postgresql://a:hunter2@h/d?sslcert=x", "\"sslcert\""),
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(error.contains(word) && !error.contains("hun"), "{url}: {error}");
        }
    }
}
