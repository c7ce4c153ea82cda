//! A program for the tests of this crate: a keeper, and a small daemon that can be killed.
//!
//! ```text
//! svc-keep __keep              a keeper, within the bounds of a file "limits" in its folder, if there is one
//! svc-keep __terminal MS ..    a terminal that counts a person as gone after so many milliseconds
//! svc-keep daemon RUN COUNT    a daemon that has a keeper run the script on its standard input, takes in the
//!                              first COUNT lines of its output, tells how far it came, and waits
//! svc-keep origin DIR PID..    where these come from, as another daemon of the project DIR sees them
//! ```

use std::ffi::OsString;
use std::io::{BufRead, Read, Write};
use std::process::ExitCode;
use std::time::Duration;
use svc_keeper::client::{self, Next};
use svc_keeper::protocol::{Order, Record, ToKeeper, records};
use svc_keeper::{Limits, SUB_COMMAND, terminal};
use svc_sys::process::{Marker, Processes, origin};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [SUB_COMMAND] => svc_keeper::main_within(limits()),
        [terminal::SUB_COMMAND, away_ms, ..] => {
            let away = Duration::from_millis(away_ms.parse().expect("a number"));
            let args: Vec<OsString> = std::env::args_os().skip(3).collect();
            terminal::main_within(&args, terminal::Limits { away })
        }
        ["origin", project_dir, ref pids @ ..] => {
            for pid in pids {
                println!("{:?}", origin(pid.parse().expect("a process"), project_dir.as_ref()));
            }
            ExitCode::SUCCESS
        }
        ["daemon", run_dir, count] => daemon(run_dir, count.parse().expect("a number")),
        _ => ExitCode::from(2),
    }
}

fn limits() -> Limits {
    let text = std::fs::read_to_string("limits").unwrap_or_default();
    let mut limits = Limits::default();
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let value: u64 = value.parse().expect("a number");
        let size = usize::try_from(value).expect("a size");
        match name {
            "memory_bytes" => limits.memory_bytes = size,
            "memory_bytes_max" => limits.memory_bytes_max = size,
            "spill_bytes" => limits.spill_bytes = value,
            "spool_bytes_max" => limits.spool_bytes_max = value,
            "input_bytes_max" => limits.input_bytes_max = size,
            "stuck_ms" => limits.stuck = Duration::from_millis(value),
            "hello_ms" => limits.hello = Duration::from_millis(value),
            "stay_ms" => limits.stay = Duration::from_millis(value),
            _ => panic!("no such limit: {name}"),
        }
    }
    limits
}

fn daemon(run_dir: &str, count: usize) -> ExitCode {
    let mut script = String::new();
    std::io::stdin().read_to_string(&mut script).expect("a script");
    let processes = Processes::start().expect("a subreaper");
    let order = Order {
        token: "the token".into(),
        run_dir: run_dir.into(),
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: Vec::new(),
        cwd: run_dir.into(),
        stdin: true,
        marker: Marker { agent: svc_base::ids::AgentId(7), project_dir: run_dir.into() },
        stop_grace_ms: 1000,
        orphan_ms: 60_000,
        nice: 0,
        ceiling: 0,
    };
    let program = std::env::current_exe().expect("this program").into();
    let mut link = client::start(&processes, program, &order).expect("a keeper");
    let mut lines = 0;
    while lines < count {
        let Next::Records { offset, .. } = link.reader.next(None) else { return ExitCode::FAILURE };
        let mut end = offset;
        for (behind, _, record) in records(link.reader.bytes()) {
            if let Record::Out(bytes) = record {
                lines += bytes.lines().count();
                print!("{}", String::from_utf8_lossy(bytes));
            }
            end = offset + behind;
            if lines >= count {
                break;
            }
        }
        link.writer.send(&ToKeeper::Taken { offset: end, seq: 0 }).expect("taken");
        if lines >= count {
            println!("taken {end}");
            std::io::stdout().flush().expect("told");
        }
    }
    // Until it is killed: its keeper is not to see it go in good order.
    loop {
        std::thread::park();
    }
}
