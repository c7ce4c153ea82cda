//! What the environment says, read once.

use crate::keys::Keys;
use crate::limits::PUBLIC_RPM;
use crate::limits::client::Proxies;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the service listens unless told otherwise.
pub const ADDRESS: &str = "127.0.0.1:31416";
/// The database unless told otherwise.
pub const DATABASE: &str = "svc-skills.db";
/// Largest `SKILLS_PUBLIC_RPM`.
const RPM_MAX: u32 = 1_000_000;

/// How `serve` runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen; port 0 takes any.
    pub address: SocketAddr,
    /// The `SQLite` file.
    pub database: PathBuf,
    /// `DATABASE_URL`: `PostgreSQL` instead.
    pub database_url: Option<String>,
    pub keys: Keys,
    /// `SKILLS_BASE_URL` without a slash at the end; the listening address where unset.
    pub base_url: Option<String>,
    /// `SKILLS_PUBLIC_RPM`; 0 switches the limit off.
    pub public_rpm: u32,
    /// `SKILLS_TRUSTED_PROXIES`.
    pub proxies: Proxies,
    /// `SKILLS_SITE_ORIGINS`.
    pub origins: Vec<String>,
    /// Whether the embedded skills are taken in at the start.
    pub seeds: bool,
}

impl Config {
    /// Reads the variables through `var`.
    ///
    /// Errors: a sentence that names the variable.
    pub fn read(var: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let told = |name: &str| var(name).filter(|value| !value.trim().is_empty());
        let (writer, previous) = (told("SKILLS_API_KEY"), told("SKILLS_API_KEY_PREVIOUS"));
        let admin = told("SKILLS_ADMIN_KEY");
        let public_rpm = match told("SKILLS_PUBLIC_RPM") {
            None => PUBLIC_RPM,
            Some(text) => text.trim().parse().ok().filter(|rpm| *rpm <= RPM_MAX).ok_or_else(|| {
                format!(
                    "SKILLS_PUBLIC_RPM must be a whole number from 0 (no limit) to {RPM_MAX}, it is {text:?}"
                )
            })?,
        };
        let proxies = match var("SKILLS_TRUSTED_PROXIES") {
            None => Proxies::loopback(),
            Some(text) => {
                Proxies::parse(&text).map_err(|error| format!("SKILLS_TRUSTED_PROXIES: {error}"))?
            }
        };
        let base_url = told("SKILLS_BASE_URL").map(|url| url.trim().trim_end_matches('/').to_owned());
        if let Some(url) = &base_url
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            return Err(format!("SKILLS_BASE_URL must be an http or https URL, it is {url:?}"));
        }
        let origins = told("SKILLS_SITE_ORIGINS").unwrap_or_default();
        let origins = origins.split([',', ' ']).map(|origin| origin.trim().trim_end_matches('/'));
        Ok(Self {
            address: ADDRESS.parse().map_err(|_| format!("{ADDRESS} is not an address"))?,
            database: PathBuf::from(DATABASE),
            database_url: told("DATABASE_URL"),
            keys: Keys::new(writer.as_deref(), previous.as_deref(), admin.as_deref()),
            base_url,
            public_rpm,
            proxies,
            origins: origins.filter(|origin| !origin.is_empty()).map(str::to_owned).collect(),
            seeds: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_1_variables() {
        let read = |name: &'static str, value: &'static str| {
            Config::read(move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(read("SKILLS_PUBLIC_RPM", "600").unwrap().public_rpm, 600);
        assert_eq!(read("", "").unwrap().public_rpm, 60);
        assert_eq!(read("SKILLS_BASE_URL", "https://a/b/").unwrap().base_url.as_deref(), Some("https://a/b"));
        assert_eq!(read("SKILLS_SITE_ORIGINS", "https://a, https://b/").unwrap().origins.len(), 2);
        assert!(!read("SKILLS_API_KEY", " ").unwrap().keys.any_writer());
        for (name, bad) in [
            ("SKILLS_PUBLIC_RPM", "many"),
            ("SKILLS_TRUSTED_PROXIES", "nonsense"),
            ("SKILLS_BASE_URL", "ftp://a"),
        ] {
            assert!(read(name, bad).unwrap_err().contains(name));
        }
    }
}
