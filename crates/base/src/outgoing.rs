//! Where the daemon may send what others must not read.

/// Hosts that are this machine, as they stand in an address.
const OWN: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The rule in words.
pub const RULE: &str = "an https:// address, or http:// on this machine (127.0.0.1, localhost, [::1])";

/// Whether what is sent to this address travels in the open within this machine at most: `https://`, or
/// `http://` to this machine. No user, no fragment, nothing that programs read differently.
pub fn is_guarded(url: &str) -> bool {
    if url.contains(|c: char| c.is_whitespace() || c.is_control() || "#@\\\"".contains(c)) {
        return false;
    }
    if let Some(rest) = url.strip_prefix("https://") {
        return !rest.is_empty() && !rest.starts_with(['/', ':', '?']);
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    OWN.iter().any(|host| {
        authority.strip_prefix(host).is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::is_guarded;

    #[test]
    fn secrets_travel_in_the_open_only_within_this_machine() {
        for good in [
            "https://example.org/hook?key=1",
            "https://10.0.0.1:8443",
            "http://127.0.0.1:9/a",
            "http://localhost",
            "http://[::1]:80?x",
        ] {
            assert!(is_guarded(good), "{good}");
        }
        for bad in [
            "",
            "https://",
            "https:///a",
            "http://example.org",
            "http://127.0.0.1.example.org",
            "http://127.0.0.1@example.org",
            "http://127.0.0.1:80:80",
            "http://localhost\\.example.org",
            "https://example.org/#a",
            "https://example.org/a b",
            "ftp://localhost",
            "file:///etc/passwd",
            "http://10.0.0.1",
        ] {
            assert!(!is_guarded(bad), "{bad}");
        }
    }
}
