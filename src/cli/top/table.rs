//! Lines of a screen: parts with the role of their text, tables whose columns give way where there is no room, and numbers
//! that are drawn.

/// The column whose text has another role than the rest of its row.
pub(super) const STATE: &str = "state";

pub(super) struct Column {
    pub(super) name: &'static str,
    /// Which columns give way first where there is no room: those with the greatest numbers.
    rank: u8,
    is_text: bool,
}

const GAP: usize = 2;

pub(super) const fn text(name: &'static str, rank: u8) -> Column {
    Column { name, rank, is_text: true }
}

pub(super) const fn number(name: &'static str, rank: u8) -> Column {
    Column { name, rank, is_text: false }
}

/// How wide each column is; `None` for those that have no room. The first one by rank is always there.
pub(super) fn columns(columns: &[Column], rows: &[Vec<String>], width: usize) -> Vec<Option<usize>> {
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

pub(super) fn head_line(columns: &[Column], widths: &[Option<usize>], sorted_by: &str) -> Line {
    let names: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
    let mut line = Line::default();
    for (at, text) in padded(columns, widths, &names) {
        let is_it = columns.get(at).is_some_and(|column| column.name == sorted_by);
        line = line.and(if is_it { Ink::Odd } else { Ink::Head }, text);
    }
    line
}

pub(super) fn line(columns: &[Column], widths: &[Option<usize>], cells: &[String], ink: Ink, state: Ink) -> Line {
    let is_state = |at: usize| columns.get(at).is_some_and(|column| column.name == STATE);
    let parts = padded(columns, widths, cells).into_iter();
    parts.fold(Line::default(), |line, (at, text)| line.and(if is_state(at) { state } else { ink }, text))
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

    /// Adds text at the end. Control characters become `?`: text from elsewhere must not move the cursor.
    pub(super) fn and(mut self, ink: Ink, text: impl Into<String>) -> Line {
        let text: String = text.into();
        let text = text.chars().map(|c| if c.is_control() { '?' } else { c });
        match self.0.last_mut().filter(|(last, _)| *last == ink) {
            Some((_, part)) => part.extend(text),
            None => self.0.push((ink, text.collect())),
        }
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

/// A bar for each value, the highest for the greatest.
pub(super) fn sparkline(values: impl Iterator<Item = f64> + Clone) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.clone().fold(0.0, f64::max);
    let bar = |value: f64| {
        let part = if most > 0.0 { value / most } else { 0.0 };
        BARS.get((part * 7.0).ceil() as usize).copied().unwrap_or('█')
    };
    values.map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_cut_by_characters_without_control_codes() {
        let line = Line::of(Ink::Good, "aé\u{1b}[2J").and(Ink::Plain, "end");
        assert_eq!(line.text(), "aé?[2Jend");
        assert_eq!(line.clone().cut(3).text(), "aé?");
        assert_eq!(line.clone().cut(7).0.len(), 2);
        assert_eq!(line.cut(0).text(), "");
    }

    #[test]
    fn sparkline_scales_to_its_maximum() {
        assert_eq!(sparkline([0.0, 1.0, 50.0, 100.0].into_iter()), "▁▂▅█");
        assert_eq!(sparkline([0.0, 0.0].into_iter()), "▁▁");
        assert_eq!(sparkline(std::iter::empty()), "");
    }
}
