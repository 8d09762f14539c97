//! A store around a store. While that one is unavailable, pushes and cancels go to the WAL, and are replayed once it is back. After it
//! lost data, the journal restores what it had answered. docs/internals/outage-path.md names the function of each step.
//!
//! Nothing above knows that there are two. Consumers wait for the store, since what they decide belongs to its leases. Nothing here
//! decides when a message is due: that was fixed before it came.

mod barrier;
mod clock_offset;
mod held_ids;
pub mod hand_over;
mod messages;
mod offer;
mod journal;
mod cron_jobs;
mod replay;
mod restore;
mod state_file;
mod kept_keys;
mod store;
mod topic_cache;
mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, Notify, watch};

use self::cron_jobs::{KeptCronJobs, UnansweredFirings};
use self::held_ids::HeldIds;
use self::journal::Journal;
use self::kept_keys::KeptKeys;
use self::topic_cache::{OrderedTopics, TopicCache};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX, ENVELOPE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::model::spelling::counted;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::CallPart;
use crate::outage::hand_over::{Courier, HandOverOptions};
use crate::platform::clock::Clock;
use crate::platform::log_throttle::RepeatThrottle;
use crate::platform::tasks::blocking;
use crate::store::{Identity, LogTarget, not_stored_yet};
use crate::telemetry::metrics::{Metrics, WalMetrics};
use crate::wal::{Entry, LIMIT_BYTES, Position, Record, Wal, WalOptions};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutageOptions {
    /// The directory of everything that is kept; made if it is not there. One process at a time.
    pub dir: PathBuf,
    /// Bytes on disk past which nothing is buffered; also of the journal, which has the same number again.
    pub limit_bytes: u64,
    /// How long pushes that the store took are kept as well, in case it loses them; `None` is not at all.
    pub journal_window: Option<Duration>,
    /// Whether to take over what was buffered for another store.
    pub adopt: bool,
    /// Whether to start for the first time although the store refuses its configuration, and to buffer until it accepts
    /// it.
    pub start_without: bool,
    /// How long another broker may be silent after a loss before nobody waits for what it could give back: a lease ttl.
    pub silence: Duration,
    pub hand_over: Option<HandOverOptions>,
    /// Carries what is handed over instead of HTTP over sockets.
    pub courier: Option<Arc<dyn Courier>>,
    /// See [`WalOptions::in_place`].
    pub in_place: bool,
}

impl OutageOptions {
    /// The defaults for a directory: 1 GiB, no journal.
    pub fn new(dir: impl Into<PathBuf>) -> OutageOptions {
        OutageOptions {
            dir: dir.into(),
            limit_bytes: LIMIT_BYTES,
            journal_window: None,
            adopt: false,
            start_without: false,
            silence: Duration::from_secs(10),
            hand_over: None,
            courier: None,
            in_place: false,
        }
    }
}

pub struct BufferedStore<S> {
    store: Arc<S>,
    clock: Clock,
    options: OutageOptions,
    timeout: Duration,
    breaker: Breaker,
    metrics: Arc<Metrics>,
    wal: Wal,
    wal_metrics: WalMetrics,
    journal: Option<Arc<Journal>>,
    broker: String,
    topic_cache: TopicCache,
    kept_keys: KeptKeys,
    behind: OrderedTopics,
    held: HeldIds,
    unanswered_firings: UnansweredFirings,
    kept_cron_jobs: KeptCronJobs,
    /// The number of losses (`Loss::count`) when the journal last restored all that it had to, plus 1; 0 before the first time.
    made_up: AtomicU64,
    /// When the last whole offer of the journal began, ms by the store's clock.
    offered_at: AtomicU64,
    /// When a loss was noticed last, as the store said last, ms.
    heard_lost_at: AtomicU64,
    /// The number of losses when the store was last found to be the one that the WAL belongs to, plus 1; 0 before the first time.
    identified: AtomicU64,
    /// Held while a page of the WAL is on its way to the store. A cancel of a buffered message waits for it.
    offering: Mutex<()>,
    /// The journal could not be read when the store had lost something: it is offered once it can be.
    journal_unread: AtomicBool,
    /// The last record of the pages of the WAL that are still there, though the store perhaps took something of them.
    perhaps_sent: std::sync::Mutex<Option<Position>>,
    last_contact: std::sync::Mutex<Option<Timestamp>>,
    restorers: std::sync::Mutex<Restorers>,
    buffered: Notify,
    taken: Notify,
    /// Logs of other brokers, and the number through which this one has taken them. Held also while the store is asked
    /// for its name: records for one store are not taken while another one becomes the own.
    accepted_logs: Mutex<BTreeMap<String, u64>>,
    throttles: LogThrottles,
}

/// The brokers with a journal: after a loss each of them restores what it knows.
#[derive(Debug, Default)]
struct Restorers {
    /// Those that the store listed last; `None` if this process has not yet seen the list of a store that had lost nothing.
    known: Option<Vec<String>>,
    awaited: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct LogThrottles {
    not_taken: RepeatThrottle,
    not_replayed: RepeatThrottle,
    replay: RepeatThrottle,
    dropped: RepeatThrottle,
    journal_unread: RepeatThrottle,
    journal_not_trimmed: RepeatThrottle,
}

impl<S: LogTarget> BufferedStore<S> {
    /// Opens the directory, and checks that the store is the one it belongs to. An unavailable store does not prevent
    /// the start. `timeout` is how long a push waits for the store. Errors: `Conflict` when another process has the
    /// directory, or when what is buffered belongs to another store; the store's own when it refuses its configuration
    /// and was never reached with this directory, unless [`OutageOptions::start_without`].
    pub async fn open(
        store: S,
        options: OutageOptions,
        timeout: Duration,
        metrics: Arc<Metrics>,
    ) -> Result<BufferedStore<S>> {
        let clock = store.clock().local().clone();
        let (wal_metrics, journal_metrics) = (metrics.wal("wal"), metrics.wal("journal"));
        let wal = open_log("wal", &options, &clock, wal_metrics.clone()).await?;
        let journal = match options.journal_window {
            Some(window) => {
                let log = open_log("journal", &options, &clock, journal_metrics.clone()).await?;
                Some(Arc::new(Journal::new(log, window, clock.clone(), journal_metrics)))
            }
            None => None,
        };
        let found = wal.depth();
        let inherited = found.end.filter(|_| found.records > 0);
        let (behind, held) = (OrderedTopics::new(inherited), HeldIds::new(inherited));
        let topic_cache = TopicCache::load(options.dir.join("topics"));
        let kept_keys = KeptKeys::load(options.dir.join("receipt-keys"));
        let broker = match &journal {
            Some(journal) => journal.log().id().await.ok(),
            None => None,
        };
        let broker = broker.unwrap_or_else(|| ulid::Ulid::new().to_string());
        let opened = BufferedStore {
            store: Arc::new(store),
            clock,
            options,
            timeout,
            breaker: Breaker::default(),
            metrics,
            wal,
            wal_metrics,
            journal,
            broker,
            topic_cache,
            kept_keys,
            behind,
            held,
            unanswered_firings: UnansweredFirings::default(),
            kept_cron_jobs: KeptCronJobs::default(),
            made_up: AtomicU64::new(0),
            offered_at: AtomicU64::new(0),
            heard_lost_at: AtomicU64::new(0),
            identified: AtomicU64::new(0),
            offering: Mutex::default(),
            journal_unread: AtomicBool::new(false),
            perhaps_sent: std::sync::Mutex::default(),
            last_contact: std::sync::Mutex::default(),
            restorers: std::sync::Mutex::default(),
            buffered: Notify::new(),
            taken: Notify::new(),
            accepted_logs: Mutex::default(),
            throttles: LogThrottles::default(),
        };
        opened.assume_clock().await;
        opened.load_last_contact().await;
        opened.expect_own_store();
        match opened.identify().await {
            Err(error) if error.is_refusal() && opened.is_first_start() => {
                let remedy = "to start all the same, and buffer what is pushed, set `redis.start_without = true`";
                return Err(Error::refused(format!("{}; {remedy}", error.detail())));
            }
            Err(error) if error.is_outage() => opened.breaker.open(&error),
            identified => identified?,
        }
        Ok(opened)
    }

    /// Kept records belong to one store. One that answers under another name is given nothing, not even a lease, before it is identified.
    /// Otherwise it would remember this broker, which is evidence that it is the own one.
    fn expect_own_store(&self) {
        let own = self.wal.store_identity().filter(|_| self.kept_records() > 0 && !self.options.adopt);
        if let Some(own) = own {
            self.store.accept(&own);
        }
    }

    /// Records that are buffered or journaled for the store.
    fn kept_records(&self) -> u64 {
        self.wal.depth().records + self.journal.as_ref().map_or(0, |journal| journal.log().depth().records)
    }

    /// Whether a configuration error can be reported at once: nothing waits, and the store was never reached here.
    fn is_first_start(&self) -> bool {
        !self.options.start_without && self.wal.store_identity().is_none() && self.wal.depth().records == 0
    }

    /// Asks the store whether the WAL belongs to it. Errors: `Conflict` when it does not, and the store's own.
    async fn identify(&self) -> Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        let _naming = self.accepted_logs.lock().await;
        let (losses, heard) = (self.losses(), self.last_contact());
        let ours = self.wal.store_identity();
        let Identity { id: found, is_new } = self.limited(self.store.identity(ours.as_deref())).await?;
        if is_new && ours.is_some() && !self.is_loss_suspected() {
            self.store.suspect_loss();
            self.store.hold_at_losses(false);
        }
        if ours.as_ref() != Some(&found) {
            // A Redis that was named after this broker last heard from its own is the same place, emptied.
            let is_successor = heard.is_some_and(|heard| named_at(&found) > Some(heard));
            if ours.is_some()
                && !is_successor
                && !self.options.adopt
                && !self.stepwise(self.store.remembers(&self.topic_cache.all())).await?
            {
                let kept = self.kept_records();
                if kept > 0 {
                    return Err(Error::new(Kind::Conflict, another_store(&self.options, &*self.store, kept)));
                }
                self.forget_topics_of_another().await?;
            }
            if let Err(error) = self.wal.remember_store(&found).await {
                // A full disk must not keep pushes from the store. The name is noted before anything is replayed.
                tracing::warn!(%error, "name of the store not noted");
            }
        }
        self.store.accept(&found);
        self.identified.store(losses + 1, Relaxed);
        Ok(())
    }

    /// A store that has an earlier topic of a name was never the one in which this broker saw a later one. Its topics count: that of the other
    /// store would replace them.
    async fn forget_topics_of_another(&self) -> Result<()> {
        for known in self.topic_cache.all() {
            let there = self.limited(self.store.topic_or_tombstone(&known.topic)).await?;
            if there.is_some_and(|there| !there.deleted && there.incarnation < known.incarnation) {
                self.topic_cache.clear();
                break;
            }
        }
        Ok(())
    }

    /// Asks the store for its name, unless it has said it since the last suspected loss. Errors: as [`BufferedStore::identify`].
    async fn ensure_identified(&self) -> Result<()> {
        match self.is_identified(self.losses()) {
            true => Ok(()),
            false => self.identify().await,
        }
    }

    /// Nothing is created in a store before this. Errors: `Unavailable`.
    fn check_identified(&self) -> Result<()> {
        match self.is_identified(self.losses()) {
            true => Ok(()),
            false => Err(Error::unavailable("it is not known yet whether it is the same store")),
        }
    }

    /// Whether the store that there was after so many losses is known to be the one that the WAL belongs to. After another loss another one
    /// may answer.
    fn is_identified(&self, losses: u64) -> bool {
        self.identified.load(std::sync::atomic::Ordering::Relaxed) == losses + 1
    }

    /// The journal says when the store last took something, and the WAL when it began to take nothing. Without records it was
    /// before this start.
    async fn load_last_contact(&self) {
        let newest = match &self.journal {
            Some(journal) => journal.log().newest().await.ok().flatten(),
            None => None,
        };
        let oldest = self.wal.peek(None, 1, 1).await.unwrap_or_default();
        let heard = newest.iter().chain(&oldest).map(|entry| entry.at).max();
        self.set_last_contact(heard.or(Some(self.clock.now())));
    }

    /// When the store last answered while it was known to be the one that the logs belong to, by this machine's clock.
    fn last_contact(&self) -> Option<Timestamp> {
        *self.last_contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_last_contact(&self, at: Option<Timestamp>) {
        *self.last_contact.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn restorers(&self) -> Option<Vec<String>> {
        self.restorers.lock().unwrap_or_else(PoisonError::into_inner).known.clone()
    }

    fn set_restorers(&self, known: Vec<String>) {
        *self.restorers.lock().unwrap_or_else(PoisonError::into_inner) =
            Restorers { known: Some(known), awaited: BTreeSet::new() };
    }

    fn set_awaited(&self, awaited: BTreeSet<String>) {
        self.restorers.lock().unwrap_or_else(PoisonError::into_inner).awaited = awaited;
    }

    fn losses(&self) -> u64 {
        self.store.losses().borrow().count
    }

    /// Errors: `Unavailable` while the store is.
    fn check_reachable(&self) -> Result<()> {
        self.breaker.reason().map_or(Ok(()), |reason| Err(Error::unavailable(reason.detail().to_owned())))
    }

    /// A call to the store, unless that is unavailable.
    async fn reach<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.check_reachable()?;
        self.limited(call).await
    }

    /// Waits a moment longer than the store's own time limit, which knows better what is wrong.
    async fn limited<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.timeout + GRACE;
        tokio::select! {
            biased;
            answer = self.stepwise(call) => answer,
            () = Clock::System.sleep(limit) => {
                Err(Error::outcome_unknown(format!("the store did not answer within {limit:?}")))
            }
        }
    }

    /// Calls to the store, one after the other: each has the store's own time limit, and all together have none. A store in
    /// which each is slow, and in time, is not unavailable.
    async fn stepwise<T>(&self, calls: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = calls.await;
        // After a loss another store may answer, until it has said who it is.
        if answer.is_ok() && self.is_identified(self.losses()) {
            self.set_last_contact(Some(self.clock.now()));
        }
        answer
    }
}

const PAGE_RECORDS: usize = 500;

/// Bytes of one page: far below what one call may have, and little memory.
const PAGE_BYTES: usize = 1024 * 1024;

const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

const GRACE: Duration = Duration::from_millis(20);

fn another_store(options: &OutageOptions, store: &impl LogTarget, kept: u64) -> String {
    format!(
        "{} holds {} that were buffered for another store than the one at {}: connect to that one, or let this one have \
         them with --adopt",
        options.dir.display(),
        counted(kept, "message"),
        store.describe().location
    )
}

fn named_at(identity: &str) -> Option<Timestamp> {
    Some(Timestamp::from_ms(ulid::Ulid::from_string(identity).ok()?.timestamp_ms()))
}

/// Opening reads what is there: beside the runtime, not in it.
async fn open_log(name: &str, options: &OutageOptions, clock: &Clock, metrics: WalMetrics) -> Result<Wal> {
    metrics.limit.set(i64::try_from(options.limit_bytes).unwrap_or(i64::MAX));
    let options = WalOptions {
        in_place: options.in_place,
        ..WalOptions::new(options.dir.join(name), options.limit_bytes, clock.clone())
    };
    blocking(move || Wal::open(options, metrics)).await?
}

/// Closed while the store answers. It opens when the start, a push, the creation of a topic, a check of readiness or the replay finds
/// the store unavailable; and when another store answers than the WAL belongs to, which makes pushes fail. It closes as soon as the
/// store has answered a page of what was buffered (or a ping, if nothing was): the rest of a long WAL is replayed
/// beside live pushes. The page itself is trimmed from the WAL a moment later.
#[derive(Debug)]
pub(super) struct Breaker {
    reason: watch::Sender<Option<Error>>,
    away: RepeatThrottle,
    refused: RepeatThrottle,
}

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker {
            reason: watch::Sender::new(None),
            away: RepeatThrottle::default(),
            refused: RepeatThrottle::default(),
        }
    }
}

impl Breaker {
    pub(super) fn reason(&self) -> Option<Error> {
        self.reason.borrow().clone()
    }

    /// Whether what is buffered belongs to another store, so that nothing may be added to it.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.reason().filter(|reason| reason.kind() == Kind::Conflict)
    }

    /// Sends pushes elsewhere from now on. The reason may change while it is open: the last reason is shown.
    pub(super) fn open(&self, why: &Error) {
        self.reason.send_if_modified(|reason| {
            let opened = reason.is_none();
            *reason = Some(why.clone());
            opened
        });
        let now = Clock::System.instant();
        if why.kind() == Kind::Conflict {
            if self.refused.is_due(now) {
                tracing::error!(error = %why, "pushes are refused");
            }
        } else if self.away.is_due(now) {
            tracing::warn!(error = %why, "the store is unavailable: pushes are buffered on disk");
        }
    }

    pub(super) fn close(&self) {
        self.reason.send_if_modified(|reason| reason.take().is_some());
        if self.away.is_over() | self.refused.is_over() {
            tracing::info!("the store is back: pushes go there again");
        }
    }

    pub(super) async fn opened(&self) {
        let _ = self.reason.subscribe().wait_for(Option::is_some).await;
    }
}

/// The topic that a store has in the place of a promised one may be another one, and is not known yet.
fn check_stored(descriptor: &Descriptor) -> Result<()> {
    match descriptor.is_promised() {
        true => Err(not_stored_yet()),
        false => Ok(()),
    }
}

/// The error of what neither the store nor the local disk took.
fn both_failed(store: &Error, wal: &Error) -> Error {
    let perhaps = [store, wal].iter().any(|error| error.kind() == Kind::OutcomeUnknown);
    let kind = if perhaps { Kind::OutcomeUnknown } else { wal.kind() };
    Error::new(
        kind,
        format!("the store is unavailable ({}), and the local disk does not help: {}", store.detail(), wal.detail()),
    )
}

/// Records of a page that has all of at least one call. No page has only a part of a call: the store remembers only its
/// number, so it would take the part for all of it.
const CALL_PAGE_RECORDS: usize = 2 * CALL_IDS_MAX;

/// Bytes of one, likewise: the bodies of a call are counted, and what travels with each is not.
const CALL_PAGE_BYTES: usize = CALL_BYTES_MAX + CALL_IDS_MAX * (ENVELOPE_BYTES_MAX - PAYLOAD_BYTES_MAX);

/// Bytes of one that another broker is given: fewer than a request may have.
const REQUEST_PAGE_BYTES: usize = CALL_BYTES_MAX + 2 * 1024 * 1024;

fn call_of(record: &Record) -> Option<(&str, u64)> {
    match record {
        Record::Set { call, .. } | Record::Push { call: Some(CallPart { call, .. }), .. } => {
            Some((&call.stream, call.seq))
        }
        _ => None,
    }
}

/// Leaves out the end of a page of a log with this end that may have only a part of its last call. Answers false if that
/// would be the whole page, which stays.
fn drop_part_of_a_call(page: &mut Vec<Entry>, end: Option<Position>) -> bool {
    if page.last().map(|entry| entry.position) >= end {
        return true;
    }
    let Some(last) = page.last().and_then(|entry| call_of(&entry.record)).map(|(s, n)| (s.to_owned(), n)) else {
        return true;
    };
    let is_other = |entry: &Entry| call_of(&entry.record) != Some((last.0.as_str(), last.1));
    let whole = page.iter().rposition(is_other);
    whole.into_iter().for_each(|whole| page.truncate(whole + 1));
    whole.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn breaker_keeps_the_last_reason_until_it_closes() {
        let breaker = Breaker::default();
        assert_eq!(breaker.reason(), None);
        breaker.open(&Error::unavailable("refused"));
        breaker.open(&Error::unavailable("refused again"));
        breaker.opened().await;
        assert_eq!(breaker.reason(), Some(Error::unavailable("refused again")));
        assert_eq!(breaker.refusal(), None);
        breaker.open(&Error::new(Kind::Conflict, "another"));
        assert_eq!(breaker.refusal(), Some(Error::new(Kind::Conflict, "another")));
        breaker.close();
        assert_eq!(breaker.reason(), None);
    }
}
