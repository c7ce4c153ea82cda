//! The page at the door: the projects of this user, each with a link to its own console.

use super::api::POLICY;
use crate::api::Reply;
use std::fmt::Write as _;
use svc_base::untrusted::escape_html as escape;
use svc_sys::registry::Entry;

/// The page. What waits in each project its script asks that project's daemon; styles and script come from
/// the one that serves the page, whose name is `own`.
pub fn page(own: &str, projects: &[Entry]) -> Reply {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>svc: projects</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <link rel=\"icon\" href=\"/p/{own}/console/icon.svg\">\
         <link rel=\"stylesheet\" href=\"/p/{own}/console/base.css\">\
         <link rel=\"stylesheet\" href=\"/p/{own}/console/lists.css\">\
         <script src=\"/p/{own}/console/theme.js\"></script>\
         <script type=\"module\" src=\"/p/{own}/console/projects.js\"></script></head>\
         <body><main><h1>Projects</h1><ul>"
    );
    for project in projects {
        let dir = project.facts.project.to_string_lossy();
        let (name, dir) = (escape(&project.name), escape(&dir));
        // Writing to a text does not fail.
        let _ = if project.is_running {
            write!(
                html,
                "<li><a href=\"/p/{name}/\">{name}</a> <span class=\"muted\">{dir}</span> \
                 <span role=\"status\" data-name=\"{name}\">running</span></li>"
            )
        } else {
            write!(html, "<li>{name} <span class=\"muted\">{dir}</span> <span>stopped</span></li>")
        };
    }
    html.push_str("</ul></main></body></html>");
    Reply::bytes(200, "text/html; charset=utf-8", html.into_bytes())
        .with_header("Cache-Control", "no-cache")
        .with_header("Content-Security-Policy", POLICY)
}
