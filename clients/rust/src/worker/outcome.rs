//! How a handler ended: what it answers, and the reason that the broker gets.

use std::any::{Any, type_name};
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::error::Error as StdError;
use std::fmt::{self, Write};
use std::panic::{self, Location};
use std::sync::Once;
use std::time::Duration;

use serde::Serialize;

/// Characters of a message that are sent, at most; the broker cuts at 1 KiB.
const MESSAGE_MAX: usize = 1_000;
/// Bytes of the other parts of a reason, at most.
const CLASS_MAX: usize = 256;
const STACK_MAX: usize = 4_096;

/// Why a handler failed. Every error becomes one with `?`; [`Retry`] and [`Bury`] say what happens to the message, and otherwise it is
/// delivered again after the backoff of its topic.
///
/// ```
/// use dwell_client::{Bury, Failure, Retry};
/// use std::time::Duration;
///
/// fn close(order: &str) -> Result<(), Failure> {
///     let order: u64 = order.parse().map_err(|_| Bury::new("the payload is no order"))?;
///     if order % 2 == 0 {
///         return Err(Retry::after(Duration::from_secs(60)).reason("the bank is closed").into());
///     }
///     std::fs::read_to_string("/no/such/file")?;
///     Ok(())
/// }
/// assert_eq!(close("7").unwrap_err().class(), Some("std::io::error::Error"));
/// ```
pub struct Failure {
    pub(super) outcome: Outcome,
    class: Option<&'static str>,
    message: String,
    stack: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Failed,
    Retry { after: Duration, pauses_key: bool },
    Bury,
}

impl Failure {
    /// A failure with this text.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { outcome: Outcome::Failed, class: None, message: message.into(), stack: None }
    }

    /// An error of a type that is not known here, such as that of `anyhow`:
    /// `work().map_err(|error| Failure::boxed(error.into()))?`.
    #[track_caller]
    pub fn boxed(error: Box<dyn StdError + Send + Sync>) -> Failure {
        if let Some(retry) = error.downcast_ref::<Retry>() {
            return Failure::from_any(retry, type_name::<Retry>());
        }
        if let Some(bury) = error.downcast_ref::<Bury>() {
            return Failure::from_any(bury, type_name::<Bury>());
        }
        Failure { stack: Some(stack_of(&*error, Location::caller())), ..Failure::new(error.to_string()) }
    }

    #[track_caller]
    fn from_any<E: StdError + 'static>(error: &E, class: &'static str) -> Failure {
        let any: &dyn Any = error;
        if let Some(retry) = any.downcast_ref::<Retry>() {
            let message = retry.reason.clone().unwrap_or_default();
            let outcome = Outcome::Retry { after: retry.after, pauses_key: retry.pauses_key };
            return Failure { outcome, ..Failure::new(message) };
        }
        if let Some(bury) = any.downcast_ref::<Bury>() {
            return Failure { outcome: Outcome::Bury, ..Failure::new(bury.reason.clone()) };
        }
        let stack = Some(stack_of(error, Location::caller()));
        Failure { outcome: Outcome::Failed, class: Some(class), message: error.to_string(), stack }
    }

    /// A panic of a handler, whose place was noted by the hook.
    pub(super) fn panicked(panic: &(dyn Any + Send)) -> Failure {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned());
        Failure { class: Some("panic"), stack: PANIC.take(), ..Failure::new(message) }
    }

    /// The type of the error.
    pub fn class(&self) -> Option<&str> {
        self.class
    }

    /// The text of the error.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn is_expected(&self) -> bool {
        self.outcome != Outcome::Failed
    }

    /// The reason for the broker; `None` if there is nothing to say.
    pub(super) fn reason(&self, with_details: bool) -> Option<Reason> {
        let message: String = self.message.chars().take(MESSAGE_MAX).collect();
        match (with_details, self.class, &self.stack) {
            (true, Some(class), stack) => {
                let stack = stack.as_ref().map(|stack| cut(stack, STACK_MAX).to_owned());
                Some(Reason::Full { class: Some(cut(class, CLASS_MAX).to_owned()), message, stack })
            }
            (true, None, Some(stack)) => {
                Some(Reason::Full { class: None, message, stack: Some(cut(stack, STACK_MAX).to_owned()) })
            }
            _ if message.is_empty() => None,
            _ => Some(Reason::Text(message)),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("outcome", &self.outcome)
            .field("class", &self.class)
            .field("message", &self.message)
            .finish()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Failure {
        Failure::from_any(&error, type_name::<E>())
    }
}

/// The reason that the broker keeps of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Reason {
    Text(String),
    Full {
        #[serde(skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        stack: Option<String>,
    },
}

/// The beginning of a text, up to a character. The innermost frames of a stack are at its beginning.
fn cut(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Where the error became a failure, what caused it, and the backtrace if `RUST_BACKTRACE` asks for one.
fn stack_of(error: &dyn StdError, place: &Location<'_>) -> String {
    let mut stack = format!("at {place}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(stack, "\ncaused by: {error}");
        cause = error.source();
    }
    let backtrace = Backtrace::capture();
    if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        let _ = write!(stack, "\n{backtrace}");
    }
    stack
}

thread_local! {
    /// Where the last panic of a handler on this thread arose.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

tokio::task_local! {
    /// Set while a handler runs.
    pub(super) static HANDLING: ();
}

/// Notes the places of panics of handlers; then each panic is reported as before.
pub(super) fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if HANDLING.try_with(|()| ()).is_ok() {
                let place = info.location().map(|place| format!("at {place}\n")).unwrap_or_default();
                PANIC.replace(Some(format!("{place}{}", Backtrace::force_capture())));
            }
            before(info);
        }));
    });
}

/// The error of a handler that wants the message again after some time, and not after the backoff of its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    after: Duration,
    pauses_key: bool,
    reason: Option<String>,
}

impl Retry {
    /// So long from now.
    pub fn after(after: Duration) -> Retry {
        Retry { after, pauses_key: false, reason: None }
    }

    /// All messages of its key wait as long as this one, as for an endpoint that answers 429 with `Retry-After`. Only in a fair group.
    pub fn pause_key(self) -> Retry {
        Retry { pauses_key: true, ..self }
    }

    /// Why, which is kept as the last error.
    pub fn reason(self, reason: impl Into<String>) -> Retry {
        Retry { reason: Some(reason.into()), ..self }
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_deref().unwrap_or("retry"))
    }
}

impl StdError for Retry {}

/// The error of a handler whose message can never succeed: it becomes a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bury {
    reason: String,
}

impl Bury {
    /// With this reason.
    pub fn new(reason: impl Into<String>) -> Bury {
        Bury { reason: reason.into() }
    }
}

impl fmt::Display for Bury {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl StdError for Bury {}
