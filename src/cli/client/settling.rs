//! Settling: every receipt is answered for itself, also when none was settled.

use std::time::Duration;

use reqwest::Method;
use serde::Serialize;

use super::{CallResult, Client, GroupOf};
use crate::cli::api::{Extension, Nack, NackOfAll, Nacks, Receipts, Verdict, Verdicts};

impl Client {
    /// Says that deliveries are done.
    pub(in crate::cli) async fn ack(&self, group: &GroupOf, receipts: &[String]) -> CallResult<Vec<Verdict>> {
        self.settle(group, "ack", &Receipts { receipts }).await
    }

    /// Says that deliveries failed.
    pub(in crate::cli) async fn nack(&self, group: &GroupOf, receipts: &[Nack]) -> CallResult<Vec<Verdict>> {
        self.settle(group, "nack", &Nacks { receipts }).await
    }

    /// Says that deliveries failed, all in the same way.
    pub(in crate::cli) async fn nack_all(&self, group: &GroupOf, nack: &NackOfAll<'_>) -> CallResult<Vec<Verdict>> {
        self.settle(group, "nack", nack).await
    }

    /// Moves deadlines to `visibility_timeout` from now.
    pub(in crate::cli) async fn extend(
        &self,
        group: &GroupOf,
        receipts: &[String],
        visibility_timeout: Duration,
    ) -> CallResult<Vec<Verdict>> {
        self.settle(group, "extend", &Extension { receipts, visibility_timeout }).await
    }

    async fn settle(&self, group: &GroupOf, verb: &str, body: &impl Serialize) -> CallResult<Vec<Verdict>> {
        match self.call::<Verdicts>(self.request(Method::POST, &group.path(verb)).json(body)).await {
            Ok((_, answer)) => Ok(answer.results),
            // The verdict on a single receipt that was not settled.
            Err(error) => error.results().ok_or(error),
        }
    }
}
