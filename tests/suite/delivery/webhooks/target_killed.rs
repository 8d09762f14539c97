//! Many messages, and an application that is killed in the middle.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use dwell::model::error::Result;
use dwell::model::message::{MessageId, NewMessage};
use dwell::model::retry::{Backoff, LadderStep};

use super::shop::Shop;
use crate::support::{Application, World, stories};

stories! { nothing_is_lost_when_the_target_is_killed }

/// Fewer without optimizations, so that the suite stays short.
const MESSAGES: usize = if cfg!(debug_assertions) { 3_000 } else { 50_000 };

async fn nothing_is_lost_when_the_target_is_killed(world: World) -> Result<()> {
    let got: Arc<Mutex<HashSet<String>>> = Arc::default();
    let count = || got.lock().unwrap_or_else(PoisonError::into_inner).len();
    let heard = got.clone();
    let router = Router::new().fallback(async move |headers: HeaderMap| {
        let id = headers["dwell-id"].to_str().unwrap_or_default().to_owned();
        heard.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    });
    let application = Application::serve(router.clone(), 0).await?;
    let shop = Shop::open(&world, &application.url(), |webhook, settings| {
        webhook.concurrency = 64;
        settings.backoff = Backoff::Ladder { steps: vec![LadderStep(Duration::from_secs(1))] };
    })
    .await?;
    for page in 0..MESSAGES / 1_000 {
        let message = |n| Ok(NewMessage { id: Some(MessageId::new(format!("m{page}-{n}"))?), ..NewMessage::new("x") });
        let batch = (0..1_000).map(message).collect::<Result<_>>()?;
        for outcome in shop.broker.push_batch(&shop.topic, batch).await? {
            outcome?;
        }
    }
    while count() < MESSAGES / 2 {
        world.settled().await;
    }
    let port = application.port();
    drop(application);
    let failed = "outcome=\"failed\"";
    world.until("POSTs fail", async || Ok(shop.broker.metrics().text()?.contains(failed))).await?;
    let _application = Application::serve(router, port).await?;
    // What failed comes again after a second; the rest has gone on meanwhile.
    while shop.running.messages(&shop.topic).await? > 0 {
        world.settled().await;
        world.pass(50);
    }
    assert_eq!(count(), MESSAGES);
    Ok(())
}
