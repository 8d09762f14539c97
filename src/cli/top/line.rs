//! A line of the screen: text, and what each part of it is.

/// What a part of a line is. Which colour that has is the screen's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    /// Less important.
    Dim,
    /// The names of columns.
    Head,
    Good,
    Odd,
    Bad,
    /// The line that keys act on.
    Chosen,
}

/// One line, without control characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line(pub(super) Vec<(Ink, String)>);

impl Line {
    pub(super) fn of(ink: Ink, text: impl Into<String>) -> Line {
        Line::default().and(ink, text)
    }

    /// The same, and more behind it. What came from elsewhere must not move the cursor.
    pub(super) fn and(mut self, ink: Ink, text: impl Into<String>) -> Line {
        let text: String = text.into();
        self.0.push((ink, text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()));
        self
    }

    /// No more than so many characters of it.
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

    /// The text alone.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_characters_and_cannot_steer_the_terminal() {
        let line = Line::of(Ink::Good, "aé\u{1b}[2J").and(Ink::Plain, "end");
        assert_eq!(line.text(), "aé?[2Jend");
        assert_eq!(line.clone().cut(3).text(), "aé?");
        assert_eq!(line.clone().cut(7).0.len(), 2);
        assert_eq!(line.cut(0).text(), "");
    }
}
