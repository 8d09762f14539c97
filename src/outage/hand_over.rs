//! A stop gives what is in the logs to another broker, and another broker keeps it as its own.
//!
//! A record may then be in two logs: the answer was lost, or the sender died before it noted what was taken. So each
//! names its place in the first log it stood in. The partition remembers under that name what came of it, and whoever
//! replays it second finds that it was done. Records of the journal need no such name: they are restored once in any case, but
//! in the order of the calls that set them, so a journal is given as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use super::{BufferedStore, CALL_PAGE_RECORDS, REQUEST_PAGE_BYTES, drop_part_of_a_call};
use crate::codec::{NumberedRecord, encode_page};
use crate::model::error::{Error, Kind, Result, innermost_cause};
use crate::model::limits::{
    HANDED_OVER_AHEAD_MAX, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, SOCKET_PATH_BYTES_MAX, STREAM_BYTES_MAX,
};
use crate::model::time::Timestamp;
use crate::model::version::{CallId, Version};
use crate::platform::clock::{Clock, Instant};
use crate::platform::https::{self, Roots};
use crate::platform::secret::TokenFile;
use crate::store::{HandedOver, LogKind, LogTarget, TakenOver};
use crate::wal::{Entry, Position, Record, Wal};

const ACCEPTED_LOGS_MAX: usize = 64;

impl<S: LogTarget> BufferedStore<S> {
    /// Gives another broker, if one is configured, what is buffered; and the journal while the store is unavailable.
    /// Records that it does not take in time stay on disk.
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
        let successor = Successor::new(options, self.options.courier.clone())?;
        let heard = self.last_contact();
        let mut outcome = Ok(());
        for (kind, log) in logs {
            let name = log.id().await?;
            let to = Recipient { successor: &successor, store: &store, heard, kind: *kind, log: &name, until };
            let given = match kind {
                LogKind::Wal => self.give_requests(&to, log, handed).await,
                LogKind::Journal => give_answers(&to, log, handed).await,
            };
            outcome = outcome.and(given);
        }
        outcome
    }

    async fn give_requests(&self, to: &Recipient<'_>, log: &Wal, handed: &mut u64) -> Result<()> {
        // From now on another broker may have them, also if this one dies before it hears of that.
        log.begin_hand_over().await?;
        loop {
            let mut page = self.next_page(REQUEST_PAGE_BYTES).await?;
            let Some(last) = page.last().map(|entry| entry.position) else { return Ok(()) };
            page.iter_mut().for_each(|entry| self.note_origin(entry));
            match to.give(None, page).await? {
                TakenOver::Kept { taken, .. } => *handed += taken,
                TakenOver::LacksEarlier => return Err(Error::unavailable("the other broker took nothing")),
            }
            log.trim(last).await?;
        }
    }

    pub(super) async fn take_over(&self, handed: HandedOver, is_admin: bool) -> Result<TakenOver> {
        if let Some(refusal) = self.breaker.refusal() {
            return Err(Error::unavailable(refusal.detail().to_owned()));
        }
        let most = Version::from_us(self.store.clock().now().as_ms() * 1_000).plus(HANDED_OVER_AHEAD_MAX);
        handed.records.iter().try_for_each(|record| check(handed.kind, most, &record.record))?;
        let mut accepted_logs = self.accepted_logs.lock().await;
        self.check_store(&handed, is_admin).await?;
        if handed.records.is_empty() {
            return Ok(TakenOver::Kept { taken: 0, refused: 0 });
        }
        if self.wal.id().await? == handed.log {
            return Err(Error::unavailable("the records come from this broker itself"));
        }
        if handed.after > accepted_logs.get(&handed.log).copied().unwrap_or(0) {
            return Ok(TakenOver::LacksEarlier);
        }
        let (given, through) = (handed.records.len(), handed.records.last().map(|record| record.number));
        let is_allowed = |record: &Record| is_admin || !is_for_admins(record);
        let records = handed.records.into_iter().map(|record| record.record).filter(is_allowed);
        let records: Vec<Record> = records.collect();
        let taken = records.len();
        self.keep_handed_over(handed.kind, records).await?;
        if accepted_logs.len() >= ACCEPTED_LOGS_MAX {
            // Their brokers begin with the first page again.
            accepted_logs.clear();
        }
        accepted_logs.insert(handed.log, through.unwrap_or(handed.after));
        tracing::info!(records = taken, log = handed.kind.name(), "taken over from a broker that stops");
        Ok(TakenOver::Kept { taken: taken as u64, refused: (given - taken) as u64 })
    }

    /// Whether records are for this broker's store. One that was never reached takes the name that an admin says, until it says
    /// its own. Errors: `Conflict`; `Unavailable` while it was never reached.
    async fn check_store(&self, handed: &HandedOver, is_admin: bool) -> Result<()> {
        match self.wal.store_identity() {
            None if !is_admin => Err(Error::unavailable(
                "this broker was never connected to its store, so only a token with `admin` says which one it has",
            )),
            None if handed.records.is_empty() => Ok(()),
            None => {
                self.wal.remember_store(&handed.store).await?;
                self.set_last_contact(handed.heard);
                Ok(())
            }
            Some(own) if own == handed.store => Ok(()),
            Some(_) => {
                let why = "the records are for another store than that of this broker";
                Err(Error::new(Kind::Conflict, why))
            }
        }
    }

    fn forget_deleted(&self, record: &Record) {
        if let Record::Delete(deleted) = record
            && self.topic_cache.last(&deleted.topic).is_some_and(|known| known.incarnation == deleted.incarnation)
        {
            self.topic_cache.forget(&deleted.topic);
        }
    }

    async fn keep_handed_over(&self, kind: LogKind, records: Vec<Record>) -> Result<()> {
        let newest = records.iter().filter_map(Record::version).max();
        match kind {
            LogKind::Wal => {
                self.wal.append(records.clone()).await?;
                self.note_behind(&records);
            }
            LogKind::Journal => {
                let none = || Error::new(Kind::Conflict, "this broker has no journal to keep these records in");
                let journal = self.journal.as_ref().ok_or_else(none)?;
                journal.log().append(records.clone()).await?;
                records.iter().for_each(|record| self.forget_deleted(record));
                // They are kept for a whole window from now on, and offered as at a start.
                journal.broken();
                self.taken.notify_one();
            }
        }
        newest.into_iter().for_each(|newest| self.store.clock().witness(newest));
        self.buffered.notify_one();
        Ok(())
    }
}

struct Recipient<'a> {
    successor: &'a Successor,
    store: &'a str,
    heard: Option<Timestamp>,
    kind: LogKind,
    log: &'a str,
    until: Instant,
}

impl Recipient<'_> {
    /// Gives a page, behind this record if what comes before it has to be there.
    async fn give(&self, after: Option<Position>, page: Vec<Entry>) -> Result<TakenOver> {
        let records = page.into_iter().map(|Entry { position, at, mut record }| {
            if let Record::Push { origin: origin @ None, .. } = &mut record {
                *origin = Some(CallId { stream: self.log.to_owned(), seq: position.number() });
            }
            NumberedRecord { number: position.number(), at, record }
        });
        let page = HandedOver {
            store: self.store.to_owned(),
            heard: self.heard,
            kind: self.kind,
            log: self.log.to_owned(),
            after: after.map_or(0, Position::number),
            records: records.collect(),
        };
        self.successor.give(&page, self.until).await
    }
}

/// Gives a journal from its beginning: a stream is restored in the order of its calls, so no broker may have the end
/// alone.
async fn give_answers(to: &Recipient<'_>, log: &Wal, handed: &mut u64) -> Result<()> {
    let (mut after, mut taken, mut refused) = (None, 0, 0);
    loop {
        let end = log.depth().end;
        let mut page = log.peek(after, CALL_PAGE_RECORDS, REQUEST_PAGE_BYTES).await?;
        drop_part_of_a_call(&mut page, end);
        let Some(last) = page.last().map(|entry| entry.position) else { break };
        match to.give(after, page).await? {
            TakenOver::Kept { taken: more, refused: less } => {
                (after, taken, refused) = (Some(last), taken + more, refused + less);
            }
            TakenOver::LacksEarlier if after.is_some() && Clock::System.instant() < to.until => {
                (after, taken, refused) = (None, 0, 0);
            }
            TakenOver::LacksEarlier => return Err(Error::unavailable("no broker took all of the journal")),
        }
    }
    *handed += taken;
    if refused > 0 {
        return Err(Error::refused(format!(
            "{refused} records need a token with `admin`: deletions of topics, purges of groups, cron jobs, and messages of topics that are \
             not there, where pushes create none"
        )));
    }
    match after {
        Some(last) => log.trim(last).await,
        None => Ok(()),
    }
}

/// Whether only a token with `admin` gives it: what is more than a message.
fn is_for_admins(record: &Record) -> bool {
    matches!(record, Record::Delete(_) | Record::Purge { .. } | Record::CronJob { .. })
}

fn belongs(kind: LogKind, record: &Record) -> bool {
    match kind {
        LogKind::Wal => {
            matches!(record, Record::Create(_) | Record::Push { origin: Some(_), .. } | Record::Cancel { .. })
        }
        LogKind::Journal => is_for_admins(record) || matches!(record, Record::Set { .. } | Record::End { .. }),
    }
}

fn check(kind: LogKind, most: Version, record: &Record) -> Result<()> {
    let wrong = |why: &str| Err(Error::invalid("records", why));
    if !belongs(kind, record) {
        return wrong("have a record that is not for this log");
    }
    let at = match record {
        Record::Delete(deleted) => Version::from_us(deleted.last_deletion().saturating_mul(1_000)),
        Record::Create(promise) => Version::from_us(promise.incarnation.saturating_mul(1_000)),
        _ => Version::default(),
    };
    if record.version().unwrap_or_default().max(at) > most {
        return wrong("have a version of the future");
    }
    let (message, calls) = match record {
        Record::Push { message, call, origin, .. } => {
            (Some(message), [call.as_ref().map(|part| &part.call), origin.as_ref()])
        }
        Record::Set { message, call, .. } => (Some(message), [Some(call), None]),
        Record::Create(_)
        | Record::Cancel { .. }
        | Record::End { .. }
        | Record::Purge { .. }
        | Record::CronJob { .. }
        | Record::Delete(_) => (None, [None, None]),
    };
    if message.is_some_and(|message| message.envelope.size() > PAYLOAD_BYTES_MAX) {
        return wrong("have a payload of more than 1 MiB");
    }
    let is_stream = |stream: &str| {
        // Pages of dead letters are `<stream>@<broker>`, and what a cron job fires is `cron.<name>`.
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'@' | b'-' | b'_');
        (1..=STREAM_BYTES_MAX.max(5 + NAME_BYTES_MAX)).contains(&stream.len()) && stream.bytes().all(known)
    };
    match calls.into_iter().flatten().all(|call| is_stream(&call.stream)) {
        true => Ok(()),
        false => wrong("name a call that no broker made"),
    }
}

pub const PATH: &str = "/v1/hand-over";

pub const MEDIA_TYPE: &str = "application/vnd.dwell.records";

pub const STORE: &str = "dwell-store";

/// The header that says when that store was last heard of, in ms since 1970.
pub const HEARD: &str = "dwell-store-heard";

pub const KIND: &str = "dwell-log";

pub const LOG: &str = "dwell-log-id";

/// The header that names the record of a journal before the page.
pub const AFTER: &str = "dwell-log-after";

pub const ACCEPTED: &str = "http://HOST:PORT, https://HOST:PORT or unix:/absolute/path";

const SOCKET: &str = "unix:";

const PAGE_TIMEOUT: Duration = Duration::from_secs(5);

const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1_000));

const ANSWER_BYTES: usize = 2_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOverOptions {
    pub url: String,
    /// The token that is shown: one with `hand_over`.
    pub token_file: Option<PathBuf>,
    /// CA certificates used to verify the broker; without, the system's.
    pub ca_file: Option<PathBuf>,
    pub limit: Duration,
}

#[derive(Deserialize)]
struct Answer {
    taken: u64,
    refused: u64,
}

enum PostError {
    Refused(String),
    Failed(String),
}

pub fn check_url(text: &str) -> std::result::Result<String, String> {
    if text.strip_prefix(SOCKET).is_some_and(|path| path.starts_with('/') && path.len() <= SOCKET_PATH_BYTES_MAX) {
        return Ok(text.to_owned());
    }
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    match url.scheme() {
        "http" | "https"
            if url.host().is_some() && is_bare && url.username().is_empty() && url.password().is_none() =>
        {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err("is not the address of a broker".to_owned()),
    }
}

/// Carries requests to the other broker: HTTP over sockets, unless something else is given.
#[async_trait]
pub trait Courier: std::fmt::Debug + Send + Sync {
    /// The status and the first bytes of the answer. Errors: why there is none; the request may have come all the same.
    async fn post(
        &self,
        url: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> std::result::Result<(StatusCode, Vec<u8>), String>;
}

impl PartialEq for dyn Courier {
    fn eq(&self, other: &dyn Courier) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

impl Eq for dyn Courier {}

#[async_trait]
impl Courier for Client {
    async fn post(
        &self,
        url: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> std::result::Result<(StatusCode, Vec<u8>), String> {
        let request = self.post(url).headers(headers).body(body);
        let mut response = request.send().await.map_err(|error| innermost_cause(&error.without_url()))?;
        let mut answer = Vec::new();
        while answer.len() < ANSWER_BYTES
            && let Ok(Some(chunk)) = response.chunk().await
        {
            answer.extend_from_slice(&chunk);
        }
        answer.truncate(ANSWER_BYTES);
        Ok((response.status(), answer))
    }
}

pub struct Successor {
    courier: Arc<dyn Courier>,
    url: String,
    token: Option<TokenFile>,
}

impl Successor {
    pub fn new(options: &HandOverOptions, courier: Option<Arc<dyn Courier>>) -> Result<Successor> {
        let token = options.token_file.clone().map(TokenFile::new);
        if let Some(courier) = courier {
            return Ok(Successor { courier, url: options.url.clone(), token });
        }
        let is_tls = options.url.starts_with("https:");
        let roots = Roots::choose("wal.hand_over_ca_file", options.ca_file.as_deref(), is_tls)?;
        let builder = https::broker_client(&roots)?;
        let (builder, base) = match options.url.strip_prefix(SOCKET) {
            Some(path) => (builder.unix_socket(Path::new(path)), "http://localhost"),
            None => (builder, options.url.as_str()),
        };
        Ok(Successor { courier: Arc::new(https::build(builder)?), url: format!("{base}{PATH}"), token })
    }

    /// Repeats a page until it is taken, refused, or `until`. After an error it may have been taken all the same.
    pub async fn give(&self, page: &HandedOver, until: Instant) -> Result<TakenOver> {
        let body = encode_page(&page.records)?;
        let mut pause = PAUSE.0;
        loop {
            let limit = Clock::System.instant().plus(PAGE_TIMEOUT).min(until);
            let answer = tokio::select! {
                answer = self.post(page, body.clone()) => answer,
                () = Clock::System.sleep_until(limit) => Err(PostError::Failed("no answer in time".to_owned())),
            };
            let why = match answer {
                Ok(taken) => return Ok(taken),
                Err(PostError::Refused(why)) => return Err(Error::refused(why)),
                Err(PostError::Failed(why)) => why,
            };
            if Clock::System.instant().plus(pause) >= until {
                return Err(Error::unavailable(why));
            }
            Clock::System.sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn post(&self, page: &HandedOver, body: Vec<u8>) -> std::result::Result<TakenOver, PostError> {
        let mut headers = HeaderMap::new();
        let name = |text: &str| HeaderValue::from_str(text).map_err(|_| PostError::Refused("a name".to_owned()));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(STORE, name(&page.store)?);
        headers.insert(KIND, HeaderValue::from_static(page.kind.name()));
        headers.insert(LOG, name(&page.log)?);
        headers.insert(AFTER, page.after.into());
        if let Some(heard) = page.heard {
            headers.insert(HEARD, heard.as_ms().into());
        }
        if let Some(value) = self.authorization()? {
            headers.insert(AUTHORIZATION, value);
        }
        let (status, body) = self.courier.post(&self.url, headers, body).await.map_err(PostError::Failed)?;
        if status == StatusCode::OK {
            let answer = serde_json::from_slice(&body);
            let Answer { taken, refused } =
                answer.map_err(|error| PostError::Failed(format!("its answer: {error}")))?;
            return Ok(if taken + refused == 0 { TakenOver::LacksEarlier } else { TakenOver::Kept { taken, refused } });
        }
        let why = format!("status {status}: {}", String::from_utf8_lossy(&body).trim());
        let is_passing = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        Err(if status.is_client_error() && !is_passing { PostError::Refused(why) } else { PostError::Failed(why) })
    }

    fn authorization(&self) -> std::result::Result<Option<HeaderValue>, PostError> {
        let Some(file) = &self.token else { return Ok(None) };
        let token =
            file.token(Clock::System.instant()).map_err(|why| PostError::Failed(format!("the own token {why}")))?;
        let value = HeaderValue::from_str(token.authorization().expose());
        let mut value = value.map_err(|_| PostError::Refused("the own token cannot be sent".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_address_is_scheme_host_and_port() {
        for good in
            ["http://dwell-gateway:7373", "https://dwell.shop.svc", "http://[::1]:7373/", "unix:/run/dwell.sock"]
        {
            assert!(check_url(good).is_ok_and(|url| !url.ends_with('/')), "{good}");
        }
        for bad in ["", "dwell-gateway:7373", "unix:run/dwell.sock", "http://a/b", "http://u:p@a", "http://a?b=c"] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }
}
