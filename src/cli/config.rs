//! `dwell config`, and the flags of the configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::PrintArgs;
use super::failure::Failure;
use crate::api::http::ConnectionOptions;
use crate::app::config::{Config, ConfigErrors, Flag, Setting, Sources, settings, show};
use crate::app::engine::{OutageOptions, StoreOptions};
use crate::app::server::ServerOptions;

const EXAMPLES: &str = "\
Examples:
  dwell config check --config dwell.toml   everything that is wrong, with exit code 64
  dwell config show                        what is in force, and where each value comes from
  DWELL_LEASE_TTL=5s dwell config show

Set a key in the file or as an environment variable (`redis.url` is DWELL_REDIS_URL); the common
ones are flags, too. A flag wins over the environment, the environment over the file, the file
over the default. Webhooks and access tokens are in the file only.";

/// Check or show the configuration
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConfigCommandArgs {
    #[command(subcommand)]
    command: ConfigCommand,
    #[command(flatten)]
    print: PrintArgs,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// List everything that is wrong with the configuration
    Check(ConfigArgs),
    /// Print the configuration in force, with the origin of every value; passwords are masked
    Show(ConfigArgs),
}

/// The configuration on the command line.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    /// A TOML file [env: DWELL_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen: 127.0.0.1:PORT or unix:/path [key: listen]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The directory for data that has to survive a restart [key: data_dir]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Keep messages in this Redis, not in the embedded store [key: redis.url]
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Serve clients of Amazon SQS, too [key: sqs.enabled]
    #[arg(long)]
    sqs: bool,
    /// off, error, warn, info, debug or trace [key: log.level]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// text or json [key: log.format]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl ConfigArgs {
    pub(super) fn sources(&self) -> Sources {
        let sqs = self.sqs.then(|| "true".to_owned());
        let given = [
            ("listen", "--listen", &self.listen),
            ("data_dir", "--data-dir", &self.data_dir),
            ("redis.url", "--redis", &self.redis),
            ("sqs.enabled", "--sqs", &sqs),
            ("log.level", "--log-level", &self.log_level),
            ("log.format", "--log-format", &self.log_format),
        ];
        let flag = |(key, flag, value): (_, _, &Option<String>)| Some(Flag { key, flag, value: value.clone()? });
        let file = std::env::var_os("DWELL_CONFIG").filter(|file| !file.is_empty()).map(PathBuf::from);
        Sources {
            file: self.config.clone().or(file),
            text: None,
            env: std::env::vars_os().collect(),
            flags: given.into_iter().filter_map(flag).collect(),
        }
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Failure {
        Failure::usage(errors.to_string())
    }
}

fn as_json(setting: &Setting) -> Value {
    // A value of TOML that is no JSON is a text.
    let read = |value: &String| serde_json::from_str(value).unwrap_or_else(|_| Value::from(value.as_str()));
    json!({"key": setting.key, "value": setting.value.as_ref().map(read), "origin": setting.origin.to_string()})
}

pub(crate) fn run(args: &ConfigCommandArgs) -> Result<(), Failure> {
    let print = &args.print;
    match &args.command {
        ConfigCommand::Check(args) => {
            options(&Config::load(&args.sources())?, false)?.check()?;
            print.value(&json!({"correct": true}), |_| "the configuration is correct")
        }
        ConfigCommand::Show(args) => {
            let settings = settings(&args.sources())?;
            print.page(&settings.iter().map(as_json).collect::<Vec<_>>(), |_| show(&settings).trim_end().to_owned())
        }
    }
}

pub(super) fn data_dir(config: &Config) -> Result<PathBuf, Failure> {
    config.data_dir.clone().ok_or_else(|| Failure::usage("data_dir: a directory is needed"))
}

pub(super) fn options(config: &Config, adopt: bool) -> Result<ServerOptions, Failure> {
    let dir = data_dir(config)?;
    let store = match config.redis.options() {
        None => StoreOptions::Embedded { dir: dir.join("store") },
        Some(redis) => StoreOptions::Redis {
            redis,
            outage: OutageOptions {
                limit_bytes: config.wal_limit_bytes,
                journal_window: config.journal_window(),
                adopt,
                start_without: config.redis.start_without,
                silence: config.broker_options().lease_ttl,
                hand_over: config.hand_over.clone(),
                ..OutageOptions::new(dir)
            },
        },
    };
    let options = ServerOptions::new(config.listen.clone(), store, config.broker_options());
    let (tokens, webhooks, spans) = (config.tokens.clone(), config.webhooks.clone(), config.trace.options());
    let (socket_mode, tls) = (config.socket_mode, config.tls.clone());
    let (console, admin) = (config.console, config.admin.clone());
    let connections = ConnectionOptions { idle_timeout: config.http_idle_timeout, ..options.connections };
    let sqs = Some(config.sqs.clone()).filter(|sqs| sqs.enabled);
    let linger = config.linger;
    Ok(ServerOptions { admin, linger, socket_mode, tls, tokens, console, webhooks, sqs, spans, connections, ..options })
}
