//! The HTTP client of the command line. It repeats no request that may have done something: what calls it knows whether
//! that is safe.

use std::time::Duration;

use dwell_client::wire::bulk::{BulkChange, BulkChanged, BulkCount, GroupForecast};
use dwell_client::wire::consume::{Deliveries, Delivery, Reserve};
use dwell_client::wire::cron::{CronJob, CronJobs};
use dwell_client::wire::dead_letters::{DeadLetterMessage, DeadLetterMessages, Purged, Redriven, Which};
use dwell_client::wire::groups::{Findings, Group, GroupDescription, GroupList, NewGroup, PauseOf, PurgeOf};
use dwell_client::wire::messages::{Control, Explained, ListedMessage, ListedMessages, Message, NewDue};
use dwell_client::wire::operations::Ready;
use dwell_client::wire::problem::Problem;
use dwell_client::wire::push::{Batch, BatchResults, PushResult};
use dwell_client::wire::settle::{Ack, Extend, Nack, Settled, Verdicts};
use dwell_client::wire::topics::{MoveTo, Moved, Topic, TopicDescription, TopicList};
use reqwest::header::IF_MATCH;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::address::{Credentials, ServerAddress};
use super::api::WithJson;
use super::failure::{CallError, CallResult, Failure};
use super::place::{Files, Place};
use crate::model::error::innermost_cause;
use crate::model::limits::STREAM_SILENCE_MAX;
use crate::model::message::{CronJobName, GroupName, Key, MessageId, NewMessage, TopicName};
use crate::model::spelling::counted;
use crate::model::time::{Timestamp, show_span};
use crate::platform::clock::Clock;

const CALL_TIMEOUT: Duration = Duration::from_secs(30);

const CLOCK_TIMEOUT: Duration = Duration::from_secs(300);

/// How long opening a connection may take; the broker is on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Where a broker says whether it is ready.
const READY: &str = "/readyz";

/// The pool may open a connection and then use another one that became free. A broker closes one that had no request for 5 s
/// after it was opened, so one that is about to be closed must not be used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// A broker to call. Clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    place: Place,
    credentials: Credentials,
}

impl Client {
    pub(crate) fn new(server: &ServerAddress) -> Result<Client, Failure> {
        Client::at(Place::named(server.clone(), Files::default()))
    }

    pub(crate) fn at(place: Place) -> Result<Client, Failure> {
        let (server, credentials) = (&place.address, place.credentials()?);
        let builder = credentials
            .client(server)?
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .timeout(CALL_TIMEOUT);
        let builder = match server {
            ServerAddress::Http(_) => builder,
            ServerAddress::Unix(path) => builder.unix_socket(path.as_path()),
        };
        let http = builder.build().map_err(|error| Failure::new(format!("cannot make an HTTP client: {error}")))?;
        Ok(Client { http, place, credentials })
    }

    /// The broker that it asks.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) async fn live(&self) -> CallResult<WithJson<Value>> {
        self.call(self.http.get(format!("{}/livez", self.base()))).await
    }

    /// Asks whether it is ready. # Errors: `Garbled` when it is not.
    pub(crate) async fn ready(&self) -> CallResult<()> {
        self.text(READY).await.map(drop)
    }

    pub(crate) async fn readiness(&self) -> CallResult<WithJson<Ready>> {
        self.call(self.http.get(format!("{}{READY}", self.base()))).await
    }

    pub(crate) async fn metrics(&self) -> CallResult<String> {
        self.text("/metrics").await
    }

    async fn text(&self, path: &str) -> CallResult<String> {
        let answer = self.send(self.http.get(format!("{}{path}", self.base()))).await?;
        // Read to the end, so that the connection can be used again.
        answer.text().await.map_err(|error| self.unreachable(error))
    }

    pub(crate) async fn topics(&self) -> CallResult<Vec<String>> {
        self.get::<TopicList>("").await.map(|topics| topics.topics)
    }

    pub(crate) async fn topic(&self, topic: &TopicName) -> CallResult<WithJson<TopicDescription>> {
        self.get(&format!("/{topic}")).await
    }

    /// Declares a topic, and says whether that made it.
    pub(crate) async fn declare(
        &self,
        topic: &TopicName,
        settings: &impl Serialize,
    ) -> CallResult<(bool, WithJson<Topic>)> {
        self.put(&format!("/{topic}"), settings).await
    }

    /// Changes settings of a topic, which is not created if it was deleted meanwhile.
    pub(crate) async fn update_topic(
        &self,
        topic: &TopicName,
        settings: &impl Serialize,
    ) -> CallResult<WithJson<Topic>> {
        self.call(self.request(Method::PUT, &format!("/{topic}")).header(IF_MATCH, "*").json(settings)).await
    }

    pub(crate) async fn delete_topic(&self, topic: &TopicName) -> CallResult<()> {
        self.delete(&format!("/{topic}")).await
    }

    /// Creates or updates a group, and says whether it was created.
    pub(crate) async fn put_group(&self, group: &GroupOf, new: &NewGroup) -> CallResult<(bool, WithJson<Group>)> {
        self.put(&group.place(), new).await
    }

    pub(crate) async fn groups(&self, topic: &TopicName) -> CallResult<Vec<WithJson<Group>>> {
        self.get::<GroupList<WithJson<Group>>>(&format!("/{topic}/groups")).await.map(|all| all.groups)
    }

    pub(crate) async fn group(&self, group: &GroupOf) -> CallResult<WithJson<GroupDescription>> {
        self.get(&group.place()).await
    }

    pub(crate) async fn delete_group(&self, group: &GroupOf) -> CallResult<()> {
        self.delete(&group.place()).await
    }

    pub(crate) async fn purge_group(&self, group: &GroupOf, purge: &PurgeOf) -> CallResult<Purged> {
        self.post(&group.path("purge"), purge).await
    }

    pub(crate) async fn pause(&self, group: &GroupOf, pause: &PauseOf) -> CallResult<WithJson<Group>> {
        self.post(&group.path("pause"), pause).await
    }

    pub(crate) async fn resume(&self, group: &GroupOf) -> CallResult<WithJson<Group>> {
        self.call(self.request(Method::POST, &group.path("resume"))).await
    }

    pub(crate) async fn push(
        &self,
        topic: &TopicName,
        message: NewMessage,
        query: &Query,
    ) -> CallResult<WithJson<PushResult>> {
        let mut request =
            self.request(Method::POST, &format!("/{topic}/messages")).query(&query.0).header("dwell-raw", "true");
        if let Some(content_type) = &message.content_type {
            request = request.header("content-type", content_type);
        }
        for (name, value) in &message.meta {
            request = request.header(format!("dwell-meta-{name}"), value.as_bytes());
        }
        if let Some(trace) = &message.trace {
            request = request.header("traceparent", trace.traceparent());
        }
        self.call(request.body(message.payload)).await
    }

    /// Pushes a batch; each message is answered for itself, also when all of them failed.
    pub(crate) async fn push_batch<M: Serialize>(&self, topic: &TopicName, batch: &[M]) -> CallResult<Vec<PushResult>> {
        let path = format!("/{topic}/messages/batch");
        let results = match self.post::<BatchResults>(&path, &Batch { messages: batch }).await {
            Ok(answer) => answer.results,
            Err(error) => error.results().ok_or(error)?,
        };
        match results.len() == batch.len() {
            true => Ok(results),
            false => Err(self.garbled(&format!(
                "{} for {}",
                counted(results.len(), "result"),
                counted(batch.len(), "message")
            ))),
        }
    }

    pub(crate) async fn reserve(&self, group: &GroupOf, reserve: &Reserve) -> CallResult<Vec<WithJson<Delivery>>> {
        self.reserve_as(group, reserve).await
    }

    pub(crate) async fn reserve_as<D: DeserializeOwned>(
        &self,
        group: &GroupOf,
        reserve: &Reserve,
    ) -> CallResult<Vec<D>> {
        let request =
            self.request(Method::POST, &group.path("reserve")).timeout(reserve.wait.unwrap_or_default() + CALL_TIMEOUT);
        self.call::<Deliveries<D>>(request.json(reserve)).await.map(|answer| answer.deliveries)
    }

    pub(crate) async fn stream(
        &self,
        group: &GroupOf,
        max: usize,
        visibility_timeout: Option<Duration>,
    ) -> CallResult<DeliveryStream> {
        let mut query = vec![("max_in_flight", max.to_string())];
        query.extend(visibility_timeout.map(|timeout| ("visibility_timeout", show_span(timeout))));
        // It ends when either side goes away, not after a time.
        let request = self.request(Method::POST, &group.path("stream")).query(&query).timeout(Duration::MAX);
        Ok(DeliveryStream { client: self.clone(), response: self.send(request).await?, rest: Vec::new() })
    }

    /// Settling: every receipt is answered for itself, also when none was settled.
    async fn settle(&self, group: &GroupOf, verb: &str, body: &impl Serialize) -> CallResult<Vec<Settled>> {
        match self.post::<Verdicts>(&group.path(verb), body).await {
            Ok(answer) => Ok(answer.results),
            // The verdict on a single receipt that was not settled.
            Err(error) => error.results().ok_or(error),
        }
    }

    pub(crate) async fn ack(&self, group: &GroupOf, receipts: &[String], late: bool) -> CallResult<Vec<Settled>> {
        self.settle(group, "ack", &Ack { late, ..Ack::of(receipts) }).await
    }

    pub(crate) async fn nack(&self, group: &GroupOf, nack: &Nack) -> CallResult<Vec<Settled>> {
        self.settle(group, "nack", nack).await
    }

    pub(crate) async fn extend(&self, group: &GroupOf, extend: &Extend) -> CallResult<Vec<Settled>> {
        self.settle(group, "extend", extend).await
    }

    /// How many messages of a group wait in a window.
    pub(crate) async fn count_bulk(&self, group: &GroupOf, from: Timestamp, to: Timestamp) -> CallResult<u64> {
        let query = [("from", from.to_string()), ("to", to.to_string())];
        let request = self.request(Method::GET, &group.path("bulk")).query(&query);
        self.call::<BulkCount>(request).await.map(|count| count.waiting)
    }

    /// Changes the messages of a window, for a few seconds.
    pub(crate) async fn change_bulk(&self, group: &GroupOf, change: &BulkChange) -> CallResult<BulkChanged> {
        self.post(&group.path("bulk"), change).await
    }

    /// Moves what a topic holds into another one, for a few seconds.
    pub(crate) async fn move_topic(&self, topic: &TopicName, to: &MoveTo) -> CallResult<Moved> {
        self.post(&format!("/{topic}/move"), to).await
    }

    /// Verifies a part of what the store holds of a group, and repairs it if asked.
    pub(crate) async fn verify(&self, group: &GroupOf, cursor: Option<&str>, repair: bool) -> CallResult<Findings> {
        let method = if repair { Method::POST } else { Method::GET };
        self.call(self.request(method, &group.path("verify")).query(&cursor.map(|cursor| [("cursor", cursor)]))).await
    }

    pub(crate) async fn get_message(
        &self,
        message: &MessageOf<'_>,
        group: &GroupName,
    ) -> CallResult<WithJson<Message>> {
        self.call(self.message(Method::GET, message, "").query(&[("group", group.as_str())])).await
    }

    /// Why a message is not delivered yet.
    pub(crate) async fn explain(&self, message: &MessageOf<'_>) -> CallResult<WithJson<Explained>> {
        self.call(self.message(Method::GET, message, "/explain")).await
    }

    pub(crate) async fn messages(
        &self,
        topic: &TopicName,
        query: &Query,
    ) -> CallResult<ListedMessages<WithJson<ListedMessage>>> {
        self.call(self.request(Method::GET, &format!("/{topic}/messages")).query(&query.0)).await
    }

    pub(crate) async fn cancel(&self, message: &MessageOf<'_>) -> CallResult<WithJson<Control>> {
        self.call(self.message(Method::DELETE, message, "")).await
    }

    /// Gives a message another due time, if it still has that etag.
    pub(crate) async fn reschedule(
        &self,
        message: &MessageOf<'_>,
        due: &NewDue,
        if_match: Option<&str>,
    ) -> CallResult<WithJson<Control>> {
        let mut request = self.message(Method::PATCH, message, "").json(due);
        if let Some(etag) = if_match {
            request = request.header(IF_MATCH, etag);
        }
        self.call(request).await
    }

    fn message(&self, method: Method, (topic, id, key): &MessageOf<'_>, what: &str) -> RequestBuilder {
        // An id may have any visible character, also those that end a path.
        let encoded: String = id.as_str().bytes().map(percent_encoded).collect();
        let key: Vec<_> = key.iter().map(|key| ("key", key.as_str())).collect();
        self.request(method, &format!("/{topic}/messages/{encoded}{what}")).query(&key)
    }

    /// The clock of a broker for tests.
    pub(crate) async fn clock<T: DeserializeOwned>(&self) -> CallResult<T> {
        self.call(self.http.get(self.clock_url())).await
    }

    /// Moves it. Many cron jobs may fire before the answer.
    pub(crate) async fn move_clock<T: DeserializeOwned>(&self, to: &impl Serialize) -> CallResult<T> {
        self.call(self.http.post(self.clock_url()).timeout(CLOCK_TIMEOUT).json(to)).await
    }

    /// Has the broker drain, and then end.
    pub(crate) async fn drain<T: DeserializeOwned>(&self) -> CallResult<T> {
        self.call(self.http.post(format!("{}/v1/drain", self.base()))).await
    }

    /// Has the broker read its configuration again.
    pub(crate) async fn reload<T: DeserializeOwned>(&self) -> CallResult<T> {
        self.call(self.http.post(format!("{}/v1/reload", self.base()))).await
    }

    fn clock_url(&self) -> String {
        format!("{}/v1/test/clock", self.base())
    }

    pub(crate) async fn attention<T: DeserializeOwned>(&self) -> CallResult<T> {
        self.call(self.http.get(format!("{}/v1/attention", self.base()))).await
    }

    pub(crate) async fn brokers<T: DeserializeOwned>(&self) -> CallResult<T> {
        self.call(self.http.get(format!("{}/v1/brokers", self.base()))).await
    }

    /// How many messages become due in spans ahead.
    pub(crate) async fn forecast(
        &self,
        group: &GroupOf,
        step: Duration,
        spans: u32,
    ) -> CallResult<WithJson<GroupForecast>> {
        let query = [("step", show_span(step)), ("spans", spans.to_string())];
        self.call(self.request(Method::GET, &group.path("forecast")).query(&query)).await
    }

    pub(crate) async fn dead(
        &self,
        group: &GroupOf,
        (which, order): (&Which, &str),
        limit: usize,
        cursor: Option<&str>,
    ) -> CallResult<DeadLetterMessages<WithJson<DeadLetterMessage>>> {
        let query = [("order", order.to_owned()), ("limit", limit.to_string())];
        let query = query.into_iter().chain(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        let request = self.request(Method::GET, &group.path("dead-letters")).query(which);
        self.call(request.query(&query.collect::<Vec<_>>())).await
    }

    /// Makes dead messages ready again, for a few seconds.
    pub(crate) async fn redrive(&self, group: &GroupOf, which: &Which) -> CallResult<Redriven> {
        self.post(&group.path("dead-letters/redrive"), which).await
    }

    /// Deletes dead messages, for a few seconds.
    pub(crate) async fn purge(&self, group: &GroupOf, which: &Which) -> CallResult<Purged> {
        self.post(&group.path("dead-letters/purge"), which).await
    }

    /// Creates or replaces a cron job, and says whether it was created.
    pub(crate) async fn put_cron_job(
        &self,
        topic: &TopicName,
        name: &CronJobName,
        cron: &impl Serialize,
    ) -> CallResult<(bool, WithJson<CronJob>)> {
        self.put(&format!("/{topic}/cron/{name}"), cron).await
    }

    /// A cron job, or every field of it.
    pub(crate) async fn cron_job<T: DeserializeOwned>(&self, topic: &TopicName, name: &CronJobName) -> CallResult<T> {
        self.get(&format!("/{topic}/cron/{name}")).await
    }

    pub(crate) async fn cron_jobs(
        &self,
        topic: &TopicName,
        cursor: Option<&str>,
    ) -> CallResult<CronJobs<WithJson<CronJob>>> {
        let query: Vec<_> = cursor.map(|cursor| ("cursor", cursor)).into_iter().collect();
        self.call(self.request(Method::GET, &format!("/{topic}/cron")).query(&query)).await
    }

    /// Pauses or resumes a cron job.
    pub(crate) async fn pause_cron_job(
        &self,
        topic: &TopicName,
        name: &CronJobName,
        verb: &str,
    ) -> CallResult<WithJson<CronJob>> {
        self.call(self.request(Method::POST, &format!("/{topic}/cron/{name}/{verb}"))).await
    }

    pub(crate) async fn delete_cron_job(&self, topic: &TopicName, name: &CronJobName) -> CallResult<()> {
        self.delete(&format!("/{topic}/cron/{name}")).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}/v1/topics{path}", self.base()))
    }

    fn base(&self) -> &str {
        match &self.place.address {
            ServerAddress::Http(url) => url.as_str(),
            ServerAddress::Unix(_) => "http://localhost",
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> CallResult<T> {
        self.call(self.request(Method::GET, path)).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> CallResult<T> {
        self.call(self.request(Method::POST, path).json(body)).await
    }

    /// Says whether what is put was created.
    async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> CallResult<(bool, T)> {
        let response = self.send(self.request(Method::PUT, path).json(body)).await?;
        let created = response.status() == StatusCode::CREATED;
        self.read(response).await.map(|answer| (created, answer))
    }

    async fn delete(&self, path: &str) -> CallResult<()> {
        self.send(self.request(Method::DELETE, path)).await.map(drop)
    }

    async fn call<T: DeserializeOwned>(&self, request: RequestBuilder) -> CallResult<T> {
        self.read(self.send(request).await?).await
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> CallResult<T> {
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        serde_json::from_slice(&body).map_err(|error| self.garbled(&error.to_string()))
    }

    async fn send(&self, request: RequestBuilder) -> CallResult<Response> {
        let response = self.credentials.send(request).await?.map_err(|error| self.unreachable(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, asks_state) = (response.status(), response.url().path() == READY);
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        match serde_json::from_slice::<Problem>(&body) {
            Ok(mut problem) => {
                // The answer of a broker without its store does not say which broker it is, and `redis.url` is its own.
                if problem.name() == "unavailable" && !asks_state {
                    let (detail, place) = (&problem.detail, &self.place);
                    let next = "`dwell doctor` on its machine looks at its store";
                    problem.detail = format!("{detail}; the broker at {place} says so: {next}");
                }
                Err(CallError::Problem(Box::new(self.credentials.explain(problem))))
            }
            Err(_) => Err(self.garbled(&format!("status {status}"))),
        }
    }

    fn unreachable(&self, error: reqwest::Error) -> CallError {
        if error.is_builder() {
            return CallError::Garbled(format!("the request cannot be made: {}", innermost_cause(&error)));
        }
        let (connect, why) = (error.is_connect(), innermost_cause(&error.without_url()));
        let hint = match () {
            () if why.contains("InvalidContentType") => "it speaks HTTP: give an address that begins with http://",
            () if why.contains("certificate") => "--ca-file names the certificates that are believed",
            () => "is `dwell serve` running there?",
        };
        let (place, other) = (&self.place, self.place.other());
        match connect {
            true => CallError::Unreachable(format!("cannot reach {place}: {why}; {hint}{other}")),
            false => {
                CallError::NoAnswer(format!("no answer from {place}: {why}; `dwell health` asks whether it is ready"))
            }
        }
    }

    fn garbled(&self, why: &str) -> CallError {
        CallError::Garbled(format!("{} answers, but not as dwell does: {why}", self.place))
    }
}

/// Deliveries as they come. Dropping it returns those that are not settled.
pub(crate) struct DeliveryStream {
    client: Client,
    response: Response,
    rest: Vec<u8>,
}

impl DeliveryStream {
    /// The next deliveries; none for a keep-alive. # Errors: `NoAnswer` at the end of the stream, or when it is silent.
    pub(crate) async fn next(&mut self) -> CallResult<Vec<WithJson<Delivery>>> {
        let chunk = tokio::select! {
            chunk = self.response.chunk() => chunk.map_err(|error| self.client.unreachable(error))?,
            () = Clock::System.sleep(STREAM_SILENCE_MAX * 2) => None,
        };
        let ended = || CallError::NoAnswer(format!("the stream from {} has ended", self.client.place));
        self.rest.extend_from_slice(&chunk.ok_or_else(ended)?);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let rest = self.rest.split_off(end);
        let lines = std::mem::replace(&mut self.rest, rest);
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let read = |line| serde_json::from_slice(line).map_err(|error| self.client.garbled(&error.to_string()));
        lines.map(read).collect()
    }
}

fn percent_encoded(byte: u8) -> String {
    let is_plain = byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    if is_plain { char::from(byte).to_string() } else { format!("%{byte:02X}") }
}

#[derive(Debug, Default)]
pub(crate) struct Query(pub(crate) Vec<(&'static str, String)>);

#[derive(Debug, Clone)]
pub(crate) struct GroupOf {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
}

impl GroupOf {
    fn place(&self) -> String {
        format!("/{}/groups/{}", self.topic, self.group)
    }

    fn path(&self, verb: &str) -> String {
        format!("{}/{verb}", self.place())
    }
}

/// A message: its topic, its id and its key.
pub(crate) type MessageOf<'a> = (&'a TopicName, &'a MessageId, Option<&'a Key>);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connection_refused_names_address_and_hint() -> Result<(), Failure> {
        let client = Client::new(&ServerAddress::parse("unix:/does/not/exist.sock").map_err(Failure::new)?)?;
        let failure = client.topics().await.map_err(Failure::from).err().unwrap_or_else(Failure::printed);
        assert_eq!(failure.code, crate::cli::failure::UNAVAILABLE);
        assert!(failure.message.contains("unix:/does/not/exist.sock: No such file"), "{}", failure.message);
        assert!(failure.message.ends_with("is `dwell serve` running there?"), "{}", failure.message);
        Ok(())
    }
}
