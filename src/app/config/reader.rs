//! Turns what was given into typed values, and collects everything that is wrong on the way.

use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Origin;
use super::sources::{ConfigError, ConfigErrors, Layers, Raw, TOKENS, mask};
use crate::model::limits::{
    ATTEMPTS_MAX, DEAD_MAX_AGE_MAX, DEAD_MAX_COUNT_MAX, DEDUP_WINDOW_MAX, DELAY_MAX, LADDER_STEPS_MAX, PARTITIONS_MAX,
    VISIBILITY_TIMEOUT_MAX, VISIBILITY_TIMEOUT_MIN,
};
use crate::model::retry::{Backoff, LadderStep};
use crate::model::time::{parse_span, show_span};
use crate::model::topic::{Expiry, Ordering, Settings};
use crate::platform::https::Roots;

/// Reads keys one by one. A key that is wrong is noted and reads as its default, so that the next one is looked at too.
pub(super) struct Reader<'a> {
    pub(super) layers: &'a Layers,
    errors: Vec<ConfigError>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(layers: &'a Layers, errors: Vec<ConfigError>) -> Reader<'a> {
        Reader { layers, errors }
    }

    pub(super) fn finish(self) -> Result<(), ConfigErrors> {
        if self.errors.is_empty() { Ok(()) } else { Err(ConfigErrors(self.errors)) }
    }

    pub(super) fn refuse(&mut self, key: &str, accepted: &str, problem: impl Into<String>) {
        let given = self.layers.get(key);
        let value = given.map(|(raw, _)| match raw {
            // A URL may hold a password, also one that should not.
            Raw::Text(text)
                if key == "redis.url"
                    || (key.ends_with(".url") || key.ends_with("_endpoint")) && text.contains('@') =>
            {
                format!("{:?}", mask(text))
            }
            // Perhaps the token itself was written where its file has to be named.
            Raw::Text(text)
                if (key.starts_with(TOKENS) && key.ends_with(".file") || key.ends_with("token_file"))
                    && !text.starts_with(['/', '.']) =>
            {
                "\"***\"".to_owned()
            }
            Raw::Text(text) => cut(format!("{text:?}")),
            Raw::List(_) if key == "redis.url" || key.ends_with(".url") => "a list".to_owned(),
            Raw::List(items) => cut(format!("{items:?}")),
            Raw::Other(what) => (*what).to_owned(),
        });
        let (key, problem, accepted) = (key.to_owned(), problem.into(), Some(accepted.to_owned()));
        let origin = given.map_or(Origin::Default, |(_, origin)| origin.clone());
        self.errors.push(ConfigError { key, origin, value, problem, accepted });
    }

    pub(super) fn miss(&mut self, key: String, origin: Origin, accepted: &str) {
        let (problem, accepted) = ("is missing".to_owned(), Some(accepted.to_owned()));
        self.errors.push(ConfigError { key, origin, value: None, problem, accepted });
    }

    pub(super) fn parsed<T>(
        &mut self,
        key: &str,
        accepted: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        let result = match self.layers.get(key) {
            None => return default,
            Some((Raw::Text(text), _)) => parse(text),
            Some((Raw::List(_), _)) => Err("is a list".to_owned()),
            Some((Raw::Other(what), _)) => Err(format!("is {what}")),
        };
        result.unwrap_or_else(|problem| {
            self.refuse(key, accepted, problem);
            default
        })
    }

    pub(super) fn required<T>(
        &mut self,
        key: String,
        origin: &Origin,
        accepted: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if self.layers.get(&key).is_none() {
            self.miss(key, origin.clone(), accepted);
            return None;
        }
        self.parsed(&key, accepted, None, |text| parse(text).map(Some))
    }

    pub(super) fn certificates(&mut self, key: &str) -> Option<PathBuf> {
        self.parsed(key, "a file with one or more certificates as PEM", None, |path| {
            Roots::read(Path::new(path)).map(|_| Some(PathBuf::from(path)))
        })
    }

    pub(super) fn span(&mut self, key: &str, range: RangeInclusive<Duration>, default: Duration) -> Duration {
        let accepted = format!("{} to {}", show_span(*range.start()), show_span(*range.end()));
        self.parsed(key, &accepted, default, |text| in_range(parse_span(text)?, &range))
    }

    pub(super) fn number<N>(&mut self, key: &str, range: RangeInclusive<N>, default: N) -> N
    where
        N: std::str::FromStr + std::fmt::Display + PartialOrd + Copy,
    {
        let accepted = format!("{} to {}", range.start(), range.end());
        self.parsed(key, &accepted, default, |text| {
            let number = text.trim().parse().map_err(|_| "is not such a number".to_owned())?;
            in_range(number, &range)
        })
    }

    pub(super) fn switch(&mut self, key: &str, default: bool) -> bool {
        self.word(key, &[true, false], default, |on| if on { "true" } else { "false" })
    }

    pub(super) fn word<T: Copy>(&mut self, key: &str, all: &[T], default: T, name: fn(T) -> &'static str) -> T {
        let accepted = all.iter().map(|word| name(*word)).collect::<Vec<_>>().join(", ");
        self.parsed(key, &accepted, default, |text| {
            let found = all.iter().find(|word| name(**word) == text);
            found.copied().ok_or_else(|| "is none of the words".to_owned())
        })
    }

    /// The heartbeat. A member that missed three is not counted any more, which must not come after its leases lapsed.
    pub(super) fn heartbeat(&mut self, lease_ttl: Duration, default: Duration) -> Duration {
        let range = Duration::from_millis(50)..=Duration::from_secs(60);
        let heartbeat = self.span("group.heartbeat", range, default);
        if heartbeat > lease_ttl / 3 {
            let accepted = format!("at most a third of lease.ttl, which is {}", show_span(lease_ttl));
            self.refuse("group.heartbeat", &accepted, format!("{} is too long", show_span(heartbeat)));
        }
        heartbeat
    }

    pub(super) fn topic_defaults(&mut self, default: Settings) -> Settings {
        let partitions = self.number("topic.partitions", 1..=PARTITIONS_MAX, default.partitions.get());
        Settings {
            partitions: NonZeroU16::new(partitions).unwrap_or(default.partitions),
            visibility_timeout: self.span(
                "topic.visibility_timeout",
                VISIBILITY_TIMEOUT_MIN..=VISIBILITY_TIMEOUT_MAX,
                default.visibility_timeout,
            ),
            max_attempts: self.number("topic.max_attempts", 0..=ATTEMPTS_MAX, default.max_attempts),
            backoff: self.backoff(default.backoff),
            dedup_window: self.span("topic.dedup_window", Duration::ZERO..=DEDUP_WINDOW_MAX, default.dedup_window),
            ordering: self.word("topic.ordering", Ordering::ALL, default.ordering, Ordering::name),
            ttl: self.span("topic.ttl", Duration::ZERO..=DELAY_MAX, default.ttl),
            on_expiry: self.word("topic.on_expiry", Expiry::ALL, default.on_expiry, Expiry::name),
            dead_max_age: self.span("topic.dead_max_age", Duration::ZERO..=DEAD_MAX_AGE_MAX, default.dead_max_age),
            dead_max_count: self.number("topic.dead_max_count", 0..=DEAD_MAX_COUNT_MAX, default.dead_max_count),
            annotations: default.annotations,
            dead_letter: default.dead_letter,
        }
    }

    fn backoff(&mut self, default: Backoff) -> Backoff {
        let kinds = ["exponential", "ladder"];
        let kind = self.word("topic.backoff.kind", &kinds, kinds[0], |kind| kind);
        let others: &[&str] = match kind {
            "ladder" => &["topic.backoff.initial", "topic.backoff.max", "topic.backoff.factor", "topic.backoff.jitter"],
            _ => &["topic.backoff.steps"],
        };
        for other in others.iter().filter(|key| self.layers.get(key).is_some()).collect::<Vec<_>>() {
            let accepted = format!("nothing, while topic.backoff.kind is {kind}");
            self.refuse(other, &accepted, "belongs to the other kind of backoff");
        }
        if kind == "ladder" {
            return Backoff::Ladder { steps: self.steps() };
        }
        let Backoff::Exponential { initial, max, factor, jitter } = default else { return default };
        let initial = self.span("topic.backoff.initial", Duration::ZERO..=DELAY_MAX, initial);
        let max = self.span("topic.backoff.max", Duration::ZERO..=DELAY_MAX, max);
        if max < initial {
            let accepted = format!("at least topic.backoff.initial, which is {}", show_span(initial));
            self.refuse("topic.backoff.max", &accepted, format!("{} is too short", show_span(max)));
        }
        let factor = self.number("topic.backoff.factor", 1.0..=100.0, factor);
        let jitter = self.number("topic.backoff.jitter", 0.0..=1.0, jitter);
        Backoff::Exponential { initial, max, factor, jitter }
    }

    fn steps(&mut self) -> Vec<LadderStep> {
        let key = "topic.backoff.steps";
        let texts: Vec<String> = match self.layers.get(key) {
            Some((Raw::List(items), _)) => items.clone(),
            Some((Raw::Text(text), _)) => text.split(',').map(|step| step.trim().to_owned()).collect(),
            Some((Raw::Other(_), _)) | None => Vec::new(),
        };
        let accepted =
            format!("1 to {LADDER_STEPS_MAX} durations up to {}, as in [\"1s\", \"1m\"]", show_span(DELAY_MAX));
        if texts.is_empty() || texts.len() > LADDER_STEPS_MAX {
            self.refuse(key, &accepted, format!("has {} steps", texts.len()));
            return Vec::new();
        }
        let step = |text: &String| in_range(parse_span(text)?, &(Duration::ZERO..=DELAY_MAX)).map(LadderStep);
        texts.iter().map(step).collect::<Result<_, _>>().unwrap_or_else(|problem: String| {
            self.refuse(key, &accepted, problem);
            Vec::new()
        })
    }
}

fn in_range<T: PartialOrd>(value: T, range: &RangeInclusive<T>) -> Result<T, String> {
    if range.contains(&value) { Ok(value) } else { Err("is out of range".to_owned()) }
}

fn cut(text: String) -> String {
    if text.chars().count() <= 100 { text } else { text.chars().take(100).chain("…".chars()).collect() }
}
