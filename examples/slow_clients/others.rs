//! The clients that are measured: each request is sent when its time has come, whether the one before was answered or not.

use std::fmt;
use std::time::Duration;

use clap::Args;
use reqwest::RequestBuilder;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::Outcome;

/// How much the others send
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Others {
    /// Pushes a second, and as many other requests
    #[arg(long, default_value_t = 250)]
    pub(crate) rate: u32,
}

/// What was measured of one kind of request.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) failed: usize,
    pub(crate) p99: Duration,
    requests: usize,
    p50: Duration,
    slowest: Duration,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |span: Duration| span.as_secs_f64() * 1e3;
        let (p50, p99, slowest) = (ms(self.p50), ms(self.p99), ms(self.slowest));
        write!(f, "{} | {} | {} | {p50:.2} | {p99:.2} | {slowest:.2}", self.name, self.requests, self.failed)
    }
}

impl Others {
    /// Sends for so long, and waits for all answers.
    pub(crate) async fn measure(self, url: &str, span: Duration) -> Outcome<Vec<Measured>> {
        let client = dwell::platform::https::client(&dwell::platform::https::Roots::none())?
            .no_proxy()
            .timeout(Duration::from_secs(30))
            .build()?;
        let (mut push, mut look) = (JoinSet::new(), JoinSet::new());
        let mut tick = interval(Duration::from_secs(1) / self.rate);
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..span.as_secs() as u32 * self.rate {
            let due = tick.tick().await;
            push.spawn(one(
                client.post(format!("{url}/v1/topics/orders/messages?delay=1h")).body("close order 4711"),
                due,
            ));
            look.spawn(one(client.get(format!("{url}/v1/topics")), due));
        }
        Ok(vec![measured("push", push.join_all().await), measured("list topics", look.join_all().await)])
    }
}

/// From when it was to be sent to the end of its answer; nothing if it failed.
async fn one(request: RequestBuilder, due: Instant) -> Option<Duration> {
    let answer = request.send().await.ok()?.error_for_status().ok()?;
    answer.bytes().await.ok()?;
    Some(due.elapsed())
}

fn measured(name: &'static str, answers: Vec<Option<Duration>>) -> Measured {
    let requests = answers.len();
    let mut spans: Vec<Duration> = answers.into_iter().flatten().collect();
    spans.sort_unstable();
    let rank =
        |percent: usize| spans.get((spans.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or_default();
    Measured { name, failed: requests - spans.len(), p99: rank(99), requests, p50: rank(50), slowest: rank(100) }
}
