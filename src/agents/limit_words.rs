//! When a limit opens, from the words of an error: `resets 3:30am (Europe/Berlin)`, `try again in 2 days 3
//! hours`, `|1795221836`. Where words can mean two moments the later one is meant: nothing is asked before.

use crate::core::time::Time;
use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};

/// A reset further away is no reset.
pub const FAR_MS: u64 = 60 * 86_400_000;
/// A time of day without a date that has passed so recently is meant for today: clocks differ.
const JUST_PASSED_MS: u64 = 10 * 60_000;
/// Words of one error that are looked at.
const WORDS_MAX: usize = 80;

/// The moment that these words name; `None` where they name none, or one that lies in the past or beyond
/// [`FAR_MS`]. `zone` is where they are read, for times without a zone of their own.
pub fn reset(words: &str, now: Time, zone: &TimeZone) -> Option<Time> {
    let low = words.to_lowercase();
    let found = stamp(&low)
        .or_else(|| delay(&low).map(|millis| Time(now.0.saturating_add(millis))))
        .or_else(|| on_the_wall(words, &low, now, zone))?;
    (found > now && found.0 - now.0 <= FAR_MS).then_some(found)
}

/// A number of seconds or milliseconds since 1970, or a moment as machines write it.
fn stamp(low: &str) -> Option<Time> {
    let parts = low.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.' | '+')));
    parts.take(WORDS_MAX).find_map(|part| {
        let part = part.trim_matches(['.', ':', '-']);
        let digits = part;
        if matches!(digits.len(), 10 | 13) && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let number: u64 = digits.parse().ok()?;
            return Some(Time(if digits.len() == 10 { number * 1000 } else { number }));
        }
        Time::parse(&part.to_uppercase())
    })
}

/// Milliseconds of `in 2 days 3 hours`, `after 2h13m5s`, `retry in 34.07s`, `retry-after: 30`.
fn delay(low: &str) -> Option<u64> {
    let mut found = None;
    for marker in [" in ", " after ", " nach ", "retry-after", "retry_after", "retrydelay", " dans "] {
        let mut rest = low;
        while let Some(at) = rest.find(marker) {
            rest = &rest[at + marker.len()..];
            let is_header = !marker.starts_with(' ');
            found = found.or_else(|| lengths(rest.trim_start_matches([':', '=', '"', ' ']), is_header));
        }
    }
    found
}

/// The lengths at the beginning of `text`, added up. A bare number is of seconds where `bare` allows it.
fn lengths(text: &str, bare: bool) -> Option<u64> {
    let (mut rest, mut total) = (text, None);
    for _ in 0..8 {
        rest = rest.trim_start_matches([' ', ',']);
        for joining in ["and ", "und ", "et ", "about ", "approximately "] {
            rest = rest.strip_prefix(joining).unwrap_or(rest);
        }
        let number_end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let Ok(number) = rest[..number_end].trim_end_matches('.').parse::<f64>() else { break };
        let after = rest[number_end..].trim_start();
        let unit_end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let Some(unit_ms) = unit(&after[..unit_end]).or((bare && unit_end == 0).then_some(1_000.0)) else {
            break;
        };
        // At most a few digits of a bounded text: far below 2^63, and never negative.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let millis = (number * unit_ms).ceil() as u64;
        total = Some(millis.saturating_add(total.unwrap_or(0)));
        rest = &after[unit_end..];
    }
    total.filter(|millis| *millis > 0)
}

fn unit(word: &str) -> Option<f64> {
    Some(match word {
        "ms" | "milliseconds" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" | "sekunde" | "sekunden" | "seconde" | "secondes" => 1e3,
        "m" | "min" | "mins" | "minute" | "minutes" | "minuten" => 6e4,
        "h" | "hr" | "hrs" | "hour" | "hours" | "stunde" | "stunden" | "heure" | "heures" => 3.6e6,
        "d" | "day" | "days" | "tag" | "tage" | "tagen" | "jour" | "jours" => 8.64e7,
        "w" | "week" | "weeks" | "woche" | "wochen" => 6.048e8,
        _ => return None,
    })
}

/// What the words say of a clock and a calendar.
#[derive(Default)]
struct Said {
    hour: Option<i8>,
    minute: i8,
    day: Option<i8>,
    month: Option<i8>,
    year: Option<i16>,
    weekday: Option<Weekday>,
    tomorrow: bool,
}

fn on_the_wall(words: &str, low: &str, now: Time, zone: &TimeZone) -> Option<Time> {
    const MARKERS: [&str; 9] =
        ["reset", "again", "until", "available", "opens", "wieder", "verfügbar", "zurück", "réinitialis"];
    if !MARKERS.iter().any(|marker| low.contains(marker)) {
        return None;
    }
    let zone = named_zone(words).unwrap_or_else(|| zone.clone());
    let said = read(low);
    let here = zone.to_datetime(stamp_of(now)?);
    let today = here.date();
    let has_date = said.day.is_some() || said.weekday.is_some() || said.tomorrow;
    if said.hour.is_none() && !has_date {
        return None;
    }
    let date = date_of(&said, today)?;
    let Some(hour) = said.hour else {
        // A day without a time: it opens somewhere in it, and so has when it is over.
        return moment(date.tomorrow().ok()?.at(0, 0, 0, 0), &zone);
    };
    let at = moment(date.at(hour, said.minute, 0, 0), &zone)?;
    if has_date || at > now {
        return Some(at);
    }
    if now.0 - at.0 <= JUST_PASSED_MS {
        // Told to the minute, and rounded down: the next minutes are left to the back-off.
        return None;
    }
    moment(date.tomorrow().ok()?.at(hour, said.minute, 0, 0), &zone)
}

fn stamp_of(time: Time) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(time.0).ok()?).ok()
}

/// The later moment where the clock shows this twice, and the one after the gap where it never does.
fn moment(wall: DateTime, zone: &TimeZone) -> Option<Time> {
    let stamp = zone.to_ambiguous_timestamp(wall).later().ok()?;
    u64::try_from(stamp.as_millisecond()).ok().map(Time)
}

/// Of the zones that errors name in letters, those that are meant by them; else the first that has a slash.
fn named_zone(words: &str) -> Option<TimeZone> {
    let parts = words.split(|c: char| !(c.is_alphanumeric() || matches!(c, '/' | '_' | '-' | '+')));
    parts.take(WORDS_MAX).find_map(|part| {
        let name = match part {
            "UTC" | "GMT" | "Z" => return Some(TimeZone::UTC),
            "PST" | "PDT" | "PT" => "America/Los_Angeles",
            "EST" | "EDT" | "ET" => "America/New_York",
            "CET" | "CEST" | "MEZ" | "MESZ" => "Europe/Berlin",
            name if name.contains('/') => name,
            _ => return None,
        };
        TimeZoneDatabase::bundled().get(name).ok()
    })
}

fn read(low: &str) -> Said {
    let mut said = Said::default();
    let low = low.replace(" uhr", "uhr").replace(" am,", "am,").replace(" a.m.", "am").replace(" p.m.", "pm");
    let words: Vec<&str> = low
        .split(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '·' | ';' | '"' | '∙'))
        .filter(|word| !word.is_empty())
        .take(WORDS_MAX)
        .collect();
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).map_or("", |next| next.trim_end_matches('.'));
        let word = word.trim_end_matches('.');
        if word == "tomorrow" || word == "morgen" || word == "demain" {
            said.tomorrow = true;
        } else if let Some(month) = month(word) {
            said.month = Some(month);
            let before = at.checked_sub(1).and_then(|at| words.get(at)).and_then(|word| day(word));
            said.day = day(next).or(before);
            let year = words.get(at + 2).or(words.get(at + 1)).and_then(|word| word.parse().ok());
            said.year = year.filter(|year: &i16| (2000..=2200).contains(year));
        } else if let Some(weekday) = weekday(word) {
            said.weekday = Some(weekday);
        } else if let Ok(date) = word.parse::<Date>() {
            (said.day, said.month, said.year) = (Some(date.day()), Some(date.month()), Some(date.year()));
        } else if said.hour.is_none()
            && let Some((hour, minute)) = clock(word, next)
        {
            (said.hour, said.minute) = (Some(hour), minute);
        }
    }
    said
}

fn date_of(said: &Said, today: Date) -> Option<Date> {
    if let (Some(day), Some(month)) = (said.day, said.month) {
        let year = said.year.unwrap_or(today.year());
        let date = Date::new(year, month, day).ok()?;
        // In December a day of January is one of the next year.
        let passed = said.year.is_none() && date < today.checked_sub(180.days()).ok()?;
        return if passed { Date::new(year + 1, month, day).ok() } else { Some(date) };
    }
    if let Some(weekday) = said.weekday {
        return if today.weekday() == weekday { Some(today) } else { today.nth_weekday(1, weekday).ok() };
    }
    if said.tomorrow { today.tomorrow().ok() } else { Some(today) }
}

/// `3:30am`, `3 pm`, `15:30`, `15:30uhr`, `15h30`.
fn clock(word: &str, next: &str) -> Option<(i8, i8)> {
    let (digits, half) = match word.find(|c: char| !(c.is_ascii_digit() || c == ':')) {
        Some(at) => word.split_at(at),
        None if matches!(next, "am" | "pm") => (word, next),
        None => (word, ""),
    };
    let (hour, minute) = match (digits.split_once(':'), half) {
        (Some((hour, rest)), _) => (hour, rest.split(':').next().unwrap_or("0")),
        (None, "am" | "pm" | "uhr") => (digits, "0"),
        (None, french) if french.starts_with('h') => {
            (digits, if french.len() == 3 { &french[1..] } else { "0" })
        }
        _ => return None,
    };
    let (hour, minute): (i8, i8) = (hour.parse().ok()?, minute.parse().ok()?);
    let hour = match half {
        "am" | "pm" if !(1..=12).contains(&hour) => return None,
        "am" => hour % 12,
        "pm" => hour % 12 + 12,
        _ => hour,
    };
    ((0..24).contains(&hour) && (0..60).contains(&minute)).then_some((hour, minute))
}

fn day(word: &str) -> Option<i8> {
    let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
    // `3pm` is no day.
    let suffix = &word[digits.len()..];
    let fits = matches!(suffix, "" | "." | "st" | "nd" | "rd" | "th");
    digits.parse().ok().filter(|day| fits && (1..=31).contains(day))
}

fn month(word: &str) -> Option<i8> {
    const NAMES: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const GERMAN: [(&str, i8); 4] = [("märz", 3), ("mai", 5), ("okt", 10), ("dez", 12)];
    let english =
        NAMES.iter().position(|name| word.starts_with(name)).and_then(|at| i8::try_from(at + 1).ok());
    let is_word = word.chars().count() <= 9 && word.chars().all(char::is_alphabetic);
    let german = || GERMAN.iter().find(|(name, _)| word.starts_with(name)).map(|(_, month)| *month);
    // `may` is a verb as well: in English it counts where a day stands beside it, which the caller sees.
    english.or_else(german).filter(|_| is_word && !matches!(word, "maybe" | "mark" | "decided" | "separate"))
}

fn weekday(word: &str) -> Option<Weekday> {
    const ALL: [(&str, &str, Weekday); 7] = [
        ("monday", "montag", Weekday::Monday),
        ("tuesday", "dienstag", Weekday::Tuesday),
        ("wednesday", "mittwoch", Weekday::Wednesday),
        ("thursday", "donnerstag", Weekday::Thursday),
        ("friday", "freitag", Weekday::Friday),
        ("saturday", "samstag", Weekday::Saturday),
        ("sunday", "sonntag", Weekday::Sunday),
    ];
    let is = |name: &str| name == word || (word.len() == 3 && name.starts_with(word) && word.is_ascii());
    ALL.iter().find(|(english, german, _)| is(english) || *german == word).map(|(_, _, weekday)| *weekday)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-23T02:00:00Z, a Monday.
    const NOW: Time = Time(1_795_399_200_000);

    fn zone(name: &str) -> TimeZone {
        TimeZoneDatabase::bundled().get(name).unwrap()
    }

    fn told(words: &str) -> Option<String> {
        reset(words, NOW, &zone("Europe/Berlin")).map(|at| at.to_string()[..16].to_owned())
    }

    #[test]
    fn words_of_many_programs_and_places_name_the_moment() {
        for (words, wanted) in [
            ("You've hit your session limit · resets 3:30am (America/New_York)", "2026-11-23T08:30"),
            ("You've hit your session limit · resets 3:30am", "2026-11-23T02:30"),
            ("Claude AI usage limit reached|1795410000", "2026-11-23T05:00"),
            ("limit; resets at 1795410000123", "2026-11-23T05:00"),
            ("Your weekly limit resets Nov 25 at 3pm (UTC)", "2026-11-25T15:00"),
            ("You've hit your usage limit. Upgrade to Pro or try again at 3:05 PM.", "2026-11-23T14:05"),
            ("usage limit, try again at Nov 27th, 2026 9:15 AM.", "2026-11-27T08:15"),
            ("try again in 2 days 3 hours 5 minutes.", "2026-11-25T05:05"),
            ("Your quota will reset after 2h13m5s.", "2026-11-23T04:13"),
            ("Please retry in 34.074824224s.", "2026-11-23T02:00"),
            ("Nutzungslimit erreicht, wieder verfügbar um 15:30 Uhr", "2026-11-23T14:30"),
            (
                "Nutzungslimit erreicht, versuchen Sie es in 5 Minuten und 30 Sekunden wieder",
                "2026-11-23T02:05",
            ),
            ("limite d'utilisation, réinitialisée à 15h30", "2026-11-23T14:30"),
            ("quota exceeded until 2026-11-24T00:00:00Z", "2026-11-24T00:00"),
            ("resets tomorrow at 8am", "2026-11-24T07:00"),
            ("resets Thursday 09:00 UTC", "2026-11-26T09:00"),
            ("{\"error\":\"rate\",\"retry_after\":30}", "2026-11-23T02:00"),
            ("resets Jan 2, 8am", "2027-01-02T07:00"),
        ] {
            assert_eq!(told(words).as_deref(), Some(wanted), "{words}");
        }
    }

    #[test]
    fn words_that_name_none_are_no_reset() {
        for words in [
            "exceeded retry limit, last status: 429 Too Many Requests",
            "You've hit your usage limit. Visit the settings at 3 of 5.",
            "resets in the far future",
            "it will reset in 900 days",
            "again and again",
            "usage limit reached|1700000000",
            "",
        ] {
            assert_eq!(told(words), None, "{words}");
        }
    }

    #[test]
    fn a_day_without_a_time_is_over_before_anything_is_asked() {
        assert_eq!(told("limit resets Nov 25").as_deref(), Some("2026-11-25T23:00"));
    }

    #[test]
    fn of_an_hour_that_comes_twice_the_later_one_is_meant_and_of_one_that_never_comes_the_time_after_it() {
        let berlin = zone("Europe/Berlin");
        // 2026-10-24T22:00Z: the clock goes back in the night, 02:30 is 00:30Z and 01:30Z.
        let autumn = Time::parse("2026-10-24T22:00:00Z").unwrap();
        let at = reset("resets 2:30am", autumn, &berlin).unwrap();
        assert_eq!(at.to_string(), "2026-10-25T01:30:00.000Z");
        // 2026-03-29: 02:30 does not exist.
        let spring = Time::parse("2026-03-28T22:00:00Z").unwrap();
        let at = reset("resets 2:30am", spring, &berlin).unwrap();
        assert_eq!(at.to_string(), "2026-03-29T01:30:00.000Z");
    }

    #[test]
    fn a_minute_that_has_just_begun_is_not_taken_for_tomorrow_s() {
        let now = Time(NOW.0 + 30 * 60_000 + 20_000);
        assert_eq!(reset("resets 3:30am", now, &zone("Europe/Berlin")), None);
    }
}
