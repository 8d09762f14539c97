//! Cron jobs: messages that recur.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde::Serialize;

use super::error::Error;
use super::pages::Pages;
use super::{Call, Client, Put, Query, encode, not_empty, topic_path};
use crate::wire::cron::{CronJob, CronJobs, NewCronJob};
use crate::wire::time::Timestamp;

impl Client {
    /// Creates a cron job, or changes it. A second call changes nothing.
    pub async fn put_cron(&self, topic: &str, name: &str, cron: NewCronJob) -> Result<Put<CronJob>, Error> {
        if cron.cron.is_some() == (cron.every.is_some() || cron.every_ms.is_some()) {
            return Err(Error::argument("a cron job has a cron expression or a span from one occurrence to the next"));
        }
        self.put(&Call::new(Method::PUT, cron_path(topic, name, "")?).json(&cron)?).await
    }

    /// A cron job with the time of its next occurrence.
    pub async fn cron(&self, topic: &str, name: &str) -> Result<CronJob, Error> {
        self.call(&Call::get(cron_path(topic, name, "")?)).await
    }

    /// The cron jobs of a topic.
    pub fn crons(&self, topic: &str) -> Pages<CronJob> {
        let topic = topic.to_owned();
        let ask = move |cursor: Option<&str>| {
            let query = Query::default().with("cursor", cursor);
            Ok(Call::get(format!("{}/cron{query}", topic_path(&topic)?)))
        };
        Pages::new(self, ask, |page: CronJobs| (page.cron_jobs, page.next_cursor))
    }

    /// Pushes nothing of a cron job until it is resumed.
    pub async fn pause_cron(&self, topic: &str, name: &str) -> Result<CronJob, Error> {
        self.call(&Call::post(cron_path(topic, name, "/pause")?)).await
    }

    /// Continues a cron job with its next occurrence.
    pub async fn resume_cron(&self, topic: &str, name: &str) -> Result<CronJob, Error> {
        self.call(&Call::post(cron_path(topic, name, "/resume")?)).await
    }

    /// Deletes a cron job. Messages that it has pushed stay.
    pub async fn delete_cron(&self, topic: &str, name: &str) -> Result<(), Error> {
        self.call(&Call::new(Method::DELETE, cron_path(topic, name, "")?)).await
    }
}

fn cron_path(topic: &str, name: &str, rest: &str) -> Result<String, Error> {
    not_empty("name", name)?;
    Ok(format!("{}/cron/{}{rest}", topic_path(topic)?, encode(name)))
}

/// Its fields are given by name: `NewCronJob::at("0 3 * * *").time_zone("Europe/Berlin").text("close the books")`.
impl NewCronJob {
    /// At the times of a cron expression, such as `0 3 * * *` or `@daily`.
    pub fn at(cron: impl Into<String>) -> NewCronJob {
        NewCronJob { cron: Some(cron.into()), payload: Some(String::new()), ..NewCronJob::default() }
    }

    /// At equal intervals.
    pub fn each(every: Duration) -> NewCronJob {
        NewCronJob { every_ms: Some(every), payload: Some(String::new()), ..NewCronJob::default() }
    }

    /// The time zone of the cron expression. Default `UTC`.
    pub fn time_zone(mut self, name: impl Into<String>) -> NewCronJob {
        self.time_zone = Some(name.into());
        self
    }

    /// Occurrences are whole intervals after this.
    pub fn starting(mut self, from: impl Into<Timestamp>) -> NewCronJob {
        self.from = Some(from.into());
        self
    }

    /// Which missed occurrences are pushed later: `skip` (none), `last` or `all`. Default `last`.
    pub fn missed(mut self, policy: impl Into<String>) -> NewCronJob {
        self.missed = Some(policy.into());
        self
    }

    /// How long after its occurrence a message is worth delivering.
    pub fn ttl(mut self, ttl: Duration) -> NewCronJob {
        self.ttl_ms = Some(ttl);
        self
    }

    /// Attempts before a message is dead; 0 is without a limit. Default: the topic's.
    pub fn max_attempts(mut self, attempts: u32) -> NewCronJob {
        self.max_attempts = Some(attempts);
        self
    }

    /// The payload, as text.
    pub fn text(self, text: impl Into<String>) -> NewCronJob {
        NewCronJob { payload: Some(text.into()), payload_base64: None, payload_json: None, ..self }
    }

    /// The payload, as bytes.
    pub fn bytes(self, bytes: impl AsRef<[u8]>) -> NewCronJob {
        NewCronJob { payload: None, payload_base64: Some(STANDARD.encode(bytes)), payload_json: None, ..self }
    }

    /// The payload, as JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: the value has no form in JSON.
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> Result<NewCronJob, Error> {
        let raw =
            serde_json::value::to_raw_value(value).map_err(|error| Error::argument(format!("payload: {error}")))?;
        Ok(NewCronJob { payload: None, payload_base64: None, payload_json: Some(raw), ..self })
    }

    /// The media type of the payload.
    pub fn content_type(mut self, content_type: impl Into<String>) -> NewCronJob {
        self.content_type = Some(content_type.into());
        self
    }

    /// A name and a value that travel with the payload.
    pub fn meta(mut self, name: impl Into<String>, value: impl Into<String>) -> NewCronJob {
        self.meta.get_or_insert_default().0.push((name.into(), value.into()));
        self
    }
}
