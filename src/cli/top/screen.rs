//! The terminal while a view has it. It is given back as it was, however the view ends.

use std::io::{self, Write};

use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{self, Clear, ClearType};
use crossterm::{cursor, execute};

use super::line::{Ink, Line};

/// The terminal, in a mode of its own. Dropping it restores what was there.
pub(super) struct Screen {
    colored: bool,
    /// What stands there now.
    shown: Vec<Line>,
    size: (u16, u16),
}

impl Screen {
    /// Takes the terminal. A panic gives it back before it says what is wrong.
    pub(super) fn enter(colored: bool) -> io::Result<Screen> {
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

    /// Columns and rows.
    pub(super) fn size() -> (u16, u16) {
        terminal::size().unwrap_or((80, 24))
    }

    /// Shows these lines from the top; writes only those that are other ones than before.
    pub(super) fn paint(&mut self, lines: Vec<Line>, size: (u16, u16)) -> io::Result<()> {
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
