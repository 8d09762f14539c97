//! The command line: reads the arguments, runs the command that they name, and turns its outcome into an exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::{Arg, Args as _, CommandFactory, FromArgMatches as _, Parser, Subcommand};

use crate::cli::failure::{self, Failure};
use crate::cli::log_writer::flush_log;
use crate::cli::{
    ServerArgs, bulk, clock, completions, config, consume, context, cron, dead_letters, doctor, drain, group, health,
    message, output, push, reload, serve, settle, top, topic, topic_names,
};
use crate::measure::{bench, demo};

const HELP_WIDTH: usize = 100;

const AFTER_HELP: &str = "\
Exit codes:
  0    done
  1    something failed: the broker refused, a line could not be pushed, a promise was broken
  64   the command line or the configuration is wrong
  69   the broker cannot be reached, or its store cannot
  130  ended at once by a second signal

Two commands to start with:
  dwell demo         what dwell does, in 20 seconds, with nothing installed
  dwell serve        a broker on http://127.0.0.1:7373";

/// A delay broker: push a message with a due time, and a consumer gets it then, at least once and never early.
#[derive(Debug, Parser)]
#[command(name = "dwell", version, after_help = AFTER_HELP, arg_required_else_help = true)]
#[command(max_term_width = HELP_WIDTH)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Push(push::PushArgs),
    Consume(consume::ConsumeArgs),
    Reserve(settle::ReserveArgs),
    Ack(settle::AckArgs),
    Nack(settle::NackArgs),
    Release(settle::ReleaseArgs),
    Extend(settle::ExtendArgs),
    Topic(topic::TopicArgs),
    Group(group::GroupArgs),
    Cron(cron::CronArgs),
    Clock(clock::ClockArgs),
    Message(message::MessageArgs),
    #[command(visible_alias = "dlq")]
    DeadLetters(dead_letters::DeadLetterArgs),
    Explain(message::ExplainArgs),
    Forecast(bulk::ForecastArgs),
    Bulk(bulk::BulkArgs),
    Verify(health::VerifyArgs),
    Attention(health::AttentionArgs),
    Brokers(health::BrokersArgs),
    Top(top::TopArgs),
    Health(health::HealthArgs),
    Doctor(doctor::DoctorArgs),
    Config(config::ConfigCommandArgs),
    Context(context::ContextArgs),
    Reload(reload::ReloadArgs),
    Drain(drain::DrainArgs),
    Demo(demo::DemoArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

impl Command {
    /// Whether it writes to the terminal while it works.
    fn draws_itself(&self) -> bool {
        match self {
            Command::Serve(_) | Command::Consume(_) | Command::Top(_) | Command::Demo(_) | Command::Bench(_) => true,
            Command::Push(args) => args.is_of_file(),
            _ => false,
        }
    }
}

/// All commands. The options that say which broker to ask stand before the command, too.
pub fn command() -> clap::Command {
    let heading = "Options of every command that asks a broker, before or after its name";
    let before =
        broker_options().into_iter().map(|option| option.global(false).env(Resettable::Reset).help_heading(heading));
    Cli::command().args(before)
}

fn broker_options() -> Vec<Arg> {
    ServerArgs::augment_args(clap::Command::new("options")).get_arguments().cloned().collect()
}

/// The words behind the name of the program, with options that stand before the command moved behind it. A command that asks
/// no broker refuses them there.
fn moved(mut words: Vec<OsString>) -> Vec<OsString> {
    let (options, mut at) = (broker_options(), 0);
    while let Some(option) = words.get(at).and_then(|word| word.to_str()).and_then(|word| word.strip_prefix("--")) {
        let (name, has_value) = option.split_once('=').map_or((option, false), |(name, _)| (name, true));
        let Some(option) = options.iter().find(|option| option.get_long() == Some(name)) else { return words };
        at += if option.get_action().takes_values() && !has_value { 2 } else { 1 };
    }
    if let Some(front) = words.get_mut(..=at) {
        front.rotate_right(1);
    }
    words
}

/// Reads the words behind the name of the program.
fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let all = std::iter::once("dwell".into()).chain(moved(words));
    Cli::from_arg_matches(&command().try_get_matches_from(all)?)
}

/// Checks that arguments are understood, without running anything: for tests of what the documentation tells people to type.
pub fn check(args: &[String]) -> Result<(), String> {
    match parse(args.iter().map(OsString::from).collect()) {
        Err(error) if error.use_stderr() => Err(error.to_string()),
        Ok(_) | Err(_) => Ok(()),
    }
}

pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [name, line] = words.as_slice()
        && name == topic_names::COMMAND
    {
        return finished(topic_names::print(&line.to_string_lossy(), command()));
    }
    let cli = match parse(words.clone()) {
        Ok(cli) => cli,
        Err(error) => {
            let typed: Vec<String> = words.iter().map(|word| word.to_string_lossy().into()).collect();
            match completions::explained(&error, &typed, &command()) {
                Some(text) => output::note(text.trim_end()),
                // Help and version are no errors; where they cannot be printed there is nobody to tell.
                None => drop(error.print()),
            }
            return if error.use_stderr() { failure::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    finished(async {
        match cli.command.draws_itself() {
            true => run(cli.command).await,
            false => output::with_sign(run(cli.command)).await,
        }
    })
}

/// Runs what a command does to its end, and says how that was.
fn finished(command: impl Future<Output = Result<(), Failure>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::report(&Failure::new(format!("cannot start the runtime: {error}"))),
    };
    let result = runtime.block_on(command);
    // A second signal leaves running tasks behind on purpose; nothing waits for them.
    runtime.shutdown_background();
    flush_log();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output::report(&failure),
    }
}

async fn run(chosen: Command) -> Result<(), Failure> {
    match chosen {
        Command::Serve(args) => serve::run(&args).await,
        Command::Push(args) => push::run(&args).await,
        Command::Consume(args) => consume::run(&args).await,
        Command::Reserve(args) => settle::reserve(&args).await,
        Command::Ack(args) => settle::ack(&args).await,
        Command::Nack(args) => settle::nack(&args).await,
        Command::Release(args) => settle::release(&args).await,
        Command::Extend(args) => settle::extend(&args).await,
        Command::Topic(args) => topic::run(&args).await,
        Command::Group(args) => group::run(&args).await,
        Command::Clock(args) => clock::run(&args).await,
        Command::Cron(args) => cron::run(&args).await,
        Command::Message(args) => message::run(&args).await,
        Command::DeadLetters(args) => dead_letters::run(&args).await,
        Command::Explain(args) => message::explain(&args).await,
        Command::Forecast(args) => bulk::forecast(&args).await,
        Command::Bulk(args) => bulk::run(&args).await,
        Command::Verify(args) => health::verify(&args).await,
        Command::Attention(args) => health::attention(&args).await,
        Command::Brokers(args) => health::brokers(&args).await,
        Command::Top(args) => top::run(&args).await,
        Command::Health(args) => health::run(&args).await,
        Command::Doctor(args) => doctor::run(&args).await,
        Command::Config(args) => config::run(&args),
        Command::Context(args) => context::run(&args),
        Command::Reload(args) => reload::run(&args).await,
        Command::Drain(args) => drain::run(&args).await,
        Command::Demo(args) => demo::run(&args).await,
        Command::Bench(args) => bench::run(&args).await,
        Command::Completions(args) => completions::print(&args, command()),
        Command::Man(args) => completions::write_pages(&args, command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::demo::report::NEXT;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    fn every_command(command: &mut clap::Command, path: &str, seen: &mut Vec<(String, clap::Command)>) {
        seen.push((path.to_owned(), command.clone()));
        for inner in command.get_subcommands_mut() {
            let path = format!("{path} {}", inner.get_name());
            every_command(inner, &path, seen);
        }
    }

    #[test]
    fn help_fits_into_a_hundred_columns() {
        let (mut all, mut root) = (Vec::new(), command());
        root.build();
        every_command(&mut root, "dwell", &mut all);
        assert!(all.len() > 60, "{}", all.len());
        let mut long = Vec::new();
        for (path, command) in all {
            // The text below the options is laid out by hand and must fit unwrapped.
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let texts = [command.clone().render_help(), command.clone().render_long_help()];
            let texts = texts.map(|text| text.to_string()).into_iter().chain([below]);
            let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
            long.extend(lines.filter(|line| line.chars().count() > HELP_WIDTH).map(|line| format!("{path}: {line}")));
        }
        assert!(long.is_empty(), "{long:#?}");
    }

    /// An example ends where its remark begins: behind two spaces.
    #[test]
    fn every_example_of_the_help_parses() {
        let (mut all, mut root) = (Vec::new(), command());
        every_command(&mut root, "dwell", &mut all);
        let (mut count, mut wrong) = (0, Vec::new());
        for (path, command) in all {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for example in below.lines().filter_map(|line| line.strip_prefix("  dwell ")) {
                let example = example.split("  ").next().unwrap_or_default();
                let example = example.split(['|', '>', '<']).next().unwrap_or_default();
                // A quoted argument is one word here, whatever is in it.
                let mut args = Vec::new();
                for (n, part) in example.split('\'').enumerate() {
                    match n % 2 {
                        0 => args.extend(part.split_whitespace().map(str::to_owned)),
                        _ => args.push(part.to_owned()),
                    }
                }
                count += 1;
                wrong.extend(check(&args).err().map(|why| format!("{path}: {example}: {why}")));
            }
        }
        assert!(count > 60 && wrong.is_empty(), "{count} {wrong:#?}");
    }

    #[test]
    fn every_subcommand_shows_its_usage() {
        for command in command().get_subcommands() {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Examples:"), "{}", command.get_name());
        }
    }

    #[test]
    fn options_before_the_command_are_moved_behind_it() {
        let cases = [
            ("topic list", "topic list"),
            ("--server a topic list --json", "topic --server a list --json"),
            ("--json --server=a --token-file f topic list", "topic --json --server=a --token-file f list"),
            ("--server", "--server"),
            ("--server topic", "--server topic"),
            ("--version", "--version"),
            ("--json --version", "--json --version"),
            ("", ""),
        ];
        for (typed, expected) in cases {
            let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
            assert_eq!(moved(words(typed)), words(expected), "{typed}");
        }
    }

    fn printed(line: &str) -> String {
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = command().try_get_matches_from(std::iter::once("dwell".to_owned()).chain(typed.clone()));
        let error = error.err();
        error.and_then(|error| completions::explained(&error, &typed, &command())).unwrap_or_default()
    }

    #[test]
    fn unknown_command_lists_known_commands() {
        let show = printed("topic show orders");
        assert!(show.starts_with("error: `dwell topic` has no command `show`; it is `dwell topic get`\n"), "{show}");
        assert!(show.contains("Commands: create, update, get, list, move, delete\n"), "{show}");
        assert!(printed("topics list").contains("; it is `dwell topic`\n"));
        assert!(printed("version").contains("; it is `dwell --version`\n"));
        assert!(printed("topic rm a").contains("; it is `dwell topic delete`\n"));
        assert!(printed("message show a b").contains("`dwell message get`"));
        // A word of another tool that means nothing there.
        assert!(printed("bulk show").starts_with("error: `dwell bulk` has no command `show`\n"));
        assert_eq!(printed("topic get"), "");
    }

    #[test]
    fn every_command_of_the_next_steps_parses() {
        for line in NEXT.lines().skip(1) {
            let command = line.trim_start().split("  ").next().unwrap_or_default();
            let words: Vec<String> = command.split(' ').skip(1).map(|word| word.replace('\'', "")).collect();
            let words: Vec<String> = words.into_iter().filter(|word| word != "4711").collect();
            assert_eq!(check(&words), Ok(()), "{command}");
        }
    }
}
