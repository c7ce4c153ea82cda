//! Cron expressions: five fields, and the next time they name in a time zone. Pure.
//!
//! `minute hour day-of-month month day-of-week`; each field is a list of `*`, `a`, `a-b`, `*/n`, `a-b/n` or
//! `a/n` (from `a` to the end by `n`). Months and days of the week have names (`JAN`, `mon`); day 7 is
//! Sunday, as 0 is. When both day fields are restricted, a day that fits either fits.
//!
//! Where clocks change, the rule is that of cronie: an expression of whose minute or hour field the first
//! item begins with `*` follows the clock on the wall, so it skips an hour that does not exist and runs in
//! both hours that exist twice. Any other names a certain time of the day, which comes once a day: in a gap
//! it runs at the gap's end, and in an hour that exists twice it runs the first time only.

use crate::core::time::Time;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};
use std::fmt;

/// Characters of an expression at most.
pub const MAX_CHARS: usize = 200;
/// The next time is looked for over so many days: the leap day of a year may be 8 years away, and further
/// where a gap in the clocks swallows it.
const MAX_DAYS: usize = 366 * 41;
/// Milliseconds of a minute.
pub const MINUTE_MS: u64 = 60_000;

/// A parsed expression. Each field is a set of bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    any_day: bool,
    any_weekday: bool,
    by_the_wall: bool,
}

/// Why an expression is refused: field, rule, fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronError(pub String);

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

struct Field {
    name: &'static str,
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field { name: "minute", low: 0, high: 59, names: &[] },
    Field { name: "hour", low: 0, high: 23, names: &[] },
    Field { name: "day of month", low: 1, high: 31, names: &[] },
    Field { name: "month", low: 1, high: 12, names: &MONTHS },
    Field { name: "day of week", low: 0, high: 7, names: &WEEKDAYS },
];

impl Field {
    fn wrong(&self, text: &str, rule: &str) -> CronError {
        CronError(format!("{} {text:?} {rule}", self.name))
    }

    fn rule(&self) -> String {
        let names = match (self.names.first(), self.names.last()) {
            (Some(first), Some(last)) => format!(", or a name from {first} to {last}"),
            _ => String::new(),
        };
        format!("must be a number from {} to {}{names}", self.low, self.high)
    }

    /// The values of the field as bits.
    fn parse(&self, text: &str) -> Result<u64, CronError> {
        let mut bits = 0;
        for item in text.split(',') {
            bits |= self.item(item)?;
        }
        Ok(bits)
    }

    fn item(&self, item: &str) -> Result<u64, CronError> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(item, step)?)),
            None => (item, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.low, if self.high == 7 { 6 } else { self.high }),
            Some((from, to)) => (self.value(from)?, self.value(to)?),
            None if step.is_some() => (self.value(range)?, if self.high == 7 { 6 } else { self.high }),
            None => (self.value(range)?, self.value(range)?),
        };
        if from > to {
            return Err(self.wrong(item, "runs backwards: a range goes from the lower to the higher value"));
        }
        let step = usize::try_from(step.unwrap_or(1)).unwrap_or(1);
        Ok((from..=to).step_by(step).fold(0, |bits, value| bits | 1 << value))
    }

    fn step(&self, item: &str, step: &str) -> Result<u32, CronError> {
        let digits = !step.is_empty() && step.len() <= 3 && step.bytes().all(|byte| byte.is_ascii_digit());
        let number = step.parse::<u32>().ok().filter(|number| digits && (1..=self.high).contains(number));
        number.ok_or_else(|| {
            self.wrong(item, &format!("has a step that is not a number from 1 to {}", self.high))
        })
    }

    fn value(&self, text: &str) -> Result<u32, CronError> {
        let lower = text.to_ascii_lowercase();
        if let Some(at) = self.names.iter().position(|name| *name == lower) {
            return Ok(self.low + u32::try_from(at).unwrap_or_default());
        }
        let digits = !text.is_empty() && text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u32>().ok().filter(|n| digits && (self.low..=self.high).contains(n));
        number.ok_or_else(|| self.wrong(text, &self.rule()))
    }
}

impl Cron {
    /// Parses an expression.
    ///
    /// Errors: a sentence that names the field and its rule; also for one that names no day that exists.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        if text.chars().count() > MAX_CHARS {
            return Err(CronError(format!("must have at most {MAX_CHARS} characters")));
        }
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let &[minute, hour, day, month, weekday] = words.as_slice() else {
            return Err(CronError(format!(
                "must have 5 fields (minute hour day-of-month month day-of-week), it has {}",
                words.len()
            )));
        };
        let [minutes, hours, days, months, weekdays] = &FIELDS;
        let mut cron = Self {
            minutes: minutes.parse(minute)?,
            hours: hours.parse(hour)?,
            days: days.parse(day)?,
            months: months.parse(month)?,
            weekdays: weekdays.parse(weekday)?,
            any_day: day == "*",
            any_weekday: weekday == "*",
            by_the_wall: minute.starts_with('*') || hour.starts_with('*'),
        };
        // Sunday is 0 and 7.
        cron.weekdays = (cron.weekdays | cron.weekdays >> 7) & 0x7f;
        if !cron.exists() {
            return Err(CronError(format!("never comes: no month of {month:?} has a day {day:?}")));
        }
        Ok(cron)
    }

    fn exists(&self) -> bool {
        const LONGEST: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let by_weekday = !self.any_weekday && (self.any_day || self.weekdays != 0);
        by_weekday
            || (1..=12)
                .zip(LONGEST)
                .any(|(month, length)| has(self.months, month) && (1..=length).any(|day| has(self.days, day)))
    }

    fn fits_day(&self, date: Date) -> bool {
        let number = |value: i8| u32::try_from(value).unwrap_or_default();
        let weekday = has(self.weekdays, number(date.weekday().to_sunday_zero_offset()));
        let day = has(self.days, number(date.day()));
        let fits = match (self.any_day, self.any_weekday) {
            (true, _) => weekday,
            (false, true) => day,
            (false, false) => day || weekday,
        };
        fits && has(self.months, number(date.month()))
    }

    /// The first time after `after`, to the minute; `None` when there is none within 40 years.
    pub fn next(&self, after: Time, zone: &TimeZone) -> Option<Time> {
        let after = Timestamp::from_millisecond(i64::try_from(after.0).ok()?).ok()?;
        // Clocks that go back over midnight make the day before come again.
        let mut date = zone.to_datetime(after).date().yesterday().ok()?;
        for _ in 0..MAX_DAYS {
            if let Some(first) = self.on(date, after, zone) {
                // The next day may come before the repeated end of this one.
                let other = date.tomorrow().ok().and_then(|next| self.on(next, after, zone));
                let first = other.map_or(first, |other| first.min(other));
                return u64::try_from(first.as_millisecond()).ok().map(Time);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The first time of a day that is after `after`.
    fn on(&self, date: Date, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if !self.fits_day(date) {
            return None;
        }
        let mut first: Option<Timestamp> = None;
        for hour in (0..24_i8).filter(|hour| has(self.hours, u32::from(hour.unsigned_abs()))) {
            for minute in (0..60_i8).filter(|minute| has(self.minutes, u32::from(minute.unsigned_abs()))) {
                let found = self.instants(date.at(hour, minute, 0, 0), zone);
                let earliest = found.into_iter().flatten().filter(|at| *at > after).min();
                first = first.into_iter().chain(earliest).min();
            }
            // Changes of the clocks move a time by hours at most.
            let settled = first.is_some_and(|at| date.at(hour, 0, 0, 0) > wall(at, zone) + 4.hours());
            if settled {
                break;
            }
        }
        first
    }

    /// The instants of a time on the wall: none, one or two.
    fn instants(&self, wall: DateTime, zone: &TimeZone) -> [Option<Timestamp>; 2] {
        let ambiguous = zone.to_ambiguous_timestamp(wall);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => [offset.to_timestamp(wall).ok(), None],
            AmbiguousOffset::Fold { before, after } => {
                let second = after.to_timestamp(wall).ok().filter(|_| self.by_the_wall);
                [before.to_timestamp(wall).ok(), second]
            }
            AmbiguousOffset::Gap { before, .. } if !self.by_the_wall => {
                let beyond = before.to_timestamp(wall).ok();
                // Read with the old offset the time is at or beyond the change.
                let end = beyond.and_then(|at| zone.preceding(at + 1.nanoseconds()).next());
                [end.map(|change| change.timestamp()), None]
            }
            AmbiguousOffset::Gap { .. } => [None, None],
        }
    }
}

fn wall(at: Timestamp, zone: &TimeZone) -> DateTime {
    zone.to_datetime(at)
}

fn has(bits: u64, value: u32) -> bool {
    bits >> value & 1 == 1
}

/// A time zone by its IANA name, from the database inside this program, so that every machine counts alike.
///
/// Errors: a sentence.
pub fn zone(name: &str) -> Result<TimeZone, CronError> {
    TimeZoneDatabase::bundled().get(name).map_err(|_| {
        CronError(format!("{name:?} is not a time zone; use an IANA name such as Europe/Berlin, or UTC"))
    })
}
