//! Completions of shells, and man pages.

use std::process::Command;

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
