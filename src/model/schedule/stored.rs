//! A schedule as JSON that outlives a process. Fields that are absent have their defaults, so that a later dwell can add
//! some.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{Missed, Schedule, Timing};
use crate::model::error::{Error, Result};
use crate::model::message::ScheduleName;
use crate::model::time::Timestamp;

#[derive(Serialize, Deserialize)]
struct Stored {
    name: ScheduleName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_ms: Option<u64>,
    missed: String,
    #[serde(default)]
    paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default)]
    meta: Vec<(String, String)>,
    payload_base64: String,
}

impl Schedule {
    /// The JSON of it.
    pub fn to_json(&self) -> Result<String> {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let (cron, every) = match &self.timing {
            Timing::Cron { cron, time_zone } => (Some((cron.clone(), time_zone.clone())), None),
            Timing::Every { every, from } => (None, Some((ms(*every), from.as_ms()))),
        };
        let (cron, time_zone) = cron.unzip();
        let (every_ms, from_ms) = every.unzip();
        let stored = Stored {
            name: self.name.clone(),
            cron,
            time_zone,
            every_ms,
            from_ms,
            missed: self.missed.name().to_owned(),
            paused: self.paused,
            ttl_ms: self.ttl.map(ms),
            max_attempts: self.max_attempts,
            content_type: self.content_type.clone(),
            meta: self.meta.clone(),
            payload_base64: STANDARD.encode(&self.payload),
        };
        serde_json::to_string(&stored).map_err(|error| Error::bug(format!("a cron job did not encode: {error}")))
    }

    /// The schedule of its JSON. # Errors: [`crate::model::error::Kind::Corrupt`].
    pub fn from_json(json: &str) -> Result<Schedule> {
        let corrupt = |why: String| Error::corrupt(format!("a cron job is unreadable ({why})"));
        let stored: Stored = serde_json::from_str(json).map_err(|error| corrupt(error.to_string()))?;
        let timing = match (stored.cron, stored.every_ms) {
            (Some(cron), None) => {
                Timing::Cron { cron, time_zone: stored.time_zone.unwrap_or_else(|| "UTC".to_owned()) }
            }
            (None, Some(every)) => Timing::Every {
                every: Duration::from_millis(every),
                from: Timestamp::from_ms(stored.from_ms.unwrap_or_default()),
            },
            _ => return Err(corrupt("it says not once when it occurs".to_owned())),
        };
        let missed = Missed::named(&stored.missed).ok_or_else(|| corrupt(format!("missed is {:?}", stored.missed)))?;
        let payload = STANDARD.decode(&stored.payload_base64).map_err(|error| corrupt(error.to_string()))?;
        Ok(Schedule {
            name: stored.name,
            timing,
            missed,
            paused: stored.paused,
            ttl: stored.ttl_ms.map(Duration::from_millis),
            max_attempts: stored.max_attempts,
            content_type: stored.content_type,
            meta: stored.meta,
            payload: payload.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// JSON written by the first version.
    const FIRST: &str = r#"{"name":"nightly","cron":"0 3 * * *","time_zone":"Europe/Berlin","missed":"last","paused":true,"ttl_ms":3600000,"max_attempts":3,"content_type":"text/plain","meta":[["trace","abc"]],"payload_base64":"/wA="}"#;

    #[test]
    fn what_is_written_is_read_back_and_stays_readable() -> Result<()> {
        let first = Schedule::from_json(FIRST)?;
        assert_eq!(first.to_json()?, FIRST);
        assert_eq!((&first.payload[..], first.missed, first.paused), (&[0xff, 0][..], Missed::Last, true));
        let timing = Timing::Every { every: Duration::from_secs(90), from: Timestamp::from_ms(7) };
        let every = Schedule { timing, ..first };
        assert_eq!(Schedule::from_json(&every.to_json()?)?, every);
        for wrong in ["", "{}", r#"{"name":"a","missed":"last","payload_base64":""}"#] {
            assert!(Schedule::from_json(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }
}
