//! Creating, listing, changing and deleting queues, their tags and permissions; and recent events, for the limits of AWS.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::errors::{
    DELETED_RECENTLY, DENIED, Failure, INVALID_NAME, INVALID_PARAMETER, NO_QUEUE, PURGE_IN_PROGRESS, Result,
    UNAVAILABLE,
};
use super::model::{Action, Answer, Request, in_range, required};
use super::queue::{self, Attributes, FIFO, FIFO_QUEUE, POLICY, PREFIX, PURGED, Queue, is_queue_name};
use super::{Caller, Sqs, ids};
use crate::broker::Precondition;
use crate::model::error::Kind;
use crate::model::message::TopicName;
use crate::model::topic::Settings;
use crate::platform::clock::Instant;
use crate::store::Purge;

const PAGE_MAX: i64 = 1_000;
/// How often a change is made again when another one came between.
const TRIES: usize = 8;
const TAGS_MAX: usize = 50;

impl Sqs {
    pub(crate) async fn create_queue(&self, caller: &Caller, request: &Request) -> Result<Answer> {
        let name = required(&request.queue_name, "QueueName")?;
        if !is_queue_name(name) {
            let why = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
            return Err(Failure::new(INVALID_PARAMETER, why));
        }
        let url = Answer { queue_url: Some(caller.queue_url(&self.options.account, name)), ..Answer::default() };
        let settings = self.new_settings(name, request)?;
        if self.options.strict && self.recent.is_recent("deleted", name, self.clock.instant()) {
            let why =
                "You must wait 60 seconds after deleting a queue before you can create another with the same name.";
            return Err(Failure::new(DELETED_RECENTLY, why));
        }
        let there = match self.queue_uncached(name).await {
            Ok(queue) => queue,
            Err(failure) if failure.class == NO_QUEUE => {
                if queue::has_settings(&request.attributes) || !request.tags.is_empty() {
                    caller.passes_also(Action::SetQueueAttributes)?;
                }
                if !self.broker.creates_topics() && !caller.pass.is_admin() {
                    let why = "topic.auto_create is false: creating a queue needs a token with the scope admin";
                    return Err(Failure::new(DENIED, why));
                }
                self.check_redrive(&settings).await?;
                let declared = self.broker.declare(TopicName::new(name)?, settings).await?;
                if declared.created {
                    tracing::info!(
                        topic = name,
                        "topic created for SQS: messages expire after its MessageRetentionPeriod"
                    );
                    return Ok(url);
                }
                self.queue_uncached(name).await?
            }
            Err(failure) => return Err(failure),
        };
        queue::check_equal(&request.attributes, &there.attributes(|name| caller.arn(&self.options.account, name)))?;
        Ok(url)
    }

    fn new_settings(&self, name: &str, request: &Request) -> Result<Settings> {
        let partitions = NonZeroU16::new(self.options.partitions).unwrap_or(NonZeroU16::MIN);
        let settings = queue::standard(name, &request.attributes, partitions)?;
        let mut settings = queue::changed(settings, name, &request.attributes)?;
        tag(&mut settings, &request.tags)?;
        Ok(settings)
    }

    /// As CreateQueue without attributes.
    pub(crate) async fn auto_create(&self, caller: &Caller, name: &str) -> Result<()> {
        caller.passes_also(Action::CreateQueue)?;
        let mut request = Request { queue_name: Some(name.to_owned()), ..Request::default() };
        if name.ends_with(FIFO) {
            request.attributes.insert(FIFO_QUEUE.to_owned(), "true".to_owned());
        }
        self.create_queue(caller, &request).await.map(drop)
    }

    /// Errors: `QueueDoesNotExist` for the dead-letter queue.
    async fn check_redrive(&self, settings: &Settings) -> Result<()> {
        match queue::redrive_target(settings) {
            Some(target) => self.broker.cached_topic(&target).await.map(drop).map_err(Failure::from),
            None => Ok(()),
        }
    }

    pub(crate) async fn list_queues(&self, caller: &Caller, request: &Request) -> Result<Answer> {
        let prefix = request.queue_name_prefix.as_deref().unwrap_or_default();
        let names = self.queue_names().await?;
        let names = names.into_iter().filter(|name| name.starts_with(prefix)).collect();
        let (names, next_token) = page(names, request)?;
        let queue_urls = names.iter().map(|name| caller.queue_url(&self.options.account, name)).collect();
        Ok(Answer { queue_urls, next_token, ..Answer::default() })
    }

    /// Sorted.
    async fn queue_names(&self) -> Result<Vec<String>> {
        Ok(sorted(self.broker.topics().await?))
    }

    pub(crate) async fn list_sources(&self, caller: &Caller, queue: &Queue, request: &Request) -> Result<Answer> {
        let names = self.sources(queue).await?;
        let (names, next_token) = page(names, request)?;
        let urls = names.iter().map(|name| caller.queue_url(&self.options.account, name)).collect();
        Ok(Answer { source_queue_urls: Some(urls), next_token, ..Answer::default() })
    }

    /// The queues whose dead letters come to this one.
    pub(crate) async fn sources(&self, queue: &Queue) -> Result<Vec<String>> {
        let sources = self.broker.dead_letter_sources(&queue.topic).await?;
        Ok(sorted(sources))
    }

    pub(crate) async fn delete_queue(&self, queue: &Queue) -> Result<Answer> {
        match queue.is_group() {
            true => self.broker.delete_group(&queue.topic, &queue.group).await?,
            false => self.broker.delete_topic(&queue.topic).await?,
        }
        self.recent.note("deleted", &queue.name, self.clock.instant());
        Ok(Answer::default())
    }

    pub(crate) async fn get_attributes(&self, caller: &Caller, name: &str, request: &Request) -> Result<Answer> {
        let wanted = &request.attribute_names;
        let queue = self.queue_uncached_for(caller, name).await?;
        let has_all = wanted.iter().any(|name| name == "All");
        let mut attributes = queue.attributes(|name| caller.arn(&self.options.account, name));
        let counts = |name: &&String| name.starts_with("ApproximateNumberOfMessages");
        if has_all || wanted.iter().any(|name| counts(&name)) {
            attributes.extend(self.counts(&queue).await?);
        }
        if !has_all {
            let is_of_fifo = |name: &String| name == "FifoQueue" && !queue.is_fifo();
            if let Some(name) = wanted.iter().find(|name| !queue::is_attribute(name) || is_of_fifo(name)) {
                return Err(Failure::new(INVALID_NAME, format!("Unknown Attribute {name}.")));
            }
            attributes.retain(|name, _| wanted.contains(name));
        }
        Ok(Answer { attributes, ..Answer::default() })
    }

    async fn counts(&self, queue: &Queue) -> Result<BTreeMap<String, String>> {
        let (_, stats) = self.broker.group(&queue.topic, &queue.group).await?;
        let sum = stats.iter().fold((0, 0, 0), |(ready, scheduled, in_flight), (_, stats)| {
            // As at AWS, a message behind its group is not in flight, and one whose retry is not due is not visible.
            let (visible, invisible) = (stats.ready + stats.blocked, stats.in_flight + stats.backoff);
            (ready + visible, scheduled + stats.scheduled, in_flight + invisible)
        });
        let counts = [("", sum.0), ("Delayed", sum.1), ("NotVisible", sum.2)];
        let named = |(kind, count): (&str, u64)| (format!("ApproximateNumberOfMessages{kind}"), count.to_string());
        Ok(counts.into_iter().map(named).collect())
    }

    pub(crate) async fn set_attributes(&self, caller: &Caller, name: &str, request: &Request) -> Result<Answer> {
        let attributes = &request.attributes;
        self.change_queue(caller, name, |queue| {
            queue::check_type_unchanged(queue, attributes)?;
            queue::changed(queue.settings().clone(), name, attributes)
        })
        .await
    }

    pub(crate) async fn tag_queue(
        &self,
        caller: &Caller,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<Answer> {
        self.change_queue(caller, name, |queue| {
            let mut settings = queue.settings().clone();
            tag(&mut settings, tags)?;
            Ok(settings)
        })
        .await
    }

    pub(crate) async fn untag_queue(&self, caller: &Caller, name: &str, keys: &[String]) -> Result<Answer> {
        self.change_queue(caller, name, |queue| {
            let mut settings = queue.settings().clone();
            keys.iter().filter(|key| !key.starts_with(PREFIX)).for_each(|key| settings.annotations.remove(key));
            Ok(settings)
        })
        .await
    }

    /// Stored in the policy, and without effect.
    pub(crate) async fn add_permission(&self, caller: &Caller, name: &str, request: &Request) -> Result<Answer> {
        let label = required(&request.label, "Label")?;
        self.change_policy(caller, name, |statements, arn| {
            if statements.iter().any(|statement| statement["Sid"] == **label) {
                return Err(Failure::parameter("Label", label, "Already exists."));
            }
            let principal = |account: &String| format!("arn:aws:iam::{account}:root");
            let (principals, actions): (Vec<_>, Vec<_>) = (
                request.aws_account_ids.iter().map(principal).collect(),
                request.actions.iter().map(|action| format!("SQS:{action}")).collect(),
            );
            statements.push(json!({
                "Sid": label, "Effect": "Allow", "Principal": {"AWS": one_or_all(principals)},
                "Action": one_or_all(actions), "Resource": arn,
            }));
            Ok(())
        })
        .await
    }

    pub(crate) async fn remove_permission(&self, caller: &Caller, name: &str, request: &Request) -> Result<Answer> {
        let label = required(&request.label, "Label")?;
        self.change_policy(caller, name, |statements, _| {
            let before = statements.len();
            statements.retain(|statement| statement["Sid"] != **label);
            match statements.len() < before {
                true => Ok(()),
                false => Err(Failure::parameter("Label", label, "can't find label.")),
            }
        })
        .await
    }

    async fn change_policy(
        &self,
        caller: &Caller,
        name: &str,
        change: impl Fn(&mut Vec<Value>, &str) -> Result<()>,
    ) -> Result<Answer> {
        let arn = caller.arn(&self.options.account, name);
        self.change_queue(caller, name, |queue| {
            let empty = || json!({"Version": "2008-10-17", "Id": format!("{arn}/SQSDefaultPolicy"), "Statement": []});
            let policy = queue.annotation(POLICY).and_then(|text| serde_json::from_str(text).ok());
            let mut policy: Value =
                policy.filter(|policy: &Value| policy["Statement"].is_array()).unwrap_or_else(empty);
            let Some(statements) = policy["Statement"].as_array_mut() else { return Ok(queue.settings().clone()) };
            change(statements, &arn)?;
            let text = if statements.is_empty() { String::new() } else { policy.to_string() };
            queue::changed(queue.settings().clone(), name, &Attributes::from([(POLICY.to_owned(), text)]))
        })
        .await
    }

    /// Of two changes at the same time none is lost.
    async fn change_queue(
        &self,
        caller: &Caller,
        name: &str,
        change: impl Fn(&Queue) -> Result<Settings>,
    ) -> Result<Answer> {
        for _ in 0..TRIES {
            let queue = self.queue_uncached_for(caller, name).await?;
            let settings = change(&queue)?;
            self.check_redrive(&settings).await?;
            let unchanged = Precondition::Generation(queue.descriptor.generation);
            match self.broker.declare_if(queue.topic.clone(), settings, unchanged).await {
                Ok(_) => return Ok(Answer::default()),
                Err(error) if error.kind() == Kind::Stale => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::new(UNAVAILABLE, "The queue is being changed by others."))
    }

    pub(crate) async fn purge_queue(&self, caller: &Caller, queue: &Queue) -> Result<Answer> {
        let now = self.clock.instant();
        if self.options.strict && self.recent.is_recent("purged", &queue.name, now) {
            let why = format!("Only one PurgeQueue operation on {} is allowed every 60 seconds.", queue.name);
            return Err(Failure::new(PURGE_IN_PROGRESS, why));
        }
        // Deduplication ids belong to the topic, not to one of its groups.
        if queue.is_fifo() && !queue.is_group() {
            self.change_queue(caller, &queue.name, |queue| {
                let mut settings = queue.settings().clone();
                settings.annotations.set(format!("{PREFIX}{PURGED}"), ids::random());
                Ok(settings)
            })
            .await?;
        }
        let purge = Purge { group: queue.group.clone(), dead_letters: false };
        self.broker.purge_group(&queue.topic, &purge).await?;
        self.recent.note("purged", &queue.name, now);
        Ok(Answer::default())
    }
}

/// The names that a queue can have, sorted.
fn sorted(topics: Vec<TopicName>) -> Vec<String> {
    let mut names: Vec<String> = topics.into_iter().map(String::from).filter(|name| is_queue_name(name)).collect();
    names.sort_unstable();
    names
}

fn tag(settings: &mut Settings, tags: &BTreeMap<String, String>) -> Result<()> {
    if let Some(key) = tags.keys().find(|key| key.starts_with(PREFIX)) {
        return Err(Failure::parameter("TagKey", key, "Tags that begin with sqs. are reserved."));
    }
    tags.iter().for_each(|(key, value)| settings.annotations.set(key, value));
    let count = settings.annotations.iter().filter(|(name, _)| !name.starts_with(PREFIX)).count();
    if count > TAGS_MAX {
        return Err(Failure::invalid(format!("Too many tags: {count}, at most {TAGS_MAX} are allowed.")));
    }
    settings.annotations.check()?;
    Ok(())
}

fn one_or_all(mut texts: Vec<String>) -> Value {
    match texts.len() {
        1 => texts.pop().into(),
        _ => texts.into(),
    }
}

/// A page of sorted names. The token is the last name of the page before. Errors: `InvalidParameterValue`.
fn page(names: Vec<String>, request: &Request) -> Result<(Vec<String>, Option<String>)> {
    let why = "MaxResults must be an integer between 1 and 1000.";
    let asked = in_range("MaxResults", request.max_results, 1..=PAGE_MAX, why)?;
    let max = usize::try_from(asked.unwrap_or(PAGE_MAX.unsigned_abs())).unwrap_or(usize::MAX);
    let invalid = || Failure::invalid("Invalid or expired next token.");
    let read =
        |token: &String| String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok().filter(|it| is_queue_name(it));
    let after = request.next_token.as_ref().map(|token| read(token).ok_or_else(invalid)).transpose()?;
    let mut left = names.into_iter().filter(|name| after.as_ref().is_none_or(|after| name > after));
    let page: Vec<String> = left.by_ref().take(max).collect();
    let more = page.last().filter(|_| asked.is_some() && left.next().is_some());
    let next = more.map(|last| URL_SAFE_NO_PAD.encode(last));
    Ok((page, next))
}

const KEPT: Duration = Duration::from_secs(60);
/// Past it everything is forgotten.
const EVENTS_MAX: usize = 10_000;

/// Events of the last minute at this broker, for the limits that AWS sets.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<BTreeMap<(&'static str, String), Instant>>);

impl Recent {
    pub(crate) fn note(&self, what: &'static str, name: &str, now: Instant) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.retain(|_, at| now.since(*at) < KEPT);
        if events.len() >= EVENTS_MAX {
            events.clear();
        }
        events.insert((what, name.to_owned()), now);
    }

    pub(crate) fn is_recent(&self, what: &'static str, name: &str, now: Instant) -> bool {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.get(&(what, name.to_owned())).is_some_and(|at| now.since(*at) < KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_and_a_wrong_token_is_refused() -> Result<()> {
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        let ask = |max_results, next_token| Request { max_results, next_token, ..Request::default() };
        assert_eq!(page(names.clone(), &ask(None, None))?, (names.clone(), None));
        let (first, token) = page(names.clone(), &ask(Some(2), None))?;
        assert_eq!(first, ["a", "b"]);
        let (second, token) = page(names.clone(), &ask(Some(2), token))?;
        assert_eq!(second, ["c", "d"]);
        assert_eq!(page(names.clone(), &ask(Some(2), token))?, (vec!["e".to_owned()], None));
        for (max, token) in [(Some(0), None), (Some(1_001), None), (None, Some("%")), (None, Some("gA"))] {
            assert!(page(names.clone(), &ask(max, token.map(str::to_owned))).is_err());
        }
        Ok(())
    }

    #[test]
    fn recent_events_expire_after_a_minute() {
        let (recent, now) = (Recent::default(), Instant::START.plus(KEPT));
        recent.note("purged", "orders", now);
        assert!(recent.is_recent("purged", "orders", now.plus(KEPT - Duration::from_millis(1))));
        assert!(!recent.is_recent("purged", "orders", now.plus(KEPT)));
        assert!(!recent.is_recent("deleted", "orders", now));
        (0..2 * EVENTS_MAX).for_each(|n| recent.note("purged", &n.to_string(), now));
        assert!(recent.0.lock().is_ok_and(|events| events.len() <= EVENTS_MAX));
    }
}
