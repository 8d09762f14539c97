//! A command that does not exist: what there is in its place.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// What people know from other tools, and what it is here.
const ELSEWHERE: [(&str, &str); 19] = [
    ("show", "get"),
    ("describe", "get"),
    ("info", "get"),
    ("ls", "list"),
    ("rm", "delete"),
    ("remove", "delete"),
    ("add", "create"),
    ("new", "create"),
    ("put", "create"),
    ("set", "update"),
    ("alter", "update"),
    ("send", "push"),
    ("publish", "push"),
    ("produce", "push"),
    ("receive", "consume"),
    ("subscribe", "consume"),
    ("schedule", "cron"),
    ("status", "health"),
    ("version", "--version"),
];

/// Says which commands there are, if the error is about one that does not exist; `typed` is what follows the program's name.
pub(super) fn explained(error: &Error, typed: &[String], root: &Command) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (mut place, mut path) = (root, root.get_name().to_owned());
    for word in typed.iter().take_while(|word| *word != wrong) {
        let Some(inner) = place.find_subcommand(word) else { continue };
        place = inner;
        path = format!("{path} {}", inner.get_name());
    }
    let names: Vec<&str> = place.get_subcommands().map(Command::get_name).filter(|name| *name != "help").collect();
    let meant = |name: &&str| names.contains(name) || name.starts_with("--") && place.get_name() == root.get_name();
    // A plural, or what other tools say.
    let singular = wrong.strip_suffix('s').filter(|name| names.contains(name));
    let elsewhere = ELSEWHERE.iter().find(|(other, _)| other == wrong).map(|(_, name)| *name);
    let hint = elsewhere.or(singular).filter(meant).map_or(String::new(), |name| format!("; it is `{path} {name}`"));
    let all = names.join(", ");
    Some(format!("error: `{path}` has no command `{wrong}`{hint}\n\nCommands: {all}\n\nTry `{path} --help`.\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Cli;
    use super::*;

    fn said(line: &str) -> String {
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::command().try_get_matches_from(std::iter::once("dwell".to_owned()).chain(typed.clone()));
        let error = error.err();
        error.and_then(|error| explained(&error, &typed, &Cli::command())).unwrap_or_default()
    }

    #[test]
    fn unknown_commands_are_answered_with_those_that_exist() {
        let show = said("topic show orders");
        assert!(show.starts_with("error: `dwell topic` has no command `show`; it is `dwell topic get`\n"), "{show}");
        assert!(show.contains("Commands: create, update, get, list, move, delete\n"), "{show}");
        assert!(said("topics list").contains("; it is `dwell topic`\n"));
        assert!(said("version").contains("; it is `dwell --version`\n"));
        assert!(said("topic rm a").contains("; it is `dwell topic delete`\n"));
        assert!(said("message show a b").contains("`dwell message get`"));
        // A word of another tool that means nothing there.
        assert!(said("bulk show").starts_with("error: `dwell bulk` has no command `show`\n"));
        assert_eq!(said("topic get"), "");
    }
}
