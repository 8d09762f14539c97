//! Leases: keeping them, and knowing when one can no longer be trusted.
//!
//! A lease is valid from the send of its renewal on a clock that runs through suspend, and ends for us before it ends in
//! the store. An invalid lease hands nothing out. It is not lost: if nobody took it the next renewal resumes the epoch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::model::topic::GroupPartition;
use crate::platform::clock::Instant;
use crate::store::{Claim, HeadState, MemberId, Renewal, Store};

const RENEWALS_MAX: usize = 500;
const MARGIN: u32 = 10;
/// The pause after renewals that the store did not answer.
const RETRY_AFTER: Duration = Duration::from_millis(250);
pub const STORE_CHANGED: &str = "the store changed while the lease was not valid";

#[derive(Debug)]
pub struct Lease {
    claim: Claim,
    valid_until_ms: AtomicU64,
    losses: AtomicU64,
    head_state: Mutex<Option<HeadState>>,
    why_lost: OnceLock<String>,
    changed: Notify,
}

impl Lease {
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    pub fn is_valid(&self, now: Instant) -> bool {
        !self.is_lost() && ms(now) < self.valid_until_ms.load(Ordering::Relaxed)
    }

    /// Takes what the last renewal saw of the partition, unless it was taken before.
    pub fn take_head_state(&self) -> Option<HeadState> {
        self.head_state().take()
    }

    pub fn is_lost(&self) -> bool {
        self.why_lost.get().is_some()
    }

    /// Resolves after a renewal, and when it is lost. For its loop alone.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Resolves when it is lost. After that [`Lease::changed`] may have missed a renewal: there is a head_state to take.
    pub async fn lost(&self) {
        while !self.is_lost() {
            self.changed().await;
        }
    }

    pub fn why_lost(&self) -> String {
        self.why_lost.get().cloned().unwrap_or_default()
    }

    /// Its loop may be in the middle of a call, and must not find it valid again after that.
    fn lose(&self, why: String) {
        self.tell(&why);
        let _ = self.why_lost.set(why);
        self.changed.notify_one();
    }

    fn head_state(&self) -> MutexGuard<'_, Option<HeadState>> {
        self.head_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner loop logs a loss, and an outage is logged elsewhere, once.
    fn tell(&self, why: &str) {
        let Claim { group_partition: GroupPartition { topic, group, partition }, epoch } = &self.claim;
        tracing::debug!(%topic, %group, partition = partition.0, %epoch, error = why, "lease not renewed");
    }

    /// Whether the store may have lost something since, so that another member may have been told that it owns the partition.
    /// Then only a lease that is still valid is renewed.
    fn is_doubtful(&self, now: Instant, losses: u64) -> bool {
        self.losses.load(Ordering::Relaxed) != losses && !self.is_valid(now)
    }

    fn renewed(&self, sent: Instant, ttl: Duration, losses: u64) {
        self.losses.store(losses, Ordering::Relaxed);
        self.valid_until_ms.store(ms(sent.plus(ttl - ttl / MARGIN)), Ordering::Relaxed);
    }
}

pub struct LeaseKeeper {
    store: Store,
    member: MemberId,
    ttl: Duration,
    leases: Mutex<Vec<Arc<Lease>>>,
}

impl LeaseKeeper {
    pub fn new(store: Store, member: MemberId, ttl: Duration) -> LeaseKeeper {
        LeaseKeeper { store, member, ttl, leases: Mutex::default() }
    }

    pub fn member(&self) -> &MemberId {
        &self.member
    }

    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Keeps a lease that was acquired by a call sent at `sent`, until it is forgotten or lost.
    pub fn keep(&self, claim: Claim, sent: Instant) -> Arc<Lease> {
        let lease = Arc::new(Lease {
            claim,
            valid_until_ms: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            head_state: Mutex::default(),
            why_lost: OnceLock::new(),
            changed: Notify::new(),
        });
        lease.renewed(sent, self.ttl, self.losses());
        self.lock().push(lease.clone());
        lease
    }

    pub fn forget(&self, lease: &Arc<Lease>) {
        self.lock().retain(|kept| !Arc::ptr_eq(kept, lease));
    }

    pub async fn step(&self) -> bool {
        let leases: Vec<Arc<Lease>> = self.lock().clone();
        self.renew(&leases).await
    }

    /// Renews these leases, so that one that was taken away is known to be lost. False if the store did not answer.
    pub async fn renew(&self, leases: &[Arc<Lease>]) -> bool {
        let mut answered = true;
        for page in leases.chunks(RENEWALS_MAX) {
            let claims: Vec<Claim> = page.iter().map(|lease| lease.claim.clone()).collect();
            let sent = self.store.backend.clock().local().instant();
            let renewals = self.store.leases.renew(&self.member, &claims, self.ttl).await;
            let (now, losses) = (self.store.backend.clock().local().instant(), self.losses());
            for (lease, renewal) in page.iter().zip(renewals) {
                match renewal {
                    Ok(Renewal::Kept(_)) if lease.is_doubtful(now, losses) => {
                        lease.lose(STORE_CHANGED.to_owned());
                        self.forget(lease);
                    }
                    Ok(Renewal::Kept(head_state)) => {
                        lease.renewed(sent, self.ttl, losses);
                        *lease.head_state() = Some(head_state);
                        lease.changed.notify_one();
                    }
                    Ok(Renewal::Lost { by }) => {
                        lease.lose(match by {
                            Some(by) => format!("a renewal found that {by} has it"),
                            None => "a renewal found another epoch, and no owner".to_owned(),
                        });
                        self.forget(lease);
                    }
                    Err(error) => {
                        lease.tell(error.detail());
                        answered = false;
                    }
                }
            }
        }
        answered
    }

    /// Renews each third of the ttl until `stop` fires. That comes after the last lease was given up: a drain renews.
    ///
    /// While the store does not answer it is asked more often, so that after an outage owners resume before their leases
    /// are taken by someone else.
    pub async fn run(&self, stop: CancellationToken) {
        let clock = self.store.backend.clock().local();
        let mut pause = self.ttl / 3;
        while stop.run_until_cancelled(clock.sleep(pause)).await.is_some() {
            pause = if self.step().await { self.ttl / 3 } else { RETRY_AFTER.min(self.ttl / 3) };
        }
    }

    fn losses(&self) -> u64 {
        self.store.backend.losses().borrow().count
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Lease>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ms(instant: Instant) -> u64 {
    u64::try_from(instant.since(Instant::default()).as_millis()).unwrap_or(u64::MAX)
}
