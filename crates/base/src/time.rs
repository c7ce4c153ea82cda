//! Points in time. The core never reads a clock: every event brings its time along.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Milliseconds since 1970-01-01T00:00:00Z. Shown as RFC 3339 with milliseconds and `Z`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// Time passed since `earlier`; zero when `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Parses RFC 3339, for `?since=` and stored records.
    pub fn parse(text: &str) -> Option<Self> {
        let stamp: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(stamp.as_millisecond()).ok().map(Self)
    }
}

/// How far the wall clock has jumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Jump {
    /// Whether it was set back.
    pub is_back: bool,
    pub by: Duration,
}

impl Time {
    /// The same distance from now after `jump` as before it.
    #[must_use]
    pub fn moved(self, jump: Jump) -> Self {
        if jump.is_back { self - jump.by } else { self + jump.by }
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, length: Duration) -> Self {
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(millis))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_millisecond(millis) {
            Ok(stamp) => write!(f, "{stamp:.3}"),
            Err(_) => f.write_str("9999-12-31T23:59:59.999Z"),
        }
    }
}

/// Serde as RFC 3339 text, for records that people read.
pub mod rfc3339 {
    use super::Time;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes `2026-11-21T00:43:56.476Z`.
    pub fn serialize<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(time)
    }

    /// Reads any RFC 3339 text after 1970.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Time::parse(&text).ok_or_else(|| serde::de::Error::custom("not an RFC 3339 timestamp"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_timestamps_are_rfc_3339_utc_with_milliseconds_and_z() {
        assert_eq!(Time(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Time(1_795_221_836_476).to_string(), "2026-11-21T00:43:56.476Z");
        assert_eq!(Time::parse("2026-11-21T00:43:56.476Z"), Some(Time(1_795_221_836_476)));
        assert_eq!(Time::parse("yesterday"), None);
        assert_eq!(Time(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }
}
