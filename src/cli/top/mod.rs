//! `dwell top`: a live view of a running broker, or its table once, as text or as JSON: in a pipe, and for scripts.
//!
//! `snapshot` talks to the broker, `state` is what is shown and chosen, `view` makes lines of it. Only this file waits and
//! touches the terminal.

mod snapshot;
mod state;
mod table;
mod view;

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::pin::Pin;
use std::time::Duration;

use clap::Args;
use crossterm::event::{Event as TerminalEvent, EventStream, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{self, Clear, ClearType};
use crossterm::{cursor, execute};
use futures_util::StreamExt;
use serde_json::{Value, json};

use self::snapshot::{Seen, Wanted, ask, check};
use self::state::{Event, Row, State};
use self::table::{Ink, Line};
use self::view::{COLUMNS, cells, group_cells, header};
use super::ServerArgs;
use super::process::Signals;
use crate::cli::failure::{Failure, UNAVAILABLE};
use crate::cli::remote::Remote;
use crate::cli::{PrintArgs, output};
use crate::model::spelling::thousands;
use crate::model::time::{parse_span, show_span};
use crate::platform::clock::{Clock, Instant};

const EXAMPLES: &str = "\
Examples:
  dwell top
  dwell top --server unix:/run/dwell/dwell.sock --interval 5s
  dwell top --once            the table once, as text; so does `dwell top | cat`
  dwell top --json            the same as JSON

A topic has a line for each group if it has several, or if one needs attention.

Keys: up and down choose, Enter opens a topic, s sorts, / filters, p pauses, ? helps, q ends. It
asks only for visible topics, so thousands of topics cost little. While the broker is unavailable
it keeps trying. NO_COLOR=1 leaves colours out.";

const EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));

/// Watch topics, partitions, owners, lateness and the WAL of a running broker
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// The pause between two refreshes, 100ms to 1h
    #[arg(long = "interval", value_name = "TIME", default_value = "1s", value_parser = pause)]
    every: Duration,
    /// Print the table once, as text
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    server: ServerArgs,
}

fn pause(text: &str) -> Result<Duration, String> {
    let every = parse_span(text)?;
    match (EVERY.0..=EVERY.1).contains(&every) {
        true => Ok(every),
        false => Err(format!("is not in {} to {}", show_span(EVERY.0), show_span(EVERY.1))),
    }
}

pub(crate) async fn run(args: &TopArgs) -> Result<(), Failure> {
    let remote = args.server.remote()?;
    let server = remote.place.address.to_string();
    check(&remote).await?;
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if args.once || args.server.print.json || is_dumb || !io::stdout().is_terminal() {
        return show_once(remote, server, args.every, &args.server.print).await;
    }
    let mut signals = Signals::listen()?;
    let mut screen = Screen::enter(!is_set("NO_COLOR")).map_err(lost)?;
    let mut state = State::new(server, terminal::size().unwrap_or((80, 24)));
    watch(&remote, &mut state, &mut screen, &mut signals, args.every).await.map_err(lost)
}

fn lost(error: io::Error) -> Failure {
    Failure::new(format!("the terminal cannot be used: {error}; `dwell top --once` needs none"))
}

/// Refreshes and obeys until it is told to end. One refresh at a time: a broker that is slow is asked less often.
async fn watch(
    remote: &Remote,
    state: &mut State,
    screen: &mut Screen,
    signals: &mut Signals,
    every: Duration,
) -> io::Result<()> {
    let mut keys = EventStream::new();
    let mut asking: Option<Pin<Box<dyn Future<Output = Seen>>>> = None;
    let mut next = Clock::System.instant();
    while !state.is_over {
        screen.paint(view::screen(state), state.size)?;
        let is_due = asking.is_none() && !state.is_paused;
        tokio::select! {
            key = keys.next() => match key {
                Some(event) => {
                    let opened = state.opened.is_some();
                    event.map(|event| event_of(&event))?.into_iter().for_each(|event| state.update(event));
                    // Does not wait for the program that it opened.
                    next = if opened == state.opened.is_some() { next } else { Instant::START };
                }
                None => return Ok(()),
            },
            seen = answered(&mut asking) => {
                asking = None;
                next = seen.at.plus(every);
                state.update(Event::Seen(Box::new(seen)));
            }
            () = Clock::System.sleep_until(next), if is_due => {
                asking = Some(Box::pin(ask(remote.clone(), state.wanted())));
            }
            _ = signals.next() => return Ok(()),
        }
    }
    Ok(())
}

async fn answered(asking: &mut Option<Pin<Box<dyn Future<Output = Seen>>>>) -> Seen {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

/// The meaning of a terminal event here. In this mode Ctrl-C is a key like others.
fn event_of(event: &TerminalEvent) -> Option<Event> {
    match event {
        TerminalEvent::Resize(columns, rows) => Some(Event::Size(*columns, *rows)),
        TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            match (control, key.code) {
                (true, KeyCode::Char('c' | 'd')) => Some(Event::End),
                (true, _) => None,
                (false, code) => Some(Event::Key(code)),
            }
        }
        _ => None,
    }
}

/// The terminal in raw mode, on the alternate screen. Dropping it restores what was there.
struct Screen {
    colored: bool,
    shown: Vec<Line>,
    size: (u16, u16),
}

impl Screen {
    /// Takes the terminal. A panic gives it back before it says what is wrong.
    fn enter(colored: bool) -> io::Result<Screen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        terminal::enable_raw_mode()?;
        // From here on whatever fails gives it back.
        let screen = Screen { colored, shown: Vec::new(), size: (0, 0) };
        let mut out = io::stdout();
        execute!(out, terminal::EnterAlternateScreen, terminal::DisableLineWrap, cursor::Hide)?;
        out.flush()?;
        Ok(screen)
    }

    /// Shows these lines from the top; writes only those that are other ones than before.
    fn paint(&mut self, lines: Vec<Line>, size: (u16, u16)) -> io::Result<()> {
        let mut bytes = Vec::new();
        execute!(bytes, terminal::BeginSynchronizedUpdate)?;
        if self.size != size {
            execute!(bytes, Clear(ClearType::All))?;
            self.shown.clear();
            self.size = size;
        }
        for row in 0..size.1 {
            let (old, new) = (self.shown.get(usize::from(row)), lines.get(usize::from(row)));
            if old != new {
                execute!(bytes, cursor::MoveTo(0, row), Clear(ClearType::CurrentLine))?;
                new.map_or(Ok(()), |line| self.write(&mut bytes, line))?;
            }
        }
        execute!(bytes, terminal::EndSynchronizedUpdate)?;
        self.shown = lines;
        let mut out = io::stdout().lock();
        out.write_all(&bytes)?;
        out.flush()
    }

    fn write(&self, out: &mut Vec<u8>, line: &Line) -> io::Result<()> {
        for (ink, text) in &line.0 {
            let (attribute, color) = match ink {
                Ink::Plain => (None, None),
                Ink::Dim => (Some(Attribute::Dim), None),
                Ink::Head => (Some(Attribute::Bold), None),
                Ink::Good => (None, Some(Color::Green)),
                Ink::Odd => (None, Some(Color::Yellow)),
                Ink::Bad => (Some(Attribute::Bold), Some(Color::Red)),
                Ink::Chosen => (Some(Attribute::Reverse), None),
            };
            if let Some(attribute) = attribute {
                execute!(out, SetAttribute(attribute))?;
            }
            if let Some(color) = color.filter(|_| self.colored) {
                execute!(out, SetForegroundColor(color))?;
            }
            execute!(out, Print(text), SetAttribute(Attribute::Reset))?;
            if self.colored {
                execute!(out, ResetColor)?;
            }
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. A second time changes nothing; where it is gone there is nothing to give.
fn restore() {
    let mut out = io::stdout();
    let _ = execute!(out, cursor::Show, terminal::EnableLineWrap, terminal::LeaveAlternateScreen);
    let _ = out.flush();
    let _ = terminal::disable_raw_mode();
}

const TOPICS_MAX: usize = 200;

/// Looks twice, so far apart, since rates are between two looks, and prints what it saw. While the store is unavailable that is
/// how the broker stands, and what waits in the WAL.
async fn show_once(remote: Remote, server: String, every: Duration, print: &PrintArgs) -> Result<(), Failure> {
    let mut state = State::new(server, (0, 0));
    let looked = look_twice(&remote, &mut state, every).await;
    match &looked {
        Ok(()) => print.value(&as_json(&state), |_| table(&state))?,
        Err(_) if state.away.is_none() => print.value(&as_json(&state), |_| head(&state).join("\n"))?,
        Err(_) => {}
    }
    looked
}

async fn look_twice(remote: &Remote, state: &mut State, every: Duration) -> Result<(), Failure> {
    look(remote, state, Wanted { list: true, ..Wanted::default() }).await?;
    Clock::System.sleep(every).await;
    let topics = state.rows().into_iter().take(TOPICS_MAX).map(|row| row.name).collect();
    look(remote, state, Wanted { topics, ..Wanted::default() }).await
}

async fn look(remote: &Remote, state: &mut State, wanted: Wanted) -> Result<(), Failure> {
    state.update(Event::Seen(Box::new(ask(remote.clone(), wanted).await)));
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
        "blocked": depth.map(|depth| depth.blocked),
        "backoff": depth.map(|depth| depth.backoff),
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
    use crossterm::event::KeyEvent;

    use super::snapshot::{Asked, Described, Seen, Snapshot};
    use super::state::{Event, State};
    use super::*;
    use crate::cli::figures;
    use dwell_client::wire::groups::Group;
    use dwell_client::wire::operations::{Ready, StoreDescription};

    const METRICS: &str = "dwell_build_info{version=\"1.2.3\"} 1\ndwell_redis_up 1\ndwell_wal_records{log=\"wal\"} 3\n\
                           dwell_wal_bytes{log=\"wal\"} 4096\ndwell_wal_oldest_age_seconds{log=\"wal\"} 1.5\n";

    /// A broker's answers so many seconds after the start; by then it has taken 10 messages a second.
    pub(super) fn seen(seconds: u64, names: Option<&[String]>, described: Vec<(String, Option<Described>)>) -> Seen {
        let at = Instant::START.plus(Duration::from_secs(seconds));
        let pushes = format!("dwell_pushes_total{{topic=\"t0000\",outcome=\"stored\"}} {}\n", seconds * 10);
        let store = StoreDescription {
            kind: "redis".into(),
            location: "127.0.0.1:6379".to_owned(),
            durability: "Redis 7.0.15, fsync always".to_owned(),
        };
        let answer = Asked {
            readiness: Ok(Ready { status: "ready".into(), detail: None, store, test_clock: None }),
            reading: Snapshot::new(at, &figures::read(&format!("{METRICS}{pushes}"))),
            topics: names.map(<[String]>::to_vec),
            described,
            trouble: None,
        };
        Seen { at, answer: Ok(answer) }
    }

    pub(super) fn state(size: (u16, u16), names: &[String]) -> State {
        let mut state = State::new("http://127.0.0.1:7373".to_owned(), size);
        state.update(Event::Seen(Box::new(seen(1, Some(names), vec![]))));
        state
    }

    pub(super) fn topic(name: &str) -> serde_json::Result<Described> {
        let topic = serde_json::from_str(&format!(
            r#"{{"topic": "{name}", "groups": ["default"], "settings": {{"partitions": 2}},
                "totals": [{{"group": "default", "state": "active", "scheduled": 1200, "ready": 3, "blocked": 0, "backoff": 0, "in_flight": 2, "dead": 1,
                             "oldest_ready_age_ms": 12000}}],
                "partitions": [
                  {{"partition": 0, "group": "default", "scheduled": 700, "ready": 3, "blocked": 0, "backoff": 0, "in_flight": 2, "dead": 1,
                    "oldest_ready_age_ms": 12000, "owner": "host-abc"}},
                  {{"partition": 1, "group": "default", "scheduled": 500, "ready": 0, "blocked": 0, "backoff": 0, "in_flight": 0, "dead": 0}}]}}"#
        ))?;
        let group: Group = serde_json::from_str(r#"{"group": "default", "state": "active"}"#)?;
        Ok(Described { topic, groups: vec![group], details: Default::default() })
    }

    #[test]
    fn control_c_quits_while_typing_a_filter() {
        let mut state = state((80, 24), &[]);
        state.update(Event::Key(KeyCode::Char('/')));
        let key = |code, modifiers| event_of(&TerminalEvent::Key(KeyEvent::new(code, modifiers)));
        assert!(key(KeyCode::Char('x'), KeyModifiers::CONTROL).is_none());
        if let Some(event) = key(KeyCode::Char('c'), KeyModifiers::CONTROL) {
            state.update(event);
        }
        assert!(state.is_over);
    }

    #[test]
    fn refresh_interval_has_bounds() {
        assert_eq!(pause("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(pause("100ms"), Ok(EVERY.0));
        assert!(pause("99ms").is_err() && pause("61m").is_err() && pause("often").is_err());
    }

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
        let expected = json!({"topic": "t0000", "state": "late", "scheduled": 1200, "ready": 3, "blocked": 0, "backoff": 0, "in_flight": 2, "dead": 1,
            "oldest_ready_age_ms": 12000, "pushes_per_second": 10.0, "deliveries_per_second": 0.0, "lateness_p99_ms": null, "groups": [
            {"group": "default", "state": "late", "scheduled": 1200, "ready": 3, "blocked": 0, "backoff": 0, "in_flight": 2, "dead": 1,
             "oldest_ready_age_ms": 12000, "deliveries_per_second": null, "lateness_p99_ms": null}]});
        assert_eq!(json["topics"], json!([expected]));
        Ok(())
    }
}
