//! What a consumer asks about deliveries, as it is and as one request of the API.

use std::time::Duration;

use serde_json::{Value, json};

use crate::dispatch::Decision;

/// What is asked about deliveries.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    /// Settle them.
    Settle(Vec<(String, Decision)>),
    /// Move their deadlines.
    Extend(Vec<String>, Duration),
}

impl Ask {
    /// The receipts, in the order asked.
    pub(super) fn receipts(&self) -> Vec<&str> {
        match self {
            Ask::Settle(decisions) => decisions.iter().map(|(receipt, _)| receipt.as_str()).collect(),
            Ask::Extend(receipts, _) => receipts.iter().map(String::as_str).collect(),
        }
    }

    /// The part of it that stands at these places.
    pub(super) fn pick(&self, at: &[usize]) -> Ask {
        match self {
            Ask::Settle(decisions) => Ask::Settle(at.iter().filter_map(|at| decisions.get(*at).cloned()).collect()),
            Ask::Extend(receipts, timeout) => {
                Ask::Extend(at.iter().filter_map(|at| receipts.get(*at).cloned()).collect(), *timeout)
            }
        }
    }

    /// The request of the API in which the item at this place is asked.
    pub(super) fn verb(&self, at: usize) -> &'static str {
        match self {
            Ask::Settle(decisions) => match decisions.get(at) {
                Some((_, Decision::Ack)) | None => "ack",
                Some((_, Decision::Nack { .. } | Decision::Bury { .. })) => "nack",
            },
            Ask::Extend(..) => "extend",
        }
    }

    /// The body of that request: what is asked with `verb`, and nothing else.
    pub(super) fn body(&self, verb: &str) -> Value {
        let receipts = self.receipts();
        let items = (0..receipts.len()).filter(|at| self.verb(*at) == verb);
        let items: Vec<Value> = items.map(|at| self.item(at, receipts[at])).collect();
        match self {
            Ask::Settle(_) => json!({"receipts": items}),
            Ask::Extend(_, timeout) => json!({"receipts": items, "visibility_timeout_ms": ms(*timeout)}),
        }
    }

    fn item(&self, at: usize, receipt: &str) -> Value {
        let Ask::Settle(decisions) = self else { return json!(receipt) };
        let mut item = match decisions.get(at) {
            Some((_, Decision::Nack { delay, .. })) => match delay {
                Some(delay) => json!({"receipt": receipt, "delay_ms": ms(*delay)}),
                None => json!({"receipt": receipt}),
            },
            Some((_, Decision::Bury { .. })) => json!({"receipt": receipt, "bury": true}),
            Some((_, Decision::Ack)) | None => return json!(receipt),
        };
        if let Some((_, Decision::Nack { reason: Some(reason), .. } | Decision::Bury { reason: Some(reason) })) =
            decisions.get(at)
        {
            item["reason"] = json!(reason);
        }
        item
    }
}

/// Whole milliseconds.
fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_says_what_was_asked_and_nothing_else() {
        let nack = |delay, reason: Option<&str>| Decision::Nack { delay, reason: reason.map(str::to_owned) };
        let ask = Ask::Settle(vec![
            ("a".to_owned(), Decision::Ack),
            ("b".to_owned(), nack(Some(Duration::from_millis(1_500)), Some("busy"))),
            ("c".to_owned(), nack(None, None)),
            ("d".to_owned(), Decision::Bury { reason: Some("never".to_owned()) }),
        ]);
        assert_eq!(ask.body("ack"), json!({"receipts": ["a"]}));
        let nacks = json!([
            {"receipt": "b", "delay_ms": 1_500, "reason": "busy"}, {"receipt": "c"},
            {"receipt": "d", "bury": true, "reason": "never"},
        ]);
        assert_eq!(ask.body("nack"), json!({"receipts": nacks}));
        assert_eq!(ask.pick(&[3, 0]).receipts(), ["d", "a"]);
        let extend = Ask::Extend(vec!["a".to_owned()], Duration::from_secs(5));
        assert_eq!(extend.body("extend"), json!({"receipts": ["a"], "visibility_timeout_ms": 5_000}));
    }
}
