//! A stop gives what is in the logs to another broker, and another broker keeps it as its own.
//!
//! A record may then be in two logs: the answer was lost, or the sender died before it noted what was taken. So each
//! names its place in the first log it stood in. The partition remembers under that name what came of it, and whoever
//! replays it second finds that it was done. Records of the journal need no such name: they are restored once in any case.

use std::sync::PoisonError;

use super::{Failover, PAGE_BYTES, PAGE_RECORDS};
use crate::clock::{Clock, Instant};
use crate::codec::NumberedRecord;
use crate::error::{Error, Kind, Result};
use crate::hand_over::{HandOverOptions, Successor};
use crate::limits::{HANDED_OVER_AHEAD_MAX, PAYLOAD_BYTES_MAX, STREAM_BYTES_MAX};
use crate::store::{HandedOver, LogKind, LogTarget};
use crate::version::{CallId, Version};
use crate::wal::{Entry, Record, Wal};

impl<S: LogTarget> Failover<S> {
    /// Gives what is buffered to another broker, if one is configured; and what the journal has, while the store is
    /// unavailable. What it does not take in time stays on disk.
    pub(super) async fn hand_over(&self) {
        let Some(options) = &self.options.hand_over else { return };
        let journal = match &self.journal {
            Some(journal) if journal.log().depth().records > 0 && self.is_away().await => Some(journal.log()),
            _ => None,
        };
        let logs = [(LogKind::Wal, Some(&self.wal)), (LogKind::Journal, journal)];
        let logs =
            logs.into_iter().filter_map(|(kind, log)| Some((kind, log?))).filter(|(_, log)| log.depth().records > 0);
        let logs: Vec<(LogKind, &Wal)> = logs.collect();
        if logs.is_empty() {
            return;
        }
        let mut handed = 0;
        let outcome = self.give_all(options, &logs, &mut handed).await;
        let left: u64 = logs.iter().map(|(_, log)| log.depth().records).sum();
        match outcome {
            Ok(()) => tracing::info!(records = handed, "handed over: another broker has what was buffered"),
            Err(error) => tracing::warn!(%error, handed, records = left, "not handed over: it stays on disk"),
        }
    }

    async fn is_away(&self) -> bool {
        self.breaker.reason().is_some() || self.limited(self.store.ping()).await.is_err()
    }

    async fn give_all(&self, options: &HandOverOptions, logs: &[(LogKind, &Wal)], handed: &mut u64) -> Result<()> {
        let until = Clock::System.instant().plus(options.limit);
        let store = self.wal.store_identity().ok_or_else(|| {
            Error::refused("the store was never reached, so another broker cannot tell whether it has the same one")
        })?;
        let successor = Successor::new(options)?;
        for (kind, log) in logs {
            let name = log.id().await?;
            while let Some(given) = self.give_page(&successor, (&store, *kind, &name), log, until).await? {
                *handed += given;
            }
        }
        Ok(())
    }

    /// Gives the first page of a log, and marks it as done here once it was taken. Answers how many records there were, if
    /// any.
    async fn give_page(
        &self,
        successor: &Successor,
        (store, kind, name): (&str, LogKind, &str),
        log: &Wal,
        until: Instant,
    ) -> Result<Option<u64>> {
        let page = log.page(None, PAGE_RECORDS, PAGE_BYTES).await?;
        let Some(last) = page.last().map(|entry| entry.position) else { return Ok(None) };
        // From now on another broker may have it, also if this one dies before it hears of that.
        log.remember_handed_over(last).await?;
        let records: Vec<_> = page.into_iter().filter_map(|entry| given(kind, name, entry)).collect();
        let count = records.len() as u64;
        if count > 0 {
            let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).ever();
            let page = HandedOver { store: store.to_owned(), heard, kind, log: name.to_owned(), records };
            successor.give(&page, until).await?;
        }
        log.trim(last).await?;
        Ok(Some(count))
    }

    /// Keeps what another broker had buffered for the same store.
    pub(super) async fn take(&self, handed: HandedOver) -> Result<u64> {
        if let Some(refusal) = self.breaker.refusal() {
            return Err(Error::unavailable(refusal.detail().to_owned()));
        }
        match self.wal.store_identity() {
            // Once the store is reached it says whether it has this name; until then nothing goes there.
            None => {
                self.wal.remember_store(&handed.store).await?;
                self.heard.lock().unwrap_or_else(PoisonError::into_inner).before = handed.heard;
            }
            Some(own) if own == handed.store => {}
            Some(_) => {
                let why = "the records are for another store than that of this broker";
                return Err(Error::new(Kind::Conflict, why));
            }
        }
        if self.wal.id().await? == handed.log {
            return Err(Error::unavailable("the records come from this broker itself"));
        }
        let most = Version::from_us(self.store.clock().now().as_ms() * 1_000).plus(HANDED_OVER_AHEAD_MAX);
        handed.records.iter().try_for_each(|record| check(handed.kind, most, &record.record))?;
        let count = handed.records.len() as u64;
        let newest = handed.records.iter().filter_map(|record| record.record.version()).max();
        let records: Vec<Record> = handed.records.into_iter().map(|record| record.record).collect();
        match handed.kind {
            LogKind::Wal => {
                self.wal.append(records.clone()).await?;
                self.note_behind(&records);
            }
            LogKind::Journal => {
                let none = || Error::new(Kind::Conflict, "this broker has no journal to keep these records in");
                let journal = self.journal.as_ref().ok_or_else(none)?;
                journal.log().append(records).await?;
                // They are kept for a whole window from now on, and offered as at a start.
                journal.broken();
                self.taken.notify_one();
            }
        }
        newest.into_iter().for_each(|newest| self.store.clock().witness(newest));
        self.buffered.notify_one();
        tracing::info!(records = count, log = handed.kind.name(), "taken over from a broker that stops");
        Ok(count)
    }
}

/// What another broker gets of a record: a push with its place in the first log that it stood in; of a journal what the store
/// answered of messages.
fn given(kind: LogKind, log: &str, entry: Entry) -> Option<NumberedRecord> {
    let Entry { position, at, mut record } = entry;
    if let Record::Push { origin: origin @ None, .. } = &mut record {
        *origin = Some(CallId { stream: log.to_owned(), seq: position.number() });
    }
    belongs(kind, &record).then_some(NumberedRecord { number: position.number(), at, record })
}

/// Whether a record may be handed over from such a log.
fn belongs(kind: LogKind, record: &Record) -> bool {
    match kind {
        LogKind::Wal => {
            matches!(record, Record::Create(_) | Record::Push { origin: Some(_), .. } | Record::Cancel { .. })
        }
        LogKind::Journal => matches!(record, Record::Set { .. } | Record::End { .. }),
    }
}

/// # Errors
/// `Invalid` for what no broker hands over.
fn check(kind: LogKind, most: Version, record: &Record) -> Result<()> {
    let wrong = |why: &str| Err(Error::invalid("records", why));
    if !belongs(kind, record) {
        return wrong("have a record that is not for this log");
    }
    if record.version().is_some_and(|version| version > most) {
        return wrong("have a version of the future");
    }
    let (message, calls) = match record {
        Record::Push { message, call, origin, .. } => {
            (Some(message), [call.as_ref().map(|part| &part.call), origin.as_ref()])
        }
        Record::Set { message, call, .. } => (Some(message), [Some(call), None]),
        Record::Create(_) | Record::Cancel { .. } | Record::End { .. } | Record::Delete(_) => (None, [None, None]),
    };
    if message.is_some_and(|message| message.envelope.payload.len() > PAYLOAD_BYTES_MAX) {
        return wrong("have a payload of more than 1 MiB");
    }
    let is_stream = |stream: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
        (1..=STREAM_BYTES_MAX).contains(&stream.len()) && stream.bytes().all(known)
    };
    match calls.into_iter().flatten().all(|call| is_stream(&call.stream)) {
        true => Ok(()),
        false => wrong("name a call that no broker made"),
    }
}
