//! Amazon SQS on dwell's listener: its requests become operations of the broker.
//!
//! A queue is a topic with its group `default`. The broker knows nothing of this; what SQS keeps with a queue are annotations
//! of the topic.

mod errors;
mod model;
mod protocol;
mod sigv4;
mod ids;
mod queue;
mod receipt;
mod send;
mod attempts;
mod receive;
mod manage;
mod moves;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use self::attempts::Attempts;
use self::errors::{DENIED, Failure, NO_QUEUE, NO_TOKEN, Result, UNAVAILABLE, UNKNOWN_ACTION};
use self::ids::Sequence;
use self::manage::Recent;
use self::model::{Action, Answer, Request, required};
use self::moves::Moves;
use self::protocol::{Protocol, recognise};
use self::queue::{Queue, queue_name};
use self::sigv4::{Signature, Signed, unknown_token};
use crate::api::access::{Access, Actor, Scope, Scopes, Shown};
use crate::api::http::{Consumers, Gateway, GatewayReply, Head};
use crate::broker::Broker;
use crate::model::error::Kind;
use crate::model::limits::DELAY_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::topic::Descriptor;
use crate::platform::clock::Clock;
use crate::platform::request_id::RequestId;
use crate::platform::tasks::Tasks;

/// A message of 1 MiB grows up to 6-fold in JSON and 3-fold in a form.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
const SENDER_MAX: usize = 100;

/// The requests of SQS clients, answered by a broker.
pub struct Sqs {
    broker: Broker,
    access: Access,
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

/// The actor of a request, and its metadata.
pub(crate) struct Caller {
    actor: Actor,
    shown: Option<Shown>,
    /// The name of the token, or the access key where none is needed.
    sender: String,
    region: String,
    /// Where the client reaches this broker, without a slash at the end.
    url: String,
    /// The same in all retries of one call of a client; of a client that does not say it, one that no other call has.
    invocation: String,
    trace_header: Option<String>,
}

impl Caller {
    fn needs(&self, scope: Scope) -> Result<()> {
        if self.actor.scopes.grant(Scopes::of(&[scope])) {
            return Ok(());
        }
        let (name, scope) = (&self.actor.name, scope.name());
        Err(Failure::new(DENIED, format!("The token {name} lacks the scope {scope}.")))
    }

    fn queue_url(&self, account: &str, name: &str) -> String {
        format!("{}/{account}/{name}", self.url)
    }

    fn arn(&self, account: &str, name: &str) -> String {
        format!("arn:aws:sqs:{}:{account}:{name}", self.region)
    }
}

/// The scope that an action needs; `View` is any token.
fn scope(action: Action) -> Scope {
    match action {
        Action::SendMessage | Action::SendMessageBatch | Action::CreateQueue => Scope::Produce,
        Action::ReceiveMessage
        | Action::DeleteMessage
        | Action::DeleteMessageBatch
        | Action::ChangeMessageVisibility
        | Action::ChangeMessageVisibilityBatch => Scope::Consume,
        Action::GetQueueUrl
        | Action::ListQueues
        | Action::GetQueueAttributes
        | Action::ListQueueTags
        | Action::ListDeadLetterSourceQueues
        | Action::ListMessageMoveTasks => Scope::View,
        _ => Scope::Admin,
    }
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
    pub fn new(
        broker: Broker,
        (access, clock): (Access, Clock),
        options: SqsOptions,
        is_tls: bool,
        tasks: Tasks,
    ) -> Arc<Sqs> {
        let scheme = if is_tls { "https" } else { "http" };
        let (sequence, recent, moves) = (Sequence::default(), Recent::default(), Moves::default());
        let attempts = Attempts::default();
        Arc::new(Sqs { broker, access, clock, options, scheme, sequence, recent, moves, attempts, tasks })
    }

    /// Errors: those of a missing, unknown or wrong signature.
    fn authenticate(&self, head: &Head, body: &[u8]) -> Result<Caller> {
        let header = |name: &str| head.header(name);
        let signed = Signed { method: head.method(), path: head.path(), query: head.query(), header: &header };
        let signature = Signature::read(&signed);
        if !self.access.asks() {
            let signature = signature.ok().flatten();
            let sender = signature.as_ref().map(|it| it.key_id.clone());
            return Ok(self.caller(head, (Actor::local(), None), sender, signature));
        }
        let bearer = head.header("authorization").and_then(|it| Some(it.strip_prefix("Bearer ")?.trim().to_owned()));
        if let Some(token) = bearer {
            let actor = self.access.authenticate(Some(&token)).ok_or_else(unknown_token)?.clone();
            return Ok(self.caller(head, (actor, Some(Shown::new(&token))), None, None));
        }
        let missing = || Failure::new(NO_TOKEN, "Request is missing Authentication Token");
        let signature = signature?.ok_or_else(missing)?;
        let (actor, secret) = self.access.named(&signature.key_id).ok_or_else(unknown_token)?;
        signature.verify(&signed, body, secret.expose(), self.clock.now())?;
        Ok(self.caller(head, (actor.clone(), Some(Shown::new(secret.expose()))), None, Some(signature)))
    }

    fn caller(
        &self,
        head: &Head,
        (actor, shown): (Actor, Option<Shown>),
        sender: Option<String>,
        signature: Option<Signature>,
    ) -> Caller {
        let plain = |text: &String| (1..=SENDER_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
        let sender = sender.filter(plain).unwrap_or_else(|| actor.name.to_string());
        let region = signature.map_or_else(|| self.options.region.clone(), |signature| signature.region);
        let url = match self.options.public_url.trim_end_matches('/') {
            "" => format!("{}://{}", self.scheme, head.header("host").unwrap_or_else(|| "localhost".to_owned())),
            url => url.to_owned(),
        };
        let invocation = head.header("amz-sdk-invocation-id").or_else(|| head.header("aws-sdk-invocation-id"));
        let invocation = invocation.filter(|id| ids::parse(id).is_some()).unwrap_or_else(ids::random);
        Caller { actor, shown, sender, region, url, invocation, trace_header: head.header("x-amzn-trace-id") }
    }

    /// The queue of a name. Errors: `QueueDoesNotExist`.
    async fn queue(&self, name: &str) -> Result<Queue> {
        let topic = TopicName::new(name)?;
        let found = self.broker.cached_topic(&topic).await;
        self.queue_found(name, topic, found).await
    }

    /// Of the topic of that name, or else of a group.
    async fn queue_found(
        &self,
        name: &str,
        topic: TopicName,
        found: crate::model::error::Result<Arc<Descriptor>>,
    ) -> Result<Queue> {
        match found {
            Ok(descriptor) => Ok(default_queue(name, topic, descriptor)),
            Err(error) if error.kind() == Kind::NotFound => self.queue_of_group(name).await,
            Err(error) => Err(error.into()),
        }
    }

    /// `orders--audit` is the group `audit` of the topic `orders`.
    async fn queue_of_group(&self, name: &str) -> Result<Queue> {
        let (topic, group) = name.split_once("--").ok_or_else(Failure::no_queue)?;
        let topic = TopicName::new(topic).map_err(|_| Failure::no_queue())?;
        let group = GroupName::new(group).map_err(|_| Failure::no_queue())?;
        let descriptor = self.broker.cached_topic(&topic).await?;
        match descriptor.groups.contains(&group) {
            true => Ok(Queue { name: name.to_owned(), topic, group, descriptor }),
            false => Err(Failure::no_queue()),
        }
    }

    /// As the store has it now.
    async fn queue_uncached(&self, name: &str) -> Result<Queue> {
        let topic = TopicName::new(name)?;
        let found = self.broker.topic(&topic).await;
        self.queue_found(name, topic, found).await
    }

    async fn queue_or_create(&self, caller: &Caller, name: &str) -> Result<Queue> {
        match self.queue(name).await {
            Err(failure) if failure.class == NO_QUEUE && self.options.auto_create => {
                self.auto_create(caller, name).await?;
                self.queue(name).await
            }
            found => found,
        }
    }

    async fn run(&self, call: Call, consumers: &Consumers) -> Result<Answer> {
        let Call { action, caller, request, path } = call;
        let caller = &caller;
        match action {
            Action::CreateQueue => return self.create_queue(caller, &request).await,
            Action::ListQueues => return self.list_queues(caller, &request).await,
            Action::GetQueueUrl => {
                let name = required(&request.queue_name, "QueueName")?;
                let queue = self.queue_or_create(caller, name).await?;
                let queue_url = Some(caller.queue_url(&self.options.account, &queue.name));
                return Ok(Answer { queue_url, ..Answer::default() });
            }
            Action::StartMessageMoveTask => return self.start_move(&request).await,
            Action::ListMessageMoveTasks => return self.list_moves(&request).await,
            Action::CancelMessageMoveTask => return self.cancel_move(&request).await,
            _ => {}
        }
        let name = queue_name(request.queue_url.as_deref(), &path)?;
        match action {
            Action::SendMessage => {
                let queue = self.queue_or_create(caller, name).await?;
                self.send_message(caller, &queue, request.entries).await
            }
            Action::SendMessageBatch => {
                let queue = self.queue_or_create(caller, name).await?;
                self.send_batch(caller, &queue, request.entries).await
            }
            Action::ReceiveMessage => {
                let queue = self.queue(name).await?;
                self.receive_message(caller, &queue, request, consumers).await
            }
            Action::DeleteMessage
            | Action::DeleteMessageBatch
            | Action::ChangeMessageVisibility
            | Action::ChangeMessageVisibilityBatch => {
                let queue = self.queue(name).await?;
                self.settle(action, &queue, request.entries).await
            }
            Action::GetQueueAttributes => self.get_attributes(caller, name, &request).await,
            Action::SetQueueAttributes => self.set_attributes(name, &request).await,
            Action::AddPermission => self.add_permission(caller, name, &request).await,
            Action::RemovePermission => self.remove_permission(caller, name, &request).await,
            Action::TagQueue => self.tag_queue(name, &request.tags).await,
            Action::UntagQueue => self.untag_queue(name, &request.tag_keys).await,
            Action::ListQueueTags => {
                let tags = self.queue_uncached(name).await?.tags();
                Ok(Answer { tags, ..Answer::default() })
            }
            Action::ListDeadLetterSourceQueues => {
                let queue = self.queue(name).await?;
                self.list_sources(caller, &queue, &request).await
            }
            Action::DeleteQueue => self.delete_queue(&self.queue_uncached(name).await?).await,
            Action::PurgeQueue => self.purge_queue(&self.queue(name).await?).await,
            _ => Err(Failure::new(UNKNOWN_ACTION, "The action is not implemented.")),
        }
    }
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
            let mut pairs = protocol::pairs(head.query().unwrap_or_default())?;
            let form = str::from_utf8(body).map_err(|_| Failure::new(errors::MALFORMED, "The form is not UTF-8."))?;
            pairs.extend(protocol::pairs(form.trim())?);
            let action = pairs.iter().find(|(name, _)| name == "Action").map(|(_, value)| value.as_str());
            Ok(Decoded::Query(named(action.unwrap_or_default())?, pairs))
        }
    }
}

/// A body that could not be read.
fn unread((status, why): (u16, String)) -> Failure {
    match status {
        500.. => Failure::new(UNAVAILABLE, why),
        _ => Failure::new(errors::INVALID_PARAMETER, why),
    }
}

#[async_trait]
impl Gateway for Sqs {
    fn takes(&self, head: &Head) -> bool {
        recognise(head.method(), head.path(), head.query(), |name| head.header(name)).is_some()
    }

    fn body_bytes_max(&self) -> usize {
        BODY_BYTES_MAX
    }

    async fn answer(
        &self,
        head: Head,
        body: std::result::Result<Bytes, (u16, String)>,
        consumers: Consumers,
    ) -> GatewayReply {
        let protocol = recognise(head.method(), head.path(), head.query(), |name| head.header(name));
        let protocol = protocol.unwrap_or(Protocol::Query);
        let mut log = Log { action: None, audit: None };
        let answered = match self.read(head, &protocol, body, &mut log) {
            Ok(call) => self.run(call, &consumers).await,
            Err(failure) => Err(failure),
        };
        reply(&protocol, log, answered)
    }
}

/// The known facts about a request when it fails.
struct Log {
    action: Option<Action>,
    audit: Option<(Actor, Option<TopicName>)>,
}

/// A request that was read and that its caller may make.
struct Call {
    action: Action,
    caller: Caller,
    request: Request,
    path: String,
}

impl Sqs {
    /// The head and the body end here: a request that waits must not keep what its connection read.
    fn read(
        &self,
        head: Head,
        protocol: &Protocol,
        body: std::result::Result<Bytes, (u16, String)>,
        log: &mut Log,
    ) -> Result<Call> {
        let body = body.map_err(unread)?;
        let caller = self.authenticate(&head, &body)?;
        let decoded = decode(protocol, &head, &body)?;
        let action = decoded.action();
        log.action = Some(action);
        let request = match &decoded {
            Decoded::Json(action) => protocol::decode_json(*action, &body)?,
            Decoded::Query(action, pairs) => protocol::decode_form(*action, pairs)?,
        };
        if scope(action) == Scope::Admin {
            let name = queue_name(request.queue_url.as_deref(), head.path()).ok();
            log.audit = Some((caller.actor.clone(), name.and_then(|name| TopicName::new(name).ok())));
        }
        if scope(action) != Scope::View {
            caller.needs(scope(action))?;
        }
        Ok(Call { action, caller, request, path: head.path().to_owned() })
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
    let audit = log.audit;
    match answered {
        Ok(answer) => {
            let body = match (protocol, log.action) {
                (Protocol::Query, Some(action)) => protocol::encode_xml(action, &answer, &request_id),
                (Protocol::Json(_), Some(action)) => protocol::encode_json(action, &answer),
                (_, None) => Vec::new(),
            };
            GatewayReply { status: 200, headers, body, route, failure: None, audit }
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
            GatewayReply { status: failure.class.status, headers, body, route, failure: described, audit }
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
    use super::{protocol, send};
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
            let _ = send::of_body(entry.message_body.as_deref().unwrap_or_default(), Timestamp::from_ms(0));
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
        let signed = Signed { method: "POST", path: "/", query, header: &header };
        let Ok(Some(read)) = Signature::read(&signed) else { return (false, false) };
        (true, read.verify(&signed, b"", "a secret that no input has", Timestamp::from_ms(1_767_323_045_000)).is_ok())
    }
}
