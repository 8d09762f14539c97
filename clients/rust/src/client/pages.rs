//! A list of which a request answers a part: a stream that asks for the next part when it is needed.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{BoxStream, Stream, StreamExt, try_unfold};
use serde::de::DeserializeOwned;

use super::error::Error;
use super::{Call, Client};
use crate::wire::bulk::BulkChanged;
use crate::wire::dead_letters::{Purged, Redriven};
use crate::wire::groups::Findings;
use crate::wire::topics::Moved;

/// A list that is read page by page, or work that is done part by part. It is a [`Stream`], and has [`Pages::next`].
///
/// ```no_run
/// # async fn example(client: dwell_client::Client) -> Result<(), dwell_client::Error> {
/// let mut dead_letters = client.dead_letters("orders", "default", Default::default());
/// while let Some(dead_letter) = dead_letters.next().await.transpose()? {
///     println!("{} is dead: {}", dead_letter.id, dead_letter.reason);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Pages<T> {
    items: BoxStream<'static, Result<T, Error>>,
}

impl<T> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pages")
    }
}

impl<T> Stream for Pages<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.items.poll_next_unpin(cx)
    }
}

/// The page to ask for next.
enum Next {
    First,
    After(String),
    Nothing,
}

impl<T: Send + 'static> Pages<T> {
    /// Asks with the cursor of the page before, until there is none. `read` takes an answer apart.
    pub(crate) fn new<P: DeserializeOwned + Send + 'static>(
        client: &Client,
        ask: impl Fn(Option<&str>) -> Result<Call, Error> + Send + Sync + 'static,
        read: impl Fn(P) -> (Vec<T>, Option<String>) + Send + Sync + 'static,
    ) -> Pages<T> {
        let state = (client.clone(), ask, read, VecDeque::<T>::new(), Next::First);
        let items = try_unfold(state, |(client, ask, read, mut found, mut next)| async move {
            loop {
                if let Some(item) = found.pop_front() {
                    return Ok(Some((item, (client, ask, read, found, next))));
                }
                let call = match &next {
                    Next::First => ask(None)?,
                    Next::After(cursor) => ask(Some(cursor))?,
                    Next::Nothing => return Ok(None),
                };
                let (items, cursor) = read(client.call(&call).await?);
                found.extend(items);
                next = cursor.map_or(Next::Nothing, Next::After);
            }
        });
        Pages { items: items.boxed() }
    }

    /// The next item; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        self.items.next().await
    }

    /// All items.
    ///
    /// # Errors
    ///
    /// The first one.
    pub async fn all(mut self) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        while let Some(item) = self.next().await {
            items.push(item?);
        }
        Ok(items)
    }
}

/// The progress of work that is done part by part.
pub trait Part: Send + 'static {
    /// Adds another part to it.
    fn add(&mut self, other: Self);
}

impl Part for BulkChanged {
    fn add(&mut self, other: BulkChanged) {
        self.changed += other.changed;
        self.passed_over += other.passed_over;
        self.next_cursor = other.next_cursor;
    }
}

impl Part for Findings {
    fn add(&mut self, other: Findings) {
        self.seen += other.seen;
        self.findings.extend(other.findings);
        self.next_cursor = other.next_cursor;
    }
}

impl Part for Moved {
    fn add(&mut self, other: Moved) {
        self.moved += other.moved;
        self.dead += other.dead;
        self.duplicates += other.duplicates;
        (self.in_flight, self.done) = (other.in_flight, other.done);
    }
}

fn sum(one: &mut Option<u64>, other: Option<u64>) {
    if let Some(other) = other {
        *one.get_or_insert_default() += other;
    }
}

impl Part for Redriven {
    fn add(&mut self, other: Redriven) {
        self.redriven += other.redriven;
        sum(&mut self.matching, other.matching);
        self.next_cursor = other.next_cursor;
    }
}

impl Part for Purged {
    fn add(&mut self, other: Purged) {
        self.purged += other.purged;
        sum(&mut self.matching, other.matching);
        self.next_cursor = other.next_cursor;
    }
}

impl<T: Part + Default> Pages<T> {
    /// Does all the work, and adds up its progress.
    ///
    /// # Errors
    ///
    /// The first one. Parts that were done before it stay done.
    pub async fn total(mut self) -> Result<T, Error> {
        let mut total = T::default();
        while let Some(part) = self.next().await {
            total.add(part?);
        }
        Ok(total)
    }
}
