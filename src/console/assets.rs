//! The files, as they were when the binary was built, without what only readers of their source need
//! (`lean.rs`, which the build script runs).

/// The page that loads the rest.
pub const SHELL: &str = include_str!(concat!(env!("OUT_DIR"), "/console/index.html"));

/// One file.
#[derive(Debug)]
pub struct Asset {
    /// Its name below `/console/`.
    pub name: &'static str,
    pub text: &'static str,
    /// Whether the first screen needs it, so that the page asks for it at once.
    pub first: bool,
}

impl Asset {
    /// The media type of its name.
    pub fn content_type(&self) -> &'static str {
        match self.name.rsplit_once('.') {
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        }
    }
}

macro_rules! asset {
    ($name:literal, $first:literal) => {
        Asset { name: $name, text: include_str!(concat!(env!("OUT_DIR"), "/console/", $name)), first: $first }
    };
}

/// All files but the page itself.
pub static ALL: &[Asset] = &[
    asset!("base.css", false),
    asset!("controls.css", false),
    asset!("lists.css", false),
    asset!("agent.css", false),
    asset!("pages.css", false),
    asset!("theme.js", false),
    asset!("icon.svg", false),
    asset!("main.js", true),
    asset!("dom.js", true),
    asset!("api.js", true),
    asset!("away.js", true),
    asset!("store.js", true),
    asset!("vlist.js", true),
    asset!("palette.js", true),
    asset!("spawn.js", true),
    asset!("home.js", true),
    asset!("queue.js", true),
    asset!("gauge.js", true),
    asset!("approvals.js", true),
    asset!("notices.js", true),
    asset!("missing.js", false),
    asset!("log.js", false),
    asset!("agent.js", false),
    asset!("timeline.js", false),
    asset!("talk.js", false),
    asset!("agent-tabs.js", false),
    asset!("card.js", false),
    asset!("colours.js", false),
    asset!("diff.js", false),
    asset!("review.js", false),
    asset!("viewed.js", false),
    asset!("compare.js", false),
    asset!("sessions.js", false),
    asset!("chart.js", false),
    asset!("tokens.js", false),
    asset!("spent.js", false),
    asset!("memory.js", false),
    asset!("prose.js", false),
    asset!("reading.js", false),
    asset!("map.js", false),
    asset!("audit.js", false),
    asset!("replay.js", false),
    asset!("locks.js", false),
    asset!("files.js", false),
    asset!("editor.js", false),
    asset!("settings.js", false),
    asset!("credentials.js", false),
    asset!("teams.js", false),
    asset!("schedules.js", false),
    asset!("toys.js", false),
    asset!("integrations.js", false),
    asset!("gateways.js", false),
    asset!("skills.js", false),
    asset!("projects.js", false),
];

/// The file of this name.
pub fn find(name: &str) -> Option<&'static Asset> {
    ALL.iter().find(|asset| asset.name == name)
}
