//! What waits in a window of due times. It is counted by going through it.

use super::Inner;
use super::keys::Score;
use super::pair::Stored;
use crate::model::error::Result;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::store::{Window, WindowPage};

/// Entries after which others get a turn.
const TURN: usize = 1_000;

impl Inner {
    pub(super) async fn window(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&(Timestamp, MessageId)>,
        limit: usize,
    ) -> Result<WindowPage> {
        let mut page = WindowPage::default();
        let Some(place) = self.topics().pair(pair).map(|(_, place)| place) else { return Ok(page) };
        let zset = Stored::new(&self.tree, place).zset();
        let last = after.map(|(_, last)| zset.score(last)).transpose()?.flatten();
        let is_behind = |score: Score, id: &MessageId| match (after, last) {
            (None, _) => true,
            (Some((at, after)), Some(last)) if last.at == *at => (score, id) > (last, after),
            // It is gone. In a topic with ordering the page begins with its millisecond again.
            (Some((at, _)), _) if score.tie > 0 => score.at >= *at,
            (Some((at, after)), _) => (score.at, id) > (*at, after),
        };
        for (number, entry) in zset.from(window.from).enumerate() {
            let (score, id) = entry?;
            if score.at >= window.to {
                break;
            }
            page.count += 1;
            if page.messages.len() < limit && is_behind(score, &id) {
                page.messages.push((score.at, id));
            }
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(page)
    }
}
