//! What the screen shows of a state: lines of text, and nothing else.

mod header;
mod opened;
mod table;

use super::line::{Ink, Line};
use super::rows::Row;
use super::state::{Mode, State};

pub(super) use header::header;
use table::columns;
pub(super) use table::{cells, names_of_columns};

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

/// The whole screen: as many lines as it has at most, each no wider than it is.
pub(super) fn screen(state: &State) -> Vec<Line> {
    let (width, height) = (usize::from(state.size.0), usize::from(state.size.1));
    let mut lines = header(state);
    lines.truncate(state.header_lines());
    match (&state.mode, &state.opened) {
        (Mode::Help, _) => lines.extend(HELP.map(|text| Line::of(Ink::Plain, text))),
        (_, Some(opened)) => lines.extend(opened::lines(opened, state.page(), width)),
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
    let widths = columns(&table::TOPICS, &all, width);
    let mut lines = vec![table::head(&table::TOPICS, &widths, state.sort.column())];
    for (row, cells) in shown.iter().zip(&all) {
        let ink = match Some(&row.name) == state.chosen.as_ref() {
            true => Ink::Chosen,
            false => Ink::Plain,
        };
        lines.push(table::line(&table::TOPICS, &widths, cells, ink));
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
        let away = super::super::client::Seen {
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
}
