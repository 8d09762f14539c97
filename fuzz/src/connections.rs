//! Connections: pieces of what a client sends, with a NUL between two, and then it closes its sending side.

use std::time::Duration;

use dwell::api::http::fuzzing::conversation;
use libfuzzer_sys::Corpus;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::kept;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

/// Far more than a conversation takes that is not stuck: who has closed the sending side is answered, or gone.
const STUCK: Duration = Duration::from_secs(5);

pub(crate) fn run(data: &[u8]) -> Corpus {
    let pieces: Vec<&[u8]> = data.split(|byte| *byte == 0).collect();
    let answers = RUNTIME.with(|runtime| runtime.block_on(async { timeout(STUCK, conversation(&pieces)).await }));
    let answers = answers.unwrap_or_else(|_| panic!("the conversation does not end"));
    assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."), "{:?}", String::from_utf8_lossy(&answers));
    kept(answers.windows(13).any(|some| some.starts_with(b"HTTP/1.") && some.ends_with(b" 200 ")))
}
