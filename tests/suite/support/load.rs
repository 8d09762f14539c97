//! The rhythm of a load that lasts, on real time.

use std::time::Duration;

/// The pause before its next step.
pub(crate) async fn pause_of_load(pause: Duration) {
    tokio::time::sleep(pause).await;
}
