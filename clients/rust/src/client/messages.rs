//! Calls of producers: push, get, cancel and reschedule messages, one or many; list and explain them.

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use hyper::Method;
use hyper::header::{HeaderValue, IF_MATCH};

use super::error::{Error, NotAccepted, Refused};
use super::message::{MessageId, NewMessage, Reschedule};
use super::pages::Pages;
use super::{Call, Client, Query, backoff, encode, not_empty, topic_path};
use crate::wire::messages::{Control, Explained, ListedMessage, ListedMessages, Message};
use crate::wire::problem::Problem;
use crate::wire::push::{BatchResults, PushResult};
use crate::wire::time::Timestamp;

/// Messages of a batch, at most.
pub(crate) const BATCH_MESSAGES: usize = 1_000;
/// Bytes of a batch, at most: the broker takes 8 MiB.
pub(crate) const BATCH_BYTES: usize = 7 << 20;
/// Requests of a call for many messages that are under way at a time.
const AT_ONCE: usize = 8;

/// Which messages to list. Without a state: all that no consumer has and that are not dead.
#[derive(Debug, Clone, Default)]
pub struct MessageFilter {
    state: Option<String>,
    group: Option<String>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    order: Option<&'static str>,
    limit: Option<usize>,
}

impl MessageFilter {
    /// `scheduled`, `ready`, `blocked`, `backoff`, `in_flight` or `dead`.
    pub fn state(mut self, state: impl Into<String>) -> MessageFilter {
        self.state = Some(state.into());
        self
    }

    /// In this group. Default `default`.
    pub fn group(mut self, group: impl Into<String>) -> MessageFilter {
        self.group = Some(group.into());
        self
    }

    /// Due from this time on.
    pub fn from(mut self, from: impl Into<Timestamp>) -> MessageFilter {
        self.from = Some(from.into());
        self
    }

    /// Due before this time.
    pub fn to(mut self, to: impl Into<Timestamp>) -> MessageFilter {
        self.to = Some(to.into());
        self
    }

    /// By the time at which they are tried next, over all partitions. Default: partition by partition.
    pub fn by_due_time(mut self) -> MessageFilter {
        self.order = Some("due");
        self
    }

    /// Messages of a request, 1 to 1,000. Default 100.
    pub fn page(mut self, limit: usize) -> MessageFilter {
        self.limit = Some(limit);
        self
    }
}

impl Client {
    /// Pushes a message. It has an id before it is sent, so repeats store it once.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]: the message may be stored; push it again with the same id and key. [`Error::Refused`] with `conflict`: the
    /// topic has a message with this id, and [`NewMessage::conflict`] says that this is an error.
    pub async fn push(&self, topic: &str, message: NewMessage) -> Result<PushResult, Error> {
        let path = format!("{}/messages", topic_path(topic)?);
        let body = self.trace(message).encode()?;
        self.call(&Call::post(path).bytes(body)).await
    }

    /// Pushes messages in batches, and repeats those that the broker could not store. Answers a result for each, in order.
    ///
    /// # Errors
    ///
    /// [`Error::NotAccepted`]: some were not accepted; it has all results. Any other error: the broker refused a whole batch, and stored
    /// those before it.
    pub async fn push_many(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = NewMessage>,
    ) -> Result<Vec<PushResult>, Error> {
        let path = format!("{}/messages/batch", topic_path(topic)?);
        let encoded: Result<Vec<_>, Error> = messages.into_iter().map(|message| self.trace(message).encode()).collect();
        let (mut results, mut batch, mut size) = (Vec::new(), Vec::new(), 0);
        for body in encoded? {
            if batch.len() == BATCH_MESSAGES || (size + body.len() > BATCH_BYTES && !batch.is_empty()) {
                results.extend(self.push_batch(&path, &batch).await?);
                (batch, size) = (Vec::new(), 0);
            }
            size += body.len() + 1;
            batch.push(body);
        }
        if !batch.is_empty() {
            results.extend(self.push_batch(&path, &batch).await?);
        }
        match results.iter().find_map(|result: &PushResult| result.error.as_deref()) {
            None => Ok(results),
            Some(problem) => {
                let first = Refused::of(problem.clone());
                Err(Error::NotAccepted(Box::new(NotAccepted { first, results })))
            }
        }
    }

    async fn push_batch(&self, path: &str, batch: &[Vec<u8>]) -> Result<Vec<PushResult>, Error> {
        let until = Instant::now() + self.transport.retry_for;
        let mut results: Vec<Option<PushResult>> = vec![None; batch.len()];
        let (mut left, mut tries): (Vec<usize>, u32) = ((0..batch.len()).collect(), 0);
        loop {
            let call = Call::post(path).bytes(batch_body(left.iter().map(|n| batch[*n].as_slice())));
            let answer: BatchResults = self.call(&call).await?;
            if answer.results.len() != left.len() {
                return Err(self.transport.unreadable("it has not one result for each message"));
            }
            let mut again = Vec::new();
            for (n, result) in left.into_iter().zip(answer.results) {
                if result.error.as_deref().is_some_and(is_passing) {
                    again.push(n);
                }
                results[n] = Some(result);
            }
            left = again;
            let wait = backoff(tries, Duration::from_millis(50), Duration::from_secs(2));
            if left.is_empty() || Instant::now() + wait > until {
                return Ok(results.into_iter().flatten().collect());
            }
            tokio::time::sleep(wait).await;
            tries += 1;
        }
    }

    /// Gets a message with its state in the group `default`.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not-found`: no group has it any more.
    pub async fn get(&self, topic: &str, message: impl Into<MessageId>) -> Result<Message, Error> {
        self.call(&Call::get(message_path(topic, message.into(), "", None)?)).await
    }

    /// Gets a message with its state in a group.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not-found`: the group has it no more.
    pub async fn get_in(&self, topic: &str, group: &str, message: impl Into<MessageId>) -> Result<Message, Error> {
        not_empty("group", group)?;
        self.call(&Call::get(message_path(topic, message.into(), "", Some(group))?)).await
    }

    /// Gets messages, each with its state in the group `default`. Answers one result for each, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: a name is empty. Nothing was sent then.
    pub async fn get_many<M: Into<MessageId>>(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Result<Message, Error>>, Error> {
        self.get_many_in(topic, "default", messages).await
    }

    /// Gets messages, each with its state in a group. Answers one result for each, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: a name is empty. Nothing was sent then.
    pub async fn get_many_in<M: Into<MessageId>>(
        &self,
        topic: &str,
        group: &str,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Result<Message, Error>>, Error> {
        let messages = checked(topic, messages)?;
        Ok(stream::iter(messages).map(|message| self.get_in(topic, group, message)).buffered(AT_ONCE).collect().await)
    }

    /// Cancels a message in every group in which it waits.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `conflict`: a consumer has it, or it is dead; with `not-found`: it does not exist.
    pub async fn cancel(&self, topic: &str, message: impl Into<MessageId>) -> Result<Control, Error> {
        self.call(&Call::new(Method::DELETE, message_path(topic, message.into(), "", None)?)).await
    }

    /// Cancels messages. Answers one result for each, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: a name is empty. Nothing was sent then.
    pub async fn cancel_many<M: Into<MessageId>>(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Result<Control, Error>>, Error> {
        let messages = checked(topic, messages)?;
        Ok(stream::iter(messages).map(|message| self.cancel(topic, message)).buffered(AT_ONCE).collect().await)
    }

    /// Gives a message that waits another due time.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `conflict`: a consumer has it, or it is dead; with `precondition-failed`: it has another `etag`.
    pub async fn reschedule(
        &self,
        topic: &str,
        message: impl Into<MessageId>,
        to: Reschedule,
    ) -> Result<Control, Error> {
        let mut call = Call::new(Method::PATCH, message_path(topic, message.into(), "", None)?).json(&to.due)?;
        if let Some(etag) = &to.etag {
            let value = HeaderValue::from_str(etag).map_err(|_| Error::argument("etag is none that a broker gave"))?;
            call.header = Some((IF_MATCH, value));
        }
        self.call(&call).await
    }

    /// Gives messages that wait another due time. Answers one result for each, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: a name is empty. Nothing was sent then.
    pub async fn reschedule_many<M: Into<MessageId>>(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = M>,
        to: Reschedule,
    ) -> Result<Vec<Result<Control, Error>>, Error> {
        let messages = checked(topic, messages)?;
        let each = |message| self.reschedule(topic, message, to.clone());
        Ok(stream::iter(messages).map(each).buffered(AT_ONCE).collect().await)
    }

    /// Says for each group why a message is not delivered yet.
    pub async fn explain(&self, topic: &str, message: impl Into<MessageId>) -> Result<Explained, Error> {
        self.call(&Call::get(message_path(topic, message.into(), "/explain", None)?)).await
    }

    /// Lists messages by state and due time.
    pub fn list(&self, topic: &str, filter: MessageFilter) -> Pages<ListedMessage> {
        let topic = topic.to_owned();
        let ask = move |cursor: Option<&str>| {
            let query = Query::default()
                .with("state", filter.state.as_ref())
                .with("group", filter.group.as_ref())
                .with("from", filter.from)
                .with("to", filter.to)
                .with("order", filter.order)
                .with("limit", filter.limit)
                .with("cursor", cursor);
            Ok(Call::get(format!("{}/messages{query}", topic_path(&topic)?)))
        };
        Pages::new(self, ask, |page: ListedMessages| (page.messages, page.next_cursor))
    }
}

/// # Errors
///
/// [`Error::Argument`]: the topic, an id or a key is empty.
fn checked<M: Into<MessageId>>(topic: &str, messages: impl IntoIterator<Item = M>) -> Result<Vec<MessageId>, Error> {
    not_empty("topic", topic)?;
    let messages: Vec<MessageId> = messages.into_iter().map(Into::into).collect();
    messages.iter().try_for_each(MessageId::check)?;
    Ok(messages)
}

/// # Errors
///
/// [`Error::Argument`]: the topic, the id or the key is empty.
fn message_path(topic: &str, message: MessageId, rest: &str, group: Option<&str>) -> Result<String, Error> {
    message.check()?;
    let query = Query::default().with("key", message.key.as_ref()).with("group", group);
    Ok(format!("{}/messages/{}{rest}{query}", topic_path(topic)?, encode(&message.id)))
}

/// The body of a batch of messages that are written already.
pub(crate) fn batch_body<'a>(messages: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut body = b"{\"messages\":[".to_vec();
    for (n, message) in messages.enumerate() {
        if n > 0 {
            body.push(b',');
        }
        body.extend_from_slice(message);
    }
    body.extend_from_slice(b"]}");
    body
}

/// Whether the message may be stored by another try.
pub(crate) fn is_passing(problem: &Problem) -> bool {
    matches!(problem.name(), "full" | "unavailable" | "outcome-unknown" | "timeout")
}
