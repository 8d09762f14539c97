//! The barrier: brokers tell each other by the store how far they are with restoring, and each waits for all that keep a journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{BufferedStore, PAUSE};
use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;
use crate::platform::clock::{Clock, Instant};
use crate::store::{LogTarget, Progress, Reports};

const LOOK_AFTER: Duration = Duration::from_millis(50);

/// How often a broker with a journal looks at the others, before it would count as silent.
pub(super) const LOOKS: u32 = 4;

/// Times the silence of a broker, after which nobody waits for it although it says that it restores.
const BUSY_MAX: u32 = 30;

impl<S: LogTarget> BufferedStore<S> {
    /// Says how far this broker is. The store keeps when a loss was noticed last: if it has an older time than before, it has lost that,
    /// perhaps once more while what it lost before is given back.
    pub(super) async fn say(&self, progress: Progress) -> Result<Reports> {
        let reports = self.limited(self.store.report(&self.broker, progress)).await?;
        let lost_at = reports.lost_at.as_ms();
        if lost_at < self.heard_lost_at.swap(lost_at, Ordering::Relaxed) {
            self.store.suspect_loss();
        }
        Ok(reports)
    }

    /// Tells the others that this broker noticed a loss, if it did, and answers the store's time: what is offered from
    /// now on counts for all losses before it. And whether a loss was noticed so lately that others may not have said yet that they restore.
    pub(super) async fn begin_offer(&self, says: Progress, began: Instant) -> (Timestamp, bool) {
        loop {
            // Nothing is said to a store that has not said its name. The loop of the WAL asks for it too, after longer and longer pauses.
            let answer = async {
                self.ensure_identified().await?;
                self.say(says).await
            };
            match answer.await {
                Ok(Reports { now, lost_at, .. }) => {
                    return (now.max(lost_at), now.since(lost_at) < self.options.silence);
                }
                Err(error) if self.gives_up(&error, began) => return (Timestamp::default(), false),
                Err(_) => Clock::System.sleep(PAUSE.0).await,
            }
        }
    }

    /// Whether to stop asking: a Redis that forbids the question must not keep messages from consumers for good.
    pub(super) fn gives_up(&self, error: &Error, began: Instant) -> bool {
        let most = if error.is_outage() { BUSY_MAX } else { 1 };
        Clock::System.instant().since(began) >= self.options.silence * most
    }

    /// Waits until every broker with a journal that is known has restored, or was silent for too long; `known_at` is when this
    /// broker learnt of a loss, if there was one. Answers whether one noticed another loss, so that what this broker has is
    /// to be offered again.
    pub(super) async fn wait_for_others(
        &self,
        began: Instant,
        known_at: Option<Instant>,
        offered_at: Timestamp,
        losses: u64,
    ) -> bool {
        loop {
            let waited = Clock::System.instant().since(began);
            let may_lack_some = self.may_lack_some(known_at);
            let progress = match self.journal {
                None => Progress::Look,
                // The others wait for whom it may not know, too.
                Some(_) if may_lack_some => Progress::Busy,
                Some(_) => Progress::Settled(offered_at),
            };
            let reports = match self.say(progress).await {
                Ok(reports) => reports,
                Err(error) if self.gives_up(&error, began) => {
                    tracing::warn!(%error, "it is not known whether other brokers have given back what the store lost");
                    return false;
                }
                Err(_) => {
                    Clock::System.sleep(PAUSE.1).await;
                    continue;
                }
            };
            let Reports { now, lost_at, brokers: reports, .. } = reports;
            if self.losses() != losses {
                // The list may be lost as well: those who were known before the other loss are waited for after it.
                return false;
            }
            if self.journal.is_some() && lost_at > offered_at && waited < self.options.silence * BUSY_MAX {
                return true;
            }
            // When each of the others that has not restored reported last; `None` if the store does not list it.
            let since_known = Clock::System.instant().since(known_at.unwrap_or(began));
            let known = self.restorers().into_iter().flatten().map(|broker| (broker, None));
            let mut unsettled: BTreeMap<String, Option<Timestamp>> = known.collect();
            unsettled.extend(reports.iter().map(|report| (report.broker.clone(), Some(report.at))));
            let is_settled = |broker: &str| reports.iter().any(|report| report.is_settled && report.broker == broker);
            unsettled.retain(|broker, _| *broker != self.broker && !is_settled(broker));
            let is_early = since_known < self.options.silence;
            let must_wait_for = |reported_at: &Option<Timestamp>| match reported_at {
                Some(at) => is_early || now.since(*at) < self.options.silence,
                None => is_early && known_at.is_some(),
            };
            let awaited: BTreeSet<String> =
                unsettled.iter().filter(|(_, at)| must_wait_for(at)).map(|(broker, _)| broker.clone()).collect();
            if (awaited.is_empty() && !may_lack_some) || waited >= self.options.silence * BUSY_MAX {
                if known_at.is_some() && !unsettled.is_empty() {
                    let brokers: Vec<&String> = unsettled.keys().collect();
                    tracing::warn!(
                        ?brokers,
                        "silent brokers are no longer waited for: what they acked may be delivered again"
                    );
                }
                self.set_restorers(reports.into_iter().map(|report| report.broker).collect());
                return false;
            }
            self.set_awaited(awaited);
            Clock::System.sleep(LOOK_AFTER).await;
        }
    }

    /// Whether a broker with a journal may be unknown to this one: the store may have lost its list, and nobody remembers who joined just
    /// before that. Each broker that is alive reports once more within this time.
    fn may_lack_some(&self, known_at: Option<Instant>) -> bool {
        let is_list_lost = || self.restorers().is_none() || (self.journal.is_some() && self.store.has_lost());
        known_at.is_some_and(|at| Clock::System.instant().since(at) < self.options.silence / LOOKS * 2)
            && is_list_lost()
    }

    pub(super) async fn leave_restorers(&self) {
        if self.journal.is_some()
            && let Err(error) = self.limited(self.store.report(&self.broker, Progress::Gone)).await
        {
            tracing::debug!(%error, "other brokers were not told that this one stops");
        }
    }
}
