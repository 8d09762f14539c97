//! The table once, as text: for a pipe, a log, or a terminal that cannot do more.

use std::time::Duration;

use super::client::{Wanted, ask};
use super::state::{Event, State};
use super::view::{cells, header, names_of_columns};
use crate::cli::client::Client;
use crate::cli::failure::{Failure, UNAVAILABLE};
use crate::cli::output;
use crate::platform::clock::Clock;

/// Topics that are described.
const TOPICS_MAX: usize = 200;

/// Looks twice, so far apart, since rates are between two looks, and prints what it saw. While the store is away that is
/// how the broker stands, and what waits in the WAL.
pub(super) async fn run(client: Client, server: String, every: Duration) -> Result<(), Failure> {
    let mut state = State::new(server, (0, 0));
    let looked = look_twice(&client, &mut state, every).await;
    match &looked {
        Ok(()) => output::line(table(&state))?,
        Err(_) if state.away.is_none() => output::line(head(&state).join("\n"))?,
        Err(_) => {}
    }
    looked
}

async fn look_twice(client: &Client, state: &mut State, every: Duration) -> Result<(), Failure> {
    look(client, state, Wanted { list: true, topics: Vec::new() }).await?;
    Clock::System.sleep(every).await;
    let topics = state.rows().into_iter().take(TOPICS_MAX).map(|row| row.name).collect();
    look(client, state, Wanted { list: false, topics }).await
}

/// # Errors
/// Nobody answers, or not everything.
async fn look(client: &Client, state: &mut State, wanted: Wanted) -> Result<(), Failure> {
    state.update(Event::Seen(Box::new(ask(client.clone(), wanted).await)));
    let why = state.away.as_ref().map(|(why, _)| why.clone()).or_else(|| state.trouble.clone());
    why.map_or(Ok(()), |message| Err(Failure { code: UNAVAILABLE, message }))
}

fn head(state: &State) -> Vec<String> {
    header(state).iter().map(|line| line.text().trim_end().to_owned()).collect()
}

fn table(state: &State) -> String {
    let mut lines = head(state);
    let mut rows = vec![names_of_columns()];
    let all = state.rows();
    rows.extend(all.iter().take(TOPICS_MAX).map(cells));
    let numbers: Vec<usize> = (1..rows.first().map_or(0, Vec::len)).collect();
    lines.push(output::columns(&rows, &numbers));
    if all.len() > TOPICS_MAX {
        let more = output::thousands((all.len() - TOPICS_MAX) as u64);
        lines.push(format!("and {more} more topics: `dwell top` on a terminal shows any of them"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::testing::state;
    use super::*;

    #[test]
    fn the_first_topics_are_a_table_and_the_rest_is_counted() {
        let names: Vec<String> = (0..1_300).map(|n| format!("t{n:04}")).collect();
        let text = table(&state((0, 0), &names));
        assert_eq!(text.lines().count(), 3 + 1 + TOPICS_MAX + 1);
        assert!(text.contains("\nt0199 ") && !text.contains("t0200"), "{text}");
        assert!(text.ends_with("and 1,100 more topics: `dwell top` on a terminal shows any of them"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
