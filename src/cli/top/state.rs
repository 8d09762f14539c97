//! The tables shown, their order, and the selection. Keys and answers change it; it asks nobody and prints nothing.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crossterm::event::KeyCode;
use dwell_client::wire::operations::Ready;
use dwell_client::wire::topics::GroupTotals;

use super::snapshot::{Condition, Described, Rates, Seen, Snapshot, TopicRates, Wanted};
use crate::telemetry::metrics::Quantile;

const TOPICS_ASKED: usize = 60;
const OTHERS_ASKED: usize = 8;
const LIST_EVERY: u64 = 5;
const FILTER_CHARS: usize = 100;
/// Lines of the screen outside the table, and how many lines it needs to show the whole header.
const AROUND: (usize, usize) = (7, 14);
/// Rates that are drawn.
const TREND: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    #[default]
    Table,
    Filter,
    Help,
}

#[derive(Debug)]
pub(super) struct Opened {
    pub(super) name: String,
    /// `None` until it was described, and after it was deleted.
    pub(super) described: Option<Described>,
    pub(super) from: usize,
}

#[derive(Debug)]
pub(super) enum Event {
    Key(KeyCode),
    Size(u16, u16),
    Seen(Box<Seen>),
    End,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) server: String,
    pub(super) size: (u16, u16),
    pub(super) mode: Mode,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) is_paused: bool,
    pub(super) is_over: bool,
    pub(super) opened: Option<Opened>,
    pub(super) chosen: Option<String>,
    pub(super) from: usize,
    pub(super) readiness: Option<Result<Ready, String>>,
    pub(super) reading: Option<Snapshot>,
    pub(super) rates: Option<Rates>,
    pub(super) away: Option<(String, u64)>,
    pub(super) trouble: Option<String>,
    names: Vec<String>,
    is_listed: bool,
    depths: HashMap<String, Depth>,
    /// The groups of each topic.
    groups: HashMap<String, Vec<(String, Depth)>>,
    /// The latest rates of deliveries, of each topic that has some and of all together.
    trends: HashMap<String, VecDeque<f64>>,
    refreshes: u64,
    turn: usize,
}

impl State {
    pub(super) fn new(server: String, size: (u16, u16)) -> State {
        State { server, size, ..State::default() }
    }

    pub(super) fn update(&mut self, event: Event) {
        match event {
            Event::Key(key) => self.key(key),
            Event::Size(columns, rows) => self.size = (columns, rows),
            Event::Seen(seen) => self.see(*seen),
            Event::End => self.is_over = true,
        }
        self.settle();
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        rows(&self.names, &self.depths, self.rates.as_ref(), &self.filter, self.sort)
    }

    /// A line for each group of a topic that has several, or one that needs attention.
    pub(super) fn groups(&self, topic: &str) -> Vec<Row> {
        let groups = self.groups.get(topic).map(Vec::as_slice).unwrap_or_default();
        let needs_attention = groups.iter().any(|(_, depth)| depth.condition > Condition::Fine);
        if groups.len() < 2 && !needs_attention { Vec::new() } else { self.all_groups(topic) }
    }

    pub(super) fn all_groups(&self, topic: &str) -> Vec<Row> {
        let row = |(name, depth): &(String, Depth)| Row {
            name: name.clone(),
            depth: Some(depth.clone()),
            rates: self.rates.as_ref().and_then(|rates| rates.of_group(topic, name)),
        };
        self.groups.get(topic).into_iter().flatten().map(row).collect()
    }

    /// All topics in one line, as far as they are known.
    pub(super) fn total(&self) -> Row {
        let mut depth = Depth::default();
        self.depths.values().for_each(|of| depth.add(of));
        let rates = self.rates.as_ref().and_then(|rates| rates.of(""));
        Row { name: "all".to_owned(), depth: (!self.depths.is_empty()).then_some(depth), rates }
    }

    /// The latest rates of deliveries of a topic, of all topics if its name is empty.
    pub(super) fn trend(&self, topic: &str) -> impl Iterator<Item = f64> + Clone {
        self.trends.get(topic).into_iter().flatten().copied()
    }

    /// How many topics there are; `None` until they were listed.
    pub(super) fn topic_count(&self) -> Option<usize> {
        self.is_listed.then_some(self.names.len())
    }

    pub(super) fn header_lines(&self) -> usize {
        if usize::from(self.size.1) < AROUND.1 { 1 } else { AROUND.0 - 3 }
    }

    pub(super) fn page(&self) -> usize {
        usize::from(self.size.1).saturating_sub(self.header_lines() + 3).max(1)
    }

    /// The next requests: what is visible, and a few of the others in turn.
    pub(super) fn wanted(&mut self) -> Wanted {
        let list = self.refreshes.is_multiple_of(LIST_EVERY) || !self.is_listed;
        self.refreshes += 1;
        if let Some(opened) = &self.opened {
            return Wanted { list: false, topics: vec![opened.name.clone()], details: true };
        }
        let rows = self.rows();
        let mut topics: Vec<String> =
            rows.iter().skip(self.from).take(self.page().min(TOPICS_ASKED)).map(|row| row.name.clone()).collect();
        let asked: BTreeSet<&String> = topics.iter().collect();
        let others: Vec<&String> = self.names.iter().filter(|name| !asked.contains(name)).collect();
        let turn: Vec<String> = (0..others.len().min(OTHERS_ASKED))
            .filter_map(|n| others.get((self.turn + n) % others.len()))
            .map(|name| (*name).clone())
            .collect();
        self.turn = self.turn.wrapping_add(turn.len());
        topics.extend(turn);
        Wanted { list, topics, details: false }
    }

    fn see(&mut self, seen: Seen) {
        let answer = match seen.answer {
            Ok(answer) => answer,
            Err(why) => {
                let times = self.away.as_ref().map_or(0, |(_, times)| *times);
                self.away = Some((why, times + 1));
                // Its counters before that cannot be compared with the next ones.
                (self.rates, self.reading) = (None, None);
                return;
            }
        };
        (self.away, self.trouble) = (None, answer.trouble);
        self.readiness = Some(answer.readiness);
        self.rates = self.reading.as_ref().map(|before| answer.reading.since(before));
        self.reading = Some(answer.reading);
        if let Some(mut names) = answer.topics {
            names.sort();
            self.depths.retain(|name, _| names.binary_search(name).is_ok());
            self.groups.retain(|name, _| names.binary_search(name).is_ok());
            (self.names, self.is_listed) = (names, true);
        }
        self.draw();
        for (name, described) in answer.described {
            match &described {
                Some(described) => {
                    let groups = Depth::of_groups(described);
                    self.depths.insert(name.clone(), Depth::of(described, &groups));
                    self.groups.insert(name.clone(), groups);
                }
                None => {
                    self.depths.remove(&name);
                    self.groups.remove(&name);
                    self.names.retain(|known| *known != name);
                }
            }
            if let Some(opened) = self.opened.as_mut().filter(|opened| opened.name == name) {
                opened.described = described;
            }
        }
    }

    fn draw(&mut self) {
        let Some(rates) = &self.rates else { return };
        for (topic, rates) in rates.topics() {
            let trend = self.trends.entry(topic.clone()).or_default();
            if trend.len() == TREND {
                trend.pop_front();
            }
            trend.push_back(rates.deliveries);
        }
    }

    fn key(&mut self, key: KeyCode) {
        match self.mode {
            Mode::Filter => self.write_filter(key),
            Mode::Help => match key {
                KeyCode::Char('q') => self.is_over = true,
                _ => self.mode = Mode::Table,
            },
            Mode::Table => self.act(key),
        }
    }

    fn write_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.mode = Mode::Table,
            KeyCode::Esc => {
                self.mode = Mode::Table;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if self.filter.chars().count() < FILTER_CHARS => self.filter.push(c),
            _ => {}
        }
    }

    fn act(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Esc | KeyCode::Left if self.opened.is_some() => self.opened = None,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') if self.opened.is_none() => self.mode = Mode::Filter,
            KeyCode::Char('s') if self.opened.is_none() => self.sort = self.sort.next(),
            KeyCode::Enter | KeyCode::Right if self.opened.is_none() => {
                let open = |name| Opened { name, described: None, from: 0 };
                self.opened = self.chosen.clone().map(open);
            }
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-self.page_step()),
            KeyCode::PageDown => self.step(self.page_step()),
            KeyCode::Home => self.step(isize::MIN / 2),
            KeyCode::End => self.step(isize::MAX / 2),
            _ => {}
        }
    }

    fn page_step(&self) -> isize {
        isize::try_from(self.page()).unwrap_or(1)
    }

    fn step(&mut self, by: isize) {
        if let Some(opened) = &mut self.opened {
            opened.from = opened.from.saturating_add_signed(by);
            return;
        }
        let rows = self.rows();
        let at = self.chosen_at(&rows).unwrap_or(0).saturating_add_signed(by).min(rows.len().saturating_sub(1));
        self.chosen = rows.get(at).map(|row| row.name.clone());
    }

    fn chosen_at(&self, rows: &[Row]) -> Option<usize> {
        rows.iter().position(|row| Some(&row.name) == self.chosen.as_ref())
    }

    fn settle(&mut self) {
        let (rows, page) = (self.rows(), self.page());
        let at = self.chosen_at(&rows).unwrap_or_else(|| self.from.min(rows.len().saturating_sub(1)));
        self.chosen = rows.get(at).map(|row| row.name.clone());
        self.from = self.from.min(at).max((at + 1).saturating_sub(page));
        let lines = |row: &Row| 1 + self.groups(&row.name).len();
        let mut shown: usize = rows.iter().take(at + 1).skip(self.from).map(lines).sum();
        let mut from = self.from;
        // The chosen topic stays on the screen, with its groups if there is room.
        while shown > page && from < at {
            shown -= rows.get(from).map_or(0, lines);
            from += 1;
        }
        self.from = from;
        if let Some(opened) = &mut self.opened {
            let lines = opened.described.as_ref().map_or(0, Described::lines);
            opened.from = opened.from.min(lines.saturating_sub(page));
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Depth {
    pub(super) scheduled: u64,
    pub(super) ready: u64,
    pub(super) blocked: u64,
    pub(super) backoff: u64,
    pub(super) in_flight: u64,
    pub(super) dead: u64,
    pub(super) oldest: Option<Duration>,
    /// The worst of its groups.
    pub(super) condition: Condition,
    /// Partitions by the broker that owns them.
    pub(super) owners: BTreeMap<String, u64>,
}

/// A line of the table. Values that were not requested yet are absent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) depth: Option<Depth>,
    pub(super) rates: Option<TopicRates>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    #[default]
    Name,
    State,
    Ready,
    Oldest,
    Dead,
    Scheduled,
    Pushes,
    Deliveries,
    Lateness,
}

impl Sort {
    /// Each with the name of its column, in the order in which a key goes through them.
    const ALL: [(Sort, &'static str); 9] = [
        (Sort::Name, "topic"),
        (Sort::State, "state"),
        (Sort::Ready, "ready"),
        (Sort::Oldest, "oldest ready"),
        (Sort::Dead, "dead"),
        (Sort::Scheduled, "scheduled"),
        (Sort::Pushes, "pushes/s"),
        (Sort::Deliveries, "deliv/s"),
        (Sort::Lateness, "late p99"),
    ];

    pub(super) fn next(self) -> Sort {
        let later = Sort::ALL.iter().skip_while(|(sort, _)| *sort != self).nth(1);
        later.map(|(sort, _)| *sort).unwrap_or_default()
    }

    pub(super) fn column(self) -> &'static str {
        Sort::ALL.iter().find(|(sort, _)| *sort == self).map_or("", |(_, column)| *column)
    }

    fn value(self, row: &Row) -> f64 {
        let depth = |of: fn(&Depth) -> f64| row.depth.as_ref().map_or(-1.0, of);
        let rate = |of: fn(&TopicRates) -> f64| row.rates.as_ref().map_or(-1.0, of);
        match self {
            Sort::Name => 0.0,
            Sort::State => depth(|depth| f64::from(depth.condition as u8)),
            Sort::Ready => depth(|depth| depth.ready as f64),
            Sort::Oldest => depth(|depth| depth.oldest.map_or(-1.0, |oldest| oldest.as_secs_f64())),
            Sort::Dead => depth(|depth| depth.dead as f64),
            Sort::Scheduled => depth(|depth| depth.scheduled as f64),
            Sort::Pushes => rate(|rates| rates.pushes),
            Sort::Deliveries => rate(|rates| rates.deliveries),
            Sort::Lateness => rate(|rates| rates.lateness_p99.map_or(-1.0, Quantile::at_least)),
        }
    }
}

impl Depth {
    /// Of each group, without the owners of its partitions.
    pub(super) fn of_groups(Described { topic, groups, .. }: &Described) -> Vec<(String, Depth)> {
        let of_group = |total: &GroupTotals| {
            let GroupTotals { group: name, counts, .. } = total;
            let state = groups.iter().find(|group| group.group == *name).map_or("", |group| &*group.state);
            let depth = Depth {
                scheduled: counts.scheduled,
                ready: counts.ready,
                blocked: counts.blocked,
                backoff: counts.backoff,
                in_flight: counts.in_flight,
                dead: counts.dead,
                oldest: counts.oldest_ready_age_ms,
                condition: Condition::of(state, total, &topic.partitions),
                owners: BTreeMap::new(),
            };
            (name.clone(), depth)
        };
        topic.totals.iter().map(of_group).collect()
    }

    fn of(Described { topic, .. }: &Described, groups: &[(String, Depth)]) -> Depth {
        let mut depth = Depth::default();
        groups.iter().for_each(|(_, of_group)| depth.add(of_group));
        for owner in topic.partitions.iter().filter_map(|partition| partition.owner.as_ref()) {
            *depth.owners.entry(owner.clone()).or_default() += 1;
        }
        depth
    }

    fn add(&mut self, other: &Depth) {
        self.scheduled += other.scheduled;
        self.ready += other.ready;
        self.blocked += other.blocked;
        self.backoff += other.backoff;
        self.in_flight += other.in_flight;
        self.dead += other.dead;
        self.oldest = self.oldest.max(other.oldest);
        self.condition = self.condition.max(other.condition);
        for (owner, partitions) in &other.owners {
            *self.owners.entry(owner.clone()).or_default() += partitions;
        }
    }
}

pub(super) fn rows(
    names: &[String],
    depths: &HashMap<String, Depth>,
    rates: Option<&Rates>,
    filter: &str,
    sort: Sort,
) -> Vec<Row> {
    let row = |name: &String| Row {
        name: name.clone(),
        depth: depths.get(name).cloned(),
        rates: rates.and_then(|rates| rates.of(name)),
    };
    let mut rows: Vec<Row> = names.iter().filter(|name| name.contains(filter)).map(row).collect();
    rows.sort_by(|a, b| {
        let by_value = sort.value(b).partial_cmp(&sort.value(a)).unwrap_or(Ordering::Equal);
        by_value.then_with(|| a.name.cmp(&b.name))
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::super::tests::{seen, state, topic};
    use super::*;

    fn press(state: &mut State, keys: &[KeyCode]) {
        keys.iter().for_each(|key| state.update(Event::Key(*key)));
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("t{n:04}")).collect()
    }

    #[test]
    fn visible_rows_are_polled_and_thousands_in_rotation() {
        let mut state = state((80, 24), &names(5_000));
        assert_eq!(state.page(), 17);
        let mut asked = BTreeSet::new();
        for refresh in 0..1_000 {
            let wanted = state.wanted();
            assert_eq!(wanted.list, refresh % 5 == 0, "{refresh}");
            assert_eq!(wanted.topics.len(), 17 + 8);
            assert_eq!(wanted.topics[..17], names(17));
            asked.extend(wanted.topics);
        }
        assert_eq!(asked.len(), 5_000);
        state.update(Event::Size(200, 500));
        assert_eq!(state.wanted().topics.len(), 60 + 8);
        press(&mut state, &[KeyCode::End, KeyCode::Enter]);
        assert_eq!(state.wanted(), Wanted { list: false, topics: vec!["t4999".to_owned()], details: true });
    }

    #[test]
    fn selection_stays_visible_after_keys_resizes_and_filters() {
        let mut state = state((80, 24), &names(100));
        assert_eq!(state.chosen.as_deref(), Some("t0000"));
        press(&mut state, &[KeyCode::Up, KeyCode::PageDown, KeyCode::Down]);
        assert_eq!((state.chosen.as_deref(), state.from), (Some("t0018"), 2));
        state.update(Event::Size(40, 6));
        assert_eq!((state.page(), state.from), (2, 17));
        press(&mut state, &[KeyCode::Char('/'), KeyCode::Char('9'), KeyCode::Char('9'), KeyCode::Enter]);
        assert_eq!((state.rows().len(), state.chosen.as_deref(), state.from), (1, Some("t0099"), 0));
        press(&mut state, &[KeyCode::Esc, KeyCode::End]);
        assert_eq!((state.rows().len(), state.chosen.as_deref(), state.from), (100, Some("t0099"), 98));
        press(&mut state, &[KeyCode::Char('/'), KeyCode::Char('x')]);
        assert_eq!((state.rows().len(), state.chosen.as_deref()), (0, None));
        press(&mut state, &[KeyCode::Enter, KeyCode::Enter]);
        assert!(state.opened.is_none());
    }

    #[test]
    fn letters_typed_in_a_filter_are_not_commands() {
        let mut state = state((80, 24), &names(3));
        press(&mut state, &[KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Backspace, KeyCode::Backspace]);
        assert!(!state.is_over && state.filter.is_empty() && state.mode == Mode::Filter);
        press(&mut state, &[KeyCode::Esc, KeyCode::Char('p'), KeyCode::Char('?'), KeyCode::Esc]);
        assert!(state.is_paused && !state.is_over && state.mode == Mode::Table);
        press(&mut state, &[KeyCode::Char('s'), KeyCode::Char('q')]);
        assert!(state.is_over && state.sort == Sort::State);
    }

    #[test]
    fn unreachable_broker_is_counted_and_recovers() {
        let mut state = state((80, 24), &names(3));
        for times in 1..=3 {
            let away = Seen { at: crate::platform::clock::Instant::START, answer: Err("refused".to_owned()) };
            state.update(Event::Seen(Box::new(away)));
            assert_eq!(state.away, Some(("refused".to_owned(), times)));
        }
        assert!(state.reading.is_none() && state.rows().len() == 3);
        state.update(Event::Seen(Box::new(seen(9, Some(&names(2)), vec![]))));
        assert!(state.away.is_none() && state.rates.is_none() && state.rows().len() == 2);
        state.update(Event::Seen(Box::new(seen(10, None, vec![("t0001".to_owned(), None)]))));
        assert!(state.rates.is_some() && state.rows().len() == 1);
    }

    #[test]
    fn rows_are_filtered_and_sorted_descending() {
        let names = ["orders", "mail", "order-mail"].map(str::to_owned);
        let depth = |ready, oldest| Depth { ready, oldest: Some(Duration::from_secs(oldest)), ..Depth::default() };
        let depths = HashMap::from([("orders".to_owned(), depth(3, 1)), ("mail".to_owned(), depth(5, 9))]);
        let names_by = |filter, sort| {
            let rows = rows(&names, &depths, None, filter, sort);
            rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
        };
        assert_eq!(names_by("", Sort::Name), ["mail", "order-mail", "orders"]);
        assert_eq!(names_by("order", Sort::Name), ["order-mail", "orders"]);
        assert_eq!(names_by("", Sort::Ready), ["mail", "orders", "order-mail"]);
        assert_eq!(names_by("", Sort::Lateness), ["mail", "order-mail", "orders"]);
    }

    #[test]
    fn sort_order_cycles() {
        let mut sort = Sort::default();
        for (expected, _) in Sort::ALL.into_iter().cycle().skip(1).take(Sort::ALL.len()) {
            sort = sort.next();
            assert_eq!(sort, expected);
        }
    }

    #[test]
    fn group_and_topic_figures_are_summed() -> serde_json::Result<()> {
        let mut state = state((80, 24), &names(2));
        let described = |name: &str| Ok((name.to_owned(), Some(topic(name)?)));
        let all = ["t0000", "t0001"].map(described).into_iter().collect::<serde_json::Result<_>>()?;
        state.update(Event::Seen(Box::new(seen(2, None, all))));
        let oldest = Some(Duration::from_secs(12));
        let owners = BTreeMap::from([("host-abc".to_owned(), 2)]);
        let condition = Condition::Late;
        let depth =
            Depth { scheduled: 2_400, ready: 6, in_flight: 4, dead: 2, oldest, condition, owners, ..Depth::default() };
        assert_eq!(state.total().depth, Some(depth));
        Ok(())
    }

    #[test]
    fn trend_keeps_a_bounded_number_of_rates() {
        let mut state = state((80, 24), &names(1));
        for seconds in 2..30 {
            state.update(Event::Seen(Box::new(seen(seconds, None, vec![]))));
        }
        assert_eq!((state.trend("").count(), state.trend("t0000").count(), state.trend("t0001").count()), (10, 10, 0));
    }
}
