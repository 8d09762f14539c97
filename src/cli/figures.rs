//! Figures: metrics in the text format of Prometheus, read back.

use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Sample {
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
    let (name, (labels, tail)) = match line.split_once('{') {
        Some((name, rest)) => (name, read_labels(rest)?),
        None => line.split_once(' ').map(|(name, tail)| (name, (BTreeMap::new(), tail)))?,
    };
    let value = match tail.split_ascii_whitespace().next()? {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number => number.parse().ok()?,
    };
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte));
    is_name.then_some(Sample { name: name.to_owned(), labels, value })
}

/// The labels up to the brace that ends them, and what is behind it.
fn read_labels(text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let (mut labels, mut rest) = (BTreeMap::new(), text);
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(tail) = rest.strip_prefix('}') {
            return Some((labels, tail));
        }
        let (name, behind) = rest.split_once("=\"")?;
        let (value, length) = unquoted(behind)?;
        labels.insert(name.trim().to_owned(), value);
        rest = behind.get(length..)?;
    }
}

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
    fn metric_names_labels_and_values_are_parsed() {
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
    fn escaped_characters_stay_in_label_values() {
        let samples = read("a{path=\"C:\\\\n\\\"}{,=\\\"\",b=\"\\n\"} 3\n");
        assert_eq!(samples[0].labels, labels(&[("path", "C:\\n\"}{,=\""), ("b", "\n")]));
        assert_eq!(samples[0].value, 3.0);
    }

    #[test]
    fn lines_that_are_not_series_are_skipped() {
        for line in ["", "a", "a{", "a{b=\"c} 1", "a{b} 1", "a{b=\"c\"}", "a x", "{} 1", "a b 1", "<html>"] {
            assert_eq!(read(line), [], "{line:?}");
        }
    }
}
