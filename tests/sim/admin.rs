//! Clients that change topics, groups and cron jobs, and many messages at once.

use dwell_simulated_redis::Time;
use serde_json::{Value, json};

use crate::client::{CRON, Clients, SETS_UP};
use crate::ledger::{BulkFact, CronFact, KeyPaused, Limited, Moved, Paused, Removed, Span, Windowed};
use crate::lock;
use crate::operation::{Bulk, BulkAction, CronChange, Fair, Limit, Missed, WindowChange};
use crate::plan::Topic;

/// A day, ms: longer than any simulation.
const DAY: u64 = 24 * 3_600_000;
const MINUTE_MS: u64 = 60_000;
/// Minutes ahead of UTC, all year.
const KOLKATA: (u64, &str) = (330, "Asia/Kolkata");

fn is_done(answer: &Option<(u16, Value)>) -> bool {
    matches!(answer, Some((200..=299, _)))
}

/// A topic that was deleted is made again at once, or after one to three of these, ms.
const PAUSE_MS: u64 = 700;

impl Clients {
    // Topics.

    /// Creates the topics and groups, as often as it takes.
    pub(crate) async fn set_up(&self) {
        // Where dead letters go is there before they do.
        for topic in (0..self.topics.len()).rev() {
            while !self.create(topic, None).await {
                self.wait(200).await;
            }
        }
        lock(&self.ledger).limits.iter_mut().for_each(|limited| limited.is_first = true);
    }

    /// Answers whether the topic is there, with its groups.
    async fn create(&self, number: usize, copies: Option<usize>) -> bool {
        let topic = &self.topics[number];
        let forwards_to = topic.forwards_to.map_or("", |to| &*self.topics[to].name);
        let settings = json!({
            "dead_letter": {"topic": forwards_to},
            "partitions": topic.partitions,
            "ordering": if topic.is_ordered { "key" } else { "none" },
            "visibility_timeout_ms": topic.visibility_ms,
            "max_attempts": topic.max_attempts,
            "dedup_window_ms": topic.dedup_window_ms,
            "on_expiry": if topic.buries_expired { "bury" } else { "drop" },
            "backoff": {"kind": "exponential", "initial": "100ms", "max": "2s", "factor": 2.0, "jitter": 0.5},
        });
        let mut requests = vec![(format!("/v1/topics/{}", topic.name), settings)];
        requests.extend((0..topic.groups.len()).filter(|group| *group > 0 || topic.is_fair).map(|group| {
            let mut body = if copies == Some(group) { json!({"copy_of": topic.groups[0]}) } else { json!({}) };
            if topic.is_fair {
                body["fair"] = json!("key");
            }
            (self.group_path(number, group), body)
        }));
        for (path, body) in requests {
            let is_of_copy = !body["copy_of"].is_null();
            let answer = self.call(SETS_UP, "PUT", &path, Some(body)).await;
            if is_of_copy && matches!(answer, Some((201, _))) {
                let removals = &mut lock(&self.ledger).removals;
                let absent = removals.iter_mut().filter(|of| of.topic == number && of.back == Time(u64::MAX));
                absent.for_each(|removal| removal.is_copied = true);
            }
            if !is_done(&answer) {
                self.note(&format!("create {path}: {answer:?}"));
                return false;
            }
        }
        let Topic { key_max_in_flight, key_rate, key_burst, .. } = *topic;
        for group in 0..topic.groups.len() {
            let limit = Limit { key_max_in_flight, key_rate, key_burst, ..Limit::none(number, group) };
            let limit = limit.with_other(topic.is_fair);
            if limit.is_any() && !self.limit(SETS_UP, limit).await {
                return false;
            }
        }
        true
    }

    /// Deletes a topic or a group, and makes it again, as often as it takes.
    pub(crate) async fn delete(&self, broker: usize, topic: usize, group: Option<usize>, is_copy: bool) {
        let path = match group {
            None => format!("/v1/topics/{}", self.topics[topic].name),
            Some(group) => self.group_path(topic, group),
        };
        let sent = self.now();
        let place = {
            let mut ledger = lock(&self.ledger);
            let span = Span { sent, answered: None };
            ledger.removals.push(Removed { topic, group, span, back: Time(u64::MAX), is_copy, is_copied: false });
            ledger.removals.len() - 1
        };
        // A push or a consumer may make the topic with other settings meanwhile: then it is deleted once more.
        loop {
            let answer = self.call(broker, "DELETE", &path, None).await;
            self.note(&format!("delete {path} at broker {broker}: {answer:?}"));
            if !matches!(answer, Some((200..=299 | 404, _))) {
                self.wait(200).await;
                continue;
            }
            {
                let removal = &mut lock(&self.ledger).removals[place];
                (removal.span.answered, removal.is_copied) = (Some(self.now()), false);
            }
            // Consumers wait for it meanwhile. Plans say no time for this, so it comes from the time.
            self.wait(sent.as_ms() % 4 * PAUSE_MS).await;
            while self.create(topic, group.filter(|_| is_copy)).await {
                if self.is_not_contradicted(topic).await {
                    lock(&self.ledger).removals[place].back = self.now();
                    return self.note(&format!("{path} is there again"));
                }
                self.wait(200).await;
            }
            self.wait(200).await;
        }
    }

    /// Whether no other broker says that the topic is not there, or another one. One that does not reach Redis has only promised it, and a push
    /// at another one may have made another topic of the name.
    async fn is_not_contradicted(&self, number: usize) -> bool {
        let topic = &self.topics[number];
        let ordering = if topic.is_ordered { "key" } else { "none" };
        let brokers = lock(&self.seats).len();
        for broker in (0..brokers).filter(|broker| *broker != SETS_UP) {
            let answer = self.call(broker, "GET", &format!("/v1/topics/{}", topic.name), None).await;
            let is_another = answer.is_some_and(|(status, is)| match status {
                200 => is["settings"]["partitions"] != topic.partitions || is["settings"]["ordering"] != ordering,
                _ => status == 404,
            });
            if is_another {
                return false;
            }
        }
        true
    }

    pub(crate) async fn move_topic(&self, broker: usize, from: usize, to: usize) {
        let path = format!("/v1/topics/{}/move", self.topics[from].name);
        lock(&self.ledger).moves.push(Moved { topic: from, sent: self.now() });
        for _ in 0..10 {
            let answer = self.call(broker, "POST", &path, Some(json!({"to": self.topics[to].name}))).await;
            self.note(&format!("move of {path} at broker {broker}: {answer:?}"));
            if answer.is_none_or(|(_, body)| body["done"] == true) {
                return;
            }
            self.wait(100).await;
        }
    }

    // Groups.

    pub(crate) async fn pause(&self, broker: usize, topic: usize, group: usize, for_ms: u64) {
        let (sent, place) = (self.now(), self.group_path(topic, group));
        let body = json!({"for": format!("{for_ms}ms")});
        let answer = self.call(broker, "POST", &format!("{place}/pause"), Some(body)).await;
        let (span, is_done) = (self.span(sent, &answer), is_done(&answer));
        self.note(&format!("pause {place} for {for_ms} ms at broker {broker}: {is_done}"));
        lock(&self.ledger).pauses.push(Paused { topic, group, for_ms, span, is_done });
    }

    pub(crate) async fn pause_key(&self, broker: usize, (topic, group): (usize, usize), key: &str, for_ms: u64) {
        let (sent, place) = (self.now(), format!("{}/keys/{key}", self.group_path(topic, group)));
        let answer = match for_ms {
            0 => self.call(broker, "POST", &format!("{place}/resume"), None).await,
            _ => {
                let body = json!({"for": format!("{for_ms}ms")});
                self.call(broker, "POST", &format!("{place}/pause"), Some(body)).await
            }
        };
        let (span, is_done) = (self.span(sent, &answer), is_done(&answer));
        self.note(&format!("pause of {place} for {for_ms} ms at broker {broker}: {answer:?}"));
        lock(&self.ledger).key_pauses.push(KeyPaused { topic, group, key: key.to_owned(), for_ms, span, is_done });
    }

    pub(crate) async fn limit(&self, broker: usize, limit: Limit) -> bool {
        let (sent, place) = (self.now(), self.group_path(limit.topic, limit.group));
        let Limit { rate, max_in_flight, key_max_in_flight, key_rate, key_burst, other, .. } = limit;
        let mut body = json!({
            "rate": rate, "max_in_flight": max_in_flight, "key_max_in_flight": key_max_in_flight, "key_rate": key_rate,
            "weights": {}, "key_limits": {},
        });
        if let Some(other) = other {
            body["weights"] = json!({other.name(): other.weight});
            let limits = [("max_in_flight", other.max_in_flight), ("rate", other.rate)];
            let limits = limits.into_iter().filter_map(|(name, limit)| Some((name.to_owned(), json!(limit?))));
            let limits: serde_json::Map<_, _> = limits.collect();
            if !limits.is_empty() {
                body["key_limits"] = json!({other.name(): limits});
            }
        }
        if key_rate > 0 {
            body["key_burst"] = json!(key_burst);
        }
        let answer = self.call(broker, "PUT", &place, Some(body)).await;
        let (span, is_done) = (self.span(sent, &answer), is_done(&answer));
        self.note(&format!("{limit:?} at broker {broker}: {answer:?}"));
        lock(&self.ledger).limits.push(Limited { limit, is_first: false, span, is_done });
        is_done
    }

    pub(crate) async fn take_turns(&self, broker: usize, topic: usize, group: usize, fair: Fair) {
        let (sent, place) = (self.now(), self.group_path(topic, group));
        let word = if fair == Fair::Key { "key" } else { "none" };
        let answer = self.call(broker, "PUT", &place, Some(json!({"fair": word}))).await;
        self.note(&format!("{place} is fair by {word} at broker {broker}: {answer:?}"));
        if fair == Fair::Nothing {
            lock(&self.ledger).unfair.push((topic, group, self.span(sent, &answer)));
        }
    }

    pub(crate) async fn window(&self, broker: usize, change: WindowChange) -> bool {
        let WindowChange { topic, group, closed, is_elsewhere } = change;
        let (sent, place) = (self.now(), self.group_path(topic, group));
        let minute = closed.map(|ahead| sent.as_ms() / MINUTE_MS + ahead);
        let (ahead, time_zone) = if is_elsewhere { KOLKATA } else { (0, "UTC") };
        let clock = |minute: u64| format!("{:02}:{:02}", (minute + ahead) / 60 % 24, (minute + ahead) % 60);
        let window = minute.map_or(
            json!({}),
            |minute| json!({"from": clock(minute + 1), "to": clock(minute), "time_zone": time_zone}),
        );
        let answer = self.call(broker, "PUT", &place, Some(json!({"window": window}))).await;
        let (span, is_done) = (self.span(sent, &answer), is_done(&answer));
        self.note(&format!("{change:?} at broker {broker}: {window} {is_done}"));
        let at = |minute: u64| Time::from_ms(minute * MINUTE_MS);
        let closed = minute.map(|minute| (at(minute), at(minute + 1)));
        lock(&self.ledger).windows.push(Windowed { topic, group, closed, span, is_done });
        is_done
    }

    /// Takes the limits and windows of all groups away, deletes the cron jobs and gives back what is parked, as often as it takes. A group
    /// that is gone stays so.
    pub(crate) async fn release(&self) {
        for (topic, settings) in self.topics.iter().enumerate() {
            for job in 0..2 {
                let change = CronChange { topic, job, every_ms: None, missed: Missed::Last };
                while !self.change_cron(SETS_UP, change, true).await {
                    self.wait(200).await;
                }
            }
            for group in 0..settings.groups.len() {
                let place = self.group_path(topic, group);
                let free = Limit::none(topic, group);
                let open = WindowChange { topic, group, closed: None, is_elsewhere: false };
                while !(matches!(self.call(SETS_UP, "GET", &place, None).await, Some((404, _)))
                    || self.limit(SETS_UP, free).await
                        && self.window(SETS_UP, open).await
                        && self.unpark(topic, group).await)
                {
                    self.wait(200).await;
                }
            }
        }
    }

    // Many messages.

    pub(crate) async fn bulk(&self, broker: usize, bulk: Bulk) {
        let from = self.now().as_ms() + bulk.from_ms;
        self.bulk_between(broker, bulk, from, from + bulk.length_ms).await;
    }

    async fn unpark(&self, topic: usize, group: usize) -> bool {
        let now = self.now().as_ms();
        let bulk = Bulk { topic, group, action: BulkAction::Unpark, from_ms: 0, length_ms: 2 * DAY };
        self.bulk_between(SETS_UP, bulk, now - DAY, now + DAY).await
    }

    async fn bulk_between(&self, broker: usize, bulk: Bulk, from: u64, to: u64) -> bool {
        let Bulk { topic, group, action, .. } = bulk;
        let mut body = json!({"action": action.name(), "from": from, "to": to});
        if let Some(by_ms) = action.by_ms() {
            body["by"] = json!(format!("{by_ms}ms"));
        }
        let path = format!("{}/bulk", self.group_path(topic, group));
        let sent = self.now();
        let mut answered = None;
        // Each request works for a while, and says where the next one continues.
        for _ in 0..10 {
            let answer = self.call(broker, "POST", &path, Some(body.clone())).await;
            self.note(&format!("{bulk:?} at broker {broker}: {answer:?}"));
            match answer {
                Some((200, answer)) if answer["next_cursor"].is_string() => {
                    body["cursor"] = answer["next_cursor"].clone()
                }
                Some((200, _)) => {
                    answered = Some(self.now());
                    break;
                }
                _ => break,
            }
        }
        let (from, to, span) = (Time::from_ms(from), Time::from_ms(to), Span { sent, answered });
        lock(&self.ledger).bulks.push(BulkFact { topic, group, action, from, to, span });
        answered.is_some()
    }

    // Cron jobs.

    pub(crate) async fn cron(&self, broker: usize, change: CronChange) -> bool {
        self.change_cron(broker, change, false).await
    }

    async fn change_cron(&self, broker: usize, change: CronChange, is_the_end: bool) -> bool {
        let CronChange { topic, job, every_ms, missed } = change;
        let path = format!("/v1/topics/{}/cron/c{job}", self.topics[topic].name);
        let missed = match missed {
            Missed::Last => "last",
            Missed::Skip => "skip",
            Missed::All => "all",
        };
        let sent = self.now();
        let answer = match every_ms {
            Some(every) => {
                let body = json!({"every": format!("{every}ms"), "payload": CRON, "missed": missed});
                self.call(broker, "PUT", &path, Some(body)).await
            }
            None => self.call(broker, "DELETE", &path, None).await,
        };
        self.note(&format!("{change:?} at broker {broker}: {answer:?}"));
        let is_gone = every_ms.is_none() && matches!(answer, Some((404, _)));
        let (span, is_done) = (self.span(sent, &answer), is_gone || matches!(answer, Some((200..=299, _))));
        let was_there = match answer {
            Some((200..=299, _)) => Some(true),
            Some((404, _)) => Some(false),
            _ => None,
        };
        let was_there_at_the_end = was_there.filter(|_| is_the_end);
        let fact = CronFact { broker, topic, job, every_ms, span, is_done, was_there_at_the_end };
        lock(&self.ledger).crons.push(fact);
        is_done
    }
}
