//! `dwell context`: adds, lists, chooses and removes contexts.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;

use super::address::ServerAddress;
use super::contexts::{Context, Contexts};
use super::failure::Failure;
use super::{PrintArgs, output, parse};

const EXAMPLES: &str = "\
Examples:
  dwell context add test --server http://127.0.0.1:7373
  dwell context add prod --server https://dwell.internal:7373 --token-file prod.token
  dwell context list
  dwell context use test
  dwell --context prod topic list
  dwell context use --none
  dwell context remove test

A command asks the broker of --server, else of DWELL_SERVER, else of --context, DWELL_CONTEXT, or
the context that is used; else http://127.0.0.1:7373. The contexts are in
$XDG_CONFIG_HOME/dwell/contexts.toml or ~/.config/dwell/contexts.toml.";

/// Add, list, use and remove contexts: brokers by name
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ContextArgs {
    #[command(subcommand)]
    command: ContextCommand,
    #[command(flatten)]
    print: PrintArgs,
}

#[derive(Debug, Subcommand)]
enum ContextCommand {
    /// Add a context
    Add(AddArgs),
    /// Print the contexts; * marks the one that is used
    List,
    /// Use a context in commands that name no broker
    Use {
        /// The context
        #[arg(value_parser = parse::context, required_unless_present = "none")]
        name: Option<String>,
        /// Use none from now on
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// Remove a context
    Remove {
        /// The context
        #[arg(value_parser = parse::context)]
        name: String,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The context
    #[arg(value_parser = parse::context)]
    name: String,
    /// The broker: http://HOST:PORT, https://HOST:PORT or unix:/path
    #[arg(long, value_name = "URL", value_parser = ServerAddress::parse)]
    server: ServerAddress,
    /// The file that holds the access token; only its path is kept
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// For https://: CA certificates (PEM) used to verify the broker; without it the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Replace a context of this name
    #[arg(long)]
    replace: bool,
}

/// A context as `--json` prints it.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    #[serde(flatten)]
    context: &'a Context,
    /// Whether commands that name no broker ask this one.
    used: bool,
}

pub(crate) fn run(args: &ContextArgs) -> Result<(), Failure> {
    let (mut contexts, print) = (Contexts::read()?, &args.print);
    match &args.command {
        ContextCommand::Add(args) => add(&mut contexts, args, print),
        ContextCommand::List => list(&contexts, print),
        ContextCommand::Use { name: Some(name), .. } => {
            contexts.named(name)?;
            contexts.choose(Some(name))?;
            print.value(&listed(&contexts, name)?, |listed| {
                format!("{name} is used from now on: {}", listed.context.server)
            })?;
            warn_of_variable();
            Ok(())
        }
        ContextCommand::Use { name: None, .. } => {
            contexts.choose(None)?;
            print.value(&json!({"used": null}), |_| "no context is used from now on")
        }
        ContextCommand::Remove { name } => {
            contexts.named(name)?;
            let none = if contexts.remove(name)? { "; no context is used now" } else { "" };
            print.value(&json!({"name": name, "removed": true}), |_| format!("{name} removed{none}"))
        }
    }
}

fn add(contexts: &mut Contexts, args: &AddArgs, print: &PrintArgs) -> Result<(), Failure> {
    let before = contexts.all().get(&args.name).map(|context| context.server.clone());
    if let Some(server) = before.as_ref().filter(|_| !args.replace) {
        return Err(Failure::new(format!("the context {} exists: {server}; --replace replaces it", args.name)));
    }
    let context = Context {
        server: args.server.to_string(),
        token_file: args.token_file.as_deref().map(absolute).transpose()?,
        ca_file: args.ca_file.as_deref().map(absolute).transpose()?,
    };
    contexts.add(&args.name, context)?;
    let done = if before.is_some() { "replaced" } else { "added" };
    print.value(&listed(contexts, &args.name)?, |listed| format!("{} {done}: {}", args.name, listed.context.server))
}

/// A path that means the same file in every directory.
fn absolute(path: &Path) -> Result<String, Failure> {
    let wrong = |why: &str| Failure::usage(format!("{} {why}", path.display()));
    let absolute = std::path::absolute(path).map_err(|error| wrong(&error.to_string()))?;
    absolute.to_str().map(str::to_owned).ok_or_else(|| wrong("is not UTF-8"))
}

fn listed<'a>(contexts: &'a Contexts, name: &'a str) -> Result<Listed<'a>, Failure> {
    Ok(Listed { name, context: contexts.named(name)?, used: contexts.used() == Some(name) })
}

fn list(contexts: &Contexts, print: &PrintArgs) -> Result<(), Failure> {
    let all: Vec<Listed<'_>> =
        contexts.all().keys().map(|name| listed(contexts, name)).collect::<Result<_, Failure>>()?;
    let none = "no contexts yet; `dwell context add prod --server https://dwell.internal:7373` adds one";
    print.list(&all, || none, table)?;
    if !print.json {
        warn_of_variable();
    }
    Ok(())
}

fn table(all: &[Listed<'_>]) -> String {
    let row = |Listed { name, context, used }: &Listed<'_>| {
        let file = |file: &Option<String>| file.clone().unwrap_or_else(|| "-".to_owned());
        let mark = if *used { "*" } else { "" };
        let (token, ca) = (file(&context.token_file), file(&context.ca_file));
        [mark.to_owned(), (*name).to_owned(), context.server.clone(), token, ca]
    };
    output::table(["", "name", "server", "token file", "CA file"], all.iter().map(row), &[])
}

/// A variable that was set long ago is easily forgotten.
fn warn_of_variable() {
    let server = std::env::var("DWELL_SERVER").unwrap_or_default();
    if !server.is_empty() {
        output::note(format_args!("DWELL_SERVER is set: commands ask {server}, whichever context is used"));
    }
}
