//! Counting what becomes due.

use super::Shared;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use crate::model::error::Result;
use crate::model::topic::GroupPartition;
use crate::store::{Forecast, Spans};

impl Shared {
    pub(super) async fn forecast(&self, pairs: &[GroupPartition], spans: Spans) -> Result<Vec<Forecast>> {
        let call = |pair| {
            Call::new(&SCRIPTS.forecast, &[&self.keys.pair(pair).zset])
                .arg(spans.from.as_ms())
                .arg(u64::try_from(spans.step.as_millis()).unwrap_or(u64::MAX))
                .arg(spans.count)
        };
        let answers = self.connection.eval_all(&SCRIPTS.forecast, pairs.iter().map(call).collect()).await;
        answers.into_iter().map(|answer| read(Reply::of(answer?)?)).collect()
    }
}

fn read(mut reply: Reply) -> Result<Forecast> {
    reply.text()?;
    let mut forecast = Forecast { ready: reply.number()?, ..Forecast::default() };
    while reply.left() > 1 {
        forecast.spans.push(reply.number()?);
    }
    forecast.later = reply.number()?;
    Ok(forecast)
}
