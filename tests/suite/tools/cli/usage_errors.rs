//! What a new user mistypes, and the remedy that each answer names.

use dwell::model::error::Result;

use super::Shell;

/// A command line, its exit code, and what its answer says.
const MISTAKES: [(&[&str], i32, &str); 15] = [
    (&["topic", "get", "absent"], 1, "topic absent does not exist; create it with `dwell topic create absent`"),
    (&["push", "orders", "x", "--at", "2026-12-24"], 64, "needs a time and a zone; write 2026-12-24T09:00:00Z"),
    (&["message", "list", "orders", "--to", "tomorrow"], 64, "nor now, +1h or -1h"),
    (&["group", "get", "orders", "absent"], 1, "create it with `dwell group create orders absent`"),
    (&["consume", "orders", "--group", "absent"], 1, "create it with `dwell group create orders absent`"),
    (&["cron", "get", "orders", "absent"], 1, "`dwell cron list orders` shows those that exist"),
    (&["group", "create", "absent", "audit"], 1, "create it with `dwell topic create absent`"),
    (&["topic", "show", "orders"], 64, "`dwell topic` has no command `show`; it is `dwell topic get`"),
    (&["version"], 64, "it is `dwell --version`"),
    (&["dead-letters", "redrive", "orders"], 64, "give ids, or --reason, --older-than"),
    (&["dead-letters", "purge", "orders"], 64, "or --all"),
    (&["message", "reschedule", "orders", "x"], 64, "<--delay <DURATION>|--at <TIME>>"),
    (&["push", "orders", "x", "--delay", "-5s"], 64, "is negative"),
    (&["topic", "list", "--server", "tcp://host"], 64, "expected http://HOST:PORT, https://HOST:PORT or unix:/path"),
    (&["push", "orders", "x", "--delay", "30"], 64, "write \"30s\" or \"30ms\""),
];

#[tokio::test]
async fn usage_errors_suggest_a_correction() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["topic", "create", "orders"])?;
    for (args, code, remedy) in MISTAKES {
        let said = shell.dwell(args)?;
        assert!(said.code == Some(code) && said.err.contains(remedy), "{args:?}: {said:?}");
        assert!(!said.err.contains("PUT /"), "{args:?} names a request: {said:?}");
    }
    Ok(())
}

#[tokio::test]
async fn times_of_bulk_commands_are_relative_to_now() -> Result<()> {
    let shell = Shell::start().await?;
    for (id, delay) in [("a", "30m"), ("b", "90m")] {
        shell.dwell(&["push", "orders", "x", "--id", id, "--delay", delay])?;
    }
    let count = |from, to| shell.dwell(&["bulk", "count", "orders", "--from", from, "--to", to]);
    assert_eq!(count("now", "+1h")?.out, "1 waiting\n");
    assert_eq!(count("-1h", "+2h")?.out, "2 waiting\n");
    let postponed = shell.dwell(&["bulk", "postpone", "orders", "--from", "now", "--to", "+1h", "--by", "1h"])?;
    assert_eq!(postponed.out, "1 postponed\n", "{postponed:?}");
    assert_eq!(count("+80m", "+2h")?.out, "2 waiting\n");
    Ok(())
}
