//! Random operations against a real store and a model of it: every answer has to be the same.
//!
//! A failure prints its seed; `DWELL_SEED=<seed>` tells that story again.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dwell::codec::{DeadLetterReason, DeadLetterRecord};
use dwell::model::error::{Error, Result};
use dwell::model::message::{Conflict, Dedup, DedupKey, GroupName, Key, Message, MessageId};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::store::{
    Buried, Charge, Expected, KeyCount, LateFate, LateSettlement, MessageState, Owner, PartitionStats, Rescheduled,
    Reservation, Reserved, Retried, Returned, Settlement, Sorted, Window,
};
use fastrand::Rng;

use self::model::{Model, Place};
use crate::support::{LEASE, TestTopic, World, fates_of, member, new_call, up_to};

const GROUPS: [&str; 2] = ["default", "audit"];
const SEEDS: u64 = 25;
const STEPS: usize = 200;

#[tokio::test]
async fn embedded() -> Result<()> {
    for seed in seeds()? {
        let told = Seed(seed);
        play(World::embedded().await?, seed, true).await.map_err(|error| told.blame(error))?;
    }
    Ok(())
}

#[tokio::test]
async fn redis() -> Result<()> {
    for seed in seeds()? {
        let told = Seed(seed);
        play(World::redis().await?, seed, false).await.map_err(|error| told.blame(error))?;
    }
    Ok(())
}

#[tokio::test]
async fn simulated() -> Result<()> {
    for seed in seeds()? {
        let told = Seed(seed);
        play(World::simulated().await?, seed, false).await.map_err(|error| told.blame(error))?;
    }
    Ok(())
}

fn seeds() -> Result<Vec<u64>> {
    match std::env::var("DWELL_SEED") {
        Ok(seed) => Ok(vec![seed.parse().map_err(|error| Error::invalid("DWELL_SEED", error))?]),
        Err(_) => Ok((0..SEEDS).map(|_| fastrand::u64(..)).collect()),
    }
}

/// Names the seed when its story fails.
struct Seed(u64);

impl Seed {
    fn blame(&self, error: Error) -> Error {
        Error::new(error.kind(), format!("DWELL_SEED={}: {}", self.0, error.detail()))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("DWELL_SEED={} tells this story again", self.0);
        }
    }
}

/// The keys of these messages, and one that none has.
fn all_keys() -> Result<Vec<Option<Key>>> {
    Ok(vec![None, Some(Key::new("k")?), Some(Key::new("k k")?), Some(Key::new("nobody")?)])
}

fn count_of(counts: &[KeyCount], key: Option<&Key>) -> u64 {
    counts.iter().find(|count| count.key.as_ref() == key).map_or(0, |count| count.messages)
}

async fn play(world: World, seed: u64, can_reopen: bool) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let dedup_window = Duration::from_millis(random.u64(0..2) * 40);
    let mut game = Game::new(world, random, dedup_window).await?;
    for _ in 0..STEPS {
        let group = game.random.usize(0..2);
        match game.random.u8(0..100) {
            0..16 => game.push().await?,
            16..24 => game.push_over().await?,
            24..30 => game.cancel().await?,
            30..36 => game.reschedule().await?,
            36..38 => game.list(group).await?,
            38..50 => game.reserve(group).await?,
            50..52 => game.settle_late(group).await?,
            52..62 => game.settle(group).await?,
            62..67 => game.start(group).await?,
            67..73 => game.take_over(group).await?,
            73..75 if can_reopen => game = game.reopen().await?,
            75..85 => game.one_millisecond_before_due(group).await?,
            85..91 => game.pass(),
            91 => game.reserve_all_sorted(group).await?,
            92..95 => game.take_dead(group, true).await?,
            95..97 => game.make_again().await?,
            _ => game.take_dead(group, false).await?,
        }
        game.compare().await?;
    }
    Ok(())
}

/// The owner of one group, and what it holds unsettled: the reservation of each id and the time it was ready.
struct Player {
    owner: Box<dyn Owner>,
    held: BTreeMap<MessageId, (Reservation, Timestamp, u32)>,
}

struct Game {
    world: World,
    topic: TestTopic,
    players: Vec<Player>,
    model: Model,
    random: Rng,
    dedup_window: Duration,
}

impl Game {
    async fn new(world: World, mut random: Rng, dedup_window: Duration) -> Result<Game> {
        let ordered = random.bool();
        let topic = match ordered {
            true => world.ordered("orders", &GROUPS).await?,
            false => world.topic_with_groups("orders", &GROUPS).await?,
        };
        let mut model = Model::default();
        model.ordered = ordered;
        let mut game = Game { world, topic, players: vec![], model, random, dedup_window };
        game.acquire_all().await?;
        Ok(game)
    }

    async fn acquire_all(&mut self) -> Result<()> {
        for group in 0..GROUPS.len() {
            self.acquire(group).await?;
        }
        Ok(())
    }

    /// Takes a group anew, and schedules again what was held. The last of the players if there is none yet.
    async fn acquire(&mut self, group: usize) -> Result<()> {
        let partition = self.topic.partition_of(GROUPS[group])?;
        let mut owner = self.topic.acquire(&partition, &member("player"), LEASE).await?;
        let recovered = self.topic.recover(&mut owner).await?;
        let model = &mut self.model.groups[group];
        assert_eq!(recovered, model.recover(self.world.now(), self.model.ordered));
        let nothing = owner.recover().await?;
        assert_eq!((nothing.messages, nothing.orphans), (0, 0));
        assert!(nothing.has_sorted || model.sorted_keys().is_empty());
        let player = Player { owner, held: BTreeMap::new() };
        match self.players.get_mut(group) {
            Some(old) => *old = player,
            None => self.players.push(player),
        }
        Ok(())
    }

    /// Deletes the second group and makes it again, empty or with a copy of the first one, which is begun again while
    /// the first one changes.
    async fn make_again(&mut self) -> Result<()> {
        let audit = GroupName::new(GROUPS[1])?;
        let mut wanted = self.topic.descriptor.clone();
        wanted.groups.retain(|group| *group != audit);
        wanted = self.world.store.topics.update(&wanted).await?;
        wanted.groups.push(audit.clone());
        let copy = self.random.bool();
        wanted.subscription_mut(&audit).copy_of = copy.then(GroupName::standard);
        self.topic.descriptor = self.world.store.topics.update(&wanted).await?;
        self.model.groups[1] = Default::default();
        if copy {
            self.copy().await?;
            self.push().await?;
            self.settle(0).await?;
            self.copy().await?;
            let mut wanted = self.topic.descriptor.clone();
            wanted.subscription_mut(&audit).copy_of = None;
            self.topic.descriptor = self.world.store.topics.update(&wanted).await?;
        }
        self.acquire(1).await
    }

    /// Copies all that is there, from the beginning.
    async fn copy(&mut self) -> Result<()> {
        let (descriptor, audit) = (&self.topic.descriptor, GroupName::new(GROUPS[1])?);
        let (mut from, mut copied) = (None, 0);
        loop {
            let page = self.world.store.maintenance.copy(descriptor, Partition(0), &audit, from).await?;
            copied += page.messages;
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(copied, self.model.copy());
        Ok(())
    }

    async fn take_over(&mut self, group: usize) -> Result<()> {
        self.acquire(group).await
    }

    async fn reopen(self) -> Result<Game> {
        let Game { world, topic, players, model, random, dedup_window } = self;
        let descriptor = topic.descriptor.clone();
        drop((topic, players));
        let world = world.reopened().await?;
        let topic = world.existing(descriptor);
        let mut game = Game { world, topic, players: vec![], model, random, dedup_window };
        game.acquire_all().await?;
        Ok(game)
    }

    fn id(&mut self) -> Result<MessageId> {
        MessageId::new(format!("m{}", self.random.u8(0..40)))
    }

    /// A message that has always the same key, or never one.
    fn message(&mut self, id: &MessageId) -> Result<Message> {
        let mut message = self.topic.message(id.as_str(), self.random.u64(0..60))?;
        message.envelope.key = match id.as_str().len() + usize::from(id.as_str().ends_with(['3', '7'])) {
            2 => None,
            3 => Some(Key::new("k")?),
            _ => Some(Key::new("k k")?),
        };
        Ok(message)
    }

    async fn push(&mut self) -> Result<()> {
        let mut messages = Vec::new();
        for _ in 0..self.random.usize(1..6) {
            let id = self.id()?;
            let mut message = self.message(&id)?;
            if self.random.u8(0..4) == 0 {
                let window = Duration::from_millis(self.random.u64(1_000..1_100));
                let key = DedupKey::new(format!("k{}", self.random.u8(0..4)))?;
                message.envelope.dedup = Some(Dedup { key, window });
            }
            messages.push(message);
        }
        assert_eq!(self.topic.push_all(&messages).await?, self.model.push(&messages, self.world.now()));
        Ok(())
    }

    /// What a group has behind a message in flight comes with its id as a dead letter.
    async fn push_after(&mut self) -> Result<()> {
        let id = self.id()?;
        let message = self.message(&id)?;
        let pushed = self.topic.push_over(Conflict::After, std::slice::from_ref(&message)).await?.remove(0);
        let mut dead_id = id.clone();
        for group in GROUPS {
            let peeked = self.topic.store.reads.peek(&self.topic.partition_of(group)?, &id).await?;
            let successor = peeked.and_then(|peeked| peeked.message.successor);
            dead_id = successor.filter(|of| of.message == message).map_or(dead_id, |successor| successor.dead_id);
        }
        assert_eq!(pushed, Ok(self.model.push_after(&message, &dead_id, self.world.now())), "{id}");
        Ok(())
    }

    async fn push_over(&mut self) -> Result<()> {
        if !self.model.ordered && self.random.u8(0..4) == 0 {
            return self.push_after().await;
        }
        let conflict = [Conflict::Reject, Conflict::Replace, Conflict::Debounce][self.random.usize(0..3)];
        let id = self.id()?;
        let mut message = self.message(&id)?;
        message.envelope.payload = vec![b'x'; self.random.usize(0..9)].into();
        if conflict == Conflict::Debounce && self.random.bool() {
            message.debounce_max = Some(Duration::from_millis(self.random.u64(1..90)));
        }
        let pushed = self.topic.push_over(conflict, std::slice::from_ref(&message)).await?;
        let expected = self.model.push_over(conflict, &message, self.world.now());
        assert_eq!(pushed[0], expected, "{conflict:?} {id}");
        Ok(())
    }

    async fn cancel(&mut self) -> Result<()> {
        let id = self.id()?;
        assert_eq!(self.topic.cancel(id.as_str()).await?, self.model.cancel(&id), "{id}");
        Ok(())
    }

    async fn reschedule(&mut self) -> Result<()> {
        let (id, due_at) = (self.id()?, self.world.now().plus(Duration::from_millis(self.random.u64(0..60))));
        let mut expected = Expected::default();
        if let Some(known) = self.model.groups[0].messages.get(&id).filter(|_| self.random.bool()) {
            let off = Duration::from_millis(self.random.u64(0..2));
            let attempts = known.attempts.unwrap_or(0) + self.random.u32(0..2);
            expected = Expected { due_at: Some(known.message.due_at.plus(off)), attempts: Some(attempts) };
        }
        let fates = match self.topic.reschedule_if(id.as_str(), due_at, expected).await? {
            Rescheduled::Done(fates) => Some(fates_of(&fates)),
            Rescheduled::Changed(_) => None,
            Rescheduled::Expires => return Err(Error::bug("nothing expires here")),
        };
        assert_eq!(fates, self.model.reschedule(&id, due_at, expected), "{id}");
        Ok(())
    }

    /// Everything that waits in a window, in order, and everything that is held, in pages of a few.
    async fn list(&mut self, group: usize) -> Result<()> {
        let (partition, store, now) = (self.topic.partition_of(GROUPS[group])?, &self.topic.store, self.world.now());
        let from = Timestamp::from_ms(now.as_ms() - self.random.u64(0..60));
        let window = Window { from, to: now.plus(Duration::from_millis(self.random.u64(0..60))) };
        let limit = self.random.usize(1..5);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.reads.waiting(&partition, window, after.as_ref(), limit).await?;
            assert!(page.messages.len() <= limit);
            found.extend(page.messages.into_iter().map(|listed| (listed.next_at.unwrap_or_default(), listed.id)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let model = &self.model.groups[group];
        let expected: Vec<_> =
            model.waiting().into_iter().filter(|(at, ..)| window.has(*at)).map(|(at, _, id)| (at, id)).collect();
        assert_eq!(found, expected);
        let (mut found, mut after) = (BTreeSet::new(), None);
        loop {
            let page = store.reads.in_flight(&partition, after.as_ref(), limit).await?;
            found.extend(page.messages.into_iter().map(|listed| listed.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let held = model.messages.iter().filter(|(_, known)| known.state == Place::Held).map(|(id, _)| id.clone());
        assert_eq!(found, held.collect());
        Ok(())
    }

    async fn reserve(&mut self, group: usize) -> Result<()> {
        let (most, keys) = (self.random.usize(1..5), self.keys()?);
        if !self.model.ordered && self.random.u8(0..4) == 0 {
            return self.reserve_fairly(group, most - 1).await;
        }
        self.reserve_by_key(group, most, &keys).await.map(drop)
    }

    /// Takes of each key a share of what is due, and sorts the others.
    async fn reserve_fairly(&mut self, group: usize, most: usize) -> Result<()> {
        let (share, player) = (self.random.usize(1..3), &mut self.players[group]);
        let entries = player.owner.sorted_keys(None).await?.keys;
        let reserved = player.owner.reserve_by_key(up_to(most), &[], Some(share)).await?;
        let name = (player.owner.epoch().number(), reserved.reservation.0);
        let model = &mut self.model.groups[group];
        let expected = model.reserve_fairly(name, most, share, &entries, self.world.now());
        for KeyCount { key, messages } in &reserved.sorted {
            let expected = count_of(&model.sorted_keys(), key.as_ref());
            assert!(expected > 0 && *messages >= expected, "{key:?}: {messages} sorted of {expected}");
        }
        self.taken(group, reserved, expected).await
    }

    /// Reserves each key until no message is left sorted; then none is counted either, although counts are upper bounds.
    async fn reserve_all_sorted(&mut self, group: usize) -> Result<()> {
        if self.model.ordered {
            return Ok(());
        }
        let asked = all_keys()?.into_iter().map(|key| KeyCount { key, messages: 100 }).collect::<Vec<_>>();
        let mut left = vec![1];
        for _ in 0..STEPS {
            if left.iter().all(|left| *left == 0) {
                break;
            }
            left = self.reserve_by_key(group, 1, &asked).await?;
        }
        assert_eq!((left, self.model.groups[group].sorted_keys()), (vec![0; asked.len()], vec![]));
        let there = self.players[group].owner.sorted_keys(None).await?;
        assert_eq!((there.keys, there.more), (vec![], false));
        Ok(())
    }

    /// Reserves, and answers how many sorted messages of each key may be left.
    async fn reserve_by_key(&mut self, group: usize, most: usize, keys: &[KeyCount]) -> Result<Vec<u64>> {
        let player = &mut self.players[group];
        let reserved = match keys.is_empty() {
            true => player.owner.reserve(up_to(most)).await?,
            false => player.owner.reserve_by_key(up_to(most), keys, None).await?,
        };
        let name = (player.owner.epoch().number(), reserved.reservation.0);
        let expected = self.model.groups[group].reserve(name, most, keys, self.world.now());
        let sorted = self.model.groups[group].sorted_keys();
        assert_eq!((reserved.sorted_left.len(), &reserved.sorted), (keys.len(), &vec![]));
        for (asked, left) in keys.iter().zip(&reserved.sorted_left) {
            let expected = count_of(&sorted, asked.key.as_ref());
            assert!(*left >= expected, "{asked:?}: {left} left of {expected}");
        }
        let left = reserved.sorted_left.clone();
        self.taken(group, reserved, expected).await?;
        Ok(left)
    }

    /// Compares what a player has reserved with what the model says.
    async fn taken(
        &mut self,
        group: usize,
        reserved: Reserved,
        expected: Vec<(MessageId, Timestamp, u32)>,
    ) -> Result<()> {
        let (player, model) = (&mut self.players[group], &self.model.groups[group]);
        let taken: Vec<_> = reserved.messages.iter().map(|m| (m.id.clone(), m.ready_at, m.attempts)).collect();
        assert_eq!(taken, expected);
        for message in reserved.messages {
            assert_eq!(message.message.as_ref().ok(), model.messages.get(&message.id).map(|known| &known.message));
            player.held.insert(message.id, (reserved.reservation, message.ready_at, message.attempts));
        }
        let stats = model.stats(self.world.now());
        assert_eq!((reserved.head, reserved.unsettled, reserved.dropped), (model.head(), stats.in_flight, 0));
        let sorted = model.sorted_keys();
        if !self.model.ordered {
            let there = player.owner.sorted_keys(None).await?;
            assert!(!there.more);
            for KeyCount { key, messages } in &sorted {
                assert!(count_of(&there.keys, key.as_ref()) >= *messages, "{sorted:?} in {there:?}");
            }
        }
        Ok(())
    }

    /// Some keys, with how many sorted messages of each are asked for; none with an ordering.
    fn keys(&mut self) -> Result<Vec<KeyCount>> {
        if self.model.ordered || self.random.u8(0..3) == 0 {
            return Ok(vec![]);
        }
        let mut keys = all_keys()?;
        self.random.shuffle(&mut keys);
        keys.truncate(self.random.usize(1..5));
        Ok(keys.into_iter().map(|key| KeyCount { key, messages: self.random.u64(0..4) }).collect())
    }

    /// Decides about some of what a player holds, by chance.
    async fn settle(&mut self, group: usize) -> Result<()> {
        let (now, player) = (self.world.now(), &mut self.players[group]);
        let mut settlement = Settlement { dedup_window: self.dedup_window, ..Settlement::default() };
        let mut touched = BTreeMap::new();
        for (id, (reservation, ready_at, attempts)) in player.held.clone() {
            let decision = self.random.u8(0..8);
            match decision {
                0..3 => settlement.acked.push(id.clone()),
                3 => {
                    let next_at = now.plus(Duration::from_millis(self.random.u64(0..50)));
                    // It failed, or was released: then it has an attempt less than it was charged, if it was.
                    let attempts = (attempts + self.random.u32(0..3)).saturating_sub(1);
                    let retried = Retried { id: id.clone(), next_at, attempts, failure: None };
                    if self.model.ordered {
                        // It stays reserved, and may be given back by a later decision.
                        player.held.insert(id.clone(), (reservation, ready_at, attempts));
                        settlement.kept.push(retried);
                        continue;
                    }
                    settlement.retried.push(retried);
                }
                4 | 6 if !self.model.ordered && self.random.u8(0..4) > 0 => {
                    let known = self.model.groups[group].messages.get(&id);
                    let key = known.and_then(|known| known.message.envelope.key.clone());
                    settlement.sorted.push(Sorted { id: id.clone(), key, ready_at });
                }
                4 => settlement.returned.push(Returned { id: id.clone(), ready_at }),
                5 => {
                    let record = DeadLetterRecord::new(DeadLetterReason::MaxAttempts, attempts + 1, None);
                    settlement.buried.push(Buried { id: id.clone(), record, failure: None });
                }
                _ => continue,
            }
            player.held.remove(&id);
            *touched.entry(reservation).or_insert(false) |= decision >= 3;
        }
        for (reservation, must_rewrite) in touched {
            let left = player.held.iter().filter(|(_, held)| held.0 == reservation);
            let left: Vec<_> = left.map(|(id, _)| id.clone()).collect();
            if must_rewrite || left.is_empty() {
                settlement.remaining.push((reservation, left));
            }
        }
        player.owner.settle(&settlement).await?;
        self.model.settle(group, player.owner.epoch().number(), &settlement, now);
        Ok(())
    }

    /// Settles a message as one would whose delivery has ended, or whose delivery was another one.
    async fn settle_late(&mut self, group: usize) -> Result<()> {
        let (id, group_partition) = (self.id()?, self.topic.partition_of(GROUPS[group])?);
        let Some(peeked) = self.topic.store.reads.peek(&group_partition, &id).await? else { return Ok(()) };
        let attempt = (peeked.attempts + self.random.u32(0..3)).saturating_sub(1).max(1);
        let version = peeked.version.plus(usize::from(self.random.u8(0..4) == 0));
        let later = self.world.now().plus(Duration::from_millis(self.random.u64(0..50)));
        let next_at = self.random.bool().then_some(later);
        let redelivered = self.random.bool();
        let late = LateSettlement { pauses_key: false, id, version, attempt, redelivered, next_at, failure: None };
        let call = new_call(&*self.topic.store.backend, 1);
        let (descriptor, messages) = (&self.topic.descriptor, &self.topic.store.messages);
        let settlements = std::slice::from_ref(&late);
        let fates = messages
            .settle_late(descriptor, group_partition.partition, &group_partition.group, &call, settlements)
            .await?;
        let expected = match version == peeked.version {
            true => self.model.groups[group].settle_late(&late, self.model.ordered),
            false => LateFate::Over,
        };
        assert_eq!(fates, [expected], "{late:?}");
        Ok(())
    }

    async fn start(&mut self, group: usize) -> Result<()> {
        let player = &mut self.players[group];
        let held = player.held.iter_mut().filter(|_| self.random.bool());
        let charges: Vec<_> = held
            .map(|(id, (_, _, attempts))| {
                *attempts += 1;
                Charge { id: id.clone(), attempts: *attempts }
            })
            .collect();
        player.owner.start(&charges).await?;
        charges.iter().for_each(|charge| self.model.groups[group].start(charge));
        Ok(())
    }

    /// Never early: a millisecond before, what is due next is not there; at its time it is.
    async fn one_millisecond_before_due(&mut self, group: usize) -> Result<()> {
        let now = self.world.now();
        if let Some(at) = self.model.groups[group].next_due(now) {
            self.world.time.advance(at.since(now) - Duration::from_millis(1));
            self.reserve(group).await?;
            self.world.pass(1);
            self.reserve(group).await?;
        }
        Ok(())
    }

    fn pass(&mut self) {
        let ms = self.random.u64(0..30);
        self.world.pass(ms);
    }

    async fn take_dead(&mut self, group: usize, redrive: bool) -> Result<()> {
        let partition = self.topic.partition_of(GROUPS[group])?;
        let mut ids = vec![self.id()?, self.id()?];
        ids.extend(self.topic.store.dead_letters.dead(&partition, None, 3).await?.dead.into_iter().map(|dead| dead.id));
        let store = &self.topic.store;
        let taken = if redrive {
            store.dead_letters.redrive(&partition, &ids).await?
        } else {
            store.dead_letters.purge(&partition, &ids).await?.iter().map(Option::is_some).collect()
        };
        let now = self.world.now();
        assert_eq!(taken, self.model.groups[group].take_dead(&ids, redrive.then_some(now)));
        Ok(())
    }

    /// Counts, and one message looked at, have to be the same.
    async fn compare(&mut self) -> Result<()> {
        let (id, now) = (self.id()?, self.world.now());
        for (name, model) in GROUPS.iter().zip(&self.model.groups) {
            let partition = self.topic.partition_of(name)?;
            let stats = self.topic.stats_of(&partition).await?;
            assert_eq!(PartitionStats { owner: None, ..stats }, model.stats(now), "{name}");
            let peeked = self.topic.store.reads.peek(&partition, &id).await?;
            let expected = model.messages.get(&id).map(|known| match known.state {
                Place::Waiting(at) => {
                    let state = if at > now { MessageState::Scheduled } else { MessageState::Ready };
                    (state.name(), Some(at), known.attempts.unwrap_or(0))
                }
                Place::Held => (MessageState::InFlight.name(), None, known.attempts.unwrap_or(0)),
                Place::Dead(_, attempts) => ("dead", None, attempts),
            });
            assert_eq!(peeked.map(|peeked| (peeked.state.name(), peeked.next_at, peeked.attempts)), expected, "{name}");
        }
        Ok(())
    }
}
