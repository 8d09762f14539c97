//! Settings of SQS.

use std::time::Duration;

use crate::model::limits::DELAY_MAX;

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
