//! Shows the table once, as text or as JSON: in a pipe, and for scripts.

use std::time::Duration;

use serde_json::{Value, json};

use super::snapshot::{Wanted, ask};
use super::state::{Event, Row, State};
use super::view::{COLUMNS, cells, group_cells, header};
use crate::cli::client::Client;
use crate::cli::failure::{Failure, UNAVAILABLE};
use crate::cli::{PrintArgs, output};
use crate::model::spelling::thousands;
use crate::platform::clock::Clock;

const TOPICS_MAX: usize = 200;

/// Looks twice, so far apart, since rates are between two looks, and prints what it saw. While the store is unavailable that is
/// how the broker stands, and what waits in the WAL.
pub(super) async fn run(client: Client, server: String, every: Duration, print: &PrintArgs) -> Result<(), Failure> {
    let mut state = State::new(server, (0, 0));
    let looked = look_twice(&client, &mut state, every).await;
    match &looked {
        Ok(()) => print.value(&as_json(&state), |_| table(&state))?,
        Err(_) if state.away.is_none() => print.value(&as_json(&state), |_| head(&state).join("\n"))?,
        Err(_) => {}
    }
    looked
}

async fn look_twice(client: &Client, state: &mut State, every: Duration) -> Result<(), Failure> {
    look(client, state, Wanted { list: true, ..Wanted::default() }).await?;
    Clock::System.sleep(every).await;
    let topics = state.rows().into_iter().take(TOPICS_MAX).map(|row| row.name).collect();
    look(client, state, Wanted { topics, ..Wanted::default() }).await
}

async fn look(client: &Client, state: &mut State, wanted: Wanted) -> Result<(), Failure> {
    state.update(Event::Seen(Box::new(ask(client.clone(), wanted).await)));
    let why = state.away.as_ref().map(|(why, _)| why.clone()).or_else(|| state.trouble.clone());
    why.map_or(Ok(()), |message| Err(Failure { code: UNAVAILABLE, message }))
}

fn head(state: &State) -> Vec<String> {
    header(state).iter().map(|line| line.text().trim_end().to_owned()).collect()
}

fn table(state: &State) -> String {
    let (mut lines, total) = (head(state), state.total());
    let all = state.rows();
    let mut shown = Vec::new();
    for row in all.iter().take(TOPICS_MAX) {
        shown.push(cells(row));
        shown.extend(state.groups(&row.name).iter().map(group_cells));
    }
    shown.extend((all.len() > 1).then(|| cells(&total)));
    let numbers: Vec<usize> = (2..COLUMNS.len()).collect();
    lines.push(output::table(COLUMNS, shown.into_iter(), &numbers));
    if all.len() > TOPICS_MAX {
        let more = thousands((all.len() - TOPICS_MAX) as u64);
        lines.push(format!("and {more} more topics: `dwell top` on a terminal shows any of them"));
    }
    lines.join("\n")
}

fn as_json(state: &State) -> Value {
    let reading = state.reading.as_ref();
    let readiness = state.readiness.as_ref();
    let log = |(records, bytes, age): &(f64, f64, f64)| json!({"records": records, "bytes": bytes, "oldest_age_ms": age * 1e3});
    let logs = reading.map(|reading| reading.logs.iter().map(|(name, of)| (name.clone(), log(of))));
    json!({
        "server": state.server,
        "version": reading.map(|reading| reading.version.clone()),
        "ready": readiness.is_some_and(Result::is_ok),
        "detail": readiness.and_then(|readiness| match readiness {
            Ok(ready) => ready.detail.clone(),
            Err(why) => Some(why.clone()),
        }),
        "logs": logs.into_iter().flatten().collect::<serde_json::Map<_, _>>(),
        "total": row(&state.total()),
        "topics": state.rows().iter().take(TOPICS_MAX).map(|row| topic(state, row)).collect::<Vec<_>>(),
    })
}

fn topic(state: &State, topic: &Row) -> Value {
    let mut all = row(topic);
    let group = |group: &Row| {
        let mut of = row(group);
        if let Some(of) = of.as_object_mut() {
            of.remove("topic");
            // Pushes are counted by topic alone.
            of.remove("pushes_per_second");
            of.insert("group".to_owned(), json!(group.name));
        }
        of
    };
    all["groups"] = state.all_groups(&topic.name).iter().map(group).collect();
    all
}

fn row(row: &Row) -> Value {
    let (depth, rates) = (row.depth.as_ref(), row.rates.as_ref());
    let p99 = rates.and_then(|rates| rates.lateness_p99).map(|p99| p99.at_least() * 1e3);
    json!({
        "topic": row.name,
        "state": depth.map(|depth| depth.condition.word()),
        "scheduled": depth.map(|depth| depth.scheduled),
        "ready": depth.map(|depth| depth.ready),
        "in_flight": depth.map(|depth| depth.in_flight),
        "dead": depth.map(|depth| depth.dead),
        "oldest_ready_age_ms": depth.and_then(|depth| depth.oldest).map(|oldest| oldest.as_millis() as u64),
        "pushes_per_second": rates.map(|rates| rates.pushes),
        "deliveries_per_second": rates.map(|rates| rates.deliveries),
        "lateness_p99_ms": p99,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{seen, state, topic};
    use super::*;

    #[test]
    fn first_topics_are_a_table_and_the_rest_are_counted() {
        let names: Vec<String> = (0..1_300).map(|n| format!("t{n:04}")).collect();
        let text = table(&state((0, 0), &names));
        assert_eq!(text.lines().count(), 4 + 1 + TOPICS_MAX + 1 + 1);
        assert!(text.contains("\nt0199 ") && !text.contains("t0200"), "{text}");
        assert!(text.ends_with("and 1,100 more topics: `dwell top` on a terminal shows any of them"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn json_has_the_same_values_as_the_table() -> serde_json::Result<()> {
        let mut state = state((0, 0), &["t0000".to_owned()]);
        let described = vec![("t0000".to_owned(), Some(topic("t0000")?))];
        state.update(Event::Seen(Box::new(seen(2, None, described))));
        let json = as_json(&state);
        assert_eq!((&json["version"], &json["ready"]), (&json!("1.2.3"), &json!(true)));
        assert_eq!(json["logs"]["wal"], json!({"records": 3.0, "bytes": 4096.0, "oldest_age_ms": 1500.0}));
        let expected = json!({"topic": "t0000", "state": "late", "scheduled": 1200, "ready": 3, "in_flight": 2, "dead": 1,
            "oldest_ready_age_ms": 12000, "pushes_per_second": 10.0, "deliveries_per_second": 0.0, "lateness_p99_ms": null, "groups": [
            {"group": "default", "state": "late", "scheduled": 1200, "ready": 3, "in_flight": 2, "dead": 1,
             "oldest_ready_age_ms": 12000, "deliveries_per_second": null, "lateness_p99_ms": null}]});
        assert_eq!(json["topics"], json!([expected]));
        Ok(())
    }
}
