//! Tokens of two scopes: rights add up, and no two scopes together allow what neither does.

use std::path::Path;

use dwell::api::http::ACTIONS;
use dwell::gate::access::{Scope, Scopes, Token};
use futures_util::future::join_all;
use serde_json::json;

use super::routes::{PAYLOAD, about, error_of, filled_with, of_sqs_about, state};
use super::status;
use crate::http::api::served::{Outcome, Served};

/// Whoever has a token of these scopes.
#[derive(Clone, PartialEq)]
pub(crate) struct Holder(Vec<Scope>);

impl Holder {
    pub(crate) fn name(&self) -> String {
        self.0.iter().map(|scope| scope.name()).collect::<Vec<_>>().join("-")
    }

    pub(crate) fn secret(&self) -> String {
        match self.0[..] {
            // What the helpers of the walk over single tokens show.
            [Scope::Admin] => super::token("admin").to_owned(),
            _ => format!("s3cret-of-{}-and-no-other", self.name()),
        }
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.secret())
    }

    /// The holders of its scopes one by one.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Holder> {
        self.0.iter().map(|scope| Holder(vec![*scope]))
    }
}

/// The holders of one scope each, and after them those of each pair.
pub(crate) fn holders() -> Vec<Holder> {
    let singles = Scope::ALL.map(|scope| Holder(vec![scope]));
    let pairs = Scope::ALL
        .into_iter()
        .enumerate()
        .flat_map(|(at, first)| Scope::ALL.into_iter().skip(at + 1).map(move |second| Holder(vec![first, second])));
    singles.into_iter().chain(pairs).collect()
}

/// Writes the files of all their tokens.
pub(crate) fn tokens_of(dir: &Path, holders: &[Holder]) -> Outcome<Vec<Token>> {
    let token = |holder: &Holder| {
        let file = dir.join(holder.name());
        std::fs::write(&file, holder.secret())?;
        Ok(Token { name: holder.name().into(), file, scopes: Scopes::of(&holder.0) })
    };
    holders.iter().map(token).collect()
}

/// What each holder was allowed, in the order of [`holders`].
pub(crate) struct Allowed<'a>(&'a [Holder], Vec<bool>);

impl<'a> Allowed<'a> {
    pub(crate) fn new(holders: &'a [Holder], allowed: Vec<bool>) -> Allowed<'a> {
        assert_eq!(holders.len(), allowed.len());
        Allowed(holders, allowed)
    }

    fn of(&self, holder: &Holder) -> bool {
        self.0.iter().zip(&self.1).any(|(other, allowed)| other == holder && *allowed)
    }

    /// Two scopes allow what one of them does, and nothing else. Answers how many pairs have a scope that alone allows it not.
    pub(crate) fn add_up(&self, what: &str) -> usize {
        let mut mixed = 0;
        for (holder, allowed) in self.0.iter().zip(&self.1).filter(|(holder, _)| holder.0.len() == 2) {
            let parts: Vec<bool> = holder.parts().map(|part| self.of(&part)).collect();
            assert_eq!(*allowed, parts.contains(&true), "{what} of {}: each alone {parts:?}", holder.name());
            mixed += usize::from(parts.contains(&true) && parts.contains(&false));
        }
        mixed
    }
}

async fn served(holders: &[Holder]) -> Outcome<(Served, tempfile::TempDir)> {
    let dir = tempfile::tempdir()?;
    let tokens = tokens_of(dir.path(), holders)?;
    Ok((filled_with(tokens, |_| {}).await?, dir))
}

#[tokio::test]
async fn two_scopes_allow_every_route_that_one_of_them_allows_and_no_other() -> Outcome {
    let holders = holders();
    assert_eq!(holders.len(), 15);
    let (dwell, _dir) = served(&holders).await?;
    let (before, mut mixed) = (state(&dwell).await?, 0);
    for action in &ACTIONS {
        let (there, absent) = (about(action, "there"), about(action, "absent"));
        let mut allowed = Vec::new();
        for holder in &holders {
            let seen = status(&dwell, &absent, Some(&holder.bearer())).await?;
            assert_ne!(seen, 401, "{absent} of {}", holder.name());
            if seen == 403 {
                assert_eq!(status(&dwell, &there, Some(&holder.bearer())).await?, 403, "{there} of {}", holder.name());
            }
            allowed.push(seen != 403);
        }
        for (holder, allowed) in holders.iter().zip(&allowed) {
            assert_eq!(*allowed, action.needs.are_met_by(Scopes::of(&holder.0)), "{absent} of {}", holder.name());
        }
        mixed += Allowed::new(&holders, allowed).add_up(&absent);
    }
    assert!(mixed > 100, "{mixed}: nothing was shown");
    assert_eq!(state(&dwell).await?, before, "a request that was refused changed something");
    Ok(())
}

/// An answer shows a payload if one of the scopes may see it.
#[tokio::test]
async fn two_scopes_show_the_payloads_that_one_of_them_shows() -> Outcome {
    let holders = holders();
    let (dwell, _dir) = served(&holders).await?;
    let mut mixed = 0;
    for action in ACTIONS.iter().filter(|action| action.method == "GET") {
        let there = about(action, "there");
        // At the same time, since some answers wait for more.
        let shown = holders.iter().map(async |holder| -> Outcome<bool> {
            let request = dwell.request(&there)?.bearer_auth(holder.secret());
            let text = dwell.driven(request.send()).await??.text().await?;
            Ok(text.contains(PAYLOAD))
        });
        let shown = join_all(shown).await.into_iter().collect::<Outcome<Vec<bool>>>()?;
        mixed += Allowed::new(&holders, shown).add_up(&there);
    }
    assert!(mixed > 10, "{mixed}: no payload was shown");
    Ok(())
}

#[tokio::test]
async fn two_scopes_allow_every_sqs_action_that_one_of_them_allows_and_no_other() -> Outcome {
    let holders = holders();
    let (dwell, _dir) = served(&holders).await?;
    let (before, mut mixed) = (state(&dwell).await?, 0);
    let is_allowed = |(status, code): (u16, Option<String>)| status != 403 && code.as_deref() != Some("AccessDenied");
    for action in dwell::sqs::actions() {
        let name = action.name.trim_start_matches("AmazonSQS.");
        // Who may create a queue also gets the URL of one that is there.
        let queue = if name == "CreateQueue" { "there" } else { "absent" };
        for way in ["json", "form", "link"] {
            let mut allowed = Vec::new();
            for holder in &holders {
                let request = of_sqs_about(&dwell, name, way, queue)?.bearer_auth(holder.secret());
                allowed.push(is_allowed(error_of(&dwell, request, (name, way)).await?));
            }
            mixed += Allowed::new(&holders, allowed).add_up(&format!("{name} by {way}"));
        }
    }
    // What an action turns out to need besides: a new queue, and one with settings.
    for more in [json!({}), json!({"Attributes": {"DelaySeconds": "1"}}), json!({"tags": {"a": "b"}})] {
        let mut allowed = Vec::new();
        for holder in &holders {
            let mut body = json!({"QueueName": format!("new-{}", holder.name())});
            for (name, value) in more.as_object().into_iter().flatten() {
                body[name] = value.clone();
            }
            let request = dwell.request("POST /")?.header("x-amz-target", "AmazonSQS.CreateQueue").json(&body);
            let request = request.bearer_auth(holder.secret());
            allowed.push(is_allowed(error_of(&dwell, request, ("CreateQueue", "json")).await?));
        }
        mixed += Allowed::new(&holders, allowed).add_up(&format!("CreateQueue with {more}"));
        for holder in &holders {
            let line = format!("DELETE /v1/topics/new-{}", holder.name());
            dwell.send(dwell.request(&line)?.bearer_auth(super::token("admin"))).await?;
        }
    }
    assert!(mixed > 100, "{mixed}: nothing was shown");
    assert_eq!(state(&dwell).await?, before, "a request about another queue changed something");
    Ok(())
}
