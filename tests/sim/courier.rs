//! How a broker that stops gives what it has to another one, without sockets.

use std::fmt;
use std::sync::Mutex;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::Request;
use dwell::outage::hand_over::{Courier, PATH};
use http_body_util::BodyExt;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use tokio::sync::oneshot;
use tower::ServiceExt;

use crate::client::{Clients, Seat};
use crate::lock;

/// Carries each page to one of the other brokers that run, as a balancer in front of them would. Some answers are lost.
pub(crate) struct ToOthers {
    pub(crate) from: usize,
    pub(crate) clients: Clients,
    pub(crate) random: Mutex<fastrand::Rng>,
}

impl fmt::Debug for ToOthers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {}", self.from)
    }
}

#[async_trait]
impl Courier for ToOthers {
    async fn post(&self, _: &str, headers: HeaderMap, body: Vec<u8>) -> Result<(StatusCode, Vec<u8>), String> {
        let (chosen, delay_ms, is_lost) = {
            let mut random = lock(&self.random);
            (random.usize(..), random.u64(1..30), random.u8(0..8) == 0)
        };
        self.clients.wait(delay_ms).await;
        let seats = lock(&self.clients.seats).clone();
        let others: Vec<&Seat> =
            seats.iter().enumerate().filter(|(at, _)| *at != self.from).filter_map(|(_, seat)| seat.as_ref()).collect();
        let Some(Seat { handle, router, disk }) = others.get(chosen % others.len().max(1)).copied().cloned() else {
            return Err("nobody is there".to_owned());
        };
        let mut request = Request::post(PATH).body(Body::from(body)).map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        let (sender, answered) = oneshot::channel();
        handle.spawn(async move {
            let Ok(response) = router.oneshot(request).await;
            let status = response.status();
            if let Ok(bytes) = response.into_body().collect().await
                && !disk.is_without_power()
            {
                let _ = sender.send((status, bytes.to_bytes().to_vec()));
            }
        });
        let answer = answered.await.map_err(|_| "the connection was closed".to_owned())?;
        let lost = if is_lost { ", and its answer is lost" } else { "" };
        self.clients.note(&format!("broker {} hands over: {}{lost}", self.from, answer.0));
        if is_lost { Err("the answer was lost".to_owned()) } else { Ok(answer) }
    }
}
