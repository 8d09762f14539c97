//! The HTTP client of the command line. It repeats no request that may have done something: what calls it knows whether
//! that is safe.

mod cron;
mod looking;
mod settling;

use std::time::Duration;

use reqwest::header::IF_MATCH;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) use self::looking::Readiness;
#[cfg(test)]
pub(super) use self::looking::StoreOf;
use super::address::ServerAddress;
use super::api::Problem;
use super::api::{
    BulkChange, BulkChanged, BulkCount, DeadFilter, DeadPage, Declaration, Deliveries, Delivery, Findings, Forecast,
    Group, Groups, MoveTo, Moved, NewGroup, PauseOf, PushResults, Pushed, Reserve, Swept, Topic, Topics, Which,
};
use super::control::{Control, Explained, Looked, MessagePage, NewDue};
use super::credentials::Credentials;
use super::failure::Failure;
use super::problem::CallError;
use crate::model::error::innermost_cause;
use crate::model::limits::STREAM_SILENCE_MAX;
use crate::model::message::{GroupName, Key, MessageId, NewMessage, TopicName};
use crate::model::time::{Timestamp, show_span};
use crate::platform::clock::Clock;

/// How long an answer may take beyond what the request itself waits for.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long opening a connection may take; the broker is on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A broker closes a connection that was idle for 75 s; one that is about to be closed must not be used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of a call.
pub(super) type CallResult<T> = Result<T, CallError>;

/// A broker to call. Clones share its connections.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    server: ServerAddress,
    credentials: Credentials,
}

impl Client {
    /// One that shows nothing.
    pub(super) fn new(server: &ServerAddress) -> Result<Client, Failure> {
        Client::showing(server, Credentials::default())
    }

    /// One that shows what the broker asks for.
    pub(super) fn showing(server: &ServerAddress, credentials: Credentials) -> Result<Client, Failure> {
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
        Ok(Client { http, server: server.clone(), credentials })
    }

    /// Asks whether it lives.
    pub(super) async fn live(&self) -> CallResult<()> {
        self.look("/livez").await
    }

    /// Asks whether it is ready. # Errors: `Garbled` when it is not.
    pub(super) async fn ready(&self) -> CallResult<()> {
        self.look("/readyz").await
    }

    async fn look(&self, path: &str) -> CallResult<()> {
        let answer = self.send(self.http.get(format!("{}{path}", self.base()))).await?;
        // Read to the end, so that the connection can be used again.
        answer.bytes().await.map(drop).map_err(|error| self.unreachable(error))
    }

    /// The names of all topics.
    pub(super) async fn topics(&self) -> CallResult<Vec<String>> {
        self.call::<Topics>(self.request(Method::GET, "")).await.map(|(_, topics)| topics.topics)
    }

    /// Describes a topic.
    pub(super) async fn topic(&self, topic: &TopicName) -> CallResult<Topic> {
        self.call(self.request(Method::GET, &format!("/{topic}"))).await.map(|(_, topic)| topic)
    }

    /// Declares a topic, and says whether that made it.
    pub(super) async fn declare(&self, topic: &TopicName, settings: &Declaration) -> CallResult<(bool, Topic)> {
        let request = self.request(Method::PUT, &format!("/{topic}")).json(settings);
        self.call(request).await.map(|(status, topic)| (status == StatusCode::CREATED, topic))
    }

    /// Changes settings of a topic, which is not created if it was deleted meanwhile.
    pub(super) async fn update_topic(&self, topic: &TopicName, settings: &Declaration) -> CallResult<Topic> {
        let request = self.request(Method::PUT, &format!("/{topic}")).header(IF_MATCH, "*").json(settings);
        self.call(request).await.map(|(_, topic)| topic)
    }

    /// Deletes a topic.
    pub(super) async fn delete_topic(&self, topic: &TopicName) -> CallResult<()> {
        self.send(self.request(Method::DELETE, &format!("/{topic}"))).await.map(|_| ())
    }

    /// Makes a group, and says whether it was not there.
    pub(super) async fn make_group(&self, group: &GroupOf, new: &NewGroup) -> CallResult<(bool, Group)> {
        let request = self.request(Method::PUT, &group.place()).json(new);
        self.call(request).await.map(|(status, group)| (status == StatusCode::CREATED, group))
    }

    /// The groups of a topic.
    pub(super) async fn groups(&self, topic: &TopicName) -> CallResult<Vec<Group>> {
        self.call::<Groups>(self.request(Method::GET, &format!("/{topic}/groups"))).await.map(|(_, all)| all.groups)
    }

    /// Describes a group.
    pub(super) async fn group(&self, group: &GroupOf) -> CallResult<Group> {
        self.call(self.request(Method::GET, &group.place())).await.map(|(_, group)| group)
    }

    /// Deletes a group.
    pub(super) async fn delete_group(&self, group: &GroupOf) -> CallResult<()> {
        self.send(self.request(Method::DELETE, &group.place())).await.map(|_| ())
    }

    /// Pauses a group.
    pub(super) async fn pause(&self, group: &GroupOf, pause: &PauseOf) -> CallResult<Group> {
        self.call(self.request(Method::POST, &group.path("pause")).json(pause)).await.map(|(_, group)| group)
    }

    /// Resumes a group.
    pub(super) async fn resume(&self, group: &GroupOf) -> CallResult<Group> {
        self.call(self.request(Method::POST, &group.path("resume"))).await.map(|(_, group)| group)
    }

    /// Pushes one message.
    pub(super) async fn push(&self, topic: &TopicName, message: NewMessage, query: &Query) -> CallResult<Pushed> {
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
        self.call(request.body(message.payload)).await.map(|(_, pushed)| pushed)
    }

    /// Pushes a batch; each message is answered for itself, also when all of them failed.
    pub(super) async fn push_batch<M: Serialize>(&self, topic: &TopicName, batch: &[M]) -> CallResult<Vec<Pushed>> {
        #[derive(Serialize)]
        struct Batch<'a, M> {
            messages: &'a [M],
        }
        let request = self.request(Method::POST, &format!("/{topic}/messages/batch")).json(&Batch { messages: batch });
        let results = match self.call::<PushResults>(request).await {
            Ok((_, answer)) => answer.results,
            Err(error) => error.results().ok_or(error)?,
        };
        match results.len() == batch.len() {
            true => Ok(results),
            false => Err(self.garbled(&format!("{} results for {} messages", results.len(), batch.len()))),
        }
    }

    /// Takes deliveries, or waits for the first one.
    pub(super) async fn reserve(&self, group: &GroupOf, reserve: &Reserve) -> CallResult<Vec<Delivery>> {
        self.reserve_as(group, reserve).await
    }

    /// The same, for who looks only at some fields of a delivery.
    pub(super) async fn reserve_as<D: DeserializeOwned>(
        &self,
        group: &GroupOf,
        reserve: &Reserve,
    ) -> CallResult<Vec<D>> {
        let request = self.request(Method::POST, &group.path("reserve")).timeout(reserve.wait + CALL_TIMEOUT);
        self.call::<Deliveries<D>>(request.json(reserve)).await.map(|(_, answer)| answer.deliveries)
    }

    /// Opens a stream that has at most `max` deliveries unsettled.
    pub(super) async fn stream(
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

    /// How many messages of a group wait in a window.
    pub(super) async fn count_bulk(&self, group: &GroupOf, from: Timestamp, to: Timestamp) -> CallResult<u64> {
        let query = [("from", from.to_string()), ("to", to.to_string())];
        let request = self.request(Method::GET, &group.path("bulk")).query(&query);
        self.call::<BulkCount>(request).await.map(|(_, count)| count.waiting)
    }

    /// Changes the messages of a window, for a few seconds.
    pub(super) async fn change_bulk(&self, group: &GroupOf, change: &BulkChange<'_>) -> CallResult<BulkChanged> {
        self.call(self.request(Method::POST, &group.path("bulk")).json(change)).await.map(|(_, changed)| changed)
    }

    /// Moves what a topic holds into another one, for a few seconds.
    pub(super) async fn move_topic(&self, topic: &TopicName, to: &MoveTo<'_>) -> CallResult<Moved> {
        self.call(self.request(Method::POST, &format!("/{topic}/move")).json(to)).await.map(|(_, moved)| moved)
    }

    /// Verifies a part of what the store holds of a group, and repairs it if asked.
    pub(super) async fn verify(&self, group: &GroupOf, cursor: Option<&str>, repair: bool) -> CallResult<Findings> {
        let method = if repair { Method::POST } else { Method::GET };
        let request = self.request(method, &group.path("verify")).query(&cursor.map(|cursor| [("cursor", cursor)]));
        self.call(request).await.map(|(_, findings)| findings)
    }

    /// Looks at a message.
    pub(super) async fn look_at(
        &self,
        topic: &TopicName,
        id: &MessageId,
        key: Option<&Key>,
        group: &GroupName,
    ) -> CallResult<Looked> {
        let request = self.message(Method::GET, topic, id, key, "").query(&[("group", group.as_str())]);
        self.call(request).await.map(|(_, looked)| looked)
    }

    /// Why a message is not delivered yet.
    pub(super) async fn explain(&self, topic: &TopicName, id: &MessageId, key: Option<&Key>) -> CallResult<Explained> {
        self.call(self.message(Method::GET, topic, id, key, "/explain")).await.map(|(_, explained)| explained)
    }

    /// A page of messages.
    pub(super) async fn messages(&self, topic: &TopicName, query: &Query) -> CallResult<MessagePage> {
        let request = self.request(Method::GET, &format!("/{topic}/messages")).query(&query.0);
        self.call(request).await.map(|(_, page)| page)
    }

    /// Cancels a message.
    pub(super) async fn cancel(&self, topic: &TopicName, id: &MessageId, key: Option<&Key>) -> CallResult<Control> {
        self.call(self.message(Method::DELETE, topic, id, key, "")).await.map(|(_, control)| control)
    }

    /// Gives a message another due time, if it still has that etag.
    pub(super) async fn reschedule(
        &self,
        topic: &TopicName,
        id: &MessageId,
        key: Option<&Key>,
        due: &NewDue,
        if_match: Option<&str>,
    ) -> CallResult<Control> {
        let mut request = self.message(Method::PATCH, topic, id, key, "").json(due);
        if let Some(etag) = if_match {
            request = request.header("if-match", etag);
        }
        self.call(request).await.map(|(_, control)| control)
    }

    fn message(
        &self,
        method: Method,
        topic: &TopicName,
        id: &MessageId,
        key: Option<&Key>,
        what: &str,
    ) -> RequestBuilder {
        // An id may have any visible character, also those that end a path.
        let encoded: String = id.as_str().bytes().map(percent_encoded).collect();
        let key: Vec<_> = key.iter().map(|key| ("key", key.as_str())).collect();
        self.request(method, &format!("/{topic}/messages/{encoded}{what}")).query(&key)
    }

    /// How many messages become due in spans ahead.
    pub(super) async fn forecast(&self, group: &GroupOf, step: Duration, spans: u32) -> CallResult<Forecast> {
        let query = [("step", show_span(step)), ("spans", spans.to_string())];
        let request = self.request(Method::GET, &group.path("forecast")).query(&query);
        self.call(request).await.map(|(_, forecast)| forecast)
    }

    /// A page of dead messages that are meant.
    pub(super) async fn dead(
        &self,
        group: &GroupOf,
        filter: &DeadFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> CallResult<DeadPage> {
        let query =
            [("limit", limit.to_string())].into_iter().chain(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        let request =
            self.request(Method::GET, &group.path("dead-letters")).query(filter).query(&query.collect::<Vec<_>>());
        self.call(request).await.map(|(_, page)| page)
    }

    /// Makes dead messages ready again, for a few seconds.
    pub(super) async fn redrive(&self, group: &GroupOf, which: &Which) -> CallResult<Swept> {
        let request = self.request(Method::POST, &group.path("dead-letters/redrive")).json(which);
        self.call(request).await.map(|(_, swept)| swept)
    }

    /// Deletes dead messages, for a few seconds.
    pub(super) async fn purge(&self, group: &GroupOf, which: &Which) -> CallResult<Swept> {
        let request = self.request(Method::POST, &group.path("dead-letters/purge")).json(which);
        self.call(request).await.map(|(_, swept)| swept)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}/v1/topics{path}", self.base()))
    }

    fn base(&self) -> &str {
        match &self.server {
            ServerAddress::Http(url) => url.as_str(),
            ServerAddress::Unix(_) => "http://localhost",
        }
    }

    async fn call<T: DeserializeOwned>(&self, request: RequestBuilder) -> CallResult<(StatusCode, T)> {
        let response = self.send(request).await?;
        let status = response.status();
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        let answer = serde_json::from_slice(&body).map_err(|error| self.garbled(&error.to_string()))?;
        Ok((status, answer))
    }

    /// Sends a request and turns a refusal into an error.
    async fn send(&self, request: RequestBuilder) -> CallResult<Response> {
        let response = self.credentials.send(request).await?.map_err(|error| self.unreachable(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(CallError::Problem(Box::new(self.credentials.explain(problem)))),
            Err(_) => Err(self.garbled(&format!("status {status}"))),
        }
    }

    fn unreachable(&self, error: reqwest::Error) -> CallError {
        if error.is_builder() {
            return CallError::Garbled(format!("the request cannot be made: {}", innermost_cause(&error)));
        }
        let (connect, why) = (error.is_connect(), innermost_cause(&error.without_url()));
        let hint = match why.contains("certificate") {
            true => "--ca-file names the certificates that are believed",
            false => "is `dwell serve` running there?",
        };
        match connect {
            true => CallError::Unreachable(format!("cannot reach {}: {why}; {hint}", self.server)),
            false => CallError::NoAnswer(format!("no answer from {}: {why}", self.server)),
        }
    }

    fn garbled(&self, why: &str) -> CallError {
        CallError::Garbled(format!("{} answers, but not as dwell does: {why}", self.server))
    }
}

/// Deliveries as they come. Dropping it returns those that are not settled.
pub(super) struct DeliveryStream {
    client: Client,
    response: Response,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl DeliveryStream {
    /// What comes next, perhaps nothing but a sign of life. # Errors: `NoAnswer` at the end of the stream, or when it is silent.
    pub(super) async fn next(&mut self) -> CallResult<Vec<Delivery>> {
        let chunk = tokio::select! {
            chunk = self.response.chunk() => chunk.map_err(|error| self.client.unreachable(error))?,
            () = Clock::System.sleep(STREAM_SILENCE_MAX * 2) => None,
        };
        let ended = || CallError::NoAnswer(format!("the stream from {} has ended", self.client.server));
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

/// Parameters of a push, or of a list.
#[derive(Debug, Default)]
pub(super) struct Query(pub(super) Vec<(&'static str, String)>);

/// A group of a topic.
#[derive(Debug, Clone)]
pub(super) struct GroupOf {
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
}

impl GroupOf {
    fn place(&self) -> String {
        format!("/{}/groups/{}", self.topic, self.group)
    }

    fn path(&self, verb: &str) -> String {
        format!("{}/{verb}", self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_there_is_said_with_the_address_and_a_hint() -> Result<(), Failure> {
        let client = Client::new(&ServerAddress::parse("unix:/does/not/exist.sock").map_err(Failure::new)?)?;
        let failure = client.topics().await.map_err(Failure::from).err().unwrap_or_else(Failure::said);
        assert_eq!(failure.code, crate::cli::failure::UNAVAILABLE);
        assert!(failure.message.contains("unix:/does/not/exist.sock: No such file"), "{}", failure.message);
        assert!(failure.message.ends_with("is `dwell serve` running there?"), "{}", failure.message);
        Ok(())
    }
}
