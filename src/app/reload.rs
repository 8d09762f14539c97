//! Applies a changed configuration to a running broker: tokens, webhooks, the level of the log, and what connections to Redis log in
//! with.
//!
//! Other changes need a restart, and are named. A configuration that is wrong changes nothing. Files that hold secrets and
//! certificates are looked at all the time; the configuration itself only counts when somebody says so.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dwell_client::wire::operations::Reloaded;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::api::http::Reload;
use crate::api::webhook::{Subscription, Webhook};
use crate::app::config::{Config, LogLevel, Sources, changed_keys, fingerprint};
use crate::app::engine::Renewal;
use crate::broker::Broker;
use crate::gate::access::Access;
use crate::model::error::{Error, Result};
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;

/// How often files are looked at. A change counts once two looks in a row have seen the same.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Keys that take effect without a restart, beside tokens and webhooks.
const LIVE: [&str; 5] = ["log.level", "redis.password_file", "redis.ca_file", "redis.cert_file", "redis.key_file"];

/// Sets the level of the log of this process.
pub type SetLevel = Arc<dyn Fn(LogLevel) + Send + Sync>;

/// Where a broker got its configuration from.
#[derive(Clone)]
pub struct ReloadOptions {
    pub sources: Sources,
    /// The one in force at the start.
    pub config: Config,
    pub set_level: SetLevel,
}

impl std::fmt::Debug for ReloadOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReloadOptions")
    }
}

/// The parts of a broker that change while it runs.
pub(super) struct Parts {
    pub(super) broker: Broker,
    pub(super) access: Access,
    pub(super) renewal: Renewal,
    /// Webhooks run there.
    pub(super) groups: Tasks,
    /// That of the machine.
    pub(super) clock: Clock,
}

pub(super) struct Reloader {
    parts: Parts,
    set_level: Option<SetLevel>,
    state: Mutex<State>,
}

struct State {
    source: Option<Source>,
    webhooks: Vec<RunningWebhook>,
}

/// A configuration, where it came from, and the files that it names.
struct Source {
    sources: Sources,
    config: Config,
    files: Vec<PathBuf>,
}

impl Source {
    fn new(sources: Sources, config: Config) -> Source {
        let files = sources.named_files();
        Source { sources, config, files }
    }
}

struct RunningWebhook {
    webhook: Webhook,
    /// Of the certificates that it believes.
    ca: u64,
    stop: CancellationToken,
}

impl Reloader {
    /// Starts the webhooks. # Errors: those of a webhook that cannot be used.
    pub(super) fn start(parts: Parts, webhooks: Vec<Webhook>, options: Option<ReloadOptions>) -> Result<Arc<Reloader>> {
        let set_level = options.as_ref().map(|options| options.set_level.clone());
        let source = options.map(|ReloadOptions { sources, config, .. }| Source::new(sources.with_text(), config));
        let mut state = State { source, webhooks: Vec::new() };
        parts.change_webhooks(&mut state.webhooks, webhooks)?;
        Ok(Arc::new(Reloader { parts, set_level, state: Mutex::new(state) }))
    }

    /// Looks at the files that the configuration names until `stop`.
    pub(super) async fn watch(&self, stop: CancellationToken) {
        let (mut applied, mut seen) = (self.fingerprint().await, None);
        while stop.run_until_cancelled(Clock::System.sleep(LOOK_AGAIN)).await.is_some() {
            let now = self.fingerprint().await;
            if now != applied && seen == Some(now) {
                applied = now;
                let mut state = self.state.lock().await;
                if let Some(sources) = state.source.as_ref().map(|source| source.sources.clone()) {
                    note(&self.apply(&mut state, sources));
                }
            }
            seen = Some(now);
        }
    }

    /// Of what is in the files that the configuration names.
    async fn fingerprint(&self) -> u64 {
        match &self.state.lock().await.source {
            Some(source) => fingerprint(&source.files),
            None => 0,
        }
    }

    fn apply(&self, state: &mut State, sources: Sources) -> Result<Reloaded> {
        let Some(Source { config: running, .. }) = &state.source else {
            return Err(Error::not_found("this broker has no configuration that could be read again"));
        };
        let config = Config::load(&sources).map_err(|errors| Error::invalid("configuration", errors.to_string()))?;
        if config.tokens.is_empty() != running.tokens.is_empty() {
            let why =
                "the first token, and the end of the last one, need a restart: they change who may reach this broker";
            return Err(Error::invalid("configuration", why.to_owned()));
        }
        let mut enabled = config.webhooks.iter().filter(|webhook| webhook.enabled);
        enabled.try_for_each(|webhook| webhook.check(self.parts.clock.clone()))?;
        let (changed, needs_restart): (BTreeSet<_>, BTreeSet<_>) =
            changed_keys(running, &config).into_iter().partition(|key| LIVE.contains(key));
        let mut changed: Vec<String> = changed.into_iter().map(str::to_owned).collect();
        if config.tokens != running.tokens {
            self.parts.access.renew(config.tokens.clone());
            changed.push("auth.token".to_owned());
        }
        if self.parts.change_webhooks(&mut state.webhooks, config.webhooks.clone())? {
            changed.push("webhook".to_owned());
        }
        if let Some(login) = config.redis.login().filter(|login| Some(login) != running.redis.login().as_ref()) {
            self.parts.renewal.set(login);
        }
        if let Some(set_level) = self.set_level.as_ref().filter(|_| config.log.level != running.log.level) {
            set_level(config.log.level);
        }
        let running = running.with_live_parts_of(&config);
        state.source = Some(Source::new(sources, running));
        Ok(Reloaded { changed, needs_restart: needs_restart.into_iter().map(str::to_owned).collect() })
    }
}

#[async_trait]
impl Reload for Reloader {
    async fn reload(&self) -> Result<Reloaded> {
        let mut state = self.state.lock().await;
        let sources = state.source.as_ref().map(|source| source.sources.anew()).unwrap_or_default();
        let reloaded = self.apply(&mut state, sources);
        note(&reloaded);
        reloaded
    }
}

impl Parts {
    /// Ends webhooks that are gone or have changed, and starts those that are new. Says whether there were any.
    fn change_webhooks(&self, running: &mut Vec<RunningWebhook>, wanted: Vec<Webhook>) -> Result<bool> {
        let wanted: Vec<_> = wanted.into_iter().filter(|webhook| webhook.enabled).collect();
        let with_ca: Vec<_> = wanted.into_iter().map(|webhook| (fingerprint(&webhook.ca_file), webhook)).collect();
        let is_same =
            |known: &RunningWebhook, (ca, webhook): &(u64, Webhook)| known.webhook == *webhook && known.ca == *ca;
        let (stay, go): (Vec<_>, Vec<_>) =
            std::mem::take(running).into_iter().partition(|known| with_ca.iter().any(|one| is_same(known, one)));
        go.iter().for_each(|gone| gone.stop.cancel());
        let mut has_changed = !go.is_empty();
        *running = stay;
        for one in with_ca {
            if running.iter().any(|known| is_same(known, &one)) {
                continue;
            }
            let (ca, webhook) = one;
            let subscription = Subscription::new(self.broker.clone(), webhook.clone(), self.clock.clone())?;
            let stop = self.groups.stopping().child_token();
            self.groups.start(subscription.run(stop.clone()));
            running.push(RunningWebhook { webhook, ca, stop });
            has_changed = true;
        }
        Ok(has_changed)
    }
}

fn note(reloaded: &Result<Reloaded>) {
    match reloaded {
        Ok(Reloaded { changed, needs_restart }) => {
            let changed = changed.join(", ");
            tracing::info!(changed, "configuration reloaded");
            if !needs_restart.is_empty() {
                let keys = needs_restart.join(", ");
                tracing::warn!(keys, "changed in the configuration and not in force: they need a restart");
            }
        }
        Err(error) => tracing::error!(%error, "configuration not reloaded: the one before stays in force"),
    }
}
