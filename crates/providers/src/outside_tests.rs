use super::*;
use crate::{TurnEnd, Usage, by_id};

/// What a reader makes of these lines: the session, and what was said and done, in short.
fn read(provider: &str, lines: &[&str]) -> (Session, Vec<String>) {
    let mut reader = by_id(provider).unwrap().session_reader().unwrap();
    let (mut steps, mut told) = (Vec::new(), Vec::new());
    for line in lines {
        reader.line(line, &mut steps);
    }
    reader.end(&mut steps);
    for step in steps {
        told.push(match step {
            Step::Said(text) => format!("> {text}"),
            Step::Event(Activity::Text { text }) => text,
            Step::Event(Activity::TurnStarted) => "begin".into(),
            Step::Event(Activity::TurnEnded(TurnEnd { text, .. })) => format!("end {text}"),
            Step::Event(Activity::ToolStarted { name, path, .. }) => {
                format!("{name} {}", path.unwrap_or_default())
            }
            Step::Event(Activity::ToolEnded { error, output, .. }) => format!("ended {error} {output}"),
            Step::Event(Activity::Usage(Usage { delta, .. })) if delta.is_zero() => continue,
            Step::Event(Activity::Usage(Usage { delta, .. })) => format!("{} {}", delta.input, delta.output),
            other => format!("{other:?}"),
        });
    }
    (reader.session().clone(), told)
}

fn known(session: &Session) -> (&str, &str, &str, u64, u64) {
    let Session { id, folder, words, turns, tokens, .. } = session;
    (id, folder, words, *turns, tokens.total())
}

/// As gemini 0.61.0 writes it: a message that calls a tool stands there twice.
#[test]
fn gemini_counts_a_message_that_stands_there_twice_once() {
    let call = "{\"id\":\"w\",\"name\":\"write_file\",\"args\":{\"file_path\":\"/p/a\"},\"status\":\"success\",\"result\":\
                [{\"functionResponse\":{\"response\":{\"output\":\"ok\"}}}]}";
    let message = |more: &str| {
        format!(
            "{{\"id\":\"m1\",\"timestamp\":\"2026-11-23T19:30:10.229Z\",\"type\":\"gemini\",\"content\":\"\",\"tokens\":\
             {{\"input\":1500,\"output\":40,\"cached\":500,\"thoughts\":10,\"total\":1550}},\"model\":\"gemini-2.5-pro\"{more}}}"
        )
    };
    let (first, again) = (message(""), message(&format!(",\"toolCalls\":[{call}]")));
    let lines = [
        "{\"sessionId\":\"4c88885a\",\"startTime\":\"2026-11-23T19:30:09.893Z\",\"kind\":\"main\"}",
        "{\"$set\":{\"messages\":[{\"id\":\"c\",\"type\":\"user\",\"content\":[{\"text\":\"<session_context>x\"}]}]}}",
        "{\"id\":\"u1\",\"type\":\"user\",\"content\":[{\"text\":\"write it\"}]}",
        &first,
        "{\"$set\":{\"lastUpdated\":\"2026-11-23T19:30:10.229Z\"}}",
        &again,
        "{\"id\":\"u2\",\"type\":\"user\",\"content\":[{\"functionResponse\":{\"id\":\"w\"}}]}",
        "{\"id\":\"m2\",\"type\":\"gemini\",\"content\":\"done\",\"tokens\":{\"input\":1600,\"output\":25,\"total\":1625}}",
        "no JSON",
    ];
    let (session, told) = read("gemini", &lines);
    assert_eq!(known(&session), ("4c88885a", "", "write it", 1, 1550 + 1625));
    assert_eq!((session.model.as_deref(), session.is_part), (Some("gemini-2.5-pro"), false));
    assert!(session.began < session.changed, "{session:?}");
    let wanted = [
        "> write it",
        "begin",
        "1000 50",
        "write_file /p/a",
        "ended false ok",
        "done",
        "1600 25",
        "end done",
    ];
    assert_eq!(told, wanted);
    let (part, _) = read("gemini", &["{\"sessionId\":\"x\",\"kind\":\"subagent\"}"]);
    assert!(part.is_part);
}

/// Its sums come at the end of a turn, and not where the program was ended before that.
#[test]
fn claude_code_is_counted_by_its_sums_and_behind_them_message_by_message() {
    let says = |id: &str, output: u64, stop: &str| {
        format!(
            "{{\"type\":\"assistant\",\"sessionId\":\"s\",\"cwd\":\"/p/sub\",\"timestamp\":\"2026-11-23T19:30:04.625Z\",\
             \"message\":{{\"id\":\"{id}\",\"model\":\"claude-opus-5-5\",\"content\":[{{\"type\":\"text\",\"text\":\"done\"}}],\
             \"stop_reason\":{stop},\"usage\":{{\"input_tokens\":100,\"output_tokens\":{output}}}}}}}"
        )
    };
    let (one, ended) = (says("m1", 5, "\"end_turn\""), says("m2", 3, "null"));
    let grown = says("m2", 9, "null");
    let person = "{\"type\":\"user\",\"sessionId\":\"s\",\"cwd\":\"/p/sub\",\"isSidechain\":false,\"message\":{\"role\":\
                  \"user\",\"content\":\"do it\"}}";
    let sums = "{\"type\":\"cost-state\",\"sessionId\":\"s\",\"modelUsage\":{\"a\":{\"inputTokens\":100,\"outputTokens\":5},\
                \"b\":{\"inputTokens\":7,\"outputTokens\":1}}}";
    let (session, told) = read("claude-code", &[person, &one, sums, person, &ended, &grown]);
    assert_eq!(known(&session), ("s", "/p/sub", "do it", 2, 113 + 109));
    assert_eq!(session.model.as_deref(), Some("claude-opus-5-5"));
    // Those of each model apart.
    let first = ["> do it", "begin", "done", "end done", "7 1", "100 5"];
    assert_eq!(told[..first.len()], first);
    assert_eq!(told[first.len()..], ["> do it", "begin", "done", "done", "100 9"]);
    let (session, _) = read("claude-code", &[person, &one]);
    assert_eq!(session.tokens.total(), 105, "a version that writes no sums");
    let side = person.replace("\"isSidechain\":false", "\"isSidechain\":true");
    assert!(read("claude-code", &[&side]).0.is_part);
}

#[test]
fn codex_tells_its_thread_folder_model_and_commands() {
    let event = |payload: &str| {
        format!("{{\"timestamp\":\"2026-11-23T19:30:36.401Z\",\"type\":\"event_msg\",\"payload\":{payload}}}")
    };
    let item = |item: &str| event(&format!("{{\"type\":\"item_completed\",\"item\":{item}}}"));
    let meta = |source: &str| {
        format!(
            "{{\"type\":\"session_meta\",\"payload\":{{\"id\":\"01a2\",\"cwd\":\"/p\",\"source\":{source}}}}}"
        )
    };
    let lines = [
        meta("\"exec\""),
        event("{\"type\":\"task_started\"}"),
        "{\"type\":\"turn_context\",\"payload\":{\"model\":\"gpt-5.5\"}}".to_owned(),
        item("{\"type\":\"UserMessage\",\"content\":[{\"type\":\"text\",\"text\":\"run it\"}]}"),
        item(
            "{\"type\":\"CommandExecution\",\"id\":\"c\",\"command\":[\"bash\",\"-lc\",\"ls\"],\"status\":\"completed\",\
             \"aggregated_output\":\"a b\"}",
        ),
        event(
            "{\"type\":\"token_count\",\"info\":{\"total_token_usage\":{\"input_tokens\":150,\"output_tokens\":12}}}",
        ),
        event("{\"type\":\"task_complete\",\"last_agent_message\":\"done\"}"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (session, told) = read("codex", &lines);
    assert_eq!(known(&session), ("01a2", "/p", "run it", 1, 162));
    assert_eq!((session.model.as_deref(), session.is_part), (Some("gpt-5.5"), false));
    assert_eq!(told, ["begin", "> run it", "command_execution ", "ended false a b", "150 12", "end done"]);
    assert!(read("codex", &[&meta("{\"subagent\":\"review\"}")]).0.is_part);
}

#[test]
fn opencode_lists_a_line_a_session_and_asks_for_no_folder_or_id_that_ends_its_question() {
    let env = |name: &str| (name == "HOME").then(|| PathBuf::from("/h"));
    let project = std::path::Path::new("/p/it's");
    let kept = by_id("opencode").unwrap().kept_sessions(project, &env).unwrap();
    let Kept::Told { file, list, read, .. } = kept else { panic!("it tells itself") };
    assert_eq!(file, std::path::Path::new("/h/.local/share/opencode/opencode.db"));
    assert!(list[1].contains("'/p/it''s'") && !list[1].contains("it's"), "{list:?}");
    let line = "{\"id\":\"ses_1\",\"folder\":\"/p\",\"began\":1,\"changed\":2,\"input\":3,\"output\":4,\"read\":0,\"write\":0,\
                \"turns\":1,\"words\":\"do it\"}";
    let session = read(line).unwrap();
    assert_eq!((known(&session), session.changed), (("ses_1", "/p", "do it", 1, 7), Some(Time(2))));
    assert_eq!(read("told"), None);
    assert_eq!(read("{\"id\":\"a'; drop table part; --\"}"), None);
}

#[test]
fn each_program_looks_where_its_variables_say() {
    let env = |name: &str| match name {
        "HOME" => Some(PathBuf::from("/h")),
        "CLAUDE_CONFIG_DIR" => Some(PathBuf::from("/c")),
        "GEMINI_CLI_HOME" => Some(PathBuf::from("/g")),
        _ => None,
    };
    let mut found = Vec::new();
    for provider in crate::all() {
        let kept = provider.kept_sessions(std::path::Path::new("/p/a.b"), &env);
        assert_eq!(kept.is_some(), provider.session_reader().is_some(), "{}", provider.info().id);
        if let Some(Kept::Files(files)) = kept {
            assert!(provider.info().capabilities.resume);
            found.push(format!("{} {} {}", provider.info().id, files.root.display(), files.begins));
        }
    }
    assert_eq!(
        found,
        ["claude-code /c/projects -p-a-b", "codex /h/.codex/sessions ", "gemini /g/.gemini/tmp "]
    );
}
