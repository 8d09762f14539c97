//! The errors of SQS: a shape for JSON, a code for Query, a status, and the text that AWS sends.

use std::borrow::Cow;

use crate::delivery::Verdict;
use crate::model::error::{Error, Kind};
use crate::model::spelling::beginning;

/// The common part of every failure of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class {
    /// The name of the exception in JSON.
    pub(crate) shape: &'static str,
    /// The code in Query, and in the header `x-amzn-query-error`.
    pub(crate) code: &'static str,
    pub(crate) status: u16,
}

impl Class {
    const fn new(shape: &'static str, code: &'static str, status: u16) -> Class {
        Class { shape, code, status }
    }

    /// Whether the client is at fault, and a repeat is useless.
    pub(crate) fn is_of_the_sender(self) -> bool {
        self.status < 500
    }

    /// `Sender` or `Receiver`.
    pub(crate) fn side(self) -> &'static str {
        if self.is_of_the_sender() { "Sender" } else { "Receiver" }
    }
}

macro_rules! simple_queue_service {
    ($shape:literal, $status:literal) => {
        Class::new($shape, concat!("AWS.SimpleQueueService.", $shape), $status)
    };
}

pub(crate) const NO_QUEUE: Class = Class::new("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", 400);
pub(crate) const NAME_EXISTS: Class = Class::new("QueueNameExists", "QueueAlreadyExists", 400);
pub(crate) const DELETED_RECENTLY: Class = simple_queue_service!("QueueDeletedRecently", 400);
pub(crate) const INVALID_ADDRESS: Class = Class::new("InvalidAddress", "InvalidAddress", 404);
pub(crate) const INVALID_NAME: Class = Class::new("InvalidAttributeName", "InvalidAttributeName", 400);
pub(crate) const INVALID_ATTRIBUTE: Class = Class::new("InvalidAttributeValue", "InvalidAttributeValue", 400);
pub(crate) const INVALID_PARAMETER: Class = Class::new("InvalidParameterValueException", "InvalidParameterValue", 400);
pub(crate) const MISSING_PARAMETER: Class = Class::new("MissingRequiredParameterException", "MissingParameter", 400);
pub(crate) const INVALID_CONTENTS: Class = Class::new("InvalidMessageContents", "InvalidMessageContents", 400);
pub(crate) const INVALID_RECEIPT: Class = Class::new("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 404);
pub(crate) const EMPTY_BATCH: Class = simple_queue_service!("EmptyBatchRequest", 400);
pub(crate) const TOO_MANY_ENTRIES: Class = simple_queue_service!("TooManyEntriesInBatchRequest", 400);
pub(crate) const INVALID_ENTRY: Class = simple_queue_service!("InvalidBatchEntryId", 400);
pub(crate) const ENTRIES_NOT_DISTINCT: Class = simple_queue_service!("BatchEntryIdsNotDistinct", 400);
pub(crate) const BATCH_TOO_LONG: Class = simple_queue_service!("BatchRequestTooLong", 400);
pub(crate) const PURGE_IN_PROGRESS: Class = simple_queue_service!("PurgeQueueInProgress", 403);
pub(crate) const UNSUPPORTED: Class = simple_queue_service!("UnsupportedOperation", 400);
pub(crate) const NO_RESOURCE: Class = Class::new("ResourceNotFoundException", "ResourceNotFoundException", 404);
pub(crate) const THROTTLED: Class = Class::new("RequestThrottled", "RequestThrottled", 400);
pub(crate) const UNAVAILABLE: Class = Class::new("ServiceUnavailable", "ServiceUnavailable", 503);
pub(crate) const INTERNAL: Class = Class::new("InternalFailure", "InternalFailure", 500);
pub(crate) const UNKNOWN_ACTION: Class = Class::new("UnknownOperationException", "InvalidAction", 400);
pub(crate) const NO_ACTION: Class = Class::new("MissingActionException", "MissingAction", 400);
pub(crate) const MALFORMED: Class = Class::new("SerializationException", "MalformedInput", 400);
pub(crate) const NO_TOKEN: Class = Class::new("MissingAuthenticationToken", "MissingAuthenticationToken", 403);
pub(crate) const UNKNOWN_TOKEN: Class = Class::new("InvalidClientTokenId", "InvalidClientTokenId", 403);
pub(crate) const WRONG_SIGNATURE: Class = Class::new("SignatureDoesNotMatch", "SignatureDoesNotMatch", 403);
pub(crate) const INCOMPLETE_SIGNATURE: Class = Class::new("IncompleteSignature", "IncompleteSignature", 400);
pub(crate) const EXPIRED: Class = Class::new("RequestExpired", "RequestExpired", 403);
pub(crate) const DENIED: Class = Class::new("AccessDeniedException", "AccessDenied", 403);

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) message: Cow<'static, str>,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Bytes of a text of a client in a message.
const QUOTED_BYTES_MAX: usize = 2 * 1024;
/// Bytes of a message: an error does not wait for memory of answers.
const MESSAGE_BYTES_MAX: usize = QUOTED_BYTES_MAX + 512;

impl Failure {
    /// Of a long message only the beginning stays.
    pub(crate) fn new(class: Class, message: impl Into<Cow<'static, str>>) -> Failure {
        let message = match message.into() {
            long if long.len() > MESSAGE_BYTES_MAX => beginning(&long, MESSAGE_BYTES_MAX).to_owned().into(),
            message => message,
        };
        Failure { class, message }
    }

    pub(crate) fn no_queue() -> Failure {
        Failure::new(NO_QUEUE, "The specified queue does not exist.")
    }

    pub(crate) fn missing(parameter: &str) -> Failure {
        Failure::new(MISSING_PARAMETER, format!("The request must contain the parameter {parameter}."))
    }

    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(INVALID_PARAMETER, message)
    }

    /// A parameter with a wrong value; `reason` ends the sentence.
    pub(crate) fn parameter(name: &str, value: impl ToString, reason: &str) -> Failure {
        let value = value.to_string();
        let value = quoted(&value);
        Failure::invalid(format!("Value {value} for parameter {name} is invalid. Reason: {reason}"))
    }

    pub(crate) fn attribute(name: &str) -> Failure {
        Failure::new(INVALID_ATTRIBUTE, format!("Invalid value for the parameter {name}."))
    }

    pub(crate) fn receipt(handle: &str) -> Failure {
        let handle = quoted(handle);
        Failure::new(INVALID_RECEIPT, format!("The input receipt handle \"{handle}\" is not a valid receipt handle."))
    }

    /// The broker refused a settlement, or did not hear of its outcome.
    pub(crate) fn of_verdict(verdict: Verdict) -> Failure {
        match verdict {
            // Asking again is right for each: a settlement that was made is answered as before.
            Verdict::Unreachable | Verdict::Pending | Verdict::UnknownOutcome => {
                Failure::new(UNAVAILABLE, verdict.detail())
            }
            _ => Failure::new(INTERNAL, verdict.detail()),
        }
    }

    /// The text in Query, where it differs in one case.
    pub(crate) fn query_message(&self) -> &str {
        match self.class {
            NO_QUEUE => "The specified queue does not exist for this wsdl version.",
            _ => &self.message,
        }
    }
}

fn quoted(text: &str) -> &str {
    beginning(text, QUOTED_BYTES_MAX)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let class = match error.kind() {
            Kind::NotFound => return Failure::no_queue(),
            Kind::Invalid | Kind::TooLarge | Kind::Ambiguous => INVALID_PARAMETER,
            Kind::Forbidden => DENIED,
            Kind::Conflict => UNSUPPORTED,
            // SQS has no word for an outcome that nobody knows: what a client does about both is to ask again.
            Kind::Full | Kind::Stale | Kind::Unavailable | Kind::OutcomeUnknown => UNAVAILABLE,
            Kind::Corrupt | Kind::Bug => INTERNAL,
        };
        Failure::new(class, error.detail().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_are_retryable_and_mistakes_are_not() {
        let class = |kind| Failure::from(Error::new(kind, "x")).class;
        for kind in [Kind::Full, Kind::Unavailable, Kind::OutcomeUnknown, Kind::Corrupt, Kind::Bug] {
            assert!(!class(kind).is_of_the_sender(), "{kind:?}");
        }
        for kind in [Kind::Invalid, Kind::NotFound, Kind::TooLarge, Kind::Conflict, Kind::Forbidden] {
            assert!(class(kind).is_of_the_sender(), "{kind:?}");
        }
        assert_eq!(class(Kind::NotFound).code, "AWS.SimpleQueueService.NonExistentQueue");
    }

    #[test]
    fn a_settlement_without_an_outcome_is_to_be_repeated() {
        for verdict in [Verdict::Unreachable, Verdict::Pending, Verdict::UnknownOutcome] {
            assert_eq!(Failure::of_verdict(verdict).class, UNAVAILABLE, "{verdict:?}");
        }
    }

    #[test]
    fn long_client_text_is_cut_at_a_character() {
        let failure = Failure::receipt(&"é".repeat(100_000));
        assert!(failure.message.len() < QUOTED_BYTES_MAX + 100);
        assert_eq!(Failure::invalid("é".repeat(MESSAGE_BYTES_MAX)).message.len(), MESSAGE_BYTES_MAX);
        assert!(Failure::parameter("X", 7, "Z").message.contains("Value 7 for parameter X is invalid. Reason: Z"));
    }
}
