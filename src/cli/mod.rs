//! The commands. Each but `serve`, `doctor` and `config` is a client of a running broker over HTTP.

pub(crate) mod api;
mod figures;
mod journal;
pub(crate) mod failure;
pub(crate) mod address;
pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod output;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod process;
pub(crate) mod parse;
pub(crate) mod bulk;
pub(crate) mod cron;
pub(crate) mod dead_letters;
pub(crate) mod health;
pub(crate) mod message;
pub(crate) mod push;
pub(crate) mod reload;
pub(crate) mod serve;
pub(crate) mod settle;
pub(crate) mod consume;
pub(crate) mod top;
pub(crate) mod topic;
pub(crate) mod group;

use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use address::{Credentials, ServerAddress};
use client::Client;
use failure::Failure;

/// Which broker a client speaks to, and how it prints the answer.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    print: PrintArgs,
    /// The broker: http://HOST:PORT, https://HOST:PORT or unix:/path [default: http://127.0.0.1:7373]
    #[arg(long, global = true, env = "DWELL_SERVER", value_name = "URL", value_parser = ServerAddress::parse)]
    server: Option<ServerAddress>,
    /// A file that holds the access token and nothing else, if the broker asks for one
    #[arg(long, global = true, env = "DWELL_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// For https://: CA certificates (PEM) used to verify the broker; without it the system's
    #[arg(long, global = true, env = "DWELL_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// How a command prints.
#[derive(Debug, Args)]
pub(crate) struct PrintArgs {
    /// Print JSON as the API does; of a list, one item in each line
    #[arg(long, global = true)]
    json: bool,
}

impl PrintArgs {
    /// Prints a value as JSON, or as a text for people.
    pub(crate) fn value<T: Serialize, D: Display>(&self, value: &T, text: impl FnOnce(&T) -> D) -> Result<(), Failure> {
        if self.json { output::json(value) } else { output::line(text(value)) }
    }

    /// Prints a list, as JSON with an item a line, or as one text for people; nothing if it is empty.
    pub(crate) fn list<T: Serialize, D: Display>(
        &self,
        items: &[T],
        text: impl FnOnce(&[T]) -> D,
    ) -> Result<(), Failure> {
        match (self.json, items.is_empty()) {
            (true, _) => items.iter().try_for_each(output::json),
            (false, true) => Ok(()),
            (false, false) => output::line(text(items)),
        }
    }
}

impl ServerArgs {
    fn client(&self) -> Result<Client, Failure> {
        let credentials = Credentials::read(self.token_file.as_deref(), self.ca_file.as_deref())?;
        Client::with_credentials(&self.address(), credentials)
    }

    fn address(&self) -> ServerAddress {
        self.server.clone().unwrap_or_default()
    }
}
