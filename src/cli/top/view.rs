//! Shows a state on the screen: lines of text, and nothing else.

use std::time::Duration;

use dwell_client::wire::groups::{Group, KeyState};
use dwell_client::wire::topics::Counts;

use super::snapshot::{Condition, Described, TopicRates};
use super::state::{Depth, Mode, Opened, Row, State};
use super::table::{Column, Ink, Line, STATE, columns, head_line, line, number, sparkline, text};
use crate::cli::group::key_cells;
use crate::cli::output::{bytes, span};
use crate::model::spelling::{counted, thousands};
use crate::model::time::short_span;
use crate::telemetry::metrics::Quantile;

const HELP: [&str; 16] = [
    "up down j k      choose a topic, or scroll",
    "PgUp PgDn Home End",
    "Enter            its groups, partitions, owners, brokers and busiest keys",
    "Esc              back; no filter",
    "s                sort by the next column",
    "/                show only topics whose names hold a text",
    "p                pause, or go on",
    "q  Ctrl-C        end",
    "",
    "pushes/s, deliv/s, late p99 and the trend of deliv/s are of this",
    "broker since the last refresh; everything else is of all brokers.",
    "late p99: 99 of 100 were handed out at most so late.",
    "state: the worst of the groups. late: a message has been ready for",
    "5s; no consumer: late, and no broker owns its partition; then",
    "paused, closed, copying, dead letters, ok, empty. Groups have lines below",
    "their topic if there are several, or if one is neither ok nor empty.",
];

pub(super) fn screen(state: &State) -> Vec<Line> {
    let (width, height) = (usize::from(state.size.0), usize::from(state.size.1));
    let mut lines = header(state);
    lines.truncate(state.header_lines());
    match (&state.mode, &state.opened) {
        (Mode::Help, _) => lines.extend(HELP.map(|text| Line::of(Ink::Plain, text))),
        (_, Some(opened)) => lines.extend(opened_lines(state, opened, width)),
        (_, None) => lines.extend(topics(state, width)),
    }
    // The last line is the foot's.
    lines.truncate(height.saturating_sub(1));
    while lines.len() + 1 < height {
        lines.push(Line::default());
    }
    lines.push(foot(state));
    lines.truncate(height);
    lines.into_iter().map(|line| line.cut(width)).collect()
}

fn topics(state: &State, width: usize) -> Vec<Line> {
    let rows = state.rows();
    let shown: Vec<&Row> = rows.iter().skip(state.from).take(state.page()).collect();
    if shown.is_empty() {
        let text = match (state.topic_count(), state.filter.is_empty()) {
            (None, _) => "asking for the topics",
            (Some(0), _) => "no topic yet: `dwell push orders 'hello' --delay 5s` makes one",
            (Some(_), _) => "no topic has this in its name",
        };
        return vec![Line::of(Ink::Dim, text)];
    }
    let with_trend = |row: &Row, topic: &str| [&cells(row)[..], &[sparkline(state.trend(topic))]].concat();
    let total = state.total();
    let mut all = vec![(Ink::Head, condition_ink(&total), with_trend(&total, ""))];
    for row in shown {
        let is_chosen = state.chosen.as_ref() == Some(&row.name);
        let (ink, word) = if is_chosen { (Ink::Chosen, Ink::Chosen) } else { (Ink::Plain, condition_ink(row)) };
        all.push((ink, word, with_trend(row, &row.name)));
        for group in state.groups(&row.name) {
            all.push((Ink::Plain, condition_ink(&group), [&group_cells(&group)[..], &[String::new()]].concat()));
        }
    }
    all.truncate(state.page() + 1);
    let cells: Vec<Vec<String>> = all.iter().map(|(_, _, cells)| cells.clone()).collect();
    let widths = columns(&TOPICS, &cells, width);
    let head = head_line(&TOPICS, &widths, state.sort.column());
    std::iter::once(head)
        .chain(all.iter().map(|(ink, word, cells)| line(&TOPICS, &widths, cells, *ink, *word)))
        .collect()
}

fn condition_ink(row: &Row) -> Ink {
    row.depth.as_ref().map_or(Ink::Plain, |depth| ink_of(depth.condition))
}

fn foot(state: &State) -> Line {
    if state.mode == Mode::Filter {
        return Line::of(Ink::Head, format!("/{}_", state.filter)).and(Ink::Dim, "  Enter keeps it, Esc clears it");
    }
    if let Some((why, times)) = &state.away {
        return Line::of(Ink::Bad, format!("away, asked {}: {why}", counted(*times, "time")));
    }
    if let Some(trouble) = &state.trouble {
        return Line::of(Ink::Odd, trouble.clone());
    }
    let paused = if state.is_paused { "PAUSED  " } else { "" };
    let filter = if state.filter.is_empty() { String::new() } else { format!("/{}  ", state.filter) };
    let keys = match state.opened {
        Some(_) => "Esc back  q quit  ? help",
        None => "q quit  ? help  Enter open  s sort  / filter  p pause",
    };
    Line::of(Ink::Odd, paused).and(Ink::Head, filter).and(Ink::Dim, keys)
}

pub(super) fn header(state: &State) -> Vec<Line> {
    vec![broker(state), store(state), logs(state), owners(state)]
}

/// The brokers that own partitions of the topics that were described, and how many.
fn owners(state: &State) -> Line {
    let owners = state.total().depth.map(|depth| depth.owners).unwrap_or_default();
    if owners.is_empty() {
        let is_known = state.reading.as_ref().is_none_or(|reading| reading.is_store_up);
        let why = match is_known {
            true => "no broker owns a partition: there are no consumers",
            false => "the owners of partitions are not known while Redis does not answer",
        };
        return Line::of(Ink::Dim, why);
    }
    let owned = owners.iter().map(|(owner, partitions)| format!("{owner} {}", thousands(*partitions)));
    let text = format!("partitions of {}: ", counted(owners.len() as u64, "broker"));
    Line::of(Ink::Plain, text).and(Ink::Dim, owned.collect::<Vec<_>>().join(", "))
}

fn broker(state: &State) -> Line {
    let version = state.reading.as_ref().map_or("", |reading| reading.version.as_str());
    let line = Line::of(Ink::Head, format!("dwell {version}").trim_end().to_owned());
    let line = line.and(Ink::Plain, format!("  {}  ", state.server));
    let line = match (&state.away, &state.readiness) {
        (Some(_), _) => line.and(Ink::Bad, "AWAY"),
        (None, None) => line.and(Ink::Dim, "asking"),
        (None, Some(Err(_))) => line.and(Ink::Bad, "NOT READY"),
        (None, Some(Ok(ready))) if ready.detail.is_some() => line.and(Ink::Odd, "DEGRADED"),
        (None, Some(Ok(_))) => line.and(Ink::Good, "ready"),
    };
    match state.topic_count() {
        Some(count) => line.and(Ink::Dim, format!("  {}", counted(count, "topic"))),
        None => line,
    }
}

fn store(state: &State) -> Line {
    match &state.readiness {
        None => Line::default(),
        Some(Err(why)) => Line::of(Ink::Bad, why.clone()),
        Some(Ok(ready)) => {
            let line = Line::of(Ink::Plain, format!("{} {}: ", ready.store.kind, ready.store.location));
            match &ready.detail {
                Some(degraded) => line.and(Ink::Odd, degraded.clone()),
                None => line.and(Ink::Dim, ready.store.durability.clone()),
            }
        }
    }
}

/// The logs beside Redis, and how Redis answers. An embedded store has neither.
fn logs(state: &State) -> Line {
    let Some(reading) = &state.reading else { return Line::default() };
    // One that is not ready does not say which it is, but only Redis has logs beside it.
    if reading.logs.is_empty() {
        return Line::of(Ink::Dim, "no log beside it: the store is on this disk");
    }
    let mut line = Line::default();
    for (name, (records, size, age)) in &reading.logs {
        let oldest = Duration::try_from_secs_f64((age * 10.0).round() / 10.0).unwrap_or_default();
        let oldest = if *records > 0.0 { format!(", oldest {}", short_span(oldest)) } else { String::new() };
        let text = format!("{name} {}, {}{oldest}  ", counted(*records as u64, "record"), bytes(*size as u64));
        line = line.and(if *records > 0.0 && name == "wal" { Ink::Odd } else { Ink::Plain }, text);
    }
    let line = match reading.is_store_up {
        true => line.and(Ink::Good, "redis answers"),
        false => line.and(Ink::Bad, "redis is AWAY"),
    };
    line.and(Ink::Plain, format!(", p99 {}", quantile(state.rates.as_ref().and_then(|rates| rates.calls_p99))))
}

fn opened_lines(state: &State, opened: &Opened, width: usize) -> Vec<Line> {
    let Some(described) = &opened.described else {
        return vec![Line::of(
            Ink::Dim,
            format!("asking for {}; if it stays so, it is not there any more", opened.name),
        )];
    };
    let topic = &described.topic.topic;
    let rates = |group: &str| state.rates.as_ref().and_then(|rates| rates.of_group(&topic.topic, group));
    let all: Vec<(Ink, Ink, Vec<String>)> =
        described.groups.iter().flat_map(|group| group_rows(described, group, rates(&group.group))).collect();
    let cells: Vec<Vec<String>> = all.iter().map(|(_, _, cells)| cells.clone()).collect();
    let widths = columns(&PARTITIONS, &[&cells[..], &[vec![topic.topic.clone()]]].concat(), width);
    let head = head_line(&PARTITIONS, &widths, "");
    // The name stands where the first column has nothing.
    let first = widths.first().copied().flatten();
    let head = match first {
        Some(wide) => {
            let mut parts = head.0.into_iter();
            parts.next();
            Line(std::iter::once((Ink::Good, format!("{:<wide$}", topic.topic))).chain(parts).collect())
        }
        None => head,
    };
    let row = |(ink, state, cells): &(Ink, Ink, Vec<String>)| line(&PARTITIONS, &widths, cells, *ink, *state);
    std::iter::once(head).chain(all.iter().skip(opened.from).take(state.page()).map(row)).collect()
}

/// A row for the group, one for each of its partitions, for each broker that takes part in it, and for the busiest keys of a fair one.
fn group_rows(described: &Described, group: &Group, rates: Option<TopicRates>) -> Vec<(Ink, Ink, Vec<String>)> {
    let topic = &described.topic;
    let mut rows = Vec::new();
    for total in topic.totals.iter().filter(|total| total.group == group.group) {
        let condition = Condition::of(&group.state, total, &topic.partitions);
        let of_group = topic.partitions.iter().filter(|partition| partition.group == group.group);
        let (all, owned) = of_group.fold((0, 0), |(all, owned), p| (all + 1, owned + u32::from(p.owner.is_some())));
        let handed_out = rates.map_or("-".to_owned(), |rates| per_second(rates.deliveries));
        let late = quantile(rates.and_then(|rates| rates.lateness_p99));
        let until = group.paused_until.or(group.opens_at).map_or(String::new(), |until| format!(" until {until}"));
        let word = format!("{}{until}", condition.word());
        let more = [handed_out, late, word, format!("{owned} of {all} owned")];
        rows.push((Ink::Head, ink_of(condition), counted_cells((&group.group, &total.counts), "all".to_owned(), more)));
    }
    for partition in topic.partitions.iter().filter(|partition| partition.group == group.group) {
        let owner = partition.owner.clone().unwrap_or_else(|| "-".to_owned());
        let more = [String::new(), String::new(), String::new(), owner];
        let cells = counted_cells((&group.group, &partition.counts), partition.partition.to_string(), more);
        rows.push((Ink::Plain, Ink::Plain, cells));
    }
    let Some(detail) = described.details.get(&group.group) else { return rows };
    for member in &detail.members {
        let waiting = format!("{} waiting", thousands(member.waiting));
        let what = format!("{} {}, owns {}", member.member, member.version, thousands(member.owned));
        let mut cells = vec![String::new(), group.group.clone(), "broker".to_owned()];
        cells.resize(PARTITIONS.len() - 2, String::new());
        cells.extend([waiting, what]);
        rows.push((Ink::Dim, Ink::Dim, cells));
    }
    rows.extend(detail.keys.iter().map(|key| key_row(&group.group, key)));
    rows
}

fn key_row(group: &str, state: &KeyState) -> (Ink, Ink, Vec<String>) {
    let ([key, ready, in_flight, waits], none) = (key_cells(state), String::new);
    let ink = if state.reason.is_some() { Ink::Odd } else { Ink::Plain };
    let counts = [none(), group.to_owned(), "key".to_owned(), none(), ready, none(), in_flight];
    (Ink::Plain, ink, counts.into_iter().chain([none(), none(), none(), none(), waits, key]).collect())
}

fn counted_cells((group, counts): (&str, &Counts), partition: String, more: [String; 4]) -> Vec<String> {
    let cells = [
        String::new(),
        group.to_owned(),
        partition,
        thousands(counts.scheduled),
        thousands(counts.ready),
        thousands(counts.held()),
        thousands(counts.in_flight),
        thousands(counts.dead),
        age(counts.oldest_ready_age_ms),
    ];
    cells.into_iter().chain(more).collect()
}

/// The table of the topics; on a screen followed by a picture of the latest rates.
pub(super) const COLUMNS: [&str; 11] = [
    "topic",
    "state",
    "scheduled",
    "ready",
    "blocked",
    "in flight",
    "dead",
    "oldest ready",
    "pushes/s",
    "deliv/s",
    "late p99",
];

const TOPICS: [Column; 12] = [
    text("topic", 0),
    text(STATE, 2),
    number("scheduled", 3),
    number("ready", 1),
    number("blocked", 11),
    number("in flight", 9),
    number("dead", 4),
    number("oldest ready", 8),
    number("pushes/s", 10),
    number("deliv/s", 6),
    number("late p99", 5),
    text("trend", 7),
];

const PARTITIONS: [Column; 13] = [
    text("", 11),
    text("group", 2),
    number("partition", 0),
    number("scheduled", 5),
    number("ready", 1),
    number("blocked", 12),
    number("in flight", 8),
    number("dead", 6),
    number("oldest ready", 9),
    number("deliv/s", 7),
    number("late p99", 10),
    text(STATE, 3),
    text("owner", 4),
];

pub(super) fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let depth = |of: fn(&Depth) -> String| row.depth.as_ref().map_or("-".to_owned(), of);
    let rate = |of: fn(&TopicRates) -> f64| row.rates.as_ref().map_or("-".to_owned(), |rates| per_second(of(rates)));
    [
        row.name.clone(),
        depth(|depth| depth.condition.word().to_owned()),
        depth(|depth| thousands(depth.scheduled)),
        depth(|depth| thousands(depth.ready)),
        depth(|depth| thousands(depth.blocked + depth.backoff)),
        depth(|depth| thousands(depth.in_flight)),
        depth(|depth| thousands(depth.dead)),
        depth(|depth| age(depth.oldest)),
        rate(|rates| rates.pushes),
        rate(|rates| rates.deliveries),
        quantile(row.rates.and_then(|rates| rates.lateness_p99)),
    ]
}

/// The line of a group below its topic. Pushes are counted by topic alone, and a group has no trend.
pub(super) fn group_cells(group: &Row) -> [String; COLUMNS.len()] {
    let [name, state, scheduled, ready, blocked, in_flight, dead, oldest, _, deliveries, late] = cells(group);
    [format!("  {name}"), state, scheduled, ready, blocked, in_flight, dead, oldest, String::new(), deliveries, late]
}

fn age(oldest: Option<Duration>) -> String {
    oldest.map_or("-".to_owned(), short_span)
}

fn per_second(rate: f64) -> String {
    format!("{rate:.1}")
}

fn ink_of(condition: Condition) -> Ink {
    match condition {
        Condition::Empty => Ink::Dim,
        Condition::Fine => Ink::Good,
        Condition::DeadLetters | Condition::Copying | Condition::Closed | Condition::Paused => Ink::Odd,
        Condition::Late | Condition::NoConsumer => Ink::Bad,
    }
}

fn quantile(quantile: Option<Quantile>) -> String {
    let shown = |seconds: f64| span(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    match quantile {
        None => "-".to_owned(),
        Some(Quantile::About(about)) => shown(about),
        Some(Quantile::Beyond(bound)) => format!(">{}", shown(bound)),
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyCode;

    use super::super::snapshot::Detail;
    use super::super::state::Event;
    use super::super::tests::{seen, state, topic};
    use dwell_client::wire::topics::GroupTotals;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("t{n:04}")).collect()
    }

    fn text(state: &State) -> Vec<String> {
        screen(state).iter().map(|line| line.text().trim_end().to_owned()).collect()
    }

    #[test]
    fn a_screen_shows_the_broker_and_its_topics() -> serde_json::Result<()> {
        let mut state = state((120, 14), &names(2));
        let described = vec![("t0000".to_owned(), Some(topic("t0000")?))];
        state.update(Event::Seen(Box::new(seen(2, None, described))));
        assert_eq!(
            text(&state),
            [
                "dwell 1.2.3  http://127.0.0.1:7373  ready  2 topics",
                "redis 127.0.0.1:6379: Redis 7.0.15, fsync always",
                "wal 3 records, 4.0 KiB, oldest 1.5s  redis answers, p99 -",
                "partitions of 1 broker: host-abc 1",
                "topic      state  scheduled  ready  blocked  in flight  dead  oldest ready  pushes/s  deliv/s  late p99  trend",
                "all        late       1,200      3        0          2     1           12s      10.0      0.0         -  ▁",
                "t0000      late       1,200      3        0          2     1           12s      10.0      0.0         -  ▁",
                "  default  late       1,200      3        0          2     1           12s                  -         -",
                "t0001      -              -      -        -          -     -             -         -        -         -",
                "",
                "",
                "",
                "",
                "q quit  ? help  Enter open  s sort  / filter  p pause",
            ]
        );
        state.update(Event::Key(KeyCode::Enter));
        assert!(text(&state)[4].contains("asking"), "{:#?}", text(&state));
        state.update(Event::Seen(Box::new(seen(3, None, vec![("t0000".to_owned(), Some(topic("t0000")?))]))));
        assert_eq!(
            text(&state)[4..9],
            [
                "t0000  group    partition  scheduled  ready  in flight  dead  oldest ready  deliv/s  late p99  state  owner".to_owned(),
                "       default        all      1,200      3          2     1           12s        -         -  late   1 of 2 owned".to_owned(),
                "       default          0        700      3          2     1           12s                            host-abc".to_owned(),
                "       default          1        500      0          0     0             -                            -".to_owned(),
                String::new(),
            ]
        );
        Ok(())
    }

    #[test]
    fn opened_topic_shows_the_busiest_keys_of_a_fair_group() -> serde_json::Result<()> {
        let mut described = topic("t0000")?;
        let keys = serde_json::from_str(
            r#"[{"key": "customer-7", "ready": 12000, "in_flight": 5, "reason": "key_paused", "until": "2026-01-02T03:04:05Z"},
                {"ready": 2, "in_flight": 0}]"#,
        )?;
        described.details.insert("default".to_owned(), Detail { members: Vec::new(), keys });
        assert_eq!(described.lines(), 1 + 2 + 2);
        let mut state = state((160, 14), &names(1));
        state.update(Event::Key(KeyCode::Enter));
        state.update(Event::Seen(Box::new(seen(2, None, vec![("t0000".to_owned(), Some(described))]))));
        let cells = |line: &String| {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("|")
        };
        let lines: Vec<String> = text(&state)[8..11].iter().map(cells).collect();
        let paused = "default|key|12,000|5|key paused until 2026-01-02T03:04:05.000Z|customer-7";
        assert_eq!(lines, [paused, "default|key|2|0|-|(none)", ""]);
        Ok(())
    }

    #[test]
    fn groups_are_shown_if_several_or_one_needs_attention() -> serde_json::Result<()> {
        let mut shown = state((120, 30), &names(3));
        let with = |name: &str, groups: &[(&str, &str, u64)]| {
            let mut described = topic(name)?;
            described.topic.totals.clear();
            described.groups.clear();
            for (group, state, ready) in groups {
                let counts = Counts { ready: *ready, ..Counts::default() };
                let (group_name, state_name) = ((*group).to_owned(), (*state).to_owned().into());
                described.topic.totals.push(GroupTotals { group: group_name, state: state_name, counts });
                let of = format!(r#"{{"group": "{group}", "state": "{state}"}}"#);
                described.groups.push(serde_json::from_str(&of)?);
            }
            Ok((name.to_owned(), Some(described)))
        };
        let described = [
            with("t0000", &[("default", "active", 3)])?,
            with("t0001", &[("default", "active", 3), ("audit", "active", 4)])?,
            with("t0002", &[("default", "paused", 5)])?,
        ];
        shown.update(Event::Seen(Box::new(seen(2, None, described.into()))));
        let first_cells = |state: &State| -> Vec<String> {
            let lines = text(state);
            let table = lines.iter().skip(6).take_while(|line| !line.is_empty());
            table
                .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).take(2).collect::<Vec<_>>().join(" "))
                .collect()
        };
        let expected = ["t0000 ok", "t0001 ok", "default ok", "audit ok", "t0002 paused", "default paused"];
        assert_eq!(first_cells(&shown), expected);
        // The chosen topic stays on the screen.
        shown.update(Event::Size(120, 14));
        shown.update(Event::Key(KeyCode::End));
        let lines = text(&shown);
        assert!(lines.iter().any(|line| line.starts_with("t0002")), "{lines:#?}");
        shown.update(Event::Size(120, 8));
        let lines = text(&shown);
        assert!(lines.iter().any(|line| line.starts_with("t0002")), "{lines:#?}");
        Ok(())
    }

    #[test]
    fn every_size_is_filled_exactly_and_never_exceeded() -> serde_json::Result<()> {
        let mut shown = state((80, 24), &names(50));
        let described = vec![("t0000".to_owned(), Some(topic("t0000")?))];
        shown.update(Event::Seen(Box::new(seen(2, None, described))));
        let modes = [vec![], vec![KeyCode::Enter], vec![KeyCode::Esc, KeyCode::Char('?')]];
        for keys in modes {
            keys.into_iter().for_each(|key| shown.update(Event::Key(key)));
            for size in [(0, 0), (1, 1), (3, 2), (10, 3), (40, 10), (80, 24), (300, 100)] {
                shown.update(Event::Size(size.0, size.1));
                let lines = screen(&shown);
                assert_eq!(lines.len(), usize::from(size.1), "{size:?}");
                assert!(lines.iter().all(|line| line.text().chars().count() <= usize::from(size.0)), "{size:?}");
            }
        }
        Ok(())
    }

    #[test]
    fn a_small_terminal_shows_the_most_important_columns() {
        let state = state((40, 10), &names(50));
        let text = text(&state);
        assert_eq!(text[0], "dwell 1.2.3  http://127.0.0.1:7373  read");
        assert_eq!(text[1], "topic  state  scheduled  ready  dead");
        let row = |name: &str| format!("{name:<5}  -              -      -     -");
        assert_eq!((&text[2], &text[3], &text[8]), (&row("all"), &row("t0000"), &row("t0005")));
    }

    #[test]
    fn footer_shows_unreachable_brokers_and_anomalies() {
        let mut state = state((80, 24), &names(2));
        let last = |state: &State| text(state).last().cloned().unwrap_or_default();
        state.trouble = Some("forbidden".to_owned());
        assert_eq!(last(&state), "forbidden");
        let away = super::super::snapshot::Seen {
            at: crate::platform::clock::Instant::START,
            answer: Err("refused".to_owned()),
        };
        state.update(Event::Seen(Box::new(away)));
        assert_eq!(last(&state), "away, asked 1 time: refused");
        assert!(text(&state)[0].contains("AWAY"), "{}", text(&state)[0]);
        for key in ['/', 'x'] {
            state.update(Event::Key(KeyCode::Char(key)));
        }
        assert!(last(&state).starts_with("/x_"), "{}", last(&state));
        assert!(text(&state).contains(&"no topic has this in its name".to_owned()));
    }

    #[test]
    fn low_priority_rows_are_dropped_when_space_is_short() {
        let shown = |width| -> Vec<&str> {
            let widths = columns(&TOPICS, &[], width);
            TOPICS.iter().zip(widths).filter_map(|(column, width)| width.map(|_| column.name)).collect()
        };
        assert_eq!(shown(0), ["topic"]);
        assert_eq!(shown(12), ["topic", "ready"]);
        assert_eq!(shown(18), ["topic", "ready"]);
        assert_eq!(shown(19), ["topic", "state", "ready"]);
        assert_eq!(shown(200).len(), TOPICS.len());
    }

    #[test]
    fn percentile_precision_depends_on_magnitude() {
        let about = |seconds| quantile(Some(Quantile::About(seconds)));
        assert_eq!([about(0.00123), about(0.25), about(75.0)], ["1.23ms", "250ms", "1m15s"]);
        assert_eq!([quantile(None), quantile(Some(Quantile::Beyond(60.0)))], ["-", ">1m"]);
    }
}
