//! Completions of shells, of which topics come from the broker; and man pages.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dwell::model::error::Result;

use super::{Said, Shell};
use crate::support::failed;

#[tokio::test]
async fn completions_and_man_pages_cover_every_subcommand() -> Result<()> {
    let shell = Shell::without_broker()?;
    for (name, begin) in [("bash", "_dwell()"), ("zsh", "#compdef dwell"), ("fish", "# Print an optspec")] {
        let said = shell.dwell(&["completions", name])?;
        assert!(
            said.code == Some(0) && said.out.starts_with(begin) && said.out.contains("dead-letters"),
            "{name}: {said:?}"
        );
    }
    assert_eq!(shell.dwell(&["completions", "cmd"])?.code, Some(64));
    let script = shell.dir.path().join("dwell.bash");
    std::fs::write(&script, shell.dwell(&["completions", "bash"])?.out).map_err(failed("a script"))?;
    let offered = format!(
        "source {}; COMP_WORDS=(dwell dead); COMP_CWORD=1; _dwell dwell dead dwell; echo ${{COMPREPLY[*]}}",
        script.display()
    );
    let bash = Command::new("bash").args(["-c", &offered]).output().map(Said::from).map_err(failed("bash"))?;
    assert_eq!((bash.code, bash.out.as_str()), (Some(0), "dead-letters\n"), "{bash:?}");

    let directory = shell.dir.path().display().to_string();
    assert_eq!(shell.dwell(&["man", &directory])?.code, Some(0));
    for page in ["dwell.1", "dwell-push.1", "dwell-dead-letters-purge.1"] {
        let text = std::fs::read_to_string(shell.dir.path().join(page)).map_err(failed(page))?;
        assert!(text.contains(".SH NAME"), "{page}");
    }
    let nowhere = shell.dwell(&["man", "/nowhere/at/all"])?;
    assert!(nowhere.code == Some(1) && nowhere.err.contains("/nowhere/at/all"), "{nowhere:?}");
    Ok(())
}

/// Has bash complete a line with the script of the broker's shell, and returns what it offers.
fn offered(shell: &Shell, line: &str) -> Result<String> {
    let script = shell.dir.path().join("dwell.bash");
    std::fs::write(&script, shell.dwell(&["completions", "bash"])?.out).map_err(failed("a script"))?;
    // As readline does it: the words with the breaks of bash, and the line up to the cursor.
    let driver = r#"
        source "$1"; COMP_LINE="$2" COMP_POINT=${#2}
        read -r -a COMP_WORDS <<< "$COMP_LINE"
        [[ $COMP_LINE == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _dwell dwell "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        echo "${COMPREPLY[*]}""#;
    let mut bash = shell.command(&[]);
    let path = shell.dir.path().join("bin");
    std::fs::create_dir_all(&path).map_err(failed("a directory"))?;
    let link = path.join("dwell");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dwell"), &link).map_err(failed("a link"))?;
    }
    let paths = format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default());
    let environment: Vec<_> =
        bash.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    bash = Command::new("bash");
    bash.args(["-c", driver, "bash"]).arg(&script).arg(line).env_clear().envs(environment).env("PATH", paths);
    let said = bash.stdin(Stdio::null()).output().map(Said::from).map_err(failed("bash"))?;
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{line}: {said:?}");
    Ok(said.out.trim_end().to_owned())
}

#[tokio::test]
async fn bash_completes_topics_of_the_broker() -> Result<()> {
    let shell = Shell::start().await?;
    for topic in ["orders", "orders-dead", "ledger"] {
        shell.dwell(&["topic", "create", topic])?;
    }
    let cases = [
        ("dwell topic get ", "ledger orders orders-dead"),
        ("dwell topic get or", "orders orders-dead"),
        ("dwell push orders-", "orders-dead"),
        ("dwell message list --state ready or", "orders orders-dead"),
        ("dwell --json dead-letters list l", "ledger"),
        ("dwell dlq list l", "ledger"),
        ("dwell topic move orders l", "ledger"),
        ("dwell topic create new --dead-letter-topic orders-", "orders-dead"),
        // A payload is no topic, nor is an option or a word of a command.
        ("dwell push orders or", ""),
        ("dwell topic li", "list"),
        ("dwell topic get --ser", "--server"),
        ("dwell message list orders --state re", "ready"),
    ];
    for (line, expected) in cases {
        assert_eq!(offered(&shell, line)?, expected, "{line}");
    }
    Ok(())
}

#[tokio::test]
async fn completion_asks_the_broker_of_the_line() -> Result<()> {
    let (here, other) = (Shell::start().await?, Shell::start().await?);
    other.dwell(&["topic", "create", "ledger"])?;
    here.dwell(&["context", "add", "other", "--server", &other.address()])?;
    assert_eq!(offered(&here, &format!("dwell --server {} topic get l", other.address()))?, "ledger");
    assert_eq!(offered(&here, &format!("dwell topic get --server='{}' l", other.address()))?, "ledger");
    assert_eq!(offered(&here, "dwell topic get l")?, "");
    let asked = |line: &str| -> Result<Said> {
        let mut command = here.command(&["complete-topics", line]);
        command.env_remove("DWELL_SERVER").output().map(Said::from).map_err(failed("dwell"))
    };
    assert_eq!(asked("dwell --context other topic get l")?.out, "ledger\n");
    Ok(())
}

#[tokio::test]
async fn completion_is_silent_and_quick_when_the_broker_is_away() -> Result<()> {
    let shell = Shell::without_broker()?;
    let socket = shell.dir.path().join("dwell.sock");
    for silent in [false, true] {
        // Once nothing is there, and once something that takes connections and says nothing.
        let _listener = silent.then(|| std::os::unix::net::UnixListener::bind(&socket)).transpose();
        let started = Instant::now();
        let said = shell.dwell(&["complete-topics", "dwell topic get o"])?;
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""), "{said:?}");
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    }
    assert_eq!(offered(&shell, "dwell topic get o")?, "");
    let wrong = shell.dwell(&["complete-topics", "dwell --server tcp://x topic get o"])?;
    assert_eq!((wrong.code, wrong.out.as_str(), wrong.err.as_str()), (Some(0), "", ""), "{wrong:?}");
    Ok(())
}
