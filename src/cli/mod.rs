//! The commands. Each but `serve`, `doctor` and `config` is a client of a running broker over HTTP.

mod figures;
mod journal;
pub(crate) mod log_writer;
pub(crate) mod failure;
pub(crate) mod address;
mod contexts;
mod place;
pub(crate) mod remote;
pub(crate) mod contents;
pub(crate) mod clock;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod output;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod process;
pub(crate) mod parse;
pub(crate) mod bulk;
pub(crate) mod context;
pub(crate) mod cron;
pub(crate) mod dead_letters;
pub(crate) mod health;
pub(crate) mod message;
pub(crate) mod push;
pub(crate) mod reload;
pub(crate) mod serve;
pub(crate) mod settle;
pub(crate) mod consume;
mod topic_list;
pub(crate) mod topic;
pub(crate) mod topic_names;
pub(crate) mod group;
pub(crate) mod top;

use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use address::ServerAddress;
use failure::Failure;
use place::{Files, Place};
use remote::Remote;

/// Which broker a client speaks to, and how it prints the answer.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    print: PrintArgs,
    /// The broker: http://HOST:PORT, https://HOST:PORT or unix:/path [default: http://127.0.0.1:7373]
    #[arg(long, global = true, env = "DWELL_SERVER", value_name = "URL", value_parser = ServerAddress::parse)]
    server: Option<ServerAddress>,
    /// A broker by its name in `dwell context list`, if neither --server nor DWELL_SERVER is given
    #[arg(long, global = true, env = "DWELL_CONTEXT", value_name = "NAME")]
    context: Option<String>,
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

    /// Prints a list, as JSON with an item a line, or as one text for people, who are told when it is empty.
    pub(crate) fn list<T: Serialize, N: Display, D: Display>(
        &self,
        items: &[T],
        none: impl FnOnce() -> N,
        text: impl FnOnce(&[T]) -> D,
    ) -> Result<(), Failure> {
        if items.is_empty() {
            self.none(none());
            return Ok(());
        }
        self.page(items, text)
    }

    /// Prints a page of a list; nothing if it is empty.
    pub(crate) fn page<T: Serialize, D: Display>(
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

    /// Tells people that a list is empty, apart from what a script reads.
    pub(crate) fn none(&self, text: impl Display) {
        if !self.json {
            output::note(text);
        }
    }
}

impl ServerArgs {
    fn remote(&self) -> Result<Remote, Failure> {
        Remote::at(self.place()?)
    }

    /// The broker to ask. # Errors: usage, for a context that is none.
    fn place(&self) -> Result<Place, Failure> {
        let files = Files { token: self.token_file.clone(), ca: self.ca_file.clone() };
        let context = self.context();
        let Some(server) = &self.server else { return Place::of_context(context, files) };
        let is_typed = |name: &&str| std::env::var("DWELL_CONTEXT").as_deref() != Ok(*name);
        if let Some(name) = context.filter(is_typed) {
            output::note(format_args!("the context {name} is not used: --server or DWELL_SERVER names another broker"));
        }
        Ok(Place::of_server(server, files))
    }

    /// The context that is named. An empty variable is one that is not set.
    fn context(&self) -> Option<&str> {
        self.context.as_deref().filter(|name| !name.is_empty())
    }

    /// Whether a broker is named: by its address, or by a context.
    fn is_named(&self) -> bool {
        self.server.is_some() || self.context().is_some()
    }
}
