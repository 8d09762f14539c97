//! Dead letters: listed, made ready again, and deleted for good.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::error::Error;
use super::pages::Pages;
use super::{Call, Client, Query, group_path};
use crate::wire::dead_letters::{DeadLetterMessage, DeadLetterMessages, DeadLetterSelector, Purged, Redriven};
use crate::wire::items::Items;
use crate::wire::time::show_span;

/// Which dead letters to list, and in which order.
#[derive(Debug, Clone, Default)]
pub struct DeadLetterFilter {
    reason: Option<String>,
    older_than: Option<Duration>,
    younger_than: Option<Duration>,
    text: Option<String>,
    order: Option<&'static str>,
    limit: Option<usize>,
}

impl DeadLetterFilter {
    /// Only with this reason: `max_attempts`, `buried`, `unreadable` or `expired`.
    pub fn reason(mut self, reason: impl Into<String>) -> DeadLetterFilter {
        self.reason = Some(reason.into());
        self
    }

    /// Minimum time since the death.
    pub fn older_than(mut self, age: Duration) -> DeadLetterFilter {
        self.older_than = Some(age);
        self
    }

    /// Maximum time since the death.
    pub fn younger_than(mut self, age: Duration) -> DeadLetterFilter {
        self.younger_than = Some(age);
        self
    }

    /// Only with this text in the last error or in the payload.
    pub fn text(mut self, text: impl Into<String>) -> DeadLetterFilter {
        self.text = Some(text.into());
        self
    }

    /// The newest death first, over all partitions. Default: partition by partition.
    pub fn newest_first(mut self) -> DeadLetterFilter {
        self.order = Some("newest");
        self
    }

    /// The oldest death first, over all partitions.
    pub fn oldest_first(mut self) -> DeadLetterFilter {
        self.order = Some("oldest");
        self
    }

    /// Dead letters of a request, 1 to 1,000. Default 100.
    pub fn page(mut self, limit: usize) -> DeadLetterFilter {
        self.limit = Some(limit);
        self
    }
}

impl Client {
    /// Lists the dead letters of a group.
    pub fn dead_letters(&self, topic: &str, group: &str, filter: DeadLetterFilter) -> Pages<DeadLetterMessage> {
        let (topic, group) = (topic.to_owned(), group.to_owned());
        let ask = move |cursor: Option<&str>| {
            let query = Query::default()
                .with("limit", filter.limit)
                .with("cursor", cursor)
                .with("reason", filter.reason.as_ref())
                .with("older_than", filter.older_than.map(show_span))
                .with("younger_than", filter.younger_than.map(show_span))
                .with("text", filter.text.as_ref())
                .with("order", filter.order);
            Ok(Call::get(format!("{}/dead-letters{query}", group_path(&topic, &group)?)))
        };
        Pages::new(self, ask, |page: DeadLetterMessages| (page.dead_letters, page.next_cursor))
    }

    /// Makes dead letters ready again: `redrive("orders", "default", DeadLetterSelector::of(["close-4713"])).total()`. Each
    /// item is the progress of one request.
    pub fn redrive(&self, topic: &str, group: &str, which: DeadLetterSelector) -> Pages<Redriven> {
        let left = Left::new(&which);
        let ask = changing(topic, group, "redrive", which, left.clone());
        Pages::new(self, ask, move |page: Redriven| {
            let next = left.after(page.redriven + page.matching.unwrap_or_default(), page.next_cursor.clone());
            (vec![page], next)
        })
    }

    /// Deletes dead letters for good. Each item is the progress of one request; [`Pages::total`] deletes all that are selected.
    pub fn purge_dead_letters(&self, topic: &str, group: &str, which: DeadLetterSelector) -> Pages<Purged> {
        let left = Left::new(&which);
        let ask = changing(topic, group, "purge", which, left.clone());
        Pages::new(self, ask, move |page: Purged| {
            let next = left.after(page.purged + page.matching.unwrap_or_default(), page.next_cursor.clone());
            (vec![page], next)
        })
    }
}

/// How many of the limit are left for the next requests.
#[derive(Debug, Clone)]
struct Left(Option<Arc<AtomicU64>>);

impl Left {
    fn new(which: &DeadLetterSelector) -> Left {
        Left(which.limit.map(|limit| Arc::new(AtomicU64::new(limit.get()))))
    }

    /// Where to continue after so many.
    fn after(&self, changed: u64, cursor: Option<String>) -> Option<String> {
        let Some(left) = &self.0 else { return cursor };
        let rest = left.load(Ordering::Relaxed).saturating_sub(changed);
        left.store(rest, Ordering::Relaxed);
        cursor.filter(|_| rest > 0)
    }

    fn limit(&self) -> Option<NonZeroU64> {
        self.0.as_ref().and_then(|left| NonZeroU64::new(left.load(Ordering::Relaxed)))
    }
}

fn changing(
    topic: &str,
    group: &str,
    verb: &'static str,
    which: DeadLetterSelector,
    left: Left,
) -> impl Fn(Option<&str>) -> Result<Call, Error> + Send + Sync + 'static {
    let (topic, group) = (topic.to_owned(), group.to_owned());
    move |cursor| {
        let path = format!("{}/dead-letters/{verb}", group_path(&topic, &group)?);
        check(&which)?;
        let which = DeadLetterSelector { cursor: cursor.map(str::to_owned), limit: left.limit(), ..which.clone() };
        Call::post(path).json(&which)
    }
}

/// # Errors
///
/// [`Error::Argument`]: nothing is selected, or two selections contradict each other.
fn check(which: &DeadLetterSelector) -> Result<(), Error> {
    let ages = [which.older_than, which.older_than_ms, which.younger_than, which.younger_than_ms];
    let is_filtered = which.reason.is_some() || which.text.is_some() || ages.iter().any(Option::is_some);
    match [which.ids.is_some(), which.all, is_filtered].into_iter().filter(|is_given| *is_given).count() {
        1 => Ok(()),
        _ => Err(Error::argument("dead letters are selected by ids, or by a filter, or all of them")),
    }
}

/// A selection of dead letters: these ids, all, or with [`DeadLetterSelector::default`] those that a filter finds.
impl DeadLetterSelector {
    /// Dead letters by their ids.
    pub fn of(ids: impl IntoIterator<Item = impl Into<String>>) -> DeadLetterSelector {
        DeadLetterSelector {
            ids: Some(Items(ids.into_iter().map(Into::into).collect())),
            ..DeadLetterSelector::default()
        }
    }

    /// All that are dead now.
    pub fn everything() -> DeadLetterSelector {
        DeadLetterSelector { all: true, ..DeadLetterSelector::default() }
    }

    /// Only those with this reason.
    pub fn reason(mut self, reason: impl Into<String>) -> DeadLetterSelector {
        self.reason = Some(reason.into());
        self
    }

    /// Only those that died at least so long ago.
    pub fn older_than(mut self, age: Duration) -> DeadLetterSelector {
        self.older_than_ms = Some(age);
        self
    }

    /// Only those that died at most so long ago.
    pub fn younger_than(mut self, age: Duration) -> DeadLetterSelector {
        self.younger_than_ms = Some(age);
        self
    }

    /// Only those with this text in the last error or in the payload.
    pub fn text(mut self, text: impl Into<String>) -> DeadLetterSelector {
        self.text = Some(text.into());
        self
    }

    /// The largest number to change; 0 is without a limit.
    pub fn limit(mut self, limit: u64) -> DeadLetterSelector {
        self.limit = NonZeroU64::new(limit);
        self
    }

    /// So many a second, at most.
    pub fn rate(mut self, rate: u32) -> DeadLetterSelector {
        self.rate = Some(rate);
        self
    }

    /// Only count them.
    pub fn dry_run(mut self) -> DeadLetterSelector {
        self.dry_run = true;
        self
    }
}
