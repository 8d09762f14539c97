//! A reservation of the owner of a partition: which messages it takes, and which it sorts.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map};

use sled::Batch;

use super::Inner;
use super::collections::{Entry, reservation_value};
use super::group_partition::{Counts, GroupPartitionState, Stored};
use super::keys::Score;
use crate::codec::{body_version, decode_first};
use crate::model::error::Result;
use crate::model::limits::{CALL_IDS_MAX, DUE_LOOKED_AT_MAX};
use crate::model::message::{Key, Message, MessageId};
use crate::model::time::Timestamp;
use crate::store::{KeyCount, PausedKey, Reservation, ReserveLimit, Reserved, ReservedMessage};

/// A reservation that takes messages one by one.
struct Taking<'a> {
    stored: &'a Stored<'a>,
    batch: Batch,
    counts: Counts,
    bytes_max: usize,
    bytes: usize,
    dropped: usize,
    messages: Vec<ReservedMessage>,
    entries: Vec<Entry>,
}

impl Taking<'_> {
    /// Looks at an id that has this score: takes it if it is wanted, sorts it if not, and drops it if it has no body. Answers false if its
    /// bytes are too many.
    fn look(
        &mut self,
        id: MessageId,
        score: Score,
        position: Option<Score>,
        wants: impl FnOnce(&Message) -> bool,
    ) -> Result<bool> {
        let stored = self.stored;
        let Some(body) = stored.hash().get(&id)? else {
            stored.unschedule(&mut self.batch, &mut self.counts, &id, score)?;
            self.dropped += 1;
            return Ok(true);
        };
        let bytes = body.len();
        if self.bytes > 0 && self.bytes + bytes > self.bytes_max {
            return Ok(false);
        }
        self.bytes += bytes;
        stored.unschedule(&mut self.batch, &mut self.counts, &id, score)?;
        let version = body_version(&body);
        let message = decode_first(id.clone(), body);
        if let Some(message) = message.as_ref().ok().filter(|message| !wants(message)) {
            stored.sort(&mut self.batch, &mut self.counts, &id, score.at, message.envelope.key.as_ref());
            return Ok(true);
        }
        self.entries.push(Entry { id: id.clone(), position });
        self.messages.push(ReservedMessage {
            ready_at: stored.next_attempt(&id)?.unwrap_or(score.at),
            position: score.at,
            attempts: stored.attempts(&id)?.unwrap_or(0),
            bytes,
            version,
            message,
            id,
        });
        Ok(true)
    }

    /// The first of these, as many as the bytes are for.
    fn fitting(&self, mut places: Vec<(Score, MessageId)>) -> Result<Vec<(Score, MessageId)>> {
        let mut bytes = self.bytes;
        for at in 0..places.len() {
            bytes += self.stored.hash().get(&places[at].1)?.map_or(0, |body| body.len());
            if bytes > self.bytes_max {
                places.truncate(at);
                break;
            }
        }
        Ok(places)
    }

    /// Takes so many sorted messages of each key. If some of a key are due before the first message that is not sorted, only these, since
    /// messages of the key may be among those that are not sorted. Of a paused key none. Answers how many of each.
    fn take_sorted(
        &mut self,
        keys: &[KeyCount],
        first_due: Option<Timestamp>,
        paused: &mut Paused<'_>,
    ) -> Result<HashMap<Option<Key>, u64>> {
        let mut taken = HashMap::new();
        for KeyCount { key, messages } in keys {
            let most = usize::try_from(*messages).unwrap_or(CALL_IDS_MAX).min(CALL_IDS_MAX);
            let hash_map::Entry::Vacant(taken) = taken.entry(key.clone()) else { continue };
            if paused.until(key.as_ref()).is_some() {
                taken.insert(0);
                continue;
            }
            let (mut count, mut is_before) = (0, None);
            for entry in self.stored.zset().of_key(key.as_ref()).take(most) {
                let (at, id) = entry?;
                let comes_before = first_due.is_some_and(|first_due| at < first_due);
                if *is_before.get_or_insert(comes_before) && !comes_before {
                    break;
                }
                if !self.look(id, Score::sorted(at), None, |_| true)? {
                    break;
                }
                count += 1;
            }
            taken.insert(count);
        }
        Ok(taken)
    }
}

/// The paused keys of a fair group; of another one nobody asks for them.
struct Paused<'a> {
    partition: &'a GroupPartitionState,
    now: Timestamp,
    is_fair: bool,
    /// Those that were asked for.
    met: BTreeMap<Key, Timestamp>,
}

impl Paused<'_> {
    fn until(&mut self, key: Option<&Key>) -> Option<Timestamp> {
        let key = key.filter(|_| self.is_fair)?;
        let until = self.partition.paused_until(key, self.now)?;
        self.met.insert(key.clone(), until);
        Some(until)
    }
}

/// Which due messages of a fair group are taken.
struct Sorting<'a> {
    partition: &'a GroupPartitionState,
    paused: Paused<'a>,
    room: usize,
    share: usize,
    /// The sorted messages of each key that this call has taken.
    unsorted: HashMap<Option<Key>, u64>,
    /// How many due messages of each key were taken; the share once the next one has to wait behind a sorted one.
    taken: HashMap<Option<Key>, usize>,
    /// Keys of which messages were sorted.
    sorted: BTreeSet<Option<Key>>,
}

impl Sorting<'_> {
    fn takes(&mut self, key: &Option<Key>) -> bool {
        let taken = self.taken.entry(key.clone()).or_insert_with(|| {
            let unsorted = self.unsorted.get(key).copied().unwrap_or_default();
            let is_last = self.partition.sorted_of(key.as_ref()) > unsorted;
            if self.paused.until(key.as_ref()).is_some() || is_last { self.share } else { 0 }
        });
        if *taken < self.share && self.room > 0 {
            *taken += 1;
            self.room -= 1;
            return true;
        }
        *taken = self.share;
        self.sorted.insert(key.clone());
        false
    }
}

/// The wishes of a reservation.
pub(super) struct Wanted<'a> {
    pub(super) limit: ReserveLimit,
    pub(super) keys: &'a [KeyCount],
    pub(super) share: Option<usize>,
    pub(super) is_ordered: bool,
}

/// Takes so many sorted messages of some keys and then what is due, into one reservation of this name. In a fair group it sorts what
/// it looks at and does not take.
pub(super) fn reserve(
    inner: &Inner,
    stored: &Stored<'_>,
    partition: &mut GroupPartitionState,
    wanted: &Wanted<'_>,
    (reservation, name): (Reservation, &[u8]),
) -> Result<Reserved> {
    let Wanted { limit, keys, share, is_ordered } = *wanted;
    let now = inner.now();
    let mut taking = Taking {
        stored,
        batch: Batch::default(),
        counts: partition.counts(),
        bytes_max: limit.bytes,
        bytes: 0,
        dropped: 0,
        messages: Vec::new(),
        entries: Vec::new(),
    };
    let first_due = stored.zset().head()?.filter(|head| *head <= now);
    let mut paused = Paused { partition, now, is_fair: share.is_some(), met: BTreeMap::new() };
    let unsorted = taking.take_sorted(keys, first_due, &mut paused)?;
    let (taken, sorted) = (HashMap::new(), BTreeSet::new());
    let sorting = |share| Sorting { partition, paused, room: limit.messages, share, unsorted, taken, sorted };
    let mut sorting = share.map(sorting);
    let mut wants = |message: &Message| sorting.as_mut().is_none_or(|sorting| sorting.takes(&message.envelope.key));
    let looks = match share {
        Some(_) => DUE_LOOKED_AT_MAX,
        None => limit.messages.clamp(1, CALL_IDS_MAX),
    };
    let is_due = |entry: &Result<(Score, MessageId)>| entry.as_ref().map_or(true, |(score, _)| score.at <= now);
    let oldest = stored.zset().unsorted().take(looks).take_while(is_due).collect::<Result<Vec<_>>>()?;
    let is_backlog = share.is_some() && oldest.len() == looks;
    // The backlog does not take all the bytes.
    taking.bytes_max = if is_backlog { limit.bytes.midpoint(taking.bytes) } else { limit.bytes };
    let mut last = None;
    for (score, id) in oldest {
        if !taking.look(id.clone(), score, is_ordered.then_some(score), &mut wants)? {
            break;
        }
        last = Some((score, id));
    }
    taking.bytes_max = limit.bytes;
    if is_backlog {
        let is_left =
            |entry: &Result<(Score, MessageId)>| entry.as_ref().map_or(true, |entry| Some(entry) > last.as_ref());
        let newest = stored.zset().newest(now).take(looks).take_while(is_left).collect::<Result<Vec<_>>>()?;
        for (score, id) in taking.fitting(newest)?.into_iter().rev() {
            taking.look(id, score, None, &mut wants)?;
        }
    }
    let (newly, met) = sorting.map(|sorting| (sorting.sorted, sorting.paused.met)).unwrap_or_default();
    let Taking { mut batch, counts, dropped, messages, entries, .. } = taking;
    let unsettled = counts.hash.saturating_sub(counts.zset);
    if !messages.is_empty() {
        stored.reservations().add(&mut batch, name, &reservation_value(&entries)?);
    }
    if !messages.is_empty() || dropped > 0 || !newly.is_empty() {
        inner.apply(batch)?;
        partition.put(counts);
    }
    let sorted_left = keys.iter().map(|asked| partition.sorted_of(asked.key.as_ref())).collect();
    let others = newly.into_iter().filter(|key| keys.iter().all(|asked| asked.key != *key));
    let sorted = others.map(|key| KeyCount { messages: partition.sorted_of(key.as_ref()), key }).collect();
    let head = stored.zset().head()?;
    let paused = met.into_iter().map(|(key, until)| PausedKey { key, until }).collect();
    Ok(Reserved { reservation, messages, head, sorted_left, sorted, paused, dropped, unsettled })
}
