//! The table of docs/internals/groups.md is what the formulas give.

use std::time::Duration;

use dwell::coordination::membership::Timing;

const PAGE: &str = include_str!("../../../docs/internals/groups.md");

/// Calls in a second, of all members of all groups.
#[derive(Debug, PartialEq)]
struct Load {
    renewals: u64,
    heartbeats: u64,
}

impl Load {
    /// Topics with one group each, all alike.
    fn of(topics: u64, partitions: u64, members: u64, timing: Timing) -> Load {
        let each = |count: u64, span: Duration| count * 1_000 / u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Load {
            renewals: each(3 * topics * partitions, timing.ttl()),
            heartbeats: each(topics * members, timing.heartbeat()),
        }
    }
}

#[test]
fn documented_group_costs_match_the_defaults() -> Result<(), Box<dyn std::error::Error>> {
    let timing = Timing::new(Duration::from_secs(10), Duration::from_secs(1));
    let header = "| partitions | as topics | members of each | renewals/s | heartbeats/s |";
    let rows = PAGE.lines().skip_while(|line| *line != header).skip(2).take_while(|line| line.starts_with('|'));
    let mut seen = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let number = |text: &str| text.replace(',', "").parse::<u64>();
        let (topics, partitions) = cells[1].split_once(" of ").ok_or(row)?;
        let (topics, partitions) = (number(topics)?, number(partitions)?);
        assert_eq!(number(cells[0])?, topics * partitions, "{row}");
        let written = Load { renewals: number(cells[3])?, heartbeats: number(cells[4])? };
        assert_eq!(written, Load::of(topics, partitions, number(cells[2])?, timing), "{row}");
        seen += 1;
    }
    assert_eq!(seen, 5);
    Ok(())
}
