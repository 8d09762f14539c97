//! What waits in a window of due times. It is counted by going through it.

use super::Inner;
use super::pair::Stored;
use crate::error::Result;
use crate::message::MessageId;
use crate::store::{Window, WindowPage};
use crate::time::Timestamp;
use crate::topic::Pair;

/// Entries after which others get a turn.
const TURN: usize = 1_000;

impl Inner {
    pub(super) async fn window(
        &self,
        pair: &Pair,
        window: Window,
        after: Option<&(Timestamp, MessageId)>,
        limit: usize,
    ) -> Result<WindowPage> {
        let mut page = WindowPage::default();
        let Some(place) = self.topics().pair(pair).map(|(_, place)| place) else { return Ok(page) };
        let zset = Stored::new(&self.tree, place).zset();
        for (number, entry) in zset.from(window.from).enumerate() {
            let (due, id) = entry?;
            if due >= window.to {
                break;
            }
            page.count += 1;
            if page.messages.len() < limit && after.is_none_or(|(at, last)| (due, id.as_str()) > (*at, last.as_str())) {
                page.messages.push((due, id));
            }
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(page)
    }
}
