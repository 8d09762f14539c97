//! Shows a state on the screen or in a pipe: lines of text, and nothing else.

use std::time::Duration;

use super::snapshot::{Quantile, Wanted, ask};
use super::state::{Event, Mode, Opened, Row, State};
use crate::cli::api::{Counts, Topic};
use crate::cli::client::Client;
use crate::cli::failure::{Failure, UNAVAILABLE};
use crate::cli::output::{self, bytes, thousands};
use crate::model::time::show_span;
use crate::platform::clock::Clock;

const HELP: [&str; 12] = [
    "up down j k      choose a topic, or scroll",
    "PgUp PgDn Home End",
    "Enter            its groups, partitions and owners",
    "Esc              back; no filter",
    "s                sort by the next column",
    "/                show only topics whose names hold a text",
    "p                pause, or go on",
    "q  Ctrl-C        end",
    "",
    "pushes/s, deliv/s and late p99 are of this broker since the",
    "last refresh; everything else is of all brokers on the store.",
    "late p99: 99 of 100 were handed out at most so late.",
];

pub(super) fn screen(state: &State) -> Vec<Line> {
    let (width, height) = (usize::from(state.size.0), usize::from(state.size.1));
    let mut lines = header(state);
    lines.truncate(state.header_lines());
    match (&state.mode, &state.opened) {
        (Mode::Help, _) => lines.extend(HELP.map(|text| Line::of(Ink::Plain, text))),
        (_, Some(opened)) => lines.extend(opened_lines(opened, state.page(), width)),
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
    let all: Vec<Vec<String>> = shown.iter().map(|row| cells(row)).collect();
    let widths = columns(&TOPICS, &all, width);
    let mut lines = vec![head_line(&TOPICS, &widths, state.sort.column())];
    for (row, cells) in shown.iter().zip(&all) {
        let ink = if Some(&row.name) == state.chosen.as_ref() { Ink::Chosen } else { Ink::Plain };
        lines.push(line(&TOPICS, &widths, cells, ink));
    }
    lines
}

fn foot(state: &State) -> Line {
    if state.mode == Mode::Filter {
        return Line::of(Ink::Head, format!("/{}_", state.filter)).and(Ink::Dim, "  Enter keeps it, Esc clears it");
    }
    if let Some((why, times)) = &state.away {
        return Line::of(Ink::Bad, format!("away, asked {times} times: {why}"));
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
    vec![broker(state), store(state), logs(state)]
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
        Some(1) => line.and(Ink::Dim, "  1 topic"),
        Some(count) => line.and(Ink::Dim, format!("  {} topics", thousands(count as u64))),
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
        let oldest = if *records > 0.0 { format!(", oldest {}", age_shown(oldest)) } else { String::new() };
        let text = format!("{name} {} records, {}{oldest}  ", thousands(*records as u64), bytes(*size as u64));
        line = line.and(if *records > 0.0 && name == "wal" { Ink::Odd } else { Ink::Plain }, text);
    }
    let line = match reading.is_store_up {
        true => line.and(Ink::Good, "redis answers"),
        false => line.and(Ink::Bad, "redis is AWAY"),
    };
    line.and(Ink::Plain, format!(", p99 {}", quantile(state.rates.as_ref().and_then(|rates| rates.calls_p99))))
}

fn age_shown(age: Duration) -> String {
    match age.as_secs() {
        0..60 => format!("{:.1}s", age.as_secs_f64()),
        seconds => show_span(Duration::from_secs(seconds)),
    }
}

fn opened_lines(opened: &Opened, page: usize, width: usize) -> Vec<Line> {
    let Some(topic) = &opened.topic else {
        return vec![Line::of(
            Ink::Dim,
            format!("asking for {}; if it stays so, it is not there any more", opened.name),
        )];
    };
    let all: Vec<Vec<String>> =
        topic.totals.iter().chain(&topic.partitions).map(|counts| partition_cells(topic, counts)).collect();
    let named = vec![topic.topic.clone()];
    let widths = columns(&PARTITIONS, &[&all[..], &[named]].concat(), width);
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
    let row = |(at, cells): (usize, &Vec<String>)| {
        let ink = if at < topic.totals.len() { Ink::Head } else { Ink::Plain };
        line(&PARTITIONS, &widths, cells, ink)
    };
    std::iter::once(head).chain(all.iter().enumerate().skip(opened.from).take(page).map(row)).collect()
}

fn partition_cells(topic: &Topic, counts: &Counts) -> Vec<String> {
    let owner = match counts.partition {
        Some(_) => counts.owner.clone().unwrap_or_else(|| "-".to_owned()),
        None => {
            let of_group = topic.partitions.iter().filter(|partition| partition.group == counts.group);
            let (all, owned) = of_group.fold((0, 0), |(all, owned), p| (all + 1, owned + u32::from(p.owner.is_some())));
            format!("{owned} of {all} owned")
        }
    };
    vec![
        String::new(),
        counts.group.clone(),
        counts.partition.map_or("all".to_owned(), |partition| partition.to_string()),
        thousands(counts.scheduled),
        thousands(counts.ready),
        thousands(counts.in_flight),
        thousands(counts.dead),
        counts.oldest_ready_age_ms.map_or("-".to_owned(), show_span),
        owner,
    ]
}

struct Column {
    name: &'static str,
    /// Which columns give way first where there is no room: those with the greatest numbers.
    rank: u8,
    is_text: bool,
}

const GAP: usize = 2;

const TOPICS: [Column; 9] = [
    text("topic", 0),
    number("scheduled", 2),
    number("ready", 1),
    number("in flight", 7),
    number("dead", 3),
    number("oldest ready", 6),
    number("pushes/s", 8),
    number("deliv/s", 5),
    number("late p99", 4),
];

const PARTITIONS: [Column; 9] = [
    text("", 8),
    text("group", 2),
    number("partition", 0),
    number("scheduled", 4),
    number("ready", 1),
    number("in flight", 6),
    number("dead", 5),
    number("oldest ready", 7),
    text("owner", 3),
];

const fn text(name: &'static str, rank: u8) -> Column {
    Column { name, rank, is_text: true }
}

const fn number(name: &'static str, rank: u8) -> Column {
    Column { name, rank, is_text: false }
}

fn names_of_columns() -> Vec<String> {
    TOPICS.iter().map(|column| column.name.to_owned()).collect()
}

pub(super) fn cells(row: &Row) -> Vec<String> {
    let depth = |of: fn(&super::state::Depth) -> String| row.depth.as_ref().map_or("-".to_owned(), of);
    let rate = |of: fn(&super::snapshot::TopicRates) -> f64| {
        row.rates.as_ref().map_or("-".to_owned(), |rates| format!("{:.1}", of(rates)))
    };
    vec![
        row.name.clone(),
        depth(|depth| thousands(depth.scheduled)),
        depth(|depth| thousands(depth.ready)),
        depth(|depth| thousands(depth.in_flight)),
        depth(|depth| thousands(depth.dead)),
        depth(|depth| depth.oldest.map_or("-".to_owned(), show_span)),
        rate(|rates| rates.pushes),
        rate(|rates| rates.deliveries),
        quantile(row.rates.and_then(|rates| rates.lateness_p99)),
    ]
}

fn quantile(quantile: Option<Quantile>) -> String {
    let seconds = |seconds: f64| match seconds {
        seconds if seconds < 0.1 => format!("{:.1}ms", seconds * 1_000.0),
        seconds if seconds < 10.0 => format!("{:.0}ms", seconds * 1_000.0),
        seconds => format!("{seconds:.0}s"),
    };
    match quantile {
        None => "-".to_owned(),
        Some(Quantile::About(about)) => seconds(about),
        Some(Quantile::Beyond(bound)) => format!(">{}", seconds(bound)),
    }
}

/// How wide each column is; `None` for those that have no room. The first one by rank is always there.
fn columns(columns: &[Column], rows: &[Vec<String>], width: usize) -> Vec<Option<usize>> {
    let widest = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let mut ranked: Vec<(u8, usize, usize)> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| (column.rank, at, column.name.chars().count().max(widest(at).unwrap_or(0))))
        .collect();
    ranked.sort_unstable();
    let (mut widths, mut left, mut is_full) = (vec![None; columns.len()], width, false);
    for (number, (_, at, wide)) in ranked.into_iter().enumerate() {
        let gap = if number == 0 { 0 } else { GAP };
        // A less important column does not replace one that did not fit.
        is_full |= number > 0 && wide + gap > left;
        if let Some(place) = widths.get_mut(at).filter(|_| !is_full) {
            *place = Some(wide.min(left));
            left = left.saturating_sub(wide + gap);
        }
    }
    widths
}

fn head_line(columns: &[Column], widths: &[Option<usize>], sorted_by: &str) -> Line {
    let names: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
    let mut line = Line::default();
    for (at, text) in padded(columns, widths, &names) {
        let is_it = columns.get(at).is_some_and(|column| column.name == sorted_by);
        line = line.and(if is_it { Ink::Odd } else { Ink::Head }, text);
    }
    line
}

fn line(columns: &[Column], widths: &[Option<usize>], cells: &[String], ink: Ink) -> Line {
    Line::of(ink, padded(columns, widths, cells).into_iter().map(|(_, text)| text).collect::<String>())
}

fn padded(columns: &[Column], widths: &[Option<usize>], cells: &[String]) -> Vec<(usize, String)> {
    let mut padded = Vec::new();
    for (at, ((column, width), cell)) in columns.iter().zip(widths).zip(cells).enumerate() {
        let Some(width) = *width else { continue };
        let gap = if padded.is_empty() { "" } else { "  " };
        let cell: String = cell.chars().take(width).collect();
        padded.push((at, if column.is_text { format!("{gap}{cell:<width$}") } else { format!("{gap}{cell:>width$}") }));
    }
    padded
}

/// The role of a part of a line. Which colour that has is the screen's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Dim,
    Head,
    Good,
    Odd,
    Bad,
    Chosen,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line(pub(super) Vec<(Ink, String)>);

impl Line {
    pub(super) fn of(ink: Ink, text: impl Into<String>) -> Line {
        Line::default().and(ink, text)
    }

    /// The same, and more behind it. Text from elsewhere must not move the cursor.
    pub(super) fn and(mut self, ink: Ink, text: impl Into<String>) -> Line {
        let text: String = text.into();
        self.0.push((ink, text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()));
        self
    }

    pub(super) fn cut(self, width: usize) -> Line {
        let mut left = width;
        let mut parts = Vec::with_capacity(self.0.len());
        for (ink, text) in self.0 {
            let text: String = text.chars().take(left).collect();
            left -= text.chars().count();
            parts.push((ink, text));
        }
        Line(parts)
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
    }
}

const TOPICS_MAX: usize = 200;

/// Looks twice, so far apart, since rates are between two looks, and prints what it saw. While the store is unavailable that is
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
    use crossterm::event::KeyCode;

    use super::super::state::Event;
    use super::super::testing::{seen, state, topic};
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("t{n:04}")).collect()
    }

    fn text(state: &State) -> Vec<String> {
        screen(state).iter().map(|line| line.text().trim_end().to_owned()).collect()
    }

    #[test]
    fn a_screen_shows_the_broker_and_its_topics() -> serde_json::Result<()> {
        let mut state = state((100, 12), &names(2));
        let described = vec![("t0000".to_owned(), Some(topic("t0000")?))];
        state.update(Event::Seen(Box::new(seen(2, None, described))));
        assert_eq!(
            text(&state),
            [
                "dwell 1.2.3  http://127.0.0.1:7373  ready  2 topics",
                "redis 127.0.0.1:6379: Redis 7.0.15, fsync always",
                "wal 3 records, 4.0 KiB, oldest 1.5s  redis answers, p99 -",
                "topic  scheduled  ready  in flight  dead  oldest ready  pushes/s  deliv/s  late p99",
                "t0000      1,200      3          2     1           12s      10.0      0.0         -",
                "t0001          -      -          -     -             -         -        -         -",
                "",
                "",
                "",
                "",
                "",
                "q quit  ? help  Enter open  s sort  / filter  p pause",
            ]
        );
        state.update(Event::Key(KeyCode::Enter));
        assert!(text(&state)[3].contains("asking"), "{:#?}", text(&state));
        state.update(Event::Seen(Box::new(seen(3, None, vec![("t0000".to_owned(), Some(topic("t0000")?))]))));
        assert_eq!(
            text(&state)[3..8],
            [
                "t0000  group    partition  scheduled  ready  in flight  dead  oldest ready  owner".to_owned(),
                "       default        all      1,200      3          2     1           12s  1 of 2 owned".to_owned(),
                "       default          0        700      3          2     1           12s  host-abc".to_owned(),
                "       default          1        500      0          0     0             -  -".to_owned(),
                String::new(),
            ]
        );
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
        assert_eq!(text[1], "topic  scheduled  ready  dead  late p99");
        assert_eq!(
            (text[2].as_str(), text[8].as_str()),
            ("t0000          -      -     -         -", "t0006          -      -     -         -")
        );
    }

    #[test]
    fn who_is_away_and_what_is_odd_is_said_at_the_foot() {
        let mut state = state((80, 24), &names(2));
        let last = |state: &State| text(state).last().cloned().unwrap_or_default();
        state.trouble = Some("forbidden".to_owned());
        assert_eq!(last(&state), "forbidden");
        let away = super::super::snapshot::Seen {
            at: crate::platform::clock::Instant::START,
            answer: Err("refused".to_owned()),
        };
        state.update(Event::Seen(Box::new(away)));
        assert_eq!(last(&state), "away, asked 1 times: refused");
        assert!(text(&state)[0].contains("AWAY"), "{}", text(&state)[0]);
        for key in ['/', 'x'] {
            state.update(Event::Key(KeyCode::Char(key)));
        }
        assert!(last(&state).starts_with("/x_"), "{}", last(&state));
        assert!(text(&state).contains(&"no topic has this in its name".to_owned()));
    }

    #[test]
    fn what_has_no_room_gives_way_by_rank() {
        let shown = |width| -> Vec<&str> {
            let widths = columns(&TOPICS, &[], width);
            TOPICS.iter().zip(widths).filter_map(|(column, width)| width.map(|_| column.name)).collect()
        };
        assert_eq!(shown(0), ["topic"]);
        assert_eq!(shown(12), ["topic", "ready"]);
        assert_eq!(shown(22), ["topic", "ready"]);
        assert_eq!(shown(23), ["topic", "scheduled", "ready"]);
        assert_eq!(shown(200).len(), TOPICS.len());
    }

    #[test]
    fn percentiles_are_as_exact_as_they_are_small() {
        let about = |seconds| quantile(Some(Quantile::About(seconds)));
        assert_eq!([about(0.00123), about(0.25), about(75.0)], ["1.2ms", "250ms", "75s"]);
        assert_eq!([quantile(None), quantile(Some(Quantile::Beyond(60.0)))], ["-", ">60s"]);
    }

    #[test]
    fn a_line_is_cut_by_characters_and_cannot_steer_the_terminal() {
        let line = Line::of(Ink::Good, "aé\u{1b}[2J").and(Ink::Plain, "end");
        assert_eq!(line.text(), "aé?[2Jend");
        assert_eq!(line.clone().cut(3).text(), "aé?");
        assert_eq!(line.clone().cut(7).0.len(), 2);
        assert_eq!(line.cut(0).text(), "");
    }

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
