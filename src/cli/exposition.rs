//! Metrics in the text format of Prometheus, read back.

use std::collections::BTreeMap;

/// One series with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Sample {
    /// A label; empty when it is not there.
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Reads every series. A line that is none is left out: one more is no reason to show nothing.
pub(super) fn read(text: &str) -> Vec<Sample> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

/// A line is `name{label="value",…} number`, and perhaps a time behind it.
fn sample(line: &str) -> Option<Sample> {
    let (head, tail) = match line.find('{') {
        Some(open) => {
            let close = open + end_of_labels(line.get(open..)?)?;
            (line.get(..close)?, line.get(close + 1..)?)
        }
        None => line.split_once(' ')?,
    };
    let (name, labels) = head.split_once('{').unwrap_or((head, ""));
    let value = match tail.split_ascii_whitespace().next()? {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number => number.parse().ok()?,
    };
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte));
    is_name.then_some(Sample { name: name.to_owned(), labels: read_labels(labels)?, value })
}

/// Where the brace is that ends the labels: not one within quotes.
fn end_of_labels(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

fn read_labels(text: &str) -> Option<BTreeMap<String, String>> {
    let (mut labels, mut rest) = (BTreeMap::new(), text.trim());
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"")?;
        let (value, length) = unquoted(behind)?;
        labels.insert(name.trim().to_owned(), value);
        rest = behind.get(length..)?.trim_start_matches([',', ' ']);
    }
    Some(labels)
}

/// The text up to a quote, with its escapes undone, and its length with the quote.
fn unquoted(text: &str) -> Option<(String, usize)> {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match (escaped, c) {
            (true, 'n') => value.push('\n'),
            (true, c) => value.push(c),
            (false, '"') => return Some((value, at + 1)),
            (false, '\\') => {}
            (false, c) => value.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn names_labels_and_numbers_are_read() {
        let text =
            "# HELP a what\n# TYPE a counter\na 1\nb_total{topic=\"x\",le=\"+Inf\"} 2.5 1700000000000\nc{} +Inf\n";
        let samples = read(text);
        assert_eq!(
            samples.iter().map(|s| (s.name.as_str(), s.value)).collect::<Vec<_>>(),
            [("a", 1.0), ("b_total", 2.5), ("c", f64::INFINITY)]
        );
        assert_eq!(samples[1].labels, labels(&[("topic", "x"), ("le", "+Inf")]));
        assert_eq!((samples[1].label("topic"), samples[1].label("none")), ("x", ""));
    }

    #[test]
    fn what_is_escaped_or_looks_like_an_end_is_part_of_a_value() {
        let samples = read("a{path=\"C:\\\\n\\\"}{,=\\\"\",b=\"\\n\"} 3\n");
        assert_eq!(samples[0].labels, labels(&[("path", "C:\\n\"}{,=\""), ("b", "\n")]));
        assert_eq!(samples[0].value, 3.0);
    }

    #[test]
    fn what_is_no_series_is_left_out() {
        for line in ["", "a", "a{", "a{b=\"c} 1", "a{b} 1", "a{b=\"c\"}", "a x", "{} 1", "a b 1", "<html>"] {
            assert_eq!(read(line), [], "{line:?}");
        }
    }
}
