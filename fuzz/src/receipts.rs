//! Receipts: what is read is what was signed, and a text that was never handed out settles nothing.

use dwell::delivery::Receipt;
use dwell::platform::signing_key::SigningKey;
use dwell::store::Epoch;
use libfuzzer_sys::Corpus;
use serde_json::json;

use crate::broker::{answer, request};
use crate::kept;
use crate::memory::bounded;

thread_local! {
    static KEY: SigningKey = SigningKey::from_text(&"A".repeat(43)).expect("a key");
}

pub(crate) fn run(data: &[u8]) -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    // As if the bytes were signed: what comes out of them is read again as it was.
    KEY.with(|key| {
        if let Some(receipt) = bounded(data, || Receipt::of_signed(data)) {
            let again = Receipt::read(&receipt.signed(key), std::slice::from_ref(key));
            assert_eq!(again, Ok(receipt));
        }
    });
    if let Some(epoch) = Epoch::parse(text) {
        assert_eq!(Epoch::parse(&epoch.to_string()), Some(epoch));
    }
    for verb in ["ack", "extend"] {
        for late in [false, true] {
            let mut body = json!({"receipts": [text], "late": late});
            if verb == "extend" {
                body["visibility_timeout"] = json!("1m");
            }
            let target = format!("/v1/topics/orders/groups/default/{verb}");
            let verdict = answer(request("POST", &target, body.to_string()));
            let (status, reason) = (&verdict.body["results"][0]["status"], &verdict.body["reason"]);
            assert!(status == "unknown" && reason == "invalid", "{}", verdict.body);
        }
    }
    kept(true)
}
