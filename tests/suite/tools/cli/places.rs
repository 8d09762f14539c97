//! Which broker a command asks: options before the command, variables, and contexts.

use std::os::unix::fs::PermissionsExt as _;

use dwell::model::error::Result;

use super::json::LINES;
use super::{Said, Shell};
use crate::support::failed;

/// A shell whose `DWELL_SERVER` names no broker, beside the broker that runs.
struct Elsewhere {
    shell: Shell,
}

impl Elsewhere {
    async fn start() -> Result<Elsewhere> {
        Ok(Elsewhere { shell: Shell::start().await? })
    }

    /// Runs dwell without `DWELL_SERVER`, with other variables.
    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> Result<Said> {
        let mut command = self.shell.command(args);
        command.env_remove("DWELL_SERVER").envs(variables.iter().copied());
        command.output().map(Said::from).map_err(failed("dwell"))
    }

    fn says(&self, args: &[&str], variables: &[(&str, &str)], expected: &str) -> Result<()> {
        let said = self.run(args, variables)?;
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), expected, ""), "{args:?}");
        Ok(())
    }

    /// It fails, with this in its words.
    fn fails(&self, args: &[&str], variables: &[(&str, &str)], code: i32, why: &str) -> Result<()> {
        let said = self.run(args, variables)?;
        assert!(said.code == Some(code) && said.err.contains(why), "{args:?}: {said:?}");
        Ok(())
    }
}

const NAMES: [&str; 3] = ["topic", "list", "--names"];

#[tokio::test]
async fn options_stand_before_the_command_too() -> Result<()> {
    let at = Elsewhere::start().await?;
    let server = at.shell.address();
    at.shell.dwell(&["topic", "create", "orders"])?;
    let with = |words: &[&'static str]| [words, &NAMES[..]].concat();
    at.says(&[&["--server", &server], &NAMES[..]].concat(), &[], "orders\n")?;
    at.says(&[&[&*format!("--server={server}")], &NAMES[..]].concat(), &[], "orders\n")?;
    at.says(&["--json", "--server", &server, "topic", "list"], &[], "\"orders\"\n")?;
    at.says(&["topic", "--server", &server, "list", "--names"], &[], "orders\n")?;
    at.says(&NAMES, &[("DWELL_SERVER", &server)], "orders\n")?;
    // The option wins over the variable, wherever it stands.
    let nobody = [("DWELL_SERVER", "unix:/does/not/exist.sock")];
    at.says(&[&["--server", &server], &NAMES[..]].concat(), &nobody, "orders\n")?;
    at.fails(&with(&["--server", "unix:/not/there.sock"]), &[("DWELL_SERVER", &server)], 69, "/not/there.sock")?;
    at.fails(&["--server", &server], &[], 64, "Usage: dwell")?;
    at.fails(&["--server"], &[], 64, "a value is required")?;
    at.fails(&["--server", "tcp://x", "topic", "list"], &[], 64, "expected http://HOST:PORT")?;
    at.fails(&["--server", &server, "man", "."], &[], 64, "unexpected argument '--server'")?;
    at.fails(&["--server", &server, "topic", "show"], &[], 64, "it is `dwell topic get`")?;
    Ok(())
}

#[test]
fn every_command_that_takes_server_takes_it_first() {
    let local = ["config check", "config show", "context"];
    let asking = LINES.iter().filter(|line| !local.iter().any(|local| line.starts_with(local)));
    for line in asking.map(|line| line.replace("$later", "2027-01-01T00:00:00Z")) {
        let words = ["--server", "unix:/dwell.sock", "--token-file", "token"].into_iter().chain(line.split(' '));
        let words: Vec<String> = words.map(str::to_owned).collect();
        assert_eq!(dwell::command_line::check(&words), Ok(()), "{line}");
    }
}

#[tokio::test]
async fn contexts_are_added_listed_chosen_and_removed() -> Result<()> {
    let at = Elsewhere::start().await?;
    let (server, home) = (at.shell.address(), at.shell.dir.path().to_owned());
    at.shell.dwell(&["topic", "create", "orders"])?;
    let list = ["context", "list"];
    let none = at.run(&list, &[])?;
    let hint = "no contexts yet; `dwell context add prod --server https://dwell.internal:7373` adds one\n";
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (Some(0), "", hint));
    at.fails(&["--context", "here", "topic", "list"], &[], 64, "no context is called here; there are none yet")?;

    at.says(&["context", "add", "here", "--server", &server], &[], &format!("here added: {server}\n"))?;
    let token = home.join("token").display().to_string();
    let add = ["context", "add", "prod", "--server", "https://dwell.internal:7373", "--token-file", "token"];
    let mut added = at.shell.command(&add);
    let added = added.current_dir(&home).output().map(Said::from).map_err(failed("dwell"))?;
    assert_eq!(added.out, "prod added: https://dwell.internal:7373\n", "{added:?}");
    at.fails(&add, &[], 1, "the context prod exists: https://dwell.internal:7373; --replace replaces it")?;
    at.says(&["context", "use", "here"], &[], &format!("here is used from now on: {server}\n"))?;
    at.fails(&["context", "use", "ther"], &[], 64, "no context is called ther; there are here and prod")?;
    let width = server.len();
    let (head, https) = ("server", "https://dwell.internal:7373");
    let table = format!(
        "   name  {head:width$}  token file                  CA file\n\
         *  here  {server}  -{:space$}-\n   prod  {https:width$}  {token}  -\n",
        "",
        space = token.len() + 1
    );
    let squeezed = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(squeezed(&at.run(&list, &[])?.out), squeezed(&table));
    let json = at.run(&["context", "list", "--json"], &[])?.out;
    let first = format!(r#"{{"name":"here","server":"{server}","used":true}}"#);
    assert_eq!(json.lines().next(), Some(first.as_str()));

    let file = home.join(".config/dwell/contexts.toml");
    let mode = std::fs::metadata(&file).map_err(failed("the file of contexts"))?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).map_err(failed("the file of contexts"))?;
    assert!(text.contains(&format!("token_file = \"{token}\"")), "{text}");

    at.says(&NAMES, &[], "orders\n")?;
    at.says(&["context", "remove", "here"], &[], "here removed; no context is used now\n")?;
    at.fails(&["context", "remove", "here"], &[], 64, "no context is called here; there is prod")?;
    Ok(())
}

#[tokio::test]
async fn precedence_of_flags_variables_and_contexts() -> Result<()> {
    let at = Elsewhere::start().await?;
    let server = at.shell.address();
    at.shell.dwell(&["topic", "create", "orders"])?;
    for (name, server) in [("here", &*server), ("chosen", "unix:/chosen.sock"), ("third", "unix:/third.sock")] {
        at.run(&["context", "add", name, "--server", server], &[])?;
    }
    at.fails(&NAMES, &[("DWELL_SERVER", "unix:/default.sock")], 69, "unix:/default.sock (DWELL_SERVER)")?;
    at.run(&["context", "use", "chosen"], &[])?;
    at.fails(&NAMES, &[], 69, "unix:/chosen.sock (context chosen)")?;
    at.fails(&NAMES, &[("DWELL_CONTEXT", "third")], 69, "unix:/third.sock (context third)")?;
    at.says(&NAMES, &[("DWELL_CONTEXT", "here")], "orders\n")?;
    at.says(&[&NAMES[..], &["--context", "here"]].concat(), &[("DWELL_CONTEXT", "third")], "orders\n")?;
    at.fails(&NAMES, &[("DWELL_CONTEXT", "")], 69, "unix:/chosen.sock")?;
    // An address that is set wins over a context; a context on the command line is not passed over in silence.
    let both = at.run(&[&["--context", "third"], &NAMES[..]].concat(), &[("DWELL_SERVER", &server)])?;
    assert_eq!((both.out.as_str(), both.code), ("orders\n", Some(0)), "{both:?}");
    assert_eq!(both.err, "the context third is not used: --server or DWELL_SERVER names another broker\n");
    at.says(&[&["--server", &server], &NAMES[..]].concat(), &[("DWELL_CONTEXT", "third")], "orders\n")?;

    let delete = ["--context", "here", "topic", "delete", "orders"];
    at.fails(&delete, &[], 64, &format!("Delete the topic orders with 0 messages, at {server} (context here)?"))?;
    let file = at.shell.dir.path().join(".config/dwell/contexts.toml");
    std::fs::write(&file, "used = \"gone\"\n").map_err(failed("the file of contexts"))?;
    at.fails(&NAMES, &[], 64, "no context is called gone")?;
    std::fs::write(&file, "used = \n").map_err(failed("the file of contexts"))?;
    at.fails(&NAMES, &[], 64, &format!("{} cannot be read: ", file.display()))?;
    at.says(&[&["--server", &server], &NAMES[..]].concat(), &[], "orders\n")?;
    Ok(())
}

/// A token is sent to the broker that it is meant for.
#[tokio::test]
async fn token_file_of_a_context_goes_with_its_server() -> Result<()> {
    let at = Elsewhere::start().await?;
    let server = at.shell.address();
    let add = ["context", "add", "here", "--server", &server, "--token-file", "/does/not/exist"];
    at.run(&add, &[])?;
    at.fails(&["--context", "here", "topic", "list"], &[], 64, "--token-file: /does/not/exist cannot be read")?;
    at.says(&["--server", &server, "topic", "list", "--json"], &[("DWELL_CONTEXT", "here")], "")?;
    let config = at.shell.dir.path().join("config").display().to_string();
    at.fails(&["context", "remove", "here"], &[("XDG_CONFIG_HOME", &config)], 64, "there are none yet")?;
    at.says(&["context", "remove", "here"], &[], "here removed\n")?;
    let homeless = at.shell.command(&add).env_remove("HOME").output().map(Said::from).map_err(failed("dwell"))?;
    assert!(homeless.code == Some(64) && homeless.err.contains("neither XDG_CONFIG_HOME nor HOME"), "{homeless:?}");
    Ok(())
}
