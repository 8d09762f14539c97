//! Receipts: what is read is what was written, and one that was never handed out settles nothing.

use dwell::delivery::Receipt;
use dwell::store::Epoch;
use libfuzzer_sys::Corpus;
use serde_json::json;

use crate::broker::{answer, request};
use crate::kept;
use crate::memory::bounded;

pub(crate) fn run(data: &[u8]) -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let receipt = bounded(data, || Receipt::parse(text));
    if let Some(receipt) = &receipt {
        assert_eq!(receipt.to_string(), text);
    }
    if let Some(epoch) = Epoch::parse(text) {
        assert_eq!(Epoch::parse(&epoch.to_string()), Some(epoch));
    }
    for verb in ["ack", "extend"] {
        let mut body = json!({"receipts": [text]});
        if verb == "extend" {
            body["visibility_timeout"] = json!("1m");
        }
        let target = format!("/v1/topics/orders/groups/default/{verb}");
        let verdict = answer(request("POST", &target, body.to_string()));
        let status = &verdict.body["results"][0]["status"];
        assert!(status == "unknown" || status == "stale", "{}", verdict.body);
        assert!(receipt.is_some() || verdict.body["reason"] == "malformed", "{}", verdict.body);
    }
    kept(true)
}
