//! Many messages by their due times: counted, changed, forecast.

use std::time::Duration;

use super::error::Error;
use super::pages::Pages;
use super::{Call, Client, Query, group_path};
use crate::wire::bulk::{BulkChange, BulkChanged, BulkCount, GroupForecast};
use crate::wire::time::{Timestamp, show_span};

impl Client {
    /// Changes the messages of a group that are due in a window:
    /// `bulk("orders", "default", BulkChange::cancel(from, to)).total()`. Each item is the progress of one request. To postpone or
    /// advance is not repeated after a lost answer, since messages that are still in the window would move again.
    pub fn bulk(&self, topic: &str, group: &str, change: BulkChange) -> Pages<BulkChanged> {
        let (topic, group) = (topic.to_owned(), group.to_owned());
        let ask = move |cursor: Option<&str>| {
            let change = BulkChange { cursor: cursor.map(str::to_owned), ..change.clone() };
            let call = Call::post(format!("{}/bulk", group_path(&topic, &group)?)).json(&change)?;
            Ok(if change.by_ms.is_some() || change.by.is_some() { call.only_once() } else { call })
        };
        Pages::new(self, ask, |page: BulkChanged| {
            let next = page.next_cursor.clone();
            (vec![page], next)
        })
    }

    /// How many messages of a group are due in a window.
    pub async fn bulk_count(
        &self,
        topic: &str,
        group: &str,
        from: impl Into<Timestamp>,
        to: impl Into<Timestamp>,
    ) -> Result<u64, Error> {
        let query = Query::default().with("from", Some(from.into())).with("to", Some(to.into()));
        let count: BulkCount = self.call(&Call::get(format!("{}/bulk{query}", group_path(topic, group)?))).await?;
        Ok(count.waiting)
    }

    /// How many messages of a group become due in each of so many spans of time.
    pub async fn forecast(&self, topic: &str, group: &str, step: Duration, spans: u16) -> Result<GroupForecast, Error> {
        let query = Query::default().with("step", Some(show_span(step))).with("spans", Some(spans));
        self.call(&Call::get(format!("{}/forecast{query}", group_path(topic, group)?))).await
    }
}

/// Each is for the messages that are due from a time on, and before another one.
impl BulkChange {
    fn of(action: &'static str, from: Timestamp, to: Timestamp, by_ms: Option<Duration>) -> BulkChange {
        BulkChange { from, to, action: action.into(), by: None, by_ms, cursor: None }
    }

    /// Cancels them.
    pub fn cancel(from: impl Into<Timestamp>, to: impl Into<Timestamp>) -> BulkChange {
        BulkChange::of("cancel", from.into(), to.into(), None)
    }

    /// Makes them due so much later, at least by the length of the window.
    pub fn postpone(from: impl Into<Timestamp>, to: impl Into<Timestamp>, by: Duration) -> BulkChange {
        BulkChange::of("postpone", from.into(), to.into(), Some(by))
    }

    /// Makes them due so much earlier, at least by the length of the window.
    pub fn advance(from: impl Into<Timestamp>, to: impl Into<Timestamp>, by: Duration) -> BulkChange {
        BulkChange::of("advance", from.into(), to.into(), Some(by))
    }

    /// Parks them: they are not delivered until they are unparked.
    pub fn park(from: impl Into<Timestamp>, to: impl Into<Timestamp>) -> BulkChange {
        BulkChange::of("park", from.into(), to.into(), None)
    }

    /// Delivers them again.
    pub fn unpark(from: impl Into<Timestamp>, to: impl Into<Timestamp>) -> BulkChange {
        BulkChange::of("unpark", from.into(), to.into(), None)
    }
}
