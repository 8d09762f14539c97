//! Amazon SQS on dwell's listener: its requests become operations of the broker.
//!
//! A queue is a topic with its group `default`. The broker knows nothing of this; what SQS keeps with a queue are annotations
//! of the topic.

mod errors;
mod model;
mod rules;
mod protocol;
mod sigv4;
mod ids;
mod queue;
mod batch;
mod celery;
mod send;
mod receipt;
mod attempts;
mod receive;
mod manage;
mod moves;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use self::attempts::Attempts;
use self::errors::{DENIED, Failure, NO_ACTION, NO_QUEUE, NO_TOKEN, Result, UNAVAILABLE, UNKNOWN_ACTION, UNSUPPORTED};
use self::ids::Sequence;
use self::manage::Recent;
use self::model::{Action, Answer, Request, required};
use self::moves::Moves;
use self::protocol::{Protocol, recognise};
use self::queue::{Queue, has_settings, name_of_arn, queue_name};
pub use self::rules::actions;
use self::rules::{BODY_BYTES_MAX, rule};
use self::sigv4::{Signature, Signed, unknown_token};
use crate::api::http::{Desk, Gateway, GatewayCall, GatewayReply, Head};
use crate::broker::Broker;
use crate::gate::access::Actor;
use crate::gate::{Claim, Entrant, Gate, Identity, Pass, Refusal, Resource, Sent};
use crate::model::error::Kind;
use crate::model::limits::DELAY_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::topic::Descriptor;
use crate::platform::clock::Clock;
use crate::platform::request_id::RequestId;
use crate::platform::tasks::Tasks;

const SENDER_MAX: usize = 100;

/// The requests of SQS clients, answered by a broker.
pub struct Sqs {
    broker: Broker,
    clock: Clock,
    options: SqsOptions,
    scheme: &'static str,
    sequence: Sequence,
    recent: Recent,
    moves: Moves,
    attempts: Attempts,
    tasks: Tasks,
}

/// Settings of SQS.
#[derive(Debug, Clone, PartialEq)]
pub struct SqsOptions {
    pub enabled: bool,
    /// The base of queue URLs; empty: the scheme and host of each request.
    pub public_url: String,
    /// The region in ARNs, when the signature of a request names none.
    pub region: String,
    /// Twelve digits, in ARNs and queue URLs.
    pub account: String,
    /// Partitions of the topics that CreateQueue creates.
    pub partitions: u16,
    /// The longest delay of a message.
    pub max_delay: Duration,
    /// Whether the limits of AWS hold: delays up to 900 s, a purge a minute, 60 s between DeleteQueue and CreateQueue.
    pub strict: bool,
    /// Whether SendMessage and GetQueueUrl create the queue.
    pub auto_create: bool,
    /// Whether the `eta` of Celery's messages is their due time.
    pub celery_eta: bool,
}

impl Default for SqsOptions {
    fn default() -> SqsOptions {
        SqsOptions {
            enabled: false,
            public_url: String::new(),
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            partitions: 1,
            max_delay: DELAY_MAX,
            strict: false,
            auto_create: false,
            celery_eta: false,
        }
    }
}

/// The sender of a request, and its metadata.
pub(crate) struct Caller {
    /// For the action of the request.
    pass: Pass,
    sent: Sent,
    /// The name of the token, or the access key where none is needed.
    sender: String,
    region: String,
    /// Where the client reaches this broker, without a slash at the end.
    url: String,
    /// An id that all retries of one call of a client have; for a client that does not send one, an id that no other call has.
    invocation: String,
    trace_header: Option<String>,
}

impl Caller {
    /// Permission for another action, which the request turns out to need. Errors: `AccessDenied`.
    fn passes_also(&self, action: Action) -> Result<Pass> {
        self.pass.also(rule(action), self.sent).map_err(refused)
    }

    fn queue_url(&self, account: &str, name: &str) -> String {
        format!("{}/{account}/{name}", self.url)
    }

    fn arn(&self, account: &str, name: &str) -> String {
        format!("arn:aws:sqs:{}:{account}:{name}", self.region)
    }
}

/// The queue of an action that acts on a topic. Errors: `UnsupportedOperation` for a group.
fn check_resource(pass: &Pass, queue: Queue) -> Result<Queue> {
    if pass.action().acts_on != Resource::Topic || !queue.is_group() {
        return Ok(queue);
    }
    let (name, topic) = (&queue.name, &queue.topic);
    Err(Failure::new(UNSUPPORTED, format!("{name} is a group of the queue {topic}: this action is for {topic} only.")))
}

fn refused(refusal: Refusal) -> Failure {
    let class = match refusal {
        Refusal::NoToken => return Failure::new(NO_TOKEN, "Request is missing Authentication Token"),
        Refusal::UnknownToken => return unknown_token(),
        Refusal::Scope(_) | Refusal::ByLink(_) | Refusal::OtherListener(_) => DENIED,
        Refusal::Full(_) => UNAVAILABLE,
    };
    Failure::new(class, refusal.detail().to_owned())
}

/// The JSON protocol names the action in a header, Query among the parameters.
enum Decoded {
    Json(Action),
    Query(Action, Vec<(String, String)>),
}

impl Decoded {
    fn action(&self) -> Action {
        match self {
            Decoded::Json(action) | Decoded::Query(action, _) => *action,
        }
    }
}

impl Sqs {
    /// `is_tls`: whether clients reach the listener by HTTPS. Moves of messages run in `tasks`.
    pub fn new(broker: Broker, clock: Clock, options: SqsOptions, is_tls: bool, tasks: Tasks) -> Arc<Sqs> {
        let scheme = if is_tls { "https" } else { "http" };
        let (sequence, recent, moves) = (Sequence::default(), Recent::default(), Moves::default());
        let attempts = Attempts::default();
        Arc::new(Sqs { broker, clock, options, scheme, sequence, recent, moves, attempts, tasks })
    }

    /// Whose the request is: as it was claimed, and the signature is that of the token. Answers the signature of a signed one.
    /// Errors: those of a missing, unknown or wrong signature.
    fn verify(
        &self,
        head: &Head,
        body: &[u8],
        (entrant, gate): (Entrant, &Gate),
    ) -> Result<(Entrant, Option<Signature>)> {
        if entrant.actor().is_some() && head.header("authorization").is_some_and(|it| bearer(&it).is_some()) {
            return Ok((entrant, None));
        }
        let header = |name: &str| head.header(name);
        let signed = signed(head, &header);
        let signature = Signature::read(&signed);
        if entrant.actor().is_some() {
            // Without tokens signatures are not checked.
            return Ok((entrant, signature.ok().flatten()));
        }
        let signature = signature?.ok_or_else(|| refused(Refusal::NoToken))?;
        let check = |secret: &str| signature.verify(&signed, body, secret, self.clock.now());
        let entrant = gate.verify(&signature.key_id, unknown_token, check)?;
        Ok((entrant, Some(signature)))
    }

    fn caller(&self, head: &Head, pass: Pass, sent: Sent, signature: Option<Signature>) -> Caller {
        let sender = signature.as_ref().filter(|_| pass.shown().is_none()).map(|it| it.key_id.clone());
        let plain = |text: &String| (1..=SENDER_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
        let name = || pass.actor().map_or_else(String::new, |actor| actor.name.to_string());
        let sender = sender.filter(plain).unwrap_or_else(name);
        let region = signature.map_or_else(|| self.options.region.clone(), |signature| signature.region);
        let url = match self.options.public_url.trim_end_matches('/') {
            "" => format!("{}://{}", self.scheme, head.header("host").unwrap_or_else(|| "localhost".to_owned())),
            url => url.to_owned(),
        };
        let invocation = head.header("amz-sdk-invocation-id").or_else(|| head.header("aws-sdk-invocation-id"));
        let invocation = invocation.filter(|id| ids::parse(id).is_some()).unwrap_or_else(ids::random);
        Caller { pass, sent, sender, region, url, invocation, trace_header: head.header("x-amzn-trace-id") }
    }

    /// The queue of a name, on which the action may act. Errors: `QueueDoesNotExist`, `UnsupportedOperation`.
    async fn queue_for(&self, caller: &Caller, name: &str) -> Result<Queue> {
        check_resource(&caller.pass, self.queue(name).await?)
    }

    /// The queue of a name as the store has it now, on which the action may act. Errors: `QueueDoesNotExist`, `UnsupportedOperation`.
    async fn queue_uncached_for(&self, caller: &Caller, name: &str) -> Result<Queue> {
        check_resource(&caller.pass, self.queue_uncached(name).await?)
    }

    /// Errors: `QueueDoesNotExist`.
    async fn queue(&self, name: &str) -> Result<Queue> {
        let topic = TopicName::new(name)?;
        let found = match self.broker.cached_topic(&topic).await {
            Err(error) if error.kind() != Kind::NotFound => return Err(error.into()),
            found => found.ok().map(|descriptor| default_queue(name, topic, descriptor)),
        };
        queue::older(found, self.queue_of_group(name).await?)
    }

    async fn queue_uncached(&self, name: &str) -> Result<Queue> {
        let topic = TopicName::new(name)?;
        let found = match self.broker.topic(&topic).await {
            Err(error) if error.kind() != Kind::NotFound => return Err(error.into()),
            found => found.ok().map(|descriptor| default_queue(name, topic, descriptor)),
        };
        queue::older(found, self.queue_of_group(name).await?)
    }

    /// `orders--audit` is the group `audit` of the topic `orders`.
    async fn queue_of_group(&self, name: &str) -> Result<Option<Queue>> {
        let Some((topic, group)) = name.split_once("--") else { return Ok(None) };
        let (Ok(topic), Ok(group)) = (TopicName::new(topic), GroupName::new(group)) else { return Ok(None) };
        match self.broker.cached_topic_with(&topic, &group).await {
            Ok(descriptor) => Ok(Some(Queue { name: name.to_owned(), topic, group, descriptor })),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn queue_or_create(&self, caller: &Caller, name: &str) -> Result<Queue> {
        let found = match self.queue(name).await {
            Err(failure) if failure.class == NO_QUEUE && self.options.auto_create && self.broker.creates_topics() => {
                self.auto_create(caller, name).await?;
                self.queue(name).await
            }
            found => found,
        };
        check_resource(&caller.pass, found?)
    }

    async fn run(&self, call: PermittedRequest, desk: &Desk) -> Result<Answer> {
        let PermittedRequest { action, caller, request, path } = call;
        let caller = &caller;
        let named = || queue_name(request.queue_url.as_deref(), &path);
        match action {
            Action::CreateQueue => self.create_queue(caller, &request).await,
            Action::ListQueues => self.list_queues(caller, &request).await,
            Action::GetQueueUrl => {
                let name = required(&request.queue_name, "QueueName")?;
                let queue = self.queue_or_create(caller, name).await?;
                let queue_url = Some(caller.queue_url(&self.options.account, &queue.name));
                Ok(Answer { queue_url, ..Answer::default() })
            }
            Action::StartMessageMoveTask => self.start_move(&request).await,
            Action::ListMessageMoveTasks => self.list_moves(&request).await,
            Action::CancelMessageMoveTask => self.cancel_move(&request).await,
            Action::SendMessage => {
                let queue = self.queue_or_create(caller, named()?).await?;
                self.send_message(caller, &queue, request.entries).await
            }
            Action::SendMessageBatch => {
                let queue = self.queue_or_create(caller, named()?).await?;
                self.send_batch(caller, &queue, request.entries).await
            }
            Action::ReceiveMessage => {
                let queue = self.queue_for(caller, named()?).await?;
                self.receive_message(caller, &queue, request, desk).await
            }
            Action::DeleteMessage
            | Action::DeleteMessageBatch
            | Action::ChangeMessageVisibility
            | Action::ChangeMessageVisibilityBatch => {
                let queue = self.queue_for(caller, named()?).await?;
                self.settle(action, &queue, request.entries).await
            }
            Action::GetQueueAttributes => self.get_attributes(caller, named()?, &request).await,
            Action::SetQueueAttributes => self.set_attributes(caller, named()?, &request).await,
            Action::AddPermission => self.add_permission(caller, named()?, &request).await,
            Action::RemovePermission => self.remove_permission(caller, named()?, &request).await,
            Action::TagQueue => self.tag_queue(caller, named()?, &request.tags).await,
            Action::UntagQueue => self.untag_queue(caller, named()?, &request.tag_keys).await,
            Action::ListQueueTags => {
                let tags = self.queue_uncached_for(caller, named()?).await?.tags();
                Ok(Answer { tags, ..Answer::default() })
            }
            Action::ListDeadLetterSourceQueues => {
                let queue = self.queue_for(caller, named()?).await?;
                self.list_sources(caller, &queue, &request).await
            }
            Action::DeleteQueue => self.delete_queue(&self.queue_uncached_for(caller, named()?).await?).await,
            Action::PurgeQueue => self.purge_queue(caller, &self.queue_for(caller, named()?).await?).await,
        }
    }
}

/// The name of the queue that a request is about: of a move of messages the one that they leave.
fn named_in<'a>(request: &'a Request, path: &'a str) -> Option<&'a str> {
    let of_move = request.source_arn.as_deref().and_then(name_of_arn);
    let of_name = || request.queue_name.as_deref();
    let of_url = || queue_name(request.queue_url.as_deref(), path).ok();
    of_move.or_else(of_name).or_else(of_url)
}

fn default_queue(name: &str, topic: TopicName, descriptor: Arc<Descriptor>) -> Queue {
    Queue { name: name.to_owned(), topic, group: GroupName::standard(), descriptor }
}

fn decode(protocol: &Protocol, head: &Head, body: &[u8]) -> Result<Decoded> {
    let unknown =
        |name: &str| Failure::new(UNKNOWN_ACTION, format!("The action {name} is not valid for this endpoint."));
    let named = |name: &str| Action::named(name).ok_or_else(|| unknown(&name.chars().take(80).collect::<String>()));
    match protocol {
        Protocol::Json(name) => Ok(Decoded::Json(named(name)?)),
        Protocol::Query => {
            if !matches!(head.method(), "GET" | "POST") {
                return Err(Failure::new(UNKNOWN_ACTION, format!("Queues do not take {}.", head.method())));
            }
            let mut pairs = protocol::pairs(head.query().unwrap_or_default())?;
            let form = str::from_utf8(body).map_err(|_| Failure::new(errors::MALFORMED, "The form is not UTF-8."))?;
            pairs.extend(protocol::pairs(form.trim())?);
            let action = pairs.iter().find(|(name, _)| name == "Action").map(|(_, value)| value.as_str());
            let action = action.ok_or_else(|| Failure::new(NO_ACTION, "The parameter Action is missing."))?;
            Ok(Decoded::Query(named(action)?, pairs))
        }
    }
}

/// A body that could not be read, or a request that may not come here.
fn unread((status, why): (u16, String)) -> Failure {
    match status {
        500.. => Failure::new(UNAVAILABLE, why),
        403 => Failure::new(DENIED, why),
        _ => Failure::new(errors::INVALID_PARAMETER, why),
    }
}

fn protocol_of(head: &Head) -> Protocol {
    let protocol = recognise(head.method(), head.path(), head.query(), |name| head.header(name));
    protocol.unwrap_or(Protocol::Query)
}

fn signed<'a>(head: &'a Head, header: &'a dyn Fn(&str) -> Option<String>) -> Signed<'a> {
    let amz = head.header_names().filter(|name| name.starts_with("x-amz-")).map(str::to_owned).collect();
    Signed { method: head.method(), path: head.path(), query: head.query(), header, amz }
}

fn bearer(authorization: &str) -> Option<&str> {
    authorization.strip_prefix("Bearer ").map(str::trim)
}

#[async_trait]
impl Gateway for Sqs {
    fn takes(&self, head: &Head) -> bool {
        recognise(head.method(), head.path(), head.query(), |name| head.header(name)).is_some()
    }

    fn body_bytes_max(&self) -> usize {
        BODY_BYTES_MAX
    }

    fn enter(&self, head: &Head, gate: &Gate) -> std::result::Result<Entrant, Box<GatewayReply>> {
        self.claimed(head, gate).map_err(|failure| Box::new(reply(&protocol_of(head), Log::default(), Err(failure))))
    }

    fn refuse(&self, head: &Head, status: u16, why: String) -> GatewayReply {
        reply(&protocol_of(head), Log::default(), Err(unread((status, why))))
    }

    async fn answer(&self, call: GatewayCall) -> GatewayReply {
        let GatewayCall { head, body, entrant, desk } = call;
        let (protocol, identity) = (protocol_of(&head), entrant.identity().clone());
        let mut log = Log { identity: Some(identity), ..Log::default() };
        let answered = match self.read(head, &protocol, body, (entrant, &desk), &mut log).await {
            Ok(call) => {
                let identity = call.caller.pass.identity().clone();
                log.identity = Some(identity.clone());
                identity.scope(self.run(call, &desk)).await
            }
            Err(failure) => Err(failure),
        };
        reply(&protocol, log, answered)
    }
}

/// The known facts about a request when it fails.
#[derive(Default)]
struct Log {
    action: Option<Action>,
    audit: Option<(Actor, Option<TopicName>)>,
    identity: Option<Identity>,
}

/// A request that was read and that its caller may make.
struct PermittedRequest {
    action: Action,
    caller: Caller,
    request: Request,
    path: String,
}

impl Sqs {
    /// Whose the request claims to be. Errors: those of a missing or incomplete signature, of an unknown key, and of a time that is
    /// too far from now: for none of them a body is read.
    fn claimed(&self, head: &Head, gate: &Gate) -> Result<Entrant> {
        if !gate.access().asks() {
            return gate.enter(Claim::Token(None)).map_err(refused);
        }
        let authorization = head.header("authorization");
        if let Some(token) = authorization.as_deref().and_then(bearer) {
            return gate.enter(Claim::Token(Some(token))).map_err(refused);
        }
        let header = |name: &str| head.header(name);
        let signature = Signature::read(&signed(head, &header))?.ok_or_else(|| refused(Refusal::NoToken))?;
        signature.check_time(self.clock.now())?;
        gate.enter(Claim::Key { id: &signature.key_id, peer: &head.peer() }).map_err(refused)
    }

    /// Whether it is written to the audit log: as [`rule`] says, and where it does what only operators may, which is a new queue with
    /// settings, or any where pushes create none.
    fn is_of_operators(&self, action: Action, request: Option<&Request>) -> bool {
        let has_settings = |request: &Request| !request.tags.is_empty() || has_settings(&request.attributes);
        let creates = action == Action::CreateQueue;
        rule(action).is_of_operators()
            || creates && (!self.broker.creates_topics() || request.is_some_and(has_settings))
    }

    /// The head and the body end here: a request that waits must not keep what its connection read.
    async fn read(
        &self,
        head: Head,
        protocol: &Protocol,
        body: std::result::Result<Bytes, (u16, String)>,
        (entrant, desk): (Entrant, &Desk),
        log: &mut Log,
    ) -> Result<PermittedRequest> {
        let body = body.map_err(unread)?;
        let (entrant, signature) = self.verify(&head, &body, (entrant, desk.gate()))?;
        let decoded = decode(protocol, &head, &body)?;
        let action = decoded.action();
        log.action = Some(action);
        let request = match &decoded {
            Decoded::Json(action) => protocol::decode_json(*action, &body),
            Decoded::Query(action, pairs) => protocol::decode_form(*action, pairs),
        };
        let body_bytes = body.len();
        drop(body);
        if let Some(actor) = entrant.actor()
            && self.is_of_operators(action, request.as_ref().ok())
        {
            let name = request
                .as_ref()
                .ok()
                .map_or_else(|| queue_name(None, head.path()).ok(), |it| named_in(it, head.path()));
            log.audit = Some((actor.clone(), name.and_then(|name| TopicName::new(name).ok())));
        }
        // Without tokens signatures are not checked; but no link makes a browser send one in a header.
        let asks = desk.gate().access().asks();
        let is_signed = signature.as_ref().is_some_and(|signature| asks || !signature.is_presigned());
        let sent = if head.method() == "GET" && !is_signed { Sent::ByLink } else { Sent::OnPurpose };
        let pass = desk.gate().pass_with_body(entrant, rule(action), sent, body_bytes).await.map_err(refused)?;
        // A request without the rights for it learns nothing else.
        let request = request?;
        let path = head.path().to_owned();
        Ok(PermittedRequest { action, caller: self.caller(&head, pass, sent, signature), request, path })
    }
}

fn reply(protocol: &Protocol, log: Log, answered: Result<Answer>) -> GatewayReply {
    let request_id = RequestId::current().unwrap_or_else(RequestId::fresh);
    let request_id = ids::of_message(request_id.as_str());
    let content_type = match protocol {
        Protocol::Json(_) => protocol::JSON_TYPE,
        Protocol::Query => protocol::XML_TYPE,
    };
    let mut headers = vec![("content-type", content_type.to_owned()), ("x-amzn-requestid", request_id.clone())];
    let route = log.action.map_or("AmazonSQS", Action::route);
    let (audit, identity) = (log.audit, log.identity);
    match answered {
        Ok(answer) => {
            let body = match (protocol, log.action) {
                (Protocol::Query, Some(action)) => protocol::encode_xml(action, &answer, &request_id),
                (Protocol::Json(_), Some(action)) => protocol::encode_json(action, &answer),
                (_, None) => Vec::new(),
            };
            GatewayReply { status: 200, headers, body, route, failure: None, audit, identity }
        }
        Err(failure) => {
            if failure.class == UNAVAILABLE {
                headers.push(("retry-after", "1".to_owned()));
            }
            let body = match protocol {
                Protocol::Json(_) => {
                    headers.push(("x-amzn-query-error", protocol::query_error_header(&failure)));
                    protocol::json_failure(&failure)
                }
                Protocol::Query => protocol::xml_failure(&failure, &request_id),
            };
            let described = Some((failure.class.shape, failure.message.into_owned()));
            GatewayReply { status: failure.class.status, headers, body, route, failure: described, audit, identity }
        }
    }
}

#[cfg(test)]
mod tests;

/// For fuzz/: what strangers send, read without a broker.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use super::errors::Failure;
    use super::model::{Action, Request};
    use super::sigv4::{Signature, Signed};
    use super::{celery, protocol};
    use crate::model::time::Timestamp;

    /// Reads a request of one of both protocols; says whether it is one.
    pub fn read(action: &str, is_json: bool, body: &[u8]) -> bool {
        let Some(action) = Action::named(action) else { return false };
        let read: Result<Request, Failure> = match (is_json, str::from_utf8(body)) {
            (true, _) => protocol::decode_json(action, body),
            (false, Ok(form)) => protocol::pairs(form).and_then(|pairs| protocol::decode_form(action, &pairs)),
            (false, Err(_)) => return false,
        };
        let Ok(request) = read else { return false };
        for entry in &request.entries {
            let _ = celery::due_and_ttl(entry.message_body.as_deref().unwrap_or_default(), Timestamp::from_ms(0));
        }
        true
    }

    /// The text of a name or value of a form.
    pub fn percent_decoded(text: &str) -> Option<String> {
        let pairs = protocol::pairs(&format!("a={text}")).ok()?;
        pairs.into_iter().next().map(|(_, value)| value)
    }

    /// An error of the Query protocol with a text of a stranger in it.
    pub fn xml(text: &str) -> Vec<u8> {
        protocol::xml_failure(&Failure::invalid(text.to_owned()), "id")
    }

    /// Reads a signature, as a header or as a query; answers whether it was read, and whether it was taken for valid.
    pub fn signature(authorization: Option<&str>, date: &str, query: Option<&str>) -> (bool, bool) {
        let header = |name: &str| match name {
            "authorization" => authorization.map(str::to_owned),
            "x-amz-date" => Some(date.to_owned()),
            _ => None,
        };
        let signed = Signed { method: "POST", path: "/", query, header: &header, amz: vec!["x-amz-date".to_owned()] };
        let Ok(Some(read)) = Signature::read(&signed) else { return (false, false) };
        (true, read.verify(&signed, b"", "a secret that no input has", Timestamp::from_ms(1_767_323_045_000)).is_ok())
    }
}
