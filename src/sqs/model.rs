//! Requests and answers, the same for both protocols.
//!
//! One type has the parameters of every action: no name means two things. Unknown members are ignored and `null` is the
//! same as absent, as at AWS: newer clients send more.
//!
//! Attributes have a canonical form in bytes: clients compare its MD5.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use md5::{Digest, Md5};
use serde::de::{self, DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::errors::{Failure, Result};
pub(crate) use crate::model::attributes::{AttributeValue, Attributes, encode_attributes};

/// Entries of a list or a map. AWS takes at most 50 of anything; more are read to say how many were sent.
pub(crate) const ITEMS_MAX: usize = 256;

macro_rules! actions {
    ($($name:ident),+ $(,)?) => {
        /// A request of a client.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Action { $($name),+ }

        impl Action {
            pub(crate) const ALL: &[Action] = &[$(Action::$name),+];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Action::$name => stringify!($name)),+ }
            }

            /// Its label in metrics and in the audit log.
            pub(crate) fn route(self) -> &'static str {
                match self { $(Action::$name => concat!("AmazonSQS.", stringify!($name))),+ }
            }
        }
    };
}

actions! {
    AddPermission, CancelMessageMoveTask, ChangeMessageVisibility, ChangeMessageVisibilityBatch, CreateQueue,
    DeleteMessage, DeleteMessageBatch, DeleteQueue, GetQueueAttributes, GetQueueUrl, ListDeadLetterSourceQueues,
    ListMessageMoveTasks, ListQueueTags, ListQueues, PurgeQueue, ReceiveMessage, RemovePermission, SendMessage,
    SendMessageBatch, SetQueueAttributes, StartMessageMoveTask, TagQueue, UntagQueue,
}

impl Action {
    pub(crate) fn named(name: &str) -> Option<Action> {
        Action::ALL.iter().copied().find(|action| action.name() == name)
    }
}

impl Action {
    /// Whether it answers anything, also if that is nothing now.
    pub(crate) fn has_result(self) -> bool {
        let starts = ["Create", "Get", "List", "Receive", "Send", "Start", "Cancel"];
        starts.iter().any(|start| self.name().starts_with(start)) || self.name().ends_with("Batch")
    }

    /// Whether the request is one entry of the batch action.
    pub(crate) fn is_single(self) -> bool {
        matches!(self, Action::SendMessage | Action::DeleteMessage | Action::ChangeMessageVisibility)
    }
}

/// The parameters of any action.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Request {
    pub(crate) queue_url: Option<String>,
    pub(crate) queue_name: Option<String>,
    pub(crate) queue_name_prefix: Option<String>,
    pub(crate) next_token: Option<String>,
    #[serde(deserialize_with = "number")]
    pub(crate) max_results: Option<i64>,
    #[serde(deserialize_with = "map")]
    pub(crate) attributes: BTreeMap<String, String>,
    #[serde(deserialize_with = "list")]
    pub(crate) attribute_names: Vec<String>,
    #[serde(deserialize_with = "map", alias = "tags")]
    pub(crate) tags: BTreeMap<String, String>,
    #[serde(deserialize_with = "list")]
    pub(crate) tag_keys: Vec<String>,
    #[serde(deserialize_with = "number")]
    pub(crate) max_number_of_messages: Option<i64>,
    #[serde(deserialize_with = "number")]
    pub(crate) wait_time_seconds: Option<i64>,
    #[serde(deserialize_with = "number")]
    pub(crate) visibility_timeout: Option<i64>,
    #[serde(deserialize_with = "list")]
    pub(crate) message_system_attribute_names: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub(crate) message_attribute_names: Vec<String>,
    /// Of a batch; of the action for one message its only one.
    #[serde(deserialize_with = "list")]
    pub(crate) entries: Vec<Entry>,
    pub(crate) label: Option<String>,
    #[serde(rename = "AWSAccountIds", deserialize_with = "list")]
    pub(crate) aws_account_ids: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub(crate) actions: Vec<String>,
    pub(crate) source_arn: Option<String>,
    pub(crate) destination_arn: Option<String>,
    #[serde(deserialize_with = "number")]
    pub(crate) max_number_of_messages_per_second: Option<i64>,
    pub(crate) task_handle: Option<String>,
    pub(crate) receive_request_attempt_id: Option<String>,
}

/// The part of a request about one message.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Entry {
    pub(crate) id: Option<String>,
    pub(crate) message_body: Option<String>,
    #[serde(deserialize_with = "number")]
    pub(crate) delay_seconds: Option<i64>,
    #[serde(deserialize_with = "map")]
    pub(crate) message_attributes: Attributes,
    #[serde(deserialize_with = "map")]
    pub(crate) message_system_attributes: Attributes,
    pub(crate) message_deduplication_id: Option<String>,
    pub(crate) message_group_id: Option<String>,
    pub(crate) receipt_handle: Option<String>,
    #[serde(deserialize_with = "number")]
    pub(crate) visibility_timeout: Option<i64>,
}

/// Answers a parameter that has to be there. Errors: `MissingParameter`.
pub(crate) fn required<'a, T>(value: &'a Option<T>, name: &str) -> Result<&'a T> {
    value.as_ref().ok_or_else(|| Failure::missing(name))
}

/// Errors: `InvalidParameterValue`.
pub(crate) fn in_range(
    name: &str,
    value: Option<i64>,
    range: RangeInclusive<i64>,
    reason: &str,
) -> Result<Option<u64>> {
    match value {
        None => Ok(None),
        Some(value) if range.contains(&value) => Ok(u64::try_from(value).ok()),
        Some(value) => Err(Failure::parameter(name, value, reason)),
    }
}

/// A whole number, also as text: Query has nothing else.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    struct Number;

    impl Visitor<'_> for Number {
        type Value = Option<i64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number")
        }

        fn visit_unit<E: de::Error>(self) -> Result<Option<i64>, E> {
            Ok(None)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Option<i64>, E> {
            Ok(Some(number))
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Option<i64>, E> {
            Ok(Some(i64::try_from(number).unwrap_or(i64::MAX)))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<i64>, E> {
            text.trim().parse().map(Some).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Number)
}

fn map<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error> {
    deserializer.deserialize_any(Items(PhantomData::<T>)).map(|items| items.map)
}

fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_any(Items(PhantomData::<T>)).map(|items| items.list)
}

/// Reads a list or a map of at most [`ITEMS_MAX`] items, or `null`: a small body must not become a large value.
struct Items<T>(PhantomData<T>);

struct Counted<T> {
    list: Vec<T>,
    map: BTreeMap<String, T>,
}

impl<T> Default for Counted<T> {
    fn default() -> Counted<T> {
        Counted { list: Vec::new(), map: BTreeMap::new() }
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Items<T> {
    type Value = Counted<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {ITEMS_MAX} items")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Counted<T>, E> {
        Ok(Counted::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Counted<T>, A::Error> {
        let mut list = Vec::new();
        while list.len() < ITEMS_MAX {
            match items.next_element()? {
                Some(item) => list.push(item),
                None => return Ok(Counted { list, ..Counted::default() }),
            }
        }
        match items.next_element::<IgnoredAny>()? {
            None => Ok(Counted { list, ..Counted::default() }),
            Some(_) => Err(de::Error::invalid_length(ITEMS_MAX + 1, &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Counted<T>, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(name) = items.next_key()? {
            if map.len() == ITEMS_MAX {
                return Err(de::Error::invalid_length(ITEMS_MAX + 1, &self));
            }
            map.insert(name, items.next_value()?);
        }
        Ok(Counted { map, ..Counted::default() })
    }
}

/// The members of any answer. Absent fields are left out: clients tell an empty list from none.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue_url: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) queue_urls: Vec<String>,
    #[serde(rename = "queueUrls", skip_serializing_if = "Option::is_none")]
    pub(crate) source_queue_urls: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_token: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tags: BTreeMap<String, String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) sent: Option<Sent>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) messages: Vec<Received>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) successful: Option<Vec<Sent>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) failed: Vec<Failed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task_handle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) results: Option<Vec<MoveResult>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approximate_number_of_messages_moved: Option<u64>,
}

/// A message that was sent; of a batch with the id of its entry, which is all that other batches answer.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Sent {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message_id: Option<String>,
    #[serde(rename = "MD5OfMessageBody", skip_serializing_if = "Option::is_none")]
    pub(crate) md5_of_body: Option<String>,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub(crate) md5_of_attributes: Option<String>,
    #[serde(rename = "MD5OfMessageSystemAttributes", skip_serializing_if = "Option::is_none")]
    pub(crate) md5_of_system_attributes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequence_number: Option<String>,
}

/// A message in the hands of a consumer.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Received {
    pub(crate) message_id: String,
    pub(crate) receipt_handle: String,
    #[serde(rename = "MD5OfBody")]
    pub(crate) md5_of_body: String,
    pub(crate) body: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub(crate) md5_of_attributes: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) message_attributes: Attributes,
}

/// An entry of a batch that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Failed {
    pub(crate) id: String,
    pub(crate) sender_fault: bool,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Failed {
    pub(crate) fn new(id: String, failure: &Failure) -> Failed {
        let class = failure.class;
        let (sender_fault, code) = (class.is_of_the_sender(), class.code);
        Failed { id, sender_fault, code, message: failure.message.clone().into_owned() }
    }
}

/// A run of StartMessageMoveTask.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MoveResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task_handle: Option<String>,
    pub(crate) status: &'static str,
    pub(crate) source_arn: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destination_arn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_number_of_messages_per_second: Option<i64>,
    pub(crate) approximate_number_of_messages_moved: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approximate_number_of_messages_to_move: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure_reason: Option<String>,
    pub(crate) started_timestamp: u64,
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex_md5(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `None` without attributes: clients take the MD5 of nothing for a mistake.
pub(crate) fn attributes_md5(attributes: &Attributes) -> Option<String> {
    (!attributes.is_empty()).then(|| hex_md5(&encode_attributes(attributes)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn attributes() -> Attributes {
        let text = |data_type: &str, value: &str| AttributeValue {
            data_type: data_type.to_owned(),
            string_value: Some(value.to_owned()),
            binary_value: None,
        };
        let binary = AttributeValue {
            data_type: "Binary.gif".to_owned(),
            string_value: None,
            binary_value: Some(Bytes::from_static(b"\0\xff")),
        };
        let number = text("Number.int", "7");
        [("name".to_owned(), text("String", "öre")), ("b".to_owned(), binary), ("Count".to_owned(), number)].into()
    }

    #[test]
    fn md5_of_a_body_and_of_attributes_is_the_one_of_clients() {
        assert_eq!(hex_md5(b"hello"), "5d41402abc4b2a76b9719d911017c592");
        assert_eq!(attributes_md5(&Attributes::new()), None);
        // Computed with the algorithm of the AWS documentation, by hand.
        let bytes = b"\0\0\0\x05Count\0\0\0\x0aNumber.int\x01\0\0\0\x017\
            \0\0\0\x01b\0\0\0\x0aBinary.gif\x02\0\0\0\x02\0\xff\
            \0\0\0\x04name\0\0\0\x06String\x01\0\0\0\x04\xc3\xb6re";
        assert_eq!(encode_attributes(&attributes()), bytes);
        assert_eq!(attributes_md5(&attributes()), Some(hex_md5(bytes)));
    }
}
