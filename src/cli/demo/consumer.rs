//! A consumer of the demo: waits for messages, does what they say, and settles them while it already waits for more.

use std::cell::RefCell;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::ledger::Ledger;
use super::orders::{self, Action, CALLBACK_RETRIES, Order, POISON_ATTEMPTS, POISON_BACKOFF, Work};
use crate::cli::api::{Delivery, Nack, Reserve, Verdict};
use crate::cli::client::{CallResult, Client, GroupOf};
use crate::cli::failure::Failure;
use crate::platform::clock::{Clock, Instant};

/// Deliveries to take at a time.
const MAX: usize = 100;

/// How long one request waits.
const WAIT: Duration = Duration::from_secs(2);

/// One consumer of a group; all of them share what they need.
#[derive(Clone, Copy)]
pub(super) struct Consumer<'a> {
    pub(super) client: &'a Client,
    pub(super) of: &'a GroupOf,
    pub(super) ledger: &'a RefCell<Ledger>,
    pub(super) clock: &'a Clock,
    pub(super) orders: &'a [Order],
}

/// What to say of deliveries.
#[derive(Default)]
struct Decisions {
    acks: Vec<(String, String)>,
    nacks: Vec<(String, Nack)>,
}

impl Consumer<'_> {
    /// Consumes until `until`. Everything that fails here ends the demo.
    pub(super) async fn run(self, until: Instant) -> Result<(), Failure> {
        let paid = orders::paid(self.orders);
        let request = Reserve { max: MAX, wait: WAIT, visibility_timeout: None, min_age: None };
        let mut settling = FuturesUnordered::new();
        while self.clock.instant() < until {
            let reserving = self.client.reserve(self.of, &request);
            tokio::pin!(reserving);
            let deliveries = loop {
                tokio::select! {
                    deliveries = &mut reserving => break deliveries?,
                    Some(settled) = settling.next(), if !settling.is_empty() => settled?,
                }
            };
            let at = self.clock.now();
            let mut decisions = Decisions::default();
            for delivery in &deliveries {
                self.ledger.borrow_mut().delivered(delivery, at);
                self.decide(delivery, &mut decisions, |order| paid.get(order).copied().unwrap_or(false));
            }
            settling.push(self.settle(decisions));
        }
        while let Some(settled) = settling.next().await {
            settled?;
        }
        Ok(())
    }

    /// Does what a message says, as far as a demo can.
    fn decide(&self, delivery: &Delivery, decisions: &mut Decisions, is_paid: impl Fn(&str) -> bool) {
        let text = delivery.payload.text.as_deref().unwrap_or_default();
        let failed = |delay, again, reason: String| {
            self.ledger.borrow_mut().nacking(&delivery.id, self.clock.now(), again);
            (delivery.id.clone(), Nack { receipt: delivery.receipt.clone(), delay, reason: Some(reason) })
        };
        let before = usize::try_from(delivery.attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        match serde_json::from_str::<Work>(text) {
            Err(why) => {
                // The consumer leaves it to the topic's backoff, and the broker to give up.
                let again = POISON_BACKOFF.get(before).copied().filter(|_| delivery.attempt < POISON_ATTEMPTS);
                decisions.nacks.push(failed(None, again, format!("unreadable payload: {why}")));
                return;
            }
            Ok(work) if work.action == Action::Callback => {
                if let Some(delay) = CALLBACK_RETRIES.get(before).copied() {
                    let reason = format!("503 Service Unavailable from the shop, order {}", work.order);
                    decisions.nacks.push(failed(Some(delay), Some(delay), reason));
                    return;
                }
            }
            Ok(work) if work.action == Action::CloseIfUnpaid => {
                let mut ledger = self.ledger.borrow_mut();
                if is_paid(&work.order) { ledger.paid += 1 } else { ledger.closed += 1 }
            }
            Ok(_) => {}
        }
        decisions.acks.push((delivery.id.clone(), delivery.receipt.clone()));
    }

    async fn settle(self, decisions: Decisions) -> Result<(), Failure> {
        if !decisions.acks.is_empty() {
            let (ids, receipts): (Vec<_>, Vec<_>) = decisions.acks.into_iter().unzip();
            self.note(&ids, "acked", self.client.ack(self.of, &receipts).await)?;
        }
        if !decisions.nacks.is_empty() {
            let (ids, nacks): (Vec<_>, Vec<_>) = decisions.nacks.into_iter().unzip();
            self.note(&ids, "nacked", self.client.nack(self.of, &nacks).await)?;
        }
        Ok(())
    }

    fn note(&self, ids: &[String], wanted: &str, verdicts: CallResult<Vec<Verdict>>) -> Result<(), Failure> {
        let verdicts = verdicts?;
        let mut ledger = self.ledger.borrow_mut();
        for (id, verdict) in ids.iter().zip(&verdicts) {
            ledger.settled(id, wanted, &verdict.status);
        }
        Ok(())
    }
}
