//! The name of what is behind a prefix.

use super::Shared;
use super::reply::maybe_text;
use crate::model::error::Result;

impl Shared {
    /// Read before it is written, so that a Redis that is full still says which one it is.
    pub(super) async fn store_id(&self, offered: &str) -> Result<String> {
        if self.clock.surely().is_none() {
            // Nothing goes to a Redis that has not said what time it is.
            self.observe_time().await?;
        }
        let key = self.keys.store_id();
        let there = self.connection.call(redis::cmd("GET").arg(&key)).await?;
        if let Some(there) = maybe_text(there)? {
            return Ok(there);
        }
        // Answers what was there, or nothing when the offer was taken.
        let mut offer = redis::cmd("SET");
        offer.arg(&key).arg(offered).arg("NX").arg("GET");
        Ok(maybe_text(self.connection.call(&offer).await?)?.unwrap_or_else(|| offered.to_owned()))
    }
}
