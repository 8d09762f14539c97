//! Lists: what they say when nothing is there, and what `dwell topic list` counts.

use dwell::model::error::Result;

use super::Shell;
use crate::support::{RedisServer, eventually};

/// Lists of the topic `orders`, which holds nothing, and what each says.
const EMPTY: [(&str, &str); 6] = [
    (
        "message list orders",
        "no scheduled or ready messages in group default of orders; `dwell push orders hello --delay 1h` pushes one\n",
    ),
    ("message list orders --state in_flight", "no in flight messages in group default of orders\n"),
    (
        "message list orders --to 2027-01-01T00:00:00Z",
        "no scheduled or ready messages in group default of orders before 2027-01-01T00:00:00.000Z\n",
    ),
    ("dead-letters list orders", "no dead letters in group default of orders\n"),
    ("dead-letters list orders --reason buried", "no dead letters in group default of orders that match\n"),
    ("cron list orders", "no cron jobs in orders; `dwell cron create orders pulse --every 1h hello` creates one\n"),
];

#[tokio::test]
async fn list_that_is_empty_says_so() -> Result<()> {
    let shell = Shell::start().await?;
    let none = ("topic list", "no topics yet; `dwell push orders hello` creates the first one\n");
    for (line, expected) in [none].into_iter().chain(EMPTY) {
        if line == EMPTY[0].0 {
            shell.dwell(&["topic", "create", "orders"])?;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let said = shell.dwell(&words)?;
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", expected), "{line}");
        let said = shell.dwell(&[&words[..], &["--json"]].concat())?;
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""), "{line} --json");
    }
    Ok(())
}

#[tokio::test]
async fn topics_are_listed_with_their_counts() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["topic", "create", "orders", "--partitions", "16", "--max-attempts", "1"])?;
    shell.dwell(&["topic", "create", "ledger", "--partitions", "2"])?;
    shell.dwell(&["push", "orders", "x"])?;
    shell.dwell(&["consume", "orders", "--count", "1", "--exec", "exit 1"])?;
    shell.dwell(&["push", "orders", "x", "--delay", "1h"])?;
    shell.dwell(&["group", "create", "orders", "audit", "--copy-of", "default"])?;
    let said = shell.dwell(&["topic", "list"])?;
    let table = "\
topic   partitions  groups  scheduled  ready  blocked  in flight  dead
ledger           2       1          0      0        0          0     0
orders          16       2          2      0        0          0     1
";
    assert_eq!((said.out.as_str(), said.err.as_str()), (table, ""));
    let said = shell.dwell(&["topic", "list", "--json"])?;
    assert_eq!((said.out.as_str(), said.err.as_str()), ("\"ledger\"\n\"orders\"\n", ""));
    let said = shell.dwell(&["topic", "list", "--names"])?;
    assert_eq!((said.out.as_str(), said.err.as_str()), ("ledger\norders\n", ""));
    let said = shell.dwell(&["topic", "list", "--counted", "1"])?;
    let short = "orders           -       -          -      -        -          -     -\n";
    assert!(said.out.ends_with(short), "{said:?}");
    assert_eq!(said.err, "counted 1 of 2 topics, with a request for each; --counted 2 counts all\n");
    Ok(())
}

/// The address, where it is from, the reason, and the next step.
#[tokio::test]
async fn broker_that_is_away_is_named_with_a_next_step() -> Result<()> {
    let shell = Shell::without_broker()?;
    let socket = shell.dir.path().join("dwell.sock");
    let refused = |words: &[&str], server: Option<&str>| -> Result<String> {
        let mut command = shell.command(words);
        match server {
            Some(server) => command.env("DWELL_SERVER", server),
            None => command.env_remove("DWELL_SERVER"),
        };
        let said = super::Said::from(command.output().map_err(crate::support::failed("dwell"))?);
        assert_eq!((said.code, said.out.as_str()), (Some(69), ""), "{said:?}");
        Ok(said.err)
    };
    let said = refused(&["topic", "list"], Some(&shell.address()))?;
    let start = format!("dwell: cannot reach unix:{} (DWELL_SERVER): No such file", socket.display());
    assert!(said.starts_with(&start) && said.ends_with("; is `dwell serve` running there?\n"), "{said}");
    let said = refused(&["topic", "list", "--server", "127.0.0.1:1"], None)?;
    assert!(said.starts_with("dwell: cannot reach http://127.0.0.1:1: Connection refused"), "{said}");
    Ok(())
}

/// It is the broker that does not reach its store: the address that the command line asked is another one.
#[tokio::test]
async fn store_that_is_away_is_told_apart_from_the_broker() -> Result<()> {
    let mut redis = RedisServer::start().await?;
    let shell = Shell::without_broker()?.serving(&format!("[redis]\nurl = {:?}\n", redis.url())).await?;
    redis.kill()?;
    // The first call after the end may not know whether it was applied.
    let said = eventually("Redis cannot be reached", async || {
        let said = shell.dwell(&["topic", "list"])?;
        Ok(said.err.starts_with("dwell: Redis cannot be reached").then_some(said))
    })
    .await?;
    let from = format!(
        "; the broker at {} (DWELL_SERVER) says so: `dwell doctor` on its machine looks at its store",
        shell.address()
    );
    assert!(said.code == Some(69) && said.err.ends_with(&format!("{from} (unavailable)\n")), "{said:?}");
    Ok(())
}
