//! The embedded store: the contract on sled, for one process that owns all partitions.
//!
//! Each partition has its own zset (ids by due time) and hash (id to body), reservations and charged attempts, and a zset and
//! a hash of dead messages. All of it lies in one tree, so that whatever changes together is one atomic batch, made
//! under the lock of its partition. Leases live in memory: opening the store is a takeover, and what older epochs held
//! reserved waits for recovery.
//!
//! A verb that answers a producer or a consumer answers after the group commit. Calls that only this process relies on
//! (acquire, recover, reserve, start) do not wait for it: sled's log is a sequence, so a later commit makes them durable
//! too, and without one they are lost together with the process that relied on them.
//!
//! sled's calls run where they are made: they touch memory, seldom the disk. Only the commit waits, elsewhere.

mod changes;
mod collections;
mod commit;
mod cron_jobs;
mod dead_letters;
mod dedup;
mod groups;
mod keys;
mod maintenance;
mod messages;
mod open;
mod owner;
mod group_partition;
mod purge;
mod reads;
mod topics;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use sled::{Batch, Tree};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::commit::Committer;
use self::groups::{Members, SlotBook};
use self::topics::Topics;
use super::{Description, HealthSnapshot, Loss, StoreClock, Wakes};
use crate::model::error::{Error, Result};
use crate::model::limits::DISK_RESERVE_BYTES;
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;
use crate::platform::disk::{Disk, check_room, free_bytes};
use crate::store;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use self::collections::rewritten as reservation_rewritten;

/// The store of one process, in one directory. Its owners keep the directory open until they are dropped.
pub struct Embedded {
    inner: Arc<Inner>,
}

impl Deref for Embedded {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

#[doc(hidden)]
pub struct Inner {
    tree: Tree,
    dir: PathBuf,
    reserve_bytes: u64,
    clock: StoreClock,
    wakes: Wakes,
    losses: watch::Sender<Loss>,
    members: Members,
    slots: SlotBook,
    disk: Arc<Disk>,
    committer: Committer,
    /// Read for every verb and held to its end, so that after an update or a deletion has answered nothing happens
    /// under the older descriptor. Taken before the lock of a partition.
    topics: RwLock<Topics>,
}

impl Embedded {
    /// Opens the store in `dir`, making it if it is not there. Time comes from `clock` alone. Errors: `Conflict` when
    /// another process uses the directory, `Unavailable` when the disk does not let it be opened, and `Corrupt` when it
    /// cannot be read; the detail says what to do.
    pub fn open(dir: &Path, clock: Clock) -> Result<Embedded> {
        open::guarded(dir, || {
            let (disk, tail) = open::open(dir)?;
            let tree = disk.tree().clone();
            let topics = Topics::load(&tree)?;
            open::count(&tree, &topics)?;
            let disk = Arc::new(disk);
            let committer = Committer::start(disk.clone(), tail, dir)?;
            let inner = Inner {
                tree,
                dir: dir.to_owned(),
                reserve_bytes: DISK_RESERVE_BYTES,
                clock: StoreClock::new(clock),
                wakes: Wakes::default(),
                losses: watch::Sender::default(),
                members: Members::default(),
                slots: SlotBook::default(),
                disk,
                committer,
                topics: RwLock::new(topics),
            };
            Ok(Embedded { inner: Arc::new(inner) })
        })
    }
}

impl Inner {
    /// The time at which something is due. Not the store clock's, which is rounded up for those who fix due times.
    fn now(&self) -> Timestamp {
        self.clock.local().now()
    }

    fn topics(&self) -> RwLockReadGuard<'_, Topics> {
        // A panic of another thread leaves nothing half done: memory changes after the tree did, all at once.
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn topics_mut(&self) -> RwLockWriteGuard<'_, Topics> {
        self.topics.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a batch, all or nothing, without waiting for the disk. Errors: `Unavailable` when sled failed: an
    /// unfinished batch is not there after a restart.
    fn apply(&self, batch: Batch) -> Result<()> {
        self.committer.check()?;
        self.disk.apply(batch).map_err(|error| self.committer.fail(&self.dir, &error))
    }

    fn store_id(&self, offered: &str) -> Result<String> {
        // One call at a time, so that all are answered the same.
        let _one = self.topics_mut();
        let there = self.tree.get(keys::identity()).map_err(|error| self.committer.fail(&self.dir, &error))?;
        if let Some(there) = there {
            return String::from_utf8(there.to_vec()).map_err(|_| Error::corrupt("the store's identity is no text"));
        }
        let mut batch = Batch::default();
        batch.insert(keys::identity(), offered);
        self.apply(batch)?;
        Ok(offered.to_owned())
    }

    /// Waits until what was applied survives a power cut. Errors: `OutcomeUnknown` when the disk failed.
    async fn commit(&self) -> Result<()> {
        self.committer.commit().await.map_err(|error| Error::outcome_unknown(error.detail().to_owned()))
    }

    async fn remove_all(&self, prefix: &[u8]) -> Result<()> {
        while let Some(page) = open::page_to_remove(&self.tree, prefix)? {
            self.apply(page)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[async_trait]
impl store::Backend for Embedded {
    fn describe(&self) -> Description {
        let durability = "a 201 is fsynced (sled flush and fdatasync, in group commit): it survives the death of the \
                          process and a power cut, but not the loss of this disk";
        let location = self.dir.display().to_string();
        Description { kind: "embedded", location, durability: durability.to_owned() }
    }

    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    fn losses(&self) -> watch::Receiver<Loss> {
        self.losses.subscribe()
    }

    async fn run(&self, stop: CancellationToken) {
        stop.cancelled().await;
    }

    async fn ping(&self) -> Result<()> {
        self.committer.check()
    }

    async fn ready(&self) -> Result<Option<String>> {
        self.check_storable().map(|()| None)
    }

    async fn close(&self) -> Result<()> {
        self.committer.commit().await
    }

    async fn store_id(&self, offered: &str) -> Result<String> {
        let identity = self.inner.store_id(offered)?;
        self.commit().await?;
        Ok(identity)
    }

    fn health_snapshot(&self) -> HealthSnapshot {
        HealthSnapshot { free_bytes: free_bytes(&self.dir), ..HealthSnapshot::default() }
    }
}

impl Inner {
    /// Conditions for storing anything; consuming needs no space. Errors: `Unavailable` when the disk failed,
    /// `Full` below the bytes that are kept free.
    pub(super) fn check_storable(&self) -> Result<()> {
        self.committer.check()?;
        check_room(&self.dir, self.reserve_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Embedded;
    use crate::model::error::Kind;
    use crate::platform::clock::Clock;
    use crate::store::Backend as _;

    #[tokio::test]
    async fn a_store_that_refuses_pushes_for_want_of_room_is_not_ready() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let mut store = Embedded::open(&dir.path().join("store"), Clock::System)?;
        assert_eq!(store.ready().await, Ok(None));
        Arc::get_mut(&mut store.inner).ok_or("it is shared")?.reserve_bytes = u64::MAX;
        assert_eq!(store.ready().await.map_err(|error| error.kind()), Err(Kind::Full));
        assert_eq!(store.ping().await, Ok(()), "what is there can be consumed");
        Ok(())
    }
}
