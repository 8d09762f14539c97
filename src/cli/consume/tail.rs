//! The end of a text that may be long.

/// The last bytes of what was written, up to a limit.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    limit: usize,
    cut: bool,
}

impl Tail {
    pub(super) fn new(limit: usize) -> Tail {
        Tail { bytes: Vec::new(), limit, cut: false }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if let Some(excess) = self.bytes.len().checked_sub(self.limit).filter(|excess| *excess > 0) {
            self.bytes.drain(..excess);
            self.cut = true;
        }
    }

    /// The end as text, without a character that was cut in half.
    pub(super) fn text(&self) -> String {
        let is_inside = |byte: &u8| (0x80..0xc0).contains(byte);
        let start = if self.cut { self.bytes.iter().take_while(|byte| is_inside(byte)).count() } else { 0 };
        let text = String::from_utf8_lossy(self.bytes.get(start..).unwrap_or_default());
        let dots = if self.cut { "…" } else { "" };
        format!("{dots}{}", text.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_whole_and_of_a_long_one_the_end_is_kept() {
        let mut tail = Tail::new(5);
        tail.write(b"ab\n");
        assert_eq!(tail.text(), "ab");
        tail.write("cdéf\n".as_bytes());
        assert_eq!(tail.text(), "…déf");
        tail.write("é€".as_bytes());
        assert_eq!(tail.text(), "…é€");
        tail.write(b"!");
        assert_eq!(tail.text(), "…€!");
    }
}
