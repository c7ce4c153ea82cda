//! The tools of integrations as `svc mcp` lists them: each by a name of its own, `INTEGRATION__TOOL`, with
//! its own schema. A call of one takes the same way through the daemon as `integration_exec`: the same
//! rights, gates and limits.
//!
//! Every tool that is listed costs its reader context, so that there is room for some; the others are called
//! by `integration_exec`. A server that takes its time is not waited for: the client hears that the list has
//! changed.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Integrations whose tools are listed, at most.
pub const MAX_INTEGRATIONS: usize = 10;
/// Tools of integrations listed at most.
pub const MAX_TOOLS: usize = 60;
/// Bytes of them all, some 12 000 tokens.
pub const MAX_BYTES: usize = 48 << 10;
/// Characters of a name: models take 64, clients put the server's name before it.
const MAX_NAME_CHARS: usize = 52;
/// How long a list of tools waits for the integrations' servers.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How often is looked whether other integrations are there.
pub const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often one is asked that does not answer; a server may be downloaded first.
const MAX_TRIES: u32 = 3;
/// The argument that a tool's own arguments get beside them.
pub const APPROVAL: &str = "approvalId";
/// Between an integration and its tool.
const JOINT: &str = "__";

/// What makes an integration's tools worth another look, and what was found then.
struct Shelf {
    sign: String,
    tools: Vec<Value>,
    /// How often it was asked in vain.
    unanswered: u32,
}

#[derive(Default)]
struct Inner {
    shelves: BTreeMap<String, Shelf>,
    /// Somebody looks from time to time.
    is_watched: bool,
    /// All that are there were asked once.
    is_looked: bool,
    /// A client has got a list: it is told of another one.
    is_listed: bool,
}

/// What is offered now.
#[derive(Default)]
pub struct Offers {
    inner: Mutex<Inner>,
    looked: Condvar,
}

impl Offers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread that looks is still to be started; asked once.
    pub fn is_unwatched(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_watched, true)
    }

    /// These are attached now, each with a sign that changes when it is worth another look. Forgets what is
    /// gone; the ids to ask, and whether the client's list is out of date.
    pub fn attach(&self, signs: &BTreeMap<String, String>) -> (Vec<String>, bool) {
        let mut inner = self.lock();
        let before = inner.shelves.len();
        inner.shelves.retain(|id, _| signs.contains_key(id));
        let is_news = before != inner.shelves.len() && inner.is_listed;
        let is_known = |(id, sign): &(&String, &String)| {
            let is_done = |shelf: &&Shelf| shelf.unanswered == 0 || shelf.unanswered >= MAX_TRIES;
            inner.shelves.get(*id).filter(is_done).is_some_and(|shelf| shelf.sign == **sign)
        };
        let to_ask = signs.iter().filter(|one| !is_known(one)).take(MAX_INTEGRATIONS);
        (to_ask.map(|(id, _)| id.clone()).collect(), is_news)
    }

    /// What was found of one; `None` where it could not be asked: then it is asked again a few times. Whether
    /// the client's list is out of date.
    pub fn found(&self, id: &str, sign: &str, listed: Option<&Value>) -> bool {
        let tools = listed.and_then(|listed| listed["tools"].as_array()).into_iter().flatten();
        let tools: Vec<Value> = tools.filter_map(|tool| offer(id, tool)).collect();
        let mut inner = self.lock();
        let before = inner.shelves.get(id);
        let is_same = before.map_or(tools.is_empty(), |shelf| shelf.tools == tools);
        let tries = before.filter(|shelf| shelf.sign == sign).map_or(0, |shelf| shelf.unanswered);
        let unanswered = if listed.is_some() { 0 } else { tries + 1 };
        inner.shelves.insert(id.to_owned(), Shelf { sign: sign.to_owned(), tools, unanswered });
        !is_same && inner.is_listed
    }

    /// A look is over.
    pub fn looked(&self) {
        self.lock().is_looked = true;
        self.looked.notify_all();
    }

    /// The tools to list, as far as they are known by then.
    pub fn list(&self) -> Vec<Value> {
        let inner = self.lock();
        let waited = self.looked.wait_timeout_while(inner, PATIENCE, |inner| !inner.is_looked);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        inner.is_listed = true;
        let mut room = MAX_BYTES;
        let fits = |tool: &&Value| {
            let bytes = tool.to_string().len();
            let fits = bytes <= room;
            room -= if fits { bytes } else { 0 };
            fits
        };
        inner.shelves.values().flat_map(|shelf| &shelf.tools).filter(fits).take(MAX_TOOLS).cloned().collect()
    }
}

/// A tool as it is offered; `None` where its name or its arguments do not allow that.
fn offer(id: &str, tool: &Value) -> Option<Value> {
    let own = tool["name"].as_str()?;
    let name = format!("{id}{JOINT}{own}");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let properties = tool["inputSchema"]["properties"].as_object();
    if name.len() > MAX_NAME_CHARS
        || !name.chars().all(is_plain)
        || tool["inputSchema"]["type"] != "object"
        || properties.is_some_and(|properties| properties.contains_key(APPROVAL))
    {
        return None;
    }
    let mut words = tool["description"].as_str().unwrap_or(own).to_owned();
    let mut schema = tool["inputSchema"].clone();
    if tool["gated"] == true {
        words.push_str(
            " (Needs a person's approval: the first call answers with an approvalId; you are told the decision, then \
             repeat the same call with it.)",
        );
        let approval =
            json!({"type": "string", "description": "from an earlier answer; not an argument of the tool"});
        match schema["properties"].as_object_mut() {
            Some(properties) => drop(properties.insert(APPROVAL.into(), approval)),
            None => schema["properties"] = json!({APPROVAL: approval}),
        }
    }
    let mut offered = json!({"name": name, "description": words, "inputSchema": schema});
    for more in ["title", "annotations", "outputSchema"] {
        // A gated call first answers with something else than its own output.
        if !tool[more].is_null() && (more != "outputSchema" || tool["gated"] != true) {
            offered[more] = tool[more].clone();
        }
    }
    Some(offered)
}

/// What a call of an offered tool means: the integration, and what `integration_exec` takes. `None`: it is no
/// such name.
pub fn call_of(name: &str, given: &Value) -> Option<(String, Value)> {
    // No integration's id has an underscore.
    let (id, tool) = name.split_once(JOINT).filter(|(id, tool)| !id.is_empty() && !tool.is_empty())?;
    let mut params = given.as_object().cloned().unwrap_or_else(Map::new);
    let approval = params.remove(APPROVAL).unwrap_or(Value::Null);
    Some((id.to_owned(), json!({"tool": tool, "params": params, "approvalId": approval})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, gated: bool) -> Value {
        let schema =
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        json!({"name": name, "description": "Says it", "inputSchema": schema, "gated": gated,
               "outputSchema": {"type": "object"}})
    }

    fn names(offers: &Offers) -> Vec<String> {
        let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
        offers.list().iter().map(name).collect()
    }

    #[test]
    fn a_tool_keeps_its_schema_and_a_gated_one_takes_the_approval_beside_it() {
        let plain = offer("hub", &tool("echo", false)).expect("offered");
        assert_eq!(plain["name"], "hub__echo");
        assert_eq!(plain["inputSchema"], tool("echo", false)["inputSchema"]);
        assert_eq!(plain["outputSchema"], json!({"type": "object"}));
        let gated = offer("hub", &tool("send", true)).expect("offered");
        assert_eq!(gated["inputSchema"]["properties"][APPROVAL]["type"], "string");
        assert_eq!(gated["inputSchema"]["required"], json!(["text"]));
        assert!(gated["description"].as_str().is_some_and(|words| words.contains("approvalId")));
        assert!(gated["outputSchema"].is_null(), "its first answer is another one");
    }

    #[test]
    fn what_a_client_could_not_name_or_would_mix_up_is_left_to_integration_exec() {
        let mut takes_one = tool("own", false);
        takes_one["inputSchema"]["properties"][APPROVAL] = json!({"type": "string"});
        let long = "x".repeat(MAX_NAME_CHARS);
        for bad in
            [tool("a.b", false), tool("a b", false), tool(&long, false), takes_one, json!({"name": "bare"})]
        {
            assert_eq!(offer("hub", &bad), None, "{bad}");
        }
    }

    #[test]
    fn a_call_is_that_of_integration_exec_with_the_approval_taken_out() {
        let given = json!({"text": "x", APPROVAL: "apr-1"});
        let (id, body) = call_of("my-hub__do__it", &given).expect("a call");
        assert_eq!(id, "my-hub");
        assert_eq!(body, json!({"tool": "do__it", "params": {"text": "x"}, "approvalId": "apr-1"}));
        assert_eq!(call_of("hub__x", &Value::Null).expect("a call").1["params"], json!({}));
        for other in ["ask_human", "__x", "hub__", ""] {
            assert_eq!(call_of(other, &Value::Null), None, "{other}");
        }
    }

    #[test]
    fn there_is_room_for_some_tools_and_changes_are_told_once_a_list_was_given() {
        let offers = Offers::default();
        let signs = |ids: &[&str]| ids.iter().map(|id| ((*id).to_owned(), "1".to_owned())).collect();
        assert_eq!(offers.attach(&signs(&["a", "b"])), (vec!["a".into(), "b".into()], false));
        let many: Vec<Value> = (0..MAX_TOOLS).map(|n| tool(&format!("t{n}"), false)).collect();
        assert!(!offers.found("a", "1", Some(&json!({"tools": many}))), "nobody has a list yet");
        offers.looked();
        assert_eq!(names(&offers).len(), MAX_TOOLS);
        let echo = json!({"tools": [tool("echo", false)]});
        assert!(offers.found("b", "1", Some(&echo)), "the list is out of date");
        assert_eq!(names(&offers).len(), MAX_TOOLS, "no room for another");
        assert!(!offers.found("b", "1", Some(&echo)));
        assert_eq!(offers.attach(&signs(&["b"])), (Vec::new(), true), "one is gone");
        assert_eq!(names(&offers), ["b__echo"]);
        let mut large = tool("large", false);
        large["description"] = "x".repeat(MAX_BYTES).into();
        offers.found("b", "2", Some(&json!({"tools": [large, tool("echo", false)]})));
        assert_eq!(names(&offers), ["b__echo"], "what does not fit is left out");
        assert_eq!(offers.attach(&signs(&["b"])).0, ["b"], "its sign is another one");
        // One that could not be asked is asked again, but not for ever.
        for _ in 0..MAX_TRIES {
            assert_eq!(offers.attach(&signs(&["c"])).0, ["c"]);
            assert!(!offers.found("c", "1", None));
        }
        assert!(offers.attach(&signs(&["c"])).0.is_empty());
    }
}
