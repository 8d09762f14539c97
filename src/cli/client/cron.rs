//! Requests about cron jobs.

use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde_json::Value;

use super::super::api::{CronJob, CronPage};
use super::{CallResult, Client};
use crate::model::message::{ScheduleName, TopicName};

impl Client {
    /// Creates or replaces a cron job, and says whether it was created.
    pub(in crate::cli) async fn put_cron_job(
        &self,
        topic: &TopicName,
        name: &ScheduleName,
        cron: &impl Serialize,
    ) -> CallResult<(bool, CronJob)> {
        let request = self.request(Method::PUT, &format!("/{topic}/cron/{name}")).json(cron);
        self.call(request).await.map(|(status, cron)| (status == StatusCode::CREATED, cron))
    }

    /// A cron job, with every field.
    pub(in crate::cli) async fn cron_job(&self, topic: &TopicName, name: &ScheduleName) -> CallResult<Value> {
        self.call(self.request(Method::GET, &format!("/{topic}/cron/{name}"))).await.map(|(_, cron)| cron)
    }

    /// A page of the cron jobs of a topic.
    pub(in crate::cli) async fn cron_jobs(&self, topic: &TopicName, cursor: Option<&str>) -> CallResult<CronPage> {
        let query: Vec<_> = cursor.map(|cursor| ("cursor", cursor)).into_iter().collect();
        self.call(self.request(Method::GET, &format!("/{topic}/cron")).query(&query)).await.map(|(_, page)| page)
    }

    /// Pauses or resumes a cron job.
    pub(in crate::cli) async fn pause_cron_job(
        &self,
        topic: &TopicName,
        name: &ScheduleName,
        verb: &str,
    ) -> CallResult<CronJob> {
        let request = self.request(Method::POST, &format!("/{topic}/cron/{name}/{verb}"));
        self.call(request).await.map(|(_, cron)| cron)
    }

    /// Deletes a cron job.
    pub(in crate::cli) async fn delete_cron_job(&self, topic: &TopicName, name: &ScheduleName) -> CallResult<()> {
        self.send(self.request(Method::DELETE, &format!("/{topic}/cron/{name}"))).await.map(drop)
    }
}
