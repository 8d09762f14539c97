//! A page of metrics, read.

use std::collections::{BTreeMap, BTreeSet};

/// Series with their values, each as it stands on the page: `name{label="value",...}`, labels by name.
#[derive(Debug, Default)]
pub(super) struct Page(BTreeMap<String, f64>);

impl Page {
    pub(super) fn of(text: &str) -> Page {
        let series = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        };
        Page(text.lines().filter(|line| !line.starts_with('#')).filter_map(series).collect())
    }

    /// The value of one series.
    pub(super) fn value(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }

    /// All series of a name, with their values.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let is_of =
            move |series: &str| series.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
        self.0.iter().filter(move |(series, _)| is_of(series)).map(|(series, value)| (series.as_str(), *value))
    }

    /// The families that have series: histograms by the name without its end.
    pub(super) fn families(&self) -> BTreeSet<&str> {
        let names = self.0.keys().filter_map(|series| series.split('{').next());
        names.map(|name| name.strip_suffix("_bucket").unwrap_or(name)).collect()
    }

    /// How many series there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
