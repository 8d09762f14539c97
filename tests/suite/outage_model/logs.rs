//! A broker and its logs: it asks whether calls were applied, replays the WAL and offers the journal.

use super::broker::Act;
use super::ledger::Answer;
use super::rules::Rule;
use super::scripts::Outcome;
use super::state::{Answered, Buffered, CallId, Kind, Page, Request};

impl Act<'_> {
    /// Asks whether the call of the first record was applied.
    pub(super) fn fence(&mut self) {
        let Some(&record) = self.world.broker(self.name).wal.first() else { return };
        let Some(call) = record.call else { return };
        let is_applied = self.rules.has(Rule::FenceBeforeReplay) && self.script().fence(call);
        if is_applied {
            let request = record.request;
            if self.rules.has(Rule::ReplayedIsJournaled) {
                self.keep(Answered::Set { id: request.id, body: request.body(), call });
            }
            self.answer(request.stamp, Answer::Done);
            self.world.broker_mut(self.name).wal.remove(0);
        } else {
            self.world.broker_mut(self.name).fenced = record.number;
        }
    }

    /// The next page: up to the first record that needs a fence.
    pub(super) fn page(&self, records: usize) -> Page {
        let broker = self.world.broker(self.name);
        let records = broker.replayable().take(records).map(|record| broker.with_origin(record)).collect();
        Page { stream: broker.wal_stream, records }
    }

    /// The page is executed and its reply lost.
    pub(super) fn send_page(&mut self, page: &Page) -> Vec<Outcome> {
        let sent = page.records.last().map_or(0, |record| record.number);
        let broker = self.world.broker_mut(self.name);
        broker.sent = broker.sent.max(sent);
        self.script().page(page)
    }

    pub(super) fn replay(&mut self, records: usize) {
        let page = self.page(records);
        for outcome in self.send_page(&page) {
            self.replayed(page.stream, outcome);
        }
    }

    fn replayed(&mut self, stream: u8, outcome: Outcome) {
        let record = outcome.record;
        let stamp = record.request.stamp;
        self.journal_replayed(CallId { stream, sequence: record.number }, outcome);
        let name = self.name;
        let operation = self.world.ledger.operation(stamp);
        if operation.answer == Answer::Accepted {
            operation.answer = Answer::Done;
            operation.broker = name;
        }
        let broker = self.world.broker_mut(name);
        broker.wal.retain(|kept| kept.number != record.number);
    }

    /// Keeps what became of a record of the WAL; or else what made it unnecessary.
    fn journal_replayed(&mut self, call: CallId, outcome: Outcome) {
        let Outcome { record: Buffered { request, .. }, is_first, first, there, ended, deleted_at } = outcome;
        let Request { kind, id, stamp } = request;
        if let Some(first) = first {
            let body = there.filter(|body| body.payload.op == first.stamp.op);
            return body.into_iter().for_each(|body| self.vouch(first.id, body, call, Rule::EvidenceIsJournaled));
        }
        let is_there = there.is_some_and(|body| body.payload.op == stamp.op);
        let rule = if is_there || kind == Kind::Cancel { Rule::ReplayedIsJournaled } else { Rule::EvidenceIsJournaled };
        let kept = match there {
            // An earlier call applied it: what is there may have come later.
            _ if !is_first && kind.is_push() => Some(Answered::Set { id, body: request.body(), call }),
            Some(body) if is_there => Some(Answered::Set { id, body, call }),
            Some(body) if kind.is_push() => return self.vouch(id, body, call, rule),
            _ if deleted_at >= stamp.version => Some(Answered::Deleted { version: deleted_at }),
            _ if ended > 0 => Some(Answered::End { id, version: ended }),
            _ => None,
        };
        if let Some(answered) = kept.filter(|_| self.rules.has(rule)) {
            self.keep(answered);
        }
    }

    /// Without the rule that holds it, the page goes to the end of the log under new numbers.
    pub(super) fn move_page_on(&mut self, page: &Page) {
        for record in &page.records {
            self.world.broker_mut(self.name).wal.retain(|kept| kept.number != record.number);
            self.buffer(record.request, None);
        }
    }

    /// The next record of the journal is offered, or the restore is over.
    pub(super) fn restore(&mut self) {
        let broker = self.world.broker(self.name);
        let Some(next) = broker.restoring else { return };
        let Some(&answered) = broker.journal.get(next) else {
            let name = self.name as usize;
            self.world.restored[name] = true;
            self.world.silent[name] = false;
            let broker = self.world.broker_mut(self.name);
            broker.restoring = None;
            broker.must_offer = false;
            return;
        };
        self.script().restore(answered);
        self.world.broker_mut(self.name).restoring = Some(next + 1);
    }

    /// The next record is offered and the reply lost.
    pub(super) fn offer(&mut self) {
        let broker = self.world.broker(self.name);
        if let Some(&answered) = broker.restoring.and_then(|next| broker.journal.get(next)) {
            self.script().restore(answered);
        }
    }
}
