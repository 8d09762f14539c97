//! The broker, for requests that passed the gate and for no others.

use std::ops::Deref;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::App;
use super::problem::{Class, Problem};
use crate::broker::Broker;
use crate::gate::{Held, Pass};
use crate::model::error::{Kind, Result};

/// A broker that only [`Admitted::broker`] gives.
#[derive(Clone)]
pub(super) struct Gated(Broker);

impl Gated {
    pub(super) fn new(broker: Broker) -> Gated {
        Gated(broker)
    }
}

/// The state and the pass of a request behind the gate. A handler that uses the broker takes this, and there is no other way
/// to it.
pub(crate) struct Admitted {
    app: App,
    pass: Pass,
}

impl Admitted {
    pub(crate) fn broker(&self) -> &Broker {
        &self.app.broker.0
    }

    pub(crate) fn pass(&self) -> &Pass {
        &self.pass
    }

    /// Waits until there is room for an answer of so many bytes. # Errors: 503 `full` when there is no room in time.
    pub(crate) async fn admit(&self, bytes: usize) -> Result<Held> {
        self.gate.answers.admit(self.pass.identity(), bytes).await
    }
}

impl Deref for Admitted {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}

impl FromRequestParts<App> for Admitted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Admitted, Problem> {
        match parts.extensions.get::<Pass>() {
            Some(pass) => Ok(Admitted { app: app.clone(), pass: pass.clone() }),
            None => Err(Problem::new(Class::Verb(Kind::Bug), "the request did not pass the gate")),
        }
    }
}
