//! A client of dwell, a partitioned delay broker: push messages with a delay, and handle them when they are due.
//!
//! With the feature `client`, `Client` pushes messages and has every call of operators, `Producer` gathers single pushes into batches,
//! `Worker` runs a handler for each message that is due, and `testing` starts a broker whose time a test moves. With `wire` alone, this
//! crate has requests and answers as types.

#[cfg(feature = "wire")]
pub mod wire;

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod producer;
#[cfg(feature = "client")]
mod worker;
#[cfg(feature = "client")]
pub mod testing;

#[cfg(feature = "client")]
pub use client::{
    Client, ClientBuilder, Conflict, DeadLetterFilter, DeliveryStream, Error, MessageFilter, MessageId, NewMessage,
    NotAccepted, Pages, Past, Put, Refused, Reschedule, StreamOptions, Trace, Unavailable, Unreadable,
};
#[cfg(feature = "client")]
pub use producer::{Producer, ProducerBuilder};
#[cfg(feature = "client")]
pub use wire::bulk::{BulkChange, BulkChanged, GroupForecast};
#[cfg(feature = "client")]
pub use wire::consume::{Deliveries, Reserve};
#[cfg(feature = "client")]
pub use wire::cron::{CronJob, NewCronJob};
#[cfg(feature = "client")]
pub use wire::dead_letters::{DeadLetterMessage, DeadLetterSelector, Purged, Redriven};
#[cfg(feature = "client")]
pub use wire::groups::{DeliveryWindow, Findings, Group, GroupDescription, NewGroup, PurgeOf};
#[cfg(feature = "client")]
pub use wire::messages::{Contents, Control, Explained, ListedMessage, Message, Meta};
#[cfg(feature = "client")]
pub use wire::operations::{AttentionList, Draining, ListedBroker, Ready, Reloaded};
#[cfg(feature = "client")]
pub use wire::push::PushResult;
#[cfg(feature = "client")]
pub use wire::settle::{Ack, Extend, Nack, Nacked, Release, Settled};
#[cfg(feature = "client")]
pub use wire::time::Timestamp;
#[cfg(feature = "client")]
pub use wire::topics::{Backoff, Moved, Topic, TopicDescription, TopicSettings};
#[cfg(feature = "client")]
pub use worker::{Bury, Delivery, Event, Failure, Retry, Stats, Worker, WorkerBuilder, terminated};
