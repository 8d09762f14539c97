//! Whose a request is, how much that is worth, and what the requests of one identity hold now.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::Semaphore;

use crate::model::limits::{WAITING_SHARE_TENTHS, WHOLE_READS_OF_TOKEN_MAX};

tokio::task_local! {
    static CURRENT: Identity;
}

/// How much a claimed identity is worth. The lowest yields first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Nothing was shown.
    Anonymous,
    /// A key id was named; its signature is checked once the body is there.
    Claimed,
    /// The token was shown, or the signature checked; or no token is asked for.
    Known,
}

/// The counts of what the requests of one identity hold.
#[derive(Debug)]
struct Account {
    name: Arc<str>,
    trust: Trust,
    /// Bytes of answers that its clients have not read.
    answers: AtomicUsize,
    /// Consumers that wait.
    places: AtomicUsize,
    reads: Semaphore,
}

/// Whose a request is. Clones share what they hold.
///
/// Without tokens every client is the same one, [`Identity::LOCAL`], which has no share: it may have everything. So has the broker
/// itself, whose work is no request.
#[derive(Clone)]
pub struct Identity(Option<Arc<Account>>);

impl Identity {
    pub const LOCAL: Identity = Identity(None);

    pub fn new(name: Arc<str>, trust: Trust) -> Identity {
        let (answers, places) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Identity(Some(Arc::new(Account {
            name,
            trust,
            answers,
            places,
            reads: Semaphore::new(WHOLE_READS_OF_TOKEN_MAX),
        })))
    }

    /// The identity of the request that runs now.
    pub fn current() -> Identity {
        CURRENT.try_with(Identity::clone).unwrap_or(Identity::LOCAL)
    }

    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }

    /// `None`: it has no share.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.0.as_ref().map(|account| &account.name)
    }

    pub fn trust(&self) -> Trust {
        self.0.as_ref().map_or(Trust::Known, |account| account.trust)
    }

    /// The most of `max` bytes of memory that it may hold.
    pub(super) fn memory(&self, max: usize) -> usize {
        match self.0.as_ref().map(|account| account.trust) {
            None => max,
            Some(Trust::Known) => max / 2,
            Some(Trust::Claimed) => max / 4,
            Some(Trust::Anonymous) => max / 8,
        }
    }

    /// The most of `max` places or memberships that it may hold; at least one.
    pub fn places(&self, max: usize) -> usize {
        match &self.0 {
            None => max,
            Some(_) => (max / 10 * WAITING_SHARE_TENTHS + max % 10 * WAITING_SHARE_TENTHS / 10).max(1),
        }
    }

    pub(super) fn answers(&self) -> Option<&AtomicUsize> {
        self.0.as_ref().map(|account| &account.answers)
    }

    pub(super) fn waiting(&self) -> Option<&AtomicUsize> {
        self.0.as_ref().map(|account| &account.places)
    }

    pub(super) fn reads(&self) -> Option<&Semaphore> {
        self.0.as_ref().map(|account| &account.reads)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.name() == other.name() && self.trust() == other.trust()
    }
}

impl Eq for Identity {}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("local"),
            Some(account) => write!(f, "{} ({:?})", account.name, account.trust),
        }
    }
}
