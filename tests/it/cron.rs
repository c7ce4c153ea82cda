//! Cron: a table of expressions with their next times, every minute around changes of the clocks, and a
//! public library (croniter, in Python) as an oracle.

use crate::support::dice::Dice;
use crate::support::real::absent;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use svc::core::time::Time;
use svc::schedules::cron::{Cron, zone};

fn next(expression: &str, timezone: &str, after: &str) -> String {
    let cron = Cron::parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    let zone = zone(timezone).unwrap();
    let next = cron.next(Time::parse(after).unwrap(), &zone);
    next.map_or_else(|| "none".to_owned(), |time| time.to_string().replace(".000Z", "Z"))
}

/// Expression, time zone, after, expected.
#[rustfmt::skip]
const TABLE: &[(&str, &str, &str, &str)] = &[
    ("* * * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
    ("* * * * *", "UTC", "2026-12-31T23:59:30Z", "2027-01-01T00:00:00Z"),
    ("*/15 * * * *", "UTC", "2026-03-01T10:07:00Z", "2026-03-01T10:15:00Z"),
    ("0 * * * *", "UTC", "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"),
    ("30 9 * * *", "UTC", "2026-05-05T09:30:00Z", "2026-05-06T09:30:00Z"),
    ("30 9 * * *", "UTC", "2026-05-05T09:29:59Z", "2026-05-05T09:30:00Z"),
    ("0 9 * * 1-5", "UTC", "2026-11-20T09:00:00Z", "2026-11-23T09:00:00Z"),
    ("0 9 * * MON-FRI", "UTC", "2026-11-21T07:00:00Z", "2026-11-23T09:00:00Z"),
    ("0 9 * * mon,wed,fri", "UTC", "2026-11-23T12:00:00Z", "2026-11-25T09:00:00Z"),
    ("0 0 * * 0", "UTC", "2026-11-21T12:00:00Z", "2026-11-22T00:00:00Z"),
    ("0 0 * * 7", "UTC", "2026-11-21T12:00:00Z", "2026-11-22T00:00:00Z"),
    ("0 0 * * sun", "UTC", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"),
    ("0 0 * * 5-7", "UTC", "2026-11-19T10:00:00Z", "2026-11-20T00:00:00Z"),
    ("0 0 * * 6,7", "UTC", "2026-11-22T10:00:00Z", "2026-11-28T00:00:00Z"),
    ("0 0 1 * *", "UTC", "2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z"),
    ("0 0 31 * *", "UTC", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"),
    ("0 0 30 * *", "UTC", "2026-01-30T00:00:00Z", "2026-03-30T00:00:00Z"),
    ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
    ("0 0 29 2 *", "UTC", "2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"),
    ("0 0 29 2 *", "UTC", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"),
    ("0 12 29 FEB *", "UTC", "2027-01-01T00:00:00Z", "2028-02-29T12:00:00Z"),
    ("0 0 28 2 *", "UTC", "2026-02-28T00:00:00Z", "2027-02-28T00:00:00Z"),
    ("0 0 1 1 *", "UTC", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
    ("0 0 1 JAN,jul *", "UTC", "2026-03-01T00:00:00Z", "2026-07-01T00:00:00Z"),
    ("0 0 1 */3 *", "UTC", "2026-02-01T00:00:00Z", "2026-04-01T00:00:00Z"),
    ("0 0 1 2/3 *", "UTC", "2026-02-02T00:00:00Z", "2026-05-01T00:00:00Z"),
    ("0 0 13 * 5", "UTC", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"),
    ("0 0 13 * 5", "UTC", "2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z"),
    ("0 0 13 * FRI", "UTC", "2026-12-11T00:00:00Z", "2026-12-13T00:00:00Z"),
    ("0 0 1,15 * 1", "UTC", "2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z"),
    ("0 0 1,15 * 1", "UTC", "2026-12-07T12:00:00Z", "2026-12-14T00:00:00Z"),
    ("0 0 31 4 1", "UTC", "2026-04-01T00:00:00Z", "2026-04-06T00:00:00Z"),
    ("5-10 * * * *", "UTC", "2026-06-01T00:10:00Z", "2026-06-01T01:05:00Z"),
    ("5-10/2 * * * *", "UTC", "2026-06-01T00:05:00Z", "2026-06-01T00:07:00Z"),
    ("10/20 * * * *", "UTC", "2026-06-01T00:30:00Z", "2026-06-01T00:50:00Z"),
    ("*/7 * * * *", "UTC", "2026-06-01T00:56:00Z", "2026-06-01T01:00:00Z"),
    ("0-59/30 8-18/5 * * *", "UTC", "2026-06-01T13:30:00Z", "2026-06-01T18:00:00Z"),
    ("0-59/30 8-18/5 * * *", "UTC", "2026-06-01T18:30:00Z", "2026-06-02T08:00:00Z"),
    ("15,45 */6 * * *", "UTC", "2026-06-01T18:45:00Z", "2026-06-02T00:15:00Z"),
    ("0 22-23 * * *", "UTC", "2026-06-01T23:00:00Z", "2026-06-02T22:00:00Z"),
    ("0 0,12 1 */2 *", "UTC", "2026-01-01T12:00:00Z", "2026-03-01T00:00:00Z"),
    ("59 23 31 12 *", "UTC", "2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"),
    ("0 4 8-14 * *", "UTC", "2026-06-14T04:00:00Z", "2026-07-08T04:00:00Z"),
    ("1,2,3 4 5 6 *", "UTC", "2026-06-05T04:02:00Z", "2026-06-05T04:03:00Z"),
    ("0 0 * 2 MON", "UTC", "2026-02-23T00:00:00Z", "2027-02-01T00:00:00Z"),
    ("23 0-20/2 * * *", "UTC", "2026-06-01T20:23:00Z", "2026-06-02T00:23:00Z"),
    ("0 5 * * sat,SUN", "UTC", "2026-06-01T00:00:00Z", "2026-06-06T05:00:00Z"),
    // Clocks go forward in Berlin on 29 March 2026 at 02:00 (01:00 UTC): a certain time in the gap comes at
    // its end,
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
    ("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"),
    // what follows the wall is skipped.
    ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T00:00:00Z"),
    ("0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"),
    // Clocks go back on 25 October 2026 at 03:00 (01:00 UTC): a certain time comes once,
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T00:30:00Z"),
    ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
    // what follows the wall twice.
    ("30 * * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
    ("*/15 * * * *", "America/New_York", "2026-11-01T05:45:00Z", "2026-11-01T06:00:00Z"),
    ("0 2 * * *", "America/New_York", "2026-03-08T00:00:00Z", "2026-03-08T07:00:00Z"),
    ("0 3 * * *", "America/New_York", "2026-03-08T00:00:00Z", "2026-03-08T07:00:00Z"),
    ("0 9 * * 1-5", "America/New_York", "2026-03-06T15:00:00Z", "2026-03-09T13:00:00Z"),
    ("0 0 * * *", "Asia/Kolkata", "2026-06-01T00:00:00Z", "2026-06-01T18:30:00Z"),
    // A gap at midnight, one of half an hour, one of a whole day.
    ("0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", "2026-09-06T04:00:00Z"),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-03T15:30:00Z"),
    ("0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2011-12-30T10:00:00Z"),
    ("0 0 29 2 *", "Europe/Berlin", "2026-01-01T00:00:00Z", "2028-02-28T23:00:00Z"),
    // Clocks go back over midnight: 00:01 becomes 23:01 of the day before.
    ("30 23 * * *", "America/St_Johns", "2010-11-07T01:00:00Z", "2010-11-07T02:00:00Z"),
    ("30 23 * * *", "America/St_Johns", "2010-11-07T02:00:00Z", "2010-11-08T03:00:00Z"),
    ("0 0 * * *", "America/St_Johns", "2010-11-07T02:00:00Z", "2010-11-07T02:30:00Z"),
    ("30 * * * *", "America/St_Johns", "2010-11-07T02:00:00Z", "2010-11-07T03:00:00Z"),
];

#[test]
fn decisions_13_a_table_of_expressions_and_their_next_times() {
    assert!(TABLE.len() >= 60, "{} cases", TABLE.len());
    for (expression, timezone, after, expected) in TABLE {
        assert_eq!(next(expression, timezone, after), *expected, "{expression} in {timezone} after {after}");
    }
}

#[test]
fn decisions_13_an_invalid_expression_names_field_and_rule() {
    let cases = [
        ("", "must have 5 fields (minute hour day-of-month month day-of-week), it has 0"),
        ("* * * *", "it has 4"),
        ("* * * * * *", "it has 6"),
        ("@daily", "it has 1"),
        ("60 * * * *", "minute \"60\" must be a number from 0 to 59"),
        ("* 24 * * *", "hour \"24\" must be a number from 0 to 23"),
        ("* * 0 * *", "day of month \"0\" must be a number from 1 to 31"),
        ("* * 32 * *", "day of month"),
        ("* * * 13 *", "month \"13\" must be a number from 1 to 12, or a name from jan to dec"),
        ("* * * Foo *", "month \"Foo\""),
        ("* * * * 8", "day of week \"8\" must be a number from 0 to 7, or a name from sun to sat"),
        ("* * * * MONDAY", "day of week"),
        ("10-5 * * * *", "minute \"10-5\" runs backwards"),
        ("* * * * FRI-MON", "runs backwards"),
        ("*/0 * * * *", "has a step that is not a number from 1 to 59"),
        ("*/60 * * * *", "has a step"),
        ("*/ * * * *", "has a step"),
        ("1, * * * *", "minute \"\""),
        ("1--2 * * * *", "minute \"-2\""),
        ("-1 * * * *", "minute \"\""),
        ("+1 * * * *", "minute \"+1\""),
        ("1.5 * * * *", "minute \"1.5\""),
        ("** * * * *", "minute \"**\""),
        ("? * * * *", "minute \"?\""),
        ("\u{663} * * * *", "minute"),
        ("0 0 31 2 *", "never comes"),
        ("0 0 30 feb *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
    ];
    for (expression, words) in cases {
        let error = Cron::parse(expression).expect_err(expression).to_string();
        assert!(error.contains(words), "{expression:?}: {error}");
    }
    assert!(Cron::parse(&"*".repeat(201)).is_err());
    assert!(zone("Mars/Olympus").unwrap_err().to_string().contains("IANA"));
}

/// Expressions that come again.
struct Random(Dice);

impl Random {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }

    fn item(&mut self, low: u64, high: u64, names: &[&str]) -> String {
        let (a, b) = (self.between(low, high), self.between(low, high));
        let (a, b) = (a.min(b), a.max(b));
        // A range of one value means the whole field to croniter; to everybody else, and to us, that value.
        let kind = if a == b { 0 } else { self.0.below(6) };
        let name = |value: u64| match usize::try_from(value - low).ok().and_then(|at| names.get(at)) {
            Some(name) => (*name).to_owned(),
            None => value.to_string(),
        };
        match kind {
            0 | 1 => a.to_string(),
            2 => name(a),
            3 => format!("{a}-{b}"),
            4 => format!("{a}-{b}/{}", self.between(1, high)),
            _ => format!("*/{}", self.between(2, high)),
        }
    }

    fn field(&mut self, low: u64, high: u64, names: &[&str]) -> String {
        match self.0.below(5) {
            0 | 1 => "*".to_owned(),
            2 => {
                let items: Vec<String> =
                    (0..self.between(2, 4)).map(|_| self.item(low, high, names)).collect();
                items.join(",")
            }
            _ => self.item(low, high, names),
        }
    }

    fn expression(&mut self) -> String {
        const MONTHS: [&str; 12] =
            ["jan", "FEB", "mar", "Apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
        const DAYS: [&str; 7] = ["sun", "MON", "tue", "wed", "thu", "fri", "Sat"];
        let fields = [
            self.field(0, 59, &[]),
            self.field(0, 23, &[]),
            self.field(1, 31, &[]),
            self.field(1, 12, &MONTHS),
            self.field(0, 6, &DAYS),
        ];
        fields.join(" ")
    }
}

/// A list of all days that is not `*` is no restriction to croniter; to POSIX, and to us, it is one.
fn has_full_day_field(expression: &str) -> bool {
    let fields: Vec<&str> = expression.split(' ').collect();
    let day = Cron::parse(&format!("0 0 {} * *", fields[2])) == Cron::parse("0 0 1-31 * *");
    day || Cron::parse(&format!("0 0 * * {}", fields[4])) == Cron::parse("0 0 * * 0-6")
}

/// A Python that has croniter: the one that `SVC_PYTHON` names, else that of `tests/real/setup-croniter`;
/// says so when there is none.
///
/// Panics where `SVC_REAL_CLIS=require`.
fn python() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("SVC_PYTHON") {
        return Some(named.into());
    }
    let default = || concat!(env!("CARGO_MANIFEST_DIR"), "/target/real-croniter").into();
    let folder = PathBuf::from(std::env::var_os("SVC_REAL_CRONITER_DIR").unwrap_or_else(default));
    if folder.join("installed").is_file() {
        return Some(folder.join("bin/python"));
    }
    absent("croniter", "setup-croniter");
    None
}

#[test]
fn decisions_13_croniter_counts_as_we_do() {
    let mut random = Random(Dice::at(0x5eed));
    let mut cases = Vec::new();
    while cases.len() < 3000 {
        let expression = random.expression();
        // Until 2060: leap years, ends of months.
        let after = random.between(946_684_800, 2_840_140_800);
        if has_full_day_field(&expression) {
            continue;
        }
        let Ok(cron) = Cron::parse(&expression) else { continue };
        let next = cron.next(Time(after * 1000), &zone("UTC").unwrap());
        cases.push((expression, after, next.map_or("none".to_owned(), |time| (time.0 / 1000).to_string())));
    }
    let Some(python) = python() else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cron_oracle.py");
    let mut oracle = Command::new(&python);
    let mut child =
        oracle.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python starts");
    let mut input = child.stdin.take().unwrap();
    let lines: Vec<String> = cases.iter().map(|(text, after, _)| json!([text, after]).to_string()).collect();
    let lines = lines.join("\n");
    let feeder = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let fed = feeder.join().unwrap();
    assert!(output.status.success(), "{}: exit code 77 says that it has no croniter", python.display());
    fed.unwrap();
    let found = String::from_utf8(output.stdout).unwrap();
    let found: Vec<&str> = found.lines().collect();
    assert_eq!(found.len(), cases.len());
    let wrong: Vec<String> = cases
        .iter()
        .zip(found)
        .filter(|((_, _, ours), theirs)| ours != theirs)
        .map(|((text, after, ours), theirs)| format!("{text:?} after {after}: {ours}, croniter {theirs}"))
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    eprintln!("croniter agrees on {} expressions", cases.len());
}

/// Expressions that follow the wall, minute by minute over every change of the clocks of two years: the
/// next time is the first minute whose reading fits. The reading is the time-zone library's, the search is
/// not ours.
#[test]
fn what_follows_the_wall_fits_every_minute_around_the_changes() {
    const MINUTE: i64 = 60_000;
    let expressions = ["*/20 * * * *", "5 * * * *", "* 1-3 * * *", "*/7 0,2,23 * * *", "30 */2 * * SUN,sat"];
    for name in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns"] {
        let zone = zone(name).unwrap();
        let from: jiff::Timestamp = "2009-06-01T00:00:00Z".parse().unwrap();
        let changes: Vec<i64> =
            zone.following(from).take(4).map(|change| change.timestamp().as_millisecond()).collect();
        for (expression, change) in expressions.iter().flat_map(|e| changes.iter().map(move |c| (*e, *c))) {
            let cron = Cron::parse(expression).unwrap();
            let fits = |at: i64| fits(expression, at, &zone);
            for start in (-300..300).step_by(7).map(|minute| change + minute * MINUTE) {
                let expected =
                    (1..=20_000).map(|minute| start + minute * MINUTE).find(|at| fits(*at)).unwrap();
                let ours = cron.next(Time(start.try_into().unwrap()), &zone).unwrap();
                assert_eq!(i64::try_from(ours.0).unwrap(), expected, "{expression} in {name} after {start}");
            }
        }
    }
}

/// The fields of the five expressions above, read without our parser.
fn fits(expression: &str, at: i64, zone: &jiff::tz::TimeZone) -> bool {
    let wall = zone.to_datetime(jiff::Timestamp::from_millisecond(at).unwrap());
    let (minute, hour) = (wall.minute(), wall.hour());
    let weekend =
        matches!(wall.date().weekday(), jiff::civil::Weekday::Saturday | jiff::civil::Weekday::Sunday);
    match expression {
        "*/20 * * * *" => minute % 20 == 0,
        "5 * * * *" => minute == 5,
        "* 1-3 * * *" => (1..=3).contains(&hour),
        "*/7 0,2,23 * * *" => minute % 7 == 0 && [0, 2, 23].contains(&hour),
        _ => minute == 30 && hour % 2 == 0 && weekend,
    }
}
