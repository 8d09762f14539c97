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

mod groups;
mod keys;
mod commit;
mod collections;
mod dedup_windows;
mod group_partition;
mod topics;
mod dead_letters;
mod maintenance;
mod reserve;
mod owner;
mod changes;
mod push_over;
mod messages;
mod reads;

use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use async_trait::async_trait;
use sled::{Batch, IVec, Tree};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use self::commit::{Checked, Committer, Tail, broken, io_error};
use self::groups::{Members, SlotBook};
use self::keys::{KeyPrefix, Kind as KeyKind, name_of, place_of, read_some_key, read_time, score_of, sorted_entry};
use self::topics::{Topic, Topics, locked};
use super::{Description, HealthSnapshot, Loss, StoreClock, Wakes};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::DISK_RESERVE_BYTES;
use crate::model::spelling::counted;
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;
use crate::platform::disk::{self, Disk, Refusal, ReserveFile, check_room, free_bytes, sync_directory};
use crate::platform::log_throttle::RepeatThrottle;
use crate::platform::signing_key::SigningKey;
use crate::platform::tasks::blocking;
use crate::store;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use self::collections::rewritten as reservation_rewritten;

/// Bytes that sled may use for its cache. Its default of 1 GiB is no sidecar's.
const CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// sled's thread also finds the space that is free again, which nothing else does.
const CLEAN_EVERY_MS: Option<u64> = Some(500);

const VERSION: &[u8] = b"1";

/// Entries that one step of a deletion removes: it runs beside live traffic.
const PAGE: usize = 1_000;

/// The store of one process, in one directory. Its owners keep the directory open until they are dropped.
pub struct Embedded {
    common: Arc<Common>,
    opened: RwLock<Opened>,
}

/// The part of the store that outlives a failure of the disk: sled keeps its first error until it is opened again.
#[doc(hidden)]
pub struct Common {
    dir: PathBuf,
    clock: StoreClock,
    wakes: Wakes,
    losses: watch::Sender<Loss>,
    members: Members,
    slots: SlotBook,
    reserve: ReserveFile,
    /// Told when the disk failed, or has no room for the reserve.
    failed: Arc<Notify>,
}

enum Opened {
    Open(Arc<Inner>),
    /// The disk failed, or is too full to be opened; it is tried again.
    Failed(Error),
}

impl Deref for Embedded {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

#[doc(hidden)]
pub struct Inner {
    common: Arc<Common>,
    tree: Tree,
    reserve_bytes: u64,
    disk: Arc<Disk>,
    committer: Committer,
    /// Read for every verb and held to its end, so that after an update or a deletion has answered nothing happens
    /// under the older descriptor. Taken before the lock of a partition.
    topics: RwLock<Topics>,
}

impl Deref for Inner {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl Embedded {
    /// Opens the store in `dir`, making it if it is not there. Time comes from `clock` alone. A store on a disk that is so
    /// full that it cannot be opened is opened later, once [`Backend::run`](store::Backend::run) finds space. Errors:
    /// `Conflict` when another process uses the directory, `Unavailable` when the disk does not let it be opened, `Full`
    /// when it has no space for a new one, and `Corrupt` when it cannot be read; the detail says what to do.
    pub fn open(dir: &Path, clock: Clock) -> Result<Embedded> {
        let common = Arc::new(Common {
            dir: dir.to_owned(),
            clock: StoreClock::new(clock),
            wakes: Wakes::default(),
            losses: watch::Sender::default(),
            members: Members::default(),
            slots: SlotBook::default(),
            reserve: ReserveFile::new(dir, RESERVE_BYTES),
            failed: Arc::new(Notify::new()),
        });
        let opened = match Inner::open(&common) {
            Ok(inner) => Opened::Open(Arc::new(inner)),
            Err(error) if error.kind() == Kind::Full && exists(dir) => {
                tracing::error!(%error, "the store is opened once its disk has space");
                common.failed.notify_one();
                Opened::Failed(error)
            }
            Err(error) => return Err(error),
        };
        Ok(Embedded { common, opened: RwLock::new(opened) })
    }

    /// Errors: why the disk does not let it be used.
    fn opened(&self) -> Result<Arc<Inner>> {
        match &*self.opened.read().unwrap_or_else(PoisonError::into_inner) {
            Opened::Open(inner) => Ok(inner.clone()),
            Opened::Failed(error) => Err(error.clone()),
        }
    }

    fn set_opened(&self, opened: Opened) {
        let before = std::mem::replace(&mut *self.opened.write().unwrap_or_else(PoisonError::into_inner), opened);
        drop(before);
    }

    /// Waits until the disk fails, or takes the reserve; then makes up for it.
    async fn mend(&self) {
        self.failed.notified().await;
        self.heal().await;
        while !self.reserve.is_kept() && self.opened().is_ok_and(|inner| inner.committer.check().is_ok()) {
            Clock::System.sleep(HEAL_PAUSE.0).await;
            if self.reserve.has_room(DISK_RESERVE_BYTES) {
                self.reserve.keep(DISK_RESERVE_BYTES);
                return;
            }
        }
    }

    /// After the disk failed: closes sled once nobody uses it any more (owners do until their leases lapse), and opens it
    /// again as soon as the disk lets it. Calls without an answer may be lost then.
    async fn heal(&self) {
        let mut left = Weak::new();
        if let Ok(inner) = self.opened()
            && let Err(error) = inner.committer.check()
        {
            left = Arc::downgrade(&inner);
            self.set_opened(Opened::Failed(error));
        }
        let (throttle, mut pause) = (RepeatThrottle::default(), HEAL_PAUSE.0);
        while self.opened().is_err() {
            Clock::System.sleep(pause).await;
            if left.strong_count() > 0 || check_room(&self.dir, HEAL_BYTES).is_err() {
                continue;
            }
            // Each attempt rewrites the file.
            pause = (pause * 2).min(HEAL_PAUSE.1);
            disk::note_failure(&self.dir);
            let common = self.common.clone();
            match blocking(move || Inner::open(&common)).await {
                Ok(Ok(inner)) => {
                    tracing::info!(dir = %self.dir.display(), "the store is open again");
                    self.set_opened(Opened::Open(Arc::new(inner)));
                }
                Ok(Err(error)) => {
                    if throttle.is_due(Clock::System.instant()) {
                        tracing::error!(%error, "the store cannot be opened again yet");
                    }
                    self.set_opened(Opened::Failed(error));
                }
                Err(error) => tracing::error!(%error, "opening the store again failed"),
            }
        }
    }
}

/// The shortest and the longest pause between two attempts to open a store whose disk failed.
const HEAL_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Bytes that have to be free before it is tried: sled writes some when it is opened.
const HEAL_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes that are set aside, and given up when the disk is so full that the store could not be opened or acked in.
const RESERVE_BYTES: u64 = 16 * 1024 * 1024;

/// Free bytes below which they are.
const LOW_BYTES: u64 = 2 * 1024 * 1024;

fn exists(dir: &Path) -> bool {
    dir.join("db").exists()
}

impl Inner {
    fn open(common: &Arc<Common>) -> Result<Inner> {
        let open = || guarded(&common.dir, || Inner::open_once(common));
        let opened = match open() {
            Err(error) if error.kind() == Kind::Full && common.reserve.give() => open(),
            opened => opened,
        };
        if opened.is_ok() {
            common.reserve.keep(DISK_RESERVE_BYTES);
            if !common.reserve.is_kept() {
                common.failed.notify_one();
            }
        }
        opened
    }

    fn open_once(common: &Arc<Common>) -> Result<Inner> {
        let (disk, tail) = open(&common.dir)?;
        let tree = disk.tree().clone();
        let topics = Topics::load(&tree)?;
        count(&tree, &topics)?;
        let disk = Arc::new(disk);
        let committer = Committer::start(disk.clone(), tail, &common.dir, common.failed.clone())?;
        let topics = RwLock::new(topics);
        Ok(Inner { common: common.clone(), tree, reserve_bytes: DISK_RESERVE_BYTES, disk, committer, topics })
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
        self.keep_room();
        self.disk.apply(batch).map_err(|error| self.committer.fail(&self.dir, &error))
    }

    /// Gives the reserve up on a disk that another program fills: acks need room.
    fn keep_room(&self) {
        if check_room(&self.dir, LOW_BYTES).is_err() && self.reserve.give() {
            self.failed.notify_one();
        }
    }

    /// The text of a key that is set once, by whoever offers one first.
    async fn set_once(&self, key: Vec<u8>, offered: &str) -> Result<String> {
        let there = self.text_or_set(key, offered)?;
        let Some(there) = there else {
            self.commit().await?;
            return Ok(offered.to_owned());
        };
        String::from_utf8(there.to_vec()).map_err(|_| Error::corrupt("what the store keeps about itself is no text"))
    }

    /// Answers what was there before, and `None` if the offer was taken.
    fn text_or_set(&self, key: Vec<u8>, offered: &str) -> Result<Option<IVec>> {
        // One call at a time, so that all are answered the same.
        let _one = self.topics_mut();
        let there = self.tree.get(&key).map_err(|error| self.committer.fail(&self.dir, &error))?;
        if there.is_none() {
            let mut batch = Batch::default();
            batch.insert(key, offered);
            self.apply(batch)?;
        }
        Ok(there)
    }

    /// Waits until what was applied survives a power cut. Errors: `OutcomeUnknown` when the disk failed.
    async fn commit(&self) -> Result<()> {
        self.committer.commit().await.map_err(|error| Error::outcome_unknown(error.detail().to_owned()))
    }

    async fn remove_all(&self, prefix: &[u8]) -> Result<()> {
        while let Some(page) = page_to_remove(&self.tree, prefix)? {
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

    async fn run(&self, _: &dyn store::Owners, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.mend() => {}
            }
        }
    }

    async fn ping(&self) -> Result<()> {
        self.opened()?.committer.check()
    }

    async fn ready(&self) -> Result<Option<String>> {
        self.opened()?.check_storable().map(|()| None)
    }

    async fn close(&self) -> Result<()> {
        self.opened()?.committer.commit().await
    }

    async fn store_id(&self, offered: &str) -> Result<String> {
        self.opened()?.set_once(keys::identity(), offered).await
    }

    async fn receipt_key(&self, offered: &SigningKey) -> Result<SigningKey> {
        store::stored_receipt_key(&self.opened()?.set_once(keys::receipt_key(), &offered.text()).await?)
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

/// Opens a store with `open`, and uses nothing of it after a panic. Errors: `Corrupt` for that.
fn guarded<T>(dir: &Path, open: impl FnOnce() -> Result<T>) -> Result<T> {
    disk::guarded(open).unwrap_or_else(|()| Err(unreadable(dir, "it is damaged")))
}

/// Opens sled in a directory and makes sure that the directory itself survives a power cut. Errors: `Conflict` when
/// another process has it, `Unavailable` when the disk does not let it, `Corrupt` when it is unreadable.
fn open(dir: &Path) -> Result<(Disk, Tail)> {
    let place = dir.display();
    let unavailable = |error: std::io::Error| io_error(&format!("the store in {place}"), &error);
    let disk = Disk::open(dir, CACHE_BYTES, CLEAN_EVERY_MS).map_err(|refusal| match refusal {
        Refusal::Locked => {
            let detail = format!("another dwell uses the store in {place}: stop it, or use another --data-dir");
            Error::new(Kind::Conflict, detail)
        }
        Refusal::Io(error) => unavailable(error),
        Refusal::Damaged(why) => unreadable(dir, &why),
    })?;
    let db = disk.tree();
    let tail = match Tail::check(db, dir).map_err(unavailable)? {
        Checked::Whole(tail) => tail,
        Checked::Lost(commits) => {
            let why =
                format!("it lacks the last {}; deleting {place}/commits accepts that", counted(commits, "commit"));
            return Err(unreadable(dir, &why));
        }
    };
    match db.get(keys::version()).map_err(broken)? {
        Some(version) if version == VERSION => {}
        Some(version) => {
            let found = String::from_utf8_lossy(&version).into_owned();
            return Err(unreadable(dir, &format!("its layout is {found:?}, this dwell reads \"1\"")));
        }
        None if db.iter().next().is_none() => {
            db.insert(keys::version(), VERSION).map_err(broken)?;
        }
        None => return Err(unreadable(dir, "it is not a store of dwell, or its beginning is lost")),
    }
    db.flush().map_err(broken)?;
    sync_directory(dir).map_err(unavailable)?;
    Ok((disk, tail))
}

fn unreadable(dir: &Path, why: &str) -> Error {
    let place = dir.display();
    Error::corrupt(format!(
        "the store in {place} cannot be read ({why}): restore it from a copy, or move the directory away to begin with \
         an empty one"
    ))
}

/// Counts what every partition holds, and finishes interrupted deletions. Run before anything else uses the tree.
fn count(tree: &Tree, topics: &Topics) -> Result<()> {
    let live: HashMap<u32, &Topic> = topics.all().map(|topic| (topic.number(), topic)).collect();
    let owner =
        |place: KeyPrefix| live.get(&place.topic).filter(|topic| topic.has_group(place.group) || place.is_shared());
    let mut from = keys::topic_data(keys::FIRST_TOPIC);
    while let Some(place) = next_place(tree, &from)? {
        let Some(topic) = owner(place) else {
            while let Some(page) = page_to_remove(tree, &place.prefix())? {
                tree.apply_batch(page).map_err(broken)?;
            }
            continue;
        };
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        // Parts of large values have nothing to count, and may be most of the disk.
        let ranges = [(place.prefix(), place.of(KeyKind::Part)), (place.behind(KeyKind::Part), place.end())];
        if place.is_shared() {
            state.seen = count_kind(tree, place, KeyKind::SeenById)?;
            state.cancelled = count_kind(tree, place, KeyKind::CancelledById)?;
        } else {
            let partition = state.groups.entry(place.group).or_default();
            for entry in tree.scan_prefix(place.of(KeyKind::Paused)) {
                let (key, until) = entry.map_err(broken)?;
                partition.found_paused(read_some_key(name_of(&key))?, read_time(&until)?);
            }
            let mut counts = partition.counts();
            for entry in ranges.into_iter().flat_map(|(from, to)| tree.range(from..to).keys()) {
                let key = entry.map_err(broken)?;
                match place_of(&key) {
                    Some((_, kind)) if kind == KeyKind::ByScore as u8 => counts.scheduled(score_of(&key)?.at),
                    Some((_, kind)) if kind == KeyKind::ByKey as u8 => counts.found_sorted(sorted_entry(&key)?.0),
                    Some((_, kind)) if kind == KeyKind::Hash as u8 => counts.hash += 1,
                    Some((_, kind)) if kind == KeyKind::DeadHash as u8 => counts.dead += 1,
                    _ => {}
                }
            }
            partition.put(counts);
        }
        from = place.end();
    }
    Ok(())
}

fn next_place(tree: &Tree, from: &[u8]) -> Result<Option<KeyPrefix>> {
    let first = tree.range(from..).keys().next().transpose().map_err(broken)?;
    Ok(first.and_then(|key| place_of(&key)).map(|(place, _)| place))
}

fn count_kind(tree: &Tree, place: KeyPrefix, kind: KeyKind) -> Result<u64> {
    let mut count = 0;
    for key in tree.scan_prefix(place.of(kind)).keys() {
        key.map_err(broken)?;
        count += 1;
    }
    Ok(count)
}

fn page_to_remove(tree: &Tree, prefix: &[u8]) -> Result<Option<Batch>> {
    let mut page = None;
    for key in tree.scan_prefix(prefix).keys().take(PAGE) {
        page.get_or_insert_with(Batch::default).remove(key.map_err(broken)?);
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, PoisonError};

    use super::{Embedded, Opened};
    use crate::model::error::Kind;
    use crate::platform::clock::Clock;
    use crate::store::Backend as _;

    #[tokio::test]
    async fn store_without_disk_space_is_not_ready() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let mut store = Embedded::open(&dir.path().join("store"), Clock::System)?;
        assert_eq!(store.ready().await, Ok(None));
        if let Opened::Open(inner) = store.opened.get_mut().unwrap_or_else(PoisonError::into_inner) {
            Arc::get_mut(inner).ok_or("it is shared")?.reserve_bytes = u64::MAX;
        }
        assert_eq!(store.ready().await.map_err(|error| error.kind()), Err(Kind::Full));
        assert_eq!(store.ping().await, Ok(()), "what is there can be consumed");
        Ok(())
    }
}
