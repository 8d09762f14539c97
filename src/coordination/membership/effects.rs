//! What a member does with what it knows: it records its heartbeat, gives up what is too much, takes what is missing.

use super::{Action, Instant, Life, Member, Partition};
use crate::model::limits::ACQUIRES_MAX;

impl Member {
    pub(super) fn act(&mut self, now: Instant, actions: &mut Vec<Action>) {
        match self.life {
            Life::Gone => {}
            Life::Leaving => self.finish(now, actions),
            Life::Joined => {
                if self.demand.has_changed(now) {
                    self.pulse.turn(now);
                }
                if self.pulse.beats(now) {
                    self.demand.announce(now);
                    actions.push(Action::Beat);
                }
                if now >= self.hold_until {
                    self.exempt.clear();
                }
                self.sweep.pass(now);
                self.release_excess(now, actions);
                self.acquire_missing(now, actions);
                self.sweep_orphans(now, actions);
            }
        }
    }

    /// The farewell comes first, so that the others take what is released as soon as it is.
    fn finish(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.pulse.says_farewell(now) {
            actions.push(Action::Depart);
        }
        for partition in self.pairs.newest() {
            self.release(partition, actions);
        }
        if self.pairs.is_empty() && self.pulse.is_over() {
            self.life = Life::Gone;
            actions.push(Action::Gone);
        }
    }

    /// The last acquired go first: when members come and go, the same few partitions move, and the others never do.
    fn release_excess(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.is_still() {
            return;
        }
        if self.pairs.owned() <= self.quota {
            return self.sweep.forget_kept();
        }
        let excess = self.pairs.owned().saturating_sub(self.quota + self.sweep.kept());
        // Nobody could take it while all hold back.
        if excess == 0 || now < self.hold_until {
            return;
        }
        let offered = self.pairs.newest().into_iter().filter(|partition| !self.sweep.is_kept(*partition));
        for partition in offered.take(excess).collect::<Vec<_>>() {
            self.release(partition, actions);
        }
    }

    pub(super) fn release(&mut self, partition: Partition, actions: &mut Vec<Action>) {
        self.pairs.release(partition);
        actions.push(Action::Release(partition));
    }

    fn acquire_missing(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if !self.may_acquire(now) {
            return;
        }
        while self.pairs.acquiring() < ACQUIRES_MAX {
            let partition = if self.missing() > 0 { self.candidate(now) } else { self.further_guess(now) };
            let Some(partition) = partition else { return };
            self.pairs.acquire(partition, false);
            actions.push(Action::Acquire(partition));
        }
    }

    fn candidate(&mut self, now: Instant) -> Option<Partition> {
        if now < self.hold_until {
            let own = self.exempt.iter().find(|partition| self.candidates.may_try(**partition, now)).copied()?;
            return self.candidates.take(own).then_some(own);
        }
        self.candidates.take_timed(now).or_else(|| self.guess())
    }

    /// One more than is missing, since most guesses find a partition taken; should too many be free, the last goes back.
    /// What is known to be free does not wait behind guesses.
    fn further_guess(&mut self, now: Instant) -> Option<Partition> {
        let has_reach = self.pairs.owned() < self.quota && self.pairs.acquiring() < self.reach;
        let has_better = self.candidates.next_timed().is_some_and(|at| at <= now);
        if has_reach && !has_better && now >= self.hold_until { self.guess() } else { None }
    }

    fn guess(&mut self) -> Option<Partition> {
        self.guesses = self.guesses.checked_sub(1)?;
        self.candidates.take_guess()
    }

    /// What nobody takes is found by a member that prefers it, even beyond its share.
    fn sweep_orphans(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let has_its_share = self.shares.contain(&self.seat) && self.pairs.owned() >= self.quota;
        let may_sweep = has_its_share && self.may_acquire(now) && now >= self.hold_until;
        if !may_sweep {
            return self.sweep.give_up(now);
        }
        while self.pairs.acquiring() < ACQUIRES_MAX {
            let Some(partition) = self.sweep.take() else { return };
            if self.candidates.may_try(partition, now) && self.candidates.take(partition) {
                self.pairs.acquire(partition, true);
                actions.push(Action::Acquire(partition));
            } else {
                self.sweep.forget(partition);
            }
        }
    }

    /// A sweep begins with a new list: if someone had come, partitions would be on their way to them.
    pub(super) fn begin_sweep(&mut self, now: Instant) {
        if let Some(place) = self.sweep.begin(now, self.shares.members()) {
            let may_be = |partition: &Partition| {
                self.candidates.may_try(*partition, now) && self.shares.is_at(place, &self.seat, *partition)
            };
            self.sweep.fill((0..self.partitions).map(Partition).filter(may_be));
        }
    }

    /// How many more partitions it should own than it does or may soon.
    pub(super) fn missing(&self) -> usize {
        self.quota.saturating_sub(self.pairs.owned() + self.pairs.acquiring())
    }

    fn may_acquire(&self, now: Instant) -> bool {
        now >= self.quiet_until && self.pulse.is_settled(now)
    }

    /// Whether this partition may not be acquired for a data loss.
    pub(super) fn is_held(&self, partition: Partition, now: Instant) -> bool {
        now < self.hold_until && !self.exempt.contains(&partition)
    }

    /// When to acquire what is missing, if it is time that keeps it.
    pub(super) fn acquire_wake(&self) -> Instant {
        let is_fresh = self.pulse.is_fresh(self.stepped);
        if self.missing() == 0 || self.pairs.acquiring() >= ACQUIRES_MAX || !is_fresh {
            return Instant::FAR;
        }
        let own = self.exempt.iter().filter_map(|partition| self.candidates.not_before(*partition)).min();
        let guess = (self.guesses.min(self.candidates.guesses()) > 0).then_some(Instant::START);
        let any = [self.candidates.next_timed(), guess].into_iter().flatten().min();
        let any = any.map(|at| at.max(self.hold_until));
        let first = [own, any].into_iter().flatten().min().unwrap_or(Instant::FAR);
        first.max(self.quiet_until).max(self.pulse.settled_at())
    }
}
