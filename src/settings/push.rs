//! By which push services phones are told.

use serde::Deserialize;
use serde_json::Value;
use svc_base::outgoing;

/// `push`. From the person's own file alone.
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
pub struct Push {
    /// The hosts of push services; empty for any.
    pub hosts: Vec<String>,
    /// Those of the person's own, which may be inside.
    pub own: Vec<String>,
    /// A file with who vouches for those.
    pub certificate: Option<String>,
    /// An address of the person's own, `mailto:` or `https://`.
    pub contact: Option<String>,
}

impl Push {
    /// Whether a host is a push service of the person's own.
    pub fn is_own(&self, host: &str) -> bool {
        self.own.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// Whether phones may be told by a host at this port.
    ///
    /// Errors: the rule that is broken.
    pub fn allows(&self, host: &str, port: u16) -> Result<(), String> {
        if self.is_own(host) {
            return Ok(());
        }
        if !self.hosts.is_empty() && !self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
            return Err(format!("push.hosts does not name {host}; a person adds it to their own settings"));
        }
        if port != 443 {
            return Err(format!("port {port} is not 443, and push.own does not name {host}"));
        }
        Ok(())
    }
}

/// The settings of this group.
pub(super) const KEYS: [&str; 4] = ["push.hosts", "push.own", "push.certificate", "push.contact"];
/// Hosts of a list at most.
const MAX_HOSTS: usize = 16;
/// Characters of a host, of a path and of an address.
const MAX_CHARS: usize = 200;

/// What is wrong with a setting of this group.
pub(super) fn check(key: &str, value: &Value) -> Option<String> {
    let is_one = |takes: fn(&str) -> bool| {
        value.is_null() || value.as_str().is_some_and(|text| text.len() <= MAX_CHARS && takes(text))
    };
    let (fits, rule) = match key {
        "push.certificate" => (is_one(|path| path.starts_with('/')), "must be an absolute path, or null"),
        "push.contact" => (is_one(is_contact), "must be a mailto: or https:// address, or null"),
        _ => (are_hosts(value), "must be a list of at most 16 host names without scheme, port and path"),
    };
    (!fits).then(|| rule.to_owned())
}

fn is_contact(text: &str) -> bool {
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
    is_plain(text)
        && (outgoing::https_host(text).is_some()
            || text.strip_prefix("mailto:").is_some_and(|rest| rest.contains('@')))
}

fn are_hosts(value: &Value) -> bool {
    let is_host = |host: &Value| {
        let host = host.as_str().filter(|host| host.len() <= MAX_CHARS);
        let bracketed = |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        host.is_some_and(|host| {
            let url = format!("https://{}", bracketed(host));
            outgoing::https_host(&url) == Some((host, 443))
        })
    };
    value.as_array().is_some_and(|hosts| hosts.len() <= MAX_HOSTS && hosts.iter().all(is_host))
}
