//! What was measured: one figure for each measure and way, with all its runs.

use serde::Serialize;

/// What a figure is called: the measure, and the way to it.
pub(super) type Name = (&'static str, String);

/// All figures, in the order of their first run.
#[derive(Debug, Default)]
pub(super) struct Results {
    figures: Vec<Figure>,
}

/// One figure.
#[derive(Debug, Clone)]
pub(super) struct Figure {
    pub(super) name: Name,
    pub(super) unit: &'static str,
    pub(super) runs: Vec<f64>,
    /// What it is compared with.
    pub(super) ceiling: Option<Name>,
}

/// A figure as it is printed and written.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) measure: &'static str,
    pub(super) way: String,
    pub(super) unit: &'static str,
    pub(super) median: f64,
    pub(super) lowest: f64,
    pub(super) highest: f64,
    pub(super) runs: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ceiling: Option<String>,
    /// The median, divided by that of the ceiling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
}

impl Results {
    /// Notes a run.
    pub(super) fn note(&mut self, name: Name, unit: &'static str, value: f64, ceiling: Option<Name>) {
        match self.figures.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.runs.push(value),
            None => self.figures.push(Figure { name, unit, runs: vec![value], ceiling }),
        }
    }

    /// Every figure, those of a measure together, with its ratio where its ceiling was measured too.
    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |figure: &Figure| {
            let ceiling = figure.ceiling.as_ref().filter(|name| **name != figure.name);
            let of = ceiling.and_then(|name| self.figures.iter().find(|other| other.name == *name));
            let median = median(&figure.runs);
            let ratio = of.map(|of| self::median(&of.runs)).filter(|of| *of > 0.0).map(|of| median / of);
            Row {
                measure: figure.name.0,
                way: figure.name.1.clone(),
                unit: figure.unit,
                median,
                lowest: figure.runs.iter().copied().reduce(f64::min).unwrap_or_default(),
                highest: figure.runs.iter().copied().reduce(f64::max).unwrap_or_default(),
                runs: figure.runs.clone(),
                ceiling: of.map(|of| of.name.1.clone()).filter(|_| ratio.is_some()),
                ratio,
            }
        };
        let mut measures = Vec::new();
        for figure in &self.figures {
            if !measures.contains(&figure.name.0) {
                measures.push(figure.name.0);
            }
        }
        let of = |measure| self.figures.iter().filter(move |figure| figure.name.0 == measure);
        measures.into_iter().flat_map(of).map(row).collect()
    }
}

/// The middle run; of an even number the lower of the two.
fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_median_of_its_runs_and_its_ratio_that_of_medians() {
        let mut book = Results::default();
        let name = |way: &str| ("push", way.to_owned());
        for value in [30.0, 10.0, 20.0] {
            book.note(name("library"), "messages/s", value, Some(name("bare")));
            book.note(name("HTTP"), "messages/s", value, Some(name("not measured")));
            book.note(name("bare"), "messages/s", value * 2.0, None);
        }
        let rows = book.rows();
        let [library, http, bare] = &rows[..] else { return assert_eq!(rows.len(), 3) };
        assert_eq!((library.median, library.lowest, library.highest), (20.0, 10.0, 30.0));
        assert_eq!((library.ratio, library.ceiling.as_deref()), (Some(0.5), Some("bare")));
        assert_eq!((http.ratio, http.ceiling.as_deref()), (None, None));
        assert_eq!((bare.median, bare.ratio), (40.0, None));
    }
}
