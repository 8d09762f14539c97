//! A broker that stops gives its logs to the other one.

use super::breach::Breach;
use super::broker::Act;
use super::rules::Rule;
use super::state::{Answered, Broker, Buffered, CallId};

impl Act<'_> {
    /// The other one has all of it, and another disk takes the place of this one.
    pub(super) fn hand_over(&mut self) -> Result<(), Breach> {
        let (wal, journal) = self.all();
        self.give(&wal, &journal);
        self.know_nothing();
        self.stop()?;
        let (name, stream) = (self.name, self.world.next_stream);
        self.world.next_stream += 1;
        let fresh = Broker { wal_stream: stream, up: false, connected: false, knows_other: false, ..Broker::new(name) };
        *self.world.broker_mut(name) = Broker { reachable: self.world.broker(name).reachable, ..fresh };
        Ok(())
    }

    /// The other one has all of it, and this one does not know that.
    pub(super) fn hand_over_unanswered(&mut self) -> Result<(), Breach> {
        let (wal, journal) = self.all();
        self.give(&wal, &journal);
        self.take_another_name();
        self.stop()
    }

    /// The other one has the first record of each log.
    pub(super) fn hand_over_in_part(&mut self) -> Result<(), Breach> {
        let (wal, journal) = self.all();
        let (wal, journal) = (&wal[..wal.len().min(1)], &journal[..journal.len().min(1)]);
        self.give(wal, journal);
        self.take_another_name();
        let is_whole = self.rules.has(Rule::JournalIsGivenWhole);
        let broker = self.world.broker_mut(self.name);
        broker.wal.drain(..wal.len());
        if !is_whole {
            broker.journal.drain(..journal.len());
            broker.durable = broker.journal.len();
        }
        self.stop()
    }

    fn all(&self) -> (Vec<Buffered>, Vec<Answered>) {
        let broker = self.world.broker(self.name);
        let wal = broker.wal.iter().map(|&record| {
            let here = CallId { stream: broker.wal_stream, sequence: record.number };
            let record = broker.with_origin(record);
            Buffered { origin: record.origin.or(Some(here)), ..record }
        });
        let is_given = |answered: &&Answered| match answered {
            Answered::Deleted { .. } => self.rules.has(Rule::DeletionsAreHandedOver),
            Answered::Set { .. } | Answered::End { .. } | Answered::Purged { .. } => {
                self.rules.has(Rule::JournalIsHandedOver)
            }
        };
        (wal.collect(), broker.journal.iter().filter(is_given).copied().collect())
    }

    fn give(&mut self, wal: &[Buffered], journal: &[Answered]) {
        self.world.left.hand_overs -= 1;
        let (other, rules) = (self.name.other(), self.rules);
        let taker = self.world.broker_mut(other);
        for &record in wal {
            taker.wal_number += 1;
            taker.wal.push(Buffered { number: taker.wal_number, ..record });
        }
        let of_journal = journal.iter().map(|answered| match answered {
            Answered::Set { body, .. } => body.version(),
            Answered::End { version, .. } | Answered::Deleted { version } | Answered::Purged { version } => *version,
        });
        let newest = wal.iter().map(|record| record.request.stamp.version).chain(of_journal).max();
        if rules.has(Rule::TakenVersionsAreWitnessed) {
            taker.clock = taker.clock.max(newest.unwrap_or(0));
        }
        taker.journal.extend_from_slice(journal);
        taker.durable = taker.journal.len();
        if !journal.is_empty() && rules.has(Rule::TakenJournalIsRestored) {
            taker.must_offer = true;
            taker.restoring = taker.connected.then_some(0);
            self.world.restored[other as usize] = false;
        }
    }

    /// What this broker knew, the other one knows.
    fn know_nothing(&mut self) {
        let (name, other) = (self.name, self.name.other());
        let ledger = &mut self.world.ledger;
        let operations = ledger.operations.iter_mut().map(|operation| &mut operation.broker);
        let ends = ledger.settled.iter_mut().flatten().chain(&mut ledger.deleted).map(|end| &mut end.broker);
        operations.chain(ends).filter(|broker| **broker == name).for_each(|broker| *broker = other);
    }

    fn take_another_name(&mut self) {
        if !self.rules.has(Rule::HandOverRenamesLog) {
            return;
        }
        let stream = self.world.next_stream;
        self.world.next_stream += 1;
        let broker = self.world.broker_mut(self.name);
        broker.handed_over.push(CallId { stream: broker.wal_stream, sequence: broker.wal_number });
        broker.wal_stream = stream;
    }

    fn stop(&mut self) -> Result<(), Breach> {
        self.lose_partition()?;
        self.kill();
        Ok(())
    }
}
