//! Fair groups: whose turn it is among the keys that have due messages.
//!
//! Each message in memory has a *turn*, the start tag of start-time fair queueing (Goyal, Vin and Cheng, 1996): that of the message of
//! its key before it and a step, which is shorter for a key of a larger weight, and not below the turn that is served now. The message of
//! the lowest turn is next. So each key has its share however many messages another one has, and one that had none for a while saves
//! nothing up.
//!
//! The memory holds a few messages of each key, by its weight, and of a key at its limit none that could not be delivered soon. The others are
//! *sorted*: they wait in the store, beside the other due messages of their key, and come when the key has room again. The store sorts
//! in the call that reserves, and looks at the oldest and at the newest due messages. So a key with a million due messages
//! does not stand before those of another one.

mod limit;
mod line;
mod shares;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::num::NonZeroU32;

pub use self::limit::KeyLimit;
use self::line::{Line, SortedCount, weight_of};
use self::shares::Shares;
use super::pace::Pace;
use super::{CHARGED_AHEAD_MAX, DeliveryEnd, Held, Now, Slot, Table};
use crate::model::limits::{
    CALL_IDS_MAX, KEY_AHEAD_MIN, PACE_AHEAD, PREFETCH_MESSAGES_MAX, SORTED_KEYS_MAX, SORTED_MESSAGES_MAX,
};
use crate::model::message::{Envelope, Key};
use crate::model::time::Timestamp;
use crate::model::topic::{KeyRate, KeySettings};
use crate::platform::clock::Instant;
use crate::store::{KeyCount, PausedKey, ReserveLimit, ReservedMessage, Sorted};

/// The messages without a key are those of one key.
type MessageKey = Option<Key>;

#[derive(Debug, Default)]
pub(super) struct Fair {
    /// The turn of the message that was handed out last.
    now: u64,
    /// For each key that had a message lately, the turn of its next one.
    next: HashMap<MessageKey, u64>,
    /// How many turns are remembered before those that are over are forgotten.
    remembered: usize,
    sorted: HashMap<MessageKey, SortedCount>,
    /// The keys of which the store has sorted messages, in the order in which it is asked for them, but for those that are shut.
    line: Line,
    /// Keys with as much in flight as they may have: they stand in line again once one of their messages is settled.
    shut: HashSet<MessageKey>,
    /// Keys that wait for their rate or the end of their pause, each with the time from which it may stand in line again with others, as
    /// [`Now::elapsed`].
    paced: BTreeSet<(Instant, Key)>,
    /// The paused keys that the store has named, or that a decision paused, each with when its pause ends, as [`Now::elapsed`].
    paused: HashMap<Key, Instant>,
    /// Pauses that no draft has, and those of the draft which is out: the store does not know them yet.
    pausing: [Vec<PausedKey>; 2],
    settings: KeySettings,
    /// If keys have a rate.
    pace: Option<Pace>,
    /// When the last delivery of the partition may have been made.
    last_delivery: Timestamp,
    /// Deliveries in flight.
    out: HashMap<Key, usize>,
    /// The messages that the reservation which is out asks for.
    asked: Vec<KeyCount>,
    /// Keys of the messages that the draft which is out sorts.
    leaving: Vec<MessageKey>,
    /// No key in line had room while the memory held so many: nothing is asked for until it holds fewer, or another key stands in line.
    sated_at: Option<usize>,
}

/// A reservation in a group that is or was fair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByKey {
    /// That of the messages is for those that are due.
    pub limit: ReserveLimit,
    /// Sorted messages.
    pub keys: Vec<KeyCount>,
    /// How many of the due messages of a key to take, if it has no sorted ones. In a fair group.
    pub share: Option<usize>,
}

const REMEMBERED_MIN: usize = 1_024;

/// From one turn of a key of weight 1 to its next.
const STEP: u64 = 1 << 20;

impl Fair {
    /// The turn of one more message of a key.
    fn turn(&mut self, key: &MessageKey) -> u64 {
        if self.next.len() >= self.remembered.max(REMEMBERED_MIN) {
            let now = self.now;
            self.next.retain(|_, next| *next > now);
            self.remembered = 2 * self.next.len();
        }
        let turn = self.next.get(key).map_or(self.now, |next| self.now.max(*next));
        self.next.insert(key.clone(), turn + STEP / u64::from(self.settings.weight_of(key.as_ref()).get()));
        turn
    }

    pub(super) fn draft(&mut self, sorted: &Sorted) {
        self.leaving.push(sorted.key.clone());
    }

    fn stand_in_line(&mut self, key: MessageKey) {
        self.sated_at = None;
        self.line.push_back(key, &self.settings);
    }

    fn found(&mut self, KeyCount { key, messages }: KeyCount) {
        self.stand_in_line(key.clone());
        self.sorted.insert(key, SortedCount { stored: messages, ..SortedCount::default() });
    }

    pub(super) fn handed_out(&mut self, key: &MessageKey, now: Now) {
        self.last_delivery = self.last_delivery.max(now.store);
        self.count_out(key);
        if let (Some(key), Some(pace)) = (key, &mut self.pace)
            && let Some(rate) = self.settings.limits_of(key).rate
        {
            pace.delivered(key, rate, now.elapsed);
        }
    }

    fn count_out(&mut self, key: &MessageKey) {
        if let Some(key) = key {
            *self.out.entry(key.clone()).or_default() += 1;
        }
    }

    /// A delivery has ended.
    pub(super) fn ended(&mut self, key: &MessageKey) {
        if let Some(of_key) = key
            && let Some(out) = self.out.get_mut(of_key)
        {
            *out -= 1;
            if *out == 0 {
                self.out.remove(of_key);
            }
        }
        if self.shut.remove(key) {
            self.stand_in_line(key.clone());
        }
    }

    /// How many more deliveries of a key there may be until then; messages without a key have no limit.
    fn allowance(&self, key: &MessageKey, now: Now, by: Instant) -> usize {
        let Some(key) = key else { return usize::MAX };
        if self.paused_until(key, now).is_some() {
            return 0;
        }
        let paced = self.pace_of(key).map_or(usize::MAX, |(pace, rate)| pace.allowed(key, rate, (now.elapsed, by)));
        self.room_in_flight(key).min(paced)
    }

    /// Nothing if the key has no rate.
    fn pace_of(&self, key: &Key) -> Option<(&Pace, KeyRate)> {
        let pace = self.pace.as_ref()?;
        self.settings.limits_of(key).rate.map(|rate| (pace, rate))
    }

    /// How many deliveries there may soon be of a key that had none lately and has no limits but those of the group.
    fn first_allowance(&self) -> usize {
        let limits = self.settings.limits;
        let in_flight = limits.in_flight.map_or(u32::MAX, NonZeroU32::get);
        let paced = limits.rate.map_or(u32::MAX, |rate| rate.most_in(PACE_AHEAD));
        usize::try_from(in_flight.min(paced)).unwrap_or(usize::MAX)
    }

    fn room_in_flight(&self, key: &Key) -> usize {
        let Some(limit) = self.settings.limits_of(key).in_flight else { return usize::MAX };
        let out = self.out.get(key).copied().unwrap_or_default();
        usize::try_from(limit.get()).unwrap_or(usize::MAX).saturating_sub(out)
    }

    /// How many sorted messages there are of each key, with those that are to be sorted.
    pub(super) fn sorted_counts(&self) -> impl Iterator<Item = (Option<&Key>, u64)> {
        self.sorted.iter().map(|(key, count)| (key.as_ref(), count.stored + count.coming))
    }

    /// When a message of a key that waits for its rate or the end of its pause may be delivered; nothing if one may be now.
    pub(super) fn opens_at(&self, key: Option<&Key>, now: Now) -> Option<Instant> {
        let key = key?;
        let paced_until = self.pace_of(key).map(|(pace, rate)| pace.opens_at(key, rate)).filter(|at| *at > now.elapsed);
        paced_until.max(self.paused_until(key, now))
    }

    fn paused_until(&self, key: &Key, now: Now) -> Option<Instant> {
        self.paused.get(key).copied().filter(|until| *until > now.elapsed)
    }

    /// The store has met paused keys.
    pub(super) fn found_paused(&mut self, keys: Vec<PausedKey>, now: Now) {
        if !keys.is_empty() {
            self.paused.retain(|_, until| *until > now.elapsed);
        }
        for PausedKey { key, until } in keys {
            let until = now.elapsed.plus(until.since(now.store));
            let known = self.paused.entry(key).or_insert(until);
            *known = until.max(*known);
        }
    }

    /// A decision pauses a key.
    fn pause(&mut self, key: &Key, until: Timestamp, now: Now) {
        let paused = PausedKey { key: key.clone(), until };
        self.found_paused(vec![paused.clone()], now);
        self.pausing[0].push(paused);
    }

    /// The pauses for the next draft.
    pub(super) fn draft_pauses(&mut self) -> Vec<PausedKey> {
        self.pausing[1] = std::mem::take(&mut self.pausing[0]);
        self.pausing[1].clone()
    }

    /// A key of which so many messages are held stands in line again when it may have one more.
    fn wait(&mut self, key: MessageKey, held: usize, now: Now) {
        if let Some(until) = key.as_ref().and_then(|key| self.paused_until(key, now)) {
            self.paced.extend(key.map(|key| (until.minus(PACE_AHEAD / 2), key)));
            return;
        }
        let paced = key.as_ref().filter(|key| self.room_in_flight(key) > held).and_then(|key| {
            let (pace, rate) = self.pace_of(key)?;
            Some((pace.opens_after(key, rate, held, now.elapsed).minus(PACE_AHEAD), key.clone()))
        });
        match paced {
            Some(paced) => drop(self.paced.insert(paced)),
            None => drop(self.shut.insert(key)),
        }
    }

    /// When keys that wait for a time stand in line again: a bit late, so that one call is for many keys.
    fn resumes_at(&self) -> Option<Instant> {
        self.paced.first().map(|(at, _)| at.plus(PACE_AHEAD / 2))
    }

    /// Keys that waited for a time stand in line again.
    pub(super) fn resume(&mut self, now: Now) {
        if self.resumes_at().is_none_or(|at| at > now.elapsed) {
            return;
        }
        while self.paced.first().is_some_and(|(at, _)| *at <= now.elapsed) {
            let Some((_, key)) = self.paced.pop_first() else { break };
            self.stand_in_line(Some(key));
        }
    }

    /// Other settings count from now on. True if the weights have changed.
    fn set(&mut self, settings: &KeySettings) -> bool {
        if self.settings == *settings {
            return false;
        }
        let before = std::mem::replace(&mut self.settings, settings.clone());
        match &mut self.pace {
            Some(pace) if settings.has_rates() => {
                let is_same = |key: &Key| settings.limits_of(key).rate == before.limits_of(key).rate;
                pace.change(is_same, settings.limits.rate != before.limits.rate);
            }
            pace => *pace = settings.has_rates().then(Pace::new),
        }
        let is_weighed_anew = settings.weights != before.weights;
        if is_weighed_anew {
            self.line.weigh(settings);
            self.next.clear();
        }
        is_weighed_anew
    }

    /// The group is fair no more, and has sorted messages.
    fn end(&mut self) {
        self.set(&KeySettings::default());
        self.paused.clear();
    }

    /// Messages went back that had no turn: no key has to wait for these.
    pub(super) fn forget_turns(&mut self) {
        self.next.clear();
        // The store is asked again, but for the pauses that it does not know yet.
        let pausing: HashSet<&Key> = self.pausing.iter().flatten().map(|paused| &paused.key).collect();
        self.paused.retain(|key, _| pausing.contains(key));
        self.open_all();
    }

    /// The limits have changed, or messages have left the memory without a delivery.
    pub(super) fn open_all(&mut self) {
        self.sated_at = None;
        let paced = std::mem::take(&mut self.paced).into_iter().map(|(_, key)| Some(key));
        std::mem::take(&mut self.shut).into_iter().chain(paced).for_each(|key| self.stand_in_line(key));
    }

    /// A message of this key is to be sorted.
    fn coming(&mut self, key: MessageKey) {
        self.sorted.entry(key).or_default().coming += 1;
    }

    /// The store has answered the draft.
    pub(super) fn settled(&mut self) {
        self.pausing[1].clear();
        for key in std::mem::take(&mut self.leaving) {
            let Some(count) = self.sorted.get_mut(&key) else { continue };
            count.coming = count.coming.saturating_sub(1);
            count.stored += 1;
            if count.stored == 1 {
                self.stand_in_line(key);
            }
        }
    }

    /// The store has answered how many are left of the keys that it was asked for, and how many there are of others. Gives what was asked
    /// for.
    fn answered(&mut self, left: &[u64], others: Vec<KeyCount>) -> HashMap<MessageKey, u64> {
        let asked = std::mem::take(&mut self.asked);
        for (KeyCount { key, .. }, left) in asked.iter().zip(left) {
            let Some(count) = self.sorted.get_mut(key) else { continue };
            count.stored = *left;
            if count.stored > 0 && count.owed > 0 {
                self.sated_at = None;
                self.line.push_front(key.clone(), &self.settings);
            } else if count.stored > 0 {
                self.stand_in_line(key.clone());
            } else if count.coming == 0 {
                self.sorted.remove(key);
            }
        }
        for KeyCount { key, messages } in others {
            let before = std::mem::replace(&mut self.sorted.entry(key.clone()).or_default().stored, messages);
            if before == 0 && messages > 0 {
                self.stand_in_line(key);
            }
        }
        asked.into_iter().map(|KeyCount { key, messages }| (key, messages)).collect()
    }
}

impl Table {
    /// After a change of the policy, or of what is sorted: what is sorted is reserved by key also in a group that was fair.
    pub(super) fn follow_fairness(&mut self) {
        match &self.policy.fair {
            Some(settings) if self.order.is_none() => {
                let is_new = self.fair.is_none();
                let fair = self.fair.get_or_insert_default();
                let is_weighed_anew = fair.set(settings);
                if is_new {
                    self.out.values().for_each(|out| fair.count_out(&out.key));
                }
                if is_new || is_weighed_anew {
                    let held = self.ready.iter_mut().chain(&mut self.uncharged).chain(&mut self.charging);
                    let mut held: Vec<&mut Held> = held.collect();
                    held.sort_by_key(|held| held.turn);
                    held.into_iter().for_each(|held| held.turn = fair.turn(&held.message.envelope.key));
                }
            }
            _ if self.fair.as_ref().is_some_and(|fair| fair.sorted.is_empty()) => self.fair = None,
            _ => self.fair.iter_mut().for_each(|fair| fair.end()),
        }
    }

    /// When the last delivery of the partition may have been made; 0 where that matters for no limit.
    pub fn last_delivery(&self) -> Timestamp {
        self.fair.as_ref().map_or(Timestamp::ZERO, |fair| fair.last_delivery)
    }

    /// Notes when the last delivery of earlier epochs may have been made, on the store's clock, which is not behind `now`.
    pub fn found_last_delivery(&mut self, at: Timestamp, now: Now) {
        let Some(fair) = &mut self.fair else { return };
        fair.last_delivery = at;
        fair.pace = fair.settings.has_rates().then(|| Pace::after(at, now));
    }

    /// Until when nothing changes for the keys that wait for a time, as [`Now::instant`]: then one may have a delivery, or its next
    /// message in memory.
    pub fn opens_at(&self, now: Now) -> Instant {
        let waits = |fair: &&Fair| fair.pace.is_some() || !fair.paced.is_empty() || !fair.paused.is_empty();
        let Some(fair) = self.fair.as_deref().filter(waits) else { return Instant::FAR };
        let held = self.ready.iter().chain(&self.uncharged).map(|held| &held.message.envelope.key);
        let opens_at = held.filter_map(|key| fair.opens_at(key.as_ref(), now)).chain(fair.resumes_at()).min();
        opens_at.map_or(Instant::FAR, |at| now.reaches(at))
    }

    /// Notes the messages that an earlier epoch sorted.
    pub fn found_sorted(&mut self, keys: Vec<KeyCount>) {
        if !keys.is_empty() {
            let fair = self.fair.get_or_insert_default();
            keys.into_iter().for_each(|key| fair.found(key));
        }
    }

    /// Whether the store has sorted messages that the memory has room for.
    pub fn wants_sorted(&self) -> bool {
        let held = self.prefetched();
        let has_room = |fair: &Fair| !fair.line.is_empty() && fair.sated_at.is_none_or(|at| held < at);
        held <= self.appetite / 2 && self.fair.as_deref().is_some_and(has_room)
    }

    /// The reservation to make now within a limit; `None` in a group without sorted messages that is not fair.
    pub fn ask_by_key(&mut self, limit: ReserveLimit, now: Now) -> Option<ByKey> {
        let fair = self.fair.as_ref()?;
        let shares = self.shares();
        let share = self.policy.fair.as_ref().map(|_| shares.most.min(fair.first_allowance()));
        let keys = if self.wants_sorted() { self.ask_for_sorted(shares, now)? } else { Vec::new() };
        let asked = keys.iter().fold(self.prefetched(), |all, key| all + usize::try_from(key.messages).unwrap_or(0));
        let room = share.map_or(limit.messages, |_| PREFETCH_MESSAGES_MAX.saturating_sub(asked));
        Some(ByKey { limit: ReserveLimit { messages: limit.messages.min(room), ..limit }, keys, share })
    }

    /// The sorted messages to reserve now, by key.
    fn ask_for_sorted(&mut self, Shares { mut held, all, most }: Shares, now: Now) -> Option<Vec<KeyCount>> {
        let mut room = self.appetite.saturating_sub(all).min(SORTED_MESSAGES_MAX);
        let fair = self.fair.as_mut()?;
        for _ in 0..fair.line.len() {
            if room == 0 || fair.asked.len() == SORTED_KEYS_MAX {
                break;
            }
            let Some(key) = fair.line.pop_front(&fair.settings) else { break };
            let held = held.remove(&key).unwrap_or_default();
            let allowance = fair.allowance(&key, now, now.elapsed.plus(PACE_AHEAD));
            let share = most * weight_of(&key, &fair.settings);
            let Some(count) = fair.sorted.get_mut(&key) else { continue };
            let owed = std::mem::take(&mut count.owed);
            if held >= allowance {
                fair.wait(key, held, now);
                continue;
            }
            let stored = usize::try_from(count.stored).unwrap_or(usize::MAX);
            let wanted = if owed > 0 { owed } else { share.saturating_sub(held) };
            let wanted = wanted.min(allowance - held).min(stored);
            let messages = wanted.min(room);
            if messages == 0 {
                fair.line.push_back(key, &fair.settings);
                continue;
            }
            count.owed = wanted - messages;
            room -= messages;
            fair.asked.push(KeyCount { key, messages: messages as u64 });
        }
        fair.sated_at = fair.asked.is_empty().then_some(all);
        Some(fair.asked.clone())
    }

    fn shares(&self) -> Shares {
        let mut held = HashMap::<MessageKey, usize>::new();
        for message in self.offered().map(|held| &held.message.envelope.key) {
            match held.get_mut(message) {
                Some(count) => *count += 1,
                None => drop(held.insert(message.clone(), 1)),
            }
        }
        let weight = self.fair.as_ref().map_or(0, |fair| {
            let held: usize = held.keys().map(|key| weight_of(key, &fair.settings)).sum();
            held.max(fair.line.weight())
        });
        let most = (self.appetite / weight.max(1)).max(KEY_AHEAD_MIN);
        Shares { held, all: self.prefetched(), most }
    }

    /// Takes in a reservation: holds what the memory has room for, and sorts the rest. A message that is due waits behind the
    /// sorted ones of its key.
    pub(super) fn hold_fairly(
        &mut self,
        messages: Vec<(Slot, ReservedMessage)>,
        (sorted_left, sorted): (&[u64], Vec<KeyCount>),
        now: Now,
    ) {
        let mut asked = self.fair.as_mut().map(|fair| fair.answered(sorted_left, sorted)).unwrap_or_default();
        let mut shares = self.shares();
        for (slot, reserved) in messages {
            let key = reserved.message.as_ref().ok().map(|message| message.envelope.key.clone());
            match key.filter(|_| self.policy.fair.is_some()) {
                Some(key) if was_sorted(&mut asked, &key) => shares.add(&key),
                Some(key)
                    if self.is_sorting(&key) || !shares.take(&key, self.weight(&key), self.allowance(&key, now)) =>
                {
                    self.sort(slot, reserved, key);
                    continue;
                }
                _ => {}
            }
            self.hold(slot, reserved, now);
        }
        self.follow_fairness();
    }

    /// How many messages of a key the memory may hold, at most: those that may be delivered soon.
    fn allowance(&self, key: &MessageKey, now: Now) -> usize {
        let by = now.elapsed.plus(PACE_AHEAD);
        self.fair.as_ref().map_or(usize::MAX, |fair| fair.allowance(key, now, by))
    }

    fn weight(&self, key: &MessageKey) -> usize {
        self.fair.as_ref().map_or(1, |fair| weight_of(key, &fair.settings))
    }

    /// Whether the limits of its key let a message be delivered now.
    pub(super) fn is_open(&self, envelope: &Envelope, now: Now) -> bool {
        self.fair.as_ref().is_none_or(|fair| fair.allowance(&envelope.key, now, now.elapsed) > 0)
    }

    /// The pause or limit that holds up the messages of a key.
    pub fn key_limit(&self, key: Option<&Key>, now: Now) -> Option<KeyLimit> {
        let (fair, key) = (self.fair.as_ref()?, key?);
        if fair.paused_until(key, now).is_some() {
            return Some(KeyLimit::Pause);
        }
        let waits = fair.opens_at(Some(key), now).is_some();
        (fair.room_in_flight(key) == 0).then_some(KeyLimit::InFlight).or(waits.then_some(KeyLimit::Rate))
    }

    /// Makes the messages of a key wait until then, in a fair group: what the memory has of them goes back.
    pub(super) fn pause_key(&mut self, key: &Key, until: Timestamp, now: Now) {
        let Some(fair) = self.fair.as_mut().filter(|_| self.policy.fair.is_some()) else { return };
        fair.pause(key, until, now);
        let is_its = |held: &Held| held.message.envelope.key.as_ref() == Some(key);
        let mut held: Vec<Held> = extract(&mut self.ready, is_its);
        held.extend(extract(&mut self.uncharged, is_its));
        held.into_iter().for_each(|held| self.return_unordered(held, false));
    }

    /// When a key that waits for a time may have its next delivery.
    pub fn key_opens_at(&self, key: Option<&Key>, now: Now) -> Option<Timestamp> {
        let opens_at = self.fair.as_ref()?.opens_at(key, now)?;
        Some(now.store.plus(opens_at.since(now.elapsed)))
    }

    /// Whether messages of a key are to be sorted that the store does not know of.
    fn is_sorting(&self, key: &MessageKey) -> bool {
        self.fair.as_ref().and_then(|fair| fair.sorted.get(key)).is_some_and(|count| count.coming > 0)
    }

    fn sort(&mut self, slot: Slot, reserved: ReservedMessage, key: MessageKey) {
        let ReservedMessage { id, ready_at, .. } = reserved;
        if let Some(fair) = &mut self.fair {
            fair.coming(key.clone());
        }
        self.decide_end(id.clone(), slot, None, DeliveryEnd::Sorted(Sorted { id, key, ready_at }));
    }

    /// The turn of one more message of a key; the same for all without fairness.
    pub(super) fn turn_of(&mut self, key: &MessageKey) -> u64 {
        self.fair.as_mut().map_or(0, |fair| fair.turn(key))
    }

    /// The position of the next of the ready messages that `may` be handed out: of the key whose turn it is, the first by priority.
    pub(super) fn choose_fairly(&mut self, may: impl Fn(&Envelope) -> bool, now: Now) -> Option<usize> {
        let is_open = |envelope: &Envelope| may(envelope) && self.is_open(envelope, now);
        let ready = self.ready.iter().enumerate().filter(|(_, held)| is_open(&held.message.envelope));
        let (first, turn) = ready.map(|(at, held)| (at, held.turn)).min_by_key(|(at, turn)| (*turn, *at))?;
        let key = &self.ready.get(first)?.message.envelope.key;
        let priority = |held: &Held| {
            let envelope = &held.message.envelope;
            (envelope.key == *key && may(envelope)).then_some(envelope.priority)
        };
        let next = if self.chooser.choosy { self.chooser.choose(self.ready.iter().map(priority))? } else { first };
        if next != first {
            let later = self.ready.get(next)?.turn;
            self.ready.get_mut(first)?.turn = later;
        }
        if let Some(fair) = &mut self.fair {
            fair.now = fair.now.max(turn);
        }
        Some(next)
    }

    /// Takes the messages whose attempt is to be charged now: those whose turn is not later than that of the next ready one, or
    /// `wanted` if none is ready. One of a key at its limit waits.
    pub(super) fn next_uncharged(&mut self, wanted: usize, now: Now) -> Vec<Held> {
        let is_open = |held: &&Held| self.is_open(&held.message.envelope, now);
        let next = self.ready.iter().filter(is_open).map(|held| held.turn).min();
        let most = if next.is_some() { CHARGED_AHEAD_MAX } else { wanted.min(CALL_IDS_MAX) };
        let may = |held: &Held| is_open(&held) && next.is_none_or(|next| held.turn <= next);
        let may: Vec<bool> = self.uncharged.iter().map(may).collect();
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        for (held, may) in self.uncharged.drain(..).zip(may) {
            match may && taken.len() < most {
                true => taken.push(held),
                false => left.push_back(held),
            }
        }
        self.uncharged = left;
        taken
    }
}

/// Takes those out of memory that are meant.
fn extract(all: &mut VecDeque<Held>, is_meant: impl Fn(&Held) -> bool) -> Vec<Held> {
    let (meant, others): (VecDeque<Held>, VecDeque<Held>) = all.drain(..).partition(is_meant);
    *all = others;
    Vec::from(meant)
}

/// Whether a message is one of those that were asked for.
fn was_sorted(asked: &mut HashMap<MessageKey, u64>, key: &MessageKey) -> bool {
    asked.get_mut(key).filter(|left| **left > 0).map(|left| *left -= 1).is_some()
}

#[cfg(test)]
mod tests;
