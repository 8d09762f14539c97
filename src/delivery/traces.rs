//! The traces of deliveries that are in flight, so that the span of a settlement is a child of that of its delivery.
//!
//! Only those of sampled traces are kept, and at most a few thousand: of more, the oldest settlements have no span.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::receipt::Receipt;
use super::verdict::Verdict;
use crate::model::limits::SPANS_WAITING_MAX;
use crate::model::message::{GroupName, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::trace::TraceContext;
use crate::telemetry::spans::{Fault, Operation, Span, Tracer, about};

type Key = (Partition, MessageId, u32);

#[derive(Default)]
pub(super) struct Traces(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    contexts: HashMap<Key, TraceContext>,
    order: VecDeque<Key>,
}

/// The span of a settlement that has begun, with its receipt.
pub(super) struct Settling(Span, u32);

impl Traces {
    pub(super) fn keep(&self, partition: Partition, id: &MessageId, attempt: u32, context: TraceContext) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.order.len() == SPANS_WAITING_MAX
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.contexts.remove(&oldest);
        }
        let key = (partition, id.clone(), attempt);
        if kept.contexts.insert(key.clone(), context).is_none() {
            kept.order.push_back(key);
        }
    }

    pub(super) fn begin(&self, tracer: &Tracer, topic: &TopicName, receipt: &Receipt) -> Option<Settling> {
        let key = (receipt.partition, receipt.id.clone(), receipt.attempt);
        let context = {
            let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.contexts.get(&key).cloned()?
        };
        let span = tracer.begin(Operation::Settle, topic, Some(&context))?;
        Some(Settling(about(span, &receipt.id, receipt.partition), receipt.attempt))
    }
}

impl Settling {
    pub(super) fn end(self, group: &GroupName, verdict: Verdict) {
        let Settling(span, attempt) = self;
        let span = span.text("messaging.consumer.group.name", group).number("dwell.attempt", attempt);
        let fault = verdict.reason().map(|reason| Fault { kind: reason.to_owned(), detail: verdict.name().to_owned() });
        span.text("dwell.outcome", verdict.name()).end(fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;

    #[test]
    fn a_bounded_number_of_traces_is_kept() -> Result<()> {
        let (traces, context) = (Traces::default(), TraceContext::new([7; 16], [8; 8], 1, None)?);
        for attempt in 0..SPANS_WAITING_MAX as u32 + 9 {
            traces.keep(Partition(0), &MessageId::new("a")?, attempt, context.clone());
        }
        let kept = traces.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!((kept.contexts.len(), kept.order.len()), (SPANS_WAITING_MAX, SPANS_WAITING_MAX));
        assert_eq!(kept.order.front().map(|(_, _, attempt)| *attempt), Some(9));
        Ok(())
    }
}
