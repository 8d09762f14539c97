//! What waits in a window of due times.

use super::Shared;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use crate::model::error::Result;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::store::{Window, WindowPage};

impl Shared {
    pub(super) async fn window(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&(Timestamp, MessageId)>,
        limit: usize,
    ) -> Result<WindowPage> {
        let (due, id) = after.map_or((Timestamp::ZERO, ""), |(due, id)| (*due, id.as_str()));
        let call = Call::new(&SCRIPTS.window, &[&self.keys.pair(pair).zset])
            .arg(window.from.as_ms())
            .arg(window.to.as_ms())
            .arg(id)
            .arg(due.as_ms())
            .arg(limit);
        let mut reply = Reply::of(self.connection.eval(&call).await?)?;
        reply.text()?;
        let mut page = WindowPage { count: reply.number()?, messages: Vec::with_capacity(reply.left() / 2) };
        while reply.left() > 0 {
            let id = MessageId::new(reply.text()?)?;
            page.messages.push((reply.time()?.unwrap_or_default(), id));
        }
        Ok(page)
    }
}
